//! The calls as a model lives through them, and what they cost.

use std::collections::BTreeMap;

use cawl_wire::{Event, Op};

use super::Machine;
use super::parts::times;
use super::threads::{Base, Step, Thread};
use crate::accuracy::{Histogram, Quantiles};
use crate::call::{Class, classify, is_of_name_or_length, kernel_bytes};
use crate::cause::CostParts;
use crate::descriptors::Descriptors;
use crate::limits::DirtyLimits;
use crate::model::{CostModel, Map};
use crate::profile::CallConstants;
use crate::record::{Record, Session, SessionEnd, Wchar};
use crate::units::{Bytes, Nanos, Time};

/// Paths ([`CallConstants::after`]) that a program's thinking after a wait takes longer by: on 6.18 a tight
/// loop of an interpreter one (23 to 31 µs after 37 ms where a path took 18), regular expressions and JSON in
/// it six to nine (144 to 188 µs); this is between them.
const PATHS: f64 = 3.0;
/// Most of its thinking that can be due to the wait: there, code took 12 to 50 times as long as without.
const COLD_PART: f64 = 0.9;

/// What calls cost on paper.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Calls that have a cost.
    pub calls: u64,
    /// Bytes that they handed to the kernel.
    pub bytes: u64,
    /// Time in them.
    pub total: Nanos,
    /// Time in the calls, by cause.
    pub causes: CostParts,
    /// From the first call to the end of the last, with the threads' own thinking.
    pub end: Nanos,
    /// The most that was dirty.
    pub peak_dirty: Bytes,
    /// By operation.
    pub ops: Vec<OpCost>,
    /// Calls that each change changed, added or left out.
    pub changed: Vec<u64>,
    /// What became less safe.
    pub safety: Vec<String>,
    /// The calls as they were made on paper, by time, with the sessions and names around them; empty unless
    /// asked for.
    pub records: Vec<Record>,
}

impl Ledger {
    /// Time in the calls that they would not take undisturbed: with warm memory, nothing dirty, and the
    /// device idle.
    pub fn lost(&self) -> Nanos {
        let lost = self.causes.iter().filter(|(cause, _)| !cause.is_own());
        Nanos::new(lost.map(|(_, time)| time.get()).sum())
    }

    /// These calls and those of another trace, one run after the other. Quantiles have no sum.
    pub fn add(&mut self, other: Ledger) {
        self.ops = if self.calls == 0 { other.ops } else { Vec::new() };
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.total += other.total;
        self.causes.add(&other.causes);
        self.end += other.end;
        self.peak_dirty = self.peak_dirty.max(other.peak_dirty);
        self.changed.resize(self.changed.len().max(other.changed.len()), 0);
        self.changed.iter_mut().zip(other.changed).for_each(|(sum, more)| *sum += more);
        let new: Vec<String> = other.safety.into_iter().filter(|one| !self.safety.contains(one)).collect();
        self.safety.extend(new);
    }
}

/// What the calls of an operation cost.
#[derive(Clone, Copy, Debug)]
pub struct OpCost {
    /// The operation.
    pub op: Op,
    /// Its calls.
    pub calls: u64,
    /// Time in them.
    pub total: Nanos,
    /// Quantiles of a call's cost.
    pub quantiles: Quantiles,
}

/// A model that lives through calls.
pub(super) struct Paper {
    model: Box<dyn CostModel>,
    descriptors: Descriptors,
    page: Bytes,
    limits: Option<DirtyLimits>,
    limits_factor: f64,
    /// Whether free memory was told.
    has_memory: bool,
    /// Where each thread stands, and the latest of each process.
    threads: Map<Thread, Time>,
    processes: Map<u32, Time>,
    /// By how much each thread may yet think less since it is spared a wait, in ns.
    warmer: Map<Thread, f64>,
    constants: CallConstants,
    /// The process of each session, where records are kept.
    sessions: Map<u32, u32>,
    first: Option<Time>,
    last: Time,
    ops: BTreeMap<Op, (Nanos, Histogram)>,
    ledger: Ledger,
    /// The records of a changed trace with their times, if they are asked for.
    pub(super) kept: Option<Vec<(Time, Record)>>,
}

impl Paper {
    pub(super) fn new(mut model: Box<dyn CostModel>, machine: &Machine) -> Paper {
        if let Some(limits) = machine.limits {
            model.set_limits(limits);
        }
        if machine.warm {
            model.supply(Some(false));
        }
        Paper {
            model,
            descriptors: Descriptors::default(),
            page: machine.profile.kernel.page,
            limits: machine.limits,
            limits_factor: machine.limits_factor,
            has_memory: machine.warm,
            threads: Map::default(),
            processes: Map::default(),
            warmer: Map::default(),
            constants: machine.profile.calls.clone(),
            sessions: Map::default(),
            first: None,
            last: Time(0),
            ops: BTreeMap::new(),
            ledger: Ledger::default(),
            kept: None,
        }
    }

    /// Keeps a record that is no call, at its time on paper. What was observed of the machine, and what the
    /// kernel counted of the processes, is not of this run.
    fn keep_other(&mut self, record: &Record) {
        let stood = |pid: u32| self.processes.get(&pid).copied().unwrap_or(self.last);
        let (at, record) = match record {
            Record::Session(session) => {
                let (started, wchar) = (stood(session.ppid), Wchar::default());
                (started, Record::Session(Session { started, wchar, usage: None, ..session.clone() }))
            }
            Record::End(end) => {
                let at = self.sessions.get(&end.id).map_or(self.last, |pid| stood(*pid));
                (at, Record::End(SessionEnd::new(end.id, at, end.how)))
            }
            // Before any call on it.
            Record::File(file) if !file.renamed => (Time(0), record.clone()),
            Record::File(_) | Record::Note(_) => (self.last, record.clone()),
            _ => return,
        };
        if let Record::Session(session) = &record {
            self.sessions.insert(session.id, session.pid);
        }
        self.kept.iter_mut().for_each(|kept| kept.push((at, record.clone())));
    }

    /// Takes any record but a call or a name.
    pub(super) fn note(&mut self, record: &Record) {
        if self.kept.is_some() {
            self.keep_other(record);
        }
        match record {
            Record::Sample(sample) if self.limits.is_none() => {
                self.model.set_limits(times(sample.limits(self.page), self.limits_factor))
            }
            Record::Host(host) => {
                host.deleted.iter().for_each(|facts| self.model.found_deleted(facts, host.started));
            }
            // As in open loop: what becomes of free memory is foreseen.
            Record::Memory(facts) if !self.has_memory => {
                self.has_memory = true;
                self.model.free_memory(facts);
            }
            Record::Session(_) | Record::End(_) => {
                self.descriptors.take(record);
                self.gone(self.last);
            }
            _ => {}
        }
    }

    /// A thread goes on.
    pub(super) fn step(&mut self, step: &Step) {
        let own = self.threads.get(&step.thread).copied();
        let at = match step.base {
            Base::Itself => own,
            Base::Process(pid) | Base::End(pid) => self.processes.get(&pid).copied(),
            Base::Moment(at) => Some(at),
        };
        let mut at = moved(at.or(own).unwrap_or(self.last), self.warmed(step));
        if let (Base::End(_), Some(own)) = (step.base, own) {
            at = at.max(own);
        }
        self.first.get_or_insert(at);
        if step.spared > 0 {
            let colder = self.constants.after(Nanos::new(step.spared as f64)) * PATHS;
            self.warmer.insert(step.thread, colder.get());
        }
        if let Some(event) = &step.call {
            let cost = self.call(event, at);
            let duration = cost.get() as u64;
            let made = Record::Event(Event { start: at.0, duration, ..*event });
            self.kept.iter_mut().for_each(|kept| kept.push((at, made.clone())));
            at = at + cost;
        }
        self.threads.insert(step.thread, at);
        let process = self.processes.entry(step.thread.0).or_insert(at);
        *process = at.max(*process);
        self.last = self.last.max(at);
    }

    /// How long a thread thinks: less than in the trace after a wait that it is spared.
    fn warmed(&mut self, step: &Step) -> f64 {
        let Some(warmer) = self.warmer.get_mut(&step.thread).filter(|_| step.base == Base::Itself) else {
            return step.think;
        };
        let less = (step.think * COLD_PART).clamp(0.0, *warmer);
        *warmer -= less;
        step.think - less
    }

    /// Makes a call at a moment; how long it takes.
    fn call(&mut self, event: &Event, at: Time) -> Nanos {
        self.descriptors.take(&Record::Event(*event));
        let class = classify(event);
        let observed = Nanos::new(event.duration as f64);
        let mut cost = observed;
        if class != Class::Elsewhere {
            let shown = Event { start: at.0, duration: 0, ..*self.descriptors.shown(event) };
            let prediction = self.model.step(&shown);
            if let (Class::Cost | Class::Effect, Some(prediction)) = (class, prediction) {
                cost = prediction.cost;
                if prediction.parts.device() > Nanos::ZERO {
                    // It waits for the device after all, and what it thinks next follows that.
                    self.warmer.remove(&(event.pid, event.tid));
                }
                let Ledger { calls, bytes, total, causes, .. } = &mut self.ledger;
                *calls += 1;
                *bytes = bytes.saturating_add(kernel_bytes(event));
                *total += cost;
                causes.add(&prediction.parts);
                let (sum, costs) = self.ops.entry(event.op).or_default();
                *sum += cost;
                costs.add(cost.get());
            }
            self.ledger.peak_dirty = self.ledger.peak_dirty.max(self.model.dirty_level());
        }
        self.gone(at + cost);
        cost
    }

    /// Nothing leads to these files any more.
    fn gone(&mut self, at: Time) {
        if !self.descriptors.gone.is_empty() {
            self.model.advance(at);
            self.descriptors.gone.iter().for_each(|file| self.model.gone(*file));
        }
    }

    pub(super) fn finish(mut self) -> Ledger {
        self.ledger.end = self.first.map_or(Nanos::ZERO, |first| self.last.since(first));
        let ops = self.ops.into_iter().filter_map(|(op, (total, costs))| {
            Some(OpCost { op, calls: costs.total, total, quantiles: costs.quantiles()? })
        });
        self.ledger.ops = ops.collect();
        let mut kept = self.kept.unwrap_or_default();
        kept.sort_by_key(|(at, _)| *at);
        self.ledger.records = kept.into_iter().map(|(_, record)| record).collect();
        self.ledger
    }
}

/// A moment later, or earlier.
fn moved(at: Time, by: f64) -> Time {
    if by >= 0.0 { at + Nanos::new(by) } else { Time(at.0.saturating_sub(-by as u64)) }
}

/// What the calls that have a cost took in the trace, in ns, and what those before took.
pub fn observed_ns<'a>(before: u64, records: impl IntoIterator<Item = &'a Record>) -> u64 {
    records.into_iter().fold(before, |sum, record| match record {
        Record::Event(event) if classify(event) == Class::Cost || is_of_name_or_length(event) => {
            sum.saturating_add(event.duration)
        }
        _ => sum,
    })
}
