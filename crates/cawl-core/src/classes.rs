//! Classes of calls by their observed time, between bounds that are given (Kunkel, "Analyzing and Assessing
//! I/O Performance": 0.2, 0.4, 7 and 25 ms part processor, memory, fast and slow storage).

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseTimes};
use crate::units::Nanos;

/// The classes of an analysis; none, if there are no bounds.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// In ns, ascending.
    bounds: Vec<u64>,
    /// One more than there are bounds.
    sums: Vec<ClassSums>,
    /// Calls that have no times of their own.
    pub(crate) unclassed: u64,
}

#[derive(Clone, Debug, Default)]
struct ClassSums {
    calls: u64,
    bytes: u64,
    times: CauseTimes,
}

impl Classes {
    pub(crate) fn new(bounds: &[Nanos]) -> Classes {
        let mut bounds: Vec<u64> = bounds.iter().map(|bound| bound.get() as u64).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let sums = if bounds.is_empty() { Vec::new() } else { vec![ClassSums::default(); bounds.len() + 1] };
        Classes { bounds, sums, unclassed: 0 }
    }

    /// Adds a call of this observed time.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64, ns: u64, causes: &CauseTimes) {
        if self.sums.is_empty() {
            return;
        }
        let at = self.bounds.partition_point(|bound| *bound <= ns);
        let sums = &mut self.sums[at];
        sums.calls += 1;
        sums.bytes = sums.bytes.saturating_add(bytes);
        sums.times.add(causes);
    }

    /// Calls that were added up have no times of their own.
    pub(crate) fn added_up(&mut self, calls: u64) {
        self.unclassed += if self.sums.is_empty() { 0 } else { calls };
    }

    pub(crate) fn report(&self) -> Vec<CallClass> {
        let bound = |at: usize| self.bounds.get(at).map(|ns| *ns as f64 / 1e9);
        let class = |(at, sums): (usize, &ClassSums)| CallClass {
            from_s: at.checked_sub(1).and_then(bound).unwrap_or(0.0),
            to_s: bound(at),
            calls: sums.calls,
            bytes: sums.bytes,
            seconds: sums.times.total() as f64 / 1e9,
            cause: (sums.calls > 0).then(|| Cause::name(sums.times.main()).to_owned()),
        };
        self.sums.iter().enumerate().map(class).collect()
    }
}

/// Calls whose observed time lies between two bounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallClass {
    /// The lower bound, in seconds; it belongs to the class.
    pub from_s: f64,
    /// The upper bound; None for the last class.
    pub to_s: Option<f64>,
    /// Calls.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their observed time, in seconds.
    pub seconds: f64,
    /// The cause of most of it; None without calls.
    pub cause: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_in_one_class() {
        let mut classes = Classes::new(&[0.2, 0.4, 7.0, 25.0].map(Nanos::millis));
        for (ns, cause) in [(0, Cause::Call), (199_999, Cause::Call), (200_000, Cause::Copy)] {
            classes.add(10, ns, &CauseTimes::from([(cause, ns)]));
        }
        classes.add(10, 30_000_000, &CauseTimes::from([(Cause::Seek, 30_000_000)]));
        let report = classes.report();
        assert_eq!(report.iter().map(|class| class.calls).collect::<Vec<_>>(), [2, 1, 0, 0, 1]);
        assert_eq!((report[1].from_s, report[1].to_s, report[4].to_s), (0.0002, Some(0.0004), None));
        let causes: Vec<_> = report.iter().map(|class| class.cause.as_deref()).collect();
        assert_eq!(causes, [Some("call"), Some("copy"), None, None, Some("seek")]);
        assert_eq!((report[4].seconds, report[4].bytes), (0.03, 10));
        assert!(Classes::new(&[]).report().is_empty());
    }
}
