//! `cawld`: the daemon as a server of its own, many programs at once.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use cawl_core::{HostProfile, MODELS, Mode};
use cawld::{EngineOptions, profiles, socket};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Takes the events of traced programs, models the page cache in lockstep, and answers `cawl-cli status`.
///
/// SIGTERM and SIGINT take what has arrived, close the trace and end with status 0. Exit codes: 1 when it
/// cannot start, 2 for wrong usage. Log level: CAWLD_LOG (error, warn, info, debug).
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to listen (default: cawld.sock in $XDG_RUNTIME_DIR, /run/user/UID or /tmp/cawl-UID)
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Keep a trace of everything seen
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Profile of this machine (TOML) [default: what `cawl-cli calibrate` found, else default speeds]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Models to run; the first one answers
    #[arg(long = "model", value_name = "NAME,…", value_delimiter = ',')]
    models: Vec<String>,
    /// Modes kept for questions besides lockstep, of the first model or of the one named [default: assimilated]
    #[arg(long = "mode", value_name = "[MODEL:]MODE,…", value_delimiter = ',')]
    modes: Vec<String>,
    /// Learn constants from observed calls and the kernel's counters
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    learn: String,
}

/// The modes of models to keep besides lockstep.
fn modes(named: &[String], models: &[String]) -> anyhow::Result<Vec<(String, Mode)>> {
    let first = models.first().map_or(MODELS[0], String::as_str);
    if named.is_empty() {
        return Ok(vec![(first.to_owned(), Mode::Assimilated)]);
    }
    let mode = |text: &String| {
        let (model, mode) = text.split_once(':').unwrap_or((first, text));
        anyhow::ensure!(
            MODELS.contains(&model),
            "there is no model `{model}`; the models are {}",
            MODELS.join(", ")
        );
        Ok((model.to_owned(), mode.parse::<Mode>()?))
    };
    let mut modes = named.iter().map(mode).collect::<anyhow::Result<Vec<_>>>()?;
    modes.retain(|(_, mode)| *mode != Mode::Lockstep);
    Ok(modes)
}

#[tokio::main]
async fn main() -> ExitCode {
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not eprintln, which panics where stderr is closed or full.
            drop(std::io::stderr().write_all(format!("cawld: {error:#}\n").as_bytes()));
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> anyhow::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("CAWLD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Without internal errors: it would report them with eprintln, which panics where stderr is gone.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_target(false).log_internal_errors(false).init();

    let path = args.socket.map_or_else(socket::default_path, Ok)?;
    let profile = match &args.profile {
        Some(file) => std::fs::read_to_string(file)
            .map_err(anyhow::Error::from)
            .and_then(|text| Ok(HostProfile::from_toml(&text)?))
            .with_context(|| format!("cannot use the profile {}", file.display()))?,
        None => {
            let chosen = profiles::choose(Path::new("."));
            match &chosen.file {
                Some(file) => tracing::info!("profile {}", file.display()),
                None => tracing::info!("no profile of this machine; defaults are used"),
            }
            if let Some(note) = chosen.note {
                tracing::warn!("{note}");
            }
            chosen.profile
        }
    };
    let models =
        if args.models.is_empty() { MODELS.iter().map(|m| (*m).to_owned()).collect() } else { args.models };
    let modes = modes(&args.modes, &models)?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = socket::listen(&path)?;
    tracing::info!("listening at {}", path.display());
    let learn = args.learn == "on";
    let options = EngineOptions { profile, host_models: Some(models), host_trace: args.trace, modes, learn };
    let served = cawld::run(listener, options, async {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("draining");
    });
    let result = served.await;
    // Leave no stale socket behind; if someone else removed it, so much the better.
    drop(std::fs::remove_file(&path));
    result
}
