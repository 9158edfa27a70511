//! Filesystems of which little is known: they have descriptions of a folio's blocks (`struct buffer_head`),
//! as most do that are old; NFS has none.

use super::{Filesystem, Traits};

#[derive(Debug)]
pub(super) struct Other;

#[derive(Debug)]
pub(super) struct Nfs;

impl Filesystem for Other {
    fn traits(&self) -> Traits {
        Traits { walks_blocks: true, ..Traits::default() }
    }
}

impl Filesystem for Nfs {}
