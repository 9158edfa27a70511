//! Layout of the shared memory, and positions in it.

use core::fmt::{Display, Formatter, Result as Written};

use super::record::{CELL_LEN, WHOLE_CELLS};
use crate::EVENT_LEN;

/// First eight bytes of the shared memory.
pub const RING_MAGIC: u64 = u64::from_le_bytes(*b"CAWLRING");
/// Length of the header, in bytes.
pub const RING_HEADER_LEN: usize = 256;
/// Where in the header the number of slots that were ever used stands (u32).
pub const USED_AT: usize = 64;
/// Where in the header the number of dropped events stands (u64).
pub const DROPPED_AT: usize = 128;
/// Where in the header the number of stacks that found no room stands (u64).
pub const STACKS_LOST_AT: usize = 136;
/// Where in the header the number of shared mappings stands that the process can store to (u64).
pub const MAPPED_AT: usize = 144;
/// Where in the header the daemon says how many bytes of memory the chunks may have (u64); 0: not yet.
pub const ROOM_AT: usize = 192;
/// Where in the header the daemon says which calls have their stack copied (u64, [`crate::stack::Wanted`]);
/// 0: not yet.
pub const STACKS_AT: usize = 200;
/// Length of a slot's control block, in bytes: a cache line for each side.
pub const CONTROL_LEN: usize = 128;
/// Where in a control block the thread's tail stands (u64).
pub const TAIL_AT: usize = 0;
/// Where in a control block the daemon's head stands (u64).
pub const HEAD_AT: usize = 64;
/// Chunks that a slot may have at the same time.
pub const CHUNKS: usize = 512;
/// Length of a chunk, in bytes.
pub const CHUNK_LEN: usize = 64 << 10;
/// Cells in a chunk.
pub const CHUNK_CELLS: u32 = (CHUNK_LEN / CELL_LEN) as u32;
/// Most slots that a ring may have.
pub const MAX_SLOTS: u32 = 4096;
/// Most chunks that there may be for all slots.
pub const MAX_CHUNKS: u32 = 1 << 16;
/// Length of a chunk's index in the order.
const INDEX_LEN: u64 = size_of::<u16>() as u64;

/// The proportions of a slot's ring, apart from the constants so that small ones can be tried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Chunks that it may have at the same time.
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

const _: () = assert!(EVENT_LEN.is_multiple_of(CELL_LEN));

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

    /// From memory. Zero, before the first write, is the start.
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

impl Display for RingError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
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
    /// Chunks of all of them.
    pub chunks: u32,
}

impl RingHeader {
    /// Length of the encoded header without what changes.
    pub const LEN: usize = 20;

    /// The header as bytes: magic u64, protocol version u32, slots u32, chunks u32.
    pub fn encode(self) -> [u8; RingHeader::LEN] {
        let mut out = [0; RingHeader::LEN];
        out[0..8].copy_from_slice(&RING_MAGIC.to_le_bytes());
        out[8..12].copy_from_slice(&u32::from(crate::VERSION).to_le_bytes());
        out[12..16].copy_from_slice(&self.slots.to_le_bytes());
        out[16..20].copy_from_slice(&self.chunks.to_le_bytes());
        out
    }

    /// Reads a header; `length` is that of the whole memory, in bytes.
    pub fn decode(bytes: &[u8; RingHeader::LEN], length: u64) -> Result<RingHeader, RingError> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let magic = u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32;
        let (slots, chunks) = (u32_at(12), u32_at(16));
        let fits = (1..=MAX_SLOTS).contains(&slots) && (1..=MAX_CHUNKS).contains(&chunks);
        if magic != RING_MAGIC || u32_at(8) != u32::from(crate::VERSION) || !fits {
            return Err(RingError::Header);
        }
        let header = RingHeader { slots, chunks };
        if length < header.total() { Err(RingError::Length) } else { Ok(header) }
    }

    /// Where a slot's control block is.
    pub const fn control(self, slot: u32) -> u64 {
        RING_HEADER_LEN as u64 + slot as u64 * CONTROL_LEN as u64
    }

    /// Where the index (u16) of a slot's chunk with this sequence number is.
    pub const fn order(self, slot: u32, chunk: u32) -> u64 {
        let place = slot as u64 * CHUNKS as u64 + chunk as u64 % CHUNKS as u64;
        self.control(self.slots) + place * INDEX_LEN
    }

    /// Where the chunk with this index is: at whole pages, also of 64 KiB.
    pub const fn chunk(self, index: u32) -> u64 {
        let chunk = CHUNK_LEN as u64;
        self.order(self.slots, 0).next_multiple_of(chunk) + index as u64 * chunk
    }

    /// Length of the whole memory, in bytes.
    pub const fn total(self) -> u64 {
        self.chunk(self.chunks)
    }
}

/// Cells to be read next: `from..to` in the chunk with this sequence number. Empty when all is read. In a
/// chunk that the thread has left, the records end at the first cell where [`Shape::ends_at`] is true.
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
