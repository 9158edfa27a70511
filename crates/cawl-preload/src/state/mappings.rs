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
use cawl_wire::{Event, FileId, FileKind, flag};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize};

/// Mappings that can be followed; further ones are counted as unseen.
const SIZE: usize = 512;
/// Bytes of which it is asked in how many pieces they lie: of fewer it makes no difference.
const SCATTERED: u64 = 64 << 10;
/// Bytes of a look that is never left out. A look costs some 27 ns for each folio.
const SMALL: u64 = 4 << 20;
/// Of the time, larger looks before syncs take one part of so many.
const TIME: u64 = 8;
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
    /// A large look before a sync may begin at this time again; while one is made, when it began.
    due: AtomicU64,
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
        due: AtomicU64::new(0),
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

fn entries() -> impl Iterator<Item = &'static Mapping> {
    TABLE.iter().take(REACHED.load(Acquire))
}

/// A shared mapping of a descriptor was made; `writable`, or read-only for the time being.
#[cold]
pub fn made(start: usize, length: usize, fd: c_int, file: &Descriptor, offset: u64, writable: bool) {
    // What was not opened for writing can never be mapped so.
    if file.kind() != FileKind::Regular || !file.is_writable() {
        return;
    }
    let free = TABLE
        .iter()
        .enumerate()
        .find(|(_, mapping)| mapping.start.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok());
    let Some((index, mapping)) = free else {
        count_unseen();
        return;
    };
    REACHED.fetch_max(index + 1, AcqRel);
    USED.fetch_add(1, Relaxed);
    mapping.length.store(length, Relaxed);
    mapping.offset.store(offset, Relaxed);
    let identity = file.identity();
    mapping.dev.store(identity.dev, Relaxed);
    mapping.ino.store(identity.ino, Relaxed);
    mapping.birth.store(identity.birth, Relaxed);
    mapping.fd.store(fd, Relaxed);
    mapping.dirty.store(page_cache::dirty(fd, offset, length as u64).unwrap_or(0), Relaxed);
    mapping.told.store(0, Relaxed);
    mapping.due.store(0, Relaxed);
    mapping.faults.store(counters::minor_faults(), Relaxed);
    mapping.per_fault.store(0, Relaxed);
    mapping.writable.store(writable, Relaxed);
    mapping.start.store(start, Release);
}

/// A range of addresses became writable.
#[cold]
pub fn writable(start: usize, length: usize) {
    for mapping in within(start, length) {
        if !mapping.writable.load(Relaxed) {
            // What is dirty so far came by write().
            mapping.forget_news();
            mapping.writable.store(true, Relaxed);
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
    fn look(&self, fd: c_int, (from, length): (u64, u64)) -> Option<u64> {
        page_cache::dirty(fd, self.offset.load(Relaxed) + from, length)
    }

    /// What is dirty of all of it by now is not news.
    fn forget_news(&self) {
        let all = (0, self.length.load(Relaxed) as u64);
        let dirty = self.asked().and_then(|fd| self.look(fd, all));
        self.dirty.store(dirty.unwrap_or(0), Relaxed);
    }

    /// What became dirty of a part of the file's range since the latest look.
    #[inline(never)]
    fn news_of_file(&self, fd: c_int, part: (u64, u64)) -> Option<News> {
        let dirty = self.look(fd, part)?;
        let (known, length) = (self.dirty.load(Relaxed), part.1);
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

    /// Bytes that became dirty since those told, by the mapping.
    fn news_of_mapping(&self) -> Option<u64> {
        let (start, length) = self.range()?;
        let dirty = sys::dirty_by_smaps(start, length)?;
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
        self.told.fetch_add(news.bytes, Relaxed);
        (news.bytes > 0).then_some(news)
    }

    /// True if there may be a look at a range of addresses before it is synced, which begins now then: large ones
    /// are left out while those before took much of the time.
    pub fn may_look(&self, length: usize) -> bool {
        if !self.is_large(length) {
            return true;
        }
        let now = clock::now();
        let may = now >= self.due.load(Relaxed);
        if may {
            self.due.store(now, Relaxed);
        }
        may
    }

    fn is_large(&self, length: usize) -> bool {
        length.min(self.length.load(Relaxed)) as u64 > SMALL
    }

    /// There was such a look, which found this.
    #[inline(never)]
    pub fn looked(&self, length: usize, news: Option<&News>) {
        if self.is_large(length) {
            let faults = self.take_faults();
            if let Some(news) = news {
                self.per_fault.store(news.bytes / faults.max(1), Relaxed);
                self.per_piece.store(news.bytes.checked_div(news.pieces.into()).unwrap_or(0), Relaxed);
            }
            let (began, now) = (self.due.load(Relaxed), clock::now());
            self.due.store(now + (TIME - 1) * now.saturating_sub(began), Relaxed);
        }
    }

    /// Minor faults of the process since the latest such question: each first store to a clean page is one.
    fn take_faults(&self) -> u64 {
        let faults = counters::minor_faults();
        faults.saturating_sub(self.faults.swap(faults, Relaxed))
    }

    /// What a look at a range of addresses that was left out would have found, by the process's faults and what
    /// each brought at the latest look.
    #[inline(never)]
    pub fn expected_news(&self, start: usize, length: usize) -> Option<News> {
        let (from, length) = self.part(start, length)?;
        let bytes = self.take_faults().saturating_mul(self.per_fault.load(Relaxed)).min(length);
        let offset = self.offset.load(Relaxed) + from;
        let pieces = bytes.checked_div(self.per_piece.load(Relaxed)).unwrap_or(0) as u32;
        self.told.fetch_add(bytes, Relaxed);
        (bytes > 0).then(|| News::spread(offset, length, bytes, pieces))
    }

    /// A part of it was synced, after a look at this part.
    fn synced(&self, length: u64) {
        let clean = self.latest.swap(0, Relaxed);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(clean), Relaxed);
        let (told, all) = (self.told.load(Relaxed), self.length.load(Relaxed) as u64);
        self.told.store(told - told.saturating_mul(length.min(all)) / all.max(1), Relaxed);
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

/// The mappings of a file.
pub fn of_file(dev: u64, ino: u64) -> impl Iterator<Item = &'static Mapping> {
    entries().filter(move |mapping| {
        mapping.range().is_some() && mapping.ino.load(Relaxed) == ino && mapping.dev.load(Relaxed) == dev
    })
}

/// Every mapping there is.
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
        } else if start > own {
            // The front remains; what may remain behind a hole is left out.
            mapping.length.store(start - own, Relaxed);
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

/// In a fork child: what is dirty now is the parent's doing.
#[cold]
pub fn begin_session() {
    entries().filter(|mapping| mapping.range().is_some()).for_each(Mapping::forget_news);
}
