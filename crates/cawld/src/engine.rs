//! The thread that runs the models: it gets everything as [`Input`], in order. Only questions overtake: the
//! engine reads them after every few records, so an answer never waits for a backlog of calls.

pub mod answers;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use cawl_client::protocol::{RunEnd, Status, View};
use cawl_core::{
    AnalysisOptions, Bytes, Doubt, EndKind, FileFacts, HostFacts, HostProfile, Mode, Nanos, Record, RunDelay,
    Sample, Session, SessionEnd, Stack, StackOptions, Time,
};
use cawl_host::allowance;
use cawl_host::clock::Clocks;
use cawl_host::profiles::Keeper;
use cawl_wire::{Ended, FileKind, Goodbye, Op};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};

use crate::batch::Batch;
use crate::calls_to::{CallsOptions, CallsTo};
use crate::devices::Devices;
use crate::lane::Lane;
use crate::lock;
use crate::merge::Source;
use crate::otlp_to::{OtlpOptions, OtlpTo};
use crate::query_tables::QueryTables;
use crate::sampler::Observed;
use crate::sums_to::{SumsOptions, SumsTo};
use crate::watch::{Watch, WatchOptions};
use answers::States;
use runs::Finishing;
pub use runs::{OF_A_UNIT, begin_run, create_trace, end_run};

/// Calls are held for this time, so that those of other threads can be sorted before them. Tracers send calls
/// older than 50 ms at their next call.
const HOLD: Nanos = Nanos::millis(150.0);

/// Up to when held calls are released, by the times of the ticks so far: [`HOLD`] ago. Who gets no processor
/// for longer has read no ring either, so that it is not after the last tick but one, since which every ring
/// was read: counters of the kernel would come before the calls that they count.
#[derive(Default)]
pub struct Ticks([Time; 2]);

impl Ticks {
    /// The tick of now.
    pub fn tick(&mut self, now: Time) -> Time {
        let [before, last] = self.0;
        self.0 = [last, now];
        before.min(Time(now.0.saturating_sub(HOLD.get() as u64)))
    }
}

/// Calls that a lane holds at most: 48 MB. More come only from programs that make 3.3 million calls a second
/// or more. Then the earliest are released before their time, and what is not read yet stays in the rings.
const MAX_HELD: usize = 500_000;

/// Interval of checks whether the owners of runs are still running.
const OWNERS_EVERY: Nanos = Nanos::millis(1000.0);

/// Devices that the machine's facts are read again for.
const DEVICES: usize = 1024;

/// Records processed between two reads of the questions.
const PIECE: usize = 64;

/// Time for questions after such a piece, at least: else they get as much as it took. So neither calls nor
/// questions can keep the engine from the other.
const ANSWERING: Duration = Duration::from_millis(1);

/// A question: a look-up in the engine. It must be quick, because the models wait; the asker does the rest of
/// the work.
pub type Question = Box<dyn FnOnce(&mut Engine) + Send>;

/// The engine's inputs.
pub enum Input {
    /// Calls of a process. `dropped`: events lost so far.
    Events {
        session: u32,
        batch: Batch,
        dropped: u64,
    },
    File {
        session: u32,
        file: FileFacts,
    },
    /// A note for the report of a session's run.
    Note {
        run: u64,
        note: String,
    },
    /// All else that happened: sessions and runs that begin or end, the kernel's counters.
    Act(Box<dyn FnOnce(&mut Engine) + Send + Sync>),
    /// Time to release held calls from before this.
    Tick(Time),
    /// An input of another user's process; its permit frees room in that user's queue.
    OfGuest {
        input: Box<Input>,
        room: OwnedSemaphorePermit,
    },
    /// Finish every trace and end; once there is [`Engine::hurry`], without the calls not processed yet.
    Stop {
        reply: oneshot::Sender<()>,
    },
}

impl Input {
    /// What the engine does in its turn.
    pub fn act(act: impl FnOnce(&mut Engine) + Send + Sync + 'static) -> Input {
        Input::Act(Box::new(act))
    }
}

/// The engine's options.
pub struct EngineOptions {
    /// The machine's profile.
    pub profile: HostProfile,
    /// Models of the daemon's own lane; None: no such lane, as inside `cawl-cli run`.
    pub host_models: Option<Vec<String>>,
    /// Trace of the daemon's own lane.
    pub host_trace: Option<PathBuf>,
    /// Anomalies of which excerpts of the daemon's own lane are kept.
    pub watch: Option<WatchOptions>,
    /// Modes of models that the daemon's own lane keeps for questions, in addition to all models in lockstep.
    pub modes: Vec<(String, Mode)>,
    /// True if the daemon's own lane learns constants.
    pub learn: bool,
    /// Keeps the constants learned by the daemon's own lane, else by runs with this profile.
    pub keeper: Option<Keeper>,
    /// Which calls of the daemon's own lane have their stack copied.
    pub stacks: Option<StackOptions>,
    /// Tables of the calls of the daemon's own lane.
    pub calls: Option<CallsOptions>,
    /// Sums of them by minute.
    pub sums: Option<SumsOptions>,
    /// Metrics, and spans of them, for a collector of OpenTelemetry.
    pub otlp: Option<OtlpOptions>,
}

impl EngineOptions {
    /// On a machine with this profile; without a lane of the daemon's own.
    pub fn new(profile: HostProfile) -> EngineOptions {
        EngineOptions {
            profile,
            host_models: None,
            host_trace: None,
            watch: None,
            modes: Vec::new(),
            learn: false,
            keeper: None,
            stacks: None,
            calls: None,
            sums: None,
            otlp: None,
        }
    }
}

/// Key of the daemon's own lane; the numbers of runs are random.
const HOST_LANE: u64 = 0;

/// The lanes, and what each wants of tracers.
#[derive(Debug, Default)]
pub struct Traces(Mutex<BTreeMap<u64, Wants>>);

/// What a lane wants of tracers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wants {
    /// It keeps a trace, excerpts or a table: these have each call, so none of its calls are coalesced.
    each: bool,
    stacks: Option<StackOptions>,
}

impl Traces {
    /// True if a trace is kept of this run's calls.
    pub fn have(&self, run: u64) -> bool {
        let lanes = lock(&self.0);
        [run, HOST_LANE].iter().any(|lane| lanes.get(lane).is_some_and(|wants| wants.each))
    }

    /// Which calls of this run have their stack copied: all that the run wants, and the daemon's own lane.
    pub fn stacks(&self, run: u64) -> Option<StackOptions> {
        let lanes = lock(&self.0);
        let wanted = [run, HOST_LANE].into_iter().filter_map(|lane| lanes.get(&lane)?.stacks);
        wanted.reduce(|one, other| StackOptions {
            threshold: if other.threshold.get() < one.threshold.get() {
                other.threshold
            } else {
                one.threshold
            },
            one_in: one.one_in.min(other.one_in),
        })
    }

    /// True until this run ends.
    pub fn has_run(&self, run: u64) -> bool {
        run != HOST_LANE && lock(&self.0).contains_key(&run)
    }
}

/// The models, their sums and their traces.
pub struct Engine {
    /// As it was started, with the profile of the daemon's own lane. The keeper is for runs: calls of the
    /// daemon's own lane are not learned twice.
    options: EngineOptions,
    /// The profile of runs that name none.
    pub(crate) profile: HostProfile,
    lanes: BTreeMap<u64, Lane>,
    /// The lanes that keep a trace, now and later.
    pub traces: Arc<Traces>,
    sessions: BTreeMap<u32, Open>,
    /// Lanes whose reports are being made.
    finishing: Vec<Finishing>,
    /// Set when the daemon must end at once, whatever waits before [`Input::Stop`]: held calls are left out.
    pub hurry: Arc<AtomicBool>,
    /// The process that asked for a run and will ask for its report; if it has ended, the run is ended here.
    owners: BTreeMap<u64, u32>,
    owners_seen: Time,
    /// Runs without owner and programs at the last check.
    orphans: Vec<u64>,
    pub(crate) last_sample: Option<Sample>,
    pub(crate) observed: Observed,
    /// The machine's facts as last read, and the notification that they may have changed.
    pub(crate) facts: HostFacts,
    /// Notified when the machine's facts are to be read again, for [`Input::Host`].
    pub stale: Arc<Notify>,
    /// Devices (`st_dev`) known from the facts.
    known_devices: BTreeSet<u64>,
    /// The counters of those that are written to.
    devices: Devices,
    pub(crate) started: Time,
    pub(crate) states: States,
    /// In the place of those of a run's lane, which has none.
    no_tables: QueryTables,
    /// Events lost by ended sessions.
    drops: u64,
}

#[derive(Default)]
struct Open {
    /// The lanes of its records: its run's, and the daemon's own.
    lanes: [Option<u64>; 2],
    /// Events lost so far.
    dropped: u64,
}

impl Engine {
    /// An engine, with the daemon's own lane if it has models.
    pub fn new(options: EngineOptions) -> anyhow::Result<Engine> {
        let facts = cawl_host::facts();
        let mut engine = Engine {
            profile: options.profile.clone(),
            options,
            lanes: BTreeMap::new(),
            traces: Arc::default(),
            sessions: BTreeMap::new(),
            finishing: Vec::new(),
            hurry: Arc::default(),
            owners: BTreeMap::new(),
            owners_seen: Time(0),
            orphans: Vec::new(),
            last_sample: cawl_host::sample(),
            observed: Observed::default(),
            known_devices: facts.filesystems.iter().map(|filesystem| filesystem.dev).collect(),
            devices: Devices::default(),
            facts,
            stale: Arc::default(),
            started: cawl_host::now(),
            states: States::default(),
            no_tables: QueryTables::default(),
            drops: 0,
        };
        if let Some(models) = engine.options.host_models.take() {
            let trace = engine.options.host_trace.as_deref().map(create_trace).transpose();
            let trace =
                trace.map_err(|error| anyhow::anyhow!("{}. {OF_A_UNIT}", allowance::with_remedy(&error)))?;
            let stacks = engine.options.stacks;
            let analysis = AnalysisOptions { stacks, ..engine.analysis_options(models) };
            let watch = engine.options.watch.take().map(Watch::start).transpose()?;
            let facts = engine.facts_now();
            let lane = Lane::new(&engine.profile, &analysis, trace, facts.clone())?;
            let mut lane = lane.with_watch(watch, &engine.profile, facts);
            let models = lane.analysis.models();
            let calls = engine.options.calls.take().map(|options| CallsTo::start(options, &models));
            lane.calls_to = calls.transpose().context("tables of calls cannot be written")?.map(Box::new);
            let sums = engine.options.sums.take().map(SumsTo::start);
            lane.sums_to = sums.transpose().context("sums cannot be written")?.map(Box::new);
            let otlp = engine.options.otlp.take().map(|options| OtlpTo::start(options, &engine.facts.host));
            lane.otlp_to = otlp.transpose().context("metrics cannot be written")?.map(Box::new);
            let keeper = engine.options.keeper.take().filter(|_| engine.options.learn);
            let lane = lane.with_tables(&engine.profile).with_keeper(keeper);
            engine.insert(HOST_LANE, lane);
        }
        Ok(engine)
    }

    fn insert(&mut self, run: u64, lane: Lane) {
        let wants = Wants { each: lane.has_each(), stacks: lane.stack_options };
        lock(&self.traces.0).insert(run, wants);
        self.lanes.insert(run, lane);
    }

    fn remove(&mut self, run: u64) -> Option<Lane> {
        lock(&self.traces.0).remove(&run);
        self.lanes.remove(&run)
    }

    /// Options of the daemon's own lane: all models in lockstep, and further modes.
    fn analysis_options(&self, models: Vec<String>) -> AnalysisOptions {
        let (for_questions, learn) = (self.options.modes.clone(), self.options.learn);
        AnalysisOptions { models, mode: Mode::Lockstep, for_questions, learn, ..AnalysisOptions::default() }
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
                // Never nested.
                Input::OfGuest { .. } => {}
                Input::Events { session, batch, dropped } => {
                    self.events(session, batch, dropped);
                    self.release(&mut questions, |lane| {
                        lane.merge.calls <= MAX_HELD || lane.release(Time(u64::MAX), PIECE)
                    });
                }
                Input::File { session, file } => self.file(session, &file),
                Input::Note { run, note } => self.note(run, &note),
                Input::Act(act) => act(&mut self),
                Input::Tick(until) => self.tick(until, &mut questions),
                Input::Stop { reply } => {
                    self.stop();
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    /// Ends all lanes, and waits for those that were ended before.
    fn stop(&mut self) {
        let hurry = Arc::clone(&self.hurry);
        if let Some(lane) = self.lanes.get_mut(&HOST_LANE).filter(|lane| lane.otlp_to.is_some()) {
            lane.take_rest(&hurry);
            if let Ok(status) = self.status(&View::default(), None) {
                self.tell(status, true);
            }
        }
        for (run, lane) in std::mem::take(&mut self.lanes) {
            // These reports are not read, but an incomplete trace must be logged.
            for note in lane.finish(RunEnd::default(), &self.hurry).notes {
                tracing::warn!(run, "{note}");
            }
        }
        for finishing in std::mem::take(&mut self.finishing) {
            finishing.wait(&self.hurry);
        }
    }

    /// Metrics and spans of now go to the collector; with `all` also processes that still run.
    pub(crate) fn tell(&mut self, status: Status, all: bool) {
        let lane = self.lanes.get_mut(&HOST_LANE);
        if let Some(otlp) = lane.and_then(|lane| lane.otlp_to.as_mut()) {
            otlp.tell(status, all);
        }
    }

    /// The kernel's counters, or free memory: held in each lane until its turn.
    pub(crate) fn hold(&mut self, time: Time, record: &Record) {
        for lane in self.lanes.values_mut() {
            lane.merge.push(Source::Samples, time, record.clone());
        }
        if let Record::Sample(sample) = record {
            self.last_sample = Some(*sample);
            // Calls of that time are held, or come later, so the devices' counters wait for no turn.
            let devices = self.lanes.values().map(|lane| lane.analysis.device()).filter(|dev| *dev != 0);
            for counters in self.devices.sample(time, &devices.collect()) {
                self.lanes.values_mut().for_each(|lane| lane.analyse(Record::Device(counters)));
            }
        }
    }

    /// Other results of sampling.
    pub(crate) fn observe(&mut self, observed: Observed) {
        self.lanes.values_mut().for_each(|lane| lane.paused(observed.paused));
        self.observed = observed;
    }

    /// The machine's facts were read again: gives the lanes the changes.
    pub(crate) fn look_at_host(&mut self, facts: HostFacts) {
        let lasting = |facts: &HostFacts| (facts.filesystems.clone(), facts.dirty_settings.clone());
        if lasting(&facts) != lasting(&self.facts) {
            for lane in self.lanes.values_mut() {
                lane.analyse(Record::Host(Box::new(facts.clone())));
            }
        }
        self.known_devices.extend(facts.filesystems.iter().map(|filesystem| filesystem.dev));
        self.facts = facts;
    }

    /// The facts for a new lane, with the latest values of those that always change.
    fn facts_now(&self) -> HostFacts {
        let mut facts = self.facts.clone();
        (facts.started, facts.wall_clock) = (cawl_host::now(), cawl_host::wall_clock());
        facts.available = self.observed.available.unwrap_or(facts.available);
        if let Some(limits) = self.last_sample.map(|sample| sample.limits(Bytes(facts.page))) {
            (facts.background, facts.hard) = (limits.background, limits.hard);
        }
        facts
    }

    fn file(&mut self, session: u32, file: &FileFacts) {
        // On an unknown device: a filesystem was mounted.
        let is_regular = FileKind::from_mode(file.mode) == FileKind::Regular;
        if is_regular && self.known_devices.len() < DEVICES && self.known_devices.insert(file.dev) {
            self.stale.notify_one();
        }
        self.each_lane(session, |lane| lane.analyse(Record::File(file.clone())));
    }

    /// The lane that answers: the daemon's own, else that of the one run it serves.
    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lanes.values().next()
    }

    /// Events lost since the start.
    pub(crate) fn drops(&self) -> u64 {
        self.drops + self.sessions.values().map(|open| open.dropped).sum::<u64>()
    }

    pub(crate) fn begin(&mut self, session: Session, run: u64) {
        let run = (run != HOST_LANE && self.lanes.contains_key(&run)).then_some(run);
        let host = self.lanes.contains_key(&HOST_LANE).then_some(HOST_LANE);
        self.sessions.insert(session.id, Open { lanes: [run, host], ..Open::default() });
        self.each_lane(session.id, |lane| lane.begin(session.clone()));
    }

    fn events(&mut self, session: u32, batch: Batch, dropped: u64) {
        let Some(open) = self.sessions.get_mut(&session) else { return };
        open.dropped = dropped;
        let mut events = batch.events;
        let doubts = events.extract_if(.., |event| event.op == Op::Uncertain);
        let doubts: Vec<Doubt> = doubts.map(|event| Doubt::of(&event)).collect();
        let calls = Arc::new(events);
        self.each_lane(session, |lane| {
            lane.hold_calls(session, &calls, dropped);
            batch.coalesced.iter().for_each(|calls| lane.coalesced(session, calls));
            doubts.iter().for_each(|doubt| lane.analyse(Record::Doubt(*doubt)));
        });
    }

    /// What the scheduler counted for threads of a process, up to now. Calls of that time are held, or come
    /// later, so the delays wait for no turn.
    pub(crate) fn run_delays(&mut self, session: u32, delays: &[RunDelay]) {
        self.each_lane(session, |lane| {
            delays.iter().for_each(|delay| lane.analyse(Record::RunDelay(*delay)));
        });
    }

    /// The functions of stacks were found.
    pub(crate) fn stacks(&mut self, session: u32, stacks: &[Arc<Stack>]) {
        self.each_lane(session, |lane| stacks.iter().for_each(|stack| lane.stack(stack)));
    }

    /// A session ended: as `end` has it if the process was killed, else with this goodbye.
    pub(crate) fn end(&mut self, mut end: SessionEnd, goodbye: Option<Goodbye>) {
        if let Some(goodbye) = goodbye {
            end.unseen = goodbye.unseen;
            end.how = match goodbye.ended {
                Ended::Exit => EndKind::Exit,
                Ended::QuickExit | Ended::Crowded => EndKind::QuickExit,
                Ended::Exec => EndKind::Exec,
                Ended::Abort => EndKind::Abort,
                Ended::Confined => EndKind::Confined,
            };
            // A confined one went on.
            if end.how != EndKind::Confined {
                (end.at, end.pending) = (Time(goodbye.at), goodbye.pending);
                (end.wchar, end.usage) = (goodbye.wchar.into(), Some(goodbye.usage.into()));
            }
        }
        self.drops = self.drops.saturating_add(end.dropped);
        self.each_lane(end.id, |lane| lane.end(end));
        self.sessions.remove(&end.id);
    }

    fn note(&mut self, run: u64, note: &str) {
        for key in BTreeSet::from([run, HOST_LANE]) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.analyse(Record::Note(note.to_owned()));
            }
        }
    }

    /// Releases records of each lane, piece by piece, until `is_done` or there is hurry; answers questions
    /// between the pieces.
    fn release(&mut self, questions: &mut mpsc::Receiver<Question>, is_done: impl Fn(&mut Lane) -> bool) {
        let keys: Vec<u64> = self.lanes.keys().copied().collect();
        for key in keys {
            loop {
                let began = Instant::now();
                let is_over =
                    self.hurry.load(Ordering::Relaxed) || self.lanes.get_mut(&key).is_none_or(&is_done);
                if is_over {
                    break;
                }
                let until = Instant::now() + began.elapsed().max(ANSWERING);
                while Instant::now() < until
                    && let Ok(question) = questions.try_recv()
                {
                    question(self);
                }
            }
        }
    }

    fn tick(&mut self, until: Time, questions: &mut mpsc::Receiver<Question>) {
        let clocks = Clocks::now();
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
