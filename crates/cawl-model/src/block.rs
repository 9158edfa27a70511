//! The pages of a block of 2 MiB, a bit each.

/// Pages in a block.
pub const BLOCK: u64 = 512;
/// A block with all its pages.
pub const FULL: Block = Block([u64::MAX; 8]);

/// One bit for each page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block([u64; 8]);

impl Block {
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 8]
    }

    /// Adds the pages from `start` up to `end`; how many are new.
    pub fn add(&mut self, (start, end): (u64, u64)) -> u64 {
        let mut new = 0;
        for (index, mask) in words(start, end) {
            let word = &mut self.0[index];
            new += u64::from((mask & !*word).count_ones());
            *word |= mask;
        }
        new
    }

    /// Takes the pages from `start` up to `end` out; how many there were.
    pub fn take(&mut self, (start, end): (u64, u64)) -> u64 {
        let mut gone = 0;
        for (index, mask) in words(start, end) {
            let word = &mut self.0[index];
            gone += u64::from((mask & *word).count_ones());
            *word &= !mask;
        }
        gone
    }

    pub fn has(&self, page: u64) -> bool {
        self.0[(page / 64 % 8) as usize] >> (page % 64) & 1 == 1
    }

    /// How many of the pages from `start` up to `end` are here.
    pub fn count(&self, (start, end): (u64, u64)) -> u64 {
        words(start, end).map(|(index, mask)| u64::from((mask & self.0[index]).count_ones())).sum()
    }

    /// First run of pages at or after `from`: where it begins and ends.
    pub fn run(&self, from: u64) -> Option<(u64, u64)> {
        let start = self.find(from, 0)?;
        Some((start, self.find(start, u64::MAX).unwrap_or(BLOCK)))
    }

    /// First page at or after `from` whose bit differs from those of `flip`.
    fn find(&self, from: u64, flip: u64) -> Option<u64> {
        let mut index = (from / 64) as usize;
        let mut word = (self.0.get(index)? ^ flip) & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            word = self.0.get(index)? ^ flip;
        }
        Some(index as u64 * 64 + u64::from(word.trailing_zeros()))
    }

    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// The pages of a range within a block.
    pub fn of(piece: (u64, u64)) -> Block {
        let mut block = Block::default();
        block.add(piece);
        block
    }

    /// The pages of both.
    pub fn and(self, other: Block) -> Block {
        Block(std::array::from_fn(|index| self.0[index] & other.0[index]))
    }

    /// Its pages that the other one does not have.
    pub fn without(self, other: Block) -> Block {
        Block(std::array::from_fn(|index| self.0[index] & !other.0[index]))
    }

    /// The pages of either.
    pub fn or(self, other: Block) -> Block {
        Block(std::array::from_fn(|index| self.0[index] | other.0[index]))
    }

    /// Its lowest pages, no more than `most`.
    pub fn lowest(mut self, most: u64) -> Block {
        let mut left = most;
        for word in &mut self.0 {
            while u64::from(word.count_ones()) > left {
                // All but the highest bit.
                *word ^= 1 << word.ilog2();
            }
            left -= u64::from(word.count_ones());
        }
        self
    }

    /// Runs of its pages.
    pub fn runs(self) -> impl Iterator<Item = (u64, u64)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let run = self.run(from)?;
            from = run.1;
            Some(run)
        })
    }
}

/// The words of a block that hold the pages from `start` up to `end`, and which of their bits do.
fn words(start: u64, end: u64) -> impl Iterator<Item = (usize, u64)> {
    (start / 64..end.div_ceil(64)).map(move |index| {
        let base = index * 64;
        let (from, to) = (start.max(base) - base, (end - base).min(64));
        (index as usize, (u64::MAX >> (64 - (to - from))) << from)
    })
}

/// The part of a range that lies in each block: its key, and where it begins and ends within.
pub fn pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let keys = if start < end { start / BLOCK..(end - 1) / BLOCK + 1 } else { 0..0 };
    keys.map(move |key| {
        let base = key * BLOCK;
        (key, start.max(base) - base, (end - base).min(BLOCK))
    })
}

/// The pages of a range that lie in the block of this key: where they begin and end within.
pub fn within(key: u64, start: u64, end: u64) -> (u64, u64) {
    let base = key * BLOCK;
    (start.saturating_sub(base), (end - base).min(BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_a_block() {
        let (low, high) = (Block::of((3, 130)), Block::of((128, 512)));
        assert_eq!((low.pages(), high.pages(), low.and(high).pages()), (127, 384, 2));
        assert_eq!(low.without(high), Block::of((3, 128)));
        assert_eq!(low.or(high), Block::of((3, 512)));
        assert_eq!(FULL.without(FULL), Block::default());
        let two = Block::of((60, 70)).or(Block::of((300, 400)));
        assert_eq!(two.runs().collect::<Vec<_>>(), [(60, 70), (300, 400)]);
        assert_eq!(two.lowest(11), Block::of((60, 70)).or(Block::of((300, 301))));
        assert_eq!((two.lowest(0), two.lowest(1000)), (Block::default(), two));
    }
}
