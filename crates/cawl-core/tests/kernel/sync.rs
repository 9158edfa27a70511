//! Calls that wait for the device: journal, flush, latency, direct writes.

use cawl_core::{
    Bytes, Cause, CostModel, DirtyLimits, HostProfile, Kernel, Measured, Nanos, Rate, Release, Time,
};
use cawl_wire::{Event, FileKind, Op, flag};

use super::{Program, profile, range, small_writes, stream, with, write};

#[test]
fn fsync_waits_for_the_file_and_leaves_nothing() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 10);
    let fsync = Event { op: Op::Fsync, ino: 1, ..write(at, 0, 0) };
    let prediction = model.step(&fsync).expect("fsync has a cost");
    assert!(prediction.cost > Bytes::mib(10) / Rate::mb_per_second(500.0));
    assert_eq!(model.state().dirty, Bytes::ZERO);
    let again = Event { start: at + prediction.cost.get() as u64 + 1, ..fsync };
    // What is left to do is a flush of the device's cache.
    let flush = profile().device.fsync.value * 0.5;
    let cost = model.step(&again).expect("fsync has a cost").cost;
    assert!(cost > flush && cost < flush + Nanos::new(10_000.0), "{cost:?}");
}

/// As measured on a 6.18 kernel, ext4, on such a disk.
#[test]
fn what_is_to_commit_decides_what_a_sync_costs() {
    let near = |found: f64, ms: f64| assert!((found - ms).abs() < 1.5, "{found} ms instead of {ms}");
    let mut program = Program::new();
    program.call(write(0, 0, 256 << 10));
    program.waits(range(Op::SyncRange, 0, 0, 7));
    // The data are there, the new blocks and the size are not; then nothing is left.
    near(program.waits_at(Op::Fsync), 41.0);
    near(program.waits_at(Op::Fsync), 20.0);
    near(program.waits_at(Op::Fdatasync), 20.0);
    // Blocks that are there change nothing but a time stamp.
    program.call(write(0, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 20.0);
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(write(0, 256 << 10, 4096));
    near(program.waits_at(Op::Fdatasync), 41.0);
    // The same of synchronous writes, through the cache and past it.
    for past in [0, flag::DIRECT] {
        program.waits(with(past | flag::DSYNC, 0, 4096));
        near(program.waits(with(past | flag::DSYNC, 4096, 4096)), 20.0);
        near(program.waits(with(past | flag::SYNC, 8192, 4096)), 41.0);
    }
    near(program.waits(with(flag::DSYNC, 260 << 10, 4096)), 41.0);
    near(program.waits(with(flag::DSYNC | flag::DIRECT, 264 << 10, 4096)), 41.0);
    program.waits(with(flag::DIRECT, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 20.0);
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(Event { op: Op::Truncate, ..write(0, 4096, 0) });
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(range(Op::Allocate, 0, 1 << 20, 0));
    near(program.waits_at(Op::Fdatasync), 41.0);
    // All of the filesystem, with something to commit and without.
    program.call(write(0, 0, 4096));
    for all in [Op::Syncfs, Op::Sync] {
        near(program.waits_at(all), if all == Op::Syncfs { 41.0 } else { 20.0 });
        near(program.waits_at(all), 20.0);
    }
    // The journal commits by itself.
    program.call(Event { op: Op::Truncate, ..write(0, 8192, 0) });
    program.now += 6_000_000_000;
    near(program.waits_at(Op::Fsync), 20.0);
    // A name has changed, and the directory is asked to be safe.
    let directory = Event { op: Op::Fsync, kind: FileKind::Directory, ino: 99, ..write(0, 0, 0) };
    assert_eq!(program.waits(directory), 0.0);
    program.call(Event { op: Op::Unlink, ..write(0, 0, 0) });
    near(program.waits(directory), 41.0);
    // msync: at once, and some day.
    program.call(write(0, 0, 4096));
    assert_eq!(program.waits(range(Op::Msync, 0, 4096, 1)), 0.0);
    near(program.waits(range(Op::Msync, 0, 4096, 4)), 41.0);
}

#[test]
fn a_wait_for_what_was_submitted_has_its_latency_once() {
    let mut program = small_writes();
    let page = program.model.clone().step(&with(flag::DIRECT, 0, 4096)).expect("a cost");
    let transfer = page.parts.device().get() / 1e3 - 90.0;
    assert!(transfer > 0.0 && transfer < 20.0 && page.work.latencies == 1.0, "{transfer} µs");
    let mut waits = |event: Event, micros: f64| {
        let found = program.waits(event) * 1e3;
        assert!((found - micros).abs() < 0.1, "{found} µs instead of {micros}: {event:?}");
    };
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    // New blocks, the same again, and nothing at all.
    waits(write(0, 0, 4096), 0.0);
    waits(sync, 90.0 + transfer + 150.0);
    waits(write(0, 0, 4096), 0.0);
    waits(sync, 90.0 + transfer + 70.0);
    waits(sync, 70.0);
    // Synchronous writes, into new blocks and into those.
    for past in [0, flag::DIRECT] {
        let offset = 4096 + u64::from(past > 0) * 4096;
        waits(with(past | flag::DSYNC, offset, 4096), 90.0 + transfer + 155.0);
        waits(with(past | flag::DSYNC, offset, 4096), 90.0 + transfer + 70.0);
    }
    // All files of the filesystem: one wait, one commit.
    waits(write(0, 1 << 20, 4096), 0.0);
    let all = Event { op: Op::Syncfs, ..write(0, 0, 0) };
    let found = program.call(all).expect("a cost").work;
    assert_eq!((found.latencies, found.fsyncs, found.flushes), (1.0, 1.0, 0.0));
}

/// A device that was idle for a while takes longer, once for each call that waits.
#[test]
fn an_idle_device_wakes_up() {
    let mut profile = profile();
    profile.device.idle = Some(Measured::assumed(Nanos::new(60e3)));
    let mut program = Program::on(&profile);
    let mut wait = |millis: f64| {
        program.now += (millis * 1e6) as u64;
        program.call(with(flag::DSYNC, 0, 4096)).expect("a cost")
    };
    wait(0.0);
    let at_once = wait(0.0);
    assert!(at_once.work.idle < 0.1, "{}", at_once.work.idle);
    for (millis, micros) in [(1.0, 60.0), (9.0, 180.0), (1000.0, 60.0 * 10_f64.sqrt())] {
        let more = (wait(millis).cost.get() - at_once.cost.get()) / 1e3;
        assert!((more - micros).abs() < 2.0, "{more} µs instead of {micros} after {millis} ms");
    }
}

/// What a direct write takes by itself is not what a wait for cached pages does: on a disk with heads that
/// wait seeks.
#[test]
fn a_direct_write_has_a_fixed_part_of_its_own() {
    let mut profile = profile();
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    profile.device.latency = Some(micros(8000.0));
    let cost = |profile: &cawl_core::HostProfile, flags| {
        let mut program = Program::on(profile);
        program.call(with(flags, 0, 4096)).expect("a cost").cost.get() / 1e3
    };
    assert!(cost(&profile, flag::DIRECT) > 8000.0);
    profile.device.direct = Some(micros(100.0));
    let direct = cost(&profile, flag::DIRECT);
    assert!((100.0..150.0).contains(&direct), "{direct} µs");
    assert!(cost(&profile, flag::DIRECT | flag::DSYNC) > 8000.0);
}

/// New blocks are allocated: where the file grows, and where nothing was written yet.
#[test]
fn a_direct_write_into_new_blocks_takes_longer() {
    let more = |flags| {
        let costs = |allocation: f64| {
            let mut profile = profile();
            profile.device.allocation = Some(Measured::assumed(Nanos::new(allocation * 1e3)));
            let mut program = Program::on(&profile);
            program.call(range(Op::Allocate, 0, 1 << 20, 0));
            // Set aside, the same again, behind the end, the same again.
            let places = [0, 0, 1 << 20, 1 << 20];
            places.map(|at| program.call(with(flags, at, 4096)).expect("a cost").cost.get() / 1e3)
        };
        let (with, without) = (costs(20.0), costs(0.0));
        std::array::from_fn::<f64, 4, _>(|at| (with[at] - without[at]).round())
    };
    assert_eq!(more(flag::DIRECT), [20.0, 0.0, 20.0, 0.0]);
    assert_eq!(more(flag::DIRECT | flag::DSYNC), [20.0, 0.0, 20.0, 0.0]);
    assert_eq!(more(flag::DSYNC), [0.0; 4], "has a constant of its own");
}

/// Parts of blocks take longer where the file grows or has a hole, and allocate once for each block.
#[test]
fn a_direct_write_of_a_part_of_a_block_takes_longer_where_the_file_grows() {
    let costs = |partial: Option<f64>, flags, calls: &[(u64, u64)]| {
        let mut profile = profile();
        let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
        profile.device.allocation = Some(micros(20.0));
        profile.device.partial = partial.map(micros);
        profile.device.write.value = Rate::mb_per_second(1e9);
        let mut program = Program::on(&profile);
        program.call(range(Op::Allocate, 0, 8192, 0));
        let cost =
            |(at, bytes): &(u64, u64)| program.call(with(flags, *at, *bytes)).expect("a cost").cost.get();
        let costs: Vec<f64> = calls.iter().map(cost).collect();
        costs.iter().map(|cost| ((cost - costs[0]) / 1e3).round()).collect::<Vec<f64>>()
    };
    // A whole block into space set aside; a part of one there; over both; behind the end, and on there.
    let calls =
        [(0, 4096), (4096, 512), (4608, 512), (512, 1024), (8192, 2048), (10_240, 2048), (10_240, 2048)];
    let direct = |partial| costs(partial, flag::DIRECT, &calls);
    assert_eq!(direct(Some(300.0)), [0.0, 300.0, -20.0, -20.0, 300.0, 280.0, -20.0]);
    assert_eq!(direct(None), [0.0, 0.0, -20.0, -20.0, 0.0, 0.0, -20.0], "as without the constant");
    // Sizes of whole blocks that do not begin at one, and more than one block.
    let odd = [(0, 4096), (8704, 4096), (12_800, 8192)];
    assert_eq!(costs(Some(300.0), flag::DIRECT, &odd), [0.0, 300.0, 300.0]);
    let through = |partial| costs(partial, flag::DSYNC, &calls);
    assert_eq!(through(Some(300.0)), through(None), "the page cache has whole pages");
}

/// Through the page cache, blocks are allocated as its pages are handed over.
#[test]
fn a_synchronous_write_into_new_blocks_takes_longer() {
    let costs = |allocation: f64, flags| {
        let mut profile = profile();
        profile.device.delayed_allocation = Some(Measured::assumed(Nanos::new(allocation * 1e3)));
        let mut program = Program::on(&profile);
        [0, 4096, 4096].map(|at| program.call(with(flags, at, 4096)).expect("a cost").cost.get() / 1e3)
    };
    let more = |flags| {
        let (with, without) = (costs(30.0, flags), costs(0.0, flags));
        std::array::from_fn::<f64, 3, _>(|at| (with[at] - without[at]).round())
    };
    assert_eq!(more(flag::SYNC), [30.0, 30.0, 0.0]);
    assert_eq!(more(flag::DSYNC), [30.0, 30.0, 0.0]);
    assert_eq!(more(flag::DSYNC | flag::DIRECT), [0.0; 3]);
    assert_eq!(more(0), [0.0; 3]);
}

/// Scattered pages and small folios take a waiting caller longer; large writes and other devices' do not.
#[test]
fn each_request_and_each_folio_takes_its_time() {
    let mut profile = profile();
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    (profile.device.request, profile.device.folio) = (Some(micros(10.0)), Some(micros(2.0)));
    profile.device.seek = micros(100.0);
    let cost = |profile: &cawl_core::HostProfile, sizes: &[(u64, u64)]| {
        let mut program = Program::on(profile);
        for (at, size) in sizes {
            program.call(write(0, *at, *size));
        }
        program.call(Event { op: Op::Fsync, ..write(0, 0, 0) }).expect("a cost")
    };
    let page = 4096;
    let in_a_row: Vec<_> = (0..16).map(|at| (at * page, page)).collect();
    let apart: Vec<_> = (0..16).map(|at| (3 * at * page, page)).collect();
    let at_once = cost(&profile, &[(0, 16 * page)]);
    let (in_a_row, apart) = (cost(&profile, &in_a_row), cost(&profile, &apart));
    let longer = |than: &cawl_core::Prediction| (than.cost.get() - at_once.cost.get()) / 1e3;
    assert!((longer(&in_a_row) - 15.0 * 2.0).abs() < 0.1, "{}", longer(&in_a_row));
    assert!((longer(&apart) - 15.0 * (2.0 + 10.0 + 100.0)).abs() < 0.1, "{}", longer(&apart));
    assert_eq!((apart.work.requests, apart.work.handed, apart.work.seeks), (15.0, 15.0, 15.0));
    assert!((apart.parts[Cause::Seek].get() / 1e3 - 1500.0).abs() < 0.1);
    assert_eq!((at_once.work.requests, at_once.work.handed), (0.0, 0.0));
    // A slow device writes while a waiting caller hands over what comes after the first full request, a fast
    // one is done with it before.
    let mut handed = |rate: f64, last: Event| {
        profile.device.write = Measured::assumed(Rate::mb_per_second(rate));
        let mut program = Program::on(&profile);
        for at in 0..1025 {
            program.call(write(0, at * page, page));
        }
        program.call(last).expect("a cost").work.handed
    };
    let fsync = Event { op: Op::Fsync, ..write(0, 0, 0) };
    assert_eq!(handed(500.0, fsync), 255.0);
    assert!((handed(4096.0, fsync) - (1024.0 - 769.0 / 2.0)).abs() < 1.0);
    assert_eq!(handed(500.0, range(Op::SyncRange, 0, 0, 2)), 1024.0);
}

/// The kernel's time stamps are those of its clock's ticks (`inode_needs_update_time`).
#[test]
fn writes_within_a_tick_change_the_inode_once() {
    let fsync = Event { op: Op::Fsync, ..write(0, 0, 0) };
    // Through the page cache, and past it.
    for calls in [&[write(0, 0, 4096), fsync][..], &[with(flag::DIRECT | flag::SYNC, 0, 4096)]] {
        let mut program = small_writes();
        program.call(write(0, 0, 4096));
        program.call(fsync);
        let hz = u64::from(profile().kernel.hz);
        let mut commits = 0.0;
        let start = program.now;
        while program.now < start + 100 * 1_000_000_000 / hz {
            for call in calls {
                let work = program.call(*call).expect("a cost").work;
                commits += work.fsyncs + work.syncs;
            }
        }
        assert!((99.0..=101.0).contains(&commits), "{commits} commits in 100 ticks");
    }
}

/// Stamps that were read change with the next write where the kernel has fine ones, and on ext4 without a
/// journal every sync of a changed inode writes it (6.18: one request more, of 4 KiB).
#[test]
fn without_a_journal_time_stamps_are_written_too() {
    let mut profile = profile();
    profile.device.latency = Some(Measured::assumed(Nanos::millis(0.1)));
    profile.device.flush = Some(Measured::assumed(Nanos::millis(0.1)));
    profile.device.fsync = Measured::assumed(Nanos::millis(0.2));
    (profile.device.syncs_stamps, profile.device.commit) = (true, Nanos::ZERO);
    let read = with(flag::STAMPS_READ, 0, 4096);
    let waits = |profile: &HostProfile, between: Event| {
        let mut program = Program::on(profile);
        let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
        // Both within a tick: the stamps have changed with the first write.
        let work =
            [write(0, 0, 4096), sync, between, sync].map(|call| program.call(call))[3].expect("a cost").work;
        (work.latencies, work.fsyncs, work.flushes)
    };
    assert_eq!(waits(&profile, write(0, 0, 4096)), (1.0, 0.0, 1.0));
    assert_eq!(waits(&profile, Event { ino: 2, ..write(0, 0, 4096) }), (0.0, 0.0, 1.0));
    assert_eq!(waits(&profile, read), (1.0, 0.0, 1.0), "before 6.13");
    profile.kernel.fine_stamps = true;
    assert_eq!(waits(&profile, read), (2.0, 0.0, 1.0));
    assert_eq!(waits(&profile, write(0, 4096, 4096)), (1.0, 1.0, 0.0), "it grows");
    // What other files have is left to a sync of all.
    let mut program = Program::on(&profile);
    let other = Event { ino: 2, ..write(0, 0, 4096) };
    let fsync = Event { op: Op::Fsync, ..write(0, 0, 0) };
    let all = Event { op: Op::Sync, ino: 0, ..fsync };
    let [_, _, _, first, second] =
        [write(0, 0, 4096), other, fsync, all, all].map(|call| program.call(call).expect("a cost").work);
    assert_eq!((first.fsyncs, second.fsyncs, program.dirty()), (1.0, 0.0, 0));
    profile.device.syncs_stamps = false;
    assert_eq!(waits(&profile, read), (1.0, 0.0, 1.0));
}

/// A call that takes longer than calls are held back is told of after samples from its middle, to which the
/// model has been advanced.
#[test]
fn a_call_that_is_told_late_waits_no_longer_for_that() {
    for op in [Op::Fsync, Op::Syncfs, Op::Sync] {
        let [at_once, late] = [0, 300_000_000].map(|later| {
            let mut program = Program::new();
            program.call(write(0, 0, 64 << 20));
            program.model.advance(Time(program.now + later));
            program.waits_at(op)
        });
        assert!((at_once - late).abs() < 1e-3, "{op:?}: {at_once} ms, told late {late} ms");
    }
}

/// As a 6.18 kernel does it: a direct write of 4 KiB over a file with 64 MiB dirty writes out one folio.
#[test]
fn a_direct_write_over_dirty_pages_waits_for_those_only() {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(256), hard: Bytes::mib(512) };
    let mut model = Kernel::new(&profile);
    let written = model.step(&write(0, 0, 64 << 20)).expect("a cost");
    let start = written.cost.get() as u64 + 1;
    let direct = |start, offset, bytes| Event { flags: flag::DIRECT, ..write(start, offset, bytes) };
    let over = model.step(&direct(start, 4096, 4096)).expect("a cost");
    assert_eq!(model.state().dirty, Bytes::mib(62));
    let device = profile.device.write.value;
    assert!(over.cost > Bytes::mib(2) / device && over.cost < Bytes::mib(3) / device, "{over:?}");
    let start = start + over.cost.get() as u64 + 1;
    let behind = model.step(&direct(start, 64 << 20, 4096)).expect("a cost");
    assert_eq!(model.state().dirty, Bytes::mib(62));
    assert!(behind.cost < Bytes::mib(1) / device, "{behind:?}");
}

#[test]
fn a_write_waits_for_the_log_of_its_files_transaction() {
    let mut profile = profile();
    profile.device.commit = Nanos::seconds(1.0);
    profile.device.latency = Some(Measured::assumed(Nanos::millis(3.0)));
    profile.kernel.limits.hard = Bytes::mib(1024);
    let mut program = Program::on(&profile);
    // 2 MiB each 10 ms, faster than the device and below freerun: no pause, the queue is full when the commit
    // is due.
    let mut waits = Vec::new();
    for turn in 0..150_u64 {
        let began = program.now;
        let parts = program.call(write(0, turn << 21, 2 << 20)).expect("a cost").parts;
        assert_eq!(parts[Cause::Throttle], Nanos::ZERO);
        if parts[Cause::Journal] > Nanos::ZERO {
            waits.push((began as f64 * 1e-9, parts[Cause::Journal].as_seconds()));
        }
        program.now += 10_000_000;
    }
    // What is in flight, 8 MiB at 120 MB/s at most, and the log behind it.
    let [(when, wait)] = waits[..] else { panic!("one write waits: {waits:?}") };
    assert!((0.98..1.05).contains(&when) && (0.001..0.075).contains(&wait), "{waits:?}");
    // A file that is not in the transaction does not wait.
    let mut program = Program::on(&profile);
    for turn in 0..150_u64 {
        program.call(write(0, turn << 20, 1 << 20));
        let other = program.call(Event { ino: 1000 + turn, ..write(0, 0, 4096) }).expect("a cost");
        assert_eq!(other.parts[Cause::Journal], Nanos::ZERO);
        program.now += 10_000_000;
    }
}

/// Before 6.6 each page by which a file grows changes its inode, so that a call waits which was under way
/// when the commit began; since then only its time stamps do, at its begin.
#[test]
fn growing_waits_for_no_log_since_6_6() {
    let mut profile = profile();
    profile.device.commit = Nanos::seconds(1.0);
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(8192) };
    let waits = [Release(6, 5), Release(6, 6)].map(|release| {
        profile.kernel.release = Some(release);
        let mut program = Program::on(&profile);
        program.call(write(0, 0, 64 << 20));
        program.now = 950_000_000;
        program.call(write(0, 64 << 20, 3 << 30)).expect("a cost").parts[Cause::Journal].as_seconds()
    });
    assert!(waits[0] > 0.01 && waits[1] == 0.0, "{waits:?}");
}

/// A commit that comes due during an fsync has its log behind that file's pages. Once these are known to be
/// written, which may be sooner than at the flusher's rate, the log is as well.
#[test]
fn nothing_waits_for_a_log_behind_what_an_fsync_has_written() {
    let mut profile = profile();
    profile.device.commit = Nanos::seconds(1.0);
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(256), hard: Bytes::mib(512) };
    for observed in [None, Some(60_000_000)] {
        let mut program = Program::on(&profile);
        program.call(write(0, 0, 100 << 20));
        program.now = 980_000_000;
        let fsync = Event { op: Op::Fsync, start: program.now, ..write(0, 0, 0) };
        match observed {
            None => drop(program.call(fsync)),
            Some(took) => {
                program.model.follow(&fsync, Time(program.now + took)).expect("a cost");
                program.now += took;
            }
        }
        assert!(program.now > 1_010_000_000, "the commit is due during the fsync: {}", program.now);
        program.now += 10_000_000;
        let waited = program.call(write(0, 0, 4096)).expect("a cost").parts[Cause::Journal];
        assert!(waited < Nanos::millis(5.0), "{observed:?}: {waited:?}");
    }
}

#[test]
fn pauses_while_a_commit_withholds_completions_are_waiting_for_the_device() {
    let mut profile = profile();
    profile.device.commit = Nanos::seconds(1.0);
    let mut model = Kernel::new(&profile);
    // The first second ends in the middle of throttled writing; then everything in flight, 8 MiB at 120 MB/s,
    // has to be on the device first.
    let (mut at, mut offset, mut waits, mut pauses) = (0, 0, Vec::new(), 0);
    while at < 1_900_000_000 {
        let parts = model.step(&write(at, offset, 1 << 20)).expect("a write has a cost").parts;
        if parts.device() > Nanos::ZERO {
            waits.push(at as f64 * 1e-9);
        }
        pauses += u32::from(parts[Cause::Throttle] > Nanos::ZERO);
        at = (Time(at) + parts.total()).0;
        offset += 1 << 20;
    }
    assert!(!waits.is_empty() && waits.iter().all(|when| (0.9..1.2).contains(when)), "{waits:?}");
    assert!(pauses > 10, "only the commit's pauses are the device's");
}

/// An fsync beyond the background limit waits for all that was dirty when it began, also if it is told only
/// after the flusher has come to that limit.
#[test]
fn an_fsync_beyond_the_background_limit_waits_for_all() {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(188), hard: Bytes::mib(377) };
    profile.device.writeback = Measured::assumed(Rate::mb_per_second(73.0));
    profile.device.write = Measured::assumed(Rate::mb_per_second(70.0));
    for (count, told_after) in [(180, 0.0), (300, 0.0), (300, 1.0), (300, 4.0)] {
        let mut program = Program::on(&profile);
        for at in 0..count {
            program.call(write(0, at << 20, 1 << 20));
        }
        let dirty = program.dirty() as f64 * 4096.0;
        program.model.advance(Time(program.now + (told_after * 1e9) as u64));
        let waited = program.waits_at(Op::Fsync) / 1e3;
        let least = dirty / 74e6;
        assert!((least..1.1 * least).contains(&waited), "{count}, {told_after}: {waited} of {least} s");
    }
}
