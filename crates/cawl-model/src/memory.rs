//! Free memory as the page allocator keeps it, and what of it the host has taken back.
//!
//! The law (mm/page_reporting.c and mm/page_alloc.c, 6.18): free memory lies in lists, one for each size
//! (*order*) of block. Where the host takes free memory back, a pass goes over the lists of large blocks 2 s
//! after something was freed, and every 2 s while there is something left to tell; in each list it reports as
//! many blocks as fit 32 to a report, in one report more than a 512th of the list's length. Reported blocks
//! are *cold* and go to the list's tail; what is freed is warm and goes to its head, from where it is taken
//! again. A folio of the page cache is taken from the smallest order that has one large enough, so small
//! blocks, which are never reported, come first; a zone gives until it is at its low watermark. What no zone
//! has comes from clean pages that are dropped, and is warm.

use crate::record::MemoryFacts;
use crate::units::{Pages, Seconds};

/// More zones than a machine has, and more orders than an allocator.
const ZONES: usize = 1 << 12;
const ORDERS: usize = 64;
/// Time between passes (`PAGE_REPORTING_DELAY`).
const DELAY: Seconds = Seconds(2.0);
/// Blocks in a report (`PAGE_REPORTING_CAPACITY`).
const CAPACITY: f64 = 32.0;
/// Parts of a list of which one more report is made (`page_reporting_cycle`).
const PARTS: f64 = CAPACITY * 16.0;

/// Pages of a list, taken out, and given back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct List {
    warm: Pages,
    cold: Pages,
    /// Were taken since the beginning, and come back when they are freed.
    taken: Pages,
}

#[derive(Clone, Debug, PartialEq)]
struct Zone {
    /// By order.
    lists: Vec<List>,
    /// Pages that it keeps.
    low: Pages,
    /// Pages of all lists.
    free: Pages,
}

/// Free memory, at a moment of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FreeMemory {
    /// In the order in which they give.
    zones: Vec<Zone>,
    /// Least order that is reported.
    order: usize,
    /// When the next pass is due.
    pass: Option<Seconds>,
}

impl FreeMemory {
    /// As it was found at `now`, with `doubt` times the warm memory. Where it is not known what is cold,
    /// large blocks are: as they lie on a machine that rests.
    pub(super) fn new(facts: &MemoryFacts, now: Seconds, doubt: f64) -> FreeMemory {
        let order = facts.order as usize;
        let zones = facts.zones.iter().take(ZONES).map(|zone| {
            let list = |(at, blocks): (usize, &u64)| {
                let pages = |blocks: u64| Pages(blocks as f64 * (1u64 << at.min(32)) as f64);
                let all = pages(*blocks);
                let reported = zone.cold.as_ref().map_or(*blocks, |cold| cold.get(at).copied().unwrap_or(0));
                let cold = if at < order { Pages::ZERO } else { pages(reported).min(all) };
                let warm = (all - cold) * doubt;
                let cold = if at < order { Pages::ZERO } else { (all - warm).max(Pages::ZERO) };
                List { warm, cold, taken: Pages::ZERO }
            };
            let lists: Vec<List> = zone.free.iter().enumerate().take(ORDERS).map(list).collect();
            let free = lists.iter().map(|list| list.warm + list.cold).sum();
            Zone { lists, low: Pages::of(zone.low), free }
        });
        let mut memory = FreeMemory { zones: zones.collect(), order, pass: None };
        memory.notify(now);
        memory
    }

    /// A pass comes, if there is something to report.
    fn notify(&mut self, now: Seconds) {
        let large = |zone: &Zone| zone.lists.iter().skip(self.order).any(|list| list.warm >= Pages(1.0));
        if self.pass.is_none() && self.zones.iter().any(large) {
            self.pass = Some(now + DELAY);
        }
    }

    /// Lets time pass: what has lain free turns cold.
    #[inline]
    pub(super) fn advance(&mut self, now: Seconds) {
        // Seldom, and asked for with every piece of a write.
        if self.pass.is_some_and(|at| at <= now) {
            self.pass_up_to(now);
        }
    }

    #[cold]
    fn pass_up_to(&mut self, now: Seconds) {
        while let Some(at) = self.pass.filter(|at| *at <= now) {
            for zone in &mut self.zones {
                for (order, list) in zone.lists.iter_mut().enumerate().skip(self.order) {
                    let block = Pages::of(1 << order.min(32));
                    let reports = ((list.warm + list.cold) / block / PARTS).ceil() + 1.0;
                    let reported = list.warm.min(reports * CAPACITY * block);
                    list.warm -= reported;
                    list.cold += reported;
                }
            }
            self.pass = None;
            self.notify(at);
        }
    }

    /// Takes pages in folios of an order; says how many of them are cold.
    pub(super) fn take(&mut self, pages: Pages, order: u32) -> Pages {
        let (mut left, mut found) = (pages, Pages::ZERO);
        for zone in &mut self.zones {
            let mut room = (zone.free - zone.low).max(Pages::ZERO).min(left);
            left -= room;
            zone.free -= room;
            for list in zone.lists.iter_mut().skip(order as usize) {
                if room <= Pages::ZERO {
                    break;
                }
                let warm = list.warm.min(room);
                let cold = list.cold.min(room - warm);
                list.warm -= warm;
                list.cold -= cold;
                list.taken += warm + cold;
                room -= warm + cold;
                found += cold;
            }
            left += room;
            zone.free += room;
            if left <= Pages::ZERO {
                break;
            }
        }
        found
    }

    /// Pages that are cold, as far as zones give them.
    pub(super) fn cold(&self) -> Pages {
        let of = |zone: &Zone| {
            let cold = zone.lists.iter().map(|list| list.cold).sum::<Pages>();
            cold.min((zone.free - zone.low).max(Pages::ZERO))
        };
        self.zones.iter().map(of).sum()
    }

    /// These pages were freed. They return to where they were taken from; more than were taken lie in large
    /// blocks.
    pub(super) fn free(&mut self, pages: Pages, now: Seconds) {
        let taken: Pages = self.zones.iter().flat_map(|zone| &zone.lists).map(|list| list.taken).sum();
        let part = if taken > Pages::ZERO { (pages / taken).min(1.0) } else { 0.0 };
        for zone in &mut self.zones {
            for list in &mut zone.lists {
                let back = list.taken * part;
                list.warm += back;
                list.taken -= back;
                zone.free += back;
            }
        }
        if let Some(zone) = self.zones.first_mut()
            && let Some(list) = zone.lists.last_mut()
        {
            let more = (pages - taken).max(Pages::ZERO);
            list.warm += more;
            zone.free += more;
        }
        self.notify(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ZoneFacts;
    use crate::units::Time;

    fn facts(free: [u64; 11], cold: Option<[u64; 11]>, low: u64) -> MemoryFacts {
        let zone = ZoneFacts {
            free: free.to_vec(),
            cold: cold.map(|cold| cold.to_vec()),
            low,
            ..ZoneFacts::default()
        };
        MemoryFacts { time: Time(0), order: 9, zones: vec![zone], files: None }
    }

    const MIB: Pages = Pages(256.0);

    /// MiB of the first cold page, if `most` are written in folios of a mebibyte.
    fn onset(memory: &FreeMemory, most: u32) -> Option<u32> {
        let mut memory = memory.clone();
        (0..most).find(|_| memory.take(MIB, 8) > 0.5 * MIB)
    }

    #[test]
    fn passes_report_as_much_as_the_kernel_does() {
        // 6.18, a zone in which 3 GiB were freed: reported blocks of both orders together, pass by pass, as
        // found in /proc/kpageflags.
        let measured = [102 + 128, 102 + 2 * 128, 102 + 3 * 128, 102 + 4 * 128];
        let mut free = [0; 11];
        (free[8], free[9], free[10]) = (1300, 352, 370);
        let mut cold = [0; 11];
        cold[10] = 102;
        let mut memory = FreeMemory::new(&facts(free, Some(cold), 0), Seconds::ZERO, 1.0);
        let blocks = |memory: &FreeMemory| {
            let lists = &memory.zones[0].lists;
            lists[9].cold / Pages(512.0) + lists[10].cold / Pages(1024.0)
        };
        assert_eq!(blocks(&memory), 102.0);
        for (pass, found) in measured.into_iter().enumerate() {
            memory.advance(Seconds(2.0 * (pass + 1) as f64 - 0.01));
            assert!(blocks(&memory) < f64::from(found));
            memory.advance(Seconds(2.0 * (pass + 1) as f64));
            assert_eq!(blocks(&memory), f64::from(found), "pass {pass}");
        }
        // In half a minute all is cold, and passes end.
        memory.advance(Seconds(30.0));
        assert_eq!((blocks(&memory), memory.pass), (722.0, None));
        assert_eq!(memory.zones[0].lists[8].cold, Pages::ZERO);
    }

    #[test]
    fn small_blocks_come_first_and_what_was_freed_is_warm() {
        let mut free = [0; 11];
        (free[3], free[8], free[10]) = (100_000, 300, 500);
        let mut memory = FreeMemory::new(&facts(free, None, 0), Seconds::ZERO, 1.0);
        assert_eq!(onset(&memory, 1000), Some(300));
        // Small folios are taken from small blocks.
        assert_eq!(memory.clone().take(Pages(100_000.0), 0), Pages::ZERO);
        let cold = memory.take(1000.0 * MIB, 8);
        assert_eq!(cold, 700.0 * MIB);
        memory.free(1000.0 * MIB, Seconds(10.0));
        assert_eq!(onset(&memory, 1000), None, "the file's pages are warm");
        memory.advance(Seconds(11.9));
        assert_eq!(onset(&memory, 1000), None);
        // One pass: 64 blocks, behind those that are warm still.
        memory.advance(Seconds(12.0));
        assert_eq!(onset(&memory, 1000), Some(1000 - 256));
        memory.advance(Seconds(60.0));
        assert_eq!(onset(&memory, 1000), Some(300));
    }

    #[test]
    fn memory_below_the_watermark_is_not_given() {
        let mut free = [0; 11];
        free[10] = 100;
        let mut memory = FreeMemory::new(&facts(free, None, 100 * 256), Seconds::ZERO, 1.0);
        assert_eq!(memory.take(1000.0 * MIB, 8), 300.0 * MIB);
        assert_eq!(memory.take(1000.0 * MIB, 8), Pages::ZERO, "what is dropped from the page cache is warm");
    }
}
