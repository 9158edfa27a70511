//! One run of the study: a file is written, and the kernel tells how long that took and what it computed.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use cawl_core::{Bytes, Nanos, median};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::Scratch;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde::Serialize;

use super::grid::{Arm, Run, Sizes};

/// Name of the file that is written.
const FILE: &str = "data";
/// Calls by which a synchronous write is known before the study.
const PROBE: u64 = 32;

/// What a run took, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Taken {
    /// From before the open to after the close (CLOCK_MONOTONIC).
    pub wall: f64,
    /// The process's time in user mode (getrusage, RUSAGE_SELF).
    pub user: f64,
    /// Its time in the kernel.
    pub sys: f64,
}

impl Taken {
    /// What is left of the wall time: waiting, mostly. May be negative by the kernel's resolution.
    pub fn unaccounted(&self) -> f64 {
        self.wall - self.user - self.sys
    }
}

/// A run that was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Made {
    /// Bytes that each call writes.
    pub block_size: u64,
    /// The arm.
    pub sync: Arm,
    /// Bytes of the file.
    pub num_bytes: u64,
    /// Times, in seconds.
    #[serde(flatten)]
    pub taken: Taken,
    /// Wall time less user and system time, in seconds.
    pub unaccounted: f64,
    /// Which repetition it was, from 1.
    pub repeat: usize,
}

/// Makes a run. Pending data of the filesystem are written out before, and the file is removed afterwards.
pub fn made(scratch: &Scratch, run: &Run, signal: &AtomicUsize) -> anyhow::Result<Made> {
    scratch.sync()?;
    let taken = write(scratch, run, signal);
    scratch.remove(FILE);
    let taken = taken.with_context(|| {
        let Run { sizes, sync, .. } = run;
        format!("writing {} in blocks of {} ({}) failed", sizes.file, sizes.block, sync.name())
    })?;
    Ok(Made::of(run, taken))
}

impl Made {
    /// A run that took so long.
    pub fn of(run: &Run, taken: Taken) -> Made {
        Made {
            block_size: run.sizes.block.0,
            sync: run.sync,
            num_bytes: run.sizes.file.0,
            taken,
            unaccounted: taken.unaccounted(),
            repeat: run.repeat,
        }
    }
}

fn write(scratch: &Scratch, run: &Run, signal: &AtomicUsize) -> anyhow::Result<Taken> {
    let path = scratch.path(FILE);
    let block = vec![b'x'; run.sizes.block.0 as usize];
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(run.sync.of_open().bits());
    let (began, used) = (cawl_host::now(), getrusage(UsageWho::RUSAGE_SELF)?);
    let mut file = options.open(&path)?;
    for _ in 0..run.sizes.blocks() {
        Interrupted::by(signal)?;
        file.write_all(&block)?;
    }
    if run.sync == Arm::Fsync {
        file.sync_all()?;
    }
    drop(file);
    let (ended, since) = (cawl_host::now(), getrusage(UsageWho::RUSAGE_SELF)?);
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(Taken {
        wall: ended.since(began).as_seconds(),
        user: seconds(since.user_time() - used.user_time()),
        sys: seconds(since.system_time() - used.system_time()),
    })
}

/// What a small synchronous write takes here: the median of a few files of some calls.
pub fn probe(scratch: &Scratch, signal: &AtomicUsize) -> anyhow::Result<Nanos> {
    let block = Bytes(512);
    let run = Run { sizes: Sizes { block, file: Bytes(block.0 * PROBE) }, sync: Arm::OSync, repeat: 0 };
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(made(scratch, &run, signal)?.taken.wall / PROBE as f64);
    }
    Ok(Nanos::seconds(median(&times).unwrap_or(0.0)))
}
