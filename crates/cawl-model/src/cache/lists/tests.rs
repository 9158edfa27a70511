use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::shelves::{GONE, List, MIN_TIDIED, PATIENCE};
use super::*;

/// Pages that are in a cache; those of `dirty` are not clean.
#[derive(Default)]
pub(in crate::cache) struct Cached {
    pub(in crate::cache) pages: BTreeSet<(u32, u64)>,
    pub(in crate::cache) dirty: BTreeSet<(u32, u64)>,
}

impl Cached {
    /// Pages of a range are gone; how many.
    pub(in crate::cache) fn take(&mut self, file: u32, start: u64, end: u64) -> u64 {
        let before = self.pages.len();
        let is_there = |page: &(u32, u64)| page.0 == file && (start..end).contains(&page.1);
        self.pages.retain(|page| !is_there(page));
        self.dirty.retain(|page| !is_there(page));
        (before - self.pages.len()) as u64
    }

    /// Those of a range are dirty.
    pub(in crate::cache) fn dirty(&mut self, file: u32, start: u64, end: u64) {
        let pages: Vec<_> = self.pages.range((file, start)..(file, end)).copied().collect();
        self.dirty.extend(pages);
    }
}

impl Reclaimable for Cached {
    fn clean(&mut self, file: u32, key: u64) -> Block {
        let mut block = Block::default();
        for page in 0..BLOCK {
            let at = (file, key * BLOCK + page);
            if self.pages.contains(&at) && !self.dirty.contains(&at) {
                block.add((page, page + 1));
            }
        }
        block
    }

    fn reclaim(&mut self, file: u32, key: u64, pages: Block) {
        for page in pages.runs().flat_map(|(start, end)| start..end) {
            let at = (file, key * BLOCK + page);
            assert!(!self.dirty.contains(&at) && self.pages.remove(&at), "{at:?}");
        }
    }
}

/// A cache with its lists.
#[derive(Default)]
struct Memory {
    lists: Lists,
    cached: Cached,
}

impl Memory {
    fn read(&mut self, file: u32, start: u64, end: u64) {
        self.come(file, start, end, true);
        self.lists.access(file, start, end);
    }

    fn come(&mut self, file: u32, start: u64, end: u64, read: bool) {
        self.lists.insert(file, start, end, read);
        self.cached.pages.extend((start..end).map(|page| (file, page)));
    }

    fn shrink(&mut self, pages: u64) -> u64 {
        self.lists.shrink(pages, &mut self.cached)
    }

    /// A stream of reads while there is room for so many pages.
    fn stream(&mut self, file: u32, pages: u64, room: u64) {
        for at in (0..pages).step_by(32) {
            self.read(file, at, at + 32);
            let here = self.lists.pages().iter().sum::<u64>();
            if here > room {
                self.shrink(here - room);
            }
        }
    }

    fn share(&self, file: u32) -> u64 {
        self.cached.pages.range((file, 0)..(file + 1, 0)).count() as u64
    }
}

#[test]
fn what_came_first_is_reclaimed_first_whether_read_or_not() {
    let mut memory = Memory::default();
    memory.read(0, 0, 1000);
    memory.come(1, 0, 1000, false);
    assert_eq!(memory.lists.pages(), [2000, 0]);
    assert_eq!(memory.shrink(1200), 1200);
    assert_eq!((memory.share(0), memory.share(1)), (0, 800));
    assert!(memory.cached.pages.contains(&(1, 200)) && !memory.cached.pages.contains(&(1, 199)));
    assert_eq!(memory.shrink(10_000), 800);
}

#[test]
fn a_stream_that_does_not_fit_finds_nothing_when_it_comes_again() {
    let mut memory = Memory::default();
    memory.stream(0, 6000, 4000);
    assert_eq!((memory.share(0), memory.cached.pages.contains(&(0, 0))), (4000, false));
    // Nothing is active: nothing comes back.
    memory.stream(0, 2000, 4000);
    assert_eq!(memory.lists.pages(), [4000, 0]);
    assert!(memory.cached.pages.contains(&(0, 0)) && !memory.cached.pages.contains(&(0, 3000)));
}

#[test]
fn what_is_read_twice_survives_a_stream() {
    let mut memory = Memory::default();
    (0..2).for_each(|_| memory.read(0, 0, 1500));
    assert_eq!(memory.lists.pages(), [0, 1500]);
    // Twice by writing is not.
    (0..2).for_each(|_| memory.come(2, 0, 500, false));
    memory.stream(1, 10_000, 4000);
    assert_eq!((memory.share(0), memory.share(2), memory.share(1)), (1500, 0, 2500));
    // As long as the inactive list is the longer one.
    memory.stream(3, 1000, 1000);
    assert!((400..600).contains(&memory.share(0)), "{}", memory.share(0));
}

#[test]
fn what_comes_back_within_what_is_active_is_active_and_the_rest_of_it_ages() {
    let mut memory = Memory::default();
    (0..2).for_each(|_| memory.read(0, 0, 2000));
    // Twice as much as there is room for beside it; less than that is reclaimed before it comes again.
    for _ in 0..4 {
        memory.stream(1, 3200, 4000);
    }
    assert_eq!(memory.share(1), 3200, "it has taken the place of what is not read any more");
    assert!(memory.lists.pages()[1] >= 2000);
    // One that is longer than what is active does not come back.
    let mut memory = Memory::default();
    (0..2).for_each(|_| memory.read(0, 0, 1000));
    (0..4).for_each(|_| memory.stream(1, 6000, 4000));
    assert_eq!((memory.share(0), memory.lists.pages()[1]), (1000, 1000));
}

#[test]
fn dirty_pages_stay_until_they_are_clean_and_go_first_then() {
    let mut memory = Memory::default();
    memory.come(0, 0, 1024, false);
    memory.cached.dirty.extend((0..1024).map(|page| (0, page)));
    memory.read(1, 0, 1024);
    assert_eq!(memory.shrink(500), 500);
    assert_eq!((memory.share(0), memory.share(1)), (1024, 524));
    memory.cached.dirty.clear();
    assert_eq!(memory.shrink(1000), 1000);
    assert_eq!((memory.share(0), memory.share(1)), (24, 524));
    // Nothing but dirty pages: none.
    memory.cached.dirty = memory.cached.pages.clone();
    assert_eq!((memory.shrink(100), memory.shrink(100)), (0, 0));
    memory.cached.dirty.clear();
    assert_eq!(memory.shrink(1000), 548);
}

/// Pages passed over are on the active list, in the kernel: clean active ones are not spared for them.
#[test]
fn active_pages_go_before_dirty_ones() {
    let mut memory = Memory::default();
    (0..2).for_each(|_| memory.read(0, 0, 100));
    memory.come(1, 0, 2000, false);
    memory.cached.dirty.extend((0..2000).map(|page| (1, page)));
    assert_eq!(memory.shrink(100), 100);
    assert_eq!(memory.share(0), 0);
}

#[test]
fn pages_of_others_go_before_those_that_came_since() {
    let mut memory = Memory::default();
    memory.lists.begin([1000, 2000]);
    memory.read(0, 0, 500);
    // Pages that were there before are among them.
    assert_eq!(memory.lists.find_before(1, 0, 300), 0);
    memory.cached.pages.extend((0..300).map(|page| (1, page)));
    assert_eq!(memory.lists.pages(), [1500, 2000]);
    memory.shrink(700);
    assert_eq!((memory.share(0), memory.share(1)), (500, 300));
    memory.shrink(300);
    assert_eq!((memory.share(0), memory.share(1)), (500, 0));
    // The inactive list was low: active pages of others follow ours.
    assert!(memory.lists.pages()[1] < 2000, "{:?}", memory.lists.pages());
    memory.shrink(500);
    assert_eq!(memory.share(0), 0);
    // Another group's are not on these lists.
    let mut memory = Memory::default();
    memory.lists.begin([100, 50]);
    memory.lists.find_before(2, 0, 500);
    assert_eq!((memory.lists.pages(), memory.lists.ours()), ([100, 50], 0));
    // Those of a block that is known are on these, and new.
    memory.read(2, 500, 505);
    assert_eq!((memory.lists.find_before(2, 0, 505), memory.lists.pages()), (500, [605, 50]));
}

#[test]
fn what_others_read_comes_behind() {
    let mut memory = Memory::default();
    memory.read(0, 0, 1000);
    memory.lists.correct([3000, 500]);
    assert_eq!(memory.lists.pages(), [3000, 500]);
    memory.shrink(1000);
    assert_eq!(memory.share(0), 0);
    memory.lists.correct([100, 0]);
    assert_eq!(memory.lists.pages(), [100, 0]);
    // No fewer than those that are known.
    memory.read(1, 0, 300);
    memory.lists.correct([0, 0]);
    assert_eq!(memory.lists.pages(), [300, 0]);
}

#[test]
fn files_that_are_forgotten_are_those_of_others() {
    let mut memory = Memory::default();
    (0..2).for_each(|_| memory.read(0, 0, 600));
    memory.read(1, 0, 700);
    memory.lists.forget(|file| file == 0);
    assert_eq!((memory.lists.pages(), memory.lists.ours(), memory.lists.blocks()), ([700, 600], 700, 2));
}

#[test]
fn lists_are_bounded() {
    let mut lists = Lists::default();
    let mut nothing = Cached::default();
    // Of a page in each block nothing is left to know but when it went.
    for key in 0..3 * GONE as u64 {
        lists.insert(0, key * BLOCK, key * BLOCK + 1, true);
        nothing.pages.insert((0, key * BLOCK));
        lists.shrink(1, &mut nothing);
    }
    assert!(lists.blocks() <= GONE + 1, "{}", lists.blocks());
    // Blocks that come and go, and what others read between.
    for turn in 0..100_000 {
        lists.insert(1, 0, 1 + turn % 7, true);
        lists.correct([turn, turn / 2]);
        lists.drop(1, 0, 100);
    }
    let entries = |list: &List| list.entries.len();
    assert!(
        lists.lists.iter().all(|list| entries(list) < 2 * MIN_TIDIED),
        "{:?}",
        lists.lists.each_ref().map(entries)
    );
}

#[derive(Clone, Debug)]
pub(in crate::cache) enum Op {
    Insert(u32, u64, u64, bool),
    Access(u32, u64, u64),
    Drop(u32, u64, u64),
    Dirty(u32, u64, u64),
    Clean,
    Shrink(u64),
    Correct(u64, u64),
    Forget(u32),
    Find(u32, u64, u64),
}

pub(in crate::cache) fn op() -> impl Strategy<Value = Op> {
    let range = || (0..3u32, 0..2000u64, 1..700u64);
    prop_oneof![
        4 => (range(), any::<bool>()).prop_map(|((f, s, n), read)| Op::Insert(f, s, s + n, read)),
        4 => range().prop_map(|(f, s, n)| Op::Access(f, s, s + n)),
        1 => range().prop_map(|(f, s, n)| Op::Drop(f, s, s + n)),
        1 => range().prop_map(|(f, s, n)| Op::Dirty(f, s, s + n)),
        1 => Just(Op::Clean),
        4 => (1..900u64).prop_map(Op::Shrink),
        1 => (0..3000u64, 0..3000u64).prop_map(|(inactive, active)| Op::Correct(inactive, active)),
        1 => (0..3u32).prop_map(Op::Forget),
        1 => range().prop_map(|(f, s, n)| Op::Find(f, s, s + n)),
    ]
}

proptest! {
    /// Known pages on the lists are those that are cached, whatever happens, and each is on one list.
    #[test]
    fn the_lists_have_what_is_cached(ops in proptest::collection::vec(op(), 1..120)) {
        let mut memory = Memory::default();
        for op in ops {
            match op {
                Op::Insert(file, start, end, read) => memory.come(file, start, end, read),
                Op::Access(file, start, end) => memory.lists.access(file, start, end),
                Op::Drop(file, start, end) => {
                    let pages = memory.cached.take(file, start, end);
                    prop_assert_eq!(memory.lists.drop(file, start, end), pages);
                }
                Op::Dirty(file, start, end) => memory.cached.dirty(file, start, end),
                Op::Clean => memory.cached.dirty.clear(),
                Op::Shrink(wanted) => {
                    let before: u64 = memory.lists.pages().iter().sum();
                    let got = memory.shrink(wanted);
                    prop_assert!(got <= wanted);
                    prop_assert_eq!(before - got, memory.lists.pages().iter().sum::<u64>());
                    if got < wanted {
                        // A few of those passed over at a time.
                        let mut left = 2 * PATIENCE;
                        while left > 0 && memory.cached.pages.len() > memory.cached.dirty.len() {
                            memory.shrink(1000);
                            left -= 1;
                        }
                        prop_assert_eq!(memory.cached.pages.len(), memory.cached.dirty.len(), "all is dirty");
                    }
                }
                Op::Correct(inactive, active) => memory.lists.correct([inactive, active]),
                Op::Forget(file) => {
                    memory.lists.forget(|of| of == file);
                    memory.cached.take(file, 0, u64::MAX);
                }
                Op::Find(file, start, end) => {
                    // Within a block, so that all are found here or none.
                    let end = end.min(start / BLOCK * BLOCK + BLOCK);
                    let before = memory.lists.ours();
                    memory.lists.find_before(file, start, end);
                    if memory.lists.ours() > before {
                        memory.cached.pages.extend((start..end).map(|page| (file, page)));
                    }
                }
            }
            prop_assert_eq!(memory.lists.ours(), memory.cached.pages.len() as u64);
            let mut pages: BTreeMap<(u32, u64), Block> = BTreeMap::new();
            for (file, page) in &memory.cached.pages {
                let within = page % BLOCK;
                pages.entry((*file, page / BLOCK)).or_default().add((within, within + 1));
            }
            for ((file, key), here) in pages {
                let at = memory.lists.find((file, key)).expect("a block with pages is remembered");
                let block = &memory.lists.blocks[at as usize];
                prop_assert_eq!(block.here(), here);
                prop_assert_eq!(block.on[0].and(block.on[1]), Block::default());
                prop_assert_eq!(block.reclaimed.and(here), Block::default());
                // Where it has pages, it has an entry.
                for list in 0..2 {
                    let entry = Entry::Ours { at, stamp: block.stamps[list] };
                    let passed = list == INACTIVE && memory.lists.passed.contains(&entry);
                    let listed = passed || memory.lists.lists[list].entries.contains(&entry);
                    prop_assert!(block.on[list].is_empty() || listed, "{:?} on {}", block, list);
                }
            }
        }
    }
}
