//! Which file a call was about: numbers that are given out again, and names that change.

use serde_json::Value;

use crate::util::{Dir, Report, Running};

/// Runs a mode of apps/identity.c.
#[track_caller]
fn run(mode: &str) -> (Dir, Report) {
    let dir = Dir::new();
    let app = dir.app("identity");
    let (finished, report) = dir.run(&[], &[app.as_os_str(), mode.as_ref()]);
    finished.success();
    report.all_seen();
    (dir, report)
}

/// Last and first name of each file, and how often it was written to; by last name.
fn files(report: &Report) -> Vec<(String, Option<String>, u64)> {
    let name = |path: &Value| path.as_str().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
    let writes = |file: &Value| {
        let ops = file["ops"].as_array().expect("a file lists operations").iter();
        ops.filter(|op| op["op"] == "write").filter_map(|op| op["calls"].as_u64()).sum()
    };
    let files = report["files"].as_array().expect("the report lists files").iter();
    let mut files: Vec<_> = files
        .map(|file| (name(&file["path"]).expect("a path"), name(&file["first_path"]), writes(file)))
        .collect();
    files.sort();
    files
}

fn named(path: &str, first: Option<&str>, writes: u64) -> (String, Option<String>, u64) {
    (path.to_owned(), first.map(str::to_owned), writes)
}

/// The report of a replay is that of the run, for people and for programs.
#[track_caller]
fn replayed(dir: &Dir, report: &Report) -> String {
    let replay = |more: &[&str]| {
        let mut replay = dir.cawl(&["replay", "--lockstep"]);
        replay.args(more).arg(dir.trace());
        Running::start(replay).finish().success().stdout
    };
    let again = Report::parse(&replay(&["--json"]));
    assert_eq!((files(&again), again.fingerprints()), (files(report), report.fingerprints()));
    replay(&[])
}

#[test]
fn a_number_given_out_again_is_another_file() {
    let (dir, report) = run("reuse");
    assert_eq!(files(&report), ["aaa", "bbb", "ccc"].map(|name| named(name, None, 10)));
    replayed(&dir, &report);
}

#[test]
fn a_renamed_file_is_shown_by_its_last_name_with_the_first() {
    let (dir, report) = run("renamed");
    assert_eq!(files(&report), [named("t.final", Some("t.tmp"), 3)]);
    let text = replayed(&dir, &report);
    assert!(text.contains("/t.final (was t.tmp)\n"), "{text}");
}

#[test]
fn a_file_that_another_one_replaces_keeps_its_name() {
    let (dir, report) = run("replaced");
    assert_eq!(files(&report), [named("data", None, 3), named("data", Some("data.new"), 5)]);
    replayed(&dir, &report);
}

#[test]
fn two_files_that_exchange_their_names() {
    let (dir, report) = run("exchanged");
    assert_eq!(files(&report), [named("one", Some("two"), 2), named("two", Some("one"), 1)]);
    replayed(&dir, &report);
}

#[test]
fn a_file_that_another_program_renames() {
    let dir = Dir::new();
    let script = "dd if=/dev/zero of=x.tmp bs=64k count=4 && mv x.tmp x";
    let (finished, report) = dir.run(&[], &["sh", "-c", script]);
    finished.success();
    assert_eq!(files(&report), [named("x", Some("x.tmp"), 4)]);
    replayed(&dir, &report);
}
