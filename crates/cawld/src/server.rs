//! The accept loop and the sampler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cawl_client::protocol::{RunEnd, RunProcess, RunSpec, View};
use cawl_core::{Bytes, Record, Report};
use cawl_host::free;
use nix::unistd::geteuid;
use rustix::net::{SocketFlags, accept_with};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::asker::{Asker, Node, QUESTIONS};
use crate::connections::Connections;
use crate::engine::{Engine, EngineOptions, Input, Ticks, begin_run, end_run};
use crate::guests::Allowed;
use crate::sampler::Sampler;
use crate::socket::Peer;
use crate::{session, task};

/// Interval of releasing held calls.
const TICK_EVERY: Duration = Duration::from_millis(25);

/// Interval of sampling free memory, which takes a few milliseconds.
const MEMORY_EVERY: Duration = Duration::from_secs(1);

/// A sample farther away than this is brought forward when programs begin to write.
const SEEN_SOON: Duration = Duration::from_millis(100);

/// More than the kernel's limit of waiting connections (net.core.somaxconn).
const BACKLOG: usize = 4096;

/// Most batches that wait for the models; beyond that, tracers wait in their sockets and then drop.
const QUEUE: usize = 512;

/// Time limits at the end of the daemon: of reading what programs sent, and of processing it.
const READ_WITHIN: Duration = Duration::from_millis(2500);
const PROCESSED_WITHIN: Duration = Duration::from_secs(1);

/// A running daemon inside this process.
pub struct Daemon {
    engine: mpsc::Sender<Input>,
    asker: Asker,
    connections: Arc<Connections>,
    /// Makes the accept loop accept all waiting connections, and answer.
    backlog: mpsc::Sender<oneshot::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
    thread: std::thread::JoinHandle<()>,
    hurry: Arc<AtomicBool>,
}

impl Daemon {
    /// Starts the engine, the sampler and the accept loop. Needs a tokio runtime.
    pub fn start(listener: UnixListener, options: EngineOptions) -> anyhow::Result<Daemon> {
        Daemon::start_as(listener, options, Node::default(), Allowed::default())
    }

    /// Starts a daemon with a name and labels, as root for these users' programs too. Needs a tokio runtime.
    pub fn start_as(
        listener: UnixListener,
        options: EngineOptions,
        node: Node,
        allowed: Allowed,
    ) -> anyhow::Result<Daemon> {
        let (backlog, asked) = mpsc::channel(1);
        let (engine, inputs) = mpsc::channel(QUEUE);
        let (asker, questions) = mpsc::channel(QUESTIONS);
        let page = options.profile.kernel.page;
        // A run's report does not have them.
        let pauses = options.host_models.is_some();
        let otlp_every = options.otlp.as_ref().map(|otlp| otlp.every);
        let work = Engine::new(options)?;
        let connections = Arc::new(Connections::new(Arc::clone(&work.traces), allowed, work.facts.memory));
        let (stale, hurry) = (Arc::clone(&work.stale), Arc::clone(&work.hurry));
        let runtime = Handle::current();
        let thread = std::thread::Builder::new()
            .name("cawl-engine".to_owned())
            .spawn(move || runtime.block_on(work.work(inputs, questions)))?;
        let asker = Asker::new(asker, node);
        let mut tasks = vec![
            task::spawn(accept(listener, asked, Arc::clone(&connections), engine.clone(), asker.clone())),
            task::spawn(watch(Arc::clone(&connections), engine.clone(), Arc::clone(&stale), page, pauses)),
            task::spawn(look_at_host(stale, engine.clone())),
            task::spawn(watch_memory(Arc::clone(&connections), engine.clone())),
        ];
        tasks.extend(otlp_every.map(|every| task::spawn(tell(every, asker.clone()))));
        Ok(Daemon { engine, asker, connections, backlog, tasks, thread, hurry })
    }

    /// The asker of questions.
    pub fn asker(&self) -> Asker {
        self.asker.clone()
    }

    pub(crate) fn connections(&self) -> &Arc<Connections> {
        &self.connections
    }

    pub(crate) fn engine(&self) -> mpsc::Sender<Input> {
        self.engine.clone()
    }

    /// Opens a lane for a run; its number goes into CAWL_RUN.
    pub async fn begin_run(&self, spec: RunSpec) -> anyhow::Result<u64> {
        begin_run(spec, &self.engine, None).await
    }

    /// The processes of a run that are still running, after all messages sent so far were read.
    pub async fn running(&self, run: u64) -> anyhow::Result<Vec<RunProcess>> {
        self.drain().await;
        Ok(self.asker.running(run).await?.processes)
    }

    /// Reads the rest of ended processes, and reports. Once `hurried` is ready, it waits no longer, and the
    /// report has the calls processed by then.
    pub async fn end_run(
        &self,
        run: u64,
        end: RunEnd,
        hurried: impl Future<Output = ()>,
    ) -> anyhow::Result<Report> {
        let patient = async {
            let mut end = end.clone();
            end.notes.extend(self.drain().await);
            let report = end_run(run, end, &self.engine).await?;
            report.ok_or_else(|| anyhow::anyhow!("there is no run {run}"))
        };
        let mut patient = std::pin::pin!(patient);
        tokio::select! {
            biased;
            report = &mut patient => return report,
            () = hurried => {}
        }
        match self.asker.end_run_now(run, end.clone()).await? {
            Some(report) => Ok(report),
            None => patient.await,
        }
    }

    /// Reads what processes sent before they ended, also over connections not accepted yet.
    async fn drain(&self) -> Option<String> {
        let (reply, answer) = oneshot::channel();
        if self.backlog.send(reply).await.is_ok() {
            drop(answer.await);
        }
        self.connections.settle().await
    }

    /// Processes the received calls, closes every trace and ends. What is not read, or not processed, in time
    /// is left out. An error if the engine's thread panicked.
    pub async fn stop(self) -> anyhow::Result<()> {
        let read = async {
            self.drain().await;
            self.connections.drain_sessions().await;
        };
        if tokio::time::timeout(READ_WITHIN, read).await.is_err() {
            tracing::warn!("programs still send: their last calls are left out");
        }
        for task in &self.tasks {
            task.abort();
        }
        let (reply, mut answer) = oneshot::channel();
        let processed = async {
            if self.engine.send(Input::Stop { reply }).await.is_ok() {
                drop((&mut answer).await);
            }
        };
        let mut processed = std::pin::pin!(processed);
        if tokio::time::timeout(PROCESSED_WITHIN, &mut processed).await.is_err() {
            self.hurry.store(true, Ordering::Relaxed);
            processed.await;
        }
        self.connections.complaints.finish();
        let failed = "the engine failed: calls are missing in its traces, and what it learned is not kept";
        self.thread.join().map_err(|_| anyhow::anyhow!(failed))
    }
}

/// Serves connections until aborted. A request for the backlog is answered when it was accepted.
async fn accept(
    listener: UnixListener,
    mut backlog: mpsc::Receiver<oneshot::Sender<()>>,
    connections: Arc<Connections>,
    engine: mpsc::Sender<Input>,
    asker: Asker,
) {
    let serve = |stream| serve(stream, &connections, &engine, &asker);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => serve(stream),
                Err(error) => {
                    // Probably out of descriptors: wait for a connection to end, or a moment.
                    tracing::warn!("cannot accept a connection: {error}");
                    connections.changed_within(Duration::from_millis(100)).await;
                }
            },
            Some(reply) = backlog.recv() => {
                // The kernel may have connections that the runtime has not noticed yet.
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let waiting = std::iter::from_fn(|| accept_with(&listener, flags).ok());
                for stream in waiting.take(BACKLOG) {
                    match UnixStream::from_std(stream.into()) {
                        Ok(stream) => serve(stream),
                        Err(error) => tracing::warn!("cannot serve a connection: {error}"),
                    }
                }
                let _ = reply.send(());
            }
        }
    }
}

/// Serves a connection in a task of its own.
fn serve(stream: UnixStream, connections: &Arc<Connections>, engine: &mpsc::Sender<Input>, asker: &Asker) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let guest = (!peer.may_talk()).then_some(peer.uid);
    if guest.is_some() && !geteuid().is_root() {
        connections.complaints.warn(peer.uid, "refused a connection from another user");
        return;
    }
    let Some((id, closed)) = connections.connect(guest) else {
        let line = "refused a connection: there are too many, and none of them is silent";
        connections.complaints.warn(peer.uid, line);
        return;
    };
    let (connections, engine, asker) = (Arc::clone(connections), engine.clone(), asker.clone());
    task::spawn(async move {
        let open = Open { connections: Arc::clone(&connections), id };
        let served = tokio::select! {
            served = session::serve(stream, peer, Arc::clone(&connections), engine, asker, id) => served,
            () = closed.notified() => {
                tracing::debug!(session = id, "closed a silent connection to make room");
                Ok(())
            }
        };
        if let Err(error) = served {
            connections.complaints.warn(peer.uid, &format!("connection {id} ended badly: {error:#}"));
        }
        drop(open);
    });
}

/// A connection that is served; its place is free again also after a panic.
struct Open {
    connections: Arc<Connections>,
    id: u32,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.disconnect(self.id);
    }
}

/// Samples the kernel's counters, and keeps the engine's time moving.
async fn watch(
    connections: Arc<Connections>,
    engine: mpsc::Sender<Input>,
    stale: Arc<Notify>,
    page: Bytes,
    pauses: bool,
) {
    let mut sampler = Sampler::new(page, pauses);
    let mut tick = tokio::time::interval(TICK_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut due = tokio::time::Instant::now();
    let mut ticks = Ticks::default();
    loop {
        tokio::select! {
            _ = tick.tick() => {
                if engine.send(Input::Tick(ticks.tick(cawl_host::now()))).await.is_err() {
                    return;
                }
                // Programs have begun to write: sample soon.
                let soon = tokio::time::Instant::now() + Duration::from_millis(10);
                if connections.is_active() && sampler.interval > SEEN_SOON {
                    due = due.min(soon);
                }
            }
            () = tokio::time::sleep_until(due) => {
                let (sample, observed) = sampler.sample(connections.is_active());
                due = tokio::time::Instant::now() + sampler.interval;
                if observed.is_some() && sampler.mounts_changed() {
                    stale.notify_one();
                }
                let looked = move |engine: &mut Engine| {
                    observed.into_iter().for_each(|observed| engine.observe(observed));
                    sample.iter().for_each(|sample| engine.hold(sample.time, &Record::Sample(*sample)));
                };
                if engine.send(Input::act(looked)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Samples memory at intervals, while programs write or the host takes free memory back.
async fn watch_memory(connections: Arc<Connections>, engine: mpsc::Sender<Input>) {
    while look_at_memory(&engine).await {
        tokio::time::sleep(MEMORY_EVERY).await;
        while !connections.is_active() && !free::is_taken_back() {
            tokio::time::sleep(MEMORY_EVERY).await;
        }
    }
}

/// Samples memory; false if the kernel does not tell, or the engine is gone.
async fn look_at_memory(engine: &mpsc::Sender<Input>) -> bool {
    match tokio::task::spawn_blocking(free::sample).await {
        Ok(Some(memory)) => {
            let memory =
                move |engine: &mut Engine| engine.hold(memory.time, &Record::Memory(Box::new(memory)));
            engine.send(Input::act(memory)).await.is_ok()
        }
        _ => false,
    }
}

/// Has metrics and spans told at intervals, the first time at once: counters begin.
async fn tell(every: Duration, asker: Asker) {
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let told = match asker.status(View::default()).await {
            Ok(status) => asker.look_up(move |engine| engine.tell(status, false)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            tracing::warn!("no metrics for OpenTelemetry: {error}");
        }
    }
}

/// Reads the machine's facts whenever they may have changed. Several notifications during a read cause one
/// more read.
async fn look_at_host(stale: Arc<Notify>, engine: mpsc::Sender<Input>) {
    loop {
        stale.notified().await;
        // A run may have begun, whose models get the state of free memory before its writes.
        look_at_memory(&engine).await;
        let Ok(facts) = tokio::task::spawn_blocking(cawl_host::facts).await else { continue };
        if engine.send(Input::act(move |engine| engine.look_at_host(facts))).await.is_err() {
            return;
        }
    }
}
