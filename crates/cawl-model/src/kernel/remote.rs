//! `netfs`: files that are elsewhere, behind a network or in another process (NFS, CIFS, FUSE).
//!
//! The law (Hicks, "Improving I/O Bandwidth With Cray DVS Client-Side Caching"; fs/fuse/file.c and
//! fs/nfs/file.c, 6.18): a request takes a round trip and its bytes, and carries no more than the server
//! takes at a time. What the page cache keeps is a matter of policy. *None*, and *read-only* for writes: a
//! call makes its requests one after the other and waits for each. *Write-through*: the same, and the pages
//! are copied into the cache first, so that it is never faster on writes. *Write-back*: a call copies, and
//! reads first what it writes in part and is not there; dirty limits, pauses and the flusher are those of any
//! device, with the bounds of its own `bdi`. What fsync, close and the flusher send goes in several requests
//! at a time: their round trips overlap, their bytes do not. Close sends what is dirty, open drops what is
//! clean, so that who opens a file finds what was there when the writer closed it (close-to-open).

use cawl_wire::{Event, Op, flag};

use super::super::cache::Source;
use super::{Call, Kernel};
use crate::call::{cuts_off, is_synchronous};
use crate::cause::Cause;
use crate::constants::Remote;
use crate::profile::CachePolicy;
use crate::units::Seconds;

impl Kernel {
    /// A write of `bytes` at `offset`, in requests of `most` bytes at most.
    pub(super) fn remote_write(
        &mut self,
        call: &mut Call,
        event: &Event,
        remote: &Remote,
        (offset, bytes): (u64, u64),
        most: u64,
    ) {
        let hot = bytes <= call.constants.hot_most;
        let past = event.has(flag::DIRECT) || remote.policy <= CachePolicy::ReadOnly;
        if !past && remote.policy == CachePolicy::WriteBack {
            self.buffered_write(call, offset, bytes, hot);
            if is_synchronous(event) {
                self.remote_flush(call, remote);
                call.work.syncs += 1.0;
                self.machine.travel(call, Seconds::ZERO, remote.sync_call);
            } else {
                self.push(call, remote, offset, bytes);
            }
            return;
        }
        self.writers.lock(&mut self.machine, call, false);
        let page = call.constants.page;
        let last = offset.saturating_add(bytes);
        let (first, end) = call.constants.pages_of(offset, last);
        if self.machine.cache.file(call.file).dirty.count(first, end) > 0 {
            self.remote_flush(call, remote);
        }
        let requests = if past {
            self.machine.cache.drop_range(call.file, first, end);
            bytes.div_ceil(remote.request.min(most))
        } else {
            self.copy_through(call, (offset, last), hot);
            // A request has whole pages but for its ends (`fuse_wr_pages`).
            (end - first).div_ceil((remote.request.min(most) / page).max(1))
        };
        let inode = self.machine.cache.file_mut(call.file);
        inode.size = inode.size.max(last);
        if remote.policy == CachePolicy::WriteBack && self.launders_pages(call) {
            self.machine.cache.file_mut(call.file).untimed = true;
        }
        call.work.transferred += bytes as f64;
        let trips = remote.trips(requests, event) as f64;
        call.work.latencies += trips;
        self.machine.travel(call, bytes as f64 * remote.write_byte, trips * remote.latency);
        call.unlock();
        if is_synchronous(event) && !past {
            call.work.syncs += 1.0;
            self.machine.travel(call, Seconds::ZERO, remote.sync_call);
        }
    }

    /// Copies into the cache what goes to the server at once. A page of which only a part is known is not
    /// cached (`fuse_fill_write_pages`, 6.18).
    fn copy_through(&mut self, call: &mut Call, (offset, last): (u64, u64), hot: bool) {
        let (first, end) = call.constants.pages_of(offset, last);
        let constants = &call.constants;
        let byte = if hot { constants.hot_byte } else { constants.copy_byte };
        let copying = (last - offset) as f64 * byte;
        let inode = self.machine.cache.file(call.file);
        let fresh = (end - first).saturating_sub(inode.clean.count(first, end));
        let new_pages = fresh as f64 * call.constants.fresh_page;
        call.pass(copying + new_pages);
        call.spent[Cause::Copy] += copying;
        call.spent[Cause::NewPages] += new_pages;
        let whole = call.constants.page_of(last).max(first);
        let first = first + u64::from(!call.constants.begins_page(offset));
        if first < whole {
            self.machine.cache.read(call.file, first, whole, Source::Program);
        }
    }

    /// The call sends the rows of dirty pages that it has made long enough, and waits.
    fn push(&mut self, call: &mut Call, remote: &Remote, offset: u64, bytes: u64) {
        let Some(least) = remote.push else { return };
        let last = offset.saturating_add(bytes);
        let (first, end) = call.constants.pages_of(offset, last);
        // A row that ended before was sent when it was this long.
        let dirty = &self.machine.cache.file(call.file).dirty;
        let mut row = (first, first);
        for (from, to) in dirty.runs_between(first.saturating_sub(least), end.saturating_add(least)) {
            row = if row.1 == from { (row.0, to) } else { (from, to) };
            if row.1 >= end {
                break;
            }
        }
        if row.1 - row.0 >= least {
            let submitted = self.machine.submit_range(call.file, row.0, row.1);
            self.wait_for_server(call, remote, submitted, 1);
        }
    }

    /// Sends what is dirty of the call's file and waits until the server has all of it. True if there was
    /// anything.
    fn remote_flush(&mut self, call: &mut Call, remote: &Remote) -> bool {
        let runs = self.machine.cache.pieces(call.file, 0, u64::MAX).requests;
        let submitted = self.machine.submit(call.file, u64::MAX);
        self.wait_for_server(call, remote, submitted, runs) || submitted > 0
    }

    /// Waits until the server has what is on its way of the call's file; of it, `submitted` pages in `runs`
    /// rows were sent just now. Round trips of requests overlap as far as they are under way together.
    fn wait_for_server(&mut self, call: &mut Call, remote: &Remote, submitted: u64, runs: u64) -> bool {
        let pages = self.machine.in_flight_before(call.file);
        if pages == 0 {
            return false;
        }
        let bytes = (pages * call.constants.page) as f64;
        let transfer = bytes * remote.flush_byte;
        let begins = self.machine.transfer_begins(call, call.device, pages > submitted);
        let apart = runs.saturating_sub(1) as f64 * remote.latency / remote.in_flight;
        let latency = if submitted > 0 { remote.latency } else { Seconds::ZERO };
        call.spent.add_to(Cause::Queue, begins - call.at);
        call.spent[Cause::Network] += transfer + apart + latency;
        let done = begins + transfer;
        let device = self.machine.device_mut(call);
        device.occupied = device.occupied.max(done.min(call.until));
        self.machine.wait_until(call, done + apart + latency);
        self.machine.complete(call.file);
        true
    }

    /// The call's file has a new time that the server does not know yet (`fuse_flush_times`); it is told now.
    fn take_untimed(&mut self, call: &Call) -> bool {
        std::mem::take(&mut self.machine.cache.file_mut(call.file).untimed)
    }

    /// fsync, fdatasync and msync: what is dirty, then what makes it durable on the server.
    pub(super) fn remote_sync(&mut self, call: &mut Call, remote: &Remote) {
        call.spend_call(call.constants.call);
        let is_changed = self.remote_flush(call, remote) | self.take_untimed(call);
        let (count, fixed) = match is_changed {
            true => (&mut call.work.fsyncs, remote.fsync),
            false => (&mut call.work.flushes, remote.flush),
        };
        *count += 1.0;
        self.machine.travel(call, Seconds::ZERO, fixed);
    }

    /// open, fopen: the server is asked, and what is clean is dropped if it may have changed there.
    pub(super) fn remote_open(&mut self, call: &mut Call, event: &Event, remote: &Remote) {
        let is_new = event.has(flag::CREATED);
        call.spend(Cause::Call, call.constants.open);
        // A file that is cut off is asked for twice, too (`handle_truncate`, 6.18); where a filesystem tells
        // no birth of a file, a new one looks the same.
        let trips = match (is_new, cuts_off(event)) {
            (true, _) => remote.create,
            (false, true) => remote.open + remote.truncate,
            (false, false) => remote.open,
        };
        self.machine.travel(call, Seconds::ZERO, trips);
        if !remote.open_keeps {
            self.remote_drop(call, remote);
        }
        // What is not in the cache now is on the server.
        self.machine.cache.file_mut(call.file).told |= is_new || !remote.open_keeps;
        self.dropping(call, remote, |kernel, call| kernel.opened(call, event));
    }

    /// Does what takes pages of the call's file out of the cache, each of which takes time.
    fn dropping(&mut self, call: &mut Call, remote: &Remote, does: impl FnOnce(&mut Kernel, &Call)) {
        let before = self.machine.cache.cached(call.file);
        does(self, call);
        let gone = before.saturating_sub(self.machine.cache.cached(call.file)) as f64;
        if gone > 0.0 {
            call.spend(Cause::FreedPages, gone * remote.drop_page);
        }
    }

    /// What is cached of the call's file goes; FUSE writes each dirty page of it alone and waits for that
    /// (`invalidate_inode_pages2`, `fuse_launder_folio`, 6.18).
    fn remote_drop(&mut self, call: &mut Call, remote: &Remote) {
        if self.launders_pages(call) {
            self.wait_for_server(call, remote, 0, 1);
            let pages = self.machine.submit(call.file, u64::MAX) as f64;
            let bytes = pages * call.constants.page as f64;
            self.machine.travel(call, bytes * remote.write_byte, pages * remote.latency);
            self.machine.complete(call.file);
        } else {
            self.remote_flush(call, remote);
        }
        self.dropping(call, remote, |kernel, call| kernel.machine.cache.evict(call.file, 0, u64::MAX, 0));
    }

    fn launders_pages(&self, call: &Call) -> bool {
        self.machine.devices[call.device].traits.launders_pages
    }

    /// A name goes, or is new.
    pub(super) fn remote_name(&mut self, call: &mut Call, event: &Event, remote: &Remote) {
        let trip = match event.op {
            Op::Rename | Op::Link => remote.rename,
            Op::Mkdir | Op::Symlink => remote.create,
            _ => remote.unlink,
        };
        self.machine.travel(call, Seconds::ZERO, trip);
        if event.takes_last_link() {
            self.lose(call);
            if !event.has(flag::HELD) {
                self.dropping(call, remote, |kernel, call| kernel.truncate(call.file, 0));
            }
        }
    }

    /// truncate, ftruncate. NFS sends what is dirty before (`nfs_setattr`, 6.18), FUSE drops what is left
    /// afterwards if the length is another one (`fuse_do_setattr`).
    pub(super) fn remote_truncate(&mut self, call: &mut Call, event: &Event, remote: &Remote) {
        let launders = self.launders_pages(call);
        if !launders {
            self.remote_flush(call, remote);
        }
        self.machine.travel(call, Seconds::ZERO, remote.truncate);
        let changes = self.machine.cache.size(call.file) != event.offset;
        self.dropping(call, remote, |kernel, call| kernel.truncate(call.file, event.offset));
        if launders && changes {
            self.remote_drop(call, remote);
        }
    }

    /// close, after what a stream still had was written.
    pub(super) fn remote_close(&mut self, call: &mut Call, remote: &Remote) {
        if remote.close_flushes && remote.policy == CachePolicy::WriteBack {
            let is_changed = self.remote_flush(call, remote) | self.take_untimed(call);
            self.machine.travel(call, Seconds::ZERO, if is_changed { remote.commit } else { Seconds::ZERO });
        }
        self.machine.travel(call, Seconds::ZERO, remote.close);
    }

    /// read and relatives where nothing is cached.
    pub(super) fn remote_read(&mut self, call: &mut Call, event: &Event, remote: &Remote) {
        call.spend(Cause::Call, call.constants.read_call);
        let bytes = event.returned.max(0) as u64;
        let requests = bytes.div_ceil(remote.read_request).max(1);
        let trips = remote.trips(requests, event) as f64;
        self.machine.travel(call, bytes as f64 * remote.read_byte, trips * remote.read_latency);
    }
}
