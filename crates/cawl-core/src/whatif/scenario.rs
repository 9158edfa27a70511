//! Scenarios: the calls of a trace, changed, on a machine, changed.

use std::path::Path;

use super::change::{Change, Rewrite};
use super::facts::TraceFacts;
use super::grammar::{Effect, Request};
use super::{Machine, WhatIf};
use crate::limits::{DirtyLimits, GroupCache, dirtyable};
use crate::model::build;
use crate::profile::{HostProfile, OtherDevice};
use crate::record::HostFacts;

/// The model that calls are run through on paper.
pub(crate) const MODEL: &str = "kernel";
/// Numbers of devices that files are moved to: no device of a Linux has them.
const MOVED_TO: u64 = 0xffff_ff00;

/// Why calls cannot be run so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoScenario {
    /// A change that cannot be made.
    #[error("{0}")]
    Wrong(String),
    /// Limits are parts of a memory that nobody knows.
    #[error("the trace does not tell how much memory its machine has; add --ram SIZE")]
    NoMemory,
    /// A profile that cannot be read.
    #[error("{0}")]
    Profile(String),
}

/// Calls on a machine, both with their changes.
#[derive(Clone)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// What becomes of the calls, one change after another.
    pub changes: Vec<Change>,
}

impl Scenario {
    /// Begins to run it. `facts`: of the trace.
    pub fn begin(&self, facts: &TraceFacts) -> WhatIf {
        let model = build(MODEL, &self.machine.profile).expect("it is in the list of models");
        WhatIf::new(model, &self.machine, &self.changes, facts)
    }

    /// This one with changes. `measured`: the profile without what the trace taught. `host`: the machine
    /// that was traced, if that is known. `read`: reads the profile in a file.
    ///
    /// # Errors
    /// Where a change makes no sense, or not of this trace, or a profile cannot be read.
    pub fn with(
        &self,
        given: &[Request],
        measured: &HostProfile,
        host: Option<&HostFacts>,
        read: impl Fn(&Path) -> Result<HostProfile, NoScenario>,
    ) -> Result<Scenario, NoScenario> {
        let Scenario { mut machine, mut changes } = self.clone();
        if given.iter().filter_map(Request::rewrite).any(Rewrite::adds_flags) {
            machine = machine.for_new_flags(measured);
        }
        let (mut ratios, mut ram, mut cgroup, mut scales) = (None, None, None, Vec::new());
        // Another machine is what the changes of a machine are changes of.
        let (machines, others): (Vec<&Request>, Vec<&Request>) =
            given.iter().partition(|one| matches!(one.effect, Effect::Profile(_)));
        for one in machines.into_iter().chain(others) {
            match &one.effect {
                Effect::Calls(change) => changes.push(change.clone()),
                Effect::Move(glob, place) => {
                    let mounted =
                        host.and_then(|host| host.filesystems.iter().find(|one| one.mount == *place));
                    let known =
                        mounted.filter(|one| machine.profile.others.iter().any(|of| of.dev == one.dev));
                    let dev = known.map_or(MOVED_TO + machine.profile.others.len() as u64, |one| one.dev);
                    if known.is_none() {
                        let constants = read(Path::new(place))?.device;
                        machine.profile.others.push(OtherDevice { dev, constants });
                    }
                    changes.push(Change { rewrite: Rewrite::Move(dev), on: Some(glob.clone()) });
                }
                Effect::Set(name, value) => {
                    machine.profile = machine.profile.with(name, value).map_err(NoScenario::Wrong)?
                }
                Effect::Profile(path) => {
                    machine.profile = read(path)?;
                    machine.limits = Some(machine.profile.kernel.limits);
                }
                Effect::Limits(limits) => machine.limits = Some(*limits),
                Effect::Ratios(of) => ratios = Some(*of),
                Effect::Ram(bytes) => ram = Some(*bytes),
                Effect::Cgroup(bytes) => cgroup = Some(*bytes),
                Effect::Release(release) => {
                    let kernel = &mut machine.profile.kernel;
                    kernel.release = Some(*release);
                    kernel.fine_stamps = kernel.laws().fine_stamps;
                }
                Effect::Scale(part, factor) => scales.push((*part, *factor)),
                Effect::Warm => machine.warm = true,
                Effect::On(_) => {}
            }
        }
        let parts = ratios.or_else(|| host.map(ratios_of)).unwrap_or(DirtyLimits::DEFAULT_RATIOS);
        if ratios.is_some() || ram.is_some() {
            if given.iter().any(|one| matches!(one.effect, Effect::Limits(_))) {
                let why =
                    "--limits says what --dirty-ratio and --ram would compute; give the one or the other";
                return Err(NoScenario::Wrong(why.to_owned()));
            }
            let page = machine.profile.kernel.page;
            let memory = ram.map(|ram| dirtyable(ram, page)).or_else(|| host.map(|host| host.memory));
            let memory = memory.ok_or(NoScenario::NoMemory)?;
            machine.limits = Some(DirtyLimits::of(parts, memory));
        }
        // An empty one, whose programs take nothing but the cache.
        let empty = |memory| GroupCache { room: Some(memory), ..GroupCache::default() };
        machine.profile.kernel.group = cgroup.map(empty).or(machine.profile.kernel.group);
        machine.profile.kernel.cgroup =
            cgroup.map(|memory| DirtyLimits::of(parts, memory)).or(machine.profile.kernel.cgroup);
        if let Some(limits) = machine.limits {
            machine.profile.kernel.limits = limits;
        }
        // Last, so that it is of what the other changes make.
        for (part, factor) in scales {
            machine = part.scaled(&machine, factor);
        }
        machine.profile.check().map_err(|error| NoScenario::Wrong(error.to_string()))?;
        Ok(Scenario { machine, changes })
    }
}

fn ratios_of(host: &HostFacts) -> [f64; 2] {
    let of = |name: &str| {
        let found = host.dirty_settings.iter().find(|(setting, _)| setting == name);
        found.map(|(_, percent)| *percent as f64 / 100.0).filter(|part| *part > 0.0)
    };
    let [background, hard] = DirtyLimits::DEFAULT_RATIOS;
    [of("dirty_background_ratio").unwrap_or(background), of("dirty_ratio").unwrap_or(hard)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::Release;

    #[test]
    fn the_law_of_time_stamps_is_that_of_the_release_asked_for() {
        let profile = HostProfile::uncalibrated();
        let base = Scenario { machine: Machine::new(profile.clone(), false), changes: Vec::new() };
        let fine = |release| {
            let text = String::new();
            let asked = Request { arguments: text.clone(), text, effect: Effect::Release(release) };
            let of = base.with(&[asked], &profile, None, |_| Ok(profile.clone())).expect("a scenario");
            of.machine.profile.kernel.fine_stamps
        };
        assert_eq!((fine(Release(6, 12)), fine(Release::LATEST)), (false, true));
    }
}
