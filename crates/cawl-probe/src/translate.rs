//! Events of records: those that the tracer under LD_PRELOAD makes of the same calls.

use std::collections::BTreeMap;

use cawl_wire::{Event, FileId, FileKind, Op, UNKNOWN_OFFSET, flag, lock, uncertain};
use libc::c_int;
use rustc_hash::FxHashMap;

use crate::figures::{describe, flags, gone, is_in_doubt, locked, own_place};
use crate::files::{self, Files, Named, Seen};
use crate::record::{Call, End, Given, Image, Life, Naming, Record};
use crate::syscalls::{self, Does, Request};

mod requests;
mod stores;

pub use requests::Requests;

/// `FMODE_CREATED`: the open made the file.
const CREATED: u32 = 1 << 20;

/// What a record means.
#[derive(Clone, Debug)]
pub enum Told {
    /// A call.
    Event(Event),
    /// A file, before the first call on it of this process.
    File(u32, Named),
    /// A process made another.
    Fork(Life),
    /// A process becomes another program.
    Exec(Image),
    /// A thread or process ended.
    Exit(Life),
    /// A process of a group was met.
    Found(Life),
}

/// What a descriptor leads to, and how.
#[derive(Clone, Copy)]
struct Descriptor {
    file: FileId,
    kind: FileKind,
    flags: u32,
}

impl Descriptor {
    fn of(event: &Event) -> Descriptor {
        Descriptor { file: event.file(), kind: event.kind, flags: event.flags & !flag::INHERITED }
    }
}

/// Makes events of records.
pub struct Translator {
    does: Vec<Option<Does>>,
    files: Files,
    /// Descriptors that are known, by process.
    descriptors: BTreeMap<u32, FxHashMap<i32, Descriptor>>,
    /// What was cached of a file when it was named to a process that has not read it yet.
    cached: FxHashMap<(u32, FileId), u64>,
    /// Names that the call was given which a thread is in: the first and the second.
    given: FxHashMap<u32, [Option<Given>; 2]>,
    /// Requests of libaio that are not complete, by process and control block.
    handed: FxHashMap<(u32, u64), Event>,
    /// Requests whose end was told before their begin: another thread was told of it before the call that
    /// handed them over returned.
    early: FxHashMap<(u32, u64), Call>,
    /// What requests took that are complete.
    pub requests: Requests,
    /// The latest stores through a mapping, of pages in a row, which are not told yet.
    stores: Option<Event>,
    /// The file of each process's latest stores.
    stored_to: FxHashMap<u32, FileId>,
}

impl Default for Translator {
    fn default() -> Translator {
        let mut does = Vec::new();
        for (number, _) in syscalls::rows() {
            let at = number as usize;
            does.resize(does.len().max(at + 1), None);
            does[at] = syscalls::does(number);
        }
        Translator {
            does,
            files: Files::default(),
            descriptors: BTreeMap::new(),
            cached: FxHashMap::default(),
            given: FxHashMap::default(),
            handed: FxHashMap::default(),
            early: FxHashMap::default(),
            requests: Requests::default(),
            stores: None,
            stored_to: FxHashMap::default(),
        }
    }
}

impl Translator {
    /// Tells what a record means.
    pub fn take(&mut self, record: Record, mut tell: impl FnMut(Told)) {
        if !matches!(&record, Record::Call(call) if syscalls::request(call.row) == Some(Request::Store)) {
            self.tell_stores(&mut tell);
        }
        match record {
            Record::Call(call) => self.call(&call, &mut tell),
            Record::Named(naming) => self.named(&naming, &mut tell),
            Record::Given(given) => {
                let (tid, which) = (given.tid, given.which.min(1) as usize);
                self.given.entry(tid).or_default()[which] = Some(given);
            }
            Record::Fork(life) => {
                let known = self.descriptors.get(&life.tgid).cloned().unwrap_or_default();
                self.descriptors.insert(life.other, known);
                self.files.fork(life.tgid, life.other);
                let mut event = Event::new(Op::Fork);
                (event.start, event.pid, event.tid) = (life.at, life.tgid, life.tid);
                event.returned = life.other.into();
                tell(Told::Event(event));
                tell(Told::Fork(life));
            }
            Record::Exec(image) => {
                let mut event = Event::new(Op::Exec);
                (event.start, event.pid, event.tid) = (image.at, image.tgid, image.tgid);
                tell(Told::Event(event));
                tell(Told::Exec(image));
            }
            Record::Exit(life) => {
                self.given.remove(&life.tid);
                if life.end != End::Thread {
                    self.finish(Some(life.tgid), &mut tell);
                    self.forget(life.tgid);
                }
                tell(Told::Exit(life));
            }
            Record::Found(life) => tell(Told::Found(life)),
        }
    }

    /// A process is met, or about to begin: what it has open may be closed before the kernel names it.
    pub fn meet(&mut self, pid: u32) {
        self.files.meet(pid);
    }

    /// A process ended, or is followed no longer.
    pub fn forget(&mut self, pid: u32) {
        self.descriptors.remove(&pid);
        self.files.forget(pid);
        self.stored_to.remove(&pid);
        self.cached.retain(|(process, _), _| *process != pid);
        self.early.retain(|(process, _), _| *process != pid);
    }

    fn named(&mut self, naming: &Naming, tell: &mut impl FnMut(Told)) {
        let named = self.files.name(naming);
        if FileKind::from_mode(named.mode) == FileKind::Regular {
            let cached = naming.cached.saturating_mul(files::page());
            self.cached.insert((naming.tgid, named.file), cached);
        }
        tell(Told::File(naming.tgid, named));
    }

    fn call(&mut self, call: &Call, tell: &mut impl FnMut(Told)) {
        let mut event = Event::new(Op::Write);
        (event.start, event.duration) = (call.start, call.end.saturating_sub(call.start));
        (event.pid, event.tid) = (call.tgid, call.tid);
        (event.returned, event.errno) = result(call);
        match syscalls::request(call.row) {
            None => {}
            Some(Request::HandedOver) => return self.handed_over(event, call, tell),
            Some(Request::Complete) => return self.complete(call, tell),
            Some(Request::Store) => return self.stored(event, call, tell),
            Some(Request::Uring) => return self.request(event, call, tell),
        }
        let Some(does) = self.does.get(call.number as usize).copied().flatten() else { return };
        let given = self.given.remove(&call.tid).unwrap_or_default();
        let by_name = matches!(
            does,
            Does::TruncateNamed | Does::Unlink(_) | Does::Rmdir | Does::Rename(_) | Does::Make(_)
        );
        if by_name {
            return self.by_name(event, call, does, given, tell);
        }
        let length = |at: usize| call.args[at.min(5)];
        match does {
            Does::Open(flags) => return self.opened(event, call, length(flags) as c_int, tell),
            Does::Create => return self.opened(event, call, libc::O_TRUNC, tell),
            Does::OpenBy => return self.opened(event, call, call.args[5] as c_int, tell),
            Does::CloseRange => return self.closed(&event, call, tell),
            _ => {}
        }
        let fd = call.args[(call.row as usize >> 4 & 15).min(5)] as i32;
        if call.file != 0 {
            self.about(&mut event, call, fd, tell);
        }
        let is_own = match does {
            Does::Own(..) => true,
            Does::Vectors(_, place, _) => place.is_none_or(|at| length(at) == u64::MAX),
            Does::Copy(.., pointer) => length(pointer) == 0,
            _ => false,
        };
        match does {
            Does::Own(op, size) => {
                (event.op, event.requested) = (op, length(size));
                event.offset = own_place(call, &event);
            }
            Does::At(op, size, place) => {
                (event.op, event.requested, event.offset) = (op, length(size), length(place));
            }
            Does::Vectors(op, place, flags) => {
                (event.op, event.requested) = (op, call.result.max(0) as u64);
                let at = place.map(length);
                event.offset = match at {
                    // pwritev2 at the place -1 is writev.
                    Some(at) if at != u64::MAX => at,
                    _ => own_place(call, &event),
                };
                let more = flags.map_or(0, |at| length(at) as c_int);
                event.flags |= if more & libc::RWF_SYNC != 0 { flag::SYNC } else { 0 };
                event.flags |= if more & libc::RWF_DSYNC != 0 { flag::DSYNC } else { 0 };
            }
            Does::Copy(op, size, pointer) => {
                (event.op, event.requested) = (op, length(size));
                event.offset = match length(pointer) {
                    0 => own_place(call, &event),
                    // The kernel has moved it on.
                    _ if call.result > 0 => call.args[5].wrapping_sub(call.result as u64),
                    _ => UNKNOWN_OFFSET,
                };
            }
            Does::Close => {
                event.op = Op::Close;
                event.aux = if event.has(flag::TMPFILE) { call.identity.links } else { 0 };
                self.descriptors.entry(call.tgid).or_default().remove(&fd);
                if call.file == 0 {
                    return;
                }
            }
            Does::Dup => return self.duplicated(event, call, false, false, tell),
            Does::DupTo(flags) => {
                let until_exec = flags.is_some_and(|at| is_set(length(at), libc::O_CLOEXEC));
                return self.duplicated(event, call, true, until_exec, tell);
            }
            Does::Control => {
                let command = call.args[1] as c_int;
                if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                    return self.duplicated(event, call, false, command == libc::F_DUPFD_CLOEXEC, tell);
                }
                locked(&mut event, call, command);
            }
            Does::Lock => {
                event.op = Op::Lock;
                let action = match call.args[1] as c_int & !libc::LOCK_NB {
                    libc::LOCK_SH => lock::SHARED,
                    libc::LOCK_EX => lock::EXCLUSIVE,
                    libc::LOCK_UN => lock::UNLOCK,
                    _ => 0,
                };
                (event.aux, event.offset) = (lock::DESCRIPTION | lock::FLOCK | action, 0);
            }
            // As the tracer does.
            Does::Seek if call.result < 0 || !event.has(flag::WRITABLE) => return,
            Does::Seek => {
                event.op = Op::Seek;
                event.offset = call.result as u64;
            }
            Does::Truncate => (event.op, event.offset) = (Op::Truncate, call.args[1]),
            Does::Allocate => {
                (event.op, event.aux) = (Op::Allocate, call.args[1] as u32);
                (event.offset, event.requested) = (call.args[2], call.args[3]);
            }
            Does::Sync(op) => event.op = op,
            Does::SyncRange => {
                (event.op, event.aux) = (Op::SyncRange, call.args[3] as u32);
                (event.offset, event.requested) = (call.args[1], call.args[2]);
            }
            Does::SyncMapping => {
                (event.op, event.requested) = (Op::Msync, call.args[1]);
                // It may be mapped no longer.
                let seen = self.mapped(call.tgid, call.args[0]).map(|seen| (seen.file, seen.kind()));
                let stored_to = self.stored_to.get(&call.tgid).map(|file| (*file, FileKind::Regular));
                if let Some((file, kind)) = seen.or(stored_to) {
                    event.set_file(file);
                    event.kind = kind;
                }
            }
            Does::Advise => {
                (event.op, event.aux) = (Op::Advise, call.args[3] as u32);
                (event.offset, event.requested) = (call.args[1], call.args[2]);
            }
            Does::ReadAhead => {
                (event.op, event.aux) = (Op::Advise, libc::POSIX_FADV_WILLNEED as u32);
                (event.offset, event.requested) = (call.args[1], call.args[2]);
            }
            Does::Clone => {
                (event.op, event.offset) = (Op::CopyRange, 0);
                event.requested = call.identity.size;
                event.returned = if call.result == 0 { call.identity.size as i64 } else { -1 };
                event.flags |= flag::ESTIMATED;
            }
            Does::Open(_)
            | Does::Create
            | Does::OpenBy
            | Does::CloseRange
            | Does::Requests
            | Does::TruncateNamed
            | Does::Unlink(_)
            | Does::Rmdir
            | Does::Rename(_)
            | Does::Make(_) => return,
        }
        self.cached_before(&event, call.identity.size, tell);
        tell(Told::Event(event));
        if is_own && is_in_doubt(call, &event) {
            let mut doubt = Event { op: Op::Uncertain, start: call.end, duration: 0, ..event };
            (doubt.returned, doubt.requested) = (1, event.returned as u64);
            (doubt.offset, doubt.aux) = (call.after, uncertain::ORDER);
            tell(Told::Event(doubt));
        }
    }

    /// Completes an event by the file of its descriptor.
    fn about(&mut self, event: &mut Event, call: &Call, fd: i32, tell: &mut impl FnMut(Told)) {
        if let Some(naming) = self.files.unnamed(call, fd) {
            self.named(&naming, tell);
        }
        event.fd = fd;
        event.set_file(self.files.met(&call.identity));
        event.kind = FileKind::from_mode(call.identity.mode.into());
        event.flags = flags(call.flags);
        let known = self.descriptors.entry(call.tgid).or_default();
        if known.insert(fd, Descriptor::of(event)).map(|before| before.file) != Some(event.file()) {
            event.flags |= flag::INHERITED;
        }
    }

    fn opened(&mut self, mut event: Event, call: &Call, asked: c_int, tell: &mut impl FnMut(Told)) {
        if call.result < 0 || call.file == 0 {
            return;
        }
        let fd = call.result as i32;
        let length = self.files.length(&call.identity);
        self.about(&mut event, call, fd, tell);
        // As the tracer does: no folder, and no device or pipe to read.
        let writes = event.has(flag::WRITABLE) || asked & libc::O_TRUNC != 0;
        if asked & libc::O_PATH != 0 || !writes && event.kind != FileKind::Regular {
            return;
        }
        event.flags &= !flag::INHERITED;
        event.op = Op::Open;
        event.requested = call.identity.size;
        let asked_for = |bit: c_int, flag: u32| if asked & bit != 0 { flag } else { 0 };
        event.flags |= asked_for(libc::O_TRUNC, flag::TRUNC) | asked_for(libc::O_CLOEXEC, flag::CLOEXEC);
        event.flags |= if call.mode & CREATED != 0 { flag::CREATED } else { 0 };
        let cuts = asked & (libc::O_TRUNC | libc::O_EXCL) == libc::O_TRUNC && !event.has(flag::CREATED);
        // Of a file that was not met before, or grew by others, the kernel tells what was allocated.
        let length = match length {
            None | Some(0) if call.after > 0 => Some(call.after),
            known => known,
        };
        event.offset = length.filter(|_| cuts).unwrap_or(UNKNOWN_OFFSET);
        tell(Told::Event(event));
    }

    fn duplicated(
        &mut self,
        mut event: Event,
        call: &Call,
        replaces: bool,
        until_exec: bool,
        tell: &mut impl FnMut(Told),
    ) {
        if call.result < 0 || call.file == 0 || call.result == i64::from(event.fd) {
            return;
        }
        let to = call.result as i32;
        let known = self.descriptors.entry(call.tgid).or_default();
        if let Some(Descriptor { file, kind, flags }) = known.insert(to, Descriptor::of(&event))
            && replaces
        {
            let mut closed = Event { op: Op::Close, fd: to, kind, flags, duration: 0, returned: 0, ..event };
            closed.set_file(file);
            tell(Told::Event(closed));
        }
        event.op = Op::Dup;
        event.flags |= if until_exec { flag::CLOEXEC } else { 0 };
        tell(Told::Event(event));
    }

    /// Descriptors of a range, those that are known: all were closed, or will be by exec.
    fn closed(&mut self, event: &Event, call: &Call, tell: &mut impl FnMut(Told)) {
        if call.result < 0 || is_set(call.args[2], libc::CLOSE_RANGE_CLOEXEC as c_int) {
            return;
        }
        let (first, last) = (call.args[0] as u32, call.args[1] as u32);
        let known = self.descriptors.entry(call.tgid).or_default();
        let mut closed: Vec<_> = known.extract_if(|fd, _| (first..=last).contains(&(*fd as u32))).collect();
        closed.sort_unstable_by_key(|(fd, _)| *fd);
        let mut duration = event.duration;
        for (fd, Descriptor { file, kind, flags }) in closed {
            let mut one = Event { op: Op::Close, fd, kind, flags, duration, ..*event };
            one.set_file(file);
            tell(Told::Event(one));
            // One call, which took its time once.
            duration = 0;
        }
    }

    /// A call that takes names.
    fn by_name(
        &mut self,
        mut event: Event,
        call: &Call,
        does: Does,
        [first, second]: [Option<Given>; 2],
        tell: &mut impl FnMut(Told),
    ) {
        let Some(first) = first else { return };
        let path = self.files.path(&first.folder, &first.name);
        let seen = self.files.at(&path);
        event.dev = files::device(first.folder.dev);
        // Of a name that was not met, and no calls went to, it is not known what it leads to.
        event.kind = if does == Does::TruncateNamed { FileKind::Regular } else { FileKind::Other };
        match does {
            Does::TruncateNamed => {
                (event.op, event.offset) = (Op::Truncate, call.args[1]);
                describe(&mut event, seen.as_ref());
            }
            Does::Unlink(by_flags) if !by_flags || !is_set(call.args[2], libc::AT_REMOVEDIR) => {
                event.op = Op::Unlink;
                let evicted = seen.is_none().then(|| Seen::evicted(&call.identity)).flatten();
                let named = evicted.map(|seen| seen.named(&path, false));
                named.into_iter().for_each(|named| tell(Told::File(call.tgid, named)));
                gone(&mut event, seen.or(evicted).as_ref());
                self.files.remove(&path);
            }
            Does::Unlink(_) | Does::Rmdir => {
                (event.op, event.kind) = (Op::Rmdir, FileKind::Directory);
                self.files.remove(&path);
            }
            Does::Rename(flags) => {
                let Some(second) = second else { return };
                let to = self.files.path(&second.folder, &second.name);
                if flags.is_some_and(|at| is_set(call.args[at], libc::RENAME_EXCHANGE as c_int)) {
                    let aside = b"\0".to_vec();
                    for (from, to) in [(&path, &aside), (&to, &path), (&aside, &to)] {
                        let named = self.files.rename(from, to).filter(|_| *to != aside);
                        named.into_iter().for_each(|named| tell(Told::File(call.tgid, named)));
                    }
                    return;
                }
                // A whiteout: nothing is replaced.
                if flags.is_some_and(|at| call.args[at] & !u64::from(libc::RENAME_NOREPLACE) != 0) {
                    return;
                }
                event.op = Op::Rename;
                let target = self.files.at(&to).or_else(|| Seen::evicted(&call.identity));
                match target.filter(|to| Some(to.file) != seen.map(|seen| seen.file)) {
                    Some(replaced) => gone(&mut event, Some(&replaced)),
                    None => describe(&mut event, seen.as_ref()),
                }
                if let Some(moved) = seen.filter(|seen| seen.kind() == FileKind::Regular) {
                    (event.offset, event.buffer) = (moved.file.ino, moved.file.birth);
                }
                self.files.remove(&to);
                if let Some(named) = self.files.rename(&path, &to) {
                    tell(Told::File(call.tgid, named));
                }
            }
            Does::Make(op) => {
                event.op = op;
                match op {
                    Op::Link => {
                        describe(&mut event, seen.as_ref());
                        event.aux += u32::from(seen.is_some());
                        let second = second.map(|second| self.files.path(&second.folder, &second.name));
                        self.files.link(&path, second);
                    }
                    Op::Mkdir => event.kind = FileKind::Directory,
                    _ => {}
                }
            }
            _ => return,
        }
        tell(Told::Event(event));
    }

    /// Before a process first reads from a file or writes over it: what of it was cached. The kernel tells
    /// how much, not where.
    fn cached_before(&mut self, event: &Event, size: u64, tell: &mut impl FnMut(Told)) {
        if event.kind != FileKind::Regular || !event.op.moves_bytes() {
            return;
        }
        let Some(cached) = self.cached.remove(&(event.pid, event.file())) else { return };
        let writes_over = matches!(event.op, Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev)
            && event.offset < size
            && event.flags & (flag::APPEND | flag::DIRECT) == 0;
        if !matches!(event.op, Op::Read | Op::Pread) && !writes_over || size == 0 {
            return;
        }
        let page = files::page();
        let range = size.div_ceil(64).next_multiple_of(page);
        let mut before = Event { op: Op::Resident, duration: 0, errno: 0, aux: 0, ..*event };
        (before.offset, before.returned) = (range, cached.min(size) as i64);
        before.requested = match cached.min(size).div_ceil(range) {
            0 => 0,
            _ if cached >= size => u64::MAX,
            ranges => {
                before.flags |= flag::ESTIMATED;
                u64::MAX >> (64 - ranges.min(64))
            }
        };
        tell(Told::Event(before));
    }
}

/// What a call returned, and its error.
fn result(call: &Call) -> (i64, u16) {
    let error = if call.result < 0 { call.result.unsigned_abs() as u16 } else { 0 };
    (call.result.max(-1), error)
}

fn is_set(argument: u64, bit: c_int) -> bool {
    argument as c_int & bit != 0
}
