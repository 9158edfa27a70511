//! The passes over a file, timed: written, written again and read through one descriptor, closed, and read
//! through another one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;
use serde::Serialize;

use super::super::Bench;
use super::median;
use crate::interrupt::Interrupted;
use crate::scratch::Scratch;

const FILE: &str = "transfers";

/// Times of the passes, in ns; those of calls are medians.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// Of opening the new file, and of closing it.
    pub open: f64,
    pub close: f64,
    /// Of a write of the first pass and of the second, and of a read of the same.
    pub write: f64,
    pub rewrite: f64,
    pub read: f64,
    /// Of a read through another descriptor: their mean, since a few of them wait for what is read ahead.
    pub read_again: f64,
    /// Of writing the file, from open to close.
    pub whole: f64,
}

impl Times {
    /// The medians of all of them.
    pub fn median(all: &[Times]) -> Times {
        let of =
            |each: fn(&Times) -> f64| median(&all.iter().map(each).collect::<Vec<_>>()).unwrap_or(f64::NAN);
        Times {
            open: of(|times| times.open),
            close: of(|times| times.close),
            write: of(|times| times.write),
            rewrite: of(|times| times.rewrite),
            read: of(|times| times.read),
            read_again: of(|times| times.read_again),
            whole: of(|times| times.whole),
        }
    }
}

/// Makes them: a file of `calls` transfers for figures 1 and 2, then one for the other passes.
pub fn measure(bench: &Bench, scratch: &Scratch, size: u64, calls: u64) -> anyhow::Result<Times> {
    Interrupted::by(bench.signal)?;
    let mut buffer = AlignedBuffer::new(size as usize);
    let mut times = Times::default();
    let file = timed(&mut times.open, || scratch.file(FILE))?;
    let mut sum = 0.0;
    (times.write, sum) = pass(calls, sum, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    timed(&mut times.close, || {
        drop(file);
        Ok(())
    })?;
    times.whole = times.open + sum + times.close;
    let file = scratch.again(FILE, OFlag::empty())?;
    pass(calls, 0.0, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    (times.rewrite, _) = pass(calls, 0.0, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    (times.read, _) = pass(calls, 0.0, |at| Ok(file.read_exact_at(buffer.bytes_mut(), at * size)?))?;
    drop(file);
    let file = File::open(scratch.path(FILE))?;
    let (_, sum) = pass(calls, 0.0, |at| Ok(file.read_exact_at(buffer.bytes_mut(), at * size)?))?;
    times.read_again = sum / calls as f64;
    drop(file);
    scratch.remove(FILE);
    Ok(times)
}

fn timed<T>(time: &mut f64, action: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let start = cawl_host::now();
    let done = action()?;
    *time = cawl_host::now().since(start).get();
    Ok(done)
}

/// The median of the times of calls, and their sum on top of another one.
fn pass(
    calls: u64,
    before: f64,
    mut call: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<(f64, f64)> {
    let mut times = Vec::with_capacity(calls as usize);
    for at in 0..calls {
        let start = cawl_host::now();
        call(at)?;
        times.push(cawl_host::now().since(start).get());
    }
    Ok((median(&times).unwrap_or(f64::NAN), before + times.iter().sum::<f64>()))
}
