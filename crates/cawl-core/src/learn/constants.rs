//! Between the constants of a profile, each with a unit of its own, and what is estimated: times, so that
//! costs are sums.

use serde::{Deserialize, Serialize};

use super::bank::{Bank, Found, Memories};
use super::{Learner, NOTEWORTHY};
use crate::profile::{HOST_BYTE, HostProfile, Measured};
use crate::units::{Nanos, Rate};

/// Standard normal deviate of the 90th percentile.
pub(super) const P90: f64 = 1.2816;
/// A default may be off by this many times its value.
const ASSUMED: f64 = 2.0;
/// No percentile of what is learned is further from its value than by this factor.
pub(super) const FARTHEST: f64 = 1.0 + P90 * ASSUMED;
/// A measurement without percentiles may be off by this part of its value.
const MEASURED: f64 = 0.2;
/// No constant is known better than to this part of its value beforehand: machines change.
const KNOWN: f64 = 0.05;

/// No time is known better than to this beforehand: programs' own work changes what calls cost.
const LEAST: Nanos = Nanos::millis(0.001);

/// Seconds a byte that counts as dirty with its folio takes, to begin with: 25 µs for a folio of a mebibyte.
const FOLIO: f64 = 25e-6 / 1_048_576.0;

/// What is not in a profile is nothing, and may be off by these seconds: what a write into a clean inode or
/// after something else costs in addition, or a folio that is handed over; the latency of a request, and what
/// an idle device adds to it; a further request.
const FIRST: f64 = 2e-6;
const LATENCY: f64 = 50e-6;
const REQUEST: f64 = 10e-6;
/// Seconds by which a further folio of a read may be off where the profile does not have it.
const FOLIO_READ: f64 = 0.2e-6;

/// Seconds that something takes at least which may be nothing.
const SURCHARGES: (f64, f64) = (0.0, 1.0);
/// Seconds of a call.
const CALLS: (f64, f64) = (5e-9, 1.0);
/// Seconds per byte of memory and of devices.
const BYTES: (f64, f64) = (1e-12, 1e-4);
/// Seconds of waiting.
const WAITS: (f64, f64) = (0.0, 100.0);

/// A constant of the profile that is learned from observed calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// Its name in the profile: `device.writeback`.
    pub name: String,
    /// Unit of the values: B/s, ns, 1.
    pub unit: String,
    /// Value in the profile that the analysis began with.
    pub configured: f64,
    /// Value in use now.
    pub learned: f64,
    /// 10th percentile of what was learned; None if nothing was.
    pub p10: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// Observations behind it; 0: nothing was learned.
    pub samples: u64,
}

/// Value and standard deviation, in seconds.
fn of_time(measured: &Measured<Nanos>) -> (f64, f64) {
    spread(measured, Nanos::as_seconds, LEAST.as_seconds())
}

/// Value and standard deviation, in seconds, of a time below [`LEAST`] that depends little on the program.
fn of_short_time(measured: &Measured<Nanos>) -> (f64, f64) {
    spread(measured, Nanos::as_seconds, 0.0)
}

/// Value and standard deviation, in seconds; 0 and `unknown` if the profile does not have the time.
fn of_known(measured: Option<&Measured<Nanos>>, unknown: f64) -> (f64, f64) {
    measured.map_or((0.0, unknown), of_time)
}

/// Value and standard deviation, in seconds per byte.
fn of_rate(measured: &Measured<Rate>) -> (f64, f64) {
    spread(measured, |rate| 1.0 / rate.get(), 0.0)
}

fn spread<T: Copy>(measured: &Measured<T>, unit: impl Fn(T) -> f64, least: f64) -> (f64, f64) {
    let value = unit(measured.value);
    let spread = match (measured.p10, measured.p90) {
        // Not less sure than a default, however far a disturbed measurement spreads.
        (Some(low), Some(high)) => {
            ((unit(high) - unit(low)).abs() / (2.0 * P90)).clamp(KNOWN * value, ASSUMED * value)
        }
        _ if measured.samples > 0 => MEASURED * value,
        _ => ASSUMED * value,
    };
    (value, spread.max(least))
}

pub(super) fn copying(profile: &HostProfile, memories: Memories) -> Bank<8> {
    let (byte, fresh) = (of_rate(&profile.memory.cached), of_rate(&profile.memory.fresh));
    // For calls of another kind, a call without surcharges costs what calibration says: what makes those of a
    // trace dearer are its surcharges, which another program may not have.
    let least = if memories.last() { Nanos::ZERO } else { LEAST };
    let call = spread(&profile.calls.write, Nanos::as_seconds, least.as_seconds());
    let page = ((fresh.0 - byte.0).max(BYTES.0), fresh.1);
    let padded = profile.memory.folio.as_ref().map_or((FOLIO, ASSUMED * FOLIO), of_rate);
    let inode = of_known(profile.calls.inode.as_ref(), FIRST);
    let away = of_known(profile.calls.away.as_ref(), FIRST);
    let clean = of_known(profile.calls.clean.as_ref(), FIRST);
    let folio = of_known(profile.calls.folio.as_ref(), FIRST);
    Bank::new(
        [call, byte, page, padded, inode, away, clean, folio],
        [CALLS, BYTES, BYTES, BYTES, SURCHARGES, SURCHARGES, SURCHARGES, SURCHARGES],
        memories,
    )
}

/// What the host takes to supply a byte of memory.
pub(super) fn host(profile: &HostProfile, memories: Memories) -> Bank<1> {
    let fresh = of_rate(&profile.memory.fresh).0;
    let (value, spread) = match &profile.memory.cold {
        Some(cold) => (of_rate(cold).0 - fresh, of_rate(cold).1),
        None => (HOST_BYTE, ASSUMED * HOST_BYTE),
    };
    Bank::new([(value.max(HOST_BYTE / 4.0), spread)], [(HOST_BYTE / 4.0, BYTES.1)], memories)
}

pub(super) fn slowdown(profile: &HostProfile, memories: Memories) -> Bank<1> {
    let factor = spread(&profile.memory.flush_factor, |factor| 1.0 / factor, 0.0);
    Bank::new([factor], [(1.0, 100.0)], memories)
}

pub(super) fn stream(profile: &HostProfile, memories: Memories) -> Bank<2> {
    let (call, byte) = (of_time(&profile.calls.stream), of_rate(&profile.memory.stream));
    Bank::new([call, byte], [CALLS, BYTES], memories)
}

pub(super) fn waiting(profile: &HostProfile, memories: Memories) -> Bank<10> {
    let device = &profile.device;
    let (byte, sync) = (of_rate(&device.write), of_time(&device.sync_call));
    let (fsync, seek) = (of_time(&device.fsync), of_time(&device.seek));
    let latency = of_known(device.latency.as_ref(), LATENCY);
    // Where it is not known, it counts as a part of a commit.
    let flush = of_known(device.flush.as_ref(), 0.0);
    let idle = of_known(device.idle.as_ref(), LATENCY);
    let request = of_known(device.request.as_ref(), REQUEST);
    let folio = of_known(device.folio.as_ref(), FIRST);
    // Where it was not measured, it is in what a synchronous write takes.
    let allocation = of_known(device.delayed_allocation.as_ref(), 0.0);
    Bank::new(
        [byte, sync, fsync, seek, latency, flush, idle, request, folio, allocation],
        [BYTES, WAITS, WAITS, WAITS, WAITS, WAITS, SURCHARGES, SURCHARGES, SURCHARGES, SURCHARGES],
        memories,
    )
    .sceptical()
}

/// A read from the page cache: call, byte, folio in the processor's cache and in memory, byte of a new page,
/// page of the program's memory that is touched first, a millisecond since the thread's previous call.
pub(super) fn reading(profile: &HostProfile, memories: Memories) -> Bank<7> {
    let (calls, memory) = (&profile.calls, &profile.memory);
    let byte = of_rate(&memory.read.unwrap_or(memory.cached));
    let fresh = of_rate(&memory.read_fresh.unwrap_or(memory.fresh));
    let page = ((fresh.0 - byte.0).max(BYTES.0), fresh.1);
    let folio = |known: Option<Measured<Nanos>>| known.as_ref().map_or((0.0, FOLIO_READ), of_short_time);
    let call = of_short_time(&calls.read.unwrap_or(calls.write));
    let (near, far) = (folio(calls.read_folio), folio(calls.read_folio_far.or(calls.read_folio)));
    let fault = of_known(calls.fault.as_ref(), FIRST);
    let away = of_known(calls.read_away.or(calls.away).as_ref(), FIRST);
    Bank::new(
        [call, byte, near, far, page, fault, away],
        [CALLS, BYTES, SURCHARGES, SURCHARGES, BYTES, SURCHARGES, SURCHARGES],
        memories,
    )
}

/// A read that waits for the device: until the first byte comes, and each byte past the cache and read ahead.
pub(super) fn fetching(profile: &HostProfile, memories: Memories) -> Bank<3> {
    let device = &profile.device;
    let latency = of_known(device.read_latency.or(device.latency).as_ref(), LATENCY);
    let ahead = of_rate(&device.sequential_read.unwrap_or(device.read));
    Bank::new([latency, of_rate(&device.read), ahead], [WAITS, BYTES, BYTES], memories).reopening()
}

/// Opening, creating and closing a file, and taking a page of it out of the cache.
pub(super) fn opening(profile: &HostProfile, memories: Memories) -> Bank<4> {
    let calls = &profile.calls;
    let open = of_short_time(&calls.open.unwrap_or(calls.write));
    let close = of_short_time(&calls.close.or(calls.empty).unwrap_or(calls.write));
    let create = of_known(calls.create.as_ref(), FIRST);
    let free = of_short_time(&calls.free);
    Bank::new([open, create, close, free], [CALLS, SURCHARGES, CALLS, CALLS], memories)
}

pub(super) fn writeback(profile: &HostProfile, memories: Memories) -> Bank<1> {
    let rate = spread(&profile.device.writeback, Rate::get, 0.0);
    Bank::new([rate], [(1.0 / BYTES.1, 1.0 / BYTES.0)], memories)
}

impl Learner {
    pub(super) fn adopt_copying(&mut self) -> bool {
        let (bank, memory, calls) = (&self.copying, &mut self.profile.memory, &mut self.profile.calls);
        let (byte, page, host) = (bank.found(1), bank.found(2), self.host.found(0));
        let times = time(&mut calls.write, bank.found(0))
            | known(&mut calls.inode, bank.found(4))
            | known(&mut calls.away, bank.found(5))
            | known(&mut calls.clean, bank.found(6))
            | known(&mut calls.folio, bank.found(7));
        let before = memory.cached.value;
        let cached = rate(&mut memory.cached, byte);
        memory.heat(before);
        let (value, deviation) = (byte.value + page.value, byte.deviation.hypot(page.deviation));
        let fresh = rate(&mut memory.fresh, Found { value, deviation, ..page });
        let mut colds = false;
        if host.samples > 0 {
            let cold = memory.cold.get_or_insert(memory.fresh);
            colds = rate(cold, Found { value: value + host.value, ..host });
        }
        let known = memory.folio.get_or_insert_with(|| Measured::assumed(Rate::per_second(1.0 / FOLIO)));
        let folios = rate(known, bank.found(3));
        let slowdown = self.slowdown.found(0);
        let factor = inverse(&mut memory.flush_factor, slowdown, |factor| factor.clamp(0.01, 1.0), |f| f);
        if factor {
            // What was learned is of both.
            memory.cached_flush_factor = None;
        }
        times | cached | fresh | folios | colds | factor
    }

    pub(super) fn adopt_stream(&mut self) -> bool {
        let HostProfile { calls, memory, .. } = &mut self.profile;
        time(&mut calls.stream, self.stream.found(0)) | rate(&mut memory.stream, self.stream.found(1))
    }

    pub(super) fn adopt_waiting(&mut self) -> bool {
        let (bank, device) = (&self.waiting, &mut self.profile.device);
        rate(&mut device.write, bank.found(0))
            | time(&mut device.sync_call, bank.found(1))
            | time(&mut device.fsync, bank.found(2))
            | time(&mut device.seek, bank.found(3))
            | known(&mut device.latency, bank.found(4))
            | known(&mut device.flush, bank.found(5))
            | known(&mut device.idle, bank.found(6))
            | known(&mut device.request, bank.found(7))
            | known(&mut device.folio, bank.found(8))
            | known(&mut device.delayed_allocation, bank.found(9))
    }

    pub(super) fn adopt_reading(&mut self) -> bool {
        let HostProfile { calls, memory, .. } = &mut self.profile;
        let (bank, call) = (&self.reading, calls.write);
        let (byte, page) = (bank.found(1), bank.found(4));
        let (cached, fresh) = (memory.cached, memory.fresh);
        let (value, deviation) = (byte.value + page.value, byte.deviation.hypot(page.deviation));
        time(calls.read.get_or_insert(call), bank.found(0))
            | rate(memory.read.get_or_insert(cached), byte)
            | known(&mut calls.read_folio, bank.found(2))
            | known(&mut calls.read_folio_far, bank.found(3))
            | known(&mut calls.fault, bank.found(5))
            | known(&mut calls.read_away, bank.found(6))
            | rate(memory.read_fresh.get_or_insert(fresh), Found { value, deviation, ..page })
    }

    pub(super) fn adopt_fetching(&mut self) -> bool {
        let (bank, device) = (&self.fetching, &mut self.profile.device);
        let read = device.read;
        known(&mut device.read_latency, bank.found(0))
            | rate(&mut device.read, bank.found(1))
            | rate(device.sequential_read.get_or_insert(read), bank.found(2))
    }

    pub(super) fn adopt_opening(&mut self) -> bool {
        let (bank, calls) = (&self.opening, &mut self.profile.calls);
        let call = calls.write;
        time(calls.open.get_or_insert(call), bank.found(0))
            | known(&mut calls.create, bank.found(1))
            | time(calls.close.get_or_insert(call), bank.found(2))
            | time(&mut calls.free, bank.found(3))
    }

    pub(super) fn adopt_writeback(&mut self) -> bool {
        let (found, known) = (self.writeback.found(0), &mut self.profile.device.writeback);
        let changed = is_noteworthy(known.value.get(), found.value);
        take_over(known, found.ends().map(Rate::per_second), found.samples, changed)
    }

    /// The constants that are learned, as configured and as learned.
    pub fn constants(&self) -> Vec<Constant> {
        let (copied, streamed) = (self.copying.samples, self.stream.samples);
        let (waited, written) = (self.waiting.samples, self.writeback.samples);
        let all = [
            ("memory.fresh", "B/s", copied),
            ("memory.cached", "B/s", copied),
            ("memory.stream", "B/s", streamed),
            ("device.write", "B/s", waited),
            ("device.writeback", "B/s", written),
            ("calls.write", "ns", copied),
            ("calls.stream", "ns", streamed),
            ("device.sync_call", "ns", waited),
            ("device.fsync", "ns", waited),
            ("device.seek", "ns", waited),
            ("calls.inode", "ns", copied),
            ("calls.away", "ns", copied),
            ("calls.clean", "ns", copied),
            ("calls.folio", "ns", copied),
            ("device.latency", "ns", waited),
            ("device.flush", "ns", waited),
            ("device.idle", "ns", waited),
            ("device.request", "ns", waited),
            ("device.folio", "ns", waited),
            ("device.delayed_allocation", "ns", waited),
            ("memory.read", "B/s", self.reading.samples),
            ("memory.read_fresh", "B/s", self.reading.samples),
            ("calls.read", "ns", self.reading.samples),
            ("calls.read_folio", "ns", self.reading.samples),
            ("calls.read_folio_far", "ns", self.reading.samples),
            ("calls.fault", "ns", self.reading.samples),
            ("calls.read_away", "ns", self.reading.samples),
            ("device.read", "B/s", self.fetching.samples),
            ("device.sequential_read", "B/s", self.fetching.samples),
            ("device.read_latency", "ns", self.fetching.samples),
            ("calls.open", "ns", self.opening.samples),
            ("calls.create", "ns", self.opening.samples),
            ("calls.close", "ns", self.opening.samples),
            ("calls.free", "ns", self.opening.samples),
            ("memory.flush_factor", "1", self.slowdown.samples),
            ("memory.cold", "B/s", self.host.samples),
            ("memory.folio", "B/s", copied),
        ];
        let (mut was, mut now) = (self.configured.clone(), self.profile.clone());
        let constants = all.into_iter().filter_map(|(name, unit, samples)| {
            let Measured { value: learned, p10, p90, .. } = now.constant(name)?.get()?;
            // A surcharge that is not in a profile is none.
            let unknown = if unit == "ns" { 0.0 } else { learned };
            let configured = was.constant(name)?.get().map_or(unknown, |was| was.value);
            let (p10, p90) = p10.zip(p90).filter(|_| samples > 0).unzip();
            let (name, unit) = (name.to_owned(), unit.to_owned());
            Some(Constant { name, unit, configured, learned, p10, p90, samples })
        });
        constants.collect()
    }
}

fn is_noteworthy(known: f64, learned: f64) -> bool {
    (learned - known).abs() > NOTEWORTHY * known.abs().max(1e-12)
}

impl Found {
    /// The value, and its percentiles.
    fn ends(self) -> [f64; 3] {
        let off = P90 * self.deviation;
        [self.value, self.value - off, self.value + off]
    }
}

/// Takes a time over, in seconds; true if the models must be told.
fn time(known: &mut Measured<Nanos>, found: Found) -> bool {
    let changed = is_noteworthy(known.value.as_seconds(), found.value);
    take_over(known, found.ends().map(Nanos::seconds), found.samples, changed)
}

/// Takes over a time that a profile may not have; at 0 it stays unknown. True if the models must be told.
fn known(known: &mut Option<Measured<Nanos>>, found: Found) -> bool {
    if known.is_none() && found.value <= 0.0 {
        return false;
    }
    time(known.get_or_insert_with(|| Measured::assumed(Nanos::ZERO)), found)
}

/// Takes a rate over from seconds per byte; true if the models must be told.
fn rate(known: &mut Measured<Rate>, found: Found) -> bool {
    inverse(known, found, Rate::per_second, Rate::get)
}

fn inverse<T: Copy>(
    known: &mut Measured<T>,
    found: Found,
    make: impl Fn(f64) -> T,
    get: impl Fn(T) -> f64,
) -> bool {
    let [value, low, most] = found.ends();
    // Most of an inverse's distribution lies where the deviation is small against the value.
    let least = low.max(value * 0.1);
    let changed = is_noteworthy(1.0 / get(known.value), value);
    take_over(known, [value, most, least].map(|value| make(1.0 / value)), found.samples, changed)
}

/// Takes over percentiles and, if it has changed, the value.
fn take_over<T: Copy>(
    known: &mut Measured<T>,
    [value, p10, p90]: [T; 3],
    samples: u64,
    changed: bool,
) -> bool {
    let value = if changed { value } else { known.value };
    let samples = u32::try_from(samples).unwrap_or(u32::MAX);
    *known = Measured { value, p10: Some(p10), p90: Some(p90), samples };
    changed
}
