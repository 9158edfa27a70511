//! Libraries around the tracer that are not what it might expect: some define what the C library defines.

use cawl_kit::witness::{Answer, Daemon, Session, bytes, compare, dir};
use cawl_kit::{app_with, library};
use cawl_wire::{Goodbye, Op, past};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What LD_PRELOAD is to be.
fn preload(libraries: &[&Path]) -> String {
    libraries.iter().map(|path| path.to_str().expect("a readable path")).collect::<Vec<_>>().join(":")
}

#[test]
fn functions_of_the_programs_own_keep_their_meaning() {
    // Both kinds of tables in which the dynamic linker finds names.
    for table in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let names = app_with("own_names", &["-fno-builtin", "-w", "-DLIBRARY", "-shared", "-fPIC", table]);
        let names = names.to_str().expect("a readable path");
        let rpath = format!("-Wl,-rpath,{names}");
        let program = app_with("own_names", &["-fno-builtin", "-w", "-Wl,--no-as-needed", names, &rpath]);
        let sessions = compare(&program, &[], |_| {});
        assert_eq!(sessions.len(), 1);
        let session = &sessions[0];
        for op in [Op::Sync, Op::Splice, Op::Lock, Op::Truncate, Op::Dup, Op::Rename, Op::Unlink, Op::Spawn] {
            assert_eq!(session.count(op), 0, "{op:?}");
        }
        assert_eq!(session.about("/out").iter().filter(|event| event.op == Op::StreamWrite).count(), 1);
    }
}

#[test]
fn wrappers_that_are_preloaded_are_recorded() {
    let flags = ["-fno-builtin", "-w", "-DWRAPPER", "-shared", "-fPIC"];
    let wrapper = app_with("own_names", &flags);
    for order in [[&*library(), &*wrapper], [&*wrapper, &*library()]] {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Welcome);
        let run = |program: &str, arguments: &[&str]| {
            let mut command = daemon.command(program);
            command.args(arguments).current_dir(place.path()).env("LD_PRELOAD", preload(&order));
            assert!(command.output().expect("run").status.success(), "{program}");
        };
        run("dd", &["if=/dev/zero", "of=out", "bs=4096", "count=3"]);
        run("sync", &[]);
        run("truncate", &["-s", "0", "out"]);
        let sessions = daemon.finish();
        let written: u64 = sessions.iter().flat_map(|session| session.about("/out")).map(bytes).sum();
        assert_eq!(written, 3 * 4096, "{order:?}");
        assert_eq!(sessions.iter().map(|session| session.count(Op::Sync)).sum::<usize>(), 1, "{order:?}");
    }
}

/// libfaketime and its like stand before the C library's clock. The tracer's is the machine's, and no wait of
/// it is longer.
#[test]
fn a_clock_that_stands_still_is_the_programs_alone() {
    let still = app_with("still_clock", &["-shared", "-fPIC"]);
    for (answer, order) in [
        (Answer::Welcome, [&*still, &*library()]),
        (Answer::Welcome, [&*library(), &*still]),
        (Answer::Nothing, [&*still, &*library()]),
    ] {
        let place = dir();
        let daemon = Daemon::start(place.path(), answer);
        let began = Instant::now();
        let mut command = daemon.command("dd");
        command.args(["if=/dev/zero", "of=out", "bs=64", "count=20000"]).current_dir(place.path());
        command.env("LD_PRELOAD", preload(&order)).env("CAWL_CLOCK", "ns").env("CAWL_TRANSPORT", "socket");
        assert!(command.output().expect("run").status.success());
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
        for session in daemon.finish() {
            let first = session.events.iter().map(|event| event.start).min().expect("an event");
            let last = session.events.iter().map(cawl_wire::Event::end).max().expect("an event");
            assert!((1..took.as_nanos() as u64).contains(&(last - first)), "{order:?}: {first} to {last}");
            let is_told = |goodbye: &Goodbye| goodbye.at >= last && goodbye.past == past::CLOCK;
            assert!(session.goodbyes.iter().all(is_told), "{:?}", session.goodbyes);
        }
    }
}

/// The last words of the only session of `handles` in this way, and the bytes of both its files.
fn past_the_hooks(way: &str) -> (u32, [u64; 2]) {
    let plugin = app_with("handles", &["-O1", "-DLIBRARY", "-shared", "-fPIC"]);
    let sessions =
        compare(&app_with("handles", &["-O1"]), &[way, plugin.to_str().expect("a readable path")], |_| {});
    let [session] = &sessions[..] else { panic!("{way}: {} sessions", sessions.len()) };
    let seen = ["/out", "/stream"].map(|name| session.about(name).into_iter().map(bytes).sum());
    (session.goodbyes.last().expect("last words").past, seen)
}

const LINES: u64 = 10 * 7 + 90 * 8 + 900 * 9 + 1000 * 10;

/// As ctypes, JNA and their like find functions.
#[test]
fn functions_looked_up_through_a_handle_are_followed() {
    assert_eq!(past_the_hooks("handle"), (0, [12, 6]));
}

#[test]
fn libraries_past_the_hooks_are_named() {
    assert_eq!(past_the_hooks("plain"), (0, [16 << 16, LINES]));
    assert_eq!(past_the_hooks("deep").0, past::DEEP_BINDING);
    assert_eq!(past_the_hooks("space").0, past::NAMESPACE);
}

/// In a time namespace, and in a child that is put there.
#[test]
fn a_time_namespace_shifts_no_time() {
    let Some(unshare) = cawl_kit::find("unshare") else { return };
    let able = Command::new(&unshare).args(["-T", "--monotonic", "1000000", "--fork", "true"]).output();
    if !able.is_ok_and(|out| out.status.success()) {
        return cawl_kit::skipped("there are no time namespaces, or only for root");
    }
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let mut command = daemon.command(unshare);
    command.args(["-T", "--monotonic", "1000000", "--fork", "dd", "if=/dev/zero", "of=out", "count=100"]);
    assert!(
        command.current_dir(place.path()).env("CAWL_CLOCK", "ns").output().expect("run").status.success()
    );
    let sessions = daemon.finish();
    assert!(sessions.len() >= 2, "{sessions:?}");
    let times: Vec<u64> =
        sessions.iter().flat_map(|session| &session.goodbyes).map(|goodbye| goodbye.at).collect();
    let (first, last) = (times.iter().min().expect("one"), times.iter().max().expect("one"));
    assert!(last - first < 100_000_000_000, "{times:?}");
    let told = |session: &Session| session.goodbyes.iter().any(|goodbye| goodbye.past == past::CLOCK);
    assert!(sessions.iter().any(told) && !sessions.iter().all(told), "{sessions:?}");
}
