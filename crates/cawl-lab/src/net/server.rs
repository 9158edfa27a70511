//! The filesystem behind the link: what FUSE asks, answered when the link has it through.
//!
//! Each thread of the session takes a request, answers it from the [`Tree`], and waits until the [`Link`] has
//! it complete; so as many requests are under way at a time as there are threads. What a mount asks is FUSE's
//! law (fs/fuse/ of Linux 6.18): open asks LOOKUP of names that the kernel does not believe, then OPEN or
//! CREATE, and SETATTR to truncate; close asks FLUSH and waits for it, and RELEASE without waiting.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use cawl_core::{Bytes, CachePolicy, Time};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};

use super::link::Link;
use super::requests::Requests;
use super::spec::NetSpec;
use super::tree::{Kind, Owner, Tree, permissions};
use crate::clock;
use crate::overhead::{Direction, Overhead};
use crate::store::Store;

/// For how long the kernel believes names and attributes, except with [`CachePolicy::None`].
const BELIEF: Duration = Duration::from_secs(1);
/// The file with the [`Requests`], which no folder lists and nothing counts.
const COUNTS: INodeNo = INodeNo(2);
const PAGE: u32 = 4096;

/// The filesystem, shared by the threads that serve it and the one that sets it up.
#[derive(Debug)]
pub struct Server {
    spec: NetSpec,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    link: Link,
    requests: Requests,
    /// Requests are answered without pacing, and not counted.
    hurries: bool,
}

impl Server {
    /// An empty filesystem that answers without pacing.
    pub fn new(spec: NetSpec) -> Arc<Server> {
        let tree = Tree::new(INodeNo(COUNTS.0 + 1), spec.size);
        let state = State { tree, link: Link::new(spec), requests: Requests::default(), hurries: true };
        Arc::new(Server { spec, state: Mutex::new(state) })
    }

    /// Paces requests from now on, minus `overhead`, and counts them anew.
    pub fn pace(&self, overhead: Overhead) {
        let mut state = self.state();
        state.link.set_overhead(overhead);
        state.requests = Requests::default();
        state.hurries = false;
    }

    /// Answers requests without pacing from now on.
    pub fn hurry(&self) {
        self.state().hurries = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what a request asks, and returns when it is complete: `done` tells when.
    fn serve<T>(
        &self,
        count: impl FnOnce(&mut Requests),
        done: impl FnOnce(&mut Link, Time, &T) -> Time,
        work: impl FnOnce(&mut Tree) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let arrived = cawl_host::now();
        let (answer, complete) = {
            let mut state = self.state();
            let answer = work(&mut state.tree);
            if state.hurries {
                return answer;
            }
            count(&mut state.requests);
            let complete = match &answer {
                Ok(answer) => done(&mut state.link, arrived, answer),
                Err(_) => state.link.message(arrived),
            };
            (answer, complete)
        };
        clock::wait_until(complete);
        answer
    }

    /// A request without data.
    fn message<T>(
        &self,
        count: impl FnOnce(&mut Requests),
        work: impl FnOnce(&mut Tree) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.serve(count, |link, arrived, _| link.message(arrived), work)
    }

    /// A request that all files answer with yes.
    fn agree(&self, ino: INodeNo, count: impl FnOnce(&mut Requests), reply: ReplyEmpty) {
        let agreed = if ino == COUNTS { Ok(()) } else { self.message(count, |_| Ok(())) };
        conclude(agreed, reply);
    }

    /// What this side keeps: nothing, so that each call goes over the link; what was read, across opens, by
    /// descriptors that cannot write; what was read and written, across opens; or what was written too
    /// (FUSE_WRITEBACK_CACHE), until close, fsync or the flusher, close to open: open drops what is kept.
    fn flags(&self, flags: OpenFlags) -> FopenFlags {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.spec.policy {
            CachePolicy::None => FopenFlags::FOPEN_DIRECT_IO,
            CachePolicy::ReadOnly if writes => FopenFlags::FOPEN_DIRECT_IO,
            CachePolicy::ReadOnly | CachePolicy::WriteThrough => FopenFlags::FOPEN_KEEP_CACHE,
            CachePolicy::WriteBack => FopenFlags::empty(),
        }
    }

    fn belief(&self) -> Duration {
        if self.spec.policy == CachePolicy::None { Duration::ZERO } else { BELIEF }
    }

    fn enter(&self, made: Result<FileAttr, Errno>, reply: ReplyEntry) {
        match made {
            Ok(attributes) => reply.entry(&self.belief(), &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn tell(&self, attributes: Result<FileAttr, Errno>, reply: ReplyAttr) {
        match attributes {
            Ok(attributes) => reply.attr(&self.belief(), &attributes),
            Err(error) => reply.error(error),
        }
    }
}

fn conclude(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// The attributes of the file with the counts.
fn of_counts(state: &mut State) -> Result<FileAttr, Errno> {
    let root = state.tree.attributes(INodeNo::ROOT)?;
    Ok(FileAttr { ino: COUNTS, kind: FileType::RegularFile, perm: 0o400, ..root })
}

fn moment(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn owner(request: &Request, mode: u32) -> Owner {
    Owner { mode, uid: request.uid(), gid: request.gid() }
}

thread_local! {
    /// Buffer of a read's answer.
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The session's part of a [`Server`].
#[derive(Debug)]
pub struct Session(pub Arc<Server>);

impl Filesystem for Session {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_ASYNC_DIO;
        // Without these, requests of one file follow one another, and direct files have no shared mappings.
        let _ = config.add_capabilities(wanted);
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        if self.0.spec.policy == CachePolicy::WriteBack {
            let unknown = |_| io::Error::other("this kernel has no writeback for FUSE");
            config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).map_err(unknown)?;
        }
        let refused = |most| io::Error::other(format!("FUSE has at most {most} bytes in a request"));
        config.set_max_write(self.0.spec.request.0 as u32).map_err(refused)?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == Requests::FILE {
            let attributes = of_counts(&mut self.0.state());
            return match attributes {
                Ok(attributes) => reply.entry(&Duration::ZERO, &attributes, Generation(0)),
                Err(error) => reply.error(error),
            };
        }
        let found = self.0.message(|counts| counts.lookup += 1, |tree| tree.look_up(parent, name));
        self.0.enter(found, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        // No request waits until its memory is freed.
        let gone = self.0.state().tree.forget(ino, lookups);
        drop(gone);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if ino == COUNTS {
            let attributes = of_counts(&mut self.0.state());
            return self.0.tell(attributes, reply);
        }
        self.0.tell(self.0.message(|counts| counts.getattr += 1, |tree| tree.attributes(ino)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = |of: &mut FileAttr| {
            of.perm = mode.map_or(of.perm, permissions);
            (of.uid, of.gid) = (uid.unwrap_or(of.uid), gid.unwrap_or(of.gid));
            of.atime = accessed.map_or(of.atime, moment);
            of.mtime = modified.map_or(of.mtime, moment);
        };
        let changed = self.0.message(|counts| counts.setattr += 1, |tree| tree.change(ino, size, change));
        self.0.tell(changed, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.message(|counts| counts.other += 1, |tree| tree.target(ino)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let owner = owner(request, mode);
        let make = |tree: &mut Tree| tree.make(parent, name, Kind::Folder(BTreeMap::new()), owner);
        self.0.enter(self.0.message(|counts| counts.other += 1, make), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (kind, owner) = (Kind::Symlink(target.into()), owner(request, 0o777));
        let make = |tree: &mut Tree| tree.make(parent, name, kind, owner);
        self.0.enter(self.0.message(|counts| counts.other += 1, make), reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.0.message(|counts| counts.other += 1, |tree| tree.link(ino, parent, name));
        self.0.enter(linked, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self.0.message(|counts| counts.unlink += 1, |tree| tree.remove(parent, name, false));
        conclude(removed, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        conclude(self.0.message(|counts| counts.other += 1, |tree| tree.remove(parent, name, true)), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let rename = |tree: &mut Tree| tree.rename((parent, name), (to, new), flags.is_empty());
        conclude(self.0.message(|counts| counts.other += 1, rename), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let owner = owner(request, mode);
        let make = |tree: &mut Tree| tree.make(parent, name, Kind::File(Store::default()), owner);
        match self.0.message(|counts| counts.create += 1, make) {
            Ok(made) => {
                let flags = self.0.flags(OpenFlags(flags));
                reply.created(&self.0.belief(), &made, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if ino == COUNTS {
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        }
        match self.0.message(|counts| counts.open += 1, |tree| tree.attributes(ino)) {
            Ok(_) => reply.opened(FileHandle(0), self.0.flags(flags)),
            Err(error) => reply.error(error),
        }
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
        if ino == COUNTS {
            let text = self.0.state().requests.to_string();
            let from = text.len().min(offset as usize);
            return reply.data(&text.as_bytes()[from..text.len().min(from + size as usize)]);
        }
        ANSWER.with_borrow_mut(|answer| {
            answer.resize(size as usize, 0);
            let done = |link: &mut Link, arrived: Time, length: &usize| {
                link.transfer(Direction::Read, Bytes(*length as u64), arrived)
            };
            match self.0.serve(|counts| counts.read += 1, done, |tree| tree.read(ino, offset, answer)) {
                Ok(length) => reply.data(&answer[..length]),
                Err(error) => reply.error(error),
            }
        });
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
        let length = data.len() as u32;
        let done = |link: &mut Link, arrived: Time, (): &()| {
            link.transfer(Direction::Write, Bytes(length.into()), arrived)
        };
        match self.0.serve(|counts| counts.write += 1, done, |tree| tree.write(ino, offset, data)) {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        self.0.agree(ino, |counts| counts.flush += 1, reply);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.agree(ino, |counts| counts.release += 1, reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.agree(ino, |counts| counts.fsync += 1, reply);
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.0.agree(ino, |counts| counts.fsync += 1, reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.0.message(|counts| counts.other += 1, |tree| tree.list(ino)) {
            Ok(listed) => {
                for (index, (ino, kind, name)) in listed.into_iter().enumerate().skip(offset as usize) {
                    if reply.add(ino, index as u64 + 1, kind, &name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let pages = |bytes: Bytes| bytes.0 / u64::from(PAGE);
        let told = self.0.message(|counts| counts.other += 1, |tree| Ok((tree.free(), tree.len())));
        let (free, nodes) = told.unwrap_or_default();
        let (all, free) = (pages(self.0.spec.size), pages(free));
        reply.statfs(all, free, free, nodes, u64::from(u32::MAX), PAGE, 255, PAGE);
    }
}
