//! What explains the difference between two runs: real programs, kept reports, and what cannot be compared.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use cawl_kit::{Dir, Finished, Running};
use serde_json::Value;

fn diff(dir: &Dir, before: &Path, after: &Path, options: &[&str]) -> Finished {
    let mut command = dir.cawl(&["diff"]);
    command.arg(before).arg(after).args(options);
    Running::start(command).finish()
}

/// A trace of appends to a log, each with a sync of 1 ms, and of which so many are synced.
fn appends(dir: &Dir, name: &str, syncs: u32) -> PathBuf {
    let mut table = "start_s,op,offset,size,duration_s,pid,tid,path\n".to_owned();
    for at in 0..200 {
        let start = 1.0 + f64::from(at) * 0.002;
        writeln!(table, "{start:.6},write,{at},1,0.000002,7,7,/var/log/app.log").unwrap();
        if at < syncs {
            writeln!(table, "{:.6},fdatasync,,,0.001,7,7,/var/log/app.log", start + 0.0005).unwrap();
        }
    }
    let (calls, trace) = (dir.path().join("calls.csv"), dir.path().join(name));
    fs::write(&calls, table).unwrap();
    let mut import = dir.cawl(&["import", "--from", "csv"]);
    import.arg(&calls).arg("-o").arg(&trace);
    Running::start(import).finish().success();
    trace
}

/// The trace of dd, and its report as JSON.
fn dd(dir: &Dir, name: &str, options: &[&str]) -> (PathBuf, PathBuf) {
    let [trace, report] = [".cawl", ".json"].map(|end| dir.path().join(format!("{name}{end}")));
    let mut run = dir.cawl(&["run", "--trace"]);
    run.arg(&trace).arg("--report").arg(&report).args(["--", "dd", "if=/dev/zero", "bs=4k", "status=none"]);
    run.args(options);
    Running::start(run).finish().success();
    (trace, report)
}

#[test]
fn a_trace_and_its_report_tell_the_same_difference() {
    let dir = Dir::new();
    let (plain, plain_report) = dd(&dir, "plain", &["of=out", "count=40"]);
    let (synced, synced_report) = dd(&dir, "synced", &["of=out", "count=60", "oflag=dsync"]);
    let told = |one: &Path, other: &Path| -> Value {
        serde_json::from_str(&diff(&dir, one, other, &["--json"]).success().stdout).expect("JSON")
    };
    let of_traces = told(&plain, &synced);
    assert_eq!(of_traces["schema"], 1, "{of_traces:#}");
    let write = of_traces["ops"].as_array().expect("operations").iter().find(|op| op["name"] == "write");
    assert_eq!(write.expect("write")["calls"], serde_json::json!([40, 60]), "{of_traces:#}");
    assert_eq!(of_traces["machine"], serde_json::json!([]));
    for (one, other) in [(&plain_report, &synced_report), (&plain, &synced_report)] {
        let kept = told(one, other);
        for field in ["said", "total_s", "calls", "bytes", "machine"] {
            assert_eq!(kept[field], of_traces[field], "{field}");
        }
    }
    let text = diff(&dir, &plain, &synced, &[]).success().stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in ["60 writes where there were 40", "plain.cawl: dd if=/dev/zero", "CAUSE", "FILE", "elapsed"] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(part), "`{part}` is not in {text}");
    }
    // A run is no different from itself.
    let same = diff(&dir, &plain, &plain_report, &["--fail-above", "0%"]).success().stdout;
    assert!(same.starts_with("diff       hardly a difference: "), "{same}");
}

#[test]
fn a_job_fails_where_the_calls_became_slower() {
    let dir = Dir::new();
    let (few, many) = (appends(&dir, "few.cawl", 50), appends(&dir, "many.cawl", 100));
    let slower = diff(&dir, &few, &many, &["--fail-above", "10%"]).code(1);
    assert!(slower.stdout.contains("100 fdatasyncs where there were 50"), "{}", slower.stdout);
    slower.says("the calls of B take 99.");
    diff(&dir, &few, &many, &["--fail-above", "200"]).success();
    diff(&dir, &many, &few, &["--fail-above", "0%"]).success();
    let markdown = diff(&dir, &few, &many, &["--markdown"]).success().stdout;
    let first = markdown.lines().next().unwrap_or_default();
    assert!(first.starts_with("**") && first.ends_with("100 fdatasyncs where there were 50**"), "{markdown}");
    for row in ["| TOTAL | A | B | B − A | B / A |", "|---|---:|---:|---:|---:|"] {
        assert!(markdown.lines().any(|line| line == row), "{markdown}");
    }
    // Each table has as many cells in each of its rows.
    for table in markdown.split("\n\n").filter(|part| part.starts_with('|')) {
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        assert!(table.lines().all(|line| cells(line) == cells(table.lines().next().unwrap())), "{table}");
    }
}

#[test]
fn a_part_of_a_run_is_told_as_one() {
    let dir = Dir::new();
    let (whole, report) = dd(&dir, "whole", &["of=out.db", "count=40"]);
    let mut selected = dir.cawl(&["replay", "--file", "*.db", "--report"]);
    selected.arg(dir.path().join("part.json")).arg(&whole);
    Running::start(selected).finish().success();
    let mut only = dir.cawl(&["run", "--only", "*.db", "--trace"]);
    only.arg(dir.path().join("only.cawl")).arg("--report").arg(dir.path().join("only.json"));
    only.args(["--", "dd", "if=/dev/zero", "of=out.db", "bs=4k", "count=40", "status=none"]);
    Running::start(only).finish().success();
    let mut longer = fs::read(&whole).unwrap();
    longer.extend([0x5a; 4000]);
    fs::write(dir.path().join("damaged.cawl"), longer).unwrap();
    let [fits, damaged] =
        ["recorded were only calls on files that fit *.db (--only)", "the trace is damaged"];
    for (name, note, code) in [
        ("part.json", "only calls of files *.db", 0),
        ("only.json", fits, 0),
        ("only.cawl", fits, 0),
        ("damaged.cawl", damaged, 1),
    ] {
        let part = dir.path().join(name);
        let told = |options: &[&str]| diff(&dir, &part, &report, options).code(code).stdout;
        let text = told(&[]);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(&format!(" in A {note}")), "{text}");
        let markdown = told(&["--markdown"]).replace('\\', "");
        assert!(markdown.contains(&format!("- in A: {note}")), "{markdown}");
        let json: Value = serde_json::from_str(&told(&["--json"])).expect("JSON");
        let has = |at: usize| json["notes"][at].to_string().contains(note);
        assert!(has(0) && !has(1), "{json:#}");
        let same = diff(&dir, &part, &part, &[]).code(code).stdout;
        assert!(same.contains("in both"), "{same}");
    }
}

#[test]
fn another_mode_is_told_and_another_model_refused() {
    let dir = Dir::new();
    let (trace, _) = dd(&dir, "live", &["of=out", "count=40"]);
    let replay = |options: &[&str]| {
        let path = dir.path().join("replayed.json");
        let mut replay = dir.cawl(&["replay"]);
        replay.arg(&trace).args(options).arg("--report").arg(&path);
        Running::start(replay).finish().success();
        path
    };
    let open_loop = replay(&["--open-loop"]);
    let text = diff(&dir, &open_loop, &trace, &["--markdown"]).success().stdout;
    assert!(text.starts_with("**hardly a difference") && text.contains("- mode: open-loop in A, "), "{text}");
    let json: Value =
        serde_json::from_str(&diff(&dir, &trace, &open_loop, &["--json"]).success().stdout).expect("JSON");
    assert_eq!(json["mode"], serde_json::json!(["assimilated, learning", "open-loop"]));
    let naive = replay(&["--model", "naive"]);
    let refused = diff(&dir, &naive, &trace, &["--fail-above", "10%"]).code(1);
    refused.says("`replay --model kernel --json`");
    // A trace of a run with that model has calls of all operations.
    let mut run = dir.cawl(&["run", "--model", "naive", "--trace"]);
    run.arg(dir.path().join("naive.cawl"));
    run.args(["--", "dd", "if=/dev/zero", "of=out", "bs=4k", "count=40", "status=none"]);
    Running::start(run).finish().success();
    diff(&dir, &dir.path().join("naive.cawl"), &trace, &[]).success();
}

#[test]
fn a_file_of_another_folder_is_told_with_both_paths() {
    let dir = Dir::new();
    for name in ["r1", "r2"] {
        fs::create_dir(dir.path().join("work").join(name)).unwrap();
    }
    let (one, report) = dd(&dir, "one", &["of=r1/x", "count=40"]);
    let (other, _) = dd(&dir, "other", &["of=r2/x", "count=40"]);
    let markdown = diff(&dir, &one, &other, &["--markdown"]).success().stdout;
    let line = markdown.lines().find(|line| line.starts_with("- file: ")).expect("a line");
    assert!(line.contains("r1/x in A, ") && line.ends_with("r2/x in B"), "{markdown}");
    // No run takes that long.
    let mut damaged: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    damaged["span_s"] = 1e300.into();
    let path = dir.path().join("damaged.json");
    fs::write(&path, damaged.to_string()).unwrap();
    diff(&dir, &path, &other, &[]).code(1).says("it is damaged: a time in it is 1e300 s");
}

#[test]
fn what_cannot_be_compared_is_told_with_its_remedy() {
    let dir = Dir::new();
    let trace = appends(&dir, "a.cawl", 3);
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let no_calls = dir.path().join("no_calls.cawl");
    let mut run = dir.cawl(&["run", "--trace"]);
    run.arg(&no_calls).args(["--", "true"]);
    Running::start(run).finish().success();
    for (path, why) in [
        (dir.path().join("none"), "No such file"),
        (file("notes.txt", "dear diary"), "run --report FILE.json"),
        (file("page.html", "<!DOCTYPE html>"), "run --report FILE.json"),
        (file("other.json", "{\"schema\": 1, \"causes\": []}"), "run --report FILE.json"),
        (file("broken.json", "{\"schema\": 1,"), "run --report FILE.json"),
        (file("empty", ""), "is empty: what was to write it has not begun, or had no room; give a trace"),
        (no_calls, "has no calls"),
        (dir.path().to_owned(), "directory"),
    ] {
        diff(&dir, &trace, &path, &[]).code(1).says(why);
        diff(&dir, &path, &trace, &["--json"]).code(1).says(why);
    }
    let untimed = file("untimed.csv", "start_s,op,offset,size,duration_s\n1.0,write,0,1,\n");
    let mut import = dir.cawl(&["import", "--from", "csv", "-o"]);
    import.arg(dir.path().join("untimed.cawl")).arg(untimed);
    Running::start(import).finish().success();
    diff(&dir, &trace, &dir.path().join("untimed.cawl"), &[]).code(1).says("no observed times");
    diff(&dir, &trace, &trace, &["--fail-above", "ten"]).code(2).says("as in 10%");
    diff(&dir, &trace, &trace, &["--json", "--markdown"]).code(2);
    // What could be read of a damaged trace is compared.
    let mut longer = fs::read(&trace).unwrap();
    longer.extend([0x5a; 4000]);
    let damaged = dir.path().join("damaged.cawl");
    fs::write(&damaged, longer).unwrap();
    let told = diff(&dir, &damaged, &trace, &[]).code(1).says("the trace is damaged");
    assert!(told.stdout.starts_with("diff       hardly a difference"), "{}", told.stdout);
}
