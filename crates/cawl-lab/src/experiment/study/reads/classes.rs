//! Classes of reads by their time: by the bounds of the document, and by what this disk's constants say.

use cawl_core::HostProfile;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub struct Class {
    pub name: &'static str,
    /// Its calls take less than this, in ns; None for the last one.
    pub below: Option<f64>,
}

/// Classes, the fastest first.
#[derive(Clone, Debug, Serialize)]
pub struct Classes {
    pub caption: &'static str,
    pub classes: Vec<Class>,
    /// What a call takes from the page cache and from the device, with its own cache if it has one, and what
    /// a window of readahead takes more, in ns; 0 for the document's.
    pub memory: f64,
    pub device: f64,
    pub cache: Option<f64>,
    pub window: f64,
}

/// How much longer than a whole window of readahead a normal call may take, and how much longer than that a
/// slow one: as the document's 25 ms over 7.
const LONGER: (f64, f64) = (1.5, 3.6);

impl Classes {
    /// The document's bounds: 0.2, 0.4, 7 and 25 ms.
    pub fn of_document() -> Classes {
        let names = ["cached", "fast", "normal", "slow"];
        let bounds = [0.2e6, 0.4e6, 7e6, 25e6];
        Classes {
            caption: "the document's classes",
            classes: with_last(names.into_iter().zip(bounds)),
            memory: 0.0,
            device: 0.0,
            cache: None,
            window: 0.0,
        }
    }

    /// Those of the disk with this profile, for calls of `size`: borders lie in the middle of what two kinds
    /// of calls take, on a logarithmic scale.
    pub fn of_disk(profile: &HostProfile, size: u64) -> Classes {
        let HostProfile { memory: rates, calls, device: of_device, kernel, .. } = profile;
        let size = size as f64;
        let folios = (size / kernel.page.as_f64() - 1.0).max(0.0);
        let folio = calls.read_folio_far.map_or(0.0, |folio| folio.value.get());
        let call = calls.read().value.get();
        let memory = call + size / rates.read.unwrap_or(rates.cached).value.get() * 1e9 + folios * folio;
        let read = of_device.read.value.get();
        let latency = of_device.read_latency.or(of_device.latency).map_or(0.0, |latency| latency.value.get());
        let device = latency + size / read * 1e9;
        let cached = of_device.cached_read.unwrap_or(of_device.read).value.get();
        let cache = of_device.cached_read_latency.map(|latency| latency.value.get() + size / cached * 1e9);
        let window = of_device.readahead.as_f64() / read * 1e9;
        let between = |a: f64, b: f64| (a * b).sqrt();
        let mut bounds = vec![("page cache", between(memory, cache.unwrap_or(device)))];
        bounds.extend(cache.map(|cache| ("device's cache", between(cache, device))));
        let normal = (device + window) * LONGER.0;
        bounds.extend([("normal", normal), ("slow", normal * LONGER.1)]);
        Classes { caption: "this disk's classes", classes: with_last(bounds), memory, device, cache, window }
    }

    /// How many of these times are of each class, and their sum.
    pub fn count(&self, times: &[f64]) -> Vec<(usize, f64)> {
        let mut counts = vec![(0, 0.0); self.classes.len()];
        for time in times {
            let at = self.classes.iter().position(|class| class.below.is_none_or(|below| *time < below));
            // The last class has no bound.
            let (count, sum) = &mut counts[at.unwrap_or(self.classes.len() - 1)];
            *count += 1;
            *sum += time;
        }
        counts
    }
}

fn with_last(bounds: impl IntoIterator<Item = (&'static str, f64)>) -> Vec<Class> {
    let bounded = bounds.into_iter().map(|(name, below)| Class { name, below: Some(below) });
    bounded.chain([Class { name: "unexpected", below: None }]).collect()
}

#[cfg(test)]
mod tests {
    use cawl_core::{Bytes, Measured, Nanos, Rate};

    use super::*;

    fn disk(cache: Option<f64>) -> HostProfile {
        let mut profile = HostProfile::uncalibrated();
        let micros = |time: f64| Measured::assumed(Nanos::new(time * 1e3));
        profile.calls.read = Some(micros(0.3));
        profile.memory.read = Some(Measured::assumed(Rate::mb_per_second(10_000.0)));
        let device = &mut profile.device;
        device.read.value = Rate::mb_per_second(100.0);
        device.read_latency = Some(micros(8000.0));
        device.cached_read_latency = cache.map(micros);
        device.readahead = Bytes::kib(128);
        profile
    }

    #[test]
    fn each_call_is_in_one_class() {
        let classes = Classes::of_document();
        let counts = classes.count(&[1e3, 199_999.0, 0.2e6, 5e6, 24e6, 25e6, 1e9]);
        assert_eq!(counts.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [2, 1, 1, 1, 2]);
        assert_eq!(counts[0].1, 200_999.0);
    }

    #[test]
    fn a_disks_classes_are_apart_and_ascend() {
        for cache in [None, Some(100.0)] {
            let classes = Classes::of_disk(&disk(cache), 16 << 10);
            let below: Vec<f64> = classes.classes.iter().filter_map(|class| class.below).collect();
            assert_eq!(below.len(), if cache.is_some() { 4 } else { 3 });
            assert!(below.is_sorted(), "{below:?}");
            // 2 µs from memory, 8 ms from the device, 1.3 ms for a window.
            let of = |time: f64| classes.count(&[time * 1e3]).iter().position(|(count, _)| *count == 1);
            let name = |time: f64| classes.classes[of(time).unwrap()].name;
            assert_eq!((name(2.0), name(8200.0), name(9600.0)), ("page cache", "normal", "normal"));
            assert_eq!((name(40e3), name(200e3)), ("slow", "unexpected"));
            assert_eq!(name(150.0), if cache.is_some() { "device's cache" } else { "normal" });
        }
    }
}
