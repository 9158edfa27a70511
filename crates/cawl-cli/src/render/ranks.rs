//! What each process spent its time on, and the ranks of a parallel program.

use cawl_core::{Explain, ProcessReport, RankReport};

use super::rows::short_program;
use super::{compact, headed, shown, table, warn};

/// Processes and ranks listed.
const LISTED: usize = 20;
const NAMED: usize = 8;
/// Columns of a program's name.
const PROGRAM: usize = 18;

/// The processes, those first that were in calls for longest.
pub(super) fn processes_by_time(explain: &Explain) -> Vec<&ProcessReport> {
    let mut sorted: Vec<&ProcessReport> = explain.processes.iter().collect();
    sorted.sort_by(|a, b| b.calls_s.total_cmp(&a.calls_s));
    sorted
}

/// The ranks of a parallel program, those first that were in calls for longest; none of a single rank.
pub(super) fn ranks_by_time(explain: &Explain) -> Vec<&RankReport> {
    let told = explain.rank_variable.is_some() && explain.ranks.len() > 1;
    let mut sorted: Vec<&RankReport> = explain.ranks.iter().filter(|_| told).collect();
    sorted.sort_by(|a, b| b.calls_s.total_cmp(&a.calls_s));
    sorted
}

/// The processes that were in calls for longest.
pub fn processes(out: &mut String, explain: &Explain, terminal: bool) {
    let sorted = processes_by_time(explain);
    if sorted.is_empty() {
        return;
    }
    let time = |seconds: Option<f64>| seconds.map_or("?".to_owned(), compact::seconds);
    let row = |process: &&ProcessReport| {
        [
            process.pid.to_string(),
            short_program(&shown(&process.program), PROGRAM),
            time(Some(process.wall_s)),
            time(process.user_s),
            time(process.system_s),
            time(process.waiting_s),
            time(Some(process.calls_s)),
        ]
    };
    let header = ["PID", "PROGRAM", "WALL", "USER", "SYSTEM", "WAITING", "IN CALLS"];
    headed(out, &table(&header, [1], sorted.iter().take(LISTED).map(row)), terminal);
    more(out, sorted.len(), "process");
}

/// The ranks, if there are any: those that took longest in their calls, and the stragglers by number.
pub fn ranks(out: &mut String, explain: &Explain, terminal: bool) {
    let sorted = ranks_by_time(explain);
    if sorted.is_empty() {
        return;
    }
    let row = |rank: &&RankReport| {
        [
            rank.rank.to_string(),
            rank.processes.to_string(),
            compact::count(rank.calls),
            compact::bytes(rank.bytes),
            compact::seconds(rank.calls_s),
            if rank.straggler { "straggler".to_owned() } else { String::new() },
        ]
    };
    let header = ["RANK", "PROCESSES", "CALLS", "BYTES", "IN CALLS", ""];
    headed(out, &table(&header, [5], sorted.iter().take(LISTED).map(row)), terminal);
    more(out, sorted.len(), "rank");
    let text = stragglers(explain);
    let text = if explain.stragglers.is_empty() { text } else { warn(&text, terminal) };
    out.extend([&text, "\n"]);
}

pub(super) fn stragglers(explain: &Explain) -> String {
    let variable = explain.rank_variable.as_deref().unwrap_or_default();
    let ranks = explain.ranks.len();
    let names: Vec<String> = explain.stragglers.iter().take(NAMED).map(u32::to_string).collect();
    let others = match explain.stragglers.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match explain.stragglers.len() {
        0 => format!("no stragglers among {ranks} ranks ({variable})"),
        1 => format!("straggler among {ranks} ranks ({variable}): rank {}", names[0]),
        _ => format!("stragglers among {ranks} ranks ({variable}):\n  {}{others}", names.join(", ")),
    }
}

fn more(out: &mut String, count: usize, what: &str) {
    if count > LISTED {
        let left = count - LISTED;
        let plural = match (left, what) {
            (1, _) => "",
            (_, "process") => "es",
            _ => "s",
        };
        out.push_str(&format!("and {left} more {what}{plural}; all of them with --report FILE.json\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(explain: &Explain) -> String {
        let mut out = String::new();
        processes(&mut out, explain, false);
        ranks(&mut out, explain, false);
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        out
    }

    #[test]
    fn processes_fit_the_screen_and_what_is_not_known_says_so() {
        let program = "/opt/a/very/long/path/to/some-simulation-program\x1b[2J".to_owned();
        let long = ProcessReport {
            pid: 4_194_304,
            program,
            wall_s: 999.4,
            user_s: Some(0.0123),
            system_s: Some(123.4e-6),
            waiting_s: Some(86_399.0),
            calls_s: 57.0,
            ..ProcessReport::default()
        };
        let unknown =
            ProcessReport { pid: 1, program: "dd".to_owned(), wall_s: 2.0, ..ProcessReport::default() };
        let mut explain = Explain { processes: vec![unknown, long], ..Explain::default() };
        let out = text(&explain);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[1].starts_with("PID") || lines[1].trim_start().starts_with("PID"), "{out}");
        assert!(lines[2].contains("4194304") && lines[2].contains("999 s") && !out.contains('\x1b'), "{out}");
        assert!(lines[3].contains("dd") && lines[3].matches('?').count() == 3, "{out}");
        explain.processes = vec![ProcessReport::default(); LISTED + 3];
        assert!(text(&explain).contains("and 3 more processes"));
        assert_eq!(text(&Explain::default()), "");
    }

    #[test]
    fn stragglers_are_named() {
        let rank = |rank| RankReport { rank, calls_s: 1.0, calls: u64::MAX, ..RankReport::default() };
        let mut explain = Explain {
            rank_variable: Some("OMPI_COMM_WORLD_RANK".to_owned()),
            ranks: (0..40).map(rank).collect(),
            ..Explain::default()
        };
        let out = text(&explain);
        assert!(out.contains("no stragglers among 40 ranks (OMPI_COMM_WORLD_RANK)"), "{out}");
        assert!(out.contains("and 20 more ranks"), "{out}");
        (explain.ranks[31].straggler, explain.ranks[31].calls_s) = (true, 5.0);
        explain.stragglers = vec![31];
        let out = text(&explain);
        assert!(out.contains("): rank 31\n") && out.contains("5 s  straggler"), "{out}");
        explain.stragglers = (100_000..100_020).collect();
        assert!(text(&explain).contains("100006, 100007 and 12 more"));
        // A single process with a variable is no parallel program.
        explain.ranks.truncate(1);
        assert_eq!(text(&explain), "");
    }
}
