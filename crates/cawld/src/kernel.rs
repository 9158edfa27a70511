//! Probes in the kernel, as a second source of calls beside the tracers.
//!
//! The law of this module: **one eye is one task, and each process that it follows is a session like
//! another.** The task reads the ring of its probes every few ms, gives each process's calls to the engine,
//! and ends sessions as processes end or become other programs. One eye follows any number of targets, which
//! come and go: two eyes would take their time from each system call of the machine twice.

mod eye;
mod held;
mod part;
mod process;

use std::sync::Arc;

use anyhow::anyhow;
use cawl_probe::Probe;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::{Daemon, task};
use eye::{Ask, Eye};
pub use part::Target;

/// Attached probes; they end with this.
pub struct Attached {
    /// What they were attached for.
    pub first: Followed,
    stop: watch::Sender<bool>,
    asks: mpsc::Sender<Ask>,
    task: JoinHandle<anyhow::Result<Vec<String>>>,
}

/// A target that attached probes follow.
#[derive(Clone)]
pub struct Followed(watch::Receiver<()>);

const DRAINING: &str = "the daemon is about to end";

/// Why probes cannot be attached here, as far as that can be known before they are.
pub fn unavailable() -> Option<String> {
    cawl_probe::check().err().map(|why| why.to_string())
}

impl Daemon {
    /// Attaches probes; the calls of what they follow are those of this run, and of the daemon's own lane.
    /// What the target is made of now is followed once this returns.
    pub async fn attach(&self, run: u64, target: Target) -> anyhow::Result<Attached> {
        // The verifier takes its time.
        let probe = tokio::task::spawn_blocking(Probe::attach).await??;
        let (stop, stopped) = watch::channel(false);
        let (asks, asked) = mpsc::channel(1);
        let (connections, engine) = (Arc::clone(self.connections()), self.engine());
        let task =
            task::spawn(
                async move { Eye::new(probe, run, &connections, engine).follow(stopped, asked).await },
            );
        match ask(&asks, target).await {
            Some(first) => Ok(Attached { first, stop, asks, task }),
            None => Err(task.await?.err().unwrap_or_else(|| anyhow!(DRAINING))),
        }
    }
}

/// None: the task has ended.
async fn ask(asks: &mpsc::Sender<Ask>, target: Target) -> Option<Followed> {
    let (reply, answer) = oneshot::channel();
    asks.send(Ask { target, reply }).await.ok()?;
    answer.await.ok().map(Followed)
}

impl Attached {
    /// Follows this, too, as [`Daemon::attach`].
    pub async fn follow(&self, target: Target) -> anyhow::Result<Followed> {
        // Why they have, `stop` tells.
        ask(&self.asks, target).await.ok_or_else(|| anyhow!("the probes have ended"))
    }

    /// True if something ended them; `stop` tells what.
    pub fn have_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Detaches; all calls up to now were given to the engine. Notes for the report, or why it ended before.
    pub async fn stop(self) -> anyhow::Result<Vec<String>> {
        self.stop.send_replace(true);
        self.task.await?
    }
}

impl Followed {
    /// Returns once nothing of it is left running.
    pub async fn ended(&self) {
        while self.0.clone().changed().await.is_ok() {}
    }

    /// True once nothing of it is left running.
    pub fn has_ended(&self) -> bool {
        self.0.has_changed().is_err()
    }
}
