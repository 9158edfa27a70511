//! Opening, flushing, moving and closing streams.

use crate::base::thread::thread;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::reading;
use crate::hooks::emit::resident::before_writes_of;
use crate::hooks::emit::stream::{after, after_all, closing, opened};
use crate::hooks::emit::{around, closed, did};
use crate::hooks::open;
use crate::session;
use crate::state::creation::Creation;
use crate::state::descriptors;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::{self, Before, before, peek};
use crate::tries;
use cawl_wire::{Op, UNKNOWN_OFFSET, flag};
use core::ffi::{CStr, c_char, c_int, c_long};
use libc::{FILE, off_t, size_t};

/// Calls something that flushes all streams.
fn flush_all(call: impl FnOnce() -> c_int) -> c_int {
    let any = stream_table::before_all();
    let start = clock::now();
    let returned = call();
    if any {
        after_all(start, i64::from(returned));
    }
    returned
}

/// Length of the file of this name, which a call of this mode is about to cut off, in bytes; or that there is
/// none.
///
/// # Safety
/// `mode` must be what the C library is about to read.
unsafe fn length_before(path: *const c_char, mode: *const c_char) -> u64 {
    // SAFETY: the caller's promise.
    let cuts = session::active() && !path.is_null() && !mode.is_null() && unsafe { *mode } == b'w' as c_char;
    if cuts { open::length_before(libc::AT_FDCWD, path) } else { UNKNOWN_OFFSET }
}

/// What a mode means for the opening, `then` being the time before it, and `length` that of its file.
///
/// # Safety
/// `mode` must be null, or what a function took that succeeded.
unsafe fn mode_flags(mode: *const c_char, (then, length): ((i64, u32), u64)) -> (Creation, u32, u64) {
    if mode.is_null() {
        return (Creation::Never, 0, UNKNOWN_OFFSET);
    }
    // SAFETY: the caller's promise.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let bit = |given: bool, flag: u32| if given { flag } else { 0 };
    // What follows a comma is the name of a character set.
    let close = mode.iter().take_while(|byte| **byte != b',').any(|byte| *byte == b'e');
    let flags = bit(mode.first() == Some(&b'w'), flag::TRUNC) | bit(close, flag::CLOEXEC);
    (Creation::of_mode(mode, then), flags, length)
}

/// A stream was moved, which flushes it; its descriptor may have moved too.
fn moved(stream: Stream, before: Before, returned: i64) {
    let fd = stream.descriptor();
    if fd < 0 || !stream.is_writable() {
        return;
    }
    let at = sys::position(fd);
    if let (Some(file), Some(at)) = (descriptors::if_known(fd), at) {
        file.moved_to(thread(), fd, at, before.start);
    }
    did(Op::StreamSeek, before.start, fd, returned, |event| {
        event.pending_before = before.pending;
        event.pending_after = stream.pending();
        event.flags |= flag::STREAM_KNOWN;
        event.offset = at.unwrap_or(UNKNOWN_OFFSET);
    });
}

/// Makes a call that moves a stream, and records it.
#[inline(always)]
fn moving(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let before = peek(stream);
    let returned = reading::moving(stream, call);
    moved(stream, before, i64::from(returned));
    returned
}

/// Makes a call that flushes a stream, or all if there is none, and records it.
#[inline(always)]
fn flushing(stream: Option<Stream>, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let Some(stream) = stream else { return flush_all(call) };
    if !stream.is_writable() {
        return call();
    }
    let before = before(stream);
    let returned = call();
    after(Op::StreamFlush, stream, before, 0, i64::from(returned), 0);
    returned
}

/// Makes a call that changes how a stream buffers: going unbuffered writes out what is pending.
#[inline(always)]
fn rebuffering(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let before = peek(stream);
    let returned = call();
    if before.pending > 0 {
        after(Op::StreamFlush, stream, before, 0, i64::from(returned), 0);
    }
    returned
}

/// Makes a call that closes a stream, and records it; `outcome` tells what its result means.
///
/// # Safety
/// `stream` must be null or open.
#[inline(always)]
unsafe fn ending<T: Copy>(stream: *mut FILE, call: impl FnOnce() -> T, outcome: impl FnOnce(T) -> i64) -> T {
    let buffer = tries::take_back(stream);
    if !session::active() || stream.is_null() {
        stream_table::forget(stream);
        let returned = call();
        // SAFETY: it is closed.
        unsafe { tries::give_back(buffer) };
        return returned;
    }
    // SAFETY: the caller's promise.
    let event = closing(unsafe { Stream::open(stream) });
    let start = clock::now();
    let returned = call();
    closed(event, start, outcome(returned));
    // SAFETY: it is closed.
    unsafe { tries::give_back(buffer) };
    returned
}

hooks! {
    fn fopen, fopen64, _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let then = (sys::coarse_time(), length_before(path, mode));
        around(|| next(path, mode), |start, stream| {
            if let Some(stream) = Stream::if_any(stream) {
                opened(start, stream, true, path, mode_flags(mode, then));
                before_writes_of(stream);
            }
        })
    }

    fn fdopen, _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        around(|| next(fd, mode), |start, stream| {
            if let Some(stream) = Stream::if_any(stream) {
                // "a" makes the C library set O_APPEND on the descriptor.
                if !mode.is_null() && *mode == b'a' as c_char && let Some(_inside) = guard::enter() {
                    descriptors::flags_changed(fd);
                }
                opened(start, stream, false, core::ptr::null(), (Creation::Never, 0, UNKNOWN_OFFSET));
            }
        })
    }

    fn freopen, freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        let buffer = tries::take_back(stream);
        if !session::active() || stream.is_null() {
            stream_table::forget(stream);
            let again = next(path, mode, stream);
            tries::give_back(buffer);
            return again;
        }
        let event = closing(Stream::open(stream));
        let then = (sys::coarse_time(), length_before(path, mode));
        let start = clock::now();
        let again = next(path, mode, stream);
        closed(event, start, if again.is_null() { -1 } else { 0 });
        tries::give_back(buffer);
        if let Some(stream) = Stream::if_any(again) {
            opened(start, stream, true, path, mode_flags(mode, then));
            before_writes_of(stream);
        }
        again
    }

    fn tmpfile, tmpfile64() -> *mut FILE = around(|| next(), |start, stream| {
        if let Some(stream) = Stream::if_any(stream) {
            opened(start, stream, true, core::ptr::null(), (Creation::Always, flag::TMPFILE, UNKNOWN_OFFSET));
        }
    });

    fn fclose, _IO_fclose(stream: *mut FILE) -> c_int = ending(stream, || next(stream), i64::from);
    fn endmntent(stream: *mut FILE) -> c_int = ending(stream, || real::endmntent(stream), |_| 0);

    fn fcloseall() -> c_int {
        if !session::active() {
            return real::fcloseall();
        }
        flush_all(|| real::fcloseall())
    }

    fn fflush, _IO_fflush(stream: *mut FILE) -> c_int =
        flushing(Stream::if_any(stream), || next(stream));

    fn fflush_unlocked(stream: *mut FILE) -> c_int =
        flushing(Stream::if_any(stream), || real::fflush_unlocked(stream));

    fn fseek(stream: Stream, offset: c_long, whence: c_int) -> c_int =
        moving(stream, || real::fseek(stream.file(), offset, whence));

    fn fseeko, fseeko64(stream: Stream, offset: off_t, whence: c_int) -> c_int =
        moving(stream, || next(stream.file(), offset, whence));

    fn rewind(stream: Stream) -> () {
        moving(stream, || {
            real::rewind(stream.file());
            0
        });
    }

    fn fsetpos, fsetpos64, _IO_fsetpos, _IO_fsetpos64(
        stream: Stream, position: *const libc::fpos_t,
    ) -> c_int = moving(stream, || next(stream.file(), position));

    fn setvbuf, _IO_setvbuf(stream: Stream, buffer: *mut c_char, mode: c_int, size: size_t) -> c_int =
        rebuffering(stream, || next(stream.file(), buffer, mode, size));

    fn setbuffer, _IO_setbuffer(stream: Stream, buffer: *mut c_char, size: size_t) -> () {
        rebuffering(stream, || {
            next(stream.file(), buffer, size);
            0
        });
    }

    fn setbuf(stream: Stream, buffer: *mut c_char) -> () = setbuffer(stream, buffer, libc::BUFSIZ as size_t);

    fn setlinebuf(stream: Stream) -> () {
        setvbuf(stream, core::ptr::null_mut(), libc::_IOLBF, 0);
    }
}
