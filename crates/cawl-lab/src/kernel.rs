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
use cawl_core::quantity::size;
use cawl_core::{Bytes, Release};
use nix::sys::statvfs::statvfs;

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
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = memory)]
    pub memory: u64,
    /// The emulated disk, as of --disk alone
    #[arg(long, default_value = "ssd")]
    pub disk: DiskSpec,
    /// What to make on it
    #[arg(long, value_enum, default_value = "ext4")]
    pub filesystem: Filesystem,
    /// A limit of the command's group (cgroup v2), as memory.max=256M or io.max=wbps=20971520
    #[arg(long, value_name = "FILE=VALUE", value_parser = group)]
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
    let temporary = tempfile::tempdir()?;
    let out = args.out.as_deref().unwrap_or(temporary.path());
    let memory_in = Path::new("/dev/shm");
    let memory_in = if memory_in.is_dir() { memory_in } else { out };
    if let Ok(stat) = statvfs(memory_in) {
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        let (memory, room) = (Bytes(args.memory), Bytes(free));
        ensure!(
            args.memory <= free,
            "--memory {memory}: {} has room for {room}; give less",
            memory_in.display()
        );
    }
    let kernel = build::kernel(&args.release)?;
    fs::create_dir_all(out)?;
    let out = &out.canonicalize()?;
    for left in ["stdout", "stderr", "code", "log"] {
        let _ = fs::remove_file(out.join(left));
    }
    fs::write(out.join("command"), command_line(&args.command))?;
    let script = format!("{}\n{}", settings(args), include_str!("kernel/init.sh"));
    let disk =
        Lab::own(&["--disk", &args.disk.to_string(), "--filesystem", "none"], "an emulated disk needs root")?;
    let machine = Machine {
        kernel,
        disk: Some(&image_of(&disk.ready.device)?),
        processors: args.processors,
        memory: args.memory,
        memory_in,
        ..Machine::new(out, &script, Duration::from_secs(args.patience))
    };
    machine.boot()?;
    machine.pass_on()
}

/// The variables of the script.
fn settings(args: &KernelArgs) -> String {
    let (filesystem, options) = match args.filesystem {
        Filesystem::Ext4 => {
            ("ext4", "-q -F -m 0 -N 65536 -J size=64 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard")
        }
        Filesystem::Xfs => ("xfs", "-q -f -K"),
        Filesystem::Btrfs => ("btrfs", "-q -f -K"),
        Filesystem::None => ("", ""),
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let rotational = u8::from(args.disk.seek > cawl_core::Nanos::ZERO);
    [
        ("filesystem", filesystem),
        ("options", options),
        ("group", &args.group.join("\n")),
        ("path", &path),
        ("rotational", &rotational.to_string()),
    ]
    .map(|(name, value)| format!("{name}={}\n", quoted(value)))
    .concat()
}

/// What a group of the machine can have: of the controllers that init.sh enables.
const LIMITS: [&str; 8] = [
    "memory.max",
    "memory.high",
    "memory.low",
    "memory.min",
    "memory.swap.max",
    "io.max",
    "io.weight",
    "io.latency",
];

/// So much that Linux runs in it.
fn memory(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if bytes < 64 << 20 { Err("give 64M or more".to_owned()) } else { Ok(bytes) }
}

/// A limit of a group.
fn group(text: &str) -> Result<String, String> {
    let is_one = |(file, value): (&str, &str)| LIMITS.contains(&file) && !value.is_empty();
    let told = || format!("give FILE=VALUE, as memory.max=256M; FILE is one of {}", LIMITS.join(", "));
    text.split_once('=').filter(|it| is_one(*it)).map(|_| text.to_owned()).ok_or_else(told)
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
        let script = settings(&args);
        assert!(script.contains("filesystem='xfs'\n") && script.contains("rotational='1'\n"), "{script}");
        assert!(script.contains("group='memory.max=64M\nio.max=wbps=9'\n"), "{script}");
    }

    /// Before a kernel is built.
    #[test]
    fn wrong_machines_are_refused() {
        const GROUP: &str = "give FILE=VALUE, as memory.max=256M";
        const DISK: &str = "give ssd, hdd, nvme or BW,LAT,SEEK,FLUSH";
        for (wrong, told) in [
            ("kernel 6.12 --group memory.max -- true", GROUP),
            ("kernel 6.12 --group memory.most=64M -- true", GROUP),
            ("kernel 6.12 --group io.max= -- true", GROUP),
            ("kernel 6.12 --memory 1M -- true", "give 64M or more"),
            ("kernel 6.12 --disk tape -- true", DISK),
            ("experiment fig9 --disk tape", DISK),
            ("--disk ssd,size", "come only read="),
        ] {
            let error = Args::try_parse_from(format!("cawl-lab {wrong}").split(' ')).err();
            let error = error.map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(told)), "{wrong}: {error:?}");
        }
        for (wrong, told) in [("--processors 4", "before 6.19"), ("--memory 100000G", " has room for ")] {
            let refused = run(&parsed(&format!("6.12 {wrong}"))).unwrap_err().to_string();
            assert!(refused.contains(told), "{refused}");
        }
    }
}
