//! Reads (`filemap_read`, mm/filemap.c, 6.18), and opening and closing.
//!
//! The law: what is cached is copied; what is not is read ahead of the reader, in windows that
//! [`Readahead`] opens. A window's pages are allocated when it is opened, in the reader's time. The device
//! then reads them one request after another, and each is copied when it has come. A later window is opened
//! when the reader meets the mark in the one before, and does not wait for it.
//!
//! Reads and synchronous writes have the device one after another, and while it reads, it writes nothing
//! back. Some devices complete all that they were asked for together (a virtual machine's host that looks at
//! its queue once): a device is taken to do so when later requests of a window have come with the first, until
//! they do not. What is in the device's own cache comes faster: which of the two it is, no call tells, so a device
//! is taken to go on as its latest read did.
//!
//! What was cached before the first call is told by [`Op::Resident`]. Of a file of which it was not, all is
//! taken to be cached until a read of the process takes as long as a device does; the next ones are read
//! from there then, until one is not.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::super::cache::REQUEST;
use super::sync::known;
use super::write::{HOT_FILE, NEAR_FILE};
use super::{Call, Kernel};
use crate::call::is_file_read;
use crate::cause::Cause;
use crate::model::readahead::{Advice, Readahead, Window};
use crate::model::{LruMap, Prediction};

/// Ranges that [`Op::Resident`] tells of.
const RANGES: u64 = 64;
/// Most bytes of a read (`MAX_RW_COUNT`).
const MOST_READ: u64 = 0x7fff_f000;
/// Most pages that it is believed: 512 GiB of a page of 4 KiB.
const MOST_RESIDENT: u64 = 1 << 27;
/// Pages of a folio that was cached before the first call: no call tells, and what is read ahead, or written
/// in ordinary pieces, comes in folios of 16 KiB to 256.
const FOLIO: u64 = 16;
/// Windows on their way that are remembered; those of a reader follow one another, two at most.
const WINDOWS: usize = 256;
/// What has come so many seconds ago says nothing of the device's rate any more.
const PASSED: f64 = 1.0;
/// Reads in a row that contradict how a device is taken to complete its requests before it is taken to do
/// otherwise.
const AGAINST: u32 = 3;
/// How much closer the other speed of a device must be to what was observed before it is believed.
const CLEARLY: f64 = 2.0;

/// Advice of posix_fadvise as [`Event::aux`] has it.
const POSIX_FADV_NORMAL: u32 = 0;
const POSIX_FADV_RANDOM: u32 = 1;
const POSIX_FADV_SEQUENTIAL: u32 = 2;
const POSIX_FADV_WILLNEED: u32 = 3;

/// Pages of a file that the device is reading.
#[derive(Clone, Copy, Debug)]
struct Coming {
    device: usize,
    file: u32,
    first: u64,
    end: u64,
    /// When its first byte comes, in seconds, and how long a page takes.
    begins: f64,
    page: f64,
    /// Pages that the device was asked for before in a row without a rest; 0 for the first ones of a row.
    before: u64,
}

impl Coming {
    /// When this page is there: requests are complete as a whole.
    fn ready(&self, page: u64) -> f64 {
        let last = self.first + (page - self.first + 1).next_multiple_of(REQUEST);
        self.begins + (last.min(self.end) - self.first) as f64 * self.page
    }
}

/// A descriptor that is read from.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    file: u32,
    window: Readahead,
}

/// All that is being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// By process and descriptor.
    readers: LruMap<(u32, i32), Reader>,
    coming: Vec<Coming>,
    /// Processes whose latest read of a file of unknown state came from the device.
    uncached: LruMap<u32, ()>,
    /// Devices (`st_dev`) whose latest read came from their own cache.
    from_cache: Vec<u64>,
    /// Whether a device (`st_dev`) completes what it was asked for together, and how many reads in a row have
    /// contradicted that.
    together: Vec<(u64, bool, u32)>,
    /// The row of reads under way: its device, and how many pages that was asked for.
    row: (usize, u64),
    /// Pages of the row that had come, and when, at the end of the latest wait; in seconds.
    latest: Option<(u64, f64)>,
    /// Pages of the row that the call under way needs.
    reached: u64,
}

/// How a device reads: seconds a byte, and until the first one comes, of which the seek is its own time.
#[derive(Clone, Copy, Debug)]
struct Speed {
    byte: f64,
    latency: f64,
    seek: f64,
}

impl Speed {
    /// What reading pages of so many bytes takes away from the read before.
    fn apart(&self, bytes: f64) -> f64 {
        self.latency + self.seek + bytes * self.byte
    }
}

impl Reads {
    /// The device's latest read came from its own cache.
    fn is_fast(&self, device: u64) -> bool {
        self.from_cache.contains(&device)
    }

    /// The device completes all that it was asked for together.
    fn comes_together(&self, device: u64) -> bool {
        self.together.iter().any(|(of, together, _)| *of == device && *together)
    }

    /// A device is met that does so, or does not, as far as is known.
    pub(super) fn meet(&mut self, device: u64, together: bool) {
        self.together.push((device, together, 0));
    }

    /// A read contradicts that, or agrees. True if the device is taken to do otherwise from now on.
    fn judge_together(&mut self, device: u64, contradicts: bool) -> bool {
        let Some((_, together, against)) = self.together.iter_mut().find(|(of, ..)| *of == device) else {
            return false;
        };
        *against = if contradicts { *against + 1 } else { 0 };
        let turns = *against >= AGAINST;
        if turns {
            (*together, *against) = (!*together, 0);
        }
        turns
    }

    /// A descriptor leads to a file anew.
    pub(super) fn opened(&mut self, event: &Event) {
        self.readers.take(&(event.pid, event.fd));
    }
}

impl Kernel {
    /// read, pread, fread and relatives.
    pub(super) fn read_call(&mut self, call: &mut Call, event: &Event) {
        let bytes = (event.returned.max(0) as u64).min(MOST_READ);
        if event.op == Op::StreamRead {
            return self.stream_read(call, event, bytes);
        }
        if bytes == 0 {
            return call.spend_empty_call(self.constants.empty_read);
        }
        self.kernel_read(call, event, event.offset, bytes);
    }

    /// A read from a stream's buffer, which is filled when it is empty.
    fn stream_read(&mut self, call: &mut Call, event: &Event, bytes: u64) {
        let copied = bytes as f64 * self.constants.stream_byte;
        call.pass(self.constants.stream_call + copied);
        call.spent[Cause::Stream] += self.constants.stream_call + copied;
        let filled = event.refilled().unwrap_or(bytes).min(MOST_READ);
        if filled > 0 {
            self.kernel_read(call, event, event.offset, filled);
        }
    }

    /// Reads `bytes` at `offset`, through the cache or past it.
    fn kernel_read(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let away = std::mem::take(&mut call.away) * self.constants.away;
        call.spend_empty_call(self.constants.read_call + away);
        call.work.read.calls += 1.0;
        if offset == UNKNOWN_OFFSET {
            call.work.read.bytes += bytes as f64;
            self.copy_out(call, bytes as f64 * self.constants.read_byte);
        } else if event.has(flag::DIRECT) {
            self.direct_read(call, offset, bytes);
        } else {
            self.cached_read(call, event, offset, bytes);
        }
    }

    /// O_DIRECT: what is dirty of the range is written out first (`kiocb_write_and_wait`).
    fn direct_read(&mut self, call: &mut Call, offset: u64, bytes: u64) {
        let last = offset.saturating_add(bytes);
        let (first, end) = (self.constants.page_of(offset), self.constants.pages_up_to(last));
        self.write_out(call, first, end);
        let free = self.machine.devices[call.device].occupied <= call.at;
        let coming = self.ask_device(call, first, end, false);
        call.work.read.told = free;
        call.work.read.latencies += 1.0;
        call.work.read.transferred += bytes as f64;
        let ready = coming.begins + bytes as f64 * coming.page / self.constants.page as f64;
        self.wait_for_read(call, ready);
    }

    /// Through the page cache.
    fn cached_read(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let last = offset.saturating_add(bytes);
        let (first, end) = (self.constants.page_of(offset), self.constants.pages_up_to(last));
        let away = self.machine.cache.touch(call.file, bytes);
        let inode = self.machine.cache.file_mut(call.file);
        // What another process has written since, or a file of no length such as those of /proc, is cached.
        let known_end = self.constants.pages_up_to(inode.size);
        let strange = last > inode.size;
        inode.size = inode.size.max(last);
        let (byte, far) = match inode.size.max(away) {
            away if away <= NEAR_FILE => (self.constants.read_hot_byte, false),
            away if away <= HOT_FILE => (self.constants.read_cached_byte, false),
            _ => (self.constants.read_byte, true),
        };
        if strange {
            self.machine.cache.read(call.file, known_end.max(first), end);
        }
        call.work.read.bytes += bytes as f64 * byte / self.constants.read_byte;
        let copying = bytes as f64 * byte / (end - first) as f64;
        let (file, now) = (call.file, call.at);
        let is_read_now = |of: &Coming| of.file == file && of.end > first;
        self.reads.coming.retain(|of| {
            let ready = of.ready(of.end - 1);
            ready > now || is_read_now(of) && ready + PASSED > now
        });
        let key = (event.pid, event.fd);
        let mut reader = self.reads.readers.take(&key).unwrap_or_default();
        if reader.file != call.file {
            reader = Reader { file: call.file, ..Reader::default() };
        }
        let most = self.readahead(call);
        let mut at = first;
        while at < end {
            let mut until = self.machine.cache.cached_until(call.file, at, end);
            if until == at && self.is_taken_to_be_cached(call, event) {
                until = self.machine.cache.missing_until(call.file, at, end);
                self.machine.cache.read_ahead(call.file, at, until, FOLIO);
                let missing = ((until - at) * self.constants.page) as f64;
                call.work.source += self.speed(call, self.reads.is_fast(event.dev), true).apart(missing);
            } else if until == at {
                let cache = &mut self.machine.cache;
                let before = |most| {
                    let pages = cache.cached_before(call.file, at, most);
                    (pages, pages == at)
                };
                let window = reader.window.miss(at, end - at, (most, REQUEST), before);
                self.open_window(call, &mut reader, window, true);
                continue;
            }
            if let Some(window) = reader.window.meets(at, until, most) {
                self.open_window(call, &mut reader, window, false);
            }
            self.copy_pages(call, at, until, copying);
            at = until;
        }
        let goes_on = reader.window.goes_on(first);
        self.pass_folios(call, first, end, (far, !goes_on));
        reader.window.read(end - 1);
        self.reads.readers.put(key, reader);
    }

    /// What a read of the pages from `first` up to `end` takes for each folio beyond the first.
    fn pass_folios(&mut self, call: &mut Call, first: u64, end: u64, (far, begins): (bool, bool)) {
        let (first, next) = self.machine.cache.file(call.file).folios.around(first);
        let more = end.saturating_sub(next).div_ceil(next - first) as f64;
        let (near, beyond) = (self.constants.read_folio, self.constants.read_folio_far);
        let work = &mut call.work.read.folios;
        let each = if far { beyond } else { near };
        work[usize::from(far)] += more;
        // Of one that is not in the processor's cache the call's own cost has a part, unless the processor
        // has foreseen it.
        let begin = if far && begins { (beyond - near).max(0.0) } else { 0.0 };
        if begin > 0.0 {
            work[0] -= 1.0;
            work[1] += 1.0;
        }
        self.copy_out(call, more * each + begin);
    }

    /// Nothing says that this file was not cached, and the process has lately read nothing of that kind from
    /// the device.
    fn is_taken_to_be_cached(&mut self, call: &Call, event: &Event) -> bool {
        !self.machine.cache.file(call.file).told && self.reads.uncached.peek(&event.pid).is_none()
    }

    /// Allocates what is not cached of a window, and asks the device for it. The reader waits for it now if
    /// `awaited`.
    fn open_window(&mut self, call: &mut Call, reader: &mut Reader, window: Window, awaited: bool) {
        let size = self.machine.cache.size(call.file);
        let end = window.end.min(self.constants.pages_up_to(size));
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
            let cold = self.supplied(pages, folio, call.at);
            let new = pages as f64 * self.constants.read_fresh_page;
            call.pass(new + cold.likely);
            call.spent[Cause::NewPages] += new;
            call.work.read.fresh += (pages * self.constants.page) as f64;
            if cold.likely > 0.0 {
                call.spent[Cause::ColdMemory] += cold.likely;
            }
            if !awaited {
                // Handing it over takes the reader time that is none of its wait.
                let submitting = pages.div_ceil(REQUEST) as f64 * self.request(call);
                call.pass(submitting);
                call.spent[Cause::Read] += submitting;
            }
            let is_hole = self.machine.cache.is_hole(call.file, first, at);
            self.machine.cache.read_ahead(call.file, first, at, folio);
            if !is_hole {
                asked += pages;
                let coming = self.ask_device(call, first, at, true);
                if self.reads.coming.len() < WINDOWS {
                    self.reads.coming.push(coming);
                }
            }
        }
        if asked == 0 {
            // The mark is set on a page that is allocated.
            reader.window.unmark();
        } else if awaited {
            let bytes = (asked * self.constants.page) as f64;
            let fast = self.reads.is_fast(self.machine.devices[call.device].id);
            if self.has_two_speeds(call) {
                let [now, other] = [fast, !fast].map(|fast| self.speed(call, fast, true).apart(bytes));
                call.work.other_speed += other - now;
            }
        }
    }

    /// The device begins to read these pages of the call's file, ahead of the reader or for it alone, after
    /// what it does for others.
    fn ask_device(&mut self, call: &mut Call, first: u64, end: u64, ahead: bool) -> Coming {
        let page = self.constants.page;
        let speed = self.speed(call, self.reads.is_fast(self.machine.devices[call.device].id), ahead);
        let device = &mut self.machine.devices[call.device];
        let head = std::mem::replace(&mut device.head, (call.file, end * page));
        let goes_on = head == (call.file, first * page);
        let (latency, seek) =
            if goes_on { (speed.latency.min(device.log), 0.0) } else { (speed.latency, speed.seek) };
        let page_time = page as f64 * speed.byte;
        let rested = device.occupied < call.at + latency;
        let begins = (call.at + latency).max(device.occupied) + seek;
        let done = begins + (end - first) as f64 * page_time;
        let busy = done - (call.at).max(device.occupied);
        device.occupied = done;
        let at = call.device;
        self.machine.stand_still(at, busy.min(seek + (end - first) as f64 * page_time));
        if rested || self.reads.row.0 != at || !ahead {
            (self.reads.row, self.reads.latest) = ((at, 0), None);
        }
        let before = self.reads.row.1;
        self.reads.row.1 += end - first;
        Coming { device: at, file: call.file, first, end, begins, page: page_time, before }
    }

    fn has_two_speeds(&self, call: &Call) -> bool {
        self.profile.device_of(self.machine.devices[call.device].id).cached_read.is_some()
    }

    /// How the call's device reads, from its own cache or not.
    fn speed(&self, call: &Call, from_cache: bool, ahead: bool) -> Speed {
        let of = self.profile.device_of(self.machine.devices[call.device].id);
        match of.cached_read.filter(|_| from_cache) {
            Some(rate) => {
                Speed { byte: 1.0 / rate.value.get(), latency: known(&of.cached_read_latency), seek: 0.0 }
            }
            None => {
                let seek = of.seek.value.as_seconds();
                let latency = of
                    .read_latency
                    .map_or(known(&of.latency), |all| (all.value.as_seconds() - seek).max(0.0));
                let rate = of.sequential_read.filter(|_| ahead).unwrap_or(of.read);
                Speed { byte: 1.0 / rate.value.get(), latency, seek }
            }
        }
    }

    /// What handing a request to the call's device takes, in seconds.
    fn request(&self, call: &Call) -> f64 {
        known(&self.profile.device_of(self.machine.devices[call.device].id).request)
    }

    /// Largest window of the call's device, in pages.
    fn readahead(&self, call: &Call) -> u64 {
        let of = self.profile.device_of(self.machine.devices[call.device].id);
        self.constants.page_of(of.readahead.0)
    }

    /// Copies these cached pages out, `copying` seconds each, as they come.
    fn copy_pages(&mut self, call: &mut Call, first: u64, end: u64, copying: f64) {
        let mut at = first;
        while at < end {
            let (mut until, mut here) = (end, None);
            for coming in self.reads.coming.iter().filter(|coming| coming.file == call.file) {
                if (coming.first..coming.end).contains(&at) {
                    here = Some(*coming);
                } else if coming.first > at {
                    until = until.min(coming.first);
                }
            }
            if let Some(coming) = here {
                until = until.min(self.wait_for_page(call, coming, at));
            }
            self.copy_out(call, (until - at) as f64 * copying);
            at = until;
        }
    }

    /// Waits until this page has come; the page behind those that have come with it.
    fn wait_for_page(&mut self, call: &mut Call, coming: Coming, page: u64) -> u64 {
        let request = (coming.first + (page - coming.first + 1).next_multiple_of(REQUEST)).min(coming.end);
        let together = self.reads.comes_together(self.machine.devices[call.device].id);
        let (until, ready) = match together {
            true => (coming.end, self.machine.devices[call.device].occupied),
            false => (request, coming.ready(page)),
        };
        let pages = match together {
            true => self.reads.row.1,
            false => coming.before + request - coming.first,
        };
        self.tell_wait(call, coming.before, pages);
        if page >= coming.first + REQUEST {
            call.work.read.later = (request - page) as f64 * coming.page;
        }
        if together {
            // A wait that did not come says that this was there before, and nothing of later windows.
            let (device, all) = (call.device, call.until - call.at >= (ready - call.at) / 2.0);
            self.reads.coming.retain(|of| of.device != device || !all && of.first != coming.first);
        }
        if ready > call.at {
            self.wait_for_read(call, ready);
            self.reads.latest = Some((pages, call.at));
        }
        until
    }

    /// What a wait would be for that comes next, at the end of which so many `pages` of the row have come, whose
    /// window has `before` before it: what has come since the wait before, or the begin of a first window.
    fn tell_wait(&mut self, call: &mut Call, before: u64, pages: u64) {
        self.reads.reached = pages;
        let read = &mut call.work.read;
        let is_first = !read.told && read.ahead == 0.0;
        match self.reads.latest {
            Some((latest, when)) if latest < pages => {
                read.told |= is_first;
                read.since += (call.at - when).max(0.0);
                read.ahead += ((pages - latest) * self.constants.page) as f64;
            }
            None if before == 0 && is_first => {
                read.told = true;
                read.latencies += 1.0;
                read.ahead += (pages * self.constants.page) as f64;
            }
            _ => read.told = false,
        }
    }

    fn copy_out(&mut self, call: &mut Call, seconds: f64) {
        call.pass(seconds);
        call.spent[Cause::Copy] += seconds;
        self.pass_to(call.at);
    }

    fn wait_for_read(&mut self, call: &mut Call, ready: f64) {
        if ready > call.at {
            let wake = self.wake(call);
            call.spent[Cause::Read] += ready - call.at;
            self.wait_until(call, ready + wake);
        }
    }

    /// The call may have to wait for the device to read.
    pub(super) fn may_read(&self, event: &Event, start: f64) -> bool {
        if !is_file_read(event) || event.offset == UNKNOWN_OFFSET {
            return false;
        }
        let Some(file) = self.machine.cache.find(event.file()) else { return true };
        let last = event.offset.saturating_add(event.returned.max(0) as u64);
        let (first, end) = (self.constants.page_of(event.offset), self.constants.pages_up_to(last));
        let coming =
            |of: &Coming| of.file == file && of.first < end && first < of.end && of.ready(of.end - 1) > start;
        self.machine.cache.count(file, first, end) < end - first || self.reads.coming.iter().any(coming)
    }

    /// What a read that `took` these seconds says of those to come.
    pub(super) fn judge_read(&mut self, event: &Event, prediction: &Prediction, took: f64) {
        let (work, cost) = (&prediction.work, prediction.cost.as_seconds());
        if work.read.has_waited(took, prediction) {
            let end = self.seconds(event.start) + took;
            self.reads.latest = Some((self.reads.reached, end));
        }
        let waited = prediction.parts[Cause::Read].as_seconds();
        if work.source > 0.0 && took > cost + work.source / 2.0 && self.supply != Some(true) {
            self.reads.uncached.put(event.pid, ());
        } else if waited > 0.0 && took < cost - waited / 2.0 && work.other_speed >= 0.0 {
            self.reads.uncached.take(&event.pid);
        }
        let later = work.read.later;
        if later > 0.0 {
            let without = cost - waited;
            let turns = if self.reads.comes_together(event.dev) {
                self.reads.judge_together(event.dev, took > without + later / 2.0)
            } else {
                waited > later / 2.0 && self.reads.judge_together(event.dev, took < without + waited / 4.0)
            };
            if turns {
                // What was asked for has come.
                let device = self.device(event.dev);
                self.reads.coming.retain(|of| of.device != device);
                self.machine.devices[device].occupied = self.machine.now;
            }
        }
        let off = |cost: f64| (took / cost.max(1e-9)).ln().abs();
        if work.other_speed != 0.0 && off(cost + work.other_speed) * CLEARLY < off(cost) {
            let devices = &mut self.reads.from_cache;
            if devices.contains(&event.dev) {
                devices.retain(|dev| *dev != event.dev);
            } else {
                devices.push(event.dev);
            }
        }
    }

    /// The device came `late` seconds after its time, or before if negative: so will what it is reading now.
    pub(super) fn shift_reads(&mut self, device: usize, late: f64) {
        let of = &mut self.machine.devices[device];
        if self.reads.comes_together(of.id) {
            let time = |coming: &Coming| (coming.end - coming.first) as f64 * coming.page;
            let left = self.reads.coming.iter().filter(|coming| coming.device == device).map(time);
            of.occupied = self.machine.now + left.sum::<f64>();
        } else {
            of.occupied += late;
            self.reads.coming.iter_mut().for_each(|coming| coming.begins += late);
        }
    }

    /// What was cached of a file before it was first read.
    pub(super) fn resident(&mut self, file: u32, event: &Event) {
        let pages = self.constants.page_of(event.offset).min(MOST_RESIDENT / RANGES);
        for range in 0..RANGES {
            if event.requested >> range & 1 == 1 {
                let (first, end) = (range * pages, (range + 1) * pages);
                self.machine.cache.read_ahead(file, first, end, FOLIO);
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
            POSIX_FADV_WILLNEED => {
                let first = self.constants.page_of(event.offset);
                let end = match event.requested {
                    0 => u64::MAX,
                    length => self.constants.pages_up_to(event.offset.saturating_add(length)),
                };
                // No more at a time (`force_page_cache_ra`).
                let end = end.min(first + self.readahead(call).max(REQUEST));
                let mut call = *call;
                self.open_window(&mut call, &mut reader, Window { first, end, folio: 1 }, false);
            }
            _ => {}
        }
        self.reads.readers.put((event.pid, event.fd), reader);
    }

    /// open, fopen and close.
    pub(super) fn open_or_close(&mut self, call: &mut Call, event: &Event) {
        let created = event.has(flag::CREATED);
        let cost = match event.op {
            Op::Close => self.constants.close,
            _ if created => self.constants.open + self.constants.create,
            _ => self.constants.open,
        };
        call.spend_empty_call(cost);
        let work = &mut call.work.read;
        if event.op == Op::Close {
            work.closes += 1.0;
        } else {
            work.opens += 1.0;
            work.creates += f64::from(u8::from(created));
            self.opened(call.file, event);
        }
    }
}
