//! The results and their folder.
//!
//! The law: **the folder is always whole.** Each figure is judged and drawn as soon as its runs are recorded,
//! and page and table are written anew with what is missing. So an experiment that ends early leaves its
//! results so far.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cawl_core::{DirtyLimits, Estimate, HostProfile, Rate, Time};
use cawl_host::place::Place;
use serde::Serialize;

use super::judge::{self, Errors, Judged, ModelErrors};
use super::report::{Machine, save, save_json};
use super::{Repeated, plot, tables};
use crate::args::{Experiment, ExperimentArgs};
use crate::ground::Ground;

#[derive(Debug, Serialize)]
pub struct Evaluation {
    pub machine: Machine,
    /// The emulated disk, or the device.
    pub device: String,
    /// Type of the filesystem.
    pub filesystem: String,
    /// Kernel release.
    pub kernel: String,
    pub limits: DirtyLimits,
    /// Name of the models' profile.
    pub profile: String,
    pub repeats: usize,
    /// Factor for the numbers of calls.
    pub scale: f64,
    /// The runs of each experiment.
    pub figures: Vec<Judged>,
    /// Medians over all runs.
    pub median: Vec<ModelErrors>,
    /// Median noise floor; None without repeats.
    pub floor: Option<Errors>,
    /// Runs that are missing or incomplete.
    pub missing: Vec<String>,
    pub notes: Vec<String>,
    /// Duration in seconds.
    pub seconds: f64,
    /// Folder of the results.
    pub out: PathBuf,
}

pub struct Results {
    pub out: OutFolder,
    place: Place,
    /// The models' profile.
    pub profile: HostProfile,
    /// Planned and recorded runs.
    pub figures: Vec<(Experiment, Vec<Repeated>)>,
    /// The kernel's base rates before the figures, in bytes per second.
    base_rates: Vec<f64>,
    started: Time,
    evaluation: Evaluation,
}

impl Results {
    /// Empty results of an experiment that began at `started`.
    pub fn new(
        options: &ExperimentArgs,
        ground: &Ground,
        figures: Vec<(Experiment, Vec<Repeated>)>,
        out: OutFolder,
        started: Time,
    ) -> anyhow::Result<Results> {
        let Ground { place, profile, notes, device, .. } = ground;
        let (place, profile, notes, device) = (place.clone(), profile.clone(), notes.clone(), device.clone());
        save(&out.path, "profile.toml", profile.to_toml())?;
        let evaluation = Evaluation {
            machine: ground.machine(),
            device,
            filesystem: place.filesystem.clone(),
            kernel: cawl_host::facts().kernel,
            limits: profile.kernel.limits,
            profile: profile.name.clone(),
            repeats: options.repeats_of_figures(),
            scale: options.scale,
            figures: Vec::new(),
            median: Vec::new(),
            floor: None,
            missing: Vec::new(),
            notes,
            seconds: 0.0,
            out: options.out.clone(),
        };
        Ok(Results { out, place, profile, figures, base_rates: Vec::new(), started, evaluation })
    }

    /// Adds remarks, each once.
    pub fn note(&mut self, notes: impl IntoIterator<Item = String>) {
        for note in notes {
            if !self.evaluation.notes.contains(&note) {
                self.evaluation.notes.push(note);
            }
        }
    }

    /// Takes the kernel's base rate before a figure. It is no constant of the device: the kernel lowers it
    /// when the device is disturbed, seldom raises it, and keeps it, so after hours of runs it differs from
    /// the calibrated one. The models get the median.
    pub fn held_to(&mut self, base_rate: Option<Rate>) -> anyhow::Result<()> {
        self.base_rates.extend(base_rate.map(Rate::get));
        let Some(found) = Estimate::of(&self.base_rates) else { return Ok(()) };
        self.profile.device.base_rate = Some(found.measured(Rate::per_second));
        save(&self.out.path, "profile.toml", self.profile.to_toml())
    }

    /// Judges and draws the recorded part of a figure, then writes page and table.
    pub fn write(&mut self, figure: usize) -> anyhow::Result<()> {
        self.judge(figure)?;
        self.summarize()
    }

    /// Judges and draws all figures with a recorded run, then writes page and table; false if there is none.
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

    pub fn evaluation(self) -> Evaluation {
        self.evaluation
    }

    fn judge(&mut self, figure: usize) -> anyhow::Result<()> {
        let (experiment, runs) = &self.figures[figure];
        let made: Vec<&Repeated> = runs.iter().filter(|repeated| !repeated.runs.is_empty()).collect();
        if made.is_empty() {
            return Ok(());
        }
        let judged = judge::judge(&self.profile, &self.place, *experiment, &made)?;
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
        tables::write_page(evaluation, &self.out.path)?;
        save_json(&self.out.path, "results.json", evaluation)?;
        self.out.keep();
        Ok(())
    }
}

/// The missing part of a run.
fn missing(repeated: &Repeated, repeats: usize) -> Option<String> {
    let name = &repeated.panel.scenario.name;
    match repeated.runs.len() {
        made if made >= repeats => None,
        0 => Some(name.clone()),
        made => Some(format!("{name} ({made} of {repeats})")),
    }
}

/// The folder of results; removed again unless results were written.
pub struct OutFolder {
    pub path: PathBuf,
    kept: bool,
}

impl OutFolder {
    /// Creates the folder, or takes an empty one.
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

    /// Results were written.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for OutFolder {
    fn drop(&mut self) {
        if !self.kept {
            // The folder was empty before. Errors are ignored: it then stays.
            drop(fs::remove_dir_all(&self.path));
        }
    }
}
