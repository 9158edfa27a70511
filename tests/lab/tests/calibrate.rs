//! `cawl-cli calibrate` on emulated disks and on the filesystems people have.
//!
//! - the constants of each emulated disk come out of it
//! - it works on ext4, xfs and tmpfs and for ordinary users, and refuses with a remedy where it cannot
//! - whatever ends it, nothing is left behind and no setting is changed
#![forbid(unsafe_code)]

mod util;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use cawl_core::{HostProfile, Origin};
use cawl_lab::{DiskSpec, EmulatedDisk, Filesystem};
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use serde_json::Value;
use util::{LAB, Started, alone, cli, content, eventually, json, limits, possible, refused, stop};

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

fn disk(spec: &str, filesystem: Filesystem) -> EmulatedDisk {
    EmulatedDisk::bring_up(Path::new(LAB), spec.parse().unwrap(), filesystem, None).unwrap()
}

/// What the disk delivers at the moment, measured without `calibrate`: each constant, several times.
#[derive(Default)]
struct Delivered {
    /// Bytes per second by which calls of 4 MiB take longer than calls of 1 MiB.
    write: Vec<f64>,
    read: Vec<f64>,
    /// Nanoseconds of a small direct write, and of a flush.
    latency: Vec<f64>,
    flush: Vec<f64>,
}

impl Delivered {
    /// Measures some more.
    fn measure(&mut self, folder: &Path) {
        const SIZES: [usize; 2] = [1 << 20, 4 << 20];
        let path = folder.join("probe");
        let open = |flags: OFlag| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false).custom_flags(flags.bits());
            options.open(&path).unwrap()
        };
        let (synchronous, direct) = (open(OFlag::O_DIRECT | OFlag::O_SYNC), open(OFlag::O_DIRECT));
        let mut memory = vec![1; SIZES[1] + 4096];
        let aligned = memory.as_ptr().align_offset(4096);
        let data = &mut memory[aligned..aligned + SIZES[1]];
        let timed = |call: &mut dyn FnMut() -> std::io::Result<()>| {
            let start = Instant::now();
            call().unwrap();
            start.elapsed().as_secs_f64() * 1e9
        };
        let slope = |times: [f64; 2]| 1e9 * (SIZES[1] - SIZES[0]) as f64 / (times[1] - times[0]);
        const ROUNDS: usize = 3;
        let page = 4096;
        let mut at = 0;
        for _ in 0..2 {
            let (mut writes, mut reads, mut latencies, mut flushes) = ([0.0; 2], [0.0; 2], 0.0, 0.0);
            // The first call finds a place for the file, and each first one after another kind pays for the jump.
            synchronous.write_all_at(&data[..page], at).unwrap();
            for _ in 0..ROUNDS {
                at += page as u64;
                let start = at;
                for (size, total) in SIZES.into_iter().zip(&mut writes) {
                    *total += timed(&mut || synchronous.write_all_at(&data[..size], at));
                    at += size as u64;
                }
                direct.read_exact_at(&mut data[..page], start - page as u64).unwrap();
                let mut from = start;
                for (size, total) in SIZES.into_iter().zip(&mut reads) {
                    *total += timed(&mut || direct.read_exact_at(&mut data[..size], from));
                    from += size as u64;
                }
                direct.write_all_at(&data[..page], start).unwrap();
                latencies += timed(&mut || direct.write_all_at(&data[..page], start + page as u64));
                flushes += timed(&mut || direct.sync_data());
            }
            self.write.push(ROUNDS as f64 * slope(writes));
            self.read.push(ROUNDS as f64 * slope(reads));
            self.latency.push(latencies / ROUNDS as f64);
            self.flush.push(flushes / ROUNDS as f64);
        }
        fs::remove_file(path).unwrap();
    }

    /// True if a figure is within `tolerance` and `slack` of the constant, or of what is `shown` of it: while
    /// the machine does other work, the disk is not as fast as it is told to be.
    fn allows(shown: &[f64], constant: f64, figure: f64, tolerance: f64, slack: f64) -> bool {
        let shown = shown.iter().copied().filter(|value| *value > 0.0);
        let (low, high) =
            shown.fold((constant, constant), |(low, high), value| (value.min(low), value.max(high)));
        figure >= low * (1.0 - tolerance) - slack && figure <= high * (1.0 + tolerance) + slack
    }
}

#[test]
fn the_constants_of_emulated_disks_come_out() {
    if !possible() {
        return;
    }
    let _alone = alone();
    for (name, spec) in [("ssd", DiskSpec::SSD), ("hdd", DiskSpec::HDD), ("nvme", DiskSpec::NVME)] {
        let home = tempfile::tempdir().unwrap();
        // What other programs on the machine do comes in bursts, so each constant has a few chances. Each is a disk
        // brought up anew: it measures its own overhead then, and a bad moment makes all of its life too fast.
        let mut missing = Vec::new();
        for attempt in 0..5 {
            let disk = EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::Ext4, None).unwrap();
            // Three processes are woken on the way to the disk and back. On virtual processors that can take as
            // long again as it does at best, or twice.
            let slack = 2.0 * disk.floor().get();
            let arguments = ["--quick", "--max-seconds=14", "--max-bytes=1G", "--lower-limits", "--json"];
            let mut delivered = Delivered::default();
            delivered.measure(disk.mount_point());
            let found = json(&calibrate(disk.mount_point(), home.path(), &arguments).output().unwrap());
            delivered.measure(disk.mount_point());
            let device = &found["profile"]["device"];
            let extra = &found["extra"];
            let write = &delivered.write[..];
            let figures = [
                ("write", &device["write"], write, spec.write.get(), 0.1, 0.0),
                ("transfer", &extra["transfer"], write, spec.write.get(), 0.1, 0.0),
                ("read", &device["read"], &delivered.read, spec.read.get(), 0.1, 0.0),
                ("latency", &extra["latency"], &delivered.latency, spec.latency.get(), 0.1, slack),
                ("flush", &extra["flush"], &delivered.flush, spec.flush.get(), 0.1, slack),
                ("seek", &device["seek"], &[], spec.seek.get(), 0.1, slack),
                // The rate of writeback is not that of the disk, but near it where the disk is slow.
                ("writeback", &device["writeback"], write, spec.write.get(), 0.2, 0.0),
            ];
            let mut still = Vec::new();
            for (what, figure, shown, constant, tolerance, slack) in figures {
                let figure = figure["value"].as_f64().unwrap_or(f64::NAN);
                eprintln!(
                    "{name}, attempt {attempt}: {what} {figure:.0}, is {constant:.0}, shown {shown:.0?}"
                );
                // The processors that emulate 2 GB/s also write back, copy and run other tests: the rate of writeback is
                // what they leave, which may be less than the disk's.
                let excused = name == "nvme" && what == "writeback" && figure < constant;
                if !Delivered::allows(shown, constant, figure, tolerance, slack) && !excused {
                    still.push(what);
                }
            }
            // The kernel keeps it for the loop device from one disk to the next, so it may be anything.
            assert!(device["base_rate"]["samples"].as_u64() >= Some(1), "{name}: {device:#}");
            if attempt == 0 {
                missing = still;
            } else {
                missing.retain(|what| still.contains(what));
            }
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{name}: not within 10 %: {missing:?}");
    }
}

#[test]
fn filesystems_get_what_they_allow() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let kinds = [("ext4", Filesystem::Ext4), ("xfs", Filesystem::Xfs), ("btrfs", Filesystem::Btrfs)];
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    for (name, filesystem) in kinds {
        if !util::installed(&format!("mkfs.{name}")) {
            continue;
        }
        if !known.lines().any(|line| line.trim() == name) {
            util::skipped(&format!("this kernel has no {name}"));
            continue;
        }
        let disk = disk("ssd,size=2", filesystem);
        let home = tempfile::tempdir().unwrap();
        let found = json(&calibrate(disk.mount_point(), home.path(), &BRIEF).output().unwrap());
        assert_eq!(found["place"]["filesystem"], name);
        for constant in ["write", "read", "writeback", "sync_call", "fsync", "seek"] {
            let samples = found["profile"]["device"][constant]["samples"].as_u64();
            assert!(samples >= Some(1), "{name}: {constant} was not measured: {found:#}");
        }
        for constant in ["fresh", "cached", "hot", "stream", "flush_factor", "cached_flush_factor"] {
            let samples = found["profile"]["memory"][constant]["samples"].as_u64();
            assert!(samples >= Some(1), "{name}: {constant} was not measured");
        }
        assert_eq!(content(disk.mount_point()), Vec::<String>::new());
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

#[test]
fn what_it_found_is_used_and_can_be_checked() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let disk = disk("ssd,size=2", Filesystem::Ext4);
    let home = tempfile::tempdir().unwrap();
    json(&calibrate(disk.mount_point(), home.path(), &BRIEF).output().unwrap());
    let report = home.path().join("report.json");
    let run = Command::new(cli())
        .arg("run")
        .arg("--report")
        .arg(&report)
        .args(["--no-calibrate", "--", "true"])
        .current_dir(disk.mount_point())
        .env("XDG_DATA_HOME", home.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["profile"]["origin"], "calibrated", "{:#}", report["profile"]);

    let check = ["--check", "--max-bytes=256M", "--max-seconds=6"];
    // A machine with other work to do may look changed once.
    let holds =
        (0..4).any(|_| calibrate(disk.mount_point(), home.path(), &check).status().unwrap().success());
    assert!(holds, "the profile did not hold a moment later");
    let [file] = &profiles(home.path())[..] else { panic!("not one profile") };
    let mut other = HostProfile::from_toml(&fs::read_to_string(file).unwrap()).unwrap();
    other.device.read.value = other.device.read.value * 5.0;
    (other.device.read.p10, other.device.read.p90) = (None, None);
    fs::write(file, other.to_toml()).unwrap();
    let output = calibrate(disk.mount_point(), home.path(), &check).output().unwrap();
    refused(&output, "calibrate again");
    assert!(String::from_utf8_lossy(&output.stdout).contains("changed"));
    fs::write(file, "schema = 1").unwrap();
    refused(&calibrate(disk.mount_point(), home.path(), &check).output().unwrap(), "cannot use the profile");
}

#[test]
fn folders_that_cannot_be_used_are_refused_with_a_remedy() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let home = tempfile::tempdir().unwrap();
    let disk = disk("ssd,size=0.5", Filesystem::Ext4);
    let at = disk.mount_point();
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
fn ordinary_users_are_served_too() {
    if !possible() || !util::installed("setpriv") {
        return;
    }
    let _alone = alone();
    let disk = disk("ssd,size=2", Filesystem::Ext4);
    let own = disk.mount_point().join("own");
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
    refused(&as_nobody(disk.mount_point(), &BRIEF), "a folder of yours");
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
        let mut child = Started::by(&mut calibrate(disk.mount_point(), home.path(), &["--thorough"]));
        eventually("the folder is made", || !content(disk.mount_point()).is_empty());
        stop(&mut child, signal);
        assert_eq!(content(disk.mount_point()), Vec::<String>::new());
    }
    // While the limits are lowered.
    let arguments = ["--quick", "--max-seconds=6", "--max-bytes=512M", "--lower-limits"];
    let mut child = Started::by(&mut calibrate(disk.mount_point(), home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGINT);
    assert_eq!(limits(), before);
    assert_eq!(content(disk.mount_point()), Vec::<String>::new());
    // Killed: the next one puts everything right, whether it lowers them or not.
    let mut child = Started::by(&mut calibrate(disk.mount_point(), home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGKILL);
    assert!(!content(disk.mount_point()).is_empty());
    let mut next = Started::by(&mut calibrate(disk.mount_point(), home.path(), &arguments));
    assert!(next.wait().unwrap().success());
    assert_eq!(limits(), before);
    assert_eq!(content(disk.mount_point()), Vec::<String>::new());
    assert_eq!(profiles(home.path()).len(), 1);
    let mut child = Started::by(&mut calibrate(disk.mount_point(), home.path(), &arguments));
    eventually("the limits are lowered", || limits() != before);
    stop(&mut child, Signal::SIGKILL);
    let next = calibrate(disk.mount_point(), home.path(), &BRIEF).output().unwrap();
    assert!(json(&next)["notes"].to_string().contains("were put back"));
    assert_eq!(limits(), before);
}

#[test]
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
