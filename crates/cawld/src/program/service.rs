//! Notifications to a service manager (sd_notify), if there is one.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;

use crate::Asker;

/// The daemon listens.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon reloads; [`ready`] follows.
pub fn reloading() {
    // systemd requires the time.
    let moment = NotifyState::monotonic_usec_now().ok();
    tell(&[NotifyState::Reloading].into_iter().chain(moment).collect::<Vec<_>>());
}

/// The daemon is ending.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Notifies while the engine answers, twice as often as required.
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
