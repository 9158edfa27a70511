//! The report as a page: one file without requests to a network, with the charts of the daemon's page.
//!
//! The law of this module: **names are text.** maud escapes them, [`shown`] takes their control characters,
//! and in the embedded data no `<` begins a tag.

use cawl_core::{Bytes, Explain, FileReport, Origin, Report, WorstCall, renamed_path};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;

use super::report::losses;
use super::{counted, percent, shown, time};

mod tables;

/// Nothing comes from elsewhere, and nothing goes there.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

const STYLE: &str = include_str!("html/report.css");
const SCRIPT: &str = concat!(include_str!("html/report.js"), include_str!("html/flame.js"));

const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='7' fill='%230b6bcb'/%3E%3Cpath d='M5 21c4 0 4-9 8-9s4 6 8 6 3-9 6-9' fill='none' stroke='%23fff' stroke-width='3' stroke-linecap='round'/%3E%3C/svg%3E";

/// Characters of a title.
const TITLE: usize = 80;

pub fn page(told: &Report) -> String {
    let title = title(told);
    let explain = told.explain.as_ref();
    let densities = explain.map(|explain| &explain.densities);
    let stacks = explain.and_then(|explain| explain.stacks.as_ref());
    let data = json!({
        "timeline": told.timeline,
        "elapsed_s": told.span_s,
        "densities": densities,
        "stacks": stacks.map(tables::ways),
    });
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "cawl: " (title) }
                link rel="icon" href=(ICON);
                style { (PreEscaped(cawld::web::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                header { (brand(told, &title)) }
                main {
                    (summary(told))
                    @if told.timeline.is_some() { (over_time()) }
                    @if let Some(explain) = explain {
                        @if !explain.causes.is_empty() { (causes(explain)) }
                        (tables::stacks(explain))
                        (tables::classes(explain))
                    }
                    (tables::files(told))
                    section #densities-card .card.long hidden {
                        h2 { "Densities of the cost" }
                        p.sub { "How often calls had which cost, and which ratio of observed to predicted time (×1: as predicted); the axes are logarithmic. Operations of less than ten calls have none. Modes are filled with the colour of the cause of most of their time." }
                        div #densities {}
                    }
                    @if let Some(explain) = explain { (tables::processes(explain)) (tables::ranks(explain)) }
                    (worst(told))
                    (tables::accuracy(told))
                    (tables::machine(told))
                    (advice(told))
                }
                footer.sub { "Made by cawl-cli " (env!("CARGO_PKG_VERSION")) ". Sizes in powers of two; times since the first call. Elapsed: from the begin of the first call to the end of the last; time in calls: what all calls took, of all threads." }
                script #data type="application/json" { (PreEscaped(data.to_string().replace('<', "\\u003c"))) }
                script type="module" { (PreEscaped(cawld::web::CHARTS)) (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// What was run, as it was typed.
fn title(told: &Report) -> String {
    let first = told.sessions.first().map(|session| session.program.as_str());
    let name = shown(told.command.as_deref().or(first).unwrap_or("report"));
    match name.char_indices().nth(TITLE) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into_owned(),
    }
}

fn brand(told: &Report, title: &str) -> Markup {
    let images = told.sessions.len() as u64 + told.sessions_omitted.images;
    let machine =
        told.host.as_ref().map(|host| format!("{}, Linux {}", shown(&host.host), shown(&host.kernel)));
    html! {
        div.brand {
            svg viewBox="0 0 32 32" width="28" height="28" aria-hidden="true" {
                rect width="32" height="32" rx="7" {}
                path d="M5 21c4 0 4-9 8-9s4 6 8 6 3-9 6-9" {}
            }
            div {
                h1 { (title) }
                p.sub {
                    (counted(told.calls, "call"))
                    @if images > 1 { " of " (images) " process images" }
                    ", " (Bytes(told.bytes)) " to files; " (seconds(told.span_s)) " elapsed"
                    @if let Some(machine) = machine { "; " (machine) }
                }
            }
        }
    }
}

/// What happened, in three lines; then what the figures rest on.
fn summary(told: &Report) -> Markup {
    let explain = told.explain.as_ref().filter(|explain| explain.calls > 0);
    html! {
        section.card.said {
            h2.unseen { "Summary" }
            @match explain {
                Some(explain) => (what_happened(told, explain)),
                None => p { "No call with a modelled cost was recorded." },
            }
            @if let Some(selection) = &told.selection {
                p.selected { (shown(&selection.to_string())) " only; coverage, losses and errors are those of all calls." }
            }
            @for warning in warnings(told) { p.warning { (warning) } }
            @if let Some(seen) = told.seen_by_probes() { p.sub { (shown(seen)) } }
        }
    }
}

/// What a reader must know before any figure.
fn warnings(told: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    if told.drops.max(told.unseen) > 0 {
        warnings.push(losses(told));
    }
    if let Some(coverage) = told.coverage.filter(|coverage| !(0.99..=1.01).contains(coverage)) {
        warnings.push(format!("{} of the written bytes seen", percent(Some(coverage))));
    }
    if told.uncounted_processes > 0 {
        warnings.push("how many of the written bytes were seen is unknown".to_owned());
    }
    if told.profile.origin == Origin::Uncalibrated {
        warnings.push("uncalibrated: predictions tell orders of magnitude".to_owned());
    }
    warnings.extend(told.remarks().map(|note| shown(note).into_owned()));
    warnings
}

fn what_happened(told: &Report, explain: &Explain) -> Markup {
    html! {
        @for (at, (name, text)) in super::explain::happened(told, explain).into_iter().enumerate() {
            p { @if at > 0 { b { (name) ": " } } (text) }
        }
        div.split aria-hidden="true" {
            @for cause in &explain.causes {
                span class=(class(&cause.name)) style={ "flex-grow:" (cause.observed_s / explain.observed_s.max(f64::MIN_POSITIVE)) } {}
            }
        }
    }
}

/// The charts over time, drawn by the script.
fn over_time() -> Markup {
    let plot = |id: &str, size: &str| {
        html! {
            div id={ (id) "-plot" } class={ "plot " (size) } tabindex="0" role="slider" aria-labelledby={ (id) "-title" }
                aria-describedby={ (id) "-summary" } aria-valuemin="0" aria-valuemax="0" aria-valuenow="0"
                aria-valuetext="use the arrow keys to read values" {
                div.tip aria-hidden="true" hidden {}
            }
        }
    };
    html! {
        noscript { p.card { "The charts need JavaScript; the tables do not." } }
        figure.card {
            figcaption {
                h2 #dirty-title { "Dirty level and calls" }
                ul.legend {
                    li { i.key.key-modelled {} "modelled" }
                    li { i.key.key-sampled {} "sampled" }
                }
                div #calls-legend .legend role="group" aria-label="Calls shown, by cause" {}
                button #fit type="button" aria-pressed="false" { "Fit to data" }
            }
            p #dirty-summary .sub {}
            (plot("dirty", "tall"))
        }
        figure.card {
            figcaption {
                h2 #causes-title { "Time by cause" }
                ul #causes-legend .legend {}
            }
            p #causes-summary .sub {}
            (plot("causes", ""))
        }
    }
}

fn causes(explain: &Explain) -> Markup {
    html! {
        section.card {
            h2 { "Causes" }
            div.scroll { table {
                thead { tr {
                    th.text { "Cause" } th { "Time" } th { "Share" } th { "Undisturbed" } th { "Calls" } th { "Bytes" }
                } }
                tbody { @for cause in &explain.causes {
                    @let share = cause.observed_s / explain.observed_s.max(f64::MIN_POSITIVE);
                    tr {
                        th.text scope="row" { (key(&cause.name)) (cause.name) }
                        td { (seconds(cause.observed_s)) }
                        td { span.share style={ "--share:" (share) } { (percent(Some(share))) } }
                        td { (seconds(cause.undisturbed_s)) }
                        td { (cause.calls) }
                        td { (Bytes(cause.bytes)) }
                    }
                } }
            } }
            p.sub { "Calls and bytes are counted under the cause of most of their time. Undisturbed: the same calls with warm memory, nothing dirty and the device idle." }
        }
    }
}

/// The calls with the largest errors, each with its neighbours.
fn worst(told: &Report) -> Markup {
    let calls = told.explain.as_ref().map_or(&told.worst, |explain| &explain.worst);
    if calls.is_empty() {
        return html! {};
    }
    html! {
        section.card.long {
            h2 { "Worst calls" }
            p.sub { "Those that lost most time; open one for the calls before and after it in its thread." }
            @for call in calls { (worst_call(call)) }
        }
    }
}

fn worst_call(call: &WorstCall) -> Markup {
    let whole = renamed_path(&call.path, call.first_path.as_deref());
    let offset = |offset: Option<u64>| offset.map_or("–".to_owned(), |offset| offset.to_string());
    html! {
        details.call {
            summary {
                b { (seconds(call.observed_s)) }
                span { (key(&call.cause)) (call.cause) }
                span { (call.op) ", " (Bytes(call.bytes)) }
                span.sub { "predicted " (seconds(call.predicted_s)) ", at " (seconds(call.at_s)) ", thread " (call.tid) ", call " (call.call) }
                span.path { (path(&shown(&whole))) }
            }
            (tables::frames(&call.stack))
            div.scroll.near { table {
                thead { tr {
                    th.text { "At" } th.text { "Call" } th { "Offset" } th { "Size" } th { "Observed" } th { "Predicted" } th.text { "File" }
                } }
                tbody {
                    @for near in &call.before { (tables::near(near)) }
                    tr.self {
                        td.text { (seconds(call.at_s)) }
                        td.text { (call.op) }
                        td { (offset(call.offset)) }
                        td { (Bytes(call.bytes)) }
                        td { (seconds(call.observed_s)) }
                        td { (seconds(call.predicted_s)) }
                        td.text.path { (path(&shown(&call.path))) }
                    }
                    @for near in &call.after { (tables::near(near)) }
                }
            } }
        }
    }
}

/// What is worth a change.
fn advice(told: &Report) -> Markup {
    let lines = super::advise::of_report(told, false);
    html! {
        @if !lines.is_empty() {
            section.card {
                h2 { "What to do" }
                @for (_, text) in lines { p { (text) } }
            }
        }
    }
}

/// The classes of a cause's colour, as in causes.js.
fn class(cause: &str) -> String {
    const STRIPED: [&str; 11] = [
        "stream",
        "large folio",
        "freed pages",
        "partial page read",
        "read",
        "copy up",
        "queue",
        "seek",
        "network",
        "preempted",
        "discard",
    ];
    let striped = STRIPED.contains(&cause);
    format!("cause-{}{}", cause.replace(' ', "-"), if striped { " striped" } else { "" })
}

fn key(cause: &str) -> Markup {
    html! { @if !cause.is_empty() { i class={ "key " (class(cause)) } {} } }
}

/// A path, which may break behind each folder.
fn path(text: &str) -> Markup {
    html! { @for part in text.split_inclusive('/') { (part) wbr; } }
}

fn seconds(seconds: f64) -> String {
    if seconds > 0.0 { time(seconds) } else { "–".to_owned() }
}

fn name_of(file: &FileReport) -> String {
    shown(&renamed_path(&file.path, file.first_path.as_deref())).into_owned()
}

fn observed_of(file: &FileReport) -> f64 {
    file.ops.iter().map(|op| op.observed_s).sum()
}
