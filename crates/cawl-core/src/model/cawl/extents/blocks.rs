//! Blocks of marks, and rows of blocks that are kept as one.
//!
//! The law: a block or row is in its file's map exactly if it has a dirty byte, none overlaps another, and a row of more
//! than one block has one mark in all its pages.

use super::ages::{List, Mark};
use super::{BLOCK, Extents, FileId, PAGES};

/// Marks of a block's pages; fills one cache line, and lies in one.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(pub(super) [Mark; PAGES as usize]);

impl Block {
    pub(super) const CLEAN: Block = Block([Mark::CLEAN; PAGES as usize]);

    /// The mark of all its pages, if they have one, and no parts.
    pub(super) fn mark(&self) -> Option<Mark> {
        let first = self.0[0];
        (first != Mark::MIXED && *self == Block([first; PAGES as usize])).then_some(first)
    }
}

/// Where a block is, or a row of them that is kept as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) file: FileId,
    /// The place in the file, counted in blocks.
    pub(super) key: u64,
    /// Blocks in the row.
    pub(super) len: u64,
}

impl Extents {
    /// The block or row that this place is in, and the one before it if there is none.
    pub(super) fn around(&self, file: FileId, key: u64) -> Option<(u32, bool)> {
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
    pub(super) fn occupy(&mut self, home: Home, mark: Mark) -> u32 {
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
            self.ages.note(mark, block, 0, PAGES as u8);
        }
        block
    }

    /// Splits a row so that what is from `start` to `end` is one of its own, and returns that.
    pub(super) fn part(&mut self, row: u32, start: u64, end: u64) -> u32 {
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
    pub(super) fn block(&mut self, file: FileId, key: u64) -> u32 {
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
    pub(super) fn join(&mut self, block: u32) {
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
    pub(super) fn release_clean(&mut self, block: u32) {
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
    pub(super) fn write_blocks(&mut self, file: FileId, key: u64, end: u64, number: u16) -> u64 {
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
                self.ages.add(new, bytes);
            }
            _ => {
                self.ages.add(new, bytes);
                self.occupy(Home { file, key, len: end - key }, new);
            }
        }
        end
    }
}
