//! A server in user space (fs/fuse, 6.18). What goes over the way to it is the client's
//! (`kernel/remote.rs`); here is what the client of FUSE does unlike others.

use super::{Filesystem, Traits};
use crate::release::Laws;

#[derive(Debug)]
pub(super) struct Fuse;

impl Filesystem for Fuse {
    fn traits(&self, laws: Laws) -> Traits {
        // `fuse_launder_folio`, `fuse_flush_times`.
        Traits { launders_pages: true, ..Traits::of(laws) }
    }
}
