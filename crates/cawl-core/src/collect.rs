//! Counts, while records go by, everything a report tells: bounded work and memory per call.

mod sessions;
mod totals;
mod worst;

use std::collections::BTreeMap;
use std::iter;

use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{Event, FileId, FileKind, UNKNOWN_OFFSET};

use crate::accuracy::AccuracySummary;
use crate::by_name::seconds_by_cause;
use crate::call::{Class, coalesced_bytes, is_copied_up, is_no_call, kernel_bytes, moved_bytes};
use crate::cause::{Cause, CauseTimes, Causes};
use crate::classes::Classes;
use crate::density::{Densities, byte_modes};
use crate::explain::{CauseSums, Explain, Explaining, Ideal};
use crate::file_table::FileTable;
use crate::filesystem::FilesystemKind;
use crate::mode::Mode;
use crate::model::Prediction;
use crate::mounts::Filesystems;
use crate::neighbours::{Near, Neighbours};
use crate::patterns::Patterns;
use crate::profile::HostProfile;
use crate::record::{HostFacts, LOST_REQUESTS, Outcome, Record, USES_IO_URING};
use crate::release::{self, Release};
use crate::report::{CopiedUp, FileOp, FileReport, ProfileUsed, REPORT_SCHEMA, Report, Tally};
use crate::selection::{NAMES, Selection};
use crate::stacks::StackSums;
use crate::tally::CallSums;
use crate::timeline::Timeline;
use crate::uncertain::Doubts;
use crate::units::{Bytes, Nanos, Time};
use crate::worst_call::{NearCall, WorstCall};
use sessions::{Sessions, ratio};
use totals::{FileOpTotals, FileTotals, ModelTotals, observed, op_totals, states};
use worst::{Ranked, Worst};

/// How many files are told apart; calls on further ones are still counted in every total.
const FILES: usize = 100_000;

/// How many notes are kept; further ones are counted.
const NOTES: usize = 100;

/// The totals of one analysis.
#[derive(Default)]
pub struct Collector {
    profile: ProfileUsed,
    created: Option<u64>,
    /// The first program, as it was started, with its arguments.
    command: Option<String>,
    models: Vec<ModelTotals>,
    sessions: Sessions,
    files: FileTable<Vec<FileOpTotals>, FILES>,
    patterns: Patterns,
    pub(crate) stacks: StackSums,
    densities: Densities,
    pub(crate) classes: Classes,
    files_omitted: Tally,
    /// Calls that were taken, and those that the report is about.
    pub(crate) taken: u64,
    calls: u64,
    bytes: u64,
    elsewhere: Tally,
    unmodelled: BTreeMap<String, Tally>,
    /// Opens that made an overlay copy the file, and what they took, in ns.
    copied_up: Tally,
    copied_up_ns: u64,
    /// The time is only of calls on files that are not told apart; that of the others is in their rows.
    causes: CauseSums,
    ideal: Ideal,
    /// The calls that the first model was most wrong about, and those that lost most time.
    worst: Worst,
    lost: Worst,
    /// When the first call of all began; when the first one that the report is about, and when the last of
    /// these ended.
    began: Time,
    first: Option<Time>,
    last: Time,
    host: Option<HostFacts>,
    outcome: Option<Outcome>,
    doubts: Doubts,
    notes: Vec<String>,
    notes_omitted: u64,
    /// The one whose laws the profile has.
    release: Option<Release>,
    /// A process was noted to use io_uring.
    io_uring: bool,
    lost_requests: bool,
    pub(crate) timeline: Option<Timeline>,
    neighbours: Option<Neighbours>,
    pub(crate) explaining: Explaining,
    /// Which calls the report is about; all, if None.
    pub(crate) selection: Option<Selection>,
}

impl Collector {
    /// Empty totals for models of these names, with the run over time if that is wanted.
    pub fn new(profile: &HostProfile, models: Vec<&'static str>, timeline: bool) -> Collector {
        Collector {
            profile: ProfileUsed {
                name: profile.name.clone(),
                origin: profile.origin,
                age_s: None,
                measured: profile.measured,
                unmeasured: profile.unmeasured().into_iter().map(str::to_owned).collect(),
                learned_runs: profile.learned_runs(),
                merged: profile.merged,
            },
            created: profile.created,
            release: profile.kernel.release,
            ideal: Ideal::new(profile),
            models: models.into_iter().map(ModelTotals::new).collect(),
            began: Time(u64::MAX),
            timeline: timeline.then(Timeline::default),
            neighbours: timeline.then(Neighbours::default),
            ..Collector::default()
        }
    }

    /// Takes any record but a call or a sample.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::Host(host) => {
                self.profile.age_s = self.created.map(|created| host.wall_clock.saturating_sub(created));
                self.host = Some((**host).clone());
            }
            Record::Session(session) => {
                if self.command.is_none() && !session.program.is_empty() {
                    let words = iter::once(&session.program).chain(&session.arguments);
                    self.command = Some(words.map(String::as_str).collect::<Vec<_>>().join(" "));
                }
                self.sessions.begin(session);
            }
            // A process that renames a file need not write to it.
            Record::File(file) if file.renamed && self.files.get(file.file()).is_none() => {}
            Record::File(file) => {
                if let Some(index) = self.files.index(file.file()) {
                    self.files.rows[index].name.set_path(file);
                    self.patterns.set_facts(index, file);
                }
            }
            Record::End(end) => self.sessions.end(end),
            Record::RunDelay(delay) => self.sessions.delayed(delay),
            Record::Outcome(outcome) => self.outcome = Some(*outcome),
            Record::Note(note) => {
                self.io_uring |= note.ends_with(USES_IO_URING);
                self.lost_requests |= note.ends_with(LOST_REQUESTS);
                match self.notes.len() {
                    // Of many processes the same.
                    _ if self.notes.contains(note) => {}
                    NOTES.. => self.notes_omitted += 1,
                    _ => self.notes.push(note.clone()),
                }
            }
            Record::Doubt(doubt) => self.doubts.add(doubt),
            Record::Event(_)
            | Record::Sample(_)
            | Record::Device(_)
            | Record::Memory(_)
            | Record::Profile(_) => {}
            Record::Live(options) => self.command = options.command.clone().or(self.command.take()),
            Record::Stack(stack) => self.stacks.known(stack),
        }
    }

    /// Takes a call with each model's prediction and, if it has a cost, its time by cause.
    pub fn event(
        &mut self,
        event: &Event,
        class: Class,
        predictions: &[Option<Prediction>],
        causes: Option<Causes>,
    ) {
        if is_no_call(event) {
            return;
        }
        self.taken += 1;
        self.calls += 1;
        self.span(event.start, event.end());
        let bytes = kernel_bytes(event);
        if event.kind == FileKind::Regular {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        self.sessions.call(event, true);
        let predicted = predictions.first().and_then(Option::as_ref).map(|first| first.cost);
        if self.neighbours.as_mut().is_some_and(|neighbours| neighbours.take(event, predicted)) {
            let near = Near { event: *event, predicted };
            self.worst.is_after(&near);
            self.lost.is_after(&near);
        }
        match class {
            Class::Cost => {
                self.cost(event, moved_bytes(event), predictions, causes);
                self.file_call(event, bytes, predictions, causes);
                if event.takes_last_link() {
                    self.files.unlink(event.file());
                }
            }
            Class::Untimed => self.file_call(event, bytes, predictions, None),
            Class::Elsewhere => match causes {
                Some(causes) => {
                    self.classes.add(bytes, event.duration, causes.times);
                    let calls = Tally { calls: 1, bytes };
                    self.discarded(event, (event.start, event.end()), calls, event.duration);
                }
                None => self.elsewhere.add(bytes),
            },
            Class::Unmodelled => {
                self.unmodelled.entry(event.op.name().to_owned()).or_default().add(bytes);
                self.file_call(event, bytes, &[], None);
            }
            // What a stream held at exit has no observable cost, but its bytes are in the file.
            Class::Effect if bytes > 0 => self.file_call(event, bytes, &[], None),
            Class::Effect if event.takes_last_link() => self.files.unlink(event.file()),
            Class::Effect => {
                if let Some(index) = self.files.known(event.file()) {
                    self.patterns.effect(index, event);
                }
            }
        }
    }

    /// Takes a call that the report is not about: its bytes were seen all the same.
    pub fn unselected(&mut self, event: &Event) {
        if is_no_call(event) {
            return;
        }
        self.taken += 1;
        self.began = self.began.min(Time(event.start));
        self.sessions.call(event, false);
        if event.kind == FileKind::Regular
            && let Some(row) = self.files.index(event.file())
        {
            self.patterns.unselected(row, event, kernel_bytes(event));
        }
        // A file that is made again goes on in its row, whichever of its calls are selected.
        if event.takes_last_link() {
            self.files.unlink(event.file());
        }
    }

    /// Takes coalesced calls: what [`Collector::event`] would make of each of them; `discarded` if they wrote
    /// to /dev/null.
    pub fn coalesced(&mut self, calls: &CoalescedCalls, discarded: bool) {
        self.taken += calls.calls;
        self.calls += calls.calls;
        self.span(calls.first, calls.end);
        let tally = Tally { calls: calls.calls, bytes: coalesced_bytes(calls) };
        // They are of one session.
        self.sessions.calls(&calls.like, Time(calls.first), tally, calls.duration, true);
        if discarded {
            self.classes.added_up(tally.calls);
            return self.discarded(&calls.like, (calls.first, calls.end), tally, calls.duration);
        }
        self.elsewhere.add_all(tally);
    }

    /// Calls to /dev/null like this one, in this span of time, took `ns`.
    fn discarded(&mut self, like: &Event, span: (u64, u64), calls: Tally, ns: u64) {
        self.causes.count(Cause::Discard, calls.calls, calls.bytes);
        if let Some(timeline) = &mut self.timeline {
            timeline.add(span, calls, &CauseTimes::from([(Cause::Discard, ns)]));
        }
        let Some(index) = self.file_row(like.file()) else {
            self.causes.time.add_calls(Cause::Discard, ns);
            return self.files_omitted.add_all(calls);
        };
        let totals = op_totals(&mut self.files.rows[index].counts, like.op, 0);
        totals.sums.count.add_all(calls);
        totals.sums.observed += Nanos::new(ns as f64);
        totals.sums.time.add_calls(Cause::Discard, ns);
    }

    /// From the first call to the last one; of what was no program's run, as where it was attached to, from
    /// the begin of its processes, or when they were met, to their end.
    fn elapsed(&self) -> Nanos {
        let calls = self.first.map(|first| (first, self.last));
        let host = self.host.as_ref().filter(|_| self.outcome.is_none() && self.selection.is_none());
        // A program may say that it began at any time.
        let met = host.zip(self.sessions.span).map(|(host, (from, to))| (from.max(host.started), to));
        let whole = calls.into_iter().chain(met).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        whole.map_or(Nanos::ZERO, |(from, to)| to.since(from))
    }

    /// Something went on from `start` to `end`.
    fn span(&mut self, start: u64, end: u64) {
        self.began = self.began.min(Time(start));
        let first = self.first.get_or_insert(Time(start));
        *first = (*first).min(Time(start));
        self.last = self.last.max(Time(end));
    }

    /// A call whose cost is compared.
    fn cost(
        &mut self,
        event: &Event,
        bytes: u64,
        predictions: &[Option<Prediction>],
        causes: Option<Causes>,
    ) {
        if is_copied_up(event) {
            self.copied_up.add(event.requested);
            self.copied_up_ns = self.copied_up_ns.saturating_add(event.duration);
        }
        for (totals, prediction) in self.models.iter_mut().zip(predictions) {
            if let Some(prediction) = prediction {
                totals.add(event, bytes, prediction);
            }
        }
        let Some(causes) = causes else { return };
        self.stacks.add(event, bytes, causes);
        let Causes { times: causes, own, main } = causes;
        let first = predictions.first().and_then(Option::as_ref);
        self.causes.count(main, 1, bytes);
        if self.explaining == Explaining::All {
            self.densities.add(event.op, bytes, event.duration, first.map(|first| first.cost), main);
        }
        self.classes.add(bytes, event.duration, causes);
        if let Some(first) = first {
            let (observed, call) = (event.duration as f64, (event, first, causes));
            let off = (observed - first.cost.get()).abs();
            if self.worst.has_room(off) {
                self.worst.rank(off, self.taken, call, self.neighbours.as_mut());
            }
            // No call loses more than it took, and few take as long as the worst lost.
            if self.lost.has_room(observed) {
                let undisturbed = own.iter().map(|(cause, time)| time.get().min(causes[cause] as f64));
                let lost = observed - undisturbed.sum::<f64>();
                if self.lost.has_room(lost) {
                    self.lost.rank(lost, self.taken, call, self.neighbours.as_mut());
                }
            }
            if let Some(timeline) = &mut self.timeline {
                timeline.call(event, bytes, first, causes);
            }
        }
    }

    /// A call that wrote to a file, or that a model has an opinion on.
    fn file_call(
        &mut self,
        event: &Event,
        bytes: u64,
        predictions: &[Option<Prediction>],
        causes: Option<Causes>,
    ) {
        let Some(index) = self.file_row(event.file()) else {
            causes.into_iter().for_each(|causes| self.causes.time.add(causes));
            return self.files_omitted.add(bytes);
        };
        if self.explaining == Explaining::All {
            self.patterns.call(index, event, bytes, predictions.first().and_then(Option::as_ref));
        }
        let totals = op_totals(&mut self.files.rows[index].counts, event.op, predictions.len());
        let (bytes, observed) = (moved_bytes(event).max(bytes), Nanos::new(event.duration as f64));
        let first = predictions.first().and_then(Option::as_ref);
        totals.sums.add(bytes, observed, first.map_or(Nanos::ZERO, |first| first.cost));
        causes.into_iter().for_each(|causes| totals.sums.time.add(causes));
        for (sum, prediction) in totals.further.iter_mut().zip(predictions.iter().skip(1)) {
            *sum += prediction.map_or(Nanos::ZERO, |prediction| prediction.cost);
        }
        if let Some(first) = first {
            totals.states[first.state as usize] += 1;
        }
    }

    /// The row of a file that a call is counted under; None if there are too many.
    #[inline]
    fn file_row(&mut self, file: FileId) -> Option<usize> {
        let index = self.files.index(file)?;
        Some(if self.files.rows[index].counts.is_empty() { self.first_call(index) } else { index })
    }

    /// The row that a file goes on in which had no calls in this one.
    #[cold]
    fn first_call(&mut self, index: usize) -> usize {
        let before = self.files.succeed(index);
        self.patterns.succeed(index, before);
        before
    }

    /// Path of a file, or its identity if no record told the path; and its first path, if it was renamed.
    fn path(&self, file: FileId) -> (String, Option<String>) {
        match self.files.get(file).map(|totals| &totals.name) {
            Some(name) if !name.path().is_empty() => {
                (name.path().to_owned(), name.first_path().map(str::to_owned))
            }
            // Of folders and symbolic links, and of what is only looked at, no more is told.
            _ if file.ino == 0 => (NAMES.to_owned(), None),
            _ => (format!("dev {} inode {}", file.dev, file.ino), None),
        }
    }

    /// What was found by models in this mode, which learn or not; with the accuracy of each, and if asked
    /// for, of each as calibrated.
    pub fn report(
        &self,
        mode: Mode,
        learn: bool,
        accuracy: &[AccuracySummary],
        calibrated: &[AccuracySummary],
    ) -> Report {
        let sessions = self.sessions.reports();
        let mut all = self.sessions.folded;
        sessions.iter().for_each(|session| all.add(session));
        // What the program and its children wrote in all tells of children that were not traced.
        let tree = self.outcome.and_then(|outcome| outcome.wchar);
        let traced = all.counted_bytes.saturating_add(all.uncounted_bytes);
        // Of a child that the program did not wait for, that one's own parent may know.
        let untraced = tree.map_or(0, |tree| tree.saturating_sub(traced)).max(self.sessions.untraced());
        // The program's own count has those of the processes it waited for, as of images without a /proc.
        let unread = if tree.is_some() { all.uncounted_bytes } else { 0 };
        let seen = all.seen_bytes.saturating_add(unread);
        let uncounted = if tree.is_some() { 0 } else { self.sessions.uncounted() };
        let uncertain = self.doubts.report(|file| self.path(file).0);
        let mut notes: Vec<String> =
            uncertain.iter().map(|uncertain| uncertain.text(all.dropped > 0)).collect();
        if self.calls > 0 {
            let traced = self.host.as_ref().and_then(|host| host.kernel.parse().ok());
            notes.extend(release::remarks(self.release, traced));
        }
        notes.extend_from_slice(&self.notes);
        if self.notes_omitted > 0 {
            notes.push(format!("and {} more notes", self.notes_omitted));
        }
        let (mut processes, variable, ranks) = self.sessions.processes(self.last);
        if self.selection.is_some() {
            processes.retain(|process| process.calls > 0);
        }
        let models = self.models.iter().zip(accuracy).enumerate();
        let models = models.map(|(at, (totals, summary))| totals.report(*summary, calibrated.get(at)));
        let files = self.files.rows.iter().enumerate().filter(|(_, totals)| !totals.counts.is_empty());
        let mut files: Vec<(usize, &FileTotals)> = files.collect();
        files.sort_by_key(|(_, totals)| (std::cmp::Reverse(observed(totals).get() as u64), totals.identity));
        Report {
            schema: REPORT_SCHEMA,
            mode: mode.name().to_owned(),
            learn,
            calls: self.calls,
            bytes: self.bytes,
            drops: all.dropped,
            unseen: all.unseen,
            uncertain,
            coverage: ratio(seen, all.counted_bytes.saturating_add(untraced).saturating_add(unread))
                .filter(|_| !self.io_uring && !self.lost_requests && uncounted == 0),
            io_uring: self.io_uring,
            uncounted_processes: uncounted,
            untraced_bytes: untraced,
            profile: self.profile.clone(),
            command: self.command.clone(),
            outcome: self.outcome,
            span_s: self.elapsed().as_seconds(),
            unmodelled: self.unmodelled.clone(),
            elsewhere: self.elsewhere,
            notes,
            selection: self.selection.clone(),
            cold: None,
            in_memory: self.in_memory(),
            copied_up: (self.copied_up.calls > 0).then(|| CopiedUp {
                files: self.copied_up.calls,
                bytes: self.copied_up.bytes,
                seconds: self.copied_up_ns as f64 / 1e9,
            }),
            sessions_omitted: self.sessions.folded,
            sessions,
            models: models.collect(),
            files: files.into_iter().map(|(row, totals)| self.file_report(row, totals)).collect(),
            files_omitted: self.files_omitted,
            worst: self.worst.0.iter().map(|call| self.worst_call(call)).collect(),
            advice: None,
            explain: Some(Explain {
                processes,
                rank_variable: variable.map(|variable| variable.name().to_owned()),
                stragglers: ranks.iter().filter(|rank| rank.straggler).map(|rank| rank.rank).collect(),
                ranks,
                ..self.explain()
            }),
            host: self.host.clone(),
            timeline: self.timeline.as_ref().and_then(|timeline| {
                let path = |file| self.path(file).0;
                timeline.report(self.began, path)
            }),
        }
    }

    /// Writes to files that are in memory alone, as far as files are told apart.
    fn in_memory(&self) -> Option<Tally> {
        let filesystems = Filesystems::of(&self.host.as_ref()?.filesystems);
        let is_in_memory = |dev| filesystems.kind(dev).is_some_and(FilesystemKind::is_in_memory);
        let rows = self.files.rows.iter().filter(|row| is_in_memory(row.identity.dev));
        let mut all = Tally::default();
        let ops = rows.flat_map(|row| &row.counts);
        let is_discarded = |sums: &CallSums| sums.time.observed()[Cause::Discard] > 0;
        let wrote = ops.filter(|op| op.sums.count.bytes > 0 && !op.op.reads() && !is_discarded(&op.sums));
        wrote.for_each(|op| all.add_all(op.sums.count));
        (all.bytes > 0).then_some(all)
    }

    fn explain(&self) -> Explain {
        let densities = self.densities.report();
        let mut causes = self.causes;
        self.files.rows.iter().flat_map(|row| &row.counts).for_each(|op| causes.time.add_all(&op.sums.time));
        let seconds = |row: usize| self.files.rows.get(row).map_or(0.0, |row| observed(row).as_seconds());
        Explain {
            worst: self.lost.0.iter().map(|call| self.worst_call(call)).collect(),
            modes: byte_modes(&densities),
            densities,
            classes: self.classes.report(),
            unclassed_calls: self.classes.unclassed,
            stacks: self.stacks.report(),
            patterns: self.patterns.sums(seconds),
            ..causes.explain(self.best())
        }
    }

    /// What the files' bytes could cost, with the calls on names as they are: no larger call replaces these.
    fn best(&self) -> Nanos {
        use cawl_wire::Op::{self, *};
        let of_names = |op: Op| {
            let is_of_entry = matches!(op, Unlink | Rename | Link | Symlink | Mkdir | Rmdir | Stat | List);
            is_of_entry || matches!(op, Open | StreamOpen | Close)
        };
        let of_file = |totals: &FileTotals| {
            let names = totals.counts.iter().filter(|op| of_names(op.op));
            let names: Nanos = names.map(|op| op.sums.time.undisturbed()).sum();
            let sums = totals.counts.iter().map(|op| &op.sums);
            let sums = sums.filter(|sums| sums.time.observed()[Cause::Discard] == 0);
            let bytes = sums.clone().map(|sums| sums.count.bytes).fold(0, u64::saturating_add);
            let waits = |(cause, ns): (Cause, u64)| cause.is_device() && cause != Cause::Read && ns > 0;
            let waited = |sums: &CallSums| sums.time.observed().iter().any(waits);
            self.ideal.cost(Bytes(bytes), sums.clone().any(waited)) + names
        };
        self.files.rows.iter().map(of_file).sum()
    }

    fn file_report(&self, row: usize, totals: &FileTotals) -> FileReport {
        let names = || self.models.iter().map(|model| model.name);
        let predicted =
            |op: &FileOpTotals| iter::once(op.sums.predicted).chain(op.further.clone()).take(op.models);
        let ops = totals.counts.iter().map(|op| FileOp {
            op: op.op.name().to_owned(),
            calls: op.sums.count.calls,
            bytes: op.sums.count.bytes,
            observed_s: op.sums.observed.as_seconds(),
            predicted_s: names().zip(predicted(op).map(Nanos::as_seconds)).collect(),
            states: states(&op.states),
            causes: seconds_by_cause(op.sums.time.observed()),
            undisturbed_s: op.sums.time.undisturbed().as_seconds(),
        });
        let FileId { dev, ino, birth } = totals.identity;
        let (path, first_path) = self.path(totals.identity);
        let patterns = self.patterns.file(row, |pid, at| self.sessions.language(pid, Time(at)));
        FileReport { path, first_path, dev, ino, birth, ops: ops.collect(), patterns }
    }

    fn worst_call(&self, call: &Ranked) -> WorstCall {
        let Ranked { number, event, prediction: primary, causes, before, after, .. } = call;
        let (path, first_path) = self.path(event.file());
        WorstCall {
            call: *number,
            at_s: Time(event.start).since(self.began).as_seconds(),
            pid: event.pid,
            op: event.op.name().to_owned(),
            path,
            first_path,
            offset: (event.offset != UNKNOWN_OFFSET).then_some(event.offset),
            bytes: moved_bytes(event),
            state: primary.state.name().to_owned(),
            observed_s: event.duration as f64 / 1e9,
            predicted_s: primary.cost.as_seconds(),
            cause: causes.main().name().to_owned(),
            causes: seconds_by_cause(causes),
            tid: event.tid,
            stack: self.stacks.frames(event.stack).to_vec(),
            before: before.iter().map(|near| self.near_call(near)).collect(),
            after: after.iter().map(|near| self.near_call(near)).collect(),
        }
    }

    fn near_call(&self, Near { event, predicted }: &Near) -> NearCall {
        NearCall {
            at_s: Time(event.start).since(self.began).as_seconds(),
            op: event.op.name().to_owned(),
            path: self.path(event.file()).0,
            offset: (event.offset != UNKNOWN_OFFSET).then_some(event.offset),
            bytes: kernel_bytes(event),
            observed_s: event.duration as f64 / 1e9,
            predicted_s: predicted.map(Nanos::as_seconds),
        }
    }
}

#[cfg(test)]
mod tests;
