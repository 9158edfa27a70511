//! What a run leaves to the next.

use super::*;
use crate::profile::{Kept, Origin, OtherDevice};

/// As calibrated: like the truth, and known within 5 %.
fn calibrated() -> HostProfile {
    let mut profile = truth();
    profile.origin = Origin::Calibrated;
    let rate = |known: &mut Measured<Rate>| {
        let bound = |part: f64| Some(Rate::per_second(known.value.get() * part));
        *known = Measured { value: known.value, p10: bound(0.95), p90: bound(1.05), samples: 9 };
    };
    [&mut profile.memory.fresh, &mut profile.memory.cached].into_iter().for_each(rate);
    [&mut profile.device.write, &mut profile.device.writeback].into_iter().for_each(rate);
    let latency = profile.device.latency.insert(Measured::assumed(Nanos::millis(0.1)));
    for known in [&mut profile.calls.write, &mut profile.device.fsync, latency] {
        let bound = |part: f64| Some(Nanos::new(known.value.get() * part));
        *known = Measured { value: known.value, p10: bound(0.95), p90: bound(1.05), samples: 9 };
    }
    profile
}

fn kept(profile: &HostProfile, name: &str) -> Option<Kept> {
    profile.learned.as_ref().and_then(|learned| learned.constants.get(name).copied())
}

/// A run of a program on a machine like that, by what the file says.
fn run(machine: &HostProfile, file: &HostProfile, calls: impl Fn(&mut World)) -> World {
    let mut world = World::new(machine, &file.clone().as_learned());
    world.analysis.keep(1);
    calls(&mut world);
    world
}

fn fsyncs(count: u32) -> impl Fn(&mut World) {
    move |world| {
        for _ in 0..count {
            world.call(Op::Write, 4096, mild);
            world.call(Op::Fsync, 0, mild);
        }
    }
}

fn slower(fsync: f64) -> HostProfile {
    let mut machine = truth();
    machine.device.fsync = Measured::assumed(Nanos::millis(fsync));
    machine
}

#[test]
fn the_second_run_begins_near_where_the_first_ended() {
    let file = calibrated();
    let first = run(&slower(14.0), &file, fsyncs(400)).analysis.merged(&file, 77).expect("something");
    let fsync = kept(&first, "device.fsync").expect("learned");
    assert!((10.5e6..14.5e6).contains(&fsync.value) && fsync.p10 < 14e6 && fsync.p90 > 13e6, "{fsync:?}");
    let learned = first.learned.as_ref().expect("learned");
    assert_eq!((learned.runs, learned.last, first.origin), (1, 77, Origin::Calibrated));
    // What was measured stays to be seen.
    assert_eq!(first.device, file.device);
    let second = run(&slower(14.0), &first, fsyncs(400)).analysis.merged(&first, 78).expect("something");
    let (before, fsync) = (fsync.value, kept(&second, "device.fsync").expect("learned"));
    assert!(fsync.value > before && fsync.value < 15e6 && fsync.runs == 2, "{fsync:?}");
    let again = HostProfile::from_toml(&second.to_toml()).expect("a profile");
    assert_eq!(again, second);
    let used = again.as_learned();
    assert!((used.device.fsync.value.get() / fsync.value - 1.0).abs() < 1e-9 && used.learned_runs() == 2);
    // Used once, it is not used again.
    assert_eq!(used.clone().as_learned(), used);
}

#[test]
fn a_run_that_says_nothing_changes_nothing() {
    let file = calibrated();
    assert_eq!(run(&truth(), &file, |_| {}).analysis.merged(&file, 1), None);
    // A call of a moment is no reason to believe anything else of the machine.
    let glance = run(&slower(80.0), &file, fsyncs(1)).analysis.merged(&file, 1);
    let fsync = glance.and_then(|file| kept(&file, "device.fsync"));
    assert!(fsync.is_none_or(|fsync| fsync.value < 12e6), "{fsync:?}");
}

#[test]
fn two_runs_at_once_say_the_same_in_either_order() {
    let file = calibrated();
    let runs = [10.0, 14.0].map(|fsync| run(&slower(fsync), &file, fsyncs(300)).analysis);
    let both = |first: usize, second: usize| {
        let file = runs[first].merged(&file, 1).expect("something");
        let file = runs[second].merged(&file, 2).expect("something");
        assert_eq!(file.learned_runs(), 2);
        kept(&file, "device.fsync").expect("learned")
    };
    let (one, other) = (both(0, 1), both(1, 0));
    let deviation = (one.p90 - one.p10).min(other.p90 - other.p10) / 2.56;
    assert!((one.value - other.value).abs() < deviation, "{one:?} {other:?}");
    for fsync in [one, other] {
        assert!((9.5e6..14.5e6).contains(&fsync.value), "{fsync:?}");
    }
}

/// A program that formats long texts into a stream, and closes streams, says nothing of other programs.
#[test]
fn what_a_stream_costs_is_learned_for_the_run_alone() {
    let file = calibrated();
    let formats = |op: Op| {
        move |world: &mut World| {
            for _ in 0..2000 {
                world.call(Op::Write, 4096, mild);
            }
            for _ in 0..2000 {
                world.call(op, 1, |noise, cost| mild(noise, cost) + 400.0);
            }
        }
    };
    for (op, is_learned) in [(Op::StreamWrite, true), (Op::StreamClose, false)] {
        let world = run(&truth(), &file, formats(op));
        let learned = world.learned("calls.stream");
        assert_eq!(learned.learned > 200.0, is_learned, "{op:?}: {learned:?}");
        let after = world.analysis.merged(&file, 1).expect("something");
        assert!(kept(&after, "calls.write").is_some() && kept(&after, "calls.stream").is_none());
    }
}

#[test]
fn a_cold_run_leaves_warm_memory_as_it_was() {
    let file = calibrated();
    let writes = |world: &mut World| {
        for _ in 0..200 {
            world.call(Op::Write, 1 << 20, |noise, cost| mild(noise, cost) * 4.0);
        }
    };
    let mut machine = truth();
    machine.kernel.limits = DirtyLimits { background: Bytes::mib(640), hard: Bytes::mib(1280) };
    let mut file = HostProfile { kernel: machine.kernel.clone(), ..file };
    let after = run(&machine, &file, writes).analysis.merged(&file, 1).expect("something");
    let cold = kept(&after, "memory.cold").expect("learned");
    assert!(cold.value < 400e6, "{cold:?}");
    let fresh = after.clone().as_learned().memory.fresh.value.get();
    assert!((fresh / 900e6 - 1.0).abs() < 0.2, "{fresh}");
    assert_eq!(after.contradicted, 0);
    // Nor does a warm one make it any colder.
    file = after;
    let warm = |world: &mut World| {
        for _ in 0..400 {
            world.call(Op::Write, 1 << 20, mild);
        }
    };
    let after = run(&machine, &file, warm).analysis.merged(&file, 1).expect("something");
    assert_eq!(kept(&after, "memory.cold"), Some(cold));
}

#[test]
fn what_was_certain_is_followed_when_the_machine_changes_for_good() {
    let mut file = calibrated();
    let mut value = |fsync: f64| {
        file = run(&slower(fsync), &file, fsyncs(200)).analysis.merged(&file, 1).expect("something");
        kept(&file, "device.fsync").expect("learned").value / 1e6
    };
    for _ in 0..8 {
        value(8.0);
    }
    // One run does not make another machine of it, a few do.
    let once = value(40.0);
    assert!(once < 15.0, "{once}");
    let last = (0..5).map(|_| value(40.0)).last().expect("some");
    assert!((30.0..45.0).contains(&last), "{last}");
}

#[test]
fn a_constant_that_learning_contradicts_is_counted_in_a_row() {
    let mut file = calibrated();
    let mut counted = |fsync: f64| {
        file = run(&slower(fsync), &file, fsyncs(200)).analysis.merged(&file, 1).expect("something");
        file.contradicted
    };
    let first = (0..4).map(|_| counted(40.0)).last().expect("some");
    assert!(first >= 3);
    assert_eq!(counted(40.0), first + 1);
    let back = (0..6).map(|_| counted(8.0)).last();
    assert_eq!(back, Some(0));
}

#[test]
fn calls_on_other_devices_are_kept_for_none() {
    let file = calibrated();
    let mut world = World::new(&slower(14.0), &file);
    world.analysis.keep(2);
    fsyncs(200)(&mut world);
    assert!(!world.analysis.has_kept());
    assert_eq!(world.analysis.merged(&file, 1), None);
    // And one with constants of its own says nothing of the profile's device, now or later.
    let constants = file.device.clone();
    let others = vec![OtherDevice { dev: 1, constants }];
    let mut world = World::new(&slower(14.0), &HostProfile { others, ..file.clone() });
    fsyncs(200)(&mut world);
    let learned = world.analysis.learned().1.into_iter().find(|constant| constant.name == "device.fsync");
    assert_eq!(learned.map(|constant| constant.samples), Some(0));
}

#[test]
fn without_any_measurement_only_what_is_certain_is_kept() {
    let file = HostProfile { kernel: truth().kernel, ..HostProfile::uncalibrated() };
    assert_eq!(run(&truth(), &file, fsyncs(1)).analysis.merged(&file, 1), None);
    let after = run(&truth(), &file, fsyncs(400)).analysis.merged(&file, 1).expect("something");
    assert_eq!((after.origin, after.contradicted), (Origin::Learned, 0));
    let fsync = kept(&after, "device.fsync").expect("learned").value;
    assert!((fsync / 8e6 - 1.0).abs() < 0.3, "{fsync}");
}

/// A run of a small program in a process of its own, whose first call is dear, and of which a processor is
/// taken away now and then.
fn small_run(machine: &HostProfile, file: &HostProfile, seed: u64) -> World {
    let mut world = run(machine, file, |_| {});
    world.noise = Noise(seed);
    let mut first = true;
    let mut disturbed = |world: &mut World, op: Op, bytes: u64| {
        let dear = if std::mem::take(&mut first) { 5.0 } else { 1.0 };
        world.call(op, bytes, |noise, cost| {
            let delay = if noise.next() < 0.01 { 4e6 * noise.next() } else { 0.0 };
            mild(noise, cost) * dear + delay
        });
    };
    match seed % 5 {
        0 => (0..20).for_each(|_| disturbed(&mut world, Op::Write, 4096)),
        1 => (0..3).for_each(|_| disturbed(&mut world, Op::Write, 128 << 10)),
        2 => disturbed(&mut world, Op::Write, 6),
        3 => (0..40).for_each(|round| {
            world.offset = round % 8 * 4096;
            disturbed(&mut world, Op::Write, 4096);
            if round % 4 == 3 {
                disturbed(&mut world, Op::Fdatasync, 0);
            }
        }),
        _ => (0..10).for_each(|_| disturbed(&mut world, Op::Write, 10 << 10)),
    }
    world
}

/// What jobs cost by a profile, in seconds: many small calls, large ones, and one that waits for the disk.
fn jobs(profile: &HostProfile) -> [f64; 3] {
    [(64 << 20, 4096, false), (512 << 20, 1 << 20, false), (4 << 20, 1 << 20, true)].map(
        |(bytes, chunk, fsync)| {
            let model = Kernel::new(profile);
            let job = crate::forecast::Job {
                bytes: Bytes(bytes),
                chunk: Bytes(chunk),
                sync: false,
                fsync,
                after: Nanos::ZERO,
                device: None,
                others: Rate::MIN,
            };
            let scene = crate::forecast::Scene::new(&model, Time(1_000_000_000), 1);
            crate::forecast::predict(scene, &job).expect("a job").cost.as_seconds()
        },
    )
}

#[test]
fn three_hundred_small_runs_leave_a_profile_as_good_as_one() {
    let mut machine = HostProfile::uncalibrated();
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    (machine.calls.folio, machine.calls.inode) = (Some(micros(1.0)), Some(micros(1.5)));
    (machine.calls.away, machine.device.latency) = (Some(micros(1.0)), Some(micros(90.0)));
    let truth = jobs(&machine);
    let mut measured = machine.clone();
    measured.origin = Origin::Calibrated;
    let names = measured.constants();
    for (name, value) in names {
        if let Some(constant) = measured.find(&name) {
            constant.set(Measured { value, p10: Some(value * 0.9), p90: Some(value * 1.1), samples: 5 });
        }
    }
    for (origin, begun) in [("defaults", HostProfile::uncalibrated()), ("measured", measured)] {
        let mut file = begun;
        for seed in 0..300 {
            file = small_run(&machine, &file, seed).analysis.merged(&file, seed).unwrap_or(file);
            let used = file.clone().as_learned();
            let memory =
                [(used.memory.fresh, machine.memory.fresh), (used.memory.cached, machine.memory.cached)];
            for (learned, truth) in memory {
                let off = learned.value / truth.value - 1.0;
                assert!(off.abs() < 0.25, "{origin}, run {seed}: {learned:?}, not {truth:?}");
            }
            for (name, kept) in file.learned.iter().flat_map(|learned| &learned.constants) {
                let (least, most) = file.range(name);
                assert!(
                    least <= kept.p10 && kept.p10 <= kept.value && kept.value <= kept.p90,
                    "{name} {kept:?}"
                );
                assert!(kept.p90 <= most && kept.p10 * 4.0 >= kept.value, "{name} {kept:?}");
            }
            // What defaults do not know of small calls takes some runs to tell.
            let most = if origin == "measured" { 0.15 } else { 0.3 };
            if origin == "measured" && seed % 20 == 0 || seed == 299 {
                for (job, truth) in jobs(&used).into_iter().zip(truth) {
                    assert!((job / truth - 1.0).abs() < most, "{origin}, run {seed}: {job} s, not {truth} s");
                }
            }
        }
    }
}

/// One large run on a disk much slower than any default: what it says of it has percentiles that hold for a
/// prediction.
#[test]
fn one_large_run_leaves_percentiles_that_its_samples_support() {
    let mut machine = truth();
    machine.device.writeback = Measured::assumed(Rate::mb_per_second(60.0));
    for seconds in [1.0, 3.0, 30.0] {
        let file = HostProfile { kernel: truth().kernel, ..HostProfile::uncalibrated() };
        let writes = |world: &mut World| _ = throttled(world, seconds);
        let Some(after) = run(&machine, &file, writes).analysis.merged(&file, 1) else { continue };
        let Some(writeback) = kept(&after, "device.writeback") else { continue };
        assert!(
            writeback.p10 >= writeback.value / 4.0 && writeback.p90 <= writeback.value * 4.0,
            "{writeback:?}"
        );
        assert!(seconds < 30.0 || (writeback.value / 60e6 - 1.0).abs() < 0.2, "{writeback:?}");
    }
}
