//! Where in the program the time went: sums of the calls whose stack was copied, by stack.
//!
//! A call that took the threshold counts once. The others have a stack by chance: those of an operation that
//! have one stand for all of its calls, whose number and time are known.

use std::collections::BTreeMap;

use cawl_wire::{Event, Op};
use serde::{Deserialize, Serialize};

use crate::by_name::{ByName, seconds_by_cause};
use crate::cause::{Causes, TimeSums};
use crate::record::{Frame, Stack, StackOptions};
use crate::units::is_zero;

/// Rows of a report; further ones are summed up.
const ROWS: usize = 1000;

/// Where in the program calls came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackReport {
    /// Each call that took as long has its stack, in seconds.
    pub threshold_s: f64,
    /// One in so many of the others has it, by chance.
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

/// Calls of one operation by one way through the program. Those of an operation add up to all of its calls;
/// how the short ones divide among ways is an estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackRow {
    /// Innermost first; empty of calls without a stack.
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
    /// Of calls that took the threshold, and of the others that have a stack; without one the number is 0.
    long: BTreeMap<(u32, Op), Sums>,
    short: BTreeMap<(u32, Op), Sums>,
    /// All calls below the threshold, by operation.
    all_short: BTreeMap<Op, Sums>,
    copied: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
    time: TimeSums,
}

impl Sums {
    fn add(&mut self, bytes: u64, causes: Causes<'_>) {
        self.calls += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.time.add(causes);
    }

    /// Adds calls which stand for others: counts and bytes are so many times as large, and times.
    fn add_scaled(&mut self, calls: &Sums, number: f64, bytes: f64, time: f64) {
        self.calls = self.calls.saturating_add((calls.calls as f64 * number).round() as u64);
        self.bytes = self.bytes.saturating_add((calls.bytes as f64 * bytes).round() as u64);
        self.time.add_scaled(&calls.time, time);
    }
}

impl StackSums {
    /// No calls yet, of which these have a stack.
    pub fn new(options: Option<StackOptions>) -> StackSums {
        StackSums { options, ..StackSums::default() }
    }

    pub fn known(&mut self, stack: &Stack) {
        self.stacks.insert(stack.id, stack.clone());
    }

    /// Takes a call.
    #[inline]
    pub fn add(&mut self, event: &Event, bytes: u64, causes: Causes<'_>) {
        if let Some(options) = self.options {
            self.add_call(options, event, bytes, causes);
        }
    }

    fn add_call(&mut self, options: StackOptions, event: &Event, bytes: u64, causes: Causes<'_>) {
        let key = (event.stack, event.op);
        self.copied += u64::from(event.stack != 0);
        if event.duration as f64 >= options.threshold.get() {
            return self.long.entry(key).or_default().add(bytes, causes);
        }
        self.all_short.entry(event.op).or_default().add(bytes, causes);
        if event.stack != 0 {
            self.short.entry(key).or_default().add(bytes, causes);
        }
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
        let mut row = |id: u32, op: Op, calls: &Sums, [number, bytes, time]: [f64; 3]| {
            let truncated = self.stacks.get(&id).is_some_and(|stack| stack.truncated);
            let all = same.entry((self.frames(id), truncated, op)).or_default();
            all.add_scaled(calls, number, bytes, time);
        };
        self.long.iter().for_each(|((id, op), calls)| row(*id, *op, calls, [1.0; 3]));
        for (op, all) in &self.all_short {
            let of_op = self.short.range((0, *op)..).filter(|((_, other), _)| other == op);
            let mut with = Sums::default();
            of_op.clone().for_each(|(_, calls)| with.add_scaled(calls, 1.0, 1.0, 1.0));
            let part = |all: f64, with: f64| if with > 0.0 { all / with } else { 1.0 };
            let time = part(all.time.observed().total() as f64, with.time.observed().total() as f64);
            let scale =
                [part(all.calls as f64, with.calls as f64), part(all.bytes as f64, with.bytes as f64), time];
            match with.calls {
                0 => row(0, *op, all, [1.0; 3]),
                _ => of_op.for_each(|((id, op), calls)| row(*id, *op, calls, scale)),
            }
        }
        let row = |((frames, truncated, op), sums): ((&[Frame], bool, Op), Sums)| StackRow {
            frames: frames.to_vec(),
            truncated,
            op: op.name().to_owned(),
            calls: sums.calls,
            bytes: sums.bytes,
            observed_s: sums.time.observed().total() as f64 / 1e9,
            lost_s: sums.time.lost().as_seconds(),
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
            omitted_s: rest.iter().map(|row| row.observed_s).fold(0.0, |sum, part| sum + part),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::{Cause, CauseTimes, CostParts};
    use crate::units::Nanos;
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
        // Its stack found no room.
        call(0, Op::Fsync, 2_000_000);
        // Of 100 writes two have a stack, and of 4 reads none.
        call(3, Op::Write, 2_000);
        call(9, Op::Write, 1_000);
        (0..98).for_each(|_| call(0, Op::Write, 1_000));
        (0..4).for_each(|_| call(0, Op::Read, 500));
        let report = sums.report().expect("stacks");
        let rows: Vec<_> =
            report.rows.iter().map(|row| (row.frames.len(), &*row.op, row.calls, row.bytes)).collect();
        let expected = [
            (2, "fsync", 2, 20),
            (0, "fsync", 1, 10),
            (2, "write", 50, 500),
            (0, "write", 50, 500),
            (0, "read", 4, 40),
        ];
        assert_eq!(rows, expected);
        let save = &report.rows[0];
        assert_eq!(save.frames[0].function.as_deref(), Some("save"));
        assert!((save.observed_s - 8e-3).abs() < 1e-9 && (save.lost_s - 7.998e-3).abs() < 1e-9, "{save:?}");
        // Together they are what all calls took.
        let sum: f64 = report.rows.iter().map(|row| row.observed_s).sum();
        assert!((sum - (10e-3 + 2e-6 + 99e-6 + 2e-6)).abs() < 1e-9, "{sum}");
        assert_eq!((report.copied, report.omitted), (4, 0));
    }
}
