//! Patterns as data.

use cawl_wire::Op;
use serde::{Deserialize, Serialize};

use super::{Extent, FilePattern, Known, OpPattern, PAGE, Patterns};
use crate::buffers::{Fill, Language, ProgramBuffer, Seen};
use crate::units::is_zero;

/// Files shorter than this are small.
const SMALL: u64 = 64 << 10;

/// How a file was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilePatterns {
    /// By operation.
    pub ops: Vec<OpPatterns>,
    /// fsync and fdatasync; None without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syncs: Option<SyncPatterns>,
    /// Bytes between the first and the last place written that were not, to a page; None where there were
    /// too many places to remember.
    pub gap_bytes: Option<u64>,
    /// Writes beyond the end of the file, and holes punched.
    pub holes: u64,
    /// Bytes of these when they were made.
    pub hole_bytes: u64,
    /// Who wrote it: the threads of the latest calls.
    pub writers: Vec<WriterPatterns>,
    /// Calls of further threads.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub other_writers_calls: u64,
    /// Calls that began before another thread's call had ended.
    pub overlapping_calls: u64,
    /// The buffer of the program's library that it was written through, where its sizes tell of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<ProgramBuffer>,
}

/// How an operation was used: calls that gave bytes to the kernel, or took some.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpPatterns {
    /// Name of the operation.
    pub op: String,
    /// Calls with bytes.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls by the power of two that their size is at least, ascending.
    pub sizes: Vec<SizeCount>,
    /// The most frequent sizes: those of more than a hundredth of the calls, as far as certain.
    pub frequent: Vec<SizeCount>,
    /// Calls that began where the latest one of their thread, or of any, ended.
    pub sequential: u64,
    /// Calls at equal distances.
    pub strided: u64,
    /// Other calls; a thread's first call on a file is none of the three.
    pub random: u64,
    /// The most frequent distance, in bytes, from beginning to beginning; 0: the same place again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<i64>,
    /// Calls that begin and end at a page's boundary.
    pub page_aligned: u64,
    /// Calls that begin and end at a boundary of the file's blocks (`st_blksize`).
    pub block_aligned: u64,
    /// Pages written that were not in the cache, by the first model.
    pub fresh_pages: u64,
    /// Pages written that were cached and clean.
    pub cached_pages: u64,
    /// Pages written that were dirty.
    pub dirty_pages: u64,
    /// Bytes written where the program had written before.
    pub rewritten_bytes: u64,
    /// Of these, bytes in pages that were still dirty.
    pub rewritten_dirty_bytes: u64,
}

/// Calls of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCount {
    /// Size in bytes.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
}

/// The fsyncs of a file, and what came between two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SyncPatterns {
    /// fsync and fdatasync, but for those that failed.
    pub calls: u64,
    /// Of these, calls with no write since the one before.
    pub idle: u64,
    /// Writes between two.
    pub writes: Spread,
    /// Bytes between two.
    pub bytes: Spread,
    /// Seconds from the first write to the fsync.
    pub seconds: Spread,
    /// Bytes written after the last one.
    pub unsynced_bytes: u64,
}

/// A figure of several intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Its mean.
    pub mean: f64,
    /// Its smallest value.
    pub min: f64,
    /// Its largest value.
    pub max: f64,
}

/// A thread that wrote a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterPatterns {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Calls.
    pub calls: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Patterns of all files together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PatternSums {
    /// By operation; strides and sizes by name are told by file only.
    pub ops: Vec<OpPatterns>,
    /// Files written that ended shorter than a block.
    pub below_block: SmallFiles,
    /// Files written that ended shorter than 64 KiB, those included.
    pub below_64k: SmallFiles,
    /// Files that more than one thread wrote.
    pub shared_files: u64,
    /// Calls on further files than there is room for (16 384), which are not in these sums.
    #[serde(default)]
    pub omitted_calls: u64,
}

/// Files of a size, and what writing them took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SmallFiles {
    /// Files.
    pub files: u64,
    /// Bytes written to them.
    pub bytes: u64,
    /// Observed time of all calls on them, in seconds.
    pub seconds: f64,
}

impl SmallFiles {
    fn add(&mut self, bytes: u64, seconds: f64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.seconds += seconds;
    }
}

impl Patterns {
    /// The patterns of the file of this row; None if no call gave bytes to it. `language` tells that of a
    /// process at a time in ns.
    pub(crate) fn file(
        &self,
        row: usize,
        language: impl Fn(u32, u64) -> Option<Language>,
    ) -> Option<FilePatterns> {
        let &Known { ref pattern, block, sought, .. } = self.files.get(row)?;
        let pattern = pattern.as_ref()?;
        let is_write = |op: &Op| !matches!(op, Op::Read | Op::Pread);
        let calls = pattern.ops.iter().filter(|(op, _)| is_write(op)).map(|(_, of)| of.count.calls).sum();
        let buffer = |fill: &Fill| {
            let language = language(fill.pid, fill.since);
            fill.buffer(Seen { language, block, calls, sought })
        };
        Some(FilePatterns { buffer: pattern.fill.as_deref().and_then(buffer), ..pattern.report() })
    }

    /// The sums over all files; `seconds` tells the observed time of all calls on the file of a row.
    pub(crate) fn sums(&self, seconds: impl Fn(usize) -> f64) -> PatternSums {
        let mut sums = PatternSums { omitted_calls: self.omitted, ..PatternSums::default() };
        for (row, known) in self.files.iter().enumerate() {
            let Some(pattern) = &known.pattern else { continue };
            let writers = pattern.actors.writers().len() as u64 + u64::from(pattern.actors.others.calls > 0);
            sums.shared_files += u64::from(writers > 1);
            pattern.ops.iter().for_each(|(op, of)| sums.add(*op, of));
            if pattern.span.is_some() {
                sums.add_small(known, pattern, seconds(row));
            }
        }
        sums
    }
}

impl PatternSums {
    fn add(&mut self, op: Op, of: &OpPattern) {
        let name = op.name();
        let at = self.ops.iter().position(|sum| sum.op == name).unwrap_or_else(|| {
            self.ops.push(OpPatterns { op: name.to_owned(), ..OpPatterns::default() });
            self.ops.len() - 1
        });
        let sum = &mut self.ops[at];
        for (bytes, calls) in of.sizes.powers() {
            match sum.sizes.binary_search_by_key(&bytes, |size| size.bytes) {
                Ok(at) => sum.sizes[at].calls += calls,
                Err(at) => sum.sizes.insert(at, SizeCount { bytes, calls }),
            }
        }
        let counts = [
            (&mut sum.calls, of.count.calls),
            (&mut sum.bytes, of.count.bytes),
            (&mut sum.sequential, of.order.sequential),
            (&mut sum.strided, of.order.strided),
            (&mut sum.random, of.order.random),
            (&mut sum.page_aligned, of.page_aligned),
            (&mut sum.block_aligned, of.block_aligned),
            (&mut sum.fresh_pages, of.met.0),
            (&mut sum.cached_pages, of.met.1),
            (&mut sum.dirty_pages, of.met.2),
            (&mut sum.rewritten_bytes, of.rewritten),
            (&mut sum.rewritten_dirty_bytes, of.rewritten_dirty),
        ];
        counts.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }

    fn add_small(&mut self, known: &Known, pattern: &FilePattern, seconds: f64) {
        let block = if known.block > 0 { u64::from(known.block) } else { PAGE };
        let bytes = pattern.ops.iter().map(|(_, of)| of.count.bytes).fold(0, u64::saturating_add);
        for (small, most) in [(&mut self.below_block, block), (&mut self.below_64k, SMALL)] {
            if known.size < most {
                small.add(bytes, seconds);
            }
        }
    }
}

impl FilePattern {
    fn report(&self) -> FilePatterns {
        let span = self.span.map_or(0, |(first, last)| last - first);
        let writer = |actor: &super::order::Actor| WriterPatterns {
            pid: actor.pid,
            tid: actor.tid,
            calls: actor.count.calls,
            bytes: actor.count.bytes,
        };
        FilePatterns {
            ops: self.ops.iter().map(|(op, of)| of.report(*op)).collect(),
            syncs: self.syncs.as_ref().map(|syncs| {
                let [writes, bytes, ns] = syncs.intervals;
                let count = syncs.calls - syncs.idle;
                SyncPatterns {
                    calls: syncs.calls,
                    idle: syncs.idle,
                    writes: writes.spread(count, 1.0),
                    bytes: bytes.spread(count, 1.0),
                    seconds: ns.spread(count, 1e-9),
                    unsynced_bytes: self.unsynced.1,
                }
            }),
            gap_bytes: (!self.written.is_partial).then(|| span.saturating_sub(self.written.distinct)),
            holes: self.holes.0,
            hole_bytes: self.holes.1,
            writers: self.actors.writers().into_iter().map(writer).collect(),
            other_writers_calls: self.actors.others.calls,
            overlapping_calls: self.overlapping,
            buffer: None,
        }
    }
}

impl OpPattern {
    fn report(&self, op: Op) -> OpPatterns {
        let counts = |sizes: Vec<(u64, u64)>| {
            sizes.into_iter().map(|(bytes, calls)| SizeCount { bytes, calls }).collect::<Vec<_>>()
        };
        OpPatterns {
            op: op.name().to_owned(),
            calls: self.count.calls,
            bytes: self.count.bytes,
            sizes: counts(self.sizes.powers()),
            frequent: counts(self.sizes.frequent()),
            sequential: self.order.sequential,
            strided: self.order.strided,
            random: self.order.random,
            stride: self.order.stride(),
            page_aligned: self.page_aligned,
            block_aligned: self.block_aligned,
            fresh_pages: self.met.0,
            cached_pages: self.met.1,
            dirty_pages: self.met.2,
            rewritten_bytes: self.rewritten,
            rewritten_dirty_bytes: self.rewritten_dirty,
        }
    }
}

impl Extent {
    fn spread(self, count: u64, unit: f64) -> Spread {
        let mean = if count > 0 { self.sum as f64 / count as f64 } else { 0.0 };
        Spread { mean: mean * unit, min: self.least as f64 * unit, max: self.most as f64 * unit }
    }
}
