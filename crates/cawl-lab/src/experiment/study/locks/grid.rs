//! What the threads do: how many they are, which lock they take, and what they do with it and without.

use fastrand::Rng;
use serde::Serialize;

/// Seed of the order of runs.
pub const SEED: u64 = 2019;

/// Time outside the section in the document's figures 11, 12 and 14, in µs.
pub const T1: u64 = 1000;

/// A lock of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lock {
    /// A pthread mutex.
    Mutex,
    /// A pthread spin lock.
    Spin,
    /// A mutex that spins for a while before it sleeps (`PTHREAD_MUTEX_ADAPTIVE_NP`).
    Adaptive,
}

impl Lock {
    /// All, in the order of the tables.
    pub const ALL: [Lock; 3] = [Lock::Mutex, Lock::Spin, Lock::Adaptive];

    pub fn name(self) -> &'static str {
        match self {
            Lock::Mutex => "mutex",
            Lock::Spin => "spin",
            Lock::Adaptive => "adaptive",
        }
    }
}

/// How a thread spends time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// It computes for so long.
    Computes,
    /// It sleeps once for so long.
    Sleeps,
    /// It calls usleep(1) once for each µs, as the document's program does.
    Naps,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Computes => "computes",
            Work::Sleeps => "sleeps",
            Work::Naps => "naps",
        }
    }
}

/// Where a thread writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    None,
    Inside,
    Outside,
}

impl Io {
    /// All, in the order of the tables.
    pub const ALL: [Io; 3] = [Io::None, Io::Inside, Io::Outside];

    pub fn name(self) -> &'static str {
        match self {
            Io::None => "none",
            Io::Inside => "inside",
            Io::Outside => "outside",
        }
    }
}

/// Runs of one kind. Times in µs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub threads: u32,
    pub lock: Lock,
    /// What a thread does with the lock, and for how long.
    pub work: Work,
    pub section: u64,
    /// What it does without, and for how long.
    pub outside: Work,
    pub time: u64,
    pub io: Io,
}

/// All cells, and how long each runs.
#[derive(Clone, Debug)]
pub struct Grid {
    pub cells: Vec<Cell>,
    /// Length of a run, in ms.
    pub length: u64,
}

impl Grid {
    /// The document's conditions, and I/O inside or outside the section; fewer of them if `quick`.
    pub fn new(quick: bool) -> Grid {
        let mut grid = Grid { cells: Vec::new(), length: if quick { 100 } else { 200 } };
        let pick = |all: &'static [u64], few: &'static [u64]| if quick { few } else { all };
        let threads: &[u32] = if quick { &[2, 16] } else { &[2, 8, 16] };
        let contending = &threads[1..];
        // Figures 9 and 10: two threads that do nothing else.
        let sections = pick(&[1, 2, 4, 6, 10, 30, 100, 1000], &[1, 6, 30, 1000]);
        grid.add(&[2], (Work::Computes, sections), (Work::Computes, 0), &[Io::None]);
        grid.add(&[2], (Work::Naps, pick(&[1, 6, 30, 1000], &[1, 30])), (Work::Naps, 0), &[Io::None]);
        // Figures 11 and 12: computing outside.
        let sections = pick(&[1, 6, 30, 100, 1000], &[1, 30]);
        grid.add(threads, (Work::Computes, sections), (Work::Computes, T1), &[Io::None]);
        grid.add(contending, (Work::Naps, pick(&[1, 30], &[1])), (Work::Naps, T1), &[Io::None]);
        // Figures 13 and 14: asleep outside.
        for time in [1, T1] {
            let sections = pick(&[1, 30, 1000], &[30]);
            grid.add(contending, (Work::Computes, sections), (Work::Sleeps, time), &[Io::None]);
        }
        // A write inside or outside.
        grid.add(threads, (Work::Computes, pick(&[1, 30, 1000], &[30])), (Work::Computes, 0), &Io::ALL);
        grid
    }

    /// Adds cells with each lock, but for those that there are.
    fn add(&mut self, threads: &[u32], section: (Work, &[u64]), outside: (Work, u64), all: &[Io]) {
        for &threads in threads {
            for &time in section.1 {
                for &io in all {
                    for lock in Lock::ALL {
                        let (work, (outside, spent)) = (section.0, outside);
                        let cell = Cell { threads, lock, work, section: time, outside, time: spent, io };
                        if !self.cells.contains(&cell) {
                            self.cells.push(cell);
                        }
                    }
                }
            }
        }
    }

    /// The cells in a random order, the same each time.
    pub fn order(&self, repeats: usize) -> Vec<Cell> {
        let mut order = self.cells.repeat(repeats);
        Rng::with_seed(SEED).shuffle(&mut order);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_each_lock_once() {
        for quick in [false, true] {
            let grid = Grid::new(quick);
            for cell in &grid.cells {
                assert_eq!(grid.cells.iter().filter(|other| *other == cell).count(), 1, "{cell:?}");
                for lock in Lock::ALL {
                    assert!(grid.cells.contains(&Cell { lock, ..*cell }), "{cell:?}");
                }
            }
            // Few enough for the time that is told.
            let millis = grid.cells.len() as u64 * grid.length;
            assert!(millis < if quick { 7_000 } else { 45_000 }, "{} cells", grid.cells.len());
        }
        assert!(Grid::new(true).cells.iter().all(|cell| Grid::new(false).cells.contains(cell)));
    }

    #[test]
    fn the_order_is_the_same_each_time() {
        let grid = Grid::new(true);
        let order = grid.order(2);
        assert_eq!(order, grid.order(2));
        assert_ne!(order[..grid.cells.len()], grid.cells[..]);
        assert!(grid.cells.iter().all(|cell| order.iter().filter(|one| *one == cell).count() == 2));
    }
}
