//! `explain`: where the time of a trace's calls went.

use std::collections::{HashMap, VecDeque};
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::advise::Advised;
use cawl_core::{
    Analysis, Cause, Explain, Images, Record, Report, Selection, Shown, Stack, Time, is_durationless,
    moved_bytes,
};
use cawl_wire::{Event, FileId, UNKNOWN_OFFSET};
use serde::Serialize;

use super::apart;
use super::on_paper::advised;
use super::saved::{SavedTrace, Unspecified};
use super::select::Known;
use super::side_by_side::take_all;
use crate::args::{By, ExplainArgs};
use crate::render::one_call::{CallRow, OneCall, Part};
use crate::{exit, outputs, render};

/// Calls of the same thread that are shown before one and after it.
const BESIDE: usize = 3;

pub fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    apart([&args.trace], args.report.as_ref())?;
    args.report.iter().try_for_each(|file| outputs::check(file, &outputs::report(file)))?;
    let mut trace = SavedTrace::open(&args.trace, &args.model)?;
    trace.check_stacks(args.by == Some(By::Stack))?;
    let mut options = trace.options(&args.model, &args.mode, Unspecified::as_run())?;
    options.as_calibrated = true;
    options.selection = args.select.selection()?;
    // The calls beside the worst ones.
    options.timeline = args.json || args.report.is_some();
    options.classes.clone_from(&args.classes.bounds);
    let mut analysis = Analysis::with(&trace.profile, &options)?;
    let mut known = Known::of(options.selection.as_ref());
    let mut wanted = args.call.map(|number| Wanted { number, ..Wanted::default() });
    take_all(
        &mut analysis,
        |records, most| trace.read(records, most),
        |record, shown| {
            known.take(record);
            wanted.as_mut().is_none_or(|wanted| wanted.take(record, shown))
        },
    )?;
    if let Some(wanted) = wanted {
        // Of a trace that was not read to its end it is not known.
        if wanted.is_open() {
            trace.reader.damage().describe().into_iter().for_each(render::tell);
        }
        let call = wanted.found()?;
        return render::answer(args.json, &call, |terminal| Ok(call.text(terminal)));
    }
    let (mut report, damage) = trace.report(&mut analysis);
    // Advice is of all calls.
    report.advise(report.selection.is_none().then(|| advised(&args.trace)).flatten());
    let explain = report.explain.as_ref().context("the report has no causes")?;
    known.check(&report, &args.trace)?;
    if let Some(path) = &args.report {
        render::file::write(&report, path, |terminal| {
            render::explain::explained(&report, args.long, terminal)
        })?;
        return Ok(exit::of_whole(damage.is_none()));
    }
    if let Some(By::Stack) = args.by {
        let stacks = explain.stacks.as_ref().context("the report has no stacks")?;
        damage.iter().for_each(render::tell);
        let printed =
            render::answer(args.json, stacks, |terminal| Ok(render::stacks::by_stack(explain, terminal)))?;
        return Ok(exit::printed(printed, damage.is_none()));
    }
    let Report { selection, advice, .. } = &report;
    let (selection, advice, damage_told) = (selection.as_ref(), advice.as_ref(), damage.as_deref());
    let selected_calls = selection.map(|_| report.calls);
    let answer = Answer { explain, selection, selected_calls, advice, damage: damage_told };
    let printed = render::answer(args.json, &answer, |terminal| {
        Ok(render::explain::explained(&report, args.long, terminal))
    })?;
    Ok(exit::printed(printed, damage.is_none()))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    explain: &'a Explain,
    /// Which calls it is about; all, if None.
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<&'a Selection>,
    /// How many these are, also those without a cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    selected_calls: Option<u64>,
    /// The changes that are worth it; only of all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'a Advised>,
    /// What of the trace could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<&'a str>,
}

/// Looks for the call with a number.
#[derive(Default)]
struct Wanted {
    number: u64,
    calls: u64,
    first: u64,
    paths: HashMap<FileId, String>,
    stacks: HashMap<u32, Stack>,
    /// The number of the call's stack.
    stack: u32,
    programs: Images<String>,
    /// The latest calls of each thread, until the call is found.
    latest: HashMap<(u32, u32), VecDeque<CallRow>>,
    found: Option<OneCall>,
}

impl Wanted {
    /// Takes the next record; false when nothing more is needed.
    fn take(&mut self, record: &Record, shown: Shown<'_>) -> bool {
        match record {
            Record::File(file) => drop(self.paths.insert(file.file(), file.path.clone())),
            Record::Session(session) => self.programs.begin(session, session.program.clone()),
            Record::Stack(stack) => drop(self.stacks.insert(stack.id, stack.clone())),
            Record::Event(event) => return self.call(event, shown),
            _ => {}
        }
        true
    }

    fn call(&mut self, event: &Event, shown: Shown<'_>) -> bool {
        self.calls = shown.number;
        if self.calls == 1 {
            self.first = event.start;
        }
        let row = self.row(event, shown);
        let thread = (event.pid, event.tid);
        if let Some(found) = &mut self.found {
            if (found.pid, found.tid) == thread && found.after.len() < BESIDE {
                found.after.push(row);
            }
            return self.is_open();
        }
        if self.calls == self.number {
            let before = self.latest.remove(&thread).unwrap_or_default().into();
            let predicted = shown.predictions.first().copied().flatten();
            // A predicted cause may have had no part of the call, as a pause that did not come.
            let part = |cause: Cause| Part {
                name: cause.name(),
                predicted_s: predicted.map_or(0.0, |told| told.parts[cause].as_seconds()),
                observed_s: shown.causes.map_or(0, |times| times[cause]) as f64 / 1e9,
            };
            let parts = Cause::ALL.into_iter().map(part);
            self.stack = event.stack;
            self.found = Some(OneCall {
                schema: cawl_core::EXPLAIN_SCHEMA,
                pid: event.pid,
                tid: event.tid,
                program: self.programs.at(event.pid, Time(event.start)).cloned(),
                path: self.paths.get(&event.file()).cloned(),
                state: predicted.map(|told| told.state.name()),
                dirty: predicted.map(|told| told.dirty.0),
                interval_s: predicted
                    .and_then(|told| told.interval)
                    .map(|(low, high)| [low.as_seconds(), high.as_seconds()]),
                causes: parts.filter(|part| part.predicted_s.max(part.observed_s) > 0.0).collect(),
                call: row,
                before,
                after: Vec::new(),
                stack: Vec::new(),
            });
            return true;
        }
        let latest = self.latest.entry(thread).or_default();
        if latest.len() == BESIDE {
            latest.pop_front();
        }
        latest.push_back(row);
        true
    }

    /// There is more to look for.
    fn is_open(&self) -> bool {
        let is_unknown = self.stack != 0 && !self.stacks.contains_key(&self.stack);
        is_unknown || self.found.as_ref().is_none_or(|found| found.after.len() < BESIDE)
    }

    fn row(&self, event: &Event, shown: Shown<'_>) -> CallRow {
        let predicted = shown.predictions.first().copied().flatten();
        CallRow {
            number: shown.number,
            at_s: event.start.saturating_sub(self.first) as f64 / 1e9,
            op: event.op.name(),
            offset: (event.offset != UNKNOWN_OFFSET).then_some(event.offset),
            bytes: moved_bytes(event),
            observed_s: (!is_durationless(event)).then(|| event.duration as f64 / 1e9),
            predicted_s: predicted.map(|told| told.cost.as_seconds()),
            cause: shown.causes.map(|times| times.main().name()),
        }
    }

    fn found(self) -> anyhow::Result<OneCall> {
        let calls = render::counted(self.calls, "call");
        let mut found = self.found.with_context(|| {
            format!("there is no call {}: the trace has {calls}, counted from 1", self.number)
        })?;
        found.stack = self.stacks.get(&self.stack).map_or(Vec::new(), |stack| stack.frames.clone());
        Ok(found)
    }
}
