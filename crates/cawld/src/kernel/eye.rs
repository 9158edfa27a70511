//! The task that reads what probes tell.

mod meeting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cawl_core::{
    ARE_MISSING, Bytes, EndKind, FileFacts, LOST_REQUESTS, Nanos, SEEN_BY_PROBES, Time, Usage, host_text,
    wchar_bytes,
};
use cawl_probe::{End, Life, Losses, Named, Probe, Requests, Told, Translator};
use cawl_wire::FileKind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};

use super::held::Held;
use super::part::{Part, Target};
use super::process::{Process, running_wrote, text, threads};
use crate::batch::Batch;
use crate::connections::Connections;
use crate::engine::Input;

/// Interval of reading the ring, in ms: while calls come, and at most.
const BUSY: u64 = 4;
const IDLE: u64 = 25;
/// Records read before calls are sent to the engine.
const ROUND: usize = 8192;
/// Interval of looking at groups, at mappings and at what is left.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The daemon's own lane.
const OWN: u64 = 0;

/// What is to be followed, too; the reply is closed when nothing of it is left.
pub struct Ask {
    pub target: Target,
    /// Told once what is there is followed.
    pub reply: oneshot::Sender<watch::Receiver<()>>,
}

/// Probes, and the processes that they follow.
pub struct Eye<'a> {
    probe: Probe,
    translator: Translator,
    run: u64,
    connections: &'a Arc<Connections>,
    engine: mpsc::Sender<Input>,
    processes: BTreeMap<u32, Process<'a>>,
    /// What is followed, by a number of its own.
    parts: BTreeMap<u32, Part>,
    latest_part: u32,
    lost: u64,
    /// Those of them that are known whose they were.
    assigned: u64,
    /// Those of processes whose begin was not read yet.
    dropped: BTreeMap<u32, u64>,
    /// Lost calls that count with no session yet.
    unassigned: u64,
    /// More was in the ring than was read.
    is_behind: bool,
    /// It is told to stop: what begins from now on is not followed.
    stopped: Option<Time>,
    /// The kernel counts the bytes of each thread.
    counts: bool,
    /// Processes whose calls are not taken, with the part that they belong to: the tracer's library has them,
    /// or they are not the program yet.
    left_out: BTreeMap<u32, u32>,
    /// Sessions that may be the tracer's library's, too.
    held: BTreeMap<u32, Held>,
    /// Processes that ended, of which other threads may have more to tell.
    ending: BTreeMap<u32, Life>,
}

impl<'a> Eye<'a> {
    /// Of probes that are attached.
    pub fn new(
        probe: Probe,
        run: u64,
        connections: &'a Arc<Connections>,
        engine: mpsc::Sender<Input>,
    ) -> Eye<'a> {
        Eye {
            probe,
            translator: Translator::default(),
            run,
            connections,
            engine,
            processes: BTreeMap::new(),
            parts: BTreeMap::new(),
            latest_part: 0,
            lost: 0,
            assigned: 0,
            dropped: BTreeMap::new(),
            unassigned: 0,
            is_behind: false,
            stopped: None,
            counts: running_wrote(std::process::id()).is_some(),
            left_out: BTreeMap::new(),
            held: BTreeMap::new(),
            ending: BTreeMap::new(),
        }
    }

    /// Says what is not seen.
    async fn begin(&self) -> anyhow::Result<()> {
        // The daemon's own lane has other calls, too, and no report.
        if self.run == OWN {
            return Ok(());
        }
        let uring = if self.probe.sees_uring {
            ""
        } else {
            ", and requests of io_uring: it has no tracepoints for them"
        };
        let stores = if self.probe.sees_stores { "" } else { "stores through mappings between samples, " };
        self.note(format!("{SEEN_BY_PROBES}; not seen: {stores}calls of 32-bit programs{uring}")).await
    }

    /// Gives what is of a session to the engine, or holds it.
    async fn give(&mut self, session: u32, input: Input) -> anyhow::Result<()> {
        match self.held.get_mut(&session) {
            Some(held) => held.push(input),
            None => self.engine.send(input).await?,
        }
        Ok(())
    }

    /// Gives what was held long enough, or all, to the engine, and takes back what the tracer's library
    /// tells.
    async fn settle(&mut self, all: bool) -> anyhow::Result<()> {
        for session in self.held.keys().copied().collect::<Vec<_>>() {
            let Some(mut held) = self.held.remove(&session) else { continue };
            let mut due = Vec::new();
            if let Some(began) = self.connections.began(held.pid, held.image) {
                let end = self.is_the_library_s(held.pid, session, began).filter(|_| held.is_told);
                due.extend(held.take_back(began).chain(end));
            } else {
                due.extend(std::iter::from_fn(|| held.pop(if all { None } else { Some(Instant::now()) })));
                if !held.is_over() && !all {
                    self.held.insert(session, held);
                }
            }
            for input in due {
                self.engine.send(input).await?;
            }
        }
        Ok(())
    }

    /// Reads until it is told to stop, or the daemon ends.
    pub async fn follow(
        mut self,
        mut stopped: watch::Receiver<bool>,
        mut asks: mpsc::Receiver<Ask>,
    ) -> anyhow::Result<Vec<String>> {
        self.begin().await?;
        let mut pause = BUSY;
        let mut look = Instant::now();
        loop {
            let mut ask = None;
            let is_last = tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop) => true,
                () = self.connections.draining() => true,
                Some(asked) = asks.recv() => {
                    ask = Some(asked);
                    false
                }
                () = sleep(Duration::from_millis(pause)) => false,
            };
            if is_last {
                return self.finish().await;
            }
            if let Some(ask) = ask {
                self.follow_too(ask).await?;
            }
            let taken = self.take(ROUND).await?;
            self.settle(false).await?;
            self.is_behind = taken >= ROUND;
            pause = match taken {
                ROUND.. => 0,
                0 => (pause * 2).min(IDLE),
                _ => BUSY,
            };
            if look.elapsed() >= LOOK_EVERY {
                look = Instant::now();
                self.poll().await?;
            }
        }
    }

    /// Reads records and sends what they mean; returns their number.
    async fn take(&mut self, most: usize) -> anyhow::Result<usize> {
        let mut told = Vec::new();
        // What their other threads told is in the ring by now.
        let mut ending = std::mem::take(&mut self.ending);
        let translator = &mut self.translator;
        let taken = self.probe.read(most, |record| translator.take(record, |one| told.push(one)));
        translator.tell_stores(|one| told.push(one));
        if taken > 0 {
            self.connections.active.store(cawl_host::now().0, Ordering::Relaxed);
        }
        for one in told {
            match one {
                Told::Event(event) => {
                    if !self.processes.contains_key(&event.pid) {
                        self.meet(event.pid, None).await?;
                    }
                    let end = event.start.saturating_add(event.duration);
                    let Some(process) = self.processes.get_mut(&event.pid) else {
                        let is_lost = self.stopped.is_none() && !self.left_out.contains_key(&event.pid);
                        self.unassigned += u64::from(is_lost);
                        continue;
                    };
                    if end <= process.counted.0 {
                        process.ended_wrote = process.ended_wrote.map(|wrote| wrote + wchar_bytes(&event));
                    }
                    if process.has(end) {
                        process.batch.events.push(event);
                    }
                }
                Told::File(pid, named) => self.named(pid, &named).await?,
                Told::Found(life) => {
                    let name = text(&life.name);
                    if !self.processes.contains_key(&life.tgid) {
                        let written = life.wrote().filter(|_| self.counts);
                        self.begin_or_keep((life.tgid, None), Time(life.at), Some(name), written).await?;
                    }
                }
                Told::Fork(life) => {
                    // Its number was another's, of whose end the last is read by now.
                    let before = ending.remove(&life.other);
                    if let Some(before) = before.or_else(|| self.ending.remove(&life.other)) {
                        self.ended(&before, true).await?;
                    }
                    let program = self.processes.get(&life.tgid).map(|parent| parent.program.clone());
                    let written = self.counts.then_some(0);
                    let (child, at) = ((life.other, Some(life.tgid)), Time(life.at));
                    self.begin_or_keep(child, at, program, written).await?;
                }
                Told::Exec(image)
                    if self.processes.get(&image.tgid).is_some_and(|process| !process.has(image.at)) => {}
                Told::Exec(image) => {
                    self.send(image.tgid).await?;
                    let part = self.part_of(image.tgid);
                    self.left_out.remove(&image.tgid);
                    let before = self.processes.remove(&image.tgid);
                    let ended =
                        before.as_ref().map_or(self.counts.then_some(0), |process| process.ended_wrote);
                    let written = ended.map(|ended| ended + image.wchar);
                    let parent = before.as_ref().map(|process| process.parent);
                    if let Some(process) = before {
                        let end = process.end(Time(image.at), EndKind::Exec, written, None);
                        self.end(end, process).await?;
                    }
                    let (at, known) = (Time(image.at), (parent, Some(text(&image.program))));
                    self.begin_session((image.tgid, part), (at, at), known, written, false).await?;
                    let process = self.processes.get_mut(&image.tgid);
                    process.into_iter().for_each(|process| process.ended_wrote = ended);
                }
                Told::Exit(life) => self.exit(&life).await?,
            }
        }
        for life in ending.values() {
            self.ended(life, false).await?;
        }
        self.count_losses();
        let waiting =
            |process: &&Process<'_>| !process.batch.events.is_empty() || !process.batch.files.is_empty();
        let pids: Vec<u32> =
            self.processes.iter().filter(|(_, process)| waiting(process)).map(|(pid, _)| *pid).collect();
        for pid in pids {
            self.send(pid).await?;
        }
        Ok(taken)
    }

    /// A file is about to be in a process's calls.
    async fn named(&mut self, pid: u32, named: &Named) -> anyhow::Result<()> {
        // One that was not met yet: the record that tells of it was lost.
        if !self.processes.contains_key(&pid) {
            self.meet(pid, None).await?;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if FileKind::from_mode(named.mode) == FileKind::Regular && !self.probe.sees_stores {
            process.mappings.has_file();
        }
        let file = FileFacts {
            dev: named.file.dev,
            ino: named.file.ino,
            birth: named.file.birth,
            renamed: named.renamed,
            size: Bytes(named.size),
            block: 4096,
            mode: named.mode,
            path: host_text::name(&named.path),
            owner: 0,
        };
        let session = process.session;
        self.give(session, Input::File { session, file }).await
    }

    /// A thread or process ended.
    async fn exit(&mut self, life: &Life) -> anyhow::Result<()> {
        if life.end != End::Thread {
            self.left_out.remove(&life.tgid);
        }
        let process = self.processes.get_mut(&life.tgid).filter(|process| process.has(life.at));
        let Some(process) = process else {
            if life.end == End::MaybeProcess {
                self.probe.unfollow(life.tgid);
            }
            return Ok(());
        };
        // One that ended before is not in what was read then.
        if life.at > process.counted.0 {
            process.ended_wrote = process.ended_wrote.map(|written| written.saturating_add(life.wchar));
        }
        let (user, system) = life.times();
        process.ended_usage.0 += user;
        process.ended_usage.1 += system;
        match life.end {
            End::Thread => Ok(()),
            End::Process => self.ended(life, true).await,
            End::MaybeProcess => {
                self.ending.entry(life.tgid).or_insert(*life);
                Ok(())
            }
        }
    }

    /// A process ended, and all that its threads told is read. Unless the kernel follows it no longer:
    /// another may have its number by now.
    async fn ended(&mut self, life: &Life, is_left: bool) -> anyhow::Result<()> {
        self.count_losses();
        if !is_left {
            self.probe.unfollow(life.tgid);
        }
        self.send(life.tgid).await?;
        let Some(process) = self.processes.remove(&life.tgid) else { return Ok(()) };
        let how = if life.code & 0x7f == 0 { EndKind::Exit } else { EndKind::Vanished };
        let (user, system) = process.ended_usage;
        let usage =
            Usage { user: Nanos::new(user as f64), system: Nanos::new(system as f64), ..Usage::default() };
        let end = process.end(Time(life.at), how, process.ended_wrote, Some(usage));
        self.end(end, process).await
    }

    async fn end(&mut self, end: cawl_core::SessionEnd, process: Process<'a>) -> anyhow::Result<()> {
        tracing::debug!(program = process.program, "no longer followed");
        self.held.get_mut(&process.session).into_iter().for_each(|held| held.image.1 = Some(end.at));
        self.give(process.session, Input::act(move |engine| engine.end(end, None))).await
    }

    /// Gives a process's calls to the engine.
    async fn send(&mut self, pid: u32) -> anyhow::Result<()> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let mut batch = std::mem::take(&mut process.batch);
        if batch.events.is_empty() {
            return Ok(());
        }
        process.mappings.pass(&mut batch.events);
        let delays = process.run_delays.sample(&batch);
        let (session, dropped) = (process.session, process.dropped);
        if !delays.is_empty() {
            self.give(session, Input::act(move |engine| engine.run_delays(session, &delays))).await?;
        }
        self.give(session, Input::Events { session, batch, dropped }).await
    }

    /// What was lost counts with the process whose calls it were.
    fn count_losses(&mut self) {
        let lost = if self.stopped.is_some() { self.lost } else { self.probe.lost().calls() };
        if lost != std::mem::replace(&mut self.lost, lost) {
            for (pid, calls) in self.probe.take_dropped() {
                self.assigned += calls;
                *self.dropped.entry(pid).or_default() += calls;
            }
        }
        self.dropped.retain(|pid, calls| {
            let process = self.processes.get_mut(pid);
            process.map(|process| process.dropped += *calls).is_none()
        });
    }

    /// Looks at groups, at mappings, and whether processes are still there.
    async fn poll(&mut self) -> anyhow::Result<()> {
        let mut unseen = Vec::new();
        for (number, part) in &mut self.parts {
            unseen.extend(part.unseen(&mut self.probe).into_iter().map(|pid| (pid, *number)));
        }
        for (pid, number) in unseen.into_iter().filter(|(pid, _)| *pid != std::process::id()) {
            self.meet(pid, Some(number)).await?;
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            self.look_at(pid).await?;
        }
        let followed: BTreeSet<u32> = self.processes.values().map(|process| process.part).collect();
        let over = |number: &u32, part: &mut Part| !followed.contains(number) && part.wanted().is_empty();
        for (_, part) in self.parts.extract_if(.., over) {
            part.leave(&mut self.probe);
        }
        Ok(())
    }

    async fn look_at(&mut self, pid: u32) -> anyhow::Result<()> {
        let image = self.processes.get(&pid).map(|process| (process.session, process.began));
        if let Some((session, began)) = image.filter(|(session, _)| !self.held.contains_key(session))
            && let Some(from) = self.connections.began(pid, (began, None))
            && let Some(end) = self.is_the_library_s(pid, session, from)
        {
            return Ok(self.engine.send(end).await?);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let (session, dropped) = (process.session, process.dropped);
        let delays = process.run_delays.sample(&Batch::default());
        if !delays.is_empty() {
            self.give(session, Input::act(move |engine| engine.run_delays(session, &delays))).await?;
        }
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if tokio::time::timeout(Duration::ZERO, process.mappings.due()).await.is_ok() {
            let (events, failure) = process.mappings.sample();
            let is_told = failure.is_some() && self.connections.is_first_failure_of_mappings();
            if let Some(failure) = failure.filter(|failure| failure.is_its_own || is_told) {
                self.note(failure.note).await?;
            }
            if !events.is_empty() {
                let batch = Batch { events, ..Batch::default() };
                self.give(session, Input::Events { session, batch, dropped }).await?;
            }
        }
        // The record of its end was lost, or it had ended when it was met: what was told of it is read by
        // now.
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let is_missing = !self.is_behind && !cawl_host::is_running(pid);
        if std::mem::replace(&mut process.is_missing, is_missing)
            && is_missing
            && threads(pid) == 0
            && let Some(process) = self.processes.remove(&pid)
        {
            self.translator.forget(pid);
            self.probe.unfollow(pid);
            let end = process.end(cawl_host::now(), EndKind::Vanished, None, None);
            self.end(end, process).await?;
        }
        Ok(())
    }

    async fn note(&self, note: String) -> anyhow::Result<()> {
        Ok(self.engine.send(Input::Note { run: self.run, note }).await?)
    }

    /// Detaches, reads the rest and ends the sessions that are left.
    async fn finish(mut self) -> anyhow::Result<Vec<String>> {
        self.count_losses();
        self.stopped = Some(cawl_host::now());
        // What was written is counted up to here: to detach takes longer than many calls.
        for (pid, process) in &mut self.processes {
            process.until = Some((cawl_host::now(), running_wrote(*pid)));
        }
        self.probe.detach();
        while self.take(ROUND).await? > 0 {}
        // Of a process whose begin was among the rest, what was lost is known by now.
        self.unassigned += self.lost.saturating_sub(self.assigned) + self.dropped.values().sum::<u64>();
        let processes = &mut self.processes;
        self.translator.finish(None, |told| {
            if let Told::Event(event) = told
                && let Some(process) = processes.get_mut(&event.pid)
            {
                process.batch.events.push(event);
            }
        });
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.send(pid).await?;
        }
        for (pid, process) in std::mem::take(&mut self.processes) {
            let (at, running) = process.until.unwrap_or((cawl_host::now(), None));
            let written = process.ended_wrote.zip(running).map(|(ended, now)| ended + now);
            let end = process.end(at, EndKind::Running, written, cawl_host::usage(pid));
            self.end(end, process).await?;
        }
        self.settle(true).await?;
        let Losses { compat, processes, requests, lives, .. } = self.probe.lost();
        let Requests { count, took, waited } = self.translator.requests;
        let (took, waited) = (took as f64 / 1e9, waited as f64 / 1e9);
        let complete = format!(
            "requests of io_uring or libaio took {took:.3} s from submission to completion; in {waited:.3} s of it \
             the program was in a call for them"
        );
        let unknown = format!("calls of processes that are not known {ARE_MISSING}");
        let notes = [
            (count, &*complete),
            (self.unassigned, &*unknown),
            (compat, "calls of 32-bit programs were not recorded: their numbers are others"),
            (requests, LOST_REQUESTS),
            (lives, "beginnings or ends of processes and threads were not told: there was no room"),
            (processes, "processes were not followed: there were too many at once"),
        ];
        let told = notes.into_iter().filter(|(count, _)| *count > 0);
        Ok(told.map(|(count, what)| format!("{count} {what}")).collect())
    }
}
