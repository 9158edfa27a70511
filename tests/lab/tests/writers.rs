//! Many writers and several devices: the kernel model against this machine's kernel, on emulated disks under
//! lowered dirty limits.
//!
//! - four and eight threads, with files of their own and with one file
//! - a slow and a fast disk that share the limits
//! - a disk that is held to its own share (`strict_limit`, `max_ratio`)
//!
//! Needs root, /dev/fuse and loop devices; says `SKIPPED:` where one of them is missing.
#![forbid(unsafe_code)]

mod util;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use cawl_core::{
    Bytes, CostModel, DirtyLimits, HostProfile, Kernel, Measured, Nanos, OtherDevice, Rate, Time,
};
use cawl_lab::{DiskSpec, EmulatedDisk, Filesystem, LimitsGuard};
use cawl_wire::{Event, FileKind, Op};
use util::{LAB, alone, possible};

const CHUNK: usize = 1 << 20;
const LIMITS: DirtyLimits = DirtyLimits { background: Bytes::mib(48), hard: Bytes::mib(96) };

/// Writers that begin within this begin at once: below freerun there is work for as long.
const TOGETHER: Nanos = Nanos::millis(50.0);

/// A writer: its disk and file, where it begins in it, and how many chunks it writes.
#[derive(Clone, Debug)]
struct Writer {
    file: PathBuf,
    from: u64,
    chunks: u64,
}

/// What happened: every writer's calls in order.
struct Seen {
    calls: Vec<Vec<Event>>,
}

/// Lets the writers write, all at once, and the kernel tell of this alone. Other programs share the limits, so what
/// was seen while they wrote as well does not count; nor does a run in which a writer began so long before the others that
/// it was done before they counted, which is chance. None, and a line that says so, where they never rest.
fn observe(trace: &Tracepoints, writers: &[Writer]) -> Option<Seen> {
    let page = cawl_host::uncalibrated_profile().kernel.page.0;
    let dirtied = || cawl_host::sample().unwrap().dirtied * page;
    let own: u64 = writers.iter().map(|writer| writer.chunks * CHUNK as u64).sum();
    for _ in 0..10 {
        let files: Vec<File> = writers.iter().map(|writer| File::create(&writer.file).unwrap()).collect();
        nix::unistd::sync();
        trace.clear();
        let before = dirtied();
        let seen = write_all(writers, &files);
        let foreign = (dirtied() - before).saturating_sub(own);
        let starts = || seen.calls.iter().map(|calls| calls[0].start);
        let apart = Time(starts().max()?).since(Time(starts().min()?));
        if foreign <= own / 20 && apart <= TOGETHER {
            return Some(seen);
        }
        eprintln!("other programs wrote {foreign} B beside {own} B, the writers began {apart} apart");
    }
    util::skipped("other programs write, or take the processors, all the time");
    None
}

fn write_all(writers: &[Writer], files: &[File]) -> Seen {
    let start = Barrier::new(writers.len());
    std::thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = writers
            .iter()
            .zip(files)
            .zip(1..)
            .map(|((writer, file), tid)| scope.spawn(move || write(writer, file, tid, start)))
            .collect();
        Seen { calls: threads.into_iter().map(|thread| thread.join().unwrap()).collect() }
    })
}

fn write(writer: &Writer, file: &File, tid: u32, start: &Barrier) -> Vec<Event> {
    let data = vec![tid as u8; CHUNK];
    let meta = file.metadata().unwrap();
    start.wait();
    let call = |chunk: u64| {
        let mut event = Event::new(Op::Pwrite);
        event.offset = writer.from + chunk * CHUNK as u64;
        let began = cawl_host::now();
        file.write_all_at(&data, event.offset).unwrap();
        (event.start, event.duration) = (began.0, cawl_host::now().since(began).get() as u64);
        (event.pid, event.tid, event.dev, event.ino) = (1, tid, meta.dev(), meta.ino());
        (event.requested, event.returned, event.kind) = (CHUNK as u64, CHUNK as i64, FileKind::Regular);
        event
    };
    (0..writer.chunks).map(call).collect()
}

/// What a model makes of the same calls: each writer goes on when its last call is predicted to end.
fn replay(model: &mut Kernel, seen: &Seen) -> (Vec<f64>, Bytes) {
    let origin = seen.calls.iter().map(|calls| calls[0].start).min().unwrap();
    let mut clocks: Vec<u64> = seen.calls.iter().map(|calls| calls[0].start - origin).collect();
    let mut next = vec![0; clocks.len()];
    let mut peak = Bytes::ZERO;
    while let Some(who) =
        (0..clocks.len()).filter(|w| next[*w] < seen.calls[*w].len()).min_by_key(|w| clocks[*w])
    {
        let event = Event { start: clocks[who], duration: 0, ..seen.calls[who][next[who]] };
        let prediction = model.step(&event).unwrap();
        peak = peak.max(prediction.dirty);
        clocks[who] = (Time(clocks[who]) + prediction.cost).0;
        next[who] += 1;
    }
    (clocks.iter().map(|end| *end as f64 * 1e-9).collect(), peak)
}

/// When each writer was done, in seconds from the first call.
fn ends(seen: &Seen) -> Vec<f64> {
    let origin = seen.calls.iter().map(|calls| calls[0].start).min().unwrap();
    seen.calls.iter().map(|calls| (calls.last().unwrap().end() - origin) as f64 * 1e-9).collect()
}

/// The kernel's account of its throttling, in an instance of our own.
struct Tracepoints(PathBuf);

impl Tracepoints {
    /// None, and a line that says so, where the kernel's tracing cannot be had.
    fn listen() -> Option<Tracepoints> {
        let folder =
            Path::new("/sys/kernel/tracing/instances").join(format!("cawl-lab-{}", std::process::id()));
        if fs::create_dir(&folder).is_err() {
            util::skipped("no tracing; mount -t tracefs tracefs /sys/kernel/tracing");
            return None;
        }
        let listening = Tracepoints(folder);
        fs::write(listening.0.join("events/writeback/balance_dirty_pages/enable"), "1").unwrap();
        Some(listening)
    }

    /// A machine with these constants as the kernel's was when it first throttled a writer: the limit it goes by
    /// (it follows lowered limits slowly) and each device's base rate.
    fn model(&self, profile: &HostProfile) -> Kernel {
        let text = fs::read_to_string(self.0.join("trace")).unwrap();
        let first = |device: &str, key: &str| {
            let mut lines = text.lines().filter(|line| line.contains(device));
            let value =
                lines.find_map(|line| line.split_whitespace().find_map(|word| word.strip_prefix(key)));
            value.map(|number| number.parse::<u64>().unwrap())
        };
        let base = |dev: u64| {
            let device = format!("bdi {}:{}:", nix::sys::stat::major(dev), nix::sys::stat::minor(dev));
            let rate = first(&device, "dirty_ratelimit=");
            rate.map(|kib| Measured::assumed(Rate::per_second(kib as f64 * 1024.0)))
        };
        let mut profile = profile.clone();
        for other in &mut profile.others {
            other.constants.base_rate = base(other.dev);
        }
        let limit = Bytes(first("bdi", "limit=").unwrap_or_default() * 4096);
        profile.kernel.limits = DirtyLimits { hard: limit.max(LIMITS.hard), ..LIMITS };
        let mut model = Kernel::new(&profile);
        model.set_limits(LIMITS);
        model
    }

    /// Forgets what was told so far.
    fn clear(&self) {
        fs::write(self.0.join("trace"), "").unwrap();
    }
}

impl Drop for Tracepoints {
    fn drop(&mut self) {
        // At worst an idle instance is left until the next start.
        drop(fs::remove_dir(&self.0));
    }
}

/// Constants of these disks, and of the memory as the calls that nothing held back show it.
fn profile(disks: &[(u64, &DiskSpec)], seen: &Seen) -> HostProfile {
    let mut profile = HostProfile::uncalibrated();
    for (dev, spec) in disks {
        let mut constants = profile.device.clone();
        constants.writeback = Measured::assumed(spec.write);
        constants.write = Measured::assumed(spec.write);
        profile.others.push(OtherDevice { dev: *dev, constants });
    }
    let mut costs: Vec<u64> = seen.calls.iter().flatten().map(|call| call.duration).collect();
    costs.sort_unstable();
    let fresh = CHUNK as f64 / (costs[costs.len() / 10].max(1) as f64 * 1e-9);
    profile.memory.fresh = Measured::assumed(Rate::per_second(fresh));
    profile.memory.cached = Measured::assumed(Rate::per_second(fresh * 1.5));
    profile
}

fn disk(spec: &str) -> (EmulatedDisk, DiskSpec) {
    let spec: DiskSpec = spec.parse().unwrap();
    (EmulatedDisk::bring_up(Path::new(LAB), spec, Filesystem::Ext4, None).unwrap(), spec)
}

/// Every writer is done when the model says, give or take a part of the whole time.
fn agree(what: &str, observed: &[f64], modelled: &[f64], part: f64) {
    let whole = observed.iter().copied().fold(0.0, f64::max);
    eprintln!("{what}: done after {observed:.2?} s, modelled {modelled:.2?} s");
    for (seen, told) in observed.iter().zip(modelled) {
        assert!((seen - told).abs() <= part * whole, "{what}: {observed:.2?} s, modelled {modelled:.2?} s");
    }
}

#[test]
fn four_and_eight_writers_share_a_disk() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let Some(trace) = Tracepoints::listen() else { return };
    let (disk, spec) = disk("150,50,0,1,size=2");
    let _limits = LimitsGuard::lower(Path::new(LAB), LIMITS.background, LIMITS.hard).unwrap();
    for (count, one_file) in [(4u64, false), (8, false), (4, true)] {
        let chunks = 768 / count;
        let writer = |index: u64| Writer {
            file: disk.mount_point().join(if one_file { "all".to_owned() } else { index.to_string() }),
            from: if one_file { index * chunks * CHUNK as u64 } else { 0 },
            chunks,
        };
        let writers: Vec<Writer> = (0..count).map(writer).collect();
        let Some(seen) = observe(&trace, &writers) else { return };
        let profile = profile(&[(seen.calls[0][0].dev, &spec)], &seen);
        let (modelled, _) = replay(&mut trace.model(&profile), &seen);
        let what = format!("{count} writers{}", if one_file { ", one file" } else { "" });
        // Who of equals is first is chance.
        let in_order = |mut ends: Vec<f64>| {
            ends.sort_by(f64::total_cmp);
            ends
        };
        let (seen, told) = (in_order(ends(&seen)), in_order(modelled));
        agree(&what, &seen, &told, 0.5);
        let summary = |ends: &[f64]| [ends.iter().sum::<f64>() / ends.len() as f64, ends[ends.len() - 1]];
        agree("mean and last", &summary(&seen), &summary(&told), 0.3);
        for writer in &writers {
            // The writers of one file remove it once.
            drop(fs::remove_file(&writer.file));
        }
    }
}

#[test]
fn a_slow_and_a_fast_disk_share_the_limits() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let Some(trace) = Tracepoints::listen() else { return };
    let ((fast, fast_spec), (slow, slow_spec)) = (disk("240,50,0,1,size=2"), disk("60,50,0,1,size=2"));
    let _limits = LimitsGuard::lower(Path::new(LAB), LIMITS.background, LIMITS.hard).unwrap();
    let writer =
        |disk: &EmulatedDisk, chunks| Writer { file: disk.mount_point().join("data"), from: 0, chunks };
    let Some(seen) = observe(&trace, &[writer(&fast, 512), writer(&slow, 128)]) else { return };
    let disks = [(seen.calls[0][0].dev, &fast_spec), (seen.calls[1][0].dev, &slow_spec)];
    let (modelled, _) = replay(&mut trace.model(&profile(&disks, &seen)), &seen);
    // Of a new disk, the model counts completions from nothing, and holds the slow one back too little.
    agree("fast and slow disk", &ends(&seen), &modelled, 0.5);
}

/// A setting of a device's share, put back when dropped.
struct Share {
    file: PathBuf,
    before: String,
}

impl Share {
    fn set(device: &Path, name: &str, value: &str) -> Share {
        let number = fs::metadata(device).unwrap().rdev();
        let bdi = format!("{}:{}", nix::sys::stat::major(number), nix::sys::stat::minor(number));
        let file = Path::new("/sys/class/bdi").join(bdi).join(name);
        let before = fs::read_to_string(&file).unwrap();
        fs::write(&file, value).unwrap();
        Share { file, before }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // The device may be gone, and its setting with it.
        drop(fs::write(&self.file, self.before.trim()));
    }
}

#[test]
fn a_strict_disk_keeps_to_its_share() {
    if !possible() {
        return;
    }
    let _alone = alone();
    let Some(trace) = Tracepoints::listen() else { return };
    let (disk, spec) = disk("150,50,0,1,size=2");
    let _limits = LimitsGuard::lower(Path::new(LAB), LIMITS.background, LIMITS.hard).unwrap();
    let writers = [Writer { file: disk.mount_point().join("data"), from: 0, chunks: 256 }];
    let Some(free) = observe(&trace, &writers) else { return };
    let mut profile = profile(&[(free.calls[0][0].dev, &spec)], &free);
    let (ends_free, peak_free) = replay(&mut trace.model(&profile), &free);
    let shares = [("max_ratio", "25"), ("strict_limit", "1")].map(|(n, v)| Share::set(disk.device(), n, v));
    let Some(held) = observe(&trace, &writers) else { return };
    drop(shares);
    let constants = &mut profile.others[0].constants;
    (constants.max_ratio, constants.strict_limit) = (0.25, true);
    let (ends_held, peak_held) = replay(&mut trace.model(&profile), &held);
    agree("free", &ends(&free), &ends_free, 0.35);
    agree("held to a quarter", &ends(&held), &ends_held, 0.35);
    assert!(peak_held.as_f64() < 0.6 * peak_free.as_f64(), "modelled {peak_held} of {peak_free}");
}
