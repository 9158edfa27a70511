//! Programs that change their user, and other users: who is recorded, who is refused, and none is starved.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::{Gid, Uid, User, chown, geteuid};
use serde_json::Value;

use cawl_kit::{Daemon, Dir, Finished, Report, Running, built, find, size, skipped};

/// Users that no other test needs.
const FIRST: u32 = 65_534;
const SECOND: u32 = 1;

/// A folder open to every user, with one writable by the first in it; None, with a message, unless root.
fn open_dir() -> Option<Dir> {
    if !geteuid().is_root() {
        skipped("only root can become someone else");
        return None;
    }
    find("setpriv")?;
    let dir = Dir::new();
    for folder in [dir.path().to_owned(), dir.work(), dir.path().join("run")] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    fs::create_dir(dir.work().join("theirs")).expect("a new folder");
    chown(&dir.work().join("theirs"), Some(Uid::from_raw(FIRST)), Some(Gid::from_raw(FIRST)))
        .expect("root can");
    Some(dir)
}

/// The command prefix that runs a program as this user.
fn as_user(uid: u32) -> Vec<String> {
    ["setpriv", &format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups"]
        .map(str::to_owned)
        .to_vec()
}

/// No message of tracer or linker, and every byte seen.
fn is_clean(finished: &Finished, report: &Report) {
    assert!(!finished.stderr.contains("ld.so") && !finished.stderr.contains("cawl"), "{finished:#?}");
    report.all_seen();
}

#[test]
fn a_program_that_becomes_another_user_is_seen_to_its_end() {
    let Some(dir) = open_dir() else { return };
    let name =
        User::from_uid(Uid::from_raw(FIRST)).ok().flatten().map_or("nobody".to_owned(), |user| user.name);
    let script = "dd if=/dev/zero of=theirs/file bs=4k count=64 2>/dev/null; id -u";
    let becomes = dir.app("become").display().to_string();
    let sh = |words: &[&str]| {
        words.iter().chain(&["sh", "-c", script]).map(|w| (*w).to_owned()).collect::<Vec<_>>()
    };
    let uid = FIRST.to_string();
    for (need, program) in [
        ("su", ["su", &name, "-s", "/bin/sh", "-c", script].map(str::to_owned).to_vec()),
        ("runuser", sh(&["runuser", "-u", &name, "--"])),
        ("setpriv", [as_user(FIRST), sh(&[])].concat()),
        (
            "sh",
            [becomes.as_str(), uid.as_str(), "exec", "theirs/before", "/bin/sh", "-c", script]
                .map(str::to_owned)
                .to_vec(),
        ),
    ] {
        let Some(_) = find(need) else { continue };
        let (finished, report) = dir.run(&[], &program);
        is_clean(&finished, &report);
        let finished = finished.success();
        assert_eq!(finished.stdout, format!("{FIRST}\n"), "{need}");
        assert_eq!(report.file_bytes("file"), 64 * 4096, "{need}");
        let trouble = report["notes"].to_string();
        assert!(!trouble.contains("not traced"), "{need}: {trouble}");
    }
    for how in ["stay", "fork"] {
        let (finished, report) =
            dir.run(&[], &[&becomes, &uid, how, &format!("theirs/{how}")].map(ToString::to_string));
        assert_eq!(report.file_bytes(how), 65_536, "{how}");
        // The count of a process that may not read it itself and is reaped at once may be unknown.
        if report.sessions().iter().all(|session| !session["wchar_bytes"].is_null()) {
            is_clean(&finished.success(), &report);
        } else {
            assert!(
                report["coverage"].is_null() || report["coverage"] == 1.0,
                "{how}: {}",
                report["coverage"]
            );
        }
    }
}

#[test]
fn a_database_that_root_starts_as_its_user_is_seen() {
    let Some(dir) = open_dir() else { return };
    let Some(bin) = crate::programs::postgres() else { return skipped("postgresql is not installed") };
    let Ok(Some(user)) = User::from_name("postgres") else { return skipped("there is no user postgres") };
    chown(&dir.work(), Some(user.uid), Some(user.gid)).expect("root can");
    let script = format!(
        "cd {}; PATH={}:$PATH; D=$PWD/db
        initdb -D $D --no-locale -A trust > init.log 2>&1 && pg_ctl -D $D -w -l log -o \"-k $PWD -c listen_addresses=\" start > /dev/null &&
        pgbench -h $PWD -i -s 1 -q postgres > /dev/null 2>&1 && pgbench -h $PWD -n -c 2 -t 50 postgres > bench 2>&1
        echo bench $?; pg_ctl -D $D -w -m fast stop > /dev/null; echo stop $?",
        dir.work().display(),
        bin.display()
    );
    let (finished, report) = dir.run(&[], &["su", "postgres", "-s", "/bin/sh", "-c", &script]);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("bench 0\nstop 0\n", ""));
    assert!(report["coverage"].as_f64() >= Some(0.999), "coverage {}", report["coverage"]);
    assert!(report.bytes() > 10 << 20, "{} bytes", report.bytes());
    assert_eq!(report["drops"], 0);
}

/// The tracer, readable by all users.
fn tracer(dir: &Dir) -> PathBuf {
    let told = dir.cawl(&["run", "--report", "r.json", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    let path = PathBuf::from(Running::start(told).finish().success().stdout.trim());
    assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o555);
    path
}

/// A program as this user, recorded by the daemon without a run, or in the run of this number.
fn traced(dir: &Dir, uid: u32, run: Option<&str>, program: &[&str]) -> Command {
    let mut command = dir.command("setpriv");
    command.args(&as_user(uid)[1..]).arg("env");
    command.arg(format!("LD_PRELOAD={}", tracer(dir).display()));
    command.arg(format!("CAWL_SOCKET={}", dir.socket().display()));
    command.args(run.map(|run| format!("CAWL_RUN={run}"))).args(program);
    command
}

#[test]
fn another_user_is_recorded_by_the_number_of_a_run_and_may_not_ask() {
    let Some(dir) = open_dir() else { return };
    // So that the socket is open to all; the allowed user is another one.
    let daemon = Daemon::start(&dir, &["--allow-user", &SECOND.to_string()]);
    let write = ["dd", "if=/dev/zero", "of=theirs/file", "bs=4k", "count=16"];
    for guess in [None, Some("1"), Some("9223372036854775808"), Some("18446744073709551615"), Some("x")] {
        let finished = Running::start(traced(&dir, FIRST, guess, &write)).finish().success();
        assert!(!finished.stderr.contains("cawl"), "{finished:#?}");
        assert_eq!(size(&dir, "theirs/file"), 65_536);
    }
    let cawl = dir.path().join("cawl-cli");
    fs::copy(built("cawl-cli"), &cawl).expect("a copy that anyone may run");
    for question in [&["status"][..], &["status", "--files"], &["run"]] {
        let mut command = dir.command("setpriv");
        command.args(&as_user(FIRST)[1..]).arg(&cawl).args(question).arg("--socket").arg(dir.socket());
        command.env("XDG_CACHE_HOME", dir.work().join("theirs"));
        if question == ["run"] {
            command.args(["--", "true"]);
        }
        Running::start(command).finish().code(1).says("another user");
    }
    let status = daemon.status();
    assert_eq!((&status["calls"], &status["clients"]), (&0.into(), &0.into()), "{status:#}");

    let mut run = dir.cawl(&["run", "--report"]);
    run.arg(dir.path().join("report.json")).arg("--socket").arg(dir.socket()).arg("--");
    let finished = Running::start({
        run.args(as_user(FIRST)).args(write);
        run
    });
    let finished = finished.finish().success();
    let report = dir.report(&finished);
    report.all_seen();
    assert_eq!(report.file_bytes("file"), 65_536);
    let finished = daemon.end(Signal::SIGTERM).success().says("another user").says("--allow-user");
    assert_eq!(finished.stderr.matches("refused a program").count(), 1, "once for a user: {finished:#?}");
}

#[test]
fn one_user_s_flood_leaves_another_s_program_recorded() {
    let Some(dir) = open_dir() else { return };
    let (flood, writer) = (dir.app("flood"), dir.app("paced_writer"));
    let daemon = Daemon::start(&dir, &["--allow-user", &format!("{FIRST},{SECOND}")]);
    let (flood, socket) = (flood.display().to_string(), dir.socket().display().to_string());
    let mut floods: Vec<Running> = (0..2)
        .map(|n| {
            let file = format!("theirs/flood{n}");
            // The flood is to take the daemon's time; processor time is not under test.
            Running::start(traced(&dir, FIRST, None, &["nice", "-n", "19", &flood, &socket, "200", &file]))
        })
        .collect();
    floods.iter_mut().for_each(|flood| drop(flood.stdout_until("flooding")));
    fs::set_permissions(dir.work().join("theirs"), fs::Permissions::from_mode(0o777)).expect("root can");
    // Half of its bytes are sent before the question.
    let program = ["theirs/file", "4000", "10"];
    let writer = [&[writer.to_str().expect("a readable path")], &program[..]].concat();
    let mut writer = Running::start(traced(&dir, SECOND, None, &writer));
    writer.stdout_until("half ");
    let of_writer = |status: &Value| {
        let processes = status["processes"].as_array().cloned().unwrap_or_default();
        processes.into_iter().find(|process| process["pid"] == writer.pid().as_raw())
    };
    daemon.status_when(|status| {
        of_writer(status).is_some_and(|process| process["bytes"].as_u64() >= Some((4000 - 340) * 10))
    });
    writer.say("\n");
    writer.finish().success();
    for flood in floods {
        flood.signal_group(Signal::SIGKILL);
        flood.finish().signal(Signal::SIGKILL);
    }
    // The rest of the flood's rings is not waited for.
    daemon.end(Signal::SIGKILL).signal(Signal::SIGKILL);
}
