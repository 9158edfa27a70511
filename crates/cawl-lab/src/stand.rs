//! Starts and stops a disk: FUSE filesystem, loop device, filesystem on it.
//!
//! It runs in a process of its own: processes that wait for the disk in the kernel can be killed at any time,
//! and the disk answers until everything on it is unmounted. Other programs mount and unmount for the same
//! reason: a process that serves a disk must not wait for it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::Context;
use cawl_core::Nanos;
use fuser::BackgroundSession;
use nix::fcntl::OFlag;

use crate::clock;
use crate::command::run;
use crate::image::{self, Disk, Image};
use crate::leftovers::Folder;
use crate::overhead::{self, Overhead};
use crate::spec::DiskSpec;

/// The filesystem on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Filesystem {
    /// ext4, all tables written before it is handed over
    Ext4,
    /// xfs
    Xfs,
    /// btrfs
    Btrfs,
    /// The bare block device
    None,
}

/// A running disk. Dropping it stops it.
#[derive(Debug)]
pub struct Stand {
    folder: Folder,
    disk: Arc<Disk>,
    device: PathBuf,
    overhead: Overhead,
    /// After the folder, since its threads end when everything is unmounted.
    _session: BackgroundSession,
}

impl Stand {
    /// Starts a disk.
    pub fn bring_up(spec: DiskSpec, filesystem: Filesystem) -> anyhow::Result<Stand> {
        clock::wake_precisely();
        let (folder, disk, overhead) = (Folder::make()?, Disk::new(spec), Overhead::default());
        let threads = spec.depth as usize;
        let session = Folder::serve(Image(Arc::clone(&disk)), &folder.disk(), threads, None)?;
        let mut stand = Stand { folder, disk, device: PathBuf::new(), overhead, _session: session };
        stand.device = attach(&stand.folder)?;
        stand.overhead = overhead_of(&stand.device)?;
        mount(&stand.device, filesystem, &stand.folder)?;
        stand.disk.pace(stand.overhead);
        let name = stand.device.file_name().context("the loop device has a name")?;
        let queue = Path::new("/sys/block").join(name).join("queue/rotational");
        let turns = if spec.seek > Nanos::ZERO { "1" } else { "0" };
        fs::write(queue, turns).context("cannot say whether the loop device turns")?;
        Ok(stand)
    }

    /// The mount point of the filesystem.
    pub fn mount_point(&self) -> PathBuf {
        self.folder.mount()
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The cost of a request without pacing.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.disk.hurry();
    }
}

fn attach(folder: &Folder) -> anyhow::Result<PathBuf> {
    let file = folder.disk().join(image::NAME);
    let output = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
    Ok(PathBuf::from(output.trim()))
}

fn mount(device: &Path, filesystem: Filesystem, folder: &Folder) -> anyhow::Result<()> {
    // No initialization of ext4 may remain for the background.
    const EXT4: &str = "-q -F -m 0 -N 65536 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    let (make, arguments, options) = match filesystem {
        Filesystem::None => return Ok(()),
        Filesystem::Ext4 => ("mkfs.ext4", EXT4, "noatime,noinit_itable"),
        Filesystem::Xfs => ("mkfs.xfs", "-q -f -K", "noatime"),
        Filesystem::Btrfs => ("mkfs.btrfs", "-q -f -K", "noatime"),
    };
    run(Command::new(make).args(arguments.split(' ')).arg(device))?;
    run(Command::new("mount").args(["-o", options]).arg(device).arg(folder.mount())).map(drop)
}

/// The cost of a request to an idle device, without pacing.
fn overhead_of(device: &Path) -> anyhow::Result<Overhead> {
    /// A single request even with scattered memory: a loop device takes 128 segments in one.
    const LARGE: usize = 512 << 10;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(OFlag::O_DIRECT.bits()).open(device);
    let file = file.with_context(|| format!("cannot open {}", device.display()))?;
    Ok(overhead::measure(&file, LARGE, overhead::ROUNDS, 0.5, || file.sync_all())?)
}
