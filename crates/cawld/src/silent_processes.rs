//! Processes that were started by traced programs and have no session: untraced programs, or ones not
//! connected yet. Also those whose sessions fell silent.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use cawl_core::{FileFacts, Time};
use cawl_host::inspect;
use cawl_wire::{Event, FileId, Op};

/// Most starts remembered.
const MOST: usize = 4096;
/// Most program paths remembered.
const PROGRAMS: usize = 1024;
/// Latest beginnings of sessions, because a session may begin before its start is known.
const RECENT: usize = 256;
/// Programs named in a report.
const NAMED: usize = 10;

/// One start.
struct Start {
    pid: u32,
    at: Time,
    program: FileId,
    /// True if the process announced its exec of the program and then ended its session.
    sure: bool,
}

/// Started processes without a session.
#[derive(Default)]
pub struct SilentProcesses {
    silent: Vec<Start>,
    recent: VecDeque<(u32, Time)>,
    programs: BTreeMap<FileId, String>,
    /// How many processes of these names confined themselves.
    confined: BTreeMap<String, usize>,
}

impl SilentProcesses {
    /// Takes a file that may be a program.
    pub fn file(&mut self, file: &FileFacts) {
        if file.mode & 0o111 != 0 && self.programs.len() < PROGRAMS && !file.path.is_empty() {
            self.programs.insert(file.file(), file.path.clone());
        }
    }

    /// Takes a call that may start a program.
    pub fn event(&mut self, event: &Event) {
        let pid = match event.op {
            Op::Exec => event.pid,
            Op::Spawn if event.returned > 0 => event.returned as u32,
            _ => return,
        };
        let at = Time(event.start);
        let heard = self.recent.iter().any(|(one, since)| *one == pid && *since >= at);
        if event.ino != 0 && !heard && self.silent.len() < MOST {
            let sure = event.op == Op::Exec;
            self.silent.push(Start { pid, at, program: event.file(), sure });
        }
    }

    /// A session begins: the process is traced.
    pub fn begin(&mut self, pid: u32, at: Time) {
        self.silent.retain(|start| start.pid != pid || start.at > at);
        self.recent.push_back((pid, at));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// A session ended without an exec: its attempts had failed.
    pub fn end(&mut self, pid: u32) {
        self.silent.retain(|start| start.pid != pid);
    }

    /// A process of this name confined itself by a filter of system calls.
    pub fn confined(&mut self, program: String) {
        if self.confined.len() < PROGRAMS || self.confined.contains_key(&program) {
            *self.confined.entry(program).or_default() += 1;
        }
    }

    /// The programs without a connected tracer, with their processes.
    pub fn silent(&self) -> impl Iterator<Item = (u32, &str)> {
        self.silent.iter().filter_map(|start| Some((start.pid, self.programs.get(&start.program)?.as_str())))
    }

    /// The notes for a report.
    pub fn notes(&self) -> Vec<String> {
        let mut counts: BTreeMap<FileId, (usize, bool)> = BTreeMap::new();
        for start in &self.silent {
            let (count, sure) = counts.entry(start.program).or_default();
            *count += 1;
            // A process that has just begun may connect yet.
            *sure |= start.sure && !cawl_host::is_running(start.pid);
        }
        let mut notes: Vec<String> =
            counts.iter().filter_map(|(identity, count)| self.note(identity, *count)).collect();
        notes.extend(self.confined.iter().map(|(program, count)| {
            let times = if *count == 1 { String::new() } else { format!(", {count} times") };
            format!(
                "not traced from then on: {program} confined itself by a filter of system calls (seccomp){times}, or \
                 gave up new privileges as before one: the tracer makes no call under a filter, so files opened and \
                 programs started later are not seen"
            )
        }));
        if notes.len() > NAMED {
            let more = notes.len() - NAMED;
            notes.truncate(NAMED);
            notes.push(format!("not traced: {more} more programs"));
        }
        notes
    }

    fn note(&self, identity: &FileId, (count, sure): (usize, bool)) -> Option<String> {
        let path = self.programs.get(identity)?;
        let verdict = inspect::program(Path::new(path));
        let times = if count == 1 { String::new() } else { format!(", started {count} times") };
        Some(match verdict.obstacles.first() {
            Some(why) => format!("not traced: {why}{times}"),
            None if sure => format!(
                "not traced: {path}{times}: no tracer spoke up in it, as in a program that begins under a filter of \
                 system calls (seccomp)"
            ),
            // Its exec may have failed.
            None => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pids that do not exist.
    const NOBODY: u32 = 1 << 30;

    fn exec(pid: u32, at: u64, ino: u64) -> Event {
        let mut event = Event::new(Op::Exec);
        (event.pid, event.start, event.ino, event.dev) = (pid, at, ino, 1);
        event
    }

    #[test]
    fn only_silent_programs_are_named() {
        let mut started = SilentProcesses::default();
        for ino in 1..=5 {
            let path = format!("/nonexistent/{ino}");
            started.file(&FileFacts { dev: 1, ino, mode: 0o100_755, path, ..FileFacts::default() });
        }
        started.event(&exec(10, 100, 1));
        started.begin(10, Time(101));
        // Known late.
        started.begin(11, Time(201));
        started.event(&exec(11, 200, 2));
        // Failed.
        started.event(&exec(12, 300, 3));
        started.end(12);
        started.event(&exec(NOBODY, 400, 4));
        // Running, and not connected yet.
        started.event(&exec(std::process::id(), 500, 5));
        let notes = started.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("/nonexistent/4"));
    }
}
