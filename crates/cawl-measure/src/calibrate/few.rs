//! What makes constants unsure: few samples, little memory.

use cawl_core::{Bytes, HostProfile};

/// Fewer samples than these are told.
const FEW: u32 = 3;

/// A remark on the constants that writes are predicted with, of which few samples are behind.
pub fn few(profile: &HostProfile) -> Option<String> {
    let samples = |name: &str| profile.value(name).map_or(0, |known| known.samples);
    let names = profile.essential().map(|(name, _)| (name, samples(name)));
    let few: Vec<String> = names
        .iter()
        .filter(|(_, samples)| (1..FEW).contains(samples))
        .map(|(name, samples)| format!("{name} ({samples})"))
        .collect();
    (!few.is_empty()).then(|| {
        format!(
            "few samples: {}; other work may be in them, so calibrate again if the machine was busy",
            few.join(", ")
        )
    })
}

/// The limit of a control group's memory that is small against what was written in it.
pub fn confined(limit: Option<(&'static str, Bytes)>, written: Bytes) -> Option<String> {
    let (name, bytes) = limit.filter(|(_, bytes)| *bytes < written)?;
    Some(format!("under {name} of {bytes}"))
}

#[cfg(test)]
mod tests {
    use super::super::rate;
    use super::*;
    use cawl_core::Estimate;

    #[test]
    fn few_samples_and_impossible_rates_are_told() {
        let rate_of = |time: f64| rate(Estimate::of(&[time]));
        assert!(rate_of(0.00495).is_none() && rate_of(0.0).is_none() && rate_of(0.1).is_some());
        let mut profile = HostProfile::uncalibrated();
        assert_eq!(few(&profile), None);
        (profile.memory.fresh.samples, profile.device.fsync.samples) = (2, 3);
        let told = few(&profile).unwrap();
        assert!(told.starts_with("few samples: memory.fresh (2); "), "{told}");
    }

    #[test]
    fn a_small_group_is_told() {
        let told = |mb: u64| confined(Some(("memory.max", Bytes(64 << 20))), Bytes(mb << 20));
        assert_eq!(told(65).as_deref(), Some("under memory.max of 64 MiB"));
        assert_eq!((told(64), confined(None, Bytes(65 << 20))), (None, None));
    }
}
