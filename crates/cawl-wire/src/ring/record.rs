//! How a call stands in a ring: whole, or, where it goes on as the call before it did, in one cell.
//!
//! The law of this module: **what is left out follows from the records before it**, by the same few lines on both
//! sides ([`Expected`]). A call of which anything else is true stands there whole.
//!
//! # Records
//!
//! Each begins with a word of four bytes: the chunk's sequence number, and in its highest bit [`SHORT`] or zero.
//!
//! - *whole*, [`WHOLE_CELLS`] cells: the word; then bytes 88 to 92 of the event as [`Event::encode`] has it; then
//!   its bytes 0 to 88. An [`Anchor`](crate::Anchor) stands there in the same way.
//! - *short*, one cell: the word; ticks (or ns) from the start of the call before to the start of this one; the
//!   duration in the same unit; bytes requested. Four bytes each. Returned was what was requested; all else is as
//!   in the record before, with the place where that one ended.

use crate::{EVENT_LEN, Event, UNKNOWN_OFFSET, flag};

/// Length of a cell, in bytes.
pub const CELL_LEN: usize = 16;
/// Cells of a whole record.
pub const WHOLE_CELLS: u32 = (EVENT_LEN / CELL_LEN) as u32;
/// In the first word of a short record.
pub const SHORT: u32 = 1 << 31;
/// Bytes of an encoded event in front of its code, and in a ring behind it.
const CODE_AT: usize = 88;

/// The first word of a whole record in the chunk with this sequence number.
#[inline(always)]
pub const fn stamp(chunk: u32) -> u32 {
    chunk & !SHORT
}

/// A whole record.
pub fn whole(chunk: u32, encoded: &[u8; EVENT_LEN]) -> [u8; EVENT_LEN] {
    let mut out = [0; EVENT_LEN];
    out[0..4].copy_from_slice(&stamp(chunk).to_le_bytes());
    out[4..8].copy_from_slice(&encoded[CODE_AT..CODE_AT + 4]);
    out[8..].copy_from_slice(&encoded[..CODE_AT]);
    out
}

/// What a short record tells or implies about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// See [`Event::start`].
    pub start: u64,
    /// See [`Event::duration`].
    pub duration: u64,
    /// See [`Event::offset`].
    pub offset: u64,
    /// See [`Event::requested`].
    pub requested: u64,
    /// See [`Event::returned`].
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
const fn moved(offset: u64, bytes: u64) -> u64 {
    if offset == UNKNOWN_OFFSET { offset } else { offset.wrapping_add(bytes) }
}

/// Calls of a thread of which each went on as the one before it, added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several {
    /// The call that they went on from; it is not one of them.
    pub like: Event,
    /// How many there are.
    pub calls: u64,
    /// Bytes that they were asked to write, and wrote, in all.
    pub bytes: u64,
    /// When the first of them began.
    pub first: u64,
    /// When the last of them began.
    pub last: u64,
    /// When the latest of them ended.
    pub end: u64,
}

/// The reader's side: makes events, encoded, of records.
#[derive(Clone, Copy, Debug)]
pub struct Expander {
    before: [u8; EVENT_LEN],
    expected: Expected,
    stream: bool,
    /// The call that short records go on from.
    known: Option<Event>,
    /// Those that do are added up.
    adds_up: bool,
}

impl Expander {
    /// At the start of a ring.
    pub const fn new() -> Expander {
        let expected = Expected { start: 0, offset: 0, pending: 0 };
        Expander { before: [0; EVENT_LEN], expected, stream: false, known: None, adds_up: false }
    }

    /// True if [`Expander::several`] may find something.
    pub const fn adds_up(&self) -> bool {
        self.adds_up
    }

    /// An event of a whole record, whose first word has been looked at. `adds_up` tells of which calls it is enough
    /// to know how many went on from them.
    pub fn whole(
        &mut self,
        record: &[u8; EVENT_LEN],
        out: &mut [u8; EVENT_LEN],
        adds_up: impl FnOnce(&Event) -> bool,
    ) {
        out[..CODE_AT].copy_from_slice(&record[8..]);
        out[CODE_AT..CODE_AT + 4].copy_from_slice(&record[4..8]);
        // In a trace these bytes are zero.
        out[CODE_AT + 4..].fill(0);
        if out[CODE_AT] == crate::Anchor::CODE {
            return;
        }
        self.known = Event::decode(out);
        self.adds_up = false;
        if let Some(event) = &self.known {
            self.before = *out;
            self.expected = Expected::after(event);
            self.stream = event.has(flag::STREAM_KNOWN);
            // Below this no sum of lengths that a call can have ends at what means unknown.
            let usual = self.expected.offset == UNKNOWN_OFFSET || self.expected.offset < 1 << 63;
            self.adds_up = usual && adds_up(event);
        }
    }

    /// Adds up the short records of this chunk that `cells` begin with; None if there are none that may be.
    pub fn several(&mut self, cells: &[[u8; CELL_LEN]], chunk: u32) -> Option<Several> {
        let like = self.known.filter(|_| self.adds_up)?;
        let begins = stamp(chunk) | SHORT;
        let (mut start, mut end, mut bytes, mut calls) = (self.expected.start, 0u64, 0u64, 0u64);
        // A stream's buffer has no room for more bytes than a word can count; who says so is taken by his word, call
        // by call.
        let most = if self.stream { u64::from(u32::MAX - self.expected.pending) } else { u64::MAX };
        let mut first = None;
        for cell in cells {
            let word = |at: usize| u32::from_le_bytes([cell[at], cell[at + 1], cell[at + 2], cell[at + 3]]);
            let more = bytes + u64::from(word(12));
            if word(0) != begins || more > most {
                break;
            }
            start = start.wrapping_add(u64::from(word(4)));
            end = end.max(start.saturating_add(u64::from(word(8))));
            first.get_or_insert(start);
            (bytes, calls) = (more, calls + 1);
        }
        let Expected { offset, pending, .. } = self.expected;
        self.expected = if self.stream {
            Expected { start, offset, pending: pending.wrapping_add(bytes as u32) }
        } else {
            Expected { start, offset: moved(offset, bytes), pending }
        };
        Some(Several { like, calls, bytes, first: first?, last: start, end })
    }

    /// An event of the three words of a short record; false if there is none that it could go on from.
    #[inline]
    pub fn short(&mut self, gap: u32, duration: u32, requested: u32, out: &mut [u8; EVENT_LEN]) -> bool {
        let start = self.expected.start.wrapping_add(u64::from(gap));
        let before = self.expected;
        self.expected = before.next(start, requested, self.stream);
        *out = self.before;
        out[0..8].copy_from_slice(&start.to_le_bytes());
        out[8..16].copy_from_slice(&u64::from(duration).to_le_bytes());
        out[32..40].copy_from_slice(&before.offset.to_le_bytes());
        out[40..48].copy_from_slice(&u64::from(requested).to_le_bytes());
        out[48..56].copy_from_slice(&u64::from(requested).to_le_bytes());
        if self.stream {
            out[72..76].copy_from_slice(&before.pending.to_le_bytes());
            out[76..80].copy_from_slice(&self.expected.pending.to_le_bytes());
        }
        self.known.is_some()
    }
}

impl Default for Expander {
    fn default() -> Expander {
        Expander::new()
    }
}
