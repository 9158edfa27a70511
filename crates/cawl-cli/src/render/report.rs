//! The report as text, in its long form: first its basis, then files, totals and the worst calls.

use cawl_core::{
    AsCalibrated, Bytes, ColdReport, CopiedUp, EndKind, FileOp, FileReport, ModelReport, Nanos, Origin,
    Outcome, ProfileUsed, Quantiles, Report, SessionReport, Tally, Thoroughness, WorstCall, renamed_path,
};

use super::rows::short_program;
use super::{
    below_paths, compact, counted, density, headed, line, patterns, percent, ranks, room, shown, stacks,
    table, time, warn, warn_if,
};

/// Files and processes listed; the others are summed up.
const LISTED: usize = 20;

const REST: &str = "all of them with --report FILE.json or --json";

pub fn text(report: &Report, terminal: bool) -> String {
    let mut out = String::new();
    basis(&mut out, report, terminal);
    if let Some(cold) = &report.cold {
        line(&mut out, "cold", &cold_memory(cold), terminal);
    }
    if let Some(tally) = &report.in_memory {
        line(&mut out, "memory", &in_memory(tally), terminal);
    }
    if let Some(copied) = &report.copied_up {
        line(&mut out, "copied up", &copied_up(copied), terminal);
    }
    if let Some(explain) = &report.explain {
        ranks::processes(&mut out, explain, terminal);
        ranks::ranks(&mut out, explain, terminal);
    }
    files(&mut out, report, terminal);
    totals(&mut out, report, terminal);
    worst(&mut out, report, terminal);
    if let Some(explain) = &report.explain {
        stacks::listed(&mut out, explain, terminal);
        out += &density::classes(explain, terminal);
        out += &density::text(explain, terminal);
    }
    out += &patterns::text(report, terminal);
    out
}

pub(super) fn basis(out: &mut String, report: &Report, terminal: bool) {
    let calls = format!("{}, {} to files", counted(report.calls, "call"), Bytes(report.bytes));
    let span = time(report.span_s);
    let mode = if report.learn { format!("{}, learning", report.mode) } else { report.mode.clone() };
    line(out, "calls", &format!("{calls} in {span}; {mode}"), terminal);
    if let Some(outcome) = &report.outcome {
        line(out, "program", &ended(outcome), terminal);
    }
    line(out, "coverage", &coverage(report, terminal), terminal);
    if let Some(seen) = report.seen_by_probes() {
        line(out, "seen by", &shown(seen.trim_start_matches("seen by ")), terminal);
    }
    let lost = report.drops.max(report.unseen) > 0;
    let text = losses(report);
    line(out, "drops", &if lost { warn(&text, terminal) } else { text }, terminal);
    let unmodelled: Vec<String> =
        report.unmodelled.iter().map(|(op, tally)| format!("{op} ({})", tallied(tally))).collect();
    let unmodelled =
        if unmodelled.is_empty() { "none".to_owned() } else { warn(&unmodelled.join(", "), terminal) };
    line(out, "unmodelled", &unmodelled, terminal);
    if report.elsewhere.calls > 0 {
        let text = format!("{} to pipes, terminals or sockets", tallied(&report.elsewhere));
        line(out, "elsewhere", &text, terminal);
    }
    line(out, "profile", &profile(report, terminal), terminal);
    selected(out, report, terminal);
    for note in report.remarks() {
        line(out, "note", &warn(&shown(note), terminal), terminal);
    }
    if report.sessions.len() > 1 {
        processes(out, report, terminal);
    }
}

/// Calls that were lost, and how to lose none.
pub(super) fn losses(report: &Report) -> String {
    // A mapping that is not followed is counted with the calls.
    let unseen = match report.unseen {
        0 => "0 unseen".to_owned(),
        1 => "1 call or mapping unseen".to_owned(),
        some => format!("{some} calls or mappings unseen"),
    };
    let lost = format!("{} dropped, {unseen}", counted(report.drops, "call"));
    let remedy = match report.seen_by_probes() {
        _ if report.drops == 0 => "",
        // They let nobody wait.
        Some(_) => "; cawl had too little processor time to read them",
        None => "; with `run --lossless` the program waits, and none is dropped",
    };
    lost + remedy
}

pub(super) fn selected(out: &mut String, report: &Report, terminal: bool) {
    if let Some(selection) = &report.selection {
        let text =
            format!("{}; coverage, losses and errors are those of all calls", shown(&selection.to_string()));
        line(out, "selected", &text, terminal);
    }
}

fn tallied(tally: &Tally) -> String {
    format!("{}, {}", counted(tally.calls, "call"), Bytes(tally.bytes))
}

pub(super) fn ended(outcome: &Outcome) -> String {
    match (outcome.code, outcome.signal) {
        (_, Some(number)) => match nix::sys::signal::Signal::try_from(number) {
            Ok(signal) => format!("pid {} was killed by {signal}", outcome.pid),
            Err(_) => format!("pid {} was killed by signal {number}", outcome.pid),
        },
        (code, None) => format!("pid {} exited with {}", outcome.pid, code.unwrap_or(0)),
    }
}

fn coverage(report: &Report, terminal: bool) -> String {
    if report.sessions.is_empty() && report.calls > 0 {
        return "unknown: the trace does not have the processes that made its calls".to_owned();
    }
    if report.sessions.is_empty() && report.seen_by_probes().is_some() {
        return "nothing was seen: no process ran that was to be followed".to_owned();
    }
    if report.sessions.is_empty() {
        let is_excluded = report.notes.iter().any(|note| note.ends_with("(--exclude)"));
        let why = if is_excluded { "--exclude leaves it out, or " } else { "" };
        let why = format!(
            "nothing was traced: {why}no process made itself known (a static, setuid or non-glibc program?)"
        );
        return warn(&why, terminal);
    }
    let (wrote, seen) = report.wrote_and_seen();
    if report.io_uring {
        let why = "what is written through io_uring is neither seen nor counted by the kernel; of the rest";
        return warn(&format!("unknown: {why}, {seen} of {wrote}"), terminal);
    }
    if report.uncounted_processes > 0 {
        let processes = counted(report.uncounted_processes, "process");
        let why = format!("nobody could read the kernel's count of {processes}; of the rest");
        return warn(&format!("unknown: {why}, {seen} of {wrote} seen"), terminal);
    }
    let Some(coverage) = report.coverage else {
        if report.sessions.iter().all(|session| session.wchar_bytes == Some(0)) {
            // Neither is counted by the kernel.
            let others = match report.bytes {
                0 => return "no call wrote, as the kernel confirms".to_owned(),
                bytes => format!("{} were stored through mappings or cloned", Bytes(bytes)),
            };
            return format!("no call wrote, as the kernel confirms; {others}");
        }
        return "unknown: the bytes written were not counted independently".to_owned();
    };
    let who = match report.sessions.len() as u64 + report.sessions_omitted.images {
        1 => format!("{} (pid {})", shown(&report.sessions[0].program), report.sessions[0].pid),
        n => format!("{n} process images"),
    };
    let mut text = format!("{}: {seen} seen of {wrote} that {who} wrote", percent(Some(coverage)));
    if report.untraced_bytes > 0 {
        text.push_str(&format!("; {} of it by what was not traced", Bytes(report.untraced_bytes)));
    }
    if (0.99..=1.01).contains(&coverage) {
        let untraced = report.notes.iter().any(|note| note.starts_with("not traced"));
        let nothing = untraced && report.untraced_bytes == 0;
        return text + if nothing { "; what was not traced wrote nothing that was counted" } else { "" };
    }
    warn(&text, terminal)
}

fn processes(out: &mut String, report: &Report, terminal: bool) {
    // The sessions that wrote most come first; the others are counted.
    // Of selected calls only those that made some are told.
    let of_all = report.selection.is_none();
    let mut sorted: Vec<&SessionReport> =
        report.sessions.iter().filter(|session| of_all || session.calls > 0).collect();
    sorted.sort_by_key(|session| std::cmp::Reverse((session.seen_bytes, session.calls)));
    let row = |session: &&SessionReport| {
        let ended = match session.ended {
            EndKind::Exit => "exit",
            EndKind::QuickExit => "_exit",
            EndKind::Exec => "exec",
            EndKind::Abort => "abort",
            EndKind::Vanished => "killed",
            EndKind::Confined => "filter",
            EndKind::Running => "running",
        };
        [
            session.pid.to_string(),
            String::new(),
            ended.to_owned(),
            compact::count(session.calls),
            compact::bytes(session.seen_bytes),
            session.wchar_bytes.map_or("?".to_owned(), compact::bytes),
            session.coverage.map_or("?".to_owned(), compact::percent),
            compact::count(session.dropped),
        ]
    };
    let header = ["PID", "PROGRAM", "ENDED", "CALLS", "SEEN", "WROTE", "COVERAGE", "DROPS"];
    let mut rows: Vec<_> = sorted.iter().take(LISTED).map(row).collect();
    let width = room(&header, &rows, 1);
    for (row, session) in rows.iter_mut().zip(&sorted) {
        row[1] = short_program(&shown(&session.program), width);
    }
    headed(out, &table(&header, [1, 2], rows), terminal);
    let listed = sorted.len().min(LISTED) as u64;
    let more = sorted.len() as u64 + report.sessions_omitted.images - listed;
    if more > 0 {
        out.push_str(&format!("and {more} more; {REST}\n"));
    }
}

pub(super) fn profile(report: &Report, terminal: bool) -> String {
    let text = used(&report.profile, report.host.is_some());
    warn_if(&text, report.profile.origin == Origin::Uncalibrated, terminal)
}

/// The profile that models used. `knows_host`: the report has facts of the host.
pub(super) fn used(used: &ProfileUsed, knows_host: bool) -> String {
    let age = match used.age_s {
        Some(age) => format!(", {} old", days(age)),
        None => String::new(),
    };
    let learned = match used.learned_runs {
        0 => String::new(),
        1 => ", learned from 1 run".to_owned(),
        runs => format!(", learned from {runs} runs"),
    };
    let unmeasured = match &used.unmeasured[..] {
        [] => String::new(),
        names => format!(", but not {}", names.join(", ")),
    };
    match used.origin {
        Origin::Uncalibrated => {
            // The limits are known only with these.
            let limits = match knows_host {
                true => "limits are the machine's, speeds are defaults",
                false => "limits and speeds are defaults",
            };
            format!("uncalibrated: {limits}; predictions tell orders of magnitude")
        }
        Origin::Calibrated if used.measured == Some(Thoroughness::Brief) => {
            format!("{} (measured briefly{age}{unmeasured}{learned}; see `calibrate`)", shown(&used.name))
        }
        Origin::Calibrated => format!("{} (calibrated{age}{unmeasured}{learned})", shown(&used.name)),
        Origin::Prior => {
            let checked = if used.measured.is_some() { ", checked briefly" } else { "" };
            let of = counted(used.merged.into(), "equal machine");
            format!("{} (from {of}{checked}{age}{learned})", shown(&used.name))
        }
        Origin::Fitted => format!("{} (fitted to recorded runs{age}{learned})", shown(&used.name)),
        Origin::Learned if used.learned_runs > 0 => {
            format!("{} (never measured{learned})", shown(&used.name))
        }
        Origin::Learned => format!("{} (learned{age})", shown(&used.name)),
    }
}

pub(super) fn cold_memory(cold: &ColdReport) -> String {
    let (all, each) = (time(cold.seconds), time(cold.per_page_s));
    let of = time(cold.op_observed_s);
    format!("{all} of {of} in {}: {} pages from the host, {each} each", cold.op, cold.pages)
}

pub(super) fn in_memory(tally: &Tally) -> String {
    format!("{} to files in memory alone: never written back", tallied(tally))
}

pub(super) fn copied_up(copied: &CopiedUp) -> String {
    let (files, bytes) = (counted(copied.files, "file"), Bytes(copied.bytes));
    format!("{files} of an overlay, {bytes}, opened for writing in {}", time(copied.seconds))
}

pub fn days(seconds: u64) -> String {
    match seconds {
        s if s < 120 => format!("{s} seconds"),
        s if s < 7200 => format!("{} minutes", s / 60),
        s if s < 172_800 => format!("{} hours", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// Every file and operation. One model has its predicted time and error; of several, there is room for the
/// errors.
fn files(out: &mut String, report: &Report, terminal: bool) {
    if report.files.is_empty() {
        return;
    }
    let models: Vec<&str> = report.models.iter().map(|model| model.name.as_str()).collect();
    let upper: Vec<String> = models.iter().map(|model| model.to_uppercase()).collect();
    let mut header = vec!["FILE, OP", "CALLS", "BYTES", "OBSERVED"];
    match &upper[..] {
        [model] => header.extend([model.as_str(), "ERROR"]),
        models => header.extend(models.iter().map(String::as_str)),
    }
    header.push("STATES");
    let rows = report.files.iter().flat_map(|file| file.ops.iter().map(move |op| (file, op)));
    let cells = |(_, op): (_, &FileOp)| {
        let mut row = vec![
            format!("  {}", op.op),
            compact::count(op.calls),
            Bytes(op.bytes).to_string(),
            observed(op.observed_s),
        ];
        for model in &models {
            let predicted = op.predicted_s.get(model).copied();
            if models.len() == 1 {
                row.push(predicted.map_or("-".to_owned(), time));
            }
            row.push(match predicted {
                Some(s) if op.observed_s == 0.0 && models.len() > 1 => time(s),
                predicted => predicted.map_or("-".to_owned(), |s| error(s, op.observed_s)),
            });
        }
        row.push(String::new());
        row
    };
    let mut cells: Vec<_> = rows.clone().take(LISTED).map(cells).collect();
    let last = header.len() - 1;
    let width = room(&header, &cells, last);
    cells.iter_mut().zip(rows.clone()).for_each(|(cells, (_, op))| cells[last] = states(op, width));
    let table = table(&header, [0, last], cells);
    headed(out, &below_paths(&table, rows.clone().map(|(file, _)| identity(file))), terminal);
    let more = rows.count().saturating_sub(LISTED);
    if more > 0 {
        out.push_str(&format!("and {}; {REST}\n", counted(more as u64, "more line")));
    }
    if report.files_omitted.calls > 0 {
        out.push_str(&format!("and {} on further files\n", tallied(&report.files_omitted)));
    }
}

/// What tells a file from others, and its path.
pub(super) fn identity(file: &FileReport) -> ((u64, u64, u32), String) {
    ((file.dev, file.ino, file.birth), renamed_path(&file.path, file.first_path.as_deref()))
}

/// An observed time; zero means that it was not observed.
pub(super) fn observed(seconds: f64) -> String {
    if seconds > 0.0 { time(seconds) } else { "-".to_owned() }
}

/// Signed relative error of the prediction.
fn error(predicted: f64, observed: f64) -> String {
    if observed > 0.0 {
        format!("{:+.0} %", (predicted - observed) / observed * 100.0)
    } else {
        "-".to_owned()
    }
}

/// Share of the calls in each state, the most frequent first, as `width` has room: `free 80 %, flush 20 %`;
/// only the name if there is one state.
fn states(op: &FileOp, width: usize) -> String {
    let all: u64 = op.states.values().sum();
    let mut states: Vec<_> = op.states.iter().collect();
    states.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    if let [(name, _)] = states[..] {
        return name.to_owned();
    }
    let mut text = String::new();
    for (name, count) in states {
        let share = format!("{name} {:.0} %", *count as f64 / all.max(1) as f64 * 100.0);
        if !text.is_empty() && text.len() + share.len() + 2 > width {
            break;
        }
        text.extend([if text.is_empty() { "" } else { ", " }, &share]);
    }
    text
}

/// Accuracy of each model over all calls, and percentiles of the cost of a call.
fn totals(out: &mut String, report: &Report, terminal: bool) {
    let header = ["MODEL", "OBSERVED", "PREDICTED", "TOTAL", "WINDOWED", "PER CALL", "MEDIAN", "DIRTY"];
    if report.models.iter().all(|model| model.calls == 0) {
        return;
    }
    let (mut errors, mut costs) = (Vec::new(), Vec::new());
    for (at, model) in report.models.iter().enumerate() {
        errors.push(total(model).to_vec());
        if let Some(calibrated) = &model.calibrated {
            errors.push(as_calibrated(calibrated).to_vec());
        }
        if at == 0 {
            costs.push(quantiles("observed", model.summary.observed_quantiles));
        }
        costs.push(quantiles(&model.name, model.summary.predicted_quantiles));
    }
    headed(out, &table(&header, [0], errors), terminal);
    headed(out, &table(&["COST OF A CALL", "P50", "P90", "P99"], [0], costs), terminal);
}

fn quantiles(what: &str, quantiles: Option<Quantiles>) -> [String; 4] {
    let cost = |pick: fn(Quantiles) -> Nanos| quantiles.map_or("-".to_owned(), |q| pick(q).to_string());
    [what.to_owned(), cost(|q| q.p50), cost(|q| q.p90), cost(|q| q.p99)]
}

fn total(model: &ModelReport) -> [String; 8] {
    [
        if model.calibrated.is_some() { format!("{}, live", model.name) } else { model.name.clone() },
        time(model.observed_s),
        time(model.predicted_s),
        percent(model.total_error),
        percent(model.windowed_error),
        percent(model.call_error.map(|error| error.mean)),
        percent(model.call_error.map(|error| error.median)),
        percent(model.dirty_error),
    ]
}

/// The row of a model with the profile's constants, without learning.
fn as_calibrated(model: &AsCalibrated) -> [String; 7] {
    [
        "  calibrated".to_owned(),
        String::new(),
        time(model.predicted_s),
        percent(model.total_error),
        percent(model.windowed_error),
        percent(model.call_error.map(|error| error.mean)),
        percent(model.call_error.map(|error| error.median)),
    ]
}

/// The calls with the largest errors of the first model.
fn worst(out: &mut String, report: &Report, terminal: bool) {
    let Some(model) = report.models.first().filter(|_| !report.worst.is_empty()) else { return };
    let header = ["CALL", "AT", "OP", "SIZE", "OBSERVED", "PREDICTED", "STATE"];
    out.push_str(&format!("\nworst calls, by model {}", model.name));
    let rows = report.worst.iter().map(|call| worst_row(call, call.state.clone()));
    worst_table(out, &report.worst, &table(&header, [2, 6], rows), terminal);
}

/// The row of a worst call, with a last cell.
pub(super) fn worst_row(call: &WorstCall, last: String) -> [String; 7] {
    [
        call.call.to_string(),
        if call.at_s < 1000.0 { format!("{:.3} s", call.at_s) } else { compact::seconds(call.at_s) },
        call.op.clone(),
        compact::bytes(call.bytes),
        compact::seconds(call.observed_s),
        compact::seconds(call.predicted_s),
        last,
    ]
}

/// Adds a table of these calls, below the paths of their files.
pub(super) fn worst_table(out: &mut String, calls: &[WorstCall], table: &str, terminal: bool) {
    let paths = calls.iter().map(|call| (&call.path, renamed_path(&call.path, call.first_path.as_deref())));
    headed(out, &below_paths(table, paths), terminal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_memory_fits_the_screen() {
        let cold = ColdReport {
            seconds: 25.163,
            pages: 2_621_440,
            per_page_s: 9.6e-6,
            op: "write".to_owned(),
            op_observed_s: 27.024,
        };
        let mut text = String::new();
        line(&mut text, "cold", &cold_memory(&cold), false);
        assert_eq!(
            text,
            "cold       25.16 s of 27.02 s in write: 2621440 pages from the host, 9.6 µs each\n"
        );
        assert!(text.trim_end().chars().count() <= 80, "{text}");
    }
}
