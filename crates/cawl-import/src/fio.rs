//! fio's log of what it did (`write_iolog`), versions 2 and 3.
//!
//! The law: **an iolog is an order of calls, and no measurement.** Version 2 has no times, version 3 the
//! moment when fio began each call, in microseconds; neither has durations, so no call is compared.

use std::borrow::Cow;

use cawl_core::Record;
use cawl_wire::{Op, flag};

use super::by_line::{Fault, Format};
use super::rows::{Call, Kind, Place, Rows};
use super::{LATE, SkipReason, shown, whole_number};

/// One file, which is of one job.
#[derive(Clone, Debug, Default)]
struct Job {
    /// 0: the first line has not come.
    version: u8,
    /// `cawl-cli export` wrote it, with names that have %20 for a blank.
    is_encoded: bool,
    /// Time of the calls that come, in ns, where waits alone tell it.
    clock: u64,
}

/// What the lines of an iolog are.
#[derive(Debug, Default)]
pub struct Iolog {
    flags: u32,
    jobs: Vec<Job>,
    job: usize,
    /// Lines of version 2.
    timeless: u64,
}

impl Iolog {
    /// Every file was open with these flags ([`flag`]).
    pub(crate) fn new(flags: u32) -> Iolog {
        Iolog { flags, ..Iolog::default() }
    }
}

/// What a file must begin with.
const HEADER: &str = "the first line must be \"fio version 2 iolog\" or \"fio version 3 iolog\", as write_iolog \
                      makes it; latency logs are read by --from fio-lat";

impl Format for Iolog {
    const KIND: Kind = Kind {
        name: "fio",
        untimed: Some("calls without duration, which an iolog does not have: predicted, not compared"),
        unsorted: "an iolog is in order of time; do not join several by hand, name them all",
        of_day: false,
    };
    const EMPTY: &'static str = "record with fio's write_iolog=FILE, and give that FILE";

    fn begin(&mut self, _name: &str) -> Result<(), String> {
        self.jobs.push(Job::default());
        Ok(())
    }

    fn select(&mut self, input: usize) {
        self.job = input;
    }

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        let (pid, flags) = (self.job as u32 + 1, self.flags);
        let job = &mut self.jobs[self.job];
        if job.version == 0 {
            // As fio itself, which takes any text behind it.
            let (version, by) = line.split_once(',').unwrap_or((line, ""));
            job.is_encoded = by.trim() == "of cawl-cli export";
            job.version = match version.trim() {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => return Err((1, format!("is \"{}\"; {HEADER}", shown(line.as_bytes())))),
            };
            return Ok(());
        }
        let mut rest = line.trim();
        let mut fields = 0;
        if job.version == 3 {
            let (time, after) = rest.split_once(' ').unwrap_or((rest, ""));
            let micros = whole_number(time.as_bytes()).ok_or_else(|| {
                (1, format!("the time is \"{}\", not whole microseconds", shown(time.as_bytes())))
            })?;
            job.clock = micros.checked_mul(1000).ok_or((1, format!("the time is {micros}, {LATE}")))?;
            (rest, fields) = (after.trim_start(), 1);
        }
        let timeless = job.version == 2;
        let Line { path, action, range } = split(rest).map_err(|(field, fault)| (field + fields, fault))?;
        let (op, place) = match (action, range) {
            ("add", _) => {
                rows.skip(SkipReason::Harmless("add".to_owned()), at);
                return Ok(());
            }
            ("wait", Some((micros, _))) if timeless => {
                let clock = micros.checked_mul(1000).and_then(|ns| job.clock.checked_add(ns));
                job.clock = clock.ok_or((fields + 3, format!("the wait is {micros}, {LATE}")))?;
                return Ok(());
            }
            ("wait", _) => {
                return Err((fields + 2, "a wait is in version 2 only; remove the line".to_owned()));
            }
            ("open", _) => (Op::Open, Place::End(0)),
            ("close", _) => (Op::Close, Place::Next),
            ("write", Some((offset, _))) => (Op::Pwrite, Place::At(offset)),
            ("read", Some((offset, _))) => (Op::Pread, Place::At(offset)),
            ("sync", _) => (Op::Fsync, Place::Next),
            ("datasync", _) => (Op::Fdatasync, Place::Next),
            ("syncfs", _) => (Op::Syncfs, Place::Next),
            _ => {
                rows.skip(SkipReason::Unmodelled(action.to_owned()), at);
                return Ok(());
            }
        };
        let size = if op.moves_bytes() { range.map_or(0, |(_, size)| size) } else { 0 };
        let path = match job.is_encoded {
            true => percent_encoding::percent_decode_str(path).into(),
            false => Cow::Borrowed(path.as_bytes()),
        };
        let call = Call {
            start: job.clock,
            op,
            place,
            size,
            moved: size,
            pid,
            tid: pid,
            flags,
            path: rows.text(&path),
            program: rows.text("fio"),
            ..Call::default()
        };
        rows.take(call, at, out).map_err(|fault| (1, fault))?;
        self.timeless += u64::from(timeless);
        Ok(())
    }

    fn finish(&mut self, rows: &mut Rows) {
        if self.timeless > 0 {
            rows.note(
                "version 2 has no times: calls follow each other without a pause, but for waits; write_iolog of \
                 fio 3.31 and later has the moment of each",
            );
        }
        if self.flags & (flag::DIRECT | flag::SYNC | flag::DSYNC) == 0 {
            rows.note(
                "an iolog does not tell direct=1 or sync=1; tell it with --flags O_DIRECT, O_SYNC or O_DSYNC",
            );
        }
        rows.note("it has neither the lengths of files nor results: all calls are taken to have done all their bytes");
    }

    fn time(&self, line: &str) -> Option<u64> {
        whole_number(line.split(' ').next()?.as_bytes())?.checked_mul(1000)
    }
}

/// A line without its time.
struct Line<'a> {
    path: &'a str,
    action: &'a str,
    /// Offset and length, in bytes.
    range: Option<(u64, u64)>,
}

/// Actions that come with offset and length.
const RANGED: [&str; 8] = ["read", "write", "trim", "sync", "datasync", "sync_file_range", "syncfs", "wait"];

/// `path action` or `path action offset length`; a path may hold spaces.
fn split(text: &str) -> Result<Line<'_>, Fault> {
    let words: Vec<&str> = text.rsplitn(4, ' ').collect();
    match words[..] {
        [last, before, action, path] if RANGED.contains(&action) => {
            let number = |field: usize, what: &str, text: &str, most: u64| {
                let value = whole_number(text.as_bytes()).filter(|value| *value <= most);
                let fault =
                    || format!("{what} is \"{}\", not a whole number of bytes", shown(text.as_bytes()));
                value.ok_or_else(|| (field, fault()))
            };
            let offset = number(3, "the offset", before, i64::MAX as u64)?;
            let length = number(4, "the length", last, cawl_wire::MAX_BYTES as u64)?;
            Ok(Line { path, action, range: Some((offset, length)) })
        }
        _ => match text.rsplit_once(' ') {
            Some((path, action @ ("add" | "open" | "close"))) => Ok(Line { path, action, range: None }),
            _ => Err((
                2,
                format!(
                    "\"{}\" is neither \"file add|open|close\" nor \"file read|write|sync|… offset length\"",
                    shown(text.as_bytes())
                ),
            )),
        },
    }
}

#[cfg(test)]
mod tests;
