//! Shared memory between one process and the daemon: a ring of cells for each thread.
//!
//! The law of this module: **each word has one writer.** The thread writes cells, order and tail of its
//! slot; the daemon writes its head; no side waits for a word to be taken back. The daemon believes
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
//! A record begins only where a whole one would fit. Behind that, or behind an *end* record, the chunk is at
//! its end: the thread takes any chunk whose sequence number is below the daemon's head, notes its index in
//! the order at the place of the new sequence number, and goes on there. So as few chunks are used as the
//! daemon lags behind. Each record carries its chunk's sequence number in its first four bytes, by which the
//! daemon recognizes one that is not what the tail promised.

mod layout;
mod reader;
mod record;
mod writer;

pub use layout::{
    CHUNK_CELLS, CHUNK_LEN, CHUNKS, CONTROL_LEN, DROPPED_AT, HEAD_AT, MAX_SLOTS, ORDER_AT, Position,
    RING_HEADER_LEN, RING_MAGIC, RingError, RingHeader, SHAPE, Shape, TAIL_AT, USED_AT, Unread, unread,
};
pub use reader::{CoalescedCalls, Follower, Memory, Taker};
pub use record::{
    CELL_LEN, Call, END, Expected, NAME, NAME_CELLS, NAME_HEAD, SHORT, WHOLE_CELLS, end, name_cells,
    name_head, stamp, whole,
};
pub use writer::Chunks;
