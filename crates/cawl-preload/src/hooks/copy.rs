//! Copies inside the kernel, and changes of a file's length and space. The event of a copy is about its
//! destination.

use crate::hooks::write::asked;
use crate::record::{Place, did, happened, wrote};
use crate::{announce, birth, interrupted, real, sys, uplink};
use cawl_wire::{FileKind, Op};
use core::ffi::{c_char, c_int, c_uint};
use libc::{off_t, size_t, ssize_t};

/// Where a copy wrote: at the offset that the program gave and the kernel then moved on, or at the
/// descriptor's own position.
///
/// # Safety
/// `at` must be null or valid after a call that succeeded.
pub unsafe fn place(at: *mut off_t, returned: ssize_t) -> Place {
    if at.is_null() {
        return Place::Own;
    }
    if returned < 0 {
        return Place::Nowhere;
    }
    // SAFETY: the kernel has just written there.
    unsafe { Place::At((at.read_unaligned() - returned as off_t) as u64) }
}

hooks! {
    fn copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint,
    ) -> ssize_t {
        if !uplink::active() {
            return real::copy_file_range(from, from_at, to, to_at, length, flags);
        }
        let start = interrupted::begin(to);
        let returned = real::copy_file_range(from, from_at, to, to_at, length, flags);
        wrote(Op::CopyRange, start, to, place(to_at, returned), length as u64, returned as i64, 0);
        returned
    }

    fn sendfile, sendfile64(to: c_int, from: c_int, at: *mut off_t, length: size_t) -> ssize_t {
        if !uplink::active() {
            return real::sendfile(to, from, at, length);
        }
        let start = interrupted::begin(to);
        let returned = real::sendfile(to, from, at, length);
        wrote(Op::Sendfile, start, to, Place::Own, length as u64, returned as i64, 0);
        returned
    }

    fn splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, length: size_t, flags: c_uint,
    ) -> ssize_t {
        if !uplink::active() {
            return real::splice(from, from_at, to, to_at, length, flags);
        }
        let start = interrupted::begin(to);
        let returned = real::splice(from, from_at, to, to_at, length, flags);
        wrote(Op::Splice, start, to, place(to_at, returned), length as u64, returned as i64, 0);
        returned
    }

    // These only ever fill pipes.
    fn tee(from: c_int, to: c_int, length: size_t, flags: c_uint) -> ssize_t {
        if !uplink::active() {
            return real::tee(from, to, length, flags);
        }
        let start = sys::now();
        let returned = real::tee(from, to, length, flags);
        wrote(Op::Splice, start, to, Place::Nowhere, length as u64, returned as i64, 0);
        returned
    }

    fn vmsplice(fd: c_int, parts: *const libc::iovec, count: size_t, flags: c_uint) -> ssize_t {
        if !uplink::active() {
            return real::vmsplice(fd, parts, count, flags);
        }
        let start = sys::now();
        let returned = real::vmsplice(fd, parts, count, flags);
        let requested = asked(parts, count as c_int, returned);
        wrote(Op::Splice, start, fd, Place::Nowhere, requested, returned as i64, 0);
        returned
    }

    fn ftruncate, ftruncate64(fd: c_int, length: off_t) -> c_int {
        if !uplink::active() {
            return real::ftruncate(fd, length);
        }
        let start = sys::now();
        let returned = real::ftruncate(fd, length);
        did(Op::Truncate, start, fd, i64::from(returned), |event| event.offset = length as u64);
        returned
    }

    fn truncate, truncate64(path: *const c_char, length: off_t) -> c_int {
        if !uplink::active() {
            return real::truncate(path, length);
        }
        let start = sys::now();
        let returned = real::truncate(path, length);
        happened(Op::Truncate, start, i64::from(returned), |event| {
            event.offset = length as u64;
            if returned == 0 && let Some(stat) = sys::stat_path(libc::AT_FDCWD, path, true) {
                let file = birth::at(libc::AT_FDCWD, path, true, &stat);
                announce::named_file(file, &stat, libc::AT_FDCWD, path);
                event.set_file(file);
                event.kind = FileKind::from_mode(stat.st_mode);
            }
        });
        returned
    }

    fn fallocate, fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
        if !uplink::active() {
            return real::fallocate(fd, mode, offset, length);
        }
        let start = sys::now();
        let returned = real::fallocate(fd, mode, offset, length);
        did(Op::Allocate, start, fd, i64::from(returned), |event| {
            event.offset = offset as u64;
            event.requested = length as u64;
            event.aux = mode as u32;
        });
        returned
    }

    // Returns the error instead of setting errno.
    fn posix_fallocate, posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
        if !uplink::active() {
            return real::posix_fallocate(fd, offset, length);
        }
        let start = sys::now();
        let failure = real::posix_fallocate(fd, offset, length);
        did(Op::Allocate, start, fd, if failure == 0 { 0 } else { -1 }, |event| {
            event.offset = offset as u64;
            event.requested = length as u64;
            event.errno = failure as u16;
        });
        failure
    }
}
