//! The slots of all threads: which thread has which, and room in them.
//!
//! The slots lie in memory that the kernel wipes in a copied process: there, the first event finds no room,
//! and the cold path finds out why.

use crate::base::thread::{Thread, tell_end};
use crate::base::{hot, sys};
use crate::transport::patience::{self, Wait, lossless};
use crate::transport::slot::{self, SLOTS, Slot};
use crate::transport::{link, pending_messages, ring, socket};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

/// One mapping that lasts as long as the process.
#[repr(C)]
struct Table {
    slots: [Slot; SLOTS],
    /// Zero in a copy of the process, but not in a vfork child, until it has forgotten its parent's session.
    witness: AtomicU32,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(core::ptr::null_mut());
/// Slots that were ever in use are all below this index.
static USED: AtomicUsize = AtomicUsize::new(0);
/// True if the end of every thread with a slot will be told.
static TOLD: AtomicBool = AtomicBool::new(true);
/// True if the kernel wipes the table in a copy of the process.
static WIPED: AtomicBool = AtomicBool::new(false);

fn table() -> Option<&'static Table> {
    // SAFETY: null, or the mapping made by `prepare`, which stays for good, and of which zero bytes are
    // valid.
    unsafe { TABLE.load(Acquire).as_ref() }
}

/// Every slot that was ever in use.
fn slots() -> &'static [Slot] {
    table().and_then(|table| table.slots.get(..USED.load(Acquire))).unwrap_or(&[])
}

/// True if shared memory can be used: a copy of the process will know that it is one.
pub fn may_share() -> bool {
    WIPED.load(Relaxed)
}

/// True in a copy of the process that has not forgotten its parent's session.
pub fn is_wiped() -> bool {
    may_share() && table().is_some_and(|table| table.witness.load(Relaxed) == 0)
}

/// Makes the table. False if nothing can be recorded. Constructor only.
pub fn prepare() -> bool {
    let length = size_of::<Table>();
    let place = sys::map(length);
    // SAFETY: the mapping just made, as a whole; a refusal is taken account of.
    let wiped =
        unsafe { sys::call(libc::SYS_madvise, [place as usize, length, libc::MADV_WIPEONFORK as usize]) };
    WIPED.store(wiped == 0, Relaxed);
    TABLE.store(place.cast(), Release);
    let Some(table) = table() else { return false };
    table.witness.store(1, Relaxed);
    true
}

/// The thread's slot with room for an event, and one taken for it if it has none. None if there is no room,
/// where the user would rather wait after a wait.
pub fn find_room(thread: &Thread) -> Option<&'static Slot> {
    let slot = match slot::of(thread) {
        Some(slot) => slot,
        None => claim(thread)?,
    };
    if slot.has_room() {
        return Some(slot);
    }
    let room = if slot.is_ringed() { make_room_in_ring(slot) } else { socket::make_room(slot) };
    room.then_some(slot)
}

/// The slot's chunk is full: go on in another. False if there is none.
#[cold]
fn next_chunk(slot: &Slot) -> bool {
    if take_chunk(slot) {
        if ring::is_behind() {
            link::ring_bell();
        }
        return true;
    }
    link::ring_bell();
    if !lossless() {
        return false;
    }
    // What any thread gives back may be this one's.
    let progress = || slots().iter().fold(0, |sum: u64, slot| sum.wrapping_add(ring::head(slot)));
    let mut wait = Wait::begin(progress());
    while wait.goes_on(progress()) {
        sys::poll(-1, 0, 1);
        if take_chunk(slot) {
            return true;
        }
        if !link::is_daemon_there() {
            return false;
        }
    }
    false
}

/// Another chunk for a slot, which may be one that another thread has left to be read.
fn take_chunk(slot: &Slot) -> bool {
    ring::next_chunk(slot) || {
        release_read();
        ring::next_chunk(slot)
    }
}

/// Gives back what the daemon has read of all threads.
#[inline(never)]
fn release_read() {
    slots().iter().filter(|slot| slot.ringed.load(Acquire)).for_each(ring::release_read);
}

/// Makes room for a name of any length and an event behind it, if possible.
pub fn make_room_for_name(thread: &Thread) {
    let slot = slot::of(thread).or_else(|| claim(thread));
    match slot.filter(|slot| slot.is_ringed()) {
        Some(slot) if slot.has_room_for_name() => {}
        Some(slot) => {
            slot::end_chunk(slot);
            next_chunk(slot);
        }
        None => pending_messages::make_room(),
    }
}

/// In a slot whose events begin no further.
fn make_room_in_ring(slot: &Slot) -> bool {
    if slot::KEEPS_ROOM.load(Relaxed) {
        // Where room is scarce, that which stacks would have is for events.
        slot::limit(slot, is_crowded());
        if slot.has_room() {
            return true;
        }
        slot::end_chunk(slot);
    }
    next_chunk(slot)
}

/// True if room is scarce, also after what was read has been given back.
#[cold]
#[inline(never)]
fn is_crowded() -> bool {
    if ring::is_crowded() {
        release_read();
    }
    ring::is_crowded()
}

/// Begins another chunk, if room is not scarce.
pub fn begin_chunk(slot: &Slot) -> bool {
    if !slot.is_ringed() || is_crowded() {
        return false;
    }
    slot::end_chunk(slot);
    next_chunk(slot)
}

#[cold]
fn claim(thread: &Thread) -> Option<&'static Slot> {
    let all = &table()?.slots;
    let tid = thread.tid();
    let take = |slot: &Slot, from| slot.owner.compare_exchange(from, tid, AcqRel, Relaxed).is_ok();
    // A thread of which nobody said that it ended may have had a slot (`tell_end`).
    let is_left = |owner: u32| !TOLD.load(Relaxed) && !sys::is_thread(hot::pid(), owner);
    let (index, slot) = all.iter().enumerate().find(|(_, slot)| {
        let owner = slot.owner.load(Relaxed);
        (owner == 0 || is_left(owner)) && take(slot, owner)
    })?;
    USED.fetch_max(index + 1, AcqRel);
    if !attach(slot, index) {
        slot.owner.store(0, Release);
        return None;
    }
    thread.slot.store(core::ptr::from_ref(slot).cast_mut().cast(), Relaxed);
    if !tell_end() {
        TOLD.store(false, Relaxed);
    }
    Some(slot)
}

fn attach(slot: &Slot, index: usize) -> bool {
    // The first event of a thread is told whole.
    slot.key.store(0, Relaxed);
    if slot.ringed.load(Relaxed) {
        return true;
    }
    slot.index.store(index as u32, Relaxed);
    if ring::exists() && slot.buffer.is_empty() && ring::attach(slot, index as u32) {
        slot.ringed.store(true, Release);
        return true;
    }
    socket::attach(slot, index)
}

/// The thread of a slot has ended, or is about to fork: sends what waits to be sent.
pub fn flush(slot: &Slot) {
    if !slot.is_ringed() {
        socket::flush(slot);
    }
}

/// Another thread may have the slot.
pub fn release(slot: &Slot) {
    slot.owner.store(0, Release);
}

/// True if anything was recorded in this session.
pub fn any() -> bool {
    slots().iter().any(|slot| !slot.next.load(Relaxed).is_null())
}

/// True if something waits to be sent.
pub fn has_unsent() -> bool {
    slots().iter().any(|slot| !slot.is_ringed() && !slot.buffer.is_empty())
}

/// Sends every thread's events, waiting for room at most `milliseconds` in all. What then remains is
/// counted as dropped. What lies in shared memory is in the daemon's hands already.
#[cold]
pub fn drain(milliseconds: u64) {
    let deadline = sys::nanoseconds() + milliseconds * 1_000_000;
    for slot in slots().iter().filter(|slot| !slot.is_ringed()) {
        socket::drain(slot, deadline);
    }
}

/// In a fork child: the parent's events are the parent's.
pub fn forget(thread: &Thread) {
    for slot in slots() {
        // The kernel has wiped them; this is for the case that it could not.
        if !slot.next.load(Relaxed).is_null() || slot.owner.load(Relaxed) != 0 {
            slot.next.store(core::ptr::null_mut(), Relaxed);
            slot.limit.store(core::ptr::null_mut(), Relaxed);
            slot.position.store(0, Relaxed);
            slot.ringed.store(false, Relaxed);
            slot.key.store(0, Relaxed);
            slot.buffer.forget();
            slot.owner.store(0, Relaxed);
        }
    }
    USED.store(0, Relaxed);
    if let Some(table) = table() {
        table.witness.store(1, Relaxed);
    }
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    ring::forget();
    patience::forget();
}
