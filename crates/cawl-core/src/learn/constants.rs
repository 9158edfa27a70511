//! Between the constants of a profile, each with a unit of its own, and what is estimated: times, so that
//! costs are sums.

use serde::{Deserialize, Serialize};

use super::bank::{Bank, Found, Memories};
use super::{Learner, NOTEWORTHY};
use crate::profile::{Figure, HOST_BYTE, HostProfile, Measured, Unit};
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
const MIN: Nanos = Nanos::millis(0.001);

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
/// Bytes per second.
const RATES: (f64, f64) = (1.0 / BYTES.1, 1.0 / BYTES.0);
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
    spread(measured, Nanos::as_seconds, MIN.as_seconds())
}

/// Value and standard deviation, in seconds, of a time below [`MIN`] that depends little on the program.
fn of_short_time(measured: &Measured<Nanos>) -> (f64, f64) {
    spread(measured, Nanos::as_seconds, 0.0)
}

/// Value and standard deviation, in seconds; 0 and `unknown` if the profile does not have the time.
fn of_known(measured: Option<&Measured<Nanos>>, unknown: f64) -> (f64, f64) {
    measured.map_or((0.0, unknown), of_time)
}

/// Value and standard deviation, in seconds, of a further folio of a read.
fn of_folio(known: Option<Measured<Nanos>>) -> (f64, f64) {
    known.as_ref().map_or((0.0, FOLIO_READ), of_short_time)
}

/// Value and standard deviation of what a byte takes beyond one that takes `least`, in seconds.
fn beyond(byte: &Measured<Rate>, least: &Measured<Rate>) -> (f64, f64) {
    let (value, spread) = of_rate(byte);
    ((value - of_rate(least).0).max(BYTES.0), spread)
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

/// A coefficient of a bank, and the constant of the profile that comes from it.
pub(super) struct Coefficient {
    /// The constant's name in the file.
    pub(super) name: &'static str,
    figure: fn(&mut HostProfile) -> &mut dyn Figure,
    /// Value and standard deviation to begin with; true if nothing fades.
    prior: fn(&HostProfile, bool) -> (f64, f64),
    bounds: (f64, f64),
    /// The constant is the sum of this and of another one of the bank.
    beyond: &'static [usize],
}

macro_rules! coefficient {
    ($table:ident.$field:ident, $bounds:expr, |$of:ident, $lasting:pat_param| $prior:expr $(, beyond $other:literal)?) => {
        Coefficient {
            name: concat!(stringify!($table), ".", stringify!($field)),
            figure: |profile| &mut profile.$table.$field,
            prior: |$of, $lasting| $prior,
            bounds: $bounds,
            beyond: &[$($other)?],
        }
    };
}

impl Coefficient {
    /// Takes over what was found; true if the models must be told. A time that the profile does not have
    /// stays unknown at 0.
    fn adopt(&self, found: Found, profile: &mut HostProfile) -> bool {
        let known = (self.figure)(profile).number();
        let prior = if known.is_none() { (self.prior)(profile, true).0 } else { 0.0 };
        let figure = (self.figure)(profile);
        let unit = figure.unit();
        if known.is_none() && unit == Unit::Time && found.value <= 0.0 {
            return false;
        }
        let (to, ends): (fn(f64) -> f64, _) = match unit {
            Unit::Time => (|seconds| Nanos::seconds(seconds).get(), found.ends()),
            Unit::Number => (|slower| (1.0 / slower).clamp(0.01, 1.0), found.inverse_ends()),
            _ if self.is_rate() => (|rate| rate, found.ends()),
            _ => (|byte| 1.0 / byte, found.inverse_ends()),
        };
        let before = known.map_or(prior, |known| match unit {
            Unit::Time => Nanos::new(known.value).as_seconds(),
            _ if self.is_rate() => known.value,
            _ => 1.0 / known.value,
        });
        let changed = is_noteworthy(before, found.value);
        let value = match known {
            Some(known) if !changed => known.value,
            _ => to(found.value),
        };
        let samples = u32::try_from(found.samples).unwrap_or(u32::MAX);
        let [p10, p90] = ends.map(|end| Some(to(end)));
        figure.set(Measured { value, p10, p90, samples });
        changed
    }

    /// The bank has a rate, not the time of a byte.
    fn is_rate(&self) -> bool {
        self.bounds == RATES
    }
}

/// The constants of calls that copy: a call, a byte, what a byte of a new page takes beyond that, and
/// surcharges. For calls of another kind, a call without surcharges costs what calibration says: what makes
/// those of a trace dearer is its surcharges, which another program may not have.
pub(super) const COPYING: [Coefficient; 8] = [
    coefficient!(calls.write, CALLS, |of, lasting| {
        spread(&of.calls.write, Nanos::as_seconds, if lasting { 0.0 } else { MIN.as_seconds() })
    }),
    coefficient!(memory.cached, BYTES, |of, _| of_rate(&of.memory.cached)),
    coefficient!(memory.fresh, BYTES, |of, _| beyond(&of.memory.fresh, &of.memory.cached), beyond 1),
    coefficient!(memory.folio, BYTES, |of, _| of
        .memory
        .folio
        .as_ref()
        .map_or((FOLIO, ASSUMED * FOLIO), of_rate)),
    coefficient!(calls.inode, SURCHARGES, |of, _| of_known(of.calls.inode.as_ref(), FIRST)),
    coefficient!(calls.away, SURCHARGES, |of, _| of_known(of.calls.away.as_ref(), FIRST)),
    coefficient!(calls.clean, SURCHARGES, |of, _| of_known(of.calls.clean.as_ref(), FIRST)),
    coefficient!(calls.folio, SURCHARGES, |of, _| of_known(of.calls.folio.as_ref(), FIRST)),
];

/// What the host takes to supply a byte of memory; the constant is that of a cold page, with its copy.
pub(super) const HOST: [Coefficient; 1] =
    [coefficient!(memory.cold, (HOST_BYTE.0 / 4.0, BYTES.1), |of, _| {
        let (value, spread) = match &of.memory.cold {
            Some(cold) => (of_rate(cold).0 - of_rate(&of.memory.fresh).0, of_rate(cold).1),
            None => (HOST_BYTE.0, ASSUMED * HOST_BYTE.0),
        };
        (value.max(HOST_BYTE.0 / 4.0), spread)
    })];

pub(super) const SLOWDOWN: [Coefficient; 1] = [coefficient!(memory.flush_factor, (1.0, 100.0), |of, _| {
    spread(&of.memory.flush_factor, |factor| 1.0 / factor, 0.0)
})];

pub(super) const STREAM: [Coefficient; 2] = [
    coefficient!(calls.stream, CALLS, |of, _| of_time(&of.calls.stream)),
    coefficient!(memory.stream, BYTES, |of, _| of_rate(&of.memory.stream)),
];

/// Calls that wait for the device. A flush that is not known is a part of a commit; an allocation, of what a
/// synchronous write takes.
pub(super) const WAITING: [Coefficient; 11] = [
    coefficient!(device.write, BYTES, |of, _| of_rate(&of.device.write)),
    coefficient!(device.sync_call, WAITS, |of, _| of_time(&of.device.sync_call)),
    coefficient!(device.fsync, WAITS, |of, _| of_time(&of.device.fsync)),
    coefficient!(device.seek, WAITS, |of, _| of_time(&of.device.seek)),
    coefficient!(device.latency, WAITS, |of, _| of_known(of.device.latency.as_ref(), LATENCY)),
    coefficient!(device.flush, WAITS, |of, _| of_known(of.device.flush.as_ref(), 0.0)),
    coefficient!(device.idle, SURCHARGES, |of, _| of_known(of.device.idle.as_ref(), LATENCY)),
    coefficient!(device.request, SURCHARGES, |of, _| of_known(of.device.request.as_ref(), REQUEST)),
    coefficient!(device.folio, SURCHARGES, |of, _| of_known(of.device.folio.as_ref(), FIRST)),
    coefficient!(device.delayed_allocation, SURCHARGES, |of, _| of_known(
        of.device.delayed_allocation.as_ref(),
        0.0
    )),
    coefficient!(device.discard_latency, WAITS, |of, _| {
        let device = &of.device;
        of_known(device.discard_latency.or(device.latency.filter(|_| device.discard.is_some())).as_ref(), 0.0)
    }),
];

pub(super) const WRITEBACK: [Coefficient; 1] =
    [coefficient!(device.writeback, RATES, |of, _| spread(&of.device.writeback, Rate::get, 0.0))];

/// A read from the page cache: call, byte, folio in memory, byte of a new page,
/// page of the program's memory that is touched first, a millisecond since the thread's previous call.
pub(super) const READING: [Coefficient; 6] = [
    coefficient!(calls.read, CALLS, |of, _| of_short_time(&of.calls.read())),
    coefficient!(memory.read, BYTES, |of, _| of_rate(&of.memory.read())),
    coefficient!(calls.read_folio_far, SURCHARGES, |of, _| of_folio(of.calls.read_folio_far)),
    coefficient!(memory.read_fresh, BYTES, |of, _| beyond(&of.memory.read_fresh(), &of.memory.read()), beyond 1),
    coefficient!(calls.fault, SURCHARGES, |of, _| of_known(of.calls.fault.as_ref(), FIRST)),
    coefficient!(calls.read_away, SURCHARGES, |of, _| of_known(
        of.calls.read_away.or(of.calls.away).as_ref(),
        FIRST
    )),
];

/// A read that waits for the device: until the first byte comes, and each byte past the cache and read ahead.
pub(super) const FETCHING: [Coefficient; 3] = [
    coefficient!(device.read_latency, WAITS, |of, _| {
        of_known(of.device.read_latency.or(of.device.latency).as_ref(), LATENCY)
    }),
    coefficient!(device.read, BYTES, |of, _| of_rate(&of.device.read)),
    coefficient!(device.sequential_read, BYTES, |of, _| of_rate(&of.device.sequential_read())),
];

/// Opening, creating and closing a file, and taking a page of it out of the cache.
pub(super) const OPENING: [Coefficient; 4] = [
    coefficient!(calls.open, CALLS, |of, _| of_short_time(&of.calls.open())),
    coefficient!(calls.create, SURCHARGES, |of, _| of_known(of.calls.create.as_ref(), FIRST)),
    coefficient!(calls.close, CALLS, |of, _| of_short_time(&of.calls.close())),
    coefficient!(calls.free, CALLS, |of, _| of_short_time(&of.calls.free)),
];

/// Taking a name away, looking at one, and what is derived from these.
pub(super) const NAMING: [Coefficient; 2] = [
    coefficient!(calls.name, CALLS, |of, _| of_short_time(&of.calls.name())),
    coefficient!(calls.stat, CALLS, |of, _| of_short_time(&of.calls.stat())),
];

impl Constant {
    /// The names of all constants that are learned.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let banks: [&[Coefficient]; 10] = [
            &COPYING, &HOST, &SLOWDOWN, &STREAM, &WAITING, &WRITEBACK, &READING, &FETCHING, &OPENING, &NAMING,
        ];
        banks.into_iter().flatten().map(|one| one.name)
    }
}

impl<const N: usize> Bank<N> {
    /// A bank of these coefficients, which begins with what the profile knows.
    pub(super) fn of(coefficients: &[Coefficient; N], profile: &HostProfile, memories: Memories) -> Bank<N> {
        let prior = |one: &Coefficient| (one.prior)(profile, memories.last());
        Bank::new(coefficients.each_ref().map(prior), coefficients.each_ref().map(|one| one.bounds), memories)
    }

    /// A constant as it was found, which may be a sum.
    fn sum(&self, coefficients: &[Coefficient; N], at: usize) -> Found {
        let found = self.found(at);
        coefficients[at].beyond.first().map_or(found, |of| {
            let other = self.found(*of);
            let (value, deviation) = (other.value + found.value, other.deviation.hypot(found.deviation));
            Found { value, deviation, ..found }
        })
    }

    /// Takes over what was found into the profile; true if the models must be told.
    pub(super) fn adopt(&self, coefficients: &[Coefficient; N], profile: &mut HostProfile) -> bool {
        let each = coefficients.iter().enumerate();
        each.fold(false, |changed, (at, one)| one.adopt(self.sum(coefficients, at), profile) | changed)
    }
}

impl Learner {
    pub(super) fn adopt_copying(&mut self) -> bool {
        let Learner { copying, host, slowdown, profile, .. } = self;
        let before = profile.memory.cached.value;
        let mut changed = copying.adopt(&COPYING, profile);
        profile.memory.heat(before);
        let (fresh, host) = (copying.sum(&COPYING, 2), host.found(0));
        if host.samples > 0 {
            profile.memory.cold.get_or_insert(profile.memory.fresh);
            changed |= HOST[0].adopt(Found { value: fresh.value + host.value, ..host }, profile);
        }
        changed | slowdown.adopt(&SLOWDOWN, profile)
    }

    /// The constants that are learned, as configured and as learned.
    pub fn constants(&self) -> Vec<Constant> {
        let banks: [(&[Coefficient], u64); 10] = [
            (&COPYING, self.copying.samples),
            (&HOST, self.host.samples),
            (&SLOWDOWN, self.slowdown.samples),
            (&STREAM, self.stream.samples),
            (&WAITING, self.waiting.samples),
            (&WRITEBACK, self.writeback.samples),
            (&READING, self.reading.samples),
            (&FETCHING, self.fetching.samples),
            (&OPENING, self.opening.samples),
            (&NAMING, self.naming.samples),
        ];
        let (mut was, mut now) = (self.configured.clone(), self.profile.clone());
        let all = banks.into_iter().flat_map(|(bank, samples)| bank.iter().map(move |one| (one, samples)));
        let constants = all.filter_map(|(one, samples)| {
            let figure = (one.figure)(&mut now);
            let Measured { value: learned, p10, p90, .. } = figure.number()?;
            // A surcharge that is not in a profile is none.
            let unknown = if figure.unit() == Unit::Time { 0.0 } else { learned };
            let configured = (one.figure)(&mut was).number().map_or(unknown, |was| was.value);
            let (p10, p90) = p10.zip(p90).filter(|_| samples > 0).unzip();
            let (name, unit) = (one.name.to_owned(), figure.unit().name().to_owned());
            Some(Constant { name, unit, configured, learned, p10, p90, samples })
        });
        constants.collect()
    }
}

fn is_noteworthy(known: f64, learned: f64) -> bool {
    (learned - known).abs() > NOTEWORTHY * known.abs().max(1e-12)
}

impl Found {
    fn ends(self) -> [f64; 2] {
        let off = P90 * self.deviation;
        [self.value - off, self.value + off]
    }

    /// Those that become the percentiles of an inverse, most of whose distribution lies where the deviation
    /// is small against the value.
    fn inverse_ends(self) -> [f64; 2] {
        let [low, most] = self.ends();
        [most, low.max(self.value * 0.1)]
    }
}
