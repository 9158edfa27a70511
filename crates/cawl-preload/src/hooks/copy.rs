//! Copies inside the kernel, reflinks, and changes of a file's length and space. The event of a copy is about
//! its destination.

use crate::base::{clock, real, sys};
use crate::hooks::emit::{Place, around, around_moving, did, happened, wrote};
use crate::hooks::names::behind;
use crate::hooks::write::asked;
use crate::session;
use crate::state::descriptors;
use crate::tries;
use cawl_wire::{Op, flag};
use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use libc::{off_t, size_t, ssize_t};

/// Where a copy wrote: at the offset that the program gave and the kernel then moved on, or at the
/// descriptor's own position.
///
/// # Safety
/// `at` must be null or valid after a call that succeeded.
pub unsafe fn place(at: *mut off_t, returned: ssize_t) -> Place {
    if at.is_null() {
        return Place::Own;
    }
    if returned < 0 {
        return Place::Nowhere;
    }
    // SAFETY: the kernel has just written there.
    unsafe { Place::At((at.read_unaligned() - returned as off_t) as u64) }
}

/// A copy moved its source, if no offset was given: that is not counted along.
pub fn left_moved(from: c_int, at: *const off_t) {
    if at.is_null() {
        descriptors::moves_unseen(from);
    }
}

/// A file was truncated by name.
pub fn truncated(start: u64, path: *const c_char, length: off_t, returned: i64) {
    let found = if returned == 0 { behind(libc::AT_FDCWD, path, true) } else { None };
    happened(Op::Truncate, start, returned, |event| {
        event.offset = length as u64;
        if let Some(found) = &found {
            found.describe(event);
        }
    });
}

/// A reflink was made: the destination shares `requested` bytes with another file.
fn cloned(start: u64, fd: c_int, offset: u64, length: u64, returned: c_int) {
    did(Op::CopyRange, start, fd, i64::from(returned), |event| {
        event.offset = offset;
        let whole = || sys::fstat(fd).map_or(0, |stat| stat.st_size as u64);
        event.requested = if length == 0 { whole() } else { length };
        if returned == 0 {
            event.returned = event.requested as i64;
        }
        event.flags |= flag::ESTIMATED;
    });
}

const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940D;

hooks! {
    word fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint,
    ) -> ssize_t = around_moving(
        to,
        || real::copy_file_range(from, from_at, to, to_at, length, flags),
        |start, returned| {
            left_moved(from, from_at);
            wrote(Op::CopyRange, start, to, place(to_at, returned), length as u64, returned as i64, 0);
        },
    );

    word fn sendfile, sendfile64(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
        around_moving(
            to,
            || next(to, from, at, length),
            |start, returned| {
                left_moved(from, at);
                wrote(Op::Sendfile, start, to, Place::Own, length as u64, returned as i64, 0);
            },
        )
    }

    word fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint,
    ) -> ssize_t = around_moving(
        to,
        || real::splice(from, from_at, to, to_at, length, flags),
        |start, returned| {
            left_moved(from, from_at);
            wrote(Op::Splice, start, to, place(to_at, returned), length as u64, returned as i64, 0);
        },
    );

    // These only ever fill pipes.
    word fn tee(from: c_int, to: c_int, length: size_t, flags: c_uint) -> ssize_t = around(
        || real::tee(from, to, length, flags),
        |start, returned| wrote(Op::Splice, start, to, Place::Nowhere, length as u64, returned as i64, 0),
    );

    word fn vmsplice(fd: c_int, parts: *const libc::iovec, count: size_t, flags: c_uint) -> ssize_t {
        around(|| real::vmsplice(fd, parts, count, flags), |start, returned| {
            let requested = asked(parts, count as c_int, returned);
            wrote(Op::Splice, start, fd, Place::Nowhere, requested, returned as i64, 0);
        })
    }

    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        if !session::active() || !matches!(request, FICLONE | FICLONERANGE) {
            return real::ioctl(fd, request, argument);
        }
        let start = clock::now();
        let returned = real::ioctl(fd, request, argument);
        if request == FICLONERANGE && returned == 0 && !argument.is_null() {
            // struct file_clone_range: source descriptor, source offset, length, destination offset.
            let range = argument.cast::<[u64; 4]>().read_unaligned();
            cloned(start, fd, range[3], range[2], returned);
        } else {
            cloned(start, fd, 0, 0, returned);
        }
        returned
    }

    fn ftruncate, ftruncate64(fd: c_int, length: off_t) -> c_int = around(
        || next(fd, length),
        |start, returned| {
            did(Op::Truncate, start, fd, i64::from(returned), |event| event.offset = length as u64);
        },
    );

    word fn truncate, truncate64(path: *const c_char, length: off_t) -> c_int = around(
        || next(path, length),
        |start, returned| truncated(start, path, length, i64::from(returned)),
    );

    fn fallocate, fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int = around(
        || next(fd, mode, offset, length),
        |start, returned| {
            tries::allocated(fd);
            did(Op::Allocate, start, fd, i64::from(returned), |event| {
                event.offset = offset as u64;
                event.requested = length as u64;
                event.aux = mode as u32;
            });
        },
    );

    // Returns the error instead of setting errno.
    fn posix_fallocate, posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int = around(
        || next(fd, offset, length),
        |start, failure| {
            tries::allocated(fd);
            did(Op::Allocate, start, fd, if failure == 0 { 0 } else { -1 }, |event| {
                event.offset = offset as u64;
                event.requested = length as u64;
                event.errno = failure as u16;
            });
        },
    );
}
