//! Text to condition.

use cawl_wire::Op;

use super::{Node, Quantity, Relation};
use crate::cause::Cause;
use crate::glob::Glob;
use crate::quantity::span_with_unit;

/// Parts within parts, and characters.
const DEEPEST: usize = 64;
const LONGEST: usize = 4096;

/// What is wrong with the text of a condition, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\n  {text}\n  {pointer:>0$}", .at + 1, pointer = "^")]
pub struct ConditionError {
    /// The text, on one line.
    text: String,
    /// The place in it, in characters.
    pub(super) at: usize,
    pub(super) what: String,
}

type Parsed<T> = Result<T, ConditionError>;

struct Parser<'a> {
    text: &'a str,
    /// Where to go on, in bytes.
    at: usize,
    depth: usize,
}

pub(super) fn parse(text: &str) -> Parsed<Node> {
    let mut parser = Parser { text, at: 0, depth: 0 };
    if text.len() > LONGEST {
        parser.text = "";
        return Err(parser.wrong("the condition is too long"));
    }
    let node = parser.condition()?;
    match parser.rest() {
        "" => Ok(node),
        _ => Err(parser.wrong("`and`, `or` or the end is expected here")),
    }
}

impl<'a> Parser<'a> {
    /// The text from the next token on.
    fn rest(&mut self) -> &'a str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn wrong(&self, what: impl Into<String>) -> ConditionError {
        ConditionError {
            text: self.text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
            at: self.text[..self.at].chars().count(),
            what: what.into(),
        }
    }

    /// True if this sign was next.
    fn sign(&mut self, sign: &str) -> bool {
        let is_next = self.rest().starts_with(sign);
        self.at += if is_next { sign.len() } else { 0 };
        is_next
    }

    /// The next word; empty if there is none.
    fn peek_word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '-' && c != '_').unwrap_or(rest.len());
        &rest[..end]
    }

    /// True if this word was next.
    fn word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word() == word;
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn condition(&mut self) -> Parsed<Node> {
        let mut node = self.conjunction()?;
        while self.word("or") {
            let (one, other) = Node::ordered(node, self.conjunction()?);
            node = Node::Or(one, other);
        }
        Ok(node)
    }

    fn conjunction(&mut self) -> Parsed<Node> {
        let mut node = self.term()?;
        while self.word("and") {
            let (one, other) = Node::ordered(node, self.term()?);
            node = Node::And(one, other);
        }
        Ok(node)
    }

    fn term(&mut self) -> Parsed<Node> {
        if self.depth == DEEPEST {
            return Err(self.wrong("there are too many parentheses or `not`s around this"));
        }
        self.depth += 1;
        let node = if self.word("not") {
            Node::Not(Box::new(self.term()?))
        } else if self.sign("(") {
            let node = self.condition()?;
            if !self.sign(")") {
                return Err(self.wrong("`)` is expected here"));
            }
            node
        } else if self.word("op") {
            self.operation()?
        } else if self.word("file") {
            self.file()?
        } else {
            self.time()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn time(&mut self) -> Parsed<Node> {
        let quantity = self.quantity()?;
        let signs = [
            (">=", Relation::AtLeast),
            (">", Relation::Above),
            ("<=", Relation::AtMost),
            ("<", Relation::Below),
        ];
        let Some((_, relation)) = signs.into_iter().find(|(sign, _)| self.sign(sign)) else {
            return Err(self.wrong("`>`, `>=`, `<` or `<=` is expected here"));
        };
        if quantity != Quantity::Residual && self.rest().starts_with('-') {
            return Err(self.wrong("only `residual` can be below zero; remove the `-`"));
        }
        Ok(Node::Time(quantity, relation, self.span()?))
    }

    /// A quantity, whose name may have several words.
    fn quantity(&mut self) -> Parsed<Quantity> {
        self.rest();
        let begin = self.at;
        let mut name = String::new();
        loop {
            let word = self.peek_word();
            if word.is_empty() || ["and", "or", "not"].contains(&word) {
                break;
            }
            name += if name.is_empty() { "" } else { " " };
            name += word;
            self.at += word.len();
        }
        let known = match name.as_str() {
            "observed" => Some(Quantity::Observed),
            "predicted" => Some(Quantity::Predicted),
            "residual" => Some(Quantity::Residual),
            name => name.parse().ok().map(Quantity::Cause),
        };
        known.ok_or_else(|| {
            self.at = begin;
            let names: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
            let what = match name.as_str() {
                "" => "a comparison is expected here, as `unexpected > 50ms`".to_owned(),
                name => format!("there is no time `{name}`"),
            };
            self.wrong(format!(
                "{what}; the times are observed, predicted, residual, and the causes {}",
                names.join(", ")
            ))
        })
    }

    /// A time in ns.
    fn span(&mut self) -> Parsed<i64> {
        let is_negative = self.sign("-");
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '.').unwrap_or(rest.len());
        let text = &rest[..end];
        let Ok(seconds) = span_with_unit(text) else {
            return Err(self.wrong("a time with its unit is expected here: 50ms, 200us, 1.5s, 2m"));
        };
        self.at += end;
        let nanos = (seconds * 1e9).round() as i64;
        Ok(if is_negative { -nanos } else { nanos })
    }

    fn operation(&mut self) -> Parsed<Node> {
        let is = self.sign("==");
        if !is && !self.sign("!=") {
            return Err(self.wrong("`==` or `!=` is expected here"));
        }
        let name = self.peek_word();
        let Some(op) = Op::ALL.iter().find(|op| op.name() == name) else {
            let names: Vec<&str> = Op::ALL.iter().map(|op| op.name()).collect();
            return Err(self.wrong(format!("an operation is expected here: {}", names.join(", "))));
        };
        self.at += name.len();
        Ok(if is { Node::Op(*op) } else { Node::Not(Box::new(Node::Op(*op))) })
    }

    fn file(&mut self) -> Parsed<Node> {
        if !self.sign("~") {
            return Err(self.wrong("`~` and a pattern are expected here, as `file ~ /data/*.db`"));
        }
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c));
        let (glob, taken) = match quote {
            Some(quote) => {
                let Some(end) = rest[1..].find(quote) else {
                    return Err(self.wrong("this pattern has no closing quote"));
                };
                (&rest[1..=end], end + 2)
            }
            None => {
                let end = rest.find(|c: char| c.is_whitespace() || c == '(' || c == ')');
                let end = end.unwrap_or(rest.len());
                (&rest[..end], end)
            }
        };
        if glob.is_empty() {
            return Err(self.wrong("a pattern is expected here, as /data/*.db"));
        }
        self.at += taken;
        Ok(Node::File(Glob::from(glob)))
    }
}
