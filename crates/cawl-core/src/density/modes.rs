//! The density of a histogram with equal bins, and its modes.
//!
//! **Density**: a sum of Gaussian kernels (KDE) at the middle of each bin. Their width is that of Botev,
//! Grotowski and Kroese, "Kernel density estimation via diffusion", Annals of Statistics 38 (2010), the
//! "improved Sheather-Jones" rule, which does not take the density for a normal one: costs lie decades apart,
//! and a rule made of their whole spread would smear what is one hump into the next. Where its equation has
//! no root, Silverman's rule is taken (Density Estimation, 1986, equation 3.31). No kernel is narrower than
//! one and a half bins, 7 %.
//!
//! **Modes**: two humps are two modes if the valley between them is at most 0.8 times the lower one, and that
//! is more than chance. The first is Gregg's threshold, an mvalue above 2.4 ("Frequency Trails: Modes and
//! Modality", 2013), where a second hump adds twice its height over the valley, in parts of the highest;
//! here in parts of its own, so that a rare mode counts as a frequent one. The second compares the two
//! heights with their spread: that of a density `f` of `n` calls under a kernel of width `h` is
//! `f/(2√π n h)` (Silverman, section 3.3), so that `2√π n h f` calls speak for it. Valleys that fail are
//! filled, the shallowest first; then modes with less than a hundredth of calls and time.
//!
//! A mode reaches from valley to valley, but no further than its density is above a hundredth of its height,
//! which is three standard deviations of a normal one.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{BINS, Bin};
use crate::cause::Cause;

/// Narrowest kernel, in bins.
const NARROWEST: f64 = 1.5;
/// How high a valley may be, in parts of the lower hump beside it.
const VALLEY: f64 = 0.8;
/// By how many standard deviations a hump is above a valley.
const SURE: f64 = 3.0;
/// Least share of calls or time of a mode.
const SHARE: f64 = 0.01;
/// Where a mode ends at the latest, in parts of its height.
const EDGE: f64 = 0.01;
/// Most points of a density in a report.
const POINTS: usize = 200;
/// Stages of the bandwidth's equation, as in the paper.
const STAGES: i32 = 7;

/// A density on a logarithmic axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Density {
    /// Calls.
    pub calls: u64,
    /// Their observed time, in seconds.
    pub seconds: f64,
    /// Where the first point lies.
    pub from: f64,
    /// What the next point lies at, over the one before.
    pub ratio: f64,
    /// The density at each point: share of calls per decade.
    pub density: Vec<f32>,
    /// Standard deviation of the kernel, in decades.
    pub bandwidth: f64,
    /// Modes, in ascending order. Calls in none of them are what is missing of their shares.
    pub modes: Vec<Mode>,
}

/// A hump of a density.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Where it is highest.
    pub peak: f64,
    /// Calls.
    pub calls: u64,
    /// Share of all calls.
    pub share: f64,
    /// Observed time, in seconds.
    pub seconds: f64,
    /// Share of the observed time.
    pub time_share: f64,
    /// The cause of most of its time: each call counts for the cause of its largest part.
    pub cause: String,
}

/// A hump between two valleys, by numbers of grid points.
#[derive(Clone, Copy, Debug)]
struct Hump {
    begin: usize,
    top: usize,
    end: usize,
}

/// The density of bins, the first of which begins at this binary logarithm. Neither the first nor the last is
/// empty.
pub(super) fn density(begin: f64, bins: &[Bin]) -> Density {
    // Room for the kernels beside the outermost bins.
    let pad = (bins.len() / 10).max(BINS / 2);
    let mut weights = vec![0.0; bins.len() + 2 * pad];
    for (weight, bin) in weights[pad..].iter_mut().zip(bins) {
        *weight = bin.calls as f64;
    }
    let calls = bins.iter().map(|bin| bin.calls).sum::<u64>();
    let width = bandwidth(&weights, calls as f64).max(NARROWEST);
    let curve = smooth(&weights, calls as f64, width);
    let ns = |bins: &[Bin]| bins.iter().flat_map(|bin| bin.times).fold(0, u64::saturating_add);
    let seconds = ns(bins) as f64 * 1e-9;
    // Grid points are middles of bins.
    let value = |point: f64| ((point - pad as f64) / BINS as f64 + begin).exp2();
    let within = |hump: &Hump| {
        let range = hump.begin.saturating_sub(pad)..hump.end.saturating_sub(pad).min(bins.len());
        &bins[range.start.min(range.end)..range.end]
    };
    let count = |bins: &[Bin]| bins.iter().map(|bin| bin.calls).sum::<u64>();
    let share = |hump: &Hump| {
        let bins = within(hump);
        (count(bins) as f64 / calls as f64).max(ns(bins) as f64 * 1e-9 / seconds.max(1e-9))
    };
    let sure = 2.0 * PI.sqrt() * calls as f64 * width;
    let modes = humps(&curve, sure, share).into_iter().filter_map(|hump| {
        let hump = trimmed(&hump, &curve, pad, bins);
        let bins = within(&hump);
        let mut times = [0_u64; Cause::ALL.len()];
        for (at, ns) in bins.iter().flat_map(|bin| bin.times.into_iter().enumerate()) {
            times[at] = times[at].saturating_add(ns);
        }
        let main = (0..Cause::ALL.len()).max_by_key(|at| (times[*at], usize::MAX - at))?;
        let ns = ns(bins) as f64 * 1e-9;
        Some(Mode {
            from: value(hump.begin as f64),
            to: value(hump.end as f64),
            peak: value(vertex(&curve, hump.top) + 0.5),
            calls: count(bins),
            share: count(bins) as f64 / calls as f64,
            seconds: ns,
            time_share: ns / seconds,
            cause: Cause::ALL[main].name().to_owned(),
        })
    });
    let modes = modes.collect();
    let each = curve.len().div_ceil(POINTS);
    let per_decade = BINS as f64 * 10_f64.log2();
    let mean = |points: &[f64]| (points.iter().sum::<f64>() / points.len() as f64 * per_decade) as f32;
    Density {
        calls,
        seconds,
        from: value(each as f64 / 2.0),
        ratio: (each as f64 / BINS as f64).exp2(),
        density: curve.chunks(each).map(mean).collect(),
        bandwidth: width / per_decade,
        modes,
    }
}

/// The sum of normal kernels of this width, in bins; the sum over all points is one.
fn smooth(weights: &[f64], total: f64, width: f64) -> Vec<f64> {
    let reach = (5.0 * width).ceil() as usize;
    let kernel: Vec<f64> = (0..=reach).map(|at| (-0.5 * (at as f64 / width).powi(2)).exp()).collect();
    let scale = 1.0 / (total * width * (2.0 * PI).sqrt());
    let mut curve = vec![0.0; weights.len()];
    for (at, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        let end = (at + reach + 1).min(curve.len());
        let start = at.saturating_sub(reach);
        for (to, sum) in curve[start..end].iter_mut().enumerate() {
            *sum += weight * scale * kernel[at.abs_diff(start + to)];
        }
    }
    curve
}

/// Width of the kernels in bins.
fn bandwidth(weights: &[f64], total: f64) -> f64 {
    let count = weights.len();
    // The squares of the cosine transform, but for the first.
    let cosines: Vec<f64> = (0..4 * count).map(|at| (PI * at as f64 / (2 * count) as f64).cos()).collect();
    let squares: Vec<f64> = (1..count)
        .map(|k| {
            let term = |(at, weight): (usize, &f64)| weight * cosines[k * (2 * at + 1) % (4 * count)];
            (weights.iter().enumerate().filter(|(_, w)| **w > 0.0).map(term).sum::<f64>() / total).powi(2)
        })
        .collect();
    // By how much a squared width, in parts of the grid's squared length, is above what the equation makes of
    // it.
    let above = |width: f64| {
        let t = (width / count as f64).powi(2);
        t - fixed_point(t, total, &squares)
    };
    let (mut low, most) = (NARROWEST / 4.0, count as f64 / 4.0);
    if above(low) > 0.0 {
        return low;
    }
    while low < most {
        let high = low * 1.25;
        if above(high) > 0.0 {
            let halved = (0..20).fold((low, high), |(low, high), _| {
                let middle = (low + high) / 2.0;
                if above(middle) > 0.0 { (low, middle) } else { (middle, high) }
            });
            return halved.1;
        }
        low = high;
    }
    silverman(weights, total)
}

/// ξ γ^[l](t) of the paper.
fn fixed_point(t: f64, total: f64, squares: &[f64]) -> f64 {
    let norm = |s: i32, t: f64| {
        let term = |(at, square): (usize, &f64)| {
            let k = ((at + 1) as f64).powi(2);
            (k * PI * PI * t, k.powi(s) * square)
        };
        let terms = squares.iter().enumerate().map(term).take_while(|(decay, _)| *decay < 700.0);
        2.0 * PI.powi(2 * s) * terms.map(|(decay, term)| term * (-decay).exp()).sum::<f64>()
    };
    let mut f = norm(STAGES, t);
    for s in (2..STAGES).rev() {
        let odd = (1..2 * s).step_by(2).map(f64::from).product::<f64>() / (2.0 * PI).sqrt();
        let factor = (1.0 + 0.5_f64.powf(f64::from(s) + 0.5)) / 3.0;
        let time = (2.0 * factor * odd / (total * f)).powf(2.0 / (3.0 + 2.0 * f64::from(s)));
        f = norm(s, time);
    }
    (2.0 * total * PI.sqrt() * f).powf(-0.4)
}

/// 0.9 min(standard deviation, interquartile range / 1.34) n^(-1/5), in bins.
fn silverman(weights: &[f64], total: f64) -> f64 {
    let moment = |power: i32, about: f64| {
        weights.iter().enumerate().map(|(at, w)| w * (at as f64 - about).powi(power)).sum::<f64>() / total
    };
    let deviation = moment(2, moment(1, 0.0)).sqrt();
    let quantile = |q: f64| {
        let mut sum = 0.0;
        let place = weights.iter().position(|weight| {
            sum += weight;
            sum >= q * total
        });
        place.unwrap_or(0) as f64
    };
    let quartiles = (quantile(0.75) - quantile(0.25)) / 1.34;
    let spread = if quartiles > 0.0 { deviation.min(quartiles) } else { deviation };
    0.9 * spread * total.powf(-0.2)
}

/// The humps that are modes. `sure`: how many calls speak for a density of one; `share`: the larger of a
/// hump's shares of calls and of time.
fn humps(curve: &[f64], sure: f64, share: impl Fn(&Hump) -> f64) -> Vec<Hump> {
    let mut humps = maxima(curve);
    let lowest = |left: &Hump, right: &Hump| {
        let between = left.top..right.top;
        between.min_by(|a, b| curve[*a].total_cmp(&curve[*b])).unwrap_or(left.end)
    };
    // How high the valley behind a hump is in parts of the lower one beside it, if it does not part the two.
    let shallow = |pair: &[Hump]| {
        let lower = curve[pair[0].top].min(curve[pair[1].top]);
        let valley = curve[pair[0].end];
        let parts =
            valley <= VALLEY * lower && (lower - valley) * sure >= SURE * ((lower + valley) * sure).sqrt();
        (!parts).then(|| valley / lower)
    };
    let join = |humps: &mut Vec<Hump>, at: usize| {
        let next = humps.remove(at + 1);
        let hump = &mut humps[at];
        hump.end = next.end;
        if curve[next.top] > curve[hump.top] {
            hump.top = next.top;
        }
        // A valley lies between the tops that are left.
        for left in [at.wrapping_sub(1), at] {
            if left < humps.len() && left + 1 < humps.len() {
                let valley = lowest(&humps[left], &humps[left + 1]);
                (humps[left].end, humps[left + 1].begin) = (valley, valley);
            }
        }
    };
    let fill = |humps: &mut Vec<Hump>| {
        loop {
            let valleys = humps.windows(2).enumerate().filter_map(|(at, pair)| Some((at, shallow(pair)?)));
            let Some((at, _)) = valleys.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
            join(humps, at);
        }
    };
    fill(&mut humps);
    while humps.len() > 1
        && let Some(at) = humps.iter().position(|hump| share(hump) < SHARE)
    {
        let height = |at: usize| humps.get(at).map_or(-1.0, |hump| curve[hump.end]);
        let left = at.checked_sub(1).map_or(-1.0, height);
        let right = if at + 1 < humps.len() { height(at) } else { -1.0 };
        join(&mut humps, if left > right { at - 1 } else { at });
        fill(&mut humps);
    }
    humps
}

/// Every local maximum, with the valleys beside it.
fn maxima(curve: &[f64]) -> Vec<Hump> {
    let mut humps: Vec<Hump> = Vec::new();
    let (mut rising, mut valley) = (true, 0);
    for at in 1..=curve.len() {
        let next = curve.get(at).copied().unwrap_or(0.0);
        let before = curve[at - 1];
        if rising && next < before {
            if let Some(last) = humps.last_mut() {
                last.end = valley;
            }
            humps.push(Hump { begin: valley, top: at - 1, end: curve.len() });
            rising = false;
        }
        if !rising && next <= before && at < curve.len() {
            valley = at;
        }
        rising |= next > before;
    }
    humps
}

/// A hump without what lies below a hundredth of its height, and without empty bins at its ends.
fn trimmed(hump: &Hump, curve: &[f64], pad: usize, bins: &[Bin]) -> Hump {
    let high = |at: &usize| curve[*at] >= EDGE * curve[hump.top];
    let empty = |at: usize| at.checked_sub(pad).and_then(|at| bins.get(at)).is_none_or(|bin| bin.calls == 0);
    let begin = (hump.begin..=hump.top).rev().take_while(high).last().unwrap_or(hump.top);
    let end = (hump.top..hump.end).take_while(high).last().unwrap_or(hump.top) + 1;
    let begin = (begin..end).find(|at| !empty(*at)).unwrap_or(begin);
    let end = (begin..end).rfind(|at| !empty(*at)).map_or(end, |last| last + 1);
    Hump { begin, end, ..*hump }
}

/// Where the parabola through a maximum of the logarithm and its two neighbours is highest.
fn vertex(curve: &[f64], top: usize) -> f64 {
    let log = |at: usize| curve.get(at).map(|value| value.max(1e-300).ln());
    let (Some(left), Some(middle), Some(right)) = (top.checked_sub(1).and_then(log), log(top), log(top + 1))
    else {
        return top as f64;
    };
    let bend = left - 2.0 * middle + right;
    let off = if bend < 0.0 { (left - right) / (2.0 * bend) } else { 0.0 };
    top as f64 + off.clamp(-0.5, 0.5)
}
