//! Direct and buffered writes: figures 1, 3, 5 and 6 of "No such thing as a bad workload; only unsuitable
//! system calls?" (002), observed and predicted.
//!
//! The law: **durable is compared with durable.** A direct write without O_SYNC may be in the device's cache
//! only, a buffered one without fsync in the machine's.

mod findings;
mod theirs;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_console::compact;
use cawl_core::{HostProfile, median, named};
use cawl_host::direct::AlignedBuffer;
use cawl_wire::{Op, flag};
use fastrand::Rng;
use nix::fcntl::OFlag;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

pub(super) use self::theirs::READ_BACK;
use super::calls::{
    self, ByModel, PIECE, Shown, Timed, call, drop_cached, fill, micros, off, unless_refused, with_models,
    write,
};
use super::{Bench, Made, Section, Study, Table, make};

named! {
    /// How the file is open, and what follows each write.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Mode {
        /// Through the page cache.
        Buffered = "buffered",
        /// O_DIRECT, which is not durable.
        Direct = "direct",
        DirectSync = "direct, O_SYNC",
        /// Through the page cache, and fsync after each write.
        Fsync = "buffered, fsync",
        /// Through the page cache, and fdatasync after each write.
        Fdatasync = "buffered, fdatasync",
    }
}

impl Mode {
    /// Flags of the open, and of the calls for the models.
    fn flags(self) -> (OFlag, u32) {
        match self {
            Mode::Direct => (OFlag::O_DIRECT, flag::DIRECT),
            Mode::DirectSync => (OFlag::O_DIRECT | OFlag::O_SYNC, flag::DIRECT | flag::SYNC),
            Mode::Buffered | Mode::Fsync | Mode::Fdatasync => (OFlag::empty(), 0),
        }
    }
}

named! {
    /// Where the writes go.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Access {
        /// One behind the other into a new file.
        Append = "appending",
        /// Random places of a file that is on the disk and cached.
        Warm = "random, cached file",
        /// Random places of a file that is on the disk and not cached.
        Cold = "random, uncached file",
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Cell {
    /// Bytes of each write.
    size: u64,
    mode: Mode,
    access: Access,
}

/// The study: its cells, and how much of each.
struct Direct {
    cells: Vec<Cell>,
    /// Most calls of a cell in a repetition, and most bytes of them.
    most: (u64, u64),
    /// Length of a file that is written over.
    length: u64,
    /// Time of a cell's calls in all repetitions, in seconds.
    seconds: f64,
}

/// A page, of which small calls are parts.
const PAGE: u64 = 4096;
const FILE: &str = "direct";

impl Direct {
    /// The document's sizes, or three of them.
    fn new(quick: bool) -> Direct {
        let sizes: &[u64] = if quick { &[512, 4 << 10, 64 << 10] } else { &theirs::SIZES };
        let of_size = |access| move |size: &u64| Mode::ALL.map(|mode| Cell { size: *size, mode, access });
        let of_access = |access| sizes.iter().flat_map(of_size(access));
        let cells = Access::ALL.into_iter().flat_map(of_access).collect();
        match quick {
            true => Direct { cells, most: (400, 8 << 20), length: 8 << 20, seconds: 0.25 },
            false => Direct { cells, most: (2000, 32 << 20), length: 32 << 20, seconds: 1.2 },
        }
    }

    /// Where the calls of a cell write, as far as its time is enough; the same places for each mode.
    fn offsets(&self, cell: Cell) -> Vec<u64> {
        let calls = self.most.0.min(self.most.1 / cell.size);
        let mut lot = Rng::with_seed(cell.size);
        let place = |at| match cell.access {
            Access::Append => at * cell.size,
            Access::Warm | Access::Cold => lot.u64(..self.length / cell.size) * cell.size,
        };
        (0..calls).map(place).collect()
    }

    /// How many of these calls meet their first page in the cache: of a cached file all do until a direct
    /// write has dropped it, of others those whose page an earlier one has brought in.
    fn met(&self, cell: Cell, offsets: &[u64]) -> usize {
        let pages = |end: u64| end.div_ceil(PAGE) as usize;
        let end = offsets.iter().map(|at| at + cell.size).max().unwrap_or(0);
        let mut cached = vec![cell.access == Access::Warm; pages(end.max(self.length))];
        let is_direct = !cell.mode.flags().0.is_empty();
        let meets = |at: &&u64| {
            let first = (**at / PAGE) as usize;
            let met = cached[first];
            cached[first..pages(**at + cell.size)].fill(!is_direct);
            met
        };
        offsets.iter().filter(meets).count()
    }

    /// The file as the calls find it.
    fn file(&self, bench: &Bench, cell: Cell) -> anyhow::Result<File> {
        let file = bench.scratch.file(FILE)?;
        if cell.access != Access::Append {
            fill(bench, &file, self.length, PIECE)?;
            file.sync_all()?;
            if cell.access == Access::Cold {
                drop_cached(&file)?;
            }
        }
        bench.scratch.again(FILE, cell.mode.flags().0)
    }

    fn calls(&self, bench: &Bench, file: &File, cell: Cell) -> anyhow::Result<Seen> {
        let data = AlignedBuffer::new(cell.size as usize);
        let offsets = self.offsets(cell);
        let seconds = self.seconds / self.repeats(bench.repeats) as f64;
        let before = processor_time()?;
        let times = calls::timed(bench, &offsets, seconds, |at| {
            file.write_all_at(data.bytes(), at)?;
            match cell.mode {
                Mode::Fsync => file.sync_all(),
                Mode::Fdatasync => file.sync_data(),
                Mode::Buffered | Mode::Direct | Mode::DirectSync => Ok(()),
            }
        })?;
        let processor = processor_time()? - before;
        let met = self.met(cell, &offsets[..times.len()]);
        let is_read = cell.access == Access::Append && matches!(cell.mode, Mode::Buffered | Mode::Direct);
        let read_back = is_read.then(|| read_back(bench, cell.size)).transpose()?;
        Ok(Seen { times, processor, met, read_back })
    }

    /// What a model predicts of a cell's calls, with the sync after each, in ns.
    fn predicted(&self, model: &str, profile: &HostProfile, cell: Cell) -> anyhow::Result<Vec<f64>> {
        let mut shown = Shown::to(model, profile)?;
        if cell.access != Access::Append {
            shown.fill(self.length, PIECE, 0);
            shown.sync();
            if cell.access == Access::Cold {
                shown.drop_cached();
            }
        }
        let cost = |at: u64| {
            let written = shown.step(write(at, cell.size, cell.mode.flags().1));
            written
                + match cell.mode {
                    Mode::Fsync => shown.sync(),
                    Mode::Fdatasync => shown.step(call(Op::Fdatasync)),
                    Mode::Buffered | Mode::Direct | Mode::DirectSync => 0.0,
                }
        };
        Ok(self.offsets(cell).into_iter().map(cost).collect())
    }

    fn outcome(&self, profile: &HostProfile, cell: Cell, seen: &[&Seen]) -> anyhow::Result<Outcome> {
        let times: Vec<f64> = seen.iter().flat_map(|seen| &seen.times).copied().collect();
        let mean = |sum: f64| sum / times.len() as f64;
        let predicted = |model| Ok(median(&self.predicted(model, profile, cell)?).unwrap_or(f64::NAN));
        Ok(Outcome {
            cell,
            timed: Timed::new(&times, mean(times.iter().sum()), 1.0, ByModel::of(predicted)?),
            processor: mean(seen.iter().map(|seen| seen.processor).sum()),
            met: mean(seen.iter().map(|seen| seen.met).sum::<usize>() as f64),
            read_back: median(&seen.iter().filter_map(|seen| seen.read_back).collect::<Vec<_>>()),
        })
    }
}

/// What was observed of a cell in a repetition.
struct Seen {
    /// Of each call, with the sync after it, in ns.
    times: Vec<f64>,
    /// Processor time of the thread for all of them, in ns.
    processor: f64,
    /// Calls that met their first page in the cache.
    met: usize,
    /// Bytes per second of reading an appended file again; of calls that need not be durable alone.
    read_back: Option<f64>,
}

/// Processor time of this thread, in ns. getrusage has the same in whole ticks only.
fn processor_time() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("cannot read this thread's clock")?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Reads the file from its begin to its end through the page cache, in calls of this size.
fn read_back(bench: &Bench, size: u64) -> anyhow::Result<f64> {
    let mut file = bench.scratch.again(FILE, OFlag::empty())?;
    let mut data = vec![0; size as usize];
    let (start, mut bytes) = (cawl_host::now(), 0);
    loop {
        match file.read(&mut data)? {
            0 => break,
            read => bytes += read,
        }
    }
    Ok(bytes as f64 / cawl_host::now().since(start).as_seconds())
}

/// Of a cell, observed and predicted: medians of a call.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    #[serde(flatten)]
    timed: Timed,
    /// Processor time of a call, of this thread, in ns: mean.
    processor: f64,
    /// Share of the calls that met their first page in the cache.
    met: f64,
    /// Bytes per second of reading it again.
    read_back: Option<f64>,
}

struct Outcomes(Vec<Outcome>);

impl Outcomes {
    fn of(&self, size: u64, mode: Mode, access: Access) -> Option<&Outcome> {
        let cell = Cell { size, mode, access };
        self.0.iter().find(|outcome| outcome.cell == cell)
    }

    fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.0.iter().map(|outcome| outcome.cell.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// The section; fewer sizes and calls if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    make(&Direct::new(quick), bench)
}

impl Study for Direct {
    type Cell = Cell;
    type Run = Seen;

    const NAME: &'static str = "direct and buffered writes";

    fn cells(&self) -> &[Cell] {
        &self.cells
    }

    fn describe(&self, cell: Cell) -> String {
        format!("{} of {}, {}", cell.mode.name(), compact::bytes(cell.size), cell.access.name())
    }

    fn run(&self, bench: &Bench, cell: Cell) -> anyhow::Result<Option<Seen>> {
        let made = self.file(bench, cell).and_then(|file| self.calls(bench, &file, cell));
        bench.scratch.remove(FILE);
        unless_refused(made)
    }

    fn judge(&self, bench: &mut Bench, made: &Made<Cell, Seen>) -> anyhow::Result<Section> {
        let outcome = |cell, seen: &[&Seen]| self.outcome(bench.profile, cell, seen);
        let outcomes = Outcomes(made.outcomes(&self.cells, outcome)?);
        let text = [
            "Each write is timed together with the sync after it, if there is one. Times are medians in µs a call, \
             since a mean is that of the disturbances; MB/s are bytes over the sum of all times. The models predict \
             the median in open loop; OFF is by how much. CPU is the processor's time of the writing thread, the \
             flusher's not included. CACHED is the share of calls that met their first page in the page cache, by \
             construction. MODES are the humps of the density of the times, with their shares of the calls."
                .to_owned(),
            format!(
                "{} on {}. Files to write over are written in calls of 1 MiB and synchronised before; the uncached \
                 ones are dropped from the cache (posix_fadvise). Places are multiples of the size and the same for \
                 every mode.",
                bench.place.filesystem, bench.place.device
            ),
        ];
        let own =
            [findings::figures(&outcomes), findings::conditions(&outcomes), findings::read_back(&outcomes)];
        Ok(Section {
            name: "direct",
            title: "Direct and buffered writes".to_owned(),
            text: text.into_iter().chain(made.left_out()).collect(),
            tables: Access::ALL.map(|access| table(&outcomes, access)).into_iter().chain(own).collect(),
            findings: findings::findings(&outcomes),
            data: serde_json::to_value(&outcomes.0)?,
            ..Section::default()
        })
    }
}

fn table(outcomes: &Outcomes, access: Access) -> Table {
    let head = ["size", "mode", "calls", "MB/s", "p10", "median", "p90", "cpu", "cached"];
    let row = |one: &Outcome| {
        let Outcome { cell, timed, processor, met, .. } = one;
        let rate = compact::three(cell.size as f64 / timed.mean * 1e3);
        let head = [compact::bytes(cell.size), cell.mode.name().to_owned(), timed.calls.to_string(), rate];
        let rest = [micros(*processor), format!("{:.0} %", met * 100.0)];
        let models = timed.predicted.iter().map(|(_, cost)| [micros(cost), off(cost, timed.observed)]);
        let cells = head.into_iter().chain(timed.spread()).chain(rest).chain(models.flatten());
        cells.chain([timed.modes(micros)]).collect()
    };
    let rows = outcomes.0.iter().filter(|one| one.cell.access == access).map(row);
    Table::new(format!("Writes, {}: µs a call", access.name()), with_models(&head, &["modes"]), rows)
}

#[cfg(test)]
mod tests {
    use cawl_core::{Measured, Nanos, Rate};

    use super::*;

    #[test]
    fn a_grid_of_all_kinds_of_calls() {
        let (whole, quick) = (Direct::new(false), Direct::new(true));
        assert_eq!((whole.cells.len(), quick.cells.len()), (8 * 5 * 3, 3 * 5 * 3));
        assert!(quick.cells.iter().all(|cell| whole.cells.contains(cell)));
        for study in [&whole, &quick] {
            for &cell in &study.cells {
                let offsets = study.offsets(cell);
                assert!(offsets.len() >= 100, "{cell:?} has {} calls", offsets.len());
                assert!(offsets.iter().all(|at| at % cell.size == 0), "{cell:?}");
                let end = offsets.iter().map(|at| at + cell.size).max().unwrap();
                assert!(end <= study.length.max(offsets.len() as u64 * cell.size), "{cell:?}");
                let buffered = study.offsets(Cell { mode: Mode::Buffered, ..cell });
                assert_eq!(offsets, buffered, "others for another mode");
            }
        }
    }

    #[test]
    fn what_meets_a_cached_page_is_known_by_construction() {
        let study = Direct::new(false);
        let share = |size, mode, access| {
            let cell = Cell { size, mode, access };
            let offsets = study.offsets(cell);
            study.met(cell, &offsets) as f64 / offsets.len() as f64
        };
        assert_eq!(share(4096, Mode::Fsync, Access::Warm), 1.0);
        assert!(share(4096, Mode::Direct, Access::Warm) < 1.0, "a direct write drops what it writes");
        assert_eq!(share(4096, Mode::Direct, Access::Cold), 0.0);
        let again = share(4096, Mode::Buffered, Access::Cold);
        assert!((0.05..0.2).contains(&again), "{again} of 2000 writes hit one of 8192 pages a second time");
        // Seven of eight parts of a page follow one that was written.
        assert_eq!(share(512, Mode::Buffered, Access::Append), 0.875);
        assert_eq!(share(4096, Mode::Buffered, Access::Append), 0.0);
    }

    /// A device of 1 GB/s with requests of 30 µs, new blocks of 6, parts of them of 300, and commits of
    /// 2 ms; reads at 100 MB/s.
    fn profile() -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
        let device = &mut profile.device;
        (device.write.value, device.read.value) = (Rate::mb_per_second(1000.0), Rate::mb_per_second(100.0));
        (device.latency, device.direct) = (Some(micros(30.0)), Some(micros(30.0)));
        (device.allocation, device.partial) = (Some(micros(6.0)), Some(micros(300.0)));
        (device.fsync, device.sync_call, device.flush) =
            (micros(2000.0), micros(2000.0), Some(micros(500.0)));
        profile
    }

    /// The median of what a model predicts, in µs.
    fn of(model: &str, size: u64, mode: Mode, access: Access) -> f64 {
        let cell = Cell { size, mode, access };
        let costs = Direct::new(true).predicted(model, &profile(), cell).unwrap();
        assert!(costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0), "{cell:?}");
        median(&costs).unwrap() / 1e3
    }

    #[test]
    fn a_part_of_a_block_costs_more_where_the_file_grows() {
        let direct = |size, access| of("kernel", size, Mode::Direct, access);
        assert!(direct(512, Access::Append) > direct(4096, Access::Append) + 280.0);
        assert!(direct(512, Access::Warm) < direct(4096, Access::Warm));
        assert!(of("naive", 512, Mode::Direct, Access::Append) < 1.0, "naive has no fixed cost");
    }

    #[test]
    fn durable_writes_cost_a_commit_or_a_flush_whichever_way_they_go() {
        for mode in [Mode::DirectSync, Mode::Fsync, Mode::Fdatasync] {
            let of = |access| of("kernel", 4096, mode, access);
            // New blocks are committed; of others at most a time stamp, once in a tick.
            assert!(of(Access::Append) > 2000.0, "{mode:?}");
            assert!(of(Access::Warm) > 500.0 && of(Access::Cold) > 500.0, "{mode:?}");
        }
        assert!(of("kernel", 4096, Mode::Fdatasync, Access::Warm) < 2000.0);
        assert!(of("kernel", 4096, Mode::Buffered, Access::Warm) < 30.0);
    }

    #[test]
    fn a_part_of_an_uncached_page_is_read_first() {
        let cold = |size| of("kernel", size, Mode::Buffered, Access::Cold);
        assert!(cold(512) > 40.0 && cold(4096) < 30.0, "{} and {} µs", cold(512), cold(4096));
    }
}
