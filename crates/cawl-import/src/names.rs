//! Names of functions of the C library, and what they take, as tracers of that library print them.

use cawl_wire::{Op, flag};

/// The operation of a function; None if it does not open, move, write, sync or close a file. `fseek` is told
/// as lseek, `fprintf` as fwrite.
pub(crate) fn operation(function: &str) -> Option<Op> {
    Some(match function.strip_suffix("64").unwrap_or(function) {
        "open" | "openat" | "creat" | "fopen" => Op::Open,
        "close" => Op::Close,
        "fclose" => Op::StreamClose,
        "write" => Op::Write,
        "writev" => Op::Writev,
        "pwrite" => Op::Pwrite,
        "pwritev" => Op::Pwritev,
        "fwrite" | "fprintf" => Op::StreamWrite,
        "fflush" => Op::StreamFlush,
        "read" | "readv" => Op::Read,
        "pread" | "preadv" => Op::Pread,
        "fread" => Op::StreamRead,
        "lseek" | "fseek" | "fseeko" => Op::Seek,
        "fsync" => Op::Fsync,
        "fdatasync" => Op::Fdatasync,
        "truncate" | "ftruncate" => Op::Truncate,
        "unlink" | "remove" => Op::Unlink,
        _ => return None,
    })
}

/// True of a function that can write, and of which no row tells enough.
pub(crate) fn can_write(function: &str) -> bool {
    let name = function.strip_suffix("64").unwrap_or(function);
    matches!(name, "rename" | "renameat" | "fallocate" | "posix_fallocate" | "sendfile" | "copy_file_range")
}

/// What the number that open(2) takes on Linux means for an event.
pub(crate) fn open_number(number: u64) -> u32 {
    const BITS: [(u64, u32); 7] = [
        (0o3, flag::WRITABLE),
        (0o1000, flag::TRUNC),
        (0o2000, flag::APPEND),
        (0o10000, flag::DSYNC),
        (0o40000, flag::DIRECT),
        (0o4_000_000, flag::SYNC),
        (0o20_000_000, flag::TMPFILE),
    ];
    let bits = BITS.iter().filter(|(mask, _)| number & mask != 0).fold(0, |bits, (_, bit)| bits | bit);
    // O_SYNC contains O_DSYNC.
    if bits & flag::SYNC != 0 { bits & !flag::DSYNC } else { bits }
}

/// What the mode of fopen(3) means for an event.
pub(crate) fn stream_mode(mode: &str) -> u32 {
    match mode.bytes().next() {
        Some(b'w') => flag::WRITABLE | flag::TRUNC,
        Some(b'a') => flag::WRITABLE | flag::APPEND,
        _ if mode.contains('+') => flag::WRITABLE,
        _ => 0,
    }
}

/// Flags of the function `creat`.
pub(crate) const CREAT: u32 = flag::WRITABLE | flag::TRUNC;
