//! The emulated disk or network mount of an experiment.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};
use cawl_host::emulated::Lab;

const PROGRAM: &str = "cawl-lab";

/// What is emulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// A disk: `ssd`, `hdd`, `nvme` or `BW,LAT,SEEK,FLUSH`.
    Disk,
    /// A network mount: `LATENCY,BANDWIDTH`, then `policy=` and `request=`.
    Network,
}

/// Starts one.
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
    Lab::start(&find()?, &[kind, spec])
}

/// The program beside this one, or in PATH.
fn find() -> anyhow::Result<PathBuf> {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    let paths = env::var_os("PATH").unwrap_or_default();
    let known = beside.into_iter().chain(env::split_paths(&paths).map(|folder| folder.join(PROGRAM)));
    known.into_iter().find(|path| path.is_file()).context(
        "an emulated disk or mount needs the program cawl-lab beside cawl-cli or in PATH; build it with `cargo build --release -p \
         cawl-lab` and put it there",
    )
}
