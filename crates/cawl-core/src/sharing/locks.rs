//! Locks that order what two processes write, whatever file they are locks of.
//!
//! The law: **who locks a range after another unlocked it comes after all that the other did before.** Both
//! ranges must have a byte in common, and one of the locks must be exclusive: two that several may hold order
//! nothing. What is forgotten leads to more findings, never to fewer.

use crate::model::Map;

/// Files whose locks are remembered.
const FILES: usize = 1 << 16;
/// Ranges of a file that are remembered for each process; the one used longest ago makes room.
const RANGES: usize = 64;

/// A file that is locked, and whether by flock: locks of flock and of fcntl know nothing of each other.
pub(super) type LockFile<K> = (K, bool);

/// A range that a process locked.
#[derive(Clone, Copy, Debug)]
struct Held {
    from: u64,
    to: u64,
    exclusive: bool,
    is_held: bool,
    /// When it was locked last, and unlocked last, on the clock of [`super::Sharing`]; 0: never.
    locked: u64,
    unlocked: u64,
}

impl Held {
    fn meets(&self, from: u64, to: u64) -> bool {
        self.from < to && from < self.to
    }

    fn unlock(&mut self, now: u64) {
        (self.is_held, self.unlocked) = (false, now);
    }
}

#[derive(Debug)]
pub(super) struct Locks<K> {
    files: Map<LockFile<K>, Map<u32, Vec<Held>>>,
    of: Map<u32, Vec<LockFile<K>>>,
}

impl<K> Default for Locks<K> {
    fn default() -> Locks<K> {
        Locks { files: Map::default(), of: Map::default() }
    }
}

impl<K: Copy + Eq + std::hash::Hash> Locks<K> {
    /// A process locks the bytes from `from` up to `to`.
    pub(super) fn lock(
        &mut self,
        writer: u32,
        file: LockFile<K>,
        (from, to): (u64, u64),
        exclusive: bool,
        now: u64,
    ) {
        if self.files.len() >= FILES && !self.files.contains_key(&file) {
            return;
        }
        let held = self.files.entry(file).or_default().entry(writer).or_default();
        if held.is_empty() {
            self.of.entry(writer).or_default().push(file);
        }
        if !exclusive {
            // Others may share the range from now on.
            let narrowed = held.iter_mut().filter(|held| held.exclusive && held.is_held);
            narrowed.filter(|held| held.meets(from, to)).for_each(|held| held.unlock(now));
        }
        let is_same = |held: &&mut Held| (held.from, held.to, held.exclusive) == (from, to, exclusive);
        if let Some(held) = held.iter_mut().find(is_same) {
            (held.is_held, held.locked) = (true, now);
            return;
        }
        if held.len() >= RANGES {
            let oldest = (0..held.len()).min_by_key(|at| held[*at].locked.max(held[*at].unlocked));
            oldest.map(|at| held.swap_remove(at));
        }
        held.push(Held { from, to, exclusive, is_held: true, locked: now, unlocked: 0 });
    }

    /// A process unlocks what it holds of the bytes from `from` up to `to`.
    pub(super) fn unlock(&mut self, writer: u32, file: LockFile<K>, (from, to): (u64, u64), now: u64) {
        let held = self.files.get_mut(&file).and_then(|file| file.get_mut(&writer));
        let held = held.into_iter().flatten().filter(|held| held.is_held && held.meets(from, to));
        held.for_each(|held| held.unlock(now));
    }

    /// A process has ended: it holds nothing.
    pub(super) fn end(&mut self, writer: u32, now: u64) {
        for file in self.of.get(&writer).cloned().unwrap_or_default() {
            self.unlock(writer, file, (0, u64::MAX), now);
        }
    }

    /// True if `second` locked, by now, what `first` had unlocked after the time `since`.
    pub(super) fn order(&self, first: u32, second: u32, since: u64) -> bool {
        self.of.get(&first).into_iter().flatten().any(|file| {
            let of = |writer| self.files.get(file).and_then(|file| file.get(&writer)).into_iter().flatten();
            of(first).filter(|left| left.unlocked > since).any(|left| {
                let after = |taken: &&Held| {
                    taken.locked > left.unlocked
                        && (taken.exclusive || left.exclusive)
                        && taken.meets(left.from, left.to)
                };
                of(second).any(|taken| after(&taken))
            })
        })
    }
}
