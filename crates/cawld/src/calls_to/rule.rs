//! Which calls a table has, and how many each stands for.
//!
//! The law of this module: **sums over the rows, each times its weight, are those over all calls**, in the
//! mean over the choices made by chance. A rule that begins with `only` waives that.

use std::str::FromStr;

use cawl_core::{Nanos, quantity};
use cawl_wire::Event;

/// What rules there are.
const USAGE: &str = "give `all`, or one or more of `slower than 1ms`, `around anomalies` and `1 in 100`, with ` or ` \
                     between; `only` before them leaves the others out";

/// One in so many of the calls that no other part of a rule takes.
const OTHERS: u32 = 1000;

/// An anomaly takes at least so much more than predicted, and so many times the prediction.
const FAR: (Nanos, f64) = (Nanos::millis(10.0), 10.0);

/// A rule (`--calls-of`).
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    text: String,
    /// Each call that takes so many ns.
    slower: Option<u64>,
    /// The calls around anomalies.
    pub anomalies: bool,
    /// One in so many of the others; None: none.
    one_in: Option<u32>,
}

impl Rule {
    /// As it was given.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (only, parts) = words.strip_prefix("only ").map_or((false, &*words), |parts| (true, parts));
        let mut rule = Rule { text: words.clone(), slower: None, anomalies: false, one_in: None };
        let wrong = |why: String| format!("{why}; {USAGE}");
        for part in parts.split(" or ") {
            let twice = || Err(wrong(format!("`{part}` is the second of its kind")));
            if part == "all" && parts == part && !only {
                rule.one_in = Some(1);
            } else if let Some(span) = part.strip_prefix("slower than ") {
                let seconds = quantity::span_with_unit(span)?;
                let ns = (seconds * 1e9).round() as u64;
                if rule.slower.replace(ns).is_some() {
                    return twice();
                }
            } else if part == "around anomalies" {
                if std::mem::replace(&mut rule.anomalies, true) {
                    return twice();
                }
            } else if let Some(count) = part.strip_prefix("1 in ") {
                let count = count.parse().ok().filter(|count| *count > 0);
                let count = count.ok_or_else(|| wrong(format!("`{part}` has no number above 0")))?;
                if only {
                    return Err(wrong("`only` leaves out what `1 in` would take".to_owned()));
                }
                if rule.one_in.replace(count).is_some() {
                    return twice();
                }
            } else if part == "all" {
                return Err(wrong("`all` stands alone".to_owned()));
            } else {
                return Err(wrong(format!("`{part}` is no rule")));
            }
        }
        if !only {
            rule.one_in.get_or_insert(OTHERS);
        }
        Ok(rule)
    }
}

/// A call that took far longer than predicted.
pub fn is_anomaly(event: &Event, predicted: Option<Nanos>) -> bool {
    let took = Nanos::new(event.duration as f64);
    predicted.is_some_and(|predicted| {
        took.saturating_sub(predicted) >= FAR.0 && took.get() >= predicted.get() * FAR.1
    })
}

/// Chooses calls by a rule. Of the others, one of each `one_in` that follow one another is chosen by chance:
/// each is chosen with the probability 1 / `one_in`, and what a program repeats does not matter.
pub struct Chooser {
    rule: Rule,
    /// Others seen of the present `one_in`, and which one is chosen.
    seen: u32,
    chosen: u32,
}

impl Chooser {
    /// At the beginning.
    pub fn new(rule: Rule) -> Chooser {
        Chooser { rule, seen: 0, chosen: 0 }
    }

    /// The number of calls that this one stands for, if it is chosen.
    pub fn weight(&mut self, event: &Event) -> Option<u32> {
        if self.rule.slower.is_some_and(|least| event.duration >= least) {
            return Some(1);
        }
        let of = self.rule.one_in?;
        if self.seen == 0 {
            self.chosen = fastrand::u32(0..of);
        }
        let is_chosen = self.seen == self.chosen;
        self.seen = (self.seen + 1) % of;
        is_chosen.then_some(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    #[test]
    fn rules_are_what_they_say() {
        let rule = |text: &str| text.parse::<Rule>().map(|rule| (rule.slower, rule.anomalies, rule.one_in));
        assert_eq!(rule("all"), Ok((None, false, Some(1))));
        assert_eq!(rule("1 in 100"), Ok((None, false, Some(100))));
        assert_eq!(rule("slower than 1ms"), Ok((Some(1_000_000), false, Some(OTHERS))));
        assert_eq!(rule("only  slower than 1ms"), Ok((Some(1_000_000), false, None)));
        assert_eq!(
            rule("around anomalies or 1 in 7 or slower than 2s"),
            Ok((Some(2_000_000_000), true, Some(7)))
        );
        for wrong in [
            "",
            "only",
            "some",
            "1 in 0",
            "1 in",
            "only 1 in 5",
            "only all",
            "all or 1 in 2",
            "slower than",
            "1 in 2 or 1 in 3",
        ] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_stands_alone() {
        let why = "all or 1 in 3".parse::<Rule>().unwrap_err();
        assert!(why.starts_with("`all` stands alone; give"), "{why}");
    }

    /// Writes and slow fsyncs in turn: the sums over the rows are near those over all calls, and exact for
    /// the slow ones. A choice of each hundredth call would have no fsync at all, or only fsyncs.
    #[test]
    fn weighted_sums_are_those_of_all_calls() {
        fastrand::seed(7);
        for text in ["1 in 100", "slower than 1s or 1 in 100", "slower than 40us or 1 in 100"] {
            let mut chooser = Chooser::new(text.parse().expect("a rule"));
            let (mut all, mut told) = ([0_u64; 4], [0_u64; 4]);
            for call in 0..200_000_u64 {
                let op = if call % 2 == 0 { Op::Write } else { Op::Fsync };
                let event = Event { duration: 1000 + call % 2 * 50_000 + call % 7, ..Event::new(op) };
                let values = [1, event.duration, 1 - call % 2, call % 2];
                let weight = u64::from(chooser.weight(&event).unwrap_or(0));
                for (at, value) in values.into_iter().enumerate() {
                    all[at] += value;
                    told[at] += value * weight;
                }
            }
            for (all, told) in all.into_iter().zip(told) {
                assert!(all.abs_diff(told) * 20 < all, "{text}: {told} of {all}");
            }
            if text.contains("40us") {
                assert_eq!(told[3], all[3]);
            }
            // A whole number of hundreds.
            assert_eq!(told[0], all[0], "{text}");
        }
    }
}
