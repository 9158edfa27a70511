//! Records in the order in which their calls began.
//!
//! The law: **calls go out by their starts**, because the models take them so; strace prints them by their
//! ends, and with -z or -ff in another order. As many records wait for earlier ones as memory is at hand for;
//! a call that comes later than that loses its place, and is counted.

use std::collections::{BTreeMap, HashMap};

use cawl_core::{FileFacts, Record, Session, Time, kernel_bytes};
use cawl_wire::{FileKind, Op};

use crate::ImportSummary;

/// Records that wait for earlier ones, at most.
const MAX_HELD: usize = 1 << 16;

/// Puts records in order, and a file's facts before its first event.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What may go out.
    pub out: Vec<Record>,
    /// Records by time and number.
    held: BTreeMap<(u64, u64), Record>,
    number: u64,
    /// Where the first session of each process is in `held`, or was.
    sessions: HashMap<u32, (u64, u64)>,
    facts: HashMap<u64, FileFacts>,
    last: u64,
    /// Counts of what went out.
    pub summary: ImportSummary,
}

impl Queue {
    /// What is to be told of a file before its first event.
    pub fn know(&mut self, facts: FileFacts) {
        self.facts.insert(facts.ino, facts);
    }

    /// True if a file's facts have not gone out, and so none of its events.
    pub fn holds(&self, ino: u64) -> bool {
        self.facts.contains_key(&ino)
    }

    /// Gives the events of a file since `since`, in ns, another file and kind, as far as they have not gone
    /// out.
    pub fn revise(&mut self, since: u64, ino: u64, to: u64, kind: FileKind) {
        for record in self.held.range_mut((since, 0)..).map(|(_, record)| record) {
            if let Record::Event(event) = record
                && event.ino == ino
            {
                (event.ino, event.kind) = (to, kind);
            }
        }
    }

    /// What was to be told of a file is not wanted any more.
    pub fn forget(&mut self, ino: u64) {
        self.facts.remove(&ino);
    }

    /// Takes a record that belongs to `time`, in ns.
    pub fn push(&mut self, time: u64, record: Record) {
        self.number += 1;
        match &record {
            Record::Session(session) => drop(self.sessions.entry(session.pid).or_insert((time, self.number))),
            Record::Event(event) => self.begin_by(time, event.pid),
            _ => {}
        }
        self.held.insert((time, self.number), record);
        self.release(MAX_HELD);
    }

    /// A process made a call at `time`: the line of a call that ended before it may have told a later begin of
    /// the process.
    fn begin_by(&mut self, time: u64, pid: u32) {
        if let Some(key) = self.sessions.get_mut(&pid).filter(|key| time < key.0)
            && let Some(Record::Session(session)) = self.held.remove(key)
        {
            key.0 = time;
            self.held.insert(*key, Record::Session(Session { started: Time(time), ..session }));
        }
    }

    /// Lets everything go, for the input is over.
    pub fn drain(&mut self) {
        self.release(0);
    }

    fn release(&mut self, most: usize) {
        while self.held.len() > most
            && let Some(((time, _), record)) = self.held.pop_first()
        {
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
