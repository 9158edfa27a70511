//! What if: the calls of a trace, changed on paper, on a machine changed on paper.
//!
//! The law: **each thread keeps its own thinking.** Between two calls a thread does what it did in the trace,
//! and a call takes what the model says. A call that is left out leaves its thinking behind, with the caches
//! of a thread that has not waited; one that is added needs none. The idea is that of feign's mutators
//! (Kunkel, "Analyzing and Assessing I/O Performance"), on a model in the place of a disk.

mod change;
mod facts;
mod grammar;
mod paper;
mod parts;
mod scenario;
mod stage;
mod steps;
mod threads;

pub use change::{Change, Owner, Rewrite, SyncsKept};
pub use facts::TraceFacts;
pub use grammar::{Effect, KEYWORDS, Keyword, Maker, Request, quoted};
use paper::Paper;
pub use paper::{Ledger, OpCost, observed_ns};
pub use parts::Part;
pub(crate) use scenario::MODEL;
pub use scenario::{NoScenario, Scenario};
pub use steps::Steps;
pub use threads::{Base, Step, Thread};

use crate::cause::Cause;
use crate::divide::Widths;
use crate::limits::DirtyLimits;
use crate::model::CostModel;
use crate::profile::HostProfile;
use crate::record::Record;

/// The machine that the calls are made on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its constants.
    pub profile: HostProfile,
    /// Its dirty limits; those of the trace's samples, if None.
    pub limits: Option<DirtyLimits>,
    /// Those of the trace's samples are so many times as large.
    pub limits_factor: f64,
    /// New pages come warm, whatever the law of free memory foresees.
    pub warm: bool,
}

impl Machine {
    /// A machine with the dirty limits that the trace's samples tell.
    pub fn new(profile: HostProfile, warm: bool) -> Machine {
        Machine { profile, limits: None, limits_factor: 1.0, warm }
    }

    /// The machine for calls that get O_DIRECT, O_SYNC or O_DSYNC. A synchronous write commits as an fsync
    /// does (`ext4_sync_file` for both), so that one in the place of the other costs no less here. And what
    /// buffered writes taught of the device's rate has the flusher's help in it: without that they go no
    /// faster than was `measured`.
    pub fn for_new_flags(&self, measured: &HostProfile) -> Machine {
        let mut machine = self.clone();
        let profile = &mut machine.profile;
        let others = profile.others.iter_mut();
        let others = others.map(|other| (measured.device_of(other.dev), &mut other.constants));
        for (measured, device) in std::iter::once((&measured.device, &mut profile.device)).chain(others) {
            device.sync_call.value = device.sync_call.value.max(device.fsync.value);
            if device.write.value > measured.write.value {
                device.write = measured.write;
            }
        }
        machine
    }
}

/// A trace that is run through on paper.
pub struct WhatIf {
    steps: Steps,
    paper: Paper,
}

impl WhatIf {
    /// The calls with these changes, one after another, by a model of this machine. `facts`: of the unchanged
    /// trace, for changes that [need](Rewrite::needs_facts) them.
    pub fn new(
        model: Box<dyn CostModel>,
        machine: &Machine,
        changes: &[Change],
        facts: &TraceFacts,
    ) -> WhatIf {
        WhatIf { steps: Steps::new(changes, facts), paper: Paper::new(model, machine) }
    }

    /// Keeps the changed trace for [`Ledger::records`], which takes memory for each of its records.
    pub fn keep(&mut self) {
        self.paper.kept = Some(Vec::new());
    }

    /// Takes the next record of the trace.
    pub fn take(&mut self, record: &Record) {
        self.steps.take(record, &mut |step| self.paper.step(&step));
        self.paper.note(record);
    }

    /// The trace is over.
    pub fn finish(mut self) -> Ledger {
        self.steps.finish(&mut |step| self.paper.step(&step));
        let mut ledger = self.paper.finish();
        ledger.changed = self.steps.changed();
        ledger.safety = self.steps.safety();
        ledger
    }
}

/// After over before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of the calls' total time.
    pub value: f64,
    /// As far off as the constants may be: half the distance between their percentiles.
    pub interval: (f64, f64),
}

impl Ratio {
    /// The ratio of two runs on paper; None where the calls take no time before. Both runs are by the same
    /// constants, so that what they share cancels out: each constant's error counts by how much more of the
    /// one run it is than of the other.
    pub fn of(before: &Ledger, after: &Ledger, profile: &HostProfile) -> Option<Ratio> {
        let (was, is) = (before.total.get(), after.total.get());
        if was <= 0.0 {
            return None;
        }
        let value = is / was;
        let share = |ledger: &Ledger, cause| ledger.causes[cause].get() / ledger.total.get().max(1.0);
        let widths = Widths::at_least(0.0, profile);
        let part = |cause| (share(after, cause) - share(before, cause)) * widths.mean(cause);
        let off = value * Cause::ALL.iter().map(|cause| part(*cause).powi(2)).sum::<f64>().sqrt();
        Some(Ratio { value, interval: ((value - off).max(0.0), value + off) })
    }
}

#[cfg(test)]
mod tests;
