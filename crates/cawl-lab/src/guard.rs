//! The guards of tests: a disk, a network mount, and lowered dirty limits.

use std::path::Path;

use anyhow::Context;
use cawl_core::Bytes;
use clap::ValueEnum;

use crate::emulated::Lab;
use crate::net::NetSpec;
use crate::spec::DiskSpec;
use crate::stand::Filesystem;

/// The reason why this machine cannot have a network mount; None if it can.
pub fn no_mounts() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        Some("an emulated disk or mount needs root")
    } else if !Path::new("/dev/fuse").exists() {
        Some("an emulated disk or mount needs /dev/fuse; load the module fuse")
    } else {
        None
    }
}

/// The reason why this machine cannot emulate a disk; None if it can.
pub fn missing() -> Option<&'static str> {
    if let Some(lacks) = no_mounts() {
        Some(lacks)
    } else if !Path::new("/dev/loop-control").exists() {
        Some("an emulated disk needs loop devices; load the module loop")
    } else {
        None
    }
}

/// Starts a disk, which is unmounted when the guard is dropped. `program` is the built `cawl-lab`; `limits`,
/// background and hard, are lowered as long as the disk runs.
pub fn emulated_disk(
    program: &Path,
    spec: DiskSpec,
    filesystem: Filesystem,
    limits: Option<(Bytes, Bytes)>,
) -> anyhow::Result<Lab> {
    let filesystem = filesystem.to_possible_value().context("all filesystems have a name")?;
    let (spec, limits) = (spec.to_string(), limits.map(limits_argument));
    let mut arguments = vec!["--disk", &spec, "--filesystem", filesystem.get_name()];
    arguments.extend(limits.as_deref());
    Lab::start(program, &arguments)
}

/// Starts a network mount, which is unmounted when the guard is dropped. `program` is the built `cawl-lab`;
/// `limits`, background and hard, are lowered as long as the mount runs.
pub fn network_mount(program: &Path, spec: NetSpec, limits: Option<(Bytes, Bytes)>) -> anyhow::Result<Lab> {
    let (spec, limits) = (spec.to_string(), limits.map(limits_argument));
    let mut arguments = vec!["--net", &spec];
    arguments.extend(limits.as_deref());
    Lab::start(program, &arguments)
}

/// Lowers the dirty limits until the guard is dropped; waits while another process has them lowered.
pub fn lowered_limits(program: &Path, background: Bytes, hard: Bytes) -> anyhow::Result<Lab> {
    Lab::start(program, &["--disk", "none", &limits_argument((background, hard))])
}

fn limits_argument((background, hard): (Bytes, Bytes)) -> String {
    format!("--limits={},{}", background.0, hard.0)
}
