//! Workflows: tasks that read files, compute, and write files that other tasks read. How long does all of it
//! take on these hosts, and why?
//!
//! The law: **[`simulate`] and [`measure`] are two ways to the same [`Outcome`]**, by one order of tasks
//! ([`Queue`]): the first task in the list that is ready and fits begins first. A task reads its files one
//! after another from begin to end, computes, and writes its files one after another, in calls of
//! [`Task::block`] bytes.
//!
//! - [`read`]: WfCommons JSON (wfcommons.rs), and TOML (text.rs)
//! - [`Cluster`]: hosts with processors and profiles, and what they share
//! - [`simulate`]: every host is a machine of libcawl's; the calls of all tasks in the order of their begins
//! - [`measure`]: processes of this program, on this machine or on an emulated disk (run.rs), beside what
//!   models say
//! - [`Outcome`]: makespan, its parts, and the critical path

mod cluster;
mod measured;
mod outcome;
mod queue;
mod run;
mod simulate;
pub mod task;
mod text;
mod wfcommons;

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use cawl_core::quantity::counted;
use cawl_core::{Bytes, Nanos};

pub use cluster::{Cluster, Host};
pub use measured::{Measured, Parts, Plan, measure};
pub use outcome::{Because, Outcome, Ran, Times};
pub use queue::Queue;
pub use simulate::{Options, simulate};

/// Tasks, and the files between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workflow {
    pub name: String,
    pub tasks: Vec<Task>,
    pub files: Vec<DataFile>,
    /// What the file that was read does not say, and what stands for it.
    pub notes: Vec<String>,
}

/// A task.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub name: String,
    /// How long it computes, on all of its processors.
    pub compute: Nanos,
    /// Processors that it occupies from begin to end.
    pub processors: u32,
    /// Files that it reads, by number.
    pub reads: Vec<usize>,
    /// Files that it writes, from their begin, by number.
    pub writes: Vec<usize>,
    /// Tasks that must have ended before it begins, by number.
    pub after: Vec<usize>,
    /// Bytes of a call.
    pub block: Bytes,
    /// Every file that it writes is synced before it is closed (fsync).
    pub fsync: bool,
}

/// A file between tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct DataFile {
    pub name: String,
    pub size: Bytes,
}

/// Bytes of the file of a workflow at most.
const MAX: u64 = 1 << 30;
/// Bytes of a call where nothing is said.
pub const BLOCK: Bytes = Bytes::mib(1);
/// Bytes of a file at most, as of a call of the models.
const LONGEST: u64 = 1 << 50;

/// The workflow in a file: WfCommons JSON, or TOML.
///
/// # Errors
/// Where the file cannot be read or is none of both, and where the workflow is none: [`Workflow::check`].
pub fn read(path: &Path) -> anyhow::Result<Workflow> {
    let about = || format!("cannot read {}", path.display());
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(about)?;
    file.take(MAX + 1).read_to_string(&mut text).with_context(about)?;
    ensure!(text.len() as u64 <= MAX, "{} is larger than 1 GiB", path.display());
    let text = text.trim_start_matches('\u{feff}');
    let is_json = text.trim_start().starts_with('{') || path.extension().is_some_and(|it| it == "json");
    let read = if is_json { wfcommons::parse(text) } else { text::parse(text) };
    let mut workflow = read.with_context(|| {
        let form = if is_json { "a workflow of WfCommons (JSON)" } else { "a workflow (TOML)" };
        format!("{} is not {form}", path.display())
    })?;
    if workflow.name.is_empty() {
        workflow.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    }
    workflow.check().with_context(|| format!("{} is no workflow", path.display()))?;
    Ok(workflow)
}

impl Workflow {
    /// The bytes that all tasks read, and write.
    pub fn bytes(&self) -> (Bytes, Bytes) {
        let sum = |files: fn(&Task) -> &[usize]| {
            self.tasks.iter().flat_map(files).map(|file| self.files[*file].size).sum()
        };
        (sum(|task| &task.reads), sum(|task| &task.writes))
    }

    /// About how many calls its tasks make.
    pub fn calls(&self) -> u64 {
        let of = |task: &Task| {
            let bytes = task.reads.iter().chain(&task.writes).map(|file| self.files[*file].size.0);
            bytes.fold(0, |sum: u64, bytes| sum.saturating_add(bytes.div_ceil(task.block.0) + 2))
        };
        self.tasks.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Bytes of all files.
    pub fn length(&self) -> Bytes {
        self.files.iter().map(|file| file.size).sum()
    }

    /// True of each file that tasks read and none writes, or that is read before it is written: it is there
    /// before.
    pub fn inputs(&self) -> Vec<bool> {
        let (mut are, mut read) = (vec![true; self.files.len()], vec![false; self.files.len()]);
        for task in &self.tasks {
            task.writes.iter().filter(|file| !task.reads.contains(file)).for_each(|file| are[*file] = false);
            task.reads.iter().for_each(|file| read[*file] = true);
        }
        are.into_iter().zip(read).map(|(is, read)| is && read).collect()
    }

    /// Adds what follows from files: who reads one begins after all others that write it.
    fn follow_files(&mut self) {
        let mut writers = vec![Vec::new(); self.files.len()];
        for (at, task) in self.tasks.iter().enumerate() {
            task.writes.iter().for_each(|file| writers[*file].push(at));
        }
        for (at, task) in self.tasks.iter_mut().enumerate() {
            let first = task.reads.iter().flat_map(|file| &writers[*file]).filter(|writer| **writer != at);
            task.after.extend(first);
            task.after.sort_unstable();
            task.after.dedup();
        }
    }

    /// Checks that there are tasks, that each can begin at some time, and that sizes are possible.
    fn check(&self) -> anyhow::Result<()> {
        ensure!(!self.tasks.is_empty(), "it has no tasks");
        for file in &self.files {
            ensure!(file.size.0 <= LONGEST, "the file {} has {} bytes: at most 2^50", file.name, file.size.0);
        }
        let compute: Nanos = self.tasks.iter().map(|task| task.compute).sum();
        ensure!(compute <= Nanos::seconds(1e9), "all tasks together compute for more than 10^9 s");
        // Kahn's algorithm; what it does not reach lies on a cycle, or behind one.
        let mut queue = Queue::new(self, &[u32::MAX]);
        let mut reached = vec![false; self.tasks.len()];
        while let Some((task, host)) = queue.next() {
            reached[task] = true;
            queue.ended(task, host);
        }
        let Some(mut at) = reached.iter().position(|reached| !reached) else { return Ok(()) };
        // Back from there until a task comes again.
        let mut way: Vec<usize> = Vec::new();
        while !way.contains(&at) {
            way.push(at);
            let first = self.tasks[at].after.iter().find(|task| !reached[**task]);
            at = *first.context("a task that nothing holds back was not reached")?;
        }
        let begin = way.iter().position(|task| *task == at).unwrap_or(0);
        let names: Vec<&str> =
            way[begin..].iter().rev().map(|task| self.tasks[*task].name.as_str()).collect();
        bail!("no task of a cycle can begin: {}", shortened(&names).join(" → "))
    }
}

/// The first few of many names.
fn shortened(names: &[&str]) -> Vec<String> {
    let mut shown: Vec<String> = names.iter().take(6).map(|name| (*name).to_owned()).collect();
    if names.len() > shown.len() {
        shown.push(counted((names.len() - shown.len()) as u64, "more task"));
    }
    shown
}

/// Numbers of names, in the order in which they come.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    /// The number of a name, and whether it is new.
    fn of(&mut self, name: &str) -> (usize, bool) {
        let next = self.0.len();
        let number = *self.0.entry(name.to_owned()).or_insert(next);
        (number, number == next)
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests;
