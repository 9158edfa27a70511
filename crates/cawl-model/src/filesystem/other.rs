//! Filesystems of which little is known: they have descriptions of a folio's blocks (`struct buffer_head`),
//! as most do that are old; NFS has none.

use super::{Filesystem, Traits};
use crate::release::Laws;

#[derive(Debug)]
pub(super) struct Other;

#[derive(Debug)]
pub(super) struct Nfs;

impl Filesystem for Other {
    fn traits(&self, laws: Laws) -> Traits {
        Traits { walks_blocks: true, ..Traits::of(laws) }
    }
}

impl Filesystem for Nfs {}
