use proptest::prelude::*;

use super::*;
use crate::filesystem::FilesystemKind;
use crate::profile::{MachineKind, Thoroughness};
use crate::units::{Bytes, Nanos, Rate};

fn measured<T: Copy + std::ops::Mul<f64, Output = T>>(value: T, samples: u32) -> Measured<T> {
    Measured { value, p10: Some(value * 0.9), p90: Some(value * 1.1), samples }
}

/// A calibrated machine whose disk and memory are so many times as fast as those of an ordinary one, and
/// whose fsync takes so many ms.
fn machine(label: &str, speed: f64, fsync: f64) -> Member {
    let mut profile = HostProfile::uncalibrated();
    profile.origin = Origin::Calibrated;
    profile.machine = Some(MachineKind { processor: Some("x".into()), storage: "sd".into() });
    profile.device.filesystem = Some(FilesystemKind::of("ext4"));
    let rate = |mb: f64| measured(Rate::mb_per_second(mb * speed), 5);
    let (memory, device) = (&mut profile.memory, &mut profile.device);
    (memory.fresh, memory.cached) = (rate(2000.0), rate(5000.0));
    (device.write, device.read, device.writeback) = (rate(400.0), rate(500.0), rate(390.0));
    device.sync_call = measured(Nanos::new(200e3 / speed), 5);
    device.fsync = measured(Nanos::millis(fsync), 5);
    Member { label: label.to_owned(), profile }
}

fn merged(members: &[Member]) -> Merged {
    merge(&members.iter().collect::<Vec<_>>()).expect("they are of one kind")
}

/// Five machines, up to 20 % apart.
fn five() -> Vec<Member> {
    let each = [("a", 0.9), ("b", 1.0), ("c", 1.1), ("d", 0.95), ("e", 1.2)];
    each.map(|(label, speed)| machine(label, speed, 2.0 / speed)).into()
}

#[test]
fn an_odd_machine_is_named_and_left_out() {
    let before = merged(&five());
    assert_eq!((before.outliers.len(), before.profile.merged, before.profile.origin), (0, 5, Origin::Prior));
    let rate = |merged: &Merged| merged.profile.device.write.value.get() / 1e6;
    assert!((rate(&before) - 400.0).abs() < 1e-6, "{}", rate(&before));
    let mut all = five();
    // A failing disk: everything of it is slow.
    let mut failing = machine("failing", 1.0, 8.0);
    failing.profile.device.write.value = Rate::mb_per_second(100.0);
    all.push(failing);
    // A controller without its battery: fsync alone, but grossly.
    all.push(machine("battery", 1.0, 40.0));
    // A rate that no machine has is a fault of the measurement, and says nothing.
    let mut no_rate = machine("no rate", 1.0, 2.0);
    no_rate.profile.device.read.value = Rate::per_second(1.0);
    all.push(no_rate);
    // One that is a little off in one constant stays.
    all.push(machine("slow sync", 1.0, 4.0));
    let found = merged(&all);
    let mut names: Vec<&str> = found.outliers.iter().map(|odd| odd.label.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["battery", "failing"]);
    let of = |label: &str| &found.outliers.iter().find(|odd| odd.label == label).expect("it is one").off;
    assert_eq!(of("battery").len(), 1);
    assert!((of("battery")[0].factor - 20.0).abs() < 2.0, "{:?}", of("battery"));
    let failing: Vec<&str> = of("failing").iter().map(|off| off.constant.as_str()).collect();
    assert_eq!(failing, ["device.write", "device.fsync"]);
    assert_eq!(found.profile.device.read.samples, 6);
    assert_eq!(found.members, ["a", "b", "c", "d", "e", "no rate", "slow sync"]);
    assert!((rate(&found) / 400.0 - 1.0).abs() < 0.06);
}

#[test]
fn small_groups_say_less() {
    let width = |merged: &Merged| {
        let fsync = merged.profile.device.fsync;
        fsync.p90.expect("known") / fsync.p10.expect("known")
    };
    let one = merged(&five()[1..2]);
    assert!((one.profile.device.fsync.value.get() / 2e6 - 1.0).abs() < 1e-9);
    assert_eq!((one.profile.device.fsync.samples, one.profile.merged), (1, 1));
    // Of two, none is odd, however different they are.
    let two = merged(&[machine("a", 1.0, 2.0), machine("b", 1.0, 40.0)]);
    assert!(two.outliers.is_empty() && width(&two) > width(&one));
    let many: Vec<Member> =
        (0..40).map(|at| machine(&format!("m{at}"), 0.95 + 0.0025 * f64::from(at), 2.0)).collect();
    let many = merged(&many);
    assert!(width(&one) > 1.5 * width(&merged(&five())) && width(&merged(&five())) > width(&many));
    let write = many.profile.device.write;
    assert!(write.p10.expect("known").get() > 0.7 * write.value.get(), "{write:?}");
}

#[test]
fn what_most_machines_do_not_have_is_left_out() {
    let mut all = five();
    for member in &mut all[..2] {
        member.profile.calls.jump = Some(measured(Nanos::new(90.0), 3));
    }
    for member in &mut all[..3] {
        member.profile.device.flush = Some(measured(Nanos::millis(0.5), 3));
        member.profile.device.shared_queue = Some(QueueConstants {
            reads_wait: measured(0.8, 3),
            wbt_latency: Nanos::millis(2.0),
            requests: 64,
            ..QueueConstants::none()
        });
    }
    // One that was not measured anywhere stays an assumption, and so does a default beside measured ones.
    all[0].profile.device.seek = measured(Nanos::ZERO, 0);
    all[1].profile.device.seek = measured(Nanos::millis(4.0), 3);
    all[2].profile.device.queue = Bytes::mib(8);
    let found = merged(&all).profile;
    assert_eq!((found.calls.jump, found.device.flush.map(|flush| flush.samples)), (None, Some(3)));
    let queue = found.device.shared_queue.as_ref().expect("most have it");
    assert_eq!((queue.reads_wait.value, queue.requests, queue.reads_wait.p90), (0.8, 64, Some(1.0)));
    assert!((found.device.seek.value.get() / 4e6 - 1.0).abs() < 1e-9 && found.device.seek.samples == 1);
    assert_eq!((found.device.queue, found.calls.stream.samples), (Bytes::mib(64), 0));
    assert!(found.check().is_ok() && HostProfile::from_toml(&found.to_toml()).is_ok());
}

#[test]
fn only_equal_machines_count_and_the_nearest_are_told() {
    let mut all = five();
    all[3].profile.machine = Some(MachineKind { processor: Some("x".into()), storage: "sd, turning".into() });
    all[4].profile.kernel.release = Some("6.1".parse().expect("a release"));
    let equal_to = |profile: &HostProfile| {
        equal(&all, profile).map(|of| of.iter().map(|member| member.label.clone()).collect::<Vec<_>>())
    };
    assert_eq!(equal_to(&all[0].profile).expect("there are some"), ["a", "b", "c"]);
    assert_eq!(equal_to(&all[4].profile).expect("itself"), ["e"]);
    let mut here = all[0].profile.clone();
    here.machine = Some(MachineKind { processor: Some("y".into()), storage: "sd".into() });
    let (count, differ) = equal_to(&here).expect_err("there is none");
    assert_eq!((count, differ), (3, vec![("processor", "x".to_owned(), "y".to_owned())]));
    assert_eq!(equal(&[], &here).expect_err("nothing"), (0, Vec::new()));
    assert!(unfit(&here).is_none() && unfit(&merged(&all).profile).is_some());
    here.machine = None;
    assert!(unfit(&here).expect("old").contains("calibrate again"));
}

#[test]
fn a_short_measurement_narrows_or_contradicts() {
    let prior = merged(&five()).profile;
    let mut own = machine("own", 1.1, 2.5).profile;
    own.measured = Some(Thoroughness::Brief);
    own.calls.open = Some(measured(Nanos::new(900.0), 2));
    assert!(contradictions(&prior, &own).is_empty());
    let both = narrowed(&prior, &own);
    let (fsync, before) = (both.device.fsync, prior.device.fsync);
    assert!(fsync.value > before.value && fsync.value < own.device.fsync.value, "{fsync:?}");
    assert!(
        fsync.p90.expect("known") / fsync.p10.expect("known")
            < before.p90.expect("known") / before.p10.expect("known")
    );
    assert_eq!((both.origin, both.measured, both.merged), (Origin::Prior, Some(Thoroughness::Brief), 5));
    assert_eq!((both.calls.open, both.calls.write), (own.calls.open, prior.calls.write));
    // One constant that is off is this machine's own; two are another kind of machine, and so is a gross one.
    own.device.fsync.value = Nanos::millis(6.5);
    let off = contradictions(&prior, &own);
    assert!(off.len() == 1 && !is_odd(&off), "{off:?}");
    assert_eq!(narrowed(&prior, &own).device.fsync, own.device.fsync);
    own.device.write.value = Rate::mb_per_second(120.0);
    assert!(is_odd(&contradictions(&prior, &own)));
    // What other programs slow down tells nothing; what is fast in spite of them does.
    let slow = HostProfile { disturbed: Some(1.0), ..own.clone() };
    assert!(contradictions(&prior, &slow).is_empty());
    assert_eq!(narrowed(&prior, &slow).device.write, prior.device.write);
    // But it was not checked either.
    assert_eq!(unsure(&prior, &slow), contradictions(&prior, &own));
    assert!(unsure(&prior, &own).is_empty());
    let alike = HostProfile { disturbed: Some(1.0), ..machine("own", 1.0, 2.2).profile };
    assert!(unsure(&prior, &alike).is_empty());
    let gross = machine("own", 1.0, 0.1).profile;
    let gross = HostProfile { disturbed: Some(1.0), ..gross };
    assert!(is_odd(&contradictions(&prior, &gross)));
    // One measurement counts once.
    own.device.fsync = prior.device.fsync;
    own.device.writeback = own.device.write;
    let off = contradictions(&prior, &own);
    assert!(off.len() == 1 && !is_odd(&off), "{off:?}");
}

#[test]
fn machines_that_agree_in_nothing_are_no_kind() {
    // Each is odd in two constants of its own.
    let mut all: Vec<Member> = ["a", "b", "c"].map(|label| machine(label, 1.0, 2.0)).into();
    let slow = |rate: &mut Measured<Rate>| rate.value = rate.value * 0.3;
    slow(&mut all[0].profile.device.write);
    slow(&mut all[0].profile.device.read);
    slow(&mut all[1].profile.device.writeback);
    slow(&mut all[1].profile.memory.fresh);
    let odd = merge(&all.iter().collect::<Vec<_>>()).expect_err("two of three are odd");
    assert_eq!(odd.len(), 2);
}

proptest! {
    /// Neither the order of the files nor the unit of a constant matters, one machine in five moves no median
    /// beyond the others, and percentiles stand on their sides.
    #[test]
    fn order_and_unit_do_not_matter(
        speeds in prop::collection::vec(0.7..1.4f64, 3..9),
        unit in 0.001..1000.0f64,
        turn in 0usize..9,
    ) {
        let named = |(at, speed): (usize, &f64)| machine(&format!("m{at}"), *speed, 2.0 / speed);
        let all: Vec<Member> = speeds.iter().enumerate().map(named).collect();
        let found = merged(&all);
        let mut turned = all.clone();
        turned.rotate_left(turn % all.len());
        turned.swap(0, 1);
        prop_assert_eq!(&found, &merged(&turned));
        let mut scaled = all.clone();
        for member in &mut scaled {
            let fsync = &mut member.profile.device.fsync;
            *fsync = fsync.map(|time| time * unit);
        }
        let (one, other) = (found.profile.device.fsync, merged(&scaled).profile.device.fsync);
        let ends = |of: Measured<Nanos>| [of.value, of.p10.unwrap(), of.p90.unwrap()].map(Nanos::get);
        let pairs = ends(one).into_iter().zip(ends(other));
        prop_assert!(pairs.map(|(one, other)| other / one / unit - 1.0).all(|off| off.abs() < 1e-9));
        // A rate is the inverse of a time.
        let write = found.profile.device.write;
        prop_assert!((write.value.get() * one.value.get() / (400e6 * 2e6) - 1.0).abs() < 1e-9);
        for name in ["device.write", "device.fsync", "memory.flush_factor", "calls.write"] {
            let Measured { value, p10, p90, .. } = found.profile.value(name).unwrap();
            prop_assert!(p10.is_none_or(|p10| p10 <= value) && p90.is_none_or(|p90| p90 >= value));
        }
        let mut with_odd = all.clone();
        with_odd.push(machine("odd", 30.0, 0.01));
        let low = speeds.iter().copied().fold(9.0, f64::min);
        let high = speeds.iter().copied().fold(0.0, f64::max);
        let moved = merged(&with_odd).profile.device.write.value.get() / 400e6;
        prop_assert!(low <= moved * 1.0001 && moved <= high * 1.0001, "{}: {} to {}", moved, low, high);
    }
}
