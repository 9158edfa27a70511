//! The lists on which the kernel keeps the pages of files, to know which it can do without (`struct lruvec`,
//! mm/swap.c, mm/vmscan.c and mm/workingset.c, 6.18), where the multi-generational LRU is off.
//!
//! The law: a page that comes in goes to the head of the *inactive* list. A read marks it as referenced, the
//! next read of it puts it on the *active* list (`folio_mark_accessed`); writes do neither. Reclaim takes
//! pages from the tail of the inactive list, whether referenced or not. What is dirty or under writeback is
//! passed over, and goes first once it is clean (`folio_rotate_reclaimable`). Pages move from the tail of the
//! active list to the head of the inactive one while that is low (`inactive_is_low`), or while pages come
//! back. A page comes back, and is active at once, if no more pages were reclaimed or activated since it was
//! reclaimed than are active (`workingset_test_recent`); one that is written anew does not.

use super::shelves::{Entry, Law, Pages, Reclaimable, Shelves};
use crate::block::Block;
use crate::pages::{BLOCK, pieces};

/// The two lists.
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;
/// The mark of pages that were read.
const REFERENCED: usize = 0;
/// Pages in a gibibyte, to which the ratio of the lists is related.
const GIB: u64 = 1 << 18;

/// The inactive list and the active one. Their age is that of pages reclaimed or activated so far
/// (`nonresident_age`).
pub(super) type Lists = Shelves<2, 1, Classic>;

#[derive(Clone, Debug, Default)]
pub(super) struct Classic {
    /// Pages have come back since the latest reclaim.
    returned: bool,
}

impl Law<2, 1> for Classic {
    fn has_passed(pages: &Pages<2, 1>, stamp: u32) -> bool {
        pages.stamps[INACTIVE] == stamp && !pages.on[INACTIVE].is_empty()
    }
}

impl Default for Lists {
    fn default() -> Lists {
        Shelves::new(2, Classic::default())
    }
}

impl Lists {
    /// The pages of a file from `start` up to `end` have come in, as far as they are not here: they were
    /// read, or written.
    pub(super) fn insert(&mut self, file: u32, start: u64, end: u64, read: bool) {
        for (key, from, to) in pieces(start, end) {
            let at = self.find_or_add((file, key));
            let (age, active) = (self.age, self.lists[ACTIVE].pages());
            let block = &mut self.blocks[at as usize];
            let new = Block::of((from, to)).without(block.here());
            let is_recent = read && age - block.when <= active;
            let back = if is_recent { new.and(block.reclaimed) } else { Block::default() };
            let before = block.on.map(|on| on.pages());
            block.on = [block.on[INACTIVE].or(new.without(back)), block.on[ACTIVE].or(back)];
            block.reclaimed = block.reclaimed.without(new);
            let back = back.pages();
            self.age += back;
            self.law.returned |= back > 0;
            self.place(at, INACTIVE, before[INACTIVE], new.pages() - back);
            self.place(at, ACTIVE, before[ACTIVE], back);
        }
        self.tidy();
    }

    /// The pages of a file from `start` up to `end` were read (`folio_mark_accessed`).
    pub(super) fn access(&mut self, file: u32, start: u64, end: u64) {
        for (key, from, to) in pieces(start, end) {
            let Some(at) = self.find((file, key)) else { continue };
            let block = &mut self.blocks[at as usize];
            let read = Block::of((from, to)).and(block.here());
            let referenced = block.marks[REFERENCED];
            let again = read.and(referenced).without(block.on[ACTIVE]);
            block.marks[REFERENCED] = referenced.or(read).without(again);
            if !again.is_empty() {
                let before = block.on[ACTIVE].pages();
                block.on = [block.on[INACTIVE].without(again), block.on[ACTIVE].or(again)];
                let again = again.pages();
                self.lists[INACTIVE].ours -= again;
                self.age += again;
                self.place(at, ACTIVE, before, again);
            }
        }
        self.tidy();
    }

    /// `inactive_is_low`, mm/vmscan.c.
    fn is_low(inactive: u64, active: u64) -> bool {
        let ratio = match (inactive + active) / GIB {
            0 => 1,
            gib => (10 * gib).isqrt(),
        };
        inactive * ratio < active
    }

    /// How many pages move from the active list to the inactive one while `wanted` are reclaimed: both are
    /// scanned in proportion to their lengths (`get_scan_count`), if the inactive one is low or pages come
    /// back (`prepare_scan_control`).
    pub(super) fn to_deactivate([inactive, active]: [u64; 2], returned: bool, wanted: u64) -> u64 {
        if returned || Lists::is_low(inactive, active) {
            let part = u128::from(wanted) * u128::from(active) / u128::from(inactive.max(1));
            u64::try_from(part).unwrap_or(u64::MAX).min(wanted).min(active)
        } else {
            0
        }
    }

    /// Reclaims up to `wanted` pages; how many.
    pub(super) fn shrink(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let retake = |lists: &mut Lists, entry, wanted| lists.reclaim_entry(entry, wanted, files);
        let mut reclaimed = self.retake_passed(wanted, retake);
        while reclaimed < wanted {
            let turn = (wanted - reclaimed).min(BLOCK);
            self.deactivate(Lists::to_deactivate(self.pages(), self.law.returned, turn));
            let got = self.shrink_inactive(turn, files);
            reclaimed += got;
            if got == 0 {
                // The kernel has put what it has passed over on the active list, so the inactive one is low.
                if self.lists[ACTIVE].pages() == 0 {
                    break;
                }
                self.deactivate(turn);
            }
        }
        self.law.returned = false;
        self.end(reclaimed, self.pages().iter().sum());
        reclaimed
    }

    /// `shrink_inactive_list`.
    fn shrink_inactive(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let mut reclaimed = 0;
        while reclaimed < wanted
            && let Some(entry) = self.lists[INACTIVE].entries.pop_front()
        {
            let (got, stays) = self.reclaim_entry(entry, wanted - reclaimed, files);
            reclaimed += got;
            match stays {
                Some(entry) if reclaimed >= wanted => self.lists[INACTIVE].entries.push_front(entry),
                stays => self.passed.extend(stays),
            }
        }
        reclaimed
    }

    /// Reclaims up to `wanted` pages of an entry of the inactive list; how many, and the entry if it has
    /// more.
    fn reclaim_entry(
        &mut self,
        entry: Entry,
        wanted: u64,
        files: &mut impl Reclaimable,
    ) -> (u64, Option<Entry>) {
        let (at, stamp) = match entry {
            Entry::Strangers(pages) => {
                let got = pages.min(wanted);
                self.lists[INACTIVE].strangers -= got;
                self.age += got;
                return (got, (pages > got).then_some(Entry::Strangers(pages - got)));
            }
            Entry::Ours { at, stamp } => (at, stamp),
        };
        if !self.holds(at, stamp, INACTIVE) {
            return (0, None);
        }
        let block = &self.blocks[at as usize];
        let inactive = block.on[INACTIVE];
        let pages = inactive.and(files.clean(block.file, block.key)).lowest(wanted);
        let got = pages.pages();
        if got > 0 {
            self.reclaim(at, pages, files);
            self.age += got;
        }
        (got, (pages != inactive).then_some(entry))
    }

    /// `shrink_active_list`.
    fn deactivate(&mut self, pages: u64) {
        let mut left = pages;
        while left > 0
            && let Some(entry) = self.lists[ACTIVE].entries.pop_front()
        {
            match entry {
                Entry::Strangers(pages) => {
                    let part = pages.min(left);
                    left -= part;
                    self.lists[ACTIVE].strangers -= part;
                    self.add_last(INACTIVE, part);
                    if pages > part {
                        self.lists[ACTIVE].entries.push_front(Entry::Strangers(pages - part));
                    }
                }
                Entry::Ours { at, stamp } => {
                    let block = &mut self.blocks[at as usize];
                    if block.stamps[ACTIVE] != stamp {
                        continue;
                    }
                    let moved = block.on[ACTIVE].lowest(left);
                    let before = block.on[INACTIVE].pages();
                    block.on = [block.on[INACTIVE].or(moved), block.on[ACTIVE].without(moved)];
                    let stays = !block.on[ACTIVE].is_empty();
                    let moved = moved.pages();
                    left -= moved;
                    self.lists[ACTIVE].ours -= moved;
                    self.place(at, INACTIVE, before, moved);
                    if stays {
                        self.lists[ACTIVE].entries.push_front(entry);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
