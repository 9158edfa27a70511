//! Descriptors: where each write lands, and whether all bytes are seen.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, assert_complete, compare, dir};
use cawl_wire::{Event, FileKind, Op, flag};

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

/// Lengths before the call, links after it; of what is no file the device alone; of a rename both files.
#[test]
fn names_tell_what_they_are_about() {
    use FileKind::{Directory, Other, Regular};
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let status = daemon.command(app("named")).current_dir(place.path()).status().expect("run");
    assert!(status.success());
    let sessions = daemon.finish();
    let is_name = |event: &&Event| {
        use Op::{Link, Mkdir, Rename, Rmdir, Symlink, Unlink};
        matches!(event.op, Mkdir | Symlink | Link | Rename | Unlink | Rmdir)
    };
    let names: Vec<&Event> = sessions[0].events.iter().filter(is_name).collect();
    let told: Vec<_> = names.iter().map(|event| (event.op, event.kind, event.aux, event.requested)).collect();
    let same = |event: &Event| event.renamed().map(|(file, replaces)| (file == event.file(), replaces));
    let expected = [
        (Op::Mkdir, Directory, None, 0, None),
        (Op::Mkdir, FileKind::Unknown, Some(0), 0, None),
        (Op::Symlink, Other, Some(1), 0, None),
        (Op::Link, Regular, Some(2), 0, None),
        (Op::Rename, Regular, Some(2), 0, Some((true, false))),
        // Of two names of one file neither goes.
        (Op::Rename, Regular, Some(2), 0, Some((true, false))),
        (Op::Unlink, Regular, Some(1), 5000, None),
        (Op::Rename, Regular, Some(0), 3000, Some((false, true))),
        (Op::Unlink, Regular, Some(0), 0, None),
        (Op::Unlink, Other, Some(0), 0, None),
        (Op::Rename, Directory, None, 0, None),
        (Op::Rmdir, Directory, None, 0, None),
    ];
    assert_eq!(names.len(), expected.len(), "{told:?}");
    for (event, (op, kind, links, length, renamed)) in names.iter().zip(expected) {
        assert_eq!((event.op, event.kind, event.requested), (op, kind, length), "{told:?}");
        assert_eq!((links.unwrap_or(event.aux), same(event)), (event.aux, renamed), "{told:?}");
        assert_eq!(event.ino == 0, kind != Regular, "{told:?}");
        assert_eq!(event.dev, if event.errno == 0 { names[0].dev } else { 0 });
    }
    let looks = sessions[0].events.iter().filter(|event| matches!(event.op, Op::Stat | Op::List));
    let looks: Vec<_> = looks.map(|event| (event.op, event.kind, event.returned > 0, event.dev)).collect();
    let dev = names[0].dev;
    let [part, end] = [true, false].map(|has_entries| (Op::List, Directory, has_entries, dev));
    let stats = [Regular, Other, Directory].map(|kind| (Op::Stat, kind, false, dev));
    assert_eq!(looks, [&stats[..], &[part, end, part, end, part, part, end, end]].concat());
    let is_cut = |event: &&Event| event.has(flag::TRUNC) && matches!(event.op, Op::Open | Op::StreamOpen);
    let cut = sessions[0].events.iter().filter(is_cut).map(|event| (event.op, event.offset));
    assert_eq!(cut.collect::<Vec<_>>(), [(Op::Open, 5000), (Op::StreamOpen, 0), (Op::StreamOpen, 4)]);
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
