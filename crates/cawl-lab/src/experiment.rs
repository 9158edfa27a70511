//! The paper's evaluation on this machine or on an emulated disk: runs are recorded, replayed through the
//! models, judged and drawn.
//!
//! The law: **nothing is left behind** but the results: files, emulated disk and lowered limits are removed
//! or restored. The recordings stay on every way out, and the page names what is missing. docs/science/EXPERIMENTS.md
//! explains each figure.
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
use anyhow::{Context, bail};
use cawl_core::{Bytes, HostProfile, Nanos};
use cawl_host::limits::LoweredLimits;
use cawl_host::place::{Backing, Place, Queue};
use cawl_host::profiles;
use cawl_measure::calibrate::{self, Effort};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use cawl_measure::slow_limit::{self, Budget};

use crate::args::{Calibration, Experiment, ExperimentArgs};
use crate::emulated::Lab;
use plan::{Panel, Sizes};
use record::{Recorder, SuiteFile};

use report::Machine;
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
    let mut ground = Ground::prepare(options, profile, signal)?;
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

/// Where experiments take place: the disk, the limits and the models' profile.
struct Ground {
    place: Place,
    /// The emulated disk, or the device.
    device: String,
    /// The models' profile, with the settings in force.
    profile: HostProfile,
    /// The hard limit before the limits were lowered.
    before: Bytes,
    lowered: Option<LoweredLimits>,
    notes: Vec<String>,
    /// Ends after the limits are restored.
    _disk: Option<Lab>,
}

impl Ground {
    /// Starts the emulated disk, lowers the limits and finds the profile, as far as they are asked for.
    fn prepare(
        options: &ExperimentArgs,
        profile: Option<HostProfile>,
        signal: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Ground> {
        let root = "an emulated disk needs root; without --disk, experiments run on a disk you have";
        let bring_up = |spec| Lab::own(&["--disk", spec], root);
        let disk = options.disk.as_deref().map(bring_up).transpose()?;
        let path = disk.as_ref().map_or(&options.path, |disk| &disk.ready.mount);
        let place = Place::of(path)?;
        if place.backing == Backing::Memory {
            bail!(
                "{} keeps its files in memory: there is nothing to model; name a folder on a disk with --path",
                place.folder.display()
            );
        }
        let before = cawl_host::uncalibrated_profile().kernel.limits.hard;
        let lower = |(background, hard)| {
            let lowered = LoweredLimits::lower(background, hard, || Interrupted::by(signal).is_ok());
            // A signal ends the wait for another process that has lowered the limits.
            lowered.or_else(|error| Interrupted::by(signal).map_err(anyhow::Error::from).and(Err(error)))
        };
        let lowered = options.lowered().map(lower).transpose()?;
        let mut notes = Vec::new();
        let mut profile = match profile {
            Some(profile) => profile,
            None => found_profile(options, &place, before, signal, &mut notes)?,
        };
        cawl_host::apply_settings(&mut profile);
        let device = options.disk.clone().unwrap_or_else(|| place.device.clone());
        Ok(Ground { place, device, profile, before, lowered, notes, _disk: disk })
    }
}

impl Ground {
    /// Processor, memory, drive, kernel and filesystem, in names and values.
    fn machine(&self) -> Machine {
        let facts = cawl_host::facts();
        let Ground { place, profile, .. } = self;
        let processor = cawl_host::processor().unwrap_or_else(|| "not known".to_owned());
        let limits = profile.kernel.limits;
        let kind = match place.rotational {
            Some(true) => ", a hard disk",
            Some(false) => ", without a moving part",
            None => "",
        };
        let queue = place.queue().map(|Queue { requests, segments, sectors, .. }| {
            format!("{requests} requests of at most {segments} segments and {sectors}")
        });
        let named = |name: &str, value: String| (name.to_owned(), value);
        vec![
            named("processor", format!("{} × {processor}", facts.cpus)),
            named("memory", facts.memory.to_string()),
            named("drive", format!("{}{kind}", self.device)),
            named("queue", queue.unwrap_or_else(|| "not known".to_owned())),
            named("kernel", format!("Linux {}", facts.kernel)),
            named("filesystem", place.filesystem.clone()),
            named("dirty limits", format!("{} and {}", limits.background, limits.hard)),
            named("profile", profile.name.clone()),
        ]
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

/// The profile for the models, if none was named.
fn found_profile(
    options: &ExperimentArgs,
    place: &Place,
    before: Bytes,
    signal: &Arc<AtomicUsize>,
    notes: &mut Vec<String>,
) -> anyhow::Result<HostProfile> {
    if options.disk.is_some() {
        if options.lowered().is_some() {
            // So that calibration finds the base rate of the runs.
            let scratch = Scratch::create(&place.folder, scratch::EXPERIMENT)?;
            let budget = Budget::of_time(options.settle);
            let mut progress = Progress::new(budget.time);
            notes.extend(slow_limit::follow(&scratch, before, budget, &mut progress, signal)?.note);
        }
        let path = place.folder.clone();
        let effort = match options.calibration {
            Calibration::Quick => Effort::QUICK,
            Calibration::Normal => Effort::NORMAL,
            Calibration::Thorough => Effort::THOROUGH,
        };
        let calibration = calibrate::Options { path, effort, lower_limits: false, known: None };
        let found = calibrate::calibrate(&calibration, Arc::clone(signal))?;
        notes.extend(found.notes.iter().map(|note| format!("calibration: {note}")));
        return Ok(found.profile);
    }
    let chosen = profiles::choose(&place.folder);
    notes.extend(chosen.note);
    if chosen.file.is_none() {
        notes.push(format!(
            "this machine was not calibrated: speeds, and so errors, are those of the defaults; run \
             `cawl-cli calibrate {}` first",
            place.folder.display()
        ));
    }
    Ok(chosen.profile)
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
