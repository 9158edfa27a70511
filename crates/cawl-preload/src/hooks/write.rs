//! write and its vectored and positioned forms.

use crate::base::real;
use crate::hooks::aio::VECTORS;
use crate::hooks::emit::{Place, around, around_moving, wrote};
use cawl_wire::{Op, flag};
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, ssize_t};

/// Bytes that a vector asks to write.
///
/// # Safety
/// `parts` must be valid for `count` elements, as after a call that did not fail with EFAULT.
#[inline]
pub unsafe fn asked(parts: *const iovec, count: c_int, returned: ssize_t) -> u64 {
    if returned < 0 {
        return 0;
    }
    let count = usize::try_from(count).unwrap_or(0).min(VECTORS);
    // SAFETY: the kernel has just read the same elements without complaint, and asks for no alignment. They
    // are the call's until it returns to the program.
    let length = |at| unsafe { parts.add(at).read_unaligned() }.iov_len as u64;
    (0..count).fold(0u64, |sum, at| sum.saturating_add(length(at)))
}

pub fn write_flags(flags: c_int) -> u32 {
    let mut meaning = 0;
    for (bit, flag) in
        [(libc::RWF_DSYNC, flag::DSYNC), (libc::RWF_SYNC, flag::SYNC), (libc::RWF_APPEND, flag::APPEND)]
    {
        if flags & bit != 0 {
            meaning |= flag;
        }
    }
    meaning
}

hooks! {
    fn write, __write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t = around_moving(
        fd,
        || next(fd, data, length),
        |start, returned| wrote(Op::Write, start, fd, Place::Own, length as u64, returned as i64, 0),
    );

    fn pwrite, pwrite64, __pwrite64(fd: c_int, data: *const c_void, length: size_t, offset: off_t) -> ssize_t {
        around(
            || next(fd, data, length, offset),
            |start, returned| {
                wrote(Op::Pwrite, start, fd, Place::At(offset as u64), length as u64, returned as i64, 0);
            },
        )
    }

    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t = around_moving(
        fd,
        || real::writev(fd, parts, count),
        |start, returned| {
            wrote(Op::Writev, start, fd, Place::Own, asked(parts, count, returned), returned as i64, 0);
        },
    );

    fn pwritev, pwritev64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        around(|| next(fd, parts, count, offset), |start, returned| {
            let requested = asked(parts, count, returned);
            wrote(Op::Pwritev, start, fd, Place::At(offset as u64), requested, returned as i64, 0);
        })
    }

    fn pwritev2, pwritev64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t = around_moving(fd, || next(fd, parts, count, offset, flags), |start, returned| {
        // The offset -1 means the descriptor's own position.
        let place = if offset == -1 { Place::Own } else { Place::At(offset as u64) };
        let requested = asked(parts, count, returned);
        wrote(Op::Pwritev, start, fd, place, requested, returned as i64, write_flags(flags));
    });

    word fn eventfd_write(fd: c_int, value: u64) -> c_int = around(
        || real::eventfd_write(fd, value),
        |start, returned| {
            wrote(Op::Write, start, fd, Place::Own, 8, if returned == 0 { 8 } else { -1 }, 0);
        },
    );
}
