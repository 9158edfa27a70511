//! Each thread's place for events: a slot, which leads into shared memory (`ring`) or, where there is
//! none, into memory of the process's own that is sent in batches (`batches`).
//!
//! The law of this module: a slot has one writer, its thread, who needs no lock and no atomic
//! read-modify-write. An event is written where it will be read, and counts from the moment the tail is
//! stored. What does not fit is counted. The slots lie in memory that the kernel wipes in a copied
//! process: there, the first event finds no room, and the cold path finds out why.

use crate::guard::{Inside, Thread};
use crate::{announce, batches, clock, ring, room, sys, uplink};
use cawl_wire::ring::{CELL_LEN, Call, Chunks, Expected, SHAPE, WHOLE_CELLS, whole};
use cawl_wire::{Anchor, EVENT_LEN, Event, Op};
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
    /// An event begins below this place, so that a whole one fits.
    pub limit: AtomicPtr<u8>,
    /// Where the next event goes as a position of the ring; in batches, the number of events in the lower half.
    pub position: AtomicU64,
    /// Where the position is made known.
    pub tail: AtomicPtr<AtomicU64>,
    /// When something other than an event is to be done.
    pub due: AtomicU64,
    /// What the last event was about and of what operation, see [`key`]; zero if the next one is told whole.
    key: AtomicU64,
    /// When the last event began, and where it ended.
    start: AtomicU64,
    offset: AtomicU64,
    /// What it left in the stream's buffer, and how that stream buffers.
    pending: AtomicU32,
    buffering: AtomicU64,
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

/// What a hook needs of a slot lies on one line of the cache.
const _: [(); 64] = [(); core::mem::offset_of!(Slot, pending)];

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
        // The first event of a thread is told whole.
        self.key.store(0, Relaxed);
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

    /// Makes what has been written, up to `end`, part of what can be read.
    #[inline(always)]
    fn publish(&self, end: *mut u8, position: u64) {
        self.next.store(end, Relaxed);
        self.position.store(position, Relaxed);
        // SAFETY: set by `attach` to a word of the shared memory or of this slot, both of which stay.
        unsafe { (*self.tail.load(Relaxed)).store(position, Release) };
    }

    /// True if there is room for an event of any length.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.next.load(Relaxed) < self.limit.load(Relaxed)
    }

    /// True if the last event was about the same file, told by its number, and of the same operation.
    #[inline(always)]
    pub fn goes_on(&self, key: u64) -> bool {
        self.key.load(Relaxed) == key
    }

    /// True if the last event was about a stream that buffers in the same way.
    #[inline(always)]
    pub fn buffers_as(&self, buffering: u64) -> bool {
        self.buffering.load(Relaxed) == buffering
    }
}

/// What an event is about: a file's number and the operation.
#[inline(always)]
pub fn key(file: u64, op: Op) -> u64 {
    file << 8 | op as u64
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
        if slot.has_room() {
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
    if slot.has_room() {
        return Some(slot);
    }
    let room = if slot.ringed.load(Relaxed) { ring::next_chunk(slot) } else { batches::make_room(slot) };
    room.then_some(slot)
}

/// Puts an event into a slot that [`ready`] gave.
#[inline]
pub fn put(slot: &Slot, event: &Event) {
    put_whole(slot, event, 0, 0);
    finish(slot, event.start.wrapping_add(event.duration));
}

/// The same for an event that others may go on from: those of its [`key`] and, of a stream, its buffering. To be
/// followed by [`finish`], when the event, which is large, is off the stack.
pub fn put_whole(slot: &Slot, event: &Event, key: u64, buffering: u64) {
    let cell = slot.next.load(Relaxed);
    let position = slot.position.load(Relaxed);
    let ringed = slot.ringed.load(Relaxed);
    // SAFETY: `next` is below `limit`, so there is room for a whole event, aligned to eight bytes, which only this
    // thread writes and nobody reads before it is published.
    unsafe { write_whole(cell, ringed, position, &event.encode()) };
    slot.key.store(if ringed { key } else { 0 }, Relaxed);
    if key != 0 {
        let expected = Expected::after(event);
        slot.start.store(expected.start, Relaxed);
        slot.offset.store(expected.offset, Relaxed);
        slot.pending.store(expected.pending, Relaxed);
        slot.buffering.store(buffering, Relaxed);
    }
    slot.publish(cell.wrapping_add(EVENT_LEN), position + if ringed { u64::from(WHOLE_CELLS) } else { 1 });
    ask_for(cell.wrapping_add(AHEAD));
    ask_for(cell.wrapping_add(AHEAD + 64));
}

/// An event as `cawl_wire::ring` has it, or as the socket has.
///
/// # Safety
/// There must be room for it.
#[inline(always)]
unsafe fn write_whole(cell: *mut u8, ringed: bool, position: u64, event: &[u8; EVENT_LEN]) {
    // SAFETY: the caller's promise.
    unsafe {
        if ringed {
            cell.cast::<[u8; EVENT_LEN]>().write(whole((position >> 32) as u32, event));
        } else {
            cell.cast::<[u8; EVENT_LEN]>().write(*event);
        }
    }
}

/// Puts a call into a slot that [`ready`] gave, after one of which [`Slot::goes_on`] is true. False if it has to be
/// told whole.
#[inline(always)]
pub fn put_short(slot: &Slot, call: &Call) -> bool {
    let expected = Expected {
        start: slot.start.load(Relaxed),
        offset: slot.offset.load(Relaxed),
        pending: if call.pending.is_some() { slot.pending.load(Relaxed) } else { 0 },
    };
    let position = slot.position.load(Relaxed);
    let Some(words) = expected.shorten((position >> 32) as u32, call) else { return false };
    let cell = slot.next.load(Relaxed);
    // SAFETY: as in `put_whole`; a short record is shorter.
    unsafe { cell.cast::<[u32; 4]>().write(words) };
    let stream = call.pending.is_some();
    let next = expected.next(call.start, call.requested as u32, stream);
    slot.start.store(next.start, Relaxed);
    if stream {
        slot.pending.store(next.pending, Relaxed);
    } else {
        slot.offset.store(next.offset, Relaxed);
    }
    slot.publish(cell.wrapping_add(CELL_LEN), position + 1);
    ask_for(cell.wrapping_add(AHEAD));
    finish(slot, call.start.wrapping_add(call.duration));
    true
}

/// How far ahead of the cell being written memory is asked for, in bytes.
const AHEAD: usize = 512;

/// An event that ended `now` has been put.
#[inline(always)]
pub fn finish(slot: &Slot, now: u64) {
    if now >= slot.due.load(Relaxed) {
        look_around(slot, now);
    }
}

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
    keep_time(slot, now);
    if !slot.ringed.load(Relaxed) {
        crate::guard::keeping_errno(|| batches::send_if_old(slot));
    }
}

#[inline(never)]
fn keep_time(slot: &Slot, now: u64) {
    let anchor = crate::guard::keeping_errno(clock::anchor);
    let next =
        if anchor.is_none() && slot.ringed.load(Relaxed) { u64::MAX } else { now + clock::span(MARK_EVERY) };
    slot.due.store(next, Relaxed);
    if let Some(anchor) = anchor {
        mark(slot, &anchor);
    }
}

/// Puts a moment on both clocks among the events, if there is room.
fn mark(slot: &Slot, anchor: &Anchor) {
    if !slot.has_room() {
        // The next event makes room, and the mark comes after it.
        slot.due.store(0, Relaxed);
        return;
    }
    let (cell, position) = (slot.next.load(Relaxed), slot.position.load(Relaxed));
    let ringed = slot.ringed.load(Relaxed);
    // SAFETY: as in `put_whole`.
    unsafe { write_whole(cell, ringed, position, &anchor.encode()) };
    slot.publish(cell.wrapping_add(EVENT_LEN), position + if ringed { u64::from(WHOLE_CELLS) } else { 1 });
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
    // The slot of a thread of whose end nobody tells is not used again.
    tell_end();
    Some(place)
}

/// Asks for [`thread_ends`] at the end of the calling thread; false if there can be no such thing.
pub fn tell_end() -> bool {
    let key = KEY.load(Relaxed);
    // The C library keeps the values of its first 32 keys inside the thread's record; beyond that it would allocate.
    // SAFETY: the key was created by `prepare`; its value is not null and otherwise unused.
    key < 32 && unsafe { libc::pthread_setspecific(key, TABLE.load(Relaxed).cast()) } == 0
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

unsafe extern "C" fn thread_ends(_value: *mut c_void) {
    let Some(inside) = crate::guard::enter() else { return };
    let thread = inside.thread();
    announce::stand_up(thread);
    room::end(thread);
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
            slot.key.store(0, Relaxed);
            slot.batch.forget();
            slot.owner.store(0, Relaxed);
        }
    }
    USED.store(0, Relaxed);
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    ring::leave();
}
