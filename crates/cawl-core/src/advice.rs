//! Advice as data: what a report and `advise` tell of changes that are worth it.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::explain::Explain;
use crate::named::named;

/// Pieces of advice that a report has at most.
const TOLD: usize = 3;
/// Causes that lie outside of what a call does: fewer calls meet them less, the same ones as before.
pub const OUTSIDE: [Cause; 3] = [Cause::ColdMemory, Cause::Preempted, Cause::Unexpected];
/// Part of the elapsed time that calls take at least, if they are what a program waits for.
const IN_CALLS: f64 = 0.05;

/// What kind of change it is; of those that are as safe and as simple, the earlier one is preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A larger buffer of the C library's streams.
    Buffer,
    /// Larger writes.
    Merge,
    /// fdatasync.
    Fdatasync,
    /// O_DSYNC in the place of an fsync after each write.
    Dsync,
    /// Space is allocated before it is written.
    Preallocate,
    /// The device begins early.
    Pace,
    /// O_DIRECT.
    Direct,
    /// Another device.
    Move,
    /// Other dirty limits.
    Limits,
    /// Writes in the order of their offsets.
    Sort,
    /// Writes to the end only.
    AppendOnly,
    /// Fewer syncs.
    SyncEvery,
    /// A sync at the end only.
    SyncEnd,
    /// A sync at the close in the place of O_SYNC or O_DSYNC.
    SyncOff,
    /// Several changes.
    Together,
}

/// A change that is worth it. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// What kind it is.
    pub kind: Kind,
    /// What it is, in words.
    pub what: String,
    /// The change as arguments of `whatif`.
    pub change: String,
    /// What the calls take less.
    pub gain_s: f64,
    /// What the program takes less from its first call to its end, with its own thinking.
    pub elapsed_gain_s: f64,
    /// The calls' time after over before.
    pub ratio: f64,
    /// As far off as the constants may be.
    pub interval: [f64; 2],
    /// The files that it is about, those with most time first.
    pub files: Vec<String>,
    /// Further ones.
    pub more_files: u64,
    /// The program that writes the first one, if it is known.
    pub program: Option<String>,
    /// What becomes less safe.
    pub safety: Vec<String>,
    /// How to do it.
    pub how: String,
    /// How sure the gain is.
    pub sure: Sure,
    /// Others that gain the same.
    pub alternatives: Vec<Alternative>,
}

/// A change that gains the same as another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What it is, in words.
    pub what: String,
    /// The change as arguments of `whatif`.
    pub change: String,
    /// What the calls take less, in seconds.
    pub gain_s: f64,
    /// The calls' time after over before.
    pub ratio: f64,
    /// How to do it.
    pub how: String,
    /// What becomes less safe.
    pub safety: Vec<String>,
}

named! {
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    /// How sure a gain is.
    Sure {
        /// The calls as they were took on paper what they took, but for 15 %, and half of the gain remains at
        /// the end of the interval. The constants are of this machine.
        Sure = "sure",
        /// But for half, and a quarter remains.
        Likely = "likely",
        /// Neither.
        Unsure = "unsure",
    }
}

/// What could be gained at all. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Observed less best.
    pub gain_s: f64,
    /// Best over observed.
    pub ratio: Option<f64>,
    /// The part of the observed time whose causes lie outside of what the calls do.
    pub outside_s: f64,
    /// What most of the time is spent on, which no change of the calls makes faster: `the device`.
    #[serde(default)]
    pub by: String,
}

impl Bound {
    /// Of calls that are explained so and that took this long, where `best_s` would do.
    pub fn new(explain: &Explain, observed_s: f64, best_s: f64) -> Bound {
        let outside = OUTSIDE.map(|cause| explain.seconds_of(cause));
        Bound {
            gain_s: (observed_s - best_s).max(0.0),
            ratio: (observed_s > 0.0).then(|| best_s / observed_s),
            outside_s: outside.iter().sum(),
            by: by(explain).to_owned(),
        }
    }

    /// That no change is worth it, in words: `nothing is worth it: the device is the bound`. `observed_s`:
    /// what the calls took; `span_s`: the elapsed time, of which they may be a small part.
    pub fn nothing(&self, observed_s: f64, span_s: f64) -> String {
        let by = if observed_s < IN_CALLS * span_s { "the program itself" } else { &self.by };
        format!("nothing is worth it: {by} is the bound")
    }
}

/// What has most of the time.
fn by(explain: &Explain) -> &'static str {
    let seconds = |is: fn(Cause) -> bool| {
        Cause::ALL.into_iter().filter(|cause| is(*cause)).map(|cause| explain.seconds_of(cause)).sum::<f64>()
    };
    let all = [
        (
            seconds(|cause| cause.is_device() || matches!(cause, Cause::Throttle | Cause::FlusherBeside)),
            "the device",
        ),
        (
            seconds(|cause| cause.is_own() && !cause.is_device() && cause != Cause::Call),
            "the copy into memory",
        ),
        (seconds(|cause| cause == Cause::ColdMemory), "memory that the host has to supply"),
        (seconds(|cause| cause == Cause::Call), "the call into the kernel"),
        (seconds(|cause| cause == Cause::Lock), "another thread's lock of the file"),
        (seconds(|cause| cause == Cause::Preempted), "the wait for a processor"),
        (seconds(|cause| cause == Cause::Unexpected), "what no law explains"),
    ];
    all.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).map_or("", |(_, by)| by)
}

/// What a report has of advice. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advised {
    /// Changes that were tried on paper; None if the calls are too many to try any beside a report.
    pub tried: Option<u64>,
    /// What the calls take on paper without a change.
    pub paper_s: f64,
    /// What the bytes could have taken.
    #[serde(default)]
    pub best_s: f64,
    /// What could be gained at all.
    pub bound: Bound,
    /// The changes that gain most, at most three.
    pub advice: Vec<Advice>,
    /// Further ones, which `advise` tells.
    pub more: u64,
}

impl Advised {
    /// What is told of these pieces of advice beside a report.
    pub fn new(tried: u64, paper_s: f64, best_s: f64, bound: Bound, mut advice: Vec<Advice>) -> Advised {
        let more = advice.len().saturating_sub(TOLD) as u64;
        advice.truncate(TOLD);
        Advised { tried: Some(tried), paper_s, best_s, bound, advice, more }
    }
}

impl Advice {
    /// What the calls take less, as far off as the constants may be, in seconds; less than nothing, if they
    /// take more. `paper_s`: what they take on paper without the change.
    pub fn gain_interval_s(&self, paper_s: f64) -> [f64; 2] {
        let [low, high] = self.interval;
        [(1.0 - high) * paper_s, (1.0 - low) * paper_s]
    }
}
