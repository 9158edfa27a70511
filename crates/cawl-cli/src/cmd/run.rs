//! `run`: starts the program, runs the daemon, prints the report.

mod environment;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use cawl_client::protocol::RunEnd;
use cawl_core::{Outcome, host_text};
use cawl_host::allowance;
use cawl_host::cgroup::Group;
use cawl_host::inspect::{self, Verdict};
use cawl_host::place::Place;
use cawl_host::profiles::Chosen;
use cawld::kernel::{Attached, Target};
use nix::sys::resource::Resource;
use nix::sys::signal::{self, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal as listen_for};
use tokio::task::JoinSet;

use super::recording::{self, Backend};
use crate::args::{RunArgs, Try, Via};
use crate::descendants::Family;
use crate::interrupt::{self, Stop};
use crate::meet::Devices;
use crate::start::{Filters, Waiting};
use crate::{exit, group, render, start, tracer};
use environment::variables;

/// Bytes of the names of programs that are left out, each with what parts it from the next: the tracer's
/// room.
const EXCLUDED: usize = 512;

/// Runs the program; returns its exit code, or dies by the signal that ended it.
pub fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let runtime = recording::runtime()?;
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
    recording::check(&args.record)?;
    let names = args.exclude.iter().map(|name| name.len() + 1).sum::<usize>();
    exit::usage(names <= EXCLUDED, || {
        format!("the names of --exclude are too long: at most {EXCLUDED} B in all")
    })?;
    let of_library = args.of_library();
    exit::usage(args.via != Via::Kernel || of_library.is_empty(), || {
        format!("only the tracer's library can do {}; leave out --via kernel", of_library.join(" and "))
    })?;
    let typed: Vec<_> = args.command.iter().map(|word| host_text::name(word.as_bytes())).collect();
    let mut spec = recording::spec(&args.record, typed.join(" "))?;
    spec.stacks = args.stacks();
    let path = inspect::find(&args.command[0]);
    let mut verdict = path.map(|path| inspect::program(&path)).unwrap_or_default();
    let few = allowance::few_files().filter(|_| args.via != Via::Kernel);
    verdict.obstacles.extend(few.map(str::to_owned));
    let filters = Filters::current();
    let mut notes = notes(args, filters);
    for note in tried(&args.tries) {
        render::tell(format_args!("cawl-cli: {note}"));
        notes.push(note);
    }
    if let Some(why) = cawld::kernel::unavailable().filter(|_| args.via == Via::Kernel) {
        anyhow::bail!(why);
    }
    let remedy = few.map(|_| String::new()).or_else(|| remedy(args, &verdict));
    // What goes elsewhere is the program's alone.
    let is_ours = args.record.report.is_none() || io::stderr().is_terminal();
    if let (true, Some(remedy), Some(why)) = (is_ours, &remedy, verdict.obstacles.first()) {
        render::tell(format_args!("cawl-cli: not traced: {}", render::shown(&format!("{why}{remedy}"))));
    }
    let devices = Devices::of(&args.command);
    let chosen = profile(args, &devices, remedy.is_none(), &mut notes);
    let (group, said) = group::bounds(Group::of(None), devices.places(), chosen.profile.kernel.limits);
    spec.group = group;
    notes.extend(said);
    spec.deleted = devices.deleted();
    // What is learned of a changed program does not hold for another.
    let keeper = chosen.keeper.filter(|_| !args.record.no_save && args.tries.is_empty());
    let backend = Backend::start(args.socket.as_deref(), spec, chosen.profile, keeper, &mut notes).await?;
    // From here on signals are for the program: the terminal sends them to it, or this process forwards them.
    let mut forwarded = Vec::new();
    // A signal that was ignored at the start, as under nohup, stays ignored: the program inherits that, and a
    // handler set here would be reset to the default by its exec.
    let all = [FROM_TERMINAL.as_slice(), &TO_STOP, &OTHERS].concat();
    for kind in all.into_iter().filter(|kind| !cawl_host::is_ignored(kind.as_raw_value())) {
        forwarded.push((kind, interrupt::Sent::of(kind)?, listen_for(kind)?));
    }
    let (pid, probes) = match begin(args, &backend, &verdict, remedy, filters, &mut notes).await {
        Ok(begun) => begun,
        Err(error) => {
            backend.abandon().await;
            recording::forget(&args.record);
            return match error {
                NotBegun::NotStarted(error) => {
                    Ok(Ended::NotStarted(not_started(Path::new(&args.command[0]), &error, &verdict)))
                }
                NotBegun::NotSeen(error) => Err(error),
            };
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
    let mut running = Vec::new();
    if args.wait {
        // The answer implies that the program's own bytes are counted, so it can be reaped; a child may wait
        // for that.
        let counted = tokio::select! {
            _ = backend.running() => true,
            () = stop.asked() => false,
        };
        let _ = waitpid(pid, None);
        running = match &probes {
            Some(probes) => {
                tokio::select! {
                    () = probes.first.ended() => {}
                    () = stop.asked() => {}
                }
                Vec::new()
            }
            None if counted => family.wait(|| backend.running(), &mut stop).await,
            None => family.running(),
        };
    } else if probes.is_none() && !args.no_children {
        running = tokio::task::spawn_blocking(move || family.running()).await?;
    }
    // What they still followed is named by the sessions that end with them.
    if let Some(probes) = probes {
        notes.extend(recording::detach(probes, &stop).await);
    }
    // Without --wait the program is not reaped yet, so the kernel's count of its bytes is still readable.
    let report = backend.finish(RunEnd { outcome: Some(outcome), notes, running }, &mut stop).await;
    // The program has ended, so this does not block. An error means that it was already reaped.
    let _ = waitpid(pid, None);
    // The program has run, so its exit code is returned even when the report fails.
    let delivered = report.and_then(|mut report| {
        report.notes.retain(|note| !is_excluded(note, &args.exclude));
        recording::deliver(report, &args.record, true)
    });
    if let Err(error) = delivered {
        render::tell(format_args!("cawl-cli: {}", allowance::with_remedy(&error)));
    }
    Ok(Ended::Outcome(outcome))
}

/// Why there is no program to wait for.
enum NotBegun {
    NotStarted(io::Error),
    /// The library, or the probes that were wanted.
    NotSeen(anyhow::Error),
}

impl From<io::Error> for NotBegun {
    fn from(error: io::Error) -> NotBegun {
        NotBegun::NotStarted(error)
    }
}

/// Of a program that neither the library nor, as is known before it runs, the probes will see: what would.
fn remedy(args: &RunArgs, verdict: &Verdict) -> Option<String> {
    let needs = args.of_library();
    match args.via {
        Via::Kernel => None,
        _ if !verdict.needs_kernel => None,
        Via::Preload => Some("; --via kernel would see it".to_owned()),
        Via::Auto if !needs.is_empty() => {
            Some(format!("; probes in the kernel would see it, without {}", needs.join(" and ")))
        }
        Via::Auto => cawld::kernel::unavailable().map(|why| would(&why)),
    }
}

fn would(why: &str) -> String {
    format!("; probes in the kernel would see it: {why}")
}

/// Starts the program. Probes in the kernel see it from its first instruction where the library cannot, or
/// where that is wanted; a note says by what it is seen, unless by the library.
async fn begin(
    args: &RunArgs,
    backend: &Backend,
    verdict: &Verdict,
    mut remedy: Option<String>,
    filters: Filters,
    notes: &mut Vec<String>,
) -> Result<(Pid, Option<Attached>), NotBegun> {
    let by_kernel = args.via == Via::Kernel || verdict.needs_kernel && remedy.is_none();
    if let Some(path) = inspect::find(&args.command[0]).filter(|_| by_kernel) {
        let waiting = Waiting::new(&path, &args.command, &BTreeMap::new())?;
        let target = Target { from_exec: vec![waiting.pid()], ..Target::default() };
        match backend.attach(target).await {
            Ok(probes) => {
                let pid = waiting.go()?;
                let by = if verdict.needs_kernel { "seen by probes in the kernel" } else { "not traced" };
                notes.extend(verdict.obstacles.iter().map(|why| format!("{by}: {why}")));
                return Ok((pid, Some(probes)));
            }
            Err(error) if args.via == Via::Kernel => return Err(NotBegun::NotSeen(error)),
            Err(error) => remedy = Some(would(&format!("{error:#}"))),
        }
    }
    let library = tracer::install().map_err(NotBegun::NotSeen)?;
    let pid = start::start(&args.command, &variables(args, &library, backend, verdict, filters))?;
    let remedy = remedy.unwrap_or_default();
    notes.extend(verdict.obstacles.iter().map(|why| format!("not traced: {why}{remedy}")));
    notes.extend(verdict.remarks.iter().cloned());
    Ok((pid, None))
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

/// The profile of the devices that the program may write to; devices without one are calibrated, if it will
/// be seen.
fn profile(args: &RunArgs, devices: &Devices, seen: bool, notes: &mut Vec<String>) -> Chosen {
    let mut chosen = devices.profile();
    // A named daemon has a profile of its own.
    if args.record.model.profile.is_some() || args.socket.is_some() {
        return chosen;
    }
    // Inside another run, that run has calibrated already, and would count the bytes of a calibration.
    let wanted = seen && !args.no_calibrate && std::env::var_os("CAWL_RUN").is_none();
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

/// Waits for the program to end and leaves it as a zombie. By rustix, since nix knows no real-time signals.
fn wait(pid: Pid) -> anyhow::Result<Outcome> {
    let number = pid.as_raw() as u32;
    let id = WaitId::Pid(rustix::process::Pid::from_raw(pid.as_raw()).context("no process")?);
    loop {
        match waitid(id.clone(), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) if status.exited() || status.killed() || status.dumped() => {
                // The counters of a zombie include those of all children it waited for.
                let wchar = cawl_host::wchar(number).process;
                let (code, signal) = (status.exit_status(), status.terminating_signal());
                return Ok(Outcome { pid: number, code, signal, wchar });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
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
fn notes(args: &RunArgs, filters: Filters) -> Vec<String> {
    let mut notes = Vec::new();
    if filters == Filters::Deadly {
        let why = "not traced: `cawl-cli run` is under a filter of system calls (seccomp) that would end the program \
                   for the tracer's; allow those that docs/reference/HOOKS.md lists, or run it outside";
        notes.push(why.to_owned());
    }
    if args.no_children {
        notes.push("only the program itself was traced, not the processes it started (--no-children)".into());
    }
    notes.extend(recording::only(&args.record));
    if !args.exclude.is_empty() {
        notes.push(format!("programs of the name {} are not traced (--exclude)", args.exclude.join(" or ")));
    }
    if args.lossless {
        let why =
            "the program waited whenever the daemon was behind, so its times may be too long (--lossless)";
        notes.push(why.to_owned());
    }
    notes
}

/// Ends this process by the signal that ended the program, so that the parent sees the same status.
fn die_of(number: i32) -> anyhow::Result<ExitCode> {
    // One core dump is enough.
    let _ = nix::sys::resource::setrlimit(Resource::RLIMIT_CORE, 0, 0);
    drop(signal_hook::low_level::emulate_default_handler(number));
    if let Ok(signal) = Signal::try_from(number) {
        let _ = signal::raise(signal);
    }
    // A signal that does not end this process (a real-time one): the exit code of a shell.
    Ok(ExitCode::from(128_u8.saturating_add(number as u8)))
}
