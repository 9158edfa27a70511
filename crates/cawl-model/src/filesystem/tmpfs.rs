//! tmpfs and ramfs (mm/shmem.c, 6.18): files are in memory alone, in single pages without `huge=`.

use super::{Filesystem, Traits};

#[derive(Debug)]
pub(super) struct Tmpfs;

impl Filesystem for Tmpfs {
    fn traits(&self) -> Traits {
        Traits { is_in_memory: true, has_single_pages: true, ..Traits::default() }
    }
}
