//! Which of the changes that were tried are worth it, and in what order they are told.

use std::cmp::Reverse;

use super::{Candidate, Tried, WORTH};
use crate::advice::{Advice, Alternative, Sure};
use crate::cause::Cause;
use crate::profile::{HostProfile, Origin};
use crate::units::Nanos;
use crate::whatif::{Ledger, Ratio, Request, Rewrite};

/// The least gain that is told.
const MIN: Nanos = Nanos::millis(1.0);
/// Two gains are the same by different means where so much of them is of the same causes.
const SAME: f64 = 0.9;
/// Share of the time in a device's queue beyond which no gain is sure.
const QUEUED: f64 = 0.25;
/// Pieces of advice at most.
const MAX: usize = 7;

impl Sure {
    /// Of a change by the constants of this profile; `observed`: what the calls took, which are `before` on
    /// paper without it.
    pub fn of_change<'a>(
        mut requests: impl Iterator<Item = &'a Request>,
        ratio: &Ratio,
        profile: &HostProfile,
        (before, observed): (&Ledger, Nanos),
    ) -> Sure {
        let off = before.total.get() / observed.get().max(1.0) - 1.0;
        // A sync that has nothing to commit depends on writes that fall into the same tick of the time
        // stamps, or on the journal: no percentile of a constant tells how often.
        let depends = |request: &Request| {
            matches!(request.rewrite(), Some(Rewrite::Preallocate | Rewrite::Flags(_, true)))
        };
        // Requests that wait in a device's queue do so at the same time: what one gains, the others may lose.
        let queued = before.causes[Cause::Queue].get() > QUEUED * before.total.get();
        let most = match requests.any(depends) {
            _ if queued => Sure::Unsure,
            true => Sure::Likely,
            false => Sure::Sure,
        };
        Sure::of(ratio, profile, off).max(most)
    }

    /// Of a gain; `off`: the calls as they were, on paper over observed, less 1.
    fn of(ratio: &Ratio, profile: &HostProfile, off: f64) -> Sure {
        let remains = (1.0 - ratio.interval.1) / (1.0 - ratio.value).max(f64::MIN_POSITIVE);
        match off.abs() {
            ..=0.15 if remains >= 0.5 && profile.origin != Origin::Uncalibrated => Sure::Sure,
            ..=0.5 if remains >= 0.25 => Sure::Likely,
            _ => Sure::Unsure,
        }
    }
}

/// What the calls take less, in ns; less than nothing, if they take more.
pub(super) fn gain(before: &Ledger, after: &Ledger) -> f64 {
    before.total.get() - after.total.get()
}

/// Less than the model can tell, or nothing.
fn is_worth_it(before: &Ledger, after: &Ledger, profile: &HostProfile) -> bool {
    let ratio = Ratio::of(before, after, profile);
    gain(before, after) >= MIN.get().max(WORTH * before.total.get())
        && ratio.is_some_and(|ratio| ratio.interval.1 < 1.0)
}

/// What each cause takes less.
fn saved(before: &Ledger, after: &Ledger) -> Vec<f64> {
    Cause::ALL
        .iter()
        .map(|cause| (before.causes[*cause].get() - after.causes[*cause].get()).max(0.0))
        .collect()
}

fn have_files_in_common(one: &Candidate, other: &Candidate) -> bool {
    let of_all = |candidate: &Candidate| candidate.requests.iter().all(|request| request.on().is_none());
    of_all(one) || of_all(other) || one.files.iter().any(|file| other.files.contains(file))
}

/// The single changes that are worth it, with those that gain the same, most gain first. Of these the safest
/// comes first, then the simplest. What gains less than another one, of the same causes, and is neither safer
/// nor simpler, is left out.
pub(super) fn groups(before: &Ledger, tried: &[Tried], profile: &HostProfile) -> Vec<Vec<usize>> {
    let key = |at: usize| {
        let Candidate { kind, risk, .. } = &tried[at].candidate;
        (*risk, kind.effort(), *kind, at)
    };
    let mut worth: Vec<usize> = (0..tried.len())
        .filter(|at| tried[*at].candidate.parts.is_empty())
        .filter(|at| is_worth_it(before, &tried[*at].after, profile))
        .collect();
    worth.sort_by(|a, b| gain(before, &tried[*b].after).total_cmp(&gain(before, &tried[*a].after)));
    let saved: Vec<Vec<f64>> = tried.iter().map(|one| saved(before, &one.after)).collect();
    let sum = |at: usize| saved[at].iter().sum::<f64>();
    let common = |a: usize, b: usize| -> f64 {
        saved[a].iter().zip(&saved[b]).map(|(one, other)| one.min(*other)).sum()
    };
    let touch = |a: usize, b: usize| have_files_in_common(&tried[a].candidate, &tried[b].candidate);
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in worth {
        let same = groups.iter_mut().find(|group| {
            let first = group[0];
            touch(first, at) && common(first, at) >= SAME * sum(first).max(sum(at))
        });
        match same {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups.iter_mut().for_each(|group| group.sort_by_key(|at| key(*at)));
    let firsts: Vec<usize> = groups.iter().map(|group| group[0]).collect();
    let is_covered = |at: usize| {
        let (risk, effort, ..) = key(at);
        firsts.iter().any(|other| {
            let (its_risk, its_effort, ..) = key(*other);
            *other != at
                && (its_risk <= risk && its_effort <= effort)
                && touch(*other, at)
                && gain(before, &tried[*other].after) >= gain(before, &tried[at].after)
                && common(*other, at) >= SAME * sum(at)
        })
    };
    groups.retain(|group| !is_covered(group[0]));
    groups
}

/// What is worth it of all that was tried, at most seven pieces. `observed`: what the calls took.
pub fn rank(before: &Ledger, observed: Nanos, profile: &HostProfile, tried: &[Tried]) -> Vec<Advice> {
    let groups = groups(before, tried, profile);
    let mut all: Vec<Advice> = Vec::new();
    for group in &groups {
        let Some(advice) = group.first().and_then(|at| advice(before, profile, observed, &tried[*at])) else {
            continue;
        };
        let alternatives = group.iter().skip(1).map(|at| alternative(before, &tried[*at])).collect();
        all.push(Advice { alternatives, ..advice });
    }
    // The safest of the first group may gain a little less than the next group.
    all.sort_by(|a, b| b.gain_s.total_cmp(&a.gain_s));
    let mut together: Vec<&Tried> = tried.iter().filter(|one| !one.candidate.parts.is_empty()).collect();
    together.sort_by_key(|one| (one.candidate.risk, Reverse(gain(before, &one.after) as i64)));
    // Several changes are told where they gain so much more than those told before that are as safe.
    let mut told: Vec<(u8, f64)> = groups
        .iter()
        .map(|group| (tried[group[0]].candidate.risk, gain(before, &tried[group[0]].after)))
        .collect();
    let mut combined = Vec::new();
    for one in together {
        let (risk, gained) = (one.candidate.risk, gain(before, &one.after));
        let best = told.iter().filter(|(its, _)| *its <= risk).map(|(_, gain)| *gain).fold(0.0, f64::max);
        if gained - best >= MIN.get().max(WORTH * before.total.get()) {
            told.push((risk, gained));
            combined.extend(advice(before, profile, observed, one));
        }
    }
    all.truncate(MAX - combined.len().min(MAX / 2));
    all.extend(combined);
    all.truncate(MAX);
    all
}

fn advice(before: &Ledger, profile: &HostProfile, observed: Nanos, tried: &Tried) -> Option<Advice> {
    let Tried { candidate, after } = tried;
    let ratio = Ratio::of(before, after, profile)?;
    Some(Advice {
        kind: candidate.kind,
        what: candidate.what.clone(),
        change: candidate.arguments(),
        gain_s: gain(before, after) / 1e9,
        elapsed_gain_s: (before.end.get() - after.end.get()) / 1e9,
        ratio: ratio.value,
        interval: ratio.interval.into(),
        files: candidate.files.clone(),
        more_files: candidate.more_files,
        program: candidate.program.clone(),
        safety: safety(before, tried),
        how: candidate.how.clone(),
        sure: Sure::of_change(candidate.requests.iter(), &ratio, profile, (before, observed)),
        alternatives: Vec::new(),
    })
}

fn alternative(before: &Ledger, tried: &Tried) -> Alternative {
    let Tried { candidate, after } = tried;
    Alternative {
        what: candidate.what.clone(),
        change: candidate.arguments(),
        gain_s: gain(before, after) / 1e9,
        ratio: after.total.get() / before.total.get().max(1.0),
        how: candidate.how.clone(),
        safety: safety(before, tried),
    }
}

/// What becomes less safe, each thing once.
fn safety(before: &Ledger, tried: &Tried) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let Tried { candidate, after } = tried;
    let (was, is) = (before.peak_dirty, after.peak_dirty);
    // Other programs' data, too.
    let changes_limits = candidate.changes_limits();
    let limits = (changes_limits && is > was)
        .then(|| format!("a crash loses up to {is} that no sync has made durable, {was} before"));
    let of_machine = changes_limits.then(|| "the limits are those of all programs".to_owned());
    for text in after.safety.iter().cloned().chain(limits).chain(of_machine) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all
}
