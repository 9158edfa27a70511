//! Leftovers of a disk in the system, found by name, and their removal.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use fuser::{BackgroundSession, Config, Filesystem, MountOption, Session};

use crate::command::run;

/// Name of the disk in the table of mounts, and prefix of its folder's name.
pub(crate) const NAME: &str = "cawl-lab";
/// Mount point of the FUSE filesystem, within the disk's folder.
const DISK: &str = "disk";
/// Mount point of the filesystem on the disk or behind the link, within the disk's folder.
const MOUNT: &str = "mnt";

/// The folder of what this process serves, with its mount points. Dropping it unmounts and removes
/// everything.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes it, after removing the leftovers of others.
    pub(crate) fn make() -> io::Result<Folder> {
        clean_up();
        let directory = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o755).create(&directory)?;
        for at in [DISK, MOUNT] {
            fs::create_dir(directory.join(at))?;
        }
        Ok(Folder(directory))
    }

    /// Serves a FUSE filesystem at one of its mount points, with so many threads and further options.
    pub(crate) fn serve<F: Filesystem + Send + Sync + 'static>(
        filesystem: F,
        at: &Path,
        threads: usize,
        more: Option<MountOption>,
    ) -> anyhow::Result<BackgroundSession> {
        let mut config = Config::default();
        let options = [MountOption::FSName(NAME.to_owned()), MountOption::NoAtime];
        config.mount_options = options.into_iter().chain(more).collect();
        config.n_threads = Some(threads);
        config.clone_fd = true;
        let session = Session::new(filesystem, at, &config)
            .context("cannot mount a FUSE filesystem; it needs root and /dev/fuse")?;
        Ok(session.spawn()?)
    }

    /// Where the FUSE filesystem of a disk is mounted, or what a server needs.
    pub(crate) fn disk(&self) -> PathBuf {
        self.0.join(DISK)
    }

    /// Where the filesystem on the disk or behind the link is mounted.
    pub(crate) fn mount(&self) -> PathBuf {
        self.0.join(MOUNT)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        take_down(&self.0);
    }
}

/// Unmounts and detaches what is under `directory`, and removes it if nothing else is in it. Whose process
/// has ended answers no request, so that they fail at once, and this cannot hang.
fn take_down(directory: &Path) {
    let report = |done: anyhow::Result<()>| {
        if let Err(error) = done {
            eprintln!("{NAME}: {error:#}");
        }
    };
    report(unmount(&directory.join(MOUNT)));
    devices_of(directory).iter().for_each(|device| report(detach(device)));
    report(unmount(&directory.join(DISK)));
    for folder in [directory.join(MOUNT), directory.join(DISK), directory.to_owned()] {
        drop(fs::remove_dir(folder));
    }
}

/// Removes the leftovers of disks whose process has ended.
fn clean_up() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for directory in entries.flatten().map(|entry| entry.path()) {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let pid = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-')).map(str::parse::<u32>);
        let Some(Ok(pid)) = pid else { continue };
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // The pid may have been reused by another program; this process's own folder is in use.
        if program.trim() != NAME || pid == std::process::id() {
            take_down(&directory);
        }
    }
}

/// Loop devices whose file lies under `directory`.
fn devices_of(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let ours = |entry: &fs::DirEntry| {
        let file = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(file.trim()).starts_with(directory)
    };
    entries.flatten().filter(ours).map(|entry| Path::new("/dev").join(entry.file_name())).collect()
}

/// Unmounts what is mounted at `at`, if anything is; a busy mount is removed when its last file is closed.
pub(crate) fn unmount(at: &Path) -> anyhow::Result<()> {
    if !is_mounted(at) {
        return Ok(());
    }
    run(Command::new("umount").arg(at))
        .or_else(|_| run(Command::new("umount").arg("--lazy").arg(at)))
        .map(drop)
}

/// Whether something is mounted at `at`, by the table of mounts: a server that is gone is not asked.
pub(crate) fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(4) == at.to_str())
}

fn detach(device: &Path) -> anyhow::Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}
