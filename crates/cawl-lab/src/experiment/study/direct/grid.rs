//! What the study writes: sizes, modes and accesses.

use fastrand::Rng;
use serde::Serialize;

/// How the file is open, and what follows each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Through the page cache.
    Buffered,
    /// O_DIRECT, which is not durable.
    Direct,
    /// O_DIRECT and O_SYNC.
    DirectSync,
    /// Through the page cache, and fsync after each write.
    Fsync,
    /// Through the page cache, and fdatasync after each write.
    Fdatasync,
}

impl Mode {
    /// All, in the order of the tables.
    pub const ALL: [Mode; 5] = [Mode::Buffered, Mode::Direct, Mode::DirectSync, Mode::Fsync, Mode::Fdatasync];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Buffered => "buffered",
            Mode::Direct => "direct",
            Mode::DirectSync => "direct, O_SYNC",
            Mode::Fsync => "buffered, fsync",
            Mode::Fdatasync => "buffered, fdatasync",
        }
    }

    /// Past the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Mode::Direct | Mode::DirectSync)
    }
}

/// Where the writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// One behind the other into a new file.
    Append,
    /// Random places of a file that is on the disk and cached.
    Warm,
    /// Random places of a file that is on the disk and not cached.
    Cold,
}

impl Access {
    /// All, in the order of the tables.
    pub const ALL: [Access; 3] = [Access::Append, Access::Warm, Access::Cold];

    pub fn name(self) -> &'static str {
        match self {
            Access::Append => "appending",
            Access::Warm => "random, cached file",
            Access::Cold => "random, uncached file",
        }
    }
}

/// Calls of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Bytes of each write.
    pub size: u64,
    pub mode: Mode,
    pub access: Access,
}

/// All cells, and how much of each.
#[derive(Clone, Debug)]
pub struct Grid {
    pub sizes: Vec<u64>,
    /// Most calls of a cell in a repetition, and most bytes of them.
    most: (u64, u64),
    /// Length of a file that is written over.
    pub length: u64,
    /// Time of a cell's calls in all repetitions, in seconds.
    pub seconds: f64,
}

/// A call of these bytes is made of whole pages.
const PAGE: u64 = 4096;

/// Fewest calls of a cell in a repetition, whatever they take.
pub const FEWEST: usize = 8;

impl Grid {
    /// The document's sizes, or three of them.
    pub fn new(quick: bool) -> Grid {
        let kib = |kib: u64| kib << 10;
        match quick {
            true => Grid {
                sizes: vec![512, kib(4), kib(64)],
                most: (400, 8 << 20),
                length: 8 << 20,
                seconds: 0.25,
            },
            false => Grid {
                sizes: (9..=16).map(|power| 1 << power).collect(),
                most: (2000, 32 << 20),
                length: 32 << 20,
                seconds: 1.2,
            },
        }
    }

    /// The cells by access, size and mode.
    pub fn cells(&self) -> impl Iterator<Item = Cell> {
        let of = |access| move |size: &u64| Mode::ALL.map(|mode| Cell { size: *size, mode, access });
        Access::ALL.into_iter().flat_map(move |access| self.sizes.iter().flat_map(of(access)))
    }

    /// Where the calls of a cell write, as far as its time is enough; the same places for each mode.
    pub fn offsets(&self, cell: Cell) -> Vec<u64> {
        let calls = self.most.0.min(self.most.1 / cell.size);
        let mut lot = Rng::with_seed(cell.size);
        let place = |at| match cell.access {
            Access::Append => at * cell.size,
            Access::Warm | Access::Cold => lot.u64(..self.length / cell.size) * cell.size,
        };
        (0..calls).map(place).collect()
    }

    /// Which of these calls meet their first page in the cache: of a cached file all do until a direct write
    /// has dropped it, of others those whose page an earlier one has brought in.
    pub fn met(&self, cell: Cell, offsets: &[u64]) -> Vec<bool> {
        let mut cached = vec![cell.access == Access::Warm; (self.length / PAGE) as usize];
        if cell.access == Access::Append {
            cached.resize(
                offsets.iter().map(|at| (at + cell.size).div_ceil(PAGE) as usize).max().unwrap_or(0),
                false,
            );
        }
        let meets = |at: &u64| {
            let first = (at / PAGE) as usize;
            let met = cached[first];
            cached[first..(at + cell.size).div_ceil(PAGE) as usize].fill(!cell.mode.is_direct());
            met
        };
        offsets.iter().map(meets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(grid: &Grid, cell: Cell) -> f64 {
        let met = grid.met(cell, &grid.offsets(cell));
        met.iter().filter(|met| **met).count() as f64 / met.len() as f64
    }

    #[test]
    fn a_grid_of_all_kinds_of_calls() {
        let (whole, quick) = (Grid::new(false), Grid::new(true));
        assert_eq!((whole.cells().count(), quick.cells().count()), (8 * 5 * 3, 3 * 5 * 3));
        assert_eq!((whole.sizes[0], whole.sizes[7]), (512, 64 << 10));
        assert!(quick.sizes.iter().all(|size| whole.sizes.contains(size)));
        for grid in [&whole, &quick] {
            for cell in grid.cells() {
                let offsets = grid.offsets(cell);
                assert!(offsets.len() >= 100, "{cell:?} has {} calls", offsets.len());
                assert!(offsets.iter().all(|at| at % cell.size == 0), "{cell:?}");
                let end = offsets.iter().map(|at| at + cell.size).max().unwrap();
                assert!(end <= grid.length.max(offsets.len() as u64 * cell.size), "{cell:?}");
                assert_eq!(
                    offsets,
                    grid.offsets(Cell { mode: Mode::Buffered, ..cell }),
                    "others for another mode"
                );
            }
        }
    }

    #[test]
    fn what_meets_a_cached_page_is_known_by_construction() {
        let grid = Grid::new(false);
        let cell = |size, mode, access| Cell { size, mode, access };
        assert_eq!(share(&grid, cell(4096, Mode::Fsync, Access::Warm)), 1.0);
        assert!(
            share(&grid, cell(4096, Mode::Direct, Access::Warm)) < 1.0,
            "a direct write drops what it writes"
        );
        assert_eq!(share(&grid, cell(4096, Mode::Direct, Access::Cold)), 0.0);
        let again = share(&grid, cell(4096, Mode::Buffered, Access::Cold));
        assert!((0.05..0.2).contains(&again), "{again} of 2000 writes hit one of 8192 pages a second time");
        // Seven of eight parts of a page follow one that was written.
        assert_eq!(share(&grid, cell(512, Mode::Buffered, Access::Append)), 0.875);
        assert_eq!(share(&grid, cell(4096, Mode::Buffered, Access::Append)), 0.0);
    }
}
