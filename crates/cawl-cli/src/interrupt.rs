//! Commands that change something for a while: a signal only asks, what is under way puts everything back, and
//! then the process ends by the signal.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::calibrate::Interrupted;
use crate::{exit, render};

/// Runs `command` with a flag that holds the number of a signal that asked to stop, or zero.
pub fn guard(command: impl FnOnce(Arc<AtomicUsize>) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    let result = command(signal);
    let error = match result {
        Err(error) if error.is::<Interrupted>() => error,
        other => return other,
    };
    render::tell(format_args!("cawl-cli: {error:#}"));
    if let Some(Interrupted(number)) = error.downcast_ref() {
        drop(signal_hook::low_level::emulate_default_handler(*number));
    }
    Ok(ExitCode::from(exit::FAILED))
}
