//! Conditions on single calls: `unexpected > 50ms or throttle > 200ms`.
//!
//! ```text
//! condition  = conjunction { "or" conjunction }
//! conjunction = term { "and" term }
//! term       = "not" term | "(" condition ")" | time | operation | file
//! time       = QUANTITY ( ">" | ">=" | "<" | "<=" ) SPAN
//! operation  = "op" ( "==" | "!=" ) NAME
//! file       = "file" "~" GLOB
//! ```
//!
//! A QUANTITY is a cause, or `observed`, `predicted`, `residual` (observed less predicted), whose SPAN may
//! have a `-` before it. In a GLOB, `*` is any text and `?` any character.

mod parse;

use std::str::FromStr;

use cawl_wire::{Event, FileId, Op};

use crate::cause::{Cause, CauseTimes};
use crate::glob::Glob;
use crate::units::Nanos;
pub use parse::ConditionError;

/// A condition on a call and its causes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    text: String,
    root: Node,
}

/// A part of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Time(Quantity, Relation, i64),
    Op(Op),
    File(Glob),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
}

/// A time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Cause(Cause),
    Observed,
    Predicted,
    Residual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// A call, as conditions see it.
struct Call<'a, P> {
    event: &'a Event,
    causes: &'a CauseTimes,
    predicted: Option<Nanos>,
    path: P,
}

impl Condition {
    /// The text that it was made from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the call fulfils it. `predicted`: None compares as false. `path`: the name of a file.
    pub fn holds<'a>(
        &self,
        event: &Event,
        causes: &CauseTimes,
        predicted: Option<Nanos>,
        path: impl Fn(FileId) -> Option<&'a str>,
    ) -> bool {
        self.root.holds(&Call { event, causes, predicted, path })
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Condition, ConditionError> {
        Ok(Condition { text: text.to_owned(), root: parse::parse(text)? })
    }
}

impl Node {
    fn holds<'a, P: Fn(FileId) -> Option<&'a str>>(&self, call: &Call<'_, P>) -> bool {
        match self {
            Node::Time(quantity, relation, bound) => {
                quantity.of(call).is_some_and(|time| relation.holds(time, *bound))
            }
            Node::Op(op) => call.event.op == *op,
            Node::File(glob) => (call.path)(call.event.file()).is_some_and(|path| glob.fits(path)),
            Node::Not(node) => !node.holds(call),
            Node::And(one, other) => one.holds(call) && other.holds(call),
            Node::Or(one, other) => one.holds(call) || other.holds(call),
        }
    }

    /// True if a file's name must be looked up.
    fn needs_path(&self) -> bool {
        match self {
            Node::File(_) => true,
            Node::Time(..) | Node::Op(_) => false,
            Node::Not(node) => node.needs_path(),
            Node::And(one, other) | Node::Or(one, other) => one.needs_path() || other.needs_path(),
        }
    }

    /// Two parts in the order in which they are cheaper to judge: names come last.
    fn ordered(one: Node, other: Node) -> (Box<Node>, Box<Node>) {
        let swap = one.needs_path() && !other.needs_path();
        if swap { (Box::new(other), Box::new(one)) } else { (Box::new(one), Box::new(other)) }
    }
}

impl Quantity {
    /// In ns; None if it is not known of the call.
    fn of<P>(self, call: &Call<'_, P>) -> Option<i64> {
        let predicted = || call.predicted.map(|predicted| predicted.get() as i64);
        let observed = i64::try_from(call.event.duration).unwrap_or(i64::MAX);
        match self {
            Quantity::Cause(cause) => Some(i64::try_from(call.causes[cause]).unwrap_or(i64::MAX)),
            Quantity::Observed => Some(observed),
            Quantity::Predicted => predicted(),
            Quantity::Residual => predicted().map(|predicted| observed.saturating_sub(predicted)),
        }
    }
}

impl Relation {
    fn holds(self, time: i64, bound: i64) -> bool {
        match self {
            Relation::Above => time > bound,
            Relation::AtLeast => time >= bound,
            Relation::Below => time < bound,
            Relation::AtMost => time <= bound,
        }
    }
}

#[cfg(test)]
mod tests;
