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
    /// What a request to a device takes beyond its transfer: latencies, seeks, ways over a network; also
    /// those that a commit waits for.
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
/// Requests that it waits for: the journal's blocks, and its record (`jbd2_journal_commit_transaction`).
const REQUESTS: f64 = 2.0;
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
                commits(device, factor, false);
                scale(device, &LATENCY, factor);
            }),
            Part::Flush => devices.for_each(|device| {
                commits(device, factor, true);
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

/// Commits whose flushes, or else whose requests, take so many times as long. What a commit takes beyond
/// both is the kernel's. Where nobody measured a flush, all of it is flushes.
fn commits(device: &mut dyn Constants, factor: f64, flushes: bool) {
    let value = |device: &mut dyn Constants, name: &str| {
        Some(device.find(name)?.number()?.value).filter(|value| *value > 0.0)
    };
    let flush = value(device, "flush");
    // The least that is known of a request.
    let request = value(device, "direct").or(value(device, "latency"));
    let request = request.map_or(f64::INFINITY, |request| request + value(device, "seek").unwrap_or(0.0));
    for name in COMMITS {
        let Some(commit) = value(device, name) else { continue };
        // Both are measured: two flushes may seem to be a little more than the commit that they are in.
        let count = |flush: f64| (commit / flush + 0.25).floor().clamp(1.0, FLUSHES);
        let flushed = flush.map_or(commit, |flush| (count(flush) * flush).min(commit));
        let part = if flushes { flushed } else { (REQUESTS * request).min(commit - flushed) };
        scale(device, &[name], 1.0 + (factor - 1.0) * part / commit);
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

    /// Commits of two flushes and of one, with their requests of 0.5 ms each and the kernel's part; one that
    /// nobody measured a flush of.
    #[test]
    fn a_commit_has_flushes_and_requests() {
        let more = |flush: f64, fsync: f64, part: Part| {
            let mut profile = HostProfile::uncalibrated();
            profile.device.flush = (flush > 0.0).then(|| Measured::assumed(Nanos::millis(flush)));
            profile.device.direct = Some(Measured::assumed(Nanos::millis(0.5)));
            profile.device.seek.value = Nanos::ZERO;
            profile.device.fsync.value = Nanos::millis(fsync);
            part.scaled(&Machine::new(profile, false), 2.0).profile.device.fsync.value.get() / 1e6 - fsync
        };
        for (flush, fsync, flushes, requests) in [
            (2.0, 5.0, 4.0, 1.0),
            (2.0, 5.3, 4.0, 1.0),
            (2.0, 3.0, 2.0, 1.0),
            (2.0, 3.9, 3.9, 0.0),
            (2.0, 1.0, 1.0, 0.0),
            (0.0, 5.0, 5.0, 0.0),
        ] {
            let found = [Part::Flush, Part::Latency].map(|part| more(flush, fsync, part));
            let off = (found[0] - flushes).abs() + (found[1] - requests).abs();
            assert!(off < 1e-9, "{fsync} with flushes of {flush}: {found:?}");
        }
    }
}
