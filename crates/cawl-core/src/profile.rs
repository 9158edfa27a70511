//! A host profile: every constant the models need to know about a machine.
//!
//! Stored as TOML, one table per group, each constant with its value, the 10th and 90th percentile where
//! known, and the number of samples behind it. Units are in the documentation of each field and are the
//! same everywhere: bytes per second, nanoseconds, bytes.

mod constants;
mod error;
mod essential;
mod growth;
mod learned;
mod network;
mod queue;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::filesystem::FilesystemKind;
use crate::limits::{DirtyLimits, GroupCache};
use crate::units::{Bytes, Nanos, Rate, is_zero};
pub use constants::{Unit, constants_of};
pub use error::ProfileError;
pub use growth::{block_cache, blocks_out};
pub(crate) use growth::{grown, growth};
pub use learned::{Kept, Learned};
pub use network::{CachePolicy, NetworkConstants};
pub use queue::QueueConstants;

/// Seconds a byte that a host takes to supply memory, where that is not known: 13 µs a page
/// (docs/CALIBRATION.md).
pub(crate) const HOST_BYTE: f64 = 13e-6 / 4096.0;

/// Version of the profile file this code writes.
pub const PROFILE_SCHEMA: u32 = 1;

/// A constant with what is known about its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured<T> {
    /// Best estimate.
    pub value: T,
    /// 10th percentile, in the unit of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p10: Option<T>,
    /// 90th percentile, in the unit of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90: Option<T>,
    /// How many samples it rests on; 0 for a default.
    #[serde(default)]
    pub samples: u32,
}

impl<T> Measured<T> {
    /// A figure that was not measured on this machine.
    pub const fn assumed(value: T) -> Measured<T> {
        Measured { value, p10: None, p90: None, samples: 0 }
    }

    /// The constant in another unit, with its percentiles.
    pub(crate) fn map<U>(self, unit: impl Fn(T) -> U) -> Measured<U> {
        let Measured { value, p10, p90, samples } = self;
        Measured { value: unit(value), p10: p10.map(&unit), p90: p90.map(&unit), samples }
    }
}

/// Where a profile's constants come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Defaults: nothing was measured here.
    #[default]
    Uncalibrated,
    /// Measured by `cawl-cli calibrate`.
    Calibrated,
    /// Derived from recorded runs by `cawl-lab fit`.
    Fitted,
    /// Learned from observed calls.
    Learned,
}

/// How thoroughly the constants of a profile were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Thoroughness {
    /// In two seconds, as `cawl-cli run` does where it meets a device first.
    Brief,
    /// By `cawl-cli calibrate --quick`.
    Quick,
    /// By `cawl-cli calibrate`.
    Normal,
    /// By `cawl-cli calibrate --thorough`.
    Thorough,
}

/// Every calibrated constant of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostProfile {
    /// Version of the file, [`PROFILE_SCHEMA`].
    pub schema: u32,
    /// What the profile calls itself, in reports.
    pub name: String,
    /// Where the constants come from.
    pub origin: Origin,
    /// How many processors other programs kept busy while it was calibrated; None if that was too little to
    /// disturb, or is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<f64>,
    /// When it was made, in seconds since 1970-01-01 UTC; None if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// How thoroughly it was measured; None if it was not, or if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Thoroughness>,
    /// Runs in a row in which learning has contradicted what was measured.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub contradicted: u32,
    /// Page cache and user-space memory.
    pub memory: MemoryConstants,
    /// The device and its filesystem.
    pub device: DeviceConstants,
    /// Fixed costs of calls.
    pub calls: CallConstants,
    /// Settings of the kernel.
    pub kernel: KernelSettings,
    /// Devices that differ from `device`, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherDevice>,
    /// What runs have learned since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
}

/// Memory bandwidths, in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryConstants {
    /// Copy into a stream's buffer in user space (`bw_mem`).
    pub stream: Measured<Rate>,
    /// Page-cache write of fresh pages while the flusher is idle (`bw_ram`).
    pub fresh: Measured<Rate>,
    /// Page-cache write of fresh pages on cold memory (`bw_ram_cold`): the host of a virtual machine took it
    /// back. None: never seen on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<Measured<Rate>>,
    /// The part of fresh pages that were cold while this was measured, between 0 and 1. None: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_share: Option<Measured<f64>>,
    /// Page-cache write over pages that are already cached (`bw_redirty`).
    pub cached: Measured<Rate>,
    /// Copying into the page cache what comes from the processor's cache. None: four times `cached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<Measured<Rate>>,
    /// Copying from the processor's cache beyond a call's first 64 KiB, in larger folios. None: as `hot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_large: Option<Measured<Rate>>,
    /// Copying from the processor's cache over cached pages of a file of up to 1 MiB, which are in the
    /// nearest caches themselves. None: as `hot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<Measured<Rate>>,
    /// Copying out of the page cache what is in memory, in large folios. None: as `cached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Measured<Rate>>,
    /// Copying out of the page cache a file of up to `hot_size`, in the processor's cache. None: as `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_hot: Option<Measured<Rate>>,
    /// Reading what no device has to read (holes of a file) into new pages of the page cache: they are
    /// allocated, filled and copied out. None: as `fresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_fresh: Option<Measured<Rate>>,
    /// Bytes of a cached file of which every second block's description is in the processor's cache
    /// ([`blocks_out`]). None: all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_cache: Option<Bytes>,
    /// Rate at which pages count as dirty with their folio, when another page of it is rewritten. None: at
    /// once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folio: Option<Measured<Rate>>,
    /// Factor on `fresh` and `cached` while the flusher works (`bg_coeff`), between 0 and 1.
    pub flush_factor: Measured<f64>,
    /// Factor on `cached` alone while the flusher works, where it is known: a page that is dirty already
    /// needs no block, so its writer does not wait for a flusher that allocates some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_flush_factor: Option<Measured<f64>>,
    /// Largest write whose data still comes from the processor's cache, in bytes: copying it costs less.
    #[serde(default = "mib::<1>")]
    pub hot_size: Bytes,
}

/// The device and its filesystem: rates in bytes per second, times in nanoseconds, sizes in bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceConstants {
    /// Large direct writes (`bw_dev`).
    pub write: Measured<Rate>,
    /// Large direct reads (`bw_rdev`).
    pub read: Measured<Rate>,
    /// From asking the device for a block until its reader goes on, away from the block before and without
    /// the transfer (`pread` of 4 KiB with O_DIRECT at random places). None: `seek` and `latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency: Option<Measured<Nanos>>,
    /// Rate at which a file that is read ahead comes: several requests are on their way at a time. None: as
    /// `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequential_read: Option<Measured<Rate>>,
    /// It completes the requests of a window of readahead together, not one after another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completes_together: bool,
    /// `read` of what is in the device's own cache (a controller's, a storage server's, a virtual machine's
    /// host's). None: it has none, or that was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read: Option<Measured<Rate>>,
    /// `read_latency` of what is in the device's own cache. None: it has none, or that was not found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_read_latency: Option<Measured<Nanos>>,
    /// Largest readahead window (`queue/read_ahead_kb`), in bytes; 0: no readahead.
    #[serde(default = "readahead")]
    pub readahead: Bytes,
    /// How reads and the flusher's writes share its queue. None: reads go first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_queue: Option<QueueConstants>,
    /// Rate at which the flusher cleans pages (`bw_writeback`); not the direct rate.
    pub writeback: Measured<Rate>,
    /// From handing a request to the device until its writer goes on, without the transfer and what comes
    /// after it. None: it is a part of `sync_call` and `fsync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Measured<Nanos>>,
    /// Fixed cost of a direct write that is not synchronous, beyond the transfer. None: `latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<Measured<Nanos>>,
    /// What a direct write takes longer into new blocks: they are allocated, and the inode grows
    /// (`ext4_iomap_alloc`, `ext4_handle_inode_extension`, 6.18). None: it is a part of `sync_call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Measured<Nanos>>,
    /// What a direct write takes longer that extends its file, or fills a hole of it, by a part of a block of
    /// the filesystem: it has the inode for itself (`ext4_dio_write_checks`, `ext4_unaligned_io`), and the
    /// rest of a new block is zeroed (`iomap_dio_zero`, 6.18). None: nothing, and it is taken to allocate a
    /// block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Measured<Nanos>>,
    /// What a synchronous write through the page cache takes longer into new blocks than a direct one would
    /// that need not allocate them: delayed allocation, and handing over its pages (`ext4_writepages`, 6.18).
    /// None: it is a part of `sync_call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_allocation: Option<Measured<Nanos>>,
    /// Fixed cost of a synchronous write, beyond the transfer (`sc_sw`) and its latency.
    pub sync_call: Measured<Nanos>,
    /// Fixed cost of fsync with something to commit, beyond transfer and latency of the data: journal commit
    /// and device cache flush (`sc_fsync`).
    pub fsync: Measured<Nanos>,
    /// A flush of the device's cache alone, which is what fsync costs when there is nothing to commit. None:
    /// half of `fsync`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush: Option<Measured<Nanos>>,
    /// What a wait takes longer if the device was idle for a millisecond before: its queue, and the host's
    /// thread that serves it, must wake up. It grows as [`CallConstants::away`] does. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Measured<Nanos>>,
    /// What each request of a wait takes beyond the first, without seek and transfer: pages that lie
    /// scattered need several. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Measured<Nanos>>,
    /// What each folio of the page cache takes beyond the first that a wait hands to the device, without the
    /// transfer. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folio: Option<Measured<Nanos>>,
    /// Rate at which it discards blocks that a call frees, which waits for that (`ext4_issue_discard`, 6.18:
    /// ext4 without a journal, mounted with `discard`). None: no call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discard: Option<Measured<Rate>>,
    /// Extra cost of an access away from the previous one, synchronous (`sk`) or the flusher's.
    pub seek: Measured<Nanos>,
    /// Logical block size (`bs`), in bytes.
    pub block: Bytes,
    /// Most data under writeback at a time, in bytes: what the request queue holds of the longest requests.
    #[serde(default = "mib::<64>")]
    pub queue: Bytes,
    /// Rate to which the kernel holds writers when throttling begins (`dirty_ratelimit`), in bytes per
    /// second: it is kept from earlier throttling and walks slowly. None: the writeback rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_rate: Option<Measured<Rate>>,
    /// Interval at which the filesystem's journal is committed, in ns; 0 for none.
    #[serde(default = "commit")]
    pub commit: Nanos,
    /// Part of the dirty threshold that is always its own (`bdi/min_ratio`), between 0 and 1.
    #[serde(default)]
    pub min_ratio: f64,
    /// Most of the dirty threshold it may take (`bdi/max_ratio`), between 0 and 1.
    #[serde(default = "whole")]
    pub max_ratio: f64,
    /// Its writers are held to its own share whatever the others do (`bdi/strict_limit`).
    #[serde(default)]
    pub strict_limit: bool,
    /// Its filesystem, for where a trace does not tell which one it is. None: as ext4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemKind>,
    /// fdatasync and O_DSYNC write the inode for new time stamps alone, as ext4 without a journal does (6.18,
    /// requests counted in `/sys/block/*/stat`).
    #[serde(default)]
    pub syncs_stamps: bool,
    /// Its files are elsewhere, and this is the way to them. None: it is a device of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkConstants>,
}

/// A further device, with constants of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OtherDevice {
    /// Its number (`st_dev` of the files on it).
    pub dev: u64,
    /// Its constants.
    pub constants: DeviceConstants,
}

/// What older profiles do not have: so many MiB.
const fn mib<const N: u64>() -> Bytes {
    Bytes::mib(N)
}

/// The readahead window of older profiles: the kernel's default (`VM_READAHEAD_PAGES`, 6.18).
const fn readahead() -> Bytes {
    Bytes::kib(128)
}

/// The journal's interval of older profiles: that of ext4's commits.
const fn commit() -> Nanos {
    Nanos::seconds(5.0)
}

/// The cost of freeing a page in older profiles: what was measured on 6.18.
fn free() -> Measured<Nanos> {
    Measured::assumed(Nanos::new(700.0))
}

/// The largest part of the dirty threshold in older profiles: all of it.
const fn whole() -> f64 {
    1.0
}

/// Fixed costs of calls, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallConstants {
    /// A write into the page cache (`sc_w`).
    pub write: Measured<Nanos>,
    /// What each new folio of the page cache costs in addition to its pages (`write_begin` and `write_end` of
    /// the filesystem, which reserves blocks for it). None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folio: Option<Measured<Nanos>>,
    /// What a write costs in addition that makes a clean inode dirty: `__mark_inode_dirty` and what the
    /// filesystem does then. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<Measured<Nanos>>,
    /// What a write costs in addition a millisecond after its thread's previous one: by then the processor's
    /// caches, its page table entries and its branch predictors hold something else. It grows with the square
    /// root of that time, up to ten milliseconds. None: nothing. Profiles made before this have what it is
    /// after a wait, which is about the same.
    #[serde(default, alias = "after_wait", skip_serializing_if = "Option::is_none")]
    pub away: Option<Measured<Nanos>>,
    /// What a write costs in addition 10 µs after its thread's previous one. None: `away` by the square root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_soon: Option<Measured<Nanos>>,
    /// What a write into new pages costs in addition that lie apart from the latest ones written to its file:
    /// other nodes of the page cache's tree and of the filesystem's extents are looked up. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<Measured<Nanos>>,
    /// What a write costs in addition for each page that no write has gone over since it was allocated, where
    /// each page is a folio of its own: the second access (`folio_mark_accessed`). None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Measured<Nanos>>,
    /// What a write costs in addition for each cached, clean folio that it makes dirty
    /// (`folio_account_dirtied`). None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean: Option<Measured<Nanos>>,
    /// What a write costs in addition for each block of a cached folio that it covers in part, beyond its
    /// own: the filesystem goes through all of them (`ext4_block_write_begin`, `block_commit_write`). None:
    /// nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<Measured<Nanos>>,
    /// What each block of a folio that a write covers in part costs if its description (`struct buffer_head`)
    /// is not in the processor's cache. None: as `block`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_far: Option<Measured<Nanos>>,
    /// A write of no bytes, which reaches the filesystem and does nothing there: the change of mode, and what
    /// any call of the filesystem costs. None: as much as `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<Measured<Nanos>>,
    /// What a write over cached pages takes longer that ends a byte after a page instead of at its end: what
    /// records of whole pages save. Told, and used by no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub odd: Option<Measured<Nanos>>,
    /// A read from the page cache, beyond the copy. None: as much as `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Measured<Nanos>>,
    /// A read at the end of the file, of no bytes. None: as much as `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_read: Option<Measured<Nanos>>,
    /// What a read from the page cache takes for each folio beyond its first, whose pages are in the
    /// processor's cache. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_folio: Option<Measured<Nanos>>,
    /// What a read takes for each folio whose pages are in memory, its first too: copying begins anew there.
    /// None: as `read_folio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_folio_far: Option<Measured<Nanos>>,
    /// What a read takes longer that begins in a folio in memory, away from the latest read. None: as
    /// `read_folio_far`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_apart: Option<Measured<Nanos>>,
    /// What a read takes longer 1 ms after its thread's previous call. None: as much as `away`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_away: Option<Measured<Nanos>>,
    /// What a read takes longer for each page of the memory it goes to that the program had not touched before:
    /// a page fault, in which a page is allocated and cleared. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Measured<Nanos>>,
    /// What the first call of a stream takes longer: the C library asks for the file's block size and allocates
    /// the buffer. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Measured<Nanos>>,
    /// Opening a file that exists, its name in the kernel's cache. None: as much as `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Measured<Nanos>>,
    /// What an open takes longer that creates the file. None: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<Measured<Nanos>>,
    /// Closing a file. None: as much as `empty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close: Option<Measured<Nanos>>,
    /// Taking a page out of the page cache that is a folio of its own.
    #[serde(default = "free")]
    pub free: Measured<Nanos>,
    /// A stream call that stays in its buffer.
    pub stream: Measured<Nanos>,
}

/// Settings of the kernel that the models mirror.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelSettings {
    /// Dirty limits, in bytes.
    pub limits: DirtyLimits,
    /// Age at which dirty data is written back (`dirty_expire_centisecs`), in ns.
    pub expire: Nanos,
    /// Interval of the periodic flusher (`dirty_writeback_centisecs`), in ns; 0 disables it.
    pub wakeup: Nanos,
    /// Page size, in bytes.
    pub page: Bytes,
    /// Default size of a stream's buffer (`bf`, `st_blksize`), in bytes.
    pub stream_buffer: Bytes,
    /// Timer ticks per second (CONFIG_HZ).
    pub hz: u32,
    /// Time stamps that a program has read change with the next write, others with the next tick
    /// (`inode_set_ctime_current`, fs/inode.c, since 6.13).
    #[serde(default)]
    pub fine_stamps: bool,
    /// Number of processors online.
    pub cpus: u32,
    /// Largest piece of the page cache the filesystem handles at once (large folios), in bytes.
    #[serde(default = "mib::<2>")]
    pub folio: Bytes,
    /// Dirty limits of the memory cgroup (v2, with the io controller) that the traced programs run in.
    /// Both these and the machine's apply, the tighter of the two counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<DirtyLimits>,
    /// What the control group of the traced programs keeps of files in memory; None: it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupCache>,
}

/// Time of copying from the processor's cache, as a part of that of copying from memory, where it was not
/// measured.
const HOT_COPY: f64 = 0.25;

impl MemoryConstants {
    /// The part of the time of copying from memory that copying from the processor's cache takes.
    pub fn hot_part(&self) -> f64 {
        self.hot.as_ref().map_or(HOT_COPY, |hot| (self.cached.value / hot.value).min(1.0))
    }

    /// Time of copying from the processor's cache beyond a call's first 64 KiB, as a part of memory's.
    pub fn hot_large_part(&self) -> f64 {
        self.part_of(self.hot_large.as_ref())
    }

    /// Time of copying within the processor's cache, as a part of that from memory.
    pub fn near_part(&self) -> f64 {
        self.part_of(self.near.as_ref())
    }

    /// Nothing that comes from the processor's cache takes longer than what is `hot`.
    fn part_of(&self, faster: Option<&Measured<Rate>>) -> f64 {
        faster.map_or(1.0, |faster| self.cached.value / faster.value).min(self.hot_part())
    }

    /// Scales the rates of copies from the processor's cache as `cached` has changed from `before` by
    /// learning, since calls tell of all together: their ratios stay as measured.
    pub(crate) fn heat(&mut self, before: Rate) {
        let all = [&mut self.hot, &mut self.hot_large, &mut self.near];
        for faster in all.into_iter().flatten().filter(|_| before.get() > 0.0) {
            faster.value = Rate::per_second(faster.value.get() * (self.cached.value / before));
        }
    }

    /// Seconds that a byte of a new page takes longer if its memory is cold; 0 where that is not known.
    pub fn cold_byte(&self) -> f64 {
        let more = |cold: &Measured<Rate>| 1.0 / cold.value.get() - 1.0 / self.fresh.value.get();
        self.cold.as_ref().map_or(0.0, more).max(0.0)
    }

    /// What cold memory costs where the host is known to take memory back, but none was met yet.
    pub fn assumed_cold(&self) -> Measured<Rate> {
        Measured::assumed(Rate::per_second(1.0 / (1.0 / self.fresh.value.get() + HOST_BYTE)))
    }

    /// Rate of page-cache writes of fresh pages, cold or warm ones.
    pub fn fresh_rate(&self, cold: bool) -> Rate {
        self.cold.as_ref().filter(|_| cold).unwrap_or(&self.fresh).value
    }
}

impl HostProfile {
    /// Figures of an ordinary machine, for a machine that was not measured: order of magnitude only. The
    /// page-cache figures are half of what was measured on a 6.18 kernel; the device is a SATA solid-state
    /// disk.
    pub fn uncalibrated() -> HostProfile {
        static ASSUMED: LazyLock<HostProfile> = LazyLock::new(|| {
            HostProfile::from_toml(include_str!("profile/uncalibrated.toml")).expect("a sound profile")
        });
        ASSUMED.clone()
    }

    /// The constants of the device with this number.
    pub fn device_of(&self, dev: u64) -> &DeviceConstants {
        self.others.iter().find(|other| other.dev == dev).map_or(&self.device, |other| &other.constants)
    }

    /// The constants of all devices.
    fn devices(&self) -> impl Iterator<Item = &DeviceConstants> {
        std::iter::once(&self.device).chain(self.others.iter().map(|other| &other.constants))
    }

    /// Reads a profile and checks that a machine could have it.
    pub fn from_toml(text: &str) -> Result<HostProfile, ProfileError> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let Version { schema } = toml::from_str(text)?;
        if schema > PROFILE_SCHEMA {
            return Err(ProfileError::Schema(schema));
        }
        let profile: HostProfile = toml::from_str(text)?;
        profile.check()?;
        Ok(profile)
    }

    /// The profile as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }

    /// Refuses combinations of values that no machine has.
    pub fn check(&self) -> Result<(), ProfileError> {
        let kernel = &self.kernel;
        let is_part = |factor: &Measured<f64>| factor.value > 0.0 && factor.value <= 1.0;
        let sane = [
            (kernel.limits.background < kernel.limits.hard, "kernel.limits.background must be below hard"),
            (kernel.page.0.is_power_of_two(), "kernel.page must be a power of two"),
            (!self.device.block.is_zero(), "device.block must be above 0"),
            (!kernel.stream_buffer.is_zero(), "kernel.stream_buffer must be above 0"),
            (kernel.hz > 0, "kernel.hz must be above 0"),
            (
                self.memory.cold_share.is_none_or(|share| (0.0..=1.0).contains(&share.value)),
                "memory.cold_share must be 0 to 1",
            ),
            (is_part(&self.memory.flush_factor), "memory.flush_factor must be above 0 and at most 1"),
            (
                self.memory.cached_flush_factor.as_ref().is_none_or(is_part),
                "memory.cached_flush_factor must be above 0 and at most 1",
            ),
            (
                self.devices().all(|of| of.network.as_ref().is_none_or(NetworkConstants::is_sound)),
                "device.network.request, read_request, push and in_flight must be above 0",
            ),
            (
                self.devices().all(|of| of.shared_queue.as_ref().is_none_or(QueueConstants::is_sound)),
                "device.shared_queue: reads_wait, reads_wait_for_reads must be 0 to 1, requests 1 to 1048576",
            ),
            (self.learned.as_ref().is_none_or(Learned::is_sound), "a learned value must be 0 or more"),
        ];
        let wrong = sane.iter().find(|(holds, _)| !holds);
        wrong.map_or(Ok(()), |(_, why)| Err(ProfileError::Nonsense(why)))
    }
}

#[cfg(test)]
mod tests;
