//! The protocol of the daemon: questions and answers, its address, and a client.
//!
//! The law of this crate: **a client needs nothing of the server.** It blocks with a time limit, and has no
//! runtime, no sessions and no engine.
#![deny(unsafe_code)]
// They panic where the output is closed or full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod address;
mod job;
pub mod protocol;
pub mod query;
