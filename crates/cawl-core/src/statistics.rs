//! Estimates from noisy measurements: what a constant is, and how sure that is. All quantiles and medians of
//! samples are taken here.
//!
//! The law: **one bad sample changes little.** Values are medians, spreads come from ranks, and a line is
//! fitted to the medians of several repeats. What other programs do to a measurement is nearly always to
//! lengthen it, in bursts; means would follow them.

use crate::profile::Measured;

/// Median, spread and number of a set of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The median.
    pub value: f64,
    /// 10th percentile.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Median absolute deviation from the median, scaled to the standard deviation of a normal distribution.
    pub deviation: f64,
    /// How many samples.
    pub samples: u32,
}

/// How far off a value of a single sample may be, as a part of it.
const FEW: f64 = 0.5;

impl Estimate {
    /// The estimate from these samples; None without a finite one.
    pub fn of(samples: &[f64]) -> Option<Estimate> {
        let sorted = sorted(samples);
        let value = quantile_of_sorted(&sorted, 0.5)?;
        let distances: Vec<f64> = sorted.iter().map(|sample| (sample - value).abs()).collect();
        Some(Estimate {
            value,
            p10: quantile_of_sorted(&sorted, 0.1)?,
            p90: quantile_of_sorted(&sorted, 0.9)?,
            deviation: 1.4826 * median(&distances)?,
            samples: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        })
    }

    /// Half the width of the 95 % confidence interval of the median, taken as normally distributed.
    pub fn margin(&self) -> f64 {
        // The median of n samples varies √(π/2) times as much as their mean.
        1.96 * 1.2533 * self.deviation / f64::from(self.samples.max(1)).sqrt()
    }

    /// As a constant of a profile, in a unit of its own. A unit that turns large into small (time per byte
    /// into bytes per time) swaps the percentiles. Those of few samples say little, so they are no closer to
    /// the value than half of it over the number of samples.
    pub fn measured<T: PartialOrd + Copy>(&self, unit: impl Fn(f64) -> T) -> Measured<T> {
        let off = self.value.abs() * FEW / f64::from(self.samples.max(1));
        let (low, high) = (unit(self.p10.min(self.value - off)), unit(self.p90.max(self.value + off)));
        let (low, high) = if low <= high { (low, high) } else { (high, low) };
        Measured { value: unit(self.value), p10: Some(low), p90: Some(high), samples: self.samples }
    }
}

/// The middle sample, or the mean of the middle two; None without a finite sample.
pub fn median(samples: &[f64]) -> Option<f64> {
    quantile(samples, 0.5)
}

/// The `q` quantile, between the two samples next to it; None without a finite sample.
pub fn quantile(samples: &[f64], q: f64) -> Option<f64> {
    quantile_of_sorted(&sorted(samples), q)
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn quantile_of_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let at = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(low + (high - low) * at.fract())
}

/// A straight line through points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at zero.
    pub intercept: f64,
    /// Growth per unit.
    pub slope: f64,
}

impl Line {
    /// The line with the smallest squared *relative* distance from the points `(x, y)`, y > 0: a cost of
    /// 100 ns may be off by as many percent as one of 100 µs. Neither part is negative: no call has a
    /// negative fixed cost, so a line that wants one is laid through the origin instead.
    ///
    /// None with fewer than two different x.
    pub fn through(points: &[(f64, f64)]) -> Option<Line> {
        let points: Vec<(f64, f64)> =
            points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite() && *y > 0.0).collect();
        let weight = |y: f64| 1.0 / (y * y);
        let total: f64 = points.iter().map(|(_, y)| weight(*y)).sum();
        let mean_x = points.iter().map(|(x, y)| weight(*y) * x).sum::<f64>() / total;
        let mean_y = points.iter().map(|(_, y)| weight(*y) * y).sum::<f64>() / total;
        let spread: f64 = points.iter().map(|(x, y)| weight(*y) * (x - mean_x).powi(2)).sum();
        if points.len() < 2 || spread.is_nan() || spread <= 0.0 {
            return None;
        }
        let common: f64 = points.iter().map(|(x, y)| weight(*y) * (x - mean_x) * (y - mean_y)).sum();
        let mut slope = common / spread;
        let mut intercept = mean_y - slope * mean_x;
        if intercept < 0.0 {
            let squares: f64 = points.iter().map(|(x, y)| weight(*y) * x * x).sum();
            let products: f64 = points.iter().map(|(x, y)| weight(*y) * x * y).sum();
            (intercept, slope) = (0.0, products / squares);
        } else if slope < 0.0 {
            (intercept, slope) = (mean_y, 0.0);
        }
        Some(Line { intercept, slope })
    }
}

/// Two kinds of samples, as pages whose memory was warm and pages whose memory was cold.
#[derive(Clone, Debug, PartialEq)]
pub struct Modes {
    /// The samples of the lower kind.
    pub low: Vec<f64>,
    /// The samples of the higher kind; empty if there is only one.
    pub high: Vec<f64>,
}

/// How many times the lower mode the higher one must be to be a kind of its own.
const APART: f64 = 2.5;
/// Part of the samples that a mode must have.
const SHARE: f64 = 0.03;

impl Modes {
    /// Splits positive samples where the two parts are most compact on a logarithmic scale, if they are far
    /// apart and both are more than stragglers.
    pub fn of(samples: &[f64]) -> Modes {
        let mut sorted = sorted(samples);
        sorted.retain(|sample| *sample > 0.0);
        let logs: Vec<f64> = sorted.iter().map(|sample| sample.ln()).collect();
        let count = logs.len();
        let fewest = ((count as f64 * SHARE).ceil() as usize).max(2);
        let sum: f64 = logs.iter().sum();
        let mut below = 0.0;
        let mut best = (0.0, count);
        for split in 1..count {
            below += logs[split - 1];
            if split < fewest || count - split < fewest {
                continue;
            }
            let (low, high) = (below / split as f64, (sum - below) / (count - split) as f64);
            // Otsu's criterion: the variance between the parts is the largest.
            let between = split as f64 * (count - split) as f64 * (high - low).powi(2);
            if between > best.0 {
                best = (between, split);
            }
        }
        let (low, high) = sorted.split_at(best.1);
        let middle = |part: &[f64]| quantile_of_sorted(part, 0.5).unwrap_or(f64::NAN);
        let width = |part: &[f64]| {
            let (a, b) = (quantile_of_sorted(part, 0.25), quantile_of_sorted(part, 0.75));
            (b.unwrap_or(1.0) / a.unwrap_or(1.0)).ln()
        };
        let gap = (middle(high) / middle(low)).ln();
        if gap >= APART.ln() && gap > width(low) + width(high) {
            Modes { low: low.to_vec(), high: high.to_vec() }
        } else {
            Modes { low: sorted, high: Vec::new() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of numbers between 0 and 1.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    #[test]
    fn medians_and_spread() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 1000.0]).unwrap();
        assert_eq!((estimate.value, estimate.samples), (3.0, 5));
        assert!((estimate.deviation - 1.4826).abs() < 1e-9);
        assert!((estimate.p10 - 1.4).abs() < 1e-9);
        assert_eq!(Estimate::of(&[f64::NAN]), None);
        assert_eq!(Estimate::of(&[7.0]).unwrap().margin(), 0.0);
        let measured = estimate.measured(|ns| 1.0 / ns);
        assert!(measured.p10.unwrap() < measured.value && measured.value < measured.p90.unwrap());
    }

    #[test]
    fn a_tenth_of_wild_samples_changes_little() {
        let mut noise = noise(1);
        let mut samples: Vec<f64> = (0..900).map(|_| 99.0 + 2.0 * noise()).collect();
        samples.extend((0..100).map(|_| 1e6 * noise()));
        let estimate = Estimate::of(&samples).unwrap();
        assert!((estimate.value - 100.0).abs() < 0.5, "{estimate:?}");
        assert!(estimate.margin() < 0.2);
    }

    #[test]
    fn a_line_is_recovered_over_decades() {
        let mut noise = noise(2);
        let sizes = [512.0, 4096.0, 65_536.0, 1_048_576.0, 4_194_304.0];
        let points: Vec<(f64, f64)> =
            (0..10).flat_map(|_| sizes).map(|x| (x, (140.0 + x * 0.2) * (0.97 + 0.06 * noise()))).collect();
        let line = Line::through(&points).unwrap();
        assert!((line.intercept - 140.0).abs() < 6.0, "{line:?}");
        assert!((line.slope - 0.2).abs() < 0.005, "{line:?}");
    }

    #[test]
    fn lines_make_sense_or_are_not_there() {
        assert_eq!(Line::through(&[(1.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)]), None);
        let exact = Line::through(&[(0.0, 2.0), (10.0, 4.0)]).unwrap();
        assert!((exact.intercept - 2.0).abs() < 1e-9 && (exact.slope - 0.2).abs() < 1e-9);
        let convex = Line::through(&[(1.0, 0.5), (2.0, 4.0), (3.0, 9.0)]).unwrap();
        assert!(convex.intercept == 0.0 && convex.slope > 0.0);
        let falling = Line::through(&[(1.0, 9.0), (2.0, 4.0), (3.0, 1.0)]).unwrap();
        assert!(falling.slope == 0.0 && falling.intercept > 0.0);
    }

    #[test]
    fn warm_and_cold_are_told_apart() {
        let mut noise = noise(3);
        let mut mixed: Vec<f64> = (0..300).map(|_| 900.0 * (0.8 + 0.4 * noise())).collect();
        mixed.extend((0..40).map(|_| 13_000.0 * (0.7 + 0.6 * noise())));
        let modes = Modes::of(&mixed);
        assert_eq!((modes.low.len(), modes.high.len()), (300, 40));
    }

    #[test]
    fn one_kind_stays_one() {
        let mut noise = noise(4);
        let plain: Vec<f64> = (0..300).map(|_| 900.0 * (0.6 + 0.8 * noise())).collect();
        assert!(Modes::of(&plain).high.is_empty());
        // A few stragglers are no mode, and neither is a wide spread.
        let mut stragglers = plain.clone();
        stragglers.extend([50_000.0, 60_000.0, 70_000.0]);
        assert!(Modes::of(&stragglers).high.is_empty());
        let wide: Vec<f64> = (0..300).map(|_| 100.0 * (noise() * 4.0).exp()).collect();
        assert!(Modes::of(&wide).high.is_empty());
        assert_eq!(Modes::of(&[]), Modes { low: vec![], high: vec![] });
    }
}
