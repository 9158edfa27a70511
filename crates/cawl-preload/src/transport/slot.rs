//! Each thread's place for events: a slot, which leads into shared memory (`ring`) or, where there is none,
//! into memory of the process's own that is sent in batches (`socket`).
//!
//! The law of this module: a slot has one writer, its thread, who needs no lock and no atomic
//! read-modify-write. An event is written where it will be read, and counts from the moment the tail is
//! stored.

use crate::base::thread::Thread;
use cawl_wire::ring::{
    CELL_LEN, CHUNK_CELLS, Call, Expected, LONGEST_CELLS, NAME_CELLS, NAME_HEAD, PIECE_HEAD, Position, SHAPE,
    WHOLE_CELLS, end, name_cells, name_head, piece_cells, piece_head, whole,
};
use cawl_wire::{Anchor, EVENT_LEN, Event, Op};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Threads that can record at the same time; further ones drop and count.
pub const SLOTS: usize = 1024;

/// A thread's place. All zero bytes are one that leads nowhere.
#[repr(C, align(64))]
pub struct Slot {
    /// Where the next event goes.
    pub next: AtomicPtr<u8>,
    /// An event begins below this place, so that a whole one fits.
    pub limit: AtomicPtr<u8>,
    /// Where the next event goes as a position of the ring; in batches, the number of events in the lower
    /// half.
    pub position: AtomicU64,
    /// Where the position is made known.
    pub tail: AtomicPtr<AtomicU64>,
    /// When something other than an event is to be done.
    pub due: AtomicU64,
    /// What the last event was about and of what operation, see [`key`]; zero if the next one is told whole.
    pub(super) key: AtomicU64,
    /// When the last event began, and where it ended.
    start: AtomicU64,
    offset: AtomicU64,
    /// What it left in the stream's buffer, and how that stream buffers.
    pending: AtomicU32,
    buffering: AtomicU64,
    /// The thread that it belongs to, or 0.
    pub(super) owner: AtomicU32,
    /// Its number, which is also that of its ring.
    pub index: AtomicU32,
    /// The oldest sequence number whose chunk has not been released.
    pub oldest: AtomicU32,
    /// True if it leads into shared memory.
    pub(super) ringed: AtomicBool,
    /// What `stack` draws calls by.
    pub(super) random: AtomicU64,
    /// What `socket` needs.
    pub(super) buffer: SendBuffer,
}

/// What a hook needs of a slot lies on one line of the cache.
const _: [(); 64] = [(); core::mem::offset_of!(Slot, pending)];

/// What a slot needs to be sent from, see `socket`.
#[repr(C)]
pub struct SendBuffer {
    pub(super) sending: AtomicBool,
    pub(super) base: AtomicPtr<u8>,
    pub(super) capacity: AtomicUsize,
    pub(super) head: AtomicU64,
    pub(super) tail: AtomicU64,
    /// In ns, like the next.
    pub(super) sent_at: AtomicU64,
    pub(super) retry_at: AtomicU64,
}

impl SendBuffer {
    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.tail.load(Relaxed) == self.head.load(Relaxed) && !self.sending.load(Acquire)
    }

    /// In a fork child.
    pub fn forget(&self) {
        self.head.store(0, Relaxed);
        self.tail.store(0, Relaxed);
        self.retry_at.store(0, Relaxed);
        self.sending.store(false, Relaxed);
    }
}

impl Slot {
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
    pub fn has_room(&self) -> bool {
        self.next.load(Relaxed) < self.limit.load(Relaxed)
    }

    /// True if there is room for a name of any length and an event behind it. In a ring only.
    pub fn has_room_for_name(&self) -> bool {
        let cell = Position::unpack(self.position.load(Relaxed)).cell;
        cell.saturating_add(NAME_CELLS + WHOLE_CELLS) <= CHUNK_CELLS
    }

    /// True if there is room for a stack or modules and an event behind it. In a ring only.
    pub fn has_room_for_piece(&self) -> bool {
        let cell = Position::unpack(self.position.load(Relaxed)).cell;
        cell.saturating_add(LONGEST_CELLS + WHOLE_CELLS) <= CHUNK_CELLS
    }

    /// True if it leads into shared memory.
    #[inline(always)]
    pub fn is_ringed(&self) -> bool {
        self.ringed.load(Relaxed)
    }

    /// True if something other than an event is to be done at this time.
    #[inline(always)]
    pub fn is_due(&self, now: u64) -> bool {
        now >= self.due.load(Relaxed)
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

/// True if an event begins only where there is room for its stack before it, so that none is to be made then,
/// where much of the caller's stack is in use.
pub static KEEPS_ROOM: AtomicBool = AtomicBool::new(false);

/// Sets how far events may begin in the slot's chunk: in a ring only. `all`: up to its end.
pub fn limit(slot: &Slot, all: bool) {
    let cell = Position::unpack(slot.position.load(Relaxed)).cell;
    // The file may be named before, and what is no call be told.
    const KEPT: u32 = LONGEST_CELLS + NAME_CELLS + 2 * WHOLE_CELLS;
    let kept = if all || !KEEPS_ROOM.load(Relaxed) { 0 } else { KEPT as usize * CELL_LEN };
    let left = (CHUNK_CELLS.saturating_sub(cell) as usize * CELL_LEN).saturating_sub(kept + EVENT_LEN - 1);
    slot.limit.store(slot.next.load(Relaxed).wrapping_add(left), Relaxed);
}

/// The slot of a thread, if it has one.
#[inline(always)]
pub fn of(thread: &Thread) -> Option<&'static Slot> {
    // SAFETY: null, or an element of the table, which stays; see `table::claim`.
    unsafe { thread.slot.load(Relaxed).cast::<Slot>().as_ref() }
}

/// What an event is about: a file's number and the operation.
#[inline(always)]
pub fn key(file: u64, op: Op) -> u64 {
    file << 8 | op as u64
}

/// Puts an event into a slot; others of its [`key`] (0: none) and, of a stream, its buffering may go on from
/// it. False if there is no room: a name that came before has taken it.
pub fn put_whole(slot: &Slot, event: &Event, key: u64, buffering: u64) -> bool {
    if !slot.has_room() {
        return false;
    }
    let cell = slot.next.load(Relaxed);
    let position = slot.position.load(Relaxed);
    let ringed = slot.ringed.load(Relaxed);
    // SAFETY: `next` is below `limit`, so there is room for a whole event, aligned to eight bytes, which only
    // this thread writes and the daemon reads only once it is published.
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
    true
}

/// Where a name's file record is to be written, in a slot that has room for it.
pub fn name_place(slot: &Slot) -> &'static mut [u8] {
    const MAX: usize = NAME_CELLS as usize * CELL_LEN - NAME_HEAD;
    // SAFETY: the slot has room for the longest name, which only this thread writes and the daemon reads only
    // once it is published; the memory stays mapped as long as this process uses it.
    unsafe { core::slice::from_raw_parts_mut(slot.next.load(Relaxed).wrapping_add(NAME_HEAD), MAX) }
}

/// Puts a name there whose file record, of this length, has been written to its [`name_place`].
pub fn put_name(slot: &Slot, length: u16) {
    let (cell, position) = (slot.next.load(Relaxed), slot.position.load(Relaxed));
    // SAFETY: as in `name_place`.
    unsafe { cell.cast::<[u8; NAME_HEAD]>().write(name_head((position >> 32) as u32, length)) };
    let cells = name_cells(length);
    slot.publish(cell.wrapping_add(cells as usize * CELL_LEN), position + u64::from(cells));
}

/// Where a stack or modules are to be written, in a slot that has room for them.
pub fn piece_place(slot: &Slot) -> &'static mut [u8] {
    const MAX: usize = LONGEST_CELLS as usize * CELL_LEN - PIECE_HEAD;
    // SAFETY: as in `name_place`.
    unsafe { core::slice::from_raw_parts_mut(slot.next.load(Relaxed).wrapping_add(PIECE_HEAD), MAX) }
}

/// Puts a stack or modules there, told by the code, of which so many bytes have been written to the
/// [`piece_place`].
pub fn put_piece(slot: &Slot, code: u8, length: usize) {
    let (cell, position) = (slot.next.load(Relaxed), slot.position.load(Relaxed));
    let head = piece_head((position >> 32) as u32, code, length as u16);
    // SAFETY: as in `name_place`.
    unsafe { cell.cast::<[u8; PIECE_HEAD]>().write(head) };
    let cells = piece_cells(length as u16);
    slot.publish(cell.wrapping_add(cells as usize * CELL_LEN), position + u64::from(cells));
}

/// Ends the chunk of a slot in a ring, so that the next record takes another.
pub fn end_chunk(slot: &Slot) {
    let (cell, position) = (slot.next.load(Relaxed), Position::unpack(slot.position.load(Relaxed)));
    if SHAPE.ends_at(position.cell) {
        return;
    }
    // SAFETY: as in `put_whole`; this record is one cell.
    unsafe { cell.cast::<[u8; CELL_LEN]>().write(end(position.chunk)) };
    slot.limit.store(cell, Relaxed);
    slot.publish(cell, Position { cell: CHUNK_CELLS, ..position }.pack());
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

/// Puts a call into a slot that has room, after one of which [`Slot::goes_on`] is true. False if it has to be
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
    true
}

/// How far ahead of the cell being written memory is asked for, in bytes.
const AHEAD: usize = 512;

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

/// Puts a moment on both clocks among the events, if there is room.
pub fn mark(slot: &Slot, anchor: &Anchor) {
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
