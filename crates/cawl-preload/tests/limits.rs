//! A program that limits its addresses or memory after its start, with at least 64 MiB to spare, does not
//! differ from one that is not traced. (Limits of a control group: the workspace's tests, `groups`.)

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, Session, dir};
use cawl_wire::{Ended, Op};
use std::process::Output;

fn traced(way: &str, count: impl ToString, answer: Answer) -> (Output, Vec<Session>) {
    let place = dir();
    let daemon = Daemon::start(place.path(), answer);
    let mut command = daemon.command(app("limits"));
    let out = command.arg(way).arg(count.to_string()).current_dir(place.path()).output().expect("run");
    (out, daemon.finish())
}

/// What the program says, traced with a daemon that reads nothing; checked against what it says untraced.
fn as_untraced(way: &str, count: impl ToString) -> Vec<Session> {
    let count = count.to_string();
    let plain = cawl_kit::program(app("limits")).args([way, &count]).output().expect("run");
    if plain.status.code() == Some(77) {
        println!("SKIPPED: {way}: not possible here");
        return Vec::new();
    }
    assert!(plain.status.success(), "{way}: {plain:?}");
    let (out, sessions) = traced(way, &count, Answer::Welcome);
    assert_eq!((out.status.code(), out.stdout, out.stderr), (Some(0), plain.stdout, plain.stderr), "{way}");
    sessions
}

fn by_socket() -> bool {
    std::env::var_os("CAWL_TRANSPORT").is_some_and(|transport| transport == "socket")
}

/// More than all chunks hold.
const PLENTY: usize = 500_000;

#[test]
fn addresses_that_are_limited_later_suffice() {
    as_untraced("addresses", 1000);
    as_untraced("addresses", PLENTY);
}

#[test]
fn memory_that_is_locked_later_suffices() {
    as_untraced("locks", 1000);
    as_untraced("locks", PLENTY);
    let (out, _) = traced("grows", 50_000, Answer::Welcome);
    assert!(matches!(out.status.code(), Some(0 | 77)), "{out:?}");
}

#[test]
fn memory_is_locked_where_only_the_program_s_own_fits() {
    let sizes = cawl_kit::program(app("limits")).args(["sizes", "1"]).output().expect("run");
    let text = String::from_utf8(sizes.stdout).expect("text");
    let size: u64 = text.split(' ').next().and_then(|size| size.parse().ok()).expect("VmSize in KiB");
    // By socket some of the tracer's memory is like the program's.
    for spare in if by_socket() { [4000, 5000] } else { [1024, 3000] } {
        as_untraced("fits", size + spare);
    }
}

#[test]
fn little_address_space_is_left_alone_and_said() {
    for way in ["little", "data"] {
        let sessions = as_untraced(way, 1000);
        let ends = sessions.iter().flat_map(|session| &session.goodbyes).map(|goodbye| goodbye.ended);
        assert_eq!(ends.collect::<Vec<_>>(), [Ended::Exec, Ended::Crowded], "{way}");
        let writes = sessions.iter().map(|session| session.count(Op::Write));
        assert_eq!(writes.collect::<Vec<_>>(), [1000, 0], "{way}");
    }
}

/// Where the dynamic linker would have no room for the library, it would say so, or the program not start.
#[test]
fn no_library_is_preloaded_into_little_address_space() {
    for way in ["less", "less data", "vforks"] {
        let sessions = as_untraced(way, 10);
        assert!(sessions.iter().all(|session| !session.arguments.contains("calls")), "{way}: {sessions:#?}");
    }
}

/// Of few descriptors none is the tracer's: it has one beyond the soft limit, or there is no session.
#[test]
fn all_of_few_descriptors_are_the_program_s() {
    for (limits, traced) in [("16", false), ("63", false), ("16:1024", true), ("8:9", false), ("-16", true)] {
        let sessions = as_untraced("descriptors", limits);
        let counts =
            sessions.iter().filter(|session| limits == "-16" || session.arguments.starts_with("files"));
        assert_eq!(counts.count() == 1, traced, "{limits}: {sessions:?}");
    }
}

#[test]
fn all_keys_are_the_program_s() {
    let sessions = as_untraced("keys", 10);
    if std::env::var("CAWL_TRANSPORT").is_ok_and(|transport| transport == "socket") {
        return;
    }
    // Places of threads that ended are used again all the same.
    assert!(sessions[0].slots <= 3, "{} slots", sessions[0].slots);
    assert_eq!((sessions[0].count(Op::Write), sessions[0].dropped), (301 * 10, 0));
}

#[test]
fn what_a_quiet_program_has_more() {
    let figures = |out: &Output| -> Vec<i64> {
        let text = String::from_utf8_lossy(&out.stdout);
        text.split_whitespace().map(|figure| figure.parse().expect("KiB")).collect()
    };
    // Pages of libraries are mapped around a fault as the page cache has them: the least of some runs.
    let least = |run: &dyn Fn() -> Output| {
        let runs = (0..5).map(|_| figures(&run()));
        runs.min_by_key(|run| run[1]).expect("a run")
    };
    let plain = least(&|| cawl_kit::program(app("limits")).args(["sizes", "100"]).output().expect("run"));
    for (count, addresses) in [("100", 6 << 10), ("1000000", 64 << 10)] {
        let traced = least(&|| traced("sizes", count, Answer::Welcome).0);
        println!("{count} calls, KiB of addresses, resident, locked: {plain:?}, traced {traced:?}");
        assert!(traced[0] - plain[0] <= addresses, "{plain:?} {traced:?}");
        assert!(count != "100" || traced[1] - plain[1] <= 1152, "{plain:?} {traced:?}");
        assert_eq!(traced[2], plain[2]);
    }
}
