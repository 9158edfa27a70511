//! Listens, and checks the credentials of peers.
//!
//! The socket has mode 0600, and a peer must have the credentials of the same user or root. Only a root
//! daemon may listen where other users can connect: their programs may be recorded, and nothing else
//! (`guests`).

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};

use cawl_client::address::own_uid;
use nix::sys::stat::{Mode, umask};
use tokio::net::{UnixListener, UnixStream};

/// Listens at `path`. A socket left behind by a dead daemon is replaced; a live daemon's is not.
pub fn listen(path: &Path) -> Result<UnixListener> {
    listen_as(path, 0o600)
}

/// Listens at `path` for every user. A dead daemon's socket is replaced; a live daemon's is not.
pub fn listen_to_all(path: &Path) -> Result<UnixListener> {
    listen_as(path, 0o666)
}

fn listen_as(path: &Path, mode: u32) -> Result<UnixListener> {
    let name = path.display();
    let meta = fs::symlink_metadata(path).ok();
    if meta.as_ref().is_some_and(|meta| !meta.file_type().is_socket()) {
        let text = format!("{name} exists and is not a socket; name another with --socket");
        return Err(Error::new(ErrorKind::AlreadyExists, text));
    }
    // Only a refused connection proves that there is no listener; without permission, it belongs to another
    // user.
    match meta.map(|_| Blocking::connect(path)) {
        None => {}
        Some(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Some(Err(error)) => {
            let text = format!("cannot tell who listens at {name}: {error}; use another --socket");
            return Err(Error::new(error.kind(), text));
        }
        Some(Ok(_)) => {
            let text = format!("a daemon is already listening at {name}; stop it or use another --socket");
            return Err(Error::new(ErrorKind::AddrInUse, text));
        }
    }
    let before = umask(Mode::from_bits_truncate(0o777 & !mode));
    let listener = UnixListener::bind(path);
    umask(before);
    listener.map_err(|error| Error::new(error.kind(), format!("cannot listen at {name}: {error}")))
}

/// The file of a socket, removed when dropped: also of a program that failed to start.
#[derive(Debug)]
pub struct SocketFile(pub PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already.
        drop(fs::remove_file(&self.0));
    }
}

/// Removes the sockets of runs in a folder that were killed, named `cawl-run-PID.sock`: there is no such
/// process, and nobody listens.
pub fn sweep(folder: &Path) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.strip_prefix("cawl-run-").and_then(|rest| rest.strip_suffix(".sock"));
        let Some(pid) = pid.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let is_dead = !Path::new("/proc").join(pid.to_string()).exists();
        let is_refused = || Blocking::connect(&path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
        if is_dead && is_refused() {
            drop(fs::remove_file(&path));
        }
    }
}

/// The process at the other end, as of its connect.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its pid in the daemon's pid namespace; None if that is not an ancestor of its own.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
}

impl Peer {
    /// Of this connection.
    pub fn of(stream: &UnixStream) -> Result<Peer> {
        let peer = stream.peer_cred()?;
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid != 0);
        Ok(Peer { pid, uid: peer.uid() })
    }

    /// True if it may ask and be recorded: the same user, or root.
    pub fn may_talk(&self) -> bool {
        self.uid == own_uid().as_raw() || self.uid == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[tokio::test]
    async fn stale_sockets_are_replaced_live_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let first = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(listen(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first);
        listen(&path).unwrap();
        // Those of runs that were killed go, others stay.
        let of = |name: &str| dir.path().join(name);
        let own = format!("cawl-run-{}.sock", std::process::id());
        for name in ["cawl-run-4194999.sock", "cawl-run-x.sock", &own] {
            drop(listen(&of(name)).unwrap());
        }
        let served = listen(&of("cawl-run-4194998.sock")).unwrap();
        sweep(dir.path());
        let left = ["cawl-run-4194999.sock", "cawl-run-x.sock", &own, "cawl-run-4194998.sock"];
        assert_eq!(left.map(|name| of(name).exists()), [false, true, true, true]);
        drop((served, SocketFile(of("cawl-run-4194998.sock"))));
        assert!(!of("cawl-run-4194998.sock").exists());
        let plain = dir.path().join("plain");
        fs::write(&plain, "precious").unwrap();
        assert!(listen(&plain).is_err());
        assert_eq!(fs::read_to_string(&plain).unwrap(), "precious");
    }
}
