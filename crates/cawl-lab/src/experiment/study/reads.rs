//! Reads: the classes of dd's reads of "Analyzing and Assessing I/O Performance" (001, [`dd`]), and figures
//! 2, 4, 7 and 8 of "No such thing as a bad workload; only unsuitable system calls?" (002), observed and
//! predicted.
//!
//! The law: **what is cached is known by construction.** A file was just written through the page cache, or
//! past it, or it was synchronised and dropped from it. What the device has in a cache of its own is not
//! known; the page tells what calibration found.

mod classes;
mod dd;
mod findings;

use std::fs::File;
use std::os::unix::fs::FileExt;

use cawl_console::compact;
use cawl_core::{HostProfile, Nanos, median, named};
use cawl_host::direct::AlignedBuffer;
use cawl_measure::calibrate::interference::{waited, without};
use cawl_measure::interrupt::Interrupted;
use cawl_wire::flag;
use fastrand::Rng;
use nix::fcntl::OFlag;
use serde::Serialize;

pub(super) use self::dd::classes;
use super::calls::{
    ByModel, FEWEST, PIECE, Shown, Timed, drop_cached, fill, off, read, timed, unless_refused, with_models,
    write,
};
use super::{Bench, Made, Section, Study, Table, make};

named! {
    /// What is read, and how it came to be where it is. Those that need much memory follow one another, since
    /// a virtual machine's host may take back what is free for some seconds.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    Access {
        Buffered = "in sequence, written through the page cache",
        Direct = "in sequence, written past the page cache",
        Fsync = "in sequence, written with fsync after each write",
        /// Of an uncached file, as the last one.
        Random = "random, through the page cache",
        RandomDirect = "random, past the page cache",
    }
}

impl Access {
    fn is_random(self) -> bool {
        matches!(self, Access::Random | Access::RandomDirect)
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Cell {
    /// Bytes of each read.
    size: u64,
    access: Access,
}

/// The study: its cells, and how much of each.
struct Reads {
    cells: Vec<Cell>,
    /// Length of a file that is read in sequence, and of that read at random.
    length: u64,
    random: u64,
    /// Most random reads of a cell in a repetition.
    most: usize,
    /// Time of a cell's random reads, or of its writes with fsync, in a repetition, in seconds.
    seconds: f64,
}

const PAGE: u64 = 4096;
const FILE: &str = "read";
const RANDOM: &str = "read-random";
/// A call, or what is between two, that takes longer than this may have waited for a processor.
const LONG: Nanos = Nanos::new(50e3);

impl Reads {
    /// The document's sizes, or three of them.
    fn new(quick: bool) -> Reads {
        let sizes: Vec<u64> =
            if quick { vec![512, 4 << 10, 64 << 10] } else { (9..=16).map(|n| 1 << n).collect() };
        let of_access = |access| sizes.iter().map(move |size| Cell { size: *size, access });
        let cells = Access::ALL.into_iter().flat_map(of_access).collect();
        match quick {
            true => Reads { cells, length: 16 << 20, random: 32 << 20, most: 200, seconds: 0.1 },
            false => Reads { cells, length: 128 << 20, random: 256 << 20, most: 1000, seconds: 0.5 },
        }
    }

    /// Where the calls of a cell read: in sequence, or at random places of which none is met twice, nor the
    /// page of another one where there is room.
    fn offsets(&self, cell: Cell) -> Vec<u64> {
        if !cell.access.is_random() {
            return (0..self.length / cell.size).map(|at| at * cell.size).collect();
        }
        let piece = cell.size.max(PAGE);
        let mut pieces: Vec<u64> = (0..self.random / piece).collect();
        let mut lot = Rng::with_seed(cell.size);
        lot.shuffle(&mut pieces);
        let within = piece / cell.size;
        let taken = pieces.into_iter().take(self.most);
        taken.map(|at| at * piece + lot.u64(..within) * cell.size).collect()
    }

    /// Makes the file as its calls find it, and makes them.
    fn calls(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Vec<f64>> {
        let mut offsets = self.offsets(cell);
        let again = |name, flags| bench.scratch.again(name, flags);
        let (name, flags, seconds) = match cell.access {
            Access::Random => (RANDOM, OFlag::empty(), self.seconds),
            Access::RandomDirect => (RANDOM, OFlag::O_DIRECT, self.seconds),
            Access::Buffered | Access::Direct | Access::Fsync => (FILE, OFlag::empty(), f64::INFINITY),
        };
        match cell.access {
            Access::Buffered => fill(bench, &bench.scratch.file(FILE)?, self.length, cell.size)?,
            Access::Direct => {
                bench.scratch.file(FILE)?;
                fill(bench, &again(FILE, OFlag::O_DIRECT)?, self.length, PIECE)?;
            }
            Access::Fsync => {
                let (file, data) = (bench.scratch.file(FILE)?, AlignedBuffer::new(cell.size as usize));
                let write = |at| file.write_all_at(data.bytes(), at).and_then(|()| file.sync_all());
                let written = timed(bench, &offsets, self.seconds, write)?;
                offsets.truncate(written.len());
            }
            Access::Random | Access::RandomDirect => drop_cached(&again(RANDOM, OFlag::empty())?)?,
        }
        reads(bench, &again(name, flags)?, cell.size, &offsets, seconds)
    }

    /// What a model predicts of the first `calls` reads of a cell, in ns.
    fn predicted(
        &self,
        model: &str,
        profile: &HostProfile,
        cell: Cell,
        calls: usize,
    ) -> anyhow::Result<Vec<f64>> {
        let mut shown = Shown::to(model, profile)?;
        let offsets = self.offsets(cell);
        let offsets = &offsets[..calls.min(offsets.len())];
        match cell.access {
            Access::Buffered => shown.fill(self.length, cell.size, 0),
            Access::Fsync => {
                for at in offsets {
                    shown.step(write(*at, cell.size, 0));
                    shown.sync();
                }
            }
            Access::Direct => shown.fill(self.length, PIECE, flag::DIRECT),
            Access::Random | Access::RandomDirect => {
                shown.fill(self.random, PIECE, 0);
                shown.sync();
                shown.drop_cached();
            }
        }
        let length = if cell.access.is_random() { self.random } else { self.length };
        shown.tell(length, matches!(cell.access, Access::Buffered | Access::Fsync));
        let flags = if cell.access == Access::RandomDirect { flag::DIRECT } else { 0 };
        Ok(offsets.iter().map(|at| shown.step(read(*at, cell.size, flags))).collect())
    }

    fn outcome(&self, profile: &HostProfile, cell: Cell, runs: &[&Vec<f64>]) -> anyhow::Result<Outcome> {
        let times: Vec<f64> = runs.iter().copied().flatten().copied().collect();
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
        let calls = runs.iter().map(|run| run.len()).max().unwrap_or(0);
        let predicted = |model| {
            let costs = self.predicted(model, profile, cell, calls)?;
            let typical = if cell.access.is_random() { median(&costs) } else { Some(mean(&costs)) };
            Ok(typical.unwrap_or(f64::NAN))
        };
        let means: Vec<f64> = runs.iter().map(|run| mean(run)).collect();
        let mean = median(&means).unwrap_or(f64::NAN);
        let timed = Timed::new(&times, mean, cell.size as f64, ByModel::of(predicted)?);
        Ok(Outcome { cell, timed })
    }
}

/// Reads at these places for `seconds`; the time of each call, in ns, without the cost of reading the clock
/// and without waits for a processor, which are looked for when they are long.
fn reads(bench: &Bench, file: &File, size: u64, offsets: &[u64], seconds: f64) -> anyhow::Result<Vec<f64>> {
    let mut data = AlignedBuffer::new(size as usize);
    let (clock, started) = (clocks_own(), cawl_host::now());
    let mut times = Vec::with_capacity(offsets.len());
    let (mut ended, mut before) = (started, waited());
    for at in offsets {
        if times.len() >= FEWEST && ended.since(started).as_seconds() > seconds {
            break;
        }
        Interrupted::by(bench.signal)?;
        let mut start = cawl_host::now();
        if start.since(ended) > LONG {
            // Not a wait of the call.
            before = waited();
            start = cawl_host::now();
        }
        file.read_exact_at(data.bytes_mut(), *at)?;
        ended = cawl_host::now();
        let mut took = ended.since(start);
        if took > LONG {
            let now = waited();
            took = without(took, now.saturating_sub(before));
            before = now;
            ended = cawl_host::now();
        }
        times.push((took.get() - clock).max(1.0));
    }
    Ok(times)
}

/// The cost of reading the clock, in ns.
fn clocks_own() -> f64 {
    let span = |_| {
        let start = cawl_host::now();
        cawl_host::now().since(start).get()
    };
    (0..1000).map(span).fold(f64::INFINITY, f64::min)
}

/// Of a cell, observed and predicted. The mean is the median of the repetitions' means.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    #[serde(flatten)]
    timed: Timed,
}

impl Outcome {
    /// What of the calls is predicted: of reads in sequence the mean, since readahead makes some take much
    /// longer than others; of random ones, which are alike, the median.
    fn typical(&self) -> f64 {
        if self.cell.access.is_random() { self.timed.observed } else { self.timed.mean }
    }

    /// Bytes per second of calls that take so long.
    fn rate(&self, time: f64) -> f64 {
        self.cell.size as f64 / time * 1e9
    }
}

struct Outcomes(Vec<Outcome>);

impl Outcomes {
    fn of(&self, size: u64, access: Access) -> Option<&Outcome> {
        self.0.iter().find(|outcome| outcome.cell == Cell { size, access })
    }
}

/// Sequential and random reads; fewer sizes and calls if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    make(&Reads::new(quick), bench)
}

impl Study for Reads {
    type Cell = Cell;
    type Run = Vec<f64>;

    const NAME: &'static str = "reads";

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn describe(&self, cell: Cell) -> String {
        format!("{}, {}", compact::bytes(cell.size), cell.access.name())
    }

    fn prepare(&self, bench: &mut Bench) -> anyhow::Result<()> {
        bench.scratch.remove(RANDOM);
        let file = bench.scratch.file(RANDOM)?;
        fill(bench, &file, self.random, PIECE)?;
        Ok(file.sync_all()?)
    }

    fn run(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Option<Vec<f64>>> {
        let made = self.calls(bench, cell);
        bench.scratch.remove(FILE);
        unless_refused(made)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<Cell, Vec<f64>>) -> anyhow::Result<Section> {
        bench.scratch.remove(RANDOM);
        let outcome = |cell, runs: &[&Vec<f64>]| self.outcome(bench.profile, cell, runs);
        let outcomes = Outcomes(made.outcomes(&self.cells, outcome)?);
        let text = [
            format!(
                "Files of {} are written in calls of the size, through the page cache; or past the cache in calls of \
                 1 MiB; or with fsync after each write, as many as fit into {} s. Then they are read from their begin \
                 to their end, through the page cache. Random reads go to a file of {} that was synchronised and \
                 dropped from the cache, no place twice.",
                compact::bytes(self.length),
                self.seconds,
                compact::bytes(self.random),
            ),
            "MB/s are bytes over time: of reads in sequence the mean time of a repetition's calls, since readahead \
             makes some take much longer than others, and the median of the repetitions; of random reads the median \
             time. Waits for a processor (run delay) are not included where a call takes 50 µs or more. The models \
             predict the same; OFF is by how much. P10, MEDIAN and P90 are µs of single calls. MODES are the humps \
             of the density of the times per byte, in ns, with their shares of the calls."
                .to_owned(),
        ];
        Ok(Section {
            name: "reads",
            title: "Reads after buffered and direct writes, and random reads".to_owned(),
            text: text.into_iter().chain(made.left_out()).collect(),
            tables: Access::ALL.map(|access| table(&outcomes, access)).into(),
            findings: findings::findings(bench.profile, &outcomes),
            data: serde_json::to_value(&outcomes.0)?,
            ..Section::default()
        })
    }
}

fn table(outcomes: &Outcomes, access: Access) -> Table {
    let row = |one: &Outcome| {
        let rate = |time: f64| compact::three(one.rate(time) / 1e6);
        let theirs = findings::theirs(one.cell).map_or("-".to_owned(), |rate| compact::three(rate / 1e6));
        let head = [compact::bytes(one.cell.size), one.timed.calls.to_string(), rate(one.typical())];
        let models = one.timed.predicted.iter().map(|(_, time)| [rate(time), off(one.typical(), time)]);
        let cells = head.into_iter().chain(one.timed.spread()).chain(models.flatten());
        cells.chain([theirs, one.timed.modes(compact::three)]).collect()
    };
    let header = with_models(&["size", "calls", "MB/s", "p10", "median", "p90"], &["theirs", "modes"]);
    let rows = outcomes.0.iter().filter(|one| one.cell.access == access).map(row);
    Table::new(format!("Reads, {}", access.name()), header, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_of_all_kinds_of_reads() {
        for (study, cells) in [(Reads::new(false), 8 * 5), (Reads::new(true), 3 * 5)] {
            assert_eq!(study.cells.len(), cells);
            for &cell in &study.cells {
                let offsets = study.offsets(cell);
                assert!(offsets.len() >= 100 && offsets.iter().all(|at| at % cell.size == 0), "{cell:?}");
                let length = if cell.access.is_random() { study.random } else { study.length };
                assert!(offsets.iter().all(|at| at + cell.size <= length), "{cell:?}");
                let mut pages: Vec<u64> = offsets.iter().map(|at| at / PAGE).collect();
                pages.sort_unstable();
                pages.dedup();
                assert!(!cell.access.is_random() || pages.len() == offsets.len(), "{cell:?}: a page twice");
            }
        }
    }

    #[test]
    fn every_cell_has_a_prediction_of_each_call() {
        let (profile, study) = (HostProfile::uncalibrated(), Reads::new(true));
        for model in cawl_core::MODELS {
            for &cell in &study.cells {
                let costs = study.predicted(model, &profile, cell, 50).unwrap();
                assert_eq!(costs.len(), 50, "{model}, {cell:?}");
                assert!(costs.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{model}, {cell:?}");
            }
        }
        assert!(study.predicted("none", &profile, study.cells[0], 1).is_err());
    }
}
