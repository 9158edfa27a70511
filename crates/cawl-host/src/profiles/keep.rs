//! Keeps learned constants for later runs, in the profile's file.
//!
//! The law: **concurrent runs lose nothing and wait at most a second.** A writer of a profile holds a lock,
//! reads the file again, adds only what its own run observed, and renames the new file over the old one. A
//! killed writer leaves the old file; a failed write is a note in the report.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cawl_core::{Analysis, HostProfile};

use crate::place::Place;
use crate::{machine, output};

/// Longest wait for the lock, which is held for milliseconds.
const PATIENCE: Duration = Duration::from_secs(1);

/// Keeps the learned constants of one device.
#[derive(Clone, Debug)]
pub struct Keeper {
    file: PathBuf,
    /// `st_dev` of files on it.
    pub device: u64,
    /// Name of a profile with only learned constants.
    name: String,
}

impl Keeper {
    pub(super) fn new(place: &Place, file: PathBuf) -> Option<Keeper> {
        let device = fs::metadata(&place.folder).ok()?.dev();
        Some(Keeper { file, device, name: format!("{} on {}", place.filesystem, place.device) })
    }

    /// Merges learned constants into the file; true if there were any.
    pub fn keep(&self, analysis: &Analysis) -> anyhow::Result<bool> {
        if !analysis.has_kept() {
            return Ok(false);
        }
        // A symbolic link stays one.
        let file = fs::canonicalize(&self.file).unwrap_or_else(|_| self.file.clone());
        let about = || format!("cannot write the profile {}", file.display());
        let folder = file.parent().context("the profile has no folder")?;
        // Checked before a folder is made for it.
        let before = read(&file)?;
        let merged = |profile: &HostProfile| analysis.merged(profile, machine::wall_clock());
        if merged(before.as_ref().unwrap_or(&self.unmeasured())).is_none() {
            return Ok(false);
        }
        fs::create_dir_all(folder).with_context(about)?;
        let owner = fs::metadata(folder).with_context(about)?.uid();
        ensure!(owner == nix::unistd::geteuid().as_raw(), "{} belongs to another user", folder.display());
        let _lock = Lock::of(folder).with_context(about)?;
        let Some(profile) = merged(&read(&file)?.unwrap_or_else(|| self.unmeasured())) else {
            return Ok(false);
        };
        output::write(&file, output::FOR_ALL, profile.to_toml()).with_context(about)?;
        Ok(true)
    }

    fn unmeasured(&self) -> HostProfile {
        HostProfile { name: self.name.clone(), ..HostProfile::uncalibrated() }
    }
}

/// The file's profile as it is stored; None if there is no file. One that cannot be read stays as it is.
fn read(file: &Path) -> anyhow::Result<Option<HostProfile>> {
    let about = || format!("the profile {} cannot be used; calibrate again", file.display());
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(HostProfile::from_toml(&text).with_context(about)?)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(about),
    }
}

/// The right to write profiles in a folder, until it is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held")] File);

impl Lock {
    /// Waits for it, for at most a second.
    pub fn of(folder: &Path) -> anyhow::Result<Lock> {
        let path = folder.join(".lock");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let deadline = Instant::now() + PATIENCE;
        let locked = machine::lock(&file, || Instant::now() < deadline)
            .with_context(|| format!("cannot lock {}", path.display()))?;
        ensure!(locked, "another process holds {}", path.display());
        Ok(Lock(file))
    }
}
