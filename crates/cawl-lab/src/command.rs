//! Other programs: mkfs, mount, losetup, sshfs.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

/// Runs a program and returns its output.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{:?} failed: {}", command.get_program(), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What this machine lacks for something.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Lacking(pub String);

/// Where programs lie; an error is [`Lacking`], with the package of the one that is missing.
pub(crate) fn need(programs: &[(&str, &str)]) -> Result<Vec<PathBuf>, Lacking> {
    let find = |(program, package): &(&str, &str)| {
        cawl_host::inspect::find(program.as_ref())
            .ok_or_else(|| Lacking(format!("there is no {program}; apt-get install {package}")))
    };
    programs.iter().map(find).collect()
}
