//! The tracer is embedded in this binary and written to disk when first needed.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, FileTimes};
use std::hash::Hasher;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use cawl_client::address;
use cawl_core::Bytes;
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;
use rustc_hash::FxHasher;

/// The library, as built by build.rs.
const LIBRARY: &[u8] = include_bytes!(env!("CAWL_TRACER"));

/// Folders for root's copy, where programs of every user can load it, in order of preference.
const SHARED: [&str; 3] = [address::SHARED, "/var/cache/cawl", LASTING];
/// The folder for services, which outlasts a boot.
const LASTING: &str = "/usr/local/lib/cawl";

/// Libraries of other versions that are kept in a folder, and the time others are kept after their last use:
/// running programs need them to start others.
const KEPT: usize = 8;
const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Writes the library to a folder where the program and its children can load it, and returns its path
/// without space, colon and dollar sign, as LD_PRELOAD needs it. Root's folder is readable by all users,
/// since a program may change its user; another user's is in that user's cache.
pub fn install() -> anyhow::Result<PathBuf> {
    let mut failures: Vec<(PathBuf, String)> = Vec::new();
    let mut too_long = false;
    let shared = SHARED.iter().filter(|_| address::is_root()).map(|path| (PathBuf::from(path), true));
    let private = directories().map(|directory| (directory, false));
    for (directory, for_all) in shared.chain(private) {
        if failures.iter().any(|(tried, _)| *tried == directory) {
            continue;
        }
        match install_in(&directory, &name(), for_all) {
            Ok(path) => return Ok(path),
            Err(error) => {
                ensure!(!is_out_of_files(), "{OUT_OF_FILES}");
                let io = error.downcast_ref::<io::Error>();
                too_long |= io.is_some_and(|error| error.kind() == ErrorKind::FileTooLarge);
                // The file's name has the folder again.
                let why = error.root_cause().to_string();
                failures.push((directory, why.split(" at path ").next().unwrap_or_default().to_owned()));
            }
        }
    }
    let tried: String = failures.iter().map(|(path, why)| format!("\n  {}: {why}", path.display())).collect();
    ensure!(
        !too_long,
        "the tracer cannot be written: its library has {}; a limit (ulimit -f) allows no\nfile so long; raise it. \
         Tried{tried}",
        Bytes(LIBRARY.len() as u64)
    );
    bail!(
        "no folder for the tracer; set XDG_CACHE_HOME to a private one that can be\nwritten and is not mounted \
         noexec. Tried{tried}"
    )
}

const OUT_OF_FILES: &str = "the tracer cannot be written: too many open files; allow more (ulimit -n)";

/// No folder would do: this process, or the machine, may have no further file open.
fn is_out_of_files() -> bool {
    let code = File::open("/dev/null").err().and_then(|error| error.raw_os_error());
    code.is_some_and(|code| matches!(Errno::from_raw(code), Errno::EMFILE | Errno::ENFILE))
}

/// Path of the library for services on the system below `root`, as seen from that system.
pub fn lasting_path(root: &Path) -> anyhow::Result<PathBuf> {
    ensure!(root.is_absolute(), "{} must be an absolute path", root.display());
    Ok(Path::new(LASTING).join(name()))
}

pub fn install_lasting(root: &Path) -> anyhow::Result<PathBuf> {
    let path = lasting_path(root)?;
    if root == Path::new("/") {
        return install_in(Path::new(LASTING), &name(), true)
            .with_context(|| format!("cannot put the tracer into {LASTING}; do this as root"));
    }
    let folder = root.join(LASTING.trim_start_matches('/'));
    fs::create_dir_all(&folder)
        .map_err(anyhow::Error::from)
        .and_then(|()| write(&folder, &name(), 0o555))
        .with_context(|| format!("cannot put the tracer into {}", folder.display()))?;
    Ok(path)
}

/// The library's file name, which tells versions apart; the content itself is compared before use.
fn name() -> String {
    let mut hash = FxHasher::default();
    hash.write(LIBRARY);
    format!("libcawl-{:016x}.so", hash.finish())
}

/// The user's own folders for the library, in order of preference; those after the cache serve users whose
/// cache has a space in its path, is full, or mounted noexec.
fn directories() -> impl Iterator<Item = PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(absolute).map(|home| home.join(".cache"));
    let private = std::iter::once_with(address::private_directory).chain(address::own_directories());
    cache.or(home).into_iter().chain(private.flatten()).map(|directory| directory.join("cawl"))
}

/// Folders that were made for it are removed where it fails, as far as nothing is in them.
fn install_in(directory: &Path, name: &str, for_all: bool) -> anyhow::Result<PathBuf> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    let installed = put_in(directory, name, for_all);
    if installed.is_err() {
        // An own directory (`address::own_directories`) was made when its path was asked for.
        let own = directory.parent().filter(|parent| parent.file_name().is_some_and(is_own));
        missing.into_iter().chain(own).for_each(|path| drop(fs::remove_dir(path)));
    }
    installed
}

/// The name of a directory that only this program makes.
fn is_own(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("cawl-"))
}

fn put_in(directory: &Path, name: &str, for_all: bool) -> anyhow::Result<PathBuf> {
    let path = directory.join(name);
    let text = path.to_str().context("the path is not UTF-8")?;
    if text.contains([' ', ':', '$']) {
        bail!("the path has a space, a colon or a dollar sign, which LD_PRELOAD cannot hold");
    }
    if for_all {
        address::shared_directory(directory)?;
    } else {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let meta = fs::symlink_metadata(directory)?;
        if !meta.is_dir() || meta.uid() != geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            bail!("the folder belongs to another user, or other users may write to it");
        }
    }
    if on_noexec(directory) {
        bail!("no library can be loaded from there: it is mounted noexec");
    }
    if fs::read(&path).is_ok_and(|bytes| bytes == LIBRARY) {
        // The access time marks it as in use.
        let now = FileTimes::new().set_accessed(SystemTime::now());
        drop(File::open(&path).and_then(|file| file.set_times(now)));
        return Ok(path);
    }
    write(directory, name, if for_all { 0o555 } else { 0o500 })?;
    remove_old(directory);
    Ok(path)
}

/// Written to a temporary file and renamed, so that no program loads half a library.
fn write(directory: &Path, name: &str, mode: u32) -> anyhow::Result<()> {
    let mut aside = tempfile::Builder::new().prefix(name).tempfile_in(directory)?;
    aside.write_all(LIBRARY)?;
    aside.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    aside.persist(directory.join(name)).map_err(|error| error.error)?;
    Ok(())
}

/// True if nothing in this folder can be executed or loaded.
fn on_noexec(path: &Path) -> bool {
    statvfs(path).is_ok_and(|facts| facts.flags().contains(FsFlags::ST_NOEXEC))
}

/// Removes libraries unused for long, except the latest ones.
fn remove_old(directory: &Path) {
    let libraries = fs::read_dir(directory).into_iter().flatten().flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with("libcawl-"))
    });
    let used = |entry: DirEntry| Some((entry.metadata().ok()?.accessed().ok()?, entry.path()));
    let mut libraries: Vec<(SystemTime, PathBuf)> = libraries.filter_map(used).collect();
    libraries.sort();
    libraries.truncate(libraries.len().saturating_sub(KEPT));
    for (used, path) in libraries {
        if used.elapsed().is_ok_and(|ago| ago > KEPT_FOR) {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A build for another machine embeds a tracer for that machine.
    #[test]
    fn the_tracer_is_for_the_machine_that_this_is_for() {
        let own = fs::read("/proc/self/exe").unwrap();
        // e_ident, then e_machine of the ELF header; e_type differs.
        assert_eq!((&LIBRARY[..7], &LIBRARY[18..20]), (&own[..7], &own[18..20]));
    }

    #[test]
    fn a_damaged_copy_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cawl");
        let path = install_in(&cache, "lib.so", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "damaged").unwrap();
        assert_eq!(fs::read(install_in(&cache, "lib.so", false).unwrap()).unwrap(), LIBRARY);
        assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_failure_leaves_no_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (own, kept) = (dir.path().join("cawl-7"), dir.path().join("kept"));
        [&own, &kept].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
        // No file has a slash in its name.
        for folder in [own.join("cawl"), kept.join("cache/cawl")] {
            assert!(install_in(&folder, "none/lib.so", false).is_err());
        }
        assert!(!own.exists() && fs::read_dir(&kept).unwrap().next().is_none(), "what was there remains");
    }

    #[test]
    fn old_libraries_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cawl");
        fs::create_dir(&cache).unwrap();
        fs::set_permissions(&cache, fs::Permissions::from_mode(0o700)).unwrap();
        let used = |name: &str, ago: Duration| {
            let file = File::create(cache.join(name)).unwrap();
            file.set_times(FileTimes::new().set_accessed(SystemTime::now() - ago)).unwrap();
        };
        for n in 0..30 {
            used(&format!("libcawl-{n:016x}.so"), 2 * KEPT_FOR);
        }
        used("libcawl-of-now.so", KEPT_FOR / 2);
        used("mine.so", 2 * KEPT_FOR);
        install_in(&cache, "libcawl-new.so", false).unwrap();
        let left = fs::read_dir(&cache).unwrap().count();
        assert_eq!(left, KEPT + 1, "the latest, and what is none of ours");
        assert!(cache.join("libcawl-of-now.so").exists() && cache.join("mine.so").exists());
    }

    #[test]
    fn root_s_copy_can_be_loaded_by_all() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("cawl");
        if !geteuid().is_root() {
            println!("SKIPPED: only root makes folders for all users");
            return;
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = install_in(&shared, "lib.so", true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o555);
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(
            install_in(&shared, "lib.so", true).unwrap_err().to_string().contains("changed by other users")
        );
    }

    #[test]
    fn paths_that_ld_preload_cannot_hold_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(install_in(&dir.path().join("a b"), "lib.so", false).is_err());
        assert!(install_in(&dir.path().join("a:b"), "lib.so", false).is_err());
    }
}
