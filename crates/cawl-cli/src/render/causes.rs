//! Causes, for status, tables and screen.

use cawl_client::protocol::CauseSeconds;
use cawl_core::{ByName, Cause};

use super::compact;

/// Part of the time below which a cause is not named beside others.
const NAMED: f64 = 0.05;

/// The causes with most seconds, at most `most` of them.
pub fn largest(seconds: &CauseSeconds, most: usize) -> Vec<(Cause, f64)> {
    let mut all: Vec<(Cause, f64)> = seconds.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(most);
    all
}

/// The causes with most seconds, with their shares of all: `cold memory 44 %, call 33 %`; those of less than
/// 1 % only if there is no other. A dash if there are no seconds.
pub fn shares(seconds: &CauseSeconds, most: usize) -> String {
    let all = seconds.total();
    let largest = largest(seconds, most).into_iter().enumerate();
    let said = largest.filter(|(at, (_, part))| *at == 0 || *part >= 0.01 * all);
    let parts: Vec<String> =
        said.map(|(_, (cause, part))| format!("{} {}", cause.name(), compact::percent(part / all))).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

/// A part of a whole; of nothing nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The one or two causes with most time, as `width` has room: `throttle 80 %, copy 15 %`.
pub(super) fn main_causes(causes: &ByName<f64>, width: usize) -> String {
    let all = causes.values().sum::<f64>();
    let mut causes: Vec<_> = causes.iter().filter(|(_, time)| **time >= NAMED * all).collect();
    causes.sort_by(|a, b| b.1.total_cmp(a.1));
    if let [(name, _)] = causes[..] {
        return (*name).to_owned();
    }
    let named =
        causes.iter().take(2).map(|(name, time)| format!("{name} {:.0} %", share(**time, all) * 100.0));
    let named: Vec<String> = named.collect();
    let both = named.join(", ");
    if both.chars().count() <= width { both } else { named.into_iter().next().unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::CauseTimes;

    #[test]
    fn the_largest_causes_are_told_with_their_shares() {
        let of = |parts: [(Cause, u64); 3]| CauseSeconds::from(&CauseTimes::from(parts));
        let seconds = of([(Cause::Call, 33), (Cause::Copy, 23), (Cause::ColdMemory, 44)]);
        assert_eq!(shares(&seconds, 1), "cold memory 44 %");
        assert_eq!(shares(&seconds, 2), "cold memory 44 %, call 33 %");
        let seconds = of([(Cause::Discard, 1000), (Cause::Call, 5), (Cause::Copy, 0)]);
        assert_eq!(
            (shares(&seconds, 2), shares(&CauseSeconds::default(), 2)),
            ("discard 100 %".into(), "-".into())
        );
    }
}
