//! A signal that ends a measurement.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Why a measurement ended before its time: a signal of this number.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted; whatever it changed is as before")]
pub struct Interrupted(pub i32);

impl Interrupted {
    /// An error once `signal` holds the number of a signal.
    pub fn by(signal: &AtomicUsize) -> Result<(), Interrupted> {
        match signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            number => Err(Interrupted(number as i32)),
        }
    }
}
