//! What a model predicts of a cell's calls, in open loop: the file is made as the calls find it, then each
//! begins where the one before was predicted to end.

use cawl_core::HostProfile;
use cawl_wire::{Op, flag};

use super::super::calls::{Shown, call, write};
use super::grid::{Access, Cell, Grid, Mode};
use super::measure::PIECE;

/// What a model predicts of the calls at these places, with the sync after each, in ns.
pub fn predicted(
    model: &str,
    profile: &HostProfile,
    grid: &Grid,
    cell: Cell,
    offsets: &[u64],
) -> anyhow::Result<Vec<f64>> {
    let mut shown = Shown::to(model, profile)?;
    if cell.access != Access::Append {
        shown.fill(grid.length, PIECE, 0);
        shown.sync();
        if cell.access == Access::Cold {
            shown.drop_cached();
        }
    }
    let flags = match cell.mode {
        Mode::Direct => flag::DIRECT,
        Mode::DirectSync => flag::DIRECT | flag::SYNC,
        Mode::Buffered | Mode::Fsync | Mode::Fdatasync => 0,
    };
    let cost = |at: &u64| {
        let written = shown.step(write(*at, cell.size, flags));
        written
            + match cell.mode {
                Mode::Fsync => shown.step(call(Op::Fsync)),
                Mode::Fdatasync => shown.step(call(Op::Fdatasync)),
                Mode::Buffered | Mode::Direct | Mode::DirectSync => 0.0,
            }
    };
    Ok(offsets.iter().map(cost).collect())
}

#[cfg(test)]
mod tests {
    use cawl_core::{Measured, Nanos, Rate, median};

    use super::*;

    /// A device of 1 GB/s with requests of 30 µs, new blocks of 6, parts of them of 300, and commits of
    /// 2 ms; reads at 100 MB/s.
    fn profile() -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
        let device = &mut profile.device;
        (device.write.value, device.read.value) = (Rate::mb_per_second(1000.0), Rate::mb_per_second(100.0));
        (device.latency, device.direct) = (Some(micros(30.0)), Some(micros(30.0)));
        (device.allocation, device.partial) = (Some(micros(6.0)), Some(micros(300.0)));
        (device.fsync, device.sync_call, device.flush) =
            (micros(2000.0), micros(2000.0), Some(micros(500.0)));
        profile
    }

    /// The median of what a model predicts, in µs.
    fn of(model: &str, size: u64, mode: Mode, access: Access) -> f64 {
        let (grid, cell) = (Grid::new(true), Cell { size, mode, access });
        let costs = predicted(model, &profile(), &grid, cell, &grid.offsets(cell)).unwrap();
        assert!(costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0), "{cell:?}");
        median(&costs).unwrap() / 1e3
    }

    #[test]
    fn a_part_of_a_block_costs_more_where_the_file_grows() {
        let direct = |size, access| of("kernel", size, Mode::Direct, access);
        assert!(direct(512, Access::Append) > direct(4096, Access::Append) + 280.0);
        assert!(direct(512, Access::Warm) < direct(4096, Access::Warm));
        assert!(of("naive", 512, Mode::Direct, Access::Append) < 1.0, "naive has no fixed cost");
    }

    #[test]
    fn durable_writes_cost_a_commit_or_a_flush_whichever_way_they_go() {
        for mode in [Mode::DirectSync, Mode::Fsync, Mode::Fdatasync] {
            let of = |access| of("kernel", 4096, mode, access);
            // New blocks are committed; of others at most a time stamp, once in a tick.
            assert!(of(Access::Append) > 2000.0, "{mode:?}");
            assert!(of(Access::Warm) > 500.0 && of(Access::Cold) > 500.0, "{mode:?}");
        }
        assert!(of("kernel", 4096, Mode::Fdatasync, Access::Warm) < 2000.0);
        assert!(of("kernel", 4096, Mode::Buffered, Access::Warm) < 30.0);
    }

    #[test]
    fn a_part_of_an_uncached_page_is_read_first() {
        let cold = |size| of("kernel", size, Mode::Buffered, Access::Cold);
        assert!(cold(512) > 40.0 && cold(4096) < 30.0, "{} and {} µs", cold(512), cold(4096));
    }
}
