//! One connection: a tracer's messages, or a client's questions.
//!
//! The first byte decides: messages begin with the magic number, questions with a brace. Any failure ends
//! only this connection.

mod admission;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cawl_core::{
    ARE_MISSING, ENDED_UNHEARD, EndKind, FileFacts, RunDelay, Session, SessionEnd, Stack, StackOptions, Time,
    Usage, Wchar, host_text,
};
use cawl_host::inspect;
use cawl_wire::stack::Wanted;
use cawl_wire::{Ended, FileKind, FileRecord, Goodbye, Header, Hello, Kind, MAGIC, past};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::asker::Asker;
use crate::batch::{Batch, facts};
use crate::connections::{Connections, Role};
use crate::engine::{Engine, Input};
use crate::guests::{Line, Numbers};
use crate::mappings::Mappings;
use crate::messages::Messages;
use crate::possible::{Moved, Possible};
use crate::questions::Questions;
use crate::ring::Ring;
use crate::run_delays::RunDelays;
use crate::socket::Peer;
use crate::stacks::SessionStacks;
use crate::ticks::Ticks;
use crate::uring::Uring;
use admission::{NO_REQUEST, admit, has_said_hello, number, refuse_question};

/// Longest interval, in ms, between two reads of an idle ring.
const IDLE: u64 = 50;
/// Longest interval, in ms, between two reads of a ring in use: each takes the processor from a program that
/// may need it. A program that fills a chunk faster rings the bell.
const BUSY: u64 = 8;

/// Unread chunks of a ring that takes more memory.
const BACKLOG: u64 = 8;

/// What a program did that its report must say, by bits of [`Goodbye::past`].
const PAST: [(u32, &str); 3] = [
    (past::DEEP_BINDING, "loaded a library with RTLD_DEEPBIND: what that writes by itself was not seen"),
    (
        past::NAMESPACE,
        "loaded a library into a namespace of its own (dlmopen): what that writes was not seen",
    ),
    (
        past::CLOCK,
        "sees another time than the machine's (libfaketime, a time namespace): the times here are the machine's",
    ),
];

/// Batches read from a ring before the socket is read again.
const ROUND: usize = 64;
/// Most bytes of a program's name and of its arguments, and most arguments: tracers send fewer.
const LONGEST: usize = 4096;
const ARGUMENTS: usize = 256;
/// Time limit for the functions of stacks at the end of a session, and of the daemon.
const NAMED_WITHIN: Duration = Duration::from_secs(10);
const HURRIED: Duration = Duration::from_secs(1);
/// Time limit for the rest of a socket at the end of the daemon.
const ARRIVED: Duration = Duration::from_millis(50);

/// Serves a connection to its end.
pub async fn serve(
    stream: UnixStream,
    peer: Peer,
    connections: Arc<Connections>,
    engine: mpsc::Sender<Input>,
    asker: Asker,
    id: u32,
) -> anyhow::Result<()> {
    let mut messages = Messages::new(stream);
    let mut looks = connections.looks.subscribe();
    looks.mark_changed();
    loop {
        tokio::select! {
            biased;
            first = messages.receive_first() => {
                first?;
                break;
            }
            // A run waits until all messages are read: there are none here.
            _ = looks.changed() => {
                if messages.is_silent() {
                    connections.has_looked(id, *looks.borrow());
                }
            }
        }
    }
    match messages.bytes.first() {
        None => Ok(()),
        Some(b'{') if !peer.may_talk() => refuse_question(messages, &connections, peer).await,
        Some(b'{') => Questions { connections, engine, asker, id }.answer(messages, peer.pid).await,
        Some(first) if *first == MAGIC.to_le_bytes()[0] => {
            tracer(messages, peer, &connections, engine, id).await
        }
        Some(_) => Ok(messages.stream.write_all(NO_REQUEST).await?),
    }
}

async fn tracer(
    mut messages: Messages,
    peer: Peer,
    connections: &Connections,
    engine: mpsc::Sender<Input>,
    id: u32,
) -> anyhow::Result<()> {
    let mut payload = Vec::new();
    if !has_said_hello(&mut messages, &mut payload, connections, peer).await? {
        return Ok(());
    }
    let hello = Hello::decode(&payload)?;
    let (pid, run) = (number(&hello, peer), hello.run);
    let admitted = (!peer.may_talk()).then(|| admit(peer, connections, run));
    if matches!(admitted, Some(None)) {
        return Ok(());
    }
    let engine = Line::new(engine, admitted.flatten());
    if !connections.has_room_for(engine.guest.as_ref().map(|_| peer.uid)) {
        let note = format!(
            "programs of uid {} were not recorded: they had all the connections that programs may have; raise the \
             daemon's limit of open files",
            peer.uid
        );
        connections.complaints.warn(peer.uid, &note);
        return Ok(engine.send(Input::Note { run, note }).await?);
    }
    let moved =
        engine.guest.as_ref().map_or_else(|| Arc::new(Moved::new()), |guest| Arc::clone(&guest.moved));
    let possible = Possible::new(Time(hello.started), connections.memory, moved);
    let started = Wchar::from(hello.wchar);
    let session = Session {
        id,
        pid,
        ppid: if pid == hello.pid { hello.ppid } else { cawl_host::parent(pid) },
        started: possible.started,
        wchar: started,
        usage: Some(hello.usage.into()),
        rank: hello.rank,
        program: host_text::name(&hello.program[..hello.program.len().min(LONGEST)]),
        arguments: hello.arguments[..hello.arguments.len().min(LONGEST)]
            .split(|byte| *byte == 0)
            .filter(|argument| !argument.is_empty())
            .take(ARGUMENTS)
            .map(host_text::name)
            .collect(),
        language: None,
        traceparent: cawl_host::traceparent(pid),
    };
    let uring = Uring::new(run, pid, session.program.clone(), &connections.aside);
    tracing::debug!(pid, program = session.program, ring = hello.ring, "session begins");
    let each = connections.traces.have(run);
    let ring = match (hello.ring, messages.descriptor.take()) {
        (false, _) => Ok(None),
        (true, Some(descriptor)) => Ring::new(descriptor, each).map(Some),
        (true, None) => Err(anyhow::anyhow!("no descriptor could be taken from it")),
    };
    let wanted = connections.traces.stacks(run);
    let mut ring = ring;
    if let Ok(Some(ring)) = &mut ring {
        ring.tell_stacks(wanted.map(|StackOptions { threshold, one_in }| Wanted {
            threshold: threshold.get() as u64,
            one_in: one_in.get(),
        }));
        ring.tell_room(connections.rooms.of(pid));
    }
    connections.begins(pid, session.started);
    connections.settle_role(id, Role::Tracer(pid));
    messages.stream.write_all(&Header { kind: Kind::Welcome, len: 0, dropped: 0 }.encode()).await.ok();
    let mut tracer = Tracer {
        connections,
        engine: &engine,
        numbers: Numbers::new(hello.pid, pid, engine.guest.clone()),
        id,
        pid,
        run,
        program: session.program.clone(),
        ring: None,
        by_socket: !hello.ring,
        possible,
        refused: 0,
        uid: peer.uid,
        uring,
        run_delays: RunDelays::new(pid, session.started, &hello.usage, &connections.run_delays),
        mappings: Mappings::new(pid, &connections.mapped, &connections.aside),
        stacks: SessionStacks::new(id, (pid, hello.pid, peer.uid), &connections.stacks, &connections.aside),
        ticks: hello.ticks.map(Ticks::new),
        wchar: started,
        usage: None,
        goodbye: None,
        counted_here: false,
        dropped: 0,
        damaged: 0,
    };
    engine.send(Input::act(move |engine| engine.begin(session, run))).await?;
    match ring {
        Ok(ring) => tracer.ring = ring,
        Err(error) => tracer.note(format!("the calls of process {pid} {ARE_MISSING}: {error:#}")).await?,
    }
    if wanted.is_some() && tracer.ring.is_none() {
        let note = format!("{} has no stacks: without shared memory they are not copied", tracer.program);
        tracer.note(note).await?;
    }
    let ended = tracer.follow(&mut messages, &mut payload).await;
    match ended {
        // The engine continues the session after the daemon's end of it.
        Ok(false) => Ok(()),
        ended => tracer.end(ended.map(drop)).await,
    }
}

/// An open session.
struct Tracer<'a> {
    connections: &'a Connections,
    engine: &'a Line,
    numbers: Numbers,
    id: u32,
    pid: u32,
    run: u64,
    program: String,
    ring: Option<Ring>,
    /// Its calls come by the socket, in batches.
    by_socket: bool,
    possible: Possible,
    /// Calls that were not possible.
    refused: u64,
    uid: u32,
    uring: Uring<'a>,
    mappings: Mappings<'a>,
    stacks: SessionStacks<'a>,
    run_delays: RunDelays<'a>,
    ticks: Option<Ticks>,
    wchar: Wchar,
    usage: Option<Usage>,
    goodbye: Option<Goodbye>,
    /// The goodbye's counters were read here: before or after the process wrote what its streams held.
    counted_here: bool,
    /// Events that the tracer could not record, and damaged records.
    dropped: u64,
    damaged: u64,
}

impl Tracer<'_> {
    /// Reads messages and the ring until the tracer disconnects; false if the daemon ends before.
    async fn follow(&mut self, messages: &mut Messages, payload: &mut Vec<u8>) -> anyhow::Result<bool> {
        let mut pause = 1;
        let mut looks = self.connections.looks.subscribe();
        looks.mark_changed();
        let mut looked = 0;
        loop {
            let message = tokio::select! {
                biased;
                message = messages.next(payload) => Some(message),
                _ = looks.changed() => None,
                () = self.connections.draining() => {
                    // The runtime may not have noticed the socket's data yet, so it gets a moment.
                    let Ok(message) = tokio::time::timeout(ARRIVED, messages.next(payload)).await else {
                        self.take_from_ring(usize::MAX).await?;
                        self.finish_stacks(HURRIED).await?;
                        return Ok(false);
                    };
                    Some(message)
                }
                () = tokio::time::sleep(Duration::from_millis(pause)), if self.ring.is_some() => None,
                () = self.mappings.due() => {
                    self.look_at_mappings().await?;
                    None
                }
            };
            let look = *looks.borrow();
            match message {
                Some(Ok(Some(header))) => {
                    self.message(header, payload).await?;
                    // What else has come is taken first.
                    if messages.has_more() && header.kind != Kind::Bell {
                        continue;
                    }
                }
                Some(Ok(None)) => return Ok(true),
                Some(Err(error)) => return Err(error.into()),
                None => {}
            }
            let taken = self.take_from_ring(ROUND).await?;
            if taken == 0 {
                // It may be in a long call.
                self.look_at_run_delays(&Batch::default()).await?;
                if pause == IDLE
                    && let Some(ring) = &mut self.ring
                {
                    ring.rest();
                }
            }
            pause = match taken {
                0 => (pause * 2).min(IDLE),
                1..ROUND => (pause * 2).min(BUSY),
                _ => 1,
            };
            self.tell_stacks().await?;
            // Less than a round: the ring is empty.
            if look > looked && taken < ROUND && self.stacks.is_settled() {
                looked = look;
                self.connections.has_looked(self.id, look);
            }
        }
    }

    async fn message(&mut self, header: Header, payload: &mut Vec<u8>) -> anyhow::Result<()> {
        self.dropped = self.dropped.max(header.dropped);
        if header.kind != Kind::Goodbye && self.is_confined() {
            self.goodbye = None;
        }
        match header.kind {
            Kind::Events => {
                let batch = Batch::decode(payload);
                // The engine may be behind.
                *payload = Vec::new();
                self.events(batch).await?;
            }
            Kind::File => {
                let file = facts(&FileRecord::decode(payload)?);
                self.file(file).await?;
            }
            Kind::Goodbye => {
                let mut goodbye = Goodbye::decode(payload)?;
                self.counted_here = goodbye.wchar.process.is_none();
                if self.counted_here {
                    // A process that changed its user cannot read its own counters, and after its parent has
                    // reaped it they are gone: so they are read first, and no earlier reading is used.
                    let Wchar { process, thread } = cawl_host::wchar(self.pid);
                    goodbye.wchar = cawl_wire::Wchar { process, thread };
                }
                // Calls recorded before the goodbye come before it, and after the delays of their time.
                goodbye.at = self.possible.moment(Time(goodbye.at)).0;
                let delays = self.run_delays.look_last(Time(goodbye.at), &goodbye.usage);
                self.send_run_delays(delays).await?;
                self.take_from_ring(usize::MAX).await?;
                self.uring.look_once_more(self.engine).await?;
                if goodbye.ended == Ended::Crowded {
                    self.note(format!(
                        "not traced: {} (process {}): its address space, or its data, is limited to less than 64 MiB \
                         more than it has; raise the limit (ulimit -v or -d, RLIMIT_AS or RLIMIT_DATA)",
                        self.program, self.pid
                    ))
                    .await?;
                }
                for (bit, what) in PAST {
                    if goodbye.past & bit != 0 {
                        self.note(format!("{} {what}", self.program)).await?;
                    }
                }
                self.goodbye = Some(goodbye);
            }
            Kind::Bell => {}
            other => anyhow::bail!("a tracer sent a message of kind {other:?}"),
        }
        Ok(())
    }

    async fn file(&mut self, file: FileFacts) -> anyhow::Result<()> {
        if file.path == inspect::IO_URING {
            self.uring.found(self.engine).await?;
        }
        if FileKind::from_mode(file.mode) == FileKind::Regular {
            self.mappings.has_file();
        }
        Ok(self.engine.send(Input::File { session: self.id, file }).await?)
    }

    async fn events(&mut self, mut batch: Batch) -> anyhow::Result<()> {
        // A file is named before it is written to. The name from another thread may come with the next read
        // of the rings; calls are held for longer than that.
        for file in std::mem::take(&mut batch.files) {
            self.file(file).await?;
        }
        // An exec that failed, or a daemon() that forked: the session continues.
        if !self.is_confined() {
            self.goodbye = None;
        }
        self.connections.active.store(cawl_host::now().0, Ordering::Relaxed);
        self.stacks.take(&mut batch).await;
        self.numbers.translate(&mut batch);
        if let Some(ticks) = &mut self.ticks {
            ticks.convert(&mut batch);
        }
        let refused = self.possible.sift(&mut batch);
        if refused > 0 && self.refused == 0 {
            self.note(format!(
                "process {} told of calls that it cannot have made, of other times or of more bytes than could \
                 be: they are left out, and counted as lost",
                self.pid
            ))
            .await?;
        }
        self.refused += refused;
        self.mappings.pass(&mut batch.events);
        self.look_at_run_delays(&batch).await?;
        self.damaged += batch.damaged;
        self.engine.send(Input::Events { session: self.id, batch, dropped: self.lost() }).await?;
        if self.connections.took_batch(self.id) {
            self.wchar = later(cawl_host::wchar(self.pid), self.wchar);
            self.usage = cawl_host::usage(self.pid).or(self.usage);
            self.uring.sample(self.engine).await?;
        }
        Ok(())
    }

    /// Tells of stacks whose functions were found.
    async fn tell_stacks(&mut self) -> anyhow::Result<()> {
        let named = self.stacks.named();
        self.send_stacks(named).await
    }

    async fn send_stacks(&self, stacks: Vec<Arc<Stack>>) -> anyhow::Result<()> {
        if !stacks.is_empty() {
            let session = self.id;
            self.engine.send(Input::act(move |engine| engine.stacks(session, &stacks))).await?;
        }
        Ok(())
    }

    /// Tells of all stacks, with their functions as far as these are found within this time.
    async fn finish_stacks(&mut self, limit: Duration) -> anyhow::Result<()> {
        let (connections, id) = (self.connections, self.id);
        let named = self.stacks.finish(limit, || connections.goes_on(id)).await;
        self.send_stacks(named).await?;
        if self.stacks.beyond > 0 {
            let note = format!(
                "{} calls of {} have no stack: there are more different ones than are told apart",
                self.stacks.beyond, self.program
            );
            self.note(note).await?;
        }
        match &self.ring {
            Some(ring) if ring.lost_stacks > 0 => {
                let (lost, program) = (ring.lost_stacks.min(1 << 48), &self.program);
                let note = format!("{lost} calls of {program} have no stack: the daemon was behind");
                self.note(note).await
            }
            _ => Ok(()),
        }
    }

    /// Reads up to `most` batches from the ring up to its present tails; returns their number. An invalid
    /// ring is not read again.
    async fn take_from_ring(&mut self, most: usize) -> anyhow::Result<usize> {
        let mut taken = 0;
        while taken < most {
            let Some(ring) = &mut self.ring else { break };
            let mut found = Ok(());
            if taken == 0 {
                found = ring.read_tails().map(|dropped| self.dropped = self.dropped.max(dropped));
                if ring.backlog() >= BACKLOG {
                    ring.tell_room(self.connections.rooms.of(self.pid));
                }
            }
            match found.and_then(|()| ring.batch()) {
                Ok(Some(batch)) => self.events(batch).await?,
                Ok(None) => break,
                Err(error) => {
                    self.ring = None;
                    self.note(format!("calls of process {} {ARE_MISSING}: {error}", self.pid)).await?;
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Tells how long threads waited for a processor, those that made these calls above all.
    async fn look_at_run_delays(&mut self, batch: &Batch) -> anyhow::Result<()> {
        let delays = self.run_delays.sample(batch);
        self.send_run_delays(delays).await
    }

    async fn send_run_delays(&self, delays: Vec<RunDelay>) -> anyhow::Result<()> {
        if !delays.is_empty() {
            let session = self.id;
            self.engine.send(Input::act(move |engine| engine.run_delays(session, &delays))).await?;
        }
        Ok(())
    }

    /// Samples stores through mappings.
    async fn look_at_mappings(&mut self) -> anyhow::Result<()> {
        let (events, failure) = self.mappings.sample();
        if let Some(failure) = failure
            && (failure.is_its_own || self.connections.is_first_failure_of_mappings())
        {
            self.note(failure.note).await?;
        }
        if !events.is_empty() {
            self.connections.active.store(cawl_host::now().0, Ordering::Relaxed);
            let batch = Batch { events, ..Batch::default() };
            self.engine.send(Input::Events { session: self.id, batch, dropped: self.lost() }).await?;
        }
        Ok(())
    }

    /// True if the process said that it can say nothing more.
    fn is_confined(&self) -> bool {
        self.goodbye.is_some_and(|goodbye| goodbye.ended == Ended::Confined)
    }

    /// Events lost so far, bounded so that a false number cannot overflow a sum.
    fn lost(&self) -> u64 {
        self.dropped.min(1 << 48) + self.damaged + self.refused
    }

    async fn note(&self, note: String) -> anyhow::Result<()> {
        self.connections.complaints.warn(self.uid, &note);
        Ok(self.engine.send(Input::Note { run: self.run, note }).await?)
    }

    /// The tracer disconnected, or sent an invalid message.
    async fn end(mut self, mut ended: anyhow::Result<()>) -> anyhow::Result<()> {
        // What a killed process had recorded is still in its ring.
        let goodbye = self.goodbye;
        let rest = self.take_from_ring(usize::MAX).await;
        ended = ended.and(rest.map(drop)).and(self.uring.finish(self.engine).await);
        ended = ended.and(self.finish_stacks(NAMED_WITHIN).await);
        // Other threads may send more; only after an exec it means that the process continues.
        let last = goodbye.filter(|goodbye| goodbye.ended != Ended::Exec);
        self.goodbye = self.goodbye.or(last);
        // The socket of a process ends with it, so that all that its streams held is in what the kernel has
        // counted by now.
        if self.counted_here
            && let Some(goodbye) = self.goodbye.as_mut().filter(|goodbye| goodbye.ended == Ended::Exit)
        {
            let Wchar { process, thread } = cawl_host::wchar(self.pid);
            if process.is_some() {
                goodbye.wchar = cawl_wire::Wchar { process, thread };
                goodbye.pending = 0;
            }
        }
        if self.by_socket && goodbye.is_none() {
            // What was counted before the latest batch says nothing of the calls after it.
            self.wchar = Wchar::default();
            self.note(format!(
                "{} {ENDED_UNHEARD}: its calls since its latest delivery are unknown, since without shared memory \
                 (as under a small ulimit -f) they come in batches",
                self.program
            ))
            .await?;
        }
        if goodbye.is_none() && self.ring.as_ref().is_some_and(|ring| ring.mapped > 0) {
            self.note(format!(
                "{} {ENDED_UNHEARD}, while it could store to shared mappings of files: what it stored since the \
                 latest look at them, one a second, is not known",
                self.program
            ))
            .await?;
        }
        let (goodbye, dropped) = (self.goodbye, self.lost());
        // A killed process sent no counters, but the kernel has them until it is reaped.
        if goodbye.is_none() || self.is_confined() {
            self.wchar = later(cawl_host::wchar(self.pid), self.wchar);
            self.usage = cawl_host::usage(self.pid).or(self.usage);
        }
        let (session, wchar, usage) = (self.id, self.wchar, self.usage);
        let end = move |engine: &mut Engine| {
            let vanished = SessionEnd::new(session, cawl_host::now(), EndKind::Vanished);
            engine.end(SessionEnd { wchar, usage, dropped, ..vanished }, goodbye);
        };
        self.engine.send(Input::act(end)).await?;
        if let Err(error) = &ended {
            self.note(format!("the last calls of process {} {ARE_MISSING}: {error}", self.pid)).await?;
        }
        ended
    }
}

/// The later counters. For a process that ended, the kernel may have zero or none.
fn later(new: Wchar, old: Wchar) -> Wchar {
    Wchar { process: new.process.max(old.process), thread: new.thread.max(old.thread) }
}
