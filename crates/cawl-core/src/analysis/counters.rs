//! The kernel's counters, read one after another.

use crate::limits::DirtyLimits;
use crate::record::Sample;
use crate::units::{Bytes, Time};

/// The kernel's counters, as a model is told of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) at: Time,
    /// Dirty bytes, those under writeback included.
    pub(super) dirty: Bytes,
    pub(super) limits: DirtyLimits,
    /// Pages are being written back, or were since the sample before.
    pub(super) flushing: bool,
}

/// Reads samples, one after another.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    page: Bytes,
    /// Pages written back as of the latest sample.
    written: Option<u64>,
}

impl Counters {
    pub(super) fn new(page: Bytes) -> Counters {
        Counters { page, written: None }
    }

    /// What a sample says; nothing, if its limits make no sense.
    pub(super) fn take(&mut self, sample: &Sample) -> Option<Counted> {
        let limits = sample.limits(self.page);
        if limits.background >= limits.hard {
            return None;
        }
        let flushing = sample.writeback > 0 || self.written.is_some_and(|before| before < sample.written);
        self.written = Some(sample.written);
        Some(Counted { at: sample.time, dirty: sample.dirty_bytes(self.page), limits, flushing })
    }
}
