//! Which task begins next, and on which host.

use std::collections::{BTreeMap, BTreeSet};

use super::Workflow;

/// Tasks that wait. A task is ready when those that it comes after have ended; the first ready one in the
/// order of the list that fits on a host begins there, on the first such host. One that fits nowhere at the
/// moment lets those behind it go ahead.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Of each task: how many others it still waits for.
    missing: Vec<usize>,
    /// Of each task: those that wait for it.
    waiting: Vec<Vec<usize>>,
    /// Ready tasks by the processors that they ask for.
    ready: BTreeMap<u32, BTreeSet<usize>>,
    /// Of each host: processors, and those that are free.
    hosts: Vec<(u32, u32)>,
    /// Processors that each task asks for.
    wanted: Vec<u32>,
}

impl Queue {
    /// All tasks wait; `hosts` have so many processors, at least one each.
    pub fn new(workflow: &Workflow, hosts: &[u32]) -> Queue {
        let mut waiting = vec![Vec::new(); workflow.tasks.len()];
        for (at, task) in workflow.tasks.iter().enumerate() {
            task.after.iter().for_each(|first| waiting[*first].push(at));
        }
        let missing: Vec<usize> = workflow.tasks.iter().map(|task| task.after.len()).collect();
        let hosts: Vec<_> = hosts.iter().map(|processors| (*processors, *processors)).collect();
        let wanted = workflow.tasks.iter().map(|task| task.processors).collect();
        let mut queue = Queue { missing, waiting, ready: BTreeMap::new(), hosts, wanted };
        let ready = (0..queue.missing.len()).filter(|task| queue.missing[*task] == 0);
        ready.collect::<Vec<_>>().into_iter().for_each(|task| queue.is_ready(task));
        queue
    }

    /// Processors that a task occupies on a host: no more than it has.
    pub fn occupied(&self, task: usize, host: usize) -> u32 {
        self.wanted[task].min(self.hosts[host].0)
    }

    /// The next task to begin, and its host.
    pub fn next(&mut self) -> Option<(usize, usize)> {
        let host_of = |wanted: u32| self.hosts.iter().position(|(all, free)| *free >= wanted.min(*all));
        let first =
            |(wanted, tasks): (&u32, &BTreeSet<usize>)| Some((*tasks.first()?, host_of(*wanted)?, *wanted));
        let (task, host, wanted) = self.ready.iter().filter_map(first).min()?;
        if let Some(tasks) = self.ready.get_mut(&wanted) {
            tasks.remove(&task);
        }
        self.hosts[host].1 -= self.occupied(task, host);
        Some((task, host))
    }

    fn is_ready(&mut self, task: usize) {
        self.ready.entry(self.wanted[task]).or_default().insert(task);
    }

    /// A task has ended. Returns those that have become ready.
    pub fn ended(&mut self, task: usize, host: usize) -> Vec<usize> {
        self.hosts[host].1 += self.occupied(task, host);
        let mut ready = Vec::new();
        for next in std::mem::take(&mut self.waiting[task]) {
            self.missing[next] -= 1;
            if self.missing[next] == 0 {
                ready.push(next);
            }
        }
        ready.iter().for_each(|task| self.is_ready(*task));
        ready
    }
}
