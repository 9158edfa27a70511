//! Reads through a descriptor. Those of files are recorded unless the user asked for none (`CAWL_READS=0`);
//! those of pipes, sockets and terminals, which wait for another process, only with `CAWL_READS=all`.

use crate::base::{clock, interrupted, real};
use crate::hooks::emit::reading::is_recorded;
use crate::hooks::emit::{Place, wrote};
use crate::hooks::write::asked;
use cawl_wire::Op;
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, ssize_t};

/// Makes a call that reads at the descriptor's own position, and records it; `requested` is asked afterwards.
#[inline(always)]
fn reading(
    op: Op,
    fd: c_int,
    requested: impl FnOnce(ssize_t) -> u64,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !is_recorded(fd) {
        return call();
    }
    let start = interrupted::begin(fd);
    let returned = call();
    wrote(op, start, fd, Place::Own, requested(returned), returned as i64, 0);
    returned
}

/// The same of one that reads elsewhere.
#[inline(always)]
fn reading_at(
    fd: c_int,
    offset: off_t,
    requested: impl FnOnce(ssize_t) -> u64,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !is_recorded(fd) {
        return call();
    }
    let start = clock::now();
    let returned = call();
    wrote(Op::Pread, start, fd, Place::At(offset as u64), requested(returned), returned as i64, 0);
    returned
}

hooks! {
    fn read, __read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t =
        reading(Op::Read, fd, |_| length as u64, || real::read(fd, data, length));

    fn __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t =
        reading(Op::Read, fd, |_| length as u64, || real::__read_chk(fd, data, length, room));

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        reading(Op::Read, fd, |returned| asked(parts, count, returned), || real::readv(fd, parts, count));

    fn pread, pread64, __pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t =
        reading_at(fd, offset, |_| length as u64, || real::pread(fd, data, length, offset));

    fn __pread_chk, __pread64_chk(
        fd: c_int, data: *mut c_void, length: size_t, offset: off_t, room: size_t,
    ) -> ssize_t =
        reading_at(fd, offset, |_| length as u64, || real::__pread_chk(fd, data, length, offset, room));

    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let requested = |returned| asked(parts, count, returned);
        reading_at(fd, offset, requested, || real::preadv(fd, parts, count, offset))
    }

    fn preadv2, preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t {
        let requested = |returned| asked(parts, count, returned);
        let call = || real::preadv2(fd, parts, count, offset, flags);
        // The offset -1 means the descriptor's own position.
        if offset == -1 { reading(Op::Pread, fd, requested, call) } else { reading_at(fd, offset, requested, call) }
    }
}
