//! Shared memory between one process and the daemon: a ring of cells for each thread.
//!
//! The law of this module: **each word has one writer.** The thread writes cells, order and tail of its
//! slot; the daemon writes its head; nobody ever waits for a word to be taken back. The daemon believes
//! nothing it reads here that it has not checked.
//!
//! # Layout
//!
//! All numbers are little-endian. The first page is the [`Header`](RingHeader); then follows for each slot
//! a control block of [`CONTROL_LEN`] bytes; then, from a page boundary, for each slot [`CHUNKS`] chunks
//! of [`CHUNK_LEN`] bytes, that is [`CHUNK_CELLS`] cells of [`CELL_LEN`] bytes. A call takes one cell or
//! [`WHOLE_CELLS`]: `ring/record.rs` has the records.
//!
//! # Protocol
//!
//! A position is a chunk's sequence number (upper half, from 1) and a cell in it (lower half). The thread
//! fills a chunk record by record and stores the position behind the last complete one as its tail (release).
//! A record begins only where a whole one would fit. Behind that the chunk is at its end: the thread takes any
//! chunk whose sequence number is below the daemon's head, notes its index in the order at the place of the new
//! sequence number, and goes on there. So as few chunks are used as the daemon lags behind. Each record carries
//! its chunk's sequence number in its first four bytes, by which the daemon recognizes one that is not what the
//! tail promised.

mod record;

use crate::{EVENT_LEN, Event};
use core::sync::atomic::{Ordering, fence};
pub use record::{CELL_LEN, Call, Expander, Expected, SHORT, Several, WHOLE_CELLS, stamp, whole};

/// First eight bytes of the shared memory.
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"CAWLRING");
/// Length of the header, in bytes.
pub const RING_HEADER_LEN: usize = 4096;
/// Where in the header the number of slots that were ever used stands (u32).
pub const USED_AT: usize = 64;
/// Where in the header the number of dropped events stands (u64).
pub const DROPPED_AT: usize = 128;
/// Length of a slot's control block, in bytes: a cache line for each side, and one for the order.
pub const CONTROL_LEN: usize = 256;
/// Where in a control block the thread's tail stands (u64).
pub const TAIL_AT: usize = 0;
/// Where in a control block the order stands: an index of a chunk for each sequence number, a byte each.
pub const ORDER_AT: usize = 64;
/// Where in a control block the daemon's head stands (u64).
pub const HEAD_AT: usize = 192;
/// Chunks of a slot.
pub const CHUNKS: usize = 128;
/// Length of a chunk, in bytes.
pub const CHUNK_LEN: usize = 256 << 10;
/// Cells in a chunk.
pub const CHUNK_CELLS: u32 = (CHUNK_LEN / CELL_LEN) as u32;
/// Most slots that a ring may have.
pub const MAX_SLOTS: u32 = 4096;

/// The proportions of a slot's ring, apart from the constants so that small ones can be tried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Chunks, at most 128.
    pub chunks: u32,
    /// Cells in each.
    pub cells: u32,
    /// Cells of the longest record.
    pub longest: u32,
}

impl Shape {
    /// True if no record begins at this cell any more.
    pub const fn ends_at(self, cell: u32) -> bool {
        cell.saturating_add(self.longest) > self.cells
    }
}

/// The one in use.
pub const SHAPE: Shape = Shape { chunks: CHUNKS as u32, cells: CHUNK_CELLS, longest: WHOLE_CELLS };

const _: () = assert!(CHUNKS <= HEAD_AT - ORDER_AT && EVENT_LEN.is_multiple_of(CELL_LEN));

/// Where the next cell goes, or the next unread one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The chunk's sequence number.
    pub chunk: u32,
    /// Cells of it that are done.
    pub cell: u32,
}

impl Position {
    /// Where every ring begins.
    pub const START: Position = Position { chunk: 1, cell: 0 };

    /// As it stands in memory.
    #[inline]
    pub const fn pack(self) -> u64 {
        (self.chunk as u64) << 32 | self.cell as u64
    }

    /// From memory. Zero, where nobody has written yet, is the start.
    #[inline]
    pub const fn unpack(word: u64) -> Position {
        if word == 0 {
            return Position::START;
        }
        Position { chunk: (word >> 32) as u32, cell: word as u32 }
    }
}

/// What is wrong with shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingError {
    /// It does not begin as a ring of this version does.
    Header,
    /// It is shorter than it says.
    Length,
    /// A tail that cannot be true for this head.
    Tail,
    /// An order that names a chunk that does not exist.
    Order,
    /// A cell that is not of the chunk it stands in.
    Stamp,
}

impl core::fmt::Display for RingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            RingError::Header => "the shared memory is not a ring of this version",
            RingError::Length => "the shared memory is shorter than it says",
            RingError::Tail => "the ring's tail makes no sense",
            RingError::Order => "the ring names a chunk that does not exist",
            RingError::Stamp => "a cell of the ring is not what it should be",
        })
    }
}

impl core::error::Error for RingError {}

/// Start of the shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHeader {
    /// How many threads can have a ring at the same time.
    pub slots: u32,
}

impl RingHeader {
    /// Length of the encoded header without what changes.
    pub const LEN: usize = 16;

    /// The header as bytes: magic u64, protocol version u32, slots u32.
    pub fn encode(self) -> [u8; RingHeader::LEN] {
        let mut out = [0; RingHeader::LEN];
        out[0..8].copy_from_slice(&RING_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&u32::from(crate::VERSION).to_le_bytes());
        out[12..16].copy_from_slice(&self.slots.to_le_bytes());
        out
    }

    /// Reads a header; `length` is that of the whole memory, in bytes.
    pub fn decode(bytes: &[u8; RingHeader::LEN], length: u64) -> Result<RingHeader, RingError> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let magic = u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32;
        let slots = u32_at(12);
        if magic != RING_MAGIC || u32_at(8) != u32::from(crate::VERSION) || !(1..=MAX_SLOTS).contains(&slots)
        {
            return Err(RingError::Header);
        }
        let header = RingHeader { slots };
        if length < header.total() { Err(RingError::Length) } else { Ok(header) }
    }

    /// Where a slot's control block is.
    pub const fn control(self, slot: u32) -> u64 {
        RING_HEADER_LEN as u64 + slot as u64 * CONTROL_LEN as u64
    }

    /// Where a chunk of a slot is.
    pub const fn chunk(self, slot: u32, index: u32) -> u64 {
        let first = self.control(self.slots).next_multiple_of(4096);
        first + (slot as u64 * CHUNKS as u64 + index as u64) * CHUNK_LEN as u64
    }

    /// Length of the whole memory, in bytes.
    pub const fn total(self) -> u64 {
        self.chunk(self.slots, 0)
    }
}

/// Cells to be read next: `from..to` in the chunk with this sequence number. Empty when all is read. In a chunk
/// that the thread has left, the records end at the first cell where [`Shape::ends_at`] is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The chunk's sequence number.
    pub chunk: u32,
    /// First unread cell.
    pub from: u32,
    /// Behind the last one.
    pub to: u32,
}

impl Unread {
    /// The head once the records up to `cell` have been read.
    pub const fn after(self, cell: u32, shape: Shape) -> Position {
        if shape.ends_at(cell) {
            Position { chunk: self.chunk.wrapping_add(1), cell: 0 }
        } else {
            Position { chunk: self.chunk, cell }
        }
    }
}

/// What to read next, by the daemon's own head and the tail as found.
pub fn unread(head: Position, tail: Position, shape: Shape) -> Result<Unread, RingError> {
    let ahead = tail.chunk.wrapping_sub(head.chunk);
    let to = if ahead == 0 { tail.cell } else { shape.cells };
    // A thread that filled a chunk may not have begun the next one.
    let waits = shape.ends_at(tail.cell) && tail.chunk.wrapping_add(1) == head.chunk && head.cell == 0;
    if waits && tail.cell <= shape.cells {
        return Ok(Unread { chunk: head.chunk, from: 0, to: 0 });
    }
    if ahead >= shape.chunks || tail.cell > shape.cells || head.cell > to {
        return Err(RingError::Tail);
    }
    Ok(Unread { chunk: head.chunk, from: head.cell, to })
}

/// The shared memory as the daemon sees it.
pub trait Memory {
    /// Reads all of `out` from this place; false if that is not possible.
    fn read(&self, at: u64, out: &mut [u8]) -> bool;
    /// Writes a word; a failure shows when the ring stays full.
    fn write(&self, at: u64, word: u64);
}

/// Who takes what a ring holds.
pub trait Taker {
    /// How many more events there is room for; as long as there is for one, there is for calls that add up.
    fn room(&self) -> usize;
    /// True if of calls that go on from this one it is enough to know how many there are.
    fn adds_up(&self, event: &Event) -> bool;
    /// An event, or an anchor; there is room for it.
    fn event(&mut self, event: &[u8; EVENT_LEN]);
    /// Calls that add up; there is room for them.
    fn several(&mut self, several: &Several);
}

/// The daemon's side of one slot.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    slot: u32,
    head: Position,
    /// Sequence number and index of the chunk being read.
    chunk: (u32, u8),
    expander: Expander,
}

impl Follower {
    /// At the start of this slot's ring.
    pub const fn new(slot: u32) -> Follower {
        Follower { slot, head: Position::START, chunk: (0, 0), expander: Expander::new() }
    }

    /// True if nothing before `tail` is unread.
    pub fn is_at(&self, tail: Position) -> bool {
        self.head == tail || matches!(unread(self.head, tail, SHAPE), Ok(unread) if unread.from == unread.to)
    }

    /// Reads unread records, as many as there are or as fit into `cells`, which must have room for a whole one, and
    /// gives them to `taker`; returns how many cells that were. `tail` must have been read before. Nothing that was
    /// given counts after an error.
    pub fn read(
        &mut self,
        memory: &impl Memory,
        header: RingHeader,
        tail: Position,
        cells: &mut [[u8; CELL_LEN]],
        taker: &mut impl Taker,
    ) -> Result<u32, RingError> {
        // What the thread wrote before its tail is not read before it.
        fence(Ordering::Acquire);
        let unread = unread(self.head, tail, SHAPE)?;
        // Each cell makes one event at most.
        let useful =
            if self.expander.adds_up() { usize::MAX } else { taker.room().max(WHOLE_CELLS as usize) };
        let count = ((unread.to - unread.from) as usize).min(cells.len()).min(useful);
        let Some(cells) = cells.get_mut(..count).filter(|cells| !cells.is_empty()) else { return Ok(0) };
        if self.chunk.0 != unread.chunk {
            let at = header.control(self.slot) + (ORDER_AT + unread.chunk as usize % CHUNKS) as u64;
            let mut index = [0];
            if !memory.read(at, &mut index) {
                return Err(RingError::Length);
            }
            if usize::from(index[0]) >= CHUNKS {
                return Err(RingError::Order);
            }
            self.chunk = (unread.chunk, index[0]);
        }
        let at = header.chunk(self.slot, u32::from(self.chunk.1)) + u64::from(unread.from) * CELL_LEN as u64;
        if !memory.read(at, cells.as_flattened_mut()) {
            return Err(RingError::Length);
        }
        let to = unread.from + count as u32;
        let mut cell = unread.from;
        let mut left = &*cells;
        while let Some(record) = left.first() {
            if SHAPE.ends_at(cell) || taker.room() == 0 {
                break;
            }
            if self.expander.adds_up() {
                // Those that begin where a record may.
                let most = left.len().min((SHAPE.cells - SHAPE.longest + 1 - cell) as usize);
                if let Some(several) =
                    left.get(..most).and_then(|cells| self.expander.several(cells, unread.chunk))
                {
                    taker.several(&several);
                    cell += several.calls as u32;
                    left = left.get(several.calls as usize..).unwrap_or_default();
                    continue;
                }
            }
            let word =
                |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
            if stamp(word(0)) != stamp(unread.chunk) {
                return Err(RingError::Stamp);
            }
            let mut event = [0; EVENT_LEN];
            let length = if word(0) & SHORT != 0 {
                if !self.expander.short(word(4), word(8), word(12), &mut event) {
                    return Err(RingError::Stamp);
                }
                1
            } else {
                let Some(record) = left.as_flattened().first_chunk() else {
                    // It is cut off where the room ends, or where the tail says that a record does.
                    if to == unread.to {
                        return Err(RingError::Stamp);
                    }
                    break;
                };
                self.expander.whole(record, &mut event, |event| taker.adds_up(event));
                WHOLE_CELLS
            };
            taker.event(&event);
            cell += length;
            left = left.get(length as usize..).unwrap_or_default();
        }
        self.head = unread.after(cell, SHAPE);
        Ok(cell - unread.from)
    }

    /// Gives the thread back what has been read.
    pub fn release(&self, memory: &impl Memory, header: RingHeader) {
        // What was read is not read again after the thread may write there.
        fence(Ordering::Release);
        memory.write(header.control(self.slot) + HEAD_AT as u64, self.head.pack());
    }
}

/// The thread's side: which chunks are free. One writer, so plain fields.
#[derive(Clone, Copy, Debug)]
pub struct Chunks {
    /// A bit for each free chunk.
    pub free: u128,
    /// The oldest sequence number whose chunk has not been seen to be read.
    pub oldest: u32,
}

impl Chunks {
    /// All chunks free, nothing begun.
    pub const fn new(shape: Shape) -> Chunks {
        Chunks { free: u128::MAX >> (128 - shape.chunks), oldest: 1 }
    }

    /// Takes a chunk for the sequence number `next`; `order` tells which chunk had which number. None if
    /// the daemon has read none that could be used again.
    pub fn take(&mut self, next: u32, head: Position, order: impl Fn(u32) -> u8) -> Option<u8> {
        // A head beyond what was begun is nonsense; believing it would only free what is free.
        while self.oldest != next && head.chunk.wrapping_sub(self.oldest) as i32 > 0 {
            let index = order(self.oldest);
            self.free |= 1 << (index % 128);
            self.oldest = self.oldest.wrapping_add(1);
        }
        let index = self.free.trailing_zeros();
        if index >= u128::BITS {
            return None;
        }
        self.free &= !(1 << index);
        Some(index as u8)
    }

    /// Chunks that are filled and not read.
    pub const fn waiting(&self, next: u32) -> u32 {
        next.wrapping_sub(self.oldest)
    }

    /// The chunks not in use that have this index or a higher one are all those there are.
    pub const fn none_above(&self, index: u32) -> bool {
        self.free >> index == u128::MAX >> index
    }
}

/// A moment on both clocks, for events that carry ticks of the processor's counter. It travels as a
/// cell among the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anchor {
    /// The processor's counter.
    pub ticks: u64,
    /// CLOCK_MONOTONIC at that moment, in ns.
    pub nanos: u64,
}

impl Anchor {
    /// What stands in a cell in place of the operation's code.
    pub const CODE: u8 = 255;
    /// Where it stands.
    pub const CODE_AT: usize = 88;

    /// The anchor as a cell.
    pub fn encode(&self) -> [u8; EVENT_LEN] {
        let mut out = [0; EVENT_LEN];
        out[0..8].copy_from_slice(&self.ticks.to_le_bytes());
        out[8..16].copy_from_slice(&self.nanos.to_le_bytes());
        out[Anchor::CODE_AT] = Anchor::CODE;
        out
    }

    /// Reads a cell; None if it is an event.
    #[inline]
    pub fn decode(cell: &[u8; EVENT_LEN]) -> Option<Anchor> {
        if cell[Anchor::CODE_AT] != Anchor::CODE {
            return None;
        }
        let (ticks, rest) = cell.split_first_chunk()?;
        let nanos = rest.first_chunk()?;
        Some(Anchor { ticks: u64::from_le_bytes(*ticks), nanos: u64::from_le_bytes(*nanos) })
    }
}
