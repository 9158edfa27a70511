//! Scenarios on paper: the calls of a trace, changed, on a machine, changed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use anyhow::Context;
use cawl_core::{
    Analysis, AnalysisOptions, Change, Class, DirtyLimits, Effect, GroupCache, HostFacts, HostProfile,
    Ledger, Machine, Mode, Nanos, OtherDevice, Record, Request, Rewrite, TraceFacts, WhatIf, build, classify,
    dirtyable,
};
use cawl_measure::progress::Progress;

use super::read_profile;
use super::saved::SavedTrace;
use crate::exit;

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
/// Calls that constants are learned from at most.
pub const LEARNED_FROM: u64 = 500_000;
/// Numbers of devices that files are moved to: no device of a Linux has them.
const MOVED_TO: u64 = 0xffff_ff00;

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

    /// This one with changes. `measured`: the profile without what the trace taught. `host`: the machine
    /// that was traced, if that is known.
    pub fn with(
        &self,
        given: &[Request],
        measured: &HostProfile,
        host: Option<&HostFacts>,
    ) -> anyhow::Result<Scenario> {
        let Scenario { mut machine, mut changes } = self.clone();
        if given.iter().filter_map(Request::rewrite).any(Rewrite::adds_flags) {
            machine = machine.for_new_flags(measured);
        }
        let wrong = |why: String| anyhow::Error::from(exit::Usage(why));
        let (mut ratios, mut ram, mut cgroup) = (None, None, None);
        // Another machine is what the changes of a machine are changes of.
        let (machines, others): (Vec<&Request>, Vec<&Request>) =
            given.iter().partition(|one| matches!(one.effect, Effect::Profile(_)));
        for one in machines.into_iter().chain(others) {
            match &one.effect {
                Effect::Calls(change) => changes.push(change.clone()),
                Effect::Move(glob, place) => {
                    let mounted =
                        host.and_then(|host| host.filesystems.iter().find(|one| one.mount == *place));
                    let known =
                        mounted.filter(|one| machine.profile.others.iter().any(|of| of.dev == one.dev));
                    let dev = known.map_or(MOVED_TO + machine.profile.others.len() as u64, |one| one.dev);
                    if known.is_none() {
                        let constants = read_profile(Path::new(place))?.device;
                        machine.profile.others.push(OtherDevice { dev, constants });
                    }
                    changes.push(Change { rewrite: Rewrite::Move(dev), on: Some(glob.clone()) });
                }
                Effect::Set(name, value) => {
                    machine.profile = machine.profile.with(name, value).map_err(wrong)?
                }
                Effect::Profile(path) => {
                    machine.profile = read_profile(path)?;
                    machine.limits = Some(machine.profile.kernel.limits);
                }
                Effect::Limits(limits) => machine.limits = Some(*limits),
                Effect::Ratios(of) => ratios = Some(*of),
                Effect::Ram(bytes) => ram = Some(*bytes),
                Effect::Cgroup(bytes) => cgroup = Some(*bytes),
                Effect::Warm => machine.warm = true,
                Effect::On(_) => {}
            }
        }
        let parts = ratios.or_else(|| host.map(ratios_of)).unwrap_or(DirtyLimits::DEFAULT_RATIOS);
        if ratios.is_some() || ram.is_some() {
            let memory = ram.map(dirtyable).or_else(|| host.map(|host| host.memory));
            let memory =
                memory.context("the trace does not tell how much memory its machine has; add --ram SIZE")?;
            machine.limits = Some(DirtyLimits::of(parts, memory));
        }
        // An empty one, whose programs take nothing but the cache.
        let empty = |memory| GroupCache { room: Some(memory), ..GroupCache::default() };
        machine.profile.kernel.group = cgroup.map(empty).or(machine.profile.kernel.group);
        machine.profile.kernel.cgroup =
            cgroup.map(|memory| DirtyLimits::of(parts, memory)).or(machine.profile.kernel.cgroup);
        if let Some(limits) = machine.limits {
            machine.profile.kernel.limits = limits;
        }
        machine.profile.check().map_err(|error| wrong(error.to_string()))?;
        Ok(Scenario { machine, changes })
    }
}

fn ratios_of(host: &HostFacts) -> [f64; 2] {
    let of = |name: &str| {
        let found = host.dirty_settings.iter().find(|(setting, _)| setting == name);
        found.map(|(_, percent)| *percent as f64 / 100.0).filter(|part| *part > 0.0)
    };
    let [background, hard] = DirtyLimits::DEFAULT_RATIOS;
    [of("dirty_background_ratio").unwrap_or(background), of("dirty_ratio").unwrap_or(hard)]
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
    let mut analysis = Analysis::with(&trace.profile, &learning(true))?;
    let mut calls = 0;
    for record in trace.records() {
        let record = record?;
        analysis.take(&record);
        calls += u64::from(matches!(record, Record::Event(_)));
        if calls >= LEARNED_FROM {
            break;
        }
    }
    Ok(taught(&analysis))
}

/// The profile with what calls taught, and whether they tell that memory came warm.
pub fn taught(analysis: &Analysis) -> (HostProfile, bool) {
    (analysis.learned().0, analysis.came_warm())
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
