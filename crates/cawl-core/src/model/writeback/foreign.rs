//! Dirty pages that no model of ours has seen made.

use crate::model::Disturbance;

/// Dirty pages of untraced writers: pages at a moment (seconds), and pages per second from then on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreign {
    /// The moment.
    pub at: f64,
    /// Pages; negative where the model has too many.
    pub pages: f64,
    /// Pages per second.
    pub drift: f64,
    /// The kernel's counters have been told at all.
    pub told: bool,
}

impl Foreign {
    /// There are none, at any time.
    pub fn are_none(&self) -> bool {
        self.pages == 0.0 && self.drift == 0.0
    }

    /// Pages at a moment, in seconds. They are written back like any other: what no sample confirms for
    /// longer than the drift is believed goes at the `rate` of the device, in pages per second.
    #[inline]
    pub fn pages(&self, now: f64, rate: impl FnOnce() -> f64) -> f64 {
        let (span, lasts) = ((now - self.at).max(0.0), Disturbance::LASTS.as_seconds());
        let pages = self.pages + self.drift * span.min(lasts);
        let gone = if span > lasts { (span - lasts) * rate() } else { 0.0 };
        if pages > 0.0 { (pages - gone).max(0.0) } else { (pages + gone).min(0.0) }
    }
}
