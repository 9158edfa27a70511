//! A map that remembers what was lately used and forgets the rest: threads, processes and streams come and
//! go for months, and few of them say goodbye.
//!
//! Entries live in two generations. What is put is young; when the young are [`CAPACITY`], they become
//! the old ones, and what was left of those is forgotten. So the latest [`CAPACITY`] keys put are always
//! remembered, never more than twice as many, at constant cost and alike in every replay.

use std::hash::Hash;

use super::cache::Map;

/// Keys that are surely remembered.
pub const CAPACITY: usize = 1 << 14;

/// A map of the keys used last.
#[derive(Clone, Debug, Default)]
pub struct LruMap<K, V> {
    young: Map<K, V>,
    old: Map<K, V>,
}

impl<K: Hash + Eq, V> LruMap<K, V> {
    /// The value of a key, if it is remembered.
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    /// The value of a key used now, begun anew if it is not remembered.
    pub fn of(&mut self, key: K) -> &mut V
    where
        K: Copy,
        V: Default,
    {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_default();
            self.put(key, value);
        }
        self.young.entry(key).or_default()
    }

    /// Takes the value of a key out.
    pub fn take(&mut self, key: &K) -> Option<V> {
        // A key is in one generation only, see `put`.
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Puts a value in; what the key had before is gone.
    pub fn put(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= CAPACITY && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_all_are_bounded() {
        let mut map = LruMap::default();
        for key in 0..10 * CAPACITY {
            map.put(key, key + 1);
            assert!(map.len() <= 2 * CAPACITY);
        }
        let last = 10 * CAPACITY;
        assert!((last - CAPACITY..last).all(|key| map.peek(&key) == Some(&(key + 1))));
        assert_eq!(map.peek(&0), None);
    }

    #[test]
    fn what_is_used_stays() {
        let mut map = LruMap::default();
        map.put(usize::MAX, 0);
        for key in 0..5 * CAPACITY {
            let uses = map.take(&usize::MAX).expect("used all the time");
            map.put(usize::MAX, uses + 1);
            map.put(key, 0);
        }
        assert_eq!(map.take(&usize::MAX), Some(5 * CAPACITY));
        assert_eq!(map.take(&usize::MAX), None);
    }

    #[test]
    fn a_key_that_is_used_in_place_stays_too() {
        let mut map = LruMap::default();
        for key in 0..5 * CAPACITY {
            *map.of(usize::MAX) += 1;
            map.put(key, 0);
        }
        assert_eq!(map.take(&usize::MAX), Some(5 * CAPACITY));
        assert_eq!((map.take(&usize::MAX), *map.of(usize::MAX)), (None, 0));
    }

    #[test]
    fn a_key_has_one_value() {
        let mut map = LruMap::default();
        map.put(1, 'a');
        (2..2 + CAPACITY).for_each(|key| map.put(key, 'x'));
        map.put(1, 'b');
        assert_eq!((map.take(&1), map.take(&1)), (Some('b'), None));
    }
}
