//! The report as text, in its short form: what happened, the causes, the files, the models, the worst calls,
//! and what all of it rests on.

use std::collections::BTreeMap;
use std::path::Path;

use cawl_core::{AsCalibrated, Bytes, Cause, Explain, FileOp, FileReport, Mode, ModelReport, Origin, Report};

use super::causes::{main_causes, share};
use super::report::{
    basis, cold_memory, copied_up, ended, identity, in_memory, observed, profile, selected, worst_row,
    worst_table,
};
use super::{
    below_paths, bold, compact, counted, density, headed, line, patterns, percent, ranks, room, short, shown,
    stacks, table, time,
};

/// Files listed; the others are summed up.
const FILES: usize = 8;
const CALLS: usize = 5;
/// Part of the time below which causes and files are summed up.
const LISTED: f64 = 0.001;
/// Part of the time that is worth saving.
const WORTH: f64 = 0.1;
/// Seconds that are worth it, too.
const NOTEWORTHY: f64 = 1e-3;

/// Why the figures are not those of `run`.
const OPEN_LOOP: &str = "models see the calls and the times between them, not what calls took; the figures of \
                         `run` are those of `replay --live` and `explain`";

/// The report in its long or short form.
pub fn report(report: &Report, long: bool, terminal: bool) -> String {
    whole(report, long, false, terminal)
}

/// What is explained of a trace.
pub fn explained(report: &Report, long: bool, terminal: bool) -> String {
    whole(report, long, true, terminal)
}

/// The long or the short form, and what is worth a change.
fn whole(report: &Report, long: bool, of_trace: bool, terminal: bool) -> String {
    let mut out = if long { super::report::text(report, terminal) } else { text(report, of_trace, terminal) };
    let advice = super::advise::of_report(report, terminal);
    if !advice.is_empty() {
        out.push('\n');
    }
    advice.iter().for_each(|(name, text)| line(&mut out, name, text, terminal));
    out
}

/// What happened, what is worth most, and where the whole report is.
pub fn first_lines(report: &Report, file: &Path, terminal: bool) -> String {
    let mut out = String::new();
    let explained = report.explain.as_ref().filter(|explain| explain.calls > 0);
    explained.iter().for_each(|explain| what_happened(&mut out, report, explain, terminal));
    let advice = super::advise::of_report(report, terminal).into_iter().next();
    let file = ("report", shown(&file.to_string_lossy()).into_owned());
    advice.into_iter().chain([file]).for_each(|(name, text)| line(&mut out, name, &text, terminal));
    out
}

/// The short form; with processes, modes and patterns if it is a trace that is explained.
fn text(report: &Report, of_trace: bool, terminal: bool) -> String {
    let mut out = String::new();
    let explained = report.explain.as_ref().filter(|explain| explain.calls > 0);
    if let Some(explain) = explained {
        what_happened(&mut out, report, explain, terminal);
        causes(&mut out, explain, terminal);
        out += &density::classes(explain, terminal);
        files(&mut out, report, explain, terminal);
        stacks::listed(&mut out, explain, terminal);
        if of_trace {
            ranks::processes(&mut out, explain, terminal);
        }
        ranks::ranks(&mut out, explain, terminal);
        if of_trace {
            out += &density::text(explain, terminal);
            out += &patterns::text(report, terminal);
        }
        worst(&mut out, report, explain, terminal);
        out.push('\n');
        report.models.iter().for_each(|model| accuracy(&mut out, model, terminal));
        if report.mode == Mode::OpenLoop.name() {
            line(&mut out, "open loop", OPEN_LOOP, terminal);
        }
    }
    if explained.is_some() && is_well(report) {
        let by = report
            .seen_by_probes()
            .map_or(String::new(), |seen| format!(" {}", shown(seen.trim_start_matches("seen "))));
        let text =
            format!("{} of the bytes seen{by}; {}", percent(report.coverage), profile(report, terminal));
        line(&mut out, "rests on", &text, terminal);
        selected(&mut out, report, terminal);
    } else {
        if explained.is_none() {
            predicted(&mut out, report, terminal);
        }
        basis(&mut out, report, terminal);
    }
    out
}

/// What calls should cost of which none was timed.
fn predicted(out: &mut String, report: &Report, terminal: bool) {
    let of = |model: &ModelReport| {
        let ops = report.files.iter().flat_map(|file| &file.ops);
        let seconds: f64 = ops.filter_map(|op| op.predicted_s.get(&model.name)).sum();
        (seconds > 0.0).then(|| format!("{} by {}", time(seconds), model.name))
    };
    let models: Vec<String> = report.models.iter().filter_map(of).collect();
    if !models.is_empty() {
        let text = format!("no durations, only predictions: {}; --long has them by file", models.join(", "));
        line(out, "cawl", &bold(&text, terminal), terminal);
    } else if report.selection.is_some() && report.calls > 0 {
        let text =
            "no cost is told of these calls; `cawl-cli replay --calls TRACE` lists them with their times";
        line(out, "cawl", &bold(text, terminal), terminal);
    }
}

/// Nothing is missing that a reader must know of.
fn is_well(report: &Report) -> bool {
    report.coverage.is_some_and(|coverage| (0.99..=1.01).contains(&coverage))
        && report.drops.max(report.unseen) == 0
        && report.unmodelled.is_empty()
        && report.remarks().next().is_none()
        && report.profile.origin != Origin::Uncalibrated
        && report.outcome.is_none_or(|outcome| outcome.signal.is_none())
}

fn what_happened(out: &mut String, report: &Report, explain: &Explain, terminal: bool) {
    for (at, (name, text)) in happened(report, explain).into_iter().enumerate() {
        let text = if at == 0 { bold(&text, terminal) } else { text };
        line(out, name, &text, terminal);
    }
}

/// What happened, in three named lines, or four.
pub(super) fn happened(report: &Report, explain: &Explain) -> Vec<(&'static str, String)> {
    let (observed, own) = (explain.observed_s, explain.best.undisturbed_s);
    let first = explain.causes.first();
    let most = first.map_or(String::new(), |cause| {
        format!(": {:.0} % is {}", share(cause.observed_s, observed) * 100.0, cause.name)
    });
    let saved = match share(explain.lost_s, observed) {
        lost if lost >= WORTH => format!("{} would do", time(own)),
        _ => "hardly any of it lost".to_owned(),
    };
    let calls = format!("{} in {}, {saved}{most}", time(observed), operations(report, explain));
    let mut lines = vec![("cawl", calls)];
    if report.drops > 0 {
        let all = report.calls.saturating_add(report.drops);
        let part = percent(Some(share(report.drops as f64, all as f64)));
        let dropped = counted(report.drops, "call");
        lines.push(("without", format!("{dropped}, {part} of all, which were dropped: see `drops`")));
    }
    let best = explain.best.best_s;
    let saved = own - best - explain.seconds_of(Cause::Discard);
    if saved >= NOTEWORTHY && share(saved, observed) >= WORTH {
        let bytes = Bytes(explain.bytes);
        let better =
            format!("{bytes} in large calls, with one fsync a file at most, would take {}", time(best));
        lines.push(("best", better));
    }
    lines.extend(stacks::where_most(explain).map(|way| ("where", way)));
    let part = percent(Some(share(observed, report.span_s)));
    let span = format!("in calls: {part} of the {} elapsed", time(report.span_s));
    let threads = if observed > report.span_s { ", by several at once" } else { "" };
    let program = report.outcome.as_ref().map_or(String::new(), |outcome| format!("; {}", ended(outcome)));
    lines.push(("time", format!("{span}{threads}{program}")));
    lines.extend(report.cold.as_ref().map(|cold| ("cold", cold_memory(cold))));
    lines.extend(report.in_memory.as_ref().map(|tally| ("memory", in_memory(tally))));
    lines.extend(report.copied_up.as_ref().map(|copied| ("copied up", copied_up(copied))));
    lines
}

/// The operations that took most of the time: `write and fsync`.
fn operations(report: &Report, explain: &Explain) -> String {
    if explain.causes.first().is_some_and(|cause| cause.name == Cause::Discard.name()) {
        return "writes to /dev/null".to_owned();
    }
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for op in report.files.iter().flat_map(|file| &file.ops) {
        *sums.entry(&op.op).or_default() += op.observed_s;
    }
    let all = sums.values().sum::<f64>();
    let mut sums: Vec<(&str, f64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    match &sums[..] {
        [] => "no calls".to_owned(),
        [(op, _)] => (*op).to_owned(),
        [(op, most), ..] if *most > (1.0 - WORTH) * all => (*op).to_owned(),
        [(op, _), (other, _)] => format!("{op} and {other}"),
        [(op, _), (other, _), ..] => format!("{op}, {other} and others"),
    }
}

fn causes(out: &mut String, explain: &Explain, terminal: bool) {
    let row = |cause: &cawl_core::CauseReport| {
        [
            cause.name.clone(),
            time(cause.observed_s),
            percent(Some(share(cause.observed_s, explain.observed_s))),
            observed(cause.undisturbed_s),
            compact::count(cause.calls),
            Bytes(cause.bytes).to_string(),
        ]
    };
    let header = ["CAUSE", "TIME", "SHARE", "UNDISTURBED", "CALLS", "BYTES"];
    let (listed, rest): (Vec<_>, Vec<_>) =
        explain.causes.iter().partition(|cause| cause.observed_s >= LISTED * explain.observed_s);
    headed(out, &table(&header, [0], listed.into_iter().map(row)), terminal);
    if !rest.is_empty() {
        let seconds = rest.iter().map(|cause| cause.observed_s).sum::<f64>();
        out.push_str(&format!("and {}: {}\n", counted(rest.len() as u64, "more cause"), time(seconds)));
    }
}

/// Files by time lost.
fn files(out: &mut String, report: &Report, explain: &Explain, terminal: bool) {
    let lost = |file: &FileReport| file.ops.iter().map(|op| op.observed_s - op.undisturbed_s).sum::<f64>();
    let mut files: Vec<&FileReport> = report.files.iter().collect();
    files.sort_by(|a, b| lost(b).total_cmp(&lost(a)));
    let all = files.iter().flat_map(|file| file.ops.iter().map(move |op| (*file, op)));
    let count = all.clone().count();
    let rows = all.filter(|(_, op)| op.observed_s >= LISTED * explain.observed_s).take(FILES);
    let cells = |(_, op): (&FileReport, &FileOp)| {
        [
            format!("  {}", op.op),
            compact::count(op.calls),
            Bytes(op.bytes).to_string(),
            observed(op.observed_s),
            time(op.observed_s - op.undisturbed_s),
            String::new(),
        ]
    };
    let mut cells: Vec<_> = rows.clone().map(cells).collect();
    let listed = cells.len();
    if listed == 0 {
        return;
    }
    let header = ["FILE, OP", "CALLS", "BYTES", "TIME", "LOST", "CAUSES"];
    let width = room(&header, &cells, 5);
    cells.iter_mut().zip(rows.clone()).for_each(|(cells, (_, op))| cells[5] = main_causes(&op.causes, width));
    let text = table(&header, [0, 5], cells);
    headed(out, &below_paths(&text, rows.map(|(file, _)| identity(file))), terminal);
    if count > listed {
        let more = counted((count - listed) as u64, "more line");
        out.push_str(&format!("and {more}; --long lists more of them, --report FILE.json all\n"));
    }
}

/// The calls that lost most time, below the path of their file.
fn worst(out: &mut String, report: &Report, explain: &Explain, terminal: bool) {
    if explain.worst.is_empty() || report.files.is_empty() {
        return;
    }
    let calls = &explain.worst[..explain.worst.len().min(CALLS)];
    let mut rows: Vec<_> = calls.iter().map(|call| worst_row(call, String::new())).collect();
    let header = ["WORST CALL", "AT", "OP", "SIZE", "TOOK", "PREDICTED", "CAUSE"];
    let width = room(&header, &rows, 6);
    rows.iter_mut().zip(calls).for_each(|(row, call)| row[6] = short(&call.cause, width));
    worst_table(out, calls, &table(&header, [2, 6], rows), terminal);
}

fn accuracy(out: &mut String, model: &ModelReport, terminal: bool) {
    if model.calls == 0 {
        return;
    }
    let calibrated = |of: &AsCalibrated| format!("; {} as calibrated", percent(of.total_error));
    let calibrated = model.calibrated.as_ref().map_or(String::new(), calibrated);
    let [total, windowed] = [model.total_error, model.windowed_error].map(percent);
    let predicted = time(model.predicted_s);
    let text = format!("predicted {predicted}: {total} off, {windowed} in windows{calibrated}");
    line(out, &model.name, &text, terminal);
}

#[cfg(test)]
mod tests;
