//! Programs under filters of system calls that end them for the tracer's calls, as sandboxes and service
//! managers install them (apps/confined.c has what programs do themselves).

use std::process::Command;

use cawl_kit::{Dir, Report, find, skipped, unchanged};

/// The report says of whom not all was seen, and why.
fn names(report: &Report, program: &str) {
    let notes = report["notes"].to_string();
    assert!(notes.contains(program) && notes.contains("seccomp"), "{notes}");
}

#[test]
fn bubblewrap_with_a_filter() {
    if find("bwrap").is_none() {
        return skipped("bwrap is not installed");
    }
    let dir = Dir::new();
    let app = dir.app("confined");
    let script = r#""$0" print filter > filter; exec 9< filter
        exec bwrap --dev-bind / / --seccomp 9 sh -c "echo one > a; cat a; cat a > b""#;
    let words = ["sh".as_ref(), "-ec".as_ref(), script.as_ref(), app.as_os_str()];
    let (finished, report) = unchanged(&dir, |_| {}, &[], &words, &[]);
    if finished.stderr.contains("Operation not permitted") {
        return skipped("bwrap may make no namespaces here");
    }
    assert_eq!(finished.success().stdout, "one\n");
    names(&report, "bwrap");
}

/// Without a filter the same launcher, which gives up new privileges, hands on a traced program.
#[test]
fn bubblewrap_without_a_filter() {
    if find("bwrap").is_none() {
        return skipped("bwrap is not installed");
    }
    let dir = Dir::new();
    let words = ["bwrap", "--dev-bind", "/", "/", "sh", "-c", "echo one > a; cat a > b"];
    let (finished, report) = unchanged(&dir, |_| {}, &[], &words, &[]);
    if finished.stderr.contains("Operation not permitted") {
        return skipped("bwrap may make no namespaces here");
    }
    finished.success();
    assert_eq!((report.file_bytes("a"), report.file_bytes("b")), (4, 4));
}

/// As systemd does for SystemCallFilter=: libseccomp, no new privileges, then exec.
#[test]
fn a_service_manager_by_libseccomp() {
    const PYTHON: &str = "/usr/bin/python3";
    if !Command::new(PYTHON).args(["-c", "import seccomp"]).output().is_ok_and(|out| out.status.success()) {
        return skipped("python3-seccomp is not installed");
    }
    let dir = Dir::new();
    let script = "
import os, seccomp
rules = seccomp.SyscallFilter(defaction=seccomp.ALLOW)
for name in ['name_to_handle_at', 'memfd_create', 'process_vm_readv', 'socket', 'connect', 'sendmsg', 'getsockopt',
             'mincore', 'fstatfs', 'getrusage', 'sigaltstack']:
    rules.add_rule(seccomp.KILL_PROCESS, name)
rules.load()
os.execvp('sh', ['sh', '-c', 'echo one > a; cat a; cp a b'])
";
    let (finished, report) = unchanged(&dir, |_| {}, &[], &[PYTHON, "-c", script], &[]);
    assert_eq!(finished.success().stdout, "one\n");
    names(&report, "python3");
}
