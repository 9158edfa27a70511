//! Processes that were started by traced programs and have no session: untraced programs, or ones not
//! connected yet. Also those whose sessions fell silent.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cawl_core::{FileFacts, Time};
use cawl_host::inspect;
use cawl_wire::{Event, FileId, Obstacle, Op};

/// Most starts remembered.
const MAX: usize = 4096;
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
    /// Why the tracer was kept from it.
    obstacle: Option<Obstacle>,
}

/// The starts of a program for which the same is to be said.
#[derive(Default)]
struct Times {
    count: usize,
    sure: bool,
}

/// Started processes without a session.
#[derive(Default)]
pub struct SilentProcesses {
    silent: Vec<Start>,
    recent: VecDeque<(u32, Time)>,
    programs: BTreeMap<FileId, String>,
    /// Programs with fork children that cannot reach the daemon, and their number.
    unreachable: BTreeMap<String, usize>,
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

    /// Takes a call of a program, if it may start one.
    pub fn event(&mut self, event: &Event, program: &str) {
        let obstacle = Obstacle::from_code(event.aux as u8);
        let pid = match event.op {
            Op::Exec => event.pid,
            Op::Spawn if event.returned > 0 => event.returned as u32,
            // Of a shell that the C library started no more is known.
            Op::Spawn if event.returned == 0 && obstacle.is_some() => 0,
            _ => return,
        };
        if obstacle == Some(Obstacle::Unreachable) {
            if self.unreachable.len() < NAMED {
                *self.unreachable.entry(program.to_owned()).or_default() += 1;
            }
            return;
        }
        let at = Time(event.start);
        let heard = self.recent.iter().any(|(one, since)| *one == pid && *since >= at);
        if (event.ino != 0 || obstacle.is_some()) && !heard && self.silent.len() < MAX {
            let sure = event.op == Op::Exec;
            self.silent.push(Start { pid, at, program: event.file(), sure, obstacle });
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
        let mut counts: BTreeMap<(FileId, Option<Obstacle>), Times> = BTreeMap::new();
        for start in &self.silent {
            let times = counts.entry((start.program, start.obstacle)).or_default();
            times.count += 1;
            // A process that has just begun may connect yet.
            times.sure |= start.sure && !cawl_host::is_running(start.pid);
        }
        let note = |((program, obstacle), times): (&(FileId, _), _)| self.note(*program, *obstacle, times);
        let unreachable = self.unreachable.iter().map(|(program, count)| {
            let processes = if *count == 1 { "process" } else { "processes" };
            format!(
                "not traced: {count} {processes} that {program} forked and what they started: the daemon's socket \
                 (CAWL_SOCKET) is not visible in their root directory or mounts; bind its folder into them"
            )
        });
        let mut notes: Vec<String> = unreachable.chain(counts.iter().filter_map(note)).collect();
        notes.extend(self.confined.iter().map(|(program, count)| {
            let times = if *count == 1 { String::new() } else { format!(", {count} times") };
            format!(
                "not traced from then on: {program} confined itself by a filter of system calls (seccomp) or by their \
                 dispatch (PR_SET_SYSCALL_USER_DISPATCH){times}, or gave up new privileges as sandboxes do: the \
                 tracer makes no call under a filter, so files opened and programs started later may not be seen; \
                 in a sandbox with its own /run, bind the folders that LD_PRELOAD and CAWL_SOCKET name (of root's \
                 runs /run/cawl)"
            )
        }));
        if notes.len() > NAMED {
            let more = notes.len() - NAMED;
            notes.truncate(NAMED);
            notes.push(format!("not traced: {more} more programs"));
        }
        notes
    }

    fn note(&self, program: FileId, obstacle: Option<Obstacle>, times: &Times) -> Option<String> {
        let path = self.programs.get(&program).map(String::as_str);
        // In another root directory its path is not ours.
        let is_here = |path: &&str| {
            fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (program.dev, program.ino))
        };
        let verdict = path.filter(is_here).map(|path| inspect::program(Path::new(path)));
        let why = verdict.and_then(|verdict| verdict.obstacles.into_iter().next());
        let name = path.unwrap_or("a program");
        let why = match (obstacle, why) {
            (Some(Obstacle::Hidden), _) => format!(
                "{name}: the tracer's library is not visible in its root directory or mounts, or may not be read \
                 there, as under Landlock; to trace it, bind the folders that LD_PRELOAD and CAWL_SOCKET name into them (of root's \
                 runs /run/cawl)"
            ),
            (Some(Obstacle::NoExec), _) => format!(
                "{name}: the tracer's library lies on a mount without execution there; remount it with the \
                 option exec"
            ),
            (Some(Obstacle::Crowded), _) => format!(
                "{name}: it may have less than 64 MiB of addresses or of memory of its own, in which there may be no \
                 room for the tracer; raise its limit (ulimit -v or -d, RLIMIT_AS or RLIMIT_DATA, LimitAS= or \
                 LimitDATA=)"
            ),
            (_, Some(why)) => why,
            (Some(Obstacle::Unseen), None) => format!(
                "{name}: it could not be looked at before its start, so the tracer was kept from it, as programs of \
                 other C libraries than glibc would not start with it: it may be executed but not read, or is at a \
                 descriptor or in a directory that only file actions of posix_spawn lead to; let it be read, or \
                 start it by its absolute path"
            ),
            (Some(Obstacle::Foreign | Obstacle::Unreachable), None) => format!(
                "{name}: it is for another processor or C library, or its glibc is older than 2.17: the tracer \
                 cannot be loaded into it"
            ),
            (None, None) if times.sure && path.is_some_and(gains_privileges) => format!(
                "{name} is set-user-ID or set-group-ID: the dynamic linker ignores LD_PRELOAD for it (AT_SECURE); \
                 run cawl as its owner"
            ),
            (None, None) if times.sure => format!(
                "{name}: its tracer did not report, as where CAWL_SOCKET was emptied or removed from the \
                 environment, the program begins under a filter of system calls (seccomp), may have fewer than 64 \
                 open files, or has not the daemon's socket in its root directory or mounts (bind its folder, of \
                 root's runs /run/cawl, into them)"
            ),
            // Its exec may have failed.
            (None, None) => return None,
        };
        let count = if times.count == 1 { String::new() } else { format!(", started {} times", times.count) };
        Some(format!("not traced: {why}{count}"))
    }
}

/// True if another user gets the rights of the program's owner or group.
fn gains_privileges(path: &str) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o6000 != 0)
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
        started.event(&exec(10, 100, 1), "sh");
        started.begin(10, Time(101));
        // Known late.
        started.begin(11, Time(201));
        started.event(&exec(11, 200, 2), "sh");
        // Failed.
        started.event(&exec(12, 300, 3), "sh");
        started.end(12);
        started.event(&exec(NOBODY, 400, 4), "sh");
        // Running, and not connected yet.
        started.event(&exec(std::process::id(), 500, 5), "sh");
        let notes = started.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("/nonexistent/4"));
    }

    /// The words are the tracer's reason, also where the program's path leads to another file here.
    #[test]
    fn who_could_not_load_the_tracer_is_named_with_the_reason() {
        let mut started = SilentProcesses::default();
        let file = |ino, path: &str| FileFacts {
            dev: 1,
            ino,
            mode: 0o100_755,
            path: path.to_owned(),
            ..FileFacts::default()
        };
        started.file(&file(1, "/bin/sh"));
        started.file(&file(2, "/opt/narrow"));
        for (pid, ino, obstacle) in
            [(10, 1, Obstacle::Hidden), (11, 1, Obstacle::Hidden), (12, 2, Obstacle::Foreign)]
        {
            started.event(&Event { aux: obstacle as u32, ..exec(pid, 100, ino) }, "sh");
        }
        let shell = Event { aux: Obstacle::NoExec as u32, ino: 1, dev: 1, ..Event::new(Op::Spawn) };
        started.event(&shell, "sh");
        let forked = Event { aux: Obstacle::Unreachable as u32, ..Event::new(Op::Spawn) };
        started.event(&forked, "bwrap");
        started.event(&Event { aux: Obstacle::Hidden as u32, ..exec(13, 100, 0) }, "sh");
        let notes = started.notes();
        let said =
            |begin: &str, rest: &str| notes.iter().any(|note| note.starts_with(begin) && note.contains(rest));
        assert_eq!(notes.len(), 5, "{notes:#?}");
        assert!(said("not traced: a program:", "not visible"), "{notes:#?}");
        assert!(
            said("not traced: /bin/sh:", "not visible") && said("not traced: /bin/sh:", ", started 2 times"),
            "{notes:#?}"
        );
        assert!(said("not traced: 1 process that bwrap forked", "CAWL_SOCKET"), "{notes:#?}");
        assert!(said("not traced: /bin/sh:", "remount"), "{notes:#?}");
        assert!(said("not traced: /opt/narrow:", "older than 2.17"), "{notes:#?}");
    }
}
