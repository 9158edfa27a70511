//! Reads: what the kernel gave is what the events tell, where in the file it was, and what was cached before.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, Session, compare, dir};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Bytes that the kernel gave for a call, and where they begin.
fn given(event: &Event) -> (u64, u64) {
    let bytes = match event.op {
        Op::Read | Op::Pread => event.returned.max(0) as u64,
        Op::StreamRead => event.refilled().expect("a stream's figures"),
        _ => 0,
    };
    (event.offset, bytes)
}

fn numbers(folder: &Path) {
    let text: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(folder.join("in"), text).expect("in");
}

/// One way of reading, traced: what the program said, and the sessions.
fn read_in(way: &str, set: &[(&str, &str)]) -> (u64, Vec<Session>) {
    let (place, socket) = (dir(), dir());
    numbers(place.path());
    let daemon = Daemon::start(socket.path(), Answer::Welcome);
    let mut command = daemon.command(app("reader"));
    let out = command.arg(way).envs(set.iter().copied()).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{way}: {}", String::from_utf8_lossy(&out.stderr));
    let said = String::from_utf8_lossy(&out.stdout).trim().parse().expect("a number");
    let sessions = daemon.finish();
    sessions.iter().for_each(Session::assert_intact);
    (said, sessions)
}

fn of_in(session: &Session) -> Vec<&Event> {
    session
        .about("/in")
        .into_iter()
        .filter(|event| matches!(event.op, Op::Read | Op::Pread | Op::StreamRead))
        .collect()
}

#[test]
fn every_byte_that_the_kernel_gave_is_told_with_its_place() {
    let mut wrong = Vec::new();
    for way in [
        "descriptors",
        "sequence",
        "fread",
        "unbuffered",
        "own-buffer",
        "lines",
        "fgets",
        "getc",
        "inline",
        "scanf",
        "wide",
        "wide-lines",
        "pushed-back",
        "seeks",
        "reopened",
        "update",
        "given",
        "shared",
    ] {
        let (counted, sessions) = read_in(way, &[]);
        let events: Vec<&Event> = sessions.iter().flat_map(of_in).collect();
        let told: u64 = events.iter().map(|event| given(event).1).sum();
        let list: Vec<_> =
            events.iter().map(|event| (event.op.name(), given(event), event.returned)).collect();
        if told != counted {
            wrong.push(format!("{way}: {told} told, {counted} counted: {list:?}"));
        }
        assert!(events.iter().all(|event| event.kind == FileKind::Regular && event.duration > 0), "{way}");
        assert!(events.iter().all(|event| event.offset != UNKNOWN_OFFSET), "{way}: {list:?}");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
