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
use fuser::{BackgroundSession, Config, MountOption, Session};
use nix::fcntl::OFlag;

use crate::clock;
use crate::command::run;
use crate::image::{self, Disk, Image};
use crate::leftovers;
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
    directory: PathBuf,
    disk: Arc<Disk>,
    session: Option<BackgroundSession>,
    device: Option<PathBuf>,
    mounted: bool,
    overhead: Overhead,
}

impl Stand {
    /// Starts a disk.
    pub fn bring_up(spec: DiskSpec, filesystem: Filesystem) -> anyhow::Result<Stand> {
        clock::wake_precisely();
        let directory = leftovers::own_directory()?;
        let mut stand = Stand {
            directory,
            disk: Disk::new(spec),
            session: None,
            device: None,
            mounted: false,
            overhead: Overhead::default(),
        };
        stand.serve(spec)?;
        let device = stand.attach()?;
        let overhead = overhead_of(&device)?;
        stand.overhead = overhead;
        stand.mount(&device, filesystem)?;
        stand.disk.pace(overhead);
        {
            let name = device.file_name().context("the loop device has a name")?;
            let queue = Path::new("/sys/block").join(name).join("queue/rotational");
            let turns = if spec.seek > Nanos::ZERO { "1" } else { "0" };
            fs::write(queue, turns).context("cannot say whether the loop device turns")?;
        }
        Ok(stand)
    }

    /// The mount point of the filesystem.
    pub fn mount_point(&self) -> PathBuf {
        self.directory.join(leftovers::MOUNT)
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        self.device.as_deref().unwrap_or(Path::new(""))
    }

    /// The cost of a request without pacing.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }

    fn serve(&mut self, spec: DiskSpec) -> anyhow::Result<()> {
        let at = self.directory.join(leftovers::DISK);
        fs::create_dir(&at)?;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(leftovers::NAME.to_owned()), MountOption::NoAtime];
        config.n_threads = Some(spec.depth as usize);
        config.clone_fd = true;
        let session = Session::new(Image(Arc::clone(&self.disk)), &at, &config)
            .context("cannot mount a FUSE filesystem; it needs root and /dev/fuse")?;
        self.session = Some(session.spawn()?);
        Ok(())
    }

    fn attach(&mut self) -> anyhow::Result<PathBuf> {
        let file = self.directory.join(leftovers::DISK).join(image::NAME);
        let output = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(file))?;
        let device = PathBuf::from(output.trim());
        self.device = Some(device.clone());
        Ok(device)
    }

    fn mount(&mut self, device: &Path, filesystem: Filesystem) -> anyhow::Result<()> {
        let at = self.mount_point();
        fs::create_dir(&at)?;
        let mut make;
        let options = match filesystem {
            Filesystem::None => return Ok(()),
            Filesystem::Ext4 => {
                make = Command::new("mkfs.ext4");
                // No initialization may remain for the background.
                let extended = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
                make.args(["-q", "-F", "-m", "0", "-N", "65536", "-J", "size=64", "-E", extended]);
                "noatime,noinit_itable"
            }
            Filesystem::Xfs => {
                make = Command::new("mkfs.xfs");
                make.args(["-q", "-f", "-K"]);
                "noatime"
            }
            Filesystem::Btrfs => {
                make = Command::new("mkfs.btrfs");
                make.args(["-q", "-f", "-K"]);
                "noatime"
            }
        };
        run(make.arg(device))?;
        run(Command::new("mount").args(["-o", options]).arg(device).arg(&at))?;
        self.mounted = true;
        Ok(())
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.disk.hurry();
        let report = |what: &str, result: anyhow::Result<()>| {
            if let Err(error) = result {
                eprintln!("cawl-lab: cannot {what}: {error:#}");
            }
        };
        if self.mounted {
            report("unmount the filesystem", leftovers::unmount(&self.mount_point()));
        }
        if let Some(device) = &self.device {
            report("detach the loop device", leftovers::detach(device));
        }
        if let Some(session) = self.session.take() {
            report("unmount the disk", leftovers::unmount(&self.directory.join(leftovers::DISK)));
            // Its threads end when the kernel has closed the connection, or with this process.
            drop(session);
        }
        leftovers::remove(&self.directory);
    }
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
