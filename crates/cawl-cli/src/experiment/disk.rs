//! The emulated disk of an experiment.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, bail};
use cawl_host::emulated::Lab;

const PROGRAM: &str = "cawl-lab";

/// Starts a disk: `ssd`, `hdd`, `nvme` or `BW,LAT,SEEK,FLUSH`.
pub fn bring_up(spec: &str) -> anyhow::Result<Lab> {
    if !nix::unistd::geteuid().is_root() {
        bail!("an emulated disk needs root; without --disk, experiments run on a disk you have");
    }
    Lab::start(&find()?, &["--disk", spec])
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
