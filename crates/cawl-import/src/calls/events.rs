//! A call as strace shows it, and the event that it becomes.

use std::rc::Rc;

use cawl_core::host_text::unescape;
use cawl_core::{Bytes, FileFacts, Record};
use cawl_wire::{Event, FileKind, Op, flag};

use super::tables::{self, Description, File, Shared, Table};
use super::text::{self, Outcome};
use super::{Calls, names};

/// What a call does, as far as this importer follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Write(Op),
    /// Reads at the descriptor's position.
    Read,
    /// Reads without moving that.
    ReadAt,
    Sync(Op),
    Copy(Op),
    Resize(Op),
    Open,
    Close,
    CloseRange,
    Dup,
    Control,
    Flock,
    Seek,
    Unlink,
    Rename,
    Link,
    Exec,
    /// Makes a thread or a process.
    Child,
    Stat,
    Directory,
    /// Makes two descriptors of this kind.
    Pair(FileKind),
    /// Makes a descriptor of this kind.
    Special(FileKind),
    Map,
    Ioctl,
    /// Writes in a way that no event stands for.
    Unmodelled,
}

impl CallKind {
    /// What the call of this name does; None if it has nothing to do with files.
    pub fn of(name: &str) -> Option<CallKind> {
        use CallKind::*;
        Some(match name {
            "write" => Write(Op::Write),
            "pwrite64" | "pwrite" => Write(Op::Pwrite),
            "writev" => Write(Op::Writev),
            "pwritev" | "pwritev2" => Write(Op::Pwritev),
            "read" | "readv" => Read,
            "pread64" | "pread" | "preadv" | "preadv2" => ReadAt,
            "fsync" => Sync(Op::Fsync),
            "fdatasync" => Sync(Op::Fdatasync),
            "sync" => Sync(Op::Sync),
            "syncfs" => Sync(Op::Syncfs),
            "sync_file_range" | "sync_file_range2" => Sync(Op::SyncRange),
            "msync" => Sync(Op::Msync),
            "fadvise64" => Sync(Op::Advise),
            "copy_file_range" => Copy(Op::CopyRange),
            "sendfile" | "sendfile64" => Copy(Op::Sendfile),
            "splice" => Copy(Op::Splice),
            "truncate" | "truncate64" | "ftruncate" | "ftruncate64" => Resize(Op::Truncate),
            "fallocate" => Resize(Op::Allocate),
            "open" | "openat" | "openat2" | "creat" => Open,
            "close" => Close,
            "close_range" => CloseRange,
            "dup" | "dup2" | "dup3" => Dup,
            "fcntl" | "fcntl64" => Control,
            "flock" => Flock,
            "lseek" | "_llseek" => Seek,
            "unlink" | "unlinkat" => Unlink,
            "rename" | "renameat" | "renameat2" => Rename,
            "link" | "linkat" => Link,
            "execve" | "execveat" => Exec,
            "clone" | "clone2" | "clone3" | "fork" | "vfork" => Child,
            "newfstatat" | "fstatat64" | "fstat" | "fstat64" | "stat" | "stat64" | "statx" => Stat,
            "chdir" | "fchdir" => Directory,
            "pipe" | "pipe2" => Pair(FileKind::Fifo),
            "socketpair" => Pair(FileKind::Socket),
            "socket" | "accept" | "accept4" => Special(FileKind::Socket),
            "eventfd2" | "memfd_create" | "epoll_create1" | "timerfd_create" | "inotify_init1"
            | "pidfd_open" | "io_uring_setup" => Special(FileKind::Other),
            "mmap" | "mmap2" => Map,
            "ioctl" => Ioctl,
            "io_submit" | "io_uring_enter" | "vmsplice" | "tee" | "process_vm_writev" => Unmodelled,
            _ => return None,
        })
    }
}

/// A call that strace has shown the beginning of.
#[derive(Debug)]
pub(super) struct Pending {
    pub name: String,
    pub kind: CallKind,
    pub text: String,
    pub start: u64,
    pub line: u64,
    /// Of a clone: the child that was met before the call returned.
    pub child: Option<u32>,
    /// That child has ended.
    pub is_over: bool,
    pub closing: Closing,
}

/// When a close takes its descriptor out of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Closing {
    /// With the line that shows the whole call.
    #[default]
    AtOnce,
    /// When the call began, because the number may be given out again before strace shows the end;
    /// with the event that is to be completed, if it is wanted.
    Begun(Option<Event>),
}

/// The thread that makes a call, and when.
pub(super) struct Caller {
    pub pid: u32,
    pub tid: u32,
    pub table: Table,
    pub start: u64,
    pub duration: u64,
    /// ESTIMATED if the duration is not known.
    pub flags: u32,
    /// A descriptor that is not known leads to a file all the same.
    pub guesses: bool,
}

/// The file that a call is about, and the descriptor that leads to it.
pub(super) struct Target {
    pub fd: i32,
    pub description: Option<Shared<Description>>,
    pub file: Option<Shared<File>>,
}

impl Target {
    /// For calls that are about no file.
    pub const NONE: Target = Target { fd: -1, description: None, file: None };

    pub fn of(fd: i32, description: Option<Shared<Description>>) -> Target {
        let file = description.as_ref().map(|description| description.borrow().file.clone());
        Target { fd, description, file }
    }

    /// The flags of its description, none if it has none.
    pub fn flags(&self) -> u32 {
        self.description.as_ref().map_or(0, |description| description.borrow().flags)
    }

    pub fn move_on(&self, length: u64) {
        if let Some(description) = &self.description {
            let position = &mut description.borrow_mut().position;
            *position = position.saturating_add(length);
        }
    }

    /// Lets `length` bytes be written at the description's own position; where the first one went.
    pub fn advance(&self, event: &mut Event, length: u64) {
        let (Some(description), Some(file)) = (&self.description, &self.file) else { return };
        if event.kind != FileKind::Regular && event.kind != FileKind::Block {
            return;
        }
        let (mut description, mut file) = (description.borrow_mut(), file.borrow_mut());
        let (at, guessed) = match event.has(flag::APPEND) {
            true => (file.size, !file.size_known),
            false => (description.position, description.flags & flag::ESTIMATED != 0),
        };
        event.offset = at;
        event.flags |= if guessed { flag::ESTIMATED } else { 0 };
        description.position = at.saturating_add(length);
        file.size = file.size.max(description.position);
    }

    pub fn grow(&self, end: u64) {
        if let Some(file) = &self.file {
            let size = &mut file.borrow_mut().size;
            *size = end.max(*size);
        }
    }

    pub fn resize(&self, length: u64) {
        if let Some(file) = &self.file {
            let mut file = file.borrow_mut();
            (file.size, file.size_known) = (length, true);
        }
    }
}

impl Calls {
    pub(super) fn caller(&self, tid: u32, start: u64, duration: Option<u64>) -> Option<Caller> {
        let pid = self.threads.get(&tid)?.pid;
        let table = self.processes.get(&pid)?.table.clone();
        let flags = if duration.is_none() { flag::ESTIMATED } else { 0 };
        Some(Caller { pid, tid, table, start, duration: duration.unwrap_or(0), flags, guesses: false })
    }

    pub(super) fn target(&mut self, caller: &Caller, argument: &str) -> Target {
        let fd = text::descriptor(argument).map_or(-1, |(fd, _)| fd);
        if fd < 0 {
            return Target::of(fd, None);
        }
        let description = match tables::description(&caller.table, fd).filter(|_| self.gaps.late_names) {
            Some(known) => {
                self.learn_name(&known, argument);
                Some(known)
            }
            None => self.files.resolve(&caller.table, fd, argument),
        };
        Target::of(fd, description.or_else(|| self.guess(caller, fd)))
    }

    /// What a descriptor leads to that was opened before the recording; of the standard streams nobody knows.
    fn guess(&mut self, caller: &Caller, fd: i32) -> Option<Shared<Description>> {
        if !caller.guesses || fd < 3 {
            return None;
        }
        self.unopened += 1;
        let file = self.files.nameless(&unnamed(caller.pid, fd), FileKind::Regular);
        let guessed = Description::new(file, flag::INHERITED | flag::ESTIMATED | flag::WRITABLE);
        tables::install(&caller.table, fd, &guessed, false);
        Some(guessed)
    }

    /// A descriptor argument names a file that was opened without a name. If its events have not gone out and
    /// the name is that of a known file, they are about that one.
    fn learn_name(&mut self, description: &Shared<Description>, argument: &str) {
        let file = Rc::clone(&description.borrow().file);
        let (unnamed, ino, met) = (file.borrow().unnamed, file.borrow().ino, file.borrow().met);
        let (Some(since), Some(shown)) = (unnamed, text::annotation(argument)) else { return };
        if text::is_deleted(argument) {
            return;
        }
        self.unnamed = self.unnamed.saturating_sub(1);
        let (path, kind) = (unescape(tables::bare(shown)), tables::kind_of_path(shown));
        let is_told = met && !self.queue.holds(ino);
        let Some(known) = self.files.find(&path).filter(|_| !is_told) else {
            self.files.name(&file, &path, kind);
            self.queue.revise(since, ino, ino, kind);
            let facts = facts(&file.borrow(), is_told);
            return match (met, is_told) {
                (_, true) => self.queue.push(self.now, Record::File(facts)),
                (true, false) => self.queue.know(facts),
                (false, false) => {}
            };
        };
        self.queue.revise(since, ino, known.borrow().ino, kind);
        self.queue.forget(ino);
        if met && self.files.meet(&known) {
            self.queue.know(facts(&known.borrow(), false));
        }
        if file.borrow().size_known {
            (known.borrow_mut().size, known.borrow_mut().size_known) = (file.borrow().size, true);
        }
        description.borrow_mut().file = known;
    }

    /// An event about a file, which is told of before it, with all that is known before the call's own
    /// figures.
    pub(super) fn event(&mut self, op: Op, caller: &Caller, target: &Target) -> Event {
        let mut event = Event::new(op);
        (event.start, event.duration) = (caller.start, caller.duration);
        (event.pid, event.tid, event.fd) = (caller.pid, caller.tid, target.fd);
        // The guess is about the position, which only some calls use.
        event.flags = caller.flags | target.flags() & !flag::ESTIMATED;
        if let Some(file) = &target.file {
            let is_new = self.files.meet(file);
            let file = file.borrow();
            (event.ino, event.kind) = (file.ino, file.kind);
            if is_new {
                self.queue.know(facts(&file, false));
            }
        }
        event
    }

    /// The file at this path has come there; if it has been met, it gets its new name.
    pub(super) fn came(&mut self, path: &str, at: u64) {
        if let Some(file) = self.files.find(path).filter(|file| file.borrow().met) {
            self.queue.push(at, Record::File(facts(&file.borrow(), true)));
        }
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.announce(event.pid);
        self.queue.push(event.start, Record::Event(event));
    }

    /// Sets what the call returned; the value if it succeeded.
    pub(super) fn settle(event: &mut Event, result: Outcome<'_>) -> Option<u64> {
        match result {
            Outcome::Value(value, _) => {
                event.returned = value;
                u64::try_from(value).ok()
            }
            Outcome::Failed(errno) => {
                (event.returned, event.errno) = (-1, errno);
                None
            }
            Outcome::None => None,
        }
    }
}

/// The path of a file whose name is not known.
pub(super) fn unnamed(pid: u32, fd: i32) -> String {
    format!("pid {pid}, descriptor {fd}")
}

/// The offset behind a pointer: `[4096]`, `[4096] => [8192]`; None for NULL.
pub(super) fn pointed(text: &str) -> Option<u64> {
    let inner = text.strip_prefix('[')?;
    names::integer(&inner[..inner.find(']')?]).map(|value| value as u64)
}

/// What is known of a file. Its number is the importer's own, and given once.
fn facts(file: &File, renamed: bool) -> FileFacts {
    FileFacts {
        ino: file.ino,
        renamed,
        size: Bytes(if file.size_known { file.size } else { 0 }),
        block: 4096,
        mode: mode_of(file.kind),
        path: file.path.clone(),
        ..FileFacts::default()
    }
}

/// `st_mode` of a file of which only the kind is known.
fn mode_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 0o100_644,
        FileKind::Directory => 0o040_755,
        FileKind::Block => 0o060_660,
        FileKind::Char => 0o020_666,
        FileKind::Fifo => 0o010_600,
        FileKind::Socket => 0o140_777,
        FileKind::Other | FileKind::Unknown => 0,
    }
}
