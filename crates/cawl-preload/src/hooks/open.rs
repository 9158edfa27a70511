//! Functions that open a descriptor. One that can write (or that truncated its file) is looked at on the
//! spot, and so is a file that can only be read, where reads are recorded; the others are when something
//! worth recording is done with them.

use crate::base::settings::reads;
use crate::base::{clock, guard, real, sys};
use crate::hooks::emit::{doubts, record, resident};
use crate::session;
use crate::state::creation::Creation;
use crate::state::descriptors::{self, Opening};
use crate::tries;
use cawl_wire::{FileKind, Op, UNKNOWN_OFFSET, flag};
use core::ffi::{c_char, c_int, c_uint};
use libc::mode_t;

/// Length of the file of this name, which a call is about to cut off, in bytes; or that there is none.
#[cold]
#[inline(never)]
pub fn length_before(directory: c_int, name: *const c_char) -> u64 {
    let looked = guard::enter().and_then(|_inside| sys::stat_path(directory, name, true));
    let is_file = |stat: &sys::Stat| FileKind::from_mode(stat.st_mode) == FileKind::Regular;
    looked.filter(is_file).map_or(UNKNOWN_OFFSET, |stat| stat.st_size as u64)
}

/// Makes a call that opens a descriptor with these flags, by this name if it is not null, and records it if
/// it matters for writes or reads.
#[inline(always)]
pub fn opening(
    flags: c_int,
    directory: c_int,
    name: *const c_char,
    creation: impl FnOnce() -> Creation,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !session::active() {
        return call();
    }
    let cuts = flags & (libc::O_TRUNC | libc::O_EXCL) == libc::O_TRUNC && !name.is_null();
    let length = if cuts { length_before(directory, name) } else { UNKNOWN_OFFSET };
    let creation = creation();
    let start = clock::now();
    let fd = call();
    let opening = Opening { flags: Some(flags), directory, name, ..Opening::UNKNOWN };
    note(start, fd, flags, (creation, length), opening);
    fd
}

/// What was before a call that always makes its file.
const MADE: (Creation, u64) = (Creation::Always, UNKNOWN_OFFSET);

/// Makes a call that always makes its file, of whose flags only these are known, and no name; records it.
#[inline(always)]
pub fn making(flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let start = clock::now();
    let fd = call();
    note(start, fd, libc::O_RDWR | flags & libc::O_CLOEXEC, MADE, Opening::UNKNOWN);
    fd
}

/// A descriptor came back from a call of whose flags only these are known, and no name.
pub fn opened_unnamed(start: u64, fd: c_int, flags: c_int) {
    note(start, fd, flags, (Creation::Never, UNKNOWN_OFFSET), Opening::UNKNOWN);
}

fn note(start: u64, fd: c_int, flags: c_int, before: (Creation, u64), mut opening: Opening) {
    let (creation, length) = before;
    if fd < 0 {
        return;
    }
    let end = clock::now();
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    let worth_it = flags & libc::O_PATH == 0 && (writes || flags & libc::O_DIRECTORY == 0 && reads());
    (opening.files_only, opening.since) = (!writes, creation.since());
    let Some(inside) = guard::enter() else {
        descriptors::forget(fd);
        if worth_it {
            guard::count_unseen();
        }
        return;
    };
    if !session::is_ours() {
        return;
    }
    doubts::replaced(&inside, fd);
    let Some(found) = session::opened(fd, worth_it.then_some(&opening)) else { return };
    if found.size() == 0 {
        tries::opened_empty(fd);
    }
    let created = creation.flag(fd, &found) | creation.copy_flag(fd, &found);
    let Some(file) = session::learn(fd) else { return };
    record(&inside, Op::Open, (start, end), Some((fd, file)), i64::from(fd), |event| {
        // F_GETFL does not tell the flags that only mattered at the opening.
        event.flags |= descriptors::event_flags(flags & (libc::O_TRUNC | libc::O_TMPFILE)) | created;
        (event.requested, event.offset) = (found.size(), length);
        if flags & libc::O_CLOEXEC != 0 {
            event.flags |= flag::CLOEXEC;
        }
    });
    resident::before_writes(&inside, fd, file, found.size());
}

hooks! {
    fn open, open64, __open, __open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int =
        opening(flags, libc::AT_FDCWD, path, || Creation::of(flags), || next(path, flags, mode));

    fn openat, openat64(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let call = || next(directory, path, flags, mode);
        opening(flags, directory, path, || Creation::of(flags), call)
    }

    fn __open_2, __open64_2(path: *const c_char, flags: c_int) -> c_int =
        opening(flags, libc::AT_FDCWD, path, || Creation::of(flags), || next(path, flags));

    fn __openat_2, __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        let call = || next(directory, path, flags);
        opening(flags, directory, path, || Creation::of(flags), call)
    }

    word fn creat, creat64(path: *const c_char, mode: mode_t) -> c_int {
        let creation = || Creation::of(libc::O_CREAT);
        opening(libc::O_WRONLY | libc::O_TRUNC, libc::AT_FDCWD, path, creation, || next(path, mode))
    }

    fn mkstemp, mkstemp64(template: *mut c_char) -> c_int = making(0, || next(template));

    fn mkostemp, mkostemp64(template: *mut c_char, flags: c_int) -> c_int =
        making(flags, || next(template, flags));

    fn mkstemps, mkstemps64(template: *mut c_char, suffix: c_int) -> c_int =
        making(0, || next(template, suffix));

    fn mkostemps, mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int =
        making(flags, || next(template, suffix, flags));

    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int =
        making(0, || real::memfd_create(name, flags));

    fn shm_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        let call = || real::shm_open(name, flags, mode);
        opening(flags, libc::AT_FDCWD, core::ptr::null(), || Creation::of(flags), call)
    }
}
