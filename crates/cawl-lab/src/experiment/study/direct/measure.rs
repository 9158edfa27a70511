//! Makes the calls of a cell and times them.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use cawl_host::direct::AlignedBuffer;
use cawl_measure::interrupt::Interrupted;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::time::{ClockId, clock_gettime};

use super::super::Bench;
use super::grid::{Access, Cell, FEWEST, Grid, Mode};

/// The file's name.
const FILE: &str = "direct";

/// Bytes of a write that makes a file to write over.
pub const PIECE: u64 = 1 << 20;

/// What was observed of a cell.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Of each call, with the sync after it, in ns.
    pub times: Vec<f64>,
    /// Processor time of the thread for all of them, in ns.
    pub processor: f64,
    /// Calls that met their first page in the cache.
    pub met: usize,
    /// Bytes per second of reading an appended file again; of calls that need not be durable alone.
    pub read_back: Vec<f64>,
}

/// Makes the calls for `seconds`, or all of them; false if the filesystem or the device refuses them.
pub fn measure(
    bench: &Bench,
    grid: &Grid,
    cell: Cell,
    seconds: f64,
    seen: &mut Seen,
) -> anyhow::Result<bool> {
    let made = make(bench, grid, cell.access)
        .and_then(|()| open(bench, cell.mode))
        .and_then(|file| calls(bench, &file, grid, cell, seconds, seen));
    bench.scratch.remove(FILE);
    match made {
        Ok(()) => Ok(true),
        Err(error) if is_refusal(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// O_DIRECT is not supported, or not for blocks of this size.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
    [nix::Error::EINVAL, nix::Error::EOPNOTSUPP].into_iter().any(|refusal| code == Some(refusal as i32))
}

/// The file as the calls find it.
fn make(bench: &Bench, grid: &Grid, access: Access) -> anyhow::Result<()> {
    let file = bench.scratch.file(FILE)?;
    if access == Access::Append {
        return Ok(());
    }
    let data = AlignedBuffer::new(PIECE as usize);
    for at in (0..grid.length).step_by(PIECE as usize) {
        Interrupted::by(bench.signal)?;
        file.write_all_at(data.bytes(), at)?;
    }
    file.sync_all()?;
    if access == Access::Cold {
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

fn open(bench: &Bench, mode: Mode) -> anyhow::Result<File> {
    let flags = match mode {
        Mode::Direct => OFlag::O_DIRECT,
        Mode::DirectSync => OFlag::O_DIRECT | OFlag::O_SYNC,
        Mode::Buffered | Mode::Fsync | Mode::Fdatasync => OFlag::empty(),
    };
    bench.scratch.again(FILE, flags)
}

fn calls(
    bench: &Bench,
    file: &File,
    grid: &Grid,
    cell: Cell,
    seconds: f64,
    seen: &mut Seen,
) -> anyhow::Result<()> {
    let data = AlignedBuffer::new(cell.size as usize);
    let offsets = grid.offsets(cell);
    let (started, before) = (cawl_host::now(), processor_time()?);
    let mut times = Vec::with_capacity(offsets.len());
    for at in &offsets {
        let start = cawl_host::now();
        if times.len() >= FEWEST && start.since(started).as_seconds() > seconds {
            break;
        }
        Interrupted::by(bench.signal)?;
        let start = cawl_host::now();
        file.write_all_at(data.bytes(), *at)?;
        match cell.mode {
            Mode::Fsync => file.sync_all()?,
            Mode::Fdatasync => file.sync_data()?,
            Mode::Buffered | Mode::Direct | Mode::DirectSync => {}
        }
        times.push(cawl_host::now().since(start).get());
    }
    seen.processor += processor_time()? - before;
    seen.met += grid.met(cell, &offsets[..times.len()]).iter().filter(|met| **met).count();
    if cell.access == Access::Append && matches!(cell.mode, Mode::Buffered | Mode::Direct) {
        seen.read_back.push(read_back(bench, cell.size)?);
    }
    seen.times.extend(times);
    Ok(())
}

/// Processor time of this thread, in ns. getrusage has the same in whole ticks only.
fn processor_time() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("cannot read this thread's clock")?;
    Ok(time.tv_sec() as f64 * 1e9 + time.tv_nsec() as f64)
}

/// Reads the file from its begin to its end through the page cache, in calls of this size.
fn read_back(bench: &Bench, size: u64) -> anyhow::Result<f64> {
    let mut file = bench.scratch.again(FILE, OFlag::empty())?;
    let mut data = vec![0; size as usize];
    let (start, mut bytes) = (cawl_host::now(), 0);
    loop {
        match file.read(&mut data)? {
            0 => break,
            read => bytes += read,
        }
    }
    Ok(bytes as f64 / cawl_host::now().since(start).as_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_from_failures() {
        let error = |code: nix::Error| {
            Err::<(), _>(std::io::Error::from_raw_os_error(code as i32))
                .context("cannot open it")
                .unwrap_err()
        };
        assert!(is_refusal(&error(nix::Error::EINVAL)) && is_refusal(&error(nix::Error::EOPNOTSUPP)));
        assert!(!is_refusal(&error(nix::Error::ENOSPC)) && !is_refusal(&anyhow::anyhow!("something else")));
    }
}
