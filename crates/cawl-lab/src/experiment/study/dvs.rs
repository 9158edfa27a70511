//! Client-side caching: figures 1 and 2 of "Improving I/O Bandwidth With Cray DVS Client-Side Caching" (003):
//! bandwidth by the size of a transfer, without and with a cache on the client, observed and predicted.
//!
//! The law: **each policy has a mount of its own.** The mounts are emulated links of known latency and
//! bandwidth, each calibrated from outside before the runs; or one mount that is there, with what it keeps.

mod findings;
mod tables;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use cawl_console::compact;
use cawl_core::{CachePolicy, HostProfile, Nanos, median};
use cawl_host::direct::AlignedBuffer;
use cawl_host::place::{Backing, Place};
use cawl_measure::calibrate::{self, Effort};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::{self, Scratch};
use cawl_wire::{Event, Op, flag};
use nix::fcntl::OFlag;
use serde::{Serialize, Serializer};

use super::calls::{Shown, call, timed, write};
use super::{Bench, Made, Section, Study, make};
use crate::emulated::Lab;

/// The links, unless told otherwise: with the latencies that 003's factors of 10 and 100 need.
const LINKS: [&str; 2] = ["15us,1GB/s", "150us,1GB/s"];
/// Most bytes of a request, so that one carries the transfers from which on 003's bandwidth falls.
const REQUEST: &str = "request=1M";
/// Sizes of transfers.
const SIZES: [u64; 11] =
    [512, 2 << 10, 4 << 10, 8 << 10, 32 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
const QUICK: [u64; 5] = [512, 4 << 10, 64 << 10, 512 << 10, 4 << 20];
/// Most calls of a pass, and bytes of them.
const MAX: (u64, u64) = (400, 8 << 20);
const FILE: &str = "transfers";

/// What is timed: of opening the new file and of closing it; of a write into a new file, of one past the
/// cache (O_DIRECT), and of one over what is cached; of a read after the file was opened anew, and of the
/// same again; of writing the file, from open to close, and the same past the cache.
const PASSES: [&str; 9] =
    ["open", "close", "write", "past", "rewrite", "read", "reread", "whole", "whole_past"];
const OPEN: usize = 0;
const CLOSE: usize = 1;
const WRITE: usize = 2;
const PAST: usize = 3;
const REWRITE: usize = 4;
const READ: usize = 5;
const REREAD: usize = 6;
const WHOLE: usize = 7;
const WHOLE_PAST: usize = 8;

/// Times of the passes, in ns. Those of writes are medians of the calls; those of reads are means, since a
/// few wait for what is read ahead, and pages move to the list of active ones in batches.
#[derive(Clone, Copy, Debug, Default)]
struct Times([f64; 9]);

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(PASSES.into_iter().zip(self.0))
    }
}

/// Of a size on a mount.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    /// The link, or the mount.
    link: String,
    policy: &'static str,
    /// Bytes of a transfer, and transfers of a pass.
    size: u64,
    calls: u64,
    observed: Times,
    predicted: Times,
}

impl Outcome {
    /// A pass as observed and as predicted.
    fn pass(&self, pass: usize) -> [f64; 2] {
        [self.observed.0[pass], self.predicted.0[pass]]
    }

    /// Bytes per second of writing a new file, from open to close.
    fn bandwidth(&self) -> [f64; 2] {
        self.pass(WHOLE).map(|time| (self.size * self.calls) as f64 / time * 1e9)
    }

    /// The same over that past the cache.
    fn over_past(&self) -> [f64; 2] {
        let ([here, predicted], [past, predicted_past]) = (self.pass(WHOLE), self.pass(WHOLE_PAST));
        [past / here, predicted_past / predicted]
    }
}

struct Outcomes(Vec<Outcome>);

impl Outcomes {
    fn links(&self) -> Vec<&str> {
        let mut links: Vec<&str> = self.0.iter().map(|one| one.link.as_str()).collect();
        links.dedup();
        links
    }

    fn of(&self, link: &str, policy: CachePolicy) -> Vec<&Outcome> {
        let is_its = |one: &&Outcome| one.link == link && one.policy == policy.name();
        self.0.iter().filter(is_its).collect()
    }
}

pub(super) fn section(bench: &mut Bench, quick: bool) -> anyhow::Result<Section> {
    let mut mounts = Vec::new();
    let mut outcomes = Outcomes(Vec::new());
    let mut measured = |link: &str, place: &Place, bench: &mut Bench| {
        let mount = Mount::calibrated(bench, link, place, quick)?;
        outcomes.0.extend(make(&mount, bench)?);
        mounts.push((mount.link, mount.profile));
        anyhow::Ok(())
    };
    if bench.net.is_empty() && bench.place.backing == Backing::Network {
        measured(&bench.place.device, bench.place, bench)?;
    } else {
        let links = if bench.net.is_empty() { LINKS.map(str::to_owned).to_vec() } else { bench.net.to_vec() };
        for link in links {
            for policy in CachePolicy::ALL {
                Interrupted::by(bench.signal)?;
                let spec = format!("{link},policy={},{REQUEST}", policy.name());
                let root =
                    "an emulated network mount needs root; with --path, the study runs on a mount you have";
                let lab = Lab::own(&["--net", &spec], root)?;
                measured(&link, &Place::of(&lab.ready.mount)?, bench)?;
            }
        }
    }
    Ok(Section {
        name: "dvs",
        title: "Client-side caching".to_owned(),
        text: tables::text(bench),
        tables: tables::all(&outcomes, &mounts),
        pictures: tables::pictures(&outcomes)?,
        findings: findings::all(&outcomes),
        data: serde_json::to_value(&outcomes.0)?,
    })
}

/// The runs on one mount, as calibrated; cells are sizes of transfers.
struct Mount {
    link: String,
    policy: &'static str,
    profile: HostProfile,
    scratch: Scratch,
    sizes: &'static [u64],
    repeats: usize,
}

impl Mount {
    fn calibrated(bench: &mut Bench, link: &str, place: &Place, quick: bool) -> anyhow::Result<Mount> {
        bench.progress.begin(format!("client-side caching: calibrating {link}"));
        let known = Some(bench.profile.clone()).filter(|profile| profile.memory.fresh.samples > 0);
        let effort = Effort { time: Nanos::seconds(if quick { 6.0 } else { 10.0 }), ..Effort::QUICK };
        let options = calibrate::Options { path: place.folder.clone(), effort, lower_limits: false, known };
        let signal = Arc::new(AtomicUsize::new(bench.signal.load(Ordering::Relaxed)));
        let found = calibrate::calibrate(&options, signal)?;
        let network = found.profile.device.network.as_ref();
        let policy = network.context("it was not measured as a network mount")?.policy.name();
        bench.notes.extend(found.notes.iter().map(|note| format!("{link}, {policy}: {note}")));
        Ok(Mount {
            link: link.to_owned(),
            policy,
            profile: found.profile,
            scratch: Scratch::create(&place.folder, scratch::EXPERIMENT)?,
            sizes: if quick { &QUICK } else { &SIZES },
            repeats: bench.repeats.unwrap_or(if quick { 1 } else { 3 }),
        })
    }
}

/// Transfers of a pass.
fn calls_of(size: u64) -> u64 {
    MAX.0.min(MAX.1 / size)
}

impl Study<Vec<Outcome>> for Mount {
    type Cell = u64;
    type Run = Times;

    const NAME: &'static str = "client-side caching";

    fn cells(&self) -> &[u64] {
        self.sizes
    }

    /// A run makes all of them.
    fn repeats(&self, _: Option<usize>) -> usize {
        1
    }

    fn describe(&self, size: u64) -> String {
        format!("{}, {}, {}", self.link, self.policy, compact::bytes(size))
    }

    /// The medians of the repetitions. The first one is left out: the host may have to supply the memory
    /// then.
    fn run(&self, bench: &Bench, size: u64) -> anyhow::Result<Option<Times>> {
        let all = (0..=self.repeats).map(|_| measure(bench, &self.scratch, size));
        let all = all.collect::<anyhow::Result<Vec<Times>>>()?;
        let of = |pass: usize| median(&all[1..].iter().map(|times| times.0[pass]).collect::<Vec<_>>());
        Ok(Some(Times(std::array::from_fn(|pass| of(pass).unwrap_or(f64::NAN)))))
    }

    fn judge(&self, _: &mut Bench, made: &Made<u64, Times>) -> anyhow::Result<Vec<Outcome>> {
        let outcome = |&(size, observed): &(u64, Times)| {
            let (link, policy, calls) = (self.link.clone(), self.policy, calls_of(size));
            let predicted = predicted(&self.profile, size, calls)?;
            Ok(Outcome { link, policy, size, calls, observed, predicted })
        };
        made.runs.iter().map(outcome).collect()
    }
}

/// Makes the passes over a file: written and closed, the same past the cache, written again, and read twice
/// by who only reads.
fn measure(bench: &Bench, scratch: &Scratch, size: u64) -> anyhow::Result<Times> {
    Interrupted::by(bench.signal)?;
    let offsets: Vec<u64> = (0..calls_of(size)).map(|at| at * size).collect();
    let mut buffer = AlignedBuffer::new(size as usize);
    let mut times = [0.0; 9];
    (times[PAST], times[WHOLE_PAST]) = (f64::NAN, f64::NAN);
    // The median of the times of calls, and their sum.
    let pass = |call: &mut dyn FnMut(u64) -> std::io::Result<()>| {
        let times = timed(bench, &offsets, f64::INFINITY, call)?;
        anyhow::Ok((median(&times).unwrap_or(f64::NAN), times.iter().sum::<f64>()))
    };
    // Past the cache first, so that the file that is kept is not the one whose memory comes anew.
    let (open, file) = clocked(|| scratch.direct_file(FILE, OFlag::empty()));
    if let Some(file) = file? {
        // Some filesystems accept the flag and refuse the call.
        if let Ok((past, sum)) = pass(&mut |at| file.write_all_at(buffer.bytes(), at)) {
            let (close, ()) = clocked(|| drop(file));
            (times[PAST], times[WHOLE_PAST]) = (past, open + sum + close);
        }
        scratch.remove(FILE);
    }
    let (open, file) = clocked(|| scratch.file(FILE));
    let file = file?;
    let (write, sum) = pass(&mut |at| file.write_all_at(buffer.bytes(), at))?;
    let (close, ()) = clocked(|| drop(file));
    (times[OPEN], times[CLOSE], times[WRITE], times[WHOLE]) = (open, close, write, open + sum + close);
    let file = scratch.again(FILE, OFlag::empty())?;
    pass(&mut |at| file.write_all_at(buffer.bytes(), at))?;
    (times[REWRITE], _) = pass(&mut |at| file.write_all_at(buffer.bytes(), at))?;
    drop(file);
    let file = File::open(scratch.path(FILE))?;
    for read in [READ, REREAD] {
        let (_, sum) = pass(&mut |at| file.read_exact_at(buffer.bytes_mut(), at))?;
        times[read] = sum / offsets.len() as f64;
    }
    // Who has it open would have its pages dropped in the time of the next open.
    drop(file);
    scratch.remove(FILE);
    Ok(Times(times))
}

/// What an action takes, in ns.
fn clocked<T>(action: impl FnOnce() -> T) -> (f64, T) {
    let start = cawl_host::now();
    let done = action();
    (cawl_host::now().since(start).get(), done)
}

/// The predicted times of the passes that are measured, each of `calls` transfers of `size` bytes.
fn predicted(profile: &HostProfile, size: u64, calls: u64) -> anyhow::Result<Times> {
    let mut shown = Shown::to("kernel", profile)?;
    let mut step = |event: Event| shown.step(event);
    let open = |bytes| {
        let flags = if bytes == 0 { flag::CREATED } else { 0 };
        Event { requested: bytes, returned: 3, flags, ..call(Op::Open) }
    };
    let read = |at: u64| Event { op: Op::Pread, fd: 4, ..write(at * size, size, 0) };
    let past = |at: u64| Event { ino: 2, ..write(at * size, size, flag::DIRECT) };
    let pass = |event: &dyn Fn(u64) -> Event, step: &mut dyn FnMut(Event) -> f64| {
        let costs: Vec<f64> = (0..calls).map(|at| step(event(at))).collect();
        (median(&costs).unwrap_or(f64::NAN), costs.iter().sum::<f64>())
    };
    let write = |at: u64| write(at * size, size, 0);
    let mut times = [0.0; 9];
    let mut sum;
    times[WHOLE_PAST] = step(Event { ino: 2, ..open(0) });
    (times[PAST], sum) = pass(&past, &mut step);
    times[WHOLE_PAST] += sum + step(Event { ino: 2, ..call(Op::Close) });
    times[OPEN] = step(open(0));
    (times[WRITE], sum) = pass(&write, &mut step);
    times[CLOSE] = step(call(Op::Close));
    times[WHOLE] = times[OPEN] + sum + times[CLOSE];
    step(open(size * calls));
    pass(&write, &mut step);
    (times[REWRITE], _) = pass(&write, &mut step);
    step(call(Op::Close));
    step(Event { fd: 4, returned: 4, ..open(size * calls) });
    times[READ] = pass(&read, &mut step).1 / calls as f64;
    times[REREAD] = pass(&read, &mut step).1 / calls as f64;
    Ok(Times(times))
}

#[cfg(test)]
mod tests {
    use cawl_core::{Bytes, Measured, NetworkConstants, Rate};

    use super::*;

    /// Round trips of 150 µs, 1 GB/s, requests of 1 MiB.
    fn profile(policy: CachePolicy) -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        let rate = Measured::assumed(Rate::mb_per_second(1000.0));
        let device = &mut profile.device;
        device.latency = Some(Measured::assumed(Nanos::new(150e3)));
        (device.write, device.read, device.writeback) = (rate, rate, rate);
        device.network = Some(NetworkConstants::new(policy, Bytes::mib(1)));
        profile
    }

    #[test]
    fn the_cache_gains_at_small_transfers_and_loses_at_large_ones() {
        let [none, back] = [CachePolicy::None, CachePolicy::WriteBack].map(profile);
        let whole =
            |profile: &HostProfile, size| predicted(profile, size, (8 << 20) / size).unwrap().0[WHOLE];
        assert!(whole(&none, 4096) > 10.0 * whole(&back, 4096));
        assert!(whole(&none, 4 << 20) < whole(&back, 4 << 20), "each byte is copied and then sent");
        let Times(small) = predicted(&none, 4096, 100).unwrap();
        assert!((small[WRITE] / (150e3 + 4096.0) - 1.0).abs() < 0.05, "{small:?}");
        assert!((small[PAST] / small[WRITE] - 1.0).abs() < 1e-3 && small[REREAD] == small[PAST], "{small:?}");
        let sum = small[OPEN] + small[CLOSE] + 100.0 * small[WRITE];
        assert!((small[WHOLE] - sum).abs() < 1e3, "{small:?}");
    }
}
