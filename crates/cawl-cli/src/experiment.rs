//! The paper's evaluation on this machine, or on an emulated disk: runs are recorded, shown to the models,
//! judged, and drawn.
//!
//! The law: **it takes away what it brought**, as calibration does: its files, the emulated disk and the
//! lowered limits; and if it is interrupted, the folder of results too, so that nobody takes half of them for
//! all. docs/EXPERIMENTS.md has what each figure shows.

mod disk;
mod judge;
mod page;
mod plan;
mod plot;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::{Context, bail};
use cawl_core::{Bytes, DirtyLimits, HostProfile, Nanos, RecordedRun};
use cawld::limits::LoweredLimits;
use cawld::place::{Backing, Place};
use cawld::{host, profiles};

use crate::calibrate::progress::Progress;
use crate::calibrate::{self, Effort, Interrupted};
use crate::scratch::{Purpose, Scratch};
use crate::slow_limit::{self, Budget};
use disk::Disk;
pub use judge::{Errors, Judged, ModelErrors};
pub use plan::Experiment;
use plan::{Panel, Plan, Sizes};
use record::{Recorder, SuiteFile};
use serde::Serialize;

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

/// What was found.
#[derive(Debug, Serialize)]
pub struct Evaluation {
    /// The emulated disk, or the device.
    pub device: String,
    /// Type of the filesystem.
    pub filesystem: String,
    /// Kernel release.
    pub kernel: String,
    /// The dirty limits.
    pub limits: DirtyLimits,
    /// Name of the profile that the models got.
    pub profile: String,
    /// How often each run was made.
    pub repeats: usize,
    /// Times by which the numbers of calls were multiplied.
    pub scale: f64,
    /// The runs of each experiment.
    pub figures: Vec<Judged>,
    /// Medians over all runs.
    pub median: Vec<ModelErrors>,
    /// Median noise floor; None without repeats.
    pub floor: Option<Errors>,
    /// What the user must know.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// Where results are.
    pub out: PathBuf,
}

/// Makes the experiments; `signal` holds the number of a signal that asks to stop, or zero.
pub fn run(options: &Options, signal: Arc<AtomicUsize>) -> anyhow::Result<Evaluation> {
    let started = host::now();
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
    let before = host::uncalibrated_profile().kernel.limits.hard;
    let lowered =
        options.limits.map(|(background, hard)| LoweredLimits::lower(background, hard, || go_on().is_ok()));
    let _lowered = match lowered {
        // A signal ends the waiting for others who have the limits lowered.
        Some(result) => Some(result.or_else(|error| go_on().map_err(anyhow::Error::from).and(Err(error)))?),
        None => None,
    };
    let mut notes = Vec::new();
    let profile = profile(options, &place, &signal, &mut notes)?;
    fs::write(out.path.join("profile.toml"), profile.to_toml())
        .with_context(|| format!("cannot write into {}", out.path.display()))?;

    let mut figures = planned(options, &profile);
    let scratch = Scratch::create(&place.folder, Purpose::Experiment)?;
    require_room(&scratch, &figures)?;

    let recorder = Recorder { scratch: &scratch, profile: &profile, go_on: &go_on };
    let mut progress = Progress::new(expected(&figures, &profile, options.repeats));
    for repeat in 1..=options.repeats {
        let folder = out.path.join(format!("run{repeat}"));
        let device = options.disk.clone().unwrap_or_else(|| profile.name.clone());
        let mut suite = SuiteFile::create(&folder, &device, &profile)?;
        let mut last = None;
        for (experiment, repeated) in
            figures.iter_mut().flat_map(|(experiment, runs)| runs.iter_mut().map(|run| (*experiment, run)))
        {
            go_on()?;
            // Runs before it may have left the kernel with another idea of the device.
            if options.limits.is_some()
                && repeated.panel.dirty
                && last.replace(experiment) != Some(experiment)
            {
                progress.begin(slow_limit::WHAT);
                let followed =
                    slow_limit::follow(&scratch, before, profile.kernel.page, Budget::ENOUGH, || {
                        progress.show();
                        Ok(go_on()?)
                    })?;
                notes.extend(followed.note.filter(|note| !notes.contains(note)));
            }
            let name = &repeated.panel.scenario.name;
            progress.begin(format!("repeat {repeat} of {}: {name}", options.repeats));
            let recording = suite.add(&recorder, &repeated.panel.scenario)?;
            repeated.runs.push(recording.run);
            notes
                .extend(recording.notes.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        }
    }
    progress.begin("models and pictures");
    let (filesystem, device) =
        (place.filesystem.clone(), options.disk.clone().unwrap_or(place.device.clone()));
    let mut judged = Vec::new();
    for (experiment, runs) in &figures {
        go_on()?;
        let figure = judge::judge(&profile, *experiment, runs)?;
        if experiment.drawn() {
            let panels: Vec<Panel> = runs.iter().map(|repeated| repeated.panel.clone()).collect();
            plot::draw(&figure, &panels, &out.path)?;
        }
        judged.push(figure);
    }
    drop(progress);
    let (median, floor) = judge::medians(&judged);
    let evaluation = Evaluation {
        device,
        filesystem,
        kernel: host::facts().kernel,
        limits: profile.kernel.limits,
        profile: profile.name.clone(),
        repeats: options.repeats,
        scale: options.scale,
        figures: judged,
        median,
        floor,
        notes,
        seconds: host::now().since(started).as_seconds(),
        out: options.out.clone(),
    };
    page::write(&evaluation, &out.path)?;
    let results = out.path.join("results.json");
    fs::write(&results, serde_json::to_string_pretty(&evaluation)? + "\n")
        .with_context(|| format!("cannot write {}", results.display()))?;
    out.keep();
    Ok(evaluation)
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
    signal: &Arc<AtomicUsize>,
    notes: &mut Vec<String>,
) -> anyhow::Result<HostProfile> {
    let mut profile = if let Some(profile) = &options.profile {
        profile.clone()
    } else if options.disk.is_some() {
        let path = place.folder.clone();
        let calibration = calibrate::Options { path, effort: options.effort, lower_limits: false };
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
    host::apply_settings(&mut profile);
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

/// The folder of results; gone again unless it is kept.
struct OutFolder {
    path: PathBuf,
    kept: bool,
}

impl OutFolder {
    fn create(path: &Path) -> anyhow::Result<OutFolder> {
        fs::create_dir_all(path).with_context(|| {
            format!("cannot make the folder {}; name one that can be written to with --out", path.display())
        })?;
        let mut entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        if entries.next().is_some() {
            bail!("{} is not empty; name a new folder with --out", path.display());
        }
        Ok(OutFolder { path: path.to_owned(), kept: false })
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        if !self.kept {
            // It was empty before, so all of it is ours. What cannot be removed stays.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}
