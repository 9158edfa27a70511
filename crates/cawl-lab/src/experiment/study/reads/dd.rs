//! The reads of dd: a file is read from its begin to its end, cached and uncached.

use cawl_core::{Bytes, HostProfile};
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use serde::Serialize;

use super::super::Bench;
use super::super::calls::{Shown, read};
use super::measure::{self, PIECE, reads};

/// Calls, as in the document, and with `--quick`.
pub const CALLS: usize = 50_000;
pub const QUICK_CALLS: usize = 5_000;
/// Bytes of each. The document's 1 MiB would need a file of 50 GB.
pub const SIZE: u64 = 16 << 10;

/// The document's counts by its classes, of 50 000 calls. The call of the cached file that is not from memory
/// is "cached storage" there.
pub const CACHED: [u32; 5] = [49_999, 1, 0, 0, 0];
pub const UNCACHED: [u32; 5] = [47_990, 1_412, 432, 151, 15];

/// The name of the file.
const FILE: &str = "dd";

/// A file that was read.
#[derive(Debug, Serialize)]
pub struct Run {
    pub name: &'static str,
    #[serde(skip)]
    pub is_cached: bool,
    /// Of each call, in ns.
    #[serde(skip)]
    pub observed: Vec<f64>,
    #[serde(skip)]
    pub kernel: Vec<f64>,
    /// Of all calls, in seconds.
    pub seconds: f64,
    pub kernel_seconds: f64,
}

impl Run {
    /// With what `kernel` predicts.
    pub fn new(profile: &HostProfile, is_cached: bool, observed: Vec<f64>) -> anyhow::Result<Run> {
        let kernel = predicted(profile, is_cached, observed.len())?;
        let seconds = |times: &[f64]| times.iter().sum::<f64>() * 1e-9;
        Ok(Run {
            name: if is_cached { "cached" } else { "uncached" },
            is_cached,
            seconds: seconds(&observed),
            kernel_seconds: seconds(&kernel),
            observed,
            kernel,
        })
    }
}

/// Reads a file in so many calls, cached and uncached; the time of each call, in ns.
pub fn measure(bench: &mut Bench, calls: usize) -> anyhow::Result<[Vec<f64>; 2]> {
    let length = calls as u64 * SIZE;
    bench.scratch.require(Bytes(2 * length))?;
    bench.progress.begin("dd: writing its file".to_owned());
    let file = bench.scratch.file(FILE)?;
    measure::fill(bench, &file, length / PIECE * PIECE, PIECE)?;
    file.set_len(length)?;
    file.sync_all()?;
    let file = bench.scratch.again(FILE, OFlag::empty())?;
    let offsets: Vec<u64> = (0..calls as u64).map(|at| at * SIZE).collect();
    bench.progress.begin("dd: cached".to_owned());
    let cached = reads(bench, &file, SIZE, &offsets, f64::INFINITY)?;
    bench.progress.begin("dd: uncached".to_owned());
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    // Opened anew, since a file knows where it was read before.
    let file = bench.scratch.again(FILE, OFlag::empty())?;
    let uncached = reads(bench, &file, SIZE, &offsets, f64::INFINITY)?;
    bench.scratch.remove(FILE);
    Ok([cached, uncached])
}

fn predicted(profile: &HostProfile, is_cached: bool, calls: usize) -> anyhow::Result<Vec<f64>> {
    let mut shown = Shown::to("kernel", profile)?;
    shown.fill(calls as u64 * SIZE, PIECE, 0);
    shown.sync();
    if !is_cached {
        shown.drop_cached();
    }
    shown.tell(calls as u64 * SIZE, is_cached);
    Ok((0..calls as u64).map(|at| shown.step(read(at * SIZE, SIZE, 0))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_counts_are_of_as_many_calls() {
        assert_eq!((CACHED.iter().sum::<u32>(), UNCACHED.iter().sum::<u32>()), (50_000, 50_000));
        assert_eq!(CALLS, 50_000);
        assert_eq!(QUICK_CALLS as u64 * SIZE % 4096, 0);
    }
}
