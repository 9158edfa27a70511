//! One file for each command.

pub mod calibrate;
pub mod compare;
pub mod doctor;
pub mod experiment;
pub mod fit;
pub mod import;
mod recordings;
pub mod replay;
pub mod run;
pub mod status;

use std::path::Path;

use anyhow::Context;
use cawl_core::HostProfile;

/// Reads a profile given on the command line.
fn read_profile(path: &Path) -> anyhow::Result<HostProfile> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the profile {}", path.display()))?;
    HostProfile::from_toml(&text).with_context(|| format!("cannot use the profile {}", path.display()))
}
