//! Checks a profile: a few constants are measured again, quickly.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cawl_core::{Estimate, HostProfile, Measured, Nanos, Rate};
use cawl_host::place::Backing;
use serde::Serialize;

use super::bench::after;
use super::{Options, device, memory, network, reads, set_up};

/// Relative deviation from which on a constant counts as changed.
const TOLERANCE: f64 = 0.3;

/// Ratio from which on a constant counts as changed with any spread.
const MAX: f64 = 4.0;

/// A constant as profiled and as measured now.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Its name.
    pub name: &'static str,
    /// Value in the profile.
    pub profile: f64,
    /// Value now, in the same unit: bytes per second or nanoseconds.
    pub now: f64,
    /// True if they agree.
    pub holds: bool,
    /// True for a rate.
    pub is_rate: bool,
}

/// Measures again the constants that were measured for the profile.
pub fn check(
    options: &Options,
    profile: &HostProfile,
    signal: Arc<AtomicUsize>,
) -> anyhow::Result<Vec<Compared>> {
    let mut bench = set_up(options, signal)?;
    bench.bytes_left = options.effort.bytes.0;
    let mut compared = Vec::new();
    if bench.place.backing == Backing::Network {
        let mut now = profile.clone();
        network::measure(&mut bench, options.effort.time)?.put(&bench, &mut now);
        let (then, now) = (&profile.device, &now.device);
        compared.extend(again("device write", &then.write, &now.write, Rate::get, true));
        compared.extend(again("device read", &then.read, &now.read, Rate::get, true));
        let trips = then.latency.zip(now.latency);
        compared.extend(trips.and_then(|(then, now)| again("round trip", &then, &now, Nanos::get, false)));
        return Ok(compared);
    }
    bench.progress.begin("page cache");
    bench.deadline = after(options.effort.time * 0.4);
    let memory = memory::measure(&mut bench)?;
    rate(&mut compared, "fresh pages", &profile.memory.fresh, memory.fresh);
    rate(&mut compared, "cached pages", &profile.memory.cached, memory.cached);
    time(&mut compared, "write call", &profile.calls.write, memory.call);
    bench.progress.begin("reads from the page cache");
    bench.deadline = after(options.effort.time * 0.05);
    let found = reads::measure(&mut bench)?;
    let then = [&profile.calls.read, &profile.calls.open];
    for ((name, then), now) in ["read call", "open"].into_iter().zip(then).zip([&found.call, &found.open]) {
        if let Some(then) = then {
            time(&mut compared, name, then, Estimate::of(now));
        }
    }
    if let Some(then) = &profile.memory.read {
        rate(&mut compared, "read from memory", then, Estimate::of(&found.copy));
    }
    if bench.place.backing != Backing::Memory {
        bench.progress.begin("device");
        bench.deadline = after(options.effort.time * 0.45);
        let device = device::measure(&mut bench)?;
        rate(&mut compared, "device write", &profile.device.write, device.write);
        rate(&mut compared, "device read", &profile.device.read, device.read);
        // The measured cost includes the latency, which the profile has apart.
        let latency = profile.device.latency.map_or(Nanos::ZERO, |latency| latency.value);
        let then = &profile.device.sync_call;
        let (p10, p90) = (then.p10.map(|time| time + latency), then.p90.map(|time| time + latency));
        let then = Measured { value: then.value + latency, p10, p90, ..*then };
        time(&mut compared, "synchronous call of a page", &then, device.sync_call);
    }
    bench.go_on()?;
    Ok(compared)
}

fn rate(to: &mut Vec<Compared>, name: &'static str, then: &Measured<Rate>, now: Option<Estimate>) {
    // A time per byte becomes a rate.
    let now = now.map(|now| [now.value, now.p10, now.p90].map(|time| 1e9 / time));
    to.extend(now.and_then(|now| compare(name, then, Rate::get, now, true)));
}

fn time(to: &mut Vec<Compared>, name: &'static str, then: &Measured<Nanos>, now: Option<Estimate>) {
    let now = now.map(|now| [now.value, now.p10, now.p90]);
    to.extend(now.and_then(|now| compare(name, then, Nanos::get, now, false)));
}

/// Compares a constant with what was measured now for a profile; None if it was never measured.
fn again<T: Copy>(
    name: &'static str,
    then: &Measured<T>,
    now: &Measured<T>,
    get: fn(T) -> f64,
    is_rate: bool,
) -> Option<Compared> {
    let parts = [Some(now.value), now.p10, now.p90].map(|part| get(part.unwrap_or(now.value)));
    compare(name, then, get, parts, is_rate)
}

/// Compares a constant with the value and the percentiles measured now; None if it was never measured.
fn compare<T: Copy>(
    name: &'static str,
    then: &Measured<T>,
    get: fn(T) -> f64,
    [value, low, high]: [f64; 3],
    is_rate: bool,
) -> Option<Compared> {
    let profile = get(then.value);
    let (low, high) = (low.min(high), low.max(high));
    let near = (value - profile).abs() <= TOLERANCE * profile;
    // Otherwise the two spreads, widened by the tolerance, must overlap: costs on a shared machine spread
    // widely.
    let from = then.p10.map_or(profile, get) / (1.0 + TOLERANCE);
    let to = then.p90.map_or(profile, get) * (1.0 + TOLERANCE);
    // A multiple means another machine, however wide the spread.
    let meet = low <= to && high >= from && value < MAX * profile && profile < MAX * value;
    (then.samples > 0).then_some(Compared { name, profile, now: value, holds: near || meet, is_rate })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(value: f64) -> Option<Estimate> {
        Estimate::of(&[value * 0.95, value, value * 1.05])
    }

    #[test]
    fn twice_as_slow_is_another_machine() {
        let then = estimate(2.0).unwrap().measured(|time| Rate::per_second(1e9 / time));
        let mut compared = Vec::new();
        rate(&mut compared, "same", &then, estimate(2.1));
        rate(&mut compared, "half", &then, estimate(4.0));
        rate(&mut compared, "double", &then, estimate(1.0));
        rate(&mut compared, "assumed", &Measured::assumed(Rate::MIN), estimate(1.0));
        rate(&mut compared, "not measured", &then, None);
        let holds: Vec<_> = compared.iter().map(|c| (c.name, c.holds)).collect();
        assert_eq!(holds, [("same", true), ("half", false), ("double", false)]);
    }
}
