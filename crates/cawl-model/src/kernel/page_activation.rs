//! Cached pages that are read again (`folio_mark_accessed`, mm/swap.c, 6.18).
//!
//! The law: the first read of a folio marks it as referenced, the second one moves it to the list of active
//! ones, which takes longer, and further ones do nothing. Files that are elsewhere come in folios of a page,
//! so that it is most of what reading them for the second time takes.

use super::Call;
use crate::cause::Cause;
use crate::lru::LruMap;
use crate::pages::PageSet;

/// Blocks of 2 MiB that are remembered over all files.
const BLOCKS: usize = 1 << 16;

/// Pages of files that are elsewhere which have been read.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadPages {
    files: LruMap<u32, Pages>,
    blocks: usize,
}

#[derive(Clone, Debug, Default)]
struct Pages {
    referenced: PageSet,
    active: PageSet,
}

impl ReadPages {
    /// The pages from `first` up to `end` of a file are read; how many become active.
    fn read(&mut self, file: u32, first: u64, end: u64) -> u64 {
        if self.blocks > BLOCKS {
            *self = ReadPages::default();
        }
        let Pages { referenced, active } = self.files.of(file);
        let before = referenced.blocks();
        let again: Vec<(u64, u64)> = referenced.runs_between(first, end).collect();
        referenced.insert(first, end);
        self.blocks = (self.blocks + referenced.blocks()).saturating_sub(before);
        again.into_iter().map(|(from, to)| active.insert(from, to)).sum()
    }

    /// These pages of a file are not cached any more, or were not.
    pub(super) fn forget(&mut self, file: u32, first: u64, end: u64) {
        if let Some(Pages { mut referenced, mut active }) = self.files.take(&file) {
            let before = referenced.blocks();
            referenced.remove(first, end);
            active.remove(first, end);
            self.blocks = (self.blocks + referenced.blocks()).saturating_sub(before);
            if referenced.pages() > 0 {
                self.files.put(file, Pages { referenced, active });
            }
        }
    }
}

impl ReadPages {
    /// The call has read the pages from `first` up to `end`, without the one in which the latest read ended.
    /// To activate one takes `each` seconds.
    pub(super) fn activate(&mut self, call: &mut Call, (first, end): (u64, u64), each: f64) {
        if each > 0.0 && first < end {
            let moving = self.read(call.file, first, end) as f64 * each;
            call.spend(Cause::Copy, moving);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_read_of_a_page_moves_it() {
        let mut pages = ReadPages::default();
        let read = |pages: &mut ReadPages, first, end| pages.read(1, first, end);
        assert_eq!(read(&mut pages, 0, 10), 0);
        assert_eq!(read(&mut pages, 5, 15), 5, "five of them for the first time");
        assert_eq!(read(&mut pages, 0, 15), 10);
        assert_eq!(read(&mut pages, 0, 15), 0);
        assert_eq!(pages.read(2, 0, 15), 0, "another file");
        pages.forget(1, 0, 4);
        assert_eq!([read(&mut pages, 0, 15), read(&mut pages, 0, 15)], [0, 4]);
        pages.forget(1, 0, u64::MAX);
        assert_eq!([read(&mut pages, 0, 600), read(&mut pages, 0, 600)], [0, 600]);
    }

    #[test]
    fn not_all_of_it_is_remembered() {
        let mut pages = ReadPages::default();
        for block in 0..=BLOCKS as u64 + 1 {
            pages.read(1, block * 1024, block * 1024 + 1);
        }
        assert!(pages.blocks <= 2, "{}", pages.blocks);
    }
}
