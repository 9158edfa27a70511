//! An emulated disk: a block device of given speed under a real kernel's page cache.
//!
//! The law: **a program that uses the block device with O_DIRECT meets the constants of the disk**, and
//! nothing is left of it when the guard is dropped, on every way out.
//!
//! ```text
//! test ── pipe ──▶ cawl-lab, the process that serves it
//!   │                 └ FUSE file, paced by law.rs, content in store.rs
//!   └ files ─▶ ext4 or xfs ─▶ /dev/loopN, direct I/O ─┘
//! ```
//!
//! Beside it, a network mount: files behind a link of given latency and bandwidth ([`NetMount`]).
//!
//! [`emulated_disk`] and [`network_mount`] start `cawl-lab` and return a guard with a pipe to it. When the
//! pipe ends, by drop, panic or death of the test, `cawl-lab` unmounts everything and ends. What a killed
//! `cawl-lab` leaves is removed by the next one.
//!
//! [`real`] has network filesystems that are not emulated.
//!
//! What only a machine with time to spare can show is not tested but measured: [`verify`].
#![forbid(unsafe_code)]

mod args;
mod clock;
mod command;
mod guard;
mod image;
mod law;
mod leftovers;
mod net;
mod overhead;
mod program;
pub mod reader;
pub mod real;
mod spec;
mod stand;
mod store;
mod uml;
pub mod verify;
pub mod writer;

pub use guard::{emulated_disk, lowered_limits, missing, network_mount, no_mounts};
pub use net::{NetMount, NetSpec, Policy, Requests, probe};
pub use overhead::Overhead;
pub use program::main;
pub use spec::DiskSpec;
pub use stand::{Filesystem, Stand};
