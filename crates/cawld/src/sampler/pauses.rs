//! The kernel's own word on throttling: how long it lets writers pause (tracepoint `writeback:balance_dirty_pages`,
//! mm/page-writeback.c), read from a trace instance of our own, so that nothing else that traces is disturbed.
//!
//! The law: **what cannot be had is left out, and nothing is left behind.** Only root may trace; the instance goes
//! when the daemon ends, and one of a daemon that was killed goes when the next one starts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cawl_core::Nanos;
use nix::fcntl::OFlag;

use crate::host;

/// Where tracefs is mounted.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
/// Instances of daemons begin with this; their process ids follow.
const PREFIX: &str = "cawld-";
const EVENT: &str = "events/writeback/balance_dirty_pages";
/// Room for each processor: some thousand pauses, and none is shorter than a tick.
const ROOM: &str = "512";
/// Most bytes read at a look; the rest waits for the next.
const MOST: usize = 1 << 20;

/// The pauses of all writers of this machine, traced by cawl or not.
pub struct Pauses {
    instance: PathBuf,
    pipe: File,
    text: Vec<u8>,
    /// Since the begin.
    pub total: Nanos,
    /// Pauses that the kernel had no room for.
    pub lost: u64,
}

impl Pauses {
    /// Begins; an error says why the kernel's tracing is not to be had.
    pub fn begin() -> Result<Pauses, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("only a daemon of root's may trace the kernel".to_owned());
        }
        let Some(instances) = MOUNTS.iter().map(Path::new).find(|path| path.is_dir()) else {
            return Err("no tracefs at /sys/kernel/tracing (kernel without it, or not mounted)".to_owned());
        };
        remove_leftovers(instances);
        // Daemons of one process, as in tests, have an instance each.
        let own = (0..64).map(|n| instances.join(format!("{PREFIX}{}-{n}", std::process::id())));
        for instance in own {
            match fs::create_dir(&instance) {
                Ok(()) => return Pauses::of(instance).map_err(|error| why(instances, &error)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(why(instances, &error)),
            }
        }
        Err(format!("{}: there are too many instances", instances.display()))
    }

    fn of(instance: PathBuf) -> io::Result<Pauses> {
        let begun = || {
            fs::write(instance.join("buffer_size_kb"), ROOM)?;
            fs::write(instance.join(EVENT).join("filter"), "pause > 0")?;
            fs::write(instance.join(EVENT).join("enable"), "1")?;
            let flags = OFlag::O_NONBLOCK.bits();
            OpenOptions::new().read(true).custom_flags(flags).open(instance.join("trace_pipe"))
        };
        match begun() {
            Ok(pipe) => Ok(Pauses { pipe, instance, text: Vec::new(), total: Nanos::ZERO, lost: 0 }),
            Err(error) => {
                drop(fs::remove_dir(&instance));
                Err(error)
            }
        }
    }

    /// Takes what the kernel has told since the latest look.
    pub fn look(&mut self) {
        let mut chunk = [0; 1 << 14];
        let mut read = 0;
        while read < MOST {
            match self.pipe.read(&mut chunk) {
                Ok(length @ 1..) => {
                    read += length;
                    self.text.extend_from_slice(&chunk[..length]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // There is no more now.
                Ok(0) | Err(_) => break,
            }
        }
        let Some(end) = self.text.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.text.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            match said(line) {
                Said::Pause(pause) => self.total += pause,
                Said::Lost(events) => self.lost += events,
                Said::Nothing => {}
            }
        }
    }
}

/// Why a folder of instances is of no use.
fn why(instances: &Path, error: &io::Error) -> String {
    let tracefs = instances.parent().unwrap_or(instances).display();
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => {
            format!("{tracefs} is read-only for cawld (ProtectKernelTunables=)")
        }
        _ => format!("{}: {error}", instances.display()),
    }
}

impl Drop for Pauses {
    fn drop(&mut self) {
        // Events come until then; if the instance stays, the next daemon removes it.
        drop(fs::write(self.instance.join(EVENT).join("enable"), "0"));
        // An instance whose pipe is open cannot be removed.
        if let Ok(nothing) = File::open("/dev/null") {
            self.pipe = nothing;
        }
        drop(fs::remove_dir(&self.instance));
    }
}

/// What a line of the trace says.
#[derive(Debug, PartialEq)]
enum Said {
    Pause(Nanos),
    Lost(u64),
    Nothing,
}

fn said(line: &str) -> Said {
    if let Some(lost) = line.split_once("[LOST ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok()) {
        return Said::Lost(lost);
    }
    // In ms, as the tracepoint converts it.
    let pause = line.split_once(" balance_dirty_pages: ").and_then(|(_, fields)| {
        fields.split(' ').find_map(|field| field.strip_prefix("pause=")?.parse::<i64>().ok())
    });
    match pause {
        Some(ms @ 1..) => Said::Pause(Nanos::millis(ms as f64)),
        _ => Said::Nothing,
    }
}

/// Removes the instances of daemons that are gone.
fn remove_leftovers(instances: &Path) {
    for instance in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = instance.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid: u32| !host::is_running(pid)) {
            // Somebody may read it just now.
            drop(fs::remove_dir(instance.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_trace() {
        let line = "              dd-812     [001] .....  4242.123456: balance_dirty_pages: bdi 254:0: limit=32768 \
                    setpoint=28000 dirty=29000 wb_setpoint=28000 wb_dirty=29000 dirty_ratelimit=1024 \
                    task_ratelimit=980 dirtied=32 dirtied_pause=32 paused=0 pause=36 period=36 think=0 cgroup_ino=1";
        assert_eq!(said(line), Said::Pause(Nanos::millis(36.0)));
        assert_eq!(said(&line.replace("pause=36", "pause=-4")), Said::Nothing);
        assert_eq!(said("CPU:1 [LOST 1234 EVENTS]"), Said::Lost(1234));
        for other in ["", "# tracer: nop", "x: bdi_dirty_ratelimit: pause=7"] {
            assert_eq!(said(other), Said::Nothing, "{other}");
        }
    }

    #[test]
    fn an_instance_is_gone_when_it_is_dropped() {
        let mut pauses = match Pauses::begin() {
            Ok(pauses) => pauses,
            Err(why) => return println!("SKIPPED: {why}"),
        };
        let (first, second) = (pauses.instance.clone(), Pauses::begin().expect("a second one"));
        assert_ne!(first, second.instance);
        pauses.look();
        assert!(first.is_dir());
        drop(pauses);
        assert!(!first.exists() && second.instance.exists());
        let at = second.instance.clone();
        drop(second);
        assert!(!at.exists());
    }
}
