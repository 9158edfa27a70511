//! Leftovers of a disk in the system, found by name, and their removal.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;

/// Name of the disk in the table of mounts, and prefix of its folder's name.
pub(crate) const NAME: &str = "cawl-lab";
/// Mount point of the FUSE filesystem, within the disk's folder.
pub(crate) const DISK: &str = "disk";
/// Mount point of the filesystem on the disk or behind the link, within the disk's folder.
pub(crate) const MOUNT: &str = "mnt";

/// Makes the folder of the disk that this process serves, after the leftovers of others.
pub(crate) fn own_directory() -> io::Result<PathBuf> {
    clean_up();
    let directory = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o755).create(&directory)?;
    Ok(directory)
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
        if program.trim() == NAME && pid != std::process::id() {
            continue;
        }
        // The disk has ended, so requests to it fail at once, and this cannot hang.
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

/// Unmounts; a busy mount is removed when its last file is closed.
pub(crate) fn unmount(at: &Path) -> anyhow::Result<()> {
    run(Command::new("umount").arg(at))
        .or_else(|_| run(Command::new("umount").arg("--lazy").arg(at)))
        .map(drop)
}

pub(crate) fn detach(device: &Path) -> anyhow::Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}

/// Removes the empty folders; a folder with other files stays.
pub(crate) fn remove(directory: &Path) {
    for folder in [directory.join(MOUNT), directory.join(DISK), directory.to_owned()] {
        drop(fs::remove_dir(folder));
    }
}
