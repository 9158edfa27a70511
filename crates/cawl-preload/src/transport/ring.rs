//! Shared memory with the daemon: a ring for each thread, laid out and run by `cawl_wire::ring`.
//!
//! The law of this module: a thread writes only into its own slot, and only into a chunk that the daemon
//! has read or never seen. The memory belongs to one process: a copy of the process unmaps it before it
//! records anything. No descriptor of it stays open, so nothing the program closes can hurt it.

use crate::base::sys;
use crate::transport::slot::Slot;
use cawl_wire::EVENT_LEN;
use cawl_wire::ring::{
    CHUNK_CELLS, CHUNK_LEN, CHUNKS, DROPPED_AT, HEAD_AT, ORDER_AT, Position, RingHeader, TAIL_AT, USED_AT,
};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

/// Threads with a ring of their own at the same time; what others record goes over the socket.
const SLOTS: u32 = 256;
/// Chunks that keep their memory once they have it.
const KEPT: u32 = 4;
/// MADV_POPULATE_WRITE
const POPULATE: usize = 23;
/// A daemon that has so many chunks to read is behind.
const BELL: u32 = 2;

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// The memory while the daemon does not have it yet: no slot leads there.
static MADE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
const HEADER: RingHeader = RingHeader { slots: SLOTS };

/// Makes the shared memory; the descriptor is to be handed to the daemon and closed. None if that is not
/// possible here, or not wise.
pub fn create() -> Option<c_int> {
    let length = HEADER.total() as usize;
    // To grow a file beyond the limit would bring the program a signal.
    if sys::limited(libc::RLIMIT_AS) || sys::limit(libc::RLIMIT_FSIZE) < length as u64 {
        return None;
    }
    let (name, flags) = (c"cawl-ring", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: a NUL-terminated name, and numbers.
    let fd = unsafe { sys::call(libc::SYS_memfd_create, [name.as_ptr() as usize, flags as usize]) };
    let fd = c_int::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let base = map(fd, length);
    if base.is_null() {
        sys::close(fd);
        return None;
    }
    for (place, byte) in HEADER.encode().into_iter().enumerate() {
        // SAFETY: the header lies at the beginning of the mapping, which no other thread knows yet.
        unsafe { base.add(place).write(byte) };
    }
    MADE.store(base, Release);
    Some(fd)
}

/// The daemon has the memory: from now on it is used.
pub fn enter() {
    BASE.store(MADE.swap(core::ptr::null_mut(), AcqRel), Release);
}

fn map(fd: c_int, length: usize) -> *mut u8 {
    // SAFETY: numbers, a descriptor of ours, and a new mapping at an address of the kernel's choice. The
    // seals keep the file as long as the mapping for good.
    unsafe {
        if sys::call(libc::SYS_ftruncate, [fd as usize, length]) != 0 {
            return core::ptr::null_mut();
        }
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        if sys::fcntl(fd, libc::F_ADD_SEALS, seals as usize) != 0 {
            return core::ptr::null_mut();
        }
        // Opened piece by piece: a program that locks all of its memory (mlockall) would get all of this.
        let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize;
        let at = sys::call(libc::SYS_mmap, [0, length, libc::PROT_NONE as usize, flags, fd as usize]);
        if (-4095..0).contains(&at) {
            return core::ptr::null_mut();
        }
        // A core dump of the program is about the program.
        sys::call(libc::SYS_madvise, [at as usize, length, libc::MADV_DONTDUMP as usize]);
        if !open(at as usize, HEADER.chunk(0, 0) as usize) {
            sys::unmap(at as *mut core::ffi::c_void, length);
            return core::ptr::null_mut();
        }
        at as *mut u8
    }
}

/// Makes a part of the mapping usable.
///
/// # Safety
/// The range must lie in the mapping and begin and end with a page.
unsafe fn open(at: usize, length: usize) -> bool {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: the caller's promise.
    unsafe { sys::call(libc::SYS_mprotect, [at, length, protection]) == 0 }
}

/// Lets go of the shared memory: in a copy of the process, or where the daemon did not take it.
pub fn leave() {
    for place in [&BASE, &MADE] {
        let base = place.swap(core::ptr::null_mut(), AcqRel);
        if !base.is_null() {
            // SAFETY: the mapping made by `create`; the caller has seen to it that no slot points into it.
            unsafe { sys::unmap(base.cast(), HEADER.total() as usize) };
        }
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
    // SAFETY: callers ask for atomic words inside the header and the control blocks, which are aligned and
    // stay mapped as long as this process uses them.
    Some(unsafe { &*base.add(at as usize).cast::<T>() })
}

/// Tells the daemon the number of dropped events, even if the program is killed before it could say so.
pub fn tell_dropped(count: u64) {
    if let Some(place) = word::<AtomicU64>(DROPPED_AT as u64) {
        place.store(count, Relaxed);
    }
}

/// Points a slot, new to its thread, to its ring.
pub fn attach(slot: &Slot, index: u32) -> bool {
    if index >= SLOTS {
        return false;
    }
    let Some(tail) = word::<AtomicU64>(HEADER.control(index) + TAIL_AT as u64) else { return false };
    slot.tail.store(core::ptr::from_ref(tail).cast_mut(), Relaxed);
    if slot.position.load(Relaxed) == 0 {
        // Nothing is begun: the first event takes the first chunk.
        slot.position.store(Position { chunk: 0, cell: CHUNK_CELLS }.pack(), Relaxed);
        slot.index.store(index, Relaxed);
        slot.touched.store(0, Relaxed);
        if let Some(used) = word::<AtomicU32>(USED_AT as u64) {
            used.fetch_max(index + 1, AcqRel);
        }
    }
    slot.due.store(0, Relaxed);
    true
}

/// What came of a look for another chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The slot leads there.
    Chunk,
    /// The same, and the daemon has much to read: it is to be woken.
    Behind,
    /// There is none until the daemon has read something.
    Full,
}

/// The slot's chunk is full: go on in another.
#[cold]
pub fn next_chunk(slot: &Slot) -> Next {
    match try_next_chunk(slot) {
        false => Next::Full,
        true if is_behind(slot) => Next::Behind,
        true => Next::Chunk,
    }
}

/// How far the daemon has read a slot.
pub fn head(slot: &Slot) -> u64 {
    let at = HEADER.control(slot.index.load(Relaxed)) + HEAD_AT as u64;
    word::<AtomicU64>(at).map_or(0, |head| head.load(Acquire))
}

/// True if the daemon has much to read.
fn is_behind(slot: &Slot) -> bool {
    slot.chunks().waiting(Position::unpack(slot.position.load(Relaxed)).chunk) >= BELL
}

#[inline(never)]
fn try_next_chunk(slot: &Slot) -> bool {
    let index = slot.index.load(Relaxed);
    let control = HEADER.control(index);
    let Some(head) = word::<AtomicU64>(control + HEAD_AT as u64) else { return false };
    let head = Position::unpack(head.load(Acquire));
    let next = Position::unpack(slot.position.load(Relaxed)).chunk.wrapping_add(1).max(1);
    let order = |chunk: u32| {
        let at = control + ORDER_AT as u64 + u64::from(chunk % CHUNKS as u32);
        word::<AtomicU8>(at).map_or(0, |entry| entry.load(Relaxed))
    };
    let mut chunks = slot.chunks();
    let taken = chunks.take(next, head, order);
    let base = BASE.load(Relaxed);
    let touched = slot.touched.load(Relaxed);
    let Some(chunk) = taken else {
        slot.set_chunks(chunks);
        return false;
    };
    if u32::from(chunk) >= touched {
        let at = base as usize + HEADER.chunk(index, u32::from(chunk)) as usize;
        // SAFETY: a chunk is whole pages of the mapping. They are populated at once where a program has
        // filled a chunk already and will fill this one: that costs a third of page after page, and a
        // refusal is harmless.
        unsafe {
            if !open(at, CHUNK_LEN) {
                return false;
            }
            if chunk > 0 {
                sys::call(libc::SYS_madvise, [at, CHUNK_LEN, POPULATE]);
            }
        }
        slot.touched.store(u32::from(chunk) + 1, Relaxed);
    }
    slot.set_chunks(chunks);
    if let Some(entry) = word::<AtomicU8>(control + ORDER_AT as u64 + (next as usize % CHUNKS) as u64) {
        entry.store(chunk, Relaxed);
    }
    if touched > KEPT && u32::from(chunk) < KEPT && chunks.none_above(KEPT) {
        // A backlog is over: its memory goes back.
        slot.touched.store(KEPT, Relaxed);
        let at = HEADER.chunk(index, KEPT) as usize;
        let length = (touched - KEPT) as usize * CHUNK_LEN;
        // SAFETY: whole pages of the mapping, of chunks that are not in use.
        unsafe {
            let at = base as usize + at;
            sys::call(libc::SYS_madvise, [at, length, libc::MADV_REMOVE as usize]);
        }
    }
    let first = base.wrapping_add(HEADER.chunk(index, u32::from(chunk)) as usize);
    slot.next.store(first, Relaxed);
    slot.limit.store(first.wrapping_add(CHUNK_LEN - EVENT_LEN + 1), Relaxed);
    slot.position.store(Position { chunk: next, cell: 0 }.pack(), Relaxed);
    true
}
