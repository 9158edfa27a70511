//! The one thread that runs the models: everything reaches it as [`Input`], in order. Only questions overtake:
//! the engine looks at them between small pieces of work, so an answer never waits for a backlog of calls.

pub mod answers;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cawl_client::protocol::{RunEnd, RunProcess, RunSpec};
use cawl_core::{
    AnalysisOptions, Bytes, EndKind, FileFacts, HostFacts, HostProfile, MemoryFacts, Mode, Nanos, Record,
    Report, Sample, Session, SessionEnd, Time, Wchar,
};
use cawl_host::clock::Clocks;
use cawl_host::profiles::Keeper;
use cawl_host::trace::TraceFile;
use cawl_wire::{Ended, FileKind, Goodbye};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};

use crate::batch::Batch;
use crate::lane::Lane;
use crate::merge::Source;
use crate::sampler::Observed;
use answers::States;
pub use runs::begin_run;
use runs::{BeginRun, create_trace};

/// How long calls are held back so that those of other threads can be put before them. Tracers send
/// what is older than 50 ms at their next call.
const HOLD: Nanos = Nanos::millis(150.0);

/// How often it is looked whether those who began runs are still there.
const OWNERS_EVERY: Nanos = Nanos::millis(1000.0);

/// Records taken between two looks at the questions: well under a millisecond.
const PIECE: usize = 64;

/// Questions answered then, so that asking cannot stop the work.
const QUESTIONS_A_PIECE: usize = 4;

/// A question: something to look up in the engine. It must be quick, because the models wait meanwhile; what
/// is left to do with what was found is done by who asked.
pub type Question = Box<dyn FnOnce(&mut Engine) + Send>;

/// What can happen to the engine.
pub enum Input {
    /// A tracer introduced itself.
    Begin { session: Session, run: u64 },
    /// Calls of a process. `dropped`: events it has lost so far.
    Events { session: u32, batch: Batch, dropped: u64 },
    /// Which file an identity means.
    File { session: u32, file: FileFacts },
    /// A session is over. `goodbye` is missing when the process had no time for one; `wchar` is then the
    /// last figure anyone saw.
    End { session: u32, goodbye: Option<Goodbye>, wchar: Wchar, dropped: u64 },
    /// Something a report must say about a session's run.
    Note { run: u64, note: String },
    /// The kernel's counters.
    Sample(Sample),
    /// Free memory.
    Memory(Box<MemoryFacts>),
    /// What sampling found besides.
    Observed(Box<Observed>),
    /// The machine as it is now.
    Host(Box<HostFacts>),
    /// Time to release what was held back.
    Tick,
    /// A run wants a lane of its own: [`RunSpec::begin`].
    BeginRun(BeginRun),
    /// A run wants its report.
    EndRun { run: u64, end: RunEnd, reply: oneshot::Sender<Option<Report>> },
    /// What a process of another user said; its user has room for more when it has been taken.
    OfGuest { input: Box<Input>, room: OwnedSemaphorePermit },
    /// Finish every trace; the last thing an engine does.
    Stop { reply: oneshot::Sender<()> },
}

/// What the engine is started with.
pub struct EngineOptions {
    /// The machine's profile.
    pub profile: HostProfile,
    /// Models of the daemon's own lane; None: no such lane, as inside `cawl-cli run`.
    pub host_models: Option<Vec<String>>,
    /// Trace of the daemon's own lane.
    pub host_trace: Option<PathBuf>,
    /// Modes of models that the daemon's own lane keeps for questions, besides all models in lockstep.
    pub modes: Vec<(String, Mode)>,
    /// The daemon's own lane learns constants from what it observes.
    pub learn: bool,
    /// Keeps what the daemon's own lane learned, else what its runs did by this profile.
    pub keeper: Option<Keeper>,
}

impl EngineOptions {
    /// On a machine with this profile; without a lane of the daemon's own.
    pub fn new(profile: HostProfile) -> EngineOptions {
        EngineOptions {
            profile,
            host_models: None,
            host_trace: None,
            modes: Vec::new(),
            learn: false,
            keeper: None,
        }
    }
}

/// Key of the daemon's own lane; the numbers of runs are random.
const HOST_LANE: u64 = 0;

/// Which lanes there are, and which of them keep a trace: that has each call, and none of its calls are coalesced.
#[derive(Debug, Default)]
pub struct Traces(Mutex<BTreeMap<u64, bool>>);

impl Traces {
    fn lanes(&self) -> MutexGuard<'_, BTreeMap<u64, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a trace is kept of the calls of this run's programs.
    pub fn have(&self, run: u64) -> bool {
        let lanes = self.lanes();
        [run, HOST_LANE].iter().any(|lane| lanes.get(lane) == Some(&true))
    }

    /// True while this run goes on.
    pub fn has_run(&self, run: u64) -> bool {
        run != HOST_LANE && self.lanes().contains_key(&run)
    }
}

/// The models, their books and their traces.
pub struct Engine {
    /// Of runs that name none.
    pub(crate) profile: HostProfile,
    /// Of the daemon's own lane.
    pub(crate) configured: HostProfile,
    lanes: BTreeMap<u64, Lane>,
    traces: Arc<Traces>,
    sessions: BTreeMap<u32, Open>,
    /// Lanes whose reports are being made.
    finishing: Vec<Finishing>,
    /// Who asked for a run and will ask for its report: without them, nobody ever ends it.
    owners: BTreeMap<u64, u32>,
    owners_seen: Time,
    /// Runs whose owner was gone and whose programs were not there at the latest look.
    orphans: Vec<u64>,
    pub(crate) last_sample: Option<Sample>,
    pub(crate) observed: Observed,
    /// The machine as it was last looked at, and who is told when it may have changed.
    facts: HostFacts,
    stale: Arc<Notify>,
    /// Devices (`st_dev`) that the facts have been looked through for.
    known_devices: BTreeSet<u64>,
    learn: bool,
    /// Of runs; what the daemon's own lane sees is not learned twice.
    keeper: Option<Keeper>,
    modes: Vec<(String, Mode)>,
    pub(crate) started: Time,
    pub(crate) states: States,
    /// Of sessions that ended.
    drops: u64,
}

/// A run whose report is being made.
struct Finishing {
    run: u64,
    /// That it is wanted now.
    hurry: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

/// A session that has not ended.
#[derive(Default)]
struct Open {
    /// Which lanes its records go to: its run's, and the daemon's own.
    lanes: [Option<u64>; 2],
    /// Events lost so far.
    dropped: u64,
}

impl Engine {
    /// An engine with the daemon's own lane, if it is to have one.
    pub fn new(options: EngineOptions) -> anyhow::Result<Engine> {
        let facts = cawl_host::facts();
        let mut engine = Engine {
            configured: options.profile.clone(),
            profile: options.profile,
            lanes: BTreeMap::new(),
            traces: Arc::default(),
            sessions: BTreeMap::new(),
            finishing: Vec::new(),
            owners: BTreeMap::new(),
            owners_seen: Time(0),
            orphans: Vec::new(),
            last_sample: cawl_host::sample(),
            observed: Observed::default(),
            known_devices: facts.filesystems.iter().map(|filesystem| filesystem.dev).collect(),
            facts,
            stale: Arc::default(),
            learn: options.learn,
            keeper: options.keeper,
            modes: options.modes,
            started: cawl_host::now(),
            states: States::default(),
            drops: 0,
        };
        if let Some(models) = options.host_models {
            let trace =
                options.host_trace.as_deref().map(create_trace).transpose().map_err(anyhow::Error::msg)?;
            let analysis = engine.analysis_options(models);
            let lane = Lane::new(&engine.profile, &analysis, trace, engine.facts_now())?;
            let keeper = engine.keeper.take().filter(|_| engine.learn);
            let lane = lane.with_books(&engine.profile).with_keeper(keeper);
            engine.insert(HOST_LANE, lane);
        }
        Ok(engine)
    }

    fn insert(&mut self, run: u64, lane: Lane) {
        self.traces.lanes().insert(run, lane.has_trace());
        self.lanes.insert(run, lane);
    }

    fn remove(&mut self, run: u64) -> Option<Lane> {
        self.traces.lanes().remove(&run);
        self.lanes.remove(&run)
    }

    /// Which lanes keep a trace, now and later.
    pub fn traces(&self) -> Arc<Traces> {
        Arc::clone(&self.traces)
    }

    /// Notified when the machine is to be looked at again, for [`Input::Host`].
    pub fn stale(&self) -> Arc<Notify> {
        Arc::clone(&self.stale)
    }

    /// What the daemon's own lane keeps: all models in lockstep, and the modes asked for besides.
    fn analysis_options(&self, models: Vec<String>) -> AnalysisOptions {
        let (besides, learn) = (self.modes.clone(), self.learn);
        AnalysisOptions { models, mode: Mode::Lockstep, besides, learn, as_calibrated: false }
    }

    /// Works until told to stop, or until nobody can tell it anything any more.
    pub async fn work(mut self, mut inputs: mpsc::Receiver<Input>, mut questions: mpsc::Receiver<Question>) {
        loop {
            // In no order: neither calls nor questions can keep the engine from the other.
            let input = tokio::select! {
                Some(question) = questions.recv() => {
                    question(&mut self);
                    continue;
                }
                input = inputs.recv() => input,
            };
            let Some(input) = input else { return };
            let (input, _room) = match input {
                Input::OfGuest { input, room } => (*input, Some(room)),
                own => (own, None),
            };
            match input {
                // They are packed once.
                Input::OfGuest { .. } => {}
                Input::Begin { session, run } => self.begin(session, run),
                Input::Events { session, batch, dropped } => self.events(session, batch, dropped),
                Input::File { session, file } => self.file(session, &file),
                Input::End { session, goodbye, wchar, dropped } => self.end(session, goodbye, wchar, dropped),
                Input::Note { run, note } => self.note(run, &note),
                Input::Sample(sample) => {
                    self.last_sample = Some(sample);
                    for lane in self.lanes.values_mut() {
                        lane.push(Source::Samples, sample.time, Record::Sample(sample));
                    }
                }
                Input::Memory(memory) => {
                    for lane in self.lanes.values_mut() {
                        lane.push(Source::Samples, memory.time, Record::Memory(memory.clone()));
                    }
                }
                Input::Observed(observed) => self.observe(*observed),
                Input::Tick => self.tick(&mut questions),
                Input::Host(facts) => self.look_at_host(*facts),
                Input::BeginRun(BeginRun { spec, trace, owner, reply }) => {
                    drop(reply.send(self.begin_run(&spec, trace, owner)));
                }
                Input::EndRun { run, end, reply } => self.end_run(run, end, false, reply),
                Input::Stop { reply } => {
                    for finishing in std::mem::take(&mut self.finishing) {
                        drop(finishing.thread.join());
                    }
                    for (run, lane) in std::mem::take(&mut self.lanes) {
                        // Nobody reads these reports any more, but that a trace is not whole must be said.
                        for note in lane.finish(RunEnd::default(), &AtomicBool::new(false)).notes {
                            tracing::warn!(run, "{note}");
                        }
                    }
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    fn observe(&mut self, observed: Observed) {
        self.lanes.values_mut().for_each(|lane| lane.paused(observed.paused));
        self.observed = observed;
    }

    /// The machine was looked at again: tells the lanes what has changed.
    fn look_at_host(&mut self, facts: HostFacts) {
        let lasting = |facts: &HostFacts| (facts.filesystems.clone(), facts.dirty_settings.clone());
        if lasting(&facts) != lasting(&self.facts) {
            for lane in self.lanes.values_mut() {
                lane.take(Record::Host(Box::new(facts.clone())));
            }
        }
        self.known_devices.extend(facts.filesystems.iter().map(|filesystem| filesystem.dev));
        self.facts = facts;
    }

    /// The facts for a lane that begins: what changes all the time, as it was last seen.
    fn facts_now(&self) -> HostFacts {
        let mut facts = self.facts.clone();
        (facts.started, facts.wall_clock) = (cawl_host::now(), cawl_host::wall_clock());
        facts.available = self.observed.available.unwrap_or(facts.available);
        if let Some(limits) = self.last_sample.map(|sample| sample.limits(Bytes(facts.page))) {
            (facts.background, facts.hard) = (limits.background, limits.hard);
        }
        facts
    }

    /// A session's file is named.
    fn file(&mut self, session: u32, file: &FileFacts) {
        // One on a device that was not there before: a filesystem was mounted meanwhile.
        let is_regular = FileKind::from_mode(file.mode) == FileKind::Regular;
        if is_regular && self.known_devices.insert(file.dev) {
            self.stale.notify_one();
        }
        self.each_lane(session, |lane| lane.take(Record::File(file.clone())));
    }

    /// The lane that is asked: the daemon's own, else that of the one run it serves.
    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lanes.values().next()
    }

    /// Programs connected.
    pub(crate) fn clients(&self) -> u64 {
        self.sessions.len() as u64
    }

    /// Events lost since the start.
    pub(crate) fn drops(&self) -> u64 {
        self.drops + self.sessions.values().map(|open| open.dropped).sum::<u64>()
    }

    /// The processes of a run that may go on.
    pub(crate) fn processes_of(&self, run: u64) -> Vec<RunProcess> {
        let lane = self.lanes.get(&run).filter(|_| run != HOST_LANE);
        lane.map(Lane::processes).unwrap_or_default()
    }

    /// Ends a run; with `hurry` without what has not been taken yet. No answer if it was ended before: its report
    /// is then hurried.
    pub(crate) fn end_run(
        &mut self,
        run: u64,
        end: RunEnd,
        hurry: bool,
        reply: oneshot::Sender<Option<Report>>,
    ) {
        self.owners.remove(&run);
        let lane = (run != HOST_LANE).then(|| self.remove(run)).flatten();
        let Some(lane) = lane else {
            let ended = self.finishing.iter().filter(|finishing| hurry && finishing.run == run);
            ended.for_each(|finishing| finishing.hurry.store(true, Ordering::Relaxed));
            return drop(reply.send(None));
        };
        self.finish(run, lane, end, hurry, reply);
    }

    /// Ends a lane. What waits is taken and the report made by a thread of its own, so that a run with a backlog
    /// and a hundred thousand files holds up nobody.
    fn finish(
        &mut self,
        run: u64,
        lane: Lane,
        end: RunEnd,
        hurry: bool,
        reply: oneshot::Sender<Option<Report>>,
    ) {
        self.finishing.retain(|finishing| !finishing.thread.is_finished());
        let hurry = Arc::new(AtomicBool::new(hurry));
        let hurried = Arc::clone(&hurry);
        let finish = move || drop(reply.send(Some(lane.finish(end, &hurried))));
        match std::thread::Builder::new().name("cawl-report".to_owned()).spawn(finish) {
            Ok(thread) => self.finishing.push(Finishing { run, hurry, thread }),
            // The asker sees that there is no answer.
            Err(error) => tracing::error!("a report could not be made: {error}"),
        }
    }

    fn begin(&mut self, session: Session, run: u64) {
        let run = (run != HOST_LANE && self.lanes.contains_key(&run)).then_some(run);
        let host = self.lanes.contains_key(&HOST_LANE).then_some(HOST_LANE);
        self.sessions.insert(session.id, Open { lanes: [run, host], ..Open::default() });
        self.each_lane(session.id, |lane| lane.begin(session.clone()));
    }

    fn events(&mut self, session: u32, batch: Batch, dropped: u64) {
        let Some(open) = self.sessions.get_mut(&session) else { return };
        open.dropped = dropped;
        let calls = Arc::new(batch.events);
        for lane in open.lanes.into_iter().flatten() {
            let Some(lane) = self.lanes.get_mut(&lane) else { continue };
            lane.dropped(session, dropped);
            lane.hold_calls(session, &calls);
            batch.coalesced.iter().for_each(|calls| lane.coalesced(session, calls));
        }
    }

    fn end(&mut self, session: u32, goodbye: Option<Goodbye>, wchar: Wchar, dropped: u64) {
        let end = match goodbye {
            Some(goodbye) => SessionEnd {
                id: session,
                at: Time(goodbye.at),
                how: match goodbye.ended {
                    Ended::Exit => EndKind::Exit,
                    Ended::QuickExit => EndKind::QuickExit,
                    Ended::Exec => EndKind::Exec,
                    Ended::Abort => EndKind::Abort,
                },
                wchar: goodbye.wchar.into(),
                pending: goodbye.pending,
                dropped,
                unseen: goodbye.unseen,
            },
            None => SessionEnd {
                id: session,
                at: cawl_host::now(),
                how: EndKind::Vanished,
                wchar,
                pending: 0,
                dropped,
                unseen: 0,
            },
        };
        self.drops = self.drops.saturating_add(dropped);
        self.each_lane(session, |lane| lane.end(end));
        self.sessions.remove(&session);
    }

    fn note(&mut self, run: u64, note: &str) {
        for key in BTreeSet::from([run, HOST_LANE]) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.take(Record::Note(note.to_owned()));
            }
        }
    }

    fn tick(&mut self, questions: &mut mpsc::Receiver<Question>) {
        let clocks = Clocks::now();
        let until = Time(clocks.monotonic.0.saturating_sub(HOLD.get() as u64));
        let keys: Vec<u64> = self.lanes.keys().copied().collect();
        for key in keys {
            while self.lanes.get_mut(&key).is_some_and(|lane| !lane.release(until, PIECE)) {
                for _ in 0..QUESTIONS_A_PIECE {
                    let Ok(question) = questions.try_recv() else { break };
                    question(self);
                }
            }
        }
        let drops = self.drops();
        for lane in self.lanes.values_mut() {
            lane.pass(&clocks, drops);
            lane.flush();
        }
        if until.since(self.owners_seen) >= OWNERS_EVERY {
            self.owners_seen = until;
            self.end_orphans();
        }
    }

    /// Ends runs whose `cawl-cli` was killed, once their programs have ended too: nobody else will.
    fn end_orphans(&mut self) {
        let gone = self.owners.iter().filter(|(_, pid)| !cawl_host::is_running(**pid)).map(|(run, _)| *run);
        let idle = gone.filter(|run| !self.lanes.get(run).is_some_and(Lane::is_in_use)).collect::<Vec<_>>();
        // Twice in a row, because a program's first words may still be on their way.
        let before = std::mem::replace(&mut self.orphans, idle.clone());
        for run in idle.into_iter().filter(|run| before.contains(run)) {
            self.owners.remove(&run);
            if let Some(lane) = self.remove(run) {
                tracing::info!(run, "a run was given up by its cawl-cli; its trace is closed");
                let notes = vec!["cawl-cli was killed before it could end this run".to_owned()];
                // Nobody is left to read the report.
                let end = RunEnd { notes, ..RunEnd::default() };
                self.finish(run, lane, end, false, oneshot::channel().0);
            }
        }
    }

    fn each_lane(&mut self, session: u32, mut act: impl FnMut(&mut Lane)) {
        let lanes = self.sessions.get(&session).map(|open| open.lanes).unwrap_or_default();
        for key in lanes.into_iter().flatten() {
            if let Some(lane) = self.lanes.get_mut(&key) {
                act(lane);
            }
        }
    }

    /// A number that nobody can guess: a process of another user that shows it has it from the run.
    fn new_run(&self) -> rustix::io::Result<u64> {
        loop {
            let mut bytes = [0; 8];
            let filled = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
            let run = u64::from_le_bytes(bytes);
            if filled == bytes.len() && run != HOST_LANE && !self.lanes.contains_key(&run) {
                return Ok(run);
            }
        }
    }

    fn begin_run(
        &mut self,
        spec: &RunSpec,
        trace: Option<TraceFile>,
        owner: Option<u32>,
    ) -> Result<u64, String> {
        let profile = match &spec.profile {
            Some(text) => HostProfile::from_toml(text).map_err(|error| error.to_string())?,
            None => self.profile.clone(),
        };
        let options = AnalysisOptions {
            models: spec.models.clone(),
            mode: Mode::Assimilated,
            learn: spec.learn,
            as_calibrated: true,
            besides: Vec::new(),
        };
        let lane =
            Lane::new(&profile, &options, trace, self.facts_now()).map_err(|error| error.to_string())?;
        let keeps = spec.learn && spec.profile.is_none();
        let lane = lane.with_keeper(self.keeper.clone().filter(|_| keeps));
        // Settings may have changed, of which nobody is told.
        self.stale.notify_one();
        let run = self.new_run().map_err(|error| format!("the kernel has no random number: {error}"))?;
        self.insert(run, lane);
        self.owners.extend(owner.map(|pid| (run, pid)));
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::Outcome;
    use cawl_wire::{Event, Op};

    use super::*;

    /// A daemon's engine with one session, outside any run.
    fn engine() -> Engine {
        let profile = HostProfile::uncalibrated();
        let options = EngineOptions { host_models: Some(Vec::new()), ..EngineOptions::new(profile) };
        let mut engine = Engine::new(options).unwrap();
        engine.begin(Session { id: 1, pid: u32::MAX, ..Session::default() }, HOST_LANE);
        engine
    }

    fn writes(count: usize) -> Batch {
        Batch { events: vec![Event::new(Op::Write); count], ..Batch::default() }
    }

    fn finished(engine: &mut Engine, run: u64) -> Report {
        engine.lanes.remove(&run).unwrap().finish(RunEnd::default(), &AtomicBool::new(false))
    }

    fn report(engine: &mut Engine) -> Report {
        finished(engine, HOST_LANE)
    }

    #[test]
    fn what_a_running_program_lost_is_told_before_its_end() {
        let mut engine = engine();
        engine.events(1, writes(1), 5);
        assert_eq!(engine.drops(), 5);
        let report = report(&mut engine);
        assert_eq!((report.calls, report.drops, report.sessions[0].ended), (1, 5, EndKind::Running));
    }

    #[test]
    fn what_is_left_out_in_a_hurry_is_told_and_sessions_end() {
        let mut engine = engine();
        engine.events(1, writes(5), 0);
        engine.end(1, None, Wchar::default(), 2);
        let lane = engine.lanes.remove(&HOST_LANE).unwrap();
        let report = lane.finish(RunEnd::default(), &AtomicBool::new(true));
        assert_eq!((report.calls, report.drops, report.sessions[0].ended), (0, 2, EndKind::Vanished));
        assert!(report.notes[0].ends_with("5 are not in it"), "{:?}", report.notes);
    }

    #[test]
    fn processes_that_go_on_are_told_only_at_a_program_s_end() {
        let mut engine = engine();
        let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
        for (id, pid) in [(2, std::process::id()), (3, 1 << 30)] {
            let program = "/bin/a".to_owned();
            engine.begin(Session { id, pid, program, ..Session::default() }, run);
        }
        assert_eq!(engine.processes_of(run).len(), 2);
        assert!(engine.processes_of(HOST_LANE).is_empty());
        let outcome = Outcome { pid: 1 << 30, code: Some(0), signal: None, wchar: None };
        let more = RunProcess { pid: 1, program: "b".to_owned() };
        let end = RunEnd { outcome: Some(outcome), notes: Vec::new(), running: vec![more] };
        let ended = engine.lanes.remove(&run).unwrap().finish(end, &AtomicBool::new(false));
        let expected = format!("b (pid 1), /bin/a (pid {})", std::process::id());
        let note = &ended.notes[0];
        assert!(note.starts_with("2 processes still ran") && note.ends_with(&expected), "{note}");
        assert!(report(&mut engine).notes.is_empty());
    }

    #[test]
    fn losses_are_counted_once() {
        let mut engine = engine();
        engine.events(1, Batch::default(), 5);
        engine.end(1, None, Wchar::default(), 7);
        assert_eq!(engine.drops(), 7);
        assert_eq!(report(&mut engine).drops, 7);
    }

    #[test]
    fn a_note_is_taken_once_by_each_lane() {
        let mut engine = engine();
        let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
        engine.note(HOST_LANE, "a");
        engine.note(run, "b");
        assert_eq!(report(&mut engine).notes, ["a", "b"]);
        assert_eq!(finished(&mut engine, run).notes, ["b"]);
    }

    #[test]
    fn the_machine_is_looked_at_once_for_all_and_only_changes_are_told() {
        let mut engine = engine();
        let looks = engine.stale();
        let wanted = || is_there(looks.notified());
        assert!(!wanted());
        let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
        assert!(wanted() && !wanted());
        let file = |dev| FileFacts {
            dev,
            ino: 1,
            birth: 0,
            renamed: false,
            size: Bytes(0),
            block: 0,
            mode: 0o100_644,
            path: "/f".into(),
        };
        // Two files on a device that nobody knows.
        engine.file(1, &file(u64::MAX));
        engine.file(1, &file(u64::MAX));
        assert!(wanted() && !wanted());
        let mut facts = engine.facts.clone();
        facts.available = Bytes(1);
        engine.look_at_host(facts.clone());
        let told = |engine: &Engine, run: u64| engine.lanes[&run].analysis().report().host.unwrap();
        assert_ne!(told(&engine, run).available, Bytes(1), "memory is always another");
        let new = cawl_core::Filesystem { dev: 5, mount: "/new".into(), ..Default::default() };
        facts.filesystems.push(new);
        engine.look_at_host(facts.clone());
        for lane in [HOST_LANE, run] {
            assert_eq!(told(&engine, lane), facts);
        }
        // Whoever comes later knows it, too, and nobody looks for it.
        let later = engine.begin_run(&RunSpec::default(), None, None).unwrap();
        assert_eq!(told(&engine, later).filesystems, facts.filesystems);
        assert!(wanted());
        engine.file(1, &file(5));
        assert!(!wanted());
    }

    /// True if it is there now.
    fn is_there(future: impl Future) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(future).poll(&mut context).is_ready()
    }

    #[test]
    fn a_run_ends_when_neither_its_owner_nor_a_program_is_left() {
        let mut engine = engine();
        let gone = u32::MAX;
        let run = engine.begin_run(&RunSpec::default(), None, Some(gone)).unwrap();
        let kept = engine.begin_run(&RunSpec::default(), None, Some(std::process::id())).unwrap();
        engine.begin(Session { id: 2, pid: gone, ..Session::default() }, run);
        engine.end_orphans();
        assert!(engine.lanes.contains_key(&run), "a program still reports to it");
        engine.end(2, None, Wchar::default(), 0);
        engine.end_orphans();
        assert!(engine.lanes.contains_key(&run), "its first words may be on their way");
        engine.end_orphans();
        assert!(!engine.lanes.contains_key(&run) && engine.lanes.contains_key(&kept));
    }
}
