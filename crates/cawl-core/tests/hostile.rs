//! A trace may hold any number in any field, by damage or by malice: the models and the report take it.
//!
//! Tests are built with checks for overflow, so a sum that does not fit is a panic here.

use cawl_core::{
    Analysis, AnalysisOptions, Bytes, CostModel, EndKind, FileFacts, HostFacts, HostProfile, Measured, Mode,
    Outcome, Rate, Record, Sample, Session, SessionEnd, Time, Wchar,
};
use cawl_wire::{Event, FileKind, Op};
use proptest::prelude::*;

/// Numbers at which something goes wrong, and a few among which things go on.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => prop::sample::select(vec![
            0, 1, 4095, 4096, u64::from(u32::MAX), 1 << 32, 1 << 40, (1 << 47) - 1, 1 << 47, 1 << 48, 1 << 53,
            i64::MAX as u64 - 1, i64::MAX as u64, 1 << 63, u64::MAX - 4096, u64::MAX - 1, u64::MAX,
        ]),
        2 => 0..1u64 << 24,
        1 => any::<u64>(),
    ]
}

/// What a call returned. The models' work grows with the bytes written, so there are not too many.
fn returned() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..1i64 << 20, 1 => Just(1 << 26), 1 => Just(-1), 1 => Just(i64::MIN)]
}

fn small() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4u32, 1 => Just(u32::MAX), 1 => any::<u32>()]
}

fn event() -> impl Strategy<Value = Record> {
    let where_it_is = (number(), number(), small(), small(), number(), number());
    let what = (prop::sample::select(Op::ALL), 0..8u8, number(), returned(), small());
    let pending = || prop_oneof![20 => 0..1u32 << 20, 1 => Just(u32::MAX)];
    let stream = (pending(), pending(), pending(), small(), any::<u16>());
    (where_it_is, what, stream).prop_map(|(place, what, stream)| {
        let (op, kind, requested, returned, flags) = what;
        let mut event = Event::new(op);
        let pid;
        (event.start, event.duration, pid, event.tid, event.offset, event.dev) = place;
        (event.pid, event.ino, event.fd) = (pid, u64::from(pid % 3), pid as i32);
        (event.requested, event.returned, event.flags) = (requested, returned, flags);
        event.kind = if kind < 6 { FileKind::Regular } else { FileKind::from_code(kind).unwrap_or_default() };
        (event.pending_before, event.pending_after, event.buffer, event.aux, event.errno) = stream;
        // What cannot be read from a trace is no call.
        let read = Event::decode(&event.encode()).unwrap_or(Event::new(op));
        Record::Event(read)
    })
}

fn record() -> impl Strategy<Value = Record> {
    let numbers = || (number(), number(), number(), number(), number(), number(), number());
    let sample = numbers().prop_map(|(time, dirty, writeback, background, hard, written, dirtied)| {
        Record::Sample(Sample { time: Time(time), dirty, writeback, background, hard, written, dirtied })
    });
    let session = (small(), number(), number()).prop_map(|(id, started, wchar)| {
        let wchar = Wchar { process: Some(wchar), thread: Some(wchar) };
        Record::Session(Session { id, pid: id, started: Time(started), wchar, ..Session::default() })
    });
    let end = (small(), numbers()).prop_map(|(id, (at, wchar, pending, dropped, unseen, how, _))| {
        let how = if how % 2 == 0 { EndKind::Exit } else { EndKind::Exec };
        let wchar = Wchar { process: Some(wchar), thread: Some(wchar) };
        Record::End(SessionEnd { id, at: Time(at), how, wchar, usage: None, pending, dropped, unseen })
    });
    let file = (number(), number(), small(), small()).prop_map(|(dev, size, block, ino)| {
        let (ino, birth, path) = (u64::from(ino % 3), ino / 3 % 2, "f".to_owned());
        let renamed = block % 2 == 1;
        Record::File(FileFacts {
            dev,
            ino,
            birth,
            renamed,
            size: Bytes(size),
            block,
            mode: 0o100_644,
            path,
            owner: 0,
        })
    });
    let outcome = (small(), number()).prop_map(|(pid, wchar)| {
        Record::Outcome(Outcome { pid, code: Some(i32::MIN), signal: Some(i32::MAX), wchar: Some(wchar) })
    });
    let host = numbers().prop_map(|(page, memory, background, hard, wall_clock, started, _)| {
        let (available, cpus, hz) = (Bytes(memory), 0, Some(0));
        let (memory, background, hard) = (Bytes(memory), Bytes(background), Bytes(hard));
        let started = Time(started);
        let facts = HostFacts {
            page,
            memory,
            available,
            background,
            hard,
            wall_clock,
            started,
            cpus,
            hz,
            ..HostFacts::default()
        };
        Record::Host(Box::new(facts))
    });
    prop_oneof![12 => event(), 3 => sample, 2 => session, 2 => end, 1 => file, 1 => outcome, 1 => host]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_trace_is_taken(records in prop::collection::vec(record(), 1..40)) {
        let profile = HostProfile::uncalibrated();
        for (mode, learn) in [(Mode::OpenLoop, false), (Mode::Lockstep, true), (Mode::Assimilated, true)] {
            let options = AnalysisOptions { mode, learn, ..AnalysisOptions::default() };
            let mut analysis = Analysis::with(&profile, &options).expect("these models");
            for record in &records {
                for prediction in analysis.take(record).predictions.iter().flatten() {
                    prop_assert!(prediction.cost.get().is_finite());
                }
            }
            prop_assert!(serde_json::to_string(&analysis.report()).is_ok());
        }
    }
}

/// Where a moment in s is precise to some µs, the end of a short transfer is no later moment.
#[test]
fn time_goes_on_at_any_moment() {
    let mut profile = HostProfile::uncalibrated();
    profile.device.write = Measured::assumed(Rate::mb_per_second(3e6));
    profile.device.writeback = Measured::assumed(Rate::mb_per_second(3e6));
    let mut analysis = Analysis::with(&profile, &AnalysisOptions::default()).expect("these models");
    let mut start = 0;
    for part in 0..400 {
        let mut event = Event::new(Op::Write);
        (event.start, event.duration, event.pid, event.tid) = (start, 1000, 7, 7);
        (event.dev, event.ino, event.offset, event.kind) = (1, 1, part << 28, FileKind::Regular);
        (event.requested, event.returned) = (1 << 28, 1 << 28);
        analysis.take(&Record::Event(event));
        // Moments count from the first call.
        start = (start + 1_000_000_007).max(1 << 63);
    }
    assert_eq!(analysis.report().calls, 400);
}

/// Forty terabytes of stores: no memory holds them, and neither does the model.
#[test]
fn stores_beyond_what_can_be_dirty_are_none() {
    let profile = HostProfile::uncalibrated();
    let mut analysis = Analysis::with(&profile, &AnalysisOptions::default()).expect("these models");
    let mut kernel = cawl_core::Kernel::new(&profile);
    for n in 0..40 {
        let mut event = Event::new(Op::MmapWrite);
        (event.start, event.dev, event.ino, event.kind) = (n, 1, 1 + n % 4, FileKind::Regular);
        (event.offset, event.returned) = (n << 40, (1 << 40) - 1);
        kernel.step(&event);
        analysis.take(&Record::Event(event));
    }
    let dirty = kernel.state().dirty;
    assert!(dirty > Bytes(0) && dirty.0 <= 2 * profile.kernel.limits.hard.0, "{dirty}");
    assert_eq!(analysis.report().calls, 40);
}
