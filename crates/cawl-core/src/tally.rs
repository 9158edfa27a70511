//! Sums over calls: the one type of the reports' tables, and of the daemon's tables and history.

use serde::{Deserialize, Serialize};

use crate::cause::TimeSums;
use crate::units::Nanos;

/// Calls and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of calls.
    pub calls: u64,
    /// Bytes written by them.
    pub bytes: u64,
}

impl Tally {
    /// Counts one more call that wrote this many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.add_all(Tally { calls: 1, bytes });
    }

    /// Counts more calls.
    pub fn add_all(&mut self, more: Tally) {
        self.calls = self.calls.saturating_add(more.calls);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

/// Sums over calls of an operation, a file, a process, a device or a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallSums {
    /// The calls and their bytes.
    pub count: Tally,
    /// Inferred bytes among them: stores to mappings, shared extents. This, `throttled` and `sync` are
    /// counted by the daemon only.
    pub estimated: u64,
    /// Time of the calls; in the daemon, of those that a model predicts.
    pub observed: Nanos,
    /// Predicted time of the calls.
    pub predicted: Nanos,
    /// Observed time that a model attributes to throttling, at most the kernel's pauses if known.
    pub throttled: Nanos,
    /// Observed time of calls that waited for the device.
    pub sync: Nanos,
    /// Time of calls that have a cost, and of writes to /dev/null, by cause: observed, and undisturbed.
    pub time: TimeSums,
}

impl CallSums {
    /// Adds a call that wrote these bytes, with its observed and its predicted time.
    #[inline]
    pub fn add(&mut self, bytes: u64, observed: Nanos, predicted: Nanos) {
        self.count.add(bytes);
        self.observed += observed;
        self.predicted += predicted;
    }

    /// Adds the sums of other calls.
    pub fn add_all(&mut self, more: &CallSums) {
        self.count.add_all(more.count);
        self.estimated = self.estimated.saturating_add(more.estimated);
        self.observed += more.observed;
        self.predicted += more.predicted;
        self.throttled += more.throttled;
        self.sync += more.sync;
        self.time.add_all(&more.time);
    }

    /// What came since earlier sums.
    pub fn since(&self, before: &CallSums) -> CallSums {
        let calls = self.count.calls.saturating_sub(before.count.calls);
        CallSums {
            count: Tally { calls, bytes: self.count.bytes.saturating_sub(before.count.bytes) },
            estimated: self.estimated.saturating_sub(before.estimated),
            observed: self.observed.saturating_sub(before.observed),
            predicted: self.predicted.saturating_sub(before.predicted),
            throttled: self.throttled.saturating_sub(before.throttled),
            sync: self.sync.saturating_sub(before.sync),
            time: self.time.since(&before.time),
        }
    }
}
