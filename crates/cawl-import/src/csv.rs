//! Calls from a table: a header, then one call a row.
//!
//! The law: **a row means exactly what it says, or the import ends.** A table is made by a program, and a
//! row that makes no sense means that the program and cawl disagree about every row. Rows may stand in any
//! order: they are taken by their starts, which is what models need.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use cawl_core::quantity::counted;
use cawl_core::{Bytes, EndKind, FileFacts, Record, Session, SessionEnd, Time};
use cawl_wire::{Event, FileKind, MOST_BYTES, Op, UNKNOWN_OFFSET, flag};

use super::{
    ImportError, ImportSummary, Importer, LATE, SkipCounts, SkipReason, bare, nanoseconds, open_flags, shown,
    whole_number,
};

/// Longest row, in bytes; only a quote that is never closed makes a longer one.
const LONGEST_ROW: usize = 64 << 10;

/// Rows that wait for earlier ones, at most: 100 MB.
const MOST_WAITING: usize = 1 << 20;

/// What a table leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Flags ([`flag`]) that every file is open with, in addition to those in the row.
    pub flags: u32,
    /// The file that rows without a path are about.
    pub path: String,
    /// Program name given to all sessions.
    pub program: String,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions { flags: 0, path: "file".to_owned(), program: "csv".to_owned() }
    }
}

/// Process and thread of rows that do not name theirs.
const NAMELESS: u32 = 1;

/// What is wrong with a kind.
const KINDS_TEXT: &str =
    "not known; use regular, directory, block, char, pipe, socket, other, or leave it empty";

/// What is wrong where a quoted field has no end.
const QUOTE: &str = "a quoted field that begins here does not end within 64 KiB; close or double the quote";

/// The columns by name; a column's number is its place in this list.
const COLUMNS: [&str; 11] =
    ["start_s", "op", "offset", "size", "duration_s", "pid", "tid", "path", "flags", "kind", "program"];
/// This many of the first columns must be there.
const REQUIRED: usize = 5;
const START: usize = 0;
const OP: usize = 1;
const OFFSET: usize = 2;
const SIZE: usize = 3;
const DURATION: usize = 4;
const PID: usize = 5;
const TID: usize = 6;
const PATH: usize = 7;
const FLAGS: usize = 8;
const KIND: usize = 9;
const PROGRAM: usize = 10;

/// Columns of a time in whole nanoseconds, as `cawl-cli export` has them, in the place of seconds.
const NANOS: [(&str, usize); 2] = [("start_ns", START), ("duration_ns", DURATION)];
/// What else a table of `cawl-cli export` has, beside columns that end in `_ns`: results of the analysis.
const RESULTS: [&str; 8] = ["call", "bytes", "errno", "estimated", "state", "dirty", "cause", "stack"];

/// Which field of a row holds which column.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    fields: usize,
    place: [Option<usize>; COLUMNS.len()],
    /// Times are in whole nanoseconds.
    nanos: [bool; REQUIRED],
}

impl Layout {
    fn from_header(row: &Row<'_>) -> Result<Layout, (usize, String)> {
        let mut layout = Layout { fields: row.len(), ..Layout::default() };
        let mut unknown: Vec<String> = Vec::new();
        let mut first_unknown = 0;
        for at in 0..row.len() {
            let name = row.field(at).trim_ascii();
            let nanos = NANOS.iter().find(|(column, _)| column.as_bytes() == name).map(|(_, column)| *column);
            if let Some(column) = nanos {
                layout.nanos[column] = true;
            }
            match nanos.or_else(|| COLUMNS.iter().position(|column| column.as_bytes() == name)) {
                Some(column) if layout.place[column].is_some() => {
                    return Err((at + 1, format!("column {} is there twice; remove one", COLUMNS[column])));
                }
                Some(column) => layout.place[column] = Some(at),
                None if name.ends_with(b"_ns") || RESULTS.iter().any(|result| result.as_bytes() == name) => {}
                None => {
                    first_unknown = if unknown.is_empty() { at + 1 } else { first_unknown };
                    unknown.push(format!("\"{}\"", shown(name)));
                }
            }
        }
        if !unknown.is_empty() {
            let fault = format!(
                "unknown columns {}; {}, and may name {}; rename or remove others",
                unknown.join(", "),
                header(),
                COLUMNS[REQUIRED..].join(", ")
            );
            return Err((first_unknown, fault));
        }
        for (column, name) in COLUMNS.iter().enumerate().take(REQUIRED) {
            if layout.place[column].is_none() {
                return Err((0, format!("the header has no column {name}; {}", header())));
            }
        }
        Ok(layout)
    }
}

/// What every table must begin with.
fn header() -> String {
    format!(
        "the first line must name the columns {} in any order, with commas between",
        COLUMNS[..REQUIRED].join(",")
    )
}

/// The fields of one row.
struct Row<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
}

impl<'a> Row<'a> {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn field(&self, at: usize) -> &'a [u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }
}

/// A file as one process has it open.
#[derive(Debug)]
struct Handle {
    fd: i32,
    position: u64,
}

/// Reads tables with the header `start_s,op,offset,size,duration_s` in any order of columns, and
/// optionally `pid`, `tid`, `path` and `flags`.
///
/// Times are seconds, kept as they are; offsets and sizes are bytes. Every path is a regular file of its
/// own, numbered in the order of appearance; an open after an unlink makes a new one.
/// Stream calls (`fwrite`) come without their buffer's figures, which the models then simulate.
pub struct CsvImporter {
    options: CsvOptions,
    reader: csv_core::Reader,
    layout: Option<Layout>,
    /// The row being read: bytes of its fields, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    bytes_used: usize,
    ends_used: usize,
    lines: u64,
    row_began: u64,
    state: State,
}

/// What a row says. Those that wait are taken by start, of equal ones the first in the table first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    start: u64,
    /// Its line in the table.
    line: u64,
    duration: u64,
    op: Op,
    offset: Option<u64>,
    size: u64,
    pid: u32,
    tid: u32,
    kind: FileKind,
    flags: u32,
    /// Places among the texts.
    path: u32,
    program: u32,
}

/// Texts that many rows have, each kept once.
#[derive(Debug, Default)]
struct Texts {
    all: Vec<Box<[u8]>>,
    places: HashMap<Box<[u8]>, u32>,
}

impl Texts {
    fn place(&mut self, text: &[u8]) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.all.len() as u32;
        self.all.push(text.into());
        self.places.insert(text.into(), place);
        place
    }
}

/// What rows have led to.
#[derive(Debug, Default)]
struct State {
    texts: Texts,
    waiting: BinaryHeap<Reverse<Said>>,
    /// Start of the latest row that went out.
    out_until: u64,
    /// End of each process's latest call.
    processes: Vec<u64>,
    by_pid: HashMap<u32, usize>,
    /// Identities by path.
    files: HashMap<u32, u64>,
    /// Files without a name: the next open of that name makes another.
    unlinked: HashSet<u64>,
    handles: HashMap<(u32, u64), Handle>,
    last_start: u64,
    summary: ImportSummary,
    skips: SkipCounts,
}

impl CsvImporter {
    /// An importer at the start of its input.
    pub fn new(options: CsvOptions) -> CsvImporter {
        CsvImporter {
            options,
            reader: csv_core::Reader::new(),
            layout: None,
            bytes: vec![0; 1024],
            ends: vec![0; 16],
            bytes_used: 0,
            ends_used: 0,
            lines: 0,
            row_began: 0,
            state: State::default(),
        }
    }

    fn error(&self, field: usize, fault: impl Into<String>) -> ImportError {
        ImportError { line: self.row_began, field, fault: fault.into() }
    }

    /// Feeds the tokenizer; a row may need several lines when a quoted path holds a line break.
    fn feed(&mut self, mut input: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        // Without input the tokenizer would take the table for ended.
        while !input.is_empty() {
            if self.bytes_used == self.bytes.len() || self.ends_used == self.ends.len() {
                if self.bytes_used >= LONGEST_ROW || self.ends_used >= LONGEST_ROW {
                    return Err(self.error(0, QUOTE));
                }
                self.bytes.resize(self.bytes.len() * 2, 0);
                self.ends.resize(self.ends.len() * 2, 0);
            }
            let (result, read, wrote, ended) = self.reader.read_record(
                input,
                &mut self.bytes[self.bytes_used..],
                &mut self.ends[self.ends_used..],
            );
            input = &input[read..];
            self.bytes_used += wrote;
            self.ends_used += ended;
            if matches!(result, csv_core::ReadRecordResult::Record) {
                self.row(out)?;
                (self.bytes_used, self.ends_used) = (0, 0);
            }
        }
        Ok(())
    }

    /// A whole row has been read: the header or a call.
    fn row(&mut self, out: &mut Vec<Record>) -> Result<(), ImportError> {
        let row = Row { bytes: &self.bytes[..self.bytes_used], ends: &self.ends[..self.ends_used] };
        let Some(layout) = &self.layout else {
            let layout = Layout::from_header(&row).map_err(|(field, fault)| self.error(field, fault))?;
            self.layout = Some(layout);
            return Ok(());
        };
        self.state.row(&self.options, layout, &row, self.row_began, out).map_err(|(column, fault)| {
            let field = column.and_then(|column| layout.place[column]);
            self.error(field.map_or(0, |at| at + 1), fault)
        })
    }

    /// True while a quoted field is open: the next line continues the row.
    fn within_row(&self) -> bool {
        self.bytes_used > 0 || self.ends_used > 0
    }
}

impl Importer for CsvImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        self.lines += 1;
        if !self.within_row() {
            self.row_began = self.lines;
        }
        let line = bare(line, self.lines == 1);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() && !self.within_row() {
            return Ok(());
        }
        self.feed(line, out)?;
        self.feed(b"\n", out)
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.within_row() {
            return Err(self.error(0, QUOTE));
        }
        if self.layout.is_none() {
            let fault = format!("there is no header; {}", header());
            return Err(ImportError { line: self.lines, field: 0, fault });
        }
        self.state.release(0, out);
        let ends = (1..).zip(&self.state.processes);
        out.extend(ends.map(|(id, end)| Record::End(SessionEnd::new(id, Time(*end), EndKind::Exit))));
        let mut summary = std::mem::take(&mut self.state.summary);
        (summary.lines, summary.skipped) = (self.lines, self.state.skips.list());
        for loss in summary.skipped.iter().filter(|skipped| skipped.reason.is_loss()) {
            out.push(Record::Note(format!("{}: {}", counted(loss.lines, "row"), loss.reason)));
        }
        Ok(summary)
    }
}

/// A fault and the column it is in.
type RowFault = (Option<usize>, String);

fn operation(text: &[u8]) -> Result<Op, RowFault> {
    Op::ALL.iter().copied().find(|op| op.name().as_bytes() == text).ok_or_else(|| {
        let fault = format!(
            "operation \"{}\" is not known; use open, write, pwrite, fwrite, fflush, fclose, lseek, fsync, \
             fdatasync, close, read, truncate or unlink",
            shown(text)
        );
        (Some(OP), fault)
    })
}

/// The fields are there that this operation needs.
fn check(op: Op, offset: Option<u64>, size: Option<u64>) -> Result<(), RowFault> {
    let missing = |column: usize| {
        let fault = format!("{} is empty, but a {} needs it; fill it in", COLUMNS[column], op.name());
        Err((Some(column), fault))
    };
    if op.moves_bytes() && size.is_none() {
        return missing(SIZE);
    }
    let places =
        matches!(op, Op::Pwrite | Op::Pwritev | Op::Pread | Op::Seek) || op == Op::Truncate && size.is_none();
    if places && offset.is_none() { missing(OFFSET) } else { Ok(()) }
}

impl Handle {
    /// Completes an event by where the operation works, and moves the position as the operation does; `flags`
    /// are those of an open.
    fn place(&mut self, event: &mut Event, offset: Option<u64>, size: u64, flags: u32) {
        use Op::*;
        match event.op {
            Write | Writev | CopyRange | Sendfile | Splice | StreamWrite | Read | StreamRead => {
                event.offset = offset.unwrap_or(self.position);
                (event.requested, event.returned) = (size, size as i64);
                self.position = event.offset.saturating_add(size);
            }
            Pwrite | Pwritev | Pread => {
                event.offset = offset.unwrap_or(UNKNOWN_OFFSET);
                (event.requested, event.returned) = (size, size as i64);
            }
            Seek => {
                event.offset = offset.unwrap_or(0);
                event.returned = event.offset.min(i64::MAX as u64) as i64;
                self.position = event.offset;
            }
            Truncate => event.offset = offset.unwrap_or(size),
            Open => {
                (event.requested, event.returned) = (size, i64::from(self.fd));
                event.flags = flags;
                self.position = 0;
            }
            _ => {}
        }
    }
}

impl State {
    fn row(
        &mut self,
        options: &CsvOptions,
        layout: &Layout,
        row: &Row<'_>,
        line: u64,
        out: &mut Vec<Record>,
    ) -> Result<(), RowFault> {
        if row.len() != layout.fields {
            let fault = format!(
                "the row has {} fields where the header has {}; quote a field that holds a comma",
                row.len(),
                layout.fields
            );
            return Err((None, fault));
        }
        let text = |column: usize| layout.place[column].map_or(&[][..], |at| row.field(at).trim_ascii());
        let time = |column: usize| match layout.nanos[column] {
            true => number(column, text(column), u64::MAX)?
                .ok_or_else(|| wrong(column, text(column), "but each call has a time; fill it in")),
            false => nanoseconds(text(column)).map_err(|why| wrong(column, text(column), why)),
        };
        let start = time(START)?;
        let duration = if text(DURATION).is_empty() { 0 } else { time(DURATION)? };
        let op = operation(text(OP))?;
        if let Some(reason) = not_in_tables(op) {
            self.skips.count(reason, line);
            return Ok(());
        }
        let offset = number(OFFSET, text(OFFSET), u64::MAX - 1)?;
        let most = if op.moves_bytes() { MOST_BYTES } else { i64::MAX };
        let size = number(SIZE, text(SIZE), most as u64)?;
        let pid = number(PID, text(PID), u32::MAX.into())?.map_or(NAMELESS, |pid| pid as u32);
        let tid = number(TID, text(TID), u32::MAX.into())?.map_or(pid, |tid| tid as u32);
        let kind = kind(text(KIND)).ok_or_else(|| wrong(KIND, text(KIND), KINDS_TEXT))?;
        let mut flags = options.flags | flag::WRITABLE;
        if !text(FLAGS).is_empty() {
            let named = String::from_utf8_lossy(text(FLAGS));
            flags |= open_flags(&named).map_err(|unknown| (Some(FLAGS), unknown))?;
        }
        if start.checked_add(duration).is_none() {
            return Err(wrong(DURATION, text(DURATION), LATE));
        }
        if duration == 0
            && (op.moves_bytes() || matches!(op, Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs))
        {
            // No call takes no time: who made the table did not know.
            flags |= flag::ESTIMATED;
            self.skips.count(SkipReason::Durationless, line);
        }

        // All that can fail has been read, except for fields that only some operations need.
        check(op, offset, size)?;
        let size = size.unwrap_or(0);
        if start < self.out_until {
            let fault = format!(
                "starts before a call more than {MOST_WAITING} rows further up; sort the table by its starts first"
            );
            return Err((Some(START), fault));
        }
        let program = match text(PROGRAM) {
            b"" => options.program.as_bytes(),
            named => named,
        };
        // A path keeps its spaces: only the other fields are trimmed.
        let path = layout.place[PATH].map(|at| row.field(at)).filter(|path| !path.is_empty());
        let (path, program) =
            (self.texts.place(path.unwrap_or(options.path.as_bytes())), self.texts.place(program));
        self.summary.sorted += u64::from(start < self.last_start);
        self.last_start = self.last_start.max(start);
        self.waiting.push(Reverse(Said {
            start,
            line,
            duration,
            op,
            offset,
            size,
            pid,
            tid,
            kind,
            flags,
            path,
            program,
        }));
        self.release(MOST_WAITING, out);
        Ok(())
    }

    /// Lets the earliest rows go until no more than `most` wait.
    fn release(&mut self, most: usize, out: &mut Vec<Record>) {
        while self.waiting.len() > most
            && let Some(Reverse(said)) = self.waiting.pop()
        {
            self.call(said, out);
        }
    }

    /// The call of a row, after those that started before.
    fn call(&mut self, said: Said, out: &mut Vec<Record>) {
        let Said { start, duration, op, offset, size, pid, tid, kind, flags, .. } = said;
        self.out_until = start;
        let process = self.process(said.program, pid, start, out);
        let ino = self.file(said.path, op == Op::Open, out);
        let fd = i32::try_from(3 + self.handles.len()).unwrap_or(i32::MAX);
        let handle = self.handles.entry((pid, ino)).or_insert(Handle { fd, position: 0 });

        let mut event = Event { start, duration, pid, tid, ino, kind, fd: handle.fd, ..Event::new(op) };
        event.flags = flags & !flag::TRUNC;
        handle.place(&mut event, offset, size, flags);
        if op == Op::Unlink {
            event.fd = -1;
            self.unlinked.insert(ino);
        }
        self.processes[process] = self.processes[process].max(event.end());
        self.summary.calls += 1;
        if op.moves_bytes() && !matches!(op, Op::Read | Op::Pread | Op::StreamRead) {
            self.summary.bytes = self.summary.bytes.saturating_add(size);
        }
        out.push(Record::Event(event));
    }

    /// Place of the process, whose session is told of before its first call.
    fn process(&mut self, program: u32, pid: u32, start: u64, out: &mut Vec<Record>) -> usize {
        *self.by_pid.entry(pid).or_insert_with(|| {
            self.processes.push(start);
            self.summary.sessions += 1;
            out.push(Record::Session(Session {
                id: self.processes.len() as u32,
                pid,
                started: Time(start),
                program: String::from_utf8_lossy(&self.texts.all[program as usize]).into_owned(),
                ..Session::default()
            }));
            self.processes.len() - 1
        })
    }

    /// Number of the file, which is told of before its first call.
    fn file(&mut self, path: u32, open: bool, out: &mut Vec<Record>) -> u64 {
        if let Some(&ino) = self.files.get(&path)
            && !(open && self.unlinked.remove(&ino))
        {
            return ino;
        }
        self.summary.files += 1;
        let ino = self.summary.files;
        self.files.insert(path, ino);
        out.push(Record::File(FileFacts {
            ino,
            size: Bytes::ZERO,
            block: 4096,
            mode: 0o100_644,
            path: String::from_utf8_lossy(&self.texts.all[path as usize]).into_owned(),
            ..FileFacts::default()
        }));
        ino
    }
}

/// Why no row makes an event of this operation: a table lacks what it needs.
fn not_in_tables(op: Op) -> Option<SkipReason> {
    use Op::*;
    let name = op.name().to_owned();
    match op {
        Dup | StreamOpen | Lock | Fork | Spawn | Exec => Some(SkipReason::Harmless(name)),
        Rename | Allocate | AioWrite | MmapWrite | SyncRange | Advise | StreamSeek | StreamExit => {
            Some(SkipReason::Unmodelled(name))
        }
        _ => None,
    }
}

/// Kinds of what is written to, by name; a regular file, if there is none.
fn kind(name: &[u8]) -> Option<FileKind> {
    Some(match name {
        b"" | b"regular" => FileKind::Regular,
        b"directory" => FileKind::Directory,
        b"block" => FileKind::Block,
        b"char" => FileKind::Char,
        b"pipe" => FileKind::Fifo,
        b"socket" => FileKind::Socket,
        b"other" => FileKind::Other,
        _ => return None,
    })
}

fn wrong(column: usize, text: &[u8], why: &str) -> RowFault {
    (Some(column), format!("{} is \"{}\", {why}", COLUMNS[column], shown(text)))
}

/// An empty field is None.
fn number(column: usize, text: &[u8], most: u64) -> Result<Option<u64>, RowFault> {
    if text.is_empty() {
        return Ok(None);
    }
    let value = whole_number(text).filter(|value| *value <= most).ok_or_else(|| {
        wrong(column, text, &format!("not a whole number from 0 to {most}; write it in digits without unit"))
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests;
