//! The lists on which the kernel keeps the pages of files, to know which it can do without (`struct lruvec`,
//! mm/swap.c, mm/vmscan.c and mm/workingset.c, 6.18, without CONFIG_LRU_GEN).
//!
//! The law: a page that comes in goes to the head of the *inactive* list. A read marks it as referenced, the
//! next read of it puts it on the *active* list (`folio_mark_accessed`); writes do neither. Reclaim takes pages
//! from the tail of the inactive list, whether referenced or not. What is dirty or under writeback is passed
//! over, and goes first once it is clean (`folio_rotate_reclaimable`). Pages move from the tail of the active
//! list to the head of the inactive one while that is low (`inactive_is_low`), or while pages come back. A page
//! comes back, and is active at once, if no more pages were reclaimed or activated since it was reclaimed than
//! are active (`workingset_test_recent`); one that is written anew does not.
//!
//! Pages are kept in blocks of 2 MiB: which page is on which list is known of each, its place on the list only
//! of its block, which is where at least half of its pages there came. So a list is short, and a page costs
//! about nothing.

use std::collections::VecDeque;

use super::Map;
use crate::block::{Block, FULL};
use crate::pages::{BLOCK, pieces};

/// The two lists.
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
/// Blocks with no page left of which it is remembered when they were reclaimed.
const GONE: usize = 1 << 15;
/// Blocks passed over that are looked at again each time, though they have pages that are not clean yet.
const AGAIN: usize = 8;
/// Times that nothing is reclaimed before all of them are looked at.
const PATIENCE: u32 = 64;
/// Entries of a list from which on those that are void are removed.
const MIN_TIDIED: usize = 64;
/// Pages in a gibibyte, to which the ratio of the lists is related.
const GIB: u64 = 1 << 18;

/// Pages of a block of a file.
#[derive(Clone, Debug, Default)]
struct Pages {
    file: u32,
    key: u64,
    /// On one of the lists; of those, on the active one.
    here: Block,
    active: Block,
    referenced: Block,
    /// Were reclaimed, and did not come back.
    reclaimed: Block,
    /// [`Lists::age`] when pages of it were last reclaimed.
    when: u64,
    /// The entries of the lists that hold, by their stamps.
    stamps: [u32; 2],
}

impl Pages {
    fn on(&self, list: usize) -> Block {
        if list == ACTIVE { self.active } else { self.here.without(self.active) }
    }
}

/// An entry of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    /// A block, by number; void if the block has another stamp.
    Ours { at: u32, stamp: u32 },
    /// Pages of files that are not known.
    Strangers(u64),
}

/// One list: the head is its back.
#[derive(Clone, Debug, Default)]
struct List {
    entries: VecDeque<Entry>,
    /// Pages of known files, and of others.
    ours: u64,
    strangers: u64,
    /// Length at which void entries are removed.
    most: usize,
}

impl List {
    fn pages(&self) -> u64 {
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

/// The lists of one group, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    lists: [List; 2],
    /// Blocks that were at the tail of the inactive list with pages that were not clean.
    passed: VecDeque<Entry>,
    /// Length at which void entries of these are removed.
    most_passed: usize,
    /// Times in a row that nothing was reclaimed.
    in_vain: u32,
    blocks: Vec<Pages>,
    /// Numbers of blocks that are not used.
    free: Vec<u32>,
    index: Map<(u32, u64), u32>,
    /// The block found last.
    latest: Option<((u32, u64), u32)>,
    /// Pages that were reclaimed or activated so far (`nonresident_age`).
    age: u64,
    /// Pages have come back since the latest reclaim.
    returned: bool,
    stamp: u32,
    /// Blocks without pages here, in the order of their reclaim, and when that was.
    gone: VecDeque<(u32, u64)>,
}

impl Lists {
    /// Pages on the inactive list and on the active one.
    pub(super) fn pages(&self) -> [u64; 2] {
        [self.lists[INACTIVE].pages(), self.lists[ACTIVE].pages()]
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
    pub(super) fn begin(&mut self, strangers: [u64; 2]) {
        for (list, pages) in strangers.into_iter().enumerate() {
            self.add_first(list, pages);
        }
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

    fn add_last(&mut self, list: usize, pages: u64) {
        let list = &mut self.lists[list];
        list.strangers += pages;
        match list.entries.back_mut() {
            Some(Entry::Strangers(last)) => *last += pages,
            _ if pages > 0 => list.entries.push_back(Entry::Strangers(pages)),
            _ => {}
        }
    }

    /// The kernel counts so many pages on the inactive list and on the active one: the difference to what is
    /// known is of unknown files.
    pub(super) fn correct(&mut self, counted: [u64; 2]) {
        for (at, counted) in counted.into_iter().enumerate() {
            let pages = self.lists[at].pages();
            if counted > pages {
                self.add_last(at, counted - pages);
            } else {
                self.lose_strangers(at, pages - counted);
            }
        }
        self.tidy();
    }

    /// Takes pages of unknown files off a list, those at the tail first; how many.
    fn lose_strangers(&mut self, list: usize, most: u64) -> u64 {
        let list = &mut self.lists[list];
        let mut left = most.min(list.strangers);
        list.strangers -= left;
        let lost = left;
        for entry in &mut list.entries {
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

    /// The number of a block, if it is remembered.
    fn find(&mut self, key: (u32, u64)) -> Option<u32> {
        match self.latest {
            Some((latest, at)) if latest == key => Some(at),
            _ => {
                let at = *self.index.get(&key)?;
                self.latest = Some((key, at));
                Some(at)
            }
        }
    }

    fn find_or_add(&mut self, key: (u32, u64)) -> u32 {
        if let Some(at) = self.find(key) {
            return at;
        }
        let pages = Pages { file: key.0, key: key.1, ..Pages::default() };
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
        *block = Pages::default();
        self.free.push(at);
        self.latest = None;
    }

    /// Pages of a block have come to a list that had `before` of it. It is where most of them came.
    fn place(&mut self, at: u32, list: usize, before: u64, pages: u64) {
        self.lists[list].ours += pages;
        if pages > 0 && pages >= before {
            let entry = self.restamp(at, list);
            self.lists[list].entries.push_back(entry);
        }
    }

    fn restamp(&mut self, at: u32, list: usize) -> Entry {
        // None is 0, that of a block without an entry.
        self.stamp = self.stamp.wrapping_add(1).max(1);
        self.blocks[at as usize].stamps[list] = self.stamp;
        Entry::Ours { at, stamp: self.stamp }
    }

    /// The pages of a file from `start` up to `end` have come in, as far as they are not here: they were read,
    /// or written.
    pub(super) fn insert(&mut self, file: u32, start: u64, end: u64, read: bool) {
        for (key, from, to) in pieces(start, end) {
            let at = self.find_or_add((file, key));
            let (age, active) = (self.age, self.lists[ACTIVE].pages());
            let block = &mut self.blocks[at as usize];
            let new = Block::of((from, to)).without(block.here);
            let is_recent = read && age - block.when <= active;
            let back = if is_recent { new.and(block.reclaimed) } else { Block::default() };
            let before = [block.on(INACTIVE).pages(), block.active.pages()];
            block.here = block.here.or(new);
            block.active = block.active.or(back);
            block.referenced = block.referenced.without(new);
            block.reclaimed = block.reclaimed.without(new);
            let back = back.pages();
            self.age += back;
            self.returned |= back > 0;
            self.place(at, INACTIVE, before[INACTIVE], new.pages() - back);
            self.place(at, ACTIVE, before[ACTIVE], back);
        }
        self.tidy();
    }

    /// Puts pages on the lists that were cached before the first call; returns by how many the lists grow.
    ///
    /// A block of which other pages are known, or were reclaimed, gets them at the head of the inactive list. Of
    /// any other block, the kernel has counted them among the pages of unknown files: they take the place of as
    /// many of these, next to the tail. If there are not as many, they are on the lists of another group, and
    /// nothing changes.
    pub(super) fn find_before(&mut self, file: u32, start: u64, end: u64) -> u64 {
        let mut taken = 0;
        for (key, from, to) in pieces(start, end) {
            let known = self.find((file, key)).is_some();
            if !known && self.lists.iter().map(|list| list.strangers).sum::<u64>() < to - from {
                continue;
            }
            let at = self.find_or_add((file, key));
            let block = &mut self.blocks[at as usize];
            let new = Block::of((from, to)).without(block.here);
            let before = block.on(INACTIVE).pages();
            block.here = block.here.or(new);
            block.reclaimed = block.reclaimed.without(new);
            let new = new.pages();
            if known {
                self.place(at, INACTIVE, before, new);
                taken += new;
                continue;
            }
            self.lists[INACTIVE].ours += new;
            let left = new - self.lose_strangers(INACTIVE, new);
            self.lose_strangers(ACTIVE, left);
            let entry = self.restamp(at, INACTIVE);
            let entries = &mut self.lists[INACTIVE].entries;
            let behind = matches!(entries.front(), Some(Entry::Strangers(_)));
            entries.push_front(entry);
            if behind {
                entries.swap(0, 1);
            }
        }
        self.tidy();
        taken
    }

    /// The pages of a file from `start` up to `end` were read (`folio_mark_accessed`).
    pub(super) fn access(&mut self, file: u32, start: u64, end: u64) {
        for (key, from, to) in pieces(start, end) {
            let Some(at) = self.find((file, key)) else { continue };
            let block = &mut self.blocks[at as usize];
            let read = Block::of((from, to)).and(block.here);
            let again = read.and(block.referenced).without(block.active);
            block.referenced = block.referenced.or(read).without(again);
            if !again.is_empty() {
                let before = block.active.pages();
                block.active = block.active.or(again);
                let again = again.pages();
                self.lists[INACTIVE].ours -= again;
                self.age += again;
                self.place(at, ACTIVE, before, again);
            }
        }
        self.tidy();
    }

    /// The pages of a file from `start` up to `end` are dropped; how many were on the lists.
    pub(super) fn drop(&mut self, file: u32, start: u64, end: u64) -> u64 {
        let before: u64 = self.lists.iter().map(|list| list.ours).sum();
        for (key, from, to) in pieces(start, end) {
            if let Some(at) = self.find((file, key)) {
                self.take_off(at, Block::of((from, to)));
                let block = &mut self.blocks[at as usize];
                if block.here.or(block.reclaimed).is_empty() {
                    self.remove(at);
                }
            }
        }
        before - self.lists.iter().map(|list| list.ours).sum::<u64>()
    }

    /// Takes pages of a block off the lists.
    fn take_off(&mut self, at: u32, pages: Block) {
        let block = &mut self.blocks[at as usize];
        let pages = pages.and(block.here);
        let active = pages.and(block.active);
        self.lists[ACTIVE].ours -= active.pages();
        self.lists[INACTIVE].ours -= pages.without(active).pages();
        block.here = block.here.without(pages);
        block.active = block.active.without(pages);
        block.referenced = block.referenced.without(pages);
    }

    /// Files are forgotten, though their pages stay: they are those of others now.
    pub(super) fn forget(&mut self, is_forgotten: impl Fn(u32) -> bool) {
        for at in 0..self.blocks.len() as u32 {
            let block = &self.blocks[at as usize];
            if self.index.get(&(block.file, block.key)) == Some(&at) && is_forgotten(block.file) {
                let pages = [block.on(INACTIVE), block.on(ACTIVE)].map(|pages| pages.pages());
                self.take_off(at, FULL);
                self.remove(at);
                (0..2).for_each(|list| self.add_first(list, pages[list]));
            }
        }
    }

    /// `inactive_is_low`, mm/vmscan.c.
    fn is_low(inactive: u64, active: u64) -> bool {
        let ratio = match (inactive + active) / GIB {
            0 => 1,
            gib => (10 * gib).isqrt(),
        };
        inactive * ratio < active
    }

    /// How many pages move from the active list to the inactive one while `wanted` are reclaimed: both are
    /// scanned in proportion to their lengths (`get_scan_count`), if the inactive one is low or pages come back
    /// (`prepare_scan_control`).
    pub(super) fn to_deactivate([inactive, active]: [u64; 2], returned: bool, wanted: u64) -> u64 {
        if returned || Lists::is_low(inactive, active) {
            let part = u128::from(wanted) * u128::from(active) / u128::from(inactive.max(1));
            u64::try_from(part).unwrap_or(u64::MAX).min(wanted).min(active)
        } else {
            0
        }
    }

    /// Reclaims up to `wanted` pages; how many.
    pub(super) fn shrink(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let mut reclaimed = self.retake_passed(wanted, files);
        while reclaimed < wanted {
            let turn = (wanted - reclaimed).min(BLOCK);
            self.deactivate(Lists::to_deactivate(self.pages(), self.returned, turn));
            let got = self.shrink_inactive(turn, files);
            reclaimed += got;
            if got == 0 {
                // The kernel has put what it has passed over on the active list, so the inactive one is low.
                if self.lists[ACTIVE].pages() == 0 {
                    break;
                }
                self.deactivate(turn);
            }
        }
        self.returned = false;
        self.in_vain = if reclaimed == 0 { self.in_vain.wrapping_add(1) } else { 0 };
        self.forget_gone();
        self.tidy();
        reclaimed
    }

    /// Those that were passed over and are clean now.
    fn retake_passed(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let (mut reclaimed, mut missed) = (0, Vec::new());
        // The first may be written over and over: all are looked at now and then.
        let most = if self.in_vain % PATIENCE == PATIENCE - 1 { usize::MAX } else { AGAIN };
        while missed.len() < most
            && reclaimed < wanted
            && let Some(entry) = self.passed.pop_front()
        {
            let (got, stays) = self.reclaim_entry(entry, wanted - reclaimed, files);
            reclaimed += got;
            missed.extend(stays);
        }
        // In their order: they are written in it.
        missed.into_iter().rev().for_each(|entry| self.passed.push_front(entry));
        reclaimed
    }

    /// `shrink_inactive_list`.
    fn shrink_inactive(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let mut reclaimed = 0;
        while reclaimed < wanted
            && let Some(entry) = self.lists[INACTIVE].entries.pop_front()
        {
            let (got, stays) = self.reclaim_entry(entry, wanted - reclaimed, files);
            reclaimed += got;
            match stays {
                Some(entry) if reclaimed >= wanted => self.lists[INACTIVE].entries.push_front(entry),
                stays => self.passed.extend(stays),
            }
        }
        reclaimed
    }

    /// Reclaims up to `wanted` pages of an entry of the inactive list; how many, and the entry if it has more.
    fn reclaim_entry(
        &mut self,
        entry: Entry,
        wanted: u64,
        files: &mut impl Reclaimable,
    ) -> (u64, Option<Entry>) {
        let (at, stamp) = match entry {
            Entry::Strangers(pages) => {
                let got = pages.min(wanted);
                self.lists[INACTIVE].strangers -= got;
                self.age += got;
                return (got, (pages > got).then_some(Entry::Strangers(pages - got)));
            }
            Entry::Ours { at, stamp } => (at, stamp),
        };
        let block = &self.blocks[at as usize];
        let inactive = block.on(INACTIVE);
        if !self.holds(at, stamp, INACTIVE) {
            return (0, None);
        }
        let (file, key) = (block.file, block.key);
        let pages = inactive.and(files.clean(file, key)).lowest(wanted);
        let got = pages.pages();
        if got > 0 {
            files.reclaim(file, key, pages);
            self.take_off(at, pages);
            let block = &mut self.blocks[at as usize];
            block.reclaimed = block.reclaimed.or(pages);
            block.when = self.age;
            if block.here.is_empty() {
                self.gone.push_back((at, self.age));
            }
            self.age += got;
        }
        (got, (pages != inactive).then_some(entry))
    }

    /// `shrink_active_list`.
    fn deactivate(&mut self, pages: u64) {
        let mut left = pages;
        while left > 0
            && let Some(entry) = self.lists[ACTIVE].entries.pop_front()
        {
            match entry {
                Entry::Strangers(pages) => {
                    let part = pages.min(left);
                    left -= part;
                    self.lists[ACTIVE].strangers -= part;
                    self.add_last(INACTIVE, part);
                    if pages > part {
                        self.lists[ACTIVE].entries.push_front(Entry::Strangers(pages - part));
                    }
                }
                Entry::Ours { at, stamp } => {
                    let block = &mut self.blocks[at as usize];
                    if block.stamps[ACTIVE] != stamp {
                        continue;
                    }
                    let moved = block.active.lowest(left);
                    let before = block.on(INACTIVE).pages();
                    block.active = block.active.without(moved);
                    let stays = !block.active.is_empty();
                    let moved = moved.pages();
                    left -= moved;
                    self.lists[ACTIVE].ours -= moved;
                    self.place(at, INACTIVE, before, moved);
                    if stays {
                        self.lists[ACTIVE].entries.push_front(entry);
                    }
                }
            }
        }
    }

    /// What was reclaimed so long ago that it will not be taken to come back is forgotten.
    fn forget_gone(&mut self) {
        let most: u64 = self.pages().iter().sum();
        while let Some((at, when)) = self.gone.front().copied() {
            let block = &self.blocks[at as usize];
            // It is none of a block that has come back, or was reclaimed again since.
            let holds = block.here.is_empty() && block.when == when && !block.reclaimed.is_empty();
            if holds && self.age - when <= most && self.gone.len() <= GONE {
                break;
            }
            self.gone.pop_front();
            if holds {
                self.remove(at);
            }
        }
    }

    /// Removes void entries from a list that has grown to twice its length, and joins those of strangers.
    #[inline]
    fn tidy(&mut self) {
        for at in 0..2 {
            if self.lists[at].entries.len() > self.lists[at].most.max(MIN_TIDIED) {
                let entries = std::mem::take(&mut self.lists[at].entries);
                let kept = self.without_void(entries, at);
                self.lists[at].most = 2 * kept.len();
                self.lists[at].entries = kept;
            }
        }
        if self.passed.len() > self.most_passed.max(MIN_TIDIED) {
            let entries = std::mem::take(&mut self.passed);
            self.passed = self.without_void(entries, INACTIVE);
            self.most_passed = 2 * self.passed.len();
        }
    }

    #[cold]
    fn without_void(&self, entries: VecDeque<Entry>, list: usize) -> VecDeque<Entry> {
        let mut kept: VecDeque<Entry> = VecDeque::with_capacity(entries.len() / 2);
        for entry in entries {
            match (entry, kept.back_mut()) {
                (Entry::Strangers(0), _) => {}
                (Entry::Strangers(more), Some(Entry::Strangers(pages))) => *pages += more,
                (Entry::Ours { at, stamp }, _) if !self.holds(at, stamp, list) => {}
                _ => kept.push_back(entry),
            }
        }
        kept
    }

    /// An entry with this stamp stands for pages of the block.
    fn holds(&self, at: u32, stamp: u32, list: usize) -> bool {
        let block = &self.blocks[at as usize];
        block.stamps[list] == stamp && !block.on(list).is_empty()
    }
}

#[cfg(test)]
mod tests;
