//! What came of a workflow, on paper or really.

use cawl_core::{CostParts, Nanos, Time};
use serde::Serialize;

use super::Workflow;

/// How a task went.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The host, by number.
    pub host: usize,
    /// When the last of those that it comes after had ended.
    pub ready: Time,
    pub begin: Time,
    pub end: Time,
    pub times: Times,
    /// The task by whose end it began; None of those that begin at once.
    pub by: Option<usize>,
}

/// Parts of a task's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// In calls that read: open, read, close.
    pub reading: Nanos,
    pub computing: Nanos,
    /// In calls that write: open, write, fsync, close.
    pub writing: Nanos,
    /// Those of reading and writing by cause; nothing of a real run.
    pub causes: CostParts,
    /// The thread was ready to run, and others had the processor (run delay): of real runs.
    pub preempted: Nanos,
}

impl Times {
    /// In calls, beyond what they would take with warm memory, nothing dirty, and the device idle.
    pub fn lost(&self) -> Nanos {
        self.causes.iter().filter(|(cause, _)| !cause.is_own()).map(|(_, part)| part).sum()
    }
}

/// Why a task began when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Because {
    /// It could begin at once.
    First,
    /// A task that it comes after had ended.
    Dependency,
    /// A task that it does not come after had ended: a processor was free.
    Processor,
}

/// All tasks of a workflow, as they went. Moments in ns from its begin.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// In the order of the workflow's tasks.
    pub tasks: Vec<Ran>,
    /// Remarks on the way.
    pub notes: Vec<String>,
}

impl Outcome {
    /// From the begin to the end of the last task.
    pub fn makespan(&self) -> Nanos {
        self.tasks.iter().map(|ran| ran.end).max().unwrap_or_default().since(Time(0))
    }

    /// The tasks whose times add up to the makespan, the first one first, and why each began when it did. In
    /// a real run what the start of processes takes is missing between them.
    pub fn critical_path(&self, workflow: &Workflow) -> Vec<(usize, Because)> {
        let last = (0..self.tasks.len()).rev().max_by_key(|task| self.tasks[*task].end);
        let mut path = Vec::new();
        let mut at = last;
        while let Some(task) = at {
            at = self.tasks[task].by;
            let because = match at {
                None => Because::First,
                Some(by) if workflow.tasks[task].after.contains(&by) => Because::Dependency,
                Some(_) => Because::Processor,
            };
            path.push((task, because));
        }
        path.reverse();
        path
    }

    /// Sums of the times of these tasks.
    pub fn sum(&self, tasks: impl Iterator<Item = usize>) -> Times {
        let mut sum = Times::default();
        for task in tasks {
            let times = &self.tasks[task].times;
            sum.reading += times.reading;
            sum.computing += times.computing;
            sum.writing += times.writing;
            sum.preempted += times.preempted;
            sum.causes.add(&times.causes);
        }
        sum
    }
}
