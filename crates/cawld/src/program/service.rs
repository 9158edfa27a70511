//! What a service manager is told (sd_notify); nothing where there is none.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;

use crate::Asker;

/// The daemon listens.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon reads what can be changed again; [`ready`] follows.
pub fn reloading() {
    // systemd wants to know since when.
    let moment = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(moment).collect::<Vec<_>>());
}

/// The daemon takes what has arrived and ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Tells that the engine works, twice as often as asked for: only if it answers.
pub async fn watchdog(asker: Asker) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let mut ticks = tokio::time::interval((limit / 2).max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        if asker.is_alive().await {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Each program connected takes two descriptors.
pub fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!("the limit of descriptors stays as it is: {error}");
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("the service manager could not be told: {error}");
    }
}
