//! Calls that free what a file has in the page cache and on the device, and calls that begin to write what
//! comes in its place.
//!
//! The law (6.18): cutting a file off waits for its pages under writeback, cancels the dirty ones and frees
//! all, folio by folio (`truncate_inode_pages_range`, mm/truncate.c). Where blocks have descriptions (`struct
//! buffer_head`), each further page of a folio takes [`FURTHER`] of what the first one does, since its own is
//! freed, too. Advice that drops pages (POSIX_FADV_DONTNEED) frees them in the same way. A file without links
//! is cut off to nothing when its last descriptor is closed (`ext4_evict_inode`, fs/ext4/inode.c). Where the
//! call has the device discard the freed blocks (`ext4_issue_discard`, fs/ext4/mballoc.c), it waits for that,
//! behind what the device was given before.
//!
//! A file that was cut off to nothing is handed to the device when it is closed (`ext4_release_file`,
//! fs/ext4/file.c), one that replaces another when it is renamed (`ext4_rename`, fs/ext4/namei.c), if it has
//! dirty pages in new blocks (`ext4_alloc_da_blocks`). Nobody waits until these are written. Where a trace
//! does not tell which file was renamed, it is taken to be the one that the process closed last of those it
//! could write to.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::super::cache::Source;
use super::{Call, Kernel};
use crate::cause::Cause;
use crate::constants::{FOLIO, MAX_RESIDENT, Timing};
use crate::filesystem::{GROUP, PLAUSIBLE};
use crate::record::DeletedFacts;
use crate::units::{Bytes, Seconds, Time};
use crate::writeback::Device;

/// Part of what the first page of a folio takes that each further one does, to free it or to hand it over.
const FURTHER: f64 = 0.25;

/// So many times as long as opening a file it takes to change its length, beyond that: 4.4 µs on ext4 of
/// 6.18, where an open took 1.9.
pub(super) const LENGTH: f64 = 2.0;

/// So many times as long as taking a name away it takes to rename to a new name, and over another: on 6.18,
/// of medians, 1.8 and 2.1 on ext4 without a journal, 1.3 and 1.7 with one, 1.3 and 1.8 on xfs, 1.2 and 1.4
/// on tmpfs.
const RENAMED: f64 = 1.4;
const REPLACED: f64 = 1.75;

/// What it takes longer to free blocks of a device: unlink of a file that was written took 5.7 µs longer than
/// that of an empty one on ext4 of 6.18, which took 9.3, and 2.6 and 9.9 on xfs. Where the device discards
/// them, that is a part of its latency.
const EXTENT: f64 = 0.5;

/// So many times as long as a direct write takes for new blocks it takes to allocate those of a file and to
/// hand them over: on ext4 of 6.18 a rename of a new file of 5000 B over another took 28 µs longer than one
/// over nothing, with a journal and without, where the former takes 15 and 17.
const HANDED: f64 = 1.75;

/// Part of what a stat takes that passing over a deleted inode does (`recently_deleted`,
/// `sb_find_get_block`): 0.107 µs on ext4 of 6.18, where a stat took 1.43. What is learned of opens has what
/// is not known of those passed over.
const PASSED: f64 = 0.075;
/// The same of an open, which took 1.8.
const PASSED_OF_OPEN: f64 = 0.06;

/// Part of `calls.open` that opening and closing one folder again and again takes: on 6.18 1.4 of 1.8 µs.
const FOLDER: f64 = 0.78;

/// So many times as long as such an open it takes to make a file without a name (O_TMPFILE), if none is
/// passed over: 6.1 to 6.5 µs on ext4 of 6.18.
const NAMELESS: f64 = 4.4;

/// How many inodes a file without a name passed over that took so long to make where opening its folder takes
/// `open`, and how much of the time that was.
pub fn passed_over(took: Seconds, open: Seconds) -> (u32, Seconds) {
    let time = took - NAMELESS * open;
    let passed = time * FOLDER / (PASSED_OF_OPEN * open);
    if (PLAUSIBLE..=GROUP as f64).contains(&passed) { (passed as u32, time) } else { (0, Seconds::ZERO) }
}

/// Part of what a stat takes that getdents does, and each byte of a folder's entries (`ext4_readdir`): on 6.18
/// with ext4, where a stat took 1.43 µs, 0.45 at a folder's end, and 3.2 to 3.7 of 30 to 40 names. With 5000
/// entries of 32 bytes 0.006 a byte on ext4, 0.002 on xfs, 0.004 on btrfs and tmpfs.
const LIST: f64 = 0.3;
const LISTED: f64 = 0.006;

/// So many times as much as a write each of these takes longer after other work before (`calls.away`): on 6.18
/// with ext4, after 100 µs and 1 ms of copying, a write took 1.1 and 6 µs longer, a close 0.55 and 3.2, a stat
/// 1.05 and 3.6, an open 1.3 and 5.6, an unlink 4.7 and 15, making a file 4 and 14.
pub(super) const AWAY_CLOSE: f64 = 0.5;
const AWAY_STAT: f64 = 0.75;
pub(super) const AWAY_OPEN: f64 = 1.0;
pub(super) const AWAY_CREATE: f64 = 2.0;
const AWAY_NAME: f64 = 3.0;

/// So many times as long as taking a name away it takes longer if the inode is not in the processor's cache: on
/// 6.18 with ext4, an unlink of one of 16 files took 10.7 µs, of one of 15 000 12.4; without a journal 7.7 and 9.1.
const FAR: f64 = 0.17;
/// A page that no file has: it stands for the inode in the processor's cache.
const INODE: u64 = u64::MAX >> 24;

impl Kernel {
    /// truncate and ftruncate.
    pub(super) fn change_length(&mut self, call: &mut Call, event: &Event) {
        call.spend(Cause::Call, LENGTH * call.constants.open);
        self.cut(call, UNKNOWN_OFFSET, event.offset);
    }

    /// The part of a file's inode that is in the processor's cache; now all of it is.
    pub(super) fn touch_inode(&mut self, file: u32) -> f64 {
        self.processor_cache.touch(file, INODE, INODE + 1)
    }

    /// A name goes, is new, or is looked at. A symbolic link and a folder are made as a file is.
    pub(super) fn change_name(&mut self, call: &mut Call, event: &Event) {
        let has_blocks = self.machine.devices[call.device].traits.folders_have_blocks;
        let work = &mut call.work.read;
        (work.opens, work.names) = match event.op {
            Op::Rename if event.renamed().is_some_and(|(_, replaces)| !replaces) => (0.0, RENAMED),
            Op::Rename => (0.0, REPLACED),
            Op::Symlink => (1.0, 0.0),
            Op::Mkdir => (1.0, f64::from(u8::from(has_blocks))),
            Op::Stat | Op::List => (0.0, 0.0),
            _ => (0.0, 1.0),
        };
        work.creates = work.opens;
        work.stats = match event.op {
            Op::Stat => 1.0,
            Op::List => LIST + LISTED * event.returned.max(0) as f64,
            _ => 0.0,
        };
        let constants = &call.constants;
        let cost = work.opens * (constants.open + constants.create)
            + work.names * constants.name
            + work.stats * constants.stat;
        let paths = AWAY_NAME * work.names
            + AWAY_STAT * work.stats
            + AWAY_OPEN * work.opens
            + AWAY_CREATE * work.creates;
        call.spend(Cause::Call, cost);
        call.come_back(paths);
        match event.op {
            Op::Rename => self.begin_renamed(call, event),
            Op::Rmdir => {
                if has_blocks {
                    self.free_blocks(call, 1);
                }
                self.deleted(call, event);
            }
            Op::Symlink | Op::Mkdir => self.pass_over_deleted(call, event),
            Op::Stat | Op::List => return,
            _ => {}
        }
        if event.takes_last_link() {
            if self.touch_inode(call.file) < 1.0 {
                let time = FAR * call.constants.name;
                call.spend(Cause::Call, time);
                call.work.read.believed += time;
            }
            self.lose(call);
            if !event.has(flag::HELD) {
                self.cut(call, event.requested, 0);
                self.deleted(call, event);
            }
        } else {
            self.machine.devices[call.device].renamed = true;
        }
    }

    /// The last name of the call's file has gone.
    pub(super) fn lose(&mut self, call: &Call) {
        self.machine.change(call.file, self.machine.now, true);
        self.machine.devices[call.device].renamed = true;
    }

    /// A descriptor of the call's file is closed. Those of one open file are closed together, mostly: a file
    /// is released with its last one.
    pub(super) fn closed(&mut self, call: &mut Call, event: &Event) {
        if self.is_remote(call) {
            return;
        }
        if event.has(flag::WRITABLE) {
            self.closed.put(event.pid, call.file);
        }
        let writes = self.machine.devices[call.device].traits.writes_cut_files;
        if event.has(flag::LAST) && std::mem::take(&mut self.machine.cache.file_mut(call.file).cut) && writes
        {
            self.begin_new_blocks(call);
        }
        if event.has(flag::GONE) {
            self.cut(call, UNKNOWN_OFFSET, 0);
            self.deleted(call, event);
        }
    }

    /// So many inodes were found to be passed over, at that moment.
    pub(super) fn found_deleted(&mut self, facts: &DeletedFacts, at: Time) {
        let (at, device) = (self.seconds(at.0), self.device(facts.dev));
        if let Some(deleted) = self.machine.devices[device].passed_over() {
            deleted.found(facts.inode, facts.passed, at);
        }
    }

    /// The inode of the call is free now.
    fn deleted(&mut self, call: &Call, event: &Event) {
        if let Some(deleted) = self.machine.device_mut(call).passed_over() {
            deleted.add(event.ino, call.at);
        }
    }

    /// The inode of the call is new: who looks for one passes over those deleted lately.
    pub(super) fn pass_over_deleted(&mut self, call: &mut Call, event: &Event) {
        if let Some(deleted) = self.machine.device_mut(call).passed_over() {
            call.passed = deleted.give(event.ino, call.at);
            let time = PASSED * call.constants.stat * call.passed;
            call.spend(Cause::Call, time);
            call.work.read.believed += time;
        }
    }

    /// A call that made a file was `late`: on the way to its inode it passed over more that were deleted
    /// lately than is known, or fewer.
    pub(super) fn judge_new_inode(&mut self, call: &Call, event: &Event, late: Seconds) {
        if !event.has(flag::CREATED) {
            return;
        }
        let each = PASSED * call.constants.stat;
        if let Some(deleted) = self.machine.device_mut(call).passed_over() {
            deleted.correct(event.ino, call.passed, late / each, call.at);
        }
    }

    /// The device may hold back a call that frees what its file has, or renames one over it.
    pub(super) fn may_wait_to_free(&self, event: &Event) -> bool {
        let (known, dev) = (self.machine.cache.find(event.file()), self.filesystems.below(event.dev));
        let device = match known {
            Some(at) => Some(&self.machine.devices[self.machine.cache.device(at)]),
            None => self.machine.devices.iter().find(|device| device.id == dev),
        };
        let has_work = |device: &Device| {
            device.timing.discard.is_some() && (known.is_some() || event.requested > 0)
                || device.in_flight > 0 && known.is_some()
        };
        event.op == Op::Rename && self.replacement(event).is_some() || device.is_some_and(has_work)
    }

    /// The device may hold back a close that frees the file, or it is the last of a file that was cut off.
    pub(super) fn closes_a_change(&self, event: &Event) -> bool {
        let is_cut = |at| self.machine.cache.is_cut(at);
        event.has(flag::GONE) && self.may_wait_to_free(event)
            || event.has(flag::LAST) && self.machine.cache.find(event.file()).is_some_and(is_cut)
    }

    /// The file that a rename brings in the place of another.
    fn replacement(&self, event: &Event) -> Option<u32> {
        match event.renamed() {
            Some((file, true)) => self.machine.cache.find(file),
            Some((_, false)) => None,
            None => self.closed.peek(&event.pid).copied(),
        }
    }

    /// The file that is renamed over the call's begins to be written.
    fn begin_renamed(&mut self, call: &mut Call, event: &Event) {
        let renamed = self.replacement(event);
        self.closed.take(&event.pid);
        let Some(renamed) = renamed else { return };
        let at = self.machine.cache.device(renamed);
        if at == call.device && self.machine.devices[at].traits.writes_renamed_files {
            let replaced = std::mem::replace(&mut call.file, renamed);
            self.begin_new_blocks(call);
            call.file = replaced;
        }
    }

    /// The call's file begins to be written if it has dirty pages in new blocks.
    fn begin_new_blocks(&mut self, call: &mut Call) {
        let file = self.machine.cache.file(call.file);
        let (pages, growing) = (file.dirty.pages(), file.growing);
        if !growing || pages == 0 {
            return;
        }
        let folios = self.machine.cache.pieces(call.file, 0, u64::MAX).folios;
        let &Timing { allocation, delayed_allocation, .. } = &self.machine.device(call).timing;
        let blocks = if allocation > Seconds::ZERO { HANDED * allocation } else { delayed_allocation };
        let time = blocks + self.further(call, pages, folios) * call.constants.free;
        call.spend(Cause::Transfer, time);
        self.machine.begin_range(call, (0, u64::MAX));
    }

    /// What pages take beyond the first of each of their folios, in pages.
    fn further(&self, call: &Call, pages: u64, folios: u64) -> f64 {
        let walks = self.machine.devices[call.device].traits.walks_blocks;
        if walks { FURTHER * pages.saturating_sub(folios) as f64 } else { 0.0 }
    }

    /// The call's file is `size` bytes long now: what it has beyond leaves the cache and the device. `told`:
    /// how long it was, as far as the call tells.
    pub(super) fn cut(&mut self, call: &mut Call, told: u64, size: u64) {
        let first = call.constants.pages_up_to(size);
        let inode = self.machine.cache.file_mut(call.file);
        let unknown = !inode.told;
        if unknown && inode.size == 0 && told != UNKNOWN_OFFSET {
            inode.size = told;
        }
        let end = call.constants.pages_up_to(inode.size).min(MAX_RESIDENT);
        call.work.frees_unknown = f64::from(u8::from(unknown));
        if self.machine.cache.file(call.file).clean.count(first, u64::MAX) > 0 {
            self.machine.wait_for_file(call, 0);
        }
        let (mut pages, mut folios) = self.machine.cache.folios_between(call.file, first, u64::MAX);
        if unknown {
            // As of a file that is read.
            let others = end.saturating_sub(first + pages);
            (pages, folios) = (pages + others, folios + others.div_ceil(FOLIO));
        }
        self.free_pages(call, pages, folios);
        let file = self.machine.cache.file(call.file);
        let unwritten = if file.growing { file.dirty.count(first, end) } else { 0 };
        // What was set aside is on the device, other holes are not.
        let aside = call.constants.pages_up_to(file.reserved).max(first);
        let holes = self.machine.cache.holes_between(call.file, aside, end);
        let blocks = end.saturating_sub(first).saturating_sub(unwritten).saturating_sub(holes);
        self.free_blocks(call, blocks);
        self.truncate(call.file, size);
        self.machine.cache.file_mut(call.file).cut |= size == 0;
        self.writers.pass_to(&mut self.machine, call.at);
    }

    /// So many pages leave the cache, in so many folios.
    fn free_pages(&mut self, call: &mut Call, pages: u64, folios: u64) {
        if pages > 0 {
            let freed = folios as f64 + self.further(call, pages, folios);
            call.spend(Cause::FreedPages, freed * call.constants.free);
            call.work.freed += freed;
        }
    }

    /// posix_fadvise(POSIX_FADV_DONTNEED) frees what it drops (`mapping_try_invalidate`, mm/truncate.c).
    pub(super) fn drop_behind(&mut self, call: &mut Call, event: &Event) {
        let (file, first) = (call.file, event.offset / call.constants.page);
        let last = if event.requested == 0 { u64::MAX } else { event.offset.saturating_add(event.requested) };
        let end = last.div_ceil(call.constants.page);
        let before = self.machine.cache.folios_between(file, first, end);
        self.machine.drop_behind(call, event);
        let after = self.machine.cache.folios_between(file, first, end);
        let [pages, folios] = [before.0 - after.0.min(before.0), before.1 - after.1.min(before.1)];
        self.free_pages(call, pages, folios);
        self.memory.give(pages, self.machine.now);
    }

    /// So many blocks of the device become free. It discards them, where calls wait for that.
    fn free_blocks(&mut self, call: &mut Call, blocks: u64) {
        if blocks == 0 || self.in_memory(call) {
            return;
        }
        let &Timing { discard: Some(rate), write, .. } = &self.machine.device(call).timing else {
            call.work.read.names += EXTENT;
            return call.spend(Cause::Call, EXTENT * call.constants.name);
        };
        self.machine.advance(call.at);
        self.machine.drain(call.device);
        let page = call.constants.page;
        let before = self.machine.devices[call.device].left().0 * page as f64 / write;
        call.spent.add_to(Cause::Queue, before);
        self.machine.wait_until(call, call.at + before);
        let device = self.machine.device(call);
        let latency = device.timing.discard_latency;
        let fixed = latency + device.wake(call, Cause::Transfer);
        call.spent[Cause::Transfer] += latency;
        call.work.discards += 1.0;
        self.machine.occupy(call, (Bytes(blocks * page) / rate).into(), fixed);
    }

    /// The file is `size` bytes long now: pages beyond are dropped, dirty or not (`truncate_pagecache`).
    pub(super) fn truncate(&mut self, file: u32, size: u64) {
        let page = self.constants.page;
        let cached = self.machine.cache.cached(file);
        let gone = self.machine.cache.drop_range(file, size.div_ceil(page), u64::MAX);
        let freed = cached - self.machine.cache.cached(file);
        self.memory.give(freed, self.machine.now);
        self.machine.cancel(file, gone);
        let inode = self.machine.cache.file_mut(file);
        inode.told |= size == 0;
        inode.reserved = inode.reserved.min(size);
        let before = std::mem::replace(&mut inode.size, size);
        if size != before {
            self.machine.cache.fill(file, size.div_ceil(page), u64::MAX);
            self.machine.cache.set_aside(file, before.div_ceil(page), size.div_ceil(page));
            self.machine.change(file, self.machine.now, true);
        }
    }

    /// A file is open.
    pub(super) fn opened(&mut self, call: &Call, event: &Event) {
        let file = call.file;
        self.touch_inode(file);
        let is_new = self.machine.cache.size(file) == 0;
        if event.has(flag::TRUNC | flag::CREATED) {
            if is_new {
                // Most often.
                self.machine.change(file, self.machine.now, true);
            }
            self.truncate(file, 0);
        }
        let size = event.requested;
        self.machine.devices[call.device].renamed |= event.has(flag::CREATED);
        if is_new && self.in_memory(call) {
            // All that it has is cached.
            let pages = call.constants.pages_up_to(size).min(MAX_RESIDENT);
            self.machine.cache.read(file, 0, pages, Source::Cache);
        }
        let inode = self.machine.cache.file_mut(file);
        inode.size = inode.size.max(size);
        inode.told |= inode.size == 0;
        inode.cut &= !event.has(flag::CREATED);
        self.reads.opened(event);
        if event.op == Op::StreamOpen {
            self.streams.open(event);
        }
    }
}
