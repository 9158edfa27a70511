//! What copying costs: cold memory, new folios, inodes, time away, the processor's cache.

use cawl_core::{
    Bytes, Cause, CostModel, DirtyLimits, FilesystemKind, HostProfile, Job, Kernel, Measured, MemoryFacts,
    Nanos, Prediction, Rate, Scene, Time, ZoneFacts, predict,
};
use cawl_wire::{Event, Op, flag};

use super::{Program, profile, small_writes, write};

#[test]
fn a_write_into_a_clean_inode_costs_more() {
    let mut program = small_writes();
    let mut work = |event: Event| program.call(event).expect("a cost");
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    let other = Event { ino: 77, ..write(0, 0, 4096) };
    assert_eq!(work(write(0, 0, 4096)).work.inodes, 1.0);
    let plain = work(write(0, 0, 4096));
    assert_eq!(plain.work.inodes, 0.0);
    work(other);
    work(sync);
    // Another file, dirty all the time, then the one that the sync has cleaned.
    assert_eq!(work(other).work.inodes, 0.0);
    let clean = work(write(0, 0, 4096));
    assert_eq!(clean.work.inodes, 1.0);
    let more = (clean.cost.get() - plain.cost.get()) / 1e3;
    assert!((more - 4.0).abs() < 0.01, "{more} µs");
}

/// Time away counts for each way through the kernel that a call takes: with the square root of milliseconds,
/// up to ten.
#[test]
fn a_write_costs_the_more_the_longer_its_thread_was_away() {
    let mut program = small_writes();
    program.call(write(0, 0, 1 << 20));
    let after = |program: &mut Program, millis: f64, event: Event| {
        program.now += (millis * 1e6) as u64;
        program.call(event).expect("a cost")
    };
    let at_once = after(&mut program, 0.0, write(0, 0, 4096));
    assert!(at_once.work.away < 1e-3, "{}", at_once.work.away);
    for (millis, micros) in [(0.01, 0.3), (1.0, 3.0), (4.0, 6.0), (500.0, 3.0 * 10_f64.sqrt())] {
        let more = (after(&mut program, millis, write(0, 0, 4096)).cost.get() - at_once.cost.get()) / 1e3;
        assert!((more - micros).abs() < 0.01, "{more} µs instead of {micros} after {millis} ms");
    }
    // New pages are another way; a clean inode has a cost of its own.
    let appended = after(&mut program, 1.0, write(0, 1 << 20, 4096));
    let created = after(&mut program, 1.0, Event { ino: 78, ..write(0, 0, 4096) });
    let (appended, created) = (appended.work.away, created.work.away);
    assert!((appended - 2.0).abs() < 1e-3 && (created - 2.0).abs() < 1e-3, "{appended} {created}");
    // While it waits, it is away; another thread has been for longer than counts.
    program.call(Event { op: Op::Fdatasync, ..write(0, 0, 0) });
    let waited = after(&mut program, 0.0, write(0, 0, 4096)).work.away;
    assert!(waited > 0.5 && waited < 3.0, "{waited}");
    let new = program.call(Event { tid: 99, ..write(0, 0, 4096) }).expect("a cost").work.away;
    assert!((new - 10_f64.sqrt()).abs() < 1e-9, "{new}");
}

/// Calls that stay in a stream's buffer are no calls into the kernel, whether the model lives through them or
/// follows them.
#[test]
fn a_stream_that_fills_its_buffer_is_away() {
    let line = |at: u32| Event {
        op: Op::StreamWrite,
        flags: flag::STREAM_KNOWN,
        buffer: 4096,
        pending_before: at * 100 - 100,
        pending_after: at * 100,
        ..write(u64::from(at) * 100_000, 4096, 100)
    };
    for follows in [false, true] {
        let mut program = small_writes();
        let mut call = |event: Event| match follows {
            true => program.model.follow(&event, Time(event.start + 1000)),
            false => program.model.step(&event),
        };
        let _ = call(write(0, 0, 4096));
        (1..10).for_each(|at| assert_eq!(call(line(at)).expect("a cost").work.calls, 0.0));
        let away = call(write(1_000_000, 0, 4096)).expect("a cost").work.away;
        assert!((away - 1.0).abs() < 0.02, "{away}");
    }
}

/// What the kernel goes through of a large folio is in the processor's cache the second time (6.18: 10 µs
/// instead of 40).
#[test]
fn the_rest_of_a_folio_costs_once_while_no_other_comes_between() {
    let mut program = small_writes();
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    program.call(write(0, 0, 4 << 20));
    program.call(sync);
    let mut padded = |offset| {
        let work = program.call(write(0, offset, 4096)).expect("a cost").work;
        program.call(sync);
        work.padded[0] + work.padded[1]
    };
    let rest = padded(0);
    assert!(rest >= 1e6, "{rest} B");
    assert_eq!((padded(0), padded(8192)), (0.0, 0.0));
    assert_eq!((padded(2 << 20), padded(0), padded(4096)), (rest, rest, 0.0));
}

#[test]
fn memory_that_may_be_cold_widens_the_interval_of_fresh_pages() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    let mut model = Kernel::new(&profile);
    let fresh = model.step(&write(0, 0, 2 << 20)).expect("a write has a cost");
    let again = model.step(&write(1_000_000_000, 0, 2 << 20)).expect("a write has a cost");
    let above = |p: &Prediction| p.interval.expect("an interval").1 / p.parts.copying();
    assert!(above(&fresh) > 9.9, "{fresh:?}");
    assert!(above(&again) < 2.0, "{again:?}");
}

#[test]
fn cold_memory_is_a_part_of_its_own() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    let mut model = Kernel::new(&profile);
    let warm = model.step(&write(0, 0, 2 << 20)).expect("a cost");
    model.supply(Some(true));
    let cold = model.step(&write(1_000_000_000, 2 << 20, 2 << 20)).expect("a cost");
    let again = model.step(&write(2_000_000_000, 2 << 20, 2 << 20)).expect("a cost");
    assert_eq!((warm.parts[Cause::ColdMemory], again.parts[Cause::ColdMemory]), (Nanos::ZERO, Nanos::ZERO));
    assert!((cold.parts.copying() / warm.parts.copying() - 1.0).abs() < 1e-6, "{cold:?} {warm:?}");
    let expected = (2 << 20) as f64 * profile.memory.cold_byte().0;
    assert!((cold.parts[Cause::ColdMemory].as_seconds() / expected - 1.0).abs() < 1e-6, "{cold:?}");
    assert!((cold.cost / cold.parts.total() - 1.0).abs() < 1e-9);
}

#[test]
fn cold_memory_begins_where_the_warm_is_used_up() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(4096), hard: Bytes::mib(8192) };
    // 100 MiB in blocks of a mebibyte, then 300 MiB that the host has.
    let mut free = vec![0; 11];
    (free[8], free[10]) = (100, 75);
    let zone = ZoneFacts { free: free.clone(), cold: Some(free), ..ZoneFacts::default() };
    let facts = MemoryFacts { time: Time(0), order: 9, zones: vec![zone], files: None };
    let mut model = Kernel::new(&profile);
    model.free_memory(&facts);
    let write_all = |model: &mut Kernel, begin: u64, calls: u64| {
        let (mut at, mut found) = (begin, Vec::new());
        for call in 0..calls {
            let prediction = model.step(&write(at, call << 20, 1 << 20)).expect("a cost");
            assert!((prediction.cost / prediction.parts.total() - 1.0).abs() < 1e-9);
            if let Some((low, high)) = prediction.interval {
                assert!(low <= prediction.cost && prediction.cost <= high, "{prediction:?}");
            }
            at = (Time(at) + prediction.cost).0;
            found.push(prediction.parts[Cause::ColdMemory] > Nanos::ZERO);
        }
        (at, found)
    };
    let (at, found) = write_all(&mut model, 0, 500);
    let expected: Vec<bool> = (0..500).map(|call| (100..400).contains(&call)).collect();
    assert_eq!(found, expected, "what no zone has free is dropped from the cache, and warm");
    // What is freed is warm for two seconds.
    model.gone(write(at, 0, 0).file());
    assert!(!write_all(&mut model.clone(), at, 400).1.contains(&true));
    let later = write_all(&mut model, at + 60_000_000_000, 400).1;
    assert_eq!(later.iter().position(|cold| *cold), Some(100));
    // A call that takes seconds is told when it is over: a look during it says what it had taken by then.
    let (mut looked, mut other) = (Kernel::new(&profile), Kernel::new(&profile));
    looked.free_memory(&facts);
    other.free_memory(&facts);
    let emptied = |seconds: u64| {
        let mut facts = facts.clone();
        facts.time = Time(seconds * 1_000_000_000);
        (facts.zones[0].free[8], facts.zones[0].free[10]) = (0, 75 - 10 * seconds);
        facts
    };
    (1..=2).for_each(|seconds| looked.free_memory(&emptied(seconds)));
    let long = |model: &mut Kernel| {
        model.step(&write(500_000_000, 0, 300 << 20)).expect("a cost").parts[Cause::ColdMemory]
    };
    assert_eq!(long(&mut looked), long(&mut other));
    // A copy that looks ahead in larger pieces sees the same.
    let mut ahead = Kernel::new(&profile);
    ahead.free_memory(&facts);
    let job = Job {
        bytes: Bytes::mib(500),
        chunk: Bytes::mib(1),
        sync: false,
        fsync: false,
        after: Nanos::ZERO,
        device: None,
        others: Rate::MIN,
    };
    let cost = predict(Scene::new(&ahead, Time(0), 5), &job).expect("a job");
    let expected = (300 << 20) as f64 * profile.memory.cold_byte().0;
    assert!((cost.cold.as_seconds() / expected - 1.0).abs() < 0.02, "{cost:?}, not {expected}");
    assert!(cost.interval.is_some_and(|(low, high)| low < cost.cost && cost.cost < high), "{cost:?}");
}

/// Where it was not measured what the processor's cache saves, small writes may cost as much a byte as large
/// ones, or nothing.
#[test]
fn what_the_processors_cache_saves_is_uncertain() {
    let mut profile = profile();
    let cached = profile.memory.cached.value;
    profile.memory.cached = Measured { value: cached, p10: Some(cached), p90: Some(cached), samples: 9 };
    profile.calls.write = Measured { p10: Some(Nanos::ZERO), p90: Some(Nanos::ZERO), ..profile.calls.write };
    // Low, high and predicted, in parts of copying from memory.
    let rewritten = |profile: &HostProfile, bytes: u64| {
        let mut model = Kernel::new(profile);
        let _ = model.step(&write(0, 0, bytes));
        let told = model.step(&write(1_000_000_000, 0, bytes)).expect("a write has a cost");
        let (low, high) = told.interval.expect("an interval");
        let part = |time: Nanos| {
            (time.as_seconds() - told.parts[Cause::Call].as_seconds()) / bytes as f64 * cached.get()
        };
        [low, high, told.cost].map(part)
    };
    let near = |found: [f64; 3], expected: [f64; 3]| {
        let all = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.1);
        assert!(all, "{found:?}, not {expected:?}");
    };
    near(rewritten(&profile, 64 << 10), [0.0, 1.0, 0.25]);
    near(rewritten(&profile, 16 << 20), [1.0, 1.0, 1.0]);
    // What is measured is at least true if the data are there.
    profile.memory.hot = Some(Measured::assumed(cached * 1.6));
    near(rewritten(&profile, 64 << 10), [0.625, 1.0, 0.625]);
    near(rewritten(&profile, 16 << 20), [1.0, 1.0, 1.0]);
    // Neither need the pages be near, nor the data of a large call in that cache.
    profile.memory.near = Some(Measured::assumed(cached * 5.0));
    near(rewritten(&profile, 64 << 10), [0.2, 1.0, 0.2]);
    profile.memory.near = None;
    (profile.memory.hot_large, profile.memory.hot_size) =
        (Some(Measured::assumed(cached * 4.0)), Bytes::mib(2));
    near(rewritten(&profile, 2 << 20), [0.26, 1.0, 0.26]);
    // Nothing makes it slower.
    profile.memory.hot = Some(Measured::assumed(cached * 0.5));
    near(rewritten(&profile, 64 << 10), [1.0, 1.0, 1.0]);
}

/// Pages that were written lately are in the processor's cache, those of a small file near the core: 64 KiB
/// over the begin of one of 1 MiB, 4 MiB, and 64 MiB, whose begin was written long ago, and over its end.
#[test]
fn pages_that_were_copied_lately_are_in_the_processors_cache() {
    let mut profile = profile();
    let cached = profile.memory.cached.value;
    profile.memory.hot = Some(Measured::assumed(cached * 2.0));
    let rewritten = |profile: &HostProfile, size: u64, at: u64| {
        let mut model = Kernel::new(profile);
        let _ = model.step(&write(0, 0, size));
        let told = model.step(&write(1_000_000_000, at, 64 << 10)).expect("a write has a cost");
        (told.parts[Cause::Copy].as_seconds() / f64::from(64 << 10) * cached.get() * 1e3).round()
    };
    let of_sizes = |profile: &HostProfile| {
        let begins = [1, 4, 64].map(|size| rewritten(profile, size << 20, 0));
        [begins[0], begins[1], begins[2], rewritten(profile, 64 << 20, 63 << 20)]
    };
    assert_eq!(of_sizes(&profile), [500.0; 4]);
    // A quarter of the difference is left in the last cache.
    profile.memory.near = Some(Measured::assumed(cached * 5.0));
    assert_eq!(of_sizes(&profile), [200.0, 275.0, 500.0, 275.0]);
}

/// Where each page is a folio of its own, a part of it takes as long as all of it.
#[test]
fn a_part_of_a_single_page_costs_what_all_of_it_does() {
    let mut profile = profile();
    profile.memory.near = Some(Measured::assumed(profile.memory.cached.value * 2.0));
    let mut copies = |filesystem: FilesystemKind| {
        profile.device.filesystem = Some(filesystem);
        let mut model = Kernel::new(&profile);
        let _ = model.step(&write(0, 0, 64 << 10));
        let times = [(0, 512), (4096, 4096), (8000, 400)].map(|(offset, bytes)| {
            model.step(&write(1_000_000_000, offset, bytes)).expect("a write has a cost").parts[Cause::Copy]
                .get()
        });
        times.map(|time| (time / times[1] * 1e3).round())
    };
    assert_eq!(copies(FilesystemKind::Btrfs), [1000.0, 1000.0, 2000.0]);
    assert_eq!(copies(FilesystemKind::Ext4), [125.0, 1000.0, 98.0]);
}

/// The first write over a page costs more; which page that was is not remembered.
#[test]
fn pages_are_written_over_first_once() {
    let mut profile = profile();
    profile.device.filesystem = Some(FilesystemKind::Tmpfs);
    let copied = |profile: &HostProfile| {
        let mut model = Kernel::new(profile);
        let mut sum = |times: u64| {
            let calls = (0..times * 16).map(|at| write(0, at % 16 * 4096, 4096));
            calls.map(|event| model.step(&event).expect("a cost").parts[Cause::Copy].get()).sum::<f64>()
        };
        [sum(1), sum(1), sum(20), sum(1)]
    };
    let without = copied(&profile);
    profile.calls.over = Some(Measured::assumed(Nanos::new(1000.0)));
    let with = copied(&profile);
    let more: Vec<f64> = with.iter().zip(without).map(|(with, without)| with - without).collect();
    assert!(more[0] == 0.0 && more[1] > 9_000.0 && more[3] < 1.0, "{more:?}");
    assert!((more[1] + more[2] - 16_000.0).abs() < 1.0, "{more:?}");
}

#[test]
fn each_new_folio_costs_extra_and_old_ones_do_not() {
    let mut profile = profile();
    let mut without = Kernel::new(&profile);
    profile.calls.folio = Some(Measured::assumed(Nanos::new(2000.0)));
    let mut with = Kernel::new(&profile);
    // A page, the same page again, five pages as four and one, and a mebibyte in one piece.
    for (at, (offset, bytes, folios)) in
        [(0, 4096, 1.0), (0, 4096, 0.0), (1 << 20, 5 * 4096, 2.0), (2 << 20, 1 << 20, 1.0)]
            .into_iter()
            .enumerate()
    {
        let event = write(at as u64 * 10_000_000, offset, bytes);
        let [plain, dear] = [&mut without, &mut with].map(|model| model.step(&event).expect("a cost").cost);
        let more = dear.get() - plain.get();
        assert!((more - folios * 2000.0).abs() < 1.0, "{offset} {bytes}: {more} ns more");
    }
}

#[test]
fn a_write_of_no_bytes_costs_what_was_measured_of_it() {
    let cost = |profile: &HostProfile| Program::on(profile).call(write(0, 0, 0)).expect("a cost").cost;
    let mut profile = profile();
    assert_eq!(cost(&profile), profile.calls.write.value);
    profile.calls.empty = Some(Measured::assumed(Nanos::new(150.0)));
    assert_eq!(cost(&profile), Nanos::new(150.0));
    assert!(Program::on(&profile).call(write(0, 0, 1)).expect("a cost").cost > profile.calls.write.value);
}
