//! The page cache of Alg. 1 (§4.4.1): extents of dirty bytes in two lists, each in order of age.
//!
//! What a write finds dirty has been accessed more than once and becomes *active*; what it does not find is
//! new and becomes *inactive*; the rest of the file stays as it is. The flusher takes the oldest inactive
//! bytes. When the active ones are the majority, the oldest of them become inactive, with their age.
//!
//! What is written within a grain of time has one age, and neighbours of one list and age are one extent. So
//! a write costs O(log n), and memory is in proportion to the extents: about 170 bytes for each.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use cawl_wire::FileId;

use crate::units::{Bytes, Nanos, Time};

/// Dirty bytes of a file that share list and age; where they begin is their key.
#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    list: List,
    /// When the first write of this age ended, by the model's clock.
    since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Accessed once, or demoted.
    Inactive,
    /// Accessed more than once.
    Active,
}

/// The dirty bytes of every file.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    /// The extents of each file that has any; they do not overlap.
    files: BTreeMap<FileId, BTreeMap<u64, Extent>>,
    /// The extents of each list by age; those of one age by their place.
    lists: [BTreeSet<(Time, FileId, u64)>; 2],
    /// Bytes in each list.
    bytes: [u64; 2],
    /// The age of what was written last.
    youngest: Option<Time>,
    grain: Nanos,
}

impl Extents {
    /// A clean cache; writes that end within `grain` of the first of an age are of that age.
    pub(super) fn new(grain: Nanos) -> Extents {
        Extents { files: BTreeMap::new(), lists: Default::default(), bytes: [0; 2], youngest: None, grain }
    }

    pub(super) fn dirty(&self) -> Bytes {
        Bytes(self.bytes.iter().sum())
    }

    /// How many extents there are.
    pub(super) fn len(&self) -> usize {
        self.lists.iter().map(BTreeSet::len).sum()
    }

    /// When the oldest dirty byte of all was written, to a grain.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let firsts = self.lists.iter().filter_map(BTreeSet::first);
        firsts.map(|(since, ..)| *since - Time(0)).reduce(Nanos::min)
    }

    /// Where the file's last dirty byte ends, 0 if it has none: the best guess where an append goes.
    pub(super) fn end_of(&self, file: FileId) -> u64 {
        let last = self.files.get(&file).and_then(BTreeMap::last_key_value);
        last.map_or(0, |(_, last)| last.end)
    }

    /// Alg. 1, `insert`: the write that ends at `now` has put `[start, end)` into the cache. Returns the
    /// bytes that were not dirty before. `now` must not be earlier than at the last insertion.
    pub(super) fn insert(&mut self, file: FileId, start: u64, end: u64, now: Nanos) -> Bytes {
        let now = Time(0) + now;
        let since = self.youngest.filter(|since| now - *since <= self.grain).unwrap_or(now);
        self.youngest = Some(since);
        // What is active and of this age stays so, and a block that is rewritten keeps its place.
        if let Some((&from, extent)) =
            self.files.get_mut(&file).and_then(|of| of.range_mut(..=start).next_back())
            && end <= extent.end
        {
            if (extent.list, extent.since) == (List::Active, since) {
                return Bytes::ZERO;
            }
            if (from, extent.end) == (start, end) {
                let old = std::mem::replace(extent, Extent { end, list: List::Active, since });
                self.uncount(file, start, old);
                self.count(file, start, Extent { end, list: List::Active, since });
                return Bytes::ZERO;
            }
        }
        let (mut at, mut new) = (start, 0);
        for (from, to) in self.take(file, start, end) {
            new += from - at;
            self.put(file, at, Extent { end: from, list: List::Inactive, since });
            self.put(file, from, Extent { end: to, list: List::Active, since });
            at = to;
        }
        self.put(file, at, Extent { end, list: List::Inactive, since });
        Bytes(new + end.saturating_sub(at))
    }

    /// Takes `[start, end)` of a file out of the cache; returns how much of it was dirty.
    pub(super) fn remove(&mut self, file: FileId, start: u64, end: u64) -> Bytes {
        Bytes(self.take(file, start, end).into_iter().map(|(from, to)| to - from).sum())
    }

    /// Takes all files of a device, or of all devices, out of the cache; returns how much was dirty.
    pub(super) fn remove_all(&mut self, dev: Option<u64>) -> Bytes {
        let (first, last) = dev.map_or((0, u64::MAX), |dev| (dev, dev));
        let last = FileId { dev: last, ino: u64::MAX, birth: u32::MAX };
        let files = self.files.range(FileId::new(first, 0)..=last);
        let files: Vec<FileId> = files.map(|(file, _)| *file).collect();
        files.into_iter().map(|file| self.remove(file, 0, u64::MAX)).sum()
    }

    /// Alg. 1, balance: demotes the oldest active extents until they are no more than half of the cache.
    pub(super) fn balance(&mut self) {
        while self.bytes[List::Active as usize] > self.dirty().0 / 2
            && let Some(&(since, file, start)) = self.lists[List::Active as usize].first()
            && let Some(extent) = self.unlink(file, start)
        {
            self.put(file, start, Extent { list: List::Inactive, since, ..extent });
        }
    }

    /// Alg. 1: cleans at most `most` bytes of the oldest inactive extent, and stops where the active ones
    /// come to be more than half; returns how many bytes that is.
    pub(super) fn clean_oldest(&mut self, most: Bytes) -> Bytes {
        let Some(&(_, file, start)) = self.lists[List::Inactive as usize].first() else { return Bytes::ZERO };
        let balanced = self.dirty().0.saturating_sub(2 * self.bytes[List::Active as usize]) + 1;
        let end = start.saturating_add(most.0.min(balanced));
        let extent = self.files.get(&file).and_then(|of| of.get(&start)).map_or(start, |extent| extent.end);
        self.remove(file, start, end.min(extent))
    }

    /// Takes `[start, end)` of a file out of the cache; returns what was dirty there, in order.
    fn take(&mut self, file: FileId, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut taken = Vec::new();
        while start < end
            && let Some((&from, last)) = self.files.get(&file).and_then(|of| of.range(..end).next_back())
            && last.end > start
            && let Some(extent) = self.unlink(file, from)
        {
            taken.push((from.max(start), extent.end.min(end)));
            if from < start {
                self.link(file, from, Extent { end: start, ..extent });
            }
            if end < extent.end {
                self.link(file, end, extent);
            }
        }
        taken.reverse();
        taken
    }

    /// Puts an extent where nothing is dirty; with its neighbours it is one, if they are alike.
    fn put(&mut self, file: FileId, start: u64, mut extent: Extent) {
        if start >= extent.end {
            return;
        }
        let Extent { list, since, .. } = extent;
        let alike = |other: &Extent| (other.list, other.since) == (list, since);
        if self.files.get(&file).and_then(|of| of.get(&extent.end)).is_some_and(alike)
            && let Some(next) = self.unlink(file, extent.end)
        {
            extent.end = next.end;
        }
        match self.files.entry(file).or_default().range_mut(..start).next_back() {
            Some((_, before)) if before.end == start && alike(before) => {
                before.end = extent.end;
                self.bytes[list as usize] += extent.end - start;
            }
            _ => self.link(file, start, extent),
        }
    }

    fn link(&mut self, file: FileId, start: u64, extent: Extent) {
        self.count(file, start, extent);
        self.files.entry(file).or_default().insert(start, extent);
    }

    fn unlink(&mut self, file: FileId, start: u64) -> Option<Extent> {
        let of = self.files.get_mut(&file)?;
        let extent = of.remove(&start)?;
        if of.is_empty() {
            self.files.remove(&file);
        }
        self.uncount(file, start, extent);
        Some(extent)
    }

    /// An extent comes into its list.
    fn count(&mut self, file: FileId, start: u64, extent: Extent) {
        self.bytes[extent.list as usize] += extent.end - start;
        self.lists[extent.list as usize].insert((extent.since, file, start));
    }

    /// An extent leaves its list.
    fn uncount(&mut self, file: FileId, start: u64, extent: Extent) {
        self.bytes[extent.list as usize] -= extent.end - start;
        self.lists[extent.list as usize].remove(&(extent.since, file, start));
    }
}
