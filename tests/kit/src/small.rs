//! A disk that is soon full.

use std::fs;
use std::path::PathBuf;

use crate::{Dir, Running, skipped};

/// A tmpfs of 64 KiB in a test's folder. Only programs started through it see it, each its own: it is mounted
/// in a namespace that goes away with the program.
pub struct SmallDisk<'a> {
    dir: &'a Dir,
    path: PathBuf,
}

impl<'a> SmallDisk<'a> {
    /// None, and said so, where nothing can be mounted.
    pub fn new(dir: &'a Dir) -> Option<SmallDisk<'a>> {
        let path = dir.path().join("small");
        fs::create_dir(&path).expect("a new folder");
        let small = SmallDisk { dir, path };
        if small.start("true").finish().status.success() {
            return Some(small);
        }
        skipped("no tmpfs can be mounted here (needs root or user namespaces)");
        None
    }

    /// Where programs find a file of this name on it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Starts a command of the shell that sees the disk.
    pub fn start(&self, command: &str) -> Running {
        let script = format!("mount -t tmpfs -o size=64k none {} && {command}", self.path.display());
        let mut unshare = self.dir.command("unshare");
        unshare.args(["--map-root-user", "--mount", "sh", "-c", &script]);
        Running::start(unshare)
    }
}
