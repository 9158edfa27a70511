//! The one thread that runs the models: everything reaches it as [`Input`], in order. Only questions
//! overtake: the engine looks at them between small pieces of work, so an answer never waits for a backlog of
//! calls.

pub mod answers;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cawl_client::protocol::RunEnd;
use cawl_core::{
    AnalysisOptions, Bytes, EndKind, FileFacts, HostFacts, HostProfile, MemoryFacts, Mode, Nanos, Record,
    Report, Sample, Session, SessionEnd, Time, Wchar,
};
use cawl_host::clock::Clocks;
use cawl_host::profiles::Keeper;
use cawl_wire::{Ended, FileKind, Goodbye};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};

use crate::batch::Batch;
use crate::lane::Lane;
use crate::merge::Source;
use crate::sampler::Observed;
use answers::States;
pub use runs::begin_run;
use runs::{BeginRun, Finishing, create_trace};

/// How long calls are held back so that those of other threads can be put before them. Tracers send
/// what is older than 50 ms at their next call.
const HOLD: Nanos = Nanos::millis(150.0);

/// Calls that a lane holds at most: 48 MB. More come only from programs that make 3.3 million calls a second
/// or more. Then the earliest are released before their time, and what is not read yet stays in the rings.
const MOST_HELD: usize = 500_000;

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
    /// What else sampling found.
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
    /// Modes of models that the daemon's own lane keeps for questions, in addition to all models in lockstep.
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

/// Which lanes there are, and which of them keep a trace: that has each call, and none of its calls are
/// coalesced.
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
    /// The process that asked for a run and will ask for its report; if it is gone, the run must be ended
    /// here.
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
            let lane = lane.with_tables(&engine.profile).with_keeper(keeper);
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

    /// What the daemon's own lane keeps: all models in lockstep, and further modes of models.
    fn analysis_options(&self, models: Vec<String>) -> AnalysisOptions {
        let (besides, learn) = (self.modes.clone(), self.learn);
        AnalysisOptions { models, mode: Mode::Lockstep, besides, learn, as_calibrated: false }
    }

    /// Works until told to stop, or until all senders are gone.
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
                Input::Events { session, batch, dropped } => {
                    self.events(session, batch, dropped);
                    self.release(&mut questions, |lane| {
                        lane.held() <= MOST_HELD || lane.release(Time(u64::MAX), PIECE)
                    });
                }
                Input::File { session, file } => self.file(session, &file),
                Input::End { session, goodbye, wchar, dropped } => self.end(session, goodbye, wchar, dropped),
                Input::Note { run, note } => self.note(run, &note),
                Input::Sample(sample) => {
                    self.last_sample = Some(sample);
                    for lane in self.lanes.values_mut() {
                        lane.hold(Source::Samples, sample.time, Record::Sample(sample));
                    }
                }
                Input::Memory(memory) => {
                    for lane in self.lanes.values_mut() {
                        lane.hold(Source::Samples, memory.time, Record::Memory(memory.clone()));
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
                        // These reports are not read any more, but that a trace is not whole must be said.
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
                lane.analyse(Record::Host(Box::new(facts.clone())));
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
        self.each_lane(session, |lane| lane.analyse(Record::File(file.clone())));
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
                lane.analyse(Record::Note(note.to_owned()));
            }
        }
    }

    /// Releases records of each lane, piece by piece, until `is_done`; answers questions between the pieces.
    fn release(&mut self, questions: &mut mpsc::Receiver<Question>, is_done: impl Fn(&mut Lane) -> bool) {
        let keys: Vec<u64> = self.lanes.keys().copied().collect();
        for key in keys {
            while self.lanes.get_mut(&key).is_some_and(|lane| !is_done(lane)) {
                for _ in 0..QUESTIONS_A_PIECE {
                    let Ok(question) = questions.try_recv() else { break };
                    question(self);
                }
            }
        }
    }

    fn tick(&mut self, questions: &mut mpsc::Receiver<Question>) {
        let clocks = Clocks::now();
        let until = Time(clocks.monotonic.0.saturating_sub(HOLD.get() as u64));
        self.release(questions, |lane| lane.release(until, PIECE));
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

    fn each_lane(&mut self, session: u32, mut act: impl FnMut(&mut Lane)) {
        let lanes = self.sessions.get(&session).map(|open| open.lanes).unwrap_or_default();
        for key in lanes.into_iter().flatten() {
            if let Some(lane) = self.lanes.get_mut(&key) {
                act(lane);
            }
        }
    }
}

#[cfg(test)]
mod tests;
