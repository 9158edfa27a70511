use proptest::prelude::*;

use super::*;

impl Extents {
    /// Every extent as (file, from, to, active), in file order; checks the structure on the way.
    pub(in crate::cawl) fn dump(&self) -> Vec<(FileId, u64, u64, bool)> {
        let (mut bytes, mut found) = ([0; 2], Vec::new());
        for (&file, extents) in &self.files {
            assert!(!extents.is_empty());
            let mut free = 0;
            for (&start, extent) in extents {
                assert!(start < extent.end && free <= start);
                free = extent.end;
                bytes[extent.list as usize] += extent.end - start;
                assert!(self.lists[extent.list as usize].contains(&(extent.since, file, start)));
                found.push((file, start, extent.end, extent.list == List::Active));
            }
        }
        assert_eq!((self.bytes, self.len()), (bytes, found.len()));
        found
    }
}

const PAGE: u64 = 4096;

const A: FileId = FileId::new(1, 10);
const B: FileId = FileId::new(1, 11);

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

#[test]
fn alg_1_the_order_is_that_of_time_among_files_and_blocks() {
    let mut cache = cache();
    let places = [(A, 7 * PAGE), (B, 0), (A, 30 * PAGE), (B, 1000 * PAGE), (A, 0)];
    for (time, (file, start)) in places.into_iter().enumerate() {
        cache.insert(file, start, start + PAGE, at(time as u64));
    }
    // The second again: it is the last then, and active.
    cache.insert(B, 0, PAGE, at(9));
    for (file, start) in [places[0], places[2], places[3], places[4], places[1]] {
        assert!(cache.dump().iter().any(|extent| (extent.0, extent.1) == (file, start)));
        // It stops where the active ones come to be the majority.
        let mut left = Bytes(PAGE);
        while !left.is_zero() {
            cache.balance();
            left = left.saturating_sub(cache.clean_oldest(left));
        }
        assert!(cache.dump().iter().all(|extent| (extent.0, extent.1) != (file, start)));
    }
    assert_eq!((cache.dirty(), cache.oldest()), (Bytes(0), None));
}

#[test]
fn what_is_written_in_a_row_is_one_extent() {
    let mut cache = Extents::new(at(10));
    let all = 1000 * PAGE;
    for start in (0..all).step_by(PAGE as usize) {
        cache.insert(A, start, start + PAGE, at(5));
    }
    assert_eq!(cache.dump(), [(A, 0, all, false)]);
    // However long, and again; backwards too.
    cache.insert(A, all, 1 << 50, at(6));
    cache.insert(A, 3 * PAGE, 1 << 49, at(7));
    cache.insert(A, PAGE, 3 * PAGE, at(8));
    assert_eq!(cache.len(), 3);
    assert_eq!(cache.remove(A, 5 * PAGE + 1, 1 << 50), Bytes((1 << 50) - 5 * PAGE - 1));
    assert_eq!(cache.dump(), [(A, 0, PAGE, false), (A, PAGE, 5 * PAGE + 1, true)]);
    assert_eq!(cache.end_of(A), 5 * PAGE + 1);
}

/// A cache of ranges that are active or not, slow and obvious.
#[derive(Default)]
struct Plain {
    dirty: Vec<(FileId, u64, u64, bool)>,
}

impl Plain {
    /// Takes a range out; returns what was dirty there.
    fn take(&mut self, file: FileId, start: u64, end: u64) -> Vec<(FileId, u64, u64, bool)> {
        let (mut kept, mut taken) = (Vec::new(), Vec::new());
        for (of, from, to, active) in self.dirty.drain(..) {
            if of != file || to <= start || end <= from {
                kept.push((of, from, to, active));
                continue;
            }
            taken.push((of, from.max(start), to.min(end), active));
            kept.extend((from < start).then_some((of, from, start, active)));
            kept.extend((end < to).then_some((of, end, to, active)));
        }
        self.dirty = kept;
        taken
    }

    fn insert(&mut self, file: FileId, start: u64, end: u64) {
        let mut again = self.take(file, start, end);
        again.sort_unstable();
        let mut at = start;
        for (_, from, to, _) in again {
            self.dirty.extend([(file, at, from, false), (file, from, to, true)]);
            at = to;
        }
        self.dirty.push((file, at, end, false));
    }

    /// In order, without empty ranges, those that touch as one.
    fn ranges(&self) -> Vec<(FileId, u64, u64, bool)> {
        joined(self.dirty.iter().copied().filter(|(_, from, to, _)| from < to).collect())
    }
}

fn joined(mut ranges: Vec<(FileId, u64, u64, bool)>) -> Vec<(FileId, u64, u64, bool)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let goes_on = (last.0, last.2, last.3) == (next.0, next.1, next.3);
        if goes_on {
            last.2 = next.2;
        }
        goes_on
    });
    ranges
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
    fn extents_agree_with_plain_ranges(
        operations in prop::collection::vec(operation(), 1..120),
        grain in 0u64..5,
        unit in prop::sample::select(vec![1, 700]),
    ) {
        let mut cache = Extents::new(at(grain));
        let mut plain = Plain::default();
        let place = |at: u64| at * unit;
        for (time, operation) in operations.into_iter().enumerate() {
            let (before, oldest) = (cache.dirty(), cache.oldest());
            match operation {
                Operation::Insert(file, start, end) => {
                    let new = cache.insert(FileId::new(0, file), place(start), place(end), at(time as u64));
                    plain.insert(FileId::new(0, file), place(start), place(end));
                    prop_assert_eq!(before + new, cache.dirty());
                }
                Operation::Remove(file, start, end) => {
                    let gone = cache.remove(FileId::new(0, file), place(start), place(end));
                    plain.take(FileId::new(0, file), place(start), place(end));
                    prop_assert_eq!(before, cache.dirty() + gone);
                }
                Operation::Clean(most) => {
                    let cleaned = cache.clean_oldest(Bytes(most * unit));
                    prop_assert_eq!(before, cache.dirty() + cleaned);
                    prop_assert!(cleaned <= Bytes(most * unit));
                    let inactive = plain.ranges().iter().any(|(.., active)| !active);
                    prop_assert!(cleaned > Bytes(0) || most == 0 || !inactive);
                    prop_assert!(cache.oldest().is_none_or(|now| Some(now) >= oldest));
                    // Which bytes went is the lists' business: take it over.
                    plain.dirty = cache.dump();
                }
                Operation::Balance => {
                    cache.balance();
                    plain.dirty = cache.dump();
                }
            }
            prop_assert_eq!(joined(cache.dump()), plain.ranges());
        }
    }
}
