//! The page: tables and figures in one self-contained file.

use std::path::Path;

use anyhow::Context;
use cawl_host::output;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Evaluation;
use super::tables::tables;
use crate::args::Experiment;

pub const STYLE: &str = "body{font-family:sans-serif;max-width:72em;margin:2em auto;padding:0 1em;line-height:1.4;color:#111}\
 table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
 td:first-child,th:first-child{text-align:left;white-space:nowrap}caption{text-align:left;font-weight:bold}svg{max-width:100%;height:auto}\
 .note{color:#8a4b00}";

/// A table of names and values.
pub fn facts(values: &[(String, String)]) -> Markup {
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
                (about(evaluation))
                @for table in tables(evaluation) { (table.markup()) }
                @for (experiment, picture) in figures {
                    h2 id=(experiment.name()) { (experiment.name()) ": " (experiment.title()) }
                    (picture)
                }
            }
        }
    };
    output::write(&file, output::FOR_ALL, page.into_string())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn about(evaluation: &Evaluation) -> Markup {
    let Evaluation { machine, repeats, scale, .. } = evaluation;
    html! {
        (facts(machine))
        p {
            "Each run " (repeats) " times, scale " (scale)
            ". Open loop: the models see the calls, the times between them and the profile. The floor is the error of \
             another recording of the same run in the place of a model."
        }
        @if !evaluation.missing.is_empty() {
            p.note { "Not complete. Missing: " (evaluation.missing.join(", ")) "." }
        }
        @for note in &evaluation.notes { p.note { (note) } }
    }
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
        write(&evaluation, folder.path()).unwrap();
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
