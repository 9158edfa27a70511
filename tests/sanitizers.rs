//! Programs built with a sanitizer. The address sanitizer ends a program in which anything was loaded before its
//! runtime, so the tracer comes second there, and nobody else gets to see the runtime's name.

use std::path::{Path, PathBuf};

use crate::util::{Dir, Running, same, skipped, unchanged};

/// A program from apps/ with a sanitizer; None, after saying so, where this compiler has none.
fn sanitized(dir: &Dir, app: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = dir.path().join(format!("{app}{}", flags.concat()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("apps/{app}.c"));
    let mut compile = dir.command("cc");
    compile.args(["-O1", "-g", "-pthread", "-w"]).args(flags).arg("-o").args([&program, &source]);
    if !Running::start(compile).finish().status.success() {
        skipped(&format!("cc {flags:?} does not work here"));
        return None;
    }
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
            // The thread sanitizer's runtime asks by write whether memory is there; those are its own calls.
            let (_, report) = if flags == ["-fsanitize=thread"] {
                unchanged(&dir, |_| {}, &[], command, &[])
            } else {
                same(&dir, |_| {}, command)
            };
            let written = crate::util::size(&dir, "out");
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

/// Whoever preloads a runtime himself has it first.
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
    assert_eq!((finished.success().stdout.as_str(), crate::util::size(&dir, "out")), ("1000\n", 3893));
}

/// Threads, signals and every way of writing, with both address and undefined behaviour watched.
#[test]
fn the_tracers_own_programs_with_sanitizers() {
    for (app, mode) in
        [("rough", "threads"), ("rough", "forks"), ("rough", "vforks"), ("stdio", ""), ("fork_writer", "")]
    {
        let dir = Dir::new();
        let program = dir.path().join(app);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("apps/{app}.c"));
        let mut compile = dir.command("cc");
        compile
            .args(["-O1", "-pthread", "-w", "-fsanitize=address,undefined", "-o"])
            .args([&program, &source]);
        if !Running::start(compile).finish().status.success() {
            return skipped("this compiler has no sanitizers");
        }
        let mut command = vec![program.to_str().expect("a readable path")];
        command.extend(Some(mode).filter(|mode| !mode.is_empty()));
        same(&dir, |_| {}, &command);
    }
}
