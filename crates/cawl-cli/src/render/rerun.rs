//! What a rerun did, as text and as JSON.

use std::collections::BTreeMap;
use std::path::Path;

use cawl_core::{Bytes, Nanos, quantile};
use cawl_wire::Op;
use serde::Serialize;

use super::comparison::{Changed, OpTimes, less_safe, row, rows_of_ops};
use super::{compact, counted, headed, line, table, time};

const SCHEMA: u32 = 1;
/// A call that begins later than this after its time is late, in ns.
const LATE: f64 = 10_000.0;

#[derive(Default)]
pub struct Times {
    ops: BTreeMap<Op, Vec<f64>>,
    /// Calls whose cost a model tells, and the time in them.
    calls: u64,
    total: f64,
    bytes: u64,
    span: Option<(u64, u64)>,
}

impl Times {
    /// A call: whether a model tells its cost, bytes that it moved, its time in ns.
    pub fn add(&mut self, op: Op, has_cost: bool, bytes: u64, duration: u64) {
        self.ops.entry(op).or_default().push(duration as f64);
        if op.moves_bytes() {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if has_cost {
            self.calls += 1;
            self.total += duration as f64;
        }
    }

    /// It began and ended then.
    pub fn span(&mut self, start: u64, end: u64) {
        let (first, last) = self.span.unwrap_or((start, end));
        self.span = Some((first.min(start), last.max(end)));
    }

    fn elapsed(&self) -> Nanos {
        self.span.map_or(Nanos::ZERO, |(first, last)| Nanos::new((last - first) as f64))
    }

    fn report(&self, elapsed: Nanos) -> Told {
        let ops = self.ops.iter().map(|(op, times)| {
            let of = |q| seconds(quantile(times, q).unwrap_or(0.0));
            let (op, calls, total) = (op.name(), times.len() as u64, times.iter().sum());
            OpTimes { op, calls, total_s: seconds(total), p50_s: of(0.5), p99_s: of(0.99) }
        });
        Told {
            calls: self.calls,
            bytes: self.bytes,
            total_s: seconds(self.total),
            end_s: elapsed.as_seconds(),
            ops: ops.collect(),
        }
    }
}

fn seconds(ns: f64) -> f64 {
    Nanos::new(ns).as_seconds()
}

#[derive(Serialize)]
pub struct Answer {
    schema: u32,
    /// The calls of the trace, those left out excepted.
    recorded: Told,
    rerun: Told,
    /// Of both in `total_s`, rerun over recorded.
    ratio: Option<f64>,
    late: Late,
    left_out: Vec<LeftOut>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Changed>,
    safety: Vec<String>,
}

#[derive(Serialize)]
struct Told {
    calls: u64,
    bytes: u64,
    total_s: f64,
    end_s: f64,
    ops: Vec<OpTimes>,
}

#[derive(Serialize)]
struct Late {
    over_s: f64,
    calls: u64,
    of: u64,
    mean_s: f64,
    p99_s: f64,
    max_s: f64,
}

#[derive(Serialize)]
struct LeftOut {
    op: &'static str,
    calls: u64,
    why: &'static str,
}

impl Answer {
    /// `elapsed`: of the rerun. `late`: how late each call began, in ns. `left_out`: operations, why, and
    /// how many calls. `changes`: and the calls they changed.
    pub fn new(
        recorded: &Times,
        made: &Times,
        elapsed: Nanos,
        late: &[f64],
        left_out: impl Iterator<Item = (Op, &'static str, u64)>,
        changes: Vec<(String, u64)>,
        safety: Vec<String>,
    ) -> Answer {
        let late = Late {
            over_s: seconds(LATE),
            calls: late.iter().filter(|late| **late > LATE).count() as u64,
            of: late.len() as u64,
            mean_s: seconds(late.iter().sum::<f64>() / late.len().max(1) as f64),
            p99_s: seconds(quantile(late, 0.99).unwrap_or(0.0)),
            max_s: seconds(late.iter().copied().fold(0.0, f64::max)),
        };
        let left_out = left_out.map(|(op, why, calls)| LeftOut { op: op.name(), calls, why });
        Answer {
            schema: SCHEMA,
            recorded: recorded.report(recorded.elapsed()),
            rerun: made.report(elapsed),
            ratio: (recorded.total > 0.0).then(|| made.total / recorded.total),
            late,
            left_out: left_out.collect(),
            changes: changes
                .into_iter()
                .map(|(change, calls)| Changed { change, calls: Some(calls) })
                .collect(),
            safety,
        }
    }

    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let (was, is) = (&self.recorded, &self.rerun);
        self.changes.iter().for_each(|change| line(&mut out, "change", &change.in_words(), terminal));
        let late = &self.late;
        let (calls, all) = (compact::count(late.calls), counted(late.of, "call"));
        let [over, mean, p99, most] = [late.over_s, late.mean_s, late.p99_s, late.max_s].map(time);
        let timing = format!(
            "{calls} of {all} began more than {over} late; late by {mean} on average, by {p99} at 99 %, by {most} at \
             most"
        );
        line(&mut out, "timing", &timing, terminal);
        for LeftOut { op, calls, why } in &self.left_out {
            line(&mut out, "left out", &format!("{} {op}: {why}", compact::count(*calls)), terminal);
        }
        let rows = [
            row("time in calls", was.total_s, is.total_s, time),
            row("elapsed", was.end_s, is.end_s, time),
            row("written", was.bytes as f64, is.bytes as f64, |bytes| Bytes(bytes as u64).to_string()),
        ];
        headed(&mut out, &table(&["", "RECORDED", "RERUN", "CHANGE"], [0], rows), terminal);
        let rows = rows_of_ops(&was.ops, &is.ops, |op| [op.total_s, op.p50_s]);
        let header = ["OP", "RECORDED", "TIME", "P50", "RERUN", "TIME", "P50"];
        headed(&mut out, &table(&header, [0], rows), terminal);
        less_safe(&mut out, self.safety.iter(), terminal);
        out
    }
}

#[derive(Serialize)]
pub struct Prepared {
    schema: u32,
    dir: String,
    files: u64,
    bytes: u64,
}

impl Prepared {
    pub fn new(dir: &Path, files: u64, bytes: u64) -> Prepared {
        Prepared { schema: SCHEMA, dir: dir.display().to_string(), files, bytes }
    }

    pub fn text(&self) -> String {
        let Prepared { dir, files, bytes, .. } = self;
        format!("{dir} is prepared: {}, {}\n", counted(*files, "file"), Bytes(*bytes))
    }
}
