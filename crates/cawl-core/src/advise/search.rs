//! The search: the candidates on paper, then combinations of those that are worth it.

use super::{Advice, Bound, Candidate, Case, Looked, Tried, rank};
use crate::cause::Cause;
use crate::explain::{BestTimes, Explain};
use crate::units::Nanos;
use crate::whatif::{Ledger, NoScenario, Scenario};

/// What was found.
pub struct Found {
    /// The calls on paper, as they were.
    pub before: Ledger,
    /// What they took.
    pub observed: Nanos,
    /// The changes that are worth it, most gain first.
    pub advice: Vec<Advice>,
    /// Changes that were tried.
    pub tried: u64,
    /// What the calls could have taken.
    pub best: BestTimes,
    /// What could be gained at all.
    pub bound: Bound,
}

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAdvice {
    /// Nothing that costs.
    #[error("the trace has no calls that have a cost")]
    NoCalls,
    /// Nothing tells where time was lost.
    #[error(
        "the trace has no durations, so that nothing tells where time was lost: record them (strace -T), or \
         predict single changes with `cawl-cli whatif`"
    )]
    NoTimes,
    /// A change that cannot be tried.
    #[error(transparent)]
    NoScenario(#[from] NoScenario),
}

/// Tries what a first look suggests. `run`: what the calls of the trace come to in scenarios, and what they
/// took, in seconds.
///
/// # Errors
/// Where there is nothing to advise on, and those of `run`.
pub fn search<E: From<NoAdvice>>(
    looked: &Looked,
    mut run: impl FnMut(Vec<Scenario>) -> Result<(Vec<Ledger>, f64), E>,
) -> Result<Found, E> {
    let Looked { report, measured, base, .. } = looked;
    let profile = &base.machine.profile;
    let case = Case::new(report, profile);
    let mut candidates = case.candidates();
    let scenarios = |of: &[Candidate]| -> Result<Vec<Scenario>, NoAdvice> {
        let with = |one: &Candidate| {
            // What is tried names no file with a profile.
            let none = |path: &std::path::Path| Err(NoScenario::Profile(path.display().to_string()));
            base.with(&one.requests, measured, report.host.as_ref(), none)
        };
        Ok(of.iter().map(with).collect::<Result<_, _>>()?)
    };
    let all = [vec![base.clone()], scenarios(&candidates)?].concat();
    let (ledgers, observed_s) = run(all)?;
    let mut ledgers = ledgers.into_iter();
    let before = ledgers.next().filter(|before| before.calls > 0).ok_or(NoAdvice::NoCalls)?;
    let explain = report.explain.as_ref().filter(|_| observed_s > 0.0).ok_or(NoAdvice::NoTimes)?;
    let mut tried: Vec<Tried> = Vec::new();
    loop {
        let pairs = std::mem::take(&mut candidates).into_iter().zip(ledgers);
        tried.extend(pairs.map(|(candidate, after)| Tried { candidate, after }));
        // Combinations are tried once.
        if !tried.iter().any(Tried::is_combined) {
            candidates = case.combinations(&before, &tried);
        }
        if candidates.is_empty() {
            break;
        }
        ledgers = run(scenarios(&candidates)?)?.0.into_iter();
    }
    let observed = Nanos::seconds(observed_s);
    let advice = rank(&before, observed, profile, &tried);
    let least = tried.iter().map(|one| one.after.total).fold(before.total, Nanos::min);
    let best = best(explain, &before, observed, least);
    let bound = Bound::new(explain, observed_s, best.best_s);
    Ok(Found { before, observed, advice, tried: tried.len() as u64, best, bound })
}

/// What the calls could have taken; `least`: the least time on paper with a change or without. What is explained
/// goes by the calls of the trace, the paper by the constants that these taught: a bound is no larger than what
/// either says, nor than what was observed. Writes to /dev/null are in the one only.
fn best(explain: &Explain, before: &Ledger, observed: Nanos, least: Nanos) -> BestTimes {
    let of_null = explain.causes.iter().find(|cause| cause.name == Cause::Discard.name());
    let of_null = of_null.map_or(0.0, |cause| cause.undisturbed_s);
    let most = before.total.min(observed).as_seconds();
    let undisturbed_s = (explain.best.undisturbed_s - of_null).clamp(0.0, most);
    let best_s = explain.best.best_s.min(undisturbed_s).min(least.as_seconds());
    BestTimes { undisturbed_s, best_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_no_more_than_what_was_observed_or_is_on_paper() {
        let told = BestTimes { undisturbed_s: 0.4, best_s: 0.38 };
        let explain = Explain { best: told, ..Explain::default() };
        let [a_third, most] = [0.335, 0.362].map(Nanos::seconds);
        for (paper, observed, least, undisturbed_s, best_s) in
            [(most, a_third, most, 0.335, 0.335), (a_third, most, Nanos::seconds(0.1), 0.335, 0.1)]
        {
            let before = Ledger { calls: 1, total: paper, ..Ledger::default() };
            let best = best(&explain, &before, observed, least);
            assert_eq!(best, BestTimes { undisturbed_s, best_s });
            let bound = Bound::new(&explain, observed.as_seconds(), best.best_s);
            assert_eq!(bound.ratio, Some(best_s / observed.as_seconds()));
        }
    }
}
