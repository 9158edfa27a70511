//! Values by number, where numbers that are taken often lie together: blocks of a file's pages.
//!
//! Invariant: values lie in chunks of [`CHUNK`] numbers, and a chunk is in the map exactly if it has one. It
//! keeps those it has side by side, with a bit for each that says which they are. So the map is short, a few
//! entries for each GiB of a file, and a look-up waits for one chunk; a value far from all others costs
//! little more than itself.
//!
//! Copies share chunks until one of them changes a chunk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Numbers of a chunk.
const CHUNK: u64 = 64;

/// Values by number.
#[derive(Clone, Debug)]
pub(super) struct Sparse<T> {
    chunks: BTreeMap<u64, Arc<Chunk<T>>>,
    values: usize,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// A bit for each number whose value is here.
    present: u64,
    /// Those values, in order.
    values: Vec<T>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Sparse<T> {
        Sparse { chunks: BTreeMap::new(), values: 0 }
    }
}

impl<T> Default for Chunk<T> {
    fn default() -> Chunk<T> {
        Chunk { present: 0, values: Vec::new() }
    }
}

impl<T> Chunk<T> {
    fn has(&self, number: u64) -> bool {
        self.present >> (number % CHUNK) & 1 == 1
    }

    /// How many values are here of smaller numbers.
    fn before(&self, number: u64) -> usize {
        (self.present & ((1 << (number % CHUNK)) - 1)).count_ones() as usize
    }
}

impl<T: Clone + Default> Sparse<T> {
    /// How many values there are.
    pub(super) fn len(&self) -> usize {
        self.values
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values == 0
    }

    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let chunk = self.chunks.get(&(number / CHUNK)).filter(|chunk| chunk.has(number))?;
        Some(&chunk.values[chunk.before(number)])
    }

    /// The value of a number that has one, to change.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let chunk = self.chunks.get_mut(&(number / CHUNK)).filter(|chunk| chunk.has(number))?;
        let before = chunk.before(number);
        Some(&mut Arc::make_mut(chunk).values[before])
    }

    /// The value of a number, to change; the default one if it had none.
    pub(super) fn entry(&mut self, number: u64) -> &mut T {
        let chunk = Arc::make_mut(self.chunks.entry(number / CHUNK).or_default());
        let before = chunk.before(number);
        if !chunk.has(number) {
            chunk.present |= 1 << (number % CHUNK);
            chunk.values.insert(before, T::default());
            self.values += 1;
        }
        &mut chunk.values[before]
    }

    /// Takes the value of a number out.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let chunk = self.chunks.get_mut(&(number / CHUNK)).filter(|chunk| chunk.has(number))?;
        let chunk = Arc::make_mut(chunk);
        let value = chunk.values.remove(chunk.before(number));
        chunk.present &= !(1 << (number % CHUNK));
        self.values -= 1;
        if chunk.present == 0 {
            self.chunks.remove(&(number / CHUNK));
        }
        Some(value)
    }

    /// The smallest number in this range that has a value.
    pub(super) fn first_in(&self, numbers: Range<u64>) -> Option<u64> {
        let number = self.chunks_in(numbers.clone()).find_map(|(base, chunk)| {
            let behind = chunk.present & (u64::MAX << numbers.start.saturating_sub(base));
            (behind != 0).then(|| base + u64::from(behind.trailing_zeros()))
        });
        number.filter(|number| *number < numbers.end)
    }

    /// The values whose numbers are in this range.
    pub(super) fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let all = self.chunks_in(numbers.clone()).flat_map(|(base, chunk)| {
            let mut left = chunk.present;
            chunk.values.iter().map(move |value| {
                let number = base + u64::from(left.trailing_zeros());
                left &= left - 1;
                (number, value)
            })
        });
        all.filter(move |(number, _)| numbers.contains(number))
    }

    /// The chunks that may have values of this range, with their first numbers.
    fn chunks_in(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &Chunk<T>)> {
        let Range { start, end } = numbers;
        let chunks = if start < end { start / CHUNK..(end - 1) / CHUNK + 1 } else { 0..0 };
        self.chunks.range(chunks).map(|(of, chunk)| (of * CHUNK, &**chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn like_a_map(steps in proptest::collection::vec((0..4u8, 0..400u64, 0..200u64), 1..120)) {
            let (mut sparse, mut plain) = (Sparse::default(), BTreeMap::new());
            for (n, (what, number, length)) in steps.into_iter().enumerate() {
                let (copy, before) = (sparse.clone(), plain.clone());
                match what {
                    0 => prop_assert_eq!(sparse.remove(number), plain.remove(&number)),
                    1 => {
                        let value = sparse.get_mut(number);
                        prop_assert_eq!(value.as_deref().copied(), plain.get(&number).copied());
                        if let Some(value) = value {
                            *value = n;
                            plain.insert(number, n);
                        }
                    }
                    _ => {
                        *sparse.entry(number) = n;
                        plain.insert(number, n);
                    }
                }
                prop_assert_eq!((sparse.len(), sparse.is_empty()), (plain.len(), plain.is_empty()));
                prop_assert_eq!(sparse.get(number), plain.get(&number));
                let range = number..number + length;
                let pairs = plain.range(range.clone()).map(|(number, value)| (*number, value));
                prop_assert_eq!(sparse.first_in(range.clone()), pairs.clone().next().map(|pair| pair.0));
                prop_assert!(sparse.range(range).eq(pairs));
                prop_assert!(sparse.chunks.values().all(|chunk| chunk.present != 0));
                // What is done to one does not show in the other.
                let all = before.iter().map(|(number, value)| (*number, value));
                prop_assert!(copy.range(0..u64::MAX).eq(all));
            }
        }
    }
}
