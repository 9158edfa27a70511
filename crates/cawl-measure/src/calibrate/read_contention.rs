//! How long a read waits for the writes that the device has, and for what it reads for others.
//!
//! Threads write a file past the page cache, so that the device always has as many requests as there are
//! threads; another one reads small blocks. A device that serves requests in the order in which they come
//! lets a read wait for all that were there before it, half of one of them on its way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cawl_core::Estimate;
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;

use super::bench::{Bench, LARGEST, since, timed};
use super::device::Device;

/// Requests that the device has, and their size.
const WRITERS: usize = 4;
const WRITE: usize = 256 << 10;
const READ: usize = 4 << 10;
/// Fewest and most reads, and the time after which no further one begins beyond the fewest, in ns.
const READS: (usize, usize, f64) = (4, 24, 0.3e9);

/// The part of these writes that a read waits for. None in a brief calibration, for which this takes too
/// long, without direct I/O, or if the bytes that may be written do not suffice; `alone` is the time of a
/// read without the transfer.
pub fn measure(
    bench: &mut Bench,
    device: &Device,
    alone: Option<Estimate>,
) -> anyhow::Result<Option<Estimate>> {
    let (Some(transfer), Some(read), Some(alone)) = (device.transfer, device.read, alone) else {
        return Ok(None);
    };
    let Ok(file) = bench.scratch.again("device", OFlag::O_DIRECT) else { return Ok(None) };
    let places = file.metadata()?.len() / WRITE as u64;
    let all = ((READS.1 + 1) * WRITERS * WRITE) as u64;
    if bench.brief || places < 2 * WRITERS as u64 || all > bench.bytes_left {
        return Ok(None);
    }
    let (cursor, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        let write = || {
            let data = AlignedBuffer::new(WRITE);
            while !over.load(Ordering::Relaxed) {
                let at = cursor.fetch_add(1, Ordering::Relaxed) % places;
                file.write_all_at(data.bytes(), at * WRITE as u64)?;
            }
            anyhow::Ok(())
        };
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
        let times = read_meanwhile(bench, &file, places, &cursor);
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| anyhow::anyhow!("a thread that writes ended"))??;
        }
        times
    })?;
    let written = cursor.load(Ordering::Relaxed) * WRITE as u64;
    bench.spend(written.min(bench.bytes_left));
    let ahead = (WRITERS as f64 - 0.5) * WRITE as f64 * transfer.value;
    // The arm goes back to where it writes.
    let seek = device.seek.map_or(0.0, |seek| seek.value);
    let own = alone.value + READ as f64 * read.value + seek;
    Ok(Estimate::of(&times.iter().map(|time| (time - own) / ahead).collect::<Vec<_>>()))
}

/// The part of long reads by another thread that a read waits for, half of one of them on its way. None as
/// for [`measure`].
pub fn reads(bench: &Bench, device: &Device, alone: Option<Estimate>) -> anyhow::Result<Option<Estimate>> {
    let (Some(read), Some(alone)) = (device.read, alone) else { return Ok(None) };
    let Ok(file) = bench.scratch.again("device", OFlag::O_DIRECT) else { return Ok(None) };
    let places = file.metadata()?.len() / WRITE as u64;
    let step = (LARGEST / WRITE) as u64;
    if bench.brief || places < 4 * step {
        return Ok(None);
    }
    let (cursor, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let times = std::thread::scope(|scope| {
        let read = || {
            let mut data = AlignedBuffer::new(LARGEST);
            while !over.load(Ordering::Relaxed) {
                let at = cursor.fetch_add(step, Ordering::Relaxed) % (places - step);
                file.read_exact_at(data.bytes_mut(), at * WRITE as u64)?;
            }
            anyhow::Ok(())
        };
        let reader = scope.spawn(read);
        let times = read_meanwhile(bench, &file, places, &cursor);
        over.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow::anyhow!("a thread that reads ended"))??;
        times
    })?;
    let ahead = LARGEST as f64 / 2.0 * read.value;
    let seek = device.seek.map_or(0.0, |seek| seek.value);
    let own = alone.value + READ as f64 * read.value + seek;
    Ok(Estimate::of(&times.iter().map(|time| (time - own) / ahead).collect::<Vec<_>>()))
}

/// Times of reads of blocks far from what others read or write.
fn read_meanwhile(bench: &Bench, file: &File, places: u64, cursor: &AtomicU64) -> anyhow::Result<Vec<f64>> {
    let (fewest, most, enough) = READS;
    let mut buffer = AlignedBuffer::new(READ);
    let began = cawl_host::now();
    let mut times = Vec::with_capacity(most);
    while cursor.load(Ordering::Relaxed) < WRITERS as u64 {
        bench.go_on()?;
        std::thread::yield_now();
    }
    for _ in 0..most {
        if times.len() >= fewest && since(began) > enough {
            break;
        }
        bench.go_on()?;
        let at = (cursor.load(Ordering::Relaxed) + places / 2) % places * WRITE as u64;
        times.push(timed(|| Ok(file.read_exact_at(buffer.bytes_mut(), at)?))?);
    }
    Ok(times)
}
