//! Counts, while records go by, everything a report tells: bounded work and memory per call.

mod session;

use std::collections::{BTreeMap, HashMap};

use cawl_wire::ring::Several;
use cawl_wire::{Event, FileId, FileKind, Op, UNKNOWN_OFFSET};

use crate::accuracy::AccuracySummary;
use crate::call::{Class, kernel_bytes, several_bytes, wchar_bytes};
use crate::mode::Mode;
use crate::model::{CallState, Prediction};
use crate::names::FileName;
use crate::profile::HostProfile;
use crate::record::{EndKind, HostFacts, Outcome, Record, Sample};
use crate::report::{
    AsCalibrated, FileOp, FileReport, ModelReport, OpReport, ProfileUsed, REPORT_SCHEMA, Report,
    SessionReport, SessionTotals, Tally, WorstCall,
};
use crate::units::Time;
use session::{Child, SessionBooks};

/// How many of the worst calls a report lists.
const WORST: usize = 10;

/// How many files are told apart; calls on further ones are still counted in every total.
const FILES: usize = 100_000;

/// How many sessions that ended are listed. When there are twice as many, those that ended first become
/// sums: a daemon sees processes come and go for months.
const SESSIONS: usize = 4096;

/// How many notes are kept; further ones are counted.
const NOTES: usize = 100;

/// The books of one analysis.
pub struct Collector {
    profile: ProfileUsed,
    created: Option<u64>,
    models: Vec<ModelBooks>,
    sessions: Vec<SessionBooks>,
    ended: usize,
    folded: SessionTotals,
    /// Sessions of each pid, in order: exec begins a new one, and pids are used again.
    by_pid: HashMap<u32, Vec<usize>>,
    files: Vec<FileBooks>,
    by_identity: HashMap<FileId, usize>,
    /// By device and the name that they were written to under.
    by_name: HashMap<(u64, String), usize>,
    /// Books that are not in use.
    spare: Vec<usize>,
    /// The latest look-ups: programs tend to write to one file at a time.
    last_file: Option<(FileId, usize)>,
    last_session: Option<SessionSpan>,
    files_omitted: Tally,
    calls: u64,
    bytes: u64,
    elsewhere: Tally,
    unmodelled: BTreeMap<String, Tally>,
    worst: Vec<(f64, Event, Prediction)>,
    first: Option<Time>,
    last: Time,
    host: Option<HostFacts>,
    outcome: Option<Outcome>,
    notes: Vec<String>,
    notes_omitted: u64,
    samples: u64,
}

struct ModelBooks {
    name: &'static str,
    ops: BTreeMap<Op, Sums>,
    states: [u64; CallState::ALL.len()],
    fingerprint: u64,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    calls: u64,
    bytes: u64,
    observed_ns: u64,
    predicted_ns: f64,
}

/// The span of time in which calls of a pid belong to one session.
struct SessionSpan {
    pid: u32,
    begin: Time,
    end: Time,
    index: usize,
}

struct FileBooks {
    identity: FileId,
    name: FileName,
    /// Its last link went.
    unlinked: bool,
    ops: Vec<FileOpBooks>,
}

struct FileOpBooks {
    op: Op,
    calls: u64,
    bytes: u64,
    observed_ns: u64,
    predicted_ns: Vec<f64>,
    states: [u64; CallState::ALL.len()],
}

impl Collector {
    /// Empty books for models of these names.
    pub fn new(profile: &HostProfile, models: Vec<&'static str>) -> Collector {
        Collector {
            profile: ProfileUsed {
                name: profile.name.clone(),
                origin: profile.origin,
                age_s: None,
                measured: profile.measured,
                learned_runs: profile.learned_runs(),
            },
            created: profile.created,
            models: models
                .into_iter()
                .map(|name| ModelBooks {
                    name,
                    ops: BTreeMap::new(),
                    states: Default::default(),
                    fingerprint: FNV_OFFSET,
                })
                .collect(),
            sessions: Vec::new(),
            ended: 0,
            folded: SessionTotals::default(),
            by_pid: HashMap::new(),
            files: Vec::new(),
            by_identity: HashMap::new(),
            by_name: HashMap::new(),
            spare: Vec::new(),
            last_file: None,
            last_session: None,
            files_omitted: Tally::default(),
            calls: 0,
            bytes: 0,
            elsewhere: Tally::default(),
            unmodelled: BTreeMap::new(),
            worst: Vec::with_capacity(WORST + 1),
            first: None,
            last: Time(0),
            host: None,
            outcome: None,
            notes: Vec::new(),
            notes_omitted: 0,
            samples: 0,
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
                self.last_session = None;
                // Connections are served side by side: an image may be announced after the one it ran before.
                let of_pid = self.by_pid.entry(session.pid).or_default();
                let place = of_pid.partition_point(|i| self.sessions[*i].started <= session.started);
                of_pid.insert(place, self.sessions.len());
                self.sessions.push(SessionBooks {
                    id: session.id,
                    pid: session.pid,
                    ppid: session.ppid,
                    started: session.started,
                    wchar: session.wchar,
                    program: session.program.clone(),
                    children: 0,
                    calls: 0,
                    seen: 0,
                    threaded: false,
                    end: None,
                });
            }
            // Who renames a file need not be one who writes to it.
            Record::File(file) if file.renamed && !self.by_identity.contains_key(&file.file()) => {}
            Record::File(file) => {
                if let Some(index) = self.file(file.file()) {
                    self.files[index].name.told(file);
                }
            }
            Record::End(end) => {
                if let Some(books) = self.sessions.iter_mut().rev().find(|books| books.id == end.id) {
                    self.ended += usize::from(books.end.is_none());
                    books.end = Some(*end);
                    if self.ended >= 2 * SESSIONS {
                        self.fold();
                    }
                }
            }
            Record::Outcome(outcome) => self.outcome = Some(*outcome),
            Record::Note(_) if self.notes.len() >= NOTES => self.notes_omitted += 1,
            Record::Note(note) => self.notes.push(note.clone()),
            Record::Event(_)
            | Record::Sample(_)
            | Record::Memory(_)
            | Record::Profile(_)
            | Record::Live(_) => {}
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, _sample: &Sample) {
        self.samples += 1;
    }

    /// Takes a call with each model's prediction.
    pub fn event(&mut self, event: &Event, class: Class, predictions: &[Option<Prediction>]) {
        self.calls += 1;
        self.span(event.start, event.end());
        let bytes = kernel_bytes(event);
        if event.kind == FileKind::Regular {
            self.bytes = self.bytes.saturating_add(bytes);
        }
        if let Some(index) = self.session(event.pid, Time(event.start)) {
            self.sessions[index].calls(event, 1, wchar_bytes(event));
        }
        match class {
            Class::Cost => {
                self.cost(event, bytes, predictions);
                self.file_call(event, bytes, predictions);
            }
            Class::Untimed => self.file_call(event, bytes, predictions),
            Class::Elsewhere => self.elsewhere.add(bytes),
            Class::Unmodelled => {
                self.unmodelled.entry(event.op.name().to_owned()).or_default().add(bytes);
                self.file_call(event, bytes, &[]);
            }
            // What a stream held at exit has no cost that anyone could see, but its bytes are in the file.
            Class::Effect if bytes > 0 => self.file_call(event, bytes, &[]),
            Class::Effect if event.takes_last_link() => {
                if let Some(index) = self.by_identity.get(&event.file()) {
                    self.files[*index].unlinked = true;
                }
            }
            Class::Effect => {}
        }
    }

    /// Takes calls that add up: what [`Collector::event`] would make of each of them.
    pub fn several(&mut self, several: &Several) {
        self.calls += several.calls;
        self.span(several.first, several.end);
        let bytes = several_bytes(several);
        // They are of one session.
        if let Some(index) = self.session(several.like.pid, Time(several.first)) {
            self.sessions[index].calls(&several.like, several.calls, bytes);
        }
        self.elsewhere.calls += several.calls;
        self.elsewhere.bytes = self.elsewhere.bytes.saturating_add(bytes);
    }

    /// Something went on from `start` to `end`.
    fn span(&mut self, start: u64, end: u64) {
        let first = self.first.get_or_insert(Time(start));
        *first = (*first).min(Time(start));
        self.last = self.last.max(Time(end));
    }

    /// A call whose cost is compared.
    fn cost(&mut self, event: &Event, bytes: u64, predictions: &[Option<Prediction>]) {
        for (books, prediction) in self.models.iter_mut().zip(predictions) {
            let Some(prediction) = prediction else { continue };
            let cost = prediction.cost.get();
            books.ops.entry(event.op).or_default().add(bytes, event.duration, cost);
            books.states[prediction.state as usize] += 1;
            books.fingerprint = (books.fingerprint ^ cost.to_bits()).wrapping_mul(FNV_PRIME);
        }
        if let Some(Some(primary)) = predictions.first() {
            self.rank(event, primary);
        }
    }

    /// A call that wrote to a file, or that a model has an opinion on.
    fn file_call(&mut self, event: &Event, bytes: u64, predictions: &[Option<Prediction>]) {
        let Some(index) = self.file(event.file()) else {
            self.files_omitted.add(bytes);
            return;
        };
        let index = if self.files[index].ops.is_empty() { self.succeed(index) } else { index };
        let ops = &mut self.files[index].ops;
        let at = match ops.iter().position(|books| books.op == event.op) {
            Some(at) => at,
            None => {
                ops.push(FileOpBooks {
                    op: event.op,
                    calls: 0,
                    bytes: 0,
                    observed_ns: 0,
                    predicted_ns: vec![0.0; predictions.len()],
                    states: Default::default(),
                });
                ops.len() - 1
            }
        };
        let books = &mut ops[at];
        books.calls += 1;
        books.bytes = books.bytes.saturating_add(bytes);
        books.observed_ns = books.observed_ns.saturating_add(event.duration);
        for (sum, prediction) in books.predicted_ns.iter_mut().zip(predictions) {
            *sum += prediction.map_or(0.0, |p| p.cost.get());
        }
        if let Some(Some(primary)) = predictions.first() {
            books.states[primary.state as usize] += 1;
        }
    }

    /// The books that a file met with these goes on in: a file that was deleted and made anew under its name is one to
    /// whoever reads a report, however often that happens.
    fn succeed(&mut self, index: usize) -> usize {
        let FileBooks { identity, name, .. } = &self.files[index];
        let identity = *identity;
        if name.path().is_empty() {
            return index;
        }
        let before = self.by_name.entry((identity.dev, name.path().to_owned())).or_insert(index);
        let books = &self.files[*before];
        if *before == index || !books.unlinked || books.name != *name {
            *before = index;
            return index;
        }
        let before = *before;
        (self.files[before].identity, self.files[before].unlinked) = (identity, false);
        self.by_identity.insert(identity, before);
        self.last_file = None;
        self.spare.push(index);
        if self.by_identity.len() > 2 * FILES {
            self.by_identity.retain(|identity, index| self.files[*index].identity == *identity);
        }
        before
    }

    /// Keeps the calls that the first model was most wrong about.
    fn rank(&mut self, event: &Event, primary: &Prediction) {
        let wrong = (event.duration as f64 - primary.cost.get()).abs();
        if self.worst.len() == WORST && self.worst.last().is_some_and(|(least, ..)| wrong <= *least) {
            return;
        }
        let at = self.worst.partition_point(|(other, ..)| *other >= wrong);
        self.worst.insert(at, (wrong, *event, *primary));
        self.worst.truncate(WORST);
    }

    /// Index of the session that a call belongs to: the latest of its pid that had begun by then. Calls
    /// may be taken after the next session of the same pid was announced.
    fn session(&mut self, pid: u32, at: Time) -> Option<usize> {
        if let Some(last) = &self.last_session
            && last.pid == pid
            && last.begin <= at
            && at < last.end
        {
            return Some(last.index);
        }
        let of_pid = self.by_pid.get(&pid)?;
        let begin = |place: usize| self.sessions[of_pid[place]].started;
        let place = of_pid.partition_point(|index| self.sessions[*index].started <= at).saturating_sub(1);
        let end = if place + 1 < of_pid.len() { begin(place + 1) } else { Time(u64::MAX) };
        let index = of_pid[place];
        self.last_session = Some(SessionSpan { pid, begin: begin(place), end, index });
        Some(index)
    }

    /// Index of the books of a file; None when there are too many to tell apart.
    fn file(&mut self, identity: FileId) -> Option<usize> {
        if let Some((last, index)) = self.last_file
            && last == identity
        {
            return Some(index);
        }
        let index = match self.by_identity.get(&identity) {
            Some(index) => *index,
            None => {
                let books =
                    FileBooks { identity, name: FileName::default(), unlinked: false, ops: Vec::new() };
                let index = match self.spare.pop() {
                    Some(index) => {
                        self.files[index] = books;
                        index
                    }
                    None if self.files.len() >= FILES => return None,
                    None => {
                        self.files.push(books);
                        self.files.len() - 1
                    }
                };
                self.by_identity.insert(identity, index);
                index
            }
        };
        self.last_file = Some((identity, index));
        Some(index)
    }

    /// Path of a file, or its identity if nobody told the path; and its first path, if it was renamed.
    fn path(&self, file: FileId) -> (String, Option<String>) {
        match self.by_identity.get(&file).map(|index| &self.files[*index].name) {
            Some(name) if !name.path().is_empty() => {
                (name.path().to_owned(), name.first_path().map(str::to_owned))
            }
            _ if file == FileId::default() => ("-".to_owned(), None),
            _ => (format!("dev {} inode {}", file.dev, file.ino), None),
        }
    }

    /// What was found by models in this mode, which learn or not; with the accuracy of each, and if asked for, of
    /// each as calibrated.
    pub fn report(
        &self,
        mode: Mode,
        learn: bool,
        accuracy: &[AccuracySummary],
        calibrated: &[AccuracySummary],
    ) -> Report {
        let sessions = self.session_reports();
        let mut all = self.folded;
        sessions.iter().for_each(|session| all.add(session));
        // What the program and its children wrote in all tells of children that were not traced.
        let tree = self.outcome.and_then(|outcome| outcome.wchar);
        let untraced = tree.map_or(0, |tree| tree.saturating_sub(all.counted_bytes));
        let mut notes = self.notes.clone();
        if self.notes_omitted > 0 {
            notes.push(format!("and {} more notes", self.notes_omitted));
        }
        let models = self.models.iter().zip(accuracy).enumerate();
        let models = models.map(|(at, (books, summary))| books.report(*summary, calibrated.get(at)));
        let mut files: Vec<&FileBooks> = self.files.iter().filter(|books| !books.ops.is_empty()).collect();
        files.sort_by_key(|books| {
            (
                std::cmp::Reverse(books.ops.iter().map(|op| op.observed_ns).fold(0, u64::saturating_add)),
                books.identity,
            )
        });
        Report {
            schema: REPORT_SCHEMA,
            mode: mode.name().to_owned(),
            learn,
            calls: self.calls,
            bytes: self.bytes,
            drops: all.dropped,
            unseen: all.unseen,
            coverage: ratio(all.seen_bytes, all.counted_bytes.saturating_add(untraced)),
            untraced_bytes: untraced,
            profile: self.profile.clone(),
            outcome: self.outcome,
            span_s: self.first.map_or(0.0, |first| self.last.since(first).as_seconds()),
            unmodelled: self.unmodelled.clone(),
            elsewhere: self.elsewhere,
            notes,
            cold: None,
            sessions_omitted: self.folded,
            sessions,
            models: models.collect(),
            files: files.into_iter().map(|books| self.file_report(books)).collect(),
            files_omitted: self.files_omitted,
            worst: self.worst.iter().map(|(_, event, primary)| self.worst_call(event, primary)).collect(),
            host: self.host.clone(),
        }
    }

    /// Turns all but the latest [`SESSIONS`] of the sessions that ended into sums.
    fn fold(&mut self) {
        let mut ended: Vec<(Time, usize)> = self.sessions.iter().enumerate().filter_map(end_at).collect();
        ended.sort_unstable();
        ended.truncate(ended.len().saturating_sub(SESSIONS));
        let mut leaving = vec![false; self.sessions.len()];
        ended.iter().for_each(|(_, index)| leaving[*index] = true);
        for (report, _) in self.session_reports().iter().zip(&leaving).filter(|(_, leaves)| **leaves) {
            self.folded.add(report);
        }
        // What a child wrote is still to be taken off its parent's count.
        let orphans: Vec<(usize, u64)> = self
            .by_pid
            .values()
            .filter(|images| leaving[images[images.len() - 1]])
            .filter_map(|images| {
                let (ppid, child) = self.child(images)?;
                let mut parents = self.by_pid.get(&ppid)?.iter().copied();
                Some((parents.find(|parent| self.sessions[*parent].had(&child))?, child.written))
            })
            .collect();
        for (parent, written) in orphans {
            let children = &mut self.sessions[parent].children;
            *children = children.saturating_add(written);
        }
        let mut leaves = leaving.iter().copied();
        self.sessions.retain(|_| !leaves.next().unwrap_or(false));
        self.ended -= ended.len();
        self.last_session = None;
        self.by_pid.clear();
        for (index, books) in self.sessions.iter().enumerate() {
            self.by_pid.entry(books.pid).or_default().push(index);
        }
        for images in self.by_pid.values_mut() {
            images.sort_by_key(|index| self.sessions[*index].started);
        }
    }

    /// The process with these images, as its parent sees it, if it has ended.
    fn child(&self, images: &[usize]) -> Option<(u32, Child)> {
        // A process's last image tells what it and its own children wrote in all.
        let last = &self.sessions[*images.last()?];
        let end = last.end.filter(|end| end.how != EndKind::Running)?;
        let child = Child {
            born: self.sessions[images[0]].started,
            // When a process was killed is known only by when the daemon saw it.
            ended: if end.how == EndKind::Vanished { None } else { Some(end.at) },
            written: end.wchar.process?.saturating_add(end.pending),
        };
        Some((last.ppid, child))
    }

    /// Every session, with what its children wrote taken off its count.
    fn session_reports(&self) -> Vec<SessionReport> {
        let mut children: HashMap<u32, Vec<Child>> = HashMap::new();
        for (ppid, child) in self.by_pid.values().filter_map(|images| self.child(images)) {
            children.entry(ppid).or_default().push(child);
        }
        for siblings in children.values_mut() {
            siblings.sort_by_key(|child| (child.ended.is_none(), child.ended, child.born));
        }
        let report = |books: &SessionBooks| {
            let own = children.get(&books.pid).map_or(&[][..], Vec::as_slice);
            books.report(own.iter().filter(|child| books.had(child)).map(|child| child.written))
        };
        self.sessions.iter().map(report).collect()
    }

    fn file_report(&self, books: &FileBooks) -> FileReport {
        let names = || self.models.iter().map(|model| model.name.to_owned());
        let ops = books.ops.iter().map(|op| FileOp {
            op: op.op.name().to_owned(),
            calls: op.calls,
            bytes: op.bytes,
            observed_s: op.observed_ns as f64 / 1e9,
            predicted_s: names().zip(op.predicted_ns.iter().map(|ns| ns / 1e9)).collect(),
            states: states(&op.states),
        });
        let FileId { dev, ino, birth } = books.identity;
        let (path, first_path) = self.path(books.identity);
        FileReport { path, first_path, dev, ino, birth, ops: ops.collect() }
    }

    fn worst_call(&self, event: &Event, primary: &Prediction) -> WorstCall {
        let (path, first_path) = self.path(event.file());
        WorstCall {
            at_s: Time(event.start).since(self.first.unwrap_or_default()).as_seconds(),
            pid: event.pid,
            op: event.op.name().to_owned(),
            path,
            first_path,
            offset: (event.offset != UNKNOWN_OFFSET).then_some(event.offset),
            bytes: kernel_bytes(event),
            state: primary.state.name().to_owned(),
            observed_s: event.duration as f64 / 1e9,
            predicted_s: primary.cost.as_seconds(),
        }
    }
}

impl ModelBooks {
    fn report(&self, summary: AccuracySummary, calibrated: Option<&AccuracySummary>) -> ModelReport {
        let by_op = self.ops.iter().map(|(op, sums)| (op.name().to_owned(), sums.report()));
        ModelReport {
            name: self.name.to_owned(),
            calls: summary.calls,
            observed_s: summary.observed.as_seconds(),
            predicted_s: summary.predicted.as_seconds(),
            total_error: summary.total_error,
            windowed_error: summary.windowed_error,
            call_error: summary.call_error,
            dirty_error: summary.dirty_error,
            calibrated: calibrated.map(|summary| AsCalibrated {
                predicted_s: summary.predicted.as_seconds(),
                total_error: summary.total_error,
                windowed_error: summary.windowed_error,
                call_error: summary.call_error,
            }),
            summary,
            by_op: by_op.collect(),
            states: states(&self.states),
            fingerprint: format!("{:016x}", self.fingerprint),
        }
    }
}

impl Sums {
    fn add(&mut self, bytes: u64, observed_ns: u64, predicted_ns: f64) {
        self.calls += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.observed_ns = self.observed_ns.saturating_add(observed_ns);
        self.predicted_ns += predicted_ns;
    }

    fn report(&self) -> OpReport {
        let (observed, predicted) = (self.observed_ns as f64, self.predicted_ns);
        OpReport {
            calls: self.calls,
            bytes: self.bytes,
            observed_s: observed / 1e9,
            predicted_s: predicted / 1e9,
            total_error: (observed > 0.0).then(|| (predicted - observed).abs() / observed),
        }
    }
}

/// When a session ended, and its index; None while it runs.
fn end_at((index, books): (usize, &SessionBooks)) -> Option<(Time, usize)> {
    Some((books.end?.at, index))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn states(counts: &[u64; CallState::ALL.len()]) -> BTreeMap<String, u64> {
    let named = CallState::ALL.iter().map(|state| state.name().to_owned()).zip(counts.iter().copied());
    named.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests;
