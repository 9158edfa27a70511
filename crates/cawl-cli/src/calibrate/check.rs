//! Checks a profile: a few constants are measured again, quickly.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use cawl_core::{Estimate, HostProfile, Measured, Nanos, Rate};
use cawl_host::place::Backing;
use serde::Serialize;

use super::bench::after;
use super::{Options, device, memory, set_up};

/// Relative deviation from which on a constant counts as changed.
const TOLERANCE: f64 = 0.3;

/// Ratio from which on a constant counts as changed with any spread.
const MOST: f64 = 4.0;

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
    bench.progress.begin("page cache");
    bench.deadline = after(options.effort.time * 0.4);
    let memory = memory::measure(&mut bench)?;
    rate(&mut compared, "fresh pages", &profile.memory.fresh, memory.fresh);
    rate(&mut compared, "cached pages", &profile.memory.cached, memory.cached);
    time(&mut compared, "write call", &profile.calls.write, memory.call);
    if bench.place.backing != Backing::Memory {
        bench.progress.begin("device");
        bench.deadline = after(options.effort.time * 0.5);
        let device = device::measure(&mut bench)?;
        rate(&mut compared, "device write", &profile.device.write, device.write);
        rate(&mut compared, "device read", &profile.device.read, device.read);
        // The measured cost includes the latency, which the profile has apart.
        let latency = profile.device.latency.map_or(Nanos::ZERO, |latency| latency.value);
        let then = &profile.device.sync_call;
        let (p10, p90) = (then.p10.map(|time| time + latency), then.p90.map(|time| time + latency));
        let then = Measured { value: then.value + latency, p10, p90, ..*then };
        time(&mut compared, "synchronous call", &then, device.sync_call);
    }
    bench.go_on()?;
    Ok(compared)
}

fn rate(to: &mut Vec<Compared>, name: &'static str, then: &Measured<Rate>, now: Option<Estimate>) {
    let get = |rate: Option<Rate>| rate.map(Rate::get);
    let spread = (get(then.p10), get(then.p90));
    // A time per byte becomes a rate.
    let now = now.map(|now| [now.value, now.p10, now.p90].map(|time| 1e9 / time));
    compare(to, name, then.samples, then.value.get(), spread, now, true);
}

fn time(to: &mut Vec<Compared>, name: &'static str, then: &Measured<Nanos>, now: Option<Estimate>) {
    let get = |time: Option<Nanos>| time.map(Nanos::get);
    let spread = (get(then.p10), get(then.p90));
    let now = now.map(|now| [now.value, now.p10, now.p90]);
    compare(to, name, then.samples, then.value.get(), spread, now, false);
}

fn compare(
    to: &mut Vec<Compared>,
    name: &'static str,
    samples: u32,
    then: f64,
    spread: (Option<f64>, Option<f64>),
    now: Option<[f64; 3]>,
    is_rate: bool,
) {
    let Some([value, low, high]) = now.filter(|_| samples > 0) else { return };
    let (low, high) = (low.min(high), low.max(high));
    let near = (value - then).abs() <= TOLERANCE * then;
    // Otherwise the two spreads, widened by the tolerance, must overlap: costs on a shared machine spread
    // widely.
    let (from, to_) =
        (spread.0.unwrap_or(then) / (1.0 + TOLERANCE), spread.1.unwrap_or(then) * (1.0 + TOLERANCE));
    // A multiple means another machine, however wide the spread.
    let meet = low <= to_ && high >= from && value < MOST * then && then < MOST * value;
    to.push(Compared { name, profile: then, now: value, holds: near || meet, is_rate });
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
