//! What 003 says, and what came out.

use cawl_core::{CachePolicy, median};

use super::super::{Finding, Verdict};
use super::{Outcome, Outcomes};
use crate::render::{compact, percent};

/// The size at which 003 tells its factors.
const SMALL: u64 = 4 << 10;
/// The size from which on its bandwidth with the cache is lower.
const DROP: u64 = 512 << 10;
/// How far one of two equal bandwidths may be above the other.
const NOISE: f64 = 0.05;
/// A factor counts as found from this part of it on.
const PART: f64 = 1.0 / 1.5;

/// The rows of the summary.
pub fn all(outcomes: &Outcomes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in outcomes.links() {
        let of = |policy| outcomes.of(link, policy);
        let (none, back) = (of(CachePolicy::None), of(CachePolicy::WriteBack));
        let through = of(CachePolicy::WriteThrough);
        if !none.is_empty() && !back.is_empty() {
            findings.push(without(link, &none));
            findings.extend(gain(link, &none, &back));
            findings.push(drop(link, &none, &back));
        }
        if !none.is_empty() && !through.is_empty() {
            findings.push(write_through(link, &none, &through));
        }
    }
    findings.push(accuracy(outcomes));
    findings
}

/// Figure 1: small transfers have a lower bandwidth.
fn without(link: &str, none: &[&Outcome]) -> Finding {
    let ends = |which: usize| {
        let of = |one: Option<&&Outcome>| one.map_or(f64::NAN, |one| one.bandwidth()[which]);
        (of(none.first()), of(none.last()))
    };
    let told = |(small, large): (f64, f64)| format!("{} to {}", compact::rate(small), compact::rate(large));
    let rates: Vec<f64> = none.iter().map(|one| one.bandwidth()[0]).collect();
    let rises = rates.windows(2).all(|two| two[1] > two[0] * (1.0 - NOISE));
    Finding {
        item: format!("003, figure 1 ({link})"),
        theirs: "without a cache, bandwidth rises with the size of a transfer".to_owned(),
        observed: told(ends(0)),
        predicted: told(ends(1)),
        verdict: if rises { Verdict::Holds } else { Verdict::Differs },
    }
}

/// Figure 2: by how much writes of small transfers are faster with write-back, as long as the cache takes
/// them.
fn gain(link: &str, none: &[&Outcome], back: &[&Outcome]) -> Option<Finding> {
    let at = |all: &[&Outcome]| {
        all.iter()
            .find(|one| one.size == SMALL)
            .map(|one| (one.write(), one.observed.rewrite, one.predicted.rewrite))
    };
    let ((without, _, _), (with, again, again_predicted)) = (at(none)?, at(back)?);
    let factor = [without[0] / with[0], without[1] / with[1]];
    let cached = [without[0] / again, without[1] / again_predicted];
    let told = |new: f64, cached: f64| format!("{new:.1} times in a new file, {cached:.1} over cached pages");
    // The larger one of their two factors that this latency may reach.
    let theirs = if factor[1].max(cached[1]) > 30.0 { 100.0 } else { 10.0 };
    let best = factor[0].max(cached[0]);
    Some(Finding {
        item: format!("003, figure 2 ({link})"),
        theirs: format!(
            "small transfers are {theirs:.0} times as fast ({})",
            if theirs > 10.0 { "IOPERF" } else { "IOR" }
        ),
        observed: told(factor[0], cached[0]),
        predicted: told(factor[1], cached[1]),
        verdict: if best >= theirs * PART { Verdict::Holds } else { Verdict::Differs },
    })
}

/// The size from which on the bandwidth without a cache is higher, between two sizes on logarithmic axes;
/// None if it never is.
fn crossing(none: &[&Outcome], back: &[&Outcome], which: usize) -> Option<f64> {
    let advantage = |(none, back): (&&Outcome, &&Outcome)| {
        (none.size as f64, (back.bandwidth()[which] / none.bandwidth()[which]).ln())
    };
    let all: Vec<(f64, f64)> = none.iter().zip(back).map(advantage).collect();
    let last = all.iter().rposition(|(_, gain)| *gain > 0.0)?;
    let ((from, high), (to, low)) = (all[last], *all.get(last + 1)?);
    Some((from.ln() + (to / from).ln() * high / (high - low)).exp())
}

fn drop(link: &str, none: &[&Outcome], back: &[&Outcome]) -> Finding {
    let [observed, predicted] = [0, 1].map(|which| crossing(none, back, which));
    let told = |size: Option<f64>| {
        size.map_or("never".to_owned(), |size| format!("from {}", compact::bytes(size as u64)))
    };
    let loses = |which: usize| {
        let at = |one: &&Outcome| one.size >= DROP;
        let pairs = none.iter().zip(back).filter(|(one, _)| at(one));
        let ratios: Vec<f64> =
            pairs.map(|(none, back)| back.bandwidth()[which] / none.bandwidth()[which]).collect();
        median(&ratios).map_or(String::new(), |ratio| format!("; {ratio:.2} of it from 512 KiB on"))
    };
    let off = observed.zip(predicted).map_or(String::new(), |(observed, predicted)| {
        format!(", {:.2} times the observed", predicted / observed)
    });
    Finding {
        item: format!("003, drop of large transfers ({link})"),
        theirs: "with the cache, bandwidth is lower from 512 KiB on".to_owned(),
        observed: told(observed) + &loses(0),
        predicted: told(predicted) + &off + &loses(1),
        verdict: match observed {
            Some(size) if size <= 2.0 * DROP as f64 => Verdict::Holds,
            _ => Verdict::Differs,
        },
    }
}

fn write_through(link: &str, none: &[&Outcome], through: &[&Outcome]) -> Finding {
    let above = |which: usize| {
        let is_above = |(none, through): &(&&Outcome, &&Outcome)| {
            through.bandwidth()[which] > none.bandwidth()[which] * (1.0 + NOISE)
        };
        none.iter().zip(through).filter(is_above).count()
    };
    let told = |count: usize| format!("above at {count} of {} sizes", none.len());
    Finding {
        item: format!("003, write-through ({link})"),
        theirs: "a write-through cache does nothing for writes, and costs".to_owned(),
        observed: told(above(0)),
        predicted: told(above(1)),
        verdict: if above(0) == 0 { Verdict::Holds } else { Verdict::Differs },
    }
}

/// How far off the model is.
fn accuracy(outcomes: &Outcomes) -> Finding {
    let errors = |of: fn(&Outcome) -> [f64; 2]| {
        let off = |one: &Outcome| (of(one)[1] / of(one)[0] - 1.0).abs();
        outcomes.0.iter().map(off).collect::<Vec<f64>>()
    };
    let told = |name: &str, errors: &[f64]| {
        let within = errors.iter().filter(|off| **off <= 0.12).count();
        format!("{name}: median error {}, {within} of {} within 12 %", percent(median(errors)), errors.len())
    };
    let (calls, whole) = (errors(Outcome::write), errors(Outcome::bandwidth));
    Finding {
        item: "003, the model".to_owned(),
        theirs: String::new(),
        observed: String::new(),
        predicted: format!("{}; {}", told("a write", &calls), told("bandwidth", &whole)),
        verdict: if median(&calls) <= Some(0.12) { Verdict::Holds } else { Verdict::Differs },
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Times;
    use super::*;

    fn outcome(policy: CachePolicy, size: u64, write: f64) -> Outcome {
        let times = Times { write, rewrite: write, whole: write * 10.0, ..Times::default() };
        Outcome {
            link: "here".to_owned(),
            policy: policy.name(),
            size,
            calls: 10,
            observed: times,
            predicted: times,
        }
    }

    /// 150 µs and 1 ns a byte; the cache 2 µs and 1.5 ns a byte.
    fn outcomes(through: f64) -> Outcomes {
        let of = |policy, fixed: f64, byte: f64| {
            super::super::SIZES.map(|size| outcome(policy, size, fixed + byte * size as f64))
        };
        let all = [
            of(CachePolicy::None, 150e3, 1.0),
            of(CachePolicy::WriteThrough, 150e3 * through, 1.0),
            of(CachePolicy::WriteBack, 2e3, 1.5),
        ];
        Outcomes(all.into_iter().flatten().collect())
    }

    #[test]
    fn what_003_says_is_found_where_it_is_so() {
        let found = all(&outcomes(1.0));
        assert!(found.iter().all(|one| one.verdict == Verdict::Holds), "{found:#?}");
        let outcomes = outcomes(1.0);
        let of = |policy| outcomes.of("here", policy);
        let size = crossing(&of(CachePolicy::None), &of(CachePolicy::WriteBack), 0).expect("a crossing");
        assert!((size / 296_000.0 - 1.0).abs() < 0.02, "{size}");
    }

    #[test]
    fn what_is_otherwise_is_told() {
        let found = all(&outcomes(0.5));
        let differs: Vec<&str> =
            found.iter().filter(|one| one.verdict == Verdict::Differs).map(|one| one.item.as_str()).collect();
        assert_eq!(differs, ["003, write-through (here)"]);
    }
}
