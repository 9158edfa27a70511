//! The lab's tests: the emulated disk, network mounts, `cawl-cli calibrate` on a disk and on other
//! filesystems, and the commands of the lab.
//!
//! - `studies`: the documents' studies leave a page, all runs and nothing else; `direct`: that of direct and
//!   buffered writes
//! - `experiment`: the paper's figures on emulated disks
//! - `kernels`: recordings made under other releases of Linux
//! - `golden`, `densities`, `recorded_runs`: every model in front of recorded runs that are not in the repository
//! - `design`: which machine to buy
//! - `workflow`: how long tasks with files between them take
//! - `tune`: which setting suits which pattern of writing
//!
//! Most need root, /dev/fuse and loop devices, and say `SKIPPED:` where one of them is missing. None judges
//! how fast this machine is; that is `cawl-lab verify`.
#![forbid(unsafe_code)]

mod calibrate;
mod densities;
mod design;
mod direct;
mod disk;
mod experiment;
mod filesystems;
mod golden;
mod kernels;
mod mounts;
mod net;
mod real;
mod recorded;
mod recorded_runs;
mod studies;
mod support;
mod tune;
mod util;
mod workflow;
