//! Memory that is short: what of the page cache is dropped for what comes in.

use cawl_core::{
    Bytes, Cause, CostModel, Disturbance, Filesystem, GroupCache, HostProfile, ListFacts, MemoryFacts, Nanos,
    Release, Time, ZoneFacts,
};
use cawl_wire::{ADVICE_DONTNEED, Event, Op};

use super::{Program, range, roomy, write};

const MIB: u64 = 1 << 20;

/// A machine whose programs are in a group that can take so many MiB more, and has no files in memory yet.
fn group(room: u64) -> HostProfile {
    let mut profile = roomy();
    let room = Some(Bytes::mib(room));
    profile.kernel.group = Some(GroupCache { room, ..GroupCache::default() });
    profile
}

/// MiB that are free, and on the lists of files.
fn memory(free: u64, inactive: u64, active: u64) -> MemoryFacts {
    let (low, high, reserve) = (1024, 1280, 256);
    let mut blocks = vec![0; 11];
    (blocks[0], blocks[8]) = (low + reserve, free);
    let zone = ZoneFacts { free: blocks, cold: None, low, high, reserve };
    let files = Some(ListFacts { inactive: inactive * 256, active: active * 256 });
    MemoryFacts { time: Time(0), order: MemoryFacts::NOT_TAKEN_BACK, zones: vec![zone], files }
}

fn with_memory(facts: &MemoryFacts) -> Program {
    let mut program = Program::on(&roomy());
    program.model.free_memory(facts);
    program
}

fn file(ino: u64) -> Event {
    Event { ino, fd: ino as i32, ..write(0, 0, 0) }
}

/// Opens a file of so many MiB of which nothing is cached.
fn open(program: &mut Program, ino: u64, size: u64) {
    program.call(Event { op: Op::Open, requested: size * MIB, returned: ino as i64, ..file(ino) });
    program.call(Event { ino, ..range(Op::Resident, size.div_ceil(64) * MIB, 0, 0) });
}

/// Reads these MiB of a file; how many calls of a MiB waited for the device.
fn read(program: &mut Program, ino: u64, from: u64, to: u64) -> usize {
    let mut waits = |at: u64| {
        let call =
            Event { op: Op::Pread, offset: at * MIB, requested: MIB, returned: MIB as i64, ..file(ino) };
        program.call(call).expect("a cost").parts[Cause::Read] > Nanos::ZERO
    };
    (from..to).filter(|at| waits(*at)).count()
}

fn overwrite(program: &mut Program, ino: u64, from: u64, to: u64) {
    for at in from..to {
        program.call(Event { ino, fd: ino as i32, ..write(0, at * MIB, MIB) });
    }
}

/// MiB of a file in the page cache.
fn cached(program: &mut Program, ino: u64) -> u64 {
    program.model.cached(file(ino).file()).0 >> 20
}

#[test]
fn what_does_not_fit_into_the_group_is_read_again() {
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 600);
    assert!(read(&mut program, 1, 0, 600) > 500);
    assert_eq!(cached(&mut program, 1), 400);
    // The first in, the first out: what is wanted next went just before.
    assert!(read(&mut program, 1, 0, 600) > 500);
    // What fits stays.
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 200);
    assert!(read(&mut program, 1, 0, 200) > 150);
    assert_eq!(read(&mut program, 1, 0, 200), 0);
    // Without a limit, so does all.
    let mut profile = group(0);
    profile.kernel.group = Some(GroupCache::default());
    let mut program = Program::on(&profile);
    open(&mut program, 1, 600);
    let waits = read(&mut program, 1, 0, 600);
    assert!(waits > 500 && read(&mut program, 1, 0, 600) == 0);
    assert_eq!(cached(&mut program, 1), 600);
}

#[test]
fn what_was_read_twice_survives_a_stream_and_what_was_written_twice_does_not() {
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 100);
    let waits = read(&mut program, 1, 0, 100);
    assert!(waits > 50 && read(&mut program, 1, 0, 100) == 0);
    (0..2).for_each(|_| overwrite(&mut program, 2, 0, 50));
    program.call(Event { op: Op::Fsync, ..file(2) });
    open(&mut program, 3, 1000);
    read(&mut program, 3, 0, 1000);
    assert_eq!([1, 2, 3].map(|ino| cached(&mut program, ino)), [100, 0, 300]);
    assert_eq!(read(&mut program, 1, 0, 100), 0);
}

/// The multi-generational LRU of any release: a stream takes what was read twice, not what was read five
/// times.
#[test]
fn generations_keep_what_was_read_five_times() {
    let of = |lru_gen: bool, release, machine: bool| {
        let mut profile = if machine { roomy() } else { group(400) };
        (profile.kernel.lru_gen, profile.kernel.release) = (lru_gen, release);
        let mut program = Program::on(&profile);
        if machine {
            program.model.free_memory(&memory(400, 0, 0));
        }
        for (ino, times) in [(1, 5), (2, 2)] {
            open(&mut program, ino, 100);
            for _ in 0..times {
                read(&mut program, ino, 0, 100);
            }
        }
        open(&mut program, 3, 1000);
        read(&mut program, 3, 0, 1000);
        [1, 2].map(|ino| cached(&mut program, ino))
    };
    for (release, machine) in
        [(Some(Release(6, 12)), false), (None, false), (Some(Release(6, 12)), true), (None, true)]
    {
        assert_eq!(of(true, release, machine), [100, 0], "{release:?}, {machine}");
        assert_eq!(of(false, release, machine), [100, 100], "{release:?}, {machine}");
    }
}

/// Reads of 64 KiB in folios of up to 2 MiB: each folio is read once, though by many calls.
#[test]
fn many_small_reads_of_a_folio_are_one() {
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 100);
    for at in 0..1600 {
        let offset = at * (64 << 10);
        program.call(Event { op: Op::Pread, offset, requested: 64 << 10, returned: 64 << 10, ..file(1) });
    }
    open(&mut program, 2, 1000);
    read(&mut program, 2, 0, 1000);
    assert_eq!(cached(&mut program, 1), 0);
}

#[test]
fn what_was_written_beyond_the_group_s_memory_is_gone_once_it_is_clean() {
    let mut program = Program::on(&group(400));
    // It is new.
    open(&mut program, 1, 0);
    overwrite(&mut program, 1, 0, 600);
    // All of it is dirty, however little memory there is: the flusher is told.
    program.call(Event { op: Op::Fsync, ..file(1) });
    overwrite(&mut program, 2, 0, 1);
    assert_eq!((program.dirty(), cached(&mut program, 1)), (256, 399));
    assert!(read(&mut program, 1, 0, 100) > 50);
    assert_eq!(read(&mut program, 1, 500, 600), 0);
}

#[test]
fn a_group_full_of_dirty_pages_has_them_written() {
    let mut program = Program::on(&group(100));
    overwrite(&mut program, 1, 0, 99);
    let dirty = |program: &mut Program| {
        program.now += 400_000_000;
        program.model.advance(Time(program.now));
        program.dirty() / 256
    };
    assert_eq!(dirty(&mut program), 99, "far below the dirty limits");
    overwrite(&mut program, 1, 99, 102);
    // The next call finds no room, and nothing clean: 120 MB/s from then on.
    overwrite(&mut program, 1, 102, 103);
    assert!(dirty(&mut program) < 75, "{}", dirty(&mut program));
}

#[test]
fn what_is_dropped_gives_room() {
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 300);
    read(&mut program, 1, 0, 300);
    program.call(Event { ino: 1, ..range(Op::Advise, 0, 0, ADVICE_DONTNEED) });
    assert_eq!(cached(&mut program, 1), 0);
    open(&mut program, 2, 200);
    read(&mut program, 2, 0, 200);
    overwrite(&mut program, 3, 0, 190);
    program.call(Event { op: Op::Truncate, ..file(3) });
    overwrite(&mut program, 4, 0, 190);
    assert_eq!([2, 4].map(|ino| cached(&mut program, ino)), [200, 190]);
}

#[test]
fn the_machine_s_free_memory_is_used_first_then_what_others_have() {
    // 100 MiB above the watermark and its reserve, and 300 MiB of others, 200 of them active.
    let mut program = with_memory(&memory(100, 100, 200));
    open(&mut program, 1, 1000);
    read(&mut program, 1, 0, 199);
    assert_eq!(cached(&mut program, 1), 199);
    // Those that are active stay as long as the inactive list is the longer one.
    read(&mut program, 1, 199, 600);
    let now = cached(&mut program, 1);
    assert!((195..=205).contains(&now), "{now}");
    // kswapd reclaims up to the high watermark, 256 pages away.
    assert!(read(&mut program, 1, 0, 50) > 25);
    // Facts of older traces tell nothing of this.
    let mut program = with_memory(&MemoryFacts { files: None, ..memory(100, 100, 200) });
    open(&mut program, 1, 1000);
    read(&mut program, 1, 0, 1000);
    assert_eq!(cached(&mut program, 1), 1000);
}

#[test]
fn groups_give_in_proportion_to_their_lists() {
    // A group of 300 MiB in a machine where others have as much; then 200 MiB more come.
    let mut profile = group(0);
    profile.kernel.group = Some(GroupCache::default());
    let mut program = Program::on(&profile);
    program.model.free_memory(&memory(300, 300, 0));
    open(&mut program, 1, 500);
    read(&mut program, 1, 0, 500);
    let now = cached(&mut program, 1);
    assert!((370..=400).contains(&now), "{now}: about half of 200 MiB are the others'");
}

#[test]
fn a_later_look_tells_what_others_took() {
    let look = |program: &Program, facts: MemoryFacts| MemoryFacts { time: Time(program.now), ..facts };
    let mut program = with_memory(&memory(1000, 0, 0));
    open(&mut program, 1, 300);
    read(&mut program, 1, 0, 300);
    let facts = look(&program, memory(10, 990, 0));
    program.model.free_memory(&facts);
    program.now += 1000;
    open(&mut program, 2, 100);
    read(&mut program, 2, 0, 100);
    let [one, two] = [1, 2].map(|ino| cached(&mut program, ino));
    assert!((200..=211).contains(&one) && two == 100, "{one}, {two}: the oldest go");
    // One during a call saw what the call had taken by then.
    let mut program = with_memory(&memory(1000, 0, 0));
    let facts = MemoryFacts { time: Time(program.now + 1000), ..memory(0, 0, 0) };
    program.model.free_memory(&facts);
    program.call(write(0, 0, 500 * MIB));
    assert_eq!(cached(&mut program, 1), 500);
}

#[test]
fn lists_that_are_told_late_have_what_is_cached() {
    let mut program = Program::on(&roomy());
    open(&mut program, 1, 300);
    read(&mut program, 1, 0, 300);
    let facts = MemoryFacts { time: Time(program.now), ..memory(100, 350, 0) };
    program.model.free_memory(&facts);
    open(&mut program, 2, 200);
    program.now += 1000;
    read(&mut program, 2, 0, 200);
    let [one, two] = [1, 2].map(|ino| cached(&mut program, ino));
    assert!((195..=205).contains(&one) && two == 200, "{one}, {two}");
}

#[test]
fn files_in_memory_take_it_and_stay() {
    let tmpfs = Filesystem { dev: 1, kind: "tmpfs".to_owned(), ..Filesystem::default() };
    let mut program = Program::on(&group(400));
    program.model.meet_filesystems(&[tmpfs]);
    overwrite(&mut program, 1, 0, 300);
    let on_disk = |mut event: Event| {
        event.dev = 2;
        event
    };
    program.call(on_disk(Event { op: Op::Open, requested: 200 * MIB, returned: 3, ..file(2) }));
    program.call(on_disk(Event { ino: 2, ..range(Op::Resident, 4 * MIB, 0, 0) }));
    for at in 0..200 {
        let read = Event { op: Op::Pread, offset: at * MIB, requested: MIB, returned: MIB as i64, ..file(2) };
        program.call(on_disk(read));
    }
    let two = program.model.cached(on_disk(file(2)).file()).0 >> 20;
    assert_eq!((cached(&mut program, 1), two), (300, 100));
}

/// A process that opens a file anew is told what the kernel has of it, in ranges.
#[test]
fn what_is_found_of_a_file_that_is_known_is_the_group_s_own() {
    let mut program = Program::on(&group(400));
    open(&mut program, 1, 600);
    read(&mut program, 1, 0, 600);
    program.call(Event { requested: (1 << 60) - (1 << 20), ..range(Op::Resident, 10 * MIB, 0, 0) });
    read(&mut program, 1, 599, 600);
    assert_eq!(cached(&mut program, 1), 400);
}

/// What was cached before is written over, and what of it was dirty does not become so: the counters had it
/// among the pages of untraced writers.
#[test]
fn a_file_that_was_cached_before_is_written_over() {
    let written = |cached: u64, dirty: u32| {
        let mut program = Program::on(&roomy());
        program.model.disturb(Disturbance { at: Time(0), offset: 100.0 * MIB as f64, drift: 0.0 });
        program.call(Event { op: Op::Open, requested: 64 * MIB, returned: 1, ..file(1) });
        program.call(Event { requested: cached, aux: dirty * 256, ..range(Op::Resident, MIB, 0, 0) });
        let before = program.dirty();
        let others = program.model.disturbance(Time(program.now)).offset / MIB as f64;
        let mut new = 0;
        for at in 0..64 {
            let told = program.call(Event { fd: 1, ..write(0, at * MIB, MIB) }).expect("a cost");
            new += u64::from(told.parts[Cause::NewPages] > Nanos::ZERO);
        }
        (new, before / 256, (program.dirty() - before) / 256, others.round())
    };
    assert_eq!(written(0, 0), (64, 100, 64, 100.0));
    assert_eq!(written(u64::MAX, 0), (0, 100, 64, 100.0));
    assert_eq!(written(u64::MAX, 64), (0, 100, 0, 36.0));
    assert_eq!(written(u64::MAX >> 32, 16), (32, 100, 48, 84.0), "of the cached half the later part");
}

/// A copy that looks ahead leaves the lists as they are.
#[test]
fn copies_reclaim_nothing() {
    let mut program = Program::on(&group(110));
    open(&mut program, 1, 200);
    read(&mut program, 1, 0, 100);
    let mut ahead = program.model.fork();
    for at in 0..200 {
        let offset = at * MIB;
        let event = Event { start: program.now, ino: 7, ..write(0, offset, MIB) };
        ahead.step(&event);
    }
    assert_eq!((cached(&mut program, 1), read(&mut program, 1, 0, 100)), (100, 0));
    // What is told with its end is predicted from a copy, and lived through by the model.
    let mut lived = program.model.clone();
    for at in 0..100 {
        let event = Event { op: Op::Pread, offset: (100 + at) * MIB, returned: MIB as i64, ..file(1) };
        let event = Event { start: program.now, requested: MIB, ..event };
        program.now += 10_000_000;
        lived.follow(&event, Time(program.now));
    }
    assert_eq!(lived.cached(file(1).file()), Bytes::mib(110));
    assert_eq!(read(&mut program, 1, 0, 100), 0, "a clone has lists of its own");
}
