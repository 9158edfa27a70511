//! A kernel by its release: packaged, in the cache, or built from sources: Debian's, or those a user names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use crate::command::{self, Lacking};
use crate::uml::PACKAGED;

/// What the defconfig of ARCH=um lacks of what a server has, and what cawl looks at.
const OPTIONS: &str = "CGROUPS MEMCG MEMCG_V1 BLK_CGROUP BLK_DEV_THROTTLING CGROUP_WRITEBACK CGROUP_PIDS EXT4_FS \
                       XFS_FS BTRFS_FS FUSE_FS OVERLAY_FS TMPFS DEVTMPFS DEVTMPFS_MOUNT BLK_DEV_LOOP \
                       BLK_DEV_UBD HOSTFS SMP FTRACE ENABLE_DEFAULT_TRACERS SCHED_INFO TASKSTATS TASK_DELAY_ACCT \
                       TASK_XACCT TASK_IO_ACCOUNTING PSI LRU_GEN BLK_WBT BLK_WBT_MQ DEBUG_INFO_NONE";
/// The driver of its disk: a request is one call of the host's, where it was one for each page.
const PATCH: &str = include_str!("ubd.patch");
/// What the defconfig has and the laboratory does not need.
const NOT: &str =
    "MODULES SOUND WERROR DEBUG_INFO REISERFS_FS AUTOFS_FS ISO9660_FS WIRELESS INPUT HID_SUPPORT";

/// The program of a release, or of a path: the program itself, an archive of sources, or their folder. What
/// is built from `linux-source-7.2.tar.xz` or `linux-7.2/` is 7.2 from then on.
pub(super) fn kernel(release: &Path) -> anyhow::Result<PathBuf> {
    let is_path = release.components().count() > 1;
    let is_source = release.is_dir() || release.extension().is_some_and(|end| end == "xz");
    if is_path && !is_source {
        ensure!(release.exists(), "{}: there is no such file", release.display());
        return Ok(release.to_owned());
    }
    let name = name_of(release)?;
    let cache = cache()?;
    let built = cache.join(format!("linux-{name}"));
    if built.exists() {
        return Ok(built);
    }
    if is_path {
        build(release, name, &cache)?;
        return Ok(built);
    }
    let packaged = Command::new(PACKAGED).arg("--version").output();
    let packaged = packaged.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if packaged.is_ok_and(|version| is_of(version.trim(), name)) {
        return Ok(PACKAGED.into());
    }
    let package = format!("linux-source-{name}");
    let archive = PathBuf::from(format!("/usr/src/{package}.tar.xz"));
    if !archive.exists() {
        let at = built.display();
        let lacks = format!(
            "there is no kernel of {name}; apt-get install {package}, give a path, or put the linux.uml of \
             another Debian's user-mode-linux at {at}"
        );
        return Err(Lacking(lacks).into());
    }
    build(&archive, name, &cache)?;
    Ok(built)
}

/// 7.2 of `7.2`, `linux-7.2/` and `linux-source-7.2.tar.xz`.
fn name_of(release: &Path) -> anyhow::Result<&str> {
    let name = release.file_name().and_then(|name| name.to_str()).context("a release is text, as 6.12")?;
    let name = name.strip_suffix(".tar.xz").unwrap_or(name);
    Ok(["linux-source-", "linux-"].iter().find_map(|begin| name.strip_prefix(begin)).unwrap_or(name))
}

/// Whether a version is of a release: 6.1.176 is of 6.1, 6.12.1 is not.
fn is_of(version: &str, release: &str) -> bool {
    version.strip_prefix(release).is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
}

fn cache() -> anyhow::Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    Ok(cache.context("there is no folder for kernels: set HOME")?.join("cawl-lab/linux"))
}

/// Builds a release from an archive or a folder of sources, which stays as it is: some fifteen minutes on one
/// processor. Leaves the program and its configuration.
fn build(sources: &Path, name: &str, cache: &Path) -> anyhow::Result<()> {
    let is_tree = sources.is_file() || sources.join("arch/um").is_dir();
    ensure!(is_tree, "{}: there are no sources of Linux, which have a folder arch/um", sources.display());
    let tools = ["make", "gcc", "flex", "bison", "bc", "patch"];
    command::need(&tools.map(|tool| (tool, tool)))?;
    fs::create_dir_all(cache)?;
    let folder = tempfile::tempdir_in(cache)?;
    eprintln!("building {}; some fifteen minutes", sources.display());
    let tree = if sources.is_dir() {
        sources.canonicalize()?
    } else {
        let unpacked = folder.path().join("sources");
        fs::create_dir(&unpacked)?;
        command::run(Command::new("tar").arg("-xJf").arg(sources).arg("-C").arg(&unpacked))?;
        let tree = fs::read_dir(&unpacked)?.next().context("the archive is empty")??.path();
        patch(&tree)?;
        tree
    };
    let out = folder.path().join("built");
    fs::create_dir(&out)?;
    make(&tree, &out, "defconfig")?;
    let config = out.join(".config");
    fs::write(&config, fs::read_to_string(&config)? + &configuration())?;
    make(&tree, &out, "olddefconfig")?;
    make(&tree, &out, "linux")?;
    fs::copy(&config, cache.join(format!("config-{name}")))?;
    Ok(fs::rename(out.join("linux"), cache.join(format!("linux-{name}")))?)
}

/// Changes unpacked sources by [`PATCH`]; those that it does not fit stay as they are.
fn patch(tree: &Path) -> anyhow::Result<()> {
    let file = tree.join("ubd.patch");
    fs::write(&file, PATCH)?;
    let applied = |options: &[&str]| {
        let mut patch = Command::new("patch");
        patch.args(["-p1", "-s", "-f", "-d"]).arg(tree).arg("-i").arg(&file).args(options);
        Ok::<_, anyhow::Error>(patch.stdout(Stdio::null()).status()?.success())
    };
    if applied(&["--dry-run"])? {
        ensure!(applied(&[])?, "the sources could not be patched");
    } else {
        eprintln!("its disk's driver is another one: each page of a request is a call of the host's");
    }
    Ok(())
}

/// Lines of .config; the last one of an option counts.
fn configuration() -> String {
    let yes = OPTIONS.split_whitespace().map(|option| format!("CONFIG_{option}=y\n"));
    yes.chain(NOT.split(' ').map(|option| format!("# CONFIG_{option} is not set\n"))).collect()
}

fn make(tree: &Path, out: &Path, goal: &str) -> anyhow::Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("nice");
    make.args(["-n", "10", "make", "ARCH=um", &format!("-j{jobs}"), &format!("O={}", out.display()), goal]);
    // Warnings that options come twice, and notes on sources: thousands of lines, kept for an error.
    let output = make.current_dir(tree).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().take(20).collect::<Vec<_>>();
    ensure!(
        output.status.success(),
        "make {goal} failed:\n{}",
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    );
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
        assert_eq!(kernel(Path::new("./Cargo.toml")).unwrap(), Path::new("./Cargo.toml"));
        for path in ["./linux", "./src"] {
            assert!(kernel(Path::new(path)).unwrap_err().to_string().starts_with(path), "{path}");
        }
        let error = kernel(Path::new("1.2")).unwrap_err();
        assert!(error.to_string().contains("apt-get install linux-source-1.2"), "{error}");
    }

    #[test]
    fn sources_name_their_release() {
        for path in ["7.2", "/usr/src/linux-source-7.2.tar.xz", "trees/linux-7.2/", "./7.2"] {
            assert_eq!(name_of(Path::new(path)).unwrap(), "7.2", "{path}");
        }
        assert_eq!(name_of(Path::new("/usr/src/linux-next")).unwrap(), "next");
    }
}
