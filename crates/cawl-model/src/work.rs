//! What a call has to do, for learning constants from what it took.

use crate::units::Seconds;

/// What a call has to do: how often each constant counts in its cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Entries into the kernel.
    pub calls: f64,
    /// Bytes copied into the page cache, while the flusher is idle and while it works; bytes that come from
    /// the processor's cache count in part.
    pub copied: [f64; 2],
    /// Bytes that count as dirty because of it.
    pub dirtied: f64,
    /// Bytes of pages allocated, while the flusher is idle and while it works.
    pub fresh: [f64; 2],
    /// Bytes that count as dirty with their folio, while the flusher is idle and while it works.
    pub padded: [f64; 2],
    /// Clean folios made dirty, while the flusher is idle and while it works.
    pub clean: [f64; 2],
    /// New folios, while the flusher is idle and while it works.
    pub folios: [f64; 2],
    /// Time of what is not learned, new pages apart from the latest ones and pages written over first,
    /// while the flusher is idle and while it works.
    pub believed: [Seconds; 2],
    /// Calls into the C library's streams.
    pub stream_calls: f64,
    /// Bytes copied into a stream's buffer.
    pub stream_bytes: f64,
    /// Bytes written to the device while the call waits.
    pub transferred: f64,
    /// Clean inodes made dirty.
    pub inodes: f64,
    /// Square root of the milliseconds since the thread's previous call into the kernel, for each way through
    /// it that the call takes anew: the copy, and new pages.
    pub away: f64,
    /// Waits for data that were submitted just before.
    pub latencies: f64,
    /// Synchronous writes waited for.
    pub syncs: f64,
    /// Of these, those that allocated blocks.
    pub allocated: f64,
    /// Commits waited for; where the cost of a flush of the device's cache is not known, that is a part of
    /// one.
    pub fsyncs: f64,
    /// Flushes of the device's cache waited for.
    pub flushes: f64,
    /// Square root of the milliseconds for which the device was idle before a wait.
    pub idle: f64,
    /// Accesses away from the previous one.
    pub seeks: f64,
    /// Requests that it made and waited for, beyond the first.
    pub requests: f64,
    /// Folios that it handed over and waited for, beyond the first.
    pub handed: f64,
    /// Time more that it takes if the source of a copy, or what it reads, is not cached.
    pub source: Seconds,
    /// Time more, or less if negative, that it takes if the device reads at the other of its speeds: from
    /// its own cache, or from its medium.
    pub other_speed: Seconds,
    /// Pages that it takes out of the cache; those of a folio beyond its first count in part.
    pub freed: f64,
    /// Waits until the device has discarded what was freed.
    pub discards: f64,
    /// 1 if it frees a file of which it is not known what was cached before its first call; else 0.
    pub frees_unknown: f64,
    /// Pages that it wrote into the cache, by what it found there.
    pub met: Met,
    /// What it reads, opens and closes.
    pub read: ReadWork,
}

/// What a call has to do that reads, opens or closes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadWork {
    /// Reads that enter the kernel.
    pub calls: f64,
    /// Bytes copied out of the page cache, those from the processor's cache in part.
    pub bytes: f64,
    /// Folios begun whose pages are in memory.
    pub folios: f64,
    /// Bytes of pages allocated.
    pub fresh: f64,
    /// Bytes of such pages that the device has filled and that the processor touches first.
    pub arrived: f64,
    /// Pages of the program's memory touched first.
    pub faults: f64,
    /// Square root of the milliseconds since the thread's previous call.
    pub away: f64,
    /// If it waits, it is for the transfers counted below and nothing else.
    pub told: bool,
    /// Waits for the device that no read before has begun.
    pub latencies: f64,
    /// Bytes waited for that were read past the cache.
    pub transferred: f64,
    /// Bytes waited for that were read ahead.
    pub ahead: f64,
    /// Time that its last request takes which is not the first of its window, if one comes after the other.
    pub later: Seconds,
    /// Time that its window takes, if it is the window's first page and a reader has waited for another
    /// since that was asked for.
    pub again: Seconds,
    /// Time before the call for which the device was busy with what it waits for.
    pub since: Seconds,
    /// Time before the call for which all was there, if it waits for nothing.
    pub there: Seconds,
    /// Files opened.
    pub opens: f64,
    /// Files created.
    pub creates: f64,
    /// Files closed.
    pub closes: f64,
    /// Names that go, or as much as what it does to names.
    pub names: f64,
    /// Names looked at, or as much as what it lists.
    pub stats: f64,
    /// Time of what is not learned, of names, opens and closes: deleted files that one who makes a file
    /// passes over, and what other work before has cost.
    pub believed: Seconds,
}

impl Work {
    /// It does not enter the kernel: the bytes stay in a stream's buffer.
    pub fn stays_in_stream(&self) -> bool {
        self.stream_calls > 0.0 && self.calls == 0.0
    }

    /// It waits for a commit of the journal; a part of one is a flush whose cost is not known.
    pub fn commits(&self) -> bool {
        self.syncs + self.fsyncs >= 1.0
    }
}

/// Pages written into the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// Those that had to be allocated.
    pub fresh: u32,
    /// Those that were cached and clean.
    pub cached: u32,
    /// Those that were dirty.
    pub dirty: u32,
}

impl Met {
    /// Adds so many pages, of which some had to be allocated and some were clean.
    pub(crate) fn add(&mut self, pages: u64, fresh: u64, cached: u64) {
        self.fresh += fresh as u32;
        self.cached += cached as u32;
        self.dirty += pages.saturating_sub(fresh + cached) as u32;
    }
}
