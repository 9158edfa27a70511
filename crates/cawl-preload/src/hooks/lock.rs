//! Locks of files: those of fcntl, which lockf takes too, and those of flock. They cost nothing that a model
//! predicts; they order what several processes write.

use crate::base::{real, sys};
use crate::hooks::emit::{around, did};
use cawl_wire::{Op, UNKNOWN_OFFSET, lock};
use core::ffi::c_int;
use libc::off_t;

/// Records a call of fcntl, if it was about a lock.
///
/// # Safety
/// Of a command about a lock that succeeded, `range` must be what the kernel was given.
pub unsafe fn controlled(start: u64, fd: c_int, command: c_int, range: *const libc::flock, returned: c_int) {
    let holder = match command {
        libc::F_SETLK | libc::F_SETLKW => 0,
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => lock::DESCRIPTION,
        _ => return,
    };
    if returned < 0 {
        return did(Op::Lock, start, fd, i64::from(returned), |event| event.aux = holder);
    }
    // SAFETY: the kernel has just read it.
    let (action, from, at, length) = unsafe {
        let of = range.read_unaligned();
        (c_int::from(of.l_type), c_int::from(of.l_whence), of.l_start, of.l_len)
    };
    let action = match action {
        libc::F_RDLCK => lock::SHARED,
        libc::F_WRLCK => lock::EXCLUSIVE,
        _ => lock::UNLOCK,
    };
    locked(start, fd, holder | action, returned, || covered(fd, from, at, length));
}

/// Records a call of flock.
pub fn of_file(start: u64, fd: c_int, operation: c_int, returned: c_int) {
    let action = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => lock::SHARED,
        libc::LOCK_EX => lock::EXCLUSIVE,
        libc::LOCK_UN => lock::UNLOCK,
        _ => 0,
    };
    locked(start, fd, lock::DESCRIPTION | lock::FLOCK | action, returned, || (0, 0));
}

fn locked(start: u64, fd: c_int, what: u32, returned: c_int, range: impl FnOnce() -> (u64, u64)) {
    did(Op::Lock, start, fd, i64::from(returned), |event| {
        (event.offset, event.requested) = range();
        event.aux = what;
    });
}

/// Offset and length of a range that begins `at` bytes from the file's begin, its end, or the descriptor's
/// position. One of negative length ends there.
fn covered(fd: c_int, from: c_int, at: off_t, length: off_t) -> (u64, u64) {
    let base = match from {
        libc::SEEK_SET => Some(0),
        libc::SEEK_CUR => sys::position(fd),
        _ => sys::fstat(fd).map(|stat| stat.st_size as u64),
    };
    let Some(base) = base else { return (UNKNOWN_OFFSET, 0) };
    let begin = base.wrapping_add(at as u64).wrapping_add(length.min(0) as u64);
    (begin, length.unsigned_abs())
}

hooks! {
    word fn flock(fd: c_int, operation: c_int) -> c_int =
        around(|| real::flock(fd, operation), |start, returned| of_file(start, fd, operation, returned));

    word fn lockf, lockf64(fd: c_int, command: c_int, length: off_t) -> c_int = around(
        || next(fd, command, length),
        |start, returned| {
            let action = match command {
                libc::F_ULOCK => lock::UNLOCK,
                libc::F_LOCK | libc::F_TLOCK => lock::EXCLUSIVE,
                // It only asks.
                _ => return,
            };
            locked(start, fd, action, returned, || covered(fd, libc::SEEK_CUR, 0, length));
        },
    );
}
