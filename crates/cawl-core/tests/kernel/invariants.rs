//! What holds whatever a program does: the clock, the account of bytes, finite predictions, copies of a
//! model.

use cawl_core::{
    Analysis, AnalysisOptions, Answers, Bytes, CostModel, HostProfile, Kernel, Mode, ModelPart, Nanos,
    Prediction, Rate, Record, Sample, Time,
};
use cawl_wire::{Event, Op, flag};
use proptest::prelude::*;

use super::{Operation, profile};

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
        1 => Just(Op::Advise),
        1 => Just(Op::Truncate),
        1 => Just(Op::Allocate),
        1 => Just(Op::Unlink),
        1 => Just(Op::Rename),
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
        1 => Just(flag::LAST | flag::GONE),
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

/// So many cases where PROPTEST_CASES is set, as CI does; else a quarter.
fn cases(all: u32) -> ProptestConfig {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { all } else { all / 4 };
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(200))]

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
    #![proptest_config(cases(40))]

    /// Taken apart, the models say what they say one after another, of every call, and so does the report.
    #[test]
    fn taken_apart_nothing_differs(
        operations in observed(),
        mode in prop::sample::select(vec![Mode::OpenLoop, Mode::Lockstep, Mode::Assimilated]),
        count in 1..600usize,
        batch in 1..300usize,
        learn in any::<bool>(),
    ) {
        let profile = HostProfile::uncalibrated();
        let for_questions = vec![("cawl".to_owned(), Mode::Lockstep)];
        let options = AnalysisOptions { mode, for_questions, learn: learn && mode != Mode::OpenLoop, ..AnalysisOptions::default() };
        let records = records(&operations, count);

        let mut plain = Analysis::with(&profile, &options).expect("known models");
        let expected: Vec<Vec<Option<Prediction>>> =
            records.iter().map(|record| plain.take(record).predictions.to_vec()).collect();

        let mut whole = Analysis::with(&profile, &options).expect("known models");
        let mut said = Vec::new();
        let (mut models, mut findings) = whole.split();
        // The models are ahead of the findings by all there is.
        let answer = |model: &mut ModelPart<'_>, batch: &[Record]| {
            let mut answers = Answers::default();
            model.answer(batch, &mut answers);
            answers
        };
        let answers: Vec<Vec<_>> = records
            .chunks(batch)
            .map(|batch| models.iter_mut().map(|model| answer(model, batch)).collect())
            .collect();
        for (batch, answers) in records.chunks(batch).zip(&answers) {
            let all = findings.take(batch, answers, &mut |record, shown| {
                assert_eq!(record, &records[said.len()]);
                said.push(shown.predictions.to_vec());
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
