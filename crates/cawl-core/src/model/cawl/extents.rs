//! The page cache of Alg. 1 (§4.4.1): every dirty byte lies in exactly one extent, every extent in exactly
//! one of the lists, and each list is in order of time.
//!
//! A write finds the extents that it overlaps. What overlaps has been accessed more than once and becomes
//! one *active* extent; what does not is new and becomes *inactive*; the parts of the old extents that the
//! write leaves alone stay as they are. The flusher takes the oldest inactive bytes. When the active ones
//! are the majority, the oldest of them are demoted; those wait in a list of their own, which is in order
//! too, so that the oldest inactive extent is always at the head of one of two lists.
//!
//! A write costs a search in one ordered map, O(log n), plus the extents it swallows, each of which was
//! paid for when it was made. Memory is in proportion to the extents that are dirty now.

use std::collections::BTreeMap;

use crate::units::{Bytes, Nanos};

/// A file's identity: device and inode number.
pub(super) type FileId = (u64, u64);

/// No extent.
const NONE: u32 = u32::MAX;

/// Which list an extent is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Accessed once.
    Inactive = 0,
    /// Was active, counts as inactive.
    Demoted = 1,
    /// Accessed more than once.
    Active = 2,
}

/// Dirty bytes of one file, from `start + cleaned` to `end`. Fills one cache line, and lies in one.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Extent {
    file: FileId,
    /// Key in the file's map; the bytes before `start + cleaned` are clean again.
    start: u64,
    end: u64,
    cleaned: u64,
    /// When the write that made it ended (that of its first part, if it grew), in ns.
    since: Nanos,
    older: u32,
    newer: u32,
    list: List,
}

impl Extent {
    fn from(&self) -> u64 {
        self.start + self.cleaned
    }
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    bytes: u64,
}

/// The dirty extents of every file.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    files: BTreeMap<FileId, BTreeMap<u64, u32>>,
    slots: Vec<Extent>,
    unused: Vec<u32>,
    queues: [Queue; 3],
    /// Two writes that meet in a file and are no further apart in time share an extent.
    grain: Nanos,
    /// Scratch: overlapping extents, and the ranges that were dirty before.
    hit: Vec<u32>,
    dirty_before: Vec<(u64, u64)>,
}

impl Extents {
    /// A clean cache.
    pub(super) fn new(grain: Nanos) -> Extents {
        Extents {
            files: BTreeMap::new(),
            slots: Vec::new(),
            unused: Vec::new(),
            queues: [Queue { oldest: NONE, newest: NONE, bytes: 0 }; 3],
            grain,
            hit: Vec::new(),
            dirty_before: Vec::new(),
        }
    }

    /// Dirty bytes of all files.
    pub(super) fn dirty(&self) -> Bytes {
        Bytes(self.queues.iter().map(|queue| queue.bytes).sum())
    }

    /// Alg. 1, `insert`: the write that ends at `now` has put `[start, end)` into the cache. Returns the
    /// bytes that were not dirty before. `now` must not be earlier than at the last insertion.
    pub(super) fn insert(&mut self, file: FileId, start: u64, end: u64, now: Nanos) -> Bytes {
        if start >= end {
            return Bytes::ZERO;
        }
        self.find(file, start, end);
        if let &[slot] = &self.hit[..]
            && self.refresh(slot, file, start, end, now)
        {
            return Bytes::ZERO;
        }
        let rewritten = self.carve(file, start, end);
        let active = std::mem::take(&mut self.dirty_before);
        let mut at = start;
        for &(from, to) in &active {
            if at < from {
                self.append(List::Inactive, file, at, from, now);
            }
            self.append(List::Active, file, from, to, now);
            at = to;
        }
        if at < end {
            self.append(List::Inactive, file, at, end, now);
        }
        self.dirty_before = active;
        Bytes(end - start).saturating_sub(rewritten)
    }

    /// Takes `[start, end)` of a file out of the cache; returns how much of it was dirty.
    pub(super) fn remove(&mut self, file: FileId, start: u64, end: u64) -> Bytes {
        if start >= end {
            return Bytes::ZERO;
        }
        self.find(file, start, end);
        self.carve(file, start, end)
    }

    /// Takes all files of a device, or of all devices, out of the cache; returns how much was dirty.
    pub(super) fn remove_all(&mut self, dev: Option<u64>) -> Bytes {
        let range = match dev {
            Some(dev) => (dev, 0)..=(dev, u64::MAX),
            None => (0, 0)..=(u64::MAX, u64::MAX),
        };
        let files: Vec<FileId> = self.files.range(range).map(|(file, _)| *file).collect();
        files.into_iter().map(|file| self.remove(file, 0, u64::MAX)).sum()
    }

    /// Where the file's last dirty byte ends, 0 if it has none: the best guess where an append goes.
    pub(super) fn end_of(&self, file: FileId) -> u64 {
        let last = self.files.get(&file).and_then(|map| map.last_key_value());
        last.map_or(0, |(_, &slot)| self.slots[slot as usize].end)
    }

    /// When the oldest extent of all was written.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let heads = self.queues.iter().filter(|queue| queue.oldest != NONE);
        heads.map(|queue| self.slots[queue.oldest as usize].since).reduce(Nanos::min)
    }

    /// Alg. 1, balance: demotes the oldest active extents until they are no more than half of the cache.
    pub(super) fn balance(&mut self) {
        let half = self.dirty().0 / 2;
        while self.queues[List::Active as usize].bytes > half {
            let slot = self.queues[List::Active as usize].oldest;
            self.unlink(slot);
            self.slots[slot as usize].list = List::Demoted;
            self.link_after(slot, self.queues[List::Demoted as usize].newest);
        }
    }

    /// Alg. 1: cleans at most `most` bytes of the oldest inactive extent, and stops where the active ones
    /// come to be more than half; returns how many bytes that is.
    pub(super) fn clean_oldest(&mut self, most: Bytes) -> Bytes {
        let head = |list: List| self.queues[list as usize].oldest;
        let slot = match (head(List::Inactive), head(List::Demoted)) {
            (NONE, NONE) => return Bytes::ZERO,
            (slot, NONE) | (NONE, slot) => slot,
            (a, b) if self.slots[a as usize].since <= self.slots[b as usize].since => a,
            (_, b) => b,
        };
        let balanced = self.dirty().0.saturating_sub(2 * self.queues[List::Active as usize].bytes) + 1;
        let extent = &mut self.slots[slot as usize];
        let size = extent.end - extent.from();
        let cleaned = size.min(most.0).min(balanced);
        extent.cleaned += cleaned;
        self.queues[extent.list as usize].bytes -= cleaned;
        if cleaned == size {
            let (file, start) = (extent.file, extent.start);
            self.release(slot);
            self.forget(file, start);
        }
        Bytes(cleaned)
    }

    /// Leaves the file's extents that overlap `[start, end)`, the last one first, in `hit`.
    fn find(&mut self, file: FileId, start: u64, end: u64) {
        self.hit.clear();
        let Some(map) = self.files.get(&file) else { return };
        // Extents do not overlap each other: walking back from the end, the first that ends before the
        // range means that all others do.
        for (_, &slot) in map.range(..end).rev() {
            if self.slots[slot as usize].end <= start {
                break;
            }
            self.hit.push(slot);
        }
    }

    /// A shortcut for writing once more exactly what an extent holds: it becomes the youngest active one
    /// where it is. False if that is not the case, or if it would grow the youngest active one.
    fn refresh(&mut self, slot: u32, file: FileId, start: u64, end: u64, now: Nanos) -> bool {
        let extent = self.slots[slot as usize];
        if (extent.start, extent.end, extent.cleaned) != (start, end, 0)
            || self.grows(List::Active, file, start, now)
        {
            return false;
        }
        self.unlink(slot);
        (self.slots[slot as usize].list, self.slots[slot as usize].since) = (List::Active, now);
        self.link_after(slot, self.queues[List::Active as usize].newest);
        true
    }

    /// Cuts `[start, end)` out of the file's extents in `hit`, leaving what was dirty there, merged and in
    /// order, in `dirty_before`. Returns how many bytes that is.
    fn carve(&mut self, file: FileId, start: u64, end: u64) -> Bytes {
        self.dirty_before.clear();
        if self.hit.is_empty() {
            return Bytes::ZERO;
        }
        let mut bytes = 0;
        for i in (0..self.hit.len()).rev() {
            let slot = self.hit[i];
            let old = self.slots[slot as usize];
            let (from, to) = (old.from().max(start), old.end.min(end));
            let overlap = to.saturating_sub(from);
            if overlap > 0 {
                bytes += overlap;
                self.queues[old.list as usize].bytes -= overlap;
                match self.dirty_before.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => self.dirty_before.push((from, to)),
                }
            }
            let (left, right) = (old.from() < start, old.end > end);
            if left {
                self.slots[slot as usize].end = start.min(old.end);
            }
            let rest = old.from().max(end);
            match (left, right) {
                (true, true) => {
                    // As old as its left part, so next to it in the list.
                    let slot = self.occupy(Extent { start: rest, cleaned: 0, ..old });
                    self.link_after_uncounted(slot, self.hit[i]);
                    self.files.entry(file).or_default().insert(rest, slot);
                }
                (false, true) => {
                    let extent = &mut self.slots[slot as usize];
                    (extent.start, extent.cleaned) = (rest, 0);
                    self.files.entry(file).or_default().remove(&old.start);
                    self.files.entry(file).or_default().insert(rest, slot);
                }
                (true, false) => {}
                (false, false) => {
                    self.release(slot);
                    self.files.entry(file).or_default().remove(&old.start);
                }
            }
        }
        if self.files.get(&file).is_some_and(BTreeMap::is_empty) {
            self.files.remove(&file);
        }
        Bytes(bytes)
    }

    /// Puts a range where no extent is at the young end of a list, into its youngest extent if it goes on
    /// from there.
    fn append(&mut self, list: List, file: FileId, start: u64, end: u64, now: Nanos) {
        let newest = self.queues[list as usize].newest;
        if self.grows(list, file, start, now) {
            self.slots[newest as usize].end = end;
            self.queues[list as usize].bytes += end - start;
            return;
        }
        let extent = Extent { file, start, end, cleaned: 0, since: now, older: NONE, newer: NONE, list };
        let slot = self.occupy(extent);
        self.link_after(slot, newest);
        self.files.entry(file).or_default().insert(start, slot);
    }

    /// True if a write at `start` goes on from the list's youngest extent, soon enough to share it.
    fn grows(&self, list: List, file: FileId, start: u64, now: Nanos) -> bool {
        let newest = self.queues[list as usize].newest;
        newest != NONE && {
            let last = &self.slots[newest as usize];
            last.end == start && last.file == file && now.saturating_sub(last.since) <= self.grain
        }
    }

    fn forget(&mut self, file: FileId, start: u64) {
        if let Some(map) = self.files.get_mut(&file) {
            map.remove(&start);
            if map.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    fn occupy(&mut self, extent: Extent) -> u32 {
        if let Some(slot) = self.unused.pop() {
            self.slots[slot as usize] = extent;
            return slot;
        }
        self.slots.push(extent);
        (self.slots.len() - 1) as u32
    }

    /// Links an extent into its list behind `older` and counts its bytes.
    fn link_after(&mut self, slot: u32, older: u32) {
        let extent = self.slots[slot as usize];
        self.queues[extent.list as usize].bytes += extent.end - extent.from();
        self.link_after_uncounted(slot, older);
    }

    fn link_after_uncounted(&mut self, slot: u32, older: u32) {
        let queue = &mut self.queues[self.slots[slot as usize].list as usize];
        let newer = match older {
            NONE => std::mem::replace(&mut queue.oldest, slot),
            _ => std::mem::replace(&mut self.slots[older as usize].newer, slot),
        };
        match newer {
            NONE => queue.newest = slot,
            _ => self.slots[newer as usize].older = slot,
        }
        (self.slots[slot as usize].older, self.slots[slot as usize].newer) = (older, newer);
    }

    /// Takes an extent out of its list, its bytes too.
    fn unlink(&mut self, slot: u32) {
        let extent = self.slots[slot as usize];
        self.queues[extent.list as usize].bytes -= extent.end - extent.from();
        self.unlink_uncounted(extent);
    }

    fn unlink_uncounted(&mut self, extent: Extent) {
        let queue = &mut self.queues[extent.list as usize];
        match extent.older {
            NONE => queue.oldest = extent.newer,
            older => self.slots[older as usize].newer = extent.newer,
        }
        match extent.newer {
            NONE => queue.newest = extent.older,
            newer => self.slots[newer as usize].older = extent.older,
        }
    }

    /// Gives back the slot of an extent whose bytes are counted no more.
    fn release(&mut self, slot: u32) {
        self.unlink_uncounted(self.slots[slot as usize]);
        self.unused.push(slot);
    }
}

#[cfg(test)]
impl Extents {
    /// Every extent as (file, from, to, active), in file order; checks the structure on the way.
    pub(super) fn dump(&self) -> Vec<(FileId, u64, u64, bool)> {
        let mut found = Vec::new();
        for (&file, map) in &self.files {
            assert!(!map.is_empty());
            let mut last = 0;
            for (&start, &slot) in map {
                let extent = &self.slots[slot as usize];
                assert_eq!((extent.file, extent.start), (file, start));
                assert!(last <= start && extent.from() < extent.end);
                last = extent.end;
                found.push((file, extent.from(), extent.end, extent.list == List::Active));
            }
        }
        let mut listed = 0;
        for queue in &self.queues {
            let (mut slot, mut older, mut bytes, mut since) = (queue.oldest, NONE, 0, Nanos::ZERO);
            while slot != NONE {
                let extent = &self.slots[slot as usize];
                assert_eq!(extent.older, older);
                assert!(extent.since >= since);
                bytes += extent.end - extent.from();
                (older, slot, since) = (slot, extent.newer, extent.since);
                listed += 1;
            }
            assert_eq!((queue.newest, queue.bytes), (older, bytes));
        }
        assert_eq!(listed, found.len());
        assert_eq!(self.slots.len() - self.unused.len(), found.len());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: FileId = (1, 10);
    const B: FileId = (1, 11);

    fn at(ns: u64) -> Nanos {
        Nanos::new(ns as f64)
    }

    fn cache() -> Extents {
        Extents::new(Nanos::ZERO)
    }

    #[test]
    fn alg_1_insert_splits_into_unchanged_active_and_inactive() {
        let mut cache = cache();
        assert_eq!(cache.insert(A, 0, 100, at(1)), Bytes(100));
        // Half over the old extent, half beyond it: only the half beyond is newly dirty.
        assert_eq!(cache.insert(A, 50, 150, at(2)), Bytes(50));
        assert_eq!(cache.dump(), [(A, 0, 50, false), (A, 50, 100, true), (A, 100, 150, false)]);
        // Into the middle of the first: it stays on both sides.
        assert_eq!(cache.insert(A, 20, 30, at(3)), Bytes(0));
        assert_eq!(cache.dump()[..3], [(A, 0, 20, false), (A, 20, 30, true), (A, 30, 50, false)]);
        assert_eq!(cache.dirty(), Bytes(150));
    }

    #[test]
    fn alg_1_writing_exactly_the_same_again_makes_it_active() {
        let mut cache = cache();
        for start in [0, 100, 200] {
            cache.insert(A, start, start + 100, at(start + 1));
        }
        assert_eq!(cache.insert(A, 100, 200, at(500)), Bytes(0));
        assert_eq!(cache.dump(), [(A, 0, 100, false), (A, 100, 200, true), (A, 200, 300, false)]);
        assert_eq!((cache.dirty(), cache.oldest()), (Bytes(300), Some(at(1))));
    }

    #[test]
    fn files_do_not_overlap_each_other() {
        let mut cache = cache();
        cache.insert(A, 0, 100, at(1));
        assert_eq!(cache.insert(B, 0, 100, at(2)), Bytes(100));
        assert_eq!(cache.remove_all(Some(1)), Bytes(200));
        assert!(cache.dump().is_empty());
    }

    #[test]
    fn alg_1_the_oldest_inactive_is_cleaned_first_in_part_if_need_be() {
        let mut cache = cache();
        cache.insert(B, 0, 100, at(1));
        cache.insert(A, 0, 100, at(2));
        assert_eq!(cache.clean_oldest(Bytes(30)), Bytes(30));
        assert_eq!(cache.dump(), [(A, 0, 100, false), (B, 30, 100, false)]);
        assert_eq!(cache.clean_oldest(Bytes(1000)), Bytes(70));
        assert_eq!(cache.oldest(), Some(at(2)));
    }

    #[test]
    fn a_cleaned_part_can_be_dirtied_again() {
        let mut cache = cache();
        cache.insert(A, 0, 100, at(1));
        cache.clean_oldest(Bytes(30));
        assert_eq!(cache.insert(A, 0, 40, at(2)), Bytes(30));
        assert_eq!(cache.dump(), [(A, 0, 30, false), (A, 30, 40, true), (A, 40, 100, false)]);
    }

    #[test]
    fn alg_1_balance_demotes_the_oldest_active_down_to_half() {
        let mut cache = cache();
        for start in [0, 100, 200] {
            cache.insert(A, start, start + 100, at(1));
        }
        for (start, time) in [(100, 2), (0, 3), (200, 4)] {
            cache.insert(A, start, start + 100, at(time));
        }
        cache.balance();
        let active: Vec<_> = cache.dump().into_iter().map(|(_, from, _, active)| (from, active)).collect();
        assert_eq!(active, [(0, false), (100, false), (200, true)]);
        // The demoted ones are cleaned in the order of their age.
        assert_eq!(cache.clean_oldest(Bytes(100)), Bytes(100));
        assert_eq!(cache.dump()[0].1, 0);
    }

    #[test]
    fn writes_that_follow_each_other_share_an_extent_within_the_grain() {
        let mut cache = Extents::new(at(10));
        for (i, time) in [1, 5, 11, 12].into_iter().enumerate() {
            cache.insert(A, i as u64 * 10, i as u64 * 10 + 10, at(time));
        }
        assert_eq!(cache.dump(), [(A, 0, 30, false), (A, 30, 40, false)]);
        assert_eq!(cache.end_of(A), 40);
    }

    /// A cache of single bytes, slow and obvious.
    #[derive(Default)]
    struct Bytewise {
        dirty: BTreeMap<(FileId, u64), bool>,
    }

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u64, u64, u64),
        Remove(u64, u64, u64),
        Clean(u64),
        Balance,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Coarse places, so that ranges often coincide.
        let range = || (0u64..3, (0u64..24).prop_map(|s| s * 5), (0u64..12).prop_map(|n| n * 5));
        prop_oneof![
            6 => range().prop_map(|(f, s, n)| Operation::Insert(f, s, s + n)),
            2 => range().prop_map(|(f, s, n)| Operation::Remove(f, s, s + n)),
            3 => (0u64..80).prop_map(Operation::Clean),
            1 => Just(Operation::Balance),
        ]
    }

    proptest! {
        #[test]
        fn extents_agree_with_single_bytes(
            operations in prop::collection::vec(operation(), 1..120),
            grain in 0u64..5,
        ) {
            let mut cache = Extents::new(at(grain));
            let mut plain = Bytewise::default();
            for (time, operation) in operations.into_iter().enumerate() {
                let before = cache.dirty();
                match operation {
                    Operation::Insert(file, start, end) => {
                        let new = cache.insert((0, file), start, end, at(time as u64));
                        for byte in start..end {
                            let again = plain.dirty.contains_key(&((0, file), byte));
                            plain.dirty.insert(((0, file), byte), again);
                        }
                        prop_assert_eq!(before + new, cache.dirty());
                    }
                    Operation::Remove(file, start, end) => {
                        let gone = cache.remove((0, file), start, end);
                        for byte in start..end {
                            plain.dirty.remove(&((0, file), byte));
                        }
                        prop_assert_eq!(before, cache.dirty() + gone);
                    }
                    Operation::Clean(most) => {
                        let cleaned = cache.clean_oldest(Bytes(most));
                        prop_assert_eq!(before, cache.dirty() + cleaned);
                        // Which bytes went is the list order's business: take it over.
                        plain.dirty = bytes(&cache);
                    }
                    Operation::Balance => {
                        cache.balance();
                        plain.dirty = bytes(&cache);
                    }
                }
                prop_assert_eq!(&bytes(&cache), &plain.dirty);
            }
        }
    }

    fn bytes(cache: &Extents) -> BTreeMap<(FileId, u64), bool> {
        let extents = cache.dump().into_iter();
        extents.flat_map(|(file, from, to, active)| (from..to).map(move |b| ((file, b), active))).collect()
    }
}
