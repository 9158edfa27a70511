//! The lock of an inode: threads that write to one file, and to files of their own, observed, and predicted
//! by `kernel` with the lock and without it.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::Context;
use cawl_core::{Analysis, Bytes, Cause, HostProfile, Mode, Nanos, Record, RunDelay, Time};
use cawl_wire::{Event, Op, flag};
use nix::fcntl::OFlag;
use serde::Serialize;
use serde_json::json;

use super::super::calls::{PIECE, call, write};
use super::super::{Bench, Made, Section, Study, Table, make};
use super::program::{self, Call};
use super::tables::micros;

/// Writes of a thread before it begins again, where it writes over its part of the file.
const REGION: u64 = 4;
/// Model thread of the first writer; the file is made by another one.
const FIRST: u32 = 2;

/// How threads write.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Kind {
    name: &'static str,
    bytes: u64,
    appends: bool,
    direct: bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "overwrite", bytes: 1 << 20, appends: false, direct: false },
    Kind { name: "append", bytes: 256 << 10, appends: true, direct: false },
    Kind { name: "direct over", bytes: 256 << 10, appends: false, direct: true },
    Kind { name: "direct append", bytes: 256 << 10, appends: true, direct: true },
];

/// Who writes to what.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Cell {
    #[serde(flatten)]
    kind: Kind,
    writers: u32,
    one_file: bool,
}

impl Cell {
    fn files(self) -> u32 {
        if self.one_file { 1 } else { self.writers }
    }

    /// Length of each file before the writers come.
    fn length(self) -> u64 {
        match self.kind.appends {
            true => 0,
            false => u64::from(self.writers / self.files()) * REGION * self.kind.bytes,
        }
    }
}

/// What was observed and predicted of a cell's calls: means, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    calls: usize,
    observed: f64,
    /// Less the waits for a processor.
    undelayed: f64,
    /// By the kernel model in lockstep; the part of it that is waiting for the lock; and in open loop.
    kernel: f64,
    lock: f64,
    open_loop: f64,
    /// What the division of the observed time gives to the lock.
    told: f64,
}

struct Writers {
    cells: Vec<Cell>,
    quick: bool,
}

pub(in super::super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    bench.scratch.require(Bytes::mib(256))?;
    let takes_direct = bench.scratch.direct_file("probe", OFlag::empty())?.is_some();
    bench.scratch.remove("probe");
    if !takes_direct {
        bench.notes.push("writers of one file: the filesystem refuses O_DIRECT".to_owned());
    }
    let writers: &[u32] = if quick { &[2, 4] } else { &[2, 4, 8] };
    let of_kind = |kind: Kind| {
        let of = move |&writers: &u32| [true, false].map(|one_file| Cell { kind, writers, one_file });
        writers.iter().flat_map(of)
    };
    let kinds = KINDS.into_iter().filter(|kind| takes_direct || !kind.direct);
    make(&Writers { cells: kinds.flat_map(of_kind).collect(), quick }, bench)
}

impl Study for Writers {
    type Cell = Cell;
    type Run = Recording;

    const NAME: &'static str = "writers of one file";

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn repeats(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or(if self.quick { 1 } else { 2 })
    }

    fn describe(&self, cell: Cell) -> String {
        let files = if cell.one_file { "one file" } else { "files of their own" };
        format!("{} writers of {files}, {}", cell.writers, cell.kind.name)
    }

    fn run(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Option<Recording>> {
        let names: Vec<String> = (0..cell.files()).map(|file| format!("writers-{file}")).collect();
        let recorded = record(bench, cell, if self.quick { 80 } else { 240 }, &names);
        names.iter().for_each(|name| bench.scratch.remove(name));
        recorded.map(Some)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<Cell, Recording>) -> anyhow::Result<Section> {
        let of_cell = |cell, recordings: &[&Recording]| outcome(bench.profile, cell, recordings);
        let outcomes = made.outcomes(&self.cells, of_cell)?;
        let text = [
            "A write holds the lock of its file's inode: through the page cache and where the file grows for itself, a \
             direct one over written blocks together with others (docs/science/MODEL.md, \"Lock of a file\"). The means of all \
             calls, since the kernel gives the lock to whom it likes: one who spins overtakes those who sleep.",
            "Calls of 256 KiB, and of 1 MiB over a cached file. `ready` is the observed time less what the thread waited \
             for a processor, of which the models know nothing. `kernel` is in lockstep, each call predicted from its \
             begin on; `alone` is the same without the part `lock`; `open` is in open loop, whose think times have \
             waits for a processor in them. `told` is what the division of the observed time among causes gives to the \
             lock.",
        ];
        Ok(Section {
            name: "inode-lock",
            title: "Writers of one file".to_owned(),
            text: text.map(str::to_owned).into(),
            tables: vec![table(&outcomes)],
            data: json!({ "repeats": made.repeats, "outcomes": outcomes }),
            ..Section::default()
        })
    }
}

/// A run of writers: the calls that made the files, and theirs.
#[derive(Clone, Debug)]
struct Recording {
    /// Device of the files (`st_dev`).
    dev: u64,
    before: Vec<Event>,
    calls: Vec<Call>,
}

fn record(bench: &Bench, cell: Cell, calls: u64, names: &[String]) -> anyhow::Result<Recording> {
    let made = (0..).zip(names).map(|(file, name)| made(bench, cell, file, name));
    let before = made.collect::<anyhow::Result<Vec<_>>>()?.concat();
    let paths: Vec<PathBuf> = names.iter().map(|name| bench.scratch.path(name)).collect();
    let Kind { bytes, appends, direct, .. } = cell.kind;
    let mut calls = program::write(cell.writers, calls, bytes, appends, direct, &paths)?;
    calls.sort_by_key(|call| call.start);
    Ok(Recording { dev: bench.place.number, before, calls })
}

/// Makes a file to write over, cached and on the disk; the calls that it took.
fn made(bench: &Bench, cell: Cell, number: u32, name: &str) -> anyhow::Result<Vec<Event>> {
    let file = bench.scratch.file(name)?;
    let data = vec![1; PIECE as usize];
    let mut calls = Vec::new();
    let mut timed = |event: Event, make: &dyn Fn() -> std::io::Result<()>| {
        let start = cawl_host::now();
        make()?;
        let duration = cawl_host::now().since(start).get() as u64;
        calls.push(shown(bench.place.number, number, Event { start: start.0, duration, ..event }));
        anyhow::Ok(())
    };
    for at in (0..cell.length()).step_by(PIECE as usize) {
        timed(write(at, PIECE, 0), &|| file.write_all_at(&data, at))?;
    }
    if cell.length() > 0 {
        timed(call(Op::Fsync), &|| file.sync_all())?;
    }
    Ok(calls)
}

/// A call on the file of this number.
fn shown(dev: u64, file: u32, event: Event) -> Event {
    Event { dev, ino: u64::from(file) + 1, ..event }
}

fn outcome(profile: &HostProfile, cell: Cell, recordings: &[&Recording]) -> anyhow::Result<Outcome> {
    let calls = recordings.iter().map(|recording| recording.calls.len()).sum::<usize>();
    let of_mode = |mode| {
        let of = recordings.iter().map(|recording| predicted(profile, mode, cell, recording));
        of.collect::<anyhow::Result<Vec<_>>>().map(|all| all.concat())
    };
    let (lockstep, open_loop) = (of_mode(Mode::Lockstep)?, of_mode(Mode::OpenLoop)?);
    let mean = |all: &[Predicted], of: fn(&Predicted) -> f64| all.iter().map(of).sum::<f64>() / calls as f64;
    Ok(Outcome {
        cell,
        calls,
        observed: mean(&lockstep, |one| one.observed),
        undelayed: mean(&lockstep, |one| one.observed - one.delayed),
        kernel: mean(&lockstep, |one| one.cost),
        lock: mean(&lockstep, |one| one.lock),
        open_loop: mean(&open_loop, |one| one.cost),
        told: mean(&lockstep, |one| one.told),
    })
}

/// A writer's call, in seconds.
#[derive(Clone, Copy, Debug)]
struct Predicted {
    observed: f64,
    cost: f64,
    lock: f64,
    /// What the division of the observed time gives to waiting for a processor, and to the lock.
    delayed: f64,
    told: f64,
}

fn predicted(
    profile: &HostProfile,
    mode: Mode,
    cell: Cell,
    recording: &Recording,
) -> anyhow::Result<Vec<Predicted>> {
    let mut analysis = Analysis::new(profile, &["kernel".to_owned()], mode)?;
    recording.before.iter().for_each(|event| _ = analysis.take(&Record::Event(*event)));
    let flags = if cell.kind.direct { flag::DIRECT } else { 0 };
    let mut all = Vec::with_capacity(recording.calls.len());
    for one in &recording.calls {
        let (tid, start, duration) = (FIRST + one.thread, one.start, one.duration);
        let event = write(one.offset, cell.kind.bytes, flags);
        let event = shown(recording.dev, one.file as u32, Event { tid, start, duration, ..event });
        let (from, to) = (Time(event.start), Time(event.end()));
        let (ran, delayed) = (Nanos::new(one.ran as f64), Nanos::new(one.delayed as f64));
        analysis.take(&Record::RunDelay(RunDelay { pid: event.pid, tid, from, to, ran, delayed }));
        let told = analysis.take(&Record::Event(event));
        let prediction = told.predictions.first().copied().flatten().context("a write has a cost")?;
        let causes = told.causes.context("a write has causes")?;
        let seconds = |ns: u64| ns as f64 * 1e-9;
        all.push(Predicted {
            observed: seconds(duration),
            cost: prediction.cost.as_seconds(),
            lock: prediction.parts[Cause::Lock].as_seconds(),
            delayed: seconds(causes[Cause::Preempted]),
            told: seconds(causes[Cause::Lock]),
        });
    }
    Ok(all)
}

fn table(outcomes: &[Outcome]) -> Table {
    let row = |one: &Outcome| {
        let Cell { kind, writers, one_file } = one.cell;
        let files = if one_file { "one" } else { "own" };
        let head = [kind.name.to_owned(), writers.to_string(), files.to_owned()];
        let alone = one.kernel - one.lock;
        let times = [one.observed, one.undelayed, one.kernel, alone, one.open_loop, one.lock, one.told];
        head.into_iter().chain(times.map(micros)).collect()
    };
    Table::new(
        "A call in µs: observed, less run delay (ready), and by kernel",
        ["write", "writers", "files", "observed", "ready", "kernel", "alone", "open", "lock", "told"],
        outcomes.iter().map(row),
    )
}

#[cfg(test)]
mod tests {
    use cawl_core::{Rate, median};

    use super::*;

    /// Writers that wait for each other in turn, each call of which takes a ms with the lock.
    fn in_turn(writers: u32) -> Recording {
        let made = |at: u64| Event {
            start: 1000 + at * 1_000_000,
            duration: 900_000,
            ..write(at << 20, 1 << 20, 0)
        };
        let before = (0..4).map(|at| shown(1, 0, made(at))).collect();
        let turn = |at: u32| {
            let turns = at.min(writers - 1) + 1;
            Call {
                thread: at % writers,
                file: 0,
                offset: 0,
                start: 1_000_000_000 + u64::from(at + 1 - turns) * 1_000_000 + u64::from(at % writers),
                duration: u64::from(turns) * 1_000_000 - u64::from(at % writers),
                ran: 1_000_000,
                delayed: 0,
            }
        };
        Recording { dev: 1, before, calls: (0..40).map(turn).collect() }
    }

    #[test]
    fn the_wait_for_others_is_predicted_and_told() {
        let mut profile = HostProfile::uncalibrated();
        profile.memory.cached.value = Rate::per_second(1_048_576.0 / 0.001);
        profile.memory.hot = Some(profile.memory.cached);
        let cell = Cell { kind: KINDS[0], writers: 4, one_file: true };
        let all = predicted(&profile, Mode::Lockstep, cell, &in_turn(4)).unwrap();
        let of =
            |each: fn(&Predicted) -> f64| median(&all.iter().map(each).collect::<Vec<_>>()).unwrap() * 1e3;
        assert!((of(|one| one.lock) - 3.0).abs() < 0.2, "{} ms", of(|one| one.lock));
        assert!((of(|one| one.cost) / of(|one| one.observed) - 1.0).abs() < 0.1);
        assert!((of(|one| one.told) - 3.0).abs() < 0.2, "{} ms", of(|one| one.told));
        assert_eq!(of(|one| one.delayed), 0.0);
    }

    #[test]
    fn files_are_as_long_as_what_is_written_over() {
        let length = |writers, one_file| Cell { kind: KINDS[0], writers, one_file }.length() >> 20;
        assert_eq!((length(4, true), length(4, false)), (16, 4));
        assert_eq!(Cell { kind: KINDS[1], writers: 4, one_file: true }.length(), 0);
    }
}
