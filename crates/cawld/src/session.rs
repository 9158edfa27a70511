//! One connection: a tracer's messages, or somebody's questions.
//!
//! The first byte tells which: messages begin with the magic number, questions with a brace. Whatever
//! goes wrong ends this connection and nothing else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use cawl_core::{Bytes, FileFacts, Session, Time, Wchar};
use cawl_wire::{FileRecord, Goodbye, HEADER_LEN, Header, Hello, Kind, WireError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use crate::engine::Input;
use crate::query::{Failure, Request, RunStarted};
use crate::server::Shared;
use crate::{host, inspect};

/// Longest question, in bytes: a profile fits.
const QUESTION_MAX: u64 = 1 << 20;

/// How long the end of the daemon waits for what a socket holds.
const ARRIVED: Duration = Duration::from_millis(50);

/// Serves a connection to its end.
pub async fn serve(
    stream: UnixStream,
    shared: Arc<Shared>,
    engine: mpsc::Sender<Input>,
    id: u32,
) -> anyhow::Result<()> {
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    match stream.fill_buf().await?.first() {
        None => Ok(()),
        Some(b'{') => {
            shared.is_client(id);
            questions(stream, shared, engine).await
        }
        Some(_) => tracer(stream, &shared, &engine, id).await,
    }
}

/// A tracer's session.
async fn tracer(
    mut stream: BufReader<UnixStream>,
    shared: &Shared,
    engine: &mpsc::Sender<Input>,
    id: u32,
) -> anyhow::Result<()> {
    let mut payload = Vec::new();
    let header = match message(&mut stream, &mut payload).await? {
        Some(Ok(header)) => header,
        Some(Err(WireError::Version(theirs))) => {
            stream.write_all(&Header { kind: Kind::Refused, len: 0, dropped: 0 }.encode()).await?;
            let note = format!(
                "a program with a tracer of protocol version {theirs} was refused, this daemon speaks version {}: \
                 it runs untraced",
                cawl_wire::VERSION
            );
            tracing::warn!("{note}");
            return Ok(());
        }
        Some(Err(error)) => return Err(error.into()),
        None => return Ok(()),
    };
    anyhow::ensure!(header.kind == Kind::Hello, "a session began without a hello");
    let hello = Hello::decode(&payload)?;
    let (pid, run) = (hello.pid, hello.run);
    let started = Wchar::from(hello.wchar);
    let mut wchar = started;
    let session = Session {
        id,
        pid,
        ppid: hello.ppid,
        started: Time(hello.started),
        wchar: started,
        program: text(hello.program),
        arguments: hello.arguments.split(|byte| *byte == 0).filter(|a| !a.is_empty()).map(text).collect(),
    };
    let session_name = session.program.clone();
    tracing::debug!(pid, program = session.program, "session begins");
    shared.is_tracer(id, pid);
    stream.write_all(&Header { kind: Kind::Welcome, len: 0, dropped: 0 }.encode()).await.ok();
    engine.send(Input::Begin { session, run }).await?;

    let mut goodbye = None;
    let mut ring = Ring::new(run, pid, session_name);
    let mut dropped = 0;
    let ended = loop {
        if !has_more(&mut stream, shared).await {
            // The engine knows that the session goes on without us.
            return Ok(());
        }
        let header = match message(&mut stream, &mut payload).await {
            Ok(Some(Ok(header))) => header,
            Ok(Some(Err(error))) => break Err(error.into()),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        dropped = dropped.max(header.dropped);
        match header.kind {
            Kind::Events => {
                // An exec that failed, or a daemon() that split the process: it goes on after all.
                goodbye = None;
                shared.active.store(host::now().0, Ordering::Relaxed);
                let batch = std::mem::take(&mut payload);
                engine.send(Input::Events { session: id, batch, dropped }).await?;
                if shared.is_sampling_due(id) {
                    wchar = later(host::wchar(pid), wchar);
                    ring.look(engine).await?;
                }
            }
            Kind::File => match FileRecord::decode(&payload) {
                Ok(file) => {
                    if file.path == inspect::IO_URING.as_bytes() {
                        ring.found(engine).await?;
                    }
                    engine.send(Input::File { session: id, file: facts(&file) }).await?;
                }
                Err(error) => break Err(error.into()),
            },
            Kind::Goodbye => match Goodbye::decode(&payload) {
                Ok(last) => {
                    ring.look(engine).await?;
                    goodbye = Some(last);
                }
                Err(error) => break Err(error.into()),
            },
            other => break Err(anyhow::anyhow!("a tracer sent a message of kind {other:?}")),
        }
    };
    // A process that was killed said nothing, but while nobody has reaped it the kernel still tells.
    wchar = later(host::wchar(pid), wchar);
    engine.send(Input::End { session: id, goodbye, wchar, dropped }).await?;
    if let Err(error) = &ended {
        let note = format!("the session of process {pid} broke off: {error}");
        engine.send(Input::Note { run, note }).await?;
    }
    ended
}

/// Looks, now and then, whether a process uses io_uring, and says so once.
struct Ring {
    run: u64,
    pid: u32,
    program: String,
    told: bool,
    looks: u32,
}

impl Ring {
    fn new(run: u64, pid: u32, program: String) -> Ring {
        Ring { run, pid, program, told: false, looks: 0 }
    }

    /// One look in sixteen: many open descriptors make it slow.
    async fn look(&mut self, engine: &mpsc::Sender<Input>) -> anyhow::Result<()> {
        self.looks += 1;
        if !self.told && self.looks % 16 == 1 && inspect::uses_io_uring(self.pid) {
            self.found(engine).await?;
        }
        Ok(())
    }

    async fn found(&mut self, engine: &mpsc::Sender<Input>) -> anyhow::Result<()> {
        if !std::mem::replace(&mut self.told, true) {
            let note = format!(
                "{} (pid {}) uses io_uring: what it writes that way was not seen",
                self.program, self.pid
            );
            engine.send(Input::Note { run: self.run, note }).await?;
        }
        Ok(())
    }
}

/// Waits for the next message, or for the end of the stream; false when the daemon ends and nothing more
/// has arrived.
async fn has_more(stream: &mut BufReader<UnixStream>, shared: &Shared) -> bool {
    tokio::select! {
        biased;
        _ = stream.fill_buf() => return true,
        () = shared.draining() => {}
    }
    // What is in the socket may be news to the runtime, so it gets a moment to notice.
    tokio::time::timeout(ARRIVED, stream.fill_buf()).await.is_ok()
}

/// The newer figures, where there are any. Of a process that ended, the kernel may tell zero or nothing.
fn later(new: Wchar, old: Wchar) -> Wchar {
    Wchar { process: new.process.max(old.process), thread: new.thread.max(old.thread) }
}

/// Reads a message; None at the end of the stream, also when it ends in the middle of one.
async fn message(
    stream: &mut BufReader<UnixStream>,
    payload: &mut Vec<u8>,
) -> anyhow::Result<Option<Result<Header, WireError>>> {
    let mut bytes = [0; HEADER_LEN];
    if let Err(error) = stream.read_exact(&mut bytes).await {
        return if is_end(&error) { Ok(None) } else { Err(error.into()) };
    }
    let header = match Header::decode(&bytes) {
        Ok(header) => header,
        Err(error) => return Ok(Some(Err(error))),
    };
    payload.resize(header.len as usize, 0);
    match stream.read_exact(payload).await {
        Ok(_) => Ok(Some(Ok(header))),
        Err(error) if is_end(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset)
}

/// Answers questions, a line each, until the other side hangs up.
async fn questions(
    mut stream: BufReader<UnixStream>,
    shared: Arc<Shared>,
    engine: mpsc::Sender<Input>,
) -> anyhow::Result<()> {
    // A process of another pid namespace has no number here.
    let peer = stream.get_ref().peer_cred().ok().and_then(|peer| peer.pid());
    let peer = peer.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
    loop {
        let mut line = String::new();
        (&mut stream).take(QUESTION_MAX).read_line(&mut line).await?;
        if line.is_empty() {
            return Ok(());
        }
        let mut answer = match answer(&line, peer, &shared, &engine).await {
            Ok(answer) => answer,
            Err(error) => serde_json::to_string(&Failure { error: format!("{error:#}") })?,
        };
        answer.push('\n');
        stream.write_all(answer.as_bytes()).await?;
    }
}

async fn answer(
    line: &str,
    peer: Option<u32>,
    shared: &Shared,
    engine: &mpsc::Sender<Input>,
) -> anyhow::Result<String> {
    let request: Request = serde_json::from_str(line).context("not a request this daemon knows")?;
    Ok(match request {
        Request::Status => {
            let (reply, answer) = oneshot::channel();
            engine.send(Input::Status { clients: shared.clients(), reply }).await?;
            serde_json::to_string(&answer.await?)?
        }
        Request::BeginRun(spec) => {
            let (reply, answer) = oneshot::channel();
            engine.send(Input::BeginRun { spec, owner: peer, reply }).await?;
            let run = answer.await?.map_err(anyhow::Error::msg)?;
            serde_json::to_string(&RunStarted { run })?
        }
        Request::EndRun { run, outcome, notes } => {
            shared.settle().await;
            let (reply, answer) = oneshot::channel();
            engine.send(Input::EndRun { run, outcome, notes, reply }).await?;
            let report = answer.await?.with_context(|| format!("there is no run {run}"))?;
            serde_json::to_string(&report)?
        }
    })
}

fn facts(file: &FileRecord<'_>) -> FileFacts {
    let FileRecord { dev, ino, size, block, mode, path } = *file;
    FileFacts { dev, ino, size: Bytes(size), block, mode, path: text(path) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
