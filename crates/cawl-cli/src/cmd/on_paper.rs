//! Scenarios on paper: the calls of a trace, changed, on a machine, changed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use cawl_core::advise::{Advised, Kept, LEARNED_FROM, Look};
use cawl_core::{
    HostFacts, HostProfile, Ledger, Nanos, NoScenario, Record, Request, Rewrite, Scenario, TraceFacts,
    WhatIf, observed_ns,
};
use cawl_measure::progress::Progress;

use super::read_profile;
use super::saved::SavedTrace;
use crate::args::ModelArgs;
use crate::exit;

/// Time to read a byte of a trace: for the progress only.
const A_BYTE: Nanos = Nanos::new(100.0);
/// Records between two looks at the progress.
pub const SHOWN: u64 = 1 << 16;
/// Records of a batch.
const BATCH: usize = 2048;
/// Most batches in a channel.
const WAITING: usize = 2;

/// A scenario with changes, whose profiles are read from files ([`Scenario::with`]).
pub fn with(
    base: &Scenario,
    given: &[Request],
    measured: &HostProfile,
    host: Option<&HostFacts>,
) -> anyhow::Result<Scenario> {
    let read = |path: &Path| read_profile(path).map_err(|error| NoScenario::Profile(format!("{error:#}")));
    base.with(given, measured, host, read).map_err(|error| match error {
        NoScenario::Wrong(why) => exit::Usage(why).into(),
        other => other.into(),
    })
}

/// What these changes need to know of the trace.
pub fn facts(
    given: &[Request],
    open: impl FnOnce() -> anyhow::Result<SavedTrace>,
) -> anyhow::Result<TraceFacts> {
    let mut facts = TraceFacts::default();
    if given.iter().filter_map(Request::rewrite).any(Rewrite::needs_facts) {
        for record in open()?.records() {
            facts.take(&record?);
        }
    }
    Ok(facts)
}

/// The trace's profile with what the first calls teach, and whether they tell that memory came warm.
pub fn learned(trace: &mut SavedTrace) -> anyhow::Result<(HostProfile, bool)> {
    let mut look = Look::new(&trace.profile, true)?;
    for record in trace.records() {
        look.take(&record?);
        if look.calls() >= LEARNED_FROM {
            break;
        }
    }
    Ok(look.taught())
}

/// What a report of a trace tells of advice.
pub fn advised(path: &Path) -> Option<Advised> {
    let mut trace = SavedTrace::open(path, &ModelArgs::default()).ok()?;
    let mut kept = Kept::new(&trace.profile);
    for record in trace.records() {
        if !kept.take(&record.ok()?) {
            break;
        }
    }
    kept.advised()
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
    let mut observed = 0;
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
                    observed = observed_ns(observed, &batch);
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
        outcome.map(|()| (ledgers, observed as f64 / 1e9))
    })
}
