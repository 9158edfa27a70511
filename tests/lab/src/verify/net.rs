//! The network mount from outside: what requests over the link cost a program, under each policy.
//!
//! What a call takes is the sum of its requests, so the figures are of calls whose requests are known: close of
//! a second descriptor is one without data, a small write with fsync is a write and one more, and large writes
//! and reads are full requests.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use cawl_core::Nanos;
use cawl_host::direct::AlignedBuffer;
use nix::fcntl::OFlag;

use super::{Bench, Figure, undisturbed};
use crate::net::{NetSpec, Policy, Requests};
use crate::network_mount;

const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;

/// The constants of a link, as programs find them on a mount.
pub(super) fn constants(bench: &Bench, spec: NetSpec) -> anyhow::Result<Vec<Figure>> {
    let net = network_mount(&bench.lab, spec, None)?;
    let mount = &net.ready.mount;
    // One latency counts fully only if the way through FUSE is no longer.
    let latency = spec.latency.max(net.ready.floor).get();
    let transfer = |bytes: usize| bytes as f64 / spec.bandwidth.get() * 1e9;
    let path = mount.join("file");
    let file = open(&path, 0)?;
    let mut figures = Vec::new();
    let mut time = |what: &str, should: f64, found: f64| {
        // Two processes are woken on the way of a request; 2 µs is what the way itself is off by.
        figures.push(Figure::new(format!("{what}, µs"), should / 1e3, found / 1e3, 0.05, 2.0));
    };
    time("request without data", latency, undisturbed(100, || file.try_clone().map(drop))?);
    let buffer = AlignedBuffer::new(LARGE);
    let small = |file: &File| file.write_all_at(&buffer.bytes()[..SMALL], 0);
    let synced = undisturbed(100, || small(&file).and_then(|()| file.sync_all()))?;
    time("4 KiB and fsync", 2.0 * latency + transfer(SMALL), synced);
    if spec.policy != Policy::WriteBack {
        time("4 KiB", latency + transfer(SMALL), undisturbed(100, || small(&file))?);
    }
    let direct = open(&path, OFlag::O_DIRECT.bits())?;
    figures.extend(large(spec, mount, &direct, buffer)?);
    Ok(figures)
}

/// Bandwidth of full requests past the page cache, less the latency of each.
fn large(spec: NetSpec, mount: &Path, file: &File, mut buffer: AlignedBuffer) -> anyhow::Result<Vec<Figure>> {
    let requests = || Requests::of(mount).map(|requests| requests.write + requests.read);
    let mut rate =
        |what: &str, mut call: Box<dyn FnMut() -> io::Result<()> + '_>| -> anyhow::Result<Figure> {
            let before = requests()?;
            let time = undisturbed(20, &mut call)?;
            let each = (requests()? - before) as f64 / 20.0;
            let found = LARGE as f64 / (time - each * spec.latency.get()) * 1e3;
            Ok(Figure::new(format!("{what}, MB/s"), spec.bandwidth.get() / 1e6, found, 0.05, 0.0))
        };
    let write = rate("write", Box::new(|| file.write_all_at(buffer.bytes(), 0)))?;
    let read = rate("read", Box::new(|| file.read_exact_at(buffer.bytes_mut(), 0)))?;
    Ok(vec![write, read])
}

/// The cost of close after writes that were kept: the data at the bandwidth, several requests at a time.
pub(super) fn close_flushes(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let spec = NetSpec { policy: Policy::WriteBack, ..fast("500us")? };
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

/// A link of this latency and 100 MB/s.
pub(super) fn fast(latency: &str) -> anyhow::Result<NetSpec> {
    format!("{latency},100MB/s").parse()
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}
