//! Reads beside the flusher: what of its requests the device has when a read comes, as writeback throttling
//! (block/blk-wbt.c, block/blk-rq-qos.c, 6.18) lets it.
//!
//! The law: a device that serves requests in the order in which they come lets a read wait for those of the
//! flusher that it has. They are at most [`Wbt::depth`]: 16 to begin with, twice as many after each window
//! of 100 ms in which there are only writes, half as many after one in which even the fastest read took
//! longer than the target. A writer that was paused within the last second gets all of them, else the flusher
//! gets a quarter. With a write cache it gets further ones when the device has none left.

use std::collections::VecDeque;

use super::Machine;
use crate::cache::REQUEST;
use crate::profile::QueueConstants;
use crate::units::{Pages, Seconds};

/// Requests to begin with (`RWB_DEF_DEPTH`).
const DEPTH: u64 = 16;
/// A window (`RWB_WINDOW_NSEC`).
const WINDOW: Seconds = Seconds(0.1);
/// Fewest writes of a window that say something (`RWB_MIN_WRITE_SAMPLES`).
const WRITES: f64 = 3.0;
/// Windows in a row that say nothing after which the depth goes back (`RWB_UNKNOWN_BUMP`).
const UNKNOWN: u32 = 5;
/// A pause counts so long (`wb_recent_wait`).
const RECENT: Seconds = Seconds(1.0);
/// Windows that are gone through one by one; longer ago nothing is remembered.
const WINDOWS: f64 = 64.0;
/// The last step of scaling up that makes a difference: 16 << 16 requests are more than any device has.
const LAST_STEP: i32 = -16;

/// Reads under way that are told apart.
const MAX_READS: usize = 256;

/// What is known of a device's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueueFacts {
    /// Latency of a read above which the flusher gets fewer requests; 0: it gets all.
    pub target: Seconds,
    /// Requests that the queue holds.
    pub requests: u64,
    /// The device has a volatile cache.
    pub write_cache: bool,
    /// The part of the flusher's requests in the device that a read waits for, between 0 and 1.
    pub behind: f64,
}

impl QueueFacts {
    pub fn of(queue: &QueueConstants) -> QueueFacts {
        QueueFacts {
            target: queue.wbt_latency.into(),
            requests: queue.requests,
            write_cache: queue.write_cache,
            behind: queue.reads_wait.value,
        }
    }
}

/// A read that the device was asked for: when, and when it has come.
#[derive(Clone, Copy, Debug)]
struct Sample {
    asked: Seconds,
    done: Seconds,
}

/// A window in which latencies are watched.
#[derive(Clone, Copy, Debug)]
struct Window {
    begin: Seconds,
    length: Seconds,
    /// Pages that the device had written since its first one.
    written: Pages,
}

/// The flusher's wbt of a device's queue (`struct rq_wb`).
#[derive(Clone, Debug, Default)]
pub struct Wbt {
    pub facts: QueueFacts,
    /// Steps of halving from the depth to begin with; of doubling, if negative.
    step: i32,
    unknown: u32,
    window: Option<Window>,
    samples: VecDeque<Sample>,
    /// When the device reads, of which the flusher's pages are told at once.
    reading: VecDeque<(Seconds, Seconds)>,
    /// Pages written since the first one, as of the latest read, and when that begins.
    written: Pages,
    ahead: Pages,
}

/// What a window says (`latency_exceeded`).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    Fast,
    Slow,
    OnlyWrites,
    Nothing,
}

impl Wbt {
    /// Requests that the flusher may have at most, by the steps so far (`rq_depth_calc_max_depth`).
    fn depth(&self) -> u64 {
        let all = self.facts.requests.max(1);
        if all == 1 {
            return if self.step > 0 { 1 } else { 2 };
        }
        let depth = DEPTH.min(all) - 1;
        match self.step {
            step @ 1.. => 1 + (depth >> step.min(31)),
            step => (1 + (depth << (-step).min(31))).min(if step < 0 { 3 * all / 4 } else { all }),
        }
    }

    /// Most requests that the flusher has, and how many are left when it gets further ones (`get_limit`,
    /// `wbt_rqw_done`); `recent` if a writer was paused lately.
    fn range(&self, recent: bool) -> (u64, u64) {
        if self.facts.target <= Seconds::ZERO {
            return (self.facts.requests.max(1), self.facts.requests.max(1) - 1);
        }
        let depth = self.depth();
        let (normal, background) =
            if depth <= 2 { (depth, 1) } else { (depth.div_ceil(2), depth.div_ceil(4)) };
        match (recent, self.facts.write_cache) {
            (true, _) => (depth, normal - (background / 2).max(1)),
            (false, true) => (background, 0),
            (false, false) => (background, background - 1),
        }
    }

    /// Pages of the flusher's that the device has after so many `written` since the first one.
    fn given(&self, written: Pages, recent: bool) -> Pages {
        let (most, left) = self.range(recent);
        let since = written.0.rem_euclid(((most - left) * REQUEST) as f64);
        Pages::of(most * REQUEST) - Pages(since)
    }

    /// The device has written so many pages by now. If these are fewer than were told before (a device may
    /// turn out to be late), the windows and the read ahead of it move back by the difference.
    fn follow(&mut self, written: Pages) {
        let back = (self.written - written).max(Pages::ZERO);
        self.ahead -= back;
        self.window = self.window.map(|window| Window { written: window.written - back, ..window });
        self.written = written;
    }

    /// Lets windows pass up to `now`, by when so many pages are `written`; a writer was last paused
    /// at `paused`.
    fn pass(&mut self, now: Seconds, written: Pages, paused: Seconds, in_flight: bool) {
        if self.facts.target <= Seconds::ZERO {
            return;
        }
        if let Some(window) = self.window.filter(|window| now - window.begin > WINDOWS * WINDOW) {
            // What was is forgotten, and the flusher alone may have all.
            let step = if in_flight && written > window.written { LAST_STEP } else { 0 };
            (self.window, self.step, self.unknown) = (None, step, 0);
            self.samples.retain(|sample| sample.done > now);
        }
        while let Some(window) = self.window.filter(|window| window.begin + window.length <= now) {
            let end = window.begin + window.length;
            let part = window.length / (now - window.begin);
            let then = window.written + (written - window.written) * part;
            let writes = (then - window.written) / Pages::of(REQUEST);
            let seen = self.seen(window, writes, end - paused < RECENT || in_flight);
            self.scale(seen);
            self.window = (self.step != 0 || in_flight).then(|| self.window_at(end, then));
        }
        if self.window.is_none() && in_flight {
            self.window = Some(self.window_at(now, written));
        }
    }

    /// `rwb_arm_timer`.
    fn window_at(&self, begin: Seconds, written: Pages) -> Window {
        Window { begin, length: WINDOW / f64::from(self.step.max(0) + 1).sqrt(), written }
    }

    /// `latency_exceeded` at the end of a window.
    fn seen(&mut self, window: Window, writes: f64, writing: bool) -> Seen {
        let end = window.begin + window.length;
        let (mut fastest, mut oldest) = (Seconds::INFINITY, Seconds::ZERO);
        self.samples.retain(|sample| {
            if sample.done > end {
                oldest = oldest.max(end - sample.asked);
                return true;
            }
            if sample.done > window.begin {
                fastest = fastest.min(sample.done - sample.asked);
            }
            false
        });
        if oldest > window.length || oldest > self.facts.target && fastest == Seconds::INFINITY {
            Seen::Slow
        } else if fastest == Seconds::INFINITY || writes < WRITES {
            if writes > 0.0 || writing { Seen::OnlyWrites } else { Seen::Nothing }
        } else if fastest > self.facts.target {
            Seen::Slow
        } else {
            Seen::Fast
        }
    }

    /// `wb_timer_fn`.
    fn scale(&mut self, seen: Seen) {
        let most = self.facts.requests * 3 / 4;
        match seen {
            Seen::Slow if self.depth() == 1 => {}
            Seen::Slow if self.step < 0 => self.step = 0,
            Seen::Slow => self.step += 1,
            Seen::Fast | Seen::OnlyWrites if self.step < 0 && self.depth() >= most => {}
            Seen::Fast | Seen::OnlyWrites => self.step = (self.step - 1).max(LAST_STEP),
            Seen::Nothing => {
                self.unknown += 1;
                if self.unknown >= UNKNOWN {
                    self.step -= self.step.signum();
                    self.unknown = 0;
                }
                return;
            }
        }
        self.unknown = 0;
    }
}

impl Machine {
    /// Pages that the device has written since the first one by now, what it will read later left out.
    fn written_by_now(&mut self, at: usize) -> Pages {
        self.drain(at);
        let now = self.now;
        let device = &mut self.devices[at];
        device.wbt.reading.retain(|(_, until)| *until > now);
        let later: Seconds = device.wbt.reading.iter().map(|(from, until)| *until - from.max(now)).sum();
        Pages::of(device.written) + device.carry + device.speed() * later
    }

    /// What the device takes for the flusher's requests that a read waits for which comes now.
    pub fn writes_ahead(&mut self, at: usize) -> Seconds {
        let written = self.written_by_now(at);
        let (now, device) = (self.now, &mut self.devices[at]);
        let in_flight = device.in_flight > 0;
        device.wbt.follow(written);
        device.wbt.pass(now, written, device.paused, in_flight);
        if !in_flight || device.wbt.facts.behind <= 0.0 {
            return Seconds::ZERO;
        }
        let left = Pages::of(device.written + device.in_flight);
        let given = (written + device.wbt.given(written, now - device.paused < RECENT)).min(left);
        let before = device.wbt.ahead.max(written);
        device.wbt.ahead = device.wbt.ahead.max(given);
        (given - before).max(Pages::ZERO) * device.wbt.facts.behind / device.speed()
    }

    /// The device reads from `from` until `until`, what it was asked for now; so many `requests`.
    pub fn begin_read(&mut self, at: usize, from: Seconds, until: Seconds, requests: u64) {
        self.stand_still(at, until - from);
        let (now, device) = (self.now, &mut self.devices[at]);
        let wbt = &mut device.wbt;
        if device.in_flight == 0 || wbt.facts.behind <= 0.0 {
            return;
        }
        let is_full = wbt.reading.len() >= MAX_READS;
        match wbt.reading.back_mut().filter(|_| is_full) {
            Some(last) => last.1 += until - from,
            None => wbt.reading.push_back((from, until)),
        }
        if wbt.facts.target <= Seconds::ZERO || wbt.samples.len() >= MAX_READS {
            return;
        }
        for number in 1..=requests.min(UNKNOWN.into()) {
            let done = from + (until - from) * number as f64 / requests as f64;
            wbt.samples.push_back(Sample { asked: now, done });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wbt(write_cache: bool) -> Wbt {
        let facts = QueueFacts { target: Seconds(2e-3), requests: 128, write_cache, behind: 1.0 };
        Wbt { facts, ..Wbt::default() }
    }

    /// The depth after each of so many windows, all of which say the same.
    fn depths(wbt: &mut Wbt, seen: Seen, windows: usize) -> Vec<u64> {
        let depth = |_| {
            wbt.scale(seen);
            wbt.depth()
        };
        (0..windows).map(depth).collect()
    }

    #[test]
    fn writes_alone_get_three_quarters_of_the_queue_and_slow_reads_all_but_one_request() {
        let mut wbt = wbt(true);
        assert_eq!(depths(&mut wbt, Seen::OnlyWrites, 5), [31, 61, 96, 96, 96]);
        assert_eq!(depths(&mut wbt, Seen::Slow, 6), [16, 8, 4, 2, 1, 1]);
        assert_eq!(depths(&mut wbt, Seen::Fast, 5), [2, 4, 8, 16, 31]);
        // Idle windows lead back, one of five.
        assert_eq!(depths(&mut wbt, Seen::Nothing, 6), [31, 31, 31, 31, 16, 16]);
    }

    #[test]
    fn the_flusher_has_a_quarter_unless_a_writer_is_held_back() {
        let (cached, plain) = (wbt(true), wbt(false));
        assert_eq!((cached.range(false), cached.range(true)), ((4, 0), (16, 6)));
        assert_eq!((plain.range(false), plain.range(true)), ((4, 3), (16, 6)));
        let narrow = Wbt { step: 4, ..wbt(true) };
        assert_eq!((narrow.range(false), narrow.range(true)), ((1, 0), (1, 0)));
        let off = QueueFacts { target: Seconds::ZERO, ..wbt(true).facts };
        assert_eq!(Wbt { facts: off, ..Wbt::default() }.range(false), (128, 127));
    }

    #[test]
    fn a_device_is_given_further_requests_when_it_has_none() {
        let wbt = wbt(true);
        let of = |requests: f64| wbt.given(requests * Pages::of(REQUEST), false) / Pages::of(REQUEST);
        assert_eq!([0.0, 0.5, 3.0, 3.5, 4.0, 6.0].map(of), [4.0, 3.5, 1.0, 0.5, 4.0, 2.0]);
    }

    #[test]
    fn windows_are_judged_by_their_fastest_read() {
        let many = 10.0 * Pages::of(REQUEST);
        let mut wbt = wbt(true);
        wbt.pass(Seconds::ZERO, Pages::ZERO, Seconds::ZERO, true);
        let pass = |wbt: &mut Wbt, now: f64, written: Pages, in_flight: bool| {
            wbt.pass(Seconds(now), written, Seconds::ZERO, in_flight);
        };
        let samples = |wbt: &mut Wbt, from: f64, latency: f64| {
            let all = (0..8).map(|at| from + 0.01 * f64::from(at));
            let sample = |asked| Sample { asked: Seconds(asked), done: Seconds(asked + latency) };
            wbt.samples.extend(all.map(sample));
        };
        samples(&mut wbt, 0.0, 3e-3);
        pass(&mut wbt, 0.1, many, true);
        assert_eq!((wbt.step, wbt.depth()), (1, 8));
        // One fast read is enough, and the window is shorter by the square root of the step.
        samples(&mut wbt, 0.1, 3e-3);
        samples(&mut wbt, 0.1, 1e-3);
        pass(&mut wbt, 0.1 + 0.07, 2.0 * many, true);
        assert_eq!(wbt.step, 1);
        pass(&mut wbt, 0.1 + 0.071, 2.0 * many, true);
        assert_eq!(wbt.step, 0);
        // One that does not come at all.
        wbt.samples.clear();
        wbt.samples.push_back(Sample { asked: Seconds(0.18), done: Seconds(9.0) });
        pass(&mut wbt, 0.28, 3.0 * many, true);
        assert_eq!(wbt.step, 1);
        // Too few writes say nothing of reads.
        wbt.samples.clear();
        samples(&mut wbt, 0.28, 3e-3);
        pass(&mut wbt, 0.35, 3.0 * many + Pages(1.0), true);
        assert_eq!(wbt.step, 0);
        // After a long time of nothing, nothing is known.
        pass(&mut wbt, 100.0, 3.0 * many + Pages(1.0), false);
        assert_eq!((wbt.step, wbt.window.is_some()), (0, false));
    }
}
