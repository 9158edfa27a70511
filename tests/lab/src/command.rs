//! Other programs: mkfs, mount, losetup.

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
