//! Parts of a machine: constants that a dearer one has otherwise, together.

use super::Machine;
use crate::limits::DirtyLimits;
use crate::profile::{Constants, HostProfile};
use crate::units::Bytes;

/// A part of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Rates of all devices.
    Bandwidth,
    /// What a request to a device takes beyond its transfer: latencies, seeks, ways over a network. A commit
    /// waits for requests, too: what it takes beyond its flushes is this.
    Latency,
    /// Flushes of a device's cache, also those in an fsync and a synchronous write.
    Flush,
    /// Rates of copying.
    Memory,
    /// Dirty limits, which grow with the memory where they are percentages of it.
    Limits,
}

const BANDWIDTH: [&str; 6] = ["write", "read", "sequential_read", "cached_read", "writeback", "base_rate"];
const LATENCY: [&str; 14] = [
    "read_latency",
    "cached_read_latency",
    "latency",
    "direct",
    "idle",
    "seek",
    "discard_latency",
    "network.open",
    "network.create",
    "network.close",
    "network.commit",
    "network.unlink",
    "network.rename",
    "network.truncate",
];
const FLUSH: [&str; 1] = ["flush"];
/// Times of commits: flushes, and the requests of the journal between them.
const COMMITS: [&str; 2] = ["fsync", "sync_call"];
/// Flushes in a commit at most: before its record and, of a device without FUA, behind it
/// (`blk_flush_policy`, block/blk-flush.c).
const FLUSHES: f64 = 2.0;
const MEMORY: [&str; 11] = [
    "stream",
    "fresh",
    "cold",
    "cached",
    "hot",
    "hot_large",
    "near",
    "read",
    "read_hot",
    "read_fresh",
    "folio",
];
/// Of a device that is a network mount.
const MOUNT_MEMORY: [&str; 5] =
    ["network.fresh", "network.cached", "network.near", "network.read", "network.read_near"];

impl Part {
    /// All of them.
    pub const ALL: [Part; 5] = [Part::Bandwidth, Part::Latency, Part::Flush, Part::Memory, Part::Limits];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Bandwidth => "device bandwidth",
            Part::Latency => "device latency",
            Part::Flush => "device flush",
            Part::Memory => "memory speed",
            Part::Limits => "dirty limits",
        }
    }

    /// Its name in changes: `scale=bandwidth=2`.
    pub const fn word(self) -> &'static str {
        match self {
            Part::Bandwidth => "bandwidth",
            Part::Latency => "latency",
            Part::Flush => "flush",
            Part::Memory => "memory",
            Part::Limits => "limits",
        }
    }

    /// The machine with these constants `factor` times as large. Those that it has not, and whose fallback is
    /// another constant, stay absent.
    pub fn scaled(self, machine: &Machine, factor: f64) -> Machine {
        let mut machine = machine.clone();
        let HostProfile { memory, device, others, kernel, .. } = &mut machine.profile;
        let others = others.iter_mut().map(|other| &mut other.constants);
        let devices = std::iter::once(device).chain(others);
        match self {
            Part::Bandwidth => devices.for_each(|device| scale(device, &BANDWIDTH, factor)),
            Part::Latency => devices.for_each(|device| {
                commits(device, |flushes| 1.0 + (factor - 1.0) * (1.0 - flushes));
                scale(device, &LATENCY, factor);
            }),
            Part::Flush => devices.for_each(|device| {
                commits(device, |flushes| 1.0 + (factor - 1.0) * flushes);
                scale(device, &FLUSH, factor);
            }),
            Part::Memory => {
                scale(memory, &MEMORY, factor);
                devices.for_each(|device| scale(device, &MOUNT_MEMORY, factor));
            }
            Part::Limits => {
                kernel.limits = times(kernel.limits, factor);
                kernel.cgroup = kernel.cgroup.map(|limits| times(limits, factor));
                machine.limits = machine.limits.map(|limits| times(limits, factor));
                machine.limits_factor *= factor;
            }
        }
        machine
    }
}

/// Commits that take so many times as long, by the part of each that is flushes: all of it, where nobody
/// measured one.
fn commits(device: &mut dyn Constants, factor: impl Fn(f64) -> f64) {
    let value = |device: &mut dyn Constants, name: &str| {
        Some(device.find(name)?.number()?.value).filter(|value| *value > 0.0)
    };
    let flush = value(device, "flush");
    for name in COMMITS {
        let Some(commit) = value(device, name) else { continue };
        // Both are measured: two flushes may seem to be a little more than the commit that they are in.
        let count = |flush: f64| (commit / flush + 0.25).floor().clamp(1.0, FLUSHES);
        let flushes = flush.map_or(1.0, |flush| (count(flush) * flush / commit).min(1.0));
        scale(device, &[name], factor(flushes));
    }
}

fn scale(table: &mut dyn Constants, names: &[&str], factor: f64) {
    for name in names {
        if let Some(figure) = table.find(name)
            && let Some(mut known) = figure.number()
        {
            known.value *= factor;
            known.p10 = known.p10.map(|value| value * factor);
            known.p90 = known.p90.map(|value| value * factor);
            figure.set(known);
        }
    }
}

/// Limits that are so many times as large.
pub(super) fn times(limits: DirtyLimits, factor: f64) -> DirtyLimits {
    let of = |bytes: Bytes| Bytes((bytes.0 as f64 * factor) as u64);
    DirtyLimits { background: of(limits.background), hard: of(limits.hard) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{CachePolicy, Measured, NetworkConstants};
    use crate::units::Nanos;

    /// Every name is a constant's: a misspelled one would change nothing.
    #[test]
    fn every_name_is_a_constant() {
        let mut profile = HostProfile::uncalibrated();
        profile.device.network = Some(NetworkConstants::new(CachePolicy::WriteBack, Bytes::mib(1)));
        let device = BANDWIDTH.iter().chain(&LATENCY).chain(&FLUSH).chain(&COMMITS).chain(&MOUNT_MEMORY);
        let device = device.map(|name| format!("device.{name}"));
        for name in device.chain(MEMORY.iter().map(|name| format!("memory.{name}"))) {
            assert!(profile.find(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_part_is_changed_alone() {
        let mut profile = HostProfile::uncalibrated();
        profile.device.flush = Some(Measured::assumed(Nanos::millis(1.0)));
        let machine = Machine::new(profile.clone(), false);
        for part in Part::ALL {
            let scaled = part.scaled(&machine, 2.0);
            let [was, is] = [&profile, &scaled.profile].map(|profile| {
                let device = &profile.device;
                [
                    device.write.value.get(),
                    device.seek.value.get(),
                    device.flush.map_or(0.0, |flush| flush.value.get()),
                    profile.memory.fresh.value.get(),
                    profile.kernel.limits.hard.0 as f64,
                ]
            });
            for (at, (was, is)) in was.into_iter().zip(is).enumerate() {
                let factor = if Part::ALL[at] == part { 2.0 } else { 1.0 };
                assert!((is - was * factor).abs() <= 1e-9 * is, "{part:?}: {was} {is}");
            }
            assert!(scaled.profile.check().is_ok());
        }
    }

    /// A commit of two flushes and 1 ms of requests, of one, and one that nobody measured a flush of.
    #[test]
    fn what_a_commit_takes_beyond_its_flushes_is_latency() {
        let commit = |flush: f64, fsync: f64, part: Part| {
            let mut profile = HostProfile::uncalibrated();
            profile.device.flush = (flush > 0.0).then(|| Measured::assumed(Nanos::millis(flush)));
            profile.device.fsync.value = Nanos::millis(fsync);
            part.scaled(&Machine::new(profile, false), 2.0).profile.device.fsync.value.get() / 1e6
        };
        for (flush, fsync, flushes) in [(2.0, 5.0, 4.0), (2.0, 3.0, 2.0), (2.0, 3.9, 3.9), (2.0, 1.0, 1.0)] {
            let [doubled, rest] = [Part::Flush, Part::Latency].map(|part| commit(flush, fsync, part));
            assert!((doubled - fsync - flushes).abs() < 1e-9, "{flush} {fsync}: {doubled}");
            assert!((rest - 2.0 * fsync + flushes).abs() < 1e-9, "{flush} {fsync}: {rest}");
        }
        assert_eq!([commit(0.0, 5.0, Part::Flush), commit(0.0, 5.0, Part::Latency)], [10.0, 5.0]);
    }
}
