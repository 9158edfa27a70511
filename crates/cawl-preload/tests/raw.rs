//! syscall(): what a program calls by it is recorded as what it calls by name, and made by the C library's
//! syscall().

use cawl_kit::witness::{Answer, Daemon, Session, bytes, compare, dir};
use cawl_kit::{app, app_with, library};
use cawl_wire::Op;
use std::path::{Path, PathBuf};

/// How the functions of a library make their calls.
const BY_SYSCALL: &str = "-DBY_SYSCALL";
const BY_OTHER_NAME: &str = "-DOTHER_NAME";

/// A library whose functions do it so.
fn wrappers(how: &str) -> PathBuf {
    app_with("raw_calls", &["-O2", "-DLIBRARY", how, "-shared", "-fPIC"])
}

/// The program, linked with it.
fn linked(how: &str) -> PathBuf {
    let wrappers = wrappers(how);
    let wrappers = wrappers.to_str().expect("a readable path");
    app_with("raw_calls", &["-O2", "-Wl,--no-as-needed", wrappers, &format!("-Wl,-rpath,{wrappers}")])
}

/// Runs the program with the library preloaded, traced or not.
fn preloaded(way: &str, order: &[&Path], daemon: Option<&Daemon>) -> String {
    let place = dir();
    let program = app("raw_calls");
    let mut command = daemon.map_or_else(|| cawl_kit::program(&program), |daemon| daemon.command(&program));
    let order =
        order.iter().map(|path| path.to_str().expect("a readable path")).collect::<Vec<_>>().join(":");
    let out = command.arg(way).current_dir(place.path()).env("LD_PRELOAD", order).output().expect("run");
    assert!(out.status.success(), "{way}: {out:?}");
    String::from_utf8(out.stdout).expect("text")
}

/// What was told of the program's files.
fn told(sessions: &[Session]) -> Vec<(Op, i64, u64)> {
    let first = &sessions[0];
    let events = first.events.iter().filter(|event| first.path(event).contains('/'));
    events.map(|event| (event.op, event.returned, event.offset)).collect()
}

#[test]
fn raw_calls_are_told_as_calls_by_name() {
    let raw = compare(&app("raw_calls"), &["raw"], |_| {});
    assert_eq!(raw.len(), 2);
    let written: u64 = raw[0].about("/file").into_iter().map(bytes).sum();
    assert_eq!(written, 100 + 7 + 9 + 11 + 13);
    for (op, count) in [(Op::Dup, 4), (Op::Unlink, 1), (Op::Rename, 3), (Op::Read, 2), (Op::Exec, 3)] {
        assert_eq!(raw[0].count(op), count, "{op:?}: {:?}", told(&raw));
    }
    for op in [Op::Link, Op::Symlink, Op::Mkdir, Op::Rmdir] {
        assert_eq!(raw[0].count(op), 2, "{op:?}: {:?}", told(&raw));
    }
}

/// Another one would be a cancellation point.
#[test]
fn raw_calls_are_no_cancellation_points() {
    compare(&app("raw_calls"), &["cancel"], |_| {});
    compare(&linked(BY_SYSCALL), &["cancel"], |_| {});
}

/// Each of the library's functions is behind a hook, and calls another one.
#[test]
fn libraries_whose_functions_meet_hooks_again_are_left_alone() {
    for (way, how) in [("raw", BY_SYSCALL), ("name", BY_SYSCALL), ("name", BY_OTHER_NAME)] {
        compare(&linked(how), &[way], |_| {});
        let (wrappers, tracer) = (wrappers(how), library());
        let plain = preloaded(way, &[&wrappers], None);
        for order in [[&*tracer, &*wrappers], [&*wrappers, &*tracer]] {
            let place = dir();
            let daemon = Daemon::start(place.path(), Answer::Welcome);
            assert_eq!(preloaded(way, &order, Some(&daemon)), plain, "{way}: {order:?}");
            let sessions = daemon.finish();
            assert_eq!(sessions.len(), 2, "{way}: {order:?}");
        }
    }
}
