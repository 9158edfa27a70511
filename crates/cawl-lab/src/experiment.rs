//! The paper's evaluation on this machine or on an emulated disk: runs are recorded, replayed through the
//! models, judged and drawn.
//!
//! The law: **nothing is left behind** but the results: files, emulated disk and lowered limits are removed
//! or restored. The recordings stay on every way out, and the page names what is missing.
//! docs/science/EXPERIMENTS.md explains each figure.
//!
//! Figures 4 to 9: [`plan`] has the runs of each, the program workload.c makes them, [`record`] records them,
//! [`judge`] predicts, and [`plot`] draws. The figures of other documents: [`study`].

mod judge;
mod pattern;
mod period;
mod plan;
pub mod plot;
mod record;
pub mod report;
mod results;
pub mod study;
mod tables;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::recorded::RecordedRun;
use anyhow::Context;
use cawl_core::{Bytes, HostProfile, Nanos};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use cawl_measure::slow_limit::{self, Budget};

use crate::args::{Experiment, ExperimentArgs};
use crate::ground::Ground;
use plan::{Panel, Sizes};
use record::{Recorder, SuiteFile};

pub use results::Evaluation;
use results::{OutFolder, Results};
pub use tables::text;

/// One run of a panel with its repetitions.
#[derive(Debug)]
pub struct Repeated {
    /// The run and how it is drawn.
    pub panel: Panel,
    pub runs: Vec<RecordedRun>,
    /// Write requests of the device in each.
    pub requests: Vec<u64>,
}

/// Records and judges the experiments. `profile`: that for the models, if one was named; `signal` holds the
/// number of a signal that asks to stop, or zero.
pub fn run(
    options: &ExperimentArgs,
    profile: Option<HostProfile>,
    signal: &Arc<AtomicUsize>,
) -> anyhow::Result<Evaluation> {
    let started = cawl_host::now();
    let out = OutFolder::create(&options.out)?;
    let mut ground = Ground::prepare(&options.site(), profile, signal)?;
    let figures = planned(options, &ground);
    let scratch = Scratch::create(&ground.place.folder, scratch::EXPERIMENT)?;
    require_room(&scratch, &figures)?;

    // Needs root, as lowering limits does: memory that a run frees would otherwise lie in lists for folios of
    // other sizes.
    if let Some(lowered) = &mut ground.lowered {
        lowered.shorten_page_lists()?;
    }
    let mut results = Results::new(options, &ground, figures, out, started)?;
    let recorded = record_all(options, &scratch, &ground, &mut results, signal);
    // Recorded runs are judged also after an error.
    let kept = results.write_all()?;
    match recorded {
        Ok(()) => Ok(results.evaluation()),
        Err(error) if kept => Err(error.context(format!(
            "the evaluation is incomplete; the runs recorded so far are in {}, which lists the missing ones",
            options.out.join("index.html").display()
        ))),
        Err(error) => Err(error),
    }
}

/// Records all runs with their repetitions, and draws each figure when it is complete.
fn record_all(
    options: &ExperimentArgs,
    scratch: &Scratch,
    ground: &Ground,
    results: &mut Results,
    signal: &AtomicUsize,
) -> anyhow::Result<()> {
    let profile = results.profile.clone();
    let recorder = Recorder {
        place: &ground.place,
        scratch,
        profile: &profile,
        hold: options.lowered().is_some() && options.settle > Nanos::ZERO,
        signal,
    };
    let mut progress = Progress::new(expected(&results.figures, &profile, options.repeats_of_figures()));
    let repeats = options.repeats_of_figures();
    for repeat in 1..=repeats {
        let folder = results.out.path.join(format!("run{repeat}"));
        let device = options.disk.clone().unwrap_or_else(|| profile.name.clone());
        let mut suite = SuiteFile::create(&folder, &device, &profile)?;
        for figure in 0..results.figures.len() {
            let mut followed = options.lowered().is_none();
            for run in 0..results.figures[figure].1.len() {
                Interrupted::by(signal)?;
                let panel = &results.figures[figure].1[run].panel;
                let scenario = panel.scenario.clone();
                // Earlier runs may have changed the kernel's estimate of the device.
                if panel.dirty && !std::mem::replace(&mut followed, true) {
                    let budget = Budget::of_time(options.settle);
                    let outcome = slow_limit::follow(scratch, ground.before, budget, &mut progress, signal)?;
                    results.note(outcome.note);
                    results.held_to(outcome.base_rate)?;
                }
                progress.begin(format!("repeat {repeat} of {repeats}: {}", scenario.name));
                let recording = suite.add(&recorder, &scenario)?;
                let repeated = &mut results.figures[figure].1[run];
                repeated.runs.push(recording.run);
                repeated.requests.extend(recording.requests);
                results.note(recording.notes);
            }
            results.write(figure)?;
        }
    }
    Ok(())
}

/// The runs to record.
fn planned(options: &ExperimentArgs, ground: &Ground) -> Vec<(Experiment, Vec<Repeated>)> {
    let sizes = Sizes::new(&ground.profile, ground.place.block, options.scale);
    let repeated = |panel: Panel| Repeated { panel, runs: Vec::new(), requests: Vec::new() };
    let runs = |experiment: Experiment| experiment.panels(&sizes).into_iter().map(repeated).collect();
    let wanted = Experiment::resolve(&options.figures()).into_iter();
    wanted.map(|experiment| (experiment, runs(experiment))).collect()
}

/// Bytes of each run's file.
fn lengths(figures: &[(Experiment, Vec<Repeated>)]) -> impl Iterator<Item = u64> {
    figures.iter().flat_map(|(_, runs)| runs).map(|repeated| repeated.panel.scenario.length.0)
}

/// Fails if a run needs more than half of the free space.
fn require_room(scratch: &Scratch, figures: &[(Experiment, Vec<Repeated>)]) -> anyhow::Result<()> {
    scratch.require(Bytes(lengths(figures).max().unwrap_or(0) * 2)).map(drop).context(
        "the experiments write files of several times the dirty limit; lower it with --limits (as root), or \
         write less with --scale",
    )
}

/// Expected time: the bytes at the device's rate, with think times.
fn expected(figures: &[(Experiment, Vec<Repeated>)], profile: &HostProfile, repeats: usize) -> Nanos {
    let seconds =
        lengths(figures).map(|length| 2.0 + 1.2 * length as f64 / profile.device.writeback.value.get());
    Nanos::seconds(seconds.sum::<f64>() * repeats as f64)
}
