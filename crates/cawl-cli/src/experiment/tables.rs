//! Tables of a page and of the terminal.

use cawl_core::{Bytes, MODELS};
use maud::{Markup, html};
use serde::Serialize;

use super::Evaluation;
use super::judge::JudgedRun;
use super::pattern::Period;
use crate::render::{percent, time};

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

impl Table {
    /// For a page.
    pub fn markup(&self) -> Markup {
        html! {
            table {
                caption { (self.caption) }
                tr { @for head in &self.header { th { (head) } } }
                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
            }
        }
    }
}

/// Beside the errors: periods of synchronous calls, the emptying of streams, and the models' own time.
pub fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let runs = || evaluation.figures.iter().flat_map(|figure| &figure.runs);
    let table = |caption: &str, head: &[&str], rows: Vec<Vec<String>>| Table {
        caption: caption.to_owned(),
        header: head.iter().map(|head| (*head).to_owned()).collect(),
        rows,
    };
    let all = [
        table(
            "What repeats in synchronous calls",
            &["run", "requests a call", "every … calls", "every", "what has this period"],
            runs().flat_map(periods).collect(),
        ),
        table(
            "Calls that empty a stream's buffer, medians",
            &[&["run", "calls", "observed"][..], &MODELS, &["error of kernel"]].concat(),
            runs().filter_map(emptying).collect(),
        ),
        table(
            "Time that the models take for a run",
            &[&["run", "calls"][..], &MODELS].concat(),
            runs().map(simulation).collect(),
        ),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn periods(run: &JudgedRun) -> Vec<Vec<String>> {
    let requests = || run.requests.map_or("-".to_owned(), |requests| format!("{requests:.2}"));
    let row = |period: &Period| {
        let bytes = Bytes::from_f64(period.bytes).to_string();
        vec![
            run.name.clone(),
            requests(),
            format!("{:.1}", period.calls),
            bytes,
            period.reason.name().to_owned(),
        ]
    };
    run.periods.iter().map(row).collect()
}

fn emptying(run: &JudgedRun) -> Option<Vec<String>> {
    let found = run.emptying.as_ref()?;
    let mut row = vec![run.name.clone(), found.calls.to_string(), time(found.observed_s)];
    row.extend(found.predicted_s.iter().map(|predicted| time(*predicted)));
    let error = |predicted: &f64| (predicted - found.observed_s).abs() / found.observed_s;
    row.push(percent(found.predicted_s.first().map(error)));
    Some(row)
}

fn simulation(run: &JudgedRun) -> Vec<String> {
    let times = run.models.iter().map(|model| time(model.simulation_s));
    [run.name.clone(), run.calls.to_string()].into_iter().chain(times).collect()
}
