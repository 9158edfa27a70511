//! What gives bytes to a stream, printf apart.

use crate::base::{guard, real};
use crate::hooks::emit::stream::{after, giving};
use crate::session;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::{before, standard_error, standard_output};
use cawl_wire::{Op, flag};
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, size_t};

/// What a call that takes a string accepts, `extra` bytes added to it. To be asked before the call: until
/// then the string is there, and the C library's own first look is at its length, too.
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

fn all_or_failed(returned: c_int, length: u64) -> i64 {
    if returned < 0 { -1 } else { length as i64 }
}

/// Gives a stream one byte.
#[inline(always)]
fn put(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    giving(stream, || 1, 0, call, |returned, _| if returned == libc::EOF { -1 } else { 1 })
}

/// Gives a stream elements, of which it says how many it took. Fewer than asked: an error, but what was
/// accepted counts.
///
/// # Safety
/// `stream` must be open, unless nothing is asked for.
#[inline(always)]
unsafe fn put_elements(
    stream: *mut FILE,
    size: size_t,
    count: size_t,
    call: impl FnOnce() -> size_t,
) -> size_t {
    // Asked for nothing, the C library does not look at the stream.
    if size.wrapping_mul(count) == 0 {
        return call();
    }
    let bytes = |count: size_t| (size as u64).saturating_mul(count as u64);
    // SAFETY: the caller's promise.
    let stream = unsafe { Stream::open(stream) };
    giving(stream, || bytes(count), 0, call, |returned, _| bytes(returned) as i64)
}

hooks! {
    fn fwrite, _IO_fwrite(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        put_elements(stream, size, count, || next(data, size, count, stream));

    fn fwrite_unlocked(data: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t =
        put_elements(stream, size, count, || real::fwrite_unlocked(data, size, count, stream));

    fn fputs, _IO_fputs(text: *const c_char, stream: Stream) -> c_int =
        giving(stream, || string(text, 0), 0, || next(text, stream.file()), all_or_failed);

    fn fputs_unlocked(text: *const c_char, stream: Stream) -> c_int =
        giving(stream, || string(text, 0), 0, || real::fputs_unlocked(text, stream.file()), all_or_failed);

    fn fputc(byte: c_int, stream: Stream) -> c_int = put(stream, || real::fputc(byte, stream.file()));

    fn fputc_unlocked(byte: c_int, stream: Stream) -> c_int =
        put(stream, || real::fputc_unlocked(byte, stream.file()));

    fn putc, _IO_putc(byte: c_int, stream: Stream) -> c_int = put(stream, || next(byte, stream.file()));

    fn putc_unlocked(byte: c_int, stream: Stream) -> c_int =
        put(stream, || real::putc_unlocked(byte, stream.file()));

    fn putchar(byte: c_int) -> c_int = put(Stream::open(standard_output()), || real::putchar(byte));

    fn putchar_unlocked(byte: c_int) -> c_int =
        put(Stream::open(standard_output()), || real::putchar_unlocked(byte));

    // The form in which an inlined putc_unlocked surfaces when the buffer is full.
    fn __overflow(stream: Stream, byte: c_int) -> c_int =
        put(stream, || real::__overflow(stream.file(), byte));

    fn puts, _IO_puts(text: *const c_char) -> c_int =
        giving(Stream::open(standard_output()), || string(text, 1), 0, || next(text), all_or_failed);

    word fn putw(word: c_int, stream: Stream) -> c_int =
        giving(stream, || size_of::<c_int>() as u64, 0, || real::putw(word, stream.file()), all_or_failed);

    word fn perror(text: *const c_char) -> () {
        if !session::active() {
            return real::perror(text);
        }
        let number = guard::errno();
        // "text: message\n"; the message is the untranslated one, hence an estimate.
        let prefix = match string(text, 0) {
            0 => 0,
            length => length + 2,
        };
        let stream = Stream::open(standard_error());
        let before = before(stream);
        real::perror(text);
        let message = real::strerrordesc_np(number);
        let length = prefix + if message.is_null() { 0 } else { CStr::from_ptr(message).count_bytes() as u64 } + 1;
        after(Op::StreamWrite, stream, before, length, length as i64, flag::ESTIMATED);
    }
}
