//! The emulated disk as its users see it: speeds and times from outside, content, and what is left of it.
//!
//! Needs root, /dev/fuse and loop devices; says `SKIPPED:` where one of them is missing.
#![forbid(unsafe_code)]

mod util;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cawl_core::{Bytes, Nanos};
use cawl_host::direct::AlignedBuffer;
use cawl_lab::{DiskSpec, EmulatedDisk, Filesystem, LimitsGuard};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use util::{LAB, alone, close, direct, mounted, possible, sysctl};

const SMALL: usize = 4 << 10;
/// One request however scattered the memory is: a loop device takes 128 segments in one.
const LARGE: usize = 512 << 10;

/// The constants that a user of the block device finds, one request at a time.
struct Seen {
    write: f64,
    read: f64,
    latency: f64,
    seek: f64,
    flush: f64,
}

/// A figure that neighbours on the machine can only make worse: the best of several attempts.
fn nearest(expected: f64, mut measure: impl FnMut() -> f64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..40 {
        let figure = measure();
        if (figure - expected).abs() < (best - expected).abs() {
            best = figure;
        }
        // Near enough, or within 3 µs of nothing.
        if close(best, expected, 0.05) || (best - expected).abs() < 3e3 {
            break;
        }
    }
    best
}

/// Time of a request that no other program delayed: the first decile of `count`, in ns.
fn undisturbed(count: usize, mut request: impl FnMut(usize)) -> f64 {
    let mut times: Vec<f64> = (0..count)
        .map(|index| {
            let start = cawl_host::now();
            request(index);
            cawl_host::now().since(start).get()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[count / 10]
}

/// Requests to a device, one after another.
struct Requests {
    file: File,
    buffer: AlignedBuffer,
    at: u64,
}

/// Bytes of a large request besides those of a small one.
const EXTRA: f64 = (LARGE - SMALL) as f64;

impl Requests {
    fn to(device: &Path) -> Requests {
        Requests { file: direct(device), buffer: AlignedBuffer::new(LARGE), at: 0 }
    }

    fn transfer(&mut self, write: bool, size: usize, jump: bool) {
        let bytes = &mut self.buffer.bytes_mut()[..size];
        self.at = if jump { (self.at + (3 << 30) + 4096) % (30 << 30) } else { self.at };
        let (file, at) = (&self.file, self.at);
        let done = if write { file.write_all_at(bytes, at) } else { file.read_exact_at(bytes, at) };
        done.unwrap();
        self.at += size as u64;
    }

    /// Time that a large request takes longer than a small one, in ns.
    fn extra_time(&mut self, write: bool) -> f64 {
        self.transfer(write, SMALL, false);
        let small = undisturbed(60, |_| self.transfer(write, SMALL, false));
        undisturbed(25, |_| self.transfer(write, LARGE, false)) - small
    }
}

fn look(device: &Path, spec: &DiskSpec) -> Seen {
    let mut requests = Requests::to(device);
    let mut rate =
        |write: bool, expected: f64| nearest(expected, || EXTRA / (requests.extra_time(write) / 1e9));
    let write = rate(true, spec.write.get());
    let read = rate(false, spec.read.get());
    let transfer_time = SMALL as f64 / write * 1e9;
    let latency = nearest(spec.latency.get(), || {
        requests.transfer(true, SMALL, false);
        undisturbed(100, |_| requests.transfer(true, SMALL, false)) - transfer_time
    });
    let seek = nearest(spec.seek.get(), || {
        undisturbed(20, |_| requests.transfer(true, SMALL, true)) - transfer_time - latency
    });
    let flush = nearest(spec.flush.get(), || undisturbed(20, |_| requests.file.sync_all().unwrap()));
    Seen { write, read, latency, seek, flush }
}

#[test]
fn speeds_and_times_are_those_asked_for() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let custom: DiskSpec = "250,400,3,2,read=300".parse().unwrap();
    let bare: DiskSpec = "1000000,0,0,0".parse().unwrap();
    let bare = EmulatedDisk::bring_up(Path::new(LAB), bare, Filesystem::None, None).unwrap();
    for (name, spec) in
        [("ssd", DiskSpec::SSD), ("hdd", DiskSpec::HDD), ("nvme", DiskSpec::NVME), ("custom", custom)]
    {
        // A disk measures its own overhead when it is brought up; a bad moment is with it all its life.
        // So each figure has a few chances.
        let mut off = what_is_off(name, &spec, bare.device());
        for _ in 0..9 {
            if off.is_empty() {
                break;
            }
            let still = what_is_off(name, &spec, bare.device());
            off.retain(|what| still.contains(what));
        }
        assert!(off.is_empty(), "{name}: not within 10 %: {off:?}");
    }
}

/// The figures of a new disk that are not what was asked for. `bare` is a disk without any pacing: a disk takes off
/// what that costs when it is brought up, so what it costs more or less later is not the disk's fault.
fn what_is_off(name: &str, spec: &DiskSpec, bare: &Path) -> Vec<&'static str> {
    let mut costs = [Vec::new(), Vec::new()];
    let mut look_aside = || {
        let mut requests = Requests::to(bare);
        for (write, costs) in [true, false].into_iter().zip(&mut costs) {
            costs.push(requests.extra_time(write));
        }
    };
    look_aside();
    let disk = EmulatedDisk::bring_up(Path::new(LAB), *spec, Filesystem::None, None).unwrap();
    look_aside();
    let seen = look(disk.device(), spec);
    look_aside();
    let [drift_of_writes, drift_of_reads] = costs.map(|costs| {
        costs.iter().copied().fold(0.0, f64::max) - costs.iter().copied().fold(f64::INFINITY, f64::min)
    });
    // Three processes are woken on the way. On virtual processors that can take as long again as it does at best, or
    // twice.
    let slack = 2.0 * disk.floor().get();
    let extra_time = |rate: f64| EXTRA / rate * 1e9;
    let figures = [
        ("write", extra_time(seen.write), extra_time(spec.write.get()), drift_of_writes),
        ("read", extra_time(seen.read), extra_time(spec.read.get()), drift_of_reads),
        ("latency", seen.latency, spec.latency.get(), slack),
        ("flush", seen.flush, spec.flush.get(), slack),
        ("seek", seen.seek, spec.seek.get(), slack),
    ];
    let mut off = Vec::new();
    for (what, figure, expected, slack) in figures {
        eprintln!("{name}: {what} {figure:.0} ns, asked for {expected:.0}, the machine's part {slack:.0}");
        if (figure - expected).abs() > expected * 0.1 + slack {
            off.push(what);
        }
    }
    off
}

#[test]
fn what_is_written_is_read_back() {
    if !possible() {
        return;
    }
    let _alone = alone();
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        if filesystem == Filesystem::Xfs && !util::installed("mkfs.xfs") {
            continue;
        }
        let spec = "2000,10,0,0.1,size=2".parse().unwrap();
        let disk = EmulatedDisk::bring_up(Path::new(LAB), spec, filesystem, None).unwrap();
        let path = disk.mount_point().join("file");
        let content: Vec<u8> =
            (0..20_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // Past the page cache, so from the disk.
        let file = direct(&path);
        let mut buffer = AlignedBuffer::new(LARGE);
        for start in (0..content.len() - LARGE).step_by(LARGE) {
            file.read_exact_at(buffer.bytes_mut(), start as u64).unwrap();
            assert!(buffer.bytes() == &content[start..start + LARGE], "{filesystem:?} at {start}");
        }
    }
}

#[test]
fn dirty_limits_are_lowered_and_put_back() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let before = {
        // Nobody else has them lowered while this is held.
        let guard = LimitsGuard::lower(Path::new(LAB), Bytes::mib(500), Bytes::mib(600)).unwrap();
        assert_eq!(sysctl("dirty_background_bytes"), Bytes::mib(500).0);
        assert_eq!(sysctl("dirty_bytes"), Bytes::mib(600).0);
        drop(guard);
        ["dirty_background_ratio", "dirty_ratio"].map(sysctl)
    };
    assert!(before.iter().all(|ratio| *ratio != 0) || sysctl("dirty_bytes") != Bytes::mib(600).0);
}

/// Runs this test binary again as a user of a disk, which tells where its disk is.
fn victim(ending: &str) -> (std::process::Child, PathBuf, PathBuf) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_user_of_a_disk", "--nocapture", "--ignored"])
        .env("CAWL_LAB_ENDING", ending)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let told =
        out.lines().map_while(Result::ok).find_map(|line| line.strip_prefix("DISK ").map(str::to_owned));
    let told = told.expect("the child brings up its disk");
    let (mount, device) = told.split_once(' ').unwrap();
    (child, PathBuf::from(mount), PathBuf::from(device))
}

#[test]
#[ignore = "is run by the tests below, in a process of its own"]
fn the_user_of_a_disk() {
    let Ok(ending) = std::env::var("CAWL_LAB_ENDING") else { return };
    let spec = "100,10,0,0.1,size=1".parse().unwrap();
    let limits = Some((Bytes::mib(400), Bytes::mib(700)));
    let disk = EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::Ext4, limits).unwrap();
    // Dirty pages that are still to be written when the end comes.
    fs::write(disk.mount_point().join("file"), vec![1; 30 << 20]).unwrap();
    println!("DISK {} {}", disk.mount_point().display(), disk.device().display());
    std::io::stdout().flush().unwrap();
    if ending == "panic" {
        panic!("as a test does");
    }
    // Until the other end closes it, or a signal comes.
    drop(std::io::stdin().lines().next());
}

fn nothing_is_left(mount: &Path) {
    util::eventually(&format!("{} is gone", mount.display()), || {
        !mounted(mount) && !mount.parent().unwrap().exists() && sysctl("dirty_bytes") != Bytes::mib(700).0
    });
}

#[test]
fn nothing_is_left_after_a_panic_or_a_signal() {
    if !possible() {
        return;
    }
    let _alone = alone();
    for ending in ["panic", "INT", "TERM", "KILL"] {
        let (mut child, mount, device) = victim(ending);
        assert!(ending == "panic" || mounted(&mount));
        let pid = Pid::from_raw(child.id() as i32);
        match ending {
            "INT" => kill(pid, Signal::SIGINT).unwrap(),
            "TERM" => kill(pid, Signal::SIGTERM).unwrap(),
            "KILL" => kill(pid, Signal::SIGKILL).unwrap(),
            _ => {}
        }
        child.wait().unwrap();
        nothing_is_left(&mount);
        let backing = fs::read_to_string(
            Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file"),
        );
        let ours = mount.parent().unwrap();
        assert!(!backing.is_ok_and(|file| Path::new(file.trim()).starts_with(ours)), "{ending}");
    }
}

#[test]
fn a_killed_disk_is_cleaned_up_by_the_next() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let spec: DiskSpec = "1000,10,0,0.1,size=1".parse().unwrap();
    let disk = EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::Ext4, None).unwrap();
    let mount = disk.mount_point().to_owned();
    kill(Pid::from_raw(disk.pid() as i32), Signal::SIGKILL).unwrap();
    drop(disk);
    assert!(mounted(&mount));
    drop(EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::None, None).unwrap());
    nothing_is_left(&mount);
}

#[test]
fn a_queue_overlaps_latencies() {
    if !possible() {
        return;
    }
    let _alone = alone();
    // With one request at a time 64 requests of 4 ms would take four times as long as with four.
    let time = |depth: u32| {
        let spec = DiskSpec { latency: Nanos::millis(4.0), depth, ..DiskSpec::SSD };
        let disk = EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::None, None).unwrap();
        let device = disk.device().to_owned();
        let start = cawl_host::now();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let file = direct(&device);
                std::thread::spawn(move || {
                    let buffer = AlignedBuffer::new(SMALL);
                    for i in 0..16_u64 {
                        file.write_all_at(buffer.bytes(), thread << 30 | i << 20).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        cawl_host::now().since(start).get()
    };
    let (one, four) = (time(1), time(4));
    assert!(one > four * 2.0, "one at a time {one} ns, four at a time {four} ns");
}
