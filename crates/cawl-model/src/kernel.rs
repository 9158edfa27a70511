//! `kernel`: what the Linux kernel does with a write, as mm/page-writeback.c and fs/fs-writeback.c do it.
//!
//! A write copies into the page cache ([`write`]), a few pages at a time; each time the task has
//! dirtied its quota it asks whether it must pause ([`balance`], laws in [`throttle`](super::throttle)). In
//! the background the flusher cleans ([`writeback`](super::writeback)). Synchronous calls wait for the device
//! ([`sync`]). Copies inside the kernel are rows of writes ([`copy`]). Streams buffer in user space first
//! ([`stdio`](super::stdio)).
//!
//! Calls of several tasks may overlap. The machine's clock stands at the latest predicted end; a call
//! that starts earlier finds the level of its own time, kept in a short [`history`], adds to it, and is
//! held back by what the others were allowed to dirty until then. So N writers share the device. Those of one
//! file take turns ([`inode_lock`]).

mod account;
mod again;
mod balance;
mod call;
mod coming;
mod copy;
mod follow;
mod freeing;
mod history;
mod inode_lock;
mod intervals;
mod memory;
mod nearby;
mod read;
mod remote;
mod settled;
mod sync;
mod tasks;
mod write;

use std::sync::Arc;

use cawl_wire::{Event, FileId, FileKind, Op, UNKNOWN_OFFSET, flag};

use super::cache::Room;
use super::lru::LruMap;
use super::memory::FreeMemory;
use super::share::Bounds;
use super::stdio::Streams;
use super::throttle::check_interval;
use super::writeback::{Device, Machine, Thresholds};
use super::{CallState, CostModel, Disturbance, ModelState, Prediction, Regime};
use crate::call::{Class, changes_name_or_length, classify, is_synchronous};
use crate::cause::{ByCause, Cause};
use crate::constants::{Constants, MOST_LIMIT, Timing};
use crate::limits::DirtyLimits;
use crate::mounts::Filesystems;
use crate::profile::{HostProfile, grown, growth};
use crate::record::{Filesystem, MemoryFacts};
use crate::units::{Bytes, Nanos, Rate, Time};
use crate::work::Work;
pub use account::Conservation;
use again::ReadPages;
use call::{Call, Spread, Surcharge};
use coming::Reads;
use copy::Copies;
use freeing::Lengths;
use history::LevelHistory;
use inode_lock::InodeLocks;
use intervals::{Spreads, one_pause};
use nearby::Nearby;
pub use settled::settled;
use sync::waits;
use tasks::Tasks;

/// Writers among which a device's bandwidth is shared out, at most: a bound on what base rate is believed.
const WRITERS: f64 = 64.0;

/// Devices told apart; further ones count as the last of them.
const DEVICES: usize = 256;

/// The kernel's model of a machine.
#[derive(Clone, Debug)]
pub struct Kernel {
    machine: Machine,
    /// What calls on files of this machine cost.
    constants: Arc<Constants>,
    /// Copies share it.
    profile: Arc<HostProfile>,
    /// What is known of the machine's filesystems.
    filesystems: Arc<Filesystems>,
    streams: Streams,
    tasks: Tasks,
    locks: InodeLocks,
    history: LevelHistory,
    limits: DirtyLimits,
    /// Pages after which a task is checked, whatever its quota.
    check_interval: u64,
    origin: Option<u64>,
    copies: Copies,
    reads: Reads,
    read_pages: ReadPages,
    lengths: Lengths,
    /// The file that each process closed last of those it could write to.
    closed: LruMap<u32, u32>,
    /// Files written past the cache, whose new time the server does not know yet (`fuse_flush_times`).
    untimed: LruMap<u32, ()>,
    /// What the processor's cache has of files.
    nearby: Nearby,
    intervals: Spreads,
    /// Whether new pages come cold; None: the model decides by its own pool.
    supply: Option<bool>,
    /// Free memory, if it was looked at: with more warm of it than was found, with what was found, and with
    /// less.
    memory: Option<Box<[FreeMemory; 3]>>,
    /// What was known before each later look at it, and when that was, until a call begins after that.
    memory_before: Vec<(f64, Option<Box<[FreeMemory; 3]>>)>,
    /// Looks at memory that no call has begun after yet: when, and what was found.
    rooms: Vec<(f64, Room)>,
    /// Most pages that a call writes.
    most: u64,
}

/// Limits in pages.
fn thresholds(limits: DirtyLimits, page: u64) -> Thresholds {
    let [background, hard] = [limits.background, limits.hard].map(|of| (of.0 / page).min(MOST_LIMIT) as f64);
    Thresholds { background, hard, limit: hard }
}

impl Kernel {
    /// A machine with these constants, an empty cache and nothing dirty.
    pub fn new(profile: &HostProfile) -> Kernel {
        let kernel = &profile.kernel;
        let page = kernel.page.0.next_power_of_two();
        let mut machine = Machine::new(
            thresholds(kernel.limits, page),
            kernel.cgroup.map(|limits| thresholds(limits, page)),
            kernel.wakeup.as_seconds(),
            kernel.expire.as_seconds(),
            f64::from(kernel.hz.max(1)),
        );
        if let Some(group) = &kernel.group {
            let pages = |bytes: Bytes| bytes.0 / page;
            machine.cache.bound(group.room.map(pages), [pages(group.inactive), pages(group.active)]);
        }
        Kernel {
            check_interval: check_interval(machine.global.hard, kernel.cpus),
            machine,
            constants: Arc::new(Constants::of(profile)),
            streams: Streams::new(kernel.stream_buffer.0),
            tasks: Tasks::default(),
            locks: InodeLocks::default(),
            history: LevelHistory::default(),
            limits: kernel.limits,
            origin: None,
            copies: Copies::default(),
            reads: Reads::default(),
            read_pages: ReadPages::default(),
            lengths: Lengths::default(),
            closed: LruMap::default(),
            untimed: LruMap::default(),
            nearby: Nearby::new(page),
            intervals: Spreads::of(profile),
            supply: None,
            memory: None,
            memory_before: Vec::new(),
            rooms: Vec::new(),
            most: u64::MAX,
            profile: Arc::new(profile.clone()),
            filesystems: Arc::default(),
        }
    }

    /// A copy to look ahead with.
    fn copy(&self) -> Kernel {
        let mut copy = self.clone();
        copy.machine.cache.look_ahead();
        copy
    }

    /// How much of a file is in the page cache, in bytes, as far as remembered.
    pub fn cached(&mut self, file: FileId) -> Bytes {
        self.machine.reclaim();
        let pages = self.machine.cache.find(file).map_or(0, |file| self.machine.cache.cached(file));
        Bytes(pages * self.constants.page)
    }

    /// Bytes under writeback as of the last step.
    pub fn in_flight(&self) -> Bytes {
        Bytes(self.machine.devices.iter().map(|device| device.in_flight).sum::<u64>() * self.constants.page)
    }

    /// The base rate at which writers to a device are let through (`dirty_ratelimit`).
    pub fn ratelimit(&self, dev: u64) -> Option<Rate> {
        let device = self.machine.devices.iter().find(|d| d.id == dev)?;
        Some(Rate::per_second(device.limit.base * self.constants.page as f64))
    }

    fn seconds(&mut self, moment: u64) -> f64 {
        let origin = *self.origin.get_or_insert(moment);
        moment.saturating_sub(origin) as f64 * 1e-9
    }

    fn device(&mut self, dev: u64) -> usize {
        let id = self.filesystems.below(dev);
        if let Some(at) = self.machine.devices.iter().position(|d| d.id == id) {
            return at;
        }
        if self.machine.devices.len() >= DEVICES {
            return DEVICES - 1;
        }
        // Constants measured on an overlay serve if those of the device below are not known.
        let is_profiled = |dev: &u64| self.profile.others.iter().any(|other| other.dev == *dev);
        let profiled = [id, dev].into_iter().find(is_profiled).unwrap_or(id);
        let of = self.profile.device_of(profiled);
        let page = self.constants.page as f64;
        let bounds = Bounds { min: of.min_ratio, max: of.max_ratio, strict: of.strict_limit };
        let rate = of.writeback.value.get() / page;
        let base = of.base_rate.as_ref().map_or(rate, |base| base.value.get() / page);
        let queue = (of.queue.0 as f64 / page) as u64;
        let mut device = Device::new(id, rate, base, queue, bounds, self.machine.now);
        self.reads.meet(id, of.completes_together);
        device.profiled = profiled;
        device.describe(&self.profile, &self.constants);
        let kind = self.filesystems.kind(id).or(of.filesystem).unwrap_or_default();
        device.mount(kind, of.commit.as_seconds());
        self.machine.meet(device);
        self.machine.devices.len() - 1
    }

    /// The call of this event, about to begin.
    fn begin(&mut self, event: &Event) -> Call {
        let at = self.seconds(event.start);
        self.take_looks(at);
        self.machine.advance(at);
        let thread = (event.pid, event.tid);
        self.tasks.switch(thread);
        self.locks.begin(thread, at);
        if self.tasks.several {
            self.history.prune(at);
        }
        let device = self.device(event.dev);
        let file = self.machine.cache.open(event.file(), device);
        let of = &self.machine.devices[device];
        let (at_work, idle_since) = (of.is_at_work(), of.idle_since.max(of.occupied));
        Call {
            at,
            began: at,
            thread,
            until: f64::INFINITY,
            patience: Call::PATIENCE,
            file,
            device,
            folio: if of.traits.has_single_pages { 1 } else { of.constants.folio },
            constants: Arc::clone(&of.constants),
            spent: ByCause::default(),
            work: Work::default(),
            hot: false,
            surcharge: Surcharge {
                away: grown(at - self.tasks.current.left, self.constants.soon),
                idle: if at_work { 0.0 } else { growth(at - idle_since) },
                ..Surcharge::default()
            },
            spread: Spread::default(),
            stamps: event.has(flag::STAMPS_READ) && self.profile.kernel.fine_stamps,
            unlikely: false,
            runs: 0,
            locked: None,
            flushing: false,
            met_flusher: at_work,
            may_commit: of.may_commit(at),
        }
    }

    /// The constants of the call's device.
    fn timing(&self, call: &Call) -> &Timing {
        &self.machine.devices[call.device].timing
    }

    fn offset(&self, event: &Event, file: u32) -> u64 {
        if event.offset == UNKNOWN_OFFSET { self.machine.cache.size(file) } else { event.offset }
    }

    /// Plain writes, direct, synchronous or into the cache.
    fn write_call(&mut self, call: &mut Call, event: &Event) {
        let offset = self.offset(event, call.file);
        let bytes = event.returned.max(0) as u64;
        if bytes == 0 {
            return call.spend_empty_call(call.constants.empty_call);
        }
        call.spend_call(call.constants.call);
        if event.has(flag::DIRECT) && !self.is_remote(call) && !self.in_memory(call) {
            self.direct_write(call, event, offset, bytes);
        } else {
            self.cached_write(call, event, offset, bytes);
        }
    }

    /// Into the cache, and from there to the device if the call is synchronous.
    fn cached_write(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        if let Some(remote) = self.remote(call) {
            return self.remote_write(call, event, &remote, (offset, bytes), u64::MAX);
        }
        self.buffered_write(call, offset, bytes, bytes <= call.constants.hot_most);
        if is_synchronous(event) && !self.never_waits(call, event) {
            self.write_through(call, event, offset, bytes);
        }
    }

    fn stream_call(&mut self, call: &mut Call, event: &Event) {
        let end = self.machine.cache.size(call.file);
        let writes = self.streams.writes(event, end);
        let buffer = if writes.allocates { call.constants.buffer } else { 0.0 };
        let streaming =
            call.constants.stream_call + writes.buffered as f64 * call.constants.stream_byte + buffer;
        call.pass(streaming);
        call.spent[Cause::Stream] += streaming;
        call.work.stream_calls += 1.0;
        call.work.stream_bytes += writes.buffered as f64;
        let second = (writes.offset.saturating_add(writes.first), writes.second);
        for (offset, bytes) in [writes.before, (writes.offset, writes.first), second] {
            if bytes > 0 {
                call.spend_call(call.constants.call);
                self.cached_write(call, event, offset, bytes);
            }
        }
        if event.op == Op::StreamClose {
            call.spend_empty_call(call.constants.close);
            self.closed(call, event);
        }
    }

    /// Lives through a call that has a cost, as soon as it has begun, and is over at `until` at the latest,
    /// in seconds.
    fn run(&mut self, call: &mut Call, event: &Event, until: f64) {
        call.until = until.max(call.at);
        let started = call.at;
        match self.remote(call) {
            Some(remote) if self.remote_call(call, event, &remote) => {}
            _ => self.local_call(call, event),
        }
        // While it waited, the processor did something else.
        let device = call.spent.waits();
        let waited = device + call.spent[Cause::Throttle] + call.spent[Cause::Lock];
        if device > 0.0 {
            self.machine.devices[call.device].idle_since = call.at;
        }
        if !call.work.stays_in_stream() {
            self.tasks.current.left = (call.at - waited).max(started);
        }
    }

    /// A call on a file of this machine, or one that is the same elsewhere.
    fn local_call(&mut self, call: &mut Call, event: &Event) {
        match event.op {
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev => self.write_call(call, event),
            Op::StreamWrite | Op::StreamFlush | Op::StreamClose | Op::StreamSeek => {
                self.stream_call(call, event)
            }
            Op::CopyRange | Op::Sendfile | Op::Splice => self.copy_call(call, event),
            Op::Fsync | Op::Fdatasync | Op::Msync => self.fsync(call, event),
            Op::SyncRange => self.sync_range(call, event),
            Op::Advise => self.drop_behind(call, event),
            Op::Sync => self.sync_all(call, None),
            Op::Syncfs => self.sync_all(call, Some(call.device)),
            Op::Read | Op::Pread | Op::StreamRead => self.read_call(call, event),
            Op::Open | Op::StreamOpen | Op::Close => self.open_or_close(call, event),
            Op::Unlink | Op::Rename | Op::Truncate => self.change(call, event),
            _ => {}
        }
    }

    /// Calls that have effects but no modelled cost.
    fn effect(&mut self, event: &Event) {
        if event.kind != FileKind::Regular && event.kind != FileKind::Unknown {
            return;
        }
        let mut call = self.begin(event);
        // Over a network only calls with a cost were measured.
        call.constants = Arc::clone(&self.constants);
        let file = call.file;
        match event.op {
            Op::Open | Op::StreamOpen if event.errno == 0 => self.opened(&call, event),
            Op::Resident => self.resident(file, event),
            Op::Advise if event.errno == 0 => self.advised(&call, event),
            Op::Allocate if event.errno == 0 => self.allocate(file, event),
            Op::AioWrite | Op::StreamExit => {
                let bytes = crate::call::kernel_bytes(event);
                if bytes > 0 && !event.has(flag::DIRECT) {
                    let offset = self.offset(event, file);
                    self.dirty_quietly(file, offset, bytes);
                }
            }
            _ => {}
        }
    }

    /// What a call costs that the model has lived through. Always something: an option, since that is what it
    /// is returned as, and copying it takes time.
    fn told(&mut self, call: &Call, event: &Event) -> Option<Prediction> {
        let waits = waits(event) && !self.never_waits(call, event);
        Some(self.predict(call, if waits { CallState::Sync } else { call.state() }))
    }

    fn predict(&mut self, call: &Call, state: CallState) -> Prediction {
        let parts = call.spent.map(Nanos::seconds);
        self.machine.advance(call.at);
        let dirty = self.dirty_level();
        let (cost, task) = (parts.total(), &self.tasks.current);
        let dirtied = call.work.dirtied / self.constants.page as f64;
        let pause = one_pause(call, task.slept, dirtied, task.nr_dirtied_pause as f64);
        Prediction {
            cost,
            state,
            parts,
            dirty,
            interval: self.intervals.around(cost, call, pause),
            may_pause: dirty.as_f64() > self.freerun() * self.constants.page as f64,
            flushing: call.flushing || call.met_flusher,
            may_commit: call.may_commit,
            work: call.work,
        }
    }
}

impl CostModel for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn step(&mut self, event: &Event) -> Option<Prediction> {
        self.machine.reclaim();
        match classify(event).told(|| changes_name_or_length(event)) {
            Class::Cost => {}
            Class::Untimed => return self.stores(event),
            _ => {
                self.effect(event);
                return None;
            }
        }
        let mut call = self.begin(event);
        self.run(&mut call, event, f64::INFINITY);
        self.over(&call, call.at);
        self.told(&call, event)
    }

    fn follow(&mut self, event: &Event, end: Time) -> Option<Prediction> {
        self.follow_call(event, end)
    }

    fn meet_file(&mut self, file: FileId, length: Bytes) {
        self.lengths.put(file, length.0);
    }

    fn gone(&mut self, file: FileId) {
        let device = self.device(file.dev);
        let file = self.machine.cache.open(file, device);
        self.truncate(file, 0);
    }

    fn advance(&mut self, to: Time) {
        let to = self.seconds(to.0);
        self.machine.advance(to);
    }

    fn set_limits(&mut self, limits: DirtyLimits) {
        self.limits = limits;
        let new = thresholds(limits, self.constants.page);
        self.check_interval = check_interval(new.hard, self.profile.kernel.cpus);
        let limit = self.machine.global.limit.max(new.hard).max(self.machine.level_now() as f64);
        self.machine.global = Thresholds { limit, ..new };
    }

    fn correct_throttle(&mut self, device: u64, factor: f64) {
        let id = self.filesystems.below(device);
        if let Some(device) = self.machine.devices.iter_mut().find(|of| of.id == id) {
            // The kernel shares the device's bandwidth out among writers, and seldom among more than these.
            let (least, most) = (device.rate / WRITERS, device.rate * WRITERS.sqrt());
            device.limit.base = (device.limit.base * factor).clamp(least, most);
            device.limit.balanced = (device.limit.balanced * factor).clamp(least, most);
        }
    }

    fn meet_filesystems(&mut self, mounts: &[Filesystem]) {
        self.filesystems = Arc::new(Filesystems::of(mounts));
    }

    fn recalibrate(&mut self, profile: &HostProfile) {
        self.hasten_reads(profile);
        let own = Arc::make_mut(&mut self.profile);
        own.memory.clone_from(&profile.memory);
        own.calls.clone_from(&profile.calls);
        own.device.clone_from(&profile.device);
        own.others.clone_from(&profile.others);
        self.constants = Arc::new(Constants::of(&self.profile));
        self.intervals = Spreads::of(&self.profile);
        let page = self.constants.page as f64;
        for at in 0..self.machine.devices.len() {
            let of = self.profile.device_of(self.machine.devices[at].profiled);
            let queue = (of.queue.0 as f64 / page) as u64;
            self.machine.devices[at].describe(&self.profile, &self.constants);
            self.machine.set_rate(at, of.writeback.value.get() / page, queue);
        }
    }

    fn supply(&mut self, cold: Option<bool>) {
        self.supply = cold;
    }

    fn free_memory(&mut self, facts: &MemoryFacts) {
        self.look_at_memory(facts);
    }

    fn cold_left(&self) -> Option<Nanos> {
        let [_, likely, _] = self.memory.as_deref()?;
        Some(Nanos::seconds(likely.cold() * self.constants.cold_page))
    }

    fn in_calls_of(&mut self, chunk: Bytes) {
        self.most = (chunk.0 / self.constants.page).max(1);
        if self.memory.is_some() {
            self.supply = None;
        }
    }

    fn dirtied(&self) -> Bytes {
        self.conservation().dirtied
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        let page = self.constants.page as f64;
        let at = self.seconds(disturbance.at.0);
        let foreign = &mut self.machine.foreign;
        (foreign.at, foreign.told) = (at, true);
        (foreign.pages, foreign.drift) = (disturbance.offset / page, disturbance.drift / page);
    }

    fn take_adopted(&mut self) -> Bytes {
        Bytes(std::mem::take(&mut self.machine.foreign.adopted) * self.constants.page)
    }

    fn begun(&mut self, at: Time, bytes: f64, span: Nanos) {
        let at = self.seconds(at.0);
        self.machine.begun(at, bytes / self.constants.page as f64, span.as_seconds());
    }

    fn disturbance(&self, at: Time) -> Disturbance {
        let page = self.constants.page as f64;
        let seconds = at.since(Time(self.origin.unwrap_or(at.0))).as_seconds();
        let offset = self.machine.foreign_at(seconds) * page;
        Disturbance { at, offset, drift: self.machine.foreign.drift * page }
    }

    /// Those of untraced writers included.
    fn dirty_level(&self) -> Bytes {
        let level = self.machine.level_now();
        if self.machine.foreign.are_none() {
            // Without the way by floats, twice a call.
            return Bytes(level.saturating_mul(self.constants.page));
        }
        let pages = level as f64 + self.machine.foreign_at(self.machine.now);
        Bytes::from_f64(pages * self.constants.page as f64)
    }

    fn state(&self) -> ModelState {
        let machine = &self.machine;
        let page = self.constants.page;
        let dirty = self.dirty_level();
        // Above the background limit the flusher works, whether or not the writers are traced.
        let at_work = |device: &Device| device.writes_back(machine.now);
        let flushing = dirty > self.limits.background || machine.devices.iter().any(at_work);
        let throttled = dirty > self.limits.freerun();
        let rate = |pages: f64| Rate::per_second(pages * page as f64);
        let busiest = machine.devices.iter().max_by(|a, b| a.level().cmp(&b.level()));
        ModelState {
            time: Time(self.origin.unwrap_or(0)) + Nanos::seconds(machine.now),
            dirty,
            regime: match (throttled, flushing) {
                (true, _) => Regime::Throttle,
                (false, true) => Regime::Flush,
                (false, false) => Regime::Free,
            },
            limits: self.limits,
            writeback: flushing.then(|| rate(machine.rate_at_work())),
            throttled: busiest.filter(|_| throttled).map(|d| rate(d.limit.base)),
        }
    }

    fn fork(&self) -> Box<dyn CostModel> {
        Box::new(self.copy())
    }

    fn coarsen(&mut self) {
        self.machine.coarsen();
    }
}
