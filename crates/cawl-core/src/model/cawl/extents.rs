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
//! 150 bytes for a page far from others, 15 for a page among others, and next to nothing for what was written in a row.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::units::{Bytes, Nanos};

/// A file's identity: device and inode number.
pub(super) type FileId = (u64, u64);

/// Bytes of a mark's page, whatever the machine's pages are.
const PAGE: u64 = 4096;
/// Pages of a block.
const PAGES: u64 = 32;
const BLOCK: u64 = PAGE * PAGES;
/// Ages that are told apart. With an expiry of 256 grains that is as much again sixteen times over, waiting for the
/// device; what is written then is of the youngest age, in its order.
const MOST_AGES: usize = 4096;
/// Places in logs before they are first weeded.
const FEW: usize = 1 << 12;

/// Which list a byte is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Accessed once.
    Inactive = 0,
    /// Was active, counts as inactive.
    Demoted = 1,
    /// Accessed more than once.
    Active = 2,
}

/// The state of a page or of a part of it: clean, in a list with an age, or mixed. Three bits say which; above them
/// is the number of the age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark(u16);

const KIND_BITS: u32 = 3;
/// Ages are numbered modulo this.
const NUMBERS: u16 = 1 << (16 - KIND_BITS);

impl Mark {
    const CLEAN: Mark = Mark(0);
    const MIXED: Mark = Mark(4);

    fn new(list: List, number: u16) -> Mark {
        Mark(number << KIND_BITS | (list as u16 + 1))
    }

    /// Index of the list, of a mark that is neither clean nor mixed.
    fn list(self) -> usize {
        (self.0 % (1 << KIND_BITS)) as usize - 1
    }

    fn number(self) -> u16 {
        self.0 >> KIND_BITS
    }
}

/// Dirty bytes of a mixed page, from `start` to `end`, of one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    start: u16,
    end: u16,
    mark: Mark,
}

/// Pages of a block that were given a mark, from `start` to `end`; of a row all count.
#[derive(Clone, Copy, Debug)]
struct Place {
    block: u32,
    start: u8,
    end: u8,
}

/// What one list holds of one age.
#[derive(Clone, Debug, Default)]
struct Generation {
    bytes: u64,
    /// Wherever a byte has this mark, a place from `done` on says so.
    log: Vec<Place>,
    done: usize,
}

/// A page, dirty as a whole, of which the flusher has cleaned less than a page's bytes so far. The books say so, the
/// mark does not until somebody else comes to the block: most flushers take a page in many small steps.
#[derive(Clone, Copy, Debug)]
struct Front {
    block: u32,
    page: u8,
    mark: Mark,
    cleaned: u64,
}

/// Bytes last written within a grain.
#[derive(Clone, Debug)]
struct Age {
    /// When the first write of this age ended, in ns.
    since: Nanos,
    lists: [Generation; 3],
}

/// Marks of a block's pages; fills one cache line, and lies in one.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block([Mark; PAGES as usize]);

impl Block {
    const CLEAN: Block = Block([Mark::CLEAN; PAGES as usize]);

    /// The mark of all its pages, if they have one, and no parts.
    fn mark(&self) -> Option<Mark> {
        let first = self.0[0];
        (first != Mark::MIXED && *self == Block([first; PAGES as usize])).then_some(first)
    }
}

/// Where a block is, or a row of them that is kept as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Home {
    file: FileId,
    /// The place in the file, counted in blocks.
    key: u64,
    /// Blocks in the row.
    len: u64,
}

/// The dirty bytes of every file.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    /// Blocks and rows by the place in the file, counted in blocks; none of them is clean.
    files: BTreeMap<FileId, BTreeMap<u64, u32>>,
    blocks: Vec<Block>,
    homes: Vec<Home>,
    unused: Vec<u32>,
    front: Option<Front>,
    /// The block written last, if it is still in use and in no row.
    hot: Option<(FileId, u64, u32)>,
    /// Parts of the mixed pages, in order.
    mixed: BTreeMap<(u32, u8), Vec<Part>>,
    /// Oldest first. The first has bytes, unless it is the only one.
    ages: VecDeque<Age>,
    /// Number of the first age.
    first: u16,
    /// Number of an age such that no older one has bytes in that list.
    heads: [u16; 3],
    /// Bytes in each list.
    bytes: [u64; 3],
    /// Places in all logs, and how many make it worth weeding them.
    places: usize,
    weed_at: usize,
    /// What is written no later than that after the first of an age is of that age.
    grain: Nanos,
    /// Scratch: blocks that are looked through, and a page's parts before and after a change.
    found: Vec<u32>,
    before: Vec<Part>,
    after: Vec<Part>,
}

impl Extents {
    /// A clean cache.
    pub(super) fn new(grain: Nanos) -> Extents {
        Extents {
            files: BTreeMap::new(),
            blocks: Vec::new(),
            homes: Vec::new(),
            unused: Vec::new(),
            front: None,
            hot: None,
            mixed: BTreeMap::new(),
            ages: VecDeque::new(),
            first: 0,
            heads: [0; 3],
            bytes: [0; 3],
            places: 0,
            weed_at: FEW,
            grain,
            found: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        }
    }

    /// Dirty bytes of all files.
    pub(super) fn dirty(&self) -> Bytes {
        Bytes(self.bytes.iter().sum())
    }

    /// Alg. 1, `insert`: the write that ends at `now` has put `[start, end)` into the cache. Returns the
    /// bytes that were not dirty before. `now` must not be earlier than at the last insertion.
    pub(super) fn insert(&mut self, file: FileId, start: u64, end: u64, now: Nanos) -> Bytes {
        let before = self.dirty();
        let number = self.age(now);
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
        if self.places > self.weed_at {
            self.weed();
        }
        self.dirty().saturating_sub(before)
    }

    /// Takes `[start, end)` of a file out of the cache; returns how much of it was dirty.
    pub(super) fn remove(&mut self, file: FileId, start: u64, end: u64) -> Bytes {
        if start >= end || !self.files.contains_key(&file) {
            return Bytes::ZERO;
        }
        let before = self.dirty();
        let (first, last) = (start / BLOCK, (end - 1) / BLOCK);
        // Then every row is within it or outside.
        for key in [first, last] {
            if let Some((row, true)) = self.around(file, key) {
                self.part(row, key, key + 1);
            }
        }
        let mut found = std::mem::take(&mut self.found);
        let map = self.files.get(&file);
        found.extend(map.into_iter().flat_map(|map| map.range(first..=last)).map(|(_, &block)| block));
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
            Some(dev) => (dev, 0)..=(dev, u64::MAX),
            None => (0, 0)..=(u64::MAX, u64::MAX),
        };
        let files: Vec<FileId> = self.files.range(range).map(|(file, _)| *file).collect();
        files.into_iter().map(|file| self.remove(file, 0, u64::MAX)).sum()
    }

    /// Where the file's last dirty byte ends, 0 if it has none: the best guess where an append goes.
    pub(super) fn end_of(&self, file: FileId) -> u64 {
        let last = self.files.get(&file).and_then(|map| map.last_key_value());
        let Some((&key, &block)) = last else { return 0 };
        let marks = self.blocks[block as usize].0;
        let page = marks.iter().rposition(|mark| *mark != Mark::CLEAN).unwrap_or(0);
        let end = match marks[page] {
            Mark::MIXED => self.parts(block, page as u8).last().map_or(0, |part| u64::from(part.end)),
            _ => PAGE,
        };
        let last = key + self.homes[block as usize].len - 1;
        (last * BLOCK + page as u64 * PAGE).saturating_add(end)
    }

    /// When the oldest dirty byte of all was written, to a grain.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.ages.front().filter(|_| self.bytes != [0; 3]).map(|age| age.since)
    }

    /// Alg. 1, balance: demotes the oldest active bytes until they are no more than half of the cache.
    pub(super) fn balance(&mut self) {
        let half = self.dirty().0 / 2;
        while self.bytes[List::Active as usize] > half {
            let Some((from, place)) = self.oldest_place(List::Active) else { return };
            let to = Mark::new(List::Demoted, from.number());
            if self.homes[place.block as usize].len > 1 {
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
        let balanced = self.dirty().0.saturating_sub(2 * self.bytes[List::Active as usize]) + 1;
        let most = most.0.min(balanced);
        let mut left = most;
        while left == most && left > 0 {
            let (list, age) = match (self.head(List::Inactive), self.head(List::Demoted)) {
                (Some(a), Some(b)) if b < a => (List::Demoted, b),
                (None, Some(b)) => (List::Demoted, b),
                (Some(a), _) => (List::Inactive, a),
                (None, None) => break,
            };
            if let Some(mut front) = self.front.take() {
                if front.mark == Mark::new(list, (self.first + age as u16) % NUMBERS) {
                    let step = left.min(PAGE - front.cleaned);
                    front.cleaned += step;
                    self.subtract(front.mark, step);
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
            let Some((mark, place)) = self.oldest_place(list) else { break };
            let Home { key, len, .. } = self.homes[place.block as usize];
            let mut place = place;
            if len > 1 {
                if self.blocks[place.block as usize].mark() != Some(mark) {
                    continue;
                }
                // What is not for now gets a place of its own.
                let blocks = (left / BLOCK).min(len);
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
                    self.subtract(mark, left);
                    left = 0;
                } else {
                    left -= self.clean(place.block, page, mark, left);
                }
                if left == 0 {
                    self.put_back(mark, Place { start: page, ..place });
                    break;
                }
            }
            self.release_clean(place.block);
        }
        Bytes(most - left)
    }

    /// Gives the page that the flusher is at the mark that it ought to have, if it is in this block.
    fn settle_in(&mut self, block: u32) {
        if let Some(front) = self.front.take_if(|front| front.block == block) {
            self.settle(front);
        }
    }

    fn settle(&mut self, front: Front) {
        self.add(front.mark, front.cleaned);
        self.wipe(front.block, front.page, 0, front.cleaned as u16);
    }

    /// The number of the age of what is written now.
    fn age(&mut self, now: Nanos) -> u16 {
        let young = self.ages.back().is_some_and(|age| now.saturating_sub(age.since) <= self.grain);
        if !young && (self.ages.len() < MOST_AGES) {
            self.ages.push_back(Age { since: now, lists: Default::default() });
            self.forget_empty_ages();
        }
        (self.first + self.ages.len() as u16 - 1) % NUMBERS
    }

    /// The oldest ages go once nothing is of them.
    fn forget_empty_ages(&mut self) {
        while self.ages.len() > 1
            && self.ages.front().is_some_and(|age| age.lists.iter().all(|list| list.bytes == 0))
        {
            self.ages.pop_front();
            let next = (self.first + 1) % NUMBERS;
            self.heads.iter_mut().filter(|head| **head == self.first).for_each(|head| *head = next);
            self.first = next;
        }
    }

    /// How many ages are older than that of this number.
    fn older(&self, number: u16) -> usize {
        (number.wrapping_sub(self.first) % NUMBERS) as usize
    }

    fn generation(&mut self, mark: Mark) -> &mut Generation {
        let older = self.older(mark.number());
        &mut self.ages[older].lists[mark.list()]
    }

    /// Which age is the oldest that a list has bytes of, counted from the oldest of all.
    fn head(&mut self, list: List) -> Option<usize> {
        let list = list as usize;
        if self.bytes[list] == 0 {
            return None;
        }
        let head = (self.older(self.heads[list])..self.ages.len())
            .find(|age| self.ages[*age].lists[list].bytes > 0)?;
        self.heads[list] = (self.first + head as u16) % NUMBERS;
        Some(head)
    }

    /// The next place in a list's order that may have bytes, with their mark; it is taken out of the log.
    fn oldest_place(&mut self, list: List) -> Option<(Mark, Place)> {
        let head = self.head(list)?;
        let generation = &mut self.ages[head].lists[list as usize];
        let place = *generation.log.get(generation.done)?;
        generation.done += 1;
        Some((Mark::new(list, (self.first + head as u16) % NUMBERS), place))
    }

    /// The place taken last may have bytes still.
    fn put_back(&mut self, mark: Mark, place: Place) {
        let older = self.older(mark.number());
        if let Some(age) = self.ages.get_mut(older)
            && let generation = &mut age.lists[mark.list()]
            && generation.bytes > 0
        {
            generation.done -= 1;
            generation.log[generation.done] = place;
        }
    }

    /// So many more bytes have this mark.
    fn add(&mut self, mark: Mark, bytes: u64) {
        self.bytes[mark.list()] += bytes;
        self.generation(mark).bytes += bytes;
        let head = self.heads[mark.list()];
        if self.older(mark.number()) < self.older(head) {
            self.heads[mark.list()] = mark.number();
        }
    }

    /// So many bytes have this mark no longer.
    fn subtract(&mut self, mark: Mark, bytes: u64) {
        self.bytes[mark.list()] -= bytes;
        let generation = self.generation(mark);
        generation.bytes -= bytes;
        if generation.bytes == 0 {
            let log = std::mem::take(&mut generation.log);
            generation.done = 0;
            self.places -= log.len();
            self.forget_empty_ages();
        }
    }

    /// Pages of a block have bytes with this mark.
    fn note(&mut self, mark: Mark, block: u32, start: u8, end: u8) {
        let generation = self.generation(mark);
        match generation.log[generation.done..].last_mut() {
            Some(last) if last.block == block && last.end == start => last.end = end,
            _ => {
                generation.log.push(Place { block, start, end });
                self.places += 1;
            }
        }
    }

    /// The block or row that this place is in, and the one before it if there is none.
    fn around(&self, file: FileId, key: u64) -> Option<(u32, bool)> {
        let map = self.files.get(&file)?;
        // Most are no rows, and found so in less time.
        if let Some(&block) = map.get(&key) {
            return Some((block, true));
        }
        let (_, &block) = map.range(..key).next_back()?;
        let home = self.homes[block as usize];
        Some((block, key - home.key < home.len))
    }

    /// A new block or row, with this mark in all pages; the bytes are counted elsewhere.
    fn occupy(&mut self, home: Home, mark: Mark) -> u32 {
        let marks = Block([mark; PAGES as usize]);
        let block = match self.unused.pop() {
            Some(block) => {
                (self.blocks[block as usize], self.homes[block as usize]) = (marks, home);
                block
            }
            None => {
                self.blocks.push(marks);
                self.homes.push(home);
                (self.blocks.len() - 1) as u32
            }
        };
        self.files.entry(home.file).or_default().insert(home.key, block);
        if mark != Mark::CLEAN {
            self.note(mark, block, 0, PAGES as u8);
        }
        block
    }

    /// Splits a row so that what is from `start` to `end` is one of its own, and returns that.
    fn part(&mut self, row: u32, start: u64, end: u64) -> u32 {
        let Home { file, key, len } = self.homes[row as usize];
        let mark = self.blocks[row as usize].0[0];
        let mut wanted = row;
        if key < start {
            self.homes[row as usize].len = start - key;
            wanted = self.occupy(Home { file, key: start, len: end - start }, mark);
        } else {
            self.homes[row as usize].len = end - start;
        }
        if end < key + len {
            self.occupy(Home { file, key: end, len: key + len - end }, mark);
        }
        wanted
    }

    /// The block at this place, a clean one if there is none.
    fn block(&mut self, file: FileId, key: u64) -> u32 {
        if let Some((of, at, block)) = self.hot
            && (of, at) == (file, key)
        {
            return block;
        }
        let block = match self.around(file, key) {
            Some((row, true)) if self.homes[row as usize].len > 1 => self.part(row, key, key + 1),
            Some((block, true)) => block,
            _ => self.occupy(Home { file, key, len: 1 }, Mark::CLEAN),
        };
        self.hot = Some((file, key, block));
        block
    }

    /// Puts a block into the row before it, if they are alike.
    fn join(&mut self, block: u32) {
        let Home { file, key, .. } = self.homes[block as usize];
        let Some(mark) = self.blocks[block as usize].mark() else { return };
        let Some((before, _)) = key.checked_sub(1).and_then(|key| self.around(file, key)) else { return };
        self.settle_in(before);
        let home = &mut self.homes[before as usize];
        if home.key + home.len == key && self.blocks[before as usize].mark() == Some(mark) {
            home.len += 1;
            self.blocks[block as usize] = Block::CLEAN;
            self.release_clean(block);
        }
    }

    /// Gives a block or row back if it is clean.
    fn release_clean(&mut self, block: u32) {
        if self.blocks[block as usize] != Block::CLEAN {
            return;
        }
        let Home { file, key, .. } = self.homes[block as usize];
        let Some(map) = self.files.get_mut(&file) else { return };
        // A place in a log may be that of a block which was given back since.
        if map.get(&key) != Some(&block) {
            return;
        }
        map.remove(&key);
        if map.is_empty() {
            self.files.remove(&file);
        }
        self.hot.take_if(|hot| hot.2 == block);
        self.unused.push(block);
    }

    /// Whole blocks from `key` on are written, as far as they are alike and no further than to `end`; how far that is.
    fn write_blocks(&mut self, file: FileId, key: u64, end: u64, number: u16) -> u64 {
        let (new, again) = (Mark::new(List::Inactive, number), Mark::new(List::Active, number));
        let before = self.around(file, key);
        if let Some((block, _)) = before {
            self.settle_in(block);
        }
        if let Some((block, true)) = before {
            let home = self.homes[block as usize];
            let end = end.min(home.key + home.len);
            match self.blocks[block as usize].mark() {
                Some(mark) => {
                    let row = self.part(block, key, end);
                    self.mark_anew(row, 0..PAGES as usize, mark, again);
                }
                None => self.write(block, 0, BLOCK, number),
            }
            return end;
        }
        let next = self.files.get(&file).and_then(|map| map.range(key..).next());
        let end = next.map_or(end, |(next, _)| end.min(*next));
        let bytes = (end - key) * BLOCK;
        match before {
            Some((row, _))
                if self.blocks[row as usize].mark() == Some(new)
                    && self.homes[row as usize].key + self.homes[row as usize].len == key =>
            {
                self.homes[row as usize].len += end - key;
                self.hot.take_if(|hot| hot.2 == row);
                self.add(new, bytes);
            }
            _ => {
                self.add(new, bytes);
                self.occupy(Home { file, key, len: end - key }, new);
            }
        }
        end
    }

    /// A write reaches from `start` to `end` of a block.
    fn write(&mut self, block: u32, start: u64, end: u64, number: u16) {
        let (first, last) = (start.div_ceil(PAGE), end / PAGE);
        if first > last {
            return self.write_part(block, last as u8, (start % PAGE) as u16, (end % PAGE) as u16, number);
        }
        if !start.is_multiple_of(PAGE) {
            self.write_part(block, first as u8 - 1, (start % PAGE) as u16, PAGE as u16, number);
        }
        let mut page = first as usize;
        while page < last as usize {
            let marks = &self.blocks[block as usize].0[page..last as usize];
            let old = marks[0];
            if old == Mark::MIXED {
                self.write_part(block, page as u8, 0, PAGE as u16, number);
                page += 1;
                continue;
            }
            let alike = marks.iter().take_while(|mark| **mark == old).count();
            let list = if old == Mark::CLEAN { List::Inactive } else { List::Active };
            self.mark_anew(block, page..page + alike, old, Mark::new(list, number));
            page += alike;
        }
        if !end.is_multiple_of(PAGE) {
            self.write_part(block, last as u8, 0, (end % PAGE) as u16, number);
        }
    }

    /// Pages that have one mark, or are clean, have another one from now on, or are clean.
    fn mark_anew(&mut self, block: u32, pages: Range<usize>, old: Mark, new: Mark) {
        if old == new {
            return;
        }
        let bytes = pages.len() as u64 * PAGE * self.homes[block as usize].len;
        if new != Mark::CLEAN {
            self.add(new, bytes);
            self.note(new, block, pages.start as u8, pages.end as u8);
        }
        self.blocks[block as usize].0[pages].fill(new);
        if old != Mark::CLEAN {
            self.subtract(old, bytes);
        }
    }

    /// The same for a page of which other parts are dirty already, or will not be.
    fn write_part(&mut self, block: u32, page: u8, start: u16, end: u16, number: u16) {
        let (new, again) = (Mark::new(List::Inactive, number), Mark::new(List::Active, number));
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        for old in before.iter().filter(|old| old.start < start) {
            parts.put(Part { end: old.end.min(start), ..*old });
        }
        let mut at = start;
        for old in before.iter().filter(|old| old.start < end && start < old.end) {
            let (from, to) = (old.start.max(start), old.end.min(end));
            parts.put(Part { start: at, end: from, mark: new });
            parts.put(Part { start: from, end: to, mark: again });
            at = to;
        }
        parts.put(Part { start: at, end, mark: new });
        for old in before.iter().filter(|old| end < old.end) {
            parts.put(Part { start: old.start.max(end), ..*old });
        }
        self.put_parts(block, page, before, parts);
    }

    /// Bytes of a page are clean, whatever their marks.
    fn wipe(&mut self, block: u32, page: u8, start: u16, end: u16) {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == Mark::CLEAN {
            return;
        }
        if u64::from(end - start) == PAGE && old != Mark::MIXED {
            let page = usize::from(page);
            return self.mark_anew(block, page..page + 1, old, Mark::CLEAN);
        }
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        for old in &before {
            parts.put(Part { end: old.end.min(start), ..*old });
            parts.put(Part { start: old.start.max(end), ..*old });
        }
        self.put_parts(block, page, before, parts);
    }

    /// Cleans at most `most` bytes of a page that have this mark; how many there were.
    fn clean(&mut self, block: u32, page: u8, mark: Mark, most: u64) -> u64 {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == mark && most >= PAGE {
            let page = usize::from(page);
            self.mark_anew(block, page..page + 1, old, Mark::CLEAN);
            return PAGE;
        }
        if old != mark && old != Mark::MIXED {
            return 0;
        }
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        let mut left = most;
        for old in &before {
            let cleaned = if old.mark == mark { left.min(u64::from(old.end - old.start)) } else { 0 };
            left -= cleaned;
            parts.put(Part { start: old.start + cleaned as u16, ..*old });
        }
        self.put_parts(block, page, before, parts);
        most - left
    }

    /// What has the mark `from` in a page has the mark `to` from now on.
    fn replace(&mut self, block: u32, page: u8, from: Mark, to: Mark) {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == from {
            let page = usize::from(page);
            self.mark_anew(block, page..page + 1, from, to);
        } else if old == Mark::MIXED {
            let before = self.take_parts(block, page);
            let mut parts = Parts(std::mem::take(&mut self.after));
            for old in &before {
                parts.put(Part { mark: if old.mark == from { to } else { old.mark }, ..*old });
            }
            self.put_parts(block, page, before, parts);
        }
    }

    /// The parts of a page, which is clean from now on, but for the books.
    fn take_parts(&mut self, block: u32, page: u8) -> Vec<Part> {
        let mark = std::mem::take(&mut self.blocks[block as usize].0[usize::from(page)]);
        let mut parts = std::mem::take(&mut self.before);
        parts.clear();
        match mark {
            Mark::MIXED => {
                parts.extend(self.mixed.get_mut(&(block, page)).into_iter().flat_map(|of| of.drain(..)))
            }
            Mark::CLEAN => {}
            _ => parts.push(Part { start: 0, end: PAGE as u16, mark }),
        }
        parts
    }

    /// Puts parts where others were `before`, and does the books.
    fn put_parts(&mut self, block: u32, page: u8, before: Vec<Part>, parts: Parts) {
        let mut parts = parts.0;
        for (i, part) in parts.iter().enumerate() {
            self.add(part.mark, u64::from(part.end - part.start));
            if before.iter().chain(&parts[..i]).all(|old| old.mark != part.mark) {
                self.note(part.mark, block, page, page + 1);
            }
        }
        let mark = match parts[..] {
            [] => Mark::CLEAN,
            [Part { start: 0, end, mark }] if u64::from(end) == PAGE => mark,
            _ => Mark::MIXED,
        };
        if mark == Mark::MIXED {
            self.mixed.entry((block, page)).or_default().extend_from_slice(&parts);
        } else {
            self.mixed.remove(&(block, page));
        }
        self.blocks[block as usize].0[usize::from(page)] = mark;
        for old in &before {
            self.subtract(old.mark, u64::from(old.end - old.start));
        }
        self.before = before;
        parts.clear();
        self.after = parts;
    }

    /// True if any byte of a place has this mark.
    fn counts(&self, place: Place, mark: Mark) -> bool {
        let marks = &self.blocks[place.block as usize].0;
        (place.start..place.end).any(|page| match marks[usize::from(page)] {
            Mark::MIXED => self.parts(place.block, page).iter().any(|part| part.mark == mark),
            found => found == mark,
        })
    }

    /// The parts of a mixed page.
    fn parts(&self, block: u32, page: u8) -> &[Part] {
        self.mixed.get(&(block, page)).map_or(&[], Vec::as_slice)
    }

    /// Takes the places out of the logs that do not count.
    fn weed(&mut self) {
        self.places = 0;
        for older in 0..self.ages.len() {
            for list in [List::Inactive, List::Demoted, List::Active] {
                let mark = Mark::new(list, (self.first + older as u16) % NUMBERS);
                let generation = &mut self.ages[older].lists[list as usize];
                let (mut log, done) = (std::mem::take(&mut generation.log), generation.done);
                log.drain(..done);
                log.retain(|place| self.counts(*place, mark));
                log.shrink_to_fit();
                self.places += log.len();
                self.ages[older].lists[list as usize].log = log;
                self.ages[older].lists[list as usize].done = 0;
            }
        }
        self.weed_at = 2 * self.places + FEW;
    }
}

/// Parts of a page in order; those that touch and have one mark are one.
struct Parts(Vec<Part>);

impl Parts {
    fn put(&mut self, part: Part) {
        match self.0.last_mut() {
            _ if part.start >= part.end => {}
            Some(last) if last.end == part.start && last.mark == part.mark => last.end = part.end,
            _ => self.0.push(part),
        }
    }
}

/// The pages of a block between two bytes, and from where to where in them.
fn pages(start: u64, end: u64) -> impl Iterator<Item = (u8, u16, u16)> {
    (start / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let base = page * PAGE;
        (page as u8, (start.max(base) - base) as u16, (end - base).min(PAGE) as u16)
    })
}

#[cfg(test)]
impl Extents {
    /// Every extent as (file, from, to, active), in file order, where an extent is what has one mark; checks the
    /// structure on the way.
    pub(super) fn dump(&self) -> Vec<(FileId, u64, u64, bool)> {
        let mut settled = self.clone();
        if let Some(front) = settled.front.take() {
            settled.settle(front);
        }
        settled.dump_settled()
    }

    fn dump_settled(&self) -> Vec<(FileId, u64, u64, bool)> {
        let mut found: Vec<(FileId, Part64)> = Vec::new();
        let put = |found: &mut Vec<(FileId, Part64)>, file, part: Part64| match found.last_mut() {
            Some((of, last)) if *of == file && last.1 == part.0 && last.2 == part.2 => last.1 = part.1,
            _ => found.push((file, part)),
        };
        let mut sums = BTreeMap::<(usize, usize), u64>::new();
        let (mut blocks, mut mixed) = (0, 0);
        for (&file, map) in &self.files {
            assert!(!map.is_empty());
            let mut free = 0;
            for (&key, &block) in map {
                blocks += 1;
                let home = self.homes[block as usize];
                assert_eq!((home.file, home.key), (file, key));
                assert!(free <= key && home.len > 0);
                free = key + home.len;
                let marks = self.blocks[block as usize].0;
                assert_ne!(self.blocks[block as usize], Block::CLEAN);
                if home.len > 1 {
                    let mark = self.blocks[block as usize].mark().expect("a row has one mark");
                    *sums.entry((self.older(mark.number()), mark.list())).or_default() += home.len * BLOCK;
                    assert!(self.is_noted(block, 0, mark), "{home:?}");
                    put(&mut found, file, (key * BLOCK, free * BLOCK, mark));
                    continue;
                }
                for (page, mark) in marks.into_iter().enumerate() {
                    let whole = [Part { start: 0, end: PAGE as u16, mark }];
                    let parts = match mark {
                        Mark::MIXED => self.parts(block, page as u8),
                        Mark::CLEAN => &[],
                        _ => &whole[..],
                    };
                    mixed += usize::from(mark == Mark::MIXED);
                    assert!(mark != Mark::MIXED || !parts.is_empty() && parts[0] != whole[0]);
                    let base = key * BLOCK + page as u64 * PAGE;
                    let mut end = 0;
                    for part in parts {
                        assert!(end <= part.start && part.start < part.end);
                        end = part.end;
                        let older = self.older(part.mark.number());
                        *sums.entry((older, part.mark.list())).or_default() +=
                            u64::from(part.end - part.start);
                        assert!(self.is_noted(block, page as u8, part.mark), "{file:?} {base}: {part:?}");
                        let (from, to) = (base + u64::from(part.start), base + u64::from(part.end));
                        put(&mut found, file, (from, to, part.mark));
                    }
                }
            }
        }
        assert_eq!(self.blocks.len() - self.unused.len(), blocks);
        assert_eq!(self.mixed.len(), mixed);
        let mut places = 0;
        for (older, age) in self.ages.iter().enumerate() {
            assert!(older == 0 || self.ages[older - 1].since <= age.since);
            for (list, generation) in age.lists.iter().enumerate() {
                assert_eq!(generation.bytes, sums.get(&(older, list)).copied().unwrap_or(0));
                assert!(generation.bytes == 0 || self.older(self.heads[list]) <= older);
                places += generation.log.len();
            }
        }
        assert_eq!(places, self.places);
        for list in 0..3 {
            let of_list = sums.iter().filter(|((_, of), _)| *of == list);
            assert_eq!(self.bytes[list], of_list.map(|(_, bytes)| bytes).sum::<u64>());
        }
        let active = List::Active as usize;
        found.into_iter().map(|(file, (from, to, mark))| (file, from, to, mark.list() == active)).collect()
    }

    fn is_noted(&self, block: u32, page: u8, mark: Mark) -> bool {
        let generation = &self.ages[self.older(mark.number())].lists[mark.list()];
        let row = self.homes[block as usize].len > 1;
        let log = &generation.log[generation.done..];
        log.iter().any(|place| place.block == block && (row || (place.start..place.end).contains(&page)))
    }
}

/// From, to and mark.
#[cfg(test)]
type Part64 = (u64, u64, Mark);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: FileId = (1, 10);
    const B: FileId = (1, 11);

    fn at(ns: u64) -> Nanos {
        Nanos::new(ns as f64)
    }

    fn cache() -> Extents {
        Extents::new(Nanos::ZERO)
    }

    #[test]
    fn alg_1_insert_splits_into_unchanged_active_and_inactive() {
        let mut cache = cache();
        assert_eq!(cache.insert(A, 0, 100, at(1)), Bytes(100));
        // Half over the old extent, half beyond it: only the half beyond is newly dirty.
        assert_eq!(cache.insert(A, 50, 150, at(2)), Bytes(50));
        assert_eq!(cache.dump(), [(A, 0, 50, false), (A, 50, 100, true), (A, 100, 150, false)]);
        // Into the middle of the first: it stays on both sides.
        assert_eq!(cache.insert(A, 20, 30, at(3)), Bytes(0));
        assert_eq!(cache.dump()[..3], [(A, 0, 20, false), (A, 20, 30, true), (A, 30, 50, false)]);
        assert_eq!(cache.dirty(), Bytes(150));
    }

    #[test]
    fn alg_1_writing_exactly_the_same_again_makes_it_active() {
        let mut cache = cache();
        for start in [0, 100, 200] {
            cache.insert(A, start, start + 100, at(start + 1));
        }
        assert_eq!(cache.insert(A, 100, 200, at(500)), Bytes(0));
        assert_eq!(cache.dump(), [(A, 0, 100, false), (A, 100, 200, true), (A, 200, 300, false)]);
        assert_eq!((cache.dirty(), cache.oldest()), (Bytes(300), Some(at(1))));
    }

    #[test]
    fn files_do_not_overlap_each_other() {
        let mut cache = cache();
        cache.insert(A, 0, 100, at(1));
        assert_eq!(cache.insert(B, 0, 100, at(2)), Bytes(100));
        assert_eq!(cache.remove_all(Some(1)), Bytes(200));
        assert!(cache.dump().is_empty());
    }

    #[test]
    fn alg_1_the_oldest_inactive_is_cleaned_first_in_part_if_need_be() {
        let mut cache = cache();
        cache.insert(B, 0, 100, at(1));
        cache.insert(A, 0, 100, at(2));
        assert_eq!(cache.clean_oldest(Bytes(30)), Bytes(30));
        assert_eq!(cache.dump(), [(A, 0, 100, false), (B, 30, 100, false)]);
        assert_eq!(cache.clean_oldest(Bytes(1000)), Bytes(70));
        assert_eq!(cache.oldest(), Some(at(2)));
    }

    #[test]
    fn a_cleaned_part_can_be_dirtied_again() {
        let mut cache = cache();
        cache.insert(A, 0, 100, at(1));
        cache.clean_oldest(Bytes(30));
        assert_eq!(cache.insert(A, 0, 40, at(2)), Bytes(30));
        assert_eq!(cache.dump(), [(A, 0, 30, false), (A, 30, 40, true), (A, 40, 100, false)]);
    }

    #[test]
    fn alg_1_balance_demotes_the_oldest_active_down_to_half() {
        let mut cache = cache();
        for start in [0, 100, 200] {
            cache.insert(A, start, start + 100, at(1));
        }
        for (start, time) in [(100, 2), (0, 3), (200, 4)] {
            cache.insert(A, start, start + 100, at(time));
        }
        cache.balance();
        let active: Vec<_> = cache.dump().into_iter().map(|(_, from, _, active)| (from, active)).collect();
        assert_eq!(active, [(0, false), (100, false), (200, true)]);
        // The demoted ones are cleaned in the order of their age.
        assert_eq!(cache.clean_oldest(Bytes(100)), Bytes(100));
        assert_eq!(cache.dump()[0].1, 0);
    }

    #[test]
    fn writes_that_follow_each_other_share_an_extent_within_the_grain() {
        let mut cache = Extents::new(at(10));
        for (i, time) in [1, 5, 11, 12].into_iter().enumerate() {
            cache.insert(A, i as u64 * 10, i as u64 * 10 + 10, at(time));
        }
        assert_eq!(cache.dump(), [(A, 0, 30, false), (A, 30, 40, false)]);
        assert_eq!(cache.end_of(A), 40);
    }

    #[test]
    fn alg_1_the_order_is_that_of_time_among_files_and_blocks() {
        let mut cache = cache();
        let places = [(A, 7 * PAGE), (B, 0), (A, 3 * BLOCK), (B, 100 * BLOCK), (A, 0)];
        for (time, (file, start)) in places.into_iter().enumerate() {
            cache.insert(file, start, start + PAGE, at(time as u64));
        }
        // The second again: it is the last then, and active.
        cache.insert(B, 0, PAGE, at(9));
        for (file, start) in [places[0], places[2], places[3], places[4], places[1]] {
            assert!(cache.dump().iter().any(|extent| (extent.0, extent.1) == (file, start)));
            // It stops where the active ones come to be the majority.
            let mut left = Bytes(PAGE);
            while !left.is_zero() {
                cache.balance();
                left = left.saturating_sub(cache.clean_oldest(left));
            }
            assert!(cache.dump().iter().all(|extent| (extent.0, extent.1) != (file, start)));
        }
        assert_eq!((cache.dirty(), cache.oldest()), (Bytes(0), None));
    }

    #[test]
    fn the_books_of_what_is_rewritten_on_and_on_do_not_grow() {
        let mut cache = cache();
        cache.insert(B, 0, 1, at(0));
        for time in 1..2_000 {
            for page in 0..40 {
                // No two that follow one another are neighbours.
                let start = page * 7 % 40 * PAGE;
                cache.insert(A, start, start + PAGE, at(time));
            }
        }
        assert_eq!(cache.dirty(), Bytes(40 * PAGE + 1));
        assert!(cache.places <= 2 * 41 + FEW, "{}", cache.places);
        assert!(cache.ages.len() <= MOST_AGES);
        cache.dump();
    }

    #[test]
    fn when_too_many_ages_are_alive_the_youngest_is_shared() {
        let mut cache = cache();
        for time in 0..MOST_AGES as u64 + 100 {
            cache.insert(A, time * PAGE, (time + 1) * PAGE, at(time));
        }
        assert_eq!((cache.ages.len(), cache.dump().len()), (MOST_AGES, MOST_AGES));
        for time in 0..200 {
            assert_eq!(cache.oldest(), Some(at(time)));
            cache.clean_oldest(Bytes(PAGE));
        }
        cache.insert(A, 0, PAGE, at(10_000));
        assert_eq!(cache.ages.back().map(|age| age.since), Some(at(10_000)));
        cache.dump();
    }

    #[test]
    fn what_is_written_in_a_row_is_kept_as_one() {
        let mut cache = Extents::new(at(10));
        let all = 1000 * BLOCK;
        for start in (0..all).step_by(PAGE as usize) {
            cache.insert(A, start, start + PAGE, at(5));
        }
        assert_eq!((cache.files[&A].len(), cache.dump()), (1, vec![(A, 0, all, false)]));
        // However long, in pages or at once, and again.
        cache.insert(A, all, 1 << 50, at(6));
        cache.insert(A, 3 * BLOCK, 1 << 49, at(7));
        assert_eq!(cache.files[&A].len(), 3);
        assert_eq!(cache.remove(A, 5 * BLOCK + 1, 1 << 50), Bytes((1 << 50) - 5 * BLOCK - 1));
        assert_eq!(cache.dump(), [(A, 0, 3 * BLOCK, false), (A, 3 * BLOCK, 5 * BLOCK + 1, true)]);
        assert_eq!(cache.end_of(A), 5 * BLOCK + 1);
        assert_eq!(cache.clean_oldest(Bytes(BLOCK + 7)), Bytes(BLOCK));
        assert_eq!(cache.dump()[0], (A, BLOCK, 3 * BLOCK, false));
    }

    /// A cache of ranges that are active or not, slow and obvious.
    #[derive(Default)]
    struct Plain {
        dirty: Vec<(FileId, u64, u64, bool)>,
    }

    impl Plain {
        /// Takes a range out; returns what was dirty there.
        fn take(&mut self, file: FileId, start: u64, end: u64) -> Vec<(FileId, u64, u64, bool)> {
            let (mut kept, mut taken) = (Vec::new(), Vec::new());
            for (of, from, to, active) in self.dirty.drain(..) {
                if of != file || to <= start || end <= from {
                    kept.push((of, from, to, active));
                    continue;
                }
                taken.push((of, from.max(start), to.min(end), active));
                kept.extend((from < start).then_some((of, from, start, active)));
                kept.extend((end < to).then_some((of, end, to, active)));
            }
            self.dirty = kept;
            taken
        }

        fn insert(&mut self, file: FileId, start: u64, end: u64) {
            let mut again = self.take(file, start, end);
            again.sort_unstable();
            let mut at = start;
            for (_, from, to, _) in again {
                self.dirty.extend([(file, at, from, false), (file, from, to, true)]);
                at = to;
            }
            self.dirty.push((file, at, end, false));
        }

        /// In order, without empty ranges, those that touch as one.
        fn ranges(&self) -> Vec<(FileId, u64, u64, bool)> {
            joined(self.dirty.iter().copied().filter(|(_, from, to, _)| from < to).collect())
        }
    }

    fn joined(mut ranges: Vec<(FileId, u64, u64, bool)>) -> Vec<(FileId, u64, u64, bool)> {
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let goes_on = (last.0, last.2, last.3) == (next.0, next.1, next.3);
            if goes_on {
                last.2 = next.2;
            }
            goes_on
        });
        ranges
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u64, u64, u64),
        Remove(u64, u64, u64),
        Clean(u64),
        Balance,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Coarse places, so that ranges often coincide.
        let range = || (0u64..3, (0u64..24).prop_map(|s| s * 5), (0u64..12).prop_map(|n| n * 5));
        prop_oneof![
            6 => range().prop_map(|(f, s, n)| Operation::Insert(f, s, s + n)),
            2 => range().prop_map(|(f, s, n)| Operation::Remove(f, s, s + n)),
            3 => (0u64..80).prop_map(Operation::Clean),
            1 => Just(Operation::Balance),
        ]
    }

    proptest! {
        #[test]
        fn extents_agree_with_plain_ranges(
            operations in prop::collection::vec(operation(), 1..120),
            grain in 0u64..5,
            // From parts of a page to several blocks; with 4096 / 5 places are pages.
            unit in prop::sample::select(vec![1, 700, PAGE, PAGE / 2 * 5]),
            page_at in 0u64..2,
        ) {
            let mut cache = Extents::new(at(grain));
            let mut plain = Plain::default();
            let place = |at: u64| at * unit + page_at * (BLOCK - 10 * PAGE);
            for (time, operation) in operations.into_iter().enumerate() {
                let (before, oldest) = (cache.dirty(), cache.oldest());
                match operation {
                    Operation::Insert(file, start, end) => {
                        let new = cache.insert((0, file), place(start), place(end), at(time as u64));
                        plain.insert((0, file), place(start), place(end));
                        prop_assert_eq!(before + new, cache.dirty());
                    }
                    Operation::Remove(file, start, end) => {
                        let gone = cache.remove((0, file), place(start), place(end));
                        plain.take((0, file), place(start), place(end));
                        prop_assert_eq!(before, cache.dirty() + gone);
                    }
                    Operation::Clean(most) => {
                        let cleaned = cache.clean_oldest(Bytes(most * unit));
                        prop_assert_eq!(before, cache.dirty() + cleaned);
                        prop_assert!(cleaned <= Bytes(most * unit));
                        let inactive = before.0 > 0 && plain.dirty.iter().any(|(.., active)| !active);
                        prop_assert!(cleaned > Bytes(0) || most == 0 || !inactive);
                        prop_assert!(cache.oldest().is_none_or(|now| Some(now) >= oldest));
                        // Which bytes went is the lists' business: take it over.
                        plain.dirty = cache.dump();
                    }
                    Operation::Balance => {
                        cache.balance();
                        plain.dirty = cache.dump();
                    }
                }
                prop_assert_eq!(joined(cache.dump()), plain.ranges());
                if page_at == 1 {
                    cache.weed();
                }
            }
        }
    }
}
