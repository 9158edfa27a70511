//! The trace file: records in checksummed blocks, one after another, described byte by byte in
//! docs/reference/TRACE.md.
//!
//! The law of this module: **a block is complete or absent.** If the writer fails, every whole block stays
//! readable; if the file is damaged, a reader delivers every whole block, skips the damage and reports it.

mod codec;
mod excerpts;
mod reader;
mod writer;

pub use excerpts::{ExcerptOptions, ExcerptStatus, Excerpts, MIN_ROOM};
pub use reader::{Damage, TraceReader};
pub use writer::{TraceFile, WhenFull};

/// First eight bytes of a trace file.
pub const TRACE_MAGIC: [u8; 8] = *b"CAWLTRC\n";

/// Version of the trace format this code writes, and the latest it reads.
pub const TRACE_VERSION: u16 = 11;

/// Length of the file header: magic, version u16, six zero bytes.
const FILE_HEADER_LEN: usize = 16;

/// First four bytes of a block.
const BLOCK_MAGIC: [u8; 4] = *b"CBLK";

const BLOCK_HEADER_LEN: usize = 24;

/// Raw size at which a block is closed, in bytes.
const BLOCK_TARGET: usize = 128 << 10;

/// Largest block, raw or stored, in bytes; a larger length is damage.
const BLOCK_MAX: usize = 16 << 20;

/// Encodings of a block's payload.
const RAW: u8 = 0;
const LZ4: u8 = 1;

/// Why a trace could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file does not begin like a trace.
    #[error("not a cawl trace (wrong first bytes); `cawl-cli import` reads csv files and strace output")]
    NotATrace,
    /// The file tells of more programs and files than fit a trace of its length.
    #[error(
        "the trace tells {0} bytes of programs and files, more than a trace of its length can have: it is \
         damaged, or made to fill memory; record it again"
    )]
    Bloated(u64),
    /// The file was written by a later version.
    #[error("the trace has version {0}, this program reads up to {TRACE_VERSION}; use a newer cawl-cli")]
    Version(u16),
}

#[cfg(test)]
mod tests;
