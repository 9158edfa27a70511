//! Calls that wait for the device: direct and synchronous writes, fsync and relatives.
//!
//! The law: what must be on the device is submitted behind what is in flight already and waited for at
//! the device's rate; on top comes a fixed cost (journal commit, cache flush). Transfers of several tasks
//! follow each other.

use super::{Call, Kernel};
use cawl_wire::{Event, Op, flag};

/// sync_file_range: wait before writing, write, wait after.
const WAIT_BEFORE: u32 = 1;
const WRITE: u32 = 2;
const WAIT_AFTER: u32 = 4;

/// Calls that are made to wait for the device.
pub(super) fn waits(event: &Event) -> bool {
    matches!(event.op, Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs | Op::SyncRange | Op::Msync)
}

impl Kernel {
    /// O_DIRECT: past the cache, whose pages in the range are written out and dropped.
    pub(super) fn direct_write(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let page = self.constants.page;
        let (first, end) = (offset / page, offset.saturating_add(bytes).div_ceil(page));
        let inode = self.machine.cache.file(call.file);
        // A folio is written out and dropped as a whole (`kiocb_invalidate_pages`).
        let (first, end) = (inode.folios.around(first).0, inode.folios.around(end.saturating_sub(1)).1.max(end));
        if inode.dirty.pages() > 0 && inode.dirty.count(first, end) > 0 {
            self.submit_range(call.file, first, end);
            self.wait_for_file(call);
        }
        self.machine.cache.drop_range(call.file, first, end);
        let inode = self.machine.cache.file_mut(call.file);
        inode.size = inode.size.max(offset.saturating_add(bytes));
        let of = self.constants_of(event.dev);
        let mut fixed =
            if event.has(flag::SYNC | flag::DSYNC) { of.sync_call.value.as_seconds() } else { 0.0 };
        if self.heads[call.device] != (call.file, offset) && self.heads[call.device].0 != u32::MAX {
            fixed += of.seek.value.as_seconds();
            call.work.seeks += 1.0;
        }
        call.work.syncs += f64::from(u8::from(event.has(flag::SYNC | flag::DSYNC)));
        call.work.transferred += bytes as f64;
        let transfer = bytes as f64 / of.write.value.get();
        self.heads[call.device] = (call.file, offset + bytes);
        self.occupy(call, transfer, fixed);
    }

    /// O_SYNC and O_DSYNC through the cache: the write's own pages, then the fixed cost.
    pub(super) fn write_through(&mut self, call: &mut Call, offset: u64, bytes: u64) {
        let page = self.constants.page;
        let inode = self.machine.cache.file_mut(call.file);
        let (first, _) = inode.folios.around(offset / page);
        let (_, end) = inode.folios.around(offset.saturating_add(bytes).div_ceil(page) - 1);
        inode.cursor = first;
        self.machine.submit(call.file, end - first);
        let of = self.constants_of(self.machine.devices[call.device].id);
        let mut fixed = of.sync_call.value.as_seconds();
        if self.heads[call.device] != (call.file, offset) && self.heads[call.device].0 != u32::MAX {
            fixed += of.seek.value.as_seconds();
            call.work.seeks += 1.0;
        }
        call.work.syncs += 1.0;
        self.heads[call.device] = (call.file, offset + bytes);
        self.wait_for_file(call);
        self.occupy(call, 0.0, fixed);
    }

    /// fsync, fdatasync, msync: the file's dirty pages, then the fixed cost; with nothing to write only a
    /// call.
    pub(super) fn fsync(&mut self, call: &mut Call) {
        call.spend_call(self.constants.call);
        let written = self.machine.submit(call.file, u64::MAX);
        let waited = self.machine.in_flight_before(call.file);
        if written + waited == 0 {
            return;
        }
        self.wait_for_file(call);
        call.work.fsyncs += 1.0;
        let fixed = self.constants_of(self.machine.devices[call.device].id).fsync.value.as_seconds();
        self.occupy(call, 0.0, fixed);
    }

    /// sync_file_range: no journal, no flush; waits only if told to.
    pub(super) fn sync_range(&mut self, call: &mut Call, event: &Event) {
        call.spend_call(self.constants.call);
        if event.aux & WAIT_BEFORE != 0 {
            self.wait_for_file(call);
        }
        if event.aux & WRITE != 0 {
            let page = self.constants.page;
            let first = event.offset / page;
            let end = if event.requested == 0 {
                u64::MAX
            } else {
                event.offset.saturating_add(event.requested).div_ceil(page)
            };
            self.submit_range(call.file, first, end);
        }
        if event.aux & WAIT_AFTER != 0 {
            self.wait_for_file(call);
        }
    }

    /// The dirty pages of a file from `first` up to `end` are written back.
    fn submit_range(&mut self, file: u32, first: u64, end: u64) {
        let inode = self.machine.cache.file_mut(file);
        let pages = inode.dirty.count(first, end);
        inode.cursor = first;
        self.machine.submit(file, pages);
    }

    /// sync and syncfs: every dirty file, of one device or of all.
    pub(super) fn sync_all(&mut self, call: &mut Call, only: Option<usize>) {
        call.spend_call(self.constants.call);
        let mut fixed: f64 = 0.0;
        let mut until = call.at;
        let mut last = Vec::new();
        for device in 0..self.machine.devices.len() {
            if only.is_some_and(|only| only != device) {
                continue;
            }
            for file in self.machine.dirty_files(device) {
                self.machine.submit(file, u64::MAX);
                last.push(file);
            }
            self.machine.drain(device);
            let busy = &self.machine.devices[device];
            if busy.in_flight > 0 {
                until = until.max(self.machine.now.max(call.at) + busy.in_flight as f64 / busy.speed());
                fixed = fixed.max(self.constants_of(busy.id).fsync.value.as_seconds());
            }
        }
        call.spent.device += until - call.at;
        let early = until > call.until;
        call.at = until.min(call.until);
        self.occupy(call, 0.0, fixed);
        if early {
            // Whoever came back from sync knows that all is written.
            last.into_iter().for_each(|file| self.machine.complete(file));
        }
    }

    /// Waits until what the call's file has in flight is written, at the rate of synchronous transfers.
    fn wait_for_file(&mut self, call: &mut Call) {
        let pages = self.machine.in_flight_before(call.file);
        if pages > 0 {
            let of = self.constants_of(self.machine.devices[call.device].id);
            let bytes = (pages * self.constants.page) as f64 * self.machine.devices[call.device].density();
            let transfer = bytes / of.write.value.get();
            call.work.transferred += bytes;
            let until = self.machine.now.max(call.at) + transfer;
            call.spent.device += until - call.at;
            call.at = until.min(call.until);
            self.machine.advance(call.at);
            self.machine.complete(call.file);
        }
    }

    /// Has the device to itself for `transfer` seconds, after those who came before; then `fixed` more.
    fn occupy(&mut self, call: &mut Call, transfer: f64, fixed: f64) {
        let free = self.occupied[call.device].max(call.at);
        self.occupied[call.device] = (free + transfer).min(call.until.max(free));
        let end = free + transfer + fixed;
        call.spent.device += end - call.at;
        call.at = end.min(call.until);
        self.machine.advance(call.at);
    }
}
