//! What the page cache keeps, by what calls cost.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::Context;
use cawl_core::{CachePolicy, median};
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};

use super::super::bench::{Bench, no_space, timed};
use super::{PAGE, closing};

/// Calls of each kind.
const CALLS: u64 = 8;
/// Bytes from one call to the next, more than any readahead.
const APART: u64 = 4 << 20;
/// A call that takes less than this part of a round trip did not wait for one.
const PART: f64 = 0.5;
/// Bytes that a close has to send which is told from one that has nothing to.
const DIRTY: usize = 1 << 20;
const FILE: &str = "policy";

#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub policy: CachePolicy,
    /// Open keeps what is cached.
    pub open_keeps: bool,
    /// With write-back: close sends what is dirty.
    pub close_flushes: bool,
    /// With write-back: a page that is written in part is read first.
    pub reads_partial: bool,
}

impl Default for Found {
    fn default() -> Found {
        let policy = CachePolicy::None;
        Found { policy, open_keeps: false, close_flushes: true, reads_partial: true }
    }
}

/// Looks at the mount.
pub fn found(bench: &mut Bench) -> anyhow::Result<Found> {
    bench.progress.begin("what the page cache keeps");
    bench.spend(2 * CALLS * PAGE as u64 + DIRTY as u64);
    let page = &bench.data.bytes()[..PAGE];
    let mut buffer = AlignedBuffer::new(PAGE);
    let file = random(bench.scratch.file(FILE)?)?;
    let written = each(bench, |at| file.write_all_at(page, at).with_context(no_space))?;
    let again = each(bench, |at| Ok(file.read_exact_at(buffer.bytes_mut(), at)?))?;
    // What makes a page durable takes more than one.
    let synced = each(bench, |at| {
        file.write_all_at(page, at).with_context(no_space)?;
        Ok(file.sync_data()?)
    })?;
    drop(file);
    let trip = match reader(bench, OFlag::O_DIRECT) {
        Ok(direct) => {
            each(bench, |at| Ok(direct.read_exact_at(buffer.bytes_mut(), at)?)).unwrap_or(synced / 3.0)
        }
        Err(_) => synced / 3.0,
    };
    let is_fast = |time: f64| time < PART * trip;
    let plain = reader(bench, OFlag::empty())?;
    let first = each(bench, |at| Ok(plain.read_exact_at(buffer.bytes_mut(), at)?))?;
    let second = each(bench, |at| Ok(plain.read_exact_at(buffer.bytes_mut(), at)?))?;
    drop(plain);
    let mut found = Found::default();
    found.policy = match () {
        () if is_fast(written) => CachePolicy::WriteBack,
        () if is_fast(again) => CachePolicy::WriteThrough,
        () if is_fast(second) => CachePolicy::ReadOnly,
        () => CachePolicy::None,
    };
    found.open_keeps = match found.policy {
        CachePolicy::None => false,
        CachePolicy::WriteThrough | CachePolicy::WriteBack => is_fast(first),
        CachePolicy::ReadOnly => {
            let plain = reader(bench, OFlag::empty())?;
            is_fast(each(bench, |at| Ok(plain.read_exact_at(buffer.bytes_mut(), at)?))?)
        }
    };
    if found.policy == CachePolicy::WriteBack {
        let clean = closing(bench.scratch.again(FILE, OFlag::empty())?)?;
        let file = bench.scratch.again(FILE, OFlag::empty())?;
        bench.write_run(&file, CALLS * APART, DIRTY, PAGE)?;
        found.close_flushes = closing(file)? > clean + PART * trip;
        let file = bench.scratch.again(FILE, OFlag::empty())?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        let partial = each(bench, |at| file.write_all_at(&page[..16], at + 16).with_context(no_space))?;
        found.reads_partial = !is_fast(partial);
    }
    bench.scratch.remove(FILE);
    Ok(found)
}

/// Calls at places apart from each other: the median of their times in ns.
fn each(bench: &Bench, mut call: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(CALLS as usize);
    for at in 0..CALLS {
        bench.go_on()?;
        times.push(timed(|| call(at * APART))?);
    }
    Ok(median(&times).unwrap_or(f64::NAN))
}

/// The file, opened for reading only.
fn reader(bench: &Bench, flags: OFlag) -> anyhow::Result<File> {
    random(OpenOptions::new().read(true).custom_flags(flags.bits()).open(bench.scratch.path(FILE))?)
}

/// Nothing of it is read ahead.
fn random(file: File) -> anyhow::Result<File> {
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM)?;
    Ok(file)
}
