//! The generations in which the kernel keeps the pages of files where the multi-generational LRU is on
//! (CONFIG_LRU_GEN; mm/vmscan.c, mm/workingset.c, mm/swap.c and include/linux/mm_inline.h, 6.12 and 6.14).
//!
//! The law, for files that are read and written by descriptor: there are two to four generations. A page that
//! comes in goes to the oldest one, to the next where there are four (`lru_gen_add_folio`). Reads only count
//! it, up to five (`folio_inc_refs`), and writes do not: nothing is moved until it is to be reclaimed. Its
//! *tier* is 0 if it was read once at most, 1 if twice, 2 up to four times, else 3. Reclaim takes pages from
//! the tail of the oldest generation. One that was read five times moves to the next generation instead and
//! is counted anew, and so does one of a higher tier than [`Generations::last_tier`] (`sort_folio`). The
//! others go, however often they were read. A dirty page moves to the youngest generation and goes first once
//! it is clean. A generation without pages ends (`try_to_inc_min_seq`), and a new one begins if two are left,
//! or if of three the oldest has less than a quarter of the pages or the youngest more than half
//! (`should_run_aging`).
//!
//! A tier is protected if its pages come back more than twice as often as those of tier 0 (`get_tier_idx`),
//! of all that went or were protected in this generation, and half of what was before (`reset_ctrl_pos`). A
//! page comes back if it is read while the generation that it was reclaimed from is still the oldest
//! (`lru_gen_test_recent`); it counts as read five times if it had been read four times. Pages of unknown
//! files are of tier 0.
//!
//! 6.14 ([`Control::reworked`]): the mark of a page that was read five times (PG_workingset) stays with it
//! when it is moved or comes back, and it comes back to a younger generation. Protected pages come to the
//! head of the next generation, not to its tail. Pages come back for four generations. More than 1.5 times as
//! often is enough for a tier. There are four generations whenever it can be.

use super::shelves::{Entry, Law, Pages, Reclaimable, Shelves};
use crate::block::Block;
use crate::pages::{BLOCK, pieces};

/// Generations at most, and those that are too young to be reclaimed (`MAX_NR_GENS`, `MIN_NR_GENS`).
const MAX: usize = 4;
const YOUNG: usize = 2;
/// Tiers of a generation (`MAX_NR_TIERS`).
const TIERS: usize = 4;
/// Pages that come back from a tier before that says something (`MIN_LRU_BATCH`).
const SAMPLE: u64 = 64;
/// Generations that are looked through while nothing can be reclaimed, as the kernel has priorities.
const PRIORITIES: u32 = 12;

/// The marks: how often a page was read, or had been when it was reclaimed, as a binary number.
const COUNT: usize = 3;
/// It was read five times, for 6.14.
const WORKINGSET: usize = 3;
/// It was to be reclaimed, and was not clean (PG_reclaim).
const PASSED: usize = 4;
const MARKS: usize = 5;

/// The oldest generation is the list that is reclaimed from; the age is its number (`min_seq`).
pub(super) type Generations = Shelves<MAX, MARKS, Control>;

/// What decides which tiers are protected.
#[derive(Clone, Debug, Default)]
pub(super) struct Control {
    tiers: [Tier; TIERS],
    /// The law is that of 6.14.
    reworked: bool,
    /// Generations begin only where nothing can be reclaimed else: a group's own reclaim begins at the lowest
    /// priority (`get_nr_to_scan`).
    lazy: bool,
}

/// Pages of a tier in the oldest generation and, halved with each, those before.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    /// That came back, and all that were reclaimed or protected.
    returned: u64,
    total: u64,
    returned_before: u64,
    total_before: u64,
}

impl Tier {
    /// `read_ctrl_pos`.
    fn position(self) -> (u64, u64) {
        (self.returned_before + self.returned, self.total_before + self.total)
    }

    /// `reset_ctrl_pos`.
    fn carried_over(self) -> Tier {
        let (returned, total) = self.position();
        Tier { returned_before: returned / 2, total_before: total / 2, ..Tier::default() }
    }
}

impl Law<MAX, MARKS> for Control {
    fn has_passed(pages: &Pages<MAX, MARKS>, _: u32) -> bool {
        !pages.marks[PASSED].is_empty()
    }
}

impl Pages<MAX, MARKS> {
    /// These pages by their tiers.
    fn tiers(&self, pages: Block) -> [Block; TIERS] {
        let [one, two, four, workingset, _] = self.marks.map(|mark| mark.and(pages));
        let last = four.and(one).or(workingset);
        let third = four.or(two.and(one)).without(last);
        let second = two.without(one).without(last);
        [pages.without(second.or(third).or(last)), second, third, last]
    }

    /// Those that are counted no further, and are protected in any case.
    fn most_read(&self) -> Block {
        let [one, _, four, workingset, _] = self.marks;
        four.and(one.or(workingset))
    }

    fn count_anew(&mut self, pages: Block) {
        self.marks[..COUNT].iter_mut().for_each(|mark| *mark = mark.without(pages));
    }
}

impl Generations {
    /// As they are when one has been reclaimed. `lazy`: those of a group with a limit.
    pub(super) fn of(reworked: bool, lazy: bool) -> Generations {
        Shelves::new(YOUNG + 1, Control { reworked, lazy, ..Control::default() })
    }

    fn generation(&self, place: usize) -> usize {
        (self.oldest + place) % MAX
    }

    /// A page that was reclaimed from the generation of this number would come back (`lru_gen_test_recent`).
    fn is_recent(&self, when: u64) -> bool {
        if self.law.reworked {
            self.age + (self.used as u64) - 1 - when < MAX as u64
        } else {
            when == self.age
        }
    }

    /// The pages of a file from `start` up to `end` have come in, as far as they are not here: they were
    /// read, or written.
    pub(super) fn insert(&mut self, file: u32, start: u64, end: u64, read: bool) {
        // The generation for pages that come in, and that for those with the mark of 6.14.
        let usual = self.generation(usize::from(self.used == MAX && !self.law.reworked));
        let younger = self.generation(usize::from(self.used == MAX));
        for (key, from, to) in pieces(start, end) {
            let at = self.find_or_add((file, key));
            let is_recent = read && self.is_recent(self.blocks[at as usize].when);
            let block = &mut self.blocks[at as usize];
            let new = Block::of((from, to)).without(block.here());
            let back = if is_recent { new.and(block.reclaimed) } else { Block::default() };
            for (tier, pages) in self.law.tiers.iter_mut().zip(block.tiers(back)) {
                tier.returned += pages.pages();
            }
            let [_, _, four, workingset, _] = block.marks.map(|mark| mark.and(back));
            block.marks = block.marks.map(|mark| mark.without(new));
            block.reclaimed = block.reclaimed.without(new);
            let mut young = Block::default();
            if self.law.reworked {
                young = workingset;
                block.marks[WORKINGSET] = block.marks[WORKINGSET].or(workingset);
            } else {
                block.marks[0] = block.marks[0].or(four);
                block.marks[2] = block.marks[2].or(four);
            }
            self.come(at, usual, new.without(young));
            self.come(at, younger, young);
        }
        self.tidy();
    }

    /// Pages of a block come to the head of a generation.
    fn come(&mut self, at: u32, generation: usize, pages: Block) {
        let on = &mut self.blocks[at as usize].on[generation];
        let before = on.pages();
        *on = on.or(pages);
        self.place(at, generation, before, pages.pages());
    }

    /// Takes pages of a block out of the oldest generation, to be put elsewhere.
    fn move_out(&mut self, at: u32, pages: Block) {
        let on = &mut self.blocks[at as usize].on[self.oldest];
        *on = on.without(pages);
        self.lists[self.oldest].ours -= pages.pages();
    }

    /// The pages of a file from `start` up to `end` were read (`folio_mark_accessed`).
    pub(super) fn access(&mut self, file: u32, start: u64, end: u64) {
        for (key, from, to) in pieces(start, end) {
            let Some(at) = self.find((file, key)) else { continue };
            let block = &mut self.blocks[at as usize];
            let mut carry = Block::of((from, to)).and(block.here()).without(block.most_read());
            for mark in &mut block.marks[..COUNT] {
                (*mark, carry) = (mark.or(carry).without(mark.and(carry)), mark.and(carry));
            }
            if self.law.reworked {
                let [one, _, four, workingset, _] = block.marks;
                block.marks[WORKINGSET] = workingset.or(four.and(one));
            }
        }
    }

    /// The last tier that is not protected (`get_tier_idx`, `positive_ctrl_err`).
    fn last_tier(&self) -> usize {
        let [first_gain, gain] = if self.law.reworked { [2, 3] } else { [1, 2] };
        let (first_returned, first_total) = self.law.tiers[0].position();
        let first = |of: u64, gain: u128| u128::from(of) * gain;
        let is_protected = |tier: &&Tier| {
            let (returned, total) = tier.position();
            returned >= SAMPLE
                && u128::from(returned) * first(first_total + SAMPLE, first_gain)
                    > u128::from(total) * first(first_returned + 1, gain)
        };
        self.law.tiers[1..].iter().take_while(|tier| !is_protected(tier)).count()
    }

    /// A new generation begins (`should_run_aging`).
    fn is_time(&self) -> bool {
        let [old, young] = [0, self.used - 1].map(|place| self.lists[self.generation(place)].pages());
        match self.used {
            YOUNG => true,
            MAX => false,
            _ if self.law.lazy => false,
            _ if self.law.reworked => true,
            _ => {
                let all = self.lists.iter().map(|list| list.pages()).sum();
                young * YOUNG as u64 > all || old * (YOUNG as u64 + 2) < all
            }
        }
    }

    /// Generations without pages end.
    fn end_generations(&mut self) {
        let before = self.age;
        while self.used > YOUNG && self.lists[self.oldest].entries.is_empty() {
            self.oldest = self.generation(1);
            self.used -= 1;
            self.age += 1;
        }
        if self.age > before {
            self.law.tiers = self.law.tiers.map(Tier::carried_over);
        }
    }

    /// Reclaims up to `wanted` pages; how many.
    pub(super) fn shrink(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let retake = |lists: &mut Generations, entry, wanted| lists.retake(entry, wanted, files);
        let mut reclaimed = self.retake_passed(wanted, retake);
        let mut in_vain = 0;
        while reclaimed < wanted && in_vain < PRIORITIES {
            self.used += usize::from(self.is_time());
            let got = self.evict((wanted - reclaimed).min(BLOCK), files);
            reclaimed += got;
            in_vain = if got > 0 { 0 } else { in_vain + 1 };
            self.end_generations();
        }
        self.end(reclaimed, if self.law.reworked { MAX as u64 - 1 } else { 0 });
        reclaimed
    }

    /// Reclaims up to `wanted` pages of the oldest generation (`evict_folios`).
    fn evict(&mut self, wanted: u64, files: &mut impl Reclaimable) -> u64 {
        let (oldest, last_tier) = (self.oldest, self.last_tier());
        let mut reclaimed = 0;
        while reclaimed < wanted
            && let Some(entry) = self.lists[oldest].entries.pop_front()
        {
            let left = wanted - reclaimed;
            let (at, stamp) = match entry {
                Entry::Strangers(pages) => {
                    let got = pages.min(left);
                    self.lists[oldest].strangers -= got;
                    self.law.tiers[0].total += got;
                    if pages > got {
                        self.lists[oldest].entries.push_front(Entry::Strangers(pages - got));
                    }
                    reclaimed += got;
                    continue;
                }
                Entry::Ours { at, stamp } => (at, stamp),
            };
            if !self.holds(at, stamp, oldest) {
                continue;
            }
            self.protect(at, last_tier);
            let block = &self.blocks[at as usize];
            let (here, clean) = (block.on[oldest], files.clean(block.file, block.key));
            self.pass_over(at, here.without(clean));
            let clean = here.and(clean);
            let pages = clean.lowest(left);
            self.reclaim_counted(at, pages, files);
            reclaimed += pages.pages();
            if pages == clean {
                self.blocks[at as usize].stamps[oldest] = 0;
            } else {
                self.lists[oldest].entries.push_front(entry);
            }
        }
        reclaimed
    }

    /// Moves what is protected of a block to the next generation (`sort_folio`).
    fn protect(&mut self, at: u32, last_tier: usize) {
        let block = &mut self.blocks[at as usize];
        let here = block.on[self.oldest];
        let most_read = block.most_read().and(here);
        let tiers = block.tiers(here);
        let mut kept = most_read;
        for (tier, pages) in tiers.into_iter().enumerate() {
            let of = if tier > last_tier { pages } else { pages.and(most_read) };
            kept = kept.or(of);
            // 6.14 does not count those that any control would protect.
            let counted = if self.law.reworked { of.without(most_read) } else { of };
            self.law.tiers[tier].total += counted.pages();
        }
        if kept.is_empty() {
            return;
        }
        block.count_anew(kept);
        let next = self.generation(1);
        self.move_out(at, kept);
        if self.law.reworked {
            self.come(at, next, kept);
        } else {
            let on = &mut self.blocks[at as usize].on[next];
            let before = on.pages();
            *on = on.or(kept);
            self.place_last(at, next, before, kept.pages());
        }
    }

    /// Pages of a block that are not clean move on, and go first once they are (`folio_rotate_reclaimable`).
    /// They have no place there.
    fn pass_over(&mut self, at: u32, pages: Block) {
        if pages.is_empty() {
            return;
        }
        self.move_out(at, pages);
        let to = self.generation(if self.law.reworked { 1 } else { self.used - 1 });
        self.lists[to].ours += pages.pages();
        let block = &mut self.blocks[at as usize];
        block.count_anew(pages);
        block.on[to] = block.on[to].or(pages);
        if block.marks[PASSED].is_empty() {
            self.passed.push_back(Entry::Ours { at, stamp: 0 });
        }
        block.marks[PASSED] = block.marks[PASSED].or(pages);
    }

    /// Reclaims up to `wanted` pages of a block that were passed over and are clean now; how many, and the
    /// entry if it has more.
    fn retake(&mut self, entry: Entry, wanted: u64, files: &mut impl Reclaimable) -> (u64, Option<Entry>) {
        let Entry::Ours { at, .. } = entry else { return (0, None) };
        let block = &self.blocks[at as usize];
        let passed = block.marks[PASSED];
        if passed.is_empty() {
            return (0, None);
        }
        let pages = passed.and(files.clean(block.file, block.key)).lowest(wanted);
        self.reclaim_counted(at, pages, files);
        (pages.pages(), (pages != passed).then_some(entry))
    }

    /// Reclaims pages of a block, of which it is remembered how often they were read (`lru_gen_eviction`).
    fn reclaim_counted(&mut self, at: u32, pages: Block, files: &mut impl Reclaimable) {
        if pages.is_empty() {
            return;
        }
        let is_recent = self.is_recent(self.blocks[at as usize].when);
        let block = &mut self.blocks[at as usize];
        for (tier, pages) in self.law.tiers.iter_mut().zip(block.tiers(pages)) {
            tier.total += pages.pages();
        }
        if !is_recent {
            block.reclaimed = Block::default();
        }
        let marks = block.marks;
        self.reclaim(at, pages, files);
        let block = &mut self.blocks[at as usize];
        for (mark, before) in block.marks[..PASSED].iter_mut().zip(marks) {
            *mark = mark.or(before.and(pages));
        }
    }
}

#[cfg(test)]
mod tests;
