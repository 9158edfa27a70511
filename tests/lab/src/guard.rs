//! The guards that tests hold: a disk, and lowered dirty limits.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use cawl_core::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::spec::DiskSpec;
use crate::stand::Filesystem;

/// What `cawl-lab` prints when it is ready, as one line of JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Where the filesystem is mounted.
    pub mount: PathBuf,
    /// The block device.
    pub device: PathBuf,
    /// Time that a small write takes without pacing; no disk here has a latency below it.
    pub floor: Nanos,
}

/// What this machine lacks for an emulated disk; None if nothing.
pub fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        Some("an emulated disk needs root")
    } else if !Path::new("/dev/fuse").exists() {
        Some("an emulated disk needs /dev/fuse; load the module fuse")
    } else if !Path::new("/dev/loop-control").exists() {
        Some("an emulated disk needs loop devices; load the module loop")
    } else {
        None
    }
}

/// A running disk; dropping it takes it down and waits until that is done.
#[derive(Debug)]
pub struct EmulatedDisk {
    served: Served,
    ready: Ready,
}

impl EmulatedDisk {
    /// Brings a disk up. `program` is the built `cawl-lab`; `limits` are dirty limits to lower while the
    /// disk is up, background and hard.
    pub fn bring_up(
        program: &Path,
        spec: DiskSpec,
        filesystem: Filesystem,
        limits: Option<(Bytes, Bytes)>,
    ) -> anyhow::Result<EmulatedDisk> {
        let mut arguments = vec!["--disk".to_owned(), spec.to_string(), "--filesystem".to_owned()];
        arguments.push(match filesystem {
            Filesystem::Ext4 => "ext4".to_owned(),
            Filesystem::Xfs => "xfs".to_owned(),
            Filesystem::Btrfs => "btrfs".to_owned(),
            Filesystem::None => "none".to_owned(),
        });
        arguments.extend(limits.map(limits_argument).into_iter().flatten());
        let (served, ready) = Served::start(program, &arguments)?;
        Ok(EmulatedDisk { served, ready })
    }

    /// Where its filesystem is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.ready.mount
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        &self.ready.device
    }

    /// Time that a small write takes without pacing; the disk's latency is not below it.
    pub fn floor(&self) -> Nanos {
        self.ready.floor
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.served.0.id()
    }
}

/// Lowered dirty limits; dropping it puts the old ones back and waits until that is done.
#[derive(Debug)]
pub struct LimitsGuard {
    _served: Served,
}

impl LimitsGuard {
    /// Lowers the limits; waits while another process has them lowered.
    pub fn lower(program: &Path, background: Bytes, hard: Bytes) -> anyhow::Result<LimitsGuard> {
        let mut arguments = vec!["--disk".to_owned(), "none".to_owned()];
        arguments.extend(limits_argument((background, hard)));
        let (served, _) = Served::start(program, &arguments)?;
        Ok(LimitsGuard { _served: served })
    }
}

fn limits_argument((background, hard): (Bytes, Bytes)) -> [String; 2] {
    ["--limits".to_owned(), format!("{},{}", background.0, hard.0)]
}

/// A `cawl-lab` that goes when its standard input ends.
#[derive(Debug)]
struct Served(Child);

impl Served {
    fn start(program: &Path, arguments: &[String]) -> anyhow::Result<(Served, Ready)> {
        let mut command = program_in_front(program);
        command.arg("--supervised").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}; build it with cargo", program.display()))?;
        let mut served = Served(child);
        let out = served.0.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line.is_empty() {
            bail!("{} ended before the disk was up; its message is above", program.display());
        }
        Ok((served, serde_json::from_str(&line)?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // If it cannot be waited for, somebody else did.
        drop(self.0.wait());
    }
}

/// The program with real-time priority where that can be had: the disk keeps its pace while others compute.
fn program_in_front(program: &Path) -> Command {
    let possible = Command::new("chrt").args(["--fifo", "10", "true"]).output();
    if possible.is_ok_and(|output| output.status.success()) {
        let mut command = Command::new("chrt");
        command.args(["--fifo", "10"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}
