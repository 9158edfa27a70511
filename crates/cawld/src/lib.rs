//! The daemon: takes the tracers' events, runs the models in lockstep with them, keeps traces and
//! answers questions.
//!
//! The law of this crate: **one session's failure ends one session.** Connections are served by tasks
//! that only read and forward; one thread, the engine, runs the models and owns all state; traces are
//! written by threads of their own. Queues between them are bounded, and the traced program at the far
//! end drops and counts rather than waits.
#![forbid(unsafe_code)]

pub mod direct;
mod engine;
pub mod host;
pub mod inspect;
mod lane;
pub mod limits;
mod merge;
mod messages;
pub mod place;
pub mod profiles;
pub mod protocol;
pub mod query;
mod ring;
mod sampler;
mod server;
mod session;
pub mod socket;
mod started;
mod ticks;
pub mod trace;
mod uring;

use std::future::Future;

use tokio::net::UnixListener;

pub use engine::{EngineOptions, RunSpec};
pub use server::Daemon;

/// Serves `listener` until `shutdown` is ready, then drains connections and closes traces.
pub async fn run(
    listener: UnixListener,
    options: EngineOptions,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let daemon = Daemon::start(listener, options)?;
    shutdown.await;
    daemon.stop().await;
    Ok(())
}
