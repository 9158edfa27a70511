//! What 003 says, and what came out.

use cawl_console::{compact, percent};
use cawl_core::{CachePolicy, median};

use super::super::Finding;
use super::{Outcome, Outcomes, PAST, REWRITE, WRITE};

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
/// How far off the model may be.
const ACCURATE: f64 = 0.12;

/// The rows of the summary.
pub(super) fn all(outcomes: &Outcomes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for link in outcomes.links() {
        // Those of a mount that refuses O_DIRECT have nothing to be compared with.
        let compared = |policy| {
            let all = outcomes.of(link, policy);
            if all.iter().all(|one| one.observed.0[PAST].is_finite()) { all } else { Vec::new() }
        };
        let back = compared(CachePolicy::WriteBack);
        findings.extend(without(link, &outcomes.of(link, CachePolicy::None)));
        findings.extend(gain(link, &back));
        findings.extend(drop(link, &back));
        findings.extend(write_through(link, &compared(CachePolicy::WriteThrough)));
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
    let theirs = "without a cache, bandwidth rises with the size of a transfer";
    Some(Finding::new(format!("003, figure 1 ({link})"), theirs, told(0), told(1), rises))
}

/// Figure 2: by how much writes of small transfers are faster with write-back than past the cache of the same
/// mount, as long as the cache takes them.
fn gain(link: &str, back: &[&Outcome]) -> Option<Finding> {
    let one = back.iter().find(|one| one.size == SMALL)?;
    let (past, new, cached) = (one.pass(PAST), one.pass(WRITE), one.pass(REWRITE));
    let factors = |which: usize| (past[which] / new[which], past[which] / cached[which]);
    let most = |(new, cached): (f64, f64)| new.max(cached);
    let told =
        |(new, cached): (f64, f64)| format!("{new:.1} times in a new file, {cached:.1} over cached pages");
    let (observed, predicted) = (factors(0), factors(1));
    // The larger one of their two factors, where the link lets it be reached.
    let (theirs, who) = if most(predicted) > 60.0 { (100.0, "IOPERF") } else { (10.0, "IOR") };
    Some(Finding::new(
        format!("003, figure 2 ({link})"),
        format!("small transfers are {theirs:.0} times as fast ({who})"),
        told(observed),
        told(predicted),
        most(observed) >= theirs * PART,
    ))
}

/// The size from which on the bandwidth past the cache is higher, between two sizes on logarithmic axes; None
/// if it never is.
fn crossing(back: &[&Outcome], which: usize) -> Option<f64> {
    let all: Vec<_> = back.iter().map(|one| (one.size as f64, one.over_past()[which].ln())).collect();
    let last = all.iter().rposition(|(_, gain)| *gain > 0.0)?;
    let ((from, high), (to, low)) = (all[last], *all.get(last + 1)?);
    Some((from.ln() + (to / from).ln() * high / (high - low)).exp())
}

fn drop(link: &str, back: &[&Outcome]) -> Option<Finding> {
    back.first()?;
    let [observed, predicted] = [0, 1].map(|which| crossing(back, which));
    let told = |size: Option<f64>| {
        size.map_or("nowhere".to_owned(), |size| format!("from {} on", compact::bytes(size as u64)))
    };
    let part = |which: usize| {
        let large = back.iter().filter(|one| one.size >= DROP);
        let parts: Vec<f64> = large.map(|one| one.over_past()[which]).collect();
        median(&parts).map_or(String::new(), |part| format!("; {part:.2} of it from 512 KiB on"))
    };
    let off = observed.zip(predicted).map_or(String::new(), |(observed, predicted)| {
        format!(" ({:.2} of the observed size)", predicted / observed)
    });
    Some(Finding::new(
        format!("003, drop of large transfers ({link})"),
        "with the cache, bandwidth is lower from 512 KiB on",
        told(observed) + &part(0),
        told(predicted) + &off + &part(1),
        observed.is_some_and(|size| size <= 2.0 * DROP as f64),
    ))
}

/// Write-through against the same mount past the cache.
fn write_through(link: &str, through: &[&Outcome]) -> Option<Finding> {
    through.first()?;
    let above = |which: usize| through.iter().filter(|one| one.over_past()[which] > 1.0 + NOISE).count();
    let told = |which: usize| {
        let parts: Vec<f64> = through.iter().map(|one| one.over_past()[which]).collect();
        let part = median(&parts).unwrap_or(f64::NAN);
        format!("above at {} of {} sizes, {part:.2} of it in the median", above(which), through.len())
    };
    let theirs = "a write-through cache gains nothing on writes, and costs";
    Some(Finding::new(format!("003, write-through ({link})"), theirs, told(0), told(1), above(0) == 0))
}

/// How far off the model is.
fn accuracy(outcomes: &Outcomes) -> Finding {
    let errors = |of: &dyn Fn(&Outcome) -> [f64; 2]| {
        let off = |one: &Outcome| (of(one)[1] / of(one)[0] - 1.0).abs();
        outcomes.0.iter().map(off).collect::<Vec<f64>>()
    };
    let told = |name: &str, errors: &[f64]| {
        let within = errors.iter().filter(|off| **off <= ACCURATE).count();
        format!("{name}: median error {}, {within} of {} within 12 %", percent(median(errors)), errors.len())
    };
    let (calls, whole) = (errors(&|one| one.pass(WRITE)), errors(&Outcome::bandwidth));
    let predicted = format!("{}; {}", told("a write", &calls), told("bandwidth", &whole));
    Finding::new("003, the model", "", "", predicted, median(&calls) <= Some(ACCURATE))
}

#[cfg(test)]
mod tests {
    use super::super::super::Verdict;
    use super::super::{SIZES, Times, WHOLE, WHOLE_PAST};
    use super::*;

    /// 150 µs and 1 ns a byte; the cache 1.2 µs and 1.5 ns a byte. Files of ten transfers.
    fn outcomes(through: f64) -> Outcomes {
        let of = |policy: CachePolicy, fixed: f64, byte: f64| {
            SIZES.map(|size| {
                let (write, past) = (fixed + byte * size as f64, 150e3 + size as f64);
                let mut times = [0.0; 9];
                (times[WRITE], times[PAST], times[REWRITE]) = (write, past, write);
                (times[WHOLE], times[WHOLE_PAST]) = (write * 10.0, past * 10.0);
                let (observed, predicted) = (Times(times), Times(times));
                let (link, policy) = ("here".to_owned(), policy.name());
                Outcome { link, policy, size, calls: 10, observed, predicted }
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
        let is_told = |outcomes: &Outcomes| {
            let through = |one: &Finding| one.item == "003, write-through (here)";
            all(outcomes).iter().any(|one| through(one) && one.verdict == Verdict::Differs)
        };
        assert!(is_told(&outcomes(0.5)) && !is_told(&outcomes(1.0)));
    }

    /// A mount that refuses O_DIRECT has nothing to compare with.
    #[test]
    fn what_was_not_measured_is_not_judged() {
        let mut outcomes = outcomes(1.0);
        for one in &mut outcomes.0 {
            (one.observed.0[PAST], one.observed.0[WHOLE_PAST]) = (f64::NAN, f64::NAN);
        }
        assert_eq!(all(&outcomes).len(), 2);
    }
}
