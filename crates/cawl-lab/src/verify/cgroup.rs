//! Writers in control groups, under a kernel of their own: user-mode-linux, with cgroup v2 whatever this
//! machine has. Its root is this machine's, its disk an image; nothing is changed here.
//!
//! io.max makes the disk slow, so that writers are throttled by their group's dirty limits, which the kernel
//! tells nobody. What they are follows from the group's dirty level: throttled writers fill it to the hard
//! limit, since the requests that io.max holds back are under writeback.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use cawl_core::{Analysis, HostProfile, Mode, Record};
use cawl_wire::{Event, flag};
use serde_json::Value;

use super::traces::recorded;
use super::{Bench, Figure};
use crate::uml::{self, Machine};

/// Most time for the machine, in which it boots, calibrates, writes and stops.
const PATIENCE: Duration = Duration::from_secs(240);
/// Bytes of the disk's image.
const DISK: u64 = 3 << 30;

/// A writer in a group of its own.
struct Writer {
    group: &'static str,
    /// memory.max.
    memory: &'static str,
    /// Bytes a second to the disk, by io.max.
    rate: u64,
    program: &'static str,
}

const DD: &str = "dd if=/dev/zero of=NAME bs=64k count=3200 status=none";

/// One writer, throttled by its group.
pub(super) fn one(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    measure(bench, &[Writer { group: "a", memory: "128M", rate: 20 << 20, program: DD }])
}

/// Two groups beside each other, of which one has twice the memory and half the rate.
pub(super) fn two(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let small = Writer { group: "small", memory: "128M", rate: 20 << 20, program: DD };
    let large = Writer { group: "large", memory: "256M", rate: 10 << 20, program: DD };
    measure(bench, &[small, large])
}

fn measure(bench: &Bench, writers: &[Writer]) -> anyhow::Result<Vec<Figure>> {
    let out = tempfile::tempdir()?;
    let each = |line: fn(&Writer) -> String| writers.iter().map(line).collect::<String>();
    let work = each(|writer| format!("group {} {} {}\n", writer.group, writer.memory, writer.rate))
        + &each(|writer| {
            format!("run {} {} &\n", writer.group, writer.program.replace("NAME", writer.group))
        })
        + "wait\n";
    fs::write(out.path().join("work"), work)?;
    let cli = uml::quoted(&bench.cli.to_string_lossy());
    let script = format!("cli={cli}\n{}", include_str!("cgroup.sh"));
    let image = out.path().join("image");
    uml::image(&image, DISK)?;
    Machine { disk: Some(&image), ..Machine::new(out.path(), &script, PATIENCE) }.boot()?;
    let log = fs::read_to_string(out.path().join("log")).unwrap_or_default();
    ensure!(log.lines().any(|line| line == "done"), "user-mode-linux did not end its work: {log}");
    if let Some(folder) = bench.recordings()? {
        for writer in writers {
            let name = format!("cgroup-{}.cawl", writer.group);
            fs::copy(out.path().join(format!("{}.cawl", writer.group)), folder.join(name))?;
        }
    }
    let mut figures = Vec::new();
    for writer in writers {
        figures.extend(judge(out.path(), writer.group)?);
    }
    Ok(figures)
}

/// A writer's group against what `cawl-cli run` made of it.
fn judge(out: &Path, group: &str) -> anyhow::Result<Vec<Figure>> {
    let file = |kind: &str| out.join(format!("{group}.{kind}"));
    let replayed = Replayed::of(&file("cawl"), |_| ())?;
    let limits = replayed.profile.kernel.cgroup.context("the run found no limits of its group")?;
    let levels = fs::read_to_string(file("levels")).context("the levels")?;
    let highest = levels.lines().filter_map(level).max().unwrap_or(0) as f64;
    let report: Value = serde_json::from_slice(&fs::read(file("json")).context("the report")?)?;
    let model = &report["models"][0];
    let of_report = |figure: &Value| figure.as_f64().unwrap_or(f64::NAN) / replayed.observed;
    let ratio = |what: &str, found: f64, tolerance: f64| {
        Figure::new(format!("{group}: {what}"), 1.0, found, tolerance, 0.0)
    };
    Ok(vec![
        ratio("highest dirty level / hard limit", highest / limits.hard.as_f64(), 0.1),
        ratio("predicted live / observed", of_report(&model["predicted_s"]), 0.15),
        ratio("predicted as calibrated / observed", of_report(&model["calibrated"]["predicted_s"]), 0.15),
        ratio("predicted in open loop / observed", replayed.predicted / replayed.observed, 0.15),
    ])
}

/// A run by the kernel model alone, in open loop.
pub struct Replayed {
    /// What its models went by.
    pub profile: HostProfile,
    /// Time of all calls together, in seconds.
    pub observed: f64,
    /// Time of all calls together by the model, in seconds.
    pub predicted: f64,
}

impl Replayed {
    /// The run of a trace, with a changed profile.
    pub fn of(trace: &Path, change: impl FnOnce(&mut HostProfile)) -> anyhow::Result<Replayed> {
        let (records, mut profile) = recorded(trace)?;
        change(&mut profile);
        let mut analysis = Analysis::new(&profile, &["kernel".to_owned()], Mode::OpenLoop)?;
        for record in &records {
            match record {
                // The recording is of before this flag; its file is new.
                Record::Event(event) if event.has(flag::TRUNC) => {
                    analysis.take(&Record::Event(Event { flags: event.flags | flag::CREATED, ..*event }))
                }
                record => analysis.take(record),
            };
        }
        let report = analysis.report();
        let model = report.models.first().context("no model")?;
        Ok(Replayed { profile, observed: model.observed_s, predicted: model.predicted_s })
    }
}

/// Dirty and under writeback, in bytes, from a line of figures.
fn level(line: &str) -> Option<u64> {
    let figures = line.split(' ').filter_map(|figure| figure.strip_prefix("file_")?.split_once('='));
    figures.map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
}
