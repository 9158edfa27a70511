//! Corrects a model's dirty level towards the kernel's counters (docs/LIVE.md).
//!
//! The law: the kernel's level is the model's plus an offset `x` that drifts at a rate `v`: what untraced
//! writers have dirty, and what the model is wrong about. A two-state Kalman filter follows both:
//!
//! ```text
//! x' = x + v·dt, v' = v + w,   E[w²] = q·dt      (white-noise acceleration)
//! z  = sampled − modelled = x + n,   E[n²] = r
//! ```
//!
//! (Bar-Shalom, Li, Kirubarajan, Estimation with Applications to Tracking and Navigation, 2001, §6.2.) Neither
//! noise is set by hand: `r` is what the kernel's counters cannot tell (per-processor batches) and what is
//! unsure of a call under way, `q` is such that innovations are as large as the filter expects (§5.4, §11.6).

use crate::model::{DirtyLimits, Disturbance, Prediction};
use crate::units::{Bytes, Nanos, Time};

/// Pages that a processor may keep back before it adds them to a counter (`vm_stat_threshold` is at most 125).
const BATCH_PAGES: f64 = 125.0;
/// Part by which the process noise follows an innovation that is larger or smaller than expected.
const ADAPTATION: f64 = 0.1;
/// Most that one innovation says about the noise, as a multiple of its expectation.
const SURPRISE: f64 = 10.0;
/// After this long without a sample the drift means nothing any more.
const STALE: Nanos = Nanos::seconds(2.0);

/// The filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filter {
    at: Time,
    offset: f64,
    drift: f64,
    covariance: [[f64; 2]; 2],
    /// Process noise, in bytes² per s³.
    noise: f64,
    /// Variance of what the counters cannot tell, in bytes².
    resolution: f64,
    started: bool,
}

impl Filter {
    /// A filter that knows nothing, on a machine with pages of this size and this many processors.
    pub(super) fn new(page: Bytes, cpus: u32) -> Filter {
        // Each processor keeps back any number of pages up to the batch, in either direction.
        let deviation = BATCH_PAGES * page.as_f64() / 3f64.sqrt();
        Filter {
            at: Time(0),
            offset: 0.0,
            drift: 0.0,
            covariance: [[0.0; 2]; 2],
            noise: 0.0,
            resolution: deviation * deviation * f64::from(cpus.max(1)),
            started: false,
        }
    }

    /// The kernel counts `innovation` bytes more than the corrected model at `at`; `unsure`: by how much the
    /// model's own level may be off at just this moment, because a call is under way.
    pub(super) fn correct(&mut self, at: Time, innovation: f64, unsure: Bytes) -> Disturbance {
        let spread = unsure.as_f64() / 12f64.sqrt();
        let measured = self.resolution + spread * spread;
        let dt = at.since(self.at);
        if !self.started || dt > STALE {
            *self = Filter { at, offset: self.offset + innovation, drift: 0.0, started: true, ..*self };
            // One level is known, nothing of how it moves.
            self.covariance = [[measured, 0.0], [0.0, 0.0]];
            return self.disturbance();
        }
        let dt = dt.as_seconds();
        self.at = at;
        self.offset += self.drift * dt;
        let [[xx, xv], [_, vv]] = self.covariance;
        let grown = |q: f64| {
            [
                [xx + 2.0 * dt * xv + dt * dt * vv + q * dt.powi(3) / 3.0, xv + dt * vv + q * dt * dt / 2.0],
                [xv + dt * vv + q * dt * dt / 2.0, vv + q * dt],
            ]
        };
        let expected = grown(self.noise)[0][0] + measured;
        let surprise = (innovation * innovation / expected).min(SURPRISE) - 1.0;
        // The part of the expectation that is process noise takes the blame.
        let share = expected / (dt.powi(3) / 3.0).max(1e-12);
        self.noise = (self.noise + ADAPTATION * surprise * share).max(0.0);
        let [[xx, xv], [_, vv]] = grown(self.noise);
        let variance = xx + measured;
        let (gain, gain_v) = (xx / variance, xv / variance);
        self.offset += gain * innovation;
        self.drift += gain_v * innovation;
        self.covariance =
            [[(1.0 - gain) * xx, (1.0 - gain) * xv], [(1.0 - gain) * xv, (vv - gain_v * xv).max(0.0)]];
        self.disturbance()
    }

    fn disturbance(&self) -> Disturbance {
        Disturbance { at: self.at, offset: self.offset, drift: self.drift }
    }
}

/// How fast throttled writers are let through, against what the model thinks.
///
/// The kernel's base rate (`dirty_ratelimit`) is a state of the machine that no file shows. It changes every
/// 200 ms; over each such span the time that throttled writes took is compared with what was predicted, and
/// half of the difference of their logarithms is taken over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    observed: Nanos,
    predicted: Nanos,
}

impl Pace {
    /// Interval at which the kernel changes the rate (`BANDWIDTH_INTERVAL`).
    const SPAN: Nanos = Nanos::millis(200.0);
    /// Part of a difference that is taken over.
    const GAIN: f64 = 0.5;
    /// Most that a span may say, as a factor.
    const MOST: f64 = 4.0;

    /// A call took `observed`. If a span is over: by what factor writers are faster than the model thinks.
    pub(super) fn call(
        &mut self,
        observed: Nanos,
        prediction: &Prediction,
        limits: Option<DirtyLimits>,
    ) -> Option<f64> {
        let throttled = limits.is_some_and(|limits| prediction.dirty > limits.freerun());
        if !throttled || prediction.parts.device > Nanos::ZERO || prediction.parts.copy == Nanos::ZERO {
            return None;
        }
        self.observed += observed;
        self.predicted += prediction.cost;
        if self.observed.max(self.predicted) < Pace::SPAN {
            return None;
        }
        let Pace { observed, predicted } = std::mem::take(self);
        let factor = (predicted.max(Nanos::new(1.0)) / observed.max(Nanos::new(1.0))).powf(Pace::GAIN);
        Some(factor.clamp(1.0 / Pace::MOST, Pace::MOST))
    }
}

/// Rate at which untraced writers make pages dirty: what the kernel counts (`nr_dirtied`) less what the traced
/// calls dirtied, over spans of a second, averaged over [`Untraced::MEMORY`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untraced {
    began: Option<(Time, u64, Bytes)>,
    /// Bytes per second.
    rate: Option<f64>,
    /// When the rate was last told.
    at: Time,
}

impl Untraced {
    /// Time constant of the average: the period over which the kernel estimates a device's bandwidth.
    const MEMORY: Nanos = Nanos::seconds(3.0);
    const SPAN: Nanos = Nanos::seconds(1.0);

    /// The counters at `at`: pages dirtied by anyone, and bytes dirtied by the traced.
    pub(super) fn sample(&mut self, at: Time, dirtied: u64, page: Bytes, traced: Bytes) {
        let (began, pages, bytes) = *self.began.get_or_insert((at, dirtied, traced));
        let span = at.since(began);
        if span < Untraced::SPAN {
            return;
        }
        self.began = Some((at, dirtied, traced));
        let all = dirtied.saturating_sub(pages) as f64 * page.as_f64();
        let rate = (all - traced.saturating_sub(bytes).as_f64()) / span.as_seconds();
        let kept = (-(span / Untraced::MEMORY)).exp();
        self.rate = Some(self.rate.map_or(rate, |old| rate + (old - rate) * kept));
        self.at = at;
    }

    /// Bytes per second; none before the first second.
    pub(super) fn rate(&self) -> f64 {
        self.rate.unwrap_or(0.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: Bytes = Bytes(4096);

    /// Samples a disturbance every `step` seconds; the error of each correction one step later.
    fn follow(truth: impl Fn(f64) -> f64, step: f64, steps: u64) -> Vec<f64> {
        let mut filter = Filter::new(PAGE, 2);
        let mut errors = Vec::new();
        let mut now = Disturbance::default();
        for n in 1..=steps {
            let at = Time((n as f64 * step * 1e9) as u64);
            let real = truth(n as f64 * step);
            let innovation = real - now.offset_at(at);
            errors.push(innovation.abs());
            now = filter.correct(at, innovation, Bytes::ZERO);
        }
        errors
    }

    #[test]
    fn an_untraced_writer_is_foretold_by_its_rate() {
        // 200 MB/s from the first second on, sampled every 50 ms: 10 MB a step, foretold to within a page or so.
        let errors = follow(|t| (t - 1.0).max(0.0) * 2e8, 0.05, 100);
        let late = errors[60..].iter().copied().fold(0.0, f64::max);
        assert!(late < 2e6, "off by {late} B");
        assert!(errors[20..25].iter().copied().fold(0.0, f64::max) > 5e6, "the test shows nothing");
    }

    #[test]
    fn a_step_is_taken_over_within_samples() {
        let errors = follow(|t| if t < 1.0 { 0.0 } else { 1e8 }, 0.01, 200);
        assert!(errors[130..].iter().all(|error| *error < 5e6), "{:?}", &errors[98..140]);
    }

    #[test]
    fn silence_forgets_the_drift() {
        let mut filter = Filter::new(PAGE, 1);
        for n in 1..20 {
            filter.correct(Time(n * 100_000_000), 1e7, Bytes::ZERO);
        }
        let after = filter.correct(Time(10_000_000_000), 0.0, Bytes::ZERO);
        assert_eq!(after.drift, 0.0);
    }

    #[test]
    fn the_untraced_rate_is_what_the_counters_leave() {
        let mut untraced = Untraced::default();
        for n in 0..30 {
            // 1000 pages a tenth of a second, 600 of them traced.
            untraced.sample(Time(n * 100_000_000), n * 1000, PAGE, Bytes(n * 600 * 4096));
        }
        assert!((untraced.rate() / (4000.0 * 4096.0) - 1.0).abs() < 1e-6);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_diverge(steps in proptest::collection::vec((1u64..400, -1e9f64..1e9), 1..200)) {
            let mut filter = Filter::new(PAGE, 4);
            let (mut at, mut now) = (Time(0), Disturbance::default());
            for (wait, real) in steps {
                at = Time(at.0 + wait * 1_000_000);
                now = filter.correct(at, real - now.offset_at(at), Bytes::ZERO);
                prop_assert!(now.offset.is_finite() && now.drift.is_finite());
                prop_assert!(now.offset.abs() < 1e12, "{now:?}");
            }
        }
    }
}
