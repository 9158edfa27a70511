//! The chunks of all rings of the process: any thread takes one when it needs it.
//!
//! The law of this module: **who takes a chunk has it alone**, so that nobody maps, uses or empties it
//! beside; no thread waits for another. Addresses and memory are taken as they are needed, at most
//! [`CHUNKS`] in all, and given back: they count against the limits of the program (RLIMIT_AS,
//! RLIMIT_MEMLOCK, its control group). No descriptor is kept: an empty mremap of a page that stays makes
//! another mapping of the same file, which, unlike a new one, is not locked where the program locks what
//! comes (mlockall).

use crate::base::sys;
use cawl_wire::ring::{CHUNK_LEN, RingHeader};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// Chunks of the process: 40 MiB. With all else that the tracer maps that is less than 64 MiB.
pub const CHUNKS: u32 = 640;
/// Chunks that are mapped together.
const GROUP: u32 = 4;
const GROUPS: usize = (CHUNKS / GROUP) as usize;
const WORDS: usize = (CHUNKS / u64::BITS) as usize;
/// The part of an address space that is limited which the rings may take: one in so many bytes.
const SHARE: u64 = 128;
/// Chunks that are emptied by one call at most.
const AT_ONCE: u32 = 8;
/// MADV_POPULATE_WRITE
const POPULATE: usize = 23;

/// A bit for each chunk that nobody has.
static FREE: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// A bit for each chunk that has memory, changed by who has it.
static FILLED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// Where the chunks of each group are mapped, or null. The first is part of the mapping that stays.
static PLACES: [AtomicPtr<u8>; GROUPS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; GROUPS];

/// Length of the mapping that stays: what is in front of the chunks, and the first of them.
pub const fn first_length(header: RingHeader) -> usize {
    header.chunk(GROUP) as usize
}

/// Begins with the mapping that stays, of this length.
pub fn begin(header: RingHeader, base: *mut u8) {
    PLACES[0].store(base.wrapping_add(header.chunk(0) as usize), Release);
    for (number, word) in (0..).zip(&FREE) {
        let here = header.chunks.saturating_sub(number * u64::BITS).min(u64::BITS);
        word.store(u64::MAX.checked_shr(u64::BITS - here).unwrap_or(0), Release);
    }
}

/// Forgets everything, in a copy of the process, which has none of the mappings.
pub fn forget() {
    FREE.iter().chain(&FILLED).for_each(|word| word.store(0, Relaxed));
    PLACES.iter().for_each(|place| place.store(core::ptr::null_mut(), Relaxed));
}

fn count(of: impl Fn(u64, u64) -> u64) -> u32 {
    let words = FREE.iter().zip(&FILLED);
    words.map(|(free, filled)| of(free.load(Relaxed), filled.load(Relaxed)).count_ones()).sum()
}

/// Chunks with memory.
fn filled() -> u32 {
    count(|_, filled| filled)
}

/// Chunks that are in use.
pub fn in_use() -> u32 {
    count(|free, filled| filled & !free)
}

const fn bit(chunk: u32) -> u64 {
    1 << (chunk % u64::BITS)
}

fn word(words: &[AtomicU64; WORDS], chunk: u32) -> Option<&AtomicU64> {
    words.get((chunk / u64::BITS) as usize)
}

/// Nobody has the chunk any more.
pub fn release(chunk: u32) {
    if let Some(free) = word(&FREE, chunk) {
        free.fetch_or(bit(chunk), Release);
    }
}

/// Takes a free chunk, the lowest of those that `wanted` leaves of a word of [`FILLED`].
fn pick(wanted: impl Fn(u64) -> u64) -> Option<u32> {
    for (number, (free, filled)) in (0..).zip(FREE.iter().zip(&FILLED)) {
        loop {
            let found = wanted(filled.load(Relaxed)) & free.load(Relaxed);
            let lowest = found & found.wrapping_neg();
            if found == 0 {
                break;
            }
            if free.fetch_and(!lowest, Acquire) & lowest != 0 {
                return Some(number * u64::BITS + lowest.trailing_zeros());
            }
        }
    }
    None
}

/// Takes a chunk for one that has begun `begun` others: its index, and where it is. None if there is none
/// without memory for more than `room` chunks.
pub fn take(room: u32, begun: u32) -> Option<(u32, *mut u8)> {
    let chunk =
        pick(|filled| filled).or_else(|| (filled() < room).then(|| pick(|filled| !filled)).flatten())?;
    let Some(place) = place(chunk) else {
        release(chunk);
        return None;
    };
    let is_new =
        word(&FILLED, chunk).is_some_and(|word| word.fetch_or(bit(chunk), Relaxed) & bit(chunk) == 0);
    if is_new && begun > 0 {
        // A thread that has filled a chunk will fill this one: at once that costs a third of page after page,
        // and a refusal is harmless.
        // SAFETY: whole pages of a mapping of ours.
        unsafe { sys::call(libc::SYS_madvise, [place as usize, CHUNK_LEN, POPULATE]) };
    }
    Some((chunk, place))
}

/// Where a chunk is, which the caller has.
fn place(chunk: u32) -> Option<*mut u8> {
    let group = PLACES.get((chunk / GROUP) as usize)?;
    let mut at = group.load(Acquire);
    if at.is_null() {
        at = map(chunk / GROUP)?;
        // Another thread has another chunk of the group.
        if let Err(other) = group.compare_exchange(core::ptr::null_mut(), at, AcqRel, Acquire) {
            // SAFETY: just mapped, and told nobody.
            unsafe { sys::unmap(at.cast(), GROUP as usize * CHUNK_LEN) };
            at = other;
        }
    }
    Some(at.wrapping_add((chunk % GROUP) as usize * CHUNK_LEN))
}

#[cold]
#[inline(never)]
fn map(group: u32) -> Option<*mut u8> {
    let length = GROUP as usize * CHUNK_LEN;
    let first = PLACES[0].load(Relaxed) as usize;
    if first == 0 || sys::limit(libc::RLIMIT_AS) / SHARE < u64::from(group + 1) * length as u64 {
        return None;
    }
    let page = sys::page();
    // The last page of the first group, and what lies between it and this one in the file.
    let (last, between) = (first + length - page, page + (group as usize - 1) * length);
    // SAFETY: a page that stays mapped; a new mapping at an address of the kernel's choice, of which the
    // front is not needed.
    unsafe {
        // What the program has locked (mlockall), its copies would be, too.
        sys::call(libc::SYS_munlock, [last, page]);
        let flags = libc::MREMAP_MAYMOVE as usize;
        let at = sys::call(libc::SYS_mremap, [last, 0, between + length, flags]);
        if (-4095..0).contains(&at) {
            return None;
        }
        sys::unmap(at as *mut core::ffi::c_void, between);
        Some((at as usize + between) as *mut u8)
    }
}

/// Where many free chunks have memory, some of it goes back. `room`: chunks that may have some; `kept`: free
/// ones that keep it.
pub fn give_back(room: u32, kept: u32) {
    let (spare, filled) = (count(|free, filled| free & filled), filled());
    let excess = spare.saturating_sub(kept).max(filled.saturating_sub(room)).min(spare).min(AT_ONCE);
    if excess > 0 {
        (0..excess).for_each(|_| empty_highest());
        unmap_highest();
    }
}

/// Gives back the memory of the highest free chunk that has some.
#[cold]
#[inline(never)]
fn empty_highest() {
    let highest = |(number, (free, filled)): (usize, (&AtomicU64, &AtomicU64))| {
        let highest = (free.load(Relaxed) & filled.load(Relaxed)).checked_ilog2()?;
        Some(number as u32 * u64::BITS + highest)
    };
    let Some(chunk) = FREE.iter().zip(&FILLED).enumerate().rev().find_map(highest) else { return };
    let (Some(free), Some(filled)) = (word(&FREE, chunk), word(&FILLED, chunk)) else { return };
    if free.fetch_and(!bit(chunk), Acquire) & bit(chunk) == 0 {
        // Another thread was faster.
        return;
    }
    if let Some(group) = PLACES.get((chunk / GROUP) as usize) {
        let at = group.load(Acquire) as usize + (chunk % GROUP) as usize * CHUNK_LEN;
        // SAFETY: whole pages of a mapping of ours, of a chunk that nobody else has.
        if unsafe { sys::call(libc::SYS_madvise, [at, CHUNK_LEN, libc::MADV_REMOVE as usize]) } == 0 {
            filled.fetch_and(!bit(chunk), Relaxed);
        }
    }
    release(chunk);
}

/// Gives back the addresses of the highest groups, down to the first that has a chunk in use or with memory.
#[cold]
#[inline(never)]
fn unmap_highest() {
    for (number, place) in PLACES.iter().enumerate().skip(1).rev() {
        if place.load(Relaxed).is_null() {
            continue;
        }
        let first = number as u32 * GROUP;
        let all = ((1 << GROUP) - 1) << (first % u64::BITS);
        let (Some(free), Some(filled)) = (word(&FREE, first), word(&FILLED, first)) else { return };
        let take = |free: u64| (free & all == all && filled.load(Relaxed) & all == 0).then_some(free & !all);
        if free.fetch_update(Acquire, Relaxed, take).is_err() {
            return;
        }
        let at = place.load(Acquire) as usize;
        // SAFETY: a mapping of ours, all of whose chunks this thread has; nothing where it was unmapped
        // meanwhile.
        if unsafe { sys::call(libc::SYS_munmap, [at, GROUP as usize * CHUNK_LEN]) } == 0 {
            place.store(core::ptr::null_mut(), Release);
        }
        free.fetch_or(all, Release);
    }
}
