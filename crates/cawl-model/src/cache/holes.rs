//! Pages of a file of which nothing is on the device yet, though they lie before its end: space that was set
//! aside (`fallocate`), holes, and what a longer file has not been filled with.
//!
//! Such a page is not read before a part of it is written, and writing it changes the file's map of blocks.
//! Runs are kept, [`RUNS`] of them at most: a file with more is taken to have none.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Most runs of a file.
const RUNS: usize = 1 << 12;

/// Runs of pages, none of which touch: where each ends, by where it begins. A copy shares them until one
/// changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes(Option<Arc<BTreeMap<u64, u64>>>);

impl Holes {
    /// The pages from `start` up to `end` are such pages from now on.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let runs = Arc::make_mut(self.0.get_or_insert_default());
        let (mut start, mut end) = (start, end);
        while let Some((&from, &to)) = runs.range(..=end).next_back().filter(|(_, to)| **to >= start) {
            runs.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        runs.insert(start, end);
        self.forget();
    }

    /// The pages from `start` up to `end` are written. True if there was such a page among them.
    pub(super) fn fill(&mut self, start: u64, end: u64) -> bool {
        if !self.overlap(start, end) {
            return false;
        }
        let runs = Arc::make_mut(self.0.get_or_insert_default());
        while let Some((&from, &to)) = runs.range(..end).next_back().filter(|(_, to)| **to > start) {
            runs.remove(&from);
            if from < start {
                runs.insert(from, start);
            }
            if to > end {
                runs.insert(end, to);
            }
        }
        self.forget();
        true
    }

    /// True if one of the pages from `start` up to `end` is such a page.
    pub(super) fn overlap(&self, start: u64, end: u64) -> bool {
        let before = self.0.as_ref().and_then(|runs| runs.range(..end).next_back());
        start < end && before.is_some_and(|(_, to)| *to > start)
    }

    /// How many of the pages from `start` up to `end` are such pages.
    pub(super) fn count(&self, start: u64, end: u64) -> u64 {
        let runs = self.0.iter().flat_map(|runs| runs.range(..end));
        runs.map(|(from, to)| (*to).min(end).saturating_sub((*from).max(start))).sum()
    }

    fn forget(&mut self) {
        self.0.take_if(|runs| runs.is_empty() || runs.len() > RUNS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_set_of_numbers(steps in proptest::collection::vec((0..60u64, 0..20u64, 0..3u8), 0..60)) {
            let mut holes = Holes::default();
            let mut plain = [false; 80];
            for (start, length, what) in steps {
                let range = start as usize..(start + length) as usize;
                let any = plain[range.clone()].contains(&true);
                match what {
                    0 => {
                        holes.insert(start, start + length);
                        plain[range].fill(true);
                    }
                    1 => {
                        prop_assert_eq!(holes.fill(start, start + length), any);
                        plain[range].fill(false);
                    }
                    _ => {
                        let count = plain[range].iter().filter(|hole| **hole).count() as u64;
                        prop_assert_eq!(holes.overlap(start, start + length), any);
                        prop_assert_eq!(holes.count(start, start + length), count);
                    }
                }
                let runs = holes.0.iter().flat_map(|runs| runs.iter()).collect::<Vec<_>>();
                prop_assert!(runs.windows(2).all(|pair| pair[0].1 < pair[1].0), "{runs:?}");
            }
            for (page, hole) in plain.into_iter().enumerate() {
                prop_assert_eq!(holes.overlap(page as u64, page as u64 + 1), hole);
            }
        }
    }

    #[test]
    fn runs_are_bounded_and_space_costs_nothing() {
        let mut holes = Holes::default();
        holes.insert(0, u64::MAX);
        for page in 0..RUNS as u64 - 1 {
            assert!(holes.fill(3 * page + 1, 3 * page + 2));
        }
        assert!(holes.overlap(u64::MAX - 1, u64::MAX));
        holes.fill(1 << 40, (1 << 40) + 1);
        assert!(!holes.overlap(0, u64::MAX));
    }
}
