//! Releases of Linux: a command under another one, in user-mode-linux on this machine's root, with a disk,
//! memory and a control group of choice. Nothing but the built kernel, in a cache folder, is left of it.
//!
//! The law: **the machine is measured, not its host**. Its memory is touched before the command, its disk is
//! the emulated one, served past this machine's page cache. What stays the laboratory's own: one processor
//! before 6.19, system calls of several µs, HZ of 100, a disk driver with one request at a time, no large
//! folios.

mod build;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use cawl_core::Release;
use cawl_core::quantity::size_above_zero;

use crate::emulated::Lab;
use crate::spec::DiskSpec;
use crate::stand::Filesystem;
use crate::uml::{Machine, command_line, quoted};

/// The machine and what it runs.
#[derive(Debug, clap::Args)]
pub struct KernelArgs {
    /// A release, as 6.12, which is built from Debian's linux-source if it is neither packaged nor in the
    /// cache; or a path: of sources, a folder or `linux-source-7.2.tar.xz`, which are built once and kept as
    /// 7.2, or of a `linux` built with ARCH=um
    pub release: PathBuf,
    /// Processors, from 6.19 on; earlier ones have one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub processors: u32,
    /// Memory
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size_above_zero)]
    pub memory: u64,
    /// The emulated disk, as of --disk alone
    #[arg(long, default_value = "ssd")]
    pub disk: DiskSpec,
    /// What to make on it
    #[arg(long, value_enum, default_value = "ext4")]
    pub filesystem: Filesystem,
    /// A limit of the command's group (cgroup v2), as memory.max=256M or io.max=wbps=20971520
    #[arg(long, value_name = "FILE=VALUE")]
    pub group: Vec<String>,
    /// A folder here that the command finds as $OUT; else a temporary one
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Most time for all of it
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub patience: u64,
    /// The command, whose working directory is the disk; an empty folder without a filesystem on /dev/ubda
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

/// Runs a command in the machine, and passes on its output and exit code.
pub fn run(args: &KernelArgs) -> anyhow::Result<u8> {
    let release: Option<Release> = args.release.to_str().and_then(|name| name.parse().ok());
    ensure!(
        args.processors == 1 || release.is_none_or(|release| release >= Release(6, 19)),
        "--processors: user-mode-linux has one processor before 6.19"
    );
    let kernel = build::kernel(&args.release)?;
    let temporary = tempfile::tempdir()?;
    let out = args.out.as_deref().unwrap_or(temporary.path());
    fs::create_dir_all(out)?;
    let out = &out.canonicalize()?;
    for left in ["stdout", "stderr", "code", "log"] {
        let _ = fs::remove_file(out.join(left));
    }
    fs::write(out.join("command"), command_line(&args.command))?;
    let script = format!("{}\n{}", settings(args)?, include_str!("kernel/init.sh"));
    let disk =
        Lab::own(&["--disk", &args.disk.to_string(), "--filesystem", "none"], "an emulated disk needs root")?;
    let memory_in = Path::new("/dev/shm");
    let machine = Machine {
        kernel,
        disk: Some(&image_of(&disk.ready.device)?),
        processors: args.processors,
        memory: args.memory,
        memory_in: if memory_in.is_dir() { memory_in } else { out },
        ..Machine::new(out, &script, Duration::from_secs(args.patience))
    };
    machine.boot()?;
    machine.pass_on()
}

/// The variables of the script.
fn settings(args: &KernelArgs) -> anyhow::Result<String> {
    let (filesystem, options) = match args.filesystem {
        Filesystem::Ext4 => {
            ("ext4", "-q -F -m 0 -N 65536 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard")
        }
        Filesystem::Xfs => ("xfs", "-q -f -K"),
        Filesystem::Btrfs => ("btrfs", "-q -f -K"),
        Filesystem::None => ("", ""),
    };
    for limit in &args.group {
        ensure!(limit.contains('='), "{limit:?}: give FILE=VALUE as in memory.max=256M");
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let rotational = u8::from(args.disk.seek > cawl_core::Nanos::ZERO);
    Ok([
        ("filesystem", filesystem),
        ("options", options),
        ("group", &args.group.join("\n")),
        ("path", &path),
        ("rotational", &rotational.to_string()),
    ]
    .map(|(name, value)| format!("{name}={}\n", quoted(value)))
    .concat())
}

/// The file behind a loop device: without the device, each request of the machine is one of the disk's.
fn image_of(device: &Path) -> anyhow::Result<PathBuf> {
    let name = device.file_name().context("the loop device has a name")?;
    let behind = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"))?;
    Ok(PathBuf::from(behind.trim_end()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Task};

    fn parsed(words: &str) -> KernelArgs {
        let args = Args::parse_from(format!("cawl-lab kernel {words} -- true").split(' '));
        let Some(Task::Kernel(args)) = args.command else { panic!("{words}") };
        args
    }

    #[test]
    fn the_script_has_the_machine() {
        let args = parsed("6.12 --disk hdd --filesystem xfs --group memory.max=64M --group io.max=wbps=9");
        let script = settings(&args).unwrap();
        assert!(script.contains("filesystem='xfs'\n") && script.contains("rotational='1'\n"), "{script}");
        assert!(script.contains("group='memory.max=64M\nio.max=wbps=9'\n"), "{script}");
        assert!(settings(&parsed("6.12 --group memory.max")).is_err());
        let refused = run(&parsed("6.12 --processors 4")).unwrap_err().to_string();
        assert!(refused.contains("before 6.19"), "{refused}");
    }
}
