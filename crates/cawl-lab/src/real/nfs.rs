//! NFS, client and server in a machine of its own: user-mode-linux, whose loopback is slow by netem.
//!
//! The server's files lie in memory, so that the link is what costs.

use std::ffi::OsString;
use std::fs;
use std::time::Duration;

use super::Link;
use crate::command;
use crate::uml::{Machine, command_line, quoted};

/// Most time for the machine, with the command.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs a command there, and passes on its output and exit code.
pub(super) fn run(link: Option<Link>, words: &[OsString]) -> anyhow::Result<u8> {
    let server = "nfs-kernel-server";
    let programs =
        [("rpc.nfsd", server), ("mount.nfs", "nfs-common"), ("modprobe", "kmod"), ("tc", "iproute2")];
    command::need(&programs)?;
    let out = tempfile::tempdir()?;
    fs::write(out.path().join("command"), command_line(words))?;
    // A delay in each direction. A bit more than a packet fits into a millisecond's worth of the link.
    let delay = link.map_or_else(String::new, |link| {
        let (micros, bits) = (link.latency.get() / 2e3, link.bandwidth.get() * 8.0);
        format!("delay {micros}us rate {bits}bit limit 100000")
    });
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("delay={}\npath={}\n{}", quoted(&delay), quoted(&path), include_str!("nfs.sh"));
    let machine = Machine::new(out.path(), &script, PATIENCE);
    machine.boot()?;
    machine.pass_on()
}
