//! The kit of all tests: what a test needs to run a program, traced or not, and to look at what became of it.
//!
//! - [`Dir`]: a folder of the test's own, and commands that see nothing but it
//! - [`Running`], [`Finished`]: processes with a time limit, and how they ended
//! - [`Daemon`], [`Served`], [`FakeDaemon`], [`witness`]: `cawld` as a process, within the test, one that
//!   says what a test wants, and one that only remembers what a tracer said
//! - [`Report`], [`calls`]: what `cawl-cli` tells of a run
//! - [`same`] and its variants: a program does under the tracer what it does without
//! - [`built`], [`library`], [`app`]: the programs of this workspace, and those of tests/apps, compiled once
//! - [`program`], [`emulated`]: programs of another processor, in emulation
//! - [`SmallDisk`], [`MuteServer`]: filesystems with a property
//!
//! A test that needs something this machine lacks calls [`skipped`] and returns.
#![forbid(unsafe_code)]

mod built;
mod daemon;
mod dir;
mod fake;
mod mute;
mod process;
mod report;
mod same;
pub mod served;
mod small;
pub mod witness;

pub use built::{app, app_with, built, compiled, emulated, find, lab, library, preload, program, python};
pub use daemon::Daemon;
pub use dir::Dir;
pub use fake::{Answer, FakeDaemon};
pub use mute::MuteServer;
pub use process::{Finished, LIMIT, Running, eventually};
pub use report::{Report, calls};
pub use same::{same, same_but, size, tree, unchanged};
pub use served::Served;
pub use small::SmallDisk;

/// Says what is not tested, past the test harness, which would keep it to itself.
pub fn skipped(why: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one piece, because other tests write too.
    drop(std::io::stderr().write_all(format!("SKIPPED: {test}: {why}\n").as_bytes()));
}
