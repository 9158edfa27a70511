//! What a model predicts of a cell's calls, in open loop: the file is made as the calls find it, then each
//! begins where the one before was predicted to end.

use anyhow::Context;
use cawl_core::{CostModel, HostProfile, Time, build};
use cawl_wire::{ADVICE_DONTNEED, Event, Op, flag};

use super::super::calls::{call, read, write};
use super::grid::{Access, Cell, Grid};
use super::measure::PIECE;

/// Ranges of a file that [`Op::Resident`] tells of, and the unit of their length.
const RANGES: u64 = 64;
const PAGE: u64 = 4096;

/// A model and its clock.
pub struct OpenLoop {
    model: Box<dyn CostModel>,
    now: Time,
}

impl OpenLoop {
    pub fn new(model: &str, profile: &HostProfile) -> anyhow::Result<OpenLoop> {
        let model = build(model, profile).context("there is no such model")?;
        Ok(OpenLoop { model, now: Time(1_000_000_000) })
    }

    /// What the next call takes, in ns.
    pub fn step(&mut self, event: Event) -> f64 {
        let event = Event { start: self.now.0, ..event };
        let cost = self.model.step(&event).map_or(0.0, |prediction| prediction.cost.get());
        self.now = Time(self.now.0 + cost as u64);
        cost
    }

    /// Writes a file in calls of `size`.
    pub fn fill(&mut self, length: u64, size: u64, flags: u32) {
        for at in (0..length).step_by(size as usize) {
            self.step(write(at, size, flags));
        }
    }

    /// Synchronises the file.
    pub fn sync(&mut self) {
        self.step(call(Op::Fsync));
    }

    /// Tells what of the file is cached, all or nothing, as the tracer does before the first read.
    pub fn tell(&mut self, length: u64, is_cached: bool) {
        let pages = length.div_ceil(PAGE).div_ceil(RANGES);
        let (ranges, bytes) = if is_cached { (u64::MAX, length as i64) } else { (0, 0) };
        self.step(Event { offset: pages * PAGE, requested: ranges, returned: bytes, ..call(Op::Resident) });
    }

    /// Drops it from the page cache.
    pub fn drop_cached(&mut self) {
        self.step(Event { aux: ADVICE_DONTNEED, ..call(Op::Advise) });
    }
}

/// What a model predicts of the first `calls` reads of a cell, in ns.
pub fn predicted(
    model: &str,
    profile: &HostProfile,
    grid: &Grid,
    cell: Cell,
    calls: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut open_loop = OpenLoop::new(model, profile)?;
    let offsets = grid.offsets(cell);
    let offsets = &offsets[..calls.min(offsets.len())];
    match cell.access {
        Access::Buffered => open_loop.fill(grid.length, cell.size, 0),
        Access::Fsync => {
            for at in offsets {
                open_loop.step(write(*at, cell.size, 0));
                open_loop.sync();
            }
        }
        Access::Direct => open_loop.fill(grid.length, PIECE, flag::DIRECT),
        Access::Random | Access::RandomDirect => {
            open_loop.fill(grid.random, PIECE, 0);
            open_loop.sync();
            open_loop.drop_cached();
        }
    }
    let length = if cell.access.is_random() { grid.random } else { grid.length };
    open_loop.tell(length, matches!(cell.access, Access::Buffered | Access::Fsync));
    let flags = if cell.access == Access::RandomDirect { flag::DIRECT } else { 0 };
    Ok(offsets.iter().map(|at| open_loop.step(read(*at, cell.size, flags))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_a_prediction_of_each_call() {
        let (profile, grid) = (HostProfile::uncalibrated(), Grid::new(true));
        for model in cawl_core::MODELS {
            for cell in grid.cells() {
                let costs = predicted(model, &profile, &grid, cell, 50).unwrap();
                assert_eq!(costs.len(), 50, "{model}, {cell:?}");
                assert!(costs.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{model}, {cell:?}");
            }
        }
        assert!(predicted("none", &profile, &grid, Cell { size: 512, access: Access::Buffered }, 1).is_err());
    }
}
