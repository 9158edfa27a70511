//! Which pages of files lie in the processor's last cache: those that were copied lately.
//!
//! The law: a copy brings the page that it writes or reads into that cache, which drops the one of its set
//! that was copied longest ago. A cache that others use, too, the program's own data among them, has room for
//! files in half of it where a program does nothing but read: on 6.18 (AMD EPYC, 1 and 32 MiB), 4 KiB at random
//! places of a file were read in 0.36 to 0.48 µs in up to 16 MiB, in 0.5 to 0.6 in 32, in 0.59 to 0.67 in 64, in
//! 0.73 to 0.84 in 256. A program that works on what it reads takes half of that: sqlite's bulk insert, dbench
//! and postmark were predicted 25, 33 and 24 % too cheap with half, 20, 32 and 23 % with a quarter. Of several
//! last caches, as large processors have, a file's pages lie in that of the core that copied them: all are taken
//! to be one core's.

use std::sync::Arc;

/// Most bytes of files that have room: no processor has a larger cache.
const MAX: u64 = 1 << 30;
/// Pages of a set.
const WAYS: usize = 8;

/// The pages that lie there. A copy shares them until one changes.
#[derive(Clone, Debug)]
pub(super) struct ProcessorCache {
    /// Of each set, what tells its pages apart, the latest first; 0 for none.
    sets: Arc<Vec<[u32; WAYS]>>,
}

impl ProcessorCache {
    /// Of a last cache with so many bytes.
    pub(super) fn new(last: u64, page: u64) -> ProcessorCache {
        let sets = ((last / 4).min(MAX) / page) as usize / WAYS;
        ProcessorCache { sets: Arc::new(vec![[0; WAYS]; sets.max(1)]) }
    }

    /// The pages of a file from `first` up to `end` are copied; what part of them was there before.
    pub(super) fn touch(&mut self, file: u32, first: u64, end: u64) -> f64 {
        let sets = Arc::make_mut(&mut self.sets);
        let (pages, count) = (end - first, sets.len() as u32);
        let (room, begin) = ((sets.len() * WAYS) as u64, mix(u64::from(file)));
        let mut found = 0;
        // Of more than there is room for, the last ones remain; sets get more or fewer of them.
        for page in end - pages.min(2 * room)..end {
            // Pages in a row are spread evenly (Knuth's multiplicative hashing).
            let place = begin.wrapping_add(page).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let set = &mut sets[((place >> 40) as u32 % count) as usize];
            let tag = place as u32 | 1;
            if set[0] == tag {
                found += 1;
                continue;
            }
            let at = set.iter().position(|other| *other == tag);
            found += u64::from(at.is_some());
            set.copy_within(0..at.unwrap_or(WAYS - 1), 1);
            set[0] = tag;
        }
        if pages > room { 0.0 } else { found as f64 / pages.max(1) as f64 }
    }
}

/// Spreads each bit over all of them (the end of MurmurHash3, Austin Appleby).
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits ^ bits >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;
    const MIB: u64 = 256;
    /// One of 32 MiB.
    const LAST: u64 = 32 << 20;

    #[test]
    fn what_was_copied_lately_is_there() {
        let mut cache = ProcessorCache::new(LAST, PAGE);
        assert_eq!(cache.touch(1, 0, MIB), 0.0);
        assert_eq!(cache.touch(1, 0, MIB), 1.0);
        assert_eq!(cache.touch(1, MIB / 2, MIB + MIB / 2), 0.5);
        assert_eq!(cache.touch(2, 0, MIB), 0.0, "of another file");
        // A copy has its own from then on.
        let mut copy = cache.clone();
        copy.touch(3, 0, 100 * MIB);
        assert_eq!((copy.touch(2, 0, 1), cache.touch(2, 0, 1)), (0.0, 1.0));
    }

    #[test]
    fn many_files_of_a_page_are_told_apart() {
        let mut cache = ProcessorCache::new(LAST, PAGE);
        let found: f64 = (0..20_000).map(|file| cache.touch(file, 0, 1)).sum();
        assert_eq!(found, 0.0);
        let again: f64 = (19_000..20_000).map(|file| cache.touch(file, 0, 1)).sum();
        assert!(again > 900.0, "{again}");
    }

    #[test]
    fn the_rest_is_not() {
        let mut cache = ProcessorCache::new(LAST, PAGE);
        cache.touch(1, 0, MIB);
        cache.touch(2, 0, 64 * MIB);
        assert!(cache.touch(1, 0, MIB) < 0.01);
        assert_eq!(cache.touch(2, 0, 64 * MIB), 0.0);
        // Half of a file that is read at random, twice as large as the room.
        let mut random = 1_u64;
        let mut share = |calls: u32| {
            let read = |_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = (random >> 33) % (16 * MIB);
                cache.touch(3, page, page + 1)
            };
            (0..calls).map(read).sum::<f64>() / f64::from(calls)
        };
        share(100_000);
        let found = share(100_000);
        assert!((0.45..0.55).contains(&found), "{found}");
    }

    /// Caches whose size is no power of two, pages of 64 KiB, and what no machine has.
    #[test]
    fn a_quarter_of_a_cache_of_any_size_is_room() {
        let found = |last: u64, page: u64, part: f64| {
            let mut cache = ProcessorCache::new(last, page);
            let pages = ((last / 4 / page) as f64 * part) as u64;
            let pass = |cache: &mut ProcessorCache| {
                (0..pages).map(|at| cache.touch(1, at, at + 1)).sum::<f64>() / pages as f64
            };
            pass(&mut cache);
            pass(&mut cache)
        };
        for last in [24 << 20, 36 << 20, 96 << 20] {
            for page in [4096, 16 << 10, 64 << 10] {
                assert!(found(last, page, 0.5) > 0.9, "{last} {page}: half of the room");
                assert!(found(last, page, 2.0) < 0.1, "{last} {page}: twice the room");
            }
        }
        for (last, page) in [(0, 4096), (64 << 10, 64 << 10), (u64::MAX, 64 << 10)] {
            let mut cache = ProcessorCache::new(last, page);
            cache.touch(1, 0, 1);
            assert_eq!(cache.touch(1, 0, 1), 1.0, "one page has room");
        }
    }
}
