//! Signals that ask a wait to end. Those that end a measurement are cawl-measure's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Writing past a limit on the length of files (`ulimit -f`) fails from now on, and ends the process no more.
/// It is a handler, which exec undoes: what this starts has the signal as this process had it.
pub fn outlive_file_limit() {
    if !cawl_host::is_ignored(libc::SIGXFSZ) {
        // Without the handler it is as before.
        drop(signal_hook::flag::register(libc::SIGXFSZ, Arc::default()));
    }
}

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
                if let Ok(signals) = signal(kind) {
                    count_all(signals, count).await;
                }
            });
        }
        Stop(asked)
    }

    /// Handles signals of these kinds from now on, but for those that are ignored, as SIGHUP under nohup.
    /// Needs a tokio runtime.
    pub fn from_now(kinds: &[SignalKind]) -> std::io::Result<Stop> {
        let (count, asked) = watch::channel(0);
        for kind in kinds.iter().filter(|kind| !cawl_host::is_ignored(kind.as_raw_value())) {
            tokio::spawn(count_all(signal(*kind)?, count.clone()));
        }
        Ok(Stop(asked))
    }

    /// Returns at the next signal.
    pub async fn asked(&mut self) {
        if self.0.changed().await.is_err() {
            // There is no handler any more.
            std::future::pending::<()>().await;
        }
    }
}

async fn count_all(mut signals: Signal, count: watch::Sender<u64>) {
    while signals.recv().await.is_some() {
        count.send_modify(|count| *count += 1);
    }
}

/// Tells whether a process sent a signal, or the kernel: for the terminal, to the whole group.
pub struct Sent(Arc<AtomicBool>);

impl Sent {
    /// Of signals of this kind from now on.
    #[expect(unsafe_code, reason = "the handler only stores to an atomic")]
    pub fn of(kind: SignalKind) -> std::io::Result<Sent> {
        let by_process = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&by_process);
        let handler = move |told_of: &libc::siginfo_t| {
            // SI_USER, SI_TKILL and SI_QUEUE are none of the kernel's (sigaction(2)).
            if told_of.si_code <= 0 {
                told.store(true, Ordering::Relaxed);
            }
        };
        // SAFETY: the handler is async-signal-safe.
        unsafe { signal_hook_registry::register_sigaction(kind.as_raw_value(), handler)? };
        Ok(Sent(by_process))
    }

    /// True if a process sent one since this was asked last.
    pub fn by_process(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
