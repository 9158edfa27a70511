//! The command line.

mod design;
mod experiment;
mod recordings;
mod regress;
mod tune;
mod workflow;

use std::ffi::OsString;
use std::path::PathBuf;

use cawl_console::Respelled;
use cawl_core::Bytes;
use clap::{Parser, Subcommand};

pub use design::DesignArgs;
pub use experiment::{Experiment, ExperimentArgs, StudyName};
pub use recordings::{CompareArgs, FitArgs, WorthArgs};
pub use regress::RegressArgs;
pub use tune::TuneArgs;
pub use workflow::{HostsArgs, WorkflowArgs};

use crate::kernel::KernelArgs;
use crate::reader::ReaderArgs;
use crate::real::{Link, Place};
use crate::spec::disk;
use crate::writer::WriterArgs;
use crate::{Filesystem, NetSpec};

/// The laboratory of cawl: repeats the documents' experiments, judges and fits, on real and emulated disks.
///
/// With --disk, --net or --limits in the place of a command: brings up a disk or a network mount of given
/// speed under this machine's page cache; Ctrl-C takes it down. Prints where it is mounted and which block
/// device it is. Needs root and /dev/fuse; a disk also losetup and mkfs.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    pub command: Option<Task>,
    /// ssd, hdd, nvme, or BW,LAT,SEEK,FLUSH in MB/s, µs, ms, ms, then read=, depth=, cache=, size= and
    /// stall=; none for lowered limits only
    #[arg(long, default_value = "ssd", value_parser = disk_or_none)]
    pub disk: String,
    /// A network mount instead: LATENCY,BANDWIDTH as in 150us,100MB/s, then policy=none, read-only,
    /// write-through or write-back, request=4K to 1M (128K) and size=GIB
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["disk", "filesystem"])]
    pub net: Option<NetSpec>,
    /// What to make on it
    #[arg(long, value_enum, default_value = "ext4")]
    pub filesystem: Filesystem,
    /// Lower the kernel's dirty limits meanwhile, background and hard, in bytes
    #[arg(long, value_name = "BACKGROUND,HARD", value_parser = experiment::limits)]
    pub limits: Option<(Bytes, Bytes)>,
    /// Print one line of JSON when ready, and go when standard input ends
    #[arg(long)]
    pub supervised: bool,
}

fn disk_or_none(text: &str) -> anyhow::Result<String> {
    if text == "none" { Ok(text.to_owned()) } else { disk(text) }
}

/// Options that have another spelling now.
pub const RESPELLED: [Respelled; 5] = [
    ("tune", "--chunk", "--try=split="),
    ("tune", "--buffer", "--try=buffer="),
    ("tune", "--fsync", "--try=fsync="),
    ("tune", "--flags", "--try=flags="),
    ("tune", "--limits", "--try=limits="),
];

#[derive(Subcommand)]
pub enum Task {
    Experiment(ExperimentArgs),
    Fit(FitArgs),
    Compare(CompareArgs),
    Worth(WorthArgs),
    Regress(RegressArgs),
    Tune(TuneArgs),
    Design(DesignArgs),
    Workflow(WorkflowArgs),
    /// Measures what should be as the disks and the model say, and prints a table
    ///
    /// Exit code 1 if something is broken; figures outside their tolerance are `slow` and fail nothing.
    Verify(VerifyArgs),
    /// Does nothing but write, to be traced; prints what the kernel counted for each thread
    Write(WriterArgs),
    /// Does nothing but read blocks of a file at random places, to be traced
    Read(ReaderArgs),
    /// Runs a command on a network filesystem, with the mount as its working directory; nothing is left of it
    ///
    /// The exit code is the command's. NFS is mounted in user-mode-linux, whose root is this machine's; the
    /// command's output comes when it has ended.
    Run {
        /// sshfs or nfs, then LATENCY,BANDWIDTH as in sshfs,150us,100MB/s; or an emulated mount as of --net
        place: Place,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Runs a command under another release of Linux: user-mode-linux, whose root is this machine's
    ///
    /// The exit code is the command's, whose output comes when it has ended. Needs root, /dev/fuse, loop
    /// devices, and a kernel: Debian's user-mode-linux (6.1), or linux-source with what builds it.
    Kernel(KernelArgs),
    /// Copies a trace, with what the analysis needs and without names of this machine, to be kept
    Keep {
        trace: PathBuf,
        copy: PathBuf,
        /// With the last part of each file's name, and what is known of the filesystems
        #[arg(long)]
        names: bool,
    },
    /// Does what a line of JSON on standard input orders, as a task of `workflow --run`
    #[command(name = "task", hide = true)]
    Perform,
    /// Connects with a command, delayed, for ssh
    #[command(hide = true)]
    Relay {
        link: Link,
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Measures requests to a mount that does not pace yet, for the process that serves it
    #[command(hide = true)]
    Probe {
        mount: PathBuf,
        largest: usize,
        rounds: usize,
    },
}

/// What `verify` makes.
#[derive(clap::Args)]
pub struct VerifyArgs {
    /// Checks whose names begin like this; all if none is given; or `strangers`, then programs, groups or
    /// roots of its table
    pub names: Vec<String>,
    /// How often each is made; its median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: u32,
    /// The shortest checks, once
    #[arg(long, conflicts_with = "repeats")]
    pub brief: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Write recordings of writers into this folder
    #[arg(long, value_name = "FOLDER")]
    pub record: Option<PathBuf>,
}
