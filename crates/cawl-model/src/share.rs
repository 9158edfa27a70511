//! Each device's share of the dirty threshold: its part of what was recently written back.
//!
//! The law: completions count fully in the current period of three seconds and half as much with every
//! period that passed since (lib/flex_proportions.c, `wb_domain_writeout_add`); a device's share is its
//! completions over all, kept between its minimum and maximum ratio (`__wb_calc_thresh`).

use crate::units::{Pages, Seconds};

/// Length of a period (`VM_COMPLETIONS_PERIOD_LEN`).
const PERIOD: Seconds = Seconds(3.0);

/// A count of completions that fades.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Completions {
    count: Pages,
    period: u64,
}

impl Completions {
    /// Adds `pages` written back by `now`.
    pub fn add(&mut self, pages: Pages, now: Seconds) {
        let period = period(now).max(self.period);
        *self = Completions { count: self.faded(period - self.period) + pages, period };
    }

    /// The faded count at `now`.
    pub fn at(&self, now: Seconds) -> Pages {
        self.faded(period(now).saturating_sub(self.period))
    }

    /// The count after `missed` periods.
    fn faded(&self, missed: u64) -> Pages {
        match missed {
            // Asked for each time that a device has written something.
            0 => self.count,
            1..64 => self.count / (missed as f64).exp2(),
            _ => Pages::ZERO,
        }
    }
}

fn period(now: Seconds) -> u64 {
    (now / PERIOD) as u64
}

/// A device's bounds on its share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// `bdi.min_ratio`, as a fraction.
    pub min: f64,
    /// `bdi.max_ratio`, as a fraction.
    pub max: f64,
    /// BDI_CAP_STRICTLIMIT.
    pub strict: bool,
}

/// `__wb_calc_thresh`: the part of `thresh` that belongs to a device with this `fraction` of the
/// completions; `reserved` is the sum of all devices' minimum ratios and `dirty` the domain's level. A device
/// that has been idle is still granted an eighth of the room that is left, or a hundredth if it is strict.
pub fn threshold(thresh: Pages, dirty: Pages, fraction: f64, bounds: Bounds, reserved: f64) -> Pages {
    let share = thresh * (1.0 - reserved.clamp(0.0, 1.0)) * fraction;
    let grant = (thresh - dirty).max(Pages::ZERO) / if bounds.strict { 100.0 } else { 8.0 };
    (share + thresh * bounds.min).max(grant).min(thresh * bounds.max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Bounds = Bounds { min: 0.0, max: 1.0, strict: false };

    fn share(thresh: f64, dirty: f64, fraction: f64, bounds: Bounds, reserved: f64) -> f64 {
        threshold(Pages(thresh), Pages(dirty), fraction, bounds, reserved).0
    }

    #[test]
    fn completions_halve_every_period() {
        let mut done = Completions::default();
        done.add(Pages(100.0), Seconds(1.0));
        done.add(Pages(100.0), Seconds(2.0));
        assert_eq!(done.at(Seconds(2.9)).0, 200.0);
        assert_eq!(done.at(Seconds(3.1)).0, 100.0);
        assert_eq!(done.at(Seconds(6.1)).0, 50.0);
        assert_eq!(done.at(Seconds(1e6)).0, 0.0);
    }

    #[test]
    fn shares_follow_fractions_and_bounds() {
        assert_eq!(share(1000.0, 1000.0, 0.25, FREE, 0.0), 250.0);
        assert_eq!(share(1000.0, 200.0, 0.0, FREE, 0.0), 100.0);
        assert_eq!(share(1000.0, 1000.0, 0.9, Bounds { max: 0.4, ..FREE }, 0.0), 400.0);
        assert_eq!(share(1000.0, 1000.0, 0.0, Bounds { min: 0.1, ..FREE }, 0.1), 100.0);
        assert_eq!(share(1000.0, 0.0, 0.0, Bounds { strict: true, ..FREE }, 0.0), 10.0);
        // What a device has of its own is not added to what is granted to an idle one.
        assert_eq!(share(1000.0, 200.0, 0.0, Bounds { min: 0.6, ..FREE }, 0.6), 600.0);
    }

    /// As debugfs had it (`BdiDirtyThresh`, kB) while 32 MB were dirty: the slow disk of two, with
    /// `min_ratio` 60, when the other had 33 792.
    #[test]
    fn a_share_as_the_kernel_had_it() {
        let slow = Bounds { min: 0.6, ..FREE };
        let fraction = 1.0 - 33_792.0 / (98_304.0 * 0.4);
        let found = share(98_304.0, 32_768.0, fraction, slow, 0.6);
        assert!((found / 64_500.0 - 1.0).abs() < 0.001, "{found}");
    }
}
