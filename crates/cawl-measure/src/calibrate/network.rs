//! A mount whose files are elsewhere (NFS, CIFS, 9p, FUSE): the round trip, the rates, the size of a request
//! and what the page cache keeps, all from outside.
//!
//! The law: **the policy is what a call costs.** A write of a page that takes less than half of what the same
//! takes past the cache stays in the cache; what was written or read and is read again as fast was kept.
//! Then each size of call past the cache is a sum of round trips, one for each request, and of bytes. Waits
//! for a processor count where the server is waited for, which may be a process of this machine.

mod line;
mod policy;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_core::{Bytes, CachePolicy, Estimate, HostProfile, Line, Measured, Nanos, NetworkConstants, median};
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;

use self::line::{Requests, requests};
use self::policy::Found;
use super::bench::{Bench, after, no_space, timed, timed_with_waits};
use super::interference::Stopwatch;
use super::{put, rate, time};

pub(super) const PAGE: usize = 4096;
/// Sizes of calls past the cache.
const SIZES: [usize; 11] =
    [PAGE, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Calls of each size in a round, and the time after which no further one begins, in ns.
const CALLS: (usize, f64) = (9, 20e6);
/// A call that takes longer than this part of a measurement's time is the largest of its kind.
const LONGEST: f64 = 0.02;
/// Sizes of calls that copy into a file that stays in the processor's nearest caches, and the bytes of each
/// size in a round; those up to a size are made again over cached pages.
const COPIES: [usize; 5] = [512, PAGE, 16 << 10, 64 << 10, 256 << 10];
const COPIED: usize = 1 << 20;
const NEAR: usize = 16 << 10;
/// Sizes of calls on a file that the processor's nearest caches do not hold, and its bytes.
const LARGE: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];
const LARGE_FILE: usize = 8 << 20;
/// Bytes that are flushed at a time; the first and the last tell the rate.
const FLUSHED: [usize; 3] = [PAGE, 1 << 20, 8 << 20];
/// Time for which a file is made that is written over and read, in ns.
const MAKING: f64 = 0.3e9;
/// Files made and opened in a round.
const NAMES: usize = 6;
/// The length that a file is given.
const LENGTH: u64 = 1;

/// Bytes and what they took, in ns, of calls of several sizes.
type Points = Vec<(f64, f64)>;

/// Times per byte and per call, in ns, over the rounds.
#[derive(Debug, Default)]
pub struct Network {
    found: Found,
    create: Vec<f64>,
    open: Vec<f64>,
    close: Vec<f64>,
    truncate: Vec<f64>,
    /// Over another file.
    rename: Vec<f64>,
    unlink: Vec<f64>,
    /// Past the cache: a point for each size in each round.
    written: Vec<Points>,
    read: Vec<Points>,
    /// Through the cache, where that waits for the server, too.
    through: Vec<Points>,
    /// Into the cache: new pages and cached ones.
    fresh: Vec<Points>,
    near: Vec<Points>,
    cached: Vec<Points>,
    /// Reads of what is cached, and of a file in the processor's nearest caches, in ns.
    kept: Vec<Points>,
    read_near: Vec<Points>,
    /// Bytes of a cached file, and what removing it took.
    removed: Vec<(f64, f64)>,
    /// fsync and close by the bytes that were dirty; fsync of a clean file.
    synced: Vec<Points>,
    closed: Vec<Points>,
    clean: Vec<f64>,
}

/// Measures the mount within this time.
pub fn measure(bench: &mut Bench, time: Nanos) -> anyhow::Result<Network> {
    bench.deadline = after(time * 0.15);
    let mut network = Network { found: policy::found(bench)?, ..Network::default() };
    let writes_back = network.found.policy == CachePolicy::WriteBack;
    let share = |bench: &mut Bench, part: f64| bench.deadline = after(time * part);
    share(bench, 0.1);
    bench.repeat(|bench, index| names(bench, index, &mut network))?;
    share(bench, 0.35);
    let longest = (time * LONGEST).get();
    bench.repeat(|bench, _| past_the_cache(bench, longest, &mut network))?;
    if writes_back {
        share(bench, 0.15);
        bench.repeat(|bench, _| into_the_cache(bench, &mut network))?;
    }
    let most = room(bench);
    if network.found.policy != CachePolicy::None {
        share(bench, 0.1);
        bench.repeat(|bench, _| from_the_cache(bench, most.min(LARGE_FILE), &mut network))?;
    }
    share(bench, 0.2);
    bench.repeat(|bench, _| durable(bench, if writes_back { most } else { PAGE }, longest, &mut network))?;
    Ok(network)
}

/// Bytes that may be dirty on the mount before the flusher comes, or a writer has to wait.
fn room(bench: &Bench) -> usize {
    let percent = bench.place.writeback_setting("max_ratio").unwrap_or(100).min(100);
    (super::hard().0 / 100 * percent / 4) as usize
}

/// Up to so many calls, or as many as begin within the time of [`CALLS`]: the median of their times in ns.
fn typical(most: usize, mut call: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let (start, mut times) = (Stopwatch::start(), Vec::with_capacity(most));
    while times.len() < 2 || times.len() < most && start.elapsed() < CALLS.1 {
        times.push(timed_with_waits(|| call(times.len()))?);
    }
    Ok(median(&times).unwrap_or(f64::NAN))
}

/// Time of closing a file, in ns.
fn closing(file: File) -> anyhow::Result<f64> {
    timed_with_waits(|| {
        drop(file);
        Ok(())
    })
}

/// Makes files, opens them and closes them, cuts them off, and replaces every other one by the next.
fn names(bench: &mut Bench, index: usize, network: &mut Network) -> anyhow::Result<()> {
    let [kept, other] = ["kept", "other"].map(|name| format!("name-{index}-{name}"));
    for at in 0..NAMES {
        bench.go_on()?;
        // Where the server is far away, two must do.
        if at > 0 && at % 2 == 0 && cawl_host::now() >= bench.deadline {
            break;
        }
        let name = if at % 2 == 0 { &kept } else { &other };
        let mut file = None;
        let mut open = |new: bool| {
            timed_with_waits(|| {
                file = Some(if new {
                    bench.scratch.file(name)?
                } else {
                    bench.scratch.again(name, OFlag::empty())?
                });
                Ok(())
            })
            .map(|time| (time, file.take()))
        };
        for new in [true, false] {
            let (time, file) = open(new)?;
            if new { &mut network.create } else { &mut network.open }.push(time);
            if let Some(file) = &file
                && !new
            {
                network.truncate.push(timed_with_waits(|| Ok(file.set_len(LENGTH)?))?);
            }
            network.close.extend(file.map(closing).transpose()?);
        }
        if at % 2 == 1 {
            let [from, to] = [&other, &kept].map(|name| bench.scratch.path(name));
            network.rename.push(timed_with_waits(|| Ok(fs::rename(&from, &to)?))?);
            network.unlink.push(timed_with_waits(|| Ok(fs::remove_file(&to)?))?);
        }
    }
    Ok(())
}

/// Appends and reads in calls of each size, past the cache; appends through it, if that waits for the server.
fn past_the_cache(bench: &mut Bench, longest: f64, network: &mut Network) -> anyhow::Result<()> {
    let policy = network.found.policy;
    let plain = policy != CachePolicy::WriteBack;
    let direct = bench.scratch.direct_file("direct", OFlag::empty())?;
    let file = match direct {
        Some(file) => file,
        // Each call is durable, then, if it would not go to the server by itself.
        None if plain => bench.scratch.file("direct")?,
        None => {
            bench.scratch.file("direct")?;
            bench.scratch.again("direct", OFlag::O_DSYNC)?
        }
    };
    let is_unkept = policy == CachePolicy::None;
    let reader = if is_unkept { bench.scratch.again("direct", OFlag::empty())? } else { file.try_clone()? };
    let mut points = [Vec::new(), Vec::new(), Vec::new()];
    let mut space = bench.space;
    let mut at = 0;
    for size in SIZES {
        bench.go_on()?;
        let bytes = (size * CALLS.0) as u64;
        if bytes * 2 > space || !bench.spend(bytes * if plain { 2 } else { 1 }) {
            break;
        }
        space -= bytes;
        let mut data = AlignedBuffer::new(size);
        let from = at;
        let write = typical(CALLS.0, |call| {
            file.write_all_at(data.bytes(), from + (call * size) as u64).with_context(no_space)
        })?;
        points[0].push((size as f64, write));
        let whole = file.metadata()?.len();
        let calls = ((whole - from) as usize / size).clamp(1, CALLS.0);
        let read = typical(calls, |call| {
            Ok(reader.read_exact_at(data.bytes_mut(), from + ((call % calls) * size) as u64)?)
        })?;
        points[1].push((size as f64, read));
        at = whole;
        if write.max(read) > longest {
            break;
        }
    }
    drop((file, reader));
    bench.scratch.remove("direct");
    if policy == CachePolicy::WriteThrough {
        points[2] = through_the_cache(bench, points[0].len())?;
    }
    let [written, read, through] = points;
    network.written.push(written);
    network.read.push(read);
    network.through.push(through);
    Ok(())
}

fn through_the_cache(bench: &Bench, sizes: usize) -> anyhow::Result<Points> {
    let file = bench.scratch.file("through")?;
    let (mut points, mut at) = (Vec::new(), 0);
    for size in SIZES.into_iter().take(sizes) {
        bench.go_on()?;
        let data = &bench.data.bytes()[..size];
        let time = typical(CALLS.0, |call| {
            file.write_all_at(data, at + (call * size) as u64).with_context(no_space)
        })?;
        points.push((size as f64, time));
        at = file.metadata()?.len();
    }
    bench.scratch.remove("through");
    Ok(points)
}

/// What a write costs that stays in the cache: new pages, then the same again.
fn into_the_cache(bench: &mut Bench, network: &mut Network) -> anyhow::Result<()> {
    let mut points = [Vec::new(), Vec::new()];
    for size in COPIES {
        bench.go_on()?;
        if !bench.spend(COPIED as u64) {
            break;
        }
        let file = bench.scratch.file("cached")?;
        let data = &bench.data.bytes()[..size];
        let calls = (COPIED.min(256 * size) / size).max(2);
        for (pass, points) in points.iter_mut().enumerate() {
            // Parts of a page are told by the second pass alone, where each meets a cached one.
            if pass == 0 && size >= PAGE || pass == 1 && size <= NEAR {
                let mut times = Vec::with_capacity(calls);
                for call in 0..calls {
                    times.push(timed(|| {
                        file.write_all_at(data, (call * size) as u64).with_context(no_space)
                    })?);
                }
                points.push((size as f64, median(&times).unwrap_or(f64::NAN)));
            } else if pass == 0 {
                bench.write_run(&file, 0, calls * size, size)?;
            }
        }
        drop(file);
        bench.scratch.remove("cached");
    }
    let [fresh, near] = points;
    network.fresh.push(fresh);
    network.near.push(near);
    Ok(())
}

/// What calls cost over cached pages of a larger file: writes, if they stay in the cache, and reads.
fn from_the_cache(bench: &mut Bench, most: usize, network: &mut Network) -> anyhow::Result<()> {
    let writes_back = network.found.policy == CachePolicy::WriteBack;
    let [mut cached, mut kept, mut near] = [const { Vec::new() }; 3];
    let file = bench.scratch.file("kept")?;
    let (start, mut length) = (Stopwatch::start(), 0);
    // Where that takes long, a smaller one must do.
    while length < most && (length == 0 || start.elapsed() < MAKING) && bench.spend(LARGE[1] as u64) {
        bench.go_on()?;
        bench.write_run(&file, length as u64, LARGE[1], LARGE[1])?;
        length += LARGE[1];
    }
    let mut buffer = vec![0; LARGE[2]];
    let mut pass =
        |length: usize, size: usize, call: &mut dyn FnMut(&mut [u8], u64) -> anyhow::Result<()>| {
            let mut times = Vec::with_capacity(length / size);
            for at in (0..length / size * size).step_by(size) {
                times.push(timed(|| call(&mut buffer[..size], at as u64))?);
            }
            anyhow::Ok(times)
        };
    let typical = |size: usize, times: Vec<f64>| (size as f64, median(&times).unwrap_or(f64::NAN));
    for size in LARGE.into_iter().filter(|size| writes_back && *size <= length) {
        let write = &mut |data: &mut [u8], at| file.write_all_at(data, at).with_context(no_space);
        cached.push(typical(size, pass(length, size, write)?));
    }
    drop(file);
    let reader = File::open(bench.scratch.path("kept"))?;
    let mut read = |data: &mut [u8], at| Ok(reader.read_exact_at(data, at)?);
    // The second read of a page moves it to the active list (`folio_mark_accessed`, mm/swap.c, 6.18).
    pass(length, LARGE[0], &mut read)?;
    pass(length, LARGE[0], &mut read)?;
    for size in LARGE.into_iter().filter(|size| *size <= length) {
        kept.push(typical(size, pass(length, size, &mut read)?));
    }
    for size in COPIES.into_iter().filter(|size| *size <= LARGE[0]) {
        let length = length.min(COPIED).min(256 * size);
        near.push(typical(size, pass(length, size, &mut read)?));
    }
    drop(reader);
    let path = bench.scratch.path("kept");
    network.removed.push((length as f64, timed_with_waits(|| Ok(fs::remove_file(&path)?))?));
    network.cached.push(cached);
    network.kept.push(kept);
    network.read_near.push(near);
    Ok(())
}

/// fsync and close with up to `most` bytes dirty.
fn durable(bench: &mut Bench, most: usize, longest: f64, network: &mut Network) -> anyhow::Result<()> {
    let mut points = [Vec::new(), Vec::new()];
    for bytes in FLUSHED.into_iter().filter(|bytes| *bytes <= most.max(PAGE)) {
        for (closes, points) in points.iter_mut().enumerate() {
            bench.go_on()?;
            if !bench.spend(bytes as u64) {
                break;
            }
            let file = bench.scratch.file("durable")?;
            bench.write_run(&file, 0, bytes, bytes.min(64 << 10))?;
            let time = if closes == 1 {
                closing(file)?
            } else {
                let time = timed_with_waits(|| Ok(file.sync_all()?))?;
                network.clean.push(timed_with_waits(|| Ok(file.sync_all()?))?);
                time
            };
            points.push((bytes as f64, time));
            bench.scratch.remove("durable");
        }
        if points[0].last().is_some_and(|(_, time)| *time > longest) {
            break;
        }
    }
    let [synced, closed] = points;
    network.synced.push(synced);
    network.closed.push(closed);
    Ok(())
}

/// An estimate from what each round says.
fn estimate<'a, T: 'a>(
    rounds: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&'a T) -> Option<f64>,
) -> Option<Estimate> {
    Estimate::of(&rounds.into_iter().filter_map(of).collect::<Vec<_>>())
}

fn nanos(found: Option<Estimate>) -> f64 {
    found.map_or(0.0, |found| found.value)
}

/// By so much more, each round's part.
fn beyond(found: Option<Estimate>, less: f64) -> Option<Estimate> {
    let rest = |time: f64| (time - less).max(0.0);
    found.map(|f| Estimate { value: rest(f.value), p10: rest(f.p10), p90: rest(f.p90), ..f })
}

impl Network {
    /// Puts the constants into a profile; those of memory and calls are there.
    pub fn put(&self, bench: &Bench, profile: &mut HostProfile) {
        let Network { found, .. } = self;
        let call = profile.calls.write.value.get();
        let writes = requests(&self.written, call);
        let reads = requests(&self.read, call);
        let latency = estimate(&writes.rounds, |round| Some(round.trip));
        let write = estimate(&writes.rounds, |round| Some(round.byte));
        let read_latency = estimate(&reads.rounds, |round| Some(round.trip));
        let read = estimate(&reads.rounds, |round| Some(round.byte));
        let device = &mut profile.device;
        put(&mut device.write, rate(write));
        put(&mut device.read, rate(read));
        put(&mut device.latency, time(latency).map(Some));
        put(&mut device.read_latency, time(read_latency).map(Some));
        device.direct = None;
        // What is sent when nobody waits: until it is measured, as fast as what is waited for.
        device.writeback = Measured::assumed(device.write.value);
        let lines = |rounds: &[Points]| -> Vec<Line> {
            rounds.iter().filter_map(|points| Line::through(points)).collect()
        };
        let (synced, closed) = (sent(&self.synced), sent(&self.closed));
        let slopes: Vec<f64> = synced.iter().chain(&closed).map(|line| line.slope).collect();
        let flushed = Estimate::of(&slopes).filter(|found| found.value > 0.0);
        let writes_back = found.policy == CachePolicy::WriteBack;
        if writes_back {
            put(&mut device.writeback, rate(flushed));
        }
        let trip = nanos(latency);
        let fsync = match writes_back {
            true => beyond(estimate(&synced, |line| Some(line.intercept)), trip),
            false => estimate(&self.synced, |points| Some(points.first()?.1)),
        };
        put(&mut device.fsync, time(fsync));
        put(&mut device.sync_call, time(fsync));
        put(&mut device.flush, time(Estimate::of(&self.clean)).map(Some));
        device.commit = Nanos::ZERO;
        (device.cached_read, device.cached_read_latency) = (None, None);
        let ahead = bench.place.writeback_setting("read_ahead_kb").map(Bytes::kib);
        put(&mut device.readahead, ahead);
        device.seek = Measured::assumed(Nanos::ZERO);
        let request = |requests: &Requests, option: &str| {
            let told = bench.place.option(option).map(Bytes);
            told.unwrap_or(Bytes(requests.most as u64).min(bench.place.largest_request()))
        };
        let close = Estimate::of(&self.close);
        let calls = &profile.calls;
        let (open, shut) = (calls.open().value.get(), calls.close().value.get());
        let mut network = NetworkConstants::new(found.policy, request(&writes, "wsize"));
        network.read_request = Some(request(&reads, "rsize"));
        if let Some(most) = bench.place.fuse_setting("max_background") {
            network.in_flight = u32::try_from(most.max(1)).unwrap_or(u32::MAX);
        }
        network.open = time(beyond(Estimate::of(&self.open), open));
        network.create = time(beyond(Estimate::of(&self.create), open));
        network.close = time(beyond(close, shut));
        network.truncate = time(Estimate::of(&self.truncate));
        network.rename = time(Estimate::of(&self.rename));
        network.unlink = time(Estimate::of(&self.unlink));
        let unlink = nanos(Estimate::of(&self.unlink));
        let dropped = estimate(&self.removed, |(bytes, took)| Some((took - unlink) / (bytes / PAGE as f64)));
        network.drop_page = time(dropped.filter(|dropped| dropped.value > 0.0));
        network.open_keeps = found.open_keeps;
        if writes_back {
            network.close_flushes = found.close_flushes;
            network.reads_partial = found.reads_partial;
            let closes = nanos(close) + trip;
            network.commit = time(beyond(estimate(&closed, |line| Some(line.intercept)), closes));
            let near = lines(&self.near);
            let entry = estimate(&near, |line| Some(line.intercept));
            network.call = time(entry);
            network.near = rate(estimate(&near, |line| Some(line.slope)));
            network.cached = rate(estimate(&self.cached, |points| slope_beyond(points, nanos(entry))));
            network.fresh = rate(estimate(&self.fresh, |points| slope_beyond(points, nanos(entry))));
        } else if found.policy == CachePolicy::WriteThrough {
            // What it takes longer than past the cache; noise of round trips may hide it.
            let longer = |(through, past): (&Points, &Points)| {
                let line = |points: &[(f64, f64)]| requests(std::slice::from_ref(&points.to_vec()), call);
                let byte = |found: Requests| found.rounds.first().map(|round| round.byte);
                Some(byte(line(through))? - byte(line(past))?)
            };
            let pairs: Vec<f64> = self.through.iter().zip(&self.written).filter_map(longer).collect();
            let copy = Estimate::of(&pairs).filter(|copy| copy.value > copy.margin());
            network.fresh = rate(copy);
        }
        self.put_reads(profile.calls.read().value.get(), &mut network);
        profile.device.network = Some(network);
    }
}

impl Network {
    /// Those of reads from the page cache, of which `call` is what one takes elsewhere, in ns.
    fn put_reads(&self, call: f64, network: &mut NetworkConstants) {
        let near: Vec<Line> = self.read_near.iter().filter_map(|points| Line::through(points)).collect();
        let found = estimate(&near, |line| Some(line.intercept)).filter(|found| found.value > 0.0);
        let call = found.map_or(call, |found| found.value);
        let copy = estimate(&self.kept, |points| slope_beyond(points, call));
        network.read_call = time(found);
        network.read_near = rate(estimate(&near, |line| Some(line.slope)));
        network.read = rate(copy);
    }
}

/// Time per byte beyond a fixed cost: the median of the sizes.
fn slope_beyond(points: &[(f64, f64)], fixed: f64) -> Option<f64> {
    let rests: Vec<f64> = points.iter().map(|(size, time)| (time - fixed) / size).collect();
    median(&rests).filter(|slope| *slope > 0.0)
}

/// Of each round, how long it takes to send dirty bytes: what the most of them take beyond the fewest, and
/// what the fewest take besides. The sizes between say little, since what disturbs a flush is as long for
/// each.
fn sent(rounds: &[Points]) -> Vec<Line> {
    let of_round = |points: &Points| {
        let (few, many) = (points.first()?, points.last()?);
        let slope = if many.0 > few.0 { ((many.1 - few.1) / (many.0 - few.0)).max(0.0) } else { 0.0 };
        Some(Line { intercept: (few.1 - few.0 * slope).max(0.0), slope })
    };
    rounds.iter().filter_map(of_round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_what_most_bytes_take_beyond_few() {
        // 450 µs and 1 ns a byte, the middle size held up by something else.
        let cost = |bytes: f64| (bytes, 450e3 + bytes);
        let round = vec![cost(4096.0), (1_048_576.0, 9e6), cost(8_388_608.0)];
        let line = sent(std::slice::from_ref(&round))[0];
        assert!((line.slope - 1.0).abs() < 1e-9 && (line.intercept - 450e3).abs() < 1e-3, "{line:?}");
        let one = sent(&[vec![cost(4096.0)]])[0];
        assert_eq!((one.slope, one.intercept), (0.0, 454_096.0));
        assert!(sent(&[Vec::new()]).is_empty());
    }
}
