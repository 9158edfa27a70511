//! A filesystem in user space that keeps names and lengths and forgets the data, as a server far away would
//! keep them for us.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

/// For how long the kernel may believe what it was told.
const BELIEF: Duration = Duration::from_secs(1);
const PAGE: u32 = 4096;
/// The folder of files without a name.
const NOWHERE: INodeNo = INodeNo(0);

/// A file or folder.
struct Node {
    parent: INodeNo,
    name: OsString,
    kind: FileType,
    size: u64,
}

/// The filesystem.
pub struct Far {
    nodes: Mutex<HashMap<INodeNo, Node>>,
    /// True if the kernel's page cache keeps what is written until the flusher comes.
    writeback: bool,
}

impl Far {
    /// Mounts it; gone when the session is dropped.
    pub fn mount(at: &Path, writeback: bool) -> io::Result<BackgroundSession> {
        let root = Node { parent: INodeNo::ROOT, name: "/".into(), kind: FileType::Directory, size: 0 };
        let far = Far { nodes: Mutex::new(HashMap::from([(INodeNo::ROOT, root)])), writeback };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("far".to_owned())];
        Session::new(far, at, &config)?.spawn()
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<INodeNo, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
        let nodes = self.nodes();
        let mut named = nodes.iter().filter(|(_, node)| node.parent == parent && node.name == name);
        named.next().map(|(ino, _)| *ino)
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let nodes = self.nodes();
        let node = nodes.get(&ino)?;
        Some(FileAttr {
            ino,
            size: node.size,
            blocks: node.size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: node.kind,
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: PAGE,
            flags: 0,
        })
    }

    fn make(&self, parent: INodeNo, name: &OsStr, kind: FileType) -> Option<FileAttr> {
        let ino = {
            let mut nodes = self.nodes();
            let ino = INodeNo(nodes.keys().map(|ino| ino.0).max().unwrap_or(1) + 1);
            nodes.insert(ino, Node { parent, name: name.to_owned(), kind, size: 0 });
            ino
        };
        self.attributes(ino)
    }

    /// Takes a name away; the file stays for who has it open.
    fn remove(&self, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let found = self.find(parent, name);
        match found.and_then(|ino| self.nodes().get_mut(&ino).map(|node| node.parent = NOWHERE)) {
            Some(()) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }
}

impl Filesystem for Far {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        if self.writeback {
            let unknown = |_| io::Error::other("this kernel has no writeback for FUSE");
            config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).map_err(unknown)?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name).and_then(|ino| self.attributes(ino)) {
            Some(attributes) => reply.entry(&BELIEF, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&BELIEF, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let (Some(size), Some(node)) = (size, self.nodes().get_mut(&ino)) {
            node.size = size;
        }
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&BELIEF, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name, FileType::Directory) {
            Some(attributes) => reply.entry(&BELIEF, &attributes, Generation(0)),
            None => reply.error(Errno::EIO),
        }
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        match self.make(parent, name, FileType::RegularFile) {
            Some(made) => reply.created(&BELIEF, &made, Generation(0), FileHandle(0), FopenFlags::empty()),
            None => reply.error(Errno::EIO),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent, name, reply);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.attributes(ino).map_or(0, |attributes| attributes.size);
        reply.data(&vec![0; u64::from(size).min(end.saturating_sub(offset)) as usize]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(node) = self.nodes().get_mut(&ino) {
            node.size = node.size.max(offset + data.len() as u64);
        }
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let nodes = self.nodes();
        let mut inside: Vec<_> =
            nodes.iter().filter(|(own, node)| node.parent == ino && **own != INodeNo::ROOT).collect();
        inside.sort_by_key(|(own, _)| own.0);
        for (index, (own, node)) in inside.into_iter().enumerate().skip(offset as usize) {
            if reply.add(*own, index as u64 + 1, node.kind, &node.name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 20;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, PAGE, 255, PAGE);
    }
}
