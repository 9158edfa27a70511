//! The division of calls, by hand and for any call.

use cawl_wire::Op;
use proptest::prelude::*;

use super::*;
use crate::model::Kernel;
use crate::model::{CostModel, Work};
use crate::record::RunDelay;
use crate::units::Bytes;

fn call(duration: u64) -> Event {
    let mut event = Event::new(Op::Write);
    (event.kind, event.ino, event.tid) = (FileKind::Regular, 7, 1);
    (event.start, event.duration, event.returned) = (1_000_000, duration, 4096);
    event
}

fn prediction<const N: usize>(parts: [(Cause, f64); N]) -> Prediction {
    let parts = CostParts::from(parts.map(|(cause, ns)| (cause, Nanos::new(ns))));
    Prediction { cost: parts.total(), parts, ..Prediction::default() }
}

fn divide(event: &Event, prediction: &Prediction) -> CauseTimes {
    let mut divider = Divider::new(&HostProfile::uncalibrated());
    divided(&mut divider, event, prediction, &mut RunDelays::default())
}

fn divided(divider: &mut Divider, event: &Event, told: &Prediction, delays: &mut RunDelays) -> CauseTimes {
    let mut times = CauseTimes::default();
    let main = divider.divide(event, Class::Cost, Some(told), &told.parts, delays, &mut times);
    assert_eq!(main, Some(times.main()));
    times
}

/// What the kernel counted for the thread of a call meanwhile, in ns.
fn delays(event: &Event, ran: f64, delayed: f64) -> RunDelays {
    let (from, to) = (Time(event.start), Time(event.end()));
    let (ran, delayed) = (Nanos::new(ran), Nanos::new(delayed));
    let mut delays = RunDelays::default();
    delays.add(&RunDelay { pid: event.pid, tid: event.tid, from, to, ran, delayed });
    delays
}

#[test]
fn who_was_on_a_processor_did_not_sleep() {
    let mut told = prediction([(Cause::Copy, 1_000_000.0), (Cause::Throttle, 9_000_000.0)]);
    told.work = Work { dirtied: 4e6, ..Work::default() };
    told.may_pause = true;
    let mut divider = Divider::new(&HostProfile::uncalibrated());
    let mut cost = |ran: f64, delayed: f64| {
        let call = call(10_000_000);
        let times = divided(&mut divider, &call, &told, &mut delays(&call, ran, delayed));
        [times[Cause::Copy], times[Cause::Throttle], times[Cause::Preempted], times[Cause::Unexpected]]
            .map(|ns| ns / 1000)
    };
    assert_eq!(cost(1e6, 0.0), [1000, 9000, 0, 0]);
    // What it slept is less than a tick: no pause.
    assert_eq!(cost(1e6, 8e6)[1..3], [0, 8000]);
    // It slept 5 ms and not 9.
    assert_eq!(cost(5e6, 0.0)[1], 5000);
    // It slept 9.9 ms, and cannot have copied for longer.
    assert_eq!(cost(1e5, 0.0)[1], 9900);
}

#[test]
fn what_is_over_goes_by_the_squares_of_the_widths() {
    // Not calibrated: each width is the part itself. 1000 ns over: 100 : 900, by 1 : 9.
    let times = divide(&call(5000), &prediction([(Cause::Copy, 1000.0), (Cause::Journal, 3000.0)]));
    assert_eq!((times[Cause::Copy], times[Cause::Journal]), (1100, 3900));
    // 1000 ns missing: they are divided by 1 : 9, too.
    let times = divide(&call(3000), &prediction([(Cause::Copy, 1000.0), (Cause::Journal, 3000.0)]));
    assert_eq!((times[Cause::Copy], times[Cause::Journal]), (900, 2100));
}

#[test]
fn a_stall_is_unexpected() {
    let times = divide(&call(500_000_000), &prediction([(Cause::Transfer, 1_000_000.0)]));
    assert_eq!(times[Cause::Transfer], 4_000_000);
    assert_eq!(times[Cause::Unexpected], 496_000_000);
    assert_eq!(times.main(), Cause::Unexpected);
    // An interrupt is not.
    let times = divide(&call(41_000), &prediction([(Cause::Copy, 1000.0)]));
    assert_eq!((times[Cause::Copy], times[Cause::Unexpected]), (41_000, 0));
}

#[test]
fn a_commit_may_wait_for_a_processor_until_a_tick() {
    let mut told = prediction([(Cause::Transfer, 500_000.0)]);
    let times = divide(&call(8_000_000), &told);
    assert_eq!((times[Cause::Journal], times[Cause::Unexpected]), (0, 6_000_000));
    told.work.fsyncs = 1.0;
    let times = divide(&call(8_000_000), &told);
    let tick = 1_000_000_000 / u64::from(HostProfile::uncalibrated().kernel.hz);
    assert_eq!((times[Cause::Journal], times[Cause::Unexpected]), (tick, 6_000_000 - tick));
}

#[test]
fn a_pause_that_was_possible_is_throttling() {
    let mut told = prediction([(Cause::Copy, 1000.0)]);
    told.work = Work { dirtied: 4096.0, fresh: [4096.0, 0.0], ..Work::default() };
    let times = divide(&call(100_000_000), &told);
    assert_eq!(times.main(), Cause::Unexpected);
    told.may_pause = true;
    let times = divide(&call(100_000_000), &told);
    assert_eq!((times.main(), times[Cause::Unexpected]), (Cause::Throttle, 0));
    // One check, one pause of 200 ms.
    let times = divide(&call(900_000_000), &told);
    assert_eq!((times[Cause::Throttle], times.main()), (200_000_000, Cause::Unexpected));
}

/// A commit begins with the first change from 5 s after the transaction's begin on (`jbd2_journal_stop`,
/// 6.18), or without one when jbd2's timer fires, up to a second later (`round_jiffies_up`).
#[test]
fn a_long_rest_while_a_commit_is_due_is_the_journals() {
    let mut profile = HostProfile::uncalibrated();
    profile.device.commit = Nanos::seconds(5.0);
    profile.device.queue = Bytes::mib(64);
    profile.device.write.value = Rate::mb_per_second(150.0);
    profile.device.writeback.value = profile.device.write.value;
    let event = |op, at: f64, duration| {
        let mut event = Event { op, start: (at * 1e9) as u64, ..call(duration) };
        (event.offset, event.requested, event.returned) = ((at * 10.0) as u64 * (1 << 20), 1 << 20, 1 << 20);
        event
    };
    // Of a write so long after the begin of a transaction, in ms: journal and throttle.
    let told = |known: bool, between: Option<f64>, after: f64, duration: u64| {
        let mut model = Kernel::new(&profile);
        if known {
            // It commits what may have been running before the first call, too.
            model.step(&event(Op::Write, 0.0, 1));
            model.step(&event(Op::Fsync, 0.1, 1));
        }
        for at in std::iter::once(1.0).chain(between) {
            model.step(&event(Op::Write, at, 1));
        }
        let call = event(Op::Write, 1.0 + after, duration * 1_000_000);
        let mut told = model.step(&call).unwrap();
        told.may_pause = true;
        let mut divider = Divider::new(&profile);
        let times = divided(&mut divider, &call, &told, &mut RunDelays::default());
        [times[Cause::Journal], times[Cause::Throttle]].map(|ns| (ns as f64 * 1e-7).round() as u64 * 10)
    };
    let cost = |known, after, duration| told(known, None, after, duration);
    for (known, after) in [(true, 2.0), (true, 8.0), (false, 7.0)] {
        assert_eq!(cost(known, after, 440), [0, 440], "after {after} s, known: {known}");
    }
    for (known, after) in [(true, 5.4), (true, 6.2), (true, 4.7), (false, 2.0)] {
        assert_eq!(cost(known, after, 440), [440, 0], "after {after} s, known: {known}");
    }
    assert_eq!(told(true, Some(6.1), 6.2, 440), [0, 440], "the commit began at 6.1 s, and is over");
    // What one pause explains is a pause; and no commit takes longer than what is queued before it.
    assert_eq!(cost(true, 5.4, 150), [0, 150]);
    let [journal, throttle] = cost(true, 5.4, 900);
    assert!((440..=500).contains(&journal) && journal + throttle == 900, "{journal} and {throttle}");
}

#[test]
fn run_delay_and_other_writers_come_before_what_may_be() {
    let told = prediction([(Cause::Copy, 1000.0)]);
    let mut divider = Divider::new(&HostProfile::uncalibrated());
    let mut cost = |event: &Event, delay: f64| {
        let mut delays = delays(event, 0.0, delay);
        divided(&mut divider, event, &told, &mut delays)
    };
    let times = cost(&call(10_000_000), 6_000_000.0);
    assert_eq!(times[Cause::Preempted], 6_000_000);
    // Another thread writes to the file at the same time: the rest is waiting for it.
    let other = Event { tid: 2, start: 9_000_000, ..call(12_000_000) };
    let times = cost(&other, 0.0);
    assert!(times[Cause::Lock] > 11_900_000, "{}", times[Cause::Lock]);
    let long_ago = Event { tid: 4, start: 900_000_000, ..call(12_000_000) };
    assert_eq!(cost(&long_ago, 0.0)[Cause::Lock], 0);
    // A thread cannot hold back itself, nor does a call on another file.
    let apart = Event { tid: 3, ino: 8, start: 9_000_000, ..call(12_000_000) };
    assert_eq!(cost(&apart, 0.0)[Cause::Lock], 0);
}

/// Ten requests of 1 MiB took 8 ms each by the device's own count; the thread's sleep counts as delay.
#[test]
fn what_a_call_slept_in_the_device_is_the_devices() {
    let mut told = prediction([(Cause::Transfer, 1_000_000.0)]);
    told.work.transferred = Bytes::mib(1).as_f64();
    let event = call(10_000_000);
    let cost = |slow: bool| {
        let mut divider = Divider::new(&HostProfile::uncalibrated());
        let before = DeviceCounters { dev: event.dev, ..DeviceCounters::default() };
        let (time, writing) = (Time(100_000_000), Nanos::millis(if slow { 80.0 } else { 1.0 }));
        divider.device(&before);
        divider.device(&DeviceCounters { time, writes: 10, bytes: Bytes::mib(10), writing, ..before });
        let times = divided(&mut divider, &event, &told, &mut delays(&event, 0.0, 9e6));
        [times[Cause::Transfer], times[Cause::Preempted]].map(|ns| ns / 1000)
    };
    assert_eq!(cost(true), [8000, 2000]);
    assert_eq!(cost(false)[1], 9000);
}

#[test]
fn a_predicted_wait_for_the_lock_may_be_spun_or_slept() {
    let told = prediction([(Cause::Copy, 300_000.0), (Cause::Lock, 900_000.0)]);
    let times = |duration: u64, ran: f64| {
        let call = call(duration);
        let mut divider = Divider::new(&HostProfile::uncalibrated());
        let times = divided(&mut divider, &call, &told, &mut delays(&call, ran, 0.0));
        [times[Cause::Copy], times[Cause::Lock], times[Cause::Unexpected]].map(|ns| ns / 1000)
    };
    assert_eq!(times(1_200_000, 1_200_000.0), [300, 900, 0]);
    assert_eq!(times(1_200_000, 300_000.0), [300, 900, 0]);
    // What is over or missing goes by the squares of the widths, 1 : 9 here.
    assert_eq!(times(1_300_000, 1_300_000.0), [310, 990, 0]);
    assert_eq!(times(300_000, 300_000.0), [210, 90, 0]);
}

#[test]
fn writes_to_dev_null_are_discards() {
    let mut divider = Divider::new(&HostProfile::uncalibrated());
    let mut event = call(300);
    event.kind = FileKind::Char;
    let (own, mut delays, mut times) = (CostParts::default(), RunDelays::default(), CauseTimes::default());
    assert_eq!(divider.divide(&event, Class::Elsewhere, None, &own, &mut delays, &mut times), None);
    divider.file(&FileFacts { ino: 7, path: NULL.to_owned(), ..FileFacts::default() });
    let main = divider.divide(&event, Class::Elsewhere, None, &own, &mut delays, &mut times);
    assert_eq!(main, Some(Cause::Discard));
    assert_eq!((times.main(), times.total()), (Cause::Discard, 300));
}

proptest! {
    #[test]
    fn parts_add_up_exactly(
        duration in prop_oneof![0u64..10_000, 0..u64::from(u32::MAX), 0..=u64::MAX / 2],
        parts in prop::collection::vec(prop_oneof![Just(0.0), 0.0..1e4f64, 0.0..1e12f64], Cause::ALL.len()),
        dirtied in 0.0..1e9f64,
        delay in 0.0..1e10f64,
        ran in 0.0..1e10f64,
        flags in 0u8..8,
    ) {
        let mut told = Prediction::default();
        for (cause, part) in Cause::ALL.into_iter().zip(parts).take(Cause::Preempted as usize) {
            told.parts[cause] = Nanos::new(part);
        }
        told.cost = told.parts.total();
        told.work = Work { dirtied, fresh: [dirtied, 0.0], ..Work::default() };
        (told.may_pause, told.flushing) = (flags & 1 != 0, flags & 2 != 0);
        told.may_commit = flags & 4 != 0;
        let mut divider = Divider::new(&HostProfile::uncalibrated());
        let event = call(duration);
        let mut delays = delays(&event, ran, delay);
        let times = divided(&mut divider, &event, &told, &mut delays);
        prop_assert_eq!(times.total(), duration);
        prop_assert_eq!(times.iter().map(|(_, ns)| u128::from(ns)).sum::<u128>(), u128::from(duration));
    }
}

#[test]
fn what_is_freed_and_was_not_known_is_no_surprise() {
    let mut told = prediction([(Cause::Call, 5000.0)]);
    let unlink = Event { op: Op::Unlink, ..call(50_000_000) };
    let freed = |told: &Prediction| divide(&unlink, told)[Cause::FreedPages] > 49_000_000;
    assert!(!freed(&told), "all that it had was known");
    told.work.frees_unknown = 1.0;
    assert!(freed(&told));
}
