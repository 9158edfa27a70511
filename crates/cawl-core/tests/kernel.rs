//! Invariants of the kernel model, whatever a program does.

use cawl_core::{
    Analysis, AnalysisOptions, Bytes, CostModel, DirtyLimits, Disturbance, HostProfile, Kernel, Measured,
    MemoryFacts, Mode, Nanos, OtherDevice, Plan, Prediction, Rate, Record, Sample, Scene, Time, ZoneFacts,
    predict,
};
use cawl_wire::{Event, FileKind, Op, flag};
use proptest::prelude::*;

/// One thing a program may do; sizes in KiB, times in ms.
#[derive(Clone, Copy, Debug)]
struct Operation {
    op: Op,
    file: u64,
    device: u64,
    task: u32,
    offset: u64,
    size: u64,
    think: u64,
    flags: u32,
    aux: u32,
}

fn operation() -> impl Strategy<Value = Operation> {
    let op = prop_oneof![
        12 => Just(Op::Write),
        3 => Just(Op::Pwrite),
        3 => Just(Op::StreamWrite),
        1 => Just(Op::StreamFlush),
        1 => Just(Op::StreamClose),
        2 => Just(Op::Fsync),
        1 => Just(Op::Sync),
        1 => Just(Op::Syncfs),
        1 => Just(Op::SyncRange),
        1 => Just(Op::Truncate),
        1 => Just(Op::Allocate),
        1 => Just(Op::Unlink),
        1 => Just(Op::Open),
        1 => Just(Op::Close),
        1 => Just(Op::Read),
        1 => Just(Op::MmapWrite),
        1 => Just(Op::CopyRange),
        1 => Just(Op::Sendfile),
        1 => Just(Op::Splice),
    ];
    let flags = prop_oneof![
        10 => Just(0),
        1 => Just(flag::SYNC),
        1 => Just(flag::DIRECT),
        1 => Just(flag::DIRECT | flag::DSYNC),
        1 => Just(flag::TRUNC),
        1 => Just(flag::UNBUFFERED),
    ];
    let size = prop_oneof![Just(0u64), 1..64u64, 64..4096u64, Just(16_384u64)];
    let think = prop_oneof![8 => 0..3u64, 2 => 0..200u64, 1 => 0..40_000u64];
    (op, 0..4u64, 0..2u64, 0..3u32, 0..40_000u64, size, think, (flags, 0..8u32)).prop_map(
        |(op, file, device, task, offset, size, think, (flags, aux))| Operation {
            op,
            file,
            device,
            task,
            offset,
            size,
            think,
            flags,
            aux,
        },
    )
}

impl Operation {
    fn event(&self, start: u64) -> Event {
        let mut event = Event::new(self.op);
        event.start = start;
        (event.dev, event.ino) = (self.device, self.file);
        (event.pid, event.tid, event.fd) = (1, self.task, self.file as i32);
        event.offset = self.offset * 1000;
        (event.requested, event.returned) = (self.size * 1024, (self.size * 1024) as i64);
        (event.kind, event.flags, event.aux) = (FileKind::Regular, self.flags, self.aux);
        event
    }
}

/// A small machine, so that limits are reached soon.
fn profile() -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(16), hard: Bytes::mib(32) };
    profile.device.writeback.value = Rate::mb_per_second(120.0);
    profile.device.queue = Bytes::mib(8);
    profile
}

/// Every task goes on when its call is predicted to end; the earliest next.
fn play(
    operations: &[Operation],
    mut look: impl FnMut(&mut Kernel, &Event, Option<cawl_core::Prediction>),
) -> Kernel {
    let mut model = Kernel::new(&profile());
    let mut ends = [0u64; 3];
    let mut latest = 0;
    for operation in operations {
        let task = operation.task as usize;
        let start = (ends[task] + operation.think * 1_000_000).max(latest);
        latest = start;
        let event = operation.event(start);
        let prediction = model.step(&event);
        ends[task] = (Time(start) + prediction.map_or(Nanos::ZERO, |p| p.cost)).0;
        look(&mut model, &event, prediction);
    }
    model
}

/// Calls that take as long as `durations` says, in microseconds, are followed; each model looks at its state
/// after each call and is told the latest end that was observed.
fn observe(
    operations: &[(Operation, u64)],
    mut look: impl FnMut(&mut Kernel, &Event, Time, Option<Prediction>),
) -> Kernel {
    let mut model = Kernel::new(&profile());
    let mut ends = [0u64; 3];
    let (mut latest, mut over) = (0, 0);
    for (operation, duration) in operations {
        let task = operation.task as usize;
        let start = (ends[task] + operation.think * 1_000_000).max(latest);
        latest = start;
        ends[task] = start + duration * 1000;
        over = over.max(ends[task]);
        let event = operation.event(start);
        let prediction = model.follow(&event, Time(ends[task]));
        look(&mut model, &event, Time(over), prediction);
    }
    model
}

/// Operations, and how many microseconds each really takes.
fn observed() -> impl Strategy<Value = Vec<(Operation, u64)>> {
    let duration = prop_oneof![4 => 1..100u64, 2 => 100..10_000u64, 1 => 10_000..2_000_000u64];
    proptest::collection::vec((operation(), duration), 1..120)
}

/// Small files, so that the flusher takes many of them whole.
fn among_many_files() -> impl Strategy<Value = Operation> {
    let offset = prop_oneof![0..300u64, 0..40_000u64];
    (operation(), 0..40u64, offset, 0..60u64).prop_map(|(operation, file, offset, size)| Operation {
        file,
        offset: offset / 4 * 4,
        size: operation.size.min(size),
        ..operation
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// In lockstep the model never stands in the future.
    #[test]
    fn the_clock_is_the_observed_one(operations in observed()) {
        let mut worst = 0;
        observe(&operations, |model, _, over, _| {
            // Seconds in floating point: to within a microsecond.
            worst = worst.max(model.state().time.0.saturating_sub(over.0 + 1000));
        });
        prop_assert_eq!(worst, 0);
    }

    #[test]
    fn every_byte_is_accounted_for_in_lockstep(operations in observed()) {
        observe(&operations, |model, _, _, _| {
            let all = model.conservation();
            assert_eq!(all.dirtied, all.written + all.dirty + all.cancelled);
        });
    }

    /// How long a call took is not known before it was predicted.
    #[test]
    fn a_call_is_predicted_before_it_is_over(operations in observed(), duration in 0..1_000_000_000u64) {
        let mut model = observe(&operations, |_, _, _, _| ());
        let start = model.state().time.0 + 1_000_000;
        let event = operations[0].0.event(start);
        let foretold = model.fork().step(&event);
        prop_assert_eq!(model.follow(&event, Time(start + duration)), foretold);
    }

    #[test]
    fn every_byte_is_accounted_for(operations in proptest::collection::vec(operation(), 1..120)) {
        let mut failures = Vec::new();
        let mut model = play(&operations, |model, event, _| {
            let totals = model.conservation();
            if totals.dirtied != totals.written + totals.dirty + totals.cancelled {
                failures.push((*event, totals));
            }
        });
        prop_assert!(failures.is_empty(), "{failures:?}");
        // Left alone, everything is written back in the end.
        let now = model.state().time;
        model.advance(now + Nanos::seconds(200.0));
        model.advance(now + Nanos::seconds(400.0));
        prop_assert_eq!(model.state().dirty, Bytes::ZERO);
    }

    #[test]
    fn predictions_are_finite_and_add_up(operations in proptest::collection::vec(operation(), 1..120)) {
        let mut failures = Vec::new();
        let mut time = Time(0);
        play(&operations, |model, event, prediction| {
            let state = model.state();
            if state.time < time {
                failures.push(format!("time went back at {event:?}"));
            }
            time = state.time;
            let Some(prediction) = prediction else { return };
            let (cost, parts) = (prediction.cost.get(), prediction.parts.total().get());
            if !(0.0..=1e12).contains(&cost) || (cost - parts).abs() > 1.0 {
                failures.push(format!("{prediction:?} for {event:?}"));
            }
        });
        prop_assert!(failures.is_empty(), "{failures:?}");
    }

    #[test]
    fn the_limit_holds(operations in proptest::collection::vec(operation(), 1..120)) {
        let mut highest = Bytes::ZERO;
        // What one write may add between two checks, by three tasks; mapped stores are not checked at all.
        let chunk: u64 = operations.iter().filter(|o| o.op == Op::MmapWrite).map(|o| (o.size + 8) * 1024).sum();
        play(&operations, |model, _, _| highest = highest.max(model.state().dirty));
        prop_assert!(highest <= Bytes(Bytes::mib(32 + 3 * 16).0 + chunk), "{highest}");
    }

    #[test]
    fn the_same_again(operations in proptest::collection::vec(operation(), 1..80)) {
        let run = || {
            let mut costs = Vec::new();
            play(&operations, |_, _, prediction| costs.push(prediction.map(|p| p.cost.get().to_bits())));
            costs
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_copy_goes_its_own_way(operations in proptest::collection::vec(operation(), 1..60)) {
        let mut model = play(&operations, |_, _, _| {});
        let before = model.state();
        let mut copy = model.fork();
        copy.advance(before.time + Nanos::seconds(60.0));
        prop_assert_eq!(model.state(), before);
        model.advance(before.time + Nanos::seconds(60.0));
        prop_assert_eq!(model.state(), copy.state());
    }

    /// What a copy only notes of files that were cleaned, the original does.
    #[test]
    fn a_copy_says_what_the_original_would(
        before in proptest::collection::vec(among_many_files(), 1..150),
        after in proptest::collection::vec(among_many_files(), 1..150),
    ) {
        // Files are cleaned soon and written slowly, so that a call waits for one that was cleaned.
        let mut profile = profile();
        profile.kernel.limits.background = Bytes::mib(1);
        profile.device.writeback.value = Rate::mb_per_second(5.0);
        let mut model = Kernel::new(&profile);
        let mut now = 1;
        let mut step = |models: &mut [&mut dyn CostModel], operation: &Operation| {
            let event = operation.event(now);
            let told: Vec<_> = models.iter_mut().map(|model| model.step(&event)).collect();
            let states: Vec<_> = models.iter().map(|model| model.state()).collect();
            now = states[0].time.0 + operation.think * 1_000_000;
            (told, states)
        };
        for operation in &before {
            step(&mut [&mut model], operation);
        }
        let mut copy = model.fork();
        for (n, operation) in after.iter().enumerate() {
            // A copy of the copy takes over what that has noted.
            if n == after.len() / 2 {
                copy = copy.fork();
            }
            let (told, states) = step(&mut [&mut model, copy.as_mut()], operation);
            prop_assert_eq!(told[0], told[1], "{:?}", operation);
            prop_assert_eq!(states[0], states[1], "{:?}", operation);
        }
    }

    #[test]
    fn many_small_steps_or_a_large_one(
        operations in proptest::collection::vec(operation(), 1..60),
        span in 1..20_000u64,
    ) {
        let mut model = play(&operations, |_, _, _| {});
        let mut copy = model.clone();
        let now = model.state().time;
        model.advance(now + Nanos::millis(span as f64));
        for step in 1..=100 {
            copy.advance(now + Nanos::millis(span as f64 * f64::from(step) / 100.0));
        }
        prop_assert!(model.state().dirty.0.abs_diff(copy.state().dirty.0) <= 8192);
    }
}

fn write(start: u64, offset: u64, bytes: u64) -> Event {
    let mut event = Event::new(Op::Write);
    (event.start, event.offset, event.dev, event.ino) = (start, offset, 1, 1);
    (event.requested, event.returned, event.kind) = (bytes, bytes as i64, FileKind::Regular);
    event
}

/// Writes `count` chunks one after another and returns the whole cost in seconds.
fn stream(model: &mut Kernel, start: &mut u64, file: u64, tid: u32, count: u64) -> f64 {
    const CHUNK: u64 = 1 << 20;
    let mut total = 0.0;
    for chunk in 0..count {
        let event = Event { ino: file, tid, ..write(*start, chunk * CHUNK, CHUNK) };
        let cost = model.step(&event).expect("a write has a cost").cost;
        *start = (Time(*start) + cost).0;
        total += cost.as_seconds();
    }
    total
}

#[test]
fn a_steady_writer_gets_the_writeback_rate() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 200);
    let seconds = stream(&mut model, &mut at, 2, 1, 1000);
    let rate = 1000.0 * 1.048_576 / seconds;
    assert!((rate - 120.0).abs() < 6.0, "{rate} MB/s");
}

/// ext4 counts none of an extent's pages as written before all of them are on the device: the level falls by
/// extents of 8 MiB, or by the runs of a scattered file, at the device's rate in either case.
#[test]
fn what_is_written_back_counts_by_extents() {
    for (run, apart) in [(1 << 20, 1), (64 << 10, 4)] {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(512) };
        profile.device.queue = Bytes::mib(32);
        profile.device.commit = Nanos::ZERO;
        let mut model = Kernel::new(&profile);
        let mut now = 0;
        for call in 0..(128 << 20) / run {
            let cost = model.step(&write(now, call * run * apart, run)).unwrap().cost;
            now = (Time(now) + cost).0;
        }
        let level = |model: &mut Kernel, at: u64| {
            model.advance(Time(at));
            model.dirty_level().0
        };
        let mut before = level(&mut model, now);
        let (first, mut steps) = (before, Vec::new());
        for tick in 1..=250u64 {
            let after = level(&mut model, now + tick * 1_000_000);
            if after != before {
                steps.push(before - after);
            }
            before = after;
        }
        let extent = if apart == 1 { 8 << 20 } else { run };
        // The flusher's first extent begins where the file does, without a jump, so runs are a page longer on
        // the average.
        let whole = steps.iter().filter(|step| step.is_multiple_of(extent)).count();
        assert!(whole + 2 >= steps.len() && !steps.is_empty(), "{extent}: {steps:?}");
        let written = (first - before) as f64 / 0.25;
        assert!((written / 120e6 - 1.0).abs() < 0.3, "{written} bytes a second");
    }
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
            (told.parts.throttle.get(), (Time(at) + told.cost).0)
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
    let mut held = Kernel::new(&tight);
    let (mut a, mut b) = (0, 0);
    let (free_s, held_s) = (stream(&mut free, &mut a, 1, 1, 300), stream(&mut held, &mut b, 1, 1, 300));
    assert!(held_s > 5.0 * free_s, "{held_s} s in the group, {free_s} s outside");
    assert!(held.state().dirty <= Bytes::mib(34));
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

#[test]
fn deleted_files_are_not_written() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 8);
    let mut unlink = Event { op: Op::Unlink, ..write(at, 0, 0) };
    (unlink.ino, unlink.aux) = (1, 1);
    model.step(&unlink);
    assert_eq!(model.state().dirty, Bytes::mib(8), "another link is left");
    unlink.aux = 0;
    model.step(&unlink);
    assert_eq!((model.state().dirty, model.conservation().cancelled), (Bytes::ZERO, Bytes::mib(8)));
}

/// A file written in calls of a mebibyte is clean, and then rewritten in a few places.
#[test]
fn a_folio_counts_as_dirty_as_a_whole() {
    for (chunk, counted) in [(1 << 20, 1 << 20), (4096, 16 << 10)] {
        let mut model = Kernel::new(&profile());
        let mut start = 0;
        let mut call = |model: &mut Kernel, event: Event| {
            let cost = model.step(&Event { start, ..event }).expect("a cost").cost;
            start += cost.get() as u64 + 1000;
        };
        for at in (0..16 << 20).step_by(chunk) {
            call(&mut model, write(0, at, chunk as u64));
        }
        call(&mut model, Event { op: Op::Fsync, ..write(0, 0, 0) });
        let before = model.conservation();
        assert_eq!(before.dirty, Bytes::ZERO);
        for _ in 0..2 {
            for at in [0, 3 << 20, 9 << 20] {
                call(&mut model, write(0, at + (500 << 10), 16 << 10));
            }
        }
        // Once, however often its pages are written.
        let after = model.conservation();
        assert_eq!(after.dirtied.0 - before.dirtied.0, 3 * counted, "calls of {chunk} B");
        // What was not written takes the device no time.
        let fsync = model.step(&Event { op: Op::Fsync, start, ..write(0, 0, 0) }).expect("a cost");
        assert!((fsync.work.transferred - 3.0 * 16384.0).abs() < 1.0, "calls of {chunk} B");
        assert_eq!(model.conservation().dirty, Bytes::ZERO);
    }
}

/// A file system gives the number of a deleted file to the next one.
#[test]
fn a_new_file_with_an_old_number_keeps_its_pages() {
    let mut model = Kernel::new(&profile());
    let other = |op| Event { op, ..write(0, 0, 0) };
    for _ in 0..2 {
        model.step(&other(Op::Open));
        model.step(&write(0, 0, 1 << 20)).expect("a cost");
        model.step(&other(Op::Close));
        assert_eq!(model.conservation().dirty, Bytes::mib(1));
        model.step(&other(Op::Unlink));
        assert_eq!(model.conservation().dirty, Bytes::ZERO);
    }
}

#[test]
fn fsync_waits_for_the_file_and_leaves_nothing() {
    let mut model = Kernel::new(&profile());
    let mut at = 0;
    stream(&mut model, &mut at, 1, 1, 10);
    let fsync = Event { op: Op::Fsync, ino: 1, ..write(at, 0, 0) };
    let prediction = model.step(&fsync).expect("fsync has a cost");
    assert!(prediction.cost > Bytes::mib(10) / Rate::mb_per_second(500.0));
    assert_eq!(model.state().dirty, Bytes::ZERO);
    let again = Event { start: at + prediction.cost.get() as u64 + 1, ..fsync };
    // What is left to do is a flush of the device's cache.
    let flush = profile().device.fsync.value * 0.5;
    let cost = model.step(&again).expect("fsync has a cost").cost;
    assert!(cost > flush && cost < flush + Nanos::new(10_000.0), "{cost:?}");
}

/// A program's calls, one after the other, on a disk with flushes of 20 ms and commits of 41.
struct Program {
    model: Kernel,
    now: u64,
}

impl Program {
    fn new() -> Program {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(256), hard: Bytes::mib(512) };
        profile.device.fsync = Measured::assumed(Nanos::millis(41.0));
        profile.device.sync_call = Measured::assumed(Nanos::millis(41.0));
        profile.device.flush = Some(Measured::assumed(Nanos::millis(20.0)));
        Program::on(&profile)
    }

    fn on(profile: &HostProfile) -> Program {
        Program { model: Kernel::new(profile), now: 0 }
    }

    fn call(&mut self, event: Event) -> Option<Prediction> {
        let prediction = self.model.step(&Event { start: self.now, ..event });
        self.now += prediction.map_or(1000, |prediction| prediction.cost.get() as u64 + 1);
        prediction
    }

    /// Waiting for the device, in ms.
    fn waits(&mut self, event: Event) -> f64 {
        self.call(event).expect("a cost").parts.device.as_seconds() * 1e3
    }

    fn waits_at(&mut self, op: Op) -> f64 {
        self.waits(Event { op, ..write(0, 0, 0) })
    }

    fn dirty(&self) -> u64 {
        self.model.state().dirty.0 / 4096
    }
}

fn with(flags: u32, offset: u64, bytes: u64) -> Event {
    Event { flags, ..write(0, offset, bytes) }
}

fn range(op: Op, offset: u64, bytes: u64, aux: u32) -> Event {
    Event { op, requested: bytes, returned: 0, aux, ..write(0, offset, 0) }
}

/// As measured on a 6.18 kernel, ext4, on such a disk.
#[test]
fn what_is_to_commit_decides_what_a_sync_costs() {
    let near = |found: f64, ms: f64| assert!((found - ms).abs() < 1.5, "{found} ms instead of {ms}");
    let mut program = Program::new();
    program.call(write(0, 0, 256 << 10));
    program.waits(range(Op::SyncRange, 0, 0, 7));
    // The data are there, the new blocks and the size are not; then nothing is left.
    near(program.waits_at(Op::Fsync), 41.0);
    near(program.waits_at(Op::Fsync), 20.0);
    near(program.waits_at(Op::Fdatasync), 20.0);
    // Blocks that are there change nothing but a time stamp.
    program.call(write(0, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 20.0);
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(write(0, 256 << 10, 4096));
    near(program.waits_at(Op::Fdatasync), 41.0);
    // The same of synchronous writes, through the cache and past it.
    for past in [0, flag::DIRECT] {
        program.waits(with(past | flag::DSYNC, 0, 4096));
        near(program.waits(with(past | flag::DSYNC, 4096, 4096)), 20.0);
        near(program.waits(with(past | flag::SYNC, 8192, 4096)), 41.0);
    }
    near(program.waits(with(flag::DSYNC, 260 << 10, 4096)), 41.0);
    near(program.waits(with(flag::DSYNC | flag::DIRECT, 264 << 10, 4096)), 41.0);
    program.waits(with(flag::DIRECT, 0, 4096));
    near(program.waits_at(Op::Fdatasync), 20.0);
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(Event { op: Op::Truncate, ..write(0, 4096, 0) });
    near(program.waits_at(Op::Fsync), 41.0);
    program.call(range(Op::Allocate, 0, 1 << 20, 0));
    near(program.waits_at(Op::Fdatasync), 41.0);
    // All of the filesystem, with something to commit and without.
    program.call(write(0, 0, 4096));
    for all in [Op::Syncfs, Op::Sync] {
        near(program.waits_at(all), if all == Op::Syncfs { 41.0 } else { 20.0 });
        near(program.waits_at(all), 20.0);
    }
    // The journal commits by itself.
    program.call(Event { op: Op::Truncate, ..write(0, 8192, 0) });
    program.now += 6_000_000_000;
    near(program.waits_at(Op::Fsync), 20.0);
    // A name has changed, and the directory is asked to be safe.
    let directory = Event { op: Op::Fsync, kind: FileKind::Directory, ino: 99, ..write(0, 0, 0) };
    near(program.waits(directory), 20.0);
    program.call(Event { op: Op::Unlink, ..write(0, 0, 0) });
    near(program.waits(directory), 41.0);
    // msync: at once, and some day.
    program.call(write(0, 0, 4096));
    assert_eq!(program.waits(range(Op::Msync, 0, 4096, 1)), 0.0);
    near(program.waits(range(Op::Msync, 0, 4096, 4)), 41.0);
}

/// A program on a disk whose requests take 90 µs, flushes 70 and commits 150.
fn small_writes() -> Program {
    let mut profile = profile();
    let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
    profile.device.latency = Some(micros(90.0));
    profile.device.flush = Some(micros(70.0));
    profile.device.fsync = micros(150.0);
    profile.device.sync_call = micros(155.0);
    profile.calls.inode = Some(micros(4.0));
    profile.calls.away = Some(micros(3.0));
    Program::on(&profile)
}

#[test]
fn a_wait_for_what_was_submitted_has_its_latency_once() {
    let mut program = small_writes();
    let page = program.model.clone().step(&with(flag::DIRECT, 0, 4096)).expect("a cost");
    let transfer = page.parts.device.get() / 1e3 - 90.0;
    assert!(transfer > 0.0 && transfer < 20.0 && page.work.latencies == 1.0, "{transfer} µs");
    let mut waits = |event: Event, micros: f64| {
        let found = program.waits(event) * 1e3;
        assert!((found - micros).abs() < 0.1, "{found} µs instead of {micros}: {event:?}");
    };
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    // New blocks, the same again, and nothing at all.
    waits(write(0, 0, 4096), 0.0);
    waits(sync, 90.0 + transfer + 150.0);
    waits(write(0, 0, 4096), 0.0);
    waits(sync, 90.0 + transfer + 70.0);
    waits(sync, 70.0);
    // Synchronous writes, into new blocks and into those.
    for past in [0, flag::DIRECT] {
        let offset = 4096 + u64::from(past > 0) * 4096;
        waits(with(past | flag::DSYNC, offset, 4096), 90.0 + transfer + 155.0);
        waits(with(past | flag::DSYNC, offset, 4096), 90.0 + transfer + 70.0);
    }
    // All files of the filesystem: one wait, one commit.
    waits(write(0, 1 << 20, 4096), 0.0);
    let all = Event { op: Op::Syncfs, ..write(0, 0, 0) };
    let found = program.call(all).expect("a cost").work;
    assert_eq!((found.latencies, found.fsyncs, found.flushes), (1.0, 1.0, 0.0));
}

#[test]
fn a_write_into_a_clean_inode_costs_more() {
    let mut program = small_writes();
    let mut work = |event: Event| program.call(event).expect("a cost");
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    let other = Event { ino: 77, ..write(0, 0, 4096) };
    assert_eq!(work(write(0, 0, 4096)).work.inodes, 1.0);
    let plain = work(write(0, 0, 4096));
    assert_eq!(plain.work.inodes, 0.0);
    work(other);
    work(sync);
    // Another file, dirty all the time, then the one that the sync has cleaned.
    assert_eq!(work(other).work.inodes, 0.0);
    let clean = work(write(0, 0, 4096));
    assert_eq!(clean.work.inodes, 1.0);
    let more = (clean.cost.get() - plain.cost.get()) / 1e3;
    assert!((more - 4.0).abs() < 0.01, "{more} µs");
}

/// Time away counts for each way through the kernel that a call takes: with the square root of milliseconds,
/// up to ten.
#[test]
fn a_write_costs_the_more_the_longer_its_thread_was_away() {
    let mut program = small_writes();
    program.call(write(0, 0, 1 << 20));
    let after = |program: &mut Program, millis: f64, event: Event| {
        program.now += (millis * 1e6) as u64;
        program.call(event).expect("a cost")
    };
    let at_once = after(&mut program, 0.0, write(0, 0, 4096));
    assert!(at_once.work.away < 1e-3, "{}", at_once.work.away);
    for (millis, micros) in [(0.01, 0.3), (1.0, 3.0), (4.0, 6.0), (500.0, 3.0 * 10_f64.sqrt())] {
        let more = (after(&mut program, millis, write(0, 0, 4096)).cost.get() - at_once.cost.get()) / 1e3;
        assert!((more - micros).abs() < 0.01, "{more} µs instead of {micros} after {millis} ms");
    }
    // New pages are another way; a clean inode has a cost of its own.
    let appended = after(&mut program, 1.0, write(0, 1 << 20, 4096));
    let created = after(&mut program, 1.0, Event { ino: 78, ..write(0, 0, 4096) });
    let (appended, created) = (appended.work.away, created.work.away);
    assert!((appended - 2.0).abs() < 1e-3 && (created - 2.0).abs() < 1e-3, "{appended} {created}");
    // While it waits, it is away; another thread has been for longer than counts.
    program.call(Event { op: Op::Fdatasync, ..write(0, 0, 0) });
    let waited = after(&mut program, 0.0, write(0, 0, 4096)).work.away;
    assert!(waited > 0.5 && waited < 3.0, "{waited}");
    let new = program.call(Event { tid: 99, ..write(0, 0, 4096) }).expect("a cost").work.away;
    assert!((new - 10_f64.sqrt()).abs() < 1e-9, "{new}");
}

/// A device that was idle for a while takes longer, once for each call that waits.
#[test]
fn an_idle_device_wakes_up() {
    let mut profile = profile();
    profile.device.idle = Some(Measured::assumed(Nanos::new(60e3)));
    let mut program = Program::on(&profile);
    let mut wait = |millis: f64| {
        program.now += (millis * 1e6) as u64;
        program.call(with(flag::DSYNC, 0, 4096)).expect("a cost")
    };
    wait(0.0);
    let at_once = wait(0.0);
    assert!(at_once.work.idle < 0.1, "{}", at_once.work.idle);
    for (millis, micros) in [(1.0, 60.0), (9.0, 180.0), (1000.0, 60.0 * 10_f64.sqrt())] {
        let more = (wait(millis).cost.get() - at_once.cost.get()) / 1e3;
        assert!((more - micros).abs() < 2.0, "{more} µs instead of {micros} after {millis} ms");
    }
}

/// What the kernel goes through of a large folio is in the processor's cache the second time (6.18: 10 µs
/// instead of 40).
#[test]
fn the_rest_of_a_folio_costs_once_while_no_other_comes_between() {
    let mut program = small_writes();
    let sync = Event { op: Op::Fdatasync, ..write(0, 0, 0) };
    program.call(write(0, 0, 4 << 20));
    program.call(sync);
    let mut padded = |offset| {
        let work = program.call(write(0, offset, 4096)).expect("a cost").work;
        program.call(sync);
        work.padded[0] + work.padded[1]
    };
    let rest = padded(0);
    assert!(rest >= 1e6, "{rest} B");
    assert_eq!((padded(0), padded(8192)), (0.0, 0.0));
    assert_eq!((padded(2 << 20), padded(0), padded(4096)), (rest, rest, 0.0));
}

/// The kernel's time stamps are those of its clock's ticks (`inode_needs_update_time`).
#[test]
fn writes_within_a_tick_change_the_inode_once() {
    let mut program = small_writes();
    let fsync = Event { op: Op::Fsync, ..write(0, 0, 0) };
    program.call(write(0, 0, 4096));
    program.call(fsync);
    let hz = u64::from(profile().kernel.hz);
    let mut commits = 0.0;
    let start = program.now;
    while program.now < start + 100 * 1_000_000_000 / hz {
        program.call(write(0, 0, 4096));
        commits += program.call(fsync).expect("a cost").work.fsyncs;
    }
    assert!((99.0..=101.0).contains(&commits), "{commits} commits in 100 ticks");
}

/// A call that takes longer than calls are held back is told of after samples from its middle, to which the
/// model has been advanced.
#[test]
fn a_call_that_is_told_late_waits_no_longer_for_that() {
    for op in [Op::Fsync, Op::Syncfs, Op::Sync] {
        let [at_once, late] = [0, 300_000_000].map(|later| {
            let mut program = Program::new();
            program.call(write(0, 0, 64 << 20));
            program.model.advance(Time(program.now + later));
            program.waits_at(op)
        });
        assert!((at_once - late).abs() < 1e-3, "{op:?}: {at_once} ms, told late {late} ms");
    }
}

/// A task that hands over more than the device's queue holds waits until it holds the rest (6.18, with a
/// queue of 128 requests of 1280 KiB: 128 MiB take 8 ms, 256 MiB 304, after which 152 MiB are in flight).
#[test]
fn a_task_that_submits_more_than_the_queue_holds_waits() {
    let waited = |mib: u64, aux: u32| {
        let mut profile = profile();
        profile.kernel.limits = DirtyLimits { background: Bytes::mib(512), hard: Bytes::mib(1024) };
        profile.device.queue = Bytes::mib(160);
        let mut program = Program::on(&profile);
        program.call(write(0, 0, mib << 20));
        (program.waits(range(Op::SyncRange, 0, 0, aux)), program.dirty() >> 8)
    };
    assert!(waited(150, 2).0 < 0.1);
    let (wait, left) = waited(256, 2);
    assert!(
        (wait - 96.0 * 1048.576 / 120.0).abs() < 10.0 && (155..=160).contains(&left),
        "{wait} ms, {left} MiB"
    );
    assert!(waited(256, 0).0 < 0.1);
}

/// A writer to each of these devices (MB/s), as the model sees them go: start, end and what is written, in
/// the order of ends.
fn seen(rates: &[f64]) -> Vec<Event> {
    let mut model = Kernel::new(&devices(rates));
    let (mut at, mut offset, mut calls) = (vec![0; rates.len()], vec![0; rates.len()], Vec::new());
    while let Some(next) =
        (0..rates.len()).filter(|d| (offset[*d] as f64) < 4e6 * rates[*d]).min_by_key(|d| at[*d])
    {
        let dev = next as u64 + 1;
        let call = Event { dev, ino: dev, tid: dev as u32, ..write(at[next], offset[next], 1 << 20) };
        let cost = model.step(&call).expect("a write has a cost").cost;
        calls.push(Event { duration: cost.get() as u64 + 1, ..call });
        at[next] += cost.get() as u64 + 1000;
        offset[next] += 1 << 20;
    }
    calls.sort_by_key(Event::end);
    calls
}

fn devices(rates: &[f64]) -> HostProfile {
    let mut profile = profile();
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
/// level is.
#[test]
fn in_lockstep_the_level_does_not_drift_away() {
    for (rates, off) in [(&[240.0][..], 0.93), (&[240.0], 1.05), (&[240.0, 60.0], 0.95)] {
        let believed = devices(&rates.iter().map(|rate| rate * off).collect::<Vec<_>>());
        let mut analysis =
            Analysis::new(&believed, &["kernel".to_owned()], Mode::Lockstep).expect("a known model");
        for call in seen(rates) {
            let _ = analysis.take(&Record::Event(call));
        }
        let summary = &analysis.report().models[0].summary;
        let part = summary.predicted.as_seconds() / summary.observed.as_seconds();
        assert!((0.7..1.2).contains(&part), "{rates:?} believed to be {off} of it: {part}");
    }
}

/// Rewriting a small file stays in the processor's cache; of a large one only the source does.
#[test]
fn a_large_file_is_not_in_the_processors_cache() {
    let rewritten = |mib: u64| {
        let mut model = Kernel::new(&profile());
        let mut cost =
            |start, offset, bytes| model.step(&write(start, offset, bytes)).expect("a cost").parts.copy;
        let (_, new) = (cost(0, 0, (mib << 20) - 65536), cost(1_000_000_000, (mib << 20) - 65536, 65536));
        (new, cost(2_000_000_000, 0, 65536))
    };
    let [(new, small), (same, large)] = [1, 14].map(rewritten);
    assert_eq!(new, same);
    assert_eq!(small, large);
    let mut profile = profile();
    profile.memory.hot_size = Bytes::kib(64);
    let mut model = Kernel::new(&profile);
    let _ = model.step(&write(0, 0, 8 << 20));
    let large = model.step(&write(1_000_000_000, 0, 65536)).expect("a cost").parts.copy;
    assert!((large / small - 4.0).abs() < 0.01, "{large} {small}");
}

#[test]
fn what_is_not_on_the_device_is_not_read() {
    let part = |at: u64| write(0, at + 100, 1000);
    let mut profile = profile();
    profile.device.seek = Measured::assumed(Nanos::millis(8.0));
    let mut program = Program::on(&profile);
    // Space set aside, a hole behind the end, and a file made longer.
    program.call(range(Op::Allocate, 0, 8 << 20, 0));
    assert_eq!(program.waits(part(0)), 0.0);
    assert_eq!(program.waits(part(5 << 20)), 0.0);
    assert_eq!(program.waits(part(20 << 20)), 0.0);
    assert_eq!(program.waits(part(15 << 20)), 0.0);
    program.call(Event { op: Op::Truncate, ..write(0, 40 << 20, 0) });
    assert_eq!(program.waits(part(30 << 20)), 0.0);
    assert!(program.waits(with(flag::DIRECT, 32 << 20, 8192)) < 1.0);
    // What was written once is there, also when it was written past the cache; but not in a hole punched
    // since.
    assert!(program.waits(part(32 << 20)) > 8.0);
    program.call(range(Op::Allocate, (32 << 20) + 4096, 4096, 2 | 1));
    assert_eq!(program.waits(part((32 << 20) + 4096)), 0.0);
    // A file that was there before.
    program.call(Event { op: Op::Open, requested: 1 << 20, ino: 2, ..write(0, 0, 0) });
    assert!(program.waits(Event { ino: 2, ..part(0) }) > 8.0);
}

/// Dirty pages as cachestat(2) counts them on a 6.18 kernel.
#[test]
fn folios_with_dirty_pages_are_dropped_whole_or_not_at_all() {
    const MIB: u64 = 1 << 20;
    let mut program = Program::new();
    program.call(write(0, 0, 16 * MIB));
    let truncate = |size| Event { op: Op::Truncate, ..write(0, size, 0) };
    for (size, dirty) in [(8 * MIB, 2048), (4 * MIB + 100, 1536), (32 * MIB, 1536), (0, 0)] {
        program.call(truncate(size));
        assert_eq!(program.dirty(), dirty, "{size}");
    }
    program.call(write(0, 0, 4 * MIB));
    program.waits_at(Op::Fsync);
    program.call(truncate(MIB + 100));
    assert_eq!(program.dirty(), 0);
    program.call(write(0, 8 * MIB, 4 * MIB));
    for (offset, bytes, mode) in [(8 * MIB, MIB, 3), (9 * MIB + 100, 1000, 3), (10 * MIB, MIB, 16)] {
        program.call(range(Op::Allocate, offset, bytes, mode));
        assert_eq!(program.dirty(), 1024);
    }
    program.call(range(Op::Allocate, 8 * MIB, 2 * MIB, 3));
    assert_eq!(program.dirty(), 512);
    // What is moved is written out before, not dropped.
    program.call(range(Op::Allocate, 0, MIB, 8));
    let totals = program.model.conservation();
    program.waits_at(Op::Fsync);
    assert_eq!((program.dirty(), program.model.conservation().cancelled), (0, totals.cancelled));
    // And the file is shorter: an append that does not say where goes to its new end.
    program.call(write(0, cawl_wire::UNKNOWN_OFFSET, 4096));
    let before = program.dirty();
    program.call(write(0, 11 * MIB, 4096));
    assert_eq!(program.dirty(), before);
}

/// sync(2) names no device, and programs open files on devices that they do not write to.
#[test]
fn a_device_without_writes_takes_no_share() {
    let cost = |first: Option<Event>| {
        let mut model = Kernel::new(&profile());
        let begin = Event { op: Op::Open, ..write(0, 0, 0) };
        [Some(begin), first].into_iter().flatten().for_each(|event| {
            model.step(&event);
        });
        let mut at = 1_000_000;
        stream(&mut model, &mut at, 1, 1, 200)
    };
    let alone = cost(None);
    let sync = Event { op: Op::Sync, dev: 0, ino: 0, ..write(0, 0, 0) };
    let open = Event { op: Op::Open, dev: 9, ..write(0, 0, 0) };
    assert_eq!([cost(Some(sync)), cost(Some(open))], [alone; 2]);
}

#[test]
fn a_device_without_writes_writes_nothing_back() {
    let profile = profile();
    let rate = profile.device.writeback.value;
    let gone = |elsewhere: bool| {
        let mut model = Kernel::new(&profile);
        let open = Event { op: Op::Open, dev: 9, ..write(0, 0, 0) };
        [write(0, 0, 20 << 20), open].into_iter().take(1 + usize::from(elsewhere)).for_each(|event| {
            model.step(&event);
        });
        let now = model.state().time;
        assert_eq!(model.state().writeback.map(Rate::get), Some(rate.get()), "open elsewhere: {elsewhere}");
        // Pages of untraced writers that no sample confirms any longer.
        model.disturb(Disturbance { at: now, offset: 1e9, drift: 0.0 });
        model.disturbance(now + Nanos::seconds(2.0)).offset
    };
    assert_eq!(gone(true), gone(false));
}

/// As a 6.18 kernel does it: a direct write of 4 KiB over a file with 64 MiB dirty writes out one folio.
#[test]
fn a_direct_write_over_dirty_pages_waits_for_those_only() {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(256), hard: Bytes::mib(512) };
    let mut model = Kernel::new(&profile);
    let written = model.step(&write(0, 0, 64 << 20)).expect("a cost");
    let start = written.cost.get() as u64 + 1;
    let direct = |start, offset, bytes| Event { flags: flag::DIRECT, ..write(start, offset, bytes) };
    let over = model.step(&direct(start, 4096, 4096)).expect("a cost");
    assert_eq!(model.state().dirty, Bytes::mib(62));
    let device = profile.device.write.value;
    assert!(over.cost > Bytes::mib(2) / device && over.cost < Bytes::mib(3) / device, "{over:?}");
    let start = start + over.cost.get() as u64 + 1;
    let behind = model.step(&direct(start, 64 << 20, 4096)).expect("a cost");
    assert_eq!(model.state().dirty, Bytes::mib(62));
    assert!(behind.cost < Bytes::mib(1) / device, "{behind:?}");
}

#[test]
fn pauses_while_a_commit_withholds_completions_are_waiting_for_the_device() {
    let mut profile = profile();
    profile.device.commit = Nanos::seconds(1.0);
    let mut model = Kernel::new(&profile);
    // The first second ends in the middle of throttled writing; then everything in flight, 8 MiB at 120 MB/s,
    // has to be on the device first.
    let (mut at, mut offset, mut waits, mut pauses) = (0, 0, Vec::new(), 0);
    while at < 1_900_000_000 {
        let parts = model.step(&write(at, offset, 1 << 20)).expect("a write has a cost").parts;
        if parts.device > Nanos::ZERO {
            waits.push(at as f64 * 1e-9);
        }
        pauses += u32::from(parts.throttle > Nanos::ZERO);
        at = (Time(at) + parts.total()).0;
        offset += 1 << 20;
    }
    assert!(!waits.is_empty() && waits.iter().all(|when| (0.9..1.2).contains(when)), "{waits:?}");
    assert!(pauses > 10, "only the commit's pauses are the device's");
}

#[test]
fn memory_that_may_be_cold_widens_the_interval_of_fresh_pages() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    let mut model = Kernel::new(&profile);
    let fresh = model.step(&write(0, 0, 2 << 20)).expect("a write has a cost");
    let again = model.step(&write(1_000_000_000, 0, 2 << 20)).expect("a write has a cost");
    let above = |p: &Prediction| p.interval.expect("an interval").1 / p.parts.copy;
    assert!(above(&fresh) > 9.9, "{fresh:?}");
    assert!(above(&again) < 2.0, "{again:?}");
}

#[test]
fn cold_memory_is_a_part_of_its_own() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    let mut model = Kernel::new(&profile);
    let warm = model.step(&write(0, 0, 2 << 20)).expect("a cost");
    model.supply(Some(true));
    let cold = model.step(&write(1_000_000_000, 2 << 20, 2 << 20)).expect("a cost");
    let again = model.step(&write(2_000_000_000, 2 << 20, 2 << 20)).expect("a cost");
    assert_eq!((warm.parts.cold, again.parts.cold), (Nanos::ZERO, Nanos::ZERO));
    assert!((cold.parts.copy / warm.parts.copy - 1.0).abs() < 1e-6, "{cold:?} {warm:?}");
    let expected = (2 << 20) as f64 * profile.memory.cold_byte();
    assert!((cold.parts.cold.as_seconds() / expected - 1.0).abs() < 1e-6, "{cold:?}");
    assert!((cold.cost / cold.parts.total() - 1.0).abs() < 1e-9);
}

#[test]
fn cold_memory_begins_where_the_warm_is_used_up() {
    let mut profile = profile();
    profile.memory.cold = Some(Measured::assumed(profile.memory.fresh.value * 0.1));
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(4096), hard: Bytes::mib(8192) };
    // 100 MiB in blocks of a mebibyte, then 300 MiB that the host has.
    let mut free = vec![0; 11];
    (free[8], free[10]) = (100, 75);
    let zone = ZoneFacts { free: free.clone(), cold: Some(free), low: 0 };
    let facts = MemoryFacts { time: Time(0), order: 9, zones: vec![zone] };
    let mut model = Kernel::new(&profile);
    model.free_memory(&facts);
    let write_all = |model: &mut Kernel, begin: u64, calls: u64| {
        let (mut at, mut found) = (begin, Vec::new());
        for call in 0..calls {
            let prediction = model.step(&write(at, call << 20, 1 << 20)).expect("a cost");
            assert!((prediction.cost / prediction.parts.total() - 1.0).abs() < 1e-9);
            if let Some((low, high)) = prediction.interval {
                assert!(low <= prediction.cost && prediction.cost <= high, "{prediction:?}");
            }
            at = (Time(at) + prediction.cost).0;
            found.push(prediction.parts.cold > Nanos::ZERO);
        }
        (at, found)
    };
    let (at, found) = write_all(&mut model, 0, 500);
    let expected: Vec<bool> = (0..500).map(|call| (100..400).contains(&call)).collect();
    assert_eq!(found, expected, "what no zone has free is dropped from the cache, and warm");
    // What is freed is warm for two seconds.
    model.gone(write(at, 0, 0).file());
    assert!(!write_all(&mut model.clone(), at, 400).1.contains(&true));
    let later = write_all(&mut model, at + 60_000_000_000, 400).1;
    assert_eq!(later.iter().position(|cold| *cold), Some(100));
    // A call that takes seconds is told when it is over: a look during it says what it had taken by then.
    let (mut looked, mut other) = (Kernel::new(&profile), Kernel::new(&profile));
    looked.free_memory(&facts);
    other.free_memory(&facts);
    let emptied = |seconds: u64| {
        let mut facts = facts.clone();
        facts.time = Time(seconds * 1_000_000_000);
        (facts.zones[0].free[8], facts.zones[0].free[10]) = (0, 75 - 10 * seconds);
        facts
    };
    (1..=2).for_each(|seconds| looked.free_memory(&emptied(seconds)));
    let long = |model: &mut Kernel| model.step(&write(500_000_000, 0, 300 << 20)).expect("a cost").parts.cold;
    assert_eq!(long(&mut looked), long(&mut other));
    // A copy that looks ahead in larger pieces sees the same.
    let mut ahead = Kernel::new(&profile);
    ahead.free_memory(&facts);
    let plan = Plan {
        bytes: Bytes::mib(500),
        chunk: Bytes::mib(1),
        sync: false,
        fsync: false,
        after: Nanos::ZERO,
        device: None,
        others: Rate::MIN,
    };
    let cost = predict(Scene::new(&ahead, Time(0), 5), &plan).expect("a plan");
    let expected = (300 << 20) as f64 * profile.memory.cold_byte();
    assert!((cost.cold.as_seconds() / expected - 1.0).abs() < 0.02, "{cost:?}, not {expected}");
    assert!(cost.interval.is_some_and(|(low, high)| low < cost.cost && cost.cost < high), "{cost:?}");
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
            let (cost, slept) = (told.cost.as_seconds(), told.parts.throttle.as_seconds());
            let (down, up) = (cost - low.as_seconds(), high.as_seconds() - cost);
            if slept > 0.0 && told.parts.device == Nanos::ZERO {
                paused += 1;
                assert!(up > 0.003 && (down - slept.min(up)).abs() < 2e-3, "{told:?}");
                assert!(down < 0.9 * slept || !several, "{told:?}");
            } else if paused > 0 && model.in_flight() > Bytes::ZERO && told.parts.device == Nanos::ZERO {
                ran += u32::from(up > 0.003);
            }
            (at, offset) = (at + told.cost.get().ceil() as u64, offset + chunk);
        }
        assert!(paused > 20 && (several || ran > 20), "{paused} {ran}");
    }
}

/// Where it was not measured what the processor's cache saves, small writes may cost as much a byte as large
/// ones, or nothing.
#[test]
fn what_the_processors_cache_saves_is_uncertain() {
    let mut profile = profile();
    let cached = profile.memory.cached.value;
    profile.memory.cached = Measured { value: cached, p10: Some(cached), p90: Some(cached), samples: 9 };
    profile.calls.write = Measured { p10: Some(Nanos::ZERO), p90: Some(Nanos::ZERO), ..profile.calls.write };
    // Low, high and predicted, in parts of copying from memory.
    let rewritten = |profile: &HostProfile, bytes: u64| {
        let mut model = Kernel::new(profile);
        let _ = model.step(&write(0, 0, bytes));
        let told = model.step(&write(1_000_000_000, 0, bytes)).expect("a write has a cost");
        let (low, high) = told.interval.expect("an interval");
        let part =
            |time: Nanos| (time.as_seconds() - told.parts.call.as_seconds()) / bytes as f64 * cached.get();
        [low, high, told.cost].map(part)
    };
    let near = |found: [f64; 3], expected: [f64; 3]| {
        let all = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.1);
        assert!(all, "{found:?}, not {expected:?}");
    };
    near(rewritten(&profile, 64 << 10), [0.0, 1.0, 0.25]);
    near(rewritten(&profile, 16 << 20), [1.0, 1.0, 1.0]);
    // What is measured is at least true if the data are there.
    profile.memory.hot = Some(Measured::assumed(cached * 1.6));
    near(rewritten(&profile, 64 << 10), [0.625, 1.0, 0.625]);
    near(rewritten(&profile, 16 << 20), [1.0, 1.0, 1.0]);
    // Nothing makes it slower.
    profile.memory.hot = Some(Measured::assumed(cached * 0.5));
    near(rewritten(&profile, 64 << 10), [1.0, 1.0, 1.0]);
}

#[test]
fn each_new_folio_costs_extra_and_old_ones_do_not() {
    let mut profile = profile();
    let mut without = Kernel::new(&profile);
    profile.calls.folio = Some(Measured::assumed(Nanos::new(2000.0)));
    let mut with = Kernel::new(&profile);
    // A page, the same page again, five pages as four and one, and a mebibyte in one piece.
    for (at, (offset, bytes, folios)) in
        [(0, 4096, 1.0), (0, 4096, 0.0), (1 << 20, 5 * 4096, 2.0), (2 << 20, 1 << 20, 1.0)]
            .into_iter()
            .enumerate()
    {
        let event = write(at as u64 * 10_000_000, offset, bytes);
        let [plain, dear] = [&mut without, &mut with].map(|model| model.step(&event).expect("a cost").cost);
        let more = dear.get() - plain.get();
        assert!((more - folios * 2000.0).abs() < 1.0, "{offset} {bytes}: {more} ns more");
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

/// Most bytes in flight while 64 KiB out of every `stride` KiB are written, and when all were on the device,
/// in seconds.
fn flushed(stride: u64, seek: Nanos) -> (Bytes, f64) {
    let mut profile = profile();
    profile.device.seek = Measured::assumed(seek);
    profile.device.commit = Nanos::ZERO;
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(4), hard: Bytes::mib(64) };
    let mut model = Kernel::new(&profile);
    let (mut most, mut at) = (Bytes::ZERO, Time::default());
    let mut write = Event::new(Op::Pwrite);
    (write.kind, write.ino, write.requested, write.returned) = (FileKind::Regular, 1, 64 << 10, 64 << 10);
    for call in 0..256 {
        (write.start, write.offset) = (at.0, call * (stride << 10));
        at = at + model.step(&write).map_or(Nanos::ZERO, |prediction| prediction.cost);
        most = most.max(model.in_flight());
    }
    let mut sync = Event::new(Op::Sync);
    sync.start = at.0;
    at = at + model.step(&sync).map_or(Nanos::ZERO, |prediction| prediction.cost);
    (most, at.0 as f64 * 1e-9)
}

#[test]
fn scattered_pages_leave_fewer_in_flight_and_seeks_make_them_slow() {
    let (row, _) = flushed(64, Nanos::ZERO);
    let (scattered, fast) = flushed(1024, Nanos::ZERO);
    // All that is dirty when the flusher begins; or what the seven requests have that a queue of 8 MiB begins
    // to take.
    assert!(row >= Bytes::mib(4), "{row}");
    assert!(scattered <= Bytes::mib(1), "{scattered}");
    // Each of the 256 pieces comes after a seek.
    let (_, slow) = flushed(1024, Nanos::millis(4.0));
    assert!(slow - fast > 0.5, "{fast} s, with seeks {slow} s");
    assert!((flushed(64, Nanos::millis(4.0)).1 - flushed(64, Nanos::ZERO).1).abs() < 0.02);
}

/// What 2 MiB behind a file's first 20 and these again cost, copying alone, with such a factor for cached
/// pages.
fn while_flushing(cached: Option<f64>) -> [f64; 2] {
    let mut profile = profile();
    profile.memory.flush_factor = Measured::assumed(0.5);
    profile.memory.cached_flush_factor = cached.map(Measured::assumed);
    let mut model = Kernel::new(&profile);
    let mut start = 0;
    let mut write = |offset: u64, size: u64| {
        let operation = Operation {
            op: Op::Pwrite,
            file: 1,
            device: 0,
            task: 0,
            offset: 0,
            size: size << 10,
            think: 0,
            flags: 0,
            aux: 0,
        };
        let mut event = operation.event(start);
        event.offset = offset << 20;
        let prediction = model.step(&event).unwrap();
        start = (Time(start) + prediction.cost).0;
        prediction.parts.copy.get()
    };
    // Over the background limit of 16 MiB.
    write(0, 20);
    [write(20, 2), write(20, 2)]
}

#[test]
fn pages_that_are_cached_have_a_factor_of_their_own_while_the_flusher_works() {
    let [fresh, cached] = while_flushing(None);
    assert_eq!([fresh, cached], while_flushing(Some(0.5)));
    let [same, less] = while_flushing(Some(1.0));
    assert_eq!(fresh, same);
    assert!((cached / less - 2.0).abs() < 1e-9, "{cached} {less}");
}

/// Calls again and again, with a sample after every third.
fn records(operations: &[(Operation, u64)], count: usize) -> Vec<Record> {
    let mut now = 1_000_000_000;
    let mut records = Vec::new();
    for (index, (operation, micros)) in operations.iter().cycle().enumerate() {
        if records.len() >= count {
            return records;
        }
        let mut event = operation.event(now + operation.think * 10_000);
        event.duration = micros * 1000;
        now = event.end();
        records.push(Record::Event(event));
        if index % 3 == 0 {
            let (background, hard) = (10_000, 20_000 + (index as u64 % 5) * 1000);
            let written = index as u64 * 50;
            let (dirty, writeback) = (index as u64 * 77 % 18_000, index as u64 % 2);
            let sample = Sample {
                time: Time(now),
                dirty,
                writeback,
                background,
                hard,
                written,
                dirtied: written + dirty,
            };
            records.push(Record::Sample(sample));
        }
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Taken apart, the models say what they say one after another, of every call, and so does the report.
    #[test]
    fn taken_apart_nothing_differs(
        operations in observed(),
        mode in prop::sample::select(vec![Mode::OpenLoop, Mode::Lockstep, Mode::Assimilated]),
        count in 1..600usize,
        batch in 1..300usize,
    ) {
        let profile = HostProfile::uncalibrated();
        let besides = vec![("cawl".to_owned(), Mode::Lockstep)];
        let options = AnalysisOptions { mode, besides, ..AnalysisOptions::default() };
        let records = records(&operations, count);

        let mut plain = Analysis::with(&profile, &options).expect("known models");
        let expected: Vec<Vec<Option<Prediction>>> =
            records.iter().map(|record| plain.take(record).to_vec()).collect();

        let mut whole = Analysis::with(&profile, &options).expect("known models");
        let mut said = Vec::new();
        let (mut models, mut findings) = whole.split().expect("nothing is learned");
        // The models are ahead of the findings by all there is.
        let mut answers: Vec<_> =
            records.chunks(batch).map(|batch| models.iter_mut().map(|m| m.answer(batch)).collect()).collect();
        for (batch, answers) in records.chunks(batch).zip(answers.drain(..)) {
            let all = findings.take(batch, answers, |record, predictions| {
                assert_eq!(record, &records[said.len()]);
                said.push(predictions.to_vec());
                true
            });
            prop_assert!(all);
        }
        prop_assert_eq!(said, expected);
        let report = |analysis: &Analysis| serde_json::to_string(&analysis.report()).expect("JSON");
        prop_assert_eq!(report(&whole), report(&plain));
        let live = |analysis: &Analysis| (analysis.recent_error(), analysis.latest_apart(), analysis.untraced_rate());
        prop_assert_eq!(live(&whole), live(&plain));
        // It goes on like that.
        let next = Record::Event(operations[0].0.event(u64::MAX / 4));
        prop_assert_eq!(whole.take(&next), plain.take(&next));
    }
}

/// A copy of `bytes` to the begin of a file of its own.
fn copy(op: Op, start: u64, ino: u64, bytes: u64) -> Event {
    Event { op, ino, pid: 1, ..write(start, 0, bytes) }
}

/// A machine with room for what is copied here.
fn roomy() -> HostProfile {
    let mut profile = profile();
    profile.kernel.limits = DirtyLimits { background: Bytes::mib(8192), hard: Bytes::mib(16_384) };
    profile
}

#[test]
fn a_copy_inside_the_kernel_is_a_row_of_writes_of_64_kib() {
    const ALL: u64 = 64 << 20;
    const PIECE: u64 = 64 << 10;
    let mut profile = roomy();
    // Nothing comes from the processor's cache.
    profile.memory.hot_size = Bytes(0);
    let mut model = Kernel::new(&profile);
    let mut writes = 0.0;
    for piece in 0..ALL / PIECE {
        let event = Event { ino: 9, ..write(1 + piece, piece * PIECE, PIECE) };
        writes += model.step(&event).expect("a cost").cost.as_seconds();
    }
    let calls = profile.calls.write.value.as_seconds() * (ALL / PIECE) as f64;
    for (op, ino, more) in [(Op::CopyRange, 2, calls / 2.0), (Op::Sendfile, 3, calls / 2.0)] {
        let copied = model.step(&copy(op, 1_000_000_000 * ino, ino, ALL)).expect("a cost");
        let expected = writes + more;
        assert!((copied.cost.as_seconds() / expected - 1.0).abs() < 1e-6, "{op:?} {copied:?} {expected}");
        assert_eq!(copied.work.copied[0], ALL as f64);
    }
    // Out of a pipe: the latter half of it.
    let spliced = model.step(&copy(Op::Splice, 10_000_000_000, 4, PIECE)).expect("a cost");
    let expected = writes * PIECE as f64 / ALL as f64;
    assert!((spliced.cost.as_seconds() / expected - 1.0).abs() < 1e-6, "{spliced:?} {expected}");
    assert_eq!(model.conservation().dirtied, Bytes(3 * ALL + PIECE));
    // What failed, and the end of the source, are calls.
    for returned in [-1, 0] {
        let event = Event { returned, ..copy(Op::CopyRange, 11_000_000_000, 5, ALL) };
        assert_eq!(model.step(&event).expect("a cost").cost, profile.calls.write.value);
    }
}

#[test]
fn a_copy_is_held_back_as_a_write_is() {
    let (mut copies, mut writes) = (Kernel::new(&profile()), Kernel::new(&profile()));
    let copied = copies.step(&copy(Op::CopyRange, 1, 1, 1 << 30)).expect("a cost");
    let written = writes.step(&write(1, 0, 1 << 30)).expect("a cost");
    let apart = copied.parts.throttle.as_seconds() / written.parts.throttle.as_seconds() - 1.0;
    assert!(apart.abs() < 0.05, "{copied:?} {written:?}");
}

#[test]
fn a_source_that_had_to_be_read_is_read_the_next_time() {
    const BYTES: u64 = 256 << 20;
    let mut profile = roomy();
    profile.device.read.value = Rate::mb_per_second(500.0);
    profile.memory.fresh.p10 = Some(profile.memory.fresh.value);
    profile.memory.fresh.p90 = Some(profile.memory.fresh.value);
    let mut model = Kernel::new(&profile);
    let reading = BYTES as f64 / profile.device.read.value.get();
    let (mut start, mut seen) = (1, Vec::new());
    // Cached, read twice, cached again, and another program whose source is cached.
    for (ino, pid, took) in
        [(1, 1, 0.1), (2, 1, reading), (3, 1, reading), (4, 1, 0.1), (5, 1, 0.1), (6, 2, 0.1)]
    {
        let event = Event { pid, ..copy(Op::CopyRange, start, ino, BYTES) };
        let end = start + (took * 1e9) as u64;
        let prediction = model.follow(&event, Time(end)).expect("a cost");
        let (low, high) = prediction.interval.expect("an interval");
        // Whichever is expected, the other is possible.
        assert!(high.as_seconds() >= 0.99 * reading && low.as_seconds() < 0.6 * reading, "{prediction:?}");
        seen.push(prediction.parts.device.as_seconds() > 0.0);
        start = end + 1;
    }
    assert_eq!(seen, [false, false, true, true, false, false]);
}

#[test]
fn blocks_that_are_shared_are_not_copied() {
    const BYTES: u64 = 256 << 20;
    let profile = roomy();
    let mut model = Kernel::new(&profile);
    let clone = Event { flags: flag::ESTIMATED, ..copy(Op::CopyRange, 1, 1, BYTES) };
    assert_eq!(model.step(&clone).expect("a cost").cost, profile.calls.write.value);
    assert_eq!(model.conservation().dirtied, Bytes::ZERO);
    // A filesystem that does so unasked is known by how long it takes.
    let mut follow = |start: u64, ino, took: u64| {
        let event = copy(Op::CopyRange, start, ino, BYTES);
        model.follow(&event, Time(start + took)).expect("a cost").cost
    };
    assert!(follow(1_000_000_000, 2, 50_000).as_seconds() > 0.01);
    assert_eq!(follow(2_000_000_000, 3, 50_000), profile.calls.write.value);
    assert_eq!(follow(3_000_000_000, 4, 300_000_000), profile.calls.write.value);
    assert!(follow(4_000_000_000, 5, 300_000_000).as_seconds() > 0.01);
    assert_eq!(model.conservation().dirtied, Bytes(2 * BYTES));
}

#[test]
fn stores_dirty_pages_at_their_faults() {
    let profile = roomy();
    let mut model = Kernel::new(&profile);
    let event = Event { op: Op::MmapWrite, ..write(1, 0, 8 << 20) };
    let stores = model.step(&event).expect("a cost");
    let faults = profile.calls.write.value.as_seconds() * 2048.0;
    assert!(stores.cost.as_seconds() >= faults && stores.parts.call.as_seconds() == faults, "{stores:?}");
    assert_eq!((model.conservation().dirtied, stores.work.copied), (Bytes::mib(8), [0.0; 2]));
    // No time passes for what was done before.
    assert_eq!(model.state().time, Time(1));
    // What is dirty faults no more.
    assert_eq!(model.step(&Event { start: 2, ..event }).expect("a cost").cost, Nanos::ZERO);
    // And is written by msync.
    let msync = Event { op: Op::Msync, aux: 4, ..write(3, 0, 0) };
    let waited = model.step(&msync).expect("a cost").parts.device.as_seconds();
    assert!(waited > (8 << 20) as f64 / profile.device.write.value.get());
}
