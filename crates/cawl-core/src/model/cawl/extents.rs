//! The page cache of Alg. 1 (§4.4.1): every dirty byte is in exactly one of the lists, and each list is in order
//! of time.
//!
//! What a write finds dirty has been accessed more than once and becomes *active*; what it does not is new and
//! becomes *inactive*; the rest of the file stays as it is. The flusher takes the oldest inactive bytes. When the
//! active ones are the majority, the oldest of them are demoted; those wait in a list of their own, which is in
//! order too, so that the oldest inactive bytes are always at the head of one of two lists.
//!
//! Kept is a mark for each page, in blocks of 32: its list and its age. Ages are as long as the grain, so many
//! pages share one, and a list is a log for each age of where its pages were marked. Nothing is taken out of a log
//! when a page is marked anew: a place counts if the mark there is still the log's. So a page costs two bytes and a
//! line of a log, whatever happened to it, and a write one search among blocks, O(log n), plus its blocks. A page of
//! which only parts are dirty, or parts of other ages, has a list of its parts instead. Blocks that follow one
//! another and have one mark in all their pages are a *row*, and cost what one block costs.
//!
//! Logs are weeded when they have become twice as long, so memory is in proportion to what is dirty now: about
//! 130 bytes for a page far from others, 15 for a page among others, and next to nothing for what was written in a row.

mod ages;
mod blocks;
mod pages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::hint::black_box;

use cawl_wire::FileId;

use self::ages::{Ages, List, Mark, Place};
use self::blocks::{Block, Home, OfFile};
use self::pages::{Part, pages};
use crate::model::Map;
use crate::units::{Bytes, Nanos};

/// Bytes of a mark's page, whatever the machine's pages are.
const PAGE: u64 = 4096;
/// Pages of a block.
const PAGES: u64 = 32;
const BLOCK: u64 = PAGE * PAGES;
/// A page, dirty as a whole, of which the flusher has cleaned less than a page's bytes so far. The books say so, the
/// mark does not until somebody else comes to the block: most flushers take a page in many small steps.
#[derive(Clone, Copy, Debug)]
struct Front {
    block: u32,
    page: u8,
    mark: Mark,
    cleaned: u64,
}

/// The dirty bytes of every file.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    /// Which of `files` is whose.
    names: BTreeMap<FileId, u32>,
    /// The files with dirty bytes, and places that are free.
    files: Vec<OfFile>,
    unused_files: Vec<u32>,
    blocks: Vec<Block>,
    homes: Vec<Home>,
    /// How many blocks a row has, of those that have more than one.
    rows: Map<u32, u64>,
    unused: Vec<u32>,
    front: Option<Front>,
    /// The block written last, if it is still in use and in no row.
    hot: Option<(u32, u64, u32)>,
    /// Parts of the mixed pages, in order.
    mixed: BTreeMap<(u32, u8), Vec<Part>>,
    ages: Ages,
    /// Scratch: blocks that are looked through, and a page's parts before and after a change.
    found: Vec<u32>,
    before: Vec<Part>,
    after: Vec<Part>,
}

impl Extents {
    /// A clean cache.
    pub(super) fn new(grain: Nanos) -> Extents {
        Extents {
            names: BTreeMap::new(),
            files: Vec::new(),
            unused_files: Vec::new(),
            blocks: Vec::new(),
            homes: Vec::new(),
            rows: Map::default(),
            unused: Vec::new(),
            front: None,
            hot: None,
            mixed: BTreeMap::new(),
            ages: Ages::new(grain),
            found: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    /// Dirty bytes of all files.
    pub(super) fn dirty(&self) -> Bytes {
        Bytes(self.ages.bytes.iter().sum())
    }

    /// Alg. 1, `insert`: the write that ends at `now` has put `[start, end)` into the cache. Returns the
    /// bytes that were not dirty before. `now` must not be earlier than at the last insertion.
    pub(super) fn insert(&mut self, file: FileId, start: u64, end: u64, now: Nanos) -> Bytes {
        let before = self.dirty();
        let number = self.ages.current(now);
        let file = if start < end { self.file(file) } else { 0 };
        let mut at = start;
        while at < end {
            let key = at / BLOCK;
            let base = key * BLOCK;
            if at == base && end - at >= BLOCK {
                at = self.write_blocks(file, key, end / BLOCK, number) * BLOCK;
                continue;
            }
            let until = end.min(base.saturating_add(BLOCK));
            let block = self.block(file, key);
            self.settle_in(block);
            self.write(block, at - base, until - base, number);
            if until - base == BLOCK {
                self.join(block);
            }
            at = until;
        }
        if self.ages.are_long() {
            self.weed();
        }
        self.dirty().saturating_sub(before)
    }

    /// Looks at a page that will be written soon, for the sake of the processor's cache.
    pub(super) fn touch(&self, file: FileId, at: u64) {
        if let Some(&file) = self.names.get(&file)
            && let Some(&block) = self.files[file as usize].blocks.get(at / BLOCK)
        {
            black_box(self.blocks[block as usize].0[(at % BLOCK / PAGE) as usize]);
        }
    }

    /// Looks at the pages that come next in a list's order, for the same sake, whenever as many have been taken.
    fn touch_next(&self, mark: Mark) {
        for place in self.ages.next_places(mark) {
            black_box(self.blocks[place.block as usize].0[usize::from(place.start)]);
        }
    }

    /// Takes `[start, end)` of a file out of the cache; returns how much of it was dirty.
    pub(super) fn remove(&mut self, file: FileId, start: u64, end: u64) -> Bytes {
        let Some(&file) = self.names.get(&file).filter(|_| start < end) else { return Bytes::ZERO };
        let before = self.dirty();
        let (first, last) = (start / BLOCK, (end - 1) / BLOCK);
        // Then every row is within it or outside.
        for key in [first, last] {
            if let Some((row, true)) = self.around(file, key) {
                self.part(row, key, key + 1);
            }
        }
        let mut found = std::mem::take(&mut self.found);
        found.extend(self.files[file as usize].blocks.range(first..last + 1).map(|(_, &block)| block));
        for block in found.drain(..) {
            self.settle_in(block);
            let base = self.homes[block as usize].key * BLOCK;
            match self.blocks[block as usize].mark() {
                Some(mark) if start <= base && end - base >= BLOCK => {
                    self.mark_anew(block, 0..PAGES as usize, mark, Mark::CLEAN);
                }
                _ => {
                    for (page, start, end) in pages(start.max(base) - base, (end - base).min(BLOCK)) {
                        self.wipe(block, page, start, end);
                    }
                }
            }
            self.release_clean(block);
        }
        self.found = found;
        before.saturating_sub(self.dirty())
    }

    /// Takes all files of a device, or of all devices, out of the cache; returns how much was dirty.
    pub(super) fn remove_all(&mut self, dev: Option<u64>) -> Bytes {
        let range = match dev {
            Some(dev) => (dev, dev),
            None => (0, u64::MAX),
        };
        let range = FileId::new(range.0, 0)..=FileId { dev: range.1, ino: u64::MAX, birth: u32::MAX };
        let files: Vec<FileId> = self.names.range(range).map(|(file, _)| *file).collect();
        files.into_iter().map(|file| self.remove(file, 0, u64::MAX)).sum()
    }

    /// Where the file's last dirty byte ends, 0 if it has none: the best guess where an append goes.
    pub(super) fn end_of(&self, file: FileId) -> u64 {
        let of = self.names.get(&file).map(|&file| &self.files[file as usize].blocks);
        let Some((key, &block)) = of.and_then(|blocks| blocks.at_or_before(u64::MAX)) else { return 0 };
        let marks = self.blocks[block as usize].0;
        let page = marks.iter().rposition(|mark| *mark != Mark::CLEAN).unwrap_or(0);
        let end = match marks[page] {
            Mark::MIXED => self.parts(block, page as u8).last().map_or(0, |part| u64::from(part.end)),
            _ => PAGE,
        };
        let last = key + self.length(block) - 1;
        (last * BLOCK + page as u64 * PAGE).saturating_add(end)
    }

    /// When the oldest dirty byte of all was written, to a grain.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.ages.oldest()
    }

    /// Alg. 1, balance: demotes the oldest active bytes until they are no more than half of the cache.
    pub(super) fn balance(&mut self) {
        let half = self.dirty().0 / 2;
        while self.ages.bytes[List::Active as usize] > half {
            let Some((from, place)) = self.ages.oldest_place(List::Active) else { return };
            self.touch_next(from);
            let to = Mark::new(List::Demoted, from.number());
            if self.length(place.block) > 1 {
                if self.blocks[place.block as usize].mark() == Some(from) {
                    self.mark_anew(place.block, 0..PAGES as usize, from, to);
                }
                continue;
            }
            for page in place.start..place.end {
                self.replace(place.block, page, from, to);
            }
        }
    }

    /// Alg. 1: cleans at most `most` bytes where the oldest inactive ones are, in one block or row, and stops where the
    /// active ones come to be more than half; returns how many bytes that is.
    pub(super) fn clean_oldest(&mut self, most: Bytes) -> Bytes {
        let balanced = self.dirty().0.saturating_sub(2 * self.ages.bytes[List::Active as usize]) + 1;
        let most = most.0.min(balanced);
        let mut left = most;
        while left == most && left > 0 {
            let (list, age) = match (self.ages.head(List::Inactive), self.ages.head(List::Demoted)) {
                (Some(a), Some(b)) if b < a => (List::Demoted, b),
                (None, Some(b)) => (List::Demoted, b),
                (Some(a), _) => (List::Inactive, a),
                (None, None) => break,
            };
            if let Some(mut front) = self.front.take() {
                if front.mark == self.ages.mark(list, age) {
                    let step = left.min(PAGE - front.cleaned);
                    front.cleaned += step;
                    self.ages.subtract(front.mark, step);
                    if front.cleaned < PAGE {
                        self.front = Some(front);
                    } else {
                        self.blocks[front.block as usize].0[usize::from(front.page)] = Mark::CLEAN;
                        self.release_clean(front.block);
                    }
                    left -= step;
                    break;
                }
                self.settle(front);
            }
            let Some((mark, mut place)) = self.ages.oldest_place(list) else { break };
            self.touch_next(mark);
            let len = self.length(place.block);
            if len > 1 {
                if self.blocks[place.block as usize].mark() != Some(mark) {
                    continue;
                }
                // What is not for now gets a place of its own.
                let blocks = (left / BLOCK).min(len);
                let Home { key, .. } = self.homes[place.block as usize];
                self.part(place.block, key, key + blocks.max(1));
                place = Place { start: 0, end: PAGES as u8, ..place };
                if blocks > 0 {
                    self.mark_anew(place.block, 0..PAGES as usize, mark, Mark::CLEAN);
                    left -= blocks * BLOCK;
                    self.release_clean(place.block);
                    break;
                }
            }
            for page in place.start..place.end {
                if left < PAGE && self.blocks[place.block as usize].0[usize::from(page)] == mark {
                    self.front = Some(Front { block: place.block, page, mark, cleaned: left });
                    self.ages.subtract(mark, left);
                    left = 0;
                } else {
                    left -= self.clean(place.block, page, mark, left);
                }
                if left == 0 {
                    self.ages.put_back(mark, Place { start: page, ..place });
                    break;
                }
            }
            self.release_clean(place.block);
        }
        Bytes(most - left)
    }

    fn weed(&mut self) {
        let mut ages = std::mem::replace(&mut self.ages, Ages::new(Nanos::ZERO));
        ages.weed(|place, mark| self.counts(place, mark));
        self.ages = ages;
    }

    /// Gives the page that the flusher is at the mark that it ought to have, if it is in this block.
    fn settle_in(&mut self, block: u32) {
        if let Some(front) = self.front.take_if(|front| front.block == block) {
            self.settle(front);
        }
    }

    fn settle(&mut self, front: Front) {
        self.ages.add(front.mark, front.cleaned);
        self.wipe(front.block, front.page, 0, front.cleaned as u16);
    }
}
