//! What `run --try` changes: the one exception to the first rule at the top of lib.rs. Without it, nothing
//! here is entered but [`any`] and its like, which read one number, and none of them in a write that
//! continues another.
//!
//! The law of this module: the program's data, results, positions and `errno` stay its own. What is added are
//! system calls of the tracer's own after a call of the program, and a buffer for a stream that has none.
//! They are made only for regular files, and neither in a vfork child nor while nothing is traced; that one
//! fails is not told. They are not recorded, but their time is in the program's call.

mod buffers;
mod parts;
mod space;

use crate::base::settings::settings;
use crate::base::{clock, guard, sys};
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use cawl_wire::{FileKind, Op, UNKNOWN_OFFSET, flag};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

pub use buffers::{give_back, opened, take_back};
pub use space::{allocated, opened_empty};

/// Streams get larger buffers.
const BUFFER: u32 = 1;
/// Files are written back behind the writer.
const PACE: u32 = 2;
/// They are dropped from the cache behind it.
const DONTNEED: u32 = 4;
/// fsync and fdatasync do nothing.
const NO_SYNC: u32 = 8;
/// Space is allocated before the writer.
const PREALLOCATE: u32 = 16;

static TRIED: AtomicU32 = AtomicU32::new(0);
/// Size of a stream's buffer, in bytes.
static BUFFER_SIZE: AtomicU32 = AtomicU32::new(0);
/// Bytes after which a file is written back or dropped.
static PART: AtomicU64 = AtomicU64::new(8 << 20);

/// Learns what is to be tried. Constructor only.
pub fn begin() {
    let Some(settings) = settings() else { return };
    // Only what `run` started, whose report says what was tried.
    if settings.run == 0 {
        return;
    }
    for word in settings.tries().split(|byte| *byte == b',') {
        let size = |name: &[u8]| word.strip_prefix(name).and_then(sys::decimal).filter(|size| *size > 0);
        let tried = if let Some(bytes) = size(b"buffer=") {
            BUFFER_SIZE.store(u32::try_from(bytes).unwrap_or(u32::MAX), Relaxed);
            BUFFER
        } else if let Some(bytes) = size(b"pace=") {
            PART.store(bytes, Relaxed);
            PACE
        } else {
            match word {
                b"dontneed" => DONTNEED,
                b"fsync=none" => NO_SYNC,
                b"preallocate" => PREALLOCATE,
                _ => 0,
            }
        };
        TRIED.fetch_or(tried, Relaxed);
    }
}

/// True if this is tried.
#[inline(always)]
fn has(what: u32) -> bool {
    TRIED.load(Relaxed) & what != 0
}

/// True if anything is tried.
#[inline(always)]
pub fn any() -> bool {
    TRIED.load(Relaxed) != 0
}

/// After a call that wrote so many bytes at this place of a file: what is to be done behind the writer and
/// before it. How long that took, on the clock of events.
#[cold]
#[inline(never)]
pub fn written(op: Op, fd: c_int, file: &Descriptor, offset: u64, bytes: u64) -> u64 {
    use Op::{CopyRange, Pwrite, Pwritev, Sendfile, Splice, StreamFlush, StreamWrite, Write, Writev};
    let writes = matches!(
        op,
        Write | Pwrite | Writev | Pwritev | CopyRange | Sendfile | Splice | StreamWrite | StreamFlush
    );
    // Past the cache, or on the device already.
    let elsewhere = file.flags() & (flag::DIRECT | flag::SYNC | flag::DSYNC) != 0;
    if !writes || bytes == 0 || offset == UNKNOWN_OFFSET || elsewhere || file.kind() != FileKind::Regular {
        return 0;
    }
    let begin = clock::now();
    if has(PREALLOCATE) {
        space::reserve(fd, file, offset.saturating_add(bytes));
    }
    if has(PACE | DONTNEED) {
        parts::written(fd, file, offset.saturating_add(bytes), bytes);
    }
    clock::now().saturating_sub(begin)
}

/// True for an fsync or fdatasync that is not made, since that is tried. What is no file, or not open, is
/// left to the kernel to judge.
#[inline(always)]
pub fn leaves_out_sync(fd: c_int) -> bool {
    has(NO_SYNC) && session::active() && is_file_of_ours(fd)
}

#[cold]
#[inline(never)]
fn is_file_of_ours(fd: c_int) -> bool {
    let flags = sys::fcntl(fd, libc::F_GETFL, 0);
    let is_open = flags >= 0 && flags as c_int & libc::O_PATH == 0;
    let is_file = |stat: sys::Stat| {
        matches!(FileKind::from_mode(stat.st_mode), FileKind::Regular | FileKind::Directory)
    };
    let Some(_inside) = guard::enter() else { return false };
    is_open && session::is_ours() && sys::fstat(fd).is_some_and(is_file)
}

/// A descriptor of this process is about to be closed.
#[inline(always)]
pub fn closing(fd: c_int) {
    if has(PREALLOCATE)
        && let Some(file) = descriptors::if_known(fd)
    {
        space::release(fd, file);
    }
}

/// The process is about to end.
pub fn ending() {
    if has(PREALLOCATE) {
        space::release_all();
    }
}
