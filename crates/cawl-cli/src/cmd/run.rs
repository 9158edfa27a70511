//! `run`: starts the program, runs the daemon, prints the report.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use cawl_client::protocol::{Request, RunEnd, RunProcess, RunSpec, RunStarted, Running};
use cawl_client::{address, query};
use cawl_core::{Glob, GroupBounds, HostProfile, MODELS, Outcome, Report, StackOptions};
use cawl_host::inspect::{self, Verdict};
use cawl_host::place::Place;
use cawl_host::profiles::{Chosen, Keeper};
use cawld::socket::{self, SocketFile};
use cawld::{Daemon, EngineOptions};
use nix::sys::signal::{self, Signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal as listen_for};
use tokio::task::JoinSet;

use super::{apart, read_profile};
use crate::args::{RunArgs, Try};
use crate::descendants::Family;
use crate::interrupt::{self, Stop};
use crate::meet::Devices;
use crate::start::Filters;
use crate::{exit, group, outputs, render, start, tracer};

/// Time limit for the report: the daemon first reads all calls that the program and its children sent.
const REPORT_WITHIN: Duration = Duration::from_secs(120);

/// Bytes of the names of programs that are left out, each with what parts it from the next: the tracer's room.
const EXCLUDED: usize = 512;

const GIVEN_UP: &str = "there is no report: interrupted twice";

/// Runs the program; returns its exit code, or dies by the signal that ended it.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(supervise(args));
    // Background processes may still hold a connection; it is closed here.
    runtime.shutdown_background();
    match ended? {
        Ended::Outcome(Outcome { signal: Some(number), .. }) => die_of(number),
        Ended::Outcome(outcome) => Ok(ExitCode::from(outcome.code.unwrap_or(0) as u8)),
        Ended::NotStarted(code) => Ok(ExitCode::from(code)),
    }
}

enum Ended {
    Outcome(Outcome),
    NotStarted(u8),
}

async fn supervise(args: &RunArgs) -> anyhow::Result<Ended> {
    apart(args.trace.as_deref(), args.report.as_deref())?;
    args.report.iter().try_for_each(|file| outputs::check(file, &outputs::report(file)))?;
    args.trace.iter().try_for_each(|file| outputs::check(file, &outputs::TRACE))?;
    let names = args.exclude.iter().map(|name| name.len() + 1).sum::<usize>();
    exit::usage(names <= EXCLUDED, || {
        format!("the names of --exclude are too long: at most {EXCLUDED} B in all")
    })?;
    let library = tracer::install()?;
    let mut spec = spec(args)?;
    let path = inspect::find(&args.command[0]);
    let verdict = path.map(|path| inspect::program(&path)).unwrap_or_default();
    let filters = Filters::look();
    let mut notes = notes(args, &verdict, filters);
    for note in tried(&args.tries) {
        render::tell(format_args!("cawl-cli: {note}"));
        notes.push(note);
    }
    let devices = Devices::of(&args.command);
    let chosen = profile(args, &devices, &mut notes);
    let (group, said) = group::bounds(devices.places(), chosen.profile.kernel.limits);
    spec.group = group;
    notes.extend(said);
    // What is learned of a changed program does not hold for another.
    let keeper = chosen.keeper.filter(|_| !args.no_save && args.tries.is_empty());
    let backend = Backend::start(args.socket.as_deref(), spec, chosen.profile, keeper, &mut notes).await?;
    // From here on signals are for the program: the terminal sends them to it, or this process forwards them.
    let mut forwarded = Vec::new();
    // A signal that was ignored at the start, as under nohup, stays ignored: the program inherits that, and a
    // handler set here would be reset to the default by its exec.
    let all = [FROM_TERMINAL.as_slice(), &TO_STOP, &OTHERS].concat();
    for kind in all.into_iter().filter(|kind| !cawl_host::is_ignored(kind.as_raw_value())) {
        forwarded.push((kind, interrupt::Sent::of(kind)?, listen_for(kind)?));
    }
    let pid = match start::start(&args.command, &variables(args, &library, &backend, &verdict, filters)) {
        Ok(pid) => pid,
        Err(error) => {
            let program = Path::new(&args.command[0]);
            backend.abandon().await;
            // That trace would have only facts about the machine.
            if let Some(trace) = &args.trace {
                drop(std::fs::remove_file(trace));
            }
            return Ok(Ended::NotStarted(not_started(program, &error, &verdict)));
        }
    };
    let kinds: Vec<SignalKind> = forwarded.iter().map(|(kind, ..)| *kind).collect();
    let kinds: Vec<SignalKind> = kinds.into_iter().filter(|kind| !OTHERS.contains(kind)).collect();
    let mut forwarding = forward(forwarded, pid);
    let outcome = tokio::task::spawn_blocking(move || wait(pid)).await??;
    forwarding.shutdown().await;
    // From here on signals are for this process.
    let mut stop = Stop::new(&kinds);
    let family = Family::new(&backend.path, backend.run);
    let running = if args.wait {
        // The answer implies that the program's own bytes are counted, so it can be reaped; a child may wait
        // for that.
        let counted = tokio::select! {
            _ = backend.running() => true,
            () = stop.asked() => false,
        };
        let _ = waitpid(pid, None);
        if counted { family.wait(|| backend.running(), &mut stop).await } else { family.running() }
    } else if args.no_children {
        Vec::new()
    } else {
        tokio::task::spawn_blocking(move || family.running()).await?
    };
    // Without --wait the program is not reaped yet, so the kernel's count of its bytes is still readable.
    let report = backend.finish(RunEnd { outcome: Some(outcome), notes, running }, &mut stop).await;
    // The program has ended, so this does not block. An error means that it was already reaped.
    let _ = waitpid(pid, None);
    // The program has run, so its exit code is returned even when the report fails.
    let delivered = report.and_then(|mut report| {
        report.notes.retain(|note| !is_excluded(note, &args.exclude));
        if report.calls == 0 && !args.only.is_empty() {
            let why =
                "no call fitted --only: a pattern is that of a whole path, as */src/*, or of a file's name";
            report.notes.push(why.to_owned());
        }
        // A report that cannot be written to its file goes to stderr.
        deliver(&report, args.report.as_deref(), args.long)
            .inspect_err(|_| drop(deliver(&report, None, args.long)))
    });
    if let Err(error) = delivered {
        render::tell(format_args!("cawl-cli: {error:#}"));
    }
    Ok(Ended::Outcome(outcome))
}

/// The terminal sends these to the whole group: the program has them already.
const FROM_TERMINAL: [SignalKind; 2] = [SignalKind::interrupt(), SignalKind::quit()];
const TO_STOP: [SignalKind; 2] = [SignalKind::terminate(), SignalKind::hangup()];
/// What these mean, each program says itself.
const OTHERS: [SignalKind; 3] =
    [SignalKind::user_defined1(), SignalKind::user_defined2(), SignalKind::alarm()];

/// Passes signals on to the program, until the tasks are shut down.
fn forward(signals: Vec<(SignalKind, interrupt::Sent, Signals)>, pid: Pid) -> JoinSet<()> {
    let mut forwarding = JoinSet::new();
    for (kind, sent, mut signals) in signals {
        forwarding.spawn(async move {
            while signals.recv().await.is_some() {
                let is_meant = sent.by_process() || !FROM_TERMINAL.contains(&kind);
                if is_meant && let Ok(signal) = Signal::try_from(kind.as_raw_value()) {
                    let _ = signal::kill(pid, signal);
                }
            }
        });
    }
    forwarding
}

/// The profile of the devices that the program may write to; devices without one are calibrated.
fn profile(args: &RunArgs, devices: &Devices, notes: &mut Vec<String>) -> Chosen {
    let mut chosen = devices.profile();
    // A named daemon has a profile of its own.
    if args.model.profile.is_some() || args.socket.is_some() {
        return chosen;
    }
    // Inside another run, that run has calibrated already, and would count the bytes of a calibration.
    let wanted = !args.no_calibrate && std::env::var_os("CAWL_RUN").is_none();
    if wanted
        && !chosen.unmet.is_empty()
        && inspect::find(&args.command[0]).is_some()
        && devices.measure(&chosen.unmet, notes)
    {
        chosen = devices.profile();
    }
    if wanted {
        devices.strangers(&chosen.unmet).for_each(name_stranger);
    }
    notes.extend(chosen.note.take());
    chosen
}

/// What is written there costs what it does on a disk until someone measures the mount.
fn name_stranger(place: &Place) {
    let (mount, folder) = (render::shown(&place.mount), place.folder.to_string_lossy());
    render::tell(format_args!(
        "cawl-cli: the mount {mount} ({}) is not measured, so its files count as on a disk: run 'cawl-cli calibrate \
         {}' once",
        place.filesystem,
        render::shown(&folder)
    ));
}

fn spec(args: &RunArgs) -> anyhow::Result<RunSpec> {
    let profile = args.model.profile.as_deref().map(read_profile).transpose()?;
    let trace = args.trace.as_ref().map(std::path::absolute).transpose()?;
    let typed: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    Ok(RunSpec {
        // The other models are baselines, and each costs the daemon as much time.
        models: args.model.models(vec![MODELS[0].to_owned()]),
        learn: args.learn == "on",
        profile: profile.map(|profile| profile.to_toml()),
        trace,
        command: Some(typed.join(" ")),
        only: args.only.clone(),
        classes: args.classes.bounds.clone(),
        group: GroupBounds::default(),
        stacks: args.stacks(),
    })
}

struct Backend {
    /// The daemon inside this process with its socket; None if one was named by --socket.
    inside: Option<(Daemon, SocketFile)>,
    path: PathBuf,
    run: u64,
}

impl Backend {
    /// `notes` gets remarks for the report.
    async fn start(
        socket: Option<&Path>,
        spec: RunSpec,
        profile: HostProfile,
        keeper: Option<Keeper>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Backend> {
        if let Some(path) = socket {
            let path = std::path::absolute(path)?;
            let RunStarted { run } = query::ask(&path, &Request::BeginRun(spec))?;
            return Ok(Backend { inside: None, path, run });
        }
        let (path, listener) = listen(notes)?;
        let socket = SocketFile(path.clone());
        let daemon = Daemon::start(listener, EngineOptions { keeper, ..EngineOptions::new(profile) })?;
        let run = daemon.begin_run(spec).await?;
        Ok(Backend { inside: Some((daemon, socket)), path, run })
    }

    /// The run's processes that are still running, as far as the daemon knows, after it has read all
    /// messages.
    async fn running(&self) -> anyhow::Result<Vec<RunProcess>> {
        if let Some((daemon, _)) = &self.inside {
            return daemon.running(self.run).await;
        }
        let (path, request) = (self.path.clone(), Request::Running { run: self.run });
        let answer = tokio::task::spawn_blocking(move || query::ask(&path, &request)).await?;
        answer.map(|running: Running| running.processes)
    }

    /// The report. The first request to stop returns it at once, the second one gives it up.
    async fn finish(self, end: RunEnd, stop: &mut Stop) -> anyhow::Result<Report> {
        let mut given_up = stop.clone();
        let given_up = async {
            given_up.asked().await;
            given_up.asked().await;
        };
        let Backend { inside, path, run } = self;
        if let Some((daemon, _socket)) = inside {
            return tokio::select! {
                report = daemon.end_run(run, end, stop.asked()) => report,
                () = given_up => Err(anyhow!(GIVEN_UP)),
            };
        }
        let ask = |now: bool| {
            let (path, request) = (path.clone(), Request::EndRun { run, now, end: end.clone() });
            tokio::task::spawn_blocking(move || query::ask_within(&path, &request, REPORT_WITHIN))
        };
        let mut patient = ask(false);
        let hurried = async {
            stop.asked().await;
            // If the run had already ended, the first question has the answer.
            match ask(true).await {
                Ok(Ok(report)) => report,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            report = hurried => Ok(report),
            report = &mut patient => report?,
            () = given_up => Err(anyhow!(GIVEN_UP)),
        }
    }

    /// Ends the run of a program that did not start; there is no report.
    async fn abandon(self) {
        if let Some((daemon, socket)) = self.inside {
            drop(socket);
            return drop(daemon.stop().await);
        }
        let request = Request::EndRun { run: self.run, now: false, end: RunEnd::default() };
        drop(tokio::task::spawn_blocking(move || query::ask::<Report>(&self.path, &request)).await);
    }
}

/// A socket for this run, in a folder of this user. Root's is open to all users, since programs that root
/// starts may become other users.
fn listen(notes: &mut Vec<String>) -> anyhow::Result<(PathBuf, UnixListener)> {
    let name = format!("cawl-run-{}.sock", std::process::id());
    if address::is_root() {
        let shared = Path::new(address::SHARED);
        match address::shared_directory(shared) {
            Ok(()) => {
                socket::sweep(shared);
                let path = shared.join(name);
                let listener = socket::listen_to_all(&path)?;
                return Ok((path, listener));
            }
            Err(error) => notes.push(format!(
                "not traced: processes that changed their user, which cannot reach the socket: {error}"
            )),
        }
    }
    let path = address::private_directory()
        .context("there is no private folder for the socket; set XDG_RUNTIME_DIR to one")?;
    socket::sweep(&path);
    let path = path.join(name);
    let listener = socket::listen(&path)?;
    Ok((path, listener))
}

fn variables(
    args: &RunArgs,
    library: &Path,
    backend: &Backend,
    verdict: &Verdict,
    filters: Filters,
) -> BTreeMap<&'static str, OsString> {
    let mut variables = BTreeMap::from([
        ("CAWL_SOCKET", backend.path.as_path().into()),
        ("CAWL_RUN", backend.run.to_string().into()),
    ]);
    // Each process would ask the kernel.
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if std::env::var_os("CAWL_CLOCK").is_none() && std::fs::read(source).is_ok_and(|name| name == b"tsc\n") {
        variables.insert("CAWL_CLOCK", "tsc".into());
    }
    if let Filters::Harmless(count) = filters {
        variables.insert("CAWL_FILTERS", count.to_string().into());
    }
    // musl's linker ends a program whose preloaded library it cannot load; glibc's 32-bit one prints an
    // error.
    if !verdict.must_not_preload {
        let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let list = preload(library, &before, verdict.sanitizer.as_deref());
        variables.insert("LD_PRELOAD", list);
    }
    if args.no_reads || args.all_reads {
        variables.insert("CAWL_READS", if args.no_reads { "0" } else { "all" }.into());
    }
    // Inside a run with --try, one without it is not to inherit that.
    if !args.tries.is_empty() || std::env::var_os("CAWL_TRY").is_some() {
        let words: Vec<&str> = args.tries.iter().map(|one| one.sent.as_str()).collect();
        variables.insert("CAWL_TRY", words.join(",").into());
    }
    // Inside a run that excludes programs, one that does not is not to inherit that.
    if !args.exclude.is_empty() || std::env::var_os("CAWL_EXCLUDE").is_some() {
        variables.insert("CAWL_EXCLUDE", args.exclude.join("/").into());
    }
    if args.no_children {
        variables.insert("CAWL_ONLY_CHILD_OF", std::process::id().to_string().into());
    }
    if args.lossless {
        variables.insert("CAWL_LOSSLESS", "1".into());
    }
    if let Some(StackOptions { threshold, one_in }) = args.stacks() {
        variables.insert("CAWL_STACKS", format!("{},{one_in}", threshold.get() as u64).into());
        // CPython from 3.12 on then says by which code it runs which function.
        if std::env::var_os("PYTHONPERFSUPPORT").is_none() {
            variables.insert("PYTHONPERFSUPPORT", "1".into());
        }
    } else if std::env::var_os("CAWL_STACKS").is_some() {
        // Inside a run with --stacks.
        variables.insert("CAWL_STACKS", "".into());
    }
    variables
}

/// What a reader must know of changes that were tried.
fn tried(tries: &[Try]) -> Vec<String> {
    if tries.is_empty() {
        return Vec::new();
    }
    let list: Vec<&str> = tries.iter().map(|one| one.told.as_str()).collect();
    let list = list.join(", ");
    let mut notes = vec![format!(
        "tried: {list}: the program runs changed (--try), the added calls are in the time of its own, and \
         nothing that is learned is kept"
    )];
    if tries.iter().any(|one| one.sent == "fsync=none") {
        let warning = "FSYNC AND FDATASYNC ARE NOT DONE (--try fsync=none): A CRASH OF THE MACHINE LOSES DATA \
                       THAT THE PROGRAM BELIEVES TO BE SAFE";
        notes.push(warning.to_owned());
    }
    notes
}

/// LD_PRELOAD with our library first, then its previous value. Only a sanitizer's runtime comes before it:
/// the user's own, or the one that the program needs. The latter is followed by two spaces, which tell the
/// tracer that it was added here (`hide_sanitizer` in cawl-preload).
fn preload(library: &Path, before: &OsStr, sanitizer: Option<&str>) -> OsString {
    let first = before.as_bytes().split(|byte| matches!(byte, b':' | b' ')).next().unwrap_or_default();
    let own = std::str::from_utf8(first).ok().filter(|first| inspect::is_sanitizer(first));
    let rest = OsStr::from_bytes(&before.as_bytes()[own.map_or(0, str::len)..]);
    let head = match (own, sanitizer) {
        (Some(own), _) => format!("{own}:"),
        (None, Some(sanitizer)) => format!("{sanitizer}  "),
        (None, None) => String::new(),
    };
    let colon = if own.is_none() && !rest.is_empty() { ":" } else { "" };
    [head.as_ref(), library.as_os_str(), colon.as_ref(), rest].join(OsStr::new(""))
}

fn not_started(path: &Path, error: &std::io::Error, verdict: &Verdict) -> u8 {
    let (why, code) = match error.kind() {
        // The file exists, so its interpreter is missing.
        ErrorKind::NotFound if path.components().nth(1).is_some() && path.exists() => {
            ("cannot be executed: the interpreter it names does not exist".to_owned(), exit::CANNOT_EXECUTE)
        }
        ErrorKind::NotFound => ("no such program; check the spelling and PATH".to_owned(), exit::NOT_FOUND),
        _ if error.raw_os_error() == Some(nix::libc::ENOEXEC) && !verdict.obstacles.is_empty() => {
            render::tell(format_args!("cawl-cli: {}", render::shown(&verdict.obstacles[0])));
            return exit::CANNOT_EXECUTE;
        }
        _ => (format!("cannot be executed: {error}"), exit::CANNOT_EXECUTE),
    };
    render::tell(format_args!("cawl-cli: {}: {why}", render::shown(&path.to_string_lossy())));
    code
}

/// Waits for the program to end and leaves it as a zombie.
fn wait(pid: Pid) -> anyhow::Result<Outcome> {
    loop {
        let number = pid.as_raw() as u32;
        // The counters of a zombie include those of all children it waited for.
        let outcome =
            |code, signal| Outcome { pid: number, code, signal, wchar: cawl_host::wchar(number).process };
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(outcome(Some(code), None)),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(outcome(None, Some(signal as i32))),
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the program"),
        }
    }
}

/// True if a note says that a program was not traced which was not to be traced.
fn is_excluded(note: &str, exclude: &[String]) -> bool {
    let name =
        note.strip_prefix("not traced: ").and_then(|rest| rest.split_once(": its tracer did not report"));
    let name = name.and_then(|(path, _)| path.rsplit('/').next());
    name.is_some_and(|name| exclude.iter().any(|excluded| excluded == name))
}

/// Remarks for the report that only this process knows.
fn notes(args: &RunArgs, verdict: &Verdict, filters: Filters) -> Vec<String> {
    let mut notes = Vec::new();
    if filters == Filters::Deadly {
        let why = "not traced: `cawl-cli run` is under a filter of system calls (seccomp) that would end the program \
                   for the tracer's; allow those that docs/reference/HOOKS.md lists, or run it outside";
        notes.push(why.to_owned());
    }
    if args.no_children {
        notes.push("only the program itself was traced, not the processes it started (--no-children)".into());
    }
    if !args.only.is_empty() {
        let globs: Vec<String> = args.only.iter().map(Glob::to_string).collect();
        notes.push(format!("recorded were only calls on files that fit {} (--only)", globs.join(" or ")));
    }
    if !args.exclude.is_empty() {
        notes.push(format!("programs of the name {} are not traced (--exclude)", args.exclude.join(" or ")));
    }
    if args.lossless {
        let why =
            "the program waited whenever the daemon was behind, so its times may be too long (--lossless)";
        notes.push(why.to_owned());
    }
    notes.extend(verdict.obstacles.iter().map(|why| format!("not traced: {why}")));
    notes.extend(verdict.remarks.iter().cloned());
    notes
}

fn deliver(report: &Report, file: Option<&Path>, long: bool) -> anyhow::Result<()> {
    let text = |terminal| render::explain::report(report, long, terminal);
    let Some(path) = file else {
        let terminal = std::io::stderr().is_terminal();
        render::draw(&render::page(&text(terminal), terminal));
        return Ok(());
    };
    render::file::write(report, path, text)?;
    // What goes elsewhere is the program's alone.
    if std::io::stderr().is_terminal() {
        render::draw(&render::page(&render::explain::first_lines(report, path, true), true));
    }
    Ok(())
}

/// Ends this process by the signal that ended the program, so that the parent sees the same status.
fn die_of(number: i32) -> anyhow::Result<ExitCode> {
    // One core dump is enough.
    let _ = nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_CORE, 0, 0);
    drop(signal_hook::low_level::emulate_default_handler(number));
    if let Ok(signal) = Signal::try_from(number) {
        let _ = signal::raise(signal);
    }
    // A signal that does not end this process (a real-time one): the exit code of a shell.
    Ok(ExitCode::from(128_u8.saturating_add(number as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_preloads_stay_behind_ours() {
        let ours = Path::new("/c/lib.so");
        for (before, sanitizer, wanted) in [
            ("", None, "/c/lib.so"),
            ("/a.so:/b.so", None, "/c/lib.so:/a.so:/b.so"),
            ("", Some("libasan.so.8"), "libasan.so.8  /c/lib.so"),
            ("/a.so", Some("libasan.so.8"), "libasan.so.8  /c/lib.so:/a.so"),
            ("/l/libasan.so.6 /a.so", Some("libasan.so.8"), "/l/libasan.so.6:/c/lib.so /a.so"),
            ("libasan.so.6", None, "libasan.so.6:/c/lib.so"),
        ] {
            assert_eq!(preload(ours, before.as_ref(), sanitizer), wanted);
        }
    }
}
