//! The guards of tests: a disk, and lowered dirty limits.

use std::path::Path;

use anyhow::Context;
use cawl_core::{Bytes, Nanos};
use cawl_host::emulated::Lab;
use clap::ValueEnum;

use crate::spec::DiskSpec;
use crate::stand::Filesystem;

/// The reason why this machine cannot emulate a disk; None if it can.
pub fn missing() -> Option<&'static str> {
    if !nix::unistd::geteuid().is_root() {
        Some("an emulated disk needs root")
    } else if !Path::new("/dev/fuse").exists() {
        Some("an emulated disk needs /dev/fuse; load the module fuse")
    } else if !Path::new("/dev/loop-control").exists() {
        Some("an emulated disk needs loop devices; load the module loop")
    } else {
        None
    }
}

/// A running disk; dropping it unmounts it and waits for that.
#[derive(Debug)]
pub struct EmulatedDisk(Lab);

impl EmulatedDisk {
    /// Starts a disk. `program` is the built `cawl-lab`; `limits`, background and hard, are lowered as long
    /// as the disk runs.
    pub fn bring_up(
        program: &Path,
        spec: DiskSpec,
        filesystem: Filesystem,
        limits: Option<(Bytes, Bytes)>,
    ) -> anyhow::Result<EmulatedDisk> {
        let filesystem = filesystem.to_possible_value().context("all filesystems have a name")?;
        let (spec, limits) = (spec.to_string(), limits.map(limits_argument));
        let mut arguments = vec!["--disk", &spec, "--filesystem", filesystem.get_name()];
        arguments.extend(limits.as_deref());
        Ok(EmulatedDisk(Lab::start(program, &arguments)?))
    }

    /// The mount point of its filesystem.
    pub fn mount_point(&self) -> &Path {
        &self.0.ready.mount
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        &self.0.ready.device
    }

    /// Time of a small write without pacing, the least latency of this disk.
    pub fn floor(&self) -> Nanos {
        self.0.ready.floor
    }

    /// The process that serves it.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }
}

/// Lowered dirty limits; dropping it restores the old ones and waits for that.
#[derive(Debug)]
pub struct LimitsGuard {
    _served: Lab,
}

impl LimitsGuard {
    /// Lowers the limits; waits while another process has them lowered.
    pub fn lower(program: &Path, background: Bytes, hard: Bytes) -> anyhow::Result<LimitsGuard> {
        let limits = limits_argument((background, hard));
        Ok(LimitsGuard { _served: Lab::start(program, &["--disk", "none", &limits])? })
    }
}

fn limits_argument((background, hard): (Bytes, Bytes)) -> String {
    format!("--limits={},{}", background.0, hard.0)
}
