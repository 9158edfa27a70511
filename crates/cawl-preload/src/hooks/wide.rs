//! Wide streams. The C library counts their buffer in characters and turns them into bytes when it
//! flushes; a character is taken for one byte, and the event says that it is an estimate.

use crate::base::real;
use crate::hooks::emit::reading::taking;
use crate::hooks::emit::stream::giving;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::{standard_input, standard_output};
use cawl_wire::flag;
use core::ffi::{c_int, c_uint};
use libc::{FILE, size_t, wchar_t};

const WEOF: c_uint = c_uint::MAX;

/// Characters in a wide string. To be asked before the call, as in `stdio`.
///
/// # Safety
/// `text` must be one.
unsafe fn length(text: *const wchar_t) -> u64 {
    let mut count = 0;
    // SAFETY: the caller's promise: the loop stops at the terminator.
    unsafe {
        while !text.is_null() && *text.add(count) != 0 {
            count += 1;
        }
    }
    count as u64
}

/// Gives a stream one character.
#[inline(always)]
fn put(stream: Stream, call: impl FnOnce() -> c_uint) -> c_uint {
    giving(stream, || 1, flag::ESTIMATED, call, |returned, _| if returned == WEOF { -1 } else { 1 })
}

/// Gives a stream a string.
///
/// # Safety
/// `text` must be one.
#[inline(always)]
unsafe fn put_string(stream: Stream, text: *const wchar_t, call: impl FnOnce() -> c_int) -> c_int {
    let accepted = |returned, length| if returned < 0 { -1 } else { length as i64 };
    // SAFETY: the caller's promise.
    giving(stream, || unsafe { length(text) }, flag::ESTIMATED, call, accepted)
}

/// Takes a character, or a line.
#[inline(always)]
fn take<T: Copy>(stream: Stream, call: impl FnOnce() -> T) -> T {
    taking(stream, u64::MAX, call, |_| None)
}

/// Takes a line, if there is room for more than the end of a string; the C library does not look at the
/// stream otherwise.
///
/// # Safety
/// `stream` must be open then.
#[inline(always)]
unsafe fn take_line(stream: *mut FILE, room: c_int, call: impl FnOnce() -> *mut wchar_t) -> *mut wchar_t {
    // SAFETY: the caller's promise.
    if room > 1 { take(unsafe { Stream::open(stream) }, call) } else { call() }
}

hooks! {
    fn fputwc(wide: wchar_t, stream: Stream) -> c_uint = put(stream, || real::fputwc(wide, stream.file()));

    fn fputwc_unlocked(wide: wchar_t, stream: Stream) -> c_uint =
        put(stream, || real::fputwc_unlocked(wide, stream.file()));

    fn putwc(wide: wchar_t, stream: Stream) -> c_uint = put(stream, || real::putwc(wide, stream.file()));

    fn putwc_unlocked(wide: wchar_t, stream: Stream) -> c_uint =
        put(stream, || real::putwc_unlocked(wide, stream.file()));

    fn putwchar(wide: wchar_t) -> c_uint = put(Stream::open(standard_output()), || real::putwchar(wide));

    fn putwchar_unlocked(wide: wchar_t) -> c_uint =
        put(Stream::open(standard_output()), || real::putwchar_unlocked(wide));

    fn __woverflow(stream: Stream, wide: c_uint) -> c_uint =
        put(stream, || real::__woverflow(stream.file(), wide));

    fn fputws(text: *const wchar_t, stream: Stream) -> c_int =
        put_string(stream, text, || real::fputws(text, stream.file()));

    fn fputws_unlocked(text: *const wchar_t, stream: Stream) -> c_int =
        put_string(stream, text, || real::fputws_unlocked(text, stream.file()));

    fn fgetwc(stream: Stream) -> c_uint = take(stream, || real::fgetwc(stream.file()));
    fn getwc(stream: Stream) -> c_uint = take(stream, || real::getwc(stream.file()));
    fn fgetwc_unlocked(stream: Stream) -> c_uint = take(stream, || real::fgetwc_unlocked(stream.file()));
    fn getwc_unlocked(stream: Stream) -> c_uint = take(stream, || real::getwc_unlocked(stream.file()));
    fn getwchar() -> c_uint = take(Stream::open(standard_input()), || real::getwchar());
    fn getwchar_unlocked() -> c_uint = take(Stream::open(standard_input()), || real::getwchar_unlocked());
    fn __wuflow(stream: Stream) -> c_uint = take(stream, || real::__wuflow(stream.file()));
    fn __wunderflow(stream: Stream) -> c_uint = take(stream, || real::__wunderflow(stream.file()));

    fn fgetws(text: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t =
        take_line(stream, room, || real::fgetws(text, room, stream));

    fn fgetws_unlocked(text: *mut wchar_t, room: c_int, stream: *mut FILE) -> *mut wchar_t =
        take_line(stream, room, || real::fgetws_unlocked(text, room, stream));

    fn __fgetws_chk(text: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE) -> *mut wchar_t =
        take_line(stream, room, || real::__fgetws_chk(text, size, room, stream));

    fn __fgetws_unlocked_chk(
        text: *mut wchar_t, size: size_t, room: c_int, stream: *mut FILE,
    ) -> *mut wchar_t = take_line(stream, room, || real::__fgetws_unlocked_chk(text, size, room, stream));
}
