//! Which pages the kernel reads when a reader needs some (mm/readahead.c, 6.18).
//!
//! The law: a reader that goes on where it stopped, or begins at the begin of the file, gets a window of four
//! or two times what it asked for (`get_init_ra_size`); each later one is four or two times the one before
//! (`get_next_ra_size`), up to the largest. In a window a page is marked: a reader that meets it opens the
//! next window (`page_cache_async_ra`), which so is on its way before it is needed. Folios become four times
//! as large with each, and a window ends where one of them may begin. What is read away from the latest read
//! is read alone, unless enough pages before it are cached to tell a stream. A reader that meets the mark of
//! another one's window, or of one that it has left, reads behind what is cached there, as much as lies
//! between and more: so random reads come to read ahead once enough of a file is cached.

use super::pages::BLOCK;

/// Pages to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub first: u64,
    /// The one behind the last; the file may end before.
    pub end: u64,
    /// Pages of the largest folio, a power of two.
    pub folio: u64,
    /// The page that is marked, if it is not cached before.
    pub mark: Option<u64>,
}

/// What was asked for with a descriptor (`generic_fadvise`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Nothing (`POSIX_FADV_NORMAL`).
    #[default]
    Normal,
    /// Nothing is read that was not asked for (`POSIX_FADV_RANDOM`).
    Random,
    /// Windows may be twice as large (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
}

/// State of a descriptor (`struct file_ra_state`), in pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readahead {
    start: u64,
    size: u64,
    ahead: u64,
    order: u32,
    /// The page that the latest read ended in; None before the first.
    latest: Option<u64>,
    /// What the program has advised (posix_fadvise).
    pub advice: Advice,
}

impl Readahead {
    /// The largest window, where the device's is `most`.
    fn most(&self, most: u64, wanted: u64, request: u64) -> u64 {
        let most = if self.advice == Advice::Sequential { 2 * most } else { most };
        if wanted > most { most.max(request.min(wanted)) } else { most }
    }

    /// The page `index` is not cached, and `wanted` pages from there are asked for (`page_cache_sync_ra`).
    /// The device's largest window is `most` and its largest request `request`; `before` tells how many pages
    /// just before are cached, up to that many, and whether these begin the file.
    pub fn miss(
        &mut self,
        index: u64,
        wanted: u64,
        (most, request): (u64, u64),
        before: impl FnOnce(u64) -> (u64, bool),
    ) -> Window {
        let alone = |pages: u64| Window { first: index, end: index + pages, folio: 1, mark: None };
        if most == 0 {
            return alone(1);
        }
        if self.advice == Advice::Random {
            return alone(wanted);
        }
        let most = self.most(most, wanted, request);
        if index == 0 || wanted > most || self.goes_on(index) {
            self.size = first_size(wanted, most);
            self.ahead = if self.size > wanted { self.size - wanted } else { self.size / 2 };
        } else {
            let (cached, whole) = before(most);
            if cached <= wanted {
                return alone(wanted);
            }
            self.size = (if whole { 2 * cached } else { cached } + wanted).min(most);
            self.ahead = 1;
        }
        (self.start, self.order) = (index, 0);
        self.open()
    }

    /// A read that goes on for `wanted` pages from there meets the marked page `index`
    /// (`page_cache_async_ra`); `behind` tells the first page that is not cached behind it, of so many at
    /// most, if there is one; `cuts`: windows are cut (since 6.17). None: no window is opened.
    pub fn meets(
        &mut self,
        index: u64,
        wanted: u64,
        (most, cuts): (u64, bool),
        behind: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<Window> {
        if most == 0 || self.advice == Advice::Random {
            return None;
        }
        let most = self.most(most, 0, 0);
        if index == self.start + self.size - self.ahead {
            self.start += self.size;
        } else {
            self.start = behind(most)?;
            self.size = self.start - index + wanted;
        }
        self.size = next_size(self.size, most);
        self.order += 2;
        // A window ends where a folio of that size may begin, but the largest windows are never cut
        // (`round_down(end, 1 << min(ra->order, ffs(max_pages) - 1))`).
        let order = self.order.min(most.trailing_zeros());
        let end = (self.start + self.size) >> order << order;
        if cuts && end > self.start {
            self.size = end - self.start;
        }
        self.ahead = self.size;
        Some(self.open())
    }

    /// A read that begins at this page goes on where the latest one ended.
    pub fn goes_on(&self, index: u64) -> bool {
        self.latest.is_some_and(|latest| index.wrapping_sub(latest) <= 1)
    }

    /// The page that the latest read ended in.
    pub fn latest(&self) -> Option<u64> {
        self.latest
    }

    /// The latest read ended in this page.
    pub fn is_at(&self, page: u64) -> bool {
        self.latest == Some(page)
    }

    /// A read ended in this page.
    pub fn read(&mut self, page: u64) {
        self.latest = Some(page);
    }

    fn open(&mut self) -> Window {
        // `page_cache_ra_order`.
        self.order = self.order.min(self.size.max(1).ilog2()).min(BLOCK.ilog2());
        let (first, end) = (self.start, self.start + self.size);
        Window { first, end, folio: 1 << self.order, mark: Some(end - self.ahead) }
    }
}

/// `get_init_ra_size`.
fn first_size(wanted: u64, most: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= most / 32 {
        4 * size
    } else if size <= most / 4 {
        2 * size
    } else {
        most
    }
}

/// `get_next_ra_size`.
fn next_size(size: u64, most: u64) -> u64 {
    if size < most / 16 {
        4 * size
    } else if size <= most / 2 {
        2 * size
    } else {
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: (u64, u64) = (32, 320);

    /// Ends of the windows that a reader of `step` pages at a time opens up to page `end`.
    fn windows(step: u64, end: u64, most: u64, advice: Advice) -> Vec<u64> {
        let mut reader = Readahead { advice, ..Readahead::default() };
        let (mut opened, mut have, mut mark) = (Vec::new(), 0, None);
        for at in (0..end).step_by(step as usize) {
            if at + step > have {
                let from = at.max(have);
                let window = reader.miss(from, at + step - from, (most, 320), |_| (0, false));
                (have, mark) = (window.end, window.mark);
                opened.push(have);
            }
            if let Some(met) = mark.take_if(|mark| (at..at + step).contains(mark))
                && let Some(window) = reader.meets(met, at + step - met, (most, true), |_| Some(have))
            {
                assert_eq!(window.first, have);
                (have, mark) = (window.end, window.mark);
                opened.push(have);
            }
            reader.read(at + step - 1);
        }
        opened
    }

    #[test]
    fn windows_of_a_stream_grow_to_the_largest() {
        // Pages read one by one, as mincore showed them to come on 6.18: with windows of 128 KiB,
        let usual = windows(1, 100, 32, Advice::Normal);
        assert_eq!(usual, [4, 12, 16, 24, 32, 48, 64, 96, 128, 160]);
        // with twice that,
        let advised = windows(1, 100, 32, Advice::Sequential);
        assert_eq!(advised, [4, 12, 16, 24, 32, 48, 64, 96, 128, 192]);
        // and with 8 MiB.
        let large = windows(1, 3000, 2048, Advice::Normal);
        assert_eq!(large[..10], [4, 20, 80, 320, 768, 1024, 1536, 2048, 3072, 4096]);
        assert_eq!(windows(4, 32, 32, Advice::Normal)[..4], [8, 24, 48, 64]);
        // With 2560 KiB, which is no power of two, and 128 KiB at a time.
        let odd = windows(32, 4000, 640, Advice::Normal);
        assert_eq!(odd[..9], [64, 192, 448, 960, 1536, 2176, 2816, 3456, 4096]);
        // More than the largest window at a time: as a request of the device.
        assert_eq!(windows(64, 64, 32, Advice::Normal)[0], 64);
    }

    #[test]
    fn a_mark_of_another_reader_has_more_read_behind_what_is_cached() {
        let mut reader = Readahead::default();
        reader.miss(1000, 2, MAX, |_| (0, false));
        // 20 pages are cached from the mark on: four times that and what is asked for, in larger folios.
        let window = reader.meets(500, 2, (2048, true), |_| Some(520)).expect("more is read");
        assert_eq!((window.first, window.end, window.folio), (520, 608, 4));
        // From there on it is a stream of this reader.
        let mark = window.mark.expect("marked");
        let next = reader.meets(mark, 2, (2048, true), |_| unreachable!("its own window")).expect("the next");
        assert_eq!(next.first, 608);
        assert_eq!(reader.meets(5000, 2, (2048, true), |_| None), None, "all is cached, as far as looked");
    }

    #[test]
    fn what_is_read_elsewhere_is_read_alone() {
        let mut reader = Readahead::default();
        let alone = reader.miss(1000, 4, MAX, |_| (0, false));
        assert_eq!((alone.first, alone.end), (1000, 1004));
        reader.read(1003);
        // It goes on: a window.
        let next = reader.miss(1004, 4, MAX, |_| (0, false));
        assert_eq!((next.first, next.end), (1004, 1012));
        assert_eq!(next.mark, Some(1008), "behind what was asked for");
        let none = |_| unreachable!("its own window");
        assert_eq!(reader.meets(1008, 1, (MAX.0, true), none).map(|window| window.first), Some(1012));
        // A stream that another descriptor has left is known by the pages that it left cached.
        let mut other = Readahead::default();
        assert_eq!(other.miss(500, 2, MAX, |_| (20, false)).end, 522);
        let mut random = Readahead { advice: Advice::Random, ..Readahead::default() };
        assert_eq!(random.miss(0, 4, MAX, |_| (0, true)).end, 4);
        assert_eq!(Readahead::default().miss(7, 4, (0, 320), |_| (0, false)).end, 8);
    }

    /// The window after one of 64 pages has four times as many: from page 129 on it ends at 385, and since
    /// 6.17 at 384, where a folio of 16 pages may (`page_cache_async_ra`).
    #[test]
    fn windows_are_cut_since_6_17() {
        for (cuts, end) in [(true, 384), (false, 385)] {
            let mut reader = Readahead { start: 65, size: 64, ahead: 64, order: 2, ..Readahead::default() };
            let window = reader.meets(65, 1, (2048, cuts), |_| unreachable!("its own window"));
            assert_eq!(window.map(|window| (window.first, window.end)), Some((129, end)));
        }
    }
}
