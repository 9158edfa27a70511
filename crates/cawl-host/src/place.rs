//! The place of a folder: its filesystem and device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_core::{Bytes, Nanos, host_text};
use serde::Serialize;

use crate::machine::{number, read};

/// The storage of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// One block device.
    Disk,
    /// A pool of devices that the filesystem manages itself: btrfs, zfs, bcachefs.
    Pool,
    /// Another machine.
    Network,
    /// Memory only: tmpfs.
    Memory,
    /// Another filesystem: overlay, FUSE.
    Stacked,
}

/// A folder's filesystem and device.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The folder, without links.
    pub folder: PathBuf,
    /// Type of the filesystem.
    pub filesystem: String,
    /// Its mount point.
    pub mount: String,
    /// Number of the device, as its files have it (`st_dev`).
    #[serde(skip)]
    pub number: u64,
    /// Its storage.
    pub backing: Backing,
    /// Name of the device (`vda1`, `dm-0`), or the type of the filesystem if there is none.
    pub device: String,
    /// Folder of the device in sysfs.
    #[serde(skip)]
    pub sysfs: Option<PathBuf>,
    /// Logical block size.
    pub block: Option<Bytes>,
    /// Physical block size.
    pub physical_block: Option<Bytes>,
    /// True for a hard disk.
    pub rotational: Option<bool>,
    /// True for a volatile write cache.
    pub write_cache: Option<bool>,
    /// I/O scheduler.
    pub scheduler: Option<String>,
    /// Interval at which the journal is committed, with the data of new files; None if unknown.
    pub commit: Option<Nanos>,
    /// Buffer of a stream on a file there (`st_blksize`).
    pub stream_buffer: Bytes,
}

impl Place {
    /// The place of an existing file or folder.
    pub fn of(path: &Path) -> anyhow::Result<Place> {
        let folder = path
            .canonicalize()
            .with_context(|| format!("there is no {}; name an existing folder", path.display()))?;
        let meta = fs::metadata(&folder).with_context(|| format!("cannot look at {}", folder.display()))?;
        let mounts = host_text::mountinfo(&read("/proc/self/mountinfo"));
        let found = mounts.iter().rev().filter(|mount| folder.starts_with(&mount.mount));
        // The last one of several mounts at the same place is on top; a longer path lies deeper.
        let found = found.fold(None::<&cawl_core::Filesystem>, |best, mount| match best {
            Some(best) if best.mount.len() >= mount.mount.len() => Some(best),
            _ => Some(mount),
        });
        let (kind, mount, source, options) = found.map_or(("unknown", "/", "", ""), |mount| {
            (mount.kind.as_str(), mount.mount.as_str(), mount.device.as_str(), mount.options.as_str())
        });
        let numbers = [
            Some(meta.dev()),
            // btrfs and zfs give their files numbers without a device; the source has one.
            fs::metadata(Path::new("/dev").join(source))
                .ok()
                .filter(|_| !source.is_empty())
                .map(|m| m.rdev()),
        ];
        let sysfs = numbers.into_iter().flatten().find_map(|number| {
            let (major, minor) = host_text::device_parts(number);
            fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
        });
        let name = sysfs.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        // A partition has no queue of its own; the disk it lies on does.
        let queue = sysfs.as_deref().and_then(|device| {
            [device.join("queue"), device.join("../queue")].into_iter().find(|queue| queue.is_dir())
        });
        let fact = |fact: &str| {
            let path = queue.as_ref()?.join(fact);
            Some(read(path.to_str()?).trim().to_owned()).filter(|text| !text.is_empty())
        };
        let size = |name: &str| fact(name)?.parse().ok().map(Bytes);
        Ok(Place {
            backing: backing(kind, sysfs.is_some()),
            number: meta.dev(),
            device: name.unwrap_or_else(|| kind.to_owned()),
            filesystem: kind.to_owned(),
            mount: mount.to_owned(),
            block: size("logical_block_size"),
            physical_block: size("physical_block_size"),
            rotational: fact("rotational").map(|flag| flag != "0"),
            write_cache: fact("write_cache").map(|text| text == "write back"),
            scheduler: fact("scheduler").and_then(|text| {
                let (_, rest) = text.split_once('[')?;
                Some(rest.split_once(']')?.0.to_owned())
            }),
            sysfs,
            commit: commit(kind, options),
            stream_buffer: Bytes(meta.blksize()),
            folder,
        })
    }

    /// Bytes written to the device since boot.
    pub fn device_written(&self) -> Option<Bytes> {
        host_text::device_written(&read(self.sysfs.as_ref()?.join("stat").to_str()?))
    }

    /// A setting of the device's writeback, such as `min_ratio`.
    pub fn writeback_setting(&self, name: &str) -> Option<u64> {
        // A partition's writeback is that of its disk.
        let numbers = ["dev", "../dev"]
            .into_iter()
            .filter_map(|file| Some(read(self.sysfs.as_ref()?.join(file).to_str()?).trim().to_owned()));
        numbers.into_iter().find_map(|device| number(&format!("/sys/class/bdi/{device}/{name}")))
    }
}

/// ext4 and btrfs commit at an interval that mounting may set; the others write data when it is due.
fn commit(kind: &str, options: &str) -> Option<Nanos> {
    let set = options.split(',').find_map(|option| option.strip_prefix("commit=")?.parse().ok());
    match kind {
        "ext3" | "ext4" => Some(Nanos::seconds(set.unwrap_or(5.0))),
        "btrfs" => Some(Nanos::seconds(set.unwrap_or(30.0))),
        "xfs" | "tmpfs" | "ext2" => Some(Nanos::ZERO),
        _ => None,
    }
}

fn backing(kind: &str, device: bool) -> Backing {
    match kind {
        "btrfs" | "zfs" | "bcachefs" => Backing::Pool,
        "tmpfs" | "ramfs" | "devtmpfs" | "rootfs" => Backing::Memory,
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "afs" | "lustre" | "glusterfs" | "virtiofs" => {
            Backing::Network
        }
        "overlay" => Backing::Stacked,
        kind if kind.starts_with("fuse") && kind != "fuseblk" => Backing::Stacked,
        _ if device => Backing::Disk,
        _ => Backing::Stacked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn here_and_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::of(dir.path()).unwrap();
        assert!(!place.device.is_empty() && place.stream_buffer > Bytes::ZERO);
        assert!(place.folder.starts_with(&place.mount));
        let error = Place::of(&dir.path().join("missing")).unwrap_err();
        assert!(format!("{error:#}").contains("existing folder"));
        assert_eq!(Place::of(Path::new("/dev/shm")).map(|place| place.backing).ok(), Some(Backing::Memory));
    }

    #[test]
    fn commits() {
        assert_eq!(commit("ext4", "rw,commit=30"), Some(Nanos::seconds(30.0)));
        assert_eq!(commit("ext4", "rw"), Some(Nanos::seconds(5.0)));
        assert_eq!((commit("xfs", "rw"), commit("nfs4", "")), (Some(Nanos::ZERO), None));
    }

    #[test]
    fn kinds() {
        assert_eq!(backing("ext4", true), Backing::Disk);
        assert_eq!(backing("btrfs", true), Backing::Pool);
        assert_eq!(backing("nfs4", false), Backing::Network);
        assert_eq!(backing("fuse.sshfs", false), Backing::Stacked);
        assert_eq!(backing("fuseblk", true), Backing::Disk);
    }
}
