//! The disk as a file: a FUSE filesystem with one file in its root.
//!
//! Each thread of the session takes a request, waits until the law has it complete, and answers; so as many
//! requests are served at a time as there are threads.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, UNIX_EPOCH};

use cawl_core::{Bytes, Time};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};

use crate::clock;
use crate::law::Law;
use crate::overhead::{Direction, Overhead};
use crate::spec::DiskSpec;
use crate::store::{Store, attributes};

pub const NAME: &str = "image";
const IMAGE: INodeNo = INodeNo(2);
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The disk, shared by the threads that serve it and the one that sets it up.
#[derive(Debug)]
pub struct Disk {
    spec: DiskSpec,
    law: Mutex<Law>,
    store: RwLock<Store>,
    paced: AtomicBool,
}

impl Disk {
    /// An empty disk that answers without pacing.
    pub fn new(spec: DiskSpec) -> Arc<Disk> {
        Arc::new(Disk {
            spec,
            law: Mutex::new(Law::new(spec)),
            store: RwLock::default(),
            paced: AtomicBool::new(false),
        })
    }

    /// Paces requests from now on, minus `overhead`.
    pub fn pace(&self, overhead: Overhead) {
        self.law().set_overhead(overhead);
        self.paced.store(true, Ordering::Release);
    }

    /// Answers requests without pacing from now on.
    pub fn hurry(&self) {
        self.paced.store(false, Ordering::Release);
    }

    fn law(&self) -> MutexGuard<'_, Law> {
        self.law.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, done: impl FnOnce(&mut Law) -> Time) {
        if self.paced.load(Ordering::Acquire) {
            let done = done(&mut self.law());
            clock::wait_until(done);
        }
    }
}

/// The filesystem with the disk.
#[derive(Debug)]
pub struct Image(pub Arc<Disk>);

impl Image {
    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0),
            IMAGE => (FileType::RegularFile, self.0.spec.size.0),
            _ => return None,
        };
        Some(attributes(ino, kind, 0o700, size, UNIX_EPOCH))
    }
}

thread_local! {
    /// Buffer of a read's answer.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Image {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Several direct requests of one file at a time; without it the disk has a queue of one.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_ASYNC_READ);
        let _ = config.set_max_background(64);
        let _ = config.set_max_write(4 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(IMAGE).filter(|_| name == NAME) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO
            | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
            | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let arrived = cawl_host::now();
        let left = self.0.spec.size.0.saturating_sub(offset);
        let size = u64::from(size).min(left) as usize;
        ANSWER.with_borrow_mut(|answer| {
            if answer.len() < size {
                answer.resize(size, 0);
            }
            let answer = &mut answer[..size];
            self.0.store.read().unwrap_or_else(PoisonError::into_inner).read(offset, answer);
            self.0.wait(|law| law.transfer(Direction::Read, offset, Bytes(size as u64), arrived));
            reply.data(answer);
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let arrived = cawl_host::now();
        let size = data.len() as u64;
        if offset.saturating_add(size) > self.0.spec.size.0 {
            return reply.error(Errno::ENOSPC);
        }
        self.0.store.write().unwrap_or_else(PoisonError::into_inner).write(offset, data);
        self.0.wait(|law| law.transfer(Direction::Write, offset, Bytes(size), arrived));
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let arrived = cawl_host::now();
        self.0.wait(|law| law.flush(arrived));
        reply.ok();
    }
}
