//! The kernel model, by law:
//!
//! | module | purpose |
//! |---|---|
//! | invariants | what holds whatever a program does: the clock, the account of bytes, finite predictions, copies of a model |
//! | throttle | pauses: who is held back, when a task is checked, and what lockstep makes of pauses that do not come |
//! | writeback | what the flusher writes back, in which pieces, and to which device |
//! | cache | pages and folios of files: dirty, clean, dropped |
//! | sync | calls that wait for the device: journal, flush, latency, direct writes |
//! | copying | what copying costs: cold memory, new folios, inodes, time away, the processor's cache |
//! | filesystems | what differs by filesystem: files in memory, logs of files, large folios, overlays |
//! | foreign | dirty pages of untraced writers, and how far the kernel's own flusher is |
//! | freeing | what leaves the cache, what a device discards, and what close and rename begin to write |
//! | lock | the lock of an inode: who waits for whom |
//! | netfs | files that are elsewhere: the policies of the page cache, requests, open and close |
//! | memory | memory that is short: what of the page cache is dropped for what comes in |
//! | reads | what is cached, what is read ahead, and what waits for the device |
//! | copies | copies inside the kernel: copy_file_range, sendfile, splice |

mod cache;
mod copies;
mod copying;
mod filesystems;
mod foreign;
mod freeing;
mod invariants;
mod lock;
mod memory;
mod netfs;
mod reads;
mod sync;
mod throttle;
mod writeback;

use cawl_core::{
    Bytes, CostModel, DirtyLimits, HostProfile, Kernel, Measured, Nanos, Prediction, Rate, Time,
};
use cawl_wire::{Event, FileKind, Op};

/// One thing a program may do; sizes in KiB, times in ms.
#[derive(Clone, Copy, Debug)]
struct Operation {
    op: Op,
    file: u64,
    device: u64,
    task: u32,
    offset: u64,
    size: u64,
    think: u64,
    flags: u32,
    aux: u32,
}

impl Operation {
    fn event(&self, start: u64) -> Event {
        let mut event = Event::new(self.op);
        event.start = start;
        (event.dev, event.ino) = (self.device, self.file);
        (event.pid, event.tid, event.fd) = (1, self.task, self.file as i32);
        event.offset = self.offset * 1000;
        (event.requested, event.returned) = (self.size * 1024, (self.size * 1024) as i64);
        (event.kind, event.flags, event.aux) = (FileKind::Regular, self.flags, self.aux);
        event
    }
}

/// A small machine, so that limits are reached soon.
fn profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(32) };
    profile.device.writeback.value = Rate::mb_per_second(120.0);
    profile.device.queue = Bytes::mib(8);
    profile
}

/// A machine with room for what is copied here.
fn roomy() -> HostProfile {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(8192), hard: Bytes::mib(16_384) };
    profile
}

fn write(start: u64, offset: u64, bytes: u64) -> Event {
    let mut event = Event::new(Op::Write);
    (event.start, event.offset, event.dev, event.ino) = (start, offset, 1, 1);
    (event.requested, event.returned, event.kind) = (bytes, bytes as i64, FileKind::Regular);
    event
}

/// Writes `count` chunks one after another and returns the whole cost in seconds.
fn stream(model: &mut Kernel, start: &mut u64, file: u64, tid: u32, count: u64) -> f64 {
    const CHUNK: u64 = 1 << 20;
    let mut total = 0.0;
    for chunk in 0..count {
        let event = Event { ino: file, tid, ..write(*start, chunk * CHUNK, CHUNK) };
        let cost = model.step(&event).expect("a write has a cost").cost;
        *start = (Time(*start) + cost).0;
        total += cost.as_seconds();
    }
    total
}

/// A program's calls, one after the other, on a disk with flushes of 20 ms and commits of 41.
struct Program {
    model: Kernel,
    now: u64,
}

impl Program {
    fn new() -> Program {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(256), hard: Bytes::mib(512) };
        profile.device.fsync = Measured::assumed(Nanos::millis(41.0));
        profile.device.sync_call = Measured::assumed(Nanos::millis(41.0));
        profile.device.flush = Some(Measured::assumed(Nanos::millis(20.0)));
        Program::on(&profile)
    }

    fn on(profile: &HostProfile) -> Program {
        Program { model: Kernel::new(profile), now: 0 }
    }

    fn call(&mut self, event: Event) -> Option<Prediction> {
        let prediction = self.model.step(&Event { start: self.now, ..event });
        self.now += prediction.map_or(1000, |prediction| prediction.cost.get() as u64 + 1);
        prediction
    }

    /// Waiting for the device, in ms.
    fn waits(&mut self, event: Event) -> f64 {
        self.call(event).expect("a cost").parts.device().as_seconds() * 1e3
    }

    fn waits_at(&mut self, op: Op) -> f64 {
        self.waits(Event { op, ..write(0, 0, 0) })
    }

    fn dirty(&self) -> u64 {
        self.model.state().dirty.0 / 4096
    }
}

fn with(flags: u32, offset: u64, bytes: u64) -> Event {
    Event { flags, ..write(0, offset, bytes) }
}

fn range(op: Op, offset: u64, bytes: u64, aux: u32) -> Event {
    Event { op, requested: bytes, returned: 0, aux, ..write(0, offset, 0) }
}

/// A program on a disk whose requests take 90 µs, flushes 70 and commits 150.
fn small_writes() -> Program {
    let mut profile = profile();
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    profile.device.latency = Some(micros(90.0));
    profile.device.flush = Some(micros(70.0));
    profile.device.fsync = micros(150.0);
    profile.device.sync_call = micros(155.0);
    profile.calls.inode = Some(micros(4.0));
    profile.calls.away = Some(micros(3.0));
    Program::on(&profile)
}
