use cawl_wire::{FileKind, Op, flag};
use proptest::prelude::*;

use super::*;
use crate::analysis::{Analysis, AnalysisOptions};
use crate::limits::DirtyLimits;
use crate::mode::Mode;
use crate::model::CostModel;
use crate::model::Kernel;
use crate::profile::Measured;
use crate::record::Record;
use crate::units::{Rate, Time};

mod kept;
mod reads;

/// A small generator of noise, the same in every run.
struct Noise(u64);

impl Noise {
    /// Evenly between 0 and 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The machine as it is, unlike what an uncalibrated profile says.
fn truth() -> HostProfile {
    let mut truth = HostProfile::uncalibrated();
    truth.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
    truth.memory.fresh = Measured::assumed(Rate::mb_per_second(900.0));
    truth.memory.cached = Measured::assumed(Rate::mb_per_second(6000.0));
    truth.calls.write = Measured::assumed(Nanos::new(1500.0));
    truth.device.writeback = Measured::assumed(Rate::mb_per_second(150.0));
    truth.device.write = Measured::assumed(Rate::mb_per_second(180.0));
    truth.device.fsync = Measured::assumed(Nanos::millis(8.0));
    truth.device.commit = Nanos::ZERO;
    truth
}

/// A real machine (a model with true constants and noise) and an analysis that learns from it.
struct World {
    real: Kernel,
    analysis: Analysis,
    noise: Noise,
    now: u64,
    offset: u64,
    sampled: u64,
    written: u64,
}

impl World {
    fn new(truth: &HostProfile, assumed: &HostProfile) -> World {
        let mut assumed = assumed.clone();
        assumed.kernel = truth.kernel.clone();
        assumed.device.commit = truth.device.commit;
        let options = AnalysisOptions {
            models: vec!["kernel".to_owned()],
            mode: Mode::Assimilated,
            learn: true,
            ..AnalysisOptions::default()
        };
        World {
            real: Kernel::new(truth),
            analysis: Analysis::with(&assumed, &options).expect("known models"),
            noise: Noise(7),
            now: 1_000_000_000,
            offset: 0,
            sampled: 0,
            written: 0,
        }
    }

    /// Samples as the daemon would, every 10 ms.
    fn sample(&mut self) {
        while self.sampled + 10_000_000 <= self.now {
            self.sampled = (self.sampled + 10_000_000).max(self.now - 20_000_000);
            let at = Time(self.sampled);
            let mut look = self.real.clone();
            look.advance(at);
            let (state, totals) = (look.state(), look.conservation());
            let writeback = look.in_flight().0 / 4096;
            self.written = totals.written.0 / 4096;
            self.analysis.take(&Record::Sample(Sample {
                time: at,
                dirty: (state.dirty.0 / 4096).saturating_sub(writeback),
                writeback,
                background: state.limits.background.0 / 4096,
                hard: state.limits.hard.0 / 4096,
                written: self.written,
                dirtied: totals.dirtied.0 / 4096,
            }));
        }
    }

    /// A call of the real machine, seen by the analysis; `disturbed` makes of its cost what is observed.
    fn call(&mut self, op: Op, bytes: u64, disturbed: impl Fn(&mut Noise, f64) -> f64) -> (f64, f64) {
        let mut event = Event::new(op);
        (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, 2, 3, 3);
        event.offset = self.offset;
        (event.requested, event.returned) = (bytes, bytes as i64);
        self.offset += bytes;
        self.observe(event, disturbed)
    }

    /// A call that begins now, seen by the analysis; `disturbed` makes of its cost what is observed.
    fn observe(&mut self, mut event: Event, disturbed: impl Fn(&mut Noise, f64) -> f64) -> (f64, f64) {
        event.start = self.now;
        let cost = self.real.step(&event).expect("a cost").cost.get();
        let observed = disturbed(&mut self.noise, cost);
        event.duration = observed as u64;
        let predicted =
            self.analysis.take(&Record::Event(event)).predictions[0].expect("a prediction").cost.get();
        // The next call waits for the real machine's clock, where the noise has put it behind.
        self.now += event.duration.max(cost as u64) + 1000;
        self.sample();
        (observed, predicted)
    }

    fn learned(&self, name: &str) -> Constant {
        let found = self.analysis.learned().1.into_iter().find(|constant| constant.name == name);
        found.expect("a constant of this name")
    }
}

/// A cost of new folios is not learned, and must not end up in another constant.
#[test]
fn new_folios_cost_once() {
    let mut truth = truth();
    truth.kernel.limits = DirtyLimits { background: Bytes::mib(800), hard: Bytes::mib(1600) };
    truth.calls.folio = Some(Measured::assumed(Nanos::new(2000.0)));
    let mut world = World::new(&truth, &truth);
    let mut sums = (0.0, 0.0);
    for _ in 0..20_000 {
        let (observed, predicted) = world.call(Op::Write, 4096, mild);
        sums = (sums.0 + observed, sums.1 + predicted);
    }
    assert!((sums.1 / sums.0 - 1.0).abs() < 0.02, "{sums:?}");
}

/// A database's commits into a file that is there flush the device's cache and nothing else.
#[test]
fn flushes_are_learned() {
    let mut truth = truth();
    truth.device.flush = Some(Measured::assumed(Nanos::millis(0.1)));
    let mut assumed = truth.clone();
    assumed.device.flush = Some(Measured { samples: 6, ..Measured::assumed(Nanos::millis(4.0)) });
    let mut world = World::new(&truth, &assumed);
    world.call(Op::Write, 1 << 20, mild);
    world.call(Op::Fsync, 0, mild);
    let mut late = (0.0, 0.0);
    for round in 0..200 {
        world.offset = 0;
        world.call(Op::Write, 4096, mild);
        let (observed, predicted) = world.call(Op::Fdatasync, 0, mild);
        if round >= 20 {
            late = (late.0 + observed, late.1 + predicted);
        }
    }
    assert!((late.1 / late.0 - 1.0).abs() < 0.1, "{late:?}");
    near(&world.learned("device.flush"), 1e5, 0.15);
}

/// Of 400 synchronous writes, the first of which takes `first` times as long: what all are foretold to take
/// over what they take, where a brief calibration found `factor` times as much for `sync_call`, give or take
/// a half, and that many ms for an allocation of 0.05.
fn foretold_after(first: f64, factor: f64, allocation: f64) -> f64 {
    let measured = |ms: f64| {
        let bound = |part: f64| Some(Nanos::millis(ms * part));
        Measured { value: Nanos::millis(ms), p10: bound(0.5), p90: bound(1.5), samples: 1 }
    };
    let mut truth = truth();
    truth.device.sync_call = measured(0.2);
    truth.device.delayed_allocation = Some(measured(0.05));
    let mut assumed = truth.clone();
    assumed.device.sync_call = measured(0.2 * factor);
    assumed.device.delayed_allocation = Some(measured(allocation));
    let mut world = World::new(&truth, &assumed);
    let mut sum = (0.0, 0.0);
    for call in 0..400 {
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino, event.pid, event.tid) = (FileKind::Regular, 1, 2, 3, 3);
        (event.flags, event.offset, event.requested, event.returned) = (flag::DSYNC, call << 12, 4096, 4096);
        let times = if call == 0 { first } else { 1.0 };
        let (observed, predicted) = world.observe(event, |noise, cost| times * mild(noise, cost));
        sum = (sum.0 + observed, sum.1 + predicted);
    }
    sum.1 / sum.0
}

#[test]
fn a_slow_first_call_does_not_raise_the_next_hundreds() {
    // It takes a fifth of all time. A mean that begins with it foretells nearly twice what they take.
    for factor in [1.0, 0.7] {
        let ratio = foretold_after(100.0, factor, 0.05);
        assert!((0.7..1.35).contains(&ratio), "{factor}: {ratio}");
    }
    // Constants that are wrong give way all the same.
    for factor in [0.7, 1.4] {
        let ratio = foretold_after(1.0, factor, 0.05);
        assert!((0.95..1.05).contains(&ratio), "{factor}: {ratio}");
    }
}

/// A moment of a queue is not the device's rate: one page of 42 MiB came, and the rest before the next look.
#[test]
fn a_rate_is_learned_once_the_queue_has_turned_over() {
    let rate = |spans: &[(u64, u64)]| {
        let profile = truth();
        let mut learner = Learner::new(&profile);
        let limits = profile.kernel.limits;
        let (mut written, mut at) = (0, 0);
        for (pages, writeback) in spans {
            written += pages;
            at += 16_000_000;
            learner.sample(&Sample {
                time: Time(at),
                dirty: 0,
                writeback: *writeback,
                background: limits.background.0 / 4096,
                hard: limits.hard.0 / 4096,
                written,
                dirtied: 0,
            });
        }
        learner.profile.device.writeback.value.get() / 1e6
    };
    assert_eq!(rate(&[(1, 10_000), (1, 10_000), (10_000, 0)]), 150.0);
    // All of it within 16 ms, twice: 2.5 GB/s.
    let burst = [(1, 10_000), (10_000, 10_000), (10_000, 0)];
    assert!(rate(&[burst, burst].concat()) > 300.0);
}

/// A few long waits at the beginning are not the rule, a row of them is.
#[test]
fn the_first_waits_of_a_program_are_not_taken_for_the_rule() {
    let learned = |observed: &[f64]| {
        let mut bank = Bank::new([(1e-3, 0.5e-3)], [(0.0, 10.0)], WAITING).sceptical();
        for wait in observed {
            bank.observe(&[1.0], *wait, *wait);
        }
        bank.theta()[0]
    };
    for first in [&[12e-3][..], &[5e-3, 9e-3], &[1e-3, 9e-3]] {
        let value = learned(&[first, &[0.8e-3; 25]].concat());
        assert!((value / 0.8e-3 - 1.0).abs() < 0.1, "{first:?}: {value}");
    }
    let value = learned(&[10e-3; 12]);
    assert!(value > 5e-3, "{value}");
}

/// What was disturbed while it was measured gives way, each part of a wait.
#[test]
fn an_allocation_that_was_measured_far_too_long_is_unlearned() {
    let ratio = foretold_after(1.0, 1.0, 4.0);
    assert!((0.9..1.2).contains(&ratio), "{ratio}");
}

/// Up to a fifth more or less.
fn mild(noise: &mut Noise, cost: f64) -> f64 {
    cost * (0.8 + 0.4 * noise.next())
}

fn near(constant: &Constant, value: f64, part: f64) {
    let off = (constant.learned / value - 1.0).abs();
    assert!(off < part, "{} is {}, not {value}", constant.name, constant.learned);
}

#[test]
fn constants_of_memory_and_device_are_found_from_defaults() {
    let truth = truth();
    let mut world = World::new(&truth, &HostProfile::uncalibrated());
    for round in 0..40 {
        for _ in 0..200 {
            world.call(Op::Write, 4096, mild);
        }
        for _ in 0..3 {
            world.call(Op::Write, 2 << 20, mild);
        }
        if round % 2 == 0 {
            world.call(Op::Fsync, 0, mild);
        }
        world.call(Op::Write, 4096, mild);
        world.call(Op::Fsync, 0, mild);
    }
    // The costs of a call and of its pages always come together: how the sum is split is less sure than the
    // sum.
    near(&world.learned("memory.fresh"), 900e6, 0.5);
    near(&world.learned("device.fsync"), 8e6, 0.35);
    near(&world.learned("device.write"), 180e6, 0.15);
    // From the first call on, while everything was still to be found.
    let error = world.analysis.recent_error();
    assert!(error.total.is_some_and(|total| total < 0.25), "{error:?}");
}

/// What a sync takes comes in parts, as a write after it does: how often each of them counts in a call tells
/// them apart.
#[test]
fn the_parts_of_a_sync_are_told_apart() {
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    let mut truth = truth();
    truth.device.latency = Some(micros(90.0));
    truth.device.flush = Some(micros(70.0));
    truth.device.fsync = micros(160.0);
    truth.calls.inode = Some(micros(4.0));
    truth.calls.away = Some(micros(3.0));
    let mut assumed = truth.clone();
    assumed.device.latency = Some(micros(45.0));
    assumed.device.flush = Some(micros(140.0));
    assumed.device.fsync = micros(100.0);
    assumed.calls.inode = Some(micros(1.0));
    assumed.calls.away = None;
    let mut world = World::new(&truth, &assumed);
    for round in 0..3000_u64 {
        let end = world.offset;
        match round % 4 {
            0 => world.offset = 0,
            1 => world.offset = end.max(4096) - 4096,
            _ => {}
        }
        world.call(Op::Write, 4096, mild);
        if round % 3 == 0 {
            world.call(Op::Write, 4096, mild);
        }
        world.offset = world.offset.max(end);
        world.call(Op::Fdatasync, 0, mild);
        if round % 5 == 0 {
            world.call(Op::Fdatasync, 0, mild);
        }
    }
    near(&world.learned("device.latency"), 90e3, 0.15);
    near(&world.learned("device.flush"), 70e3, 0.15);
    near(&world.learned("device.fsync"), 160e3, 0.15);
    near(&world.learned("calls.inode"), 4e3, 0.3);
    near(&world.learned("calls.away"), 3e3, 0.3);
}

/// Of small writes only copies from the processor's cache are seen: what is learned of the others holds for
/// these, too.
#[test]
fn copies_from_the_processors_cache_are_learned_with_the_others() {
    let mut truth = truth();
    truth.memory.hot = Some(Measured::assumed(Rate::mb_per_second(3000.0)));
    let mut assumed = truth.clone();
    assumed.memory.cached = Measured::assumed(Rate::mb_per_second(15e3));
    assumed.memory.hot = Some(Measured::assumed(Rate::mb_per_second(18e3)));
    let mut world = World::new(&truth, &assumed);
    let (mut sum, mut off) = (0.0, 0.0);
    for round in 0..4000_u64 {
        world.offset = round % 16 * 65536;
        let (observed, predicted) = world.call(Op::Write, 65536, mild);
        if round >= 2000 {
            sum += observed;
            off += predicted - observed;
        }
    }
    assert!((off / sum).abs() < 0.05, "{}", off / sum);
    let memory = &world.analysis.learned().0.memory;
    let part = memory.hot.expect("it is known").value / memory.cached.value;
    assert!((part - 1.2).abs() < 1e-6, "{part}");
}

/// Writes for some seconds; the one-step error of the last half.
fn throttled(world: &mut World, seconds: f64) -> f64 {
    let (until, half) = (world.now + (seconds * 1e9) as u64, world.now + (seconds * 0.5e9) as u64);
    let (mut sum, mut off) = (0.0, 0.0);
    while world.now < until {
        let (observed, predicted) = world.call(Op::Write, 1 << 20, mild);
        if world.now > half {
            sum += observed;
            off += predicted - observed;
        }
    }
    (off / sum).abs()
}

#[test]
fn a_disk_whose_speed_halves_is_followed() {
    let truth = truth();
    let mut world = World::new(&truth, &HostProfile::uncalibrated());
    let before = throttled(&mut world, 10.0);
    near(&world.learned("device.writeback"), 150e6, 0.1);
    assert!(before < 0.1, "{before}");
    let mut slower = truth;
    slower.device.writeback = Measured::assumed(Rate::mb_per_second(75.0));
    world.real.recalibrate(&slower);
    let after = throttled(&mut world, 10.0);
    near(&world.learned("device.writeback"), 75e6, 0.1);
    assert!(after < 0.1, "{after}");
}

#[test]
fn the_factor_while_flushing_is_learned() {
    let mut assumed = truth();
    assumed.memory.flush_factor = Measured::assumed(0.3);
    let mut world = World::new(&truth(), &assumed);
    throttled(&mut world, 10.0);
    let (learned, _) = world.analysis.learned();
    assert!(learned.memory.flush_factor.value > 0.35, "{:?}", learned.memory.flush_factor);
}

#[test]
fn outliers_do_not_wreck_it() {
    let truth = truth();
    let mut world = World::new(&truth, &truth);
    let rare = |noise: &mut Noise, cost: f64| {
        let factor = if noise.next() < 0.0005 { 100.0 } else { 1.0 };
        mild(noise, cost) * factor
    };
    let (mut observed, mut predicted) = (0.0, 0.0);
    for round in 0..20 {
        for _ in 0..500 {
            let (o, p) = world.call(Op::Write, 4096, rare);
            (observed, predicted) = (observed + o, predicted + p);
        }
        // A stall of two seconds says nothing of what the next call costs.
        if round == 10 {
            world.call(Op::Write, 4096, |_, _| 2e9);
        }
        world.call(Op::Fsync, 0, mild);
    }
    // A call in two thousand costs a hundredfold: the mean is 5 % higher.
    assert!((predicted / observed - 1.0).abs() < 0.15, "{predicted} of {observed}");
}

#[test]
fn memory_that_turns_cold_and_warm_is_followed() {
    let truth = truth();
    let mut world = World::new(&truth, &truth);
    let (mut observed, mut predicted) = (0.0, 0.0);
    for phase in 0..8 {
        let factor = if phase % 2 == 1 { 10.0 } else { 1.0 };
        for _ in 0..10 {
            for _ in 0..40 {
                let (o, p) = world.call(Op::Write, 1 << 20, |noise, cost| mild(noise, cost) * factor);
                (observed, predicted) = (observed + o, predicted + p);
            }
            world.call(Op::Fsync, 0, mild);
        }
    }
    assert!((predicted / observed - 1.0).abs() < 0.15, "{predicted} of {observed}");
}

#[test]
fn what_the_host_took_for_memory_is_told_apart() {
    let mut truth = HostProfile::uncalibrated();
    truth.memory.cold = Some(Measured::assumed(truth.memory.fresh.value * 0.1));
    let mut world = World::new(&truth, &truth);
    let write_64 = |world: &mut World| {
        for _ in 0..64 {
            world.call(Op::Write, 1 << 20, mild);
        }
    };
    write_64(&mut world);
    assert_eq!(world.analysis.report().cold, None, "all was warm");
    assert!(world.analysis.came_warm());
    world.real.supply(Some(true));
    write_64(&mut world);
    let report = world.analysis.report();
    let cold = report.cold.expect("cold memory");
    assert!(!world.analysis.came_warm());
    let cause = report.explain.as_ref().expect("causes").seconds_of(crate::cause::Cause::ColdMemory);
    assert!((cold.seconds - cause).abs() < 1e-9, "{cold:?}, the cause {cause} s");
    let page = 4096.0 * truth.memory.cold_byte().0;
    assert!((62 * 256..=66 * 256).contains(&cold.pages), "{cold:?}");
    assert!((cold.per_page_s / page - 1.0).abs() < 0.2, "{cold:?}, not {page}");
    assert_eq!((cold.op.as_str(), cold.op_observed_s), ("write", report.models[0].observed_s));
    assert!(report.models[0].total_error.is_some_and(|error| error < 0.1), "{:?}", report.models[0]);
    // Warm memory costs what it did.
    near(&world.learned("memory.fresh"), truth.memory.fresh.value.get(), 0.1);
}

#[test]
fn nothing_is_learned_from_what_says_nothing() {
    let mut learner = Learner::new(&HostProfile::uncalibrated());
    let before = learner.profile.clone();
    assert!(!learner.call(&Event::new(Op::Write), &Prediction::default()));
    assert_eq!(learner.profile, before);
    assert!(
        learner
            .constants()
            .iter()
            .all(|constant| constant.samples == 0 && constant.p10.or(constant.p90).is_none())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// The interval of a constant covers the truth about as often as it says: in 8 of 10 cases.
    #[test]
    fn intervals_cover_the_truth(seed in any::<u64>(), rate in 100.0f64..2000.0, fixed in 0.1f64..5.0) {
        let mut noise = Noise(seed);
        let mut covered = 0;
        for _ in 0..300 {
            let memories = Memories { members: [1e9; 4], block: 1e9, summed: 0.0 };
            let mut bank = Bank::new([(2e-9, 4e-9), (1e-3, 2e-3)], [(1e-12, 1.0), (0.0, 10.0)], memories);
            let truth = [1e-6 / rate, fixed * 1e-3];
            for _ in 0..200 {
                let bytes = 1e6 * (0.1 + 8.0 * noise.next());
                let cost = bytes * truth[0] + truth[1];
                let gauss: f64 = (0..12).map(|_| noise.next()).sum::<f64>() - 6.0;
                bank.observe(&[bytes, 1.0], cost + (cost * 1e-3).sqrt() * gauss, cost);
            }
            for (at, real) in truth.iter().enumerate() {
                let off = (bank.theta()[at] - real).abs();
                covered += u32::from(off <= 1.2816 * bank.found(at).deviation);
            }
        }
        // How far off the noise is taken to be moves this by a tenth, more than chance does.
        prop_assert!((370..=560).contains(&covered), "{covered} of 600, not about 480");
    }
}

#[test]
fn a_copy_teaches_unless_its_source_was_read_or_its_blocks_are_shared() {
    let mut profile = truth();
    profile.device.read = Measured::assumed(Rate::mb_per_second(200.0));
    // Rate of fresh pages that is learned of copies that take these seconds, given what is predicted and what
    // reading adds.
    let learned = |took: fn(f64, f64) -> f64| {
        let mut learner = Learner::new(&profile);
        for ino in 0..20 {
            let mut event = Event::new(Op::CopyRange);
            (event.ino, event.offset, event.kind) = (ino, 0, FileKind::Regular);
            (event.requested, event.returned) = (16 << 20, 16 << 20);
            let prediction = Kernel::new(&profile).step(&event).expect("a cost");
            event.duration = (took(prediction.cost.as_seconds(), prediction.work.source.0) * 1e9) as u64;
            learner.call(&event, &prediction);
        }
        learner.profile.memory.fresh.value / profile.memory.fresh.value
    };
    assert!((learned(|cost, _| 1.3 * cost) - 1.0 / 1.3).abs() < 0.1);
    assert_eq!(learned(|cost, source| cost + source), 1.0);
    assert_eq!(learned(|cost, _| cost / 20.0), 1.0);
}

#[test]
fn what_a_further_device_shows_is_learned_of_that_one() {
    let truth = truth();
    let mut assumed = HostProfile::uncalibrated();
    let constants = assumed.device.clone();
    assumed.others.push(OtherDevice { dev: 1, constants });
    let mut world = World::new(&truth, &assumed);
    for _ in 0..40 {
        world.call(Op::Write, 4096, mild);
        world.call(Op::Fsync, 0, mild);
    }
    let learned = world.analysis.learned().0;
    let (own, other) = (&learned.device, &learned.others[0].constants);
    assert_eq!((own.fsync, own.write, own.writeback), {
        let device = assumed.device;
        (device.fsync, device.write, device.writeback)
    });
    let fsync = other.fsync.value.as_seconds();
    assert!((fsync / 8e-3 - 1.0).abs() < 0.35 && other.fsync.samples > 0, "{other:#?}");
}
