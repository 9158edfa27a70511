//! The paper's evaluation on this machine or on an emulated disk: runs are recorded, replayed through the
//! models, judged and drawn.
//!
//! The law: **nothing is left behind** but the results: files, emulated disk and lowered limits are removed
//! or restored. The recordings stay on every way out, and the page names what is missing. docs/EXPERIMENTS.md
//! explains each figure.

mod disk;
mod judge;
mod page;
mod plan;
mod plot;
mod record;
mod results;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, bail};
use cawl_core::{Bytes, HostProfile, Nanos, RecordedRun};
use cawl_host::limits::LoweredLimits;
use cawl_host::place::{Backing, Place};
use cawl_host::profiles;

use crate::calibrate::progress::Progress;
use crate::calibrate::{self, Effort, Interrupted};
use crate::scratch::{self, Scratch};
use crate::slow_limit::{self, Budget};
use judge::{Errors, ModelErrors};
pub use plan::Experiment;
use plan::{Panel, Sizes};
use record::{Recorder, SuiteFile};
pub use results::Evaluation;
use results::{OutFolder, Results};
pub use text::text;

/// The options of an evaluation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiments.
    pub experiments: Vec<Experiment>,
    /// The folder to write in, unless the disk is emulated.
    pub path: PathBuf,
    /// An emulated disk.
    pub disk: Option<String>,
    /// Factor for the numbers of calls.
    pub scale: f64,
    /// The folder for results, new or empty.
    pub out: PathBuf,
    /// Repetitions of each run.
    pub repeats: usize,
    /// The profile, if not that of the place.
    pub profile: Option<HostProfile>,
    /// Effort of calibrating an emulated disk.
    pub effort: Effort,
    /// Dirty limits during the runs, background and hard.
    pub limits: Option<(Bytes, Bytes)>,
    /// Longest wait before each figure for the kernel's estimates to settle. Zero: runs begin on the machine
    /// as it is, also as to its free memory.
    pub settle: Nanos,
}

/// One run of a panel with its repetitions.
#[derive(Debug)]
pub struct Repeated {
    /// The run and how it is drawn.
    pub panel: Panel,
    /// The recordings.
    pub runs: Vec<RecordedRun>,
}

/// Records and judges the experiments; `signal` holds the number of a signal that asks to stop, or zero.
pub fn run(options: &Options, signal: Arc<AtomicUsize>) -> anyhow::Result<Evaluation> {
    let started = cawl_host::now();
    let out = OutFolder::create(&options.out)?;
    let disk = options.disk.as_deref().map(disk::bring_up).transpose()?;
    let path = disk.as_ref().map_or(&options.path, |disk| &disk.ready.mount);
    let go_on = || Interrupted::by(&signal);
    let place = Place::of(path)?;
    if place.backing == Backing::Memory {
        bail!(
            "{} keeps its files in memory: there is nothing to model; name a folder on a disk with --path",
            place.folder.display()
        );
    }
    let before = cawl_host::uncalibrated_profile().kernel.limits.hard;
    let lowered =
        options.limits.map(|(background, hard)| LoweredLimits::lower(background, hard, || go_on().is_ok()));
    let mut lowered = match lowered {
        // A signal ends the wait for another process that has lowered the limits.
        Some(result) => Some(result.or_else(|error| go_on().map_err(anyhow::Error::from).and(Err(error)))?),
        None => None,
    };
    let mut notes = Vec::new();
    let profile = profile(options, &place, before, &signal, &mut notes)?;
    let figures = planned(options, &profile);
    let scratch = Scratch::create(&place.folder, scratch::EXPERIMENT)?;
    require_room(&scratch, &figures)?;

    // Needs root, as lowering limits does: memory that a run frees would otherwise lie in lists for folios of
    // other sizes.
    if let Some(lowered) = &mut lowered {
        lowered.shorten_page_lists()?;
    }
    let mut results = Results::new(options, &place, profile, figures, notes, out, started)?;
    let recorded = record_all(options, &scratch, before, &mut results, &go_on);
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
    options: &Options,
    scratch: &Scratch,
    before: Bytes,
    results: &mut Results,
    go_on: &dyn Fn() -> Result<(), Interrupted>,
) -> anyhow::Result<()> {
    let profile = results.profile.clone();
    let recorder = Recorder {
        scratch,
        profile: &profile,
        hold: options.limits.is_some() && options.settle > Nanos::ZERO,
        go_on,
    };
    let mut progress = Progress::new(expected(&results.figures, &profile, options.repeats));
    for repeat in 1..=options.repeats {
        let folder = results.out.path.join(format!("run{repeat}"));
        let device = options.disk.clone().unwrap_or_else(|| profile.name.clone());
        let mut suite = SuiteFile::create(&folder, &device, &profile)?;
        for figure in 0..results.figures.len() {
            let mut followed = options.limits.is_none();
            for run in 0..results.figures[figure].1.len() {
                go_on()?;
                let panel = &results.figures[figure].1[run].panel;
                let scenario = panel.scenario.clone();
                // Earlier runs may have changed the kernel's estimate of the device.
                if panel.dirty && !std::mem::replace(&mut followed, true) {
                    progress.begin(slow_limit::WHAT);
                    let budget = Budget::of_time(options.settle);
                    let outcome = slow_limit::follow(scratch, before, profile.kernel.page, budget, || {
                        progress.show();
                        Ok(go_on()?)
                    })?;
                    results.note(outcome.note);
                    results.held_to(outcome.base_rate)?;
                }
                progress.begin(format!("repeat {repeat} of {}: {}", options.repeats, scenario.name));
                let recording = suite.add(&recorder, &scenario)?;
                results.figures[figure].1[run].runs.push(recording.run);
                results.note(recording.notes);
            }
            results.write(figure)?;
        }
    }
    Ok(())
}

/// The runs to record.
fn planned(options: &Options, profile: &HostProfile) -> Vec<(Experiment, Vec<Repeated>)> {
    let sizes = Sizes::new(profile, options.scale);
    let repeated = |panel: Panel| Repeated { panel, runs: Vec::new() };
    let runs = |experiment: Experiment| experiment.panels(&sizes).into_iter().map(repeated).collect();
    let wanted = Experiment::resolve(&options.experiments).into_iter();
    wanted.map(|experiment| (experiment, runs(experiment))).collect()
}

/// The profile for the models, with the kernel's present settings.
fn profile(
    options: &Options,
    place: &Place,
    before: Bytes,
    signal: &Arc<AtomicUsize>,
    notes: &mut Vec<String>,
) -> anyhow::Result<HostProfile> {
    let mut profile = if let Some(profile) = &options.profile {
        profile.clone()
    } else if options.disk.is_some() {
        if options.limits.is_some() {
            // So that calibration finds the base rate of the runs.
            let scratch = Scratch::create(&place.folder, scratch::EXPERIMENT)?;
            let budget = Budget::of_time(options.settle);
            let mut progress = Progress::new(budget.time);
            progress.begin(slow_limit::WHAT);
            let page = cawl_host::uncalibrated_profile().kernel.page;
            let outcome = slow_limit::follow(&scratch, before, page, budget, || {
                progress.show();
                Ok(Interrupted::by(signal)?)
            })?;
            notes.extend(outcome.note);
        }
        let path = place.folder.clone();
        let calibration =
            calibrate::Options { path, effort: options.effort, lower_limits: false, known: None };
        let found = calibrate::calibrate(&calibration, Arc::clone(signal))?;
        notes.extend(found.notes.iter().map(|note| format!("calibration: {note}")));
        found.profile
    } else {
        let chosen = profiles::choose(&place.folder);
        notes.extend(chosen.note);
        if chosen.file.is_none() {
            notes.push(format!(
                "this machine was not calibrated: speeds, and so errors, are those of the defaults; run \
                 `cawl-cli calibrate {}` first",
                place.folder.display()
            ));
        }
        chosen.profile
    };
    cawl_host::apply_settings(&mut profile);
    Ok(profile)
}

/// Fails if a run needs more than half of the free space.
fn require_room(scratch: &Scratch, figures: &[(Experiment, Vec<Repeated>)]) -> anyhow::Result<()> {
    let lengths = figures.iter().flat_map(|(_, runs)| runs).map(|repeated| repeated.panel.scenario.length);
    let longest = lengths.max().unwrap_or_default();
    scratch.require(Bytes(longest.0 * 2)).map(drop).context(
        "the experiments write files of several times the dirty limit; lower it with --limits (as root), or \
         write less with --scale",
    )
}

/// Expected time: the bytes at the device's rate, with think times.
fn expected(figures: &[(Experiment, Vec<Repeated>)], profile: &HostProfile, repeats: usize) -> Nanos {
    let lengths = figures.iter().flat_map(|(_, runs)| runs).map(|repeated| repeated.panel.scenario.length.0);
    let seconds = lengths.map(|length| 2.0 + 1.2 * length as f64 / profile.device.writeback.value.get());
    Nanos::seconds(seconds.sum::<f64>() * repeats as f64)
}
