//! The tracer travels inside this binary and is put on disk when it is first needed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use cawld::socket;

/// The library, as built by build.rs.
const LIBRARY: &[u8] = include_bytes!(env!("CAWL_TRACER"));

/// Puts the library into the user's cache and returns its path, which LD_PRELOAD can hold: neither
/// space nor colon.
pub fn install() -> anyhow::Result<PathBuf> {
    let name = format!("libcawl-{:016x}.so", fingerprint(LIBRARY));
    let mut failures = Vec::new();
    for directory in directories() {
        match install_in(&directory, &name) {
            Ok(path) => return Ok(path),
            Err(error) => failures.push(format!("{}: {error:#}", directory.display())),
        }
    }
    bail!("no folder for the tracer; set XDG_CACHE_HOME to a private one. Tried {}", failures.join("; "))
}

/// Where the library may lie, best first.
fn directories() -> Vec<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(absolute);
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(absolute).map(|home| home.join(".cache"));
    let caches = cache.or(home).into_iter();
    // The last one for users all of whose folders have a space in their path.
    let private = [socket::private_directory(), socket::own_directory()].into_iter().flatten();
    caches.chain(private).map(|directory| directory.join("cawl")).collect()
}

fn install_in(directory: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = directory.join(name);
    let text = path.to_str().context("the path is not UTF-8")?;
    if text.contains([' ', ':']) {
        bail!("the path has a space or a colon, which LD_PRELOAD cannot hold");
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let meta = fs::symlink_metadata(directory)?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        bail!("the folder belongs to someone else or others may write to it");
    }
    if fs::read(&path).is_ok_and(|bytes| bytes == LIBRARY) {
        return Ok(path);
    }
    // Written aside and renamed, so that nobody ever loads half a library.
    let aside = directory.join(format!("{name}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o500)
        .open(&aside)
        .and_then(|mut file| file.write_all(LIBRARY))
        .and_then(|()| fs::rename(&aside, &path));
    if let Err(error) = written {
        drop(fs::remove_file(&aside));
        return Err(error.into());
    }
    Ok(path)
}

/// FNV-1a: tells versions apart; the content itself is compared before use.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_copy_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cawl");
        let path = install_in(&cache, "lib.so").unwrap();
        assert_eq!(fs::read(&path).unwrap(), LIBRARY);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "damaged").unwrap();
        assert_eq!(fs::read(install_in(&cache, "lib.so").unwrap()).unwrap(), LIBRARY);
        assert_eq!(fs::metadata(&cache).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn paths_that_ld_preload_cannot_hold_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(install_in(&dir.path().join("a b"), "lib.so").is_err());
        assert!(install_in(&dir.path().join("a:b"), "lib.so").is_err());
    }
}
