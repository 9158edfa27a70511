//! What came of a workflow, as text and JSON.

use cawl_console::{counted, headed, line, shown, table, time, warn, wrapped};
use cawl_core::{Bytes, Cause, Nanos};
use serde::Serialize;

use crate::workflow::{Because, Cluster, Outcome, Times, Workflow};

const SCHEMA: u32 = 1;
/// Tasks of the critical path that a text shows.
const SHOWN: usize = 20;
/// A smaller part of both columns is not shown in a text.
const SMALL: f64 = 0.001;

#[derive(Serialize)]
pub struct Answer {
    schema: u32,
    workflow: String,
    model: String,
    hosts: Vec<HostRow>,
    files: usize,
    read_bytes: u64,
    written_bytes: u64,
    notes: Vec<String>,
    makespan_s: f64,
    /// What the makespan consists of: the times of the tasks on the critical path.
    critical: Parts,
    /// What the times of all tasks consist of.
    all: Parts,
    /// The tasks on the critical path, the first one first.
    critical_path: Vec<PathRow>,
    tasks: Vec<TaskRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<Effect>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sensitivity: Vec<Effect>,
}

#[derive(Serialize)]
struct HostRow {
    name: String,
    processors: u32,
    profile: String,
    background_bytes: u64,
    hard_bytes: u64,
    /// Of its processors, while the workflow ran.
    busy: f64,
}

#[derive(Serialize)]
struct Parts {
    computing_s: f64,
    reading_s: f64,
    writing_s: f64,
    /// In calls, beyond what they would take with warm memory, nothing dirty, and the device idle.
    lost_s: f64,
    causes: Vec<CauseRow>,
}

#[derive(Serialize)]
struct CauseRow {
    name: &'static str,
    seconds: f64,
}

#[derive(Serialize)]
struct PathRow {
    /// By its place in `tasks`.
    task: usize,
    /// first, dependency or processor.
    because: Because,
}

#[derive(Serialize)]
struct TaskRow {
    name: String,
    host: usize,
    ready_s: f64,
    begin_s: f64,
    end_s: f64,
    reading_s: f64,
    computing_s: f64,
    writing_s: f64,
}

/// What a change does.
#[derive(Serialize)]
pub struct Effect {
    change: String,
    makespan_s: f64,
    /// Of the makespan, after over before.
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    elasticity: Option<Elasticity>,
}

/// d ln(time) / d ln(part).
#[derive(Serialize)]
struct Elasticity {
    makespan: Option<f64>,
    /// Of the time lost in calls of all tasks; None where nothing is.
    lost: Option<f64>,
}

impl Answer {
    pub fn new(workflow: &Workflow, cluster: &Cluster, model: &str, outcome: &Outcome) -> Answer {
        let (read, written) = workflow.bytes();
        let path = outcome.critical_path(workflow);
        let makespan = outcome.makespan();
        let host = |(at, host): (usize, &crate::workflow::Host)| {
            let of_host = workflow.tasks.iter().zip(&outcome.tasks).filter(|(_, ran)| ran.host == at);
            let busy = of_host.map(|(task, ran)| {
                f64::from(task.processors.min(host.processors)) * ran.end.since(ran.begin).as_seconds()
            });
            let all = f64::from(host.processors) * makespan.as_seconds();
            HostRow {
                name: host.name.clone(),
                processors: host.processors,
                profile: host.profile.name.clone(),
                background_bytes: host.profile.kernel.limits.background.0,
                hard_bytes: host.profile.kernel.limits.hard.0,
                busy: if all > 0.0 { busy.sum::<f64>() / all } else { 0.0 },
            }
        };
        let tasks = workflow.tasks.iter().zip(&outcome.tasks).map(|(task, ran)| TaskRow {
            name: task.name.clone(),
            host: ran.host,
            ready_s: ran.ready.0 as f64 / 1e9,
            begin_s: ran.begin.0 as f64 / 1e9,
            end_s: ran.end.0 as f64 / 1e9,
            reading_s: ran.times.reading.as_seconds(),
            computing_s: ran.times.computing.as_seconds(),
            writing_s: ran.times.writing.as_seconds(),
        });
        Answer {
            schema: SCHEMA,
            workflow: workflow.name.clone(),
            model: model.to_owned(),
            hosts: cluster.hosts.iter().enumerate().map(host).collect(),
            files: workflow.files.len(),
            read_bytes: read.0,
            written_bytes: written.0,
            notes: workflow.notes.iter().chain(&outcome.notes).cloned().collect(),
            makespan_s: makespan.as_seconds(),
            critical: Parts::of(&outcome.sum(path.iter().map(|(task, _)| *task))),
            all: Parts::of(&outcome.sum(0..outcome.tasks.len())),
            critical_path: path.into_iter().map(|(task, because)| PathRow { task, because }).collect(),
            tasks: tasks.collect(),
            what_if: Vec::new(),
            sensitivity: Vec::new(),
        }
    }

    /// The text for people.
    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let bytes = |bytes| Bytes(bytes).to_string();
        let tasks = counted(self.tasks.len() as u64, "task");
        let files = counted(self.files as u64, "file");
        line(&mut out, "workflow", &format!("{}: {tasks}, {files}", shown(&self.workflow)), terminal);
        let moved = format!("{} read, {} written", bytes(self.read_bytes), bytes(self.written_bytes));
        line(&mut out, "data", &moved, terminal);
        line(&mut out, "hosts", &self.hosts(), terminal);
        line(&mut out, "makespan", &format!("{} (model {})", time(self.makespan_s), self.model), terminal);
        for note in &self.notes {
            out.push_str(&format!("{} {}\n", warn("note:", terminal), wrapped(note, 6)));
        }
        headed(&mut out, &self.parts(), terminal);
        let rows = self.critical_path.iter().take(SHOWN).map(|row| self.path_row(row));
        let header = ["CRITICAL PATH", "HOST", "BEGINS", "READING", "COMPUTING", "WRITING", "AFTER"];
        headed(&mut out, &table(&header, [0, 1, 6], rows), terminal);
        if let Some(more) = self.critical_path.len().checked_sub(SHOWN + 1) {
            out.push_str(&format!("and {}; --json has all\n", counted(more as u64 + 1, "more task")));
        }
        let percent = |ratio: Option<f64>| {
            ratio.map_or("-".to_owned(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0))
        };
        if !self.what_if.is_empty() {
            let row = |one: &Effect| [one.change.clone(), time(one.makespan_s), percent(one.ratio)];
            let rows = self.what_if.iter().map(row);
            headed(&mut out, &table(&["WHAT IF", "MAKESPAN", "CHANGE"], [0], rows), terminal);
        }
        if !self.sensitivity.is_empty() {
            let two = |elasticity: Option<f64>| elasticity.map_or("-".to_owned(), |one| format!("{one:+.2}"));
            let row = |one: &Effect| {
                let of = one.elasticity.as_ref();
                let (makespan, lost) = of.map_or((None, None), |of| (of.makespan, of.lost));
                [one.change.clone(), percent(one.ratio), two(makespan), two(lost)]
            };
            let header = ["PART +10 %", "MAKESPAN", "ELASTICITY", "OF TIME LOST"];
            headed(&mut out, &table(&header, [0], self.sensitivity.iter().map(row)), terminal);
        }
        out
    }

    fn hosts(&self) -> String {
        let kind = |host: &HostRow| {
            let limits = [host.background_bytes, host.hard_bytes].map(|bytes| Bytes(bytes).to_string());
            let processors = counted(host.processors.into(), "processor");
            (processors, format!("limits {}, profile {}", limits.join(" and "), shown(&host.profile)))
        };
        let kinds: Vec<_> = self.hosts.iter().map(kind).collect();
        let mut text = Vec::new();
        for (at, kind) in kinds.iter().enumerate().filter(|(at, kind)| !kinds[..*at].contains(kind)) {
            let of = self.hosts.iter().zip(&kinds).skip(at).filter(|(_, of)| *of == kind);
            let busy: Vec<f64> = of.map(|(host, _)| host.busy).collect();
            let mean = busy.iter().sum::<f64>() / busy.len() as f64 * 100.0;
            let count = if busy.len() > 1 { format!("{} of ", busy.len()) } else { String::new() };
            text.push(format!("{count}{}, {mean:.0} % of the time held by tasks, {}", kind.0, kind.1));
        }
        text.join("; ")
    }

    /// The makespan and the time of all tasks by cause.
    fn parts(&self) -> String {
        let named = |parts: &Parts| {
            let mut all: Vec<(&str, f64)> = vec![("computing", parts.computing_s)];
            all.extend(parts.causes.iter().map(|cause| (cause.name, cause.seconds)));
            all
        };
        let (critical, all) = (named(&self.critical), named(&self.all));
        let sum = |parts: &[(&str, f64)]| parts.iter().map(|(_, seconds)| seconds).sum::<f64>().max(1e-9);
        let sums = (self.makespan_s.max(1e-9), sum(&all));
        let of = |parts: &[(&str, f64)], name: &str| {
            parts.iter().find(|(of, _)| *of == name).map_or(0.0, |(_, seconds)| *seconds)
        };
        let mut rows: Vec<(&str, f64, f64)> =
            all.iter().map(|(name, seconds)| (*name, of(&critical, name), *seconds)).collect();
        rows.sort_by(|a, b| (b.1, b.2).partial_cmp(&(a.1, a.2)).unwrap_or(std::cmp::Ordering::Equal));
        rows.retain(|row| row.1 / sums.0 >= SMALL || row.2 / sums.1 >= SMALL);
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        let rows = rows.into_iter().map(|(name, of_path, of_all)| {
            [
                name.to_owned(),
                time(of_path),
                percent(of_path / sums.0),
                time(of_all),
                percent(of_all / sums.1),
            ]
        });
        table(&["TIME IN", "MAKESPAN", "", "ALL TASKS", ""], [0], rows)
    }

    fn path_row(&self, row: &PathRow) -> [String; 7] {
        let task = &self.tasks[row.task];
        let after = match row.because {
            Because::First => "",
            Because::Dependency => "the task above",
            Because::Processor => "its processor",
        };
        [
            short(&task.name),
            short(&self.hosts[task.host].name),
            time(task.begin_s),
            time(task.reading_s),
            time(task.computing_s),
            time(task.writing_s),
            after.to_owned(),
        ]
    }

    /// The heading of a page.
    pub fn heading(&self) -> String {
        format!("{}: {}", self.workflow, time(self.makespan_s))
    }
}

/// A name in a column: what is too long loses its middle, since names differ at their ends.
fn short(name: &str) -> String {
    const ROOM: usize = 24;
    let name: Vec<char> = shown(name).chars().collect();
    if name.len() <= ROOM {
        return name.into_iter().collect();
    }
    let (head, tail) = (&name[..ROOM / 2 - 1], &name[name.len() - ROOM / 2..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

impl Parts {
    fn of(times: &Times) -> Parts {
        let seconds = |cause: Cause| times.causes[cause].as_seconds();
        let known = Cause::ALL.into_iter().filter(|cause| times.causes[*cause] > Nanos::ZERO);
        let mut causes: Vec<CauseRow> =
            known.map(|cause| CauseRow { name: cause.name(), seconds: seconds(cause) }).collect();
        causes.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Parts {
            computing_s: times.computing.as_seconds(),
            reading_s: times.reading.as_seconds(),
            writing_s: times.writing.as_seconds(),
            lost_s: times.lost().as_seconds(),
            causes,
        }
    }
}

impl Effect {
    pub fn of_change(change: &str, before: &Outcome, after: &Outcome) -> Effect {
        let (was, is) = (before.makespan(), after.makespan());
        let ratio = (was > Nanos::ZERO).then(|| is / was);
        Effect { change: change.to_owned(), makespan_s: is.as_seconds(), ratio, elasticity: None }
    }

    /// Of a part of the hosts that is smaller and larger by these factors: between them, since throttling
    /// goes in steps.
    pub fn of_part(part: &str, factors: [f64; 2], before: &Outcome, after: [&Outcome; 2]) -> Effect {
        let elasticity = |of: fn(&Outcome) -> Nanos| {
            let [smaller, larger] = after.map(of);
            let are_times = smaller > Nanos::ZERO && larger > Nanos::ZERO;
            are_times.then(|| (larger / smaller).ln() / (factors[1] / factors[0]).ln())
        };
        let lost = |outcome: &Outcome| outcome.sum(0..outcome.tasks.len()).lost();
        let of = Elasticity { makespan: elasticity(Outcome::makespan), lost: elasticity(lost) };
        Effect { elasticity: Some(of), ..Effect::of_change(part, before, after[1]) }
    }
}
