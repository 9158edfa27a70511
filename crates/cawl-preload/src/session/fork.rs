//! Which process this is: a fork child has a session of its own, a vfork child none.

use crate::base::hot::{HOT, share_all};
use crate::base::sys;
use crate::base::thread::thread;
use crate::session::open;
use crate::state::descriptors;
use crate::transport::{pending_messages, table};
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

/// In a copy of the process: forget the parent's session and start afresh at the next event.
#[cold]
pub fn forked() {
    let pid = sys::getpid();
    if HOT.pid.swap(pid, AcqRel) == pid {
        return;
    }
    let thread = thread();
    thread.reset();
    table::forget(thread);
    // Which names were told stays known: in another session they have other keys.
    pending_messages::forget();
    share_all();
    descriptors::begin_session();
    open::forget();
}
