//! What Darshan's module POSIX counts of a file (include/darshan-posix-log-format.h of Darshan, version 4).

use cawl_wire::{Event, Op};
use rustc_hash::FxHashMap;

use super::super::traffic::Transfer;

const OPENS: usize = 0;
const DUPS: usize = 2;
const READS: usize = 3;
const SEEKS: usize = 5;
const FSYNCS: usize = 8;
const FDSYNCS: usize = 9;
const BYTES_READ: usize = 14;
const MAX_BYTE_READ: usize = 16;
const CONSEC_READS: usize = 18;
const SEQ_READS: usize = 20;
const SWITCHES: usize = 22;
const MAX_READ_TIME_SIZE: usize = 27;
const SIZE_READ: usize = 29;
const ACCESS: usize = 57;
const ACCESS_COUNT: usize = 61;
const COUNTERS: usize = 69;

const F_OPEN_START: usize = 0;
const F_READ_START: usize = 1;
const F_CLOSE_START: usize = 3;
/// The end of what begins at the counter so many before.
const F_END: usize = 4;
const F_READ_TIME: usize = 8;
const F_META_TIME: usize = 10;
const F_MAX_READ_TIME: usize = 11;
const F_COUNTERS: usize = 17;

/// Largest sizes of Darshan's ranges, the last one without an end.
const RANGES: [u64; 9] = [100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30];
/// Different sizes that are counted, as in Darshan; further ones are not.
const MAX_SIZES: usize = 32;

/// One process's use of a file. Counters of reads stand one before those of writes.
pub struct Counters {
    counts: [i64; COUNTERS],
    times: [f64; F_COUNTERS],
    /// Where the latest read and write ended.
    ends: [Option<u64>; 2],
    wrote: Option<bool>,
    sizes: FxHashMap<u64, i64>,
}

impl Default for Counters {
    fn default() -> Counters {
        let (counts, times) = ([0; COUNTERS], [0.0; F_COUNTERS]);
        Counters { counts, times, ends: [None; 2], wrote: None, sizes: FxHashMap::default() }
    }
}

impl Counters {
    /// Counts a call between two moments of the job, in seconds. False if there is no counter for it.
    pub fn count(&mut self, event: &Event, moved: Option<&Transfer>, (start, end): (f64, f64)) -> bool {
        if let Some(moved) = moved {
            self.transfer(moved, start, end);
        }
        let (counter, first) = match event.op {
            Op::Open | Op::StreamOpen => (OPENS, Some(F_OPEN_START)),
            Op::Dup => (DUPS, None),
            Op::Seek => (SEEKS, None),
            // Their time is one of writes in Darshan, too.
            Op::Fsync | Op::Fdatasync => {
                self.times[F_READ_TIME + 1] += end - start;
                self.counts[if event.op == Op::Fsync { FSYNCS } else { FDSYNCS }] += 1;
                return true;
            }
            Op::Close | Op::StreamClose => {
                self.span(F_CLOSE_START, start, end);
                self.times[F_META_TIME] += if moved.is_none() { end - start } else { 0.0 };
                return true;
            }
            _ => return moved.is_some(),
        };
        self.counts[counter] += 1;
        self.times[F_META_TIME] += end - start;
        if let Some(first) = first {
            self.span(first, start, end);
        }
        true
    }

    fn span(&mut self, first: usize, start: f64, end: f64) {
        if self.times[first + F_END] == 0.0 {
            self.times[first] = start;
        }
        self.times[first + F_END] = self.times[first + F_END].max(end);
    }

    fn transfer(&mut self, moved: &Transfer, start: f64, end: f64) {
        let of = usize::from(moved.writes);
        let (first, last) = (moved.offset, moved.offset + moved.bytes - 1);
        self.counts[READS + of] += 1;
        self.counts[BYTES_READ + of] += moved.bytes as i64;
        self.counts[MAX_BYTE_READ + of] = self.counts[MAX_BYTE_READ + of].max(last as i64);
        if let Some(before) = self.ends[of].replace(last) {
            self.counts[CONSEC_READS + of] += i64::from(first == before + 1);
            self.counts[SEQ_READS + of] += i64::from(first > before);
        }
        self.counts[SWITCHES] += i64::from(self.wrote.replace(moved.writes) == Some(!moved.writes));
        let range = RANGES.partition_point(|most| *most < moved.bytes);
        self.counts[SIZE_READ + 10 * of + range] += 1;
        if self.sizes.len() < MAX_SIZES || self.sizes.contains_key(&moved.bytes) {
            *self.sizes.entry(moved.bytes).or_default() += 1;
        }
        self.span(F_READ_START + of, start, end);
        self.times[F_READ_TIME + of] += end - start;
        if end - start > self.times[F_MAX_READ_TIME + of] {
            self.times[F_MAX_READ_TIME + of] = end - start;
            self.counts[MAX_READ_TIME_SIZE + of] = moved.bytes as i64;
        }
    }

    /// The record's numbers as they stand in a log.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut counts = self.counts;
        let mut sizes: Vec<(&u64, &i64)> = self.sizes.iter().collect();
        sizes.sort_by_key(|(size, count)| (std::cmp::Reverse(**count), std::cmp::Reverse(**size)));
        for (at, (size, count)) in sizes.into_iter().take(4).enumerate() {
            (counts[ACCESS + at], counts[ACCESS_COUNT + at]) = (*size as i64, *count);
        }
        counts.iter().for_each(|count| out.extend(count.to_le_bytes()));
        self.times.iter().for_each(|time| out.extend(time.to_le_bytes()));
    }
}
