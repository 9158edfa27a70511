//! Opening, flushing, moving and closing streams.

use crate::base::thread::thread;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::did;
use crate::hooks::emit::stream::{after, after_all, closed, closing, opened};
use crate::session;
use crate::state::descriptors;
use crate::state::glibc_file::{descriptor, pending};
use crate::state::stream_table::{self, Before, before, peek};
use cawl_wire::{Op, flag};
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

/// What a mode means for the opening.
///
/// # Safety
/// `mode` must be null, or what a function took that succeeded.
unsafe fn mode_flags(mode: *const c_char) -> u32 {
    if mode.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let bit = |given: bool, flag: u32| if given { flag } else { 0 };
    // What follows a comma is the name of a character set.
    let close = mode.iter().take_while(|byte| **byte != b',').any(|byte| *byte == b'e');
    bit(mode.first() == Some(&b'w'), flag::TRUNC) | bit(close, flag::CLOEXEC)
}

/// A stream was moved, which flushes it; its descriptor may have moved too.
///
/// # Safety
/// `stream` must be open.
unsafe fn moved(stream: *mut FILE, before: Before, returned: i64) {
    // SAFETY: the caller's promise.
    let (fd, writable) = unsafe { (descriptor(stream), real::__fwritable(stream) != 0) };
    if fd < 0 || !writable {
        return;
    }
    let at = sys::position(fd);
    if let (Some(file), Some(at)) = (descriptors::if_known(fd), at) {
        file.moved_to(thread(), fd, at, before.start);
    }
    did(Op::StreamSeek, before.start, fd, returned, |event| {
        event.pending_before = before.pending;
        // SAFETY: the caller's promise.
        event.pending_after = unsafe { pending(stream) };
        event.flags |= flag::STREAM_KNOWN;
        event.offset = at.unwrap_or(cawl_wire::UNKNOWN_OFFSET);
    });
}

hooks! {
    fn fopen, fopen64, _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        if !session::active() {
            return real::fopen(path, mode);
        }
        let start = clock::now();
        let stream = real::fopen(path, mode);
        if !stream.is_null() {
            opened(start, stream, true, path, mode_flags(mode));
        }
        stream
    }

    fn fdopen, _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if !session::active() {
            return real::fdopen(fd, mode);
        }
        let start = clock::now();
        let stream = real::fdopen(fd, mode);
        if !stream.is_null() {
            // "a" makes the C library set O_APPEND on the descriptor.
            if !mode.is_null() && *mode == b'a' as c_char && let Some(_inside) = guard::enter() {
                descriptors::flags_changed(fd);
            }
            opened(start, stream, false, core::ptr::null(), 0);
        }
        stream
    }

    fn freopen, freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        if !session::active() || stream.is_null() {
            stream_table::forget(stream);
            return real::freopen(path, mode, stream);
        }
        let event = closing(stream);
        let start = clock::now();
        let again = real::freopen(path, mode, stream);
        closed(event, start, if again.is_null() { -1 } else { 0 });
        if !again.is_null() {
            opened(start, again, true, path, mode_flags(mode));
        }
        again
    }

    fn tmpfile, tmpfile64() -> *mut FILE {
        if !session::active() {
            return real::tmpfile();
        }
        let start = clock::now();
        let stream = real::tmpfile();
        if !stream.is_null() {
            opened(start, stream, true, core::ptr::null(), flag::TMPFILE);
        }
        stream
    }

    fn fclose, _IO_fclose(stream: *mut FILE) -> c_int {
        if !session::active() || stream.is_null() {
            stream_table::forget(stream);
            return real::fclose(stream);
        }
        let event = closing(stream);
        let start = clock::now();
        let returned = real::fclose(stream);
        closed(event, start, i64::from(returned));
        returned
    }

    fn endmntent(stream: *mut FILE) -> c_int {
        if !session::active() || stream.is_null() {
            stream_table::forget(stream);
            return real::endmntent(stream);
        }
        let event = closing(stream);
        let start = clock::now();
        let returned = real::endmntent(stream);
        closed(event, start, 0);
        returned
    }

    fn fcloseall() -> c_int {
        if !session::active() {
            return real::fcloseall();
        }
        flush_all(|| real::fcloseall())
    }

    fn fflush, _IO_fflush(stream: *mut FILE) -> c_int {
        if !session::active() {
            return real::fflush(stream);
        }
        if stream.is_null() {
            return flush_all(|| real::fflush(stream));
        }
        if real::__fwritable(stream) == 0 {
            return real::fflush(stream);
        }
        let before = before(stream);
        let returned = real::fflush(stream);
        after(Op::StreamFlush, stream, before, 0, i64::from(returned), 0);
        returned
    }

    fn fflush_unlocked(stream: *mut FILE) -> c_int {
        if !session::active() {
            return real::fflush_unlocked(stream);
        }
        if stream.is_null() {
            return flush_all(|| real::fflush_unlocked(stream));
        }
        if real::__fwritable(stream) == 0 {
            return real::fflush_unlocked(stream);
        }
        let before = before(stream);
        let returned = real::fflush_unlocked(stream);
        after(Op::StreamFlush, stream, before, 0, i64::from(returned), 0);
        returned
    }

    fn fseek(stream: *mut FILE, offset: c_long, whence: c_int) -> c_int {
        if !session::active() {
            return real::fseek(stream, offset, whence);
        }
        let before = peek(stream);
        let returned = real::fseek(stream, offset, whence);
        moved(stream, before, i64::from(returned));
        returned
    }

    fn fseeko, fseeko64(stream: *mut FILE, offset: off_t, whence: c_int) -> c_int {
        if !session::active() {
            return real::fseeko(stream, offset, whence);
        }
        let before = peek(stream);
        let returned = real::fseeko(stream, offset, whence);
        moved(stream, before, i64::from(returned));
        returned
    }

    fn rewind(stream: *mut FILE) -> () {
        if !session::active() {
            return real::rewind(stream);
        }
        let before = peek(stream);
        real::rewind(stream);
        moved(stream, before, 0);
    }

    fn fsetpos, fsetpos64, _IO_fsetpos, _IO_fsetpos64(
        stream: *mut FILE, position: *const libc::fpos_t,
    ) -> c_int {
        if !session::active() {
            return real::fsetpos(stream, position);
        }
        let before = peek(stream);
        let returned = real::fsetpos(stream, position);
        moved(stream, before, i64::from(returned));
        returned
    }

    // Going unbuffered writes out what is pending.
    fn setvbuf, _IO_setvbuf(stream: *mut FILE, buffer: *mut c_char, mode: c_int, size: size_t) -> c_int {
        if !session::active() {
            return real::setvbuf(stream, buffer, mode, size);
        }
        let before = peek(stream);
        let returned = real::setvbuf(stream, buffer, mode, size);
        if before.pending > 0 {
            after(Op::StreamFlush, stream, before, 0, i64::from(returned), 0);
        }
        returned
    }

    fn setbuffer, _IO_setbuffer(stream: *mut FILE, buffer: *mut c_char, size: size_t) -> () {
        if !session::active() {
            return real::setbuffer(stream, buffer, size);
        }
        let before = peek(stream);
        real::setbuffer(stream, buffer, size);
        if before.pending > 0 {
            after(Op::StreamFlush, stream, before, 0, 0, 0);
        }
    }

    fn setbuf(stream: *mut FILE, buffer: *mut c_char) -> () {
        setbuffer(stream, buffer, libc::BUFSIZ as size_t)
    }

    fn setlinebuf(stream: *mut FILE) -> () {
        setvbuf(stream, core::ptr::null_mut(), libc::_IOLBF, 0);
    }
}
