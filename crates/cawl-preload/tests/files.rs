//! Descriptors: where each write lands, and whether all bytes are seen.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, assert_complete, compare, dir};
use cawl_wire::{Op, flag};

#[test]
fn offsets_survive_dup_append_lseek_pwrite_and_fork() {
    let sessions = compare(&app("offsets"), &[], |_| {});
    assert_eq!(sessions.len(), 2, "parent and child");
    let parent = sessions.iter().find(|session| session.ppid == std::process::id()).expect("parent");
    let child = sessions.iter().find(|session| session.ppid == parent.pid).expect("child");
    let landed = |session: &cawl_kit::witness::Session, ending| -> Vec<(u64, i64)> {
        let wrote = |event: &&&cawl_wire::Event| cawl_kit::witness::bytes(event) > 0;
        session.about(ending).iter().filter(wrote).map(|event| (event.offset, event.returned)).collect()
    };
    assert_eq!(
        landed(parent, "/a"),
        [
            (0, 10),
            (10, 5),
            (100, 3),
            (15, 1),
            (50, 2),
            (52, 3),
            (55, 4),
            (103, 5),
            (108, 6),
            (108, 1),
            (114, 1),
            (109, 5)
        ]
    );
    assert_eq!(landed(parent, "/d"), [(0, 7), (15, 9), (24, 1)]);
    assert_eq!(landed(child, "/d"), [(7, 8)]);
    assert!(parent.about("/d").last().expect("last").has(flag::APPEND));
    assert!(child.events[0].has(flag::INHERITED));
    assert_eq!(parent.count(Op::Dup), 1);
    assert_eq!(parent.count(Op::Fork), 1);
    assert_complete(&sessions);
}

/// A handler writes between the kernel's work and the hook's, and still each event tells where its bytes are.
#[test]
fn offsets_are_true_whenever_a_handler_writes() {
    let program = app("handler_writes");
    for mode in ["counted", "append", "seek", "stream", "jump"] {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Welcome);
        let mut command = daemon.command(&program);
        let status = command.arg(mode).current_dir(place.path()).status().expect("run");
        assert!(status.success(), "{mode}: {status}");
        let session = daemon.finish().remove(0);
        let written = std::fs::read(place.path().join("out")).expect("out");
        let mut looked_at = std::collections::BTreeMap::new();
        let mut wrong = Vec::new();
        for event in session.about("/out") {
            if event.returned <= 0 || !matches!(event.op, Op::Write | Op::StreamWrite) {
                continue;
            }
            let (at, kind) = (event.offset as usize, if event.returned == 7 { b'h' } else { b'm' });
            *looked_at.entry(at).or_insert(0) += 1;
            // It begins here, and the one before it ended here.
            if written.get(at) != Some(&kind) || at > 0 && written[at - 1] != b'\n' {
                wrong.push((at, kind as char));
            }
        }
        let handlers = session.about("/out").iter().filter(|event| event.returned == 7).count();
        println!("{mode}: {} calls, {handlers} of them a handler's", looked_at.len());
        assert!(wrong.is_empty(), "{mode}: {} of {} wrong: {wrong:?}", wrong.len(), looked_at.len());
        assert!(looked_at.values().all(|times| *times == 1), "{mode}: two calls at one place");
        assert!(handlers > 1000, "{mode}: {handlers}");
    }
}

#[test]
fn the_write_after_a_look_at_the_time_stamps_says_so() {
    let sessions = compare(&app("stamps"), &[], |_| {});
    let writes = sessions[0].events.iter().filter(|event| matches!(event.op, Op::Write | Op::Pwrite));
    let marked: Vec<bool> = writes.map(|event| event.has(flag::STAMPS_READ)).collect();
    assert_eq!(marked, [0, 0, 1, 0, 0, 1, 0, 0, 1].map(|marked| marked == 1));
}

#[test]
fn names_begin_in_the_working_directory() {
    let place = dir();
    let home = place.path().canonicalize().expect("a folder").join("home");
    std::fs::create_dir(&home).expect("a folder");
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let status = daemon.command(app("directories")).current_dir(&home).status().expect("run");
    assert!(status.success(), "{status}");
    let session = daemon.finish().remove(0);
    let opened = session.events.iter().filter(|event| event.op == Op::Open);
    let mut paths: Vec<&str> = opened.map(|event| session.path(event)).collect();
    // Each thread's are in order.
    paths.sort_by_key(|path| path.rsplit('/').next());
    let below = [
        "1-home",
        "one/2-one",
        "one/below/3-below",
        "4-home",
        "one/5-one",
        "three/6-three",
        "two/7-two",
        "8-home",
    ];
    assert_eq!(paths, below.map(|name| home.join(name).display().to_string()));
}
