//! A signal that ends a measurement: whatever was changed is restored, and then the process ends by the
//! signal.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Why a measurement ended before its time. `main` tells it, as any error, and then calls
/// [`Interrupted::end`].
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted; whatever it changed is as before")]
pub struct Interrupted(i32);

impl Interrupted {
    /// An error once `signal` holds the number of a signal.
    pub fn by(signal: &AtomicUsize) -> Result<(), Interrupted> {
        match signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            number => Err(Interrupted(number as i32)),
        }
    }

    /// Ends this process by the signal.
    pub fn end(self) {
        drop(signal_hook::low_level::emulate_default_handler(self.0));
    }
}

/// Runs `command` with a flag that holds the number of a signal that asked to stop, or zero.
pub fn guard(command: impl FnOnce(Arc<AtomicUsize>) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    command(signal)
}
