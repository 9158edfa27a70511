//! The O_SYNC study (Hawthorne, O_SYNC and Blocksize Effects on IO Performance) on the disk at hand: writes
//! of files in blocks, without and with O_SYNC, and two arms more, observed, predicted and fitted.
//!
//! The document times runs with `clock()`, which is the processor's time. Here wall, user and system time are
//! told apart, and the order of runs is random.

mod grid;
mod judge;
mod measure;
mod page;
mod predict;

use anyhow::Context;
use cawl_core::{Bytes, Nanos};
use cawl_host::output;
use cawl_measure::interrupt::Interrupted;
use serde_json::json;

use self::grid::{Grid, SEED};
use self::judge::{Judged, csv};
use super::{Bench, Section};

/// The time that it takes at most, as far as that is known before.
pub fn longest(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 60.0 } else { 600.0 })
}

/// Makes the runs, as many as there is time for by what the profile and a first write say, and judges them.
pub fn section(bench: &mut Bench) -> anyhow::Result<Section> {
    let Bench { scratch, profile, signal, .. } = *bench;
    let dev = bench.place.number;
    let mut grid = Grid::new(bench.quick, bench.repeats);
    let largest = grid.sizes.iter().map(|sizes| sizes.file).max().unwrap_or_default();
    scratch.require(Bytes(largest.0 * 2))?;
    bench.progress.begin("O_SYNC: a first write");
    // A profile may be another disk's, or nobody's.
    let first = measure::probe(scratch, signal)?;
    let waiting = |block| predict::eq4(profile, dev, block).max(first);
    let left_out = grid.reduce(longest(bench.quick), waiting);
    bench.notes.extend(left_out.iter().map(|text| format!("O_SYNC: {text}")));

    let runs = grid.runs();
    let mut made = Vec::with_capacity(runs.len());
    for (at, run) in runs.iter().enumerate() {
        Interrupted::by(signal)?;
        let (file, block) = (run.sizes.file, run.sizes.block);
        let what = format!("{file} in blocks of {block}, {}", run.sync.name());
        bench.progress.begin(format!("O_SYNC, run {} of {}: {what}", at + 1, runs.len()));
        made.push(measure::made(scratch, run, signal)?);
    }
    let file = bench.out.join("osync.csv");
    output::write(&file, output::FOR_ALL, csv(&made))
        .with_context(|| format!("cannot write {}", file.display()))?;
    bench.progress.begin("O_SYNC: the models");
    let judged = Judged::of(&made, &grid, profile, dev)?;
    let data = json!({
        "seed": SEED,
        "repeats": grid.repeats,
        "left_out": left_out,
        "runs": made,
        "judged": judged,
    });
    page::section(&judged, &made, data)
}
