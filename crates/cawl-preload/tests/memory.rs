//! The tracer's memory is constant: what its own mappings hold in memory does not grow between 100 000 calls
//! and a million.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, dir};

#[test]
fn a_million_calls_need_no_more_memory_than_a_hundred_thousand() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Read);
    let mut command = daemon.command(app("rough"));
    // A daemon that is built for debugging may not keep up; then this waits, and the backlog stays the same.
    command.env("CAWL_LOSSLESS", "1");
    let out =
        command.args(["memory", "1000000", "mappings"]).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{out:?}");
    let text = String::from_utf8(out.stdout).expect("text");
    let figures: Vec<i64> = text.split_whitespace().map(|word| word.parse().expect("KiB")).collect();
    let [own, later, ring, ring_later, grown] = figures[..] else { panic!("{text}") };
    println!(
        "KiB: library {own}, then {later}; ring {ring}, then {ring_later}; the whole process grew by {grown}"
    );
    assert!(own > 0, "the tracer's mappings were not found: {text}");
    // Not a page for each 10 000 calls, nor for each 100 streams.
    assert!(later - own <= 256, "{text}");
    // The rings end at 40 MiB, and how much of that is in use is the daemon's speed.
    assert!(ring_later <= (40 << 10) + 512, "{text}");
    let session = daemon.finish().remove(0);
    assert_eq!(session.dropped, 0);
    assert!(session.events.len() > 1_000_000);
}
