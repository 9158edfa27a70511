//! Probes in the kernel, as a second source of calls beside the tracers.

use std::path::PathBuf;

use anyhow::bail;

use crate::Daemon;

/// What the kernel's probes follow.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// Processes, with all threads and children.
    pub processes: Vec<u32>,
    /// Control groups, as folders of /sys/fs/cgroup (either version), with all below them.
    pub cgroups: Vec<PathBuf>,
}

/// Attached probes; they end with this.
pub struct Attached(());

impl Daemon {
    /// Attaches probes; the calls of what they follow are those of this run.
    #[expect(clippy::unused_async, reason = "it will load the probes")]
    pub async fn attach(&self, run: u64, target: Target) -> anyhow::Result<Attached> {
        let _ = (run, target);
        bail!("this version has no probes for the kernel")
    }
}

impl Attached {
    /// Returns once nothing that is followed is left running.
    #[expect(clippy::unused_async, reason = "it will wait")]
    pub async fn ended(&self) {}

    /// Detaches; all calls up to now were given to the engine. Notes for the report.
    #[expect(clippy::unused_async, reason = "it will wait")]
    pub async fn stop(self) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }
}
