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
use crate::release::{Laws, Release};
use crate::table::constants;
pub use crate::table::{Constants, Figure, Measured, Row, Unit, Value};
use crate::units::{Bytes, Nanos, Rate, Seconds, is_zero};
pub use constants::ShownConstant;
pub use error::ProfileError;
pub use growth::{block_cache, blocks_out};
pub use growth::{grown, growth};
pub use learned::{Kept, Learned};
pub use network::{CachePolicy, NetworkConstants};
pub use queue::QueueConstants;

/// What a host takes to supply a byte of memory, where that is not known: 13 µs a page
/// (docs/reference/CALIBRATION.md).
pub const HOST_BYTE: Seconds = Seconds(13e-6 / 4096.0);

/// Version of the profile file this code writes.
pub const PROFILE_SCHEMA: u32 = 1;

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
    /// Merged of the profiles of equal machines, by `cawl-cli calibrate --from`.
    Prior,
}

/// What tells whether two machines are equal, beyond the kernel and the filesystem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineKind {
    /// The processor's name; None where the kernel does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<String>,
    /// The model of the disk, or what drives it, and whether it turns.
    pub storage: String,
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
    /// Profiles of equal machines that it was merged of; 0: it is of this machine alone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub merged: u32,
    /// The machine it was measured on; None in older profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineKind>,
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

constants! {
    /// Memory bandwidths, in bytes per second.
    #[derive(Clone, Debug, PartialEq)]
    MemoryConstants retired cached_flush_factor last_part {
        /// Copy into a stream's buffer in user space (`bw_mem`).
        stream: Measured<Rate> = "stream copy";
        /// Page-cache write of fresh pages while the flusher is idle (`bw_ram`).
        fresh: Measured<Rate> = "fresh pages";
        /// Page-cache write of fresh pages on cold memory (`bw_ram_cold`): the host of a virtual machine took
        /// it back. None: never seen on this machine.
        cold: Option<Measured<Rate>> = "fresh pages, cold memory";
        /// The part of fresh pages that were cold while this was measured, between 0 and 1. None: not known.
        cold_share: Option<Measured<f64>> = "share of cold memory";
        /// Page-cache write over pages that are already cached (`bw_redirty`).
        cached: Measured<Rate> = "cached pages";
        /// Copying into the page cache what comes from the processor's cache. None: four times `cached`.
        hot: Option<Measured<Rate>> = "copy from the processor's cache";
        /// Copying from the processor's cache beyond a call's first 64 KiB, in larger folios. None: as `hot`.
        hot_large: Option<Measured<Rate>> = "the same, beyond 64 KiB of a call";
        /// Copying from the processor's cache over cached pages of a file of up to 1 MiB, which are in the
        /// nearest caches themselves. None: as `hot`.
        near: Option<Measured<Rate>> = "copy within it";
        /// Copying out of the page cache what is in memory, in large folios. None: as `cached`.
        read: Option<Measured<Rate>> = "read from memory", as cached;
        /// Copying out of the page cache a file of up to `hot_size`, in the processor's cache. None: as
        /// `read`.
        read_hot: Option<Measured<Rate>> = "read from the processor's cache", as read();
        /// Reading what no device has to read (holes of a file) into new pages of the page cache: they are
        /// allocated, filled and copied out. None: as `fresh`.
        read_fresh: Option<Measured<Rate>> = "read of new pages", as fresh;
        /// Bytes of a cached file of which every second block's description is in the processor's cache
        /// ([`blocks_out`]). None: all are.
        block_cache: Option<Bytes>;
        /// Rate at which pages count as dirty with their folio, when another page of it is rewritten. None:
        /// at once.
        folio: Option<Measured<Rate>> = "rest of a folio";
        /// Factor on `fresh` and `cached` while the flusher works (`bg_coeff`), between 0 and 1.
        flush_factor: Measured<f64> = "factor while flushing";
        /// Largest write whose data still comes from the processor's cache, in bytes: copying it costs less.
        #[serde(default = "mib::<1>")]
        hot_size: Bytes;
        /// Size of the processor's last cache, as those processors have it together that share it
        /// (`/sys/devices/system/cpu/cpu*/cache`), in bytes. None: 32 MiB.
        last_cache: Option<Bytes> => setting;
        /// Size of the cache that a core has for itself before the last one, in bytes. None: 1 MiB.
        core_cache: Option<Bytes> => setting;
    }
}

constants! {
    /// The device and its filesystem: rates in bytes per second, times in nanoseconds, sizes in bytes.
    #[derive(Clone, Debug, PartialEq)]
    DeviceConstants {
        /// Large direct writes (`bw_dev`).
        write: Measured<Rate> = "device write";
        /// Large direct reads (`bw_rdev`).
        read: Measured<Rate> = "device read";
        /// From asking the device for a block until its reader goes on, away from the block before and
        /// without the transfer (`pread` of 4 KiB with O_DIRECT at random places). None: `seek` and
        /// `latency`.
        read_latency: Option<Measured<Nanos>> = "latency of a read";
        /// Rate at which a file that is read ahead comes: several requests are on their way at a time. None:
        /// as `read`.
        sequential_read: Option<Measured<Rate>> = "read ahead", as read;
        /// It completes the requests of a window of readahead together, not one after another.
        #[serde(default)]
        completes_together: Option<bool> => setting;
        /// `read` of what is in the device's own cache (a controller's, a storage server's, a virtual
        /// machine's host's). None: it has none, or that was not found.
        cached_read: Option<Measured<Rate>> = "read from the device's cache";
        /// `read_latency` of what is in the device's own cache. None: it has none, or that was not found.
        cached_read_latency: Option<Measured<Nanos>> = "latency of that";
        /// Largest readahead window (`queue/read_ahead_kb`), in bytes; 0: no readahead.
        #[serde(default = "readahead")]
        readahead: Bytes => setting;
        /// How reads and the flusher's writes share its queue. None: reads go first.
        shared_queue: Option<QueueConstants>;
        /// Rate at which the flusher cleans pages (`bw_writeback`); not the direct rate.
        writeback: Measured<Rate> = "writeback";
        /// From handing a request to the device until its writer goes on, without the transfer and what comes
        /// after it. None: it is a part of `sync_call` and `fsync`.
        latency: Option<Measured<Nanos>> = "latency of a wait";
        /// Fixed cost of a direct write that is not synchronous, beyond the transfer. None: `latency`.
        direct: Option<Measured<Nanos>>;
        /// What a direct write takes longer into new blocks: they are allocated, and the inode grows
        /// (`ext4_iomap_alloc`, `ext4_handle_inode_extension`, 6.18). None: it is a part of `sync_call`.
        allocation: Option<Measured<Nanos>> = "allocation, direct write";
        /// What a direct write takes longer that extends its file, or fills a hole of it, by a part of a
        /// block of the filesystem: it has the inode for itself (`ext4_dio_write_checks`,
        /// `ext4_unaligned_io`), and the rest of a new block is zeroed (`iomap_dio_zero`, 6.18). None:
        /// nothing, and it is taken to allocate a block.
        partial: Option<Measured<Nanos>> = "part of a block, direct write";
        /// What a synchronous write through the page cache takes longer into new blocks than a direct one
        /// would that need not allocate them: delayed allocation, and handing over its pages
        /// (`ext4_writepages`, 6.18). None: it is a part of `sync_call`.
        delayed_allocation: Option<Measured<Nanos>> = "allocation, synchronous write";
        /// Fixed cost of a synchronous write, beyond the transfer (`sc_sw`) and its latency.
        sync_call: Measured<Nanos> = "synchronous call, fixed part";
        /// Fixed cost of fsync with something to commit, beyond transfer and latency of the data: journal
        /// commit and device cache flush (`sc_fsync`).
        fsync: Measured<Nanos> = "fsync";
        /// A flush of the device's cache alone, which is what fsync costs when there is nothing to commit.
        /// None: half of `fsync`.
        flush: Option<Measured<Nanos>> = "flush";
        /// What a wait takes longer if the device was idle for a millisecond before: its queue, and the
        /// host's thread that serves it, must wake up. It grows as [`CallConstants::away`] does. None:
        /// nothing.
        idle: Option<Measured<Nanos>> = "after 1 ms of idling";
        /// What each request of a wait takes beyond the first, without seek and transfer: pages that lie
        /// scattered need several. None: nothing.
        request: Option<Measured<Nanos>> = "further request of a wait";
        /// What each folio of the page cache takes beyond the first that a wait hands to the device, without
        /// the transfer. None: nothing.
        folio: Option<Measured<Nanos>> = "further folio of a wait";
        /// Rate at which it discards blocks that a call frees, which waits for that (`ext4_issue_discard`, 6.18:
        /// ext4 without a journal, mounted with `discard`). None: no call waits.
        discard: Option<Measured<Rate>> = "discard in the call";
        /// What such a call waits beyond that, however little it frees. None: as much as `latency`.
        discard_latency: Option<Measured<Nanos>> = "latency of a discard";
        /// Extra cost of an access away from the previous one, synchronous (`sk`) or the flusher's.
        seek: Measured<Nanos> = "seek";
        /// Logical block size (`bs`), in bytes.
        block: Bytes => setting;
        /// Most data under writeback at a time, in bytes: what the request queue holds of the longest
        /// requests.
        #[serde(default = "mib::<64>")]
        queue: Bytes;
        /// Rate to which the kernel holds writers when throttling begins (`dirty_ratelimit`), in bytes per
        /// second: it is kept from earlier throttling and walks slowly. None: the writeback rate.
        base_rate: Option<Measured<Rate>> = "base rate of throttling";
        /// Interval at which the filesystem's journal is committed, in ns; 0 for none.
        #[serde(default = "commit")]
        commit: Nanos => setting;
        /// Part of the dirty threshold that is always its own (`bdi/min_ratio`), between 0 and 1.
        #[serde(default)]
        min_ratio: f64 => setting;
        /// Most of the dirty threshold it may take (`bdi/max_ratio`), between 0 and 1.
        #[serde(default = "whole")]
        max_ratio: f64 => setting;
        /// Its writers are held to its own share whatever the others do (`bdi/strict_limit`).
        #[serde(default)]
        strict_limit: bool => setting;
        /// Its filesystem, for where a trace does not tell which one it is. None: as ext4.
        filesystem: Option<FilesystemKind> => setting;
        /// fdatasync and O_DSYNC write the inode for new time stamps alone, as ext4 without a journal does
        /// (6.18, requests counted in `/sys/block/*/stat`).
        #[serde(default)]
        syncs_stamps: bool => setting;
        /// Its files are elsewhere, and this is the way to them. None: it is a device of this machine.
        network: Option<NetworkConstants>;
    }
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

constants! {
    /// Fixed costs of calls, in nanoseconds.
    #[derive(Clone, Debug, PartialEq)]
    CallConstants retired odd read_folio {
        /// A write into the page cache (`sc_w`).
        write: Measured<Nanos> = "write call";
        /// What each new folio of the page cache costs in addition to its pages (`write_begin` and
        /// `write_end` of the filesystem, which reserves blocks for it). None: nothing.
        folio: Option<Measured<Nanos>> = "new folio";
        /// What a write costs in addition that makes a clean inode dirty: `__mark_inode_dirty` and what the
        /// filesystem does then. None: nothing.
        inode: Option<Measured<Nanos>> = "clean inode";
        /// What a write costs in addition a millisecond after its thread's previous one: by then the
        /// processor's caches, its page table entries and its branch predictors hold something else. It grows
        /// with the square root of that time, up to ten milliseconds. None: nothing. Profiles made before
        /// this have what it is after a wait, which is about the same.
        #[serde(default, alias = "after_wait")]
        away: Option<Measured<Nanos>> = "after 1 ms elsewhere";
        /// What a write costs in addition 10 µs after its thread's previous one. None: `away` by the square
        /// root.
        away_soon: Option<Measured<Nanos>> = "after 10 µs elsewhere";
        /// What a write into new pages costs in addition that lie apart from the latest ones written to its
        /// file: other nodes of the page cache's tree and of the filesystem's extents are looked up. None:
        /// nothing.
        jump: Option<Measured<Nanos>> = "new pages apart";
        /// What a write costs in addition for each page that no write has gone over since it was allocated,
        /// where each page is a folio of its own: the second access (`folio_mark_accessed`). None: nothing.
        over: Option<Measured<Nanos>> = "page written over first";
        /// What a write costs in addition for each cached, clean folio that it makes dirty
        /// (`folio_account_dirtied`). None: nothing.
        clean: Option<Measured<Nanos>> = "clean folio";
        /// What a write costs in addition for each block of a cached folio that it covers in part, beyond its
        /// own: the filesystem goes through all of them (`ext4_block_write_begin`, `block_commit_write`).
        /// None: nothing.
        block: Option<Measured<Nanos>> = "block of a large folio";
        /// What each block of a folio that a write covers in part costs if its description (`struct
        /// buffer_head`) is not in the processor's cache. None: as `block`.
        block_far: Option<Measured<Nanos>> = "the same, from memory";
        /// A write of no bytes, which reaches the filesystem and does nothing there: the change of mode, and
        /// what any call of the filesystem costs. None: as much as `write`.
        empty: Option<Measured<Nanos>> = "write of no bytes", as write;
        /// A read from the page cache, beyond the copy. None: as much as `write`.
        read: Option<Measured<Nanos>> = "read call", as write;
        /// A read at the end of the file, of no bytes. None: as much as `read`.
        empty_read: Option<Measured<Nanos>> = "read at the end of a file", as read();
        /// What a read takes for each folio whose pages are in memory, its first too: copying begins anew
        /// there. None: nothing.
        read_folio_far: Option<Measured<Nanos>> = "folio of a read from memory";
        /// What a read takes longer that begins in a folio in memory, away from the latest read. None: as
        /// `read_folio_far`.
        read_apart: Option<Measured<Nanos>> = "read in the middle of one";
        /// What a read takes longer 1 ms after its thread's previous call. None: as much as `away`.
        read_away: Option<Measured<Nanos>> = "read after 1 ms elsewhere";
        /// What a read takes longer for each page of the memory it goes to that the program had not touched
        /// before: a page fault, in which a page is allocated and cleared. None: nothing.
        fault: Option<Measured<Nanos>> = "page read into that is touched first";
        /// What the first call of a stream takes longer: the C library asks for the file's block size and
        /// allocates the buffer. None: nothing.
        buffer: Option<Measured<Nanos>> = "first call of a stream, beyond";
        /// Opening a file that exists, its name in the kernel's cache. None: as much as `write`.
        open: Option<Measured<Nanos>> = "open", as write;
        /// What an open takes longer that creates the file. None: nothing.
        create: Option<Measured<Nanos>> = "creating a file, beyond";
        /// Taking away a name of a file: what a rename, a link or the end of a folder takes is derived from
        /// it. None: four times as much as `open`.
        name: Option<Measured<Nanos>> = "name that goes";
        /// Looking at a name that the kernel's cache has (stat): what a look at a folder's entries takes is
        /// derived from it. None: 0.9 times as much as `open`.
        stat: Option<Measured<Nanos>> = "stat of a name";
        /// Closing a file. None: as much as `empty`.
        close: Option<Measured<Nanos>> = "close", as empty();
        /// Taking a page out of the page cache that is a folio of its own.
        #[serde(default = "free")]
        free: Measured<Nanos> = "page that leaves the cache";
        /// A stream call that stays in its buffer.
        stream: Measured<Nanos> = "stream call";
    }
}

constants! {
    /// Settings of the kernel that the models mirror.
    #[derive(Clone, Debug, PartialEq)]
    KernelSettings {
        /// Dirty limits, in bytes.
        limits: DirtyLimits => setting;
        /// Age at which dirty data is written back (`dirty_expire_centisecs`), in ns.
        expire: Nanos => setting;
        /// Interval of the periodic flusher (`dirty_writeback_centisecs`), in ns; 0 disables it.
        wakeup: Nanos => setting;
        /// Page size, in bytes.
        page: Bytes => setting;
        /// Default size of a stream's buffer (`bf`, `st_blksize`), in bytes.
        stream_buffer: Bytes => setting;
        /// Timer ticks per second (CONFIG_HZ).
        hz: u32 => setting;
        /// The release of Linux whose laws hold. None: 6.18.
        release: Option<Release> => setting;
        /// Time stamps that a program has read change with the next write, others with the next tick
        /// (`inode_set_ctime_current`, fs/inode.c, since 6.13).
        #[serde(default)]
        fine_stamps: bool => setting;
        /// The multi-generational LRU is in use (/sys/kernel/mm/lru_gen/enabled).
        #[serde(default)]
        lru_gen: bool => setting;
        /// Number of processors online.
        cpus: u32 => setting;
        /// Largest piece of the page cache the filesystem handles at once (large folios), in bytes.
        #[serde(default = "mib::<2>")]
        folio: Bytes => setting;
        /// Dirty limits of the memory cgroup (v2, with the io controller) that the traced programs run in.
        /// Both these and the machine's apply, the tighter of the two counts.
        cgroup: Option<DirtyLimits> => setting;
        /// What the control group of the traced programs keeps of files in memory; None: it is not known.
        group: Option<GroupCache> => setting;
    }
}

impl KernelSettings {
    /// The laws that its release has.
    pub fn laws(&self) -> Laws {
        let laws = Laws::of(self.release.unwrap_or(Release::LATEST), self.folio > self.page);
        Laws { generations: self.lru_gen, ..laws }
    }
}

/// Time of copying from the processor's cache, as a part of that of copying from memory, where it was not
/// measured.
const HOT_COPY: f64 = 0.25;

/// So many times as long as opening a file it takes to take a name away, where that was not measured: 7.5 µs
/// on tmpfs of 6.18, 14 on xfs, 6.6 on ext4, where an open took 1.9.
const NAME: f64 = 4.0;

/// The same of a look at a name (stat): 0.9 on ext4, xfs and btrfs of 6.18, 0.8 on tmpfs, over 5000 files.
const STAT: f64 = 0.9;

impl CallConstants {
    /// `name`, or what stands for it.
    pub fn name(&self) -> Measured<Nanos> {
        self.name.unwrap_or_else(|| self.open().map(|open| open * NAME))
    }

    /// `stat`, or what stands for it.
    pub fn stat(&self) -> Measured<Nanos> {
        self.stat.unwrap_or_else(|| self.open().map(|open| open * STAT))
    }
}

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
    pub fn heat(&mut self, before: Rate) {
        let all = [&mut self.hot, &mut self.hot_large, &mut self.near];
        for faster in all.into_iter().flatten().filter(|_| before.get() > 0.0) {
            faster.value = Rate::per_second(faster.value.get() * (self.cached.value / before));
        }
    }

    /// Seconds that a byte of a new page takes longer if its memory is cold; 0 where that is not known.
    pub fn cold_byte(&self) -> Seconds {
        let more = |cold: &Measured<Rate>| cold.value.byte() - self.fresh.value.byte();
        self.cold.as_ref().map_or(Seconds::ZERO, more).max(Seconds::ZERO)
    }

    /// What cold memory costs where the host is known to take memory back, but none was met yet.
    pub fn assumed_cold(&self) -> Measured<Rate> {
        Measured::assumed(Rate::per_second(1.0 / (self.fresh.value.byte() + HOST_BYTE).0))
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
            (self.schema <= PROFILE_SCHEMA, "schema is that of a later version"),
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
