//! Whether the host supplies the memory that new pages lie in, or has done so before.
//!
//! The law: where a virtual machine gives free memory back (free page reporting, mm/page_reporting.c;
//! balloons), the first touch of a page that went makes the host find another. Such *cold* pages cost ten
//! times as much as warm ones, and nothing in between: which are which is decided by the order of the free
//! lists, so that cold pages come in a row, hundreds of megabytes long. So a machine is in one of two
//! regimes, which of them shows in every write of new pages, and the next such write is as the one before (a
//! hidden Markov chain of two states, filtered forward: Rabiner, *A tutorial on hidden Markov models*, 1989,
//! III A).

/// Bytes of new pages after which the regime has changed once, on average.
const RUN: f64 = (64 << 20) as f64;
/// Standard deviation of the logarithm of a call's cost about its expectation.
const SPREAD: f64 = 0.5;
/// No call is less likely than that in either regime.
const MIN: f64 = 0.01;
/// Costs that differ by less than this factor tell no regime.
const APART: f64 = 2.0;
/// What takes this many times longer than cold pages do has another reason.
const BEYOND: f64 = 2.0;

/// The probability that new pages are cold.
#[derive(Clone, Copy, Debug)]
pub struct Supply {
    cold: f64,
    /// Something was observed that tells the regimes apart.
    pub tells: bool,
}

impl Default for Supply {
    fn default() -> Supply {
        Supply { cold: 0.5 * MIN, tells: false }
    }
}

impl Supply {
    /// New pages are cold at present.
    pub fn is_cold(self) -> bool {
        self.cold > 0.5
    }

    /// A call that allocated `fresh` bytes took `observed` seconds, where warm pages cost `warm` and cold
    /// ones `cold`.
    pub fn observe(&mut self, fresh: f64, observed: f64, warm: f64, cold: f64) {
        if cold < APART * warm {
            *self = Supply::default();
            return;
        }
        if observed > BEYOND * cold {
            return;
        }
        let changed = (fresh / RUN).min(0.5);
        let prior = self.cold * (1.0 - changed) + (1.0 - self.cold) * changed;
        // Cheaper than warm is warm, dearer than cold is cold.
        let observed = observed.clamp(warm, cold);
        let likelihood = |expected: f64| {
            let off = (observed / expected).ln() / SPREAD;
            (-0.5 * off * off).exp().max(MIN)
        };
        let (is, is_not) = (prior * likelihood(cold), (1.0 - prior) * likelihood(warm));
        (self.cold, self.tells) = (is / (is + is_not), true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1 << 20) as f64;

    #[test]
    fn one_large_call_tells_and_small_ones_together() {
        let mut supply = Supply::default();
        supply.observe(MIB, 2.8e-3, 0.2e-3, 2.8e-3);
        supply.observe(MIB, 2.8e-3, 0.2e-3, 2.8e-3);
        assert!(supply.is_cold());
        supply.observe(MIB, 0.2e-3, 0.2e-3, 2.8e-3);
        supply.observe(MIB, 0.2e-3, 0.2e-3, 2.8e-3);
        assert!(!supply.is_cold());
        // One interrupt does not make a regime.
        supply.observe(4096.0, 14e-6, 1.4e-6, 14e-6);
        assert!(!supply.is_cold());
        for _ in 0..4 {
            supply.observe(4096.0, 14e-6, 1.4e-6, 14e-6);
        }
        assert!(supply.is_cold());
    }

    #[test]
    fn pauses_and_costs_alike_tell_nothing() {
        let mut supply = Supply::default();
        for _ in 0..100 {
            supply.observe(MIB, 12e-3, 0.2e-3, 2.8e-3);
            supply.observe(MIB, 2.8e-3, 2.0e-3, 2.8e-3);
        }
        assert!(!supply.is_cold());
    }
}
