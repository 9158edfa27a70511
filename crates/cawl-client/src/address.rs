//! The address of a daemon, and safe folders for it.
//!
//! A socket is in a folder that only the user can access. Only root's daemon may listen where other users can
//! connect: their programs may be recorded, and nothing else.

use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::unistd::{Uid, geteuid};

/// Name of `cawld`'s socket.
pub const NAME: &str = "cawld.sock";

/// The folder of root's daemon that records other users' programs.
pub const SHARED: &str = "/run/cawl";

/// The user that the kernel knows: fakeroot tells programs another one.
pub fn own_uid() -> Uid {
    static OWN: OnceLock<Uid> = OnceLock::new();
    *OWN.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let effective = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok());
        effective.map_or_else(geteuid, Uid::from_raw)
    })
}

/// True for root, as the kernel knows it.
pub fn is_root() -> bool {
    own_uid().is_root()
}

/// Where `cawld` listens unless told otherwise.
pub fn default_path() -> Result<PathBuf> {
    Ok(private_directory()?.join(NAME))
}

/// The daemon's address for a client: its own user's; for root, else the one open to all users.
pub fn daemon_path() -> Result<PathBuf> {
    let (own, shared) = (default_path()?, Path::new(SHARED).join(NAME));
    Ok(if is_root() && !own.exists() && shared.exists() { shared } else { own })
}

/// A directory that root alone may change and every user may enter, made if need be. An error names what is
/// wrong with it.
pub fn shared_directory(path: &Path) -> Result<()> {
    if !is_root() {
        return Err(Error::new(ErrorKind::PermissionDenied, "only root makes folders for all users"));
    }
    match DirBuilder::new().create(path) {
        // Independent of the umask.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o755))?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for directory in path.ancestors() {
        let meta = fs::symlink_metadata(directory)?;
        let (mode, is_last) = (meta.mode(), directory == path);
        let wrong = if !meta.is_dir() {
            "is not a directory"
        } else if meta.uid() != 0 {
            "does not belong to root"
        } else if mode & 0o022 != 0 && (is_last || mode & 0o1000 == 0) {
            "can be changed by other users"
        } else if mode & 0o001 == 0 {
            "cannot be entered by other users; chmod 755 it"
        } else {
            continue;
        };
        return Err(Error::other(format!("{} {wrong}", directory.display())));
    }
    Ok(())
}

/// Longest path of a directory for sockets: theirs may have 107 bytes, and `/cawl-run-4194304.sock` has 22.
const LONGEST: usize = 107 - 22;

/// The user's own runtime directory: $XDG_RUNTIME_DIR, else /run/user/UID, else an [own](own_directories)
/// one. An error names the directory and what is wrong with it.
pub fn private_directory() -> Result<PathBuf> {
    let uid = own_uid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for candidate in given.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]) {
        let holds_sockets = candidate.as_os_str().len() <= LONGEST;
        if candidate.is_absolute() && holds_sockets && check_directory(&candidate, geteuid()).is_ok() {
            return Ok(candidate);
        }
    }
    let mut own = own_directories();
    let first = own.next().unwrap_or_else(|| Err(Error::from(ErrorKind::NotFound)));
    first.or_else(|error| own.find_map(Result::ok).ok_or(error))
}

/// /tmp/cawl-UID, /var/tmp/cawl-UID and /dev/shm/cawl-UID, each made if need be when it is asked for: private
/// places whose paths are short and plain. An error names the directory and what is wrong with it.
pub fn own_directories() -> impl Iterator<Item = Result<PathBuf>> {
    let uid = own_uid();
    ["/tmp", "/var/tmp", "/dev/shm"].into_iter().map(move |folder| {
        let own = PathBuf::from(format!("{folder}/cawl-{uid}"));
        match DirBuilder::new().mode(0o700).create(&own) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                Err(Error::new(error.kind(), format!("{}: {error}", own.display())))
            }
            _ => check_directory(&own, geteuid()).map(|()| own),
        }
    })
}

fn check_directory(path: &Path, uid: Uid) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let wrong = if !meta.is_dir() {
        "is not a directory"
    } else if meta.uid() != uid.as_raw() {
        "belongs to another user"
    } else if meta.mode() & 0o077 != 0 {
        "is open to other users; chmod 700 it"
    } else {
        return Ok(());
    };
    Err(Error::other(format!("{} {wrong}", path.display())))
}

/// Refuses a socket of another user, who would get the messages.
pub fn check_owner(path: &Path) -> Result<()> {
    let owner = fs::symlink_metadata(path)?.uid();
    if geteuid().is_root() || owner == geteuid().as_raw() || owner == 0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        format!(
            "{} belongs to another user (uid {owner}); name your own daemon's with --socket",
            path.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_directory(dir.path(), geteuid()).unwrap_err().to_string().contains("chmod 700"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        check_directory(dir.path(), geteuid()).unwrap();
        assert!(check_directory(dir.path(), Uid::from_raw(geteuid().as_raw() + 1)).is_err());
    }

    #[test]
    fn a_shared_directory_is_root_s_and_can_be_entered_by_all() {
        let dir = tempfile::tempdir().unwrap();
        if !geteuid().is_root() {
            assert!(shared_directory(&dir.path().join("new")).is_err());
            return;
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let new = dir.path().join("new");
        let refusal = |path: &Path| shared_directory(path).unwrap_err().to_string();
        assert!(refusal(&new).contains("cannot be entered"), "its parent is private");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        shared_directory(&new).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o7777, 0o755);
        for (mode, why) in
            [(0o700, "cannot be entered"), (0o777, "can be changed"), (0o1777, "can be changed")]
        {
            fs::set_permissions(&new, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refusal(&new).contains(why), "{mode:o}");
        }
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&new, &link).unwrap();
        assert!(refusal(&link).contains("not a directory"));
        nix::unistd::chown(&new, Some(Uid::from_raw(65534)), None).unwrap();
        assert!(refusal(&new).contains("belong to root"));
    }
}
