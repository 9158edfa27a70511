//! Who wrote which bytes of a file last: a map of ranges.
//!
//! The law: **ranges do not overlap, and equal neighbours are one.** So a file that one process writes from
//! begin to end is one range, however many calls that takes.

use std::collections::BTreeMap;

/// Of what was not flushed yet.
pub(super) const UNFLUSHED: u64 = u64::MAX;

/// What is known of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Who wrote it last.
    pub(super) writer: u32,
    /// When it was flushed, on the clock of [`super::Sharing`]; or [`UNFLUSHED`].
    pub(super) flushed: u64,
    /// When the latest write to it began, in ns.
    pub(super) at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    end: u64,
    mark: Mark,
}

/// Ranges of bytes by where they begin.
#[derive(Debug, Default)]
pub(super) struct Extents {
    map: BTreeMap<u64, Extent>,
}

impl Extents {
    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The ranges that have bytes from `from` up to `to`: begin, end and mark, in order.
    pub(super) fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, Mark)> {
        let first = self.map.range(..from).next_back().filter(|(_, extent)| extent.end > from);
        let others = self.map.range(from..to.max(from));
        first.into_iter().chain(others).map(|(start, extent)| (*start, extent.end, extent.mark))
    }

    /// The bytes from `from` up to `to` have this mark now.
    pub(super) fn put(&mut self, from: u64, to: u64, mark: Mark) {
        self.carve(from, to);
        self.map.insert(from, Extent { end: to, mark });
        self.join(from);
    }

    /// A writer cuts off what lies at `from` or behind. What others have not flushed comes all the same.
    pub(super) fn cut(&mut self, from: u64, writer: u32) {
        let is_gone = |mark: &Mark| mark.writer == writer || mark.flushed != UNFLUSHED;
        let found = self.overlapping(from, u64::MAX).filter(|(_, _, mark)| is_gone(mark));
        let gone: Vec<(u64, u64)> = found.map(|(start, end, _)| (start.max(from), end)).collect();
        gone.into_iter().for_each(|(start, end)| self.carve(start, end));
    }

    /// What this writer had not flushed of the ranges from `from` up to `to` is flushed.
    pub(super) fn flush(&mut self, from: u64, to: u64, writer: u32, flushed: u64) {
        let is_own = |mark: &Mark| mark.writer == writer && mark.flushed == UNFLUSHED;
        let found = self.overlapping(from, to).filter(|(_, _, mark)| is_own(mark));
        let starts: Vec<u64> = found.map(|(start, ..)| start).collect();
        for start in &starts {
            if let Some(extent) = self.map.get_mut(start) {
                extent.mark.flushed = flushed;
            }
        }
        // From the last one on, since one that is joined to its predecessor is no longer found.
        starts.iter().rev().for_each(|start| self.join(*start));
    }

    /// Takes out the bytes from `from` up to `to`.
    fn carve(&mut self, from: u64, to: u64) {
        let before = self.map.range_mut(..from).next_back().filter(|(_, extent)| extent.end > from);
        let mut behind = None;
        if let Some((_, extent)) = before {
            behind = (extent.end > to).then_some(*extent);
            extent.end = from;
        }
        let starts: Vec<u64> = self.map.range(from..to).map(|(start, _)| *start).collect();
        for start in starts {
            behind = self.map.remove(&start).filter(|extent| extent.end > to);
        }
        self.map.extend(behind.map(|extent| (to, extent)));
    }

    /// Joins the range that begins here with equal neighbours.
    fn join(&mut self, start: u64) {
        let Some(Extent { end, mark }) = self.map.get(&start).copied() else { return };
        let is_equal = |other: &Mark| (other.writer, other.flushed) == (mark.writer, mark.flushed);
        let (mut end, mut at) = (end, mark.at);
        if let Some(next) = self.map.get(&end).filter(|next| is_equal(&next.mark)).copied() {
            self.map.remove(&end);
            (end, at) = (next.end, at.max(next.mark.at));
        }
        let before = self.map.range_mut(..start).next_back();
        let before = before.filter(|(_, before)| before.end == start && is_equal(&before.mark));
        let joined = |at| Extent { end, mark: Mark { at, ..mark } };
        if let Some((_, before)) = before {
            *before = joined(at.max(before.mark.at));
            self.map.remove(&start);
        } else {
            self.map.insert(start, joined(at));
        }
    }
}
