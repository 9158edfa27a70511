//! Reads: what the kernel gave is what the events tell, where in the file it was, and what was cached before.

use cawl_kit::witness::{Answer, Daemon, Session, dir};
use cawl_kit::{app, find, python, skipped};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use std::path::Path;

fn is_read(event: &Event) -> bool {
    matches!(event.op, Op::Read | Op::Pread | Op::StreamRead)
}

/// Bytes that the kernel gave for a call, and where they begin.
fn given(event: &Event) -> (u64, u64) {
    let bytes = match event.op {
        Op::StreamRead => event.refilled().expect("a stream's figures"),
        _ => event.returned.max(0) as u64,
    };
    (event.offset, bytes)
}

fn numbers(folder: &Path) {
    let text: String = (0..10_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(folder.join("in"), text).expect("in");
}

/// One way of reading, traced: what the program said, and the sessions.
fn read_in(way: &str, set: &[(&str, &str)]) -> (String, Vec<Session>) {
    let (place, socket) = (dir(), dir());
    numbers(place.path());
    let daemon = Daemon::start(socket.path(), Answer::Welcome);
    let mut command = daemon.command(app("reader"));
    let out = command.arg(way).envs(set.iter().copied()).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{way}: {}", String::from_utf8_lossy(&out.stderr));
    let sessions = daemon.finish();
    sessions.iter().for_each(Session::assert_intact);
    (String::from_utf8_lossy(&out.stdout).trim().to_owned(), sessions)
}

fn of_in(session: &Session) -> Vec<&Event> {
    session.about("/in").into_iter().filter(|event| is_read(event)).collect()
}

fn places(session: &Session) -> Vec<(u64, u64)> {
    of_in(session).into_iter().map(given).collect()
}

#[test]
fn every_byte_that_the_kernel_gave_is_told_with_its_place() {
    let mut wrong = Vec::new();
    for way in [
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
    ] {
        let (counted, sessions) = read_in(way, &[]);
        let events = of_in(&sessions[0]);
        let told: u64 = events.iter().map(|event| given(event).1).sum();
        let list: Vec<_> =
            events.iter().map(|event| (event.op.name(), given(event), event.returned)).collect();
        if told.to_string() != counted {
            wrong.push(format!("{way}: {told} told, {counted} counted: {list:?}"));
        }
        assert!(events.iter().all(|event| event.kind == FileKind::Regular && event.duration > 0), "{way}");
        assert!(events.iter().all(|event| event.offset != UNKNOWN_OFFSET), "{way}: {list:?}");
        if matches!(way, "sequence" | "own-buffer" | "lines" | "inline" | "scanf" | "wide") {
            let ends = places(&sessions[0]).windows(2).all(|two| two[0].0 + two[0].1 == two[1].0);
            assert!(ends, "one after another, {way}: {list:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Seeks, duplicates and a child move the descriptor, and each read tells where it was.
#[test]
fn places_are_true_for_descriptors_that_only_read() {
    for set in [&[][..], &[("CAWL_TRANSPORT", "socket")]] {
        let (_, sessions) = read_in("descriptors", set);
        let parent = sessions.iter().find(|session| session.ppid == std::process::id()).expect("parent");
        let child = sessions.iter().find(|session| session.ppid == parent.pid).expect("child");
        let by_descriptor = [
            (0, 1000),
            (1000, 1000),
            (2000, 150),
            (7, 10),
            (9, 100),
            (2150, 100),
            (5000, 200),
            (5150, 1),
            (5151, 300),
            (5451, 1),
            (5452, 2),
            (5454, 3),
            (5457, 4),
            (6, 5),
            (5481, 30),
            (5511, 0),
            (48_890, 0),
        ];
        assert_eq!(places(parent), by_descriptor);
        assert_eq!(places(child), [(5461, 20)]);
        let failed: Vec<_> = of_in(parent).into_iter().filter(|event| event.returned < 0).collect();
        assert!(matches!(failed[..], [Event { errno: 14, requested: 40, .. }]), "{failed:?}");
    }
}

/// A stream that parent and child share: what one has read ahead, the other does not read.
#[test]
fn a_shared_stream_is_told_by_whom_it_was_filled() {
    let (_, sessions) = read_in("shared", &[]);
    let parent = sessions.iter().find(|session| session.ppid == std::process::id()).expect("parent");
    let child = sessions.iter().find(|session| session.ppid == parent.pid).expect("child");
    assert_eq!(places(parent), [(0, 4096), (48_890, 0)]);
    let filled: Vec<(u64, u64)> =
        (1..12).map(|block| (block * 4096, 4096.min(48_890 - block * 4096))).collect();
    assert_eq!(places(child), [filled, vec![(48_890, 0)]].concat());
}

/// Reads of pipes are recorded with `CAWL_READS=all` only, reads of files unless `CAWL_READS=0`.
#[test]
fn what_is_recorded_is_chosen() {
    let reads = |way: &str, which: Option<&str>| {
        let set = which.map(|which| ("CAWL_READS", which));
        let (_, sessions) = read_in(way, set.as_slice());
        let read = |event: &&Event| is_read(event) && event.returned > 0;
        let of_files = |event: &&Event| event.kind == FileKind::Regular;
        let others: u64 = sessions[0]
            .events
            .iter()
            .filter(read)
            .filter(|event| !of_files(event))
            .map(|event| given(event).1)
            .sum();
        let ops: Vec<Op> = sessions[0].about("/in").iter().map(|event| event.op).collect();
        (others, ops)
    };
    for (which, bytes) in [(None, 0), (Some("1"), 0), (Some("0"), 0), (Some("all"), 1000)] {
        assert_eq!(reads("elsewhere", which), (bytes, vec![]), "{which:?}");
    }
    assert_eq!(reads("lines", Some("0")).1, []);
    let (first, last) = ([Op::StreamOpen, Op::Resident, Op::StreamRead], [Op::StreamRead, Op::StreamClose]);
    let ops = reads("lines", None).1;
    assert!(ops.starts_with(&first) && ops.ends_with(&last), "{ops:?}");
}

#[test]
fn what_was_cached_is_asked_once_for_a_file() {
    let (said, sessions) = read_in("halved", &[]);
    let (bits, _) = said.split_once(' ').expect("two words");
    let about: Vec<&Event> = sessions.iter().flat_map(|session| session.about("/big")).collect();
    let told: Vec<&&Event> = about.iter().filter(|event| event.op == Op::Resident).collect();
    let [told] = told[..] else { panic!("not one: {about:?}") };
    let mask: String =
        (0..64).map(|range| if told.requested >> range & 1 == 1 { '1' } else { '0' }).collect();
    assert_eq!((mask.as_str(), told.offset), (bits, 16384));
    assert!(!told.has(flag::ESTIMATED) && told.duration == 0);
    let before = about.iter().position(|event| event.op == Op::Resident);
    let first = about.iter().position(|event| is_read(event));
    assert!(before < first, "{about:?}");
    if bits.contains('0') && bits.contains('1') {
        assert_eq!(told.returned, 512 << 10, "{bits}");
    } else {
        skipped(&format!("the filesystem drops nothing from the cache: {bits}"));
    }
}

#[test]
fn what_was_cached_is_told_before_it_is_written_over() {
    let (_, sessions) = read_in("over", &[]);
    let all: Vec<(&Session, &Event)> = sessions
        .iter()
        .flat_map(|session| session.events.iter().map(move |event| (session, event)))
        .collect();
    let told: Vec<_> = all.iter().filter(|(_, event)| event.op == Op::Resident).collect();
    let [(session, told)] = told[..] else { panic!("not one: {told:?}") };
    assert!(session.path(told).ends_with("/over"));
    assert_eq!((told.requested, told.offset, told.returned), (u64::MAX, 4096, 65536));
    assert!(told.aux <= 16, "{told:?}");
}

/// A file that the program made itself was not there to be cached.
#[test]
fn what_a_program_makes_is_told_as_made_and_not_asked_about() {
    let (_, sessions) = read_in("made", &[]);
    let opened: Vec<(String, bool)> = sessions[0]
        .events
        .iter()
        .filter(|event| matches!(event.op, Op::Open | Op::StreamOpen) && event.kind == FileKind::Regular)
        .map(|event| (sessions[0].path(event), event.has(flag::CREATED)))
        .filter_map(|(path, made)| Some((path.rsplit_once("/made-")?.1.to_owned(), made)))
        .collect();
    let wanted: Vec<(String, bool)> = [
        ("open", true),
        ("open", false),
        ("excl", true),
        ("excl", false),
        ("creat", true),
        ("fopen", true),
        ("fopen", false),
        ("fopen", false),
        ("append", true),
    ]
    .map(|(name, made)| (name.to_owned(), made))
    .to_vec();
    assert_eq!(opened, wanted);
    let asked: Vec<&Event> = sessions[0].events.iter().filter(|event| event.op == Op::Resident).collect();
    let paths: Vec<&str> =
        asked.iter().map(|event| sessions[0].path(event)).filter(|path| path.contains("/made-")).collect();
    assert!(paths.is_empty(), "{paths:?}");
}

/// A read of a stream that holds what the program gave it writes that first.
#[test]
fn what_a_read_writes_out_is_told() {
    let (_, sessions) = read_in("turned", &[]);
    let about = sessions[0].about("/turned");
    let flushed: Vec<u64> =
        about.iter().filter_map(|event| event.flushed()).filter(|bytes| *bytes > 0).collect();
    assert_eq!(flushed, [10], "{about:?}");
}

/// Bytes that a program reads from "in", as the kernel counts them: those of it with an empty file taken
/// away.
fn counted(command: &[&str]) -> u64 {
    let said = [true, false].map(|filled| {
        let place = dir();
        std::fs::write(place.path().join("in"), "").expect("in");
        if filled {
            numbers(place.path());
        }
        let mut program = cawl_kit::program(app("reader"));
        let out = program.arg("run").args(command).current_dir(place.path()).output().expect("run");
        assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().parse::<u64>().expect("a number")
    });
    said[0] - said[1]
}

/// Memory is read into page by page, twice.
#[test]
fn memory_that_nobody_touched_is_told_once() {
    let Some(python) = python() else { return skipped("python3 is not installed") };
    let (place, socket) = (dir(), dir());
    numbers(place.path());
    let daemon = Daemon::start(socket.path(), Answer::Welcome);
    let script = "import mmap\nmemory = memoryview(mmap.mmap(-1, 256 * 4096))\nfile = open('in', 'rb', buffering=0)\n\
                  for at in list(range(0, 256 * 4096, 4096)) * 2:\n file.seek(0)\n file.readinto(memory[at:at+4096])";
    let out = daemon.command(python).args(["-c", script]).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let sessions = daemon.finish();
    let untouched: Vec<u32> = of_in(&sessions[0]).into_iter().map(|event| event.aux).collect();
    assert_eq!(untouched.len(), 512);
    // What was read before may have made looks rare; the first one that finds something ends that.
    assert!(untouched[100..256].iter().all(|pages| *pages == 1), "{untouched:?}");
    assert!(untouched[256..].iter().all(|pages| *pages == 0), "{untouched:?}");
}

#[test]
fn what_programs_read_is_told_to_the_byte() {
    let python = python().map(|path| path.display().to_string());
    let programs: [&[&str]; 10] = [
        &["cat", "in"],
        &["cp", "in", "out"],
        &["grep", "-c", "77", "in"],
        &["sort", "in"],
        &["wc", "in"],
        &["sed", "-n", "$p", "in"],
        &["awk", "{ sum += $1 } END { print sum }", "in"],
        &["sh", "-c", "while read line; do :; done < in"],
        &["perl", "-ne", "print if /9999/", "in"],
        &[
            python.as_deref().unwrap_or("python3"),
            "-c",
            "print(sum(map(int, open('in'))), len(open('in', 'rb').read()))",
        ],
    ];
    let mut wrong = Vec::new();
    for program in programs {
        if find(program[0]).is_none() {
            skipped(&format!("{} is not installed", program[0]));
            continue;
        }
        let (place, socket) = (dir(), dir());
        numbers(place.path());
        let daemon = Daemon::start(socket.path(), Answer::Welcome);
        let mut command = daemon.command(program[0]);
        let out = command.args(&program[1..]).current_dir(place.path()).output().expect("run");
        assert!(out.status.success(), "{program:?}: {}", String::from_utf8_lossy(&out.stderr));
        let sessions = daemon.finish();
        sessions.iter().for_each(Session::assert_intact);
        let read: u64 = sessions.iter().flat_map(places).map(|(_, bytes)| bytes).sum();
        // Of a copy inside the kernel, the event is about what was written.
        let copied =
            sessions.iter().flat_map(|session| &session.events).filter(|event| event.op == Op::CopyRange);
        let told = read + copied.map(|event| event.returned.max(0) as u64).sum::<u64>();
        let counted = counted(program);
        if told != counted {
            wrong.push(format!("{program:?}: {told} told, {counted} counted"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
