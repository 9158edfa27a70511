//! The emulated disk from outside: the constants that a user of the block device finds.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use cawl_core::Nanos;
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;

use super::{Bench, Figure};
use crate::overhead::undisturbed;
use crate::writer::together;
use crate::{DiskSpec, Filesystem};

const SMALL: usize = 4 << 10;
/// One request however scattered the memory is: a loop device takes 128 segments in one.
const LARGE: usize = 512 << 10;
/// Bytes that a large request has more than a small one.
const EXTRA: f64 = (LARGE - SMALL) as f64;

/// Requests to a device past the page cache, one after another.
struct Requests {
    file: File,
    buffer: AlignedBuffer,
    at: u64,
}

impl Requests {
    fn to(device: &Path) -> io::Result<Requests> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(OFlag::O_DIRECT.bits()).open(device)?;
        Ok(Requests { file, buffer: AlignedBuffer::new(LARGE), at: 0 })
    }

    fn transfer(&mut self, write: bool, size: usize, jump: bool) -> io::Result<()> {
        let bytes = &mut self.buffer.bytes_mut()[..size];
        self.at = if jump { (self.at + (3 << 30) + 4096) % (30 << 30) } else { self.at };
        match write {
            true => self.file.write_all_at(bytes, self.at)?,
            false => self.file.read_exact_at(bytes, self.at)?,
        }
        self.at += size as u64;
        Ok(())
    }

    /// Time that a large request takes longer than a small one, in ns.
    fn extra_time(&mut self, write: bool) -> io::Result<f64> {
        self.transfer(write, SMALL, false)?;
        let small = undisturbed(200, || self.transfer(write, SMALL, false))?;
        Ok(undisturbed(100, || self.transfer(write, LARGE, false))? - small)
    }
}

/// The constants of a disk.
pub(super) fn constants(bench: &Bench, spec: DiskSpec) -> anyhow::Result<Vec<Figure>> {
    let disk = bench.disk(spec, Filesystem::None)?;
    // Three processes are woken on the way. On virtual processors that can take as long again as it does at
    // best, or twice.
    let slack = 2.0 * disk.ready.floor.get() / 1e3;
    let mut requests = Requests::to(&disk.ready.device)?;
    let write = EXTRA / requests.extra_time(true)? * 1e3;
    let read = EXTRA / requests.extra_time(false)? * 1e3;
    let transfer = SMALL as f64 / write * 1e3;
    requests.transfer(true, SMALL, false)?;
    let latency = undisturbed(200, || requests.transfer(true, SMALL, false))? - transfer;
    let seek = undisturbed(20, || requests.transfer(true, SMALL, true))? - transfer - latency;
    let flush = undisturbed(20, || requests.file.sync_all())?;
    let micros = |span: Nanos| span.get() / 1e3;
    let mut figures = vec![
        Figure::new("write, MB/s", spec.write.get() / 1e6, write, 0.1, 0.0),
        Figure::new("read, MB/s", spec.read.get() / 1e6, read, 0.1, 0.0),
        Figure::new("latency, µs", micros(spec.latency), latency / 1e3, 0.1, slack),
        Figure::new("flush, µs", micros(spec.flush), flush / 1e3, 0.1, slack),
    ];
    if spec.seek > Nanos::ZERO {
        figures.push(Figure::new("seek, µs", micros(spec.seek), seek / 1e3, 0.1, slack));
    }
    Ok(figures)
}

/// How much sooner 64 requests of 4 ms are done with four at a time than with one.
pub(super) fn queue(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let time = |depth: u32| -> anyhow::Result<f64> {
        let spec = DiskSpec { latency: Nanos::millis(4.0), depth, ..DiskSpec::SSD };
        let disk = bench.disk(spec, Filesystem::None)?;
        let start = cawl_host::now();
        together(4, |thread| {
            let mut requests = Requests::to(&disk.ready.device)?;
            requests.at = (thread as u64) << 30;
            Ok((0..16).try_for_each(|_| requests.transfer(true, SMALL, false))?)
        })?;
        Ok(cawl_host::now().since(start).get())
    };
    Ok(vec![Figure::new("one at a time / four at a time", 4.0, time(1)? / time(4)?, 0.25, 0.0)])
}
