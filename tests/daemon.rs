//! `cawld` as a server: many programs at once, questions about the present state, and an orderly end.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::{Uid, geteuid};

use cawl_kit::{Daemon, Dir, Report, Running, built, size, skipped};

/// `cawl-cli run --socket`, with a report of its own.
fn start(dir: &Dir, report: &Path, program: &[&str]) -> Running {
    let mut command = dir.cawl(&["run", "--report"]);
    command.arg(report).arg("--socket").arg(dir.socket()).arg("--").args(program);
    Running::start(command)
}

#[test]
fn wrong_usage_of_a_daemon_has_its_own_code() {
    let dir = Dir::new();
    for (options, code, says) in [
        (&["--model", "bogus"][..], 2, "there is no model `bogus`; the models are kernel"),
        (&["--model", "kernel,kernel"], 2, "named twice"),
        (&["--mode", "bogus"], 2, "there is no mode"),
        (&["--mode", "bogus:lockstep"], 2, "there is no model `bogus`"),
        (
            &["--trace-on", "unexpected > 50ms", "--trace-dir", "/proc/x"],
            1,
            "/proc/x cannot be used; name another",
        ),
    ] {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.arg("--socket").arg(dir.socket()).args(options);
        Running::start(command).finish().code(code).says(says);
        assert!(!dir.socket().exists(), "{options:?}");
    }
}

/// As one whose trace cannot be written.
#[test]
fn a_daemon_that_fails_to_start_leaves_no_socket() {
    let dir = Dir::new();
    let notes = dir.work().join("notes.txt");
    fs::write(&notes, "dear diary").expect("a file");
    for trace in ["/nowhere/trace", notes.to_str().expect("UTF-8")] {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.arg("--socket").arg(dir.socket()).args(["--trace", trace]);
        Running::start(command).finish().code(1).says(trace);
        assert!(!dir.socket().exists(), "{trace}");
    }
    assert_eq!(fs::read(&notes).expect("it is there"), b"dear diary");
}

#[test]
fn many_programs_at_once_are_kept_apart() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let program = program.to_str().expect("a readable path");
    let trace = dir.path().join("all.trace");
    let daemon = Daemon::start(&dir, &["--trace", trace.to_str().expect("a readable path")]);
    let name = |n: usize, ending: &str| -> PathBuf { dir.path().join(format!("{n}.{ending}")) };
    let mut running: Vec<(usize, Running)> = (1..=6)
        .map(|n| {
            (n, start(&dir, &name(n, "json"), &[program, &format!("file{n}"), &(n * 500).to_string(), "10"]))
        })
        .collect();
    for (_, program) in &mut running {
        program.stdout_until("half ");
    }
    // They all wait in the middle; their first halves arrive when they write the second.
    let status = daemon.status_when(|status| status["clients"] == 6);
    assert_eq!(status["processes"].as_array().map(Vec::len), Some(6), "{status:#}");
    for (_, program) in &mut running {
        program.say("\n");
    }
    for (n, program) in running {
        let finished = program.finish();
        let report = Report::read(&name(n, "json"), &finished);
        finished.success();
        report.all_seen();
        assert_eq!(report.calls_of("write"), 2 * n as u64 * 500);
        assert_eq!(report.bytes(), size(&dir, &format!("file{n}")));
        assert_eq!(report["outcome"]["code"], 0);
    }
    daemon.end(Signal::SIGTERM).success();

    // The daemon's own trace has them all.
    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(&trace);
    let all = Report::parse(&Running::start(replay).finish().success().stdout);
    all.all_seen();
    assert_eq!(all.calls_of("write"), 2 * 500 * (1 + 2 + 3 + 4 + 5 + 6));
}

#[test]
fn status_tells_how_things_stand() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let daemon = Daemon::start(&dir, &[]);
    let idle = daemon.status();
    assert_eq!((&idle["schema"], &idle["clients"], &idle["drops"]), (&1.into(), &0.into(), &0.into()));
    // The answering model follows the kernel's counters, which include other programs of this machine.
    assert_eq!(idle["mode"], "assimilated");
    for field in ["modelled_dirty_bytes", "sampled_dirty_bytes", "background_bytes", "hard_bytes"] {
        assert!(idle[field].is_u64(), "{field}: {idle:#}");
    }
    assert!(idle["background_bytes"].as_u64() < idle["hard_bytes"].as_u64(), "{idle:#}");
    for field in ["writeback_rate", "throttled_rate", "uptime_s", "model", "profile", "processes", "devices"]
    {
        assert!(idle.get(field).is_some(), "{field}: {idle:#}");
    }

    // A batch of at most 340 events may still be on its way.
    let program = program.to_str().expect("a readable path");
    let mut running = start(&dir, &dir.path().join("r.json"), &[program, "file", "4000", "4096"]);
    running.stdout_until("half ");
    let heard = (4000 - 340) * 4096;
    let busy = daemon.status_when(|status| {
        status["processes"][0]["bytes"].as_u64() >= Some(heard) && !status["devices"][0].is_null()
    });
    assert_eq!(busy["clients"], 1);
    let process = &busy["processes"][0];
    assert!(process["program"].as_str().is_some_and(|name| name.ends_with("paced_writer")), "{busy:#}");
    assert!(process["calls"].as_u64() >= Some(heard / 4096) && process["pid"].is_u64(), "{busy:#}");
    let device = &busy["devices"][0];
    assert!(
        device["bytes"].is_u64() && device["device"].as_str().is_some_and(|d| d.contains(':')),
        "{busy:#}"
    );
    let text = Running::start(dir.cawl(&["status"])).finish().success();
    assert!(
        text.stdout.contains("programs    1 connected") && text.stdout.contains("paced_writer"),
        "{}",
        text.stdout
    );

    running.say("\n");
    running.finish().success();
    daemon.status_when(|status| status["clients"] == 0 && status["processes"] == serde_json::json!([]));
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn sigterm_takes_what_has_arrived_and_closes_the_trace() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let trace = dir.path().join("all.trace");
    let daemon = Daemon::start(&dir, &["--trace", trace.to_str().expect("a readable path")]);
    let program = program.to_str().expect("a readable path");
    let mut running = start(&dir, &dir.path().join("r.json"), &[program, "file", "3400", "10"]);
    running.stdout_until("half ");
    daemon.end(Signal::SIGTERM).success();
    assert!(!dir.socket().exists(), "the socket was left behind");

    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(&trace);
    let report = Report::parse(&Running::start(replay).finish().success().stdout);
    assert_eq!(report["notes"], serde_json::json!([]), "the trace was not closed");
    assert_eq!(report.sessions()[0]["ended"], "running");
    assert!(report.calls_of("write") >= 3400 - 340, "{}", report.calls_of("write"));

    running.say("\n");
    running.finish().success();
    assert_eq!(size(&dir, "file"), 2 * 3400 * 10);
}

#[test]
fn a_run_whose_cawl_cli_was_killed_is_ended_when_its_program_is() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let daemon = Daemon::start(&dir, &[]);
    let mut command = dir.cawl(&["run", "--trace"]);
    command
        .arg(dir.trace())
        .arg("--socket")
        .arg(dir.socket())
        .arg("--")
        .arg(program)
        .args(["file", "100", "10"]);
    let mut running = Running::start(command);
    running.stdout_until("half ");
    running.signal(Signal::SIGKILL);
    running.say("\n");
    running.finish();
    let replayed = || {
        let mut replay = dir.cawl(&["replay", "--json"]);
        replay.arg(dir.trace());
        // With 1 as long as the trace is not closed.
        Report::parse(&Running::start(replay).finish().stdout)
    };
    let whole = |notes: String| notes.contains("cawl-cli was killed") && !notes.contains("the trace");
    daemon.status_when(|_| whole(replayed()["notes"].to_string()));
    assert_eq!(replayed().calls_of("write"), 200);
    daemon.end(Signal::SIGTERM).success().says("given up");
}

#[test]
fn the_socket_is_private() {
    let dir = Dir::new();
    let mut command = dir.command(built("cawld"));
    command.env("CAWLD_LOG", "info");
    let mut running = Running::start(command);
    let line = running.stderr_until("listening at");
    assert!(line.ends_with(&dir.socket().display().to_string()), "{line}");
    let meta = fs::metadata(dir.socket()).expect("there is a socket");
    assert!(meta.file_type().is_socket());
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    running.signal(Signal::SIGINT);
    running.finish().success();
}

#[test]
fn a_runtime_folder_open_to_others_is_not_used() {
    let dir = Dir::new();
    let open = dir.path().join("run");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let finished = Running::start(dir.cawl(&["status"])).finish();
    // A daemon may listen at the place used instead.
    assert!(!finished.stderr.contains(&open.display().to_string()), "{finished:#?}");
}

#[test]
fn a_second_daemon_is_refused() {
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let mut second = dir.command(built("cawld"));
    second.arg("--socket").arg(dir.socket());
    Running::start(second).finish().code(1).says("a daemon is already listening at");
    assert_eq!(daemon.status()["clients"], 0, "the first one is unharmed");
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn a_stale_socket_is_replaced_but_no_other_file() {
    let dir = Dir::new();
    Daemon::start(&dir, &[]).end(Signal::SIGKILL);
    let daemon = Daemon::start(&dir, &[]);
    assert_eq!(daemon.status()["schema"], 1);
    daemon.end(Signal::SIGTERM).success();

    fs::write(dir.socket(), "precious").expect("a new file");
    let mut command = dir.command(built("cawld"));
    command.arg("--socket").arg(dir.socket());
    Running::start(command).finish().code(1).says("is not a socket");
    assert_eq!(fs::read_to_string(dir.socket()).expect("it is there"), "precious");
}

#[test]
fn another_user_is_refused() {
    if geteuid() != Uid::from_raw(0) {
        return skipped("only root can be another user");
    }
    if cawl_kit::find("setpriv").is_none() {
        return;
    }
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    // Permissions of socket and folder would suffice; here the credentials alone must.
    for (path, mode) in [(dir.path(), 0o755), (&dir.path().join("run"), 0o755), (&dir.socket(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let cawl = dir.path().join("cawl-cli");
    fs::copy(built("cawl-cli"), &cawl).expect("a copy that anyone may run");
    let mut command = dir.command("setpriv");
    command.current_dir("/").args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&cawl).args(["status", "--socket"]).arg(dir.socket());
    Running::start(command).finish().code(1).says("another user");
    assert_eq!(daemon.status()["schema"], 1, "its own user is still answered");
    daemon.end(Signal::SIGTERM).success().says("refused a connection from another user");
}

/// Folders open to everyone, so that only the daemon's own checks keep other users out.
#[test]
fn another_user_can_neither_read_what_was_written_nor_stop_the_daemon() {
    if !geteuid().is_root() {
        return skipped("only root can be another user");
    }
    let Some(setpriv) = cawl_kit::find("setpriv") else { return };
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let (trace, run_trace) = (dir.path().join("all.trace"), dir.path().join("run.trace"));
    let daemon = Daemon::start(&dir, &["--trace", trace.to_str().expect("a readable path")]);
    let mut command = dir.cawl(&["run", "--trace"]);
    command.arg(&run_trace).arg("--socket").arg(dir.socket()).arg("--").arg(program);
    command.args(["file", "4000", "10"]);
    let mut running = Running::start(command);
    running.stdout_until("half ");
    daemon.status_when(|status| status["calls"].as_u64() > Some(0));
    for folder in [dir.path().to_owned(), dir.path().join("run")] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let pid = daemon.pid();
    // The memory of the program's ring, as the daemon has it open.
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("its own user may look");
    let ring = open.map(|entry| entry.expect("an entry").path());
    let ring =
        ring.filter(|path| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:")));
    let ring = ring.last().expect("a ring");
    let does = |user: &[&str], words: &[&str]| {
        let mut command = dir.command(&setpriv);
        command.current_dir("/").args(user).args(words);
        Running::start(command).finish()
    };
    let read = |path: &Path| ["head".into(), "-c1".into(), path.display().to_string()];
    let pid = pid.to_string();
    let deeds = [read(&trace), read(&run_trace), read(&ring), ["kill".into(), "-0".into(), pid.clone()]];
    let ourselves: [&str; 0] = [];
    let another = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    for deed in &deeds {
        let words: Vec<&str> = deed.iter().map(String::as_str).collect();
        does(&ourselves, &words).success();
        let refused = does(&another, &words);
        let why = refused.stderr.to_lowercase();
        assert!(why.contains("permission denied") || why.contains("not permitted"), "{refused:#?}");
        assert!(refused.stdout.is_empty() && !refused.status.success(), "{refused:#?}");
    }
    let stopped = does(&another, &["kill", "-TERM", &pid]);
    assert!(stopped.stderr.contains("not permitted"), "{stopped:#?}");
    // Nor does its socket accept them, whose folder is now open.
    let cawl = dir.path().join("cawl-cli");
    fs::copy(built("cawl-cli"), &cawl).expect("a copy that anyone may run");
    let (cawl, socket) = (cawl.display().to_string(), dir.socket().display().to_string());
    does(&ourselves, &[&cawl, "status", "--socket", &socket]).success();
    let refused = does(&another, &[&cawl, "status", "--socket", &socket]).code(1).says("ermission denied");
    let advice = refused.says("may not be opened").stderr.contains("start one");
    assert!(!advice, "another daemon would not help");
    assert_eq!(daemon.status()["clients"], 1, "it goes on as before");
    running.say("\n");
    running.finish().success();
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn what_is_not_the_protocol_ends_one_connection_only() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let pieces: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\n\r\n", b"{\"request\":\"no-such\"}\n", b"{", &[0; 4096], b""];
    for piece in pieces {
        let mut stream = UnixStream::connect(dir.socket()).expect("the daemon listens");
        // The daemon may have closed the connection.
        drop(stream.write_all(piece));
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
        assert_eq!(daemon.status()["clients"], 0);
    }
    let (report, program) = (dir.path().join("r.json"), ["sh", "-c", "echo data > file"]);
    let finished = start(&dir, &report, &program).finish().success();
    Report::read(&report, &finished).all_seen();
    daemon.end(Signal::SIGTERM).success();
}
