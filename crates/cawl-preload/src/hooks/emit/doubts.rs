//! What a look at a descriptor found (`state::descriptors::look`), told to the daemon.

use super::{about, event};
use crate::base::clock;
use crate::base::guard::Inside;
use crate::session;
use crate::state::descriptors::{self, Descriptor, Doubt};
use crate::transport::slot::Slot;
use cawl_wire::{Op, uncertain};
use core::ffi::c_int;

/// Puts it into a slot that has room.
#[inline(never)]
fn tell(inside: &Inside, slot: &Slot, fd: c_int, file: &Descriptor, doubt: &Doubt) {
    let now = clock::now();
    let mut event = event(inside, Op::Uncertain, now, now);
    about(&mut event, fd, file);
    (event.returned, event.requested) = (doubt.calls as i64, doubt.bytes);
    (event.offset, event.aux) = (doubt.stands, doubt.why);
    session::put_beside(slot, &event);
}

/// Looks at a descriptor, and tells what is uncertain, in a slot that has room. Whether there was anything to
/// tell, and whether it leads to another file: then nothing is known of it any more.
#[inline(never)]
fn find_out(
    inside: &Inside,
    slot: &Slot,
    (fd, file): (c_int, &Descriptor),
    present: Option<u64>,
    own: bool,
) -> (bool, bool) {
    let found = file.verify(inside.thread(), fd, present, own);
    let Some(doubt) = found.or_else(|| file.take_unordered()) else { return (false, false) };
    if doubt.calls > 0 {
        tell(inside, slot, fd, file, &doubt);
    }
    let is_other = doubt.why == uncertain::OTHER_FILE;
    if is_other {
        descriptors::forget(fd);
    }
    (true, is_other)
}

/// After a call that moved so many bytes, at the descriptor's own position or elsewhere. Where to tell of it,
/// what is known of the descriptor now, and whether it may go on from the event before; None if it can be
/// told of no more.
#[cold]
#[inline(never)]
pub fn after_call<'a>(
    inside: &Inside,
    slot: &'a Slot,
    (fd, file): (c_int, &'a Descriptor),
    bytes: i64,
    own: bool,
) -> Option<(&'a Slot, &'a Descriptor, bool)> {
    // The descriptors of a vfork child are its own, but what is known of its parent's is not.
    if !session::is_ours() {
        return Some((slot, file, true));
    }
    let (told, is_other) = find_out(inside, slot, (fd, file), Some(bytes.max(0) as u64), own);
    let file = if is_other { session::learn(fd)? } else { file };
    Some(if told { (session::open_slot(inside)?, file, false) } else { (slot, file, true) })
}

/// Before a descriptor is closed, in the process that the session belongs to: what is known of it then.
#[inline]
pub fn before_close(inside: &Inside, fd: c_int, file: &'static Descriptor) -> Option<&'static Descriptor> {
    let is_other = |slot| find_out(inside, slot, (fd, file), None, true).1;
    if file.was_used() && session::open_slot(inside).is_some_and(is_other) {
        return session::learn(fd);
    }
    Some(file)
}

/// A call has given this number to something else.
#[inline]
pub fn replaced(inside: &Inside, fd: c_int) {
    if let Some((file, doubt)) = descriptors::replaced(fd)
        && let Some(slot) = session::open_slot(inside)
    {
        tell(inside, slot, fd, file, &doubt);
    }
}

/// At the end of the process or image.
#[cold]
pub fn at_end(inside: &Inside) {
    for (fd, file) in descriptors::known_in(0, u32::MAX) {
        before_close(inside, fd, file);
    }
}
