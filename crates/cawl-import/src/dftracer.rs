//! DFTracer's traces: a JSON object a line, of a function that the C library or the application offers.
//!
//! The law: **the lines of POSIX and STDIO are the calls.** Their times are microseconds since 1970. Files
//! are named in the line, or by a hash that another line resolves; the bytes are there if the run was
//! recorded with DFTRACER_INC_METADATA=1.

use std::collections::HashMap;

use cawl_core::Record;
use cawl_wire::{MAX_BYTES, Op, flag};
use serde_json::Value;

use super::by_line::{self, Fault, Format};
use super::names::{self, operation};
use super::rows::{Call, Kind, Place, Rows};
use super::{LATE, SkipReason, shown, whole_number};

/// What the lines of a trace of DFTracer are.
#[derive(Debug, Default)]
pub struct Dftracer {
    /// Texts by process and hash, and by hash alone, as traces that were joined have them.
    texts: HashMap<(Option<u32>, String), String>,
    programs: HashMap<u32, String>,
    /// Path and flags of what a process has open, by descriptor.
    open: HashMap<(u32, i32), (String, u32)>,
    /// Paths of those that openat opened.
    in_folders: HashMap<(u32, i32), String>,
    /// Flags by process and path, for streams.
    streams: HashMap<(u32, String), u32>,
    /// Working directories as processes began, by process.
    folders: HashMap<u32, String>,
    unnamed: u64,
    /// Opens without a result.
    resultless: u64,
}

/// A member of an object, as a text: numbers stand with quotes or without.
fn text<'a>(object: &'a Value, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    match object.get(name)? {
        Value::String(text) => Some(text.as_str().into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

/// A whole number of an object; None if it is not there.
fn number(object: &Value, name: &str, most: u64) -> Result<Option<u64>, Fault> {
    text(object, name).map(|text| by_line::number(0, &format!("\"{name}\""), &text, most)).transpose()
}

/// A whole number that must be there.
fn needed(object: &Value, name: &str, most: u64) -> Result<u64, Fault> {
    number(object, name, most)?
        .ok_or_else(|| (0, format!("\"{name}\" is missing: this is no line of DFTracer")))
}

/// Times are in the unit that they are taken for, as far as a member tells.
fn microseconds(object: &Value, name: &str) -> Result<(), Fault> {
    match text(object, name).filter(|unit| *unit != "US") {
        None => Ok(()),
        Some(unit) => Err((0, format!("times are in {}, not in microseconds (US)", shown(unit.as_bytes())))),
    }
}

const SIZELESS: &str = "record with DFTRACER_INC_METADATA=1: without it DFTracer tells no bytes";

impl Dftracer {
    /// A line that tells what hashes and processes are.
    fn meta(&mut self, object: &Value, name: &str, pid: u32) -> Result<(), Fault> {
        let args = &object["args"];
        if text(args, "name").as_deref() == Some("time_metric") {
            return microseconds(args, "value");
        }
        if let ("FH" | "SH" | "HH", Some(hash), Some(told)) = (name, text(args, "value"), text(args, "name"))
        {
            self.texts.insert((Some(pid), hash.to_string()), told.to_string());
            self.texts.insert((None, hash.to_string()), told.to_string());
        }
        Ok(())
    }

    /// A line that tells how a process began, or ended.
    fn lifecycle(&mut self, args: &Value, pid: u32) -> Result<(), Fault> {
        let told = |name: &str| text(args, name).and_then(|hash| self.resolved(pid, &hash).cloned());
        let (command, folder) = (told("cmd_hash"), told("cwd"));
        if let Some(command) = command {
            let program = command.split([' ', ';']).next().unwrap_or_default();
            self.programs.insert(pid, program.rsplit('/').next().unwrap_or_default().to_owned());
        }
        if let Some(folder) = folder {
            self.folders.insert(pid, folder);
        }
        microseconds(&args["cfg"], "time_metric")
    }

    fn resolved(&self, pid: u32, hash: &str) -> Option<&String> {
        let own = self.texts.get(&(Some(pid), hash.to_owned()));
        own.or_else(|| self.texts.get(&(None, hash.to_owned())))
    }

    /// The file that a line names, or that the descriptor leads to.
    fn path(&mut self, args: &Value, pid: u32, fd: Option<i32>) -> String {
        if let Some(path) = text(args, "fname") {
            return path.into_owned();
        }
        // Of openat; the hash beside it, also in later lines on the descriptor, is that of the folder.
        if let Some(hash) = text(args, "pathname_hash")
            && let Some(path) = self.resolved(pid, &hash)
        {
            return path.clone();
        }
        if let Some(path) = fd.and_then(|fd| self.in_folders.get(&(pid, fd))) {
            return path.clone();
        }
        if let Some(hash) = text(args, "fhash")
            && let Some(path) = self.resolved(pid, &hash)
        {
            return path.clone();
        }
        if let Some(fd) = fd
            && let Some((path, _)) = self.open.get(&(pid, fd))
        {
            return path.clone();
        }
        self.unnamed += 1;
        match (text(args, "fhash"), fd) {
            (Some(hash), _) => format!("hash {hash}"),
            (None, Some(fd)) => format!("descriptor {fd}"),
            (None, None) => "unnamed".to_owned(),
        }
    }
}

impl Format for Dftracer {
    const KIND: Kind = Kind {
        name: "dftracer",
        untimed: Some("calls of less than 1 µs, which DFTracer tells as 0: predicted, not compared"),
        unsorted: "give the files as DFTracer made them, one of each process",
        of_day: true,
    };
    const EMPTY: &'static str =
        "give DFTracer's .pfw or .pfw.gz; with DFTRACER_DISABLE_POSIX it has no calls";

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        let line = line.trim().trim_end_matches(',');
        if matches!(line, "[" | "]" | "") {
            return Ok(());
        }
        let object: Value = serde_json::from_str(line)
            .map_err(|error| (0, format!("no JSON object: {error}; each line of DFTracer is one")))?;
        let (name, category) = (text(&object, "name"), text(&object, "cat").unwrap_or_default());
        let Some(name) = name else {
            return Err((0, "\"name\" is missing: this is no line of DFTracer".to_owned()));
        };
        let pid = needed(&object, "pid", u32::MAX.into())? as u32;
        let args = &object["args"];
        let is_call = category == "POSIX" || category == "STDIO";
        // Numbers in the place of letters since 2026.
        match text(&object, "ph").as_deref() {
            Some("X" | "1") => {}
            Some("M" | "4") => {
                return self.meta(&object, &name, pid);
            }
            Some("A" | "3") if is_call => {
                let fault =
                    "the line has the sums of several calls; record without DFTRACER_ENABLE_AGGREGATION";
                return Err((0, fault.to_owned()));
            }
            _ => {
                rows.skip_other(&name, at);
                return Ok(());
            }
        }
        if category == "dftracer" {
            return self.lifecycle(args, pid);
        }
        if !is_call {
            rows.skip(SkipReason::Elsewhere("spans of the application, whose calls are taken"), at);
            return Ok(());
        }
        let Some(op) = operation(&name) else {
            match names::can_write(&name) {
                true => rows.skip(SkipReason::Unmodelled(name.into_owned()), at),
                false => rows.skip_other(&name, at),
            }
            return Ok(());
        };
        let result = text(args, "ret");
        if result.as_deref().is_some_and(|result| result.starts_with('-')) {
            rows.skip(SkipReason::Failed, at);
            return Ok(());
        }
        let tid = number(&object, "tid", u32::MAX.into())?.map_or(pid, |tid| tid as u32);
        let nanos = |name: &str| {
            let micros = needed(&object, name, u64::MAX)?;
            micros.checked_mul(1000).ok_or_else(|| (0, format!("\"{name}\" is {micros}, {LATE}")))
        };
        let (start, duration) = (nanos("ts")?, nanos("dur")?);
        Rows::end(start, duration).map_err(|why| (0, format!("\"dur\" is {}, {why}", duration / 1000)))?;

        let most = i64::MAX as u64;
        let is_stream = name.starts_with('f') && !matches!(op, Op::Fsync | Op::Fdatasync | Op::Truncate);
        let item = if is_stream { number(args, "size", most)?.unwrap_or(1) } else { 1 };
        let count = number(args, "count", most)?;
        let ret = if op.moves_bytes() { number(args, "ret", most)? } else { None };
        let size = match (op.moves_bytes(), count.or(ret)) {
            (false, _) => 0,
            (true, Some(count)) => count.saturating_mul(item),
            (true, None) => {
                return Err((0, format!("a {name} has neither \"count\" nor \"ret\"; {SIZELESS}")));
            }
        };
        if size > MAX_BYTES as u64 {
            return Err((0, format!("\"count\" is {size} bytes, more than a call moves")));
        }
        let moved = ret.map_or(size, |ret| ret.saturating_mul(item).min(size));
        let fd = match op {
            Op::Open if !is_stream => result.as_deref().and_then(|fd| fd.parse().ok()),
            _ => number(args, "fd", i32::MAX as u64)?.map(|fd| fd as i32),
        };
        let mut path = self.path(args, pid, if op == Op::Open { None } else { fd });
        if let Some(folder) = self.folders.get(&pid).filter(|_| !path.starts_with('/')) {
            path = format!("{folder}/{path}");
        }
        let told_flags = || number(args, "flags", u32::MAX.into()).map(|told| told.map(names::open_number));
        let flags = match op {
            Op::Open if is_stream => names::stream_mode(&text(args, "mode").unwrap_or_default()),
            Op::Open if name.starts_with("creat") => names::CREAT,
            Op::Open => told_flags()?.unwrap_or(0),
            _ => {
                // `cawl-cli export` tells them in each line.
                let told = if op == Op::Unlink { None } else { told_flags()? };
                let stream = || self.streams.get(&(pid, path.clone())).copied();
                let own = fd.and_then(|fd| self.open.get(&(pid, fd))).map(|(_, flags)| *flags);
                told.or(own).or_else(stream).unwrap_or(0) & !flag::TRUNC
            }
        };
        let offset = number(args, "offset", most);
        let place = match op {
            Op::Pwrite | Op::Pread => match offset? {
                Some(offset) => Place::At(offset),
                None => return Err((0, format!("a {name} has no \"offset\"; {SIZELESS}"))),
            },
            Op::Truncate => match number(args, "length", most)? {
                Some(length) => Place::At(length),
                None => return Err((0, format!("a {name} has no \"length\"; {SIZELESS}"))),
            },
            Op::Seek if !is_stream && number(args, "ret", most)?.is_some() => {
                number(args, "ret", most)?.map_or(Place::Next, Place::At)
            }
            Op::Seek => {
                let by = text(args, "offset").and_then(|offset| offset.parse::<i64>().ok()).unwrap_or(0);
                match text(args, "whence").as_deref() {
                    Some("0") => Place::At(by.max(0) as u64),
                    Some("1") => Place::By(by),
                    Some("2") => Place::End(by),
                    _ => Place::Next,
                }
            }
            Op::Open => Place::End(0),
            // DFTracer itself tells no place of these.
            _ if op.moves_bytes() && number(args, "offset", most)?.is_some() => {
                number(args, "offset", most)?.map_or(Place::Next, Place::At)
            }
            Op::Write | Op::Writev | Op::StreamWrite if flags & flag::APPEND != 0 => Place::End(0),
            _ => Place::Next,
        };
        let program = rows.text(self.programs.get(&pid).map_or("dftracer", String::as_str));
        let moves = Call { op, place, size, moved, flags, ..Call::default() };
        let call = Call { start, duration, pid, tid, fd, path: rows.text(&path), program, ..moves };
        rows.take(call, at, out).map_err(|fault| (0, format!("\"ts\" {fault}")))?;
        self.resultless += u64::from(op == Op::Open && result.is_none());
        match (op, fd) {
            (Op::Open, Some(fd)) => {
                if text(args, "pathname_hash").is_some() {
                    self.in_folders.insert((pid, fd), path.clone());
                }
                self.open.insert((pid, fd), (path, flags));
            }
            (Op::Open, None) => {
                self.streams.insert((pid, path), flags);
            }
            (Op::Close, Some(fd)) => {
                self.in_folders.remove(&(pid, fd));
                self.open.remove(&(pid, fd));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, rows: &mut Rows) {
        if self.unnamed > 0 {
            rows.note(format!("{} calls are on files that no line names", self.unnamed));
        }
        if self.resultless > 0 {
            rows.note(format!(
                "{} opens are without result, as DFTracer 2 and streams have them: those that failed count as done",
                self.resultless
            ));
        }
        rows.note("times are whole microseconds; files' lengths before the run are not known");
        rows.note("DFTracer tells no results of syncs, truncates and unlinks (taken as done) and no buffers of streams");
    }

    fn time(&self, line: &str) -> Option<u64> {
        let after = line.split_once("\"ts\":")?.1.trim_start().trim_start_matches('"');
        let digits = after.bytes().position(|byte| !byte.is_ascii_digit())?;
        whole_number(&after.as_bytes()[..digits])?.checked_mul(1000)
    }
}

#[cfg(test)]
mod tests;
