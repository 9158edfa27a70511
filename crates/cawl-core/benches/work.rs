//! Work of the core for `bench/accept`, which counts its instructions: `work KIND CALLS`.
//!
//! | kind | a call is |
//! |---|---|
//! | `sequential` | a write of 4 KiB that appends to a file, throttled most of the time |
//! | `random` | a write of 4 KiB to a random block of a file with 10⁶ extents |
//! | `small` | one of five calls on a new file of 4 KiB: open, write, close, and every hundredth an fsync |
//! | `analysis` | a write of `sequential` through model, learning, causes and report |
//! | `settled` | the base rate at which a device settles (`settled_base_rate`) |

use std::hint::black_box;

use cawl_core::{
    Analysis, AnalysisOptions, Bytes, CostModel, DirtyLimits, HostProfile, Kernel, Mode, Record,
    settled_base_rate,
};
use cawl_wire::{Event, FileKind, Op};

/// Extents of the file of `random`.
const EXTENTS: u64 = 1_000_000;
const PAGE: u64 = 4096;

fn profile(hard: Bytes) -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes(hard.0 / 2), hard };
    profile
}

fn write(ino: u64, offset: u64) -> Event {
    let mut event = Event::new(Op::Write);
    (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, ino, 1, 1);
    (event.requested, event.returned, event.offset) = (PAGE, PAGE as i64, offset);
    event
}

/// Lives through a call of which nothing is observed; returns when the next one begins.
fn step(model: &mut Kernel, mut event: Event, at: u64) -> u64 {
    event.start = at;
    let cost = model.step(&event).map_or(0.0, |prediction| prediction.cost.get());
    at + black_box(cost) as u64 + 100
}

fn main() {
    // Cargo adds an argument of its own.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [kind, calls] = &args[..] else { return };
    let calls: u64 = calls.parse().expect("a number of calls");
    let mut at = 0;
    match kind.as_str() {
        "sequential" => {
            let mut model = Kernel::new(&profile(Bytes::mib(256)));
            (0..calls).for_each(|call| at = step(&mut model, write(1, call * PAGE), at));
        }
        "random" => {
            let mut model = Kernel::new(&profile(Bytes::mib(1 << 20)));
            let block = |call: u64| call.wrapping_mul(0x9E37_79B1) % (1 << 20);
            (0..EXTENTS).for_each(|call| at = step(&mut model, write(1, 2 * block(call) * PAGE), at));
            (0..calls).for_each(|call| at = step(&mut model, write(1, block(call * 7 + 3) * PAGE), at));
        }
        "small" => {
            let mut model = Kernel::new(&profile(Bytes::mib(256)));
            for call in 0..calls {
                let ops = [Op::Open, Op::Write, Op::Close, Op::Open, Op::Close];
                let mut event = write(call / 5, 0);
                event.op = ops[(call % 5) as usize];
                if call % 500 == 499 {
                    event.op = Op::Fsync;
                }
                at = step(&mut model, event, at);
            }
        }
        "analysis" => {
            let options = AnalysisOptions {
                learn: true,
                mode: Mode::Assimilated,
                as_calibrated: true,
                ..Default::default()
            };
            let mut analysis = Analysis::with(&profile(Bytes::mib(256)), &options).expect("models of ours");
            for call in 0..calls {
                let mut event = write(1, call * PAGE);
                (event.start, event.duration) = (at, 1500 + call % 7 * 100);
                at = event.end() + 100;
                analysis.take(&Record::Event(event));
            }
            black_box(analysis.report());
        }
        "settled" => (0..calls).for_each(|call| {
            let mut profile = profile(Bytes::mib(4096));
            profile.device.writeback.value = cawl_core::Rate::per_second(4e8 + 1e8 * call as f64);
            black_box(settled_base_rate(&profile));
        }),
        other => panic!("there is no kind {other}"),
    }
}
