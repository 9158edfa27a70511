//! Writing into the page cache (`generic_perform_write`, `iomap_write_iter`).
//!
//! The law: a write goes folio by folio. Each byte is copied, each page that was not cached is allocated,
//! both more slowly while data are written back; before each folio it is checked whether the task has used up
//! its quota (`balance_dirty_pages_ratelimited`, which since 6.11 comes before the copy: what a call dirties
//! last is owed by the next; before, the call that exceeds its quota pays). A page written in part that
//! exists on the device but not in the cache is read first.

use std::mem;

use super::super::cache::{Found, Source};
use super::super::folios::Folios;
use super::intervals::Cold;
use super::tasks::Task;
use super::{Call, Kernel};
use crate::call::{COLLAPSE, INSERT, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
use crate::cause::Cause;
use crate::constants::MAX_RESIDENT;
use crate::profile::blocks_out;
use crate::units::{Pages, Seconds};
use cawl_wire::{Event, Op};

/// Bytes of a call at `hot`, the rest is copied at `hot_large`.
const HOT_FIRST: u64 = 64 << 10;
/// Pieces that a call is taken in, at most: those of the longest write (`MAX_RW_COUNT`), checked every
/// 128 KiB. A stream may write more at a time.
const MAX_PIECES: u64 = 1 << 14;
/// Pages between checks while the device's limit is exceeded: 32 KiB.
pub(super) const EXCEEDED_CHECK: u64 = 8;

/// Pages after which a task is checked.
fn quota(task: &Task, exceeded: bool) -> u64 {
    if exceeded { EXCEEDED_CHECK.min(task.nr_dirtied_pause) } else { task.nr_dirtied_pause }
}

/// What it takes to copy a page, into a new one and over a cached one, and what it would if nothing were
/// in the processor's cache.
#[derive(Clone, Copy)]
struct Copying {
    fresh: Seconds,
    cached: Seconds,
    from_memory: Seconds,
}

impl Kernel {
    /// Writes `bytes` at `offset` of the call's file into the cache, pauses included; `hot` if they come
    /// from the processor's cache.
    pub(super) fn buffered_write(&mut self, call: &mut Call, offset: u64, bytes: u64, hot: bool) {
        self.writers.lock(&mut self.machine, call, false);
        let last = offset.saturating_add(bytes);
        let (first, end) = call.constants.pages_of(offset, last);
        self.read_edges(call, offset, last);
        let grows = last > self.machine.cache.size(call.file);
        let journals = grows && !self.machine.laws.unlogged_growth;
        if journals || self.stamp_is_due(call) {
            self.wait_for_log(call);
        }
        self.grow(call.file, offset, last);
        self.stamp(call);
        self.spend_first(call);
        let latest = mem::replace(&mut self.machine.cache.file_mut(call.file).latest, (first, end));
        let near = self.processor_cache.touch(call.file, first, end);
        let near = call.constants.nearness(near, self.machine.cache.size(call.file));
        let passed = self.blocks_passed(call, first, end, latest.0);
        let apart = first != latest.1 && end != latest.0;
        // What has blocks takes no place among the delayed extents (`ext4_da_map_blocks`).
        let reserved = self.machine.cache.file(call.file).reserved;
        call.surcharge.jump = if apart && last > reserved { call.constants.jump } else { Seconds::ZERO };
        let constants = &call.constants;
        call.hot = hot;
        // Where each page is a folio of its own, a part of one takes as long as all of it.
        let single = self.machine.devices[call.device].traits.has_single_pages;
        let copied = if single { (end - first) * constants.page } else { bytes };
        let all = copied as f64;
        let from_memory = all * constants.copy_byte;
        let from_cache = copied.min(HOT_FIRST) as f64 * constants.hot_byte
            + copied.saturating_sub(HOT_FIRST) as f64 * constants.hot_large_byte;
        let fresh = if hot { from_cache } else { from_memory };
        // The page to write is in that cache, too, or not.
        let within = from_cache.min(all * constants.near_byte);
        let cached = if hot { near * within + (1.0 - near) * from_cache } else { from_memory };
        let pages = (end - first).max(1) as f64;
        let [fresh, cached, from_memory] = [fresh, cached, from_memory].map(|all| all / pages);
        let copying = Copying { fresh, cached, from_memory };
        let largest =
            call.constants.page_of(bytes).checked_ilog2().map_or(1, |order| 1 << order).min(call.folio);
        let in_memory = self.in_memory(call);
        let checks_first = self.machine.devices[call.device].traits.checks_first;
        let least = ((end - first) / MAX_PIECES).max(1);
        let mut at = first;
        let mut fresh_pages = 0;
        while at < end {
            if checks_first && !in_memory {
                self.check(call);
            }
            if journals {
                self.wait_for_log(call);
            }
            let until = if in_memory || self.quiet(call, end - at) {
                end - at
            } else {
                let task = &self.writers.tasks.current;
                let often = self.writers.check_interval;
                let quota = quota(task, self.machine.devices[call.device].exceeded);
                let left = quota.saturating_sub(task.nr_dirtied).min(often.saturating_sub(task.unchecked));
                (left.max(least).div_ceil(largest) * largest).min(end - at)
            };
            if !in_memory {
                self.writers.wait_for_room(&mut self.machine, call, until);
            }
            let found = self.machine.write(call.file, at, at + until, largest, call.at);
            let folios = if found.fresh > 0 {
                // What is cached of it lies before what is not, as where a file grows.
                let new = (at + until - found.fresh).max(first);
                let left = last.saturating_sub(new.saturating_mul(call.constants.page)).min(bytes);
                Folios::taken((new, at + until), left, call.constants.page, call.folio)
            } else {
                0
            };
            if single {
                call.surcharge.over = self.first_over(call, until, found.fresh);
            }
            self.spend_copy(call, until, found, copying, folios);
            fresh_pages += found.fresh;
            at += until;
            let task = &mut self.writers.tasks.current;
            task.nr_dirtied += found.dirtied;
            task.unchecked += found.dirtied;
            if !checks_first && !in_memory {
                self.check(call);
            }
        }
        if fresh_pages == 0 && passed > Seconds::ZERO {
            call.spend(Cause::LargeFolio, passed);
            call.work.believed[usize::from(call.flushing)] += passed;
            self.writers.pass_to(&mut self.machine, call.at);
        }
        call.unlock();
    }

    /// The task may have used up its quota (`balance_dirty_pages_ratelimited`). Nothing is throttled in
    /// memory alone (`noop_backing_dev_info`).
    fn check(&mut self, call: &mut Call) {
        let task = &mut self.writers.tasks.current;
        if task.nr_dirtied >= quota(task, self.machine.devices[call.device].exceeded)
            || task.unchecked >= self.writers.check_interval
        {
            task.unchecked = 0;
            self.writers.balance(&mut self.machine, call);
        }
    }

    /// What a write of the pages from `first` up to `end` takes for the other blocks of the folios that it
    /// covers in part, if they are cached, in seconds: `ext4_block_write_begin` and `block_commit_write` go
    /// through the list of a folio's blocks. It is in the processor's cache if the write before, at page
    /// `latest`, was to the same folio, else as likely as the file's blocks are.
    fn blocks_passed(&mut self, call: &Call, first: u64, end: u64, latest: u64) -> Seconds {
        let (near, far) = (call.constants.block_near, call.constants.block_far);
        if !self.machine.devices[call.device].traits.walks_blocks {
            return Seconds::ZERO;
        }
        let inode = self.machine.cache.file(call.file);
        if far <= Seconds::ZERO || inode.folios.are_single() {
            return Seconds::ZERO;
        }
        let folio = inode.folios.around(first);
        let (_, last) = inode.folios.around(end - 1);
        let blocks = ((first - folio.0) + last.saturating_sub(end)) as f64;
        let cached = (inode.clean.pages() + inode.dirty.pages()) as f64;
        let is_latest = (folio.0..last).contains(&latest) && last == folio.1;
        let away = if is_latest { 0.0 } else { blocks_out(cached, call.constants.block_cache.0) };
        blocks * (near + away * (far - near))
    }

    /// What `pages` of a file, of which some are fresh, take that are written over for the first time since
    /// they were allocated. Which these are is not remembered, only how many: a page was as likely
    /// written over as any other.
    fn first_over(&mut self, call: &Call, pages: u64, fresh: u64) -> Seconds {
        let inode = self.machine.cache.file_mut(call.file);
        let over = Pages::of(pages.saturating_sub(fresh));
        let before = Pages::of((inode.clean.pages() + inode.dirty.pages()).saturating_sub(fresh));
        inode.over = inode.over.min(before);
        if over <= Pages::ZERO || before <= inode.over {
            return Seconds::ZERO;
        }
        let first = over.min(before) * (1.0 - inode.over / before);
        inode.over += first;
        first.0 * call.constants.over
    }

    /// The inode is in a transaction whose log is being written: it changes when that is done.
    fn wait_for_log(&mut self, call: &mut Call) {
        let changed = self.machine.cache.file(call.file).changed;
        if let Some(until) = self.machine.devices[call.device].logged_at(changed, call.at) {
            let wait = until - call.at;
            call.spend(Cause::Journal, wait);
            call.spread.held += wait;
            self.writers.pass_to(&mut self.machine, call.at);
            if call.at < until {
                self.machine.end_log(call.device);
            }
            self.machine.change(call.file, call.at, false);
        }
    }

    /// The file's time stamps change, if the kernel's clock has ticked since they last did, or if a program
    /// has read them since (`file_update_time`).
    pub(super) fn stamp(&mut self, call: &Call) {
        if self.stamp_is_due(call) {
            self.machine.cache.file_mut(call.file).stamped = self.tick_of(call);
            self.machine.change(call.file, call.at, false);
        }
    }

    fn stamp_is_due(&mut self, call: &Call) -> bool {
        call.stamps || self.machine.cache.file(call.file).stamped != self.tick_of(call)
    }

    fn tick_of(&self, call: &Call) -> u64 {
        (call.at * self.machine.hz).0 as u64 + 1
    }

    /// What a write costs in addition after something else, and into a clean inode.
    fn spend_first(&mut self, call: &mut Call) {
        let away = call.surcharge.away;
        let mut cost = Seconds::ZERO;
        if !self.machine.cache.file(call.file).listed && !self.in_memory(call) {
            call.work.inodes += 1.0;
            cost = call.constants.clean_inode;
        }
        call.work.away += away;
        cost += away * call.constants.away;
        if cost > Seconds::ZERO {
            call.spend(Cause::Call, cost);
            self.machine.advance(call.at);
        }
    }

    /// Nothing can hold this write back or start the flusher: it may be taken in one piece.
    fn quiet(&self, call: &Call, pages: u64) -> bool {
        let machine = &self.machine;
        let limits = &machine.global;
        let level: u64 = machine.devices.iter().map(|d| d.level()).sum();
        let foreign = machine.foreign_at(call.at);
        let calm = Pages::of(level + pages) + foreign <= limits.background
            && machine.group.is_none_or(|group| Pages::of(level + pages) <= group.background);
        calm && !machine.devices[call.device].busy() && !machine.devices[call.device].bounds.strict
    }

    /// The cost of `pages`, of which some are fresh and come in `folios` folios.
    fn spend_copy(&mut self, call: &mut Call, pages: u64, found: Found, copying: Copying, folios: u64) {
        let device = self.machine.device(call);
        let away = if found.fresh > 0 { mem::take(&mut call.surcharge.away) } else { 0.0 };
        let folio = found.fresh.checked_div(folios).unwrap_or(1).max(1);
        let folios = folios as f64;
        let (fresh, over) = (found.fresh as f64, pages.saturating_sub(found.fresh) as f64);
        let copied = fresh * copying.fresh;
        let jump = if found.fresh > 0 { mem::take(&mut call.surcharge.jump) } else { Seconds::ZERO };
        let new_pages = fresh * call.constants.fresh_page + folios * call.constants.fresh_folio + jump;
        let clean = found.clean as f64;
        let first_over = mem::take(&mut call.surcharge.over);
        let over_cached = over * copying.cached
            + first_over
            + found.padding as f64 * call.constants.padding_page
            + clean * call.constants.clean_folio;
        let (mut allocated, mut cached) = (copied + new_pages, over_cached);
        let writes_back = device.writes_back(call.at);
        let flushing = usize::from(writes_back);
        call.work.copied[flushing] +=
            (fresh * copying.fresh + over * copying.cached) / call.constants.copy_byte;
        call.work.met.add(pages, found.fresh, found.cached);
        if first_over > Seconds::ZERO {
            call.work.believed[flushing] += first_over;
        }
        // Most calls of a program that writes little at a time meet dirty pages only.
        if found.dirtied > 0 || found.fresh > 0 {
            call.work.dirtied += (found.dirtied * call.constants.page) as f64;
            call.work.away += away;
            call.work.clean[flushing] += clean;
            call.work.folios[flushing] += if found.fresh > 0 { folios } else { 0.0 };
            call.work.believed[flushing] += jump;
            call.work.fresh[flushing] += (found.fresh * call.constants.page) as f64;
            call.work.padded[flushing] += (found.padding * call.constants.page) as f64;
        }
        if writes_back {
            [allocated, cached] = [allocated, cached].map(|time| time * call.constants.flush_slowdown);
            call.flushing = true;
        }
        let cold = if found.fresh > 0 {
            self.memory.supplied(call, found.fresh, folio)
        } else {
            self.memory.age(call.at);
            Cold::default()
        };
        let from = call.at;
        let anew = away * call.constants.away;
        call.pass(anew + allocated + cached + cold.likely);
        call.spent[Cause::Copy] += copied + over_cached;
        if found.fresh > 0 {
            call.spent[Cause::Call] += anew;
            call.spent[Cause::NewPages] += new_pages;
        }
        if writes_back {
            call.spent[Cause::FlusherBeside] += (allocated - copied - new_pages) + (cached - over_cached);
        }
        if cold.likely > Seconds::ZERO {
            call.spent[Cause::ColdMemory] += cold.likely;
        }
        let (down, up) = self.intervals.copying(allocated, cached, cold, writes_back);
        call.spread.copied = (call.spread.copied.0 + down, call.spread.copied.1 + up);
        let doubtful = |hot: bool, time: Seconds| if hot { time } else { Seconds::ZERO };
        call.spread.doubt.0 += doubtful(call.hot, fresh * copying.fresh + over * copying.cached);
        call.spread.doubt.1 +=
            fresh * (copying.from_memory - copying.fresh) + over * (copying.from_memory - copying.cached);
        if self.writers.tasks.several {
            self.writers.history.raise(from, Pages::of(found.dirtied));
        }
        self.writers.pass_to(&mut self.machine, call.at);
    }

    /// Pages at the edges that are written in part and not cached are read first.
    fn read_edges(&mut self, call: &mut Call, offset: u64, last: u64) {
        let constants = &call.constants;
        let (page, size) = (constants.page, self.machine.cache.size(call.file));
        let (first, behind) = (constants.page_of(offset), constants.page_of(last));
        let begins_within = !constants.begins_page(offset) && first * page < size;
        let ends_within = !constants.begins_page(last) && last < size;
        if begins_within {
            self.read_edge(call, first);
        }
        if ends_within && !(begins_within && first == behind) {
            self.read_edge(call, behind);
        }
    }

    /// A page that is written in part is read first, if it is not cached.
    fn read_edge(&mut self, call: &mut Call, edge: u64) {
        let device = self.machine.device(call);
        if let Some(cost) = device.timing.partial_page
            && !device.traits.is_in_memory
            && self.machine.cache.is_elsewhere(call.file, edge)
        {
            call.spend(Cause::PartialPage, cost);
            call.work.seeks += if device.remote.is_some() { 0.0 } else { 1.0 };
            self.machine.advance(call.at);
        }
    }

    /// Something is written through the cache from `offset` up to `last`, in bytes. What it leaves out behind
    /// the end is a hole.
    fn grow(&mut self, file: u32, offset: u64, last: u64) {
        let inode = self.machine.cache.file_mut(file);
        let size = inode.size;
        if last > size {
            (inode.size, inode.growing) = (last, true);
            if offset > size {
                let (from, to) = (self.constants.pages_up_to(size), self.constants.page_of(offset));
                self.machine.cache.set_aside(file, from, to);
            }
        }
    }

    /// Dirties pages in no time: for what has no law, or was done before it was told.
    pub(super) fn dirty_quietly(&mut self, file: u32, offset: u64, bytes: u64) -> Found {
        let page = self.constants.page;
        // The writer was held back at the limit: what is beyond that, by far, has been written out since.
        let most = 2 * self.machine.global.hard.whole();
        let room = most.min(MAX_RESIDENT).saturating_sub(self.machine.level_now());
        let bytes = bytes.min(room.saturating_mul(page));
        if bytes == 0 {
            return Found::default();
        }
        let last = offset.saturating_add(bytes);
        self.grow(file, offset, last);
        let now = self.machine.now;
        self.machine.change(file, now, false);
        let found = self.machine.write(file, offset / page, last.div_ceil(page), self.constants.folio, now);
        let device = self.machine.cache.device(file);
        if self.machine.over_background(device, 0) {
            self.machine.start_background(device);
        }
        found
    }

    /// fallocate: space without data; punching holes drops pages, and what is moved is written out first.
    pub(super) fn allocate(&mut self, file: u32, event: &Event) {
        debug_assert_eq!(event.op, Op::Allocate);
        let page = self.constants.page;
        let size = self.machine.cache.size(file);
        let (offset, bytes) = (event.offset, event.requested);
        let end = offset.saturating_add(bytes);
        let (first, last) = (offset.div_ceil(page), end / page);
        if event.aux & (COLLAPSE | INSERT) != 0 {
            self.machine.submit_range(file, offset / page, u64::MAX);
            self.machine.cache.drop_range(file, offset / page, u64::MAX);
            self.machine.cache.fill(file, offset / page, u64::MAX);
            let collapsed = event.aux & COLLAPSE != 0;
            let moved = if collapsed { size.saturating_sub(bytes) } else { size.saturating_add(bytes) };
            self.machine.cache.file_mut(file).size = moved;
        } else if event.aux & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            let dropped = self.machine.cache.drop_range(file, first, last);
            self.machine.cancel(file, dropped);
            self.machine.cache.set_aside(file, first, last);
        }
        if event.aux & (KEEP_SIZE | COLLAPSE | INSERT) == 0 && end > size {
            self.machine.cache.file_mut(file).size = end;
            self.machine.cache.set_aside(file, size.div_ceil(page), end.div_ceil(page));
        }
        let device = self.machine.cache.device(file);
        let plain = event.aux & (COLLAPSE | INSERT | PUNCH_HOLE | ZERO_RANGE) == 0;
        if plain && offset <= self.machine.cache.file(file).reserved {
            let inode = self.machine.cache.file_mut(file);
            inode.reserved = inode.reserved.max(end);
        }
        if plain && self.machine.devices[device].traits.is_in_memory {
            // Its space are the pages themselves (`shmem_fallocate`): the first write to one is its first
            // access.
            let first = offset / page;
            let before = self.machine.cache.cached(file);
            let end = end.div_ceil(page).min(first.saturating_add(MAX_RESIDENT));
            self.machine.cache.read(file, first, end, Source::Device);
            let inode = self.machine.cache.file_mut(file);
            inode.over += Pages::of((inode.clean.pages() + inode.dirty.pages()).saturating_sub(before));
        }
        self.machine.change(file, self.machine.now, true);
    }
}

#[cfg(test)]
mod tests {
    use cawl_wire::{Event, FileKind, Op};

    use crate::filesystem::FilesystemKind::{self, Ext4, Xfs};
    use crate::limits::DirtyLimits;
    use crate::release::Release;
    use crate::{Bytes, HostProfile, Nanos, OpenLoop, Rate};

    /// Another task has dirtied 4000 pages of limits of 2048 and 4096. A new task is checked after 32 pages
    /// (`init_task`) and then sleeps a tick at least. Where the check comes before the copy, its second call of 32
    /// pages does, else its first one.
    #[test]
    fn the_call_that_uses_up_the_quota_pays_before_6_11_and_on_xfs_before_6_0() {
        let sleeps = |release: Release, kind: FilesystemKind| {
            let mut profile = HostProfile::uncalibrated();
            profile.kernel.limits = DirtyLimits { background: Bytes(2048 << 12), hard: Bytes(4096 << 12) };
            (profile.kernel.cpus, profile.kernel.release) = (1, Some(release));
            (profile.device.filesystem, profile.device.commit) = (Some(kind), Nanos::ZERO);
            profile.device.writeback.value = Rate::per_second(1e6);
            let mut open_loop = OpenLoop::new("kernel", &profile).unwrap();
            let mut call = Event::new(Op::Write);
            (call.dev, call.ino, call.kind) = (1, 1, FileKind::Regular);
            let mut write = |tid, pages: u64, offset| {
                let (bytes, returned) = (pages << 12, (pages << 12) as i64);
                open_loop.cost(Event { tid, ino: u64::from(tid), offset, requested: bytes, returned, ..call })
            };
            let other = write(2, 4000, 0);
            open_loop.wait(1, other);
            let mut write = |offset| {
                let (requested, returned) = (32 << 12, 32 << 12);
                open_loop.cost(Event { tid: 1, offset, requested, returned, ..call }) > Nanos::millis(1.0)
            };
            [write(0), write(32 << 12)]
        };
        assert_eq!(sleeps(Release(6, 11), Ext4), [false, true]);
        assert!(sleeps(Release(6, 10), Ext4)[0]);
        assert_eq!(sleeps(Release(6, 1), Xfs), [false, true]);
        assert!(sleeps(Release(5, 19), Xfs)[0]);
    }
}
