//! What 003 says, and what came out.

use cawl_console::{compact, percent};
use cawl_core::{CachePolicy, median};

use super::super::{Finding, Verdict};
use super::measure::Times;
use super::{Outcome, Outcomes};

/// The size at which 003 tells its factors.
const SMALL: u64 = 4 << 10;
/// The size from which on its bandwidth with the cache is lower.
const DROP: u64 = 512 << 10;
/// How far one of two equal bandwidths may be above the other.
const NOISE: f64 = 0.05;
/// How far a bandwidth may fall behind that of smaller transfers and count as no lower.
const FLAT: f64 = 0.15;
/// A factor counts as found from this part of it on.
const PART: f64 = 1.0 / 1.5;

/// The rows of the summary.
pub fn all(outcomes: &Outcomes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in outcomes.links() {
        let of = |policy| outcomes.of(link, policy);
        findings.extend(without(link, &of(CachePolicy::None)));
        let back = of(CachePolicy::WriteBack);
        findings.extend(gain(link, &back));
        findings.extend(drop(link, &back));
        findings.extend(write_through(link, &of(CachePolicy::WriteThrough)));
    }
    findings.push(accuracy(outcomes));
    findings
}

/// Figure 1: small transfers have a lower bandwidth.
fn without(link: &str, none: &[&Outcome]) -> Option<Finding> {
    let (first, last) = (none.first()?, none.last()?);
    let told = |which: usize| {
        let [small, large] = [first, last].map(|one| compact::rate(one.bandwidth()[which]));
        format!("{small} to {large}")
    };
    let mut best = 0.0_f64;
    let rises = none.iter().all(|one| {
        let rate = one.bandwidth()[0];
        best = best.max(rate);
        rate >= best * (1.0 - FLAT)
    });
    Some(Finding {
        item: format!("003, figure 1 ({link})"),
        theirs: "without a cache, bandwidth rises with the size of a transfer".to_owned(),
        observed: told(0),
        predicted: told(1),
        verdict: if rises { Verdict::Holds } else { Verdict::Differs },
    })
}

/// Figure 2: by how much writes of small transfers are faster with write-back than past the cache of the same
/// mount, as long as the cache takes them.
fn gain(link: &str, back: &[&Outcome]) -> Option<Finding> {
    let one = back.iter().find(|one| one.size == SMALL).filter(|one| one.observed.past.is_finite())?;
    let factors = |times: &Times| (times.past / times.write, times.past / times.rewrite);
    let (observed, predicted) = (factors(&one.observed), factors(&one.predicted));
    let told =
        |(new, cached): (f64, f64)| format!("{new:.1} times in a new file, {cached:.1} over cached pages");
    // The larger one of their two factors, where the link lets it be reached.
    let (theirs, who) = if predicted.0.max(predicted.1) > 60.0 { (100.0, "IOPERF") } else { (10.0, "IOR") };
    Some(Finding {
        item: format!("003, figure 2 ({link})"),
        theirs: format!("small transfers are {theirs:.0} times as fast ({who})"),
        observed: told(observed),
        predicted: told(predicted),
        verdict: match observed.0.max(observed.1) >= theirs * PART {
            true => Verdict::Holds,
            false => Verdict::Differs,
        },
    })
}

/// The size from which on the bandwidth past the cache is higher, between two sizes on logarithmic axes; None
/// if it never is.
fn crossing(back: &[&Outcome], which: usize) -> Option<f64> {
    let advantage =
        |one: &&Outcome| (one.size as f64, (one.bandwidth()[which] / one.bandwidth_past()[which]).ln());
    let all: Vec<(f64, f64)> = back.iter().map(advantage).collect();
    let last = all.iter().rposition(|(_, gain)| *gain > 0.0)?;
    let ((from, high), (to, low)) = (all[last], *all.get(last + 1)?);
    Some((from.ln() + (to / from).ln() * high / (high - low)).exp())
}

fn drop(link: &str, back: &[&Outcome]) -> Option<Finding> {
    back.first().filter(|one| one.observed.past.is_finite())?;
    let [observed, predicted] = [0, 1].map(|which| crossing(back, which));
    let told = |size: Option<f64>| {
        size.map_or("nowhere".to_owned(), |size| format!("from {} on", compact::bytes(size as u64)))
    };
    let part = |which: usize| {
        let of = |one: &&Outcome| one.bandwidth()[which] / one.bandwidth_past()[which];
        let parts: Vec<f64> = back.iter().filter(|one| one.size >= DROP).map(of).collect();
        median(&parts).map_or(String::new(), |part| format!("; {part:.2} of it from 512 KiB on"))
    };
    let off = observed.zip(predicted).map_or(String::new(), |(observed, predicted)| {
        format!(" ({:.2} of the observed size)", predicted / observed)
    });
    Some(Finding {
        item: format!("003, drop of large transfers ({link})"),
        theirs: "with the cache, bandwidth is lower from 512 KiB on".to_owned(),
        observed: told(observed) + &part(0),
        predicted: told(predicted) + &off + &part(1),
        verdict: match observed {
            Some(size) if size <= 2.0 * DROP as f64 => Verdict::Holds,
            _ => Verdict::Differs,
        },
    })
}

/// Write-through against the same mount past the cache.
fn write_through(link: &str, through: &[&Outcome]) -> Option<Finding> {
    through.first().filter(|one| one.observed.past.is_finite())?;
    let above = |which: usize| {
        let is_above = |one: &&&Outcome| one.bandwidth()[which] > one.bandwidth_past()[which] * (1.0 + NOISE);
        through.iter().filter(is_above).count()
    };
    let part = |which: usize| {
        let of = |one: &&Outcome| one.bandwidth()[which] / one.bandwidth_past()[which];
        median(&through.iter().map(of).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let told = |which: usize| {
        format!(
            "above at {} of {} sizes, {:.2} of it in the median",
            above(which),
            through.len(),
            part(which)
        )
    };
    Some(Finding {
        item: format!("003, write-through ({link})"),
        theirs: "a write-through cache gains nothing on writes, and costs".to_owned(),
        observed: told(0),
        predicted: told(1),
        verdict: if above(0) == 0 { Verdict::Holds } else { Verdict::Differs },
    })
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
    use super::*;

    /// A file of ten transfers, which take `write` each in the cache, or past it.
    fn outcome(policy: CachePolicy, size: u64, write: f64, past: f64) -> Outcome {
        let whole = (write * 10.0, past * 10.0);
        let times =
            Times { write, past, rewrite: write, whole: whole.0, whole_past: whole.1, ..Times::default() };
        let (link, policy) = ("here".to_owned(), policy.name());
        Outcome { link, policy, size, calls: 10, observed: times, predicted: times }
    }

    /// 150 µs and 1 ns a byte; the cache 1.2 µs and 1.5 ns a byte.
    fn outcomes(through: f64) -> Outcomes {
        let of = |policy, fixed: f64, byte: f64| {
            super::super::SIZES.map(|size| {
                let past = 150e3 + size as f64;
                outcome(policy, size, fixed + byte * size as f64, past)
            })
        };
        let all = [
            of(CachePolicy::None, 150e3, 1.0),
            of(CachePolicy::WriteThrough, 150e3 * through, 1.0),
            of(CachePolicy::WriteBack, 1.2e3, 1.5),
        ];
        Outcomes(all.into_iter().flatten().collect())
    }

    #[test]
    fn what_003_says_is_found_where_it_is_so() {
        let outcomes = outcomes(1.0);
        let found = all(&outcomes);
        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|one| one.verdict != Verdict::Differs || one.item.contains("figure 2")));
        let size = crossing(&outcomes.of("here", CachePolicy::WriteBack), 0).expect("a crossing");
        // Between two sizes the advantage is taken to fall evenly.
        assert!((size / 297_600.0 - 1.0).abs() < 0.05, "{size}");
    }

    #[test]
    fn what_is_otherwise_is_told() {
        let differs = |outcomes: &Outcomes| -> Vec<String> {
            all(outcomes)
                .into_iter()
                .filter(|one| one.verdict == Verdict::Differs)
                .map(|one| one.item)
                .collect()
        };
        assert!(differs(&outcomes(0.5)).contains(&"003, write-through (here)".to_owned()));
        assert!(!differs(&outcomes(1.0)).contains(&"003, write-through (here)".to_owned()));
    }

    /// A mount that refuses O_DIRECT has nothing to compare with.
    #[test]
    fn what_was_not_measured_is_not_judged() {
        let mut outcomes = outcomes(1.0);
        for one in &mut outcomes.0 {
            (one.observed.past, one.observed.whole_past) = (f64::NAN, f64::NAN);
        }
        assert_eq!(all(&outcomes).len(), 2);
    }
}
