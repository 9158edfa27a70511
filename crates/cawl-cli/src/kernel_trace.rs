//! The kernel's own word on writeback: its tracepoints, in a trace instance of our own, where tracefs is
//! mounted and may be used. Anything else that traces is not disturbed.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::fcntl::OFlag;

const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PREFIX: &str = "cawl-";

/// A trace under way; dropping it ends it.
#[derive(Debug)]
pub struct KernelTrace {
    /// What is read from it is gone from the kernel's buffer, and nothing else. Closed before the instance is removed.
    pipe: File,
    instance: Instance,
}

/// The folder of a trace of our own; dropping it removes it.
#[derive(Debug)]
struct Instance(PathBuf);

impl KernelTrace {
    /// Begins to trace these events of the group `writeback`; None where the kernel's tracing is not to be had.
    pub fn begin(events: &[&str]) -> anyhow::Result<Option<KernelTrace>> {
        let Some(instances) = instances() else { return Ok(None) };
        remove_leftovers(&instances);
        let instance = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&instance).with_context(|| format!("cannot make {}", instance.display()))?;
        let instance = Instance(instance);
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", "8192")?;
        for event in events {
            instance.set(&format!("events/writeback/{event}/enable"), "1")?;
        }
        let pipe = instance.0.join("trace_pipe");
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(&pipe)
            .with_context(|| format!("cannot open {}", pipe.display()))?;
        Ok(Some(KernelTrace { pipe, instance }))
    }

    /// From now on only what the calling thread brings about is told of these events.
    pub fn only_this_thread(&self, events: &[&str]) -> anyhow::Result<()> {
        let filter = format!("common_pid == {}", nix::unistd::gettid());
        events
            .iter()
            .try_for_each(|event| self.instance.set(&format!("events/writeback/{event}/filter"), &filter))
    }

    /// What the kernel has said since the beginning or the last call, as it says it.
    pub fn take(&self) -> anyhow::Result<String> {
        let mut text = Vec::new();
        let mut chunk = [0; 1 << 14];
        loop {
            match (&self.pipe).read(&mut chunk) {
                Ok(length @ 1..) => text.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // There is no more now.
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read the kernel's trace"),
            }
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Instance {
    fn set(&self, name: &str, value: &str) -> anyhow::Result<()> {
        let file = self.0.join(name);
        fs::write(&file, value).with_context(|| format!("cannot set {}", file.display()))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If it stays, the next one removes it.
        drop(fs::remove_dir(&self.0));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The event comes when somebody reads the kernel's counters.
    const EVENT: &str = "global_dirty_state";

    /// Mounts tracefs for this test alone, in a process and a mount namespace of its own.
    fn with_tracefs(test: &str) {
        let script = "mount -t tracefs tracefs /sys/kernel/tracing || exit 77; exec \"$0\" --exact \"$1\"";
        let own = std::env::current_exe().unwrap();
        let status = Command::new("unshare").args(["-m", "sh", "-c", script]).arg(own).arg(test).output();
        match status {
            Ok(output) if output.status.success() => {}
            Ok(output) if output.status.code() == Some(101) => panic!("{output:?}"),
            _ => println!("SKIPPED: tracefs is not to be had here"),
        }
    }

    #[test]
    fn nothing_is_lost_between_two_looks() {
        if instances().is_none() {
            return with_tracefs("kernel_trace::tests::nothing_is_lost_between_two_looks");
        }
        let trace = KernelTrace::begin(&[EVENT]).unwrap().unwrap();
        trace.only_this_thread(&[EVENT]).unwrap();
        let look = || fs::read_to_string("/proc/vmstat").unwrap();
        let count = |text: &str| text.lines().filter(|line| line.contains(EVENT)).count();
        look();
        let each = count(&trace.take().unwrap());
        assert!(each > 0, "the event comes at each look");
        const LOOKS: usize = 5000;
        let has_ended = AtomicBool::new(false);
        let taken = std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                let mut text = String::new();
                while !has_ended.load(Ordering::Acquire) {
                    text += &trace.take().unwrap();
                }
                text + &trace.take().unwrap()
            });
            (0..LOOKS).for_each(|_| drop(look()));
            has_ended.store(true, Ordering::Release);
            taking.join().unwrap()
        });
        assert_eq!(count(&taken), each * LOOKS);
        assert!(!taken.contains("LOST") && !taken.lines().any(|line| line.starts_with('#')), "{taken}");
        let at = trace.instance.0.clone();
        drop(trace);
        assert!(!at.exists());
    }
}
