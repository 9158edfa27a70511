//! The groups of functions other than plain writing: messages, syscall(), pipes, asynchronous writes,
//! mappings, reads.

use cawl_kit::witness::{Session, assert_complete, compare, ended};
use cawl_kit::{app, app_with};
use cawl_wire::{Ended, Event, Op, flag};

fn modes(mode: &str) -> Vec<Session> {
    compare(&app("complete"), &[mode], |_| {})
}

fn one(mode: &str) -> Session {
    let mut sessions = modes(mode);
    assert_eq!(sessions.len(), 1);
    sessions.iter().for_each(Session::assert_intact);
    sessions.remove(0)
}

fn of(session: &Session, op: Op) -> Vec<&Event> {
    session.events.iter().filter(|event| event.op == op).collect()
}

#[test]
fn messages_are_counted_to_the_byte() {
    let sessions = modes("messages");
    assert_eq!(sessions.len(), 5, "the program and four that end by a message");
    assert_complete(&sessions);
    let ends = sessions.iter().map(ended).collect::<Vec<_>>();
    assert_eq!(ends, [Some(Ended::Exit); 5]);
}

#[test]
fn a_failed_assertion_is_an_abort() {
    let session = one("assert");
    assert_eq!(ended(&session), Some(Ended::Abort));
}

#[test]
fn syscall_is_understood() {
    let session = one("raw");
    assert_eq!(ended(&session), Some(Ended::QuickExit));
    let landed: Vec<(Op, u64, i64)> = session
        .about("/raw")
        .iter()
        .filter(|event| cawl_kit::witness::bytes(event) > 0 && event.op != Op::CopyRange)
        .map(|event| (event.op, event.offset, event.returned))
        .collect();
    assert_eq!(
        landed,
        [
            (Op::Write, 0, 100),
            (Op::Pwrite, 200, 50),
            (Op::Writev, 100, 30),
            (Op::Pwritev, 400, 30),
            (Op::Pwritev, 130, 30),
            (Op::Write, 160, 5),
        ]
    );
    assert_eq!(session.about("/other").iter().map(|event| cawl_kit::witness::bytes(event)).sum::<u64>(), 70);
    for op in [Op::Fsync, Op::Fdatasync, Op::Unlink, Op::Dup, Op::Allocate] {
        assert_eq!(session.count(op), 1, "{op:?}");
    }
    assert_eq!(session.count(Op::Truncate), 2);
    assert_complete(&[session]);
}

#[test]
fn advice_is_recorded_with_its_error() {
    let session = one("advice");
    let advised = of(&session, Op::Advise);
    let about_file: Vec<_> = (advised.iter())
        .filter(|event| session.path(event).ends_with("/advised"))
        .map(|event| (event.aux as i32, event.offset as i64, event.requested as i64, i32::from(event.errno)))
        .collect();
    let (all, dontneed) = ((0..6).map(|kind| (kind, 0, 0, 0)), cawl_wire::ADVICE_DONTNEED as i32);
    let others = [
        (dontneed, 1, 2, 0),
        (dontneed, 4096, 8192, 0),
        (77, 0, 0, libc::EINVAL),
        (dontneed, -1, -1, libc::EINVAL),
        (dontneed, 0, 4, 0),
        (77, 0, 4, libc::EINVAL),
    ];
    assert_eq!(about_file, all.chain(others).collect::<Vec<_>>());
    // A pipe has no pages; of what is not open nothing is told.
    assert_eq!(advised.iter().filter(|event| i32::from(event.errno) == libc::ESPIPE).count(), 1);
    assert!(advised.iter().all(|event| event.returned == if event.errno == 0 { 0 } else { -1 }));
}

#[test]
fn locks_are_recorded_with_their_ranges() {
    use cawl_wire::lock::{DESCRIPTION, EXCLUSIVE, FLOCK, SHARED, UNLOCK};
    let session = one("locks");
    let told: Vec<_> = of(&session, Op::Lock)
        .iter()
        .map(|event| (event.aux, event.offset, event.requested, i32::from(event.errno)))
        .collect();
    let whole = DESCRIPTION | FLOCK;
    let unknown = cawl_wire::UNKNOWN_OFFSET;
    assert_eq!(
        told,
        [
            (EXCLUSIVE, 100, 50, 0),
            (SHARED, 12, 3, 0),
            (UNLOCK, 10, 0, 0),
            (DESCRIPTION | EXCLUSIVE, 1000, 1, 0),
            (DESCRIPTION, unknown, 0, libc::EAGAIN),
            (EXCLUSIVE, 10, 7, 0),
            (UNLOCK, 10, 0, 0),
            (whole | EXCLUSIVE, 0, 0, 0),
            (whole | SHARED, 0, 0, libc::EAGAIN),
            (whole | UNLOCK, 0, 0, 0),
            (whole | SHARED, 0, 0, 0),
            (EXCLUSIVE, 2, 3, 0),
            (whole | UNLOCK, 0, 0, 0),
        ]
    );
    assert!(of(&session, Op::Lock).iter().all(|event| session.path(event).ends_with("/locked")));
}

#[test]
fn tee_vmsplice_and_splice_fill_pipes_and_files() {
    let session = one("pipes");
    let moved: Vec<i64> = of(&session, Op::Splice).iter().map(|event| event.returned).collect();
    assert_eq!(moved, [64, 64, 64]);
}

#[test]
fn asynchronous_writes_are_counted_when_handed_over() {
    let session = one("aio");
    let handed: Vec<(u64, i64)> =
        of(&session, Op::AioWrite).iter().map(|event| (event.offset, event.returned)).collect();
    assert_eq!(handed, [(0, 1000), (10_000, 2000), (20_000, 3000)]);
    assert!(of(&session, Op::AioWrite).iter().all(|event| event.has(flag::ESTIMATED)));
}

#[test]
fn libaio_is_counted_when_handed_over() {
    if !std::path::Path::new("/usr/include/libaio.h").exists() {
        println!("SKIPPED: libaio is not installed");
        return;
    }
    let app = app_with("complete", &["-O2", "-DWITH_LIBAIO", "-Wl,--no-as-needed", "-laio"]);
    let sessions = compare(&app, &["libaio"], |_| {});
    let handed: Vec<(u64, i64)> =
        of(&sessions[0], Op::AioWrite).iter().map(|event| (event.offset, event.returned)).collect();
    assert_eq!(handed, [(0, 4096), (8192, 300)]);
}

#[test]
fn every_write_of_a_list_is_counted_when_handed_over() {
    let session = one("submit");
    let handed: Vec<(u64, u64, i64)> = of(&session, Op::AioWrite)
        .iter()
        .map(|event| (event.offset, event.requested, event.returned))
        .collect();
    let wanted = [1, 2, 4, 5, 7, 8].map(|at| (100 * at, at + 1, at as i64 + 1));
    assert_eq!(handed, [&wanted[..], &[(1000, 21, 21)]].concat());
}

#[test]
fn stores_to_mappings_are_estimated() {
    let sessions = modes("mapped");
    let session = sessions.iter().find(|session| session.ppid == std::process::id()).expect("program");
    let stores: Vec<i64> = of(session, Op::MmapWrite).iter().map(|event| event.returned).collect();
    assert_eq!(stores.len(), 3, "{stores:?}");
    // Writeback may have taken some of it meanwhile; there cannot be more.
    for (seen, stored) in stores.iter().zip([64 << 10, 32 << 10, 16 << 10]) {
        assert!(*seen > 0 && *seen <= stored, "{stores:?}");
    }
    let syncs = of(session, Op::Msync);
    assert_eq!((syncs.len(), syncs[0].requested), (1, 1 << 20));
    assert!(session.path(syncs[0]).ends_with("/mapped"));
}

#[test]
fn a_mapping_that_mprotect_makes_writable_is_followed_from_then_on() {
    let session = one("protected");
    let stores: Vec<i64> = of(&session, Op::MmapWrite).iter().map(|event| event.returned).collect();
    // Neither the other mapping, which stays read-only, nor what pwrite made dirty. Writeback may have taken
    // some meanwhile.
    assert!(matches!(stores[..], [1..=32768]), "{stores:?}");
}
