//! Reads. Recorded only where they were asked for (`CAWL_READS=1`): they cost no model anything, but tell
//! when a program waited for its input.

use crate::base::settings::reads;
use crate::base::{clock, real};
use crate::hooks::emit::stream::after;
use crate::hooks::emit::{Place, wrote};
use crate::hooks::write::asked;
use crate::state::stream_table::before;
use cawl_wire::Op;
use core::ffi::{c_int, c_void};
use libc::{FILE, iovec, off_t, size_t, ssize_t};

macro_rules! read_body {
    ($op:expr, $fd:ident, $place:expr, $length:expr, $call:expr) => {{
        if !reads() {
            return $call;
        }
        let start = clock::now();
        let returned = $call;
        wrote($op, start, $fd, $place, $length, returned as i64, 0);
        returned
    }};
}

macro_rules! readv_body {
    ($op:expr, $fd:ident, $place:expr, $parts:ident, $count:ident, $call:expr) => {{
        if !reads() {
            return $call;
        }
        let start = clock::now();
        let returned = $call;
        wrote($op, start, $fd, $place, asked($parts, $count, returned), returned as i64, 0);
        returned
    }};
}

/// A read's own position has moved on by what it returned, as a write's has.
const OWN: Place = Place::Own;

macro_rules! fread_body {
    ($size:ident, $count:ident, $stream:ident, $call:expr) => {{
        // Asked for nothing, the C library does not look at the stream.
        if !reads() || $size.wrapping_mul($count) == 0 {
            return $call;
        }
        let before = before($stream);
        let returned = $call;
        let requested = ($size as u64).saturating_mul($count as u64);
        after(Op::StreamRead, $stream, before, requested, returned.wrapping_mul($size) as i64, 0);
        returned
    }};
}

hooks! {
    fn read, __read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t {
        read_body!(Op::Read, fd, OWN, length as u64, real::read(fd, data, length))
    }

    fn __read_chk(fd: c_int, data: *mut c_void, length: size_t, room: size_t) -> ssize_t {
        read_body!(Op::Read, fd, OWN, length as u64, real::__read_chk(fd, data, length, room))
    }

    fn readv(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        readv_body!(Op::Read, fd, OWN, parts, count, real::readv(fd, parts, count))
    }

    fn pread, pread64, __pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        let place = Place::At(offset as u64);
        read_body!(Op::Pread, fd, place, length as u64, real::pread(fd, data, length, offset))
    }

    fn __pread_chk, __pread64_chk(
        fd: c_int, data: *mut c_void, length: size_t, offset: off_t, room: size_t,
    ) -> ssize_t {
        let place = Place::At(offset as u64);
        read_body!(Op::Pread, fd, place, length as u64, real::__pread_chk(fd, data, length, offset, room))
    }

    fn preadv, preadv64(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        let place = Place::At(offset as u64);
        readv_body!(Op::Pread, fd, place, parts, count, real::preadv(fd, parts, count, offset))
    }

    fn preadv2, preadv64v2(
        fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t {
        let place = if offset == -1 { OWN } else { Place::At(offset as u64) };
        readv_body!(Op::Pread, fd, place, parts, count, real::preadv2(fd, parts, count, offset, flags))
    }

    fn fread, _IO_fread(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        fread_body!(size, count, stream, real::fread(data, size, count, stream))
    }

    fn fread_unlocked(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        fread_body!(size, count, stream, real::fread_unlocked(data, size, count, stream))
    }

    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        fread_body!(size, count, stream, real::__fread_chk(data, room, size, count, stream))
    }

    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t {
        fread_body!(size, count, stream, real::__fread_unlocked_chk(data, room, size, count, stream))
    }
}
