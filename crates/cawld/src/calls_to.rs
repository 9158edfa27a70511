//! Tables of calls (`--calls-to`): Parquet files in partitions by node, day and hour.
//!
//! The law of this module: **nothing waits for a table.** The engine chooses rows and hands them over by a
//! bounded channel; what finds no room is dropped and counted. A thread of its own writes the files.

mod row;
mod rule;
mod writer;

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cawl_client::protocol::OutputStatus;
use cawl_core::{Record, Shown};
use cawl_host::spool::{SpoolOptions, encoded};
use cawl_wire::Op;

use crate::names::Names;
use crate::spooled::Spooler;
use crate::totals::Totals;
use row::Row;
pub use rule::Rule;
use rule::{Chooser, is_anomaly};
use writer::Writer;

/// Rows of a batch, which is handed over at the latest with the next tick.
const BATCH: usize = 1024;
/// Batches that wait for the writer at most: some 40 MB.
const QUEUE: usize = 64;
/// Time before and after an anomaly whose calls are taken.
const AROUND: u64 = 1_000_000_000;
/// Rows that are kept for an anomaly to come: some 40 MB.
const HELD: usize = 65_536;

/// What to write, and where.
#[derive(Clone, Debug)]
pub struct CallsOptions {
    /// The folder, or the address that `cawl-ship` brings the files to.
    pub to: String,
    /// The folder that the files are written to.
    pub folder: PathBuf,
    /// Which calls.
    pub rule: Rule,
    /// A file is closed when it has so many bytes, or is so old.
    pub every: (u64, Duration),
    /// Bytes that the files of this node take at most.
    pub room: u64,
    /// Name of the node.
    pub node: String,
    /// Facts for the metadata of each file.
    pub facts: Vec<(&'static str, String)>,
}

/// The engine's side.
pub struct CallsTo {
    chooser: Chooser,
    /// The calls of the latest span, if the rule is about anomalies; and until when all are taken.
    held: Option<VecDeque<Row>>,
    until: u64,
    names: Names,
    batch: Vec<Row>,
    /// Calls analysed.
    calls: Arc<AtomicU64>,
    writer: Spooler<Vec<Row>>,
}

impl CallsTo {
    /// Starts the writer; `models` are those whose predictions come with each call.
    pub fn start(options: CallsOptions, models: &[&'static str]) -> io::Result<CallsTo> {
        let CallsOptions { to, folder, room, node, rule, .. } = options.clone();
        let own = format!("node={}", encoded(&node)).into();
        let spool = SpoolOptions { folder, own, node, ending: ".parquet", room };
        let calls = Arc::<AtomicU64>::default();
        let (models, counted) = (models.to_vec(), Arc::clone(&calls));
        let writer = Spooler::start(("cawl-calls", QUEUE), to, spool, move |spool, batches| {
            Writer::new(options, &models, spool, counted).work(&batches);
        })?;
        Ok(CallsTo {
            held: rule.anomalies.then(VecDeque::new),
            chooser: Chooser::new(rule),
            until: 0,
            names: Names::default(),
            batch: Vec::with_capacity(BATCH),
            calls,
            writer,
        })
    }

    /// Takes a record, and what was shown of it if it is a call.
    pub fn take(&mut self, record: &Record, shown: &Shown<'_>, totals: Option<&Totals>) {
        let Record::Event(event) = record else { return self.names.take(record) };
        // What the tracer tells of a file is no call.
        if event.op == Op::Resident {
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.held.is_none() {
            if let Some(weight) = self.chooser.weight(event) {
                let row = Row::new(event, shown, &mut self.names, totals, weight);
                self.push(row);
            }
            return;
        }
        let predicted = shown.predictions.first().copied().flatten();
        if is_anomaly(event, predicted.map(|told| told.cost)) {
            self.release(|row| row.event.end() >= event.start.saturating_sub(AROUND));
            self.until = self.until.max(event.end().saturating_add(AROUND));
        }
        let row = Row::new(event, shown, &mut self.names, totals, 1);
        if event.start <= self.until {
            return self.push(row);
        }
        self.hold(row);
    }

    /// Keeps a row until it is too old to be near an anomaly, and chooses among those that are.
    fn hold(&mut self, row: Row) {
        let since = row.event.start.saturating_sub(AROUND);
        self.held.get_or_insert_default().push_back(row);
        while let Some(held) = &mut self.held
            && held.front().is_some_and(|row| row.event.end() < since || held.len() > HELD)
            && let Some(row) = held.pop_front()
        {
            self.choose(row);
        }
    }

    /// Lets go of all rows that are held: takes those that are `near`, and chooses among the others.
    fn release(&mut self, near: impl Fn(&Row) -> bool) {
        for row in self.held.as_mut().map(std::mem::take).unwrap_or_default() {
            if near(&row) { self.push(row) } else { self.choose(row) }
        }
    }

    fn choose(&mut self, mut row: Row) {
        if let Some(weight) = self.chooser.weight(&row.event) {
            row.weight = weight;
            self.push(row);
        }
    }

    fn push(&mut self, row: Row) {
        self.batch.push(row);
        if self.batch.len() >= BATCH {
            self.flush();
        }
    }

    /// Hands over what was chosen.
    pub fn flush(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.writer.send(batch, |batch| batch.len() as u64);
    }

    /// What became of the calls.
    pub fn status(&self) -> OutputStatus {
        self.writer.status()
    }
}

impl Drop for CallsTo {
    /// The writer then waits for the last file.
    fn drop(&mut self) {
        self.release(|_| false);
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::{Nanos, Prediction};
    use cawl_wire::Event;

    use super::*;

    /// Calls each 100 ms; some take far longer than predicted.
    #[test]
    fn calls_around_an_anomaly_are_taken_each() {
        let dir = tempfile::tempdir().unwrap();
        let options = CallsOptions {
            to: String::new(),
            folder: dir.path().to_owned(),
            rule: "only around anomalies".parse().unwrap(),
            every: (1 << 30, Duration::from_secs(3600)),
            room: 1 << 30,
            node: "n".to_owned(),
            facts: Vec::new(),
        };
        let mut calls = CallsTo::start(options, &["kernel"]).unwrap();
        let mut taken = Vec::new();
        for number in 1..200_u64 {
            // 0.5 s where 1 ms was predicted; and where 0.4 s was.
            let slow = number == 100 || number == 50;
            let duration = if slow { 500_000_000 } else { 1_000_000 };
            let event = Event { start: number * 100_000_000, duration, ..Event::new(Op::Write) };
            let cost = Nanos::new(if number == 50 { 4e8 } else { 1e6 });
            let prediction = [Some(Prediction { cost, ..Prediction::default() })];
            let shown = Shown { number, predictions: &prediction, causes: None, own: None, selected: true };
            calls.take(&Record::Event(event), &shown, None);
            taken.extend(calls.batch.drain(..).map(|row| (row.event.start / 100_000_000, row.weight)));
        }
        // From one second before its beginning until one second after its end.
        assert_eq!(taken, (90..=115).map(|number| (number, 1)).collect::<Vec<_>>());
    }
}
