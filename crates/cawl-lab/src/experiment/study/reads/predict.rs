//! What a model predicts of a cell's calls, in open loop: the file is made as the calls find it, then each
//! begins where the one before was predicted to end.

use cawl_core::HostProfile;
use cawl_wire::flag;

use super::super::calls::{Shown, read, write};
use super::grid::{Access, Cell, Grid};
use super::measure::PIECE;

/// What a model predicts of the first `calls` reads of a cell, in ns.
pub fn predicted(
    model: &str,
    profile: &HostProfile,
    grid: &Grid,
    cell: Cell,
    calls: usize,
) -> anyhow::Result<Vec<f64>> {
    let mut shown = Shown::to(model, profile)?;
    let offsets = grid.offsets(cell);
    let offsets = &offsets[..calls.min(offsets.len())];
    match cell.access {
        Access::Buffered => shown.fill(grid.length, cell.size, 0),
        Access::Fsync => {
            for at in offsets {
                shown.step(write(*at, cell.size, 0));
                shown.sync();
            }
        }
        Access::Direct => shown.fill(grid.length, PIECE, flag::DIRECT),
        Access::Random | Access::RandomDirect => {
            shown.fill(grid.random, PIECE, 0);
            shown.sync();
            shown.drop_cached();
        }
    }
    let length = if cell.access.is_random() { grid.random } else { grid.length };
    shown.tell(length, matches!(cell.access, Access::Buffered | Access::Fsync));
    let flags = if cell.access == Access::RandomDirect { flag::DIRECT } else { 0 };
    Ok(offsets.iter().map(|at| shown.step(read(*at, cell.size, flags))).collect())
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
