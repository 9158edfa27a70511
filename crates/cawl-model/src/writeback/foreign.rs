//! Dirty pages that no model of ours has seen made, and how far the kernel's own flusher is.
//!
//! The law: untraced writers' pages are an inode like any other (`writeback_sb_inodes`, 6.18): the flusher
//! takes it in turn with those of the program, so that a program which writes beside older dirty pages finds
//! half of what was written back to be its own. How long the kernel's turns are rests on an estimate that no
//! file shows (`writeback_chunk_size`, of `avg_write_bandwidth`), and so does whose turn it is: a batch of
//! each in turn is right on average.
//!
//! The kernel counts what it has begun to write. A flusher that was ahead of it rests until the kernel's can
//! have come as far: that one waits for a processor, or its turn was over and the level low enough.

use super::Machine;
use super::device::{BATCH, IDLE};
use crate::Disturbance;
use crate::cache::Cleaned;
use crate::units::{PageRate, Pages, Seconds};

/// Dirty pages of untraced writers: pages at a moment, and how many come from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreign {
    /// The moment.
    pub at: Seconds,
    /// Pages; negative where the model has too many.
    pub pages: Pages,
    /// How fast they become more.
    pub drift: PageRate,
    /// The kernel's counters have been told at all.
    pub told: bool,
    /// Pages that the flusher has taken of these, and nobody was told of.
    pub adopted: u64,
    /// Pages that all devices were given, as of the latest word of the kernel's flusher.
    submitted: u64,
    /// How many more these were lately than the kernel's.
    ahead: Pages,
}

impl Foreign {
    /// There are none, at any time.
    pub fn are_none(&self) -> bool {
        self.pages == Pages::ZERO && self.drift == PageRate::ZERO
    }

    /// Pages at a moment. They are written back like any other: what no sample confirms for
    /// longer than the drift is believed goes at the `rate` of the device.
    #[inline]
    pub fn pages(&self, now: Seconds, rate: impl FnOnce() -> PageRate) -> Pages {
        let (span, lasts) = ((now - self.at).max(Seconds::ZERO), Disturbance::LASTS.into());
        let pages = self.pages + self.drift * span.min(lasts);
        let gone = if span > lasts { rate() * (span - lasts) } else { Pages::ZERO };
        if pages > Pages::ZERO { (pages - gone).max(Pages::ZERO) } else { (pages + gone).min(Pages::ZERO) }
    }
}

impl Machine {
    /// If it is the turn of untraced writers' pages, up to `room` of them go to a device. False if there are
    /// none, or it is not their turn.
    pub(super) fn take_foreign(&mut self, at: usize, room: u64) -> bool {
        let turn = std::mem::replace(&mut self.devices[at].foreign_turn, true);
        if !turn || self.submit_foreign(at, room.min(BATCH)) == 0 {
            return false;
        }
        self.devices[at].foreign_turn = false;
        true
    }

    /// Whole pages of untraced writers that are this device's.
    pub fn foreign_of(&self, at: usize) -> u64 {
        if self.foreign.are_none() || !self.is_busiest(at) {
            0
        } else {
            self.foreign_at(self.now).max(Pages::ZERO).whole()
        }
    }

    /// Untraced writers' pages go to a device, `most` of them at most; how many do.
    pub fn submit_foreign(&mut self, at: usize, most: u64) -> u64 {
        let pages = self.foreign_of(at).min(most);
        if pages > 0 {
            // None that are there twice.
            self.foreign.pages -= Pages::of(pages);
            self.foreign.adopted += pages;
            let device = &mut self.devices[at];
            device.adopted += pages;
            device.dirty += pages;
            device.submit(Cleaned { pages, padding: 0, queued: pages, jumps: 0 });
        }
        pages
    }

    /// Untraced writers are taken to write to the device that has most to do.
    pub fn is_busiest(&self, at: usize) -> bool {
        self.devices.iter().all(|other| other.level() <= self.devices[at].level())
    }

    /// The kernel has begun to write `pages` to all devices, in the `span` before `at`.
    pub fn begun(&mut self, at: Seconds, pages: Pages, span: Seconds) {
        // What was handed over since then, as far as a call was taken as a whole.
        let since = (self.rate_at_work() * (self.now - at).max(Seconds::ZERO)).whole();
        let all: u64 = self.devices.iter().map(|device| device.submitted).sum();
        let submitted = all.saturating_sub(since).max(self.foreign.submitted);
        let own = Pages::of(submitted - self.foreign.submitted);
        self.foreign.submitted = submitted;
        let kept = (-(span / IDLE)).exp();
        self.foreign.ahead = self.foreign.ahead * kept + own - pages;
        let rest = if self.foreign.ahead > Pages::ZERO { super::INTERVAL } else { Seconds::ZERO };
        for device in 0..self.devices.len() {
            self.devices[device].rests_until = at + rest;
            self.reschedule(device);
        }
    }
}
