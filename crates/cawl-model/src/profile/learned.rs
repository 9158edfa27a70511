//! What runs have learned since a profile was made: beside what was measured, so that both can be seen and
//! compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HostProfile, Measured};
use crate::table::Unit;
use crate::units::Rate;

/// Factor by which a learned constant must differ from the measured one to contradict it.
const FAR: f64 = 2.0;
/// What is learned of memory and calls is no further than by this factor from what was measured.
const MAX: f64 = 4.0;
/// What programs' own work may add to a call, in ns.
const LITTLE: f64 = 2e3;
/// How much wider a measured interval is taken to be than it is.
const WIDER: f64 = 1.3;

/// What runs have learned. Values are in the units of the constants they replace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// Of how many runs.
    pub runs: u32,
    /// When the latest ended, in seconds since 1970-01-01 UTC.
    pub last: u64,
    /// Constants by their names in the profile (`device.writeback`). A profile in use has these in their
    /// places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub constants: BTreeMap<String, Kept>,
}

/// A constant that runs have learned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Best estimate for the next run.
    pub value: f64,
    /// 10th percentile, what runs differ by included.
    pub p10: f64,
    /// 90th percentile.
    pub p90: f64,
    /// How many observations it rests on.
    pub samples: u64,
    /// How many runs told of it.
    pub runs: u32,
}

impl Kept {
    fn is_sound(&self) -> bool {
        [self.value, self.p10, self.p90].iter().all(|value| value.is_finite() && *value >= 0.0)
    }
}

impl Learned {
    /// True if no value of it is nonsense.
    pub(super) fn is_sound(&self) -> bool {
        self.constants.values().all(Kept::is_sound)
    }
}

impl HostProfile {
    /// The profile as it is used: with what was learned in the place of what was measured.
    #[must_use]
    pub fn as_learned(mut self) -> HostProfile {
        let learned = self.learned.as_mut().map(|learned| std::mem::take(&mut learned.constants));
        for (name, kept) in learned.unwrap_or_default() {
            // One that this version does not know says nothing to it.
            let Some(constant) = self.find(&name) else { continue };
            let before = constant.number().map_or(0.0, |known| known.value);
            let samples = u32::try_from(kept.samples).unwrap_or(u32::MAX);
            let kept = Measured { value: kept.value, p10: Some(kept.p10), p90: Some(kept.p90), samples };
            constant.set(if constant.unit() == Unit::Number {
                kept.map(|part| part.clamp(0.01, 1.0))
            } else {
                kept
            });
            if name == "memory.cached" {
                self.memory.heat(Rate::per_second(before));
            }
        }
        self
    }

    /// How many runs what it knows was learned from.
    pub fn learned_runs(&self) -> u32 {
        self.learned.as_ref().map_or(0, |learned| learned.runs)
    }

    /// True if a constant is no default.
    pub fn is_measured(&self, name: &str) -> bool {
        self.value(name).is_some_and(|known| known.samples > 0)
    }

    /// What a learned constant may be, in its unit: what machines do and, of memory and calls, no more than
    /// `MAX` times more or less than what was measured. A disk may turn out to be any other.
    pub fn range(&self, name: &str) -> (f64, f64) {
        let (section, constant) = name.split_once('.').unwrap_or_default();
        let (least, most) = match (section, constant) {
            (_, "flush_factor") => (0.01, 1.0),
            (_, "cold") => (1e7, 2e10),
            ("memory", _) => (1e8, 2e11),
            ("device", "write" | "writeback" | "read" | "sequential_read") => (1e5, 1e11),
            ("device", _) => (0.0, 1e11),
            _ => (0.0, 1e6),
        };
        let measured = self.value(name);
        let of_processor = section != "device" && constant != "cold";
        match measured.filter(|known| known.samples > 0 && of_processor) {
            Some(Measured { value, p10, p90, .. }) => {
                let low = p10.map_or(value, |low| low.min(value)) / MAX;
                let high = p90.map_or(value, |high| high.max(value)) * MAX;
                // What takes next to nothing may take a little.
                let (low, high) = if section == "calls" { (0.0, high + LITTLE) } else { (low, high) };
                (low.clamp(least, most), high.clamp(least, most))
            }
            None => (least, most),
        }
    }

    /// True if what was learned of a constant is far from what was measured.
    pub fn contradicts(&self, name: &str, learned: f64) -> bool {
        // Whether memory was cold says nothing of the machine.
        let compared = name != "memory.cold";
        let Some(Measured { value, p10, p90, samples }) = self.value(name).filter(|_| compared) else {
            return false;
        };
        let ends = [value, p10.unwrap_or(value), p90.unwrap_or(value)];
        let (low, high) =
            (ends.iter().fold(value, |a, b| a.min(*b)), ends.iter().fold(value, |a, b| a.max(*b)));
        let far = learned > value * FAR || learned * FAR < value;
        samples > 0 && far && (learned > high * WIDER || learned * WIDER < low)
    }
}
