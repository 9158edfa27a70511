//! The lists of Alg. 1, each in order of time: for each age a log of where bytes were given its mark.
//!
//! The law: wherever a byte has a mark, the log of that list and age says so, in a place that has not been taken yet.
//! The reverse need not be: a place counts if the mark there is still the log's.

use std::collections::VecDeque;

use crate::units::Nanos;

/// Ages that are told apart. With an expiry of 256 grains that is as much again sixteen times over, waiting for the
/// device; what is written then is of the youngest age, in its order.
pub(super) const MOST_AGES: usize = 4096;
/// Places in logs before they are first weeded.
pub(super) const FEW: usize = 1 << 12;

/// Places that are looked at together. Memory answers about so many questions at a time.
const TOGETHER: usize = 16;

/// Which list a byte is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Accessed once.
    Inactive = 0,
    /// Was active, counts as inactive.
    Demoted = 1,
    /// Accessed more than once.
    Active = 2,
}

/// The state of a page or of a part of it: clean, in a list with an age, or mixed. Three bits say which; above them
/// is the number of the age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark(u16);

const KIND_BITS: u32 = 3;
/// Ages are numbered modulo this.
const NUMBERS: u16 = 1 << (16 - KIND_BITS);

impl Mark {
    pub(super) const CLEAN: Mark = Mark(0);
    pub(super) const MIXED: Mark = Mark(4);

    pub(super) fn new(list: List, number: u16) -> Mark {
        Mark(number << KIND_BITS | (list as u16 + 1))
    }

    /// Index of the list, of a mark that is neither clean nor mixed.
    pub(super) fn list(self) -> usize {
        (self.0 % (1 << KIND_BITS)) as usize - 1
    }

    pub(super) fn number(self) -> u16 {
        self.0 >> KIND_BITS
    }
}

/// Pages of a block that were given a mark, from `start` to `end`; of a row all count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) start: u8,
    pub(super) end: u8,
}

/// What one list holds of one age.
#[derive(Clone, Debug, Default)]
pub(super) struct Generation {
    pub(super) bytes: u64,
    /// Wherever a byte has this mark, a place from `done` on says so.
    pub(super) log: Vec<Place>,
    pub(super) done: usize,
}

/// Bytes last written within a grain.
#[derive(Clone, Debug)]
pub(super) struct Age {
    /// When the first write of this age ended, in ns.
    pub(super) since: Nanos,
    pub(super) lists: [Generation; 3],
}

/// The lists, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Ages {
    /// Oldest first. The first has bytes, unless it is the only one.
    pub(super) ages: VecDeque<Age>,
    /// Number of the first age.
    first: u16,
    /// Number of an age such that no older one has bytes in that list.
    pub(super) heads: [u16; 3],
    /// Bytes in each list.
    pub(super) bytes: [u64; 3],
    /// Places in all logs, and how many make it worth weeding them.
    pub(super) places: usize,
    weed_at: usize,
    /// What is written no later than that after the first of an age is of that age.
    grain: Nanos,
}

impl Ages {
    /// Empty lists.
    pub(super) fn new(grain: Nanos) -> Ages {
        Ages { ages: VecDeque::new(), first: 0, heads: [0; 3], bytes: [0; 3], places: 0, weed_at: FEW, grain }
    }

    /// When the oldest byte of all was written, to a grain.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        self.ages.front().filter(|_| self.bytes != [0; 3]).map(|age| age.since)
    }

    /// The mark of a list's bytes of an age, which is counted from the oldest of all.
    pub(super) fn mark(&self, list: List, age: usize) -> Mark {
        Mark::new(list, (self.first + age as u16) % NUMBERS)
    }

    /// The number of the age of what is written now.
    pub(super) fn current(&mut self, now: Nanos) -> u16 {
        let young = self.ages.back().is_some_and(|age| now.saturating_sub(age.since) <= self.grain);
        if !young && (self.ages.len() < MOST_AGES) {
            self.ages.push_back(Age { since: now, lists: Default::default() });
            self.forget_empty_ages();
        }
        (self.first + self.ages.len() as u16 - 1) % NUMBERS
    }

    /// The oldest ages go once nothing is of them.
    fn forget_empty_ages(&mut self) {
        while self.ages.len() > 1
            && self.ages.front().is_some_and(|age| age.lists.iter().all(|list| list.bytes == 0))
        {
            self.ages.pop_front();
            let next = (self.first + 1) % NUMBERS;
            self.heads.iter_mut().filter(|head| **head == self.first).for_each(|head| *head = next);
            self.first = next;
        }
    }

    /// How many ages are older than that of this number.
    pub(super) fn older(&self, number: u16) -> usize {
        (number.wrapping_sub(self.first) % NUMBERS) as usize
    }

    fn generation(&mut self, mark: Mark) -> &mut Generation {
        let older = self.older(mark.number());
        &mut self.ages[older].lists[mark.list()]
    }

    /// Which age is the oldest that a list has bytes of, counted from the oldest of all.
    pub(super) fn head(&mut self, list: List) -> Option<usize> {
        let list = list as usize;
        if self.bytes[list] == 0 {
            return None;
        }
        let head = (self.older(self.heads[list])..self.ages.len())
            .find(|age| self.ages[*age].lists[list].bytes > 0)?;
        self.heads[list] = (self.first + head as u16) % NUMBERS;
        Some(head)
    }

    /// The next place in a list's order that may have bytes, with their mark; it is taken out of the log.
    pub(super) fn oldest_place(&mut self, list: List) -> Option<(Mark, Place)> {
        let head = self.head(list)?;
        let generation = &mut self.ages[head].lists[list as usize];
        let place = *generation.log.get(generation.done)?;
        generation.done += 1;
        Some((self.mark(list, head), place))
    }

    /// After the first of every [`TOGETHER`] places has been taken out of the log of this mark: the others, and the
    /// first one after them.
    pub(super) fn next_places(&self, mark: Mark) -> &[Place] {
        let Some(age) = self.ages.get(self.older(mark.number())) else { return &[] };
        let Generation { log, done, .. } = &age.lists[mark.list()];
        match done % TOGETHER {
            1 => &log[*done..log.len().min(done + TOGETHER)],
            _ => &[],
        }
    }

    /// The place taken last may have bytes still.
    pub(super) fn put_back(&mut self, mark: Mark, place: Place) {
        let older = self.older(mark.number());
        if let Some(age) = self.ages.get_mut(older)
            && let generation = &mut age.lists[mark.list()]
            && generation.bytes > 0
        {
            generation.done -= 1;
            generation.log[generation.done] = place;
        }
    }

    /// So many more bytes have this mark.
    pub(super) fn add(&mut self, mark: Mark, bytes: u64) {
        self.bytes[mark.list()] += bytes;
        self.generation(mark).bytes += bytes;
        let head = self.heads[mark.list()];
        if self.older(mark.number()) < self.older(head) {
            self.heads[mark.list()] = mark.number();
        }
    }

    /// So many bytes have this mark no longer.
    pub(super) fn subtract(&mut self, mark: Mark, bytes: u64) {
        self.bytes[mark.list()] -= bytes;
        let generation = self.generation(mark);
        generation.bytes -= bytes;
        if generation.bytes == 0 {
            let log = std::mem::take(&mut generation.log);
            generation.done = 0;
            self.places -= log.len();
            self.forget_empty_ages();
        }
    }

    /// Pages of a block have bytes with this mark.
    pub(super) fn note(&mut self, mark: Mark, block: u32, start: u8, end: u8) {
        let generation = self.generation(mark);
        match generation.log[generation.done..].last_mut() {
            Some(last) if last.block == block && last.end == start => last.end = end,
            _ => {
                generation.log.push(Place { block, start, end });
                self.places += 1;
            }
        }
    }

    /// The logs are twice as long as after they were weeded last.
    pub(super) fn are_long(&self) -> bool {
        self.places > self.weed_at
    }

    /// Takes the places out of the logs that do not count: where no byte has the log's mark.
    pub(super) fn weed(&mut self, counts: impl Fn(Place, Mark) -> bool) {
        self.places = 0;
        for older in 0..self.ages.len() {
            for list in [List::Inactive, List::Demoted, List::Active] {
                let mark = self.mark(list, older);
                let generation = &mut self.ages[older].lists[list as usize];
                let (mut log, done) = (std::mem::take(&mut generation.log), generation.done);
                log.drain(..done);
                log.retain(|place| counts(*place, mark));
                log.shrink_to_fit();
                self.places += log.len();
                self.ages[older].lists[list as usize].log = log;
                self.ages[older].lists[list as usize].done = 0;
            }
        }
        self.weed_at = 2 * self.places + FEW;
    }
}
