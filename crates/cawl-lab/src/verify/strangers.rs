//! Programs that nobody here wrote, under the tracer and without: `cawl-lab verify strangers [NAME…]`.
//!
//! The work is done by a Python program (strangers/run.py), in roots that debootstrap makes; the programs are
//! a table (strangers/programs.txt).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::command::need;

const RUN: &str = include_str!("strangers/run.py");
const PROGRAMS: &str = include_str!("strangers/programs.txt");

/// Runs the programs whose name, group or root is given, or all. True if each did the same.
///
/// # Errors
/// Fails without root, debootstrap or Python.
pub fn verify(cli: &Path, names: &[String]) -> anyhow::Result<bool> {
    need(&[("debootstrap", "debootstrap"), ("python3", "python3")])?;
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "only root can make and enter the roots");
    let mut files = Vec::new();
    for text in [RUN, PROGRAMS] {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(text.as_bytes())?;
        files.push(file);
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let cache = cache.context("there is no folder for the roots: set HOME")?.join("cawl-lab/roots");
    let mut command = Command::new("python3");
    command.arg(files[0].path()).arg(cli).arg(files[1].path()).arg(cache).args(names);
    Ok(command.status().context("python3 cannot be run")?.success())
}
