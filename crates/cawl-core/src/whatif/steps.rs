//! The steps of a trace's threads, with changes.

use super::change::Change;
use super::facts::TraceFacts;
use super::stage::Stage;
use super::threads::{Step, Threads};
use crate::record::Record;

/// What the threads of a trace do, changed: for a model on paper, or for a rerun.
pub struct Steps {
    threads: Threads,
    stages: Vec<Stage>,
}

impl Steps {
    /// With these changes, one after another. `facts`: of the unchanged trace, for changes that
    /// [need](super::Rewrite::needs_facts) them.
    pub fn new(changes: &[Change], facts: &TraceFacts) -> Steps {
        let stages = changes.iter().map(|change| Stage::new(change, facts)).collect();
        Steps { threads: Threads::default(), stages }
    }

    /// Takes the next record of the trace; `each` gets the steps that it means.
    pub fn take(&mut self, record: &Record, each: &mut dyn FnMut(Step)) {
        let Steps { threads, stages } = self;
        match record {
            Record::File(file) => stages.iter_mut().for_each(|stage| stage.name(file)),
            _ => threads.take(record, |step| push(stages, each, step)),
        }
    }

    /// The trace is over: what changes have held back goes on.
    pub fn finish(&mut self, each: &mut dyn FnMut(Step)) {
        for at in 0..self.stages.len() {
            let (before, rest) = self.stages.split_at_mut(at + 1);
            before[at].finish(&mut |step| push(rest, each, step));
        }
    }

    /// The calls that each change changed, added or left out.
    pub fn changed(&self) -> Vec<u64> {
        self.stages.iter().map(|stage| stage.changed).collect()
    }

    /// What became less safe.
    pub fn safety(&self) -> Vec<String> {
        self.stages.iter().filter_map(Stage::safety).collect()
    }
}

/// Hands a step on through the stages that are left.
fn push(stages: &mut [Stage], each: &mut dyn FnMut(Step), step: Step) {
    match stages.split_first_mut() {
        None => each(step),
        Some((stage, rest)) => stage.step(step, &mut |step| push(rest, each, step)),
    }
}
