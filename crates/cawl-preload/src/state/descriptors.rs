//! What the tracer knows about each descriptor, and where in the file a write went.
//!
//! The law of this module: **correct beats fast.** An offset is only counted along while nothing else can
//! move it: the description was opened here, to write only and not to append, or by open(2) to read only; was
//! never duplicated, and no process was started since. In every other case the kernel is asked after the
//! call. A description whose duplicate was closed again (dd puts its output at descriptor 1 so) is alone
//! again: one more question, and it is counted along. Entries are indexed by descriptor, never folded; all
//! fields are atomics, so a race in the program stays one of wrong figures. What goes past every hook is
//! noticed by `look`.

mod look;
mod position;

pub use look::{Doubt, replaced};
pub use position::moved_unseen;

use crate::base::hot::HOT;
use crate::base::{settings, sys};
use crate::state::birth;
use crate::state::names::{self, Source};
use crate::transport::slot::{self, Slot};
use cawl_wire::{FileId, FileKind, Op, UNKNOWN_OFFSET, flag};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};

const PER_PAGE: usize = 1024;
const PAGES: usize = 1024;

/// Nothing is known.
const UNKNOWN: u8 = 0;
/// Opened in this session, not looked at yet.
const OPENED: u8 = 1;
/// Everything is known.
const KNOWN: u8 = 2;
/// Everything is known, but there was no room yet for telling the daemon which file it is.
const UNTOLD: u8 = 3;

/// Reads through it are recorded, and what of its file was cached has been asked.
const RECORDED: u8 = 1;
/// Reads through it are left out: it leads to no file.
const LEFT_OUT: u8 = 2;

/// The description has no other descriptor.
const ALONE: i32 = 0;
/// It has, or had, more than one other.
const CROWDED: i32 = -1;
/// It had one other, which was closed.
const LEFT_ALONE: i32 = -2;

/// A descriptor. All zero bytes are an unknown one.
#[repr(C, align(128))]
pub struct Descriptor {
    ino: AtomicU64,
    /// Device: Linux has 32 bits for it.
    dev: AtomicU32,
    /// Tells apart the files that had this inode number in turn ([`FileId::birth`]); 0: not known.
    birth: AtomicU32,
    /// The next write's place, while `epoch` is the present one; unknown, where positions mean nothing.
    offset: AtomicU64,
    /// The sharing epoch in which the description was opened, 0 if its offset cannot be counted along.
    epoch: AtomicU64,
    /// No other descriptor ever had this number, nor this one with other figures; 0 while it is not known.
    number: AtomicU64,
    /// Bytes that calls moved since it was last looked at.
    bytes: AtomicU64,
    /// Bits of [`flag`].
    flags: AtomicU32,
    /// `session` if the state is [`KNOWN`], else 0: what every call compares.
    ready: AtomicU32,
    /// Calls until it is looked at again.
    left: AtomicI32,
    state: AtomicU8,
    /// A [`FileKind`].
    kind: AtomicU8,
    /// True if positions mean something for it, so that a write moves the offset.
    moves: AtomicBool,
    /// [`RECORDED`], [`LEFT_OUT`], or 0 while that is not known.
    reads: AtomicU8,
    rest: Rest,
}

/// What few calls need.
#[repr(C)]
struct Rest {
    /// The session in which the file was last told about.
    session: AtomicU32,
    /// What `epoch` was before there was another descriptor.
    was: AtomicU32,
    /// The other descriptor of the description, plus one; or one of the three constants.
    twin: AtomicI32,
    looks: look::Looks,
}

/// What every call needs of a descriptor is one line of the cache.
const _: [(); 64] = [(); core::mem::offset_of!(Descriptor, rest)];

/// In a descriptor's number: its file's time stamps were read since the previous write, so that the next one
/// does not go on from that.
const STAMPS_READ: u64 = 1 << 55;

/// The next number to be given to a descriptor.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// The first page, which most programs never leave.
static FIRST: [Descriptor; PER_PAGE] = [const {
    Descriptor {
        ino: AtomicU64::new(0),
        dev: AtomicU32::new(0),
        birth: AtomicU32::new(0),
        offset: AtomicU64::new(0),
        epoch: AtomicU64::new(0),
        number: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        flags: AtomicU32::new(0),
        ready: AtomicU32::new(0),
        left: AtomicI32::new(0),
        state: AtomicU8::new(UNKNOWN),
        kind: AtomicU8::new(0),
        moves: AtomicBool::new(false),
        reads: AtomicU8::new(0),
        rest: Rest {
            session: AtomicU32::new(0),
            was: AtomicU32::new(0),
            twin: AtomicI32::new(ALONE),
            looks: look::Looks::NONE,
        },
    }
}; PER_PAGE];

static TABLE: [AtomicPtr<[Descriptor; PER_PAGE]>; PAGES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; PAGES];

/// The highest descriptor that anything was ever known of.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// In a fork child: files must be told about again.
pub fn begin_session() {
    HOT.session.fetch_add(1, Relaxed);
}

#[inline(always)]
fn entry(fd: c_int) -> Option<&'static Descriptor> {
    let index = fd as u32 as usize;
    if index < PER_PAGE {
        return Some(&FIRST[index]);
    }
    further_entry(index)
}

#[cold]
#[inline(never)]
fn further_entry(index: usize) -> Option<&'static Descriptor> {
    let page = TABLE.get(index / PER_PAGE)?.load(Acquire);
    // SAFETY: null, or a zeroed mapping of a page of entries (a valid state), published once and never
    // unmapped.
    Some(unsafe { &page.as_ref()?[index % PER_PAGE] })
}

#[cold]
fn make_entry(fd: c_int) -> Option<&'static Descriptor> {
    let index = usize::try_from(fd).ok()?;
    if fd > HIGHEST.load(Relaxed) {
        HIGHEST.fetch_max(fd, Relaxed);
    }
    let place = TABLE.get(index / PER_PAGE)?;
    if index >= PER_PAGE && place.load(Acquire).is_null() {
        let length = size_of::<[Descriptor; PER_PAGE]>();
        let page = sys::map(length);
        if page.is_null() {
            return None;
        }
        if place.compare_exchange(core::ptr::null_mut(), page.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: another thread was first; this mapping was never published.
            unsafe { sys::unmap(page, length) };
        }
    }
    entry(fd)
}

/// What is known about a descriptor in this session.
#[inline(always)]
pub fn known(fd: c_int) -> Option<&'static Descriptor> {
    entry(fd).filter(|descriptor| descriptor.ready.load(Acquire) == HOT.session.load(Relaxed))
}

/// What is known about a descriptor, if the operation goes on as the last event of a slot did.
#[inline(always)]
pub fn continued(slot: &Slot, fd: c_int, op: Op) -> Option<&'static Descriptor> {
    entry(fd).filter(|descriptor| slot.goes_on(slot::key(descriptor.number.load(Relaxed), op)))
}

/// Whether reads through a descriptor are recorded, if that is known.
#[inline(always)]
pub fn records_reads(fd: c_int) -> Option<bool> {
    let file = entry(fd)?;
    match file.reads.load(Relaxed) {
        RECORDED if file.ready.load(Acquire) == HOT.session.load(Relaxed) => Some(true),
        LEFT_OUT => Some(false),
        _ => None,
    }
}

/// Notes whether reads through a descriptor are recorded.
pub fn note_reads(fd: c_int, recorded: bool) {
    if let Some(file) = make_entry(fd) {
        file.reads.store(if recorded { RECORDED } else { LEFT_OUT }, Relaxed);
    }
}

/// Forgets whether reads through a descriptor are recorded, before one is closed that is otherwise unknown.
pub fn forget_reads(fd: c_int) {
    if let Some(file) = entry(fd)
        && file.reads.load(Relaxed) != 0
    {
        file.reads.store(0, Relaxed);
    }
}

/// What is known about a descriptor, told to the daemon or not.
pub fn if_known(fd: c_int) -> Option<&'static Descriptor> {
    entry(fd).filter(|file| file.state.load(Acquire) >= KNOWN)
}

/// A descriptor of this file: `fd`, if it still is one, else any other that is known.
pub fn descriptor_of(fd: c_int, dev: u64, ino: u64) -> Option<c_int> {
    let leads = |fd: c_int| {
        if_known(fd).is_some_and(|file| file.has(dev, ino))
            && sys::fstat(fd).is_some_and(|stat| stat.st_ino == ino && stat.st_dev == dev)
    };
    if leads(fd) {
        return Some(fd);
    }
    (0..PER_PAGE as c_int).find(|fd| leads(*fd))
}

/// True if a descriptor that was opened or used in this session, other than `but`, may lead to this file.
pub fn may_be_open(dev: u64, ino: u64, but: c_int) -> bool {
    (0..=HIGHEST.load(Relaxed)).filter(|fd| *fd != but).any(|fd| {
        let Some(file) = entry(fd) else { return false };
        match file.state.load(Acquire) {
            UNKNOWN => false,
            OPENED => sys::fstat(fd).is_some_and(|stat| stat.st_ino == ino && stat.st_dev == dev),
            _ => file.has(dev, ino),
        }
    })
}

/// Nothing is known about this descriptor any more. To be called before the descriptor is closed: after
/// it, another thread may have been given the number.
pub fn forget(fd: c_int) {
    if let Some(file) = entry(fd)
        && file.state.load(Relaxed) != UNKNOWN
    {
        file.enter(UNKNOWN);
        if let other @ 1.. = file.rest.twin.swap(ALONE, Relaxed) {
            leave_alone(fd, other - 1);
        }
    } else {
        forget_reads(fd);
    }
}

/// One of two descriptors of a description goes: `fd`.
#[cold]
fn leave_alone(fd: c_int, other: c_int) {
    if let Some(other) = entry(other) {
        let _ = other.rest.twin.compare_exchange(fd + 1, LEFT_ALONE, Relaxed, Relaxed);
    }
}

/// Descriptors of a range, ends included, that the daemon knows of.
pub fn known_in(first: u32, last: u32) -> impl Iterator<Item = (c_int, &'static Descriptor)> {
    let session = HOT.session.load(Relaxed);
    let last = i64::from(last).min(HIGHEST.load(Relaxed).into());
    let known =
        move |fd| Some((fd, if_known(fd)?)).filter(|(_, file)| file.rest.session.load(Relaxed) == session);
    (i64::from(first)..=last).filter_map(move |fd| known(fd as c_int))
}

/// Nothing is known about a range of descriptors any more, ends included.
pub fn forget_range(first: u32, last: u32) {
    let last = last.min((PAGES * PER_PAGE) as u32 - 1);
    let mut fd = first;
    while fd <= last {
        if entry(fd as c_int).is_none() {
            fd = (fd / PER_PAGE as u32 + 1) * PER_PAGE as u32;
            continue;
        }
        forget(fd as c_int);
        fd += 1;
    }
}

/// A descriptor was just opened by this process. None if there is no room for what is known of it.
pub fn opened(fd: c_int) -> Option<()> {
    let file = make_entry(fd)?;
    file.epoch.store(HOT.epoch.load(Relaxed), Relaxed);
    file.rest.session.store(HOT.session.load(Relaxed), Relaxed);
    file.rest.twin.store(ALONE, Relaxed);
    file.enter(OPENED);
    look::count_opened();
    Some(())
}

/// By which call this process has just opened a descriptor.
pub struct Opening {
    /// Its flags, as far as they are known.
    pub flags: Option<c_int>,
    /// The directory in which a relative name begins, and the name; null if there is none.
    pub directory: c_int,
    /// A string: the call has succeeded.
    pub name: *const c_char,
    /// If it leads to no file, nothing is told of it.
    pub files_only: bool,
    /// When the call began, by the clock of times of birth, if it may make a file.
    pub since: Option<(i64, u32)>,
}

impl Opening {
    /// By a function that does not say how.
    pub const UNKNOWN: Opening = Opening {
        flags: None,
        directory: libc::AT_FDCWD,
        name: core::ptr::null(),
        files_only: false,
        since: None,
    };

    /// The file, if its path follows from the name.
    fn file(&self, stat: &sys::Stat) -> Option<FileId> {
        // SAFETY: the kernel has read the string and opened what it names.
        let name = unsafe { self.name.as_ref().map(|name| CStr::from_ptr(name)) }?.to_bytes();
        let is_relative = name.first() != Some(&b'/');
        if is_relative && self.directory != libc::AT_FDCWD || !names::is_plain(name) {
            return None;
        }
        birth::of_name(self.directory, self.name, stat)
    }
}

/// Which file it is, and where its path is found.
#[inline(never)]
fn identify(fd: c_int, stat: &sys::Stat, opening: Option<&Opening>) -> (FileId, Source) {
    match opening.and_then(|opening| Some((opening.file(stat)?, opening))) {
        Some((file, opening)) => (file, Source::Named(opening.directory, opening.name)),
        None => (birth::of(fd, stat), Source::Descriptor(fd)),
    }
}

/// What was found of a file when a descriptor was looked at: its size in bytes, and in the highest bit that
/// it was born in the opening. A word, because it is handed up where the stack is used most.
pub struct Found(u64);

impl Found {
    const BORN: u64 = 1 << 63;

    /// The file's size, in bytes.
    pub fn size(&self) -> u64 {
        self.0 & !Found::BORN
    }

    /// It was born no earlier than [`Opening::since`].
    pub fn born_since(&self) -> bool {
        self.0 & Found::BORN != 0
    }
}

/// Finds out what a descriptor leads to, and tells the daemon.
#[inline(never)]
pub fn look_at(fd: c_int, opening: Option<&Opening>) -> Option<(&'static Descriptor, Found)> {
    let stat = sys::fstat(fd)?;
    let born = opening.and_then(|opening| opening.since).is_some_and(|since| stat.born >= since);
    let found = Found(stat.st_size as u64 & !Found::BORN | if born { Found::BORN } else { 0 });
    let is_file = FileKind::from_mode(stat.st_mode) == FileKind::Regular;
    if !is_file && opening.is_some_and(|opening| opening.files_only) {
        return None;
    }
    let (identity, source) = identify(fd, &stat, opening);
    let file = make_entry(fd)?;
    let fresh = file.rest.session.load(Relaxed) == HOT.session.load(Relaxed);
    let state = file.state.load(Acquire);
    if state == UNTOLD && fresh && file.identity() == identity {
        if names::tell(identity, &stat, source) {
            file.enter(KNOWN);
        }
        return Some((file, found));
    }
    file.describe(fd, identity, &stat, opening, state, fresh);
    let told = names::tell(identity, &stat, source);
    file.enter(if told { KNOWN } else { UNTOLD });
    Some((file, found))
}

/// What the flags of an open-file description mean for an event.
pub fn event_flags(open_flags: c_int) -> u32 {
    let mut flags = 0;
    for (bits, meaning) in [
        (libc::O_APPEND, flag::APPEND),
        (libc::O_DIRECT, flag::DIRECT),
        (libc::O_TRUNC, flag::TRUNC),
        (libc::O_TMPFILE, flag::TMPFILE),
        (libc::O_DSYNC, flag::DSYNC),
        (libc::O_SYNC, flag::SYNC),
    ] {
        if open_flags & bits == bits {
            flags |= meaning;
        }
    }
    if open_flags & libc::O_ACCMODE != libc::O_RDONLY {
        flags |= flag::WRITABLE;
    }
    flags
}

/// True if every call that moves a descriptor of this opening by what it reads or writes is seen. The C
/// library makes a stream's reads itself.
fn moves_seen(opening: Option<&Opening>, open_flags: c_int) -> bool {
    match open_flags & (libc::O_ACCMODE | libc::O_APPEND) {
        libc::O_WRONLY => true,
        libc::O_RDONLY => settings::reads() && opening.is_some_and(|opening| opening.flags.is_some()),
        _ => false,
    }
}

/// A descriptor was duplicated: both lead to one description, and whichever moves it moves both.
pub fn duplicated(from: c_int, to: c_int) {
    let source = entry(from).filter(|file| file.state.load(Acquire) != UNKNOWN);
    let Some(source) = source else {
        forget(to);
        return;
    };
    let counted = source.epoch.swap(0, Relaxed);
    let first = source.rest.twin.load(Relaxed) == ALONE;
    let Some(copy) = make_entry(to) else {
        source.rest.twin.store(CROWDED, Relaxed);
        return;
    };
    source.rest.was.store(counted as u32, Relaxed);
    copy.rest.was.store(counted as u32, Relaxed);
    source.rest.twin.store(if first { to + 1 } else { CROWDED }, Relaxed);
    copy.rest.twin.store(if first { from + 1 } else { CROWDED }, Relaxed);
    copy.identify(source.identity());
    copy.flags.store(source.flags.load(Relaxed), Relaxed);
    copy.kind.store(source.kind.load(Relaxed), Relaxed);
    copy.moves.store(source.moves.load(Relaxed), Relaxed);
    copy.offset.store(UNKNOWN_OFFSET, Relaxed);
    copy.rest.session.store(source.rest.session.load(Relaxed), Relaxed);
    copy.epoch.store(0, Relaxed);
    copy.begin_looks();
    copy.enter(source.state.load(Relaxed));
    copy.reads.store(source.reads.load(Relaxed), Relaxed);
}

/// Something may move a descriptor that is not seen: a stream made of it, or a copy from it.
pub fn moves_unseen(fd: c_int) {
    if let Some(file) = entry(fd) {
        file.epoch.store(0, Relaxed);
        file.rest.twin.store(CROWDED, Relaxed);
    }
}

/// fcntl(F_SETFL) may have changed appending, direct or synchronous writing.
pub fn flags_changed(fd: c_int) {
    let Some(file) = if_known(fd) else { return };
    let kept = file.flags.load(Relaxed) & (flag::INHERITED | flag::TMPFILE | flag::TRUNC);
    let now = event_flags(sys::fcntl(fd, libc::F_GETFL, 0).max(0) as c_int);
    file.flags.store(now | kept, Relaxed);
    file.number.store(NUMBERS.fetch_add(1, Relaxed), Relaxed);
    file.epoch.store(0, Relaxed);
    file.rest.twin.store(CROWDED, Relaxed);
}

/// The program has read the time stamps of what a descriptor leads to: the next write gets an event of its
/// own that says so.
pub fn stamps_read(fd: c_int) {
    let Some(file) = known(fd) else { return };
    if file.is_writable() && file.kind() == FileKind::Regular {
        file.number.fetch_or(STAMPS_READ, Relaxed);
    }
}

impl Descriptor {
    /// Notes what there is to know of a descriptor. Not part of `learn`, which telling it leaves little of
    /// the stack.
    #[inline(never)]
    fn describe(
        &self,
        fd: c_int,
        file: FileId,
        stat: &sys::Stat,
        opening: Option<&Opening>,
        state: u8,
        fresh: bool,
    ) {
        // F_GETFL does not tell the flags that only mattered at the opening.
        let open_flags = match opening.and_then(|opening| opening.flags) {
            Some(flags) => flags & !libc::O_TRUNC,
            None => sys::fcntl(fd, libc::F_GETFL, 0).max(0) as c_int,
        };
        let kind = FileKind::from_mode(stat.st_mode);
        let mut flags = event_flags(open_flags);
        if stat.st_nlink == 0 && kind == FileKind::Regular {
            flags |= flag::TMPFILE;
        }
        if state == UNKNOWN || !fresh || self.flags.load(Relaxed) & flag::INHERITED != 0 && state >= KNOWN {
            flags |= flag::INHERITED;
        }
        // Elsewhere the call that led here has already moved the position.
        let alone = opening.is_some()
            && state == OPENED
            && fresh
            && kind == FileKind::Regular
            && moves_seen(opening, open_flags);
        self.identify(file);
        self.flags.store(flags, Relaxed);
        self.kind.store(kind as u8, Relaxed);
        self.moves.store(matches!(kind, FileKind::Regular | FileKind::Block), Relaxed);
        self.rest.session.store(HOT.session.load(Relaxed), Relaxed);
        if alone {
            self.offset.store(0, Relaxed);
        } else {
            self.epoch.store(0, Relaxed);
            self.offset.store(UNKNOWN_OFFSET, Relaxed);
        }
        self.begin_looks();
    }

    /// Which file it leads to.
    #[inline(always)]
    pub fn identity(&self) -> FileId {
        let (dev, birth) = (self.dev.load(Relaxed), self.birth.load(Relaxed));
        FileId { dev: dev.into(), ino: self.ino.load(Relaxed), birth }
    }

    fn identify(&self, file: FileId) {
        self.ino.store(file.ino, Relaxed);
        self.dev.store(file.dev as u32, Relaxed);
        self.birth.store(file.birth, Relaxed);
    }

    /// It leads to a file with this number, of which there is one while the descriptor is open.
    fn has(&self, dev: u64, ino: u64) -> bool {
        self.ino.load(Relaxed) == ino && u64::from(self.dev.load(Relaxed)) == dev
    }

    fn enter(&self, state: u8) {
        if state != KNOWN {
            self.ready.store(0, Release);
            self.number.store(0, Relaxed);
        }
        if matches!(state, UNKNOWN | OPENED) {
            self.reads.store(0, Relaxed);
        }
        self.state.store(state, Release);
        if state == KNOWN {
            self.number.store(NUMBERS.fetch_add(1, Relaxed), Relaxed);
            self.ready.store(self.rest.session.load(Relaxed), Release);
        }
    }

    /// Bits of [`flag`].
    #[inline(always)]
    pub fn flags(&self) -> u32 {
        self.flags.load(Relaxed)
    }

    /// True if it can be written through.
    #[inline(always)]
    pub fn is_writable(&self) -> bool {
        self.flags() & flag::WRITABLE != 0
    }

    /// Whether the time stamps were read since the previous write, as a bit of [`flag`].
    pub fn take_stamps_read(&self) -> u32 {
        if self.number.load(Relaxed) & STAMPS_READ == 0 {
            return 0;
        }
        self.number.fetch_and(!STAMPS_READ, Relaxed);
        flag::STAMPS_READ
    }

    /// What kind of object it is.
    #[inline(always)]
    pub fn kind(&self) -> FileKind {
        FileKind::from_code(self.kind.load(Relaxed)).unwrap_or_default()
    }

    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.number.load(Relaxed) & !STAMPS_READ
    }
}
