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

use std::sync::Arc;

use cawl_wire::{Event, Op, flag};

use super::super::cache::Source;
use super::nearby::LAST;
use super::sync::known;
use super::{Call, Constants, Kernel};
use crate::call::{cuts_off, is_file_read, is_synchronous};
use crate::cause::Cause;
use crate::filesystem::FilesystemKind;
use crate::profile::{
    CachePolicy, DeviceConstants, HostProfile, Measured, MemoryConstants, NetworkConstants,
};
use crate::units::{Nanos, Rate};

/// A way over the network, in seconds and bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    policy: CachePolicy,
    /// Of a round trip that writes, and one that reads.
    latency: f64,
    read_latency: f64,
    /// Of a byte: in requests one after the other, in several at a time, and read.
    write_byte: f64,
    flush_byte: f64,
    read_byte: f64,
    /// Most bytes of a request.
    request: u64,
    read_request: u64,
    in_flight: f64,
    /// Dirty pages in a row that are sent by the call which completes them.
    push: Option<u64>,
    close_flushes: bool,
    open_keeps: bool,
    reads_partial: bool,
    open: f64,
    create: f64,
    close: f64,
    commit: f64,
    unlink: f64,
    rename: f64,
    truncate: f64,
    drop_page: f64,
    activate: f64,
    /// What makes data durable that the server has: of an fsync after writes, of one without, of a
    /// synchronous write.
    fsync: f64,
    flush: f64,
    sync_call: f64,
}

/// A way over the network, and what copying into its page cache takes.
#[derive(Clone, Debug)]
pub(super) struct Far {
    network: Network,
    /// Not the machine's: in the place of these while a call lasts.
    constants: Constants,
}

impl Network {
    /// Round trips that a call waits for one after the other. With O_DIRECT, a client that has a cache sends all
    /// its requests at once (`fuse_direct_IO`, `nfs_file_direct_write`, 6.18).
    fn trips(&self, requests: u64, event: &Event) -> u64 {
        let together = event.has(flag::DIRECT) && self.policy != CachePolicy::None;
        let together = together && (self.policy != CachePolicy::ReadOnly || is_file_read(event));
        if together { requests.div_ceil(self.in_flight as u64) } else { requests }
    }

    /// What moving a page to the active list takes, in seconds.
    pub(super) fn activate(&self) -> f64 {
        self.activate
    }
}

impl Far {
    /// The way to a device's files, if they are elsewhere.
    pub(super) fn of(profile: &HostProfile, device: &DeviceConstants) -> Option<Far> {
        let network = device.network.as_ref()?;
        let mut constants = Constants::of(&seen_through(profile, network));
        if let Some(cached) = network.cached {
            // Pages that are not in the last cache, as those were that were measured.
            let hot = 1.0 / outside(cached, network.near).value.get();
            let beyond = (hot - constants.hot_byte) * constants.page as f64;
            constants.fresh_page = (constants.fresh_page - beyond).max(0.0);
            (constants.hot_byte, constants.hot_large_byte) = (hot, hot);
        }
        let page = constants.page;
        let latency = known(&device.latency);
        let trip = |time: &Option<Measured<Nanos>>, else_trips: f64| {
            time.as_ref().map_or(else_trips * latency, |time| time.value.as_seconds())
        };
        let network = Network {
            policy: network.policy,
            latency,
            read_latency: trip(&device.read_latency, 1.0),
            write_byte: 1.0 / device.write.value.get(),
            flush_byte: 1.0 / device.writeback.value.get(),
            read_byte: 1.0 / device.read.value.get(),
            request: network.request.0.max(1),
            read_request: network.read_request.unwrap_or(network.request).0.max(1),
            in_flight: f64::from(network.in_flight.max(1)),
            push: network.push.map(|bytes| bytes.0.div_ceil(page).max(1)),
            close_flushes: network.close_flushes,
            open_keeps: network.open_keeps,
            reads_partial: network.reads_partial,
            open: trip(&network.open, 1.0),
            create: trip(&network.create, 2.0),
            close: trip(&network.close, 1.0),
            commit: trip(&network.commit, 1.0),
            unlink: trip(&network.unlink, 1.0),
            rename: trip(&network.rename, 1.0),
            truncate: trip(&network.truncate, 1.0),
            drop_page: known(&network.drop_page),
            activate: known(&network.activate),
            fsync: device.fsync.value.as_seconds(),
            flush: device.flush.unwrap_or(device.fsync).value.as_seconds(),
            sync_call: device.sync_call.value.as_seconds(),
        };
        Some(Far { network, constants })
    }

    /// What a run of pages costs the flusher that lies apart from the one before, in seconds: a request of
    /// its own, beside others.
    pub(super) fn jump(&self) -> f64 {
        self.network.latency / self.network.in_flight
    }
}

/// The profile as a call on the mount meets it: its filesystem enters pages one by one, and has none of what
/// the machine's own was measured to cost.
fn seen_through(profile: &HostProfile, network: &NetworkConstants) -> HostProfile {
    let mut seen = profile.clone();
    if let Some(call) = network.call {
        let calls = &mut seen.calls;
        calls.write = call;
        for cost in [
            &mut calls.folio,
            &mut calls.inode,
            &mut calls.jump,
            &mut calls.clean,
            &mut calls.block,
            &mut calls.block_far,
        ] {
            *cost = None;
        }
        seen.memory.folio = None;
    }
    if let Some(cached) = network.cached {
        // Measured with data in the processor's cache: what comes from memory takes as much longer as there.
        let slower = profile.memory.hot_part();
        seen.memory.cached = cached.map(|rate| Rate::per_second(rate.get() * slower));
        (seen.memory.hot, seen.memory.hot_large, seen.memory.near) = (Some(cached), None, network.near);
    }
    if let Some(fresh) = network.fresh {
        // Measured with data in the processor's cache, too; it has the copy in it, which is counted apart.
        let copy = |memory: &MemoryConstants| 1.0 / memory.cached.value.get();
        let hot = copy(&seen.memory) * seen.memory.hot_part();
        let from_memory = copy(&seen.memory) - hot;
        seen.memory.fresh = fresh.map(|rate| Rate::per_second(1.0 / (1.0 / rate.get() + from_memory)));
    }
    if let Some(read) = network.read {
        seen.memory.read = Some(outside(read, network.read_near));
        seen.memory.read_hot = Some(network.read_near.unwrap_or(read));
        (seen.calls.read_folio, seen.calls.read_folio_far) = (None, None);
    }
    seen.calls.read = network.read_call.or(seen.calls.read);
    seen.kernel.folio = seen.kernel.page;
    seen
}

/// The rate of pages outside the processor's caches, by that of pages in its last one and near its core.
fn outside(last: Measured<Rate>, near: Option<Measured<Rate>>) -> Measured<Rate> {
    let near = near.map_or(0.0, |near| 1.0 / near.value.get());
    let byte = |rate: Rate| 1.0 / rate.get();
    last.map(|rate| match byte(rate) - near {
        longer if near > 0.0 && longer > 0.0 => Rate::per_second(1.0 / (near + longer / LAST)),
        _ => rate,
    })
}

impl Kernel {
    /// The way to the files of the call's device, if they are elsewhere.
    #[inline]
    pub(super) fn network(&self, device: usize) -> Option<Network> {
        self.networks.get(device)?.as_ref().map(|far| far.network)
    }

    #[inline]
    pub(super) fn is_far(&self, device: usize) -> bool {
        self.networks.get(device).is_some_and(Option::is_some)
    }

    /// A call on a file that is elsewhere: copying costs what it does there for as long.
    pub(super) fn call_over_network(&mut self, call: &mut Call, event: &Event) {
        let networks = Arc::clone(&self.networks);
        let Some(Some(far)) = networks.get(call.device) else { return };
        let own = std::mem::replace(&mut self.constants, far.constants.clone());
        call.folio = self.constants.folio;
        if !self.far_call(call, event, &far.network) {
            self.near_call(call, event);
        }
        self.constants = own;
    }

    /// A write of `bytes` at `offset`, in requests of `most` bytes at most.
    pub(super) fn far_write(
        &mut self,
        call: &mut Call,
        event: &Event,
        network: &Network,
        (offset, bytes): (u64, u64),
        most: u64,
    ) {
        let hot = bytes <= self.constants.hot_most;
        let past = event.has(flag::DIRECT) || network.policy <= CachePolicy::ReadOnly;
        if !past && network.policy == CachePolicy::WriteBack {
            self.buffered_write(call, offset, bytes, hot);
            if is_synchronous(event) {
                self.far_flush(call, network);
                call.work.syncs += 1.0;
                self.travel(call, 0.0, network.sync_call);
            } else {
                self.push(call, network, offset, bytes);
            }
            return;
        }
        self.lock(call, false);
        let page = self.constants.page;
        let last = offset.saturating_add(bytes);
        let (first, end) = (self.constants.page_of(offset), self.constants.pages_up_to(last));
        if self.machine.cache.file(call.file).dirty.count(first, end) > 0 {
            self.far_flush(call, network);
        }
        let requests = if past {
            self.machine.cache.drop_range(call.file, first, end);
            bytes.div_ceil(network.request.min(most))
        } else {
            self.copy_through(call, (offset, last), hot);
            // A request has whole pages but for its ends (`fuse_wr_pages`).
            (end - first).div_ceil((network.request.min(most) / page).max(1))
        };
        let inode = self.machine.cache.file_mut(call.file);
        inode.size = inode.size.max(last);
        if network.policy == CachePolicy::WriteBack && self.is_fuse(call) {
            self.untimed.put(call.file, ());
        }
        call.work.transferred += bytes as f64;
        let trips = network.trips(requests, event) as f64;
        call.work.latencies += trips;
        self.travel(call, bytes as f64 * network.write_byte, trips * network.latency);
        self.unlock(call);
        if is_synchronous(event) && !past {
            call.work.syncs += 1.0;
            self.travel(call, 0.0, network.sync_call);
        }
    }

    /// Copies into the cache what goes to the server at once. A page of which only a part is known is not
    /// cached (`fuse_fill_write_pages`, 6.18).
    fn copy_through(&mut self, call: &mut Call, (offset, last): (u64, u64), hot: bool) {
        let (first, end) = (self.constants.page_of(offset), self.constants.pages_up_to(last));
        let constants = &self.constants;
        let byte = if hot { constants.hot_byte } else { constants.copy_byte };
        let copying = (last - offset) as f64 * byte;
        let inode = self.machine.cache.file(call.file);
        let fresh = (end - first).saturating_sub(inode.clean.count(first, end));
        let new_pages = fresh as f64 * self.constants.fresh_page;
        call.pass(copying + new_pages);
        call.spent[Cause::Copy] += copying;
        call.spent[Cause::NewPages] += new_pages;
        let whole = self.constants.page_of(last).max(first);
        let first = first + u64::from(!self.constants.begins_page(offset));
        if first < whole {
            self.machine.cache.read(call.file, first, whole, Source::Program);
        }
    }

    /// Requests that a call waits for: `transfer` seconds of the link, behind what others send, and `trips`
    /// seconds of round trips.
    fn travel(&mut self, call: &mut Call, transfer: f64, trips: f64) {
        let device = &mut self.machine.devices[call.device];
        let free = device.occupied.max(call.at);
        device.occupied = (free + transfer).min(call.until.max(free));
        call.spent.add_to(Cause::Queue, free - call.at);
        call.spent[Cause::Network] += transfer + trips;
        self.wait_until(call, free + transfer + trips);
    }

    /// A page that is written in part comes from the server first.
    pub(super) fn far_edge(&mut self, call: &mut Call, network: &Network) {
        if network.reads_partial {
            let cost = network.read_latency + self.constants.page as f64 * network.read_byte;
            call.pass(cost);
            call.spent[Cause::PartialPage] += cost;
            self.machine.advance(call.at);
        }
    }

    /// The call sends the rows of dirty pages that it has made long enough, and waits.
    fn push(&mut self, call: &mut Call, network: &Network, offset: u64, bytes: u64) {
        let Some(least) = network.push else { return };
        let last = offset.saturating_add(bytes);
        let (first, end) = (self.constants.page_of(offset), self.constants.pages_up_to(last));
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
            let submitted = self.submit_range(call.file, row.0, row.1);
            self.wait_for_server(call, network, submitted, 1);
        }
    }

    /// Sends what is dirty of the call's file and waits until the server has all of it. True if there was
    /// anything.
    fn far_flush(&mut self, call: &mut Call, network: &Network) -> bool {
        let runs = self.machine.cache.pieces(call.file, 0, u64::MAX).requests;
        let submitted = self.machine.submit(call.file, u64::MAX);
        self.wait_for_server(call, network, submitted, runs) || submitted > 0
    }

    /// Waits until the server has what is on its way of the call's file; of it, `submitted` pages in `runs`
    /// rows were sent just now. Round trips of requests overlap as far as they are under way together.
    fn wait_for_server(&mut self, call: &mut Call, network: &Network, submitted: u64, runs: u64) -> bool {
        let pages = self.machine.in_flight_before(call.file);
        if pages == 0 {
            return false;
        }
        let bytes = (pages * self.constants.page) as f64;
        let transfer = bytes * network.flush_byte;
        let begins = self.transfer_begins(call, call.device, pages > submitted);
        let apart = runs.saturating_sub(1) as f64 * network.latency / network.in_flight;
        let latency = if submitted > 0 { network.latency } else { 0.0 };
        call.spent.add_to(Cause::Queue, begins - call.at);
        call.spent[Cause::Network] += transfer + apart + latency;
        let done = begins + transfer;
        let device = &mut self.machine.devices[call.device];
        device.occupied = device.occupied.max(done.min(call.until));
        self.wait_until(call, done + apart + latency);
        self.machine.complete(call.file);
        true
    }

    /// fsync, fdatasync and msync: what is dirty, then what makes it durable on the server.
    fn far_sync(&mut self, call: &mut Call, network: &Network) {
        call.spend_call(self.constants.call);
        let is_changed = self.far_flush(call, network) | self.untimed.take(&call.file).is_some();
        let (count, fixed) = match is_changed {
            true => (&mut call.work.fsyncs, network.fsync),
            false => (&mut call.work.flushes, network.flush),
        };
        *count += 1.0;
        self.travel(call, 0.0, fixed);
    }

    /// open, fopen: the server is asked, and what is clean is dropped if it may have changed there.
    fn far_open(&mut self, call: &mut Call, event: &Event, network: &Network) {
        let is_new = event.has(flag::CREATED);
        call.spend_empty_call(self.constants.open);
        // A file that is cut off is asked for twice, too (`handle_truncate`, 6.18); where a filesystem tells no
        // birth of a file, a new one looks the same.
        let trips = match (is_new, cuts_off(event)) {
            (true, _) => network.create,
            (false, true) => network.open + network.truncate,
            (false, false) => network.open,
        };
        self.travel(call, 0.0, trips);
        if !network.open_keeps {
            self.far_drop(call, network);
        }
        // What is not in the cache now is on the server.
        self.machine.cache.file_mut(call.file).told |= is_new || !network.open_keeps;
        self.dropping(call, network, |kernel, call| kernel.opened(call, event));
    }

    /// Does what takes pages of the call's file out of the cache, each of which takes time.
    fn dropping(&mut self, call: &mut Call, network: &Network, does: impl FnOnce(&mut Kernel, &Call)) {
        let before = self.machine.cache.cached(call.file);
        does(self, call);
        let gone = before.saturating_sub(self.machine.cache.cached(call.file)) as f64;
        if gone > 0.0 {
            call.pass(gone * network.drop_page);
            call.spent[Cause::FreedPages] += gone * network.drop_page;
        }
    }

    /// What is cached of the call's file goes; FUSE writes each dirty page of it alone and waits for that
    /// (`invalidate_inode_pages2`, `fuse_launder_folio`, 6.18).
    fn far_drop(&mut self, call: &mut Call, network: &Network) {
        if self.is_fuse(call) {
            self.wait_for_server(call, network, 0, 1);
            let pages = self.machine.submit(call.file, u64::MAX) as f64;
            let bytes = pages * self.constants.page as f64;
            self.travel(call, bytes * network.write_byte, pages * network.latency);
            self.machine.complete(call.file);
        } else {
            self.far_flush(call, network);
        }
        self.dropping(call, network, |kernel, call| kernel.machine.cache.evict(call.file, 0, u64::MAX, 0));
        self.read_pages.forget(call.file, 0, u64::MAX);
    }

    fn is_fuse(&self, call: &Call) -> bool {
        self.machine.devices[call.device].filesystem == FilesystemKind::Fuse
    }

    /// unlink, remove, and rename over another file.
    fn far_name(&mut self, call: &mut Call, event: &Event, network: &Network) {
        let trip = if event.op == Op::Rename { network.rename } else { network.unlink };
        self.travel(call, 0.0, trip);
        if event.takes_last_link() {
            self.read_pages.forget(call.file, 0, u64::MAX);
            self.lose(call);
            if !event.has(flag::HELD) {
                self.dropping(call, network, |kernel, call| kernel.truncate(call.file, 0));
            }
        }
    }

    /// truncate, ftruncate. NFS sends what is dirty before (`nfs_setattr`, 6.18), FUSE drops what is left
    /// afterwards if the length is another one (`fuse_do_setattr`).
    fn far_truncate(&mut self, call: &mut Call, event: &Event, network: &Network) {
        let is_fuse = self.is_fuse(call);
        if !is_fuse {
            self.far_flush(call, network);
        }
        self.travel(call, 0.0, network.truncate);
        let changes = self.machine.cache.size(call.file) != event.offset;
        self.dropping(call, network, |kernel, call| kernel.truncate(call.file, event.offset));
        self.read_pages.forget(call.file, self.constants.pages_up_to(event.offset), u64::MAX);
        if is_fuse && changes {
            self.far_drop(call, network);
        }
    }

    /// close, after what a stream still had was written.
    fn far_close(&mut self, call: &mut Call, network: &Network) {
        if network.close_flushes && network.policy == CachePolicy::WriteBack {
            let is_changed = self.far_flush(call, network) | self.untimed.take(&call.file).is_some();
            self.travel(call, 0.0, if is_changed { network.commit } else { 0.0 });
        }
        self.travel(call, 0.0, network.close);
    }

    /// read and relatives where nothing is cached.
    fn far_read(&mut self, call: &mut Call, event: &Event, network: &Network) {
        call.spend_empty_call(self.constants.read_call);
        let bytes = event.returned.max(0) as u64;
        let requests = bytes.div_ceil(network.read_request).max(1);
        let trips = network.trips(requests, event) as f64;
        self.travel(call, bytes as f64 * network.read_byte, trips * network.read_latency);
    }

    /// A call on a file that is elsewhere. False if it is like that of any device.
    fn far_call(&mut self, call: &mut Call, event: &Event, network: &Network) -> bool {
        match event.op {
            Op::Fsync | Op::Fdatasync | Op::Msync => self.far_sync(call, network),
            Op::Open | Op::StreamOpen => self.far_open(call, event, network),
            Op::Unlink | Op::Rename => self.far_name(call, event, network),
            Op::Truncate => self.far_truncate(call, event, network),
            Op::Close => {
                call.spend_empty_call(self.constants.close);
                self.far_close(call, network);
            }
            Op::StreamClose => {
                self.stream_call(call, event);
                self.far_close(call, network);
            }
            Op::Read | Op::Pread | Op::StreamRead
                if network.policy == CachePolicy::None || event.has(flag::DIRECT) =>
            {
                self.far_read(call, event, network);
            }
            _ => return false,
        }
        true
    }
}
