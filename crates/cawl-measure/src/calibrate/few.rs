//! Constants of which only few samples are behind.

use cawl_core::HostProfile;

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
}
