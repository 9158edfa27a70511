//! Calls that wait for the device: direct and synchronous writes, fsync and relatives.
//!
//! The law: after the wait for the data ([`waiting`](super::waiting)) comes a fixed cost (`ext4_sync_file`
//! after `file_write_and_wait_range`): a commit of the journal if the running transaction has a change of the
//! file's inode, or of its size or blocks where only these count (fdatasync, O_DSYNC); else a flush of the
//! device's cache alone, even if nothing was written. A filesystem may end it otherwise
//! ([`ends_sync`](crate::filesystem::Filesystem::ends_sync)).
//!
//! A function here that returns a time has booked them under their causes.

use super::super::writeback::{Device, Machine};
use super::{Call, Kernel};
use crate::call::{RANGE_WRITE, WAIT_AFTER, WAIT_BEFORE, is_copied_up};
use crate::cause::Cause;
use crate::constants::{FLUSH, Timing};
use crate::filesystem::{COPIES, Changes, LEAF, SyncEnd};
use crate::units::{Pages, Seconds};
use cawl_wire::{Event, FileKind, Op, flag};

/// msync: nothing is written now.
const MS_ASYNC: u32 = 1;

/// Calls that are made to wait for the device.
pub(super) fn waits(event: &Event) -> bool {
    match event.op {
        Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs | Op::SyncRange | Op::Advise => true,
        Op::Msync => event.aux & MS_ASYNC == 0,
        _ => is_copied_up(event),
    }
}

/// The pages of a call's range.
fn range(event: &Event, page: u64) -> (u64, u64) {
    let end = match event.requested {
        0 => u64::MAX,
        length => event.offset.saturating_add(length).div_ceil(page),
    };
    (event.offset / page, end)
}

impl Device {
    /// What getting from the latest synchronous write to this one takes. Before the first one the
    /// device was elsewhere.
    fn write_seek(&mut self, call: &mut Call, offset: u64, last: u64) -> Seconds {
        let head = std::mem::replace(&mut self.head, (call.file, last));
        if head == (call.file, offset) {
            return Seconds::ZERO;
        }
        call.work.seeks += 1.0;
        let seek = self.timing.seek;
        call.spent[Cause::Seek] += seek;
        seek
    }

    /// What the leaves of a log of synced files take that a sync writes beyond the first; nothing
    /// where there is no such log.
    fn write_log(&mut self, call: &mut Call) -> Seconds {
        let device = self;
        if !device.traits.logs_files {
            return Seconds::ZERO;
        }
        let leaves = device.tree_log.add(call.runs, call.at) - 1.0;
        let all = leaves * COPIES * (LEAF / device.timing.write + device.timing.request);
        call.spent[Cause::Journal] += all;
        all
    }
}

impl Machine {
    /// O_SYNC and O_DSYNC through the cache: the write's own pages, then the fixed cost.
    pub(super) fn write_through(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let page = call.constants.page;
        let last = offset.saturating_add(bytes);
        let inode = self.cache.file_mut(call.file);
        let (first, _) = inode.folios.around(offset / page);
        let (_, end) = inode.folios.around(last.div_ceil(page) - 1);
        inode.cursor = first;
        self.prepare(call, first, end, true);
        let submitted = self.submit(call.file, end - first);
        let seek = self.device_mut(call).write_seek(call, offset, last);
        self.wait_for_file(call, submitted);
        let grown = self.cache.file(call.file).grown;
        let device = self.device(call);
        let allocates = grown == device.transaction;
        let allocation = if allocates { device.timing.delayed_allocation } else { Seconds::ZERO };
        call.work.allocated += f64::from(u8::from(allocates));
        call.spent[Cause::Transfer] += allocation;
        let fixed = self.write_last(call, event);
        self.occupy(call, Seconds::ZERO, allocation + fixed + seek);
    }

    /// What a synchronous write ends with.
    fn write_last(&mut self, call: &mut Call, event: &Event) -> Seconds {
        let end = self.end_of_sync(call, event.has(flag::SYNC));
        self.end_sync(call, end, true)
    }

    /// What a synchronous call on the call's file ends with, for which `all` changes count or not.
    fn end_of_sync(&mut self, call: &Call, all: bool) -> SyncEnd {
        let inode = self.cache.file(call.file);
        let device = &self.devices[call.device];
        let now = device.transaction;
        let changes = Changes { grown: inode.grown == now, stamped: inode.changed == now };
        device.filesystem.ends_sync(changes, all, device.timing.syncs_stamps)
    }

    /// Ends a call that has waited for its data, `is_write` if that is not an fsync; how long it takes, in
    /// seconds.
    fn end_sync(&mut self, call: &mut Call, end: SyncEnd, is_write: bool) -> Seconds {
        let device = self.device(call);
        let &Timing { fsync, sync_call, flush, is_flush_known, syncs_stamps, .. } = &device.timing;
        if end == SyncEnd::Nothing {
            return Seconds::ZERO;
        }
        if end != SyncEnd::Flush {
            match syncs_stamps || device.traits.logs_files {
                true => self.write_inode(call.file),
                false => self.commit(call.device),
            }
        }
        let inode = if end == SyncEnd::Inode { self.device(call).latency(call) } else { Seconds::ZERO };
        let leaves =
            if end != SyncEnd::Flush { self.device_mut(call).write_log(call) } else { Seconds::ZERO };
        let (sum, part, fixed) = match end {
            SyncEnd::Commit if is_write => (&mut call.work.syncs, 1.0, sync_call),
            SyncEnd::Commit => (&mut call.work.fsyncs, 1.0, fsync),
            _ if is_flush_known => (&mut call.work.flushes, 1.0, flush),
            _ => (&mut call.work.fsyncs, FLUSH, flush),
        };
        *sum += part;
        // A commit has the flush in it.
        call.spent[Cause::DeviceFlush] += flush.min(fixed);
        call.spent[Cause::Journal] += (fixed - flush).max(Seconds::ZERO);
        inode + leaves + fixed
    }

    /// fsync, fdatasync, msync: the file's dirty pages, then the fixed cost.
    pub(super) fn fsync(&mut self, call: &mut Call, event: &Event) {
        call.spend_call(call.constants.call);
        if !waits(event) {
            return;
        }
        self.write_all_out(call);
        let device = self.device_mut(call);
        let mut fixed = Seconds::ZERO;
        let end = if event.kind == FileKind::Directory {
            let renamed = std::mem::take(&mut device.renamed);
            let in_transaction = device.changed == device.transaction;
            let end = device.filesystem.ends_folder_sync(renamed, in_transaction, device.timing.syncs_stamps);
            if end == SyncEnd::Nothing {
                return;
            }
            if device.traits.logs_files {
                fixed = self.device(call).latency(call);
            }
            end
        } else {
            self.end_of_sync(call, event.op != Op::Fdatasync)
        };
        fixed += self.end_sync(call, end, false);
        fixed += self.device(call).wake(call, Cause::Transfer);
        self.occupy(call, Seconds::ZERO, fixed);
    }

    /// The dirty pages of a file that was just made are written and waited for, and the journal is committed.
    pub(super) fn make_durable(&mut self, call: &mut Call) {
        self.write_all_out(call);
        let fixed = self.end_sync(call, SyncEnd::Commit, false);
        self.occupy(call, Seconds::ZERO, fixed);
    }

    /// sync_file_range: no journal, no flush; waits if told to, and while the device's queue has no room for
    /// what it submits.
    pub(super) fn sync_range(&mut self, call: &mut Call, event: &Event) {
        call.spend_call(call.constants.call);
        if event.aux & WAIT_BEFORE != 0 {
            self.wait_for_file(call, 0);
        }
        let mut submitted = 0;
        if event.aux & RANGE_WRITE != 0 {
            submitted = self.begin_range(call, range(event, call.constants.page));
        }
        if event.aux & WAIT_AFTER != 0 {
            self.wait_for_file(call, submitted);
        }
    }

    /// posix_fadvise(POSIX_FADV_DONTNEED): begins to write what of the range is dirty, then drops the whole
    /// pages that are clean and on the device (`generic_fadvise`, `mapping_try_invalidate`).
    pub(super) fn drop_behind(&mut self, call: &mut Call, event: &Event) {
        call.spend_call(call.constants.call);
        // What is in memory alone is not dropped (`generic_fadvise`).
        if event.returned < 0 || self.device(call).traits.is_in_memory {
            return;
        }
        self.begin_range(call, range(event, call.constants.page));
        let page = call.constants.page;
        let last = event.offset.saturating_add(event.requested);
        // The page at the end of the file is a whole one.
        let all = event.requested == 0 || last >= self.cache.size(call.file);
        let end = if all { u64::MAX } else { last / page };
        let in_flight = self.in_flight_before(call.file);
        self.cache.evict(call.file, event.offset.div_ceil(page), end, in_flight);
    }

    /// sync and syncfs: every dirty file, of one device or of all that were written to. What untraced writers
    /// left dirty is before the call's own in the device's queue.
    pub(super) fn sync_all(&mut self, call: &mut Call, only: Option<usize>) {
        call.spend_call(call.constants.call);
        let mut until = call.at;
        let before = call.spent[Cause::Transfer];
        let (mut last, mut others) = (Vec::new(), Seconds::ZERO);
        let all = 0..self.devices.len();
        let wanted = |machine: &Machine, at: usize| match only {
            Some(only) => only == at && !machine.devices[at].traits.is_in_memory,
            None => machine.devices[at].changed > 0 || machine.foreign_of(at) > 0,
        };
        for device in all.clone().filter(|at| wanted(self, *at)).collect::<Vec<_>>() {
            // No machine has more, whatever a sample told.
            let foreign = self.submit_foreign(device, u64::from(u32::MAX));
            let mut submitted = foreign;
            for file in self.dirty_files(device) {
                submitted += self.submit(file, u64::MAX);
                last.push(file);
            }
            self.drain(device);
            let busy = &self.devices[device];
            if busy.in_flight > 0 {
                let begin = self.transfer_begins(call, device, busy.left().whole() > submitted);
                until = until.max(begin + busy.left() / busy.speed());
                others += Pages::of(foreign) / busy.speed();
            }
            if submitted > 0 {
                until += self.device(call).latency(call);
            }
        }
        let early = until > call.until;
        let others = others.min(until - call.at);
        call.spent[Cause::Queue] += others;
        call.spent[Cause::Transfer] = before + (until - call.at - others);
        self.wait_until(call, until);
        let own = call.device;
        for device in all.filter(|at| wanted(self, *at)).collect::<Vec<_>>() {
            call.device = device;
            let commits = self.devices[device].changed == self.devices[device].transaction;
            let end = if commits { SyncEnd::Commit } else { SyncEnd::Flush };
            let fixed = self.end_sync(call, end, false);
            if commits {
                // Every file's changes are on the device.
                self.commit(device);
            }
            self.occupy(call, Seconds::ZERO, fixed);
        }
        call.device = own;
        if early {
            // When sync returns, all is written.
            last.into_iter().for_each(|file| self.complete(file));
        }
    }
}

impl Kernel {
    /// O_DIRECT: past the cache, whose pages in the range are written out and dropped.
    pub(super) fn direct_write(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let page = call.constants.page;
        let last = offset.saturating_add(bytes);
        let (first, end) = (offset / page, last.div_ceil(page));
        let filled = self.machine.cache.fill(call.file, first, end);
        let grows = filled || last > self.machine.cache.size(call.file);
        self.writers.lock(&mut self.machine, call, !grows);
        let inode = self.machine.cache.file(call.file);
        // A folio is written out and dropped as a whole (`kiocb_invalidate_pages`).
        let (first, end) = inode.folios.spread(first, end);
        self.machine.write_out(call, first, end);
        self.machine.cache.drop_range(call.file, first, end);
        let inode = self.machine.cache.file_mut(call.file);
        let block = call.constants.block;
        let allocates = filled || last.div_ceil(block) > inode.size.div_ceil(block);
        inode.size = inode.size.max(last);
        if grows {
            self.machine.change(call.file, call.at, true);
        }
        self.stamp(call);
        let is_synchronous = event.has(flag::SYNC | flag::DSYNC);
        let fixed = if is_synchronous { self.machine.write_last(call, event) } else { Seconds::ZERO };
        let seek = self.machine.device_mut(call).write_seek(call, offset, last);
        call.work.transferred += bytes as f64;
        let &Timing { write, direct, allocation, partial, .. } = &self.machine.device(call).timing;
        let transfer = bytes as f64 / write;
        let latency = match direct.filter(|_| !is_synchronous) {
            Some(direct) => {
                call.spent[Cause::Transfer] += direct;
                direct + self.machine.device(call).wake(call, Cause::Transfer)
            }
            None => self.machine.device(call).latency(call),
        };
        let in_blocks = offset.is_multiple_of(block) && bytes.is_multiple_of(block);
        let partial = partial.filter(|_| !in_blocks && grows);
        // The rest of a block that the call before has begun is there already.
        let allocates = if partial.is_some() { allocates } else { grows };
        let allocation = if allocates { allocation } else { Seconds::ZERO } + partial.unwrap_or_default();
        call.spent[Cause::Transfer] += allocation;
        self.machine.occupy(call, transfer, latency + allocation + fixed + seek);
        call.unlock();
    }
}
