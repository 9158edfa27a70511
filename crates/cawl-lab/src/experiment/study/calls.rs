//! Calls as the models are shown them, of one thread and one file.

use anyhow::Context;
use cawl_core::{HostProfile, OpenLoop};
use cawl_wire::{ADVICE_DONTNEED, Event, FileKind, Op};

/// Ranges of a file that [`Op::Resident`] tells of, and the unit of their length.
const RANGES: u64 = 64;
const PAGE: u64 = 4096;

/// What a model predicts of one thread's calls on a file, in open loop.
pub struct Shown(OpenLoop);

impl Shown {
    /// Nothing, yet, to the model of this name.
    pub fn to(model: &str, profile: &HostProfile) -> anyhow::Result<Shown> {
        OpenLoop::new(model, profile).map(Shown).context("there is no such model")
    }

    /// What the next call takes, in ns.
    pub fn step(&mut self, event: Event) -> f64 {
        self.0.cost(event).get()
    }

    /// Writes a file in calls of `size`.
    pub fn fill(&mut self, length: u64, size: u64, flags: u32) {
        for at in (0..length).step_by(size as usize) {
            self.step(write(at, size, flags));
        }
    }

    /// Synchronises the file.
    pub fn sync(&mut self) {
        self.step(call(Op::Fsync));
    }

    /// Tells what of the file is cached, all or nothing, as the tracer does before the first read.
    pub fn tell(&mut self, length: u64, is_cached: bool) {
        let pages = length.div_ceil(PAGE).div_ceil(RANGES);
        let (ranges, bytes) = if is_cached { (u64::MAX, length as i64) } else { (0, 0) };
        self.step(Event { offset: pages * PAGE, requested: ranges, returned: bytes, ..call(Op::Resident) });
    }

    /// Drops it from the page cache.
    pub fn drop_cached(&mut self) {
        self.step(Event { aux: ADVICE_DONTNEED, ..call(Op::Advise) });
    }
}

/// A call on the file.
pub fn call(op: Op) -> Event {
    let mut event = Event::new(op);
    (event.dev, event.ino, event.pid, event.tid) = (1, 1, 1, 1);
    (event.kind, event.offset) = (FileKind::Regular, 0);
    event
}

/// A read of it.
pub fn read(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, flags, ..call(Op::Pread) }
}

/// A write to it.
pub fn write(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, flags, ..call(Op::Pwrite) }
}
