//! The profile's constants in the models' own units: seconds, pages and bytes.
//!
//! A device owns what its files cost: [`Constants`] of memory and calls, [`Timing`] of its own, and where its
//! files are elsewhere the way to them, [`Remote`].

mod remote;

use crate::profile::{DeviceConstants, HostProfile, Measured};
use crate::units::{Bytes, Nanos, Pages, Rate, Seconds};
pub use remote::Remote;

/// Most pages of a file that are believed to be cached: 512 GiB of a page of 4 KiB.
pub const MAX_RESIDENT: u64 = 1 << 27;
/// Pages of a folio that was cached before the first call: no call tells, and what is read ahead, or written
/// in ordinary pieces, comes in folios of 16 KiB to 256.
pub const FOLIO: u64 = 16;
/// Most pages of a dirty limit: a terabyte. What a trace tells of more is no machine.
pub const MAX_LIMIT: u64 = 1 << 28;

/// Bytes of the processor's last cache, and of the one that a core has for itself, where the machine does not
/// tell.
const LAST_CACHE: u64 = 32 << 20;
const CORE_CACHE: u64 = 1 << 20;
/// What a copy of a file's pages in the last cache takes, as a part of the difference between those in memory
/// and those in a core's own cache: at 16 MiB, writes and reads of 4 to 64 KiB took 10 to 43 % of it.
const LAST_PART: f64 = 0.25;
/// Part of what a commit costs that its one flush costs where it was not measured:
/// `jbd2_journal_commit_transaction` flushes before its last block and after it.
pub const FLUSH: f64 = 0.5;

/// A constant; 0 if it was not measured.
pub fn known(time: &Option<Measured<Nanos>>) -> Seconds {
    time.as_ref().map_or(Seconds::ZERO, |time| time.value.into())
}

/// What calls on files cost, and the page cache.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    pub page: u64,
    /// Binary logarithm of the page.
    pub page_bits: u32,
    pub folio: u64,
    /// The filesystem's block, in bytes, so far as is known: `st_blksize`, a page at most.
    pub block: u64,
    pub call: Seconds,
    pub stream_call: Seconds,
    pub stream_byte: Seconds,
    pub copy_byte: Seconds,
    pub hot_byte: Seconds,
    pub hot_large_byte: Seconds,
    pub near_byte: Seconds,
    pub hot_most: u64,
    /// Bytes of the processor's last cache, and of the one that a core has for itself.
    pub last_cache: u64,
    pub core_cache: u64,
    pub fresh_page: Seconds,
    /// Of a call that writes nothing.
    pub empty_call: Seconds,
    /// Of a read from the page cache, and of one at the end of the file.
    pub read_call: Seconds,
    pub empty_read: Seconds,
    /// Of a byte read from the page cache: from memory and from the processor's cache; and of a new page to
    /// read into.
    pub read_byte: Seconds,
    pub read_hot_byte: Seconds,
    pub read_fresh_page: Seconds,
    /// Of each folio of a read from memory.
    pub read_folio_far: Seconds,
    /// Of a read that begins in the middle of a folio in memory, away from the latest read.
    pub read_apart: Seconds,
    /// Of a page of the program's memory that is touched first.
    pub fault: Seconds,
    /// Of a stream's buffer.
    pub buffer: Seconds,
    pub open: Seconds,
    pub create: Seconds,
    pub name: Seconds,
    pub stat: Seconds,
    pub close: Seconds,
    /// Of a folio of a page that leaves the cache.
    pub free: Seconds,
    pub fresh_folio: Seconds,
    /// Beyond a warm one.
    pub cold_page: Seconds,
    pub clean_inode: Seconds,
    pub clean_folio: Seconds,
    /// Of each way through the kernel that a call takes after a millisecond elsewhere.
    pub away: Seconds,
    /// The part of it after ten microseconds.
    pub soon: f64,
    /// Of a read.
    pub read_away: Seconds,
    pub jump: Seconds,
    /// Of a page that is written over for the first time.
    pub over: Seconds,
    /// Of a block that a write passes in a folio, with its description in the processor's cache or not, and
    /// the pages of a file for whose blocks that cache has room.
    pub block_near: Seconds,
    pub block_far: Seconds,
    pub block_cache: Pages,
    pub padding_page: Seconds,
    /// Of pages while the flusher works.
    pub flush_slowdown: f64,
}

impl Constants {
    /// Those of a machine's own devices.
    pub fn of(profile: &HostProfile) -> Constants {
        let (kernel, memory) = (&profile.kernel, &profile.memory);
        let page = kernel.page.0.next_power_of_two();
        let copy_byte = memory.cached.value.byte();
        let calls = &profile.calls;
        let read = memory.read().value;
        Constants {
            read_call: calls.read().value.into(),
            empty_read: calls.empty_read().value.into(),
            read_byte: read.byte(),
            read_hot_byte: memory.read_hot().value.byte(),
            read_fresh_page: (page as f64 * (memory.read_fresh().value.byte() - read.byte()))
                .max(Seconds::ZERO),
            read_folio_far: known(&calls.read_folio_far),
            read_apart: known(&calls.read_apart.or(calls.read_folio_far)),
            fault: known(&calls.fault),
            buffer: known(&calls.buffer),
            open: calls.open().value.into(),
            create: known(&calls.create),
            name: calls.name().value.into(),
            stat: calls.stat().value.into(),
            close: calls.close().value.into(),
            free: calls.free.value.into(),
            page,
            page_bits: page.ilog2(),
            folio: (kernel.folio.0 / page).max(1),
            block: kernel.stream_buffer.0.clamp(1, page),
            call: calls.write.value.into(),
            stream_call: calls.stream.value.into(),
            stream_byte: memory.stream.value.byte(),
            copy_byte,
            hot_byte: copy_byte * memory.hot_part(),
            hot_large_byte: copy_byte * memory.hot_large_part(),
            near_byte: copy_byte * memory.near_part(),
            hot_most: memory.hot_size.0,
            last_cache: memory.last_cache.map_or(LAST_CACHE, |bytes| bytes.0),
            core_cache: memory.core_cache.map_or(CORE_CACHE, |bytes| bytes.0),
            fresh_page: (page as f64 * (memory.fresh.value.byte() - copy_byte)).max(Seconds::ZERO),
            empty_call: calls.empty().value.into(),
            fresh_folio: known(&calls.folio),
            clean_inode: known(&calls.inode),
            clean_folio: known(&calls.clean),
            away: known(&calls.away),
            soon: calls.soon(),
            read_away: known(&calls.read_away.or(calls.away)),
            jump: known(&calls.jump),
            over: known(&calls.over),
            block_near: known(&calls.block),
            block_far: known(&calls.block_far.or(calls.block)),
            block_cache: memory
                .block_cache
                .map_or(Pages::INFINITY, |bytes| Pages(bytes.as_f64() / page as f64)),
            cold_page: page as f64 * memory.cold_byte(),
            padding_page: memory.folio.as_ref().map_or(Seconds::ZERO, |folio| page as f64 / folio.value),
            flush_slowdown: 1.0 / memory.flush_factor.value.clamp(0.01, 1.0),
        }
    }

    /// How near the pages of a file of this size are, of which a part was found in the last cache: 1 for
    /// those in a core's own, 0 for those in memory.
    pub fn nearness(&self, found: f64, size: u64) -> f64 {
        if size <= self.core_cache { found } else { found * (1.0 - LAST_PART) }
    }

    /// The page that a byte is in. Every call asks for several, and a division by a number that the compiler
    /// does not know takes as long as ten additions.
    pub fn page_of(&self, byte: u64) -> u64 {
        byte >> self.page_bits
    }

    /// Pages up to a byte, the last one in part.
    pub fn pages_up_to(&self, byte: u64) -> u64 {
        self.page_of(byte) + u64::from(!self.begins_page(byte))
    }

    /// The page that a byte is in, and the one behind the byte before `last`.
    pub fn pages_of(&self, byte: u64, last: u64) -> (u64, u64) {
        (self.page_of(byte), self.pages_up_to(last))
    }

    pub fn begins_page(&self, byte: u64) -> bool {
        byte & (self.page - 1) == 0
    }
}

/// How a device reads: a byte, and until the first one comes, of which the seek is its own time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    pub byte: Seconds,
    pub latency: Seconds,
    pub seek: Seconds,
}

impl Speed {
    /// What reading pages of so many bytes takes away from the read before.
    pub fn apart(&self, bytes: f64) -> Seconds {
        self.latency + self.seek + bytes * self.byte
    }
}

/// A device's own constants. What was not measured takes no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Rate of what one call writes and waits for, and of what the flusher hands over.
    pub write: Rate,
    pub writeback: Rate,
    /// Bytes that its queue holds.
    pub queue: Bytes,
    /// Of a wait for what was just submitted, without the transfer.
    pub latency: Seconds,
    /// In its place, of a direct write that is not synchronous.
    pub direct: Option<Seconds>,
    /// Of new blocks, of a part of one, and of those whose allocation was delayed.
    pub allocation: Seconds,
    pub partial: Option<Seconds>,
    pub delayed_allocation: Seconds,
    pub sync_call: Seconds,
    pub fsync: Seconds,
    /// Of a flush of its cache; a part of a commit where that is not known.
    pub flush: Seconds,
    pub is_flush_known: bool,
    /// Of its first wait after a millisecond of rest.
    pub idle: Seconds,
    /// Of a request and of a folio beyond the first that are handed over.
    pub request: Seconds,
    pub folio: Seconds,
    /// Of an access away from the one before.
    pub seek: Seconds,
    /// Of reading a page that is written in part; None: that is not read.
    pub partial_page: Option<Seconds>,
    /// Rate at which it discards blocks, where a call waits for that, and what that takes beyond.
    pub discard: Option<Rate>,
    pub discard_latency: Seconds,
    /// How it reads for one reader, and ahead of one.
    pub read: Speed,
    pub read_ahead: Speed,
    /// How it reads from a cache of its own.
    pub cached_read: Option<Speed>,
    /// Its largest window of readahead, in bytes.
    pub readahead: u64,
    /// From asking for a block until it comes, the seek in it; 0 where that was not measured.
    pub read_latency: Seconds,
    /// Rate at which it reads ahead.
    pub read_rate: Rate,
    /// The part of what it reads for others that a read waits for.
    pub reads_wait: f64,
    /// A synchronous call writes the inode for new time stamps alone: there is no journal.
    pub syncs_stamps: bool,
}

impl Timing {
    /// How it reads, from a cache of its own or not, for one reader or ahead of one.
    pub fn read_speed(&self, from_cache: bool, ahead: bool) -> Speed {
        self.cached_read.filter(|_| from_cache).unwrap_or(if ahead { self.read_ahead } else { self.read })
    }

    /// That of a device, whose files may be elsewhere.
    pub fn of(device: &DeviceConstants, page: u64, remote: Option<&Remote>) -> Timing {
        let (latency, seek) = (known(&device.latency), Seconds::from(device.seek.value));
        let fsync = Seconds::from(device.fsync.value);
        let read = device.read.value;
        let read_latency =
            device.read_latency.map_or(latency, |all| (Seconds::from(all.value) - seek).max(Seconds::ZERO));
        let read_rate = device.sequential_read().value;
        let speed = |rate: Rate| Speed { byte: rate.byte(), latency: read_latency, seek };
        let partial_page = match remote {
            None => Some(known(&device.direct) + seek + page as f64 / read),
            Some(remote) => {
                remote.reads_partial.then_some(remote.read_latency + page as f64 * remote.read_byte)
            }
        };
        Timing {
            write: device.write.value,
            writeback: device.writeback.value,
            queue: device.queue,
            latency,
            direct: device.direct.map(|direct| direct.value.into()),
            allocation: known(&device.allocation),
            partial: device.partial.map(|partial| partial.value.into()),
            delayed_allocation: known(&device.delayed_allocation),
            sync_call: device.sync_call.value.into(),
            fsync,
            flush: device.flush.map_or(FLUSH * fsync, |flush| flush.value.into()),
            is_flush_known: device.flush.is_some(),
            idle: known(&device.idle),
            request: known(&device.request),
            folio: known(&device.folio),
            seek,
            partial_page,
            discard: device.discard.map(|rate| rate.value),
            discard_latency: device.discard_latency.map_or(latency, |of| of.value.into()),
            read: speed(read),
            read_ahead: speed(read_rate),
            cached_read: device.cached_read.map(|rate| Speed {
                byte: rate.value.byte(),
                latency: known(&device.cached_read_latency),
                seek: Seconds::ZERO,
            }),
            readahead: device.readahead.0,
            read_latency: known(&device.read_latency),
            read_rate,
            reads_wait: device
                .shared_queue
                .as_ref()
                .and_then(|queue| queue.reads_wait_for_reads)
                .map_or(1.0, |part| part.value),
            syncs_stamps: device.syncs_stamps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_s_own_cache_is_nearer_than_the_last_one() {
        let mut profile = HostProfile::uncalibrated();
        let near = |profile: &HostProfile, size| Constants::of(profile).nearness(1.0, size);
        assert_eq!([near(&profile, 1 << 20), near(&profile, (1 << 20) + 1)], [1.0, 0.75]);
        profile.memory.core_cache = Some(Bytes::kib(512));
        assert_eq!([near(&profile, 512 << 10), near(&profile, 1 << 20)], [1.0, 0.75]);
    }
}
