//! Measurements of a machine, for the tool and the laboratory.
//!
//! The law: **nothing is left behind.** What is measured lies in a folder of its own ([`scratch`]), settings
//! change only when asked for and are restored, and a signal ([`interrupt`]) ends a measurement, not the
//! process.
//!
//! - [`calibrate`] measures the constants of machine and device.
//! - [`slow_limit`] waits until the kernel throttles writers as in the long run.
//! - [`embedded`] runs the C programs that measure what Rust cannot.
//! - [`progress`] shows what is measured now.
//!
//! No arguments are parsed here, and no results are made into text: that is for the programs.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod calibrate;
pub mod embedded;
pub mod interrupt;
pub mod progress;
pub mod scratch;
pub mod slow_limit;
