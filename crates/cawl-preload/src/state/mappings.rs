//! Shared mappings of files that the program can write to, at once or after mprotect, and how much of them is
//! dirty.
//!
//! The law of this module: **no descriptor is opened on the program's files.** Closing one would release
//! the program's record locks on that file. So the kernel is asked about the program's own descriptor
//! (cachestat), while it has one, and else about the mapping (smaps). Stores cannot be seen; what is found
//! is an estimate, and says so.

use crate::base::guard::count_unseen;
use crate::base::{clock, counters, page_cache, sys};
use crate::state::descriptors::{self, Descriptor};
use crate::transport::ring;
use cawl_wire::{Event, FileId, FileKind, flag};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

/// Mappings that can be followed; further ones are counted as unseen.
const SIZE: usize = 512;
/// Bytes of which it is asked in how many pieces they lie: of fewer it makes no difference.
const SCATTERED: u64 = 64 << 10;
/// Bytes of a look that is never left out. A look costs some 27 to 70 ns for each folio.
const SMALL: u64 = 4 << 20;
/// Larger looks that are never left out, and time for passes over all mappings of the process, in ns, so that
/// what a short program does is told. None in a fork child that has mappings of its parent.
const FREE: u32 = 16;
const FREE_TIME: u64 = 64_000_000;
/// Of the time, further ones take one part of so many, but for large looks before the end.
const TIME: u64 = 8;
/// What a pass may take in any case, in ns.
const CHEAP: u64 = 250_000;
/// Of a mapping of which that was left out, for [`Mapping::dirty`] and [`Mapping::told`].
const UNKNOWN: u64 = u64::MAX;
/// Being filled in.
const TAKEN: usize = 1;

/// One of them.
pub struct Mapping {
    /// First address; 0: free.
    start: AtomicUsize,
    length: AtomicUsize,
    /// Place in the file of the first byte.
    offset: AtomicU64,
    dev: AtomicU64,
    ino: AtomicU64,
    birth: AtomicU32,
    /// The descriptor it was made from.
    fd: AtomicI32,
    /// Dirty bytes of the file's range, as far as was looked at it.
    dirty: AtomicU64,
    /// Those of the part that the latest look was about.
    latest: AtomicU64,
    /// Dirty bytes of the mapping, as the latest pass over all of the process found.
    found: AtomicU64,
    /// Minor faults of the process at the latest look before a sync, or sync without one.
    faults: AtomicU64,
    /// What the latest look before a sync found: bytes for each fault since the one before, and bytes of each
    /// piece (0: in one at the begin).
    per_fault: AtomicU64,
    per_piece: AtomicU64,
    /// Bytes told about since the mapping was made, or synced.
    told: AtomicU64,
    /// Stores were ever possible. Until then, what becomes dirty in the file is the doing of write().
    writable: AtomicBool,
}

/// Stores found by a look.
pub struct News {
    /// Bytes that became dirty.
    pub bytes: u64,
    /// Place in the file of the range that has them.
    pub offset: u64,
    /// Length of the range that has them, in bytes.
    pub within: u64,
    /// In how many pieces; 0: in one at its begin, as far as is known.
    pub pieces: u32,
}

impl News {
    const fn at_begin(offset: u64, bytes: u64) -> News {
        News { bytes, offset, within: bytes, pieces: 0 }
    }

    const fn spread(offset: u64, within: u64, bytes: u64, pieces: u32) -> News {
        if pieces > 1 { News { bytes, offset, within, pieces } } else { News::at_begin(offset, bytes) }
    }
}

static TABLE: [Mapping; SIZE] = [const {
    Mapping {
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        offset: AtomicU64::new(0),
        dev: AtomicU64::new(0),
        ino: AtomicU64::new(0),
        birth: AtomicU32::new(0),
        fd: AtomicI32::new(0),
        dirty: AtomicU64::new(0),
        latest: AtomicU64::new(0),
        found: AtomicU64::new(0),
        faults: AtomicU64::new(0),
        per_fault: AtomicU64::new(0),
        per_piece: AtomicU64::new(0),
        told: AtomicU64::new(0),
        writable: AtomicBool::new(false),
    }
}; SIZE];
/// Entries in use.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Entries that were ever in use are all below this index.
static REACHED: AtomicUsize = AtomicUsize::new(0);

/// True if there is anything to look at.
#[inline(always)]
pub fn any() -> bool {
    USED.load(Relaxed) != 0
}

/// When the next large look may begin, for all mappings.
static DUE: AtomicU64 = AtomicU64::new(0);
/// Large looks so far, and what is left of [`FREE_TIME`].
static LOOKS: AtomicU32 = AtomicU32::new(0);
static FREE_LEFT: AtomicU64 = AtomicU64::new(FREE_TIME);
/// When the latest pass over /proc/self/smaps, which is for all mappings, was over, and how long it took, in
/// ns.
static PASSED: AtomicU64 = AtomicU64::new(0);
static TOOK: AtomicU64 = AtomicU64::new(0);
/// When the first mapping was followed.
static BEGAN: AtomicU64 = AtomicU64::new(0);
/// What a line that counts took of the latest pass, in ns: three for each mapping, of some 4 µs.
static LINE: AtomicU64 = AtomicU64::new(1500);
const MIN: u64 = 100;
/// Whether there was one since [`begin_look`].
static PASS: AtomicU8 = AtomicU8::new(NONE);
const NONE: u8 = 0;
const DONE: u8 = 1;
const LEFT_OUT: u8 = 2;

/// A look at one mapping or several begins.
pub fn begin_look() {
    PASS.store(NONE, Relaxed);
}

fn may_look(length: u64) -> bool {
    length <= SMALL || LOOKS.load(Relaxed) < FREE || clock::now() >= DUE.load(Relaxed)
}

/// Finds what is dirty of all mappings, unless that takes too much of the time; None then.
#[inline(never)]
fn pass() -> Option<()> {
    let (began, took) = (clock::now(), TOOK.load(Relaxed));
    let since = began.saturating_sub(PASSED.load(Relaxed).max(BEGAN.load(Relaxed)));
    let least = FREE_LEFT.load(Relaxed).max(CHEAP);
    let room = since / TIME;
    let may = took <= least || room >= took;
    let lines = (room.max(least) / LINE.load(Relaxed)).max(1);
    let (passed, left) = if may { found_within(lines) } else { (None, 0) };
    if may {
        let now = clock::now();
        let took = now.saturating_sub(began);
        PASSED.store(now, Relaxed);
        FREE_LEFT.store(FREE_LEFT.load(Relaxed).saturating_sub(took), Relaxed);
        LINE.store((took / (lines - left).max(1)).max(MIN), Relaxed);
        // One that was cut off would have taken longer.
        TOOK.store(if passed.is_some() { took } else { 2 * took }, Relaxed);
    }
    PASS.store(if passed.is_some() { DONE } else { LEFT_OUT }, Relaxed);
    passed
}

/// Finds what is dirty of all mappings; None if that takes more than so many lines, and how many are left.
fn found_within(mut lines: u64) -> (Option<()>, u64) {
    entries().for_each(|mapping| mapping.found.store(0, Relaxed));
    let passed = sys::each_dirty(|start, bytes| {
        if bytes > 0
            && let Some(mapping) = within(start, 1).next()
        {
            mapping.found.fetch_add(bytes, Relaxed);
        }
        lines = lines.checked_sub(1)?;
        Some(())
    });
    (passed, lines)
}

fn entries() -> impl Iterator<Item = &'static Mapping> {
    TABLE.iter().take(REACHED.load(Acquire))
}

/// An entry of the table that is to be filled in.
fn free_entry() -> Option<&'static Mapping> {
    let free = |mapping: &Mapping| mapping.start.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok();
    let index = TABLE.iter().position(free)?;
    REACHED.fetch_max(index + 1, AcqRel);
    USED.fetch_add(1, Relaxed);
    _ = BEGAN.compare_exchange(0, clock::now(), Relaxed, Relaxed);
    let entry = &TABLE[index];
    // Of the one before.
    for figure in [&entry.latest, &entry.found, &entry.per_fault, &entry.per_piece, &entry.told] {
        figure.store(0, Relaxed);
    }
    Some(entry)
}

/// A shared mapping of a descriptor was made; `writable`, or read-only for the time being.
#[cold]
pub fn made(start: usize, length: usize, fd: c_int, file: &Descriptor, offset: u64, writable: bool) {
    // What was not opened for writing can never be mapped so.
    if file.kind() != FileKind::Regular || !file.is_writable() {
        return;
    }
    let Some(mapping) = free_entry() else { return count_unseen() };
    mapping.length.store(length, Relaxed);
    mapping.offset.store(offset, Relaxed);
    let identity = file.identity();
    mapping.dev.store(identity.dev, Relaxed);
    mapping.ino.store(identity.ino, Relaxed);
    mapping.birth.store(identity.birth, Relaxed);
    mapping.fd.store(fd, Relaxed);
    let whole = (0, length as u64);
    let dirty = if may_look(whole.1) { mapping.dirty_bytes(fd, whole).unwrap_or(0) } else { UNKNOWN };
    mapping.dirty.store(dirty, Relaxed);
    mapping.faults.store(counters::minor_faults(), Relaxed);
    mapping.writable.store(writable, Relaxed);
    mapping.start.store(start, Release);
    ring::tell_mapped(writable.into());
}

/// A range of addresses became writable.
#[cold]
pub fn writable(start: usize, length: usize) {
    begin_look();
    for mapping in within(start, length) {
        if !mapping.writable.load(Relaxed) {
            // What is dirty so far came by write().
            mapping.forget_news();
            mapping.writable.store(true, Relaxed);
            ring::tell_mapped(1);
        }
    }
}

impl Mapping {
    /// Address and length, if it is one.
    fn range(&self) -> Option<(usize, usize)> {
        let start = self.start.load(Acquire);
        (start > TAKEN).then(|| (start, self.length.load(Relaxed)))
    }

    fn overlaps(&self, start: usize, length: usize) -> bool {
        self.range().is_some_and(|(own, size)| own < start.saturating_add(length) && start < own + size)
    }

    fn release(&self) {
        ring::tell_mapped(-i64::from(self.writable.load(Relaxed)));
        self.start.store(0, Release);
        USED.fetch_sub(1, Relaxed);
    }

    /// The part of it that lies in a range of addresses: how far from its begin, and length.
    fn part(&self, start: usize, length: usize) -> Option<(u64, u64)> {
        let (own, size) = self.range()?;
        let from = start.max(own);
        let to = start.saturating_add(length).min(own + size);
        (from < to).then(|| ((from - own) as u64, (to - from) as u64))
    }

    /// A descriptor of the file to ask about, if the program has one.
    #[inline(never)]
    fn asked(&self) -> Option<c_int> {
        descriptors::descriptor_of(self.fd.load(Relaxed), self.dev.load(Relaxed), self.ino.load(Relaxed))
    }

    /// Dirty bytes of a part of the file's range, as a descriptor of it tells.
    fn dirty_bytes(&self, fd: c_int, (from, length): (u64, u64)) -> Option<u64> {
        let began = if length > SMALL { clock::now() } else { 0 };
        let dirty = page_cache::dirty(fd, self.offset.load(Relaxed) + from, length);
        if began > 0 {
            let now = clock::now();
            DUE.store(now + (TIME - 1) * now.saturating_sub(began), Relaxed);
            LOOKS.fetch_add(1, Relaxed);
        }
        dirty
    }

    /// What is dirty of all of it by now is not news.
    fn forget_news(&self) {
        let all = (0, self.length.load(Relaxed) as u64);
        let asked = self.asked();
        let dirty = match asked {
            Some(fd) if may_look(all.1) => self.dirty_bytes(fd, all).unwrap_or(0),
            Some(_) => UNKNOWN,
            None => 0,
        };
        self.dirty.store(dirty, Relaxed);
        let told = if asked.is_some() { 0 } else { self.of_mapping().unwrap_or(UNKNOWN) };
        self.told.store(told, Relaxed);
    }

    /// What became dirty of a part of the file's range since the latest look.
    #[inline(never)]
    fn news_of_file(&self, fd: c_int, part: (u64, u64)) -> Option<News> {
        let dirty = self.dirty_bytes(fd, part)?;
        let (known, length) = (self.dirty.load(Relaxed), part.1);
        if known == UNKNOWN {
            self.dirty.store(dirty, Relaxed);
            self.latest.store(dirty, Relaxed);
            return Some(News::at_begin(0, 0));
        }
        // What was dirty before lies in the rest, as far as it has place there.
        let rest = (self.length.load(Relaxed) as u64).saturating_sub(length);
        let before = known.saturating_sub(rest).min(dirty);
        self.dirty.store((known - before).min(rest) + dirty, Relaxed);
        self.latest.store(dirty, Relaxed);
        let (bytes, offset) = (dirty - before, self.offset.load(Relaxed) + part.0);
        let pieces = if bytes >= SCATTERED { page_cache::pieces(fd, offset, length, dirty) } else { 0 };
        // What was dirty before lies among the rest.
        let pieces = (u64::from(pieces) * bytes / dirty.max(1)) as u32;
        Some(News::spread(offset, length, bytes, pieces))
    }

    /// Dirty bytes by the mapping; None if that is left out.
    fn of_mapping(&self) -> Option<u64> {
        match PASS.load(Relaxed) {
            DONE => {}
            NONE => pass()?,
            _ => return None,
        }
        Some(self.found.load(Relaxed))
    }

    /// Bytes that became dirty since those told, by the mapping.
    fn news_of_mapping(&self) -> Option<u64> {
        let dirty = self.of_mapping()?;
        if self.told.load(Relaxed) == UNKNOWN {
            self.told.store(dirty, Relaxed);
        }
        Some(dirty.saturating_sub(self.told.load(Relaxed)))
    }

    /// What became dirty of the part in a range of addresses since the latest look, to be told now; None if
    /// there is nothing.
    #[inline(never)]
    pub fn take_news(&self, start: usize, length: usize) -> Option<News> {
        if !self.writable.load(Relaxed) {
            return None;
        }
        let part = self.part(start, length)?;
        let asked = self.asked();
        let news = match asked.and_then(|fd| self.news_of_file(fd, part)) {
            Some(news) => news,
            None => News::at_begin(self.offset.load(Relaxed) + part.0, self.news_of_mapping()?),
        };
        self.count_told(news.bytes);
        (news.bytes > 0).then_some(news)
    }

    fn count_told(&self, bytes: u64) {
        if self.told.load(Relaxed) != UNKNOWN {
            self.told.fetch_add(bytes, Relaxed);
        }
    }

    /// True if there may be a look at a range of addresses now: large ones are left out while those before
    /// took much of the time.
    pub fn may_look(&self, length: usize) -> bool {
        may_look(length.min(self.length.load(Relaxed)) as u64)
    }

    /// There was such a look before a sync, which found this.
    #[inline(never)]
    pub fn looked(&self, length: usize, news: Option<&News>) {
        if length.min(self.length.load(Relaxed)) as u64 > SMALL {
            let faults = self.take_faults();
            if let Some(news) = news {
                self.per_fault.store(news.bytes / faults.max(1), Relaxed);
                self.per_piece.store(news.bytes.checked_div(news.pieces.into()).unwrap_or(0), Relaxed);
            }
        }
    }

    /// Minor faults of the process since the latest such question: each first store to a clean page is one.
    fn take_faults(&self) -> u64 {
        let faults = counters::minor_faults();
        faults.saturating_sub(self.faults.swap(faults, Relaxed))
    }

    /// What a look at a range of addresses that was left out would have found, by the process's faults and
    /// what each brought at the latest look.
    #[inline(never)]
    pub fn expected_news(&self, start: usize, length: usize) -> Option<News> {
        let (from, length) = self.part(start, length)?;
        let bytes = self.take_faults().saturating_mul(self.per_fault.load(Relaxed)).min(length);
        let offset = self.offset.load(Relaxed) + from;
        let pieces = bytes.checked_div(self.per_piece.load(Relaxed)).unwrap_or(0) as u32;
        self.count_told(bytes);
        (bytes > 0).then(|| News::spread(offset, length, bytes, pieces))
    }

    /// The part that the latest look was about is clean by now, or gone.
    fn leave_out(&self) {
        let (known, gone) = (self.dirty.load(Relaxed), self.latest.swap(0, Relaxed));
        if known != UNKNOWN {
            self.dirty.store(known.saturating_sub(gone), Relaxed);
        }
    }

    /// A part of it was synced, after a look at this part.
    fn synced(&self, length: u64) {
        self.leave_out();
        let (told, all) = (self.told.load(Relaxed), self.length.load(Relaxed) as u64);
        if told != UNKNOWN {
            self.told.store(told - told.saturating_mul(length.min(all)) / all.max(1), Relaxed);
        }
    }

    /// What remains of it behind a hole: a mapping of its own, of which so many bytes of both were known to
    /// be dirty.
    #[cold]
    fn made_of_rest(&self, start: usize, length: usize, from: u64, known: u64) {
        let Some(rest) = free_entry() else { return count_unseen() };
        rest.length.store(length, Relaxed);
        rest.offset.store(self.offset.load(Relaxed) + from, Relaxed);
        let front = self.length.load(Relaxed) as u64;
        let behind = if known == UNKNOWN { UNKNOWN } else { known.saturating_sub(front) };
        self.dirty.store(known - if known == UNKNOWN { 0 } else { behind }, Relaxed);
        rest.dirty.store(behind, Relaxed);
        let same = [
            (&rest.dev, &self.dev),
            (&rest.ino, &self.ino),
            (&rest.told, &self.told),
            (&rest.faults, &self.faults),
        ];
        for (to, of) in same {
            to.store(of.load(Relaxed), Relaxed);
        }
        rest.birth.store(self.birth.load(Relaxed), Relaxed);
        rest.fd.store(self.fd.load(Relaxed), Relaxed);
        rest.writable.store(self.writable.load(Relaxed), Relaxed);
        rest.start.store(start, Release);
        ring::tell_mapped(self.writable.load(Relaxed).into());
    }

    /// Says in an event which file and place it is about.
    pub fn describe(&self, event: &mut Event) {
        event.fd = self.fd.load(Relaxed);
        let (dev, ino) = (self.dev.load(Relaxed), self.ino.load(Relaxed));
        event.set_file(FileId { dev, ino, birth: self.birth.load(Relaxed) });
        event.offset = self.offset.load(Relaxed);
        event.kind = FileKind::Regular;
        event.flags |= flag::ESTIMATED | flag::WRITABLE;
    }
}

/// The mappings of a range of addresses.
pub fn within(start: usize, length: usize) -> impl Iterator<Item = &'static Mapping> {
    entries().filter(move |mapping| mapping.overlaps(start, length))
}

pub fn of_file(dev: u64, ino: u64) -> impl Iterator<Item = &'static Mapping> {
    entries().filter(move |mapping| {
        mapping.range().is_some() && mapping.ino.load(Relaxed) == ino && mapping.dev.load(Relaxed) == dev
    })
}

pub fn all() -> impl Iterator<Item = &'static Mapping> {
    within(TAKEN, usize::MAX)
}

/// After an msync, or one that only asks for that; the event is about this file.
#[cold]
pub fn synced(start: usize, length: usize, is_clean: bool, event: &mut Event) {
    for mapping in within(start, length) {
        let Some((from, length)) = mapping.part(start, length) else { continue };
        if is_clean {
            mapping.synced(length);
        }
        mapping.describe(event);
        event.flags &= !flag::ESTIMATED;
        event.offset += from;
    }
}

/// After an fsync of a file, before which it was looked at.
#[cold]
pub fn file_synced(dev: u64, ino: u64) {
    of_file(dev, ino).for_each(|mapping| mapping.synced(u64::MAX));
}

/// A range of addresses is no longer mapped.
#[cold]
pub fn gone(start: usize, length: usize) {
    let end = start.saturating_add(length);
    for mapping in entries() {
        let Some((own, size)) = mapping.range() else { continue };
        if own >= end || own + size <= start {
            continue;
        }
        if start <= own && own + size <= end {
            mapping.release();
            continue;
        }
        mapping.leave_out();
        if start > own {
            let known = mapping.dirty.load(Relaxed);
            mapping.length.store(start - own, Relaxed);
            if end < own + size {
                mapping.made_of_rest(end, own + size - end, (end - own) as u64, known);
            }
        } else {
            let cut = end - own;
            mapping.offset.fetch_add(cut as u64, Relaxed);
            mapping.length.store(size - cut, Relaxed);
            mapping.start.store(end, Release);
        }
    }
}

/// A mapping was moved or resized.
#[cold]
pub fn moved(from: usize, to: usize, length: usize) {
    for mapping in entries() {
        if mapping.range().is_some_and(|(start, _)| start == from) {
            mapping.length.store(length, Relaxed);
            mapping.start.store(to, Release);
            return;
        }
    }
}

/// True in a child of a fork until it executes a program.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// True if a look before the end may take any time.
pub fn is_last_look_free() -> bool {
    !IS_CHILD.load(Relaxed)
}

/// In a fork child: what is dirty now is the parent's doing.
#[cold]
pub fn begin_session() {
    IS_CHILD.store(true, Relaxed);
    PASSED.store(clock::now(), Relaxed);
    if any() {
        LOOKS.store(FREE, Relaxed);
        FREE_LEFT.store(0, Relaxed);
    }
    begin_look();
    entries().filter(|mapping| mapping.range().is_some()).for_each(Mapping::forget_news);
}
