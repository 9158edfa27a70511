//! One call, with its causes and its neighbours.

use cawl_core::{Bytes, Frame};
use serde::Serialize;

use super::report::observed;
use super::{bold, headed, line, shown, stacks, table, time};

/// A call, as `explain --call N` tells it. Times in seconds, sizes in bytes.
#[derive(Serialize)]
pub struct OneCall {
    pub schema: u32,
    #[serde(flatten)]
    pub call: CallRow,
    pub pid: u32,
    pub tid: u32,
    pub program: Option<String>,
    pub path: Option<String>,
    /// What determined its cost, by the model.
    pub state: Option<&'static str>,
    /// Modelled dirty bytes at its end.
    pub dirty: Option<u64>,
    /// 10th and 90th percentile of its predicted cost.
    pub interval_s: Option<[f64; 2]>,
    /// The causes that are predicted or observed.
    pub causes: Vec<Part>,
    /// The calls of its thread before it and after it.
    pub before: Vec<CallRow>,
    pub after: Vec<CallRow>,
    /// Where in the program it came from, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<Frame>,
}

#[derive(Serialize)]
pub struct Part {
    pub name: &'static str,
    pub predicted_s: f64,
    pub observed_s: f64,
}

#[derive(Serialize)]
pub struct CallRow {
    /// Its number in the trace, from 1.
    #[serde(rename = "call")]
    pub number: u64,
    /// When it began, since the first call.
    pub at_s: f64,
    pub op: &'static str,
    pub offset: Option<u64>,
    pub bytes: u64,
    /// None: nobody recorded it.
    pub observed_s: Option<f64>,
    pub predicted_s: Option<f64>,
    /// The cause with the largest part.
    pub cause: Option<&'static str>,
}

fn known(seconds: Option<f64>) -> String {
    seconds.map_or("-".to_owned(), time)
}

impl OneCall {
    /// The operation and what it handed to the kernel.
    fn what(&self) -> String {
        match (self.call.bytes, self.state) {
            (0, Some("buffered")) => format!("{} into its buffer only", self.call.op),
            (0, _) => self.call.op.to_owned(),
            (bytes, _) => format!("{} of {}", self.call.op, Bytes(bytes)),
        }
    }

    pub fn text(&self, terminal: bool) -> String {
        let mut out = String::new();
        let call = &self.call;
        let mut line = |name: &str, text: &str| line(&mut out, name, text, terminal);
        let place = call.offset.map_or(String::new(), |offset| format!(" at {offset}"));
        line("call", &format!("{}: {}{place}", call.number, self.what()));
        line("file", &self.path.as_deref().map_or("-".into(), shown));
        let program = self.program.as_deref().map_or("-".into(), shown);
        line("process", &format!("{program}, pid {}, thread {}", self.pid, self.tid));
        line("began", &format!("{:.6} s after the first call", call.at_s));
        let interval = self.interval_s.map_or(String::new(), |[low, high]| {
            format!(", 8 of 10 between {} and {}", time(low), time(high))
        });
        line("took", &format!("{}; predicted {}{interval}", known(call.observed_s), known(call.predicted_s)));
        if let (Some(state), Some(dirty)) = (self.state, self.dirty) {
            line("state", &format!("{state}, with {} dirty at its end", Bytes(dirty)));
        }
        if self.causes.is_empty() {
            out.push_str("\nThis call has no cost that is modelled.\n");
        } else {
            let row = |part: &Part| [part.name.to_owned(), time(part.predicted_s), observed(part.observed_s)];
            let text = table(&["CAUSE", "PREDICTED", "OBSERVED"], [0], self.causes.iter().map(row));
            headed(&mut out, &text, terminal);
        }
        stacks::frames(&mut out, &self.stack, terminal);
        let row = |row: &CallRow| {
            let cells = [
                if row.number == call.number { format!("{} <", row.number) } else { row.number.to_string() },
                format!("{:.6} s", row.at_s),
                row.op.to_owned(),
                row.offset.map_or("-".to_owned(), |offset| offset.to_string()),
                Bytes(row.bytes).to_string(),
                known(row.observed_s),
                known(row.predicted_s),
                row.cause.unwrap_or("-").to_owned(),
            ];
            cells.map(|cell| if row.number == call.number { bold(&cell, terminal) } else { cell })
        };
        let rows = self.before.iter().chain([call]).chain(&self.after).map(row);
        let header = ["CALL", "AT", "OP", "OFFSET", "SIZE", "TOOK", "PREDICTED", "CAUSE"];
        headed(&mut out, &table(&header, [0, 2, 7], rows), terminal);
        out
    }
}
