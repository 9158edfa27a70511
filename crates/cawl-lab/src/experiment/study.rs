//! Studies: the experiments and data of the documents beside the paper, each a section of one page.
//!
//! A section tells what was measured here, what the models predict, and what the document says; its findings
//! are the rows of the summary.

mod calls;
mod chart;
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
use cawl_console::{bold, headed, line, named, shown, table, warn};
use cawl_core::{HostProfile, Nanos};
use cawl_host::output;
use cawl_host::place::Place;
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::Value;

use super::page::{STYLE, facts};
use super::results::OutFolder;
use super::tables::Table;
use super::{Ground, Interrupted};
use crate::args::{ExperimentArgs, Study};

/// What a study works with.
pub struct Bench<'a> {
    /// The folder of its files, which are removed at the end.
    pub scratch: &'a Scratch,
    /// The disk.
    pub place: &'a Place,
    /// The models' profile.
    pub profile: &'a HostProfile,
    /// Emulated network mounts, if any were asked for.
    pub net: &'a [String],
    /// Fewer runs.
    pub quick: bool,
    /// Repetitions of each run, if they were asked for.
    pub repeats: Option<usize>,
    /// The folder of the results.
    pub out: &'a Path,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Holds the number of a signal that asks to stop, or zero.
    pub signal: &'a AtomicUsize,
    /// The bar.
    pub progress: &'a mut Progress,
}

/// A part of the page.
#[derive(Debug, Default, Serialize)]
pub struct Section {
    /// Its anchor, and the name of its study.
    pub name: &'static str,
    /// Its heading.
    pub title: String,
    /// Paragraphs.
    pub text: Vec<String>,
    /// Tables.
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
    /// What follows.
    pub verdict: Verdict,
}

/// Whether a document's statement holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It comes out as stated.
    Holds,
    /// It comes out otherwise on this machine.
    Differs,
    /// The document's own data contradict it.
    Wrong,
    /// This machine is of another kind.
    #[serde(rename = "not comparable")]
    NotComparable,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs here",
            Verdict::Wrong => "wrong",
            Verdict::NotComparable => "not comparable",
        }
    }
}

/// All that a study found.
#[derive(Debug, Serialize)]
pub struct Studied {
    /// Version of this form.
    pub schema: u32,
    /// The machine, in names and values.
    pub machine: Vec<(String, String)>,
    /// The parts of the page.
    pub sections: Vec<Section>,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Duration, in seconds.
    pub seconds: f64,
    /// Folder of the results.
    pub out: PathBuf,
}

/// Makes a section.
type Part = fn(&mut Bench) -> anyhow::Result<Section>;

impl Study {
    /// Fewer runs are enough.
    fn is_quick(self, options: &ExperimentArgs) -> bool {
        options.quick || (self == Study::Seeds && options.repeats.is_none())
    }

    /// The time that it takes at most, about.
    fn expected(self, quick: bool) -> Nanos {
        match self {
            Study::Seeds => {
                let others = [direct::expected(true), reads::expected(true), locks::expected(true)];
                others.into_iter().fold(osync::longest(quick), |sum, time| sum + time)
            }
            Study::Osync => osync::longest(quick),
            Study::Direct => direct::expected(quick),
            Study::Reads => reads::expected(quick),
            Study::Locks => locks::expected(quick),
            Study::Dvs => dvs::expected(quick),
        }
    }

    /// What makes its sections, in their order.
    fn parts(self) -> &'static [Part] {
        match self {
            Study::Seeds => &[
                seeds::paper,
                seeds::osync,
                osync::section,
                |bench| direct::section(bench, true),
                |bench| reads::classes(bench, true),
                |bench| reads::section(bench, true),
                |bench| locks::section(bench, true),
                |bench| locks::inode::section(bench, true),
            ],
            Study::Osync => &[osync::section],
            Study::Dvs => &[dvs::section],
            Study::Direct => &[|bench| direct::section(bench, bench.quick)],
            Study::Reads => {
                &[|bench| reads::classes(bench, bench.quick), |bench| reads::section(bench, bench.quick)]
            }
            Study::Locks => &[
                |bench| locks::section(bench, bench.quick),
                |bench| locks::inode::section(bench, bench.quick),
            ],
        }
    }
}

/// Makes a study and writes its page.
pub fn run(
    options: &ExperimentArgs,
    study: Study,
    profile: Option<HostProfile>,
    signal: &Arc<AtomicUsize>,
) -> anyhow::Result<Studied> {
    let started = cawl_host::now();
    let mut out = OutFolder::create(&options.out)?;
    let ground = Ground::prepare(options, profile, signal)?;
    let scratch = Scratch::create(&ground.place.folder, scratch::EXPERIMENT)?;
    let (quick, folder) = (study.is_quick(options), out.path.clone());
    let mut progress = Progress::new(study.expected(quick));
    let mut bench = Bench {
        scratch: &scratch,
        place: &ground.place,
        profile: &ground.profile,
        net: &options.net,
        quick,
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
    for (made, part) in study.parts().iter().enumerate() {
        let section = Interrupted::by(signal).map_err(anyhow::Error::from).and_then(|()| part(&mut bench));
        let missing = format!(
            "the study is incomplete: {made} of {} parts are in {}",
            study.parts().len(),
            options.out.join("index.html").display()
        );
        let section = if made > 0 { section.context(missing)? } else { section? };
        studied.sections.push(section);
        studied.notes.clone_from(&bench.notes);
        studied.seconds = cawl_host::now().since(started).as_seconds();
        studied.write(&folder)?;
        out.keep();
    }
    Ok(studied)
}

impl Studied {
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            output::write(&file, output::FOR_ALL, text)
                .with_context(|| format!("cannot write {}", file.display()))
        };
        write("results.json", serde_json::to_string_pretty(self)? + "\n")?;
        write("index.html", self.page().into_string())
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.sections.iter().flat_map(|section| &section.findings)
    }

    fn page(&self) -> Markup {
        let summary = Table {
            caption: "The documents' figures and claims".to_owned(),
            header: SUMMARY.map(str::to_owned).to_vec(),
            rows: self.findings().map(Finding::cells).collect(),
        };
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    title { "cawl: the documents' experiments" }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { "The documents' experiments, observed and predicted" }
                    (facts(&self.machine))
                    @for note in &self.notes { p.note { (note) } }
                    @if !summary.rows.is_empty() { (summary.markup()) }
                    @for section in &self.sections {
                        h2 id=(section.name) { (section.title) }
                        @for text in &section.text { p { (text) } }
                        @for table in &section.tables { (table.markup()) }
                        @for picture in &section.pictures { (PreEscaped(picture)) }
                    }
                }
            }
        }
    }

    /// The summary and the tables for people.
    pub fn text(&self, terminal: bool) -> String {
        let mut text = String::new();
        for (name, value) in &self.machine {
            text += &named(name, 13, &shown(value), terminal);
        }
        for section in &self.sections {
            text += &format!("\n{}\n", bold(&section.title, terminal));
            for one in &section.tables {
                let header: Vec<&str> = one.header.iter().map(String::as_str).collect();
                text.extend(["\n", &one.caption]);
                headed(&mut text, &table(&header, [0], one.rows.clone()), terminal);
            }
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
        for note in &self.notes {
            text += &format!("{} {note}\n", warn("note:", terminal));
        }
        text
    }
}

const SUMMARY: [&str; 5] = ["ITEM", "THEIRS", "OBSERVED", "PREDICTED", "VERDICT"];

impl Finding {
    fn cells(&self) -> Vec<String> {
        let Finding { item, theirs, observed, predicted, verdict } = self;
        [item, theirs, observed, predicted]
            .map(String::clone)
            .into_iter()
            .chain([verdict.name().to_owned()])
            .collect()
    }
}
