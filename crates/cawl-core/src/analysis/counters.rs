//! The kernel's counters, read one after another.

use crate::limits::DirtyLimits;
use crate::record::Sample;
use crate::units::{Bytes, Nanos, Time};

/// The kernel's counters, as a model is told of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) at: Time,
    /// Dirty bytes, those under writeback included.
    pub(super) dirty: Bytes,
    pub(super) limits: DirtyLimits,
    /// Pages are being written back, or were since the sample before.
    pub(super) flushing: bool,
    /// Bytes that the kernel has begun to write since the sample before, and how long ago that was.
    pub(super) begun: Option<(f64, Nanos)>,
}

/// Reads samples, one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    page: Bytes,
    /// Pages written back as of the latest sample, those under writeback then, and when that was.
    before: Option<(u64, u64, Time)>,
}

impl Counters {
    pub(super) fn new(page: Bytes) -> Counters {
        Counters { page, before: None }
    }

    /// What a sample says; nothing, if its limits make no sense.
    pub(super) fn take(&mut self, sample: &Sample) -> Option<Counted> {
        let limits = sample.limits(self.page);
        if limits.background >= limits.hard {
            return None;
        }
        let written = self.before.is_some_and(|(before, ..)| before < sample.written);
        // A table without this counter says nothing.
        let counted = self.before.filter(|_| sample.written > 0);
        let begun = counted.map(|(written, writeback, at)| {
            let [now, before] = [[sample.written, sample.writeback], [written, writeback]].map(|counts| {
                let [written, writeback] = counts.map(|pages| pages as f64);
                written + writeback
            });
            ((now - before) * self.page.as_f64(), sample.time.since(at))
        });
        self.before = Some((sample.written, sample.writeback, sample.time));
        Some(Counted {
            at: sample.time,
            dirty: sample.dirty_bytes(self.page),
            limits,
            flushing: sample.writeback > 0 || written,
            begun,
        })
    }
}
