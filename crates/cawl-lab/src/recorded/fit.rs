//! Derives a host profile from recorded runs.
//!
//! The law: every constant comes from the runs that show it in isolation, by robust statistics (medians,
//! slopes between quantiles), and carries its spread. Which runs these are is told by how they were made,
//! not by their names. What no run shows keeps the value of [`HostProfile::uncalibrated`].
//!
//! | constant | shown by |
//! |---|---|
//! | `fresh`, `flush_factor` | sequential writes below the background limit, and above it |
//! | `cached` | rewriting a cached file |
//! | `writeback`, `queue` | the kernel's counters while writers are throttled |
//! | `write`, `sync_call` | direct synchronous writes of several sizes; synchronous writes |
//! | `base_rate` | the kernel's tracepoints, if read; else the model's own equilibrium at `writeback` |
//! | `fsync` | fsync after each write |
//! | `calls.write`, `calls.stream`, `cold` | small writes through a stream or plain |
//! | `seek` | no run; what the recording says of its disk |

use cawl_wire::{Event, Op};

use cawl_core::{Bytes, DirtyLimits, HostProfile, Measured, Nanos, Origin, Rate};
use cawl_core::{quantile as quantile_of, settled_base_rate};

use super::run::RecordedRun;

/// Why no profile could be derived.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FitError {
    /// Nothing to derive a profile from.
    #[error("no recorded runs were given; name them with --runs")]
    Empty,
    /// The dirty limits are unknown.
    #[error("the runs have no samples of the kernel's counters, so the dirty limits are unknown")]
    WithoutSamples,
    /// The constant that matters most cannot be derived.
    #[error("no run writes sequentially through the page cache; record one that exceeds the dirty limit")]
    WithoutSequential,
}

/// Calls of more than this many bytes show bandwidths.
const LARGE: u64 = 1 << 20;
/// Calls of at most this many bytes show fixed costs.
const SMALL: u64 = 8 << 10;
/// Costs that differ by this factor belong to different modes: warm and cold memory.
const MODES: f64 = 3.0;
/// The part of a device's rates below that of an undisturbed one.
const UNDISTURBED: f64 = 0.9;
/// Lengths of the windows over which the writeback rate is taken, in ns; the shorter ones if no run has the
/// longer.
const WINDOWS: [u64; 2] = [1_000_000_000, 250_000_000];
/// Fewer large writes of fresh pages than this say little.
const FEW: usize = 3;

/// The profile of the machine on which these runs were recorded.
pub fn fit(runs: &[RecordedRun]) -> Result<HostProfile, FitError> {
    if runs.is_empty() {
        return Err(FitError::Empty);
    }
    let mut profile = HostProfile::uncalibrated();
    profile.name = "fitted".to_owned();
    profile.origin = Origin::Fitted;
    profile.kernel.limits = limits(runs, profile.kernel.page).ok_or(FitError::WithoutSamples)?;
    memory(runs, &mut profile)?;
    writeback(runs, &mut profile);
    direct(runs, &mut profile);
    small_calls(runs, &mut profile);
    sync_calls(runs, &mut profile);
    // Every synchronous call moves the head to the journal and back: none shows a seek alone.
    let seek = runs.iter().map(|run| run.args.seek).max().unwrap_or(0);
    profile.device.seek = Measured::assumed(Nanos::new(seek as f64));
    base_rate(runs, &mut profile);
    Ok(profile)
}

fn limits(runs: &[RecordedRun], page: Bytes) -> Option<DirtyLimits> {
    let sample = runs.iter().filter_map(|run| run.samples.last()).find(|s| s.background < s.hard)?;
    Some(sample.limits(page))
}

/// A write that took time.
#[derive(Clone, Copy)]
struct Shown {
    bytes: f64,
    seconds: f64,
    /// Bytes made dirty before it began, as far as the calls tell.
    before: f64,
}

impl Shown {
    /// In bytes per second.
    fn rate(self) -> f64 {
        self.bytes / self.seconds
    }
}

fn writes(run: &RecordedRun) -> Vec<Shown> {
    let mut before = 0.0;
    let mut shown = Vec::new();
    for event in run.events.iter().filter(|e| is_write(e)) {
        let bytes = event.returned.max(0) as f64;
        shown.push(Shown { bytes, seconds: event.duration as f64 * 1e-9, before });
        before += bytes;
    }
    shown
}

fn is_write(event: &Event) -> bool {
    matches!(event.op, Op::Write | Op::Pwrite | Op::StreamWrite) && event.returned > 0
}

fn cached_run(run: &RecordedRun) -> bool {
    !run.args.direct && !run.args.sync && !run.args.fsync && !run.args.random && run.args.back == 0
}

/// `fresh`, `cached` and `flush_factor`.
fn memory(runs: &[RecordedRun], profile: &mut HostProfile) -> Result<(), FitError> {
    let limits = profile.kernel.limits;
    let (background, freerun) = (limits.background.as_f64(), limits.freerun().as_f64());
    let (mut fresh, mut cached) = (Vec::new(), Vec::new());
    for run in runs.iter().filter(|run| cached_run(run)) {
        let early = large_writes(run).filter(|write| write.before + write.bytes <= background);
        if run.args.rewrite { &mut cached } else { &mut fresh }.extend(early.map(Shown::rate));
    }
    // Where a call or two reach the background limit, those between calls of fsync count too, the fastest of
    // them: each is small, and what disturbs the memory slows it down.
    let mut fastest = false;
    if fresh.len() < FEW {
        let between: Vec<f64> = flushed(runs).flat_map(large_rates).collect();
        fastest = !between.is_empty();
        fresh.extend(between);
    }
    if fresh.is_empty() {
        return Err(FitError::WithoutSequential);
    }
    profile.memory.fresh = if fastest { rate(&fresh, UNDISTURBED) } else { warm_rate(&fresh) };
    spread(&mut profile.memory.fresh, flushed(runs).map(large_rates).chain([fresh]));
    let fresh = profile.memory.fresh.value.get();
    profile.memory.cached = Measured::assumed(Rate::per_second(fresh * 1.7));
    if !cached.is_empty() {
        profile.memory.cached = warm_rate(&cached);
        spread(&mut profile.memory.cached, [cached]);
    }
    let cached = profile.memory.cached.value.get().max(fresh);
    profile.memory.cached.value = Rate::per_second(cached);
    let mut factors = Vec::new();
    for run in runs.iter().filter(|run| cached_run(run)) {
        let idle = if run.args.rewrite { cached } else { fresh };
        let within = |write: &Shown| write.before >= background && write.before + write.bytes <= freerun;
        factors.extend(large_writes(run).filter(within).map(|write| (write.rate() / idle).min(1.0)));
    }
    if !factors.is_empty() {
        let value = quantile(&factors, 0.5).clamp(0.2, 1.0);
        profile.memory.flush_factor = measured(value, &factors, |factor| factor.clamp(0.05, 1.0));
    }
    Ok(())
}

/// Runs that call fsync, but whose writes are not synchronous.
fn flushed(runs: &[RecordedRun]) -> impl Iterator<Item = &RecordedRun> {
    runs.iter().filter(|run| run.args.fsync && !run.args.sync && !run.args.random)
}

fn large_writes(run: &RecordedRun) -> impl Iterator<Item = Shown> {
    writes(run).into_iter().filter(|write| write.bytes > LARGE as f64)
}

/// The rates of large writes, in bytes per second.
fn large_rates(run: &RecordedRun) -> Vec<f64> {
    large_writes(run).map(Shown::rate).collect()
}

/// Percentiles of a rate that several runs show. The next run is as likely to lie anywhere among or beyond
/// them, so the lowest of their 10th percentiles counts, and the highest of their 90th.
fn spread(rate: &mut Measured<Rate>, runs: impl IntoIterator<Item = Vec<f64>>) {
    let value = rate.value.get();
    let (mut low, mut high) = (value, value);
    for run in runs.into_iter().filter(|run| !run.is_empty()) {
        let (from, to) = next_of(&run);
        (low, high) = (low.min(from), high.max(to));
    }
    (rate.p10, rate.p90) = (Some(Rate::per_second(low)), Some(Rate::per_second(high)));
}

/// Between what the next of a few samples lies eight times in ten, if their logarithms are distributed
/// normally (the prediction interval, by Student's distribution); the 10th and 90th percentile of many.
fn next_of(samples: &[f64]) -> (f64, f64) {
    /// 90th percentile of Student's distribution with 1, 2, 3… degrees of freedom.
    const STUDENT: [f64; 20] = [
        3.078, 1.886, 1.638, 1.533, 1.476, 1.440, 1.415, 1.397, 1.383, 1.372, 1.363, 1.356, 1.350, 1.345,
        1.341, 1.337, 1.333, 1.330, 1.328, 1.325,
    ];
    let count = samples.len() as f64;
    let Some(student) = samples.len().checked_sub(2).and_then(|at| STUDENT.get(at)) else {
        return (quantile(samples, 0.1), quantile(samples, 0.9));
    };
    let mean = samples.iter().map(|sample| sample.ln()).sum::<f64>() / count;
    let squares: f64 = samples.iter().map(|sample| (sample.ln() - mean).powi(2)).sum();
    let margin = student * (squares / (count - 1.0) * (1.0 + 1.0 / count)).sqrt();
    ((mean - margin).exp(), (mean + margin).exp())
}

/// `writeback` and `queue`: the counters while the level is above freerun, in windows of a second that begin
/// and end where pages were completed; above the background limit, where the flusher never rests either, if
/// no writer was throttled for as long; in shorter windows if that was not so long either. Of the windows'
/// rates nearly the highest counts, because what disturbs a device slows it down and nothing speeds it up.
fn writeback(runs: &[RecordedRun], profile: &mut HostProfile) {
    let page = profile.kernel.page;
    let freerun = profile.kernel.limits.freerun();
    let written: Vec<_> = runs.iter().filter(|run| cached_run(run)).collect();
    let levels = [freerun, profile.kernel.limits.background];
    let found = WINDOWS
        .into_iter()
        .flat_map(|window| levels.map(|level| (window, level)))
        .map(|(window, level)| written.iter().flat_map(|run| rates(run, page, level, window)).collect())
        .find(|rates: &Vec<f64>| !rates.is_empty());
    if let Some(rates) = found {
        profile.device.writeback = rate(&rates, UNDISTURBED);
    }
    let plain = written.iter().filter(|run| !run.args.rewrite);
    let throttled = plain.flat_map(|run| &run.samples).filter(|sample| sample.dirty_bytes(page) >= freerun);
    let queued: Vec<f64> = throttled.map(|sample| (sample.writeback * page.0) as f64).collect();
    if !queued.is_empty() {
        profile.device.queue = Bytes::from_f64(quantile(&queued, 0.5)).max(Bytes::mib(1));
    }
}

/// Rates of completion over windows (ns) while the dirty bytes are at this level or above.
fn rates(run: &RecordedRun, page: Bytes, level: Bytes, window: u64) -> Vec<f64> {
    let mut rates = Vec::new();
    let mut began: Option<(u64, u64)> = None;
    for pair in run.samples.windows(2) {
        let (before, sample) = (&pair[0], &pair[1]);
        if sample.dirty_bytes(page) < level {
            began = None;
            continue;
        }
        if sample.written == before.written {
            continue;
        }
        let (at, written) = *began.get_or_insert((sample.time.0, sample.written));
        if sample.time.0 >= at + window {
            let span = (sample.time.0 - at) as f64 * 1e-9;
            rates.push((sample.written - written) as f64 * page.as_f64() / span);
            began = Some((sample.time.0, sample.written));
        }
    }
    rates
}

/// `base_rate`: what the kernel's own was at the end of the runs, the lowest of them, since it is stepped
/// down in the course of time; it lives on from run to run.
fn base_rate(runs: &[RecordedRun], profile: &mut HostProfile) {
    let traced: Vec<f64> = runs.iter().filter_map(|run| run.base_rate).map(Rate::get).collect();
    let told = (!traced.is_empty()).then(|| rate(&traced, 0.0));
    profile.device.base_rate = Some(told.unwrap_or_else(|| settled_base_rate(profile)));
}

/// `device.write`: the slope between the fastest tenths of direct writes of different sizes, because
/// what disturbs a device adds time and never takes any.
fn direct(runs: &[RecordedRun], profile: &mut HostProfile) {
    // Bytes, and the seconds of the fastest and the slowest tenth.
    let mut points: Vec<(f64, f64, f64)> = Vec::new();
    for run in runs.iter().filter(|run| run.args.direct && run.args.sync) {
        let writes = writes(run);
        let Some(first) = writes.first() else { continue };
        let costs: Vec<f64> = writes.iter().map(|w| w.seconds).collect();
        points.push((first.bytes, quantile(&costs, 0.1), quantile(&costs, 0.9)));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let large: Vec<_> = points.iter().filter(|point| point.0 >= LARGE as f64).collect();
    // The slope, and the least and the most that it could be.
    let [slope, least, most] = match large[..] {
        [] => [None; 3],
        [(bytes, fast, slow)] => [Some(bytes / fast), Some(bytes / slow), Some(bytes / fast)],
        [small, .., big] => {
            let slope = |more: f64, less: f64| Some((big.0 - small.0) / (more - less));
            [slope(big.1, small.1), slope(big.2, small.1), slope(big.1, small.2)]
        }
    };
    let writeback = profile.device.writeback.value.get();
    let rate = match slope {
        Some(slope) if slope > 0.0 && slope.is_finite() => slope.clamp(writeback / 2.0, writeback * 4.0),
        _ => writeback,
    };
    // No flusher is faster than the device, as long as the windows do not say that it usually was.
    let slowest = profile.device.writeback.p10.map_or(writeback, Rate::get);
    profile.device.writeback.value = Rate::per_second(writeback.min(rate.max(slowest)));
    let bound = |slope: Option<f64>| slope.filter(|slope| *slope > 0.0 && slope.is_finite());
    profile.device.write = Measured {
        value: Rate::per_second(rate),
        p10: bound(least).map(|least| Rate::per_second(least.min(rate))),
        p90: bound(most).map(|most| Rate::per_second(most.max(rate))),
        samples: points.len() as u32,
    };
    profile.device.read = Measured::assumed(Rate::per_second(rate));
}

/// `calls.write`, `calls.stream` and `cold`: small writes that nothing holds back.
fn small_calls(runs: &[RecordedRun], profile: &mut HostProfile) {
    let (mut warm, mut cold, mut buffered, mut size) = (Vec::new(), Vec::new(), Vec::new(), 0.0);
    let buffer = profile.kernel.stream_buffer.as_f64();
    for run in runs.iter().filter(|run| cached_run(run) && !run.args.rewrite) {
        let shown: Vec<Shown> = writes(run).into_iter().filter(|w| w.bytes <= SMALL as f64).collect();
        let mut costs: Vec<f64> = Vec::new();
        for write in &shown {
            let crosses = !run.args.stream
                || (write.before / buffer) as u64 != ((write.before + write.bytes) / buffer) as u64;
            if crosses { costs.push(write.seconds) } else { buffered.push(write.seconds) }
        }
        let Some(first) = shown.first() else { continue };
        size = if run.args.stream { buffer } else { first.bytes };
        let floor = quantile(&costs, 0.05);
        for cost in costs {
            if cost <= floor * MODES { warm.push(cost) } else { cold.push(cost) }
        }
    }
    if !buffered.is_empty() {
        let typical = trimmed_mean(&mut buffered, 0.02);
        let call = (typical / 2.0).min(profile.calls.stream.value.as_seconds());
        profile.calls.stream =
            Measured { value: Nanos::seconds(call), samples: buffered.len() as u32, ..profile.calls.stream };
        let bytes = runs.iter().filter(|run| run.args.stream).map(|run| run.args.chunk).min().unwrap_or(0);
        if bytes > 0 {
            let rate = |cost: f64| Rate::per_second(bytes as f64 / (cost - call).max(1e-10));
            profile.memory.stream = inverse(rate(typical), &buffered, rate);
        }
    }
    if warm.is_empty() {
        return;
    }
    let page = profile.kernel.page.as_f64();
    let memory = &profile.memory;
    let pages = (size / page).ceil().max(1.0);
    let copy = size / memory.cached.value.get() / 4.0
        + pages * page * (1.0 / memory.fresh.value.get() - 1.0 / memory.cached.value.get());
    let call = |cost: f64| Nanos::seconds((cost - copy).max(100e-9));
    profile.calls.write = measured(call(trimmed_mean(&mut warm, 0.02)), &warm, call);
    if cold.len() * 20 > warm.len() {
        let per_page = trimmed_mean(&mut cold, 0.02) / pages;
        let value = Rate::per_second(page / per_page);
        profile.memory.cold = Some(inverse(value, &cold, |cost| Rate::per_second(page * pages / cost)));
    }
}

/// `sync_call` and `fsync`: what synchronous calls cost beyond the transfer, the middle one of the runs'
/// means (a total is a sum, so the mean is what counts; one disturbed run must not).
fn sync_calls(runs: &[RecordedRun], profile: &mut HostProfile) {
    let (write, fresh) = (profile.device.write.value.get(), profile.memory.fresh.value.get());
    let call = profile.calls.write.value.as_seconds();
    let (mut means, mut all) = (Vec::new(), Vec::new());
    for run in runs.iter().filter(|run| run.args.sync) {
        let beyond = |w: &Shown| {
            let copy = if run.args.direct { 0.0 } else { w.bytes / fresh };
            w.seconds - call - w.bytes / write - copy
        };
        let mut costs: Vec<f64> = writes(run).iter().map(beyond).collect();
        if !costs.is_empty() {
            means.push(trimmed_mean(&mut costs, 0.01));
            all.extend(costs);
        }
    }
    if !means.is_empty() {
        profile.device.sync_call = measured(Nanos::seconds(quantile(&means, 0.5)), &all, Nanos::seconds);
    }
    let mut beyond = Vec::new();
    for run in runs.iter().filter(|run| run.args.fsync) {
        let mut pending = 0.0;
        for event in &run.events {
            match event.op {
                Op::Fsync | Op::Fdatasync => {
                    beyond.push(event.duration as f64 * 1e-9 - call - pending / write);
                    pending = 0.0;
                }
                _ if is_write(event) => pending += event.returned as f64,
                _ => {}
            }
        }
    }
    if !beyond.is_empty() {
        let value = Nanos::seconds(trimmed_mean(&mut beyond, 0.02));
        profile.device.fsync = measured(value, &beyond, Nanos::seconds);
    }
}

fn rate(values: &[f64], at: f64) -> Measured<Rate> {
    measured(Rate::per_second(quantile(values, at)), values, Rate::per_second)
}

/// A constant with the spread of what was observed, in its unit.
fn measured<T>(value: T, values: &[f64], unit: impl Fn(f64) -> T) -> Measured<T> {
    let at = |part: f64| Some(unit(quantile(values, part)));
    Measured { value, p10: at(0.1), p90: at(0.9), samples: values.len() as u32 }
}

/// A constant with the spread of what was observed, in a unit that inverts the order: a rate from times.
fn inverse<T>(value: T, values: &[f64], unit: impl Fn(f64) -> T) -> Measured<T> {
    let Measured { value, p10, p90, samples } = measured(value, values, unit);
    Measured { value, p10: p90, p90: p10, samples }
}

/// The rate at which warm memory is written in the mean of calls of one size: a run's time is a sum, so that
/// the mean time of a byte counts, and few calls with a slow one among them have another median. Cold memory
/// is no part of it.
fn warm_rate(rates: &[f64]) -> Measured<Rate> {
    let fastest = rates.iter().copied().fold(0.0, f64::max);
    let warm: Vec<f64> =
        rates.iter().filter(|rate| **rate * MODES >= fastest).map(|rate| 1.0 / rate).collect();
    let mean = warm.iter().sum::<f64>() / warm.len().max(1) as f64;
    Measured { value: Rate::per_second(1.0 / mean), ..rate(rates, 0.5) }
}

/// The value that this part of the values stays within; 0 of nothing.
fn quantile(values: &[f64], part: f64) -> f64 {
    quantile_of(values, part).unwrap_or(0.0)
}

/// The mean without this part of the largest values.
fn trimmed_mean(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let kept =
        ((values.len() as f64 * (1.0 - part)).ceil() as usize).clamp(1.min(values.len()), values.len());
    values[..kept].iter().sum::<f64>() / kept.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::RunArgs;
    use cawl_core::{Sample, Time};
    use cawl_wire::FileKind;

    const PAGES: u64 = 25_600;

    /// A run of writes (or of writes and fsyncs) of `chunk` bytes at `speed` bytes per second.
    fn run(args: RunArgs, chunk: u64, calls: u64, speed: f64) -> RecordedRun {
        let mut events = Vec::new();
        let mut start = 0;
        for call in 0..calls {
            let mut write = Event::new(Op::Write);
            (write.kind, write.start, write.offset) = (FileKind::Regular, start, call * chunk);
            (write.requested, write.returned) = (chunk, chunk as i64);
            write.duration = (chunk as f64 / speed * 1e9) as u64;
            start = write.end();
            events.push(write);
        }
        RecordedRun { args, events, ..RecordedRun::default() }
    }

    /// Samples every 5 ms of a level just below the hard limit, while 100 MiB are written each second.
    fn samples(seconds: f64) -> Vec<Sample> {
        let count = (seconds * 200.0) as u64;
        let sample = |i| Sample {
            time: Time(i * 5_000_000),
            dirty: 12_000,
            writeback: 3000,
            background: 8192,
            hard: 16_384,
            written: PAGES * i / 200,
            dirtied: PAGES * i / 200,
        };
        (0..=count).map(sample).collect()
    }

    #[test]
    fn small_limits_need_neither_long_throttling_nor_large_calls_below_them() {
        let stream = run(RunArgs::default(), 64 << 20, 2, 200e6);
        let short = RecordedRun { samples: samples(0.6), ..stream };
        assert_eq!(fit(std::slice::from_ref(&short)).unwrap_err(), FitError::WithoutSequential);
        let fsync = run(RunArgs { fsync: true, ..RunArgs::default() }, 4 << 20, 20, 2e9);
        let profile = fit(&[short, fsync]).unwrap();
        assert!((profile.memory.fresh.value.get() / 2e9 - 1.0).abs() < 0.01, "{:?}", profile.memory.fresh);
        let rate = profile.device.writeback;
        assert!((rate.value.get() / (PAGES * 4096) as f64 - 1.0).abs() < 0.02, "{rate:?}");
        assert!((2..=3).contains(&rate.samples), "{rate:?}");
    }

    #[test]
    fn the_spread_of_a_rate_is_that_among_runs_and_wider_for_few_samples() {
        let mut rate = Measured::assumed(Rate::per_second(100.0));
        spread(&mut rate, [vec![90.0, 100.0, 110.0], vec![200.0; 50], Vec::new()]);
        let [low, high] = [rate.p10, rate.p90].map(|end| end.unwrap().get());
        // ln 1.1 is about the deviation; with two degrees of freedom 1.886 of them, and a bit for the mean's
        // own.
        assert!((78.0..82.0).contains(&low) && (high - 200.0).abs() < 1e-6, "{low} {high}");
        let (low, high) = next_of(&(0..=100).map(|i| 100.0 + f64::from(i)).collect::<Vec<_>>());
        assert!((low - 110.0).abs() < 1e-9 && (high - 190.0).abs() < 1e-9);
        assert_eq!(next_of(&[5.0]), (5.0, 5.0));
    }

    /// What a slope between two sizes may be is told by what calls of either take at least and at most.
    #[test]
    fn direct_writes_carry_their_own_spread() {
        let args = RunArgs { direct: true, sync: true, ..RunArgs::default() };
        let stream = run(RunArgs::default(), 4 << 20, 4, 2e9);
        let mut direct = [1 << 20, 4 << 20].map(|chunk| run(args.clone(), chunk, 20, 100e6));
        for run in &mut direct {
            run.events.iter_mut().step_by(2).for_each(|event| event.duration += 1_000_000);
        }
        let [small, large] = direct;
        let write =
            fit(&[RecordedRun { samples: samples(2.0), ..stream }, small, large]).unwrap().device.write;
        let [low, value, high] = [write.p10.unwrap(), write.value, write.p90.unwrap()].map(Rate::get);
        // 3 MiB in 31.5 ms, one more or one less.
        assert!((value / 100e6 - 1.0).abs() < 0.01, "{write:?}");
        assert!(
            (low / value - 31.46 / 32.46).abs() < 0.01 && (high / value - 31.46 / 30.46).abs() < 0.01,
            "{write:?}"
        );
    }

    #[test]
    fn a_base_rate_that_was_traced_is_believed() {
        let run = RecordedRun { samples: samples(2.0), ..run(RunArgs::default(), 4 << 20, 4, 2e9) };
        let traced = |mb| RecordedRun { base_rate: Some(Rate::mb_per_second(mb)), ..run.clone() };
        let base = |runs: &[RecordedRun]| fit(runs).unwrap().device.base_rate.map(|base| base.value);
        assert_eq!(base(&[traced(130.0), run.clone(), traced(120.0)]), Some(Rate::mb_per_second(120.0)));
        let own = base(std::slice::from_ref(&run)).unwrap().get() / (PAGES * 4096) as f64;
        assert!((0.6..1.0).contains(&own), "{own}");
    }

    #[test]
    fn the_seek_time_is_what_the_recording_says_of_its_disk() {
        let args = RunArgs { seek: 4_000_000, ..RunArgs::default() };
        let run = RecordedRun { samples: samples(2.0), ..run(args, 4 << 20, 4, 2e9) };
        assert_eq!(fit(&[run]).unwrap().device.seek.value, Nanos::millis(4.0));
    }

    /// Against ten minutes of the whole model, page by page: the base rate as a part of the device's.
    #[test]
    fn the_control_settles_where_the_whole_model_does() {
        for (mib_per_s, hz, below, above) in [
            (50.0, 250, 0.906, 0.999),
            (200.0, 250, 0.827, 0.918),
            (500.0, 250, 0.667, 0.738),
            (900.0, 250, 0.836, 0.895),
            (1400.0, 250, 0.894, 0.956),
            (50.0, 1000, 0.939, 1.031),
            (500.0, 1000, 0.93, 1.008),
            (900.0, 1000, 0.897, 1.015),
        ] {
            let mut profile = HostProfile::uncalibrated();
            profile.kernel.limits = DirtyLimits { background: Bytes::mib(2400), hard: Bytes::mib(4800) };
            profile.kernel.hz = hz;
            profile.memory.fresh.value = Rate::per_second(4e9);
            let rate = mib_per_s * 1e6;
            profile.device.writeback.value = Rate::per_second(rate);
            let settled = settled_base_rate(&profile);
            let found = [settled.value, settled.p90.unwrap()].map(|found| found.get() / rate);
            let is_near =
                found.iter().zip([below, above]).all(|(found, wanted)| (found - wanted).abs() < 0.015);
            assert!(is_near, "{rate} at {hz}: {found:?}, not {below} and {above}");
        }
        // A writer that is no faster than the device is never held back.
        let mut profile = HostProfile::uncalibrated();
        profile.device.writeback.value = profile.memory.fresh.value * 2.0;
        let (rate, settled) = (profile.device.writeback.value, settled_base_rate(&profile));
        assert_eq!((settled.value, settled.p90), (rate * 0.5, Some(rate * 2.0)));
    }
}
