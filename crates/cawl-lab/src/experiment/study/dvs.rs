//! Client-side caching: figures 1 and 2 of "Improving I/O Bandwidth With Cray DVS Client-Side Caching" (003):
//! bandwidth by the size of a transfer, without and with a cache on the client, observed and predicted.
//!
//! The law: **each policy has a mount of its own.** The mounts are emulated links of known latency and
//! bandwidth, each calibrated from outside before the runs; or one mount that is there, with what it keeps.

mod findings;
mod measure;
mod predict;
mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use cawl_console::compact;
use cawl_core::{CachePolicy, HostProfile, Nanos, median};
use cawl_host::place::{Backing, Place};
use cawl_measure::calibrate::{self, Effort};
use cawl_measure::interrupt::Interrupted;
use cawl_measure::scratch::{self, Scratch};
use serde::Serialize;

use self::measure::Times;
use super::super::disk::{self, Emulated};
use super::{Bench, Section};

/// The links, unless told otherwise: with the latencies that 003's factors of 10 and 100 need.
const LINKS: [&str; 2] = ["15us,1GB/s", "150us,1GB/s"];
/// Most bytes of a request, so that one carries the transfers from which on 003's bandwidth falls.
const REQUEST: &str = "request=1M";
/// Repetitions, unless told otherwise.
const REPEATS: usize = 3;
/// Sizes of transfers.
const SIZES: [u64; 11] =
    [512, 2 << 10, 4 << 10, 8 << 10, 32 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
const QUICK: [u64; 5] = [512, 4 << 10, 64 << 10, 512 << 10, 4 << 20];
/// Most calls of a pass, and bytes of them.
const MOST: (u64, u64) = (400, 8 << 20);

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
    /// Bytes per second of writing a new file, from open to close: observed and predicted.
    fn bandwidth(&self) -> [f64; 2] {
        let bytes = (self.size * self.calls) as f64;
        [&self.observed, &self.predicted].map(|times| bytes / times.whole * 1e9)
    }

    /// Bytes per second of writing a new file past the cache, from open to close: observed and predicted.
    fn bandwidth_past(&self) -> [f64; 2] {
        let bytes = (self.size * self.calls) as f64;
        [&self.observed, &self.predicted].map(|times| bytes / times.whole_past * 1e9)
    }

    /// A write into a new file, in ns: observed and predicted.
    fn write(&self) -> [f64; 2] {
        [self.observed.write, self.predicted.write]
    }
}

/// All of them.
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

/// The time that the study takes, about.
pub(super) fn expected(quick: bool) -> Nanos {
    Nanos::seconds(if quick { 80.0 } else { 200.0 })
}

pub(super) fn section(bench: &mut Bench) -> anyhow::Result<Section> {
    let mut outcomes = Outcomes(Vec::new());
    let mut mounts = Vec::new();
    if bench.net.is_empty() && bench.place.backing == Backing::Network {
        let place = bench.place.clone();
        mounts.push(mount(bench, &place.device, &place, &mut outcomes)?);
    } else {
        let links = if bench.net.is_empty() { LINKS.map(str::to_owned).to_vec() } else { bench.net.to_vec() };
        for link in links {
            for policy in CachePolicy::ALL {
                Interrupted::by(bench.signal)?;
                let lab =
                    disk::bring_up(Emulated::Network, &format!("{link},policy={},{REQUEST}", policy.name()))?;
                let place = Place::of(&lab.ready.mount)?;
                mounts.push(mount(bench, &link, &place, &mut outcomes)?);
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

/// A mount as calibrated.
struct Mount {
    link: String,
    profile: HostProfile,
}

/// Calibrates a mount and makes its runs.
fn mount(bench: &mut Bench, link: &str, place: &Place, outcomes: &mut Outcomes) -> anyhow::Result<Mount> {
    bench.progress.begin(format!("client-side caching: calibrating {link}"));
    let known = Some(bench.profile.clone()).filter(|profile| profile.memory.fresh.samples > 0);
    let effort = Effort { time: Nanos::seconds(if bench.quick { 6.0 } else { 10.0 }), ..Effort::QUICK };
    let options = calibrate::Options { path: place.folder.clone(), effort, lower_limits: false, known };
    let signal = Arc::new(AtomicUsize::new(bench.signal.load(Ordering::Relaxed)));
    let found = calibrate::calibrate(&options, signal)?;
    let network = found.profile.device.network.as_ref().context("it was not measured as a network mount")?;
    let policy = network.policy.name();
    bench.notes.extend(found.notes.iter().map(|note| format!("{link}, {policy}: {note}")));
    let scratch = Scratch::create(&place.folder, scratch::EXPERIMENT)?;
    let repeats = bench.repeats.unwrap_or(if bench.quick { 1 } else { REPEATS });
    let sizes: &[u64] = if bench.quick { &QUICK } else { &SIZES };
    for &size in sizes {
        let calls = MOST.0.min(MOST.1 / size);
        bench.progress.begin(format!("client-side caching: {link}, {policy}, {}", compact::bytes(size)));
        // The first time, the host may have to supply the memory of the pages.
        let all = (0..=repeats).map(|_| measure::measure(bench, &scratch, size, calls));
        let all = all.collect::<anyhow::Result<Vec<_>>>()?;
        let observed = Times::median(&all[1..]);
        let predicted = predict::predicted(&found.profile, size, calls)?;
        outcomes.0.push(Outcome { link: link.to_owned(), policy, size, calls, observed, predicted });
    }
    Ok(Mount { link: link.to_owned(), profile: found.profile })
}
