//! Reads (`filemap_read`, mm/filemap.c, 6.18), and opening and closing.
//!
//! The law: what is cached is copied; what is not is read ahead of the reader, in windows that
//! [`readahead`](crate::readahead) opens. A window's pages are allocated when it is opened, in the
//! reader's time. The device then reads them one request after another, and each is copied when it has come.
//! A later window is opened when the reader meets the mark in the one before, and does not wait for it.
//!
//! When what a device was asked for comes, and what it does meanwhile, is told in
//! [`pending_reads`](super::pending_reads).
//!
//! What was cached before the first call is told by [`Op::Resident`]. Of a file of which it was not, all is
//! taken to be cached until a read of the process takes as long as a device does; the next ones are read
//! from there then, until one is not.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::super::cache::{REQUEST, Source};
use super::pending_reads::{PendingRead, Reader};
use super::{Call, Kernel};
use crate::call::is_file_read;
use crate::cause::Cause;
use crate::constants::{FOLIO, MAX_RESIDENT};
use crate::readahead::{Advice, Window};
use crate::units::{Pages, Seconds};
use crate::work::ReadWork;

/// Ranges that [`Op::Resident`] tells of.
const RANGES: u64 = 64;
/// Most bytes of a read (`MAX_RW_COUNT`).
const MAX_READ: u64 = 0x7fff_f000;
/// Windows on their way that are remembered; those of a reader follow one another, two at most.
const WINDOWS: usize = 256;
/// What has come so many seconds ago says nothing of the device's rate any more.
const PASSED: Seconds = Seconds(1.0);
/// Bytes of the pages that [`Event::aux`] counts.
const AUX_PAGE: u64 = 4096;
/// Advice of posix_fadvise as [`Event::aux`] has it.
const POSIX_FADV_NORMAL: u32 = 0;
const POSIX_FADV_RANDOM: u32 = 1;
const POSIX_FADV_SEQUENTIAL: u32 = 2;
const POSIX_FADV_WILLNEED: u32 = 3;

impl Kernel {
    /// read, pread, fread and relatives.
    pub(super) fn read_call(&mut self, call: &mut Call, event: &Event) {
        let bytes = (event.returned.max(0) as u64).min(MAX_READ);
        if event.op == Op::StreamRead {
            return self.stream_read(call, event, bytes);
        }
        if bytes == 0 {
            return call.spend(Cause::Call, call.constants.empty_read);
        }
        self.kernel_read(call, event, event.offset, bytes);
    }

    /// A read from a stream's buffer, which is filled when it is empty.
    fn stream_read(&mut self, call: &mut Call, event: &Event, bytes: u64) {
        let buffer = if self.streams.read(event) { call.constants.buffer } else { Seconds::ZERO };
        let streaming = call.constants.stream_call + bytes as f64 * call.constants.stream_byte + buffer;
        call.spend(Cause::Stream, streaming);
        match event.refilled().unwrap_or(bytes).min(MAX_READ) {
            // At the end of the file the kernel is asked in vain.
            0 => call.spend(Cause::Call, call.constants.empty_read),
            filled => self.kernel_read(call, event, event.offset, filled),
        }
    }

    /// Reads `bytes` at `offset`, through the cache or past it.
    fn kernel_read(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        self.touch_memory(call, event, bytes);
        let away = std::mem::take(&mut call.surcharge.away);
        call.spend(Cause::Call, call.constants.read_call + away * call.constants.read_away);
        call.work.read.calls += 1.0;
        call.work.read.away += away;
        if offset == UNKNOWN_OFFSET {
            call.work.read.bytes += bytes as f64;
            self.copy_out(call, bytes as f64 * call.constants.read_byte);
        } else if event.has(flag::DIRECT) && !self.in_memory(call) {
            self.direct_read(call, offset, bytes);
        } else {
            self.cached_read(call, event, offset, bytes);
        }
    }

    /// Allocates and clears the pages that a read goes to and the program has not touched before
    /// (`fault_in_iov_iter_writeable`, mm/gup.c, and `do_anonymous_page`, mm/memory.c, 6.18).
    fn touch_memory(&mut self, call: &mut Call, event: &Event, bytes: u64) {
        // Of a stream, it is the buffer.
        if event.aux == 0 || event.op == Op::StreamRead {
            return;
        }
        let pages = u64::from(event.aux).min(bytes.div_ceil(AUX_PAGE) + 1);
        let time = pages as f64 * call.constants.fault;
        call.spend(Cause::NewPages, time);
        call.work.read.faults += pages as f64;
        let cold = self.memory.supplied(call, (pages * AUX_PAGE).div_ceil(call.constants.page), 1);
        self.supply_cold(call, cold.likely);
    }

    /// O_DIRECT: what is dirty of the range is written out first (`kiocb_write_and_wait`).
    fn direct_read(&mut self, call: &mut Call, offset: u64, bytes: u64) {
        let last = offset.saturating_add(bytes);
        let (first, end) = call.constants.pages_of(offset, last);
        self.machine.write_out(call, first, end);
        let free = self.machine.devices[call.device].occupied <= call.at;
        let coming = self.reads.ask(&mut self.machine, call, (first, end), false);
        call.work.read.told = free;
        call.work.read.latencies += 1.0;
        call.work.read.transferred += bytes as f64;
        let ready = coming.begins + bytes as f64 * coming.page / call.constants.page as f64;
        self.machine.wait_for_read(call, ready);
    }

    /// Through the page cache.
    fn cached_read(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let last = offset.saturating_add(bytes);
        let (first, end) = call.constants.pages_of(offset, last);
        let near = self.processor_cache.touch(call.file, first, end);
        let inode = self.machine.cache.file_mut(call.file);
        // What another process has written since, or a file of no length such as those of /proc, is cached.
        let known_end = call.constants.pages_up_to(inode.size);
        let strange = last > inode.size;
        inode.size = inode.size.max(last);
        let far = near < 0.5;
        let size = inode.size;
        let near = call.constants.nearness(near, size);
        let byte = near * call.constants.read_hot_byte + (1.0 - near) * call.constants.read_byte;
        if strange {
            self.machine.cache.read(call.file, known_end.max(first), end, Source::Cache);
        }
        call.work.read.bytes += bytes as f64 * byte / call.constants.read_byte;
        let copying = bytes as f64 * byte / (end - first) as f64;
        let (file, now) = (call.file, call.at);
        let is_read_now = |of: &PendingRead| of.file == file && of.end > first;
        self.reads.pending.retain(|of| {
            let ready = of.ready(of.end - 1);
            ready > now || is_read_now(of) && ready + PASSED > now
        });
        let key = (event.pid, event.fd);
        let mut reader = self.reads.readers.take(&key).unwrap_or_default();
        if reader.file != call.file {
            reader = Reader { file: call.file, ..Reader::default() };
        }
        let most = self.readahead(call);
        let in_memory = self.in_memory(call);
        let mut at = first;
        while at < end {
            let mut until = self.machine.cache.cached_until(call.file, at, end);
            if in_memory {
                // What is not there is a hole (`shmem_file_read_iter`).
                until = end;
            } else if until == at && self.is_taken_to_be_cached(call, event) {
                until = self.machine.cache.missing_until(call.file, at, end);
                self.machine.cache.read_ahead(call.file, at, until, FOLIO, Source::Cache);
                let missing = ((until - at) * call.constants.page) as f64;
                call.work.source += self.reads.speed(self.machine.device(call)).apart(missing);
            } else if until == at {
                let cache = &mut self.machine.cache;
                let before = |most| {
                    let pages = cache.cached_before(call.file, at, most);
                    (pages, pages == at)
                };
                let window = reader.window.miss(at, end - at, (most, REQUEST), before);
                self.open_window(call, window, true);
                continue;
            }
            while let Some(mark) = self.machine.cache.take_mark(call.file, at, until) {
                let cache = &mut self.machine.cache;
                let behind = |most| {
                    let last = mark + 1 + most;
                    Some(cache.cached_until(call.file, mark + 1, last)).filter(|page| *page < last)
                };
                let cuts = self.machine.laws.cuts_windows;
                if let Some(window) = reader.window.meets(mark, end - mark, (most, cuts), behind) {
                    self.open_window(call, window, false);
                }
            }
            self.copy_pages(call, at, until, copying);
            at = until;
        }
        let begins = !reader.window.goes_on(first);
        // The page that the latest read ended in has been touched.
        let touched = u64::from(reader.window.is_at(first));
        if far && first + touched < end {
            self.pass_folios(call, first + touched, end, begins);
        }
        if !in_memory {
            self.machine.cache.access(call.file, first, end, reader.window.latest());
        }
        reader.window.read(end - 1);
        if strange {
            // No example of what others cost: the kernel may make what such a file has.
            call.work.read = ReadWork::default();
        }
        self.reads.readers.put(key, reader);
    }

    /// What a read of the pages from `first` up to `end`, which are in memory, takes for each folio that it
    /// begins, whether it goes on where the latest read ended or begins in the middle of one.
    fn pass_folios(&mut self, call: &mut Call, first: u64, end: u64, begins: bool) {
        let (begin, next) = self.machine.cache.file(call.file).folios.around(first);
        let more = end.saturating_sub(next).div_ceil(next - begin) as f64;
        let constants = &call.constants;
        let each = constants.read_folio_far;
        // What it costs to begin in the middle is learned as a part of a folio.
        let is_apart = first > begin && begins && next - begin > 1 && each > Seconds::ZERO;
        let begun = f64::from(u8::from(begins || first == begin));
        let folios = more + if is_apart { constants.read_apart / each } else { begun };
        call.work.read.folios += folios;
        self.copy_out(call, folios * each);
    }

    /// Nothing says that this file was not cached, and the process has lately read nothing of that kind from
    /// the device.
    fn is_taken_to_be_cached(&mut self, call: &Call, event: &Event) -> bool {
        !self.machine.cache.file(call.file).told && self.reads.uncached.peek(&event.pid).is_none()
    }

    /// Allocates what is not cached of a window, and asks the device for it. The reader waits for it now if
    /// `awaited`.
    fn open_window(&mut self, call: &mut Call, window: Window, awaited: bool) {
        let size = self.machine.cache.size(call.file);
        let end = window.end.min(call.constants.pages_up_to(size));
        let folio = window.folio.min(call.folio);
        let mut at = window.first;
        let mut asked = 0;
        while at < end {
            let first = self.machine.cache.cached_until(call.file, at, end);
            at = self.machine.cache.missing_until(call.file, first, end);
            if first == at {
                break;
            }
            let pages = at - first;
            let cold = self.memory.supplied(call, pages, folio);
            let is_hole = self.machine.cache.is_hole(call.file, first, at);
            // A hole's pages are cleared (`folio_zero_segment`), those that the device fills only allocated.
            let new = if is_hole { pages } else { pages.div_ceil(folio.max(1)) } as f64;
            call.spend(Cause::NewPages, new * call.constants.read_fresh_page);
            call.work.read.fresh += new * call.constants.page as f64;
            if !awaited {
                // Handing it over takes the reader time that is none of its wait.
                let submitting = pages.div_ceil(REQUEST) as f64 * self.machine.device(call).timing.request;
                call.spend(Cause::Read, submitting);
            }
            self.machine.cache.read_ahead(call.file, first, at, folio, Source::Device);
            if let Some(mark) = window.mark.filter(|mark| (first..at).contains(mark)) {
                self.machine.cache.mark(call.file, mark);
            }
            if is_hole {
                self.supply_cold(call, cold.likely);
            } else {
                asked += pages;
                let mut coming = self.reads.ask(&mut self.machine, call, (first, at), true);
                coming.cold = cold.likely / pages as f64;
                // The oldest has come: a call of many windows waits for the latest ones.
                if self.reads.pending.len() == WINDOWS {
                    self.reads.pending.remove(0);
                }
                self.reads.pending.push(coming);
            }
        }
        if asked > 0 && awaited {
            let bytes = (asked * call.constants.page) as f64;
            let device = self.machine.device(call);
            if device.timing.cached_read.is_some() {
                let fast = self.reads.is_from_cache(device);
                let [now, other] =
                    [fast, !fast].map(|fast| device.timing.read_speed(fast, true).apart(bytes));
                call.work.other_speed += other - now;
            }
        }
    }

    /// Largest window of the call's device, in pages.
    fn readahead(&self, call: &Call) -> u64 {
        call.constants.page_of(self.machine.device(call).timing.readahead)
    }

    /// Copies these cached pages out, `copying` seconds each, as they come.
    fn copy_pages(&mut self, call: &mut Call, first: u64, end: u64, copying: Seconds) {
        let mut at = first;
        while at < end {
            let (mut until, mut here) = (end, None);
            for coming in self.reads.pending.iter().filter(|coming| coming.file == call.file) {
                if (coming.first..coming.end).contains(&at) {
                    here = Some(*coming);
                } else if coming.first > at {
                    until = until.min(coming.first);
                }
            }
            if let Some(coming) = here {
                until = until.min(self.reads.wait_for_page(&mut self.machine, call, coming, at));
            }
            let pages = (until - at) as f64;
            if let Some(coming) = here {
                // What the device has written, the processor touches first here.
                call.work.read.arrived += pages * call.constants.page as f64;
                let by_regime = |cold| if cold { call.constants.cold_page } else { Seconds::ZERO };
                self.supply_cold(call, pages * self.memory.supply.map_or(coming.cold, by_regime));
            }
            self.copy_out(call, pages * copying);
            at = until;
        }
    }

    fn supply_cold(&mut self, call: &mut Call, time: Seconds) {
        if time > Seconds::ZERO {
            call.spend(Cause::ColdMemory, time);
        }
    }

    fn copy_out(&mut self, call: &mut Call, time: Seconds) {
        call.spend(Cause::Copy, time);
        self.writers.pass_to(&mut self.machine, call.at);
    }

    /// The call may have to wait for the device to read.
    pub(super) fn may_read(&self, event: &Event, start: Seconds) -> bool {
        if !is_file_read(event) || event.offset == UNKNOWN_OFFSET {
            return false;
        }
        let Some(file) = self.machine.cache.find(event.file()) else { return true };
        if self.machine.devices[self.machine.cache.device(file)].traits.is_in_memory {
            return false;
        }
        let last = event.offset.saturating_add(event.returned.max(0) as u64);
        let (first, end) = self.constants.pages_of(event.offset, last);
        let coming = |of: &PendingRead| {
            of.file == file && of.first < end && first < of.end && of.ready(of.end - 1) > start
        };
        self.machine.cache.count(file, first, end) < end - first || self.reads.pending.iter().any(coming)
    }

    /// What was cached of a file before it was first read or written over. Of what is dirty no more is told
    /// than how much that is: it is taken to be what the flusher, which goes up a file (`writeback_index`),
    /// comes to last. The kernel's counters have had it among the pages of untraced writers.
    pub(super) fn resident(&mut self, file: u32, event: &Event) {
        let pages = self.constants.page_of(event.offset).min(MAX_RESIDENT / RANGES);
        // Of a file that was opened before it is not known how long it is.
        let known = self.constants.pages_up_to(self.machine.cache.size(file));
        let all = if known > 0 { known } else { u64::MAX };
        let is_unknown = self.machine.cache.file(file).dirty.pages() == 0;
        let mut dirty = if is_unknown { self.constants.page_of(u64::from(event.aux) * AUX_PAGE) } else { 0 };
        for range in (0..RANGES).rev() {
            let (first, end) = (range * pages, ((range + 1) * pages).min(all));
            if event.requested >> range & 1 == 1 && first < end {
                self.machine.cache.read_ahead(file, first, end, FOLIO, Source::Cache);
                let from = end - dirty.min(end - first);
                if from < end {
                    let page = self.constants.page;
                    let found = self.dirty_quietly(file, from * page, (end - from) * page);
                    dirty -= end - from;
                    if self.machine.foreign.told {
                        self.machine.foreign.pages -= Pages::of(found.dirtied);
                    }
                }
            }
        }
        self.machine.cache.file_mut(file).told = true;
    }

    /// posix_fadvise and readahead, but for what is dropped.
    pub(super) fn advised(&mut self, call: &Call, event: &Event) {
        let mut reader = self.reads.readers.take(&(event.pid, event.fd)).unwrap_or_default();
        reader.file = call.file;
        match event.aux {
            POSIX_FADV_NORMAL => reader.window.advice = Advice::Normal,
            POSIX_FADV_RANDOM => reader.window.advice = Advice::Random,
            POSIX_FADV_SEQUENTIAL => reader.window.advice = Advice::Sequential,
            // Files in memory have none of it (`generic_fadvise`).
            POSIX_FADV_WILLNEED if !self.in_memory(call) => {
                let first = call.constants.page_of(event.offset);
                let end = match event.requested {
                    0 => u64::MAX,
                    length => call.constants.pages_up_to(event.offset.saturating_add(length)),
                };
                // No more at a time (`force_page_cache_ra`).
                let end = end.min(first + self.readahead(call).max(REQUEST));
                let mut call = call.clone();
                self.open_window(&mut call, Window { first, end, folio: 1, mark: None }, false);
            }
            _ => {}
        }
        self.reads.readers.put((event.pid, event.fd), reader);
    }
}
