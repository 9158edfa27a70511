//! Studies: the experiments and data of the documents beside the paper, each a section of one page.
//!
//! A section tells what was measured here, what the models predict, and what the document says; its findings
//! are the rows of the summary.

mod calls;
mod chart;
mod direct;
mod fitted;
mod locks;
mod osync;
mod seeds;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use cawl_core::{HostProfile, Nanos};
use cawl_host::place::Place;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use serde_json::Value;

use super::page::STYLE;
use super::results::OutFolder;
use super::{Ground, Interrupted};
use crate::args::{ExperimentArgs, Study};
use crate::progress::Progress;
use crate::render::{bold, headed, line, shown, table, warn};
use crate::scratch::{self, Scratch};

/// What a study works with.
pub struct Bench<'a> {
    /// The folder of its files, which are removed at the end.
    pub scratch: &'a Scratch,
    /// The disk.
    pub place: &'a Place,
    /// The models' profile.
    pub profile: &'a HostProfile,
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

/// A table.
#[derive(Debug, Default, Serialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Heads of the columns; the first is aligned left.
    pub header: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
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
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::Differs => "differs here",
            Verdict::Wrong => "wrong",
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

impl Study {
    /// Fewer runs are enough.
    fn is_quick(self, options: &ExperimentArgs) -> bool {
        options.quick || (self == Study::Seeds && options.repeats.is_none())
    }

    /// The time that it takes at most, about.
    fn expected(self, quick: bool) -> Nanos {
        match self {
            Study::Seeds => osync::longest(quick) + direct::expected(true) + locks::expected(true),
            Study::Osync => osync::longest(quick),
            Study::Direct => direct::expected(quick),
            Study::Locks => locks::expected(quick),
        }
    }

    fn sections(self, bench: &mut Bench) -> anyhow::Result<Vec<Section>> {
        match self {
            Study::Seeds => {
                let mut sections = seeds::sections(bench)?;
                sections.push(osync::section(bench)?);
                sections.push(direct::section(bench, true)?);
                sections.extend(locks::sections(bench, true)?);
                Ok(sections)
            }
            Study::Osync => Ok(vec![osync::section(bench)?]),
            Study::Direct => Ok(vec![direct::section(bench, bench.quick)?]),
            Study::Locks => locks::sections(bench, bench.quick),
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
    let quick = study.is_quick(options);
    let mut progress = Progress::new(study.expected(quick));
    let mut bench = Bench {
        scratch: &scratch,
        place: &ground.place,
        profile: &ground.profile,
        quick,
        repeats: options.repeats,
        out: &out.path,
        notes: ground.notes.clone(),
        signal,
        progress: &mut progress,
    };
    let sections = study.sections(&mut bench)?;
    let notes = bench.notes;
    Interrupted::by(signal)?;
    let studied = Studied {
        schema: 1,
        machine: machine(&ground),
        sections,
        notes,
        seconds: cawl_host::now().since(started).as_seconds(),
        out: options.out.clone(),
    };
    studied.write(&out.path)?;
    out.keep();
    Ok(studied)
}

/// Processor, memory, drive, kernel and filesystem.
fn machine(ground: &Ground) -> Vec<(String, String)> {
    let facts = cawl_host::facts();
    let processor = cawl_host::processor().unwrap_or_else(|| "not known".to_owned());
    let limits = ground.profile.kernel.limits;
    let place = &ground.place;
    let kind = match place.rotational {
        Some(true) => ", a hard disk",
        Some(false) => ", without a moving part",
        None => "",
    };
    let named = |name: &str, value: String| (name.to_owned(), value);
    vec![
        named("processor", format!("{} × {processor}", facts.cpus)),
        named("memory", facts.memory.to_string()),
        named("drive", format!("{}{kind}", ground.device)),
        named("kernel", format!("Linux {}", facts.kernel)),
        named("filesystem", place.filesystem.clone()),
        named("dirty limits", format!("{} and {}", limits.background, limits.hard)),
        named("profile", ground.profile.name.clone()),
    ]
}

impl Studied {
    fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
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
                    table { @for (name, value) in &self.machine { tr { td { (name) } td { (value) } } } }
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
            text += &format!("{:13}{}\n", bold(name, false), shown(value));
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

impl Table {
    fn markup(&self) -> Markup {
        html! {
            table {
                caption { (self.caption) }
                tr { @for head in &self.header { th { (head) } } }
                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
            }
        }
    }
}
