//! Starts `cawl-ship`, which brings files to where they belong, and starts it again when it ends.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use cawl_host::spool;
use tokio::process::{Child, ChildStdin, Command};

use crate::task;

/// Its name in messages.
const PROGRAM: &str = "cawl-ship";
/// Wait before it is started again: at first, and at most. After so long without an end it is the first one
/// again.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Keeps a `cawl-ship` for the files in `folder`, which brings them to an address. It has a pipe as its
/// input, whose end tells it to bring the rest and to end: also if this process is killed.
pub fn start(folder: &Path, address: &str) -> anyhow::Result<()> {
    let program = spool::shipper()?;
    let (folder, address) = (folder.to_owned(), address.to_owned());
    let (mut child, mut pipe) = spawn(&program, &folder, &address)?;
    task::spawn(async move {
        let mut wait = AGAIN.0;
        loop {
            let began = Instant::now();
            let ended = child.wait().await;
            if began.elapsed() > AGAIN.1 {
                wait = AGAIN.0;
            }
            let ended = ended.map_or_else(|error| error.to_string(), said);
            tracing::warn!("{PROGRAM} {ended}; files wait in {} and it is started again", folder.display());
            drop(pipe);
            (child, pipe) = loop {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AGAIN.1);
                match spawn(&program, &folder, &address) {
                    Ok(started) => break started,
                    Err(error) => tracing::error!("{error:#}"),
                }
            };
        }
    });
    Ok(())
}

fn said(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
    }
}

/// The process, and its input, which a wait for its end would close.
fn spawn(program: &Path, folder: &Path, address: &str) -> anyhow::Result<(Child, Option<ChildStdin>)> {
    let mut command = Command::new(program);
    // A process list shows arguments, and an address may have a password.
    command
        .arg("--follow")
        .arg(folder)
        .env("CAWL_SHIP_TO", address)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    // A terminal's signals are for the daemon.
    command.process_group(0);
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
    let pipe = child.stdin.take();
    Ok((child, pipe))
}
