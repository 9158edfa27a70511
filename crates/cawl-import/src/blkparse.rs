//! What blkparse prints in its default form: the steps of requests in the block layer.
//!
//! The law: **a call is what was queued (Q), from then until the request that it went into is complete (C).**
//! Where nothing was queued in the trace, it is what was issued (D). It is the device's view: there are no
//! files, and who queued a write is often the kernel's flusher.

use std::collections::{BTreeMap, HashMap};

use cawl_core::Record;
use cawl_wire::{Op, flag};

use super::by_line::{self, Fault, Format, seconds};
use super::rows::{Call, Kind, Place, Rows};
use super::{SkipReason, shown, whole_number};

const SECTOR: u64 = 512;
/// A request has no more sectors: 32 bits of bytes.
const MAX_SECTORS: u64 = u32::MAX as u64 / SECTOR;
/// Requests in flight, at most; the oldest is given up then.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// Of those that a request was made of, so many are looked at: more than a request has segments.
const MAX_INSIDE: usize = 1 << 10;

/// What was queued or issued and is not complete.
#[derive(Clone, Debug)]
struct Pending {
    start: u64,
    first: u64,
    sectors: u64,
    /// Sectors that are not complete.
    left: u64,
    pid: u32,
    program: String,
    flags: u32,
    line: u64,
}

/// What is done, from which sector on; at last a number that tells equal ones apart, or the end.
type Key = (Op, u64, u64);

#[derive(Debug, Default)]
struct Device {
    queued: BTreeMap<Key, Pending>,
    issued: BTreeMap<Key, Pending>,
    /// The latest complete request: direction, first sector, end.
    latest: Option<(Op, u64, u64)>,
    /// Something was queued in the trace.
    queues: bool,
}

/// What the lines of blkparse are.
#[derive(Debug, Default)]
pub struct Blkparse {
    devices: HashMap<String, Device>,
    number: u64,
    in_flight: usize,
    unqueued: u64,
    lost: u64,
    /// The sums at the end have begun.
    ended: bool,
}

/// How the sums at the end begin.
const SUMS: [&str; 7] = ["CPU", "Total", "Reads", "Throughput", "Events", "Skips", "Input file"];
const STEPS: SkipReason = SkipReason::Elsewhere("steps of requests between queue, issue and completion");
const COMMANDS: SkipReason =
    SkipReason::Elsewhere("commands passed through to the device, which are no reads or writes");

impl Format for Blkparse {
    const KIND: Kind = Kind {
        name: "blkparse",
        untimed: Some("requests that took no time by the trace: predicted, not compared"),
        unsorted: "give the output of blkparse as it is, which is in order of time",
        of_day: false,
    };
    const EMPTY: &'static str = "give the output of blkparse in its default form (without -f), of a trace that has \
                                 the actions queue or issue, and complete";

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        let text = line.trim_start();
        self.ended |= SUMS.iter().any(|sum| text.starts_with(sum));
        if self.ended && !text.starts_with(|first: char| first.is_ascii_digit()) {
            if let Some(skips) = text.strip_prefix("Skips: ") {
                let lost = skips.split_whitespace().next().map(|lost| lost.replace(',', ""));
                self.lost += lost.and_then(whole_number).unwrap_or(0);
            }
            return Ok(());
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let [device, _, _, time, pid, action, rest @ ..] = &words[..] else {
            let fault = format!(
                "the line has {} fields, and one of blkparse 7 at least: device, processor, number, time, process, \
                 action, kind",
                words.len()
            );
            return Err((0, fault));
        };
        let is_device = |text: &str| {
            let numbers = text.split_once(',');
            numbers
                .is_some_and(|(major, minor)| whole_number(major).is_some() && whole_number(minor).is_some())
        };
        if !is_device(device) {
            let fault = format!("is \"{}\", not a device as 8,0; {}", shown(device), Blkparse::EMPTY);
            return Err((1, fault));
        }
        let now = seconds(4, "the time", time)?;
        let pid = by_line::number(5, "the process", pid, u32::MAX.into())? as u32;
        if !matches!(*action, "Q" | "D" | "C" | "M" | "F") {
            rows.skip(STEPS, at);
            return Ok(());
        }
        let kind = rest.first().copied().unwrap_or_default();
        let Some((first, sectors)) = range(rest, *action == "C")? else {
            rows.skip(COMMANDS, at);
            return Ok(());
        };
        let op = match (kind.trim_start_matches('F').bytes().next(), sectors) {
            (Some(b'W' | b'N'), 0) => Op::Fdatasync,
            (Some(b'W'), _) => Op::Pwrite,
            (Some(b'R'), 1..) => Op::Pread,
            _ => {
                if *action == "C" {
                    rows.skip(SkipReason::Unmodelled(format!("requests of kind {}", shown(kind))), at);
                }
                return Ok(());
            }
        };
        let flags = flag::DIRECT | if fua(kind) { flag::DSYNC } else { 0 };
        let program = text.rsplit_once('[').map_or("", |(_, name)| name.trim_end_matches(|end| end != ']'));
        let program = program.trim_end_matches(']').to_owned();
        let pending = Pending { start: now, sectors, first, left: sectors, pid, program, flags, line: at };
        self.number += 1;
        let key = (op, first, self.number);
        let state = self.devices.entry((*device).to_owned()).or_default();
        match *action {
            // Old kernels do not tell of the queueing of what is merged at once.
            "M" | "F" if state.queued.range((op, first, 0)..(op, first, u64::MAX)).next().is_some() => {
                rows.skip(STEPS, at);
            }
            "Q" | "M" | "F" => {
                state.queues = true;
                state.queued.insert(key, pending);
                self.in_flight += 1;
            }
            "D" if !state.queues => {
                state.issued.insert(key, pending);
                self.in_flight += 1;
            }
            "D" => rows.skip(STEPS, at),
            _ => {
                let failed = !text.ends_with("[0]");
                return self.complete(device, (op, first, first + sectors), kind, failed, now, at, rows, out);
            }
        }
        if self.in_flight > MAX_IN_FLIGHT {
            self.give_up_oldest(rows);
        }
        Ok(())
    }

    fn finish(&mut self, rows: &mut Rows) {
        for device in self.devices.values() {
            for pending in device.queued.values().chain(device.issued.values()) {
                rows.skip(SkipReason::Endless, pending.line);
            }
        }
        if self.unqueued > 0 {
            rows.note(format!(
                "{} requests begin when they were issued: the trace does not have their queueing",
                self.unqueued
            ));
        }
        if self.lost > 0 {
            rows.note(format!("blktrace lost {} events, which are missing", self.lost));
        }
        rows.note(
            "requests of devices, not calls of programs: a write is often the flusher's, later than the call that \
             made it; caches, files and file systems are not in it",
        );
        rows.note(
            "each device is one file, open with O_DIRECT; a forced unit access (FUA) is O_DSYNC, a flush an \
             fdatasync; bytes count once on each device of a stack (dm, md)",
        );
    }
}

impl Blkparse {
    /// A request is complete: so is what was queued within it.
    #[expect(clippy::too_many_arguments, reason = "a line in its parts")]
    fn complete(
        &mut self,
        name: &str,
        (op, first, end): Key,
        kind: &str,
        failed: bool,
        now: u64,
        at: u64,
        rows: &mut Rows,
        out: &mut Vec<Record>,
    ) -> Result<(), Fault> {
        let device = self.devices.entry(name.to_owned()).or_default();
        let by = if device.queues { &mut device.queued } else { &mut device.issued };
        // The kernel's own flush is for one that was queued, or several, each of which is told as complete.
        let is_step = op == Op::Fdatasync && device.queues && kind == "FN";
        let inside: Vec<Key> = match op {
            _ if is_step => Vec::new(),
            Op::Fdatasync => by.range((op, 0, 0)..(op, u64::MAX, 0)).take(1).map(|(key, _)| *key).collect(),
            // What begins before may have been split.
            _ => {
                let before = by.range((op, 0, 0)..(op, first, 0)).next_back();
                before
                    .into_iter()
                    .chain(by.range((op, first, 0)..(op, end, 0)))
                    .take(MAX_INSIDE)
                    .map(|(key, _)| *key)
                    .collect()
            }
        };
        let mut done = Vec::new();
        for key in inside {
            let Some(mut pending) = by.remove(&key) else { continue };
            let until = end.min(pending.first + pending.sectors);
            pending.left = pending.left.saturating_sub(until.saturating_sub(first.max(pending.first)));
            if pending.left > 0 {
                by.insert(key, pending);
            } else {
                self.in_flight -= 1;
                done.push(pending);
            }
        }
        if done.is_empty() {
            let within = |(latest, from, until): Key| latest == op && from <= first && end <= until;
            let is_told = op == Op::Fdatasync || device.latest.is_some_and(within);
            rows.skip(if is_told { STEPS } else { SkipReason::Headless }, at);
            return Ok(());
        }
        device.latest = Some((op, first, end));
        if !device.queues {
            self.unqueued += done.len() as u64;
        }
        let path = rows.text(format!("/dev/block/{}", name.replace(',', ":")));
        for Pending { start, sectors, first, pid, program, flags, .. } in done {
            if failed {
                rows.skip(SkipReason::Failed, at);
                continue;
            }
            let duration = now.saturating_sub(start);
            let size = sectors * SECTOR;
            let place = if op == Op::Fdatasync { Place::Next } else { Place::At(first * SECTOR) };
            let (moved, tid, program) = (size, pid, rows.text(program));
            let moves = Call { op, place, size, moved, flags, ..Call::default() };
            let call = Call { start, duration, pid, tid, path, program, ..moves };
            rows.take(call, at, out).map_err(|fault| (4, fault))?;
        }
        Ok(())
    }

    /// Too many requests have no completion: the oldest of all is not waited for any more.
    fn give_up_oldest(&mut self, rows: &mut Rows) {
        let all = |device: &Device| {
            let queued = device.queued.iter().map(|(key, pending)| (pending.line, *key));
            queued.chain(device.issued.iter().map(|(key, pending)| (pending.line, *key))).collect::<Vec<_>>()
        };
        // Half of them at once, so that the search is rare.
        let mut lines: Vec<u64> = self.devices.values().flat_map(all).map(|(line, _)| line).collect();
        lines.sort_unstable();
        let until = lines[lines.len() / 2];
        for device in self.devices.values_mut() {
            for pending in [&mut device.queued, &mut device.issued] {
                pending.retain(|_, pending| {
                    let stays = pending.line > until;
                    if !stays {
                        rows.skip(SkipReason::Endless, pending.line);
                    }
                    stays
                });
            }
        }
        self.in_flight = self.devices.values().map(|device| device.queued.len() + device.issued.len()).sum();
    }
}

/// A write that the device has to have before it is complete: an F behind the W.
fn fua(kind: &str) -> bool {
    kind.split_once('W').is_some_and(|(_, after)| after.contains('F'))
}

/// First sector and number of sectors in `KIND FIRST + COUNT [PROGRAM]`, `KIND [PROGRAM]` or, where a request
/// is complete, `KIND FIRST [ERROR]`. None of a command, which has its bytes in hexadecimal instead.
fn range(rest: &[&str], complete: bool) -> Result<Option<(u64, u64)>, Fault> {
    let word = |at: usize| rest.get(at).copied().unwrap_or_default();
    let number = |at: usize, what: &str, most| by_line::number(7 + at, what, word(at), most);
    match (word(1), word(2)) {
        (_, "+") => {
            let first = number(1, "the sector", i64::MAX as u64 / SECTOR - MAX_SECTORS)?;
            Ok(Some((first, number(3, "the number of sectors", MAX_SECTORS)?)))
        }
        (first, _) if first.starts_with('[') => Ok(Some((0, 0))),
        // In parentheses there is what blkparse found the time until then to be (-t), or a command.
        (first, _) if first.starts_with('(') => Ok((!complete).then_some((0, 0))),
        _ if complete => {
            number(1, "the sector", u64::MAX)?;
            Ok(Some((0, 0)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
