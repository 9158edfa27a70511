//! Where in the program the time went: sums of the calls whose stack was copied, by stack.
//!
//! A call that took the threshold counts once; one of the others stands for as many as it was chosen from.

use std::collections::BTreeMap;

use cawl_wire::{Event, Op};
use serde::{Deserialize, Serialize};

use crate::by_name::{ByName, seconds_by_cause};
use crate::cause::{Causes, TimeSums};
use crate::record::{Frame, Stack, StackOptions};
use crate::units::{Nanos, is_zero};

/// Rows of a report; further ones are summed up.
const ROWS: usize = 1000;

/// Where in the program calls came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackReport {
    /// Each call that took as long has its stack, in seconds.
    pub threshold_s: f64,
    /// One in so many of the others has it.
    pub one_in: u32,
    /// Calls that have one.
    pub copied: u64,
    /// Most time first.
    pub rows: Vec<StackRow>,
    /// Rows left out, and their time in seconds.
    pub omitted: u64,
    /// See `omitted`.
    pub omitted_s: f64,
}

/// Calls of one operation by one way through the program. Times and counts stand for all such calls; where
/// fewer stacks were copied, they are estimates.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackRow {
    /// Innermost first; empty where nothing is known of the stack.
    pub frames: Vec<Frame>,
    /// The outer frames are not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub truncated: bool,
    /// Name of the operation.
    pub op: String,
    /// Calls.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// What they took, in seconds.
    pub observed_s: f64,
    /// Observed less undisturbed, in seconds.
    pub lost_s: f64,
    /// Observed seconds by cause.
    pub causes: ByName<f64>,
}

/// Sums by stack and operation, as calls come.
#[derive(Debug, Default)]
pub(crate) struct StackSums {
    options: Option<StackOptions>,
    stacks: BTreeMap<u32, Stack>,
    sums: BTreeMap<(u32, Op), Sums>,
    copied: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
    time: TimeSums,
}

impl StackSums {
    /// No calls yet, of which these have a stack.
    pub fn new(options: Option<StackOptions>) -> StackSums {
        StackSums { options, ..StackSums::default() }
    }

    /// A stack is known.
    pub fn known(&mut self, stack: &Stack) {
        self.stacks.insert(stack.id, stack.clone());
    }

    /// Takes a call that has a stack.
    pub fn add(&mut self, event: &Event, bytes: u64, causes: Causes<'_>) {
        let weight = self.options.map_or(1, |options| options.weight(Nanos::new(event.duration as f64)));
        let sums = self.sums.entry((event.stack, event.op)).or_default();
        self.copied += 1;
        sums.calls += u64::from(weight);
        sums.bytes = sums.bytes.saturating_add(bytes.saturating_mul(weight.into()));
        sums.time.add_weighted(causes, weight);
    }

    /// The frames of a stack, innermost first; none if it is not known.
    pub fn frames(&self, id: u32) -> &[Frame] {
        self.stacks.get(&id).map_or(&[], |stack| &stack.frames)
    }

    /// What was found; None if no stacks were asked for.
    pub fn report(&self) -> Option<StackReport> {
        let options = self.options?;
        // Stacks that differ in addresses only are one to a reader.
        let mut same: BTreeMap<(&[Frame], bool, Op), Sums> = BTreeMap::new();
        for ((id, op), sums) in &self.sums {
            let truncated = self.stacks.get(id).is_some_and(|stack| stack.truncated);
            let all = same.entry((self.frames(*id), truncated, *op)).or_default();
            all.calls = all.calls.saturating_add(sums.calls);
            all.bytes = all.bytes.saturating_add(sums.bytes);
            all.time.add_all(&sums.time);
        }
        let row = |((frames, truncated, op), sums): ((&[Frame], bool, Op), Sums)| StackRow {
            frames: frames.to_vec(),
            truncated,
            op: op.name().to_owned(),
            calls: sums.calls,
            bytes: sums.bytes,
            observed_s: sums.time.observed().total() as f64 / 1e9,
            lost_s: sums.time.lost() / 1e9,
            causes: seconds_by_cause(sums.time.observed()),
        };
        let mut rows: Vec<StackRow> = same.into_iter().map(row).collect();
        rows.sort_by(|a, b| b.observed_s.total_cmp(&a.observed_s));
        let rest = rows.split_off(rows.len().min(ROWS));
        Some(StackReport {
            threshold_s: options.threshold.as_seconds(),
            one_in: options.one_in.get(),
            copied: self.copied,
            rows,
            omitted: rest.len() as u64,
            omitted_s: rest.iter().map(|row| row.observed_s).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::{Cause, CauseTimes, CostParts};
    use std::num::NonZeroU32;

    #[test]
    fn a_sampled_call_stands_for_many_and_equal_ways_are_one() {
        assert_eq!(StackSums::default().report(), None, "nobody asked");
        let one_in = NonZeroU32::new(64).expect("not zero");
        let mut sums = StackSums::new(Some(StackOptions { threshold: Nanos::new(1e6), one_in }));
        let frame = |function: &str| Frame { function: Some(function.to_owned()), ..Frame::default() };
        for (id, function) in [(1, "save"), (2, "save"), (3, "log")] {
            sums.known(&Stack { id, frames: vec![frame(function), frame("main")], truncated: false });
        }
        let mut call = |stack, op, duration| {
            let times = CauseTimes::from([(Cause::Journal, duration)]);
            let own = CostParts::from([(Cause::Journal, Nanos::new(1000.0))]);
            let causes = Causes { times: &times, own: &own, main: Cause::Journal };
            sums.add(&Event { stack, duration, ..Event::new(op) }, 10, causes);
        };
        call(1, Op::Fsync, 5_000_000);
        call(2, Op::Fsync, 3_000_000);
        call(3, Op::Write, 2_000);
        call(9, Op::Write, 1_000);
        let report = sums.report().expect("stacks");
        let rows: Vec<_> = report.rows.iter().map(|row| (row.frames.len(), row.calls, row.bytes)).collect();
        assert_eq!(rows, [(2, 2, 20), (2, 64, 640), (0, 64, 640)]);
        let [save, log, unknown] = &report.rows[..] else { panic!("{report:?}") };
        assert_eq!(save.frames[0].function.as_deref(), Some("save"));
        assert!((save.observed_s - 8e-3).abs() < 1e-9 && (save.lost_s - 7.998e-3).abs() < 1e-9, "{save:?}");
        assert!((log.observed_s - 64.0 * 2e-6).abs() < 1e-12, "{log:?}");
        assert!(
            (unknown.observed_s - 64e-6).abs() < 1e-12 && unknown.causes.iter().count() == 1,
            "{unknown:?}"
        );
        assert_eq!((report.copied, report.omitted), (4, 0));
    }
}
