//! The grid of the O_SYNC study: sizes of block and file, the ways to make data durable, and the order of
//! runs.

use std::collections::BTreeMap;

use cawl_core::{Bytes, Nanos};
use cawl_wire::flag;
use nix::fcntl::OFlag;
use serde::Serialize;

/// Runs are made in random order, the same each time: what else the machine does then has no cell of its own.
pub const SEED: u64 = 4;
/// Repetitions, as in the document.
const REPEATS: usize = 5;
/// Before a cell is left out, repetitions are.
const LEAST_REPEATS: usize = 2;
/// Cells that are always kept: three counts of blocks tell a slope.
const LEAST_CELLS: usize = 3;
/// A run without its writes: pending data are written out, the file is made and removed. In seconds.
const AROUND: f64 = 0.05;

/// How the data of a run get to the device: the arms of the study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// When the kernel thinks fit.
    None,
    /// With each write, with all of the file's metadata (O_SYNC).
    OSync,
    /// With each write, with the metadata that reading needs (O_DSYNC).
    ODsync,
    /// With an fsync before the file is closed.
    Fsync,
}

impl Arm {
    /// All of them.
    pub const ALL: [Arm; 4] = [Arm::None, Arm::OSync, Arm::ODsync, Arm::Fsync];

    /// The name in tables and in the data.
    pub fn name(self) -> &'static str {
        match self {
            Arm::None => "none",
            Arm::OSync => "o_sync",
            Arm::ODsync => "o_dsync",
            Arm::Fsync => "fsync",
        }
    }

    /// Flags to open the file with.
    pub fn of_open(self) -> OFlag {
        match self {
            Arm::None | Arm::Fsync => OFlag::empty(),
            Arm::OSync => OFlag::O_SYNC,
            Arm::ODsync => OFlag::O_DSYNC,
        }
    }

    /// Flags of the calls, for the models ([`flag`]).
    pub fn of_event(self) -> u32 {
        match self {
            Arm::None | Arm::Fsync => 0,
            Arm::OSync => flag::SYNC,
            Arm::ODsync => flag::DSYNC,
        }
    }
}

/// Sizes of block and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes that each call writes.
    pub block: Bytes,
    /// Bytes of the file, a multiple of them.
    pub file: Bytes,
}

impl Sizes {
    /// Calls that write.
    pub fn blocks(self) -> u64 {
        self.file.0 / self.block.0
    }
}

/// A run to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its block and its file.
    pub sizes: Sizes,
    /// Its arm.
    pub sync: Arm,
    /// Which repetition it is, from 1.
    pub repeat: usize,
}

/// The runs of a study.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// By block size, then by file size.
    pub sizes: Vec<Sizes>,
    /// Repetitions of each.
    pub repeats: usize,
}

impl Grid {
    /// The document's grid, or a small one.
    pub fn new(quick: bool, repeats: Option<usize>) -> Grid {
        let blocks: &[u64] =
            if quick { &[512, 4096, 65536] } else { &[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] };
        let files: &[u64] = if quick {
            &[512, 1024, 4096]
        } else {
            &[512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10]
        };
        let of_block = |block: &u64| files.iter().map(move |file| (*block, *file)).collect::<Vec<_>>();
        let sizes = blocks.iter().flat_map(of_block);
        Grid {
            sizes: sizes.map(|(block, file)| Sizes { block: Bytes(block), file: Bytes::kib(file) }).collect(),
            repeats: repeats.unwrap_or(if quick { LEAST_REPEATS } else { REPEATS }),
        }
    }

    /// The time that it takes, if a write that waits for the device takes so long.
    pub fn expected(&self, waiting: impl Fn(Bytes) -> Nanos) -> Nanos {
        let of_cell = |sizes: &Sizes| {
            let waits = Arm::ALL.iter().filter(|sync| sync.of_event() != 0).count() as f64;
            waiting(sizes.block).as_seconds() * sizes.blocks() as f64 * waits + AROUND * Arm::ALL.len() as f64
        };
        Nanos::seconds(self.sizes.iter().map(of_cell).sum::<f64>() * self.repeats as f64)
    }

    /// Leaves out repetitions, then the largest files of the smallest blocks, until the rest takes no longer
    /// than `longest`. Returns what was left out, in words.
    pub fn reduce(&mut self, longest: Nanos, waiting: impl Fn(Bytes) -> Nanos) -> Option<String> {
        let (all, wanted) = (self.expected(&waiting), self.repeats);
        while self.repeats > LEAST_REPEATS && self.expected(&waiting) > longest {
            self.repeats -= 1;
        }
        let mut left_out = Vec::new();
        while self.sizes.len() > LEAST_CELLS && self.expected(&waiting) > longest {
            // The first of the most calls has the smallest block.
            let most = (0..self.sizes.len()).rev().max_by_key(|at| self.sizes[*at].blocks()).unwrap_or(0);
            left_out.push(self.sizes.remove(most));
        }
        let mut parts = Vec::new();
        if self.repeats < wanted {
            parts.push(format!("{} of {wanted} repetitions", wanted - self.repeats));
        }
        // What was left out last of a block is the smallest of its files that were.
        let least: BTreeMap<Bytes, Bytes> = left_out.iter().map(|one| (one.block, one.file)).collect();
        parts.extend(least.iter().map(|(block, file)| format!("files from {file} on in blocks of {block}")));
        (!parts.is_empty()).then(|| {
            let rest = self.expected(&waiting);
            let parts = parts.join(", ");
            format!(
                "all runs would take about {all}, the limit is {longest}; left out in all arms: {parts}; the rest \
                 takes {rest}"
            )
        })
    }

    /// All runs, in the order in which they are made.
    pub fn runs(&self) -> Vec<Run> {
        let of_repeat = |repeat| {
            let cells = self.sizes.iter().flat_map(|sizes| Arm::ALL.map(|sync| (*sizes, sync)));
            cells.map(move |(sizes, sync)| Run { sizes, sync, repeat })
        };
        let mut runs: Vec<Run> = (1..=self.repeats).flat_map(of_repeat).collect();
        fastrand::Rng::with_seed(SEED).shuffle(&mut runs);
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fast(_: Bytes) -> Nanos {
        Nanos::seconds(10e-6)
    }

    fn slow(_: Bytes) -> Nanos {
        Nanos::millis(10.0)
    }

    #[test]
    fn the_grid_is_that_of_the_document() {
        let grid = Grid::new(false, None);
        assert_eq!((grid.sizes.len(), grid.repeats, grid.runs().len()), (64, 5, 64 * 4 * 5));
        assert_eq!(grid.sizes[0], Sizes { block: Bytes(512), file: Bytes::kib(512) });
        assert_eq!(grid.sizes[63], Sizes { block: Bytes::kib(64), file: Bytes::mib(64) });
        assert_eq!(grid.sizes[7].blocks(), 131_072);
        let quick = Grid::new(true, None);
        assert_eq!((quick.sizes.len(), quick.repeats), (9, 2));
        assert!(quick.sizes.iter().all(|sizes| sizes.file <= Bytes::mib(4)));
        assert_eq!(Grid::new(true, Some(7)).repeats, 7);
    }

    #[test]
    fn runs_are_in_random_order_the_same_each_time() {
        let grid = Grid::new(false, None);
        let runs = grid.runs();
        assert_eq!(runs, grid.runs());
        let in_order: Vec<bool> = runs.windows(2).map(|pair| pair[0].repeat <= pair[1].repeat).collect();
        assert!(in_order.contains(&false), "repetitions one after another");
        for repeat in 1..=5 {
            for sync in Arm::ALL {
                let cells = runs.iter().filter(|run| (run.repeat, run.sync) == (repeat, sync));
                assert_eq!(cells.count(), 64);
            }
        }
    }

    #[test]
    fn a_fast_disk_gets_all_runs() {
        let mut grid = Grid::new(false, None);
        assert_eq!(grid.reduce(Nanos::seconds(600.0), fast), None);
        assert_eq!(grid, Grid::new(false, None));
    }

    #[test]
    fn a_slow_disk_gets_fewer_repetitions_and_then_fewer_of_the_smallest_blocks() {
        let longest = Nanos::seconds(600.0);
        let mut grid = Grid::new(false, None);
        let said = grid.reduce(longest, |_| Nanos::seconds(150e-6)).unwrap();
        assert_eq!((grid.sizes.len(), grid.repeats), (64, 3));
        assert!(said.contains("left out in all arms: 2 of 5 repetitions;"), "{said}");
        let mut grid = Grid::new(false, None);
        let said = grid.reduce(longest, slow).unwrap();
        assert!(grid.expected(slow) <= longest && grid.repeats == 2);
        assert!(said.contains(": 3 of 5 repetitions, files from 1 MiB on in blocks of 512 B, "), "{said}");
        // All sizes of blocks are still there.
        assert!(
            Grid::new(false, None)
                .sizes
                .iter()
                .all(|one| grid.sizes.iter().any(|kept| kept.block == one.block))
        );
        // Asked for one repetition, it makes no more.
        let mut grid = Grid::new(true, Some(1));
        grid.reduce(Nanos::seconds(1.0), slow);
        assert_eq!((grid.repeats, grid.sizes.len()), (1, LEAST_CELLS));
    }
}
