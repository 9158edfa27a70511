//! Studies: the experiments and data of the documents beside the paper, each a section of one page.
//!
//! A section tells what was measured here, what the models predict, and what the document says; its findings
//! are the rows of the summary. A [`Study`] says which cells of runs there are, how one is made, and what
//! becomes of them; [`make`] makes them.
//!
//! | figures | of the document | by |
//! |---|---|---|
//! | classes of dd's reads | 001, Analyzing and Assessing I/O Performance | reads/dd.rs |
//! | 1, 3, 5, 6 | 002, No such thing as a bad workload | direct.rs |
//! | 2, 4, 7, 8 | 002 | reads.rs |
//! | 9 to 14 | 002 | locks.rs, locks.c; writers of one file: locks/inode.rs |
//! | 1, 2 | 003, Improving I/O Bandwidth With Cray DVS | dvs.rs |
//! | all | 004, O_SYNC and Blocksize Effects | osync.rs |
//! | data | 000, the CAWL paper, and 004 | seeds.rs |

mod calls;
mod direct;
mod dvs;
mod fitted;
mod locks;
mod osync;
mod reads;
mod seeds;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use cawl_console::{bold, line};
use cawl_core::{HostProfile, Nanos, named};
use cawl_host::place::Place;
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use fastrand::Rng;
use maud::{PreEscaped, html};
use serde::Serialize;
use serde_json::Value;

use super::Interrupted;
use super::report::{self, Machine, Table, save, save_json};
use super::results::OutFolder;
use crate::args::{ExperimentArgs, StudyName};
use crate::ground::Ground;

/// What a study works with.
pub struct Bench<'a> {
    /// The folder of its files, which are removed at the end.
    pub scratch: &'a Scratch,
    pub place: &'a Place,
    /// The models' profile.
    pub profile: &'a HostProfile,
    /// Emulated network mounts, if any were asked for.
    pub net: &'a [String],
    /// Repetitions of each run, if they were asked for.
    pub repeats: Option<usize>,
    /// The folder of the results.
    pub out: &'a Path,
    pub notes: Vec<String>,
    /// Holds the number of a signal that asks to stop, or zero.
    pub signal: &'a AtomicUsize,
    /// The bar.
    pub progress: &'a mut Progress,
}

/// A document's experiment: cells of runs, which are made in turn, predicted, and set beside the document.
pub trait Study<Judged = Section> {
    /// What is varied: runs of one kind.
    type Cell: Copy + PartialEq;
    /// What a run shows.
    type Run;

    /// What the bar calls it.
    const NAME: &'static str;
    /// The runs of all repetitions are in a random order by this seed: what else the machine does has no cell
    /// of its own then. None: cell after cell, in each repetition.
    const SEED: Option<u64> = None;

    /// All cells, in the order of the tables.
    fn cells(&self) -> &[Self::Cell];

    /// Repetitions of each cell, if so many were asked for.
    fn repeats(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or(2)
    }

    /// A cell for the bar.
    fn describe(&self, cell: Self::Cell) -> String;

    /// Makes what the runs need: before each repetition, or once if their order is random.
    fn prepare(&self, _: &mut Bench) -> anyhow::Result<()> {
        Ok(())
    }

    /// Makes a run; None if the filesystem or the device refuses it, and then all of the cell.
    fn run(&self, bench: &Bench, cell: Self::Cell) -> anyhow::Result<Option<Self::Run>>;

    /// Predicts and compares what was made.
    fn judge(&self, bench: &mut Bench, made: &Made<Self::Cell, Self::Run>) -> anyhow::Result<Judged>;
}

/// The runs of a study, in the order in which they were made.
pub struct Made<C, R> {
    pub runs: Vec<(C, R)>,
    /// Repetitions of each cell.
    pub repeats: usize,
    /// Cells that were refused.
    pub refused: usize,
}

impl<C: Copy + PartialEq, R> Made<C, R> {
    /// The runs of a cell.
    pub fn of(&self, cell: C) -> impl Iterator<Item = &R> {
        self.runs.iter().filter(move |(its, _)| *its == cell).map(|(_, run)| run)
    }

    /// The outcome of each cell that has runs, of these cells and in their order.
    fn outcomes<O>(
        &self,
        cells: &[C],
        outcome: impl Fn(C, &[&R]) -> anyhow::Result<O>,
    ) -> anyhow::Result<Vec<O>> {
        let runs = cells.iter().map(|cell| (*cell, self.of(*cell).collect::<Vec<_>>()));
        runs.filter(|(_, runs)| !runs.is_empty()).map(|(cell, runs)| outcome(cell, &runs)).collect()
    }

    /// What the page says of cells that were refused.
    fn left_out(&self) -> Option<String> {
        (self.refused > 0).then(|| {
            format!(
                "{} kinds of calls are left out: the filesystem or the device refuses O_DIRECT, or blocks of that \
                 size with it.",
                self.refused
            )
        })
    }
}

/// The cells of all repetitions, each with the number of its repetition, in the order of the runs.
fn order<C: Copy>(cells: &[C], repeats: usize, seed: Option<u64>) -> Vec<(usize, C)> {
    let of_repeat = |repeat| cells.iter().map(move |cell| (repeat, *cell));
    let mut order: Vec<(usize, C)> = (0..repeats).flat_map(of_repeat).collect();
    if let Some(seed) = seed {
        Rng::with_seed(seed).shuffle(&mut order);
    }
    order
}

/// Makes the runs of a study and judges them.
fn make<Judged, S: Study<Judged>>(study: &S, bench: &mut Bench) -> anyhow::Result<Judged> {
    let repeats = study.repeats(bench.repeats);
    let order = order(study.cells(), repeats, S::SEED);
    let mut made = Made { runs: Vec::with_capacity(order.len()), repeats, refused: 0 };
    let (mut refused, mut prepared) = (Vec::new(), None);
    for (at, &(repeat, cell)) in order.iter().enumerate() {
        Interrupted::by(bench.signal)?;
        let phase = if S::SEED.is_some() { 0 } else { repeat };
        if prepared.replace(phase) != Some(phase) {
            study.prepare(bench)?;
        }
        let (name, what) = (S::NAME, study.describe(cell));
        bench.progress.begin(format!("{name}, run {} of {}: {what}", at + 1, order.len()));
        if refused.contains(&cell) {
            continue;
        }
        match study.run(bench, cell)? {
            Some(run) => made.runs.push((cell, run)),
            None => refused.push(cell),
        }
    }
    made.runs.retain(|(cell, _)| !refused.contains(cell));
    made.refused = refused.len();
    bench.progress.begin(format!("{}: the models", S::NAME));
    study.judge(bench, &made)
}

/// A part of the page.
#[derive(Debug, Default, Serialize)]
pub struct Section {
    /// Its anchor, and the name of its study.
    pub name: &'static str,
    pub title: String,
    /// Paragraphs.
    pub text: Vec<String>,
    pub tables: Vec<Table>,
    /// Pictures, as SVG.
    #[serde(skip)]
    pub pictures: Vec<String>,
    /// What it says of the document.
    pub findings: Vec<Finding>,
    /// What was measured, for programs.
    pub data: Value,
}

/// A figure or table of a document, and what became of it here.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The document and the figure, table or claim: `004, model 1`.
    pub item: String,
    /// What the document says.
    pub theirs: String,
    /// What was observed here; empty if nothing was.
    pub observed: String,
    /// What the models predict; empty if nothing.
    pub predicted: String,
    pub verdict: Verdict,
}

impl Finding {
    pub fn new(
        item: impl Into<String>,
        theirs: impl Into<String>,
        observed: impl Into<String>,
        predicted: impl Into<String>,
        verdict: impl Into<Verdict>,
    ) -> Finding {
        Finding {
            item: item.into(),
            theirs: theirs.into(),
            observed: observed.into(),
            predicted: predicted.into(),
            verdict: verdict.into(),
        }
    }
}

named! {
    /// Whether a document's statement holds.
    #[derive(Serialize)]
    #[serde(rename_all = "lowercase")]
    Verdict {
        /// It comes out as stated.
        Holds = "holds",
        /// It comes out otherwise on this machine.
        Differs = "differs here",
        /// The document's own data contradict it.
        Wrong = "wrong",
        /// This machine is of another kind.
        #[serde(rename = "not comparable")]
        NotComparable = "not comparable",
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Verdict {
        if holds { Verdict::Holds } else { Verdict::Differs }
    }
}

/// All that a study found.
#[derive(Debug, Serialize)]
pub struct Studied {
    /// Version of this form.
    pub schema: u32,
    pub machine: Machine,
    pub sections: Vec<Section>,
    pub notes: Vec<String>,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Folder of the results.
    pub out: PathBuf,
}

/// Makes a section, with fewer runs if that is enough.
type Part = fn(&mut Bench, bool) -> anyhow::Result<Section>;

const PAPER: Part = |bench, _| seeds::paper(bench);
const OSYNC_DATA: Part = |_, _| seeds::osync();

impl StudyName {
    /// What makes its sections, in their order, and the time that all take at most, about, in seconds.
    fn parts(self, quick: bool) -> (&'static [Part], f64) {
        let time = |quickly, thoroughly| if quick { quickly } else { thoroughly };
        match self {
            StudyName::Seeds => (
                &[
                    PAPER,
                    OSYNC_DATA,
                    osync::section,
                    |bench, _| direct::section(bench, true),
                    |bench, _| reads::classes(bench, true),
                    |bench, _| reads::section(bench, true),
                    |bench, _| locks::section(bench, true),
                    |bench, _| locks::inode::section(bench, true),
                ],
                40.0 + osync::longest(quick).as_seconds(),
            ),
            StudyName::Osync => (&[osync::section], osync::longest(quick).as_seconds()),
            StudyName::Direct => (&[direct::section], time(10.0, 100.0)),
            StudyName::Dvs => (&[dvs::section], time(80.0, 200.0)),
            StudyName::Reads => (&[reads::classes, reads::section], time(10.0, 60.0)),
            StudyName::Locks => (&[locks::section, locks::inode::section], time(20.0, 170.0)),
        }
    }
}

/// Makes a study and writes its page.
pub fn run(
    options: &ExperimentArgs,
    study: StudyName,
    profile: Option<HostProfile>,
    signal: &Arc<AtomicUsize>,
) -> anyhow::Result<Studied> {
    let started = cawl_host::now();
    let mut out = OutFolder::create(&options.out)?;
    let ground = Ground::prepare(&options.site(), profile, signal)?;
    let scratch = Scratch::create(&ground.place.folder, scratch::EXPERIMENT)?;
    let quick = options.quick || (study == StudyName::Seeds && options.repeats.is_none());
    let ((parts, seconds), folder) = (study.parts(quick), out.path.clone());
    let mut progress = Progress::new(Nanos::seconds(seconds));
    let mut bench = Bench {
        scratch: &scratch,
        place: &ground.place,
        profile: &ground.profile,
        net: &options.net,
        repeats: options.repeats,
        out: &folder,
        notes: ground.notes.clone(),
        signal,
        progress: &mut progress,
    };
    let mut studied = Studied {
        schema: 1,
        machine: ground.machine(),
        sections: Vec::new(),
        notes: Vec::new(),
        seconds: 0.0,
        out: options.out.clone(),
    };
    for (made, part) in parts.iter().enumerate() {
        let begun = Interrupted::by(signal).map_err(anyhow::Error::from);
        let section = begun.and_then(|()| part(&mut bench, quick));
        let missing = format!(
            "the study is incomplete: {made} of {} parts are in {}",
            parts.len(),
            options.out.join("index.html").display()
        );
        let section = if made > 0 { section.context(missing)? } else { section? };
        studied.sections.push(section);
        studied.notes.clone_from(&bench.notes);
        studied.seconds = cawl_host::now().since(started).as_seconds();
        save_json(&folder, "results.json", &studied)?;
        save(&folder, "index.html", studied.page())?;
        out.keep();
    }
    Ok(studied)
}

impl Studied {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    fn page(&self) -> String {
        let header = ["ITEM", "THEIRS", "OBSERVED", "PREDICTED", "VERDICT"];
        let rows = self.findings().map(|Finding { item, theirs, observed, predicted, verdict }| {
            [item, theirs, observed, predicted, verdict.name()].map(str::to_owned).to_vec()
        });
        let summary = Table::new("The documents' figures and claims", header, rows);
        let body = html! {
            @for note in &self.notes { p.note { (note) } }
            @if !summary.rows.is_empty() { (summary.markup()) }
            @for section in &self.sections {
                h2 id=(section.name) { (section.title) }
                @for text in &section.text { p { (text) } }
                @for table in &section.tables { (table.markup()) }
                @for picture in &section.pictures { (PreEscaped(picture)) }
            }
        };
        let heading = "The documents' experiments, observed and predicted";
        report::page("the documents' experiments", heading, &self.machine, &body)
    }

    /// The summary and the tables for people.
    pub fn text(&self, terminal: bool) -> String {
        let mut text = report::machine(&self.machine, terminal);
        for section in &self.sections {
            text += &format!("\n{}\n", bold(&section.title, terminal));
            section.tables.iter().for_each(|table| table.write(&mut text, terminal));
        }
        for finding in self.findings() {
            text +=
                &format!("\n{}\n", bold(&format!("{}: {}", finding.item, finding.verdict.name()), terminal));
            // Side by side these are too wide for a terminal.
            let [theirs, observed, predicted] = [&finding.theirs, &finding.observed, &finding.predicted];
            let told = [("theirs", theirs), ("observed", observed), ("predicted", predicted)];
            for (name, value) in told.into_iter().filter(|(_, value)| !value.is_empty()) {
                line(&mut text, name, value, false);
            }
        }
        text + &report::notes(&self.notes, terminal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_in_turn_or_in_random_order_the_same_each_time() {
        let cells: Vec<u32> = (0..50).collect();
        let (in_turn, shuffled) = (order(&cells, 3, None), order(&cells, 3, Some(4)));
        assert!(in_turn.is_sorted() && !shuffled.is_sorted_by_key(|(repeat, _)| *repeat));
        assert_eq!(shuffled, order(&cells, 3, Some(4)));
        let mut sorted = shuffled;
        sorted.sort_unstable();
        assert_eq!(sorted, in_turn);
    }
}
