//! xfs (fs/xfs, 6.18): the log gets a copy of what has changed (`xfs_inode_item_format`), so that nobody
//! waits for it; iomap has a bitmap of a folio's blocks (`struct iomap_folio_state`) and no descriptions.

use super::{Filesystem, Traits};
use crate::release::Laws;

#[derive(Debug)]
pub(super) struct Xfs;

impl Filesystem for Xfs {
    fn traits(&self, laws: Laws) -> Traits {
        Traits {
            // `xfs_file_release`.
            writes_cut_files: true,
            clones: true,
            has_single_pages: !laws.xfs_folios,
            checks_first: laws.xfs_checks_first,
            ..Traits::of(laws)
        }
    }
}
