//! How long a new file looks for its inode. On ext4 without a journal it passes over those that were deleted
//! lately (`find_inode_bit`), of which nothing else tells without reading the device.
//!
//! A file without a name (O_TMPFILE) gets its inode as any new file of its folder does, changes no name and
//! no time stamp there, and is gone when it is closed. Who watches the folder (inotify) hears that it was
//! opened and closed.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cawl_core::INODES_PER_GROUP;
use nix::libc::O_TMPFILE;

/// Tries in a folder: the first one finds the processor's cache cold. No other follows one that took long.
const TRIES: usize = 3;
const LONG: Duration = Duration::from_millis(3);
/// Folders looked at, and time limit for all.
const FOLDERS: usize = 4;
const WITHIN: Duration = Duration::from_millis(20);

/// A file that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewInode {
    /// Device number (`st_dev`).
    pub dev: u64,
    /// Its inode.
    pub inode: u64,
    /// What that took, in seconds.
    pub took: f64,
    /// What it takes to open the folder.
    pub open: f64,
}

/// Makes files in a folder, one after another; the fastest. None where none can be made.
pub fn make(folder: &Path) -> Option<NewInode> {
    let mut begin = Instant::now();
    let mut fastest = |options: &OpenOptions| {
        let mut fastest: Option<(f64, File)> = None;
        for _ in 0..TRIES {
            let watch = Instant::now();
            let file = options.open(folder).ok()?;
            let took = watch.elapsed().as_secs_f64();
            if fastest.as_ref().is_none_or(|(least, _)| took < *least) {
                fastest = Some((took, file));
            }
            if begin.elapsed() > LONG {
                break;
            }
        }
        begin = Instant::now();
        fastest
    };
    // First, since the inodes displace what is in the processor's cache.
    let (open, _) = fastest(OpenOptions::new().read(true))?;
    let nameless = fastest(OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(O_TMPFILE));
    let (took, file) = nameless?;
    let meta = file.metadata().ok()?;
    Some(NewInode { dev: meta.dev(), inode: meta.ino(), took, open })
}

/// Makes files in folders of different groups, the first ones; nothing where that takes long, as on a
/// filesystem that is frozen.
pub fn make_in(folders: Vec<PathBuf>) -> Vec<NewInode> {
    let (tell, told) = mpsc::channel();
    let make_all = move || {
        // Folders in the same group have the same inodes for new files.
        let mut groups = Vec::new();
        for folder in folders {
            let Ok(meta) = fs::metadata(&folder) else { continue };
            let group = (meta.dev(), meta.ino() / INODES_PER_GROUP);
            if groups.len() < FOLDERS && !groups.contains(&group) {
                groups.push(group);
                if make(&folder).is_some_and(|made| tell.send(made).is_err()) {
                    return;
                }
            }
        }
    };
    let until = Instant::now() + WITHIN;
    // Without a thread nothing is told.
    drop(std::thread::Builder::new().name("cawl-inodes".to_owned()).spawn(make_all));
    std::iter::from_fn(|| told.recv_timeout(until.saturating_duration_since(Instant::now())).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_stays_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let look = || {
            let meta = fs::metadata(dir.path()).unwrap();
            (meta.mtime_nsec(), meta.ctime_nsec(), meta.nlink(), fs::read_dir(dir.path()).unwrap().count())
        };
        let before = look();
        let folders = vec![dir.path().to_owned(), dir.path().join("missing"), dir.path().to_owned()];
        let made = make_in(folders);
        assert_eq!(look(), before);
        // Some filesystems have no files without names.
        assert!(made.len() <= 1 && made.iter().all(|one| one.inode > 0 && one.took > 0.0), "{made:?}");
        assert_eq!(make(Path::new("/proc")), None);
    }
}
