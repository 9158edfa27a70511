//! Filesystems, so far as their laws of writing differ (Linux 6.18; docs/MODEL.md, "Filesystems").

use serde::{Deserialize, Serialize};

use crate::record::Filesystem;

/// The filesystem of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FilesystemKind {
    /// ext2, ext3 and ext4. Where nothing is known its laws are assumed.
    #[default]
    Ext4,
    /// xfs.
    Xfs,
    /// btrfs.
    Btrfs,
    /// tmpfs, ramfs and what the kernel mounts of these: files in memory alone.
    Tmpfs,
    /// overlayfs. What lies below has its own laws; where that is not known, those of ext4 are assumed.
    Overlay,
    /// A server in user space.
    Fuse,
    /// A server elsewhere.
    Nfs,
    /// Any other.
    #[serde(other)]
    Other,
}

impl FilesystemKind {
    /// The one with this name in /proc/self/mountinfo.
    pub fn of(name: &str) -> FilesystemKind {
        match name {
            "ext2" | "ext3" | "ext4" => FilesystemKind::Ext4,
            "xfs" => FilesystemKind::Xfs,
            "btrfs" => FilesystemKind::Btrfs,
            "tmpfs" | "ramfs" | "devtmpfs" | "rootfs" => FilesystemKind::Tmpfs,
            "overlay" => FilesystemKind::Overlay,
            "fuse" | "fuseblk" => FilesystemKind::Fuse,
            "nfs" | "nfs4" => FilesystemKind::Nfs,
            name if name.starts_with("fuse.") => FilesystemKind::Fuse,
            _ => FilesystemKind::Other,
        }
    }

    /// Files are nowhere but in the page cache: nothing is written back, and no page counts as dirty
    /// (`noop_dirty_folio`, `noop_backing_dev_info`).
    pub const fn is_in_memory(self) -> bool {
        matches!(self, FilesystemKind::Tmpfs)
    }

    /// Writers and completions wait for the log of a transaction (`do_get_write_access`,
    /// `ext4_end_io_rsv_work`): jbd2. xfs copies what it logs (`xfs_inode_item_format`), btrfs the blocks.
    pub const fn waits_for_log(self) -> bool {
        matches!(self, FilesystemKind::Ext4 | FilesystemKind::Overlay)
    }

    /// Pages count as written only with all of the extent that they were mapped to (`ext4_end_io_rsv_work`).
    pub const fn completes_extents(self) -> bool {
        matches!(self, FilesystemKind::Ext4 | FilesystemKind::Overlay)
    }

    /// A write goes through the descriptions of all blocks of a folio (`struct buffer_head`). iomap has a
    /// bitmap of them (`struct iomap_folio_state`), the others have blocks of a page and more.
    pub const fn walks_blocks(self) -> bool {
        matches!(self, FilesystemKind::Ext4 | FilesystemKind::Overlay | FilesystemKind::Other)
    }

    /// A copy within it shares blocks instead of copying them (`vfs_clone_file_range`).
    pub const fn clones(self) -> bool {
        matches!(self, FilesystemKind::Xfs | FilesystemKind::Btrfs)
    }

    /// All folios are single pages: btrfs without CONFIG_BTRFS_EXPERIMENTAL, tmpfs without `huge=`.
    pub const fn has_single_pages(self) -> bool {
        matches!(self, FilesystemKind::Btrfs | FilesystemKind::Tmpfs)
    }

    /// fsync makes its own file durable and no other one's changes: the log of btrfs has only files that were
    /// synced (`btrfs_log_inode_parent`). One that has not changed is not written, nor is the device's cache
    /// flushed (`skip_inode_logging`).
    pub const fn logs_files(self) -> bool {
        matches!(self, FilesystemKind::Btrfs)
    }
}

/// A mount whose files have other laws than those of an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mounted {
    dev: u64,
    kind: FilesystemKind,
    over: Option<u64>,
    volatile: bool,
}

/// The filesystems of a machine, by the device number of their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filesystems(Vec<Mounted>);

impl Filesystems {
    pub(crate) fn of(mounts: &[Filesystem]) -> Filesystems {
        let mounted = |mount: &Filesystem| Mounted {
            dev: mount.dev,
            kind: FilesystemKind::of(&mount.kind),
            over: mount.over,
            volatile: mount.options.split(',').any(|option| option == "volatile"),
        };
        Filesystems(mounts.iter().map(mounted).collect())
    }

    fn mount(&self, dev: u64) -> Option<&Mounted> {
        self.0.iter().find(|mount| mount.dev == dev)
    }

    /// Which one a device has, if it is known.
    pub(crate) fn kind(&self, dev: u64) -> Option<FilesystemKind> {
        self.mount(dev).map(|mount| mount.kind)
    }

    /// The device that files with this number lie on: that of the upper layer, of an overlay.
    pub(crate) fn below(&self, dev: u64) -> u64 {
        self.mount(dev).and_then(|mount| mount.over).unwrap_or(dev)
    }

    /// Nothing there is ever waited for: an overlay mounted with `volatile` (`ovl_should_sync`).
    pub(crate) fn is_volatile(&self, dev: u64) -> bool {
        self.mount(dev).is_some_and(|mount| mount.volatile && mount.kind == FilesystemKind::Overlay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dev: u64, kind: &str, options: &str, over: Option<u64>) -> Filesystem {
        Filesystem { dev, kind: kind.into(), options: options.into(), over, ..Filesystem::default() }
    }

    #[test]
    fn kinds_by_name() {
        let kinds = ["ext3", "xfs", "ramfs", "fuse.sshfs", "nfs4", "f2fs"].map(FilesystemKind::of);
        use FilesystemKind::*;
        assert_eq!(kinds, [Ext4, Xfs, Tmpfs, Fuse, Nfs, Other]);
    }

    #[test]
    fn an_overlay_lies_on_the_device_of_its_upper_layer() {
        let all = Filesystems::of(&[
            mount(1, "xfs", "rw", None),
            mount(2, "overlay", "rw,upperdir=/u,workdir=/w", Some(1)),
            mount(3, "overlay", "rw,upperdir=/u2,volatile", None),
            mount(4, "ext4", "rw,volatile", None),
        ]);
        assert_eq!([1, 2, 3, 9].map(|dev| all.below(dev)), [1, 1, 3, 9]);
        assert_eq!([2, 3, 4, 9].map(|dev| all.is_volatile(dev)), [false, true, false, false]);
        assert_eq!((all.kind(2), all.kind(9)), (Some(FilesystemKind::Overlay), None));
    }
}
