//! The kernel's dirty limits: what profiles, samples and models all speak of.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The kernel's two dirty limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirtyLimits {
    /// Above it the flusher works in the background (`nr_dirty_background_threshold`), in bytes.
    pub background: Bytes,
    /// What dirty bytes are kept below by throttling writers (`nr_dirty_threshold`), in bytes.
    pub hard: Bytes,
}

impl DirtyLimits {
    /// Midpoint of the two, where throttling begins: `dirty_freerun_ceiling` in mm/page-writeback.c, and
    /// what the CAWL paper calls the setpoint (§4.4).
    pub const fn freerun(self) -> Bytes {
        Bytes(self.background.0.midpoint(self.hard.0))
    }
}
