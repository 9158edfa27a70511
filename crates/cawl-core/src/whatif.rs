//! What if: the calls of a trace, changed on paper, on a machine changed on paper.
//!
//! The law: **each thread keeps its own thinking.** Between two calls a thread does what it did in the trace,
//! and a call takes what the model says. A call that is left out leaves its thinking behind; one that is
//! added needs none. The idea is that of feign's mutators (Kunkel, "Analyzing and Assessing I/O
//! Performance"), on a model in the place of a disk.

mod change;
mod paper;
mod stage;
mod threads;

use std::collections::HashMap;

use cawl_wire::{Event, FileId};

pub use change::{Change, Owner, Rewrite, SyncsKept};
use paper::Paper;
pub use paper::{Ledger, OpCost};
use stage::Stage;
use threads::{Step, Threads};

use crate::call::kernel_bytes;
use crate::cause::Cause;
use crate::divide::Widths;
use crate::limits::DirtyLimits;
use crate::model::CostModel;
use crate::profile::HostProfile;
use crate::record::Record;
use crate::units::Bytes;

/// Sizes that files reach in a trace, in bytes.
#[derive(Clone, Debug, Default)]
pub struct FileSizes(HashMap<FileId, u64>);

impl FileSizes {
    /// Takes a call.
    pub fn take(&mut self, event: &Event) {
        let bytes = kernel_bytes(event);
        if bytes > 0
            && let Some(end) = event.offset.checked_add(bytes)
        {
            let size = self.0.entry(event.file()).or_default();
            *size = end.max(*size);
        }
    }

    /// That of a file; 0 if nothing was written to it.
    pub fn of(&self, file: FileId) -> u64 {
        self.0.get(&file).copied().unwrap_or(0)
    }
}

/// The machine that the calls are made on.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its constants.
    pub profile: HostProfile,
    /// Its dirty limits; those of the trace's samples, if None.
    pub limits: Option<DirtyLimits>,
    /// New pages come warm, whatever the memory of the trace's machine was like.
    pub warm: bool,
}

/// A trace that is run through on paper.
pub struct WhatIf {
    threads: Threads,
    stages: Vec<Stage>,
    paper: Paper,
}

impl WhatIf {
    /// The calls with these changes, one after another, by a model of this machine. `sizes`: those of the
    /// unchanged trace, for changes that need to know what a file becomes.
    pub fn new(
        model: Box<dyn CostModel>,
        machine: &Machine,
        changes: &[Change],
        sizes: &FileSizes,
    ) -> WhatIf {
        WhatIf {
            threads: Threads::default(),
            stages: changes.iter().map(|change| Stage::new(change, sizes)).collect(),
            paper: Paper::new(model, machine),
        }
    }

    /// Takes the next record of the trace.
    pub fn take(&mut self, record: &Record) {
        let WhatIf { threads, stages, paper } = self;
        match record {
            Record::Event(_) | Record::Session(_) | Record::End(_) => {
                threads.take(record, |step| push(stages, paper, step));
                if !matches!(record, Record::Event(_)) {
                    paper.note(record);
                }
            }
            Record::File(file) => stages.iter_mut().for_each(|stage| stage.name(file)),
            other => paper.note(other),
        }
    }

    /// The trace is over.
    pub fn finish(mut self) -> Ledger {
        for at in 0..self.stages.len() {
            let (before, rest) = self.stages.split_at_mut(at + 1);
            before[at].finish(&mut |step| push(rest, &mut self.paper, step));
        }
        let mut ledger = self.paper.finish();
        ledger.changed = self.stages.iter().map(Stage::changed).collect();
        ledger.safety = self.stages.iter().filter_map(Stage::safety).collect();
        ledger
    }
}

/// Hands a step on through the stages that are left.
fn push(stages: &mut [Stage], paper: &mut Paper, step: Step) {
    match stages.split_first_mut() {
        None => paper.step(&step),
        Some((stage, rest)) => stage.step(step, &mut |step| push(rest, paper, step)),
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

/// Bytes as safety notes tell them.
fn told(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

#[cfg(test)]
mod tests;
