//! The kernel's tracepoints, in a trace instance of our own, so that other users of tracing are
//! not disturbed.
//!
//! The law: **without access it is left out, and nothing is left behind.** Only root may trace; an instance
//! is removed when it is dropped, and that of a killed process when the next one is made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::machine;

const MOUNTS: [&str; 2] = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
/// Our instances begin with this; the process id and a number follow.
const PREFIX: &str = "cawl-";
/// Buffer for events in KiB.
const ROOM: u32 = 8192;
/// Most instances of one process.
const MAX: usize = 64;

/// Why tracing is not possible.
#[derive(Debug, thiserror::Error)]
pub enum TraceFsError {
    /// The user is not root.
    #[error("only root may trace the kernel")]
    NotRoot,
    /// There is no tracefs.
    #[error("no tracefs at /sys/kernel/tracing (kernel without it, or not mounted)")]
    Absent,
    /// It may not be changed.
    #[error("{0} is read-only for cawld (ProtectKernelTunables=)")]
    ReadOnly(PathBuf),
    /// Anything else.
    #[error("{0}: {1}")]
    Failed(PathBuf, #[source] io::Error),
}

/// A running trace; dropping it ends it.
#[derive(Debug)]
pub struct Instance {
    /// Reading removes events from the kernel's buffer. Closed before the folder is removed.
    pipe: File,
    #[cfg_attr(not(test), expect(dead_code, reason = "it is held"))]
    folder: Folder,
}

/// The folder of an instance; dropping it removes it.
#[derive(Debug)]
struct Folder(PathBuf);

/// A filter for events of the calling thread.
pub fn this_thread() -> String {
    format!("common_pid == {}", nix::unistd::gettid())
}

impl Instance {
    /// Begins to trace these events, with `room` KiB for each processor: `group/event`, or an event of the
    /// group `writeback`. What does not pass the filter is left out; all pass an empty one.
    pub fn begin(room: u32, events: &[&str], filter: &str) -> Result<Instance, TraceFsError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(TraceFsError::NotRoot);
        }
        let instances = MOUNTS.iter().map(Path::new).find(|path| path.is_dir());
        let instances = instances.ok_or(TraceFsError::Absent)?;
        remove_leftovers(instances);
        Folder::make(instances).and_then(|folder| folder.begin(room, events, filter)).map_err(|error| {
            match error.kind() {
                ErrorKind::ReadOnlyFilesystem => {
                    TraceFsError::ReadOnly(instances.parent().unwrap_or(instances).to_owned())
                }
                _ => TraceFsError::Failed(instances.to_owned(), error),
            }
        })
    }

    /// Begins to trace with a large buffer; None for a user who may not trace, and without tracefs.
    pub fn begin_if_possible(events: &[&str], filter: &str) -> Result<Option<Instance>, TraceFsError> {
        match Instance::begin(ROOM, events, filter) {
            Ok(instance) => Ok(Some(instance)),
            Err(TraceFsError::NotRoot | TraceFsError::Absent) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The trace since the beginning or the last call.
    pub fn take(&self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.take_some(usize::MAX)?).into_owned())
    }

    /// The trace since the last call, not much more than `most` bytes: the rest waits for the next call.
    pub fn take_some(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut chunk = [0; 1 << 14];
        while text.len() < most {
            match (&self.pipe).read(&mut chunk) {
                Ok(length @ 1..) => text.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // The buffer is empty.
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(text)
    }
}

impl Folder {
    fn make(instances: &Path) -> io::Result<Folder> {
        for number in 0..MAX {
            let path = instances.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Folder(path)),
            }
        }
        Err(io::Error::other("there are too many instances"))
    }

    fn begin(self, room: u32, events: &[&str], filter: &str) -> io::Result<Instance> {
        self.set("trace_clock", "mono")?;
        self.set("buffer_size_kb", &room.to_string())?;
        for event in events {
            let (group, event) = event.split_once('/').unwrap_or(("writeback", event));
            if !filter.is_empty() {
                self.set(&format!("events/{group}/{event}/filter"), filter)?;
            }
            self.set(&format!("events/{group}/{event}/enable"), "1")?;
        }
        let flags = OFlag::O_NONBLOCK.bits();
        let pipe = OpenOptions::new().read(true).custom_flags(flags).open(self.0.join("trace_pipe"))?;
        Ok(Instance { pipe, folder: self })
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.0.join(name), value)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot set {name}: {error}")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // On an error the next process removes it.
        drop(fs::remove_dir(&self.0));
    }
}

/// Removes the instances of ended processes.
fn remove_leftovers(instances: &Path) {
    for instance in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = instance.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid: u32| !machine::is_running(pid)) {
            // Another process may be reading it.
            drop(fs::remove_dir(instance.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The event comes when the kernel's counters are read.
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
        let Some(trace) = Instance::begin_if_possible(&[EVENT], &this_thread()).unwrap() else {
            return with_tracefs("tracefs::tests::nothing_is_lost_between_two_looks");
        };
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
    }

    #[test]
    fn an_instance_is_gone_when_it_is_dropped() {
        let Some(first) = Instance::begin_if_possible(&[EVENT], "").unwrap() else {
            return with_tracefs("tracefs::tests::an_instance_is_gone_when_it_is_dropped");
        };
        let second = Instance::begin(64, &[EVENT], "").expect("a second one");
        let (path, other) = (first.folder.0.clone(), second.folder.0.clone());
        assert!(path != other && path.is_dir() && other.is_dir());
        drop(first);
        assert!(!path.exists() && other.is_dir());
        drop(second);
        assert!(!other.exists());
        // Of an ended process.
        let left = path.with_file_name(format!("{PREFIX}4194305-0"));
        fs::create_dir(&left).unwrap();
        drop(Instance::begin(64, &[EVENT], ""));
        assert!(!left.exists());
    }
}
