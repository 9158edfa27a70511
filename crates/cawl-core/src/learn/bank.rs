//! Constants learned with several memories side by side; the one that has predicted best of late is used.
//!
//! The law: how fast a machine changes is not known beforehand, so it is no setting. A long memory is right
//! on a quiet machine, a short one where memory turns cold or another guest takes the disk. Each member
//! predicts every observation before it is told of it, and the one that [leads](crate::leader) is used. Until
//! the first block is over, the constants that it began with are one of them, and the least sum of errors so
//! far counts: a program's first calls are often slow, and a mean that begins with them is too high for long.

use super::evidence::{Evidence, Known, Said};
use super::recursive::Recursive;
use crate::leader::{Leader, WAYS};

/// Fewer observations than these say nothing for good.
const FEWEST: u64 = 3;
/// Calls taken together before the members are told.
const SUMMED: u32 = 64;
/// Of a call that waits for nothing and takes longer, in seconds and as a factor on what was to be expected,
/// no more is kept; and nothing if the one before did not: it began with empty caches, or a processor was
/// taken away.
const ODD: (f64, f64) = (2e-6, 4.0);
/// Of a [sceptical](Bank::sceptical) bank: until the first block is over, an observation counts as no more
/// than this many times what was to be expected, unless it ends a row of so many that are beyond it.
const HICCUP: f64 = 1.5;
const ROW: u32 = 4;

/// How a [`Bank`] forgets.
#[derive(Clone, Copy, Debug)]
pub struct Memories {
    /// Time constants, from short to long, in the unit of the weights.
    pub members: [f64; WAYS],
    /// Length of a block, in the unit of the weights.
    pub block: f64,
    /// Weight of observations taken together before the members are told.
    pub summed: f64,
}

impl Memories {
    /// Nothing fades.
    pub fn last(&self) -> bool {
        self.members[0].is_infinite()
    }
}

/// Constants learned with several memories.
#[derive(Clone, Debug)]
pub struct Bank<const N: usize> {
    members: [Recursive<N>; WAYS],
    memories: Memories,
    leader: Leader,
    summed: Summed<N>,
    /// How many observations there were.
    pub samples: u64,
    /// What it began with, and what was observed since that may be kept.
    begun: Recursive<N>,
    /// What it began with is used for now.
    by_begun: bool,
    /// Sums of errors since the beginning: by what it began with, and by the member that leads.
    off: [f64; 2],
    evidence: Evidence<N>,
    /// The observations that follow may be kept for good.
    pub counts: bool,
    /// Observations of which something may be kept.
    calls: u64,
    /// The latest observation was odd.
    odd: bool,
    /// Single long observations are not believed at first; how many there were in a row.
    sceptical: bool,
    longer: u32,
    /// Constants of which the next observation says nothing that may be kept.
    pub silent: [bool; N],
}

/// A constant as it is known, the standard deviation of that, and the observations behind it.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub value: f64,
    pub deviation: f64,
    pub samples: u64,
}

/// Observations taken together, until they weigh enough.
#[derive(Clone, Copy, Debug)]
struct Summed<const N: usize> {
    h: [f64; N],
    y: f64,
    weight: f64,
    count: u32,
    /// What of it may be kept, without what is silent, and what of that was to be expected.
    kept: ([f64; N], f64, f64),
    /// Part of it says nothing of the profile's device.
    foreign: bool,
}

impl<const N: usize> Default for Summed<N> {
    fn default() -> Summed<N> {
        Summed { h: [0.0; N], y: 0.0, weight: 0.0, count: 0, kept: ([0.0; N], 0.0, 0.0), foreign: false }
    }
}

impl<const N: usize> Bank<N> {
    /// Constants of which about these values are known, give or take the spreads beside them.
    pub fn new(known: [(f64, f64); N], bounds: [(f64, f64); N], memories: Memories) -> Bank<N> {
        let (theta, spread) = (known.map(|known| known.0), known.map(|known| known.1));
        Bank {
            members: memories.members.map(|memory| Recursive::new(theta, spread, bounds, memory)),
            memories,
            leader: Leader::new(WAYS / 2),
            summed: Summed::default(),
            samples: 0,
            begun: Recursive::new(theta, spread, bounds, f64::INFINITY),
            by_begun: true,
            off: [0.0; 2],
            evidence: Evidence::default(),
            counts: false,
            calls: 0,
            odd: false,
            sceptical: false,
            longer: 0,
            silent: [false; N],
        }
    }

    /// Lets a row of observations that contradict the constants end what was known of them.
    pub fn reopening(mut self) -> Bank<N> {
        self.members.iter_mut().chain([&mut self.begun]).for_each(|member| member.reopens = true);
        self
    }

    /// Does not take a few long observations at the beginning for the rule: the first syncs of a file wait
    /// for what the filesystem and the device do once.
    pub fn sceptical(mut self) -> Bank<N> {
        self.sceptical = true;
        self
    }

    /// Observations that may be kept.
    pub fn kept(&self) -> u64 {
        self.evidence.count
    }

    /// What is known of each constant before any observation.
    pub fn known(&self, kept: [bool; N], measured: [bool; N]) -> [Known; N] {
        std::array::from_fn(|at| Known {
            value: self.begun.theta[at],
            deviation: self.begun.deviation(at),
            kept: kept[at],
            measured: measured[at],
        })
    }

    /// What was observed since the beginning makes of what is known.
    pub fn said(&self, known: &[Known; N]) -> [Option<Said>; N] {
        if self.calls < FEWEST {
            return [None; N];
        }
        self.evidence.merged(known, self.memories.block)
    }

    /// Begins anew with other constants, which rest on these observations.
    pub fn anew(&mut self, known: &[Known; N], samples: u64) {
        let known = known.map(|known| (known.value, known.deviation));
        let new = Bank::new(known, self.begun.bounds, self.memories);
        let new = Bank { sceptical: self.sceptical, ..new };
        *self = if self.begun.reopens { new.reopening() } else { new };
        self.members.iter_mut().for_each(Recursive::confine);
        self.samples = samples;
    }

    fn in_use(&self) -> &Recursive<N> {
        if self.by_begun { &self.begun } else { &self.members[self.leader.leads] }
    }

    /// The constants in use.
    pub fn theta(&self) -> &[f64; N] {
        &self.in_use().theta
    }

    /// What an observation should be by the constants in use.
    pub fn expect(&self, h: &[f64; N]) -> f64 {
        self.in_use().expect(h)
    }

    /// A constant in use.
    pub fn found(&self, at: usize) -> Found {
        let member = self.in_use();
        Found { value: member.theta[at], deviation: member.deviation(at), samples: self.samples }
    }

    /// `y` was observed where `h·θ` was to be expected; `weight` says how much it makes what is older fade.
    /// True if the constants may have changed.
    pub fn observe(&mut self, h: &[f64; N], y: f64, weight: f64) -> bool {
        self.samples += 1;
        let expected = self.begun.expect(h);
        let most = if self.memories.summed > 0.0 { ODD.0 + ODD.1 * expected } else { f64::INFINITY };
        let was_odd = std::mem::replace(&mut self.odd, y > most);
        let summed = &mut self.summed;
        for (sum, more) in summed.h.iter_mut().zip(h) {
            *sum += more;
        }
        if was_odd || !self.odd {
            self.calls += 1;
            let kept = &mut summed.kept;
            kept.1 += y.min(most);
            kept.2 += expected;
            let amounts = kept.0.iter_mut().zip(h).zip(self.silent.iter().zip(&self.begun.theta));
            for ((sum, more), (silent, known)) in amounts {
                if *silent {
                    kept.1 -= more * known;
                } else {
                    *sum += more;
                }
            }
        }
        summed.y += y;
        summed.weight += weight;
        summed.count += 1;
        summed.foreign |= !self.counts;
        if summed.weight < self.memories.summed && summed.count < SUMMED {
            return false;
        }
        let Summed { h, y, weight, foreign, kept, .. } = std::mem::take(summed);
        if !foreign && kept.0 != [0.0; N] {
            self.evidence.add(&kept.0, kept.1, kept.2, weight);
        }
        let y = self.believed(&h, y);
        self.tell(&h, y, weight);
        true
    }

    /// Of an observation, what a sceptical bank believes.
    fn believed(&mut self, h: &[f64; N], y: f64) -> f64 {
        if self.leader.is_tried || !self.sceptical {
            return y;
        }
        let most = HICCUP * self.expect(h).min(self.begun.expect(h));
        self.longer = if y > most { self.longer + 1 } else { 0 };
        if self.longer < ROW { y.min(most) } else { y }
    }

    fn tell(&mut self, h: &[f64; N], y: f64, weight: f64) {
        let off = self.members.each_ref().map(|member| y - member.expect(h));
        self.members.iter_mut().for_each(|member| member.update(h, y, weight));
        self.off[0] += y - self.begun.expect(h);
        self.off[1] += off[self.leader.leads];
        self.leader.judge(off, weight, self.memories.block, [1.0; WAYS]);
        self.by_begun = !self.leader.is_tried && self.off[0].abs() <= self.off[1].abs();
    }
}
