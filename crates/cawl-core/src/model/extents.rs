//! Sets of pages as disjoint runs: insertion, removal and search in O(log n), neighbours coalesced.
//!
//! The law: after every operation no two runs touch or overlap, and [`PageSet::pages`] is the exact
//! number of pages in the set. A program that writes on and on at the end of one run pays O(1): the
//! run being extended (`hot`) is kept beside the tree and put back only when somebody looks.

use std::collections::BTreeMap;

/// A set of page numbers.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    /// Start of each run to its end (exclusive).
    runs: BTreeMap<u64, u64>,
    pages: u64,
    hot: Option<Hot>,
}

/// The run being extended: the tree holds it with an outdated end.
#[derive(Clone, Copy, Debug)]
struct Hot {
    start: u64,
    end: u64,
    /// Start of the next run; the hot one must end before it.
    limit: u64,
}

impl PageSet {
    /// How many pages are in the set.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// How many runs they form.
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Adds the pages from `start` up to `end` and returns how many of them are new.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        if let Some(hot) = &mut self.hot
            && hot.start <= start
            && start <= hot.end
            && end < hot.limit
        {
            let new = end.saturating_sub(hot.end);
            hot.end = hot.end.max(end);
            self.pages += new;
            return new;
        }
        self.put_back();
        let (mut from, mut to, mut had) = (start, end, 0);
        if let Some((&s, e)) = self.runs.range_mut(..=start).next_back()
            && *e >= start
        {
            had += (*e).min(end) - start;
            from = s;
            to = to.max(*e);
            *e = to;
        }
        let mut limit = u64::MAX;
        while let Some((&s, &e)) = self.runs.range(from + 1..).next() {
            if s > to {
                limit = s;
                break;
            }
            had += e.min(end).saturating_sub(s.max(start));
            to = to.max(e);
            self.runs.remove(&s);
        }
        self.runs.insert(from, to);
        self.hot = Some(Hot { start: from, end: to, limit });
        let new = end - start - had;
        self.pages += new;
        new
    }

    /// Takes the pages from `start` up to `end` out and returns how many there were.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        if start >= end || self.pages == 0 {
            return 0;
        }
        self.put_back();
        let mut removed = 0;
        if let Some((_, e)) = self.runs.range_mut(..start).next_back()
            && *e > start
        {
            let old = *e;
            *e = start;
            removed += old.min(end) - start;
            if old > end {
                self.runs.insert(end, old);
            }
        }
        while let Some((&s, &e)) = self.runs.range(start..end).next() {
            self.runs.remove(&s);
            removed += e.min(end) - s;
            if e > end {
                self.runs.insert(end, e);
            }
        }
        self.pages -= removed;
        removed
    }

    /// How many pages from `start` up to `end` are in the set.
    pub fn count(&self, start: u64, end: u64) -> u64 {
        let mut found = 0;
        if let Some((&s, &e)) = self.runs.range(..start).next_back() {
            found += self.end_of(s, e).min(end).saturating_sub(start);
        }
        for (&s, &e) in self.runs.range(start..end) {
            found += self.end_of(s, e).min(end) - s;
        }
        found
    }

    /// Takes up to `most` pages out, in ascending order from `cursor` on and then from the beginning;
    /// tells `each` about every run taken. Returns the page after the last one taken.
    pub fn take_from(&mut self, cursor: u64, most: u64, mut each: impl FnMut(u64, u64)) -> u64 {
        self.put_back();
        let (mut cursor, mut left) = (cursor, most.min(self.pages));
        while left > 0 {
            let inside = self.runs.range(..=cursor).next_back().filter(|(_, e)| **e > cursor);
            let next =
                inside.or_else(|| self.runs.range(cursor..).next()).or_else(|| self.runs.iter().next());
            let Some((&s, &e)) = next else { break };
            let from = if s <= cursor && cursor < e { cursor } else { s };
            let to = e.min(from + left);
            if from == s {
                self.runs.remove(&s);
            } else {
                self.runs.insert(s, from);
            }
            if to < e {
                self.runs.insert(to, e);
            }
            each(from, to);
            self.pages -= to - from;
            left -= to - from;
            cursor = to;
        }
        cursor
    }

    /// Empties the set and returns how many pages it held.
    pub fn clear(&mut self) -> u64 {
        self.runs.clear();
        self.hot = None;
        std::mem::take(&mut self.pages)
    }

    /// The true end of a run of the tree.
    fn end_of(&self, start: u64, end: u64) -> u64 {
        match self.hot {
            Some(hot) if hot.start == start => hot.end,
            _ => end,
        }
    }

    /// Writes the hot run back into the tree.
    fn put_back(&mut self) {
        if let Some(hot) = self.hot.take()
            && let Some(end) = self.runs.get_mut(&hot.start)
        {
            *end = hot.end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u64),
        Remove(u64, u64),
        Take(u64, u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0..200u64, 0..30u64).prop_map(|(s, n)| Op::Insert(s, s + n)),
            1 => (0..200u64, 0..60u64).prop_map(|(s, n)| Op::Remove(s, s + n)),
            1 => (0..250u64, 0..40u64).prop_map(|(s, n)| Op::Take(s, n)),
        ]
    }

    proptest! {
        #[test]
        fn like_a_set_of_numbers(ops in proptest::collection::vec(op(), 1..200)) {
            let (mut set, mut plain) = (PageSet::default(), BTreeSet::new());
            for op in ops {
                match op {
                    Op::Insert(s, e) => {
                        let new = (s..e).filter(|p| plain.insert(*p)).count() as u64;
                        prop_assert_eq!(set.insert(s, e), new);
                    }
                    Op::Remove(s, e) => {
                        let gone = (s..e).filter(|p| plain.remove(p)).count() as u64;
                        prop_assert_eq!(set.remove(s, e), gone);
                    }
                    Op::Take(cursor, most) => {
                        let order: Vec<u64> =
                            plain.range(cursor..).chain(plain.range(..cursor)).copied().take(most as usize).collect();
                        let mut taken = Vec::new();
                        set.take_from(cursor, most, |s, e| taken.extend(s..e));
                        prop_assert_eq!(&taken, &order);
                        for page in order {
                            plain.remove(&page);
                        }
                    }
                }
                prop_assert_eq!(set.pages(), plain.len() as u64);
                prop_assert_eq!(set.count(50, 120), plain.range(50..120).count() as u64);
                let runs: Vec<_> = set.runs.iter().map(|(s, e)| (*s, set.end_of(*s, *e))).collect();
                for pair in runs.windows(2) {
                    prop_assert!(pair[0].1 < pair[1].0, "runs touch: {:?}", runs);
                }
            }
        }
    }
}
