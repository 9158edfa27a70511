//! The machine: its facts, counters, limits and places, and the files that cawl keeps on it.
//!
//! The law of this crate: **it looks and keeps, and knows no daemon.** Texts of the kernel are understood by
//! [`cawl_core::host_text`]; here they are read. Nothing waits longer than a system call does, except where a
//! time limit is documented. What is changed on the machine (limits, trace instances) is put back.
#![deny(unsafe_code)]
// They panic where the output is closed or full.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

pub mod allowance;
pub mod cgroup;
pub mod clock;
mod device;
pub mod direct;
pub mod free;
pub mod inspect;
pub mod limits;
mod machine;
pub mod new_inode;
pub mod output;
pub mod place;
pub mod profiles;
mod settings;
pub mod spool;
pub mod target;
pub mod trace;
pub mod tracefs;

pub use device::DeviceStat;
pub use machine::{
    alive_since, facts, is_ignored, is_running, is_stopped, now, open_regular, page_cache_drops, parent,
    sample, schedstat, traceparent, usage, wall_clock, wchar, writes_back,
};
pub use settings::{
    Caches, apply_settings, caches, laws, lru_gen, page, processor, release, uncalibrated_profile,
};
