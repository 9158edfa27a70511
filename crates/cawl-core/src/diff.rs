//! Two reports beside each other: what B takes more or less than A, and what explains it.
//!
//! The law: **the observed time of calls is divided among operations and causes, and so is its difference.**
//! The parts that changed most in the direction of the whole explain it; nothing here judges what is good.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::explain::Explain;
use crate::model::MODELS;
use crate::patterns::OpPatterns;
use crate::record::{Filesystem, HostFacts};
use crate::report::{FileReport, ProfileUsed, Report};
use crate::units::Nanos;

/// Version of [`Difference`].
pub const DIFF_SCHEMA: u32 = 1;

/// Part of the larger time below which there is no difference to explain.
const NOTHING: f64 = 0.02;
/// Part of the difference from which on a second reason is told.
const SECOND: f64 = 0.2;
/// Factor between two numbers from which on they differ.
const OTHER: f64 = 1.1;
/// Factor between the times of a call from which on they are told beside numbers that differ.
const DEARER: f64 = 2.0;
/// Parts of calls by which patterns differ.
const SHIFTED: f64 = 0.1;

/// A figure of A, and of B.
pub type Pair<T> = [T; 2];

/// What two reports have in common and what not. Times in seconds, sizes in bytes; A comes first.
#[derive(Clone, Debug, Serialize)]
pub struct Difference<'a> {
    /// [`DIFF_SCHEMA`].
    pub schema: u32,
    /// What explains the difference, in words.
    pub said: String,
    /// Time in calls.
    pub total_s: Pair<f64>,
    /// Time in calls of B over that of A; None if A took none.
    pub ratio: Option<f64>,
    /// What the same calls would take undisturbed.
    pub undisturbed_s: Pair<f64>,
    /// From the first call to the end of the last.
    pub elapsed_s: Pair<f64>,
    /// Calls that the times are of.
    pub calls: Pair<u64>,
    /// Their bytes.
    pub bytes: Pair<u64>,
    /// The reasons that `said` tells; empty where there is hardly a difference.
    pub reasons: Vec<Reason<'a>>,
    /// Time by cause, largest difference first.
    pub causes: Vec<Row<'a>>,
    /// Calls by operation, largest difference first.
    pub ops: Vec<Row<'a>>,
    /// Calls by file, largest difference first.
    pub files: Vec<Row<'a>>,
    /// Patterns of files and operations that differ, in the order of `files`.
    pub patterns: Vec<PatternPair<'a>>,
    /// What each report notes of itself: that it is of a part of the calls, lost calls, damage of its trace.
    pub notes: Pair<Vec<String>>,
    /// How each was analysed: its mode, and whether the models learned. The causes depend on it.
    pub mode: Pair<String>,
    /// What differs of the machines.
    pub machine: Vec<Fact>,
    /// The profiles that the models used.
    pub profile: Pair<&'a ProfileUsed>,
}

/// The calls of a cause, an operation or a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<'a> {
    /// Its name; of a file the path in A, or in B if A has none.
    pub name: &'a str,
    /// The path in B, where that is another one with the same file name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed: Option<&'a str>,
    /// Calls; of a cause those of whose time it is the largest part.
    pub calls: Pair<u64>,
    /// Their bytes.
    pub bytes: Pair<u64>,
    /// Observed time, in seconds.
    pub observed_s: Pair<f64>,
}

impl Row<'_> {
    /// What B takes more, in seconds.
    pub fn difference(&self) -> f64 {
        self.observed_s[1] - self.observed_s[0]
    }
}

/// A part of the difference: the time that an operation lost to a cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason<'a> {
    /// What B takes more of it, in seconds.
    pub difference_s: f64,
    /// The cause.
    pub cause: &'a str,
    /// The operation.
    pub op: &'a str,
    /// Its calls, of all causes.
    pub calls: Pair<u64>,
    /// What the cause took of them, in seconds.
    pub observed_s: Pair<f64>,
}

/// How an operation was used on a file.
#[derive(Clone, Debug, Serialize)]
pub struct PatternPair<'a> {
    /// The path, as in `files`.
    pub file: &'a str,
    /// The operation.
    pub op: &'a str,
    /// Its pattern.
    pub patterns: Pair<&'a OpPatterns>,
}

/// A fact that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is.
    pub name: &'static str,
    /// As it is there.
    pub values: Pair<String>,
}

/// Why two reports cannot be compared. A number is 0 for A, 1 for B.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// Without calls.
    #[error("{} has no calls", SIDES[*.0])]
    NoCalls(usize),
    /// Without causes of observed times.
    #[error("there are no observed times in {}: its calls are not on files, or were imported without durations",
        SIDES[*.0])]
    NoTimes(usize),
    /// The first models, on which it depends what calls are counted.
    #[error("A was analysed with the model {}, B with {}, and they count other calls: give traces, or reports \
             of `replay --model {} --json`", .0[0], .0[1], MODELS[0])]
    Models(Pair<String>),
}

const SIDES: Pair<&str> = ["A", "B"];

impl<'a> Difference<'a> {
    /// Compares two reports.
    ///
    /// # Errors
    /// Where one has no calls, or no observed times, as of an import without durations, or has them of other
    /// calls.
    pub fn new(reports: Pair<&'a Report>) -> Result<Difference<'a>, Incomparable> {
        let explain = |at: usize| {
            let explain = reports[at].explain.as_ref().filter(|of| of.observed_s > 0.0);
            let why = if reports[at].calls == 0 { Incomparable::NoCalls } else { Incomparable::NoTimes };
            explain.ok_or(why(at))
        };
        let explains = [explain(0)?, explain(1)?];
        let models = reports.map(|report| report.models.first().map_or("", |model| &model.name));
        if models[0] != models[1] {
            return Err(Incomparable::Models(models.map(str::to_owned)));
        }
        let total_s = explains.map(|of| of.observed_s);
        let names = Names::new(reports.map(|report| &report.files[..]));
        let files = files(reports, &names);
        let (ops, parts) = by_op(reports);
        let reasons = reasons(total_s, parts, &ops);
        Ok(Difference {
            schema: DIFF_SCHEMA,
            said: said(total_s, &reasons),
            total_s,
            ratio: (total_s[0] > 0.0).then(|| total_s[1] / total_s[0]),
            undisturbed_s: explains.map(|of| of.best.undisturbed_s),
            elapsed_s: reports.map(|report| report.span_s),
            calls: explains.map(|of| of.calls),
            bytes: explains.map(|of| of.bytes),
            reasons,
            causes: causes(explains),
            ops,
            patterns: patterns(reports, &names, &files),
            files,
            notes: reports.map(notes),
            mode: reports.map(|report| {
                let learning = if report.learn { ", learning" } else { "" };
                format!("{}{learning}", report.mode)
            }),
            machine: machine(reports),
            profile: reports.map(|report| &report.profile),
        })
    }

    /// True if the calls of B take more than those of A by this part of it.
    pub fn is_slower_by(&self, part: f64) -> bool {
        self.ratio.is_some_and(|ratio| ratio - 1.0 > part)
    }
}

#[derive(Default)]
struct Rows<'a>(BTreeMap<&'a str, Row<'a>>);

impl<'a> Rows<'a> {
    /// Adds what A (0) or B (1) has of a name.
    fn add(&mut self, at: usize, name: &'a str, calls: u64, bytes: u64, seconds: f64) -> &mut Row<'a> {
        let none = Row { name, renamed: None, calls: [0; 2], bytes: [0; 2], observed_s: [0.0; 2] };
        let row = self.0.entry(name).or_insert(none);
        row.calls[at] = row.calls[at].saturating_add(calls);
        row.bytes[at] = row.bytes[at].saturating_add(bytes);
        row.observed_s[at] += seconds;
        row
    }

    /// Largest difference first.
    fn sorted(self) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = self.0.into_values().collect();
        rows.sort_by(|one, other| other.difference().abs().total_cmp(&one.difference().abs()));
        rows
    }
}

fn causes<'a>(explains: Pair<&'a Explain>) -> Vec<Row<'a>> {
    let mut rows = Rows::default();
    for (at, explain) in explains.into_iter().enumerate() {
        for cause in &explain.causes {
            rows.add(at, &cause.name, cause.calls, cause.bytes, cause.observed_s);
        }
    }
    rows.sorted()
}

/// Seconds of A and B by operation and cause.
type Parts<'a> = BTreeMap<(&'a str, &'a str), Pair<f64>>;

fn by_op<'a>(reports: Pair<&'a Report>) -> (Vec<Row<'a>>, Parts<'a>) {
    let (mut rows, mut parts) = (Rows::default(), Parts::new());
    for (at, report) in reports.into_iter().enumerate() {
        for op in report.files.iter().flat_map(|file| &file.ops) {
            rows.add(at, &op.op, op.calls, op.bytes, op.observed_s);
            for (cause, seconds) in op.causes.iter() {
                parts.entry((&op.op, cause)).or_default()[at] += seconds;
            }
        }
    }
    (rows.sorted(), parts)
}

/// The one or two parts that changed most in the direction of the whole.
fn reasons<'a>(total_s: Pair<f64>, parts: Parts<'a>, ops: &[Row<'a>]) -> Vec<Reason<'a>> {
    let whole = total_s[1] - total_s[0];
    if whole.abs() <= NOTHING * total_s[0].max(total_s[1]) {
        return Vec::new();
    }
    let calls = |name: &str| ops.iter().find(|op| op.name == name).map_or([0; 2], |op| op.calls);
    let reason = |((op, cause), observed_s): (_, Pair<f64>)| Reason {
        difference_s: observed_s[1] - observed_s[0],
        cause,
        op,
        calls: calls(op),
        observed_s,
    };
    let mut all: Vec<Reason<'a>> = parts.into_iter().map(reason).collect();
    all.retain(|reason| reason.difference_s * whole > 0.0);
    all.sort_by(|a, b| b.difference_s.abs().total_cmp(&a.difference_s.abs()));
    let is_told = |(at, reason): &(usize, Reason<'a>)| *at == 0 || reason.difference_s / whole >= SECOND;
    all.into_iter().take(2).enumerate().filter(is_told).map(|(_, reason)| reason).collect()
}

/// `3.1 s of 3.4 s more: journal, 802 fdatasyncs where there were 50`.
fn said(total_s: Pair<f64>, reasons: &[Reason<'_>]) -> String {
    let [was, is] = total_s.map(Nanos::seconds);
    let Some(first) = reasons.first() else {
        return format!("hardly a difference: {was} and {is} in calls");
    };
    let whole = total_s[1] - total_s[0];
    let way = if whole > 0.0 { "more" } else { "less" };
    let [part, all] = [first.difference_s, whole].map(|seconds| Nanos::seconds(seconds.abs()));
    // Others take what is beyond the whole in the other direction.
    let whole =
        if part > all { format!("{part} {way}, {all} in all") } else { format!("{part} of {all} {way}") };
    let mut text = format!("{whole}: {}", first.in_words());
    for second in &reasons[1..] {
        let _ = write!(text, "; {}: {}", Nanos::seconds(second.difference_s.abs()), second.in_words());
    }
    text
}

impl Reason<'_> {
    /// `journal, 802 fdatasyncs where there were 50`.
    fn in_words(&self) -> String {
        let [was, is] = self.calls;
        let Reason { cause, op, .. } = self;
        let number = |calls: u64| match calls {
            0 => format!("no {op}"),
            1 => format!("1 {op}"),
            _ if op.ends_with('s') => format!("{calls} {op}"),
            _ => format!("{calls} {op}s"),
        };
        let mut text = format!("{cause}, {}", number(is));
        let is_other = |one: f64, other: f64, by: f64| one.max(other) > by * one.min(other);
        let numbers_differ = is_other(was as f64, is as f64, OTHER);
        if numbers_differ {
            let there = if was == 1 { "was 1".to_owned() } else { format!("were {was}") };
            text +=
                &if was == 0 { " where there were none".to_owned() } else { format!(" where there {there}") };
        }
        let each = |at: usize| self.observed_s[at] / self.calls[at].max(1) as f64;
        if was > 0 && is > 0 && is_other(each(0), each(1), if numbers_differ { DEARER } else { 1.0 }) {
            let [was, is] = [each(0), each(1)].map(Nanos::seconds);
            // Of calls that all sides have, the cause may have met a single one.
            text += &match self.observed_s {
                [0.0, _] => ", no time by this cause before".to_owned(),
                [_, 0.0] => ", no time by this cause now".to_owned(),
                _ => format!(", {is} each where it was {was}"),
            };
        }
        text
    }
}

/// The names of files of B by which they are told: those of A where one of A is the same.
struct Names<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Names<'a> {
    /// A file of B whose path A does not have is the one of A that B does not have and that alone has its
    /// file name, as where each run has a folder of its own.
    fn new(files: Pair<&'a [FileReport]>) -> Names<'a> {
        let paths = files.map(|files| files.iter().map(|file| &*file.path).collect::<BTreeSet<&str>>());
        let alone = |at: usize| {
            let mut by_name: BTreeMap<&str, Option<&'a str>> = BTreeMap::new();
            for path in paths[at].difference(&paths[1 - at]) {
                by_name.entry(file_name(path)).and_modify(|found| *found = None).or_insert(Some(path));
            }
            by_name
        };
        let (of_a, of_b) = (alone(0), alone(1));
        let same = |(name, path): (&str, Option<&'a str>)| Some((path?, (*of_a.get(name)?)?));
        Names(of_b.into_iter().filter_map(same).collect())
    }

    /// The name of a file of A (0) or B (1).
    fn of(&self, at: usize, path: &'a str) -> &'a str {
        self.0.get(path).filter(|_| at == 1).copied().unwrap_or(path)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn files<'a>(reports: Pair<&'a Report>, names: &Names<'a>) -> Vec<Row<'a>> {
    let mut rows = Rows::default();
    for (at, report) in reports.into_iter().enumerate() {
        for file in &report.files {
            let name = names.of(at, &file.path);
            for op in &file.ops {
                let row = rows.add(at, name, op.calls, op.bytes, op.observed_s);
                row.renamed = Some(&*file.path).filter(|path| *path != name).or(row.renamed);
            }
        }
    }
    rows.sorted()
}

fn patterns<'a>(reports: Pair<&'a Report>, names: &Names<'a>, files: &[Row<'a>]) -> Vec<PatternPair<'a>> {
    let of = |at: usize| {
        let ops = reports[at].files.iter().flat_map(move |file| {
            let name = names.of(at, &file.path);
            file.patterns.iter().flat_map(|patterns| &patterns.ops).map(move |op| ((name, &*op.op), op))
        });
        ops.collect::<BTreeMap<_, _>>()
    };
    let (of_a, of_b) = (of(0), of(1));
    let pairs = files.iter().flat_map(|file| {
        let ops = of_a.range((file.name, "")..).take_while(|((name, _), _)| *name == file.name);
        ops.filter_map(|((file, op), was)| {
            let patterns = [*was, *of_b.get(&(*file, *op))?];
            Some(PatternPair { file, op, patterns })
        })
    });
    pairs.filter(|pair| differ(pair.patterns)).collect()
}

/// Other sizes, or another order.
fn differ(patterns: Pair<&OpPatterns>) -> bool {
    let [was, is] = patterns;
    let parts = |of: &OpPatterns| {
        [of.sequential, of.strided, of.random, of.block_aligned]
            .map(|part| part as f64 / of.calls.max(1) as f64)
    };
    let mean = |of: &OpPatterns| of.bytes as f64 / of.calls.max(1) as f64;
    let (one, other) = (mean(was), mean(is));
    one.max(other) > OTHER * one.min(other)
        || parts(was).into_iter().zip(parts(is)).any(|(was, is)| (was - is).abs() >= SHIFTED)
}

/// What the reader must know of a report: first of which calls it is.
fn notes(report: &Report) -> Vec<String> {
    let selected = report.selection.iter().map(|selection| format!("only {selection}"));
    let Report { drops, unseen, .. } = report;
    let lost = (drops.max(unseen) > &0)
        .then(|| format!("calls that are not in it: {drops} dropped, {unseen} unseen"));
    selected.chain(lost).chain(report.notes.iter().cloned()).collect()
}

/// What differs of the machines, and of the filesystems with the files. Nothing is told where one is not
/// known.
fn machine(reports: Pair<&Report>) -> Vec<Fact> {
    let [Some(one), Some(other)] = reports.map(|report| report.host.as_ref()) else { return Vec::new() };
    let facts =
        |name, of: &dyn Fn(usize, &HostFacts) -> String| Fact { name, values: [of(0, one), of(1, other)] };
    let disks = |at: usize, host: &HostFacts| {
        let used: BTreeSet<u64> = reports[at].files.iter().map(|file| file.dev).collect();
        let told = |of: &Filesystem| format!("{} on {} ({})", of.kind, of.device, of.options);
        let disks = host.filesystems.iter().filter(|of| used.contains(&of.dev)).map(told);
        disks.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
    };
    let mut all = vec![
        facts("host", &|_, host| host.host.clone()),
        facts("kernel", &|_, host| host.kernel.clone()),
        facts("processors", &|_, host| host.cpus.to_string()),
        facts("memory", &|_, host| host.memory.to_string()),
        facts("page", &|_, host| format!("{} B", host.page)),
        // The limits follow the free memory.
        facts("settings", &|_, host| {
            let set: Vec<_> =
                host.dirty_settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
            set.join(", ")
        }),
        facts("files on", &disks),
    ];
    all.retain(|fact| fact.values[0] != fact.values[1]);
    all
}

#[cfg(test)]
mod tests;
