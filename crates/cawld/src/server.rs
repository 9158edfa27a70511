//! The accept loop, the sampler, and what connections share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cawl_core::{Nanos, Outcome, Report, Time};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::engine::{Engine, EngineOptions, Input, RunSpec};
use crate::{host, session, socket};

/// How often the kernel's counters are read while programs write.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// How often held-back calls are released.
const TICK_EVERY: Duration = Duration::from_millis(25);

/// Programs count as writing this long after their latest batch.
const ACTIVE_FOR: Nanos = Nanos::millis(250.0);

/// How often a process's `wchar` is read, for the case that it is killed.
const WCHAR_EVERY: Nanos = Nanos::millis(100.0);

/// Longest wait at the end of a run for connections of processes that are gone.
const SETTLE: Duration = Duration::from_secs(5);

/// How long a connection of a running process may be silent before the end of a run no longer waits for it:
/// a tracer says hello in the same breath.
const SILENT: Nanos = Nanos::millis(250.0);

/// Batches that may wait for the models; beyond it, tracers wait in their sockets and then drop.
const QUEUE: usize = 512;

/// What connections share.
pub struct Shared {
    /// When the latest batch came, in ns of CLOCK_MONOTONIC.
    pub active: AtomicU64,
    next: AtomicU32,
    connections: Mutex<BTreeMap<u32, Connection>>,
    changed: Notify,
    /// Raised when every session is to take what there is now.
    looks: watch::Sender<u64>,
    draining: AtomicBool,
    drain: Notify,
}

/// A connection that is open.
struct Connection {
    role: Role,
    /// The latest of `Shared::looks` that it has followed.
    looked: u64,
    wchar_read: Time,
}

/// What a connection turned out to be.
#[derive(Clone, Copy)]
enum Role {
    /// It has said nothing yet.
    Silent {
        /// When it was accepted.
        since: Time,
        /// Who connected.
        pid: Option<u32>,
    },
    /// It asks questions.
    Client,
    /// It traces this process.
    Tracer(u32),
}

impl Shared {
    fn new() -> Shared {
        Shared {
            active: AtomicU64::new(0),
            next: AtomicU32::new(1),
            connections: Mutex::new(BTreeMap::new()),
            changed: Notify::new(),
            looks: watch::Sender::new(0),
            draining: AtomicBool::new(false),
            drain: Notify::new(),
        }
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u32, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, pid: Option<u32>) -> u32 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let role = Role::Silent { since: host::now(), pid };
        self.connections().insert(id, Connection { role, looked: 0, wchar_read: Time(0) });
        id
    }

    fn disconnect(&self, id: u32) {
        self.connections().remove(&id);
        self.changed.notify_waiters();
    }

    /// A connection turned out to be a tracer's.
    pub fn is_tracer(&self, id: u32, pid: u32) {
        self.settle_role(id, Role::Tracer(pid));
    }

    /// A connection turned out to ask questions.
    pub fn is_client(&self, id: u32) {
        self.settle_role(id, Role::Client);
    }

    fn settle_role(&self, id: u32, role: Role) {
        if let Some(connection) = self.connections().get_mut(&id) {
            connection.role = role;
        }
        self.changed.notify_waiters();
    }

    /// Tells when a session is to take what there is.
    pub fn looks(&self) -> watch::Receiver<u64> {
        self.looks.subscribe()
    }

    /// A session has taken what there was at this look.
    pub fn has_looked(&self, id: u32, look: u64) {
        if let Some(connection) = self.connections().get_mut(&id) {
            connection.looked = look;
        }
        self.changed.notify_waiters();
    }

    /// Programs connected.
    pub fn clients(&self) -> u64 {
        self.connections().values().filter(|connection| matches!(connection.role, Role::Tracer(_))).count()
            as u64
    }

    /// True at most every 100 ms for a connection: time to read its process's `wchar`.
    pub fn is_sampling_due(&self, id: u32) -> bool {
        let now = host::now();
        let mut connections = self.connections();
        let Some(connection) = connections.get_mut(&id) else { return false };
        let due = now.since(connection.wchar_read) >= WCHAR_EVERY;
        if due {
            connection.wchar_read = now;
        }
        due
    }

    /// Returns once the daemon is about to end: sessions then take what has arrived and stop.
    pub async fn draining(&self) {
        let mut told = std::pin::pin!(self.drain.notified());
        told.as_mut().enable();
        if !self.draining.load(Ordering::SeqCst) {
            told.await;
        }
    }

    /// Lets sessions take what has arrived, and waits for that.
    async fn drain_sessions(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.drain.notify_waiters();
        let drained = async {
            while self.clients() > 0 {
                drop(tokio::time::timeout(Duration::from_millis(20), self.changed.notified()).await);
            }
        };
        drop(tokio::time::timeout(SETTLE, drained).await);
    }

    /// Waits until every connection still open belongs to a process that still runs and whose calls so far
    /// have been taken, to someone who asks questions, or to someone who runs and says nothing.
    ///
    /// Processes that ended have closed their sockets, but what they sent may still be on its way.
    pub async fn settle(&self) {
        self.looks.send_modify(|look| *look += 1);
        let look = *self.looks.borrow();
        let is_settled = |(role, looked)| match role {
            // What a process that is gone had to say is already in the socket.
            Role::Silent { since, pid } => {
                host::now().since(since) >= SILENT && pid.is_none_or(host::is_running)
            }
            Role::Client => true,
            Role::Tracer(pid) => looked >= look && host::is_running(pid),
        };
        let settled = async {
            loop {
                let changed = self.changed.notified();
                let roles: Vec<(Role, u64)> = self
                    .connections()
                    .values()
                    .map(|connection| (connection.role, connection.looked))
                    .collect();
                if roles.into_iter().all(is_settled) {
                    return;
                }
                // A process can end without its connection changing, so look again now and then.
                drop(tokio::time::timeout(Duration::from_millis(20), changed).await);
            }
        };
        drop(tokio::time::timeout(SETTLE, settled).await);
    }
}

/// A running daemon inside this process.
pub struct Daemon {
    path: Option<PathBuf>,
    engine: mpsc::Sender<Input>,
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
    thread: std::thread::JoinHandle<()>,
}

impl Daemon {
    /// Starts the engine, the sampler and the accept loop. Needs a tokio runtime.
    pub fn start(listener: UnixListener, options: EngineOptions) -> anyhow::Result<Daemon> {
        let path = listener.local_addr()?.as_pathname().map(PathBuf::from);
        let (engine, inputs) = mpsc::channel(QUEUE);
        let work = Engine::new(options)?;
        let thread =
            std::thread::Builder::new().name("cawl-engine".to_owned()).spawn(move || work.work(inputs))?;
        let shared = Arc::new(Shared::new());
        let tasks = vec![
            tokio::spawn(accept(listener, Arc::clone(&shared), engine.clone())),
            tokio::spawn(watch(Arc::clone(&shared), engine.clone())),
        ];
        Ok(Daemon { path, engine, shared, tasks, thread })
    }

    /// Opens a lane for a run; its number goes into CAWL_RUN.
    pub async fn begin_run(&self, spec: RunSpec) -> anyhow::Result<u64> {
        let (reply, answer) = oneshot::channel();
        self.engine.send(Input::BeginRun { spec, owner: None, reply }).await?;
        answer.await?.map_err(anyhow::Error::msg)
    }

    /// Waits for what ended processes had sent, and reports.
    pub async fn end_run(
        &self,
        run: u64,
        outcome: Option<Outcome>,
        notes: Vec<String>,
    ) -> anyhow::Result<Report> {
        self.drain().await;
        let (reply, answer) = oneshot::channel();
        self.engine.send(Input::EndRun { run, outcome, notes, reply }).await?;
        answer.await?.ok_or_else(|| anyhow::anyhow!("there is no run {run}"))
    }

    /// Waits for what processes sent before they ended, connections not yet accepted included: those
    /// are served in order, so that when ours has its answer, all earlier ones are known.
    async fn drain(&self) {
        if let Some(path) = &self.path
            && let Ok(stream) = UnixStream::connect(path).await
        {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            if stream.write_all(b"{\"request\":\"status\"}\n").await.is_ok() {
                drop(tokio::time::timeout(SETTLE, stream.read_line(&mut line)).await);
            }
        }
        self.shared.settle().await;
    }

    /// Takes what has arrived, closes every trace and ends.
    pub async fn stop(self) {
        self.drain().await;
        self.shared.drain_sessions().await;
        for task in &self.tasks {
            task.abort();
        }
        let (reply, answer) = oneshot::channel();
        if self.engine.send(Input::Stop { reply }).await.is_ok() {
            drop(answer.await);
        }
        drop(self.thread.join());
    }
}

/// Serves connections until aborted.
async fn accept(listener: UnixListener, shared: Arc<Shared>, engine: mpsc::Sender<Input>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: wait for a connection to end, or a moment.
                tracing::warn!("cannot accept a connection: {error}");
                drop(tokio::time::timeout(Duration::from_millis(100), shared.changed.notified()).await);
                continue;
            }
        };
        if !socket::may_talk(&stream) {
            tracing::warn!("refused a connection from another user");
            continue;
        }
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| pid.try_into().ok());
        let id = shared.connect(pid);
        let (shared, engine) = (Arc::clone(&shared), engine.clone());
        tokio::spawn(async move {
            if let Err(error) = session::serve(stream, Arc::clone(&shared), engine, id).await {
                tracing::warn!(session = id, "a connection ended badly: {error:#}");
            }
            shared.disconnect(id);
        });
    }
}

/// Samples the kernel's counters while programs write, and keeps the engine's time moving.
async fn watch(shared: Arc<Shared>, engine: mpsc::Sender<Input>) {
    let mut sample = tokio::time::interval(SAMPLE_EVERY);
    sample.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut ticked = Time(0);
    loop {
        sample.tick().await;
        let now = host::now();
        if now.since(Time(shared.active.load(Ordering::Relaxed))) < ACTIVE_FOR
            && let Some(sample) = host::sample()
            && engine.send(Input::Sample(sample)).await.is_err()
        {
            return;
        }
        if now.since(ticked) >= Nanos::new(TICK_EVERY.as_nanos() as f64) {
            ticked = now;
            if engine.send(Input::Tick).await.is_err() {
                return;
            }
        }
    }
}
