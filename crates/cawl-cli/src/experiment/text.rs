//! The models' errors as a table.

use cawl_core::Bytes;

use super::{Errors, Evaluation, ModelErrors};
use crate::render::{bold, lines, percent, shown, table, warn};

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
    let mut rows = table(
        &[
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
        ],
        [0],
    );
    for run in evaluation.figures.iter().flat_map(|figure| &figure.runs) {
        let head = [
            run.name.clone(),
            run.calls.to_string(),
            run.bytes.to_string(),
            format!("{:.3} s", run.observed_s),
        ];
        rows.add_row(head.into_iter().chain(cells(&run.models, run.floor)));
    }
    let written: u64 = evaluation.figures.iter().flat_map(|figure| &figure.runs).map(|run| run.bytes.0).sum();
    if !evaluation.median.is_empty() {
        let head = ["median".to_owned(), String::new(), String::new(), String::new()];
        rows.add_row(head.into_iter().chain(cells(&evaluation.median, evaluation.floor)));
    }
    out += &lines(&rows);
    for note in &evaluation.notes {
        out += &format!("{} {note}\n", warn("note:", terminal));
    }
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
