//! Makes the calls of a cell and times them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cawl_core::Nanos;
use cawl_host::direct::AlignedBuffer;
use cawl_measure::calibrate::others::{waited, without};
use cawl_measure::interrupt::Interrupted;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::super::Bench;
use super::super::direct::is_refusal;
use super::grid::{Access, Cell, FEWEST, Grid};

/// The files' names.
const FILE: &str = "read";
pub const RANDOM: &str = "read-random";

/// Bytes of a write of a file that is read at random, or that is written past the page cache.
pub const PIECE: u64 = 1 << 20;

/// A call, or what is between two, that takes longer than this may have waited for a processor.
const LONG: Nanos = Nanos::new(50e3);

/// What was observed of a cell.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Of each call of each repetition, in ns.
    pub runs: Vec<Vec<f64>>,
}

/// Makes the file to read at random.
pub fn make_random(bench: &Bench, grid: &Grid) -> anyhow::Result<()> {
    let file = bench.scratch.file(RANDOM)?;
    fill(bench, &file, grid.random, PIECE)?;
    Ok(file.sync_all()?)
}

/// Writes a file in calls of `size`.
pub fn fill(bench: &Bench, file: &File, length: u64, size: u64) -> anyhow::Result<()> {
    let data = AlignedBuffer::new(size as usize);
    for at in (0..length).step_by(size as usize) {
        if at % PIECE == 0 {
            Interrupted::by(bench.signal)?;
        }
        file.write_all_at(data.bytes(), at)?;
    }
    Ok(())
}

/// Makes the calls of a repetition; false if the filesystem or the device refuses them.
pub fn measure(bench: &Bench, grid: &Grid, cell: Cell, seen: &mut Seen) -> anyhow::Result<bool> {
    let made = match cell.access.is_random() {
        true => random(bench, grid, cell),
        false => in_sequence(bench, grid, cell),
    };
    bench.scratch.remove(FILE);
    match made {
        Ok(times) => seen.runs.push(times),
        Err(error) if is_refusal(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

fn in_sequence(bench: &Bench, grid: &Grid, cell: Cell) -> anyhow::Result<Vec<f64>> {
    let mut offsets = grid.offsets(cell);
    match cell.access {
        Access::Direct => {
            bench.scratch.file(FILE)?;
            fill(bench, &bench.scratch.again(FILE, OFlag::O_DIRECT)?, grid.length, PIECE)?;
        }
        Access::Fsync => {
            let (file, data) = (bench.scratch.file(FILE)?, AlignedBuffer::new(cell.size as usize));
            let started = cawl_host::now();
            let mut written = 0;
            for at in &offsets {
                if written >= FEWEST && cawl_host::now().since(started).as_seconds() > grid.seconds {
                    break;
                }
                Interrupted::by(bench.signal)?;
                file.write_all_at(data.bytes(), *at)?;
                file.sync_all()?;
                written += 1;
            }
            offsets.truncate(written);
        }
        _ => fill(bench, &bench.scratch.file(FILE)?, grid.length, cell.size)?,
    }
    reads(bench, &bench.scratch.again(FILE, OFlag::empty())?, cell.size, &offsets, f64::INFINITY)
}

fn random(bench: &Bench, grid: &Grid, cell: Cell) -> anyhow::Result<Vec<f64>> {
    posix_fadvise(
        &bench.scratch.again(RANDOM, OFlag::empty())?,
        0,
        0,
        PosixFadviseAdvice::POSIX_FADV_DONTNEED,
    )?;
    let flags = if cell.access == Access::RandomDirect { OFlag::O_DIRECT } else { OFlag::empty() };
    reads(bench, &bench.scratch.again(RANDOM, flags)?, cell.size, &grid.offsets(cell), grid.seconds)
}

/// Reads at these places for `seconds`; the time of each call, in ns, without the cost of reading the clock and
/// without waits for a processor, which are looked for when they are long.
pub fn reads(
    bench: &Bench,
    file: &File,
    size: u64,
    offsets: &[u64],
    seconds: f64,
) -> anyhow::Result<Vec<f64>> {
    let mut data = AlignedBuffer::new(size as usize);
    let (clock, started) = (clocks_own(), cawl_host::now());
    let mut times = Vec::with_capacity(offsets.len());
    let (mut ended, mut before) = (started, waited());
    for at in offsets {
        if times.len() >= FEWEST && ended.since(started).as_seconds() > seconds {
            break;
        }
        Interrupted::by(bench.signal)?;
        let mut start = cawl_host::now();
        if start.since(ended) > LONG {
            // Not a wait of the call.
            before = waited();
            start = cawl_host::now();
        }
        file.read_exact_at(data.bytes_mut(), *at)?;
        ended = cawl_host::now();
        let mut took = ended.since(start);
        if took > LONG {
            let now = waited();
            took = without(took, now.saturating_sub(before));
            before = now;
            ended = cawl_host::now();
        }
        times.push((took.get() - clock).max(1.0));
    }
    Ok(times)
}

/// The cost of reading the clock, in ns.
fn clocks_own() -> f64 {
    let span = |_| {
        let start = cawl_host::now();
        cawl_host::now().since(start).get()
    };
    (0..1000).map(span).fold(f64::INFINITY, f64::min)
}
