//! Memory for what is put together to start a program, above all its environment: the stack of the caller may
//! be that of a signal handler, of a few KiB.
//!
//! The law of this module: what was taken is not changed until it is given back. That it is given back cannot
//! be guaranteed: a vfork child whose exec succeeds never gives back what it took in its parent's memory, a
//! handler that interrupts a start may start a program itself, and may jump out of it. So each thread keeps
//! one room, and reuses it if it is certainly free; otherwise a new one is made for this one use. Their
//! number is bounded; beyond it there is no room.

use crate::base::thread::{self, Thread};
use crate::base::{gate, guard, sys};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// Rooms that there may be at a time. Few are, and few are left for good: only where a vfork child started
/// its program in the midst of another start, or a thread was killed there.
const MAX: u32 = 1024;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where nothing can be mapped, as under a filter of system calls: a room for one start at a time.
#[repr(align(16))]
struct Reserve(UnsafeCell<[u8; RESERVE]>);
// SAFETY: who is in HOLDER has it alone.
unsafe impl Sync for Reserve {}
const RESERVE: usize = 32 << 10;
static LAST: Reserve = Reserve(UnsafeCell::new([0; RESERVE]));
/// The process that has taken it (lower half), and that one's parent; 0 if none has.
static HOLDER: AtomicU64 = AtomicU64::new(0);

/// A mapping that begins like this.
#[repr(C, align(16))]
pub struct Room {
    /// Of the mapping, in bytes.
    length: usize,
    /// The process that has taken it, 0 if none has, and that one's parent.
    user: AtomicU32,
    parent: AtomicU32,
    /// It is a thread's own.
    kept: AtomicBool,
}

/// Takes a room of so many bytes. None if there is none.
#[inline(never)]
pub fn take(bytes: usize) -> Option<*mut Room> {
    let length = size_of::<Room>() + bytes;
    let kept = guard::enter().and_then(|inside| take_kept(inside.thread(), length));
    kept.or_else(|| make(length)).or_else(|| reserve(length))
}

fn reserve(length: usize) -> Option<*mut Room> {
    if length > RESERVE {
        return None;
    }
    let held = HOLDER.load(Acquire);
    // Where the kernel does not tell who this is, a vfork child never gives it back.
    let (free, us) = if gate::is_open() {
        (
            is_free(held as u32, (held >> 32) as u32),
            u64::from(sys::getppid()) << 32 | u64::from(sys::getpid()),
        )
    } else {
        (held == 0, u64::MAX)
    };
    if !free || HOLDER.compare_exchange(held, us, AcqRel, Relaxed).is_err() {
        return None;
    }
    let room = LAST.0.get().cast::<Room>();
    // SAFETY: taken just now; it is large enough, aligned, and any bytes are a valid room.
    unsafe { (*room).length = RESERVE };
    Some(room)
}

/// The room of a thread. The caller holds the guard, so that no handler comes between.
fn take_kept(thread: &Thread, length: usize) -> Option<*mut Room> {
    let old = thread.room.load(Relaxed).cast::<Room>();
    // SAFETY: null, or a room, which only this thread unmaps (or a vfork child in its stead).
    if let Some(room) = unsafe { old.as_ref() } {
        if !room.is_free() {
            return None;
        }
        if room.length >= length {
            room.belongs_to_us();
            return Some(old);
        }
    }
    // Without notice of the thread's end it would never be freed.
    if old.is_null() && !thread::tell_end() {
        return None;
    }
    let new = make(length)?;
    // SAFETY: just made.
    unsafe { (*new).kept.store(true, Relaxed) };
    thread.room.store(new.cast(), Relaxed);
    unmap(old);
    Some(new)
}

/// True if the user of a room does not need it any more, who had this parent. A thread's own room is used
/// only by that thread and its vfork children. A thread waits for its vfork child until that execs or exits,
/// so a child that used the room before another one was made has gone.
fn is_free(user: u32, parent: u32) -> bool {
    if user == 0 {
        return true;
    }
    let us = sys::getpid();
    parent == us || user != us && parent == sys::getppid()
}

impl Room {
    fn is_free(&self) -> bool {
        is_free(self.user.load(Relaxed), self.parent.load(Relaxed))
    }

    fn belongs_to_us(&self) {
        self.parent.store(sys::getppid(), Relaxed);
        self.user.store(sys::getpid(), Relaxed);
    }
}

fn make(length: usize) -> Option<*mut Room> {
    if COUNT.fetch_add(1, AcqRel) >= MAX {
        COUNT.fetch_sub(1, AcqRel);
        return None;
    }
    let room = sys::map(length).cast::<Room>();
    if room.is_null() {
        COUNT.fetch_sub(1, AcqRel);
        return None;
    }
    // SAFETY: a new mapping that is large enough, all zero, which is a valid room but for its length.
    unsafe {
        (*room).length = length;
        (*room).belongs_to_us();
    }
    Some(room)
}

/// The memory of a room, and its length.
///
/// # Safety
/// The room must have been taken by the caller.
pub unsafe fn bytes(room: *mut Room) -> (*mut u8, usize) {
    // SAFETY: the caller's promise; the memory follows the head, as `make` saw to it.
    unsafe { (room.add(1).cast(), (*room).length - size_of::<Room>()) }
}

/// The real function has returned.
///
/// # Safety
/// The room must be null, or have been taken by the caller, who does not use it any more.
pub unsafe fn give_back(room: *mut Room) {
    // SAFETY: the caller's promise.
    match unsafe { room.as_ref() } {
        Some(_) if core::ptr::eq(room, LAST.0.get().cast()) => HOLDER.store(0, Release),
        Some(kept) if kept.kept.load(Relaxed) => kept.user.store(0, Relaxed),
        _ => unmap(room),
    }
}

pub fn end(thread: &Thread) {
    unmap(thread.room.swap(core::ptr::null_mut(), Relaxed).cast());
}

fn unmap(room: *mut Room) {
    if !room.is_null() {
        // SAFETY: made by `make`, and callers know that it is not in use.
        unsafe { sys::unmap(room.cast(), (*room).length) };
        COUNT.fetch_sub(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parents(room: *mut Room, user: u32, parent: u32) {
        // SAFETY: a room that the test has taken.
        unsafe {
            (*room).user.store(user, Relaxed);
            (*room).parent.store(parent, Relaxed);
        }
    }

    /// Each case is what a thread finds in its room when it, or a vfork child of its, starts a program.
    #[test]
    fn a_room_is_taken_again_only_if_nobody_can_need_it() {
        let (us, parent) = (sys::getpid(), sys::getppid());
        let room = make(4096).unwrap();
        for (what, user, of, free) in [
            ("given back", 0, parent, true),
            ("ours, and this start interrupted that one", us, parent, false),
            ("our vfork child's, which is a program by now, since we run", us + 1, us, true),
            ("our brother's, who is one too, since our parent made us", us + 1, parent, true),
            ("our parent's, who stands still in it", parent, us + 2, false),
            ("our grandparent's", us + 2, us + 3, false),
        ] {
            parents(room, user, of);
            // SAFETY: the room is this test's.
            assert_eq!(unsafe { (*room).is_free() }, free, "{what}");
        }
        // SAFETY: taken above.
        unsafe { give_back(room) };
    }
}
