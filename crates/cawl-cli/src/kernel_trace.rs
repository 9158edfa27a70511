//! The kernel's own word on writeback: its tracepoints, in a trace instance of our own, where tracefs is
//! mounted and may be used. Anything else that traces is not disturbed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PREFIX: &str = "cawl-";

/// A trace under way; dropping it ends it.
#[derive(Debug)]
pub struct KernelTrace {
    instance: PathBuf,
}

impl KernelTrace {
    /// Begins to trace these events of the group `writeback`; None where the kernel's tracing is not to be had.
    pub fn begin(events: &[&str]) -> anyhow::Result<Option<KernelTrace>> {
        let Some(instances) = instances() else { return Ok(None) };
        remove_leftovers(&instances);
        let instance = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&instance).with_context(|| format!("cannot make {}", instance.display()))?;
        let trace = KernelTrace { instance };
        trace.set("trace_clock", "mono")?;
        trace.set("buffer_size_kb", "8192")?;
        for event in events {
            trace.set(&format!("events/writeback/{event}/enable"), "1")?;
        }
        Ok(Some(trace))
    }

    /// From now on only what the calling thread brings about is told of these events.
    pub fn only_this_thread(&self, events: &[&str]) -> anyhow::Result<()> {
        let filter = format!("common_pid == {}", nix::unistd::gettid());
        events.iter().try_for_each(|event| self.set(&format!("events/writeback/{event}/filter"), &filter))
    }

    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let file = self.instance.join(name);
        fs::write(&file, value).with_context(|| format!("cannot set {}", file.display()))
    }

    /// What the kernel has said since the beginning or the last call, as it says it.
    pub fn take(&self) -> anyhow::Result<String> {
        let text =
            fs::read_to_string(self.instance.join("trace")).context("cannot read the kernel's trace")?;
        // Opened for writing and truncated, it is empty again.
        self.set("trace", "")?;
        Ok(text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect())
    }
}

impl Drop for KernelTrace {
    fn drop(&mut self) {
        // If it stays, the next one removes it.
        drop(fs::remove_dir(&self.instance));
    }
}

/// Where instances are made, if we may.
fn instances() -> Option<PathBuf> {
    let found = MOUNTS.iter().map(|mount| Path::new(mount).join("instances")).find(|path| path.is_dir())?;
    nix::unistd::geteuid().is_root().then_some(found)
}

fn remove_leftovers(instances: &Path) {
    for instance in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = instance.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid: u32| !cawld::host::is_running(pid)) {
            // Somebody may read it just now.
            drop(fs::remove_dir(instance.path()));
        }
    }
}
