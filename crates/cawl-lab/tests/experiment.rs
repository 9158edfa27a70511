//! `cawl-lab experiment` on emulated disks.
//!
//! - pictures, page and tables come out, and recordings that `replay`, `fit` and `compare` read
//! - it refuses with a remedy where it cannot work
//! - interrupted, it leaves nothing behind: no file, no disk, no lowered limit; but what was recorded

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::util::{LAB, Started, alone, cli, content, json, limits, possible, refused, stop};
use cawl_core::HostProfile;
use cawl_kit::eventually;
use cawl_lab::emulated::Lab;
use cawl_lab::{Filesystem, emulated_disk};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// An experiment whose results go to `out` and whose other data to `home`.
fn experiment(home: &Path, out: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(LAB);
    command.arg("experiment").args(arguments).arg("--out").arg(out);
    command.env("XDG_DATA_HOME", home).env("HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Another command on the results.
fn command(program: impl AsRef<OsStr>, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// A profile of nothing in particular, so that nobody has to calibrate.
fn profile(home: &TempDir) -> String {
    let file = home.path().join("profile.toml");
    fs::write(&file, HostProfile::uncalibrated().to_toml()).unwrap();
    file.to_str().unwrap().to_owned()
}

fn disk(spec: &str) -> Lab {
    emulated_disk(Path::new(LAB), spec.parse().unwrap(), Filesystem::Ext4, None).unwrap()
}

#[test]
#[ignore = "long: whole experiments"]
fn one_command_calibrates_records_judges_and_draws() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("results");
    let before = limits();
    let small =
        ["fig6", "--disk", "ssd", "--scale", "small", "--limits", "24M,48M", "--settle", "0", "--json"];
    let found = json(&experiment(home.path(), &out, &small).output().unwrap());
    assert_eq!(limits(), before);

    let runs = found["figures"][0]["runs"].as_array().unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["fig6-A", "fig6-B", "fig6-C"]);
    for run in runs {
        assert!(run["observed_s"].as_f64() > Some(0.0) && run["floor"]["total"].is_f64(), "{run}");
        assert_eq!(run["models"].as_array().unwrap().len(), 3);
    }
    // The limits were those that were asked for, and the first run went beyond them.
    assert_eq!(found["limits"]["hard"], 48 << 20);
    assert!(runs[0]["bytes"].as_u64().unwrap() > 48 << 20);

    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    assert!(fs::read(out.join("fig6.png")).unwrap().starts_with(b"\x89PNG"));
    let picture = text("fig6.svg");
    assert!(picture.contains("throttling begins") && text("index.html").contains(picture.trim()));

    // The recordings are good for the other commands.
    let path = |name: &str| out.join(name).to_str().unwrap().to_owned();
    let report = json(&command(cli(), &["replay", "--json", &path("run1/fig6-A.cawl")]));
    assert_eq!(report["models"][0]["summary"]["calls"], runs[0]["calls"]);
    let fitted = path("fitted.toml");
    assert!(command(LAB, &["fit", &path("run1"), "-o", &fitted]).status.success());
    let profile = path("profile.toml");
    for profile in [&profile, &fitted] {
        let arguments = ["compare", &path("run1"), "--floor", &path("run2"), "--profile", profile, "--json"];
        let table = json(&command(LAB, &arguments));
        // Three models and the noise floor.
        assert_eq!(table["rows"].as_array().unwrap().len(), 3 * 4);
    }
}

#[test]
#[ignore = "long: whole experiments"]
fn every_experiment_can_be_recorded() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let disk = disk("nvme,size=4");
    let out = home.path().join("results");
    let arguments =
        ["all", "--path", disk.ready.mount.to_str().unwrap(), "--profile", &profile(&home), "--scale", "0.1"];
    let mut command = experiment(home.path(), &out, &arguments);
    let output = command.args(["--limits", "8M,16M", "--settle", "0", "--repeats", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for figure in ["fig4", "fig5", "fig6", "fig7", "fig8", "fig9"] {
        assert!(said.contains(&format!("{figure}-")), "no {figure} in {said}");
        assert!(out.join(format!("{figure}.svg")).is_file() && out.join(format!("{figure}.png")).is_file());
    }
    assert_eq!(content(&disk.ready.mount), Vec::<String>::new());
}

#[test]
fn places_that_cannot_be_used_are_refused_with_a_remedy() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let profile = profile(&home);
    let disk = disk("ssd,size=0.5");
    let at = disk.ready.mount.to_str().unwrap();
    let out = home.path().join("results");
    let run = |path: &str| {
        let arguments = ["fig6", "--path", path, "--limits", "64M,128M", "--profile", &profile];
        experiment(home.path(), &out, &arguments).output().unwrap()
    };
    // Four hard limits are 512 MiB: more than half of what is free.
    refused(&run(at), "--scale");
    refused(&run("/dev/shm"), "in memory");
    refused(&run("/missing"), "existing folder");
    assert!(!out.exists(), "results of nothing were left");
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(at).status().unwrap();
    assert!(remount.success());
    refused(&run(at), "read-only");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("mine"), "").unwrap();
    refused(&run(at), "not empty");
    assert_eq!(content(&out), ["mine"]);
}

#[test]
#[ignore = "long: whole experiments"]
fn nothing_but_results_is_left_when_it_is_interrupted() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let profile = profile(&home);
    let before = limits();
    let out = home.path().join("results");

    // While a run is being made.
    let disk = disk("ssd,size=4");
    let at = &disk.ready.mount;
    let common = ["fig6", "--limits", "32M,64M", "--profile", &profile];
    let arguments = [&common[..], &["--settle", "0", "--path", at.to_str().unwrap()]].concat();
    let mut child = Started::by(&mut experiment(home.path(), &out, &arguments));
    eventually("a run is made", || written(at).is_some());
    assert!(limits() != before);
    stop(&mut child, Signal::SIGINT);
    assert_eq!((limits(), out.exists()), (before, false));
    assert_eq!(content(at), Vec::<String>::new());

    // With a disk of its own.
    let arguments = [&common[..], &["--settle", "1", "--disk", "ssd"]].concat();
    let mut child = Started::by(&mut experiment(home.path(), &out, &arguments));
    eventually("the first run is saved", || out.join("run1/suite.json").exists());
    let served = children(child.id());
    assert!(!served.is_empty());
    stop(&mut child, Signal::SIGTERM);
    assert_eq!(limits(), before);
    assert!(!served.into_iter().any(cawl_host::is_running), "something still runs");
    // What was recorded until then can be looked at, and nobody takes it for all.
    let text = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let found: Value = serde_json::from_str(&text("results.json")).unwrap();
    assert_eq!(found["figures"][0]["runs"][0]["name"], "fig6-A");
    let missing = found["missing"].as_array().unwrap();
    assert!(missing.contains(&"fig6-A (1 of 2)".into()) && missing.contains(&"fig6-C".into()), "{missing:?}");
    assert!(text("index.html").contains("Not complete") && text("fig6.svg").contains("(A)"));
    assert!(fs::read(out.join("fig6.png")).unwrap().starts_with(b"\x89PNG"));
    let again = command(cli(), &["replay", "--json", out.join("run1/fig6-A.cawl").to_str().unwrap()]);
    assert!(json(&again)["models"].is_array());
}

/// The file of a run, if it has one by now with something in it.
fn written(folder: &Path) -> Option<PathBuf> {
    let scratch = content(folder).pop()?;
    let file = folder.join(scratch).join("data");
    fs::metadata(&file).is_ok_and(|meta| meta.len() > 0).then_some(file)
}

/// Processes that a process started and that still run.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    list.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
