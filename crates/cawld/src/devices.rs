//! What the devices do that traced programs write to, by the kernel's count.

use std::collections::{BTreeMap, BTreeSet};

use cawl_core::{DeviceCounters, Nanos, Time};
use cawl_host::DeviceStat;

/// The kernel counts in ms: of this time, to one per cent.
const EVERY: Nanos = Nanos::millis(100.0);
/// Devices whose files are kept open.
const OPEN: usize = 64;

/// The devices' counters.
#[derive(Debug, Default)]
pub struct Devices {
    /// None: no block device. With the requests at the latest look.
    open: BTreeMap<u64, Option<(DeviceStat, u64)>>,
    looked: Time,
}

impl Devices {
    /// The counters of those of these devices (`st_dev`) that have written since the latest look; none if
    /// that was just before.
    pub fn sample(&mut self, now: Time, devices: &BTreeSet<u64>) -> Vec<DeviceCounters> {
        if now.since(self.looked) < EVERY {
            return Vec::new();
        }
        self.looked = now;
        if self.open.len() > OPEN {
            self.open.clear();
        }
        let mut written = |dev: &u64| {
            let open = self.open.entry(*dev).or_insert_with(|| Some((DeviceStat::open(*dev)?, 0)));
            let (stat, before) = open.as_mut()?;
            let Some(counters) = stat.read() else {
                // It is gone; its number may be another's next time.
                self.open.remove(dev);
                return None;
            };
            (std::mem::replace(before, counters.writes) != counters.writes).then_some(counters)
        };
        devices.iter().filter_map(&mut written).collect()
    }
}
