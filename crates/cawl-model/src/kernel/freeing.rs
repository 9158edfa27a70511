//! Calls that free what a file has in the page cache and on the device, and calls that begin to write what
//! comes in its place.
//!
//! The law (6.18): cutting a file off waits for its pages under writeback, cancels the dirty ones and frees
//! all, folio by folio (`truncate_inode_pages_range`, mm/truncate.c). Where blocks have descriptions (`struct
//! buffer_head`), each further page of a folio takes [`FURTHER`] of what the first one does, since its own is
//! freed, too. A file without links is cut off to nothing when its last descriptor is closed
//! (`ext4_evict_inode`, fs/ext4/inode.c). Where the call has the device discard the freed blocks
//! (`ext4_issue_discard`, fs/ext4/mballoc.c), it waits for that, behind what the device was given before.
//!
//! A file that was cut off to nothing is handed to the device when it is closed (`ext4_release_file`,
//! fs/ext4/file.c), one that replaces another when it is renamed (`ext4_rename`, fs/ext4/namei.c), if it has
//! dirty pages in new blocks (`ext4_alloc_da_blocks`). Nobody waits until these are written. No call names
//! the file that is renamed: it is taken to be the one that the process closed last of those it could write
//! to.

use cawl_wire::{Event, FileId, Op, flag};

use super::super::cache::Source;
use super::{Call, Kernel};
use crate::cause::Cause;
use crate::constants::{FOLIO, MAX_RESIDENT, Timing};
use crate::lru::LruMap;
use crate::units::Bytes;

/// Part of what the first page of a folio takes that each further one does, to free it or to hand it over.
const FURTHER: f64 = 0.25;

/// So many times as long as opening a file it takes to change its length, beyond that, and to take a name away:
/// 4.4 and 6.6 µs on ext4 of 6.18, where an open took 1.9; a name 7.5 µs on tmpfs, 14 on xfs.
pub(super) const LENGTH: f64 = 2.0;
const NAME: f64 = 4.0;

/// Files that calls were about of late, for those that name none or the first ones on a file.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentFiles {
    /// The one that each process closed last of those it could write to.
    closed: LruMap<u32, u32>,
    /// Lengths of those that were named last.
    lengths: [(FileId, u64); 8],
    next: usize,
}

impl RecentFiles {
    /// A file that a call is about to be made on has this length.
    pub(super) fn meet(&mut self, file: FileId, length: u64) {
        self.lengths[self.next] = (file, length);
        self.next = (self.next + 1) % self.lengths.len();
    }

    fn length(&self, file: FileId) -> u64 {
        self.lengths.iter().find(|named| named.0 == file).map_or(0, |named| named.1)
    }
}

impl Kernel {
    /// unlink, rename over another file, truncate and ftruncate.
    pub(super) fn change(&mut self, call: &mut Call, event: &Event) {
        if event.op == Op::Truncate {
            call.spend(Cause::Call, LENGTH * call.constants.open);
            return self.cut(call, event, event.offset);
        }
        call.spend(Cause::Call, NAME * call.constants.open);
        if event.op == Op::Rename {
            self.begin_renamed(call, event);
        }
        if event.takes_last_link() {
            self.lose(call);
            if !event.has(flag::HELD) {
                self.cut(call, event, 0);
            }
        }
    }

    /// The last name of the call's file has gone.
    pub(super) fn lose(&mut self, call: &Call) {
        self.machine.change(call.file, self.machine.now, true);
        self.machine.devices[call.device].renamed = true;
    }

    /// A descriptor of the call's file is closed. Those of one open file are closed together, mostly: a file is
    /// released with its last one.
    pub(super) fn closed(&mut self, call: &mut Call, event: &Event) {
        if self.is_remote(call) {
            return;
        }
        if event.has(flag::WRITABLE) {
            self.recent_files.closed.put(event.pid, call.file);
        }
        let writes = self.machine.devices[call.device].traits.writes_cut_files;
        if event.has(flag::LAST) && std::mem::take(&mut self.machine.cache.file_mut(call.file).cut) && writes
        {
            self.begin_new_blocks(call);
        }
        if event.has(flag::GONE) {
            self.cut(call, event, 0);
        }
    }

    /// The device may hold back a call that frees what its file has, or renames one over it.
    pub(super) fn may_wait_to_free(&self, event: &Event) -> bool {
        let has_work = |at| {
            let device = &self.machine.devices[self.machine.cache.device(at)];
            device.in_flight > 0 || device.timing.discard.is_some()
        };
        event.op == Op::Rename && self.recent_files.closed.peek(&event.pid).is_some()
            || self.machine.cache.find(event.file()).is_some_and(has_work)
    }

    /// The device may hold back a close that frees the file, or it is the last of a file that was cut off.
    pub(super) fn closes_a_change(&self, event: &Event) -> bool {
        let is_cut = |at| self.machine.cache.is_cut(at);
        event.has(flag::GONE) && self.may_wait_to_free(event)
            || event.has(flag::LAST) && self.machine.cache.find(event.file()).is_some_and(is_cut)
    }

    /// The file that is renamed over the call's begins to be written.
    fn begin_renamed(&mut self, call: &mut Call, event: &Event) {
        let Some(renamed) = self.recent_files.closed.take(&event.pid) else { return };
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
        let time = self.machine.device(call).timing.delayed_allocation
            + self.further(call, pages, folios) * call.constants.free;
        call.spend(Cause::Transfer, time);
        self.machine.begin_range(call, (0, u64::MAX));
    }

    /// What pages take beyond the first of each of their folios, in pages.
    fn further(&self, call: &Call, pages: u64, folios: u64) -> f64 {
        let walks = self.machine.devices[call.device].traits.walks_blocks;
        if walks { FURTHER * pages.saturating_sub(folios) as f64 } else { 0.0 }
    }

    /// The call's file is `size` bytes long now: what it has beyond leaves the cache and the device.
    pub(super) fn cut(&mut self, call: &mut Call, event: &Event, size: u64) {
        let first = call.constants.pages_up_to(size);
        let inode = self.machine.cache.file_mut(call.file);
        let unknown = !inode.told;
        if unknown && inode.size == 0 {
            inode.size = self.recent_files.length(event.file());
        }
        let end = call.constants.pages_up_to(inode.size).min(MAX_RESIDENT);
        call.work.frees_unknown = f64::from(u8::from(unknown));
        if self.machine.cache.file(call.file).clean.count(first, u64::MAX) > 0 {
            self.machine.wait_for_file(call, 0);
        }
        let (mut pages, mut folios) = self.machine.cache.folios_from(call.file, first);
        if unknown {
            // As of a file that is read.
            let others = end.saturating_sub(first + pages);
            (pages, folios) = (pages + others, folios + others.div_ceil(FOLIO));
        }
        if pages > 0 {
            let freed = folios as f64 + self.further(call, pages, folios);
            call.spend(Cause::FreedPages, freed * call.constants.free);
            call.work.freed += freed;
        }
        self.discard(call, first);
        self.truncate(call.file, size);
        self.machine.cache.file_mut(call.file).cut |= size == 0;
        self.writers.pass_to(&mut self.machine, call.at);
    }

    /// The device discards what the call's file has on it from the page `first` on, where calls wait for that.
    fn discard(&mut self, call: &mut Call, first: u64) {
        let &Timing { discard: Some(rate), write, .. } = &self.machine.device(call).timing else { return };
        let end = call.constants.pages_up_to(self.machine.cache.size(call.file));
        let file = self.machine.cache.file(call.file);
        let unwritten = if file.growing { file.dirty.count(first, end) } else { 0 };
        let blocks = end.saturating_sub(first.saturating_add(unwritten)).min(MAX_RESIDENT);
        if blocks == 0 {
            return;
        }
        self.machine.advance(call.at);
        self.machine.drain(call.device);
        let page = call.constants.page;
        let before = self.machine.devices[call.device].left() * page as f64 / write;
        call.spent.add_to(Cause::Queue, before);
        self.machine.wait_until(call, call.at + before);
        let latency = self.machine.device(call).latency(call);
        self.machine.occupy(call, (Bytes(blocks * page) / rate).as_seconds(), latency);
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
