//! In which pieces a file's pages were allocated.
//!
//! The law: since large folios, a write allocates the largest naturally aligned pieces of a power of two
//! pages that fit into it (`write_begin_get_folio`, `fgf_set_order`, 6.18), and the kernel counts
//! folios only: a change of one page of a clean folio makes all of it count as dirty
//! (`folio_account_dirtied`). What is written to the device are the blocks that were changed.
//!
//! Kept is the size of the folios that were last allocated in each block of 2 MiB, the largest folio there
//! is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::pages::BLOCK;

/// Sizes of a file's folios. A copy shares them until one changes.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    /// Binary logarithm of the pages of a folio by block; a block of single pages is left out.
    orders: Option<Arc<BTreeMap<u64, u8>>>,
    /// The blocks noted last, which follow one another and are alike, whatever `orders` says of them: most
    /// files have no others.
    latest: (Range<u64>, u8),
}

impl Folios {
    /// The pages from `start` up to `end` were allocated by one write, in folios of `largest` pages at most.
    pub fn allocated(&mut self, start: u64, end: u64, largest: u64) {
        let order = order(start, end, largest.min(BLOCK));
        let blocks = start / BLOCK..end.saturating_sub(1) / BLOCK + 1;
        let latest = &self.latest.0;
        let alike = self.latest.1 == order;
        if alike && latest.start <= blocks.start && blocks.end <= latest.end
            || order == 0 && self.are_single()
        {
            return;
        }
        if alike && (latest.start..=latest.end).contains(&blocks.start) {
            self.latest.0.end = blocks.end;
            return;
        }
        let (latest, of_latest) = std::mem::replace(&mut self.latest, (blocks.clone(), order));
        if !latest.is_empty() && (latest.start < blocks.start || blocks.end < latest.end) {
            let orders = Arc::make_mut(self.orders.get_or_insert_default());
            for key in latest {
                if of_latest == 0 {
                    orders.remove(&key);
                } else {
                    orders.insert(key, of_latest);
                }
            }
        }
    }

    /// How many folios a write of `bytes` takes for the pages from `start` up to `end`, of which there was
    /// none: each is as large as what is left, or as the place of its first page allows
    /// (`__filemap_get_folio`, 6.18).
    pub fn taken((start, end): (u64, u64), bytes: u64, page: u64, largest: u64) -> u64 {
        let (mut at, mut left, mut count) = (start, bytes, 0);
        while at < end {
            let fits = (left / page).max(1).min(largest);
            let order = fits.ilog2().min(at.trailing_zeros());
            let pages = 1 << order;
            // The rest of a row of equal ones at once.
            let row = if order == largest.ilog2() { ((end - at) / pages).max(1) } else { 1 };
            (at, count) = (at.saturating_add(row * pages), count + row);
            left = left.saturating_sub((row * pages).saturating_mul(page));
        }
        count
    }

    /// First page of the folio of this page, and the page after its last.
    pub fn around(&self, page: u64) -> (u64, u64) {
        let key = page / BLOCK;
        let order = match &self.latest {
            (latest, order) if latest.contains(&key) => *order,
            _ => self.orders.as_ref().and_then(|orders| orders.get(&key).copied()).unwrap_or(0),
        };
        let pages = 1 << order;
        let first = page / pages * pages;
        (first, first.saturating_add(pages))
    }

    /// How many folios the pages from `start` up to `end` lie in, which are of one block.
    pub fn of_run(&self, start: u64, end: u64) -> u64 {
        let folio = self.around(start);
        (end - start).div_ceil(folio.1 - folio.0)
    }

    /// All pages of the folios that have the pages from `start` up to `end`.
    pub fn spread(&self, start: u64, end: u64) -> (u64, u64) {
        (self.around(start).0, self.around(end.saturating_sub(1)).1.max(end))
    }

    /// True if all folios are single pages.
    pub fn are_single(&self) -> bool {
        self.orders.is_none() && self.latest.1 == 0
    }

    /// Nothing is known of any folio.
    pub fn clear(&mut self) {
        *self = Folios::default();
    }
}

/// Binary logarithm of the size of the largest aligned folio between two pages.
fn order(start: u64, end: u64, largest: u64) -> u8 {
    let mut order = end.saturating_sub(start).clamp(1, largest.max(1)).ilog2();
    while start.next_multiple_of(1 << order) + (1 << order) > end && order > 0 {
        order -= 1;
    }
    order as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_the_largest_aligned_folios() {
        assert_eq!(order(0, 256, 512), 8);
        assert_eq!(order(0, 256, 64), 6);
        assert_eq!(order(256, 260, 512), 2);
        // 3 to 7: one page, two, one.
        assert_eq!(order(3, 7, 512), 1);
        assert_eq!(order(5, 6, 512), 0);
        // As the kernel does it on x86: 2 MiB at most, whatever the size of the write.
        assert_eq!(order(0, 10_000, 512), 9);
    }

    #[test]
    fn a_write_takes_as_many_folios_as_its_place_and_size_make_of_it() {
        let taken = |pages, bytes| Folios::taken(pages, bytes, 4096, 512);
        assert_eq!(taken((0, 4), 16 << 10), 1);
        // 10 KiB are two pages and one, and again behind a page that is there: one and one.
        assert_eq!((taken((0, 3), 10 << 10), taken((3, 5), 8 << 10)), (2, 2));
        // Less than two pages are never one folio.
        assert_eq!(taken((0, 2), 7689), 2);
        // From the third page on: 1, 4, 8, 16, 32, 64, 128, then 2 of the last.
        assert_eq!(taken((3, 259), 1 << 20), 9);
        assert_eq!(taken((0, 4096), 16 << 20), 8);
        assert_eq!((taken((5, 5), 0), Folios::taken((0, 64), 256 << 10, 4096, 1)), (0, 64));
    }

    #[test]
    fn the_latest_allocation_counts() {
        let mut folios = Folios::default();
        folios.allocated(0, 1, 512);
        assert!(folios.are_single());
        folios.allocated(512, 768, 512);
        assert_eq!(folios.around(600), (512, 768));
        assert_eq!(folios.around(800), (768, 1024));
        assert_eq!(folios.around(3), (3, 4));
        folios.allocated(600, 601, 512);
        assert_eq!(folios.around(600), (600, 601));
        folios.allocated(0, 1024, 512);
        folios.allocated(1024, 2048, 512);
        folios.allocated(0, 1, 512);
        assert_eq!((folios.around(1030), folios.around(2048)), ((1024, 1536), (2048, 2049)));
        assert_eq!((folios.around(3), folios.around(600)), ((3, 4), (512, 1024)));
        let copy = folios.clone();
        folios.clear();
        assert!(folios.are_single() && !copy.are_single());
    }
}
