//! The lab's tests: the emulated disk, and `cawl-cli calibrate` and `experiment` on it and on other
//! filesystems.
//!
//! They need root, /dev/fuse and loop devices, and say `SKIPPED:` where one of them is missing. None judges
//! how fast this machine is; that is `cawl-lab verify`.
#![forbid(unsafe_code)]

mod calibrate;
mod disk;
mod experiment;
mod mounts;
mod recorded;
mod util;
