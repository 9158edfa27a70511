//! From a finished call to an event in the thread's slot.

pub mod doubts;
pub mod mapping;
pub mod reading;
pub mod resident;
pub mod stream;

use crate::base::guard::{self, Inside};
use crate::base::thread::thread;
use crate::base::{clock, interrupted};
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use crate::transport::slot::{self, Slot};
use crate::tries;
use cawl_wire::ring::Call;
use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};
use core::ffi::c_int;

/// Where a call wrote.
#[derive(Clone, Copy)]
pub enum Place {
    /// At the descriptor's own position, which moved.
    Own,
    /// Here, and the position did not move.
    At(u64),
    /// At no place that makes sense for the operation.
    Nowhere,
}

/// Makes a call of the program. If there is a session, notes when it began, and tells of it. Nothing here is
/// dropped when a thread is cancelled or jumps in the call.
#[inline(always)]
pub fn around<T: Copy>(call: impl FnOnce() -> T, tell: impl FnOnce(u64, T)) -> T {
    if !session::active() {
        return call();
    }
    let start = clock::now();
    let returned = call();
    tell(start, returned);
    returned
}

/// Makes a call of the program that may move the position of `fd`. If there is a session, tells of it.
#[inline(always)]
pub fn around_moving<T: Copy>(fd: c_int, call: impl FnOnce() -> T, tell: impl FnOnce(u64, T)) -> T {
    if !session::active() {
        return call();
    }
    let start = interrupted::begin(fd);
    let returned = call();
    tell(start, returned);
    returned
}

/// An event with everything that does not depend on the operation.
#[inline(always)]
pub fn event(inside: &Inside, op: Op, start: u64, end: u64) -> Event {
    let mut event = Event::new(op);
    event.start = start;
    event.duration = end.saturating_sub(start);
    let ids = inside.thread().ids();
    event.pid = ids as u32;
    event.tid = (ids >> 32) as u32;
    event
}

/// Completes an event by what is known about the file.
#[inline(always)]
pub fn about(event: &mut Event, fd: c_int, file: &Descriptor) {
    event.fd = fd;
    event.set_file(file.identity());
    event.kind = file.kind();
    event.flags = file.flags();
}

/// Records a call that wrote to a descriptor or read from it, or would have.
#[inline(always)]
pub fn wrote(op: Op, start: u64, fd: c_int, place: Place, requested: u64, returned: i64, flags: u32) {
    moved(op, start, fd, place, (requested, returned), (flags, 0), true);
}

/// Records a call that wrote to a descriptor, where too little of the stack is left for a look at that.
#[inline(always)]
pub fn wrote_deep(op: Op, start: u64, fd: c_int, place: Place, requested: u64, returned: i64, flags: u32) {
    moved(op, start, fd, place, (requested, returned), (flags, 0), false);
}

/// Records a call that read into memory of which `untouched` pages had not been touched.
#[inline(always)]
pub fn read_into(op: Op, start: u64, fd: c_int, place: Place, requested: u64, returned: i64, untouched: u32) {
    moved(op, start, fd, place, (requested, returned), (0, untouched), true);
}

#[inline(always)]
fn moved(op: Op, start: u64, fd: c_int, place: Place, bytes: (u64, i64), more: (u32, u32), looks: bool) {
    moved_inside(op, start, fd, place, bytes, more, looks);
    interrupted::end(thread(), start);
}

#[inline(always)]
fn moved_inside(
    op: Op,
    start: u64,
    fd: c_int,
    place: Place,
    (requested, returned): (u64, i64),
    more: (u32, u32),
    looks: bool,
) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else {
        if let Place::Own = place {
            descriptors::moved_unseen(fd, returned, start);
        }
        return;
    };
    let Some(slot) = session::open_slot(&inside) else {
        if let Place::Own = place {
            descriptors::moved_unseen(fd, returned, start);
        }
        return;
    };
    let Some((mut file, mut goes_on)) = session::learn_continued(slot, fd, op) else { return };
    let mut slot = slot;
    if looks && file.is_look_due(returned) {
        let own = matches!(place, Place::Own);
        let Some(found) = doubts::after_call(&inside, slot, (fd, file), returned, own) else { return };
        (slot, file, goes_on) = (found.0, found.1, goes_on && found.2);
    }
    let offset = match place {
        Place::Own => file.advance(inside.thread(), fd, returned, start),
        Place::At(offset) => offset,
        Place::Nowhere => UNKNOWN_OFFSET,
    };
    let call =
        Call { start, duration: end.saturating_sub(start), offset, requested, returned, pending: None };
    if !(goes_on && more == (0, 0) && slot::put_short(slot, &call)) {
        moved_whole(&inside, slot, op, &call, more, fd, file);
    }
    session::finish(slot, end);
}

#[inline(never)]
fn moved_whole(
    inside: &Inside,
    slot: &Slot,
    op: Op,
    call: &Call,
    (flags, aux): (u32, u32),
    fd: c_int,
    file: &Descriptor,
) {
    let mut duration = call.duration;
    if tries::any() {
        duration += tries::written(op, fd, file, call.offset, call.returned.max(0) as u64);
    }
    let mut event = event(inside, op, call.start, call.start.wrapping_add(duration));
    about(&mut event, fd, file);
    (event.requested, event.returned, event.offset) = (call.requested, call.returned, call.offset);
    let is_read = matches!(op, Op::Read | Op::Pread);
    let flags = flags | if is_read { 0 } else { file.take_stamps_read() };
    event.flags |= flags;
    event.aux = aux;
    if event.returned < 0 {
        event.errno = inside.errno();
    }
    // None goes on where each is to come by here.
    let may_go_on = flags == 0 && aux == 0 && event.errno == 0 && inside.thread().is_known() && !tries::any();
    let key = if may_go_on { slot::key(file.number(), op) } else { 0 };
    session::put(slot, &event, key, 0);
}

/// Records a call about a descriptor that moved no data, such as fsync.
#[inline]
pub fn did(op: Op, start: u64, fd: c_int, returned: i64, fill: impl FnOnce(&mut Event)) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    let Some(slot) = session::open_slot(&inside) else { return };
    let Some(file) = session::learn(fd) else { return };
    tell(&inside, slot, op, (start, end), Some((fd, file)), returned, fill);
    session::finish(slot, end);
}

/// Records a call that is about no descriptor, such as sync or fork.
#[inline]
pub fn happened(op: Op, start: u64, returned: i64, fill: impl FnOnce(&mut Event)) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if session::is_ours() {
        record(&inside, op, (start, end), None, returned, fill);
    }
}

/// Records a call, or what is like one, in a process that is known to be no vfork child; when it began and
/// ended, and what it is about.
#[inline]
pub fn record(
    inside: &Inside,
    op: Op,
    times: (u64, u64),
    file: Option<(c_int, &Descriptor)>,
    returned: i64,
    fill: impl FnOnce(&mut Event),
) {
    let Some(slot) = session::open_slot(inside) else { return };
    tell(inside, slot, op, times, file, returned, fill);
    session::finish(slot, times.1);
}

/// Completes the event of what was about to be closed, if it matters. What a stream held when its close
/// failed may not be written.
pub fn closed(event: Option<Event>, start: u64, returned: i64) {
    let Some(mut event) = event else { return };
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    (event.start, event.duration) = (start, end.saturating_sub(start));
    event.returned = returned;
    if returned < 0 {
        event.errno = inside.errno();
        event.flags |= if event.op == Op::StreamClose { flag::ESTIMATED } else { 0 };
    }
    session::push(&inside, &event);
}

/// Puts the event together when all is known: it is large, and what finds things out needs the stack as well.
#[inline(never)]
fn tell(
    inside: &Inside,
    slot: &Slot,
    op: Op,
    (start, end): (u64, u64),
    file: Option<(c_int, &Descriptor)>,
    returned: i64,
    fill: impl FnOnce(&mut Event),
) {
    let mut event = event(inside, op, start, end);
    if let Some((fd, file)) = file {
        about(&mut event, fd, file);
    }
    event.returned = returned;
    if returned < 0 {
        event.errno = inside.errno();
    }
    fill(&mut event);
    session::put(slot, &event, 0, 0);
}
