//! Descriptors: where each write lands, and whether all bytes are seen.

mod support;

use cawl_wire::{Op, flag};
use support::{app, assert_complete, compare};

#[test]
fn offsets_survive_dup_append_lseek_pwrite_and_fork() {
    let sessions = compare(&app("offsets", &[]), &[], |_| {});
    assert_eq!(sessions.len(), 2, "parent and child");
    let parent = sessions.iter().find(|session| session.ppid == std::process::id()).expect("parent");
    let child = sessions.iter().find(|session| session.ppid == parent.pid).expect("child");
    let landed = |session: &support::Session, ending| -> Vec<(u64, i64)> {
        let wrote = |event: &&&cawl_wire::Event| support::bytes(event) > 0;
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
