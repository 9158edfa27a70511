//! Functions that open a descriptor. Only one that can write (or that truncated its file) is looked at
//! on the spot; the others are when something worth recording is done with them.

use crate::base::{clock, guard, real};
use crate::hooks::emit::did;
use crate::session;
use crate::state::descriptors::{self, Opening};
use cawl_wire::{Op, flag};
use core::ffi::{c_char, c_int, c_uint};
use libc::mode_t;

/// A descriptor came back from a call with these flags and this name: note it, and record it if it matters for writes.
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
        session::opened(fd, worth_it.then_some(opening))
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
    fn open, open64, __open, __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        if !session::active() {
            return real::open(path, flags, mode);
        }
        let start = clock::now();
        let fd = real::open(path, flags, mode);
        opened(start, fd, flags, libc::AT_FDCWD, path);
        fd
    }

    fn openat, openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        if !session::active() {
            return real::openat(directory, path, flags, mode);
        }
        let start = clock::now();
        let fd = real::openat(directory, path, flags, mode);
        opened(start, fd, flags, directory, path);
        fd
    }

    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int {
        if !session::active() {
            return real::__open_2(path, flags);
        }
        let start = clock::now();
        let fd = real::__open_2(path, flags);
        opened(start, fd, flags, libc::AT_FDCWD, path);
        fd
    }

    fn __openat_2, __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        if !session::active() {
            return real::__openat_2(directory, path, flags);
        }
        let start = clock::now();
        let fd = real::__openat_2(directory, path, flags);
        opened(start, fd, flags, directory, path);
        fd
    }

    fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int {
        if !session::active() {
            return real::creat(path, mode);
        }
        let start = clock::now();
        let fd = real::creat(path, mode);
        opened(start, fd, libc::O_WRONLY | libc::O_TRUNC, libc::AT_FDCWD, path);
        fd
    }

    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int {
        if !session::active() {
            return real::mkstemp(template);
        }
        let start = clock::now();
        let fd = real::mkstemp(template);
        opened_unnamed(start, fd, libc::O_RDWR);
        fd
    }

    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        if !session::active() {
            return real::mkostemp(template, flags);
        }
        let start = clock::now();
        let fd = real::mkostemp(template, flags);
        opened_unnamed(start, fd, libc::O_RDWR | flags & libc::O_CLOEXEC);
        fd
    }

    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
        if !session::active() {
            return real::mkstemps(template, suffix);
        }
        let start = clock::now();
        let fd = real::mkstemps(template, suffix);
        opened_unnamed(start, fd, libc::O_RDWR);
        fd
    }

    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
        if !session::active() {
            return real::mkostemps(template, suffix, flags);
        }
        let start = clock::now();
        let fd = real::mkostemps(template, suffix, flags);
        opened_unnamed(start, fd, libc::O_RDWR | flags & libc::O_CLOEXEC);
        fd
    }

    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int {
        if !session::active() {
            return real::memfd_create(name, flags);
        }
        let start = clock::now();
        let fd = real::memfd_create(name, flags);
        opened_unnamed(start, fd, libc::O_RDWR);
        fd
    }

    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        if !session::active() {
            return real::shm_open(name, flags, mode);
        }
        let start = clock::now();
        let fd = real::shm_open(name, flags, mode);
        opened_unnamed(start, fd, flags);
        fd
    }
}
