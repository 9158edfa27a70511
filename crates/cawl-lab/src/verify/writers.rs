//! Many writers and several devices: the kernel model against this machine's kernel, on emulated disks under
//! lowered dirty limits.
//!
//! What happened is a [`Recording`]: every call, and where the kernel's throttling stood when it began.
//! `cargo test` replays those in crates/cawl-lab/recordings.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use anyhow::{Context, anyhow};
use cawl_core::{
    Bytes, CostModel, DirtyLimits, HostProfile, Kernel, Measured, Nanos, OpenLoop, OtherDevice, Rate, Time,
};
use cawl_host::tracefs::Instance;
use cawl_wire::{Event, FileKind, Op};
use serde::{Deserialize, Serialize};

use super::{Bench, Figure, device_number, no_tracing};
use crate::emulated::Lab;
use crate::writer::together;
use crate::{DiskSpec, Filesystem, lowered_limits};

const CHUNK: usize = 1 << 20;
const LIMITS: DirtyLimits = DirtyLimits { background: Bytes::mib(48), hard: Bytes::mib(96) };

/// Writers that begin within this begin at once: below freerun there is work for as long.
const TOGETHER: Nanos = Nanos::millis(50.0);

/// Writers under lowered limits, as they were seen.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// The limit that the kernel went by when it first throttled a writer; it follows lowered limits slowly.
    limit: Bytes,
    /// Rate of calls that nothing held back.
    fresh: f64,
    disks: Vec<RecordedDisk>,
    writers: Vec<RecordedWriter>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedDisk {
    dev: u64,
    /// Bytes per second that it took from the first call to the last: what it was told, or what the machine
    /// left.
    write: f64,
    /// `dirty_ratelimit` when the kernel first throttled a writer, in bytes per second.
    base_rate: Option<f64>,
    max_ratio: f64,
    strict_limit: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedWriter {
    dev: u64,
    ino: u64,
    from: u64,
    /// Start and duration of each call of 1 MiB, in ns.
    calls: Vec<(u64, u64)>,
}

impl RecordedWriter {
    fn end(&self) -> u64 {
        self.calls.last().map_or(0, |(start, duration)| start + duration)
    }
}

/// What the model makes of a recording.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// When each writer was done, in seconds from the first call.
    pub observed: Vec<f64>,
    /// When it is done by the model.
    pub modelled: Vec<f64>,
    /// Most that was dirty by the model.
    pub peak: Bytes,
}

impl Replayed {
    /// Sorts the ends of equal writers: who of them is first is chance.
    #[must_use]
    pub fn in_order(mut self) -> Replayed {
        self.observed.sort_by(f64::total_cmp);
        self.modelled.sort_by(f64::total_cmp);
        self
    }

    /// By how much a writer's end is missed at most, as a part of the whole time.
    pub fn farthest(&self) -> f64 {
        let off = |(seen, told): (&f64, &f64)| (seen - told).abs();
        let most = self.observed.iter().zip(&self.modelled).map(off).fold(0.0, f64::max);
        most / self.observed.iter().copied().fold(0.0, f64::max)
    }

    /// Modelled over observed: mean end, and last end.
    pub fn ratios(&self) -> [f64; 2] {
        let mean = |ends: &[f64]| ends.iter().sum::<f64>() / ends.len() as f64;
        let last = |ends: &[f64]| ends.iter().copied().fold(0.0, f64::max);
        [mean(&self.modelled) / mean(&self.observed), last(&self.modelled) / last(&self.observed)]
    }
}

impl Recording {
    /// A machine with these disks, and with memory as the calls show it that nothing held back.
    fn model(&self) -> Kernel {
        let mut profile = HostProfile::uncalibrated();
        for disk in &self.disks {
            let mut constants = profile.device.clone();
            constants.writeback = Measured::assumed(Rate::per_second(disk.write));
            constants.write = constants.writeback;
            constants.base_rate = disk.base_rate.map(|rate| Measured::assumed(Rate::per_second(rate)));
            (constants.max_ratio, constants.strict_limit) = (disk.max_ratio, disk.strict_limit);
            profile.others.push(OtherDevice { dev: disk.dev, constants });
        }
        profile.memory.fresh = Measured::assumed(Rate::per_second(self.fresh));
        profile.memory.cached = Measured::assumed(Rate::per_second(self.fresh * 1.5));
        profile.kernel.limits = DirtyLimits { hard: self.limit.max(LIMITS.hard), ..LIMITS };
        let mut model = Kernel::new(&profile);
        model.set_limits(LIMITS);
        model
    }

    /// Makes the calls by the model: each writer goes on when its last call is predicted to end.
    pub fn replay(&self) -> Option<Replayed> {
        let mut open_loop = OpenLoop::of(Box::new(self.model()), Time::default());
        let origin =
            self.writers.iter().filter_map(|writer| writer.calls.first()).map(|call| call.0).min()?;
        let thread_of = |who: usize| who as u32 + 1;
        for (who, writer) in self.writers.iter().enumerate() {
            open_loop.wait(thread_of(who), Nanos::new((writer.calls[0].0 - origin) as f64));
        }
        let mut next = vec![0; self.writers.len()];
        let mut peak = Bytes::ZERO;
        let goes_on = |next: &[usize], who: &usize| next[*who] < self.writers[*who].calls.len();
        while let Some(who) =
            (0..next.len()).filter(|who| goes_on(&next, who)).min_by_key(|who| open_loop.now(thread_of(*who)))
        {
            let writer = &self.writers[who];
            let mut event = Event::new(Op::Pwrite);
            event.offset = writer.from + (next[who] * CHUNK) as u64;
            (event.pid, event.tid, event.dev, event.ino) = (1, thread_of(who), writer.dev, writer.ino);
            (event.requested, event.returned, event.kind) = (CHUNK as u64, CHUNK as i64, FileKind::Regular);
            let prediction = open_loop.step(event)?;
            peak = peak.max(prediction.dirty);
            next[who] += 1;
        }
        let seconds = |ns: u64| ns as f64 * 1e-9;
        Some(Replayed {
            observed: self.writers.iter().map(|writer| seconds(writer.end() - origin)).collect(),
            modelled: (0..next.len()).map(|who| open_loop.elapsed(thread_of(who)).as_seconds()).collect(),
            peak,
        })
    }
}

/// A writer: its disk and file, where it begins in it, and how many chunks it writes.
struct Writer {
    file: PathBuf,
    from: u64,
    chunks: u64,
}

/// What the writer did, and how many bytes the device took meanwhile.
fn write(writer: &Writer, file: &File, start: &Barrier) -> anyhow::Result<(RecordedWriter, u64)> {
    let data = vec![1; CHUNK];
    let meta = file.metadata()?;
    start.wait();
    let before = written(meta.dev())?;
    let mut calls = Vec::new();
    for chunk in 0..writer.chunks {
        let began = cawl_host::now();
        file.write_all_at(&data, writer.from + chunk * CHUNK as u64)?;
        calls.push((began.0, cawl_host::now().since(began).get() as u64));
    }
    let taken = written(meta.dev())? - before;
    Ok((RecordedWriter { dev: meta.dev(), ino: meta.ino(), from: writer.from, calls }, taken))
}

fn write_all(writers: &[Writer], files: &[File]) -> anyhow::Result<Vec<(RecordedWriter, u64)>> {
    let start = Barrier::new(writers.len());
    together(writers.len(), |number| write(&writers[number], &files[number], &start))
}

/// A device as the kernel's files name it.
fn numbers(dev: u64) -> String {
    format!("{}:{}", nix::sys::stat::major(dev), nix::sys::stat::minor(dev))
}

/// Bytes that a device was ever given to write.
fn written(dev: u64) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/sys/dev/block/{}/stat", numbers(dev)))?;
    let sectors = text.split_whitespace().nth(6).context("a device counts sectors")?;
    Ok(sectors.parse::<u64>()? * 512)
}

/// Lets the writers write, all at once. Other programs share the limits, and a writer that begins long before
/// the others is done before they count: such a run is made again, a few times.
fn observe(trace: &Instance, writers: &[Writer]) -> anyhow::Result<Recording> {
    let page = cawl_host::uncalibrated_profile().kernel.page.0;
    let dirtied = || Some(cawl_host::sample()?.dirtied * page);
    let own: u64 = writers.iter().map(|writer| writer.chunks * CHUNK as u64).sum();
    for left in (0..5).rev() {
        let files: Vec<File> =
            writers.iter().map(|writer| File::create(&writer.file)).collect::<Result<_, _>>()?;
        nix::unistd::sync();
        // Forgets what was told so far.
        drop(trace.take()?);
        let before = dirtied().context("there is no /proc/vmstat")?;
        let seen = write_all(writers, &files)?;
        let foreign = (dirtied().unwrap_or_default() - before).saturating_sub(own);
        let starts = || seen.iter().map(|(writer, _)| writer.calls[0].0);
        let apart = Time(starts().max().unwrap_or(0)).since(Time(starts().min().unwrap_or(0)));
        if (foreign <= own / 20 && apart <= TOGETHER) || left == 0 {
            return Ok(recording(&trace.take()?, seen));
        }
        eprintln!("again: other programs wrote {foreign} B beside {own} B, the writers began {apart} apart");
    }
    Err(anyhow!("no run was made"))
}

/// The kernel's account of its throttling.
pub(super) fn listen() -> anyhow::Result<Instance> {
    Instance::begin_if_possible(&["balance_dirty_pages"], "")?.with_context(no_tracing)
}

/// The first figure of this name that the kernel told of a device, as `bdi 7:0:`.
pub(super) fn first(told: &str, device: &str, key: &str) -> Option<u64> {
    let mut lines = told.lines().filter(|line| line.contains(device));
    let value = |line: &str| Some(line.split_whitespace().find_map(|word| word.strip_prefix(key))?.parse());
    lines.find_map(value)?.ok()
}

/// What was seen of the writers, with what their disks took meanwhile, and what the kernel told of it.
fn recording(told: &str, seen: Vec<(RecordedWriter, u64)>) -> Recording {
    let first = |device: &str, key: &str| first(told, device, key);
    // Of each disk, the writer that was done last.
    let mut last = BTreeMap::new();
    for (writer, taken) in &seen {
        let at = last.entry(writer.dev).or_insert((writer, taken));
        *at = if writer.end() > at.0.end() { (writer, taken) } else { *at };
    }
    let disk = |(dev, (writer, taken)): (u64, (&RecordedWriter, &u64))| {
        let device = format!("bdi {}:", numbers(dev));
        let base_rate = first(&device, "dirty_ratelimit=").map(|kib| kib as f64 * 1024.0);
        let span = (writer.end() - writer.calls[0].0) as f64 * 1e-9;
        RecordedDisk { dev, write: *taken as f64 / span, base_rate, max_ratio: 1.0, strict_limit: false }
    };
    let disks = last.into_iter().map(disk).collect();
    let writers: Vec<RecordedWriter> = seen.into_iter().map(|(writer, _)| writer).collect();
    let mut costs: Vec<u64> = writers.iter().flat_map(|writer| &writer.calls).map(|call| call.1).collect();
    costs.sort_unstable();
    let fresh = CHUNK as f64 / (costs[costs.len() / 10].max(1) as f64 * 1e-9);
    let limit = Bytes(first("bdi", "limit=").unwrap_or_default() * 4096);
    Recording { limit, fresh, disks, writers }
}

/// Writes a recording where they are wanted, and replays it.
fn judged(bench: &Bench, name: &str, recording: &Recording) -> anyhow::Result<Replayed> {
    if let Some(folder) = bench.recordings()? {
        fs::write(folder.join(format!("{name}.json")), serde_json::to_vec(recording)?)?;
    }
    let replayed = recording.replay().context("the model has no opinion on a write")?;
    eprintln!("{name}: done after {:.2?} s, modelled {:.2?} s", replayed.observed, replayed.modelled);
    Ok(replayed)
}

fn lowered(bench: &Bench) -> anyhow::Result<Lab> {
    lowered_limits(&bench.lab, LIMITS.background, LIMITS.hard)
}

fn farthest(what: &str, replayed: &Replayed, part: f64) -> Figure {
    Figure::new(format!("{what}, 1 + part of the whole"), 1.0, 1.0 + replayed.farthest(), part, 0.0)
}

/// Equal writers on one disk, with files of their own or with one.
pub(super) fn share_a_disk(bench: &Bench, count: u64, one_file: bool) -> anyhow::Result<Vec<Figure>> {
    let trace = listen()?;
    let spec: DiskSpec = "150,50,0,1,size=2".parse()?;
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    let _limits = lowered(bench)?;
    let chunks = 768 / count;
    let writer = |index: u64| Writer {
        file: disk.ready.mount.join(if one_file { "all".to_owned() } else { index.to_string() }),
        from: if one_file { index * chunks * CHUNK as u64 } else { 0 },
        chunks,
    };
    let writers: Vec<Writer> = (0..count).map(writer).collect();
    let recording = observe(&trace, &writers)?;
    let name = if one_file { "writers-one-file".to_owned() } else { format!("writers-{count}") };
    let replayed = judged(bench, &name, &recording)?.in_order();
    let [mean, last] = replayed.ratios();
    Ok(vec![
        Figure::new("mean end, modelled / observed", 1.0, mean, 0.3, 0.0),
        Figure::new("last end, modelled / observed", 1.0, last, 0.3, 0.0),
        farthest("end farthest off", &replayed, 0.5),
    ])
}

/// A slow and a fast disk that share the limits.
pub(super) fn two_disks(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let trace = listen()?;
    let specs: [DiskSpec; 2] = ["240,50,0,1,size=2".parse()?, "60,50,0,1,size=2".parse()?];
    let disks: Vec<Lab> =
        specs.iter().map(|spec| bench.disk(*spec, Filesystem::Ext4)).collect::<Result<_, _>>()?;
    let _limits = lowered(bench)?;
    let writer =
        |(disk, chunks): (&Lab, u64)| Writer { file: disk.ready.mount.join("data"), from: 0, chunks };
    let writers: Vec<Writer> = disks.iter().zip([512, 128]).map(writer).collect();
    let replayed = judged(bench, "two-disks", &observe(&trace, &writers)?)?;
    // Of a new disk, the model counts completions from nothing, and holds the slow one back too little.
    Ok(vec![farthest("end farthest off", &replayed, 0.5)])
}

/// A setting of a device's share, put back when dropped.
struct Share {
    file: PathBuf,
    before: String,
}

impl Share {
    fn set(device: &Path, name: &str, value: &str) -> anyhow::Result<Share> {
        let file = Path::new("/sys/class/bdi").join(numbers(device_number(device)?)).join(name);
        let before = fs::read_to_string(&file)?;
        fs::write(&file, value)?;
        Ok(Share { file, before })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // The device may be gone, and its setting with it.
        drop(fs::write(&self.file, self.before.trim()));
    }
}

/// A disk that is held to its own share (`strict_limit`, `max_ratio`), and the same one free.
pub(super) fn strict_disk(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let trace = listen()?;
    let spec: DiskSpec = "150,50,0,1,size=2".parse()?;
    let disk = bench.disk(spec, Filesystem::Ext4)?;
    let _limits = lowered(bench)?;
    let writers = [Writer { file: disk.ready.mount.join("data"), from: 0, chunks: 256 }];
    let free = judged(bench, "one-disk-free", &observe(&trace, &writers)?)?;
    let shares = [("max_ratio", "25"), ("strict_limit", "1")];
    let shares: Vec<Share> = shares
        .into_iter()
        .map(|(name, value)| Share::set(&disk.ready.device, name, value))
        .collect::<Result<_, _>>()?;
    let mut held = observe(&trace, &writers)?;
    drop(shares);
    (held.disks[0].max_ratio, held.disks[0].strict_limit) = (0.25, true);
    let held = judged(bench, "one-disk-strict", &held)?;
    Ok(vec![
        farthest("end of the free writer", &free, 0.35),
        farthest("end of the strict disk's writer", &held, 0.35),
        Figure::new("modelled peak, strict / free", 0.3, held.peak.as_f64() / free.peak.as_f64(), 1.0, 0.0),
    ])
}
