//! The cache as reads see it: which pages are there, and what comes in.

use cawl_wire::FileId;

use super::Cache;
use crate::pages::PageSet;

/// Where pages that were read come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They were in the cache already, before the model knew.
    Cache,
    /// From the device, or from nowhere: they are new.
    Device,
    /// The program has written them, and they are clean.
    Program,
}

/// Marks of a file that are remembered. Every window leaves one, until a reader comes by.
const MARKS: usize = 1 << 10;

impl super::File {
    fn take_mark(&mut self, start: u64, end: u64) -> Option<u64> {
        let mark = *self.marks.range(start..end).next()?;
        self.marks.remove(&mark);
        Some(mark)
    }
}

impl Cache {
    /// Where the pages end that are cached from `start` on, `end` at most, as far as remembered.
    pub fn cached_until(&mut self, at: u32, start: u64, end: u64) -> u64 {
        let file = self.file(at);
        let mut until = start;
        while until < end {
            let run = |pages: &PageSet| match pages.runs_between(until, end).next() {
                Some((first, last)) if first == until => last,
                _ => until,
            };
            let next = run(&file.clean).max(run(&file.dirty));
            if next == until {
                break;
            }
            until = next;
        }
        until
    }

    /// Where the pages end that are not cached from `start` on, `end` at most.
    pub fn missing_until(&mut self, at: u32, start: u64, end: u64) -> u64 {
        let file = self.file(at);
        let first = |pages: &PageSet| pages.runs_between(start, end).next().map_or(end, |run| run.0);
        first(&file.clean).min(first(&file.dirty))
    }

    /// How many pages just before `end` are cached, up to `most`.
    pub fn cached_before(&mut self, at: u32, end: u64, most: u64) -> u64 {
        let from = end.saturating_sub(most);
        let (mut first, mut next) = (end, from);
        while next < end {
            let until = self.cached_until(at, next, end);
            first = if until == end { next } else { end };
            next = if until == end { end } else { self.missing_until(at, until, end) };
        }
        end - first
    }

    /// Pages from `start` up to `end` of which nothing is on the device.
    pub fn is_hole(&mut self, at: u32, start: u64, end: u64) -> bool {
        self.file(at).holes.overlap(start, end)
    }

    /// How many pages from `start` up to `end` are such.
    pub fn holes_between(&mut self, at: u32, start: u64, end: u64) -> u64 {
        self.file(at).holes.count(start, end)
    }

    /// Remembers that these pages are cached, in folios of `folio` pages at most: they were read. None of
    /// them is marked.
    pub fn read_ahead(&mut self, at: u32, start: u64, end: u64, folio: u64, source: Source) {
        self.read(at, start, end, source);
        let file = self.file_mut(at);
        file.folios.allocated(start, end, folio);
        while file.take_mark(start, end).is_some() {}
    }

    /// Marks a page.
    pub fn mark(&mut self, at: u32, page: u64) {
        let marks = &mut self.file_mut(at).marks;
        if marks.len() < MARKS {
            marks.insert(page);
        }
    }

    /// Takes the first mark away that is on a page from `start` up to `end`.
    pub fn take_mark(&mut self, at: u32, start: u64, end: u64) -> Option<u64> {
        // Copies to look ahead with share files until these change.
        if self.file(at).marks.is_empty() { None } else { self.file_mut(at).take_mark(start, end) }
    }

    /// Remembers that these pages are cached.
    pub fn read(&mut self, at: u32, start: u64, end: u64, source: Source) {
        self.settle(at);
        let file = self.files.at_mut(at as usize);
        let blocks = file.clean.blocks();
        let mut insert = |from: u64, to: u64| {
            let new = file.clean.insert(from, to);
            if let Some(eviction) = &mut self.eviction
                && new > 0
            {
                match source {
                    Source::Cache => eviction.find(at, file.device, (from, to)),
                    Source::Device => eviction.insert(at, file.device, (from, to), new, true),
                    Source::Program => eviction.insert(at, file.device, (from, to), new, false),
                }
            }
        };
        let mut from = start;
        // Leaves out what is dirty; a read touches few pages, and what it misses costs accuracy, not truth.
        if file.dirty.count(start, end) == 0 {
            insert(from, end);
        } else {
            while from < end {
                let to = (from + 256).min(end);
                if file.dirty.count(from, to) == 0 {
                    insert(from, to);
                }
                from = to;
            }
        }
        let now = file.clean.blocks();
        self.clean_blocks = self.clean_blocks + now - blocks;
        self.forget();
    }

    /// A file that was met before.
    pub fn find(&self, key: FileId) -> Option<u32> {
        match self.last {
            Some((last, at)) if last == key => Some(at),
            _ => self.names.index.get(&key).copied().or_else(|| self.met(key)),
        }
    }

    /// Pages from `start` up to `end` that are cached, as far as remembered.
    pub fn count(&self, at: u32, start: u64, end: u64) -> u64 {
        // Where it was cleaned only since is one or the other all the same.
        let file = self.files.at(at as usize);
        file.clean.count(start, end) + file.dirty.count(start, end)
    }

    /// How long a file is, in bytes, as far as known.
    pub fn size(&self, at: u32) -> u64 {
        self.files.at(at as usize).size
    }

    /// Cached pages of a file from `first` up to `end`, and the folios that they lie in.
    pub fn folios_between(&mut self, at: u32, first: u64, end: u64) -> (u64, u64) {
        let file = self.file(at);
        let runs = [&file.clean, &file.dirty].into_iter().flat_map(|pages| pages.runs_between(first, end));
        runs.fold((0, 0), |(pages, folios), (start, end)| {
            (pages + end - start, folios + file.folios.of_run(start, end))
        })
    }

    /// Pages of a file that are cached, as far as remembered.
    pub fn cached(&mut self, at: u32) -> u64 {
        let file = self.file(at);
        file.clean.pages() + file.dirty.pages()
    }
}
