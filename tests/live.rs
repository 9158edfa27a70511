//! `cawld` while it runs: the documented questions, the service manager, limits that change, a full disk.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use cawl_core::Bytes;
use cawl_host::limits::LoweredLimits;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use serde_json::Value;

use cawl_kit::{Daemon, Dir, LIMIT, MuteServer, Report, Running, SmallDisk, built, find, skipped};

/// Every example of docs/reference/PROTOCOL.md, asked of a real daemon.
#[test]
fn the_documented_questions_are_answered_as_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/PROTOCOL.md");
    let page = fs::read_to_string(page).expect("it is there");
    let mut lines = page.lines();
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let mut asked = 0;
    while let Some(question) = lines.find_map(|line| line.strip_prefix("> ")) {
        let keys = lines.next().and_then(|line| line.strip_prefix("< ")).expect("keys follow");
        let answer = ask(&dir, question);
        let there: BTreeSet<&str> =
            answer.as_object().expect("an object").keys().map(String::as_str).collect();
        let promised: BTreeSet<&str> = keys.split(' ').collect();
        assert!(promised.is_subset(&there), "{question}: {promised:?} of {there:?}");
        // Whole answers have no undocumented field.
        if !question.contains("\"model\"") {
            assert_eq!(promised, there, "{question}");
        }
        asked += 1;
    }
    assert!(asked >= 12, "{asked}");
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn books_and_past_agree_with_what_was_written() {
    let dir = Dir::new();
    let program = dir.app("paced_writer");
    let daemon = Daemon::start(&dir, &[]);
    let mut command = dir.cawl(&["run", "--report"]);
    command.arg(dir.path().join("r.json")).arg("--socket").arg(dir.socket()).arg("--");
    command.arg(program).args(["file", "2000", "4096"]);
    let mut running = Running::start(command);
    running.stdout_until("half ");
    running.say("\n");
    running.finish().success();
    let written = 2 * 2000 * 4096;
    let status = daemon.status_when(|status| status["bytes"] == written && status["clients"] == 0);
    assert!(status["calls"].as_u64() >= Some(4000), "{status:#}");
    assert!(status["cost"]["observed_s"].as_f64() > Some(0.0), "{status:#}");
    let ask = |question: &str| ask(&dir, question);
    let files = ask("{\"request\":\"files\",\"sort\":\"bytes\",\"limit\":1}");
    assert_eq!(files["files"][0]["bytes"], written, "{files:#}");
    assert!(files["files"][0]["path"].as_str().is_some_and(|path| path.ends_with("work/file")), "{files:#}");
    let devices = ask("{\"request\":\"devices\"}");
    assert_eq!(devices["devices"][0]["bytes"], written, "{devices:#}");
    // A second enters the history after its end.
    daemon.status_when(|_| {
        let past = ask("{\"request\":\"history\"}");
        let points = past["points"].as_array().expect("points");
        points.iter().map(|point| point["bytes"].as_u64().unwrap_or(0)).sum::<u64>() == written
    });
    daemon.end(Signal::SIGTERM).success();
}

/// Of one program that waits for more to write, the rows have the causes that the status has.
#[test]
fn rows_have_the_causes_of_the_status() {
    for (place, is_file) in [("of=file", true), ("of=/dev/null", false)] {
        let dir = Dir::new();
        let daemon = Daemon::start(&dir, &[]);
        let mut command = dir.cawl(&["run", "--report"]);
        command.arg(dir.path().join("r.json")).arg("--socket").arg(dir.socket()).arg("--");
        command.args(["dd", "bs=4096", place]).args(is_file.then_some("oflag=dsync"));
        let mut running = Running::start(command);
        let block = "x".repeat(4096);
        (0..64).for_each(|_| running.say(&block));
        let wrote = 64 * block.len();
        let mut status = daemon.status_when(|status| {
            let program = &ask(&dir, "{\"request\":\"processes\"}")["processes"][0];
            let is_whole = program["bytes"] == wrote && (!is_file || status["bytes"] == wrote);
            is_whole && program["causes_s"] == status["causes_s"]
        });
        let (causes, files) =
            (status["causes_s"].take(), ask(&dir, "{\"request\":\"files\"}")["files"].take());
        let seconds = |causes: &Value| causes.as_object().expect("seconds by cause").clone();
        let names: Vec<String> = seconds(&causes).keys().cloned().collect();
        if is_file {
            assert_eq!((&files[0]["causes_s"], files.as_array().map(Vec::len)), (&causes, Some(1)));
            assert!(names.iter().any(|name| name == "transfer" || name == "device flush"), "{names:?}");
            let sum: f64 = seconds(&causes).values().filter_map(Value::as_f64).sum();
            let observed = files[0]["observed_s"].as_f64().expect("seconds");
            assert!((sum - observed).abs() < 1e-6, "{sum} s of {observed} s");
        } else {
            assert_eq!((names, &files), (vec!["discard".to_owned()], &Value::Array(Vec::new())));
        }
        running.finish().success();
        daemon.end(Signal::SIGTERM).success();
    }
}

/// A program that stores through a mapping and makes no call.
#[test]
fn stores_to_a_mapping_show_while_they_go_on() {
    let dir = Dir::new();
    let release = nix::sys::utsname::uname().expect("a kernel").release().to_string_lossy().into_owned();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.parse().ok()).take(2).collect();
    if version < vec![6, 5] {
        return skipped("this kernel has no cachestat");
    }
    let program = dir.app("mapped");
    let daemon = Daemon::start(&dir, &[]);
    let mut command = dir.cawl(&["run", "--report"]);
    command.arg(dir.path().join("r.json")).arg("--socket").arg(dir.socket()).arg("--").arg(program);
    let mut running = Running::start(command);
    let file = || {
        let files = ask(&dir, "{\"request\":\"files\",\"sort\":\"bytes\",\"limit\":10}");
        let rows = files["files"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["path"].as_str().is_some_and(|path| path.ends_with("work/mapped")))
    };
    // Another program's sync between a store and the next sample hides the store; a later one shows.
    let mut stores = 0;
    let start = Instant::now();
    for _ in 0..3 {
        let before = file().map_or(0, |row| row["bytes"].as_u64().expect("a count"));
        let mut next = Instant::now();
        while file().is_none_or(|row| row["bytes"].as_u64() <= Some(before)) {
            assert!(start.elapsed() < LIMIT, "{stores} stores and {before} bytes: {:#}", daemon.status());
            if Instant::now() >= next {
                running.say(".");
                running.stdout_until("stored\n");
                stores += 1;
                // Out of step with the samples, one a second.
                next += Duration::from_millis(1300);
            }
            sleep(Duration::from_millis(20));
        }
        let row = file().expect("a row");
        assert_eq!(row["bytes"], row["estimated_bytes"], "{row:#}");
    }
    running.finish().success();
    daemon.status_when(|status| status["clients"] == 0);
    // The tracer's count at the end includes only bytes not counted before.
    let bytes = file().expect("a row")["bytes"].as_u64().expect("a count");
    assert!(bytes <= stores << 20, "{bytes} bytes in {stores} MiB");
    daemon.end(Signal::SIGTERM).success();
}

/// The daemon samples a mapping of a file on a server that does not answer.
#[test]
fn a_file_that_cannot_be_opened_holds_up_nobody() {
    let dir = Dir::new();
    let Some(server) = MuteServer::mount(&dir.path().join("mute")) else { return };
    let (program, writer) = (dir.app("mapped"), dir.app("paced_writer"));
    let daemon = Daemon::start(&dir, &[]);
    let start = |report: &str, program: &[&str], folder: &Path| {
        let mut command = dir.cawl(&["run", "--report"]);
        command.arg(dir.path().join(report)).arg("--socket").arg(dir.socket()).arg("--").args(program);
        Running::start({
            command.current_dir(folder);
            command
        })
    };
    let program = program.to_str().expect("a readable path");
    let mut mapping = start("mapping.json", &[program], server.path());
    mapping.say(".");
    mapping.stdout_until("stored\n");
    // The daemon samples: from now on every open there blocks.
    server.until_it_hangs();
    // Another program's calls, and the end of its run.
    let writer = writer.to_str().expect("a readable path");
    let mut writing = start("writing.json", &[writer, "file", "10000", "100"], &dir.work());
    writing.stdout_until("half ");
    writing.say("\n");
    let report = Report::read(&dir.path().join("writing.json"), &writing.finish().success());
    assert_eq!((report.calls_of("write"), report.bytes()), (20_000, 2_000_000));
    report.all_seen();
    // And those of the program itself. Its stores may have been written back by now.
    mapping.say(".");
    mapping.stdout_until("stored\nstored\n");
    let report = Report::read(&dir.path().join("mapping.json"), &mapping.finish().success());
    assert_eq!(report.sessions()[0]["ended"], "exit", "{:#}", report.0);
    assert!(report.file_bytes("mapped") <= 2 << 20, "{:#}", report.0);
    report.all_seen();
    daemon.status_when(|status| status["clients"] == 0);
    // The server answers only now: a thread that waits for it cannot end before.
    assert!(server.hangs());
    server.answer();
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn the_service_manager_is_told() {
    let dir = Dir::new();
    let manager = UnixDatagram::bind(dir.path().join("notify")).expect("a new socket");
    manager.set_read_timeout(Some(Duration::from_secs(300))).expect("a time");
    let told = |wanted: &str| loop {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap_or_else(|error| panic!("never told {wanted}: {error}"));
        let text = String::from_utf8_lossy(&bytes[..length]);
        if text.lines().any(|line| line == wanted) {
            return;
        }
    };
    let mut command = dir.command(built("cawld"));
    command.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "100000");
    command.args(["--log-format", "json"]);
    let mut running = Running::start(command);
    told("READY=1");
    told("WATCHDOG=1");
    told("WATCHDOG=1");
    running.signal(Signal::SIGHUP);
    told("RELOADING=1");
    told("READY=1");
    let said = running.stderr_until("read again");
    running.signal(Signal::SIGTERM);
    told("STOPPING=1");
    running.finish().success();
    for line in said.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(object["message"].is_string() && object["level"].is_string(), "{line}");
    }
}

#[test]
fn a_socket_that_was_passed_is_used_and_left() {
    let Some(activate) = find("systemd-socket-activate") else { return };
    let dir = Dir::new();
    let mut command = dir.command(activate);
    command.arg("-l").arg(dir.socket()).arg(built("cawld"));
    let mut running = Running::start(command);
    running.stderr_until("Listening on");
    let mut socket = UnixStream::connect(dir.socket()).expect("it listens");
    writeln!(socket, "{{\"request\":\"devices\"}}").expect("it reads");
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).expect("it answers");
    assert!(answer.starts_with("{\"schema\":1"), "{answer}");
    running.signal(Signal::SIGTERM);
    running.finish().success().says("listening at the socket that was passed");
    assert!(dir.socket().exists(), "it is not ours to remove");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Some(analyze) = find("systemd-analyze") else { return };
    let dir = Dir::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd");
    for name in ["cawld.service", "cawld.socket"] {
        let text = fs::read_to_string(units.join(name)).expect("it is there");
        let here = built("cawld");
        let text = text.replace("/usr/bin/cawld", here.to_str().expect("a readable path"));
        fs::write(dir.path().join(name), text).expect("a new file");
    }
    let mut command = dir.command(analyze);
    command
        .args(["verify", "--man=no"])
        .args(["cawld.service", "cawld.socket"].map(|name| dir.path().join(name)));
    let said = Running::start(command).finish();
    // It also reports other units of this machine.
    let ours = said.stderr.lines().filter(|line| line.contains("cawld"));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&str>::new());
}

/// The restrictions of ProtectKernelTunables= and ProtectSystem=strict.
#[test]
fn what_a_confined_daemon_may_not_do_is_told() {
    const TRACING: &str = "/sys/kernel/tracing";
    let Some(unshare) = find("unshare") else { return };
    if !geteuid().is_root() || !Path::new(TRACING).is_dir() {
        return skipped("only root can take tracefs away, where there is one");
    }
    let dir = Dir::new();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).expect("a new folder");
    let script = format!(
        "mount -t tmpfs none {TRACING} && mkdir {TRACING}/instances && mount -o remount,ro {TRACING} &&
         mount -t tmpfs -o ro none {} && exec {} --socket {}",
        locked.display(),
        built("cawld").display(),
        dir.socket().display()
    );
    let mut command = dir.command(unshare);
    command.args(["--mount", "sh", "-c", &script]);
    let mut daemon = Running::start(command);
    daemon.stderr_until("listening at");
    let why = "/sys/kernel/tracing is read-only for cawld (ProtectKernelTunables=)";
    let mut sampler = Value::Null;
    while sampler["sources"].as_array().is_none_or(Vec::is_empty) {
        sampler = ask(&dir, "{\"request\":\"status\"}")["sampler"].take();
    }
    assert_eq!((&sampler["pauses_missing"], &sampler["paused_s"]), (&why.into(), &Value::Null));
    let text = Running::start(dir.cawl(&["status"])).finish().success().stdout;
    assert!(text.contains("not traced") && text.contains(why), "{text}");
    let mut command = dir.cawl(&["run", "--socket"]);
    command.arg(dir.socket()).arg("--trace").arg(locked.join("x")).args(["--", "true"]);
    let refused = Running::start(command).finish().code(1);
    for words in ["cannot write the trace", "ReadWritePaths=", "/var/lib/cawl", "without --socket"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:#?}");
    }
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
}

#[test]
fn limits_that_change_are_followed() {
    if !geteuid().is_root() {
        return skipped("changing the dirty limits needs root");
    }
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let before = daemon.status();
    let of = |status: &Value, field: &str| status[field].as_u64().expect("a number");
    let (background, hard) = (of(&before, "background_bytes"), of(&before, "hard_bytes"));
    // By a small step, since other programs share this machine.
    let less = |limit: u64| Bytes((limit - limit / 16) & !0xfff);
    let lowered = match LoweredLimits::lower(less(background), less(hard), || true) {
        Ok(lowered) => lowered,
        Err(error) => return skipped(&format!("the dirty limits cannot be changed here: {error:#}")),
    };
    daemon.status_when(|status| {
        (of(status, "background_bytes"), of(status, "hard_bytes")) == (less(background).0, less(hard).0)
            && of(status, "freerun_bytes") == (less(background).0 + less(hard).0) / 2
    });
    drop(lowered);
    daemon.status_when(|status| of(status, "hard_bytes") > less(hard).0);
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn a_full_disk_ends_the_trace_and_nothing_else() {
    let dir = Dir::new();
    let Some(small) = SmallDisk::new(&dir) else { return };
    let program = dir.app("paced_writer");
    let trace = small.join("all.trace");
    let mut daemon = small.start(&format!("exec {} --trace {}", built("cawld").display(), trace.display()));
    daemon.stderr_until("listening at");
    let mut command = dir.cawl(&["run", "--report"]);
    command.arg(dir.path().join("r.json")).arg("--socket").arg(dir.socket()).arg("--");
    command.arg(program).args(["file", "50000", "100"]);
    let mut running = Running::start(command);
    running.stdout_until("half ");
    running.say("\n");
    let finished = running.finish().success();
    let report = Report::read(&dir.path().join("r.json"), &finished);
    assert_eq!((report.calls_of("write"), &report["drops"]), (100_000, &0.into()));
    let answer = ask(&dir, "{\"request\":\"status\"}");
    assert_eq!((&answer["schema"], &answer["drops"]), (&1.into(), &0.into()));
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success().says("ends early");
}

/// Asks a question over the socket.
fn ask(dir: &Dir, question: &str) -> Value {
    let mut socket = UnixStream::connect(dir.socket()).expect("the daemon listens");
    writeln!(socket, "{question}").expect("it reads");
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).expect("it answers");
    serde_json::from_str(&answer).expect("JSON")
}
