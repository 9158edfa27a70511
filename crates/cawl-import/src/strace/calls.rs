//! Calls that move or settle data, and the event each becomes.
//!
//! The law: **one call, at most one event.** The event says what the call said, figures and result alike;
//! only positions, which strace does not print, come from the tables.

use cawl_core::host_text::unescape;
use cawl_core::{Bytes, FileFacts, Record};
use cawl_wire::{Event, FileKind, Op, flag};

use super::lex::{self, Call, Outcome};
use super::tables::{self, Description, File, Shared, Table};
use super::{StraceImporter, names};
use crate::SkipReason;

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
            "eventfd2" | "memfd_create" | "epoll_create1" => Special(FileKind::Other),
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

    fn move_on(&self, length: u64) {
        if let Some(description) = &self.description {
            let position = &mut description.borrow_mut().position;
            *position = position.saturating_add(length);
        }
    }

    /// Lets `length` bytes be written at the description's own position; where the first one went.
    fn advance(&self, event: &mut Event, length: u64) {
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

    fn grow(&self, end: u64) {
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

impl StraceImporter {
    /// Takes over what a complete call did.
    pub(super) fn apply(
        &mut self,
        tid: u32,
        name: &str,
        kind: CallKind,
        start: u64,
        call: &Call<'_>,
        closing: Closing,
    ) {
        let Some(caller) = &self.caller(tid, start, call.duration) else { return };
        self.learn_directory(caller.pid, call);
        match kind {
            CallKind::Child => self.apply_child(caller, name, call),
            _ if matches!(call.result, Outcome::None) => self.skip(SkipReason::Endless),
            CallKind::Write(op) => self.apply_write(caller, name, op, call),
            CallKind::Sync(op) => self.apply_sync(caller, name, op, call),
            CallKind::Copy(op) => self.apply_copy(caller, op, call),
            CallKind::Resize(op) => self.apply_resize(caller, name, op, call),
            CallKind::Close => self.apply_close(caller, call, closing),
            _ if matches!(call.result, Outcome::Failed(_)) => self.skip(SkipReason::Failed),
            CallKind::Read => {
                let target = self.target(caller, call.arg(0));
                let Outcome::Value(length, _) = call.result else { return };
                target.move_on(u64::try_from(length).unwrap_or(0));
                self.skip(SkipReason::ReadOnly);
            }
            CallKind::ReadAt => self.skip(SkipReason::ReadOnly),
            CallKind::Unmodelled => self.skip(SkipReason::Unmodelled(name.to_owned())),
            CallKind::Open => self.apply_open(caller, name, call),
            CallKind::Dup => self.apply_dup(caller, call),
            CallKind::Control if call.arg(1).starts_with("F_DUPFD") => self.apply_dup(caller, call),
            CallKind::Control => self.apply_control(caller, call),
            CallKind::Flock => self.apply_lock(caller, call),
            CallKind::Seek => self.apply_seek(caller, name, call),
            CallKind::Unlink | CallKind::Rename | CallKind::Link => self.apply_name(caller, name, kind, call),
            CallKind::Exec => self.apply_exec(caller, name, call),
            CallKind::CloseRange => {
                let last = names::integer(call.arg(1)).filter(|last| *last >= 0).unwrap_or(i64::MAX);
                let first = names::integer(call.arg(0)).unwrap_or(i64::MAX);
                let within = |fd: &i32| (first..=last).contains(&i64::from(*fd));
                let mut table = tables::change(&caller.table);
                if call.arg(2).contains("CLOSE_RANGE_CLOEXEC") {
                    let closed = table.iter_mut().filter(|(fd, _)| within(fd));
                    closed.for_each(|(_, descriptor)| descriptor.close_on_exec = true);
                } else {
                    table.retain(|fd, _| !within(fd));
                }
                self.skip(SkipReason::ReadOnly);
            }
            _ => self.apply_other(caller, name, kind, call),
        }
    }

    pub(super) fn caller(&self, tid: u32, start: u64, duration: Option<u64>) -> Option<Caller> {
        let pid = self.threads.get(&tid)?.pid;
        let table = self.processes.get(&pid)?.table.clone();
        let flags = if duration.is_none() { flag::ESTIMATED } else { 0 };
        Some(Caller { pid, tid, table, start, duration: duration.unwrap_or(0), flags })
    }

    /// With -y, `AT_FDCWD</dir>` tells the working directory.
    fn learn_directory(&mut self, pid: u32, call: &Call<'_>) {
        let shown = call.args.iter().take(3).find(|arg| arg.starts_with("AT_FDCWD<"));
        let Some(path) = shown.and_then(|arg| lex::annotation(arg)) else { return };
        let path = unescape(path);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.cwd != path) {
            process.cwd = path.into_owned();
        }
    }

    pub(super) fn target(&mut self, caller: &Caller, argument: &str) -> Target {
        let fd = lex::descriptor(argument).map_or(-1, |(fd, _)| fd);
        let description = if fd < 0 { None } else { self.files.resolve(&caller.table, fd, argument) };
        Target::of(fd, description)
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

    fn apply_write(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let vector = matches!(op, Op::Writev | Op::Pwritev);
        let placed = matches!(op, Op::Pwrite | Op::Pwritev);
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(op, caller, &target);
        let returned = Self::settle(&mut event, call.result);
        let length = returned.unwrap_or(0);
        event.requested = if vector { vector_length(call.arg(1)) } else { unsigned(call.arg(2)) }.max(length);
        if name == "pwritev2" {
            let flags = call.arg(4);
            event.flags |= if flags.contains("RWF_DSYNC") { flag::DSYNC } else { 0 };
            event.flags |= if flags.split('|').any(|name| name == "RWF_SYNC") { flag::SYNC } else { 0 };
            event.flags |= if flags.contains("RWF_APPEND") { flag::APPEND } else { 0 };
        }
        let place = names::integer(call.arg(3)).unwrap_or(-1);
        match u64::try_from(place) {
            Ok(place) if placed => {
                event.offset = place;
                if event.has(flag::APPEND) {
                    // Linux appends whatever the place, and does not move the position.
                    let file = target.file.as_ref().map(|file| file.borrow());
                    event.offset = file.as_ref().map_or(place, |file| file.size);
                    event.flags |= if file.is_some_and(|file| file.size_known) { 0 } else { flag::ESTIMATED };
                }
                if length > 0 {
                    target.grow(event.offset.saturating_add(length));
                }
            }
            _ => target.advance(&mut event, length),
        }
        self.emit(event);
    }

    fn apply_sync(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let target = match op {
            Op::Sync | Op::Msync => Target::NONE,
            _ => self.target(caller, call.arg(0)),
        };
        let mut event = self.event(op, caller, &target);
        Self::settle(&mut event, call.result);
        if op == Op::SyncRange {
            let [offset, length, flags] = if name.ends_with('2') { [2, 3, 1] } else { [1, 2, 3] };
            (event.offset, event.requested) = (unsigned(call.arg(offset)), unsigned(call.arg(length)));
            event.aux = names::bits(call.arg(flags), names::SYNC_RANGE);
        } else if op == Op::Advise {
            (event.offset, event.requested) = (unsigned(call.arg(1)), unsigned(call.arg(2)));
            event.aux = names::bits(call.arg(3), names::ADVICE);
        } else if op == Op::Msync {
            event.requested = unsigned(call.arg(1));
        }
        self.emit(event);
    }

    fn apply_copy(&mut self, caller: &Caller, op: Op, call: &Call<'_>) {
        // Places of: source, its offset, destination, its offset, length.
        let [from, from_at, to, to_at, length] = match op {
            Op::Sendfile => [1, 2, 0, usize::MAX, 3],
            _ => [0, 1, 2, 3, 4],
        };
        let source = self.target(caller, call.arg(from));
        let target = self.target(caller, call.arg(to));
        let mut event = self.event(op, caller, &target);
        let moved = Self::settle(&mut event, call.result).unwrap_or(0);
        event.requested = unsigned(call.arg(length));
        match pointed(call.arg(to_at)) {
            Some(place) => {
                event.offset = place;
                if moved > 0 {
                    target.grow(place.saturating_add(moved));
                }
            }
            None => target.advance(&mut event, moved),
        }
        if pointed(call.arg(from_at)).is_none() {
            source.move_on(moved);
        }
        self.emit(event);
    }

    fn apply_resize(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let target = if name.starts_with("trunc") {
            let Some(path) = self.path(caller, None, call.arg(0)) else {
                return self.skip(SkipReason::Unreadable);
            };
            Target { file: Some(self.files.named(&path, FileKind::Regular)), ..Target::NONE }
        } else {
            self.target(caller, call.arg(0))
        };
        let mut event = self.event(op, caller, &target);
        let ok = Self::settle(&mut event, call.result).is_some();
        if op == Op::Truncate {
            event.offset = unsigned(call.arg(1));
            if ok {
                target.resize(event.offset);
            }
        } else {
            event.aux = names::bits(call.arg(1), names::FALLOCATE);
            (event.offset, event.requested) = (unsigned(call.arg(2)), unsigned(call.arg(3)));
            // Without KEEP_SIZE, and without COLLAPSE or INSERT, which shift what follows.
            if ok && event.aux & (0x01 | 0x08 | 0x20) == 0 {
                target.grow(event.offset.saturating_add(event.requested));
            }
        }
        self.emit(event);
    }
}

/// A number that cannot be negative; 0 if it is not readable.
fn unsigned(text: &str) -> u64 {
    names::integer(text).map_or(0, |value| value as u64)
}

/// The offset behind a pointer: `[4096]`, `[4096] => [8192]`; None for NULL.
pub(super) fn pointed(text: &str) -> Option<u64> {
    let inner = text.strip_prefix('[')?;
    names::integer(&inner[..inner.find(']')?]).map(|value| value as u64)
}

/// Bytes in all buffers of a vector that strace shows.
fn vector_length(text: &str) -> u64 {
    let lengths = text.split("iov_len=").skip(1);
    lengths
        .map(|rest| unsigned(&rest[..rest.find(['}', ',']).unwrap_or(rest.len())]))
        .fold(0, u64::saturating_add)
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
