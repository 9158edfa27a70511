//! What the control group of a program means for predictions.

use std::fs;

use cawl_core::host_text::cgroup::IoLimit;
use cawl_core::{Bytes, DirtyLimits, GroupBounds, Rate};
use cawl_host::cgroup::{Group, Version};
use cawl_host::place::Place;

/// The group of all these processes; None if they are in several.
pub fn of_all(processes: &[u32]) -> Option<Group> {
    let groups = |pid: &u32| fs::read(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let (first, others) = processes.split_first()?;
    let of_first = groups(first);
    others.iter().all(|pid| groups(pid) == of_first).then(|| Group::of(Some(*first)))?
}

/// A group's bounds on programs that may write at these places, and remarks for their report.
pub fn bounds(group: Option<Group>, places: &[Place], machine: DirtyLimits) -> (GroupBounds, Vec<String>) {
    let Some(group) = group else { return Default::default() };
    let cache = group.memory.map(|memory| memory.cache());
    let mut bounds = GroupBounds { limits: group.dirty_limits(machine), rates: Vec::new(), cache };
    let mut notes: Vec<String> = memory(&group, bounds.limits).into_iter().collect();
    for place in places {
        let Some(limit) = place.disk().and_then(|disk| group.io.iter().find(|limit| limit.dev == disk))
        else {
            continue;
        };
        bounds.rates.extend(limit.bytes.map(|bytes| (place.number, Rate::per_second(bytes as f64))));
        notes.push(writing(&place.device, limit));
    }
    (bounds, notes)
}

/// What is said of the group's memory; nothing where no limit can matter.
pub fn memory(group: &Group, limits: Option<DirtyLimits>) -> Option<String> {
    let (name, most) = group.limit()?;
    let about = format!("cgroup {}: {name} {}", group.path, mib(most));
    match limits {
        Some(limits) => Some(format!(
            "{about}, dirty limits {} and {} MiB, where the filesystem takes part (ext4, xfs, btrfs)",
            limits.background.0 >> 20,
            limits.hard.0 >> 20
        )),
        // Version 1 is set for nearly every container, and changes nothing of writeback.
        None if group.version == Version::One || group.knows_writeback => None,
        None => Some(format!(
            "{about}, which does not lower the dirty limits: writeback does not know groups here"
        )),
    }
}

fn writing(device: &str, limit: &IoLimit) -> String {
    let rate = limit.bytes.map(|bytes| Rate::per_second(bytes as f64).to_string());
    let requests = limit.requests.map(|most| format!("{most} requests/s, which the models leave out"));
    let both: Vec<String> = rate.into_iter().chain(requests).collect();
    format!("writes to {device} are limited to {} by io.max", both.join(" and "))
}

fn mib(bytes: Bytes) -> String {
    format!("{} MiB", bytes.0 >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(version: Version, knows_writeback: bool) -> Group {
        Group {
            path: "/a".to_owned(),
            version,
            knows_writeback,
            max: Some(Bytes::mib(256)),
            high: None,
            memory: None,
            io: Vec::new(),
        }
    }

    #[test]
    fn what_a_report_says_of_a_group() {
        let limits = DirtyLimits { background: Bytes::mib(25), hard: Bytes::mib(51) };
        let said = memory(&group(Version::Two, true), Some(limits)).unwrap();
        assert!(said.starts_with("cgroup /a: memory.max 256 MiB, dirty limits 25 and 51 MiB"), "{said}");
        let high = Group { high: Some(Bytes::mib(64)), ..group(Version::Two, true) };
        assert!(memory(&high, Some(limits)).unwrap().contains("memory.high 64 MiB"));
        // As high as the machine's; version 1; version 2 beside a blkio of version 1.
        assert_eq!(memory(&group(Version::Two, true), None), None);
        assert_eq!(memory(&group(Version::One, false), None), None);
        assert!(memory(&group(Version::Two, false), None).unwrap().contains("does not lower"));
        assert_eq!(memory(&Group { max: None, ..group(Version::Two, true) }, None), None);
    }

    #[test]
    fn what_a_report_says_of_io_max() {
        let limit = IoLimit { dev: 1, bytes: Some(10_000_000), requests: Some(120) };
        let said = writing("vda", &limit);
        assert!(
            said.starts_with("writes to vda are limited to 10") && said.contains("120 requests/s"),
            "{said}"
        );
        assert!(!writing("vda", &IoLimit { requests: None, ..limit }).contains("requests"));
    }
}
