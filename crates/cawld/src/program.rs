//! The program `cawld`: a daemon for many programs. Its `main` is in cawl-cli's package, which installs both
//! programs.

mod follow;
mod outputs;
mod service;
mod shipper;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use cawl_client::address;
use cawl_core::{
    Bytes, Condition, HostProfile, MODELS, Mode, ModelsError, Nanos, StackOptions, UnknownMode, quantity,
};
use cawl_host::allowance;
use cawl_host::profiles::{self, Keeper};
use cawl_host::trace::{ExcerptOptions, MIN_ROOM};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, ValueEnum};
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing_subscriber::filter::LevelFilter;

use self::follow::{FollowArgs, Following};
use self::outputs::OutputArgs;
use crate::http::{Guard, Http};
use crate::socket::{self, SocketFile};
use crate::{Allowed, Asker, Daemon, EngineOptions, Node, Usage, WatchOptions, metrics, task};

/// Most labels of a node.
const LABELS: usize = 16;

/// Records the events of traced programs, models the page cache in lockstep, and answers questions: over its
/// socket (`cawl-cli status`), and over HTTP with --http.
///
/// On SIGTERM and SIGINT it processes the received calls, closes the trace and exits with 0. On SIGHUP it
/// reads the profile (for later runs) and the token again. Exit codes: 1 when it cannot start, 2 for wrong
/// usage. Log level: CAWLD_LOG (error, warn, info, debug); format: CAWLD_LOG_FORMAT (text, json).
#[derive(Parser)]
#[command(name = "cawld", version, max_term_width = 80)]
struct Args {
    /// The socket to listen at [default: cawld.sock in the user's folder of sockets]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// As root, record programs of these users too, by name, uid or range of uids
    ///
    /// Their questions are refused. The default socket is then /run/cawl/cawld.sock.
    #[arg(long = "allow-user", value_name = "USER,…", value_delimiter = ',', conflicts_with = "allow_all")]
    allow_users: Vec<Allowed>,
    /// As root, record programs of every user
    #[arg(long)]
    allow_all: bool,
    /// Keep a trace of all calls
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Keep traces of the calls around anomalies only: calls that fulfil CONDITION
    ///
    /// For example 'unexpected > 50ms or throttle > 200ms' (docs/guide/WATCH.md).
    #[arg(long, value_name = "CONDITION")]
    trace_on: Option<Condition>,
    /// Time kept before and after an anomaly
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = keep, requires = "trace_on")]
    keep: Nanos,
    /// Folder of these traces [default: excerpts, in the service's or the user's state folder]
    #[arg(long, value_name = "DIR", requires = "trace_on")]
    trace_dir: Option<PathBuf>,
    /// Bytes that they take at most; the oldest are removed
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = room, requires = "trace_on")]
    trace_room: u64,
    /// Profile of this machine (TOML) [default: that of `cawl-cli calibrate`, else default speeds]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Models to run; the first one answers [default: kernel,cawl,naive]
    #[arg(long = "model", value_name = "NAME,…", value_delimiter = ',')]
    models: Vec<String>,
    /// Answer over HTTP too, read only: web page, JSON and /metrics
    ///
    /// Without a token, only this user and root are answered, and only at a loopback address.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    http: Option<SocketAddr>,
    /// File with a token that HTTP clients must send; readable by its owner only
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token_file: Option<PathBuf>,
    /// Without a token, answer every user of this machine over HTTP
    #[arg(long, requires = "http", conflicts_with = "http_token_file")]
    http_open: bool,
    /// Name of this node in answers and metrics [default: the host's]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node: Option<String>,
    /// Label of this node in answers and metrics; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Format of the log
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Modes kept for questions in addition to lockstep, of the first model or of the named one [default:
    /// assimilated]
    #[arg(long = "mode", value_name = "[MODEL:]MODE,…", value_delimiter = ',')]
    modes: Vec<String>,
    /// Tell which functions calls came from: of each call of THRESHOLD or more [default: 1ms], and of one in
    /// 64 of the others; docs/reference/CLI.md says what that needs
    #[arg(long, value_name = "THRESHOLD", num_args = 0..=1, require_equals = true, default_missing_value = "1ms",
          value_parser = quantity::span_with_unit)]
    stacks: Option<f64>,
    /// With --stacks, one in so many of the calls below its threshold
    #[arg(long, value_name = "N", default_value = "64", requires = "stacks")]
    stacks_one_in: NonZeroU32,
    #[command(flatten)]
    outputs: OutputArgs,
    #[command(flatten)]
    follow: FollowArgs,
    /// Learn constants from observed calls and the kernel's counters
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    learn: String,
    /// Do not save learned constants in the profile at the end
    #[arg(long)]
    no_save: bool,
}

/// Bytes of a node's name.
const LONGEST_NODE: usize = 200;

/// The modes of models to keep in addition to lockstep.
fn modes(named: &[String], models: &[String]) -> anyhow::Result<Vec<(String, Mode)>> {
    let first = models.first().map_or(MODELS[0], String::as_str);
    if named.is_empty() {
        return Ok(vec![(first.to_owned(), Mode::Assimilated)]);
    }
    let mode = |text: &String| {
        let (model, mode) = text.split_once(':').unwrap_or((first, text));
        ensure!(MODELS.contains(&model), ModelsError::Unknown(model.to_owned()));
        Ok((model.to_owned(), mode.parse::<Mode>()?))
    };
    let mut modes = named.iter().map(mode).collect::<anyhow::Result<Vec<_>>>()?;
    modes.retain(|(_, mode)| *mode != Mode::Lockstep);
    Ok(modes)
}

#[derive(Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Lines of text.
    Text,
    /// An object a line.
    Json,
}

/// The options that the short help has: those to begin with.
const SHORT: [&str; 13] = [
    "allow_users",
    "calls_to",
    "containers",
    "help",
    "http",
    "kernel",
    "node",
    "otlp",
    "socket",
    "sums_to",
    "trace",
    "trace_on",
    "units",
];

/// The command line.
pub fn command() -> clap::Command {
    let short =
        |arg: Arg| if SHORT.contains(&arg.get_id().as_str()) { arg } else { arg.hide_short_help(true) };
    Args::command().mut_args(short)
}

/// From a signal on, the time after which the daemon has ended.
const ENDS_WITHIN: Duration = Duration::from_millis(4500);

/// Serves until a signal ends it.
pub fn main() -> ExitCode {
    let args = Args::from_arg_matches(&command().get_matches()).unwrap_or_else(|error| error.exit());
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln, which panics when stderr is closed or full.
            drop(
                std::io::stderr()
                    .write_all(format!("cawld: {}\n", allowance::with_remedy(&error)).as_bytes()),
            );
            let is_usage = error.is::<Usage>() || error.is::<ModelsError>() || error.is::<UnknownMode>();
            if is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Descriptors that a daemon needs to start.
const DESCRIPTORS: usize = 16;

/// Signals have a runtime of their own, on this thread: whatever the one that serves is busy with, the daemon
/// ends.
fn run(args: Args) -> anyhow::Result<()> {
    allowance::descriptors(DESCRIPTORS)?;
    let own = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let serving = tokio::runtime::Runtime::new()?;
    let ended = own.block_on(watch_over(&serving, args));
    serving.shutdown_background();
    ended
}

async fn watch_over(serving: &Runtime, args: Args) -> anyhow::Result<()> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hup = signal(SignalKind::hangup())?;
    // Past a limit on the length of files (`ulimit -f`) a write then fails, and does not end the daemon.
    let _too_long = signal(SignalKind::from_raw(Signal::SIGXFSZ as i32))?;
    let (tell, told) = mpsc::channel(4);
    let mut served = serving.spawn(Box::pin(serve(args, told)) as task::Boxed<_>);
    loop {
        tokio::select! {
            ended = &mut served => return ended?,
            _ = term.recv() => break,
            _ = int.recv() => break,
            // One that waits is enough.
            _ = hup.recv() => drop(tell.try_send(())),
        }
    }
    // Its end tells that the daemon is to end.
    drop(tell);
    let late = || {
        format!(
            "it had not ended {} s after the signal: calls are missing in its trace, and what it learned is not kept",
            ENDS_WITHIN.as_secs_f64()
        )
    };
    tokio::time::timeout(ENDS_WITHIN, served).await.with_context(late)??
}

async fn serve(args: Args, mut reloads: mpsc::Receiver<()>) -> anyhow::Result<()> {
    log(args.log_format)?;
    let (profile, keeper) = profile(args.profile.as_deref())?;
    let keeper = keeper.filter(|_| !args.no_save);
    let node = node(args.node, args.labels)?;
    let models =
        if args.models.is_empty() { MODELS.iter().map(|m| (*m).to_owned()).collect() } else { args.models };
    let (modes, learn) = (modes(&args.modes, &models)?, args.learn == "on");
    let allowed = match args.allow_all {
        true => Allowed::all(),
        false => args.allow_users.into_iter().fold(Allowed::default(), Allowed::and),
    };
    ensure!(
        allowed.is_empty() || geteuid().is_root(),
        "only root may record other users' programs; leave out --allow-user and --allow-all"
    );
    service::raise_descriptor_limit();
    let has_token = args.http_token_file.is_some();
    let http = match args.http {
        Some(address) => Some(Http::listen(address, args.http_token_file, args.http_open).await?),
        None => None,
    };
    let (listener, socket) = listen(args.socket, !allowed.is_empty())?;
    let watch = args.trace_on.map(|condition| {
        let folder = args.trace_dir.map_or_else(|| state_folder("excerpts"), Ok)?;
        let (keep, room) = (args.keep, args.trace_room);
        let excerpts = ExcerptOptions { folder, keep, room, condition: condition.text().to_owned() };
        anyhow::Ok(WatchOptions { condition, excerpts })
    });
    let one_in = args.stacks_one_in;
    let stacks = args.stacks.map(|seconds| StackOptions { threshold: Nanos::seconds(seconds), one_in });
    let (host_models, host_trace, watch) = (Some(models), args.trace, watch.transpose()?);
    let (calls, sums, otlp) = args.outputs.options(&node, &profile.name, state_folder)?;
    let own = EngineOptions { host_models, host_trace, watch, modes, ..EngineOptions::new(profile) };
    let options = EngineOptions { learn, keeper, stacks, calls, sums, otlp, ..own };
    let daemon = Arc::new(Daemon::start_as(listener, options, node, allowed)?);
    match &socket {
        Some(file) => tracing::info!("listening at {}", file.0.display()),
        None => tracing::info!("listening at the socket that was passed"),
    }
    let asker = daemon.asker();
    let mut following = Following::start(&daemon, args.follow).await?;
    let token = http.as_ref().filter(|_| has_token).map(Http::guard);
    if let Some(http) = http {
        tracing::info!("answering at http://{}/", http.address());
        task::spawn(http.serve(asker.clone()));
    }
    task::spawn(service::watchdog(asker.clone()));
    service::ready();
    let failed = loop {
        tokio::select! {
            reload = reloads.recv() => if reload.is_none() { break Ok(()) },
            error = following.failed() => break Err(error),
        }
        service::reloading();
        match reload(args.profile.as_deref(), token.as_deref(), &asker).await {
            Ok(changed) => tracing::info!("read again: {changed}"),
            Err(error) => tracing::error!("what was stays in use: {error:#}"),
        }
        service::ready();
    };
    tracing::info!("draining");
    service::stopping();
    // Before all else, whose end may be late.
    drop(socket);
    following.stop().await;
    Arc::into_inner(daemon).context("probes are still attached")?.stop().await?;
    failed
}

/// The socket that systemd passed, else a new one with its file. `to_all`: every user may connect.
fn listen(path: Option<PathBuf>, to_all: bool) -> anyhow::Result<(UnixListener, Option<SocketFile>)> {
    let mut passed = listenfd::ListenFd::from_env();
    if passed.len() > 0 {
        let listener = passed.take_unix_listener(0).context("the socket that was passed is of no use")?;
        let listener = listener.context("the socket that was passed is of no use")?;
        listener.set_nonblocking(true)?;
        return Ok((UnixListener::from_std(listener)?, None));
    }
    let path = match path {
        Some(path) => path,
        None if to_all => {
            let shared = Path::new(address::SHARED);
            address::shared_directory(shared).context("no folder for a socket that all users can reach")?;
            shared.join(address::NAME)
        }
        None => address::default_path()?,
    };
    let listener = if to_all { socket::listen_to_all(&path)? } else { socket::listen(&path)? };
    Ok((listener, Some(SocketFile(path))))
}

/// The profile, and its keeper; a named file is never written.
fn profile(file: Option<&Path>) -> anyhow::Result<(HostProfile, Option<Keeper>)> {
    if let Some(file) = file {
        return std::fs::read_to_string(file)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok((HostProfile::from_toml(&text)?.as_learned(), None)))
            .with_context(|| format!("cannot use the profile {}", file.display()));
    }
    let chosen = profiles::choose(Path::new("."));
    match &chosen.file {
        Some(file) => tracing::info!("profile {}", file.display()),
        None => tracing::info!("no profile of this machine; defaults are used"),
    }
    if let Some(note) = chosen.note {
        tracing::warn!("{note}");
    }
    Ok((chosen.profile, chosen.keeper))
}

/// Handles SIGHUP; logs what takes effect when. An error changes nothing.
async fn reload(file: Option<&Path>, token: Option<&Guard>, asker: &Asker) -> anyhow::Result<String> {
    let (profile, _) = profile(file)?;
    token.map_or(Ok(()), Guard::reload)?;
    let name = profile.name.clone();
    asker.look_up(move |engine| engine.profile = profile).await?;
    let token = if token.is_some() { "the token, which holds at once; " } else { "" };
    Ok(format!(
        "{token}the profile {name}, for runs that begin from now on (the daemon's own models keep theirs and what \
         they learned until it is started anew)"
    ))
}

fn node(name: Option<String>, labels: Vec<(String, String)>) -> anyhow::Result<Node> {
    let host = || nix::sys::utsname::uname().map(|name| name.nodename().to_string_lossy().into_owned());
    let name = name.map_or_else(host, Ok).context("this machine has no name; give one with --node")?;
    ensure!(labels.len() <= LABELS, Usage(format!("a node has at most {LABELS} labels")));
    let mut kept = BTreeMap::new();
    for (key, value) in labels {
        ensure!(
            kept.insert(key.clone(), value).is_none(),
            Usage(format!("the label {key} is given twice; leave one out"))
        );
    }
    Ok(Node { name, labels: kept })
}

/// Names of files have it.
fn node_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("a node has a name".to_owned()),
        _ if text.starts_with('.') => Err("a name does not begin with a dot".to_owned()),
        _ if text.len() > LONGEST_NODE => Err(format!("a name has at most {LONGEST_NODE} bytes")),
        _ => Ok(text.to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a label is KEY=VALUE")?;
    if !metrics::is_label(key) {
        return Err(format!(
            "`{key}` cannot be a label: letters, digits and _, no digit first, and none of {}",
            metrics::LABELS.join(", ")
        ));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn keep(text: &str) -> Result<Nanos, String> {
    match quantity::span_with_unit(text)? {
        seconds if (0.1..=3600.0).contains(&seconds) => Ok(Nanos::seconds(seconds)),
        _ => Err("give a time between 100ms and 1h".to_owned()),
    }
}

fn room(text: &str) -> Result<u64, String> {
    match quantity::size(text)? {
        bytes if bytes >= MIN_ROOM => Ok(bytes),
        _ => Err(format!("give at least {}", Bytes(MIN_ROOM))),
    }
}

/// A folder for what the daemon keeps: in that of the service (StateDirectory=), else in the user's.
fn state_folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_user = || folder("HOME").map(|home| home.join(".local/state"));
    let of_user = || folder("XDG_STATE_HOME").or_else(of_user).map(|state| state.join("cawl"));
    let state = folder("STATE_DIRECTORY").or_else(of_user);
    let missing = "there is no folder for files: set HOME, or STATE_DIRECTORY; traces have --trace-dir";
    Ok(state.context(missing)?.join(name))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let numbers = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let why = || "give an address and a port, like 127.0.0.1:9420 or [::1]:9420".to_owned();
    numbers.as_deref().unwrap_or(text).parse().map_err(|_| why())
}

fn log(format: Option<LogFormat>) -> anyhow::Result<()> {
    let named = std::env::var("CAWLD_LOG_FORMAT").ok().filter(|name| !name.is_empty());
    let named = named.map(|name| LogFormat::from_str(&name, true)).transpose();
    let named = named.map_err(|_| anyhow::anyhow!("CAWLD_LOG_FORMAT must be text or json"))?;
    let level = std::env::var("CAWLD_LOG").ok().and_then(|level| level.parse().ok());
    let log = tracing_subscriber::fmt().with_max_level(level.unwrap_or(LevelFilter::INFO));
    // Without internal errors: they would go to eprintln, which panics when stderr is gone.
    let log = log.with_writer(std::io::stderr).with_target(false).log_internal_errors(false);
    match format.or(named).unwrap_or(LogFormat::Text) {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_node_has_a_name() {
        let is_taken = |name| super::command().try_get_matches_from(["cawld", "--node", name]).is_ok();
        assert!(is_taken("db-1") && !["", "..", ".db", &"x".repeat(201)].map(is_taken).contains(&true));
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        super::command().debug_assert();
        let help = super::command().render_help().to_string();
        assert!(help.lines().count() <= 38 && help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
}
