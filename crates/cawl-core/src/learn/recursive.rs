//! Recursive least squares with forgetting: constants from sums that they make up.
//!
//! The law: an observation `y` is `h·θ` plus noise whose variance is proportional to `h·θ`, because what
//! disturbs a call (an interrupt, another task, a host that takes the processor away) comes at random in
//! time, so more of it comes in a longer call. With a single constant the estimate is therefore Σy/Σh, the
//! quotient that makes the *total* right. Observations fade with a memory of `memory` seconds of work: the
//! information matrix decays, but no constant gets less certain than it was at first (Söderström and Stoica,
//! System Identification, 1989, ch. 9).

/// Constants `θ` with their covariance.
#[derive(Clone, Copy, Debug)]
pub struct Recursive<const N: usize> {
    /// The constants.
    pub theta: [f64; N],
    /// Over the variance of the noise, so that how fast constants follow depends on how much was observed and
    /// not on how noisy it looks. Before the first observation: not over anything.
    covariance: [[f64; N]; N],
    /// Variances beyond which forgetting does not go.
    widest: [f64; N],
    /// Bounds of each constant.
    pub bounds: [(f64, f64); N],
    /// Variance of the noise over `h·θ`.
    noise: f64,
    /// Time constant of forgetting, in the unit of the weights.
    memory: f64,
    updates: u64,
    /// How many observations in a row contradict the constants, negative if they are smaller.
    against: i32,
    /// Such a row ends what was known of them: right where nothing but the constants explains it.
    pub reopens: bool,
}

/// What the noise's variance is taken to be before anything is known, as a part of the observation: a fifth
/// of it more or less.
const GUESS: f64 = 0.04;
/// An expectation below this part of what is observed says nothing about the noise.
const MIN: f64 = 1e-3;
/// An observation off by so many standard deviations contradicts the constants, and so many of these in a row
/// are no noise.
const FAR: f64 = 3.0;
const ROW: i32 = 3;
/// Part by which the estimate of the noise follows an update, at least.
const NOISE_GAIN: f64 = 1.0 / 32.0;

impl<const N: usize> Recursive<N> {
    /// Constants known to be about `theta`, give or take a standard deviation of `spread`.
    pub fn new(theta: [f64; N], spread: [f64; N], bounds: [(f64, f64); N], memory: f64) -> Recursive<N> {
        let mut covariance = [[0.0; N]; N];
        for at in 0..N {
            covariance[at][at] = spread[at] * spread[at];
        }
        let widest = spread.map(|spread| spread * spread);
        Recursive {
            theta,
            covariance,
            widest,
            bounds,
            noise: 1.0,
            memory,
            updates: 0,
            against: 0,
            reopens: false,
        }
    }

    /// Standard deviation of a constant.
    pub fn deviation(&self, at: usize) -> f64 {
        (self.covariance[at][at] * self.noise).max(0.0).sqrt()
    }

    /// What an observation should be.
    pub fn expect(&self, h: &[f64; N]) -> f64 {
        dot(h, &self.theta)
    }

    /// `y` was observed where `h·θ` was to be expected; `weight` says how much it makes what is older fade.
    pub fn update(&mut self, h: &[f64; N], y: f64, weight: f64) {
        let expected = self.expect(h);
        // By what is expected, not by what is observed: weights that know the noise make the mean wrong.
        let scale = expected.max(MIN * y).max(f64::MIN_POSITIVE);
        let error = y - expected;
        if self.updates == 0 {
            self.noise = GUESS * scale.max(y);
            self.scale(1.0 / self.noise);
        }
        self.forget(weight);
        let mut ph = self.covariance.map(|row| dot(&row, h));
        if self.reopens && self.is_contradicted(error, (dot(h, &ph) + scale) * self.noise) {
            self.doubt(h, error);
            ph = self.covariance.map(|row| dot(&row, h));
        }
        let uncertainty = dot(h, &ph);
        let variance = uncertainty + scale;
        for (theta, part) in self.theta.iter_mut().zip(&ph) {
            *theta += part / variance * error;
        }
        for (row, left) in self.covariance.iter_mut().zip(&ph) {
            for (cell, right) in row.iter_mut().zip(&ph) {
                *cell -= left * right / variance;
            }
        }
        self.confine();
        self.updates += 1;
        // The error before times the error after the update has the noise's variance as its mean; the first
        // ones are met by the constants, whatever the noise.
        if self.updates > N as u64 {
            let after = error * scale / variance;
            let gain = NOISE_GAIN.max(1.0 / (self.updates - N as u64 + 1) as f64);
            self.noise = (self.noise + gain * (error * after / scale - self.noise)).max(MIN * MIN * scale);
        }
    }

    /// Moves constants beyond their bounds back onto them, and the others by what that says of them: where
    /// only a sum is known, cutting off one of its terms would change the sum.
    pub fn confine(&mut self) {
        for at in 0..N {
            let (low, high) = self.bounds[at];
            let off = self.theta[at].clamp(low, high) - self.theta[at];
            let variance = self.covariance[at][at];
            if off != 0.0 && variance > 0.0 {
                for (theta, row) in self.theta.iter_mut().zip(&self.covariance) {
                    *theta += row[at] / variance * off;
                }
            }
        }
        for (theta, (low, high)) in self.theta.iter_mut().zip(&self.bounds) {
            *theta = theta.clamp(*low, *high);
        }
    }

    /// An observation is off by this much, where that has this variance; true if it is the last of a row that
    /// no noise explains.
    fn is_contradicted(&mut self, error: f64, variance: f64) -> bool {
        let against = error * error > FAR * FAR * variance;
        let sign = if error > 0.0 { 1 } else { -1 };
        self.against = if against { sign * ((self.against * sign).max(0) + 1) } else { 0 };
        let row = self.against.abs() >= ROW;
        self.against = if row { 0 } else { self.against };
        row
    }

    /// What was known of these constants does not hold: each may be off by its value, or by all of the error.
    fn doubt(&mut self, h: &[f64; N], error: f64) {
        for at in (0..N).filter(|at| h[*at] > 0.0) {
            let off = self.theta[at].max(error / h[at]);
            let variance = (off * off / self.noise).max(self.covariance[at][at]);
            (0..N).for_each(|other| (self.covariance[at][other], self.covariance[other][at]) = (0.0, 0.0));
            self.covariance[at][at] = variance;
        }
    }

    fn scale(&mut self, factor: f64) {
        for row in &mut self.covariance {
            for cell in row {
                *cell *= factor;
            }
        }
    }

    fn forget(&mut self, weight: f64) {
        self.scale((weight / self.memory).min(4.0).exp());
        for at in 0..N {
            // A constant that grew beyond what was thought possible may be off by as much as it is.
            let widest = self.widest[at].max(self.theta[at] * self.theta[at]) / self.noise;
            let variance = self.covariance[at][at];
            if variance > widest {
                let shrink = (widest / variance).sqrt();
                for other in 0..N {
                    self.covariance[at][other] *= shrink;
                    self.covariance[other][at] *= shrink;
                }
            }
        }
    }
}

fn dot<const N: usize>(a: &[f64; N], b: &[f64; N]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
