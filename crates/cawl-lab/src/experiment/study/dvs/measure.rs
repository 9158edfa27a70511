//! The passes over a file, timed: written and closed, the same past the cache, written again, and read twice
//! by who only reads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use cawl_host::direct::AlignedBuffer;
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::Scratch;
use nix::fcntl::OFlag;
use serde::Serialize;

use super::super::Bench;
use super::median;

const FILE: &str = "transfers";

/// Times of the passes, in ns; those of calls are medians.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// Of opening the new file, and of closing it.
    pub open: f64,
    pub close: f64,
    /// Of a write into a new file, of one past the cache (O_DIRECT), and of one over what is cached.
    pub write: f64,
    pub past: f64,
    pub rewrite: f64,
    /// Of a read after the file was opened anew: their mean, since a few of them wait for what is read ahead.
    pub read: f64,
    /// Of the same again: their mean, too, since pages move to the list of active ones in batches.
    pub reread: f64,
    /// Of writing the file, from open to close; and the same past the cache.
    pub whole: f64,
    pub whole_past: f64,
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
            past: of(|times| times.past),
            rewrite: of(|times| times.rewrite),
            read: of(|times| times.read),
            reread: of(|times| times.reread),
            whole: of(|times| times.whole),
            whole_past: of(|times| times.whole_past),
        }
    }
}

/// Makes them, with `calls` transfers of this size each.
pub fn measure(bench: &Bench, scratch: &Scratch, size: u64, calls: u64) -> anyhow::Result<Times> {
    Interrupted::by(bench.signal)?;
    let mut buffer = AlignedBuffer::new(size as usize);
    let mut times = Times { past: f64::NAN, whole_past: f64::NAN, ..Times::default() };
    // Past the cache first, so that the file that is kept is not the one whose memory comes anew.
    let (mut open, mut close) = (0.0, 0.0);
    if let Some(file) = timed(&mut open, || scratch.direct_file(FILE, OFlag::empty()))? {
        let write = |at| Ok(file.write_all_at(buffer.bytes(), at * size)?);
        // Some filesystems accept the flag and refuse the call.
        if let Ok((past, sum)) = pass(calls, write) {
            timed(&mut close, || closed(file))?;
            (times.past, times.whole_past) = (past, open + sum + close);
        }
        scratch.remove(FILE);
    }
    let file = timed(&mut times.open, || scratch.file(FILE))?;
    let (write, sum) = pass(calls, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    timed(&mut times.close, || closed(file))?;
    (times.write, times.whole) = (write, times.open + sum + times.close);
    let file = scratch.again(FILE, OFlag::empty())?;
    pass(calls, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    (times.rewrite, _) = pass(calls, |at| Ok(file.write_all_at(buffer.bytes(), at * size)?))?;
    drop(file);
    let file = File::open(scratch.path(FILE))?;
    let mut read = |at| Ok(file.read_exact_at(buffer.bytes_mut(), at * size)?);
    times.read = pass(calls, &mut read)?.1 / calls as f64;
    times.reread = pass(calls, &mut read)?.1 / calls as f64;
    // Who has it open would have its pages dropped in the time of the next open.
    drop(file);
    scratch.remove(FILE);
    Ok(times)
}

fn closed(file: File) -> anyhow::Result<()> {
    drop(file);
    Ok(())
}

fn timed<T>(time: &mut f64, action: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let start = cawl_host::now();
    let done = action()?;
    *time = cawl_host::now().since(start).get();
    Ok(done)
}

/// The median of the times of calls, and their sum.
fn pass(calls: u64, mut call: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<(f64, f64)> {
    let mut times = Vec::with_capacity(calls as usize);
    for at in 0..calls {
        let start = cawl_host::now();
        call(at)?;
        times.push(cawl_host::now().since(start).get());
    }
    Ok((median(&times).unwrap_or(f64::NAN), times.iter().sum::<f64>()))
}
