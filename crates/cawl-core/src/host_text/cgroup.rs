//! Texts about control groups: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.

use super::{device_number, unescape};
use crate::units::Bytes;

/// The groups of a process, from /proc/PID/cgroup, seen from the reader's cgroup namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// In the hierarchy of version 2.
    pub unified: Option<String>,
    /// Of version 1's memory controller; then version 2 has none.
    pub memory: Option<String>,
    /// True if version 1 has the controller of block devices (blkio); then version 2 has no io controller.
    pub block: bool,
}

impl Groups {
    /// True if writeback knows groups (`inode_cgwb_enabled` in include/linux/backing-dev.h): both
    /// controllers are of version 2. They need not be switched on for the group.
    pub fn know_writeback(&self) -> bool {
        self.unified.is_some() && self.memory.is_none() && !self.block
    }
}

/// The groups in /proc/PID/cgroup: lines of `HIERARCHY:CONTROLLERS:PATH`, version 2 is `0::PATH`.
pub fn groups(text: &str) -> Groups {
    let mut groups = Groups::default();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let has = |name: &str| controllers.split(',').any(|controller| controller == name);
        if number == "0" && controllers.is_empty() {
            groups.unified = Some(path.to_owned());
        } else if has("memory") {
            groups.memory = Some(path.to_owned());
        }
        groups.block |= has("blkio");
    }
    groups
}

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The group that the mount point shows: `/` except in a container without a namespace of its own.
    pub root: String,
    /// Mount point.
    pub mount: String,
}

impl Hierarchy {
    /// A group's path below the mount point, without the first slash; None if it lies outside.
    pub fn below<'a>(&self, group: &'a str) -> Option<&'a str> {
        let rest = group.strip_prefix(self.root.trim_end_matches('/'))?;
        let outside = !rest.is_empty() && !rest.starts_with('/') || rest.split('/').any(|part| part == "..");
        (!outside).then(|| rest.trim_start_matches('/'))
    }
}

/// Where version 2, and version 1's memory controller, are mounted, from /proc/self/mountinfo.
pub fn hierarchies(text: &str) -> [Option<Hierarchy>; 2] {
    let mut found = [None, None];
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3);
        let (Some(root), Some(mount)) = (before.next(), before.next()) else { continue };
        let hierarchy =
            || Hierarchy { root: unescape(root).into_owned(), mount: unescape(mount).into_owned() };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let slot = match kind {
            Some("cgroup2") => &mut found[0],
            Some("cgroup") if options.split(',').any(|option| option == "memory") => &mut found[1],
            _ => continue,
        };
        slot.get_or_insert_with(hierarchy);
    }
    found
}

/// Where hierarchies are mounted, from /proc/self/mountinfo: version 2, then systemd's own of version 1, then
/// those of version 1's controllers.
pub fn mounts(text: &str) -> Vec<String> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mount = unescape(before.split(' ').nth(4)?).into_owned();
        let mut after = after.split(' ');
        let rank = match (after.next()?, after.nth(1).unwrap_or_default()) {
            ("cgroup2", _) => 0,
            ("cgroup", options) if options.split(',').any(|option| option == "name=systemd") => 1,
            ("cgroup", _) => 2,
            _ => return None,
        };
        Some((rank, mount))
    };
    let mut found: Vec<_> = text.lines().filter_map(mount).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, mount)| mount).collect()
}

/// The number of the hierarchy of version 1 that is mounted as this device (its folders' `st_dev`), from
/// /proc/self/mountinfo and /proc/self/cgroup.
pub fn hierarchy(mountinfo: &str, groups: &str, dev: u64) -> Option<u32> {
    let options = mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let is_it = device(before.split(' ').nth(2)?) == Some(dev) && after.next() == Some("cgroup");
        is_it.then(|| after.nth(1)).flatten()
    })?;
    let has = |controller: &str| options.split(',').any(|option| option == controller);
    groups.lines().find_map(|line| {
        let (number, rest) = line.split_once(':')?;
        let (controllers, _) = rest.split_once(':')?;
        controllers.split(',').all(has).then(|| number.parse().ok()).flatten()
    })
}

/// A limit such as memory.max: a number of bytes, or `max` for none. Version 1 writes none as the largest
/// number of pages.
pub fn limit(text: &str) -> Option<Bytes> {
    let bytes: u64 = text.trim().parse().ok()?;
    (bytes < 1 << 62).then_some(Bytes(bytes))
}

/// A line of io.max: what the group may write to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimit {
    /// Number of the device: a whole disk.
    pub dev: u64,
    /// Bytes written in a second.
    pub bytes: Option<u64>,
    /// Write requests in a second.
    pub requests: Option<u64>,
}

/// The lines of io.max that limit writing: `MAJ:MIN rbps=max wbps=1048576 riops=max wiops=120`.
pub fn io_max(text: &str) -> Vec<IoLimit> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let dev = device(words.next()?)?;
        let mut limit = IoLimit { dev, bytes: None, requests: None };
        for word in words {
            match word.split_once('=') {
                Some(("wbps", value)) => limit.bytes = value.parse().ok(),
                Some(("wiops", value)) => limit.requests = value.parse().ok(),
                _ => {}
            }
        }
        (limit.bytes.is_some() || limit.requests.is_some()).then_some(limit)
    };
    text.lines().filter_map(line).collect()
}

/// A device number as `MAJ:MIN`.
pub fn device(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(device_number(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with both versions (6.18), and user-mode-linux 6.1 with version 2 alone.
    const HYBRID: &str = "9:name=systemd:/\n8:pids:/\n7:blkio:/\n6:freezer:/\n5:devices:/\n\
                          4:memory:/process_api/d8c7\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n";
    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                          35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                          38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
                          41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    #[test]
    fn a_hierarchy_of_version_1_has_a_number() {
        let cpu = "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n";
        let mounts = format!("{MOUNTS}{cpu}");
        let number = |minor, groups| hierarchy(&mounts, groups, minor);
        assert_eq!([number(32, HYBRID), number(35, HYBRID)], [Some(4), Some(7)]);
        // Version 2, no group at all, and one whose controllers are not those.
        assert_eq!([38, 28, 99].map(|minor| number(minor, HYBRID)), [None; 3]);
        assert_eq!([number(33, "3:cpu,cpuacct:/\n"), number(33, "3:cpu,memory:/\n")], [Some(3), None]);
    }

    #[test]
    fn version_two_is_the_first_mount() {
        let systemd = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
        let wanted = ["unified", "systemd", "memory", "blkio"].map(|name| format!("/sys/fs/cgroup/{name}"));
        assert_eq!(mounts(&format!("{MOUNTS}{systemd}")), wanted);
        assert_eq!(
            mounts("20 19 0:18 / /sys/fs/cgroup\\040x rw - cgroup2 c rw\nmalformed\n - cgroup2"),
            ["/sys/fs/cgroup x"]
        );
    }

    #[test]
    fn groups_of_a_process() {
        let hybrid = groups(HYBRID);
        let memory = Some("/process_api/d8c7".to_owned());
        assert_eq!(hybrid, Groups { unified: Some("/".to_owned()), memory, block: true });
        assert!(!hybrid.know_writeback());
        let unified = groups("0::/system.slice/a:b.service\n");
        assert_eq!(unified.unified.as_deref(), Some("/system.slice/a:b.service"));
        assert!(unified.know_writeback());
        // Only one of the two controllers is of version 2.
        assert!(!groups("7:blkio:/\n0::/a\n").know_writeback());
        assert!(!groups("4:cpu,memory:/\n0::/a\n").know_writeback());
        for malformed in ["", "0::", "0:", "::::\nmemory", "\n\n", "4:memory"] {
            assert_eq!(groups(malformed).memory, None, "{malformed}");
        }
    }

    #[test]
    fn mounted_hierarchies() {
        let [unified, memory] = hierarchies(MOUNTS);
        assert_eq!(unified.unwrap().mount, "/sys/fs/cgroup/unified");
        assert_eq!(memory.unwrap().mount, "/sys/fs/cgroup/memory");
        let text = "20 19 0:18 /docker/c1 /sys/fs/cg\\040roup rw - cgroup2 c rw\nnonsense - cgroup2\n1 - cgroup2 c\n";
        let [unified, memory] = hierarchies(text);
        assert_eq!(memory, None);
        let unified = unified.unwrap();
        assert_eq!(unified.mount, "/sys/fs/cg roup");
        assert_eq!(unified.below("/docker/c1/job"), Some("job"));
        assert_eq!(unified.below("/docker/c1"), Some(""));
        assert_eq!(unified.below("/docker/c12"), None);
        assert_eq!(unified.below("/other"), None);
        let whole = Hierarchy { root: "/".to_owned(), mount: String::new() };
        assert_eq!((whole.below("/"), whole.below("/a/b")), (Some(""), Some("a/b")));
        // Above the root of the reader's namespace.
        assert_eq!(whole.below("/../sibling"), None);
    }

    #[test]
    fn limits() {
        assert_eq!(limit("134217728\n"), Some(Bytes::mib(128)));
        for none in ["max\n", "", "-1", "many", "9223372036854771712\n"] {
            assert_eq!(limit(none), None, "{none}");
        }
        let text = "98:0 rbps=max wbps=20971520 riops=max wiops=max\n8:16 rbps=1 wbps=max riops=max wiops=120\n\
                    8:0 rbps=2097152 wbps=max riops=max wiops=max\n8 wbps=1\n\n8:x wbps=1\n8:32 wbps wiops=\n";
        let wanted = [
            IoLimit { dev: device_number(98, 0), bytes: Some(20_971_520), requests: None },
            IoLimit { dev: device_number(8, 16), bytes: None, requests: Some(120) },
        ];
        assert_eq!(io_max(text), wanted);
        assert_eq!(device("8:16\n"), Some(device_number(8, 16)));
    }
}
