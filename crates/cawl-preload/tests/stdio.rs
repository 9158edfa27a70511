//! Streams: what was accepted, what was flushed, and what was left.

use cawl_kit::witness::{Session, assert_complete, compare, ended};
use cawl_kit::{app, app_with};
use cawl_wire::{Ended, Op};

fn stdio(flags: &[&str], end: &str) -> Session {
    let mut sessions = compare(&app_with("stdio", flags), &[end], |_| {});
    assert_eq!(sessions.len(), 1);
    assert_complete(&sessions);
    sessions.remove(0)
}

#[test]
fn pending_arithmetic_plain() {
    let session = stdio(&["-O0"], "return");
    assert_eq!(ended(&session), Some(Ended::Exit));
    // stdout's "left over" with what stood before it in the pipe's buffer, and the file never closed.
    assert_eq!(session.count(Op::StreamExit), 2);
}

#[test]
fn pending_arithmetic_with_inlined_putc() {
    stdio(&["-O2"], "return");
}

#[test]
fn pending_arithmetic_fortified() {
    stdio(&["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"], "return");
}

#[test]
fn nothing_is_left_after_a_flush_of_all() {
    let session = stdio(&[], "fflush");
    assert_eq!(session.count(Op::StreamExit), 0);
}

#[test]
fn ends_without_a_flush_leave_nothing_pending() {
    for (end, how) in [("_exit", Ended::QuickExit), ("quick_exit", Ended::QuickExit), ("abort", Ended::Abort)]
    {
        let session = stdio(&[], end);
        assert_eq!(ended(&session), Some(how), "{end}");
        assert_eq!(session.goodbyes.last().expect("goodbye").pending, 0);
    }
}

#[test]
fn wide_streams_and_failing_ones() {
    let sessions = compare(&app("wide"), &[], |_| {});
    assert_complete(&sessions);
    let full: u64 = sessions[0].about("/dev/full").iter().map(|event| cawl_kit::witness::bytes(event)).sum();
    assert_eq!(full, 0, "nothing fits on a full device");
}

#[test]
fn a_killed_program_loses_one_batch_at_most() {
    let sessions = compare(&app("wide"), &["kill"], |_| {});
    let session = &sessions[0];
    assert!(session.goodbyes.is_empty());
    let all = compare(&app("wide"), &[], |_| {})[0].events.len();
    assert!(session.events.len() + 340 > all, "{} of {all}", session.events.len());
}

/// What a thread closes is gone while another looks at all streams: at fflush(NULL), and at the end.
#[test]
fn streams_that_other_threads_close_are_left_alone() {
    let sessions = compare(&app("closing"), &["20", "2000"], |_| {});
    assert_eq!(sessions.len(), 21);
    assert_eq!(sessions.iter().filter(|session| ended(session) == Some(Ended::Exit)).count(), 21);
}

/// A stream for which there is no room is recorded as any other. Only a look at all streams cannot find it,
/// and says so.
#[test]
fn streams_beyond_those_remembered_are_recorded() {
    let program = app("many_streams");
    for (arguments, unseen) in [(&[][..], 0), (&["leave"], 1)] {
        let session = compare(&program, arguments, |_| {}).remove(0);
        let goodbye = session.goodbyes.last().expect("goodbye");
        if session.count(Op::StreamWrite) == 0 {
            println!("SKIPPED: a process may not have so many descriptors here");
            return;
        }
        assert_eq!((goodbye.unseen, session.dropped), (unseen, 0));
        assert_eq!(session.count(Op::StreamWrite), 4200);
        let closed = session.count(Op::StreamClose);
        assert_eq!(closed, if unseen == 0 { 4200 } else { 0 });
    }
}
