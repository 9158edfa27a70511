//! Shared memory with the daemon: a ring for each thread, laid out and run by `cawl_wire::ring`.
//!
//! The law of this module: a thread writes only into its own slot, and only into a chunk that it has
//! (`pool`). The memory belongs to one process: a copy of the process has none of the mappings. No
//! descriptor of it stays open, so nothing the program closes can hurt it.

use crate::base::sys;
use crate::transport::pool;
use crate::transport::slot::{self, Slot};
use cawl_wire::ring::{
    Begun, CHUNK_CELLS, CHUNK_LEN, DROPPED_AT, HEAD_AT, MAPPED_AT, Position, ROOM_AT, RingHeader, SHAPE,
    STACKS_AT, STACKS_LOST_AT, TAIL_AT, USED_AT,
};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

/// Threads with a ring of their own at the same time; what others record goes over the socket.
const SLOTS: u32 = 256;
/// Fewest chunks that are worth it.
const FEWEST: u32 = 16;
/// Chunks that may have memory before the daemon has said how many: 2 MiB, the part of a small control group
/// that a process may have.
const UNTOLD: u64 = 32;
/// Chunks that keep their memory once they have it, beside one for each thread.
const KEPT: u32 = 8;
/// A daemon that has so many chunks to read, beside one for each thread, is behind.
const BELL: u32 = 8;

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The memory while the daemon does not have it yet: no slot leads there.
static MADE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// As it is in the memory.
static CHUNKS: AtomicU32 = AtomicU32::new(0);
/// As it is in the memory, if there is one. A copy of the process has the mappings, too.
static MAPPED: AtomicU64 = AtomicU64::new(0);

fn header() -> RingHeader {
    RingHeader { slots: SLOTS, chunks: CHUNKS.load(Relaxed) }
}

/// True if the program can do without the addresses, and the private memory, that the tracer may take: more
/// is left of its limits.
pub fn has_addresses() -> bool {
    const SPARE: u64 = 64 << 20;
    let page = sys::page() as u64;
    // Which words of /proc/self/statm have a limit: all pages, and those of data and stacks.
    [(libc::RLIMIT_AS, 0), (libc::RLIMIT_DATA, 5)].into_iter().all(|(resource, word)| {
        let limit = sys::limit(resource);
        limit == libc::RLIM_INFINITY
            || pages_of(word).is_some_and(|pages| pages.saturating_mul(page).saturating_add(SPARE) <= limit)
    })
}

/// A word of /proc/self/statm.
#[cold]
#[inline(never)]
fn pages_of(word: usize) -> Option<u64> {
    let mut text = [0u8; 96];
    let length = sys::read_file(c"/proc/self/statm", &mut text);
    text.get(..length)?.split(|byte| *byte == b' ').nth(word).and_then(sys::decimal)
}

/// Where the shared memory is mapped, if it is.
pub fn base() -> Option<usize> {
    Some(BASE.load(Relaxed) as usize).filter(|base| *base != 0)
}

/// Makes the shared memory; the descriptor is to be handed to the daemon and closed. None if that is not
/// possible here, or not wise.
pub fn create() -> Option<c_int> {
    // To make a file longer than the limit would bring the program a signal.
    let most = sys::limit(libc::RLIMIT_FSIZE);
    let before = RingHeader { slots: SLOTS, chunks: 0 }.total();
    let chunks = (most.saturating_sub(before) / CHUNK_LEN as u64).min(pool::CHUNKS.into()) as u32;
    if chunks < FEWEST || !has_addresses() {
        return None;
    }
    CHUNKS.store(chunks, Relaxed);
    let (name, flags) = (c"cawl-ring", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: a NUL-terminated name, and numbers.
    let fd = unsafe { sys::call(libc::SYS_memfd_create, [name.as_ptr() as usize, flags as usize]) };
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let base = map(fd);
    if base.is_null() {
        sys::close(fd);
        return None;
    }
    for (place, byte) in header().encode().into_iter().enumerate() {
        // SAFETY: the header lies at the beginning of the mapping, which no other thread knows yet.
        unsafe { base.add(place).write(byte) };
    }
    pool::begin(header(), base);
    MADE.store(base, Release);
    Some(fd)
}

/// The daemon has the memory: from now on it is used.
pub fn enter() {
    BASE.store(MADE.swap(core::ptr::null_mut(), AcqRel), Release);
    tell_mapped(0);
}

fn map(fd: c_int) -> *mut u8 {
    let length = pool::first_length(header());
    // SAFETY: numbers, a descriptor of ours, and a new mapping at an address of the kernel's choice. The
    // seals keep the file as long as the mappings for good.
    unsafe {
        if sys::call(libc::SYS_ftruncate, [fd as usize, header().total() as usize]) != 0 {
            return core::ptr::null_mut();
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if sys::fcntl(fd, libc::F_ADD_SEALS, seals as usize) != 0 {
            return core::ptr::null_mut();
        }
        let (both, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        let at = sys::call(libc::SYS_mmap, [0, length, both as usize, flags as usize, fd as usize]);
        if (-4095..0).contains(&at) {
            return core::ptr::null_mut();
        }
        // A core dump of the program is about the program, a huge page is more memory than a ring needs. Both
        // may be refused, and all hold for copies of the mapping.
        for advice in [libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
            sys::call(libc::SYS_madvise, [at as usize, length, advice as usize]);
        }
        if sys::call(libc::SYS_madvise, [at as usize, length, libc::MADV_DONTFORK as usize]) != 0 {
            sys::unmap(at as *mut core::ffi::c_void, length);
            return core::ptr::null_mut();
        }
        at as *mut u8
    }
}

/// In a copy of the process: the memory is not there.
pub fn forget() {
    BASE.store(core::ptr::null_mut(), Release);
    MADE.store(core::ptr::null_mut(), Release);
    pool::forget();
}

/// Lets go of memory that the daemon did not take.
pub fn leave() {
    let base = MADE.swap(core::ptr::null_mut(), AcqRel);
    if !base.is_null() {
        pool::forget();
        // SAFETY: the mapping made by `create`, into which no slot points.
        unsafe { sys::unmap(base.cast(), pool::first_length(header())) };
    }
}

/// True if this process has one.
#[inline]
pub fn exists() -> bool {
    !BASE.load(Relaxed).is_null()
}

/// A word of the shared memory, or None if there is none.
fn word<T>(at: u64) -> Option<&'static T> {
    let base = BASE.load(Acquire);
    if base.is_null() {
        return None;
    }
    // SAFETY: callers ask for atomic words in front of the chunks, which are aligned and stay mapped as long
    // as this process uses them.
    Some(unsafe { &*base.add(at as usize).cast::<T>() })
}

/// Tells the daemon the number of dropped events, even if the program is killed before it could say so.
pub fn tell_dropped(count: u64) {
    if let Some(place) = word::<AtomicU64>(DROPPED_AT as u64) {
        place.store(count, Relaxed);
    }
}

/// Tells the daemon the number of stacks that found no room.
pub fn tell_lost_stacks(count: u64) {
    if let Some(place) = word::<AtomicU64>(STACKS_LOST_AT as u64) {
        place.store(count, Relaxed);
    }
}

/// Tells the daemon that there are so many more mappings that the program can store to, or fewer: of one that is
/// killed it knows that it may have stored.
#[cold]
pub fn tell_mapped(more: i64) {
    let count = MAPPED.fetch_add(more as u64, Relaxed).wrapping_add(more as u64);
    if let Some(place) = word::<AtomicU64>(MAPPED_AT as u64) {
        place.store(count, Relaxed);
    }
}

/// Which stacks the daemon wants; 0: it has not said so yet.
pub fn wanted_stacks() -> u64 {
    word::<AtomicU64>(STACKS_AT as u64).map_or(0, |word| word.load(Relaxed))
}

/// Points a slot, new to its thread, to its ring.
pub fn attach(slot: &Slot, index: u32) -> bool {
    if index >= SLOTS {
        return false;
    }
    let Some(tail) = word::<AtomicU64>(header().control(index) + TAIL_AT as u64) else { return false };
    slot.tail.store(core::ptr::from_ref(tail).cast_mut(), Relaxed);
    // Nothing is begun: the first event takes the first chunk.
    slot.position.store(Position { chunk: 0, cell: CHUNK_CELLS }.pack(), Relaxed);
    slot.index.store(index, Relaxed);
    slot.oldest.store(Begun::START.oldest, Relaxed);
    if let Some(used) = word::<AtomicU32>(USED_AT as u64) {
        used.fetch_max(index + 1, AcqRel);
    }
    slot.due.store(0, Relaxed);
    true
}

/// Slots that were ever used.
fn used() -> u32 {
    word::<AtomicU32>(USED_AT as u64).map_or(0, |used| used.load(Relaxed))
}

/// How far the daemon has read a slot.
pub fn head(slot: &Slot) -> u64 {
    let at = header().control(slot.index.load(Relaxed)) + HEAD_AT as u64;
    word::<AtomicU64>(at).map_or(0, |head| head.load(Acquire))
}

/// The place in the order for a slot's chunk with this sequence number.
fn order(slot: &Slot, chunk: u32) -> Option<&'static AtomicU16> {
    word(header().order(slot.index.load(Relaxed), chunk))
}

/// Releases the chunks of a slot that the daemon has read. For anyone: each is released by one thread.
#[inline(never)]
pub fn release_read(slot: &Slot) {
    let at = header().control(slot.index.load(Relaxed)) + TAIL_AT as u64;
    let Some(tail) = word::<AtomicU64>(at) else { return };
    // The order of what came before the tail is seen after it.
    let next = Position::unpack(tail.load(Acquire)).chunk.wrapping_add(1);
    let head = Position::unpack(head(slot));
    loop {
        let oldest = slot.oldest.load(Acquire);
        if !(Begun { oldest, next }).is_oldest_read(head) {
            return;
        }
        let Some(chunk) = order(slot, oldest).map(|chunk| chunk.load(Relaxed)) else { return };
        // The order is not written again at this place before the oldest is another.
        if slot.oldest.compare_exchange(oldest, oldest.wrapping_add(1), AcqRel, Acquire).is_ok() {
            pool::release(chunk.into());
        }
    }
}

/// The slot's chunk is full: go on in another. False if there is none until the daemon has read something.
#[cold]
#[inline(never)]
pub fn next_chunk(slot: &Slot) -> bool {
    release_read(slot);
    let next = Position::unpack(slot.position.load(Relaxed)).chunk.wrapping_add(1).max(1);
    let begun = Begun { oldest: slot.oldest.load(Acquire), next };
    let Some(place) = order(slot, next).filter(|_| begun.may_begin(SHAPE)) else { return false };
    let room = room();
    let Some((chunk, first)) = pool::take(room, next - 1) else { return false };
    place.store(chunk as u16, Relaxed);
    pool::give_back(room, KEPT + used());
    slot.next.store(first, Relaxed);
    slot.position.store(Position { chunk: next, cell: 0 }.pack(), Relaxed);
    slot::limit(slot, false);
    true
}

/// Chunks that may have memory, as the daemon says.
fn room() -> u32 {
    let told = word::<AtomicU64>(ROOM_AT as u64).map_or(0, |room| room.load(Relaxed));
    let chunks = if told == 0 { UNTOLD } else { told / CHUNK_LEN as u64 };
    chunks.clamp(1, pool::CHUNKS.into()) as u32
}

/// True if more than half of the room is in use, which may have been read.
pub fn is_crowded() -> bool {
    pool::in_use() > room() / 2
}

/// True if the daemon has much to read.
pub fn is_behind() -> bool {
    let in_use = pool::in_use();
    in_use >= BELL + used() || is_crowded()
}
