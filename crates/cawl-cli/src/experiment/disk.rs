//! The emulated disk of an experiment. It is a separate program (`cawl-lab`), so that this one does not link
//! FUSE.

use std::env;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde::Deserialize;

const PROGRAM: &str = "cawl-lab";

/// A running disk; dropping it unmounts it and waits for that.
#[derive(Debug)]
pub struct Disk {
    served: Child,
    /// The mount point of its filesystem.
    pub mount: PathBuf,
}

/// The used part of what `cawl-lab --supervised` prints.
#[derive(Deserialize)]
struct Ready {
    mount: PathBuf,
}

impl Disk {
    /// Starts a disk: `ssd`, `hdd`, `nvme` or `BW,LAT,SEEK,FLUSH`.
    pub fn bring_up(spec: &str) -> anyhow::Result<Disk> {
        if !nix::unistd::geteuid().is_root() {
            bail!("an emulated disk needs root; without --disk, experiments run on a disk you have");
        }
        let program = find()?;
        // With real-time priority where allowed, so that other programs do not slow the disk down.
        let first = ["--fifo", "10"];
        let probe = Command::new("chrt").args(first).arg("true").stderr(Stdio::null()).status();
        let mut command = match probe {
            Ok(status) if status.success() => {
                let mut command = Command::new("chrt");
                command.args(first).arg(&program);
                command
            }
            _ => Command::new(&program),
        };
        command.args(["--supervised", "--disk", spec]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // In its own process group: Ctrl-C must not end the disk before the writer.
        command.process_group(0);
        let served = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut disk = Disk { served, mount: PathBuf::new() };
        let out = disk.served.stdout.take().context("its output is a pipe")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line.is_empty() {
            bail!("the emulated disk did not come up; its message is above");
        }
        let ready: Ready = serde_json::from_str(&line)
            .with_context(|| format!("{} is of another version; build both anew", program.display()))?;
        disk.mount = ready.mount;
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // End of input tells it to stop.
        drop(self.served.stdin.take());
        // An error means that it was already reaped.
        drop(self.served.wait());
    }
}

/// The program beside this one, or in PATH.
fn find() -> anyhow::Result<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let paths = env::var_os("PATH").unwrap_or_default();
    let known = beside.into_iter().chain(env::split_paths(&paths).map(|folder| folder.join(PROGRAM)));
    known.into_iter().find(|path| path.is_file()).context(
        "--disk needs the program cawl-lab beside cawl-cli or in PATH; build it with `cargo build --release -p \
         cawl-lab` and put it there",
    )
}
