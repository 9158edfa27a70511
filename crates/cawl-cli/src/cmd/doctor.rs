//! `doctor`: says before a run what will be traced, what will not, and why.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cawl_client::address;
use cawl_core::Release;
use cawl_host::cgroup::{Group, Version};
use cawl_host::{allowance, inspect, profiles};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::render::shown;
use crate::{exit, render, tracer};

const SCHEMA: u32 = 1;

#[derive(Default, Serialize)]
struct Findings {
    schema: u32,
    /// True if the program will be traced; without a program, if any program can be.
    traced: bool,
    /// By what.
    via: Option<Via>,
    program: Option<PathBuf>,
    /// The started file, then the interpreters that run it.
    chain: Vec<PathBuf>,
    /// Why the library does not trace the program.
    obstacles: Vec<String>,
    /// Parts of its work that will not be seen.
    remarks: Vec<String>,
    /// What tracing needs on this machine.
    machine: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: &'static str,
    state: State,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Fine,
    /// Tracing works, but something is missing.
    Note,
    /// Nothing can be traced.
    Bad,
}

/// What traces a program.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Via {
    /// The library under LD_PRELOAD.
    Library,
    /// Probes in the kernel.
    Kernel,
}

pub fn doctor(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let mut findings = Findings { schema: SCHEMA, machine: machine(), ..Findings::default() };
    let mut needs_kernel = false;
    if let Some(name) = args.command.first() {
        let Some(path) = inspect::find(name) else {
            let name = name.to_string_lossy();
            let name = shown(&name);
            render::tell(format_args!("cawl-cli: {name}: no such program; check the spelling and PATH"));
            return Ok(ExitCode::from(exit::NOT_FOUND));
        };
        let verdict = inspect::program(&path);
        needs_kernel = verdict.needs_kernel;
        findings.program = Some(path);
        (findings.chain, findings.obstacles, findings.remarks) =
            (verdict.chain, verdict.obstacles, verdict.remarks);
    }
    if let Some(why) = allowance::few_files() {
        findings.obstacles.push(why.to_owned());
        needs_kernel = false;
    }
    let is_fine = findings.machine.iter().all(|check| check.state != State::Bad);
    findings.via =
        match (findings.obstacles.is_empty(), needs_kernel && cawld::kernel::unavailable().is_none()) {
            (true, _) if is_fine => Some(Via::Library),
            (false, true) if is_fine => Some(Via::Kernel),
            _ => None,
        };
    findings.traced = findings.via.is_some();
    let printed = render::answer(args.json, &findings, |terminal| Ok(text(&findings, terminal)))?;
    Ok(if findings.traced { printed } else { ExitCode::from(exit::FAILED) })
}

fn text(findings: &Findings, terminal: bool) -> String {
    let mut out = String::new();
    let mut line = |name: &str, text: &str| out += &render::named(name, 17, text, terminal);
    for (index, path) in findings.chain.iter().enumerate() {
        let role = if index == 0 { "program" } else { "started by it" };
        line(role, &shown(&path.to_string_lossy()));
    }
    for obstacle in &findings.obstacles {
        let by_library = findings.via == Some(Via::Kernel);
        let name = if by_library { "no library" } else { "not traced" };
        line(name, &render::warn_if(&shown(obstacle), !by_library, terminal));
    }
    for remark in &findings.remarks {
        line("not seen", &shown(remark));
    }
    for check in &findings.machine {
        line(check.name, &render::warn_if(&shown(&check.text), check.state != State::Fine, terminal));
    }
    out += match (findings.via, &findings.program) {
        (Some(Via::Library), Some(_)) => "It will be traced.\n",
        (Some(Via::Kernel), Some(_)) => "It will be traced by probes in the kernel.\n",
        (Some(_), None) => "Programs can be traced here.\n",
        (None, Some(_)) => "It will not be traced.\n",
        (None, None) => "Nothing can be traced here.\n",
    };
    out
}

fn machine() -> Vec<Check> {
    let mut checks = vec![sockets(), library()];
    checks.extend(preloads());
    checks.push(kernel());
    checks.extend(cawl_host::lru_gen().then(reclaim));
    checks.extend([probes(), coverage(), limits()]);
    checks.extend(group());
    checks.push(profile());
    checks
}

fn check(name: &'static str, state: State, text: impl Display) -> Check {
    Check { name, state, text: text.to_string() }
}

fn sockets() -> Check {
    // Root uses the shared folder, since its programs may change their user.
    let folder = match address::shared_directory(Path::new(address::SHARED)) {
        Ok(()) => Ok(address::SHARED.into()),
        Err(_) => address::private_directory(),
    };
    match folder {
        Ok(folder) => check("sockets", State::Fine, format_args!("in {}", folder.display())),
        Err(error) => {
            let why = format_args!("no private folder: {error}; set XDG_RUNTIME_DIR to one");
            check("sockets", State::Bad, why)
        }
    }
}

fn library() -> Check {
    match tracer::install() {
        Ok(path) => check("tracer", State::Fine, path.display()),
        Err(error) => check("tracer", State::Bad, format_args!("{error:#}")),
    }
}

/// Other libraries that are preloaded too.
fn preloads() -> Vec<Check> {
    let list = std::env::var("LD_PRELOAD").unwrap_or_default();
    let libraries = list.split([' ', ':']).filter(|path| !path.is_empty());
    let mut checks: Vec<Check> = libraries.map(preload).collect();
    if std::fs::read_to_string("/etc/ld.so.preload").is_ok_and(|text| !text.trim().is_empty()) {
        checks.push(check("preload", State::Note, "/etc/ld.so.preload names libraries for every program"));
    }
    checks
}

fn preload(path: &str) -> Check {
    const TRACERS: [&str; 5] = ["darshan", "dftracer", "recorder", "lttng", "siox"];
    let lower = path.to_lowercase();
    let remark = if path.contains("libcawl-") {
        "is a tracer of cawl: this shell is itself traced"
    } else if lower.contains("eatmydata") {
        "makes fsync do nothing, so its cost is not seen"
    } else if TRACERS.iter().any(|name| lower.contains(name)) {
        "traces too: the times include its cost"
    } else if path.contains('/') && !Path::new(path).exists() {
        "is missing; the dynamic linker will print an error"
    } else {
        return check("preload", State::Fine, format_args!("{path} is loaded after the tracer"));
    };
    check("preload", State::Note, format_args!("{path} {remark}"))
}

fn kernel() -> Check {
    let mut release = cawl_host::facts().kernel;
    if let Some(remark) = cawl_host::release().and_then(Release::remark) {
        release += &format!(" ({remark})");
    }
    if cawl_core::host_text::version(&release) >= (6, 5) {
        return check("kernel", State::Fine, format_args!("{release}, stores to mappings by cachestat"));
    }
    let text = "before 6.5 there is no cachestat, stores to mappings are guessed from smaps";
    check("kernel", State::Note, format_args!("{release}: {text}"))
}

fn reclaim() -> Check {
    check("reclaim", State::Fine, "by the multi-generational LRU, whose law the model goes by here")
}

fn probes() -> Check {
    match cawld::kernel::unavailable() {
        None => check("probes", State::Fine, "in the kernel: attach, and run of what loads no library"),
        Some(why) => check("probes", State::Note, format_args!("no attach: {why}")),
    }
}

fn coverage() -> Check {
    match cawl_host::wchar(std::process::id()).process {
        Some(_) => check("coverage", State::Fine, "/proc/PID/io counts what is written"),
        None => {
            let why = "/proc/PID/io cannot be read here, so reports cannot tell how much was seen";
            check("coverage", State::Note, why)
        }
    }
}

fn limits() -> Check {
    let Some(sample) = cawl_host::sample() else {
        let text = "/proc/vmstat does not have them (a container?), so predictions use defaults";
        return check("dirty limits", State::Note, text);
    };
    let limits = sample.limits(cawl_host::page());
    let (background, hard) = (limits.background.0 >> 20, limits.hard.0 >> 20);
    check("dirty limits", State::Fine, format_args!("background {background} MiB, hard {hard} MiB"))
}

/// What the control group of a program started here means for its dirty pages, if memory is limited there.
fn group() -> Option<Check> {
    let group = Group::of(None)?;
    let (name, most) = group.limit()?;
    let machine = cawl_host::sample().map(|sample| sample.limits(cawl_host::page()));
    let limits = machine.and_then(|machine| group.dirty_limits(machine));
    let meaning = match limits {
        Some(limits) => {
            format!("dirty limits {} and {} MiB", limits.background.0 >> 20, limits.hard.0 >> 20)
        }
        None if group.version == Version::One => {
            "version 1, in which writeback does not know groups: the machine's dirty limits hold".to_owned()
        }
        None => "the machine's dirty limits hold".to_owned(),
    };
    Some(check("cgroup", State::Fine, format_args!("{}: {name} {} MiB, {meaning}", group.path, most.0 >> 20)))
}

fn profile() -> Check {
    let chosen = profiles::choose(Path::new("."));
    match (chosen.file, chosen.note) {
        (Some(file), None) => check("profile", State::Fine, file.display()),
        (Some(file), Some(note)) => check("profile", State::Note, format_args!("{}: {note}", file.display())),
        (None, Some(note)) => check("profile", State::Note, note),
        (None, None) => {
            let why = "none: this machine's limits with default speeds; `cawl-cli calibrate` makes one";
            check("profile", State::Note, why)
        }
    }
}
