//! Calls from a table: a header, then one call a row.
//!
//! The law: **a row means exactly what it says, or the import ends.** A table is made by a program, and a
//! row that makes no sense means that the program and cawl disagree about every row. Rows may stand in any
//! order: they are taken by their starts, which is what models need.

mod columns;

use cawl_core::Record;
use cawl_wire::{FileKind, MAX_BYTES, Op};

pub use self::columns::Columns;
use super::rows::{Call, Kind, Place, Rows};
use super::{
    ImportError, ImportSummary, Importer, MALFORMED, SkipReason, bare, open_flags, scaled, shown,
    whole_number,
};

/// Longest row, in bytes; only a quote that is never closed makes a longer one.
const LONGEST_ROW: usize = 64 << 10;

/// What a table leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvOptions {
    /// Flags ([`cawl_wire::flag`]) that every file is open with, in addition to those in the row.
    pub flags: u32,
    /// The file that rows without a path are about.
    pub path: String,
    /// Program name given to all sessions.
    pub program: String,
    /// Which columns mean what, of a table with names of its own.
    pub columns: Option<Columns>,
}

impl Default for CsvOptions {
    fn default() -> CsvOptions {
        CsvOptions { flags: 0, path: "file".to_owned(), program: "csv".to_owned(), columns: None }
    }
}

const KIND_OF_ROWS: Kind =
    Kind { name: "csv", untimed: None, unsorted: "sort the table by its starts first", of_day: false };

/// Process and thread of rows that do not name theirs.
const NAMELESS: u32 = 1;

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
/// The end of a call in the place of its duration; in tables with names of their own only.
const END: usize = 11;
/// Columns there may be.
const ALL: usize = 12;

/// What a number in a column counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Times, in 10^this ns.
    Time(u8),
    /// Whole nanoseconds.
    Nanoseconds,
    /// Bytes, this many.
    Bytes(u64),
}

/// Columns of a time in whole nanoseconds, as `cawl-cli export` has them, in the place of seconds.
const NANOS: [(&str, usize); 2] = [("start_ns", START), ("duration_ns", DURATION)];
/// What else a table of `cawl-cli export` has, beside columns that end in `_ns`: results of the analysis.
const RESULTS: [&str; 8] = ["call", "bytes", "errno", "estimated", "state", "dirty", "cause", "stack"];

/// Which field of a row holds which column.
#[derive(Clone, Copy, Debug)]
struct Layout {
    fields: usize,
    place: [Option<usize>; ALL],
    unit: [Unit; ALL],
    /// Names of operations are those of any program.
    foreign: bool,
}

impl Default for Layout {
    fn default() -> Layout {
        let mut unit = [Unit::Time(9); ALL];
        (unit[OFFSET], unit[SIZE]) = (Unit::Bytes(1), Unit::Bytes(1));
        Layout { fields: 0, place: [None; ALL], unit, foreign: false }
    }
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
                layout.unit[column] = Unit::Nanoseconds;
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
    rows: Rows,
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
            rows: Rows::new(KIND_OF_ROWS),
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
                    self.forget();
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
                let taken = self.row(out);
                (self.bytes_used, self.ends_used) = (0, 0);
                taken?;
            }
        }
        Ok(())
    }

    /// A whole row has been read: the header or a call.
    fn row(&mut self, out: &mut Vec<Record>) -> Result<(), ImportError> {
        let row = Row { bytes: &self.bytes[..self.bytes_used], ends: &self.ends[..self.ends_used] };
        let Some(layout) = &self.layout else {
            let layout = match &self.options.columns {
                Some(columns) => columns.layout(&row),
                None => Layout::from_header(&row),
            };
            let layout = layout.map_err(|(field, fault)| self.error(field, fault))?;
            self.layout = Some(layout);
            if self.options.columns.as_ref().is_some_and(Columns::by_number) {
                return self.row(out);
            }
            return Ok(());
        };
        let taken = match layout.call(&self.options, &row, &mut self.rows) {
            Ok(Ok(call)) => self.rows.take(call, self.row_began, out).map_err(|fault| (Some(START), fault)),
            Ok(Err(reason)) => {
                self.rows.skip(reason, self.row_began);
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        taken.map_err(|(column, fault)| {
            let field = column.and_then(|column| layout.place[column]);
            let fault = match (column, &self.options.columns) {
                (Some(column), Some(columns)) => columns.renamed(column, fault),
                _ => fault,
            };
            self.error(field.map_or(0, |at| at + 1), fault)
        })
    }

    /// Leaves a row that has no end; the next line begins another.
    fn forget(&mut self) {
        self.reader.reset();
        (self.bytes_used, self.ends_used) = (0, 0);
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
        if self.options.columns.is_some() && self.layout.is_none() && !self.within_row() {
            self.reader = csv_core::ReaderBuilder::new().delimiter(columns::separator(line)).build();
        }
        self.feed(line, out)?;
        self.feed(b"\n", out)
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.within_row() {
            self.forget();
            return Err(self.error(0, QUOTE));
        }
        if self.layout.is_none() {
            let fault = format!("there is no header; {}", header());
            return Err(ImportError { line: self.lines, field: 0, fault });
        }
        Ok(self.rows.finish(self.lines, out))
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

impl Layout {
    /// The call that a row tells of; None if there is none in a table, and why.
    fn call(
        &self,
        options: &CsvOptions,
        row: &Row<'_>,
        rows: &mut Rows,
    ) -> Result<Result<Call, SkipReason>, RowFault> {
        if row.len() != self.fields {
            let fault = format!(
                "the row has {} fields where the header has {}; quote a field that holds a comma",
                row.len(),
                self.fields
            );
            return Err((None, fault));
        }
        let text = |column: usize| self.place[column].map_or(&[][..], |at| row.field(at).trim_ascii());
        let time = |column: usize| match self.unit[column] {
            Unit::Time(scale) => scaled(text(column), scale).map_err(|why| {
                wrong(
                    column,
                    text(column),
                    if scale == 9 || why != MALFORMED { why } else { "not a decimal number" },
                )
            }),
            _ => number(column, text(column), u64::MAX)?
                .ok_or_else(|| wrong(column, text(column), "but each call has a time; fill it in")),
        };
        let bytes = |column: usize, most: u64| match self.unit[column] {
            Unit::Bytes(unit) => Ok(number(column, text(column), most / unit)?.map(|count| count * unit)),
            _ => number(column, text(column), most),
        };
        let start = time(START)?;
        let duration = match (text(DURATION).is_empty(), text(END).is_empty()) {
            (false, _) => time(DURATION)?,
            (true, false) => {
                time(END)?.checked_sub(start).ok_or_else(|| wrong(END, text(END), "before the start"))?
            }
            (true, true) => 0,
        };
        let op = match self.foreign.then(|| columns::operation(text(OP))).flatten() {
            Some(op) => op,
            None => operation(text(OP))?,
        };
        if let Some(reason) = not_in_tables(op) {
            return Ok(Err(reason));
        }
        let offset = bytes(OFFSET, u64::MAX - 1)?;
        let most = if op.moves_bytes() { MAX_BYTES } else { i64::MAX };
        let size = bytes(SIZE, most as u64)?;
        let pid = number(PID, text(PID), u32::MAX.into())?.map_or(NAMELESS, |pid| pid as u32);
        let tid = number(TID, text(TID), u32::MAX.into())?.map_or(pid, |tid| tid as u32);
        let kind = kind(text(KIND)).ok_or_else(|| wrong(KIND, text(KIND), KINDS_TEXT))?;
        let mut flags = options.flags;
        if !text(FLAGS).is_empty() {
            let named = String::from_utf8_lossy(text(FLAGS));
            flags |= open_flags(&named).map_err(|unknown| (Some(FLAGS), unknown))?;
        }
        Rows::end(start, duration).map_err(|why| wrong(DURATION, text(DURATION), why))?;
        check(op, offset, size)?;
        let place = match (op, offset, size) {
            (Op::Truncate, None, Some(size)) => Place::At(size),
            (_, Some(offset), _) => Place::At(offset),
            _ => Place::Next,
        };
        let size = size.unwrap_or(0);
        let program = match text(PROGRAM) {
            b"" => options.program.as_bytes(),
            named => named,
        };
        // A path keeps its spaces: only the other fields are trimmed.
        let path = self.place[PATH].map(|at| row.field(at)).filter(|path| !path.is_empty());
        let path = path.unwrap_or(options.path.as_bytes());
        let (moved, path, program) = (size, rows.text(path), rows.text(program));
        let moves = Call { op, place, size, moved, kind, flags, ..Call::default() };
        Ok(Ok(Call { start, duration, pid, tid, path, program, ..moves }))
    }
}

/// Why no row makes an event of this operation: a table lacks what it needs.
fn not_in_tables(op: Op) -> Option<SkipReason> {
    use Op::*;
    let name = op.name().to_owned();
    match op {
        Dup | StreamOpen | Lock | Fork | Spawn | Exec => Some(SkipReason::Harmless(name)),
        Rename | Allocate | AioWrite | AioFsync | MmapWrite | SyncRange | Advise | StreamSeek
        | StreamExit => Some(SkipReason::Unmodelled(name)),
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
    (Some(column), format!("{} is \"{}\", {why}", COLUMNS.get(column).unwrap_or(&"end"), shown(text)))
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
