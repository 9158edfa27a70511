//! How far predictions are from what was observed.
//!
//! The law of this module: one pass, constant memory, and the same figures whether the calls arrive live
//! or from a trace. Sums are exact to rounding however many calls there are; windows and quantiles come
//! from bins whose number is fixed.
//!
//! - **total error**: |Σ predicted − Σ observed| / Σ observed over the calls.
//! - **windowed error**: the observed time of all calls, laid end to end, is cut into [`WINDOWS`] equal
//!   windows; the mean over them of |predicted − observed| / observed. A call that lies in several
//!   windows is shared out among them in proportion, its prediction too.
//! - **call error**: |predicted − observed| / observed of single calls, its mean (the metric of the CAWL
//!   paper, §6) and its median. Calls that took no time are left out.
//! - **dirty error**: root mean square of (modelled − sampled) dirty bytes over the hard limit.
//! - **quantiles**: of the costs, predicted against observed, to within [`QUANTILE_PRECISION`].
//!
//! Nothing observed, nothing to divide by: the error is None, never NaN.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};

/// Into how many windows of equal observed time a run is cut.
pub const WINDOWS: usize = 16;

/// Relative width of a quantile's bin: a reported quantile is at most half of it off.
pub const QUANTILE_PRECISION: f64 = 1.0 / STEPS_PER_OCTAVE as f64;

/// Unit in which relative errors are counted: a part per billion, so that small ones have bins too.
const PPB: f64 = 1e-9;

/// Bins over the observed time; a window spans at least 256 of them once the first call has been seen.
const BINS: usize = 8192;
const STEPS_PER_OCTAVE: usize = 128;

/// Compares predictions with observations, call by call.
#[derive(Clone, Debug, Default)]
pub struct Accuracy {
    calls: u64,
    observed: Costs,
    predicted: Costs,
    /// Relative errors of calls, in [`PPB`].
    errors: Costs,
    cumulative: Cumulative,
    squares: CompensatedSum,
    samples: u64,
}

/// One side of the comparison: the sum of the costs and how they are distributed.
#[derive(Clone, Debug, Default)]
struct Costs {
    sum: CompensatedSum,
    costs: Histogram,
}

/// What [`Accuracy`] found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccuracySummary {
    /// Calls compared.
    pub calls: u64,
    /// Sum of the observed costs, in ns.
    pub observed: Nanos,
    /// Sum of the predicted costs, in ns.
    pub predicted: Nanos,
    /// |Σ predicted − Σ observed| / Σ observed; None if no time was observed.
    pub total_error: Option<f64>,
    /// Mean of the same over [`WINDOWS`] windows of equal observed time; None if no time was observed.
    pub windowed_error: Option<f64>,
    /// |predicted − observed| / observed of single calls; None if no time was observed.
    pub call_error: Option<CallError>,
    /// Root mean square of (modelled − sampled) dirty bytes over the hard limit; None without samples.
    pub dirty_error: Option<f64>,
    /// Samples of the dirty level behind `dirty_error`.
    pub dirty_samples: u64,
    /// Quantiles of the observed costs; None without calls.
    pub observed_quantiles: Option<Quantiles>,
    /// Quantiles of the predicted costs; None without calls.
    pub predicted_quantiles: Option<Quantiles>,
}

/// Relative error of single calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallError {
    /// Its mean over the calls, as in the CAWL paper.
    pub mean: f64,
    /// Its median, to within [`QUANTILE_PRECISION`].
    pub median: f64,
}

/// Quantiles of a call's cost, in ns: the smallest cost that at least this share of calls stays within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: Nanos,
    /// What nine calls of ten stay within.
    pub p90: Nanos,
    /// What 99 calls of 100 stay within.
    pub p99: Nanos,
}

impl Accuracy {
    /// A call took `observed` and was predicted to take `predicted`.
    pub fn call(&mut self, observed: Nanos, predicted: Nanos) {
        let from = self.observed.sum.value();
        self.calls += 1;
        self.observed.add(observed);
        self.predicted.add(predicted);
        if observed > Nanos::ZERO {
            self.errors.add(Nanos::new((predicted.get() - observed.get()).abs() / observed.get() / PPB));
        }
        // Rounding must not let the end come before the start.
        self.cumulative.add(from, self.observed.sum.value().max(from), predicted.get());
    }

    /// At one moment the kernel counted `sampled` dirty bytes (those under writeback included) and the
    /// model `modelled`, under this hard limit. A sample with a limit of zero says nothing and is left out.
    pub fn dirty(&mut self, modelled: Bytes, sampled: Bytes, hard: Bytes) {
        if hard.is_zero() {
            return;
        }
        let off = (modelled.as_f64() - sampled.as_f64()) / hard.as_f64();
        self.squares.add(off * off);
        self.samples += 1;
    }

    /// The figures so far.
    pub fn summary(&self) -> AccuracySummary {
        let (observed, predicted) = (self.observed.sum.value(), self.predicted.sum.value());
        let timed = observed > 0.0;
        AccuracySummary {
            calls: self.calls,
            observed: Nanos::new(observed),
            predicted: Nanos::new(predicted),
            total_error: timed.then(|| (predicted - observed).abs() / observed),
            windowed_error: timed.then(|| self.cumulative.windowed_error(observed)),
            call_error: self.errors.costs.quantiles().map(|quantiles| CallError {
                mean: self.errors.sum.value() / self.errors.costs.total as f64 * PPB,
                median: quantiles.p50.get() * PPB,
            }),
            dirty_error: (self.samples > 0).then(|| (self.squares.value() / self.samples as f64).sqrt()),
            dirty_samples: self.samples,
            observed_quantiles: self.observed.costs.quantiles(),
            predicted_quantiles: self.predicted.costs.quantiles(),
        }
    }
}

impl Costs {
    fn add(&mut self, cost: Nanos) {
        self.sum.add(cost.get());
        self.costs.add(cost.get());
    }
}

/// A sum that keeps what rounding would lose (Neumaier's variant of Kahan's).
#[derive(Clone, Copy, Debug, Default)]
struct CompensatedSum {
    sum: f64,
    lost: f64,
}

impl CompensatedSum {
    fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        self.lost +=
            if self.sum.abs() >= term.abs() { (self.sum - sum) + term } else { (term - sum) + self.sum };
        self.sum = sum;
    }

    fn value(&self) -> f64 {
        self.sum + self.lost
    }
}

/// Predicted time over cumulative observed time, in [`BINS`] bins of equal width. When the observed time
/// outgrows them, neighbours are merged and the width doubles.
#[derive(Clone, Debug)]
struct Cumulative {
    /// Predicted ns per bin; none before the first call.
    bins: Vec<f64>,
    /// Observed ns that a bin spans: a power of two.
    width: f64,
    /// The bin that the latest call ended in, and what it spans: calls are short, so the next one lies in it,
    /// too.
    latest: usize,
    span: (f64, f64),
}

impl Default for Cumulative {
    fn default() -> Cumulative {
        Cumulative { bins: Vec::new(), width: 1.0, latest: 0, span: (0.0, 0.0) }
    }
}

impl Cumulative {
    /// Spreads `predicted` evenly over the observed time between `from` and `to`.
    #[inline]
    fn add(&mut self, from: f64, to: f64, predicted: f64) {
        if self.span.0 <= from
            && to < self.span.1
            && let Some(bin) = self.bins.get_mut(self.latest)
        {
            *bin += predicted;
        } else {
            self.spread(from, to, predicted);
        }
    }

    fn spread(&mut self, from: f64, to: f64, predicted: f64) {
        if self.bins.is_empty() {
            self.bins = vec![0.0; BINS];
        }
        while to > self.width * BINS as f64 {
            self.widen();
        }
        let (first, last) = (self.bin_of(from), self.bin_of(to));
        self.latest = last;
        self.span = (last as f64 * self.width, (last + 1) as f64 * self.width);
        if first == last {
            self.bins[first] += predicted;
            return;
        }
        let density = predicted / (to - from);
        self.bins[first] += density * ((first + 1) as f64 * self.width - from);
        for bin in &mut self.bins[first + 1..last] {
            *bin += density * self.width;
        }
        self.bins[last] += density * (to - last as f64 * self.width);
    }

    fn bin_of(&self, at: f64) -> usize {
        ((at / self.width) as usize).min(BINS - 1)
    }

    fn widen(&mut self) {
        for pair in 0..BINS / 2 {
            self.bins[pair] = self.bins[2 * pair] + self.bins[2 * pair + 1];
        }
        self.bins[BINS / 2..].fill(0.0);
        self.width *= 2.0;
    }

    /// Regroups the bins into windows, cutting in proportion those that a border runs through.
    fn windowed_error(&self, total: f64) -> f64 {
        let mut predicted = [0.0; WINDOWS];
        let window = total / WINDOWS as f64;
        for (i, &mass) in self.bins.iter().enumerate() {
            let from = i as f64 * self.width;
            let to = (from + self.width).min(total);
            if to <= from {
                // Calls of no duration at the very end.
                predicted[WINDOWS - 1] += mass;
                continue;
            }
            let first = ((from / window) as usize).min(WINDOWS - 1);
            let last = ((to / window) as usize).min(WINDOWS - 1);
            for (w, into) in predicted.iter_mut().enumerate().take(last + 1).skip(first) {
                let end = if w == WINDOWS - 1 { total } else { (w + 1) as f64 * window };
                let shared = to.min(end) - from.max(w as f64 * window);
                *into += mass * (shared / (to - from)).max(0.0);
            }
        }
        predicted.iter().map(|p| (p - window).abs() / window).sum::<f64>() / WINDOWS as f64
    }
}

/// How often costs occur, by size: [`STEPS_PER_OCTAVE`] bins for each doubling, the first one for costs
/// below a nanosecond.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    pub(crate) total: u64,
    least: f64,
    most: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Vec::new(), total: 0, least: f64::INFINITY, most: 0.0 }
    }
}

impl Histogram {
    /// Bits of an f64's mantissa that do not matter to a bin.
    const SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - STEPS_PER_OCTAVE.trailing_zeros();
    /// Number that a cost of 1 ns would have if the bins began at the smallest f64.
    const ONE: u64 = 1.0f64.to_bits() >> Self::SHIFT;

    #[inline]
    pub(crate) fn add(&mut self, cost: f64) {
        // For positive floats the order of the bits is that of the values, in steps of a mantissa's
        // leading bits: a logarithmic scale without a logarithm.
        let bin = if cost < 1.0 { 0 } else { ((cost.to_bits() >> Self::SHIFT) - Self::ONE) as usize + 1 };
        match self.counts.get_mut(bin) {
            Some(count) => *count += 1,
            None => self.widen(bin),
        }
        self.total += 1;
        self.least = if cost < self.least { cost } else { self.least };
        self.most = if cost > self.most { cost } else { self.most };
    }

    /// The first cost of this bin.
    #[cold]
    #[inline(never)]
    fn widen(&mut self, bin: usize) {
        self.counts.resize(bin + 1, 0);
        self.counts[bin] = 1;
    }

    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        (self.total > 0).then(|| Quantiles {
            p50: self.quantile(0.50),
            p90: self.quantile(0.90),
            p99: self.quantile(0.99),
        })
    }

    fn quantile(&self, share: f64) -> Nanos {
        let rank = ((share * self.total as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (bin, &count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Nanos::new(Self::middle(bin).clamp(self.least, self.most));
            }
        }
        Nanos::new(self.most)
    }

    fn middle(bin: usize) -> f64 {
        let edge = |bin: usize| f64::from_bits((bin as u64 + Self::ONE) << Self::SHIFT);
        if bin == 0 { 0.5 } else { (edge(bin - 1) + edge(bin)) / 2.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare(calls: &[(f64, f64)]) -> AccuracySummary {
        let mut accuracy = Accuracy::default();
        for &(observed, predicted) in calls {
            accuracy.call(Nanos::new(observed), Nanos::new(predicted));
        }
        accuracy.summary()
    }

    #[test]
    fn nothing_compared_is_none_not_nan() {
        let empty = Accuracy::default().summary();
        assert_eq!((empty.calls, empty.total_error, empty.windowed_error), (0, None, None));
        assert_eq!(empty.call_error, None);
        assert_eq!((empty.dirty_error, empty.observed_quantiles), (None, None));
        let unobserved = compare(&[(0.0, 5.0), (0.0, 7.0)]);
        assert_eq!((unobserved.total_error, unobserved.windowed_error), (None, None));
        assert_eq!(unobserved.predicted, Nanos::new(12.0));
    }

    #[test]
    fn calls_are_judged_one_by_one() {
        // Off by 50, 10, 0 and 300 %; the one that took no time says nothing.
        let calls = [(100.0, 150.0), (1000.0, 900.0), (7.0, 7.0), (10.0, 40.0), (0.0, 9.0)];
        let error = compare(&calls).call_error.unwrap();
        assert!((error.mean - 0.9).abs() < 1e-9, "{error:?}");
        assert!((error.median / 0.1 - 1.0).abs() <= QUANTILE_PRECISION, "{error:?}");
        assert_eq!(compare(&calls[2..3]).call_error.unwrap().mean, 0.0);
        assert_eq!(compare(&calls[4..]).call_error, None);
    }

    #[test]
    fn a_long_call_is_shared_out_among_windows() {
        // 3200 ns in all, windows of 200. The first call covers 14 windows at 100 % too much; the other
        // two are a window each, exact and at half: (14 × 1 + 0 + 0.5) / 16.
        let summary = compare(&[(2800.0, 5600.0), (200.0, 200.0), (200.0, 100.0)]);
        assert!((summary.windowed_error.unwrap() - 14.5 / 16.0).abs() < 1e-9);
        assert!((summary.total_error.unwrap() - 2700.0 / 3200.0).abs() < 1e-12);
    }

    #[test]
    fn calls_without_duration_count_where_they_stand() {
        // The free call's prediction falls into the last window: 100 + 160 predicted against 100.
        let mut calls = vec![(100.0, 100.0); 16];
        calls.push((0.0, 160.0));
        let summary = compare(&calls);
        assert!((summary.windowed_error.unwrap() - 1.6 / 16.0).abs() < 1e-9);
    }

    #[test]
    fn dirty_error_is_the_root_mean_square_over_the_limit() {
        let mut accuracy = Accuracy::default();
        accuracy.dirty(Bytes(130), Bytes(100), Bytes(1000));
        accuracy.dirty(Bytes(60), Bytes(100), Bytes(1000));
        accuracy.dirty(Bytes(60), Bytes(100), Bytes(0));
        let summary = accuracy.summary();
        assert!((summary.dirty_error.unwrap() - 0.035_355_339_059).abs() < 1e-9);
        assert_eq!(summary.dirty_samples, 2);
    }

    #[test]
    fn quantiles_are_within_their_precision() {
        let mut accuracy = Accuracy::default();
        for i in 1..=1000 {
            accuracy.call(Nanos::new(f64::from(i) * 100.0), Nanos::new(42.0));
        }
        let summary = accuracy.summary();
        let observed = summary.observed_quantiles.unwrap();
        for (found, exact) in [(observed.p50, 50_000.0), (observed.p90, 90_000.0), (observed.p99, 99_000.0)] {
            assert!((found.get() / exact - 1.0).abs() <= QUANTILE_PRECISION, "{found} against {exact}");
        }
        let constant = Nanos::new(42.0);
        assert_eq!(
            summary.predicted_quantiles,
            Some(Quantiles { p50: constant, p90: constant, p99: constant })
        );
    }

    #[test]
    fn extreme_costs_have_a_bin() {
        let summary = compare(&[(0.0, Nanos::MAX.get()), (0.25, 1.0), (Nanos::MAX.get(), 0.0)]);
        assert!(summary.observed_quantiles.unwrap().p50.get() < 1.0);
        assert!(summary.windowed_error.unwrap().is_finite());
    }

    #[test]
    fn sums_of_many_calls_keep_their_small_ones() {
        let mut sum = CompensatedSum::default();
        sum.add(1e17);
        for _ in 0..1_000_000 {
            sum.add(0.3);
        }
        assert!((sum.value() - 1e17 - 3e5).abs() <= 16.0);
    }

    /// The definition, with all calls at hand.
    fn batch_windowed_error(calls: &[(f64, f64)]) -> f64 {
        let total: f64 = calls.iter().map(|(observed, _)| observed).sum();
        let window = total / WINDOWS as f64;
        let mut error = 0.0;
        for w in 0..WINDOWS {
            let (from, to) = (w as f64 * window, (w + 1) as f64 * window);
            let (mut at, mut predicted) = (0.0f64, 0.0);
            for &(o, p) in calls {
                predicted += p * (to.min(at + o) - from.max(at)).max(0.0) / o;
                at += o;
            }
            error += (predicted - window).abs() / window;
        }
        error / WINDOWS as f64
    }

    proptest! {
        #[test]
        fn streaming_windows_equal_the_batch(
            calls in prop::collection::vec((1.0f64..1e9, 0.1f64..4.0), 1..400)
        ) {
            let calls: Vec<_> = calls.into_iter().map(|(o, ratio)| (o, o * ratio)).collect();
            let streamed = compare(&calls).windowed_error.unwrap();
            let batch = batch_windowed_error(&calls);
            prop_assert!((streamed - batch).abs() <= 0.01 * batch.max(1.0), "{streamed} against {batch}");
        }

        #[test]
        fn many_small_calls_too(seed in 0u64..1000, n in 5_000usize..30_000) {
            let calls: Vec<_> = (0..n as u64).map(|i| {
                let x = (i ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                (100.0 + (x % 900) as f64, 50.0 + (x % 1700) as f64)
            }).collect();
            let streamed = compare(&calls).windowed_error.unwrap();
            let batch = batch_windowed_error(&calls);
            prop_assert!((streamed - batch).abs() <= 0.01 * batch, "{streamed} against {batch}");
        }
    }
}
