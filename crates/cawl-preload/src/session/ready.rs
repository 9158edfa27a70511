//! What an event needs: a slot with room, in an open session, and what is known about a descriptor.

use crate::base::guard::{Inside, keeping_errno};
use crate::base::{clock, gate, hot};
use crate::session::{fork, open};
use crate::state::descriptors::{self, Descriptor, Found, Opening};
use crate::transport::slot::{self, Slot};
use crate::transport::{link, modules, socket, stack, table};
use cawl_wire::{Event, Op};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

/// How often, in ns, a moment on both clocks goes among the events.
const MARK_EVERY: u64 = 10_000_000;

/// The calling thread's slot, with room for an event; None if there is none, which has been counted. Opens
/// the session if it is not. To be called before anything about the event is looked up: in a copied process
/// this is the moment in which the parent's knowledge is forgotten.
#[inline(always)]
pub fn open_slot(inside: &Inside) -> Option<&'static Slot> {
    match slot::of(inside.thread()) {
        Some(slot) if slot.has_room() => Some(slot),
        _ => make_room(inside),
    }
}

#[cold]
#[inline(never)]
fn make_room(inside: &Inside) -> Option<&'static Slot> {
    // A vfork child has nothing to open or close. It may use its parent's place, since its parent waits.
    if !fork::is_ours() && !hot::is_open() {
        return None;
    }
    // Making room asks the C library for the time, and to remember the thread's slot.
    let thread = inside.thread();
    let has_slot = slot::of(thread).is_some();
    let room = keeping_errno(|| {
        if !has_slot {
            open::prepare();
        }
        // Without the kernel nothing is known of a thread, its number included.
        if has_slot || gate::is_open() { table::find_room(thread) } else { None }
    });
    match room {
        Some(slot) if stack::any() && modules::is_due() => {
            if table::begin_chunk(slot) {
                modules::tell(slot);
            }
        }
        Some(_) => {}
        None => link::count_dropped(1),
    }
    room
}

/// An event that ended `now` has been put.
#[inline(always)]
pub fn finish(slot: &Slot, now: u64) {
    if slot.is_due(now) {
        keep_time_marks(slot, now);
    }
}

/// Puts an event into a slot that [`open_slot`] gave; others of its key and buffering may go on from it. To
/// be followed by [`finish`], when the event, which is large, is off the stack.
pub fn put(slot: &Slot, event: &Event, key: u64, buffering: u64) {
    let is_put =
        if stack::any() { stack::put(slot, event) } else { slot::put_whole(slot, event, key, buffering) };
    if !is_put {
        link::count_dropped(1);
    }
}

/// Puts an event that is no call, and so has no stack, into a slot that [`open_slot`] gave.
pub fn put_beside(slot: &Slot, event: &Event) {
    if !slot::put_whole(slot, event, 0, 0) {
        link::count_dropped(1);
    }
}

/// Puts an event into the calling thread's slot.
#[inline]
pub fn push(inside: &Inside, event: &Event) {
    if let Some(slot) = open_slot(inside) {
        put(slot, event, 0, 0);
        finish(slot, event.start.wrapping_add(event.duration));
    }
}

#[cold]
#[inline(never)]
fn keep_time_marks(slot: &Slot, now: u64) {
    if !fork::is_ours() {
        return;
    }
    keep_time(slot, now);
    if !slot.is_ringed() {
        keeping_errno(|| socket::send_if_old(slot));
    }
}

#[inline(never)]
fn keep_time(slot: &Slot, now: u64) {
    let anchor = keeping_errno(clock::anchor);
    let is_told = slot.is_ringed() && stack::check_wanted();
    let is_settled = anchor.is_none() && is_told;
    let next = if is_settled { u64::MAX } else { now + clock::span(MARK_EVERY) };
    slot.due.store(next, Relaxed);
    if let Some(anchor) = anchor {
        slot::mark(slot, &anchor);
    }
}

/// What is known about a descriptor, found out and told to the daemon if need be. None if it is not open, if
/// it is our own, or in a vfork child.
#[inline(always)]
pub fn learn(fd: c_int) -> Option<&'static Descriptor> {
    match descriptors::known(fd) {
        Some(descriptor) => Some(descriptor),
        None => find_out(fd),
    }
}

/// What [`learn`] finds, and whether the operation goes on as the last event of a slot did.
#[inline(always)]
pub fn learn_continued(slot: &Slot, fd: c_int, op: Op) -> Option<(&'static Descriptor, bool)> {
    match descriptors::continued(slot, fd, op) {
        Some(descriptor) => Some((descriptor, true)),
        None => learn(fd).map(|descriptor| (descriptor, false)),
    }
}

#[cold]
fn find_out(fd: c_int) -> Option<&'static Descriptor> {
    if fork::is_ours() { look_at(fd, None).map(|(descriptor, _)| descriptor) } else { None }
}

#[cold]
#[inline(never)]
fn look_at(fd: c_int, opening: Option<&Opening>) -> Option<(&'static Descriptor, Found)> {
    if fd < 0 || link::is_own(fd) {
        return None;
    }
    open::prepare_name();
    descriptors::look_at(fd, opening)
}

/// A descriptor was just opened by this process, which is not a vfork child. Looked at now if the opening is
/// told, else when first used; what was found, if it was looked at.
pub fn opened(fd: c_int, opening: Option<&Opening>) -> Option<Found> {
    descriptors::opened(fd)?;
    look_at(fd, Some(opening?)).map(|(_, found)| found)
}

/// Prepares for telling a name; false in a vfork child. That may use its parent's ring, where nothing is to
/// be prepared.
pub fn may_tell_name(inside: &Inside) -> bool {
    let is_prepared = |slot: &Slot| slot.is_ringed() && slot.has_room_for_name();
    if slot::of(inside.thread()).is_some_and(is_prepared) {
        return true;
    }
    let ours = fork::is_ours();
    if ours {
        open::prepare_name();
    }
    ours
}

/// The program is about to put something else at this number.
pub fn make_way(wanted: c_int) {
    if link::is_own(wanted) && fork::is_ours() {
        link::make_way(wanted);
    }
}
