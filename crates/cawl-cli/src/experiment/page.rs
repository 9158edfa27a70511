//! The page: tables and figures in one self-contained file.

use std::path::Path;

use anyhow::Context;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::tables::tables;
use super::{Errors, Evaluation, ModelErrors};
use crate::args::Experiment;
use crate::render::percent;

pub const STYLE: &str = "body{font-family:sans-serif;max-width:72em;margin:2em auto;padding:0 1em;line-height:1.4;color:#111}\
 table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
 td:first-child,th:first-child{text-align:left}caption{text-align:left;font-weight:bold}tr.median td{font-weight:bold}svg{max-width:100%;height:auto}\
 .note{color:#8a4b00}";

/// A table of names and values.
pub fn named(values: &[(String, String)]) -> Markup {
    html! { table { @for (name, value) in values { tr { td { (name) } td { (value) } } } } }
}

/// Writes index.html with the figures of the same folder.
pub fn write(evaluation: &Evaluation, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("index.html");
    let mut figures = Vec::new();
    // The suite has no figure.
    for figure in evaluation.figures.iter().filter(|figure| figure.experiment != Experiment::Suite) {
        let svg = folder.join(format!("{}.svg", figure.experiment.name()));
        let picture =
            std::fs::read_to_string(&svg).with_context(|| format!("cannot read {}", svg.display()))?;
        figures.push((figure.experiment, PreEscaped(picture)));
    }
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "cawl: " (evaluation.device) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Write costs, observed and modelled" }
                (facts(evaluation))
                (table(evaluation))
                @for table in tables(evaluation) { (table.markup()) }
                @for (experiment, picture) in figures {
                    h2 id=(experiment.name()) { (experiment.name()) ": " (experiment.title()) }
                    (picture)
                }
            }
        }
    };
    std::fs::write(&file, page.into_string()).with_context(|| format!("cannot write {}", file.display()))
}

fn facts(evaluation: &Evaluation) -> Markup {
    let Evaluation { machine, repeats, scale, .. } = evaluation;
    html! {
        (named(machine))
        p {
            "Each run " (repeats) " times, scale " (scale)
            ". Open loop: the models see the calls, the times between them and the profile."
        }
        @if !evaluation.missing.is_empty() {
            p.note { "Not complete. Missing: " (evaluation.missing.join(", ")) "." }
        }
        @for note in &evaluation.notes { p.note { (note) } }
    }
}

/// Errors of total cost, of windows, of single calls, and of the dirty level.
fn table(evaluation: &Evaluation) -> Markup {
    let heads = |suffix: &str| html! { @for model in &evaluation.median { th { (model.model) (suffix) } } };
    html! {
        table {
            tr {
                th { "run" } th { "calls" } th { "observed" }
                (heads(""))
                th { "noise floor" } th { "kernel over naive" } th { "cawl over naive" }
                (heads(", windowed")) (heads(", per call")) (heads(", dirty"))
            }
            @for run in evaluation.figures.iter().flat_map(|figure| &figure.runs) {
                tr {
                    td { (run.name) } td { (run.calls) } td { (format!("{:.3} s", run.observed_s)) }
                    (cells(&run.models, run.floor))
                }
            }
            tr.median {
                td { "median" } td {} td {}
                (cells(&evaluation.median, evaluation.floor))
            }
        }
        p {
            "Errors of the total cost of a run's calls; in 16 windows of equal observed time (windowed); of single calls, \
             in the mean (per call, the paper's metric); of the dirty level, as a part of the hard limit (dirty). The \
             noise floor is the error of another recording of the same run in the place of a model. Improvements are \
             differences to the error of naive, in points."
        }
    }
}

fn cells(models: &[ModelErrors], floor: Option<Errors>) -> Markup {
    let errors = |of: fn(&Errors) -> Option<f64>| {
        html! { @for model in models { td { (percent(of(&model.errors))) } } }
    };
    let points = |gain: Option<f64>| gain.map_or("-".to_owned(), |gain| format!("{:+.1}", gain * 100.0));
    html! {
        (errors(|errors| errors.total))
        td { (percent(floor.and_then(|floor| floor.total))) }
        @for model in models.iter().take(2) { td { (points(model.improvement)) } }
        (errors(|errors| errors.windowed)) (errors(|errors| errors.call)) (errors(|errors| errors.dirty))
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::{Bytes, DirtyLimits};

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
        write(&evaluation, folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("index.html")).unwrap();
        for part in [
            "<title>cawl: &lt;b&gt;disk&lt;/b&gt;</title>",
            "<tr><td>drive</td><td>&lt;b&gt;disk&lt;/b&gt; &amp; co</td></tr>",
            "Each run 2 times, scale 0.5. Open loop",
            "<p class=\"note\">Not complete. Missing: fig6-A, fig6-B.</p>",
            "<th>kernel, windowed</th>",
            "<tr class=\"median\"><td>median</td><td></td><td></td><td>25.0 %</td><td>-</td><td>-3.1</td><td>-</td>",
        ] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
