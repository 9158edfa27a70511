mod buffers;

use super::stage::Stage;
use super::threads::Threads;
use super::*;
use cawl_wire::{Event, FileKind, Op, flag};
use proptest::prelude::*;

use crate::analysis::Analysis;
use crate::call::kernel_bytes;
use crate::glob::Glob;
use crate::mode::Mode;
use crate::model::build;
use crate::record::{EndKind, FileFacts, Session, SessionEnd};
use crate::units::Bytes;
use crate::units::{Nanos, Rate, Time};

const MS: u64 = 1_000_000;
const KIB: u64 = 1024;

/// A trace in the making: each call of 1 ms follows the one before it after 1 ms.
#[derive(Default)]
struct Trace {
    records: Vec<Record>,
    now: u64,
}

impl Trace {
    fn call(&mut self, op: Op, file: u64, thread: u32, change: impl FnOnce(&mut Event)) {
        let mut event = Event::new(op);
        (event.kind, event.dev, event.ino, event.fd) = (FileKind::Regular, 5, file, 3);
        (event.pid, event.tid) = (thread, thread);
        (event.start, event.duration) = (self.now + MS, MS);
        change(&mut event);
        self.now = event.end();
        self.records.push(Record::Event(event));
    }

    fn write(&mut self, file: u64, offset: u64, bytes: u64) {
        self.call(Op::Write, file, 1, |event| {
            (event.offset, event.requested, event.returned) = (offset, bytes, bytes as i64);
        });
    }

    fn sync(&mut self, file: u64) {
        self.call(Op::Fsync, file, 1, |_| {});
    }

    fn close(&mut self, file: u64) {
        self.call(Op::Close, file, 1, |_| {});
    }

    fn name(&mut self, file: u64, path: &str) {
        let facts = FileFacts { dev: 5, ino: file, path: path.to_owned(), ..FileFacts::default() };
        self.records.push(Record::File(facts));
    }

    fn begin(&mut self, id: u32, pid: u32, ppid: u32) {
        let started = Time(self.now);
        self.records.push(Record::Session(Session { id, pid, ppid, started, ..Session::default() }));
    }

    fn end(&mut self, id: u32) {
        self.records.push(Record::End(SessionEnd::new(id, Time(self.now), EndKind::Exit)));
    }

    /// Writes of 4 KiB, with a sync after each.
    fn commits(count: u64) -> Trace {
        let mut trace = Trace::default();
        for at in 0..count {
            trace.write(1, at * 4 * KIB, 4 * KIB);
            trace.sync(1);
        }
        trace.close(1);
        trace
    }

    fn with(&self, rewrites: &[Rewrite]) -> Ledger {
        let changes: Vec<Change> =
            rewrites.iter().map(|rewrite| Change { rewrite: rewrite.clone(), on: None }).collect();
        self.with_changes(&changes)
    }

    fn with_changes(&self, changes: &[Change]) -> Ledger {
        let profile = HostProfile::uncalibrated();
        self.on(&Machine::new(profile, false), changes)
    }

    fn on(&self, machine: &Machine, changes: &[Change]) -> Ledger {
        let facts = self.facts();
        let model = build("kernel", &machine.profile).expect("there is one");
        let mut whatif = WhatIf::new(model, machine, changes, &facts);
        self.records.iter().for_each(|record| whatif.take(record));
        whatif.finish()
    }

    fn events(&self) -> impl Iterator<Item = &Event> {
        self.records.iter().filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        })
    }

    fn facts(&self) -> TraceFacts {
        let mut facts = TraceFacts::default();
        self.records.iter().for_each(|record| facts.take(record));
        facts
    }

    /// The calls as a change makes them.
    fn rewritten(&self, rewrite: Rewrite) -> Vec<Event> {
        let mut stage = Stage::new(&Change { rewrite, on: None }, &self.facts());
        let mut threads = Threads::default();
        let mut calls = Vec::new();
        for record in &self.records {
            threads.take(record, |step| stage.step(step, &mut |step| calls.extend(step.call)));
        }
        stage.finish(&mut |step| calls.extend(step.call));
        calls
    }
}

fn calls(ledger: &Ledger, op: Op) -> u64 {
    ledger.ops.iter().find(|cost| cost.op == op).map_or(0, |cost| cost.calls)
}

#[test]
fn an_unchanged_trace_costs_what_open_loop_says() {
    let mut trace = Trace::commits(50);
    (0..200).for_each(|at| trace.write(2, at << 20, 1 << 20));
    let ledger = trace.with(&[]);
    let mut analysis =
        Analysis::new(&HostProfile::uncalibrated(), &["kernel".to_owned()], Mode::OpenLoop).expect("a model");
    trace.records.iter().for_each(|record| {
        analysis.take(record);
    });
    let predicted = analysis.report().models[0].predicted_s;
    assert!((ledger.total.as_seconds() / predicted - 1.0).abs() < 1e-6, "{ledger:?}, {predicted} s");
    // 50 commits of three calls, and the close behind them.
    let closes = calls(&ledger, Op::Close);
    assert_eq!((ledger.calls - closes, ledger.bytes), (300, 50 * 4 * KIB + (200 << 20)));
}

#[test]
fn threads_keep_their_thinking() {
    let trace = Trace::commits(50);
    let thinking = trace.events().count() as f64 - 1.0;
    let thought = |rewrites: &[Rewrite]| {
        let ledger = trace.with(rewrites);
        ledger.end.saturating_sub(ledger.total).as_seconds() * 1e3
    };
    for rewrites in [
        &[][..],
        &[Rewrite::Merge(64 * KIB)],
        &[Rewrite::Syncs(SyncsKept::None), Rewrite::Merge(64 * KIB)],
        &[Rewrite::Split(KIB)],
        &[Rewrite::Syncs(SyncsKept::Last)],
        &[Rewrite::Sort],
    ] {
        assert!((thought(rewrites) - thinking).abs() < 1e-3, "{rewrites:?}: {} ms", thought(rewrites));
    }
    let halved = thought(&[Rewrite::Think(0.5)]);
    assert!((halved - thinking / 2.0).abs() < 1e-3, "{halved} ms");
}

/// What a thread thinks after a wait it thinks with cold caches.
#[test]
fn thinking_is_shorter_without_the_wait_before_it() {
    let trace = Trace::commits(10);
    let end = |away: f64, changes: &[Change]| {
        let mut profile = HostProfile::uncalibrated();
        profile.calls.away = Some(crate::profile::Measured::assumed(Nanos::new(away * 1e3)));
        let machine = Machine::new(profile, false);
        let ledger = trace.on(&machine, changes);
        (ledger.end.get() - ledger.total.get()) / 1e3
    };
    let without = [Change { rewrite: Rewrite::Syncs(SyncsKept::None), on: None }];
    assert!((end(0.0, &without) - end(0.0, &[])).abs() < 1.0);
    assert!((end(5.0, &[]) - end(0.0, &[])).abs() < 1.0, "nothing was left out");
    // Three paths of 5 µs after each but the last of ten waits of 1 ms.
    let shorter = end(0.0, &without) - end(5.0, &without);
    assert!((shorter - 150.0).abs() < 1.0, "{shorter} µs");
    // A write that is no longer durable, but direct, waits all the same.
    let flags = |flags, on| Change { rewrite: Rewrite::Flags(flags, on), on: None };
    let direct = [flags(flag::DSYNC | flag::DIRECT, true), flags(flag::DSYNC, false)];
    assert!((end(5.0, &direct) - end(0.0, &direct)).abs() < 1.0);
    // The first wait follows thinking that nothing preceded.
    let all = 21.0 * 1e3;
    assert!(end(1e6, &without) > 0.1 * all - 1.0 && end(1e6, &without) < 0.3 * all);
}

#[test]
fn adjacent_writes_become_one() {
    let mut trace = Trace::default();
    (0..32).for_each(|at| trace.write(1, at * 4 * KIB, 4 * KIB));
    trace.write(1, 1 << 30, 4 * KIB);
    trace.close(1);
    let before = trace.with(&[]);
    let after = trace.with(&[Rewrite::Merge(64 * KIB)]);
    // The close among them.
    assert_eq!((before.calls, after.calls, after.bytes), (34, 4, before.bytes));
    assert!(after.total < before.total);
    assert_eq!(after.changed, [30]);
    assert!(after.safety[0].contains("64 KiB"), "{:?}", after.safety);
}

#[test]
fn reading_the_time_stamps_parts_no_writes() {
    let mut trace = Trace::default();
    for at in 0..8 {
        trace.call(Op::Pwrite, 1, 1, |event| {
            (event.offset, event.requested, event.returned) = (at * 4 * KIB, 4 * KIB, 4 * KIB as i64);
            event.flags = if at % 2 == 0 { flag::STAMPS_READ } else { 0 };
        });
    }
    let read = |calls: &[Event]| calls.iter().filter(|event| event.has(flag::STAMPS_READ)).count();
    let merged = trace.rewritten(Rewrite::Merge(64 * KIB));
    assert_eq!((merged.len(), read(&merged)), (1, 1));
    let split = trace.rewritten(Rewrite::Split(KIB));
    assert_eq!((split.len(), read(&split)), (32, 4));
}

#[test]
fn what_must_be_written_first_is() {
    let mut trace = Trace::commits(3);
    (0..4).for_each(|at| trace.write(2, at * KIB, KIB));
    trace.call(Op::Syncfs, 2, 1, |_| {});
    trace.write(2, 4 * KIB, KIB);
    let rewritten = trace.rewritten(Rewrite::Merge(1 << 20));
    let ops: Vec<(Op, i64)> = rewritten.iter().map(|event| (event.op, event.returned)).collect();
    let (four, written) = (4 * KIB as i64, |bytes| (Op::Write, bytes));
    let commit = [written(four), (Op::Fsync, 0)];
    let expected = [
        &commit[..],
        &commit,
        &commit,
        &[(Op::Close, 0), written(four), (Op::Syncfs, 0), written(KIB as i64)],
    ];
    assert_eq!(ops, expected.concat());
}

#[test]
fn large_writes_are_split() {
    let mut trace = Trace::default();
    trace.write(1, 0, 10 * KIB);
    let pieces: Vec<(u64, i64)> =
        trace.rewritten(Rewrite::Split(4 * KIB)).iter().map(|event| (event.offset, event.returned)).collect();
    assert_eq!(pieces, [(0, 4096), (4096, 4096), (8192, 2048)]);
}

#[test]
fn some_syncs_remain_and_what_is_at_risk_is_told() {
    let trace = Trace::commits(40);
    let syncs = |kept| {
        let ledger = trace.with(&[Rewrite::Syncs(kept)]);
        (calls(&ledger, Op::Fsync), ledger.safety.first().cloned().unwrap_or_default())
    };
    // The last eight have one at the close.
    let (count, safety) = syncs(SyncsKept::OneIn(16));
    assert_eq!(count, 3);
    assert!(safety.contains("up to 15 syncs made durable: up to 64 KiB"), "{safety}");
    let (count, safety) = syncs(SyncsKept::Last);
    assert_eq!(count, 1);
    assert!(safety.contains("up to 39 syncs"), "{safety}");
    let (count, safety) = syncs(SyncsKept::None);
    assert_eq!(count, 0);
    assert!(safety.contains("up to 40 syncs"), "{safety}");
    assert_eq!(syncs(SyncsKept::OneIn(1)), (40, String::new()));
}

/// What is synced in the trace is synced at the end, however few syncs there are.
#[test]
fn one_sync_of_some_is_the_last() {
    let mut unclosed = Trace::default();
    (0..5).for_each(|at| {
        unclosed.write(1, at * 4 * KIB, 4 * KIB);
        unclosed.sync(1);
    });
    // Opened and closed for each record.
    let mut reopened = Trace::default();
    (0..6).for_each(|at| {
        reopened.write(1, at * 4 * KIB, 4 * KIB);
        reopened.sync(1);
        reopened.close(1);
    });
    for (trace, every, syncs, changed) in [
        (&Trace::commits(5), 16, 1, 4),
        (&unclosed, 16, 1, 4),
        (&reopened, 16, 1, 5),
        (&reopened, 4, 2, 4),
        (&reopened, 3, 2, 4),
        (&Trace::commits(32), 16, 2, 30),
    ] {
        let ledger = trace.with(&[Rewrite::Syncs(SyncsKept::OneIn(every))]);
        assert_eq!((calls(&ledger, Op::Fsync), ledger.changed[0]), (syncs, changed), "one of {every}");
        let made = trace.rewritten(Rewrite::Syncs(SyncsKept::OneIn(every)));
        let last = made.iter().rev().find(|event| event.op != Op::Close).map(|event| event.op);
        assert_eq!(last, Some(Op::Fsync), "one of {every}");
    }
}

#[test]
fn what_the_kernel_refuses_stays_as_it_was_and_is_told() {
    let mut trace = Trace::default();
    for (offset, bytes) in [(0, 4096), (4096, 100), (4196, 4096), (8192, 512)] {
        trace.write(1, offset, bytes);
    }
    let direct = Rewrite::Flags(flag::DIRECT, true);
    let made = trace.rewritten(direct.clone());
    assert_eq!(
        made.iter().map(|event| event.has(flag::DIRECT)).collect::<Vec<_>>(),
        [true, false, false, true]
    );
    let ledger = trace.with(&[direct]);
    assert_eq!(ledger.changed, [2]);
    assert!(ledger.safety[0].contains("as before; 2 calls are not in whole sectors"), "{:?}", ledger.safety);
    // They go behind what was allocated.
    let mut log = Trace::default();
    log.call(Op::Write, 1, 1, |event| (event.returned, event.flags) = (100, flag::APPEND));
    assert_eq!(log.with(&[Rewrite::Preallocate]).changed, [0]);
}

/// Buffered writes that the flusher has mostly cleaned before their fsync teach a rate that no device has.
#[test]
fn direct_writes_go_no_faster_than_the_device_was_measured() {
    let mut trace = Trace::default();
    (0..100).for_each(|at| trace.write(1, at << 20, 1 << 20));
    let measured = HostProfile::uncalibrated();
    let mut profile = measured.clone();
    profile.device.write.value = Rate::per_second(100e9);
    let learned = Machine::new(profile, false);
    let direct = [Change { rewrite: Rewrite::Flags(flag::DIRECT, true), on: None }];
    let transfer = trace.on(&learned.for_new_flags(&measured), &direct).causes[Cause::Transfer];
    assert!(Bytes::mib(100) / measured.device.write.value <= transfer, "{transfer}");
}

/// A program that makes no fsync makes none of directories.
#[test]
fn syncs_of_directories_are_syncs() {
    let mut trace = Trace::commits(4);
    trace.name(2, "/data");
    for _ in 0..4 {
        trace.call(Op::Fsync, 2, 1, |event| event.kind = FileKind::Directory);
    }
    assert_eq!(calls(&trace.with(&[]), Op::Fsync), 8);
    assert_eq!(calls(&trace.with(&[Rewrite::Syncs(SyncsKept::None)]), Op::Fsync), 0);
    let of = |rewrite| [Change { rewrite, on: Some(Glob::from("/data")) }];
    assert_eq!(calls(&trace.with_changes(&of(Rewrite::Drop)), Op::Fsync), 4);
    assert_eq!(calls(&trace.with_changes(&of(Rewrite::Fdatasync)), Op::Fdatasync), 4);
}

/// Balasubramanian, random 4 KiB over a file of 1 GiB: 24.6 ms with fsync, 26.6 with O_DIRECT and O_SYNC.
/// What is 1000 times faster is not durable.
#[test]
fn durable_against_durable_is_a_near_tie() {
    let mut trace = Trace::default();
    let facts = FileFacts { dev: 5, ino: 1, size: Bytes::mib(1024), ..FileFacts::default() };
    trace.records.push(Record::File(facts));
    for at in 0..50 {
        trace.write(1, at * 7919 % 262_144 * 4 * KIB, 4 * KIB);
        trace.sync(1);
    }
    let mut profile = HostProfile::uncalibrated();
    let millis = |time: f64| crate::profile::Measured::assumed(Nanos::millis(time));
    (profile.device.fsync, profile.device.sync_call) = (millis(24.5), millis(24.5));
    (profile.device.seek, profile.device.direct) = (millis(2.0), Some(millis(0.02)));
    let machine = Machine::new(profile, false);
    let ratio = |rewrites: &[Rewrite]| {
        let total = |rewrites: &[Rewrite]| {
            let changes: Vec<Change> =
                rewrites.iter().map(|rewrite| Change { rewrite: rewrite.clone(), on: None }).collect();
            trace.on(&machine, &changes).total.get()
        };
        total(rewrites) / total(&[])
    };
    let direct = [Rewrite::Syncs(SyncsKept::None), Rewrite::Flags(flag::DIRECT, true)];
    let durable = [&direct[..], &[Rewrite::Flags(flag::SYNC, true)]].concat();
    assert!((1.0..1.15).contains(&ratio(&durable)), "{}", ratio(&durable));
    assert!(ratio(&direct) < 0.15 && ratio(&direct[..1]) < 0.01);
}

#[test]
fn flags_and_other_syncs() {
    let trace = Trace::commits(10);
    let ledger = trace.with(&[Rewrite::Fdatasync]);
    assert_eq!((calls(&ledger, Op::Fsync), calls(&ledger, Op::Fdatasync)), (0, 10));
    let durable = trace.with(&[Rewrite::Syncs(SyncsKept::None), Rewrite::Flags(flag::DSYNC, true)]);
    let plain = trace.with(&[Rewrite::Syncs(SyncsKept::None)]);
    assert!(durable.total.get() > 10.0 * plain.total.get(), "{durable:?} {plain:?}");
    let again = trace.with(&[Rewrite::Flags(flag::DSYNC, true), Rewrite::Flags(flag::DSYNC, false)]);
    assert_eq!(again.total, trace.with(&[]).total);
    assert!(again.safety.iter().any(|text| text.contains("10 writes are no longer durable")), "{again:?}");
    let one =
        Trace::commits(1).with(&[Rewrite::Flags(flag::DSYNC, true), Rewrite::Flags(flag::DSYNC, false)]);
    let says = "1 write is no longer durable when it returns; ";
    assert!(one.safety.iter().any(|text| text.starts_with(says)), "{one:?}");
}

#[test]
fn a_sync_at_close_in_the_place_of_synchronous_writes() {
    let mut trace = Trace::default();
    for file in 1..=3 {
        (0..20).for_each(|at| {
            trace.write(file, at * 4 * KIB, 4 * KIB);
            let Some(Record::Event(event)) = trace.records.last_mut() else { panic!("a call") };
            event.flags |= flag::DSYNC;
        });
        // The third one is closed by the end of its program.
        (file < 3).then(|| trace.close(file));
    }
    let off = Rewrite::Flags(flag::SYNC | flag::DSYNC, false);
    let ledger = trace.with(&[off, Rewrite::SyncAtClose]);
    assert_eq!((calls(&ledger, Op::Write), calls(&ledger, Op::Fsync)), (60, 3));
    assert_eq!(ledger.safety.len(), 1, "{:?}", ledger.safety);
    assert!(ledger.safety[0].contains("60 writes are no longer durable"), "{:?}", ledger.safety);
    assert!(ledger.total < trace.with(&[]).total);
    // A file that was synced since its latest write needs none.
    let ledger = Trace::commits(5).with(&[Rewrite::SyncAtClose]);
    assert_eq!((calls(&ledger, Op::Fsync), ledger.changed[0]), (5, 0));
}

#[test]
fn writes_that_are_durable_need_no_sync() {
    let changes = [Rewrite::Flags(flag::DSYNC, true), Rewrite::Syncs(SyncsKept::None)];
    let ledger = Trace::commits(40).with(&changes);
    assert_eq!(calls(&ledger, Op::Fsync), 0);
    assert!(ledger.safety.iter().all(|text| text.contains("not their data")), "{:?}", ledger.safety);
}

#[test]
fn a_change_is_of_the_files_it_names() {
    let mut trace = Trace::default();
    trace.name(1, "/data/a.log");
    trace.name(2, "/data/b.db");
    for _ in 0..5 {
        trace.sync(1);
        trace.sync(2);
    }
    let of = |rewrite, glob: &str| {
        let ledger = trace.with_changes(&[Change { rewrite, on: Some(Glob::from(glob)) }]);
        calls(&ledger, Op::Fsync)
    };
    assert_eq!(of(Rewrite::Syncs(SyncsKept::None), "*.log"), 5);
    assert_eq!(of(Rewrite::Syncs(SyncsKept::None), "/data/*"), 0);
    assert_eq!(of(Rewrite::Drop, "*.db"), 5);
    assert_eq!(of(Rewrite::Only, "*.tmp"), 0);
}

#[test]
fn a_stream_is_emptied_when_its_buffer_is_full() {
    let mut trace = Trace::default();
    for _ in 0..100 {
        trace.call(Op::StreamWrite, 1, 1, |event| {
            (event.requested, event.returned, event.offset) = (100, 100, 0);
            event.flags = flag::STREAM_KNOWN | flag::UNBUFFERED;
        });
    }
    trace.call(Op::StreamClose, 1, 1, |event| event.flags = flag::STREAM_KNOWN);
    let flushed = |size| -> Vec<u64> {
        let calls = trace.rewritten(Rewrite::Buffer(size));
        calls.iter().filter_map(Event::flushed).filter(|bytes| *bytes > 0).collect()
    };
    assert_eq!(flushed(1 << 20), [10_000], "at the close");
    let sizes = flushed(4096);
    assert_eq!((sizes.len(), sizes.iter().sum::<u64>()), (3, 10_000), "{sizes:?}");
    assert!(sizes[..2].iter().all(|bytes| *bytes == 4096), "{sizes:?}");
}

#[test]
fn writers_do_the_same_beside_one_another() {
    let mut trace = Trace::default();
    (0..100).for_each(|at| trace.write(1, at << 20, 1 << 20));
    let alone = trace.with(&[]);
    for owner in [Owner::Each, Owner::All] {
        let four = trace.with(&[Rewrite::Writers(4, owner)]);
        assert_eq!((four.calls, four.bytes), (4 * alone.calls, 4 * alone.bytes));
        assert!(four.end < alone.end * 3.0, "they overlap: {:?} {:?}", four.end, alone.end);
    }
}

#[test]
fn who_waits_for_a_process_goes_on_when_it_has_ended() {
    // A fork may return when the child has begun.
    for longer in [0, MS / 2] {
        let mut trace = Trace::default();
        trace.begin(1, 1, 0);
        trace.call(Op::Fork, 0, 1, |event| event.returned = 2);
        if let Some(Record::Event(event)) = trace.records.last_mut() {
            event.duration += longer;
        }
        trace.begin(2, 2, 1);
        for _ in 0..100 {
            trace.call(Op::Fsync, 2, 2, |_| {});
        }
        trace.end(2);
        trace.write(1, 4 * KIB, 4 * KIB);
        let (before, after) = (trace.with(&[]), trace.with(&[Rewrite::Syncs(SyncsKept::None)]));
        let saved = before.end.saturating_sub(after.end);
        let cost = before.total.saturating_sub(after.total);
        assert!((saved / cost - 1.0).abs() < 0.01, "{saved} of {cost}");
    }
}

#[test]
fn space_and_pace_come_with_the_writes() {
    let mut trace = Trace::default();
    (0..10).for_each(|at| trace.write(1, at << 20, 1 << 20));
    let calls = trace.rewritten(Rewrite::Pace(4 << 20));
    let ranges: Vec<(u64, u64)> = calls
        .iter()
        .filter(|event| event.op == Op::SyncRange)
        .map(|event| (event.offset >> 20, event.requested >> 20))
        .collect();
    assert_eq!(ranges, [(0, 4), (4, 4)]);
    let calls = trace.rewritten(Rewrite::Dontneed(3 << 20));
    let dropped: Vec<(u64, u64)> = calls
        .iter()
        .filter(|event| event.op == Op::Advise && event.aux == cawl_wire::ADVICE_DONTNEED)
        .map(|event| (event.offset >> 20, event.requested >> 20))
        .collect();
    assert_eq!(dropped, [(0, 3), (0, 6)], "all but the last part");
    let ledger = trace.with(&[Rewrite::Preallocate]);
    assert_eq!((ledger.calls, ledger.changed[0]), (10, 1));
    let backwards = {
        let mut trace = Trace::default();
        (0..10).rev().for_each(|at| trace.write(1, at * 4 * KIB, 4 * KIB));
        trace
    };
    for rewrite in [Rewrite::Sort, Rewrite::AppendOnly] {
        let offsets: Vec<u64> = backwards.rewritten(rewrite).iter().map(|event| event.offset).collect();
        assert!(offsets.is_sorted(), "{offsets:?}");
    }
}

#[test]
fn a_ratio_is_certain_as_far_as_both_share_their_causes() {
    let profile = HostProfile::uncalibrated();
    let trace = Trace::commits(20);
    let before = trace.with(&[]);
    let same = Ratio::of(&before, &trace.with(&[]), &profile).expect("it takes time");
    assert_eq!((same.value, same.interval), (1.0, (1.0, 1.0)));
    let none =
        Ratio::of(&before, &trace.with(&[Rewrite::Syncs(SyncsKept::None)]), &profile).expect("a ratio");
    assert!(none.value < 0.1 && none.interval.0 < none.value && none.value < none.interval.1, "{none:?}");
    assert_eq!(Ratio::of(&Ledger::default(), &before, &profile), None);
    assert!(before.end > Nanos::ZERO);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Merging, splitting and sorting write each byte that was written, and no other.
    #[test]
    fn no_byte_is_lost_or_made(
        writes in prop::collection::vec((1_u64..4, 0_u64..64, 1_u64..16, 1_u32..3), 1..60),
        size in 1_u64..64,
    ) {
        let mut trace = Trace::default();
        for (file, at, pages, thread) in writes {
            trace.call(Op::Pwrite, file, thread, |event| {
                let bytes = pages * KIB;
                (event.offset, event.requested, event.returned) = (at * KIB, bytes, bytes as i64);
            });
            if at % 7 == 0 {
                trace.sync(file);
            }
        }
        let pieces = |events: &[Event]| {
            let mut pieces: Vec<(u64, u64)> = events
                .iter()
                .filter(|event| event.op == Op::Pwrite)
                .flat_map(|event| {
                    let at = event.offset / KIB;
                    (at..at + event.returned as u64 / KIB).map(|at| (event.ino, at)).collect::<Vec<_>>()
                })
                .collect();
            pieces.sort_unstable();
            pieces
        };
        let before: Vec<Event> = trace.events().copied().collect();
        for rewrite in [Rewrite::Merge(size * KIB), Rewrite::Split(size * KIB), Rewrite::Sort] {
            prop_assert_eq!(pieces(&trace.rewritten(rewrite)), pieces(&before));
        }
    }
}
