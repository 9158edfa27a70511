//! The kernel model over ten million calls: sequential 4 KiB writes, throttled most of the time, and the
//! same in free run. `models.rs` has the cost of single calls by the number of extents.

use std::hint::black_box;

use cawl_core::{Bytes, CostModel, DirtyLimits, HostProfile, Kernel};
use cawl_wire::{Event, FileKind, Op};
use criterion::Criterion;

const CALLS: u64 = 10_000_000;

fn replay(hard: Bytes) -> f64 {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes(hard.0 / 2), hard };
    let mut model = Kernel::new(&profile);
    let mut event = Event::new(Op::Write);
    (event.kind, event.ino, event.returned) = (FileKind::Regular, 1, 4096);
    let mut total = 0.0;
    for call in 0..CALLS {
        event.offset = call * 4096;
        let cost = model.step(&event).map_or(0.0, |prediction| prediction.cost.get());
        event.start += cost as u64 + 100;
        total += cost;
    }
    total
}

fn kernel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernel-replay-10M");
    group.sample_size(10);
    group.bench_function("throttled", |bencher| bencher.iter(|| black_box(replay(Bytes::mib(1024)))));
    group.bench_function("free", |bencher| bencher.iter(|| black_box(replay(Bytes::mib(1 << 20)))));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    kernel(&mut criterion);
    criterion.final_summary();
}
