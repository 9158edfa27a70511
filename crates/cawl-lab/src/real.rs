//! Network filesystems that are real: sshfs on this machine, NFS in a machine of its own.
//!
//! A command runs with such a mount as its working directory. The way to the server is delayed by a [`Link`];
//! without one it is as fast as the machine. Nothing is left of it.

mod nfs;
mod relay;
mod sshfs;

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, ensure};
use cawl_core::{Nanos, Rate};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use relay::relay;

use crate::{NetSpec, network_mount};

/// What a connection to a server adds to each message: half the latency in each direction, and its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Round trip.
    pub latency: Nanos,
    /// Bytes per second in each direction.
    pub bandwidth: Rate,
}

impl FromStr for Link {
    type Err = anyhow::Error;

    /// `LATENCY,BANDWIDTH` as of a [`NetSpec`].
    fn from_str(text: &str) -> anyhow::Result<Link> {
        ensure!(text.matches(',').count() <= 1, "{text:?}: give LATENCY,BANDWIDTH as in 150us,100MB/s");
        let NetSpec { latency, bandwidth, .. } = text.parse()?;
        Ok(Link { latency, bandwidth })
    }
}

/// A network filesystem that a command can run on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    /// The emulated one.
    Emulated(NetSpec),
    /// sshfs, whose sshd is started for the one connection.
    Sshfs(Option<Link>),
    /// NFS 4.2 over the loopback of user-mode-linux.
    Nfs(Option<Link>),
}

impl FromStr for Place {
    type Err = anyhow::Error;

    /// `sshfs` or `nfs`, alone or followed by `,LATENCY,BANDWIDTH`; or a [`NetSpec`].
    fn from_str(text: &str) -> anyhow::Result<Place> {
        let (kind, link) = match text.split_once(',') {
            Some((kind @ ("sshfs" | "nfs"), link)) => (kind, Some(link.parse()?)),
            _ => (text, None),
        };
        match kind {
            "sshfs" => Ok(Place::Sshfs(link)),
            "nfs" => Ok(Place::Nfs(link)),
            _ => Ok(Place::Emulated(text.parse().context("give sshfs, nfs or LATENCY,BANDWIDTH")?)),
        }
    }
}

/// Runs a command on a network filesystem; returns its exit code.
pub fn run(place: Place, command: &[OsString]) -> anyhow::Result<u8> {
    let program = &std::env::current_exe()?;
    match place {
        Place::Emulated(spec) => {
            let net = network_mount(program, spec, None)?;
            run_at(&net.ready.mount, command)
        }
        Place::Sshfs(link) => {
            let mount = sshfs::Mount::bring_up(program, link)?;
            run_at(&mount.mount_point(), command)
        }
        Place::Nfs(link) => nfs::run(link, command),
    }
}

/// Runs a command in a folder, and returns its exit code. Signals that would end this process end the
/// command.
fn run_at(folder: &Path, command: &[OsString]) -> anyhow::Result<u8> {
    let (program, arguments) = command.split_first().context("there is no command")?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let (handle, pid) = (signals.handle(), Pid::from_raw(child.id() as i32));
    let forwarder = std::thread::spawn(move || {
        for signal in signals.forever() {
            // An error means that it has ended.
            let _ = Signal::try_from(signal).and_then(|signal| kill(pid, signal));
        }
    });
    let status = child.wait()?;
    handle.close();
    forwarder.join().map_err(|_| anyhow::anyhow!("the thread for signals panicked"))?;
    Ok(exit_code(status.code()))
}

/// 1 for a command that a signal ended.
fn exit_code(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let link = Link { latency: Nanos::new(150e3), bandwidth: Rate::mb_per_second(100.0) };
        let place = |text: &str| text.parse::<Place>().unwrap();
        assert_eq!(place("sshfs"), Place::Sshfs(None));
        assert_eq!(place("nfs,150us,100MB/s"), Place::Nfs(Some(link)));
        let spec = "150us,100MB/s,policy=none";
        assert_eq!(place(spec), Place::Emulated(spec.parse().unwrap()));
        for bad in ["", "smb", "sshfs,", "nfs,1us", "sshfs,150us,100MB/s,policy=none"] {
            assert!(bad.parse::<Place>().is_err(), "{bad} was taken");
        }
    }
}
