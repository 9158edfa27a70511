//! Shared memory between one process and the daemon: a ring of cells for each thread.
//!
//! The law of this module: **each word has one writer.** The thread writes cells, order and tail of its
//! slot; the daemon writes its head, and the room; no side waits for a word to be taken back. The daemon
//! believes nothing it reads here that it has not checked.
//!
//! # Layout
//!
//! All numbers are little-endian. First comes the [`Header`](RingHeader), of [`RING_HEADER_LEN`] bytes; then
//! for each slot a control block of [`CONTROL_LEN`] bytes; then for each slot the order of its chunks, an
//! index for each of [`CHUNKS`] sequence numbers; then, from a page boundary, the chunks of all slots, of
//! [`CHUNK_LEN`] bytes, that is [`CHUNK_CELLS`] cells of [`CELL_LEN`] bytes. A call takes one cell or
//! [`WHOLE_CELLS`]: `ring/record.rs` has the records.
//!
//! # Protocol
//!
//! A position is a chunk's sequence number (upper half, from 1) and a cell in it (lower half). The thread
//! fills a chunk record by record and stores the position behind the last complete one as its tail (release).
//! A record begins only where a whole one would fit. Behind that, or behind an *end* record, the chunk is at
//! its end: the thread takes any chunk that no slot has, notes its index in the order at the place of the new
//! sequence number, and goes on there. A chunk whose sequence number is below the daemon's head is no slot's
//! any more. So as few chunks are used as the daemon lags behind; the daemon says how much memory they may
//! have (the room). Each record carries its chunk's sequence number in its first four bytes, by which the
//! daemon recognizes one that is not what the tail promised.

mod layout;
mod reader;
mod record;
mod writer;

pub use layout::{
    CHUNK_CELLS, CHUNK_LEN, CHUNKS, CONTROL_LEN, DROPPED_AT, HEAD_AT, MAPPED_AT, MAX_CHUNKS, MAX_SLOTS,
    Position, RING_HEADER_LEN, RING_MAGIC, ROOM_AT, RingError, RingHeader, SHAPE, STACKS_AT, STACKS_LOST_AT,
    Shape, TAIL_AT, USED_AT, Unread, unread,
};
pub use reader::{CoalescedCalls, Follower, Memory, Taker};
pub use record::{
    CELL_LEN, Call, END, Expected, LONGEST_CELLS, MODULES, NAME, NAME_CELLS, NAME_HEAD, PIECE_HEAD, SHORT,
    STACK, WHOLE_CELLS, end, name_cells, name_head, piece_cells, piece_head, stamp, whole,
};
pub use writer::Begun;
