//! Costs that repeat: the periods of a series of calls.

use cawl_core::median;
use statrs::distribution::{ChiSquared, ContinuousCDF};

/// Fewest calls that can show a period, and the most that are searched for one: the time grows with their
/// square.
const MIN: usize = 64;
pub const MAX_CALLS: usize = 2048;
/// Fewest repetitions of a period.
const CYCLES: usize = 8;
/// Frequencies between two whole numbers of cycles in a series, so that a period keeps its phase.
const BETWEEN: usize = 8;
/// Parts of a period that are told apart.
const PHASES: f64 = 64.0;
/// Cycles on each side whose frequencies are the background.
const BESIDE: usize = 16;
/// The probability that a series without periods has one.
const CHANCE: f64 = 1e-4;
/// Least correlation of the phases' means in both halves of a series.
const AGREEMENT: f64 = 0.5;
/// Most periods of a series.
const MAX: usize = 3;

/// The periods of repeated series, in calls, the strongest first; of their first [`MAX_CALLS`].
///
/// Each frequency folds the series: calls of the same phase of its period are a group, and the groups' ranks
/// are compared (Kruskal and Wallis 1952). The statistic is divided by that of frequencies nearby, so that
/// slow changes do not count, and both halves of the series must agree. What a period explains is removed
/// before the next one is sought.
pub fn periods(series: &[Vec<f64>]) -> Vec<f64> {
    let length = series.iter().map(Vec::len).min().unwrap_or(0).min(MAX_CALLS);
    if length < MIN {
        return Vec::new();
    }
    let mut ranks: Vec<Vec<f64>> = series.iter().map(|costs| ranks(&costs[..length])).collect();
    let mut found: Vec<f64> = Vec::new();
    for _ in 0..2 * MAX {
        let Some(fold) = strongest(&ranks, length) else { break };
        let agrees = fold.agreement(&ranks) >= AGREEMENT;
        fold.remove(&mut ranks);
        if agrees && !is_remainder(fold.cycles, &found) {
            found.push(fold.cycles);
        }
    }
    found.into_iter().take(MAX).map(|cycles| length as f64 / cycles).collect()
}

/// Whether a frequency is what removed ones leave: within a cycle, since costs change during the series, it
/// is one of these, a multiple, a small part, or the sum or difference of two.
fn is_remainder(cycles: f64, removed: &[f64]) -> bool {
    const PARTS: usize = 4;
    let is_near = |frequency: f64| (cycles - frequency).abs() <= 1.0;
    let of_one = |one: &f64| {
        is_near((cycles / one).round().max(1.0) * one) || (2..=PARTS).any(|part| is_near(one / part as f64))
    };
    let of_two = |one: &f64| removed.iter().any(|other| is_near(one + other) || is_near(one - other));
    removed.iter().any(|one| of_one(one) || of_two(one))
}

/// A frequency, and the mean ranks of its phases.
struct Fold {
    /// Cycles in a series.
    cycles: f64,
    means: Vec<f64>,
    length: usize,
    /// The statistic of the groups' difference, and its degrees of freedom.
    statistic: f64,
    freedom: f64,
}

impl Fold {
    fn of(ranks: &[Vec<f64>], length: usize, cycles: f64) -> Fold {
        let phases = (length as f64 / cycles).round().clamp(2.0, PHASES) as usize;
        let mut fold = Fold { cycles, means: vec![0.0; phases], length, statistic: 0.0, freedom: 0.0 };
        let (mut counts, mut squares) = (vec![0.0; phases], 0.0);
        for (call, rank) in ranks.iter().flat_map(|ranks| ranks.iter().enumerate()) {
            let phase = fold.phase(call);
            fold.means[phase] += rank;
            counts[phase] += 1.0;
            squares += rank * rank;
        }
        let mut between = 0.0;
        for (sum, count) in fold.means.iter_mut().zip(&counts).filter(|(_, count)| **count > 0.0) {
            between += *sum * *sum / count;
            *sum /= count;
        }
        let total = ranks.len() * length - 1;
        fold.statistic = if squares > 0.0 { total as f64 * between / squares } else { 0.0 };
        fold.freedom = counts.iter().filter(|count| **count > 0.0).count() as f64 - 1.0;
        fold
    }

    fn phase(&self, call: usize) -> usize {
        let turn = (call as f64 * self.cycles / self.length as f64).fract();
        // Turns of whole calls are inexact.
        ((turn * self.means.len() as f64 + 1e-9) as usize).min(self.means.len() - 1)
    }

    /// The correlation of the phases' means in both halves of the series.
    fn agreement(&self, ranks: &[Vec<f64>]) -> f64 {
        let half = |from: usize, to: usize| {
            let mut sums = vec![(0.0, 0.0); self.means.len()];
            for (call, rank) in ranks.iter().flat_map(|ranks| (from..to).zip(&ranks[from..to])) {
                let (sum, count) = &mut sums[self.phase(call)];
                (*sum, *count) = (*sum + rank, *count + 1.0);
            }
            let means: Vec<f64> = sums.iter().map(|(sum, count)| sum / f64::max(*count, 1.0)).collect();
            let mean = means.iter().sum::<f64>() / means.len() as f64;
            means.into_iter().map(|one| one - mean).collect::<Vec<_>>()
        };
        let (first, second) = (half(0, self.length / 2), half(self.length / 2, self.length));
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        product(&first, &second) / (product(&first, &first) * product(&second, &second)).sqrt()
    }

    fn remove(&self, ranks: &mut [Vec<f64>]) {
        for ranks in ranks {
            for (call, rank) in ranks.iter_mut().enumerate() {
                *rank -= self.means[self.phase(call)];
            }
        }
    }
}

/// The frequency whose groups differ most, if that is no chance.
fn strongest(ranks: &[Vec<f64>], length: usize) -> Option<Fold> {
    let least = CYCLES * BETWEEN;
    let folds: Vec<Fold> = (least..=length / 2 * BETWEEN)
        .map(|step| Fold::of(ranks, length, step as f64 / BETWEEN as f64))
        .collect();
    let level = |index: usize| folds[index].statistic / folds[index].freedom;
    let chance = |index: usize| {
        let (from, to) = (index.saturating_sub(BESIDE * BETWEEN), index + BESIDE * BETWEEN);
        let beside = (from..=to.min(folds.len() - 1)).filter(|other| other.abs_diff(index) >= BETWEEN);
        let background = median(&beside.map(level).collect::<Vec<_>>()).unwrap_or(1.0).max(1.0);
        let Fold { statistic, freedom, .. } = folds[index];
        let law = ChiSquared::new(freedom).ok()?;
        // Beyond what the law tells apart, the larger statistic of fewer groups.
        Some((law.sf(statistic / background), -statistic / background / freedom))
    };
    let best = (0..folds.len()).filter_map(|index| Some((chance(index)?, index)));
    let ((chance, _), index) = best.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
    if chance * folds.len() as f64 >= CHANCE {
        return None;
    }
    let found = folds.into_iter().nth(index)?;
    // Of periods that fold as well, that of whole calls.
    let calls = (length as f64 / found.cycles).round();
    let whole = Fold::of(ranks, length, length as f64 / calls);
    Some(if whole.statistic >= 0.99 * found.statistic { whole } else { found })
}

/// Ranks, equal values sharing their mean, without the straight line through them.
fn ranks(costs: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    order.sort_by(|a, b| costs[*a].total_cmp(&costs[*b]));
    let mut ranks = vec![0.0; costs.len()];
    let mut before = 0;
    for same in order.chunk_by(|a, b| costs[*a] == costs[*b]) {
        let rank = before as f64 + (same.len() - 1) as f64 / 2.0;
        same.iter().for_each(|index| ranks[*index] = rank);
        before += same.len();
    }
    let middle = (costs.len() - 1) as f64 / 2.0;
    let from_middle = || (0..costs.len()).map(|index| index as f64 - middle);
    let squares: f64 = from_middle().map(|x| x * x).sum();
    let slope = from_middle().zip(&ranks).map(|(x, rank)| x * (rank - middle)).sum::<f64>() / squares;
    from_middle().zip(&ranks).map(|(x, rank)| rank - middle - slope * x).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from 0 to 1 that do not repeat.
    fn noise(count: usize, mut seed: u64) -> Vec<f64> {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed as f64 / u64::MAX as f64
        };
        (0..count).map(|_| next()).collect()
    }

    /// Noise with a slow call in every `every`, a very slow one, and a machine that becomes slower.
    fn pulses(every: usize, seed: u64) -> Vec<f64> {
        let cost = |(call, noise): (usize, f64)| {
            let slow = if call % every == every / 2 { 1.0 } else { 0.0 };
            noise + slow + call as f64 / 512.0 + if call == 400 { 1e6 } else { 0.0 }
        };
        noise(512, seed).into_iter().enumerate().map(cost).collect()
    }

    #[test]
    fn a_period_is_found_in_noise_and_none_where_there_is_none() {
        let empty = (1..=60).filter(|seed| periods(&[noise(200, *seed)]).is_empty()).count();
        assert!(empty >= 59, "{empty} of 60");
        for every in [2, 4, 5, 13, 37] {
            let found = periods(&[pulses(every, 1), pulses(every, 2)]);
            let [found] = found[..] else { panic!("{every}: {found:?}") };
            assert!((found / every as f64 - 1.0).abs() < 0.01, "{every}: {found}");
        }
    }

    #[test]
    fn two_periods_are_told_apart() {
        let both = |seed| {
            let wave = |(call, cost)| cost + (call as f64 / 61.0 * std::f64::consts::TAU).sin();
            pulses(4, seed).into_iter().enumerate().map(wave).collect::<Vec<f64>>()
        };
        let mut found = periods(&[both(1), both(2)]);
        found.sort_by(f64::total_cmp);
        let [short, long] = found[..] else { panic!("{found:?}") };
        assert!((short - 4.0).abs() < 0.02 && (long - 61.0).abs() < 2.0, "{found:?}");
    }

    #[test]
    fn only_the_first_calls_of_a_long_series_count() {
        let late = |call: usize| if call >= MAX_CALLS && call.is_multiple_of(5) { 1e3 } else { 0.0 };
        let costs = noise(20 * MAX_CALLS, 3).into_iter().enumerate().map(|(call, cost)| cost + late(call));
        assert!(periods(&[costs.collect()]).is_empty());
    }

    #[test]
    fn short_and_equal_series_have_none() {
        assert!(periods(&[]).is_empty());
        assert!(periods(&[[1.0, 2.0].repeat(20)]).is_empty());
        assert!(periods(&[vec![1.0; 200], vec![2.0; 200]]).is_empty());
    }
}
