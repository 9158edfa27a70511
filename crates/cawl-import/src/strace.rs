//! Calls from the output of `strace -f -ttt -T -y`.
//!
//! The law: **what strace saw is told, what it did not see is not made up.** Positions and identities
//! are followed through descriptors as the kernel does it; a figure that had to be guessed is flagged
//! ESTIMATED; a line that leads nowhere is counted under its reason. strace's output is read by people,
//! mixed with the program's own and cut off at any place, so no line ends the import.
//!
//! Times count from the first line; the summary's `epoch` is that moment.

mod calls;
mod events;
mod lex;
mod names;
mod openings;
mod queue;
mod tables;

use std::collections::{BTreeSet, HashMap, VecDeque};

use cawl_core::quantity::counted;
use cawl_core::{EndKind, Language, Outcome, Record, Session, SessionEnd, Time};
use cawl_wire::Op;

use self::events::{CallKind, Closing, Pending};
use self::lex::{Content, Prefix};
pub use self::lex::{LineTime, line_time};
use self::queue::Queue;
use self::tables::{Files, Table};
use super::{ImportError, ImportSummary, Importer, SkipCounts, SkipReason, bare};

/// Process id of the program where strace does not tell it (without -f, or on a terminal until the program
/// has children).
const UNTOLD: u32 = 1;

/// A thread that strace follows.
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

/// Reads the output of `strace -f -ttt -T -y`, to a file or to a terminal, of any version from 4.8 on; with
/// other forms of times (-tt, -t, -r), too.
#[derive(Default)]
pub struct StraceImporter {
    files: Files,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    pending: HashMap<u32, Pending>,
    /// Clones under way whose child has not been met: start, thread.
    expecting: BTreeSet<(u64, u32)>,
    queue: Queue,
    skips: SkipCounts,
    lines: u64,
    understood: u64,
    /// Time of the first line, in ns since 1970 or midnight.
    base: Option<u64>,
    /// Time of the last line, in ns since the base.
    now: u64,
    /// Nanoseconds added to times of day for midnights that have passed.
    days: u64,
    of_day: bool,
    /// Times count from the line before (-r), or are whole seconds (-t).
    relative: bool,
    whole_seconds: bool,
    /// Where times are whole seconds: when each thread's latest call ended, in ns since the base.
    ends: HashMap<u32, u64>,
    /// strace names threads in this output.
    named: bool,
    /// The number strace gives to the process that began without one.
    alias: Option<u32>,
    anonymous: bool,
    /// A message of strace's own came in the middle of this thread's line; the rest is the next line.
    glued: Option<(u32, String)>,
    /// The first process, and how it ended.
    first: Option<u32>,
    outcome: Option<Outcome>,
    sessions: u32,
    /// Sizes of regular files that stat told of lately, by path.
    stats: VecDeque<(String, u64)>,
}

impl StraceImporter {
    fn skip(&mut self, reason: SkipReason) {
        self.skips.count(reason, self.lines);
    }

    fn text(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        if let Some((before, child)) = interrupted(line) {
            return self.interrupted(before, child);
        }
        let (prefix, rest) = lex::prefix(line);
        let mut content = lex::content(rest);
        if let Some((tid, name)) = self.glued.take()
            && prefix == Prefix::default()
            && content == Content::Unreadable
        {
            if rest.trim_end() != "<unfinished ...>" {
                self.resume(tid, &name, line.trim_end());
            }
            return;
        }
        // Where times count from the line before, each line moves them on.
        let moves = content == Content::Signal || content == Content::Unreadable && self.relative;
        if moves {
            self.tell_time(prefix);
        }
        match content {
            Content::Unreadable => return self.skip(SkipReason::Unreadable),
            Content::Chatter => {
                if let Some(child) = attached(rest) {
                    self.named = true;
                    self.meet(child);
                }
                return;
            }
            Content::Signal => return,
            _ => {}
        }
        if prefix.tid.is_none() && prefix.time.is_none() {
            // A program's own output may have the form of a call, too.
            return self.skip(SkipReason::Timeless);
        }
        let timed = self.tell_time(prefix);
        let Some(tid) = self.thread(prefix.tid, &content) else {
            return self.skip(SkipReason::Anonymous);
        };
        if !timed && matches!(content, Content::Call { .. } | Content::Resumed { .. }) {
            return self.skip(SkipReason::Timeless);
        }
        self.whole_seconds |= prefix.whole_seconds;
        if prefix.whole_seconds
            && let Some(end) = self.ends.get(&tid)
        {
            self.now = self.now.max(*end);
        }
        self.understood += u64::from(timed);
        // A process killed inside a call: `write(1, "x", 1 <unfinished ...>) = ?`.
        if let Content::Call { name, rest, open: false } = content
            && let Some(at) =
                rest.rfind("<unfinished ...>").filter(|&at| rest[at + 16..].trim().starts_with(')'))
            && rest[at..].trim_end().ends_with('?')
        {
            content = Content::Call { name, rest: &rest[..at], open: true };
        }
        match content {
            Content::Call { name, rest, open: true } => self.begin(tid, name, rest),
            Content::Call { name, rest, open: false } => {
                self.abandon(tid);
                self.complete(tid, name, rest, self.now, Closing::AtOnce);
            }
            Content::Resumed { name, rest } => self.resume(tid, name, rest),
            Content::Exited(code) => self.ended(tid, Some(code), None),
            Content::Killed(signal) => self.ended(tid, None, Some(signal)),
            Content::Superseded(by) => self.superseded(tid, by),
            Content::Signal | Content::Chatter | Content::Unreadable => {}
        }
    }

    /// `clone(flags=CLONE_VMstrace: Process 8 attached`: the call goes on in the next line.
    fn interrupted(&mut self, before: &str, child: u32) {
        let (prefix, rest) = lex::prefix(before);
        if let Content::Call { name, rest, open: false } = lex::content(rest) {
            let content = Content::Call { name, rest, open: true };
            if self.tell_time(prefix)
                && let Some(tid) = self.thread(prefix.tid, &content)
            {
                self.understood += 1;
                self.begin(tid, name, rest);
                self.glued = Some((tid, name.to_owned()));
            }
        } else {
            self.skip(SkipReason::Unreadable);
        }
        self.named = true;
        self.meet(child);
    }

    /// Takes over the line's time; false if it has none.
    fn tell_time(&mut self, prefix: Prefix) -> bool {
        const DAY: u64 = 86_400_000_000_000;
        let Some(mut time) = prefix.time else { return false };
        if !prefix.of_day && time < lex::MOST_RELATIVE {
            self.relative = true;
            self.now = self.now.saturating_add(time);
            return true;
        }
        let base = *self.base.get_or_insert(time);
        self.of_day |= prefix.of_day;
        if prefix.of_day {
            time = time.saturating_add(self.days);
            if time.saturating_add(DAY / 2) < base.saturating_add(self.now) {
                self.days = self.days.saturating_add(DAY);
                time = time.saturating_add(DAY);
            }
        }
        self.now = time.saturating_sub(base);
        true
    }

    /// The thread a line is about; makes it known if it is not. None if several come into question.
    fn thread(&mut self, tid: Option<u32>, content: &Content<'_>) -> Option<u32> {
        let Some(tid) = tid else {
            let mut seen = self.threads.iter().filter(|(_, thread)| thread.seen).map(|(tid, _)| *tid);
            let only = match (self.named, seen.next(), seen.next()) {
                (false, ..) | (true, None, None) => UNTOLD,
                (true, Some(only), None) => only,
                _ => return None,
            };
            if only == UNTOLD && !self.threads.contains_key(&only) {
                self.anonymous = true;
                self.meet(only);
            }
            return Some(only);
        };
        self.named = true;
        if self.alias == Some(tid) {
            return Some(UNTOLD);
        }
        if !self.threads.contains_key(&tid) && self.anonymous && self.alias.is_none() {
            let own = self.pending.get(&UNTOLD);
            let resumes =
                matches!(content, Content::Resumed { name, .. } if own.is_some_and(|own| own.name == *name));
            if resumes || self.expecting.is_empty() {
                self.alias = Some(tid);
                return Some(UNTOLD);
            }
        }
        self.meet(tid);
        Some(tid)
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
    fn meet(&mut self, tid: u32) {
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
    fn begin(&mut self, tid: u32, name: &str, rest: &str) {
        self.abandon(tid);
        let Some(kind) = CallKind::of(name) else { return };
        let closing = match kind {
            CallKind::Close => Closing::Begun(self.take_closing(tid, rest)),
            _ => Closing::AtOnce,
        };
        let (name, text) = (name.to_owned(), rest.to_owned());
        let pending = Pending { name, kind, text, start: self.now, line: self.lines, child: None, closing };
        self.put_pending(tid, pending);
    }

    /// The rest of a call.
    fn resume(&mut self, tid: u32, name: &str, rest: &str) {
        let begun = self.pending.get(&tid).is_some_and(|call| call.name == name || name.starts_with('?'));
        if !begun {
            self.abandon(tid);
            return match CallKind::of(name) {
                Some(_) => self.skip(SkipReason::Headless),
                None => self.skips.count_other(name, self.lines),
            };
        }
        let Some(pending) = self.take_pending(tid) else { return };
        // `<... write resumed> <unfinished ...>) = ?`: killed before the result.
        let rest = rest.trim_start_matches(" <unfinished ...>");
        let text = format!("{}{}{rest}", pending.text, if rest.starts_with([')', ',']) { "" } else { " " });
        if CallKind::of(name) == Some(CallKind::Child) {
            self.adopt_result(tid, &pending, &text);
        }
        self.complete(tid, name, &text, pending.start, pending.closing);
    }

    /// A thread does something else: the call it was in will not be finished.
    fn abandon(&mut self, tid: u32) {
        if let Some(pending) = self.take_pending(tid) {
            self.skips.count(SkipReason::Endless, pending.line);
        }
    }

    /// A complete call.
    fn complete(&mut self, tid: u32, name: &str, text: &str, start: u64, closing: Closing) {
        let Some(kind) = CallKind::of(name) else { return self.skips.count_other(name, self.lines) };
        let Some(call) = lex::call(text) else { return self.skip(SkipReason::Unreadable) };
        if call.duration.is_none() && !matches!(call.result, lex::Outcome::None) {
            self.skip(SkipReason::Durationless);
        }
        if self.whole_seconds {
            self.skip(SkipReason::WholeSeconds);
            self.ends.insert(tid, start.saturating_add(call.duration.unwrap_or(0)));
        }
        self.apply(tid, name, kind, start, &call, closing);
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
    fn ended(&mut self, tid: u32, code: Option<i32>, signal: Option<&str>) {
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
    fn superseded(&mut self, tid: u32, by: u32) {
        self.abandon(tid);
        if let Some(pending) = self.take_pending(by) {
            self.put_pending(tid, pending);
        }
        self.threads.remove(&by);
    }
}

impl Importer for StraceImporter {
    fn line(&mut self, line: &[u8], out: &mut Vec<Record>) -> Result<(), ImportError> {
        self.lines += 1;
        self.text(&String::from_utf8_lossy(bare(line, self.lines == 1)));
        out.append(&mut self.queue.out);
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Record>) -> Result<ImportSummary, ImportError> {
        if self.understood == 0 {
            let fault = format!(
                "of {} none is a call with a time in front; record with strace -f -ttt -T -y -o FILE, and give \
                 that FILE",
                counted(self.lines, "line")
            );
            return Err(ImportError { line: self.lines, field: 0, fault });
        }
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
        out.append(&mut self.queue.out);
        out.extend(self.outcome.take().map(Record::Outcome));
        let skipped = self.skips.list();
        for loss in skipped.iter().filter(|skipped| skipped.reason.is_loss()) {
            let (reason, lines, first) = (&loss.reason, counted(loss.lines, "line"), loss.first);
            out.push(Record::Note(format!("strace import: {lines} (first: {first}): {reason}")));
        }
        let mut summary = std::mem::take(&mut self.queue.summary);
        if summary.out_of_order > 0 {
            let calls = counted(summary.out_of_order, "call");
            out.push(Record::Note(format!("strace import: {calls} out of order")));
        }
        (summary.lines, summary.sessions) = (self.lines, u64::from(self.sessions));
        let tells_epoch = !self.of_day && !self.relative;
        (summary.epoch, summary.skipped) = (self.base.filter(|_| tells_epoch), skipped);
        Ok(summary)
    }
}

/// The child in `strace: Process 8 attached`.
fn attached(text: &str) -> Option<u32> {
    text.trim_end().strip_prefix("strace: Process ")?.strip_suffix(" attached")?.parse().ok()
}

/// A line in whose middle strace tells of a child: what stands before, and the child.
fn interrupted(line: &str) -> Option<(&str, u32)> {
    let line = line.trim_end();
    if !line.ends_with(" attached") {
        return None;
    }
    let at = line.rfind("strace: Process ").filter(|&at| at > 0)?;
    Some((&line[..at], attached(&line[at..])?))
}

/// Operations by which a process comes into being.
fn birth(flags: &str) -> Op {
    if flags.contains("vfork") || flags.contains("CLONE_VFORK") { Op::Spawn } else { Op::Fork }
}

#[cfg(test)]
mod tests;
