//! Where the daemon listens, and who may talk to it.
//!
//! The socket lies in a directory that belongs to the user and to nobody else's reach; it is 0600
//! itself; and whoever connects shows credentials of the same user, or is root.

use std::fs::{self, DirBuilder};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Uid, geteuid};
use tokio::net::{UnixListener, UnixStream};

/// Where `cawld` listens unless told otherwise.
pub fn default_path() -> Result<PathBuf> {
    Ok(private_directory()?.join("cawld.sock"))
}

/// Longest path of a directory for sockets: theirs may have 107 bytes, and `/cawl-run-4194304.sock` has 22.
const LONGEST: usize = 107 - 22;

/// The user's own runtime directory: $XDG_RUNTIME_DIR, else /run/user/UID, else /tmp/cawl-UID (made
/// here). An error names the directory and what is wrong with it.
pub fn private_directory() -> Result<PathBuf> {
    let uid = geteuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    for candidate in given.into_iter().chain([PathBuf::from(format!("/run/user/{uid}"))]) {
        let holds_sockets = candidate.as_os_str().len() <= LONGEST;
        if candidate.is_absolute() && holds_sockets && check_directory(&candidate, uid).is_ok() {
            return Ok(candidate);
        }
    }
    own_directory()
}

/// /tmp/cawl-UID, made if need be: a private place whose path is short and plain.
pub fn own_directory() -> Result<PathBuf> {
    let uid = geteuid();
    let own = PathBuf::from(format!("/tmp/cawl-{uid}"));
    match DirBuilder::new().mode(0o700).create(&own) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_directory(&own, uid)?;
    Ok(own)
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

/// Listens at `path`. A socket left behind by a dead daemon is replaced; a live daemon's is not.
pub fn listen(path: &Path) -> Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!("{} exists and is not a socket; name another with --socket", path.display()),
            ));
        }
        // Only a refusal proves that nobody listens; one that may not be asked belongs to somebody else.
        Ok(_) => match Blocking::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => {
                let text =
                    format!("cannot tell who listens at {}: {error}; use another --socket", path.display());
                return Err(Error::new(error.kind(), text));
            }
            Ok(_) => {
                let text = format!(
                    "a daemon is already listening at {}; stop it or use another --socket",
                    path.display()
                );
                return Err(Error::new(ErrorKind::AddrInUse, text));
            }
        },
        Err(_) => {}
    }
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
        .map_err(|error| Error::new(error.kind(), format!("cannot listen at {}: {error}", path.display())))
}

/// Refuses a socket that another user made: what is told to it would be told to them.
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

/// True if the other end may talk to us: same user, or root.
pub fn may_talk(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw() || peer.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_directory(dir.path(), geteuid()).unwrap_err().to_string().contains("chmod 700"));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        check_directory(dir.path(), geteuid()).unwrap();
        assert!(check_directory(dir.path(), Uid::from_raw(geteuid().as_raw() + 1)).is_err());
    }

    #[tokio::test]
    async fn stale_sockets_are_replaced_live_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let first = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(listen(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        listen(&path).unwrap();
        let plain = dir.path().join("plain");
        fs::write(&plain, "precious").unwrap();
        assert!(listen(&plain).is_err());
        assert_eq!(fs::read_to_string(&plain).unwrap(), "precious");
    }
}
