//! Before the writer: space beyond the end of a growing file (`preallocate`), which the close gives back.
//!
//! To give it back is to truncate the file to its own length, which would cut off what another writer added
//! in the same moment. So there must be none: the file was empty when it was opened, the descriptor is
//! write-only, does not append, was opened here, has no duplicate, no other descriptor of the process leads
//! to the file, and no process was started since. Where that ceases to hold, what is allocated stays.

use super::parts::{self, FOLLOWED};
use super::{PREALLOCATE, has};
use crate::base::sys;
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

/// Bytes allocated at a time.
const AHEAD: u64 = 16 << 20;
/// Nothing is taken of a filesystem with less room than this, in bytes: the program's own writes come first.
const MIN_ROOM: u64 = 1 << 30;
/// `Progress::reserved` of a file that is left alone, and of one that was empty when it was opened. Otherwise
/// it is the end of what was allocated.
const NEVER: u64 = 0;
const EMPTY: u64 = 1;

/// A descriptor was just opened that leads to an empty file.
#[inline(always)]
pub fn opened_empty(fd: c_int) {
    if has(PREALLOCATE)
        && let Some(file) = descriptors::if_known(fd)
        && let Some(progress) = parts::progress(fd, file)
    {
        progress.reserved.store(EMPTY, Relaxed);
    }
}

/// A write has ended at `end`; allocates more, if the file has grown up to what is there.
pub fn reserve(fd: c_int, file: &Descriptor, end: u64) {
    let Some(progress) = parts::known_progress(fd, file) else { return };
    let reserved = progress.reserved.load(Relaxed);
    if reserved == NEVER || end < reserved || !session::is_ours() {
        return;
    }
    if file.is_alone() && has_room(fd) && allocate(fd, end) {
        progress.reserved.store(end.saturating_add(AHEAD), Relaxed);
    } else if reserved == EMPTY {
        progress.reserved.store(NEVER, Relaxed);
    }
}

/// The program has allocated space of its own, which is to stay.
#[inline(always)]
pub fn allocated(fd: c_int) {
    if has(PREALLOCATE)
        && let Some(file) = descriptors::if_known(fd)
        && let Some(progress) = parts::known_progress(fd, file)
    {
        progress.reserved.store(NEVER, Relaxed);
    }
}

/// Gives back what was allocated beyond the end of a file, and leaves it the time of its latest change. Not
/// to be called in a vfork child.
#[cold]
#[inline(never)]
pub fn release(fd: c_int, file: &Descriptor) {
    let Some(progress) = parts::known_progress(fd, file) else { return };
    let reserved = progress.reserved.swap(NEVER, Relaxed);
    if reserved <= EMPTY || !file.is_alone() {
        return;
    }
    let id = file.identity();
    if descriptors::may_be_open(id.dev, id.ino, fd) {
        return;
    }
    let changed = |stat: &libc::stat| libc::timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec };
    let status = sys::fstat_for(fd, |stat| (stat.st_size, changed(stat)));
    let Some((size, changed)) = status else { return };
    let omitted = libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    let times = [omitted, changed];
    // SAFETY: numbers, and two valid times; the file keeps its length, so no data are lost.
    unsafe {
        if sys::call(libc::SYS_ftruncate, [fd as usize, size as usize]) == 0 {
            sys::call(libc::SYS_utimensat, [fd as usize, 0, times.as_ptr() as usize]);
        }
    }
}

/// Gives back what was allocated beyond the end of the file of every descriptor.
#[cold]
pub fn release_all() {
    for fd in 0..FOLLOWED as c_int {
        if let Some(file) = descriptors::if_known(fd) {
            release(fd, file);
        }
    }
}

#[inline(never)]
fn has_room(fd: c_int) -> bool {
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a valid place for the result.
    let done = unsafe { sys::call(libc::SYS_fstatfs, [fd as usize, found.as_mut_ptr() as usize]) };
    // SAFETY: all zero bytes are a valid `statfs`, and the kernel has filled it in.
    let found = unsafe { found.assume_init_ref() };
    let room = found.f_bavail.saturating_mul(found.f_bsize as u64);
    done == 0 && room >= MIN_ROOM && !sys::limited(libc::RLIMIT_FSIZE)
}

fn allocate(fd: c_int, from: u64) -> bool {
    let mode = libc::FALLOC_FL_KEEP_SIZE as usize;
    // SAFETY: numbers only; the file's length and data stay as they are.
    let done = unsafe { sys::call(libc::SYS_fallocate, [fd as usize, mode, from as usize, AHEAD as usize]) };
    done == 0
}
