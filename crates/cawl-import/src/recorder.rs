//! What Recorder's recorder2text prints: a file a rank, a function of the C library, MPI or HDF5 a line.
//!
//! The law: **the functions of the C library are the calls; those of MPI and HDF5 made them.** Recorder 2.3
//! and later name the file in each line and no result; before, lines have descriptors and results.

use std::collections::HashMap;

use cawl_core::Record;
use cawl_wire::{MAX_BYTES, Op, flag};

use super::by_line::{self, Fault, Format, seconds};
use super::names::{self, operation};
use super::rows::{Call, Kind, Place, Rows};
use super::{SkipReason, nanoseconds, shown, whole_number};

#[derive(Clone, Debug, Default)]
struct Rank {
    pid: u32,
    /// Path and flags by descriptor, or by path where lines name that.
    open: HashMap<String, (String, u32)>,
}

/// What the lines of recorder2text are.
#[derive(Debug, Default)]
pub struct Recorder {
    ranks: Vec<Rank>,
    rank: usize,
    /// Lines have no results.
    resultless: bool,
    unnamed: u64,
}

/// Where a function's arguments stand.
struct Arguments {
    path: usize,
    /// Bytes are the product of these.
    size: &'static [usize],
    offset: Option<usize>,
}

fn arguments_of(function: &str) -> Arguments {
    let (path, size, offset): (usize, &[usize], _) = match function.strip_suffix("64").unwrap_or(function) {
        "read" | "write" => (0, &[2], None),
        "pread" | "pwrite" => (0, &[2], Some(3)),
        "readv" | "writev" | "fprintf" => (0, &[1], None),
        "fread" | "fwrite" => (3, &[1, 2], None),
        "lseek" | "fseek" | "fseeko" | "truncate" | "ftruncate" => (0, &[], Some(1)),
        _ => (0, &[], None),
    };
    Arguments { path, size, offset }
}

/// A line without its arguments.
struct Head<'a> {
    start: &'a str,
    end: &'a str,
    /// What the call returned, before Recorder 2.3.
    result: Option<&'a str>,
    function: &'a str,
}

fn head<'a>(words: &[&'a str]) -> Option<Head<'a>> {
    Some(match *words {
        [start, end, function, _, _] => Head { start, end, result: None, function },
        [start, end, result, function] => Head { start, end, result: Some(result), function },
        _ => return None,
    })
}

impl Format for Recorder {
    const KIND: Kind = Kind {
        name: "recorder",
        untimed: Some("calls shorter than the decimals of their times: predicted, not compared"),
        unsorted: "give the files as recorder2text made them, one of each rank",
        of_day: false,
    };
    const EMPTY: &'static str = "give what recorder2text made, the files in the folder _text";

    fn begin(&mut self, name: &str) -> Result<(), String> {
        let base = name.rsplit('/').next().unwrap_or(name);
        let told = whole_number(base.split('.').next().unwrap_or(base).as_bytes());
        let rank = told.and_then(|rank| u32::try_from(rank).ok()).unwrap_or(self.ranks.len() as u32);
        self.ranks.push(Rank { pid: rank.saturating_add(1), ..Rank::default() });
        Ok(())
    }

    fn select(&mut self, input: usize) {
        self.rank = input;
    }

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        let form = "a line is \"start end function level type ( arguments )\", as recorder2text makes it";
        let parts =
            line.split_once(" (").and_then(|(head, rest)| Some((head, rest.trim().strip_suffix(')')?)));
        let (before, rest) =
            parts.ok_or_else(|| (0, format!("there are no arguments in parentheses; {form}")))?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let Some(head) = head(&words) else {
            return Err((0, format!("{} words stand before the parenthesis; {form}", words.len())));
        };
        let Some(op) = operation(head.function) else {
            match names::can_write(head.function) {
                true => rows.skip(SkipReason::Unmodelled(head.function.to_owned()), at),
                false => rows.skip_other(head.function, at),
            }
            return Ok(());
        };
        let start = seconds(1, "the start", head.start)?;
        let duration = seconds(2, "the end", head.end)?
            .checked_sub(start)
            .ok_or_else(|| (2, "the end is before the start".to_owned()))?;
        let arguments: Vec<&str> = rest.split_whitespace().collect();
        let first = words.len() + 2;
        let argument = |place: usize| {
            let missing = || (first, format!("{} lacks its argument {}", head.function, place + 1));
            arguments.get(place).copied().ok_or_else(missing)
        };
        let number =
            |place: usize, what: &str, most| by_line::number(first + place, what, argument(place)?, most);

        let Arguments { path, size, offset } = arguments_of(head.function);
        let named = argument(path)?;
        let rank = &mut self.ranks[self.rank];
        if op == Op::Open {
            let flags = match head.function.strip_suffix("64").unwrap_or(head.function) {
                "creat" => names::CREAT,
                "fopen" => names::stream_mode(argument(1)?),
                _ => names::open_number(number(1, "the flags", u32::MAX.into())?),
            };
            let handle = head.result.unwrap_or(named);
            if handle.starts_with('-') {
                rows.skip(SkipReason::Failed, at);
                return Ok(());
            }
            rank.open.insert(handle.to_owned(), (named.to_owned(), flags));
        }
        let failed = head.result.is_some_and(|result| result.starts_with('-'));
        if failed {
            rows.skip(SkipReason::Failed, at);
            return Ok(());
        }
        let handle = if op == Op::Open { head.result.unwrap_or(named) } else { named };
        let known = rank.open.get(handle).cloned();
        let is_descriptor = head.result.is_some() && whole_number(handle).is_some();
        self.unnamed += u64::from(is_descriptor && known.is_none());
        let unknown = || (if is_descriptor { format!("descriptor {handle}") } else { named.to_owned() }, 0);
        let (path, flags) = known.unwrap_or_else(unknown);

        let mut bytes: u64 = u64::from(!size.is_empty());
        for place in size {
            bytes = bytes.saturating_mul(number(*place, "the size", MAX_BYTES as u64)?);
        }
        let bytes = bytes.min(MAX_BYTES as u64);
        // The result of fread and fwrite counts items.
        let result = head.result.filter(|_| op.moves_bytes()).and_then(whole_number);
        let item = if size.len() == 2 { number(size[0], "the size", MAX_BYTES as u64)? } else { 1 };
        let moved = result.map_or(bytes, |result| result.saturating_mul(item).min(bytes));
        let place = match (op, offset) {
            (Op::Seek, Some(offset)) => {
                let text = argument(offset)?;
                let by: i64 = text.parse().map_err(|_| {
                    (first + offset, format!("the offset is \"{}\", no whole number", shown(text)))
                })?;
                match argument(2)? {
                    "0" => Place::At(by.max(0) as u64),
                    "1" => Place::By(by),
                    "2" => Place::End(by),
                    // To data or a hole: the position follows from what the file holds.
                    _ => Place::Next,
                }
            }
            (_, Some(offset)) => Place::At(number(offset, "the offset", i64::MAX as u64)?),
            (Op::Open, None) => Place::End(0),
            (Op::Write | Op::Writev, None) if flags & flag::APPEND != 0 => Place::End(0),
            _ => Place::Next,
        };
        let pid = rank.pid;
        let is_last = matches!(op, Op::Close | Op::StreamClose);
        let fd = head.result.and_then(|_| handle.parse().ok());
        let (size, tid, path) = (bytes, pid, rows.text(path));
        let flags = if op == Op::Open { flags } else { flags & !flag::TRUNC };
        let moves = Call { op, place, size, moved, flags, ..Call::default() };
        let call = Call { start, duration, pid, tid, fd, path, ..moves };
        rows.take(call, at, out).map_err(|fault| (1, fault))?;
        if is_last {
            rank.open.remove(handle);
        }
        self.resultless |= head.result.is_none();
        Ok(())
    }

    fn finish(&mut self, rows: &mut Rows) {
        rows.note("rank N (its file is N.txt) is process N + 1, with one thread: the text tells no threads");
        if self.resultless {
            rows.note("the text has no results: all calls are taken to have done all their bytes");
        }
        if self.unnamed > 0 {
            rows.note(format!("{} calls are on descriptors of which no open is told", self.unnamed));
        }
        rows.note(
            "files' lengths before the run are not known; mapped stores, fflush and threads are not recorded",
        );
    }

    fn time(&self, line: &str) -> Option<u64> {
        nanoseconds(line.split_whitespace().next()?.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests;
