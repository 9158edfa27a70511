//! The lab's tests: the emulated disk, network mounts, and `cawl-cli calibrate` and `experiment` on a disk
//! and on other filesystems.
//!
//! They need root, /dev/fuse and loop devices, and say `SKIPPED:` where one of them is missing. None judges
//! how fast this machine is; that is `cawl-lab verify`.
#![forbid(unsafe_code)]

mod calibrate;
mod disk;
mod experiment;
mod filesystems;
mod mounts;
mod net;
mod real;
mod recorded;
mod util;
