//! A file server that stops answering.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::{LIMIT, skipped};

const FILE: INodeNo = INodeNo(2);
const SIZE: u64 = 8 << 20;
static NOTHING: [u8; 1 << 20] = [0; 1 << 20];

/// A mounted filesystem with one file, `mapped`. It is opened once; the next to open it gets no answer.
pub struct MuteServer {
    path: PathBuf,
    waiting: Waiting,
    hangs: Receiver<()>,
    _session: BackgroundSession,
}

/// Those who wait for an answer.
type Waiting = Arc<Mutex<Vec<ReplyOpen>>>;

impl MuteServer {
    /// None, and said so, where nothing can be mounted.
    pub fn mount(path: &Path) -> Option<MuteServer> {
        fs::create_dir(path).expect("a new folder");
        let (told, hangs) = channel();
        let waiting = Waiting::default();
        let files = Files { waiting: Arc::clone(&waiting), opened: Mutex::new(false), told };
        match fuser::spawn_mount(files, path, &Config::default()) {
            Ok(session) => Some(MuteServer { path: path.to_owned(), waiting, hangs, _session: session }),
            Err(error) => {
                skipped(&format!("no filesystem can be served here: {error}"));
                None
            }
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when a reader waits for an answer.
    pub fn until_it_hangs(&self) {
        self.hangs.recv_timeout(LIMIT).expect("the file is opened again");
    }

    /// True while a reader waits for an answer.
    pub fn hangs(&self) -> bool {
        !self.waiting.lock().expect("no panic").is_empty()
    }

    /// Answers those who wait.
    pub fn answer(&self) {
        for reply in self.waiting.lock().expect("no panic").drain(..) {
            reply.error(Errno::EIO);
        }
    }
}

impl Drop for MuteServer {
    fn drop(&mut self) {
        // Programs of a test that failed may still be there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        self.answer();
    }
}

struct Files {
    waiting: Waiting,
    opened: Mutex<bool>,
    told: Sender<()>,
}

fn attributes(ino: INodeNo) -> FileAttr {
    let (kind, size) = match ino {
        FILE => (FileType::RegularFile, SIZE),
        _ => (FileType::Directory, 0),
    };
    FileAttr {
        ino,
        size,
        blocks: size / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o700,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

const HOUR: Duration = Duration::from_secs(3600);

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "mapped" {
            reply.entry(&HOUR, &attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&HOUR, &attributes(ino));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<fuser::TimeOrNow>,
        _: Option<fuser::TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Whatever is set, the file is as large as the program makes it.
        reply.attr(&HOUR, &attributes(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut opened = self.opened.lock().expect("no panic");
        if !std::mem::replace(&mut *opened, true) {
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        self.waiting.lock().expect("no panic").push(reply);
        // Nobody may listen any more.
        let _ = self.told.send(());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.data(&NOTHING[..NOTHING.len().min(size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        reply.written(data.len() as u32);
    }
}
