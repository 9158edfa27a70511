//! What a run as a whole says of constants, and how much of that is believed for good.
//!
//! The law: a run's own observations are summed up apart from what was known before (the normal equations of
//! weighted least squares), so that they can be added to whatever is known when the run ends, whatever
//! another run has added to it by then. Known constants and a run's are merged by their precisions (a Kalman
//! update: Särkkä, *Bayesian Filtering and Smoothing*, 2013, ch. 4), where three uncertainties count in
//! addition to the noise of calls:
//!
//! - Machines are not the same from one run to the next, and calls are not quite as the model has them
//!   ([`VARIES`]): a constant is told of only by calls of whose cost it is a good part. And a run of a moment
//!   saw less of that than a long one: a constant that has moved before, or was seen for less than a block,
//!   is believed by as much less.
//! - What programs do is not what calibration did ([`STRANGE`]).
//! - A constant that had to move is as uncertain as it moved, and none moves further than [`FURTHEST`] at a
//!   time.

/// Part by which a constant differs from run to run.
const VARIES: f64 = 0.15;
/// Part by which a measured constant differs from what programs meet.
pub(super) const STRANGE: f64 = 0.3;
/// No kept constant is better known than to this part of its value.
pub(super) const SUREST: f64 = 0.1;
/// Standard deviations that a constant moves by one run, at most.
const FURTHEST: f64 = 2.0;
/// Part of the precision from which on a run has said something of a constant.
const SAID: f64 = 0.02;
/// Part of the precision from which on it is sure of it.
const SURE: f64 = 0.3;
/// Part of the precision from which on a run is sure of a constant of which nothing was known.
const SURE_OF_DEFAULTS: f64 = 0.5;
/// Part of its value by which a constant that moved has changed.
const CHANGED: f64 = 0.005;
/// Variance of the noise before it is known, as a part of the observation squared.
const GUESS: f64 = 0.04;
/// Part of the information that is added to solve for what nothing is known of.
const RIDGE: f64 = 1e-9;
/// An expectation below this part of what is observed is no measure of an observation's weight.
const MIN: f64 = 1e-3;

/// Sums over the observations of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evidence<const N: usize> {
    /// Σ h·hᵀ/e and Σ h·y/e, where e is what was expected at the start.
    information: [[f64; N]; N],
    vector: [f64; N],
    /// Σ h and Σ y²/e.
    amounts: [f64; N],
    squares: f64,
    /// Sum of weights.
    seen: f64,
    /// Observations behind it, batches of them counting as one.
    pub(super) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Known {
    pub(super) value: f64,
    pub(super) deviation: f64,
    /// A run has told of it before.
    pub(super) kept: bool,
    /// It was measured or learned, and is no default.
    pub(super) measured: bool,
}

/// What a run makes of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Said {
    pub(super) known: Known,
    /// Value by this run alone, if it is sure of that.
    pub(super) alone: Option<f64>,
}

impl<const N: usize> Default for Evidence<N> {
    fn default() -> Evidence<N> {
        Evidence {
            information: [[0.0; N]; N],
            vector: [0.0; N],
            amounts: [0.0; N],
            squares: 0.0,
            seen: 0.0,
            count: 0,
        }
    }
}

impl<const N: usize> Evidence<N> {
    /// `y` was observed where `expected` was to be expected at the start.
    pub(super) fn add(&mut self, h: &[f64; N], y: f64, expected: f64, weight: f64) {
        let scale = expected.max(MIN * y);
        if scale <= 0.0 || !(y + weight).is_finite() {
            return;
        }
        for (at, row) in self.information.iter_mut().enumerate() {
            for (cell, other) in row.iter_mut().zip(h) {
                *cell += h[at] * other / scale;
            }
            self.vector[at] += h[at] * y / scale;
            self.amounts[at] += h[at];
        }
        self.squares += y * y / scale;
        self.seen += weight;
        self.count += 1;
    }

    /// What is known with this added; `block` is the weight from which on a run has seen what there was. None
    /// for a constant of which nothing was said.
    pub(super) fn merged(&self, known: &[Known; N], block: f64) -> [Option<Said>; N] {
        if self.count == 0 {
            return [None; N];
        }
        let values = known.map(|known| known.value);
        let first = self.added(known, &values, block);
        if known.iter().all(|known| known.measured) {
            return first;
        }
        // What runs differ by is a part of a value; a default is none, and is off by as much as it turned out
        // to be.
        let (mut wider, mut ordinary) = (*known, values);
        for at in (0..N).filter(|at| !known[*at].measured) {
            if let Some(said) = first[at] {
                ordinary[at] = said.known.value;
                wider[at].deviation = wider[at].deviation.max((said.known.value - values[at]).abs());
            }
        }
        self.added(&wider, &ordinary, block)
    }

    /// What is known with this added, where runs differ by parts of the `ordinary` values.
    fn added(&self, known: &[Known; N], ordinary: &[f64; N], block: f64) -> [Option<Said>; N] {
        let glance = 1.0 + block / self.seen.max(f64::MIN_POSITIVE);
        let value = known.map(|known| known.value);
        let spread = known.map(|known| {
            let strange = if known.kept || !known.measured { 0.0 } else { STRANGE * known.value };
            known.deviation.hypot(strange).max(f64::MIN_POSITIVE)
        });
        let noise = self.noise(&spread);
        // In units of what is uncertain, the prior is the identity.
        let information = self.scaled(&spread, noise);
        let mut vector = self.vector;
        for at in 0..N {
            vector[at] -= (0..N).map(|other| self.information[at][other] * value[other]).sum::<f64>();
            vector[at] *= spread[at] / noise;
        }
        // (E⁻¹ + T)⁻¹ = T⁻¹ (E + T⁻¹)⁻¹ E, which holds where E says nothing of some constants.
        let all: f64 = self.amounts.iter().zip(ordinary).map(|(amount, value)| amount * value).sum();
        let mut varies = [0.0; N];
        let mut both = information;
        for at in 0..N {
            // What calls cost is off by as much, and says nothing of what is a small part of it.
            let whole = if self.amounts[at] > 0.0 { all / self.amounts[at] } else { 0.0 };
            let machine =
                (VARIES * ordinary[at].max(whole) / spread[at]).max(if known[at].kept { 1.0 } else { 0.0 });
            varies[at] = 1.0 / (machine * machine * glance).max(1e-4);
            both[at][at] += varies[at];
        }
        let believed = |of: [f64; N]| {
            let mut part = solve(both, of);
            part.iter_mut().zip(&varies).for_each(|(part, varies)| *part *= varies);
            part
        };
        let vector = believed(vector);
        let mut precision = [[0.0; N]; N];
        for at in 0..N {
            // It is symmetric, so its rows are its columns.
            precision[at] = believed(information[at]);
            precision[at][at] += 1.0;
        }
        let step = solve(precision, vector);
        // A default may be off by any factor.
        let steps = step.iter().zip(known).filter(|(_, known)| known.measured);
        let longest = steps.fold(FURTHEST, |longest, (step, _)| longest.max(step.abs()));
        std::array::from_fn(|at| {
            let mut unit = [0.0; N];
            unit[at] = 1.0;
            let left = solve(precision, unit)[at].clamp(0.0, 1.0);
            let moved = step[at] * spread[at] * FURTHEST / longest;
            let said = 1.0 - left > SAID;
            if !said && moved.abs() <= CHANGED * value[at].abs() {
                return None;
            }
            let enough = if known[at].measured { SURE } else { SURE_OF_DEFAULTS };
            let sure = (1.0 - left > enough).then(|| value[at] + step[at] * spread[at] / (1.0 - left));
            let value = value[at] + moved;
            let surprise = if known[at].measured { moved } else { 0.0 };
            let deviation =
                if said { (spread[at] * left.sqrt()).hypot(surprise) } else { known[at].deviation };
            let deviation = deviation.max(SUREST * value.abs());
            Some(Said { known: Known { value, deviation, kept: true, measured: true }, alone: sure })
        })
    }

    /// The information in units of `spread`.
    fn scaled(&self, spread: &[f64; N], noise: f64) -> [[f64; N]; N] {
        let cell =
            |at: usize, other: usize| self.information[at][other] * (spread[at] * spread[other] / noise);
        std::array::from_fn(|at| std::array::from_fn(|other| cell(at, other)))
    }

    /// Variance of the noise over e, about the constants that fit this run best.
    fn noise(&self, spread: &[f64; N]) -> f64 {
        let mut information = self.scaled(spread, 1.0);
        let vector: [f64; N] = std::array::from_fn(|at| self.vector[at] * spread[at]);
        // What was never seen stays at zero.
        let least = RIDGE * (0..N).map(|at| information[at][at]).sum::<f64>().max(f64::MIN_POSITIVE);
        (0..N).for_each(|at| information[at][at] += least);
        let fit = solve(information, vector);
        let explained: f64 = fit.iter().zip(&vector).map(|(fit, part)| fit * part).sum();
        let count = self.count as f64;
        // As if there were an observation more for each constant.
        ((self.squares - explained).max(0.0) + GUESS * self.squares / count * N as f64) / count
    }
}

/// `x` of `a·x = b`, by elimination.
fn solve<const N: usize>(mut a: [[f64; N]; N], mut b: [f64; N]) -> [f64; N] {
    for at in 0..N {
        let pivot = (at..N).max_by(|l, r| a[*l][at].abs().total_cmp(&a[*r][at].abs())).unwrap_or(at);
        a.swap(at, pivot);
        b.swap(at, pivot);
        let above = a[at];
        for row in at + 1..N {
            let factor = a[row][at] / above[at];
            a[row].iter_mut().zip(&above).for_each(|(cell, above)| *cell -= factor * above);
            b[row] -= factor * b[at];
        }
    }
    for at in (0..N).rev() {
        let known = (at + 1..N).map(|column| a[at][column] * b[column]).sum::<f64>();
        b[at] = (b[at] - known) / a[at][at];
    }
    b
}
