//! One file for each command.

pub mod advise;
pub mod attach;
pub mod calibrate;
pub mod check;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod export;
pub mod help;
pub mod import;
mod on_paper;
pub mod predict;
pub mod profile;
mod recording;
pub mod replay;
pub mod rerun;
pub mod run;
mod saved;
mod select;
pub mod service;
mod side_by_side;
pub mod status;
pub mod tables;
mod to_database;
pub mod top;
pub mod watch;
pub mod whatif;

use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_client::address;
use cawl_console::exit;
use cawl_console::inputs::{profile_of, read_profile, stored_profile, unpacked};
use cawl_host::output::{FOR_ALL, Output};
use serde::de::DeserializeOwned;
use serde_json::Value;

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

/// Reads an answer of the daemon, which JSON output keeps whole, with fields of later versions.
fn parsed<T: DeserializeOwned>(answer: &Value) -> anyhow::Result<T> {
    T::deserialize(answer)
        .context("this version cannot read the answer; use a cawl-cli of the daemon's version")
}

/// True if both paths lead to one existing file.
fn are_same(one: &Path, other: &Path) -> bool {
    let identity = |path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// What a command writes must not take the place of what it reads or writes beside it.
fn apart<'a>(files: impl IntoIterator<Item = &'a PathBuf>, output: Option<&PathBuf>) -> anyhow::Result<()> {
    let Some(output) = output else { return Ok(()) };
    for file in files {
        let path = if file.as_os_str() == "-" { Path::new("/dev/stdin") } else { file };
        let is_apart = !are_same(path, output) && std::path::absolute(path)? != std::path::absolute(output)?;
        exit::usage(is_apart, || {
            format!("{} would overwrite {}; name another file", output.display(), file.display())
        })?;
    }
    Ok(())
}

/// On the disk when this returns; an existing file is kept unless `may_replace`.
fn save(file: &Path, text: &str, may_replace: bool) -> anyhow::Result<()> {
    let about = || format!("cannot write the profile {}; name another file with -o", file.display());
    let mut output = Output::create(file, FOR_ALL).with_context(about)?;
    output.write_all(text.as_bytes()).and_then(|()| output.file().sync_all()).with_context(about)?;
    match if may_replace { output.keep() } else { output.keep_new() } {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            anyhow::bail!("{} exists; name another file, or replace it with --force", file.display())
        }
        kept => kept.with_context(about),
    }
}
