//! Corrects a model's dirty level towards the kernel's counters (docs/science/LIVE.md).
//!
//! The law: the kernel's level is the model's plus an offset `x` that drifts at a rate `v`: what untraced
//! writers have dirty, and what the model is wrong about. Both are followed by a fading-memory observer of
//! second order (Morrison, Introduction to Sequential Smoothing and Prediction, 1969, ch. 13; a Luenberger
//! observer with both poles at θ):
//!
//! ```text
//! x ← x + v·dt + (1 − θ²)·e,   v ← v + (1 − θ)²/dt·e,   e = sampled − (modelled + x),   θ = exp(−dt/T)
//! ```
//!
//! It is stable for every `dt`. Its memory `T` is the 200 ms over which the kernel itself takes rates
//! (`BANDWIDTH_INTERVAL`). The counters are nearly exact, so there is no measurement noise to be weighed.

use crate::cause::Cause;
use crate::limits::DirtyLimits;
use crate::model::{Disturbance, Prediction};
use crate::units::{Bytes, Nanos, Time};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filter {
    at: Option<Time>,
    /// The offset as of the latest sample, in bytes.
    pub(super) offset: f64,
    drift: f64,
}

impl Filter {
    /// The observer's memory: the kernel's `BANDWIDTH_INTERVAL`.
    const MEMORY: Nanos = Nanos::millis(200.0);

    /// The kernel counts `innovation` bytes more than the corrected model at `at`.
    pub(super) fn correct(&mut self, at: Time, innovation: f64) -> Disturbance {
        match self.at {
            Some(before) => {
                let dt = at.since(before);
                let pole = (-(dt / Filter::MEMORY)).exp();
                let drifted = dt.min(Disturbance::LASTS).as_seconds();
                self.offset += self.drift * drifted + (1.0 - pole * pole) * innovation;
                self.drift += (1.0 - pole).powi(2) / dt.as_seconds().max(1e-6) * innovation;
                if dt > Filter::MEMORY * 5.0 {
                    // Too long ago to say how it moves now.
                    self.drift = 0.0;
                }
            }
            // One level is known, nothing of how it moves.
            None => self.offset += innovation,
        }
        self.at = Some(at);
        self.disturbance()
    }

    /// The offset to be expected at a moment, in bytes.
    pub(super) fn offset_at(&self, at: Time) -> f64 {
        self.disturbance().offset_at(at)
    }

    fn disturbance(&self) -> Disturbance {
        Disturbance { at: self.at.unwrap_or_default(), offset: self.offset, drift: self.drift }
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
    const MAX: f64 = 4.0;

    /// A call took `observed`, and `by_model` as the model alone says. If a span is over: by what factor
    /// writers are faster than the model thinks.
    pub(super) fn call(
        &mut self,
        observed: Nanos,
        by_model: Nanos,
        prediction: &Prediction,
        limits: Option<DirtyLimits>,
    ) -> Option<f64> {
        let throttled = limits.is_some_and(|limits| prediction.dirty > limits.freerun());
        let waits = prediction.parts.device() + prediction.parts[Cause::Lock];
        if !throttled || waits > Nanos::ZERO || prediction.parts.copying() == Nanos::ZERO {
            return None;
        }
        self.observed += observed;
        self.predicted += by_model;
        if self.observed.max(self.predicted) < Pace::SPAN {
            return None;
        }
        let Pace { observed, predicted } = std::mem::take(self);
        let factor = (predicted.max(Nanos::new(1.0)) / observed.max(Nanos::new(1.0))).powf(Pace::GAIN);
        Some(factor.clamp(1.0 / Pace::MAX, Pace::MAX))
    }
}

/// Rate at which untraced writers make pages dirty: what the kernel counts (`nr_dirtied`) less what the
/// traced calls dirtied, over spans of a second, averaged over [`Untraced::MEMORY`].
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
        let mut filter = Filter::default();
        let mut errors = Vec::new();
        let mut now = Disturbance::default();
        for n in 1..=steps {
            let at = Time((n as f64 * step * 1e9) as u64);
            let real = truth(n as f64 * step);
            let innovation = real - now.offset_at(at);
            errors.push(innovation.abs());
            now = filter.correct(at, innovation);
        }
        errors
    }

    #[test]
    fn an_untraced_writer_is_foretold_by_its_rate() {
        // 200 MB/s from the first second on, sampled every 50 ms: 10 MB a step, foretold to within a page or
        // so.
        let errors = follow(|t| (t - 1.0).max(0.0) * 2e8, 0.05, 100);
        let late = errors[60..].iter().copied().fold(0.0, f64::max);
        assert!(late < 2e6, "off by {late} B");
        assert!(errors[20..25].iter().copied().fold(0.0, f64::max) > 5e6, "the test shows nothing");
    }

    #[test]
    fn a_step_is_taken_over_within_a_second() {
        // Five memories later hardly anything is left of it.
        let errors = follow(|t| if t < 1.0 { 0.0 } else { 1e8 }, 0.01, 300);
        assert!(errors[99] > 9e7, "the test shows nothing");
        assert!(errors[200..].iter().all(|error| *error < 5e6), "{:?}", &errors[98..]);
    }

    #[test]
    fn silence_forgets_the_drift() {
        let mut filter = Filter::default();
        for n in 1..20 {
            filter.correct(Time(n * 100_000_000), 1e7);
        }
        let after = filter.correct(Time(10_000_000_000), 0.0);
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
            let mut filter = Filter::default();
            let (mut at, mut now) = (Time(0), Disturbance::default());
            for (wait, real) in steps {
                at = Time(at.0 + wait * 1_000_000);
                now = filter.correct(at, real - now.offset_at(at));
                prop_assert!(now.offset.is_finite() && now.drift.is_finite());
                prop_assert!(now.offset.abs() < 1e12, "{now:?}");
            }
        }
    }
}
