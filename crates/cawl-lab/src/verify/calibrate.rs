//! `cawl-cli calibrate` on emulated disks: it finds what they were told to be, and the profile holds.

use std::path::Path;

use anyhow::ensure;
use serde_json::Value;

use super::{Bench, Figure};
use crate::{DiskSpec, Filesystem};

/// A calibration of `folder`, whose profile goes to `home`.
pub(super) fn calibrate(
    bench: &Bench,
    folder: &Path,
    home: &Path,
    options: &[&str],
) -> anyhow::Result<String> {
    let place = folder.to_string_lossy();
    bench.cawl(home, folder, ["calibrate", &place].iter().chain(options))
}

/// The constants of a disk as `calibrate` finds them.
pub(super) fn constants(bench: &Bench, spec: DiskSpec) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    let slack = 2.0 * disk.ready.floor.get() / 1e3;
    let options = ["--quick", "--max-seconds=14", "--max-bytes=1G", "--lower-limits", "--json"];
    let found = calibrate(bench, &disk.ready.mount, home.path(), &options)?;
    let found: Value = serde_json::from_str(&found)?;
    let (device, extra) = (&found["profile"]["device"], &found["extra"]);
    let rate = |what: &str, figure: &Value, target: f64, part: f64| {
        let found = figure["value"].as_f64().unwrap_or(f64::NAN);
        Figure::new(format!("{what}, MB/s"), target / 1e6, found / 1e6, part, 0.0)
    };
    let span = |what: &str, figure: &Value, target: f64| {
        let found = figure["value"].as_f64().unwrap_or(f64::NAN);
        Figure::new(format!("{what}, µs"), target / 1e3, found / 1e3, 0.1, slack)
    };
    let mut figures = vec![
        rate("write", &device["write"], spec.write.get(), 0.1),
        rate("transfer", &extra["transfer"], spec.write.get(), 0.1),
        rate("read", &device["read"], spec.read.get(), 0.1),
        span("latency", &extra["latency"], spec.latency.get()),
        span("flush", &extra["flush"], spec.flush.get()),
        // The rate of writeback is not that of the disk, but near it where the disk is slow. A disk of 2 GB/s
        // is emulated by the processors that also write back and copy.
        rate(
            "writeback",
            &device["writeback"],
            spec.write.get(),
            if spec == DiskSpec::NVME { 0.5 } else { 0.2 },
        ),
    ];
    if spec.seek.get() > 0.0 {
        figures.push(span("seek", &device["seek"], spec.seek.get()));
    }
    Ok(figures)
}

/// A profile is checked a moment after it was made.
pub(super) fn profile_holds(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let disk = bench.disk("ssd,size=2".parse()?, Filesystem::Ext4)?;
    let limits = ["--max-bytes=256M", "--max-seconds=6"];
    calibrate(bench, &disk.ready.mount, home.path(), &[&limits[..], &["--quick"]].concat())?;
    let place = disk.ready.mount.to_string_lossy();
    let again = ["calibrate", &place, limits[0], limits[1], "--check"];
    let check = bench.command(&bench.cli, home.path(), &disk.ready.mount, again).output()?;
    let has_changed = String::from_utf8_lossy(&check.stdout).contains("changed");
    ensure!(check.status.success() || has_changed, "{}", String::from_utf8_lossy(&check.stderr).trim());
    let found = if check.status.success() { 1.0 } else { 2.0 };
    Ok(vec![Figure::new("1: the profile holds, 2: it does not", 1.0, found, 0.0, 0.5)])
}
