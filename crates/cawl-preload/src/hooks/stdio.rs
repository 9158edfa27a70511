//! What gives bytes to a stream, printf apart.

use crate::base::{guard, real};
use crate::hooks::emit::stream::after;
use crate::session;
use crate::state::stream_table::{before, before_giving, standard_error, standard_output};
use cawl_wire::{Op, flag};
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, size_t};

/// What a call that takes one byte accepted.
fn one(returned: c_int) -> i64 {
    if returned == libc::EOF { -1 } else { 1 }
}

/// What a call that takes a string accepts, `extra` bytes added to it. To be asked before the call: until then the
/// string is there, and the C library's own first look is at its length, too.
///
/// # Safety
/// `text` must be a string.
unsafe fn string(text: *const c_char, extra: u64) -> u64 {
    if text.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { libc::strlen(text) as u64 + extra }
}

fn all_or_failed(length: u64, returned: c_int) -> i64 {
    if returned < 0 { -1 } else { length as i64 }
}

macro_rules! fwrite_body {
    ($real:ident, $data:ident, $size:ident, $count:ident, $stream:ident) => {{
        // Asked for nothing, the C library does not look at the stream.
        if !session::active() || $size.wrapping_mul($count) == 0 {
            return real::$real($data, $size, $count, $stream);
        }
        let requested = ($size as u64).saturating_mul($count as u64);
        let before = before_giving($stream, requested);
        let returned = real::$real($data, $size, $count, $stream);
        let accepted = (returned as u64).saturating_mul($size as u64);
        // Fewer elements than asked: an error, but what was accepted counts.
        after(Op::StreamWrite, $stream, before, requested, accepted as i64, 0);
        returned
    }};
}

macro_rules! fputs_body {
    ($real:ident, $text:ident, $stream:ident) => {{
        if !session::active() {
            return real::$real($text, $stream);
        }
        let length = string($text, 0);
        let before = before_giving($stream, length);
        let returned = real::$real($text, $stream);
        after(Op::StreamWrite, $stream, before, length, all_or_failed(length, returned), 0);
        returned
    }};
}

macro_rules! fputc_body {
    ($call:expr, $stream:expr) => {{
        if !session::active() {
            return $call;
        }
        let stream = $stream;
        let before = before_giving(stream, 1);
        let returned = $call;
        after(Op::StreamWrite, stream, before, 1, one(returned), 0);
        returned
    }};
}

hooks! {
    fn fwrite, _IO_fwrite(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        fwrite_body!(fwrite, data, size, count, stream)
    }

    fn fwrite_unlocked(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        fwrite_body!(fwrite_unlocked, data, size, count, stream)
    }

    fn fputs, _IO_fputs(text: *const c_char, stream: *mut FILE) -> c_int {
        fputs_body!(fputs, text, stream)
    }

    fn fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int {
        fputs_body!(fputs_unlocked, text, stream)
    }

    fn fputc(byte: c_int, stream: *mut FILE) -> c_int {
        fputc_body!(real::fputc(byte, stream), stream)
    }

    fn fputc_unlocked(byte: c_int, stream: *mut FILE) -> c_int {
        fputc_body!(real::fputc_unlocked(byte, stream), stream)
    }

    fn putc, _IO_putc(byte: c_int, stream: *mut FILE) -> c_int {
        fputc_body!(real::putc(byte, stream), stream)
    }

    fn putc_unlocked(byte: c_int, stream: *mut FILE) -> c_int {
        fputc_body!(real::putc_unlocked(byte, stream), stream)
    }

    fn putchar(byte: c_int) -> c_int {
        fputc_body!(real::putchar(byte), standard_output())
    }

    fn putchar_unlocked(byte: c_int) -> c_int {
        fputc_body!(real::putchar_unlocked(byte), standard_output())
    }

    // The form in which an inlined putc_unlocked surfaces when the buffer is full.
    fn __overflow(stream: *mut FILE, byte: c_int) -> c_int {
        fputc_body!(real::__overflow(stream, byte), stream)
    }

    fn puts, _IO_puts(text: *const c_char) -> c_int {
        if !session::active() {
            return real::puts(text);
        }
        let length = string(text, 1);
        let stream = standard_output();
        let before = before_giving(stream, length);
        let returned = real::puts(text);
        after(Op::StreamWrite, stream, before, length, all_or_failed(length, returned), 0);
        returned
    }

    fn putw(word: c_int, stream: *mut FILE) -> c_int {
        if !session::active() {
            return real::putw(word, stream);
        }
        let length = size_of::<c_int>() as u64;
        let before = before_giving(stream, length);
        let returned = real::putw(word, stream);
        after(Op::StreamWrite, stream, before, length, all_or_failed(length, returned), 0);
        returned
    }

    fn perror(text: *const c_char) -> () {
        if !session::active() {
            return real::perror(text);
        }
        let number = guard::errno();
        // "text: message\n"; the message is the untranslated one, hence an estimate.
        let prefix = match string(text, 0) {
            0 => 0,
            length => length + 2,
        };
        let stream = standard_error();
        let before = before(stream);
        real::perror(text);
        let message = real::strerrordesc_np(number);
        let length = prefix + if message.is_null() { 0 } else { CStr::from_ptr(message).count_bytes() as u64 } + 1;
        after(Op::StreamWrite, stream, before, length, length as i64, flag::ESTIMATED);
    }
}
