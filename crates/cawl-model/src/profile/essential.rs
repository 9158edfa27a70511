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

    /// Those that a brief measurement had no time for, as on a busy machine. Not those that some filesystems
    /// cannot have (O_DIRECT), nor those of a device where files are in memory or elsewhere.
    pub fn unmeasured(&self) -> Vec<&'static str> {
        if self.measured != Some(Thoroughness::Brief) {
            return Vec::new();
        }
        let on_disk =
            self.device.network.is_none() && self.device.filesystem.is_none_or(|kind| !kind.is_in_memory());
        let needed = |name: &str| match name {
            "device.read" | "device.sync_call" => false,
            name => on_disk || name.starts_with("memory."),
        };
        let missing = self.essential().into_iter().filter(|(name, measured)| !measured && needed(name));
        missing.map(|(name, _)| name).collect()
    }
}
