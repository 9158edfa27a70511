//! What a trace's calls would cost with changes, by the built program.

use std::fmt::Write;
use std::fs;

use cawl_core::HostProfile;
use cawl_kit::{Dir, Finished, Running};
use serde_json::Value;

/// A trace of commits to a database, and of a log beside it.
fn trace(dir: &Dir) {
    let mut table = "start_s,op,offset,size,duration_s,pid,tid,path\n".to_owned();
    for at in 0..200 {
        let start = 1.0 + f64::from(at) * 0.01;
        let offset = at * 4096;
        writeln!(table, "{start:.6},write,{offset},4096,0.000005,7,7,/data/app.db").unwrap();
        writeln!(table, "{:.6},fsync,,,0.0006,7,7,/data/app.db", start + 0.001).unwrap();
        writeln!(table, "{:.6},write,{},64,0.000001,7,7,/var/app.log", start + 0.005, at * 64).unwrap();
    }
    fs::write(dir.path().join("calls.csv"), table).unwrap();
    let mut import = dir.cawl(&["import", "--from", "csv"]);
    import.arg(dir.path().join("calls.csv")).arg("-o").arg(dir.trace());
    Running::start(import).finish().success();
}

fn whatif(dir: &Dir, changes: &[&str]) -> Finished {
    let mut command = dir.cawl(&["whatif"]);
    command.arg(dir.trace()).args(changes);
    Running::start(command).finish()
}

fn asked(dir: &Dir, changes: &[&str]) -> Value {
    serde_json::from_str(&whatif(dir, &[changes, &["--json"]].concat()).success().stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn calls(costs: &Value, op: &str) -> u64 {
    let ops = costs["ops"].as_array().expect("operations");
    ops.iter().find(|row| row["op"] == op).map_or(0, |row| row["calls"].as_u64().expect("a count"))
}

#[test]
fn a_changed_trace_is_written_where_that_is_asked_for() {
    let dir = Dir::new();
    trace(&dir);
    let bytes = fs::read(dir.trace()).unwrap();
    let changed = dir.path().join("changed.cawl");
    let to = changed.to_str().unwrap();
    let answer = asked(&dir, &["--fsync", "every=16", "--merge", "256", "-o", to]);
    let mut explain = dir.cawl(&["explain", "--json"]);
    explain.arg(&changed);
    let told: Value = serde_json::from_str(&Running::start(explain).finish().success().stdout).expect("JSON");
    let (after, calls) = (&answer["after"], number(&told["calls"]));
    assert_eq!(told["calls"], after["calls"]);
    // Whole ns.
    assert!((number(&told["observed_s"]) - number(&after["total_s"])).abs() < calls * 1e-9, "{told:#}");
    let mut csv = dir.cawl(&["export", "--to", "csv"]);
    csv.arg(&changed);
    let rows = Running::start(csv).finish().success().stdout;
    assert!(rows.contains("/data/app.db") && rows.contains("/var/app.log"), "{rows}");
    whatif(&dir, &["--fsync", "none", "-o", dir.trace().to_str().unwrap()]).code(2).says("overwrite");
    let notes = dir.path().join("notes.txt");
    fs::write(&notes, "dear diary").unwrap();
    whatif(&dir, &["--fsync", "none", "-o", notes.to_str().unwrap()]).code(1).says("exists and is no trace");
    assert_eq!(fs::read(&notes).unwrap(), b"dear diary");
    whatif(&dir, &["--fsync", "none", "-o", "/nowhere/x"])
        .code(1)
        .says("there is no folder /nowhere; create it");
    // Before the work: what would fail later is not found.
    for output in [notes.to_str().unwrap(), "/nowhere/x"] {
        let late = ["--move", "*=/nowhere/profile.toml", "-o", output];
        let first = whatif(&dir, &late).code(1);
        assert!(!first.stderr.contains("profile.toml"), "{first:#?}");
    }
    whatif(&dir, &["--fsync", "none", "--each", "-o", to]).code(2).says("cannot be used with");
    assert_eq!(fs::read(dir.trace()).unwrap(), bytes);
}

#[test]
fn the_gain_of_a_change_is_told_with_what_becomes_less_safe() {
    let dir = Dir::new();
    trace(&dir);
    let bytes = fs::read(dir.trace()).unwrap();
    let answer = asked(&dir, &["--fsync", "every=16"]);
    assert_eq!(answer["schema"], 1);
    let (before, after) = (&answer["before"], &answer["after"]);
    assert_eq!((calls(before, "fsync"), calls(after, "fsync")), (200, 13));
    let ratio = number(&answer["ratio"]);
    assert!(
        (ratio * number(&before["total_s"]) / number(&after["total_s"]) - 1.0).abs() < 1e-9,
        "{answer:#}"
    );
    let interval = answer["interval"].as_array().expect("an interval");
    assert!(ratio < 0.5 && number(&interval[0]) <= ratio && ratio <= number(&interval[1]), "{answer:#}");
    for costs in [before, after] {
        let causes = costs["causes"].as_array().expect("causes");
        let sum: f64 = causes.iter().map(|cause| number(&cause["predicted_s"])).sum();
        assert!((sum / number(&costs["total_s"]) - 1.0).abs() < 1e-9, "{costs:#}");
        assert!(number(&costs["end_s"]) > 1.87, "its own thinking is kept: {costs:#}");
    }
    assert!(answer["safety"][0].as_str().is_some_and(|text| text.contains("15 syncs")), "{answer:#}");
    assert_eq!(answer["changes"][0]["change"], "--fsync every=16");
    assert_eq!(fs::read(dir.trace()).unwrap(), bytes, "the trace stays as it is");

    let text = whatif(&dir, &["--fsync", "every=16", "--merge", "64K"]).success().stdout;
    for part in ["--merge 64K: ", "BEFORE", "less safe", "fsync", "time in calls", "\nothers "] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn another_release_has_its_laws_and_one_that_nobody_measured_is_said() {
    let dir = Dir::new();
    trace(&dir);
    let total = |release| number(&asked(&dir, &["--kernel", release])["after"]["total_s"]);
    // Its stamps are those of the tick, and ext4 writes single pages.
    assert_ne!(total("6.1"), total("6.18"));
    assert_eq!(whatif(&dir, &["--kernel", "6.12"]).success().stderr, "");
    whatif(&dir, &["--kernel", "5.15"]).success().says("laws by the sources of 5.15, not verified on 5.15");
    let notes = |release| asked(&dir, &["--kernel", release])["notes"][0].as_str().map(str::to_owned);
    assert_eq!(notes("9.9").as_deref(), Some("laws by the sources of 6.18, not verified on 9.9"));
    assert_eq!(notes("6.12"), None);
    whatif(&dir, &["--kernel", "new"]).code(2).says("give one as 6.12");
}

#[test]
fn changes_are_made_in_order_and_of_the_files_they_name() {
    let dir = Dir::new();
    trace(&dir);
    // Durable writes of a file whose syncs are gone.
    let durable = asked(&dir, &["--fsync", "none", "--dsync", "on", "--on", "*.db"]);
    assert_eq!(durable["changes"][1]["change"], "--dsync on --on *.db");
    // As `run --try` takes them, and both together.
    assert_eq!(asked(&dir, &["fsync=none,dsync,on=*.db"]), durable);
    assert_eq!(asked(&dir, &["fsync=none", "--dsync", "on", "on=*.db"]), durable);
    whatif(&dir, &["buffer"]).code(2).says("write it as buffer=SIZE");
    let of_log = asked(&dir, &["--fsync", "none", "--on", "*.log"]);
    assert_eq!((of_log["changes"][0]["calls"].as_u64(), &of_log["ratio"]), (Some(0), &Value::from(1.0)));
    let dropped = asked(&dir, &["--drop", "*.log", "--think", "0"]);
    assert_eq!(calls(&dropped["after"], "write"), 200);
    assert!(number(&dropped["after"]["end_s"]) < number(&dropped["before"]["end_s"]) / 2.0, "{dropped:#}");
    let merged = asked(&dir, &["--only", "*.log", "--merge", "4K"]);
    assert_eq!(calls(&merged["after"], "write"), 4);

    let each = asked(&dir, &["--fsync", "none", "--fdatasync", "--warm", "--each"]);
    let each = each["each"].as_array().expect("a list");
    let named: Vec<&str> = each.iter().filter_map(|one| one["change"].as_str()).collect();
    assert_eq!(named, ["--fsync none", "--fdatasync", "--warm"]);
    assert!(number(&each[0]["ratio"]) < number(&each[1]["ratio"]), "{each:#?}");
    let text = whatif(&dir, &["--fsync", "none", "--fdatasync", "--each"]).success().stdout;
    assert!(text.contains("--fsync none") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn another_machine_and_its_constants() {
    let dir = Dir::new();
    trace(&dir);
    let total = |changes: &[&str]| number(&asked(&dir, changes)["after"]["total_s"]);
    assert!(total(&["--set", "device.fsync=20ms"]) > 10.0 * total(&["--set", "device.fsync=20us"]));
    let answer = asked(&dir, &["--sensitivity"]);
    let constants = answer["sensitivity"].as_array().expect("constants");
    let is_listed = |name: &str| constants.iter().any(|one| one["constant"] == name);
    assert!(is_listed("device.queue") && is_listed("memory.hot_size"), "{answer:#}");
    let first = constants[0]["constant"].as_str().expect("a name");
    assert!(first.starts_with("device.") && number(&constants[0]["effect"]) > 0.01, "{answer:#}");
    // Changes of the machine are told, and start from another machine wherever that stands.
    let profile = dir.path().join("machine.toml");
    fs::write(&profile, HostProfile::uncalibrated().to_toml()).unwrap();
    let (limits, profile) = (["--limits", "64K,128K"], ["--profile", profile.to_str().unwrap()]);
    let asked_text = whatif(&dir, &limits).success().stdout;
    assert!(asked_text.contains("--limits 64K,128K: of the machine"), "{asked_text}");
    let small = ["--fsync", "none", "--think", "0"];
    let [before, after] = [[limits, profile], [profile, limits]].map(|order| {
        let answer = asked(&dir, &[&small[..], &order.concat()].concat());
        assert_eq!(answer["changes"][2]["calls"], Value::Null, "{answer:#}");
        number(&answer["after"]["total_s"])
    });
    assert_eq!(before, after);
    assert!(before > 1.1 * total(&[&small[..], &profile].concat()), "the limits count");
    // A factor that cannot grow.
    let answer = asked(&dir, &["--set", "memory.flush_factor=1", "--sensitivity"]);
    let constants = answer["sensitivity"].as_array().expect("constants");
    let factor = constants.iter().find(|one| one["constant"] == "memory.flush_factor").expect("it is listed");
    assert!(number(&factor["factor"]) < 1.0, "{factor:#}");
    // Limits far below what is written.
    let throttled =
        asked(&dir, &["--only", "*.db", "--fsync", "none", "--think", "0", "--limits", "64K,128K"]);
    let causes = throttled["after"]["causes"].as_array().expect("causes");
    assert!(causes.iter().any(|cause| cause["name"] == "throttle"), "{throttled:#}");
    let limits = ["--dirty-ratio", "10,40", "--ram", "384G", "--expire", "5s"];
    assert!(asked(&dir, &limits)["ratio"].is_number());
}

/// Which part of a machine matters, for one trace and for several.
#[test]
fn parts_of_the_machine() {
    let dir = Dir::new();
    trace(&dir);
    let part = |answer: &Value, name: &str, of: &str| {
        let parts = answer["parts"].as_array().expect("parts");
        number(&parts.iter().find(|one| one["part"] == name).expect("it is listed")[of])
    };
    // 1 % on what each commit takes is nearly 1 % on all, and less on what the program thinks besides.
    let one = asked(&dir, &["--sensitivity"]);
    let (total, elapsed) = (part(&one, "device flush", "total"), part(&one, "device flush", "elapsed"));
    assert!((0.5..=1.0).contains(&total) && elapsed > 0.0 && elapsed < total, "{one:#}");
    assert!(part(&one, "memory speed", "total").abs() < 0.1, "{one:#}");
    let faster = asked(&dir, &["--scale", "flush=0.5"]);
    assert!((0.4..0.8).contains(&number(&faster["ratio"])), "{faster:#}");
    // Another device: of two traces each has its own.
    let held = asked(&dir, &["--fsync", "none", "--think", "0", "--limits", "64K,128K", "--sensitivity"]);
    assert!(part(&held, "dirty limits", "total") < -0.001, "{held:#}");
    assert!(number(&held["ratio"]) < 1.0 && held["interval"].is_array(), "{held:#}");
    let path = dir.trace();
    let also = path.to_str().expect("a readable path");
    let two = asked(&dir, &["--sensitivity", "--also", also]);
    assert_eq!((&two["traces"], &two["parts"]), (&2.into(), &one["parts"]));
    assert_eq!(number(&two["before"]["total_s"]), 2.0 * number(&one["before"]["total_s"]));
    let changed = asked(&dir, &["--fsync", "none", "--sensitivity", "--also", also]);
    assert!(number(&changed["ratio"]) < 1.0 && changed["interval"].is_null(), "{changed:#}");
    let text = whatif(&dir, &["--sensitivity", "--also", also]).success().stdout;
    assert!(text.contains("PART +10 %") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    whatif(&dir, &["--fsync", "none", "--also", also]).code(2).says("--sensitivity");
}

#[test]
fn wrong_changes_are_refused_with_a_remedy() {
    let dir = Dir::new();
    trace(&dir);
    for (changes, says) in [
        (&[][..], "name a change"),
        (&["--on", "*.db"], "--on limits the change"),
        (&["--merge", "0"], "more than zero"),
        (&["--fsync", "sometimes"], "every=N, end, none or close"),
        (&["--set", "device.speed=1"], "device.writeback"),
        (&["--set", "device.fsync"], "NAME=VALUE"),
        (&["--set", "device.fsync=5"], "a time with its unit, as 200us or 5ms"),
        (&["--set", "memory.flush_factor=2"], "memory.flush_factor must be above 0 and at most 1"),
        (&["--limits", "2G,1G"], "below the hard limit"),
        (&["--dirty-ratio", "40,10"], "the lower first"),
        (&["--cgroup", "1G"], "max=SIZE"),
        (&["--think", "-1"], "0 or more"),
        (&["--writers", "1000"], "1 to 256"),
        (&["--sync", "maybe"], "on or off"),
        (&["--no-think", "--on", "*.db"], "of whole programs"),
        (&["--think", "2", "--on", "*.db"], "of whole programs"),
        (&["--writers", "2", "--on", "*.db"], "of whole programs"),
        (&["--set", "device.write=5ms"], "a rate with its unit, as 2G"),
        (&["--ram", "1K"], "64M or more"),
        (&["--limits", "1G,2G", "--ram", "8G"], "the one or the other"),
        (&["--scale", "disk=2"], "there is no part `disk`; there are bandwidth"),
    ] {
        whatif(&dir, changes).code(2).says(says);
    }
    whatif(&dir, &["--profile", "/nowhere.toml"]).code(1).says("cannot read the profile /nowhere.toml");
    let mut nothing = dir.cawl(&["whatif", "/nowhere.trace", "--warm"]);
    nothing.current_dir(dir.work());
    Running::start(nothing).finish().code(1).says("cannot read the trace /nowhere.trace");
    // What remains of a damaged trace has no calls.
    let bytes = fs::read(dir.trace()).unwrap();
    fs::write(dir.trace(), &bytes[..bytes.len() * 2 / 3]).unwrap();
    whatif(&dir, &["--warm"]).code(1).says("the trace is damaged").says("no calls that have a cost");
}

/// Behind the parts of --pace, else of 8 MiB.
#[test]
fn what_is_behind_the_writer_is_dropped() {
    let dir = Dir::new();
    trace(&dir);
    let calls = |changes: &[&str]| {
        let answer = asked(&dir, changes);
        let changes = answer["changes"].as_array().expect("changes").iter();
        changes.map(|change| change["calls"].as_u64().expect("a count")).collect::<Vec<_>>()
    };
    let database = ["--on", "*.db"];
    let paced = |size| [&["--pace", size][..], &database, &["--dontneed"], &database].concat();
    assert_eq!(calls(&paced("64K")), [12, 11]);
    assert_eq!(calls(&paced("200K")), [4, 3]);
    assert_eq!(calls(&["--dontneed"]), [0]);
}
