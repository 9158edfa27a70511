//! Which process this is: a fork child has a session of its own, a vfork child none.

use crate::base::hot::{HOT, is_open, share_all};
use crate::base::settings::settings;
use crate::base::thread::thread;
use crate::base::{clock, sys};
use crate::session::open;
use crate::state::descriptors;
use crate::transport::{link, pending_messages, table};
use cawl_wire::{Event, Kind, Obstacle, Op};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

/// True if the caller is the process that the session belongs to, or a copy that gets one of its own.
/// False in a vfork child, whose memory is its parent's and must not be touched.
#[cold]
pub fn is_ours() -> bool {
    let pid = sys::getpid();
    if pid == HOT.pid.load(Relaxed) {
        return true;
    }
    let copied = table::is_wiped();
    if copied {
        forked();
    }
    copied
}

/// In a copy of the process whose root directory or mounts are without the daemon's socket, as in a sandbox:
/// says so in the parent's session, before that is forgotten. A message is sent whole, or not at all.
#[inline(never)]
fn tell_if_unreachable(parent: u32) {
    let Some(settings) = settings().filter(|settings| is_open() && settings.only_child_of == 0) else {
        return;
    };
    if sys::may_access(settings.socket(), libc::W_OK) {
        return;
    }
    let mut event = Event::new(Op::Spawn);
    (event.pid, event.tid, event.aux) = (parent, parent, Obstacle::Unreachable as u32);
    event.start = clock::now();
    link::send(Kind::Events, &event.encode());
}

/// In a copy of the process: forget the parent's session and start afresh at the next event.
#[cold]
pub fn forked() {
    let pid = sys::getpid();
    let parent = HOT.pid.swap(pid, AcqRel);
    if parent == pid {
        return;
    }
    tell_if_unreachable(parent);
    let thread = thread();
    thread.reset();
    table::forget(thread);
    // Which names were told stays known: in another session they have other keys.
    pending_messages::forget();
    share_all();
    descriptors::begin_session();
    open::forget();
}
