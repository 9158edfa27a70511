//! Where in its file a descriptor stands.

use super::{ALONE, Descriptor, LEFT_ALONE, entry};
use crate::base::hot::HOT;
use crate::base::notes;
use crate::base::thread::{Thread, thread};
use crate::base::{real, sys};
use cawl_wire::{UNKNOWN_OFFSET, flag};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

/// For a call that cannot be recorded: a position counted along must not be left behind.
#[cold]
#[inline(never)]
pub fn moved_unseen(fd: c_int, bytes: i64, start: u64) {
    if bytes > 0
        && let Some(file) = entry(fd)
    {
        file.advance(thread(), fd, bytes, start);
    }
}

/// Where `bytes` of a call begin during which handlers wrote, found at a moment in which none does.
#[cold]
fn ask_steadily(thread: &Thread, fd: c_int, bytes: u64) -> u64 {
    loop {
        let before = thread.notes.so_far();
        let Some(end) = sys::position(fd) else { return UNKNOWN_OFFSET };
        let begin = thread.notes.place_before(end, bytes);
        if thread.notes.so_far() == before {
            return begin;
        }
    }
}

impl Descriptor {
    /// `bytes` were written at the descriptor's own position, by the call that began then: where they begin.
    #[inline(always)]
    pub fn advance(&self, thread: &Thread, fd: c_int, bytes: i64, start: u64) -> u64 {
        if !self.has_positions() {
            return UNKNOWN_OFFSET;
        }
        let bytes = bytes.max(0) as u64;
        if !self.counted_along() || real::threads() || !thread.notes.is_outermost(start) {
            return self.advance_with_others(thread, fd, bytes, start);
        }
        // Only a handler can come between.
        let at = notes::add(&self.offset, bytes);
        if thread.notes.any() {
            self.catch_up(thread);
        }
        at
    }

    #[cold]
    #[inline(never)]
    fn advance_with_others(&self, thread: &Thread, fd: c_int, bytes: u64, start: u64) -> u64 {
        if thread.notes.is_inner(start) {
            return self.advance_inside(thread, fd, bytes);
        }
        // Another thread's bytes may be in the file and not be counted yet.
        let is_others = || real::threads() && !thread.notes.any() && !self.is_of(thread);
        if !self.counted_along() || is_others() {
            return self.ask(thread, fd, bytes);
        }
        let at = self.offset.fetch_add(bytes, Relaxed);
        self.catch_up(thread);
        at
    }

    /// Counts a handler's call; where its bytes begin. Where another has not been counted yet, whose bytes
    /// are in the file, its own are left to that one.
    fn advance_inside(&self, thread: &Thread, fd: c_int, bytes: u64) -> u64 {
        let Some(end) = sys::position(fd) else { return UNKNOWN_OFFSET };
        let at = end.saturating_sub(bytes);
        let counted = self.counted_along();
        let behind = counted && at != self.offset.load(Relaxed);
        if counted && !behind {
            self.offset.fetch_add(bytes, Relaxed);
        }
        thread.notes.note(fd, at, bytes, counted.then_some(behind));
        at
    }

    /// Counts what handlers left to the call that they interrupted.
    #[cold]
    #[inline(never)]
    fn catch_up(&self, thread: &Thread) {
        // Another one may come before these are counted, and leave its own, too.
        while let bytes @ 1.. = thread.notes.behind() {
            self.offset.fetch_add(bytes, Relaxed);
        }
    }

    /// Asks the kernel where `bytes` that were just written begin.
    fn ask(&self, thread: &Thread, fd: c_int, bytes: u64) -> u64 {
        let Some(at) = sys::position(fd) else { return UNKNOWN_OFFSET };
        if thread.notes.any() {
            return ask_steadily(thread, fd, bytes);
        }
        let epoch = HOT.epoch.load(Relaxed);
        if self.rest.twin.load(Relaxed) == LEFT_ALONE
            && self.rest.was.load(Relaxed) == epoch as u32
            && !real::threads()
        {
            self.rest.twin.store(ALONE, Relaxed);
            self.offset.store(at, Relaxed);
            self.epoch.store(epoch, Relaxed);
            // A handler has written after that was asked.
            if thread.notes.any() {
                self.resume(thread, fd);
            }
        }
        let begin = at.saturating_sub(bytes);
        if real::threads() { self.place_among_threads(thread, begin, at) } else { begin }
    }

    /// The position, if it is counted along.
    #[inline(always)]
    pub fn position_if_known(&self) -> u64 {
        if self.counted_along() { self.offset.load(Relaxed) } else { UNKNOWN_OFFSET }
    }

    /// Where the next write would begin, asking the kernel if need be.
    pub fn next_place(&self, fd: c_int) -> u64 {
        if self.counted_along() {
            return self.offset.load(Relaxed);
        }
        if !self.has_positions() {
            return UNKNOWN_OFFSET;
        }
        if self.flags() & flag::APPEND != 0 {
            return sys::fstat(fd).map_or(UNKNOWN_OFFSET, |stat| stat.st_size as u64);
        }
        sys::position(fd).unwrap_or(UNKNOWN_OFFSET)
    }

    /// The descriptor was moved to this place, by a call that began then. If a handler has written meanwhile,
    /// it is the kernel that knows; and if a handler moved it, nothing is counted along any more.
    #[inline(always)]
    pub fn moved_to(&self, thread: &Thread, fd: c_int, at: u64, start: u64) {
        if !self.has_positions() {
            return;
        }
        if thread.notes.is_inner(start) {
            self.epoch.store(0, Relaxed);
        }
        self.offset.store(at, Relaxed);
        if thread.notes.any() {
            self.resume(thread, fd);
        }
    }

    /// Counts along from where the descriptor stands, at a moment in which no handler writes.
    #[cold]
    fn resume(&self, thread: &Thread, fd: c_int) {
        loop {
            let before = thread.notes.so_far();
            thread.notes.behind();
            let Some(at) = sys::position(fd) else { return };
            self.offset.store(at, Relaxed);
            if thread.notes.so_far() == before {
                return;
            }
        }
    }
}
