//! Wide streams. The C library counts their buffer in characters and turns them into bytes when it
//! flushes; a character is taken for one byte, and the event says that it is an estimate.

use crate::base::real;
use crate::hooks::emit::stream::giving;
use crate::state::stream_table::standard_output;
use cawl_wire::flag;
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

/// Gives a stream one character.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
unsafe fn put(stream: *mut FILE, call: impl FnOnce() -> c_uint) -> c_uint {
    let accepted = |returned, _| if returned == WEOF { -1 } else { 1 };
    // SAFETY: the caller's promise.
    unsafe { giving(stream, || 1, flag::ESTIMATED, call, accepted) }
}

/// Gives a stream a string.
///
/// # Safety
/// `stream` must be open, and `text` a string.
#[inline(always)]
unsafe fn put_string(stream: *mut FILE, text: *const wchar_t, call: impl FnOnce() -> c_int) -> c_int {
    let accepted = |returned, length| if returned < 0 { -1 } else { length as i64 };
    // SAFETY: the caller's promise.
    unsafe { giving(stream, || length(text), flag::ESTIMATED, call, accepted) }
}

hooks! {
    fn fputwc(wide: wchar_t, stream: *mut FILE) -> c_uint {
        put(stream, || real::fputwc(wide, stream))
    }

    fn fputwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint {
        put(stream, || real::fputwc_unlocked(wide, stream))
    }

    fn putwc(wide: wchar_t, stream: *mut FILE) -> c_uint {
        put(stream, || real::putwc(wide, stream))
    }

    fn putwc_unlocked(wide: wchar_t, stream: *mut FILE) -> c_uint {
        put(stream, || real::putwc_unlocked(wide, stream))
    }

    fn putwchar(wide: wchar_t) -> c_uint {
        put(standard_output(), || real::putwchar(wide))
    }

    fn putwchar_unlocked(wide: wchar_t) -> c_uint {
        put(standard_output(), || real::putwchar_unlocked(wide))
    }

    fn __woverflow(stream: *mut FILE, wide: c_uint) -> c_uint {
        put(stream, || real::__woverflow(stream, wide))
    }

    fn fputws(text: *const wchar_t, stream: *mut FILE) -> c_int {
        put_string(stream, text, || real::fputws(text, stream))
    }

    fn fputws_unlocked(text: *const wchar_t, stream: *mut FILE) -> c_int {
        put_string(stream, text, || real::fputws_unlocked(text, stream))
    }
}
