//! Each thread's place for events: a slot, which leads into shared memory (`ring`) or, where there is
//! none, into memory of the process's own that is sent in batches (`batches`).
//!
//! The law of this module: a slot has one writer, its thread, who needs no lock and no atomic
//! read-modify-write. An event is written where it will be read, and counts from the moment the tail is
//! stored. What does not fit is counted. The slots lie in memory that the kernel wipes in a copied
//! process: there, the first event finds no room, and the cold path finds out why.

use crate::guard::{Inside, Thread};
use crate::{batches, clock, ring, sys, uplink};
use cawl_wire::ring::{Chunks, SHAPE, STAMP_AT};
use cawl_wire::{Anchor, EVENT_LEN, Event};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Threads that can record at the same time; further ones drop and count.
pub const SLOTS: usize = 1024;
/// How often, in ns, a moment on both clocks goes among the events.
pub const MARK_EVERY: u64 = 10_000_000;

/// A thread's place. All zero bytes are one that leads nowhere.
#[repr(C, align(64))]
pub struct Slot {
    /// Where the next event goes.
    pub next: AtomicPtr<u8>,
    /// Where the room ends.
    pub limit: AtomicPtr<u8>,
    /// The same as a position of the ring; in batches, the number of events in the lower half.
    pub position: AtomicU64,
    /// Where the position is made known.
    pub tail: AtomicPtr<AtomicU64>,
    /// When something other than an event is to be done.
    pub due: AtomicU64,
    owner: AtomicU32,
    /// Its number, which is also that of its ring.
    pub index: AtomicU32,
    free: [AtomicU64; 2],
    oldest: AtomicU32,
    /// Chunks below this index have memory.
    pub touched: AtomicU32,
    /// True if it leads into shared memory.
    ringed: AtomicBool,
    /// What `batches` needs.
    pub batch: batches::Batch,
}

/// The slots, in one mapping that lasts as long as the process.
static TABLE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Slots that were ever in use are all below this index.
static USED: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// True if the kernel wipes the slots in a copy of the process.
static WIPED: AtomicBool = AtomicBool::new(false);

/// Every slot that was ever in use.
pub fn slots() -> &'static [Slot] {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return &[];
    }
    // SAFETY: the mapping made by `prepare` holds SLOTS slots, for good, and zero bytes are valid ones.
    unsafe { core::slice::from_raw_parts(table, USED.load(Acquire).min(SLOTS)) }
}

/// True if shared memory can be used: a copy of the process will know that it is one.
pub fn may_share() -> bool {
    WIPED.load(Relaxed)
}

impl Slot {
    /// The free chunks of its ring.
    pub fn chunks(&self) -> Chunks {
        let [low, high] = self.free.each_ref().map(|half| u128::from(half.load(Relaxed)));
        Chunks { free: high << 64 | low, oldest: self.oldest.load(Relaxed) }
    }

    /// Puts them back.
    pub fn set_chunks(&self, chunks: Chunks) {
        self.free[0].store(chunks.free as u64, Relaxed);
        self.free[1].store((chunks.free >> 64) as u64, Relaxed);
        self.oldest.store(chunks.oldest, Relaxed);
    }

    fn attach(&self, index: usize) -> bool {
        if self.ringed.load(Relaxed) {
            return true;
        }
        self.index.store(index as u32, Relaxed);
        if ring::exists() && self.batch.is_empty() {
            self.position.store(0, Relaxed);
            self.set_chunks(Chunks::new(SHAPE));
            if ring::attach(self, index as u32) {
                self.ringed.store(true, Relaxed);
                return true;
            }
        }
        batches::attach(self, index)
    }

    /// Makes a cell that has been written part of what can be read.
    #[inline(always)]
    fn publish(&self, cell: *mut u8) {
        let position = self.position.load(Relaxed);
        // SAFETY: the cell lies in the slot's room; its last four bytes are the stamp's.
        unsafe { cell.add(STAMP_AT).cast::<u32>().write((position >> 32) as u32) };
        self.next.store(cell.wrapping_add(EVENT_LEN), Relaxed);
        self.position.store(position + 1, Relaxed);
        // SAFETY: set by `attach` to a word of the shared memory or of this slot, both of which stay.
        unsafe { (*self.tail.load(Relaxed)).store(position + 1, Release) };
    }
}

/// The calling thread's slot, with room for an event; None if there is none, which has been counted.
/// To be called before anything about the event is looked up: in a copied process this is the moment
/// in which the parent's knowledge is forgotten.
#[inline(always)]
pub fn ready(inside: &Inside) -> Option<&'static Slot> {
    let slot = inside.thread().slot.load(Relaxed);
    if !slot.is_null() {
        // SAFETY: the pointer is only ever set to an element of the table.
        let slot = unsafe { &*slot };
        if slot.next.load(Relaxed) != slot.limit.load(Relaxed) {
            return Some(slot);
        }
    }
    make_room(inside)
}

#[cold]
#[inline(never)]
fn make_room(inside: &Inside) -> Option<&'static Slot> {
    // A vfork child has nothing to open or close. It may use its parent's place, since its parent waits.
    if !uplink::is_ours() && !uplink::is_open() {
        return None;
    }
    // Making room asks the C library for the time, and to remember the thread's slot.
    let room = crate::guard::keeping_errno(|| find_room(inside.thread()));
    if room.is_none() {
        uplink::count_dropped(1);
    }
    room
}

fn find_room(thread: &Thread) -> Option<&'static Slot> {
    let mut slot = thread.slot.load(Relaxed);
    if slot.is_null() {
        uplink::prepare();
        slot = claim(thread)?;
    }
    // SAFETY: the pointer is only ever set to an element of the table.
    let slot = unsafe { &*slot };
    if slot.next.load(Relaxed) != slot.limit.load(Relaxed) {
        return Some(slot);
    }
    let room = if slot.ringed.load(Relaxed) { ring::next_chunk(slot) } else { batches::make_room(slot) };
    room.then_some(slot)
}

/// Puts an event into a slot that [`ready`] gave.
#[inline(always)]
pub fn put(slot: &Slot, event: &Event) {
    put_about(slot, event, (event.kind as u32) << 8);
}

/// The same, with the kind of the file as it stands in the record.
#[inline(always)]
pub fn put_about(slot: &Slot, event: &Event, kind: u32) {
    let cell = slot.next.load(Relaxed);
    // SAFETY: `next` is short of `limit`, so there is room for a cell, aligned to eight bytes, which only
    // this thread writes and nobody reads before it is published. The layout is that of `Event::encode`.
    unsafe {
        let words = cell.cast::<u64>();
        words.write(event.start);
        words.add(1).write(event.duration);
        words.add(2).write(event.dev);
        words.add(3).write(event.ino);
        words.add(4).write(event.offset);
        words.add(5).write(event.requested);
        words.add(6).write(event.returned as u64);
        let halves = cell.add(56).cast::<u32>();
        halves.write(event.pid);
        halves.add(1).write(event.tid);
        halves.add(2).write(event.fd as u32);
        halves.add(3).write(event.flags);
        halves.add(4).write(event.pending_before);
        halves.add(5).write(event.pending_after);
        halves.add(6).write(event.buffer);
        halves.add(7).write(event.aux);
        let what = event.op as u32 | kind | u32::from(event.errno) << 16;
        halves.add(8).write(what);
    }
    slot.publish(cell);
    // A cell is a line and a half: both lines that one may begin or end in.
    ask_for(cell.wrapping_add(AHEAD));
    ask_for(cell.wrapping_add(AHEAD + 64));
    let end = event.start.wrapping_add(event.duration);
    if end >= slot.due.load(Relaxed) {
        look_around(slot, end);
    }
}

/// How far ahead of the cell being written memory is asked for, in bytes.
const AHEAD: usize = 12 * EVENT_LEN;

/// Asks for a line of memory that will be written soon: the daemon, on another processor, has read it.
#[inline(always)]
fn ask_for(place: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and never faults; processors without it ignore it.
    unsafe {
        core::arch::asm!("prefetchw [{0}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Puts an event into the calling thread's slot.
#[inline]
pub fn push(inside: &Inside, event: &Event) {
    if let Some(slot) = ready(inside) {
        put(slot, event);
    }
}

/// What is to be done now and then.
#[cold]
#[inline(never)]
fn look_around(slot: &Slot, now: u64) {
    if !uplink::is_ours() {
        return;
    }
    let ringed = slot.ringed.load(Relaxed);
    let anchor = crate::guard::keeping_errno(clock::anchor);
    let next = if anchor.is_none() && ringed { u64::MAX } else { now + clock::span(MARK_EVERY) };
    slot.due.store(next, Relaxed);
    if let Some(anchor) = anchor {
        mark(slot, &anchor);
    }
    if !ringed {
        crate::guard::keeping_errno(|| batches::send_if_old(slot));
    }
}

/// Puts a moment on both clocks among the events, if there is room.
fn mark(slot: &Slot, anchor: &Anchor) {
    let cell = slot.next.load(Relaxed);
    if cell == slot.limit.load(Relaxed) {
        // The next event makes room, and the mark comes after it.
        slot.due.store(0, Relaxed);
        return;
    }
    // SAFETY: as in `put`.
    unsafe { cell.cast::<[u8; EVENT_LEN]>().write(anchor.encode()) };
    slot.publish(cell);
}

#[cold]
fn claim(thread: &Thread) -> Option<*mut Slot> {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return None;
    }
    let tid = thread.tid();
    // SAFETY: as in `slots`.
    let all = unsafe { core::slice::from_raw_parts(table, SLOTS) };
    let free = |slot: &Slot| slot.owner.load(Relaxed) == 0;
    let (index, slot) = all
        .iter()
        .enumerate()
        .find(|(_, slot)| free(slot) && slot.owner.compare_exchange(0, tid, AcqRel, Relaxed).is_ok())?;
    USED.fetch_max(index + 1, AcqRel);
    if !slot.attach(index) {
        slot.owner.store(0, Release);
        return None;
    }
    let place = table.wrapping_add(index);
    thread.slot.store(place, Relaxed);
    let key = KEY.load(Relaxed);
    // The C library keeps the values of its first 32 keys inside the thread's record; beyond that it
    // would allocate, and the slot of a thread that ended is then not used again.
    if key < 32 {
        // SAFETY: the key was created by `prepare`; its value is a pointer to memory that stays.
        unsafe { libc::pthread_setspecific(key, place.cast()) };
    }
    Some(place)
}

/// Makes the table, and sees to it that a thread's slot is free again when the thread ends. False if
/// nothing can be recorded. Constructor only.
pub fn prepare() -> bool {
    let length = size_of::<Slot>() * SLOTS;
    let table = sys::map(length);
    if table.is_null() {
        return false;
    }
    // SAFETY: the mapping just made, as a whole; a refusal is taken account of.
    let wiped = unsafe {
        sys::call(libc::SYS_madvise, [table as usize, length, libc::MADV_WIPEONFORK as usize, 0, 0, 0])
    };
    WIPED.store(wiped == 0, Relaxed);
    TABLE.store(table.cast(), Release);
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is a valid place; the destructor has the signature asked for.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Relaxed);
    }
    true
}

unsafe extern "C" fn thread_ends(_slot: *mut c_void) {
    let Some(inside) = crate::guard::enter() else { return };
    let thread = inside.thread();
    let slot = thread.slot.swap(core::ptr::null_mut(), Relaxed);
    // SAFETY: null, or an element of the table.
    let Some(slot) = (unsafe { slot.as_ref() }) else { return };
    if !uplink::is_ours() {
        return;
    }
    if !slot.ringed.load(Relaxed) {
        batches::flush(slot);
    }
    slot.owner.store(0, Release);
}

/// Sends the calling thread's events, where they wait to be sent.
#[cold]
pub fn flush(inside: &Inside) {
    // SAFETY: null, or an element of the table.
    if let Some(slot) = unsafe { inside.thread().slot.load(Relaxed).as_ref() }
        && uplink::is_ours()
        && !slot.ringed.load(Relaxed)
    {
        batches::flush(slot);
    }
}

/// True if anything was recorded in this session.
pub fn any() -> bool {
    slots().iter().any(|slot| !slot.next.load(Relaxed).is_null())
}

/// Sends every thread's events, waiting for room at most `milliseconds` in all. What then remains is
/// counted as dropped. What lies in shared memory is in the daemon's hands already.
#[cold]
pub fn drain(milliseconds: u64) {
    let deadline = sys::nanoseconds() + milliseconds * 1_000_000;
    for slot in slots().iter().filter(|slot| !slot.ringed.load(Relaxed)) {
        batches::drain(slot, deadline);
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
            slot.batch.forget();
            slot.owner.store(0, Relaxed);
        }
    }
    USED.store(0, Relaxed);
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    ring::leave();
}
