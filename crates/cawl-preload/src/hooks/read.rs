//! Reads through a descriptor. Those of files are recorded unless the user asked for none (`CAWL_READS=0`);
//! those of pipes, sockets and terminals, which wait for another process, only with `CAWL_READS=all`.

use crate::base::{clock, interrupted, real};
use crate::hooks::emit::reading::is_recorded;
use crate::hooks::emit::{Place, read_into};
use crate::hooks::write::asked;
use crate::state::destinations::untouched;
use cawl_wire::Op;
use core::ffi::{c_int, c_void};
use libc::{iovec, off_t, size_t, ssize_t};

/// Where a read goes: memory, and how many bytes of it.
pub type Memory = (*const c_void, size_t);
/// Into several pieces of memory: which ones may not be looked up before the kernel has.
pub const PARTS: Memory = (core::ptr::null(), 0);

/// Makes a call that reads at the descriptor's own position, and records it; `requested` is asked afterwards.
#[inline(always)]
pub fn reading(
    op: Op,
    fd: c_int,
    (data, length): Memory,
    requested: impl FnOnce(ssize_t) -> u64,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !is_recorded(fd) {
        return call();
    }
    let untouched = untouched(data, length);
    let start = interrupted::begin(fd);
    let returned = call();
    read_into(op, start, fd, Place::Own, requested(returned), returned as i64, untouched.within(returned));
    returned
}

/// Makes a call that reads at `offset`, and records it; `requested` is asked afterwards.
#[inline(always)]
pub fn reading_at(
    fd: c_int,
    offset: off_t,
    (data, length): Memory,
    requested: impl FnOnce(ssize_t) -> u64,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !is_recorded(fd) {
        return call();
    }
    let untouched = untouched(data, length);
    let start = clock::now();
    let returned = call();
    let place = Place::At(offset as u64);
    read_into(Op::Pread, start, fd, place, requested(returned), returned as i64, untouched.within(returned));
    returned
}

hooks! {
    fn read, __read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t =
        reading(Op::Read, fd, (data, length), |_| length as u64, || next(fd, data, length));

    fn __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t =
        reading(Op::Read, fd, (data, length), |_| length as u64, || real::__read_chk(fd, data, length, room));

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t =
        reading(Op::Read, fd, PARTS, |returned| asked(parts, count, returned), || real::readv(fd, parts, count));

    fn pread, pread64, __pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t =
        reading_at(fd, offset, (data, length), |_| length as u64, || next(fd, data, length, offset));

    fn __pread_chk, __pread64_chk(
        fd: c_int, data: *mut c_void, length: size_t, offset: off_t, room: size_t,
    ) -> ssize_t =
        reading_at(fd, offset, (data, length), |_| length as u64, || next(fd, data, length, offset, room));

    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let requested = |returned| asked(parts, count, returned);
        reading_at(fd, offset, PARTS, requested, || next(fd, parts, count, offset))
    }

    fn preadv2, preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t {
        let requested = |returned| asked(parts, count, returned);
        let call = || next(fd, parts, count, offset, flags);
        // The offset -1 means the descriptor's own position.
        if offset == -1 { reading(Op::Pread, fd, PARTS, requested, call) } else { reading_at(fd, offset, PARTS, requested, call) }
    }
}
