//! What the flusher writes back, in which pieces, and to which device.

use cawl_core::{Bytes, CostModel, DirtyLimits, Disturbance, Kernel, Measured, Nanos, Rate, Time};
use cawl_wire::{Event, FileKind, Op};

use super::{Program, profile, range, stream, write};

/// ext4 counts none of an extent's pages as written before all of them are on the device: the level falls by
/// extents of 8 MiB, or by the runs of a scattered file, at the device's rate in either case.
#[test]
fn what_is_written_back_counts_by_extents() {
    for (run, apart) in [(1 << 20, 1), (64 << 10, 4)] {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(512) };
        profile.device.queue = Bytes::mib(32);
        profile.device.commit = Nanos::ZERO;
        let mut model = Kernel::new(&profile);
        let mut now = 0;
        for call in 0..(128 << 20) / run {
            let cost = model.step(&write(now, call * run * apart, run)).unwrap().cost;
            now = (Time(now) + cost).0;
        }
        let level = |model: &mut Kernel, at: u64| {
            model.advance(Time(at));
            model.dirty_level().0
        };
        let mut before = level(&mut model, now);
        let (first, mut steps) = (before, Vec::new());
        for tick in 1..=250u64 {
            let after = level(&mut model, now + tick * 1_000_000);
            if after != before {
                steps.push(before - after);
            }
            before = after;
        }
        let extent = if apart == 1 { 8 << 20 } else { run };
        // The flusher's first extent begins where the file does, without a jump, so runs are a page longer on
        // the average.
        let whole = steps.iter().filter(|step| step.is_multiple_of(extent)).count();
        assert!(whole + 2 >= steps.len() && !steps.is_empty(), "{extent}: {steps:?}");
        let written = (first - before) as f64 / 0.25;
        assert!((written / 120e6 - 1.0).abs() < 0.3, "{written} bytes a second");
    }
}

/// A task that hands over more than the device's queue holds waits until it holds the rest (6.18, with a
/// queue of 128 requests of 1280 KiB: 128 MiB take 8 ms, 256 MiB 304, after which 152 MiB are in flight).
#[test]
fn a_task_that_submits_more_than_the_queue_holds_waits() {
    let waited = |mib: u64, aux: u32| {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(512), hard: Bytes::mib(1024) };
        profile.device.queue = Bytes::mib(160);
        let mut program = Program::on(&profile);
        program.call(write(0, 0, mib << 20));
        (program.waits(range(Op::SyncRange, 0, 0, aux)), program.dirty() >> 8)
    };
    assert!(waited(150, 2).0 < 0.1);
    let (wait, left) = waited(256, 2);
    assert!(
        (wait - 96.0 * 1048.576 / 120.0).abs() < 10.0 && (155..=160).contains(&left),
        "{wait} ms, {left} MiB"
    );
    assert!(waited(256, 0).0 < 0.1);
}

/// sync(2) names no device, and programs open files on devices that they do not write to.
#[test]
fn a_device_without_writes_takes_no_share() {
    let cost = |first: Option<Event>| {
        let mut model = Kernel::new(&profile());
        let begin = Event { op: Op::Open, ..write(0, 0, 0) };
        [Some(begin), first].into_iter().flatten().for_each(|event| {
            model.step(&event);
        });
        let mut at = 1_000_000;
        stream(&mut model, &mut at, 1, 1, 200)
    };
    let alone = cost(None);
    let sync = Event { op: Op::Sync, dev: 0, ino: 0, ..write(0, 0, 0) };
    let open = Event { op: Op::Open, dev: 9, ..write(0, 0, 0) };
    assert_eq!([cost(Some(sync)), cost(Some(open))], [alone; 2]);
}

#[test]
fn a_device_without_writes_writes_nothing_back() {
    let profile = profile();
    let rate = profile.device.writeback.value;
    let gone = |elsewhere: bool| {
        let mut model = Kernel::new(&profile);
        let open = Event { op: Op::Open, dev: 9, ..write(0, 0, 0) };
        [write(0, 0, 20 << 20), open].into_iter().take(1 + usize::from(elsewhere)).for_each(|event| {
            model.step(&event);
        });
        let now = model.state().time;
        assert_eq!(model.state().writeback.map(Rate::get), Some(rate.get()), "open elsewhere: {elsewhere}");
        // Pages of untraced writers that no sample confirms any longer.
        model.disturb(Disturbance { at: now, offset: 1e9, drift: 0.0 });
        model.disturbance(now + Nanos::seconds(2.0)).offset
    };
    assert_eq!(gone(true), gone(false));
}

/// Most bytes in flight while 64 KiB out of every `stride` KiB are written, and when all were on the device,
/// in seconds.
fn flushed(stride: u64, seek: Nanos) -> (Bytes, f64) {
    let mut profile = profile();
    profile.device.seek = Measured::assumed(seek);
    profile.device.commit = Nanos::ZERO;
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(4), hard: Bytes::mib(64) };
    let mut model = Kernel::new(&profile);
    let (mut most, mut at) = (Bytes::ZERO, Time::default());
    let mut write = Event::new(Op::Pwrite);
    (write.kind, write.ino, write.requested, write.returned) = (FileKind::Regular, 1, 64 << 10, 64 << 10);
    for call in 0..256 {
        (write.start, write.offset) = (at.0, call * (stride << 10));
        at = at + model.step(&write).map_or(Nanos::ZERO, |prediction| prediction.cost);
        most = most.max(model.in_flight());
    }
    let mut sync = Event::new(Op::Sync);
    sync.start = at.0;
    at = at + model.step(&sync).map_or(Nanos::ZERO, |prediction| prediction.cost);
    (most, at.0 as f64 * 1e-9)
}

#[test]
fn scattered_pages_leave_fewer_in_flight_and_seeks_make_them_slow() {
    let (row, _) = flushed(64, Nanos::ZERO);
    let (scattered, fast) = flushed(1024, Nanos::ZERO);
    // All that is dirty when the flusher begins; or what the seven requests have that a queue of 8 MiB begins
    // to take.
    assert!(row >= Bytes::mib(4), "{row}");
    assert!(scattered <= Bytes::mib(1), "{scattered}");
    // Each of the 256 pieces comes after a seek.
    let (_, slow) = flushed(1024, Nanos::millis(4.0));
    assert!(slow - fast > 0.5, "{fast} s, with seeks {slow} s");
    assert!((flushed(64, Nanos::millis(4.0)).1 - flushed(64, Nanos::ZERO).1).abs() < 0.02);
}
