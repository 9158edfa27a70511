//! What runs already, by the names that people have for it: processes, units, containers, control groups.
//!
//! Nothing is kept: a unit that restarts has another control group, a container too. Engines of containers
//! are asked first, each for at most five seconds; where none answers, their folders of state tell.

mod container;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use cawl_core::host_text::cgroup;

/// Most folders of a hierarchy of control groups that are looked at.
const FOLDERS: usize = 1 << 16;

/// A program that is asked has this long to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// `PF_KTHREAD` (include/linux/sched.h).
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The name of something that runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A process, by its number.
    Process(u32),
    /// A unit of systemd, with or without its ending `.service`.
    Unit(String),
    /// A container, by its name or its id or the beginning of that.
    Container(String),
    /// A folder of a control group.
    Group(PathBuf),
}

/// What a name stands for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Control groups, of one hierarchy; empty for a process.
    pub groups: Vec<PathBuf>,
    /// The process itself, or all in those groups. Never empty.
    pub processes: Vec<u32>,
}

impl Name {
    /// What it stands for. The error says what to do: nothing runs by this name, or this process is part of
    /// it.
    pub fn find(&self) -> anyhow::Result<Found> {
        let system = System { root: "/".into() };
        let found = system.find(self)?;
        let own = std::process::id();
        match self {
            Name::Process(_) => ensure!(
                !ancestors(own).any(|pid| found.processes.contains(&pid)),
                "process {self} is one of those that started this one: follow one that is not, or start this from another \
                 terminal"
            ),
            _ => ensure!(
                !found.processes.contains(&own),
                "this process is in {self} itself, and would record its own calls: start it elsewhere, as by \
                 systemd-run --scope"
            ),
        }
        Ok(found)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Process(pid) => write!(f, "{pid}"),
            Name::Unit(name) => write!(f, "the unit {name}"),
            Name::Container(name) => write!(f, "the container {name}"),
            Name::Group(folder) => write!(f, "the control group {}", folder.display()),
        }
    }
}

/// All processes of a control group and of those below it, in order of their numbers.
pub fn processes(folder: &Path) -> Vec<u32> {
    let mut found = BTreeSet::new();
    for folder in below(folder) {
        let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    // That is what processes of another namespace of processes are called.
    found.remove(&0);
    found.into_iter().collect()
}

/// A process and those that led to it.
fn ancestors(pid: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(Some(pid), |pid| Some(crate::parent(*pid)).filter(|parent| *parent > 0))
}

/// A folder and all folders below it, level by level.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(folder) = found.get(at) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut folders: Vec<_> = folders.map(|entry| entry.path()).collect();
        folders.sort_unstable();
        found.extend(folders);
        at += 1;
        if found.len() > FOLDERS {
            break;
        }
    }
    found
}

/// The first line that a program prints; None if it is not there, fails or takes too long.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > ANSWERS_WITHIN {
            drop(child.kill());
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

/// A machine, or the folder that has the files of one.
struct System {
    root: PathBuf,
}

impl System {
    fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The program's answer, on this machine only.
    fn ask(&self, program: &str, arguments: &[&str]) -> Option<String> {
        if self.is_this_machine() { answer(program, arguments) } else { None }
    }

    /// Mount points of the hierarchies, the best first.
    fn hierarchies(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.path("proc/self/mountinfo")).unwrap_or_default();
        cgroup::mounts(&text).iter().map(|mount| self.path(mount)).collect()
    }

    fn find(&self, name: &Name) -> anyhow::Result<Found> {
        let (groups, idle) = match name {
            Name::Process(pid) => {
                return self.process(*pid).map(|()| Found { groups: Vec::new(), processes: vec![*pid] });
            }
            Name::Unit(unit) => (self.unit(unit)?, "start it"),
            Name::Container(container) => (self.container(container)?, "start it"),
            Name::Group(folder) => (vec![vec![self.group(folder)?]], "name one that has, or one above it"),
        };
        let found = groups.into_iter().find_map(|groups| {
            let processes: BTreeSet<u32> = groups.iter().flat_map(|folder| processes(folder)).collect();
            let processes: Vec<u32> = processes.into_iter().collect();
            (!processes.is_empty()).then_some(Found { groups, processes })
        });
        found.with_context(|| format!("{name} has no processes now; {idle}"))
    }

    /// An error unless it is a process of a program.
    fn process(&self, pid: u32) -> anyhow::Result<()> {
        let read = |file: &str| fs::read_to_string(self.path(&format!("proc/{pid}/{file}")));
        let Ok(stat) = read("stat") else {
            bail!("there is no process {pid}; ps -e lists those that run");
        };
        let leader = read("status").ok().and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            line.trim().parse::<u32>().ok()
        });
        if let Some(leader) = leader.filter(|leader| *leader != pid) {
            bail!("{pid} is a thread of the process {leader}; give that");
        }
        // The name is in parentheses and may contain anything.
        let (name, rest) = stat.rsplit_once(") ").unwrap_or_default();
        let name = name.split_once('(').map_or("", |(_, name)| name);
        let mut rest = rest.split(' ');
        ensure!(!matches!(rest.next(), Some("Z" | "X")), "the process {pid} ({name}) has ended");
        let flags = rest.nth(5).and_then(|flags| flags.parse::<u32>().ok()).unwrap_or(0);
        ensure!(
            flags & KERNEL_THREAD == 0,
            "{pid} ({name}) is a thread of the kernel, which makes no calls: name the process whose data it writes"
        );
        Ok(())
    }

    fn group(&self, folder: &Path) -> anyhow::Result<PathBuf> {
        let real = folder.canonicalize().with_context(|| {
            format!("there is no control group {}; they are folders below /sys/fs/cgroup", folder.display())
        })?;
        ensure!(
            real.join("cgroup.procs").is_file(),
            "{} is no control group; they are folders below /sys/fs/cgroup",
            folder.display()
        );
        Ok(real)
    }

    /// Control groups of a unit, by hierarchy.
    fn unit(&self, name: &str) -> anyhow::Result<Vec<Vec<PathBuf>>> {
        ensure!(!name.is_empty(), "give the unit's name");
        let file = if name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending)) {
            name.to_owned()
        } else {
            format!("{name}.service")
        };
        let path = self
            .ask("systemctl", &["show", "--property=ControlGroup", "--value", "--", &file])
            .unwrap_or_default();
        let mut found = Vec::new();
        for hierarchy in self.hierarchies() {
            let told = hierarchy.join(path.trim_start_matches('/'));
            // A group may be in some hierarchies only.
            if path.len() > 1 && told.is_dir() {
                found.push(vec![told]);
            }
        }
        if found.is_empty() {
            found = self.folders(|folder| folder == file);
        }
        // What sd_booted looks for.
        let remedy = match self.path("run/systemd/system").is_dir() {
            true => "systemctl list-units lists those that are",
            false => "systemd does not run here: name processes, or a control group with --cgroup",
        };
        ensure!(!found.is_empty(), "no unit {file} is running here; {remedy}");
        Ok(found)
    }

    /// Control groups of a container, by hierarchy.
    fn container(&self, name: &str) -> anyhow::Result<Vec<Vec<PathBuf>>> {
        ensure!(!name.is_empty(), "give the container's name or id");
        if name.len() == 64 && container::may_be_id(name) {
            return System::running(name, self.folders(|folder| container::id(folder) == Some(name)));
        }
        let id = container::asked(name, |program, arguments| self.ask(program, arguments));
        if let Some(id) = id.or_else(|| container::kept(&self.root, name)) {
            return System::running(name, self.folders(|folder| container::id(folder) == Some(&id)));
        }
        let is_of_runtime = container::is_of_runtime(&self.root, name);
        let named = self.folders(|folder| {
            container::is_named(folder, name) || is_of_runtime && container::is_of(folder, name)
        });
        if !named.is_empty() || !container::may_be_id(name) {
            return System::running(name, named);
        }
        let mut ids: BTreeSet<String> = BTreeSet::new();
        let found = self.folders(|folder| {
            let id = container::id(folder).filter(|id| id.starts_with(name));
            ids.extend(id.map(str::to_owned));
            id.is_some()
        });
        ensure!(ids.len() < 2, "the ids of {} containers begin with {name}; give more of it", ids.len());
        System::running(name, found)
    }

    fn running(name: &str, found: Vec<Vec<PathBuf>>) -> anyhow::Result<Vec<Vec<PathBuf>>> {
        let remedy = "docker ps, podman ps, nerdctl ps or crictl ps lists those that are";
        ensure!(!found.is_empty(), "no container {name} is running here; {remedy}");
        Ok(found)
    }

    /// Control groups whose folders have such a name, by hierarchy; not those below one of them.
    fn folders(&self, mut is_one: impl FnMut(&str) -> bool) -> Vec<Vec<PathBuf>> {
        let mut found = Vec::new();
        for hierarchy in self.hierarchies() {
            let mut here: Vec<PathBuf> = Vec::new();
            for folder in below(&hierarchy) {
                let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if !here.iter().any(|above| folder.starts_with(above)) && is_one(name) {
                    here.push(folder);
                }
            }
            if !here.is_empty() {
                found.push(here);
            }
        }
        found
    }
}

/// Endings of the units that have processes.
const ENDINGS: [&str; 6] = ["service", "slice", "scope", "socket", "mount", "swap"];

#[cfg(test)]
mod tests;
