//! Reads: the classes of dd's reads of "Analyzing and Assessing I/O Performance" (001), and figures 2, 4, 7
//! and 8 of "No such thing as a bad workload; only unsuitable system calls?" (002), observed and predicted.
//!
//! The law: **what is cached is known by construction.** A file was just written through the page cache, or
//! past it, or it was synchronised and dropped from it. What the device has in a cache of its own is not
//! known; the page tells what calibration found.

mod classes;
mod dd;
mod dd_findings;
mod findings;
mod grid;
mod measure;
mod predict;

use cawl_console::compact;
use cawl_core::{Density, HostProfile, Nanos, median, quantile};
use cawl_measure::interrupt::Interrupted;
use serde::Serialize;
use serde_json::json;

use self::classes::Classes;
use self::grid::{Access, Cell, Grid};
use self::measure::Seen;
use super::{Bench, Section, Table};

/// Repetitions, unless told otherwise.
const REPEATS: usize = 2;

/// Fewest calls from which on modes of their cost are told.
const MODES_OF: usize = 100;

/// Of a cell, observed and predicted. Times in ns a call.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    cell: Cell,
    calls: usize,
    /// Median.
    observed: f64,
    p10: f64,
    p90: f64,
    /// Of all calls of a repetition; the median of the repetitions.
    mean: f64,
    /// Of what is `typical`.
    kernel: f64,
    naive: f64,
    /// Modes of the observed times per byte: where each is highest, and its share of the calls.
    modes: Vec<(f64, f64)>,
}

impl Outcome {
    /// What of the calls is predicted: of reads in sequence the mean, since readahead makes some take much
    /// longer than others; of random ones, which are alike, the median.
    fn typical(&self) -> f64 {
        if self.cell.access.is_random() { self.observed } else { self.mean }
    }

    /// Bytes per second of calls that take so long.
    fn rate(&self, time: f64) -> f64 {
        self.cell.size as f64 / time * 1e9
    }
}

/// All cells that were measured.
#[derive(Debug)]
struct Outcomes(Vec<Outcome>);

impl Outcomes {
    fn of(&self, size: u64, access: Access) -> Option<&Outcome> {
        let cell = Cell { size, access };
        self.0.iter().find(|outcome| outcome.cell == cell)
    }

    /// Those of an access, by size.
    fn all(&self, access: Access) -> impl Iterator<Item = &Outcome> {
        self.0.iter().filter(move |outcome| outcome.cell.access == access)
    }
}

/// The time that the study takes, about.
pub(super) fn expected(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 10.0 } else { 60.0 })
}

/// The reads of dd, in classes.
pub(super) fn classes(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    let calls = if quick { dd::QUICK_CALLS } else { dd::CALLS };
    let [cached, uncached] = dd::measure(bench, calls)?;
    let [document, disk] = [Classes::of_document(), Classes::of_disk(bench.profile, dd::SIZE)];
    let runs = [dd::Run::new(bench.profile, true, cached)?, dd::Run::new(bench.profile, false, uncached)?];
    let mut tables = Vec::new();
    for run in &runs {
        for classes in [&document, &disk] {
            tables.push(classes.table(run));
        }
    }
    let device = &bench.profile.device;
    Ok(Section {
        name: "read-classes",
        title: "Reads of dd by class".to_owned(),
        text: vec![
            format!(
                "A file of {} is read from its begin to its end in {calls} calls of {}: cached, since it was just \
                 written; and after it was synchronised and dropped from the cache (posix_fadvise). The document's \
                 calls are of 1 MiB, on Lustre. Each call is timed, without the cost of reading the clock, and without \
                 waits for a processor (run delay) where it takes 50 µs or more.",
                compact::bytes(calls as u64 * dd::SIZE),
                compact::bytes(dd::SIZE),
            ),
            format!(
                "The document's classes have fixed bounds. Those of this disk are made of its constants: a read from \
                 the cache takes {}, one from the device {}{}, and a call waits for at most a window of readahead, \
                 {}, which takes {} more. KERNEL has the classes of what the model predicts.",
                compact::seconds(disk.memory * 1e-9),
                compact::seconds(disk.device * 1e-9),
                disk.cache.map_or(String::new(), |cache| format!(
                    ", from its own cache {}",
                    compact::seconds(cache * 1e-9)
                )),
                compact::bytes(device.readahead.0),
                compact::seconds(disk.window * 1e-9),
            ),
        ],
        tables,
        findings: dd_findings::findings(&runs, &document, &disk),
        data: json!({ "runs": runs, "document": document, "disk": disk }),
        ..Section::default()
    })
}

/// Sequential and random reads; fewer sizes and calls if `quick`.
pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    let grid = Grid::new(quick);
    let cells: Vec<Cell> = grid.cells().collect();
    let mut seen = vec![Some(Seen::default()); cells.len()];
    let repeats = bench.repeats.unwrap_or(REPEATS);
    for repeat in 1..=repeats {
        measure::make_random(bench, &grid)?;
        for (cell, seen) in cells.iter().zip(&mut seen) {
            Interrupted::by(bench.signal)?;
            let (size, access) = (compact::bytes(cell.size), cell.access.name());
            bench.progress.begin(format!("repeat {repeat} of {repeats}: {size}, {access}"));
            if let Some(found) = seen
                && !measure::measure(bench, &grid, *cell, found)?
            {
                *seen = None;
            }
        }
        bench.scratch.remove(measure::RANDOM);
    }
    let judged = cells.iter().zip(&seen).filter_map(|(cell, seen)| Some((cell, seen.as_ref()?)));
    let judged = judged.map(|(cell, seen)| outcome(bench.profile, &grid, *cell, seen));
    let outcomes = Outcomes(judged.collect::<anyhow::Result<Vec<Outcome>>>()?);
    let refused = seen.iter().filter(|seen| seen.is_none()).count();
    told(bench, &grid, &outcomes, refused)
}

fn outcome(profile: &HostProfile, grid: &Grid, cell: Cell, seen: &Seen) -> anyhow::Result<Outcome> {
    let times: Vec<f64> = seen.runs.concat();
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let at = |part| quantile(&times, part).unwrap_or(f64::NAN);
    let calls = seen.runs.iter().map(Vec::len).max().unwrap_or(0);
    let predicted = |model| {
        let costs = predict::predicted(model, profile, grid, cell, calls)?;
        let typical = match cell.access.is_random() {
            true => median(&costs),
            false => Some(mean(&costs)),
        };
        anyhow::Ok(typical.unwrap_or(f64::NAN))
    };
    let per_byte = || times.iter().map(|time| Nanos::new(*time / cell.size as f64));
    let density = (times.len() >= MODES_OF).then(|| Density::of(per_byte()));
    let modes = density.flatten().map(|density| density.modes).unwrap_or_default();
    Ok(Outcome {
        cell,
        calls: times.len(),
        observed: at(0.5),
        p10: at(0.1),
        p90: at(0.9),
        mean: median(&seen.runs.iter().map(|run| mean(run)).collect::<Vec<f64>>()).unwrap_or(f64::NAN),
        kernel: predicted("kernel")?,
        naive: predicted("naive")?,
        modes: modes.iter().map(|mode| (mode.peak, mode.share)).collect(),
    })
}

fn told(bench: &Bench, grid: &Grid, outcomes: &Outcomes, refused: usize) -> anyhow::Result<Section> {
    let mut text = vec![
        format!(
            "Files of {} are written in calls of the size, {}; or past the cache in calls of 1 MiB; or with fsync \
             after each write, as many as fit into {} s. Then they are read from their begin to their end, through \
             the page cache. Random reads go to a file of {} that was synchronised and dropped from the cache, no \
             place twice.",
            compact::bytes(grid.length),
            "through the page cache",
            grid.seconds,
            compact::bytes(grid.random),
        ),
        "MB/s are bytes over time: of reads in sequence the mean time of a repetition's calls, since readahead makes \
         some take much longer than others, and the median of the repetitions; of random reads the median time. Waits \
         for a processor (run delay) are not included where a call takes 50 µs or more. KERNEL and NAIVE predict the same; OFF is by how much. P10, MEDIAN and P90 \
         are µs of single calls. MODES are the humps of the density of the times per byte, in ns, with their shares \
         of the calls."
            .to_owned(),
    ];
    if refused > 0 {
        text.push(format!(
            "{refused} kinds of calls are left out: the filesystem or the device refuses O_DIRECT, or blocks of that \
             size with it."
        ));
    }
    Ok(Section {
        name: "reads",
        title: "Reads after buffered and direct writes, and random reads".to_owned(),
        text,
        tables: Access::ALL.into_iter().map(|access| table(outcomes, access)).collect(),
        findings: findings::findings(bench.profile, outcomes),
        data: serde_json::to_value(&outcomes.0)?,
        ..Section::default()
    })
}

fn table(outcomes: &Outcomes, access: Access) -> Table {
    let header =
        ["size", "calls", "MB/s", "p10", "median", "p90", "kernel", "off", "naive", "off", "theirs", "modes"];
    let row = |one: &Outcome| {
        let rate = |time: f64| compact::three(one.rate(time) / 1e6);
        let off = |time: f64| format!("{:+.0} %", (one.typical() / time - 1.0) * 100.0);
        let theirs = findings::theirs(one.cell).map_or("-".to_owned(), |rate| compact::three(rate / 1e6));
        let modes =
            one.modes.iter().map(|(peak, share)| format!("{} {:.0} %", compact::three(*peak), share * 100.0));
        let head = [compact::bytes(one.cell.size), one.calls.to_string(), rate(one.typical())];
        let times = [one.p10, one.observed, one.p90].map(|time| compact::three(time / 1e3));
        let models = [one.kernel, one.naive].map(|time| [rate(time), off(time)]);
        let rest = [theirs, modes.collect::<Vec<_>>().join(", ")];
        head.into_iter().chain(times).chain(models.into_iter().flatten()).chain(rest).collect()
    };
    Table {
        caption: format!("Reads, {}", access.name()),
        header: header.map(str::to_owned).to_vec(),
        rows: outcomes.all(access).map(row).collect(),
    }
}
