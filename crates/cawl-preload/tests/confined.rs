//! Programs that confine themselves by filters of system calls (apps/confined.c): whatever the filter does
//! not allow kills, so that one call of the tracer's own ends the program.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, Session, assert_complete, compare, dir, ended};
use cawl_wire::{Ended, Op};

/// A ring is used, and a clock that needs no system call: what is known goes on being recorded.
fn goes_on(session: &Session) -> bool {
    session.ringed && session.moments > 0
}

#[test]
fn under_a_filter_the_tracer_makes_no_call() {
    for how in ["prctl", "seccomp", "tsync", "inline"] {
        for what in ["write", "sealed", "exec", "copied", "map", "fork"] {
            let sessions = compare(&app("confined"), &[how, what], |_| {});
            assert_eq!(sessions.len(), 1, "{how} {what}: what is started then is not traced: {sessions:#?}");
            assert_eq!(ended(&sessions[0]), Some(Ended::Confined), "{how} {what}");
            assert!(!sessions[0].about("/known").is_empty(), "{how} {what}");
            if what == "write" && goes_on(&sessions[0]) {
                assert_eq!(sessions[0].count(Op::Write), 1 + 1000, "{how}");
            }
            let sessions = compare(&app("confined"), &[how, "child", what], |_| {});
            assert_eq!(sessions.len(), 2, "{how}, a child's {what}: {sessions:#?}");
            sessions.iter().for_each(Session::assert_intact);
        }
    }
}

/// A call that is a signal would kill, as by a filter.
#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "Syscall User Dispatch is of x86-64")]
fn under_a_dispatch_of_calls_the_tracer_makes_none() {
    let mut plain = cawl_kit::program(app("confined"));
    let plain = plain.args(["dispatch", "fork"]).current_dir(dir().path()).output().expect("run");
    if plain.status.code() == Some(77) {
        return cawl_kit::skipped("no Syscall User Dispatch here");
    }
    for how in ["dispatch", "dispatch by syscall"] {
        for what in ["write", "exec", "map", "fork"] {
            let sessions = compare(&app("confined"), &[how, what], |_| {});
            assert_eq!(sessions.len(), 1, "{how} {what}: {sessions:#?}");
            assert_eq!(ended(&sessions[0]), Some(Ended::Confined), "{how} {what}");
            if what == "write" && goes_on(&sessions[0]) {
                assert_eq!(sessions[0].count(Op::Write), 1 + 1000, "{how}");
            }
        }
    }
}

#[test]
fn in_strict_mode_the_tracer_makes_no_call() {
    for child in [&["strict", "write"][..], &["strict", "child", "write"]] {
        let sessions = compare(&app("confined"), child, |_| {});
        assert_eq!(sessions.len(), child.len() - 1);
        assert!(sessions.iter().any(|session| ended(session) == Some(Ended::Confined)));
    }
}

#[test]
fn threads_inside_hooks_outlive_a_filter_for_all() {
    for _ in 0..10 {
        compare(&app("confined"), &["tsync", "threads"], |_| {});
    }
}

/// A question whether there are filters is none.
#[test]
fn a_probe_ends_nothing() {
    for what in [&["probe", "write"][..], &["probe", "map"], &["probe", "child", "write"]] {
        let sessions = compare(&app("confined"), what, |_| {});
        assert_eq!(sessions.len(), what.len() - 1);
        assert_complete(&sessions);
    }
}

#[test]
fn an_image_that_begins_under_a_filter_is_not_traced() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let mut command = daemon.command(app("ring"));
    // The first program installs the filter untraced, and starts the second one.
    command.args(["refuse", "1000"]).env_remove("LD_PRELOAD").env("PRELOAD_NEXT", cawl_kit::library());
    let out = command.current_dir(place.path()).output().expect("run");
    let sessions = daemon.finish();
    if out.status.code() == Some(77) {
        return cawl_kit::skipped("filters cannot be installed here");
    }
    assert!(out.status.success());
    assert!(sessions.is_empty(), "{sessions:#?}");
}
