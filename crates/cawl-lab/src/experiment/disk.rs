//! The emulated disk or network mount of an experiment.

use crate::emulated::Lab;
use anyhow::bail;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// A disk: `ssd`, `hdd`, `nvme` or `BW,LAT,SEEK,FLUSH`.
    Disk,
    /// A network mount: `LATENCY,BANDWIDTH`, then `policy=` and `request=`.
    Network,
}

/// Starts one, in a process of this program of its own.
pub fn bring_up(what: Emulated, spec: &str) -> anyhow::Result<Lab> {
    if !nix::unistd::geteuid().is_root() {
        match what {
            Emulated::Disk => {
                bail!("an emulated disk needs root; without --disk, experiments run on a disk you have")
            }
            Emulated::Network => {
                bail!("an emulated network mount needs root; with --path, the study runs on a mount you have")
            }
        }
    }
    let kind = if what == Emulated::Disk { "--disk" } else { "--net" };
    Lab::start(&std::env::current_exe()?, &[kind, spec])
}
