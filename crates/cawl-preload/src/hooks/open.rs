//! Functions that open a descriptor. Only one that can write (or that truncated its file) is looked at
//! on the spot; the others are when something worth recording is done with them.

use crate::base::{guard, real};
use crate::hooks::emit::{around, did};
use crate::session;
use crate::state::descriptors::{self, Opening};
use crate::tries;
use cawl_wire::{Op, flag};
use core::ffi::{c_char, c_int, c_uint};
use libc::mode_t;

/// A descriptor came back from a call with these flags and this name: note it, and record it if it matters
/// for writes.
pub fn opened(start: u64, fd: c_int, flags: c_int, directory: c_int, name: *const c_char) {
    note(start, fd, flags, &Opening { flags: Some(flags), directory, name });
}

/// The same where the flags are only what is known of them, and there is no name.
pub fn opened_unnamed(start: u64, fd: c_int, flags: c_int) {
    note(start, fd, flags, &Opening::UNKNOWN);
}

fn note(start: u64, fd: c_int, flags: c_int, opening: &Opening) {
    if fd < 0 {
        return;
    }
    let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let worth_it = (writable || flags & libc::O_TRUNC != 0) && flags & libc::O_PATH == 0;
    let size = {
        let Some(_inside) = guard::enter() else {
            descriptors::forget(fd);
            if worth_it {
                guard::count_unseen();
            }
            return;
        };
        if !session::is_ours() {
            return;
        }
        let size = session::opened(fd, worth_it.then_some(opening));
        if size == Some(0) {
            tries::opened_empty(fd);
        }
        size
    };
    if worth_it {
        did(Op::Open, start, fd, i64::from(fd), |event| {
            // F_GETFL does not tell the flags that only mattered at the opening.
            event.flags |= descriptors::event_flags(flags & (libc::O_TRUNC | libc::O_TMPFILE));
            event.requested = size.unwrap_or(0);
            if flags & libc::O_CLOEXEC != 0 {
                event.flags |= flag::CLOEXEC;
            }
        });
    }
}

hooks! {
    fn open, open64, __open, __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        around(|| real::open(path, flags, mode), |start, fd| opened(start, fd, flags, libc::AT_FDCWD, path));

    fn openat, openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int = around(
        || real::openat(directory, path, flags, mode),
        |start, fd| opened(start, fd, flags, directory, path),
    );

    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int =
        around(|| real::__open_2(path, flags), |start, fd| opened(start, fd, flags, libc::AT_FDCWD, path));

    fn __openat_2, __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int = around(
        || real::__openat_2(directory, path, flags),
        |start, fd| opened(start, fd, flags, directory, path),
    );

    fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int = around(
        || real::creat(path, mode),
        |start, fd| opened(start, fd, libc::O_WRONLY | libc::O_TRUNC, libc::AT_FDCWD, path),
    );

    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int =
        around(|| real::mkstemp(template), |start, fd| opened_unnamed(start, fd, libc::O_RDWR));

    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int = around(
        || real::mkostemp(template, flags),
        |start, fd| opened_unnamed(start, fd, libc::O_RDWR | flags & libc::O_CLOEXEC),
    );

    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int =
        around(|| real::mkstemps(template, suffix), |start, fd| opened_unnamed(start, fd, libc::O_RDWR));

    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int = around(
        || real::mkostemps(template, suffix, flags),
        |start, fd| opened_unnamed(start, fd, libc::O_RDWR | flags & libc::O_CLOEXEC),
    );

    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int =
        around(|| real::memfd_create(name, flags), |start, fd| opened_unnamed(start, fd, libc::O_RDWR));

    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        around(|| real::shm_open(name, flags, mode), |start, fd| opened_unnamed(start, fd, flags));
}
