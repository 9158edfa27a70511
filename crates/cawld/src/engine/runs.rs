//! The begin and end of runs, with reports, and of traces of the daemon's own lane.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use cawl_client::protocol::{RunEnd, RunProcess, RunSpec};
use cawl_core::advise::Kept;
use cawl_core::{AnalysisOptions, HostFacts, HostProfile, Mode, Report};
use cawl_host::allowance;
use cawl_host::trace::{TraceFile, WhenFull};
use tokio::sync::{mpsc, oneshot};

use super::{Engine, HOST_LANE, Input};
use crate::lane::Lane;

/// Makes the engine begin a run; returns its number.
pub async fn begin_run(
    spec: RunSpec,
    engine: &mpsc::Sender<Input>,
    owner: Option<u32>,
) -> anyhow::Result<u64> {
    let path = spec.trace.clone();
    // It may take long on a slow disk.
    let create = move || path.as_deref().map(create_trace).transpose();
    let trace = tokio::task::spawn_blocking(create).await?;
    // Without an owner the daemon is inside `cawl-cli run`, which is in no unit.
    let trace = trace.map_err(|error| match owner {
        Some(_) => anyhow!("{}. {OF_A_UNIT}, or run without --socket", allowance::with_remedy(&error)),
        None if allowance::remedy_of(&error).is_some() => error,
        None => anyhow!("{error:#}; name another file with --trace"),
    })?;
    let (reply, answer) = oneshot::channel();
    let begin = move |engine: &mut Engine| drop(reply.send(engine.begin_run(&spec, trace, owner)));
    engine.send(Input::act(begin)).await?;
    answer.await?.map_err(anyhow::Error::msg)
}

/// Makes the engine end a run, after what it was sent before; returns the report, if there is such a run.
pub async fn end_run(run: u64, end: RunEnd, engine: &mpsc::Sender<Input>) -> anyhow::Result<Option<Report>> {
    let (reply, answer) = oneshot::channel();
    engine.send(Input::act(move |engine| engine.end_run(run, end, false, reply))).await?;
    Ok(answer.await?)
}

/// What helps a daemon that may not write a file.
pub const OF_A_UNIT: &str = "The daemon writes it: if its unit keeps it from there (ProtectSystem=, \
     ProtectHome=), name a file in /var/lib/cawl, or allow the folder by ReadWritePaths= in a drop-in";

/// A lane's trace; the error names the file.
pub fn create_trace(path: &Path) -> anyhow::Result<TraceFile> {
    TraceFile::create(path, WhenFull::LeaveOut)
        .with_context(|| format!("cannot write the trace {}", path.display()))
}

/// A run whose report is being made.
pub(super) struct Finishing {
    run: u64,
    /// True if it is wanted at once.
    hurry: Arc<AtomicBool>,
    pub(super) thread: std::thread::JoinHandle<()>,
}

impl Finishing {
    /// Returns when the report is made; once there is `hurry`, it is wanted at once.
    pub(super) fn wait(self, hurry: &AtomicBool) {
        while !self.thread.is_finished() && !hurry.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.hurry.store(true, Ordering::Relaxed);
        drop(self.thread.join());
    }
}

impl Engine {
    /// `owner`: the process that will ask for the report, if known.
    pub(super) fn begin_run(
        &mut self,
        spec: &RunSpec,
        trace: Option<TraceFile>,
        owner: Option<u32>,
    ) -> Result<u64, String> {
        let mut profile = match &spec.profile {
            Some(text) => HostProfile::from_toml(text).map_err(|error| error.to_string())?,
            None => self.profile.clone(),
        };
        spec.group.apply(&mut profile);
        let options = AnalysisOptions {
            models: spec.models.clone(),
            mode: Mode::Assimilated,
            learn: spec.learn,
            classes: spec.classes.clone(),
            command: spec.command.clone(),
            stacks: spec.stacks,
            as_calibrated: true,
            timeline: true,
            ..AnalysisOptions::default()
        };
        let facts = HostFacts { deleted: spec.deleted.clone(), ..self.facts_now() };
        let lane = Lane::new(&profile, &options, trace, facts).map_err(|error| error.to_string())?;
        // What a device does under io.max it does not do elsewhere.
        let keeps = spec.learn && spec.profile.is_none() && spec.group.rates.is_empty();
        let lane = lane.with_keeper(self.options.keeper.clone().filter(|_| keeps)).with_only(&spec.only);
        // Settings may have changed, of which the kernel sends no notification.
        self.stale.notify_one();
        let run = self.new_run().map_err(|error| format!("the kernel has no random number: {error}"))?;
        self.insert(run, lane);
        self.owners.extend(owner.map(|pid| (run, pid)));
        Ok(run)
    }

    /// The processes of a run that may still be running.
    pub(crate) fn processes_of(&self, run: u64) -> Vec<RunProcess> {
        let lane = self.lanes.get(&run).filter(|_| run != HOST_LANE);
        lane.map(Lane::processes).unwrap_or_default()
    }

    /// Ends a run; with `hurry` without the calls not processed yet. No answer if it was ended before: its
    /// report is then hurried.
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

    /// Ends a lane. A thread of its own processes the held calls and makes the report, so that a run with a
    /// backlog and a hundred thousand files does not delay others.
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
            // The asker gets no answer.
            Err(error) => tracing::error!("a report could not be made: {error}"),
        }
    }

    /// Ends runs whose `cawl-cli` was killed, once their programs have ended too.
    pub(super) fn end_orphans(&mut self) {
        let gone = self.owners.iter().filter(|(_, pid)| !cawl_host::is_running(**pid)).map(|(run, _)| *run);
        let idle = gone
            .filter(|run| self.lanes.get(run).is_none_or(|lane| lane.open.is_empty()))
            .collect::<Vec<_>>();
        // Twice in a row, because a program's first message may not be read yet.
        let before = std::mem::replace(&mut self.orphans, idle.clone());
        for run in idle.into_iter().filter(|run| before.contains(run)) {
            self.owners.remove(&run);
            if let Some(lane) = self.remove(run) {
                tracing::info!(run, "a run was given up by its cawl-cli; its trace is closed");
                let notes = vec!["cawl-cli was killed before it could end this run".to_owned()];
                // The report is not read.
                let end = RunEnd { notes, ..RunEnd::default() };
                self.finish(run, lane, end, false, oneshot::channel().0);
            }
        }
    }

    /// A number that cannot be guessed: a process of another user with this number has it from the run.
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

    /// Calls are written to a trace from now on; how many there were before. An error says why they cannot
    /// be.
    pub(crate) fn begin_recording(&mut self, trace: TraceFile) -> Result<u64, String> {
        let (facts, (_, profile, _)) = (self.facts_now(), self.profiles());
        let lane =
            self.lanes.get_mut(&HOST_LANE).ok_or("this daemon serves a single run, which has a trace")?;
        if lane.trace.is_some() {
            return Err(
                "this daemon keeps a trace already: --trace, or another recording; use that".to_owned()
            );
        }
        lane.record(trace, &profile, facts);
        Ok(lane.calls())
    }

    /// No more are written; the trace, and how many calls there were.
    pub(crate) fn end_recording(&mut self) -> Option<(TraceFile, u64)> {
        let lane = self.lanes.get_mut(&HOST_LANE)?;
        Some((lane.trace.take()?, lane.calls()))
    }

    /// Keeps the calls of all programs for advice. False if that is being done already.
    pub(crate) fn begin_advice(&mut self) -> Result<bool, &'static str> {
        let (facts, (_, profile, _)) = (self.facts_now(), self.profiles());
        let lane = self
            .lanes
            .get_mut(&HOST_LANE)
            .ok_or("this daemon serves a single run, whose report has advice")?;
        let is_free = !lane.is_keeping_for_advice();
        if is_free {
            lane.keep_for_advice(&profile, facts);
        }
        Ok(is_free)
    }

    /// The calls since.
    pub(crate) fn end_advice(&mut self) -> Option<Box<Kept>> {
        self.lanes.get_mut(&HOST_LANE)?.advisable()
    }
}
