//! One stream of records through one analysis into one trace.
//!
//! The daemon has a lane for all it sees, and one more for each `cawl-cli run` that reports to it. What
//! a lane's analysis takes and what its trace keeps are the same records in the same order: that
//! is why a replay in lockstep repeats the live predictions exactly.

use std::collections::{BTreeMap, BTreeSet};

use cawl_core::{
    Analysis, EndKind, FileFacts, HostProfile, Mode, ModelState, Outcome, Record, Report, Session,
    SessionEnd, Tally, Time, kernel_bytes,
};
use cawl_wire::{Event, FileKind};

use crate::host;
use crate::merge::{Merge, Source};
use crate::started::Started;
use crate::trace::TraceFile;

/// Analysis, trace and books of one stream of records.
pub struct Lane {
    analysis: Analysis,
    trace: Option<TraceFile>,
    merge: Merge,
    open: BTreeMap<u32, Open>,
    processes: BTreeMap<u32, ProcessTally>,
    devices: BTreeMap<u64, Tally>,
    started: Started,
    /// Devices (`st_dev`) that the host facts have been looked through for.
    known_devices: BTreeSet<u64>,
}

/// A session that has not ended.
struct Open {
    pid: u32,
    dropped: u64,
}

/// What a live process has written so far.
pub struct ProcessTally {
    /// Process id.
    pub pid: u32,
    /// Name the program was started by.
    pub program: String,
    /// Its calls and bytes.
    pub tally: Tally,
}

impl Lane {
    /// A lane by these models, with the facts of this machine first.
    pub fn new(
        profile: &HostProfile,
        models: &[String],
        trace: Option<TraceFile>,
    ) -> Result<Lane, cawl_core::ModelsError> {
        let analysis = Analysis::new(profile, models, Mode::Lockstep)?;
        let mut lane = Lane {
            analysis,
            trace,
            merge: Merge::default(),
            open: BTreeMap::new(),
            processes: BTreeMap::new(),
            devices: BTreeMap::new(),
            started: Started::default(),
            known_devices: BTreeSet::new(),
        };
        lane.look_at_host();
        lane.take(Record::Profile(Box::new(profile.clone())));
        if let Some(sample) = host::sample() {
            lane.take(Record::Sample(sample));
        }
        Ok(lane)
    }

    /// Takes the facts of this machine as they are now.
    fn look_at_host(&mut self) {
        let facts = host::facts();
        self.known_devices.extend(facts.filesystems.iter().map(|filesystem| filesystem.dev));
        self.take(Record::Host(Box::new(facts)));
    }

    /// A process image begins.
    pub fn begin(&mut self, session: Session) {
        self.started.begin(session.pid, session.started);
        self.processes.insert(
            session.id,
            ProcessTally { pid: session.pid, program: session.program.clone(), tally: Tally::default() },
        );
        self.open.insert(session.id, Open { pid: session.pid, dropped: 0 });
        self.take(Record::Session(session));
    }

    /// A record that has a time of its own waits for its turn.
    pub fn push(&mut self, source: Source, time: Time, record: Record) {
        self.merge.push(source, time, record);
    }

    /// A process image ended.
    pub fn end(&mut self, end: SessionEnd) {
        let session = self.open.remove(&end.id);
        if end.how != EndKind::Exec
            && let Some(session) = session
        {
            self.started.end(session.pid);
        }
        self.merge.push(Source::Ends, end.at, Record::End(end));
    }

    /// Takes all that happened before `until`, in order.
    pub fn release(&mut self, until: Time) {
        let mut merge = std::mem::take(&mut self.merge);
        merge.release(until, |record| self.take(record));
        self.merge = merge;
    }

    /// A session's file is named.
    pub fn file(&mut self, file: FileFacts) {
        // One on a device that was not there before: a filesystem was mounted meanwhile.
        let is_regular = FileKind::from_mode(file.mode) == FileKind::Regular;
        if is_regular && self.known_devices.insert(file.dev) {
            self.look_at_host();
        }
        self.take(Record::File(file));
    }

    /// Takes a record now.
    pub fn take(&mut self, record: Record) {
        if let Some(trace) = &mut self.trace {
            trace.push(&record);
        }
        match &record {
            Record::Event(event) if event.kind == FileKind::Regular => {
                let bytes = kernel_bytes(event);
                if bytes > 0 {
                    self.devices.entry(event.dev).or_default().add(bytes);
                }
            }
            Record::File(file) => self.started.file(file),
            Record::End(end) => drop(self.processes.remove(&end.id)),
            _ => {}
        }
        self.analysis.take(&record);
    }

    /// Calls of a process, in the order in which their threads made them, wait for their turn.
    pub fn calls(&mut self, session: u32, calls: impl Iterator<Item = Event>) {
        let mut tally = Tally::default();
        let calls = calls.inspect(|call| {
            tally.add(kernel_bytes(call));
            self.started.event(call);
        });
        self.merge.push_calls(session, calls);
        if let Some(process) = self.processes.get_mut(&session) {
            process.tally.calls += tally.calls;
            process.tally.bytes += tally.bytes;
        }
    }

    /// A session that goes on has lost so many events until now.
    pub fn dropped(&mut self, session: u32, dropped: u64) {
        if let Some(open) = self.open.get_mut(&session) {
            open.dropped = dropped;
        }
    }

    /// True while a process reports to this lane.
    pub fn is_in_use(&self) -> bool {
        !self.open.is_empty()
    }

    /// Hands what the trace has gathered to the disk.
    pub fn flush(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.flush();
        }
    }

    /// The processes being traced.
    pub fn processes(&self) -> impl Iterator<Item = &ProcessTally> {
        self.processes.values()
    }

    /// What was written to each device (`st_dev`).
    pub fn devices(&self) -> &BTreeMap<u64, Tally> {
        &self.devices
    }

    /// The modelled machine at `now`.
    pub fn state_at(&self, now: Time) -> ModelState {
        self.analysis.state_at(now)
    }

    /// Name of the model that states come from.
    pub fn model(&self) -> &'static str {
        self.analysis.models().first().copied().unwrap_or_default()
    }

    /// Ends the lane: takes all that waits, closes the trace, and reports.
    pub fn finish(mut self, outcome: Option<Outcome>, notes: Vec<String>) -> Report {
        self.release(Time(u64::MAX));
        let now = host::now();
        for (id, open) in std::mem::take(&mut self.open) {
            let end = SessionEnd {
                id,
                at: now,
                how: EndKind::Running,
                wchar: host::wchar(open.pid),
                pending: 0,
                dropped: open.dropped,
                unseen: 0,
            };
            self.take(Record::End(end));
        }
        let silent = self.started.notes();
        for note in notes.into_iter().chain(silent) {
            self.take(Record::Note(note));
        }
        if let Some(outcome) = outcome {
            self.take(Record::Outcome(outcome));
        }
        if let Some(failure) = self.trace.take().and_then(TraceFile::finish) {
            self.take(Record::Note(failure));
        }
        self.analysis.report()
    }
}
