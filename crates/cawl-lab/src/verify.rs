//! What only a machine with time to spare can show: `cawl-lab verify`.
//!
//! A check measures figures whose targets are known. It is repeated, and the median of each figure is judged:
//! `ok` within the tolerance, `slow` outside. A machine with other work shows `slow` figures, so they fail
//! nothing; they are for a reader. `broken` is what no load excuses: the check could not be carried out, or a
//! figure is no positive number.

mod calibrate;
pub mod causes;
pub mod cgroup;
mod disk;
mod elasticities;
pub mod memory;
mod net;
pub mod readers;
pub mod strangers;
pub mod traces;
mod tune;
pub mod writers;

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

use anyhow::{Context, ensure};
use cawl_core::{CachePolicy, quantile};
use serde::Serialize;

use crate::command::{Lacking, run};
use crate::emulated::Lab;
use crate::{DiskSpec, Filesystem, NetSpec, emulated_disk};

/// One measurement of one figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// What was measured, with its unit.
    pub what: String,
    /// What it should be.
    pub target: f64,
    /// How far the median may be from the target.
    pub tolerance: f64,
    /// What it is.
    pub found: f64,
}

impl Figure {
    /// A figure that may be off by a fraction of its target and by a fixed part.
    fn new(what: impl Into<String>, target: f64, found: f64, fraction: f64, fixed: f64) -> Figure {
        Figure { what: what.into(), target, tolerance: target * fraction + fixed, found }
    }
}

/// What checks are given.
pub struct Bench {
    /// The program `cawl-cli`.
    pub cli: PathBuf,
    /// The program `cawl-lab`: this one.
    pub lab: PathBuf,
    /// Where recordings are written that `cargo test` replays.
    pub record: Option<PathBuf>,
}

impl Bench {
    fn disk(&self, spec: DiskSpec, filesystem: Filesystem) -> anyhow::Result<Lab> {
        emulated_disk(&self.lab, spec, filesystem, None)
    }

    /// The folder for recordings, if they are wanted.
    fn recordings(&self) -> anyhow::Result<Option<&Path>> {
        self.record
            .as_deref()
            .map(|folder| fs::create_dir_all(folder).map(|()| folder))
            .transpose()
            .map_err(Into::into)
    }

    /// A program of ours in a folder, with its data in `home`.
    fn command(
        &self,
        program: &Path,
        home: &Path,
        folder: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).env("XDG_DATA_HOME", home).env("HOME", home);
        command.stdin(Stdio::null());
        command
    }

    /// What `cawl-cli` prints, run like that.
    fn cawl(
        &self,
        home: &Path,
        folder: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<String> {
        run(&mut self.command(&self.cli, home, folder, arguments))
    }
}

/// What a machine lacks on which the kernel's tracepoints cannot be listened to.
fn no_tracing() -> Lacking {
    Lacking("no tracing; mount -t tracefs tracefs /sys/kernel/tracing".to_owned())
}

/// The number of a block device.
fn device_number(device: &Path) -> anyhow::Result<u64> {
    Ok(fs::metadata(device)?.rdev())
}

/// A check by its name.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    /// Carried out in a brief verification too.
    brief: bool,
    measure: Measure,
}

#[derive(Clone, Copy)]
enum Measure {
    By(fn(&Bench) -> anyhow::Result<Vec<Figure>>),
    Causes(&'static causes::Run),
}

const fn check(name: &'static str, brief: bool, measure: fn(&Bench) -> anyhow::Result<Vec<Figure>>) -> Check {
    Check { name, brief, measure: Measure::By(measure) }
}

/// All checks.
fn checks() -> impl Iterator<Item = Check> {
    let of_run =
        |run: &'static causes::Run| Check { name: run.name, brief: false, measure: Measure::Causes(run) };
    CHECKS.iter().copied().chain(causes::RUNS.iter().map(of_run))
}

const CHECKS: &[Check] = &[
    check("disk-ssd", true, |bench| disk::constants(bench, DiskSpec::SSD)),
    check("disk-hdd", false, |bench| disk::constants(bench, DiskSpec::HDD)),
    check("disk-nvme", false, |bench| disk::constants(bench, DiskSpec::NVME)),
    check("disk-custom", false, |bench| disk::constants(bench, "250,400,3,2,read=300".parse()?)),
    check("queue", true, disk::queue),
    check("net-none", false, |bench| of_link(bench, CachePolicy::None, "150us")),
    check("net-read-only", false, |bench| of_link(bench, CachePolicy::ReadOnly, "150us")),
    check("net-write-through", false, |bench| of_link(bench, CachePolicy::WriteThrough, "150us")),
    check("net-write-back", true, |bench| of_link(bench, CachePolicy::WriteBack, "150us")),
    check("net-near", false, |bench| of_link(bench, CachePolicy::None, "15us")),
    check("net-far", false, |bench| of_link(bench, CachePolicy::WriteThrough, "10ms")),
    check("net-close", false, net::close_flushes),
    check("net-queue", false, net::queue),
    check("calibrate-ssd", true, |bench| calibrate::constants(bench, DiskSpec::SSD)),
    check("calibrate-hdd", false, |bench| calibrate::constants(bench, DiskSpec::HDD)),
    check("calibrate-nvme", false, |bench| calibrate::constants(bench, DiskSpec::NVME)),
    check("profile-holds", false, calibrate::profile_holds),
    check("tune-ssd", false, |bench| tune::choices(bench, DiskSpec::SSD)),
    check("tune-hdd", false, |bench| tune::choices(bench, DiskSpec::HDD)),
    check("writers-4", true, |bench| writers::share_a_disk(bench, 4, false)),
    check("writers-8", false, |bench| writers::share_a_disk(bench, 8, false)),
    check("writers-one-file", false, |bench| writers::share_a_disk(bench, 4, true)),
    check("two-disks", false, writers::two_disks),
    check("strict-disk", false, writers::strict_disk),
    check("readers-ssd", false, |bench| readers::programs(bench, &readers::SSD)),
    check("readers-hdd", false, |bench| readers::programs(bench, &readers::HDD)),
    check("beside-ssd", false, |bench| readers::beside_a_writer(bench, &readers::SSD)),
    check("beside-hdd", false, |bench| readers::beside_a_writer(bench, &readers::HDD)),
    check("cgroup-one", false, cgroup::one),
    check("cgroup-two", false, cgroup::two),
    check("memory", false, memory::group),
    check("elasticities-writer", false, |bench| elasticities::WRITER.figures(bench)),
    check("elasticities-syncs", false, |bench| elasticities::programs(bench, elasticities::SYNCS)),
    check("elasticities-reads", false, |bench| elasticities::programs(bench, elasticities::READS)),
];

fn of_link(bench: &Bench, policy: CachePolicy, latency: &str) -> anyhow::Result<Vec<Figure>> {
    net::constants(bench, NetSpec { policy, ..net::fast(latency)? })
}

/// What became of a figure or of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within its tolerance.
    Ok,
    /// Outside: look, but nothing fails.
    Slow,
    /// Not carried out, or no figure.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Slow => "slow",
            Verdict::Broken => "BROKEN",
        })
    }
}

/// A figure over all repeats of its check.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The check.
    pub check: &'static str,
    /// What was measured; of a broken check: why.
    pub what: String,
    /// What the median should be.
    pub target: f64,
    /// How far it may be from that.
    pub tolerance: f64,
    /// What was found, in order.
    pub found: Vec<f64>,
    /// The judgement.
    pub verdict: Verdict,
}

impl Row {
    fn of(check: &'static str, figures: &[Figure]) -> Row {
        let first = &figures[0];
        let median = |of: fn(&Figure) -> f64| median(&figures.iter().map(of).collect::<Vec<_>>());
        let (target, tolerance) = (median(|figure| figure.target), median(|figure| figure.tolerance));
        let found: Vec<f64> = figures.iter().map(|figure| figure.found).collect();
        let is_figure = found.iter().all(|value| value.is_finite() && *value > 0.0);
        let verdict = match median(|figure| figure.found) {
            _ if !is_figure => Verdict::Broken,
            middle if (middle - target).abs() <= tolerance => Verdict::Ok,
            _ => Verdict::Slow,
        };
        Row { check, what: first.what.clone(), target, tolerance, found, verdict }
    }

    fn broken(check: &'static str, error: &anyhow::Error) -> Row {
        let what = format!("{error:#}").replace('\n', "; ");
        Row { check, what, target: 0.0, tolerance: 0.0, found: Vec::new(), verdict: Verdict::Broken }
    }

    /// The row as a line of a Markdown table.
    pub fn line(&self) -> String {
        let all = self.found.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" ");
        format!(
            "| {} | {} | {} ± {} | {} | {all} | {} |",
            self.check,
            self.what,
            short(self.target),
            short(self.tolerance),
            short(median(&self.found)),
            self.verdict
        )
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5).unwrap_or(f64::NAN)
}

/// A number in four digits.
fn short(value: f64) -> String {
    let digits = (3.0 - value.abs().max(1e-3).log10().floor()).clamp(0.0, 4.0) as usize;
    format!("{value:.digits$}")
}

/// Above the lines of a table.
pub const HEADER: &str = "| check | figure | target | median | all | verdict |\n|---|---|---:|---:|---|---|";

/// Names of all checks.
pub fn names() -> Vec<&'static str> {
    checks().map(|check| check.name).collect()
}

/// The checks whose names begin like one of these, or all; an error names one that begins none.
pub fn chosen(names: &[String], brief: bool) -> anyhow::Result<Vec<&'static str>> {
    for name in names {
        let known = checks().any(|check| check.name.starts_with(name.as_str()));
        ensure!(known, "no check is called {name}; there are {}", self::names().join(", "));
    }
    let is_chosen = |check: &Check| match names {
        [] => check.brief || !brief,
        names => names.iter().any(|name| check.name.starts_with(name.as_str())),
    };
    Ok(checks().filter(is_chosen).map(|check| check.name).collect())
}

/// Carries a check out some times; a row for each figure, none if this machine lacks something for it.
pub fn verify(bench: &Bench, name: &str, repeats: usize) -> anyhow::Result<Vec<Row>> {
    let check = checks().find(|check| check.name == name).context("no such check")?;
    let mut kinds: Vec<Vec<Figure>> = Vec::new();
    for _ in 0..repeats {
        let measured = match check.measure {
            Measure::By(measure) => measure(bench),
            Measure::Causes(run) => causes::measure(bench, run),
        };
        match measured {
            Ok(figures) => {
                for figure in figures {
                    match kinds.iter_mut().find(|kind| kind[0].what == figure.what) {
                        Some(kind) => kind.push(figure),
                        None => kinds.push(vec![figure]),
                    }
                }
            }
            Err(error) if error.is::<Lacking>() => {
                eprintln!("SKIPPED: {name}: {error}");
                return Ok(Vec::new());
            }
            Err(error) => return Ok(vec![Row::broken(check.name, &error)]),
        }
    }
    Ok(kinds.iter().map(|kind| Row::of(check.name, kind)).collect())
}

/// Builds `cawl-cli` where cargo built this program, with the same profile; without cargo it must lie there.
pub fn command_line(lab: &Path) -> anyhow::Result<PathBuf> {
    let folder = lab.parent().context("a program lies in a folder")?;
    if let Some(cargo) = std::env::var_os("CARGO") {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("release");
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "-p", "cawl-cli", "--profile"]);
        build.arg(if name == "debug" { "dev" } else { name }).arg("--target-dir");
        build.arg(folder.parent().context("a profile's folder lies in the target directory")?);
        let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().context("cannot run cargo")?;
        ensure!(status.success(), "cawl-cli did not build");
    }
    let cli = folder.join("cawl-cli");
    ensure!(cli.is_file(), "there is no cawl-cli beside {}", lab.display());
    Ok(cli)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(found: &[f64]) -> Row {
        let figure = |found: &f64| Figure::new("rate", 100.0, *found, 0.1, 0.0);
        Row::of("disk", &found.iter().map(figure).collect::<Vec<_>>())
    }

    #[test]
    fn medians_are_judged() {
        assert_eq!(row(&[95.0, 300.0, 91.0]).verdict, Verdict::Ok);
        assert_eq!(row(&[95.0, 300.0, 130.0]).verdict, Verdict::Slow);
        assert_eq!(row(&[95.0, 0.0, 100.0]).verdict, Verdict::Broken);
        assert_eq!(row(&[f64::NAN]).verdict, Verdict::Broken);
        let line = row(&[95.0, 300.0, 91.0]).line();
        assert_eq!(line, "| disk | rate | 100.0 ± 10.00 | 95.00 | 95.00 300.0 91.00 | ok |");
    }

    #[test]
    fn checks_are_chosen_by_the_beginnings_of_their_names() {
        assert_eq!(chosen(&[], false).unwrap(), names());
        assert!(chosen(&[], true).unwrap().len() < 6);
        let disks = chosen(&["disk".to_owned()], false).unwrap();
        assert_eq!(disks, ["disk-ssd", "disk-hdd", "disk-nvme", "disk-custom"]);
        assert!(chosen(&["tape".to_owned()], false).unwrap_err().to_string().contains("writers-8"));
    }
}
