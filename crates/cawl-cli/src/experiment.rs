//! The paper's evaluation on this machine, or on an emulated disk: runs are recorded, shown to the models,
//! judged, and drawn.
//!
//! The law: **it takes away what it brought**, as calibration does: its files, the emulated disk and the
//! lowered limits. What was recorded stays, however it ends; the page says what is missing, so that nobody
//! takes half of the results for all. docs/EXPERIMENTS.md has what each figure shows.

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
use crate::scratch::{Purpose, Scratch};
use crate::slow_limit::{self, Budget};
use disk::Disk;
use judge::{Errors, ModelErrors};
pub use plan::Experiment;
use plan::{Panel, Plan, Sizes};
use record::{Recorder, SuiteFile};
pub use results::Evaluation;
use results::{OutFolder, Results};
pub use text::text;

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which experiments.
    pub experiments: Vec<Experiment>,
    /// Where, if not on an emulated disk.
    pub path: PathBuf,
    /// An emulated disk.
    pub disk: Option<String>,
    /// Times to multiply the numbers of calls by.
    pub scale: f64,
    /// Where results go: a folder that is new or empty.
    pub out: PathBuf,
    /// How often each run is made.
    pub repeats: usize,
    /// The profile, if not the one of the place.
    pub profile: Option<HostProfile>,
    /// How thoroughly to calibrate an emulated disk.
    pub effort: Effort,
    /// Dirty limits to lower meanwhile, background and hard.
    pub limits: Option<(Bytes, Bytes)>,
}

/// One run of a panel, as often as it was repeated.
#[derive(Debug)]
pub struct Repeated {
    /// What was to be done.
    pub panel: Panel,
    /// What was recorded, once for each repeat.
    pub runs: Vec<RecordedRun>,
}

/// Makes the experiments; `signal` holds the number of a signal that asks to stop, or zero.
pub fn run(options: &Options, signal: Arc<AtomicUsize>) -> anyhow::Result<Evaluation> {
    let started = cawl_host::now();
    let out = OutFolder::create(&options.out)?;
    let disk = options.disk.as_deref().map(Disk::bring_up).transpose()?;
    let path = disk.as_ref().map_or(options.path.as_path(), |disk| &disk.mount);
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
        // A signal ends the waiting for others who have the limits lowered.
        Some(result) => Some(result.or_else(|error| go_on().map_err(anyhow::Error::from).and(Err(error)))?),
        None => None,
    };
    let mut notes = Vec::new();
    let profile = profile(options, &place, before, &signal, &mut notes)?;
    let figures = planned(options, &profile);
    let scratch = Scratch::create(&place.folder, Purpose::Experiment)?;
    require_room(&scratch, &figures)?;

    // Not without root: what a run gives back would lie in lists for folios of other sizes.
    if let Some(lowered) = &mut lowered {
        lowered.shorten_page_lists()?;
    }
    let mut results = Results::new(options, &place, profile, figures, notes, out, started)?;
    let recorded = record_all(options, &scratch, before, &mut results, &go_on);
    // What was recorded counts, whatever ended it.
    let kept = results.write_all()?;
    match recorded {
        Ok(()) => Ok(results.evaluation()),
        Err(error) if kept => Err(error.context(format!(
            "it is not complete; what was recorded until then is in {}, which says what is missing",
            options.out.join("index.html").display()
        ))),
        Err(error) => Err(error),
    }
}

/// Makes every run as often as is wanted, and draws each figure when its runs are made.
fn record_all(
    options: &Options,
    scratch: &Scratch,
    before: Bytes,
    results: &mut Results,
    go_on: &dyn Fn() -> Result<(), Interrupted>,
) -> anyhow::Result<()> {
    let profile = results.profile.clone();
    let recorder = Recorder { scratch, profile: &profile, hold: options.limits.is_some(), go_on };
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
                // Runs before this figure may have left the kernel with another idea of the device.
                if panel.dirty && !std::mem::replace(&mut followed, true) {
                    progress.begin(slow_limit::WHAT);
                    let outcome =
                        slow_limit::follow(scratch, before, profile.kernel.page, Budget::ENOUGH, || {
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

/// The runs to be made.
fn planned(options: &Options, profile: &HostProfile) -> Vec<(Experiment, Vec<Repeated>)> {
    let sizes = Sizes::new(profile, options.scale);
    let wanted = Experiment::resolve(&options.experiments);
    let plans = wanted.into_iter().map(|experiment| Plan::of(experiment, &sizes));
    let repeated = |panel: Panel| Repeated { panel, runs: Vec::new() };
    plans.map(|plan| (plan.experiment, plan.panels.into_iter().map(repeated).collect())).collect()
}

/// The profile that the models get, with the kernel's settings of now.
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
            // Calibration is to find the base rate that the runs will meet.
            let scratch = Scratch::create(&place.folder, Purpose::Experiment)?;
            let mut progress = Progress::new(Budget::ENOUGH.time);
            progress.begin(slow_limit::WHAT);
            let page = cawl_host::uncalibrated_profile().kernel.page;
            let outcome = slow_limit::follow(&scratch, before, page, Budget::ENOUGH, || {
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
                "nobody calibrated this machine: speeds are defaults, and errors are those of the defaults; run \
                 `cawl-cli calibrate {}` first",
                place.folder.display()
            ));
        }
        chosen.profile
    };
    cawl_host::apply_settings(&mut profile);
    Ok(profile)
}

/// Refuses to take more than half of what is free.
fn require_room(scratch: &Scratch, figures: &[(Experiment, Vec<Repeated>)]) -> anyhow::Result<()> {
    let lengths = figures.iter().flat_map(|(_, runs)| runs).map(|repeated| repeated.panel.scenario.length);
    let longest = lengths.max().unwrap_or_default();
    scratch.require(Bytes(longest.0 * 2)).map(drop).context(
        "the experiments write files of several times the dirty limit; lower it with --limits (as root), or \
         write less with --scale",
    )
}

/// Time that it may take: what is written at the device's rate, thinking included.
fn expected(figures: &[(Experiment, Vec<Repeated>)], profile: &HostProfile, repeats: usize) -> Nanos {
    let lengths = figures.iter().flat_map(|(_, runs)| runs).map(|repeated| repeated.panel.scenario.length.0);
    let seconds = lengths.map(|length| 2.0 + 1.2 * length as f64 / profile.device.writeback.value.get());
    Nanos::seconds(seconds.sum::<f64>() * repeats as f64)
}
