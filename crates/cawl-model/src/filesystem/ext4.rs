//! ext2, ext3 and ext4 (fs/ext4 and fs/jbd2, 6.18).
//!
//! The journal is jbd2's: files of a transaction wait for its log, and extents are converted, so that they count
//! as written, only when it is there. Without one an fsync writes the inode alone.

use super::{Filesystem, Traits};

#[derive(Debug)]
pub(super) struct Ext4;

impl Filesystem for Ext4 {
    fn traits(&self) -> Traits {
        Traits {
            waits_for_log: true,
            completes_extents: true,
            walks_blocks: true,
            // `ext4_release_file`, `ext4_rename`.
            writes_cut_files: true,
            writes_renamed_files: true,
            folders_have_blocks: true,
            ..Traits::default()
        }
    }
}
