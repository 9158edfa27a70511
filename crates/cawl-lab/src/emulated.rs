//! A process of this program that serves an emulated disk or network mount and lowers dirty limits.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use cawl_core::Nanos;
use serde::{Deserialize, Serialize};

/// The line of JSON that `cawl-lab --supervised` prints when it is ready.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// The mount point of the filesystem.
    pub mount: PathBuf,
    /// The block device; none of a network mount.
    pub device: PathBuf,
    /// Time of a small write without pacing; the latency of a disk or link here is at least that.
    pub floor: Nanos,
}

/// A running `cawl-lab`; dropping it makes it undo everything, and waits for that.
#[derive(Debug)]
pub struct Lab {
    served: Child,
    /// What it said when it was ready.
    pub ready: Ready,
}

impl Lab {
    /// Starts the program with real-time priority where allowed, so that other programs do not slow the disk
    /// down.
    pub fn start(program: &Path, arguments: &[&str]) -> anyhow::Result<Lab> {
        let first = ["--fifo", "10"];
        let probe = Command::new("chrt").args(first).arg("true").stderr(Stdio::null()).status();
        let mut command = if probe.is_ok_and(|status| status.success()) {
            let mut command = Command::new("chrt");
            command.args(first).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.arg("--supervised").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // In its own process group: Ctrl-C must not end the disk before the writer.
        command.process_group(0);
        let served = command
            .spawn()
            .with_context(|| format!("cannot start {}; build it with cargo", program.display()))?;
        let mut lab = Lab { served, ready: Ready::default() };
        let out = lab.served.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line.is_empty() {
            bail!("the emulated disk or mount did not come up; its message is above");
        }
        lab.ready = serde_json::from_str(&line)
            .with_context(|| format!("{} is of another version; build both anew", program.display()))?;
        Ok(lab)
    }

    /// Starts this program; `root` says what else there is, where that is not root.
    pub(crate) fn own(arguments: &[&str], root: &str) -> anyhow::Result<Lab> {
        ensure!(nix::unistd::geteuid().is_root(), "{root}");
        Lab::start(&std::env::current_exe()?, arguments)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.served.id()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // End of input tells it to stop.
        drop(self.served.stdin.take());
        // An error means that it was already reaped.
        drop(self.served.wait());
    }
}
