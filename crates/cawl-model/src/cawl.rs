//! `cawl`: the model of the CAWL paper. A write runs at memory speed until too much is dirty; then the
//! flusher slows it down, and above the setpoint its own average rate is throttled.
//!
//! The published laws, each in a place of its own:
//!
//! | paper | here |
//! |---|---|
//! | Eq. 1, throttled rate | `throttle::throttled_span`, `throttle::pos_ratio` |
//! | Eq. 2, synchronous and direct | `sync::direct_cost` |
//! | Eq. 3 and 4, synchronous through the cache | `sync::cached_sync_cost` |
//! | Alg. 1, `syscall_cost` | `Cawl::syscall_cost` |
//! | Alg. 1, the cache and `background_flush` | `extents::Extents`, `flusher::Flusher::run` |
//! | Alg. 2, `stdio_cost` | `Cawl::stdio_cost`, `stream::Buffer::write` |
//!
//! # Where it deviates, and why
//!
//! - *Throttled rate.* The time that the flusher takes from a writer is added to that at the throttled rate,
//!   as in the authors' data, where Alg. 1 takes the lower of the two rates. Beyond the hard limit the
//!   formula is negative, and just below it nearly zero. A call is never held longer than the device needs to
//!   clean what exceeds the setpoint and as much again as the call adds; so the cost stays positive and
//!   finite.
//! - *Extents.* Kept in order instead of sorted at every write. What is written within 1/256 of the expiry
//!   age is of one age: it expires with its first byte, so no byte expires more than that fraction early, and
//!   the order within an age is that of files and offsets. Of more than two million extents the oldest count
//!   as written.
//! - *Flusher.* Starts when data expires, not at the beginning of the delay in which it does, and stops at
//!   the byte that brings dirty below the background limit, not at the end of an extent. With
//!   `dirty_writeback_centisecs` at 0 the kernel expires nothing, nor does the model.
//! - *Several writers.* The paper has one. Here the average rate of Eq. 1 is per process, and the device
//!   is shared: calls that overlap in time use up the flusher's time once.
//! - *In lockstep* the average rate takes observed costs, as the kernel's own estimate would.
//! - *O_DIRECT without O_SYNC* costs the same as with it. Dirty extents that a synchronous write covers
//!   are clean afterwards, and while its data is transferred the flusher waits for the device.
//! - *fsync and relatives*, for which the paper has no law: the file's own dirty bytes at `bw_dev`, plus
//!   `device.fsync`. sync_file_range waits for its range only, without the fixed cost, and only if asked to
//!   wait.
//! - *truncate, O_TRUNC, punched holes, the last unlink* drop dirty bytes unwritten.
//! - *Streams.* Each call also costs `calls.stream`. Where the C library's own count of pending bytes is
//!   known, it decides what went to the kernel, not the simulated buffer. A line-buffered stream whose
//!   count is not known is taken to end a line with each call.
//!
//! As published, cleaning runs at `bw_dev`, a page already cached costs as much as a fresh one, and pages
//! under writeback are not told from clean ones. Those are the `kernel` model's business.

mod effects;
mod extents;
mod flusher;
mod stdio;
mod stream;
mod sync;
#[cfg(test)]
mod tests;
mod throttle;

use std::collections::BTreeMap;

use cawl_wire::{Event, FileId, Op, UNKNOWN_OFFSET, flag};

use self::extents::Extents;
use self::flusher::Flusher;
use self::stream::{Buffer, Stretch};
use self::sync::{cached_sync_cost, direct_cost};
use self::throttle::{Average, throttled_span};
use super::lru::LruMap;
use super::{CallState, CostModel, DirtyLimits, LONGEST_PAUSE, ModelState, Prediction, Regime};
use crate::call::{Class, WAIT_AFTER, WAIT_BEFORE, classify, is_clone, is_synchronous, kernel_bytes};
use crate::cause::{Cause, CostParts};
use crate::profile::HostProfile;
use crate::units::{Bytes, Nanos, Rate, Time};

/// An extent grows for at most this share of the expiry age.
const GRAIN: f64 = 1.0 / 256.0;
/// An extent grows for at most this time where nothing expires.
const GRAIN_WITHOUT_EXPIRY: Nanos = Nanos::millis(100.0);

/// The paper's model.
#[derive(Clone, Debug)]
pub struct Cawl {
    profile: HostProfile,
    /// New pages come cold.
    cold: bool,
    /// What model time counts from: the first event.
    origin: Option<Time>,
    now: Nanos,
    cache: Extents,
    flusher: Flusher,
    /// Average rate of each process that wrote lately.
    averages: LruMap<u32, Average>,
    last_writer: u32,
    /// Streams that hold something, by process and descriptor.
    streams: LruMap<u32, BTreeMap<i32, Buffer>>,
    /// Where the last synchronous access to each device ended.
    heads: LruMap<u64, (FileId, u64)>,
    /// Cost of the last call, and how much of it counts as its process's time in write calls.
    last: (Nanos, Nanos),
    /// In lockstep, while a call is predicted: time stands still, and the device's time that the call takes
    /// from the flusher is collected here.
    taken: Option<Nanos>,
    /// How much less throttled writers slept than was predicted.
    unslept: Nanos,
}

/// What a call has cost so far.
#[derive(Clone, Copy, Debug, Default)]
struct Bill {
    parts: CostParts,
    /// State of the dearest system call.
    state: Option<(Nanos, CallState)>,
}

impl Bill {
    fn add(&mut self, parts: CostParts, state: CallState) {
        let cost = parts.total();
        if self.state.is_none_or(|(dearest, _)| cost > dearest) {
            self.state = Some((cost, state));
        }
        self.parts.add(&parts);
    }
}

impl Cawl {
    /// A machine with this profile and nothing dirty.
    pub fn new(profile: &HostProfile) -> Cawl {
        let kernel = &profile.kernel;
        let expire = (kernel.wakeup > Nanos::ZERO).then_some(kernel.expire);
        let grain = expire.map_or(GRAIN_WITHOUT_EXPIRY, |expire| expire * GRAIN);
        Cawl {
            origin: None,
            now: Nanos::ZERO,
            cache: Extents::new(grain),
            flusher: Flusher::new(profile.device.write.value, kernel.limits, expire),
            averages: LruMap::default(),
            last_writer: 0,
            streams: LruMap::default(),
            heads: LruMap::default(),
            last: (Nanos::ZERO, Nanos::ZERO),
            taken: None,
            unslept: Nanos::ZERO,
            cold: false,
            profile: profile.clone(),
        }
    }

    /// `bw_ram`.
    fn ram(&self) -> Rate {
        self.profile.memory.fresh_rate(self.cold)
    }

    /// Alg. 1, `syscall_cost`: a write into the page cache, beginning at `at`. The delay before it has
    /// passed already, see [`CostModel::advance`].
    fn syscall_cost(
        &mut self,
        at: Nanos,
        pid: u32,
        file: FileId,
        stretch: Stretch,
    ) -> (CostParts, CallState) {
        let size = Bytes(stretch.size);
        let ram = self.ram();
        let flushing = ram * self.profile.memory.flush_factor.value;
        let (span, copy, state) = if self.throttling() {
            let average = self.averages.peek(&pid).and_then(Average::rate).unwrap_or(flushing);
            (self.throttled(average, size, flushing), size / flushing, CallState::Throttle)
        } else if self.flusher.works(&self.cache, self.now) {
            (size / flushing, size / flushing, CallState::Flush)
        } else {
            (size / ram, size / ram, CallState::Free)
        };
        let throttle = span.saturating_sub(copy);
        let mut parts = self.entering();
        (parts[Cause::Copy], parts[Cause::Throttle]) = (copy, throttle);
        let cost = parts.total();

        let finish = self.now.max(at + cost);
        self.cache.insert(file, stretch.offset, stretch.offset.saturating_add(stretch.size), finish);
        self.averages.of(pid).add(size, cost);
        self.last_writer = pid;
        self.last.1 += cost;
        self.pass_to(finish);
        (parts, state)
    }

    /// One write system call, by the law that the descriptor's flags ask for.
    fn kernel_write(&mut self, at: Nanos, event: &Event, stretch: Stretch) -> (CostParts, CallState) {
        let file = event.file();
        let direct = event.has(flag::DIRECT);
        if !direct && !is_synchronous(event) {
            return self.syscall_cost(at, event.pid, file, stretch);
        }
        let end = stretch.offset.saturating_add(stretch.size);
        let head = self.heads.take(&event.dev);
        self.heads.put(event.dev, (file, end));
        let random = head.is_some_and(|head| head != (file, stretch.offset));
        let (device, size) = (&self.profile.device, Bytes(stretch.size));
        let parts = if direct {
            direct_cost(device, size, random)
        } else {
            cached_sync_cost(device, self.ram(), size, random)
        };
        self.cache.remove(file, stretch.offset, end);
        self.occupy_device(at, parts, size);
        (parts, CallState::Sync)
    }

    /// fsync and relatives (ours): `dirty` bytes, out of the cache already, at the device's rate.
    fn wait_for(&mut self, at: Nanos, dirty: Bytes, fixed: Nanos) -> Bill {
        let mut bill = Bill::default();
        let mut parts = self.entering();
        parts[Cause::Transfer] = dirty / self.profile.device.write.value + fixed;
        self.occupy_device(at, parts, dirty);
        bill.add(parts, CallState::Sync);
        bill
    }

    /// A call of these parts passes, `bytes` of which the device cannot give to the flusher.
    fn occupy_device(&mut self, at: Nanos, parts: CostParts, bytes: Bytes) {
        let transfer = bytes / self.profile.device.write.value;
        if let Some(taken) = &mut self.taken {
            *taken += transfer;
            return;
        }
        self.pass_busy(transfer, self.now.max(at + parts.total()));
    }

    fn entering(&self) -> CostParts {
        CostParts::from([(Cause::Call, self.profile.calls.write.value)])
    }

    /// The bill of a call that enters the kernel and finds nothing to do.
    fn bare_call(&self) -> Bill {
        Bill { parts: self.entering(), state: None }
    }

    fn write(&mut self, at: Nanos, event: &Event) -> Bill {
        let size = kernel_bytes(event);
        if size == 0 || is_clone(event) {
            return self.bare_call();
        }
        let mut bill = Bill::default();
        let offset = self.place(event);
        let (parts, state) = self.kernel_write(at, event, Stretch { offset, size });
        bill.add(parts, state);
        bill
    }

    /// Reads: all of it is taken to be cached (ours, after Kunkel's t = m + s/p).
    fn read(&self, event: &Event) -> Bill {
        let (calls, memory) = (&self.profile.calls, &self.profile.memory);
        let call = if event.op == Op::StreamRead { calls.stream } else { calls.read() };
        let copy = Bytes(event.returned.max(0) as u64) / memory.read().value;
        let mut bill = Bill::default();
        bill.add(CostParts::from([(Cause::Call, call.value), (Cause::Copy, copy)]), CallState::Free);
        bill
    }

    /// Opening and closing (ours).
    fn by_name(&self, event: &Event) -> Bill {
        let calls = &self.profile.calls;
        let call = if event.op == Op::Close { calls.close() } else { calls.open() };
        let mut bill = Bill::default();
        bill.add(CostParts::from([(Cause::Call, call.value)]), CallState::Free);
        bill
    }

    /// fsync, fdatasync, msync, sync, syncfs, sync_file_range and posix_fadvise (ours).
    fn sync(&mut self, at: Nanos, event: &Event) -> Bill {
        let file = event.file();
        let fixed = self.profile.device.fsync.value;
        if event.returned < 0 {
            return self.bare_call();
        }
        let (dirty, fixed) = match event.op {
            Op::Sync => (self.cache.remove_all(None), fixed),
            Op::Syncfs => (self.cache.remove_all(Some(event.dev)), fixed),
            Op::Advise => return self.bare_call(),
            Op::SyncRange if event.aux & (WAIT_BEFORE | WAIT_AFTER) == 0 => return self.bare_call(),
            Op::SyncRange => {
                let start = if event.offset == UNKNOWN_OFFSET { 0 } else { event.offset };
                let end = match event.requested {
                    0 => u64::MAX,
                    length => start.saturating_add(length),
                };
                (self.cache.remove(file, start, end), Nanos::ZERO)
            }
            _ => (self.cache.remove(file, 0, u64::MAX), fixed),
        };
        self.wait_for(at, dirty, fixed)
    }

    /// Where a write goes; one whose place is not known goes on from the file's last dirty byte.
    fn place(&self, event: &Event) -> u64 {
        match event.offset {
            UNKNOWN_OFFSET => self.cache.end_of(event.file()),
            offset => offset,
        }
    }

    /// `dirty ≥ set`.
    fn throttling(&self) -> bool {
        let dirty = self.cache.dirty();
        !dirty.is_zero() && dirty >= self.flusher.limits.freerun()
    }

    /// How long a throttled write of `size` bytes takes.
    fn throttled(&self, average: Rate, size: Bytes, flushing: Rate) -> Nanos {
        let Flusher { rate: device, limits, .. } = self.flusher;
        let flushing = (flushing, self.profile.memory.flush_factor.value);
        throttled_span(average, self.cache.dirty(), size, limits, device, flushing)
    }

    /// Time passes, in which the flusher has the device to itself but for `transfer`.
    fn pass_busy(&mut self, transfer: Nanos, to: Nanos) {
        self.flusher.wait(transfer.min(to.saturating_sub(self.now)));
        self.pass_to(to);
    }

    fn pass_to(&mut self, to: Nanos) {
        if self.taken.is_some() {
            return;
        }
        self.flusher.run(&mut self.cache, to);
        self.now = self.now.max(to);
    }

    /// A throttled call was predicted and took as long as `observed`. Writers that sleep less than predicted,
    /// for longer than any pause of the kernel's lasts, are not above the setpoint: the device has written
    /// the rest.
    fn judge_throttling(&mut self, predicted: Nanos, observed: Nanos) {
        self.unslept = (self.unslept + predicted).saturating_sub(observed);
        if self.unslept > LONGEST_PAUSE {
            self.unslept = Nanos::ZERO;
            self.flusher.catch_up(&mut self.cache, self.flusher.limits.freerun());
        }
    }

    /// The call just predicted took as long as `observed`: so does its process's average.
    fn correct_average(&mut self, observed: Nanos) {
        let (cost, counted) = std::mem::take(&mut self.last);
        if counted > Nanos::ZERO
            && let Some(mut average) = self.averages.take(&self.last_writer)
        {
            let elsewhere = cost.saturating_sub(counted);
            average.correct(counted, observed.saturating_sub(elsewhere));
            self.averages.put(self.last_writer, average);
        }
    }
}

impl CostModel for Cawl {
    fn name(&self) -> &'static str {
        "cawl"
    }

    fn gone(&mut self, file: FileId) {
        self.cache.remove(file, 0, u64::MAX);
    }

    fn step(&mut self, event: &Event) -> Option<Prediction> {
        let start = Time(event.start);
        self.advance(start);
        self.last = (Nanos::ZERO, Nanos::ZERO);
        // Before `now` if another thread's call is still going on: dirty is as of now, but time that has
        // passed already does not pass again.
        let at = start - self.origin.unwrap_or(start);
        let class = classify(event);
        if class == Class::Elsewhere {
            return None;
        }
        let bill = match event.op {
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::CopyRange | Op::Sendfile | Op::Splice
                if class == Class::Cost =>
            {
                self.write(at, event)
            }
            Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs | Op::SyncRange | Op::Msync | Op::Advise
                if class == Class::Cost =>
            {
                self.sync(at, event)
            }
            Op::Read | Op::Pread | Op::StreamRead if class == Class::Cost => self.read(event),
            Op::Open | Op::StreamOpen | Op::Close if class == Class::Cost => {
                self.effect(event);
                self.by_name(event)
            }
            _ => match self.stream_output(event) {
                Some(output) => self.stdio_cost(at, event, output),
                None => {
                    self.effect(event);
                    return None;
                }
            },
        };
        if class != Class::Cost {
            return None;
        }
        let cost = bill.parts.total();
        self.last.0 = cost;
        self.pass_to(at + cost);
        let idle = match event.op {
            Op::StreamWrite | Op::StreamFlush | Op::StreamSeek | Op::StreamClose => CallState::Buffered,
            _ => CallState::Free,
        };
        Some(Prediction {
            cost,
            state: bill.state.map_or(idle, |(_, state)| state),
            parts: bill.parts,
            dirty: self.cache.dirty(),
            ..Prediction::default()
        })
    }

    fn advance(&mut self, to: Time) {
        let origin = *self.origin.get_or_insert(to);
        self.pass_to(to - origin);
    }

    fn follow(&mut self, event: &Event, end: Time) -> Option<Prediction> {
        self.advance(Time(event.start));
        self.taken = Some(Nanos::ZERO);
        let prediction = self.step(event);
        let taken = self.taken.take().unwrap_or_default();
        let start = Time(event.start);
        let observed = end.since(start);
        if let Some(prediction) = &prediction {
            let begun = start - self.origin.unwrap_or(start);
            self.pass_busy(taken, self.now.max(begun + prediction.cost.min(observed)));
        }
        self.correct_average(observed);
        if let Some(prediction) = prediction.filter(|told| told.parts[Cause::Throttle] > Nanos::ZERO) {
            self.judge_throttling(prediction.cost, observed);
        }
        prediction
    }

    fn set_limits(&mut self, limits: DirtyLimits) {
        self.flusher.limits = limits;
    }

    fn recalibrate(&mut self, profile: &HostProfile) {
        self.profile.memory.clone_from(&profile.memory);
        self.profile.device.clone_from(&profile.device);
        self.profile.calls.clone_from(&profile.calls);
        self.profile.others.clone_from(&profile.others);
        self.flusher.rate = profile.device.write.value;
    }

    fn supply(&mut self, cold: Option<bool>) {
        self.cold = cold == Some(true);
    }

    fn dirty_level(&self) -> Bytes {
        self.cache.dirty()
    }

    fn state(&self) -> ModelState {
        let works = self.flusher.works(&self.cache, self.now);
        let flushing = self.ram() * self.profile.memory.flush_factor.value;
        let average = self.averages.peek(&self.last_writer).and_then(Average::rate).unwrap_or(flushing);
        let throttling = self.throttling();
        ModelState {
            time: self.origin.unwrap_or_default() + self.now,
            dirty: self.cache.dirty(),
            regime: match (throttling, works) {
                (true, _) => Regime::Throttle,
                (_, true) => Regime::Flush,
                _ => Regime::Free,
            },
            limits: self.flusher.limits,
            writeback: works.then_some(self.flusher.rate),
            throttled: throttling.then(|| {
                let page = self.profile.kernel.page;
                Rate::per_second(page.as_f64() / self.throttled(average, page, flushing).as_seconds())
            }),
        }
    }

    fn fork(&self) -> Box<dyn CostModel> {
        Box::new(self.clone())
    }
}
