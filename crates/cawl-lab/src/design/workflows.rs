//! Workflows as the work: one after the other, each on all hosts.

use std::path::PathBuf;

use cawl_core::{Nanos, Request};

use super::{Times, Work};
use crate::workflow::{Cluster, Options, Workflow, read, simulate};

/// Time to run a call: for the progress only.
const A_CALL: Nanos = Nanos::new(1500.0);

/// Workflows, and the hosts that they run on.
pub struct Workflows {
    workflows: Vec<Workflow>,
    cluster: Cluster,
    options: Options<'static>,
    now: Times,
}

impl Workflows {
    /// Reads the workflows and runs them on the hosts as they are. `cached`: what is there before is in the
    /// page caches.
    ///
    /// # Errors
    /// Where a workflow cannot be read.
    pub fn read(paths: &[PathBuf], cluster: Cluster, cached: bool) -> anyhow::Result<Workflows> {
        let workflows = paths.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let options = Options { model: "kernel", cached };
        let mut workflows = Workflows { workflows, cluster, options, now: Times::default() };
        workflows.now = workflows.times(&[])?;
        Ok(workflows)
    }
}

impl Work for Workflows {
    fn now(&self) -> Times {
        self.now
    }

    fn check(&self, changes: &[Request]) -> anyhow::Result<()> {
        if let Some(request) = changes.iter().find(|request| request.changes_calls()) {
            anyhow::bail!("{} is a change of calls, which a workflow has not", request.text);
        }
        self.cluster.changed(changes).map(drop)
    }

    fn times(&self, changes: &[Request]) -> anyhow::Result<Times> {
        let cluster = self.cluster.changed(changes)?;
        let mut times = Times::default();
        for workflow in &self.workflows {
            let outcome = simulate(workflow, &cluster, &self.options, &mut |_| Ok(()))?;
            let sum = outcome.sum(0..outcome.tasks.len());
            times.calls += sum.reading + sum.writing;
            times.lost += sum.lost();
            times.elapsed += outcome.makespan();
        }
        Ok(times)
    }

    fn expected(&self) -> Nanos {
        A_CALL * self.workflows.iter().map(|workflow| workflow.calls() as f64).sum::<f64>()
    }
}
