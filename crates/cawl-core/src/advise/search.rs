//! The search: the candidates on paper, then combinations of those that are worth it.

use super::{Advice, Bound, Candidate, Case, Looked, Tried, rank};
use crate::explain::Explain;
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
    /// What the bytes could have taken, in seconds ([`BestTimes::best_s`](crate::BestTimes)).
    pub best_s: f64,
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
    let best_s = best(explain, observed, least);
    let bound = Bound::new(explain, observed_s, best_s);
    Ok(Found { before, observed, advice, tried: tried.len() as u64, best_s, bound })
}

/// The least that the bytes could have taken; `least`: the least time on paper with a change or without. What
/// is explained goes by the calls of the trace, the paper by the constants that these taught: a bound is no
/// larger than what either says, nor than what was observed.
fn best(explain: &Explain, observed: Nanos, least: Nanos) -> f64 {
    explain.best.best_s.min(observed.min(least).as_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::BestTimes;

    #[test]
    fn a_bound_is_no_more_than_what_was_observed_or_is_on_paper() {
        let explain =
            |best_s| Explain { best: BestTimes { best_s, ..BestTimes::default() }, ..Explain::default() };
        let [a_tenth, a_third] = [0.1, 0.335].map(Nanos::seconds);
        for (told, observed, least, best_s) in [
            (0.38, a_third, Nanos::seconds(0.362), 0.335),
            (0.38, a_third, a_tenth, 0.1),
            (0.05, a_third, a_tenth, 0.05),
        ] {
            assert_eq!(best(&explain(told), observed, least), best_s);
        }
    }
}
