//! The kernel's dirty limits, lowered temporarily.
//!
//! The law: **changes are restored**, when the guard is dropped, also by a panic; and if the process was
//! killed, by the next one that lowers them or calibrates. Two processes never lower them at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cawl_core::Bytes;

use crate::machine;

/// Folder of the kernel's settings.
const SETTINGS: &str = "/proc/sys/vm";
/// Lock of the process that has lowered them, with the settings to restore.
const STATE: &str = "/run/cawl-dirty-limits";
/// A limit is set in bytes or in percent of memory; the kernel shows the other one as zero.
const PAIRS: [(&str, &str); 2] =
    [("dirty_background_bytes", "dirty_background_ratio"), ("dirty_bytes", "dirty_ratio")];
/// One over the part of memory that each processor's lists of free pages may hold; 0 lets the kernel choose.
const PAGE_LISTS: &str = "percpu_pagelist_high_fraction";
/// So small a part that the kernel uses its minimum.
const SHORTEST: u64 = 100_000;

/// Lowered dirty limits; dropping it restores the old ones.
#[derive(Debug)]
pub struct LoweredLimits {
    /// Holds the lock, and the old settings for the next process after a crash.
    file: File,
    /// Folder of the settings: /proc/sys/vm.
    settings: PathBuf,
    before: String,
}

impl LoweredLimits {
    /// Lowers the limits; waits while another process has them lowered, as long as `patient` says so.
    /// Needs root.
    pub fn lower(
        background: Bytes,
        hard: Bytes,
        patient: impl FnMut() -> bool,
    ) -> anyhow::Result<LoweredLimits> {
        LoweredLimits::lower_in(Path::new(SETTINGS), Path::new(STATE), background, hard, patient)
    }

    /// Restores limits left lowered by a killed process; true if there were any. Does nothing while another
    /// process has them lowered, and for users who may not lower them.
    pub fn put_back_left() -> anyhow::Result<bool> {
        put_back_left_in(Path::new(SETTINGS), Path::new(STATE))
    }

    fn lower_in(
        settings: &Path,
        state: &Path,
        background: Bytes,
        hard: Bytes,
        patient: impl FnMut() -> bool,
    ) -> anyhow::Result<LoweredLimits> {
        ensure!(
            background < hard,
            "the background limit ({background}) must be below the hard limit ({hard})"
        );
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(state)
            .with_context(|| format!("cannot open {}; lowering the limits needs root", state.display()))?;
        let held =
            || format!("the dirty limits are lowered by another process, which holds {}", state.display());
        let locked = machine::lock(&file, patient).with_context(held)?;
        ensure!(locked, held());
        restore_left(settings, &file)?;
        let before = current(settings)?;
        note(&mut file, &before)?;
        let lowered = LoweredLimits { file, settings: settings.to_owned(), before };
        // Lowers the background limit first: the kernel halves one that is above the hard limit.
        set(settings, PAIRS[0].0, background.0)?;
        set(settings, PAIRS[1].0, hard.0)?;
        Ok(lowered)
    }

    /// Until the limits are restored, freed pages return at once to lists shared by all processors, and not
    /// first to lists of up to hundreds of MiB for one processor and one size (`nr_pcp_high`,
    /// mm/page_alloc.c). Kernels before 5.14 have no such setting; it does nothing there.
    pub fn shorten_page_lists(&mut self) -> anyhow::Result<()> {
        let before = match fs::read_to_string(self.settings.join(PAGE_LISTS)) {
            Ok(before) => before,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(|| format!("cannot read vm.{PAGE_LISTS}")),
        };
        if !self.before.contains(PAGE_LISTS) {
            self.before += &format!("{PAGE_LISTS} {}\n", before.trim());
            note(&mut self.file, &self.before)?;
        }
        set(&self.settings, PAGE_LISTS, SHORTEST)
    }
}

impl Drop for LoweredLimits {
    fn drop(&mut self) {
        let done = restore(&self.settings, &self.before).and_then(|()| note(&mut self.file, ""));
        if let Err(error) = done {
            let text = format!(
                "cawl: the dirty limits could not be put back ({error:#}); do it by hand: {}\n",
                self.before.replace('\n', " ").trim()
            );
            // Not eprintln, which panics when stderr is closed or full.
            drop(std::io::stderr().write_all(text.as_bytes()));
        }
    }
}

fn put_back_left_in(settings: &Path, state: &Path) -> anyhow::Result<bool> {
    let mut file = match OpenOptions::new().read(true).write(true).open(state) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(false);
        }
        Err(error) => return Err(error).with_context(|| format!("cannot open {}", state.display())),
    };
    if !machine::lock(&file, || false).with_context(|| format!("cannot lock {}", state.display()))? {
        return Ok(false);
    }
    let left = restore_left(settings, &file)?;
    note(&mut file, "")?;
    Ok(left)
}

/// Restores what a process left that was killed while it had the limits lowered; true if there was any.
fn restore_left(settings: &Path, mut file: &File) -> anyhow::Result<bool> {
    let mut left_behind = String::new();
    file.read_to_string(&mut left_behind)?;
    restore(settings, &left_behind)?;
    Ok(!left_behind.is_empty())
}

/// The settings in force, one `name value` a line.
fn current(settings: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    for (bytes, ratio) in PAIRS {
        for name in [bytes, ratio] {
            let value =
                fs::read_to_string(settings.join(name)).with_context(|| format!("cannot read vm.{name}"))?;
            if value.trim() != "0" {
                text += &format!("{name} {}\n", value.trim());
                break;
            }
        }
    }
    Ok(text)
}

fn restore(settings: &Path, text: &str) -> anyhow::Result<()> {
    for line in text.lines() {
        if let Some((name, value)) = line.split_once(' ')
            && (name == PAGE_LISTS || PAIRS.iter().any(|(bytes, ratio)| [*bytes, *ratio].contains(&name)))
            && let Ok(value) = value.parse()
        {
            set(settings, name, value)?;
        }
    }
    Ok(())
}

fn set(settings: &Path, name: &str, value: u64) -> anyhow::Result<()> {
    match fs::write(settings.join(name), value.to_string()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error)
            .with_context(|| format!("cannot set vm.{name}; run as root, or leave the limits alone")),
        other => other.with_context(|| format!("cannot set vm.{name}")),
    }
}

fn note(file: &mut File, text: &str) -> anyhow::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings like the kernel's, without the zeroing of a pair's other half.
    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let values =
            [("dirty_background_bytes", "0"), ("dirty_background_ratio", "10"), ("dirty_bytes", "9000")];
        for (name, value) in values.into_iter().chain([("dirty_ratio", "0")]) {
            fs::write(dir.path().join(name), value).unwrap();
        }
        dir
    }

    fn value(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).unwrap()
    }

    #[test]
    fn lowered_and_put_back() {
        let dir = machine();
        let state = dir.path().join("state");
        let lowered = LoweredLimits::lower_in(dir.path(), &state, Bytes(10), Bytes(20), || true).unwrap();
        assert_eq!(
            (value(dir.path(), "dirty_background_bytes"), value(dir.path(), "dirty_bytes")),
            ("10".into(), "20".into())
        );
        assert_eq!(fs::read_to_string(&state).unwrap(), "dirty_background_ratio 10\ndirty_bytes 9000\n");
        let other = LoweredLimits::lower_in(dir.path(), &state, Bytes(10), Bytes(20), || false);
        assert!(format!("{:#}", other.unwrap_err()).contains("another process"));
        drop(lowered);
        assert_eq!(
            (value(dir.path(), "dirty_background_ratio"), value(dir.path(), "dirty_bytes")),
            ("10".into(), "9000".into())
        );
        assert_eq!(fs::read_to_string(&state).unwrap(), "");
        assert!(LoweredLimits::lower_in(dir.path(), &state, Bytes(20), Bytes(20), || true).is_err());
    }

    #[test]
    fn page_lists_are_shortened_and_put_back() {
        let dir = machine();
        let state = dir.path().join("state");
        let lower = || LoweredLimits::lower_in(dir.path(), &state, Bytes(10), Bytes(20), || true).unwrap();
        // An old kernel has no such setting.
        lower().shorten_page_lists().unwrap();
        assert!(!dir.path().join(PAGE_LISTS).exists());
        fs::write(dir.path().join(PAGE_LISTS), "0\n").unwrap();
        let mut lowered = lower();
        lowered.shorten_page_lists().unwrap();
        lowered.shorten_page_lists().unwrap();
        assert_eq!(value(dir.path(), PAGE_LISTS), SHORTEST.to_string());
        let noted = fs::read_to_string(&state).unwrap();
        assert_eq!(noted, format!("dirty_background_bytes 10\ndirty_bytes 9000\n{PAGE_LISTS} 0\n"));
        drop(lowered);
        assert_eq!(value(dir.path(), PAGE_LISTS), "0");
        // And after a process was killed, by the next one.
        fs::write(dir.path().join(PAGE_LISTS), SHORTEST.to_string()).unwrap();
        fs::write(&state, noted).unwrap();
        drop(lower());
        assert_eq!(value(dir.path(), PAGE_LISTS), "0");
    }

    #[test]
    fn a_killed_process_is_cleaned_up_after() {
        let dir = machine();
        let state = dir.path().join("state");
        fs::write(&state, "dirty_background_ratio 7\ndirty_bytes 5000\n/etc/passwd 1\n").unwrap();
        drop(LoweredLimits::lower_in(dir.path(), &state, Bytes(10), Bytes(20), || true).unwrap());
        assert_eq!(value(dir.path(), "dirty_bytes"), "5000");
    }

    #[test]
    fn what_a_killed_process_left_is_put_back_without_lowering() {
        let dir = machine();
        let state = dir.path().join("state");
        assert!(!put_back_left_in(dir.path(), &state).unwrap());
        let lowered = LoweredLimits::lower_in(dir.path(), &state, Bytes(10), Bytes(20), || true).unwrap();
        assert!(!put_back_left_in(dir.path(), &state).unwrap(), "its owner lives");
        assert_eq!(value(dir.path(), "dirty_bytes"), "20");
        let noted = fs::read_to_string(&state).unwrap();
        drop(lowered);
        assert!(!put_back_left_in(dir.path(), &state).unwrap(), "it is put back");
        fs::write(dir.path().join("dirty_bytes"), "20").unwrap();
        fs::write(&state, noted).unwrap();
        assert!(put_back_left_in(dir.path(), &state).unwrap());
        assert_eq!(value(dir.path(), "dirty_bytes"), "9000");
        assert!(!put_back_left_in(dir.path(), &state).unwrap(), "once");
    }

    #[test]
    fn a_panic_puts_them_back() {
        let dir = machine();
        let path = dir.path().to_owned();
        let panicked = std::thread::spawn(move || {
            let _lowered =
                LoweredLimits::lower_in(&path, &path.join("state"), Bytes(10), Bytes(20), || true).unwrap();
            panic!("as a test does");
        });
        assert!(panicked.join().is_err());
        assert_eq!(value(dir.path(), "dirty_bytes"), "9000");
    }
}
