//! The network mount from outside: what requests over the link cost a program, under each policy.
//!
//! What a call takes is the sum of its requests, so the figures are of calls whose requests are known: close
//! of a second descriptor is one without data, a small write with fsync is a write and one more, and large
//! writes and reads past the page cache are one full request each.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use cawl_core::{Bytes, CachePolicy, Nanos};
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;

use super::{Bench, Figure};
use crate::net::NetSpec;
use crate::network_mount;
use crate::overhead::undisturbed;
use crate::writer::together;

const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;

/// The constants of a link, as programs find them on a mount.
pub(super) fn constants(bench: &Bench, spec: NetSpec) -> anyhow::Result<Vec<Figure>> {
    // Full requests of some length, so that what one takes is for the most part its data.
    let spec = NetSpec { request: Bytes::mib(1), ..spec };
    let net = network_mount(&bench.lab, spec, None)?;
    // A latency below the way through FUSE cannot be had.
    let latency = spec.latency.max(net.ready.floor).get();
    let transfer = |bytes: usize| bytes as f64 / spec.bandwidth.get() * 1e9;
    let path = net.ready.mount.join("file");
    let (file, direct) = (open(&path, 0)?, open(&path, OFlag::O_DIRECT.bits())?);
    let mut buffer = AlignedBuffer::new(LARGE);
    let small = |data: &[u8]| file.write_all_at(&data[..SMALL], 0);
    let bare = undisturbed(100, || file.try_clone().map(drop))?;
    let synced = undisturbed(100, || small(buffer.bytes()).and_then(|()| file.sync_all()))?;
    let written = undisturbed(20, || direct.write_all_at(buffer.bytes(), 0))?;
    let read = undisturbed(20, || direct.read_exact_at(buffer.bytes_mut(), 0))?;
    let time = |what: &str, should: f64, found: f64| {
        // Two processes are woken on the way of a request; even an idle machine takes 2 µs more or less for
        // it.
        Figure::new(format!("{what}, µs"), should / 1e3, found / 1e3, 0.05, 2.0)
    };
    let rate = |what: &str, took: f64| {
        let found = LARGE as f64 / (took - latency) * 1e3;
        Figure::new(format!("{what}, MB/s"), spec.bandwidth.get() / 1e6, found, 0.05, 0.0)
    };
    let mut figures = vec![
        time("request without data", latency, bare),
        time("4 KiB and fsync", 2.0 * latency + transfer(SMALL), synced),
        rate("write", written),
        rate("read", read),
    ];
    if spec.policy != CachePolicy::WriteBack {
        let written = undisturbed(100, || small(buffer.bytes()))?;
        figures.push(time("4 KiB", latency + transfer(SMALL), written));
    }
    Ok(figures)
}

/// The cost of close after writes that were kept: the data at the bandwidth, several requests at a time.
pub(super) fn close_flushes(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let spec = NetSpec { policy: CachePolicy::WriteBack, ..fast("500us")? };
    let net = network_mount(&bench.lab, spec, None)?;
    let file = open(&net.ready.mount.join("file"), 0)?;
    let data = vec![1; LARGE];
    let start = cawl_host::now();
    for index in 0..32 {
        file.write_all_at(&data, index * LARGE as u64)?;
    }
    drop(file);
    let took = cawl_host::now().since(start);
    let through = Nanos::seconds(32.0 * LARGE as f64 / spec.bandwidth.get());
    Ok(vec![Figure::new("32 MiB until closed, ms", through.get() / 1e6, took.get() / 1e6, 0.05, 1.5)])
}

/// How much sooner 64 requests of 4 ms are done by four threads than by one: their latencies overlap.
pub(super) fn queue(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let net = network_mount(&bench.lab, fast("4ms")?, None)?;
    let time = |threads: usize| -> anyhow::Result<f64> {
        let files = (0..threads).map(|thread| open(&net.ready.mount.join(thread.to_string()), 0));
        let files = files.collect::<io::Result<Vec<File>>>()?;
        let start = cawl_host::now();
        together(threads, |thread| Ok((0..64 / threads).try_for_each(|_| files[thread].sync_all())?))?;
        Ok(cawl_host::now().since(start).get())
    };
    Ok(vec![Figure::new("one at a time / four at a time", 4.0, time(1)? / time(4)?, 0.25, 0.0)])
}

/// A link of this latency and 100 MB/s.
pub(super) fn fast(latency: &str) -> anyhow::Result<NetSpec> {
    format!("{latency},100MB/s").parse()
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}
