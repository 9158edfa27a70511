//! `cawl-lab tune` on emulated disks: what its tree chooses by the model is nearly the fastest.

use serde_json::Value;

use super::calibrate::calibrate;
use super::{Bench, Figure};
use crate::command::run;
use crate::{DiskSpec, Filesystem};

/// What a tree may lose, or else the noise floor.
const MAY_LOSE: f64 = 0.1;

/// Patterns drawn by lot, written with the choice of the tree and with other settings.
pub(super) fn choices(bench: &Bench, spec: DiskSpec) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    calibrate(bench, &disk.ready.mount, home.path(), &["--quick", "--max-seconds=14", "--max-bytes=1G"])?;
    let place = disk.ready.mount.to_string_lossy();
    let arguments = ["tune", "--verify", "20", "--json", "--dir", &place];
    let told = run(&mut bench.command(&bench.lab, home.path(), &disk.ready.mount, arguments))?;
    let found: Value = serde_json::from_str(&told)?;
    let number = |name: &str| found["verified"][name].as_f64().unwrap_or(f64::NAN);
    let (what, reached) = ("the tree's choices reach of the fastest", 1.0 - number("regret"));
    Ok(vec![Figure::new(what, 1.0, reached, 0.0, MAY_LOSE.max(number("floor")))])
}
