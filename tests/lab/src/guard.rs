//! The guards of tests: a disk, and lowered dirty limits.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use cawl_core::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::spec::DiskSpec;
use crate::stand::Filesystem;

/// The line of JSON that `cawl-lab` prints when it is ready.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// The mount point of the filesystem.
    pub mount: PathBuf,
    /// The block device.
    pub device: PathBuf,
    /// Time of a small write without pacing; the latency of a disk here is at least that.
    pub floor: Nanos,
}

/// The reason why this machine cannot emulate a disk; None if it can.
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

/// A running disk; dropping it unmounts it and waits for that.
#[derive(Debug)]
pub struct EmulatedDisk {
    served: Served,
    ready: Ready,
}

impl EmulatedDisk {
    /// Starts a disk. `program` is the built `cawl-lab`; `limits`, background and hard, are lowered as long
    /// as the disk runs.
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

    /// The mount point of its filesystem.
    pub fn mount_point(&self) -> &Path {
        &self.ready.mount
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        &self.ready.device
    }

    /// Time of a small write without pacing, the least latency of this disk.
    pub fn floor(&self) -> Nanos {
        self.ready.floor
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.served.0.id()
    }
}

/// Lowered dirty limits; dropping it restores the old ones and waits for that.
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

/// A `cawl-lab` process, which ends when its standard input closes.
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
        // An error means that it was already reaped.
        drop(self.0.wait());
    }
}

/// The program with real-time priority where allowed, so that other programs do not slow the disk down.
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
