//! Tables of the page: files, processes, models, the machine.

use std::collections::BTreeMap;

use cawl_core::{Bytes, Explain, FileReport, Frame, NearCall, Report, StackReport, StackRow};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::{counted, density, patterns, percent, ranks, shown};
use super::{key, name_of, observed_of, path, seconds};

/// Most files listed; the others are summed up.
const FILES: usize = 100;

const PROCESSES: usize = 100;

const RANKS: usize = 100;

/// Files by the time they took.
pub fn files(told: &Report) -> Markup {
    if told.files.is_empty() {
        return html! {};
    }
    let rest = &told.files[told.files.len().min(FILES)..];
    let sum = |of: fn(&FileReport) -> f64| rest.iter().map(of).sum::<f64>();
    let calls =
        rest.iter().flat_map(|file| &file.ops).map(|op| op.calls).sum::<u64>() + told.files_omitted.calls;
    let bytes = rest.iter().flat_map(|file| &file.ops).map(|op| op.bytes).sum::<u64>();
    html! {
        section.card.long {
            h2 { "Files by time lost" }
            div.scroll { table {
                thead { tr {
                    th.text { "File" } th { "Lost" }
                    th.wide { "Observed" } th.wide { "Undisturbed" } th.wide { "Calls" } th.wide { "Bytes" }
                    th.text { "Causes" }
                } }
                tbody {
                    @for file in by_lost(told).into_iter().take(FILES) { (row(file)) }
                    @if calls > 0 { tr {
                        th.text scope="row" { (rest.len()) " further files" @if told.files_omitted.calls > 0 { " and more" } }
                        td { (seconds(sum(lost_of))) }
                        td.wide { (seconds(sum(observed_of))) } td.wide { (seconds(sum(undisturbed_of))) }
                        td.wide { (calls) } td.wide { (Bytes(bytes + told.files_omitted.bytes)) } td {}
                    } }
                }
            } }
            @for line in told.explain.iter().flat_map(|explain| patterns::sums(&explain.patterns)) { p.sub { (line) } }
        }
    }
}

/// Rows of stacks listed below the graph.
const STACKS: usize = 10;

/// Where in the program the time went: a graph, drawn by the script, and the stacks with most time.
pub fn stacks(explain: &Explain) -> Markup {
    let Some(StackReport { rows, copied, one_in, threshold_s, .. }) = &explain.stacks else {
        return html! {};
    };
    html! {
        figure.card.long {
            figcaption {
                h2 { "Where in the program" }
                button #flame-lost type="button" aria-pressed="false" { "Time lost" }
            }
            p.sub {
                (counted(*copied, "call")) " with a stack: each of " (seconds(*threshold_s)) " or more"
                @if *one_in > 1 { "; one in " (one_in) " of the shorter ones, which stand for all" }
                ". Below a function are those that it calls, then the operation and its causes; click one to see it larger."
            }
            div #flame {}
            p #flame-said .sub aria-live="polite" {}
            @for row in rows.iter().take(STACKS) {
                details.call {
                    summary {
                        b { (seconds(row.observed_s)) }
                        span { (row.op) ", " (counted(row.calls, "call")) }
                        span.sub { (seconds(row.lost_s)) " lost" }
                        span.path { (shown(&super::super::stacks::way(row, 110))) }
                    }
                    (frames(&row.frames))
                }
            }
        }
    }
}

/// The functions that led to a call, innermost first.
pub fn frames(frames: &[Frame]) -> Markup {
    html! {
        @if !frames.is_empty() {
            ol.way { @for frame in frames {
                li {
                    (shown(&frame.name()))
                    @if let Some(place) = frame.place() { " " span.sub { (shown(&place)) } }
                }
            } }
        }
    }
}

/// The stacks for the graph, each outermost first.
pub fn ways(stacks: &StackReport) -> Vec<Value> {
    let frame = |frame: &Frame| {
        let detail = frame.place().or_else(|| frame.module.clone());
        json!({ "name": shown(&frame.name()), "detail": detail.as_deref().map(shown) })
    };
    let row = |row: &StackRow| {
        let way: Vec<Value> = row.frames.iter().rev().filter(|one| !one.is_start()).map(frame).collect();
        let StackRow { truncated, op, calls, observed_s, lost_s, causes, .. } = row;
        json!({
            "way": way, "truncated": truncated, "op": op, "calls": calls, "observed_s": observed_s,
            "lost_s": lost_s.max(0.0), "causes": causes,
        })
    };
    stacks.rows.iter().map(row).collect()
}

/// The report has files in the order of their observed time: those that are listed, by the time lost.
fn by_lost(told: &Report) -> Vec<&FileReport> {
    let mut files: Vec<&FileReport> = told.files.iter().take(FILES).collect();
    files.sort_by(|a, b| lost_of(b).total_cmp(&lost_of(a)));
    files
}

fn undisturbed_of(file: &FileReport) -> f64 {
    file.ops.iter().map(|op| op.undisturbed_s).sum()
}

fn lost_of(file: &FileReport) -> f64 {
    (observed_of(file) - undisturbed_of(file)).max(0.0)
}

fn row(file: &FileReport) -> Markup {
    let mut causes: BTreeMap<&str, f64> = BTreeMap::new();
    for (cause, part) in file.ops.iter().flat_map(|op| op.causes.iter()) {
        *causes.entry(cause).or_default() += part;
    }
    let all = observed_of(file).max(f64::MIN_POSITIVE);
    let mut causes: Vec<(&str, f64)> = causes.into_iter().filter(|(_, part)| *part > 0.02 * all).collect();
    causes.sort_by(|a, b| b.1.total_cmp(&a.1));
    html! {
        tr {
            th.text.path scope="row" { (path(&name_of(file))) (use_of(file)) }
            td { (seconds(lost_of(file))) }
            td.wide { (seconds(observed_of(file))) }
            td.wide { (seconds(undisturbed_of(file))) }
            td.wide { (file.ops.iter().map(|op| op.calls).sum::<u64>()) }
            td.wide { (Bytes(file.ops.iter().map(|op| op.bytes).sum::<u64>())) }
            td.text.wrap { @for (cause, part) in causes.iter().take(4) {
                span { (key(cause)) (cause) " " (percent(Some(part / all))) } " "
            } }
        }
    }
}

/// How the file was used: a line for each operation, which opens to what is out of the ordinary.
fn use_of(file: &FileReport) -> Markup {
    let used = file.patterns.clone().unwrap_or_default();
    let mut remarks = Vec::new();
    for op in &used.ops {
        remarks.extend(patterns::remarks_of_op(op).iter().map(|remark| format!("{}: {remark}", op.op)));
    }
    remarks.extend(file.patterns.iter().flat_map(patterns::remarks));
    let ops = html! {
        @for op in &file.ops {
            span {
                (op.op) ": " (counted(op.calls, "call"))
                @if op.observed_s > 0.0 { ", " (seconds(op.observed_s)) }
                @if let Some(used) = used.ops.iter().find(|used| used.op == op.op) { "; " (patterns::brief(used).replace(" %", "\u{a0}%")) }
            }
        }
    };
    html! {
        @if remarks.is_empty() { div.use.sub { (ops) } }
        @else { details.use.sub { summary { (ops) } ul { @for remark in remarks { li { (remark.replace(" %", "\u{a0}%")) } } } } }
    }
}

/// Calls by their observed time, where bounds were asked for.
pub fn classes(explain: &Explain) -> Markup {
    let rows = density::class_rows(explain);
    html! {
        @if !rows.is_empty() { section.card #classes {
            h2 { "Classes of calls" }
            div.scroll { table {
                thead { tr { th.text { "Observed time" } th { "Calls" } th { "Bytes" } th { "Time" } th.text { "Cause" } } }
                tbody { @for [span, calls, bytes, time, cause] in rows {
                    tr {
                        th.text scope="row" { (span) }
                        td { (calls) } td { (bytes) } td { (time) }
                        td.text { @if cause != "-" { (key(&cause)) } (cause) }
                    }
                } }
            } }
            @if let Some(unclassed) = density::unclassed(explain) { p.sub { (unclassed) } }
        } }
    }
}

/// The processes by their time in calls.
pub fn processes(explain: &Explain) -> Markup {
    let all = ranks::processes_by_time(explain);
    let ranked = all.iter().any(|process| process.rank.is_some());
    let time = |time: Option<f64>| time.map_or("?".to_owned(), super::super::time);
    html! {
        @if !all.is_empty() { section.card.long {
            h2 { "Processes" }
            div.scroll { table {
                thead { tr {
                    th.text { "Program" } th { "PID" } @if ranked { th { "Rank" } }
                    th { "Wall" } th { "User" } th { "System" } th { "Waiting" } th { "In calls" } th { "Calls" } th { "Bytes" }
                } }
                tbody { @for process in all.iter().take(PROCESSES) {
                    tr {
                        th.text scope="row" { (shown(&process.program)) }
                        td { (process.pid) }
                        @if ranked { td { (process.rank.map_or("–".to_owned(), |rank| rank.to_string())) } }
                        td { (time(Some(process.wall_s))) }
                        td { (time(process.user_s)) } td { (time(process.system_s)) } td { (time(process.waiting_s)) }
                        td { (time(Some(process.calls_s))) } td { (process.calls) } td { (Bytes(process.bytes)) }
                    }
                } }
            } }
            (more(all.len(), PROCESSES))
        } }
    }
}

/// The ranks of a parallel program, and which of them the others wait for.
pub fn ranks(explain: &Explain) -> Markup {
    let all = ranks::ranks_by_time(explain);
    html! {
        @if !all.is_empty() { section.card.long #ranks {
            h2 { "Ranks" }
            p class={ "sub" @if !explain.stragglers.is_empty() { " bad" } } { (ranks::stragglers(explain)) }
            div.scroll { table {
                thead { tr { th.text { "Rank" } th { "In calls" } th { "Calls" } th { "Bytes" } th { "Processes" } } }
                tbody { @for rank in all.iter().take(RANKS) {
                    tr {
                        th.text scope="row" { (rank.rank) @if rank.straggler { ", " span.bad { "straggler" } } }
                        td { (seconds(rank.calls_s)) } td { (rank.calls) } td { (Bytes(rank.bytes)) } td { (rank.processes) }
                    }
                } }
            } }
            (more(all.len(), RANKS))
        } }
    }
}

fn more(all: usize, listed: usize) -> Markup {
    html! { @if all > listed { p.sub { "and " (all - listed) " more" } } }
}

/// A neighbour of a worst call.
pub fn near(call: &NearCall) -> Markup {
    html! {
        tr {
            td.text { (seconds(call.at_s)) }
            td.text { (call.op) }
            td { (call.offset.map_or("–".to_owned(), |offset| offset.to_string())) }
            td { (Bytes(call.bytes)) }
            td { (seconds(call.observed_s)) }
            td { (call.predicted_s.map_or("–".to_owned(), seconds)) }
            td.text.path { (path(&shown(&call.path))) }
        }
    }
}

pub fn accuracy(told: &Report) -> Markup {
    html! {
        @if !told.models.is_empty() { section.card {
            h2 { "Accuracy of the models" }
            div.scroll { table {
                thead { tr {
                    th.text { "Model" } th { "Calls" } th { "Observed" } th { "Predicted" } th { "Total error" } th { "Windowed" }
                    th { "Per call" } th { "Median" } th { "Dirty level" }
                } }
                tbody { @for model in &told.models {
                    tr {
                        th.text scope="row" { (model.name) @if model.calibrated.is_some() { ", live" } }
                        td { (model.calls) } td { (seconds(model.observed_s)) } td { (seconds(model.predicted_s)) }
                        td { (percent(model.total_error)) } td { (percent(model.windowed_error)) }
                        td { (percent(model.call_error.map(|error| error.mean))) }
                        td { (percent(model.call_error.map(|error| error.median))) }
                        td { (percent(model.dirty_error)) }
                    }
                    @if let Some(calibrated) = &model.calibrated { tr {
                        th.text scope="row" { (model.name) ", as calibrated" }
                        td {} td {} td { (seconds(calibrated.predicted_s)) }
                        td { (percent(calibrated.total_error)) } td { (percent(calibrated.windowed_error)) }
                        td { (percent(calibrated.call_error.map(|error| error.mean))) }
                        td { (percent(calibrated.call_error.map(|error| error.median))) } td {}
                    } }
                } }
            } }
        } }
    }
}

/// A filesystem, and its device if it has one.
fn on_device(kind: &str, device: &str) -> String {
    if device.is_empty() { kind.to_owned() } else { format!("{kind} on {device}") }
}

/// The machine, and what the figures rest on.
pub fn machine(told: &Report) -> Markup {
    let pair = |name: &str, value: String| html! { div { dt { (name) } dd { (value) } } };
    let mut basis = String::new();
    super::super::report::basis(&mut basis, told, false);
    html! {
        section.card.long {
            h2 { "Machine and profile" }
            @if let Some(host) = &told.host { dl.pairs {
                (pair("Host", shown(&host.host).into_owned()))
                (pair("Kernel", shown(&host.kernel).into_owned()))
                (pair("Processors", host.cpus.to_string()))
                (pair("Memory", format!("{}, {} available", host.memory, host.available)))
                (pair("Dirty limits at the start", format!("{} background, {} hard", host.background, host.hard)))
                @for filesystem in host.filesystems.iter().take(20) {
                    (pair(&shown(&filesystem.mount), on_device(&shown(&filesystem.kind), &shown(&filesystem.device))))
                }
            } }
            pre tabindex="0" role="region" aria-label="What the figures rest on" { (super::super::page(&basis, false)) }
        }
    }
}
