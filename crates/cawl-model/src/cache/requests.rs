//! The requests to a device that pages make which are handed over one run after another.

use super::REQUEST;

/// The requests that runs of pages make.
#[derive(Clone, Copy)]
pub(super) struct Requests {
    /// Room that they take in a device's queue, in pages.
    pub(super) queued: u64,
    /// Those that do not begin where the one before ended.
    pub(super) jumps: u64,
    /// The latest.
    pub(super) run: (u64, u64),
}

impl Requests {
    /// Adds a run; the room that all of them take.
    pub(super) fn add(&mut self, start: u64, end: u64) -> u64 {
        if self.run.1 != start {
            self.run = (start, start);
            self.jumps += 1;
        }
        // Counted anew with what it has grown by.
        self.queued -= if self.run.0 < self.run.1 { REQUEST.max(self.run.1 - self.run.0) } else { 0 };
        self.run.1 = end;
        self.queued += REQUEST.max(self.run.1 - self.run.0);
        self.queued
    }
}
