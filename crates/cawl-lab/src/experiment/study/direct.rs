//! Direct and buffered writes: figures 1, 3, 5 and 6 of "No such thing as a bad workload; only unsuitable
//! system calls?" (002), observed and predicted.
//!
//! The law: **durable is compared with durable.** A direct write without O_SYNC may be in the device's cache
//! only, a buffered one without fsync in the machine's.

mod findings;
mod grid;
mod measure;
mod predict;
mod theirs;

use cawl_core::{Density, HostProfile, Nanos, median, quantile};
use cawl_measure::interrupt::Interrupted;
use serde::Serialize;

use self::grid::{Access, Cell, Grid, Mode};
use self::measure::Seen;
pub(super) use self::measure::is_refusal;
pub(super) use self::theirs::READ_BACK;
use super::{Bench, Section, Table};
use cawl_console::compact;

/// Repetitions, unless told otherwise.
const REPEATS: usize = 2;

/// Fewest calls from which on modes of their cost are told.
const MODES_OF: usize = 100;

/// Of a cell, observed and predicted. Times in ns a call, medians but for `mean` and `processor`.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    calls: usize,
    observed: f64,
    p10: f64,
    p90: f64,
    mean: f64,
    /// Of this thread.
    processor: f64,
    /// Share of the calls that met their first page in the cache.
    met: f64,
    kernel: f64,
    naive: f64,
    /// Modes of the observed times: where each is highest, and its share of the calls.
    modes: Vec<(f64, f64)>,
    /// Bytes per second of reading it again.
    read_back: Option<f64>,
}

/// All cells that were measured.
#[derive(Debug)]
pub(super) struct Outcomes(Vec<Outcome>);

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

/// The time that the study takes, about.
pub(super) fn expected(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 10.0 } else { 100.0 })
}

/// The section; fewer sizes and calls if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    let grid = Grid::new(quick);
    let cells: Vec<Cell> = grid.cells().collect();
    let mut seen = vec![Some(Seen::default()); cells.len()];
    let repeats = bench.repeats.unwrap_or(REPEATS);
    for repeat in 1..=repeats {
        for (cell, seen) in cells.iter().zip(&mut seen) {
            Interrupted::by(bench.signal)?;
            bench.progress.begin(format!(
                "repeat {repeat} of {repeats}: {} of {}, {}",
                cell.mode.name(),
                compact::bytes(cell.size),
                cell.access.name()
            ));
            let seconds = grid.seconds / repeats as f64;
            if let Some(found) = seen
                && !measure::measure(bench, &grid, *cell, seconds, found)?
            {
                *seen = None;
            }
        }
    }
    let judged = cells.iter().zip(&seen).filter_map(|(cell, seen)| Some((cell, seen.as_ref()?)));
    let judged = judged.map(|(cell, seen)| outcome(bench.profile, &grid, *cell, seen));
    let outcomes = Outcomes(judged.collect::<anyhow::Result<Vec<Outcome>>>()?);
    let refused = seen.iter().filter(|seen| seen.is_none()).count();
    told(bench, &outcomes, refused)
}

fn outcome(profile: &HostProfile, grid: &Grid, cell: Cell, seen: &Seen) -> anyhow::Result<Outcome> {
    let calls = seen.times.len();
    let at = |part| quantile(&seen.times, part).unwrap_or(f64::NAN);
    let predicted = |model| {
        let costs = predict::predicted(model, profile, grid, cell, &grid.offsets(cell))?;
        anyhow::Ok(median(&costs).unwrap_or(f64::NAN))
    };
    let density = (calls >= MODES_OF).then(|| Density::of(seen.times.iter().map(|time| Nanos::new(*time))));
    let modes = density.flatten().map(|density| density.modes).unwrap_or_default();
    Ok(Outcome {
        cell,
        calls,
        observed: at(0.5),
        p10: at(0.1),
        p90: at(0.9),
        mean: seen.times.iter().sum::<f64>() / calls as f64,
        processor: seen.processor / calls as f64,
        met: seen.met as f64 / calls as f64,
        kernel: predicted("kernel")?,
        naive: predicted("naive")?,
        modes: modes.iter().map(|mode| (mode.peak, mode.share)).collect(),
        read_back: median(&seen.read_back),
    })
}

fn told(bench: &Bench, outcomes: &Outcomes, refused: usize) -> anyhow::Result<Section> {
    let mut text = vec![
        "Each write is timed together with the sync after it, if there is one. Times are medians in µs a call, since a \
         mean is that of the disturbances; MB/s are bytes over the sum of all times. KERNEL and NAIVE predict the \
         median in open loop; OFF is by how much. CPU is the processor's time of the writing thread, the flusher's not \
         included. CACHED is the share of calls that met their first page in the page cache, by construction. MODES \
         are the humps of the density of the times, with their shares of the calls."
            .to_owned(),
        format!(
            "{} on {}. Files to write over are written in calls of 1 MiB and synchronised before; the uncached ones \
             are dropped from the cache (posix_fadvise). Places are multiples of the size and the same for every mode.",
            bench.place.filesystem, bench.place.device
        ),
    ];
    if refused > 0 {
        text.push(format!(
            "{refused} kinds of calls are left out: the filesystem or the device refuses O_DIRECT, or blocks of that \
             size with it."
        ));
    }
    let per_access = Access::ALL.into_iter().map(|access| cells_table(outcomes, access));
    Ok(Section {
        name: "direct",
        title: "Direct and buffered writes".to_owned(),
        text,
        tables: per_access
            .chain([
                findings::figures(outcomes),
                findings::conditions(outcomes),
                findings::read_back(outcomes),
            ])
            .collect(),
        findings: findings::findings(outcomes),
        data: serde_json::to_value(&outcomes.0)?,
        ..Section::default()
    })
}

fn cells_table(outcomes: &Outcomes, access: Access) -> Table {
    let header = [
        "size", "mode", "calls", "MB/s", "p10", "median", "p90", "cpu", "cached", "kernel", "off", "naive",
        "off", "modes",
    ];
    let row = |one: &Outcome| {
        let off = |predicted: f64| format!("{:+.0} %", (predicted / one.observed - 1.0) * 100.0);
        let modes = one.modes.iter().map(|(peak, share)| format!("{} {:.0} %", micros(*peak), share * 100.0));
        vec![
            compact::bytes(one.cell.size),
            one.cell.mode.name().to_owned(),
            one.calls.to_string(),
            compact::three(one.cell.size as f64 / one.mean * 1e3),
            micros(one.p10),
            micros(one.observed),
            micros(one.p90),
            micros(one.processor),
            format!("{:.0} %", one.met * 100.0),
            micros(one.kernel),
            off(one.kernel),
            micros(one.naive),
            off(one.naive),
            modes.collect::<Vec<_>>().join(", "),
        ]
    };
    Table {
        caption: format!("Writes, {}: µs a call", access.name()),
        header: header.map(str::to_owned).to_vec(),
        rows: outcomes.0.iter().filter(|one| one.cell.access == access).map(row).collect(),
    }
}

/// A time in ns as µs.
fn micros(ns: f64) -> String {
    compact::three(ns / 1e3)
}
