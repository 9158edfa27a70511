//! `service`: drop-ins that make systemd start a service with the tracer.
//!
//! The law of this module: **a service starts as before, whatever happens to cawl.** Paths that may be
//! missing are marked optional, no service is restarted, and the drop-in lifts only the restrictions of the
//! unit that the tracer cannot work under, each with its reason.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use cawl_host::inspect;
use cawl_host::output;
use serde::Serialize;

use crate::args::{DisableArgs, EnableArgs, ServiceArgs, ServiceCommand, ServiceStatusArgs};
use crate::{exit, render, tracer};

mod unit;
use unit::Unit;

const DROP_IN: &str = "50-cawl.conf";
/// The folder of the administrator's units, below the root.
const UNITS: &str = "etc/systemd/system";
const SCHEMA: u32 = 1;

pub fn service(args: &ServiceArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ServiceCommand::Enable(args) => enable(args),
        ServiceCommand::Disable(args) => disable(args),
        ServiceCommand::Status(args) => status(args),
        ServiceCommand::Library(args) => {
            render::print(&format!("{}\n", tracer::install_lasting(&args.root)?.display()))
        }
    }
}

fn enable(args: &EnableArgs) -> anyhow::Result<ExitCode> {
    let (root, name) = (&args.root.root, unit::name(&args.unit)?);
    exit::usage(args.socket.is_absolute(), || {
        "the socket's path must be absolute, since services start elsewhere".to_owned()
    })?;
    let unit = Unit::read(root, &name, is_booted(root))?;
    let library = if args.print { tracer::lasting_path(root)? } else { tracer::install_lasting(root)? };
    let text = drop_in(&unit, &library, &args.socket)?;
    if args.print {
        return render::print(&text);
    }
    let path = place(root, &name);
    let folder = path.parent().context("a drop-in lies in a folder")?;
    fs::create_dir_all(folder).and_then(|()| output::write(&path, 0o644, text)).with_context(|| {
        format!("cannot write {}; do this as root, or use --print and write it yourself", path.display())
    })?;
    let mut told = format!("written: {}\n", path.display());
    if let Some(user) = user(&unit) {
        told += &format!("the daemon must allow its user: cawld --allow-user {user}\n");
    }
    for remark in remarks(&unit, root) {
        told += &format!("note: {remark}\n");
    }
    told += &after(root, &name)?;
    render::print(&told)
}

fn disable(args: &DisableArgs) -> anyhow::Result<ExitCode> {
    let (root, name) = (&args.root.root, unit::name(&args.unit)?);
    let path = place(root, &name);
    ensure!(path.exists(), "{name} is not enabled: there is no {}", path.display());
    fs::remove_file(&path).with_context(|| format!("cannot remove {}; do this as root", path.display()))?;
    if let Some(folder) = path.parent() {
        // The folder stays if it holds other drop-ins.
        drop(fs::remove_dir(folder));
    }
    render::print(&format!("removed: {}\n{}", path.display(), after(root, &name)?))
}

#[derive(Serialize)]
struct Enabled {
    unit: String,
    library: String,
    /// False if the library was removed: the service then runs untraced, and the dynamic linker prints an
    /// error.
    library_is_there: bool,
    socket: String,
}

fn status(args: &ServiceStatusArgs) -> anyhow::Result<ExitCode> {
    let root = &args.root.root;
    let mut services = Vec::new();
    for entry in fs::read_dir(root.join(UNITS)).into_iter().flatten().flatten() {
        let Some(unit) =
            entry.file_name().to_str().and_then(|name| name.strip_suffix(".d").map(str::to_owned))
        else {
            continue;
        };
        let Ok(text) = fs::read_to_string(entry.path().join(DROP_IN)) else { continue };
        let drop_in = Unit::parse(&text);
        let library = drop_in.variable("LD_PRELOAD").unwrap_or_default();
        let library = library.split(':').next().unwrap_or_default().to_owned();
        let library_is_there = below(root, Path::new(&library)).is_file();
        let socket = drop_in.variable("CAWL_SOCKET").unwrap_or_default();
        services.push(Enabled { unit, library, library_is_there, socket });
    }
    services.sort_by(|a, b| a.unit.cmp(&b.unit));
    let line = |service: &Enabled| {
        let Enabled { unit, library, socket, .. } = service;
        let is_there = if service.library_is_there { "" } else { " (missing: enable the service again)" };
        format!("{unit}\n  tracer  {library}{is_there}\n  socket  {socket}\n")
    };
    render::answer(args.json, &serde_json::json!({ "schema": SCHEMA, "services": services }), |_| {
        Ok(match services.is_empty() {
            true => "no service is enabled\n".to_owned(),
            false => services.iter().map(line).collect(),
        })
    })
}

/// Where the unit's drop-in lies.
fn place(root: &Path, name: &str) -> PathBuf {
    root.join(UNITS).join(format!("{name}.d")).join(DROP_IN)
}

/// An absolute path of the system below `root`.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// True if this system was booted with systemd.
fn is_booted(root: &Path) -> bool {
    root == Path::new("/") && Path::new("/run/systemd/system").is_dir()
}

/// The steps until the change takes effect; a running systemd is told to reload.
fn after(root: &Path, name: &str) -> anyhow::Result<String> {
    if !is_booted(root) {
        return Ok(format!("to take effect: systemctl daemon-reload && systemctl restart {name}\n"));
    }
    let reloaded = Command::new("systemctl").arg("daemon-reload").status();
    if !reloaded.is_ok_and(|status| status.success()) {
        bail!("systemctl daemon-reload failed; it must be done, then: systemctl restart {name}");
    }
    Ok(format!("systemd has read it (daemon-reload); to take effect: systemctl restart {name}\n"))
}

/// The user that the daemon must allow, unless that is root.
fn user(unit: &Unit) -> Option<String> {
    if unit.is_on("DynamicUser") {
        // The range of systemd's dynamic users.
        return Some("61184-65519".to_owned());
    }
    unit.last("User").filter(|user| user != "root" && user != "0")
}

/// The tracer's own system calls. A unit's filter may lack some, and would kill the service at them.
const CALLS: &str = "cachestat clock_gettime close connect faccessat fcntl fstat fstatfs ftruncate getcwd getdents64 \
                     geteuid getpid getppid getrusage getsockopt gettid getuid lseek madvise memfd_create mincore mlock2 \
                     mlockall mmap mprotect mremap munlock munmap name_to_handle_at nanosleep newfstatat openat ppoll prctl \
                     pread64 prlimit64 process_vm_readv process_vm_writev read readlinkat recvfrom \
                     rt_sigprocmask sendmsg setsockopt sigaltstack socket statx tgkill write";

fn drop_in(unit: &Unit, library: &Path, socket: &Path) -> anyhow::Result<String> {
    let text = |path: &Path| -> anyhow::Result<String> {
        let text = path.to_str().context("a path is not UTF-8")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@".contains(c);
        ensure!(
            text.chars().all(plain),
            "{text}: a path in a unit may have only letters, digits and . _ - + @"
        );
        Ok(text.to_owned())
    };
    let folder = |path: &Path| text(path.parent().unwrap_or(path));
    let (libraries, sockets) = (folder(library)?, folder(socket)?);
    let mut out =
        "# Written by `cawl-cli service enable`; `cawl-cli service disable` removes it.\n[Service]\n"
            .to_owned();
    let others = unit.variable("LD_PRELOAD").filter(|others| !others.is_empty());
    let others = others.map_or(String::new(), |others| format!(":{others}"));
    out += &format!("Environment=\"LD_PRELOAD={}{others}\"\n", text(library)?);
    out += &format!("Environment=CAWL_SOCKET={}\n", text(socket)?);
    // Many settings make systemd install filters, which refuse and do not kill, or allow the tracer's calls.
    out += "Environment=CAWL_FILTERS=any\n";
    // Bound only where the unit hides them: a bind costs the service a mount namespace.
    if unit.has_any(&["RootDirectory", "RootImage", "TemporaryFileSystem"]) {
        out += "# The unit has another root, or replaces folders by empty ones.\n";
        out += &format!("BindReadOnlyPaths=-{libraries}\nBindPaths=-{sockets}\n");
    }
    if unit.has_any(&["NoExecPaths"]) {
        out += "# The unit restricts the folders that libraries are loaded from.\n";
        out += &format!("ExecPaths=-{libraries}\n");
    }
    if unit.has_any(&["RestrictAddressFamilies"]) {
        out += "# The tracer connects to the daemon by a Unix socket.\nRestrictAddressFamilies=AF_UNIX\n";
    }
    if unit.has_any(&["SystemCallFilter"]) {
        out += "# The tracer's own system calls.\n";
        out += &format!("SystemCallFilter={CALLS}\n");
        if unit.last("SystemCallErrorNumber").is_none() {
            out += "# cachestat may be unknown to systemd: it must fail instead of ending the service.\n";
            out += "SystemCallErrorNumber=EPERM\n";
        }
    }
    Ok(out)
}

/// Remaining reasons why the service may not be traced.
fn remarks(unit: &Unit, root: &Path) -> Vec<String> {
    let mut remarks = Vec::new();
    for file in unit.all("EnvironmentFile") {
        let path = below(root, Path::new(file.trim_start_matches('-')));
        if fs::read_to_string(path).is_ok_and(|text| text.contains("LD_PRELOAD=")) {
            remarks.push(format!("{file} sets LD_PRELOAD and takes precedence: name the tracer there"));
        }
    }
    let hides = |path: &&str| ["/run", "/usr/local"].contains(&path.trim_start_matches(['-', '+']));
    if unit.all("InaccessiblePaths").iter().any(hides) {
        remarks.push("InaccessiblePaths= hides the tracer or the socket; remove that".to_owned());
    }
    let Some(command) = unit.last("ExecStart") else { return remarks };
    let program =
        command.split_whitespace().next().unwrap_or_default().trim_start_matches(['@', '-', ':', '+', '!']);
    if ["/bin/true", "/usr/bin/true"].contains(&program) {
        let why = "this unit starts no process; on Debian the database is postgresql@VERSION-NAME";
        remarks.push(why.to_owned());
    } else {
        let path = below(root, Path::new(program));
        if path.is_file() {
            let obstacles = inspect::program(&path).obstacles.into_iter();
            remarks.extend(obstacles.map(|why| format!("not traced: {why}")));
        }
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(unit: &str) -> String {
        drop_in(&Unit::parse(unit), Path::new("/lib/cawl/l.so"), Path::new("/run/cawl/s")).unwrap()
    }

    /// A system call missing in the filter would end the service.
    #[test]
    fn every_call_of_the_tracer_is_allowed() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cawl-preload/src");
        let mut found = 0;
        // What the hooks make is the program's own.
        let layers = ["base", "transport", "state", "state/descriptors", "session"];
        for entry in layers.iter().flat_map(|layer| fs::read_dir(sources.join(layer)).unwrap()) {
            let Ok(text) = fs::read_to_string(entry.unwrap().path()) else { continue };
            for call in text.split("libc::SYS_").skip(1) {
                let end = call.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(call.len());
                assert!(CALLS.split(' ').any(|allowed| allowed == &call[..end]), "{}", &call[..end]);
                found += 1;
            }
        }
        assert!(found > 30, "{found}");
        let tried = include_str!("../start.c");
        for call in CALLS.split(' ').filter(|call| *call != "cachestat") {
            assert!(tried.contains(&format!("SYS_{call},")), "{call} is not tried");
        }
    }

    #[test]
    fn a_plain_unit_needs_no_exceptions() {
        let text =
            of("[Unit]\nSystemCallFilter=x\n[Service]\nUser=redis\nPrivateTmp=yes\nProtectSystem=strict\n");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                "[Service]",
                "Environment=\"LD_PRELOAD=/lib/cawl/l.so\"",
                "Environment=CAWL_SOCKET=/run/cawl/s",
                "Environment=CAWL_FILTERS=any"
            ]
        );
    }

    #[test]
    fn what_a_unit_forbids_is_allowed_as_far_as_needed() {
        for (has, wants) in [
            ("TemporaryFileSystem=/:ro", "BindReadOnlyPaths=-/lib/cawl\nBindPaths=-/run/cawl\n"),
            ("RootDirectory=/srv/x", "BindReadOnlyPaths=-/lib/cawl\nBindPaths=-/run/cawl\n"),
            ("NoExecPaths=/", "ExecPaths=-/lib/cawl\n"),
            ("RestrictAddressFamilies=AF_INET", "RestrictAddressFamilies=AF_UNIX\n"),
            ("SystemCallFilter=@system-service", "SystemCallErrorNumber=EPERM\n"),
            ("Environment=A=b \"LD_PRELOAD=/x.so\"", "LD_PRELOAD=/lib/cawl/l.so:/x.so\"\n"),
        ] {
            let text = of(&format!("[Service]\n{has}\n"));
            assert!(text.contains(wants), "{has}: {text}");
        }
        assert!(!of("[Service]\nSystemCallFilter=a\nSystemCallErrorNumber=EACCES\n").contains("EPERM"));
    }

    #[test]
    fn strange_paths_are_refused() {
        for path in ["/a b/l.so", "/a%h/l.so", "/a\"/l.so", "/a\n/l.so"] {
            assert!(drop_in(&Unit::default(), Path::new(path), Path::new("/run/s")).is_err(), "{path:?}");
        }
    }
}
