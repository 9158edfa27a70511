//! The dirty limits of a memory control group.
//!
//! The law (`mdtc_calc_avail` and `domain_dirty_limits` in mm/page-writeback.c, `mem_cgroup_wb_stats` in
//! mm/memcontrol.c; 6.1 and 6.18 alike): the machine's ratios apply to what the group may fill with pages of
//! files,
//!
//! ```text
//! available = file + min(headroom, clean elsewhere)
//! headroom  = min over the group and its ancestors of (min(memory.max, memory.high) − memory.current)
//! ```
//!
//! Limits in bytes (`dirty_bytes`) become ratios of the memory that the whole machine can make dirty. While a
//! writer fills the group's cache, `file` grows as `headroom` shrinks, so the limits stay where they were.

use serde::{Deserialize, Serialize};

use crate::limits::{DirtyLimits, GroupCache};
use crate::profile::{HostProfile, Measured, OtherDevice};
use crate::units::{Bytes, Rate};

/// What the kernel counts of the memory of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupMemory {
    /// Pages of files on the group's lists (`inactive_file` and `active_file` of memory.stat), in bytes.
    pub file: Bytes,
    /// Those of them on the active list, in bytes.
    pub active: Bytes,
    /// Those of them that are dirty or under writeback (`file_dirty`, `file_writeback`), in bytes.
    pub dirty: Bytes,
    /// What the group and all its ancestors can still take; None where none of them has a limit.
    pub headroom: Option<Bytes>,
}

/// What the kernel counts of the memory of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineMemory {
    /// What can be made dirty (`global_dirtyable_memory`), in bytes: free memory and the pages of files.
    pub dirtyable: Bytes,
    /// Dirty or under writeback, in bytes.
    pub dirty: Bytes,
}

/// One of the two settings of the kernel's dirty limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DirtySetting {
    /// A part of the memory that can be made dirty (`dirty_ratio`, `dirty_background_ratio`).
    Ratio(f64),
    /// So many bytes (`dirty_bytes`, `dirty_background_bytes`).
    Bytes(Bytes),
}

impl DirtySetting {
    /// Background and hard, by the names of /proc/sys/vm: of `dirty_bytes` and `dirty_ratio` one is 0. The
    /// kernel's defaults for what is not told.
    pub fn both(setting: impl Fn(&str) -> Option<u64>) -> [DirtySetting; 2] {
        let [background, hard] = DirtyLimits::DEFAULT_RATIOS;
        let one = |bytes: &str, ratio: &str, default: f64| {
            let bytes =
                setting(bytes).filter(|bytes| *bytes > 0).map(|bytes| DirtySetting::Bytes(Bytes(bytes)));
            let ratio =
                || DirtySetting::Ratio(setting(ratio).map_or(default, |percent| percent as f64 / 100.0));
            bytes.unwrap_or_else(ratio)
        };
        [
            one("dirty_background_bytes", "dirty_background_ratio", background),
            one("dirty_bytes", "dirty_ratio", hard),
        ]
    }

    /// As a part of the machine's dirtyable memory, 1 at most.
    fn ratio(self, dirtyable: Bytes) -> f64 {
        match self {
            DirtySetting::Ratio(ratio) => ratio,
            DirtySetting::Bytes(bytes) => (bytes.as_f64() / dirtyable.as_f64().max(1.0)).min(1.0),
        }
    }
}

impl GroupMemory {
    /// What the group keeps of files in memory.
    pub fn cache(&self) -> GroupCache {
        GroupCache {
            room: self.headroom,
            inactive: self.file.saturating_sub(self.active),
            active: self.active,
        }
    }

    /// What the group may fill with file pages (`mdtc_calc_avail`), in bytes.
    pub fn available(&self, machine: &MachineMemory) -> Bytes {
        let clean = self.file.saturating_sub(self.dirty);
        let elsewhere = machine.dirtyable.saturating_sub(machine.dirty).saturating_sub(clean);
        self.file + self.headroom.map_or(elsewhere, |headroom| headroom.min(elsewhere))
    }

    /// The group's dirty limits, with the machine's settings of background and hard limit.
    pub fn limits(&self, settings: [DirtySetting; 2], machine: &MachineMemory) -> DirtyLimits {
        let ratios = settings.map(|setting| setting.ratio(machine.dirtyable));
        DirtyLimits::of(ratios, self.available(machine))
    }
}

/// How its control group bounds a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupBounds {
    /// The group's dirty limits, where they are below the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<DirtyLimits>,
    /// Device (`st_dev`) and most bytes written to it in a second (io.max).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rates: Vec<(u64, Rate)>,
    /// Its files in memory; None where there is no group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<GroupCache>,
}

impl GroupBounds {
    /// True if the group changes nothing.
    pub fn is_empty(&self) -> bool {
        self.limits.is_none() && self.rates.is_empty() && self.cache.is_none()
    }

    /// Sets them in the profile of a run; limits of a group that the profile has already are what was asked
    /// for. The flusher of a group is held to io.max as the group's own calls are (`blk_throtl_bio` in
    /// block/blk-throttle.c), and what the kernel knows of the device's rate is none of the group's.
    pub fn apply(&self, profile: &mut HostProfile) {
        profile.kernel.cgroup = profile.kernel.cgroup.or(self.limits);
        profile.kernel.group = profile.kernel.group.or(self.cache);
        for (dev, most) in &self.rates {
            let mut constants = profile.device_of(*dev).clone();
            for rate in [&mut constants.writeback, &mut constants.write] {
                if rate.value.get() > most.get() {
                    *rate = Measured::assumed(*most);
                    constants.base_rate = None;
                }
            }
            profile.others.retain(|other| other.dev != *dev);
            profile.others.push(OtherDevice { dev: *dev, constants });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: MachineMemory = MachineMemory { dirtyable: Bytes::mib(2000), dirty: Bytes::mib(100) };
    const DEFAULT: [DirtySetting; 2] = [DirtySetting::Ratio(0.1), DirtySetting::Ratio(0.2)];

    fn group(file: u64, dirty: u64, headroom: u64) -> GroupMemory {
        GroupMemory {
            file: Bytes::mib(file),
            active: Bytes::ZERO,
            dirty: Bytes::mib(dirty),
            headroom: Some(Bytes::mib(headroom)),
        }
    }

    #[test]
    fn the_ratios_apply_to_what_the_group_may_fill() {
        let limits = group(0, 0, 250).limits(DEFAULT, &MACHINE);
        assert_eq!((limits.background, limits.hard), (Bytes::mib(25), Bytes::mib(50)));
        // A full cache, or one that fills: the same.
        for file in [10, 100, 250] {
            assert_eq!(group(file, file / 10, 250 - file).limits(DEFAULT, &MACHINE), limits);
        }
        // Memory of programs is not for files.
        assert_eq!(group(0, 0, 200).limits(DEFAULT, &MACHINE).hard, Bytes::mib(40));
    }

    #[test]
    fn clean_memory_elsewhere_bounds_what_a_group_may_get() {
        // 1900 MiB are clean; 60 of them are the group's own.
        assert_eq!(group(80, 20, 4000).available(&MACHINE), Bytes::mib(80 + 1840));
        let unlimited = GroupMemory { headroom: None, ..group(80, 20, 0) };
        assert_eq!(unlimited.available(&MACHINE), Bytes::mib(80 + 1840));
        let full = MachineMemory { dirty: Bytes::mib(3000), ..MACHINE };
        assert_eq!(group(80, 20, 4000).available(&full), Bytes::mib(80));
    }

    #[test]
    fn limits_in_bytes_are_scaled_to_the_group() {
        let settings = [DirtySetting::Bytes(Bytes::mib(100)), DirtySetting::Bytes(Bytes::mib(500))];
        let limits = group(0, 0, 200).limits(settings, &MACHINE);
        assert_eq!((limits.background, limits.hard), (Bytes::mib(10), Bytes::mib(50)));
        // More than all memory is all memory; no room between the two; a machine without memory.
        let settings = [DirtySetting::Ratio(0.5), DirtySetting::Bytes(Bytes(1 << 40))];
        assert_eq!(group(0, 0, 200).limits(settings, &MACHINE).hard, Bytes::mib(200));
        let limits = group(0, 0, 200).limits([DirtySetting::Ratio(0.3), DirtySetting::Ratio(0.2)], &MACHINE);
        assert_eq!((limits.background, limits.hard), (Bytes::mib(20), Bytes::mib(40)));
        assert_eq!(GroupMemory::default().limits(settings, &MachineMemory::default()).hard, Bytes(0));
    }

    #[test]
    fn settings_by_their_names() {
        let all = |name: &str| match name {
            "dirty_bytes" => Some(1 << 20),
            "dirty_background_bytes" | "dirty_ratio" => Some(0),
            "dirty_background_ratio" => Some(5),
            _ => None,
        };
        assert_eq!(DirtySetting::both(all), [DirtySetting::Ratio(0.05), DirtySetting::Bytes(Bytes::mib(1))]);
        assert_eq!(DirtySetting::both(|_| None), DEFAULT);
    }

    #[test]
    fn a_group_bounds_limits_and_devices() {
        let limits = DirtyLimits { background: Bytes::mib(12), hard: Bytes::mib(25) };
        let slow = Rate::mb_per_second(1.0);
        let mut profile = HostProfile::uncalibrated();
        let before = profile.clone();
        GroupBounds::default().apply(&mut profile);
        assert_eq!(profile, before);
        let cache = Some(GroupCache { room: Some(Bytes::mib(9)), ..GroupCache::default() });
        let rates = vec![(7, slow), (8, Rate::mb_per_second(1e9))];
        let bounds = GroupBounds { limits: Some(limits), rates, cache };
        bounds.apply(&mut profile);
        bounds.apply(&mut profile);
        assert_eq!((profile.kernel.cgroup, profile.others.len()), (Some(limits), 2));
        assert_eq!(profile.kernel.group, cache);
        assert_eq!((profile.device_of(7).writeback.value, profile.device_of(7).write.value), (slow, slow));
        assert_eq!((profile.device_of(8), profile.device_of(9)), (&before.device, &before.device));
        assert!(profile.check().is_ok());
        // As it is sent and kept.
        assert_eq!(HostProfile::from_toml(&profile.to_toml()).unwrap(), profile);
        let own = DirtyLimits { background: Bytes::mib(1), hard: Bytes::mib(2) };
        profile.kernel.cgroup = Some(own);
        bounds.apply(&mut profile);
        assert_eq!(profile.kernel.cgroup, Some(own));
    }
}
