//! Memory as the model is told of it: what is free, what of it is cold, and how long the lists of files are.

use super::super::cache::Room;
use super::super::memory::FreeMemory;
use super::super::writeback::Machine;
use super::Call;
use super::intervals::Cold;
use crate::record::MemoryFacts;
use crate::units::{Pages, Seconds};

/// Looks at memory that are remembered at most: one a second.
const LOOKS: usize = 16;

/// Warm memory is taken as these multiples of what was found: at most, most likely, at least.
const DOUBTS: [f64; 3] = [1.25, 1.0, 0.75];

/// What is known of memory.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    /// Whether new pages come cold; None: the model decides by its own pool.
    pub(super) supply: Option<bool>,
    /// Free memory, if it was looked at: with more warm of it than was found, with what was found, and with
    /// less.
    pub(super) free: Option<Box<[FreeMemory; 3]>>,
    /// What was known before each later look at it, and when that was, until a call begins after that.
    before: Vec<(Seconds, Option<Box<[FreeMemory; 3]>>)>,
    /// Looks at memory that no call has begun after yet: when, and what was found.
    rooms: Vec<(Seconds, Room)>,
    /// Most pages that a call writes.
    pub(super) most: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { supply: None, free: None, before: Vec::new(), rooms: Vec::new(), most: u64::MAX }
    }
}

impl Memory {
    /// It was found so at this moment.
    pub(super) fn found(&mut self, facts: &MemoryFacts, now: Seconds) {
        if let Some(room) = Room::of(facts) {
            if self.rooms.len() >= LOOKS {
                self.rooms.remove(0);
            }
            self.rooms.push((now, room));
        }
        let is_taken_back = facts.order < MemoryFacts::NOT_TAKEN_BACK;
        let found = is_taken_back.then(|| Box::new(DOUBTS.map(|doubt| FreeMemory::new(facts, now, doubt))));
        let before = std::mem::replace(&mut self.free, found);
        if self.before.len() < LOOKS {
            self.before.push((now, before));
        }
    }

    /// A call begins at this moment.
    #[inline]
    pub(super) fn begin(&mut self, machine: &mut Machine, at: Seconds) {
        if !self.before.is_empty() {
            self.forget_later_looks(at);
        }
        if !self.rooms.is_empty() {
            self.take_room(machine, at);
        }
    }

    /// A long call is told when it is over. A look at free memory during it saw what it had taken by then,
    /// which the model has yet to take: it does not count.
    fn forget_later_looks(&mut self, at: Seconds) {
        let later = self.before.iter().position(|(look, _)| *look > at);
        if let Some((_, before)) = later.map(|first| self.before.swap_remove(first)) {
            self.free = before;
        }
        self.before.clear();
    }

    /// Takes over how much memory there is by the latest look up to `at`; later looks do not count.
    fn take_room(&mut self, machine: &mut Machine, at: Seconds) {
        if let Some((_, room)) = self.rooms.iter().rev().find(|(look, _)| *look <= at) {
            let in_memory = machine.devices.iter().map(|device| device.traits.is_in_memory);
            machine.cache.found_memory(*room, in_memory, machine.laws);
        }
        self.rooms.clear();
    }

    /// What the host takes to supply new pages, in folios of `folio` pages.
    pub(super) fn supplied(&mut self, call: &Call, fresh: u64, folio: u64) -> Cold {
        let taken = self.allocate_pages(fresh, folio, call.at);
        let [least, likely, most] = match (self.supply, taken) {
            (Some(cold), _) => [if cold { Pages::of(fresh) } else { Pages::ZERO }; 3],
            (None, Some(taken)) => taken,
            (None, None) => [Pages::ZERO; 3],
        }
        .map(|pages| pages.0 * call.constants.cold_page);
        Cold { least, likely, most, foreseen: self.supply.is_none() && taken.is_some() }
    }

    /// What has lain free turns cold.
    pub(super) fn age(&mut self, now: Seconds) {
        self.free.iter_mut().flat_map(|memory| memory.iter_mut()).for_each(|memory| memory.advance(now));
    }

    /// So many pages are free again.
    pub(super) fn give(&mut self, pages: u64, now: Seconds) {
        self.age(now);
        for memory in self.free.iter_mut().flat_map(|memory| memory.iter_mut()) {
            memory.free(Pages::of(pages), now);
        }
    }

    /// Takes free memory for `pages`, and says how many of them are cold: at least, most likely, and at most.
    fn allocate_pages(&mut self, pages: u64, folio: u64, now: Seconds) -> Option<[Pages; 3]> {
        let order = folio.min(self.most).max(1).ilog2();
        self.age(now);
        let memory = self.free.as_mut()?;
        let mut found = [Pages::ZERO; 3];
        for (found, memory) in found.iter_mut().zip(memory.iter_mut()) {
            *found = memory.take(Pages::of(pages), order);
        }
        // Those with more warm memory may meet their cold later: the least may be that of any of them.
        let [a, likely, b] = found;
        Some([a.min(likely).min(b), likely, a.max(likely).max(b)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ZoneFacts;
    use crate::units::Time;

    #[test]
    fn the_likely_cold_pages_are_those_of_the_memory_that_was_found() {
        let (mut free, mut cold) = (vec![0; 11], vec![0; 11]);
        (free[8], free[9], free[10]) = (912, 444, 548);
        (cold[9], cold[10]) = (36, 173);
        let zone = ZoneFacts { free, cold: Some(cold), ..ZoneFacts::default() };
        let facts = MemoryFacts { time: Time(0), order: 9, zones: vec![zone], files: None };
        let (mut memory, mut likely) = (Memory::default(), FreeMemory::new(&facts, Seconds::ZERO, 1.0));
        memory.found(&facts, Seconds::ZERO);
        let mut met = [Pages::ZERO; 3];
        for (at, mebibytes, order) in
            [(0.0, 250, 9), (0.7, 350, 8), (1.4, 350, 8), (2.2, 350, 8), (2.9, 350, 8), (3.6, 350, 8)]
        {
            for _ in 0..mebibytes {
                likely.advance(Seconds(at));
                let pages = memory.allocate_pages(256, 1 << order, Seconds(at)).unwrap();
                assert_eq!(pages[1], likely.take(Pages(256.0), order));
                assert!(pages.is_sorted());
                met = std::array::from_fn(|of| met[of] + pages[of]);
            }
        }
        assert!(met[0] < met[1] && met[1] < met[2] && met[1] > Pages(100.0 * 256.0), "{met:?}");
    }
}
