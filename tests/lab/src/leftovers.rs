//! What a disk leaves in the system, found by name, and how it is removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stand::run;

/// Name of the disk in the table of mounts, and beginning of its folder's name.
pub(crate) const NAME: &str = "cawl-lab";
/// Folder within a disk's own where the user-space filesystem is mounted.
pub(crate) const DISK: &str = "disk";
/// Folder within a disk's own where the filesystem on the disk is mounted.
pub(crate) const MOUNT: &str = "mnt";

/// The folder of the disk that a process serves.
pub(crate) fn directory_of(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{NAME}-{pid}"))
}

/// Removes what disks left whose process is gone.
pub(crate) fn clean_up() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for directory in entries.flatten().map(|entry| entry.path()) {
        let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or("");
        let pid = name.strip_prefix(NAME).and_then(|rest| rest.strip_prefix('-')).map(str::parse::<u32>);
        let Some(Ok(pid)) = pid else { continue };
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // A number may have been given to another program since; our own is about to be used.
        if program.trim() == NAME && pid != std::process::id() {
            continue;
        }
        // The disk is dead, so what waits for it fails at once; nothing here can hang.
        drop(unmount(&directory.join(MOUNT)));
        for device in devices_of(&directory) {
            drop(detach(&device));
        }
        drop(unmount(&directory.join(DISK)));
        remove(&directory);
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

/// Unmounts; if something still lies open there, the mount goes as soon as that is closed.
pub(crate) fn unmount(at: &Path) -> anyhow::Result<()> {
    run(Command::new("umount").arg(at))
        .or_else(|_| run(Command::new("umount").arg("--lazy").arg(at)))
        .map(drop)
}

pub(crate) fn detach(device: &Path) -> anyhow::Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}

/// Removes the empty folders; what is not empty stays, for it is not ours.
pub(crate) fn remove(directory: &Path) {
    for folder in [directory.join(MOUNT), directory.join(DISK), directory.to_owned()] {
        drop(fs::remove_dir(folder));
    }
}
