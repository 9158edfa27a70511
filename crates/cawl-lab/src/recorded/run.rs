//! Recorded runs: a program's calls with what they cost, and the kernel's counters sampled beside them.

use cawl_core::{Rate, Record, Sample};
use cawl_wire::Event;

/// How a run was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunArgs {
    /// Bytes per call (`-c`).
    pub chunk: u64,
    /// Bytes in all (`-t`).
    pub total: u64,
    /// O_DIRECT (`-f d`).
    pub direct: bool,
    /// O_SYNC (`-f s`).
    pub sync: bool,
    /// fwrite on a default stream (`-l`).
    pub stream: bool,
    /// fsync after writes (`-s`).
    pub fsync: bool,
    /// Random offsets (`-r`).
    pub random: bool,
    /// Part of a chunk to seek back before each write (`-b`), in thousandths.
    pub back: u32,
    /// Over a file that was written, synced and cached before.
    pub rewrite: bool,
    /// Seek time of the disk, in ns; 0 if nothing says so.
    pub seek: u64,
}

/// A run as it was recorded.
#[derive(Clone, Debug, Default)]
pub struct RecordedRun {
    /// Its name.
    pub name: String,
    /// How it was made.
    pub args: RunArgs,
    /// Its calls, in order of their starts.
    pub events: Vec<Event>,
    /// The kernel's counters during it, in order of time.
    pub samples: Vec<Sample>,
    /// The base rate that the kernel held its writers to in the end, if its tracepoints were read and tell.
    pub base_rate: Option<Rate>,
}

impl RecordedRun {
    /// Calls and samples in the order in which an analysis takes them.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        let mut samples = self.samples.iter().peekable();
        let mut events = self.events.iter().peekable();
        std::iter::from_fn(move || {
            let sample_first = match (samples.peek(), events.peek()) {
                (Some(sample), Some(event)) => sample.time.0 < event.start,
                (sample, _) => sample.is_some(),
            };
            if sample_first {
                samples.next().map(|sample| Record::Sample(*sample))
            } else {
                events.next().map(|event| Record::Event(*event))
            }
        })
    }
}
