//! Records in the order in which their calls began.
//!
//! The law: **no call goes out while an earlier one is under way**, because the models take calls by
//! their starts and strace prints them by their ends. A call that takes too long for the memory at
//! hand loses its place, and is counted.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use cawl_core::{FileFacts, Record, kernel_bytes};
use cawl_wire::{Event, Op};

/// Most records held back for one call under way.
const MOST_HELD: usize = 1 << 16;

#[derive(Debug)]
struct Held {
    time: u64,
    number: u64,
    record: Record,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.number == other.number
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

/// Puts records in order, and a file's facts before its first event.
#[derive(Debug, Default)]
pub(super) struct Queue {
    held: BinaryHeap<Reverse<Held>>,
    number: u64,
    /// Calls under way: start in ns, thread.
    under_way: BTreeSet<(u64, u32)>,
    facts: HashMap<u64, FileFacts>,
    last: u64,
    pub calls: u64,
    pub bytes: u64,
    pub files: u64,
    pub out_of_order: u64,
}

impl Queue {
    /// A call began.
    pub fn began(&mut self, start: u64, tid: u32) {
        self.under_way.insert((start, tid));
    }

    /// A call is over, or will never be.
    pub fn over(&mut self, start: u64, tid: u32, out: &mut Vec<Record>) {
        self.under_way.remove(&(start, tid));
        self.release(out);
    }

    /// What is to be told of a file before its first event.
    pub fn know(&mut self, facts: FileFacts) {
        self.facts.insert(facts.ino, facts);
    }

    /// Takes a record that belongs to `time`, in ns.
    pub fn push(&mut self, time: u64, record: Record, out: &mut Vec<Record>) {
        if self.held.is_empty() && self.may_go(time) {
            return self.deliver(time, record, out);
        }
        self.number += 1;
        self.held.push(Reverse(Held { time, number: self.number, record }));
        self.release(out);
    }

    /// Lets everything go, for the input is over.
    pub fn drain(&mut self, out: &mut Vec<Record>) {
        self.under_way.clear();
        self.release(out);
    }

    fn may_go(&self, time: u64) -> bool {
        self.under_way.first().is_none_or(|(start, _)| time <= *start)
    }

    /// Lets go what nothing earlier is under way for.
    pub fn release(&mut self, out: &mut Vec<Record>) {
        while self.held.len() > MOST_HELD || self.held.peek().is_some_and(|held| self.may_go(held.0.time)) {
            let Some(Reverse(held)) = self.held.pop() else { return };
            self.deliver(held.time, held.record, out);
        }
    }

    fn deliver(&mut self, time: u64, record: Record, out: &mut Vec<Record>) {
        if let Record::Event(event) = &record {
            self.count(time, event);
            if let Some(facts) = self.facts.remove(&event.ino) {
                self.files += 1;
                out.push(Record::File(facts));
            }
        }
        out.push(record);
    }

    fn count(&mut self, time: u64, event: &Event) {
        self.calls += 1;
        if event.op != Op::MmapWrite {
            self.bytes = self.bytes.saturating_add(kernel_bytes(event));
        }
        self.out_of_order += u64::from(time < self.last);
        self.last = time;
    }
}
