//! Sets of pages, a bit each, in blocks of 2 MiB: insertion, removal and search in O(log n).
//!
//! Invariant: a block is in the row or in the tree exactly if it holds a page, and in one of them only;
//! [`PageSet::pages`] is the exact number of pages in the set. Blocks that have all their pages and follow
//! one another are a `row`, of which only the ends are kept: a file that is written from end to end, and
//! written back so, is no more than that, however long. A set has one row; other blocks are in the tree, and
//! there a block costs the same whether its pages lie scattered or in a row, so a file written at random
//! takes little, and no write searches more than one short tree. A program that writes on and on searches
//! none: the block it is in (`hot`) is kept beside the tree, and put back at the next look-up elsewhere.
//! Where it is the only one, there is no tree: most files are small.
//!
//! A copy of a set shares the tree until one of them changes it.

use std::ops::Range;
use std::sync::Arc;

pub use super::block::{BLOCK, pieces};
use super::block::{Block, FULL, within};
use super::sparse::Sparse;

/// Blocks by the number of their first page over [`BLOCK`].
type Tree = Sparse<Block>;

/// A set of page numbers.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    /// Blocks with all their pages, by their keys; none is in the tree, nor hot.
    row: Range<u64>,
    /// None where there is no other block, or only the hot one.
    tree: Option<Arc<Tree>>,
    pages: u64,
    /// The block of the latest insertion; two in a row make it hot, and so does being the first.
    latest: u64,
    hot: Option<Hot>,
}

/// A block that insertions keep hitting: the tree, if there is one, holds it as it was before.
#[derive(Clone, Copy, Debug)]
struct Hot {
    key: u64,
    block: Block,
}

impl PageSet {
    /// How many pages are in the set.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// How many blocks they lie in.
    pub fn blocks(&self) -> usize {
        let others = self.tree.as_ref().map_or(usize::from(self.hot.is_some()), |tree| tree.len());
        (self.row.end - self.row.start) as usize + others
    }

    /// The tree, to change; a copy of one's own if it is shared.
    fn tree(&mut self) -> &mut Tree {
        Arc::make_mut(self.tree.get_or_insert_default())
    }

    /// A block with all its pages would be in the row.
    fn joins(&self, key: u64) -> bool {
        self.row.is_empty() || key == self.row.end || key + 1 == self.row.start
    }

    /// Puts a block that joins the row there; how many of its pages were elsewhere.
    fn join(&mut self, key: u64) -> u64 {
        match &self.row {
            row if row.is_empty() => self.row = key..key + 1,
            row if row.end == key => self.row.end += 1,
            _ => self.row.start = key,
        }
        if self.tree.as_ref().is_none_or(|tree| tree.get(key).is_none()) {
            return 0;
        }
        let had = self.tree().remove(key);
        self.tree.take_if(|tree| tree.is_empty());
        had.map_or(0, |block| block.count((0, BLOCK)))
    }

    /// Adds the pages from `start` up to `end` and returns how many of them are new.
    pub fn insert(&mut self, start: u64, end: u64) -> u64 {
        // Most writes add to the block of the one before.
        if let Some(hot) = &mut self.hot
            && start / BLOCK == hot.key
            && (start + 1..=(hot.key + 1) * BLOCK).contains(&end)
        {
            let new = hot.block.add((start % BLOCK, end - hot.key * BLOCK));
            self.pages += new;
            return new;
        }
        let mut new = 0;
        for (key, from, to) in pieces(start, end) {
            new += self.insert_piece(key, (from, to));
        }
        self.pages += new;
        new
    }

    /// Adds pages of one block and returns how many of them are new.
    fn insert_piece(&mut self, key: u64, piece: (u64, u64)) -> u64 {
        if let Some(hot) = &mut self.hot
            && hot.key == key
        {
            return hot.block.add(piece);
        }
        if self.row.contains(&key) {
            return 0;
        }
        self.put_back();
        if piece == (0, BLOCK) && self.joins(key) {
            return BLOCK - self.join(key);
        }
        if self.tree.is_none() {
            let mut block = Block::default();
            let new = block.add(piece);
            self.hot = Some(Hot { key, block });
            return new;
        }
        let block = self.tree().entry(key);
        let new = block.add(piece);
        let block = *block;
        if self.latest == key {
            self.hot = Some(Hot { key, block });
        }
        self.latest = key;
        new
    }

    /// Writes the hot block back into the tree, or where it belongs.
    fn put_back(&mut self) {
        if let Some(hot) = self.hot.take() {
            if self.joins(hot.key) && hot.block == FULL {
                self.join(hot.key);
            } else {
                *self.tree().entry(hot.key) = hot.block;
            }
        }
    }

    /// Puts a block in that is nowhere.
    fn put(&mut self, key: u64, block: Block) {
        self.put_back();
        if self.tree.is_none() {
            self.hot = Some(Hot { key, block });
        } else {
            *self.tree().entry(key) = block;
        }
    }

    /// The blocks whose keys are in this range.
    fn blocks_in(&self, keys: Range<u64>) -> impl Iterator<Item = (u64, &Block)> {
        let Range { start, end } = keys;
        let row = start.max(self.row.start)..end.min(self.row.end);
        let (before, behind) = if row.is_empty() { (end, end) } else { (row.start, row.end) };
        let row = row.map(|key| (key, &FULL));
        self.others_in(start..before).chain(row).chain(self.others_in(behind..end))
    }

    /// Those of them that are not in the row.
    fn others_in(&self, keys: Range<u64>) -> impl Iterator<Item = (u64, &Block)> {
        let keys = keys.start..keys.end.max(keys.start);
        let only = self.hot.as_ref().filter(|hot| self.tree.is_none() && keys.contains(&hot.key));
        let tree = self.tree.iter().flat_map(move |tree| tree.range(keys.clone()));
        let tree = tree.map(|(key, block)| match &self.hot {
            Some(hot) if hot.key == key => (key, &hot.block),
            _ => (key, block),
        });
        only.map(|hot| (hot.key, &hot.block)).into_iter().chain(tree)
    }

    /// Takes the pages from `start` up to `end` out and returns how many there were.
    pub fn remove(&mut self, start: u64, end: u64) -> u64 {
        if start >= end || self.pages == 0 {
            return 0;
        }
        let removed = self.remove_others(start, end) + self.cut(start, end);
        self.lose(removed);
        removed
    }

    /// Takes pages out that are not in the row; how many there were.
    fn remove_others(&mut self, start: u64, end: u64) -> u64 {
        let keys = start / BLOCK..(end - 1) / BLOCK + 1;
        if self.tree.is_none() {
            let Some(hot) = self.hot.as_mut().filter(|hot| keys.contains(&hot.key)) else { return 0 };
            let removed = hot.block.take(within(hot.key, start, end));
            self.hot.take_if(|hot| hot.block.is_empty());
            return removed;
        }
        self.put_back();
        // Found before it is changed, so that what is not there costs no copy of a shared tree.
        let mut next = self.tree.as_ref().and_then(|tree| tree.first_in(keys.clone()));
        if next.is_none() {
            return 0;
        }
        let mut removed = 0;
        let tree = self.tree();
        while let Some(key) = next
            && let Some(block) = tree.get_mut(key)
        {
            removed += block.take(within(key, start, end));
            if block.is_empty() {
                tree.remove(key);
            }
            next = tree.first_in(key + 1..keys.end);
        }
        self.tree.take_if(|tree| tree.is_empty());
        removed
    }

    /// Takes pages out of the row; how many there were. Of what is left on both sides of them the longer is
    /// the row.
    fn cut(&mut self, start: u64, end: u64) -> u64 {
        let row = self.row.clone();
        let (first, last) = ((start / BLOCK).max(row.start), end.div_ceil(BLOCK).min(row.end));
        if first >= last {
            return 0;
        }
        let (left, right) = (row.start..first, last..row.end);
        let left_is_longer = left.end - left.start > right.end - right.start;
        let (longer, shorter) = if left_is_longer { (left, right) } else { (right, left) };
        self.row = if longer.is_empty() { 0..0 } else { longer };
        shorter.for_each(|key| self.put(key, FULL));
        for key in [first, last - 1].into_iter().take((last - first).min(2) as usize) {
            let mut rest = FULL;
            rest.take(within(key, start, end));
            if !rest.is_empty() {
                self.put(key, rest);
            }
        }
        end.min(last * BLOCK) - start.max(first * BLOCK)
    }

    /// This number of pages was taken out. Without pages there are no blocks.
    fn lose(&mut self, pages: u64) {
        self.pages -= pages;
        if self.pages == 0 {
            (self.row, self.tree, self.hot) = (0..0, None, None);
        }
    }

    /// True if the page is in the set.
    pub fn contains(&self, page: u64) -> bool {
        let key = page / BLOCK;
        match (&self.hot, &self.tree) {
            (Some(hot), _) if hot.key == key => hot.block.has(page),
            (_, tree) => {
                let in_tree = || tree.as_ref()?.get(key);
                self.row.contains(&key) || in_tree().is_some_and(|block| block.has(page))
            }
        }
    }

    /// The pages of a block, by its key.
    pub fn block(&self, key: u64) -> Block {
        match (&self.hot, &self.tree) {
            (Some(hot), _) if hot.key == key => hot.block,
            _ if self.row.contains(&key) => FULL,
            (_, tree) => tree.as_ref().and_then(|tree| tree.get(key)).copied().unwrap_or_default(),
        }
    }

    /// How many pages from `start` up to `end` are in the set.
    pub fn count(&self, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        let row = self.row.start * BLOCK..self.row.end * BLOCK;
        let in_row = end.min(row.end).saturating_sub(start.max(row.start));
        let others = self.others_in(start / BLOCK..(end - 1) / BLOCK + 1);
        in_row + others.map(|(key, block)| block.count(within(key, start, end))).sum::<u64>()
    }

    /// Takes up to `most` pages out, in ascending order from `cursor` on and then from the beginning, until
    /// `each`, which is told about every run taken, wants no more. Returns the page after the last one taken.
    pub fn take_from(&mut self, cursor: u64, most: u64, mut each: impl FnMut(u64, u64) -> bool) -> u64 {
        let most = most.min(self.pages);
        let (mut cursor, mut left, mut go_on) = (cursor, most, true);
        if left == 0 {
            return cursor;
        }
        self.put_back();
        while go_on && left > 0 {
            let key = cursor / BLOCK;
            if self.row.contains(&key) {
                let end = ((key + 1) * BLOCK).min(cursor + left);
                self.cut(cursor, end);
                // What was left of a block is looked for in the tree.
                self.put_back();
                go_on = each(cursor, end);
                left -= end - cursor;
                cursor = end;
                continue;
            }
            let before = if key < self.row.start { self.row.start } else { u64::MAX };
            let found = self.tree.as_ref().and_then(|tree| tree.first_in(key..before));
            let tree = self.tree.as_mut().map(Arc::make_mut);
            let Some((found, tree)) = found.zip(tree) else {
                cursor = if before < u64::MAX { before * BLOCK } else { 0 };
                continue;
            };
            let block = tree.entry(found);
            let base = found * BLOCK;
            let mut from = cursor.saturating_sub(base);
            while go_on
                && left > 0
                && let Some((start, end)) = block.run(from)
            {
                let end = end.min(start + left);
                block.take((start, end));
                go_on = each(base + start, base + end);
                left -= end - start;
                from = end;
            }
            if block.is_empty() {
                tree.remove(found);
            }
            // If more is wanted, the block has no more pages behind the cursor.
            cursor = if go_on && left > 0 { base + BLOCK } else { base + from };
        }
        self.tree.take_if(|tree| tree.is_empty());
        self.lose(most - left);
        cursor
    }

    /// The runs that [`PageSet::take_from`] would take if it took all: within blocks, in ascending order from
    /// `cursor` on and then from the beginning.
    pub fn runs(&self, cursor: u64) -> impl Iterator<Item = (u64, u64)> {
        let from_cursor = self.runs_between(cursor, u64::MAX);
        from_cursor.chain(self.runs_between(0, cursor))
    }

    /// The only run of a set that lies in one block, where that is known without a search.
    pub fn only_run(&self) -> Option<(u64, u64)> {
        let hot = self.hot.as_ref().filter(|_| self.tree.is_none() && self.row.is_empty())?;
        let (start, end) = hot.block.run(0)?;
        let base = hot.key * BLOCK;
        (end - start == self.pages).then_some((base + start, base + end))
    }

    /// Runs from `start` up to `end`, in pieces that lie in one block each.
    pub fn runs_between(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let blocks = self.blocks_in(start / BLOCK..end.div_ceil(BLOCK));
        blocks.flat_map(move |(key, block)| {
            let base = key * BLOCK;
            let mut from = start.saturating_sub(base);
            std::iter::from_fn(move || {
                let (first, last) = block.run(from)?;
                let last = last.min(end - base);
                from = last;
                (first < last).then_some((base + first, base + last))
            })
        })
    }

    /// Moves all pages to `other`, which has none of them. A set without pages takes the tree over as it is,
    /// shared or not.
    pub fn pour_into(&mut self, other: &mut PageSet) {
        let all = std::mem::take(self);
        if other.pages == 0 {
            *other = all;
        } else {
            for (start, end) in all.runs(0) {
                other.insert(start, end);
            }
        }
    }

    /// Empties the set and returns how many pages it held.
    pub fn clear(&mut self) -> u64 {
        let pages = self.pages;
        self.lose(pages);
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_only_run_of_a_small_file_is_known() {
        let mut set = PageSet::default();
        assert_eq!(set.only_run(), None);
        set.insert(515, 520);
        set.insert(520, 522);
        assert_eq!(set.only_run(), Some((515, 522)));
        set.insert(600, 601);
        assert_eq!(set.only_run(), None, "two runs");
    }

    /// Pages after which a taker wants no more.
    const ENOUGH: usize = 250;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u64),
        Remove(u64, u64),
        Take(u64, u64),
        Pour,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0..2000u64, 0..700u64).prop_map(|(s, n)| Op::Insert(s, s + n)),
            1 => (0..2000u64, 0..900u64).prop_map(|(s, n)| Op::Remove(s, s + n)),
            1 => (0..2500u64, 0..400u64).prop_map(|(s, n)| Op::Take(s, n)),
            2 => (0..5u64, 1..4u64).prop_map(|(s, n)| Op::Insert(s * BLOCK, (s + n) * BLOCK)),
            1 => (0..2500u64, 500..1500u64).prop_map(|(s, n)| Op::Take(s / BLOCK * BLOCK, n / BLOCK * BLOCK)),
            1 => Just(Op::Pour),
        ]
    }

    proptest! {
        #[test]
        fn like_a_set_of_numbers(ops in proptest::collection::vec(op(), 1..200)) {
            let (mut set, mut plain) = (PageSet::default(), BTreeSet::new());
            let (mut other, mut plain_other) = (PageSet::default(), BTreeSet::new());
            for op in ops {
                // Shares the tree; what is done to the set must not show in it.
                let (copy, before) = (set.clone(), plain.clone());
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
                        set.take_from(cursor, most, |s, e| {
                            taken.extend(s..e);
                            taken.len() < ENOUGH
                        });
                        prop_assert!(taken.len() == order.len() || taken.len() >= ENOUGH);
                        prop_assert_eq!(&taken, &order[..taken.len()]);
                        for page in taken {
                            plain.remove(&page);
                        }
                    }
                    Op::Pour => {
                        plain_other.retain(|page| !plain.contains(page));
                        for page in &plain {
                            other.remove(*page, page + 1);
                        }
                        prop_assert_eq!(other.pages(), plain_other.len() as u64);
                        set.pour_into(&mut other);
                        plain_other.append(&mut plain);
                        prop_assert_eq!(other.pages(), plain_other.len() as u64);
                        let pages = other.runs(0).flat_map(|(start, end)| start..end);
                        prop_assert!(pages.eq(plain_other.iter().copied()));
                    }
                }
                // Told beforehand as they are taken.
                for cursor in [0, 700, 5000] {
                    let (mut runs, mut copy) = (Vec::new(), set.clone());
                    let last = copy.take_from(cursor, u64::MAX, |start, end| {
                        runs.push((start, end));
                        true
                    });
                    if let Some(only) = set.only_run() {
                        prop_assert_eq!(set.runs(0).collect::<Vec<_>>(), vec![only]);
                    }
                    prop_assert_eq!(set.runs(cursor).collect::<Vec<_>>(), runs);
                    prop_assert_eq!(set.runs(cursor).last().map_or(cursor, |run| run.1), last);
                }
                prop_assert_eq!(set.pages(), plain.len() as u64);
                prop_assert!((0..6000).step_by(7).all(|page| set.contains(page) == plain.contains(&page)));
                prop_assert_eq!(set.count(500, 1200), plain.range(500..1200).count() as u64);
                let blocks: BTreeSet<u64> = plain.iter().map(|page| page / BLOCK).collect();
                prop_assert_eq!(set.blocks(), blocks.len());
                prop_assert_eq!(set.count(0, u64::MAX), set.pages());
                prop_assert!(set.others_in(0..u64::MAX).all(|(key, _)| !set.row.contains(&key)));
                prop_assert_eq!(copy.pages(), before.len() as u64);
                prop_assert_eq!(copy.count(500, 1200), before.range(500..1200).count() as u64);
                prop_assert_eq!(copy.count(0, u64::MAX), copy.pages());
            }
        }
    }
}
