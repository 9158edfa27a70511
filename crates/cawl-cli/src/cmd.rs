//! One file for each command.

pub mod calibrate;
pub mod compare;
pub mod doctor;
pub mod experiment;
pub mod fit;
pub mod help;
pub mod import;
pub mod predict;
pub mod profile;
mod recordings;
pub mod replay;
pub mod run;
pub mod service;
mod side_by_side;
pub mod status;
pub mod tables;
pub mod top;
pub mod watch;

use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_client::address;
use cawl_core::HostProfile;

use crate::args::DaemonArgs;

/// The daemon's socket: as given, else the default.
fn socket_of(args: &DaemonArgs) -> anyhow::Result<PathBuf> {
    match &args.socket {
        Some(path) => Ok(path.clone()),
        None => {
            address::daemon_path().context("cannot tell where cawld listens; name its socket with --socket")
        }
    }
}

/// Reads a profile given on the command line.
fn read_profile(path: &Path) -> anyhow::Result<HostProfile> {
    Ok(stored_profile(path)?.as_learned())
}

/// A stored profile: measured constants, and learned ones beside them.
fn stored_profile(path: &Path) -> anyhow::Result<HostProfile> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the profile {}", path.display()))?;
    HostProfile::from_toml(&text).with_context(|| format!("cannot use the profile {}", path.display()))
}
