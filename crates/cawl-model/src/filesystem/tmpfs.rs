//! tmpfs and ramfs (mm/shmem.c, 6.18): files are in memory alone, in single pages without `huge=`.

use super::{Filesystem, Traits};
use crate::release::Laws;

#[derive(Debug)]
pub(super) struct Tmpfs;

impl Filesystem for Tmpfs {
    fn traits(&self, laws: Laws) -> Traits {
        Traits { is_in_memory: true, has_single_pages: true, ..Traits::of(laws) }
    }
}
