//! The models' errors as a table.

use cawl_core::Bytes;

use super::tables::tables;
use super::{Errors, Evaluation, ModelErrors};
use crate::render::{bold, headed, percent, shown, table, warn};

const COLUMNS: [&str; 11] = [
    "RUN",
    "CALLS",
    "BYTES",
    "OBSERVED",
    "KERNEL",
    "CAWL",
    "NAIVE",
    "FLOOR",
    "KERNEL DIRTY",
    "KERNEL GAIN",
    "CAWL GAIN",
];

/// Errors of each model and run, with the noise floor and the improvement over naive.
pub fn text(evaluation: &Evaluation, terminal: bool) -> String {
    let Evaluation { device, filesystem, limits, .. } = evaluation;
    let mut out = format!(
        "{} {device} ({filesystem}), profile {}\n",
        bold("place", terminal),
        shown(&evaluation.profile)
    );
    out += &format!(
        "dirty limits {} / {}, each run {} times, open loop; errors of the total cost, improvement over naive in points\n\n",
        limits.background, limits.hard, evaluation.repeats
    );
    let runs = || evaluation.figures.iter().flat_map(|figure| &figure.runs);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut add = |head: [String; 4], models, floor| rows.push([&head[..], &cells(models, floor)].concat());
    for run in runs() {
        let observed = format!("{:.3} s", run.observed_s);
        let head = [run.name.clone(), run.calls.to_string(), run.bytes.to_string(), observed];
        add(head, &run.models, run.floor);
    }
    if !evaluation.median.is_empty() {
        add(["median", "", "", ""].map(str::to_owned), &evaluation.median, evaluation.floor);
    }
    out += &table(&COLUMNS, [0], rows);
    for found in tables(evaluation) {
        let header: Vec<&str> = found.header.iter().map(String::as_str).collect();
        out.extend(["\n", &found.caption]);
        headed(&mut out, &table(&header, [0], found.rows), terminal);
    }
    for note in &evaluation.notes {
        out += &format!("{} {note}\n", warn("note:", terminal));
    }
    let written: u64 = runs().map(|run| run.bytes.0).sum();
    let written = Bytes(written.saturating_mul(evaluation.repeats as u64));
    out + &format!("\n{written} written in {:.0} s\n", evaluation.seconds)
}

fn cells(models: &[ModelErrors], floor: Option<Errors>) -> Vec<String> {
    let gain = |model: &ModelErrors| {
        model.improvement.map_or("-".to_owned(), |gain| format!("{:+.1}", gain * 100.0))
    };
    let mut cells: Vec<String> = models.iter().map(|model| percent(model.errors.total)).collect();
    cells.push(percent(floor.and_then(|floor| floor.total)));
    cells.push(percent(models.first().and_then(|model| model.errors.dirty)));
    cells.extend(models.iter().take(2).map(gain));
    cells
}
