//! Which places of a file were written, to tell bytes that are written again.
//!
//! What is written from end to end is one range of bytes, exact. Apart from it, a page was written if the
//! model finds it in the cache; for what passes the cache by, and for models without one, pages are
//! remembered here. So a write to a part of a page that another write touched counts as writing it again,
//! unless it goes on where the one before ended.

use super::PAGE;
use crate::model::PageSet;

#[derive(Default)]
pub(super) struct Written {
    /// The range that was written first, as far as it has grown, in bytes.
    whole: (u64, u64),
    apart: Option<Box<PageSet>>,
    /// Where the latest write ended.
    end: u64,
    /// Bytes of all places.
    pub(super) distinct: u64,
    /// Some places could not be remembered.
    pub(super) is_partial: bool,
}

impl Written {
    #[inline]
    pub(super) fn blocks(&self) -> usize {
        self.apart.as_ref().map_or(0, |apart| apart.blocks())
    }

    /// Adds the bytes from `start` up to `end`; how many of them had been written before. `met`: so many of
    /// their pages were in the cache, if that is known. Without `room`, places apart are not remembered.
    #[inline]
    pub(super) fn add(&mut self, start: u64, end: u64, met: Option<u64>, room: bool) -> u64 {
        let (first, last) = self.whole;
        let again = if first == last {
            self.whole = (start, end);
            0
        } else if start > last || end < first {
            let goes_on = self.end == start;
            let from = if goes_on { start.div_ceil(PAGE) } else { start / PAGE };
            let pages = match met {
                Some(met) => met.saturating_sub(u64::from(from.saturating_mul(PAGE) > start)),
                None => self.add_apart(from, end.div_ceil(PAGE), room),
            };
            (pages * PAGE).min(end - start)
        } else {
            self.whole = (first.min(start), last.max(end));
            let within = end.min(last) - start.max(first);
            let beyond = end - start - within;
            if beyond == 0 {
                within
            } else {
                within + self.join((start, end), (first, last), met).min(beyond)
            }
        };
        self.end = end;
        self.distinct = self.distinct.saturating_add(end - start - again);
        again
    }

    /// The range grows over these bytes, from what it was; how many bytes had been written apart from it.
    #[inline]
    fn join(&mut self, (start, end): (u64, u64), (first, last): (u64, u64), met: Option<u64>) -> u64 {
        let pages = (start / PAGE, end.div_ceil(PAGE));
        let apart = self.apart.as_mut().map_or(0, |apart| apart.remove(pages.0, pages.1));
        let own = pages.1.min(last.div_ceil(PAGE)).saturating_sub(pages.0.max(first / PAGE));
        apart.max(met.map_or(0, |met| met.saturating_sub(own))) * PAGE
    }

    /// Adds pages apart from the range; how many of them had been written.
    fn add_apart(&mut self, first: u64, last: u64, room: bool) -> u64 {
        if first >= last {
            return 0;
        }
        if room {
            return last - first - self.apart.get_or_insert_default().insert(first, last);
        }
        let known = self.apart.as_ref().map_or(0, |apart| apart.count(first, last));
        self.is_partial |= known < last - first;
        known
    }

    /// Nothing behind this length was written.
    pub(super) fn cut(&mut self, length: u64) {
        let (first, last) = self.whole;
        self.whole = (first.min(length), last.min(length));
        if let Some(apart) = &mut self.apart {
            apart.remove(length.div_ceil(PAGE), u64::MAX / PAGE);
            self.apart.take_if(|apart| apart.pages() == 0);
        }
        (self.end, self.distinct) = (u64::MAX, self.distinct.min(length));
    }
}
