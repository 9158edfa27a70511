//! Measures the constants of a machine and a device, each with its spread.
//!
//! The law: **nothing is left behind.** It writes only into a folder of its own, which is removed at the end,
//! on every way out; it changes settings only when told to, and restores them. A constant that could not be
//! measured is named and stays an assumption in the profile (0 samples). docs/reference/CALIBRATION.md says
//! how each constant is measured.

mod bench;
mod check;
mod device;
mod few;
pub mod interference;
mod memory;
mod network;
mod read_contention;
mod reads;
mod small_writes;
mod stream;
mod writeback;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use cawl_core::{
    Bytes, Estimate, HostProfile, MachineKind, Measured, Nanos, Origin, QueueConstants, Rate, Thoroughness,
    Time, settled_base_rate,
};
use cawl_host::cgroup::Group;
use cawl_host::direct::AlignedBuffer;
use cawl_host::free;
use cawl_host::limits::LoweredLimits;
use cawl_host::place::{Backing, Place};
use serde::Serialize;

use crate::interrupt::Interrupted;
use crate::progress::Progress;
use crate::scratch::{self, Scratch};
use crate::slow_limit::{self, Budget};

use bench::{BRIEF_SOURCE, Bench, OutOfTime, SOURCE, after, hard};
pub use check::{Compared, check};

/// The effort of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Time limit.
    pub time: Nanos,
    /// Most bytes to write to the device.
    pub bytes: Bytes,
    /// Fewest and most repeats of a measurement.
    pub rounds: (usize, usize),
    /// A brief measurement ends when its time is over, with what it found until then.
    pub thoroughness: Thoroughness,
}

impl Effort {
    /// Within two seconds, with set-up and removal.
    pub const BRIEF: Effort = Effort::new(Thoroughness::Brief, 1.7, 768, (1, 8));
    /// Within half a minute.
    pub const QUICK: Effort = Effort::new(Thoroughness::Quick, 18.0, 4 << 10, (3, 8));
    /// Within two minutes.
    pub const NORMAL: Effort = Effort::new(Thoroughness::Normal, 70.0, 8 << 10, (5, 20));
    /// Within some minutes.
    pub const THOROUGH: Effort = Effort::new(Thoroughness::Thorough, 300.0, 32 << 10, (9, 60));

    const fn new(thoroughness: Thoroughness, seconds: f64, mib: u64, rounds: (usize, usize)) -> Effort {
        Effort { time: Nanos::seconds(seconds), bytes: Bytes::mib(mib), rounds, thoroughness }
    }
}

/// Options of a calibration.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder to measure in.
    pub path: PathBuf,
    /// The effort.
    pub effort: Effort,
    /// Lower the kernel's dirty limits during the measurement.
    pub lower_limits: bool,
    /// Known constants; kept where a brief measurement finds nothing.
    pub known: Option<HostProfile>,
}

/// All shares of the time, without lowered limits.
const SHARES: f64 = 1.07;

/// Least bytes that tell anything of a device.
pub const MIN_WRITTEN: Bytes = Bytes::mib(16);

/// Least free space on the filesystem.
const MIN: Bytes = Bytes::mib(64);

/// Time limit for a brief measurement that another process makes, in seconds.
const PATIENCE: u64 = 4;

/// The time limit for a brief calibration by another process, or for that of another run. Tests set a longer
/// one, since their machine may be busy.
pub fn patience() -> Duration {
    let set = std::env::var("CAWL_TEST_PATIENCE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(set.unwrap_or(PATIENCE))
}

/// The result of a calibration.
#[derive(Debug, Serialize)]
pub struct Calibration {
    /// Where it measured.
    pub place: Place,
    /// The constants.
    pub profile: HostProfile,
    /// Constants that no model uses.
    pub extra: Extra,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// What it took.
    pub seconds: f64,
    /// Bytes written to the device.
    pub written: Bytes,
}

/// Constants that no model uses.
#[derive(Debug, Default, Serialize)]
pub struct Extra {
    /// Rate of direct, not synchronous writes into allocated blocks.
    pub transfer: Option<Measured<Rate>>,
    /// Fixed cost of a direct, not synchronous write.
    pub latency: Option<Measured<Nanos>>,
    /// A flush of the device's cache without data.
    pub flush: Option<Measured<Nanos>>,
    /// A read of no bytes: the change of mode, without anything of the filesystem's.
    pub mode_switch: Option<Measured<Nanos>>,
}

/// Calibrates. `signal` holds the number of a received signal that asks to stop, or zero.
pub fn calibrate(options: &Options, signal: Arc<AtomicUsize>) -> anyhow::Result<Calibration> {
    let started = cawl_host::now();
    let watch = interference::Watch::begin();
    let mut bench = set_up(options, signal)?;
    if bench.place.backing == Backing::Network {
        return elsewhere(options, bench, started, watch);
    }
    let on_device = bench.place.backing != Backing::Memory;
    let has_device = on_device && bench.device_is_free()?;
    let begun = cawl_host::now();
    // With few bytes, most go to the writeback rate, since a short burst tells little of it.
    let bytes = if bench.brief { [0.07, 0.12, 0.16] } else { [0.3, 0.35, 0.6] };
    // Cumulative shares of the time and of the bytes.
    let mut by_then = 0.0;
    let mut share = |bench: &mut Bench, what: &'static str, time: f64, bytes: f64| {
        bench.progress.begin(what);
        by_then += time;
        // A brief calibration passes unused time on to the next measurement.
        bench.deadline = match bench.brief {
            true => begun + options.effort.time * (by_then / SHARES),
            false => after(options.effort.time * time),
        };
        let most = (options.effort.bytes.as_f64() * bytes) as u64;
        bench.bytes_left = most.saturating_sub(bench.bytes_written);
    };

    share(&mut bench, "page cache", 0.22, 0.0);
    let memory = memory::measure(&mut bench)?;
    share(&mut bench, "reads from the page cache", 0.04, 0.0);
    let reads = unless_over(reads::measure(&mut bench))?;
    let mut device_reads = reads::DeviceReads::default();
    let (mut reads_wait, mut reads_wait_for_reads) = (None, None);
    let mut device = device::Device::default();
    let durable;
    let mut writeback = writeback::Writeback::default();
    if has_device {
        share(&mut bench, "device", 0.26, bytes[0]);
        device = unless_over(device::measure(&mut bench))?;
        share(&mut bench, "reads from the device", 0.03, bytes[0] + 0.03);
        let per_byte = device.read.map_or(0.0, |read| read.value);
        device_reads = unless_over(reads::of_device(&mut bench, per_byte))?;
        reads_wait = unless_over(read_contention::measure(&mut bench, &device, device_reads.latency))?;
        reads_wait_for_reads = unless_over(read_contention::reads(&bench, &device, device_reads.latency))?;
        share(&mut bench, "fsync", 0.1, bytes[1]);
        let [per_byte, seek] =
            [device.write, device.seek].map(|found| found.map_or(0.0, |found| found.value));
        durable = unless_over(small_writes::measure(&mut bench, per_byte, seek))?;
        share(&mut bench, "page cache while the flusher works", 0.15, bytes[2]);
        let transfer = device.transfer.map(|transfer| transfer.value);
        unless_over(writeback::factor(&mut bench, &memory, transfer, &mut writeback))?;
        share(&mut bench, "writeback rate", 0.25, 1.0);
        let before = hard();
        let lowered = lowered(&bench, options, &device)?;
        if lowered.is_some() {
            follow(&mut bench, before, options.effort.time * 0.5)?;
            share(&mut bench, "writeback rate", 0.25, 1.0);
        }
        let synchronous = device.write.map(|write| write.value).or(transfer);
        unless_over(writeback::rate_of_writeback(&mut bench, synchronous, &mut writeback))?;
    } else {
        share(&mut bench, "calls after other work", 0.1, 0.0);
        durable = unless_over(small_writes::away(&mut bench))?;
        if !on_device {
            bench.note(
                "this filesystem keeps its files in memory: there is no device, its constants are defaults",
            );
        }
    }
    share(&mut bench, "streams", 0.02, 0.0);
    let stream = streams(&mut bench);
    Interrupted::by(&bench.signal)?;
    let mut profile = profile(&bench, options, &stream, &memory, &device, &durable, &writeback);
    put_reads(&mut profile, &reads, &device_reads);
    put(
        &mut profile.device.shared_queue,
        shared_queue(&bench.place, reads_wait, reads_wait_for_reads).map(Some),
    );
    if on_device && !has_device {
        // Runs follow the device; the next one measures it.
        profile.origin = Origin::Learned;
    }
    let extra = Extra {
        transfer: rate(device.transfer),
        latency: time(device.latency),
        flush: time(device.flush),
        mode_switch: time(Estimate::of(&reads.mode_switch)),
    };
    Ok(done(bench, profile, extra, started, &watch))
}

fn streams(bench: &mut Bench) -> stream::Stream {
    stream::measure().unwrap_or_else(|error| {
        bench.note(&format!("streams were not measured: {error:#}"));
        stream::Stream::default()
    })
}

fn done(
    mut bench: Bench,
    mut profile: HostProfile,
    extra: Extra,
    started: Time,
    watch: &interference::Watch,
) -> Calibration {
    profile.disturbed = watch.disturbed();
    if let Some(few) = few::few(&profile).filter(|_| !bench.brief) {
        bench.note(&few);
    }
    let written = Bytes(bench.bytes_written);
    if let Some(under) = few::confined(Group::of(None).and_then(|group| group.limit()), written) {
        bench.note(&format!(
            "{under}, which is small against the {written} that were written: rates may be many times off; calibrate \
             outside of this control group"
        ));
        profile.name = format!("{} {under}", profile.name);
    }
    if let Some(processors) = profile.disturbed {
        bench.note(&format!(
            "disturbed: other programs computed at the same time ({processors:.1} of {} processors); constants may be \
             wrong, so calibrate again when they have ended",
            cawl_host::uncalibrated_profile().kernel.cpus
        ));
    }
    Calibration {
        profile,
        extra,
        notes: std::mem::take(&mut bench.notes),
        seconds: cawl_host::now().since(started).as_seconds(),
        written: Bytes(bench.bytes_written),
        place: bench.place.clone(),
    }
}

/// The most time that a mount takes whose files are elsewhere.
const MOUNT: Nanos = Nanos::seconds(16.0);

/// A mount whose files are elsewhere. What is the machine's own is measured in the folder of temporary files.
fn elsewhere(
    options: &Options,
    mut bench: Bench,
    started: Time,
    watch: interference::Watch,
) -> anyhow::Result<Calibration> {
    let all = options.effort.time.min(MOUNT);
    let (mut memory, mut stream) = (memory::Memory::default(), stream::Stream::default());
    let mut reads = None;
    if options.known.is_none() {
        let is_here = |path: &PathBuf| Place::of(path).is_ok_and(|place| place.backing != Backing::Network);
        let path = [std::env::temp_dir(), "/dev/shm".into()].into_iter().find(is_here).unwrap_or_default();
        let here = Options { path, ..options.clone() };
        match set_up(&here, Arc::clone(&bench.signal)) {
            Ok(mut here) => {
                here.progress.begin("page cache");
                here.deadline = after(all * 0.2);
                memory = unless_over(memory::measure(&mut here))?;
                here.deadline = after(all * 0.05);
                reads = Some(unless_over(reads::measure(&mut here))?);
                stream = streams(&mut bench);
            }
            Err(error) => bench.note(&format!("memory was not measured: {error:#}")),
        }
    }
    bench.bytes_left = options.effort.bytes.0;
    let network = network::measure(&mut bench, all * 0.75)?;
    Interrupted::by(&bench.signal)?;
    let (device, durable, writeback) = Default::default();
    // What is known of a disk says nothing of a mount.
    let mut options = options.clone();
    if let Some(known) = &mut options.known {
        known.device = HostProfile::uncalibrated().device;
    }
    let mut profile = profile(&bench, &options, &stream, &memory, &device, &durable, &writeback);
    if let Some(reads) = &reads {
        put_reads(&mut profile, reads, &reads::DeviceReads::default());
    }
    network.put(&bench, &mut profile);
    Ok(done(bench, profile, Extra::default(), started, &watch))
}

/// An empty result if the time was over before the measurement began.
fn unless_over<T: Default>(found: anyhow::Result<T>) -> anyhow::Result<T> {
    match found {
        Err(error) if error.is::<OutOfTime>() => Ok(T::default()),
        found => found,
    }
}

fn set_up(options: &Options, signal: Arc<AtomicUsize>) -> anyhow::Result<Bench> {
    let place = Place::of(&options.path)?;
    let put_back = LoweredLimits::put_back_left()?;
    let scratch = Scratch::create(&place.folder, scratch::CALIBRATE)?;
    let available = scratch.require(MIN)?;
    // At most half of the free space, so that other programs do not run out of it.
    let space = (available.0 / 2).min(options.effort.bytes.0);
    let brief = options.effort.thoroughness == Thoroughness::Brief;
    let mut bench = Bench {
        place,
        scratch,
        progress: Progress::new(options.effort.time),
        notes: Vec::new(),
        rounds: options.effort.rounds,
        brief,
        bytes_left: 0,
        bytes_written: 0,
        space,
        data: AlignedBuffer::new(if brief { BRIEF_SOURCE } else { SOURCE }),
        deadline: Time::default(),
        signal,
    };
    if put_back {
        bench.note("the dirty limits, which a killed run had left lowered, were put back");
    }
    let note = match bench.place.backing {
        Backing::Disk | Backing::Memory => return Ok(bench),
        Backing::Pool => {
            "this filesystem spreads data over its own devices and may compress them: the device constants are \
             those of the whole, for data that compress well"
        }
        Backing::Network => "the files are elsewhere: the device constants include the way there",
        Backing::Stacked => "this filesystem lies on another one: the device constants include both",
    };
    bench.note(note);
    Ok(bench)
}

/// Dirty limits that a writer reaches within a second, if limits are to be lowered.
fn lowered(
    bench: &Bench,
    options: &Options,
    device: &device::Device,
) -> anyhow::Result<Option<LoweredLimits>> {
    if !options.lower_limits {
        return Ok(None);
    }
    let per_ns = device.transfer.or(device.write).map_or(0.4, |write| 1.0 / write.value);
    let most = (bench.bytes_left.min(bench.space * 2) / 8).min(256 << 20);
    let hard = ((per_ns * 0.6e9) as u64).min(most).max(16 << 20);
    LoweredLimits::lower(Bytes(hard / 2), Bytes(hard), || bench.go_on().is_ok()).map(Some)
}

/// Waits until the kernel's smoothed limit has followed the lowered one; writes at most a quarter of the
/// remaining bytes.
fn follow(bench: &mut Bench, before: Bytes, time: Nanos) -> anyhow::Result<()> {
    let budget = Budget { bytes: Bytes(bench.bytes_left / 4), time };
    let Bench { scratch, progress, signal, .. } = bench;
    let followed = slow_limit::follow(scratch, before, budget, progress, signal)?;
    bench.bytes_written += followed.written.0;
    if let Some(note) = followed.note {
        bench.note(&note);
    }
    Ok(())
}

/// A fixed cost without the latency it includes.
fn less(cost: Estimate, latency: Option<Measured<Nanos>>) -> Estimate {
    let latency = latency.map_or(0.0, |latency| latency.value.get());
    let rest = |time: f64| (time - latency).max(0.0);
    Estimate { value: rest(cost.value), p10: rest(cost.p10), p90: rest(cost.p90), ..cost }
}

/// What a synchronous write of a page through the page cache took longer than a direct one, but for what it
/// costs to get the page there: the device's wait is over a clean inode, in whose time caches went cold.
fn delayed_allocation(profile: &HostProfile, device: &device::Device) -> Option<Measured<Nanos>> {
    let longer = device.through_cache?;
    let nanos = |constant: Option<Measured<Nanos>>| constant.map_or(0.0, |constant| constant.value.get());
    let calls = &profile.calls;
    let waited = Nanos::new(device.sync_call.map_or(0.0, |call| call.value));
    let paths = 2.0 * calls.after(waited).get();
    let page = profile.kernel.page.as_f64() / profile.memory.fresh.value.get() * 1e9;
    let cached = nanos(calls.inode) + nanos(calls.folio) + paths + page;
    let allocation = nanos(profile.device.allocation);
    let rest = |time: f64| (time + allocation - cached).max(0.0);
    time(Some(Estimate { value: rest(longer.value), p10: rest(longer.p10), p90: rest(longer.p90), ..longer }))
}

/// The least time of a byte, in ns: no machine copies more than 200 GB/s (`HostProfile::range`).
const MIN_COPY: f64 = 0.005;

/// A constant from times per byte; none of one that no machine has.
fn rate(found: Option<Estimate>) -> Option<Measured<Rate>> {
    let found = found.filter(|found| found.value >= MIN_COPY)?;
    Some(found.measured(|time| Rate::per_second(1e9 / time)))
}

fn time(found: Option<Estimate>) -> Option<Measured<Nanos>> {
    found.map(|found| found.measured(Nanos::new))
}

/// Replaces a constant if another value was found.
fn put<T>(to: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *to = found;
    }
}

fn profile(
    bench: &Bench,
    options: &Options,
    stream: &stream::Stream,
    memory: &memory::Memory,
    device: &device::Device,
    durable: &small_writes::Durable,
    writeback: &writeback::Writeback,
) -> HostProfile {
    let mut profile = options.known.clone().unwrap_or_else(HostProfile::uncalibrated);
    put_settings(&mut profile, &bench.place);
    put(&mut profile.memory.stream, rate(stream.copy));
    put(&mut profile.memory.fresh, rate(memory.fresh));
    put(&mut profile.memory.cached, rate(memory.cached));
    put(&mut profile.memory.cold, rate(memory.cold).map(Some));
    profile.memory.cold_share = memory.cold_share;
    if profile.memory.cold.is_none() && free::is_taken_back() {
        profile.memory.cold = Some(profile.memory.assumed_cold());
    }
    put(&mut profile.memory.hot, rate(memory.hot).map(Some));
    put(&mut profile.memory.hot_large, rate(memory.hot_large).map(Some));
    put(&mut profile.memory.hot_size, memory.hot_size);
    put(&mut profile.memory.near, rate(memory.near).map(Some));
    if let Some(found) = writeback.factor {
        profile.memory.flush_factor = found.measured(|factor| factor.min(1.0));
    }
    put(&mut profile.calls.write, time(memory.call));
    put(&mut profile.calls.empty, time(memory.empty).map(Some));
    put(&mut profile.calls.folio, time(memory.folio).map(Some));
    put(&mut profile.calls.jump, time(memory.jump).map(Some));
    put(&mut profile.calls.over, time(memory.over).map(Some));
    put(&mut profile.calls.free, time(memory.free));
    put(&mut profile.calls.stream, time(stream.call));
    put(&mut profile.calls.buffer, time(stream.buffer).map(Some));
    put(&mut profile.calls.inode, time(durable.inode.mean()).map(Some));
    put(&mut profile.calls.clean, time(durable.clean.mean()).map(Some));
    put(&mut profile.calls.away, time(durable.away.mean()).map(Some));
    put(&mut profile.calls.away_soon, time(durable.away_soon.mean()).map(Some));
    put(&mut profile.memory.folio, rate(durable.folio.mean()).map(Some));
    put(&mut profile.calls.block, time(durable.block.difference()).map(Some));
    put(&mut profile.calls.block_far, time(durable.block_far.difference()).map(Some));
    put(&mut profile.memory.block_cache, durable.block_cache().map(Some));
    put(&mut profile.device.write, rate(device.write));
    put(&mut profile.device.read, rate(device.read));
    put(&mut profile.device.seek, time(device.seek));
    let latency = time(durable.latency.mean());
    put(&mut profile.device.latency, latency.map(Some));
    put(&mut profile.device.direct, time(device.latency).map(Some));
    let allocation = time(device.allocation);
    put(&mut profile.device.allocation, allocation.map(Some));
    put(&mut profile.device.partial, time(device.partial).map(Some));
    let delayed = delayed_allocation(&profile, device);
    put(&mut profile.device.delayed_allocation, delayed.map(Some));
    // Measured by direct writes into new blocks.
    put(
        &mut profile.device.sync_call,
        time(device.sync_call.map(|call| less(less(call, latency), allocation))),
    );
    put(&mut profile.device.fsync, time(durable.commit.mean()));
    put(&mut profile.device.flush, time(durable.flush.mean()).map(Some));
    put(&mut profile.device.idle, time(durable.idle.mean()).map(Some));
    put(&mut profile.device.folio, time(durable.handed.difference()).map(Some));
    put(&mut profile.device.discard_latency, time(difference(&durable.discard_latency)).map(Some));
    put(&mut profile.device.discard, rate(Estimate::of(&durable.discard)).map(Some));
    put(&mut profile.device.request, time(durable.request.difference()).map(Some));
    if writeback.rate.is_none() && profile.device.writeback.samples == 0 {
        // An assumption: the fastest write is nearer to the writeback rate than the default.
        let rates = [rate(device.write), rate(device.transfer)].into_iter().flatten();
        let fastest = rates.map(|found| found.value).max_by(|a, b| a.get().total_cmp(&b.get()));
        put(&mut profile.device.writeback, fastest.map(Measured::assumed));
    }
    if let Some(found) = writeback.rate {
        let of_bytes = |per_ns: f64| Rate::per_second(per_ns * 1e9);
        profile.device.writeback = found.measured(of_bytes);
        if device.write.is_none() {
            profile.device.write = profile.device.writeback;
        }
        let told = writeback.base_rate.map(|found| found.measured(of_bytes));
        profile.device.base_rate = Some(told.unwrap_or_else(|| settled_base_rate(&profile)));
    }
    put(&mut profile.device.queue, writeback.queue.map(Bytes));
    profile.origin = Origin::Calibrated;
    profile.created = Some(cawl_host::wall_clock());
    profile.measured = Some(options.effort.thoroughness);
    profile.contradicted = 0;
    profile.merged = 0;
    profile.learned = None;
    profile
}

/// What is set and not measured, by the kernel, the filesystem and the device of a place; and what these are.
pub fn put_settings(profile: &mut HostProfile, place: &Place) {
    cawl_host::apply_settings(profile);
    profile.name = format!("{} on {}", place.filesystem, place.device);
    profile.machine = Some(MachineKind { processor: cawl_host::processor(), storage: place.storage() });
    profile.kernel.stream_buffer = place.stream_buffer;
    let device = &mut profile.device;
    put(&mut device.block, place.block);
    put(&mut device.readahead, place.readahead());
    put(&mut device.commit, place.commit);
    let percent = |name: &str| place.writeback_setting(name).map(|percent| percent as f64 / 100.0);
    put(&mut device.min_ratio, percent("min_ratio"));
    put(&mut device.max_ratio, percent("max_ratio"));
    device.strict_limit = place.writeback_setting("strict_limit") == Some(1);
    device.syncs_stamps = place.lacks_journal;
    device.filesystem = Some(place.kind);
    if let Some((shared, queue)) = device.shared_queue.as_mut().zip(place.queue()) {
        (shared.wbt_latency, shared.requests) = (queue.wbt_latency, queue.requests.max(1));
        put(&mut shared.write_cache, place.write_cache);
    }
}

/// How reads and the flusher's writes share the queue of a disk.
fn shared_queue(
    place: &Place,
    reads_wait: Option<Estimate>,
    for_reads: Option<Estimate>,
) -> Option<QueueConstants> {
    let queue = place.queue()?;
    Some(QueueConstants {
        reads_wait: reads_wait?.measured(|part| part.clamp(0.0, 1.0)),
        reads_wait_for_reads: for_reads.map(|part| part.measured(|part| part.clamp(0.0, 1.0))),
        wbt_latency: queue.wbt_latency,
        requests: queue.requests.max(1),
        write_cache: place.write_cache?,
    })
}

fn put_reads(profile: &mut HostProfile, reads: &reads::Reads, device: &reads::DeviceReads) {
    let HostProfile { memory, calls, device: constants, .. } = profile;
    let of = |samples: &[f64]| Estimate::of(samples);
    put(&mut memory.read, rate(of(&reads.copy)).map(Some));
    put(&mut memory.read_hot, rate(of(&reads.hot)).map(Some));
    put(&mut memory.read_fresh, rate(of(&reads.fresh)).map(Some));
    put(&mut calls.read, time(of(&reads.call)).map(Some));
    put(&mut calls.empty_read, time(of(&reads.empty)).map(Some));
    put(&mut calls.read_folio_far, time(difference(&reads.folio_far)).map(Some));
    put(&mut calls.read_apart, time(difference(&reads.apart)).map(Some));
    put(&mut calls.read_away, time(difference(&reads.away)).map(Some));
    put(&mut calls.fault, time(difference(&reads.fault)).map(Some));
    put(&mut calls.open, time(of(&reads.open)).map(Some));
    put(&mut calls.create, time(of(&reads.create)).map(Some));
    put(&mut calls.name, time(of(&reads.name)).map(Some));
    put(&mut calls.stat, time(of(&reads.stat)).map(Some));
    put(&mut calls.close, time(of(&reads.close)).map(Some));
    put(&mut constants.read_latency, time(device.latency).map(Some));
    constants.completes_together = device.together.then_some(true);
    put(&mut constants.sequential_read, rate(device.ahead).map(Some));
    put(&mut constants.cached_read, rate(device.cached).map(Some));
    put(&mut constants.cached_read_latency, time(device.cached_latency).map(Some));
}

/// The median of differences, of which each may be below zero.
fn difference(samples: &[f64]) -> Option<Estimate> {
    let found = Estimate::of(samples)?;
    let [value, p10, p90] = [found.value, found.p10, found.p90].map(|time| time.max(0.0));
    Some(Estimate { value, p10, p90, ..found })
}
