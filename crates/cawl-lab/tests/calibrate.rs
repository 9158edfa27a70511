//! `cawl-cli calibrate` on emulated disks and on the filesystems people have.
//!
//! - it works on ext4, xfs and tmpfs and for ordinary users, and refuses with a remedy where it cannot
//! - whatever ends it, nothing is left behind and no setting is changed

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::util::{LAB, Started, alone, beside_others, cli, content, json, limits, possible, refused, stop};
use cawl_core::{HostProfile, Origin};
use cawl_kit::{eventually, find, skipped};
use cawl_lab::emulated::Lab;
use cawl_lab::{Filesystem, emulated_disk};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A calibration in `folder`, its data in `home`.
fn calibrate(folder: &Path, home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(cli());
    command.arg("calibrate").arg(folder).args(arguments).env("XDG_DATA_HOME", home).env("HOME", home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Hardly more than one repeat of everything.
const BRIEF: [&str; 4] = ["--quick", "--max-seconds=4", "--max-bytes=256M", "--json"];

fn profiles(home: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(home.join("cawl/profiles"));
    let files = folder.into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect()
}

fn disk(spec: &str, filesystem: Filesystem) -> Lab {
    emulated_disk(Path::new(LAB), spec.parse().unwrap(), filesystem, None).unwrap()
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn filesystems_get_what_they_allow() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let kinds = [("ext4", Filesystem::Ext4), ("xfs", Filesystem::Xfs), ("btrfs", Filesystem::Btrfs)];
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    for (name, filesystem) in kinds {
        if find(&format!("mkfs.{name}")).is_none() {
            continue;
        }
        if !known.lines().any(|line| line.trim() == name) {
            skipped(&format!("this kernel has no {name}"));
            continue;
        }
        let disk = disk("ssd,size=2", filesystem);
        let home = tempfile::tempdir().unwrap();
        let found = json(&calibrate(&disk.ready.mount, home.path(), &BRIEF).output().unwrap());
        assert_eq!(found["place"]["filesystem"], name);
        for constant in ["write", "read", "writeback", "sync_call", "fsync", "seek"] {
            let samples = found["profile"]["device"][constant]["samples"].as_u64();
            assert!(samples >= Some(1), "{name}: {constant} was not measured: {found:#}");
        }
        for constant in ["fresh", "cached", "hot", "stream", "flush_factor"] {
            let samples = found["profile"]["memory"][constant]["samples"].as_u64();
            assert!(samples >= Some(1), "{name}: {constant} was not measured");
        }
        assert_eq!(content(&disk.ready.mount), Vec::<String>::new());
        let [file] = &profiles(home.path())[..] else { panic!("not one profile") };
        let profile = HostProfile::from_toml(&fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(profile.origin, Origin::Calibrated);
        assert!(profile.created.is_some());
    }
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let home = tempfile::tempdir().unwrap();
    let found = json(&calibrate(memory.path(), home.path(), &BRIEF).output().unwrap());
    assert_eq!(found["place"]["backing"], "memory");
    assert_eq!(found["profile"]["device"]["write"]["samples"], 0);
    assert!(found["profile"]["memory"]["fresh"]["samples"].as_u64() >= Some(1));
    assert!(found["notes"].to_string().contains("no device"), "{found:#}");
    assert_eq!(content(memory.path()), Vec::<String>::new());
}

/// Where bytes take long, bursts are short: what they take whatever their length is not laid to their bytes.
#[test]
fn a_brief_calibration_finds_no_faster_disk_than_there_is() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let disk = disk("120,100,0,1,size=2", Filesystem::Ext4);
    let home = tempfile::tempdir().unwrap();
    let found = json(&calibrate(&disk.ready.mount, home.path(), &["--brief", "--json"]).output().unwrap());
    let rate = &found["profile"]["device"]["writeback"];
    // A busy machine may make it slower, or leave no time; nothing makes it faster.
    let measured = rate["samples"].as_u64() >= Some(1);
    assert!(!measured || rate["value"].as_f64().unwrap() < 1.25 * 120e6, "{rate:#}");
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn what_it_found_is_used_and_can_be_checked() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let disk = disk("ssd,size=2", Filesystem::Ext4);
    let home = tempfile::tempdir().unwrap();
    json(&calibrate(&disk.ready.mount, home.path(), &BRIEF).output().unwrap());
    let report = home.path().join("report.json");
    let run = Command::new(cli())
        .arg("run")
        .arg("--report")
        .arg(&report)
        .args(["--no-calibrate", "--", "true"])
        .current_dir(&disk.ready.mount)
        .env("XDG_DATA_HOME", home.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["profile"]["origin"], "calibrated", "{:#}", report["profile"]);

    let check = ["--check", "--max-bytes=256M", "--max-seconds=4"];
    let [file] = &profiles(home.path())[..] else { panic!("not one profile") };
    let mut other = HostProfile::from_toml(&fs::read_to_string(file).unwrap()).unwrap();
    // By more than any load explains.
    other.device.read.value = other.device.read.value * 1000.0;
    (other.device.read.p10, other.device.read.p90) = (None, None);
    fs::write(file, other.to_toml()).unwrap();
    let output = calibrate(&disk.ready.mount, home.path(), &check).output().unwrap();
    refused(&output, "calibrate again");
    assert!(String::from_utf8_lossy(&output.stdout).contains("changed"));
    fs::write(file, "schema = 1").unwrap();
    refused(&calibrate(&disk.ready.mount, home.path(), &check).output().unwrap(), "cannot use the profile");
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn folders_that_cannot_be_used_are_refused_with_a_remedy() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let home = tempfile::tempdir().unwrap();
    let disk = disk("ssd,size=0.5", Filesystem::Ext4);
    let at = &disk.ready.mount;
    refused(&calibrate(&at.join("missing"), home.path(), &BRIEF).output().unwrap(), "existing folder");

    // Nearly full: refused, or done within what is free.
    let filler = fs::File::create(at.join("filler")).unwrap();
    let free = || {
        let stat = nix::sys::statvfs::statvfs(at).unwrap();
        stat.blocks_available() * stat.fragment_size()
    };
    let fill = |leave: u64| {
        let length = filler.metadata().unwrap().len() + free() - leave;
        nix::fcntl::posix_fallocate(&filler, 0, length as i64).unwrap();
    };
    fill(100 << 20);
    json(&calibrate(at, home.path(), &BRIEF).output().unwrap());
    fill(20 << 20);
    refused(&calibrate(at, home.path(), &BRIEF).output().unwrap(), "free some space");
    assert_eq!(content(at), ["filler"]);

    drop(filler);
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(at).status().unwrap();
    assert!(remount.success());
    refused(&calibrate(at, home.path(), &BRIEF).output().unwrap(), "read-only");
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn ordinary_users_are_served_too() {
    if !possible() || find("setpriv").is_none() {
        return;
    }
    let _others = beside_others();
    let disk = disk("ssd,size=2", Filesystem::Ext4);
    let own = disk.ready.mount.join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    let as_nobody = |folder: &Path, arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(cli())
            .arg("calibrate")
            .arg(folder)
            .args(arguments)
            .env("XDG_DATA_HOME", &own)
            .output()
            .unwrap()
    };
    // Not allowed to write there.
    refused(&as_nobody(&disk.ready.mount, &BRIEF), "a folder of yours");
    let found = json(&as_nobody(&own, &BRIEF));
    for constant in ["write", "writeback", "fsync"] {
        assert!(found["profile"]["device"][constant]["samples"].as_u64() >= Some(1), "{constant}");
    }
    assert_eq!(content(&own), ["cawl"]);
    let limits: Vec<&str> = BRIEF.into_iter().chain(["--lower-limits"]).collect();
    refused(&as_nobody(&own, &limits), "root");
    assert_eq!(content(&own), ["cawl"]);
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn nothing_is_left_when_it_is_interrupted() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let disk = disk("ssd,size=2", Filesystem::Ext4);
    let home = tempfile::tempdir().unwrap();
    let before = limits();
    // As soon as it has begun.
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut child = Started::by(&mut calibrate(&disk.ready.mount, home.path(), &["--thorough"]));
        eventually("the folder is made", || !content(&disk.ready.mount).is_empty());
        stop(&mut child, signal);
        assert_eq!(content(&disk.ready.mount), Vec::<String>::new());
    }
    // While the limits are lowered.
    let arguments = ["--quick", "--max-seconds=3", "--max-bytes=256M", "--lower-limits"];
    let mut child = Started::by(&mut calibrate(&disk.ready.mount, home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGINT);
    assert_eq!(limits(), before);
    assert_eq!(content(&disk.ready.mount), Vec::<String>::new());
    // Killed: the next one puts everything right, whether it lowers them or not.
    let mut child = Started::by(&mut calibrate(&disk.ready.mount, home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGKILL);
    assert!(!content(&disk.ready.mount).is_empty());
    let mut next = Started::by(&mut calibrate(&disk.ready.mount, home.path(), &arguments));
    assert!(next.wait().unwrap().success());
    assert_eq!(limits(), before);
    assert_eq!(content(&disk.ready.mount), Vec::<String>::new());
    assert_eq!(profiles(home.path()).len(), 1);
    let mut child = Started::by(&mut calibrate(&disk.ready.mount, home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGKILL);
    let next = calibrate(&disk.ready.mount, home.path(), &BRIEF).output().unwrap();
    assert!(json(&next)["notes"].to_string().contains("were put back"));
    assert_eq!(limits(), before);
}

#[test]
#[ignore = "long: calibrates for seconds, again and again"]
fn existing_files_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["memory", "device", ".cawl-calibrate-notes", ".cawl-calibrate-1"];
    for name in names {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let home = tempfile::tempdir().unwrap();
    json(&calibrate(folder.path(), home.path(), &BRIEF).output().unwrap());
    let mut left = content(folder.path());
    left.sort();
    let mut expected = names.map(str::to_owned);
    expected.sort();
    assert_eq!(left, expected);
    for name in names {
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), name);
    }
}
