//! Records of a ring: a call whole, or, where it continues the call before it, as a delta record of one cell.
//!
//! The law of this module: **what a delta record leaves out follows from the records before it**, by the same
//! code on both sides ([`Expected`]). Any other call is written whole.
//!
//! # Records
//!
//! Each begins with a word of four bytes: the chunk's sequence number, and in its highest bit [`SHORT`] or
//! zero.
//!
//! - *whole*, [`WHOLE_CELLS`] cells: the word; then bytes 88 to 92 of the event as [`Event::encode`] has it;
//!   then its bytes 0 to 88. An [`Anchor`](crate::Anchor) stands there in the same way.
//! - *name*, as many cells as it needs, [`NAME_CELLS`] at most: the word; [`NAME`], a zero byte and the
//!   length of what follows, two bytes; a [`FileRecord`] as in a message. It stands before the first call on
//!   the file by the thread that opened it, or after a rename.
//! - *stack* and *modules*, as many cells as they need, [`LONGEST_CELLS`] at most: the word; [`STACK`] or
//!   [`MODULES`], a zero byte and the length of what follows, two bytes; then a [`StackRecord`], or lines
//!   of /proc/PID/maps. A stack stands before the call that it is of.
//!   There are none unless stacks are wanted.
//! - *end*, one cell: the word; [`END`] and zeros. No record follows in this chunk: a name or stack did not fit.
//! - *short* (a delta record), one cell: the word; ticks (or ns) from the start of the call before to the
//!   start of this one; the duration in the same unit; bytes requested. Four bytes each. Returned was what
//!   was requested; all else is as in the record before, with the place where that one ended.

use crate::event::OP_AT;
use crate::stack::StackRecord;
use crate::{EVENT_LEN, Event, FileRecord, UNKNOWN_OFFSET};

/// Length of a cell, in bytes.
pub const CELL_LEN: usize = 16;
/// Cells of a whole record.
pub const WHOLE_CELLS: u32 = (EVENT_LEN / CELL_LEN) as u32;
/// In the first word of a short record.
pub const SHORT: u32 = 1 << 31;
/// In place of an operation's code in the first cell: a name.
pub const NAME: u8 = 253;
/// In place of an operation's code: the end of the chunk.
pub const END: u8 = 252;
/// In place of an operation's code: a copied stack.
pub const STACK: u8 = 251;
/// In place of an operation's code: what is mapped as code.
pub const MODULES: u8 = 250;
/// Where that stands in a cell.
const RECORD_CODE_AT: usize = 4;
/// Bytes in front of a name's file record.
pub const NAME_HEAD: usize = 8;
/// Cells of the longest name.
pub const NAME_CELLS: u32 = (NAME_HEAD + FileRecord::MAX).div_ceil(CELL_LEN) as u32;
/// Bytes in front of a stack or of modules.
pub const PIECE_HEAD: usize = 8;
/// Cells of the longest record: a stack.
pub const LONGEST_CELLS: u32 = piece_cells(StackRecord::MAX as u16);

const _: () = assert!(StackRecord::MAX <= u16::MAX as usize && NAME_CELLS <= LONGEST_CELLS);

/// The first word of a whole record in the chunk with this sequence number.
#[inline(always)]
pub const fn stamp(chunk: u32) -> u32 {
    chunk & !SHORT
}

/// A whole record.
pub fn whole(chunk: u32, encoded: &[u8; EVENT_LEN]) -> [u8; EVENT_LEN] {
    let mut out = [0; EVENT_LEN];
    out[0..4].copy_from_slice(&stamp(chunk).to_le_bytes());
    out[4..8].copy_from_slice(&encoded[OP_AT..OP_AT + 4]);
    out[8..].copy_from_slice(&encoded[..OP_AT]);
    out
}

/// A whole record's event or anchor, encoded; its first word has been looked at.
pub(super) fn encoded(record: &[u8; EVENT_LEN]) -> [u8; EVENT_LEN] {
    // In a trace the last bytes are zero.
    let mut out = [0; EVENT_LEN];
    out[..OP_AT].copy_from_slice(&record[8..]);
    out[OP_AT..OP_AT + 4].copy_from_slice(&record[4..8]);
    out
}

/// The head of a name whose file record has this length.
pub fn name_head(chunk: u32, length: u16) -> [u8; NAME_HEAD] {
    let [a, b, c, d] = stamp(chunk).to_le_bytes();
    let [low, high] = length.to_le_bytes();
    [a, b, c, d, NAME, 0, low, high]
}

/// Cells of a name whose file record has this length.
pub const fn name_cells(length: u16) -> u32 {
    (NAME_HEAD + length as usize).div_ceil(CELL_LEN) as u32
}

/// The head of a record with code [`STACK`] or [`MODULES`] and a body of this length.
pub const fn piece_head(chunk: u32, code: u8, length: u16) -> [u8; PIECE_HEAD] {
    let [a, b, c, d] = stamp(chunk).to_le_bytes();
    let [low, high] = length.to_le_bytes();
    [a, b, c, d, code, 0, low, high]
}

/// Cells of such a record.
pub const fn piece_cells(length: u16) -> u32 {
    (PIECE_HEAD + length as usize).div_ceil(CELL_LEN) as u32
}

/// The cell that ends a chunk.
pub fn end(chunk: u32) -> [u8; CELL_LEN] {
    let mut out = [0; CELL_LEN];
    out[..RECORD_CODE_AT].copy_from_slice(&stamp(chunk).to_le_bytes());
    out[RECORD_CODE_AT] = END;
    out
}

/// What a record is whose first word is not that of a short one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An event or an anchor.
    Whole,
    /// A name with a file record of this length.
    Name(u16),
    /// A stack or modules, told by the code, with a body of this length.
    Piece(u8, u16),
    /// The end of the chunk.
    End,
}

/// What begins with this cell.
#[inline]
pub(super) const fn form(cell: &[u8; CELL_LEN]) -> Form {
    match cell[RECORD_CODE_AT] {
        NAME => Form::Name(u16::from_le_bytes([cell[6], cell[7]])),
        code @ (STACK | MODULES) => Form::Piece(code, u16::from_le_bytes([cell[6], cell[7]])),
        END => Form::End,
        _ => Form::Whole,
    }
}

/// What a short record tells or implies about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it began ([`Event::start`]).
    pub start: u64,
    /// How long it took ([`Event::duration`]).
    pub duration: u64,
    /// Where in the file its first byte went, in bytes ([`Event::offset`]).
    pub offset: u64,
    /// Bytes that the program asked for ([`Event::requested`]).
    pub requested: u64,
    /// What it returned ([`Event::returned`]).
    pub returned: i64,
    /// Bytes waiting in the stream's buffer before the call and after it, if the calls are a stream's.
    pub pending: Option<(u32, u32)>,
}

/// What is expected of a call after the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// When the call before began.
    pub start: u64,
    /// Where it ended.
    pub offset: u64,
    /// What it left in the stream's buffer, in bytes.
    pub pending: u32,
}

impl Expected {
    /// After a call that was told whole.
    pub const fn after(event: &Event) -> Expected {
        let gone = match event.flushed() {
            Some(flushed) => flushed,
            None if event.returned > 0 => event.returned as u64,
            None => 0,
        };
        let offset = moved(event.offset, gone);
        Expected { start: event.start, offset, pending: event.pending_after }
    }

    /// After a call that was told short.
    #[inline(always)]
    pub const fn next(self, start: u64, requested: u32, stream: bool) -> Expected {
        if stream {
            Expected { start, offset: self.offset, pending: self.pending.wrapping_add(requested) }
        } else {
            Expected { start, offset: moved(self.offset, requested as u64), pending: self.pending }
        }
    }

    /// The call as a short record in a chunk with this sequence number; None if it has to be told whole.
    #[inline(always)]
    pub const fn shorten(&self, chunk: u32, call: &Call) -> Option<[u32; 4]> {
        let gap = call.start.wrapping_sub(self.start);
        let requested = call.requested as u32;
        let fits = (gap | call.duration | call.requested) >> 32 == 0;
        let holds = match call.pending {
            Some((before, after)) => before == self.pending && after == self.pending.wrapping_add(requested),
            None => true,
        };
        if fits && holds && call.returned as u64 == call.requested && call.offset == self.offset {
            Some([stamp(chunk) | SHORT, gap as u32, call.duration as u32, requested])
        } else {
            None
        }
    }
}

#[inline(always)]
pub(super) const fn moved(offset: u64, bytes: u64) -> u64 {
    if offset == UNKNOWN_OFFSET { offset } else { offset.wrapping_add(bytes) }
}
