//! A kernel by its release: packaged, in the cache, or built from Debian's sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::command::{self, Lacking};
use crate::uml::PACKAGED;

/// What the defconfig of ARCH=um lacks of what a server has, and what cawl looks at.
const OPTIONS: &str = "CGROUPS MEMCG MEMCG_V1 BLK_CGROUP BLK_DEV_THROTTLING CGROUP_WRITEBACK CGROUP_PIDS EXT4_FS \
                       XFS_FS BTRFS_FS FUSE_FS OVERLAY_FS TMPFS DEVTMPFS DEVTMPFS_MOUNT BLK_DEV_LOOP \
                       BLK_DEV_UBD HOSTFS FTRACE ENABLE_DEFAULT_TRACERS SCHED_INFO TASKSTATS TASK_DELAY_ACCT \
                       TASK_XACCT TASK_IO_ACCOUNTING PSI LRU_GEN BLK_WBT BLK_WBT_MQ DEBUG_INFO_NONE";
/// What the defconfig has and the laboratory does not need.
const NOT: &str = "MODULES SOUND WERROR DEBUG_INFO";

/// The program of a release, or of a path.
pub(super) fn kernel(release: &Path) -> anyhow::Result<PathBuf> {
    if release.components().count() > 1 {
        return Ok(release.to_owned());
    }
    let release = release.to_str().context("a release is text, as 6.12")?;
    let cache = cache()?;
    let built = cache.join(format!("linux-{release}"));
    if built.exists() {
        return Ok(built);
    }
    let packaged = Command::new(PACKAGED).arg("--version").output();
    let packaged = packaged.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if packaged.is_ok_and(|version| is_of(version.trim(), release)) {
        return Ok(PACKAGED.into());
    }
    build(release, &cache)?;
    Ok(built)
}

/// Whether a version is of a release: 6.1.176 is of 6.1, 6.12.1 is not.
fn is_of(version: &str, release: &str) -> bool {
    version.strip_prefix(release).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn cache() -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(cache.context("there is no folder for kernels: set HOME")?.join("cawl-lab/kernels"))
}

/// Builds a release, some fifteen minutes on one processor, and leaves the program and its configuration.
fn build(release: &str, cache: &Path) -> anyhow::Result<()> {
    let package = format!("linux-source-{release}");
    let archive = PathBuf::from(format!("/usr/src/{package}.tar.xz"));
    if !archive.exists() {
        let lacks = format!("there is no kernel of {release}; apt-get install {package}, or give a path");
        return Err(Lacking(lacks).into());
    }
    let tools = ["make", "gcc", "flex", "bison", "bc"];
    command::need(&tools.map(|tool| (tool, tool)))?;
    fs::create_dir_all(cache)?;
    let folder = tempfile::tempdir_in(cache)?;
    eprintln!("building {package}; some fifteen minutes");
    command::run(Command::new("tar").arg("-xJf").arg(&archive).arg("-C").arg(folder.path()))?;
    let tree = folder.path().join(&package);
    make(&tree, "defconfig")?;
    let config = tree.join(".config");
    fs::write(&config, fs::read_to_string(&config)? + &configuration())?;
    make(&tree, "olddefconfig")?;
    make(&tree, "linux")?;
    fs::copy(&config, cache.join(format!("config-{release}")))?;
    Ok(fs::rename(tree.join("linux"), cache.join(format!("linux-{release}")))?)
}

/// Lines of .config; the last one of an option counts.
fn configuration() -> String {
    let yes = OPTIONS.split_whitespace().map(|option| format!("CONFIG_{option}=y\n"));
    yes.chain(NOT.split(' ').map(|option| format!("# CONFIG_{option} is not set\n"))).collect()
}

fn make(tree: &Path, goal: &str) -> anyhow::Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("nice");
    make.args(["-n", "10", "make", "ARCH=um", &format!("-j{jobs}"), goal]).current_dir(tree);
    let status = make.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "make {goal} failed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_of_its_release_only() {
        assert!(is_of("6.1.176", "6.1") && is_of("6.12", "6.12") && is_of("6.12.3-deb", "6.12"));
        assert!(!is_of("6.12.3", "6.1") && !is_of("6.1.176", "6.12"));
    }

    #[test]
    fn a_path_is_taken_as_it_is_and_a_release_nobody_has_names_its_package() {
        assert_eq!(kernel(Path::new("./linux")).unwrap(), Path::new("./linux"));
        let error = kernel(Path::new("1.2")).unwrap_err();
        assert!(error.to_string().contains("apt-get install linux-source-1.2"), "{error}");
    }
}
