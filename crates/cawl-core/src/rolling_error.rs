//! Error of the predictions over the latest minute of writing.
//!
//! Kept are the latest [`SPANS`] spans of a second in which calls ended, whenever that was; memory is
//! constant. The windowed error is that of [`accuracy`](crate::accuracy) over at most
//! [`WINDOWS`](crate::accuracy::WINDOWS) windows of whole spans, each weighted by its observed time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::accuracy::WINDOWS;
use crate::units::{Bytes, Nanos, Time};

/// How many spans are kept.
const SPANS: usize = 60;
/// Length of a span, in ns.
const SPAN: u64 = 1_000_000_000;

/// Errors of one-step predictions (made before the call was observed), over the latest minute of writing, as
/// fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecentError {
    /// |Σ predicted − Σ observed| / Σ observed; None if no time was observed.
    pub total: Option<f64>,
    /// Mean of the same over windows (docs/reference/REPORT.md); None if no time was observed.
    pub windowed: Option<f64>,
    /// Mean |modelled − sampled| dirty bytes over the hard limit; None without samples.
    pub dirty: Option<f64>,
    /// Calls judged.
    pub calls: u64,
}

/// Errors of the latest spans.
#[derive(Clone, Debug, Default)]
pub struct RollingError {
    spans: VecDeque<Span>,
    /// Samples compared so far, and how far apart the latest was.
    compared: u64,
    apart: Bytes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    number: u64,
    calls: u64,
    observed: f64,
    predicted: f64,
    off: f64,
    samples: u64,
}

impl RollingError {
    /// A call that ended at `end` took `observed` and was predicted to take `predicted`.
    pub fn call(&mut self, end: Time, observed: Nanos, predicted: Nanos) {
        let number = end.0 / SPAN;
        // A call of another thread may have ended in the span before; it counts here.
        if self.spans.back().is_none_or(|span| span.number < number) {
            if self.spans.len() == SPANS {
                self.spans.pop_front();
            }
            self.spans.push_back(Span { number, ..Span::default() });
        }
        if let Some(span) = self.spans.back_mut() {
            span.calls += 1;
            span.observed += observed.get();
            span.predicted += predicted.get();
        }
    }

    /// The kernel counted `sampled` dirty bytes and the model `modelled`.
    pub fn dirty(&mut self, modelled: Bytes, sampled: Bytes, hard: Bytes) {
        if let Some(span) = self.spans.back_mut()
            && !hard.is_zero()
        {
            span.off += modelled.0.abs_diff(sampled.0) as f64 / hard.as_f64();
            span.samples += 1;
            self.compared += 1;
            self.apart = Bytes(modelled.0.abs_diff(sampled.0));
        }
    }

    /// How many samples were compared so far, and how far apart model and kernel were at the latest.
    pub fn latest_apart(&self) -> Option<(u64, Bytes)> {
        (self.compared > 0).then_some((self.compared, self.apart))
    }

    pub fn error(&self) -> RecentError {
        let sum = |pick: fn(&Span) -> f64| self.spans.iter().map(pick).sum::<f64>();
        let (observed, predicted) = (sum(|s| s.observed), sum(|s| s.predicted));
        let samples = self.spans.iter().map(|s| s.samples).sum::<u64>();
        let timed = observed > 0.0;
        RecentError {
            total: timed.then(|| (predicted - observed).abs() / observed),
            windowed: timed.then(|| self.apart(observed) / observed),
            dirty: (samples > 0).then(|| sum(|s| s.off) / samples as f64),
            calls: self.spans.iter().map(|s| s.calls).sum(),
        }
    }

    /// Sum over windows of |predicted − observed|, in ns.
    fn apart(&self, observed: f64) -> f64 {
        let least = observed / WINDOWS as f64;
        let (mut apart, mut window) = (0.0, (0.0, 0.0));
        for span in &self.spans {
            window = (window.0 + span.observed, window.1 + span.predicted);
            if window.0 >= least {
                apart += (window.1 - window.0).abs();
                window = (0.0, 0.0);
            }
        }
        apart + (window.1 - window.0).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(n: u64) -> Time {
        Time(n * SPAN)
    }

    #[test]
    fn nothing_is_none() {
        assert_eq!(RollingError::default().error(), RecentError::default());
        assert_eq!(RollingError::default().latest_apart(), None);
    }

    #[test]
    fn what_cancels_out_shows_in_the_windows() {
        let mut rolling = RollingError::default();
        for n in 0..16 {
            rolling.call(second(n), Nanos::new(100.0), Nanos::new(if n < 8 { 200.0 } else { 0.0 }));
        }
        let error = rolling.error();
        assert_eq!((error.total, error.windowed, error.calls), (Some(0.0), Some(1.0), 16));
    }

    #[test]
    fn only_the_latest_minute_of_writing_counts() {
        let mut rolling = RollingError::default();
        rolling.call(second(1), Nanos::new(1e9), Nanos::ZERO);
        rolling.dirty(Bytes(0), Bytes(100), Bytes(100));
        for n in 0..SPANS as u64 {
            rolling.call(second(1000 + 10 * n), Nanos::new(10.0), Nanos::new(9.0));
            rolling.dirty(Bytes(90), Bytes(100), Bytes(100));
        }
        let error = rolling.error();
        assert!((error.total.unwrap() - 0.1).abs() < 1e-9, "{error:?}");
        assert!((error.dirty.unwrap() - 0.1).abs() < 1e-9);
        assert_eq!(error.calls, SPANS as u64);
        assert_eq!(rolling.latest_apart(), Some((1 + SPANS as u64, Bytes(10))));
    }
}
