//! What `whatif --sensitivity` says of a part of the machine, and what programs really do on emulated disks
//! where that part is another one.
//!
//! The rule: the elasticity of the time in calls, by how many percent it changes where the part is one
//! percent larger, is within a fifth of what is measured, or within 0.05. It is measured where the part is
//! [`FACTOR`] times as large and as small, in pairs of runs that take turns.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use cawl_core::{Bytes, Part};
use cawl_host::tracefs::Instance;
use serde_json::Value;

use super::calibrate::calibrate;
use super::readers::run_cold;
use super::writers::listen;
use super::{Bench, Figure, median};
use crate::command::run;
use crate::emulated::Lab;
use crate::{DiskSpec, Filesystem, lowered_limits};

/// How much larger and smaller a part is than where its elasticity was predicted.
const FACTOR: f64 = 1.3;
/// Pairs of runs for each part, after one that is not counted.
const PAIRS: usize = 5;
/// Which disk, or limit, has its turn for two runs that are held back: the kernel's rate and limits follow
/// what a disk writes in seconds, and a disk's part of the limits follows what the others write.
const BLOCKS: [usize; 4] = [0, 1, 1, 0];
/// Writes before such runs.
const SETTLING: usize = 4;
/// Runs that are traced for the prediction.
const TRACED: usize = 3;

/// The dirty limits of the programs that are held back.
const LIMITS: (Bytes, Bytes) = (Bytes::mib(48), Bytes::mib(96));

const PREPARE: &str = "head -c 200M /dev/zero > big; sync";
/// Keeps a disk busy for some seconds.
const BUSY: &str = "dd if=/dev/zero of=out bs=1M count=400 status=none";

/// A program, its disk, and what it depends on.
pub(super) struct Program {
    name: &'static str,
    disk: &'static str,
    /// Called in a folder with the file `big`.
    command: &'static str,
    /// Under lowered limits.
    limits: bool,
    parts: &'static [Part],
}

/// Slow enough that a processor that others use, too, hardly counts.
const SSD: &str = "150,500,0,4,size=1";
const HDD: &str = "150,500,6,8,size=1";

const fn of(
    name: &'static str,
    disk: &'static str,
    command: &'static str,
    parts: &'static [Part],
) -> Program {
    Program { name, disk, command, limits: false, parts }
}

use Part::{Bandwidth, Flush, Latency, Limits};

pub(super) const WRITER: Program =
    Program { limits: true, ..of("dd, held back", SSD, BUSY, &[Bandwidth, Limits]) };
pub(super) const SYNCS: &[Program] = &[
    of(
        "dd of O_DSYNC",
        SSD,
        "dd if=/dev/zero of=out bs=256k count=150 oflag=dsync status=none",
        &[Bandwidth, Latency, Flush],
    ),
    of("sqlite", SSD, SQLITE, &[Bandwidth, Latency, Flush]),
    of(
        "dd of O_DSYNC, hdd",
        HDD,
        "dd if=/dev/zero of=out bs=256k count=60 oflag=dsync status=none",
        &[Bandwidth, Latency, Flush],
    ),
];
pub(super) const READS: &[Program] = &[
    of("dd, reading", SSD, "dd if=big of=/dev/null bs=1M status=none", &[Bandwidth, Latency]),
    of("random reads", SSD, "LAB read big --block 65536 --calls 1500", &[Bandwidth, Latency]),
    of("random reads, hdd", HDD, "LAB read big --block 65536 --calls 250", &[Bandwidth, Latency]),
];

/// Transactions of a row each.
const SQLITE: &str = "{ echo 'create table t(a, b);'; for i in $(seq 60); do \
                      echo \"insert into t values($i, hex(randomblob(2000)));\"; done; } | sqlite3 out";

/// Programs with fsync and O_DSYNC, or that read.
pub(super) fn programs(bench: &Bench, programs: &[Program]) -> anyhow::Result<Vec<Figure>> {
    let figures: Vec<_> = programs.iter().map(|program| program.figures(bench)).collect::<Result<_, _>>()?;
    Ok(figures.concat())
}

/// Time in calls and elapsed, in seconds.
type Times = [f64; 2];

impl Program {
    pub(super) fn figures(&self, bench: &Bench) -> anyhow::Result<Vec<Figure>> {
        if self.command == SQLITE && run(Command::new("sqlite3").arg("--version")).is_err() {
            eprintln!("SKIPPED: {}: sqlite3 is not installed", self.name);
            return Ok(Vec::new());
        }
        let home = tempfile::tempdir()?;
        let home = home.path();
        let spec: DiskSpec = self.disk.parse()?;
        let disk = prepared(bench, spec)?;
        let profile = home.join("profile.toml").display().to_string();
        let mut options = vec!["--quick", "--max-seconds=14", "--max-bytes=500M", "--output", &profile];
        options.extend(self.limits.then_some("--lower-limits"));
        calibrate(bench, &disk.ready.mount, home, &options)?;
        let limits = self.limits.then(|| settled(bench, &disk, 1.0)).transpose()?;
        let mut told = Vec::new();
        for _ in 0..TRACED {
            self.times(bench, home, &disk)?;
            let trace = home.join("trace").display().to_string();
            let said = bench.cawl(home, home, ["whatif", &trace, "--sensitivity", "--json"])?;
            told.push(serde_json::from_str::<Value>(&said)?);
        }
        let mut figures = Vec::new();
        for part in self.parts.iter().filter(|part| **part != Limits) {
            let disks = [FACTOR, 1.0 / FACTOR].map(|factor| prepared(bench, scaled(spec, *part, factor)));
            let [large, small] = disks;
            let disks = [large?, small?];
            let mut runs = [Vec::new(), Vec::new()];
            if self.limits {
                for half in BLOCKS {
                    for _ in 0..SETTLING {
                        busy(&disks[half])?;
                    }
                    self.block(bench, home, &disks[half], &mut runs[half])?;
                }
            } else {
                for turn in 0..=PAIRS {
                    for half in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
                        runs[half].push(self.times(bench, home, &disks[half])?);
                    }
                }
                // The first is not counted.
                runs = runs.map(|runs| runs[1..].to_vec());
            }
            figures.push(self.figure(*part, &told, runs)?);
        }
        drop(limits);
        if self.parts.contains(&Limits) {
            let mut runs = [Vec::new(), Vec::new()];
            for half in BLOCKS {
                let _limits = settled(bench, &disk, [FACTOR, 1.0 / FACTOR][half])?;
                self.block(bench, home, &disk, &mut runs[half])?;
            }
            figures.push(self.figure(Limits, &told, runs)?);
        }
        Ok(figures)
    }

    /// Runs that are held back, with nothing dirty elsewhere.
    fn block(&self, bench: &Bench, home: &Path, disk: &Lab, runs: &mut Vec<Times>) -> anyhow::Result<()> {
        run(&mut Command::new("sync"))?;
        for _ in 0..2 {
            runs.push(self.times(bench, home, disk)?);
        }
        Ok(())
    }

    /// A run, cold, traced as the one that the prediction is of.
    fn times(&self, bench: &Bench, home: &Path, disk: &Lab) -> anyhow::Result<Times> {
        let folder = &disk.ready.mount;
        // The first run finds none.
        drop(fs::remove_file(folder.join("out")));
        run_cold(bench, home, folder, self.command)?;
        let report: Value = serde_json::from_slice(&fs::read(home.join("report.json"))?)?;
        let times = [&report["models"][0]["observed_s"], &report["span_s"]];
        let times = times.map(|time| time.as_f64().unwrap_or(f64::NAN));
        ensure!(times.iter().all(|time| *time > 0.0), "{} took no time", self.name);
        Ok(times)
    }

    /// `runs`: where the part is larger, and where it is smaller.
    fn figure(&self, part: Part, told: &[Value], runs: [Vec<Times>; 2]) -> anyhow::Result<Figure> {
        let predicted = |figure: &str| {
            let of = |answer: &Value| {
                let parts = answer["parts"].as_array()?;
                parts.iter().find(|one| one["part"] == part.name())?[figure].as_f64()
            };
            let all: Vec<f64> = told.iter().filter_map(of).collect();
            ensure!(all.len() == told.len(), "{} has no elasticity of {}", self.name, part.name());
            Ok(median(&all))
        };
        let measured = |which: usize| -> Vec<f64> {
            let of =
                |(large, small): (&Times, &Times)| (large[which] / small[which]).ln() / (2.0 * FACTOR.ln());
            runs[0].iter().zip(&runs[1]).map(of).collect()
        };
        let [calls, elapsed] = [predicted("total")?, predicted("elapsed")?];
        let (name, part) = (self.name, part.name());
        let seen = measured(0);
        eprintln!(
            "{name}, {part}: in calls {calls:+.3}, measured {:+.3} ({seen:+.2?}); elapsed {elapsed:+.3}, {:+.3}",
            median(&seen),
            median(&measured(1)),
        );
        let tolerance = (0.2 * median(&seen).abs()).max(0.05);
        let off = (calls - median(&seen)).abs();
        let what = format!("{name}, {part}: 1 + |predicted − measured elasticity|");
        Ok(Figure { what, target: 1.0, tolerance, found: 1.0 + off })
    }
}

fn prepared(bench: &Bench, spec: DiskSpec) -> anyhow::Result<Lab> {
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    run(Command::new("sh").args(["-c", PREPARE]).current_dir(&disk.ready.mount))?;
    Ok(disk)
}

/// The disk with a part that is so many times as large.
fn scaled(mut spec: DiskSpec, part: Part, factor: f64) -> DiskSpec {
    match part {
        Bandwidth => (spec.write, spec.read) = (spec.write * factor, spec.read * factor),
        Latency => (spec.latency, spec.seek) = (spec.latency * factor, spec.seek * factor),
        Flush => spec.flush = spec.flush * factor,
        Part::Memory | Limits => {}
    }
    spec
}

fn busy(disk: &Lab) -> anyhow::Result<()> {
    run(Command::new("sh").args(["-c", BUSY]).current_dir(&disk.ready.mount)).map(drop)
}

/// Lowered limits, after the kernel's own hard limit has followed them, which takes it some 20 s of writing
/// (`update_dirty_limit`, mm/page-writeback.c).
fn settled(bench: &Bench, disk: &Lab, factor: f64) -> anyhow::Result<Lab> {
    let [background, hard] = [LIMITS.0, LIMITS.1].map(|limit| Bytes::from_f64(limit.as_f64() * factor));
    let trace = listen()?;
    let limits = lowered_limits(&bench.lab, background, hard)?;
    for _ in 0..30 {
        drop(trace.take()?);
        busy(disk)?;
        if last_limit(&trace)? <= hard.as_f64() * 1.03 {
            return Ok(limits);
        }
    }
    anyhow::bail!("the kernel's limit did not follow the lowered one in 30 writes")
}

/// The dirty limit of the kernel's latest throttling (`balance_dirty_pages`), in bytes.
fn last_limit(trace: &Instance) -> anyhow::Result<f64> {
    let told = trace.take()?;
    let limit = |line: &str| {
        line.split_whitespace().find_map(|word| word.strip_prefix("limit=")?.parse::<f64>().ok())
    };
    Ok(told.lines().rev().find_map(limit).context("nobody was held back")? * 4096.0)
}
