//! What was found, and the folder it is written to.
//!
//! The law: **the folder is always whole.** Each figure is judged and drawn as soon as its runs are made, and
//! the page and the table written anew, with what is missing; so whatever ends an experiment, what it had found
//! until then can be looked at.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cawl_core::{DirtyLimits, Estimate, HostProfile, Rate, Time};
use cawl_host::place::Place;
use serde::Serialize;

use super::judge::{self, Errors, Judged, ModelErrors};
use super::plan::Experiment;
use super::{Options, Repeated, page, plot};

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
    /// How often each run was to be made.
    pub repeats: usize,
    /// Times by which the numbers of calls were multiplied.
    pub scale: f64,
    /// The runs of each experiment.
    pub figures: Vec<Judged>,
    /// Medians over all runs.
    pub median: Vec<ModelErrors>,
    /// Median noise floor; None without repeats.
    pub floor: Option<Errors>,
    /// Runs that were to be made and were not, or not often enough.
    pub missing: Vec<String>,
    /// What the user must know.
    pub notes: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// Where results are.
    pub out: PathBuf,
}

/// Results as they come.
pub struct Results {
    /// Where they are written.
    pub out: OutFolder,
    /// The profile that the models get.
    pub profile: HostProfile,
    /// What is to be recorded, and what was.
    pub figures: Vec<(Experiment, Vec<Repeated>)>,
    /// The base rates that the kernel told before the figures, in bytes per second.
    base_rates: Vec<f64>,
    started: Time,
    evaluation: Evaluation,
}

impl Results {
    /// No results yet of an experiment that began at `started`.
    pub fn new(
        options: &Options,
        place: &Place,
        profile: HostProfile,
        figures: Vec<(Experiment, Vec<Repeated>)>,
        notes: Vec<String>,
        out: OutFolder,
        started: Time,
    ) -> anyhow::Result<Results> {
        write_profile(&out, &profile)?;
        let evaluation = Evaluation {
            device: options.disk.clone().unwrap_or_else(|| place.device.clone()),
            filesystem: place.filesystem.clone(),
            kernel: cawl_host::facts().kernel,
            limits: profile.kernel.limits,
            profile: profile.name.clone(),
            repeats: options.repeats,
            scale: options.scale,
            figures: Vec::new(),
            median: Vec::new(),
            floor: None,
            missing: Vec::new(),
            notes,
            seconds: 0.0,
            out: options.out.clone(),
        };
        Ok(Results { out, profile, figures, base_rates: Vec::new(), started, evaluation })
    }

    /// Remembers something for the user, once.
    pub fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.evaluation.notes.contains(&note) {
                self.evaluation.notes.push(note);
            }
        }
    }

    /// Takes note of the base rate that the kernel told before a figure. It is no constant of the device: the kernel steps it
    /// down when something disturbs the device, hardly ever up, and keeps it; so it is another after hours of calibrating and
    /// recording beside other work than calibration found. The models get the median.
    pub fn held_to(&mut self, base_rate: Option<Rate>) -> anyhow::Result<()> {
        self.base_rates.extend(base_rate.map(Rate::get));
        let Some(found) = Estimate::of(&self.base_rates) else { return Ok(()) };
        self.profile.device.base_rate = Some(found.measured(Rate::per_second));
        write_profile(&self.out, &self.profile)
    }

    /// Judges and draws a figure as far as its runs are made, then writes the page and the table.
    pub fn write(&mut self, figure: usize) -> anyhow::Result<()> {
        self.judge(figure)?;
        self.summarize()
    }

    /// The same for all figures that have a run; false if none has.
    pub fn write_all(&mut self) -> anyhow::Result<bool> {
        for figure in 0..self.figures.len() {
            self.judge(figure)?;
        }
        if self.evaluation.figures.is_empty() {
            return Ok(false);
        }
        self.summarize()?;
        Ok(true)
    }

    /// What was found.
    pub fn evaluation(self) -> Evaluation {
        self.evaluation
    }

    fn judge(&mut self, figure: usize) -> anyhow::Result<()> {
        let (experiment, runs) = &self.figures[figure];
        let made: Vec<&Repeated> = runs.iter().filter(|repeated| !repeated.runs.is_empty()).collect();
        if made.is_empty() {
            return Ok(());
        }
        let judged = judge::judge(&self.profile, *experiment, &made)?;
        if *experiment != Experiment::Suite {
            let panels: Vec<_> = made.iter().map(|repeated| repeated.panel.clone()).collect();
            plot::draw(&judged, &panels, &self.out.path)?;
        }
        let figures = &mut self.evaluation.figures;
        match figures.iter_mut().find(|known| known.experiment == *experiment) {
            Some(known) => *known = judged,
            None => figures.push(judged),
        }
        Ok(())
    }

    fn summarize(&mut self) -> anyhow::Result<()> {
        let evaluation = &mut self.evaluation;
        (evaluation.median, evaluation.floor) = judge::medians(&evaluation.figures);
        let all = self.figures.iter().flat_map(|(_, runs)| runs);
        evaluation.missing = all.filter_map(|repeated| missing(repeated, evaluation.repeats)).collect();
        evaluation.seconds = cawl_host::now().since(self.started).as_seconds();
        page::write(evaluation, &self.out.path)?;
        let file = self.out.path.join("results.json");
        fs::write(&file, serde_json::to_string_pretty(evaluation)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.out.kept = true;
        Ok(())
    }
}

fn write_profile(out: &OutFolder, profile: &HostProfile) -> anyhow::Result<()> {
    fs::write(out.path.join("profile.toml"), profile.to_toml())
        .with_context(|| format!("cannot write into {}", out.path.display()))
}

/// What of a run was not made.
fn missing(repeated: &Repeated, repeats: usize) -> Option<String> {
    let name = &repeated.panel.scenario.name;
    match repeated.runs.len() {
        made if made >= repeats => None,
        0 => Some(name.clone()),
        made => Some(format!("{name} ({made} of {repeats})")),
    }
}

/// The folder of results; gone again unless something was written that is worth to be kept.
pub struct OutFolder {
    /// Where it is.
    pub path: PathBuf,
    kept: bool,
}

impl OutFolder {
    /// A new folder, or an empty one.
    pub fn create(path: &Path) -> anyhow::Result<OutFolder> {
        fs::create_dir_all(path).with_context(|| {
            format!("cannot make the folder {}; name one that can be written to with --out", path.display())
        })?;
        let mut entries = fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        if entries.next().is_some() {
            bail!("{} is not empty; name a new folder with --out", path.display());
        }
        Ok(OutFolder { path: path.to_owned(), kept: false })
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
