//! `rerun`: the calls of a trace for real, as they were or with changes.

use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;

use cawl_core::{Change, Class, Effect, Record, Steps, classify};
use cawl_measure::interrupt::{self, Interrupted};

use super::on_paper::facts;
use super::saved::SavedTrace;
use crate::args::{ModelArgs, RerunArgs};
use crate::render::rerun::{Answer, Prepared, Times};
use crate::rerun::{Builder, Folder, Order, how, play, unmakeable};
use crate::{exit, render};

/// Records between two looks for a signal.
const LOOK: u64 = 4096;

pub fn rerun(args: &RerunArgs) -> anyhow::Result<ExitCode> {
    interrupt::guard(|signal| run(args, &signal))
}

fn run(args: &RerunArgs, signal: &AtomicUsize) -> anyhow::Result<ExitCode> {
    let given = &args.changes.0;
    let open = || SavedTrace::open(&args.trace, &ModelArgs::default());
    let facts = facts(given, open)?;
    let changes: Vec<Change> = given
        .iter()
        .filter_map(|one| match &one.effect {
            Effect::Calls(change) => Some(change.clone()),
            _ => None,
        })
        .collect();
    let mut trace = open()?;
    let mut steps = Steps::new(&changes, &facts);
    let mut builder = Builder::new(cawl_host::facts().available);
    let mut recorded = Times::default();
    let mut result = Ok(());
    let mut step = |builder: &mut Builder, step: cawl_core::Step| {
        if result.is_ok() {
            result = builder.step(&step);
        }
        result.is_ok()
    };
    for (number, record) in (0u64..).zip(trace.records()) {
        let record = record?;
        if let Record::Event(event) = &record {
            recorded.span(event.start, event.end());
            if unmakeable(event).is_none() {
                let cost = classify(event) == Class::Cost;
                recorded.add(event.op, cost, event.returned.max(0) as u64, event.duration);
            }
        }
        builder.note(&record);
        let mut goes_on = true;
        steps.take(&record, &mut |one| goes_on &= step(&mut builder, one));
        builder.settle(&record);
        if !goes_on {
            break;
        }
        if number % LOOK == 0 {
            Interrupted::by(signal)?;
        }
    }
    steps.finish(&mut |one| {
        step(&mut builder, one);
    });
    result?;
    let is_whole = trace.is_whole();
    let (mut script, left_out) = builder.finish();
    anyhow::ensure!(script.calls() > 0, "the trace has no calls that a rerun can make");

    let mut folder = Folder::take(&args.dir, &script, args.prepare)?;
    let order =
        Order { compress: args.compress.unwrap_or(1.0), fills: !folder.is_prepared, plays: !args.prepare };
    let mut made = Times::default();
    let mut late = Vec::new();
    let elapsed = play(folder.path(), &mut script, order, signal, |step| {
        let Some(op) = step.call() else { return };
        // The player has put its times there.
        made.add(op, step.flags & how::COST != 0, step.size, step.offset);
        late.push(step.think.max(0) as f64);
    });
    Interrupted::by(signal)?;
    let elapsed = elapsed?;
    if args.prepare {
        folder.leave_prepared(&script)?;
        let bytes = script.fills.iter().map(|fill| fill.size).sum();
        let prepared = Prepared::new(&args.dir, script.fills.len() as u64, bytes);
        let printed = render::answer(args.json, &prepared, |_| Ok(prepared.text()))?;
        return Ok(exit::printed(printed, is_whole));
    }
    if args.keep {
        folder.keep();
    }
    let left_out = left_out.into_iter().map(|((op, why), calls)| (op, why.name(), calls));
    let changes = given.iter().map(|one| one.text.clone()).zip(steps.changed()).collect();
    let answer = Answer::new(&recorded, &made, elapsed, &late, left_out, changes, steps.safety());
    let printed = render::answer(args.json, &answer, |terminal| Ok(answer.text(terminal)))?;
    Ok(exit::printed(printed, is_whole))
}
