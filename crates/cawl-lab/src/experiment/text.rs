//! The models' errors as tables.

use cawl_console::{headed, named, shown, table, warn};
use cawl_core::Bytes;

use super::Evaluation;
use super::tables::tables;

/// Errors of each model and run, with the noise floor and the improvement over naive.
pub fn text(evaluation: &Evaluation, terminal: bool) -> String {
    let mut out = String::new();
    for (name, value) in &evaluation.machine {
        out += &named(name, 13, &shown(value), terminal);
    }
    out += &format!("\nEach run {} times, in open loop.\n", evaluation.repeats);
    for found in tables(evaluation) {
        let header: Vec<&str> = found.header.iter().map(String::as_str).collect();
        out.extend(["\n", &found.caption]);
        headed(&mut out, &table(&header, [0], found.rows), terminal);
    }
    for note in &evaluation.notes {
        out += &format!("{} {note}\n", warn("note:", terminal));
    }
    let runs = evaluation.figures.iter().flat_map(|figure| &figure.runs);
    let written: u64 = runs.map(|run| run.bytes.0).sum();
    let written = Bytes(written.saturating_mul(evaluation.repeats as u64));
    out + &format!("\n{written} written in {:.0} s\n", evaluation.seconds)
}
