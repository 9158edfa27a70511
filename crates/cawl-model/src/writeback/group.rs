//! When the kernel knows what of the programs' control group is dirty, and how much the group can hold.
//!
//! The law (`mem_cgroup_wb_stats`, since 6.9): counts are added up every two seconds, and a writer goes by
//! the latest. At which times is not told: what calls contradict is corrected.

use super::Machine;
use crate::units::{Pages, Seconds};

/// Time after which a control group's counts are added up (`FLUSH_TIME`, mm/memcontrol.c).
const COUNTED: Seconds = Seconds(2.0);
/// Part of what a group can hold from which on it may be full.
const ALMOST: f64 = 0.9;

impl Machine {
    /// There is a group whose dirty pages are counted from time to time only.
    pub fn counts_late(&self) -> bool {
        self.laws.late_counts && self.group.is_some()
    }

    /// The group's dirty pages as the kernel counts them at `now`, of which there are `level`.
    pub fn count_group(&mut self, now: Seconds, level: Pages) -> Pages {
        if !self.counts_late() {
            return level;
        }
        // When the kernel counts is not told: in the mean half an interval after the first question.
        let (then, counted) = self.counted.get_or_insert((now - COUNTED / 2.0, level));
        if now >= *then + COUNTED {
            *then = now - (now - *then) % COUNTED;
            *counted = level;
        }
        *counted
    }

    /// A writer slept where the group was thought to have little room left: it has none.
    pub fn bound_room(&mut self) {
        let level = self.level();
        self.room =
            self.room.map(|room| if level as f64 > ALMOST * room as f64 { room.min(level) } else { room });
    }

    /// A writer went on at `now`, so that the group was counted before, and its limits let it.
    pub fn count_allowed(&mut self, now: Seconds) {
        if let (true, Some(group)) = (self.laws.late_counts, &self.group) {
            self.counted = Some((now, group.freerun() - Pages(1.0)));
        }
    }
}
