//! Workflows in TOML.
//!
//! ```toml
//! name = "maps"
//! block = "1M"                # bytes of a call (1M)
//!
//! [files]                     # sizes, by name or pattern
//! "raw*" = "200M"
//! sum = "10M"
//!
//! [[task]]
//! name = "map{}"              # {} is the number of each of the
//! count = 8                   # eight tasks
//! reads = ["raw{}"]
//! compute = "1.5s"
//! processors = 2              # (1)
//! writes = ["part{}=50M"]     # the size may stand here, too
//!
//! [[task]]
//! name = "reduce"
//! reads = ["part*"]           # all files whose names fit
//! writes = ["sum"]
//! fsync = true                # before a file is closed (false)
//! after = ["map*"]            # beside those that write what it reads
//! ```

use std::collections::{BTreeMap, HashSet};

use anyhow::{anyhow, bail, ensure};
use cawl_core::quantity::{size, size_above_zero, span_with_unit};
use cawl_core::{Bytes, Glob, Nanos};
use serde::Deserialize;

use super::{BLOCK, DataFile, Numbers, Task, Workflow};

/// Tasks of a row at most.
const MAX: usize = 100_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkflowText {
    #[serde(default)]
    name: String,
    block: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    task: Vec<TaskText>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskText {
    name: String,
    count: Option<usize>,
    compute: Option<String>,
    #[serde(default = "one")]
    processors: u32,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    #[serde(default)]
    after: Vec<String>,
    block: Option<String>,
    #[serde(default)]
    fsync: bool,
}

fn one() -> u32 {
    1
}

/// The workflow of a text.
pub fn parse(text: &str) -> anyhow::Result<Workflow> {
    let WorkflowText { name, block, files: mut sizes, task } = toml::from_str(text)?;
    let block = block.map_or(Ok(BLOCK), |block| of_block("the workflow", &block))?;
    let rows = task.iter().map(numbered).collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows: Vec<TaskText> = rows.into_iter().flatten().collect();
    // A size beside a name goes to the sizes.
    for name in rows.iter_mut().flat_map(|task| task.reads.iter_mut().chain(&mut task.writes)) {
        if let Some((file, size)) = name.split_once('=') {
            let before = sizes.insert(file.to_owned(), size.to_owned());
            if let Some(before) = before.filter(|before| before != size) {
                bail!("the file {file} has two sizes: {before} and {size}");
            }
            *name = file.to_owned();
        }
    }
    let is_pattern = |name: &str| name.contains(['*', '?']);
    let (mut files, mut numbers, mut tasks) = (Vec::new(), Numbers::default(), Numbers::default());
    for name in rows.iter().flat_map(|task| task.writes.iter().chain(&task.reads)) {
        if !is_pattern(name) && numbers.of(name).1 {
            files.push(DataFile { size: of_file(name, &sizes)?, name: name.clone() });
        }
    }
    for task in &rows {
        ensure!(tasks.of(&task.name).1, "two tasks have the name {}", task.name);
    }
    let names: Vec<&str> = rows.iter().map(|task| task.name.as_str()).collect();
    let file_names: Vec<&str> = files.iter().map(|file: &DataFile| file.name.as_str()).collect();
    let mut workflow = Workflow { name, files: files.clone(), ..Workflow::default() };
    for row in &rows {
        let of = |list: &[String], kind: &str, all: &[&str], numbers: &Numbers| {
            let mut found = Vec::new();
            for name in list {
                let glob = Glob::from(name.as_str());
                let before = found.len();
                match numbers.find(name) {
                    Some(number) => found.push(number),
                    None => found.extend((0..all.len()).filter(|at| is_pattern(name) && glob.fits(all[*at]))),
                }
                ensure!(found.len() > before, "the task {}: no {kind} is {name}", row.name);
            }
            let mut seen = HashSet::new();
            found.retain(|number| seen.insert(*number));
            Ok(found)
        };
        ensure!(row.processors > 0, "the task {}: processors must be above 0", row.name);
        if let Some(pattern) = row.writes.iter().find(|name| is_pattern(name)) {
            bail!("the task {} writes {pattern}: name each file", row.name);
        }
        let writes = of(&row.writes, "file", &file_names, &numbers)?;
        let named = of(&row.reads, "file", &file_names, &numbers)?;
        // A pattern does not take in what the task itself writes.
        let is_read = |file: &usize| !writes.contains(file) || row.reads.contains(&files[*file].name);
        let reads = named.into_iter().filter(is_read).collect();
        let compute = row.compute.as_deref().map_or(Ok(0.0), span_with_unit);
        workflow.tasks.push(Task {
            name: row.name.clone(),
            compute: Nanos::seconds(compute.map_err(|why| anyhow!("the task {}: {why}", row.name))?),
            processors: row.processors,
            reads,
            writes,
            after: of(&row.after, "task", &names, &tasks)?,
            block: row.block.as_ref().map_or(Ok(block), |text| of_block(&row.name, text))?,
            fsync: row.fsync,
        });
    }
    for name in sizes.keys() {
        let glob = Glob::from(name.as_str());
        let is_known = numbers.find(name).is_some() || file_names.iter().any(|file| glob.fits(file));
        ensure!(is_known, "no task reads or writes the file {name}");
    }
    workflow.follow_files();
    Ok(workflow)
}

/// The tasks of a row: one, or each with its number in its names.
fn numbered(row: &TaskText) -> anyhow::Result<Vec<TaskText>> {
    let Some(count) = row.count else {
        let names = [&row.reads[..], &row.writes, &row.after, std::slice::from_ref(&row.name)].concat();
        let numbered = names.iter().find(|name| name.contains("{}"));
        ensure!(numbered.is_none(), "the task {}: {{}} needs a count", row.name);
        return Ok(vec![row.clone()]);
    };
    let shared = row.writes.iter().find(|name| count > 1 && !name.contains("{}"));
    if let Some(name) = shared {
        bail!("the task {}: all of its tasks would write {name}; add {{}} to the name", row.name);
    }
    ensure!((1..=MAX).contains(&count), "the task {}: count must be 1 to {MAX}", row.name);
    ensure!(count == 1 || row.name.contains("{}"), "the task {}: with a count its name needs {{}}", row.name);
    let of = |number: usize| {
        let with = |name: &String| name.replace("{}", &number.to_string());
        let all = |names: &[String]| names.iter().map(with).collect();
        TaskText {
            name: with(&row.name),
            reads: all(&row.reads),
            writes: all(&row.writes),
            after: all(&row.after),
            ..row.clone()
        }
    };
    Ok((1..=count).map(of).collect())
}

fn of_block(whose: &str, text: &str) -> anyhow::Result<Bytes> {
    let bytes = size_above_zero(text).map_err(|why| anyhow!("{whose}: block: {why}"))?;
    ensure!(bytes <= 1 << 30, "{whose}: block: at most 1G");
    Ok(Bytes(bytes))
}

/// The size of a file: by its name, else by the one pattern that fits.
fn of_file(name: &str, sizes: &BTreeMap<String, String>) -> anyhow::Result<Bytes> {
    let mut fitting = sizes.iter().filter(|(pattern, _)| Glob::from(pattern.as_str()).fits(name));
    let text = match sizes.get(name) {
        Some(text) => text,
        None => match (fitting.next(), fitting.next()) {
            (Some((_, text)), None) => text,
            (Some((one, _)), Some((two, _))) => {
                bail!("the file {name} fits {one} and {two}: give it a size of its own")
            }
            _ => bail!("the file {name} has no size: add it under [files]"),
        },
    };
    size(text).map(Bytes).map_err(|why| anyhow!("the file {name}: {why}"))
}
