//! Values by number, where numbers that are taken often lie together: blocks of a file's pages.
//!
//! Invariant: values lie in nodes of [`NODE`] numbers, and a node is in the map exactly if it has one. It
//! keeps those it has side by side, with a bit for each that says which they are. So the map is short, a few
//! entries for each GiB of a file, and a look-up waits for one node; a value far from all others costs
//! little more than itself.
//!
//! Copies share nodes until one of them changes a node.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const NODE: u64 = 64;

/// Values by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse<T> {
    nodes: BTreeMap<u64, Arc<Node<T>>>,
    values: usize,
}

#[derive(Clone, Debug, Default)]
struct Node<T> {
    /// A bit for each number whose value is here.
    present: u64,
    /// Those values, in order.
    values: Vec<T>,
}

impl<T> Node<T> {
    fn has(&self, number: u64) -> bool {
        self.present >> (number % NODE) & 1 == 1
    }

    /// How many values are here of smaller numbers.
    fn before(&self, number: u64) -> usize {
        (self.present & ((1 << (number % NODE)) - 1)).count_ones() as usize
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
        let node = self.nodes.get(&(number / NODE)).filter(|node| node.has(number))?;
        Some(&node.values[node.before(number)])
    }

    /// The value of a number that has one, to change.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let node = self.nodes.get_mut(&(number / NODE)).filter(|node| node.has(number))?;
        let before = node.before(number);
        Some(&mut Arc::make_mut(node).values[before])
    }

    /// The value of a number, to change; the default one if it had none.
    pub(super) fn entry(&mut self, number: u64) -> &mut T {
        let node = Arc::make_mut(self.nodes.entry(number / NODE).or_default());
        let before = node.before(number);
        if !node.has(number) {
            node.present |= 1 << (number % NODE);
            node.values.insert(before, T::default());
            self.values += 1;
        }
        &mut node.values[before]
    }

    /// Takes the value of a number out.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let node = self.nodes.get_mut(&(number / NODE)).filter(|node| node.has(number))?;
        let node = Arc::make_mut(node);
        let value = node.values.remove(node.before(number));
        node.present &= !(1 << (number % NODE));
        self.values -= 1;
        if node.present == 0 {
            self.nodes.remove(&(number / NODE));
        }
        Some(value)
    }

    /// The smallest number in this range that has a value.
    pub(super) fn first_in(&self, numbers: Range<u64>) -> Option<u64> {
        let number = self.nodes_in(numbers.clone()).find_map(|(base, node)| {
            let behind = node.present & (u64::MAX << numbers.start.saturating_sub(base));
            (behind != 0).then(|| base + u64::from(behind.trailing_zeros()))
        });
        number.filter(|number| *number < numbers.end)
    }

    /// The values whose numbers are in this range.
    pub(super) fn range(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &T)> {
        let all = self.nodes_in(numbers.clone()).flat_map(|(base, node)| {
            let mut left = node.present;
            node.values.iter().map(move |value| {
                let number = base + u64::from(left.trailing_zeros());
                left &= left - 1;
                (number, value)
            })
        });
        all.filter(move |(number, _)| numbers.contains(number))
    }

    /// The nodes that may have values of this range, with their first numbers.
    fn nodes_in(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &Node<T>)> {
        let Range { start, end } = numbers;
        let nodes = if start < end { start / NODE..(end - 1) / NODE + 1 } else { 0..0 };
        self.nodes.range(nodes).map(|(of, node)| (of * NODE, &**node))
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
                prop_assert!(sparse.nodes.values().all(|node| node.present != 0));
                // What is done to one does not show in the other.
                let all = before.iter().map(|(number, value)| (*number, value));
                prop_assert!(copy.range(0..u64::MAX).eq(all));
            }
        }
    }
}
