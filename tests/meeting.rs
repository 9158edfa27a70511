//! First meetings: a device is measured once, before the program starts, and every failure is harmless.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cawl_core::{HostProfile, Thoroughness};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use serde_json::Value;

use cawl_kit::{Dir, LIMIT, Running, built, eventually, find, skipped};

/// The start of the message.
const SAYS: &str = "calibrating ";
/// In the note of a measurement that `run` no longer waits for.
const LATE: &str = "had not answered";

/// Held during a measurement: several at the same time would take too long.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `run` as on a new machine.
fn command(dir: &Dir, args: &[&str]) -> Command {
    let mut command = dir.newcomers_cawl(&["run", "--report"]);
    command.arg(dir.path().join("report.json")).args(args);
    command
}

/// Starts it. A busy machine may take long to measure.
fn run(dir: &Dir, args: &[&str]) -> Running {
    patient(command(dir, args))
}

/// Starts a command that waits as long for a measurement as the test for the command.
fn patient(mut command: Command) -> Running {
    command.env("CAWL_TEST_PATIENCE", LIMIT.as_secs().to_string());
    Running::start(command)
}

fn report(dir: &Dir) -> Value {
    let text = fs::read_to_string(dir.path().join("report.json")).expect("a report");
    serde_json::from_str(&text).expect("it is JSON")
}

/// All profiles.
fn profiles(dir: &Dir) -> Vec<PathBuf> {
    in_folder(dir, "toml")
}

/// Files beside the profiles.
fn in_folder(dir: &Dir, kind: &str) -> Vec<PathBuf> {
    let folder = dir.path().join("home/.local/share/cawl/profiles");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == kind)).collect()
}

/// There is one profile. A lock stays only where no time was left for a part of it, as on a busy machine.
fn has_no_lock_but_of_a_part(dir: &Dir) {
    let [file] = &profiles(dir)[..] else { panic!("not one profile") };
    let profile = HostProfile::from_toml(&fs::read_to_string(file).expect("it is there")).expect("a profile");
    assert_eq!(in_folder(dir, "lock").is_empty(), profile.unmeasured().is_empty());
}

/// True if the folders of measurements are empty.
fn is_clean(dir: &Dir) -> bool {
    ["tmp", "work"].iter().all(|name| fs::read_dir(dir.path().join(name)).expect("a folder").count() == 0)
}

/// The process that measures for this one.
fn helper(of: Pid) -> Pid {
    let mut found = None;
    eventually("a process that measures", || {
        let processes = fs::read_dir("/proc").expect("there is /proc").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        found = pids.map(Pid::from_raw).find(|pid| {
            let of_process = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let status = String::from_utf8_lossy(&of_process("status")).into_owned();
            let is_child = status.lines().any(|line| line == format!("PPid:\t{of}"));
            is_child && String::from_utf8_lossy(&of_process("cmdline")).contains("--brief")
        });
        found.is_some()
    });
    found.expect("it was found")
}

#[test]
fn it_is_measured_once() {
    let dir = Dir::new();
    let _alone = alone();
    let first = run(&dir, &["--", "true"]).finish().success().says(", once: ");
    assert_eq!(first.stderr.matches(SAYS).count(), 1, "{first:#?}");
    assert_eq!(report(&dir)["profile"]["measured"], "brief");
    let [file] = &profiles(&dir)[..] else { panic!("not one profile") };
    let profile = HostProfile::from_toml(&fs::read_to_string(file).expect("it is there")).expect("a profile");
    assert_eq!((profile.measured, profile.contradicted), (Some(Thoroughness::Brief), 0));
    assert!(profile.created.is_some(), "{profile:#?}");
    assert!(is_clean(&dir));

    let second = run(&dir, &["--", "true"]).finish().success();
    assert_eq!(second.stderr.contains(SAYS), !profile.unmeasured().is_empty(), "{second:#?}");
    assert_eq!(report(&dir)["profile"]["origin"], "calibrated");
}

/// As of a first meeting on a busy machine.
#[test]
fn what_no_time_was_left_for_is_named_and_measured_again() {
    let dir = Dir::new();
    let _alone = alone();
    run(&dir, &["--", "true"]).finish().success();
    let [file] = &profiles(&dir)[..] else { panic!("not one profile") };
    let mut profile =
        HostProfile::from_toml(&fs::read_to_string(file).expect("it is there")).expect("a profile");
    profile.device.fsync.samples = 0;
    fs::write(file, profile.to_toml()).expect("a profile");
    in_folder(&dir, "lock").iter().for_each(|lock| fs::remove_file(lock).expect("it is there"));
    let told = Running::start(command(&dir, &["--no-calibrate", "--", "true"])).finish().success();
    assert!(!told.stderr.contains(SAYS), "{told:#?}");
    let unmeasured = report(&dir)["profile"]["unmeasured"].to_string();
    assert!(unmeasured.contains("device.fsync"), "{unmeasured}");
    run(&dir, &["--", "true"]).finish().success().says(" again: ");
}

#[test]
fn it_is_not_measured_where_nobody_wants_that() {
    let dir = Dir::new();
    let program = dir.work().join("none");
    fs::write(dir.work().join("p.toml"), HostProfile::uncalibrated().to_toml()).expect("a new file");
    for args in [
        &["--no-calibrate", "--", "true"][..],
        &["--profile", "p.toml", "--", "true"],
        &["--", program.to_str().expect("a readable path")],
    ] {
        let finished = run(&dir, args).finish();
        assert!(!finished.stderr.contains(SAYS), "{finished:#?}");
    }
    assert_eq!(profiles(&dir), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupt_meanwhile_leaves_nothing() {
    let _alone = alone();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let dir = Dir::new();
        let mut running = run(&dir, &["--", "touch", "started"]);
        running.stderr_until(SAYS);
        let helper = helper(running.pid());
        match signal {
            Signal::SIGINT => running.signal_group(signal),
            // The measuring process must notice by itself.
            signal => running.signal(signal),
        }
        running.finish().signal(signal);
        eventually("the measurement ends", || kill(helper, None).is_err());
        assert!(is_clean(&dir));
        assert_eq!(profiles(&dir), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_device_that_does_not_answer_delays_the_program_twice() {
    let dir = Dir::new();
    for _ in 0..2 {
        let running = Running::start(command(&dir, &["--", "touch", "started"]));
        kill(helper(running.pid()), Signal::SIGSTOP).expect("it is there");
        running.finish().success();
        assert!(dir.work().join("started").exists());
        let notes = report(&dir)["notes"].to_string();
        assert!(notes.contains(": not calibrated: ") && notes.contains(LATE), "{notes}");
    }
    let third = run(&dir, &["--", "true"]).finish().success();
    assert!(!third.stderr.contains(SAYS), "{third:#?}");
}

#[test]
fn a_measurement_that_failed_is_tried_again() {
    let _alone = alone();
    let dir = Dir::new();
    let mut failed = command(&dir, &["--", "true"]);
    // No process for the measurement.
    failed.env("CAWL_TEST_PATIENCE", "0");
    Running::start(failed).finish().success().says(SAYS);
    run(&dir, &["--", "true"]).finish().success().says(SAYS);
    has_no_lock_but_of_a_part(&dir);
}

#[test]
fn of_two_runs_one_measures() {
    let _alone = alone();
    let dir = Dir::new();
    let started = ["one.txt", "two.txt"].map(|report| {
        let mut command = dir.newcomers_cawl(&["run", "--report"]);
        command.args([report, "--", "true"]);
        patient(command)
    });
    let said = started.map(|running| running.finish().success().stderr);
    assert_eq!(said.concat().matches(SAYS).count(), 1, "{said:#?}");
    has_no_lock_but_of_a_part(&dir);
}

#[test]
fn a_profile_that_is_no_longer_true_is_measured_again() {
    let _alone = alone();
    let dir = Dir::new();
    run(&dir, &["--", "true"]).finish().success();
    let [file] = &profiles(&dir)[..] else { panic!("not one profile") };
    let read = || HostProfile::from_toml(&fs::read_to_string(file).expect("it is there")).expect("a profile");
    let mut profile = read();
    profile.contradicted = 2;
    profile.created = Some(1);
    // A busy machine may have left out a part.
    profile.measured = Some(Thoroughness::Quick);
    // A constant that is never measured.
    profile.memory.hot_size = cawl_core::Bytes(4242);
    fs::write(file, profile.to_toml()).expect("it is ours");
    assert!(!run(&dir, &["--", "true"]).finish().success().stderr.contains(SAYS));
    profile.contradicted = 3;
    fs::write(file, profile.to_toml()).expect("it is ours");
    run(&dir, &["--", "true"]).finish().success().says(SAYS);
    let again = read();
    assert!(again.created > Some(1));
    assert_eq!((again.contradicted, again.memory.hot_size.0), (0, 4242));
}

/// Disks in files: one with enough space, a small one, and a read-only one.
#[test]
fn devices_among_the_arguments_are_measured_if_they_may_be() {
    if !geteuid().is_root() {
        skipped("only root can mount a disk");
        return;
    }
    if find("mkfs.ext4").is_none() {
        return;
    }
    let _alone = alone();
    let dir = Dir::new();
    let disks = [("roomy", "2G", "loop"), ("small", "64M", "loop"), ("fixed", "2G", "loop,ro")];
    let mut script = String::from("set -e");
    for (name, size, options) in disks {
        fs::create_dir(dir.path().join(name)).expect("a new folder");
        script +=
            &format!("; rm -f $0/{name}.img; truncate -s {size} $0/{name}.img; mkfs.ext4 -q $0/{name}.img");
        script += &format!("; mount -o {options} $0/{name}.img $0/{name} || exit 42");
    }
    script += "; exec \"$@\"";
    let named = |name: &str| dir.path().join(name).join("new").into_os_string();
    let mut of = std::ffi::OsString::from("of=");
    of.push(named("roomy"));
    let mut command = dir.command("unshare");
    command.args(["--mount", "sh", "-c", &script]).arg(dir.path()).arg(built("cawl-cli"));
    command.args(["run", "--report"]).arg(dir.path().join("report.json"));
    command.args(["--", "true"]).args([&of, &named("small"), &named("fixed")]);
    let finished = patient(command).finish();
    if finished.status.code() == Some(42) {
        skipped("no disk in a file can be mounted here");
        return;
    }
    let finished = finished.success();
    assert_eq!(finished.stderr.matches(SAYS).count(), 2, "{finished:#?}");
    assert_eq!(profiles(&dir).len(), 2);
    let device = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-loop"));
    assert_eq!(profiles(&dir).iter().filter(|path| device(path)).count(), 1);
    let report = report(&dir);
    let notes: Vec<&str> =
        report["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    // A busy machine may have left out a part.
    let failed = |note: &&str| note.contains("not calibrated");
    assert!(!notes.iter().any(failed), "{notes:#?}");
}
