//! `calibrate --from`: what equal machines know is what a new machine's first answer begins with.

use std::fs;
use std::path::{Path, PathBuf};

use cawl_core::{HostProfile, MachineKind, Measured, Nanos, Origin, Rate, Thoroughness};
use serde_json::Value;

use cawl_kit::{Dir, Finished, Running};

/// `calibrate` as on a new machine, with a folder `fleet` beside the working one.
fn calibrate(dir: &Dir, args: &[&str]) -> Finished {
    let mut command = dir.newcomers_cawl(&["calibrate"]);
    command.args(args);
    Running::start(command).finish()
}

fn profile_of(dir: &Dir) -> Option<(PathBuf, HostProfile)> {
    let entries = fs::read_dir(dir.path().join("home/.local/share/cawl/profiles")).ok()?.flatten();
    let file =
        entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "toml"))?;
    let profile =
        HostProfile::from_toml(&fs::read_to_string(&file).expect("it is there")).expect("a profile");
    Some((file, profile))
}

/// What tells this machine's kind, by a calibration that is as short as any.
fn this_machine(dir: &Dir) -> HostProfile {
    let file = dir.path().join("this.toml");
    calibrate(dir, &["--brief", "-o", file.to_str().expect("a readable path")]).success();
    let profile =
        HostProfile::from_toml(&fs::read_to_string(&file).expect("it is there")).expect("a profile");
    assert!(profile.machine.as_ref().is_some_and(|machine| !machine.storage.is_empty()), "{profile:?}");
    profile
}

/// A profile of a machine like this one, whose essential constants are so many times as good as fixed ones.
fn like(this: &HostProfile, times: f64) -> HostProfile {
    let HostProfile { machine, kernel, .. } = this.clone();
    let mut profile =
        HostProfile { machine, kernel, origin: Origin::Calibrated, ..HostProfile::uncalibrated() };
    profile.device.filesystem = this.device.filesystem;
    profile.measured = Some(Thoroughness::Normal);
    let rate = |mb: f64| Measured { samples: 9, ..Measured::assumed(Rate::mb_per_second(mb * times)) };
    (profile.memory.fresh, profile.memory.cached) = (rate(3000.0), rate(5000.0));
    (profile.device.write, profile.device.writeback, profile.device.read) =
        (rate(200.0), rate(210.0), rate(300.0));
    // As no machine has it, so that a prediction tells where it comes from.
    profile.device.fsync = Measured { samples: 9, ..Measured::assumed(Nanos::seconds(3.0 / times)) };
    profile
}

fn put(folder: &Path, name: &str, profile: &HostProfile) {
    let file = folder.join(name);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a new folder");
    fs::write(file, profile.to_toml()).expect("a new file");
}

/// Four machines like this one.
fn fleet(dir: &Dir, this: &HostProfile) -> PathBuf {
    let folder = dir.path().join("fleet");
    for (name, times) in [("rack1/a", 0.9), ("rack1/b", 1.0), ("rack2/c", 1.0), ("rack2/d", 1.1)] {
        let mut profile = like(this, times);
        // Each has a file of its own.
        profile.created = Some(1_700_000_000 + (100.0 * times) as u64 + u64::from(name.ends_with('b')));
        put(&folder, &format!("{name}.toml"), &profile);
    }
    folder
}

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:#?}"))
}

#[test]
fn the_first_answer_begins_with_what_equal_machines_know() {
    let dir = Dir::new();
    let this = this_machine(&dir);
    let folder = fleet(&dir, &this);
    put(&folder, "failing.toml", &like(&this, 0.1));
    let mut other = like(&this, 1.0);
    other.machine = Some(MachineKind { processor: Some("another".into()), storage: "tape".into() });
    put(&folder, "other.toml", &other);
    let text = like(&this, 1.3).to_toml();
    fs::write(folder.join("cut.toml"), &text[..text.len() / 2]).expect("a new file");
    fs::write(folder.join("later.toml"), text.replace("schema = 1", "schema = 99")).expect("a new file");
    let from = folder.to_str().expect("a readable path");
    let finished = calibrate(&dir, &["--from", from, "--no-check", "--json"]).success();
    let finished = finished.says("cut.toml: line ").says("later.toml: the profile has schema 99");
    let found = json(&finished);
    assert_eq!(found["merged"], serde_json::json!(["rack1/a", "rack1/b", "rack2/c", "rack2/d"]));
    let [odd] = &found["outliers"].as_array().expect("a list")[..] else { panic!("{found:#}") };
    assert_eq!(odd["label"], "failing");
    assert!(odd["off"].to_string().contains("device.fsync"), "{odd:#}");
    assert_eq!(
        (&found["others"], &found["holds"], &found["seconds"]),
        (&1.into(), &true.into(), &Value::Null)
    );
    assert_eq!(found["skipped"].as_array().map(Vec::len), Some(2));
    assert_eq!((&found["checked"], &found["unsure"]), (&false.into(), &serde_json::json!([])));
    let (_, profile) = profile_of(&dir).expect("it was written");
    assert_eq!((profile.origin, profile.merged, profile.measured), (Origin::Prior, 4, None));
    let fsync = profile.device.fsync;
    assert!((fsync.value.as_seconds() / 3.0 - 1.0).abs() < 0.01 && fsync.samples == 4, "{fsync:?}");
    let (p10, p90) = (fsync.p10.expect("known"), fsync.p90.expect("known"));
    assert!(p10 < fsync.value * 0.9 && p90 > fsync.value * 1.1 && p90 < fsync.value * 2.0, "{fsync:?}");

    // As on a new machine: nothing is calibrated, and the prediction is that of the prior.
    let report = dir.path().join("report.json");
    let mut run = dir.newcomers_cawl(&["run", "--report"]);
    run.arg(&report).args(["--", "dd", "if=/dev/zero", "of=f", "bs=4k", "count=1", "conv=fsync"]);
    let finished = Running::start(run).finish().success();
    assert!(!finished.stderr.contains("calibrating "), "{finished:#?}");
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).expect("a report")).expect("JSON");
    assert_eq!((&report["profile"]["origin"], &report["profile"]["merged"]), (&"prior".into(), &4.into()));
    let in_memory = this.device.filesystem.is_some_and(|kind| kind.is_in_memory());
    let predicted = report["models"][0]["calibrated"]["predicted_s"].as_f64().expect("a number");
    assert!(in_memory || (2.5..4.0).contains(&predicted), "{predicted} s");
    let mut show = dir.newcomers_cawl(&["profile"]);
    show.arg("show");
    Running::start(show).finish().success().says("prior of 4 profiles");
    let mut told = dir.newcomers_cawl(&["run"]);
    told.args(["--no-save", "--", "true"]);
    Running::start(told).finish().success().says("(from 4 equal machines");
}

#[test]
fn a_machine_that_is_not_like_them_is_told() {
    let dir = Dir::new();
    let this = this_machine(&dir);
    let folder = dir.path().join("fleet");
    for (name, times) in [("a.toml", 0.04), ("b.toml", 0.05), ("c.toml", 0.06)] {
        put(&folder, name, &like(&this, times));
    }
    let from = folder.to_str().expect("a readable path");
    let finished =
        calibrate(&dir, &["--from", from]).code(1).says("not like the others: no profile was written");
    assert!(finished.stdout.contains("differs") && finished.stdout.contains("memory.fresh"), "{finished:#?}");
    assert!(profile_of(&dir).is_none());
    // What was measured here is kept, if it is no mere meeting.
    calibrate(&dir, &["--from", from, "--no-check"]).success();
    let (file, _) = profile_of(&dir).expect("it was written");
    let own = like(&this, 1.0).to_toml();
    fs::write(&file, &own).expect("a profile");
    calibrate(&dir, &["--from", from, "--no-check"]).code(1).says("has a calibration of its own");
    calibrate(&dir, &["--brief"]).code(1).says("was measured for longer");
    assert_eq!(fs::read_to_string(&file).expect("it is there"), own);
}

#[test]
fn a_short_measurement_narrows_what_others_know() {
    let dir = Dir::new();
    let this = this_machine(&dir);
    let folder = dir.path().join("fleet");
    // Three machines as this one is, but for what it has no time to measure.
    for (at, name) in ["a.toml", "b.toml", "c.toml"].into_iter().enumerate() {
        let mut profile = HostProfile { measured: Some(Thoroughness::Normal), ..this.clone() };
        profile.created = Some(at as u64);
        profile.memory.cold_share = Some(Measured { samples: 3, ..Measured::assumed(0.5) });
        put(&folder, name, &profile);
    }
    let from = folder.to_str().expect("a readable path");
    let finished = calibrate(&dir, &["--from", from, "--json"]);
    let found = json(&finished);
    // On a busy machine two measurements may differ so much that they are of two machines.
    if found["holds"] == true {
        let (_, profile) = profile_of(&dir).expect("it was written");
        assert_eq!(
            (profile.origin, profile.measured, profile.merged),
            (Origin::Prior, Some(Thoroughness::Brief), 3)
        );
        let names = profile.essential();
        let of = |name: &str| profile.value(name).map_or(0, |of| of.samples);
        // Nor is anything narrowed by what disturbed measurements tell (`prior::tests` has the rule).
        if !names.iter().any(|(name, _)| of(name) > 3) {
            eprintln!("SKIPPED: this machine is too busy for a short measurement to narrow anything");
        }
    } else {
        finished.code(1).says("no profile was written");
    }
}

#[test]
fn where_nothing_is_to_be_merged_the_remedy_is_told() {
    let dir = Dir::new();
    let this = this_machine(&dir);
    let folder = dir.path().join("fleet");
    fs::create_dir(&folder).expect("a new folder");
    let from = folder.to_str().expect("a readable path");
    calibrate(&dir, &["--from", from]).code(1).says("there is no measured profile in");
    calibrate(&dir, &["--from", "missing"]).code(1).says("cannot read the folder missing");
    calibrate(&dir, &["--from", "/proc/self/stat"]).code(2).says("is a file; --from takes a folder");
    let mut other = like(&this, 1.0);
    other.machine = Some(MachineKind { processor: Some("another".into()), storage: "tape".into() });
    put(&folder, "other.toml", &other);
    let output = ["--from", from, "-o", "fleet/../fleet/other.toml"];
    let mut command = dir.newcomers_cawl(&["calibrate"]);
    Running::start({
        command.args(output).current_dir(dir.path());
        command
    })
    .finish()
    .code(2)
    .says("would overwrite");
    let finished =
        calibrate(&dir, &["--from", from]).code(1).says("of a machine like this one; the nearest one");
    assert!(
        finished.stderr.contains("theirs another") && finished.stderr.contains("theirs tape"),
        "{finished:#?}"
    );
    for wrong in [&["--from", from, "--quick"][..], &["--from", from, "--check"], &["--no-check"]] {
        calibrate(&dir, wrong).code(2);
    }
    assert!(profile_of(&dir).is_none());
}
