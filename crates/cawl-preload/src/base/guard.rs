//! The guard that keeps the tracer out of itself.
//!
//! The law of this module: the guard is held only while the tracer does its own bookkeeping, never
//! across the program's call. So a signal handler, a longjmp or a cancellation in that call finds
//! nothing locked, and only a handler that interrupts the bookkeeping goes unseen (and is counted).
//! The guard is the stack's height where it was entered. A thread that finds it held from the same height or
//! above takes it: the holder has left by longjmp.

use crate::base::thread::{Thread, height, thread};
use crate::base::{hot, sys};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, compiler_fence};

/// Calls that passed through unrecorded because the guard was held.
pub static UNSEEN: AtomicU64 = AtomicU64::new(0);
/// Ways past the hooks that the program went: bits of [`cawl_wire::past`].
pub static PAST: AtomicU32 = AtomicU32::new(0);
/// Slots whose threads left the tracer by a jump while they used them.
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// At most so many: a process has few (`transport::slot::SLOTS`).
const LEFT_MOST: usize = 64;

/// Proof that this thread is inside the tracer. Ends by letting go.
pub struct Inside {
    thread: &'static Thread,
}

/// True if the holder of the guard is gone: whatever interrupts it on its own stack, or is called by it, is
/// below. On a stack for signals this says nothing. The holder is treated as a thread that never continues:
/// its slot stays in use, and no position is counted along any more.
#[cold]
#[inline(never)]
fn was_left(thread: &Thread, held: usize, here: usize) -> bool {
    if here < held || sys::on_signal_stack() || LEFT.fetch_add(1, Relaxed) >= LEFT_MOST {
        return false;
    }
    count_unseen();
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    hot::share_all();
    true
}

/// Enters the tracer, or returns None if this thread is in it already.
#[inline(always)]
pub fn enter() -> Option<Inside> {
    let (thread, here) = (thread(), height());
    let held = thread.busy.load(Relaxed);
    if held != 0 && !was_left(thread, held, here) {
        return None;
    }
    thread.busy.store(here, Relaxed);
    compiler_fence(SeqCst);
    Some(Inside { thread })
}

/// Like [`enter`], for the end of a call: a call that cannot be recorded is counted.
#[inline(always)]
pub fn enter_or_count() -> Option<Inside> {
    let inside = enter();
    if inside.is_none() {
        count_unseen();
    }
    inside
}

/// Enters the tracer at the end of the process, even if this thread is in it already: the end comes from a
/// signal handler, or a handler jumped out of the tracer, and the holder of the guard will not continue. What
/// it left half done is in the thread's slot, so the thread gets another.
pub fn enter_at_end() -> Inside {
    enter().unwrap_or_else(|| {
        count_unseen();
        let thread = thread();
        thread.slot.store(core::ptr::null_mut(), Relaxed);
        Inside { thread }
    })
}

/// Does something that may change `errno`, and puts it back. The tracer's system calls do not touch it, so
/// that this is only needed around functions of the C library.
#[inline]
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let kept = errno();
    let result = work();
    set_errno(kept);
    result
}

/// Counts a call that cannot be recorded.
#[cold]
#[inline(never)]
pub fn count_unseen() {
    UNSEEN.fetch_add(1, Relaxed);
}

impl Inside {
    /// The calling thread's record.
    #[inline(always)]
    pub fn thread(&self) -> &'static Thread {
        self.thread
    }

    /// `errno` as the program's call left it.
    #[inline(always)]
    pub fn errno(&self) -> u16 {
        errno() as u16
    }
}

impl Drop for Inside {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        self.thread.busy.store(0, Relaxed);
    }
}

/// The thread's `errno`.
#[inline(always)]
pub fn errno() -> c_int {
    // SAFETY: the C library returns a valid address in the thread's own memory.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's `errno`.
#[inline(always)]
pub fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_is_not_entered_twice_and_errno_is_kept() {
        #[inline(never)]
        fn below<T>(work: impl FnOnce() -> T) -> T {
            std::hint::black_box(work)()
        }
        set_errno(17);
        let inside = enter();
        assert!(inside.is_some());
        let before = UNSEEN.load(Relaxed);
        assert!(below(|| enter_or_count().is_none()));
        assert_eq!(UNSEEN.load(Relaxed), before + 1);
        drop(inside);
        // Left by a jump: a caller above may enter, one below cannot know.
        below(|| std::mem::forget(enter()));
        assert!(below(|| below(|| enter_or_count().is_none())));
        assert_eq!(UNSEEN.load(Relaxed), before + 2);
        assert!(enter_or_count().is_some());
        assert_eq!(UNSEEN.load(Relaxed), before + 3);
        keeping_errno(|| set_errno(5));
        assert_eq!(errno(), 17);
        assert!(enter().is_some());
    }
}
