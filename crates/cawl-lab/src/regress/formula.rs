//! Formulas of linear models in the notation of Wilkinson and Rogers (1973), as R has it.
//!
//! `response ~ term + …`: a term is a column, `log(…)` or `I(…)` of an arithmetic expression of columns, an
//! interaction `a:b`, or `a * b`, which is `a + b + a:b`. `- 1` or `+ 0` leaves out the intercept.

use std::fmt;

use anyhow::{Context, bail, ensure};

/// An expression of columns.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// The values of a column.
    Column(String),
    /// A number, equal in all rows.
    Number(f64),
    /// The natural logarithm.
    Log(Box<Expression>),
    /// Two expressions with `+`, `-`, `*`, `/` or `^` between them.
    Binary(char, Box<Expression>, Box<Expression>),
}

/// Factors that are multiplied: one of them is a main effect, more are an interaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Term(pub Vec<Expression>);

/// What depends on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Formula {
    pub response: Expression,
    /// Whether there is a constant.
    pub intercept: bool,
    /// The right side: main effects first, then interactions, in the order of their first mention.
    pub terms: Vec<Term>,
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Column(name) => f.write_str(name),
            Expression::Number(number) => write!(f, "{number}"),
            Expression::Log(inner) => write!(f, "log({inner})"),
            Expression::Binary(sign, left, right) => {
                let part = |side: &Expression| match side {
                    Expression::Binary(..) => format!("({side})"),
                    _ => side.to_string(),
                };
                write!(f, "{} {sign} {}", part(left), part(right))
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let factors: Vec<String> = self.0.iter().map(Expression::to_string).collect();
        f.write_str(&factors.join(":"))
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms: Vec<String> = self.terms.iter().map(Term::to_string).collect();
        if !self.intercept || terms.is_empty() {
            terms.push(String::from(if self.intercept { "1" } else { "0" }));
        }
        write!(f, "{} ~ {}", self.response, terms.join(" + "))
    }
}

impl Term {
    /// True if all factors of this term are among those of the other one.
    pub fn is_part_of(&self, other: &Term) -> bool {
        self.0.iter().all(|factor| other.0.contains(factor))
    }
}

impl Formula {
    pub fn parse(text: &str) -> anyhow::Result<Formula> {
        let mut parser = Parser { tokens: tokens(text)?, at: 0 };
        let formula = parser.formula().with_context(|| format!("cannot read the formula `{text}`"))?;
        ensure!(
            formula.intercept || !formula.terms.is_empty(),
            "the formula `{text}` has nothing on its right side; name a column, or 1 for the mean"
        );
        Ok(formula)
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Number(f64),
    Sign(char),
}

fn tokens(text: &str) -> anyhow::Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = |is_part: fn(char) -> bool| rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (token, used) = match first {
            '`' => {
                let (name, _) = rest[1..].split_once('`').context("a column's name in `…` has no end")?;
                (Some(Token::Name(name.to_owned())), name.len() + 2)
            }
            _ if first.is_whitespace() => (None, first.len_utf8()),
            _ if first.is_ascii_digit() || first == '.' => {
                let used = length(|c| c.is_ascii_alphanumeric() || c == '.');
                let number =
                    rest[..used].parse().with_context(|| format!("`{}` is no number", &rest[..used]))?;
                (Some(Token::Number(number)), used)
            }
            _ if first.is_alphabetic() || first == '_' => {
                let used = length(|c| c.is_alphanumeric() || c == '_' || c == '.');
                (Some(Token::Name(rest[..used].to_owned())), used)
            }
            '~' | '+' | '-' | '*' | '/' | ':' | '^' | '(' | ')' => (Some(Token::Sign(first)), 1),
            other => bail!("`{other}` has no meaning in a formula; write a column's name in `…`"),
        };
        tokens.extend(token);
        rest = &rest[used..];
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn formula(&mut self) -> anyhow::Result<Formula> {
        let response = self.factor()?;
        ensure!(self.takes('~'), "a formula is `response ~ term + …`");
        let (mut terms, mut intercept): (Vec<Term>, bool) = (Vec::new(), true);
        let mut sign = '+';
        loop {
            match (sign, self.tokens.get(self.at)) {
                (_, Some(Token::Number(number))) if *number == 0.0 || *number == 1.0 => {
                    intercept = (sign == '+') == (*number == 1.0);
                    self.at += 1;
                }
                ('+', _) => {
                    for term in self.crossed()? {
                        let is_known =
                            terms.iter().any(|known| known.is_part_of(&term) && term.is_part_of(known));
                        if !is_known {
                            terms.push(term);
                        }
                    }
                }
                _ => bail!("only the intercept can be subtracted: `- 1`"),
            }
            sign = match self.tokens.get(self.at) {
                None => break,
                Some(Token::Sign(sign @ ('+' | '-'))) => *sign,
                Some(other) => bail!("a `+` is missing before {other:?}"),
            };
            self.at += 1;
        }
        terms.sort_by_key(|term| term.0.len());
        Ok(Formula { response, intercept, terms })
    }

    /// `a * b * …`: all products of some of them.
    fn crossed(&mut self) -> anyhow::Result<Vec<Term>> {
        let mut terms = vec![self.interaction()?];
        while self.takes('*') {
            let next = self.interaction()?;
            let products: Vec<Term> = terms.iter().map(|term| product(term, &next)).collect();
            terms.push(next);
            terms.extend(products);
        }
        Ok(terms)
    }

    fn interaction(&mut self) -> anyhow::Result<Term> {
        let mut term = Term(vec![self.factor()?]);
        while self.takes(':') {
            term = product(&term, &Term(vec![self.factor()?]));
        }
        Ok(term)
    }

    fn factor(&mut self) -> anyhow::Result<Expression> {
        match self.next() {
            Some(Token::Name(name)) if self.takes('(') => {
                let inner = self.sum()?;
                ensure!(self.takes(')'), "a `)` is missing");
                match name.as_str() {
                    "log" => Ok(Expression::Log(Box::new(inner))),
                    "I" => Ok(inner),
                    _ => bail!("there is no function `{name}`; the functions are log and I"),
                }
            }
            Some(Token::Name(name)) => Ok(Expression::Column(name)),
            other => {
                bail!("a column's name is missing{}", other.map_or(String::new(), |at| format!(" at {at:?}")))
            }
        }
    }

    fn sum(&mut self) -> anyhow::Result<Expression> {
        self.binary(&['+', '-'], |parser| parser.binary(&['*', '/'], Parser::power))
    }

    fn binary(
        &mut self,
        signs: &[char],
        part: impl Fn(&mut Parser) -> anyhow::Result<Expression>,
    ) -> anyhow::Result<Expression> {
        let mut left = part(self)?;
        while let Some(sign) = signs.iter().copied().find(|sign| self.takes(*sign)) {
            left = Expression::Binary(sign, Box::new(left), Box::new(part(self)?));
        }
        Ok(left)
    }

    fn power(&mut self) -> anyhow::Result<Expression> {
        let base = self.atom()?;
        if !self.takes('^') {
            return Ok(base);
        }
        Ok(Expression::Binary('^', Box::new(base), Box::new(self.power()?)))
    }

    fn atom(&mut self) -> anyhow::Result<Expression> {
        if self.takes('(') {
            let inner = self.sum()?;
            ensure!(self.takes(')'), "a `)` is missing");
            return Ok(inner);
        }
        match self.tokens.get(self.at) {
            Some(Token::Number(number)) => {
                let number = *number;
                self.at += 1;
                Ok(Expression::Number(number))
            }
            _ => self.factor(),
        }
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn takes(&mut self, sign: char) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }
}

fn product(one: &Term, other: &Term) -> Term {
    let mut factors = one.0.clone();
    factors.extend(other.0.iter().filter(|factor| !one.0.contains(factor)).cloned());
    Term(factors)
}
