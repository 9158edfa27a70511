//! In which pieces a file's pages were allocated.
//!
//! The law: since large folios, a write allocates the largest naturally aligned pieces of a power of two pages
//! that fit into it (`write_begin_get_folio`, `fgf_set_order`, 6.18), and the kernel keeps books of folios only:
//! whoever changes a page of a clean folio makes all of it count as dirty (`folio_account_dirtied`). What is
//! written to the device are the blocks that were changed.
//!
//! Kept is the size of the folios that were last allocated in each block of 2 MiB, the largest folio there is.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::extents::BLOCK;

/// Sizes of a file's folios. A copy shares them until one changes.
#[derive(Clone, Debug, Default)]
pub struct Folios {
    /// Binary logarithm of the pages of a folio by block; a block of single pages is left out.
    orders: Option<Arc<BTreeMap<u64, u8>>>,
    /// The blocks noted last, which follow one another and are alike, whatever `orders` says of them: most files have
    /// no others.
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
