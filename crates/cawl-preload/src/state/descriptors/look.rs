//! Whether what is known of a descriptor is still so.
//!
//! The law of this module: **what goes past every hook is noticed, and said.** A program may close, duplicate
//! or move a descriptor by a system call of its own, and share it with another process in ways that nobody
//! sees. So device, inode number and position are compared with the kernel's, of a descriptor once in
//! [`SPAN`] calls; earlier only as far as the process has such looks left. Where they differ, what was told
//! since the look before is a [`Doubt`], and positions are asked for from then on.

use super::{CROWDED, Descriptor, known};
use crate::base::hot::{HOT, share_all};
use crate::base::thread::Thread;
use crate::base::{gate, real, sys};
use cawl_wire::{UNKNOWN_OFFSET, uncertain};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

/// Calls of a descriptor from one look to the next.
const SPAN: i32 = 128;
/// Calls before the first look, and how many times as long each early span is as the one before.
const FIRST_SPAN: i32 = 2;
const LONGER: i32 = 4;

/// Early looks that the process has left, and may have at most.
static EARLY: AtomicI32 = AtomicI32::new(16);
const MAX_EARLY: i32 = 64;
/// What a disagreement adds to them: where there was one, there may be more.
const FOR_DOUBT: i32 = 16;
/// How many descriptors have to be opened for one more: each has three calls or so.
const OPENED_FOR_ONE: u32 = 32;
static OPENED: AtomicU32 = AtomicU32::new(0);

/// In place of the thread that moves a descriptor: there is more than one.
const SEVERAL: u32 = u32::MAX;

/// What a descriptor needs for its looks.
#[repr(C)]
pub struct Looks {
    /// What `left` was after the last one.
    span: AtomicI32,
    /// The thread that moves it, once there are several threads.
    user: AtomicU32,
    /// How far the kernel was ahead of what is counted along at the last one, if it was.
    ahead: AtomicU64,
    /// Calls of several threads that may have the place of one another, and their bytes.
    unordered: [AtomicU64; 2],
}

impl Looks {
    /// Of a descriptor that is unknown.
    #[allow(clippy::declare_interior_mutable_const)]
    pub const NONE: Looks = Looks {
        span: AtomicI32::new(0),
        user: AtomicU32::new(0),
        ahead: AtomicU64::new(0),
        unordered: [const { AtomicU64::new(0) }; 2],
    };
}

/// Calls of which something was told that may not be true.
#[derive(Clone, Copy)]
pub struct Doubt {
    /// One of [`uncertain`].
    pub why: u32,
    /// How many there are; they moved so many bytes.
    pub calls: u64,
    pub bytes: u64,
    /// Where the descriptor was found.
    pub stands: u64,
}

impl Doubt {
    fn new(why: u32, [calls, bytes]: [u64; 2], stands: u64) -> Doubt {
        if why != uncertain::ORDER {
            share_all();
            EARLY.store((EARLY.load(Relaxed) + FOR_DOUBT).min(MAX_EARLY), Relaxed);
        }
        Doubt { why, calls, bytes, stands }
    }
}

/// A descriptor was opened.
pub fn count_opened() {
    if OPENED.fetch_add(1, Relaxed).is_multiple_of(OPENED_FOR_ONE) && EARLY.load(Relaxed) < MAX_EARLY {
        EARLY.fetch_add(1, Relaxed);
    }
}

/// What was told of a number that was just given to something else, though nobody was seen to close it.
#[inline]
pub fn replaced(fd: c_int) -> Option<(&'static Descriptor, Doubt)> {
    let file = known(fd).filter(|file| file.was_used())?;
    Some((file, Doubt::new(uncertain::OTHER_FILE, file.since_look(None), UNKNOWN_OFFSET)))
}

impl Descriptor {
    /// It was just found out what it leads to.
    pub(super) fn begin_looks(&self) {
        self.arm(FIRST_SPAN, FIRST_SPAN);
        self.bytes.store(0, Relaxed);
        let Looks { user, ahead, unordered, .. } = &self.rest.looks;
        user.store(0, Relaxed);
        [ahead, &unordered[0], &unordered[1]].iter().for_each(|word| word.store(0, Relaxed));
    }

    fn arm(&self, span: i32, left: i32) {
        self.rest.looks.span.store(span, Relaxed);
        self.left.store(left, Relaxed);
    }

    /// Counts a call that moved so many bytes, or failed. True if the descriptor is to be looked at.
    #[inline(always)]
    pub fn is_look_due(&self, bytes: i64) -> bool {
        self.bytes.store(self.bytes.load(Relaxed).wrapping_add(bytes.max(0) as u64), Relaxed);
        let left = self.left.load(Relaxed).wrapping_sub(1);
        self.left.store(left, Relaxed);
        left <= 0
    }

    /// True if there were calls since the last look.
    #[inline]
    pub fn was_used(&self) -> bool {
        self.left.load(Relaxed) != self.rest.looks.span.load(Relaxed)
    }

    /// Calls since the last look, and their bytes, but for the present call of so many bytes.
    fn since_look(&self, present: Option<u64>) -> [u64; 2] {
        let calls = self.rest.looks.span.load(Relaxed).saturating_sub(self.left.load(Relaxed));
        let calls = calls.saturating_sub(present.is_some().into()).max(0);
        [calls as u64, self.bytes.load(Relaxed).saturating_sub(present.unwrap_or(0))]
    }

    /// Looks at it, if that may be, after a call that moved so many bytes (at the descriptor's own position,
    /// if `own`), or before its end. To be followed by [`super::forget`] if it is another file.
    #[inline(never)]
    pub fn verify(&self, thread: &Thread, fd: c_int, present: Option<u64>, own: bool) -> Option<Doubt> {
        let looks = &self.rest.looks;
        let (span, since) = (looks.span.load(Relaxed), self.since_look(present));
        let calls = since[0] as i32 + i32::from(present.is_some());
        if !gate::is_open() {
            // Under a filter of system calls the kernel cannot be asked.
            self.arm(SPAN, SPAN);
            return None;
        }
        let suspected = looks.ahead.load(Relaxed) != 0;
        if calls < SPAN && !suspected && EARLY.fetch_sub(1, Relaxed) <= 0 {
            EARLY.store(0, Relaxed);
            self.arm(SPAN, SPAN - calls);
            return None;
        }
        let is_same = sys::fstat(fd).is_some_and(|stat| self.has(stat.st_dev, stat.st_ino));
        let mut doubt = None;
        if !is_same {
            doubt = Some(Doubt::new(uncertain::OTHER_FILE, since, UNKNOWN_OFFSET));
        } else if own && let Some((stands, expected)) = self.differs(thread, fd, present.unwrap_or(0)) {
            let ahead = stands.wrapping_sub(expected);
            // Another thread may have written what is not counted yet; the same twice is something else.
            if real::threads() && looks.ahead.swap(ahead, Relaxed) != ahead {
                self.arm(calls + 1, 1);
                return None;
            }
            self.offset.store(stands.wrapping_sub(present.unwrap_or(0)), Relaxed);
            doubt = Some(Doubt::new(uncertain::MOVED, since, stands));
        }
        looks.ahead.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        let next = span.saturating_mul(LONGER).clamp(FIRST_SPAN, SPAN);
        self.arm(next, next);
        doubt
    }

    /// Where it stands after a call of so many bytes, and where it should, if that is another place.
    fn differs(&self, thread: &Thread, fd: c_int, bytes: u64) -> Option<(u64, u64)> {
        if !self.is_alone() || !self.has_positions() || thread.notes.any() {
            return None;
        }
        let expected = self.offset.load(Relaxed).wrapping_add(bytes);
        let stands = sys::position(fd)?;
        (stands != expected && !thread.notes.any()).then_some((stands, expected))
    }

    #[inline(always)]
    pub(super) fn has_positions(&self) -> bool {
        self.moves.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn counted_along(&self) -> bool {
        self.epoch.load(Relaxed) == HOT.epoch.load(Relaxed)
    }

    /// Nothing else leads to the description: it was opened here, write-only and not appending, and has no
    /// duplicate; no process was started since.
    pub fn is_alone(&self) -> bool {
        self.counted_along()
    }

    /// While there are several threads: true if this one alone moves the descriptor, as far as that was seen,
    /// and did so before. Else its position is to be asked for.
    pub(super) fn is_of(&self, thread: &Thread) -> bool {
        let (user, me) = (&self.rest.looks.user, thread.tid());
        match user.load(Relaxed) {
            before if before == me => return true,
            0 => user.store(me, Relaxed),
            _ => {
                user.store(SEVERAL, Relaxed);
                self.epoch.store(0, Relaxed);
                self.rest.twin.store(CROWDED, Relaxed);
            }
        }
        false
    }

    /// Where a call of one of several threads began, after which the descriptor was found to stand at `end`.
    /// If another's call came between the two, this one went on from where those before it end; if such a gap
    /// stays, that of a thread came before, and waits to be counted.
    #[cold]
    #[inline(never)]
    pub(super) fn place_among_threads(&self, thread: &Thread, begin: u64, end: u64) -> u64 {
        let Looks { user, ahead, unordered: [calls, bytes], .. } = &self.rest.looks;
        let reached = self.offset.fetch_add(end - begin, Relaxed);
        if (self.is_of(thread) || user.load(Relaxed) != SEVERAL)
            || reached == UNKNOWN_OFFSET
            || reached == begin
        {
            self.offset.store(end, Relaxed);
            return begin;
        }
        calls.fetch_add(2, Relaxed);
        bytes.fetch_add(2 * (end - begin), Relaxed);
        let gap = begin.wrapping_sub(reached);
        if ahead.swap(gap, Relaxed) == gap || reached > begin {
            self.offset.store(end, Relaxed);
            return begin;
        }
        reached
    }

    /// What is in doubt of their order, once.
    #[inline(never)]
    pub fn take_unordered(&self) -> Option<Doubt> {
        if self.rest.looks.unordered[0].load(Relaxed) == 0 {
            return None;
        }
        let sums = self.rest.looks.unordered.each_ref().map(|sum| sum.swap(0, Relaxed));
        Some(Doubt::new(uncertain::ORDER, sums, UNKNOWN_OFFSET))
    }
}
