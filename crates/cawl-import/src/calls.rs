//! What recorded calls do: to processes, descriptors and files, and the records that tell of it.
//!
//! The law: **what a tool saw is told, what it did not see is not made up.** Positions and identities are
//! followed through descriptors as the kernel does it; a figure that had to be guessed is flagged ESTIMATED;
//! a call that leads nowhere is counted under its reason. Importers of a tool's lines find the calls in them,
//! and hand them over in the form of [`text`].

mod apply;
mod events;
mod names;
mod openings;
mod queue;
mod tables;
pub(super) mod text;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Display;

use cawl_core::quantity::counted;
use cawl_core::{EndKind, Language, Outcome, Record, Session, SessionEnd, Time};
use cawl_wire::Op;

use self::events::{CallKind, Closing, Pending};
use self::queue::Queue;
use self::tables::{Files, Table};
use super::{ImportError, ImportSummary, SkipCounts, SkipReason, bare};

/// Process id of the program where no line tells one.
pub(super) const UNTOLD: u32 = 1;

/// True for calls that make a thread or a process.
pub(super) fn is_child(name: &str) -> bool {
    CallKind::of(name) == Some(CallKind::Child)
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    /// A line was about it.
    seen: bool,
    /// clone3 made it, of which only a pointer is known: a thread, unless what it does is a new process's.
    doubtful: bool,
}

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

/// What a recording does not tell, and what is done about it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    /// What stands behind pointers: names, the descriptors of a pipe. Descriptors that are not known lead to
    /// files of their own, numbered by process and descriptor.
    pub pointers: bool,
    /// Durations: a call lasts until the line that ends it.
    pub durations: bool,
    /// Names of descriptors are of a later moment than the call: they name only what has no name yet.
    pub late_names: bool,
}

/// Follows the calls of a recording.
#[derive(Default)]
pub(super) struct Calls {
    pub gaps: Gaps,
    /// Number of the line at hand, from 1.
    pub line: u64,
    /// Time of the line at hand, in ns since the recording's time 0.
    pub now: u64,
    /// Where the data of the call at hand are, in bytes, if the line tells what the kernel does not: the
    /// descriptor's position.
    pub place: Option<u64>,
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
    /// Processes that no clone made.
    roots: u32,
    /// Openings of files without a name, and descriptors of which no opening is known.
    unnamed: u64,
    unopened: u64,
    /// Sizes of regular files that stat told of lately, by path.
    stats: VecDeque<(String, u64)>,
}

impl Calls {
    /// Follows the calls of a recording with these gaps.
    pub fn new(gaps: Gaps) -> Calls {
        Calls { gaps, ..Calls::default() }
    }

    /// The text of the next line, which is at hand from now on.
    pub fn text<'a>(&mut self, line: &'a [u8]) -> Cow<'a, str> {
        self.line += 1;
        String::from_utf8_lossy(bare(line, self.line == 1))
    }

    /// The error of an input of which no line is what its lines should be.
    pub fn none_is(&self, what: impl Display) -> ImportError {
        let fault = format!("of {} none is {what}", counted(self.line, "line"));
        ImportError { line: self.line, field: 0, fault }
    }

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

    /// Makes a thread known that a line is about; if it is new, a clone that is under way made it.
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
            None => self.meet_in(tid, None),
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.seen = true;
        }
    }

    /// Makes a thread known that a line is about; if it is new, it was there before the recording. `pid` is
    /// its process, where the line tells that.
    pub fn meet_in(&mut self, tid: u32, pid: Option<u32>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.seen = true;
            match pid {
                Some(pid) if pid == tid && thread.doubtful => self.settle_doubt(tid, "execve"),
                Some(pid) if pid == thread.pid => thread.doubtful = false,
                Some(_) => drop(self.threads.remove(&tid)),
                None => {}
            }
        }
        if self.threads.contains_key(&tid) {
            return;
        }
        let pid = pid.unwrap_or(tid);
        if !self.processes.contains_key(&pid) {
            self.processes.insert(pid, Process { born: self.now, ..Process::default() });
            self.threads.insert(pid, Thread { pid, seen: true, doubtful: false });
            self.first.get_or_insert(pid);
            self.roots += 1;
        }
        self.threads.insert(tid, Thread { pid, seen: true, doubtful: false });
    }

    /// A line about a thread names its program.
    pub fn name(&mut self, tid: u32, program: &str) {
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.program.is_empty()) {
            program.clone_into(&mut process.program);
        }
    }

    /// The thread of this process that is in an exec.
    pub fn executing(&self, pid: u32) -> Option<u32> {
        let is_exec = |call: &Pending| call.kind == CallKind::Exec;
        let mut threads = self.pending.iter().filter(|(_, call)| is_exec(call)).map(|(tid, _)| *tid);
        threads.find(|tid| self.threads.get(tid).is_some_and(|thread| thread.pid == pid))
    }

    /// A thread calls exit, or exit_group: with its last thread, the process ends.
    pub fn exit(&mut self, tid: u32, is_group: bool, code: i32) {
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        let is_first = tid == pid && !is_group;
        if is_first && self.threads.iter().any(|(other, thread)| thread.pid == pid && *other != pid) {
            return;
        }
        self.ended(if is_group { pid } else { tid }, Some(code & 0xff), None);
    }

    /// Counts a line about something that is no call on files.
    pub fn other(&mut self, name: &str) {
        self.skips.count_other(name, self.line);
    }

    /// Events that the recorder lost.
    pub fn lost(&mut self, events: u64) {
        self.skips.count_many(SkipReason::Lost, self.line, events);
    }

    /// A clone made a thread or a process; `flags` is what strace shows of the call.
    fn born(&mut self, child: u32, parent: u32, flags: &str, at: u64) {
        let Some(pid) = self.threads.get(&parent).map(|thread| thread.pid) else { return };
        let doubtful = hides_flags(flags);
        if doubtful || flags.contains("CLONE_THREAD") {
            self.threads.insert(child, Thread { pid, seen: false, doubtful });
            return;
        }
        self.born_process(child, pid, flags, at);
    }

    fn born_process(&mut self, child: u32, pid: u32, flags: &str, at: u64) {
        let Some(process) = self.processes.get(&pid) else { return };
        let mut process = Process { ppid: pid, born: at, session: 0, ..process.clone() };
        if !flags.contains("CLONE_FILES") {
            process.table = tables::forked(&process.table);
        }
        self.processes.insert(child, process);
        self.threads.insert(child, Thread { pid: child, seen: false, doubtful: false });
    }

    /// A thread that clone3 made calls this: a new thread registers itself first, a new process arranges its
    /// signals or descriptors for an exec (glibc 2.34 to 2.41).
    fn settle_doubt(&mut self, tid: u32, name: &str) {
        const OF_PROCESS: [&str; 8] =
            ["rt_sigaction", "rt_sigprocmask", "dup2", "dup3", "setpgid", "setsid", "execve", "execveat"];
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.doubtful) else { return };
        let parent = thread.pid;
        thread.doubtful = false;
        if OF_PROCESS.contains(&name) {
            self.born_process(tid, parent, "vfork", self.now);
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.seen = true;
            }
        }
    }

    /// A call began and goes on in a later line.
    pub fn begin(&mut self, tid: u32, name: &str, rest: &str) {
        self.abandon(tid);
        self.settle_doubt(tid, name);
        let Some(kind) = CallKind::of(name) else { return };
        let closing = match kind {
            CallKind::Close => Closing::Begun(self.take_closing(tid, rest)),
            _ => Closing::AtOnce,
        };
        let (name, text) = (name.to_owned(), rest.to_owned());
        let pending = Pending {
            name,
            kind,
            text,
            start: self.now,
            line: self.line,
            child: None,
            is_over: false,
            closing,
        };
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
        let end = self.done(tid, name, &text, pending.start, pending.closing);
        self.forget_child(&pending);
        end
    }

    /// A clone is over: its child, too, if that has ended.
    fn forget_child(&mut self, call: &Pending) {
        if let Some(child) = call.child.filter(|_| call.is_over) {
            self.threads.remove(&child);
        }
    }

    /// A thread does something else: the call it was in will not be finished.
    fn abandon(&mut self, tid: u32) {
        if let Some(pending) = self.take_pending(tid) {
            self.skips.count(SkipReason::Endless, pending.line);
            self.forget_child(&pending);
        }
    }

    /// A complete call that began now; when it ended, in ns, if it is one that is followed.
    pub fn complete(&mut self, tid: u32, name: &str, text: &str) -> Option<u64> {
        self.abandon(tid);
        self.settle_doubt(tid, name);
        self.done(tid, name, text, self.now, Closing::AtOnce)
    }

    fn done(&mut self, tid: u32, name: &str, text: &str, start: u64, closing: Closing) -> Option<u64> {
        let Some(kind) = CallKind::of(name) else {
            self.skips.count_other(name, self.line);
            return None;
        };
        let Some(mut call) = text::call(text) else {
            self.skip(SkipReason::Unreadable);
            return None;
        };
        if self.gaps.durations {
            call.duration = call.duration.or(Some(self.now.saturating_sub(start)));
        }
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
        // The parent may learn of its child later than that has run and ended.
        if let Some(call) = self.pending.values_mut().find(|call| call.child == Some(tid)) {
            call.is_over = true;
            self.threads.insert(tid, thread);
        }
        if thread.pid != tid {
            return;
        }
        let left: Vec<u32> = self
            .threads
            .iter()
            .filter(|(other, thread)| thread.pid == tid && **other != tid)
            .map(|(other, _)| *other)
            .collect();
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
        let mut inferred = Vec::new();
        if self.unnamed > 0 {
            let files = counted(self.unnamed, "opening");
            inferred.push(format!(
                "{files} of files without a name: each is a file of its own, named by process and descriptor"
            ));
        }
        if self.unopened > 0 {
            let files = counted(self.unopened, "descriptor");
            inferred.push(format!(
                "{files} without an opening: taken for regular files, their positions estimated"
            ));
        }
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
        // Of a recording of a whole machine no process is the first.
        let outcome = self.outcome.take().filter(|_| self.roots == 1 || !self.gaps.pointers);
        out.extend(outcome.map(Record::Outcome));
        out.extend(inferred.iter().map(|text| Record::Note(format!("{tool} import: {text}"))));
        let skipped = self.skips.list();
        for loss in skipped.iter().filter(|skipped| skipped.reason.is_loss()) {
            let (reason, lines, first) = (&loss.reason, counted(loss.lines, loss.reason.unit()), loss.first);
            out.push(Record::Note(format!("{tool} import: {lines} (first: {first}): {reason}")));
        }
        let mut summary = std::mem::take(&mut self.queue.summary);
        if summary.out_of_order > 0 {
            let calls = counted(summary.out_of_order, "call");
            out.push(Record::Note(format!("{tool} import: {calls} out of order")));
        }
        (summary.lines, summary.sessions, summary.skipped) = (self.line, u64::from(self.sessions), skipped);
        summary.notes = inferred;
        summary
    }
}

/// True for clone3 where its flags stand behind a pointer.
fn hides_flags(flags: &str) -> bool {
    flags.starts_with("clone3 ") && !flags.contains("flags=")
}

/// Operations by which a process comes into being. clone3 with flags that are not known is posix_spawn's.
fn birth(flags: &str) -> Op {
    let shares = flags.contains("vfork") || flags.contains("CLONE_VFORK") || hides_flags(flags);
    if shares { Op::Spawn } else { Op::Fork }
}
