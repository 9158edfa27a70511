//! Which task begins next, and on which host.

use std::collections::BTreeSet;

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
    ready: BTreeSet<usize>,
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
        let ready = (0..missing.len()).filter(|task| missing[*task] == 0).collect();
        let hosts: Vec<_> = hosts.iter().map(|processors| (*processors, *processors)).collect();
        let wanted = workflow.tasks.iter().map(|task| task.processors).collect();
        Queue { missing, waiting, ready, hosts, wanted }
    }

    /// Processors that a task occupies on a host: no more than it has.
    pub fn occupied(&self, task: usize, host: usize) -> u32 {
        self.wanted[task].min(self.hosts[host].0)
    }

    /// The next task to begin, and its host.
    pub fn next(&mut self) -> Option<(usize, usize)> {
        let fits = |task: usize| {
            let free = |host: &usize| self.hosts[*host].1 >= self.occupied(task, *host);
            (0..self.hosts.len()).find(free).map(|host| (task, host))
        };
        // Nothing fits where nothing is free: the common case, in which the list may be long.
        if self.hosts.iter().all(|(_, free)| *free == 0) {
            return None;
        }
        let (task, host) = self.ready.iter().copied().find_map(fits)?;
        self.ready.remove(&task);
        self.hosts[host].1 -= self.occupied(task, host);
        Some((task, host))
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
        self.ready.extend(&ready);
        ready
    }
}
