//! Probes in the kernel, as a second source of calls beside the tracers.
//!
//! The law of this module: **one eye is one task, and each process that it follows is a session like another.** The
//! task reads the ring of its probes every few ms, gives each process's calls to the engine, and ends sessions as
//! processes end or become other programs.

mod eye;
mod process;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use cawl_probe::{GROUPS, Group, Probe};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Daemon;
use eye::Eye;

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

/// Attached probes; they end with this.
pub struct Attached {
    stop: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
    task: JoinHandle<anyhow::Result<Vec<String>>>,
}

/// Why probes cannot be attached here, as far as that can be known before they are.
pub fn unavailable() -> Option<String> {
    cawl_probe::check().err().map(|why| why.to_string())
}

impl Daemon {
    /// Attaches probes; the calls of what they follow are those of this run, and of the daemon's own lane.
    pub async fn attach(&self, run: u64, target: Target) -> anyhow::Result<Attached> {
        let seen: Vec<Group> =
            target.cgroups.iter().filter_map(|folder| group(folder)).take(GROUPS).collect();
        let is_seen = |folder: &PathBuf| group(folder).is_some_and(|group| seen.contains(&group));
        // The kernel cannot compare the others: they are looked at at intervals.
        let walked = target.cgroups.iter().filter(|folder| !is_seen(folder)).cloned().collect();
        // The verifier takes its time.
        let probe = tokio::task::spawn_blocking(move || Probe::attach(&seen)).await??;
        let (stop, stopped) = watch::channel(false);
        let (over, ended) = watch::channel(false);
        let (connections, engine) = (Arc::clone(self.connections()), self.engine());
        let (ready, is_ready) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let mut eye = Eye::new(probe, run, &connections, engine, target, walked);
            eye.begin().await?;
            let _ = ready.send(());
            eye.follow(stopped, over).await
        });
        is_ready.await.context("the probes could not begin")?;
        Ok(Attached { stop, ended, task })
    }
}

impl Attached {
    /// Returns once nothing that is followed is left running.
    pub async fn ended(&self) {
        // An error: the task is over.
        drop(self.ended.clone().wait_for(|over| *over).await);
    }

    /// Detaches; all calls up to now were given to the engine. Notes for the report.
    pub async fn stop(self) -> anyhow::Result<Vec<String>> {
        self.stop.send_replace(true);
        self.task.await?
    }
}

/// A control group of version 2 as the probes compare it.
fn group(folder: &Path) -> Option<Group> {
    let is_group =
        |folder: &Path| statfs(folder).is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC);
    if !is_group(folder) {
        return None;
    }
    let folder = folder.canonicalize().ok()?;
    let dev = folder.metadata().ok()?.dev();
    let above = folder.ancestors().skip(1);
    let level =
        above.take_while(|above| is_group(above) && above.metadata().is_ok_and(|found| found.dev() == dev));
    // A folder's inode number is the group's number.
    Some(Group { id: folder.metadata().ok()?.ino(), level: level.count() as u32 })
}

/// A program's name from a path or a comm.
fn text(bytes: &[u8]) -> String {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes).to_string_lossy().trim_end_matches('\0').to_owned()
}
