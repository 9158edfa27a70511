//! What takes bytes from a stream. A call is recorded if it made the C library ask the kernel for more; what
//! the buffer has all for passes by a look at the stream. The C library reads by itself, past every hook.

use crate::base::real;
use crate::hooks::emit::reading::taking;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::standard_input;
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, size_t, ssize_t};

/// Takes elements. Of one that is incomplete at the end of the file the bytes are not counted.
///
/// # Safety
/// `stream` must be open, unless nothing is asked for.
#[inline(always)]
unsafe fn elements(stream: *mut FILE, size: size_t, count: size_t, call: impl FnOnce() -> size_t) -> size_t {
    let wanted = (size as u64).saturating_mul(count as u64);
    // Asked for nothing, the C library does not look at the stream.
    if wanted == 0 {
        return call();
    }
    // SAFETY: the caller's promise.
    taking(unsafe { Stream::open(stream) }, wanted, call, |returned| Some(returned.wrapping_mul(size) as u64))
}

#[inline(always)]
fn byte(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    taking(stream, 1, call, |returned| Some(u64::from(returned != libc::EOF)))
}

/// Takes a line into `text`.
///
/// # Safety
/// `stream` must be open, if there is room for more than the end of a string, which the C library gives back
/// without a look at it.
#[inline(always)]
unsafe fn line(stream: *mut FILE, room: c_int, call: impl FnOnce() -> *mut c_char) -> *mut c_char {
    if room <= 1 {
        return call();
    }
    // A byte that is zero ends the count, not the line; what follows was read ahead, as far as that is told.
    // SAFETY: the caller's promise, and a string if it is not null.
    unsafe {
        let got = |text: *mut c_char| {
            Some(if text.is_null() { 0 } else { CStr::from_ptr(text).count_bytes() as u64 })
        };
        taking(Stream::open(stream), u64::MAX, call, got)
    }
}

/// Takes a line, or what ends by another byte, into memory that grows.
///
/// # Safety
/// `stream` must be open, unless `place` is null: then the C library does not look at it.
#[inline(always)]
unsafe fn record(stream: *mut FILE, has_place: bool, call: impl FnOnce() -> ssize_t) -> ssize_t {
    if !has_place {
        return call();
    }
    // SAFETY: the caller's promise.
    taking(unsafe { Stream::open(stream) }, u64::MAX, call, |returned| Some(returned.max(0) as u64))
}

hooks! {
    fn fread, _IO_fread(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        elements(stream, size, count, || next(data, size, count, stream));

    fn fread_unlocked(data: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        elements(stream, size, count, || real::fread_unlocked(data, size, count, stream));

    fn __fread_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t = elements(stream, size, count, || real::__fread_chk(data, room, size, count, stream));

    fn __fread_unlocked_chk(
        data: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE,
    ) -> size_t =
        elements(stream, size, count, || real::__fread_unlocked_chk(data, room, size, count, stream));

    fn fgetc(stream: Stream) -> c_int = byte(stream, || real::fgetc(stream.file()));
    fn getc, _IO_getc(stream: Stream) -> c_int = byte(stream, || next(stream.file()));
    fn fgetc_unlocked(stream: Stream) -> c_int = byte(stream, || real::fgetc_unlocked(stream.file()));
    fn getc_unlocked(stream: Stream) -> c_int = byte(stream, || real::getc_unlocked(stream.file()));
    fn getchar() -> c_int = byte(Stream::open(standard_input()), || real::getchar());
    fn getchar_unlocked() -> c_int = byte(Stream::open(standard_input()), || real::getchar_unlocked());

    // The forms in which an inlined getc_unlocked surfaces when the buffer is empty.
    fn __uflow(stream: Stream) -> c_int = byte(stream, || real::__uflow(stream.file()));
    fn __underflow(stream: Stream) -> c_int =
        taking(stream, 1, || real::__underflow(stream.file()), |_| Some(0));

    word fn getw(stream: Stream) -> c_int =
        taking(stream, size_of::<c_int>() as u64, || real::getw(stream.file()), |_| None);

    fn fgets, _IO_fgets(text: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char =
        line(stream, room, || next(text, room, stream));

    fn fgets_unlocked(text: *mut c_char, room: c_int, stream: *mut FILE) -> *mut c_char =
        line(stream, room, || real::fgets_unlocked(text, room, stream));

    fn __fgets_chk(text: *mut c_char, size: size_t, room: c_int, stream: *mut FILE) -> *mut c_char =
        line(stream, room, || real::__fgets_chk(text, size, room, stream));

    fn __fgets_unlocked_chk(
        text: *mut c_char, size: size_t, room: c_int, stream: *mut FILE,
    ) -> *mut c_char = line(stream, room, || real::__fgets_unlocked_chk(text, size, room, stream));

    word fn getline(place: *mut *mut c_char, size: *mut size_t, stream: *mut FILE) -> ssize_t =
        record(stream, !place.is_null() && !size.is_null(), || real::getline(place, size, stream));

    word fn getdelim, __getdelim(
        place: *mut *mut c_char, size: *mut size_t, end: c_int, stream: *mut FILE,
    ) -> ssize_t =
        record(stream, !place.is_null() && !size.is_null(), || next(place, size, end, stream));
}
