//! Events in shared memory: what is in it when a program ends in whatever way, what does not fit, and what
//! happens where there can be none. (With CAWL_TRANSPORT=socket most of this has no meaning.)

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, Session, dir};
use cawl_wire::ring::{CHUNK_CELLS, CHUNKS, WHOLE_CELLS};
use cawl_wire::{Event, Op};
use std::process::Output;

/// What one ring holds of calls that are told whole, and of ones that go on as the one before.
const ROOM: usize = CHUNKS * (CHUNK_CELLS / WHOLE_CELLS) as usize;
const ROOM_SHORT: usize = CHUNKS * CHUNK_CELLS as usize;

fn shared() -> bool {
    let asked = std::env::var("CAWL_TRANSPORT").is_ok_and(|transport| transport == "socket");
    if asked {
        println!("skipped: CAWL_TRANSPORT=socket");
    }
    !asked
}

fn run(way: &str, count: usize, answer: Answer, lossless: bool) -> (Output, Vec<Session>) {
    let place = dir();
    let daemon = Daemon::start(place.path(), answer);
    let mut command = daemon.command(app("ring"));
    command.arg(way).arg(count.to_string()).current_dir(place.path());
    if lossless {
        command.env("CAWL_LOSSLESS", "1");
    }
    let out = command.output().expect("run");
    (out, daemon.finish())
}

fn writes(session: &Session) -> usize {
    session.count(Op::Write)
}

#[test]
fn a_killed_program_loses_nothing() {
    if !shared() {
        return;
    }
    for count in [1, 100, 100_001] {
        let (out, sessions) = run("killed", count, Answer::Read, false);
        assert!(!out.status.success());
        assert_eq!(sessions.len(), 1);
        assert!(sessions[0].ringed && sessions[0].goodbyes.is_empty());
        assert_eq!((writes(&sessions[0]), sessions[0].dropped), (count, 0));
    }
}

#[test]
fn what_does_not_fit_is_counted() {
    if !shared() {
        return;
    }
    // A daemon that reads nothing until the program has ended.
    for (way, room, descriptors) in [("alternating", ROOM, 2), ("calls", ROOM_SHORT, 1)] {
        let count = room + 5000;
        let (out, sessions) = run(way, count, Answer::Welcome, false);
        assert!(out.status.success());
        let session = &sessions[0];
        // Opens and moments of time are in the ring too, whole, and some cells at the end of each chunk are
        // not used.
        let least = room - room / 100;
        assert!(writes(session) <= room && writes(session) > least, "{way}: {}", writes(session));
        // The look at each descriptor at the end has no room either.
        assert_eq!(session.dropped as usize, count - writes(session) + descriptors, "{way}");
    }
}

/// Cells that so many reads of a file take, without moments of time, which come whenever some is over.
fn cells(how: &str, count: usize) -> u64 {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let mut command = daemon.command(app("ring"));
    let out =
        command.args(["reads", &count.to_string(), how]).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{how}: {out:?}");
    let sessions = daemon.finish();
    let session = &sessions[0];
    let read = |event: &&Event| matches!(event.op, Op::Read | Op::Pread) && event.returned > 0;
    assert_eq!(session.about("/in").into_iter().filter(read).count(), count, "{how}");
    session.cells - session.moments * u64::from(WHOLE_CELLS)
}

/// A read that goes on where the one before ended is told in one cell, any other one whole.
#[test]
fn reads_in_sequence_take_a_cell_each() {
    if !shared() {
        return;
    }
    // In one chunk: behind the last record that fits, some cells of it are left out.
    const MORE: usize = 3000;
    for (how, of_each) in [("read", 1), ("pread", 1), ("readv", 1), ("backwards", WHOLE_CELLS)] {
        let more = cells(how, 10 + MORE / of_each as usize) - cells(how, 10);
        assert_eq!(more, (MORE / of_each as usize) as u64 * u64::from(of_each), "{how}");
    }
}

#[test]
fn who_waits_loses_nothing() {
    let count = 3 * ROOM;
    let (out, sessions) = run("alternating", count, Answer::Read, true);
    assert!(out.status.success());
    assert_eq!((writes(&sessions[0]), sessions[0].dropped), (count, 0));
    assert!(sessions[0].in_order());
}

#[test]
fn who_waits_for_a_daemon_that_is_gone_does_not_wait() {
    let (out, _) = run("alternating", 2 * ROOM, Answer::HangUp, true);
    assert!(out.status.success());
}

#[test]
fn without_memory_to_share_there_is_the_socket() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Read);
    // A program under a filter would be left alone, were this one not said to be harmless.
    let mut command = daemon.command(app("ring"));
    command.args(["refuse", "1000"]).env_remove("LD_PRELOAD").env("PRELOAD_NEXT", cawl_kit::library());
    command.env("CAWL_FILTERS", "1");
    let out = command.output().expect("run");
    let sessions = daemon.finish();
    if out.status.code() == Some(77) {
        println!("skipped: no seccomp here");
        return;
    }
    assert!(out.status.success());
    let session = sessions.iter().find(|session| session.arguments.contains("calls")).expect("session");
    assert!(!session.ringed);
    assert_eq!((writes(session), session.dropped), (1000, 0));
}

/// To make the memory would bring the program SIGXFSZ, or fail: the tracer looks first.
#[test]
fn limits_on_files_and_addresses_are_respected() {
    let app = app("ring");
    for limit in ["-f 100", "-v 500000", "-Sn 8"] {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Read);
        let script = format!("ulimit {limit}; exec {} calls 1000", app.display());
        let out = daemon.command("/bin/sh").args(["-c", &script]).output().expect("run");
        assert!(out.status.success(), "{limit}: {out:?}");
        let sessions = daemon.finish();
        let session = sessions.iter().find(|session| writes(session) > 0).expect(limit);
        assert_eq!((writes(session), session.dropped), (1000, 0), "{limit}");
    }
}

/// Address space that nobody wrote to stays without memory, even in a program that locks all it has.
#[test]
fn a_program_that_locks_its_memory_gets_no_more_of_it() {
    let (out, sessions) = run("locked", 10_000, Answer::Read, false);
    if out.status.code() == Some(77) {
        println!("skipped: memory cannot be locked here");
        return;
    }
    assert!(out.status.success(), "{out:?}");
    assert_eq!((writes(&sessions[0]), sessions[0].dropped), (10_000, 0));
}

/// Threads beyond those that can have a ring use the socket.
#[test]
fn three_hundred_threads_at_once() {
    let (out, sessions) = run("more threads", 50, Answer::Read, false);
    assert!(out.status.success());
    assert_eq!((writes(&sessions[0]), sessions[0].dropped), (300 * 50, 0));
}

#[test]
fn two_hundred_threads_twice() {
    let (out, sessions) = run("many threads", 300, Answer::Read, false);
    assert!(out.status.success());
    let session = &sessions[0];
    assert_eq!((writes(session), session.dropped), (2 * 200 * 300, 0));
    let mut tids: Vec<u32> =
        session.events.iter().filter(|event| event.op == Op::Write).map(|event| event.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), 400);
    // The second two hundred took the places of the first.
    assert!(session.slots <= 201, "{} slots", session.slots);
}

#[test]
fn places_of_threads_that_ended_are_used_again() {
    let (out, sessions) = run("thread after thread", 50, Answer::Read, false);
    assert!(out.status.success());
    assert_eq!((writes(&sessions[0]), sessions[0].dropped), (300 * 50, 0));
    assert!(sessions[0].slots <= 2, "{} slots", sessions[0].slots);
}

#[test]
fn a_child_does_not_write_into_its_parents_memory() {
    let (out, sessions) = run("forks", 40_000, Answer::Read, false);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(sessions.len(), 21);
    for session in &sessions {
        assert!(session.events.iter().all(|event| event.pid == session.pid), "{}", session.pid);
        let expected = if session.ppid == std::process::id() { 40_000 } else { 100 };
        assert_eq!((writes(session), session.dropped, session.nameless), (expected, 0, 0));
    }
}
