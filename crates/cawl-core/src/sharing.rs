//! What processes write to pages that others write, too: would it be safe on a filesystem whose clients keep
//! written pages (write-back caching on the client's side)?
//!
//! Such a client keeps whole pages, sends them to the server at a flush, and looks for what others have
//! written when a file is opened (close-to-open consistency). Two clients that write different bytes of one
//! page lose each other's bytes unless the first one flushes before the second one writes and the second one
//! drops its copy in between. Each process counts as a client of its own, since it might run on another host;
//! the threads of a process share one.
//!
//! The law: **a write is in order after another process's bytes in the same page if their writer flushed
//! them, and the writing process then opened, locked or dropped the file, or began.** The writer flushes by
//! fsync, fdatasync, msync, sync, syncfs, close, the end of a lock or its own end; a synchronous or direct
//! write is flushed with its return. A lock of another file counts where it makes this one come after the
//! other one (`locks`). A page that is written as a whole needs the flush only. Each byte counts as its last
//! writer's.
//!
//! A flush counts from its end on and a lock from when it was got; all else when the call begins.

mod extents;
mod file;
mod locks;
mod report;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use cawl_wire::{ADVICE_DONTNEED, Event, FileId, FileKind, Op, Rank, UNKNOWN_OFFSET, flag, lock};

use rustc_hash::FxHashSet;

use crate::call::kernel_bytes;
use crate::collect::Collector;
use crate::model::{Map, Streams};
use crate::record::{EndKind, FileFacts, Record, Session, SessionEnd};
use crate::tally::Tally;
use file::{FileState, Order, Write};
use locks::Locks;
pub use report::{
    FileSharing, MeetingReport, Missing, PageReport, PartialReport, RecordReport, SHARING_SCHEMA,
    SharingReport, TouchReport, Verdict, WriterReport,
};

/// Length of a page, in bytes.
const PAGE: u64 = 4096;
/// Ranges of bytes that are remembered, over all files: about 180 MB with what they need besides.
const EXTENTS: usize = 1 << 21;
const FILES: usize = 100_000;
/// Calls whose end is waited for.
const IN_FLIGHT: usize = 1 << 16;
/// Streams' buffers, in bytes, where a call does not tell.
const STREAM: u64 = 4096;

/// A file: of a trace, or with 0 of all traces, and its identity.
type Key = (u32, FileId);

/// A process that wrote to a file, opened or locked one.
#[derive(Default)]
struct Writer {
    trace: u32,
    pid: u32,
    program: String,
    rank: Option<Rank>,
    /// When its first call came, on the clock of [`Sharing`].
    began: u64,
    /// When it last unlocked something.
    unlocked: u64,
    /// Files with bytes that it has not flushed.
    unflushed: FxHashSet<Key>,
    /// When it ended, in ns.
    ended: Option<u64>,
    /// Writes to files, and their bytes.
    count: Tally,
}

/// What a process runs.
#[derive(Clone, Default)]
struct Program {
    /// Number of the session in its trace.
    session: u32,
    name: String,
    rank: Option<Rank>,
}

/// What takes effect when a call ends.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Flush(Key),
    /// All files, or those of a device.
    FlushAll(Option<u64>),
    Close(Key),
    Lock {
        file: Key,
        range: (u64, u64),
        exclusive: bool,
        flock: bool,
    },
}

/// Records of a trace, or of several in the order of time.
#[derive(Default)]
pub struct Sharing {
    /// Files of all traces go by their identity; else by their path.
    by_path: bool,
    /// Counts what orders writes: a number is a time.
    clock: u64,
    files: Map<Key, FileState>,
    /// Files that have lost their last link and are not safe.
    gone: Vec<FileState>,
    gone_safely: BTreeMap<Verdict, u64>,
    /// The file of a path, and of an identity in a trace, where paths tell.
    paths: BTreeMap<String, Key>,
    aliases: Map<Key, Key>,
    /// Ranges in all files.
    extents: usize,
    writers: Vec<Writer>,
    /// The writer that a process of a trace is, and its program.
    processes: Map<(u32, u32), u32>,
    programs: Map<(u32, u32), Program>,
    sessions: Map<(u32, u32), u32>,
    /// Traces of several processes, and the first one of each trace.
    crowded: FxHashSet<u32>,
    first: Map<u32, u32>,
    /// When the latest copy of a process that fork made began, in ns.
    forks: Map<(u32, u32), u64>,
    streams: Map<u32, Streams>,
    locks: Locks<Key>,
    in_flight: BinaryHeap<Reverse<(u64, u64, u32, Action)>>,
    /// When the first call began, in ns.
    origin: Option<u64>,
    /// Calls on files beyond [`FILES`].
    files_omitted: u64,
    /// What was seen of each trace, beside what the kernel counted.
    seen: BTreeMap<u32, Collector>,
}

impl Sharing {
    /// For traces of one host, where device and inode say which file it is; or else of several, where that is
    /// the path.
    pub fn new(by_path: bool) -> Sharing {
        Sharing { by_path, ..Sharing::default() }
    }

    /// Takes the next record of a trace, by its number. Records of several traces come in the order of time.
    pub fn take(&mut self, trace: u32, record: &Record) {
        let seen = self.seen.entry(trace).or_default();
        match record {
            Record::Event(event) => seen.unselected(event),
            _ => seen.note(record),
        }
        match record {
            Record::Session(session) => self.session(trace, session),
            Record::File(facts) => self.set_facts(trace, facts),
            Record::Event(event) => self.event(trace, event),
            Record::End(end) => self.end(trace, end),
            _ => {}
        }
    }

    fn session(&mut self, trace: u32, session: &Session) {
        let Session { id, pid, ppid, started, rank, ref program, .. } = *session;
        self.sessions.insert((trace, id), pid);
        self.met(trace, pid);
        // An exec would have left the mappings behind; most change the name, too.
        if self.programs.get(&(trace, ppid)).is_some_and(|parent| parent.name == *program) {
            let latest = self.forks.entry((trace, ppid)).or_default();
            *latest = started.0.max(*latest);
        }
        if let Some(at) = self.processes.get(&(trace, pid)) {
            let writer = &mut self.writers[*at as usize];
            if writer.ended.is_some() {
                self.processes.remove(&(trace, pid));
            } else {
                // An exec makes it another program, but no other process.
                (writer.program, writer.rank) = (program.clone(), rank);
            }
        }
        self.programs.insert((trace, pid), Program { session: id, name: program.clone(), rank });
    }

    fn met(&mut self, trace: u32, pid: u32) {
        if *self.first.entry(trace).or_insert(pid) != pid {
            self.crowded.insert(trace);
        }
    }

    fn set_facts(&mut self, trace: u32, facts: &FileFacts) {
        if FileKind::from_mode(facts.mode) != FileKind::Regular {
            return;
        }
        let own = self.own_key(trace, facts.file());
        if self.by_path && !facts.path.is_empty() {
            let known = self.aliases.get(&own).copied();
            let key = known.unwrap_or_else(|| *self.paths.get(&facts.path).unwrap_or(&own));
            self.paths.insert(facts.path.clone(), key);
            self.aliases.insert(own, key);
        }
        let key = self.key(trace, facts.file());
        if let Some(file) = self.file(key) {
            file.name.set_path(facts);
            file.size = file.size.max(facts.size.0);
        }
    }

    fn own_key(&self, trace: u32, file: FileId) -> Key {
        (if self.by_path { trace + 1 } else { 0 }, file)
    }

    fn key(&self, trace: u32, file: FileId) -> Key {
        let own = self.own_key(trace, file);
        if self.by_path { *self.aliases.get(&own).unwrap_or(&own) } else { own }
    }

    /// A file, known or new; None if there are too many.
    fn file(&mut self, key: Key) -> Option<&mut FileState> {
        if self.files.len() >= FILES && !self.files.contains_key(&key) {
            return None;
        }
        Some(self.files.entry(key).or_default())
    }

    /// The process that makes a call.
    fn writer(&mut self, trace: u32, pid: u32) -> u32 {
        if let Some(writer) = self.processes.get(&(trace, pid)) {
            return *writer;
        }
        self.met(trace, pid);
        self.clock += 1;
        let Program { name: program, rank, .. } =
            self.programs.get(&(trace, pid)).cloned().unwrap_or_default();
        let writer = self.writers.len() as u32;
        let began = self.clock;
        self.writers.push(Writer { trace, pid, program, rank, began, ..Writer::default() });
        self.processes.insert((trace, pid), writer);
        writer
    }

    fn end(&mut self, trace: u32, end: &SessionEnd) {
        self.arrive(end.at.0);
        let Some(pid) = self.sessions.remove(&(trace, end.id)) else { return };
        if !matches!(end.how, EndKind::Exec | EndKind::Running)
            && let Some(writer) = self.processes.get(&(trace, pid)).copied()
        {
            self.flush_all(writer, None);
            self.clock += 1;
            self.locks.end(writer, self.clock);
            let ended = &mut self.writers[writer as usize];
            (ended.unlocked, ended.ended) = (self.clock, Some(end.at.0));
            // Another process may have its number already.
            if self.programs.get(&(trace, pid)).is_some_and(|program| program.session != end.id) {
                self.processes.remove(&(trace, pid));
            }
        }
    }

    /// Everything that has ended by then takes effect.
    fn arrive(&mut self, time: u64) {
        while let Some(Reverse((end, ..))) = self.in_flight.peek()
            && (*end <= time || self.in_flight.len() > IN_FLIGHT)
            && let Some(Reverse((_, _, writer, action))) = self.in_flight.pop()
        {
            self.act(writer, action);
        }
    }

    fn later(&mut self, event: &Event, writer: u32, action: Action) {
        self.clock += 1;
        self.in_flight.push(Reverse((event.end(), self.clock, writer, action)));
    }

    fn act(&mut self, writer: u32, action: Action) {
        match action {
            Action::Flush(file) => self.flush(writer, file),
            Action::FlushAll(device) => self.flush_all(writer, device),
            Action::Close(file) => {
                self.flush(writer, file);
                // A process that closes a file has no lock of fcntl on it any more.
                [false, true].into_iter().for_each(|flock| self.unlock(writer, file, flock, (0, u64::MAX)));
            }
            Action::Lock { file, range, exclusive, flock } => {
                self.clock += 1;
                // An exclusive lock may end as a shared one.
                self.writers[writer as usize].unlocked = self.clock;
                self.locks.lock(writer, (file, flock), range, exclusive, self.clock);
                self.acquire(writer, file, None);
            }
        }
    }

    fn acquire(&mut self, writer: u32, file: Key, dropped: Option<(u64, u64)>) {
        self.clock += 1;
        if let Some(file) = self.files.get_mut(&file) {
            file.acquire(writer, dropped, self.clock);
        }
    }

    /// The latest time, as far as not one file alone tells, from which on others may come after a process.
    fn since(&self, writer: u32) -> u64 {
        let newest = self.writers.last().map_or(0, |writer| writer.began);
        newest.max(self.writers[writer as usize].unlocked)
    }

    fn flush(&mut self, writer: u32, key: Key) {
        let since = self.since(writer);
        if self.change(key, |file| file.flush(writer, since)) {
            self.writers[writer as usize].unflushed.remove(&key);
        }
    }

    /// Changes a file and its number of ranges; false if it is not known.
    fn change(&mut self, key: Key, change: impl FnOnce(&mut FileState)) -> bool {
        let Some(file) = self.files.get_mut(&key) else { return false };
        self.extents -= file.extents();
        change(file);
        self.extents += file.extents();
        true
    }

    fn flush_all(&mut self, writer: u32, device: Option<u64>) {
        let unflushed = self.writers[writer as usize].unflushed.iter().copied();
        let wanted: Vec<Key> = unflushed.filter(|key| device.is_none_or(|dev| key.1.dev == dev)).collect();
        wanted.into_iter().for_each(|key| self.flush(writer, key));
    }

    fn unlock(&mut self, writer: u32, file: Key, flock: bool, range: (u64, u64)) {
        self.clock += 1;
        self.locks.unlock(writer, (file, flock), range, self.clock);
        self.writers[writer as usize].unlocked = self.clock;
    }

    fn event(&mut self, trace: u32, event: &Event) {
        self.origin.get_or_insert(event.start);
        self.arrive(event.start);
        let is_done = event.errno == 0 && event.returned >= 0;
        if event.op == Op::Sync {
            let writer = self.writer(trace, event.pid);
            return self.later(event, writer, Action::FlushAll(None));
        }
        if event.kind != FileKind::Regular || event.ino == 0 {
            return;
        }
        let (writer, key) = (self.writer(trace, event.pid), self.key(trace, event.file()));
        match event.op {
            Op::Open | Op::StreamOpen if event.errno == 0 => self.opened(trace, writer, key, event),
            Op::Fsync | Op::Fdatasync | Op::Msync if is_done => {
                self.later(event, writer, Action::Flush(key));
            }
            Op::Syncfs if is_done => self.later(event, writer, Action::FlushAll(Some(event.dev))),
            Op::Close => self.later(event, writer, Action::Close(key)),
            Op::Advise if is_done && event.aux == ADVICE_DONTNEED => {
                self.acquire(writer, key, range(event));
            }
            Op::Lock if is_done => self.locked(writer, key, event),
            Op::Truncate if is_done => _ = self.change(key, |file| file.cut(event.offset, writer)),
            Op::Unlink | Op::Rename if event.takes_last_link() => self.forget(key),
            _ => self.wrote(trace, writer, key, event),
        }
    }

    fn opened(&mut self, trace: u32, writer: u32, key: Key, event: &Event) {
        if event.op == Op::StreamOpen {
            self.streams(trace).open(event);
        }
        if event.has(flag::TRUNC) {
            self.change(key, |file| file.cut(0, writer));
        }
        if let Some(file) = self.file(key) {
            file.size = file.size.max(event.requested);
            if event.has(flag::WRITABLE) {
                file.open(writer, event.start);
            }
        }
        self.acquire(writer, key, None);
    }

    fn streams(&mut self, trace: u32) -> &mut Streams {
        self.streams.entry(trace).or_insert_with(|| Streams::new(STREAM))
    }

    fn locked(&mut self, writer: u32, file: Key, event: &Event) {
        let flock = event.aux & lock::FLOCK != 0;
        let range = range(event).unwrap_or((0, u64::MAX));
        match event.aux & lock::ACTION {
            lock::UNLOCK => {
                self.flush(writer, file);
                self.unlock(writer, file, flock, range);
            }
            action => {
                let exclusive = action == lock::EXCLUSIVE;
                self.later(event, writer, Action::Lock { file, range, exclusive, flock });
            }
        }
    }

    /// A file has lost its last link: nothing is told of it one by one, unless it is not safe.
    fn forget(&mut self, key: Key) {
        let Some(file) = self.files.remove(&key) else { return };
        self.extents -= file.extents();
        if self.by_path && self.paths.get(file.name.path()) == Some(&key) {
            self.paths.remove(file.name.path());
        }
        let verdict = self.verdict(&file);
        if verdict == Verdict::NotSafe && self.gone.len() < FILES {
            self.gone.push(file);
        } else if file.is_written() {
            *self.gone_safely.entry(verdict).or_default() += 1;
        }
    }

    /// Takes a call that may write.
    fn wrote(&mut self, trace: u32, writer: u32, key: Key, event: &Event) {
        let is_stream = matches!(
            event.op,
            Op::StreamWrite | Op::StreamFlush | Op::StreamSeek | Op::StreamClose | Op::StreamExit
        );
        let bytes = kernel_bytes(event);
        if is_stream {
            let size = self.files.get(&key).map_or(0, |file| file.size);
            let writes = self.streams(trace).writes(event, size);
            let second = writes.offset.saturating_add(writes.first);
            for (offset, bytes) in [writes.before, (writes.offset, writes.first), (second, writes.second)] {
                self.put(writer, key, event, Some(offset), bytes);
            }
            if event.op == Op::StreamClose {
                self.later(event, writer, Action::Close(key));
            }
        } else if bytes > 0 {
            let offset = (event.offset != UNKNOWN_OFFSET).then_some(event.offset);
            self.put(writer, key, event, offset, bytes);
        }
    }

    /// Bytes of a call go to a file; where is not told of stores through a mapping.
    fn put(&mut self, writer: u32, key: Key, event: &Event, offset: Option<u64>, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.writers[writer as usize].count.add(bytes);
        let (since, room) = (self.since(writer), self.extents + 2 <= EXTENTS);
        let Some(file) = self.file(key) else {
            self.files_omitted += 1;
            return;
        };
        file.appends |= event.has(flag::APPEND);
        let offset = match offset {
            _ if event.op == Op::MmapWrite => None,
            None if event.has(flag::APPEND) => Some(file.size),
            known => known,
        };
        let end = offset.and_then(|offset| offset.checked_add(bytes));
        let (Some(from), Some(to)) = (offset, end) else {
            file.lost(writer, bytes, event.op == Op::MmapWrite);
            return;
        };
        let direct = event.has(flag::DIRECT);
        let synchronous = event.has(flag::SYNC | flag::DSYNC);
        let write = Write { writer, from, to, at: event.start, direct, synchronous };
        let before = file.extents();
        let Some(file) = self.files.get_mut(&key) else { return };
        file.write(&write, since, room, |first, flushed| {
            if self.writers[writer as usize].began > flushed {
                Order::Here
            } else if self.locks.order(first, writer, flushed) {
                Order::Elsewhere
            } else {
                Order::None
            }
        });
        self.extents = self.extents + file.extents() - before;
        self.writers[writer as usize].unflushed.insert(key);
    }
}

/// The range that a call is about, from its first byte to behind its last one; None: the whole file.
fn range(event: &Event) -> Option<(u64, u64)> {
    let from = if event.offset == UNKNOWN_OFFSET { return None } else { event.offset };
    match event.requested {
        0 if from == 0 => None,
        0 => Some((from, u64::MAX)),
        length => Some((from, from.saturating_add(length))),
    }
}

#[cfg(test)]
mod tests;
