//! Calls as `strace -f -ttt -T -y` prints them, with times to the nanosecond
//! (`--absolute-timestamps=unix,ns --syscall-times=ns`).
//!
//! The law: **a reader that follows the lines comes to the trace's files, places and bytes.** What the lines
//! before do not tell of a position or a size, an lseek or fstat of no duration does, and is counted.

mod calls;
mod processes;

use std::collections::VecDeque;
use std::fmt::{self, Display};
use std::io::{self, Write};

use cawl_core::{EndKind, FileFacts, Outcome, Record, Report, Session, SessionEnd, quantity::counted};
use cawl_wire::{Event, FileId, FileKind, Op};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use rustc_hash::FxHashMap;

use super::traffic::Losses;
use super::{About, Call, Exporter, Output};
use processes::Process;

/// Time of day of CLOCK_MONOTONIC's 0 where the trace does not tell, in ns: readers take less for a span.
const UNTOLD: u64 = 1_000_000_000_000_000_000;
/// The environment of a program, as this export shows it.
const VARIABLES: &str = "0x7ffe00000000 /* 0 vars */";

const NO_NAME: &str = "left out: the names are not known";
const NO_CALL: &str = "left out: no system call of their own";

pub struct Strace {
    out: Output,
    /// Time of day at CLOCK_MONOTONIC's 0, in ns since 1970.
    epoch: u64,
    processes: FxHashMap<u32, Process>,
    sessions: FxHashMap<u32, u32>,
    /// How the first process ended, which is told last, with its status.
    first: Option<(u32, Option<SessionEnd>)>,
    outcome: Option<Outcome>,
    paths: FxHashMap<FileId, String>,
    /// Names that files get by renames which come later: live, a name is told before the calls that are held.
    coming: FxHashMap<FileId, VecDeque<String>>,
    /// Renames that wait for the new name of a file, which imports tell after them.
    renames: FxHashMap<FileId, Event>,
    added: u64,
    losses: Losses,
}

/// True of an export that begins so.
pub fn is_one(head: &str) -> bool {
    head.contains(VARIABLES) && head.starts_with(|c: char| c.is_ascii_digit())
}

impl Strace {
    pub fn new(out: Output, about: &About<'_>) -> Strace {
        let host = about.host.filter(|host| host.wall_clock > 0);
        let told = host.map(|host| (host.wall_clock * 1_000_000_000).saturating_sub(host.started.0));
        Strace {
            out,
            epoch: told.unwrap_or(UNTOLD),
            processes: FxHashMap::default(),
            sessions: FxHashMap::default(),
            first: None,
            outcome: None,
            paths: FxHashMap::default(),
            coming: FxHashMap::default(),
            renames: FxHashMap::default(),
            added: 0,
            losses: Losses::default(),
        }
    }

    fn write(&mut self, tid: u32, at: u64, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{tid:<5} {} {text}", Seconds(self.epoch.saturating_add(at)))
    }

    /// The line of a call that has this text up to its result.
    fn line(&mut self, event: &Event, text: impl Display, result: impl Display) -> io::Result<()> {
        let took = Seconds(event.duration);
        if event.errno == 0 {
            return self.write(event.tid, event.start, format_args!("{text} = {result} <{took}>"));
        }
        let errno = Errno::from_raw(event.errno.into());
        // A number that Linux has no name for is read as well.
        let name = match errno {
            Errno::UnknownErrno => format!("ERRNO_{}", event.errno),
            known => format!("{known:?}"),
        };
        self.write(event.tid, event.start, format_args!("{text} = -1 {name} ({}) <{took}>", errno.desc()))
    }

    /// A line of no duration that is no call of the trace.
    fn add(&mut self, tid: u32, at: u64, text: impl Display) -> io::Result<()> {
        self.added += 1;
        self.write(tid, at, format_args!("{text} <{}>", Seconds(0)))
    }

    /// The process of a call, which is told of before its first line, as is a thread.
    fn process(&mut self, event: &Event) -> io::Result<&mut Process> {
        self.begin(event.pid, event.start)?;
        let process = self.processes.entry(event.pid).or_default();
        if event.tid != event.pid && process.threads.insert(event.tid) {
            let flags = "CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_SIGHAND|CLONE_THREAD";
            self.write(
                event.pid,
                event.start,
                format_args!("clone3({{flags={flags}}}, 88) = {} <{}>", event.tid, Seconds(0)),
            )?;
        }
        Ok(self.processes.entry(event.pid).or_default())
    }

    /// Tells what a process became until a moment, if that is not told.
    fn begin(&mut self, pid: u32, until: u64) -> io::Result<()> {
        while let Some(process) = self.processes.get_mut(&pid)
            && process.images.front().is_some_and(|image| image.started.0 <= until)
            && let Some(image) = process.images.pop_front()
        {
            let exec = process.exec.take();
            // The same program goes on in a child.
            if !process.forked || exec.is_some() {
                process.execed();
                self.execed(&image, exec)?;
            }
        }
        Ok(())
    }

    fn execed(&mut self, image: &Session, exec: Option<Event>) -> io::Result<()> {
        let (tid, at, took) = match exec {
            Some(exec) => (exec.tid, exec.start, exec.duration),
            None => (image.pid, image.started.0, 0),
        };
        let words = [&image.program].into_iter().chain(&image.arguments);
        let words: Vec<String> = words.map(|word| Quoted(word).to_string()).collect();
        let program = Quoted(&image.program);
        let list = words.join(", ");
        self.write(tid, at, format_args!("execve({program}, [{list}], {VARIABLES}) = 0 <{}>", Seconds(took)))
    }

    fn session(&mut self, session: &Session) {
        self.sessions.insert(session.id, session.pid);
        self.first.get_or_insert((session.pid, None));
        self.processes.entry(session.pid).or_default().images.push_back(session.clone());
    }

    fn end(&mut self, end: &SessionEnd) -> io::Result<()> {
        let Some(pid) = self.sessions.remove(&end.id) else { return Ok(()) };
        self.begin(pid, end.at.0)?;
        if matches!(end.how, EndKind::Exec | EndKind::Running) {
            return Ok(());
        }
        if let Some((first, told)) = &mut self.first
            && *first == pid
        {
            *told = Some(*end);
            return Ok(());
        }
        self.ended(pid, end, None)
    }

    fn ended(&mut self, pid: u32, end: &SessionEnd, outcome: Option<Outcome>) -> io::Result<()> {
        self.processes.remove(&pid);
        let killed = match (outcome.map(|outcome| outcome.signal), end.how) {
            (Some(signal), _) => signal,
            (None, EndKind::Abort) => Some(Signal::SIGABRT as i32),
            (None, EndKind::Vanished) => Some(Signal::SIGKILL as i32),
            (None, _) => None,
        };
        let code = outcome.and_then(|outcome| outcome.code).unwrap_or(0);
        match killed.map(|signal| Signal::try_from(signal).map_or("SIGKILL", Signal::as_str)) {
            Some(signal) => self.write(pid, end.at.0, format_args!("+++ killed by {signal} +++")),
            None => self.write(pid, end.at.0, format_args!("+++ exited with {code} +++")),
        }
    }

    fn file(&mut self, file: &FileFacts) -> io::Result<()> {
        let (id, path) = (file.file(), &file.path);
        if file.renamed
            && let Some(event) = self.renames.remove(&id).or_else(|| self.renames.remove(&FileId::default()))
        {
            let before = self.paths.insert(id, path.clone());
            return self.renamed(&event, before, path);
        }
        if file.renamed {
            self.coming.entry(id).or_default().push_back(path.clone());
        }
        if !file.renamed || !self.paths.contains_key(&id) {
            self.paths.insert(id, path.clone());
        }
        Ok(())
    }

    fn rename(&mut self, event: &Event) -> io::Result<()> {
        let id = event.renamed().map_or(FileId::default(), |(id, _)| id);
        if event.errno != 0 || event.kind == FileKind::Directory {
            self.losses.count(event, NO_NAME);
        } else if let Some(path) = self.coming.get_mut(&id).and_then(VecDeque::pop_front) {
            let before = self.paths.insert(id, path.clone());
            return self.renamed(event, before.filter(|before| *before != path), &path);
        } else if let Some(other) = self.renames.insert(id, *event) {
            self.losses.count(&other, NO_NAME);
        }
        Ok(())
    }

    fn renamed(&mut self, event: &Event, before: Option<String>, path: &str) -> io::Result<()> {
        let Some(before) = before else {
            self.losses.count(event, NO_NAME);
            return Ok(());
        };
        self.line(event, format_args!("rename({}, {})", Quoted(&before), Quoted(path)), event.returned)
    }
}

impl Exporter for Strace {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Session(session) => self.session(session),
            Record::End(end) => self.end(end)?,
            Record::File(file) => self.file(file)?,
            Record::Outcome(outcome) => self.outcome = Some(*outcome),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let path = self.paths.get(&call.event.file()).cloned();
        self.tell(&Call { path: path.as_deref().or(call.path), ..*call })
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        let running: Vec<u32> = self.processes.keys().copied().collect();
        for pid in running {
            self.begin(pid, u64::MAX)?;
            if let Some(exec) = self.processes.get_mut(&pid).and_then(|process| process.exec.take()) {
                self.losses.count(&exec, NO_NAME);
            }
        }
        if let Some((pid, Some(end))) = self.first {
            let outcome = self.outcome.filter(|outcome| outcome.pid == pid);
            self.ended(pid, &end, outcome)?;
        }
        for event in std::mem::take(&mut self.renames).into_values() {
            self.losses.count(&event, NO_NAME);
        }
        self.out.flush()
    }

    fn losses(&self) -> Vec<String> {
        let added = (self.added > 0).then(|| {
            let lines = counted(self.added, "line");
            format!(
                "{lines} of no call tell a position or a size that the lines before do not (lseek, fstat)"
            )
        });
        self.losses.notes().into_iter().chain(added).collect()
    }
}

/// Nanoseconds, as seconds.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A string of C, as strace prints it.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        escaped(self.0, b"\"\\", f)?;
        f.write_str("\"")
    }
}

/// A descriptor with its file, as -y shows it.
struct Shown<'a>(&'a Event, Option<&'a str>);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(event, path) = self;
        write!(f, "{}", event.fd)?;
        match (event.kind, path) {
            (_, None) => Ok(()),
            (FileKind::Fifo, Some(path)) if !path.starts_with('/') => write!(f, "<pipe:[{}]>", event.ino),
            (FileKind::Socket, Some(_)) => write!(f, "<socket:[{}]>", event.ino),
            (_, Some(path)) => {
                f.write_str("<")?;
                escaped(path, b"<>\\", f)?;
                f.write_str(">")
            }
        }
    }
}

fn escaped(text: &str, special: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if !special.contains(&byte) => write!(f, "{}", char::from(byte))?,
            b'"' | b'\\' => write!(f, "\\{}", char::from(byte))?,
            _ => write!(f, "\\{byte:03o}")?,
        }
    }
    Ok(())
}

/// True of a call of which strace would show a line.
const fn is_called(op: Op) -> bool {
    !matches!(op, Op::Resident | Op::Uncertain | Op::MmapWrite | Op::AioWrite | Op::AioFsync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_strace_does() {
        assert_eq!(Quoted("a \"b\"\\\n\u{e4}").to_string(), r#""a \"b\"\\\012\303\244""#);
        let event = Event { fd: 3, ..Event::new(Op::Write) };
        assert_eq!(Shown(&event, Some("/tmp/<x>")).to_string(), r"3</tmp/\074x\076>");
    }
}
