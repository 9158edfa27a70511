//! Filesystems, so far as their laws of writing differ (Linux 6.18; docs/science/MODEL.md, "Filesystems").
//!
//! Each has a file below, which says how it differs from the others, and by release, behind the trait
//! `Filesystem`; no other law names one. A further filesystem is such a file, and a line in
//! [`FilesystemKind`], its `of` and its `law`.

mod btrfs;
mod ext4;
mod fuse;
mod other;
mod overlay;
mod tmpfs;
mod xfs;

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use crate::release::Laws;

pub(crate) use btrfs::{COPIES, LEAF, TreeLog};
pub use ext4::GROUP;
pub(crate) use ext4::{Deleted, PLAUSIBLE};

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
    /// tmpfs, ramfs and what the kernel mounts of these, proc, sysfs and their kind: files in memory alone.
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
            // What they have the kernel makes.
            "proc" | "sysfs" | "cgroup" | "cgroup2" | "debugfs" | "tracefs" | "securityfs" | "configfs"
            | "devpts" | "bpf" | "mqueue" => FilesystemKind::Tmpfs,
            "overlay" => FilesystemKind::Overlay,
            "fuse" | "fuseblk" => FilesystemKind::Fuse,
            "nfs" | "nfs4" => FilesystemKind::Nfs,
            name if name.starts_with("fuse.") => FilesystemKind::Fuse,
            _ => FilesystemKind::Other,
        }
    }

    /// All folios of its files are single pages: those of btrfs without CONFIG_BTRFS_EXPERIMENTAL, of tmpfs
    /// without `huge=`, and where the release has no large ones.
    pub fn has_single_pages(self, laws: Laws) -> bool {
        self.law().traits(laws).has_single_pages
    }

    pub(crate) fn law(self) -> &'static dyn Filesystem {
        match self {
            FilesystemKind::Ext4 => &ext4::Ext4,
            FilesystemKind::Xfs => &xfs::Xfs,
            FilesystemKind::Btrfs => &btrfs::Btrfs,
            FilesystemKind::Tmpfs => &tmpfs::Tmpfs,
            FilesystemKind::Overlay => &overlay::Overlay,
            FilesystemKind::Fuse => &fuse::Fuse,
            FilesystemKind::Nfs => &other::Nfs,
            FilesystemKind::Other => &other::Other,
        }
    }

    /// Files are nowhere but in the page cache: nothing is written back, and no page counts as dirty
    /// (`noop_dirty_folio`, `noop_backing_dev_info`).
    pub fn is_in_memory(self) -> bool {
        self.law().traits(Laws::default()).is_in_memory
    }
}

/// What a filesystem does in its own way.
pub(crate) trait Filesystem: Debug + Sync {
    fn traits(&self, laws: Laws) -> Traits {
        Traits::of(laws)
    }

    /// What a synchronous call does when the data of its file are on the device. Fsync cares for `all`
    /// changes of the inode in the running transaction, fdatasync and O_DSYNC for those of its size and
    /// blocks. Where there is no journal, new time stamps are written with the inode (`syncs_stamps`).
    fn ends_sync(&self, inode: Changes, all: bool, syncs_stamps: bool) -> SyncEnd {
        match inode {
            Changes { grown: true, .. } => SyncEnd::Commit,
            Changes { stamped: true, .. } if syncs_stamps => SyncEnd::Inode,
            Changes { stamped: true, .. } if all => SyncEnd::Commit,
            _ => SyncEnd::Flush,
        }
    }

    /// What fsync of a folder does: a commit if the running transaction has anything, and no flush
    /// (`ext4_force_commit`). `renamed`: a name has changed since a folder was last synced.
    fn ends_folder_sync(&self, _renamed: bool, in_transaction: bool, syncs_stamps: bool) -> SyncEnd {
        match (syncs_stamps, in_transaction) {
            // The fsync of a new file has written its name, too (`ext4_sync_parent`).
            (true, _) => SyncEnd::Flush,
            // A name in it has changed, if anything has.
            (false, true) => SyncEnd::Commit,
            (false, false) => SyncEnd::Nothing,
        }
    }
}

impl Default for &'static dyn Filesystem {
    fn default() -> &'static dyn Filesystem {
        FilesystemKind::default().law()
    }
}

/// What some filesystems do and others do not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traits {
    /// Files are nowhere but in the page cache.
    pub(crate) is_in_memory: bool,
    /// Writers and completions wait for the log of a transaction (`do_get_write_access`,
    /// `ext4_end_io_rsv_work`).
    pub(crate) waits_for_log: bool,
    /// Pages count as written only with all of the extent that they were mapped to (`ext4_end_io_rsv_work`).
    pub(crate) completes_extents: bool,
    /// A write goes through the descriptions of all blocks of a folio (`struct buffer_head`).
    pub(crate) walks_blocks: bool,
    /// Closing a file that was cut off to nothing begins to write it.
    pub(crate) writes_cut_files: bool,
    /// Renaming a file over another begins to write it.
    pub(crate) writes_renamed_files: bool,
    /// Without a journal, a new file passes over the inodes that were deleted lately ([`Deleted`]).
    pub(crate) passes_deleted: bool,
    /// A folder has blocks of its own from the beginning (`ext4_init_new_dir`).
    pub(crate) folders_have_blocks: bool,
    /// A copy within it shares blocks instead of copying them (`vfs_clone_file_range`).
    pub(crate) clones: bool,
    /// All folios are single pages.
    pub(crate) has_single_pages: bool,
    /// A writer is checked before it copies, not after.
    pub(crate) checks_first: bool,
    /// fsync makes its own file durable and no other one's changes: there is a log of files that were synced.
    pub(crate) logs_files: bool,
    /// What is dirty is written page by page where the cache is dropped, and what was written past it has a
    /// new time for the server.
    pub(crate) launders_pages: bool,
}

impl Traits {
    /// What a release gives to all that say nothing else.
    fn of(laws: Laws) -> Traits {
        Traits { checks_first: laws.checks_first, ..Traits::default() }
    }

    /// While a log is written no page comes to count as written.
    pub(crate) fn withholds_completions(self) -> bool {
        self.completes_extents || !self.waits_for_log
    }
}

/// Changes of an inode in the running transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changes {
    /// Of its size or blocks.
    pub(crate) grown: bool,
    /// Of anything.
    pub(crate) stamped: bool,
}

/// What a call that wants data on the device does last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncEnd {
    /// It commits the running transaction, or writes the log of synced files.
    Commit,
    /// There is no journal: the inode is written and waited for, then the device's cache is flushed.
    Inode,
    /// Nothing there to commit: the device's cache is flushed.
    Flush,
    /// Nothing there to commit, and nothing done.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::Release;

    #[test]
    fn folios_are_large_where_release_and_kernel_have_them() {
        let [old, small, latest] = [(Release(6, 1), true), (Release::LATEST, false), (Release::LATEST, true)]
            .map(|(release, large)| Laws::of(release, large));
        let single = |laws| {
            [FilesystemKind::Ext4, FilesystemKind::Xfs, FilesystemKind::Btrfs]
                .map(|of| of.has_single_pages(laws))
        };
        assert_eq!([old, small, latest].map(single), [[true; 3], [true; 3], [false, false, true]]);
    }
}
