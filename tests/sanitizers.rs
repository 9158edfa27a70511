//! Programs built with a sanitizer. The address sanitizer ends a program if a library was loaded before its
//! runtime, so the runtime is put before the tracer, and removed from the environment that others see.

use std::path::PathBuf;

use cawl_kit::{Dir, Running, compiled, same, skipped, unchanged};

/// A program from apps/ built with a sanitizer; None, with a message, if this compiler has none.
fn sanitized(dir: &Dir, app: &str, flags: &[&str]) -> Option<PathBuf> {
    let Ok(program) = compiled(app, &[&["-O1", "-w"], flags].concat()) else {
        skipped(&format!("cc {flags:?} does not work here"));
        return None;
    };
    // The runtimes need room for their shadow of all addresses.
    if !Running::start(dir.command(&program)).finish().stderr.is_empty() {
        skipped(&format!("programs with {flags:?} do not run here"));
        return None;
    }
    Some(program)
}

#[test]
fn programs_with_sanitizers_are_the_same() {
    for flags in [
        &["-fsanitize=address"][..],
        &["-fsanitize=address", "-static-libasan"],
        &["-fsanitize=address,undefined"],
        &["-fsanitize=undefined"],
        &["-fsanitize=leak"],
        &["-fsanitize=thread"],
    ] {
        let dir = Dir::new();
        let Some(program) = sanitized(&dir, "print", flags) else { continue };
        dir.clear();
        let program = program.to_str().expect("a readable path");
        let by_shell = format!("{program} a; exec {program} b");
        for command in [&[program, "word"][..], &["dash", "-c", &by_shell]] {
            let dir = Dir::new();
            // The thread sanitizer's runtime probes memory by write; these are its own calls.
            let (_, report) = if flags == ["-fsanitize=thread"] {
                unchanged(&dir, |_| {}, &[], command, &[])
            } else {
                same(&dir, |_| {}, command)
            };
            let written = cawl_kit::size(&dir, "out");
            assert_eq!(report.file_bytes("out"), written, "{flags:?} {command:?}");
        }
    }
}

#[test]
fn a_sanitizer_still_finds_what_is_wrong() {
    let dir = Dir::new();
    let Some(program) = sanitized(&dir, "print", &["-fsanitize=address"]) else { return };
    let (finished, _) = dir.run(&[], &[program.to_str().expect("a readable path"), "word", "far"]);
    assert_eq!(finished.status.code(), Some(1), "{finished:#?}");
    assert!(finished.stderr.contains("heap-buffer-overflow"), "{finished:#?}");
}

/// A runtime that the user preloads comes first.
#[test]
fn a_preloaded_sanitizer_stays_first() {
    let dir = Dir::new();
    let mut ask = dir.command("cc");
    ask.arg("-print-file-name=libasan.so");
    let runtime = Running::start(ask).finish().success().stdout;
    let Ok(runtime) = std::fs::canonicalize(runtime.trim()) else { return skipped("there is no libasan.so") };
    let mut run = dir.run_command(&[], &["sh", "-c", "seq 1000 > out; wc -l < out"]);
    run.env("LD_PRELOAD", &runtime).env("ASAN_OPTIONS", "detect_leaks=0");
    let finished = Running::start(run).finish();
    dir.report(&finished).all_seen();
    assert_eq!((finished.success().stdout.as_str(), cawl_kit::size(&dir, "out")), ("1000\n", 3893));
}

/// A program from apps/ with address and undefined behaviour watched, leaks included.
fn watched(app: &str) -> Option<PathBuf> {
    let program = compiled(app, &["-O1", "-w", "-fsanitize=address,undefined"]);
    program.inspect_err(|_| skipped("this compiler has no sanitizers")).ok()
}

/// Threads, forks, descriptors, streams and every way of starting programs.
#[test]
fn the_tracers_own_programs_with_sanitizers() {
    let alone = ["stdio", "fork_writer", "offsets", "threads", "thread_writer", "worker_writer"];
    let rough = ["threads", "forks", "vforks", "daemonize", "limits", "chain 5", "files 1000"];
    let process =
        ["execve", "execvp", "fexecve", "posix_spawn", "posix_spawnp", "vfork", "fork", "system", "popen"];
    let alone = alone.map(|app| (app, "")).into_iter();
    let all = alone.chain(rough.map(|mode| ("rough", mode))).chain(process.map(|mode| ("process", mode)));
    for (app, mode) in all {
        let dir = Dir::new();
        let Some(program) = watched(app) else { return };
        let mut command = vec![program.to_str().expect("a readable path")];
        command.extend(mode.split_whitespace());
        let (finished, report) = unchanged(&dir, |_| {}, &["--lossless"], &command, &["memory"]);
        // A copy of a process that has limited its descriptors may have none to spare.
        if mode != "limits" {
            report.all_seen();
        }
        assert!(!finished.stderr.contains("Sanitizer"), "{app} {mode}: {finished:#?}");
    }
}

/// The other groups of functions, rings, signal handlers, jumps out of them, closed descriptors. Not here:
/// `wide`, which crashes under the sanitizer by itself; `every`, which requires the tracer's functions where
/// the sanitizer's come first; `self_locked`, whose own file cannot be read, so that the tracer comes first
/// and the sanitizer ends it; and programs that wait for input.
#[test]
fn further_programs_with_sanitizers() {
    let complete = ["messages", "raw", "pipes", "aio", "mapped", "protected"];
    let fds = ["close", "close_range", "closefrom", "dup2", "limit"];
    let ring = ["calls 1000", "alternating 1000", "locked 1000", "forks 1000"];
    let alone = ["mapped", "message_writer", "signals", "jump", "uring"].map(|app| (app, ""));
    let all = alone.into_iter().chain(complete.map(|mode| ("complete", mode)));
    let all = all.chain(fds.map(|mode| ("fds", mode))).chain(ring.map(|mode| ("ring", mode)));
    for (app, mode) in all {
        let dir = Dir::new();
        let Some(program) = watched(app) else { return };
        let mut command = vec![program.to_str().expect("a readable path")];
        command.extend(mode.split_whitespace());
        // The output of `signals` depends on time.
        let (finished, _) = unchanged(&dir, |_| {}, &[], &command, &["out", "stream"]);
        assert!(!finished.stderr.contains("Sanitizer"), "{app} {mode}: {finished:#?}");
    }
}

/// Streams closed by threads while another thread flushes all of them.
#[test]
fn streams_that_other_threads_close() {
    let dir = Dir::new();
    let Some(program) = watched("closing") else { return };
    let command = [program.to_str().expect("a readable path"), "3", "200"];
    let (finished, _) = unchanged(&dir, |_| {}, &[], &command, &[]);
    assert!(!finished.stderr.contains("Sanitizer"), "{finished:#?}");
}

/// The leak sanitizer fails a program that loses any allocation.
#[test]
fn a_hundred_thousand_calls_leak_nothing() {
    let dir = Dir::new();
    let Some(program) = watched("rough") else { return };
    let (finished, _) = dir.run(&[], &[program.as_os_str(), "memory".as_ref(), "100000".as_ref()]);
    assert_eq!(finished.success().stderr, "");
}

/// Threads with streams, most of which fork, start programs and kill them, all concurrently.
#[test]
fn storms_of_processes_with_sanitizers() {
    for flags in ["-fsanitize=address,undefined", "-fsanitize=thread"] {
        let dir = Dir::new();
        let Some(threads) = sanitized(&dir, "threads", &[flags]) else { continue };
        let Some(storm) = sanitized(&dir, "storm", &[flags]) else { continue };
        let (threads, storm) =
            (threads.to_str().expect("a readable path"), storm.to_str().expect("a readable path"));
        for command in [
            &[threads][..],
            &[storm, "forks", "100"],
            &[storm, "vforks", "20"],
            &[storm, "spawns", "20"],
            &[storm, "killed", "12"],
        ] {
            dir.clear();
            let (finished, report) = unchanged(&dir, |_| {}, &["--model", "naive"], command, &[]);
            assert_eq!(finished.success().stderr, "", "{flags} {command:?}");
            assert_eq!((&report["drops"], &report["unseen"]), (&0.into(), &0.into()), "{flags} {command:?}");
            // Eight of `threads` write 11 bytes 2000 times in each of three rounds, over those of the one
            // before.
            let files: usize = cawl_kit::tree(&dir.work()).values().map(|(_, text)| text.len()).sum();
            let written = if command == [threads] { 3 * 8 * 2000 * 11 } else { files };
            assert_eq!(report.bytes(), written as u64, "{flags} {command:?}");
        }
    }
}
