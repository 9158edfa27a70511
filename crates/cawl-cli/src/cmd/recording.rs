//! What `run` and `attach` share: the daemon that records, and the report at the end.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use cawl_client::protocol::{Request, RunEnd, RunProcess, RunSpec, RunStarted, Running};
use cawl_client::{address, query};
use cawl_core::{Glob, GroupBounds, HostProfile, MODELS, Report};
use cawl_host::allowance;
use cawl_host::profiles::Keeper;
use cawld::kernel::{Attached, Target};
use cawld::socket::{self, SocketFile};
use cawld::{Daemon, EngineOptions};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

use super::{apart, read_profile};
use crate::args::RecordArgs;
use crate::interrupt::Stop;
use crate::{outputs, render};

/// Time limit for the report: the daemon first reads all calls that the program and its children sent.
const REPORT_WITHIN: Duration = Duration::from_secs(120);

const GIVEN_UP: &str = "there is no report: interrupted twice";

/// Descriptors that a runtime, the daemon in it, and the writing of the tracer's library need.
const DESCRIPTORS: usize = 16;

/// What the daemon runs in.
pub fn runtime() -> anyhow::Result<Runtime> {
    allowance::descriptors(DESCRIPTORS)?;
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// An error if a file to be written is something else.
pub fn check(args: &RecordArgs) -> anyhow::Result<()> {
    apart(&args.trace, args.report.as_ref())?;
    args.report.iter().try_for_each(|file| outputs::check(file, &outputs::report(file)))?;
    args.trace.iter().try_for_each(|file| outputs::check(file, &outputs::TRACE))
}

/// What the daemon is to do; `told` is what is recorded, in words.
pub fn spec(args: &RecordArgs, told: String) -> anyhow::Result<RunSpec> {
    let profile = args.model.profile.as_deref().map(read_profile).transpose()?;
    let trace = args.trace.as_ref().map(std::path::absolute).transpose()?;
    Ok(RunSpec {
        // The other models are baselines, and each costs the daemon as much time.
        models: args.model.models(vec![MODELS[0].to_owned()]),
        learn: args.learn == "on",
        profile: profile.map(|profile| profile.to_toml()),
        trace,
        command: Some(told),
        only: args.only.clone(),
        classes: args.classes.bounds.clone(),
        group: GroupBounds::default(),
        deleted: Vec::new(),
        stacks: None,
    })
}

/// The remark on what is left out, if anything.
pub fn only(args: &RecordArgs) -> Option<String> {
    let globs: Vec<String> = args.only.iter().map(Glob::to_string).collect();
    (!globs.is_empty())
        .then(|| format!("recorded were only calls on files that fit {} (--only)", globs.join(" or ")))
}

/// Prints the report, or writes its file; one that cannot be written goes to stderr. `shared`: a program
/// writes there, too.
pub fn deliver(mut report: Report, args: &RecordArgs, shared: bool) -> anyhow::Result<()> {
    if report.calls == 0 && !args.only.is_empty() {
        let why = "no call fitted --only: a pattern is that of a whole path, as */src/*, or of a file's name";
        report.notes.push(why.to_owned());
    }
    put(&report, args.report.as_deref(), args.long, shared)
        .inspect_err(|_| drop(put(&report, None, args.long, shared)))
}

/// Ends the probes; notes for the report. A request to stop, of which `stop` is not told, leaves calls out.
pub async fn detach(probes: Attached, stop: &Stop) -> Vec<String> {
    let mut stop = stop.clone();
    let stopped = tokio::select! {
        stopped = probes.stop() => stopped,
        () = stop.asked() => Err(anyhow!("the report was wanted at once")),
    };
    stopped
        .unwrap_or_else(|error| vec![format!("the last calls that the kernel saw may be missing: {error:#}")])
}

/// The trace of something that did not begin would have only facts about the machine.
pub fn forget(args: &RecordArgs) {
    args.trace.iter().for_each(|trace| drop(std::fs::remove_file(trace)));
}

fn put(report: &Report, file: Option<&Path>, long: bool, shared: bool) -> anyhow::Result<()> {
    let text = |terminal| render::explain::report(report, long, terminal);
    let terminal = std::io::stderr().is_terminal();
    let Some(path) = file else {
        render::draw(&render::page(&text(terminal), terminal));
        return Ok(());
    };
    render::file::write(report, path, text)?;
    // What goes elsewhere is the program's alone.
    if terminal || !shared {
        render::draw(&render::page(&render::explain::first_lines(report, path, terminal), terminal));
    }
    Ok(())
}

/// The daemon that records.
pub struct Backend {
    /// The daemon inside this process with its socket; None if one was named by --socket.
    inside: Option<(Daemon, SocketFile)>,
    /// Its socket.
    pub path: PathBuf,
    /// The number of the run.
    pub run: u64,
}

impl Backend {
    /// `notes` gets remarks for the report.
    pub async fn start(
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

    /// Lets the kernel's probes follow this, too.
    pub async fn attach(&self, target: Target) -> anyhow::Result<Attached> {
        match &self.inside {
            Some((daemon, _)) => daemon.attach(self.run, target).await,
            None => Err(anyhow!("a daemon at a socket attaches by itself: cawld --kernel")),
        }
    }

    /// The run's processes that are still running, as far as the daemon knows, after it has read all
    /// messages.
    pub async fn running(&self) -> anyhow::Result<Vec<RunProcess>> {
        if let Some((daemon, _)) = &self.inside {
            return daemon.running(self.run).await;
        }
        let (path, request) = (self.path.clone(), Request::Running { run: self.run });
        let answer = tokio::task::spawn_blocking(move || query::ask(&path, &request)).await?;
        answer.map(|running: Running| running.processes)
    }

    /// The report. The first request to stop returns it at once, the second one gives it up.
    pub async fn finish(self, end: RunEnd, stop: &mut Stop) -> anyhow::Result<Report> {
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
    pub async fn abandon(self) {
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
