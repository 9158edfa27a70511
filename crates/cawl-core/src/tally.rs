//! Sums of calls.

use serde::{Deserialize, Serialize};

/// Calls and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of calls.
    pub calls: u64,
    /// Bytes written by them.
    pub bytes: u64,
}

impl Tally {
    /// Counts one more call that wrote this many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.add_all(Tally { calls: 1, bytes });
    }

    /// Counts more calls.
    pub fn add_all(&mut self, more: Tally) {
        self.calls = self.calls.saturating_add(more.calls);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}
