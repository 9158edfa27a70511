//! Pages and folios of files: dirty, clean, dropped.

use cawl_core::{Bytes, Cause, CostModel, Kernel, Measured, Nanos, Time};
use cawl_wire::{ADVICE_DONTNEED, Event, Op, flag};

use super::{Program, profile, range, roomy, stream, with, write};

#[test]
fn deleted_files_are_not_written() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 8);
    let mut unlink = Event { op: Op::Unlink, ..write(at, 0, 0) };
    (unlink.ino, unlink.aux) = (1, 1);
    model.step(&unlink);
    assert_eq!(model.state().dirty, Bytes::mib(8), "another link is left");
    unlink.aux = 0;
    model.step(&unlink);
    assert_eq!((model.state().dirty, model.conservation().cancelled), (Bytes::ZERO, Bytes::mib(8)));
}

/// Pages beside the latest ones cost less than pages elsewhere, upwards and downwards; cached ones cost the
/// same anywhere.
#[test]
fn new_pages_apart_from_the_latest_take_longer() {
    let page = 4096;
    let cost = |jump: f64, pages: &[u64]| {
        let mut profile = profile();
        profile.calls.jump = Some(Measured::assumed(Nanos::new(jump * 1e3)));
        let mut program = Program::on(&profile);
        let costs =
            pages.iter().map(|at| program.call(write(0, at * page, page)).expect("a cost").cost.get());
        costs.sum::<f64>() / 1e3
    };
    let more = |pages: &[u64]| cost(0.5, pages) - cost(0.0, pages);
    assert!(more(&[0, 1, 2, 3]).abs() < 0.01);
    assert!((more(&[9, 8, 7, 6]) - 0.5).abs() < 0.01, "but the first");
    assert!((more(&[0, 2, 4, 5, 1]) - 1.5).abs() < 0.01);
    assert!((more(&[0, 1, 2, 3, 0, 2, 1]) - 0.0).abs() < 0.01);
}

/// `block_write_begin` goes through all blocks of a folio, whatever part of it is written.
#[test]
fn a_small_write_passes_the_other_blocks_of_a_large_folio() {
    let (page, mib) = (4096, 1 << 20);
    // A file of 16 MiB in calls of this size, then a page at each of these places: what passing blocks took.
    let passed = |chunk: u64, cache: u64, pages: &[u64]| {
        let mut profile = profile();
        profile.calls.block = Some(Measured::assumed(Nanos::new(2.0)));
        profile.calls.block_far = Some(Measured::assumed(Nanos::new(100.0)));
        profile.memory.block_cache = Some(Bytes(cache));
        let mut program = Program::on(&profile);
        let mut part = |event| {
            let told = program.call(event).expect("a cost");
            assert!((told.parts.total() / told.cost - 1.0).abs() < 1e-9);
            told.parts[Cause::LargeFolio].get()
        };
        let made: f64 = (0..16 * mib / chunk).map(|at| part(write(0, at * chunk, chunk))).sum();
        assert_eq!(made, 0.0, "new pages pass none");
        pages.iter().map(|at| part(write(0, at * page, page)).round()).collect::<Vec<_>>()
    };
    // Folios of 256 pages. In the cache, the second write to a folio is nothing special.
    assert_eq!(passed(mib, 1 << 40, &[256, 300, 700]), [510.0, 510.0, 510.0]);
    // None of it in the cache, but for the folio of the write before.
    assert_eq!(passed(mib, 1, &[256, 300, 700]), [25_500.0, 510.0, 25_500.0]);
    // Half of it.
    assert_eq!(passed(mib, 16 * mib, &[256, 300]), [13_005.0, 510.0]);
    assert_eq!(passed(page, 1, &[256, 300]), [0.0, 0.0]);
    // Over the end of one folio and the begin of the next, and over whole ones.
    let program = |bytes: u64, at: u64| {
        let mut profile = profile();
        profile.calls.block = Some(Measured::assumed(Nanos::new(2.0)));
        let mut program = Program::on(&profile);
        for at in 0..4 {
            program.call(write(0, at * mib, mib)).expect("a cost");
        }
        program.call(write(0, at, bytes)).expect("a cost").parts[Cause::LargeFolio].get().round()
    };
    assert_eq!((program(2 * page, mib - page), program(2 * mib, mib)), (1020.0, 0.0));
}

/// A file written in calls of a mebibyte is clean, and then rewritten in a few places.
#[test]
fn a_folio_counts_as_dirty_as_a_whole() {
    for (chunk, counted) in [(1 << 20, 1 << 20), (4096, 16 << 10)] {
        let mut model = Kernel::new(&profile());
        let mut start = 0;
        let mut call = |model: &mut Kernel, event: Event| {
            let cost = model.step(&Event { start, ..event }).expect("a cost").cost;
            start += cost.get() as u64 + 1000;
        };
        for at in (0..16 << 20).step_by(chunk) {
            call(&mut model, write(0, at, chunk as u64));
        }
        call(&mut model, Event { op: Op::Fsync, ..write(0, 0, 0) });
        let before = model.conservation();
        assert_eq!(before.dirty, Bytes::ZERO);
        for _ in 0..2 {
            for at in [0, 3 << 20, 9 << 20] {
                call(&mut model, write(0, at + (500 << 10), 16 << 10));
            }
        }
        // Once, however often its pages are written.
        let after = model.conservation();
        assert_eq!(after.dirtied.0 - before.dirtied.0, 3 * counted, "calls of {chunk} B");
        // What was not written takes the device no time.
        let fsync = model.step(&Event { op: Op::Fsync, start, ..write(0, 0, 0) }).expect("a cost");
        assert!((fsync.work.transferred - 3.0 * 16384.0).abs() < 1.0, "calls of {chunk} B");
        assert_eq!(model.conservation().dirty, Bytes::ZERO);
    }
}

/// A file system gives the number of a deleted file to the next one.
#[test]
fn a_new_file_with_an_old_number_keeps_its_pages() {
    let mut model = Kernel::new(&profile());
    let other = |op| Event { op, ..write(0, 0, 0) };
    for _ in 0..2 {
        model.step(&other(Op::Open));
        model.step(&write(0, 0, 1 << 20)).expect("a cost");
        model.step(&other(Op::Close));
        assert_eq!(model.conservation().dirty, Bytes::mib(1));
        model.step(&other(Op::Unlink));
        assert_eq!(model.conservation().dirty, Bytes::ZERO);
    }
}

/// Rewriting a small file stays in the processor's cache; of a large one only the source does.
#[test]
fn a_large_file_is_not_in_the_processors_cache() {
    let mut profile = profile();
    // Without another figure, four times as fast as from memory.
    profile.memory.near = Some(Measured::assumed(profile.memory.cached.value * 16.0));
    let rewritten = |mib: u64| {
        let mut model = Kernel::new(&profile);
        let mut cost =
            |start, offset, bytes| model.step(&write(start, offset, bytes)).expect("a cost").parts.copying();
        let (_, new) = (cost(0, 0, (mib << 20) - 65536), cost(1_000_000_000, (mib << 20) - 65536, 65536));
        (new, cost(2_000_000_000, 0, 65536))
    };
    let [(new, small), (same, large)] = [1, 64].map(rewritten);
    assert_eq!(new, same);
    assert!((large / small - 4.0).abs() < 0.01, "{large} {small}");
}

#[test]
fn what_is_not_on_the_device_is_not_read() {
    let part = |at: u64| write(0, at + 100, 1000);
    let mut profile = profile();
    profile.device.seek = Measured::assumed(Nanos::millis(8.0));
    let mut program = Program::on(&profile);
    // Space set aside, a hole behind the end, and a file made longer.
    program.call(range(Op::Allocate, 0, 8 << 20, 0));
    assert_eq!(program.waits(part(0)), 0.0);
    assert_eq!(program.waits(part(5 << 20)), 0.0);
    assert_eq!(program.waits(part(20 << 20)), 0.0);
    assert_eq!(program.waits(part(15 << 20)), 0.0);
    program.call(Event { op: Op::Truncate, ..write(0, 40 << 20, 0) });
    assert_eq!(program.waits(part(30 << 20)), 0.0);
    // The seek to it.
    assert!(program.waits(with(flag::DIRECT, 32 << 20, 8192)) < 9.0);
    // What was written once is there, also when it was written past the cache; but not in a hole punched
    // since.
    assert!(program.waits(part(32 << 20)) > 8.0);
    program.call(range(Op::Allocate, (32 << 20) + 4096, 4096, 2 | 1));
    assert_eq!(program.waits(part((32 << 20) + 4096)), 0.0);
    // A file that was there before.
    program.call(Event { op: Op::Open, requested: 1 << 20, ino: 2, ..write(0, 0, 0) });
    assert!(program.waits(Event { ino: 2, ..part(0) }) > 8.0);
}

/// Dirty pages as cachestat(2) counts them on a 6.18 kernel.
#[test]
fn folios_with_dirty_pages_are_dropped_whole_or_not_at_all() {
    const MIB: u64 = 1 << 20;
    let mut program = Program::new();
    program.call(write(0, 0, 16 * MIB));
    let truncate = |size| Event { op: Op::Truncate, ..write(0, size, 0) };
    for (size, dirty) in [(8 * MIB, 2048), (4 * MIB + 100, 1536), (32 * MIB, 1536), (0, 0)] {
        program.call(truncate(size));
        assert_eq!(program.dirty(), dirty, "{size}");
    }
    program.call(write(0, 0, 4 * MIB));
    program.waits_at(Op::Fsync);
    program.call(truncate(MIB + 100));
    assert_eq!(program.dirty(), 0);
    program.call(write(0, 8 * MIB, 4 * MIB));
    for (offset, bytes, mode) in [(8 * MIB, MIB, 3), (9 * MIB + 100, 1000, 3), (10 * MIB, MIB, 16)] {
        program.call(range(Op::Allocate, offset, bytes, mode));
        assert_eq!(program.dirty(), 1024);
    }
    program.call(range(Op::Allocate, 8 * MIB, 2 * MIB, 3));
    assert_eq!(program.dirty(), 512);
    // What is moved is written out before, not dropped.
    program.call(range(Op::Allocate, 0, MIB, 8));
    let totals = program.model.conservation();
    program.waits_at(Op::Fsync);
    assert_eq!((program.dirty(), program.model.conservation().cancelled), (0, totals.cancelled));
    // And the file is shorter: an append that does not say where goes to its new end.
    program.call(write(0, cawl_wire::UNKNOWN_OFFSET, 4096));
    let before = program.dirty();
    program.call(write(0, 11 * MIB, 4096));
    assert_eq!(program.dirty(), before);
}

#[test]
fn stores_dirty_pages_at_their_faults() {
    let profile = roomy();
    let mut model = Kernel::new(&profile);
    let event = Event { op: Op::MmapWrite, ..write(1, 0, 8 << 20) };
    let stores = model.step(&event).expect("a cost");
    let faults = profile.calls.write.value.as_seconds() * 2048.0;
    assert!(
        stores.cost.as_seconds() >= faults && stores.parts[Cause::Call].as_seconds() == faults,
        "{stores:?}"
    );
    assert_eq!((model.conservation().dirtied, stores.work.copied), (Bytes::mib(8), [0.0; 2]));
    // No time passes for what was done before.
    assert_eq!(model.state().time, Time(1));
    // What is dirty faults no more.
    assert_eq!(model.step(&Event { start: 2, ..event }).expect("a cost").cost, Nanos::ZERO);
    // And is written by msync.
    let msync = Event { op: Op::Msync, aux: 4, ..write(3, 0, 0) };
    let waited = model.step(&msync).expect("a cost").parts.device().as_seconds();
    assert!(waited > (8 << 20) as f64 / profile.device.write.value.get());
}

/// Reading a page for a part of it takes a request, which a direct write tells.
#[test]
fn a_page_that_is_read_first_takes_a_request() {
    let read = |direct: Option<f64>| {
        let mut profile = profile();
        profile.device.direct = direct.map(|time| Measured::assumed(Nanos::new(time)));
        let mut program = Program::on(&profile);
        program.call(write(0, 0, 1 << 20));
        program.waits_at(Op::Fsync);
        program.call(range(Op::Advise, 0, 0, ADVICE_DONTNEED));
        let part = program.call(write(0, 4096, 512)).expect("a cost");
        part.parts[Cause::PartialPage].get()
    };
    assert!((read(Some(30e3)) - read(None) - 30e3).abs() < 1.0);
    assert!(read(None) > 0.0);
}

/// What DONTNEED drops is new memory when it is written again, or read if only a part of a page is.
#[test]
fn advised_pages_are_dropped_as_far_as_they_are_on_the_device() {
    let dontneed = |offset, bytes| range(Op::Advise, offset, bytes, ADVICE_DONTNEED);
    let filled = || {
        let mut program = Program::new();
        program.call(write(0, 0, 16 << 20));
        program
    };
    let synced = || {
        let mut program = filled();
        program.waits_at(Op::Fsync);
        program
    };
    // Whether a write got new pages, and whether it had to read.
    let written = |program: &mut Program, offset, bytes| {
        let told = program.call(write(0, offset, bytes)).expect("a cost");
        (told.work.fresh.iter().sum::<f64>() > 0.0, told.parts[Cause::PartialPage] > Nanos::ZERO)
    };
    // A whole page is new, a part of one is read.
    let cases = [(dontneed(0, 0), true), (dontneed(0, 8 << 20), true), (range(Op::Advise, 0, 0, 2), false)];
    for (advice, drops) in cases {
        let mut program = synced();
        program.call(advice);
        assert_eq!(written(&mut program, 1 << 20, 4096), (drops, false), "{advice:?}");
        assert_eq!(written(&mut program, 2 << 20, 100), (drops, drops), "{advice:?}");
        let all = drops && advice.requested == 0;
        assert_eq!(written(&mut program, 12 << 20, 4096), (all, false), "{advice:?}");
    }
    // What failed changes nothing.
    let mut program = synced();
    program.call(Event { returned: -1, errno: 29, ..dontneed(0, 0) });
    assert_eq!(written(&mut program, 0, 4096), (false, false));
    // What is dirty is begun to be written, and stays until that is done.
    let mut program = filled();
    assert_eq!(program.model.in_flight(), Bytes::ZERO);
    program.call(dontneed(0, 4 << 20));
    assert_eq!(program.model.in_flight(), Bytes::mib(4));
    assert_eq!(written(&mut program, 1 << 20, 4096), (false, false), "under writeback");
    program.call(dontneed(0, 4 << 20));
    program.now += 1_000_000_000;
    program.call(dontneed(0, 4 << 20));
    assert_eq!(written(&mut program, 1 << 20, 4096), (true, false));
    // Pages of which only a part is in the range stay.
    let mut program = synced();
    program.call(dontneed(100, 4000));
    assert_eq!(written(&mut program, 0, 4096), (false, false));
}

/// What advice drops is freed folio by folio; where nothing is cached, it takes a call.
#[test]
fn advice_takes_time_for_the_folios_that_it_drops() {
    let mut profile = profile();
    profile.calls.free = Measured::assumed(Nanos::new(800.0));
    let mut program = Program::on(&profile);
    for page in 0..64 {
        program.call(write(0, page * 4096, 4096));
    }
    program.waits_at(Op::Fsync);
    let mut freed = |offset, bytes| {
        let told = program.call(range(Op::Advise, offset, bytes, ADVICE_DONTNEED)).expect("a cost");
        assert!((told.parts[Cause::FreedPages].get() - told.work.freed * 800.0).abs() < 1e-3);
        told.work.freed
    };
    assert_eq!(freed(0, 16 * 4096), 16.0);
    assert_eq!(freed(0, 16 * 4096), 0.0, "gone already");
    assert_eq!(freed(0, 0), 48.0, "up to the end");
}
