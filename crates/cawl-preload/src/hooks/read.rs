//! Reads. Recorded only where they were asked for (`CAWL_READS=1`): they cost no model anything, but tell
//! when a program waited for its input.

use crate::base::settings::reads;
use crate::base::{clock, real};
use crate::hooks::emit::stream::after;
use crate::hooks::emit::{Place, wrote};
use crate::hooks::write::asked;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::before;
use cawl_wire::Op;
use core::ffi::{c_int, c_void};
use libc::{FILE, iovec, off_t, size_t, ssize_t};

/// Makes a call that reads from a descriptor, and records it; `requested` is asked afterwards. The
/// descriptor's own position has moved on by what it returned, as a write's has.
#[inline(always)]
fn reading(
    op: Op,
    fd: c_int,
    place: Place,
    requested: impl FnOnce(ssize_t) -> u64,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    if !reads() {
        return call();
    }
    let start = clock::now();
    let returned = call();
    wrote(op, start, fd, place, requested(returned), returned as i64, 0);
    returned
}

/// Makes a call that reads elements from a stream, and records it.
///
/// # Safety
/// `stream` must be open, unless nothing is asked for.
#[inline(always)]
unsafe fn reading_elements(
    stream: *mut FILE,
    size: size_t,
    count: size_t,
    call: impl FnOnce() -> size_t,
) -> size_t {
    // Asked for nothing, the C library does not look at the stream.
    if !reads() || size.wrapping_mul(count) == 0 {
        return call();
    }
    // SAFETY: the caller's promise.
    let stream = unsafe { Stream::open(stream) };
    let before = before(stream);
    let returned = call();
    let requested = (size as u64).saturating_mul(count as u64);
    after(Op::StreamRead, stream, before, requested, returned.wrapping_mul(size) as i64, 0);
    returned
}

hooks! {
    fn read, __read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t =
        reading(Op::Read, fd, Place::Own, |_| length as u64, || real::read(fd, data, length));

    fn __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t =
        reading(Op::Read, fd, Place::Own, |_| length as u64, || real::__read_chk(fd, data, length, room));

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        let requested = |returned| asked(parts, count, returned);
        reading(Op::Read, fd, Place::Own, requested, || real::readv(fd, parts, count))
    }

    fn pread, pread64, __pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        let place = Place::At(offset as u64);
        reading(Op::Pread, fd, place, |_| length as u64, || real::pread(fd, data, length, offset))
    }

    fn __pread_chk, __pread64_chk(
        fd: c_int, data: *mut c_void, length: size_t, offset: off_t, room: size_t,
    ) -> ssize_t {
        let place = Place::At(offset as u64);
        reading(Op::Pread, fd, place, |_| length as u64, || real::__pread_chk(fd, data, length, offset, room))
    }

    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let place = Place::At(offset as u64);
        let requested = |returned| asked(parts, count, returned);
        reading(Op::Pread, fd, place, requested, || real::preadv(fd, parts, count, offset))
    }

    fn preadv2, preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t {
        let place = if offset == -1 { Place::Own } else { Place::At(offset as u64) };
        let requested = |returned| asked(parts, count, returned);
        reading(Op::Pread, fd, place, requested, || real::preadv2(fd, parts, count, offset, flags))
    }

    fn fread, _IO_fread(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        reading_elements(stream, size, count, || real::fread(data, size, count, stream));

    fn fread_unlocked(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        reading_elements(stream, size, count, || real::fread_unlocked(data, size, count, stream));

    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t =
        reading_elements(stream, size, count, || real::__fread_chk(data, room, size, count, stream));

    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t =
        reading_elements(stream, size, count, || real::__fread_unlocked_chk(data, room, size, count, stream));
}
