//! From a finished call to an event in the thread's buffer.

use crate::buffer::Slot;
use crate::files::{self, File};
use crate::guard::{self, Inside};
use crate::{buffer, interrupted, sys, uplink};
use cawl_wire::ring::Call;
use cawl_wire::{Event, Op, UNKNOWN_OFFSET};
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
pub fn about(event: &mut Event, fd: c_int, file: &File) {
    event.fd = fd;
    event.set_file(file.identity());
    event.kind = file.kind();
    event.flags = file.flags();
}

/// Records a call that wrote to a descriptor, or would have.
#[inline(always)]
pub fn wrote(op: Op, start: u64, fd: c_int, place: Place, requested: u64, returned: i64, flags: u32) {
    wrote_inside(op, start, fd, place, requested, returned, flags);
    interrupted::end(guard::thread(), start);
}

#[inline(always)]
fn wrote_inside(op: Op, start: u64, fd: c_int, place: Place, requested: u64, returned: i64, flags: u32) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else {
        if let Place::Own = place {
            files::moved_unseen(fd, returned, start);
        }
        return;
    };
    let Some(slot) = buffer::ready(&inside) else {
        if let Place::Own = place {
            files::moved_unseen(fd, returned, start);
        }
        return;
    };
    let Some((file, goes_on)) = files::known_to(slot, fd, op) else { return };
    let offset = match place {
        Place::Own => file.advance(inside.thread(), fd, returned, start),
        Place::At(offset) => offset,
        Place::Nowhere => UNKNOWN_OFFSET,
    };
    let call =
        Call { start, duration: end.saturating_sub(start), offset, requested, returned, pending: None };
    if goes_on && flags == 0 && buffer::put_short(slot, &call) {
        return;
    }
    wrote_whole(&inside, slot, op, &call, flags, fd, file);
    buffer::finish(slot, end);
}

#[inline(never)]
fn wrote_whole(inside: &Inside, slot: &Slot, op: Op, call: &Call, flags: u32, fd: c_int, file: &File) {
    let mut event = event(inside, op, call.start, call.start.wrapping_add(call.duration));
    about(&mut event, fd, file);
    (event.requested, event.returned, event.offset) = (call.requested, call.returned, call.offset);
    event.flags |= flags;
    if event.returned < 0 {
        event.errno = inside.errno();
    }
    let may_go_on = flags == 0 && event.errno == 0 && inside.thread().is_known();
    let key = if may_go_on { buffer::key(file.number(), op) } else { 0 };
    buffer::put_whole(slot, &event, key, 0);
}

/// Records a call about a descriptor that moved no data, such as fsync.
#[inline]
pub fn did(op: Op, start: u64, fd: c_int, returned: i64, fill: impl FnOnce(&mut Event)) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return };
    let Some(slot) = buffer::ready(&inside) else { return };
    let Some(file) = files::known(fd) else { return };
    tell(&inside, slot, op, (start, end), Some((fd, file)), returned, fill);
    buffer::finish(slot, end);
}

/// Records a call that is about no descriptor, such as sync or fork.
#[inline]
pub fn happened(op: Op, start: u64, returned: i64, fill: impl FnOnce(&mut Event)) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if !uplink::is_ours() {
        return;
    }
    let Some(slot) = buffer::ready(&inside) else { return };
    tell(&inside, slot, op, (start, end), None, returned, fill);
    buffer::finish(slot, end);
}

/// Puts the event together when all is known: it is large, and what finds things out needs the stack as well.
#[inline(never)]
fn tell(
    inside: &Inside,
    slot: &Slot,
    op: Op,
    (start, end): (u64, u64),
    file: Option<(c_int, &File)>,
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
    buffer::put_whole(slot, &event, 0, 0);
}
