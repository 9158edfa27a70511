//! The last day, in bounded memory: points of 1 s for 10 minutes, of 10 s for 3 hours, of a minute for 24
//! hours.
//!
//! The law of this module: **every sum is exact at every resolution.** A coarser point is the sum of finer
//! ones, never a sample of them.

use std::collections::VecDeque;

use cawl_client::protocol::{self, CauseSeconds, HistoryPoint, PROTOCOL};
use cawl_core::{Bytes, CallSums, DirtyLimits, Level, Nanos, Regime, Time};
use cawl_host::clock::Clocks;

/// Length of a point in seconds, and the number of points kept.
const TIERS: [(u64, usize); 3] = [(1, 600), (10, 1080), (60, 1440)];

/// Default number of points in an answer, and its default span in seconds.
const POINTS: usize = 600;
const SPAN: f64 = 600.0;

const SECOND: u64 = 1_000_000_000;

/// What happened in a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// The calls; bytes are those written to files.
    pub calls: CallSums,
    /// Bytes written back by the kernel.
    pub written: u64,
    /// The kernel's pauses of writers; None if unknown.
    pub paused: Option<Nanos>,
    /// Events lost.
    pub drops: u64,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        self.calls.add_all(&other.calls);
        self.written += other.written;
        self.paused = match (self.paused, other.paused) {
            (Some(one), Some(more)) => Some(one + more),
            (one, more) => one.or(more),
        };
        self.drops += other.drops;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    /// Its begin and end by CLOCK_BOOTTIME, in whole seconds.
    begin: u64,
    end: u64,
    /// Seconds between them, without suspends.
    span: u64,
    sums: Sums,
    modelled: Level,
    sampled: Level,
    /// Their difference at each sample.
    apart: Level,
    limits: Option<DirtyLimits>,
    regime: Regime,
}

impl Point {
    fn add(&mut self, next: &Point) {
        self.end = next.end;
        self.span += next.span;
        self.sums.add(&next.sums);
        self.modelled.add(&next.modelled);
        self.sampled.add(&next.sampled);
        self.apart.add(&next.apart);
        self.limits = next.limits.or(self.limits);
        self.regime = self.regime.max(next.regime);
    }

    fn answer(&self, clocks: &Clocks) -> HistoryPoint {
        let Point { sums: Sums { calls, .. }, modelled, sampled, .. } = self;
        HistoryPoint {
            time_s: clocks.unix_of_boot(Time(self.begin * SECOND)),
            span_s: self.span as f64,
            modelled_dirty_bytes: modelled.mean().unwrap_or_default().0,
            modelled_dirty_max_bytes: modelled.max,
            sampled_dirty_bytes: sampled.mean().map(|mean| mean.0),
            dirty_error_bytes: self.apart.mean().map(|mean| mean.0),
            sampled_dirty_max_bytes: sampled.mean().map(|_| sampled.max),
            background_bytes: self.limits.map_or(0, |limits| limits.background.0),
            hard_bytes: self.limits.map_or(0, |limits| limits.hard.0),
            state: self.regime,
            calls: calls.count.calls,
            bytes: calls.count.bytes,
            observed_s: calls.observed.as_seconds(),
            predicted_s: calls.predicted.as_seconds(),
            throttled_s: calls.throttled.as_seconds(),
            sync_s: calls.sync.as_seconds(),
            causes_s: CauseSeconds::from(calls.time.observed()),
            written_bytes: self.sums.written,
            paused_s: self.sums.paused.map(Nanos::as_seconds),
            drops: self.sums.drops,
        }
    }
}

/// The past day, in points of growing length.
#[derive(Debug, Default)]
pub struct History {
    /// The current second, and CLOCK_MONOTONIC at its begin.
    current: Point,
    began: Time,
    /// The points of each of [`TIERS`]; the last one may be incomplete.
    tiers: [VecDeque<Point>; TIERS.len()],
}

impl History {
    /// Adds calls or bytes written back.
    pub fn add(&mut self, sums: &Sums) {
        self.current.sums.add(sums);
    }

    /// Takes the model's present level and limits.
    pub fn modelled(&mut self, dirty: Bytes, limits: DirtyLimits, regime: Regime) {
        self.current.modelled.sample(dirty);
        self.current.limits = Some(limits);
        self.current.regime = self.current.regime.max(regime);
    }

    /// Takes the kernel's present count of dirty bytes.
    pub fn sampled(&mut self, dirty: Bytes) {
        self.current.sampled.sample(dirty);
    }

    /// Takes the difference of model and kernel at a sample, before the model was corrected.
    pub fn apart(&mut self, apart: Bytes) {
        self.current.apart.sample(apart);
    }

    /// Time has passed.
    pub fn pass(&mut self, clocks: &Clocks) {
        let second = clocks.boot.0 / SECOND;
        if self.current.end == 0 {
            self.begin(second, clocks.monotonic);
        }
        if second < self.current.end {
            return;
        }
        // A second may be longer when this is not called. Suspends do not count.
        let awake = clocks.monotonic.since(self.began).as_seconds().round() as u64;
        let span = awake.clamp(1, second - self.current.begin);
        let ended = Point { end: self.current.begin + span, span, ..std::mem::take(&mut self.current) };
        for ((length, most), points) in TIERS.into_iter().zip(&mut self.tiers) {
            match points.back_mut() {
                Some(last) if last.begin / length == ended.begin / length => last.add(&ended),
                _ => {
                    if points.len() == most {
                        points.pop_front();
                    }
                    points.push_back(ended);
                }
            }
        }
        self.begin(second, clocks.monotonic);
    }

    fn begin(&mut self, second: u64, monotonic: Time) {
        (self.current.begin, self.current.end) = (second, second + 1);
        self.began = monotonic;
    }

    /// The latest part, in a bounded number of points.
    pub fn answer(&self, span: &protocol::HistorySpan, clocks: &Clocks) -> protocol::History {
        let last = span.last_s.filter(|s| s.is_finite() && *s > 0.0).unwrap_or(SPAN);
        let most = span.points.unwrap_or(POINTS).clamp(1, TIERS.iter().map(|(_, most)| most).sum());
        let covers = |(length, most): &(u64, usize)| (*length * *most as u64) as f64 >= last;
        let tier = TIERS.iter().position(covers).unwrap_or(TIERS.len() - 1);
        let now = clocks.boot.0 / SECOND;
        let since = now.saturating_sub(last.ceil() as u64);
        let points = &self.tiers[tier];
        let first = points.partition_point(|point| point.end <= since);
        let each = (points.len() - first).div_ceil(most).max(1);
        let points: Vec<Point> = points.range(first..).copied().collect();
        let answer = |part: &[Point]| {
            let mut sum = part[0];
            part[1..].iter().for_each(|next| sum.add(next));
            sum.answer(clocks)
        };
        protocol::History { schema: PROTOCOL, points: points.chunks(each).map(answer).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_client::protocol::HistorySpan;
    use cawl_core::Tally;

    fn clocks(second: u64) -> Clocks {
        let boot = Time(second * SECOND);
        Clocks { monotonic: boot, boot, real: Time(boot.0 + 1_000_000 * SECOND) }
    }

    fn calls(calls: u64) -> Sums {
        let count = Tally { calls, bytes: 2 * calls };
        Sums { calls: CallSums { count, ..CallSums::default() }, ..Sums::default() }
    }

    /// Seconds 0 to `seconds`, each with as many calls as its number.
    fn of(seconds: u64) -> History {
        let mut history = History::default();
        for second in 0..=seconds {
            history.pass(&clocks(second));
            history.add(&calls(second));
            let limits = DirtyLimits { background: Bytes(10), hard: Bytes(20) };
            let regime = if second == 100 { Regime::Throttle } else { Regime::Free };
            history.modelled(Bytes(second), limits, regime);
        }
        history
    }

    fn asked(history: &History, now: u64, last: f64, points: usize) -> Vec<HistoryPoint> {
        let span = HistorySpan { last_s: Some(last), points: Some(points) };
        history.answer(&span, &clocks(now)).points
    }

    #[test]
    fn sums_are_exact_at_every_resolution() {
        let seconds = 86_400;
        let history = of(seconds);
        for (last, points) in
            [(10.0, 100), (600.0, 600), (600.0, 7), (3600.0, 50), (10_800.0, 5000), (86_400.0, 600)]
        {
            let answer = asked(&history, seconds, last, points);
            assert!(answer.len() <= points && !answer.is_empty());
            // Whole points only: the first may begin before the span.
            let first = (answer[0].time_s - 1_000_000.0) as u64;
            assert!(first <= seconds - last as u64 && first + 70 > seconds - last as u64, "{first}");
            let calls: u64 = answer.iter().map(|point| point.calls).sum();
            assert_eq!(calls, (first..seconds).sum::<u64>(), "{last} s in {points} points");
            assert_eq!(answer.iter().map(|point| point.bytes).sum::<u64>(), 2 * calls);
            let spans: f64 = answer.iter().map(|point| point.span_s).sum();
            assert_eq!(spans, (seconds - first) as f64);
        }
    }

    #[test]
    fn levels_are_means_and_the_worst_is_kept() {
        let history = of(200);
        let answer = asked(&history, 200, 200.0, 1);
        assert_eq!(answer[0].modelled_dirty_bytes, 99);
        assert_eq!(answer[0].modelled_dirty_max_bytes, 199);
        assert_eq!((answer[0].state, answer[0].sampled_dirty_bytes), (Regime::Throttle, None));
        assert_eq!((answer[0].background_bytes, answer[0].hard_bytes), (10, 20));
    }

    #[test]
    fn errors_and_pauses_are_kept_at_every_resolution() {
        let mut history = History::default();
        for second in 0..=100 {
            history.pass(&clocks(second));
            history.apart(Bytes(second));
            let paused = (second >= 50).then(|| Nanos::seconds(0.5));
            history.add(&Sums { paused, ..Sums::default() });
        }
        let one = asked(&history, 100, 100.0, 1)[0];
        assert_eq!((one.dirty_error_bytes, one.paused_s), (Some(49), Some(25.0)));
        let all = asked(&history, 100, 100.0, 100);
        assert_eq!((all[0].paused_s, all[99].paused_s), (None, Some(0.5)), "it tells from then on");
        assert_eq!(asked(&of(10), 10, 10.0, 1)[0].dirty_error_bytes, None);
    }

    #[test]
    fn months_take_no_more_room_than_a_day() {
        let history = of(30 * 86_400);
        let kept: Vec<usize> = history.tiers.iter().map(VecDeque::len).collect();
        assert_eq!(kept, [600, 1080, 1440]);
    }

    #[test]
    fn a_step_of_the_clock_moves_the_past_and_changes_no_span() {
        let history = of(300);
        let before = asked(&history, 300, 100.0, 100);
        let mut stepped = clocks(300);
        stepped.real = Time(5 * SECOND);
        let span = HistorySpan { last_s: Some(100.0), points: Some(100) };
        let after = history.answer(&span, &stepped).points;
        assert_eq!(before.len(), after.len());
        let moved = before[0].time_s - after[0].time_s;
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.time_s - after.time_s, moved);
            assert_eq!((before.calls, before.span_s), (after.calls, after.span_s));
        }
    }

    #[test]
    fn a_suspend_leaves_a_hole() {
        let mut history = of(100);
        let woken = |second: u64| Clocks { monotonic: Time((second - 9_900) * SECOND), ..clocks(second) };
        history.pass(&woken(10_001));
        history.add(&calls(1));
        history.pass(&woken(10_002));
        let answer = |last: f64, points: usize| {
            let span = HistorySpan { last_s: Some(last), points: Some(points) };
            history.answer(&span, &woken(10_002)).points
        };
        let late = answer(60.0, 60);
        assert_eq!((late.len(), late[0].calls), (1, 1), "the past before it is long ago");
        for points in [1, 10_000] {
            let all = answer(86_400.0, points);
            assert_eq!(all.iter().map(|point| point.calls).sum::<u64>(), (0..=100).sum::<u64>() + 1);
            assert_eq!(all.iter().map(|point| point.span_s).sum::<f64>(), 102.0, "nobody slept in a point");
        }
    }
}
