//! A list of the flusher's (`b_dirty`, `b_io`, `b_more_io`).
//!
//! First in, first out. Copies share all but the last few entries: a copy of the model is made for
//! each call that may have to wait, and tens of thousands of files may be listed.

use std::collections::VecDeque;
use std::sync::Arc;

/// Entries that are shared together.
const PIECE: usize = 512;

/// An inode on a list; void when the file's generation has moved on.
pub(super) type Entry = (u32, u32);

/// Inodes in the order of their coming.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    full: VecDeque<Arc<[Entry]>>,
    /// What came after the full pieces.
    last: Vec<Entry>,
    /// Entries of the first piece that are gone.
    taken: usize,
}

impl Queue {
    pub(super) fn push_back(&mut self, entry: Entry) {
        self.last.push(entry);
        if self.last.len() == PIECE {
            self.full.push_back(std::mem::take(&mut self.last).into());
        }
    }

    pub(super) fn pop_front(&mut self) -> Option<Entry> {
        let entry = self.front()?;
        self.taken += 1;
        if self.taken == self.first().len() {
            self.taken = 0;
            if self.full.pop_front().is_none() {
                self.last.clear();
            }
        }
        Some(entry)
    }

    pub(super) fn front(&self) -> Option<Entry> {
        self.first().get(self.taken).copied()
    }

    pub(super) fn back(&self) -> Option<Entry> {
        self.last.last().or_else(|| self.full.back()?.last()).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front().is_none()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.full.iter().flat_map(|piece| piece.iter()).chain(&self.last).skip(self.taken)
    }

    /// The piece with the first entry.
    fn first(&self) -> &[Entry] {
        self.full.front().map_or(&self.last, |piece| piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn first_in_first_out(steps in proptest::collection::vec((any::<bool>(), 1..PIECE), 1..40)) {
            let (mut queue, mut plain) = (Queue::default(), VecDeque::new());
            for (n, (comes, times)) in steps.into_iter().enumerate() {
                let (copy, before) = (queue.clone(), plain.clone());
                for time in 0..times {
                    if comes {
                        let entry = (n as u32, time as u32);
                        queue.push_back(entry);
                        plain.push_back(entry);
                    } else {
                        prop_assert_eq!(queue.pop_front(), plain.pop_front());
                    }
                    prop_assert_eq!((queue.front(), queue.back()), (plain.front().copied(), plain.back().copied()));
                    prop_assert_eq!(queue.is_empty(), plain.is_empty());
                }
                prop_assert!(queue.iter().eq(&plain));
                prop_assert!(copy.iter().eq(&before));
            }
        }
    }
}
