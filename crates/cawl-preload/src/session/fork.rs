//! Which process this is: a fork child has a session of its own, a vfork child none.

use crate::base::hot::{HOT, OFF, WANTED, active, share_all};
use crate::base::settings::settings;
use crate::base::thread::thread;
use crate::base::{clock, gate, sys};
use crate::session::{open, stop};
use crate::state::descriptors;
use crate::transport::{link, modules, pending_messages, stack, table};
use cawl_wire::{Event, Kind, Obstacle, Op};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

/// True if the caller is the process that the session belongs to, or a copy that gets one of its own.
/// False in a vfork child, whose memory is its parent's and must not be touched.
#[cold]
pub fn is_ours() -> bool {
    // Refused by a closed gate, which is no number of a process.
    if sys::getpid() == HOT.pid.load(Relaxed) {
        return true;
    }
    if !gate::is_open() {
        return active() && !ended_in_copy();
    }
    let copied = table::is_wiped();
    if copied {
        forked();
    }
    copied
}

/// Where the kernel cannot be asked: true in a copy of the process, where tracing then has ended. A vfork
/// child is taken for its parent, which waits.
fn ended_in_copy() -> bool {
    let copied = table::is_wiped();
    if copied {
        end_in_copy();
    }
    copied
}

/// Set in a copy of a process that has given up new privileges: nothing is traced until it is known that this
/// was not for a filter.
static DORMANT: AtomicBool = AtomicBool::new(false);

/// True in such a copy.
pub fn is_dormant() -> bool {
    DORMANT.load(Relaxed)
}

/// It is known: the copy gets a session of its own.
pub fn wake() {
    if DORMANT.swap(false, Relaxed) {
        HOT.state.store(WANTED, Release);
        forked();
    }
}

#[cold]
fn end_in_copy() {
    if gate::is_quiet() {
        DORMANT.store(true, Relaxed);
        HOT.state.store(OFF, Release);
    } else {
        stop::silently();
    }
}

/// In a copy of the process whose root directory or mounts are without the daemon's socket, as in a sandbox:
/// says so in the parent's session, before that is forgotten. A message is sent whole, or not at all.
#[inline(never)]
pub fn tell_if_unreachable() {
    let parent = HOT.pid.load(Relaxed);
    if !gate::is_open() || parent == sys::getpid() {
        return;
    }
    let Some(settings) = settings().filter(|settings| settings.only_child_of == 0) else { return };
    if link::own_fd() < 0 || sys::may_access(settings.socket(), libc::W_OK) {
        return;
    }
    let mut event = Event::new(Op::Spawn);
    (event.pid, event.tid, event.aux) = (parent, parent, Obstacle::Unreachable as u32);
    event.start = clock::now();
    link::transmit(Kind::Events, &event.encode(), None);
}

/// In a copy of the process: forget the parent's session and start afresh at the next event.
#[cold]
pub fn forked() {
    if !gate::is_open() {
        return end_in_copy();
    }
    gate::forget_others();
    let pid = sys::getpid();
    if HOT.pid.swap(pid, AcqRel) == pid {
        return;
    }
    let thread = thread();
    thread.reset();
    table::forget(thread);
    // Which names were told stays known: in another session they have other keys.
    pending_messages::forget();
    modules::forget();
    stack::forget();
    share_all();
    descriptors::begin_session();
    open::forget();
}
