//! `kernel`: what the Linux kernel does with a write, as mm/page-writeback.c and fs/fs-writeback.c do it.
//!
//! A write copies into the page cache ([`write`]), a few pages at a time; each time the task has
//! dirtied its quota it asks whether it must pause ([`balance`], laws in [`throttle`](super::throttle)). In
//! the background the flusher cleans ([`writeback`](super::writeback)). Synchronous calls ([`sync`]) wait for the
//! device ([`waiting`]), or for a server ([`remote`]). Copies inside the kernel are rows of writes ([`copy`]).
//! Streams buffer in user space first ([`stdio`](super::stdio)).
//!
//! Which law takes a call is said in [`calls`]; no law calls it back. A law asks its device for constants and for
//! what the filesystem does in its own way ([`filesystem`](crate::filesystem)).
//!
//! Calls of several tasks may overlap. The machine's clock stands at the latest predicted end; a call
//! that starts earlier finds the level of its own time, kept in a short [`history`], adds to it, and is
//! held back by what the others were allowed to dirty until then. So N writers share the device. Those of one
//! file take turns ([`inode_lock`]).

mod account;
mod balance;
mod call;
mod calls;
mod copy;
mod cost_model;
mod follow;
mod freeing;
mod history;
mod inode_lock;
mod intervals;
mod memory;
mod pending_reads;
mod processor_cache;
mod read;
mod remote;
mod settled;
mod sync;
mod tasks;
mod waiting;
mod write;
mod writers;

use std::sync::Arc;

use cawl_wire::{Event, FileId, UNKNOWN_OFFSET};

use super::share::Bounds;
use super::stdio::Streams;
use super::throttle::check_interval;
use super::writeback::{Device, Machine, Thresholds};
use super::{CallState, Disturbance, Prediction};
use crate::constants::{Constants, MAX_LIMIT, Remote};
use crate::limits::DirtyLimits;
use crate::lru::LruMap;
use crate::mounts::Filesystems;
use crate::profile::HostProfile;
use crate::release::Laws;
use crate::units::{Bytes, Hz, PageRate, Pages, Rate, Seconds};
pub use account::Conservation;
use call::Call;
use copy::Copies;
pub use freeing::passed_over;
use intervals::Spreads;
use memory::Memory;
use pending_reads::Reads;
use processor_cache::ProcessorCache;
pub use settled::settled_base_rate;
use writers::Writers;

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
    writers: Writers,
    limits: DirtyLimits,
    origin: Option<u64>,
    copies: Copies,
    reads: Reads,
    /// The file that each process closed last of those it could write to.
    closed: LruMap<u32, u32>,
    /// What the processor's cache has of files.
    processor_cache: ProcessorCache,
    intervals: Spreads,
    memory: Memory,
}

/// Limits in pages.
fn thresholds(limits: DirtyLimits, page: u64) -> Thresholds {
    let [background, hard] =
        [limits.background, limits.hard].map(|of| Pages::of((of.0 / page).min(MAX_LIMIT)));
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
            [kernel.wakeup, kernel.expire].map(Seconds::from),
            Hz(f64::from(kernel.hz.max(1))),
        );
        machine.laws = kernel.laws();
        if let Some(group) = &kernel.group {
            let pages = |bytes: Bytes| bytes.0 / page;
            let lists = [group.inactive, group.active].map(pages);
            machine.cache.bound(group.room.map(pages), lists, machine.laws);
            machine.room = group.room.map(|room| pages(room) + lists[0] + lists[1]);
        }
        let constants = Constants::of(profile);
        Kernel {
            writers: Writers {
                check_interval: check_interval(machine.global.hard, kernel.cpus),
                ..Writers::default()
            },
            machine,
            processor_cache: ProcessorCache::new(constants.last_cache, page),
            constants: Arc::new(constants),
            streams: Streams::new(kernel.stream_buffer.0),
            limits: kernel.limits,
            origin: None,
            copies: Copies::default(),
            reads: Reads::default(),
            closed: LruMap::default(),
            intervals: Spreads::of(profile),
            memory: Memory::default(),
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
        Some(Rate::per_second(device.limit.base.0 * self.constants.page as f64))
    }

    fn seconds(&mut self, moment: u64) -> Seconds {
        let origin = *self.origin.get_or_insert_with(|| {
            // Profiles that tell no release are from before this was known.
            let aligned = self.profile.kernel.release.is_some_and(|of| Laws::of(of, true).aligned_ticks);
            let tick = if aligned { 1_000_000_000 / u64::from(self.profile.kernel.hz.max(1)) } else { 1 };
            moment - moment % tick.max(1)
        });
        Seconds(moment.saturating_sub(origin) as f64 * 1e-9)
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
        let rate = PageRate(of.writeback.value.get() / page);
        let base = of.base_rate.as_ref().map_or(rate, |base| PageRate(base.value.get() / page));
        let queue = (of.queue.0 as f64 / page) as u64;
        let mut device = Device::new(id, rate, base, queue, bounds, self.machine.now);
        self.reads.meet(id, of.completes_together == Some(true));
        device.profiled = profiled;
        device.describe(&self.profile, &self.constants);
        let kind = self.filesystems.kind(id).or(of.filesystem).unwrap_or_default();
        device.mount(kind, of.commit.into(), self.profile.kernel.laws());
        if self.filesystems.delays_replacements(id) {
            (device.traits.writes_cut_files, device.traits.writes_renamed_files) = (false, false);
        }
        self.machine.meet(device);
        self.machine.devices.len() - 1
    }

    fn offset(&self, event: &Event, file: u32) -> u64 {
        if event.offset == UNKNOWN_OFFSET { self.machine.cache.size(file) } else { event.offset }
    }

    /// The way to the files of the call's device, if they are elsewhere.
    #[inline]
    fn remote(&self, call: &Call) -> Option<Arc<Remote>> {
        self.machine.devices[call.device].remote.clone()
    }

    #[inline]
    fn is_remote(&self, call: &Call) -> bool {
        self.machine.devices[call.device].remote.is_some()
    }

    /// The call's file is in memory alone.
    fn in_memory(&self, call: &Call) -> bool {
        self.machine.devices[call.device].traits.is_in_memory
    }

    /// Nothing is written where the call's file is, or nothing is waited for (`noop_fsync`,
    /// `ovl_should_sync`).
    fn never_waits(&self, call: &Call, event: &Event) -> bool {
        self.in_memory(call) || self.filesystems.is_volatile(event.dev)
    }

    /// Dirty bytes, those of untraced writers included.
    fn dirty(&self) -> Bytes {
        let level = self.machine.level_now();
        if self.machine.foreign.are_none() {
            // Without the way by floats, twice a call.
            return Bytes(level.saturating_mul(self.constants.page));
        }
        let pages = Pages::of(level) + self.machine.foreign_at(self.machine.now);
        Bytes::from_f64(pages.0 * self.constants.page as f64)
    }
}
