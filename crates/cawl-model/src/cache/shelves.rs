//! Where the pages of files lie on lists, whichever law moves them ([`lists`](super::lists),
//! [`generations`](super::generations)).
//!
//! Pages are kept in blocks of 2 MiB: which page is on which list is known of each, its place on the list
//! only of its block, which is where at least half of its pages there came. So a list is short, and a page
//! costs about nothing.

use std::collections::VecDeque;

use super::Map;
use crate::block::{Block, FULL};
use crate::pages::pieces;

/// Blocks with no page left of which it is remembered when they were reclaimed.
pub(super) const GONE: usize = 1 << 15;
/// Blocks passed over that are looked at again each time, though they have pages that are not clean yet.
const AGAIN: usize = 8;
/// Times that nothing is reclaimed before all of them are looked at.
pub(super) const PATIENCE: u32 = 64;
/// Entries of a list from which on those that are void are removed.
pub(super) const MIN_TIDIED: usize = 64;

/// Pages of a block of a file.
#[derive(Clone, Debug)]
pub(super) struct Pages<const LISTS: usize, const MARKS: usize> {
    pub(super) file: u32,
    pub(super) key: u64,
    /// Those on each list.
    pub(super) on: [Block; LISTS],
    /// What the law has marked them with.
    pub(super) marks: [Block; MARKS],
    /// Were reclaimed, and did not come back.
    pub(super) reclaimed: Block,
    /// [`Shelves::age`] when pages of it were last reclaimed.
    pub(super) when: u64,
    /// The entries of the lists that hold, by their stamps.
    pub(super) stamps: [u32; LISTS],
}

impl<const LISTS: usize, const MARKS: usize> Pages<LISTS, MARKS> {
    fn new((file, key): (u32, u64)) -> Self {
        let (on, marks) = ([Block::default(); LISTS], [Block::default(); MARKS]);
        Pages { file, key, on, marks, reclaimed: Block::default(), when: 0, stamps: [0; LISTS] }
    }

    /// Those on any of the lists.
    pub(super) fn here(&self) -> Block {
        self.on.iter().fold(Block::default(), |here, on| here.or(*on))
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry {
    /// A block, by number; void if the block has another stamp.
    Ours { at: u32, stamp: u32 },
    /// Pages of files that are not known.
    Strangers(u64),
}

/// One list: the head is its back.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) entries: VecDeque<Entry>,
    /// Pages of known files, and of others.
    pub(super) ours: u64,
    pub(super) strangers: u64,
    /// Length at which void entries are removed.
    most: usize,
}

impl List {
    pub(super) fn pages(&self) -> u64 {
        self.ours + self.strangers
    }
}

/// Where a page of a file lies that may be reclaimed.
pub(super) trait Reclaimable {
    /// The pages of a block of a file that are clean, and not under writeback.
    fn clean(&mut self, file: u32, key: u64) -> Block;

    /// These pages of the block are reclaimed.
    fn reclaim(&mut self, file: u32, key: u64, pages: Block);
}

/// What a law knows beside the lists.
pub(super) trait Law<const LISTS: usize, const MARKS: usize> {
    /// The block has pages that an entry of this stamp among those passed over stands for.
    fn has_passed(pages: &Pages<LISTS, MARKS>, stamp: u32) -> bool;
}

/// The lists of one group, or of all.
#[derive(Clone, Debug)]
pub(super) struct Shelves<const LISTS: usize, const MARKS: usize, L> {
    pub(super) lists: [List; LISTS],
    /// The list that is reclaimed from, and how many there are from it on, the next after the last being the
    /// first.
    pub(super) oldest: usize,
    pub(super) used: usize,
    /// Blocks that were at the tail of the oldest list with pages that were not clean.
    pub(super) passed: VecDeque<Entry>,
    /// Length at which void entries of these are removed.
    most_passed: usize,
    /// Times in a row that nothing was reclaimed.
    in_vain: u32,
    pub(super) blocks: Vec<Pages<LISTS, MARKS>>,
    /// Numbers of blocks that are not used.
    free: Vec<u32>,
    index: Map<(u32, u64), u32>,
    /// The block found last.
    latest: Option<((u32, u64), u32)>,
    /// What the law tells by how long ago a page was reclaimed.
    pub(super) age: u64,
    stamp: u32,
    /// Blocks without pages here, in the order of their reclaim, and when that was.
    pub(super) gone: VecDeque<(u32, u64)>,
    pub(super) law: L,
}

impl<const LISTS: usize, const MARKS: usize, L: Law<LISTS, MARKS>> Shelves<LISTS, MARKS, L> {
    pub(super) fn new(used: usize, law: L) -> Self {
        Shelves {
            lists: std::array::from_fn(|_| List::default()),
            oldest: 0,
            used,
            passed: VecDeque::new(),
            most_passed: 0,
            in_vain: 0,
            blocks: Vec::new(),
            free: Vec::new(),
            index: Map::default(),
            latest: None,
            age: 0,
            stamp: 0,
            gone: VecDeque::new(),
            law,
        }
    }

    /// The kernel counts a list among the active ones: half of them are, the youngest ones.
    fn is_active(&self, list: usize) -> bool {
        let place = if LISTS == 2 { list } else { (list + LISTS - self.oldest) % LISTS };
        place + LISTS / 2 >= if LISTS == 2 { 2 } else { self.used }
    }

    /// The list for pages of others that are counted as inactive, or as active.
    fn home(&self, active: bool) -> usize {
        (self.oldest + if active { self.used - LISTS / 2 } else { 0 }) % LISTS
    }

    /// Pages on the inactive lists and on the active ones.
    pub(super) fn pages(&self) -> [u64; 2] {
        let mut pages = [0; 2];
        for (at, list) in self.lists.iter().enumerate() {
            pages[usize::from(self.is_active(at))] += list.pages();
        }
        pages
    }

    /// Pages of known files.
    #[cfg(test)]
    pub(super) fn ours(&self) -> u64 {
        self.lists.iter().map(|list| list.ours).sum()
    }

    /// Blocks that are remembered.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.index.len()
    }

    /// Pages of unknown files are on the lists, before all others.
    pub(super) fn begin(&mut self, [inactive, active]: [u64; 2]) {
        self.add_first(self.home(false), inactive);
        self.add_first(self.home(true), active);
    }

    fn add_first(&mut self, list: usize, pages: u64) {
        let list = &mut self.lists[list];
        list.strangers += pages;
        match list.entries.front_mut() {
            Some(Entry::Strangers(first)) => *first += pages,
            _ if pages > 0 => list.entries.push_front(Entry::Strangers(pages)),
            _ => {}
        }
    }

    pub(super) fn add_last(&mut self, list: usize, pages: u64) {
        let list = &mut self.lists[list];
        list.strangers += pages;
        match list.entries.back_mut() {
            Some(Entry::Strangers(last)) => *last += pages,
            _ if pages > 0 => list.entries.push_back(Entry::Strangers(pages)),
            _ => {}
        }
    }

    /// The kernel counts so many pages on the inactive lists and on the active ones: the difference to what
    /// is known is of unknown files.
    pub(super) fn correct(&mut self, counted: [u64; 2]) {
        let pages = self.pages();
        for active in [false, true] {
            let (counted, pages) = (counted[usize::from(active)], pages[usize::from(active)]);
            if counted > pages {
                self.add_last(self.home(active), counted - pages);
            } else {
                self.lose_strangers(active, pages - counted);
            }
        }
        self.tidy();
    }

    /// Takes pages of unknown files off the inactive or active lists, those at the tail first; how many.
    fn lose_strangers(&mut self, active: bool, most: u64) -> u64 {
        let mut left = most;
        for place in 0..LISTS {
            let at = (self.oldest + place) % LISTS;
            if left > 0 && self.is_active(at) == active {
                left -= self.lists[at].lose_strangers(left);
            }
        }
        most - left
    }

    /// The number of a block, if it is remembered.
    pub(super) fn find(&mut self, key: (u32, u64)) -> Option<u32> {
        match self.latest {
            Some((latest, at)) if latest == key => Some(at),
            _ => {
                let at = *self.index.get(&key)?;
                self.latest = Some((key, at));
                Some(at)
            }
        }
    }

    pub(super) fn find_or_add(&mut self, key: (u32, u64)) -> u32 {
        if let Some(at) = self.find(key) {
            return at;
        }
        let pages = Pages::new(key);
        let at = match self.free.pop() {
            Some(at) => {
                self.blocks[at as usize] = pages;
                at
            }
            None => {
                self.blocks.push(pages);
                (self.blocks.len() - 1) as u32
            }
        };
        self.index.insert(key, at);
        self.latest = Some((key, at));
        at
    }

    fn remove(&mut self, at: u32) {
        let block = &mut self.blocks[at as usize];
        self.index.remove(&(block.file, block.key));
        *block = Pages::new((0, 0));
        self.free.push(at);
        self.latest = None;
    }

    /// Pages of a block have come to the head of a list that had `before` of it. It is where most of them
    /// came.
    pub(super) fn place(&mut self, at: u32, list: usize, before: u64, pages: u64) {
        if let Some(entry) = self.count(at, list, before, pages) {
            self.lists[list].entries.push_back(entry);
        }
    }

    /// The same at the tail.
    pub(super) fn place_last(&mut self, at: u32, list: usize, before: u64, pages: u64) {
        if let Some(entry) = self.count(at, list, before, pages) {
            self.lists[list].entries.push_front(entry);
        }
    }

    fn count(&mut self, at: u32, list: usize, before: u64, pages: u64) -> Option<Entry> {
        self.lists[list].ours += pages;
        let is_new = pages > 0 && (pages >= before || self.blocks[at as usize].stamps[list] == 0);
        is_new.then(|| self.restamp(at, list))
    }

    fn restamp(&mut self, at: u32, list: usize) -> Entry {
        // None is 0, that of a block without an entry.
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.blocks[at as usize].stamps[list] = self.stamp;
        Entry::Ours { at, stamp: self.stamp }
    }

    /// Puts pages on the lists that were cached before the first call; returns by how many the lists grow.
    ///
    /// A block of which other pages are known, or were reclaimed, gets them at the head of the oldest list.
    /// Of any other block, the kernel has counted them among the pages of unknown files: they take the place
    /// of as many of these, next to the tail. If there are not as many, they are on the lists of another
    /// group, and nothing changes.
    pub(super) fn find_before(&mut self, file: u32, start: u64, end: u64) -> u64 {
        let (mut taken, oldest) = (0, self.oldest);
        for (key, from, to) in pieces(start, end) {
            let known = self.find((file, key)).is_some();
            if !known && self.lists.iter().map(|list| list.strangers).sum::<u64>() < to - from {
                continue;
            }
            let at = self.find_or_add((file, key));
            let block = &mut self.blocks[at as usize];
            let new = Block::of((from, to)).without(block.here());
            let before = block.on[oldest].pages();
            block.on[oldest] = block.on[oldest].or(new);
            block.reclaimed = block.reclaimed.without(new);
            let new = new.pages();
            if known {
                self.place(at, oldest, before, new);
                taken += new;
                continue;
            }
            self.lists[oldest].ours += new;
            let left = new - self.lose_strangers(false, new);
            self.lose_strangers(true, left);
            let entry = self.restamp(at, oldest);
            let entries = &mut self.lists[oldest].entries;
            let behind = matches!(entries.front(), Some(Entry::Strangers(_)));
            entries.push_front(entry);
            if behind {
                entries.swap(0, 1);
            }
        }
        self.tidy();
        taken
    }

    /// The pages of a file from `start` up to `end` are dropped; how many were on the lists.
    pub(super) fn drop(&mut self, file: u32, start: u64, end: u64) -> u64 {
        let before: u64 = self.lists.iter().map(|list| list.ours).sum();
        for (key, from, to) in pieces(start, end) {
            if let Some(at) = self.find((file, key)) {
                self.take_off(at, Block::of((from, to)));
                let block = &mut self.blocks[at as usize];
                if block.here().or(block.reclaimed).is_empty() {
                    self.remove(at);
                }
            }
        }
        before - self.lists.iter().map(|list| list.ours).sum::<u64>()
    }

    /// Takes pages of a block off the lists.
    pub(super) fn take_off(&mut self, at: u32, pages: Block) {
        let block = &mut self.blocks[at as usize];
        for (on, list) in block.on.iter_mut().zip(&mut self.lists) {
            list.ours -= on.and(pages).pages();
            *on = on.without(pages);
        }
        block.marks = block.marks.map(|mark| mark.without(pages));
    }

    /// These pages of a block are reclaimed.
    pub(super) fn reclaim(&mut self, at: u32, pages: Block, files: &mut impl Reclaimable) {
        let block = &self.blocks[at as usize];
        files.reclaim(block.file, block.key, pages);
        self.take_off(at, pages);
        let block = &mut self.blocks[at as usize];
        block.reclaimed = block.reclaimed.or(pages);
        block.when = self.age;
        if block.here().is_empty() {
            self.gone.push_back((at, self.age));
        }
    }

    /// Files are forgotten, though their pages stay: they are those of others now.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(u32) -> bool) {
        for at in 0..self.blocks.len() as u32 {
            let block = &self.blocks[at as usize];
            if self.index.get(&(block.file, block.key)) == Some(&at) && is_forgotten(block.file) {
                let pages = block.on.map(|on| on.pages());
                self.take_off(at, FULL);
                self.remove(at);
                (0..LISTS).for_each(|list| self.add_first(list, pages[list]));
            }
        }
    }

    /// Those that were passed over and are clean now: up to `wanted` pages, by what `retake` reclaims of an
    /// entry, and the entry if it has more; how many.
    pub(super) fn retake_passed(
        &mut self,
        wanted: u64,
        mut retake: impl FnMut(&mut Self, Entry, u64) -> (u64, Option<Entry>),
    ) -> u64 {
        let (mut reclaimed, mut missed) = (0, Vec::new());
        // The first may be written over and over: all are looked at now and then.
        let most = if self.in_vain % PATIENCE == PATIENCE - 1 { usize::MAX } else { AGAIN };
        while missed.len() < most
            && reclaimed < wanted
            && let Some(entry) = self.passed.pop_front()
        {
            let (got, stays) = retake(self, entry, wanted - reclaimed);
            reclaimed += got;
            missed.extend(stays);
        }
        // In their order: they are written in it.
        missed.into_iter().rev().for_each(|entry| self.passed.push_front(entry));
        reclaimed
    }

    /// So many pages were reclaimed. What was so at an age `most` ago will not be taken to come back, and is
    /// forgotten.
    pub(super) fn end(&mut self, reclaimed: u64, most: u64) {
        self.in_vain = if reclaimed == 0 { self.in_vain.wrapping_add(1) } else { 0 };
        while let Some((at, when)) = self.gone.front().copied() {
            let block = &self.blocks[at as usize];
            // It is none of a block that has come back, or was reclaimed again since.
            let holds = block.here().is_empty() && block.when == when && !block.reclaimed.is_empty();
            if holds && self.age - when <= most && self.gone.len() <= GONE {
                break;
            }
            self.gone.pop_front();
            if holds {
                self.remove(at);
            }
        }
        self.tidy();
    }

    /// Removes void entries from a list that has grown to twice its length, and joins those of strangers.
    #[inline]
    pub(super) fn tidy(&mut self) {
        for at in 0..LISTS {
            if self.lists[at].entries.len() > self.lists[at].most.max(MIN_TIDIED) {
                let entries = std::mem::take(&mut self.lists[at].entries);
                let kept = without_void(entries, |of, stamp| self.holds(of, stamp, at));
                self.lists[at].most = 2 * kept.len();
                self.lists[at].entries = kept;
            }
        }
        if self.passed.len() > self.most_passed.max(MIN_TIDIED) {
            let entries = std::mem::take(&mut self.passed);
            let has_passed = |of: u32, stamp| L::has_passed(&self.blocks[of as usize], stamp);
            self.passed = without_void(entries, has_passed);
            self.most_passed = 2 * self.passed.len();
        }
    }

    /// An entry with this stamp stands for pages of the block.
    pub(super) fn holds(&self, at: u32, stamp: u32, list: usize) -> bool {
        let block = &self.blocks[at as usize];
        block.stamps[list] == stamp && !block.on[list].is_empty()
    }
}

impl List {
    fn lose_strangers(&mut self, most: u64) -> u64 {
        let mut left = most.min(self.strangers);
        self.strangers -= left;
        let lost = left;
        for entry in &mut self.entries {
            if let Entry::Strangers(pages) = entry {
                let part = left.min(*pages);
                *pages -= part;
                left -= part;
                if left == 0 {
                    break;
                }
            }
        }
        lost
    }
}

#[cold]
fn without_void(entries: VecDeque<Entry>, holds: impl Fn(u32, u32) -> bool) -> VecDeque<Entry> {
    let mut kept: VecDeque<Entry> = VecDeque::with_capacity(entries.len() / 2);
    for entry in entries {
        match (entry, kept.back_mut()) {
            (Entry::Strangers(0), _) => {}
            (Entry::Strangers(more), Some(Entry::Strangers(pages))) => *pages += more,
            (Entry::Ours { at, stamp }, _) if !holds(at, stamp) => {}
            _ => kept.push_back(entry),
        }
    }
    kept
}
