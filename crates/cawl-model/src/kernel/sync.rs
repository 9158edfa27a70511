//! Calls that wait for the device: direct and synchronous writes, fsync and relatives.
//!
//! The law: what must be on the device is submitted behind what is in flight already and waited for at the
//! device's rate: that of synchronous calls, or for what its queue does not hold at once, that of writeback
//! if it is higher. A wait for what was just submitted has the latency of a request, and after it
//! (`ext4_sync_file` after `file_write_and_wait_range`) a fixed cost: a commit of the journal if the running
//! transaction has a change of the file's inode, or of its size or blocks where only these count (fdatasync,
//! O_DSYNC); else a flush of the device's cache alone, even if nothing was written. Transfers of several
//! tasks follow each other.
//!
//! A function here that returns seconds has booked them under their causes.

use super::super::writeback::{BATCH, Machine};
use super::{Call, Kernel};
use crate::call::{RANGE_WRITE, WAIT_AFTER, WAIT_BEFORE, is_copied_up};
use crate::cause::Cause;
use crate::constants::{FLUSH, Timing};
use crate::filesystem::{COPIES, Changes, LEAF, SyncEnd};
use cawl_wire::{Event, FileKind, Op, flag};

/// msync: nothing is written now.
const MS_ASYNC: u32 = 1;
/// Most folios of a request (`BIO_MAX_VECS`).
const FULL_REQUEST: u64 = 256;

/// Calls that are made to wait for the device.
pub(super) fn waits(event: &Event) -> bool {
    match event.op {
        Op::Fsync | Op::Fdatasync | Op::Sync | Op::Syncfs | Op::SyncRange | Op::Advise => true,
        Op::Msync => event.aux & MS_ASYNC == 0,
        _ => is_copied_up(event),
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
        self.lock(call, !grows);
        let inode = self.machine.cache.file(call.file);
        // A folio is written out and dropped as a whole (`kiocb_invalidate_pages`).
        let (first, end) = inode.folios.spread(first, end);
        self.write_out(call, first, end);
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
        let fixed = if is_synchronous { self.write_last(call, event) } else { 0.0 };
        let seek = self.write_seek(call, offset, last);
        call.work.transferred += bytes as f64;
        let &Timing { write, direct, allocation, partial, .. } = self.timing(call);
        let transfer = bytes as f64 / write;
        let latency = match direct.filter(|_| !is_synchronous) {
            Some(direct) => {
                call.spent[Cause::Transfer] += direct;
                direct + self.wake(call, Cause::Transfer)
            }
            None => self.latency(call),
        };
        let in_blocks = offset.is_multiple_of(block) && bytes.is_multiple_of(block);
        let partial = partial.filter(|_| !in_blocks && grows);
        // The rest of a block that the call before has begun is there already.
        let allocates = if partial.is_some() { allocates } else { grows };
        let allocation = if allocates { allocation } else { 0.0 } + partial.unwrap_or(0.0);
        call.spent[Cause::Transfer] += allocation;
        self.occupy(call, transfer, latency + allocation + fixed + seek);
        self.unlock(call);
    }

    /// Writes out the dirty pages of the call's file from `first` up to `end`, and waits for that.
    pub(super) fn write_out(&mut self, call: &mut Call, first: u64, end: u64) {
        let dirty = &self.machine.cache.file(call.file).dirty;
        if dirty.pages() > 0 && dirty.count(first, end) > 0 {
            self.hand_over(call, first, end, true);
            let submitted = self.submit_range(call.file, first, end);
            self.wait_for_file(call, submitted);
        }
    }

    /// O_SYNC and O_DSYNC through the cache: the write's own pages, then the fixed cost.
    pub(super) fn write_through(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        let page = call.constants.page;
        let last = offset.saturating_add(bytes);
        let inode = self.machine.cache.file_mut(call.file);
        let (first, _) = inode.folios.around(offset / page);
        let (_, end) = inode.folios.around(last.div_ceil(page) - 1);
        inode.cursor = first;
        self.hand_over(call, first, end, true);
        let submitted = self.machine.submit(call.file, end - first);
        let seek = self.write_seek(call, offset, last);
        self.wait_for_file(call, submitted);
        let grown = self.machine.cache.file(call.file).grown;
        let device = &self.machine.devices[call.device];
        let allocates = grown == device.transaction;
        let allocation = if allocates { device.timing.delayed_allocation } else { 0.0 };
        call.work.allocated += f64::from(u8::from(allocates));
        call.spent[Cause::Transfer] += allocation;
        let fixed = self.write_last(call, event);
        self.occupy(call, 0.0, allocation + fixed + seek);
    }

    /// What a synchronous write ends with, in seconds.
    fn write_last(&mut self, call: &mut Call, event: &Event) -> f64 {
        let end = self.end_of_sync(call, event.has(flag::SYNC));
        self.end_sync(call, end, true)
    }

    /// What getting from the latest synchronous write to this one takes, in seconds. Before the first one the
    /// device was elsewhere.
    fn write_seek(&mut self, call: &mut Call, offset: u64, last: u64) -> f64 {
        let head = std::mem::replace(&mut self.machine.devices[call.device].head, (call.file, last));
        if head == (call.file, offset) {
            return 0.0;
        }
        call.work.seeks += 1.0;
        let seek = self.timing(call).seek;
        call.spent[Cause::Seek] += seek;
        seek
    }

    /// What a synchronous call on the call's file ends with, for which `all` changes count or not.
    fn end_of_sync(&mut self, call: &Call, all: bool) -> SyncEnd {
        let inode = self.machine.cache.file(call.file);
        let device = &self.machine.devices[call.device];
        let now = device.transaction;
        let changes = Changes { grown: inode.grown == now, stamped: inode.changed == now };
        device.filesystem.ends_sync(changes, all, device.timing.syncs_stamps)
    }

    /// Nothing is written where the call's file is, or nothing is waited for (`noop_fsync`,
    /// `ovl_should_sync`).
    pub(super) fn never_waits(&self, call: &Call, event: &Event) -> bool {
        self.in_memory(call) || self.filesystems.is_volatile(event.dev)
    }

    /// Ends a call that has waited for its data, `is_write` if that is not an fsync; how long it takes, in
    /// seconds.
    fn end_sync(&mut self, call: &mut Call, end: SyncEnd, is_write: bool) -> f64 {
        let device = &self.machine.devices[call.device];
        let &Timing { fsync, sync_call, flush, is_flush_known, syncs_stamps, .. } = &device.timing;
        if end == SyncEnd::Nothing {
            return 0.0;
        }
        if end != SyncEnd::Flush {
            match syncs_stamps || device.traits.logs_files {
                true => self.machine.write_inode(call.file),
                false => self.machine.commit(call.device),
            }
        }
        let inode = if end == SyncEnd::Inode { self.latency(call) } else { 0.0 };
        let leaves = if end != SyncEnd::Flush { self.write_log(call) } else { 0.0 };
        let (sum, part, fixed) = match end {
            SyncEnd::Commit if is_write => (&mut call.work.syncs, 1.0, sync_call),
            SyncEnd::Commit => (&mut call.work.fsyncs, 1.0, fsync),
            _ if is_flush_known => (&mut call.work.flushes, 1.0, flush),
            _ => (&mut call.work.fsyncs, FLUSH, flush),
        };
        *sum += part;
        // A commit has the flush in it.
        call.spent[Cause::DeviceFlush] += flush.min(fixed);
        call.spent[Cause::Journal] += (fixed - flush).max(0.0);
        inode + leaves + fixed
    }

    /// What the leaves of a log of synced files take that a sync writes beyond the first, in seconds; nothing
    /// where there is no such log.
    fn write_log(&mut self, call: &mut Call) -> f64 {
        let device = &mut self.machine.devices[call.device];
        if !device.traits.logs_files {
            return 0.0;
        }
        let leaves = device.tree_log.add(call.runs, call.at) - 1.0;
        let all = leaves * COPIES * (LEAF / device.timing.write + device.timing.request);
        call.spent[Cause::Journal] += all;
        all
    }

    /// fsync, fdatasync, msync: the file's dirty pages, then the fixed cost.
    pub(super) fn fsync(&mut self, call: &mut Call, event: &Event) {
        if self.never_waits(call, event) {
            return call.spend_empty_call(call.constants.empty_call);
        }
        call.spend_call(call.constants.call);
        if !waits(event) {
            return;
        }
        self.write_all_out(call);
        let device = &mut self.machine.devices[call.device];
        let mut fixed = 0.0;
        let end = if event.kind == FileKind::Directory {
            let renamed = std::mem::take(&mut device.renamed);
            let in_transaction = device.changed == device.transaction;
            let end = device.filesystem.ends_folder_sync(renamed, in_transaction, device.timing.syncs_stamps);
            if end == SyncEnd::Nothing {
                return;
            }
            if device.traits.logs_files {
                fixed = self.latency(call);
            }
            end
        } else {
            self.end_of_sync(call, event.op != Op::Fdatasync)
        };
        fixed += self.end_sync(call, end, false);
        fixed += self.wake(call, Cause::Transfer);
        self.occupy(call, 0.0, fixed);
    }

    /// The dirty pages of the call's file are written, and waited for.
    fn write_all_out(&mut self, call: &mut Call) {
        self.hand_over(call, 0, u64::MAX, true);
        let submitted = self.machine.submit(call.file, u64::MAX);
        self.wait_for_file(call, submitted);
    }

    /// The dirty pages of a file that was just made are written and waited for, and the journal is committed.
    pub(super) fn make_durable(&mut self, call: &mut Call) {
        self.write_all_out(call);
        let fixed = self.end_sync(call, SyncEnd::Commit, false);
        self.occupy(call, 0.0, fixed);
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
            submitted = self.begin_range(call, self.range(event));
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
        if event.returned < 0 || self.in_memory(call) {
            return;
        }
        self.begin_range(call, self.range(event));
        let page = call.constants.page;
        let last = event.offset.saturating_add(event.requested);
        // The page at the end of the file is a whole one.
        let all = event.requested == 0 || last >= self.machine.cache.size(call.file);
        let end = if all { u64::MAX } else { last / page };
        let in_flight = self.machine.in_flight_before(call.file);
        self.machine.cache.evict(call.file, event.offset.div_ceil(page), end, in_flight);
    }

    /// The pages of a call's range.
    fn range(&self, event: &Event) -> (u64, u64) {
        let page = self.constants.page;
        let end = match event.requested {
            0 => u64::MAX,
            length => event.offset.saturating_add(length).div_ceil(page),
        };
        (event.offset / page, end)
    }

    /// Begins to write back the dirty pages of the call's file from `first` up to `end`, and waits until the
    /// device's queue has taken them; how many.
    pub(super) fn begin_range(&mut self, call: &mut Call, (first, end): (u64, u64)) -> u64 {
        self.hand_over(call, first, end, false);
        let submitted = self.submit_range(call.file, first, end);
        let device = &self.machine.devices[call.device];
        if submitted > 0 && device.queued_pages() > device.queue {
            let until = device.taken_at();
            call.spent[Cause::Queue] += (until - call.at).max(0.0);
            self.wait_until(call, until);
        }
        submitted
    }

    /// The call waits for the device until then, in seconds.
    pub(super) fn wait_until(&mut self, call: &mut Call, until: f64) {
        call.at = until.max(call.at).min(call.until);
        self.machine.advance(call.at);
    }

    /// The dirty pages of a file from `first` up to `end` are written back, and those that share a folio with
    /// them; how many.
    pub(super) fn submit_range(&mut self, file: u32, first: u64, end: u64) -> u64 {
        let inode = self.machine.cache.file_mut(file);
        let (first, end) = inode.folios.spread(first, end);
        let pages = inode.dirty.count(first, end);
        if pages == 0 {
            return 0;
        }
        inode.cursor = first;
        self.machine.submit(file, pages)
    }

    /// Handing the dirty pages of the call's file from `first` up to `end` to the device takes the caller
    /// time for each folio and for each request (`mpage_prepare_extent_to_map`,
    /// `mpage_map_and_submit_extent`, 6.18); that for the first of each is part of the latency. If it waits
    /// afterwards, the device begins with the first full request of a run of pages, and what is handed over
    /// meanwhile takes no time of its own.
    fn hand_over(&mut self, call: &mut Call, first: u64, end: u64, waits: bool) {
        let &Timing { request, folio, seek, write, .. } = self.timing(call);
        let pieces = self.machine.cache.pieces(call.file, first, end);
        call.runs += pieces.requests;
        let [requests, all] = [pieces.requests, pieces.folios].map(|count| count.saturating_sub(1) as f64);
        let later = pieces.folios.saturating_sub(pieces.requests * FULL_REQUEST) as f64;
        let later = if waits { later } else { 0.0 };
        let folios = if later * folio > 0.0 {
            let pages = self.machine.cache.file(call.file).dirty.count(first, end) as f64;
            let transfer = pages * call.constants.page as f64 / write;
            all - later.min(transfer * later / all / folio)
        } else {
            all
        };
        call.work.requests += requests;
        call.work.handed += folios;
        call.work.seeks += requests;
        let spent = requests * request + folios * folio;
        call.spent[Cause::Transfer] += spent;
        call.spent[Cause::Seek] += requests * seek;
        self.wait_until(call, call.at + spent + requests * seek);
    }

    /// sync and syncfs: every dirty file, of one device or of all that were written to.
    pub(super) fn sync_all(&mut self, call: &mut Call, only: Option<usize>) {
        call.spend_call(call.constants.call);
        let mut until = call.at;
        let before = call.spent[Cause::Transfer];
        let mut last = Vec::new();
        let all = 0..self.machine.devices.len();
        let wanted = |machine: &Machine, at: usize| match only {
            Some(only) => only == at && !machine.devices[at].traits.is_in_memory,
            None => machine.devices[at].changed > 0,
        };
        for device in all.clone().filter(|at| wanted(&self.machine, *at)).collect::<Vec<_>>() {
            let mut submitted = 0;
            for file in self.machine.dirty_files(device) {
                submitted += self.machine.submit(file, u64::MAX);
                last.push(file);
            }
            self.machine.drain(device);
            let busy = &self.machine.devices[device];
            if busy.in_flight > 0 {
                let begin = self.transfer_begins(call, device, busy.left() as u64 > submitted);
                until = until.max(begin + busy.left() / busy.speed());
            }
            if submitted > 0 {
                until += self.latency(call);
            }
        }
        let early = until > call.until;
        call.spent[Cause::Transfer] = before + (until - call.at);
        self.wait_until(call, until);
        let own = call.device;
        for device in all.filter(|at| wanted(&self.machine, *at)).collect::<Vec<_>>() {
            call.device = device;
            let commits = self.machine.devices[device].changed == self.machine.devices[device].transaction;
            let end = if commits { SyncEnd::Commit } else { SyncEnd::Flush };
            let fixed = self.end_sync(call, end, false);
            if commits {
                // Every file's changes are on the device.
                self.machine.commit(device);
            }
            self.occupy(call, 0.0, fixed);
        }
        call.device = own;
        if early {
            // When sync returns, all is written.
            last.into_iter().for_each(|file| self.machine.complete(file));
        }
    }

    /// When the device begins with what a call has just submitted, in seconds. The machine may be ahead of
    /// the call: of one that takes long is told only when it is over, and time goes on until then.
    pub(super) fn transfer_begins(&self, call: &Call, device: usize, behind_others: bool) -> f64 {
        let free = if behind_others { self.machine.now } else { self.machine.devices[device].occupied };
        free.max(call.at)
    }

    /// Latency of a wait for data that were submitted just before, without the transfer, in seconds.
    pub(super) fn latency(&self, call: &mut Call) -> f64 {
        call.work.latencies += 1.0;
        let latency = self.timing(call).latency;
        call.spent[Cause::Transfer] += latency;
        latency + self.wake(call, Cause::Transfer)
    }

    /// What the call's first wait takes longer since the device was idle before, in seconds, booked under the
    /// cause of the wait.
    pub(super) fn wake(&self, call: &mut Call, cause: Cause) -> f64 {
        let idle = std::mem::take(&mut call.surcharge.idle);
        call.work.idle += idle;
        let wake = idle * self.timing(call).idle;
        call.spent[cause] += wake;
        wake
    }

    /// Waits until what the call's file has in flight is written, at the rate of synchronous transfers;
    /// `submitted` pages of it were submitted just now.
    pub(super) fn wait_for_file(&mut self, call: &mut Call, submitted: u64) {
        let pages = self.machine.in_flight_before(call.file);
        if pages > 0 {
            let &Timing { write, writeback, queue, .. } = self.timing(call);
            let bytes = (pages * call.constants.page) as f64 * self.machine.devices[call.device].density();
            // `ext4_writepages` hands over so much at a time; while the device writes it, the next is prepared.
            // What follows, and what the queue does not hold at once, is written as fast as the flusher's.
            let alone = bytes.min(queue).min((BATCH * call.constants.page) as f64);
            let queued = write.max(writeback);
            let transfer = alone / write + (bytes - alone) / queued;
            call.work.transferred += if queued > write { alone } else { bytes };
            let begins = self.transfer_begins(call, call.device, pages > submitted);
            call.spent[Cause::Queue] += begins - call.at;
            call.spent[Cause::Transfer] += transfer;
            let done = begins + transfer;
            let device = &mut self.machine.devices[call.device];
            device.occupied = device.occupied.max(done.min(call.until));
            // What was submitted before is on its way: its latency is over by now.
            let until = done + if submitted > 0 { self.latency(call) } else { 0.0 };
            self.wait_until(call, until);
            self.machine.complete(call.file);
        }
    }

    /// Has the device to itself for `transfer` seconds, after the transfers before it; then `fixed` more,
    /// which are booked.
    pub(super) fn occupy(&mut self, call: &mut Call, transfer: f64, fixed: f64) {
        let device = &mut self.machine.devices[call.device];
        let free = device.occupied.max(call.at);
        device.occupied = (free + transfer).min(call.until.max(free));
        call.spent[Cause::Queue] += free - call.at;
        call.spent[Cause::Transfer] += transfer;
        self.wait_until(call, free + transfer + fixed);
    }
}
