//! Calls that move or settle data, and the event each becomes.
//!
//! The law: **one call, at most one event.** The event says what the call said, figures and result alike;
//! only positions, which strace does not print, come from the tables.

use cawl_core::{Bytes, FileFacts, Record};
use cawl_wire::{Event, FileKind, Op, flag};

use super::lex::{self, Call, Outcome};
use super::tables::File;
use super::{Closing, StraceImporter, StraceOptions, names};
use crate::SkipReason;

/// True for calls that this importer does something with.
pub(super) fn is_followed(name: &str) -> bool {
    matches!(
        name,
        "open"
            | "openat"
            | "openat2"
            | "creat"
            | "close"
            | "close_range"
            | "dup"
            | "dup2"
            | "dup3"
            | "fcntl"
            | "fcntl64"
            | "lseek"
            | "_llseek"
            | "write"
            | "pwrite64"
            | "pwrite"
            | "writev"
            | "pwritev"
            | "pwritev2"
            | "copy_file_range"
            | "sendfile"
            | "sendfile64"
            | "splice"
            | "truncate"
            | "truncate64"
            | "ftruncate"
            | "ftruncate64"
            | "fallocate"
            | "fsync"
            | "fdatasync"
            | "sync"
            | "syncfs"
            | "sync_file_range"
            | "sync_file_range2"
            | "msync"
            | "unlink"
            | "unlinkat"
            | "rename"
            | "renameat"
            | "renameat2"
            | "link"
            | "linkat"
            | "read"
            | "readv"
            | "pread64"
            | "pread"
            | "preadv"
            | "preadv2"
            | "execve"
            | "execveat"
            | "chdir"
            | "fchdir"
            | "pipe"
            | "pipe2"
            | "socket"
            | "socketpair"
            | "accept"
            | "accept4"
            | "eventfd2"
            | "memfd_create"
            | "epoll_create1"
            | "newfstatat"
            | "fstatat64"
            | "fstat"
            | "fstat64"
            | "stat"
            | "stat64"
            | "statx"
            | "mmap"
            | "mmap2"
            | "ioctl"
            | "io_submit"
            | "io_uring_enter"
            | "vmsplice"
            | "tee"
            | "process_vm_writev"
    ) || makes_child(name)
}

/// True for calls that make a thread or a process.
pub(super) fn makes_child(name: &str) -> bool {
    matches!(name, "clone" | "clone2" | "clone3" | "fork" | "vfork")
}

/// True if later events have to wait until this call is over, because it will be an event itself.
pub(super) fn must_wait(name: &str, text: &str, options: &StraceOptions) -> bool {
    match name {
        "read" | "readv" | "pread64" | "pread" | "preadv" | "preadv2" => options.reads,
        "open" | "openat" | "openat2" => {
            options.reads || text.contains("O_WRONLY") || text.contains("O_RDWR")
        }
        "fcntl" | "fcntl64" => text.contains("F_DUPFD"),
        "newfstatat" | "fstatat64" | "fstat" | "fstat64" | "stat" | "stat64" | "statx" | "mmap" | "mmap2"
        | "chdir" | "fchdir" | "pipe" | "pipe2" | "socket" | "socketpair" | "accept" | "accept4"
        | "eventfd2" | "memfd_create" | "epoll_create1" | "link" | "linkat" | "close_range" | "ioctl"
        | "io_submit" | "io_uring_enter" | "vmsplice" | "tee" | "process_vm_writev" => false,
        _ => true,
    }
}

/// The thread that makes a call, and when.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub pid: u32,
    pub tid: u32,
    pub table: u64,
    pub start: u64,
    pub duration: u64,
    /// ESTIMATED if the duration is not known.
    pub flags: u32,
}

/// A descriptor argument.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub fd: i32,
    pub description: Option<u64>,
}

impl StraceImporter {
    /// Takes over what a complete call did.
    pub(super) fn apply(
        &mut self,
        tid: u32,
        name: &str,
        start: u64,
        call: &Call<'_>,
        closing: Closing,
        out: &mut Vec<Record>,
    ) {
        let Some(caller) = self.caller(tid, start, call.duration) else { return };
        self.learn_directory(caller.pid, call);
        if makes_child(name) {
            return self.apply_child(caller, name, call, out);
        }
        if matches!(call.result, Outcome::None) {
            return self.skip(SkipReason::Endless);
        }
        let ok = matches!(call.result, Outcome::Value(..));
        match name {
            "write" | "writev" | "pwrite64" | "pwrite" | "pwritev" | "pwritev2" => {
                self.apply_write(caller, name, call, out);
            }
            "fsync" | "fdatasync" | "syncfs" | "sync" | "sync_file_range" | "sync_file_range2" | "msync" => {
                self.apply_sync(caller, name, call, out);
            }
            "copy_file_range" | "sendfile" | "sendfile64" | "splice" => {
                self.apply_copy(caller, name, call, out)
            }
            "truncate" | "truncate64" | "ftruncate" | "ftruncate64" | "fallocate" => {
                self.apply_resize(caller, name, call, out);
            }
            "close" => self.apply_close(caller, call, closing, out),
            "read" | "readv" | "pread64" | "pread" | "preadv" | "preadv2" if ok => {
                self.apply_read(caller, name, call, out);
            }
            "io_submit" | "io_uring_enter" | "vmsplice" | "tee" | "process_vm_writev" if ok => {
                self.skip(SkipReason::Unmodelled(name.to_owned()));
            }
            _ if !ok => self.skip(SkipReason::Failed),
            "open" | "openat" | "openat2" | "creat" => self.apply_open(caller, name, call, out),
            "dup" | "dup2" | "dup3" | "fcntl" | "fcntl64" => self.apply_dup(caller, name, call, out),
            "lseek" | "_llseek" => self.apply_seek(caller, name, call, out),
            "unlink" | "unlinkat" | "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
                self.apply_name(caller, name, call, out);
            }
            "execve" | "execveat" => self.apply_exec(caller, name, call, out),
            "close_range" => {
                let last = names::integer(call.arg(1)).unwrap_or(i64::MAX);
                let last = if last < 0 { i64::MAX } else { last };
                let mark_only = call.arg(2).contains("CLOSE_RANGE_CLOEXEC");
                let first = names::integer(call.arg(0)).unwrap_or(i64::MAX);
                self.tables.close_range(caller.table, first, last, mark_only);
                self.skip(SkipReason::ReadOnly);
            }
            _ => self.apply_other(caller, name, call),
        }
    }

    pub(super) fn caller(&self, tid: u32, start: u64, duration: Option<u64>) -> Option<Caller> {
        let pid = self.threads.get(&tid)?.pid;
        let table = self.processes.get(&pid)?.table;
        let flags = if duration.is_none() { flag::ESTIMATED } else { 0 };
        Some(Caller { pid, tid, table, start, duration: duration.unwrap_or(0), flags })
    }

    /// With -y, `AT_FDCWD</dir>` tells the working directory.
    fn learn_directory(&mut self, pid: u32, call: &Call<'_>) {
        let shown = call.args.iter().take(3).find(|arg| arg.starts_with("AT_FDCWD<"));
        let Some(path) = shown.and_then(|arg| lex::annotation(arg)) else { return };
        let path = lex::unescape(path);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.cwd != path) {
            process.cwd = path.into_owned();
        }
    }

    pub(super) fn target(&mut self, caller: Caller, argument: &str) -> Target {
        let Some((fd, _)) = lex::descriptor(argument) else { return Target { fd: -1, description: None } };
        if fd < 0 {
            return Target { fd, description: None };
        }
        Target { fd, description: self.tables.resolve(caller.table, fd, argument) }
    }

    /// An event about a descriptor, with all that is known before the call's own figures.
    pub(super) fn event(&mut self, op: Op, caller: Caller, target: Target) -> Event {
        let mut event = Event::new(op);
        (event.start, event.duration) = (caller.start, caller.duration);
        (event.pid, event.tid, event.fd) = (caller.pid, caller.tid, target.fd);
        event.flags = caller.flags;
        if let Some(description) = target.description.and_then(|id| self.tables.description(id)) {
            // The guess is about the position, which only some calls use.
            event.flags |= description.flags & !flag::ESTIMATED;
            let file = description.file;
            self.identify(&mut event, file);
        }
        event
    }

    /// Gives the event a file, which is told of before the event.
    pub(super) fn identify(&mut self, event: &mut Event, ino: u64) {
        let Some(file) = self.tables.file_mut(ino) else { return };
        (event.dev, event.ino, event.kind) = (self.options.dev, ino, file.kind);
        if !file.met {
            file.met = true;
            let facts = facts(self.options.dev, ino, file, false);
            self.queue.know(facts);
        }
    }

    /// The file at this path has come there; if it has been met, it gets its new name.
    pub(super) fn came(&mut self, path: &str, at: u64, out: &mut Vec<Record>) {
        let Some(ino) = self.tables.find(path) else { return };
        if let Some(file) = self.tables.file(ino).filter(|file| file.met) {
            let facts = facts(self.options.dev, ino, file, true);
            self.queue.push(at, Record::File(facts), out);
        }
    }

    pub(super) fn emit(&mut self, event: Event, out: &mut Vec<Record>) {
        self.announce(event.pid, out);
        self.queue.push(event.start, Record::Event(event), out);
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

    /// Lets `length` bytes pass at the description's own position; where the first one went.
    fn advance(&mut self, event: &mut Event, target: Target, length: u64, writes: bool) {
        if event.kind != FileKind::Regular && event.kind != FileKind::Block {
            return;
        }
        let Some(id) = target.description else { return };
        let Some(description) = self.tables.description(id).copied() else { return };
        let file = self.tables.file(description.file);
        let appends = writes && event.has(flag::APPEND);
        let (at, guessed) = match (appends, file) {
            (true, Some(file)) => (file.size, !file.size_known),
            _ => (description.position, description.flags & flag::ESTIMATED != 0),
        };
        event.offset = at;
        event.flags |= if guessed { flag::ESTIMATED } else { 0 };
        let end = at.saturating_add(length);
        if let Some(description) = self.tables.description_mut(id) {
            description.position = end;
        }
        if writes {
            self.grow(event.ino, end);
        }
    }

    fn grow(&mut self, ino: u64, end: u64) {
        if let Some(file) = self.tables.file_mut(ino) {
            file.size = file.size.max(end);
        }
    }

    pub(super) fn resize(&mut self, ino: u64, length: u64) {
        if let Some(file) = self.tables.file_mut(ino) {
            (file.size, file.size_known) = (length, true);
        }
    }

    fn apply_write(&mut self, caller: Caller, name: &str, call: &Call<'_>, out: &mut Vec<Record>) {
        let vector = name.contains('v');
        let placed = name.starts_with('p');
        let op = match (vector, placed) {
            (false, false) => Op::Write,
            (false, true) => Op::Pwrite,
            (true, false) => Op::Writev,
            (true, true) => Op::Pwritev,
        };
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(op, caller, target);
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
                    let file = self.tables.file(event.ino);
                    event.offset = file.map_or(place, |file| file.size);
                    event.flags |= if file.is_some_and(|file| file.size_known) { 0 } else { flag::ESTIMATED };
                }
                if length > 0 {
                    self.grow(event.ino, event.offset.saturating_add(length));
                }
            }
            _ => self.advance(&mut event, target, length, true),
        }
        self.emit(event, out);
    }

    fn apply_read(&mut self, caller: Caller, name: &str, call: &Call<'_>, out: &mut Vec<Record>) {
        let placed = name.starts_with('p');
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(if placed { Op::Pread } else { Op::Read }, caller, target);
        let length = Self::settle(&mut event, call.result).unwrap_or(0);
        if placed {
            event.offset = unsigned(call.arg(3));
        } else {
            self.advance(&mut event, target, length, false);
        }
        event.requested =
            if name.ends_with(['v', '2']) { vector_length(call.arg(1)) } else { unsigned(call.arg(2)) };
        if self.options.reads {
            self.emit(event, out);
        } else {
            self.skip(SkipReason::ReadOnly);
        }
    }

    fn apply_sync(&mut self, caller: Caller, name: &str, call: &Call<'_>, out: &mut Vec<Record>) {
        let op = match name {
            "fsync" => Op::Fsync,
            "fdatasync" => Op::Fdatasync,
            "syncfs" => Op::Syncfs,
            "sync" => Op::Sync,
            "msync" => Op::Msync,
            _ => Op::SyncRange,
        };
        let target = match op {
            Op::Sync | Op::Msync => Target { fd: -1, description: None },
            _ => self.target(caller, call.arg(0)),
        };
        let mut event = self.event(op, caller, target);
        Self::settle(&mut event, call.result);
        match name {
            "sync_file_range" => {
                (event.offset, event.requested) = (unsigned(call.arg(1)), unsigned(call.arg(2)));
                event.aux = names::bits(call.arg(3), names::SYNC_RANGE);
            }
            "sync_file_range2" => {
                (event.offset, event.requested) = (unsigned(call.arg(2)), unsigned(call.arg(3)));
                event.aux = names::bits(call.arg(1), names::SYNC_RANGE);
            }
            "msync" => event.requested = unsigned(call.arg(1)),
            _ => {}
        }
        self.emit(event, out);
    }

    fn apply_copy(&mut self, caller: Caller, name: &str, call: &Call<'_>, out: &mut Vec<Record>) {
        // Places of: source, its offset, destination, its offset, length.
        let (op, [from, from_at, to, to_at, length]) = match name {
            "copy_file_range" => (Op::CopyRange, [0, 1, 2, 3, 4]),
            "splice" => (Op::Splice, [0, 1, 2, 3, 4]),
            _ => (Op::Sendfile, [1, 2, 0, usize::MAX, 3]),
        };
        let source = self.target(caller, call.arg(from));
        let target = self.target(caller, call.arg(to));
        let mut event = self.event(op, caller, target);
        let moved = Self::settle(&mut event, call.result).unwrap_or(0);
        event.requested = unsigned(call.arg(length));
        match pointed(call.arg(to_at)) {
            Some(place) => {
                event.offset = place;
                if moved > 0 {
                    self.grow(event.ino, place.saturating_add(moved));
                }
            }
            None => self.advance(&mut event, target, moved, true),
        }
        if pointed(call.arg(from_at)).is_none()
            && let Some(description) = source.description.and_then(|id| self.tables.description_mut(id))
        {
            description.position = description.position.saturating_add(moved);
        }
        self.emit(event, out);
    }

    fn apply_resize(&mut self, caller: Caller, name: &str, call: &Call<'_>, out: &mut Vec<Record>) {
        let by_path = name.starts_with("trunc");
        let op = if name == "fallocate" { Op::Allocate } else { Op::Truncate };
        let mut event = if by_path {
            let Some(path) = self.path(caller, None, call.arg(0)) else {
                return self.skip(SkipReason::Unreadable);
            };
            let ino = self.tables.named(&path, FileKind::Regular);
            let mut event = self.event(op, caller, Target { fd: -1, description: None });
            self.identify(&mut event, ino);
            event
        } else {
            let target = self.target(caller, call.arg(0));
            self.event(op, caller, target)
        };
        let ok = Self::settle(&mut event, call.result).is_some();
        if op == Op::Truncate {
            event.offset = unsigned(call.arg(1));
            if ok {
                self.resize(event.ino, event.offset);
            }
        } else {
            event.aux = names::bits(call.arg(1), names::FALLOCATE);
            (event.offset, event.requested) = (unsigned(call.arg(2)), unsigned(call.arg(3)));
            // Without KEEP_SIZE, and without COLLAPSE or INSERT, which shift what follows.
            if ok && event.aux & (0x01 | 0x08 | 0x20) == 0 {
                self.grow(event.ino, event.offset.saturating_add(event.requested));
            }
        }
        self.emit(event, out);
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

/// `st_mode` of a file of which only the kind is known.
/// What is known of a file.
fn facts(dev: u64, ino: u64, file: &File, renamed: bool) -> FileFacts {
    FileFacts {
        dev,
        ino,
        // The number is the importer's own, and given once.
        birth: 0,
        renamed,
        size: Bytes(if file.size_known { file.size } else { 0 }),
        block: 4096,
        mode: mode_of(file.kind),
        path: file.path.clone(),
    }
}

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
