//! Questions and answers: one line of JSON each, on the same socket as the tracers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use cawl_core::{Outcome, Phase, Tally, host_text};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::RunSpec;
use crate::lane::ProcessTally;
use crate::socket;

/// Version of the status answer.
pub const STATUS_SCHEMA: u32 = 1;

/// What one can ask of a daemon.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// How do things stand? Answered by a [`Status`].
    Status,
    /// A program is about to be run: keep its calls apart. Answered by a [`RunStarted`].
    BeginRun(RunSpec),
    /// The program ended: what happened? Answered by a [`cawl_core::Report`].
    EndRun {
        /// The run, as `begin-run` answered.
        run: u64,
        /// How the program ended.
        outcome: Option<Outcome>,
        /// What the report should say besides.
        notes: Vec<String>,
    },
}

impl Request {
    /// How long an answer may take. The end of a run has to wait for the models to take what was recorded, and
    /// for the trace to be written.
    fn patience(&self) -> Duration {
        match self {
            Request::Status | Request::BeginRun(_) => Duration::from_secs(20),
            Request::EndRun { .. } => Duration::from_secs(600),
        }
    }
}

/// A run has a lane of its own now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunStarted {
    /// Its number, for CAWL_RUN and `end-run`.
    pub run: u64,
}

/// A question that could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Why, and what to do.
    pub error: String,
}

/// Asks the daemon at `path` and waits for the answer.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> anyhow::Result<T> {
    let absent = || format!("no daemon answers at {}; start one with `cawld`", path.display());
    socket::check_owner(path).with_context(absent)?;
    let mut stream = UnixStream::connect(path).with_context(absent)?;
    let patience = request.patience();
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    let mut answer = String::new();
    let asked =
        stream.write_all(line.as_bytes()).and_then(|()| BufReader::new(stream).read_line(&mut answer));
    if let Err(error) = &asked
        && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    {
        anyhow::bail!(
            "the daemon at {} has not answered for {} s: it is stopped or overloaded; see whether it still runs, \
             or start another with `cawld --socket`",
            path.display(),
            patience.as_secs()
        );
    }
    if !matches!(asked, Ok(1..)) {
        anyhow::bail!(
            "the daemon at {} hung up without an answer: it may have ended, or belong to another user",
            path.display()
        );
    }
    if let Ok(Failure { error }) = serde_json::from_str(&answer) {
        anyhow::bail!("the daemon at {} answers: {error}", path.display());
    }
    serde_json::from_str(&answer)
        .with_context(|| format!("the daemon at {} gave an answer this version cannot read", path.display()))
}

/// How things stand. Sizes in bytes, rates in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_SCHEMA`].
    pub schema: u32,
    /// The model that speaks.
    pub model: String,
    /// Name of the profile.
    pub profile: String,
    /// Dirty bytes now, writeback included, as modelled from the traced programs' calls.
    pub modelled_dirty_bytes: u64,
    /// Dirty bytes now, writeback included, of the whole machine, as the kernel counts them.
    pub sampled_dirty_bytes: Option<u64>,
    /// Background limit.
    pub background_bytes: u64,
    /// Hard limit.
    pub hard_bytes: u64,
    /// The modelled regime.
    pub state: Phase,
    /// Rate at which dirty pages are being cleaned, if they are.
    pub writeback_rate: Option<f64>,
    /// Rate at which writers are let through, if they are throttled.
    pub throttled_rate: Option<f64>,
    /// Programs connected.
    pub clients: u64,
    /// Events lost on the way since the daemon started.
    pub drops: u64,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// The programs connected.
    pub processes: Vec<ProcessStatus>,
    /// The devices written to.
    pub devices: Vec<DeviceStatus>,
}

/// A program connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Name it was started by.
    pub program: String,
    /// Calls recorded.
    pub calls: u64,
    /// Bytes written, to any kind of file.
    pub bytes: u64,
}

impl ProcessStatus {
    pub(crate) fn new(process: &ProcessTally) -> ProcessStatus {
        let Tally { calls, bytes } = process.tally;
        ProcessStatus { pid: process.pid, program: process.program.clone(), calls, bytes }
    }
}

/// A device written to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// Major and minor number.
    pub device: String,
    /// Calls that wrote to it.
    pub calls: u64,
    /// Bytes written to it by programs.
    pub bytes: u64,
}

impl DeviceStatus {
    pub(crate) fn list(devices: &BTreeMap<u64, Tally>) -> Vec<DeviceStatus> {
        let status = |(dev, tally): (&u64, &Tally)| {
            let (major, minor) = host_text::device_parts(*dev);
            DeviceStatus { device: format!("{major}:{minor}"), calls: tally.calls, bytes: tally.bytes }
        };
        devices.iter().map(status).collect()
    }
}
