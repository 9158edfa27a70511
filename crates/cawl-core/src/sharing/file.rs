//! A file: what was written where by whom, and what that does to its pages.

use super::PAGE;
use super::extents::{Extents, Mark, UNFLUSHED};
use crate::model::{Map, PageSet};
use crate::names::FileName;
use crate::patterns::Sizes;
use crate::tally::Tally;

/// Ranges that wait for a flush before they are sorted and joined.
const UNSORTED: usize = 1024;

/// What several processes do to the same page without an order, from the worst on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    /// Both wrote the same bytes, and one of them a part of the page only.
    Overlap = 0,
    /// Both wrote different bytes of the page.
    Shared = 1,
    /// Both wrote the whole page.
    WholePage = 2,
}

/// A write, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) writer: u32,
    /// Bytes from `from` up to `to`.
    pub(super) from: u64,
    pub(super) to: u64,
    /// When it began, in ns.
    pub(super) at: u64,
    /// It passes the page cache by.
    pub(super) direct: bool,
    /// It returns when the server has its data.
    pub(super) synchronous: bool,
}

/// A write that met another process's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) writer: u32,
    /// Bytes from `from` up to `to`.
    pub(super) from: u64,
    pub(super) to: u64,
    /// When the write, or the latest of those that wrote this, began, in ns.
    pub(super) at: u64,
}

/// Where two writes met.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    pub(super) page: u64,
    pub(super) first: Touch,
    pub(super) second: Touch,
    /// The first one was flushed before the second one came.
    pub(super) flushed: bool,
}

/// Pages of one level.
#[derive(Default)]
pub(super) struct Found {
    pub(super) pages: PageSet,
    pub(super) first: Option<Meeting>,
}

/// How one write comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    None,
    /// The second process opened or locked the file, dropped its pages, or began.
    Here,
    /// By a lock of another file.
    Elsewhere,
}

/// What a process did to a file.
#[derive(Default)]
pub(super) struct Part {
    pub(super) count: Tally,
    /// When it first opened the file so that it may write, in ns.
    pub(super) opened: Option<u64>,
    /// When it last made sure to find what others flushed, on the clock of [`super::Sharing`].
    acquired: u64,
    /// The range of bytes whose pages it dropped last, and when: from, up to, on the clock of `acquired`.
    dropped: (u64, u64, u64),
    /// Ranges written since its latest flush; some may have been written by others since.
    unflushed: Vec<(u64, u64)>,
    /// So many of them are sorted and joined.
    sorted: usize,
}

impl Part {
    fn written(&mut self, from: u64, to: u64) {
        match self.unflushed.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => self.unflushed.push((from, to)),
        }
        if self.unflushed.len() > UNSORTED + 2 * self.sorted {
            self.unflushed.sort_unstable();
            self.unflushed.dedup_by(|next, before| {
                let touches = next.0 <= before.1;
                if touches {
                    before.1 = before.1.max(next.1);
                }
                touches
            });
            self.sorted = self.unflushed.len();
        }
    }
}

#[derive(Default)]
pub(super) struct FileState {
    pub(super) name: FileName,
    /// Its length in bytes, as far as known.
    pub(super) size: u64,
    extents: Extents,
    pub(super) parts: Map<u32, Part>,
    /// When any process last opened or locked it or dropped its pages.
    acquired: u64,
    pub(super) sizes: Sizes,
    pub(super) count: Tally,
    /// Writes that begin within a page.
    pub(super) within: u64,
    /// Writes that begin or end within a page, and pages that had to be read for them.
    pub(super) partial: u64,
    pub(super) reads: u64,
    /// Writes that met another process's bytes in order, and those of them ordered by locks of other files.
    pub(super) ordered: u64,
    pub(super) elsewhere: u64,
    pub(super) found: [Found; 3],
    /// Stores through a mapping, and writes whose place is not known.
    pub(super) mapped: u64,
    pub(super) unplaced: u64,
    /// Writes for which there was no room.
    pub(super) omitted: u64,
    /// Some process appends to it (O_APPEND).
    pub(super) appends: bool,
}

impl FileState {
    /// Ranges that are remembered.
    pub(super) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// A process cuts it to this length: what lies behind is gone, but for what others have not flushed.
    pub(super) fn cut(&mut self, length: u64, writer: u32) {
        self.extents.cut(length, writer);
        self.size = length;
    }

    /// A process makes sure to find what others have flushed; `dropped` is the range of bytes that this is
    /// about, if not the whole file.
    pub(super) fn acquire(&mut self, writer: u32, dropped: Option<(u64, u64)>, now: u64) {
        let part = self.parts.entry(writer).or_default();
        match dropped {
            None => part.acquired = now,
            Some((from, to)) => part.dropped = (from, to, now),
        }
        self.acquired = now;
    }

    /// A process opens it so that it may write, at this time in ns.
    pub(super) fn open(&mut self, writer: u32, at: u64) {
        self.parts.entry(writer).or_default().opened.get_or_insert(at);
    }

    /// A process has flushed what it wrote. Flushes between two acquisitions of the file have the same time:
    /// that of the earlier acquisition, or `since` if that is later.
    pub(super) fn flush(&mut self, writer: u32, since: u64) {
        let Some(part) = self.parts.get_mut(&writer) else { return };
        part.sorted = 0;
        let flushed = self.acquired.max(since);
        for (from, to) in std::mem::take(&mut part.unflushed) {
            self.extents.flush(from, to, writer, flushed);
        }
    }

    /// Takes a write. `since`: as in [`FileState::flush`]. `order`: how the writer comes after another one
    /// that flushed at this time, as far as other files tell. `room`: there is room for more ranges.
    pub(super) fn write(&mut self, write: &Write, since: u64, room: bool, order: impl Fn(u32, u64) -> Order) {
        let Write { writer, from, to, at, direct, synchronous } = *write;
        self.count.add(to - from);
        self.sizes.add(to - from);
        self.within += u64::from(!from.is_multiple_of(PAGE));
        if !direct {
            self.count_partial(write);
        }
        let part = self.parts.entry(writer).or_default();
        part.count.add(to - from);
        let (acquired, dropped) = (part.acquired, part.dropped);
        if self.parts.len() > 1 {
            let is_dropped = |touched: (u64, u64), flushed| {
                let whole = (dropped.0.div_ceil(PAGE) * PAGE, dropped.1 / PAGE * PAGE);
                dropped.2 > flushed && whole.0 <= touched.0 && touched.1 <= whole.1
            };
            self.judge(write, |mark, touched| match mark.flushed {
                UNFLUSHED => Order::None,
                flushed if acquired > flushed || is_dropped(touched, flushed) => Order::Here,
                flushed => order(mark.writer, flushed),
            });
        }
        self.size = self.size.max(to);
        if !room {
            self.omitted += 1;
            return;
        }
        let is_flushed = direct || synchronous;
        let flushed = if is_flushed { self.acquired.max(since) } else { UNFLUSHED };
        self.extents.put(from, to, Mark { writer, flushed, at });
        if !is_flushed {
            self.parts.entry(writer).or_default().written(from, to);
        }
    }

    /// Counts a write of parts of pages, and the pages of which other bytes must be read for it: they are in
    /// the file, and the process has written nothing of the page before.
    fn count_partial(&mut self, write: &Write) {
        let Write { writer, from, to, .. } = *write;
        let (begins, ends) = (!from.is_multiple_of(PAGE), !to.is_multiple_of(PAGE));
        self.partial += u64::from(begins || ends);
        let is_cached = |page: u64| {
            let mut found = self.extents.overlapping(page * PAGE, page * PAGE + PAGE);
            found.any(|(_, _, mark)| mark.writer == writer)
        };
        let (first, last) = (from / PAGE, to / PAGE);
        let at_begin = begins && first * PAGE < self.size && !is_cached(first);
        let at_end = ends && (last != first || !begins) && to < self.size && !is_cached(last);
        self.reads += u64::from(at_begin) + u64::from(at_end);
    }

    /// Looks at the bytes of others in the pages that a write touches.
    fn judge(&mut self, write: &Write, order: impl Fn(&Mark, (u64, u64)) -> Order) {
        let Write { writer, from, to, at, direct, .. } = *write;
        let touched = (from / PAGE * PAGE, to.div_ceil(PAGE) * PAGE);
        // Pages that the write covers.
        let whole = (from.div_ceil(PAGE), to / PAGE);
        let second = Touch { writer, from, to, at };
        let (mut here, mut elsewhere) = (false, false);
        for (start, end, mark) in self.extents.overlapping(touched.0, touched.1) {
            if mark.writer == writer {
                continue;
            }
            match order(&mark, touched) {
                Order::Here => here = true,
                Order::Elsewhere => elsewhere = true,
                Order::None => {
                    let first = Touch { writer: mark.writer, from: start, to: end, at: mark.at };
                    let flushed = mark.flushed != UNFLUSHED;
                    let mut find = |level: Conflict, begin: u64, end: u64| {
                        if begin < end {
                            let found = &mut self.found[level as usize];
                            found.pages.insert(begin, end);
                            found.first.get_or_insert(Meeting { page: begin, first, second, flushed });
                        }
                    };
                    let both = (start.max(from), end.min(to));
                    if both.0 < both.1 {
                        let pages = (both.0 / PAGE, both.1.div_ceil(PAGE));
                        // A page that is written as a whole needs no other copy; what was flushed before
                        // does not come back.
                        let alone = match flushed {
                            true if direct => pages,
                            true => within(pages, &[whole]),
                            false => within(pages, &[whole, (start.div_ceil(PAGE), end / PAGE)]),
                        };
                        if !flushed {
                            find(Conflict::WholePage, alone.0, alone.1);
                        }
                        find(Conflict::Overlap, pages.0, alone.0);
                        find(Conflict::Overlap, alone.1, pages.1);
                    }
                    // A direct write copies no other bytes of its pages; what is not flushed yet will.
                    if !(direct && flushed) {
                        let is_beside = |begin: u64, behind: u64| start.max(begin) < end.min(behind);
                        if is_beside(touched.0, from) {
                            find(Conflict::Shared, from / PAGE, from / PAGE + 1);
                        }
                        if is_beside(to, touched.1) {
                            find(Conflict::Shared, to / PAGE, to / PAGE + 1);
                        }
                    }
                }
            }
        }
        self.ordered += u64::from(here || elsewhere);
        self.elsewhere += u64::from(elsewhere && !here);
    }
}

/// What of a range lies within all of these: if nothing does, none at its begin.
fn within(range: (u64, u64), others: &[(u64, u64)]) -> (u64, u64) {
    let common = others.iter().fold(range, |one, other| (one.0.max(other.0), one.1.min(other.1)));
    if common.0 < common.1 { common } else { (range.0, range.0) }
}
