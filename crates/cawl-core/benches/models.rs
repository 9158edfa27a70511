//! What one call costs each model, by the number of extents that are alive.
//!
//! `sequential`: appends to one file while another has that many extents. `random`: 4 KiB blocks, some new
//! and some dirty already. `flushing`: the same above the background limit, so that each call also cleans.
//! `fork`: an independent copy of the whole model. `predict`: a job of writing asked of a copy of the kernel
//! model, while this number of files is dirty, the copy and its end included.

use std::hint::black_box;

use cawl_core::{
    Bytes, CostModel, DirtyLimits, HostProfile, Job, MODELS, Nanos, Rate, Scene, Time, build, predict,
};
use cawl_wire::{Event, FileKind, Op};
use criterion::{BenchmarkId, Criterion};

const BLOCK: u64 = 4096;

struct Load {
    model: Box<dyn CostModel>,
    event: Event,
    random: u64,
}

impl Load {
    /// A model in which a file has `extents` extents, every other block of it dirty.
    fn new(name: &str, extents: u64, background: u64) -> Load {
        let mut profile = HostProfile::uncalibrated();
        let limits = DirtyLimits { background: Bytes(background), hard: Bytes::mib(1 << 30) };
        profile.kernel.limits = limits;
        profile.kernel.expire = Nanos::seconds(1e9);
        let model = build(name, &profile).expect("a name from the list");
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino) = (FileKind::Regular, 1, 1);
        (event.requested, event.returned) = (BLOCK, BLOCK as i64);
        let mut load = Load { model, event, random: 1 };
        // Blocks in an order that no coalescing can profit from: a full cycle of an odd stride.
        let cycle = extents.next_power_of_two();
        (0..cycle).map(|i| i.wrapping_mul(0x9E37_79B1) % cycle).filter(|i| *i < extents).for_each(|i| {
            load.call(1, i * 2 * BLOCK);
        });
        load
    }

    fn call(&mut self, ino: u64, offset: u64) {
        (self.event.ino, self.event.offset) = (ino, offset);
        let prediction = self.model.step(&self.event).expect("a write has a cost");
        self.event.start += black_box(prediction).cost.get() as u64 + 100;
    }

    fn random(&mut self, blocks: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % blocks * BLOCK
    }
}

fn models(criterion: &mut Criterion) {
    for name in MODELS {
        let mut group = criterion.benchmark_group(*name);
        group.sample_size(20);
        for extents in [10_000, 100_000, 1_000_000] {
            let mut load = Load::new(name, extents, 1 << 49);
            let mut offset = 0;
            group.bench_function(BenchmarkId::new("sequential", extents), |bencher| {
                bencher.iter(|| {
                    load.call(2, offset);
                    offset += BLOCK;
                });
            });
            group.bench_function(BenchmarkId::new("random", extents), |bencher| {
                bencher.iter(|| {
                    let offset = load.random(extents * 2);
                    load.call(1, offset);
                });
            });
            group.bench_function(BenchmarkId::new("fork", extents), |bencher| {
                bencher.iter(|| black_box(load.model.fork()));
            });
            let mut load = Load::new(name, extents, extents * BLOCK);
            group.bench_function(BenchmarkId::new("flushing", extents), |bencher| {
                bencher.iter(|| {
                    let offset = load.random(extents * 2);
                    load.call(1, offset);
                });
            });
        }
        group.finish();
    }
}

fn jobs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("predict");
    for files in [10, 1_000, 20_000] {
        let mut profile = HostProfile::uncalibrated();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(1024), hard: Bytes::mib(2048) };
        let mut model = build("kernel", &profile).expect("a name from the list");
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev) = (FileKind::Regular, 1);
        (event.requested, event.returned) = (6 * BLOCK, 6 * BLOCK as i64);
        for ino in 1..=files {
            event.ino = ino;
            let prediction = model.step(&event).expect("a write has a cost");
            event.start += prediction.cost.get() as u64 + 100;
        }
        let job = Job {
            bytes: Bytes::mib(4096),
            chunk: Bytes::mib(1),
            sync: false,
            fsync: false,
            after: Nanos::ZERO,
            device: None,
            others: Rate::mb_per_second(100.0),
        };
        group.bench_function(BenchmarkId::from_parameter(files), |bencher| {
            bencher.iter(|| predict(Scene::new(model.as_ref(), Time(event.start), 1), black_box(&job)));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    models(&mut criterion);
    jobs(&mut criterion);
    criterion.final_summary();
}
