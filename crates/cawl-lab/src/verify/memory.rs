//! Memory that is short: what of its files a program has in the page cache in a control group with a limit,
//! as the kernel tells (fincore of util-linux), and as the model does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use cawl_core::{Bytes, CostModel, Kernel, Record, Time, host_text};
use cawl_wire::FileId;

use super::traces::{keep_names, recorded};
use super::{Bench, Figure, name_of};
use crate::command::{self, Lacking, run};
use crate::uml::quoted;

/// What the group may have, in MiB.
const LIMIT: u64 = 400;
const MIB: u64 = 1 << 20;

/// A program in a group of its own.
struct Scenario {
    name: &'static str,
    /// Files that are there before, and not cached, with their lengths in MiB.
    files: &'static [(&'static str, u64)],
    program: &'static str,
}

const TWICE: &str = "dd if=a of=/dev/null bs=1M; dd if=a of=/dev/null bs=1M";
const SCENARIOS: [Scenario; 4] = [
    Scenario { name: "too-long", files: &[("a", 600)], program: TWICE },
    Scenario { name: "fits", files: &[("a", 200)], program: TWICE },
    Scenario {
        name: "read-twice",
        files: &[("a", 100), ("b", 900)],
        program: "dd if=a of=/dev/null bs=1M; dd if=a of=/dev/null bs=1M; dd if=b of=/dev/null bs=1M",
    },
    Scenario {
        name: "written",
        files: &[],
        program: "dd if=/dev/zero of=a bs=1M count=600; sync a; dd if=a of=/dev/null bs=1M count=100",
    },
];

/// What is cached of each file, in bytes.
pub type Cached = BTreeMap<String, u64>;

/// Each scenario's files in the model's cache beside what the kernel has of them, in MiB.
pub(super) fn group(bench: &Bench) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for scenario in &SCENARIOS {
        let out = tempfile::tempdir_in("/var/tmp")?;
        let trace = out.path().join("trace");
        let told = make(bench, scenario, out.path(), &trace)?;
        if let Some(folder) = bench.recordings()? {
            keep_names(&trace, &folder.join(format!("memory-{}.cawl", scenario.name)))?;
            let text = serde_json::to_string(&told)?;
            fs::write(folder.join(format!("memory-{}.json", scenario.name)), text + "\n")?;
        }
        let modelled = modelled(&trace)?;
        for (file, bytes) in &told {
            let mib = |bytes: u64| bytes as f64 / MIB as f64;
            let found = modelled.get(file).copied().unwrap_or(0);
            let what = format!("{}: {file} in the model's cache, MiB", scenario.name);
            figures.push(Figure::new(what, mib(*bytes), mib(found), 0.0, TOLERANCE));
        }
    }
    Ok(figures)
}

/// How far the model may be off, in MiB: what the programs have beside their files, and a block.
pub const TOLERANCE: f64 = 0.05 * LIMIT as f64;

/// Runs a scenario in a group of its own, traced; what the kernel then has of its files.
fn make(bench: &Bench, scenario: &Scenario, out: &Path, trace: &Path) -> anyhow::Result<Cached> {
    for (name, length) in scenario.files {
        let file = out.join(name);
        shell(out, &format!("dd if=/dev/zero of={name} bs=1M count={length} status=none; sync {name}"))?;
        shell(out, &format!("dd if={name} iflag=nocache count=0 status=none"))?;
        ensure!(cached(&file)? == 0, "{} stays in the page cache", file.display());
    }
    let group = Group::new()?;
    let quoted = |path: &Path| quoted(&path.to_string_lossy());
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec {} run --no-save --trace {} -- sh -c '{}'",
        quoted(&group.0),
        quoted(&bench.cli),
        quoted(trace),
        scenario.program
    );
    shell(out, &script)?;
    let names = fs::read_dir(out)?.collect::<Result<Vec<_>, _>>()?;
    let files = names.iter().map(|entry| entry.path()).filter(|path| path != trace);
    files.map(|path| Ok((name_of(&path), cached(&path)?))).collect()
}

fn shell(folder: &Path, script: &str) -> anyhow::Result<()> {
    run(Command::new("sh").args(["-c", script]).current_dir(folder)).map(drop)
}

/// Bytes of a file in the page cache.
fn cached(file: &Path) -> anyhow::Result<u64> {
    let fincore = command::need(&[("fincore", "util-linux-extra")])?.remove(0);
    let text = run(Command::new(fincore).args(["-b", "-n", "-o", "RES"]).arg(file))?;
    text.trim().parse().with_context(|| format!("fincore says `{}`", text.trim()))
}

/// A group with a limit, removed in the end.
struct Group(PathBuf);

impl Group {
    fn new() -> anyhow::Result<Group> {
        let text = fs::read_to_string("/proc/self/mountinfo")?;
        let [unified, memory] = host_text::cgroup::hierarchies(&text);
        let (mount, limit) = match (memory, unified) {
            (Some(memory), _) => (memory.mount, "memory.limit_in_bytes"),
            (None, Some(unified)) => (unified.mount, "memory.max"),
            (None, None) => return Err(Lacking("control groups".to_owned()).into()),
        };
        let folder = Path::new(&mount).join(format!("cawl-lab-{}", std::process::id()));
        let lacking = |error: std::io::Error| Lacking(format!("{}: {error}", folder.display()));
        fs::create_dir(&folder).map_err(lacking)?;
        let group = Group(folder.clone());
        fs::write(folder.join(limit), (LIMIT * MIB).to_string()).map_err(lacking)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{} is left: {error}", self.0.display());
        }
    }
}

/// What the kernel model has in its cache of each file at the end of a trace, in lockstep, in bytes.
pub fn modelled(trace: &Path) -> anyhow::Result<Cached> {
    let (records, profile) = recorded(trace)?;
    let mut model = Kernel::new(&profile);
    let mut names: BTreeMap<FileId, String> = BTreeMap::new();
    for record in &records {
        match record {
            Record::Host(host) => model.meet_filesystems(&host.filesystems),
            Record::Memory(memory) => model.free_memory(memory),
            Record::File(file) => {
                names.insert(file.file(), name_of(Path::new(&file.path)));
            }
            Record::Event(event) => {
                model.follow(event, Time(event.end()));
            }
            _ => {}
        }
    }
    let mut cached = Cached::new();
    for (file, name) in names {
        let Bytes(bytes) = model.cached(file);
        *cached.entry(name).or_default() += bytes;
    }
    Ok(cached)
}
