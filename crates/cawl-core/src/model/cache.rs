//! The page cache as far as writing is concerned: for each file which pages are dirty and which are
//! cached and clean.
//!
//! The law: a page is dirty or clean or not remembered, never two of these. Dirty pages are always
//! remembered; clean ones up to [`CLEAN_BLOCKS`] blocks over all files, those of the file longest untouched
//! are forgotten first. Memory is therefore bounded by what is dirty or was recently written.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use super::extents::PageSet;
use super::folios::Folios;

/// Blocks of 2 MiB with clean pages that are remembered over all files.
pub const CLEAN_BLOCKS: usize = 1 << 18;
/// Pages in the longest request to a device: 1280 KiB (`BLK_DEF_MAX_SECTORS_CAP`).
pub const REQUEST: u64 = 320;
/// Files without dirty pages that are remembered.
pub const CLEAN_FILES: usize = 1 << 14;

/// A multiplicative hash: fast, and the same in every process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A map that is never iterated where order would matter.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// A file's place in the cache.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// Counts how often it left the flusher's lists; entries of an older generation are void.
    pub generation: u32,
    /// It is on one of the flusher's lists.
    pub listed: bool,
    /// No link is left.
    pub unlinked: bool,
    /// When its oldest dirty data was dirtied, in seconds (`dirtied_when`).
    pub dirtied_when: f64,
    /// Where the flusher goes on (`writeback_index`), in pages.
    pub cursor: u64,
    /// Index of its device.
    pub device: usize,
    /// Dirty pages that nobody wrote: they count as dirty since another page of their folio does. Few files have any.
    padding: Option<Box<PageSet>>,
    /// Dirty pages.
    pub dirty: PageSet,
    /// Cached pages that are clean.
    pub clean: PageSet,
    /// In which pieces its pages were allocated.
    pub folios: Folios,
    /// Length in bytes as far as known.
    pub size: u64,
    /// The device's count of submitted pages when this file's last page was submitted.
    pub submitted: u64,
    /// Open descriptors as far as seen.
    pub opens: u32,
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
    /// Of those, pages that only share a folio with one that was written.
    pub padding: u64,
}

/// What was taken from a file to be written back, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Pages that do not count as dirty any longer.
    pub pages: u64,
    /// Of those, pages that nobody wrote: the device is not given them.
    pub padding: u64,
    /// Room that they take in a device's queue. A queue holds requests: one for each run of pages takes as much
    /// room as the longest there are.
    pub queued: u64,
    /// Runs of them that do not begin where the one before ended.
    pub jumps: u64,
}

/// The requests that runs of pages make.
#[derive(Clone, Copy)]
struct Requests {
    /// Room that they take in a device's queue, in pages.
    queued: u64,
    /// Those that do not begin where the one before ended.
    jumps: u64,
    /// The latest.
    run: (u64, u64),
}

impl Requests {
    /// Adds a run; the room that all of them take.
    fn add(&mut self, start: u64, end: u64) -> u64 {
        if self.run.1 != start {
            self.run = (start, start);
            self.jumps += 1;
        }
        // Counted anew with what it has grown by.
        self.queued -= if self.run.0 < self.run.1 { REQUEST.max(self.run.1 - self.run.0) } else { 0 };
        self.run.1 = end;
        self.queued += REQUEST.max(self.run.1 - self.run.0);
        self.queued
    }
}

/// Files in a chunk, and chunks in a row.
const CHUNK: usize = 16;
const ROW: usize = 64;

/// Files by number, in chunks that copies share until one of them changes a chunk: a copy to look ahead with is
/// made while programs write, for each call that may have to wait, and touches few files. Rows of chunks, so that
/// few counts are to be touched by a copy of tens of thousands of files.
///
/// The law: one file, that changed last, is in `held` and nowhere else, and blank in its chunk; at first that is
/// file 0. So changing it again, as most calls do several times, asks of no chunk whether it is shared.
#[derive(Clone, Debug, Default)]
struct Files {
    rows: Vec<Arc<Vec<Arc<[File; CHUNK]>>>>,
    length: usize,
    held: (usize, File),
}

impl Files {
    fn push(&mut self) {
        if self.length.is_multiple_of(ROW * CHUNK) {
            self.rows.push(Arc::default());
        }
        if self.length.is_multiple_of(CHUNK)
            && let Some(row) = self.rows.last_mut()
        {
            Arc::make_mut(row).push(Arc::default());
        }
        self.length += 1;
    }

    fn at(&self, at: usize) -> &File {
        if at == self.held.0 {
            &self.held.1
        } else {
            &self.rows[at / CHUNK / ROW][at / CHUNK % ROW][at % CHUNK]
        }
    }

    fn at_mut(&mut self, at: usize) -> &mut File {
        if at != self.held.0 {
            let file = std::mem::take(self.place(at));
            let (before, last) = std::mem::replace(&mut self.held, (at, file));
            *self.place(before) = last;
        }
        &mut self.held.1
    }

    /// A file's place in its chunk, which is nobody else's from now on.
    fn place(&mut self, at: usize) -> &mut File {
        let row = Arc::make_mut(&mut self.rows[at / CHUNK / ROW]);
        &mut Arc::make_mut(&mut row[at / CHUNK % ROW])[at % CHUNK]
    }

    fn iter(&self) -> impl Iterator<Item = &File> {
        (0..self.length).map(|at| self.at(at))
    }
}

/// Which file is which. Copies share it until a file is met for the first time, or forgotten.
#[derive(Clone, Debug, Default)]
struct Names {
    index: Map<(u64, u64), u32>,
    keys: Vec<(u64, u64)>,
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
    last: Option<((u64, u64), u32)>,
    /// In a copy to look ahead with: what it has cleaned.
    aside: Option<Box<Aside>>,
}

/// Files that a copy has cleaned whole and not looked at since. The flusher goes through tens of thousands of small
/// files, and changing them would be copying them.
///
/// The law: a file noted here is as it was before it was cleaned; whoever wants it otherwise than to ask whether it
/// is dirty or listed has it settled first. A file of which other pages are clean is never noted.
#[derive(Clone, Debug, Default)]
struct Aside {
    /// A bit for each file.
    noted: Vec<u64>,
    /// Those files in the order of their cleaning, and what the device had submitted after each. One that was settled
    /// may still be here.
    cleaned: Vec<(u32, u64)>,
    /// Files that this copy has met for the first time, while they are few: the shared names need not be copied.
    met: Vec<((u64, u64), u32)>,
}

/// Most files in [`Aside::met`].
const MET: usize = 16;

impl Aside {
    fn has(&self, at: u32) -> bool {
        self.noted.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn note(&mut self, at: u32, files: usize) {
        if self.noted.len() * 64 < files {
            self.noted.resize(files.div_ceil(64), 0);
        }
        self.noted[at as usize / 64] |= 1 << (at % 64);
        self.cleaned.push((at, 0));
    }

    /// Strikes a file out; what the device had submitted after it was cleaned.
    fn strike(&mut self, at: u32) -> u64 {
        self.noted[at as usize / 64] &= !(1 << (at % 64));
        self.cleaned.iter().rev().find(|(cleaned, _)| *cleaned == at).map_or(0, |(_, submitted)| *submitted)
    }
}

impl Cache {
    /// This copy is to look ahead with, and not for long.
    pub fn look_ahead(&mut self) {
        self.aside.get_or_insert_default();
    }

    fn is_noted(&self, at: u32) -> bool {
        self.aside.as_ref().is_some_and(|aside| aside.has(at))
    }

    /// Makes a file what it is.
    fn settle(&mut self, at: u32) {
        if let Some(aside) = &mut self.aside
            && aside.has(at)
        {
            let submitted = aside.strike(at);
            self.files.at_mut(at as usize).flushed(submitted);
        }
    }

    /// Makes all files what they are.
    fn settle_all(&mut self) {
        if let Some(aside) = &mut self.aside {
            let cleaned = std::mem::take(&mut aside.cleaned);
            // The latest of a file that is here more than once is the one that holds.
            let mut left = Aside { noted: std::mem::take(&mut aside.noted), ..Aside::default() };
            for (at, submitted) in cleaned.into_iter().rev() {
                if left.has(at) {
                    left.strike(at);
                    self.files.at_mut(at as usize).flushed(submitted);
                }
            }
        }
    }

    /// No page of this file is dirty.
    pub fn is_clean(&self, at: u32) -> bool {
        self.is_noted(at) || self.files.at(at as usize).dirty.pages() == 0
    }

    /// An entry of this generation on a list of the flusher's stands for this file.
    pub fn is_listed(&self, at: u32, generation: u32) -> bool {
        let file = self.files.at(at as usize);
        file.listed && file.generation == generation && !self.is_noted(at)
    }

    /// When this file's oldest dirty data was dirtied, in seconds.
    pub fn dirtied_when(&self, at: u32) -> f64 {
        self.files.at(at as usize).dirtied_when
    }

    /// Index of this file's device.
    pub fn device(&self, at: u32) -> usize {
        self.files.at(at as usize).device
    }

    /// Pages of this file were handed over, and now the device has been given so many in all.
    pub fn submitted(&mut self, at: u32, submitted: u64) {
        match &mut self.aside {
            Some(aside) if aside.has(at) => {
                // Cleaned a moment ago.
                if let Some(last) = aside.cleaned.last_mut() {
                    last.1 = submitted;
                }
            }
            _ => self.files.at_mut(at as usize).submitted = submitted,
        }
    }

    /// A clean file is on no list.
    pub fn leave_lists(&mut self, at: u32) {
        // One that is noted has left them.
        if !self.is_noted(at) && self.files.at(at as usize).dirty.pages() == 0 {
            self.files.at_mut(at as usize).leave_lists();
        }
    }

    /// The file with this identity; `device` is told for files met for the first time.
    pub fn open(&mut self, key: (u64, u64), device: usize) -> u32 {
        self.touches += 1;
        let at = match self.last {
            Some((last, at)) if last == key => at,
            _ => match self.names.index.get(&key).copied().or_else(|| self.met(key)) {
                Some(at) => at,
                None => self.add(key, device),
            },
        };
        self.last = Some((key, at));
        let touches = self.touches;
        self.file_mut(at).touched = touches;
        at
    }

    /// A file that only this copy has met.
    fn met(&self, key: (u64, u64)) -> Option<u32> {
        let met = self.aside.as_ref()?.met.iter();
        met.rev().find(|(name, _)| *name == key).map(|(_, at)| *at)
    }

    /// Gives the files that only this copy has met their names.
    fn name_met(&mut self) {
        let met = self.aside.as_mut().map(|aside| std::mem::take(&mut aside.met)).unwrap_or_default();
        if !met.is_empty() {
            let names = Arc::make_mut(&mut self.names);
            for (key, at) in met {
                names.keys.push(key);
                names.index.insert(key, at);
            }
        }
    }

    fn add(&mut self, key: (u64, u64), device: usize) -> u32 {
        let met = self.aside.as_ref().map_or(0, |aside| aside.met.len());
        if self.names.index.len() + met >= self.sweep_at.max(2 * CLEAN_FILES) {
            self.name_met();
            self.sweep();
            // Dirty files stay: however many there are, a sweep is paid for by as many files added.
            self.sweep_at = 2 * self.names.index.len();
        }
        if let Some(aside) = &mut self.aside
            && aside.met.len() < MET
        {
            self.files.push();
            let at = (self.files.length - 1) as u32;
            aside.met.push((key, at));
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

    /// Forgets files that are clean and long untouched. That somebody has them open does not count: a
    /// program that ends closes its files without a call.
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
        self.last = None;
    }

    /// How long a file is, in bytes, as far as known.
    pub fn size(&self, at: u32) -> u64 {
        self.files.at(at as usize).size
    }

    /// The file at this index.
    pub fn file(&mut self, at: u32) -> &File {
        self.settle(at);
        self.files.at(at as usize)
    }

    /// The same, to change.
    pub fn file_mut(&mut self, at: u32) -> &mut File {
        self.settle(at);
        self.files.at_mut(at as usize)
    }

    /// Makes the pages from `start` up to `end` dirty; what is allocated comes in folios of `folio` pages at most.
    pub fn dirty(&mut self, at: u32, start: u64, end: u64, folio: u64) -> Found {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let mut dirtied = file.dirty.insert(start, end);
        let (mut cached, mut padding) = (0, 0);
        file.unpad(start, end);
        if dirtied > 0 && file.clean.pages() > 0 {
            let before = file.clean.blocks();
            cached = file.clean.remove(start, end);
            if cached > 0 && !file.folios.are_single() {
                let (first, last) = (file.folios.around(start), file.folios.around(end - 1));
                padding = file.pad(first.0, start) + file.pad(end, last.1);
                (dirtied, cached) = (dirtied + padding, cached + padding);
            }
            self.clean_blocks = self.clean_blocks + file.clean.blocks() - before;
        }
        let fresh = dirtied - cached;
        if fresh > 0 {
            file.folios.allocated(start, end, folio);
        }
        Found { dirtied, fresh, padding }
    }

    /// Cleans up to `most` dirty pages of a file from its cursor on, until the requests that they make fill `room`
    /// pages of a device's queue.
    pub fn clean(&mut self, at: u32, most: u64, room: u64) -> Cleaned {
        self.settle(at);
        // All of a small file goes at once. Looked at before it is changed: what a copy shares is not copied then.
        let file = self.files.at(at as usize);
        let (had, blocks, padded) = (file.dirty.pages(), file.clean.blocks(), file.padded());
        let mut requests = Requests { queued: 0, jumps: 0, run: (file.cursor, file.cursor) };
        let mut all = requests;
        let go_on = |(start, end)| all.add(start, end) < room;
        let whole = had <= most && file.dirty.runs(file.cursor).all(go_on);
        if whole
            && let Some(aside) = &mut self.aside
            && had > 0
            && file.clean.pages() == 0
            && self.files.held.0 != at as usize
        {
            self.clean_blocks += file.dirty.blocks();
            aside.note(at, self.files.length);
            let many = aside.cleaned.len() > 2 * self.files.length;
            if many {
                self.settle_all();
            }
            self.forget();
            let Requests { queued, jumps, .. } = all;
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

    /// Remembers that these pages are cached: they were read.
    pub fn read(&mut self, at: u32, start: u64, end: u64) {
        let file = self.file_mut(at);
        let blocks = file.clean.blocks();
        let mut from = start;
        // Leaves out what is dirty; a read touches few pages, and what it misses costs accuracy, not truth.
        if file.dirty.count(start, end) == 0 {
            file.clean.insert(from, end);
        } else {
            while from < end {
                let to = (from + 256).min(end);
                if file.dirty.count(from, to) == 0 {
                    file.clean.insert(from, to);
                }
                from = to;
            }
        }
        let now = file.clean.blocks();
        self.clean_blocks = self.clean_blocks + now - blocks;
        self.forget();
    }

    /// Drops pages from `start` up to `end`; returns how many of them were dirty.
    pub fn drop_range(&mut self, at: u32, start: u64, end: u64) -> u64 {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let blocks = file.clean.blocks();
        file.clean.remove(start, end);
        self.clean_blocks = self.clean_blocks + file.clean.blocks() - blocks;
        file.unpad(start, end);
        if start == 0 && end == u64::MAX {
            file.folios.clear();
        }
        file.dirty.remove(start, end)
    }

    /// True if the page is in the cache as far as remembered.
    pub fn holds(&self, at: u32, page: u64) -> bool {
        // Where it was cleaned only since is one or the other all the same.
        let file = self.files.at(at as usize);
        file.dirty.count(page, page + 1) + file.clean.count(page, page + 1) > 0
    }

    /// Keeps the number of clean blocks within bounds.
    fn forget(&mut self) {
        if self.clean_blocks > CLEAN_BLOCKS {
            self.settle_all();
        }
        while self.clean_blocks > CLEAN_BLOCKS {
            let oldest = (self.files.iter().enumerate())
                .filter(|(_, file)| file.clean.blocks() > 0)
                .min_by_key(|(_, file)| file.touched)
                .map(|(at, _)| at);
            let Some(at) = oldest else { break };
            let file = self.files.at_mut(at);
            self.clean_blocks -= file.clean.blocks();
            file.clean.clear();
            file.folios.clear();
        }
    }
}

impl File {
    /// The flusher has taken all of it, and then the device had been given so many pages.
    fn flushed(&mut self, submitted: u64) {
        self.cursor = self.dirty.runs(self.cursor).last().map_or(self.cursor, |run| run.1);
        self.dirty.pour_into(&mut self.clean);
        self.padding = None;
        self.submitted = submitted;
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_cleaned_at_once_is_what_is_cleaned_page_by_page(
            writes in proptest::collection::vec((0..3000u64, 1..40u64), 1..20),
            (first, most, room) in (0..100u64, 1..600u64, 0..20u64),
            again in proptest::option::of((0..3000u64, 1..40u64)),
        ) {
            let mut cache = Cache::default();
            let at = cache.open((1, 1), 0);
            let mut plain = BTreeSet::new();
            for (start, pages) in writes.into_iter().chain(again) {
                cache.dirty(at, start, start + pages, 1);
                plain.extend(start..start + pages);
            }
            let mut clean = BTreeSet::new();
            // The first time from the beginning, then from the cursor on and around.
            for (most, room) in [(first, u64::MAX), (most, room * REQUEST), (u64::MAX, u64::MAX)] {
                let mut shared = cache.clone();
                let cursor = cache.file(at).cursor;
                let order: Vec<u64> = plain.range(cursor..).chain(plain.range(..cursor)).copied().collect();
                let cleaned = cache.clean(at, most, room);
                let taken = &order[..cleaned.pages as usize];
                // Requests are runs of pages; the first goes on from the cursor.
                let mut runs: Vec<(u64, u64)> = Vec::new();
                for page in taken {
                    match runs.last_mut() {
                        Some(run) if run.1 == *page => run.1 += 1,
                        _ => runs.push((*page, page + 1)),
                    }
                }
                let jumps = runs.len() - usize::from(runs.first().is_some_and(|run| run.0 == cursor));
                let queued: u64 = runs.iter().map(|run| REQUEST.max(run.1 - run.0)).sum();
                prop_assert_eq!((cleaned.queued, cleaned.jumps), (queued, jumps as u64));
                prop_assert!(cleaned.pages == most.min(order.len() as u64) || queued >= room);
                prop_assert_eq!(cache.file(at).cursor, taken.last().map_or(cursor, |page| page + 1));
                prop_assert_eq!(shared.file(at).dirty.pages(), plain.len() as u64);
                prop_assert_eq!(shared.file(at).clean.pages(), clean.len() as u64);
                for page in taken {
                    plain.remove(page);
                    clean.insert(*page);
                }
                let file = cache.file(at);
                let pages = |set: &PageSet| set.runs(0).flat_map(|(start, end)| start..end).collect::<BTreeSet<_>>();
                prop_assert_eq!(pages(&file.dirty), plain.clone());
                prop_assert_eq!(pages(&file.clean), clean.clone());
            }
        }
    }

    #[test]
    fn fresh_cached_and_dirty_pages_are_told_apart() {
        let mut cache = Cache::default();
        let at = cache.open((1, 1), 0);
        assert_eq!(cache.dirty(at, 0, 10, 1), Found { dirtied: 10, fresh: 10, padding: 0 });
        assert_eq!(cache.dirty(at, 5, 15, 1), Found { dirtied: 5, fresh: 5, padding: 0 });
        assert_eq!(cache.clean(at, 6, u64::MAX), Cleaned { pages: 6, padding: 0, queued: REQUEST, jumps: 0 });
        assert_eq!(cache.dirty(at, 0, 15, 1), Found { dirtied: 6, fresh: 0, padding: 0 });
        assert_eq!(cache.drop_range(at, 10, u64::MAX), 5);
        assert!(cache.holds(at, 9) && !cache.holds(at, 10));
    }

    proptest! {
        /// Copies of copies, each changed on its own.
        #[test]
        fn copies_do_not_see_each_others_changes(
            changes in proptest::collection::vec((0..4usize, 0..40usize, 0..4usize), 1..200),
        ) {
            let mut copies = vec![(Files::default(), Vec::new())];
            for (n, (which, at, what)) in changes.into_iter().enumerate() {
                let which = which % copies.len();
                if what == 0 && copies.len() < 4 {
                    copies.push(copies[which].clone());
                }
                let (files, plain) = &mut copies[which];
                if at < plain.len() {
                    files.at_mut(at).size = n as u64;
                    plain[at] = n as u64;
                } else {
                    files.push();
                    plain.push(0);
                }
                for (files, plain) in &copies {
                    prop_assert_eq!(files.length, plain.len());
                    prop_assert!(files.iter().map(|file| file.size).eq(plain.iter().copied()));
                }
            }
        }
    }

    #[test]
    fn scattered_pages_take_a_request_and_a_jump_for_each_run() {
        let mut cache = Cache::default();
        let at = cache.open((1, 1), 0);
        // In a row across blocks: one request as long as it is, and the next goes on from there.
        cache.dirty(at, 0, 2000, 1);
        assert_eq!(
            cache.clean(at, 1000, u64::MAX),
            Cleaned { pages: 1000, padding: 0, queued: 1000, jumps: 0 }
        );
        assert_eq!(
            cache.clean(at, 1000, u64::MAX),
            Cleaned { pages: 1000, padding: 0, queued: 1000, jumps: 0 }
        );
        // Sixteen pages out of every hundred.
        for i in 30..40 {
            cache.dirty(at, 100 * i, 100 * i + 16, 1);
        }
        assert_eq!(
            cache.clean(at, 48, u64::MAX),
            Cleaned { pages: 48, padding: 0, queued: 3 * REQUEST, jumps: 3 }
        );
        assert_eq!(
            cache.clean(at, 160, 2 * REQUEST),
            Cleaned { pages: 32, padding: 0, queued: 2 * REQUEST, jumps: 2 }
        );
    }

    #[test]
    fn what_a_copy_notes_is_counted_like_what_is_done() {
        let mut cache = Cache::default();
        for ino in 0..40 {
            let at = cache.open((1, ino), 0);
            cache.dirty(at, 0, 20, 1);
            // Some have clean pages in the same block, some in another one.
            cache.clean(at, 5 * (ino % 3), u64::MAX);
            cache.dirty(at, 2000 * (ino % 2), 2000 * (ino % 2) + 3, 1);
        }
        let mut copy = cache.clone();
        copy.look_ahead();
        for at in 0..40 {
            assert_eq!(copy.clean(at, u64::MAX, u64::MAX), cache.clean(at, u64::MAX, u64::MAX));
        }
        assert_eq!(copy.clean_blocks, cache.clean_blocks);
        assert!(copy.aside.as_ref().is_some_and(|aside| aside.cleaned.len() > 10));
        for at in 0..40 {
            assert_eq!(copy.file(at).clean.blocks(), cache.file(at).clean.blocks());
            assert_eq!(copy.file(at).cursor, cache.file(at).cursor);
        }
    }

    #[test]
    fn clean_blocks_are_bounded() {
        let mut cache = Cache::default();
        for ino in 0..4 {
            let at = cache.open((1, ino), 0);
            for page in 0..CLEAN_BLOCKS as u64 / 2 {
                cache.dirty(at, 1024 * page, 1024 * page + 1, 1);
            }
            cache.clean(at, u64::MAX, u64::MAX);
        }
        let kept: usize = cache.files.iter().map(|f| f.clean.blocks()).sum();
        assert_eq!(kept, cache.clean_blocks);
        assert!(kept <= CLEAN_BLOCKS);
    }

    #[test]
    fn clean_files_are_forgotten_even_if_nobody_closed_them() {
        let mut cache = Cache::default();
        for ino in 0..5 * CLEAN_FILES as u64 {
            let at = cache.open((1, ino), 0);
            cache.file_mut(at).opens = 1;
        }
        assert!(cache.names.index.len() <= 2 * CLEAN_FILES && cache.files.length <= 2 * CLEAN_FILES);
    }

    #[test]
    fn dirty_files_are_kept() {
        let mut cache = Cache::default();
        for ino in 0..3 * CLEAN_FILES as u64 {
            let at = cache.open((1, ino), 0);
            cache.dirty(at, 0, 1, 1);
        }
        assert_eq!(cache.names.index.len(), 3 * CLEAN_FILES);
        for at in 0..cache.files.length as u32 {
            cache.clean(at, 1, u64::MAX);
        }
        for ino in 0..4 * CLEAN_FILES as u64 {
            cache.open((2, ino), 0);
        }
        assert!(cache.names.index.len() <= 4 * CLEAN_FILES, "{}", cache.names.index.len());
    }
}
