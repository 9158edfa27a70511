//! How far off a prediction may be, by what is known of the profile's constants.
//!
//! The law: each part of the cost is scaled by the spread of the constant that it comes from. Memory that may turn out
//! cold reaches up to the cost of cold memory.

use super::super::CostParts;
use crate::profile::{HostProfile, Measured};
use crate::units::{Nanos, Rate};

/// Factors from a part of the cost to its 10th and 90th percentile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spreads {
    call: (f64, f64),
    stream: (f64, f64),
    copy: (f64, f64),
    throttle: (f64, f64),
    device: (f64, f64),
    /// From the cost of fresh pages to that of cold ones, where the machine has been seen to have some.
    cold: f64,
    known: bool,
}

impl Spreads {
    /// Rates spread the cost inversely, times directly.
    pub(super) fn of(profile: &HostProfile) -> Spreads {
        let times = |m: &Measured<Nanos>| match (m.p10, m.p90) {
            (Some(lo), Some(hi)) if m.value.get() > 0.0 => Some((lo / m.value, hi / m.value)),
            _ => None,
        };
        let rates = |m: &Measured<Rate>| match (m.p10, m.p90) {
            (Some(lo), Some(hi)) => Some((m.value / hi, m.value / lo)),
            _ => None,
        };
        let (calls, memory, device) = (&profile.calls, &profile.memory, &profile.device);
        let found = [
            times(&calls.write),
            rates(&memory.stream),
            rates(&memory.fresh),
            rates(&device.writeback),
            times(&device.sync_call).or_else(|| rates(&device.write)),
        ];
        let factor = |at: usize| {
            let (lo, hi): (f64, f64) = found[at].unwrap_or((1.0, 1.0));
            (lo.min(1.0), hi.max(1.0))
        };
        let cold = memory.cold.map_or(1.0, |cold| memory.fresh.value / cold.p10.unwrap_or(cold.value));
        Spreads {
            cold,
            call: factor(0),
            stream: factor(1),
            copy: factor(2),
            throttle: factor(3),
            device: factor(4),
            known: found.iter().any(Option::is_some) || memory.cold.is_some(),
        }
    }

    /// The interval around these parts, of which `allocating` was copying into fresh pages: those may turn out
    /// cold.
    pub(super) fn around(&self, parts: &CostParts, allocating: Nanos) -> Option<(Nanos, Nanos)> {
        if !self.known {
            return None;
        }
        let sum = |pick: fn((f64, f64)) -> f64| {
            parts.call * pick(self.call)
                + parts.stream * pick(self.stream)
                + parts.copy * pick(self.copy)
                + parts.throttle * pick(self.throttle)
                + parts.device * pick(self.device)
        };
        let cold = allocating * (self.cold - self.copy.1).max(0.0);
        Some((sum(|f| f.0), sum(|f| f.1) + cold))
    }
}
