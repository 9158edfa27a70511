//! Signals that ask to stop.
//!
//! Commands that change settings or files restore them, and then end by the signal. Commands that wait end
//! the wait.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::{exit, render};

/// A signal this soon after the program's end was meant for the program: a terminal sends it to both.
const MEANT_FOR_THE_PROGRAM: Duration = Duration::from_millis(200);

/// Signals that ask a wait to end.
#[derive(Clone)]
pub struct Stop(watch::Receiver<u64>);

impl Stop {
    /// Handles signals of these kinds, which already have a handler. Needs a tokio runtime.
    pub fn new(kinds: &[SignalKind]) -> Stop {
        let (count, asked) = watch::channel(0);
        for kind in kinds.iter().copied() {
            let count = count.clone();
            tokio::spawn(async move {
                tokio::time::sleep(MEANT_FOR_THE_PROGRAM).await;
                let Ok(mut signals) = signal(kind) else { return };
                while signals.recv().await.is_some() {
                    count.send_modify(|count| *count += 1);
                }
            });
        }
        Stop(asked)
    }

    /// Returns at the next signal.
    pub async fn asked(&mut self) {
        if self.0.changed().await.is_err() {
            // There is no handler any more.
            std::future::pending::<()>().await;
        }
    }
}

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
}

/// Runs `command` with a flag that holds the number of a signal that asked to stop, or zero.
pub fn guard(command: impl FnOnce(Arc<AtomicUsize>) -> anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(number, Arc::clone(&signal), number as usize)?;
    }
    let result = command(signal);
    if let Err(error) = &result
        && let Some(Interrupted(number)) = error.downcast_ref()
    {
        render::tell(format_args!("cawl-cli: {error:#}"));
        drop(signal_hook::low_level::emulate_default_handler(*number));
        return Ok(ExitCode::from(exit::FAILED));
    }
    result
}
