//! Calls that free what a file has, and those that begin to write what comes in its place.

use cawl_core::{
    Analysis, AnalysisOptions, Cause, CostModel, DeletedFacts, DeviceConstants, Filesystem, FilesystemKind,
    HostProfile, Measured, Mode, Nanos, Prediction, Rate, Record, Seconds, Time, passed_over,
};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};

use super::{Program, roomy, with, write};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// What it takes longer if the inode is not in the processor's cache, in µs.
const FAR: f64 = 1.36;

/// Pages that leave the cache take 1 µs, names that go 8, that replace others 14, and lengths 4.
fn disk() -> HostProfile {
    let mut profile = roomy();
    let micros = |micros: f64| Measured::assumed(Nanos::new(micros * 1e3));
    let calls = &mut profile.calls;
    (calls.free, calls.open, calls.close) = (micros(1.0), Some(micros(2.0)), Some(micros(1.0)));
    profile.device.delayed_allocation = Some(micros(20.0));
    profile
}

/// A file of so many MiB that was written in calls of this size.
fn written(program: &mut Program, ino: u64, mib: u64, size: u64) {
    for at in (0..mib * MIB).step_by(size as usize) {
        program.call(Event { ino, ..write(0, at, size) });
    }
}

fn opened(flags: u32) -> Event {
    Event { op: Op::Open, fd: 3, returned: 3, ..with(flag::WRITABLE | flags, 0, 0) }
}

fn closed(ino: u64, flags: u32) -> Event {
    Event { op: Op::Close, fd: 3, ino, ..with(flag::WRITABLE | flags, 0, 0) }
}

fn micros(told: Prediction, cause: Cause) -> f64 {
    (told.parts[cause].get() * 1e3).round() / 1e6
}

/// After a millisecond of other work, which makes a path of a write 3 µs dearer.
#[test]
fn opens_and_names_take_longer_after_other_work() {
    let mut profile = disk();
    profile.calls.away = Some(Measured::assumed(Nanos::new(3e3)));
    let mut program = Program::on(&profile);
    written(&mut program, 1, 1, PAGE);
    for (call, cost) in [
        (opened(0), 2.0 + 3.0),
        (opened(flag::CREATED), 2.0 + 9.0),
        (closed(1, 0), 1.0 + 1.5),
        (Event { op: Op::Link, aux: 2, ..write(0, 0, 0) }, 8.0 + 9.0),
    ] {
        program.now += 1_000_000;
        let told = program.call(call).expect("a cost");
        let more = micros(told, Cause::Call);
        assert!((more - cost).abs() < 0.01, "{more} µs instead of {cost}: {:?}", call.op);
        assert!(told.work.read.believed > Seconds(1e-6), "not learned: {:?}", call.op);
    }
}

/// A file that was opened lately is in the processor's cache, one of many others is not.
#[test]
fn an_inode_far_away_takes_longer_to_unlink() {
    let mut program = Program::on(&disk());
    let mut unlinked = |ino, is_open| {
        if is_open {
            program.call(Event { ino, ..opened(0) });
        }
        micros(program.call(Event { op: Op::Unlink, ino, ..write(0, 0, 0) }).expect("a cost"), Cause::Call)
    };
    assert_eq!([unlinked(1, true), unlinked(2, false)], [8.0, 8.0 + FAR]);
}

#[test]
fn pages_leave_the_cache_one_after_the_other() {
    let calls = [
        Event { op: Op::Truncate, ..write(0, 0, 0) },
        Event { op: Op::Unlink, ..write(0, 0, 0) },
        Event { op: Op::Rename, ..write(0, 0, 0) },
        opened(flag::TRUNC),
        closed(1, flag::LAST | flag::GONE),
    ];
    for call in calls {
        // Pages of a folio take a quarter each beyond the first.
        for (mib, size, freed) in [(1, PAGE, 256.0), (4, PAGE, 1024.0), (4, MIB, 4.0 * (1.0 + 255.0 / 4.0))] {
            let mut program = Program::on(&disk());
            written(&mut program, 1, mib, size);
            let told = program.call(call).expect("a cost");
            assert_eq!(micros(told, Cause::FreedPages), freed, "{:?} of {mib} MiB", call.op);
            let entry = match call.op {
                Op::Close => 1.0,
                Op::Truncate => 4.0,
                Op::Open => 6.0,
                Op::Rename => 14.0 + FAR,
                _ => 8.0 + FAR,
            };
            assert_eq!(micros(told, Cause::Call), entry);
            assert_eq!((told.parts.device(), program.dirty()), (Nanos::ZERO, 0), "nothing is written");
            let account = program.model.conservation();
            assert_eq!((account.cancelled.0, account.written.0), (mib * MIB, 0));
            assert_eq!(micros(program.call(call).expect("a cost"), Cause::FreedPages), 0.0);
        }
    }
}

#[test]
fn what_stays_costs_nothing() {
    let mut program = Program::on(&disk());
    program.call(opened(flag::CREATED));
    written(&mut program, 1, 4, PAGE);
    // A file that has another name or a descriptor, a close of one that has a name, a new one.
    for call in [
        Event { op: Op::Unlink, aux: 1, ..write(0, 0, 0) },
        Event { op: Op::Unlink, ..with(flag::HELD, 0, 0) },
        Event { op: Op::Truncate, ..write(0, 8 * MIB, 0) },
        closed(1, flag::LAST),
        opened(0),
    ] {
        assert_eq!(micros(program.call(call).expect("a cost"), Cause::FreedPages), 0.0);
        assert_eq!(program.dirty(), 4 * 256);
    }
    let half = Event { op: Op::Truncate, ..write(0, 2 * MIB, 0) };
    assert_eq!(micros(program.call(half).expect("a cost"), Cause::FreedPages), 512.0);
    assert_eq!(program.dirty(), 2 * 256);
}

/// What was there before is as long as the call tells, and cached as far as is known.
#[test]
fn a_file_that_was_there_before_is_freed_as_a_whole() {
    let cut = Event { offset: 4 * MIB, requested: 0, ..opened(flag::TRUNC) };
    for call in [Event { op: Op::Unlink, ..write(0, 0, 4 * MIB) }, cut] {
        let mut program = Program::on(&disk());
        let told = program.call(call).expect("a cost");
        // Folios of 16 pages.
        assert_eq!(micros(told, Cause::FreedPages).round(), 64.0 * (1.0 + 15.0 / 4.0));
        assert_eq!(told.work.frees_unknown, 1.0);
        assert_eq!(micros(program.call(call).expect("a cost"), Cause::FreedPages), 0.0, "once");
    }
}

/// Each change of a name by what a name that goes takes (8 µs) and a file that is made (2 + 10).
#[test]
fn names_cost_by_what_becomes_of_them() {
    let mut profile = disk();
    profile.calls.create = Some(Measured::assumed(Nanos::new(10e3)));
    let folder = |op| Event { op, ino: 0, kind: FileKind::Directory, ..write(0, 0, 0) };
    let renamed =
        |ino, offset| Event { op: Op::Rename, ino, offset, aux: u32::from(ino == 2), ..write(0, 0, 0) };
    let costs = |filesystem| {
        let mut program = Program::on(&HostProfile {
            device: DeviceConstants { filesystem: Some(filesystem), ..profile.device.clone() },
            ..profile.clone()
        });
        [
            folder(Op::Mkdir),
            folder(Op::Rmdir),
            Event { kind: FileKind::Other, ..folder(Op::Symlink) },
            Event { op: Op::Link, aux: 2, ..write(0, 0, 0) },
            renamed(2, 2),
            renamed(1, 2),
        ]
        .map(|call| {
            let told = program.call(call).expect("a cost");
            assert_eq!(told.cost, told.parts[Cause::Call], "{:?}", call.op);
            micros(told, Cause::Call)
        })
    };
    assert_eq!(costs(FilesystemKind::Ext4), [20.0, 12.0, 12.0, 8.0, 11.2, 14.0 + FAR]);
    assert_eq!(costs(FilesystemKind::Xfs)[..2], [12.0, 8.0], "a folder has no block");
    // A folder's block is discarded, too.
    profile.device.discard = Some(Measured::assumed(Rate::mb_per_second(1000.0)));
    let mut program = Program::on(&profile);
    assert!(program.waits(folder(Op::Rmdir)) > 0.0 && program.waits(folder(Op::Mkdir)) == 0.0);
    // What failed, and of older traces what replaces nothing, has no known cost.
    assert!(program.call(Event { errno: 17, ..folder(Op::Mkdir) }).is_none());
    assert!(program.call(Event { kind: FileKind::Unknown, ..folder(Op::Rename) }).is_none());
}

#[test]
fn blocks_of_the_device_become_free() {
    let unlinked = |filesystem, synced| {
        let mut profile = disk();
        profile.device.filesystem = Some(filesystem);
        let mut program = Program::on(&profile);
        written(&mut program, 1, 1, PAGE);
        if synced {
            program.call(Event { op: Op::Fsync, ..write(0, 0, 0) });
        }
        micros(program.call(Event { op: Op::Unlink, ..write(0, 0, 0) }).expect("a cost"), Cause::Call)
    };
    assert_eq!([false, true].map(|synced| unlinked(FilesystemKind::Ext4, synced)), [8.0 + FAR, 12.0 + FAR]);
    assert_eq!(unlinked(FilesystemKind::Tmpfs, true), 8.0 + FAR);
}

/// A device discards what was written, not what a sparse file lacks.
#[test]
fn holes_are_on_no_device() {
    const LONG: u64 = 20 << 30;
    let mut profile = disk();
    profile.device.discard = Some(Measured::assumed(Rate::mb_per_second(1000.0)));
    let mut program = Program::on(&profile);
    program.call(opened(flag::CREATED));
    program.call(Event { op: Op::Truncate, offset: LONG, ..write(0, 0, 0) });
    assert_eq!(program.waits(Event { op: Op::Unlink, requested: LONG, ..write(0, 0, 0) }), 0.0);
}

#[test]
fn pages_under_writeback_are_waited_for() {
    let mut program = Program::on(&disk());
    written(&mut program, 1, 4, MIB);
    program.call(super::range(Op::SyncRange, 0, 0, 2));
    let told = program.call(Event { op: Op::Truncate, ..write(0, 0, 0) }).expect("a cost");
    // 4 MiB at 500 MB/s.
    assert!((told.parts.device().as_seconds() / 8.39e-3 - 1.0).abs() < 0.02, "{told:?}");
    assert_eq!((program.dirty(), program.model.conservation().cancelled.0), (0, 0));
}

#[test]
fn the_device_discards_what_it_has() {
    let mut profile = disk();
    profile.device.discard = Some(Measured::assumed(Rate::mb_per_second(1000.0)));
    let unlinked = |synced| {
        let mut program = Program::on(&profile);
        written(&mut program, 1, 4, MIB);
        if synced {
            program.call(Event { op: Op::Fsync, ..write(0, 0, 0) });
        }
        program.waits(Event { op: Op::Unlink, ..write(0, 0, 0) })
    };
    assert_eq!(unlinked(false), 0.0, "it was never there");
    assert!((unlinked(true) - 4.194).abs() < 0.01, "{}", unlinked(true));
}

#[test]
fn close_begins_to_write_a_file_that_was_cut_off() {
    let flight_of = |profile: &HostProfile, filesystem, flags| {
        let mut profile = profile.clone();
        profile.device.filesystem = Some(filesystem);
        let mut program = Program::on(&profile);
        written(&mut program, 1, 1, MIB);
        program.call(opened(flags));
        // Another descriptor is open.
        program.call(closed(1, 0));
        written(&mut program, 1, 4, MIB);
        let told = program.call(closed(1, flag::LAST)).expect("a cost");
        assert_eq!(program.model.in_flight().0 > 0, told.parts.device() > Nanos::ZERO);
        let again = program.call(closed(1, flag::LAST)).expect("a cost");
        assert_eq!(again.parts.device(), Nanos::ZERO, "once");
        (program.model.in_flight().0 / MIB, micros(told, Cause::Transfer).round())
    };
    let mut profile = disk();
    let flight = |filesystem, flags| flight_of(&profile, filesystem, flags);
    // 20 µs, and a quarter of one for each page beyond the first of its folio; nothing waits for the device.
    assert_eq!(flight(FilesystemKind::Ext4, flag::TRUNC), (4, 20.0 + 255.0));
    assert_eq!(flight(FilesystemKind::Xfs, flag::TRUNC).0, 4);
    assert_eq!(flight(FilesystemKind::Ext4, 0), (0, 0.0));
    assert_eq!(flight(FilesystemKind::Ext4, flag::TRUNC | flag::CREATED), (0, 0.0), "a new file");
    assert_eq!(flight(FilesystemKind::Other, flag::TRUNC), (0, 0.0));
    // 1.75 times what a direct write takes for its blocks.
    profile.device.allocation = Some(Measured::assumed(Nanos::new(12e3)));
    assert_eq!(flight_of(&profile, FilesystemKind::Ext4, flag::TRUNC), (4, 21.0 + 255.0));
}

#[test]
fn rename_begins_to_write_the_file_that_replaces_another() {
    let flight = |filesystem, options: &str, call: Event, synced| {
        let mut profile = disk();
        profile.device.filesystem = Some(filesystem);
        let mut program = Program::on(&profile);
        let kind = format!("{filesystem:?}").to_lowercase();
        let mount = Filesystem { dev: 1, kind, options: options.into(), ..Filesystem::default() };
        program.model.meet_filesystems(&[mount]);
        written(&mut program, 1, 1, MIB);
        written(&mut program, 2, 4, MIB);
        if synced {
            program.call(Event { op: Op::Fsync, ino: 2, ..write(0, 0, 0) });
        }
        program.call(closed(2, 0));
        program.call(call);
        (program.model.in_flight().0 / MIB, program.dirty() / 256)
    };
    // A call that does not say which file is renamed, and those that do.
    let rename = Event { op: Op::Rename, offset: UNKNOWN_OFFSET, ..write(0, 0, 0) };
    assert_eq!(flight(FilesystemKind::Ext4, "rw", rename, false), (4, 4), "what was replaced is gone");
    assert_eq!(flight(FilesystemKind::Ext4, "rw", rename, true), (0, 0), "it is on the device");
    assert_eq!(flight(FilesystemKind::Xfs, "rw", rename, false), (0, 4));
    assert_eq!(flight(FilesystemKind::Ext4, "rw,noauto_da_alloc", rename, false), (0, 4));
    let other = Event { pid: 7, ..rename };
    assert_eq!(flight(FilesystemKind::Ext4, "rw", other, false), (0, 4), "of another process");
    assert_eq!(flight(FilesystemKind::Ext4, "rw", Event { offset: 2, ..other }, false), (4, 4), "by mv");
    assert_eq!(flight(FilesystemKind::Ext4, "rw", Event { offset: 3, ..rename }, false), (0, 4));
    let new = Event { offset: 2, ino: 2, aux: 1, ..rename };
    assert_eq!(flight(FilesystemKind::Ext4, "rw", new, false), (0, 5), "nothing is replaced");
}

/// In a run: what was dirty is gone with the last descriptor, that is told as the time of the close, and from
/// calls that take longer it is learned how long a page takes.
#[test]
fn a_run_learns_what_pages_take() {
    let (models, mode) = (vec!["kernel".to_owned()], Mode::Assimilated);
    let options = AnalysisOptions { models, mode, learn: true, ..AnalysisOptions::default() };
    let mut analysis = Analysis::with(&disk(), &options).expect("a model");
    let mut now = 0;
    let mut told = Vec::new();
    for round in 0..40 {
        let mut call = |event: Event, duration: u64| {
            let event = Event { start: now, duration, ino: 10 + round, fd: 3, ..event };
            now += duration + 1000;
            analysis.take(&Record::Event(event)).predictions[0]
        };
        let is = |op| Event { op, ..with(flag::WRITABLE, 0, 0) };
        call(Event { returned: 3, ..opened(flag::CREATED) }, 5000);
        for at in 0..256 {
            call(write(0, at * PAGE, PAGE), 3000);
        }
        call(is(Op::Unlink), 5000);
        told.push(call(is(Op::Close), 513_000).expect("a cost").cost.get());
    }
    assert_eq!(told[0].round(), 257_000.0);
    assert!((told[39] / 513e3 - 1.0).abs() < 0.1, "{told:?}");
    let report = analysis.report();
    assert!(report.models[0].by_op["close"].predicted_s > 0.25 * 40e-3);
}

/// Names cost more than an open tells, and so does a wait until the device has discarded a block.
#[test]
fn a_run_learns_what_names_and_discards_take() {
    for (discards, took) in [(false, 24_000), (true, 150_000)] {
        let mut profile = disk();
        profile.device.discard = discards.then(|| Measured::assumed(Rate::mb_per_second(1000.0)));
        profile.device.latency = Some(Measured::assumed(Nanos::new(40e3)));
        let (models, mode) = (vec!["kernel".to_owned()], Mode::Assimilated);
        let options = AnalysisOptions { models, mode, learn: true, ..AnalysisOptions::default() };
        let mut analysis = Analysis::with(&profile, &options).expect("a model");
        let unlink = |round| Event {
            start: round * (took + 1000),
            duration: took,
            ino: 10 + round,
            requested: PAGE,
            ..Event { op: Op::Unlink, ..write(0, 0, 0) }
        };
        let told: Vec<f64> = (0..400)
            .map(|round| {
                analysis.take(&Record::Event(unlink(round))).predictions[0].expect("a cost").cost.get()
            })
            .collect();
        assert!(told[0] < 0.6 * took as f64);
        assert!((told[399] / took as f64 - 1.0).abs() < 0.1, "{discards}: {} {}", told[0], told[399]);
    }
}

fn on_ext4(syncs_stamps: bool) -> Program {
    let mut profile = disk();
    profile.calls.create = Some(Measured::assumed(Nanos::new(10e3)));
    profile.calls.stat = Some(Measured::assumed(Nanos::new(1.6e3)));
    profile.device.filesystem = Some(FilesystemKind::Ext4);
    profile.device.syncs_stamps = syncs_stamps;
    Program::on(&profile)
}

/// What making a file takes some seconds later, in µs.
fn make(program: &mut Program, ino: u64, after: u64) -> f64 {
    program.now += after * 1_000_000_000;
    let told = program.call(Event { ino, ..opened(flag::CREATED) }).expect("a cost");
    micros(told, Cause::Call).round()
}

/// Without a journal, a new file passes over the deleted inodes below its own, at 0.075 of a stat (1.6 µs)
/// each.
#[test]
fn new_files_pass_over_what_was_deleted_lately() {
    let created = |syncs_stamps, op: Op| {
        let mut program = on_ext4(syncs_stamps);
        for ino in 100..1100 {
            program.call(Event { op, ino, ..closed(ino, flag::LAST | flag::GONE) });
        }
        [(100, 0), (1100, 0), (2000, 1), (99, 0), (1101, 70)]
            .map(|(ino, after)| make(&mut program, ino, after))
    };
    let passed = 12.0 + (0.12_f64 * 999.0).round();
    for op in [Op::Close, Op::Unlink] {
        assert_eq!(created(true, op), [12.0, passed, passed, 12.0, 12.0]);
        assert_eq!(created(false, op), [12.0; 5]);
    }
}

/// The same of what was deleted before the first call: nobody knows where below, nor when in the latest
/// minute.
#[test]
fn new_files_pass_over_what_was_deleted_before() {
    let created = |syncs_stamps| {
        let mut program = on_ext4(syncs_stamps);
        let found = DeletedFacts { dev: opened(0).dev, inode: 5000, passed: 3000 };
        program.model.found_deleted(&found, Time(program.now));
        [(5000, 0), (2500, 0), (5001, 30), (5002, 31)].map(|(ino, after)| make(&mut program, ino, after))
    };
    let all = 0.12 * 3000.0;
    assert_eq!(created(true), [12.0 + all, 12.0 + all / 2.0, 12.0 + all / 2.0, 12.0]);
    assert_eq!(created(false), [12.0; 4]);
    // Of a file without a name, which takes 4.4 times as long as opening its folder if it passes over none.
    let (folder, nameless) = (0.78 * 2e-6, 4.4 * 0.78 * 2e-6);
    let passed = |took| passed_over(Seconds(took), Seconds(folder));
    assert_eq!(passed(nameless + 0.12e-6 * 3000.5).0, 3000);
    assert_eq!([0.0, nameless, nameless + 5e-6, 2e-3].map(passed), [(0, Seconds::ZERO); 4]);
}

/// Nothing tells of these, but in lockstep the files that were made: some fifty are enough, and one that took
/// long for another reason is not. Once new files go down, others count.
#[test]
fn what_new_files_pass_over_follows_what_they_took() {
    let mut program = on_ext4(true);
    let mut made = |ino: u64, took: u64| {
        let event = Event { ino, start: program.now, duration: took, ..opened(flag::CREATED) };
        program.now += took + 1_000;
        let told = program.model.follow(&event, Time(event.start + took)).expect("a cost");
        micros(told, Cause::Call).round()
    };
    assert_eq!([made(100, 12_000), made(101, 5_000_000), made(102, 12_000)][..2], [12.0, 12.0]);
    assert!(made(103, 12_000) <= 14.0);
    let last = (0..60).map(|at| made(200 + at, 412_000)).last();
    assert!((400.0..=412.0).contains(&last.unwrap()), "{last:?}");
    let last = (0..60).map(|at| made(400 + at, 12_000)).last();
    assert_eq!(last, Some(12.0));
}
