//! What the study reads: sizes, and what is known of the file.

use fastrand::Rng;
use serde::Serialize;

/// What is read, and how it came to be where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// From begin to end, after it was written through the page cache.
    Buffered,
    /// From begin to end, after it was written with fsync after each write.
    Fsync,
    /// From begin to end, after it was written past the page cache.
    Direct,
    /// Random places of an uncached file, through the page cache.
    Random,
    /// Random places of an uncached file, past the page cache.
    RandomDirect,
}

impl Access {
    /// All, in the order of the tables. Those that need much memory follow one another, since a virtual
    /// machine's host may take back what is free for some seconds.
    pub const ALL: [Access; 5] =
        [Access::Buffered, Access::Direct, Access::Fsync, Access::Random, Access::RandomDirect];

    pub fn name(self) -> &'static str {
        match self {
            Access::Buffered => "in sequence, written through the page cache",
            Access::Fsync => "in sequence, written with fsync after each write",
            Access::Direct => "in sequence, written past the page cache",
            Access::Random => "random, through the page cache",
            Access::RandomDirect => "random, past the page cache",
        }
    }

    pub fn is_random(self) -> bool {
        matches!(self, Access::Random | Access::RandomDirect)
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Bytes of each read.
    pub size: u64,
    pub access: Access,
}

/// All cells, and how much of each.
#[derive(Clone, Debug)]
pub struct Grid {
    pub sizes: Vec<u64>,
    /// Length of a file that is read in sequence, and of that read at random.
    pub length: u64,
    pub random: u64,
    /// Most random reads of a cell in a repetition.
    most: u64,
    /// Time of a cell's random reads, or of its writes with fsync, in a repetition, in seconds.
    pub seconds: f64,
}

/// Fewest random reads of a cell in a repetition, whatever they take.
pub const FEWEST: usize = 8;

impl Grid {
    /// The document's sizes, or three of them.
    pub fn new(quick: bool) -> Grid {
        match quick {
            true => Grid {
                sizes: vec![512, 4 << 10, 64 << 10],
                length: 16 << 20,
                random: 32 << 20,
                most: 200,
                seconds: 0.1,
            },
            false => Grid {
                sizes: (9..=16).map(|power| 1 << power).collect(),
                length: 128 << 20,
                random: 256 << 20,
                most: 1000,
                seconds: 0.5,
            },
        }
    }

    /// The cells by access and size.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        let of = |access| self.sizes.iter().map(move |size| Cell { size: *size, access });
        Access::ALL.into_iter().flat_map(of)
    }

    /// Where the calls of a cell read: in sequence, or at random places of which none is met twice, nor the
    /// page of another one where there is room.
    pub fn offsets(&self, cell: Cell) -> Vec<u64> {
        if !cell.access.is_random() {
            return (0..self.length / cell.size).map(|at| at * cell.size).collect();
        }
        let piece = cell.size.max(PAGE);
        let mut pieces: Vec<u64> = (0..self.random / piece).collect();
        let mut lot = Rng::with_seed(cell.size);
        lot.shuffle(&mut pieces);
        let within = piece / cell.size;
        let taken = pieces.into_iter().take(self.most as usize);
        taken.map(|at| at * piece + lot.u64(..within) * cell.size).collect()
    }
}

const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_of_all_kinds_of_reads() {
        for (grid, cells) in [(Grid::new(false), 8 * 5), (Grid::new(true), 3 * 5)] {
            assert_eq!(grid.cells().count(), cells);
            for cell in grid.cells() {
                let offsets = grid.offsets(cell);
                assert!(offsets.len() >= 100 && offsets.iter().all(|at| at % cell.size == 0), "{cell:?}");
                let length = if cell.access.is_random() { grid.random } else { grid.length };
                assert!(offsets.iter().all(|at| at + cell.size <= length), "{cell:?}");
                let mut pages: Vec<u64> = offsets.iter().map(|at| at / PAGE).collect();
                pages.sort_unstable();
                pages.dedup();
                assert!(!cell.access.is_random() || pages.len() == offsets.len(), "{cell:?}: a page twice");
            }
        }
    }
}
