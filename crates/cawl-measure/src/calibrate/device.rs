//! The device without the page cache: transfer rates, latency, seek, flush, and the cost of a synchronous
//! call.
//!
//! A round makes calls of several sizes and fits a line through their costs: the intercept is the fixed part,
//! the slope the transfer. For calls that are not synchronous only large sizes are fitted: submission of a
//! request and the transfer overlap, so a small call costs as much as its submission, however fast the device
//! is.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_core::{Estimate, Line, quantile};
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::bench::{Bench, LARGEST, no_space, timed};
use super::interference::Stopwatch;

const SMALL: usize = 4 << 10;
/// Sizes of calls, and calls of each size in a round.
const CALLS: [(usize, usize); 5] = [(16 << 10, 8), (64 << 10, 8), (256 << 10, 5), (1 << 20, 4), (LARGEST, 3)];
/// Sizes of synchronous calls, and calls of each in a round; each may wait for a journal commit.
const SYNCHRONOUS: [(usize, usize); 3] = [(64 << 10, 5), (1 << 20, 3), (LARGEST, 3)];
/// Fewest and most synchronous calls of the smallest size, and the time after which no further one begins, in
/// ns.
const SMALL_CALLS: (usize, usize, f64) = (4, 24, 50e6);

/// From this size on the transfer determines the cost.
const TRANSFER: usize = 256 << 10;

/// Times per byte and per call, in ns.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Per byte written synchronously.
    pub write: Option<Estimate>,
    /// Per byte of a direct, not synchronous write into allocated blocks.
    pub transfer: Option<Estimate>,
    /// Per byte read.
    pub read: Option<Estimate>,
    /// Of a direct write, without the transfer.
    pub latency: Option<Estimate>,
    /// What a direct write takes longer into new blocks than over allocated ones.
    pub allocation: Option<Estimate>,
    /// What a direct write takes longer that extends its file by a part of a block of the filesystem.
    pub partial: Option<Estimate>,
    /// What a synchronous write through the page cache takes longer than a direct one, both into new blocks.
    pub through_cache: Option<Estimate>,
    /// Of a jump.
    pub seek: Option<Estimate>,
    /// Of a flush with nothing to write.
    pub flush: Option<Estimate>,
    /// Of a synchronous write that extends its file, without the transfer.
    pub sync_call: Option<Estimate>,
}

pub fn measure(bench: &mut Bench) -> anyhow::Result<Device> {
    let Some(file) = bench.scratch.direct_file("device", OFlag::empty())? else {
        return through_the_cache(bench);
    };
    // Space for each size of a round in sequence, written once so that blocks are allocated before the
    // measurement.
    let round_bytes: usize = CALLS.iter().map(|(size, count)| size * count).sum();
    let span = (bench.space / 2).min(bench.bytes_left / 4).min(128 << 20) as usize / LARGEST * LARGEST;
    if span < 2 * LARGEST || !bench.spend(span as u64) {
        bench.note("too few bytes were allowed to measure the device; give a higher --max-bytes");
        return Ok(Device::default());
    }
    let first = bench.write_run(&file, 0, span, LARGEST);
    if let Err(error) = first {
        // Some filesystems accept the flag and refuse the call.
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if code != Some(nix::Error::EINVAL as i32) {
            return Err(error);
        }
        bench.scratch.remove("device");
        return through_the_cache(bench);
    }
    file.sync_all()?;
    let synchronous = bench.scratch.again("device", OFlag::O_DIRECT | OFlag::O_DSYNC)?;
    let mut samples = Samples::default();
    let mut buffer = AlignedBuffer::new(LARGEST);
    let mut at = 0;
    bench.repeat(|bench, index| {
        let synchronous_bytes: usize =
            SMALL * SMALL_CALLS.1 + SYNCHRONOUS.iter().map(|(size, count)| size * count).sum::<usize>();
        let extending_bytes: usize = EXTENDING.iter().map(|(size, count)| 2 * size * (count + 1)).sum();
        let needed = (round_bytes
            + synchronous_bytes
            + extending_bytes
            + SMALL * (40 + 2 * (PAIRS.0 + 1) + 6 * (PARTED + 1))) as u64;
        if !bench.spend(needed) {
            bench.note(
                "the bytes allowed were used up before the last repeat; give a higher --max-bytes for more",
            );
            return Ok(());
        }
        let mut next = |size: usize| {
            // In sequence, and from the start again at the end.
            at = if at + size > span { 0 } else { at };
            at += size;
            (at - size) as u64
        };
        let mut lines = |buffer: &mut AlignedBuffer| -> anyhow::Result<()> {
            let mut points = [Vec::new(), Vec::new()];
            for (size, count) in CALLS {
                bench.go_on()?;
                // The first call seeks back and is not timed.
                let data = &mut buffer.bytes_mut()[..size];
                file.write_all_at(&data[..SMALL], next(SMALL)).with_context(no_space)?;
                let write = undisturbed(count, || Ok(file.write_all_at(data, next(size))?))?;
                file.read_exact_at(&mut data[..SMALL], next(SMALL))?;
                let read = undisturbed(count, || Ok(file.read_exact_at(data, next(size))?))?;
                points[0].push((size as f64, write));
                points[1].push((size as f64, read));
            }
            if let Some(line) = transfer(&points[0]) {
                // The smallest calls tell the fixed part better than the intercept.
                let (size, time) = points[0][0];
                samples.latency.push((time - line.slope * size).max(0.0));
                samples.transfer.push(line);
            }
            samples.read.extend(transfer(&points[1]));
            Ok(())
        };
        lines(&mut buffer)?;
        seek_and_flush(bench, &file, &synchronous, span, index, &mut samples)?;
        synchronous_calls(bench, index, &mut samples)?;
        // Last, since the time of a brief calibration may be over before.
        let allocation = allocation(bench)?;
        samples.allocation.push(allocation);
        samples.partial.extend(partial(bench, allocation)?);
        samples.through_cache.push(through_cache_longer(bench)?);
        Ok(())
    })?;
    Ok(samples.into_device(bench))
}

/// The line through the calls whose cost is the transfer; its slope is the time per byte.
fn transfer(points: &[(f64, f64)]) -> Option<Line> {
    let large: Vec<_> = points.iter().copied().filter(|(size, _)| *size >= TRANSFER as f64).collect();
    Line::through(&large)
}

#[derive(Default)]
struct Samples {
    write: Vec<Line>,
    transfer: Vec<Line>,
    latency: Vec<f64>,
    allocation: Vec<f64>,
    partial: Vec<f64>,
    read: Vec<Line>,
    seek: Vec<f64>,
    one_after_another: Vec<f64>,
    flush: Vec<f64>,
    sync_call: Vec<f64>,
    through_cache: Vec<f64>,
}

impl Samples {
    fn into_device(self, bench: &mut Bench) -> Device {
        let slope = |lines: &[Line]| {
            Estimate::of(
                &lines.iter().map(|line| line.slope).filter(|slope| *slope > 0.0).collect::<Vec<_>>(),
            )
        };
        let mut seek = Estimate::of(&self.seek);
        let plain = quantile(&self.one_after_another, 0.5).unwrap_or(0.0);
        let through_cache = Estimate::of(&self.through_cache).filter(|longer| longer.value > longer.margin());
        // A difference within the noise, or below 10 % of a call, counts as none.
        if let Some(found) = &mut seek
            && (found.value < 2.0 * found.margin() || found.value < 0.1 * plain)
        {
            *found = Estimate { value: 0.0, p10: 0.0, p90: found.p90.max(0.0), ..*found };
        }
        if self.transfer.is_empty() {
            bench.note("the device could not be measured directly");
        }
        Device {
            write: slope(&self.write),
            transfer: slope(&self.transfer),
            read: slope(&self.read),
            latency: Estimate::of(&self.latency),
            allocation: Estimate::of(&self.allocation),
            partial: Estimate::of(&self.partial),
            seek,
            flush: Estimate::of(&self.flush),
            sync_call: Estimate::of(&self.sync_call),
            through_cache,
        }
    }
}

/// Sizes of direct writes into new blocks, and calls of each.
const EXTENDING: [(usize, usize); 2] = [(SMALL, 12), (64 << 10, 12)];

/// What direct writes take longer that extend a file than the same over its blocks, in the mean of sizes.
fn allocation(bench: &mut Bench) -> anyhow::Result<f64> {
    let mut longer = 0.0;
    for (size, count) in EXTENDING {
        bench.go_on()?;
        let file =
            bench.scratch.direct_file("extending", OFlag::empty())?.context("no direct I/O any more")?;
        let data = &bench.data.bytes()[..size];
        let pass = || {
            let mut at = 0;
            // The first call seeks.
            file.write_all_at(data, 0).with_context(no_space)?;
            undisturbed(count, || {
                at += size as u64;
                Ok(file.write_all_at(data, at)?)
            })
        };
        let (new, over) = (pass()?, pass()?);
        longer += (new - over) / EXTENDING.len() as f64;
        bench.scratch.remove("extending");
    }
    Ok(longer.max(0.0))
}

/// Blocks of the filesystem that are filled in parts, for each size of part.
const PARTED: usize = 6;

/// What direct writes of a half, a quarter and an eighth of the filesystem's block take longer that extend a
/// file than the same over its blocks, beyond the `allocation` of those that begin a block, in the mean; None
/// if the device's block is not smaller than the filesystem's.
fn partial(bench: &Bench, allocation: f64) -> anyhow::Result<Option<f64>> {
    let block = bench.place.stream_buffer.0.min(SMALL as u64) as usize;
    let logical = bench.place.block.map_or(512, |block| block.0 as usize);
    let sizes: Vec<usize> =
        [2, 4, 8].map(|parts| block / parts).into_iter().filter(|size| *size >= logical).collect();
    let mut longer = 0.0;
    for size in &sizes {
        let file = bench.scratch.direct_file("parted", OFlag::empty())?.context("no direct I/O any more")?;
        let data = &bench.data.bytes()[..*size];
        let pass = || {
            bench.go_on()?;
            let mut times = [Vec::new(), Vec::new()];
            // The first block seeks.
            for at in (0..(PARTED + 1) * block).step_by(*size) {
                let time = timed(|| file.write_all_at(data, at as u64).with_context(no_space))?;
                times[usize::from(at % block != 0)].extend((at >= block).then_some(time));
            }
            let [begin, within] = times.map(|times| quantile(&times, 0.25).unwrap_or(f64::NAN));
            let begins = *size as f64 / block as f64;
            anyhow::Ok(begins * begin + (1.0 - begins) * within)
        };
        let (new, over) = (pass()?, pass()?);
        longer += new - over - allocation * *size as f64 / block as f64;
        bench.scratch.remove("parted");
    }
    Ok((!sizes.is_empty()).then(|| (longer / sizes.len() as f64).max(0.0)))
}

/// Pairs of synchronous writes, through the page cache and direct, and the time after which no further one
/// begins, in ns.
const PAIRS: (usize, f64) = (8, 20e6);

/// What a small synchronous write that extends a file takes longer through the page cache than past it. The
/// two take turns, and the first quartile of each counts, since a call may wait long for the journal.
fn through_cache_longer(bench: &mut Bench) -> anyhow::Result<f64> {
    let direct = bench.scratch.direct_file("direct", OFlag::O_DSYNC)?.context("no direct I/O any more")?;
    bench.scratch.file("cached")?;
    let cached = bench.scratch.again("cached", OFlag::O_DSYNC)?;
    let data = &bench.data.bytes()[..SMALL];
    let mut times = [Vec::new(), Vec::new()];
    let watch = Stopwatch::start();
    for at in (0..=PAIRS.0).take_while(|at| *at < 2 || watch.elapsed() < PAIRS.1) {
        for (file, times) in [&direct, &cached].into_iter().zip(&mut times) {
            bench.go_on()?;
            let time = timed(|| file.write_all_at(data, (at * SMALL) as u64).with_context(no_space))?;
            // The first call of a file also allocates its first block.
            if at > 0 {
                times.push(time);
            }
        }
    }
    ["direct", "cached"].iter().for_each(|name| bench.scratch.remove(name));
    let [direct, cached] = times.map(|times| quantile(&times, 0.25).unwrap_or(f64::NAN));
    Ok(cached - direct)
}

/// Small synchronous writes, sequential and far apart, and flushes with nothing else to write.
fn seek_and_flush(
    bench: &Bench,
    file: &File,
    synchronous: &File,
    span: usize,
    index: usize,
    samples: &mut Samples,
) -> anyhow::Result<()> {
    let data = &bench.data.bytes()[..SMALL];
    let pages = (span / SMALL) as u64;
    let start = index as u64 * 97 % (pages / 2);
    let mut call = 0;
    synchronous.write_all_at(data, start * SMALL as u64).with_context(no_space)?;
    let plain = undisturbed(5, || {
        bench.go_on()?;
        call += 1;
        Ok(synchronous.write_all_at(data, (start + call) * SMALL as u64)?)
    })?;
    let far = undisturbed(5, || {
        bench.go_on()?;
        call += 1;
        // Two fifths of the file further on each time, never where the last one ended.
        Ok(synchronous.write_all_at(data, (start + call * (pages * 2 / 5 + 3)) % pages * SMALL as u64)?)
    })?;
    samples.one_after_another.push(plain);
    samples.seek.push(far - plain);
    let mut flushes = Vec::new();
    for _ in 0..7 {
        bench.go_on()?;
        file.write_all_at(data, 0).with_context(no_space)?;
        flushes.push(timed(|| Ok(file.sync_data()?))?);
    }
    samples.flush.extend(quantile(&flushes, 0.25));
    Ok(())
}

/// Synchronous writes that extend a file, direct where the filesystem allows it.
fn synchronous_calls(bench: &Bench, index: usize, samples: &mut Samples) -> anyhow::Result<()> {
    let name = format!("sync-{index}");
    let file = match bench.scratch.direct_file(&name, OFlag::O_SYNC)? {
        Some(file) => file,
        None => {
            bench.scratch.file(&name)?;
            bench.scratch.again(&name, OFlag::O_SYNC)?
        }
    };
    let mut at = 0;
    let mut write = |size: usize| {
        bench.go_on()?;
        let time = timed(|| file.write_all_at(&bench.data.bytes()[..size], at).with_context(no_space))?;
        at += size as u64;
        anyhow::Ok(time)
    };
    let (fewest, most, time) = SMALL_CALLS;
    let (watch, mut small) = (Stopwatch::start(), Vec::with_capacity(most));
    while small.len() < fewest || small.len() < most && watch.elapsed() < time {
        small.push(write(SMALL)?);
    }
    // The first call of a file allocates its first block, and a device takes longer for the first calls after
    // others: it and its host have slept.
    let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let mut points = vec![(SMALL as f64, mean(&small[small.len() / 3..]))];
    for (size, count) in SYNCHRONOUS {
        let times = (0..count).map(|_| write(size)).collect::<anyhow::Result<Vec<f64>>>()?;
        // The mean, since waits for the journal are part of the cost and vary.
        points.push((size as f64, mean(&times)));
    }
    bench.scratch.remove(&name);
    if let Some(line) = Line::through(&points) {
        samples.sync_call.push(line.intercept);
        samples.write.push(line);
    }
    Ok(())
}

/// Without direct I/O: synchronous calls, flushes, and reads after the pages were dropped from the cache.
fn through_the_cache(bench: &mut Bench) -> anyhow::Result<Device> {
    bench.note(
        "this filesystem has no direct I/O: the device's rates were measured through the page cache, its \
         latencies and seek time not at all",
    );
    let length = (bench.space / 4).min(64 << 20) as usize / LARGEST * LARGEST;
    if length == 0 || !bench.spend(length as u64) {
        return Ok(Device::default());
    }
    let file = bench.scratch.file("device")?;
    bench.write_run(&file, 0, length, LARGEST)?;
    file.sync_all()?;
    let mut samples = Samples::default();
    bench.repeat(|bench, index| {
        if !bench.spend(16 << 20) {
            return Ok(());
        }
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        let mut buffer = vec![0; LARGEST];
        let read = timed(|| {
            for at in (0..length).step_by(LARGEST) {
                file.read_exact_at(&mut buffer, at as u64)?;
            }
            Ok(())
        })?;
        samples.read.extend(Line::through(&[(0.0, 1.0), (length as f64, read)]));
        file.write_all_at(&bench.data.bytes()[..SMALL], 0)?;
        samples.flush.push(timed(|| Ok(file.sync_data()?))?);
        synchronous_calls(bench, index, &mut samples)
    })?;
    let device = samples.into_device(bench);
    Ok(Device { latency: None, seek: None, ..device })
}

/// The first quartile of a call's cost: keeps nearly all of the device's own time, and leaves out nearly all
/// delays by other programs.
fn undisturbed(count: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        times.push(timed(&mut call)?);
    }
    Ok(quantile(&times, 0.25).unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transfer_is_that_of_the_device_however_long_the_way_to_it() {
        // 15 µs and 2 GB/s, or the time of submission where that is longer.
        for way in [0.0, 17e3, 49e3, 80e3] {
            let call = |size: f64| (size, (15e3 + 0.5 * size).max(way + 0.2 * size));
            let points: Vec<_> = CALLS.iter().map(|(size, _)| call(*size as f64)).collect();
            let slope = transfer(&points).unwrap().slope;
            assert!((slope - 0.5).abs() < 1e-9, "a way of {way} ns: {slope} ns a byte");
        }
    }
}
