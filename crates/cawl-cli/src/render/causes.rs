//! Causes, for status, tables and screen.

use cawl_client::protocol::CauseSeconds;
use cawl_core::Cause;

use super::compact;

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
