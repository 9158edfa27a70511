//! Workflows in WfCommons' JSON (WfFormat): 1.5 and later, which keep what was specified from what was
//! executed, and 1.2 to 1.4, in which a task has both (github.com/wfcommons/WfFormat).

use std::collections::HashMap;

use anyhow::{Context, bail};
use cawl_core::quantity::counted;
use cawl_core::{Bytes, Nanos};
use serde::Deserialize;

use super::{BLOCK, DataFile, Numbers, Task, Workflow};

#[derive(Deserialize)]
struct Instance {
    #[serde(default)]
    name: String,
    workflow: WorkflowOf,
}

#[derive(Deserialize)]
struct WorkflowOf {
    specification: Option<Specification>,
    execution: Option<Execution>,
    /// Until 1.4; until 1.2 `jobs`.
    #[serde(default, alias = "jobs")]
    tasks: Vec<TaskOf>,
}

#[derive(Deserialize)]
struct Specification {
    tasks: Vec<TaskOf>,
    #[serde(default)]
    files: Vec<FileOf>,
}

#[derive(Deserialize)]
struct Execution {
    tasks: Vec<Executed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskOf {
    name: String,
    id: Option<String>,
    #[serde(default)]
    parents: Vec<String>,
    #[serde(default)]
    children: Vec<String>,
    #[serde(default)]
    input_files: Vec<String>,
    #[serde(default)]
    output_files: Vec<String>,
    /// Until 1.4.
    #[serde(default)]
    files: Vec<FileOf>,
    #[serde(flatten)]
    executed: Work,
}

#[derive(Deserialize)]
struct Executed {
    id: String,
    #[serde(flatten)]
    work: Work,
}

/// What a task did.
#[derive(Clone, Copy, Default, Deserialize)]
struct Work {
    #[serde(rename = "runtimeInSeconds", alias = "runtime")]
    seconds: Option<f64>,
    #[serde(rename = "coreCount", alias = "cores")]
    processors: Option<f64>,
    /// In percent of one processor.
    #[serde(rename = "avgCPU")]
    busy: Option<f64>,
}

#[derive(Deserialize)]
struct FileOf {
    /// From 1.5 on; before, its name.
    #[serde(alias = "name")]
    id: String,
    #[serde(rename = "sizeInBytes", alias = "size")]
    size: Option<f64>,
    /// Until 1.4: input or output.
    link: Option<String>,
}

/// The workflow of an instance.
pub fn parse(text: &str) -> anyhow::Result<Workflow> {
    let Instance { name, workflow: WorkflowOf { specification, execution, tasks } } =
        serde_json::from_str(text)?;
    let (of, files) = specification.map_or((tasks, Vec::new()), |one| (one.tasks, one.files));
    let mut workflow = Workflow { name, ..Workflow::default() };
    let (mut numbers, mut ids, mut names) = (Numbers::default(), Numbers::default(), HashMap::new());
    let mut is_sized = Vec::new();
    let mut file = |files: &mut Vec<DataFile>, name: &str, size: Option<f64>| {
        let (number, is_new) = numbers.of(name);
        if is_new {
            files.push(DataFile { name: name.to_owned(), size: Bytes::ZERO });
            is_sized.push(false);
        }
        if let Some(size) = size.filter(|size| size.is_finite() && *size >= 0.0) {
            (files[number].size, is_sized[number]) = (Bytes::from_f64(size), true);
        }
        number
    };
    for one in &files {
        file(&mut workflow.files, &one.id, one.size);
    }
    let (mut untimed, mut unmeasured) = (0, 0);
    for (at, task) in of.iter().enumerate() {
        let id = task.id.as_ref().unwrap_or(&task.name);
        if !ids.of(id).1 {
            bail!("two tasks have the id {id}");
        }
        names.entry(task.name.as_str()).or_insert(at);
    }
    let mut done = vec![Work::default(); of.len()];
    for executed in execution.iter().flat_map(|execution| &execution.tasks) {
        let at = ids.find(&executed.id);
        done[at.with_context(|| format!("what was executed as {} is no task", executed.id))?] = executed.work;
    }
    let task_of = |name: &str| {
        let found = ids.find(name).or_else(|| names.get(name).copied());
        found.with_context(|| format!("{name} is the parent or child of a task, and no task itself"))
    };
    for (at, task) in of.iter().enumerate() {
        let work = if execution.is_some() { done[at] } else { task.executed };
        let processors = work.processors.unwrap_or(1.0).ceil().clamp(1.0, 1e6);
        let seconds = work.seconds.filter(|seconds| *seconds >= 0.0);
        untimed += u64::from(seconds.is_none());
        // What it did not compute, it waited: for files, whose time is modelled.
        let busy = work.busy.filter(|busy| *busy >= 0.0);
        unmeasured += u64::from(busy.is_none() && seconds.is_some());
        let busy = busy.map_or(1.0, |busy| (busy / 100.0 / processors).clamp(0.0, 1.0));
        let mut add = |names: &[String]| -> Vec<usize> {
            let mut all: Vec<usize> =
                names.iter().map(|name| file(&mut workflow.files, name, None)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        let (mut reads, mut writes) = (add(&task.input_files), add(&task.output_files));
        for one in &task.files {
            let number = file(&mut workflow.files, &one.id, one.size);
            let list = if one.link.as_ref().is_some_and(|link| link.eq_ignore_ascii_case("output")) {
                &mut writes
            } else {
                &mut reads
            };
            if !list.contains(&number) {
                list.push(number);
            }
        }
        let after = task.parents.iter().map(|name| task_of(name)).collect::<anyhow::Result<_>>()?;
        workflow.tasks.push(Task {
            name: task.name.clone(),
            compute: Nanos::seconds(seconds.unwrap_or(0.0) * busy),
            processors: processors as u32,
            reads,
            writes,
            after,
            block: BLOCK,
            fsync: false,
        });
    }
    for (at, task) in of.iter().enumerate() {
        for child in &task.children {
            workflow.tasks[task_of(child)?].after.push(at);
        }
    }
    let empty = is_sized.iter().filter(|is_sized| !**is_sized).count() as u64;
    workflow.follow_files();
    let note = |count: u64, what: &str, stands: &str| {
        (count > 0).then(|| format!("{} {what}: {stands}", counted(count, "task")))
    };
    workflow.notes.extend(note(untimed, "without a runtime, or with one below 0", "they compute nothing"));
    let all = "all of the runtime is computing, reads and writes come on top";
    workflow.notes.extend(note(unmeasured, "without avgCPU, or with one below 0", all));
    if empty > 0 {
        workflow.notes.push(format!("{} without a size, or with one below 0: empty", counted(empty, "file")));
    }
    Ok(workflow)
}
