//! Looks at names: stat and relatives, and the entries of folders. Only what succeeds is told, with the
//! device and the kind of what was found, which the kernel has just written into the program's memory.

use crate::base::settings::reads;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::{around, record};
use cawl_wire::{FileKind, Op};
use core::ffi::{c_char, c_int, c_uint, c_void};

#[inline(never)]
fn record_stat(op: Op, times: (u64, u64), returned: i64, (dev, mode): (u64, u32)) {
    let Some(inside) = guard::enter_or_count() else { return };
    record(&inside, op, times, None, returned, |event| {
        (event.dev, event.kind) = (dev, FileKind::from_mode(mode));
    });
}

/// Makes a call that looks at a name and says what it found in `found`, and records it.
///
/// # Safety
/// After a call that returns 0, `found` is what `read` reads.
#[inline(always)]
unsafe fn looking<T>(found: *const T, read: fn(&T) -> (u64, u32), call: impl FnOnce() -> c_int) -> c_int {
    if !reads() {
        return call();
    }
    around(call, |start, returned| {
        if returned == 0 {
            let end = clock::now();
            // SAFETY: the kernel, or the function behind the hook, has written it.
            record_stat(Op::Stat, (start, end), 0, read(unsafe { &*found }));
        }
    })
}

fn of_stat(found: &libc::stat) -> (u64, u32) {
    (found.st_dev, found.st_mode)
}

fn of_statx(found: &libc::statx) -> (u64, u32) {
    (libc::makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_mode.into())
}

/// It is about a descriptor itself, as fstat, mostly: the name is not looked at before the call.
fn is_fstat(flags: c_int) -> bool {
    flags & libc::AT_EMPTY_PATH != 0
}

/// Where the C library (glibc, dirent/dirstream.h) keeps what the kernel gave of a folder. The first entry of
/// each part lies there, all others behind it.
const DATA: usize = 48;

/// Bytes that the kernel has given of a folder, of which this is the first entry; 0: not known. The C library
/// keeps their number, and the place behind this entry, in the words 2 and 3 of the folder; where that is not
/// so, nothing fits.
unsafe fn part(folder: *const c_void, entry: *const libc::dirent) -> i64 {
    let word = |at: usize| {
        // SAFETY: the C library has read it, as far as its data at least, which is where the entry is.
        unsafe { folder.cast::<usize>().add(at).read() }
    };
    let (allocated, bytes, place) = (word(1), word(2), word(3));
    // SAFETY: an entry that the C library has just returned.
    let own = usize::from(unsafe { (*entry).d_reclen });
    if place == own && place <= bytes && bytes <= allocated && allocated <= 1 << 20 {
        bytes as i64
    } else {
        0
    }
}

/// Makes a call that takes the next entry of a folder, and records it if the kernel was asked for more: the
/// entry is the first of a part, or there is none.
#[inline(always)]
unsafe fn listing(folder: *mut c_void, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if !reads() {
        return call();
    }
    around(call, |start, entry| {
        if (entry.is_null() || entry as usize == folder as usize + DATA) && !folder.is_null() {
            let end = clock::now();
            // SAFETY: the call has returned an entry of this folder, or none.
            unsafe { listed(folder, entry.cast(), (start, end)) };
        }
    })
}

#[inline(never)]
unsafe fn listed(folder: *mut c_void, entry: *const libc::dirent, times: (u64, u64)) {
    // SAFETY: the caller's promise, and a folder that the C library has just read.
    let (bytes, fd) = unsafe { (if entry.is_null() { 0 } else { part(folder, entry) }, real::dirfd(folder)) };
    if let Some(found) = sys::fstat_for(fd, of_stat) {
        record_stat(Op::List, times, bytes, found);
    }
}

hooks! {
    word fn stat(path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || real::stat(path, found));

    word fn stat64(path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || real::stat64(path, found));

    word fn lstat(path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || real::lstat(path, found));

    word fn lstat64(path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || real::lstat64(path, found));

    word fn fstatat, fstatat64(
        directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int,
    ) -> c_int {
        if is_fstat(flags) {
            return next(directory, path, found, flags);
        }
        looking(found.cast(), of_stat, || next(directory, path, found, flags))
    }

    word fn statx(
        directory: c_int, path: *const c_char, flags: c_int, wanted: c_uint, found: *mut c_void,
    ) -> c_int {
        if is_fstat(flags) {
            return real::statx(directory, path, flags, wanted, found);
        }
        looking(found.cast(), of_statx, || real::statx(directory, path, flags, wanted, found))
    }

    word fn __xstat, __xstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || next(version, path, found));

    word fn __lxstat, __lxstat64(version: c_int, path: *const c_char, found: *mut c_void) -> c_int =
        looking(found.cast(), of_stat, || next(version, path, found));

    word fn __fxstatat, __fxstatat64(
        version: c_int, directory: c_int, path: *const c_char, found: *mut c_void, flags: c_int,
    ) -> c_int {
        if is_fstat(flags) {
            return next(version, directory, path, found, flags);
        }
        looking(found.cast(), of_stat, || next(version, directory, path, found, flags))
    }

    word fn readdir, readdir64(folder: *mut c_void) -> *mut c_void = listing(folder, || next(folder));
}
