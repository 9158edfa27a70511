//! How far off a prediction may be, by what is known of the profile's constants.
//!
//! The law: each part of the cost has the spread of the constant that it comes from; what rests on the same
//! memory or the same device goes wrong together, what is independent adds up as squares. Memory that may
//! turn out cold reaches up to the cost of cold memory. Of a task's pauses only the sum is known well: when
//! it is checked (`nr_dirtied_pause` in `balance_dirty_pages`, 6.18) depends on everything it dirtied before,
//! so that a call may have one more of them or one less. What the processor's cache saves of copying may be
//! nothing; where it was not measured, it may be all.

use super::Call;
use crate::cause::Cause;
use crate::profile::{HostProfile, Measured};
use crate::units::{Nanos, Pages, Rate, Seconds};

/// Part of a task's quota from which on a call that was predicted not to pause does so in one case of ten.
const LIKELY: f64 = 0.1;

/// Factors from a part of the cost to its 10th and 90th percentile.
type Factors = (f64, f64);

/// How far down and up a time may be off.
type Off = (Seconds, Seconds);

/// A fixed cost of nothing.
const NONE: (Seconds, Off) = (Seconds::ZERO, (Seconds::ZERO, Seconds::ZERO));

#[derive(Clone, Copy, Debug)]
pub(super) struct Spreads {
    call: Factors,
    stream: Factors,
    /// Of pages that are allocated and of those that are cached, while nothing is written back and while
    /// something is.
    fresh: [Factors; 2],
    /// How many times their cost pages that are allocated may cost if their memory is cold, and the spread of
    /// what that adds.
    frozen: f64,
    cold: Factors,
    cached: [Factors; 2],
    throttle: Factors,
    transfer: Factors,
    /// Of synchronous writes, commits, flushes and the latency: what they take, and how far down and up it
    /// goes.
    fixed: [(Seconds, Off); 4],
    /// What copying from the processor's cache takes is known.
    hot: bool,
    known: bool,
}

/// Time that the host takes to supply memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cold {
    pub(super) least: Seconds,
    pub(super) likely: Seconds,
    pub(super) most: Seconds,
    /// What is known of free memory says so.
    pub(super) foreseen: bool,
}

/// The spread of a product of two constants.
fn both(a: Factors, b: Factors) -> Factors {
    let root = |a: f64, b: f64| a.ln().hypot(b.ln()).exp();
    (1.0 / root(a.0, b.0), root(a.1, b.1))
}

impl Spreads {
    /// Rates spread the cost inversely, times directly.
    pub(super) fn of(profile: &HostProfile) -> Spreads {
        let (calls, memory, device) = (&profile.calls, &profile.memory, &profile.device);
        let factors =
            |found: Option<Factors>| found.map_or((1.0, 1.0), |(lo, hi)| (lo.min(1.0), hi.max(1.0)));
        let ratio = |value: f64, lo: Option<f64>, hi: Option<f64>| {
            lo.zip(hi).filter(|(lo, _)| *lo > 0.0 && value > 0.0).map(|(lo, hi)| (value / hi, value / lo))
        };
        let rates = |m: &Measured<Rate>| ratio(m.value.get(), m.p10.map(Rate::get), m.p90.map(Rate::get));
        let seconds = |m: &Measured<Nanos>| {
            let of = |time: Option<Nanos>| Seconds::from(time.unwrap_or(m.value));
            let value = Seconds::from(m.value);
            (value, ((of(m.p10) - value).min(Seconds::ZERO), (of(m.p90) - value).max(Seconds::ZERO)))
        };
        let times = |m: &Measured<Nanos>| match (m.p10, m.p90) {
            (Some(lo), Some(hi)) if m.value.get() > 0.0 => Some((lo / m.value, hi / m.value)),
            _ => None,
        };
        let parts = |m: &Measured<f64>| ratio(m.value, m.p10, m.p90);
        let found = [
            times(&calls.write),
            rates(&memory.stream),
            rates(&memory.fresh),
            rates(&device.writeback),
            times(&device.sync_call).or_else(|| rates(&device.write)),
        ];
        // What is rarer than one in ten lies beyond the 90th percentile.
        let seldom = memory.cold_share.is_some_and(|share| share.value < 0.1);
        let cold = memory.cold.filter(|_| !seldom);
        let frozen = cold.map_or(1.0, |cold| memory.fresh.value / cold.p10.unwrap_or(cold.value));
        let flush = factors(parts(&memory.flush_factor));
        let (fresh, cached) = (factors(found[2]), factors(rates(&memory.cached)));
        let (base, rate) = (factors(device.base_rate.as_ref().and_then(rates)), factors(found[3]));
        Spreads {
            call: factors(found[0]),
            stream: factors(found[1]),
            fresh: [fresh, both(fresh, flush)],
            frozen,
            cold: factors(memory.cold.as_ref().and_then(rates)),
            cached: [cached, both(cached, flush)],
            throttle: (base.0.min(rate.0), base.1.max(rate.1)),
            transfer: factors(rates(&device.write)),
            fixed: [
                seconds(&device.sync_call),
                seconds(&device.fsync),
                device.flush.as_ref().map_or(NONE, seconds),
                device.latency.as_ref().map_or(NONE, seconds),
            ],
            hot: memory.hot.is_some(),
            known: found.iter().any(Option::is_some) || memory.cold.is_some(),
        }
    }

    /// By how much copying may be off, down and up: by the seconds of it into new pages and into cached ones,
    /// and those of waiting for the host. Where no look at free memory tells, what is warm may be cold.
    pub(super) fn copying(&self, allocated: Seconds, cached: Seconds, cold: Cold, flushing: bool) -> Off {
        let (fresh, over) = (self.fresh[usize::from(flushing)], self.cached[usize::from(flushing)]);
        let frozen = if cold.foreseen || cold.likely > Seconds::ZERO { 1.0 } else { self.frozen };
        let fresh = (fresh.0, fresh.1.max(frozen));
        let off = |pick: fn(Factors) -> f64, supplied: Seconds| {
            allocated * (pick(fresh) - 1.0) + cached * (pick(over) - 1.0) + supplied * pick(self.cold)
                - cold.likely
        };
        (off(|f| f.0, cold.least), off(|f| f.1, cold.most))
    }

    /// The interval around the cost of a call that may have one `pause`, more or less.
    pub(super) fn around(&self, cost: Nanos, call: &Call, pause: Seconds) -> Option<(Nanos, Nanos)> {
        if !self.known {
            return None;
        }
        let (spent, work) = (&call.spent, &call.work);
        let slept = spent[Cause::Throttle] + call.spread.held;
        let counts = [work.syncs, work.fsyncs, work.flushes, work.latencies];
        let waits = || self.fixed.iter().zip(counts);
        let fixed: Seconds = waits().map(|(fixed, count)| fixed.0 * count).sum();
        let transfer = (spent.device() - call.spread.held - fixed).max(Seconds::ZERO);
        let off = |up: bool, pause: Seconds, doubt: Seconds| {
            let end = |off: Off| if up { off.1 } else { off.0 };
            let of = |part, factors: Factors| part * (if up { factors.1 } else { factors.0 } - 1.0);
            let squares = [
                of(spent[Cause::Call], self.call)
                    + of(spent[Cause::Stream], self.stream)
                    + end(call.spread.copied),
                doubt,
                of(slept, self.throttle),
                pause,
                spent[Cause::Lock],
                of(transfer, self.transfer)
                    + waits().map(|(fixed, count)| count * end(fixed.1)).sum::<Seconds>(),
            ]
            .map(|off| off.0 * off.0);
            Seconds(squares.iter().sum::<f64>().sqrt())
        };
        let low = off(false, pause.min(slept), if self.hot { Seconds::ZERO } else { call.spread.doubt.0 });
        let high = off(true, pause, call.spread.doubt.1);
        Some(((Seconds::from(cost) - low).max(Seconds::ZERO).into(), cost + high.into()))
    }
}

/// The pause by which a call may differ: the longest that it has; if it has none, the one before
/// it, if it dirtied enough of the quota to be checked.
pub(super) fn one_pause(call: &Call, last: Seconds, dirtied: Pages, quota: Pages) -> Seconds {
    if call.spread.pause > Seconds::ZERO {
        call.spread.pause
    } else if dirtied >= LIKELY * quota {
        last
    } else {
        Seconds::ZERO
    }
}
