//! close, dup, fcntl and lseek.

use crate::base::settings::reads;
use crate::base::thread::thread;
use crate::base::{clock, guard, interrupted, real, sys};
use crate::hooks::emit::{about, around_moving, closed, did, doubts, event, mapping, record};
use crate::hooks::lock;
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use crate::state::mappings;
use crate::transport::link;
use crate::tries;
use cawl_wire::{Event, FileKind, Op, flag};
use core::ffi::{c_int, c_uint, c_void};
use libc::off_t;

/// True if the calls of a descriptor that move no data are recorded, too: it can write, or leads to a file
/// and its reads are recorded.
fn is_told(file: &Descriptor) -> bool {
    file.is_writable() || reads() && file.kind() == FileKind::Regular
}

/// Looks at a descriptor that is about to be closed: the event to send afterwards, if it matters. The
/// table forgets the descriptor now, because after the call its number may be another thread's.
fn closing(fd: c_int) -> Option<Event> {
    let Some(file) = descriptors::if_known(fd) else {
        descriptors::forget_reads(fd);
        return None;
    };
    let entered = if is_told(file) { guard::enter_or_count() } else { guard::enter() };
    let Some(inside) = entered else {
        descriptors::forget(fd);
        return None;
    };
    if !session::is_ours() {
        return None;
    }
    let known = session::learn(fd).and_then(|file| doubts::before_close(&inside, fd, file));
    let Some(file) = known else {
        descriptors::forget(fd);
        return None;
    };
    let mut event = event(&inside, Op::Close, 0, 0);
    about(&mut event, fd, file);
    if event.flags & flag::TMPFILE != 0 {
        // It may have been given a name since.
        event.aux = sys::fstat(fd).map_or(0, |stat| stat.st_nlink);
    }
    tries::closing(fd);
    if mappings::any() {
        mapping::sample_file(&inside, event.dev, event.ino);
    }
    let told = is_told(file);
    descriptors::forget(fd);
    told.then_some(event)
}

/// What the program is told of the tracer's own descriptor.
#[cold]
fn not_open() -> c_int {
    guard::set_errno(libc::EBADF);
    -1
}

/// A look at what a descriptor leads to. A program that looks which descriptors are open must not find the
/// tracer's.
fn looking(fd: c_int, look: impl FnOnce() -> c_int) -> c_int {
    if link::is_own(fd) {
        return not_open();
    }
    let returned = look();
    if returned == 0 && session::active() {
        descriptors::stamps_read(fd);
    }
    returned
}

/// Descriptors that are about to be closed all at once: what the daemon knows of is told beforehand, for
/// afterwards there is nothing to look at.
#[cold]
fn closing_range(first: c_uint, last: c_uint) {
    if let Some(inside) = guard::enter() {
        let now = clock::now();
        for (fd, file) in descriptors::known_in(first, last) {
            if let Some(file) = doubts::before_close(&inside, fd, file).filter(|file| is_told(file)) {
                record(&inside, Op::Close, (now, now), Some((fd, file)), 0, |_| {});
            }
        }
    }
    descriptors::forget_range(first, last);
}

/// Whether an exec closes this descriptor has changed.
fn marked(start: u64, fd: c_int, until_exec: bool) {
    if descriptors::if_known(fd).is_some_and(|file| is_told(file) && file.kind() == FileKind::Regular) {
        did(Op::Dup, start, fd, i64::from(fd), |event| mark(event, until_exec));
    }
}

fn mark(event: &mut Event, until_exec: bool) {
    if until_exec {
        event.flags |= flag::CLOEXEC;
    }
}

/// `to` has become a duplicate of `from`.
fn duplicated(start: u64, from: c_int, to: c_int, until_exec: bool) {
    if to < 0 || to == from {
        return;
    }
    {
        let Some(_inside) = guard::enter() else {
            descriptors::forget(to);
            if descriptors::if_known(from).is_some_and(is_told) {
                guard::count_unseen();
            }
            return;
        };
        if !session::is_ours() {
            return;
        }
        descriptors::duplicated(from, to);
    }
    if descriptors::if_known(to).is_some_and(is_told) {
        did(Op::Dup, start, from, i64::from(to), |event| mark(event, until_exec));
    }
}

/// Something is about to be put at this number, closing what is there: the event to send afterwards, if it
/// matters.
fn replacing(from: c_int, to: c_int) -> Option<Event> {
    if from == to || to < 0 {
        return None;
    }
    {
        let _inside = guard::enter()?;
        session::make_way(to);
    }
    closing(to)
}

/// Makes a call that closes a descriptor, and records it.
#[inline(always)]
pub fn close_by(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    if link::is_own(fd) {
        return not_open();
    }
    let event = closing(fd);
    let start = clock::now();
    let returned = call();
    closed(event, start, i64::from(returned));
    returned
}

/// Makes a call that closes a range of descriptors, or two, around the tracer's own.
#[inline(always)]
pub fn close_range_by(
    first: c_uint,
    last: c_uint,
    flags: c_int,
    call: impl Fn(c_uint, c_uint) -> c_int,
) -> c_int {
    const CLOSE_RANGE_CLOEXEC: c_int = 1 << 2;
    if !session::active() || flags & CLOSE_RANGE_CLOEXEC != 0 || last < first {
        return call(first, last);
    }
    let own = link::own_fd() as c_uint;
    if session::is_ours() {
        closing_range(first, last);
    }
    if !(first..=last).contains(&own) {
        return call(first, last);
    }
    // The first part's failure is the program's to see.
    if first < own {
        let returned = call(first, own - 1);
        if returned != 0 || own == last {
            return returned;
        }
    }
    if own < last { call(own + 1, last) } else { 0 }
}

/// Makes a call that duplicates a descriptor, and records it.
#[inline(always)]
pub fn duplicate_by(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    if link::is_own(fd) {
        return not_open();
    }
    let start = clock::now();
    let returned = call();
    duplicated(start, fd, returned, false);
    returned
}

/// Makes a call that puts a duplicate of `from` at the number `to`, and records it.
#[inline(always)]
pub fn replace(from: c_int, to: c_int, until_exec: bool, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    if link::is_own(from) {
        return not_open();
    }
    let event = replacing(from, to);
    let start = clock::now();
    let returned = call();
    if returned >= 0 {
        // There is no failure to close that anyone would see.
        closed(event, start, 0);
    }
    duplicated(start, from, returned, until_exec);
    returned
}

fn moved(start: u64, fd: c_int, at: off_t) {
    if at < 0 {
        return;
    }
    let Some(file) = descriptors::if_known(fd) else { return };
    file.moved_to(thread(), fd, at as u64, start);
    if file.is_writable() {
        did(Op::Seek, start, fd, at, |event| event.offset = at as u64);
    }
}

/// Makes a call of fcntl, and records what it changes.
///
/// # Safety
/// `argument` must be what the command was given.
#[inline(always)]
pub unsafe fn control_by(
    fd: c_int,
    command: c_int,
    argument: *mut c_void,
    call: impl FnOnce() -> c_int,
) -> c_int {
    if !session::active() {
        return call();
    }
    if link::is_own(fd) {
        return not_open();
    }
    let start = clock::now();
    let returned = call();
    match command {
        DUPLICATE | DUPLICATE_CLOEXEC => duplicated(start, fd, returned, command == DUPLICATE_CLOEXEC),
        libc::F_SETFD if returned >= 0 => marked(start, fd, argument as c_int & libc::FD_CLOEXEC != 0),
        libc::F_SETFL if returned >= 0 => {
            if let Some(_inside) = guard::enter() {
                descriptors::flags_changed(fd);
            }
        }
        // SAFETY: the caller's promise.
        _ => unsafe { lock::controlled(start, fd, command, argument.cast(), returned) },
    }
    returned
}

/// Makes a call that moves a descriptor, and records it.
#[inline(always)]
pub fn seek_by(fd: c_int, call: impl FnOnce() -> off_t) -> off_t {
    around_moving(fd, call, |start, returned| {
        moved(start, fd, returned);
        interrupted::end(thread(), start);
    })
}

const DUPLICATE: c_int = libc::F_DUPFD;
const DUPLICATE_CLOEXEC: c_int = libc::F_DUPFD_CLOEXEC;

hooks! {
    fn close, __close(fd: c_int) -> c_int = close_by(fd, || next(fd));

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int =
        close_range_by(first, last, flags, |first, last| real::close_range(first, last, flags));

    fn closefrom(first: c_int) -> () {
        if !session::active() {
            return real::closefrom(first);
        }
        let own = link::own_fd();
        let from = first.max(0);
        if session::is_ours() {
            closing_range(from as c_uint, c_uint::MAX);
        }
        if own < from {
            return real::closefrom(first);
        }
        if from < own {
            let kept = guard::errno();
            if real::close_range(from as c_uint, own as c_uint - 1, 0) != 0 {
                for fd in from..own {
                    sys::close(fd);
                }
            }
            guard::set_errno(kept);
        }
        real::closefrom(own + 1)
    }

    word fn closedir(directory: *mut c_void) -> c_int {
        if session::active() && !directory.is_null() {
            descriptors::forget(real::dirfd(directory));
        }
        real::closedir(directory)
    }

    word fn dup(fd: c_int) -> c_int = duplicate_by(fd, || real::dup(fd));

    word fn dup2, __dup2(fd: c_int, to: c_int) -> c_int = replace(fd, to, false, || next(fd, to));

    word fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int =
        replace(fd, to, flags & libc::O_CLOEXEC != 0, || real::dup3(fd, to, flags));

    fn fcntl, fcntl64, __fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int =
        control_by(fd, command, argument, || next(fd, command, argument));

    fn fstat, fstat64(fd: c_int, stat: *mut c_void) -> c_int = looking(fd, || next(fd, stat));

    fn __fxstat, __fxstat64(version: c_int, fd: c_int, stat: *mut c_void) -> c_int =
        looking(fd, || next(version, fd, stat));

    fn lseek, lseek64, __lseek, llseek(fd: c_int, offset: off_t, whence: c_int) -> off_t =
        seek_by(fd, || next(fd, offset, whence));
}
