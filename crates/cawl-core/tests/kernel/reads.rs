//! Reads: what is cached, what is read ahead, and what waits for the device.

use cawl_core::{
    Bytes, CallState, Cause, CostModel, HostProfile, Measured, Nanos, Prediction, QueueConstants, Rate, Time,
};
use cawl_wire::{ADVICE_DONTNEED, Event, Op, flag};

use super::{Program, profile, range, write};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A device that reads 100 MB/s after 1 ms, 10 ms away from the read before; calls of 1 µs and copies of 1
/// GB/s whatever they are of.
fn disk() -> HostProfile {
    let mut profile = profile();
    let rate = |rate| Some(Measured::assumed(Rate::mb_per_second(rate)));
    let micros = |time: f64| Some(Measured::assumed(Nanos::new(time * 1e3)));
    profile.calls.read = micros(1.0);
    profile.calls.empty_read = micros(0.2);
    profile.calls.away = None;
    (profile.memory.read, profile.memory.read_hot) = (rate(1000.0), rate(1000.0));
    profile.memory.read_fresh = rate(1000.0);
    profile.memory.hot = Some(profile.memory.cached);
    let device = &mut profile.device;
    device.read = Measured::assumed(Rate::mb_per_second(100.0));
    device.read_latency = micros(11e3);
    device.latency = micros(1e3);
    device.seek = Measured::assumed(Nanos::millis(10.0));
    device.idle = None;
    device.readahead = Bytes(128 * KIB);
    profile
}

fn read(offset: u64, bytes: u64) -> Event {
    Event { op: Op::Pread, fd: 3, ..write(0, offset, bytes) }
}

/// What the kernel tells of a file of 64 ranges of this length, the first `cached` of which are cached.
fn resident(length: u64, cached: u32) -> Event {
    let mask = if cached >= 64 { u64::MAX } else { (1 << cached) - 1 };
    Event { requested: mask, ..range(Op::Resident, length, 0, 0) }
}

fn opened(size: u64) -> Event {
    Event { op: Op::Open, requested: size, returned: 3, fd: 3, ..write(0, 0, 0) }
}

/// A program that has opened a file of 64 MiB of which the first `cached` MiB are cached.
fn program(profile: &HostProfile, cached: u32) -> Program {
    let mut program = Program::on(profile);
    program.call(opened(64 * MIB));
    program.call(resident(MIB, cached));
    program
}

fn micros(told: Prediction, cause: Cause) -> f64 {
    (told.parts[cause].get() / 1e3).round()
}

#[test]
fn what_is_cached_is_copied() {
    let mut program = program(&disk(), 1);
    let told = program.call(read(0, MIB)).unwrap();
    assert_eq!((told.state, micros(told, Cause::Read)), (CallState::Free, 0.0));
    assert_eq!((micros(told, Cause::Call), micros(told, Cause::Copy)), (1.0, 1049.0));
    let told = program.call(read(64 * MIB, 0)).unwrap();
    assert_eq!(told.cost, Nanos::new(200.0));
    // What was written is.
    program.call(write(0, 8 * MIB, MIB));
    assert_eq!(micros(program.call(read(8 * MIB, MIB)).unwrap(), Cause::Read), 0.0);
}

#[test]
fn what_is_not_cached_is_read_and_stays() {
    let mut program = program(&disk(), 0);
    // 11 ms, and 4 KiB at 100 MB/s; read alone, since nothing was read before it.
    let told = program.call(read(32 * MIB, 4 * KIB)).unwrap();
    assert_eq!((told.state, micros(told, Cause::Read)), (CallState::Read, 11_041.0));
    assert_eq!(program.call(read(32 * MIB, 4 * KIB)).unwrap().state, CallState::Free);
    // Dropped, it is read again.
    program.call(range(Op::Advise, 0, 0, ADVICE_DONTNEED));
    assert_eq!(program.call(read(32 * MIB, 4 * KIB)).unwrap().state, CallState::Read);
    // A file that was emptied has nothing to be read.
    program.call(Event { op: Op::Truncate, ..write(0, 0, 0) });
    program.call(Event { op: Op::Truncate, ..write(0, MIB, 0) });
    assert_eq!(program.call(read(0, MIB)).unwrap().state, CallState::Free);
}

#[test]
fn a_stream_is_read_ahead_at_the_rate_of_the_device() {
    let mut program = program(&disk(), 0);
    let begin = program.now;
    let mut waits = 0;
    for at in 0..16 * 256 {
        let told = program.call(read(at * 4 * KIB, 4 * KIB)).unwrap();
        waits += u32::from(told.parts[Cause::Read] > Nanos::ZERO);
    }
    // Begins with a seek, then goes on at 100 MB/s, which is less than what copying takes.
    let took = (program.now - begin) as f64 / 1e6;
    let alone = 11.0 + 16.0 * MIB as f64 / 100e3;
    assert!((took / alone - 1.0).abs() < 0.02, "{took} ms, {alone} by the device's rate");
    // Windows of 128 KiB: one wait for each, and not for each call.
    assert!((100..200).contains(&waits), "{waits}");
    // In one call it takes no less, however many windows that are.
    let told = self::program(&disk(), 0).call(read(0, 64 * MIB)).unwrap();
    let (took, alone) = (told.cost.get() / 1e6, 11.0 + 64.0 * MIB as f64 / 100e3);
    assert!((took / alone - 1.0).abs() < 0.02, "{took} ms, {alone} by the device's rate");
    // A program that takes its time does not wait.
    for at in 16 * 256..20 * 256 {
        program.now += 200_000;
        let told = program.call(read(at * 4 * KIB, 4 * KIB)).unwrap();
        assert!(at < 16 * 256 + 32 || told.parts[Cause::Read] == Nanos::ZERO, "page {at}");
    }
}

#[test]
fn advice_changes_what_is_read_ahead() {
    let waits = |advice: u32| {
        let mut program = program(&disk(), 0);
        program.call(Event { fd: 3, ..range(Op::Advise, 0, 0, advice) });
        program.now += 1_000_000_000;
        let told = (0..64).map(|at| program.call(read(at * 4 * KIB, 4 * KIB)).unwrap());
        told.filter(|told| told.parts[Cause::Read] > Nanos::ZERO).count()
    };
    let [normal, random, sequential, will_need] = [0, 1, 2, 3].map(waits);
    assert_eq!((random, will_need), (64, 0), "1280 KiB were wanted before");
    assert!(sequential <= normal && normal < 16, "{sequential}, {normal}");
}

#[test]
fn direct_reads_write_out_first_and_leave_nothing() {
    let mut program = program(&disk(), 0);
    let direct = |offset| Event { flags: flag::DIRECT, ..read(offset, MIB) };
    let told = program.call(direct(0)).unwrap();
    assert_eq!(micros(told, Cause::Read), 11_000.0 + 10_486.0);
    // The next in a row needs no seek.
    assert_eq!(micros(program.call(direct(MIB)).unwrap(), Cause::Read), 1000.0 + 10_486.0);
    assert_eq!(program.call(read(0, 4 * KIB)).unwrap().state, CallState::Read);
    program.call(write(0, 2 * MIB, MIB));
    let told = program.call(direct(2 * MIB)).unwrap();
    assert!(told.parts[Cause::Transfer] > Nanos::ZERO, "{told:?}");
    assert_eq!(program.dirty(), 0);
}

#[test]
fn two_readers_share_the_device() {
    let mut program = program(&disk(), 0);
    let begin = program.now;
    let direct =
        |tid, start| Event { flags: flag::DIRECT, tid, start, ..read(u64::from(tid) * 8 * MIB, MIB) };
    let first = cawl_core::CostModel::step(&mut program.model, &direct(1, begin)).unwrap();
    let second = cawl_core::CostModel::step(&mut program.model, &direct(2, begin)).unwrap();
    assert_eq!(micros(first, Cause::Read), 21_486.0);
    // It waits for the first one's transfer, then moves.
    assert_eq!(micros(second, Cause::Read), 21_486.0 + 10_000.0 + 10_486.0);
}

#[test]
fn what_the_device_has_in_its_own_cache_comes_faster_while_it_does() {
    let mut profile = disk();
    profile.device.cached_read = Some(Measured::assumed(Rate::mb_per_second(1000.0)));
    profile.device.cached_read_latency = Some(Measured::assumed(Nanos::new(100e3)));
    let mut program = program(&profile, 0);
    let mut follow = |offset: u64, took: f64| {
        let event = Event { start: program.now, ..read(offset * MIB, 4 * KIB) };
        program.now += took as u64 + 1000;
        let end = cawl_core::Time(event.start + took as u64);
        micros(cawl_core::CostModel::follow(&mut program.model, &event, end).unwrap(), Cause::Read)
    };
    assert_eq!(follow(2, 110e3), 11_041.0);
    assert_eq!(follow(5, 110e3), 104.0);
    assert_eq!(follow(9, 11e6), 104.0);
    assert_eq!(follow(14, 11e6), 11_041.0);
}

#[test]
fn a_file_of_which_nothing_is_known_is_taken_to_be_cached_until_it_is_not() {
    let mut program = Program::on(&disk());
    program.call(opened(64 * MIB));
    let mut follow = |offset: u64, took: f64| {
        let event = Event { start: program.now, ..read(offset * MIB, 4 * KIB) };
        program.now += took as u64 + 1000;
        let end = cawl_core::Time(event.start + took as u64);
        micros(cawl_core::CostModel::follow(&mut program.model, &event, end).unwrap(), Cause::Read)
    };
    assert_eq!(follow(2, 5e3), 0.0);
    assert_eq!(follow(7, 11e6), 0.0);
    assert_eq!(follow(11, 5e3), 11_041.0);
    assert_eq!(follow(17, 5e3), 0.0);
}

#[test]
fn a_stream_fills_its_buffer() {
    let mut program = program(&disk(), 64);
    let fgets = |before, after| Event {
        op: Op::StreamRead,
        flags: flag::STREAM_KNOWN,
        pending_before: before,
        pending_after: after,
        buffer: 4096,
        ..read(0, 100)
    };
    let told = program.call(fgets(0, 3996)).unwrap();
    assert_eq!((micros(told, Cause::Call), micros(told, Cause::Copy)), (1.0, 4.0));
    // At the end of the file the kernel is asked in vain.
    let told = program.call(fgets(3996, 3896)).unwrap();
    assert_eq!((told.state, told.parts[Cause::Call]), (CallState::Free, Nanos::new(200.0)));
    assert_eq!(told.parts[Cause::Copy], Nanos::ZERO);
}

#[test]
fn a_stream_has_its_buffer_from_the_first_call_on_and_its_close_is_one() {
    let mut profile = disk();
    profile.calls.buffer = Some(Measured::assumed(Nanos::new(7e3)));
    profile.calls.close = Some(Measured::assumed(Nanos::new(3e3)));
    let mut program = program(&profile, 64);
    let stream = |op, offset| Event {
        op,
        flags: flag::STREAM_KNOWN | flag::WRITABLE,
        pending_after: 3996,
        buffer: 4096,
        ..read(offset, 100)
    };
    for buffer in [7.0, 0.0] {
        let told = program.call(stream(Op::StreamRead, 0)).unwrap();
        assert_eq!(micros(told, Cause::Stream), buffer);
    }
    let closed = Event { pending_after: 0, returned: 0, ..stream(Op::StreamClose, 0) };
    assert_eq!(micros(program.call(closed).unwrap(), Cause::Call), 3.0);
    program.call(Event { op: Op::StreamOpen, ..opened(64 * MIB) });
    assert_eq!(micros(program.call(stream(Op::StreamRead, 0)).unwrap(), Cause::Stream), 7.0);
}

#[test]
fn memory_that_is_touched_first_is_allocated_in_the_time_of_the_read() {
    let mut profile = disk();
    profile.calls.fault = Some(Measured::assumed(Nanos::new(2e3)));
    let mut program = program(&profile, 64);
    let mut untouched = |pages: u32| {
        let told = program.call(Event { aux: pages, ..read(0, 64 * KIB) }).unwrap();
        (micros(told, Cause::NewPages), told.work.read.faults)
    };
    assert_eq!(untouched(0), (0.0, 0.0));
    assert_eq!(untouched(16), (32.0, 16.0));
    // No read of 64 KiB lies in more pages.
    assert_eq!(untouched(1 << 20), (34.0, 17.0));
}

/// Blocks of 8 KiB here and there, as a database reads them: without windows that others' marks open, each
/// second one would still not be cached.
#[test]
fn random_reads_come_to_read_ahead() {
    let mut profile = disk();
    profile.device.readahead = Bytes(8 * MIB);
    let mut program = program(&profile, 0);
    let mut random = 1u64;
    let mut waits = |reads: u32| {
        let waited = |_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (random >> 33) % (64 * MIB / (8 * KIB));
            let told = program.call(read(block * 8 * KIB, 8 * KIB)).unwrap();
            u32::from(told.work.read.latencies + told.work.read.transferred + told.work.read.ahead > 0.0)
        };
        (0..reads).map(waited).sum::<u32>()
    };
    assert!(waits(500) > 450);
    waits(7000);
    let waited = waits(500);
    assert!(waited < 100, "{waited} reads of 500 found nothing");
}

/// While the device reads, it writes nothing back.
#[test]
fn a_reader_slows_writeback() {
    let written = |reads: u64| {
        let mut program = program(&disk(), 0);
        for at in 0..24 {
            program.call(write(0, (128 + at) * MIB, MIB));
        }
        let begin = program.now;
        for at in 0..reads {
            program.call(Event { flags: flag::DIRECT, ..read(at * MIB, MIB) });
        }
        assert!(program.now < begin + 100_000_000);
        cawl_core::CostModel::advance(&mut program.model, cawl_core::Time(begin + 100_000_000));
        24.0 - program.dirty() as f64 / 256.0
    };
    // 100 ms of 120 MB/s, in extents of 8 MiB; 7 MiB and the first seek take 84 of them.
    let (alone, beside) = (written(0), written(7));
    assert_eq!((alone, beside), (8.0, 0.0));
}

/// A device that serves requests in their order lets a read wait for the writes that it has: a quarter of 16
/// to begin with, and no more than one once reads have been slow for some windows.
#[test]
fn a_read_waits_for_the_writes_before_it() {
    let waits = |reads_wait: Option<f64>| {
        let mut profile = disk();
        profile.device.shared_queue = reads_wait.map(|part| QueueConstants {
            reads_wait: Measured::assumed(part),
            reads_wait_for_reads: None,
            wbt_latency: Nanos::millis(2.0),
            requests: 128,
            write_cache: true,
        });
        profile.device.commit = Nanos::ZERO;
        profile.kernel.limits.hard = Bytes::mib(4096);
        let mut program = program(&profile, 0);
        for at in 0..512 {
            program.call(write(0, (128 + at) * MIB, MIB));
        }
        let direct = |at: u64| Event { flags: flag::DIRECT, ..read(at * 2 * MIB, 4 * KIB) };
        let waits: Vec<f64> =
            (0..30).map(|at| micros(program.call(direct(at)).unwrap(), Cause::Read)).collect();
        assert!(program.dirty() > 0, "the flusher has something to do all the time");
        waits
    };
    assert!(waits(None).iter().chain(&waits(Some(0.0))).all(|wait| *wait == 11_041.0));
    // A request of 1280 KiB takes 10.9 ms at 120 MB/s, and the arm moves once more.
    let (request, alone) = (10_923.0, 11_041.0);
    let (all, half) = (waits(Some(1.0)), waits(Some(0.5)));
    let more = |wait: f64| (wait - alone - 10_000.0) / request;
    assert!((3.0..=4.0).contains(&more(all[0])), "{all:?}");
    assert!((1.5..=2.0).contains(&more(half[0])), "{half:?}");
    assert!(all[20..].iter().all(|wait| *wait <= alone + 10_000.0 + 1.01 * request), "{all:?}");
}

/// A long read is on its way when another one comes.
#[test]
fn reads_that_are_served_at_the_same_time_share_the_device() {
    let second = |part: Option<f64>| {
        let mut profile = disk();
        profile.device.seek = Measured::assumed(Nanos::ZERO);
        profile.device.read_latency = Some(Measured::assumed(Nanos::new(1e6)));
        profile.device.readahead = Bytes(8 * MIB);
        profile.device.shared_queue = Some(QueueConstants {
            reads_wait: Measured::assumed(0.0),
            reads_wait_for_reads: part.map(Measured::assumed),
            wbt_latency: Nanos::ZERO,
            requests: 128,
            write_cache: true,
        });
        let mut program = program(&profile, 0);
        // 8 MiB take 84 ms, which nobody waits for.
        program.call(Event { aux: 3, requested: 8 * MIB, offset: 8 * MIB, ..range(Op::Advise, 0, 0, 0) });
        let told = program.call(Event { flags: flag::DIRECT, pid: 2, ..read(40 * MIB, 100 * 1000) });
        micros(told.unwrap(), Cause::Read)
    };
    // Alone 1 ms and the same for 100 kB.
    let all = second(None);
    assert!((83_000.0..90_000.0).contains(&all), "{all}");
    assert_eq!(second(Some(1.0)), all);
    assert!((2_900.0..3_100.0).contains(&second(Some(0.0))), "the rate is shared: {}", second(Some(0.0)));
    assert!((42_000.0..48_000.0).contains(&second(Some(0.5))), "{}", second(Some(0.5)));
}

/// A folio in memory costs its part when a read begins it, not again for each part of a page.
#[test]
fn a_folio_from_memory_is_begun_once() {
    let mut profile = disk();
    profile.calls.read_folio_far = Some(Measured::assumed(Nanos::new(500.0)));
    let mut program = program(&profile, 64);
    let mut cost = |offset, bytes| program.call(read(offset, bytes)).unwrap().cost.get();
    // Folios of 64 KiB: 1.5 µs for a call that begins one, and 1 ns a byte.
    let first = cost(0, 512);
    let rest: Vec<f64> = (1..32).map(|at| cost(at * 512, 512)).collect();
    assert!((first - 2012.0).abs() < 1.0, "{first}");
    assert!(rest.iter().all(|rest| (first - rest - 500.0).abs() < 1.0), "{rest:?}");
    assert!((cost(MIB, 64 * KIB) - 1500.0 - 65_536.0).abs() < 1.0);
}

/// A trace may say anything.
#[test]
fn reads_at_the_end_of_all_files_are_read() {
    let mut program = program(&disk(), 0);
    for flags in [0, flag::DIRECT] {
        let told = program.call(Event { flags, ..read(u64::MAX - 1, 1 << 40) }).unwrap();
        assert!(told.cost > Nanos::ZERO && told.cost.get().is_finite());
    }
    program.call(range(Op::Advise, u64::MAX - 1, 0, 3));
    program.call(resident(u64::MAX, 64));
}

/// The last of the ranges of which it is told ends with the file.
#[test]
fn a_small_file_is_cached_to_its_end() {
    let mut profile = disk();
    profile.calls.free = Measured::assumed(Nanos::new(1e3));
    let mut program = Program::on(&profile);
    program.call(opened(5000));
    program.call(resident(4 * KIB, 64));
    let told = program.call(range(Op::Advise, 0, 0, 4)).unwrap();
    assert_eq!(micros(told, Cause::FreedPages), 2.0);
}

/// What a program reads beyond the end that is known, as of files of /proc, teaches nothing.
#[test]
fn files_of_no_length_are_cached() {
    let mut program = Program::on(&disk());
    program.call(opened(0));
    let told = program.call(read(0, 4 * KIB)).unwrap();
    assert_eq!((micros(told, Cause::Read), told.work.read.calls), (0.0, 0.0));
}

/// A device that was idle takes longer: that is part of the wait for the read.
#[test]
fn an_idle_device_wakes_up_for_a_read() {
    let mut profile = disk();
    profile.device.idle = Some(Measured::assumed(Nanos::new(50e3)));
    let mut program = program(&profile, 0);
    program.now += 1_000_000_000;
    let told = program.call(read(32 * MIB, 4 * KIB)).unwrap();
    assert_eq!((told.state, micros(told, Cause::Transfer)), (CallState::Read, 0.0));
    assert!(micros(told, Cause::Read) > 11_041.0);
}

/// In lockstep: the device should be busy for 170 ms, but a sync is over at once. So it is with what follows.
#[test]
fn who_has_had_the_device_leaves_it_free() {
    let mut profile = disk();
    profile.device.read.value = Rate::mb_per_second(8.0);
    let mut program = program(&profile, 0);
    program.call(Event { aux: 3, requested: 8 * MIB, ..range(Op::Advise, 0, 0, 0) });
    let mut sync = |took: u64| {
        let start = program.now + 1000;
        program.now = start + took;
        let call = Event { op: Op::Fsync, start, duration: took, ..write(0, 0, 0) };
        program.model.follow(&call, Time(program.now)).expect("a cost").parts[Cause::Queue].as_seconds()
    };
    let [first, second] = [sync(1_000_000), sync(1_000_000)];
    assert!(first > 0.1 && second == 0.0, "{first} {second}");
}
