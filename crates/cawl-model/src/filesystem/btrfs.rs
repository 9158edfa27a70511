//! btrfs (fs/btrfs, 6.18): every write goes to new blocks (`btrfs_dirty_folio`), in single pages without
//! CONFIG_BTRFS_EXPERIMENTAL, and nobody waits for a transaction, which copies the blocks. A synced file is
//! put into a log of its own (fs/btrfs/tree-log.c).
//!
//! The law of the log: a sync puts an item into a tree for each run of blocks that its file got
//! (`btrfs_log_changed_extents`), and writes the leaves of that tree that changed. A leaf that was written
//! before is copied (`should_cow_block`), so that all of it is written anew. The keys are places in files:
//! the more items there are, the more leaves has a sync of scattered pages to write. The log ends with its
//! transaction, after `commit=`, 30 s.

use super::{Changes, Filesystem, SyncEnd, Traits};
use crate::release::Laws;
use crate::units::Seconds;

#[derive(Debug)]
pub(super) struct Btrfs;

impl Filesystem for Btrfs {
    fn traits(&self, laws: Laws) -> Traits {
        Traits {
            // `btrfs_release_file`, `btrfs_rename`.
            writes_cut_files: true,
            writes_renamed_files: true,
            clones: true,
            has_single_pages: true,
            // After each piece, in all releases, which is taken for the same.
            checks_first: true,
            logs_files: true,
            ..Traits::of(laws)
        }
    }

    /// The log has only files that were synced (`btrfs_log_inode_parent`). One that has not changed is not
    /// written, nor is the device's cache flushed (`skip_inode_logging`).
    fn ends_sync(&self, inode: Changes, _all: bool, _syncs_stamps: bool) -> SyncEnd {
        if inode.grown || inode.stamped { SyncEnd::Commit } else { SyncEnd::Nothing }
    }

    /// The log has the folder's own changes, behind nothing else.
    fn ends_folder_sync(&self, renamed: bool, _in_transaction: bool, _syncs_stamps: bool) -> SyncEnd {
        if renamed { SyncEnd::Commit } else { SyncEnd::Nothing }
    }
}

/// Time from one transaction to the next (`BTRFS_DEFAULT_COMMIT_INTERVAL`).
const COMMIT: Seconds = Seconds(30.0);
/// Bytes of an item: `struct btrfs_item` and a `struct btrfs_file_extent_item`.
const ITEM: f64 = 25.0 + 53.0;
/// Bytes of a leaf (mkfs.btrfs's default), and the part of it that is full: a leaf that gets no more room is
/// split in halves.
pub(crate) const LEAF: f64 = 16384.0;
const FULL: f64 = std::f64::consts::LN_2;
/// Copies of each leaf: mkfs.btrfs's default for metadata on one device (DUP).
pub(crate) const COPIES: f64 = 2.0;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeLog {
    items: f64,
    /// When its transaction began.
    began: Seconds,
}

impl TreeLog {
    /// A sync at `now` adds so many runs of blocks; how many leaves it writes, one at least.
    pub(crate) fn add(&mut self, runs: u64, now: Seconds) -> f64 {
        if now - self.began >= COMMIT || self.items == 0.0 {
            *self = TreeLog { items: 0.0, began: now };
        }
        let runs = runs as f64;
        self.items += runs;
        let all = (self.items * ITEM / (LEAF * FULL)).max(1.0);
        // Those that get at least one of the items, if each is as likely to get one as any other.
        (all * (1.0 - (1.0 - 1.0 / all).powf(runs))).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fio: 32 pages at random places of a file of 64 MiB, then fdatasync, again and again. On 6.18 a sync
    /// took 3.0 ms at first, 4.0 after 1000 pages, 5.0 after 2300, 6.3 after 4400, 7.1 after 8000: of 0.18 ms
    /// for each leaf.
    #[test]
    fn syncs_of_scattered_pages_write_more_and_more_leaves() {
        let mut log = TreeLog::default();
        let leaves: Vec<f64> = (0..256).map(|sync| log.add(32, Seconds(f64::from(sync) * 6e-3))).collect();
        assert_eq!(leaves[0], 1.0);
        for (pages, took) in [(1000, 4.0), (2300, 5.05), (4400, 6.25), (8000, 7.1)] {
            let [more, observed] = [leaves[pages / 32] - 1.0, (took - 2.7) / 0.184];
            assert!((more / observed - 1.0).abs() < 0.25, "{pages} pages: {more} more leaves for {observed}");
        }
        // A run of blocks has one item; a new transaction has a new log.
        assert!(log.add(1, Seconds(2.0)) < 1.01);
        assert_eq!(log.add(32, Seconds(40.0)), 1.0);
    }
}
