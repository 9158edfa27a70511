//! How much memory the rings of a process may have: that of its control group, against which it counts.

use std::collections::HashMap;
use std::sync::Mutex;

use cawl_core::{Bytes, Nanos, Time};

use crate::lock;

/// Programs change what is left; a look costs up to 0.2 ms.
const EVERY: Nanos = Nanos::millis(100.0);
/// Groups that are remembered.
const MAX: usize = 256;

/// What was found of each control group, and when.
#[derive(Default)]
pub struct Rooms(Mutex<HashMap<Vec<u8>, (Time, Bytes)>>);

impl Rooms {
    /// For the process, as it is now or was a tenth of a second ago.
    pub fn of(&self, pid: u32) -> Bytes {
        let group = std::fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let now = cawl_host::now();
        if let Some((since, room)) = lock(&self.0).get(&group)
            && now.since(*since) < EVERY
        {
            return *room;
        }
        let room = cawl_host::cgroup::room(pid);
        let mut known = lock(&self.0);
        if known.len() >= MAX {
            known.clear();
        }
        known.insert(group, (now, room));
        room
    }
}
