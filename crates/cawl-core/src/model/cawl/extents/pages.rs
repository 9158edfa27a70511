//! What happens to the pages of a block: marks are set and taken away, of pages and of parts of them.

use std::ops::Range;

use super::ages::{List, Mark, Place};
use super::{Extents, PAGE, PAGES};

/// Dirty bytes of a mixed page, from `start` to `end`, of one mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) start: u16,
    pub(super) end: u16,
    pub(super) mark: Mark,
}

impl Extents {
    /// A write reaches from `start` to `end` of a block.
    pub(super) fn write(&mut self, block: u32, start: u64, end: u64, number: u16) {
        let (first, last) = (start.div_ceil(PAGE), end / PAGE);
        if first > last {
            return self.write_part(block, last as u8, (start % PAGE) as u16, (end % PAGE) as u16, number);
        }
        if !start.is_multiple_of(PAGE) {
            self.write_part(block, first as u8 - 1, (start % PAGE) as u16, PAGE as u16, number);
        }
        let mut page = first as usize;
        while page < last as usize {
            let marks = &self.blocks[block as usize].0[page..last as usize];
            let old = marks[0];
            if old == Mark::MIXED {
                self.write_part(block, page as u8, 0, PAGE as u16, number);
                page += 1;
                continue;
            }
            let alike = marks.iter().take_while(|mark| **mark == old).count();
            let list = if old == Mark::CLEAN { List::Inactive } else { List::Active };
            self.mark_anew(block, page..page + alike, old, Mark::new(list, number));
            page += alike;
        }
        if !end.is_multiple_of(PAGE) {
            self.write_part(block, last as u8, 0, (end % PAGE) as u16, number);
        }
    }

    /// Pages that have one mark, or are clean, have another one from now on, or are clean.
    pub(super) fn mark_anew(&mut self, block: u32, pages: Range<usize>, old: Mark, new: Mark) {
        if old == new {
            return;
        }
        // Of a row all pages change at once.
        let len = if pages.len() as u64 == PAGES { self.length(block) } else { 1 };
        let bytes = pages.len() as u64 * PAGE * len;
        if new != Mark::CLEAN {
            self.ages.add(new, bytes);
            self.ages.note(new, block, pages.start as u8, pages.end as u8);
        }
        self.blocks[block as usize].0[pages].fill(new);
        if old != Mark::CLEAN {
            self.ages.subtract(old, bytes);
        }
    }

    /// The same for a page of which other parts are dirty already, or will not be.
    fn write_part(&mut self, block: u32, page: u8, start: u16, end: u16, number: u16) {
        let (new, again) = (Mark::new(List::Inactive, number), Mark::new(List::Active, number));
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        for old in before.iter().filter(|old| old.start < start) {
            parts.put(Part { end: old.end.min(start), ..*old });
        }
        let mut at = start;
        for old in before.iter().filter(|old| old.start < end && start < old.end) {
            let (from, to) = (old.start.max(start), old.end.min(end));
            parts.put(Part { start: at, end: from, mark: new });
            parts.put(Part { start: from, end: to, mark: again });
            at = to;
        }
        parts.put(Part { start: at, end, mark: new });
        for old in before.iter().filter(|old| end < old.end) {
            parts.put(Part { start: old.start.max(end), ..*old });
        }
        self.put_parts(block, page, before, parts);
    }

    /// Bytes of a page are clean, whatever their marks.
    pub(super) fn wipe(&mut self, block: u32, page: u8, start: u16, end: u16) {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == Mark::CLEAN {
            return;
        }
        if u64::from(end - start) == PAGE && old != Mark::MIXED {
            let page = usize::from(page);
            return self.mark_anew(block, page..page + 1, old, Mark::CLEAN);
        }
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        for old in &before {
            parts.put(Part { end: old.end.min(start), ..*old });
            parts.put(Part { start: old.start.max(end), ..*old });
        }
        self.put_parts(block, page, before, parts);
    }

    /// Cleans at most `most` bytes of a page that have this mark; how many there were.
    pub(super) fn clean(&mut self, block: u32, page: u8, mark: Mark, most: u64) -> u64 {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == mark && most >= PAGE {
            let page = usize::from(page);
            self.mark_anew(block, page..page + 1, old, Mark::CLEAN);
            return PAGE;
        }
        if old != mark && old != Mark::MIXED {
            return 0;
        }
        let before = self.take_parts(block, page);
        let mut parts = Parts(std::mem::take(&mut self.after));
        let mut left = most;
        for old in &before {
            let cleaned = if old.mark == mark { left.min(u64::from(old.end - old.start)) } else { 0 };
            left -= cleaned;
            parts.put(Part { start: old.start + cleaned as u16, ..*old });
        }
        self.put_parts(block, page, before, parts);
        most - left
    }

    /// What has the mark `from` in a page has the mark `to` from now on.
    pub(super) fn replace(&mut self, block: u32, page: u8, from: Mark, to: Mark) {
        let old = self.blocks[block as usize].0[usize::from(page)];
        if old == from {
            let page = usize::from(page);
            self.mark_anew(block, page..page + 1, from, to);
        } else if old == Mark::MIXED {
            let before = self.take_parts(block, page);
            let mut parts = Parts(std::mem::take(&mut self.after));
            for old in &before {
                parts.put(Part { mark: if old.mark == from { to } else { old.mark }, ..*old });
            }
            self.put_parts(block, page, before, parts);
        }
    }

    /// The parts of a page, which is clean from now on, but for the books.
    fn take_parts(&mut self, block: u32, page: u8) -> Vec<Part> {
        let mark = std::mem::take(&mut self.blocks[block as usize].0[usize::from(page)]);
        let mut parts = std::mem::take(&mut self.before);
        parts.clear();
        match mark {
            Mark::MIXED => {
                parts.extend(self.mixed.get_mut(&(block, page)).into_iter().flat_map(|of| of.drain(..)))
            }
            Mark::CLEAN => {}
            _ => parts.push(Part { start: 0, end: PAGE as u16, mark }),
        }
        parts
    }

    /// Puts parts where others were `before`, and does the books.
    fn put_parts(&mut self, block: u32, page: u8, before: Vec<Part>, parts: Parts) {
        let mut parts = parts.0;
        for (i, part) in parts.iter().enumerate() {
            self.ages.add(part.mark, u64::from(part.end - part.start));
            if before.iter().chain(&parts[..i]).all(|old| old.mark != part.mark) {
                self.ages.note(part.mark, block, page, page + 1);
            }
        }
        let mark = match parts[..] {
            [] => Mark::CLEAN,
            [Part { start: 0, end, mark }] if u64::from(end) == PAGE => mark,
            _ => Mark::MIXED,
        };
        if mark == Mark::MIXED {
            self.mixed.entry((block, page)).or_default().extend_from_slice(&parts);
        } else {
            self.mixed.remove(&(block, page));
        }
        self.blocks[block as usize].0[usize::from(page)] = mark;
        for old in &before {
            self.ages.subtract(old.mark, u64::from(old.end - old.start));
        }
        self.before = before;
        parts.clear();
        self.after = parts;
    }

    /// True if any byte of a place has this mark.
    pub(super) fn counts(&self, place: Place, mark: Mark) -> bool {
        let marks = &self.blocks[place.block as usize].0;
        (place.start..place.end).any(|page| match marks[usize::from(page)] {
            Mark::MIXED => self.parts(place.block, page).iter().any(|part| part.mark == mark),
            found => found == mark,
        })
    }

    /// The parts of a mixed page.
    pub(super) fn parts(&self, block: u32, page: u8) -> &[Part] {
        self.mixed.get(&(block, page)).map_or(&[], Vec::as_slice)
    }
}

/// Parts of a page in order; those that touch and have one mark are one.
struct Parts(Vec<Part>);

impl Parts {
    fn put(&mut self, part: Part) {
        match self.0.last_mut() {
            _ if part.start >= part.end => {}
            Some(last) if last.end == part.start && last.mark == part.mark => last.end = part.end,
            _ => self.0.push(part),
        }
    }
}

/// The pages of a block between two bytes, and from where to where in them.
pub(super) fn pages(start: u64, end: u64) -> impl Iterator<Item = (u8, u16, u16)> {
    (start / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let base = page * PAGE;
        (page as u8, (start.max(base) - base) as u16, (end - base).min(PAGE) as u16)
    })
}
