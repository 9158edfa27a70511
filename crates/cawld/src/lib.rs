//! The daemon: reads the tracers' events, runs the models in lockstep with them, keeps traces and answers
//! questions.
//!
//! The law of this crate: **one session's failure ends one session.** Connections are served by tasks
//! that only read and forward; one thread, the engine, runs the models and owns all state; traces are
//! written by threads of their own. Queues between them are bounded, and the traced program at the far
//! end drops and counts rather than waits.
#![deny(unsafe_code)]
// These macros panic when the output is closed or full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod aside;
mod asker;
mod batch;
mod call_sample;
mod calls_to;
mod complaints;
mod connections;
mod devices;
mod engine;
mod foreign;
mod guests;
pub mod history;
pub mod http;
pub mod kernel;
mod lane;
mod mappings;
mod merge;
mod messages;
mod metrics;
mod names;
mod otlp_to;
mod possible;
pub mod program;
mod query_tables;
mod questions;
mod ring;
mod rooms;
mod run_delays;
mod sampler;
mod server;
mod session;
mod silent_processes;
pub mod socket;
mod spooled;
mod stacks;
mod subscribe;
mod sums_to;
mod task;
mod ticks;
mod totals;
mod uring;
mod watch;
pub mod web;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what is whole also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub use asker::{AskError, Asker, Node};
pub use calls_to::{CallsOptions, Rule};
pub use engine::EngineOptions;
pub use guests::Allowed;
pub use otlp_to::OtlpOptions;
pub use server::Daemon;
pub use sums_to::SumsOptions;
pub use watch::WatchOptions;

/// Wrong usage, where that takes more than one argument to see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);
