//! What the figures' evaluation says: tables, page and text.

use std::path::Path;

use anyhow::Context;
use cawl_console::{percent, time};
use cawl_core::{Bytes, MODELS};
use maud::{PreEscaped, html};

use super::Evaluation;
use super::judge::{Errors, JudgedRun, ModelErrors};
use super::pattern::Period;
use super::report::{self, Table, save};
use crate::args::Experiment;

/// Writes index.html with the figures of the same folder.
pub fn write_page(evaluation: &Evaluation, folder: &Path) -> anyhow::Result<()> {
    let mut figures = Vec::new();
    // The suite has no figure.
    for figure in evaluation.figures.iter().filter(|figure| figure.experiment != Experiment::Suite) {
        let svg = folder.join(format!("{}.svg", figure.experiment.name()));
        let picture =
            std::fs::read_to_string(&svg).with_context(|| format!("cannot read {}", svg.display()))?;
        figures.push((figure.experiment, PreEscaped(picture)));
    }
    let Evaluation { repeats, scale, .. } = evaluation;
    let body = html! {
        p {
            "Each run " (repeats) " times, scale " (scale)
            ". Open loop: the models see the calls, the times between them and the profile. The floor is the error of \
             another recording of the same run in the place of a model."
        }
        @if !evaluation.missing.is_empty() {
            p.note { "Not complete. Missing: " (evaluation.missing.join(", ")) "." }
        }
        @for note in &evaluation.notes { p.note { (note) } }
        @for table in tables(evaluation) { (table.markup()) }
        @for (experiment, picture) in figures {
            h2 id=(experiment.name()) { (experiment.name()) ": " (experiment.title()) }
            (picture)
        }
    };
    let heading = "Write costs, observed and modelled";
    save(folder, "index.html", report::page(&evaluation.device, heading, &evaluation.machine, &body))
}

/// The tables for the terminal.
pub fn text(evaluation: &Evaluation, terminal: bool) -> String {
    let mut out = report::machine(&evaluation.machine, terminal);
    out += &format!("\nEach run {} times, in open loop.\n", evaluation.repeats);
    tables(evaluation).iter().for_each(|table| table.write(&mut out, terminal));
    out += &report::notes(&evaluation.notes, terminal);
    let runs = evaluation.figures.iter().flat_map(|figure| &figure.runs);
    let written: u64 = runs.map(|run| run.bytes.0).sum();
    let written = Bytes(written.saturating_mul(evaluation.repeats as u64));
    out + &format!("\n{written} written in {:.0} s\n", evaluation.seconds)
}

/// The models' errors, periods of synchronous calls, the emptying of streams, and the models' own time.
fn tables(evaluation: &Evaluation) -> Vec<Table> {
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
        Table::new(caption, [&with_models(&["run"])[..], &["floor"]].concat(), rows)
    };
    let median_row = total("median", "", median, *floor);
    let head = ["run", "observed"];
    let all = [
        Table::new(
            "Errors of the total cost, and what they are less than those of naive, in points",
            [&with_models(&head)[..], &["floor", "gain", "of cawl"]].concat(),
            runs().map(of_run).chain([median_row]),
        ),
        errors("Mean errors of 16 windows of equal observed time", |errors| errors.windowed),
        errors("Mean errors of single calls, the paper's metric", |errors| errors.call),
        errors("Errors of the dirty level, in parts of the hard limit", |errors| errors.dirty),
        Table::new(
            "What repeats in synchronous calls",
            ["run", "requests a call", "every … calls", "every", "what has this period"],
            runs().flat_map(periods),
        ),
        Table::new(
            "Calls that empty a stream's buffer, medians, and the error of kernel",
            [&with_models(&["run", "calls", "observed"])[..], &["error"]].concat(),
            runs().filter_map(emptying),
        ),
        Table::new(
            "Time that the models take for a run",
            with_models(&["run", "calls", "bytes"]),
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

#[cfg(test)]
mod tests {
    use cawl_core::{Bytes, DirtyLimits};

    use super::super::judge::{Errors, ModelErrors};
    use super::*;

    #[test]
    fn names_are_text_and_what_is_missing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let errors = Errors { total: Some(0.25), ..Errors::default() };
        let kernel = ModelErrors {
            model: "kernel".into(),
            predicted_s: 1.0,
            errors,
            improvement: Some(-0.031),
            simulation_s: 0.0,
        };
        let evaluation = Evaluation {
            machine: vec![("drive".into(), "<b>disk</b> & co".into())],
            device: "<b>disk</b>".into(),
            filesystem: "ext4".into(),
            kernel: "6.18".into(),
            limits: DirtyLimits { background: Bytes(1 << 20), hard: Bytes(2 << 20) },
            profile: "p & q".into(),
            repeats: 2,
            scale: 0.5,
            figures: Vec::new(),
            median: vec![kernel],
            floor: None,
            missing: vec!["fig6-A".into(), "fig6-B".into()],
            notes: Vec::new(),
            seconds: 1.0,
            out: folder.path().to_owned(),
        };
        write_page(&evaluation, folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        for part in [
            "<title>cawl: &lt;b&gt;disk&lt;/b&gt;</title>",
            "<tr><td>drive</td><td>&lt;b&gt;disk&lt;/b&gt; &amp; co</td></tr>",
            "Each run 2 times, scale 0.5. Open loop",
            "<p class=\"note\">Not complete. Missing: fig6-A, fig6-B.</p>",
            "<td>median</td><td></td><td>25.0 %</td><td>-</td><td>-3.1</td></tr>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
