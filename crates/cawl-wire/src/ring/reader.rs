//! The daemon's side: records become events again.
//!
//! The law of this module: **a record is decoded once, here.** What comes out is an [`Event`] in the tracer's
//! clock, an [`Anchor`], the sum of coalesced calls, or the news that a record is damaged.

use core::sync::atomic::{Ordering, fence};

use super::layout::{HEAD_AT, Position, RingError, RingHeader, SHAPE, unread};
use super::record::{
    CELL_LEN, Expected, Form, LONGEST_CELLS, MODULES, NAME_HEAD, PIECE_HEAD, SHORT, STACK, WHOLE_CELLS,
    encoded, form, moved, name_cells, piece_cells, stamp,
};
use crate::stack::StackRecord;
use crate::{Anchor, EVENT_LEN, Event, FileRecord, UNKNOWN_OFFSET, flag};

/// The shared memory as the daemon sees it.
pub trait Memory {
    /// Reads all of `out` from this place; false if that is not possible.
    fn read(&self, at: u64, out: &mut [u8]) -> bool;
    /// Writes a word; a failure shows when the ring stays full.
    fn write(&self, at: u64, word: u64);
}

/// Takes what a ring holds.
pub trait Taker {
    /// How many more events there is room for; room for one is room for coalesced calls.
    fn room(&self) -> usize;
    /// True if the calls that continue this one may be coalesced.
    fn is_coalescible(&self, event: &Event) -> bool;
    /// An event; there is room for it. Its times are in the tracer's clock.
    fn event(&mut self, event: &Event);
    /// Readings of both clocks.
    fn anchor(&mut self, anchor: Anchor);
    /// A record that is no event.
    fn damaged(&mut self);
    /// A name that stands before the thread's first call on the file.
    fn file(&mut self, file: &FileRecord<'_>);
    /// Coalesced calls; there is room for them.
    fn coalesced(&mut self, calls: &CoalescedCalls);
    /// The copied stack of the thread's next call. What is returned becomes that call's [`Event::stack`], if
    /// it is the one that the stack says.
    fn stack(&mut self, _stack: &StackRecord<'_>) -> u32 {
        0
    }
    /// Lines of /proc/PID/maps: they replace what was told of their addresses.
    fn modules(&mut self, _lines: &[u8]) {}
}

/// Consecutive calls of a thread, each of which continues the one before: their number and sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalescedCalls {
    /// The call that they continue; it is not one of them.
    pub like: Event,
    /// How many there are.
    pub calls: u64,
    /// Bytes that they were asked to write, and wrote, in all.
    pub bytes: u64,
    /// How long they took, in all.
    pub duration: u64,
    /// When the first of them began.
    pub first: u64,
    /// When the last of them began.
    pub last: u64,
    /// When the latest of them ended.
    pub end: u64,
}

/// The daemon's side of one slot.
#[derive(Clone, Copy, Debug)]
pub struct Follower {
    slot: u32,
    head: Position,
    /// Sequence number and index of the chunk being read.
    chunk: (u32, u16),
    decoder: Decoder,
}

impl Follower {
    /// At the start of this slot's ring.
    pub const fn new(slot: u32) -> Follower {
        Follower { slot, head: Position::START, chunk: (0, 0), decoder: Decoder::new() }
    }

    /// True if nothing before `tail` is unread.
    pub fn is_at(&self, tail: Position) -> bool {
        self.head == tail || matches!(unread(self.head, tail, SHAPE), Ok(unread) if unread.from == unread.to)
    }

    /// Chunks before that of `tail` that are not read to their end.
    pub const fn behind(&self, tail: Position) -> u32 {
        tail.chunk.saturating_sub(self.head.chunk)
    }

    /// Reads unread records, as many as there are or as fit into `cells`, which must have room for the
    /// longest one, and gives them to `taker`; returns how many cells that were. `tail` must have been read
    /// before. Nothing that was given counts after an error.
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
            if self.decoder.coalesces { usize::MAX } else { taker.room().max(LONGEST_CELLS as usize) };
        let count = ((unread.to - unread.from) as usize).min(cells.len()).min(useful);
        let Some(cells) = cells.get_mut(..count).filter(|cells| !cells.is_empty()) else { return Ok(0) };
        if self.chunk.0 != unread.chunk {
            let mut index = [0; 2];
            if !memory.read(header.order(self.slot, unread.chunk), &mut index) {
                return Err(RingError::Length);
            }
            let index = u16::from_le_bytes(index);
            if u32::from(index) >= header.chunks {
                return Err(RingError::Order);
            }
            self.chunk = (unread.chunk, index);
        }
        let at = header.chunk(u32::from(self.chunk.1)) + u64::from(unread.from) * CELL_LEN as u64;
        if !memory.read(at, cells.as_flattened_mut()) {
            return Err(RingError::Length);
        }
        let to = unread.from + count as u32;
        let mut cell = unread.from;
        let mut left = &*cells;
        while let Some(first) = left.first() {
            if SHAPE.ends_at(cell) || taker.room() == 0 {
                break;
            }
            // Those that begin where a record may.
            let most = left.len().min((SHAPE.cells - SHAPE.longest + 1 - cell) as usize);
            let length = if let Some(calls) = self.decoder.coalesced(&left[..most], unread.chunk) {
                taker.coalesced(&calls);
                calls.calls as u32
            } else if word(first, 0) == stamp(unread.chunk) | SHORT {
                taker.event(&self.decoder.short(first).ok_or(RingError::Stamp)?);
                1
            } else if word(first, 0) != stamp(unread.chunk) {
                return Err(RingError::Stamp);
            } else {
                let form = form(first);
                let length = match form {
                    Form::Whole => WHOLE_CELLS,
                    Form::Name(length) => name_cells(length),
                    Form::Piece(_, length) => piece_cells(length),
                    Form::End => {
                        cell = SHAPE.cells;
                        break;
                    }
                };
                let Some(record) = left.get(..length as usize) else {
                    // It is cut off where the room ends, or where the tail says that a record does.
                    if to == unread.to || length > LONGEST_CELLS {
                        return Err(RingError::Stamp);
                    }
                    break;
                };
                match (form, record.as_flattened()) {
                    (Form::Name(length), record) => name(record, length, taker),
                    (Form::Piece(code, length), record) => {
                        self.decoder.piece(
                            code,
                            record.get(PIECE_HEAD..PIECE_HEAD + usize::from(length)),
                            taker,
                        );
                    }
                    (_, record) => self.decoder.whole(record.first_chunk().ok_or(RingError::Stamp)?, taker),
                }
                length
            };
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

/// Makes events of the records of one slot, each of which may continue the one before.
#[derive(Clone, Copy, Debug)]
struct Decoder {
    /// Of a stack whose call has not come: what the taker calls it, and when that call began.
    stack: Option<(u32, u64)>,
    /// The latest whole call, if it is not damaged.
    before: Option<Event>,
    expected: Expected,
    stream: bool,
    /// The calls that continue it may be coalesced.
    coalesces: bool,
}

impl Decoder {
    /// At the start of a ring.
    const fn new() -> Decoder {
        let expected = Expected { start: 0, offset: 0, pending: 0 };
        Decoder { stack: None, before: None, expected, stream: false, coalesces: false }
    }

    /// A whole record, whose first word has been looked at.
    #[inline]
    fn whole(&mut self, record: &[u8; EVENT_LEN], taker: &mut impl Taker) {
        let encoded = encoded(record);
        if let Some(anchor) = Anchor::decode(&encoded) {
            return taker.anchor(anchor);
        }
        self.before = Event::decode(&encoded);
        self.coalesces = false;
        let Some(event) = &self.before else { return taker.damaged() };
        self.expected = Expected::after(event);
        self.stream = event.has(flag::STREAM_KNOWN);
        // Below this no sum of lengths that a call can have ends at what means unknown.
        let usual = self.expected.offset == UNKNOWN_OFFSET || self.expected.offset < 1 << 63;
        self.coalesces = usual && taker.is_coalescible(event);
        match self.stack.take() {
            Some((stack, start)) if start == event.start => taker.event(&Event { stack, ..*event }),
            _ => taker.event(event),
        }
    }

    /// A stack or modules.
    fn piece(&mut self, code: u8, body: Option<&[u8]>, taker: &mut impl Taker) {
        match (code, body, body.and_then(StackRecord::decode)) {
            (STACK, _, Some(stack)) => self.stack = Some((taker.stack(&stack), stack.start)),
            (MODULES, Some(lines), _) => taker.modules(lines),
            _ => taker.damaged(),
        }
    }

    /// The event of a short record; None if there is none that it could continue.
    #[inline]
    fn short(&mut self, cell: &[u8; CELL_LEN]) -> Option<Event> {
        let (gap, duration, requested) = (word(cell, 4), word(cell, 8), word(cell, 12));
        let before = self.expected;
        let start = before.start.wrapping_add(u64::from(gap));
        self.expected = before.next(start, requested, self.stream);
        let mut event = Event {
            start,
            duration: duration.into(),
            offset: before.offset,
            requested: requested.into(),
            returned: requested.into(),
            ..self.before?
        };
        if self.stream {
            (event.pending_before, event.pending_after) = (before.pending, self.expected.pending);
        }
        Some(event)
    }

    /// Coalesces the short records of this chunk that `cells` begin with; None if there are none that may be.
    fn coalesced(&mut self, cells: &[[u8; CELL_LEN]], chunk: u32) -> Option<CoalescedCalls> {
        let like = self.before.filter(|_| self.coalesces)?;
        let begins = stamp(chunk) | SHORT;
        let (mut start, mut end, mut duration) = (self.expected.start, 0u64, 0u64);
        let (mut bytes, mut calls) = (0u64, 0u64);
        // A stream's buffer has no room for more bytes than a word can count; records that claim more are
        // taken call by call.
        let most = if self.stream { u64::from(u32::MAX - self.expected.pending) } else { u64::MAX };
        let mut first = None;
        for cell in cells {
            let more = bytes + u64::from(word(cell, 12));
            if word(cell, 0) != begins || more > most {
                break;
            }
            start = start.wrapping_add(u64::from(word(cell, 4)));
            let took = u64::from(word(cell, 8));
            end = end.max(start.saturating_add(took));
            duration += took;
            first.get_or_insert(start);
            (bytes, calls) = (more, calls + 1);
        }
        let Expected { offset, pending, .. } = self.expected;
        self.expected = if self.stream {
            Expected { start, offset, pending: pending.wrapping_add(bytes as u32) }
        } else {
            Expected { start, offset: moved(offset, bytes), pending }
        };
        Some(CoalescedCalls { like, calls, bytes, duration, first: first?, last: start, end })
    }
}

/// A name, whose head has been looked at.
fn name(record: &[u8], length: u16, taker: &mut impl Taker) {
    let file = record.get(NAME_HEAD..NAME_HEAD + usize::from(length));
    match file.map(FileRecord::decode) {
        Some(Ok(file)) => taker.file(&file),
        _ => taker.damaged(),
    }
}

/// The word of a cell at this byte.
#[inline(always)]
fn word(cell: &[u8; CELL_LEN], at: usize) -> u32 {
    u32::from_le_bytes([cell[at], cell[at + 1], cell[at + 2], cell[at + 3]])
}
