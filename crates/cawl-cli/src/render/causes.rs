//! Causes, for status and screen.

use cawl_client::protocol::CauseSeconds;
use cawl_core::Cause;

/// The causes with most seconds, at most `most` of them.
pub fn largest(seconds: &CauseSeconds, most: usize) -> Vec<(Cause, f64)> {
    let mut all: Vec<(Cause, f64)> = seconds.iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.truncate(most);
    all
}
