//! Calls that are told one by one, as records: what csv and the other formats of rows share.
//!
//! The law: **a call goes out by its start, after the process and the file that it is about.** Rows may stand
//! in any order, as by file or by their ends; what a format leaves open (where a write went, how long a file
//! is) follows from the rows before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use cawl_core::quantity::counted;
use cawl_core::{Bytes, EndKind, FileFacts, Record, Session, SessionEnd, Time, host_text};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};

use super::{ImportSummary, LATE, SkipCounts, SkipReason};

/// Rows that wait for earlier ones, at most: 100 MB.
pub(crate) const MAX_WAITING: usize = 1 << 20;

/// Where in the file an operation works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Where the call before on the descriptor ended.
    Next,
    /// At this offset, in bytes.
    At(u64),
    /// This many bytes behind the descriptor's position.
    By(i64),
    /// This many bytes behind the end of the file, as far as rows tell of it.
    End(i64),
}

/// What a row says of a call that succeeded. The earliest is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// In ns; 0 is any moment.
    pub start: u64,
    /// In ns; 0 if it is not known.
    pub duration: u64,
    pub op: Op,
    pub place: Place,
    /// Bytes asked for; of an open the length of the file after it, unless that is [`Place::End`].
    pub size: u64,
    /// Bytes done.
    pub moved: u64,
    pub pid: u32,
    pub tid: u32,
    /// None: the process has one descriptor for each file.
    pub fd: Option<i32>,
    pub kind: FileKind,
    /// Bits of [`flag`]; that the descriptor can write goes without saying.
    pub flags: u32,
    pub path: Text,
    pub program: Text,
}

impl Default for Call {
    fn default() -> Self {
        Call {
            start: 0,
            duration: 0,
            op: Op::Write,
            place: Place::Next,
            size: 0,
            moved: 0,
            pid: 1,
            tid: 1,
            fd: None,
            kind: FileKind::Regular,
            flags: 0,
            path: Text(0),
            program: Text(1),
        }
    }
}

/// A text that many rows have, kept once by [`Rows::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Text(u32);

/// All of them.
#[derive(Debug, Default)]
struct Texts {
    all: Vec<Box<[u8]>>,
    places: HashMap<Box<[u8]>, Text>,
}

impl Texts {
    fn text(&self, Text(place): Text) -> String {
        host_text::name(&self.all[place as usize])
    }
}

/// A file as one process has it open.
#[derive(Debug)]
struct Handle {
    fd: i32,
    position: u64,
}

/// What a format of rows has that others have not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// The name of the format.
    pub name: &'static str,
    /// Which calls have a duration of 0; None: those of which who made the rows did not know it.
    pub untimed: Option<&'static str>,
    /// The remedy where rows are too far from their order.
    pub unsorted: &'static str,
    /// Starts are of the wall clock, in ns since 1970: the first call is at time 0 then.
    pub of_day: bool,
}

/// Makes records of calls.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    kind: Kind,
    texts: Texts,
    /// By start and number: of calls that start at once that which came first is taken first.
    waiting: BinaryHeap<Reverse<(u64, u64, Call)>>,
    /// Rows taken.
    number: u64,
    /// Start of the latest row that went out.
    out_until: u64,
    /// Time 0 of the records, in ns since 1970; 0 where starts are no wall-clock times.
    epoch: u64,
    /// End of each process's latest call.
    processes: Vec<u64>,
    by_pid: HashMap<u32, usize>,
    /// Identities by path.
    files: HashMap<Text, u64>,
    /// Lengths by identity, as far as rows tell of them, in bytes.
    lengths: Vec<u64>,
    /// Files without a name: the next open of that name makes another.
    unlinked: HashSet<u64>,
    handles: HashMap<(u32, u64, Option<i32>), Handle>,
    last_start: u64,
    summary: ImportSummary,
    skips: SkipCounts,
}

impl Rows {
    pub fn new(kind: Kind) -> Rows {
        let mut rows = Rows { kind, ..Rows::default() };
        // Those of a default call.
        let _ = [&b"file"[..], b""].map(|text| rows.text(text));
        rows
    }

    /// Keeps a path or a name for calls.
    pub fn text(&mut self, text: impl AsRef<[u8]>) -> Text {
        let (text, next) = (text.as_ref(), Text(self.texts.all.len() as u32));
        if let Some(known) = self.texts.places.get(text) {
            return *known;
        }
        self.texts.all.push(text.into());
        self.texts.places.insert(text.into(), next);
        next
    }

    /// The lines that follow are those of this input, from 0.
    pub fn select(&mut self, input: usize) {
        self.skips.input = input;
    }

    /// A line that is no call, or one of which the format tells less.
    pub fn skip(&mut self, reason: SkipReason, line: u64) {
        self.skips.count(reason, line);
    }

    /// A call that has nothing to do with files.
    pub fn skip_other(&mut self, name: &str, line: u64) {
        self.skips.count_other(name, line);
    }

    /// Calls taken until now.
    pub fn calls(&self) -> u64 {
        self.number
    }

    /// What this format does not tell, for a person.
    pub fn note(&mut self, text: impl Into<String>) {
        self.summary.notes.push(text.into());
    }

    /// The end of a call that starts at `start`; what is wrong, if there is none.
    pub fn end(start: u64, duration: u64) -> Result<u64, &'static str> {
        start.checked_add(duration).ok_or(LATE)
    }

    /// Takes a call that a line tells of. An error says what is wrong with its start; the call was not taken.
    pub fn take(&mut self, mut call: Call, line: u64, out: &mut Vec<Record>) -> Result<(), String> {
        let Call { start, duration, op, .. } = call;
        if start < self.out_until {
            return Err(format!(
                "starts before a call more than {MAX_WAITING} rows further up; {}",
                self.kind.unsorted
            ));
        }
        call.flags |= flag::WRITABLE;
        if duration == 0
            && (op.moves_bytes() || matches!(op, Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs))
        {
            // No call takes no time: who made the row did not know.
            call.flags |= flag::ESTIMATED;
            let reason = self.kind.untimed.map_or(SkipReason::Durationless, SkipReason::Vague);
            self.skips.count(reason, line);
        }
        self.summary.sorted += u64::from(start < self.last_start);
        self.last_start = self.last_start.max(start);
        self.number += 1;
        self.waiting.push(Reverse((start, self.number, call)));
        self.release(MAX_WAITING, out);
        Ok(())
    }

    /// There are no more rows of these lines: appends the last records and says what was read.
    pub fn finish(&mut self, lines: u64, out: &mut Vec<Record>) -> ImportSummary {
        self.release(0, out);
        let ends = (1..).zip(&self.processes);
        out.extend(ends.map(|(id, end)| Record::End(SessionEnd::new(id, Time(*end), EndKind::Exit))));
        let mut summary = std::mem::take(&mut self.summary);
        (summary.lines, summary.skipped) = (lines, self.skips.list());
        summary.epoch = summary.epoch.or(Some(self.epoch).filter(|epoch| *epoch > 0));
        for loss in summary.skipped.iter().filter(|skipped| skipped.reason.is_loss()) {
            out.push(Record::Note(format!("{}: {}", counted(loss.lines, "row"), loss.reason)));
        }
        let name = self.kind.name;
        out.extend(summary.notes.iter().map(|note| Record::Note(format!("{name} import: {note}"))));
        summary
    }

    /// Lets the earliest rows go until no more than `most` wait.
    fn release(&mut self, most: usize, out: &mut Vec<Record>) {
        while self.waiting.len() > most
            && let Some(Reverse((.., call))) = self.waiting.pop()
        {
            self.call(call, out);
        }
    }

    /// The call of a row, after those that started before.
    fn call(&mut self, said: Call, out: &mut Vec<Record>) {
        let Call { duration, op, size, moved, pid, tid, kind, flags, .. } = said;
        self.out_until = said.start;
        if self.kind.of_day && self.epoch == 0 {
            self.epoch = said.start;
        }
        let start = said.start - self.epoch;
        let process = self.process(said.program, pid, start, out);
        let ino = self.file(said.path, op == Op::Open, out);
        let next = i32::try_from(3 + self.handles.len()).unwrap_or(i32::MAX);
        let new = || Handle { fd: said.fd.unwrap_or(next), position: 0 };
        let handle = self.handles.entry((pid, ino, said.fd)).or_insert_with(new);

        let mut event = Event { start, duration, pid, tid, ino, kind, fd: handle.fd, ..Event::new(op) };
        event.flags = flags & !flag::TRUNC;
        if op.moves_bytes() && matches!(said.place, Place::End(_)) {
            // The length before the rows, and what else changed it, are not known.
            event.flags |= flag::ESTIMATED;
        }
        handle.place(&mut event, &mut self.lengths[ino as usize - 1], said);
        if op == Op::Unlink {
            event.fd = -1;
            self.unlinked.insert(ino);
        }
        self.processes[process] = self.processes[process].max(event.end());
        self.summary.calls += 1;
        if op.moves_bytes() && !matches!(op, Op::Read | Op::Pread | Op::StreamRead) {
            self.summary.bytes = self.summary.bytes.saturating_add(moved.min(size));
        }
        out.push(Record::Event(event));
    }

    /// Place of the process, whose session is told of before its first call.
    fn process(&mut self, program: Text, pid: u32, start: u64, out: &mut Vec<Record>) -> usize {
        *self.by_pid.entry(pid).or_insert_with(|| {
            self.processes.push(start);
            self.summary.sessions += 1;
            out.push(Record::Session(Session {
                id: self.processes.len() as u32,
                pid,
                started: Time(start),
                program: self.texts.text(program),
                ..Session::default()
            }));
            self.processes.len() - 1
        })
    }

    /// Number of the file, which is told of before its first call.
    fn file(&mut self, path: Text, open: bool, out: &mut Vec<Record>) -> u64 {
        if let Some(&ino) = self.files.get(&path)
            && !(open && self.unlinked.remove(&ino))
        {
            return ino;
        }
        self.summary.files += 1;
        let ino = self.summary.files;
        self.files.insert(path, ino);
        self.lengths.push(0);
        out.push(Record::File(FileFacts {
            ino,
            size: Bytes::ZERO,
            block: 4096,
            mode: 0o100_644,
            path: self.texts.text(path),
            ..FileFacts::default()
        }));
        ino
    }
}

impl Handle {
    /// Completes an event by where the operation works, and moves position and length as the operation does.
    fn place(&mut self, event: &mut Event, length: &mut u64, said: Call) {
        use Op::*;
        let at = match said.place {
            Place::Next => self.position,
            Place::At(offset) => offset,
            Place::By(bytes) => self.position.saturating_add_signed(bytes),
            Place::End(bytes) => length.saturating_add_signed(bytes),
        };
        match event.op {
            Write | Writev | CopyRange | Sendfile | Splice | StreamWrite | Read | StreamRead | Pwrite
            | Pwritev | Pread => {
                event.offset = at;
                (event.requested, event.returned) = (said.size, said.moved as i64);
                let end = at.saturating_add(said.moved);
                if !matches!(event.op, Pwrite | Pwritev | Pread) {
                    self.position = end;
                }
                // A read, too, shows that the file is as long.
                *length = (*length).max(end);
            }
            Seek => {
                event.offset = at;
                event.returned = at.min(i64::MAX as u64) as i64;
                self.position = at;
            }
            Truncate => {
                event.offset = at;
                *length = at;
            }
            Open => {
                *length = match said.place {
                    Place::End(_) if said.flags & flag::TRUNC != 0 => 0,
                    Place::End(_) => *length,
                    _ => said.size,
                };
                (event.requested, event.returned) = (*length, i64::from(self.fd));
                event.flags = said.flags;
                self.position = 0;
            }
            _ => event.offset = UNKNOWN_OFFSET,
        }
    }
}
