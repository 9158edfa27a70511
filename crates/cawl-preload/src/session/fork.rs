//! Which process this is: a fork child has a session of its own, a vfork child none.

use crate::base::hot::{HOT, share_all};
use crate::base::sys;
use crate::base::thread::thread;
use crate::session::open;
use crate::state::{descriptors, names};
use crate::transport::table;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32};

/// A word that the kernel wipes in a copied process, and that a vfork child sees unwiped.
static WITNESS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// Makes the word by which a copy of this process knows that it is one. Constructor only.
pub fn watch() {
    let page = sys::map(4096);
    if !page.is_null() {
        // SAFETY: the page was just mapped and is advised as a whole; a refusal is harmless.
        let wiped = unsafe {
            sys::call(libc::SYS_madvise, [page as usize, 4096, libc::MADV_WIPEONFORK as usize, 0, 0, 0])
        };
        if wiped == 0 {
            // SAFETY: page-aligned memory that stays mapped for good and is only used as this atomic.
            unsafe { (*page.cast::<AtomicU32>()).store(1, Relaxed) };
            WITNESS.store(page.cast(), Release);
        }
    }
}

/// True if the caller is the process that the session belongs to, or a copy that gets one of its own.
/// False in a vfork child, whose memory is its parent's and must not be touched.
#[cold]
pub fn is_ours() -> bool {
    let pid = sys::getpid();
    if pid == HOT.pid.load(Relaxed) {
        return true;
    }
    let witness = WITNESS.load(Acquire);
    // SAFETY: null, or the word set up by `watch`, which stays mapped.
    let copied = unsafe { witness.as_ref() }.is_some_and(|word| word.load(Relaxed) == 0);
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
    // SAFETY: null, or the word set up by `watch`, which stays mapped.
    if let Some(word) = unsafe { WITNESS.load(Acquire).as_ref() } {
        word.store(1, Relaxed);
    }
    let thread = thread();
    thread.reset();
    table::forget(thread);
    names::forget();
    share_all();
    descriptors::begin_session();
    open::forget();
}
