//! The records that wait for an anomaly, and what a reader of them must know of the time before.

use std::collections::{BTreeMap, VecDeque};

use cawl_core::{FileFacts, LruMap, Nanos, Record, Session, Stack, Time, Wchar};
use cawl_wire::FileId;

use super::super::BLOCK_TARGET;
use super::Anomaly;

/// Records of a span of time.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub raw: Vec<u8>,
    /// The records in it, and the calls and samples among them.
    pub records: u64,
    pub calls: u64,
    /// The others, which describe calls.
    pub described: Vec<Record>,
    /// Calls and samples that were left out before it.
    pub missing: u64,
    /// The span of time, by the begins of calls.
    pub first: Time,
    pub last: Time,
    /// Its anomalies: their number, and the first one with the begin and the end of all.
    pub anomalies: u64,
    pub anomaly: Option<Anomaly>,
}

impl Block {
    /// An empty one that begins now.
    pub fn new(now: Time) -> Block {
        Block { first: now, last: now, ..Block::default() }
    }

    /// Adds the block that follows.
    fn append(&mut self, next: Block) {
        self.raw.extend_from_slice(&next.raw);
        self.records += next.records;
        self.calls += next.calls;
        self.described.extend(next.described);
        self.last = self.last.max(next.last);
    }
}

/// The latest blocks.
#[derive(Debug, Default)]
pub(super) struct Window {
    blocks: VecDeque<Block>,
    bytes: usize,
    /// What was told before the first of them.
    pub head: Head,
}

impl Window {
    /// Adds the next block. Small ones become one, if that spans no more than `span`.
    pub fn push(&mut self, block: Block, span: Nanos) {
        self.bytes += block.raw.len();
        match self.blocks.back_mut() {
            Some(last)
                if last.raw.len() + block.raw.len() <= BLOCK_TARGET
                    && block.missing == 0
                    && block.last.since(last.first) <= span =>
            {
                last.append(block);
            }
            _ => self.blocks.push_back(block),
        }
    }

    /// The earliest block.
    pub fn front(&self) -> Option<&Block> {
        self.blocks.front()
    }

    /// Removes the earliest block, and keeps what it tells of later calls.
    pub fn pop(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.raw.len();
        block.described.iter().for_each(|record| self.head.take(record));
        Some(block)
    }

    /// Removes the earliest block if it ended before `since`, or if all take more than `memory` bytes.
    pub fn pop_beyond(&mut self, since: Time, memory: usize) -> Option<Block> {
        let front = self.front()?;
        if front.last < since || self.bytes > memory { self.pop() } else { None }
    }
}

/// What was told until now and concerns later calls.
#[derive(Debug, Default)]
pub(super) struct Head {
    machine: Option<Record>,
    profile: Option<Record>,
    memory: Option<Record>,
    sessions: BTreeMap<u32, Session>,
    by_pid: BTreeMap<u32, u32>,
    files: LruMap<FileId, FileFacts>,
    stacks: LruMap<u32, Stack>,
}

impl Head {
    fn take(&mut self, record: &Record) {
        match record {
            Record::Host(_) => self.machine = Some(record.clone()),
            Record::Profile(_) => self.profile = Some(record.clone()),
            Record::Memory(_) => self.memory = Some(record.clone()),
            Record::Session(session) => {
                self.by_pid.insert(session.pid, session.id);
                // An excerpt lacks earlier calls, so the kernel's count is of no use for its coverage.
                let session = Session { wchar: Wchar::default(), ..session.clone() };
                self.sessions.insert(session.id, session);
            }
            Record::End(end) => {
                if let Some(session) = self.sessions.remove(&end.id)
                    && self.by_pid.get(&session.pid) == Some(&end.id)
                {
                    self.by_pid.remove(&session.pid);
                }
            }
            Record::File(file) => {
                let size = self.files.peek(&file.file()).map_or(file.size, |before| before.size);
                self.files.put(file.file(), FileFacts { size, renamed: false, ..file.clone() });
            }
            Record::Live(_)
            | Record::Event(_)
            | Record::Sample(_)
            | Record::RunDelay(_)
            | Record::Device(_)
            | Record::Outcome(_)
            | Record::Note(_)
            | Record::Doubt(_) => {}
            Record::Stack(stack) => self.stacks.put(stack.id, stack.clone()),
        }
    }

    /// The machine, for the begin of an excerpt.
    pub fn machine(&self) -> impl Iterator<Item = &Record> {
        [&self.machine, &self.profile, &self.memory].into_iter().flatten()
    }

    /// The session of a process.
    pub fn session(&self, pid: u32) -> Option<Record> {
        let session = self.sessions.get(self.by_pid.get(&pid)?)?;
        Some(Record::Session(session.clone()))
    }

    /// The stack of this number.
    pub fn stack(&self, id: u32) -> Option<Record> {
        self.stacks.peek(&id).cloned().map(Record::Stack)
    }

    /// The name of a file, as last told.
    pub fn file(&self, file: FileId) -> Option<Record> {
        self.files.peek(&file).cloned().map(Record::File)
    }
}
