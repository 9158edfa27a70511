//! Files that were met: by what the kernel knows them, and by path.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use cawl_wire::{FileId, FileKind};
use nix::unistd::{SysconfVar, sysconf};
use rustc_hash::FxHashMap;

use crate::record::{Call, Identity, Naming};

/// Files kept; beyond that all are forgotten, and named again.
const MAX: usize = 1 << 20;

/// Filesystems whose files have another device for programs than in the kernel.
const BTRFS: u64 = 0x9123_683E;
const OVERLAY: u64 = 0x794C_7630;

/// Descriptors looked at of a process that is met: each takes some 5 µs, and calls wait in the ring.
const MAX_OPEN: usize = 1024;

/// Bytes of a page.
pub fn page() -> u64 {
    sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |bytes| bytes as u64)
}

/// A file that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Which one it is to programs.
    pub file: FileId,
    /// Its size in bytes.
    pub size: u64,
    /// `st_mode`.
    pub mode: u32,
    /// Its path, from the root directory of the process.
    pub path: Vec<u8>,
    /// It had another name until now.
    pub renamed: bool,
}

/// What is known of a file now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which one it is to programs.
    pub file: FileId,
    /// Its kind.
    pub mode: u16,
    /// Its size in bytes after the latest call.
    pub size: u64,
    /// Its names then.
    pub links: u32,
}

impl Seen {
    /// A file that a call took the last name of, if the kernel told of it.
    pub fn evicted(identity: &Identity) -> Option<Seen> {
        let Identity { mode, size, .. } = *identity;
        (identity.ino != 0).then(|| Seen { file: to_program(identity), mode, size, links: 1 })
    }

    /// It under this name.
    pub fn named(&self, path: &[u8], renamed: bool) -> Named {
        let path = path.to_owned();
        Named { file: self.file, size: self.size, mode: self.mode.into(), path, renamed }
    }

    /// What it is.
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(u32::from(self.mode))
    }
}

/// The device of a file as programs know it, if its name still leads to it.
fn by_name(naming: &Naming) -> Option<u64> {
    let path = Path::new(OsStr::from_bytes(&naming.path)).strip_prefix("/").ok()?;
    let found =
        Path::new("/proc").join(naming.tgid.to_string()).join("root").join(path).symlink_metadata().ok()?;
    let kind = |mode: u32| mode & libc::S_IFMT;
    let is_it = found.ino() == naming.identity.ino && kind(found.mode()) == kind(naming.identity.mode.into());
    is_it.then(|| found.dev())
}

type Key = (u64, u32, u32);
/// Inode numbers and paths by descriptor.
type Open = FxHashMap<i32, (u64, Vec<u8>)>;

fn key(identity: &Identity) -> Key {
    (identity.ino, identity.dev, identity.generation)
}

/// All files that were met.
#[derive(Default)]
pub struct Files {
    seen: FxHashMap<Key, Seen>,
    paths: FxHashMap<Vec<u8>, Key>,
    folders: FxHashMap<Key, Vec<u8>>,
    /// What a process had open when it was met.
    open: FxHashMap<u32, Arc<Open>>,
}

impl Files {
    /// A process is met, or about to begin: notes what it has open. Nothing asks a filesystem, which may
    /// hang.
    pub fn meet(&mut self, pid: u32) {
        let of_process = Path::new("/proc").join(pid.to_string());
        let entries = std::fs::read_dir(of_process.join("fd")).into_iter().flatten().flatten();
        let open = entries.take(MAX_OPEN).filter_map(|entry| {
            let path = entry.path().read_link().ok().filter(|path| path.is_absolute())?;
            // Linux 5.14 and later tell it.
            let told = std::fs::read_to_string(of_process.join("fdinfo").join(entry.file_name())).ok()?;
            let ino = told.lines().find_map(|line| line.strip_prefix("ino:"))?.trim().parse().ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, (ino, path.into_os_string().into_vec())))
        });
        self.open.insert(pid, Arc::new(open.collect()));
    }

    /// A child has what its parent has.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let open = self.open.get(&parent).cloned();
        self.open.extend(open.map(|open| (child, open)));
    }

    /// A process ended.
    pub fn forget(&mut self, pid: u32) {
        self.open.remove(&pid);
    }

    /// The name of what the kernel does not name: a socket, and a file that was open when its process was
    /// met, and that is only closed.
    pub fn unnamed(&self, call: &Call, fd: i32) -> Option<Naming> {
        let identity = call.identity;
        let path = match FileKind::from_mode(identity.mode.into()) {
            _ if self.knows(&identity) => return None,
            FileKind::Regular => {
                let (_, path) =
                    self.open.get(&call.tgid)?.get(&fd).filter(|(ino, _)| *ino == identity.ino)?;
                path.strip_suffix(b" (deleted)").filter(|_| identity.links == 0).unwrap_or(path).to_vec()
            }
            FileKind::Socket => format!("socket:[{}]", identity.ino).into(),
            _ => return None,
        };
        Some(Naming { tgid: call.tgid, identity, path, ..Naming::default() })
    }

    /// A file was named to a process.
    pub fn name(&mut self, naming: &Naming) -> Named {
        if self.seen.len() >= MAX || self.paths.len() >= MAX {
            *self = Files::default();
        }
        let mut file = to_program(&naming.identity);
        if matches!(naming.magic, BTRFS | OVERLAY) {
            // Another file may have the name by now: what is known already stays.
            let known = self.seen.get(&key(&naming.identity)).map(|seen| seen.file.dev);
            file.dev = by_name(naming).or(known).unwrap_or(file.dev);
        }
        let Identity { size, links, mode, .. } = naming.identity;
        // An open that cuts it off is told of after this.
        let before = self.length(&naming.identity).filter(|_| size == 0).unwrap_or(size);
        self.seen.insert(key(&naming.identity), Seen { file, mode, size: before, links });
        self.paths.insert(naming.path.clone(), key(&naming.identity));
        if FileKind::from_mode(mode.into()) == FileKind::Directory {
            self.folders.insert(key(&naming.identity), naming.path.clone());
        }
        let mut path = naming.path.clone();
        // As /proc/PID/fd says it.
        if path == b"/" && FileKind::from_mode(mode.into()) == FileKind::Fifo {
            path = format!("pipe:[{}]", naming.identity.ino).into_bytes();
        } else if links == 0 {
            path.extend_from_slice(b" (deleted)");
        }
        Named { file, size, mode: mode.into(), path, renamed: false }
    }

    /// The length of a file in bytes after the latest call, if it was met.
    pub fn length(&self, identity: &Identity) -> Option<u64> {
        self.seen.get(&key(identity)).map(|seen| seen.size)
    }

    /// Which file a call was about, as it is after the call.
    pub fn met(&mut self, identity: &Identity) -> FileId {
        match self.seen.get_mut(&key(identity)) {
            Some(seen) => {
                (seen.size, seen.links) = (identity.size, identity.links);
                seen.file
            }
            None => to_program(identity),
        }
    }

    /// The path of a name that begins at a folder.
    pub fn path(&self, folder: &Identity, name: &[u8]) -> Vec<u8> {
        let mut whole = Vec::new();
        if name.first() != Some(&b'/') {
            whole.extend_from_slice(self.folders.get(&key(folder)).map_or(&[][..], |path| &path[..]));
        }
        for part in name.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => whole.truncate(whole.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                part => {
                    if whole.last() != Some(&b'/') {
                        whole.push(b'/');
                    }
                    whole.extend_from_slice(part);
                }
            }
        }
        whole
    }

    /// The file of a path, as far as one was met.
    pub fn at(&self, path: &[u8]) -> Option<Seen> {
        self.seen.get(self.paths.get(path)?).copied()
    }

    /// The file of a path has one more name.
    pub fn link(&mut self, path: &[u8], more: Option<Vec<u8>>) {
        let Some(key) = self.paths.get(path).copied() else { return };
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.links += 1;
        }
        self.paths.extend(more.map(|more| (more, key)));
    }

    /// A path is gone.
    pub fn remove(&mut self, path: &[u8]) {
        if let Some(key) = self.paths.remove(path)
            && let Some(seen) = self.seen.get_mut(&key)
        {
            seen.links = seen.links.saturating_sub(1);
        }
    }

    /// A file came to another path.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Option<Named> {
        let key = self.paths.remove(from)?;
        self.paths.insert(to.to_vec(), key);
        if let Some(path) = self.folders.get_mut(&key) {
            *path = to.to_vec();
        }
        Some(self.seen.get(&key)?.named(to, true))
    }

    /// True for a file that was named.
    pub fn knows(&self, identity: &Identity) -> bool {
        self.seen.contains_key(&key(identity))
    }

    /// The file with this device and inode number, to programs.
    pub fn find(&self, dev: u64, ino: u64) -> Option<Seen> {
        self.seen.values().find(|seen| (seen.file.dev, seen.file.ino) == (dev, ino)).copied()
    }
}

/// A device as programs are told of it (`st_dev`).
pub fn device(dev: u32) -> u64 {
    libc::makedev(dev >> 20, dev & 0xF_FFFF)
}

/// The birth is that which the tracer makes of a file's handle: of inode number and generation, as most
/// filesystems do it (`generic_encode_ino32_fh`).
fn to_program(identity: &Identity) -> FileId {
    let is_file = FileKind::from_mode(u32::from(identity.mode)) == FileKind::Regular;
    let birth = if is_file { FileId::birth_of(&[identity.ino as u32, identity.generation]) } else { 0 };
    FileId { dev: device(identity.dev), ino: identity.ino, birth }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    fn naming(ino: u64, path: &str, mode: u16) -> Naming {
        let identity = Identity { ino, dev: 254 << 20, mode, links: 1, size: 5, generation: 9 };
        Naming { tgid: 1, identity, path: path.into(), ..Naming::default() }
    }

    #[test]
    fn names_lead_to_files() {
        let mut files = Files::default();
        let folder = naming(2, "/a", 0o40755);
        files.name(&folder);
        let named = files.name(&naming(3, "/a/b", 0o100644));
        let path = files.path(&folder.identity, b"./x/../b");
        assert_eq!(path, b"/a/b");
        assert_eq!(files.path(&folder.identity, b"/c//d"), b"/c/d");
        assert_eq!(files.at(&path).map(|seen| seen.file), Some(named.file));
        let renamed = files.rename(b"/a/b", b"/a/c").unwrap();
        assert!(renamed.renamed && renamed.path == b"/a/c" && renamed.file == named.file);
        assert_eq!(files.at(b"/a/b"), None);
        files.remove(b"/a/c");
        assert_eq!(files.at(b"/a/c"), None);
        assert_eq!(named.file.dev, libc::makedev(254, 0));
    }

    /// The kernel's device of an overlay is not that of programs, whom the name tells, as long as it is
    /// there.
    #[test]
    fn a_name_that_leads_elsewhere_by_now_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        std::fs::write(&path, "").unwrap();
        let found = path.metadata().unwrap();
        let mut naming = naming(found.ino(), path.to_str().unwrap(), 0o100644);
        (naming.tgid, naming.magic) = (std::process::id(), OVERLAY);
        let mut files = Files::default();
        assert_eq!(files.name(&naming).file.dev, found.dev());
        // A link that leads to it is not it, and neither is a missing file.
        std::fs::rename(&path, path.with_extension("moved")).unwrap();
        std::os::unix::fs::symlink("file.moved", &path).unwrap();
        assert_eq!(files.name(&naming).file.dev, found.dev());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(files.name(&naming).file.dev, found.dev());
        naming.identity.mode = 0o040755;
        naming.path = path.with_extension("moved").into_os_string().into_vec();
        assert_eq!(Files::default().name(&naming).file.dev, device(naming.identity.dev), "it is no folder");
    }

    #[test]
    fn what_was_open_has_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("file");
        let open = std::fs::File::create(&path).unwrap();
        let (pid, fd, found) = (std::process::id(), open.as_raw_fd(), open.metadata().unwrap());
        let mut files = Files::default();
        files.meet(pid);
        files.fork(pid, pid + 1);
        let identity = Identity { ino: found.ino(), mode: 0o100644, links: 0, ..Identity::default() };
        let call = Call { tgid: pid + 1, identity, ..Call::default() };
        std::fs::remove_file(&path).unwrap();
        if files.open[&pid].is_empty() {
            return eprintln!("SKIPPED: this kernel does not tell the inode in /proc/PID/fdinfo");
        }
        let naming = files.unnamed(&call, fd).unwrap();
        assert_eq!(naming.path, path.as_os_str().as_bytes());
        let other = Identity { ino: found.ino() + 1, ..identity };
        assert_eq!(files.unnamed(&Call { identity: other, ..call }, fd), None);
        files.name(&naming);
        assert_eq!(files.unnamed(&call, fd), None, "it is named once");
    }

    #[test]
    fn pipes_and_sockets_are_named_as_proc_does() {
        let mut files = Files::default();
        assert_eq!(files.name(&naming(7, "/", 0o010600)).path, b"pipe:[7]");
        assert_eq!(files.name(&naming(8, "/a/fifo", 0o010600)).path, b"/a/fifo");
        let identity = Identity { ino: 9, mode: 0o140777, ..Identity::default() };
        let call = Call { tgid: 1, identity, ..Call::default() };
        assert_eq!(files.unnamed(&call, 1).unwrap().path, b"socket:[9]");
    }

    /// It is named after an open has cut it off, and the open is told of after that.
    #[test]
    fn what_is_cut_off_had_a_length() {
        let mut files = Files::default();
        let mut file = naming(3, "/a", 0o100644);
        files.name(&file);
        assert_eq!(files.length(&file.identity), Some(5));
        file.identity.size = 0;
        assert_eq!(files.name(&file).size, 0);
        assert_eq!(files.length(&file.identity), Some(5));
        files.met(&file.identity);
        assert_eq!(files.length(&file.identity), Some(0));
        file.identity.links = 0;
        assert_eq!(files.name(&file).path, b"/a (deleted)");
    }
}
