//! Pauses: who is held back, when a task is checked, and what lockstep makes of pauses that do not come.

use cawl_core::{
    Analysis, Bytes, Cause, CostModel, DirtyLimits, GroupCache, HostProfile, Kernel, Measured, Mode, Nanos,
    OtherDevice, Rate, Record, Release, Time,
};
use cawl_wire::{Event, Op};

use super::{profile, stream, write};

#[test]
fn a_steady_writer_gets_the_writeback_rate() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 200);
    let seconds = stream(&mut model, &mut at, 2, 1, 1000);
    let rate = 1000.0 * 1.048_576 / seconds;
    assert!((rate - 120.0).abs() < 6.0, "{rate} MB/s");
}

/// `balance_dirty_pages_ratelimited` comes before the copy: what brings the level above freerun is not held
/// back, the next calls are, unless the level has fallen by then.
#[test]
fn a_call_is_checked_before_it_copies() {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
    profile.device.queue = Bytes::mib(32);
    profile.device.commit = Nanos::ZERO;
    let slept = |later: u64| {
        let mut model = Kernel::new(&profile);
        let mut now = 0;
        let mut call = |mib: u64, size: u64, at: u64| {
            let told = model.step(&write(at, mib << 20, size << 20)).unwrap();
            (told.parts[Cause::Throttle].get(), (Time(at) + told.cost).0)
        };
        for mib in 0..95 {
            (_, now) = call(mib, 1, now);
        }
        let (over, end) = call(95, 2, now);
        now = end + later;
        let mut next = 0.0;
        for mib in 97..105 {
            let (slept, end) = call(mib, 1, now);
            (next, now) = (next + slept, end);
        }
        (over, next)
    };
    let (over, next) = slept(0);
    assert!(over == 0.0 && next > 0.0, "{over} {next}");
    assert_eq!(slept(2_000_000_000), (0.0, 0.0));
}

#[test]
fn the_more_processors_the_sooner_a_writer_is_checked() {
    // A fast disk: the quota is 1000 pages, and of 256 MiB a 32nd for each processor is 1024 of two, 256 of
    // eight.
    let longest = |processors: u32| -> f64 {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(128), hard: Bytes::mib(256) };
        profile.kernel.cpus = processors;
        profile.device.writeback.value = Rate::mb_per_second(900.0);
        profile.device.queue = Bytes::mib(64);
        let mut model = Kernel::new(&profile);
        let mut now = 0;
        let costs = (0..2000).map(|call| {
            let cost = model.step(&write(now, call << 20, 1 << 20)).unwrap().cost;
            now = (Time(now) + cost).0;
            cost.get()
        });
        // Once it is held back.
        costs.skip(1000).fold(0.0, f64::max)
    };
    // The longest call pauses a quarter less.
    assert!(longest(8) < 0.9 * longest(2), "{} against {}", longest(8), longest(2));
}

#[test]
fn two_writers_share_the_device() {
    let mut model = Kernel::new(&profile());
    let mut ends = [0u64, 0];
    let mut bytes = [0u64, 0];
    for _ in 0..3000 {
        let who = usize::from(ends[1] < ends[0]);
        let event = Event { ino: who as u64, tid: who as u32, ..write(ends[who], bytes[who], 1 << 20) };
        let cost = model.step(&event).expect("a write has a cost").cost;
        ends[who] = (Time(ends[who]) + cost).0;
        bytes[who] += 1 << 20;
    }
    let seconds = ends[0].min(ends[1]) as f64 * 1e-9;
    let rates = bytes.map(|b| b as f64 / seconds / 1e6);
    assert!((rates[0] + rates[1] - 120.0).abs() < 12.0, "{rates:?} MB/s");
    assert!((rates[0] / rates[1] - 1.0).abs() < 0.2, "{rates:?} MB/s");
}

#[test]
fn a_cgroup_with_lower_limits_is_what_counts() {
    let mut tight = profile();
    tight.kernel.limits = DirtyLimits { background: Bytes::mib(400), hard: Bytes::mib(800) };
    let mut free = Kernel::new(&tight);
    tight.kernel.cgroup = Some(DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(32) });
    tight.kernel.release = Some(Release(6, 1));
    let mut held = Kernel::new(&tight);
    let (mut a, mut b) = (0, 0);
    let (free_s, held_s) = (stream(&mut free, &mut a, 1, 1, 300), stream(&mut held, &mut b, 1, 1, 300));
    assert!(held_s > 5.0 * free_s, "{held_s} s in the group, {free_s} s outside");
    assert!(held.state().dirty <= Bytes::mib(34));
}

/// Since 6.9 the kernel counts a group's dirty pages every two seconds. Until then a writer fills the group,
/// and waits for what is written where it is full; once it is counted it sleeps until it is counted again,
/// with little left.
#[test]
fn a_cgroup_is_counted_every_two_seconds() {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(400), hard: Bytes::mib(800) };
    profile.kernel.cgroup = Some(DirtyLimits { background: Bytes::mib(25), hard: Bytes::mib(50) });
    let room = Some(Bytes::mib(240));
    profile.kernel.group = Some(GroupCache { room, ..GroupCache::default() });
    let mut model = Kernel::new(&profile);
    let mut at = 0;
    let burst = stream(&mut model, &mut at, 1, 1, 230);
    assert!(burst < 0.5, "{burst} s");
    let mut calls = Vec::new();
    for mib in 230..480u64 {
        let told = model.step(&write(at, mib << 20, 1 << 20)).expect("a cost");
        at = (Time(at) + told.cost).0;
        calls.push(told.cost.as_seconds());
    }
    // 120 MB/s where the group is full, after half a second of writing to all of it.
    let full: f64 = calls[15..65].iter().sum();
    assert!((0.3..0.6).contains(&full), "{full} s: {calls:?}");
    let counted = calls.iter().filter(|took| **took > 1.5).count();
    let most = calls.iter().copied().fold(0.0, f64::max);
    assert!(counted == 1 && (1.5..4.3).contains(&most), "{calls:?}");
}

#[test]
fn a_strict_device_is_held_to_its_own_share() {
    let mut strict = profile();
    strict.kernel.limits = DirtyLimits { background: Bytes::mib(400), hard: Bytes::mib(800) };
    strict.device.max_ratio = 0.02;
    strict.device.strict_limit = true;
    let mut model = Kernel::new(&strict);
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 200);
    assert!(model.state().dirty <= Bytes::mib(18), "{}", model.state().dirty);
}

/// A writer to each of these devices (MB/s), as the model sees them go: start, end and what is written, in
/// the order of ends.
fn seen(rates: &[f64], hz: u32, chunk: u64) -> Vec<Event> {
    let mut model = Kernel::new(&devices(rates, hz));
    let (mut at, mut offset, mut calls) = (vec![0; rates.len()], vec![0; rates.len()], Vec::new());
    while let Some(next) =
        (0..rates.len()).filter(|d| (offset[*d] as f64) < 4e6 * rates[*d]).min_by_key(|d| at[*d])
    {
        let dev = next as u64 + 1;
        let call = Event { dev, ino: dev, tid: dev as u32, ..write(at[next], offset[next], chunk) };
        let cost = model.step(&call).expect("a write has a cost").cost;
        calls.push(Event { duration: cost.get() as u64 + 1, ..call });
        at[next] += cost.get() as u64 + 1000;
        offset[next] += chunk;
    }
    calls.sort_by_key(Event::end);
    calls
}

fn devices(rates: &[f64], hz: u32) -> HostProfile {
    let mut profile = profile();
    (profile.kernel.hz, profile.kernel.folio) = (hz, profile.kernel.page);
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(48), hard: Bytes::mib(96) };
    profile.device.commit = Nanos::ZERO;
    profile.device.queue = Bytes::mib(32);
    for (at, rate) in rates.iter().enumerate() {
        let mut constants = profile.device.clone();
        constants.writeback.value = Rate::mb_per_second(*rate);
        profile.others.push(OtherDevice { dev: at as u64 + 1, constants });
    }
    profile
}

/// No sample tells the level, and the rates are a bit off: that writers slept, or did not, says where the
/// level is. A sleep in a call of less than a quota, where the model has no check, is a pause as well.
#[test]
fn in_lockstep_the_level_does_not_drift_away() {
    for (rates, off, hz, chunk) in [
        (&[240.0][..], 0.93, 250, 1 << 20),
        (&[240.0], 1.05, 250, 1 << 20),
        (&[240.0, 60.0], 0.95, 250, 1 << 20),
        (&[40.0], 1.1, 100, 64 << 10),
        (&[40.0], 1.1, 100, 16 << 10),
    ] {
        let believed = devices(&rates.iter().map(|rate| rate * off).collect::<Vec<_>>(), hz);
        let mut analysis =
            Analysis::new(&believed, &["kernel".to_owned()], Mode::Lockstep).expect("a known model");
        for call in seen(rates, hz, chunk) {
            let _ = analysis.take(&Record::Event(call));
        }
        let summary = &analysis.report().models[0].summary;
        let part = summary.predicted.as_seconds() / summary.observed.as_seconds();
        assert!((0.7..1.2).contains(&part), "{rates:?} believed to be {off} of it, {hz} Hz: {part}");
    }
}

/// When a task is checked depends on all it dirtied before: a call of less than a quota may pause or not, a
/// larger one once more or once less.
#[test]
fn an_interval_has_room_for_a_pause_more_or_less() {
    let mut profile = profile();
    let call = profile.calls.write.value;
    profile.calls.write = Measured { value: call, p10: Some(call), p90: Some(call), samples: 9 };
    for (chunk, several) in [(256 << 10, false), (16 << 20, true)] {
        let mut model = Kernel::new(&profile);
        let (mut at, mut offset, mut paused, mut ran) = (0, 0, 0, 0);
        while offset < 8 << 30 {
            let told = model.step(&write(at, offset, chunk)).expect("a write has a cost");
            let (low, high) = told.interval.expect("an interval");
            let (cost, slept) = (told.cost.as_seconds(), told.parts[Cause::Throttle].as_seconds());
            let (down, up) = (cost - low.as_seconds(), high.as_seconds() - cost);
            if slept > 0.0 && told.parts.device() == Nanos::ZERO {
                paused += 1;
                assert!(up > 0.003 && (down - slept.min(up)).abs() < 2e-3, "{told:?}");
                assert!(down < 0.9 * slept || !several, "{told:?}");
            } else if paused > 0 && model.in_flight() > Bytes::ZERO && told.parts.device() == Nanos::ZERO {
                ran += u32::from(up > 0.003);
            }
            (at, offset) = (at + told.cost.get().ceil() as u64, offset + chunk);
        }
        assert!(paused > 20 && (several || ran > 20), "{paused} {ran}");
    }
}

/// Calls on a disk that is really `faster` times as fast as the model's, in lockstep: predicted and observed
/// seconds of each second that passes, and the largest prediction for an fsync.
fn on_a_faster_disk(model: &mut dyn CostModel, faster: f64) -> (Vec<(f64, f64)>, f64) {
    let real = Rate::mb_per_second(120.0 * faster);
    let (mut now, mut offset, mut fsync) = (0u64, 0u64, 0.0f64);
    let mut seconds = Vec::new();
    while seconds.len() < 30 {
        let mut sums = (0.0, 0.0);
        let begun = now;
        while now - begun < 1_000_000_000 {
            // As a throttled writer goes: at the pace of the real disk.
            let event = write(now, offset, 1 << 20);
            let cost = Bytes(1 << 20) / real;
            let end = Time(now) + cost;
            let told = model.follow(&event, end).expect("a write has a cost").cost;
            sums = (sums.0 + told.as_seconds(), sums.1 + cost.as_seconds());
            (now, offset) = (end.0, offset + (1 << 20));
        }
        let mut sync = write(now, 0, 0);
        sync.op = Op::Fsync;
        now += 20_000_000;
        let told = model.follow(&sync, Time(now)).expect("an fsync has a cost").cost;
        fsync = fsync.max(told.as_seconds());
        seconds.push(sums);
    }
    (seconds, fsync)
}

#[test]
fn pauses_that_do_not_come_do_not_add_up() {
    for name in ["kernel", "cawl"] {
        let mut profile = profile();
        profile.device.write.value = profile.device.writeback.value;
        let build = || cawl_core::build(name, &profile).expect("a name from the list");
        let faster = 5.0;
        let (right, _) = on_a_faster_disk(build().as_mut(), 1.0);
        let (wrong, fsync) = on_a_faster_disk(build().as_mut(), faster);
        let ratio = |part: &[(f64, f64)]| {
            part.iter().map(|s| s.0).sum::<f64>() / part.iter().map(|s| s.1).sum::<f64>()
        };
        let (early, late) = (ratio(&wrong[1..10]), ratio(&wrong[20..]));
        assert!(late < early * 1.1, "{name}: {early} times too much, later {late} times");
        // Pauses grow up to the longest one before the level is found to be too high: some more than the
        // constants alone.
        let least = ratio(&right[20..]).max(1.0);
        assert!(
            late < 3.0 * faster * least,
            "{name}: {late} times too much, {least} with the right constants"
        );
        // All that may be dirty, and the fixed cost.
        let most = Bytes::mib(32) / profile.device.write.value + profile.device.fsync.value;
        assert!(fsync < most.as_seconds() * 1.1, "{name}: an fsync costs {fsync} s of at most {most:?}");
    }
}
