//! One stream of records through one analysis into one trace.
//!
//! The daemon has a lane for all records, and one for each `cawl-cli run` that reports to it. A lane's
//! analysis and its trace get the same records in the same order, so that a live replay repeats the
//! predictions exactly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cawl_client::protocol::{RunEnd, RunProcess};
use cawl_core::advise::Kept;
use cawl_core::{
    Analysis, AnalysisOptions, Births, EndKind, Glob, HostFacts, HostProfile, LiveOptions, ModelState, Nanos,
    Record, Report, Selection, Selector, Session, SessionEnd, Stack, StackOptions, Tally, Time, Told,
    kernel_bytes,
};
use cawl_host::allowance;
use cawl_host::clock::Clocks;
use cawl_host::profiles::Keeper;
use cawl_host::trace::TraceFile;
use cawl_wire::Event;
use cawl_wire::ring::CoalescedCalls;

use crate::calls_to::CallsTo;
use crate::merge::{Merge, Source};
use crate::otlp_to::OtlpTo;
use crate::query_tables::QueryTables;
use crate::silent_processes::SilentProcesses;
use crate::sums_to::SumsTo;
use crate::watch::Watch;

/// Analysis, trace and tables of one stream of records.
pub struct Lane {
    /// The models.
    pub analysis: Analysis,
    /// The trace, if one is kept.
    pub trace: Option<TraceFile>,
    /// Keeps excerpts, if they are wanted; only of the daemon's own lane.
    pub watch: Option<Box<Watch>>,
    /// Tables of calls, and sums by minute, if they are wanted; only of the daemon's own lane.
    pub calls_to: Option<Box<CallsTo>>,
    /// See `calls_to`.
    pub sums_to: Option<Box<SumsTo>>,
    /// Metrics and spans for a collector; likewise.
    pub otlp_to: Option<Box<OtlpTo>>,
    /// What is held.
    pub merge: Merge,
    births: Births,
    /// The processes that report to it.
    pub open: BTreeMap<u32, Open>,
    silent: SilentProcesses,
    /// For questions; only the daemon's own lane has them.
    pub tables: Option<Box<QueryTables>>,
    /// The latest state looked ahead to.
    ahead: Option<ModelState>,
    keeper: Option<Keeper>,
    /// Which calls are recorded, where that is not all.
    only: Option<Selector>,
    /// Processes that were followed until the run's end and had not ended then.
    left: Vec<RunProcess>,
    /// The records, for advice beside the report.
    kept: Option<Box<Kept>>,
    /// Which calls have their stack copied.
    pub stack_options: Option<StackOptions>,
    stacks: BTreeMap<u32, Arc<Stack>>,
}

/// The history uses a model's state unless it is older than this.
const STALE: Nanos = Nanos::millis(1000.0);

/// An open session.
pub struct Open {
    pid: u32,
    program: String,
    dropped: u64,
}

/// Records processed between two checks of `hurry`: calls of gigabytes take milliseconds each.
const PIECE: usize = 64;
/// Time for records between two looks at what else is to be done.
const MOMENT: Duration = Duration::from_millis(20);

/// Processes named in a note.
const NAMED: usize = 10;

/// The report's note on processes that are still running.
fn still_running(processes: impl Iterator<Item = RunProcess>) -> Option<String> {
    let all: BTreeMap<u32, String> = processes.map(|process| (process.pid, process.program)).collect();
    let named: Vec<String> =
        all.iter().take(NAMED).map(|(pid, program)| format!("{program} (pid {pid})")).collect();
    let more = match all.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let processes = match all.len() {
        0 => return None,
        1 => "1 process",
        many => &format!("{many} processes"),
    };
    Some(format!(
        "{processes} still ran when this report was made, which `run --wait` waits for: {}{more}",
        named.join(", ")
    ))
}

impl Lane {
    /// A lane with these models, beginning with the facts of this machine.
    pub fn new(
        profile: &HostProfile,
        options: &AnalysisOptions,
        trace: Option<TraceFile>,
        facts: HostFacts,
    ) -> Result<Lane, cawl_core::ModelsError> {
        let analysis = Analysis::with(profile, options)?;
        let mut lane = Lane {
            analysis,
            trace,
            watch: None,
            calls_to: None,
            sums_to: None,
            otlp_to: None,
            merge: Merge::default(),
            births: Births::default(),
            open: BTreeMap::new(),
            left: Vec::new(),
            silent: SilentProcesses::default(),
            tables: None,
            ahead: None,
            keeper: None,
            only: None,
            kept: Some(Box::new(Kept::new(profile))),
            stack_options: options.stacks,
            stacks: BTreeMap::new(),
        };
        lane.analyse(Record::Host(Box::new(facts)));
        lane.analyse(Record::Profile(Box::new(profile.clone())));
        let AnalysisOptions { mode, learn, command, stacks, .. } = options.clone();
        let models = lane.analysis.models().into_iter().map(str::to_owned).collect();
        lane.analyse(Record::Live(LiveOptions { models, mode, learn, command, stacks }));
        if let Some(sample) = cawl_host::sample() {
            lane.analyse(Record::Sample(sample));
        }
        Ok(lane)
    }

    /// Adds tables for questions, in the place of advice at its end.
    pub fn with_tables(mut self, profile: &HostProfile) -> Lane {
        self.kept = None;
        self.tables = Some(Box::new(QueryTables::new(profile.kernel.page.0)));
        self
    }

    /// Keeps excerpts, which begin with the machine.
    pub fn with_watch(mut self, watch: Option<Watch>, profile: &HostProfile, facts: HostFacts) -> Lane {
        self.watch = watch.map(Box::new);
        if let Some(watch) = &mut self.watch {
            watch.push(&Record::Host(Box::new(facts)));
            watch.push(&Record::Profile(Box::new(profile.clone())));
        }
        self
    }

    /// Writes what comes to a trace, which begins with what is known.
    pub fn record(&mut self, mut trace: TraceFile, profile: &HostProfile, facts: HostFacts) {
        self.known(profile, facts).for_each(|record| trace.push(&record));
        self.trace = Some(trace);
    }

    /// Keeps what comes for advice, until [`Lane::advisable`].
    pub fn keep_for_advice(&mut self, profile: &HostProfile, facts: HostFacts) {
        let mut kept = Box::new(Kept::new(profile));
        self.known(profile, facts).for_each(|record| _ = kept.take(&record));
        self.kept = Some(kept);
    }

    /// True from [`Lane::keep_for_advice`] to [`Lane::advisable`].
    pub fn is_keeping_for_advice(&self) -> bool {
        self.kept.is_some()
    }

    /// What was kept for advice; no more is.
    pub fn advisable(&mut self) -> Option<Box<Kept>> {
        self.kept.take()
    }

    /// The machine, and the programs, files and stacks that are known.
    fn known(&self, profile: &HostProfile, facts: HostFacts) -> impl Iterator<Item = Record> {
        let started = facts.started;
        let machine = [Record::Host(Box::new(facts)), Record::Profile(Box::new(profile.clone()))];
        let sessions = self.open.iter().map(move |(id, Open { pid, program, .. })| {
            let (id, pid, program) = (*id, *pid, program.clone());
            Record::Session(Session { id, pid, program, started, ..Session::default() })
        });
        let named = self.tables.iter().flat_map(|tables| tables.totals.named()).map(Record::File);
        let stacks = self.stacks.values().map(|stack| Record::Stack((**stack).clone()));
        machine.into_iter().chain(sessions).chain(named).chain(stacks)
    }

    /// Calls since the start, if they are counted.
    pub fn calls(&self) -> u64 {
        self.tables.as_ref().map_or(0, |tables| tables.totals.total.sums.count.calls)
    }

    /// Keeps learned constants at the end.
    pub fn with_keeper(mut self, keeper: Option<Keeper>) -> Lane {
        if let Some(keeper) = &keeper {
            self.analysis.keep(keeper.device);
        }
        self.keeper = keeper;
        self
    }

    /// Records calls on files only that fit one of these; on all, if there are none.
    pub fn with_only(mut self, files: &[Glob]) -> Lane {
        let only = Selection { files: files.to_vec(), ..Selection::default() };
        self.only = (!files.is_empty()).then(|| Selector::new(only));
        self
    }

    /// A process image begins.
    pub fn begin(&mut self, session: Session) {
        self.silent.begin(session.pid, session.started);
        self.tables.iter_mut().for_each(|tables| tables.totals.begin(&session));
        self.open.insert(session.id, Open { pid: session.pid, program: session.program.clone(), dropped: 0 });
        self.analyse(Record::Session(session));
    }

    /// A process image ended.
    pub fn end(&mut self, end: SessionEnd) {
        let session = self.open.remove(&end.id);
        if end.how != EndKind::Exec
            && let Some(session) = session
        {
            self.silent.end(session.pid);
            match end.how {
                EndKind::Confined => self.silent.confined(session.program),
                // A daemon's own lane has no end at which they would be named.
                EndKind::Running if self.tables.is_none() => {
                    self.left.push(RunProcess { pid: session.pid, program: session.program });
                }
                _ => {}
            }
        }
        self.merge.push(Source::Ends, end.at, Record::End(end));
    }

    /// The functions of a stack were found. Calls have its number already.
    pub fn stack(&mut self, stack: &Arc<Stack>) {
        if self.stacks.insert(stack.id, Arc::clone(stack)).is_none() {
            self.analyse(Record::Stack((**stack).clone()));
        }
    }

    /// Processes the records before `until`, in order, at most `most` and for a [`MOMENT`]; true if that was
    /// all.
    pub fn release(&mut self, until: Time, most: usize) -> bool {
        let mut merge = std::mem::take(&mut self.merge);
        let began = Instant::now();
        let all = merge.release(until, most, |record| {
            self.analyse(record);
            began.elapsed() >= MOMENT
        });
        self.merge = merge;
        self.tables.iter_mut().for_each(|tables| tables.totals.settle());
        all
    }

    /// Completes the identity of the record's file; then the trace, the analysis and the tables get the
    /// record.
    pub fn analyse(&mut self, mut record: Record) {
        match self.births.take(&mut record) {
            Told::AsItIs => {}
            Told::After(first) => self.analyse_complete(&first),
            Told::Later => return,
        }
        self.analyse_complete(&record);
    }

    fn analyse_complete(&mut self, record: &Record) {
        if self.only.as_mut().is_some_and(|only| !only.take(record)) {
            return;
        }
        self.trace.iter_mut().for_each(|trace| trace.push(record));
        if let Some(kept) = &mut self.kept {
            kept.take(record);
        }
        if let Record::File(file) = record {
            self.silent.file(file);
        }
        if self.calls_to.is_some() || self.sums_to.is_some() || self.otlp_to.is_some() {
            self.take_for_outputs(record);
        } else {
            self.analysis.take(record);
        }
        if let Some(tables) = &mut self.tables {
            tables.take(record, self.analysis.answering(), self.analysis.causes());
            if matches!(record, Record::Sample(_)) {
                tables.apart(self.analysis.latest_apart());
            }
        }
        if let Some(watch) = &mut self.watch {
            watch.take(record, &self.analysis, self.tables.as_deref().map(|tables| &tables.totals));
        }
    }

    /// Analyses a record for tables of calls, sums by minute and spans.
    fn take_for_outputs(&mut self, record: &Record) {
        let shown = self.analysis.take(record);
        let totals = self.tables.as_deref().map(|tables| &tables.totals);
        if let Some(sums) = &mut self.sums_to {
            sums.take(record, shown.causes, totals);
        }
        if let Some(calls) = &mut self.calls_to {
            calls.take(record, &shown, totals);
        }
        if let Some(otlp) = &mut self.otlp_to {
            otlp.take(record, &shown, totals);
        }
    }

    /// True if it keeps what has each call: a trace, excerpts, a table.
    pub fn has_each(&self) -> bool {
        self.trace.is_some() || self.watch.is_some() || self.calls_to.is_some()
    }

    /// Takes the kernel's pauses since sampling began, and the number of pauses lost.
    pub fn paused(&mut self, told: Option<(Nanos, u64)>) {
        self.tables.iter_mut().for_each(|tables| tables.paused(told));
    }

    /// Holds calls of a process, which has lost so many events until now, in the order in which their threads
    /// made them, until their turn.
    pub fn hold_calls(&mut self, session: u32, calls: &Arc<Vec<Event>>, dropped: u64) {
        let open = self.open.get_mut(&session);
        let program = open.map_or("a program", |open| {
            open.dropped = dropped;
            &open.program
        });
        calls.iter().for_each(|call| self.silent.event(call, program));
        if let Some(tables) = &mut self.tables {
            let mut tally = Tally::default();
            calls.iter().for_each(|call| tally.add(kernel_bytes(call)));
            tables.totals.arrived(session, tally);
        }
        self.merge.push_calls(session, calls);
    }

    /// Coalesced calls of a process, which a lane with a trace does not get. They change no model, so they
    /// wait for no turn.
    pub fn coalesced(&mut self, session: u32, calls: &CoalescedCalls) {
        if self.only.is_some() {
            return;
        }
        let discarded = self.analysis.coalesced(calls);
        if let Some(sums) = &mut self.sums_to {
            sums.coalesced(calls, discarded, self.tables.as_deref().map(|tables| &tables.totals));
        }
        self.tables.iter_mut().for_each(|tables| tables.totals.coalesced(session, calls, discarded));
    }

    /// Writes the trace's buffered records to disk.
    pub fn flush(&mut self) {
        self.trace.iter_mut().for_each(TraceFile::flush);
        self.watch.iter_mut().for_each(|watch| watch.flush());
        self.calls_to.iter_mut().for_each(|calls| calls.flush());
    }

    /// Time has passed: the history gets the model's state, and the number of events lost.
    pub fn pass(&mut self, clocks: &Clocks, drops: u64) {
        self.sums_to.iter_mut().for_each(|sums| sums.pass(clocks));
        let Some(tables) = &mut self.tables else { return };
        let mut state = self.analysis.state();
        let now = clocks.monotonic;
        // Without calls and samples the model's time stands still: look ahead at intervals.
        if now.since(state.time) >= STALE {
            if now.since(self.ahead.map_or(Time(0), |ahead| ahead.time)) >= STALE {
                self.ahead = self.analysis.view(None, None, now).ok();
            }
            state = self.ahead.unwrap_or(state);
        }
        tables.pass(clocks, &state, drops);
    }

    /// Processes that may still be running: those with a session, and those started that have not connected.
    pub fn processes(&self) -> Vec<RunProcess> {
        let open = self.open.values().map(|open| (open.pid, open.program.as_str()));
        let all: BTreeMap<u32, &str> = self.silent.silent().chain(open).collect();
        let process = |(pid, program): (u32, &str)| RunProcess { pid, program: program.to_owned() };
        all.into_iter().map(process).collect()
    }

    /// Processes all held records. Once `hurry` is set, calls are left out; returns their number.
    pub fn take_rest(&mut self, hurry: &AtomicBool) -> u64 {
        while !hurry.load(Ordering::Relaxed) {
            if self.release(Time(u64::MAX), PIECE) {
                return 0;
            }
        }
        let mut left_out = 0;
        let mut merge = std::mem::take(&mut self.merge);
        merge.release(Time(u64::MAX), usize::MAX, |record| {
            match record {
                Record::Event(_) => left_out += 1,
                other => self.analyse(other),
            }
            false
        });
        left_out
    }

    /// Ends the lane: processes held records, unless there is `hurry`, keeps learned constants, closes the
    /// trace, and reports.
    pub fn finish(mut self, end: RunEnd, hurry: &AtomicBool) -> Report {
        let RunEnd { outcome, mut notes, running } = end;
        let left_out = self.take_rest(hurry);
        if left_out > 0 {
            notes.push(format!(
                "the report was wanted before all calls had been taken: {left_out} are not in it"
            ));
        }
        if let Some(Err(error)) = self.keeper.as_ref().map(|keeper| keeper.keep(&self.analysis)) {
            notes.push(format!("what was learned is not kept: {}", allowance::with_remedy(&error)));
        }
        // Without an outcome the lane was not ended by the end of a program.
        if outcome.is_some() {
            let own = self.processes().into_iter().chain(std::mem::take(&mut self.left));
            let own = own.filter(|process| cawl_host::is_running(process.pid));
            notes.extend(still_running(running.into_iter().chain(own)));
        }
        let now = cawl_host::now();
        for (id, open) in std::mem::take(&mut self.open) {
            let (wchar, usage, dropped) =
                (cawl_host::wchar(open.pid), cawl_host::usage(open.pid), open.dropped);
            let end = SessionEnd::new(id, now, EndKind::Running);
            self.analyse(Record::End(SessionEnd { wchar, usage, dropped, ..end }));
        }
        let silent = self.silent.notes();
        for note in notes.into_iter().chain(silent) {
            self.analyse(Record::Note(note));
        }
        if let Some(outcome) = outcome {
            self.analyse(Record::Outcome(outcome));
        }
        if let Some(failure) = self.trace.take().and_then(TraceFile::finish) {
            self.analyse(Record::Note(failure));
        }
        let mut report = self.analysis.report();
        if !hurry.load(Ordering::Relaxed) {
            report.advise(self.kept.and_then(|kept| kept.advised()));
        }
        report
    }
}
