//! Tables of a page and of the terminal.

use cawl_console::{percent, time};
use cawl_core::{Bytes, MODELS};
use maud::{Markup, html};
use serde::Serialize;

use super::Evaluation;
use super::judge::{Errors, JudgedRun, ModelErrors};
use super::pattern::Period;

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
    fn new(caption: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Table {
        let header = header.iter().map(|head| (*head).to_owned()).collect();
        Table { caption: caption.to_owned(), header, rows: rows.collect() }
    }

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

/// The models' errors, periods of synchronous calls, the emptying of streams, and the models' own time.
pub fn tables(evaluation: &Evaluation) -> Vec<Table> {
    let Evaluation { figures, median, floor, .. } = evaluation;
    let runs = || figures.iter().flat_map(|figure| &figure.runs);
    let with_models = |head: &[&'static str]| [head, MODELS].concat();
    let errors = |caption: &str, of: fn(&Errors) -> Option<f64>| {
        let row = |name: &str, models: &[ModelErrors], floor: Option<Errors>| {
            let models = models.iter().map(|model| Some(model.errors));
            let cells = models.chain([floor]).map(|errors| percent(errors.as_ref().and_then(of)));
            [name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
        };
        let rows =
            runs().map(|run| row(&run.name, &run.models, run.floor)).chain([row("median", median, *floor)]);
        Table::new(caption, &[&with_models(&["run"])[..], &["floor"]].concat(), rows)
    };
    let median_row = total("median", "", median, *floor);
    let head = ["run", "observed"];
    let all = [
        Table::new(
            "Errors of the total cost, and what they are less than those of naive, in points",
            &[&with_models(&head)[..], &["floor", "gain", "of cawl"]].concat(),
            runs().map(of_run).chain([median_row]),
        ),
        errors("Mean errors of 16 windows of equal observed time", |errors| errors.windowed),
        errors("Mean errors of single calls, the paper's metric", |errors| errors.call),
        errors("Errors of the dirty level, in parts of the hard limit", |errors| errors.dirty),
        Table::new(
            "What repeats in synchronous calls",
            &["run", "requests a call", "every … calls", "every", "what has this period"],
            runs().flat_map(periods),
        ),
        Table::new(
            "Calls that empty a stream's buffer, medians, and the error of kernel",
            &[&with_models(&["run", "calls", "observed"])[..], &["error"]].concat(),
            runs().filter_map(emptying),
        ),
        Table::new(
            "Time that the models take for a run",
            &with_models(&["run", "calls", "bytes"]),
            runs().map(simulation),
        ),
    ];
    all.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn of_run(run: &JudgedRun) -> Vec<String> {
    total(&run.name, &format!("{:.3} s", run.observed_s), &run.models, run.floor)
}

fn total(name: &str, observed: &str, models: &[ModelErrors], floor: Option<Errors>) -> Vec<String> {
    let gain = |model: &ModelErrors| {
        model.improvement.map_or("-".to_owned(), |gain| format!("{:+.1}", gain * 100.0))
    };
    let mut row = vec![name.to_owned(), observed.to_owned()];
    row.extend(models.iter().map(|model| percent(model.errors.total)));
    row.push(percent(floor.and_then(|floor| floor.total)));
    row.extend(models.iter().take(2).map(gain));
    row
}

fn periods(run: &JudgedRun) -> Vec<Vec<String>> {
    let requests = || run.requests.map_or("-".to_owned(), |requests| format!("{requests:.2}"));
    let row = |period: &Period| {
        let bytes = Bytes::from_f64(period.bytes).to_string();
        let reason = period.reason.name().to_owned();
        vec![run.name.clone(), requests(), format!("{:.1}", period.calls), bytes, reason]
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
    [run.name.clone(), run.calls.to_string(), run.bytes.to_string()].into_iter().chain(times).collect()
}
