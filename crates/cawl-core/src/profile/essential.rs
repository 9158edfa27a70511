//! The constants without which no write is predicted.

use super::{HostProfile, Thoroughness};

impl HostProfile {
    /// Their names, and whether they were measured.
    pub fn essential(&self) -> [(&'static str, bool); 7] {
        let HostProfile { memory, device, .. } = self;
        [
            ("memory.fresh", memory.fresh.samples > 0),
            ("memory.cached", memory.cached.samples > 0),
            ("device.write", device.write.samples > 0),
            ("device.read", device.read.samples > 0),
            ("device.sync_call", device.sync_call.samples > 0),
            ("device.fsync", device.fsync.samples > 0),
            ("device.writeback", device.writeback.samples > 0),
        ]
    }

    /// Those of a disk that a brief measurement had no time for, as on a busy machine. Not those that some
    /// filesystems cannot have (O_DIRECT).
    pub fn unmeasured(&self) -> Vec<&'static str> {
        let is_brief = self.measured == Some(Thoroughness::Brief);
        let on_disk =
            self.device.network.is_none() && self.device.filesystem.is_none_or(|kind| !kind.is_in_memory());
        let missing = self.essential().into_iter().filter(|(name, measured)| {
            !measured && matches!(*name, "device.write" | "device.fsync" | "device.writeback")
        });
        missing.map(|(name, _)| name).filter(|_| is_brief && on_disk).collect()
    }
}
