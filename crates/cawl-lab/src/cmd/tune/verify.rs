//! What the tree's choices lose on the machine.
//!
//! Patterns are drawn by lot. Each is written with the tree's choice, with the settings that the model holds
//! for the best, with the best default choice and with one drawn by lot, in rounds, each in another order.
//! The median of a setting counts. What the choice loses against the fastest is its regret; how much the
//! medians of the even and of the odd rounds of one and the same setting differ is the noise floor.

use std::path::Path;
use std::sync::atomic::AtomicUsize;

use anyhow::bail;
use cawl_core::{Bytes, Nanos, median};
use cawl_host::place::{Backing, Place};
use cawl_measure::progress::Progress;
use cawl_measure::scratch::{self, Scratch};
use fastrand::Rng;

use super::answer::{Measured, Verified, VerifiedPattern};
use super::real::Files;
use crate::tune::{Pattern, Setting, Study, Tree};

/// The time for all patterns, about.
const TIME: Nanos = Nanos::seconds(150.0);
/// A pattern whose choice takes longer is not drawn, and a setting that takes longer is not compared.
const LONGEST: Nanos = Nanos::seconds(2.0);
/// Rounds of a pattern, at least and at most: the same number of even and odd ones.
const ROUNDS: (usize, usize) = (4, 12);
/// Rounds that are made even if they take too long.
const FEWEST: usize = 2;
/// A setting whose runs all take so many times as long as the fastest one is not run again.
const SLOW: f64 = 4.0;
/// Settings that the model holds for the best.
const BEST: usize = 3;
/// What a run takes beside its calls: sync and the files.
const AROUND: Nanos = Nanos::millis(20.0);

pub struct Lot {
    pub count: usize,
    pub seed: u64,
}

/// Writes patterns in new files in `dir`. `signal` holds the number of a signal that asks to stop, or zero.
pub fn verify(
    study: &Study,
    tree: &Tree,
    dir: &Path,
    lot: Lot,
    signal: &AtomicUsize,
) -> anyhow::Result<Verified> {
    let place = Place::of(dir)?;
    if place.backing == Backing::Memory {
        bail!("{} keeps its files in memory; name a folder on a disk with --dir", place.folder.display());
    }
    let scratch = Scratch::create(&place.folder, scratch::TUNE)?;
    let mut numbers = Rng::with_seed(lot.seed);
    let is_short = |pattern: &usize| {
        let choice = tree.choice(study, *pattern).and_then(|choice| study.cost(*pattern, choice));
        choice.is_some_and(|cost| cost <= LONGEST)
    };
    let mut drawn: Vec<usize> = (0..study.patterns.len()).filter(is_short).collect();
    numbers.shuffle(&mut drawn);
    drawn.truncate(lot.count);
    let size = |pattern: &usize| {
        let workload = study.patterns[*pattern].workload;
        (workload.size() + workload.bytes()) * u64::from(workload.writers)
    };
    scratch.require(Bytes(2 * drawn.iter().map(size).max().unwrap_or(0)))?;
    let time = TIME * (1.0 / drawn.len().max(1) as f64);
    let mut progress = Progress::new(TIME);
    let mut patterns = Vec::new();
    for (at, pattern) in drawn.iter().enumerate() {
        progress.begin(format!("pattern {} of {}", at + 1, drawn.len()));
        let candidates = Candidates::of(study, tree, *pattern, time, &mut numbers);
        patterns.push(candidates.measure(&scratch, &mut numbers, &mut progress, signal)?);
    }
    Ok(Verified::new(patterns, lot.seed))
}

/// The settings that a pattern is written with, the tree's choice first.
struct Candidates {
    pattern: Pattern,
    settings: Vec<(Setting, Nanos)>,
    /// Which of them is the best default choice.
    default: Option<usize>,
    rounds: usize,
    time: Nanos,
}

impl Candidates {
    fn of(study: &Study, tree: &Tree, at: usize, time: Nanos, numbers: &mut Rng) -> Candidates {
        let pattern = study.patterns[at];
        let cost = |setting: usize| study.cost(at, setting);
        let mut suiting: Vec<usize> = (0..study.settings.len())
            .filter(|setting| cost(*setting).is_some_and(|cost| cost <= LONGEST))
            .collect();
        suiting.sort_by(|a, b| cost(*a).partial_cmp(&cost(*b)).unwrap_or(std::cmp::Ordering::Equal));
        let mut found = Candidates { pattern, settings: Vec::new(), default: None, rounds: ROUNDS.0, time };
        let choice = tree.choice(study, at);
        let default = study.defaults().into_iter().find(|row| row.need == Some(pattern.need));
        let default = default.map(|row| row.setting).filter(|setting| suiting.contains(setting));
        let mut add = |setting: usize| {
            let effective = study.settings[setting].effective(&pattern.workload);
            let known = found.settings.iter().position(|(setting, _)| *setting == effective);
            known.or_else(|| {
                found.settings.push((effective, cost(setting)?));
                Some(found.settings.len() - 1)
            })
        };
        choice.and_then(&mut add);
        let place = default.and_then(&mut add);
        let mut best = Vec::new();
        for setting in &suiting {
            best.extend(add(*setting).filter(|place| !best.contains(place)));
            if best.len() == BEST {
                break;
            }
        }
        if !suiting.is_empty() {
            add(suiting[numbers.usize(..suiting.len())]);
        }
        found.default = place;
        let round: Nanos = found.settings.iter().map(|(_, cost)| *cost + AROUND).sum();
        let rounds = (time / round) as usize;
        found.rounds = rounds.clamp(ROUNDS.0, ROUNDS.1) / 2 * 2;
        found
    }

    fn measure(
        &self,
        scratch: &Scratch,
        numbers: &mut Rng,
        progress: &mut Progress,
        signal: &AtomicUsize,
    ) -> anyhow::Result<VerifiedPattern> {
        let files = Files::prepare(scratch, self.pattern.workload, signal)?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); self.settings.len()];
        let mut order: Vec<usize> = (0..self.settings.len()).collect();
        let begin = cawl_host::now();
        for round in 0..self.rounds {
            numbers.shuffle(&mut order);
            // The machine may take longer than the model thinks.
            if round >= FEWEST && cawl_host::now().since(begin) > self.time {
                break;
            }
            for at in order.clone() {
                progress.show();
                if let Some(took) = files.run(self.settings[at].0)? {
                    times[at].push(took.as_seconds());
                }
            }
            // What is that slow is not the fastest; all that it could do is to take time.
            let least = times.iter().flatten().copied().fold(f64::INFINITY, f64::min);
            order.retain(|at| *at == 0 || times[*at].iter().any(|took| *took < SLOW * least));
        }
        let measured = self.settings.iter().zip(&times).map(|((setting, predicted), times)| {
            let half =
                |first: usize| median(&times.iter().skip(first).step_by(2).copied().collect::<Vec<_>>());
            Measured {
                setting: setting.to_string(),
                predicted_s: predicted.as_seconds(),
                median_s: median(times),
                halves_s: half(0).zip(half(1)).map(|(even, odd)| [even, odd]),
            }
        });
        Ok(VerifiedPattern::new(self.pattern.to_string(), measured.collect(), self.default))
    }
}

#[cfg(test)]
mod tests {
    use crate::tune::{Access, Choices, Grid, Way, cost};
    use cawl_core::{HostProfile, SyncsKept};

    use super::*;

    #[test]
    fn what_is_compared_suits_the_pattern_and_is_there_once() {
        let machine = HostProfile::uncalibrated();
        let grid = Grid::new(&Choices {
            bytes: Bytes::mib(1),
            ways: vec![Way::Write(4 << 10), Way::Write(1 << 20), Way::Stream(64 << 10)],
            syncs: vec![SyncsKept::None, SyncsKept::Last, SyncsKept::OneIn(16), SyncsKept::OneIn(1)],
            accesses: Access::ALL.to_vec(),
            limits: vec![None],
        });
        let costs =
            grid.cells(1).into_iter().map(|cell| (cell, cost(&machine, &cell.workload, &cell.setting)));
        let study = Study::new(&grid, std::slice::from_ref(&machine), &costs.collect(), |_| true);
        let tree = Tree::learn(&study, 3);
        let mut numbers = Rng::with_seed(7);
        for (at, pattern) in study.patterns.iter().enumerate() {
            let Some(choice) = tree.choice(&study, at) else { panic!("nothing suits {pattern}") };
            let found = Candidates::of(&study, &tree, at, Nanos::seconds(1.0), &mut numbers);
            let settings: Vec<Setting> = found.settings.iter().map(|(setting, _)| *setting).collect();
            assert_eq!(settings[0], study.settings[choice].effective(&pattern.workload), "{pattern}");
            assert!((2..=BEST + 3).contains(&settings.len()), "{pattern}: {settings:?}");
            assert!(found.default.is_none_or(|default| default < settings.len()));
            assert!((ROUNDS.0..=ROUNDS.1).contains(&found.rounds) && found.rounds.is_multiple_of(2));
            for (at, setting) in settings.iter().enumerate() {
                assert!(!settings[..at].contains(setting), "{pattern}: {setting} twice");
                // A whole number of records may be synced at the end only: it is as durable there.
                let suits =
                    setting.gives(pattern.need, &pattern.workload) || setting.syncs == SyncsKept::Last;
                assert!(suits, "{pattern}: {setting}");
            }
        }
    }
}
