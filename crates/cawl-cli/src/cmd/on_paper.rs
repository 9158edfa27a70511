//! Scenarios on paper: the calls of a trace, changed, on a machine, changed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use cawl_core::{
    AnalysisOptions, Change, Class, Ledger, Machine, Mode, Nanos, Record, TraceFacts, WhatIf, build, classify,
};
use cawl_measure::progress::Progress;

/// The model that calls are run through on paper.
const MODEL: &str = "kernel";
/// Time to read a byte of a trace: for the progress only.
const A_BYTE: Nanos = Nanos::new(100.0);
/// Records between two looks at the progress.
pub const SHOWN: u64 = 1 << 16;
/// Records of a batch.
const BATCH: usize = 2048;
/// Most batches in a channel.
const WAITING: usize = 2;

/// Calls on a machine, both with their changes.
#[derive(Clone)]
pub struct Scenario {
    pub machine: Machine,
    /// What becomes of the calls, one change after another.
    pub changes: Vec<Change>,
}

impl Scenario {
    /// Begins to run it. `facts`: of the trace.
    pub fn begin(&self, facts: &TraceFacts) -> WhatIf {
        let model = build(MODEL, &self.machine.profile).expect("it is in the list of models");
        WhatIf::new(model, &self.machine, &self.changes, facts)
    }
}

/// The options of an analysis that looks at a trace before, and learns from its calls or not.
pub fn learning(learn: bool) -> AnalysisOptions {
    AnalysisOptions {
        models: vec![MODEL.to_owned()],
        mode: Mode::Assimilated,
        learn,
        for_others: true,
        ..AnalysisOptions::default()
    }
}

/// What calls took in the trace, in seconds: those that have a cost.
fn observed_s(record: &Record) -> f64 {
    match record {
        Record::Event(event) if classify(event) == Class::Cost => event.duration as f64 / 1e9,
        _ => 0.0,
    }
}

/// How long a run of a trace takes, by the bytes of its file: for the progress only.
pub fn a_run(trace: &Path) -> Nanos {
    A_BYTE * fs::metadata(trace).map_or(0, |meta| meta.len()) as f64
}

/// The same records, while a line tells of the pass through them.
pub fn watched<R>(
    expected: Nanos,
    what: &'static str,
    records: impl Iterator<Item = R> + Send,
) -> impl Iterator<Item = R> + Send {
    let mut progress = Progress::of(what, expected);
    let mut count: u64 = 0;
    records.inspect(move |_| {
        count += 1;
        if count.is_multiple_of(SHOWN) {
            progress.show();
        }
    })
}

/// Runs all of them through records, on as many threads as there are processors; also what the calls took in
/// the trace, in seconds.
pub fn run_all(
    mut records: impl Iterator<Item = anyhow::Result<Record>>,
    whatifs: Vec<WhatIf>,
) -> anyhow::Result<(Vec<Ledger>, f64)> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(whatifs.len().max(1));
    let mut left = whatifs.into_iter();
    let share = left.len().div_ceil(threads);
    let shares = (0..threads).map(|_| left.by_ref().take(share).collect::<Vec<WhatIf>>());
    let mut observed = 0.0;
    thread::scope(|scope| {
        let workers: Vec<_> = shares
            .map(|mut share| {
                let (send, batches) = sync_channel::<Arc<Vec<Record>>>(WAITING);
                let worker = scope.spawn(move || {
                    for batch in batches {
                        share.iter_mut().for_each(|one| batch.iter().for_each(|record| one.take(record)));
                    }
                    share.into_iter().map(WhatIf::finish).collect::<Vec<_>>()
                });
                (send, worker)
            })
            .collect();
        let mut read = || -> anyhow::Result<Vec<Record>> { records.by_ref().take(BATCH).collect() };
        let outcome = loop {
            match read() {
                Err(error) => break Err(error),
                Ok(batch) if batch.is_empty() => break Ok(()),
                Ok(batch) => {
                    observed += batch.iter().map(observed_s).sum::<f64>();
                    let batch = Arc::new(batch);
                    // One that is gone has panicked; the join passes that on.
                    workers.iter().for_each(|(send, _)| drop(send.send(Arc::clone(&batch))));
                }
            }
        };
        let mut ledgers = Vec::new();
        for (send, worker) in workers {
            drop(send);
            ledgers.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        outcome.map(|()| (ledgers, observed))
    })
}
