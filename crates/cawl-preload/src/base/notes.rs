//! What a thread notes of a call that moves a position and of the calls that a signal's handler makes during
//! it; see `interrupted`.

use crate::base::{hot, sys};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, AtomicUsize, compiler_fence};

/// A signal takes more of the stack than this, so a call that is less far below another did not interrupt it.
const FRAME: usize = 256;

/// In place of where the first handler's bytes began: the call's own came between those of several.
const BETWEEN: u64 = u64::MAX;

/// Adds in one instruction, so that a signal comes before or after it; other threads do not write here.
#[inline(always)]
pub fn add(place: &AtomicU64, bytes: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut before = bytes;
        // SAFETY: a word of this process, read and written by one instruction.
        unsafe {
            core::arch::asm!(
                "xadd qword ptr [{place}], {before}",
                place = in(reg) place.as_ptr(),
                before = inout(reg) before,
                options(nostack),
            );
        }
        before
    }
    #[cfg(not(target_arch = "x86_64"))]
    place.fetch_add(bytes, Relaxed)
}

/// What a thread notes; empty if all bytes are zero. Layout: thread.c.
#[repr(C)]
pub struct Notes {
    /// When the outermost call that moves a position began; zero if none is in progress.
    began: AtomicU64,
    /// The stack's height then (upper 48 bits), and its descriptor; written before `began`, and of no meaning
    /// without.
    place: AtomicUsize,
    /// Bytes that handlers wrote to the same descriptor during it.
    total: AtomicU64,
    /// Those of them that came after the call's own, as far as that is known.
    later: AtomicU64,
    /// Where the first of them began, and where the last one ended, if nothing is counted along.
    first: AtomicU64,
    end: AtomicU64,
}

fn low(fd: c_int) -> usize {
    fd as usize & 0xFFFF
}

impl Notes {
    /// A call that moves the position of `fd` begins at this moment and height of the stack.
    #[inline(always)]
    pub fn begin(&self, fd: c_int, now: u64, here: impl Fn() -> usize) {
        if self.began.load(Relaxed) == 0 || self.was_left(here()) {
            // Notes for a call whose end a handler interrupted.
            if self.any() {
                self.forget();
            }
            let place = here() << 16 | low(fd);
            self.place.store(place, Relaxed);
            compiler_fence(SeqCst);
            self.began.store(now, Relaxed);
            compiler_fence(SeqCst);
            // A handler's call that came between the two was the outermost one.
            if self.place.load(Relaxed) != place {
                self.place.store(place, Relaxed);
            }
        }
    }

    /// The call that began then has ended.
    #[inline(always)]
    pub fn end(&self, start: u64) {
        if self.began.load(Relaxed) == start {
            self.began.store(0, Relaxed);
            if self.any() {
                self.forget();
            }
        }
    }

    /// True if a handler wrote to the descriptor of the call in progress.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.total.load(Relaxed) != 0
    }

    /// True for the call that is marked as in progress.
    #[inline(always)]
    pub fn is_outermost(&self, start: u64) -> bool {
        self.began.load(Relaxed) == start
    }

    /// True for a call that began while another was in progress.
    pub fn is_inner(&self, start: u64) -> bool {
        !matches!(self.began.load(Relaxed), 0) && !self.is_outermost(start)
    }

    /// True if the call that is marked as in progress was left by a jump: a caller that is not below it on
    /// the stack did not interrupt it. Where it wrote is unknown.
    #[cold]
    #[inline(never)]
    fn was_left(&self, here: usize) -> bool {
        let height = self.place.load(Relaxed) >> 16;
        let left = here + FRAME > height && !sys::on_signal_stack();
        if left {
            hot::share_all();
            // From here on a handler notes nothing.
            self.began.store(0, Relaxed);
        }
        left
    }

    #[cold]
    fn forget(&self) {
        for word in [&self.total, &self.later, &self.first, &self.end] {
            word.store(0, Relaxed);
        }
    }

    /// A handler wrote `bytes` at `at`. `behind`: whether they are known to be after those of the interrupted
    /// call, and not counted yet; None if positions are not counted.
    pub fn note(&self, fd: c_int, at: u64, bytes: u64, behind: Option<bool>) {
        let noted = self.place.load(Relaxed) & 0xFFFF;
        if noted != low(fd) || bytes == 0 {
            return;
        }
        if !self.any() {
            self.first.store(at, Relaxed);
        } else if behind.is_none() && at != self.end.load(Relaxed) {
            // The call's own bytes came between, so only what follows is behind them.
            self.first.store(BETWEEN, Relaxed);
            self.later.store(0, Relaxed);
        }
        if behind.unwrap_or(self.first.load(Relaxed) == BETWEEN) {
            self.later.fetch_add(bytes, Relaxed);
        }
        self.end.store(at.wrapping_add(bytes), Relaxed);
        self.total.fetch_add(bytes, Relaxed);
    }

    /// Bytes of handlers that are not counted yet.
    pub fn behind(&self) -> u64 {
        self.later.swap(0, Relaxed)
    }

    /// Where `bytes` of the outermost call begin, if the descriptor stands at `end` after all.
    pub fn place_before(&self, end: u64, bytes: u64) -> u64 {
        let (total, first) = (self.total.load(Relaxed), self.first.load(Relaxed));
        let all_before = end.wrapping_sub(bytes).wrapping_sub(total);
        let behind = match first {
            BETWEEN => self.later.load(Relaxed),
            // The first one found the file as the call did: it came, and with it all, before the call's
            // bytes.
            _ if first == all_before => 0,
            _ => total,
        };
        end.saturating_sub(bytes).saturating_sub(behind)
    }

    /// Bytes noted so far: to be asked before a look at the descriptor and after.
    pub fn so_far(&self) -> u64 {
        self.total.load(Relaxed)
    }
}
