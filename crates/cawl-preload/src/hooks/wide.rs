//! Wide streams. The C library counts their buffer in characters and turns them into bytes when it
//! flushes; a character is taken for one byte, and the event says that it is an estimate.

use crate::base::real;
use crate::hooks::emit::stream::after;
use crate::session;
use crate::state::stream_table::{before, standard_output};
use cawl_wire::{Op, flag};
use core::ffi::{c_int, c_uint};
use libc::{FILE, wchar_t};

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

macro_rules! fputwc_body {
    ($call:expr, $stream:expr) => {{
        if !session::active() {
            return $call;
        }
        let stream = $stream;
        let before = before(stream);
        let returned = $call;
        let accepted = if returned == WEOF { -1 } else { 1 };
        after(Op::StreamWrite, stream, before, 1, accepted, flag::ESTIMATED);
        returned
    }};
}

macro_rules! fputws_body {
    ($real:ident, $text:ident, $stream:ident) => {{
        if !session::active() {
            return real::$real($text, $stream);
        }
        let length = length($text);
        let before = before($stream);
        let returned = real::$real($text, $stream);
        let accepted = if returned < 0 { -1 } else { length as i64 };
        after(Op::StreamWrite, $stream, before, length, accepted, flag::ESTIMATED);
        returned
    }};
}

hooks! {
    fn fputwc(wide: wchar_t, stream: *mut FILE) -> c_uint {
        fputwc_body!(real::fputwc(wide, stream), stream)
    }

    fn fputwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint {
        fputwc_body!(real::fputwc_unlocked(wide, stream), stream)
    }

    fn putwc(wide: wchar_t, stream: *mut FILE) -> c_uint {
        fputwc_body!(real::putwc(wide, stream), stream)
    }

    fn putwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint {
        fputwc_body!(real::putwc_unlocked(wide, stream), stream)
    }

    fn putwchar(wide: wchar_t) -> c_uint {
        fputwc_body!(real::putwchar(wide), standard_output())
    }

    fn putwchar_unlocked(wide: wchar_t) -> c_uint {
        fputwc_body!(real::putwchar_unlocked(wide), standard_output())
    }

    fn __woverflow(stream: *mut FILE, wide: c_uint) -> c_uint {
        fputwc_body!(real::__woverflow(stream, wide), stream)
    }

    fn fputws(text: *const wchar_t, stream: *mut FILE) -> c_int {
        fputws_body!(fputws, text, stream)
    }

    fn fputws_unlocked(text: *const wchar_t, stream: *mut FILE) -> c_int {
        fputws_body!(fputws_unlocked, text, stream)
    }
}
