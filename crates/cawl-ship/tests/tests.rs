//! `cawl-ship` with real servers: what arrives is whole, once, and nothing is missing uncounted.
//!
//! - `s3`: uploads to a server of S3 (gofakes3, a Go module), cut off and killed in the middle
//! - `postgres`: runs and sums in PostgreSQL, with restarts of every side
//! - `otlp`: metrics and spans in the OpenTelemetry Collector, with restarts of both sides, refusals, a full
//!   folder
//! - `certificate`: a certificate of the test's own
//! - `package`: the Debian package
//! - `proxy`: what stands between, and cuts a connection off
#![forbid(unsafe_code)]

mod certificate;
mod otlp;
mod package;
mod postgres;
mod proxy;
mod s3;

use std::path::{Path, PathBuf};
use std::process::Command;

use cawl_kit::{Dir, Running};

/// The program.
pub fn ship() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_cawl-ship"))
}

/// A command for it.
pub fn shipping(dir: &Dir, folder: &Path, to: &str) -> Command {
    let mut command = dir.command(ship());
    command.arg(folder).arg(to);
    command
}

/// A program that makes so many writes through the daemon.
pub fn write(dir: &Dir, count: u32) {
    let count = format!("count={count}");
    let mut command = dir.cawl(&["run", "--report", "r.json", "--socket"]);
    command.arg(dir.socket()).args(["--", "dd", "if=/dev/zero", "of=out", "bs=4k", &count]);
    Running::start(command).finish().success();
}
