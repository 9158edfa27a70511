//! The control group of a process: its memory, and what it may write.
//!
//! Version 2, also where it is mounted beside version 1; version 1's memory controller where version 2 has
//! none. [`cawl_core::GroupMemory`] has the law of a group's dirty limits.

use std::fs;
use std::path::{Path, PathBuf};

use cawl_core::host_text::cgroup::{self, IoLimit};
use cawl_core::{Bytes, DirtyLimits, DirtySetting, GroupMemory, MachineMemory, host_text};

use crate::machine;

/// Version of the hierarchy that controls memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// cgroup v1.
    One,
    /// cgroup v2.
    Two,
}

/// The control group of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its path, seen from this process's cgroup namespace.
    pub path: String,
    /// The hierarchy that controls its memory.
    pub version: Version,
    /// True if the kernel counts and limits dirty pages by group: version 2 has both memory and io. The
    /// filesystem has to take part, too (`SB_I_CGROUPWB`: ext4, xfs, btrfs).
    pub knows_writeback: bool,
    /// The least memory.max of the group and the groups above it (version 1: memory.limit_in_bytes).
    pub max: Option<Bytes>,
    /// The least memory.high of the same.
    pub high: Option<Bytes>,
    /// Its memory; None in the root group, which the kernel does not limit.
    pub memory: Option<GroupMemory>,
    /// What the group, or one above it, may write to devices (io.max).
    pub io: Vec<IoLimit>,
}

impl Group {
    /// The group of a process; of this one, if None. None where there are no control groups, or where its
    /// group is outside of what is mounted here.
    pub fn of(pid: Option<u32>) -> Option<Group> {
        Group::under(Path::new("/"), pid)
    }

    /// The group of a process, or of this one, with another root of /proc and of the mount points.
    fn under(root: &Path, pid: Option<u32>) -> Option<Group> {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let pid = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
        let groups = cgroup::groups(&read(&format!("proc/{pid}/cgroup")));
        let [unified, memory] = cgroup::hierarchies(&read("proc/self/mountinfo"));
        let knows_writeback = groups.know_writeback();
        let (version, path, hierarchy) = match groups.memory {
            Some(path) => (Version::One, path, memory?),
            None => (Version::Two, groups.unified?, unified?),
        };
        let top = root.join(hierarchy.mount.trim_start_matches('/'));
        let folder = top.join(hierarchy.below(&path)?);
        folder.is_dir().then_some(())?;
        let folders: Vec<&Path> = folder.ancestors().take_while(|at| at.starts_with(&top)).collect();
        let names = version.names();
        let levels: Vec<Level> = folders.iter().filter_map(|folder| Level::of(folder, names)).collect();
        let memory = levels.first().map(|nearest| GroupMemory {
            headroom: levels.iter().filter_map(Level::headroom).min(),
            ..nearest.memory(names)
        });
        let least = |of: fn(&Level) -> Option<Bytes>| levels.iter().filter_map(of).min();
        Some(Group {
            knows_writeback,
            max: least(|level| level.max),
            high: least(|level| level.high),
            memory,
            io: tightest(folders.iter().flat_map(|folder| cgroup::io_max(&text(folder, "io.max")))),
            version,
            path,
        })
    }

    /// The limit that counts, by the name of its file.
    pub fn limit(&self) -> Option<(&'static str, Bytes)> {
        let [max, high] = match self.version {
            Version::One => ["memory.limit_in_bytes", ""],
            Version::Two => ["memory.max", "memory.high"],
        };
        let named = [self.max.map(|bytes| (max, bytes)), self.high.map(|bytes| (high, bytes))];
        named.into_iter().flatten().min_by_key(|(_, bytes)| *bytes)
    }

    /// Memory that a tracer may take of the group's, see [`room`]; None where there is no limit.
    fn room(&self) -> Option<Bytes> {
        let memory = self.memory?;
        let left = memory.headroom? + memory.file.saturating_sub(memory.dirty);
        self.limit().map(|(_, limit)| part(limit, left))
    }

    /// The group's dirty limits now; None if they are not below the machine's (`machine`), or if there are
    /// none.
    pub fn dirty_limits(&self, machine: DirtyLimits) -> Option<DirtyLimits> {
        let memory = self.memory.filter(|memory| self.knows_writeback && memory.headroom.is_some())?;
        let settings = DirtySetting::both(|name| machine::number(&format!("/proc/sys/vm/{name}")));
        let limits = memory.limits(settings, &machine_memory());
        (limits.hard < machine.hard && limits.background < limits.hard).then_some(limits)
    }
}

/// Memory that a tracer may take of a process's group and of the machine: a 16th of the least limit, and a
/// quarter of what is left, pages of files that need not be written out among it.
pub fn room(pid: u32) -> Bytes {
    let text = machine::read("/proc/meminfo");
    let [all, left] =
        ["MemTotal", "MemAvailable"].map(|name| host_text::meminfo(&text, name).unwrap_or_default());
    Group::of(Some(pid))
        .and_then(|group| group.room())
        .map_or(part(all, left), |room| room.min(part(all, left)))
}

fn part(limit: Bytes, left: Bytes) -> Bytes {
    Bytes(limit.0 / 16).min(Bytes(left.0 / 4))
}

fn machine_memory() -> MachineMemory {
    let text = machine::read("/proc/meminfo");
    let figures = ["Dirty", "Writeback"].map(|name| host_text::meminfo(&text, name).unwrap_or_default());
    let pages = host_text::dirtyable(&machine::read("/proc/zoneinfo"));
    MachineMemory { dirtyable: Bytes(pages.saturating_mul(crate::page().0)), dirty: figures[0] + figures[1] }
}

/// Names of files, and of figures in memory.stat.
#[derive(Clone, Copy)]
struct Names {
    max: &'static str,
    high: Option<&'static str>,
    used: &'static str,
    dirty: [&'static str; 2],
}

impl Version {
    const fn names(self) -> Names {
        match self {
            Version::One => Names {
                max: "memory.limit_in_bytes",
                high: None,
                used: "memory.usage_in_bytes",
                dirty: ["dirty", "writeback"],
            },
            Version::Two => Names {
                max: "memory.max",
                high: Some("memory.high"),
                used: "memory.current",
                dirty: ["file_dirty", "file_writeback"],
            },
        }
    }
}

/// A group with memory control, or one above it.
struct Level {
    folder: PathBuf,
    max: Option<Bytes>,
    high: Option<Bytes>,
    used: Bytes,
}

impl Level {
    /// None if memory is not controlled there: the root, or a group for which it is not switched on.
    fn of(folder: &Path, names: Names) -> Option<Level> {
        let used = text(folder, names.used).trim().parse().ok().map(Bytes)?;
        let max = fs::read_to_string(folder.join(names.max)).ok()?;
        let high = names.high.and_then(|high| cgroup::limit(&text(folder, high)));
        Some(Level { folder: folder.to_owned(), max: cgroup::limit(&max), high, used })
    }

    /// What it can still take.
    fn headroom(&self) -> Option<Bytes> {
        let ceiling = self.max.into_iter().chain(self.high).min()?;
        Some(ceiling.saturating_sub(self.used))
    }

    fn memory(&self, names: Names) -> GroupMemory {
        let stat = text(&self.folder, "memory.stat");
        let figure = |name: &str| Bytes(host_text::counter(&stat, name).unwrap_or(0));
        let [inactive, active] = ["inactive_file", "active_file"].map(figure);
        let [dirty, writeback] = names.dirty.map(figure);
        GroupMemory { file: inactive + active, active, dirty: dirty + writeback, headroom: None }
    }
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

/// One limit for each device: every group on the way to the root has to let a request pass.
fn tightest(limits: impl Iterator<Item = IoLimit>) -> Vec<IoLimit> {
    let mut found: Vec<IoLimit> = Vec::new();
    for limit in limits {
        match found.iter_mut().find(|other| other.dev == limit.dev) {
            Some(other) => {
                other.bytes = other.bytes.into_iter().chain(limit.bytes).min();
                other.requests = other.requests.into_iter().chain(limit.requests).min();
            }
            None => found.push(limit),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of files in a folder of its own.
    struct Files(tempfile::TempDir);

    impl Files {
        /// As user-mode-linux 6.1 has it: version 2 at its usual place, the process in this group.
        fn unified(group: &str) -> Files {
            let files = Files(tempfile::tempdir().unwrap());
            files.put("proc/self/cgroup", &format!("0::{group}\n"));
            let mounts = "17 16 0:5 / /dev rw,relatime - devtmpfs devtmpfs rw,mode=755\n\
                          20 19 0:18 / /sys/fs/cgroup rw,relatime - cgroup2 c rw\n";
            files.put("proc/self/mountinfo", mounts);
            files.put("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
            // The root has figures, but no limit and no sum.
            files.put("sys/fs/cgroup/memory.stat", "anon 266240\nfile 2715648\n");
            files
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        /// A group with memory control.
        fn group(&self, path: &str, max: &str, high: &str, current: u64, stat: &str) {
            let files = [("max", max), ("high", high), ("current", &current.to_string()), ("stat", stat)];
            for (name, text) in files {
                self.put(&format!("sys/fs/cgroup/{path}/memory.{name}"), &format!("{text}\n"));
            }
        }

        fn found(&self) -> Option<Group> {
            Group::under(self.0.path(), None)
        }
    }

    /// Of a group of 128 MiB after 262 MB were written there, user-mode-linux 6.1.
    const STAT: &str = "anon 0\nfile 129568768\nfile_dirty 10813440\nfile_writeback 8388608\ninactive_anon 0\n\
                        active_anon 0\ninactive_file 129560576\nactive_file 8192";

    #[test]
    fn the_group_s_own_figures_and_the_tightest_limits_of_all() {
        let files = Files::unified("/p/q");
        files.group("p", "134217728", "max", 133_730_304, "inactive_file 7");
        files.group("p/q", "268435456", "max", 130_000_000, STAT);
        files.put("sys/fs/cgroup/p/q/io.max", "98:0 rbps=max wbps=20971520 riops=max wiops=max\n");
        files.put("sys/fs/cgroup/p/io.max", "98:0 rbps=max wbps=1048576 riops=max wiops=99\n");
        let group = files.found().unwrap();
        assert_eq!((group.path.as_str(), group.version, group.knows_writeback), ("/p/q", Version::Two, true));
        assert_eq!(group.limit(), Some(("memory.max", Bytes::mib(128))));
        // The group above has nearly nothing left but pages of files.
        assert_eq!(group.room(), Some(Bytes::mib(8)));
        files.put("sys/fs/cgroup/p/q/memory.stat", "anon 129568768\ninactive_file 8192\n");
        assert_eq!(files.found().unwrap().room(), Some(Bytes((134_217_728 - 133_730_304 + 8192) / 4)));
        let memory = GroupMemory {
            file: Bytes(129_568_768),
            active: Bytes(8192),
            dirty: Bytes(10_813_440 + 8_388_608),
            headroom: Some(Bytes(134_217_728 - 133_730_304)),
        };
        assert_eq!(group.memory, Some(memory));
        assert_eq!(group.io.len(), 1);
        assert_eq!((group.io[0].bytes, group.io[0].requests), (Some(1_048_576), Some(99)));
        let machine = DirtyLimits { background: Bytes(1 << 50), hard: Bytes(1 << 51) };
        assert!(group.dirty_limits(machine).is_some_and(|limits| limits.hard < Bytes::mib(128)));
        let low = DirtyLimits { background: Bytes(1), hard: Bytes(2) };
        assert_eq!(group.dirty_limits(low), None);
    }

    #[test]
    fn a_group_without_memory_control_is_that_of_its_parent() {
        let files = Files::unified("/b/c");
        files.group("b", "max", "67108864", 1 << 20, STAT);
        files.put("sys/fs/cgroup/b/c/cgroup.controllers", "\n");
        let group = files.found().unwrap();
        assert_eq!(group.limit(), Some(("memory.high", Bytes::mib(64))));
        assert_eq!(group.memory.and_then(|memory| memory.headroom), Some(Bytes::mib(63)));
        // More is used than is allowed.
        files.group("b", "1048576", "max", 2 << 20, STAT);
        assert_eq!(files.found().unwrap().memory.and_then(|memory| memory.headroom), Some(Bytes::ZERO));
    }

    #[test]
    fn groups_without_limits_bound_nothing() {
        let machine = DirtyLimits { background: Bytes(1 << 50), hard: Bytes(1 << 51) };
        let root = Files::unified("/").found().unwrap();
        assert_eq!((root.memory, root.limit(), root.dirty_limits(machine)), (None, None, None));
        assert_eq!(root.room(), None);
        let files = Files::unified("/a");
        files.group("a", "max", "max", 5, "nonsense\nfile_dirty many\ninactive_file -1");
        let group = files.found().unwrap();
        assert_eq!(group.memory, Some(GroupMemory::default()));
        assert_eq!((group.limit(), group.dirty_limits(machine)), (None, None));
    }

    #[test]
    fn version_one_is_told_and_limits_nothing() {
        let files = Files(tempfile::tempdir().unwrap());
        files.put("proc/self/cgroup", "7:blkio:/\n4:memory:/box\n0::/\n");
        let mounts = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        files.put("proc/self/mountinfo", mounts);
        let folder = "sys/fs/cgroup/memory";
        for (name, text) in [
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.usage_in_bytes", "1048576\n"),
            ("box/memory.limit_in_bytes", "268435456\n"),
            ("box/memory.usage_in_bytes", "1048576\n"),
            ("box/memory.stat", "cache 9\ndirty 4096\nwriteback 8192\ninactive_file 1000\nactive_file 24\n"),
        ] {
            files.put(&format!("{folder}/{name}"), text);
        }
        let group = files.found().unwrap();
        assert_eq!((group.version, group.knows_writeback), (Version::One, false));
        assert_eq!(group.limit(), Some(("memory.limit_in_bytes", Bytes::mib(256))));
        let memory = GroupMemory {
            file: Bytes(1024),
            active: Bytes(24),
            dirty: Bytes(12288),
            headroom: Some(Bytes::mib(255)),
        };
        assert_eq!(group.memory, Some(memory));
        let machine = DirtyLimits { background: Bytes(1 << 50), hard: Bytes(1 << 51) };
        assert_eq!(group.dirty_limits(machine), None);
    }

    #[test]
    fn what_is_not_there_is_no_group() {
        let files = Files(tempfile::tempdir().unwrap());
        assert_eq!(files.found(), None);
        files.put("proc/self/cgroup", "0::/gone\n");
        assert_eq!(files.found(), None);
        files.put("proc/self/mountinfo", "20 19 0:18 / /sys/fs/cgroup rw - cgroup2 c rw\n");
        assert_eq!(files.found(), None);
        // Outside of this namespace.
        files.put("sys/fs/cgroup/memory.stat", "");
        files.put("proc/self/cgroup", "0::/../gone\n");
        assert_eq!(files.found(), None);
        // Of this machine, whatever it has; and of no process.
        drop(Group::of(None));
        assert_eq!(Group::of(Some(u32::MAX)), None);
        assert!(room(u32::MAX) > Bytes::ZERO);
    }
}
