//! The lock of an inode: who waits for whom, in open loop and in lockstep.

use cawl_core::{Cause, CostModel, Kernel, Measured, Nanos, Rate, Time};
use cawl_wire::{Event, Op, flag};

use super::{profile, roomy, write};

const MIB: u64 = 1 << 20;
const MILLI: u64 = 1_000_000;

/// A thread's write of 1 MiB to a file that has it already.
fn call(tid: u32, ino: u64, start: u64) -> Event {
    Event { pid: 1, tid, ino, ..write(start, 0, MIB) }
}

/// A model in which files 1 to 4 are cached, and what writing one over takes, in ns.
fn warm() -> (Kernel, u64) {
    let mut model = Kernel::new(&roomy());
    let mut now = 0;
    for ino in [1, 2, 3, 4, 1] {
        now = (Time(now) + model.step(&call(1, ino, now)).unwrap().cost).0;
    }
    (model.clone(), model.step(&call(1, 1, now)).unwrap().cost.get() as u64)
}

fn lock(model: &mut Kernel, event: Event) -> f64 {
    model.step(&event).unwrap().parts[Cause::Lock].get()
}

/// `threads` write 20 times each, the earliest next; when the last is over, in ns, and the calls' costs.
fn together(threads: u32, file: impl Fn(u32) -> u64) -> (u64, Vec<u64>) {
    let (mut model, _) = warm();
    let begin = model.state().time.0 + MILLI;
    let mut ends = vec![begin; threads as usize];
    let mut costs = Vec::new();
    for _ in 0..20 * threads {
        let (tid, start) = (1..).zip(ends.iter().copied()).min_by_key(|(_, end)| *end).unwrap();
        let told = model.step(&call(tid, file(tid), start)).unwrap();
        assert_eq!(told.cost, told.parts.total());
        costs.push(told.cost.get() as u64);
        ends[tid as usize - 1] = (Time(start) + told.cost).0;
    }
    (ends.into_iter().max().unwrap() - begin, costs)
}

#[test]
fn writers_of_one_file_take_turns_and_those_of_their_own_do_not() {
    let (_, alone) = warm();
    for threads in [1, 2, 4] {
        let (apart, costs) = together(threads, u64::from);
        assert!(apart.abs_diff(20 * alone) < alone / 10, "{threads} threads: {apart} ns, a call {alone}");
        assert!(costs.iter().all(|cost| cost.abs_diff(alone) < alone / 10));
        let (one, costs) = together(threads, |_| 1);
        let turns = u64::from(threads) * 20 * alone;
        assert!(one.abs_diff(turns) < turns / 10, "{threads} threads: {one} ns, not {turns}");
        // Once each has begun, a call waits for those of all others.
        let steady = &costs[threads as usize..];
        let each = u64::from(threads) * alone;
        assert!(steady.iter().all(|cost| cost.abs_diff(each) < each / 5), "{threads} threads: {steady:?}");
    }
}

#[test]
fn it_is_a_files_and_not_a_processs() {
    let (mut model, alone) = warm();
    let start = model.state().time.0 + MILLI;
    lock(&mut model, call(1, 1, start));
    let other = Event { pid: 2, ..call(1, 1, start) };
    assert!((lock(&mut model, other) / alone as f64 - 1.0).abs() < 0.1, "the same number, another process");
    assert_eq!(lock(&mut model, call(2, 2, start)), 0.0);
    let other_device = Event { dev: 2, ..call(3, 1, start) };
    assert_eq!(lock(&mut model, other_device), 0.0);
}

#[test]
fn a_thread_does_not_wait_for_itself() {
    let (mut model, _) = warm();
    let start = model.state().time.0 + MILLI;
    lock(&mut model, call(2, 1, start));
    // No trace should have this.
    assert_eq!(lock(&mut model, call(2, 1, start + 1)), 0.0);
}

/// `ext4_dio_write_checks`: over blocks that the file has, direct writes share the lock.
#[test]
fn direct_writes_share_it_unless_the_file_grows() {
    let mut profile = roomy();
    profile.device.write = Measured::assumed(Rate::mb_per_second(100.0));
    let mut model = Kernel::new(&profile);
    let direct = |tid, start, at: u64| Event { flags: flag::DIRECT, offset: at * MIB, ..call(tid, 1, start) };
    let first = model.step(&direct(1, 0, 0)).unwrap().cost.get() as u64;
    assert!(first > 10 * MILLI);
    assert!(lock(&mut model, direct(2, MILLI, 1)) > 8e6, "the file grows");
    let later = 1_000_000_000;
    assert_eq!(lock(&mut model, direct(1, later, 0)), 0.0);
    assert_eq!(lock(&mut model, direct(2, later + MILLI, 1)), 0.0);
    // Through the page cache it needs the file for itself, and so waits for both.
    let cached = Event { offset: 4 * MIB, ..call(3, 1, later + 2 * MILLI) };
    assert!(lock(&mut model, cached) > 15e6);
    assert!(lock(&mut model, direct(4, later + 3 * MILLI, 0)) > 15e6, "behind that");
}

/// `generic_write_sync` comes after the lock was released, and fsync does not take it.
#[test]
fn waiting_for_the_device_is_no_part_of_it() {
    let mut profile = profile();
    profile.device.sync_call = Measured::assumed(Nanos::millis(40.0));
    let mut model = Kernel::new(&profile);
    let synchronous = |tid: u32, start: u64| Event { flags: flag::SYNC, ..call(tid, 1, start) };
    let cost = model.step(&synchronous(1, 0)).unwrap();
    assert!(cost.parts.device() > Nanos::millis(40.0));
    let copied = cost.cost.get() - cost.parts.device().get();
    let waited = lock(&mut model, synchronous(2, 1));
    assert!((waited / copied - 1.0).abs() < 0.1, "{waited} ns, of {copied} that the other copied");
    let fsync = Event { op: Op::Fsync, returned: 0, ..call(3, 1, 2) };
    assert_eq!(lock(&mut model, fsync), 0.0);
}

/// What is observed of the holder: it is over before the model thinks, or later.
#[test]
fn in_lockstep_nobody_waits_for_a_call_that_is_over() {
    let (model, alone) = warm();
    let start = model.state().time.0 + MILLI;
    let wait = |holder: u64, after: u64| {
        let mut model = model.clone();
        model.follow(&call(1, 1, start), Time(start + holder));
        let told = model.follow(&call(2, 1, start + after), Time(start + after + alone)).unwrap();
        told.parts[Cause::Lock].get() / alone as f64
    };
    let near = |wait: f64, wanted: f64| assert!((wait - wanted).abs() < 0.1, "{wait}, not {wanted}");
    near(wait(alone, alone / 4), 0.75);
    near(wait(alone / 2, alone / 4), 0.25);
    assert_eq!(wait(alone / 2, alone / 2), 0.0, "it was faster than the model thinks");
    // It has had the lock for as long as it should need it and goes on: it was delayed, or came late to it.
    near(wait(10 * alone, 2 * alone), 1.0);
    near(wait(10 * alone, 9 * alone), 1.0);
    assert_eq!(wait(10 * alone, 10 * alone), 0.0);
}

/// The kernel gives the lock to whom it likes: one who spins overtakes one who sleeps. Whatever the order, a
/// call waits for as many as there are others, in the mean.
#[test]
fn in_lockstep_the_sum_is_right_whoever_gets_it_next() {
    const THREADS: usize = 5;
    let (model, alone) = warm();
    let mut model = model;
    let mut random = 1_u64;
    let begin = model.state().time.0 + MILLI;
    // When each thread's call began; the lock goes to one of them by lot, mostly to the latest.
    let mut begins = [begin; THREADS];
    let mut events = Vec::new();
    let (mut now, mut last) = (begin, 0);
    for _ in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let thread = if random >> 62 == 0 { (random >> 33) as usize % THREADS } else { last };
        now += alone;
        events.push((call(thread as u32 + 1, 1, begins[thread]), now));
        (begins[thread], last) = (now, thread);
    }
    events.sort_by_key(|(event, _)| event.start);
    let (mut observed, mut predicted) = (0.0, 0.0);
    for (event, end) in events {
        predicted += model.follow(&event, Time(end)).unwrap().cost.get();
        observed += (end - event.start) as f64;
    }
    assert!((predicted / observed - 1.0).abs() < 0.15, "{predicted} ns predicted, {observed} observed");
}
