//! The one thread that runs the models: everything reaches it as [`Input`], in order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cawl_core::{
    EndKind, FileFacts, HostProfile, Nanos, Outcome, Record, Report, Sample, Session, SessionEnd, Time, Wchar,
};
use cawl_wire::{EVENT_LEN, Ended, Event, Goodbye};
use tokio::sync::{mpsc, oneshot};

use crate::host;
use crate::lane::Lane;
use crate::merge::Source;
use crate::query::{DeviceStatus, ProcessStatus, STATUS_SCHEMA, Status};
use crate::trace::TraceFile;

/// How long calls are held back so that those of other threads can be put before them. Tracers send
/// what is older than 50 ms at their next call.
const HOLD: Nanos = Nanos::millis(150.0);

/// What a `cawl-cli run` wants done with its program's calls.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct RunSpec {
    /// Models to run; all, if empty.
    pub models: Vec<String>,
    /// Profile as TOML; the daemon's own, if None.
    pub profile: Option<String>,
    /// Where to keep the trace: an absolute path.
    pub trace: Option<PathBuf>,
}

/// What can happen to the engine.
pub enum Input {
    /// A tracer introduced itself.
    Begin { session: Session, run: u64 },
    /// A batch of encoded events.
    Events { session: u32, batch: Vec<u8> },
    /// Which file an identity means.
    File { session: u32, file: FileFacts },
    /// A session is over. `goodbye` is missing when the process had no time for one; `wchar` is then the
    /// last figure anyone saw.
    End { session: u32, goodbye: Option<Goodbye>, wchar: Wchar, dropped: u64 },
    /// Something a report must say about a session's run.
    Note { run: u64, note: String },
    /// The kernel's counters.
    Sample(Sample),
    /// Time to release what was held back.
    Tick,
    /// A run wants a lane of its own.
    BeginRun { spec: RunSpec, reply: oneshot::Sender<Result<u64, String>> },
    /// A run wants its report.
    EndRun { run: u64, outcome: Option<Outcome>, notes: Vec<String>, reply: oneshot::Sender<Option<Report>> },
    /// Someone asks how things stand.
    Status { clients: u64, reply: oneshot::Sender<Status> },
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
}

/// Key of the daemon's own lane; runs count from 1.
const HOST_LANE: u64 = 0;

/// The models, their books and their traces.
pub struct Engine {
    profile: HostProfile,
    lanes: BTreeMap<u64, Lane>,
    /// Which lanes a session's records go to: its run's, and the daemon's own.
    sessions: BTreeMap<u32, [Option<u64>; 2]>,
    next_run: u64,
    last_sample: Option<Sample>,
    started: Time,
    drops: u64,
}

impl Engine {
    /// An engine with the daemon's own lane, if it is to have one.
    pub fn new(options: EngineOptions) -> anyhow::Result<Engine> {
        let mut engine = Engine {
            profile: options.profile,
            lanes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_run: HOST_LANE + 1,
            last_sample: host::sample(),
            started: host::now(),
            drops: 0,
        };
        if let Some(models) = options.host_models {
            let trace =
                options.host_trace.as_deref().map(create_trace).transpose().map_err(anyhow::Error::msg)?;
            engine.lanes.insert(HOST_LANE, Lane::new(&engine.profile, &models, trace)?);
        }
        Ok(engine)
    }

    /// Works until told to stop, or until nobody can tell it anything any more.
    pub fn work(mut self, mut inputs: mpsc::Receiver<Input>) {
        while let Some(input) = inputs.blocking_recv() {
            match input {
                Input::Begin { session, run } => self.begin(session, run),
                Input::Events { session, batch } => self.events(session, &batch),
                Input::File { session, file } => {
                    self.each_lane(session, |lane| lane.take(Record::File(file.clone())))
                }
                Input::End { session, goodbye, wchar, dropped } => self.end(session, goodbye, wchar, dropped),
                Input::Note { run, note } => {
                    for key in [run, HOST_LANE] {
                        if let Some(lane) = self.lanes.get_mut(&key) {
                            lane.take(Record::Note(note.clone()));
                        }
                    }
                }
                Input::Sample(sample) => {
                    self.last_sample = Some(sample);
                    for lane in self.lanes.values_mut() {
                        lane.push(Source::Samples, sample.time, Record::Sample(sample));
                    }
                }
                Input::Tick => self.tick(),
                Input::BeginRun { spec, reply } => drop(reply.send(self.begin_run(&spec))),
                Input::EndRun { run, outcome, notes, reply } => {
                    let lane = (run != HOST_LANE).then(|| self.lanes.remove(&run)).flatten();
                    drop(reply.send(lane.map(|lane| lane.finish(outcome, notes))));
                }
                Input::Status { clients, reply } => drop(reply.send(self.status(clients))),
                Input::Stop { reply } => {
                    for lane in std::mem::take(&mut self.lanes).into_values() {
                        lane.finish(None, Vec::new());
                    }
                    let _ = reply.send(());
                    return;
                }
            }
        }
    }

    fn begin(&mut self, session: Session, run: u64) {
        let run = (run != HOST_LANE && self.lanes.contains_key(&run)).then_some(run);
        let host = self.lanes.contains_key(&HOST_LANE).then_some(HOST_LANE);
        self.sessions.insert(session.id, [run, host]);
        self.each_lane(session.id, |lane| lane.begin(session.clone()));
    }

    fn events(&mut self, session: u32, batch: &[u8]) {
        let lanes = self.sessions.get(&session).copied().unwrap_or_default();
        let (records, _) = batch.as_chunks::<EVENT_LEN>();
        for lane in lanes.into_iter().flatten() {
            let Some(lane) = self.lanes.get_mut(&lane) else { continue };
            // Both ends speak the same version, so an unknown operation is a damaged record.
            let mut damaged = 0;
            lane.calls(
                session,
                records.iter().filter_map(|record| {
                    let call = Event::decode(record);
                    damaged += u64::from(call.is_none());
                    call
                }),
            );
            self.drops = self.drops.saturating_add(damaged);
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
                at: host::now(),
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

    fn tick(&mut self) {
        let until = Time((host::now().0).saturating_sub(HOLD.get() as u64));
        for lane in self.lanes.values_mut() {
            lane.release(until);
            lane.flush();
        }
    }

    fn each_lane(&mut self, session: u32, mut act: impl FnMut(&mut Lane)) {
        for key in self.sessions.get(&session).copied().unwrap_or_default().into_iter().flatten() {
            if let Some(lane) = self.lanes.get_mut(&key) {
                act(lane);
            }
        }
    }

    fn begin_run(&mut self, spec: &RunSpec) -> Result<u64, String> {
        let profile = match &spec.profile {
            Some(text) => HostProfile::from_toml(text).map_err(|error| error.to_string())?,
            None => self.profile.clone(),
        };
        let trace = spec.trace.as_deref().map(create_trace).transpose()?;
        let lane = Lane::new(&profile, &spec.models, trace).map_err(|error| error.to_string())?;
        let run = self.next_run;
        self.next_run += 1;
        self.lanes.insert(run, lane);
        Ok(run)
    }

    fn status(&mut self, clients: u64) -> Status {
        let now = host::now();
        self.last_sample = host::sample().or(self.last_sample);
        let page = self.profile.kernel.page;
        let lane = self.lanes.values().next();
        let state = lane.map(|lane| lane.state_at(now));
        let sampled = self.last_sample.map(|sample| sample.dirty_bytes(page).0);
        let limits = self.last_sample.map_or(self.profile.kernel.limits, |sample| sample.limits(page));
        Status {
            schema: STATUS_SCHEMA,
            model: lane.map(Lane::model).unwrap_or_default().to_owned(),
            profile: self.profile.name.clone(),
            modelled_dirty_bytes: state.map_or(0, |state| state.dirty.0),
            sampled_dirty_bytes: sampled,
            background_bytes: limits.background.0,
            hard_bytes: limits.hard.0,
            state: state.map(|state| state.phase).unwrap_or_default(),
            writeback_rate: state.and_then(|state| state.writeback).map(cawl_core::Rate::get),
            throttled_rate: state.and_then(|state| state.throttled).map(cawl_core::Rate::get),
            clients,
            drops: self.drops,
            uptime_s: now.since(self.started).as_seconds(),
            processes: lane.into_iter().flat_map(Lane::processes).map(ProcessStatus::new).collect(),
            devices: lane.into_iter().flat_map(|lane| DeviceStatus::list(lane.devices())).collect(),
        }
    }
}

fn create_trace(path: &std::path::Path) -> Result<TraceFile, String> {
    TraceFile::create(path).map_err(|error| format!("cannot write the trace {}: {error}", path.display()))
}
