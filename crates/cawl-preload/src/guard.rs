//! The thread's own record, and the guard that keeps the tracer out of itself.
//!
//! The law of this module: the guard is held only while the tracer does its own bookkeeping, never
//! across the program's call. So a signal handler, a longjmp or a cancellation in that call finds
//! nothing locked, and only a handler that strikes inside the bookkeeping goes unseen (and is counted).
//! The guard is the stack's height where it was entered. Whoever finds it held from the same height or
//! above knows that its holder was jumped out of, and takes it.

use crate::buffer::Slot;
use crate::interrupted::Notes;
use crate::room::Room;
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, compiler_fence};

/// Calls that passed through unrecorded because the guard was held.
pub static UNSEEN: AtomicU64 = AtomicU64::new(0);
/// Slots that were left to whoever jumped out of them.
static LEFT: AtomicUsize = AtomicUsize::new(0);
/// At most so many: a process has [`crate::buffer::SLOTS`] of them.
const LEFT_MOST: usize = 64;

/// What a thread has to itself. Lives in the initial-exec TLS block of the C half, all zero at first.
/// The fields are atomic because of signal handlers, not of other threads.
#[repr(C)]
pub struct Thread {
    /// Where on the stack the tracer was entered; zero outside of it.
    busy: AtomicUsize,
    /// Process id (lower half) and thread id, once asked.
    ids: AtomicU64,
    /// The thread's event buffer, once it has one.
    pub slot: AtomicPtr<Slot>,
    /// What a handler's call and the one that it interrupts tell each other.
    pub notes: Notes,
    /// Where the environments of programs that it starts are put together, see `room`.
    pub room: AtomicPtr<Room>,
    /// The desk of `announce` where it is at work, plus one.
    pub desk: AtomicU32,
}

unsafe extern "C" {
    #[cfg(any(not(target_arch = "x86_64"), test))]
    safe fn cawl_thread_here() -> *const Thread;
}

/// The calling thread's record.
#[inline(always)]
pub fn thread() -> &'static Thread {
    #[cfg(all(target_arch = "x86_64", not(test)))]
    let record = {
        let record: *const Thread;
        // SAFETY: the initial-exec sequence of the x86-64 TLS ABI: the thread pointer plus the
        // variable's offset, which the dynamic linker stored in the GOT. Memory is only read.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                "add {0}, qword ptr [rip + cawl_thread@GOTTPOFF]",
                out(reg) record,
                options(pure, readonly, nostack),
            );
        }
        record
    };
    #[cfg(any(not(target_arch = "x86_64"), test))]
    let record = cawl_thread_here();
    // SAFETY: the record is zero-initialised thread-local memory of the layout of `Thread`, and no
    // reference to it leaves the thread or a hook's run, so it outlives every use.
    unsafe { &*record }
}

impl Thread {
    /// The session's process id (lower half) and the thread's id, asked of the kernel once.
    #[inline(always)]
    pub fn ids(&self) -> u64 {
        let ids = self.ids.load(Relaxed);
        if ids == 0 { self.find_ids() } else { ids }
    }

    #[cold]
    #[inline(never)]
    fn find_ids(&self) -> u64 {
        let pid = crate::uplink::pid();
        let ids = u64::from(crate::sys::gettid()) << 32 | u64::from(pid);
        // A vfork child has its parent's record, and another number.
        if crate::sys::getpid() == pid {
            self.ids.store(ids, Relaxed);
        }
        ids
    }

    /// True if the thread has been asked, and is not a vfork child that tells another number than its parent.
    pub fn is_known(&self) -> bool {
        self.ids.load(Relaxed) != 0
    }

    /// The thread's id.
    #[inline]
    pub fn tid(&self) -> u32 {
        (self.ids() >> 32) as u32
    }

    /// In a fork child: the thread has a new id, and whatever hook was at work is not.
    pub fn reset(&self) {
        self.ids.store(0, Relaxed);
        self.desk.store(0, Relaxed);
    }
}

/// Proof that this thread is inside the tracer. Ends by letting go.
pub struct Inside {
    thread: &'static Thread,
}

/// The stack's height.
#[inline(always)]
pub fn height() -> usize {
    let height: usize;
    // SAFETY: a register is read.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, rsp", out(reg) height, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mov {}, sp", out(reg) height, options(nomem, nostack, preserves_flags));
    }
    height
}

/// True if the holder of the guard is gone: whatever interrupts it on its own stack, or is called by it, is
/// below. Only on a stack for signals this says nothing. What the holder left half done is as another
/// thread's who never goes on: its slot stays with it, and no position is counted along any more.
#[cold]
#[inline(never)]
fn was_left(thread: &Thread, held: usize, here: usize) -> bool {
    if here < held || crate::sys::on_signal_stack() || LEFT.fetch_add(1, Relaxed) >= LEFT_MOST {
        return false;
    }
    count_unseen();
    thread.slot.store(core::ptr::null_mut(), Relaxed);
    crate::files::share_all();
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

/// Enters the tracer at the end of the process, even if this thread is in it already: the end comes from a signal
/// handler, or a handler jumped out of the tracer, and whoever holds the guard will not go on. What it left
/// half done lies in the thread's slot, so the thread gets another.
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
        // Jumped out of: who is above may enter, who is below cannot know.
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
