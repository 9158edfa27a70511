//! The page cache as far as writing is concerned: for each file which pages are dirty and which are
//! cached and clean.
//!
//! Invariant: a page is dirty or clean or not remembered, never two of these. Dirty pages are always
//! remembered; clean ones up to [`CLEAN_BLOCKS`] blocks over all files, those of the file longest untouched
//! are forgotten first. Memory is therefore bounded by what is dirty or was recently written.

mod eviction;
mod files;
mod generations;
mod holes;
mod lazy;
mod lists;
mod reading;
mod recency;
mod requests;
mod shelves;

use std::collections::BTreeSet;
use std::sync::Arc;

use cawl_wire::FileId;
use rustc_hash::FxHashMap;

use super::folios::Folios;
use super::pages::PageSet;
use super::units::{Pages, Seconds};
use eviction::Eviction;
pub use eviction::Room;
use files::Files;
use holes::Holes;
use lazy::{Lazy, MET};
pub use reading::Source;
use requests::Requests;

/// Blocks of 2 MiB with clean pages that are remembered over all files.
pub const CLEAN_BLOCKS: usize = 1 << 18;
/// Blocks kept when there are more: to find the oldest takes a look at all files.
const KEPT_BLOCKS: usize = CLEAN_BLOCKS / 16 * 15;
/// Pages in the longest request to a device: 1280 KiB (`BLK_DEF_MAX_SECTORS_CAP`).
pub const REQUEST: u64 = 320;
/// Files without dirty pages that are remembered.
pub const CLEAN_FILES: usize = 1 << 14;

/// A map with a hash that is the same in every process; never iterated where order would matter.
pub type Map<K, V> = FxHashMap<K, V>;

/// A file's place in the cache.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Counts how often it left the flusher's lists; entries of an older generation are void.
    pub generation: u32,
    /// It is on one of the flusher's lists.
    pub listed: bool,
    /// When its oldest dirty data was dirtied, in seconds (`dirtied_when`).
    pub dirtied_when: Seconds,
    /// Where the flusher goes on (`writeback_index`), in pages.
    pub cursor: u64,
    /// Its latest write: the first page, and the one behind.
    pub latest: (u64, u64),
    /// Index of its device.
    pub device: usize,
    /// Dirty pages that were not written: they count as dirty because another page of their folio is. Few
    /// files have any.
    padding: Option<Box<PageSet>>,
    /// Where the folio begins that was last dirtied as a whole for some of its pages, in pages.
    padded_last: Option<u64>,
    pub dirty: PageSet,
    /// Cached pages that are clean.
    pub clean: PageSet,
    /// In which pieces its pages were allocated.
    pub folios: Folios,
    /// Length in bytes as far as known.
    pub size: u64,
    /// The device's count of submitted pages when this file's last page was submitted.
    pub submitted: u64,
    /// Tick of the kernel's clock at which its time stamps last changed, counted from 1; 0 for none.
    pub stamped: u64,
    /// Transaction of the journal in which its inode changed last, if only a time stamp; 0 for none.
    pub changed: u64,
    /// Transaction in which its size or its blocks changed last, which fdatasync cares for; 0 for none.
    pub grown: u64,
    /// Pages that a write has gone over since they were allocated, as far as is known.
    pub over: Pages,
    /// Bytes from its begin that fallocate has given blocks.
    pub reserved: u64,
    /// Its dirty pages will take new blocks, or make it longer on the device.
    pub growing: bool,
    /// It was cut off to nothing, and not closed since (`EXT4_STATE_DA_ALLOC_CLOSE`).
    pub cut: bool,
    /// What of it was cached before the first call is known.
    pub told: bool,
    /// It was written past the cache, and its server does not know the new time yet.
    pub untimed: bool,
    /// Pages before its end of which nothing is on the device.
    holes: Holes,
    /// Cached pages at which more is read ahead (`PG_readahead`).
    marks: BTreeSet<u64>,
    /// When it was last touched, as a count of touches.
    touched: u64,
}

/// What a write finds in the cache, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Pages that were not dirty and are now, those that share a folio with a page written among them.
    pub dirtied: u64,
    /// Of those, pages that had to be allocated.
    pub fresh: u64,
    /// Of those, pages written that were cached and clean.
    pub cached: u64,
    /// Of those, pages that only share a folio with one that was written, if it is not the folio of which
    /// that was last so: what the kernel goes through of that one is in the processor's cache.
    pub padding: u64,
    /// Folios that were cached and clean.
    pub clean: u64,
}

/// What was taken from a file to be written back, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Pages that do not count as dirty any longer.
    pub pages: u64,
    /// Of those, pages that were not written: the device is not given them.
    pub padding: u64,
    /// Room that they take in a device's queue. A queue holds requests: one for each run of pages takes as
    /// much room as the longest there are.
    pub queued: u64,
    /// Runs of them that do not begin where the one before ended.
    pub jumps: u64,
}

/// What it takes to hand dirty pages to a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Requests: runs of pages that do not begin where the one before ended.
    pub requests: u64,
    /// Folios that they lie in.
    pub folios: u64,
}

/// Which file is which. Copies share it until a file is met for the first time, or forgotten.
#[derive(Clone, Debug, Default)]
struct Names {
    index: Map<FileId, u32>,
    keys: Vec<FileId>,
    free: Vec<u32>,
}

/// All files.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    names: Arc<Names>,
    files: Files,
    touches: u64,
    clean_blocks: usize,
    /// Number of files at which those long untouched are next looked for.
    sweep_at: usize,
    last: Option<(FileId, u32)>,
    /// In a copy to look ahead with.
    lazy: Option<Box<Lazy>>,
    /// What is reclaimed when memory is short; None where that is not known.
    eviction: Option<Box<Eviction>>,
}

impl Cache {
    /// No page of this file is dirty.
    pub fn is_clean(&self, at: u32) -> bool {
        self.is_cleaned_lazily(at)
            || self.files.brief(at as usize).pages == 0 && self.files.at(at as usize).dirty.pages() == 0
    }

    /// An entry of this generation on a list of the flusher's stands for this file.
    pub fn is_listed(&self, at: u32, generation: u32) -> bool {
        let brief = self.files.brief(at as usize);
        brief.listed && brief.generation == generation && !self.is_cleaned_lazily(at)
    }

    /// When this file's oldest dirty data was dirtied, in seconds.
    pub fn dirtied_when(&self, at: u32) -> Seconds {
        self.files.at(at as usize).dirtied_when
    }

    /// This file was cut off to nothing, and not closed since.
    pub fn is_cut(&self, at: u32) -> bool {
        self.files.at(at as usize).cut
    }

    /// Index of this file's device.
    pub fn device(&self, at: u32) -> usize {
        self.files.at(at as usize).device
    }

    /// Pages of this file were handed over in this transaction, after which the device has been given
    /// `submitted` in all. True if that took new blocks.
    pub fn submitted(&mut self, at: u32, submitted: u64, transaction: u64) -> bool {
        if let Some(lazy) = &mut self.lazy
            && lazy.has(at)
        {
            // Cleaned a moment ago.
            if let Some(last) = lazy.cleaned.last_mut() {
                last.1 = (submitted, transaction);
            }
            return self.files.at(at as usize).growing;
        }
        let file = self.files.at_mut(at as usize);
        file.submitted = submitted;
        if !file.growing {
            return false;
        }
        (file.changed, file.grown) = (transaction, transaction);
        file.growing = file.dirty.pages() > 0;
        true
    }

    /// A clean file is on no list.
    pub fn leave_lists(&mut self, at: u32) {
        // One that is cleaned lazily has left them.
        if !self.is_cleaned_lazily(at) && self.files.at(at as usize).dirty.pages() == 0 {
            self.files.at_mut(at as usize).leave_lists();
        }
    }

    /// The file with this identity; `device` is told for files met for the first time.
    pub fn open(&mut self, key: FileId, device: usize) -> u32 {
        self.touches += 1;
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => {
                let known = self.names.index.get(&key).copied().or_else(|| self.met(key));
                let at = known.unwrap_or_else(|| self.add(key, device));
                self.last = Some((key, at));
                at
            }
        };
        let touches = self.touches;
        self.file_mut(at).touched = touches;
        at
    }

    fn add(&mut self, key: FileId, device: usize) -> u32 {
        let met = self.lazy.as_ref().map_or(0, |lazy| lazy.met.len());
        if self.names.index.len() + met >= self.sweep_at.max(2 * CLEAN_FILES) {
            self.name_met();
            self.sweep();
            // Dirty files stay: however many there are, a sweep is paid for by as many files added.
            self.sweep_at = 2 * self.names.index.len();
        }
        if let Some(lazy) = &mut self.lazy
            && lazy.met.len() < MET
        {
            self.files.push();
            let at = (self.files.length - 1) as u32;
            lazy.met.push((key, at));
            let first = File { device, generation: 1, ..File::default() };
            *self.files.at_mut(at as usize) = first;
            return at;
        }
        self.name_met();
        let names = Arc::make_mut(&mut self.names);
        let at = match names.free.pop() {
            Some(at) => at,
            None => {
                self.files.push();
                names.keys.push(key);
                (self.files.length - 1) as u32
            }
        };
        names.keys[at as usize] = key;
        names.index.insert(key, at);
        let generation = self.files.at(at as usize).generation.wrapping_add(1);
        *self.file_mut(at) = File { device, generation, ..File::default() };
        at
    }

    /// Forgets files that are clean and long untouched.
    fn sweep(&mut self) {
        self.settle_all();
        let old = self.touches.saturating_sub(CLEAN_FILES as u64);
        let names = Arc::make_mut(&mut self.names);
        for at in 0..self.files.length as u32 {
            let file = self.files.at(at as usize);
            let key = names.keys[at as usize];
            if file.dirty.pages() == 0 && file.touched < old && names.index.get(&key) == Some(&at) {
                let file = self.files.at_mut(at as usize);
                self.clean_blocks -= file.clean.blocks();
                file.clean.clear();
                file.folios.clear();
                file.listed = false;
                names.index.remove(&key);
                names.free.push(at);
            }
        }
        if let Some(eviction) = &mut self.eviction {
            let (keys, index) = (&names.keys, &names.index);
            eviction.forget(|at| index.get(&keys[at as usize]) != Some(&at));
        }
        self.last = None;
    }

    /// The file at this index.
    pub fn file(&mut self, at: u32) -> &File {
        self.settle(at);
        self.files.at(at as usize)
    }

    /// The file at this index, to change.
    #[inline]
    pub fn file_mut(&mut self, at: u32) -> &mut File {
        self.settle(at);
        self.files.at_mut(at as usize)
    }

    /// Makes the pages from `start` up to `end` dirty; what is allocated comes in folios of `folio` pages at
    /// most.
    pub fn dirty(&mut self, at: u32, start: u64, end: u64, folio: u64) -> Found {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let mut dirtied = file.dirty.insert(start, end);
        file.growing |= file.holes.fill(start, end);
        let (mut cached, mut padded, mut padding, mut clean) = (0, 0, 0, 0);
        file.unpad(start, end);
        if dirtied > 0 && file.clean.pages() > 0 {
            let before = file.clean.blocks();
            cached = file.clean.remove(start, end);
            clean = cached;
            if cached > 0 && !file.folios.are_single() {
                let (first, last) = (file.folios.around(start), file.folios.around(end - 1));
                padded = file.pad(first.0, start) + file.pad(end, last.1);
                let near = file.padded_last.replace(last.0);
                padding = if near == Some(first.0) && first == last { 0 } else { padded };
                clean = (cached + padded).div_ceil(first.1 - first.0);
            }
            self.clean_blocks = self.clean_blocks + file.clean.blocks() - before;
        }
        let fresh = dirtied - cached;
        if fresh > 0 {
            file.folios.allocated(start, end, folio);
            if let Some(eviction) = &mut self.eviction {
                eviction.insert(at, file.device, (start, end), fresh, false);
            }
        }
        dirtied += padded;
        Found { dirtied, fresh, cached, padding, clean }
    }

    /// What it takes to hand over a file's dirty pages from `first` up to `end`.
    pub fn pieces(&mut self, at: u32, first: u64, end: u64) -> Pieces {
        let file = self.file(at);
        let mut pieces = Pieces::default();
        let mut last = None;
        let mut request = |start, end| {
            if start < end {
                pieces.requests += u64::from(last != Some(start));
                last = Some(end);
            }
        };
        for (start, end) in file.dirty.runs_between(first, end) {
            pieces.folios += file.folios.of_run(start, end);
            let mut written = start;
            for padding in file.padding.iter().flat_map(|padding| padding.runs_between(start, end)) {
                request(written, padding.0);
                written = padding.1;
            }
            request(written, end);
        }
        pieces
    }

    /// Cleans up to `most` dirty pages of a file from its cursor on, until the requests that they make fill
    /// `room` pages of a device's queue.
    pub fn clean(&mut self, at: u32, most: u64, room: u64) -> Cleaned {
        if let Some(cleaned) = self.clean_by_brief(at, most, room) {
            return cleaned;
        }
        self.settle(at);
        // All of a small file goes at once. Looked at before it is changed: what a copy shares is not copied
        // then.
        let file = self.files.at(at as usize);
        let (had, blocks, padded) = (file.dirty.pages(), file.clean.blocks(), file.padded());
        let mut requests = Requests { queued: 0, jumps: 0, run: (file.cursor, file.cursor) };
        let mut all = requests;
        let mut go_on = |(start, end)| all.add(start, end) < room;
        let whole = had <= most
            && match file.dirty.only_run() {
                Some(run) if file.cursor <= run.0 || run.1 <= file.cursor => go_on(run),
                _ => file.dirty.runs(file.cursor).all(go_on),
            };
        if whole
            && self.lazy.is_some()
            && had > 0
            && file.clean.pages() == 0
            && self.files.held.0 != at as usize
        {
            let Requests { queued, jumps, .. } = all;
            self.clean_lazily(at, file.dirty.blocks());
            return Cleaned { pages: had, padding: padded, queued, jumps };
        }
        let file = self.files.at_mut(at as usize);
        let (dirty, clean) = (&mut file.dirty, &mut file.clean);
        if whole {
            (requests, file.cursor) = (all, all.run.1);
            dirty.pour_into(clean);
            file.padding = None;
        } else {
            let padding = &mut file.padding;
            file.cursor = dirty.take_from(file.cursor, most, |start, end| {
                clean.insert(start, end);
                if let Some(padding) = padding {
                    padding.remove(start, end);
                }
                requests.add(start, end) < room
            });
        }
        let Requests { queued, jumps, .. } = requests;
        let cleaned =
            Cleaned { pages: had - file.dirty.pages(), padding: padded - file.padded(), queued, jumps };
        self.clean_blocks = self.clean_blocks + file.clean.blocks() - blocks;
        self.forget();
        cleaned
    }

    /// Cleans a simple file in a copy to look ahead with, by nothing but its brief: the flusher goes through
    /// tens of thousands of them. None if that does not do.
    fn clean_by_brief(&mut self, at: u32, most: u64, room: u64) -> Option<Cleaned> {
        let lazy = self.lazy.as_ref()?;
        let brief = self.files.brief(at as usize);
        let pages = u64::from(brief.pages);
        let queued = REQUEST.max(pages);
        if pages == 0 || pages > most || queued >= room || self.files.held.0 == at as usize || lazy.has(at) {
            return None;
        }
        self.clean_lazily(at, 1);
        Some(Cleaned { pages, padding: 0, queued, jumps: brief.jumps.into() })
    }

    /// Lists a file whose dirty pages, which lie in this number of blocks, are all cleaned.
    fn clean_lazily(&mut self, at: u32, blocks: usize) {
        self.clean_blocks += blocks;
        if let Some(lazy) = &mut self.lazy {
            lazy.list(at, self.files.length);
            if lazy.cleaned.len() > 2 * self.files.length {
                self.settle_all();
            }
        }
        self.forget();
    }

    /// Drops pages from `start` up to `end`; returns how many of them were dirty. A folio of which some are
    /// dirty cannot be split (`truncate_inode_partial_folio`): it stays unless all of it goes.
    pub fn drop_range(&mut self, at: u32, start: u64, end: u64) -> u64 {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let (from, to) = (file.folios.around(start), file.folios.around(end));
        let stays = |folio: (u64, u64)| file.dirty.pages() > 0 && file.dirty.count(folio.0, folio.1) > 0;
        let start = if from.0 < start && stays(from) { from.1 } else { start };
        let end = if to.0 < end && stays(to) { to.0 } else { end };
        if start >= end {
            return 0;
        }
        if let Some(eviction) = &mut self.eviction {
            let pages = file.clean.runs_between(start, end).chain(file.dirty.runs_between(start, end));
            eviction.leave(at, file.device, pages);
        }
        let blocks = file.clean.blocks();
        file.clean.remove(start, end);
        self.clean_blocks = self.clean_blocks + file.clean.blocks() - blocks;
        file.unpad(start, end);
        if start == 0 && end == u64::MAX {
            file.folios.clear();
        }
        file.dirty.remove(start, end)
    }

    /// Drops the clean pages from `start` up to `end`, in whole folios (`find_lock_entries`). The latest
    /// `in_flight` pages that were submitted stay: they are taken to be those before the file's cursor.
    pub fn evict(&mut self, at: u32, start: u64, end: u64, in_flight: u64) {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let (from, to) = (file.folios.around(start), file.folios.around(end));
        let (start, end) = (if from.0 < start { from.1 } else { start }, to.0.min(end));
        let busy = (file.cursor.saturating_sub(in_flight), file.cursor);
        let blocks = file.clean.blocks();
        for (from, to) in [(start, end.min(busy.0)), (start.max(busy.1), end)] {
            if from < to {
                if let Some(eviction) = &mut self.eviction {
                    eviction.leave(at, file.device, file.clean.runs_between(from, to));
                }
                file.clean.remove(from, to);
            }
        }
        self.clean_blocks = self.clean_blocks + file.clean.blocks() - blocks;
    }

    /// Nothing of the pages from `start` up to `end` is on the device, as far as they are not dirty.
    pub fn set_aside(&mut self, at: u32, start: u64, end: u64) {
        self.file_mut(at).holes.insert(start, end);
    }

    /// The pages from `start` up to `end` were written past the cache. True if some of them took new blocks.
    pub fn fill(&mut self, at: u32, start: u64, end: u64) -> bool {
        self.file_mut(at).holes.fill(start, end)
    }

    /// A write of a part of this page has to read it first: it is on the device, and not cached as far as
    /// remembered.
    pub fn is_elsewhere(&self, at: u32, page: u64) -> bool {
        !self.holds(at, page) && !self.files.at(at as usize).holes.overlap(page, page + 1)
    }

    /// True if the page is in the cache as far as remembered.
    fn holds(&self, at: u32, page: u64) -> bool {
        // Where it was cleaned only since is one or the other all the same.
        let file = self.files.at(at as usize);
        file.dirty.contains(page) || file.clean.contains(page)
    }

    /// Keeps the number of clean blocks within bounds.
    fn forget(&mut self) {
        if self.clean_blocks <= CLEAN_BLOCKS {
            return;
        }
        self.settle_all();
        let with_blocks = self.files.iter().enumerate().filter(|(_, file)| file.clean.blocks() > 0);
        let mut oldest: Vec<(u64, usize)> = with_blocks.map(|(at, file)| (file.touched, at)).collect();
        oldest.sort_unstable();
        let mut forgotten = BTreeSet::new();
        for (_, at) in oldest {
            if self.clean_blocks <= KEPT_BLOCKS {
                break;
            }
            let file = self.files.at_mut(at);
            self.clean_blocks -= file.clean.blocks();
            file.clean.clear();
            file.folios.clear();
            file.told = false;
            forgotten.insert(at as u32);
        }
        if let Some(eviction) = &mut self.eviction {
            eviction.forget(|of| forgotten.contains(&of));
        }
    }
}

impl File {
    /// The flusher has taken all of it in this transaction, after which the device had been given `submitted`
    /// pages.
    fn flushed(&mut self, (submitted, transaction): (u64, u64)) {
        self.cursor = self.dirty.runs(self.cursor).last().map_or(self.cursor, |run| run.1);
        self.dirty.pour_into(&mut self.clean);
        self.padding = None;
        self.submitted = submitted;
        if std::mem::take(&mut self.growing) {
            (self.changed, self.grown) = (transaction, transaction);
        }
        self.leave_lists();
    }

    /// How many pages are padding.
    fn padded(&self) -> u64 {
        self.padding.as_ref().map_or(0, |padding| padding.pages())
    }

    /// These pages are not padding.
    fn unpad(&mut self, start: u64, end: u64) {
        if let Some(padding) = &mut self.padding {
            padding.remove(start, end);
        }
    }

    fn leave_lists(&mut self) {
        if self.listed {
            self.listed = false;
            self.generation = self.generation.wrapping_add(1);
        }
    }

    /// Makes clean pages that share a folio with a dirty one count as dirty; how many.
    fn pad(&mut self, start: u64, end: u64) -> u64 {
        // Of a folio either all is cached and clean, or it is not as large as it was.
        if start >= end || self.clean.count(start, end) < end - start {
            return 0;
        }
        self.clean.remove(start, end);
        self.padding.get_or_insert_default().insert(start, end);
        self.dirty.insert(start, end)
    }
}

#[cfg(test)]
mod tests;
