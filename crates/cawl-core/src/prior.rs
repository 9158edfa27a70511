//! What profiles of equal machines tell of another one of their kind.
//!
//! The law: **one odd machine changes little, and is named.** Each constant is the median of the machines
//! that measured it, and its percentiles are those of the next machine, not of the median. Which machine is
//! odd is decided by the essential constants alone: the many small costs of calls vary by themselves, and
//! their median bears that. docs/reference/CALIBRATION.md, "Profiles of equal machines", has the rules.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::profile::{Figure, HostProfile, Measured, Origin, QueueConstants, Unit, Value};
use crate::statistics::{Estimate, median};

/// Robust standard deviations from which on a value is off (Iglewicz and Hoaglin, *How to Detect and Handle
/// Outliers*, 1993).
const FAR: f64 = 3.5;
/// Least relative standard deviation of a constant: of equal machines none is known better. So nothing is off
/// by less than a factor of 1.42.
const MIN: f64 = 0.1;
/// A single constant that is off by this factor makes a machine odd; else it takes two.
const GROSSLY: f64 = 4.0;
/// Relative standard deviation between equal machines where nothing tells it; it counts as one machine.
const ASSUMED: f64 = 0.3;
/// Relative standard deviation of a short measurement, at least: the usual difference between runs.
const SHORT: f64 = 0.15;
/// The 90th percentile of the standard normal distribution.
const P90: f64 = 1.2816;

/// A machine's profile, with the name by which it is told of.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub label: String,
    /// Its profile, as it is stored.
    pub profile: HostProfile,
}

/// A constant that is off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Off {
    /// Its name in the file.
    pub constant: String,
    /// Its value over that of the others.
    pub factor: f64,
}

/// A machine that was left out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    /// Its name.
    pub label: String,
    /// Why.
    pub off: Vec<Off>,
}

/// Profiles in one.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The prior. Settings are those of most machines.
    pub profile: HostProfile,
    /// The machines that it was merged of.
    pub members: Vec<String>,
    /// Those that were left out.
    pub outliers: Vec<Outlier>,
}

/// What makes two machines equal: each fact by its name.
pub fn kind(profile: &HostProfile) -> [(&'static str, String); 5] {
    let unknown = || "not known".to_owned();
    let machine = profile.machine.as_ref();
    let filesystem = match profile.device.filesystem.value() {
        Some(Value::Name(name)) => name,
        _ => unknown(),
    };
    let folios = if profile.kernel.folio > profile.kernel.page { "large" } else { "of one page" };
    [
        ("processor", machine.and_then(|of| of.processor.clone()).unwrap_or_else(unknown)),
        ("disk", machine.map_or_else(unknown, |of| of.storage.clone())),
        ("filesystem", filesystem),
        ("kernel", profile.kernel.release.map_or_else(unknown, |of| of.to_string())),
        ("folios", folios.to_owned()),
    ]
}

/// Why a profile tells nothing of other machines; None if it does.
pub fn unfit(profile: &HostProfile) -> Option<&'static str> {
    match profile.origin {
        Origin::Calibrated if profile.device.network.is_some() => {
            Some("it is of a mount whose files are elsewhere")
        }
        Origin::Calibrated if profile.machine.is_none() => {
            Some("it does not tell its processor and disk, since an earlier version made it; calibrate again")
        }
        Origin::Calibrated => None,
        Origin::Prior => Some("it was itself merged of other profiles"),
        Origin::Uncalibrated | Origin::Learned | Origin::Fitted => Some("no calibration measured it"),
    }
}

/// The facts in which the machines differ from `here` that are nearest to it: what, theirs, and here; and how
/// many machines those are.
pub type Nearest = (usize, Vec<(&'static str, String, String)>);

/// The machines that are equal to `here`; else the [`Nearest`].
pub fn equal<'a>(all: &'a [Member], here: &HostProfile) -> Result<Vec<&'a Member>, Nearest> {
    let mut groups: BTreeMap<_, Vec<&Member>> = BTreeMap::new();
    all.iter().for_each(|member| groups.entry(kind(&member.profile)).or_default().push(member));
    let here = kind(here);
    if let Some(equal) = groups.remove(&here) {
        return Ok(equal);
    }
    let differing = |there: &[(&'static str, String); 5]| {
        let pairs = there.iter().cloned().zip(here.clone()).filter(|(there, here)| there != here);
        pairs.map(|(there, here)| (there.0, there.1, here.1)).collect::<Vec<_>>()
    };
    let ranked = groups.iter().map(|(there, members)| (members.len(), differing(there)));
    Err(ranked.min_by_key(|(count, differ)| (differ.len(), usize::MAX - count)).unwrap_or_default())
}

/// Merges the profiles of equal machines; the error has what is odd about each, if these are more than half.
pub fn merge(members: &[&Member]) -> Result<Merged, Vec<Outlier>> {
    let mut known: Vec<_> =
        members.iter().map(|member| (member.label.clone(), constants(&member.profile))).collect();
    known.sort_by(|one, other| one.0.cmp(&other.0));
    let outliers = odd(&known);
    if outliers.len() * 2 > known.len() {
        return Err(outliers);
    }
    known.retain(|(label, _)| outliers.iter().all(|odd| odd.label != *label));
    let mut profile = HostProfile::uncalibrated();
    profile.origin = Origin::Prior;
    profile.merged = known.len() as u32;
    if let Some(first) = members.first() {
        profile.machine.clone_from(&first.profile.machine);
        profile.device.filesystem = first.profile.device.filesystem;
        (profile.kernel.release, profile.kernel.folio) =
            (first.profile.kernel.release, first.profile.kernel.folio);
    }
    let names: BTreeSet<&String> = known.iter().flat_map(|(_, of)| of.keys()).collect();
    for name in names {
        let has: Vec<Measured<f64>> = known.iter().filter_map(|(_, of)| of.get(name).copied()).collect();
        // What most machines do not have, this one does not have either.
        if has.len() * 2 < known.len() {
            continue;
        }
        if name.starts_with("device.shared_queue.") {
            profile.device.shared_queue.get_or_insert_with(QueueConstants::none);
        }
        if let Some(constant) = profile.find(name) {
            let is_part = constant.unit() == Unit::Number;
            constant.set(typical(&has, is_part));
        }
    }
    Ok(Merged { profile, members: known.into_iter().map(|(label, _)| label).collect(), outliers })
}

/// The numbers of a profile, as it is used, by their names in the file. Not the settings of the kernel, which
/// are those of the machine that asks, nor a rate that no machine has.
fn constants(profile: &HostProfile) -> BTreeMap<String, Measured<f64>> {
    let mut all = BTreeMap::new();
    let machines = HostProfile::uncalibrated();
    profile.clone().as_learned().each(
        |_| String::new(),
        |shown| {
            let counts = !shown.name.starts_with("kernel.") && !shown.name.starts_with("others.");
            let (least, most) = machines.range(shown.name);
            let is_real = |of: &Measured<f64>| (least..=most).contains(&of.value);
            let is_kept = |of: &Measured<f64>| shown.figure.unit() != Unit::Rate || is_real(of);
            let number = shown.figure.number().filter(|number| counts && is_kept(number));
            all.extend(number.map(|number| (shown.name.to_owned(), number)));
        },
    );
    all
}

/// What a constant is on the next machine, by those that have it.
fn typical(has: &[Measured<f64>], is_part: bool) -> Measured<f64> {
    let measured: Vec<Measured<f64>> = has.iter().filter(|of| of.samples > 0).copied().collect();
    if measured.is_empty() {
        // A setting, a size or a default: one of those that there are.
        let mut values: Vec<f64> = has.iter().map(|of| of.value).collect();
        values.sort_by(f64::total_cmp);
        return Measured::assumed(values[(values.len() - 1) / 2]);
    }
    let machines = measured.len() as f64;
    // Costs and rates differ by factors. Where one may be nothing, there are none.
    let by_factor = measured.iter().all(|of| of.value > 0.0);
    let on_scale = |value: f64| if by_factor { value.ln() } else { value };
    let values: Vec<f64> = measured.iter().map(|of| on_scale(of.value)).collect();
    let Some(Estimate { value, deviation, .. }) = Estimate::of(&values) else {
        return measured[0];
    };
    let assumed = if by_factor { ASSUMED } else { ASSUMED * value };
    let own: Vec<f64> = measured.iter().map(|of| if by_factor { spread(of) } else { width(of) }).collect();
    let between = (assumed.powi(2) + (machines - 1.0) * deviation.powi(2)) / machines;
    // The next machine differs from the median as others do, and the median from the truth.
    let own = median(&own).unwrap_or_default();
    let off = P90 * (between * (1.0 + 1.0 / machines) + own.powi(2)).sqrt();
    let back = |at: f64| if by_factor { at.exp() } else { at.max(0.0) };
    let found = Measured {
        value: back(value),
        p10: Some(back(value - off)),
        p90: Some(back(value + off)),
        samples: measured.len() as u32,
    };
    found.map(|value| if is_part { value.min(1.0) } else { value })
}

/// The relative standard deviation that the percentiles tell.
fn spread(of: &Measured<f64>) -> f64 {
    match (of.p10, of.p90) {
        (Some(p10), Some(p90)) if p10 > 0.0 && p90 >= p10 => (p90 / p10).ln() / (2.0 * P90),
        _ if of.value > 0.0 => (width(of) / of.value).max(MIN),
        _ => ASSUMED,
    }
}

/// The standard deviation that the percentiles tell, in the unit of the value.
fn width(of: &Measured<f64>) -> f64 {
    of.p10.zip(of.p90).map_or(ASSUMED * of.value, |(p10, p90)| (p90 - p10).max(0.0) / (2.0 * P90))
}

/// The machines that are odd among the others. Of two nobody can tell which one is.
fn odd(known: &[(String, BTreeMap<String, Measured<f64>>)]) -> Vec<Outlier> {
    let mut off = vec![Vec::new(); known.len()];
    for (name, _) in HostProfile::uncalibrated().essential() {
        let of_all = known.iter().map(|(_, of)| of.get(name).filter(|of| of.samples > 0 && of.value > 0.0));
        let measured: Vec<_> = of_all.enumerate().filter_map(|(at, of)| Some((at, of?))).collect();
        let logs: Vec<f64> = measured.iter().map(|(_, of)| of.value.ln()).collect();
        let spreads: Vec<f64> = measured.iter().map(|(_, of)| spread(of)).collect();
        let Some(Estimate { value, deviation, .. }) = Estimate::of(&logs).filter(|_| logs.len() > 2) else {
            continue;
        };
        let deviation = deviation.max(median(&spreads).unwrap_or_default());
        for ((at, _), log) in measured.iter().zip(logs) {
            off[*at].extend(is_off(name, log - value, deviation));
        }
    }
    let all = known.iter().zip(off).filter(|(_, off)| is_odd(off));
    all.map(|((label, _), off)| Outlier { label: label.clone(), off }).collect()
}

fn is_off(name: &str, distance: f64, deviation: f64) -> Option<Off> {
    let off = distance.abs() > FAR * deviation.max(MIN);
    off.then(|| Off { constant: name.to_owned(), factor: distance.exp() })
}

/// True if a machine of which this is off is none of the kind.
pub fn is_odd(off: &[Off]) -> bool {
    off.len() > 1 || off.iter().any(|off| off.factor.max(1.0 / off.factor) >= GROSSLY)
}

/// The essential constants in which a short measurement contradicts the prior.
pub fn contradictions(prior: &HostProfile, own: &HostProfile) -> Vec<Off> {
    let known = constants(prior);
    let told = measured_constants(own, &known);
    let compare = |name: &str| {
        let (prior, own) = (known.get(name).filter(|of| of.samples > 0 && of.value > 0.0)?, told.get(name)?);
        is_off(name, (own.value / prior.value).ln(), spread(prior).hypot(spread(own)))
    };
    HostProfile::uncalibrated().essential().iter().filter_map(|(name, _)| compare(name)).collect()
}

/// What would contradict the prior, were it not that other programs computed during the measurement; empty if
/// none did, or if a machine of which this is off is of the kind.
pub fn unsure(prior: &HostProfile, own: &HostProfile) -> Vec<Off> {
    let off = contradictions(prior, &HostProfile { disturbed: None, ..own.clone() });
    if own.disturbed.is_some() && is_odd(&off) { off } else { Vec::new() }
}

/// The prior, narrowed by what was measured on this machine in short: a mean by precision. What the prior
/// does not have, and what contradicts it, is as measured.
#[must_use]
pub fn narrowed(prior: &HostProfile, own: &HostProfile) -> HostProfile {
    let mut narrowed = prior.clone();
    let contradicted = contradictions(prior, own);
    let known = constants(prior);
    for (name, own) in measured_constants(own, &known) {
        let is_off = contradicted.iter().any(|off| off.constant == name);
        let both = known.get(&name).filter(|prior| prior.samples > 0 && prior.value > 0.0 && !is_off);
        if let Some(constant) = narrowed.find(&name) {
            constant.set(both.map_or(own, |prior| mean(prior, &own)));
        }
    }
    narrowed.measured = own.measured;
    narrowed.disturbed = own.disturbed;
    narrowed
}

/// What a short measurement tells. Other programs lengthen it: what it found to be slower than the prior
/// while they computed, tells nothing.
fn measured_constants(
    own: &HostProfile,
    known: &BTreeMap<String, Measured<f64>>,
) -> BTreeMap<String, Measured<f64>> {
    let machine = &mut HostProfile::uncalibrated();
    let mut told = constants(own);
    told.retain(|name, of| {
        let prior = known.get(name).filter(|prior| prior.samples > 0).map(|prior| prior.value);
        let is_rate = machine.find(name).is_some_and(|of| of.unit() == Unit::Rate);
        let is_slower = prior.is_some_and(|prior| if is_rate { of.value < prior } else { of.value > prior });
        of.samples > 0 && of.value > 0.0 && !(own.disturbed.is_some() && is_slower)
    });
    // Where direct writes were not measured, the rate of writeback stands for theirs.
    if own.device.write == own.device.writeback && known.get("device.write").is_some_and(|of| of.samples > 0)
    {
        told.remove("device.write");
    }
    told
}

/// The mean of two by their precision.
fn mean(prior: &Measured<f64>, own: &Measured<f64>) -> Measured<f64> {
    let [of_prior, of_own] = [spread(prior).max(MIN), spread(own).max(SHORT)].map(|spread| spread.powi(-2));
    let all = of_prior + of_own;
    let value = ((of_prior * prior.value.ln() + of_own * own.value.ln()) / all).exp();
    let off = (P90 * all.powf(-0.5).max(MIN)).exp();
    let samples = prior.samples.saturating_add(own.samples);
    // Of a part, no percentile is above the higher one of both.
    let most = [prior, own].into_iter().filter_map(|of| of.p90).fold(value, f64::max);
    Measured { value, p10: Some(value / off), p90: Some((value * off).min(most)), samples }
}
