//! Threads that start processes as fast as they can, write at the same time, and kill some of them
//! (apps/storm.c): files are as without the tracer, every byte is seen, and no session is left over.

use cawl_kit::{Dir, Report, size, unchanged};

/// Runs a mode of apps/storm.c with and without the tracer.
#[track_caller]
fn storm(way: &str, count: u64) -> Report {
    let dir = Dir::new();
    let app = dir.app("storm");
    let words = [app.to_str().expect("a readable path"), way, &count.to_string()];
    let (finished, report) = unchanged(&dir, |_| {}, &["--model", "naive"], &words, &[]);
    assert_eq!(finished.success().stderr, "");
    for file in (0..4).flat_map(|thread| [format!("thread{thread}"), format!("child{thread}")]) {
        assert_eq!(report.file_bytes(&file), size(&dir, &file), "{way}: {file}");
    }
    assert_eq!((&report["drops"], &report["unseen"]), (&0.into(), &0.into()), "{way}: something was lost");
    // The first, and one for each process.
    assert_eq!(report.sessions().len() as u64, 1 + count, "{way}");
    let stuck = report.sessions().iter().filter(|session| session["ended"] == "running");
    assert_eq!(stuck.count(), 0, "{way}: sessions of processes that are gone");
    report
}

#[test]
fn four_hundred_forks_of_four_threads() {
    storm("forks", 400).all_seen();
}

#[test]
fn two_hundred_vforks_and_execs_of_four_threads() {
    storm("vforks", 200).all_seen();
}

#[test]
fn two_hundred_spawns_of_four_threads() {
    storm("spawns", 200).all_seen();
}

/// The bytes of a killed process are seen; the kernel's count of them is gone with it.
#[test]
fn sixty_processes_killed_in_mid_write() {
    let report = storm("killed", 60);
    let vanished = report.sessions().iter().filter(|session| session["ended"] == "vanished");
    assert_eq!(vanished.count(), 60);
}
