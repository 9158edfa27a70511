//! fio's latency logs (`write_lat_log`): each read and write, when it ended, and how long it took.
//!
//! The law: **a row's duration is measured, its start is inferred.** A log has the millisecond in which a
//! call ended, and since fio 3.39 (`log_issue_time`) the nanosecond in which it began.

use cawl_core::Record;
use cawl_wire::{MAX_BYTES, Op, flag};

use super::by_line::{self, Fault, Format};
use super::rows::{Call, Kind, Place, Rows};
use super::{LATE, SkipReason, shown, whole_number};

const MILLISECOND: u64 = 1_000_000;

/// A log, which is of one job.
#[derive(Clone, Debug, Default)]
struct Job {
    name: String,
    /// Start and end of the latest call, in ns.
    latest: (u64, u64),
    /// The fifth of five columns is an offset: fio before 3.21 has no priority there.
    fifth_is_offset: bool,
}

/// What the lines of a latency log are.
#[derive(Debug, Default)]
pub struct Latencies {
    flags: u32,
    jobs: Vec<Job>,
    job: usize,
    /// `lat` or `clat`, by the names of the files; empty if they do not tell.
    of: &'static str,
    inferred: u64,
    placed: bool,
}

impl Latencies {
    /// Every file was open with these flags ([`flag`]).
    pub(crate) fn new(flags: u32) -> Latencies {
        Latencies { flags, ..Latencies::default() }
    }
}

const PLACELESS: &str = "calls without offset, put one behind the other (record with log_offset=1)";

impl Format for Latencies {
    const KIND: Kind = Kind {
        name: "fio-lat",
        untimed: Some("calls with a latency of 0, which are predicted and not compared"),
        unsorted: "a log is in order of time; do not join several by hand, name them all",
        of_day: false,
    };
    const EMPTY: &'static str = "record with fio's write_lat_log=NAME log_offset=1, and give NAME_clat.*.log";

    fn begin(&mut self, name: &str) -> Result<(), String> {
        let base = name.rsplit('/').next().unwrap_or(name);
        let base = base.strip_suffix(".gz").unwrap_or(base);
        let base = base.strip_suffix(".log").unwrap_or(base);
        let parts = ["slat", "clat", "lat", "bw", "iops", "hist"].iter().find_map(|kind| {
            let at = base.rfind(&format!("_{kind}"))?;
            let rest = &base[at + kind.len() + 1..];
            (rest.is_empty() || rest.starts_with('.')).then(|| (*kind, format!("{}{rest}", &base[..at])))
        });
        let name = match parts {
            None if base.is_empty() || base == "-" => "file".to_owned(),
            None => base.to_owned(),
            Some((kind @ ("slat" | "bw" | "iops" | "hist"), _)) => {
                return Err(format!(
                    "a {kind} log has no durations of calls; give the _clat or the _lat logs"
                ));
            }
            Some((kind, _)) if !self.of.is_empty() && self.of != kind => {
                return Err("_lat and _clat logs tell of the same calls; give those of one kind".to_owned());
            }
            Some((kind, job)) => {
                self.of = kind;
                job
            }
        };
        self.jobs.push(Job { name, ..Job::default() });
        Ok(())
    }

    fn select(&mut self, input: usize) {
        self.job = input;
    }

    fn line(&mut self, line: &str, at: u64, rows: &mut Rows, out: &mut Vec<Record>) -> Result<(), Fault> {
        let job = &mut self.jobs[self.job];
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if !(4..=7).contains(&fields.len()) {
            let fault = format!(
                "the line has {} fields with commas between, and a row of fio's latency logs 4 to 7: time, \
                 latency, direction, block size, offset, priority, issue time",
                fields.len()
            );
            return Err((0, fault));
        }
        let number = |field: usize, what: &str| by_line::number(field, what, fields[field - 1], u64::MAX);
        let ended =
            number(1, "the time")?.checked_mul(MILLISECOND).ok_or((1, format!("the time is {LATE}")))?;
        let duration = number(2, "the latency")?;
        let op = match fields[2] {
            "0" => Op::Pread,
            "1" => Op::Pwrite,
            "2" => {
                rows.skip(SkipReason::Unmodelled("trim".to_owned()), at);
                return Ok(());
            }
            other => {
                let fault = format!("the direction is \"{}\", none of 0, 1 and 2", shown(other));
                return Err((3, fault));
            }
        };
        let size = number(4, "the block size")?;
        if size == 0 || size > MAX_BYTES as u64 {
            let fault = format!(
                "the block size is {size}: the row is no call but a mean of a window; record without log_avg_msec"
            );
            return Err((4, fault));
        }
        let is_priority = |text: &str| matches!(text, "0" | "1") || text.starts_with("0x");
        let fifth_is_offset = job.fifth_is_offset || fields.len() == 5 && !is_priority(fields[4]);
        let offset = match fields.len() {
            5 if fifth_is_offset => Some(number(5, "the offset")?),
            6 | 7 => Some(number(5, "the offset")?),
            _ => None,
        };
        let issued = if fields.len() == 7 { Some(number(7, "the issue time")?) } else { None };
        // In order of the ends, and one behind the other where that is possible within the millisecond.
        let inferred = issued.is_none();
        let start = issued.unwrap_or_else(|| {
            let earliest = ended.saturating_sub(duration).max(job.latest.0);
            let behind = earliest.max(job.latest.1);
            if behind.saturating_add(duration) < ended.saturating_add(MILLISECOND) {
                behind
            } else {
                earliest
            }
        });
        let end =
            Rows::end(start, duration).map_err(|why| (2, format!("the latency is {duration}, {why}")))?;
        let pid = self.job as u32 + 1;
        let place = offset.map_or(Place::Next, Place::At);
        let (op, flags) = match (offset, op) {
            (Some(_), _) => (op, self.flags),
            (None, Op::Pread) => (Op::Read, self.flags | flag::ESTIMATED),
            (None, _) => (Op::Write, self.flags | flag::ESTIMATED),
        };
        let (moved, tid, path, program) = (size, pid, rows.text(&job.name), rows.text("fio"));
        let moves = Call { op, place, size, moved, flags, ..Call::default() };
        let call = Call { start, duration, pid, tid, path, program, ..moves };
        rows.take(call, at, out).map_err(|fault| (1, fault))?;
        if offset.is_none() {
            rows.skip(SkipReason::Vague(PLACELESS), at);
        }
        (job.latest, job.fifth_is_offset) = ((start, end), fifth_is_offset);
        self.inferred += u64::from(inferred);
        self.placed |= offset.is_some();
        Ok(())
    }

    fn finish(&mut self, rows: &mut Rows) {
        if self.inferred > 0 {
            rows.note(
                "a log has the millisecond in which a call ended: calls of a job are put in order of their ends, one \
                 behind the other where that millisecond has room (exact with log_issue_time=1 of fio 3.39)",
            );
        }
        rows.note("logs do not name files: each job is taken to have one, named as the log");
        rows.note("logs have no opens, closes, syncs, lengths and flags; tell flags with --flags O_DIRECT,…");
    }

    fn time(&self, line: &str) -> Option<u64> {
        whole_number(line.split(',').next()?.trim().as_bytes())?.checked_mul(MILLISECOND)
    }
}

#[cfg(test)]
mod tests;
