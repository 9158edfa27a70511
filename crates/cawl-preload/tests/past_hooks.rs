//! What goes past every hook is noticed and said: system calls of the program's own, and descriptors that
//! another process has, too.

use cawl_kit::app;
use cawl_kit::witness::{Session, compare};
use cawl_wire::{Event, Op, uncertain};

/// A file of the program, calls made before the change and after it, and all that was said.
struct Told {
    session: Session,
    written: [u64; 2],
}

const BYTES: u64 = 1000;

/// The ways in which the descriptor comes to lead to another file, and those in which it moves.
const OTHER_FILE: [&str; 7] = ["close", "close_range", "dup", "F_DUPFD", "rights", "pidfd", "clone"];
const MOVED: [(&str, u64); 2] = [("lseek", 1 << 20), ("write", 500)];

/// An emulator makes no process that shares descriptors without memory.
fn other_file() -> impl Iterator<Item = &'static str> {
    OTHER_FILE.into_iter().filter(|way| *way != "clone" || cawl_kit::emulated().is_none())
}

fn told(way: &str, before: u64, after: u64) -> Told {
    let arguments = [way, &before.to_string(), &after.to_string()];
    let [session]: [Session; 1] = compare(&app("past_hooks"), &arguments, |_| {}).try_into().expect("one");
    let written = ["/a", "/b"].map(|name| {
        let writes = session.about(name).into_iter().filter(|event| event.op == Op::Write);
        writes.map(|event| event.returned as u64).sum()
    });
    Told { session, written }
}

impl Told {
    /// The doubts, their calls and bytes.
    fn doubts(&self, why: u32) -> (u64, u64) {
        let is = |event: &&Event| event.op == Op::Uncertain && event.aux == why;
        let add = |(calls, bytes), event: &Event| (calls + event.returned as u64, bytes + event.requested);
        self.session.events.iter().filter(is).fold((0, 0), add)
    }
}

#[test]
fn another_file_is_found_at_the_next_call_while_the_descriptor_is_new() {
    for way in other_file() {
        let told = told(way, 1, 20);
        assert_eq!(told.written, [BYTES, 20 * BYTES], "{way}");
        assert_eq!(told.doubts(uncertain::OTHER_FILE), (1, BYTES), "{way}");
        assert_eq!(told.session.goodbyes[0].unseen, 0, "{way}");
        let places = told.session.about("/b").into_iter().filter(|event| event.op == Op::Write);
        assert!(places.zip(0..).all(|(event, at)| event.offset == at * BYTES), "{way}");
    }
}

#[test]
fn what_was_told_of_the_wrong_file_is_counted() {
    for way in other_file() {
        for (before, after) in [(5, 3), (100, 500), (1000, 3)] {
            let told = told(way, before, after);
            let [a, b] = told.written;
            assert_eq!(a + b, (before + after) * BYTES, "{way}");
            let (wrong, (calls, bytes)) = (a / BYTES - before, told.doubts(uncertain::OTHER_FILE));
            assert!(wrong <= calls && (1..=128).contains(&calls), "{way}: {wrong} of {calls}");
            assert_eq!(bytes, calls * BYTES, "{way}");
        }
    }
}

#[test]
fn a_descriptor_that_moved_is_found() {
    for (way, place) in MOVED {
        for (before, after, most) in [(1, 20, 0), (100, 100, 128)] {
            let told = told(way, before, after);
            let (calls, bytes) = told.doubts(uncertain::MOVED);
            assert_eq!(bytes, calls * BYTES, "{way}");
            // A write moves it from where it stood.
            let from = if way == "write" { before * BYTES + place } else { place };
            let writes = told.session.about("/a").into_iter().filter(|event| event.op == Op::Write);
            let at = |number| if number < before { number * BYTES } else { from + (number - before) * BYTES };
            let wrong = writes.zip(0..).filter(|(event, number)| event.offset != at(*number)).count() as u64;
            assert!(wrong <= most.min(calls) && (1..=128).contains(&calls), "{way}: {wrong} of {calls}");
        }
    }
}

#[test]
fn nothing_is_in_doubt_where_all_is_seen() {
    for name in ["offsets", "threads", "thread_writer"] {
        for session in compare(&app(name), &[], |_| {}) {
            let doubts = session.events.iter().filter(|event| event.op == Op::Uncertain);
            // The order of threads is the kernel's.
            assert_eq!(doubts.filter(|event| event.aux != uncertain::ORDER).count(), 0, "{name}");
        }
    }
}
