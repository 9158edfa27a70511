//! What darshan-dxt-parser prints: reads and writes of a Darshan log with extended tracing.
//!
//! The law: **DXT has the bytes of each read and write, and nothing else.** File and rank stand in the lines
//! before a file's calls; times are seconds since the job began, with four decimals.

use std::collections::HashMap;

use cawl_core::Record;
use cawl_wire::{MAX_BYTES, Op};

use super::by_line::{self, Fault, Format, seconds};
use super::rows::{Call, Kind, Place, Rows};
use super::{SkipReason, shown, whole_number};

/// Threads beside the first one of a rank have numbers from here on, in order of appearance.
const FIRST_THREAD: u32 = 1 << 24;

/// What the lines of darshan-dxt-parser are.
#[derive(Debug, Default)]
pub struct Dxt {
    flags: u32,
    /// The file whose calls come.
    file: Option<String>,
    program: String,
    /// Numbers of threads, by rank and what pthread_self returned.
    threads: HashMap<(u32, u64), u32>,
    ranks: HashMap<u32, ()>,
    /// It is the output of darshan-parser: sums of counters.
    counters: bool,
}

impl Dxt {
    /// Every file was open with these flags.
    pub(crate) fn new(flags: u32) -> Dxt {
        Dxt { flags, ..Dxt::default() }
    }

    fn thread(&mut self, pid: u32, text: &str) -> u32 {
        let Some(id) = whole_number(text) else { return pid };
        let next = FIRST_THREAD.saturating_add(self.threads.len() as u32);
        let is_first = self.ranks.insert(pid, ()).is_none();
        *self.threads.entry((pid, id)).or_insert(if is_first { pid } else { next })
    }

    fn header(&mut self, text: &str) {
        if let Some(name) =
            text.split_once("file_name: ").filter(|(before, _)| before.starts_with("DXT, file_id:"))
        {
            self.file = Some(name.1.to_owned());
        } else if let Some(command) = text.strip_prefix("exe: ") {
            let program = command.split_whitespace().next().unwrap_or_default();
            self.program = program.rsplit('/').next().unwrap_or_default().to_owned();
        }
    }
}

const COUNTERS: &str = "this is the output of darshan-parser: counters are sums of a run and tell no call; record \
                        with DXT_ENABLE_IO_TRACE=1 and give the output of darshan-dxt-parser";

impl Format for Dxt {
    const KIND: Kind = Kind {
        name: "darshan-dxt",
        untimed: Some("calls of less than 0.1 ms, which DXT prints as 0: predicted, not compared"),
        unsorted: "print files of a large log one by one, or sort the rows as docs/reference/IMPORT.md says",
        of_day: false,
    };
    const EMPTY: &'static str = "record with DXT_ENABLE_IO_TRACE=1, and give the output of darshan-dxt-parser \
                                 LOG.darshan";

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        if let Some(text) = line.strip_prefix('#') {
            self.header(text.trim_start());
            return Ok(());
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        if matches!(fields[0], "X_MPIIO") {
            rows.skip(SkipReason::Elsewhere("MPI-IO calls, whose POSIX calls are taken"), at);
            return Ok(());
        }
        if fields[0] != "X_POSIX" {
            self.counters |= line.split('\t').count() > 5 || line.starts_with("total_");
            let fault = match self.counters {
                true => COUNTERS.to_owned(),
                false if line.contains('\0') => {
                    "this is a log itself; give what darshan-dxt-parser prints of it".to_owned()
                }
                false => format!(
                    "is \"{}\", and a line of DXT begins with X_POSIX, X_MPIIO or #; {}",
                    shown(fields[0]),
                    Dxt::EMPTY
                ),
            };
            return Err((1, fault));
        }
        if fields.len() < 8 {
            let fault = format!(
                "the line has {} fields, and a call 8 at least: module, rank, write or read, segment, offset, \
                 length, start, end",
                fields.len()
            );
            return Err((0, fault));
        }
        let number = |field: usize, what: &str, most| by_line::number(field, what, fields[field - 1], most);
        let rank = number(2, "the rank", u64::from(FIRST_THREAD) - 2)? as u32;
        let op = match fields[2] {
            "write" => Op::Pwrite,
            "read" => Op::Pread,
            other => return Err((3, format!("is \"{}\", neither write nor read", shown(other)))),
        };
        let offset = number(5, "the offset", i64::MAX as u64)?;
        let size = number(6, "the length", MAX_BYTES as u64)?;
        let (start, end) = (seconds(7, "the start", fields[6])?, seconds(8, "the end", fields[7])?);
        let duration = end.checked_sub(start).ok_or_else(|| (8, "the end is before the start".to_owned()))?;
        let Some(path) = self.file.as_ref().map(|path| rows.text(path)) else {
            let fault = "no line \"# DXT, file_id: …, file_name: …\" tells which file this is of; give the whole \
                         output of darshan-dxt-parser";
            return Err((0, fault.to_owned()));
        };
        let pid = rank + 1;
        let tid = fields.get(8).map_or(pid, |_| self.thread(pid, fields[fields.len() - 1]));
        let program = rows.text(&self.program);
        let (flags, place, moved) = (self.flags, Place::At(offset), size);
        let moves = Call { op, place, size, moved, flags, ..Call::default() };
        let call = Call { start, duration, pid, tid, path, program, ..moves };
        rows.take(call, at, out).map_err(|fault| (7, fault))
    }

    fn finish(&mut self, rows: &mut Rows) {
        rows.note("rank N is process N + 1, and each call a pwrite or pread: DXT has offsets, not functions");
        rows.note(
            "DXT has no opens, closes, syncs, seeks, lengths, flags and no stdio; tell flags with --flags",
        );
        rows.note("times have four decimals: starts and durations are true to 0.1 ms");
    }
}

#[cfg(test)]
mod tests;
