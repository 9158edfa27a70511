//! What all measurements share: the folder, the budget of bytes and time, the clock, and interruption.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use cawl_core::{Bytes, Nanos, Sample, Time};
use cawl_host::direct::AlignedBuffer;
use cawl_host::place::Place;

use super::interference::Stopwatch;
use super::patience;
use crate::interrupt::Interrupted;
use crate::progress::Progress;
use crate::scratch::Scratch;

/// Largest single call.
pub const LARGEST: usize = 4 << 20;

/// Data to write: more than the caches of most processors hold.
pub const SOURCE: usize = 64 << 20;
/// Data to write in a brief calibration: where a host must supply cold memory, more would take all the time.
pub const BRIEF_SOURCE: usize = 16 << 20;
/// Calls of this size and more take their data from memory, smaller ones from the processor's cache.
pub const FROM_MEMORY: usize = 256 << 10;

/// A brief measurement has used up its time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("there was no time left to measure anything")]
pub struct OutOfTime;

pub struct Bench {
    /// The place that is measured.
    pub place: Place,
    /// The folder for its files.
    pub scratch: Scratch,
    /// The progress line.
    pub progress: Progress,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// Fewest and most repeats of a measurement.
    pub rounds: (usize, usize),
    /// A brief measurement stops at its deadline, also within a round.
    pub brief: bool,
    /// Bytes that may still be written to the device.
    pub bytes_left: u64,
    /// Bytes written to the device.
    pub bytes_written: u64,
    /// Most space used at a time.
    pub space: u64,
    pub data: AlignedBuffer,
    /// Time at which the current measurement should end.
    pub deadline: Time,
    /// Holds the number of a signal that asks to stop, or zero.
    pub signal: Arc<AtomicUsize>,
}

impl Bench {
    /// Each page is a folio of its own: the filesystem has no other, or the running kernel has none of it.
    pub fn has_single_pages(&self) -> bool {
        self.place.kind.has_single_pages(cawl_host::laws())
    }

    /// An error once a signal has asked to stop, or the time of a brief measurement is over.
    pub fn go_on(&self) -> anyhow::Result<()> {
        Interrupted::by(&self.signal)?;
        anyhow::ensure!(!self.brief || cawl_host::now() < self.deadline, OutOfTime);
        Ok(())
    }

    /// Repeats a round: at least the fewest times, then until the most or the deadline. Rounds during which
    /// the page cache was dropped do not count. A round that runs out of time ends the repetition.
    pub fn repeat(
        &mut self,
        mut round: impl FnMut(&mut Bench, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (fewest, most) = self.rounds;
        for index in 0..most {
            if index >= fewest && cawl_host::now() >= self.deadline {
                break;
            }
            self.progress.show();
            match self.go_on().and_then(|()| round(self, index)) {
                Err(error) if error.is::<OutOfTime>() => break,
                result => result?,
            }
        }
        Ok(())
    }

    /// True if the page cache was dropped since `before`; noted once.
    pub fn cache_was_dropped(&mut self, before: u64) -> bool {
        let dropped = cawl_host::page_cache_drops() != before;
        if dropped {
            self.note("the page cache was dropped (drop_caches); the affected rounds were measured again");
        }
        dropped
    }

    /// Adds a remark, once.
    pub fn note(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// True if `bytes` more may be written to the device; they are then deducted.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let may = bytes <= self.bytes_left;
        if may {
            self.bytes_left -= bytes;
            self.bytes_written += bytes;
        }
        may
    }

    /// Writes `length` bytes at `offset` in calls of `size`; returns the total time in ns, without waits for
    /// a processor. Large calls take other data each time, from memory; small ones take the same data, from
    /// the processor's cache, as in programs that have just produced them.
    pub fn write_run(&self, file: &File, offset: u64, length: usize, size: usize) -> anyhow::Result<f64> {
        let source = if size >= FROM_MEMORY { self.data.bytes().len() } else { size };
        self.write_from(source, file, offset, length, size)
    }

    /// Writes as [`Bench::write_run`] does, with the first `source` bytes of the data in turn; the ns in all.
    pub fn write_from(
        &self,
        source: usize,
        file: &File,
        offset: u64,
        length: usize,
        size: usize,
    ) -> anyhow::Result<f64> {
        let watch = Stopwatch::start();
        for at in (0..length / size).map(|call| offset + (call * size) as u64) {
            if size >= FROM_MEMORY {
                self.go_on()?;
            }
            let from = at as usize % (source - size + 1) / size * size;
            let data = &self.data.bytes()[from..from + size];
            file.write_all_at(data, at).with_context(no_space)?;
        }
        Ok(watch.elapsed())
    }

    /// True if the device can be measured. A brief calibration waits for the data of other programs to be
    /// written back, for half of the time that `run` waits; a longer one measures several times.
    pub fn device_is_free(&mut self) -> anyhow::Result<bool> {
        let deadline = after(Nanos::seconds(patience().as_secs_f64() / 2.0));
        while self.brief && cawl_host::writes_back() {
            if cawl_host::now() >= deadline {
                let left = cawl_host::sample().map_or(0, |sample| dirty(&sample));
                self.note(&format!(
                    "the device was not measured: it wrote back data of other programs, of which {} were left; the \
                     next run measures it",
                    Bytes(left)
                ));
                return Ok(false);
            }
            Interrupted::by(&self.signal)?;
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(true)
    }

    /// Waits until little is dirty, so that a measurement does not wait for older data. Gives up at the
    /// deadline.
    pub fn settle(&mut self, room: u64) -> anyhow::Result<()> {
        loop {
            let Some(sample) = cawl_host::sample() else { return Ok(()) };
            // A brief calibration does not wait, since the data of other programs may take any time; it is
            // not throttled either below the middle of the limits.
            let most = if self.brief { (sample.background + sample.hard) / 2 } else { sample.background };
            if dirty(&sample) + room < most * cawl_host::page().0 {
                return Ok(());
            }
            anyhow::ensure!(!self.brief, OutOfTime);
            if cawl_host::now() >= self.deadline {
                self.note(
                    "other programs kept much data dirty; page-cache figures may be those of a busy machine",
                );
                return Ok(());
            }
            self.go_on()?;
            let file = self.scratch.file("settle")?;
            nix::unistd::syncfs(&file)?;
            self.scratch.remove("settle");
        }
    }
}

/// Dirty and under writeback, in bytes.
pub fn dirty(sample: &Sample) -> u64 {
    (sample.dirty + sample.writeback) * cawl_host::page().0
}

/// The error message of a failed write.
pub fn no_space() -> String {
    "a write failed; if the disk or your quota is full, free some space or give a lower --max-bytes"
        .to_owned()
}

/// Time since `start`, in ns.
pub fn since(start: Time) -> f64 {
    cawl_host::now().since(start).get()
}

/// Time of one action, in ns, without waits for a processor.
pub fn timed(action: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let watch = Stopwatch::start();
    action()?;
    Ok(watch.elapsed())
}

/// Time of one action, in ns, with waits for a processor. Where the server of a mount is a process of this
/// machine, the caller waits for the processor that it takes, each time.
pub fn timed_with_waits(action: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = cawl_host::now();
    action()?;
    Ok(cawl_host::now().since(start).get())
}

/// The time a span from now.
pub fn after(span: Nanos) -> Time {
    cawl_host::now() + span
}

/// The background limit in bytes.
pub fn background() -> Bytes {
    cawl_host::sample().map_or(Bytes::mib(256), |sample| sample.limits(cawl_host::page()).background)
}

/// The hard limit in bytes.
pub fn hard() -> Bytes {
    cawl_host::sample().map_or(Bytes::mib(512), |sample| sample.limits(cawl_host::page()).hard)
}
