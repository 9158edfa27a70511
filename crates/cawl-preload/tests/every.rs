//! Every hook of the table is called once, by name, on real files: it is the tracer's function that the
//! program gets, what it did was recorded, and its bytes are those that the kernel counted for that call.

use crate::hooks::{HOOKS, UNCALLED};
use cawl_kit::app_with;
use cawl_kit::witness::{Answer, Daemon, Session, dir};
use cawl_wire::{Event, Op};
use std::collections::BTreeMap;
use std::process::{Command, Output};

/// What a call must leave among its events, and how often, the program's own preparations included. None
/// where there is nothing to record, because nothing of a file changes, or because the process ends.
fn recorded(group: &str, name: &str) -> Option<(Op, usize)> {
    let op = match (group, name) {
        ("open", "__open_2" | "__open64_2" | "__openat_2" | "__openat64_2") => return Some((Op::Open, 2)),
        ("open" | "temporary files", _) => Op::Open,
        ("close", "close" | "__close") => Op::Close,
        ("duplicates", _) => Op::Dup,
        ("position", _) => Op::Seek,
        ("write", _) if name.contains("pwritev") => Op::Pwritev,
        ("write", _) if name.contains("pwrite") => Op::Pwrite,
        ("write", "writev") => Op::Writev,
        ("write" | "syscall", _) => Op::Write,
        ("copies in the kernel", "copy_file_range" | "ioctl") => Op::CopyRange,
        ("copies in the kernel", "sendfile" | "sendfile64") => Op::Sendfile,
        ("copies in the kernel", _) => Op::Splice,
        ("length and space", _) if name.contains("truncate") => Op::Truncate,
        ("length and space", _) => Op::Allocate,
        ("durability", "fsync") => Op::Fsync,
        ("durability", "fdatasync") => Op::Fdatasync,
        ("durability", "sync") => Op::Sync,
        ("durability", "syncfs") => Op::Syncfs,
        ("durability", "sync_file_range") => Op::SyncRange,
        ("durability", "msync") => Op::Msync,
        ("advice", _) => Op::Advise,
        ("locks", _) => Op::Lock,
        ("looks at names", "readdir" | "readdir64") => Op::List,
        ("looks at names", _) => Op::Stat,
        ("names", _) if name.starts_with("rename") => Op::Rename,
        ("names", "rmdir") => Op::Rmdir,
        ("names", _) if name.starts_with("mkdir") => Op::Mkdir,
        ("names", _) if name.starts_with("symlink") => Op::Symlink,
        ("names", _) if name.starts_with("link") => Op::Link,
        ("names", _) => Op::Unlink,
        ("mappings", _) => Op::MmapWrite,
        ("asynchronous writes", _) if name.contains("fsync") => Op::AioFsync,
        ("asynchronous writes", _) => Op::AioWrite,
        ("streams: reads" | "streams: wide reads", _) => Op::StreamRead,
        ("reads", _) if name.contains("pread") => Op::Pread,
        ("reads", _) => Op::Read,
        ("streams: open and close", "fclose" | "_IO_fclose" | "pclose" | "endmntent") => Op::StreamClose,
        ("streams: open and close", "freopen" | "freopen64") => return Some((Op::StreamOpen, 2)),
        ("streams: open and close", "fcloseall") => Op::StreamFlush,
        ("streams: open and close", _) => Op::StreamOpen,
        ("streams: flush and move", _) if name.contains("fflush") => Op::StreamFlush,
        ("streams: flush and move", _) if name.contains("set") && name.contains("buf") => return None,
        ("streams: flush and move", _) => Op::StreamSeek,
        ("streams: printf", _) if name.contains("dprintf") => Op::Write,
        ("streams: bytes" | "streams: printf" | "streams: wide", _) => Op::StreamWrite,
        ("messages", "herror" | "backtrace_symbols_fd" | "sem_open") => Op::Write,
        ("messages", _) => Op::StreamWrite,
        ("processes: start", _) if name.contains("exec") => Op::Exec,
        ("processes: start", "posix_spawn" | "posix_spawnp" | "system") => Op::Spawn,
        ("processes: start", "fork" | "__fork" | "_Fork" | "forkpty") => Op::Fork,
        _ => return None,
    };
    Some((op, 1))
}

/// These say something after the session's end, which comes first because they may not return from it.
const LAST_WORDS: &[&str] = &["__assert_fail", "__assert_perror_fail", "__stack_chk_fail"];

/// Their bytes tell of the allocator, whose state the tracer's loading may change.
const OF_THE_ALLOCATOR: &[&str] = &["malloc_stats", "malloc_info"];

/// Bytes that an event says reached the kernel, those that threads of the C library will write included.
fn bytes(event: &Event) -> u64 {
    match event.op {
        Op::AioWrite => event.returned.max(0) as u64,
        Op::StreamExit => event.flushed().unwrap_or(0),
        _ => cawl_kit::witness::bytes(event),
    }
}

/// Events by the number of the call that they belong to, of all processes.
fn by_call(sessions: &[Session]) -> BTreeMap<u64, Vec<&Event>> {
    let mut calls: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for session in sessions {
        let mut call = 0;
        for event in &session.events {
            if event.op == Op::Seek && session.path(event).ends_with("/marker") {
                call = event.offset;
                calls.entry(call).or_default();
            } else {
                calls.entry(call).or_default().push(event);
            }
        }
    }
    calls
}

/// What cannot be shown in emulation: qemu-user has no process_vm_readv, by which memory is looked at that
/// may not be there, starts no program of the emulated processor, and has a word of its own when one ends by
/// a signal. On AArch64 error() is not hooked.
fn can_be_emulated(group: &str, name: &str) -> bool {
    let starts = ["popen", "_IO_popen", "pclose", "posix_spawn", "posix_spawnp", "system", "daemon"];
    let kept = ["perror", "herror", "backtrace_symbols_fd", "sem_open"];
    match group {
        "asynchronous writes" => false,
        "messages" => kept.contains(&name) || name.contains("getopt"),
        "processes: start" if name.contains("exec") => false,
        _ => !starts.contains(&name) && !["fcloseall", "abort"].contains(&name),
    }
}

fn run(mut command: Command, names: &[&str]) -> (Output, BTreeMap<String, u64>) {
    let place = dir();
    let out = command.args(names).env("LC_ALL", "C").current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let counts = std::fs::read_to_string(place.path().join("counts")).expect("counts");
    let counts = counts.lines().map(|line| {
        let (name, count) = line.split_once(' ').expect("NAME COUNT");
        (name.to_owned(), count.parse().expect("a number"))
    });
    (out, counts.collect())
}

#[test]
fn every_hook_is_called_and_recorded() {
    let is_uncalled = |name: &str| UNCALLED.iter().any(|left| left.names.contains(&name));
    let called: Vec<(&str, &str)> = HOOKS
        .iter()
        .flat_map(|group| group.names.iter().map(|name| (group.group, *name)))
        .filter(|(group, name)| {
            !is_uncalled(name) && (cawl_kit::emulated().is_none() || can_be_emulated(group, name))
        })
        .collect();
    for left in UNCALLED {
        assert!(!left.why.is_empty());
        for name in left.names {
            assert!(HOOKS.iter().any(|group| group.names.contains(name)), "{name} is not a hook");
        }
    }
    let names: Vec<&str> = called.iter().map(|(_, name)| *name).collect();
    let program = app_with("every", &["-O0"]);
    let bare = run(cawl_kit::program(&program), &names);
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let command = daemon.command(&program);
    let traced = run(command, &names);
    let sessions = daemon.finish();
    let calls = by_call(&sessions);
    let mut wrong = Vec::new();
    for (index, (group, name)) in called.iter().enumerate() {
        let Some(events) = calls.get(&(index as u64 + 1)) else {
            wrong.push(format!("{name}: was not called"));
            continue;
        };
        let ops: Vec<&str> = events.iter().map(|event| event.op.name()).collect();
        let wanted = |op| {
            // The program flushes its standard output after each call.
            let own = |event: &&&Event| {
                event.op != Op::StreamFlush
                    || sessions.iter().any(|session| session.path(event).ends_with(&format!("/f-{name}")))
            };
            events.iter().filter(|event| event.op == op).filter(own).count()
        };
        if let Some((op, times)) = recorded(group, name)
            && wanted(op) < times
        {
            wrong.push(format!("{name}: not {times} of {} among {ops:?}", op.name()));
        }
        let seen: u64 = events.iter().map(|event| bytes(event)).sum();
        let counted = traced.1[*name];
        if seen != counted && !LAST_WORDS.contains(name) {
            wrong.push(format!("{name}: {seen} bytes seen, {counted} counted by the kernel: {ops:?}"));
        }
        if counted != bare.1[*name] && !OF_THE_ALLOCATOR.contains(name) {
            wrong.push(format!("{name}: {counted} bytes, and {} without the tracer", bare.1[*name]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    sessions.iter().for_each(Session::assert_intact);
    assert_eq!(String::from_utf8_lossy(&bare.0.stdout), String::from_utf8_lossy(&traced.0.stdout));
}

/// The program knows a call of each hook, so a new one must get one or a reason.
#[test]
fn an_unknown_name_fails() {
    let place = dir();
    let out = cawl_kit::program(app_with("every", &["-O0"]))
        .arg("getpid")
        .current_dir(place.path())
        .output()
        .expect("run");
    assert_eq!(out.status.code(), Some(99));
    assert!(String::from_utf8_lossy(&out.stderr).contains("getpid: there is no call of it here"), "{out:?}");
}
