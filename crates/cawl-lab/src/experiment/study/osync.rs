//! The O_SYNC study (Hawthorne, O_SYNC and Blocksize Effects on IO Performance) on the disk at hand: writes
//! of files in blocks, without and with O_SYNC, and two arms more, observed, predicted and fitted.
//!
//! The document times runs with `clock()`, which is the processor's time. Here wall, user and system time are
//! told apart, and the order of runs is random.

mod judge;
mod page;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use cawl_core::{Bytes, HostProfile, Nanos, OpenLoop, median, named};
use cawl_measure::interrupt::Interrupted;
use cawl_wire::{Event, Op, flag};
use nix::fcntl::OFlag;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;
use serde_json::json;

use self::judge::{Judged, csv};
use super::calls::{ByModel, call, write};
use super::{Bench, Made, Section, Study, make, save};

/// Before a cell is left out, repetitions are.
const MIN_REPEATS: usize = 2;
/// Cells of each arm that are always kept: three counts of blocks tell a slope.
const MIN_CELLS: usize = 3;
/// A run without its writes: pending data are written out, the file is made and removed. In seconds.
const AROUND: f64 = 0.05;
/// Name of the file that is written.
const FILE: &str = "data";
/// Calls by which a synchronous write is known before the study.
const PROBE: u64 = 32;

named! {
    /// How the data of a run get to the device: the arms of the study.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    Arm {
        /// When the kernel thinks fit.
        None = "none",
        /// With each write, with all of the file's metadata (O_SYNC).
        OSync = "o_sync",
        /// With each write, with the metadata that reading needs (O_DSYNC).
        ODsync = "o_dsync",
        /// With an fsync before the file is closed.
        Fsync = "fsync",
    }
}

impl Arm {
    /// Flags of the open, and of the calls for the models.
    fn flags(self) -> (OFlag, u32) {
        match self {
            Arm::None | Arm::Fsync => (OFlag::empty(), 0),
            Arm::OSync => (OFlag::O_SYNC, flag::SYNC),
            Arm::ODsync => (OFlag::O_DSYNC, flag::DSYNC),
        }
    }

    /// Each write waits for the device.
    fn waits(self) -> bool {
        self.flags().1 != 0
    }
}

/// Sizes and arm of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Bytes that each call writes.
    pub block_size: u64,
    /// Bytes of the file, a multiple of them.
    pub num_bytes: u64,
    pub sync: Arm,
}

impl Cell {
    /// Calls that write.
    pub fn blocks(self) -> u64 {
        self.num_bytes / self.block_size
    }
}

/// What a run took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Taken {
    /// From before the open to after the close (CLOCK_MONOTONIC).
    pub wall: f64,
    /// The process's time in user mode (getrusage, RUSAGE_SELF).
    pub user: f64,
    /// Its time in the kernel.
    pub sys: f64,
}

impl Taken {
    /// What is left of the wall time: waiting, mostly. May be negative by the kernel's resolution.
    pub fn unaccounted(&self) -> f64 {
        self.wall - self.user - self.sys
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Osync {
    /// By block size, file size and arm.
    cells: Vec<Cell>,
    repeats: usize,
    /// What there is no time for, in words.
    left_out: Option<String>,
}

/// The time that it takes at most, as far as that is known before.
pub fn longest(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 60.0 } else { 600.0 })
}

/// Makes the runs, as many as there is time for by what the profile and a first write say, and judges them.
pub fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    let mut study = Osync::new(quick, bench.repeats);
    let largest = study.cells.iter().map(|cell| cell.num_bytes).max().unwrap_or_default();
    bench.scratch.require(Bytes(largest * 2))?;
    bench.progress.begin("O_SYNC: a first write");
    // A profile may be another disk's, or nobody's.
    let first = probe(bench)?;
    study.reduce(longest(quick), |block| eq4(bench.profile, bench.place.number, block).max(first));
    bench.notes.extend(study.left_out.iter().map(|text| format!("O_SYNC: {text}")));
    make(&study, bench)
}

impl Osync {
    /// The document's grid, or a small one.
    fn new(quick: bool, repeats: Option<usize>) -> Osync {
        let every = |least: u32, most: u32| (least..=most).map(|power| 1 << power).collect::<Vec<u64>>();
        let (blocks, files) = match quick {
            true => (vec![512, 4096, 65536], vec![512 << 10, 1 << 20, 4 << 20]),
            false => (every(9, 16), every(19, 26)),
        };
        let of = |block_size: u64| {
            let with_arm = move |num_bytes: &u64| {
                let num_bytes = *num_bytes;
                Arm::ALL.map(|sync| Cell { block_size, num_bytes, sync })
            };
            files.iter().flat_map(with_arm)
        };
        let cells = blocks.into_iter().flat_map(of).collect();
        Osync { cells, repeats: repeats.unwrap_or(if quick { 2 } else { 5 }), left_out: None }
    }

    /// The time that it takes, if a write that waits for the device takes so long.
    fn expected(&self, waiting: impl Fn(Bytes) -> Nanos) -> Nanos {
        let of_cell = |cell: &Cell| {
            let wait = if cell.sync.waits() { waiting(Bytes(cell.block_size)) } else { Nanos::ZERO };
            wait.as_seconds() * cell.blocks() as f64 + AROUND
        };
        Nanos::seconds(self.cells.iter().map(of_cell).sum::<f64>() * self.repeats as f64)
    }

    /// Leaves out repetitions, then the largest files of the smallest blocks, until the rest takes no longer
    /// than `longest`.
    fn reduce(&mut self, longest: Nanos, waiting: impl Fn(Bytes) -> Nanos) {
        let (all, wanted) = (self.expected(&waiting), self.repeats);
        while self.repeats > MIN_REPEATS && self.expected(&waiting) > longest {
            self.repeats -= 1;
        }
        // Of each block, the smallest of its files that are left out: they are from the largest on.
        let mut least = BTreeMap::new();
        while self.cells.len() > MIN_CELLS * Arm::ALL.len() && self.expected(&waiting) > longest {
            // The first of the most calls has the smallest block.
            let Some(most) = self.cells.iter().rev().copied().max_by_key(|cell| cell.blocks()) else { break };
            least.insert(Bytes(most.block_size), Bytes(most.num_bytes));
            let is_its = |cell: &Cell| (cell.block_size, cell.num_bytes) == (most.block_size, most.num_bytes);
            self.cells.retain(|cell| !is_its(cell));
        }
        let mut parts = Vec::new();
        if self.repeats < wanted {
            parts.push(format!("{} of {wanted} repetitions", wanted - self.repeats));
        }
        parts.extend(least.iter().map(|(block, file)| format!("files from {file} on in blocks of {block}")));
        self.left_out = (!parts.is_empty()).then(|| {
            let (rest, parts) = (self.expected(&waiting), parts.join(", "));
            format!(
                "all runs would take about {all}, the limit is {longest}; left out in all arms: {parts}; the rest \
                 takes {rest}"
            )
        });
    }
}

impl Study for Osync {
    type Cell = Cell;
    type Run = Taken;

    const NAME: &'static str = "O_SYNC";
    const SEED: Option<u64> = Some(4);

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn repeats(&self, _: Option<usize>) -> usize {
        self.repeats
    }

    fn describe(&self, Cell { block_size, num_bytes, sync }: Cell) -> String {
        format!("{} in blocks of {}, {}", Bytes(num_bytes), Bytes(block_size), sync.name())
    }

    fn run(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Option<Taken>> {
        taken(bench, cell).with_context(|| format!("writing {} failed", self.describe(cell))).map(Some)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<Cell, Taken>) -> anyhow::Result<Section> {
        save(bench.out, "osync.csv", csv(&made.runs))?;
        let judged = Judged::of(&made.runs, &self.cells, bench.profile, bench.place.number)?;
        let data = json!({
            "seed": Self::SEED,
            "repeats": made.repeats,
            "left_out": self.left_out,
            "runs": judge::rows(&made.runs),
            "judged": judged,
        });
        page::section(&judged, &made.runs, data)
    }
}

/// Makes a run. Pending data of the filesystem are written out before, and the file is removed afterwards.
fn taken(bench: &Bench, cell: Cell) -> anyhow::Result<Taken> {
    bench.scratch.sync()?;
    let taken = written(bench, cell);
    bench.scratch.remove(FILE);
    taken
}

fn written(bench: &Bench, cell: Cell) -> anyhow::Result<Taken> {
    let path = bench.scratch.path(FILE);
    let block = vec![b'x'; cell.block_size as usize];
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(cell.sync.flags().0.bits());
    let (began, used) = (cawl_host::now(), getrusage(UsageWho::RUSAGE_SELF)?);
    let mut file = options.open(&path)?;
    for _ in 0..cell.blocks() {
        Interrupted::by(bench.signal)?;
        file.write_all(&block)?;
    }
    if cell.sync == Arm::Fsync {
        file.sync_all()?;
    }
    drop(file);
    let (ended, since) = (cawl_host::now(), getrusage(UsageWho::RUSAGE_SELF)?);
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(Taken {
        wall: ended.since(began).as_seconds(),
        user: seconds(since.user_time() - used.user_time()),
        sys: seconds(since.system_time() - used.system_time()),
    })
}

/// What a small synchronous write takes here: the median of a few files of some calls.
fn probe(bench: &Bench) -> anyhow::Result<Nanos> {
    let cell = Cell { block_size: 512, num_bytes: 512 * PROBE, sync: Arm::OSync };
    let times = (0..3).map(|_| Ok(taken(bench, cell)?.wall / PROBE as f64));
    let times = times.collect::<anyhow::Result<Vec<f64>>>()?;
    Ok(Nanos::seconds(median(&times).unwrap_or(0.0)))
}

/// What one run should take, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    #[serde(flatten)]
    pub models: ByModel,
    /// The paper's Eq. 4, in the arms that it is about.
    pub eq4: Option<f64>,
}

impl Predicted {
    /// Of a run on device `dev` of a machine with this profile, each model on its own clock.
    pub fn of(cell: Cell, profile: &HostProfile, dev: u64) -> anyhow::Result<Predicted> {
        let calls = calls(cell, dev);
        let models = ByModel::of(|name| {
            let mut open_loop =
                OpenLoop::new(name, profile).with_context(|| format!("there is no model {name}"))?;
            for call in &calls {
                open_loop.step(*call);
            }
            Ok(open_loop.elapsed(calls[0].tid).as_seconds())
        })?;
        let of_call = || eq4(profile, dev, Bytes(cell.block_size)).as_seconds();
        Ok(Predicted { models, eq4: cell.sync.waits().then(|| of_call() * cell.blocks() as f64) })
    }
}

/// Eq. 4 for a call, `sc_sw + s / bw_ram + s / bw_dev`. What calibration tells apart in a synchronous write
/// through the page cache is one constant in the paper, `sc_sw`.
fn eq4(profile: &HostProfile, dev: u64, size: Bytes) -> Nanos {
    let device = profile.device_of(dev);
    let parts = [device.latency, device.delayed_allocation].into_iter().flatten();
    let fixed = parts.fold(device.sync_call.value, |sum, part| sum + part.value);
    fixed + size / profile.memory.fresh.value + size / device.write.value
}

/// The calls of a run: a new file, its writes, the fsync if there is one, and the close.
fn calls(cell: Cell, dev: u64) -> Vec<Event> {
    let flags = flag::WRITABLE | cell.sync.flags().1;
    let of_run = |event: Event| Event { dev, fd: 3, flags, ..event };
    let opened = Event { flags: flags | flag::TRUNC, returned: 3, ..of_run(call(Op::Open)) };
    let written = |at| Event { op: Op::Write, ..of_run(write(at * cell.block_size, cell.block_size, 0)) };
    let fsync = (cell.sync == Arm::Fsync).then(|| of_run(call(Op::Fsync)));
    let writes = (0..cell.blocks()).map(written);
    [opened].into_iter().chain(writes).chain(fsync).chain([of_run(call(Op::Close))]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast(_: Bytes) -> Nanos {
        Nanos::seconds(10e-6)
    }

    fn slow(_: Bytes) -> Nanos {
        Nanos::millis(10.0)
    }

    #[test]
    fn the_grid_is_that_of_the_document() {
        let study = Osync::new(false, None);
        assert_eq!((study.cells.len(), study.repeats), (64 * 4, 5));
        assert_eq!(study.cells[0], Cell { block_size: 512, num_bytes: 512 << 10, sync: Arm::None });
        assert_eq!(study.cells[255], Cell { block_size: 64 << 10, num_bytes: 64 << 20, sync: Arm::Fsync });
        assert_eq!(study.cells[7 * 4].blocks(), 131_072);
        let quick = Osync::new(true, None);
        assert_eq!((quick.cells.len(), quick.repeats), (9 * 4, 2));
        assert!(quick.cells.iter().all(|cell| cell.num_bytes <= 4 << 20));
        assert_eq!(Osync::new(true, Some(7)).repeats, 7);
    }

    #[test]
    fn a_fast_disk_gets_all_runs() {
        let mut study = Osync::new(false, None);
        study.reduce(Nanos::seconds(600.0), fast);
        assert_eq!(study, Osync::new(false, None));
    }

    #[test]
    fn a_slow_disk_gets_fewer_repetitions_and_then_fewer_of_the_smallest_blocks() {
        let longest = Nanos::seconds(600.0);
        let whole = Osync::new(false, None);
        let mut study = whole.clone();
        study.reduce(longest, |_| Nanos::seconds(150e-6));
        assert_eq!((study.cells.len(), study.repeats), (64 * 4, 3));
        let said = study.left_out.unwrap();
        assert!(said.contains("left out in all arms: 2 of 5 repetitions;"), "{said}");
        let mut study = whole.clone();
        study.reduce(longest, slow);
        assert!(study.expected(slow) <= longest && study.repeats == 2);
        let said = study.left_out.unwrap();
        assert!(said.contains(": 3 of 5 repetitions, files from 1 MiB on in blocks of 512 B, "), "{said}");
        // All sizes of blocks are still there.
        let is_kept = |one: &Cell| study.cells.iter().any(|kept| kept.block_size == one.block_size);
        assert!(whole.cells.iter().all(is_kept));
        // Asked for one repetition, it makes no more.
        let mut study = Osync::new(true, Some(1));
        study.reduce(Nanos::seconds(1.0), slow);
        assert_eq!((study.repeats, study.cells.len()), (1, MIN_CELLS * 4));
    }

    fn predicted(sync: Arm) -> Predicted {
        let cell = Cell { block_size: 4 << 10, num_bytes: 1 << 20, sync };
        Predicted::of(cell, &HostProfile::uncalibrated(), 1).unwrap()
    }

    #[test]
    fn eq_4_by_hand() {
        // 100 µs, and 4096 bytes at 2 GB/s and at 500 MB/s.
        let cost = eq4(&HostProfile::uncalibrated(), 1, Bytes(4096));
        assert!((cost.get() - (100e3 + 2048.0 + 8192.0)).abs() < 1e-6, "{cost}");
        let eq4 = predicted(Arm::OSync).eq4.unwrap();
        assert!((eq4 - 256.0 * cost.as_seconds()).abs() < 1e-12);
        assert_eq!((predicted(Arm::None).eq4, predicted(Arm::Fsync).eq4), (None, None));
    }

    #[test]
    fn waiting_for_the_device_costs_more_than_not_and_each_time_more_than_once() {
        let of = |sync| predicted(sync).models.get("kernel");
        assert!(of(Arm::None) < of(Arm::Fsync) && of(Arm::Fsync) < of(Arm::ODsync), "{:?}", Arm::ALL.map(of));
        assert!(of(Arm::ODsync) <= of(Arm::OSync), "{:?}", Arm::ALL.map(of));
        let cawl = predicted(Arm::OSync);
        // A whole number of its blocks: the paper's Eq. 3 is its Eq. 4 then, but for the first seek.
        assert!((cawl.models.get("cawl") / cawl.eq4.unwrap() - 1.0).abs() < 0.05, "{cawl:?}");
    }
}
