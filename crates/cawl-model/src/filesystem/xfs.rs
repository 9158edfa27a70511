//! xfs (fs/xfs, 6.18): the log gets a copy of what has changed (`xfs_inode_item_format`), so that nobody
//! waits for it; iomap has a bitmap of a folio's blocks (`struct iomap_folio_state`) and no descriptions.

use super::{Filesystem, Traits};

#[derive(Debug)]
pub(super) struct Xfs;

impl Filesystem for Xfs {
    fn traits(&self) -> Traits {
        // `xfs_file_release`.
        Traits { writes_cut_files: true, clones: true, ..Traits::default() }
    }
}
