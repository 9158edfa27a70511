//! What a request costs on its way to this process and back, and how that is measured.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use cawl_core::{Bytes, Nanos, Time};
use cawl_host::direct::AlignedBuffer;
use serde::{Deserialize, Serialize};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the disk.
    Write,
    /// From the disk.
    Read,
}

/// Time of a request without pacing, measured from outside.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Overhead {
    /// Of a write, and per byte of it.
    pub write: (Nanos, f64),
    /// Of a read, and per byte of it.
    pub read: (Nanos, f64),
    /// Of a flush, or of any request without data.
    pub flush: Nanos,
}

impl Overhead {
    /// Of a transfer of this length.
    pub(crate) fn of(&self, direction: Direction, length: Bytes) -> Nanos {
        let (fixed, per_byte) = match direction {
            Direction::Write => self.write,
            Direction::Read => self.read,
        };
        fixed + Nanos::new(per_byte * length.as_f64())
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((write, per_byte_written), (read, per_byte_read)) = (self.write, self.read);
        write!(f, "write {write} + {per_byte_written:.3} ns/B, read {read} + {per_byte_read:.3} ns/B")
    }
}

/// A moment before another one.
pub(crate) fn before(time: Time, span: Nanos) -> Time {
    Time(time.0.saturating_sub(span.get() as u64))
}

/// Size of a small request.
pub(crate) const SMALL: usize = 4 << 10;
/// Rounds of [`measure`] where requests take no time.
pub(crate) const ROUNDS: usize = 16;
/// The quantile of requests that no other program delayed.
pub(crate) const UNDISTURBED: f64 = 0.1;
/// Requests of a round.
pub(crate) const REQUESTS: usize = 84;

/// Time of single requests to an idle file or device. Other programs only add to it, in bursts, so it is the
/// fastest of many short rounds, of each its `quantile`. `large` is the size of the largest single request,
/// `bare` makes a request without data.
pub(crate) fn measure(
    file: &File,
    large: usize,
    rounds: usize,
    quantile: f64,
    bare: impl Fn() -> io::Result<()>,
) -> io::Result<Overhead> {
    let mut buffer = AlignedBuffer::new(large);
    let mut best = [f64::INFINITY; 5];
    for _ in 0..rounds {
        let buffer = buffer.bytes_mut();
        let round = [
            time(24, quantile, || file.write_all_at(&buffer[..SMALL], 0))?,
            time(6, quantile, || file.write_all_at(buffer, 0))?,
            time(24, quantile, || file.read_exact_at(&mut buffer[..SMALL], 0))?,
            time(6, quantile, || file.read_exact_at(buffer, 0))?,
            time(24, quantile, &bare)?,
        ];
        for (best, time) in best.iter_mut().zip(round) {
            *best = best.min(time);
        }
    }
    let line = |small: f64, whole: f64| {
        let per_byte = (whole - small).max(0.0) / large.saturating_sub(SMALL).max(1) as f64;
        (Nanos::new(small - per_byte * SMALL as f64), per_byte)
    };
    Ok(Overhead { write: line(best[0], best[1]), read: line(best[2], best[3]), flush: Nanos::new(best[4]) })
}

/// Time of a request that no other program delayed: the first decile of `count`, in ns.
pub(crate) fn undisturbed(count: usize, request: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    time(count, UNDISTURBED, request)
}

/// This quantile of the times of `count` requests, in ns.
fn time(count: usize, quantile: f64, mut request: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let timed = |_| {
        let start = cawl_host::now();
        request().map(|()| cawl_host::now().since(start).get())
    };
    let times = (0..count).map(timed).collect::<io::Result<Vec<f64>>>()?;
    Ok(cawl_core::quantile(&times, quantile).unwrap_or(f64::NAN))
}
