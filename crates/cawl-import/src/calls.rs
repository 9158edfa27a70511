//! What recorded calls do: to processes, descriptors and files, and the records that tell of it.
//!
//! The law: **what a tool saw is told, what it did not see is not made up.** Positions and identities are followed
//! through descriptors as the kernel does it; a figure that had to be guessed is flagged ESTIMATED; a call
//! that leads nowhere is counted under its reason. Importers of a tool's lines find the calls in them, and hand
//! them over in the form of [`text`].

mod apply;
mod events;
mod names;
mod openings;
mod queue;
mod tables;
mod text;

use std::collections::{BTreeSet, HashMap, VecDeque};

use cawl_core::quantity::counted;
use cawl_core::{EndKind, Language, Outcome, Record, Session, SessionEnd, Time};
use cawl_wire::Op;

use self::events::{CallKind, Closing, Pending};
use self::queue::Queue;
use self::tables::{Files, Table};
use super::{ImportSummary, SkipCounts, SkipReason};

/// Process id of the program where no line tells one.
pub(super) const UNTOLD: u32 = 1;

/// A thread that is followed.
#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    /// A line was about it.
    seen: bool,
}

/// A process.
#[derive(Clone, Debug, Default)]
struct Process {
    ppid: u32,
    table: Table,
    /// Working directory, empty while it is not known.
    cwd: String,
    program: String,
    arguments: Vec<String>,
    /// As the files tell that it reads.
    language: Option<Language>,
    /// When the process image began, in ns.
    born: u64,
    /// Number of its session; 0 while it was not told.
    session: u32,
}

/// Follows the calls of a recording.
#[derive(Default)]
pub(super) struct Calls {
    /// Number of the line at hand, from 1.
    pub line: u64,
    /// Time of the line at hand, in ns since the recording's time 0.
    pub now: u64,
    files: Files,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    pending: HashMap<u32, Pending>,
    /// Clones under way whose child has not been met: start, thread.
    expecting: BTreeSet<(u64, u32)>,
    queue: Queue,
    skips: SkipCounts,
    /// The first process, and how it ended.
    first: Option<u32>,
    outcome: Option<Outcome>,
    sessions: u32,
    /// Sizes of regular files that stat told of lately, by path.
    stats: VecDeque<(String, u64)>,
}

impl Calls {
    /// Counts the line at hand.
    pub fn skip(&mut self, reason: SkipReason) {
        self.skips.count(reason, self.line);
    }

    /// The records that are ready.
    pub fn take(&mut self, out: &mut Vec<Record>) {
        out.append(&mut self.queue.out);
    }

    /// True if a line was about this thread, or a clone made it.
    pub fn knows(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// The threads that lines were about.
    pub fn seen(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().filter(|(_, thread)| thread.seen).map(|(tid, _)| *tid)
    }

    /// The name of the call that a thread is in.
    pub fn under_way(&self, tid: u32) -> Option<&str> {
        self.pending.get(&tid).map(|call| call.name.as_str())
    }

    /// A clone is under way whose child has not been met.
    pub fn expects_child(&self) -> bool {
        !self.expecting.is_empty()
    }

    fn put_pending(&mut self, tid: u32, call: Pending) {
        if call.child.is_none() && call.kind == CallKind::Child {
            self.expecting.insert((call.start, tid));
        }
        self.pending.insert(tid, call);
    }

    fn take_pending(&mut self, tid: u32) -> Option<Pending> {
        let call = self.pending.remove(&tid)?;
        self.expecting.remove(&(call.start, tid));
        Some(call)
    }

    /// Makes a thread known that a line is about.
    pub fn meet(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.seen = true;
            return;
        }
        let parent = self.expecting.pop_first().map(|(_, tid)| tid);
        match parent.and_then(|parent| Some((parent, self.pending.get_mut(&parent)?))) {
            Some((parent, call)) => {
                call.child = Some(tid);
                let (flags, start) = (format!("{} {}", call.name, call.text), call.start);
                self.born(tid, parent, &flags, start);
            }
            None => {
                self.processes.insert(tid, Process { born: self.now, ..Process::default() });
                self.threads.insert(tid, Thread { pid: tid, seen: true });
                self.first.get_or_insert(tid);
            }
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.seen = true;
        }
    }

    /// A clone made a thread or a process; `flags` is what strace shows of the call.
    fn born(&mut self, child: u32, parent: u32, flags: &str, at: u64) {
        let Some(pid) = self.threads.get(&parent).map(|thread| thread.pid) else { return };
        if flags.contains("CLONE_THREAD") {
            self.threads.insert(child, Thread { pid, seen: false });
            return;
        }
        let Some(process) = self.processes.get(&pid) else { return };
        let mut process = Process { ppid: pid, born: at, session: 0, ..process.clone() };
        if !flags.contains("CLONE_FILES") {
            process.table = tables::forked(&process.table);
        }
        self.processes.insert(child, process);
        self.threads.insert(child, Thread { pid: child, seen: false });
    }

    /// A call began and goes on in a later line.
    pub fn begin(&mut self, tid: u32, name: &str, rest: &str) {
        self.abandon(tid);
        let Some(kind) = CallKind::of(name) else { return };
        let closing = match kind {
            CallKind::Close => Closing::Begun(self.take_closing(tid, rest)),
            _ => Closing::AtOnce,
        };
        let (name, text) = (name.to_owned(), rest.to_owned());
        let pending = Pending { name, kind, text, start: self.now, line: self.line, child: None, closing };
        self.put_pending(tid, pending);
    }

    /// The rest of a call; when it ended, in ns, if it was one that is followed.
    pub fn resume(&mut self, tid: u32, name: &str, rest: &str) -> Option<u64> {
        let begun = self.pending.get(&tid).is_some_and(|call| call.name == name || name.starts_with('?'));
        if !begun {
            self.abandon(tid);
            match CallKind::of(name) {
                Some(_) => self.skip(SkipReason::Headless),
                None => self.skips.count_other(name, self.line),
            }
            return None;
        }
        let pending = self.take_pending(tid)?;
        // `<... write resumed> <unfinished ...>) = ?`: killed before the result.
        let rest = rest.trim_start_matches(" <unfinished ...>");
        let text = format!("{}{}{rest}", pending.text, if rest.starts_with([')', ',']) { "" } else { " " });
        if CallKind::of(name) == Some(CallKind::Child) {
            self.adopt_result(tid, &pending, &text);
        }
        self.done(tid, name, &text, pending.start, pending.closing)
    }

    /// A thread does something else: the call it was in will not be finished.
    fn abandon(&mut self, tid: u32) {
        if let Some(pending) = self.take_pending(tid) {
            self.skips.count(SkipReason::Endless, pending.line);
        }
    }

    /// A complete call that began now; when it ended, in ns, if it is one that is followed.
    pub fn complete(&mut self, tid: u32, name: &str, text: &str) -> Option<u64> {
        self.abandon(tid);
        self.done(tid, name, text, self.now, Closing::AtOnce)
    }

    fn done(&mut self, tid: u32, name: &str, text: &str, start: u64, closing: Closing) -> Option<u64> {
        let Some(kind) = CallKind::of(name) else {
            self.skips.count_other(name, self.line);
            return None;
        };
        let Some(call) = text::call(text) else {
            self.skip(SkipReason::Unreadable);
            return None;
        };
        if call.duration.is_none() && !matches!(call.result, text::Outcome::None) {
            self.skip(SkipReason::Durationless);
        }
        self.apply(tid, name, kind, start, &call, closing);
        Some(start.saturating_add(call.duration.unwrap_or(0)))
    }

    /// Tells of a process before its first event.
    fn announce(&mut self, pid: u32) -> u32 {
        let Some(process) = self.processes.get_mut(&pid) else { return 0 };
        if process.session == 0 {
            self.sessions += 1;
            process.session = self.sessions;
            let session = Session {
                id: process.session,
                pid,
                ppid: process.ppid,
                started: Time(process.born),
                program: process.program.clone(),
                arguments: process.arguments.clone(),
                language: process.language,
                ..Session::default()
            };
            self.queue.push(process.born, Record::Session(session));
        }
        process.session
    }

    fn close_session(&mut self, pid: u32, at: u64, how: EndKind) {
        let id = self.announce(pid);
        self.queue.push(at, Record::End(SessionEnd::new(id, Time(at), how)));
    }

    /// A thread ended; with its first thread, the process.
    pub fn ended(&mut self, tid: u32, code: Option<i32>, signal: Option<&str>) {
        self.abandon(tid);
        let Some(thread) = self.threads.remove(&tid) else { return };
        if thread.pid != tid {
            return;
        }
        let left: Vec<u32> =
            self.threads.iter().filter(|(_, thread)| thread.pid == tid).map(|(tid, _)| *tid).collect();
        for other in left {
            self.abandon(other);
            self.threads.remove(&other);
        }
        let how = match signal {
            None => EndKind::Exit,
            Some("SIGABRT") => EndKind::Abort,
            Some(_) => EndKind::Vanished,
        };
        self.close_session(tid, self.now, how);
        self.processes.remove(&tid);
        if self.first == Some(tid) && self.outcome.is_none() {
            self.outcome =
                Some(Outcome { pid: tid, code, signal: signal.and_then(names::signal), wchar: None });
        }
    }

    /// Thread `by` has called exec and continues as `tid`, the first thread of its process.
    pub fn superseded(&mut self, tid: u32, by: u32) {
        self.abandon(tid);
        if let Some(pending) = self.take_pending(by) {
            self.put_pending(tid, pending);
        }
        self.threads.remove(&by);
    }

    /// The recording is over: appends the last records and says what was read. `tool` made the recording.
    pub fn finish(&mut self, tool: &str, out: &mut Vec<Record>) -> ImportSummary {
        for pending in self.pending.drain().map(|(_, pending)| pending) {
            self.skips.count(SkipReason::Endless, pending.line);
        }
        self.queue.drain();
        let mut running: Vec<u32> = self.processes.keys().copied().collect();
        running.sort_unstable();
        for pid in running {
            // A child that strace was not asked to follow has no lines and no session.
            if self.threads.get(&pid).is_some_and(|thread| thread.seen) {
                self.close_session(pid, self.now, EndKind::Running);
            }
        }
        self.queue.drain();
        self.take(out);
        out.extend(self.outcome.take().map(Record::Outcome));
        let skipped = self.skips.list();
        for loss in skipped.iter().filter(|skipped| skipped.reason.is_loss()) {
            let (reason, lines, first) = (&loss.reason, counted(loss.lines, "line"), loss.first);
            out.push(Record::Note(format!("{tool} import: {lines} (first: {first}): {reason}")));
        }
        let mut summary = std::mem::take(&mut self.queue.summary);
        if summary.out_of_order > 0 {
            let calls = counted(summary.out_of_order, "call");
            out.push(Record::Note(format!("{tool} import: {calls} out of order")));
        }
        (summary.lines, summary.sessions, summary.skipped) = (self.line, u64::from(self.sessions), skipped);
        summary
    }
}

/// Operations by which a process comes into being.
fn birth(flags: &str) -> Op {
    if flags.contains("vfork") || flags.contains("CLONE_VFORK") { Op::Spawn } else { Op::Fork }
}
