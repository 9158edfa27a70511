//! Locks: figures 9 to 14 of "No such thing as a bad workload; only unsuitable system calls?" (002),
//! observed, with writes inside and outside the section, and with what each thread's time went to.
//!
//! The law: **a section computes.** The document's program sleeps where it says that it keeps the processor
//! busy: a section of 1 µs is a `usleep(1)`, which takes some 50 µs and no processor. Both are run here.

mod findings;
mod grid;
pub(super) mod inode;
mod measure;
mod tables;

use std::path::Path;

use anyhow::Context;
use cawl_core::{HostProfile, Nanos, median};
use cawl_host::output;
use cawl_measure::interrupt::Interrupted;
use serde::Serialize;
use serde_json::json;

use self::grid::{Cell, Grid, Io, Lock, SEED, Work};
use self::measure::{Division, FILE, Run, WRITE};
use super::calls::{self, Shown};
use super::{Bench, Section};

/// Repetitions, unless told otherwise.
const REPEATS: usize = 3;

/// Of a cell.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    /// Sections a second, of all threads: the median run.
    rate: f64,
    /// Processor time of a section, in seconds: the median run.
    processor: f64,
    /// Processors that the threads used, in the mean.
    processors: f64,
    /// The threads' time, as parts of it.
    shares: Division,
    /// A write, in seconds: observed, without waits for a processor, and predicted by `kernel`.
    write: Option<(f64, f64)>,
}

/// All cells.
#[derive(Debug)]
struct Outcomes {
    all: Vec<Outcome>,
    /// Processors of this machine.
    processors: u32,
}

impl Outcomes {
    fn of(&self, cell: Cell) -> Option<&Outcome> {
        self.all.iter().find(|one| one.cell == cell)
    }

    /// With each lock, in the order of the tables.
    fn each(&self, cell: Cell) -> Option<[&Outcome; 3]> {
        let [mutex, spin, adaptive] = Lock::ALL.map(|lock| self.of(Cell { lock, ..cell }));
        Some([mutex?, spin?, adaptive?])
    }
}

/// The time that the study takes, about.
pub(super) fn expected(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 20.0 } else { 170.0 })
}

/// Its section; fewer conditions if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    if !Path::new("/proc/thread-self/schedstat").exists() {
        let note = "locks: the kernel counts no run delay (CONFIG_SCHED_INFO), so it is told as lock";
        bench.notes.push(note.to_owned());
    }
    let grid = Grid::new(quick);
    let repeats = bench.repeats.unwrap_or(if quick { 1 } else { REPEATS });
    let order = grid.order(repeats);
    bench.progress.begin("locks: files to write to");
    measure::make_files(bench, grid.cells.iter().map(|cell| cell.threads).max().unwrap_or(0))?;
    let mut runs = Vec::with_capacity(order.len());
    for (at, cell) in order.iter().enumerate() {
        Interrupted::by(bench.signal)?;
        let (threads, lock) = (cell.threads, cell.lock.name());
        let what = format!("{threads} threads, {lock}, sections of {} µs", cell.section);
        bench.progress.begin(format!("locks, run {} of {}: {what}", at + 1, order.len()));
        runs.push(measure::run(bench.scratch, *cell, grid.length)?);
    }
    let file = bench.out.join("locks.csv");
    output::write(&file, output::FOR_ALL, csv(&runs))
        .with_context(|| format!("cannot write {}", file.display()))?;
    let predicted = predicted_write(bench.profile)?;
    let all = grid.cells.iter().map(|cell| outcome(*cell, &runs, predicted)).collect();
    let outcomes = Outcomes { all, processors: cawl_host::facts().cpus };
    let text = vec![
        format!(
            "Threads take a lock, stay in a section and outside of it, and are each bound to a processor, in turn. \
             This machine has {}. Throughput is that of the median of {repeats} runs of {} ms in a random order. Other \
             programs' work is in these figures: a thread that holds the lock and loses its processor keeps all \
             others waiting.",
            match outcomes.processors {
                1 => "one processor".to_owned(),
                processors => format!("{processors} processors"),
            },
            grid.length
        ),
        "A thread's time is divided into writes, the lock, waiting for a processor (run delay, from the kernel's \
         schedstat, looked at after each turn that took 50 µs longer than it should), computing and sleeping. What is \
         left are clocks and counting."
            .to_owned(),
        "A write is one of 64 KiB over a cached file of the thread's own.".to_owned(),
    ];
    Ok(Section {
        name: "locks",
        title: "Mutex, spin lock and adaptive mutex".to_owned(),
        text,
        tables: tables::all(&outcomes),
        pictures: tables::pictures(&outcomes)?,
        findings: findings::all(&outcomes),
        data: json!({ "seed": SEED, "repeats": repeats, "outcomes": outcomes.all, "runs": runs }),
    })
}

fn outcome(cell: Cell, runs: &[Run], predicted: f64) -> Outcome {
    let its: Vec<&Run> = runs.iter().filter(|run| run.cell == cell).collect();
    let of = |each: fn(&Run) -> f64| {
        let values: Vec<f64> = its.iter().map(|run| each(run)).collect();
        median(&values).unwrap_or(f64::NAN)
    };
    let sum = |each: fn(&Run) -> f64| its.iter().map(|run| each(run)).sum::<f64>();
    let mut shares = Division::default();
    its.iter().for_each(|run| shares.add(&run.division()));
    let writes = sum(|run| run.sections() as f64);
    let write = (cell.io != Io::None && writes > 0.0).then(|| (shares.io / writes, predicted));
    let whole = shares.parts().iter().sum::<f64>();
    Outcome {
        cell,
        rate: of(|run| run.sections() as f64 / run.wall),
        processor: of(|run| run.processor / run.sections() as f64),
        processors: sum(|run| run.processor) / sum(|run| run.wall),
        shares: shares.over(whole),
        write,
    }
}

/// What a write over a cached file takes by the kernel model, in seconds.
fn predicted_write(profile: &HostProfile) -> anyhow::Result<f64> {
    let mut shown = Shown::to("kernel", profile)?;
    shown.fill(FILE, FILE, 0);
    shown.sync();
    let places = (0..FILE).step_by(WRITE as usize);
    let costs = places.clone().chain(places).map(|at| shown.step(calls::write(at, WRITE, 0)) * 1e-9);
    median(&costs.collect::<Vec<f64>>()).context("there are no writes")
}

/// The runs as a table, in their order.
fn csv(runs: &[Run]) -> String {
    let mut text =
        "threads,lock,work,section_us,outside,outside_us,io,wall_s,sections,processor_s,io_s,lock_s,\
                    run_delay_s,computing_s,asleep_s,rest_s\n"
            .to_owned();
    for run in runs {
        let Cell { threads, lock, work, section, outside, time, io } = run.cell;
        let head = [
            threads.to_string(),
            lock.name().to_owned(),
            work.name().to_owned(),
            section.to_string(),
            outside.name().to_owned(),
            time.to_string(),
            io.name().to_owned(),
            format!("{:.9}", run.wall),
            run.sections().to_string(),
            format!("{:.9}", run.processor),
        ];
        let parts = run.division().parts().map(|part| format!("{part:.9}"));
        text += &head.into_iter().chain(parts).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    text
}

/// A condition without a write.
fn plain(threads: u32, section: u64, outside: (Work, u64)) -> Cell {
    let (outside, time) = outside;
    Cell { threads, lock: Lock::Mutex, work: Work::Computes, section, outside, time, io: Io::None }
}

/// Nothing is done outside the section.
const NOTHING: (Work, u64) = (Work::Computes, 0);
