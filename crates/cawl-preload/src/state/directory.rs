//! The path of the working directory, which goes before each relative name.
//!
//! The law of this module: **it is asked of the kernel again in every thread** (threads may have directories
//! of their own), after every call of the program that may have changed it, and after 10 ms, since other
//! processes rename directories, too.

use crate::base::thread::thread;
use crate::base::{clock, sys};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

/// Longest path that is kept.
const MAX: usize = 512;
/// How long it holds, in ns.
const HOLDS: u64 = 10_000_000;

struct Latest {
    /// The thread that asked.
    tid: u32,
    /// The number of changes before.
    changes: u64,
    /// Until when it holds.
    until: u64,
    length: usize,
    path: [u8; MAX],
}

struct Shared(UnsafeCell<Latest>);
// SAFETY: touched only by the thread that set BUSY.
unsafe impl Sync for Shared {}
static LATEST: Shared =
    Shared(UnsafeCell::new(Latest { tid: 0, changes: 0, until: 0, length: 0, path: [0; MAX] }));
/// A thread is at it. One that is jumped out of there leaves it so, and the kernel is always asked.
static BUSY: AtomicBool = AtomicBool::new(false);
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The program may have another working directory, or that another path.
pub fn changed() {
    CHANGES.fetch_add(1, Relaxed);
}

/// Writes the path; its length.
#[inline(never)]
pub fn put(out: &mut [u8]) -> usize {
    if BUSY.swap(true, Acquire) {
        return sys::getcwd(out);
    }
    // SAFETY: see `Shared`.
    let length = unsafe { &mut *LATEST.0.get() }.put(out);
    BUSY.store(false, Release);
    length
}

impl Latest {
    fn put(&mut self, out: &mut [u8]) -> usize {
        let (tid, changes, now) = (thread().tid(), CHANGES.load(Relaxed), clock::now());
        if self.tid == tid
            && self.changes == changes
            && now < self.until
            && let Some((place, path)) = out.get_mut(..self.length).zip(self.path.get(..self.length))
        {
            place.copy_from_slice(path);
            return self.length;
        }
        let length = sys::getcwd(out);
        self.tid = 0;
        if let Some((place, path)) = self.path.get_mut(..length).zip(out.get(..length)) {
            place.copy_from_slice(path);
            (self.tid, self.changes, self.until, self.length) =
                (tid, changes, now + clock::span(HOLDS), length);
        }
        length
    }
}
