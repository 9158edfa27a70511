//! Tasks over time: a page with a Gantt chart, and the events of Perfetto's and Chrome's JSON.

use std::fmt::Write;

use cawl_console::shown;
use cawl_core::Nanos;
use maud::{PreEscaped, html};
use serde_json::json;

use super::answer::Answer;
use crate::experiment::report;
use crate::workflow::{Cluster, Outcome, Ran, Workflow};

/// What a task does, its colour, and how long.
type Phase = (&'static str, &'static str, fn(&Ran) -> Nanos);

/// In their order in a task.
const PHASES: [Phase; 3] = [
    ("reading", "#4c78a8", |ran| ran.times.reading),
    ("computing", "#9aa5b1", |ran| ran.times.computing),
    ("writing", "#e45756", |ran| ran.times.writing),
];
/// Width of the chart, and height of a row, in pixels.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 16.0;
/// Rows of a chart at most; further tasks are drawn over earlier ones.
const ROWS: usize = 4000;

/// Of each task: its row. A row has one task at a time; rows of a host lie together.
fn rows(cluster: &Cluster, outcome: &Outcome) -> (Vec<usize>, Vec<(usize, usize)>) {
    let mut of_task = vec![0; outcome.tasks.len()];
    let mut hosts = Vec::new();
    let mut first = 0;
    for host in 0..cluster.hosts.len() {
        let mut tasks: Vec<usize> =
            (0..outcome.tasks.len()).filter(|task| outcome.tasks[*task].host == host).collect();
        tasks.sort_by_key(|task| (outcome.tasks[*task].begin, *task));
        let mut free = Vec::new();
        for task in tasks {
            let Ran { begin, end, .. } = outcome.tasks[task];
            let row = free.iter().position(|until| *until <= begin).unwrap_or(free.len());
            if row == free.len() && first + row < ROWS {
                free.push(end);
            }
            let row = row.min(free.len().saturating_sub(1));
            if let Some(until) = free.get_mut(row) {
                *until = end;
            }
            of_task[task] = first + row;
        }
        hosts.push((first, free.len()));
        first += free.len();
    }
    (of_task, hosts)
}

/// The page.
pub fn page(workflow: &Workflow, cluster: &Cluster, outcome: &Outcome, answer: &Answer) -> String {
    let body = html! {
        (PreEscaped(chart(workflow, cluster, outcome)))
        pre { (answer.text(false)) }
    };
    report::page(&shown(&workflow.name), &shown(&answer.heading()), &Vec::new(), &body)
}

fn chart(workflow: &Workflow, cluster: &Cluster, outcome: &Outcome) -> String {
    let (of_task, hosts) = rows(cluster, outcome);
    let count = hosts.iter().map(|(_, rows)| rows).sum::<usize>();
    let span = outcome.makespan().get().max(1.0);
    let x = |ns: f64| 90.0 + ns / span * (WIDTH - 100.0);
    let y = |row: usize| 24.0 + row as f64 * ROW;
    let height = y(count) + 40.0;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\" role=\"img\" \
         aria-label=\"tasks over time\">"
    );
    let path = outcome.critical_path(workflow);
    for (host, (first, rows)) in cluster.hosts.iter().zip(&hosts).filter(|(_, (_, rows))| *rows > 0) {
        let (top, name) = (y(*first), escaped(&host.name));
        let bottom = y(first + rows);
        let _ = write!(out, "<text x=\"4\" y=\"{:.1}\">{name}</text>", top + 11.0);
        let _ = write!(out, "<path d=\"M90 {bottom:.1}H{:.1}\" stroke=\"#ddd\"/>", WIDTH - 10.0);
    }
    let step = step(span / 8.0);
    for tick in 0..=(span / step) as u32 {
        let at = x(f64::from(tick) * step);
        let label = Nanos::new(f64::from(tick) * step);
        let label = if tick == 0 { "0".to_owned() } else { label.to_string() };
        let _ = write!(out, "<path d=\"M{at:.1} 20V{:.1}\" stroke=\"#eee\"/>", y(count));
        let _ = write!(out, "<text x=\"{at:.1}\" y=\"14\" text-anchor=\"middle\">{label}</text>");
    }
    for (task, ran) in outcome.tasks.iter().enumerate() {
        let (top, name) = (y(of_task[task]), escaped(&workflow.tasks[task].name));
        let length = ran.end.since(ran.begin);
        let _ = write!(out, "<g><title>{name}: {length}");
        for (phase, _, time) in PHASES {
            let _ = write!(out, "\n{phase} {}", time(ran));
        }
        out.push_str("</title>");
        let mut from = ran.begin.0 as f64;
        for (_, colour, time) in PHASES {
            let (left, right) = (x(from), x(from + time(ran).get()));
            from += time(ran).get();
            if right > left {
                let _ = write!(
                    out,
                    "<rect x=\"{left:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{}\" fill=\"{colour}\"/>",
                    top + 1.0,
                    right - left,
                    ROW - 2.0
                );
            }
        }
        let (left, right) = (x(ran.begin.0 as f64), x(ran.end.0 as f64));
        if path.iter().any(|(of, _)| *of == task) {
            let _ = write!(
                out,
                "<rect x=\"{left:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{}\" fill=\"none\" \
                 stroke=\"#111\" stroke-width=\"1.5\"/>",
                top + 1.0,
                right - left,
                ROW - 2.0
            );
        }
        let room = ((right - left) / 6.5) as usize;
        if room >= 3 {
            let short: String = workflow.tasks[task].name.chars().take(room).collect();
            let at = (left + 3.0, top + 12.0);
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#fff\">{}</text>",
                at.0,
                at.1,
                escaped(&short)
            );
        }
        out.push_str("</g>");
    }
    let mut at = 90.0;
    let base = y(count) + 24.0;
    for (name, colour) in PHASES.map(|(name, colour, _)| (name, colour)) {
        let _ = write!(
            out,
            "<rect x=\"{at}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
            base - 10.0
        );
        let _ = write!(out, "<text x=\"{}\" y=\"{base}\">{name}</text>", at + 16.0);
        at += 100.0;
    }
    let _ = write!(out, "<text x=\"{at}\" y=\"{base}\">outlined: the critical path</text></svg>");
    out
}

/// A round number of nanoseconds, no smaller than this.
fn step(least: f64) -> f64 {
    let decade = 10_f64.powf(least.max(1.0).log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * decade);
    round.into_iter().find(|step| *step >= least).unwrap_or(10.0 * decade)
}

fn escaped(text: &str) -> String {
    html! { (shown(text)) }.into_string()
}

/// The timeline for Perfetto: a process for each host, a thread for each row.
pub fn perfetto(workflow: &Workflow, cluster: &Cluster, outcome: &Outcome, _: &Answer) -> String {
    let (of_task, hosts) = rows(cluster, outcome);
    let mut events = Vec::new();
    for (at, (host, _)) in cluster.hosts.iter().zip(&hosts).enumerate() {
        let named = json!({"name": host.name});
        events.push(json!({"ph": "M", "name": "process_name", "pid": at + 1, "tid": 0, "args": named}));
    }
    for (task, ran) in outcome.tasks.iter().enumerate() {
        let (pid, tid) = (ran.host + 1, of_task[task] - hosts[ran.host].0 + 1);
        let mut event = |name: &str, from: f64, span: f64, kind: &str| {
            let (ts, dur) = (from / 1e3, span / 1e3);
            let event = json!({
                "ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
            });
            events.push(event);
        };
        let mut from = ran.begin.0 as f64;
        event(&workflow.tasks[task].name, from, ran.end.since(ran.begin).get(), "task");
        for (phase, _, time) in PHASES {
            let span = time(ran).get();
            if span > 0.0 {
                event(phase, from, span, "phase");
            }
            from += span;
        }
    }
    json!({"traceEvents": events}).to_string()
}
