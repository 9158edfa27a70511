//! The laboratory: what repeats, judges or fits the documents that cawl grew from, and the disks that it is
//! tried on. The tool, cawl-cli, is what an engineer installs; this is run in a checkout.
//!
//! - `experiment`: the documents' figures and studies, recorded, predicted and drawn
//!   (docs/science/EXPERIMENTS.md)
//! - `fit`, `compare`: a profile, and every model's errors, from recorded runs ([`recorded`])
//! - `regress`: linear models of tables of measurements
//! - `workflow`: how long tasks with files between them take (docs/science/WORKFLOWS.md)
//! - `tune`: which setting suits which pattern of writing (docs/science/TUNE.md)
//! - `design`: which machine to buy: price against time (docs/science/DESIGN.md)
//! - [`verify`]: what only a machine with time to spare can show, measured rather than tested
//! - `kernel`: a command under another release of Linux (kernel.rs)
//! - emulated disks and network mounts, and real network filesystems (real.rs)
//!
//! An emulated disk is a block device of given speed under a real kernel's page cache. The law: **a program
//! that uses the block device with O_DIRECT meets the constants of the disk**, and nothing is left of it when
//! the guard is dropped, on every way out.
//!
//! ```text
//! test ── pipe ──▶ cawl-lab, the process that serves it
//!   │                 └ FUSE file, paced by law.rs, content in store.rs
//!   └ files ─▶ ext4 or xfs ─▶ /dev/loopN, direct I/O ─┘
//! ```
//!
//! A network mount has its files behind a link of given latency and bandwidth (net.rs).
//!
//! [`emulated_disk`] and [`network_mount`] start `cawl-lab` and return a guard with a pipe to it. When the
//! pipe ends, by drop, panic or death of the test, `cawl-lab` unmounts everything and ends. What a killed
//! `cawl-lab` leaves is removed by the next one.
#![forbid(unsafe_code)]

mod args;
mod clock;
mod cmd;
mod command;
mod design;
pub mod emulated;
mod experiment;
mod ground;
mod guard;
mod image;
mod kernel;
mod law;
mod leftovers;
mod net;
mod overhead;
mod parallel;
mod program;
mod reader;
mod real;
pub mod recorded;
mod regress;
mod seeds;
mod spec;
mod stand;
mod store;
mod tune;
mod uml;
pub mod verify;
mod workflow;
mod writer;

pub use guard::{emulated_disk, lowered_limits, missing, network_mount, no_mounts};
pub use net::{NetSpec, Requests};
pub use program::main;
pub use spec::DiskSpec;
pub use stand::Filesystem;
