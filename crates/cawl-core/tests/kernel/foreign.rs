//! Dirty pages of untraced writers, and the kernel's own flusher.

use cawl_core::{
    Analysis, AnalysisOptions, Bytes, Cause, CostModel, DirtyLimits, Disturbance, HostProfile, Kernel, Mode,
    Nanos, Rate, Record, Sample, Time,
};
use cawl_wire::{Event, Op};

use super::{profile, stream, write};

const MIB: u64 = 1 << 20;

/// The flusher begins at 64 MiB, and goes on for 64 MiB each time.
fn wide() -> HostProfile {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(1024) };
    profile.device.writeback.value = Rate::mb_per_second(400.0);
    profile.device.commit = Nanos::ZERO;
    profile
}

/// Pages that others made dirty are written beside the program's, which therefore is left with more of its
/// own.
#[test]
fn others_pages_are_written_in_turn_with_the_programs() {
    let written = |others: u64| {
        let mut model = Kernel::new(&wide());
        model.disturb(Disturbance { offset: Bytes::mib(others).as_f64(), ..Disturbance::default() });
        let mut now = 0;
        stream(&mut model, &mut now, 1, 1, 70);
        model.advance(Time(now) + Nanos::millis(190.0));
        let all = model.conservation();
        assert_eq!(all.dirtied + all.adopted, all.written + all.dirty + all.cancelled);
        assert_eq!(model.take_adopted(), all.adopted);
        assert_eq!(model.take_adopted(), Bytes::ZERO, "once");
        let left = model.disturbance(Time(now)).offset;
        assert_eq!(left, Bytes::mib(others).as_f64() - all.adopted.as_f64(), "what is taken is no offset");
        [all.adopted, all.written].map(|bytes| bytes.0 / MIB)
    };
    let [adopted, all] = written(0);
    assert!(adopted == 0 && all > 50, "{all}");
    let [adopted, all] = written(60);
    assert!(all > 50 && adopted.abs_diff(all / 2) <= 8, "{adopted} of {all}");
    let [adopted, all] = written(12);
    assert!(all > 50 && adopted == 12, "{adopted}: no more than there are");
}

/// A sync of the whole waits for what others left dirty, which is no fault of the call; a file's own does
/// not.
#[test]
fn a_sync_of_all_writes_others_pages_before_its_own() {
    let mut profile = wide();
    profile.kernel.limits.background = Bytes::mib(512);
    let told = |op: Op, others: u64| {
        let mut model = Kernel::new(&profile);
        let mut now = 0;
        stream(&mut model, &mut now, 1, 1, 8);
        model.disturb(Disturbance { at: Time(now), offset: Bytes::mib(others).as_f64(), drift: 0.0 });
        let sync = Event { op, ino: 1, ..write(now, 0, 0) };
        let parts = model.step(&sync).expect("it has a cost").parts;
        [Cause::Queue, Cause::Transfer].map(|cause| parts[cause].as_seconds())
    };
    for op in [Op::Sync, Op::Syncfs] {
        let ([none, own], [queue, transfer]) = (told(op, 0), told(op, 100));
        assert_eq!(none, 0.0, "{op:?}");
        assert!(
            (0.2..0.3).contains(&queue) && (transfer - own).abs() < 1e-3,
            "{op:?}: {queue} {transfer} {own}"
        );
    }
    assert_eq!(told(Op::Fsync, 100), told(Op::Fsync, 0));
}

/// A flusher that got ahead of the kernel's waits for it, and for no longer than a moment.
#[test]
fn the_flusher_waits_for_the_kernels() {
    let written = |counted: &[(u64, u64)]| {
        let mut model = Kernel::new(&wide());
        let mut now = 0;
        stream(&mut model, &mut now, 1, 1, 100);
        for (at, pages) in counted {
            model.advance(Time(now + at * 1_000_000));
            let span = Nanos::millis(10.0);
            model.begun(Time(now + at * 1_000_000), Bytes::mib(*pages).as_f64(), span);
        }
        model.advance(Time(now + 100_000_000));
        model.conservation().written.0 / MIB
    };
    let free = written(&[]);
    assert!(free >= 36, "{free}");
    // What was in flight is written, 8 MiB.
    let stands = written(&[(10, 0), (20, 0), (90, 0)]);
    assert!(stands <= 16, "{stands}");
    assert_eq!(written(&[(10, 16), (20, 16), (90, 200)]), free, "the kernel's is as far");
    assert!(written(&[(10, 0), (20, 300)]) > stands, "it has come on");
}

/// The machine as a program meets it that writes beside a file which is dirty already: a call of the program,
/// the counters, and so on. Turns are short, 16 MiB. What its fsync is foretold to take, and what it takes,
/// in seconds.
fn fsync_beside(older: u64, own: u64) -> (f64, f64) {
    let mut profile = wide();
    profile.kernel.limits.hard = Bytes::mib(128);
    let mut real = Kernel::new(&profile);
    let mut now = 1_000_000_000;
    stream(&mut real, &mut now, 9, 9, older);
    let options = AnalysisOptions { mode: Mode::Assimilated, ..AnalysisOptions::default() };
    let mut seen = Analysis::with(&profile, &options).expect("known models");
    let page = |bytes: Bytes| bytes.0 / 4096;
    let mut call = |event: Event, now: &mut u64| {
        let cost = real.step(&Event { start: *now, ..event }).expect("a cost").cost;
        let event = Event { start: *now, duration: cost.get() as u64, ..event };
        let told = seen.take(&Record::Event(event)).predictions[0].expect("a prediction").cost;
        *now = (Time(*now) + cost + Nanos::millis(2.0)).0;
        real.advance(Time(*now));
        let (totals, writeback) = (real.conservation(), page(real.in_flight()));
        seen.take(&Record::Sample(Sample {
            time: Time(*now),
            dirty: page(totals.dirty) - writeback,
            writeback,
            background: 64 * 256,
            hard: 128 * 256,
            written: page(totals.written),
            dirtied: page(totals.dirtied),
        }));
        *now += 1000;
        (told.as_seconds(), cost.as_seconds())
    };
    call(write(0, 0, 0), &mut now);
    for chunk in 0..own {
        call(write(0, chunk * MIB, MIB), &mut now);
    }
    call(Event { op: Op::Fsync, ..write(0, 0, 0) }, &mut now)
}

#[test]
fn fsync_beside_an_older_dirty_file_is_foretold() {
    for (older, own) in [(0, 96), (60, 40), (60, 80)] {
        let (told, took) = fsync_beside(older, own);
        assert!(took > 0.05 && (told / took - 1.0).abs() < 0.2, "{older} and {own}: {told} s of {took}");
    }
}
