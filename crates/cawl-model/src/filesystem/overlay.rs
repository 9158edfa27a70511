//! overlayfs, where it is not known on which filesystem its upper layer lies: that is taken to be ext4.

use super::ext4::Ext4;
use super::{Filesystem, Traits};
use crate::release::Laws;

#[derive(Debug)]
pub(super) struct Overlay;

impl Filesystem for Overlay {
    fn traits(&self, laws: Laws) -> Traits {
        Ext4.traits(laws)
    }
}
