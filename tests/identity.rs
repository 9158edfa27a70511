//! The file of a call: reused inode numbers, and names that change.

use std::path::Path;

use cawl_core::{Analysis, HostProfile, Mode, Record};
use cawl_host::trace::TraceReader;
use serde_json::Value;

use cawl_kit::{Dir, Report, Running};

/// Runs a mode of apps/identity.c.
#[track_caller]
fn run(mode: &str) -> (Dir, Report) {
    let dir = Dir::new();
    let report = run_in(&dir, &dir.app("identity"), mode);
    (dir, report)
}

#[track_caller]
fn run_in(dir: &Dir, app: &Path, mode: &str) -> Report {
    dir.clear();
    let (finished, report) = dir.run(&["--model", "all"], &[app.as_os_str(), mode.as_ref()]);
    finished.success();
    // The kernel's count of a killed process is known only if it was read before the process was reaped.
    if mode != "killed" {
        report.all_seen();
    }
    report
}

/// Last and first name of each file, and its number of writes; by last name.
fn files(report: &Report) -> Vec<(String, Option<String>, u64)> {
    let name = |path: &Value| path.as_str().map(|path| path.rsplit('/').next().unwrap_or(path).to_owned());
    let writes = |file: &Value| {
        let ops = file["ops"].as_array().expect("a file lists operations").iter();
        ops.filter(|op| op["op"] == "write").filter_map(|op| op["calls"].as_u64()).sum()
    };
    let files = report["files"].as_array().expect("the report lists files").iter();
    let mut files: Vec<_> = files
        .filter(|file| file["path"] != "(names)")
        .map(|file| (name(&file["path"]).expect("a path"), name(&file["first_path"]), writes(file)))
        .collect();
    files.sort();
    files
}

fn named(path: &str, first: Option<&str>, writes: u64) -> (String, Option<String>, u64) {
    (path.to_owned(), first.map(str::to_owned), writes)
}

/// Names of two files, and arguments, that differ only in bytes that are no UTF-8.
#[test]
fn names_that_are_no_text_stay_apart() {
    let dir = Dir::new();
    let (finished, report) =
        dir.run(&[], &["sh", "-c", r"for i in 376 377; do echo x >$(printf a\\$i); done"]);
    finished.success();
    let apart = [named(r"a\xfe", None, 1), named(r"a\xff", None, 1)];
    let written = |report: &Report| files(report).into_iter().filter(|file| file.2 > 0).collect::<Vec<_>>();
    assert_eq!(written(&report), apart);
    replayed(&dir, &report);
    let mut export = dir.cawl(&["export", "--to", "csv"]);
    export.arg(dir.trace());
    let csv = Running::start(export).finish().success().stdout;
    assert!(csv.contains(r"/a\xfe") && csv.contains(r"/a\xff") && !csv.contains('\u{fffd}'), "{csv}");
}

/// The report of a replay is that of the run, as text and as JSON.
#[track_caller]
fn replayed(dir: &Dir, report: &Report) -> String {
    let replay = |more: &[&str]| {
        let mut replay = dir.cawl(&["replay", "--live"]);
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
fn a_file_made_anew_under_its_name_is_one_row() {
    let (dir, report) = run("anew");
    assert_eq!(files(&report), [named("journal", None, 6)]);
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

/// The operation (or end of a process) that dropped the last dirty byte, each time; and the dirty bytes at
/// the end.
fn emptied(dir: &Dir, model: &str) -> (Vec<String>, u64) {
    let profile = HostProfile::uncalibrated();
    let mut analysis = Analysis::new(&profile, &[model.to_owned()], Mode::Lockstep).expect("a model");
    let mut reader = TraceReader::open(&dir.trace()).expect("a trace");
    let (mut emptied, mut dirty) = (Vec::new(), 0);
    while let Some(record) = reader.next_record().expect("a sound trace") {
        analysis.take(&record);
        let before = std::mem::replace(&mut dirty, analysis.state().dirty.0);
        if before > 0 && dirty == 0 {
            emptied.push(match record {
                Record::Event(event) => event.op.name().to_owned(),
                Record::End(_) => "end".to_owned(),
                other => panic!("dirty pages were written: {other:?}"),
            });
        }
    }
    (emptied, dirty)
}

#[test]
fn a_file_loses_its_pages_with_its_last_name_and_descriptor() {
    let dir = Dir::new();
    let app = dir.app("identity");
    for (mode, by) in [
        ("closed", "close"),
        ("tmpfile", "close"),
        ("shared", "close"),
        ("killed", "end"),
        ("covered", "close"),
        ("range", "close"),
        ("from", "close"),
        ("exec", "end"),
    ] {
        let report = run_in(&dir, &app, mode);
        for model in ["kernel", "cawl"] {
            assert_eq!(emptied(&dir, model), (vec![by.to_owned()], 0), "{mode}, {model}");
        }
        replayed(&dir, &report);
    }
    for mode in ["renamed", "linked"] {
        run_in(&dir, &app, mode);
        for model in ["kernel", "cawl"] {
            let (emptied, dirty) = emptied(&dir, model);
            assert!(emptied.is_empty() && dirty > 0, "{mode}, {model}: {emptied:?}, {dirty} left");
        }
    }
}

/// A program changes a descriptor by a system call of its own, after a hundred writes and before three
/// hundred.
#[test]
fn what_is_uncertain_is_the_first_note_and_in_the_trace() {
    let dir = Dir::new();
    let app = dir.app("past_hooks");
    let command = [app.as_os_str(), "close".as_ref(), "100".as_ref(), "300".as_ref()];
    let (finished, report) = dir.run(&[], &command);
    finished.success();
    let uncertain = &report["uncertain"];
    let calls = uncertain["other_file"]["calls"].as_u64().expect("a number");
    assert!((1..=128).contains(&calls), "{uncertain}");
    assert_eq!(uncertain["other_file"]["bytes"], calls * 1000);
    let path = uncertain["files"][0]["path"].as_str().expect("a path");
    assert!(path.ends_with("/a"), "{uncertain}");
    let note = report["notes"][0].as_str().expect("a note");
    assert!(note.starts_with(&format!("uncertain: {calls} calls, ")) && note.ends_with(path), "{note}");
    // At most so many are in the wrong row.
    let (a, b) = (report.file_bytes("a"), report.file_bytes("b"));
    assert_eq!(a + b, 400_000);
    assert!((100_000..=100_000 + calls * 1000).contains(&a), "{a}");
    let replay = dir.cawl(&["replay".as_ref(), dir.trace().as_os_str(), "--json".as_ref()]);
    let again: Value = serde_json::from_str(&Running::start(replay).finish().success().stdout).expect("JSON");
    assert_eq!(&again["uncertain"], uncertain);
}
