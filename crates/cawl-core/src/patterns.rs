//! How files are written, and read as far as that is recorded: sizes, order, alignment, bytes written again,
//! gaps, holes, pages met in the cache, intervals between fsyncs, and concurrent writers.
//!
//! The law: **counted, not inferred.** Every figure is a count over calls that gave bytes to the kernel. What
//! is bounded (threads of a file, sizes by name, places written) says what it left out. Only the pages met
//! come from a model, the first one.

mod order;
mod report;
mod sizes;
mod written;

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use crate::buffers::Fill;
use crate::call::{KEEP_SIZE, PUNCH_HOLE};
use crate::model::{Met, Prediction};
use crate::record::FileFacts;
use crate::tally::Tally;
use order::{Actors, Order};
pub use report::{
    FilePatterns, OpPatterns, PatternSums, SizeCount, SmallFiles, Spread, SyncPatterns, WriterPatterns,
};
pub(crate) use sizes::Sizes;
use written::Written;

/// Length of a page where no file is told to have another block.
const PAGE: u64 = 4096;
/// Blocks of 2 MiB that are remembered to be written, over all files: 20 MB at most.
const BLOCKS: usize = 1 << 17;

/// Files whose patterns are kept; calls on further ones are counted.
const FILES: usize = 1 << 14;

/// The patterns of all files, by the number of their row.
#[derive(Default)]
pub(crate) struct Patterns {
    files: Vec<Known>,
    /// Blocks remembered to be written.
    blocks: usize,
    /// Files with a pattern.
    kept: usize,
    /// Calls on files without one.
    omitted: u64,
}

#[derive(Default)]
struct Known {
    /// Its length in bytes.
    size: u64,
    /// Preferred I/O size, in bytes; 0 if not told.
    block: u32,
    /// lseek came before the first write.
    sought: bool,
    pattern: Option<Box<FilePattern>>,
}

#[derive(Default)]
struct FilePattern {
    ops: Vec<(Op, OpPattern)>,
    actors: Actors,
    written: Written,
    fill: Option<Box<Fill>>,
    /// The ends of what was written ever.
    span: Option<(u64, u64)>,
    /// Holes made, and their bytes.
    holes: (u64, u64),
    /// When the latest write to end ends, in ns, and its thread.
    busy: (u64, u32),
    /// Calls that began before another thread's had ended.
    overlapping: u64,
    syncs: Option<Box<Syncs>>,
    /// Calls, bytes, and when the first of them began, since the latest fsync.
    unsynced: (u64, u64, u64),
}

/// How an operation uses a file.
#[derive(Default)]
struct OpPattern {
    count: Tally,
    sizes: Sizes,
    order: Order,
    page_aligned: u64,
    block_aligned: u64,
    /// Pages met: fresh, clean, dirty.
    met: (u64, u64, u64),
    rewritten: u64,
    rewritten_dirty: u64,
}

/// Intervals between fsyncs of a file.
#[derive(Clone, Copy, Default)]
struct Syncs {
    calls: u64,
    /// Without a write since the one before.
    idle: u64,
    /// Calls, bytes and ns between two.
    intervals: [Extent; 3],
}

/// A sum and its smallest and largest part.
#[derive(Clone, Copy, Default)]
struct Extent {
    sum: u64,
    least: u64,
    most: u64,
}

impl Extent {
    /// Adds a part, the first one or another.
    fn add(&mut self, part: u64, is_first: bool) {
        self.sum = self.sum.saturating_add(part);
        self.least = if is_first { part } else { self.least.min(part) };
        self.most = self.most.max(part);
    }
}

impl Patterns {
    fn known(&mut self, row: usize) -> &mut Known {
        if self.files.len() <= row {
            self.files.resize_with(row + 1, Known::default);
        }
        &mut self.files[row]
    }

    /// True if the file of this row has a pattern from now on.
    #[inline]
    fn admit(&mut self, row: usize) -> bool {
        self.files.get(row).is_some_and(|known| known.pattern.is_some()) || self.admit_new(row)
    }

    #[cold]
    fn admit_new(&mut self, row: usize) -> bool {
        let has_room = self.kept < FILES;
        if has_room {
            self.known(row).pattern = Some(Box::default());
            self.kept += 1;
        }
        has_room
    }

    /// The file of this row is described.
    pub(crate) fn set_facts(&mut self, row: usize, facts: &FileFacts) {
        let known = self.known(row);
        known.size = known.size.max(facts.size.0);
        known.block = facts.block;
    }

    /// A file goes on in the row of one that was deleted.
    pub(crate) fn succeed(&mut self, row: usize, before: usize) {
        if row != before {
            let Known { size, block, sought, pattern } = std::mem::take(self.known(row));
            self.kept -= usize::from(pattern.is_some());
            let known = self.known(before);
            (known.size, known.block, known.sought) = (size, block, sought);
            self.cut(before, 0);
        }
    }

    /// A call on the file of this row that is no write: it changes its length, or reads it.
    pub(crate) fn effect(&mut self, row: usize, event: &Event) {
        match event.op {
            Op::Open | Op::StreamOpen if event.errno == 0 => {
                if event.has(flag::TRUNC) {
                    self.cut(row, 0);
                }
                let known = self.known(row);
                known.size = known.size.max(event.requested);
            }
            Op::Seek if event.errno == 0 => {
                let known = self.known(row);
                known.sought |= known.pattern.is_none();
            }
            Op::Truncate if event.errno == 0 => {
                self.cut(row, event.offset);
                self.known(row).size = event.offset;
            }
            Op::Allocate if event.errno == 0 => {
                self.admit(row);
                let known = self.known(row);
                if event.aux & PUNCH_HOLE != 0 {
                    if let Some(pattern) = &mut known.pattern {
                        pattern.holes.0 += 1;
                        pattern.holes.1 = pattern.holes.1.saturating_add(event.requested);
                    }
                } else if event.aux & KEEP_SIZE == 0 {
                    known.size = known.size.max(event.offset.saturating_add(event.requested));
                }
            }
            Op::Read | Op::Pread if event.returned > 0 && self.admit(row) => {
                let known = self.known(row);
                let block = u64::from(known.block);
                let pattern = known.pattern.get_or_insert_default();
                let offset = Some(event.offset).filter(|offset| *offset != UNKNOWN_OFFSET);
                pattern.place(event, event.returned as u64, offset, block);
            }
            _ => {}
        }
    }

    /// A call on the file of this row that the report is not about: what it wrote is no hole of later ones.
    pub(crate) fn unselected(&mut self, row: usize, event: &Event, bytes: u64) {
        match event.op {
            Op::Open | Op::StreamOpen | Op::Truncate => self.effect(row, event),
            _ if bytes > 0 && event.offset != UNKNOWN_OFFSET => {
                let known = self.known(row);
                known.size = known.size.max(event.offset.saturating_add(bytes));
            }
            _ if bytes > 0 && event.has(flag::APPEND) => {
                let known = self.known(row);
                known.size = known.size.saturating_add(bytes);
            }
            _ => {}
        }
    }

    /// What of the file lies behind this length is gone.
    fn cut(&mut self, row: usize, length: u64) {
        let Some(known) = self.files.get_mut(row) else { return };
        known.size = known.size.min(length);
        if let Some(pattern) = &mut known.pattern {
            let before = pattern.written.blocks();
            pattern.written.cut(length);
            pattern.span =
                pattern.span.filter(|span| span.0 < length).map(|span| (span.0, span.1.min(length)));
            self.blocks = (self.blocks + pattern.written.blocks()).saturating_sub(before);
        }
    }

    /// A call on the file of this row, with the bytes that it gave the kernel and what the first model
    /// predicted.
    #[inline]
    pub(crate) fn call(&mut self, row: usize, event: &Event, bytes: u64, prediction: Option<&Prediction>) {
        if bytes == 0 {
            self.effect(row, event);
            if matches!(event.op, Op::Fsync | Op::Fdatasync)
                && event.errno == 0
                && let Some(pattern) = self.files.get_mut(row).and_then(|known| known.pattern.as_mut())
            {
                pattern.sync(event);
            }
            return;
        }
        // When stores went where is not known.
        if event.op == Op::MmapWrite {
            return;
        }
        if !self.admit(row) {
            self.omitted += 1;
            return;
        }
        let room = self.blocks < BLOCKS;
        let known = &mut self.files[row];
        let pattern = known.pattern.get_or_insert_default();
        // A stream that was moved tells where it stands now.
        let offset = match event.offset {
            _ if event.op == Op::StreamSeek => None,
            UNKNOWN_OFFSET => event.has(flag::APPEND).then_some(known.size),
            offset => Some(offset),
        };
        let at = pattern.place(event, bytes, offset, u64::from(known.block));
        pattern.beside(event, bytes);
        Fill::take(&mut pattern.fill, event, bytes);
        let (_, of) = &mut pattern.ops[at];
        let met = prediction.map_or(Met::default(), |prediction| prediction.work.met);
        of.met.0 += u64::from(met.fresh);
        of.met.1 += u64::from(met.cached);
        of.met.2 += u64::from(met.dirty);
        let Some(offset) = offset else { return };
        let end = offset.saturating_add(bytes);
        // What appends makes no hole: another process made the file longer.
        if offset > known.size && !event.has(flag::APPEND) {
            pattern.holes.0 += 1;
            pattern.holes.1 = pattern.holes.1.saturating_add(offset - known.size);
        }
        known.size = known.size.max(end);
        pattern.span =
            Some(pattern.span.map_or((offset, end), |(first, last)| (first.min(offset), last.max(end))));
        let before = pattern.written.blocks();
        // What passes the cache by meets no page.
        let known = (met != Met::default()).then_some(u64::from(met.cached + met.dirty));
        let again = pattern.written.add(offset, end, known, room);
        self.blocks = (self.blocks + pattern.written.blocks()).saturating_sub(before);
        of.rewritten = of.rewritten.saturating_add(again);
        let dirty = again.min(u64::from(met.dirty) * PAGE);
        of.rewritten_dirty = of.rewritten_dirty.saturating_add(dirty);
    }
}

impl FilePattern {
    /// Counts what the call alone tells, and its place after the ones before; the number of its operation.
    #[inline]
    fn place(&mut self, event: &Event, bytes: u64, offset: Option<u64>, block: u64) -> usize {
        let at = match self.ops.iter().position(|(op, _)| *op == event.op) {
            Some(at) => at,
            None => {
                self.ops.reserve_exact(1);
                self.ops.push((event.op, OpPattern::default()));
                self.ops.len() - 1
            }
        };
        let (_, of) = &mut self.ops[at];
        of.count.add(bytes);
        of.sizes.add(bytes);
        self.actors.act(event, bytes, offset, &mut of.order);
        if let Some(offset) = offset {
            let end = offset.saturating_add(bytes);
            let aligned = |unit: u64| offset.is_multiple_of(unit) && end.is_multiple_of(unit);
            let on_page = aligned(PAGE);
            of.page_aligned += u64::from(on_page);
            of.block_aligned += u64::from(if block <= 1 || block == PAGE { on_page } else { aligned(block) });
        }
        at
    }

    /// Counts a write among those of other threads, and since the latest fsync.
    #[inline]
    fn beside(&mut self, event: &Event, bytes: u64) {
        let (end, tid) = self.busy;
        if event.start < end && event.tid != tid {
            self.overlapping += 1;
        }
        if event.end() >= end {
            self.busy = (event.end(), event.tid);
        }
        let (calls, sum, since) = &mut self.unsynced;
        if *calls == 0 {
            *since = event.start;
        }
        *calls += 1;
        *sum = sum.saturating_add(bytes);
    }

    /// An fsync of the file that did not fail.
    fn sync(&mut self, event: &Event) {
        let (calls, bytes, since) = std::mem::take(&mut self.unsynced);
        let syncs = self.syncs.get_or_insert_default();
        let is_first = syncs.calls == syncs.idle;
        syncs.calls += 1;
        if calls == 0 {
            syncs.idle += 1;
            return;
        }
        let parts = [calls, bytes, event.start.saturating_sub(since)];
        syncs.intervals.iter_mut().zip(parts).for_each(|(extent, part)| extent.add(part, is_first));
    }
}

#[cfg(test)]
mod tests;
