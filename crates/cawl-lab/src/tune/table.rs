//! What each setting reaches of the best, and what it is worth as the default.

use std::collections::HashMap;

use cawl_core::HostProfile;
use cawl_core::Nanos;

use super::pattern::{Feature, Need, Pattern};
use super::setting::Setting;
use super::{Cell, Grid};

/// Settings within this part of each other count as equal.
const EQUAL: f64 = 0.01;

/// Patterns, settings, and what these cost.
#[derive(Clone, Debug)]
pub struct Study {
    /// The patterns that some setting suits.
    pub patterns: Vec<Pattern>,
    /// Patterns that no setting of the grid suits.
    pub unsuited: Vec<Pattern>,
    /// The settings.
    pub settings: Vec<Setting>,
    /// By pattern and setting; None where it cannot be written so, or does not give what the pattern needs.
    costs: Vec<Vec<Option<Nanos>>>,
    /// By pattern and setting: the cost of the best setting over its own; None where it has no cost.
    reached: Vec<Vec<Option<f64>>>,
    /// By pattern, in the order of [`Feature::ALL`].
    features: Vec<[f64; Feature::ALL.len()]>,
}

/// A setting taken for all patterns of a need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DefaultChoice {
    /// The need; None: all patterns, whatever they need.
    pub need: Option<Need>,
    /// Number of the setting.
    pub setting: usize,
    /// Patterns in which no other is better by more than a hundredth.
    pub best: usize,
    /// Patterns in which none is worse by more than a hundredth.
    pub worst: usize,
    /// Mean of what it reaches of the best, between 0 and 1.
    pub arithmetic: f64,
    /// Harmonic mean of the same.
    pub harmonic: f64,
}

impl Study {
    /// The grid on these machines with these costs; `wanted` chooses patterns.
    pub fn new(
        grid: &Grid,
        machines: &[HostProfile],
        costs: &HashMap<Cell, Nanos>,
        wanted: impl Fn(&Pattern) -> bool,
    ) -> Study {
        let mut study = Study::of(grid.settings.clone());
        for (machine, profile) in machines.iter().enumerate() {
            for workload in &grid.workloads {
                for need in Need::ALL {
                    let pattern = Pattern { machine, workload: *workload, need };
                    if !wanted(&pattern) {
                        continue;
                    }
                    let cost = |setting: &Setting| {
                        let fits = setting.is_possible(workload) && setting.gives(need, workload);
                        let cell =
                            Cell { machine, workload: *workload, setting: setting.effective(workload) };
                        // What takes no time cannot be compared.
                        costs.get(&cell).filter(|_| fits).map(|cost| cost.max(Nanos::new(1.0)))
                    };
                    study.add(pattern, profile, grid.settings.iter().map(cost).collect());
                }
            }
        }
        study
    }

    pub(super) fn add(&mut self, pattern: Pattern, machine: &HostProfile, costs: Vec<Option<Nanos>>) {
        let Some(best) = costs.iter().flatten().copied().reduce(Nanos::min) else {
            return self.unsuited.push(pattern);
        };
        self.features.push(Feature::ALL.map(|feature| feature.of(&pattern, machine)));
        self.reached.push(costs.iter().map(|cost| cost.map(|cost| best / cost)).collect());
        self.costs.push(costs);
        self.patterns.push(pattern);
    }

    /// No patterns yet.
    pub(super) fn of(settings: Vec<Setting>) -> Study {
        let (patterns, unsuited) = (Vec::new(), Vec::new());
        Study { patterns, unsuited, settings, costs: Vec::new(), reached: Vec::new(), features: Vec::new() }
    }

    /// The cost of a setting in a pattern; None where it does not suit it.
    pub fn cost(&self, pattern: usize, setting: usize) -> Option<Nanos> {
        self.costs[pattern][setting]
    }

    /// What a setting reaches of the best one, between 0 and 1; None where it does not suit the pattern.
    pub fn reached(&self, pattern: usize, setting: usize) -> Option<f64> {
        self.reached[pattern][setting]
    }

    /// Costs that are compared.
    pub fn cells(&self) -> usize {
        self.costs.iter().flatten().flatten().count()
    }

    pub(super) fn feature(&self, pattern: usize, feature: usize) -> f64 {
        self.features[pattern][feature]
    }

    /// Every setting as the default of every need that it suits in all patterns, and of all patterns; those
    /// that reach most first.
    pub fn defaults(&self) -> Vec<DefaultChoice> {
        let needs = Need::ALL.into_iter().map(Some).chain([None]);
        needs
            .flat_map(|need| {
                let of_need = |at: &usize| need.is_none_or(|need| self.patterns[*at].need == need);
                let members: Vec<usize> = (0..self.patterns.len()).filter(of_need).collect();
                let all = 0..self.settings.len();
                let mut rows: Vec<DefaultChoice> =
                    all.filter_map(|setting| self.as_default(need, setting, &members)).collect();
                rows.sort_by(|a, b| b.arithmetic.total_cmp(&a.arithmetic));
                rows
            })
            .collect()
    }

    /// None where it does not suit one of them.
    fn as_default(&self, need: Option<Need>, setting: usize, members: &[usize]) -> Option<DefaultChoice> {
        let reached: Vec<f64> = members.iter().map(|at| self.reached(*at, setting)).collect::<Option<_>>()?;
        let count = reached.len() as f64;
        if reached.is_empty() {
            return None;
        }
        let is_worst = |(at, reached): &(&usize, &f64)| {
            let least = self.reached[**at].iter().flatten().copied().fold(f64::INFINITY, f64::min);
            **reached <= least * (1.0 + EQUAL)
        };
        Some(DefaultChoice {
            need,
            setting,
            best: reached.iter().filter(|part| **part >= 1.0 - EQUAL).count(),
            worst: members.iter().zip(&reached).filter(is_worst).count(),
            arithmetic: reached.iter().sum::<f64>() / count,
            harmonic: count / reached.iter().map(|part| 1.0 / part).sum::<f64>(),
        })
    }
}
