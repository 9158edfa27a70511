//! Samples the kernel's counters, as seldom as suffices.
//!
//! The law: **at most a hundredth of a core.** Files stay open and are read again from the start; the cost of
//! a sample is measured by the thread's processor time, and samples are never closer together than a hundred
//! times that. Between 10 and 100 ms (1 s when idle) the interval follows the level: it is halved when the
//! level moves by more than a 64th of the hard limit between samples, and grows by a quarter otherwise. A
//! missing source is left out of the list.

mod bdi;
mod mounts;
mod pauses;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{Read, Seek};
use std::time::Duration;

use cawl_client::protocol::{DeviceStatus, SamplerStatus};
use cawl_core::{Bytes, Nanos, Sample, Time, host_text};

use cawl_host::clock::thread_time;
use cawl_host::tracefs::TraceFsError;
use mounts::Mounts;
use pauses::Pauses;

/// Shortest and longest interval while programs write or the dirty level moves.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(100);
/// The interval when idle.
const IDLE: Duration = Duration::from_secs(1);
/// One over the largest share of a processor for sampling.
const SHARE: u32 = 100;
/// One over the move of the level, in hard limits, that halves the interval.
const MOVES: u64 = 64;
/// Interval of the slower sources, over which rates are computed.
const DETAILS_EVERY: Nanos = Nanos::seconds(1.0);
/// Span of the reported cost of sampling.
const COSTS: Nanos = Nanos::seconds(60.0);

/// A file of /proc, kept open.
struct Source {
    name: &'static str,
    file: File,
    text: String,
}

impl Source {
    fn open(name: &'static str, path: &str) -> Option<Source> {
        let mut source = Source { name, file: File::open(path).ok()?, text: String::new() };
        // Some files can be opened but not read, as pressure where the kernel does not account it.
        source.read().is_some().then_some(source)
    }

    /// The text as it is now.
    fn read(&mut self) -> Option<&str> {
        self.text.clear();
        self.file.rewind().ok()?;
        self.file.read_to_string(&mut self.text).ok()?;
        Some(&self.text)
    }
}

/// Other results of sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The machine's rate of writeback in bytes per second.
    pub writeback: Option<f64>,
    /// The load of the devices by all programs, by number (`st_dev`).
    pub devices: BTreeMap<u64, DeviceStatus>,
    /// Available memory.
    pub available: Option<Bytes>,
    /// The kernel's pauses of writers since sampling began, summed over all tasks of the machine, and the
    /// number of pauses lost.
    pub paused: Option<(Nanos, u64)>,
    /// Sampling and its cost.
    pub status: SamplerStatus,
}

/// Earlier counters, for rates.
#[derive(Default)]
struct Before {
    at: Time,
    written: u64,
    devices: Vec<host_text::DiskCounters>,
}

/// Samples the machine.
pub struct Sampler {
    vmstat: Option<Source>,
    diskstats: Option<Source>,
    pressure: Option<Source>,
    meminfo: Option<Source>,
    mounts: Option<Mounts>,
    pauses: Option<Pauses>,
    has_bdi: bool,
    page: Bytes,
    /// The time until the next sample.
    pub interval: Duration,
    last: Option<Sample>,
    before: Before,
    observed: Observed,
    /// Time and processor time of the last samples.
    costs: VecDeque<(Time, Nanos)>,
    began: Time,
}

impl Sampler {
    /// Opens the sources of this machine, with its page size. `pauses`: sample the kernel's pauses too, which
    /// needs a trace instance and slows other programs for some milliseconds at the start.
    pub fn new(page: Bytes, pauses: bool) -> Sampler {
        let mut observed = Observed::default();
        let tell = |why: &TraceFsError| {
            tracing::info!("the kernel does not tell pauses: {why}");
            observed.status.pauses_missing = Some(why.to_string());
        };
        let pauses = pauses.then(Pauses::begin).and_then(|begun| begun.inspect_err(tell).ok());
        let mut sampler = Sampler {
            vmstat: Source::open("vmstat", "/proc/vmstat"),
            diskstats: Source::open("diskstats", "/proc/diskstats"),
            pressure: Source::open("pressure", "/proc/pressure/io"),
            meminfo: Source::open("meminfo", "/proc/meminfo"),
            mounts: Mounts::watch(),
            pauses,
            has_bdi: bdi::is_there(),
            page,
            interval: SHORTEST,
            last: None,
            before: Before::default(),
            observed,
            costs: VecDeque::new(),
            began: cawl_host::now(),
        };
        let sources = [&sampler.vmstat, &sampler.diskstats, &sampler.pressure, &sampler.meminfo];
        let names = sources.map(|source| source.as_ref().map(|source| source.name)).into_iter();
        let others = [
            sampler.mounts.as_ref().map(|_| "mountinfo"),
            sampler.has_bdi.then_some("bdi"),
            sampler.pauses.as_ref().map(|_| "tracepoints"),
        ];
        sampler.observed.status.sources = names.chain(others).flatten().map(str::to_owned).collect();
        sampler
    }

    /// True if something was mounted or unmounted since this was last asked.
    pub fn mounts_changed(&mut self) -> bool {
        self.mounts.as_mut().is_some_and(Mounts::changed)
    }

    /// Samples; `active`: traced programs write. The second result comes once a second.
    pub fn sample(&mut self, active: bool) -> (Option<Sample>, Option<Observed>) {
        let began = thread_time();
        let now = cawl_host::now();
        let sample =
            self.vmstat.as_mut().and_then(Source::read).and_then(|text| host_text::vmstat(text, now));
        let due = now.since(self.before.at) >= DETAILS_EVERY;
        if due {
            self.details(now, sample.as_ref());
        }
        let cost = thread_time().since(began);
        self.adapt(active, sample.as_ref(), cost);
        self.account(now, cost);
        self.last = sample.or(self.last);
        (sample, due.then(|| self.observed.clone()))
    }

    fn details(&mut self, now: Time, sample: Option<&Sample>) {
        let span = now.since(self.before.at).as_seconds();
        let written = sample.map_or(self.before.written, |sample| sample.written);
        let text = self.diskstats.as_mut().and_then(Source::read);
        let devices = text.map(host_text::diskstats).unwrap_or_default();
        // The first sample has no predecessor.
        if self.before.at != Time(0) {
            let pages = written.saturating_sub(self.before.written);
            self.observed.writeback = sample.map(|_| pages as f64 * self.page.as_f64() / span);
            self.observed.devices = loads(&self.before.devices, &devices, span);
            for (dev, load) in self.observed.devices.iter_mut().filter(|_| self.has_bdi) {
                let stats = bdi::stats(*dev);
                load.dirty_bytes = stats.map(|stats| stats.dirty.0);
                load.kernel_writeback_rate = stats.map(|stats| stats.bandwidth.get());
            }
        }
        if let Some(pauses) = &mut self.pauses {
            pauses.read();
            self.observed.paused = Some((pauses.total, pauses.lost));
            self.observed.status.paused_s = Some(pauses.total.as_seconds());
            self.observed.status.pauses_lost = Some(pauses.lost);
        }
        let text = self.pressure.as_mut().and_then(Source::read);
        self.observed.status.pressure = text.and_then(host_text::pressure);
        let text = self.meminfo.as_mut().and_then(Source::read);
        self.observed.available = text.and_then(|text| host_text::meminfo(text, "MemAvailable"));
        self.before = Before { at: now, written, devices };
    }

    fn account(&mut self, now: Time, cost: Nanos) {
        self.costs.push_back((now, cost));
        while self.costs.front().is_some_and(|(at, _)| now.since(*at) > COSTS) {
            self.costs.pop_front();
        }
        let spent: Nanos = self.costs.iter().map(|(_, cost)| *cost).sum();
        // The interval after a sample counts towards its share.
        let paused = Nanos::new(self.interval.as_nanos() as f64);
        let span = (now.since(self.began) + paused).min(COSTS);
        self.observed.status.cpu_fraction = spent / span;
        self.observed.status.interval_s = self.interval.as_secs_f64();
    }

    fn adapt(&mut self, active: bool, sample: Option<&Sample>, cost: Nanos) {
        let moved = match (self.last, sample) {
            (Some(last), Some(now)) => {
                let level = |sample: &Sample| sample.dirty + sample.writeback;
                level(&last).abs_diff(level(now)).saturating_mul(MOVES) > now.hard
            }
            _ => false,
        };
        let busy = sample.is_some_and(|sample| sample.writeback > 0);
        self.interval = next(self.interval, moved, active || busy)
            .max(Duration::from_nanos(cost.get() as u64) * SHARE)
            .min(IDLE);
    }
}

/// The interval after this one.
fn next(interval: Duration, moved: bool, active: bool) -> Duration {
    if moved {
        (interval / 2).clamp(SHORTEST, LONGEST / 2)
    } else if active {
        (interval + interval / 4).clamp(SHORTEST, LONGEST)
    } else {
        (interval + interval / 4).min(IDLE)
    }
}

/// The loads of devices between two readings, `span` seconds apart.
fn loads(
    before: &[host_text::DiskCounters],
    now: &[host_text::DiskCounters],
    span: f64,
) -> BTreeMap<u64, DeviceStatus> {
    let load = |disk: &host_text::DiskCounters| {
        let then = before.iter().find(|then| then.dev == disk.dev)?;
        let load = DeviceStatus {
            name: disk.name.clone(),
            write_rate: Some(disk.written.saturating_sub(then.written).as_f64() / span),
            busy: Some((disk.busy.saturating_sub(then.busy).as_seconds() / span).min(1.0)),
            ..DeviceStatus::default()
        };
        Some((disk.dev, load))
    };
    now.iter().filter_map(load).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_what_moves() {
        let mut interval = IDLE;
        for _ in 0..4 {
            interval = next(interval, true, true);
        }
        assert_eq!(interval, SHORTEST);
        for _ in 0..20 {
            interval = next(interval, false, true);
        }
        assert_eq!(interval, LONGEST);
        for _ in 0..20 {
            interval = next(interval, false, false);
        }
        assert_eq!(interval, IDLE);
    }

    #[test]
    fn a_look_at_this_machine() {
        let mut sampler = Sampler::new(Bytes(4096), true);
        let (sample, observed) = sampler.sample(true);
        assert!(sample.is_some_and(|sample| sample.hard > 0));
        let observed = observed.expect("the first look is a whole one");
        assert!(observed.status.sources.contains(&"vmstat".to_owned()) && observed.writeback.is_none());
        for _ in 0..100 {
            sampler.sample(true);
            let cost = sampler.costs.back().expect("a cost").1;
            assert!(sampler.interval.as_nanos() as f64 * 1.001 >= (cost * 100.0).get().min(1e9));
            let told = sampler.observed.status.cpu_fraction;
            let spent: Nanos = sampler.costs.iter().map(|(_, cost)| *cost).sum();
            assert!(told > 0.0 && told <= spent / Nanos::new(sampler.interval.as_nanos() as f64));
        }
    }

    #[test]
    fn sources_that_are_missing_are_not_named() {
        assert!(Source::open("nothing", "/proc/no-such-file").is_none());
        let mut sampler = Sampler::new(Bytes(4096), true);
        sampler.pressure = None;
        sampler.diskstats = None;
        sampler.pauses = None;
        let (sample, observed) = sampler.sample(false);
        let observed = observed.expect("a whole look");
        assert!(sample.is_some() && observed.status.pressure.is_none() && observed.paused.is_none());
        // A run does not trace the kernel's pauses, even as root.
        let observed = Sampler::new(Bytes(4096), false).sample(false).1.expect("a whole look");
        assert!(observed.paused.is_none() && !observed.status.sources.contains(&"tracepoints".to_owned()));
    }

    #[test]
    fn rates_of_devices() {
        let disk = |written, busy| host_text::DiskCounters {
            dev: 5,
            name: "vda".to_owned(),
            written: Bytes(written),
            busy: Nanos::millis(busy),
        };
        let loads = loads(&[disk(1000, 100.0)], &[disk(5000, 600.0)], 2.0);
        assert_eq!((loads[&5].write_rate, loads[&5].busy), (Some(2000.0), Some(0.25)));
    }
}
