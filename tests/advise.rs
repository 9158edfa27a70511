//! Which changes are worth it, of real programs with a planted fault, and of what a daemon sees.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use cawl_core::HostProfile;
use cawl_kit::{Daemon, Dir, Finished, Running, skipped};
use nix::sys::signal::Signal;
use serde_json::Value;

fn advise(dir: &Dir, options: &[&str]) -> Finished {
    let mut command = dir.cawl(&["advise"]);
    command.args(options);
    Running::start(command).finish()
}

fn advised(dir: &Dir, options: &[&str]) -> Value {
    let trace = dir.trace();
    let options = [&[trace.to_str().expect("UTF-8"), "--json", "--no-learn"], options].concat();
    serde_json::from_str(&advise(dir, &options).success().stdout).expect("JSON")
}

/// A trace of calls in csv, on a machine of known constants.
fn import(dir: &Dir, calls: impl IntoIterator<Item = String>) {
    let mut table = "start_s,op,offset,size,duration_s,pid,tid,path\n".to_owned();
    calls.into_iter().for_each(|call| writeln!(table, "{call}").unwrap());
    fs::write(dir.path().join("calls.csv"), table).unwrap();
    let mut import = dir.cawl(&["import", "--from", "csv"]);
    import.arg(dir.path().join("calls.csv")).arg("-o").arg(dir.trace());
    Running::start(import).finish().success();
}

/// Records a program with a profile that is the same on each machine. The run's own report tells what
/// `advise` does of its trace.
fn record(dir: &Dir, program: &[&str]) {
    let profile = dir.path().join("profile.toml");
    fs::write(&profile, HostProfile::uncalibrated().to_toml()).unwrap();
    dir.run(&["--profile", profile.to_str().unwrap()], program).0.success();
    let report = fs::read_to_string(dir.path().join("report.json")).expect("a report");
    let report: Value = serde_json::from_str(&report).expect("JSON");
    let trace = dir.trace();
    let answer = advise(dir, &[trace.to_str().expect("UTF-8"), "--json"]).success().stdout;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let most = answer["advice"].as_array().expect("advice").iter().take(3).cloned().collect::<Vec<_>>();
    assert_eq!(report["advice"]["advice"].as_array(), Some(&most), "{answer:#}");
    ends_with_advice(dir, &answer);
}

/// `fsync` takes 1 ms.
fn appends() -> impl Iterator<Item = String> {
    (0..200).flat_map(|at| {
        let start = 1.0 + f64::from(at) * 0.002;
        [
            format!("{start:.6},write,{at},1,0.000002,7,7,/var/log/app.log"),
            format!("{:.6},fsync,,,0.001,7,7,/var/log/app.log", start + 0.0005),
        ]
    })
}

/// Reports of the trace tell what `advise` does, in text, JSON and page.
fn ends_with_advice(dir: &Dir, answer: &Value) {
    let told = |options: &[&str]| {
        let mut command = dir.cawl(options);
        command.arg(dir.trace());
        Running::start(command).finish().success().stdout
    };
    let most = answer["advice"].as_array().expect("advice").iter().take(3).cloned().collect::<Vec<_>>();
    for command in ["replay", "explain"] {
        let report: Value = serde_json::from_str(&told(&[command, "--json"])).expect("JSON");
        let advised = &report["advice"];
        assert_eq!(advised["advice"].as_array(), Some(&most), "{command}");
        for field in ["tried", "paper_s", "best_s", "bound"] {
            assert_eq!(advised[field], answer[field], "{field}");
        }
        // A report has this value only once.
        let explain = if command == "replay" { &report["explain"] } else { &report };
        let [undisturbed, bound] = [&explain["best"]["undisturbed_s"], &advised["best_s"]].map(Value::as_f64);
        assert!(undisturbed.is_some() && bound.is_some(), "{report:#}");
        let least = if undisturbed < bound { undisturbed } else { bound };
        assert_eq!(explain["best"]["best_s"].as_f64(), least, "{command}");
        for options in [&[command][..], &[command, "--long"]] {
            let text = told(options);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let (_, end) = text.rsplit_once("\n\n").expect("an empty line");
            let end = end.split_whitespace().collect::<Vec<_>>().join(" ");
            let first = match most.first() {
                Some(first) => first["what"].as_str().expect("a text").to_owned(),
                None => {
                    format!("nothing is worth it: {} is the bound", answer["bound"]["by"].as_str().unwrap())
                }
            };
            assert!(end.starts_with(&format!("advice {first}")), "{text}");
            let said = |one: &Value| end.contains(one.as_str().expect("a text"));
            assert!(most.iter().all(|one| said(&one["how"]) && said(&one["sure"])), "{end}");
        }
    }
    let page = dir.path().join("page.html");
    let report = page.to_str().expect("UTF-8");
    told(&["explain", "--report", report]);
    assert!(fs::read_to_string(&page).expect("a page").contains("<h2>What to do</h2>"));
    // A part of the calls has no advice of its own.
    let part: Value = serde_json::from_str(&told(&["explain", "--json", "--from", "0s"])).expect("JSON");
    assert_eq!(part["advice"], Value::Null);
}

#[test]
fn fewer_syncs_come_first_where_each_byte_has_one() {
    let dir = Dir::new();
    import(&dir, appends());
    let answer = advised(&dir, &[]);
    assert_eq!((&answer["schema"], answer["calls"].as_u64()), (&1.into(), Some(400)));
    let first = &answer["advice"][0];
    assert_eq!(first["change"], "--fsync every=16 --on /var/log/app.log", "{answer:#}");
    assert_eq!(first["files"], serde_json::json!(["/var/log/app.log"]));
    assert!(first["safety"][0].as_str().is_some_and(|text| text.contains("15 syncs")), "{answer:#}");
    let gain = |one: &Value| one["gain_s"].as_f64().expect("a gain");
    let [low, high] = [0, 1].map(|at| first["interval"][at].as_f64().expect("an end"));
    let ratio = first["ratio"].as_f64().expect("a ratio");
    assert!(low <= ratio && ratio <= high && high < 1.0, "{answer:#}");
    let paper = answer["paper_s"].as_f64().expect("a time");
    assert!((gain(first) / (paper * (1.0 - ratio)) - 1.0).abs() < 1e-9, "{answer:#}");
    assert!(answer["advice"].as_array().is_some_and(|advice| advice.len() <= 7), "{answer:#}");
    // The constants are defaults.
    assert_ne!(first["sure"], "sure");
    // What is advised is what `whatif` says.
    let learned = dir.trace();
    let learned = advise(&dir, &[learned.to_str().unwrap(), "--json"]).success().stdout;
    let learned: Value = serde_json::from_str(&learned).expect("JSON");
    for (answer, options) in [(&answer, &["--no-learn", "--json"][..]), (&learned, &["--json"])] {
        let first = &answer["advice"][0];
        let mut whatif = dir.cawl(&["whatif"]);
        whatif.arg(dir.trace()).args(first["change"].as_str().expect("a text").split(' ')).args(options);
        let same: Value = serde_json::from_str(&Running::start(whatif).finish().success().stdout).unwrap();
        assert_eq!((&same["ratio"], &same["before"]["total_s"]), (&first["ratio"], &answer["paper_s"]));
        for field in ["interval", "sure", "safety"] {
            assert_eq!(same[field], first[field], "{field}");
        }
    }
    ends_with_advice(&dir, &learned);

    let trace = dir.trace();
    let text = advise(&dir, &[trace.to_str().unwrap()]).success().stdout;
    for part in ["bound", "once per 16 records", "less safe", "or ", "a crash loses", "cawl-cli whatif /"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_buffer_comes_first_where_a_stream_has_none() {
    let dir = Dir::new();
    record(&dir, &[dir.app("unbuffered").to_str().unwrap(), "out", "20000", "512"]);
    let answer = advised(&dir, &[]);
    let first = &answer["advice"][0];
    assert_eq!(first["kind"], "buffer", "{answer:#}");
    assert!(first["how"].as_str().is_some_and(|how| how.starts_with("setvbuf(f, malloc(1 << ")));
    assert!(first["files"][0].as_str().is_some_and(|path| path.ends_with("/out")), "{answer:#}");
    assert_eq!(first["program"], "unbuffered");
}

#[test]
fn small_blocks_of_dd_are_told_as_dd_has_them() {
    let dir = Dir::new();
    if cawl_kit::find("dd").is_none() {
        return skipped("there is no dd");
    }
    record(&dir, &["dd", "if=/dev/zero", "of=out", "bs=16", "count=30000", "status=none"]);
    let answer = advised(&dir, &[]);
    let first = &answer["advice"][0];
    assert_eq!((&first["kind"], &first["program"]), (&"merge".into(), &"dd".into()), "{answer:#}");
    assert!(first["how"].as_str().is_some_and(|how| how.starts_with("dd bs=")), "{answer:#}");
}

#[test]
fn where_nothing_is_gained_the_bound_is_told() {
    let dir = Dir::new();
    record(&dir, &["dd", "if=/dev/zero", "of=out", "bs=1M", "count=16", "status=none"]);
    let answer = advised(&dir, &[]);
    assert_eq!(answer["advice"], serde_json::json!([]), "{answer:#}");
    let of = |field: &str| answer[field].as_f64().expect("a time");
    assert!(of("best_s") <= of("paper_s").min(of("observed_s")), "{answer:#}");
    assert!(answer["bound"]["gain_s"].as_f64() >= Some(0.0));
    let trace = dir.trace();
    let text = advise(&dir, &[trace.to_str().unwrap(), "--no-learn"]).success().stdout;
    assert!(text.contains("nothing is worth it") && text.contains("would do"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_part_of_a_trace_is_named_as_such() {
    let dir = Dir::new();
    import(&dir, appends());
    let answer = advised(&dir, &["--calls", "100"]);
    assert_eq!((answer["first_calls"].as_u64(), answer["calls"].as_u64()), (Some(100), Some(100)));
    assert_eq!(advised(&dir, &["--calls", "400"])["first_calls"], Value::Null);
    let trace = dir.trace();
    let finished = advise(&dir, &[trace.to_str().unwrap(), "--calls", "100"]).success();
    assert!(finished.stdout.contains("the first 100 calls only"), "{}", finished.stdout);
    assert_eq!(finished.stderr, "");
}

fn ask(socket: &Path, question: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("the daemon listens");
    writeln!(stream, "{question}").expect("it reads");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("it answers");
    serde_json::from_str(&answer).expect("JSON")
}

#[test]
fn a_daemon_records_for_a_while_and_is_advised_on() {
    let dir = Dir::new();
    let daemon = Daemon::start(&dir, &[]);
    let mut run = dir.cawl(&["run", "--socket"]);
    run.arg(dir.socket()).args(["--report"]).arg(dir.path().join("r.json")).arg("--");
    run.arg(dir.app("paced_writer")).args(["file", "2000", "16"]);
    let mut running = Running::start(run);
    running.stdout_until("half ");
    let mut command = dir.cawl(&["advise", "--json", "--for", "5s", "--socket"]);
    command.arg(dir.socket());
    let asked = Running::start(command);
    daemon.status_when(|status| status["calls"].as_u64() >= Some(2000));
    // The second half is written while it records.
    let open = format!("/proc/{}/fd", daemon.pid());
    cawl_kit::eventually("it records", || {
        let files = fs::read_dir(&open).expect("it runs").flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|path| path.ends_with("calls.trace"))
    });
    let mut second = dir.cawl(&["advise", "--for", "100ms", "--socket"]);
    second.arg(dir.socket());
    Running::start(second).finish().code(1).says("keeps a trace already");
    // The same for the live page, kept in memory.
    let live = std::thread::spawn({
        let socket = dir.socket();
        // The other one may come first.
        move || loop {
            let answer = ask(&socket, r#"{"request":"advise","for_s":4}"#);
            if answer["error"].is_null() {
                break answer;
            }
        }
    });
    cawl_kit::eventually("another one is refused", || {
        let refused = ask(&dir.socket(), r#"{"request":"advise","for_s":0.1}"#);
        refused["error"].as_str().is_some_and(|why| why.contains("already"))
    });
    running.say("\n");
    running.finish().success();
    let live = live.join().expect("an answer");
    assert!(live["calls"].as_u64() >= Some(2000) && live["observed_s"].as_f64() > Some(0.0), "{live:#}");
    assert!(live["advice"]["tried"].is_u64(), "{live:#}");
    let answer: Value = serde_json::from_str(&asked.finish().success().stdout).expect("JSON");
    assert_eq!(answer["recorded_s"], 5.0, "{answer:#}");
    // The file was named before the recording began.
    assert!(answer["calls"].as_u64() >= Some(2000), "{answer:#}");
    let mut command = dir.cawl(&["advise", "--for", "100ms", "--socket"]);
    command.arg(dir.socket());
    Running::start(command).finish().code(1).says("no program that reports to this daemon made a call");
    daemon.end(Signal::SIGTERM).success();
}

#[test]
fn wrong_use_is_refused_with_a_remedy() {
    let dir = Dir::new();
    advise(&dir, &[]).code(2).says("--socket");
    advise(&dir, &["a.trace", "--socket", "/x"]).code(2).says("cannot be used with");
    advise(&dir, &["--socket", "/x", "--for", "1h"]).code(2).says("100ms to 10m");
    advise(&dir, &["--for", "1s"]).code(2).says("--socket");
    advise(&dir, &["a.trace", "--for", "1s"]).code(2).says("cannot be used with");
    advise(&dir, &["a.trace", "--calls", "0"]).code(2).says("--calls");
    advise(&dir, &["--socket", "/nowhere.sock", "--for", "100ms"]).code(1).says("/nowhere.sock");
    advise(&dir, &["/nowhere.trace"]).code(1).says("cannot read the trace /nowhere.trace");
    import(&dir, appends());
    let bytes = fs::read(dir.trace()).unwrap();
    fs::write(dir.trace(), &bytes[..bytes.len() / 3]).unwrap();
    let trace = dir.trace();
    advise(&dir, &[trace.to_str().unwrap()]).code(1);
}
