//! A run over time, in bounded memory: at most [`BUCKETS`] buckets of equal width, and single calls to draw.
//!
//! The law of this module: **sums are exact.** When the buckets are full, their width doubles, and pairs
//! become one. The time of a call is divided among the buckets that it spans, in whole ns, so that the
//! buckets add up to the calls.

use cawl_wire::{Event, FileId};
use serde::{Deserialize, Serialize};

use crate::cause::{Cause, CauseTimes};
use crate::limits::DirtyLimits;
use crate::model::{Map, Prediction};
use crate::tally::Tally;
use crate::units::{Bytes, Nanos, Time};

/// Most buckets: more than a chart has pixels to tell apart.
const BUCKETS: usize = 1200;

/// Binary logarithm of a bucket's first width in ns; a width is a power of two, so that a shift finds the
/// bucket.
const FIRST_WIDTH: u32 = 10;

/// Most single calls kept evenly over all calls; the slowest call of each bucket is kept too.
const SINGLE: usize = 2048;

/// Longest path of a single call's file, in characters: the end of a longer one.
const PATH: usize = 100;

/// The golden ratio as a part of 2⁶⁴: multiples of it, modulo 2⁶⁴, are spread evenly, and have no period in
/// common with the calls of a program.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// A call as it is drawn.
#[derive(Clone, Copy, Debug)]
struct Single {
    event: Event,
    bytes: u64,
    predicted: Nanos,
    cause: Cause,
}

/// A level over a span of time: its readings, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Level {
    readings: u64,
    sum: f64,
    min: u64,
    /// The highest; 0 without any.
    pub max: u64,
    last: u64,
}

impl Level {
    /// Takes a reading.
    #[inline]
    pub fn sample(&mut self, level: Bytes) {
        let Bytes(level) = level;
        self.add(&Level { readings: 1, sum: level as f64, min: level, max: level, last: level });
    }

    /// Adds what came later.
    pub fn add(&mut self, later: &Level) {
        if later.readings > 0 {
            let min = if self.readings > 0 { self.min.min(later.min) } else { later.min };
            *self = Level {
                readings: self.readings + later.readings,
                sum: self.sum + later.sum,
                min,
                max: self.max.max(later.max),
                last: later.last,
            };
        }
    }

    /// Mean of the readings; None without any.
    pub fn mean(&self) -> Option<Bytes> {
        (self.readings > 0).then(|| Bytes::from_f64(self.sum / self.readings as f64))
    }
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    count: Tally,
    ns: CauseTimes,
    modelled: Level,
    sampled: Level,
    limits: Option<DirtyLimits>,
    slowest: Option<Single>,
}

impl Bucket {
    fn add(&mut self, later: &Bucket) {
        self.count.add_all(later.count);
        self.ns.add(&later.ns);
        self.modelled.add(&later.modelled);
        self.sampled.add(&later.sampled);
        self.limits = later.limits.or(self.limits);
        if let Some(slowest) = &later.slowest {
            self.rank(slowest);
        }
    }

    fn is_slower(&self, duration: u64) -> bool {
        self.slowest.is_none_or(|slowest| slowest.event.duration < duration)
    }

    fn rank(&mut self, call: &Single) {
        if self.is_slower(call.event.duration) {
            self.slowest = Some(*call);
        }
    }
}

/// The buckets of a run, and calls to draw.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Start of the first call.
    origin: Option<Time>,
    /// Binary logarithm of the width in ns.
    width: u32,
    buckets: Vec<Bucket>,
    calls: u64,
    /// Calls kept, each with its number times [`GOLDEN`], which is at most `2^64 >> halved`.
    single: Vec<(u64, Single)>,
    halved: u32,
}

impl Timeline {
    /// Takes a call with its prediction, and its time by cause.
    pub(crate) fn call(&mut self, event: &Event, bytes: u64, first: &Prediction, times: &CauseTimes) {
        let (begin, end) = self.add((event.start, event.end()), Tally { calls: 1, bytes }, times);
        self.buckets[end].modelled.sample(first.dirty);
        let place = self.calls.wrapping_mul(GOLDEN);
        self.calls += 1;
        let is_kept = place <= u64::MAX >> self.halved;
        if is_kept || self.buckets[begin].is_slower(event.duration) {
            let call = Single { event: *event, bytes, predicted: first.cost, cause: times.main() };
            self.buckets[begin].rank(&call);
            if is_kept {
                self.keep(place, &call);
            }
        }
    }

    /// Adds calls that went on from `start` to `end`; returns the buckets of these moments.
    pub(crate) fn add(
        &mut self,
        (start, end): (u64, u64),
        calls: Tally,
        times: &CauseTimes,
    ) -> (usize, usize) {
        let origin = self.origin.get_or_insert_with(|| {
            self.width = FIRST_WIDTH;
            Time(start)
        });
        let (start, end) = (start.saturating_sub(origin.0), end.saturating_sub(origin.0));
        let last = self.reach(end);
        let first = ((start >> self.width) as usize).min(last);
        let bucket = &mut self.buckets[first];
        bucket.count.add_all(calls);
        if first == last {
            bucket.ns.add(times);
        } else {
            self.spread(start, end, times);
        }
        (first, last)
    }

    /// Divides the parts of a call that spans several buckets: each gets its share of each part, rounded so
    /// that the shares add up.
    #[cold]
    fn spread(&mut self, start: u64, end: u64, times: &CauseTimes) {
        let whole = u128::from(end - start);
        for (cause, part) in times.iter().filter(|(_, part)| *part > 0) {
            let until = |moment: u64| (u128::from(part) * u128::from(moment - start) / whole) as u64;
            let mut given = 0;
            for index in start >> self.width..=end >> self.width {
                let border = ((u128::from(index) + 1) << self.width).min(u128::from(end)) as u64;
                let sum = &mut self.buckets[index as usize].ns[cause];
                *sum = sum.saturating_add(until(border) - given);
                given = until(border);
            }
        }
    }

    /// The bucket of a moment after the origin; the width doubles until there is one.
    fn reach(&mut self, moment: u64) -> usize {
        while (moment >> self.width) as usize >= BUCKETS {
            self.width += 1;
            let half = self.buckets.len().div_ceil(2);
            for at in 0..half {
                let mut pair = self.buckets[2 * at].clone();
                if let Some(later) = self.buckets.get(2 * at + 1) {
                    pair.add(later);
                }
                self.buckets[at] = pair;
            }
            self.buckets.truncate(half);
        }
        let index = (moment >> self.width) as usize;
        if index >= self.buckets.len() {
            self.buckets.resize(index + 1, Bucket::default());
        }
        index
    }

    /// Keeps a call; when there are too many, every second one goes.
    #[cold]
    fn keep(&mut self, place: u64, call: &Single) {
        if self.single.len() == SINGLE {
            self.halved += 1;
            let most = u64::MAX >> self.halved;
            self.single.retain(|(place, _)| *place <= most);
            if place > most {
                return;
            }
        }
        self.single.push((place, *call));
    }

    /// Takes a sample, with what was modelled at its moment. Samples before the first call are left out.
    pub(crate) fn sample(&mut self, at: Time, sampled: Bytes, limits: DirtyLimits, modelled: Option<Bytes>) {
        let Some(origin) = self.origin.filter(|origin| *origin <= at) else { return };
        let index = self.reach(at.0 - origin.0);
        let bucket = &mut self.buckets[index];
        bucket.sampled.sample(sampled);
        bucket.limits = Some(limits);
        if let Some(modelled) = modelled {
            bucket.modelled.sample(modelled);
        }
    }

    /// The run over time, as data. `first`: the start of the first call of any kind; `path`: that of a file.
    pub(crate) fn report(&self, first: Time, path: impl Fn(FileId) -> String) -> Option<TimelineReport> {
        let origin = self.origin?;
        let column = |of: fn(&Bucket) -> u64| self.buckets.iter().map(of).collect::<Vec<_>>();
        let causes = Cause::ALL.iter().map(|cause| {
            let ns = self.buckets.iter().map(|bucket| bucket.ns[*cause]).collect();
            CauseColumn { name: cause.name().to_owned(), ns }
        });
        let mut limits: Vec<LimitsFrom> = Vec::new();
        for (bucket, told) in self.buckets.iter().enumerate() {
            let Some(DirtyLimits { background: Bytes(background), hard: Bytes(hard) }) = told.limits else {
                continue;
            };
            if limits.last().is_none_or(|last| (last.background, last.hard) != (background, hard)) {
                limits.push(LimitsFrom { bucket, background, hard });
            }
        }
        Some(TimelineReport {
            from_ns: origin.0 as i64 - first.0 as i64,
            width_ns: 1 << self.width,
            calls: column(|bucket| bucket.count.calls),
            bytes: column(|bucket| bucket.count.bytes),
            causes: causes.filter(|column| column.ns.iter().any(|ns| *ns > 0)).collect(),
            modelled: self.levels(|bucket| &bucket.modelled),
            sampled: self.levels(|bucket| &bucket.sampled),
            limits,
            single: self.singles(first, path),
        })
    }

    fn levels(&self, of: fn(&Bucket) -> &Level) -> Levels {
        let column = |pick: fn(&Level) -> u64| {
            let levels = self.buckets.iter().map(of);
            levels.map(|level| (level.readings > 0).then(|| pick(level))).collect()
        };
        Levels {
            min: column(|level| level.min),
            max: column(|level| level.max),
            last: column(|level| level.last),
        }
    }

    /// The calls kept, and the slowest of each bucket, in order of start.
    fn singles(&self, first: Time, path: impl Fn(FileId) -> String) -> Singles {
        let slowest = self.buckets.iter().filter_map(|bucket| bucket.slowest.as_ref());
        let mut calls: Vec<&Single> = self.single.iter().map(|(_, call)| call).chain(slowest).collect();
        let key = |call: &&Single| (call.event.start, call.event.pid, call.event.tid, call.event.duration);
        calls.sort_by_key(key);
        calls.dedup_by_key(|call| key(call));
        let mut out = Singles { of: self.calls, ..Singles::default() };
        let mut known = Map::default();
        for Single { event, bytes, predicted, cause } in calls {
            let file = *known.entry(event.file()).or_insert_with(|| {
                out.files.push(end_of(&path(event.file())));
                out.files.len() - 1
            });
            out.at_ns.push(event.start.saturating_sub(first.0));
            out.observed_ns.push(event.duration);
            out.predicted_ns.push(predicted.get() as u64);
            out.cause.push(index_of(&mut out.causes, cause.name()));
            out.op.push(index_of(&mut out.ops, event.op.name()));
            out.file.push(file);
            out.bytes.push(*bytes);
        }
        out
    }
}

/// The index of a name in a short table, which gets it if it is new.
fn index_of(table: &mut Vec<String>, name: &str) -> usize {
    table.iter().position(|known| known == name).unwrap_or_else(|| {
        table.push(name.to_owned());
        table.len() - 1
    })
}

/// The end of a path that is too long to be drawn.
fn end_of(path: &str) -> String {
    match path.char_indices().rev().nth(PATH - 1) {
        Some((at, _)) if at > 0 => format!("…{}", &path[at..]),
        _ => path.to_owned(),
    }
}

/// The run over time, in columns with one value for each bucket; times in ns since the first call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineReport {
    /// Begin of the first bucket, since the first call of any kind.
    pub from_ns: i64,
    /// Width of a bucket.
    pub width_ns: u64,
    /// Calls with a modelled cost that began in it.
    pub calls: Vec<u64>,
    /// Their bytes.
    pub bytes: Vec<u64>,
    /// Observed time spent in it, by cause; causes without any are left out.
    pub causes: Vec<CauseColumn>,
    /// Dirty level by the first model, in bytes.
    pub modelled: Levels,
    /// Dirty level as the kernel counts it, in bytes.
    pub sampled: Levels,
    /// The dirty limits, wherever they changed.
    pub limits: Vec<LimitsFrom>,
    /// Single calls: the slowest of each bucket, and some of all, evenly chosen.
    pub single: Singles,
}

/// Time of one cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseColumn {
    /// Its name.
    pub name: String,
    /// Time in each bucket.
    pub ns: Vec<u64>,
}

/// A level, in bytes; null in buckets where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// The lowest.
    pub min: Vec<Option<u64>>,
    /// The highest.
    pub max: Vec<Option<u64>>,
    /// The latest.
    pub last: Vec<Option<u64>>,
}

/// Dirty limits from a bucket on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsFrom {
    /// Index of the bucket.
    pub bucket: usize,
    /// Background limit.
    pub background: u64,
    /// Hard limit.
    pub hard: u64,
}

/// Single calls, in columns with one value for each call, in order of start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Singles {
    /// Number of calls that these were chosen from.
    pub of: u64,
    /// Start.
    pub at_ns: Vec<u64>,
    /// Duration.
    pub observed_ns: Vec<u64>,
    /// Duration predicted by the first model.
    pub predicted_ns: Vec<u64>,
    /// The cause of most of it: index in `causes`.
    pub cause: Vec<usize>,
    /// Index in `ops`.
    pub op: Vec<usize>,
    /// Index in `files`.
    pub file: Vec<usize>,
    /// Bytes handed to the kernel.
    pub bytes: Vec<u64>,
    /// Names of causes.
    pub causes: Vec<String>,
    /// Names of operations.
    pub ops: Vec<String>,
    /// Paths, or the ends of long ones.
    pub files: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    fn call(start: u64, duration: u64, file: u64) -> Event {
        let mut event = Event::new(Op::Write);
        (event.start, event.duration, event.ino, event.tid) = (start, duration, file, 7);
        event
    }

    fn take(timeline: &mut Timeline, event: &Event, cause: Cause) {
        let lock = event.duration / 3;
        let times = CauseTimes::from([(cause, event.duration - lock), (Cause::Lock, lock)]);
        timeline.call(event, 10, &Prediction { dirty: Bytes(event.start), ..Prediction::default() }, &times);
    }

    fn report_of(timeline: &Timeline) -> TimelineReport {
        timeline.report(Time(0), |file| format!("/f{}", file.ino)).expect("calls were taken")
    }

    /// `calls` calls, of which some last for many buckets.
    fn of(calls: u64) -> (Timeline, CauseTimes) {
        let (mut timeline, mut all) = (Timeline::default(), CauseTimes::default());
        for at in 0..calls {
            let duration = if at % 97 == 0 { 3_000_001 + at } else { 700 + at % 11 };
            let cause = Cause::ALL[(at % 3) as usize];
            take(&mut timeline, &call(1000 + at * 1003, duration, at % 5), cause);
            all[Cause::Lock] += duration / 3;
            all[cause] += duration - duration / 3;
        }
        (timeline, all)
    }

    #[test]
    fn sums_are_exact_however_often_the_width_doubles() {
        for calls in [1, 2, 1000, 30_000] {
            let (timeline, all) = of(calls);
            let report = report_of(&timeline);
            assert!(report.calls.len() <= BUCKETS);
            assert_eq!(report.calls.iter().sum::<u64>(), calls);
            assert_eq!(report.bytes.iter().sum::<u64>(), 10 * calls);
            for (cause, wanted) in all.iter() {
                let column = report.causes.iter().find(|column| column.name == cause.name());
                let told = column.map_or(0, |column| column.ns.iter().sum());
                assert_eq!(told, wanted, "{} of {calls} calls", cause.name());
            }
        }
        assert!(report_of(&of(30_000).0).calls.len() > BUCKETS / 2, "no coarser than it must be");
    }

    #[test]
    fn a_long_call_is_divided_among_the_buckets_it_spans() {
        let mut timeline = Timeline::default();
        let width = 1 << FIRST_WIDTH;
        // From the middle of the second bucket to a quarter of the fifth.
        take(&mut timeline, &call(0, 0, 0), Cause::Copy);
        take(&mut timeline, &call(width + width / 2, 11 * width / 4, 0), Cause::Copy);
        let report = report_of(&timeline);
        let all: Vec<u64> = (0..5).map(|at| report.causes.iter().map(|column| column.ns[at]).sum()).collect();
        let near = |at: usize, quarters: u64| all[at].abs_diff(quarters * width / 4) <= 2;
        assert!(near(0, 0) && near(1, 2) && near(2, 4) && near(3, 4) && near(4, 1), "{all:?}");
        assert_eq!(report.calls, [1, 1, 0, 0, 0]);
    }

    #[test]
    fn single_calls_are_bounded_and_the_slowest_are_among_them() {
        let calls = 200_000;
        let (timeline, _) = of(calls);
        let single = report_of(&timeline).single;
        assert_eq!(single.of, calls);
        assert!(single.at_ns.len() > SINGLE / 2 && single.at_ns.len() <= SINGLE + BUCKETS);
        assert!(single.at_ns.is_sorted());
        let slowest = 3_000_001 + (calls - 1) / 97 * 97;
        assert!(single.observed_ns.contains(&slowest), "the slowest of all");
        // A tenth of the run has a tenth of them.
        let tenth = single.at_ns.iter().filter(|at| **at < calls * 1003 / 10).count() as f64;
        assert!((0.08..0.12).contains(&(tenth / single.at_ns.len() as f64)), "{tenth}");
        assert_eq!(single, report_of(&of(calls).0).single, "no chance in it");
        assert_eq!(single.files.len(), 5);
        // Calls of a period are not preferred: each third call is of the first kind.
        let plain = timeline.single.iter().filter(|(_, call)| call.cause == Cause::Call).count() as f64;
        assert!((0.3..0.37).contains(&(plain / timeline.single.len() as f64)), "{plain}");
    }

    #[test]
    fn levels_are_kept_through_doublings() {
        let mut timeline = Timeline::default();
        let limits = |hard| DirtyLimits { background: Bytes(10), hard: Bytes(hard) };
        timeline.sample(Time(5), Bytes(99), limits(20), None);
        take(&mut timeline, &call(10, 1, 0), Cause::Copy);
        for at in 0..5000_u64 {
            let hard = if at < 3000 { 20 } else { 30 };
            timeline.sample(Time(10 + at * 1000), Bytes(at), limits(hard), Some(Bytes(2 * at)));
        }
        let report = report_of(&timeline);
        let highest = |levels: &Levels| levels.max.iter().flatten().max().copied();
        assert_eq!((highest(&report.sampled), highest(&report.modelled)), (Some(4999), Some(9998)));
        assert_eq!(report.sampled.min[0], Some(0), "the sample before the first call is left out");
        let last = report.sampled.last.iter().flatten().max();
        assert_eq!(last, Some(&4999));
        assert!(report.sampled.min.iter().zip(&report.sampled.max).all(|(min, max)| min <= max));
        let hard: Vec<u64> = report.limits.iter().map(|limits| limits.hard).collect();
        assert_eq!(hard, [20, 30]);
    }

    #[test]
    fn no_time_is_too_far_or_too_early() {
        let mut timeline = Timeline::default();
        let far = call(u64::MAX - 5, u64::MAX, 0);
        for event in
            [call(1 << 40, 1, 0), call(0, 5, 0), far, call(1 << 41, u64::MAX, 0), call(3, 1 << 50, 0)]
        {
            take(&mut timeline, &event, Cause::Copy);
        }
        timeline.sample(Time(u64::MAX), Bytes(1), DirtyLimits { background: Bytes(1), hard: Bytes(2) }, None);
        let report = report_of(&timeline);
        assert_eq!(report.calls.iter().sum::<u64>(), 5);
        assert!(report.calls.len() <= BUCKETS);
    }

    #[test]
    fn long_paths_are_cut_at_the_front() {
        assert_eq!(end_of("/short"), "/short");
        assert_eq!(end_of(&"é".repeat(PATH)), "é".repeat(PATH));
        let cut = end_of(&format!("/x/{}", "é".repeat(PATH)));
        assert_eq!(cut, format!("…{}", "é".repeat(PATH)));
    }
}
