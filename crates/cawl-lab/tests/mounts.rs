//! `cawl-cli calibrate` where there is no disk of its own under a folder: on an overlay, and on a filesystem
//! in user space, which is like one over a network. Each gets what it allows, and a word about the rest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::util::{LAB, beside_others, cli, content, json, possible};
use cawl_lab::{Filesystem, emulated_disk, network_mount};
use serde_json::Value;
use tempfile::TempDir;

/// What a brief calibration of a folder finds; nothing is left there.
fn calibrated(folder: &Path) -> Value {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(cli());
    command.arg("calibrate").arg(folder).args(["--quick", "--max-seconds=4", "--max-bytes=256M", "--json"]);
    let found = json(&command.env("XDG_DATA_HOME", home.path()).env("HOME", home.path()).output().unwrap());
    assert_eq!(content(folder), Vec::<String>::new());
    found
}

/// How many samples a constant rests on.
fn samples(found: &Value, constant: &str) -> u64 {
    let constant = constant.split('.').fold(&found["profile"], |part, name| &part[name]);
    constant["samples"].as_u64().unwrap_or(0)
}

/// An overlay whose upper layer lies in a folder; unmounted when dropped.
struct Overlay(TempDir);

impl Overlay {
    fn mount(upper: &Path) -> Overlay {
        let overlay = Overlay(tempfile::tempdir().unwrap());
        let part = |name: &str| {
            let folder = upper.join(name);
            fs::create_dir(&folder).unwrap();
            folder.display().to_string()
        };
        let layers =
            format!("lowerdir={},upperdir={},workdir={}", part("lower"), part("upper"), part("work"));
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &layers]).arg(overlay.0.path());
        assert!(mount.status().unwrap().success(), "the overlay could not be mounted");
        overlay
    }

    fn folder(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0.path()).status());
    }
}

#[test]
#[ignore = "long: calibrates for seconds"]
fn an_overlay_on_a_disk_has_the_constants_of_both() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let spec = "ssd,size=2".parse().unwrap();
    let disk = emulated_disk(Path::new(LAB), spec, Filesystem::Ext4, None).unwrap();
    let overlay = Overlay::mount(&disk.ready.mount);
    let found = calibrated(&overlay.folder());
    assert_eq!(
        (&found["place"]["filesystem"], &found["place"]["backing"]),
        (&"overlay".into(), &"stacked".into())
    );
    assert!(found["notes"].to_string().contains("lies on another one"), "{found:#}");
    for constant in ["memory.fresh", "device.write", "device.writeback", "device.sync_call", "device.fsync"] {
        assert!(samples(&found, constant) >= 1, "{constant} was not measured: {found:#}");
    }
}

#[test]
#[ignore = "long: calibrates for seconds"]
fn an_overlay_in_memory_has_no_device() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let overlay = Overlay::mount(memory.path());
    let found = calibrated(&overlay.folder());
    assert!(samples(&found, "memory.fresh") >= 1);
    // Nothing is ever written back there, and the profile must not say otherwise.
    assert_eq!(samples(&found, "device.writeback"), 0, "{found:#}");
    assert!(found["notes"].to_string().contains("in memory"), "{found:#}");
}

#[test]
#[ignore = "long: calibrates for seconds"]
fn a_filesystem_in_user_space_is_measured_as_what_is_elsewhere() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let measured = |writeback: bool| {
        let policy = if writeback { "write-back" } else { "write-through" };
        // A way that no other work makes to look short.
        let spec = format!("3ms,200MB/s,policy={policy}").parse().unwrap();
        let mount = network_mount(Path::new(LAB), spec, None).unwrap();
        let found = calibrated(&mount.ready.mount);
        assert_eq!(found["place"]["backing"], "network");
        let constants =
            ["memory.fresh", "device.write", "device.latency", "device.sync_call", "device.fsync"];
        let names = ["open", "create", "close", "truncate", "rename", "unlink"];
        let of_network = names.map(|name| format!("device.network.{name}"));
        for constant in constants.map(str::to_owned).iter().chain(&of_network) {
            assert!(samples(&found, constant) >= 1, "{constant}, {writeback}: {found:#}");
        }
        // Without a cache that keeps what is written, each call goes to the other side, and nobody flushes.
        assert!(writeback || samples(&found, "device.writeback") == 0, "{found:#}");
        assert_eq!(samples(&found, "device.network.call") >= 1, writeback, "{found:#}");
        assert_eq!(found["profile"]["device"]["network"]["policy"], policy);
        // As the kernel bounds any such mount.
        let device = &found["profile"]["device"];
        assert_eq!((&device["max_ratio"], &device["strict_limit"]), (&0.01.into(), &true.into()));
        assert_eq!(device["commit"], 0.0);
    };
    std::thread::scope(|threads| {
        threads.spawn(|| measured(false));
        measured(true);
    });
}

/// What costs depend on is not asked of a server unasked, so that `run` says what it does not know.
#[test]
#[ignore = "long: calibrates for seconds"]
fn a_mount_that_was_not_measured_is_named() {
    if !possible() {
        return;
    }
    let _others = beside_others();
    let mount = network_mount(Path::new(LAB), "3ms,200MB/s".parse().unwrap(), None).unwrap();
    let (folder, home) = (&mount.ready.mount, tempfile::tempdir().unwrap());
    let cawl = |arguments: &[&str]| {
        let mut command = Command::new(cli());
        command.args(arguments).current_dir(folder).env("XDG_DATA_HOME", home.path()).env("TMPDIR", folder);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let run = || cawl(&["run", "--", "true"]);
    let told = run();
    let named = format!("the mount {} (fuse) is not measured", folder.display());
    assert_eq!(told.matches(&named).count(), 1, "{told}");
    assert!(told.contains(&format!("cawl-cli calibrate {}", folder.display())), "{told}");
    assert!(!cawl(&["run", "--no-calibrate", "--", "true"]).contains("is not measured"));
    cawl(&["calibrate", ".", "--quick", "--max-seconds=3", "--max-bytes=64M"]);
    assert!(!run().contains("is not measured"));
}
