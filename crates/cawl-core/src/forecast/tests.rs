use proptest::prelude::*;

use super::*;
use crate::limits::DirtyLimits;
use crate::model::CostModel;
use crate::model::Kernel;
use crate::model::{Disturbance, Regime};
use crate::profile::{HostProfile, Measured};
use crate::record::{MemoryFacts, ZoneFacts};
use crate::units::Time;

/// 100 MB/s to the device, 2 GB/s to memory, limits of 100 and 200 MB.
fn profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    let limits = DirtyLimits { background: Bytes(100_000_000), hard: Bytes(200_000_000) };
    profile.kernel.limits = limits;
    profile.device.writeback = Measured::assumed(Rate::mb_per_second(100.0));
    profile.device.write = Measured::assumed(Rate::mb_per_second(100.0));
    profile.device.commit = Nanos::ZERO;
    profile
}

fn scene(model: &Kernel) -> Scene {
    Scene::new(model, Time(1_000_000_000), 5)
}

fn near(found: Option<Nanos>, seconds: f64) {
    let found = found.expect("happens").as_seconds();
    assert!((found - seconds).abs() <= 0.05 * seconds + 0.02, "{found} s, not {seconds} s");
}

#[test]
fn a_clean_machine_at_twice_the_devices_rate() {
    let model = Kernel::new(&profile());
    let found = forecast(scene(&model), Rate::mb_per_second(200.0));
    assert_eq!(found.clean, Some(Nanos::ZERO));
    near(found.background, 0.5);
    // From there on half of what is written leaves again: 50 MB at 100 MB/s.
    near(found.throttle, 1.0);
}

#[test]
fn slow_writers_are_never_throttled() {
    let model = Kernel::new(&profile());
    let found = forecast(scene(&model), Rate::mb_per_second(50.0));
    near(found.background, 2.0);
    assert_eq!(found.throttle, None);
    let idle = forecast(scene(&model), Rate::MIN);
    assert_eq!((idle.background, idle.throttle), (None, None));
    // At 1 MB/s pages expire long before they are many.
    assert_eq!(forecast(scene(&model), Rate::mb_per_second(1.0)).background, None);
}

#[test]
fn without_writers_no_limit_is_crossed() {
    let mut model = Kernel::new(&profile());
    let at = Time(1_000_000_000);
    for (offset, background, throttle) in
        [(50e6, None, None), (120e6, Some(Nanos::ZERO), None), (180e6, Some(Nanos::ZERO), Some(Nanos::ZERO))]
    {
        model.disturb(Disturbance { at, offset, drift: 1e6 });
        let found = forecast(scene(&model), Rate::MIN);
        assert_eq!((found.background, found.throttle), (background, throttle), "{offset} dirty");
        // Where things stand now is the same in both answers.
        let regime = match (background, throttle) {
            (_, Some(_)) => Regime::Throttle,
            (Some(_), _) => Regime::Flush,
            _ => Regime::Free,
        };
        model.advance(at);
        assert_eq!(model.state().regime, regime, "{offset} dirty");
    }
}

#[test]
fn what_is_below_the_background_limit_stays_dirty_until_it_expires() {
    let mut model = Kernel::new(&profile());
    model.disturb(Disturbance { at: Time(1_000_000_000), offset: 10e6, drift: 0.0 });
    let clean = forecast(scene(&model), Rate::MIN).clean.expect("at last").as_seconds();
    let kernel = profile().kernel;
    let (expire, wakeup) = (kernel.expire.as_seconds(), kernel.wakeup.as_seconds());
    assert!(clean >= expire && clean <= expire + wakeup + 1.0, "{clean} s");
}

/// A call at the end of time, as a trace or a client may tell of it: the model's clock goes no further.
#[test]
fn at_the_end_of_time_there_is_an_answer() {
    let mut model = Kernel::new(&profile());
    soil(&mut model, Time(1_000_000_000));
    let mut late = cawl_wire::Event::new(cawl_wire::Op::Write);
    (late.kind, late.dev, late.ino, late.offset, late.returned) =
        (cawl_wire::FileKind::Regular, 5, 1, 0, 1 << 20);
    late.start = u64::MAX - 1000;
    model.step(&late);
    let end = Scene::new(&model, Time(u64::MAX), 5);
    assert_eq!(forecast(end, Rate::mb_per_second(100.0)).clean, None);
    assert!(predict(Scene::new(&model, Time(u64::MAX), 5), &job(1 << 30, 1 << 20)).is_ok());
}

#[test]
fn untraced_pages_count_and_are_written_back() {
    let mut model = Kernel::new(&profile());
    let at = Time(1_000_000_000);
    model.disturb(Disturbance { at: Time(0), ..Disturbance::default() });
    model.disturb(Disturbance { at, offset: 120e6, drift: 0.0 });
    let found = forecast(scene(&model), Rate::mb_per_second(300.0));
    assert_eq!(found.background, Some(Nanos::ZERO));
    near(found.throttle, 0.15);
    // 20 MB go in the background at once, the rest when they are old.
    assert!(found.clean.is_some_and(|clean| clean.as_seconds() > 1.0 && clean.as_seconds() < 60.0));
}

fn job(bytes: u64, chunk: u64) -> Job {
    Job {
        bytes: Bytes(bytes),
        chunk: Bytes(chunk),
        sync: false,
        fsync: false,
        after: Nanos::ZERO,
        device: None,
        others: Rate::MIN,
    }
}

/// The job as real calls, one after another, from a moment on: their cost and that of an fsync then, in
/// seconds.
fn by_hand(model: &mut Kernel, job: &Job, begin: Time) -> [f64; 2] {
    let mut write = cawl_wire::Event::new(cawl_wire::Op::Write);
    (write.kind, write.returned, write.offset) = (cawl_wire::FileKind::Regular, job.chunk.0 as i64, 0);
    (write.dev, write.ino, write.start) = (5, u64::MAX - 7, begin.0);
    if job.sync {
        write.flags = cawl_wire::flag::SYNC;
    }
    let mut sum = 0.0;
    for _ in 0..job.bytes.0 / job.chunk.0 {
        let cost = model.step(&write).expect("a cost").cost;
        sum += cost.as_seconds();
        write.start = (Time(write.start) + cost).0;
        write.offset += job.chunk.0;
    }
    write.op = cawl_wire::Op::Fsync;
    [sum, model.step(&write).expect("a cost").cost.as_seconds()]
}

#[test]
fn a_job_costs_what_its_calls_cost() {
    let model = Kernel::new(&profile());
    for (bytes, chunk, sync) in [
        (64 << 20, 4096, false),
        (1 << 30, 4096, false),
        (1 << 30, 1 << 20, false),
        (1 << 30, 64 << 20, false),
        (1 << 30, 1 << 30, false),
        (8 << 30, 1 << 20, false),
        (16 << 20, 4096, true),
        (1 << 30, 4 << 20, true),
    ] {
        let job = Job { sync, ..job(bytes, chunk) };
        let found = predict(scene(&model), &job).expect("a job");
        let [real, _] = by_hand(&mut model.clone(), &job, Time(1_000_000_000));
        let off = (found.cost.as_seconds() - real).abs() / real;
        assert!(off < 0.05, "{bytes} by {chunk}, sync {sync}: {} against {real}", found.cost.as_seconds());
        assert_eq!(found.calls, bytes / chunk);
        let states: f64 = found.states.iter().map(|s| s.as_seconds()).sum();
        assert!((states - found.cost.as_seconds()).abs() < 1e-6 * states);
        assert!(found.worst <= found.cost * 1.000_001 && found.worst > Nanos::ZERO);
        assert!(found.peak >= found.last || sync);
    }
}

#[test]
fn a_flusher_that_takes_many_small_files_at_a_time_comes_to_the_same() {
    let mut model = Kernel::new(&profile());
    let begin = Time(1_000_000_000);
    for _ in 0..3 {
        soil(&mut model, begin);
    }
    let now = model.state().time;
    for bytes in [20 << 20, 200 << 20, 800 << 20] {
        let job = job(bytes, 1 << 20);
        let found = predict(Scene::new(&model, now, 5), &job).expect("a job");
        let found = [found.cost.as_seconds(), found.fsync.as_seconds()];
        let real = by_hand(&mut model.clone(), &job, now);
        for (found, real) in found.into_iter().zip(real) {
            assert!((found - real).abs() < 0.02 * real, "{bytes} bytes: {found} s, not {real} s");
        }
    }
}

#[test]
fn others_make_it_dearer_and_so_does_waiting_for_them() {
    let model = Kernel::new(&profile());
    let alone = predict(scene(&model), &job(500 << 20, 1 << 20)).expect("a job").cost;
    let beside = Job { others: Rate::mb_per_second(90.0), ..job(500 << 20, 1 << 20) };
    let shared = predict(scene(&model), &beside).expect("a job").cost;
    assert!(shared > alone * 1.3, "{shared} against {alone}");
    let small = Job { others: Rate::mb_per_second(300.0), ..job(50 << 20, 1 << 20) };
    let now = predict(scene(&model), &small).expect("a job").cost;
    let later = predict(scene(&model), &Job { after: Nanos::seconds(10.0), ..small }).expect("a job").cost;
    assert!(later > now * 2.0, "{later} against {now}");
}

#[test]
fn an_fsync_counts_only_if_it_is_planned() {
    let model = Kernel::new(&profile());
    let without = predict(scene(&model), &job(50 << 20, 1 << 20)).expect("a job");
    let with = predict(scene(&model), &Job { fsync: true, ..job(50 << 20, 1 << 20) }).expect("a job");
    assert!(without.fsync.as_seconds() > 0.4 && without.cost.as_seconds() < 0.2, "{without:?}");
    assert_eq!(with.cost, without.cost + without.fsync);
    assert_eq!((with.calls, without.calls), (51, 50));
}

#[test]
fn enormous_plans_are_answered_and_nonsense_is_refused() {
    let model = Kernel::new(&profile());
    let huge = predict(scene(&model), &job(4 << 40, 4096)).expect("a job");
    // 4 TiB at 100 MB/s.
    assert!((huge.cost.as_seconds() / 43_980.0 - 1.0).abs() < 0.1, "{}", huge.cost);
    assert_eq!(huge.calls, 1 << 30);
    let one = predict(scene(&model), &job(u64::MAX, u64::MAX)).expect("a job");
    assert!(one.worst > one.cost * 0.9);
    assert_eq!(predict(scene(&model), &job(0, 1)), Err(JobError::NoBytes));
    assert_eq!(predict(scene(&model), &job(1, 0)), Err(JobError::NoChunk));
    let late = Job { after: Nanos::MAX, ..job(1, 1) };
    assert_eq!(predict(scene(&model), &late), Err(JobError::TooLate));
}

/// Writes to files of all sorts: small and large, in a row and scattered, dirty, clean, and both. Returns the
/// costs.
fn soil(model: &mut Kernel, begin: Time) -> Vec<Option<Nanos>> {
    let mut costs = Vec::new();
    let mut write = cawl_wire::Event::new(cawl_wire::Op::Write);
    (write.kind, write.dev, write.start) = (cawl_wire::FileKind::Regular, 5, begin.0);
    let mut soil = |ino: u64, offset: u64, bytes: u64| {
        (write.ino, write.offset, write.returned) = (ino, offset, bytes as i64);
        let cost = model.step(&write).map(|prediction| prediction.cost);
        write.start += 1000 + cost.map_or(0, |cost| cost.get() as u64);
        costs.push(cost);
    };
    for ino in 0..2000 {
        soil(ino, 0, 4096 * (1 + ino % 7));
        soil(ino, 40_960 * (ino % 50), 4096);
    }
    soil(5000, 0, 40 << 20);
    costs
}

#[test]
fn an_answer_depends_on_nothing_that_is_shared_and_changes_nothing() {
    let (begin, now) = (Time(1_000_000_000), Time(60_000_000_000));
    let (mut asked, mut left_alone) = (Kernel::new(&profile()), Kernel::new(&profile()));
    for model in [&mut asked, &mut left_alone] {
        soil(model, begin);
        model.advance(Time(50_000_000_000));
        soil(model, Time(50_000_000_000));
    }
    let rate = Rate::mb_per_second(90.0);
    let job = Job { others: rate, fsync: true, ..job(1 << 30, 1 << 20) };
    let answers = |model: &Kernel| {
        let scene = || Scene::new(model, now, 5);
        (predict(scene(), &job), forecast(scene(), rate))
    };
    let shared = answers(&asked);
    assert_eq!(answers(&asked), shared);
    let later = Time(61_000_000_000);
    assert_eq!(soil(&mut asked, later), soil(&mut left_alone.clone(), later), "asking changed the model");
    let (to_write, to_look) = (Scene::new(&left_alone, now, 5), Scene::new(&left_alone.clone(), now, 5));
    drop((asked, left_alone));
    assert_eq!(forecast(to_look, rate), shared.1);
    // No other writer shares anything with this one.
    assert_eq!(predict(to_write, &job), shared.0);
}

/// A machine of which so many GiB are free, in blocks of 4 MiB; if they are `cold`, the host has taken them
/// back.
fn free(gib: u64, cold: bool) -> Kernel {
    let mut profile = profile();
    profile.memory.cold = cold.then(|| profile.memory.assumed_cold());
    let mut model = Kernel::new(&profile);
    let mut free = vec![0; 11];
    free[10] = gib << 8;
    let zone = ZoneFacts { cold: Some(free.clone()), free, ..ZoneFacts::default() };
    model.free_memory(&MemoryFacts { time: Time(1), order: 9, zones: vec![zone], files: None });
    model
}

#[test]
fn no_more_memory_is_cold_than_is_free() {
    for bytes in [4 << 30, 60 << 30, 1 << 40] {
        let of = |cold| predict(scene(&free(2, cold)), &job(bytes, 1 << 20)).expect("a job");
        let (warm, cold) = (of(false), of(true));
        // 13 µs a page.
        let all = (2u64 << 18) as f64 * 13e-6;
        assert!((cold.cold.as_seconds() / all - 1.0).abs() < 0.02, "{bytes}: {}, not {all} s", cold.cold);
        // Writers who wait for the host are paused for less.
        let longer = cold.cost.as_seconds() - warm.cost.as_seconds();
        assert!(longer <= all * 1.01, "{bytes}: {longer} s longer");
        let states: f64 = cold.states.iter().map(|s| s.as_seconds()).sum();
        assert!((states / cold.cost.as_seconds() - 1.0).abs() < 1e-6, "{bytes}: {states} s by states");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whoever writes more waits longer: for the writes whatever happens, and for the fsync as well as the
    /// state of the disk's queue allows to tell.
    #[test]
    fn more_bytes_cost_more(
        fewer in 12u32..38, more in 1.0f64..1.5, chunk in 12u32..28, gib in 1u64..4, dirty in 0.0f64..300e6,
        others in prop_oneof![Just(Rate::MIN), Just(Rate::mb_per_second(60.0))], fsync in any::<bool>(),
    ) {
        let mut model = free(gib, true);
        model.disturb(Disturbance { at: Time(1_000_000_000), offset: dirty, drift: 0.0 });
        let of = |bytes: u64| {
            let job = Job { others, fsync, ..job(bytes, 1 << chunk) };
            predict(scene(&model), &job).expect("a job").cost.as_seconds()
        };
        let bytes = 1 << fewer;
        let (fewer, more) = (of(bytes), of((bytes as f64 * more) as u64));
        prop_assert!(more >= fewer * if fsync { 0.98 } else { 1.0 - 1e-9 }, "{fewer} s, {more} s");
        prop_assert_eq!(fewer, of(bytes));
    }
}
