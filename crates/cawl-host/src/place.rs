//! The place of a folder: its filesystem and device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cawl_core::{Bytes, DeviceCounters, Filesystem, FilesystemKind, Nanos, Time, host_text};
use serde::Serialize;

use crate::machine::{complete, number, queue_folder, read, sysfs_folder, upper};

/// The storage of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backing {
    /// One block device.
    Disk,
    /// A pool of devices that the filesystem manages itself: btrfs, zfs, bcachefs.
    Pool,
    /// Another machine, or another process: FUSE.
    Network,
    /// Memory only: tmpfs.
    Memory,
    /// Another filesystem: overlay.
    Stacked,
}

/// Limits of a device's request queue (/sys/block/DEVICE/queue).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Queue {
    /// Requests that it holds (`nr_requests`).
    pub requests: u64,
    /// Pieces of memory in a request (`max_segments`).
    pub segments: u64,
    /// Bytes of a request (`max_sectors_kb`).
    pub sectors: Bytes,
    /// Latency of reads above which writes are throttled (`wbt_lat_usec`); zero where that is off or unknown.
    pub wbt_latency: Nanos,
}

/// A folder's filesystem and device.
#[derive(Clone, Debug, Serialize)]
pub struct Place {
    /// The folder, without links.
    pub folder: PathBuf,
    /// Type of the filesystem.
    pub filesystem: String,
    /// The filesystem whose laws its files follow: of an overlay, that of its upper layer.
    #[serde(skip)]
    pub kind: FilesystemKind,
    /// Its mount point.
    pub mount: String,
    /// Number of the device, as its files have it (`st_dev`).
    #[serde(skip)]
    pub number: u64,
    /// Its storage.
    pub backing: Backing,
    /// Name of the device (`vda1`, `dm-0`), or the type of the filesystem if there is none; of an overlay
    /// both (`overlay-vda1`), if its upper layer is to be seen.
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
    /// True for ext4 without a journal.
    pub lacks_journal: bool,
    /// Buffer of a stream on a file there (`st_blksize`).
    pub stream_buffer: Bytes,
    /// Options of the filesystem.
    #[serde(skip)]
    pub options: String,
}

impl Place {
    /// The place of an existing file or folder.
    pub fn of(path: &Path) -> anyhow::Result<Place> {
        let folder = path
            .canonicalize()
            .with_context(|| format!("there is no {}; name an existing folder", path.display()))?;
        let meta = fs::metadata(&folder).with_context(|| format!("cannot look at {}", folder.display()))?;
        let mounts = host_text::mountinfo(&read("/proc/self/mountinfo"));
        let found = mounts.iter().filter(|mount| folder.starts_with(&mount.mount));
        // The last one of several mounts at the same place is on top; a longer path lies deeper.
        let found = found.max_by_key(|mount| mount.mount.len()).cloned();
        let unknown = || Filesystem { kind: "unknown".into(), mount: "/".into(), ..Filesystem::default() };
        let mut found = found.unwrap_or_else(unknown);
        if let Some(upper) = upper(&found).and_then(|upper| Place::of(&upper).ok()) {
            let device = format!("{}-{}", found.kind, upper.device);
            let backing = if upper.backing == Backing::Memory { upper.backing } else { Backing::Stacked };
            let (number, stream_buffer) = (meta.dev(), Bytes(meta.blksize()));
            let (filesystem, mount) = (found.kind, found.mount);
            return Ok(Place { folder, filesystem, mount, number, backing, device, stream_buffer, ..upper });
        }
        // btrfs and zfs give their files numbers without a device; the source has one.
        let source = fs::metadata(Path::new("/dev").join(&found.device)).ok();
        let source = source.filter(|_| !found.device.is_empty()).map(|source| source.rdev());
        let sysfs = [Some(meta.dev()), source].into_iter().flatten().find_map(sysfs_folder);
        let name = sysfs.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let queue = sysfs.as_deref().and_then(|device| complete(&mut found, device));
        let physical = queue.and_then(|queue| number(queue.join("physical_block_size").to_str()?));
        let task = name.as_deref().map(|name| read(&format!("/sys/fs/ext4/{name}/journal_task")));
        let lacks_journal = task.is_some_and(|task| task.trim() == "<none>");
        Ok(Place {
            backing: backing(&found.kind, sysfs.is_some()),
            number: meta.dev(),
            device: name.unwrap_or_else(|| nameless(&found.kind, &found.mount)),
            commit: if lacks_journal { Some(Nanos::ZERO) } else { commit(&found.kind, &found.options) },
            lacks_journal,
            kind: FilesystemKind::of(&found.kind),
            filesystem: found.kind,
            options: found.options,
            mount: found.mount,
            block: found.block.map(Bytes),
            physical_block: physical.map(Bytes),
            rotational: found.rotational,
            write_cache: found.write_cache,
            scheduler: found.scheduler,
            sysfs,
            stream_buffer: Bytes(meta.blksize()),
            folder,
        })
    }

    /// What its storage is, to tell whether another machine's is equal: the model of the disk, or its driver,
    /// and whether it turns.
    pub fn storage(&self) -> String {
        let disk = self.disk_folder();
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let model = disk.and_then(|disk| fs::read_to_string(disk.join("device/model")).ok());
        let model = model.map(|model| model.trim().to_owned()).filter(|model| !model.is_empty());
        let driver = || name(fs::read_link(disk?.join("device/driver")).ok()?);
        // A loop device and a logical volume have neither.
        let numbered = |c: char| c.is_ascii_digit() || c == '-';
        let kind = || Some(name(disk?.into())?.trim_end_matches(numbered).to_owned());
        let storage = model.or_else(driver).or_else(kind).unwrap_or_else(|| self.filesystem.clone());
        let turning = if self.rotational == Some(true) { ", turning" } else { "" };
        // Of an overlay, the storage is that of its upper layer.
        let is_over = self.device.starts_with(&format!("{}-", self.filesystem));
        let over = if is_over { format!("{} on ", self.filesystem) } else { String::new() };
        format!("{over}{storage}{turning}")
    }

    /// Its files are the kernel's own: nothing that is written to them goes to a disk, or stays in memory.
    pub fn is_kernels_own(&self) -> bool {
        KERNELS_OWN.contains(&self.filesystem.as_str())
    }

    /// Limits of the queue of its disk; None without one.
    pub fn queue(&self) -> Option<Queue> {
        let folder = queue_folder(self.sysfs.as_ref()?)?;
        let limit = |name: &str| number(folder.join(name).to_str()?);
        Some(Queue {
            requests: limit("nr_requests")?,
            segments: limit("max_segments")?,
            sectors: Bytes(limit("max_sectors_kb")?.saturating_mul(1 << 10)),
            wbt_latency: Nanos::new(limit("wbt_lat_usec").unwrap_or(0) as f64 * 1e3),
        })
    }

    /// What the device has done since boot.
    pub fn device_counters(&self) -> Option<DeviceCounters> {
        let stat = read(self.sysfs.as_ref()?.join("stat").to_str()?);
        host_text::device_counters(&stat, Time(0), 0)
    }

    /// Number of the whole disk, as io.max names it; that of a logical volume is its own.
    pub fn disk(&self) -> Option<u64> {
        host_text::cgroup::device(&read(self.disk_folder()?.join("dev").to_str()?))
    }

    /// The folder of the whole disk in sysfs.
    fn disk_folder(&self) -> Option<&Path> {
        let device = self.sysfs.as_deref()?;
        if device.join("partition").exists() { device.parent() } else { Some(device) }
    }

    /// The largest window of reading ahead (`read_ahead_kb` of the filesystem's backing device); None if
    /// unknown.
    pub fn readahead(&self) -> Option<Bytes> {
        // A filesystem without a device may have a backing device of its own.
        let own = || {
            let (major, minor) = (nix::sys::stat::major(self.number), nix::sys::stat::minor(self.number));
            number(&format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"))
        };
        self.writeback_setting("read_ahead_kb").or_else(own).map(Bytes::kib)
    }

    /// A setting of the device's writeback, such as `min_ratio`.
    pub fn writeback_setting(&self, name: &str) -> Option<u64> {
        let setting = |device: &str| number(&format!("/sys/class/bdi/{device}/{name}"));
        let Some(sysfs) = &self.sysfs else {
            let (major, minor) = host_text::device_parts(self.number);
            return setting(&format!("{major}:{minor}"));
        };
        // A partition's writeback is that of its disk.
        ["dev", "../dev"].into_iter().find_map(|file| setting(read(sysfs.join(file).to_str()?).trim()))
    }

    /// A setting of the connection to a FUSE server, such as `max_background`; only root may know it.
    pub fn fuse_setting(&self, name: &str) -> Option<u64> {
        let (_, minor) = host_text::device_parts(self.number);
        number(&format!("/sys/fs/fuse/connections/{minor}/{name}"))
    }

    /// Most bytes of a request to the server of the files, so far as the kernel has a limit of its own
    /// (`fs.fuse.max_pages_limit`).
    pub fn largest_request(&self) -> Bytes {
        if !self.filesystem.starts_with("fuse") {
            return Bytes(u64::MAX);
        }
        let pages = number("/proc/sys/fs/fuse/max_pages_limit").unwrap_or(MAX_PAGES);
        Bytes(pages.saturating_mul(crate::page().0))
    }

    /// A number among the options of the filesystem, such as `wsize`.
    pub fn option(&self, name: &str) -> Option<u64> {
        let value = |option: &str| option.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        self.options.split(',').find_map(value)
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

/// Filesystems whose files are a way to talk to the kernel.
const KERNELS_OWN: [&str; 24] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "efivarfs",
    "functionfs",
    "fusectl",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
];

/// Most pages of a request in FUSE (`FUSE_MAX_MAX_PAGES`) before that was a setting, in 6.13.
const MAX_PAGES: u64 = 256;

/// What stands for a device where there is none. Of memory there is one; each mount of another kind is
/// something else.
fn nameless(kind: &str, mount: &str) -> String {
    match backing(kind, false) {
        Backing::Network => format!("{kind}:{mount}"),
        _ => kind.to_owned(),
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
        "fuseblk" => Backing::Disk,
        kind if kind.starts_with("fuse") => Backing::Network,
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
        assert_eq!(place.disk().is_some(), place.sysfs.is_some());
        assert!(!place.storage().is_empty() && place.storage() == Place::of(dir.path()).unwrap().storage());
        assert!(place.backing != Backing::Disk || place.readahead().is_some());
        assert!(place.queue().is_none_or(|queue| queue.requests > 0 && queue.sectors >= Bytes(4096)));
        let error = Place::of(&dir.path().join("missing")).unwrap_err();
        assert!(format!("{error:#}").contains("existing folder"));
        assert!(!place.is_kernels_own());
        assert!(["/proc", "/sys"].iter().all(|of| Place::of(Path::new(of)).unwrap().is_kernels_own()));
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
        assert_eq!(backing("fuse.sshfs", false), Backing::Network);
        assert_eq!(backing("fuseblk", true), Backing::Disk);
        assert_eq!(nameless("nfs4", "/mnt/a"), "nfs4:/mnt/a");
        assert_eq!(nameless("tmpfs", "/dev/shm"), "tmpfs");
    }
}
