//! Waits until the kernel throttles writers as in the long run: by the limits in force, and by the device's
//! real bandwidth.
//!
//! Two estimates in mm/page-writeback.c follow slowly:
//!
//! - The kernel's smoothed limit (`dirty_limit`, `update_dirty_limit`) follows a higher setting at once, and
//!   a lower one by 1/32 of the gap per 200 ms, only while a writer is throttled.
//! - The device's bandwidth (`wb_update_write_bandwidth`) is a mean over about four seconds of writeback,
//!   starts at 100 MB/s, and sets the writers' base rate. Short bursts and synchronous writes lower both.
//!
//! Until both have settled, writers are throttled at another level and rate, and a measurement shows neither
//! the limits nor the device. Only throttled writing moves the estimates.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use cawl_core::{Bytes, Nanos, Rate, Sample, Time};
use cawl_host::tracefs::{self, Instance};

use crate::interrupt::Interrupted;
use crate::progress::Progress;
use crate::scratch::Scratch;

/// The kernel traces its smoothed limit when it computes the thresholds, as a read of /proc/vmstat makes it
/// do, and its estimates of the device when it changes the base rate.
const LIMIT: &str = "global_dirty_state";
pub(crate) const LEARNED: &str = "bdi_dirty_ratelimit";
/// Tolerances: of the smoothed limit against the setting, and of bandwidth and base rate against their values
/// WHILE ago.
const NEAR: f64 = 0.05;
const STEADY_BANDWIDTH: f64 = 0.03;
const STEADY_RATE: f64 = 0.1;
const WHILE: Nanos = Nanos::seconds(3.0);
/// The kernel's update interval in seconds (`BANDWIDTH_INTERVAL`), and the part of the gap left after one.
const STEP: f64 = 0.2;
const LEFT: f64 = 31.0 / 32.0;
/// Without tracepoints: time for the bandwidth to come within a twentieth, and the longest time for the
/// limit.
const LEARNING: Nanos = Nanos::seconds(12.0);
const BLIND: Nanos = Nanos::seconds(30.0);
/// The longest time with tracepoints.
const SEEING: Nanos = Nanos::seconds(60.0);
const FILE: &str = "throttled-writing";
const CHUNK: usize = 1 << 20;

const WHAT: &str = "throttled writing, until the kernel's own limit and bandwidth have followed";

/// The most that the wait may write and take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Bytes to write.
    pub bytes: Bytes,
    /// Time to take.
    pub time: Nanos,
}

impl Budget {
    /// At most this time, and any number of bytes.
    pub fn of_time(time: Nanos) -> Budget {
        Budget { bytes: Bytes(u64::MAX), time }
    }
}

/// What the wait came to.
#[derive(Debug)]
pub struct Outcome {
    /// Bytes that it wrote.
    pub written: Bytes,
    /// A remark for the user, where the kernel did not settle.
    pub note: Option<String>,
    /// The kernel's base rate for writers of this device (`dirty_ratelimit`), if traced.
    pub base_rate: Option<Rate>,
}

/// Writes until the kernel's smoothed limit has come down from `before` to the hard limit in force, and its
/// estimates of the device are steady. A signal stops it with an error.
pub fn follow(
    scratch: &Scratch,
    before: Bytes,
    budget: Budget,
    progress: &mut Progress,
    signal: &AtomicUsize,
) -> anyhow::Result<Outcome> {
    progress.begin(WHAT);
    let page = cawl_host::page();
    let mut outcome = Outcome { written: Bytes::ZERO, note: None, base_rate: None };
    let Some(mut last) = cawl_host::sample() else { return Ok(outcome) };
    let hard = Bytes(last.hard * page.0);
    // The file is written in circles; at this length a page is clean again before its next turn.
    let length = (hard.0 * 2).min(scratch.available()?.0 / 2) / CHUNK as u64 * CHUNK as u64;
    let trace = Instance::begin_if_possible(&[LIMIT, LEARNED], &tracefs::this_thread())?;
    let mut seen = Seen::new(before, hard);
    let longest = match trace {
        Some(_) => SEEING,
        None => throttled_time(before, hard).max(LEARNING).min(BLIND),
    };
    let longest = longest.min(budget.time);
    if length < hard.0 {
        outcome.note = seen.not_yet("there is too little free space to be throttled by it");
        return Ok(outcome);
    }

    let file = scratch.file(FILE)?;
    let data = vec![1; CHUNK];
    let mut at = 0;
    let mut throttled = Nanos::ZERO;
    let started = last.time;
    let why = loop {
        progress.show();
        Interrupted::by(signal)?;
        if outcome.written.0 + CHUNK as u64 > budget.bytes.0 {
            break "no more bytes may be written (--max-bytes)";
        }
        if throttled >= longest || last.time.since(started) >= longest * 2.0 {
            break "the time was too short";
        }
        file.write_all_at(&data, at).context(
            "throttled writing failed; if the disk or your quota is full, free some space or leave the limits alone",
        )?;
        at = (at + CHUNK as u64) % length;
        outcome.written.0 += CHUNK as u64;
        // The read makes the kernel trace its limit.
        let Some(now) = cawl_host::sample() else { break "the kernel's counters cannot be read" };
        let span = now.time.since(last.time);
        if span < Nanos::seconds(STEP) {
            continue;
        }
        if is_held_back(&last) && is_held_back(&now) {
            throttled += span;
        }
        last = now;
        if let Some(trace) = &trace {
            seen.read(&trace.take()?, now.time, page);
            if seen.is_enough() {
                break "";
            }
        }
    };
    drop(file);
    // Discards its dirty pages.
    scratch.remove(FILE);
    outcome.base_rate = seen.base_rate();
    outcome.note = match trace {
        Some(_) => seen.not_yet(why),
        None => Some(format!(
            "the kernel does not tell its own dirty limit and bandwidth (mount tracefs and be root): they were given \
             {:.0} s of throttled writing to follow",
            throttled.as_seconds()
        )),
    };
    Ok(outcome)
}

#[derive(Debug)]
struct Seen {
    hard: Bytes,
    limit: Bytes,
    /// Time, mean bandwidth and base rate, in the kernel's unit, over the last WHILE.
    learned: VecDeque<(Time, f64, f64)>,
}

impl Seen {
    fn new(limit: Bytes, hard: Bytes) -> Seen {
        Seen { hard, limit, learned: VecDeque::new() }
    }

    /// Takes the trace up to `now`.
    fn read(&mut self, trace: &str, now: Time, page: Bytes) {
        if let Some(pages) = last_of(trace, LIMIT, "limit=") {
            self.limit = Bytes((pages * page.as_f64()) as u64);
        }
        let bandwidth = last_of(trace, LEARNED, "awrite_bw=");
        let Some((bandwidth, rate)) = bandwidth.zip(last_of(trace, LEARNED, "dirty_ratelimit=")) else {
            return;
        };
        self.learned.push_back((now, bandwidth, rate));
        while self.learned.get(1).is_some_and(|second| now.since(second.0) >= WHILE) {
            self.learned.pop_front();
        }
    }

    fn base_rate(&self) -> Option<Rate> {
        self.learned.back().map(|(_, _, kib)| Rate::per_second(kib * 1024.0))
    }

    fn has_come_down(&self) -> bool {
        self.limit.as_f64() <= self.hard.as_f64() * (1.0 + NEAR)
    }

    fn is_steady(&self) -> bool {
        let Some((first, last)) = self.learned.front().zip(self.learned.back()) else { return false };
        let near = |now: f64, then: f64, part: f64| (now - then).abs() <= part * then;
        last.0.since(first.0) >= WHILE
            && near(last.1, first.1, STEADY_BANDWIDTH)
            && near(last.2, first.2, STEADY_RATE)
    }

    fn is_enough(&self) -> bool {
        self.has_come_down() && self.is_steady()
    }

    /// The remark for the user if the estimates have not settled; `why` says why.
    fn not_yet(&self, why: &str) -> Option<String> {
        let what = match (self.has_come_down(), self.is_steady()) {
            (true, true) => return None,
            (false, _) => format!(
                "the kernel's own dirty limit ({}) had not followed the lowered one ({})",
                self.limit, self.hard
            ),
            (true, false) => {
                "the kernel's estimate of the device's bandwidth had not become steady".to_owned()
            }
        };
        Some(format!("{what}: {why}; throttling may differ from that in the long run"))
    }
}

fn last_of(trace: &str, event: &str, field: &str) -> Option<f64> {
    let mut events = trace.lines().rev().filter_map(|line| Some(line.split_once(&format!(" {event}: "))?.1));
    events.find_map(|event| event.split_whitespace().find_map(|word| word.strip_prefix(field)?.parse().ok()))
}

/// The base rates of [`LEARNED`] events, in bytes per ns.
pub(crate) fn base_rates(trace: &str) -> Vec<f64> {
    let kib = trace.lines().filter_map(|line| last_of(line, LEARNED, "dirty_ratelimit="));
    kib.map(|kib| kib * 1024e-9).collect()
}

/// Time of throttled writing until the smoothed limit has come down from `before` to near `hard`.
fn throttled_time(before: Bytes, hard: Bytes) -> Nanos {
    let gap = (before.as_f64() - hard.as_f64()).max(0.0) / (hard.as_f64() * NEAR);
    Nanos::seconds((gap.max(1.0).ln() / -LEFT.ln()).ceil() * STEP)
}

/// True near freerun or above: there the kernel throttles writers.
fn is_held_back(sample: &Sample) -> bool {
    let freerun = f64::midpoint(sample.background as f64, sample.hard as f64);
    (sample.dirty + sample.writeback) as f64 > 0.95 * freerun
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes(4096);
    const HARD: Bytes = Bytes::mib(256);

    fn event(limit: u64, bandwidth: u64, rate: u64) -> String {
        format!(
            "  a-1 [000] ..... 1.0: {LIMIT}: dirty=1 writeback=0 bg_thresh=9 thresh=9 limit={limit} dirtied=1\n  a-1 \
             [000] ...1. 1.1: {LEARNED}: bdi 7:0: write_bw=1 awrite_bw={bandwidth} dirty_rate=2 \
             dirty_ratelimit={rate} task_ratelimit=3 balanced_dirty_ratelimit=4 cgroup_ino=1\n"
        )
    }

    #[test]
    fn enough_is_a_limit_that_followed_and_a_steady_bandwidth() {
        let mut seen = Seen::new(Bytes::mib(4096), HARD);
        let at = |seconds: f64| Time::default() + Nanos::seconds(seconds);
        seen.read(&event(1 << 20, 100_000, 40_000), at(0.0), PAGE);
        seen.read(&event(65_600, 390_000, 200_000), at(1.0), PAGE);
        seen.read(&event(65_600, 395_000, 205_000), at(2.0), PAGE);
        assert!(seen.has_come_down() && !seen.is_enough());
        seen.read(&event(65_600, 396_000, 205_000), at(3.5), PAGE);
        // Four times the first value.
        assert!(!seen.is_enough() && seen.not_yet("no time").unwrap().contains("bandwidth"));
        seen.read(&event(65_600, 396_000, 205_000), at(4.0), PAGE);
        assert!(seen.is_enough() && seen.not_yet("").is_none());
        assert_eq!(seen.base_rate(), Some(Rate::per_second(205_000.0 * 1024.0)));
        seen.read(&event(70_000, 396_000, 205_000), at(4.5), PAGE);
        assert!(!seen.is_enough() && seen.not_yet("no time").unwrap().contains("lowered one"));
    }

    #[test]
    fn base_rates_are_told_in_kib() {
        let rates = base_rates(&(event(1, 2, 250_000) + "CPU:0 [LOST 3 EVENTS]\n" + &event(1, 2, 1000)));
        let near = |rate: f64, told: f64| (rate / told - 1.0).abs() < 1e-9;
        assert!(rates.len() == 2 && near(rates[0], 0.256) && near(rates[1], 0.001_024), "{rates:?}");
    }

    #[test]
    fn a_trace_that_says_nothing_changes_nothing() {
        let mut seen = Seen::new(Bytes::mib(4096), HARD);
        seen.read("CPU:0 [LOST 3 EVENTS]\n", Time::default(), PAGE);
        assert!(seen.limit == Bytes::mib(4096) && seen.base_rate().is_none() && !seen.is_enough());
    }

    #[test]
    fn the_time_is_that_of_the_kernels_law() {
        let (before, mut steps) = (Bytes::mib(4096), 0);
        let mut limit = before.as_f64();
        while limit > HARD.as_f64() * (1.0 + NEAR) {
            limit -= (limit - HARD.as_f64()) / 32.0;
            steps += 1;
        }
        let time = throttled_time(before, HARD).as_seconds();
        assert!((time - f64::from(steps) * STEP).abs() < 1e-6, "{time}");
        assert!(throttled_time(HARD, before).as_seconds() <= 0.0);
    }
}
