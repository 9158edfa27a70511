//! Locks: figures 9 to 14 of "No such thing as a bad workload; only unsuitable system calls?" (002),
//! observed, with writes inside and outside the section, and with what each thread's time went to.
//!
//! The law: **a section computes.** The document's program sleeps where it says that it keeps the processor
//! busy: a section of 1 µs is a `usleep(1)`, which takes some 50 µs and no processor. Both are run here.

mod findings;
pub(super) mod inode;
mod program;
mod tables;

use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use cawl_core::{HostProfile, median, named};
use cawl_measure::interrupt::Interrupted;
use serde::{Serialize, Serializer};
use serde_json::json;

use super::calls::{Shown, write};
use super::{Bench, Made, Section, Study, make, save};

/// Time outside the section in the document's figures 11, 12 and 14, in µs.
const T1: u64 = 1000;
/// Bytes of each write inside or outside the section, and of the file that they go to.
const WRITE: u64 = 64 << 10;
const FILE: u64 = 1 << 20;

named! {
    /// A lock of the C library.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Lock {
        /// A pthread mutex.
        Mutex = "mutex",
        /// A pthread spin lock.
        Spin = "spin",
        /// A mutex that spins for a while before it sleeps (`PTHREAD_MUTEX_ADAPTIVE_NP`).
        Adaptive = "adaptive",
    }
}

named! {
    /// How a thread spends time.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Work {
        /// It computes for so long.
        Computes = "computes",
        /// It sleeps once for so long.
        Sleeps = "sleeps",
        /// It calls usleep(1) once for each µs, as the document's program does.
        Naps = "naps",
    }
}

named! {
    /// Where a thread writes.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Io {
        None = "none",
        Inside = "inside",
        Outside = "outside",
    }
}

/// Runs of one kind. Times in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Cell {
    threads: u32,
    lock: Lock,
    /// What a thread does with the lock, and for how long.
    work: Work,
    section: u64,
    /// What it does without, and for how long.
    outside: Work,
    time: u64,
    io: Io,
}

/// A condition without a write.
fn plain(threads: u32, section: u64, (outside, time): (Work, u64)) -> Cell {
    Cell { threads, lock: Lock::Mutex, work: Work::Computes, section, outside, time, io: Io::None }
}

/// Nothing is done outside the section.
const NOTHING: (Work, u64) = (Work::Computes, 0);

struct Locks {
    cells: Vec<Cell>,
    quick: bool,
}

impl Locks {
    /// The document's conditions, and I/O inside or outside the section; fewer of them if `quick`.
    fn new(quick: bool) -> Locks {
        let mut study = Locks { cells: Vec::new(), quick };
        let pick = |all: &'static [u64], few: &'static [u64]| if quick { few } else { all };
        let threads: &[u32] = if quick { &[2, 16] } else { &[2, 8, 16] };
        let contending = &threads[1..];
        // Figures 9 and 10: two threads that do nothing else.
        let sections = pick(&[1, 2, 4, 6, 10, 30, 100, 1000], &[1, 6, 30, 1000]);
        study.add(&[2], (Work::Computes, sections), NOTHING, &[Io::None]);
        study.add(&[2], (Work::Naps, pick(&[1, 6, 30, 1000], &[1, 30])), (Work::Naps, 0), &[Io::None]);
        // Figures 11 and 12: computing outside.
        let sections = pick(&[1, 6, 30, 100, 1000], &[1, 30]);
        study.add(threads, (Work::Computes, sections), (Work::Computes, T1), &[Io::None]);
        study.add(contending, (Work::Naps, pick(&[1, 30], &[1])), (Work::Naps, T1), &[Io::None]);
        // Figures 13 and 14: asleep outside.
        for time in [1, T1] {
            let sections = pick(&[1, 30, 1000], &[30]);
            study.add(contending, (Work::Computes, sections), (Work::Sleeps, time), &[Io::None]);
        }
        // A write inside or outside.
        study.add(threads, (Work::Computes, pick(&[1, 30, 1000], &[30])), NOTHING, &Io::ALL);
        study
    }

    /// Adds cells with each lock, but for those that there are.
    fn add(&mut self, threads: &[u32], (work, sections): (Work, &[u64]), outside: (Work, u64), all: &[Io]) {
        for &threads in threads {
            for &section in sections {
                for &io in all {
                    let cells =
                        Lock::ALL.map(|lock| Cell { lock, work, io, ..plain(threads, section, outside) });
                    let new = cells.into_iter().filter(|cell| !self.cells.contains(cell));
                    let new: Vec<Cell> = new.collect();
                    self.cells.extend(new);
                }
            }
        }
    }

    /// Length of a run, in ms.
    fn length(&self) -> u64 {
        if self.quick { 100 } else { 200 }
    }
}

/// What threads' time can go to, in the order of the tables.
const PARTS: [&str; 6] = ["io", "lock", "processor", "computing", "asleep", "rest"];
/// In writes; waiting for the lock, taking and releasing it; ready, but without a processor; computing;
/// asleep. The rest is reading clocks, and counting.
const IO: usize = 0;
const LOCK: usize = 1;
const PROCESSOR: usize = 2;
const COMPUTING: usize = 3;
const ASLEEP: usize = 4;

/// What threads' time went to, in seconds or in parts of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Division([f64; 6]);

impl Division {
    fn sum<'a>(all: impl IntoIterator<Item = &'a Division>) -> Division {
        let mut sum = Division::default();
        for Division(parts) in all {
            sum.0.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
        }
        sum
    }
}

impl Serialize for Division {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(PARTS.into_iter().zip(self.0))
    }
}

/// A thread of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Thread {
    sections: u64,
    /// From its first turn to its last, in seconds.
    wall: f64,
    #[serde(flatten)]
    division: Division,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Run {
    #[serde(flatten)]
    cell: Cell,
    /// From the first thread's first turn to the last one's last, in seconds.
    wall: f64,
    /// Processor time of all threads, in seconds.
    processor: f64,
    threads_told: Vec<Thread>,
}

impl Run {
    fn sections(&self) -> u64 {
        self.threads_told.iter().map(|thread| thread.sections).sum()
    }

    /// Of all threads.
    fn division(&self) -> Division {
        Division::sum(self.threads_told.iter().map(|thread| &thread.division))
    }
}

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

impl Outcome {
    fn new(cell: Cell, its: &[&Run], predicted: f64) -> Outcome {
        let middle = |each: fn(&Run) -> f64| {
            median(&its.iter().map(|run| each(run)).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
        };
        let sum = |each: fn(&Run) -> f64| its.iter().map(|run| each(run)).sum::<f64>();
        let Division(times) = Division::sum(&its.iter().map(|run| run.division()).collect::<Vec<_>>());
        let writes = sum(|run| run.sections() as f64);
        let whole = times.iter().sum::<f64>();
        Outcome {
            cell,
            rate: middle(|run| run.sections() as f64 / run.wall),
            processor: middle(|run| run.processor / run.sections() as f64),
            processors: sum(|run| run.processor) / sum(|run| run.wall),
            shares: Division(times.map(|part| part / whole)),
            write: (cell.io != Io::None && writes > 0.0).then(|| (times[IO] / writes, predicted)),
        }
    }
}

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

/// The section of the locks; fewer conditions if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    make(&Locks::new(quick), bench)
}

impl Study for Locks {
    type Cell = Cell;
    type Run = Run;

    const NAME: &'static str = "locks";
    const SEED: Option<u64> = Some(2019);

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn repeats(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or(if self.quick { 1 } else { 3 })
    }

    fn describe(&self, cell: Cell) -> String {
        format!("{} threads, {}, sections of {} µs", cell.threads, cell.lock.name(), cell.section)
    }

    /// Makes the files that the threads write over, one for each, on the disk and cached.
    fn prepare(&self, bench: &mut Bench) -> anyhow::Result<()> {
        if !Path::new("/proc/thread-self/schedstat").exists() {
            let note = "locks: the kernel counts no run delay (CONFIG_SCHED_INFO), so it is told as lock";
            bench.notes.push(note.to_owned());
        }
        for thread in 0..self.cells.iter().map(|cell| cell.threads).max().unwrap_or(0) {
            Interrupted::by(bench.signal)?;
            let file = bench.scratch.file(&format!("locks-{thread}"))?;
            file.write_all_at(&vec![0; FILE as usize], 0)?;
            file.sync_all()?;
        }
        Ok(())
    }

    fn run(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Option<Run>> {
        program::turns(bench.scratch, cell, self.length()).map(Some)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<Cell, Run>) -> anyhow::Result<Section> {
        let runs: Vec<&Run> = made.runs.iter().map(|(_, run)| run).collect();
        save(bench.out, "locks.csv", csv(&runs))?;
        let predicted = predicted_write(bench.profile)?;
        let all = made.outcomes(&self.cells, |cell, its| Ok(Outcome::new(cell, its, predicted)))?;
        let outcomes = Outcomes { all, processors: cawl_host::facts().cpus };
        let text = vec![
            format!(
                "Threads take a lock, stay in a section and outside of it, and are each bound to a processor, in \
                 turn. This machine has {}. Throughput is that of the median of {} runs of {} ms in a random order. \
                 Other programs' work is in these figures: a thread that holds the lock and loses its processor keeps \
                 all others waiting.",
                match outcomes.processors {
                    1 => "one processor".to_owned(),
                    processors => format!("{processors} processors"),
                },
                made.repeats,
                self.length()
            ),
            "A thread's time is divided into writes, the lock, waiting for a processor (run delay, from the kernel's \
             schedstat, looked at after each turn that took 50 µs longer than it should), computing and sleeping. \
             What is left are clocks and counting."
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
            data: json!({
                "seed": Self::SEED, "repeats": made.repeats, "outcomes": outcomes.all, "runs": runs
            }),
        })
    }
}

/// What a write over a cached file takes by the kernel model, in seconds.
fn predicted_write(profile: &HostProfile) -> anyhow::Result<f64> {
    let mut shown = Shown::to("kernel", profile)?;
    shown.fill(FILE, FILE, 0);
    shown.sync();
    let places = (0..FILE).step_by(WRITE as usize);
    let costs = places.clone().chain(places).map(|at| shown.step(write(at, WRITE, 0)) * 1e-9);
    median(&costs.collect::<Vec<f64>>()).context("there are no writes")
}

/// The runs as a table, in their order.
fn csv(runs: &[&Run]) -> String {
    let mut text =
        "threads,lock,work,section_us,outside,outside_us,io,wall_s,sections,processor_s,io_s,lock_s,\
                    run_delay_s,computing_s,asleep_s,rest_s\n"
            .to_owned();
    for run in runs {
        let Cell { threads, lock, work, section, outside, time, io } = run.cell;
        let [lock, work, outside, io] = [lock.name(), work.name(), outside.name(), io.name()];
        let (wall, sections, processor) = (run.wall, run.sections(), run.processor);
        text += &format!("{threads},{lock},{work},{section},{outside},{time},{io},");
        text += &format!("{wall:.9},{sections},{processor:.9}");
        text.extend(run.division().0.map(|part| format!(",{part:.9}")));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_each_lock_once() {
        for quick in [false, true] {
            let study = Locks::new(quick);
            for cell in &study.cells {
                assert_eq!(study.cells.iter().filter(|other| *other == cell).count(), 1, "{cell:?}");
                for lock in Lock::ALL {
                    assert!(study.cells.contains(&Cell { lock, ..*cell }), "{cell:?}");
                }
            }
            // Few enough for the time that is told.
            let millis = study.cells.len() as u64 * study.length();
            assert!(millis < if quick { 7_000 } else { 45_000 }, "{} cells", study.cells.len());
        }
        assert!(Locks::new(true).cells.iter().all(|cell| Locks::new(false).cells.contains(cell)));
    }
}
