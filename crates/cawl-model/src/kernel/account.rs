//! What became of all bytes that were ever made dirty.

use super::Kernel;
use crate::units::Bytes;

/// Totals since the beginning, in bytes: dirtied + adopted = written + dirty + in flight + cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conservation {
    /// Made dirty.
    pub dirtied: Bytes,
    /// Made dirty by untraced writers, and taken by the flusher.
    pub adopted: Bytes,
    /// Written back.
    pub written: Bytes,
    /// Still dirty, under writeback included.
    pub dirty: Bytes,
    /// Dropped before they were written.
    pub cancelled: Bytes,
}

impl Kernel {
    /// What became of all bytes that were ever made dirty.
    pub fn conservation(&self) -> Conservation {
        let page = self.constants.page;
        let mut totals = Conservation::default();
        for device in &self.machine.devices {
            totals.dirtied += Bytes(device.dirtied * page);
            totals.adopted += Bytes(device.adopted * page);
            totals.written += Bytes(device.written * page);
            totals.dirty += Bytes(device.level() * page);
            totals.cancelled += Bytes(device.cancelled * page);
        }
        totals
    }
}
