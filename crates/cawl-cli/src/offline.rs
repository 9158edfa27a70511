//! The cost of a write without a daemon: predicted from a profile and the kernel's counters.

use std::time::Duration;

use anyhow::{Context, anyhow};
use cawl_client::protocol::{Plan, Predicted, Source};
use cawl_core::{Disturbance, HostProfile, MODELS, Rate, Sample, Scene, Time, build};
use cawl_host::free;

/// Time over which the rate of present writers is measured: the kernel's own interval for rates
/// (`BANDWIDTH_INTERVAL`).
const WATCH: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    pub now: Sample,
    /// The rate at which present writers dirty pages; [`Rate::MIN`] without writers.
    pub rate: Rate,
}

impl Counted {
    /// The counters of this machine, read over a fifth of a second; None if they are unreadable.
    pub fn here() -> Option<Counted> {
        let before = cawl_host::sample()?;
        std::thread::sleep(WATCH);
        Some(Counted::between(&before, cawl_host::sample()?))
    }

    fn between(before: &Sample, now: Sample) -> Counted {
        let pages = now.dirtied.saturating_sub(before.dirtied);
        let seconds = now.time.since(before.time).as_seconds();
        // Less than a page in that time counts as no writer.
        let writes = pages > 0 && seconds > 0.0;
        let rate = if writes { pages as f64 * cawl_host::page().as_f64() / seconds } else { 0.0 };
        Counted { now, rate: if writes { Rate::per_second(rate) } else { Rate::MIN } }
    }
}

/// The cost of a plan by its model, or the first one; the plan's mode has no meaning here. Without counters
/// there are no dirty pages and no other writers.
pub fn predict(plan: &Plan, profile: &HostProfile, counted: Option<&Counted>) -> anyhow::Result<Predicted> {
    let name = plan.view.model.as_deref().unwrap_or(MODELS[0]);
    let unknown = || format!("there is no model `{name}`; the models are {}", MODELS.join(", "));
    let mut model = build(name, profile).with_context(unknown)?;
    let job = plan.job(counted.map_or(Rate::MIN, |counted| counted.rate)).map_err(|why| anyhow!(why))?;
    let mut at = Time(0);
    if let Some(counted) = counted {
        at = counted.now.time;
        let dirty = counted.now.dirty_bytes(profile.kernel.page);
        model.disturb(Disturbance { at, offset: dirty.as_f64(), drift: 0.0 });
        if profile.memory.cold.is_some()
            && let Some(memory) = free::sample()
        {
            at = at.max(memory.time);
            model.free_memory(&memory);
        }
    }
    let scene = Scene::new(model.as_ref(), at, job.device.unwrap_or_default());
    let cost = cawl_core::predict(scene, &job)?;
    Ok(Predicted::of(model.name(), &cost, Source::Offline))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_core::{Bytes, DirtyLimits};

    fn plan(text: &str) -> Plan {
        serde_json::from_str(text).expect("a plan")
    }

    #[test]
    fn more_bytes_cost_more_and_what_makes_no_sense_is_refused() {
        let profile = HostProfile::uncalibrated();
        let cost = |text| predict(&plan(text), &profile, None);
        let (little, much) = (cost("{\"bytes\":1048576}").unwrap(), cost("{\"bytes\":1073741824}").unwrap());
        assert!(0.0 < little.cost_s && little.cost_s < much.cost_s, "{little:?} {much:?}");
        assert_eq!((little.model.as_str(), much.calls), (MODELS[0], 1024));
        for (bad, why) in [
            ("{\"bytes\":0}", "nothing to write"),
            ("{\"bytes\":1,\"device\":\"vda\"}", "is not a device"),
            ("{\"bytes\":1,\"at_s\":-1}", "0 or more seconds"),
            ("{\"bytes\":1,\"view\":{\"model\":\"x\"}}", "no model `x`"),
        ] {
            let error = cost(bad).expect_err(bad).to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    /// `--ram 1G` and `--ram 1T`, on pages of 4 and of 64 KiB: 8 GiB are more than the one can have dirty,
    /// and less than the other.
    #[test]
    fn memory_decides_what_is_throttled() {
        for page in [4096, 64 << 10] {
            let mut profile = HostProfile::uncalibrated();
            profile.kernel.page = Bytes(page);
            let [small, large] = [1 << 30, 1 << 40].map(|ram| {
                let dirtyable = cawl_core::dirtyable(Bytes(ram), profile.kernel.page);
                profile.kernel.limits = DirtyLimits::of(DirtyLimits::DEFAULT_RATIOS, dirtyable);
                profile.check().expect("a machine");
                predict(&plan("{\"bytes\":8589934592}"), &profile, None).expect("an answer")
            });
            let throttled = 8.0 * (1u64 << 30) as f64 / profile.device.writeback.value.get();
            assert!(small.cost_s > 0.8 * throttled, "{small:?}");
            assert!(large.cost_s < 0.5 * throttled, "{large:?}");
            assert!(
                small.peak_dirty_bytes < 1 << 28 && large.peak_dirty_bytes > 1 << 32,
                "{small:?} {large:?}"
            );
        }
    }

    #[test]
    fn what_is_dirty_and_who_writes_already_makes_it_dearer() {
        let profile = HostProfile::uncalibrated();
        let limits = profile.kernel.limits;
        let page = cawl_host::page().0;
        let sample = |seconds: u64, dirty: Bytes, dirtied: Bytes| Sample {
            time: Time(seconds * 1_000_000_000),
            dirty: dirty.0 / page,
            background: limits.background.0 / page,
            hard: limits.hard.0 / page,
            dirtied: dirtied.0 / page,
            ..Sample::default()
        };
        // As much as fits below freerun on a clean machine.
        let job = plan(&format!("{{\"bytes\":{}}}", limits.freerun().0 * 3 / 4));
        let cost = |counted: Counted| predict(&job, &profile, Some(&counted)).expect("an answer").cost_s;
        let quiet = |dirty| Counted::between(&sample(1, dirty, Bytes(0)), sample(2, dirty, Bytes(0)));
        let clean = cost(quiet(Bytes::ZERO));
        assert_eq!(Some(clean), predict(&job, &profile, None).ok().map(|answer| answer.cost_s));
        let dirty = cost(quiet(limits.freerun()));
        assert!(dirty > 2.0 * clean, "{dirty} s at freerun, {clean} s of a clean machine");
        let busy = Counted::between(&sample(1, Bytes(0), Bytes(0)), sample(2, Bytes(0), limits.hard));
        assert_eq!(busy.rate.get(), limits.hard.as_f64());
        assert!(cost(busy) > clean);
        let answer = predict(&job, &profile, Some(&quiet(limits.background))).expect("an answer");
        assert_eq!(answer.source, Source::Offline);
        assert!(answer.peak_dirty_bytes >= limits.background.0 + job.bytes / 2, "{answer:?}");
    }
}
