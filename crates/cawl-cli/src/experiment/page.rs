//! The page: tables and figures in one self-contained file.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;

use super::judge::Judged;
use super::{Evaluation, Experiment};
use crate::render::percent;

const STYLE: &str = "body{font-family:sans-serif;max-width:72em;margin:2em auto;padding:0 1em;line-height:1.4;color:#111}\
 table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
 td:first-child,th:first-child{text-align:left}tr.median td{font-weight:bold}svg{max-width:100%;height:auto}\
 .note{color:#8a4b00}";

/// Writes index.html with the figures of the same folder.
pub fn write(evaluation: &Evaluation, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join("index.html");
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>cawl: {}</title>\n\
         <style>{STYLE}</style></head><body>\n<h1>Write costs, observed and modelled</h1>\n",
        escape(&evaluation.device)
    );
    facts(&mut html, evaluation)?;
    table(&mut html, evaluation)?;
    // The suite has no figure.
    for figure in evaluation.figures.iter().filter(|figure| figure.experiment != Experiment::Suite) {
        let svg = folder.join(format!("{}.svg", figure.experiment.name()));
        let picture =
            std::fs::read_to_string(&svg).with_context(|| format!("cannot read {}", svg.display()))?;
        write!(html, "<h2 id=\"{}\">{}</h2>\n{picture}\n", figure.experiment.name(), title(figure))?;
    }
    html += "</body></html>\n";
    std::fs::write(&file, html).with_context(|| format!("cannot write {}", file.display()))
}

fn title(figure: &Judged) -> String {
    format!("{}: {}", figure.experiment.name(), escape(figure.experiment.title()))
}

fn facts(html: &mut String, evaluation: &Evaluation) -> std::fmt::Result {
    writeln!(
        html,
        "<p>{} ({}), Linux {}. Dirty limits {} / {}. Profile {}. Each run {} times, scale {}. Open loop: the models see \
         the calls, the times between them and the profile.</p>",
        escape(&evaluation.device),
        escape(&evaluation.filesystem),
        escape(&evaluation.kernel),
        evaluation.limits.background,
        evaluation.limits.hard,
        escape(&evaluation.profile),
        evaluation.repeats,
        evaluation.scale
    )?;
    if !evaluation.missing.is_empty() {
        let missing = evaluation.missing.join(", ");
        writeln!(html, "<p class=\"note\">Not complete. Missing: {}.</p>", escape(&missing))?;
    }
    for note in &evaluation.notes {
        writeln!(html, "<p class=\"note\">{}</p>", escape(note))?;
    }
    Ok(())
}

/// Errors of total cost, of windows, of single calls, and of the dirty level.
fn table(html: &mut String, evaluation: &Evaluation) -> std::fmt::Result {
    let models: Vec<&str> = evaluation.median.iter().map(|model| model.model.as_str()).collect();
    let heads =
        |suffix: &str| models.iter().map(|model| format!("<th>{model}{suffix}</th>")).collect::<String>();
    writeln!(
        html,
        "<table><tr><th>run</th><th>calls</th><th>observed</th>{}<th>noise floor</th><th>kernel over naive</th>\
         <th>cawl over naive</th>{}{}{}</tr>",
        heads(""),
        heads(", windowed"),
        heads(", per call"),
        heads(", dirty")
    )?;
    let cell = |error: Option<f64>| format!("<td>{}</td>", percent(error));
    for run in evaluation.figures.iter().flat_map(|figure| &figure.runs) {
        write!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.3} s</td>",
            escape(&run.name),
            run.calls,
            run.observed_s
        )?;
        run.models.iter().try_for_each(|model| html.write_str(&cell(model.errors.total)))?;
        html.write_str(&cell(run.floor.and_then(|floor| floor.total)))?;
        run.models
            .iter()
            .take(2)
            .try_for_each(|model| write!(html, "<td>{}</td>", points(model.improvement)))?;
        run.models.iter().try_for_each(|model| html.write_str(&cell(model.errors.windowed)))?;
        run.models.iter().try_for_each(|model| html.write_str(&cell(model.errors.call)))?;
        run.models.iter().try_for_each(|model| html.write_str(&cell(model.errors.dirty)))?;
        html.write_str("</tr>\n")?;
    }
    html.write_str("<tr class=\"median\"><td>median</td><td></td><td></td>")?;
    let median = &evaluation.median;
    median.iter().try_for_each(|model| html.write_str(&cell(model.errors.total)))?;
    html.write_str(&cell(evaluation.floor.and_then(|floor| floor.total)))?;
    median.iter().take(2).try_for_each(|model| write!(html, "<td>{}</td>", points(model.improvement)))?;
    median.iter().try_for_each(|model| html.write_str(&cell(model.errors.windowed)))?;
    median.iter().try_for_each(|model| html.write_str(&cell(model.errors.call)))?;
    median.iter().try_for_each(|model| html.write_str(&cell(model.errors.dirty)))?;
    html.write_str(
        "</tr></table>\n<p>Errors of the total cost of a run's calls; in 16 windows of equal observed time \
         (windowed); of single calls, in the mean (per call, the paper's metric); of the dirty level, as a part of the hard limit (dirty). The noise floor is the error of \
         another recording of the same run in the place of a model. Improvements are differences to the error \
         of naive, in points.</p>\n",
    )
}

/// A difference of errors, in percentage points.
fn points(difference: Option<f64>) -> String {
    difference.map_or("-".to_owned(), |difference| format!("{:+.1}", difference * 100.0))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
