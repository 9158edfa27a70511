//! Records in the order in which their calls began.
//!
//! The law: **no call goes out while an earlier one is under way**, because the models take calls by
//! their starts and strace prints them by their ends. A call that takes too long for the memory at
//! hand loses its place, and is counted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use cawl_core::{FileFacts, Record, kernel_bytes};
use cawl_wire::Op;

use crate::ImportSummary;

/// Most records held back for one call under way.
const MOST_HELD: usize = 1 << 16;

/// Puts records in order, and a file's facts before its first event.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What may go out.
    pub out: Vec<Record>,
    /// Records by time and number.
    held: BTreeMap<(u64, u64), Record>,
    number: u64,
    /// Calls under way: start in ns, thread.
    under_way: BTreeSet<(u64, u32)>,
    facts: HashMap<u64, FileFacts>,
    last: u64,
    /// Counts of what went out.
    pub summary: ImportSummary,
}

impl Queue {
    /// A call began.
    pub fn began(&mut self, start: u64, tid: u32) {
        self.under_way.insert((start, tid));
    }

    /// A call is over, or will never be.
    pub fn over(&mut self, start: u64, tid: u32) {
        self.under_way.remove(&(start, tid));
        self.release();
    }

    /// What is to be told of a file before its first event.
    pub fn know(&mut self, facts: FileFacts) {
        self.facts.insert(facts.ino, facts);
    }

    /// Takes a record that belongs to `time`, in ns.
    pub fn push(&mut self, time: u64, record: Record) {
        if self.held.is_empty() && self.may_go(time) {
            return self.deliver(time, record);
        }
        self.number += 1;
        self.held.insert((time, self.number), record);
        self.release();
    }

    /// Lets everything go, for the input is over.
    pub fn drain(&mut self) {
        self.under_way.clear();
        self.release();
    }

    fn may_go(&self, time: u64) -> bool {
        self.under_way.first().is_none_or(|(start, _)| time <= *start)
    }

    /// Lets go what nothing earlier is under way for.
    pub fn release(&mut self) {
        let may_go = |queue: &Queue| queue.held.keys().next().is_some_and(|(time, _)| queue.may_go(*time));
        while self.held.len() > MOST_HELD || may_go(self) {
            let Some(((time, _), record)) = self.held.pop_first() else { return };
            self.deliver(time, record);
        }
    }

    fn deliver(&mut self, time: u64, record: Record) {
        if let Record::Event(event) = &record {
            self.summary.calls += 1;
            if event.op != Op::MmapWrite {
                self.summary.bytes = self.summary.bytes.saturating_add(kernel_bytes(event));
            }
            self.summary.out_of_order += u64::from(time < self.last);
            self.last = time;
            if let Some(facts) = self.facts.remove(&event.ino) {
                self.summary.files += 1;
                self.out.push(Record::File(facts));
            }
        }
        self.out.push(record);
    }
}
