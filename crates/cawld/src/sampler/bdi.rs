//! The kernel's counters of each device: debugfs, for root (mm/backing-dev.c, `bdi_debug_stats_show`).

use std::fs;
use std::path::{Path, PathBuf};

use cawl_core::{Bytes, Rate, host_text};

/// Their folder.
const FOLDER: &str = "/sys/kernel/debug/bdi";

/// The kernel's counters of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BdiStats {
    /// Dirty and under writeback.
    pub dirty: Bytes,
    /// The kernel's estimate of the device's rate of writeback.
    pub bandwidth: Rate,
}

/// True if there are counters.
pub fn is_there() -> bool {
    fs::read_dir(FOLDER).is_ok_and(|mut devices| devices.next().is_some())
}

/// The counters of the device with this `st_dev`; a partition counts for its whole disk.
pub fn stats(dev: u64) -> Option<BdiStats> {
    let (major, minor) = host_text::device_parts(dev);
    let own = PathBuf::from(format!("{FOLDER}/{major}:{minor}/stats"));
    let text = fs::read_to_string(own).ok().or_else(|| {
        let whole = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/../dev")).ok()?;
        fs::read_to_string(Path::new(FOLDER).join(whole.trim()).join("stats")).ok()
    })?;
    parse(&text)
}

fn parse(text: &str) -> Option<BdiStats> {
    let figure = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let dirty = figure("BdiReclaimable")?.saturating_add(figure("BdiWriteback")?);
    let bandwidth = figure("BdiWriteBandwidth")?;
    Some(BdiStats { dirty: Bytes::kib(dirty), bandwidth: Rate::per_second(bandwidth as f64 * 1024.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text() {
        let text = "BdiWriteback:              100 kB\nBdiReclaimable:            924 kB\nBdiDirtyThresh:      \
                    900000 kB\nDirtyThresh:         100000 kB\nBdiWriteBandwidth:      102400 kBps\nb_dirty: 3\n";
        let found = BdiStats { dirty: Bytes::mib(1), bandwidth: Rate::per_second(104_857_600.0) };
        assert_eq!(parse(text), Some(found));
        assert_eq!(parse("BdiWriteback: x kB\n"), None);
    }

    #[test]
    fn the_text_of_this_kernel() {
        if !is_there() {
            eprintln!("SKIPPED: no /sys/kernel/debug/bdi; needs root and debugfs mounted");
            return;
        }
        for device in fs::read_dir(FOLDER).expect("a folder").flatten() {
            let Ok(text) = fs::read_to_string(device.path().join("stats")) else { continue };
            assert!(parse(&text).is_some(), "{}: {text}", device.path().display());
        }
    }
}
