//! What a block device has done, by the kernel's count.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cawl_core::{DeviceCounters, host_text};

use crate::machine::{now, sysfs_folder};

/// The `stat` file of a device, open.
#[derive(Debug)]
pub struct DeviceStat {
    dev: u64,
    file: File,
}

impl DeviceStat {
    /// Of the device with this number (`st_dev`); of a partition, its disk's, which alone counts flushes.
    /// None for what is no block device.
    pub fn open(dev: u64) -> Option<DeviceStat> {
        let folder = sysfs_folder(dev)?;
        let disk = if folder.join("partition").exists() { folder.parent()? } else { &folder };
        Some(DeviceStat { dev, file: File::open(disk.join("stat")).ok()? })
    }

    /// Reads it.
    pub fn read(&self) -> Option<DeviceCounters> {
        let mut text = [0; 512];
        let length = self.file.read_at(&mut text, 0).ok()?;
        host_text::device_counters(std::str::from_utf8(&text[..length]).ok()?, now(), self.dev)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_of_this_machine_count() {
        // No filesystem is on a pseudo device, nor on what does not exist.
        assert!(DeviceStat::open(0).is_none() && DeviceStat::open(u64::MAX).is_none());
        for filesystem in crate::facts().filesystems.iter().filter(|mount| mount.kind == "ext4") {
            let Some(stat) = DeviceStat::open(filesystem.dev) else { continue };
            let first = stat.read().expect("counters");
            let second = stat.read().expect("counters");
            assert!(
                first.dev == filesystem.dev && first.writes <= second.writes && first.time <= second.time
            );
        }
    }
}
