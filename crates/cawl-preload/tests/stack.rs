//! How much of the program's stack the hooks take: at most 1 KiB more than the C library's own function
//! takes, on every path. A program may have little of it: signal handlers and threads run on stacks of a few
//! KiB.

use crate::frames::Library;
use crate::hooks::{HOOKS, UNCALLED};
use cawl_kit::witness::{Answer, Daemon, assert_complete, compare, dir};
use cawl_kit::{app, app_with};
use cawl_wire::Op;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What a hook may take, in bytes.
const MAX: u64 = 1024;

/// Functions that are called by the C library, or jumped to, by a part of their names.
const CALLED_BACK: &[&str] =
    &["10understood", "11thread_ends", "11before_fork", "8in_child", "13at_quick_exit", "4life3end"];

/// What tests/apps/every.c tells of its calls, in bytes of stack.
fn sizes(mut command: Command, way: &str, others: Option<&Path>, names: &[&str]) -> BTreeMap<String, u64> {
    let place = dir();
    let others = others.map_or("-".as_ref(), Path::as_os_str);
    command.args(["--stack", way]).arg(others).args(names).env("LC_ALL", "C").current_dir(place.path());
    let out = command.output().expect("run");
    assert!(out.status.success(), "{way}: {}", String::from_utf8_lossy(&out.stderr));
    let text = std::fs::read_to_string(place.path().join("stacks")).expect("stacks");
    text.lines()
        .map(|line| {
            let (name, size) = line.split_once(' ').expect("NAME BYTES");
            (name.to_owned(), size.parse().expect("a number"))
        })
        .collect()
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "the program that measures is for x86-64")]
fn every_hook_is_content_with_one_kibibyte_more() {
    let is_called = |name: &&str| !UNCALLED.iter().any(|left| left.names.contains(name));
    let names: Vec<&str> =
        HOOKS.iter().flat_map(|group| group.names.iter().copied()).filter(is_called).collect();
    // What can be done in a vfork child.
    let few: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| name.contains("exec") || ["_exit", "_Exit"].contains(name))
        .collect();
    let program = app_with("every", &["-O0", "-Wl,-z,now"]);
    let place = dir();
    let bare = place.path().join("bare");
    let native = sizes(cawl_kit::program(&program), "warm", None, &names);
    let lines: String = native.iter().map(|(name, size)| format!("{name} {size}\n")).collect();
    std::fs::write(&bare, lines).expect("write");
    let mut wrong = Vec::new();
    let mut most = (0, String::new());
    // A copy of the process has no children to wait for.
    let copied: Vec<&str> = names.iter().copied().filter(|name| *name != "pclose").collect();
    for (way, transport, names) in [
        ("warm", "ring", &names),
        ("warm", "socket", &names),
        ("cold", "ring", &copied),
        ("cold", "socket", &copied),
        ("vfork", "ring", &few),
    ] {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Welcome);
        let mut command = daemon.command(&program);
        command.env("CAWL_TRANSPORT", transport);
        let traced = sizes(command, way, Some(&bare), names);
        for session in daemon.finish() {
            assert_eq!(
                (session.dropped, session.nameless),
                (0, 0),
                "{way}, {transport}: {}",
                session.program
            );
        }
        assert_eq!(traced.len(), names.len());
        for (name, size) in traced {
            let more = size.saturating_sub(native[&name]);
            most = most.max((more, format!("{name}, {way}, by {transport}")));
            // A call that takes little by itself is content with a stack of 4 KiB, which is what it was
            // given.
            if more > MAX {
                wrong.push(format!("{name}, {way}, by {transport}: {} and {more} bytes", native[&name]));
            }
        }
    }
    println!("most: {} bytes more: {}", most.0, most.1);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The deepest way through the library from each function that others call: not what was met in a run, but
/// every path that there is. What the C library's functions take is not among it; the other test measures
/// that.
#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "reads x86-64 code")]
fn no_path_through_the_library_is_deeper_than_one_kibibyte() {
    let library = Library::read(&cawl_kit::library());
    let mut ways: Vec<(u64, String)> = Vec::new();
    for name in library.exported().chain(CALLED_BACK.iter().copied()) {
        let found = library.named(name);
        assert!(!found.is_empty(), "{name} is not in the library");
        ways.extend(found.into_iter().map(|function| library.deepest(function)));
    }
    ways.sort();
    let (most, way) = ways.last().expect("a hook");
    println!("deepest: {most} bytes: {way}");
    let wrong: Vec<_> = ways.iter().filter(|(depth, _)| *depth > MAX).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The handler of a crash may do what it does without the tracer, and what it starts is traced.
#[test]
fn a_crash_reporter_on_its_own_stack_is_followed() {
    let sessions = compare(&app("altstack"), &["crash"], |_| {});
    assert_eq!(sessions.len(), 1 + 1 + 4, "the program, its copy, and what they started: {sessions:#?}");
    let written: Vec<_> = sessions.iter().flat_map(|session| session.about("/report")).collect();
    assert_eq!(written.iter().filter(|event| event.op == Op::Write).count(), 4);
}

#[test]
fn an_environment_of_any_length_is_completed() {
    let sessions = compare(&app("altstack"), &["long"], |_| {});
    assert_eq!(sessions.len(), 2);
    assert_complete(&sessions);
}

/// A vfork child that becomes another program never gives back what it took of its parent's memory.
#[test]
fn what_vfork_children_leave_does_not_pile_up() {
    let sessions = compare(&app("altstack"), &["many"], |_| {});
    assert_eq!(sessions.len(), 1 + 300);
    assert_complete(&sessions);
}
