//! Filesystems, so far as their laws of writing differ (Linux 6.18; docs/science/MODEL.md, "Filesystems").

use serde::{Deserialize, Serialize};

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

crate::table::name!(FilesystemKind);

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

    /// Closing a file that was cut off to nothing begins to write it (`ext4_release_file`, `xfs_file_release`,
    /// `btrfs_release_file`).
    pub const fn writes_cut_files(self) -> bool {
        matches!(self, FilesystemKind::Xfs) || self.writes_renamed_files()
    }

    /// Renaming a file over another begins to write it (`ext4_rename`, `btrfs_rename`).
    pub const fn writes_renamed_files(self) -> bool {
        matches!(self, FilesystemKind::Ext4 | FilesystemKind::Btrfs | FilesystemKind::Overlay)
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
