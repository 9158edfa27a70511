//! Blocks of marks, and rows of blocks that are kept as one.
//!
//! The law: a block or row is in its file's map exactly if it has a dirty byte, and so is a file among the files; none overlaps another, and a row of more
//! than one block has one mark in all its pages.

use super::ages::{List, Mark};
use cawl_wire::FileId;

use super::{BLOCK, Extents, PAGES};
use crate::model::sparse::Sparse;

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

/// A file with dirty bytes.
#[derive(Clone, Debug)]
pub(super) struct OfFile {
    pub(super) id: FileId,
    /// Its blocks and rows by the place in the file, counted in blocks; none of them is clean.
    pub(super) blocks: Sparse<u32>,
}

/// Where a block is, or the first one of a row that is kept as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// Which of the files.
    pub(super) file: u32,
    /// The place in the file, counted in blocks.
    pub(super) key: u64,
}

impl Extents {
    /// Which of the files this one is; it is about to have dirty bytes.
    pub(super) fn file(&mut self, id: FileId) -> u32 {
        if let Some(&file) = self.names.get(&id) {
            return file;
        }
        let of = OfFile { id, blocks: Sparse::default() };
        let file = match self.unused_files.pop() {
            Some(file) => {
                self.files[file as usize] = of;
                file
            }
            None => {
                self.files.push(of);
                (self.files.len() - 1) as u32
            }
        };
        self.names.insert(id, file);
        file
    }

    /// The block or row that this place is in, and the one before it if there is none.
    pub(super) fn around(&self, file: u32, key: u64) -> Option<(u32, bool)> {
        let (at, &block) = self.files[file as usize].blocks.at_or_before(key)?;
        Some((block, at == key || key - at < self.length(block)))
    }

    /// How many blocks are kept as this one.
    // Asked for with every page: few blocks are rows, and to look at a block's home is to wait for memory.
    pub(super) fn length(&self, block: u32) -> u64 {
        self.rows.get(&block).copied().unwrap_or(1)
    }

    fn set_length(&mut self, block: u32, len: u64) {
        if len > 1 {
            self.rows.insert(block, len);
        } else {
            self.rows.remove(&block);
        }
    }

    /// Where a block or row ends in its file, counted in blocks.
    fn end(&self, block: u32) -> u64 {
        self.homes[block as usize].key + self.length(block)
    }

    /// A new row of so many blocks, or a block, with this mark in all pages; the bytes are counted elsewhere.
    pub(super) fn occupy(&mut self, home: Home, len: u64, mark: Mark) -> u32 {
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
        self.set_length(block, len);
        *self.files[home.file as usize].blocks.entry(home.key) = block;
        if mark != Mark::CLEAN {
            self.ages.note(mark, block, 0, PAGES as u8);
        }
        block
    }

    /// Splits a row so that what is from `start` to `end` is one of its own, and returns that.
    pub(super) fn part(&mut self, row: u32, start: u64, end: u64) -> u32 {
        let (Home { file, key }, len) = (self.homes[row as usize], self.length(row));
        let mark = self.blocks[row as usize].0[0];
        let mut wanted = row;
        if key < start {
            self.set_length(row, start - key);
            wanted = self.occupy(Home { file, key: start }, end - start, mark);
        } else {
            self.set_length(row, end - start);
        }
        if end < key + len {
            self.occupy(Home { file, key: end }, key + len - end, mark);
        }
        wanted
    }

    /// The block at this place, a clean one if there is none.
    pub(super) fn block(&mut self, file: u32, key: u64) -> u32 {
        if let Some((of, at, block)) = self.hot
            && (of, at) == (file, key)
        {
            return block;
        }
        let block = match self.around(file, key) {
            Some((row, true)) if self.length(row) > 1 => self.part(row, key, key + 1),
            Some((block, true)) => block,
            _ => self.occupy(Home { file, key }, 1, Mark::CLEAN),
        };
        self.hot = Some((file, key, block));
        block
    }

    /// Puts a block into the row before it, if they are alike.
    pub(super) fn join(&mut self, block: u32) {
        let Home { file, key } = self.homes[block as usize];
        let Some(mark) = self.blocks[block as usize].mark() else { return };
        let Some((before, _)) = key.checked_sub(1).and_then(|key| self.around(file, key)) else { return };
        self.settle_in(before);
        if self.end(before) == key && self.blocks[before as usize].mark() == Some(mark) {
            self.set_length(before, self.length(before) + 1);
            self.blocks[block as usize] = Block::CLEAN;
            self.release_clean(block);
        }
    }

    /// Gives a block or row back if it is clean.
    pub(super) fn release_clean(&mut self, block: u32) {
        if self.blocks[block as usize] != Block::CLEAN {
            return;
        }
        let Home { file, key } = self.homes[block as usize];
        let of = &mut self.files[file as usize];
        // A place in a log may be that of a block which was given back since.
        if of.blocks.get(key) != Some(&block) {
            return;
        }
        of.blocks.remove(key);
        if of.blocks.is_empty() {
            self.names.remove(&of.id);
            self.unused_files.push(file);
        }
        self.hot.take_if(|hot| hot.2 == block);
        self.rows.remove(&block);
        self.unused.push(block);
    }

    /// Whole blocks from `key` on are written, as far as they are alike and no further than to `end`; how far that is.
    pub(super) fn write_blocks(&mut self, file: u32, key: u64, end: u64, number: u16) -> u64 {
        let (new, again) = (Mark::new(List::Inactive, number), Mark::new(List::Active, number));
        let before = self.around(file, key);
        if let Some((block, _)) = before {
            self.settle_in(block);
        }
        if let Some((block, true)) = before {
            let end = end.min(self.end(block));
            match self.blocks[block as usize].mark() {
                Some(mark) => {
                    let row = self.part(block, key, end);
                    self.mark_anew(row, 0..PAGES as usize, mark, again);
                }
                None => self.write(block, 0, BLOCK, number),
            }
            return end;
        }
        let next = self.files[file as usize].blocks.first_in(key..end);
        let end = next.unwrap_or(end);
        let bytes = (end - key) * BLOCK;
        match before {
            Some((row, _)) if self.blocks[row as usize].mark() == Some(new) && self.end(row) == key => {
                self.set_length(row, self.length(row) + end - key);
                self.hot.take_if(|hot| hot.2 == row);
                self.ages.add(new, bytes);
            }
            _ => {
                self.ages.add(new, bytes);
                self.occupy(Home { file, key }, end - key, new);
            }
        }
        end
    }
}
