//! What reads teach within a run.

use super::*;

/// Profile of a device that reads ahead at this rate, known within 5 %.
fn reads_at(rate: f64) -> HostProfile {
    let mut profile = truth();
    let known = |rate: f64| Measured {
        p10: Some(Rate::mb_per_second(rate * 0.95)),
        p90: Some(Rate::mb_per_second(rate * 1.05)),
        samples: 6,
        ..Measured::assumed(Rate::mb_per_second(rate))
    };
    profile.device.sequential_read = Some(known(rate));
    profile.device.read = known(rate / 2.0);
    profile.device.read_latency = Some(Measured { samples: 99, ..Measured::assumed(Nanos::millis(0.04)) });
    profile.device.readahead = Bytes::mib(8);
    profile.memory.read = Some(Measured { samples: 5, ..Measured::assumed(Rate::mb_per_second(14e3)) });
    profile.memory.read_fresh = Some(Measured { samples: 5, ..Measured::assumed(Rate::mb_per_second(7e3)) });
    profile
}

/// A file of so many MiB, of which nothing is cached, is read in calls of 128 KiB: seconds observed and
/// predicted.
fn read_a_file(world: &mut World, mib: u64) -> (f64, f64) {
    let mut event = Event::new(Op::Open);
    (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, 9, 3, 3);
    (event.fd, event.returned, event.requested) = (3, 3, mib << 20);
    world.observe(event, mild);
    (event.op, event.offset, event.requested) = (Op::Resident, mib << 14, 0);
    world.analysis.take(&Record::Event(Event { start: world.now, ..event }));
    world.real.step(&Event { start: world.now, ..event });
    let mut sums = (0.0, 0.0);
    for at in 0..mib * 8 {
        (event.op, event.offset) = (Op::Read, at << 17);
        (event.requested, event.returned) = (1 << 17, 1 << 17);
        let (observed, predicted) = world.observe(event, mild);
        sums = (sums.0 + observed * 1e-9, sums.1 + predicted * 1e-9);
    }
    sums
}

#[test]
fn a_device_that_reads_at_another_rate_than_the_profile_is_sure_of_is_followed() {
    for (assumed, real) in [(2300.0, 640.0), (640.0, 2300.0), (2300.0, 150.0), (640.0, 640.0)] {
        let mut world = World::new(&reads_at(real), &reads_at(assumed));
        let (observed, predicted) = read_a_file(&mut world, 400);
        let told = format!("{real} MB/s, not {assumed}: {observed:.3} s, predicted {predicted:.3} s");
        near(&world.learned("device.sequential_read"), real * 1e6, 0.15);
        assert!((predicted / observed - 1.0).abs() < 0.1, "{told}");
    }
}

/// The pages that a device fills are mapped by the host one by one, if it had to supply them: that is no slow
/// device, and the next windows cost the same.
#[test]
fn cold_memory_is_followed_in_reads() {
    let cold = |rate: f64| {
        let mut profile = reads_at(2300.0);
        profile.memory.cold = Some(Measured::assumed(Rate::mb_per_second(rate)));
        profile
    };
    let mut world = World::new(&cold(400.0), &cold(550.0));
    world.real.supply(Some(true));
    let (observed, predicted) = read_a_file(&mut world, 1600);
    assert!((predicted / observed - 1.0).abs() < 0.15, "{observed:.3} s, predicted {predicted:.3} s");
    near(&world.learned("device.sequential_read"), 2300e6, 0.2);
    let report = world.analysis.report();
    let by_cause = report.explain.as_ref().map(|explain| explain.seconds_of(crate::cause::Cause::ColdMemory));
    assert!(by_cause.is_some_and(|seconds| seconds > 0.6 * observed), "{by_cause:?} of {observed:.3} s");
}

/// Small files that come late, as where other programs have the processors: what the device is asked for
/// next, and who waits behind it, waits no longer than that.
#[test]
fn reads_that_come_late_leave_the_device_no_work() {
    for together in [false, true] {
        let mut profile = reads_at(2900.0);
        let rate = profile.device.sequential_read.as_mut().expect("a rate");
        (rate.p10, rate.p90) = (Some(Rate::mb_per_second(2000.0)), Some(Rate::mb_per_second(3100.0)));
        profile.device.completes_together = Some(together);
        profile.device.read_latency = Some(Measured {
            p10: Some(Nanos::new(32.5e3)),
            p90: Some(Nanos::new(40.6e3)),
            ..Measured::assumed(Nanos::new(36e3))
        });
        let mut world = World::new(&profile, &profile);
        let ms = [15.62, 2.59, 3.43, 20.41, 32.95, 0.26, 15.9, 20.5, 0.3];
        let kib = [24, 66, 85, 40, 34, 4, 92, 1, 4];
        for round in 0..40_u64 {
            let at = round as usize % ms.len();
            let mut event = Event::new(Op::Open);
            (event.kind, event.dev, event.ino, event.pid, event.tid) =
                (FileKind::Regular, 1, 9 + round, 3, 3);
            (event.fd, event.returned, event.requested) = (3, 3, kib[at] << 10);
            let mut call = |event: Event, ms: f64| {
                let event = Event { start: world.now, duration: (ms * 1e6) as u64, ..event };
                world.now += event.duration + 1_000_000;
                world.analysis.take(&Record::Event(event)).predictions[0]
                    .map_or(0.0, |of| of.cost.as_seconds())
            };
            call(event, 0.005);
            (event.op, event.offset, event.requested) = (Op::Resident, kib[at] << 4, 0);
            call(event, 0.0);
            (event.op, event.offset) = (Op::Read, 0);
            (event.requested, event.returned) = (kib[at] << 10, (kib[at] << 10) as i64);
            let read = call(event, ms[at]);
            event.op = Op::Fsync;
            let synced = call(event, 0.5);
            assert!(
                read < 0.05 && synced < 0.05,
                "{together}, {round}: read {read:.3} s, fsync {synced:.3} s"
            );
        }
    }
}
