//! What the tracer and the daemon say to each other.
//!
//! The law of this crate: **a message is plain bytes of known length, and reading one can fail but
//! never surprise.** There is no allocation, no unsafe code and no dependency, so the same code runs
//! inside the traced program and in the daemon.
//!
//! A session is one process image talking to one daemon over one Unix stream socket. The tracer sends
//! [`Hello`], then any mix of [`FileRecord`]s and batches of [`Event`]s, then (when the process has the
//! time) [`Goodbye`]. Where descriptors can be passed, the hello brings shared memory, and files and events
//! go there instead ([`ring`]). The daemon answers the hello with [`Kind::Welcome`] or [`Kind::Refused`] and
//! sends nothing else. Each message starts with a [`Header`] of [`HEADER_LEN`] bytes.
//!
//! # Compatibility
//!
//! The first eight bytes of every header (magic, version, kind) never change meaning in any version.
//! Anything else may change with [`VERSION`], and both sides require equality: a daemon refuses a hello
//! of another version, and the refused program runs on untraced. The tracer travels inside the
//! binary that starts it, so a mismatch only happens when an old library meets a new daemon.
#![no_std]
#![forbid(unsafe_code)]

mod clock;
mod event;
mod frame;
pub mod ring;
pub mod stack;

pub use clock::Anchor;
pub use event::{
    ADVICE_DONTNEED, EVENT_LEN, Event, FileId, FileKind, MAX_BYTES, Obstacle, Op, UNKNOWN_OFFSET, flag, lock,
    uncertain,
};
pub use frame::{
    Ended, FileRecord, Goodbye, HEADER_LEN, Header, Hello, Kind, MAGIC, MAX_PAYLOAD, Rank, RankVariable,
    Usage, VERSION, Wchar, WireError, past,
};
