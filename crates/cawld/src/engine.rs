//! The one thread that runs the models: everything reaches it as [`Input`], in order.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::trace::{TraceFile, WhenFull};

/// How long calls are held back so that those of other threads can be put before them. Tracers send
/// what is older than 50 ms at their next call.
const HOLD: Nanos = Nanos::millis(150.0);

/// How often it is looked whether those who began runs are still there.
const OWNERS_EVERY: Nanos = Nanos::millis(1000.0);

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
    /// A batch of encoded events. `dropped`: events the process has lost so far.
    Events { session: u32, batch: Vec<u8>, dropped: u64 },
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
    /// A run wants a lane of its own. `owner`: the process that will ask for its report, where known.
    BeginRun { spec: RunSpec, owner: Option<u32>, reply: oneshot::Sender<Result<u64, String>> },
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
    sessions: BTreeMap<u32, Open>,
    /// Who asked for a run and will ask for its report: without them, nobody ever ends it.
    owners: BTreeMap<u64, u32>,
    owners_seen: Time,
    /// Runs whose owner was gone and whose programs were not there at the latest look.
    orphans: Vec<u64>,
    next_run: u64,
    last_sample: Option<Sample>,
    started: Time,
    /// Of sessions that ended.
    drops: u64,
}

/// A session that has not ended.
#[derive(Default)]
struct Open {
    /// Which lanes its records go to: its run's, and the daemon's own.
    lanes: [Option<u64>; 2],
    /// Events lost so far: what the tracer says, and records that could not be read.
    dropped: u64,
    damaged: u64,
}

impl Engine {
    /// An engine with the daemon's own lane, if it is to have one.
    pub fn new(options: EngineOptions) -> anyhow::Result<Engine> {
        let mut engine = Engine {
            profile: options.profile,
            lanes: BTreeMap::new(),
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            owners_seen: Time(0),
            orphans: Vec::new(),
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
                Input::Events { session, batch, dropped } => self.events(session, &batch, dropped),
                Input::File { session, file } => self.each_lane(session, |lane| lane.file(file.clone())),
                Input::End { session, goodbye, wchar, dropped } => self.end(session, goodbye, wchar, dropped),
                Input::Note { run, note } => self.note(run, &note),
                Input::Sample(sample) => {
                    self.last_sample = Some(sample);
                    for lane in self.lanes.values_mut() {
                        lane.push(Source::Samples, sample.time, Record::Sample(sample));
                    }
                }
                Input::Tick => self.tick(),
                Input::BeginRun { spec, owner, reply } => drop(reply.send(self.begin_run(&spec, owner))),
                Input::EndRun { run, outcome, notes, reply } => {
                    let lane = (run != HOST_LANE).then(|| self.lanes.remove(&run)).flatten();
                    self.owners.remove(&run);
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
        self.sessions.insert(session.id, Open { lanes: [run, host], ..Open::default() });
        self.each_lane(session.id, |lane| lane.begin(session.clone()));
    }

    fn events(&mut self, session: u32, batch: &[u8], dropped: u64) {
        let Some(open) = self.sessions.get_mut(&session) else { return };
        let (records, _) = batch.as_chunks::<EVENT_LEN>();
        // Both ends speak the same version, so an unknown operation is a damaged record.
        let events: Vec<Event> = records.iter().filter_map(Event::decode).collect();
        open.damaged += (records.len() - events.len()) as u64;
        open.dropped = dropped + open.damaged;
        for lane in open.lanes.into_iter().flatten() {
            let Some(lane) = self.lanes.get_mut(&lane) else { continue };
            lane.dropped(session, open.dropped);
            lane.calls(session, events.iter().copied());
        }
    }

    fn end(&mut self, session: u32, goodbye: Option<Goodbye>, wchar: Wchar, dropped: u64) {
        let dropped = dropped + self.sessions.get(&session).map_or(0, |open| open.damaged);
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

    fn note(&mut self, run: u64, note: &str) {
        for key in BTreeSet::from([run, HOST_LANE]) {
            if let Some(lane) = self.lanes.get_mut(&key) {
                lane.take(Record::Note(note.to_owned()));
            }
        }
    }

    fn tick(&mut self) {
        let until = Time((host::now().0).saturating_sub(HOLD.get() as u64));
        for lane in self.lanes.values_mut() {
            lane.release(until);
            lane.flush();
        }
        if until.since(self.owners_seen) >= OWNERS_EVERY {
            self.owners_seen = until;
            self.end_orphans();
        }
    }

    /// Ends runs whose `cawl-cli` was killed, once their programs have ended too: nobody else will.
    fn end_orphans(&mut self) {
        let gone = self.owners.iter().filter(|(_, pid)| !host::is_running(**pid)).map(|(run, _)| *run);
        let idle = gone.filter(|run| !self.lanes.get(run).is_some_and(Lane::is_in_use)).collect::<Vec<_>>();
        // Twice in a row, because a program's first words may still be on their way.
        let before = std::mem::replace(&mut self.orphans, idle.clone());
        for run in idle.into_iter().filter(|run| before.contains(run)) {
            self.owners.remove(&run);
            if let Some(lane) = self.lanes.remove(&run) {
                tracing::info!(run, "a run was given up by its cawl-cli; its trace is closed");
                lane.finish(None, vec!["cawl-cli was killed before it could end this run".to_owned()]);
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

    fn begin_run(&mut self, spec: &RunSpec, owner: Option<u32>) -> Result<u64, String> {
        let profile = match &spec.profile {
            Some(text) => HostProfile::from_toml(text).map_err(|error| error.to_string())?,
            None => self.profile.clone(),
        };
        let trace = spec.trace.as_deref().map(create_trace).transpose()?;
        let lane = Lane::new(&profile, &spec.models, trace).map_err(|error| error.to_string())?;
        let run = self.next_run;
        self.next_run += 1;
        self.lanes.insert(run, lane);
        self.owners.extend(owner.map(|pid| (run, pid)));
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
            drops: self.drops + self.sessions.values().map(|open| open.dropped).sum::<u64>(),
            uptime_s: now.since(self.started).as_seconds(),
            processes: lane.into_iter().flat_map(Lane::processes).map(ProcessStatus::new).collect(),
            devices: lane.into_iter().flat_map(|lane| DeviceStatus::list(lane.devices())).collect(),
        }
    }
}

fn create_trace(path: &std::path::Path) -> Result<TraceFile, String> {
    TraceFile::create(path, WhenFull::LeaveOut)
        .map_err(|error| format!("cannot write the trace {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    /// A daemon's engine with one session, outside any run.
    fn engine() -> Engine {
        let profile = HostProfile::uncalibrated();
        let options = EngineOptions { profile, host_models: Some(Vec::new()), host_trace: None };
        let mut engine = Engine::new(options).unwrap();
        engine.begin(Session { id: 1, pid: u32::MAX, ..Session::default() }, HOST_LANE);
        engine
    }

    fn report(engine: &mut Engine) -> Report {
        engine.lanes.remove(&HOST_LANE).unwrap().finish(None, Vec::new())
    }

    #[test]
    fn what_a_running_program_lost_is_told_before_its_end() {
        let mut engine = engine();
        let good = Event::new(Op::Write).encode();
        let mut damaged = good;
        damaged[88] = 255;
        engine.events(1, &[good, damaged].concat(), 5);
        assert_eq!(engine.status(1).drops, 6);
        let report = report(&mut engine);
        assert_eq!((report.calls, report.drops, report.sessions[0].ended), (1, 6, EndKind::Running));
    }

    #[test]
    fn losses_are_counted_once() {
        let mut engine = engine();
        engine.events(1, &[255; EVENT_LEN], 5);
        engine.end(1, None, Wchar::default(), 7);
        assert_eq!(engine.status(0).drops, 8);
        assert_eq!(report(&mut engine).drops, 8);
    }

    #[test]
    fn a_note_is_taken_once_by_each_lane() {
        let mut engine = engine();
        let run = engine.begin_run(&RunSpec::default(), None).unwrap();
        engine.note(HOST_LANE, "a");
        engine.note(run, "b");
        assert_eq!(report(&mut engine).notes, ["a", "b"]);
        assert_eq!(engine.lanes.remove(&run).unwrap().finish(None, Vec::new()).notes, ["b"]);
    }

    #[test]
    fn a_run_ends_when_neither_its_owner_nor_a_program_is_left() {
        let mut engine = engine();
        let gone = u32::MAX;
        let run = engine.begin_run(&RunSpec::default(), Some(gone)).unwrap();
        let kept = engine.begin_run(&RunSpec::default(), Some(std::process::id())).unwrap();
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
