//! What is followed under one name: processes, or control groups.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cawl_core::host_text;
use cawl_host::target;
use cawl_probe::{Group, Probe};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, FsType, statfs};
use tokio::sync::watch;

/// The number of the root of all groups.
const ROOT: u64 = 1;

/// What the kernel's probes follow.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Processes, with all threads and children.
    pub processes: Vec<u32>,
    /// Processes that are about to become the program that is meant, from then on.
    pub from_exec: Vec<u32>,
    /// Control groups, as folders of /sys/fs/cgroup (either version), with all below them.
    pub cgroups: Vec<PathBuf>,
}

/// A target that is followed.
pub struct Part {
    target: Target,
    /// Which of its groups the kernel compares; it cannot compare the others, or has no room for them.
    compared: Vec<Option<Group>>,
    /// Closed with it, when nothing of it is left.
    _over: watch::Sender<()>,
}

impl Part {
    /// Follows its groups from now on. The receiver is closed when it is over.
    pub fn new(target: Target, probe: &mut Probe) -> (Part, watch::Receiver<()>) {
        let compare = |folder: &PathBuf| group(folder).filter(|group| probe.follow_group(*group));
        let compared = target.cgroups.iter().map(compare).collect();
        let (over, ended) = watch::channel(());
        (Part { target, compared, _over: over }, ended)
    }

    /// The processes that are to be followed now, with their children.
    pub fn wanted(&self) -> BTreeSet<u32> {
        let groups = self.target.cgroups.iter().flat_map(|folder| target::processes(folder));
        let roots = self.target.processes.iter().chain(&self.target.from_exec).copied().collect();
        groups.chain(descendants(roots)).filter(|pid| *pid != std::process::id()).collect()
    }

    /// Processes that the kernel does not find by itself: in groups that it cannot compare, and in those that
    /// were made anew by the same name, as when a service starts again. It knows these from now on.
    pub fn unseen(&mut self, probe: &mut Probe) -> Vec<u32> {
        let mut unseen = Vec::new();
        for (folder, compared) in self.target.cgroups.iter().zip(&mut self.compared) {
            if let Some(known) = *compared {
                if folder.metadata().map_or(known.id, |found| found.ino()) == known.id {
                    continue;
                }
                probe.leave_group(known);
                *compared = group(folder).filter(|group| probe.follow_group(*group));
            }
            unseen.extend(target::processes(folder));
        }
        unseen
    }

    /// It is over: its groups leave their places to others.
    pub fn leave(self, probe: &mut Probe) {
        self.compared.into_iter().flatten().for_each(|group| probe.leave_group(group));
    }
}

/// A control group as the probes compare it.
fn group(folder: &Path) -> Option<Group> {
    let is_of =
        |folder: &Path, kind: FsType| statfs(folder).is_ok_and(|found| found.filesystem_type() == kind);
    let folder = folder.canonicalize().ok()?;
    let found = folder.metadata().ok()?;
    // A folder's inode number is the group's number.
    let id = found.ino();
    if is_of(&folder, CGROUP_SUPER_MAGIC) {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let (mounts, groups) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
        let hierarchy = host_text::cgroup::hierarchy(&mounts, &groups, found.dev())?;
        return Some(Group { id, level: 0, hierarchy });
    }
    if !is_of(&folder, CGROUP2_SUPER_MAGIC) {
        return None;
    }
    let above = folder.ancestors().skip(1).map_while(|above| {
        let is_group = is_of(above, CGROUP2_SUPER_MAGIC);
        above.metadata().ok().filter(|found_above| is_group && found_above.dev() == found.dev())
    });
    let above: Vec<u64> = above.map(|above| above.ino()).collect();
    // In a namespace of groups what is mounted begins further down, and the level is not known.
    let root = above.last().copied().unwrap_or(id);
    (root == ROOT).then_some(Group { id, level: above.len() as u32, hierarchy: 0 })
}

/// Processes and all that they led to.
fn descendants(roots: BTreeSet<u32>) -> Vec<u32> {
    let mut found: Vec<u32> = roots.into_iter().filter(|pid| cawl_host::is_running(*pid)).collect();
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        at += 1;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
            found.extend(children.filter(|child| *child != std::process::id()));
        }
    }
    found
}
