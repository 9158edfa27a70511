//! The working folder of calibration, experiments and tuning; removed at the end.
//!
//! The law: **no file that existed before is ever opened for writing or removed.** The folder is new, its
//! files are made with O_EXCL, and a folder counts as a leftover only if it has our name and owner and no
//! live process holds its lock.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use cawl_core::Bytes;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::statvfs::statvfs;

/// Prefix of the folder's name for a calibration; a number follows.
pub const CALIBRATE: &str = ".cawl-calibrate-";
/// That for an experiment.
pub const EXPERIMENT: &str = ".cawl-experiment-";
/// That for `tune --verify`.
pub const TUNE: &str = ".cawl-tune-";

/// The file that a live process keeps locked.
const ALIVE: &str = "alive";

/// Prefix of a folder that is not locked yet, before the number; locking takes at most this time.
const BEGUN: &str = ".cawl-begun-";
const BEGINNING: Duration = Duration::from_secs(60);

/// The folder; dropping it removes it with its files.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    _alive: Flock<File>,
}

impl Scratch {
    /// Makes the folder in `parent`, after removing leftovers of killed processes.
    pub fn create(parent: &Path, prefix: &str) -> anyhow::Result<Scratch> {
        Scratch::create_as(parent, prefix, std::process::id())
    }

    /// The folder gets its final name after it is locked: before that it would look like a leftover.
    fn create_as(parent: &Path, prefix: &str, number: u32) -> anyhow::Result<Scratch> {
        remove_leftovers(parent);
        let folder = parent.join(format!("{prefix}{number}"));
        let begun = parent.join(format!("{BEGUN}{number}"));
        if let Err(error) = DirBuilder::new().mode(0o700).create(&begun) {
            let remedy = match error.kind() {
                ErrorKind::ReadOnlyFilesystem => "it is read-only; name a folder that can be written to",
                ErrorKind::PermissionDenied => "you may not write there; name a folder of yours",
                ErrorKind::StorageFull => "the disk is full; free some space",
                ErrorKind::NotADirectory => "it is not a folder; name one",
                _ => "name another folder",
            };
            return Err(error).with_context(|| format!("cannot write in {}: {remedy}", parent.display()));
        }
        let alive = OpenOptions::new().write(true).create_new(true).open(begun.join(ALIVE));
        let locked = alive
            .map_err(anyhow::Error::from)
            .and_then(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e.into()));
        match locked {
            Ok(alive) => {
                // Some FUSE filesystems cannot rename; the lock counts under either name.
                let folder = if fs::rename(&begun, &folder).is_ok() { folder } else { begun };
                Ok(Scratch { folder, _alive: alive })
            }
            Err(error) => {
                remove(&begun);
                Err(error.context(format!("cannot write in {}; is the disk full?", parent.display())))
            }
        }
    }

    /// Where a file of the folder is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new file, read and written through the page cache.
    pub fn file(&self, name: &str) -> anyhow::Result<File> {
        self.open(name, OFlag::empty(), true)
    }

    /// A new file with O_DIRECT and further flags; None if the filesystem does not support them.
    pub fn direct_file(&self, name: &str, more: OFlag) -> anyhow::Result<Option<File>> {
        match self.open(name, OFlag::O_DIRECT | more, true) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error)
            {
                // The file was created nevertheless.
                Some(code) if code == nix::Error::EINVAL as i32 || code == nix::Error::EOPNOTSUPP as i32 => {
                    self.remove(name);
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    /// Opens a file of the folder again, with these flags.
    pub fn again(&self, name: &str, flags: OFlag) -> anyhow::Result<File> {
        self.open(name, flags, false)
    }

    fn open(&self, name: &str, flags: OFlag, new: bool) -> anyhow::Result<File> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(new).mode(0o600).custom_flags(flags.bits());
        let about = || format!("cannot {} {}", if new { "make" } else { "open" }, path.display());
        options.open(&path).with_context(about)
    }

    /// Has the dirty data and the journal of its filesystem written.
    pub fn sync(&self) -> anyhow::Result<()> {
        let folder = File::open(&self.folder)?;
        nix::unistd::syncfs(&folder).with_context(|| format!("cannot sync {}", self.folder.display()))
    }

    /// Removes a file of the folder.
    pub fn remove(&self, name: &str) {
        // A file that cannot be removed now is removed with the folder.
        drop(fs::remove_file(self.folder.join(name)));
    }

    /// Free space for this user.
    pub fn available(&self) -> anyhow::Result<Bytes> {
        let stat = statvfs(&self.folder)?;
        Ok(Bytes(stat.blocks_available().saturating_mul(stat.fragment_size())))
    }

    /// Fails if there is less space than `need`.
    pub fn require(&self, need: Bytes) -> anyhow::Result<Bytes> {
        let available = self.available()?;
        if available < need {
            bail!(
                "only {available} are free in {}, and {need} are needed; free some space or name a folder on \
                 another disk",
                self.folder.parent().unwrap_or(&self.folder).display()
            );
        }
        Ok(available)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let named = folder.file_name().and_then(|name| name.to_str()).is_some_and(is_ours);
        let Ok(meta) = fs::symlink_metadata(&folder) else { continue };
        if !named || !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
            continue;
        }
        let age = meta.modified().ok().and_then(|time| time.elapsed().ok()).unwrap_or_default();
        if is_begun(&folder) && age < BEGINNING {
            continue;
        }
        match File::open(folder.join(ALIVE)).map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
            // The holder of the lock owns the folder, unless a new folder has taken its name.
            Ok(Ok(lock)) if is_at(&lock, &folder.join(ALIVE)) => remove(&folder),
            Ok(_) => {}
            Err(_) if age >= BEGINNING => remove(&folder),
            // The owner is removing it, the lock last. A folder without a lock is removed if it is empty.
            Err(_) => drop(fs::remove_dir(&folder)),
        }
    }
}

/// True if the path leads to this open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().map(identity).ok() == fs::metadata(path).map(identity).ok()
}

/// True for a name that [`Scratch`] gives.
fn is_ours(name: &str) -> bool {
    let prefixes = [CALIBRATE, EXPERIMENT, TUNE, BEGUN].into_iter();
    prefixes.filter_map(|prefix| name.strip_prefix(prefix)).any(|pid| pid.parse::<u32>().is_ok())
}

fn is_begun(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(BEGUN))
}

/// Removes a folder of ours: its files, then the lock, then the folder. A folder within it is not ours and
/// stays.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) && entry.file_name() != ALIVE {
            drop(fs::remove_file(entry.path()));
        }
    }
    drop(fs::remove_file(folder.join(ALIVE)));
    drop(fs::remove_dir(folder));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_and_gone() {
        let dir = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(dir.path(), CALIBRATE).unwrap();
        scratch.file("one").unwrap();
        assert!(scratch.file("one").is_err(), "an existing file was taken");
        assert!(scratch.require(Bytes(1)).is_ok());
        assert!(scratch.require(Bytes(u64::MAX)).unwrap_err().to_string().contains("free some space"));
        drop(scratch);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_dead_are_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let [dead, other] = [CALIBRATE, EXPERIMENT].map(|prefix| dir.path().join(format!("{prefix}1")));
        let foreign = dir.path().join(".cawl-calibrate-notes");
        for folder in [&dead, &other, &foreign] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("data"), "x").unwrap();
            fs::write(folder.join(ALIVE), "").unwrap();
        }
        let living = Scratch::create(dir.path(), CALIBRATE).unwrap();
        assert!(!dead.exists() && !other.exists() && foreign.join("data").exists());
        remove_leftovers(dir.path());
        assert!(living.folder.exists());
    }

    /// Each looks for leftovers while others create their folders.
    #[test]
    fn those_who_begin_together_leave_each_other_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for number in 1..=8 {
                let parent = dir.path();
                scope.spawn(move || {
                    for _ in 0..200 {
                        let scratch = Scratch::create_as(parent, CALIBRATE, number).unwrap();
                        scratch.file("data").unwrap();
                        assert!(scratch.path(ALIVE).exists());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_beginning_is_a_leftover_only_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        let begun = dir.path().join(format!("{BEGUN}7"));
        fs::create_dir(&begun).unwrap();
        remove_leftovers(dir.path());
        assert!(begun.exists());
        let long_ago = std::time::SystemTime::now() - 2 * BEGINNING;
        File::open(&begun).unwrap().set_modified(long_ago).unwrap();
        remove_leftovers(dir.path());
        assert!(!begun.exists());
    }

    #[test]
    fn refusals_name_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = format!("{:#}", Scratch::create(&file, CALIBRATE).unwrap_err());
        assert!(error.contains("name one"), "{error}");
    }
}
