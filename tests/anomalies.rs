//! `cawld --trace-on`: traces of the calls around anomalies only.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use cawl_kit::{Daemon, Dir, Report, Running, SmallDisk, eventually};

/// Every call that has a cost is an anomaly.
const ALL: &str = "observed > 0ns or observed <= 0ns";

fn excerpts(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().map(|file| file.expect("a file").path()).collect();
    files.sort();
    files
}

fn replay(dir: &Dir, trace: &Path) -> Report {
    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(trace);
    // With 1 where the daemon was killed or writes yet.
    Report::parse(&Running::start(replay).finish().stdout)
}

/// A program that writes a first half of so many calls, and waits.
fn writes(dir: &Dir, calls: u32) -> Running {
    let mut program = dir.cawl(&["run", "--report", "r.json", "--socket"]);
    program.arg(dir.socket()).arg("--").arg(dir.app("paced_writer"));
    program.args(["file", &calls.to_string(), "4096"]);
    let mut program = Running::start(program);
    program.stdout_until("half ");
    program
}

#[test]
fn the_calls_around_an_anomaly_are_kept_also_when_the_daemon_is_killed() {
    let dir = Dir::new();
    let folder = dir.path().join("kept");
    let folder_text = folder.to_str().expect("a readable path");
    let daemon = Daemon::start(&dir, &["--trace-on", ALL, "--keep", "1h", "--trace-dir", folder_text]);
    assert_eq!(daemon.status()["excerpts"]["anomalies"], 0);
    let mut program = writes(&dir, 500);
    let status = daemon.status_when(|status| status["excerpts"]["anomalies"].as_u64() >= Some(500));
    assert_eq!(status["excerpts"]["missing"], 0, "{status:#}");
    // What was handed over is on the disk soon.
    eventually("the calls are in the excerpt", || {
        excerpts(&folder).first().is_some_and(|file| replay(&dir, file).calls_of("write") >= 500)
    });
    daemon.end(Signal::SIGKILL);
    let files = excerpts(&folder);
    assert_eq!(files.len(), 1);
    let report = replay(&dir, &files[0]);
    assert!(report.file_bytes("file") >= 500 * 4096);
    let program_name = report.sessions()[0]["program"].as_str().expect("a name");
    assert!(program_name.ends_with("paced_writer"));
    let notes = report["notes"].to_string();
    assert!(notes.contains("before an anomaly") && notes.contains("was not closed"), "{notes}");
    program.say("\n");
    program.finish().success();
}

/// A folder on a full disk: programs and daemon go on, and what is missing is counted.
#[test]
fn a_full_disk_is_told() {
    let dir = Dir::new();
    let Some(disk) = SmallDisk::new(&dir) else { return };
    let folder = disk.join("kept");
    let cawld = cawl_kit::built("cawld");
    let command = format!(
        "exec {} --socket {} --trace-on '{ALL}' --keep 100ms --trace-dir {}",
        cawld.display(),
        dir.socket().display(),
        folder.display()
    );
    let mut daemon = disk.start(&command);
    daemon.stderr_until("listening");
    let mut program = writes(&dir, 20_000);
    let status = || {
        let mut status = dir.cawl(&["status", "--json", "--socket"]);
        status.arg(dir.socket());
        Report::parse(&Running::start(status).finish().success().stdout)
    };
    daemon.stderr_until("cannot be kept");
    eventually("calls are missing", || status()["excerpts"]["missing"].as_u64() > Some(0));
    program.say("\n");
    program.finish().success();
    daemon.signal(Signal::SIGTERM);
    daemon.finish().success();
}

#[test]
fn a_wrong_condition_is_pointed_at() {
    let dir = Dir::new();
    for (condition, told) in [
        ("unexpected > 50", "  unexpected > 50\n               ^"),
        ("slow > 5ms", "there is no time `slow`"),
        ("unexpected > -5ms", "remove the `-`\n  unexpected > -5ms\n               ^"),
    ] {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.args(["--trace-on", condition]);
        let finished = Running::start(command).finish().code(2);
        assert!(finished.stderr.contains(told), "{}", finished.stderr);
    }
    for (options, told) in [
        (&["--keep", "5s"][..], "--trace-on"),
        (&["--trace-on", ALL, "--keep", "10"], "a time with its unit is expected: 200us, 7ms, 1.5s"),
        (&["--trace-on", ALL, "--keep", "0s"], "give a time between 100ms and 1h"),
    ] {
        let mut command = dir.command(cawl_kit::built("cawld"));
        command.args(options);
        Running::start(command).finish().code(2).says(told);
    }
}
