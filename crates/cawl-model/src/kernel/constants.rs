//! The profile's constants in the model's own units.

use super::sync::known;
use crate::profile::{HostProfile, Measured};

/// Most pages of a file that are believed to be cached: 512 GiB of a page of 4 KiB.
pub(super) const MOST_RESIDENT: u64 = 1 << 27;
/// Pages of a folio that was cached before the first call: no call tells, and what is read ahead, or written
/// in ordinary pieces, comes in folios of 16 KiB to 256.
pub(super) const FOLIO: u64 = 16;
/// Most pages of a dirty limit: a terabyte. What a trace tells of more is no machine.
pub(super) const MOST_LIMIT: u64 = 1 << 28;

/// Constants of the machine in the model's own units: pages and seconds.
#[derive(Clone, Debug)]
pub(super) struct Constants {
    pub(super) page: u64,
    /// Binary logarithm of the page.
    pub(super) page_bits: u32,
    pub(super) folio: u64,
    /// The filesystem's block, in bytes, so far as is known: `st_blksize`, a page at most.
    pub(super) block: u64,
    pub(super) call: f64,
    pub(super) stream_call: f64,
    pub(super) stream_byte: f64,
    pub(super) copy_byte: f64,
    pub(super) hot_byte: f64,
    pub(super) hot_large_byte: f64,
    pub(super) near_byte: f64,
    pub(super) hot_most: u64,
    pub(super) fresh_page: f64,
    /// Of a call that writes nothing.
    pub(super) empty_call: f64,
    /// Of a read from the page cache, and of one at the end of the file.
    pub(super) read_call: f64,
    pub(super) empty_read: f64,
    /// Of a byte read from the page cache: from memory and from the processor's cache; and of a new page to
    /// read into.
    pub(super) read_byte: f64,
    pub(super) read_hot_byte: f64,
    pub(super) read_fresh_page: f64,
    /// Of each folio of a read beyond its first, in the processor's cache and in memory.
    pub(super) read_folio: f64,
    pub(super) read_folio_far: f64,
    /// Of a read that begins in the middle of a folio in memory, away from the latest read.
    pub(super) read_apart: f64,
    /// Of a page of the program's memory that is touched first.
    pub(super) fault: f64,
    /// Of a stream's buffer.
    pub(super) buffer: f64,
    pub(super) open: f64,
    pub(super) create: f64,
    pub(super) close: f64,
    /// Of a folio of a page that leaves the cache.
    pub(super) free: f64,
    pub(super) fresh_folio: f64,
    /// Beyond a warm one.
    pub(super) cold_page: f64,
    pub(super) clean_inode: f64,
    pub(super) clean_folio: f64,
    /// Of each way through the kernel that a call takes after a millisecond elsewhere.
    pub(super) away: f64,
    /// The part of it after ten microseconds.
    pub(super) soon: f64,
    /// Of a read.
    pub(super) read_away: f64,
    pub(super) jump: f64,
    /// Of a page that is written over for the first time.
    pub(super) over: f64,
    /// Of a block that a write passes in a folio, with its description in the processor's cache or not, and
    /// the pages of a file for whose blocks that cache has room.
    pub(super) block_near: f64,
    pub(super) block_far: f64,
    pub(super) block_cache: f64,
    /// Ticks a second.
    pub(super) hz: f64,
    pub(super) padding_page: f64,
    /// Of pages that are allocated, and of those that are cached, while the flusher works.
    pub(super) flush_slowdown: f64,
    pub(super) cached_slowdown: f64,
}

impl Constants {
    pub(super) fn of(profile: &HostProfile) -> Constants {
        let (kernel, memory) = (&profile.kernel, &profile.memory);
        let page = kernel.page.0.next_power_of_two();
        let copy_byte = 1.0 / memory.cached.value.get();
        let slowdown = |factor: &Measured<f64>| 1.0 / factor.value.clamp(0.01, 1.0);
        let calls = &profile.calls;
        let read = memory.read.unwrap_or(memory.cached).value;
        let read_hot = memory.read_hot.map_or(read, |hot| hot.value);
        let read_fresh = memory.read_fresh.map_or(memory.fresh.value, |fresh| fresh.value);
        let read_call = calls.read.unwrap_or(calls.write);
        Constants {
            read_call: read_call.value.as_seconds(),
            empty_read: calls.empty_read.unwrap_or(read_call).value.as_seconds(),
            read_byte: 1.0 / read.get(),
            read_hot_byte: 1.0 / read_hot.get(),
            read_fresh_page: (page as f64 * (1.0 / read_fresh.get() - 1.0 / read.get())).max(0.0),
            read_folio: known(&calls.read_folio),
            read_folio_far: known(&calls.read_folio_far.or(calls.read_folio)),
            read_apart: known(&calls.read_apart.or(calls.read_folio_far).or(calls.read_folio)),
            fault: known(&calls.fault),
            buffer: known(&calls.buffer),
            open: calls.open.unwrap_or(calls.write).value.as_seconds(),
            create: known(&calls.create),
            close: calls.close.or(calls.empty).unwrap_or(calls.write).value.as_seconds(),
            free: calls.free.value.as_seconds(),
            page,
            page_bits: page.ilog2(),
            folio: (kernel.folio.0 / page).max(1),
            block: kernel.stream_buffer.0.clamp(1, page),
            call: profile.calls.write.value.as_seconds(),
            stream_call: profile.calls.stream.value.as_seconds(),
            stream_byte: 1.0 / memory.stream.value.get(),
            copy_byte,
            hot_byte: copy_byte * memory.hot_part(),
            hot_large_byte: copy_byte * memory.hot_large_part(),
            near_byte: copy_byte * memory.near_part(),
            hot_most: memory.hot_size.0,
            fresh_page: (page as f64 * (1.0 / memory.fresh.value.get() - copy_byte)).max(0.0),
            empty_call: profile
                .calls
                .empty
                .as_ref()
                .map_or(profile.calls.write.value, |empty| empty.value)
                .as_seconds(),
            fresh_folio: known(&profile.calls.folio),
            clean_inode: known(&profile.calls.inode),
            clean_folio: known(&profile.calls.clean),
            away: known(&profile.calls.away),
            soon: profile.calls.soon(),
            read_away: known(&calls.read_away.or(calls.away)),
            jump: known(&profile.calls.jump),
            over: known(&profile.calls.over),
            block_near: known(&profile.calls.block),
            block_far: known(&profile.calls.block_far.or(profile.calls.block)),
            block_cache: memory.block_cache.map_or(f64::INFINITY, |bytes| bytes.as_f64() / page as f64),
            hz: f64::from(kernel.hz.max(1)),
            cold_page: page as f64 * memory.cold_byte(),
            padding_page: memory.folio.as_ref().map_or(0.0, |folio| page as f64 / folio.value.get()),
            flush_slowdown: slowdown(&memory.flush_factor),
            cached_slowdown: slowdown(memory.cached_flush_factor.as_ref().unwrap_or(&memory.flush_factor)),
        }
    }

    /// The page that a byte is in. Every call asks for several, and a division by a number that the compiler
    /// does not know takes as long as ten additions.
    pub(super) fn page_of(&self, byte: u64) -> u64 {
        byte >> self.page_bits
    }

    /// Pages up to a byte, the last one in part.
    pub(super) fn pages_up_to(&self, byte: u64) -> u64 {
        self.page_of(byte) + u64::from(!self.begins_page(byte))
    }

    pub(super) fn begins_page(&self, byte: u64) -> bool {
        byte & (self.page - 1) == 0
    }
}
