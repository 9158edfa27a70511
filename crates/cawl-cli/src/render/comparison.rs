//! Two runs of the same calls beside each other, as they were and as they are.

use serde::Serialize;

use super::{compact, counted, line, time};

/// A change, and the calls that it changed; None: it is one of the machine.
#[derive(Serialize)]
pub struct Changed {
    pub change: String,
    pub calls: Option<u64>,
}

impl Changed {
    pub fn in_words(&self) -> String {
        let calls = match self.calls {
            None => "of the machine".to_owned(),
            Some(0) => "changes no call".to_owned(),
            Some(calls) => counted(calls, "call"),
        };
        format!("{}: {calls}", self.change)
    }
}

#[derive(Serialize)]
pub struct OpTimes {
    pub op: &'static str,
    pub calls: u64,
    pub total_s: f64,
    pub p50_s: f64,
    pub p99_s: f64,
}

/// What calls took in the trace and on paper, in seconds.
pub fn on_paper(observed_s: f64, paper_s: f64) -> String {
    if observed_s == 0.0 {
        return format!("no durations, {} on paper", time(paper_s));
    }
    let off = paper_s / observed_s - 1.0;
    format!("{} observed, {} on paper ({:+.0} %)", time(observed_s), time(paper_s), off * 100.0)
}

/// A row with both values, as `text` tells them, and the second over the first.
pub fn row(name: &str, was: f64, is: f64, text: impl Fn(f64) -> String) -> [String; 4] {
    let part = if was > 0.0 { format!("{:.2} ×", is / was) } else { "-".to_owned() };
    [name.to_owned(), text(was), text(is), part]
}

/// A row for each operation of either run: calls and two times of both.
pub fn rows_of_ops(
    was: &[OpTimes],
    is: &[OpTimes],
    times: impl Fn(&OpTimes) -> [f64; 2],
) -> Vec<[String; 7]> {
    let find = |ops: &[OpTimes], name: &str| {
        let found = ops.iter().find(|op| op.op == name);
        found.map_or(["-"; 3].map(str::to_owned), |op| {
            let [one, other] = times(op).map(time);
            [compact::count(op.calls), one, other]
        })
    };
    let new = is.iter().filter(|op| was.iter().all(|known| known.op != op.op));
    let row = |op: &OpTimes| {
        let ([a, b, c], [d, e, f]) = (find(was, op.op), find(is, op.op));
        [op.op.to_owned(), a, b, c, d, e, f]
    };
    was.iter().chain(new).map(row).collect()
}

/// What becomes less safe, after an empty line.
pub fn less_safe(out: &mut String, all: impl Iterator<Item = impl AsRef<str>>, terminal: bool) {
    for (at, safety) in all.enumerate() {
        out.push_str(if at == 0 { "\n" } else { "" });
        line(out, "less safe", safety.as_ref(), terminal);
    }
}
