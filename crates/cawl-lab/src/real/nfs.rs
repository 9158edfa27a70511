//! NFS, client and server in a machine of its own: user-mode-linux, whose loopback is slow by netem.
//!
//! The server's files lie in memory, so that the link is what costs.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::time::Duration;

use anyhow::Context;

use super::{Link, exit_code};
use crate::command;
use crate::uml::{Machine, quoted};

/// Most time for the machine, with the command.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs a command there, and passes on its output and exit code.
pub(super) fn run(link: Option<Link>, words: &[OsString]) -> anyhow::Result<u8> {
    let server = "nfs-kernel-server";
    let programs =
        [("rpc.nfsd", server), ("mount.nfs", "nfs-common"), ("modprobe", "kmod"), ("tc", "iproute2")];
    command::need(&programs)?;
    let out = tempfile::tempdir()?;
    let words: Vec<_> = words.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    fs::write(out.path().join("command"), words.join(" "))?;
    // A delay in each direction. A bit more than a packet fits into a millisecond's worth of the link.
    let delay = link.map_or_else(String::new, |link| {
        let (micros, bits) = (link.latency.get() / 2e3, link.bandwidth.get() * 8.0);
        format!("delay {micros}us rate {bits}bit limit 100000")
    });
    let path = std::env::var("PATH").unwrap_or_default();
    let script = format!("delay={}\npath={}\n{}", quoted(&delay), quoted(&path), include_str!("nfs.sh"));
    Machine { out: out.path(), script: &script, disk: None, patience: PATIENCE }.boot()?;
    let left = |name: &str| fs::read(out.path().join(name));
    let log = left("log").unwrap_or_default();
    let code = left("code").map_err(|_| anyhow::anyhow!("{}", String::from_utf8_lossy(&log)));
    let code = code.context("user-mode-linux did not run the command; its log")?;
    std::io::stdout().write_all(&left("stdout")?)?;
    std::io::stderr().write_all(&left("stderr")?)?;
    Ok(exit_code(String::from_utf8_lossy(&code).trim().parse().ok()))
}
