//! The profile keeps learned constants for the next run, under all conditions.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use cawl_core::{HostProfile, Origin};
use nix::sys::signal::Signal;

use cawl_kit::{Dir, Finished, Report, Running};

/// Enough calls to learn from.
const WRITES: [&str; 6] = ["dd", "if=/dev/zero", "of=file", "bs=16k", "count=4000", "conv=notrunc"];

fn folder(dir: &Dir) -> PathBuf {
    dir.path().join("home/.local/share/cawl/profiles")
}

/// The only profile.
fn profile(dir: &Dir) -> Option<(PathBuf, HostProfile)> {
    let files = fs::read_dir(folder(dir)).ok()?.map(|entry| entry.expect("a name").path());
    let mut profiles = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let path = profiles.next()?;
    assert_eq!(profiles.next(), None, "one device, one profile");
    let text = fs::read_to_string(&path).expect("readable");
    Some((path, HostProfile::from_toml(&text).expect("a profile")))
}

fn run(dir: &Dir, options: &[&str]) -> (Finished, Report) {
    dir.run(options, &WRITES)
}

fn notes(report: &Report) -> String {
    report["notes"].to_string()
}

/// On a machine without a profile: the first run.
fn learned() -> (Dir, PathBuf) {
    let dir = Dir::new();
    let (_, report) = run(&dir, &[]);
    assert_eq!(report["profile"]["learned_runs"], 0);
    let (path, profile) = profile(&dir).expect("what was learned");
    assert_eq!((profile.origin, profile.learned_runs()), (Origin::Learned, 1));
    (dir, path)
}

#[test]
fn a_run_begins_where_the_one_before_ended() {
    let (dir, path) = learned();
    let (_, report) = run(&dir, &[]);
    assert_eq!(
        (&report["profile"]["learned_runs"], &report["profile"]["origin"]),
        (&1.into(), &"learned".into())
    );
    let (_, after) = profile(&dir).expect("it is there");
    assert_eq!(after.learned_runs(), 2);
    let text = fs::read_to_string(&path).expect("it is there");
    // Runs with these options do not change it, nor does a run without writes.
    let named = path.to_str().expect("plain");
    for options in [&["--no-save"][..], &["--learn", "off"], &["--profile", named]] {
        run(&dir, options);
        assert_eq!(fs::read_to_string(&path).expect("it is there"), text, "{options:?}");
    }
    dir.run(&[], &["true"]);
    assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
    let shown = Running::start(dir.cawl(&["profile", "diff"])).finish().success().stdout;
    assert!(shown.contains("MEASURED") && shown.contains("calls.write"), "{shown}");
    let shown = Running::start(dir.cawl(&["profile", "diff", named])).finish().success().stdout;
    assert!(shown.contains("LEARNED") && shown.contains("calls.write"), "{shown}");
    let shown = Running::start(dir.cawl(&["run", "--", "true"])).finish().success().stderr;
    assert!(shown.contains("never measured, learned from 2 runs"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn runs_at_once_lose_nothing_of_each_other() {
    let (dir, path) = learned();
    let start = |at: usize| {
        let output = format!("of=file{at}");
        let mut command = dir.cawl(&["run", "--report"]);
        command.arg(dir.path().join(format!("{at}.json"))).arg("--");
        Running::start({
            command.args(WRITES.map(|word| if word == WRITES[2] { &output } else { word }));
            command
        })
    };
    let all: Vec<Running> = (0..4).map(start).collect();
    for running in all {
        running.finish().success();
    }
    let (_, after) = profile(&dir).expect("it is there");
    assert_eq!(after.learned_runs(), 5);
    // A killed run keeps nothing, and its half-written files disturb no other run.
    let mut running = Running::start({
        let mut command = dir.cawl(&["run", "--"]);
        command.arg(dir.app("paced_writer")).args(["paced", "4000", "4096"]);
        command
    });
    running.stdout_until("half ");
    running.signal(Signal::SIGKILL);
    running.finish().signal(Signal::SIGKILL);
    let mut aside = path.clone().into_os_string();
    aside.push(".new");
    fs::write(&aside, "schema = 1\nna").expect("a new file");
    assert_eq!(profile(&dir).expect("it is there").1, after);
    run(&dir, &[]);
    assert_eq!(profile(&dir).expect("it is there").1.learned_runs(), 6);
}

#[test]
fn what_cannot_be_kept_is_told_and_nothing_else_changes() {
    let (dir, path) = learned();
    let before = fs::read_to_string(&path).expect("it is there");
    // Another process holds the lock and does not release it.
    let lock = OpenOptions::new().write(true).open(folder(&dir).join(".lock")).expect("it is there");
    lock.lock().expect("nobody has it");
    let (finished, report) = run(&dir, &[]);
    finished.success();
    assert!(notes(&report).contains("what was learned is not kept"), "{}", notes(&report));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), before);
    drop(lock);
    // An invalid file stays as it is, so that it can be repaired.
    fs::write(&path, "schema = 1\nnonsense").expect("it is ours");
    let (finished, report) = run(&dir, &[]);
    finished.success();
    assert!(notes(&report).contains("calibrate again"), "{}", notes(&report));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "schema = 1\nnonsense");
    // The folder cannot be made.
    fs::remove_dir_all(dir.path().join("home/.local")).expect("it is ours");
    fs::write(dir.path().join("home/.local"), "").expect("a new file");
    let (finished, report) = run(&dir, &[]);
    finished.success();
    assert!(notes(&report).contains("what was learned is not kept"), "{}", notes(&report));
}
