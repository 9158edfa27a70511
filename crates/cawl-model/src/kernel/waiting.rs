//! What it takes to hand pages to a device and to wait for it.
//!
//! The law: what must be on the device is submitted behind what is in flight already and waited for at the
//! device's rate: that of synchronous calls, or for what its queue does not hold at once, that of writeback
//! if it is higher. A wait for what was just submitted has the latency of a request. Transfers of several
//! tasks follow each other.
//!
//! A function here that returns a time has booked them under their causes.

use super::super::writeback::{BATCH, Device, Machine, Thresholds};
use super::Call;
use crate::cause::Cause;
use crate::constants::Timing;
use crate::units::{Pages, Seconds};

/// Most folios of a request (`BIO_MAX_VECS`).
const FULL_REQUEST: u64 = 256;

impl Device {
    /// Latency of a wait for data that were submitted just before, without the transfer.
    pub(super) fn latency(&self, call: &mut Call) -> Seconds {
        call.work.latencies += 1.0;
        let latency = self.timing.latency;
        call.spent[Cause::Transfer] += latency;
        latency + self.wake(call, Cause::Transfer)
    }

    /// What the call's first wait takes longer since the device was idle before, booked under the
    /// cause of the wait.
    pub(super) fn wake(&self, call: &mut Call, cause: Cause) -> Seconds {
        let idle = std::mem::take(&mut call.surcharge.idle);
        call.work.idle += idle;
        let wake = idle * self.timing.idle;
        call.spent[cause] += wake;
        wake
    }
}

impl Machine {
    /// The device of a call.
    #[inline]
    pub(super) fn device(&self, call: &Call) -> &Device {
        &self.devices[call.device]
    }

    #[inline]
    pub(super) fn device_mut(&mut self, call: &Call) -> &mut Device {
        &mut self.devices[call.device]
    }

    /// The least freerun of all domains.
    pub(super) fn freerun(&self) -> Pages {
        self.group.as_ref().map_or(Pages::INFINITY, Thresholds::freerun).min(self.global.freerun())
    }

    /// The call waits for the device until then.
    pub(super) fn wait_until(&mut self, call: &mut Call, until: Seconds) {
        call.at = until.max(call.at).min(call.until);
        self.advance(call.at);
    }

    /// When the device begins with what a call has just submitted. The machine may be ahead of
    /// the call: of one that takes long is told only when it is over, and time goes on until then. What the
    /// device wrote meanwhile, it wrote for the call, or before.
    pub(super) fn transfer_begins(&self, call: &Call, device: usize, behind_others: bool) -> Seconds {
        let device = &self.devices[device];
        let free =
            if behind_others { self.now } else { device.occupied.max(device.wrote_until.min(self.now)) };
        free.max(call.at)
    }

    /// Has the device to itself for a `transfer`, after those before it; then `fixed` more, which are booked.
    pub(super) fn occupy(&mut self, call: &mut Call, transfer: Seconds, fixed: Seconds) {
        let device = self.device_mut(call);
        let free = device.occupied.max(call.at);
        // A call that was observed to be over has had the device: that is done with what was before it.
        device.occupied = (free + transfer).min(call.until);
        call.spent[Cause::Queue] += free - call.at;
        call.spent[Cause::Transfer] += transfer;
        self.wait_until(call, free + transfer + fixed);
    }

    /// Requests that a call waits for: the `transfer` on the link, behind what others send, and the round
    /// `trips`.
    pub(super) fn travel(&mut self, call: &mut Call, transfer: Seconds, trips: Seconds) {
        let device = self.device_mut(call);
        let free = device.occupied.max(call.at);
        device.occupied = (free + transfer).min(call.until.max(free));
        call.spent.add_to(Cause::Queue, free - call.at);
        call.spent[Cause::Network] += transfer + trips;
        self.wait_until(call, free + transfer + trips);
    }

    /// Handing the dirty pages of the call's file from `first` up to `end` to the device takes the caller
    /// time for each folio and for each request (`mpage_prepare_extent_to_map`,
    /// `mpage_map_and_submit_extent`, 6.18); that for the first of each is part of the latency. If it waits
    /// afterwards, the device begins with the first full request of a run of pages, and what is handed over
    /// meanwhile takes no time of its own.
    pub(super) fn prepare(&mut self, call: &mut Call, first: u64, end: u64, waits: bool) {
        let &Timing { request, folio, seek, write, .. } = &self.device(call).timing;
        let pieces = self.cache.pieces(call.file, first, end);
        call.runs += pieces.requests;
        let [requests, all] = [pieces.requests, pieces.folios].map(|count| count.saturating_sub(1) as f64);
        let later = pieces.folios.saturating_sub(pieces.requests * FULL_REQUEST) as f64;
        let later = if waits { later } else { 0.0 };
        let folios = if later * folio > Seconds::ZERO {
            let pages = self.cache.file(call.file).dirty.count(first, end) as f64;
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

    /// The dirty pages of a file from `first` up to `end` are written back, and those that share a folio with
    /// them; how many.
    pub(super) fn submit_range(&mut self, file: u32, first: u64, end: u64) -> u64 {
        let inode = self.cache.file_mut(file);
        let (first, end) = inode.folios.spread(first, end);
        let pages = inode.dirty.count(first, end);
        if pages == 0 {
            return 0;
        }
        inode.cursor = first;
        self.submit(file, pages)
    }

    /// Begins to write back the dirty pages of the call's file from `first` up to `end`, and waits until the
    /// device's queue has taken them; how many.
    pub(super) fn begin_range(&mut self, call: &mut Call, (first, end): (u64, u64)) -> u64 {
        self.prepare(call, first, end, false);
        let submitted = self.submit_range(call.file, first, end);
        let device = self.device(call);
        if submitted > 0 && device.queued_pages() > device.queue {
            let until = device.taken_at();
            call.spent[Cause::Queue] += (until - call.at).max(Seconds::ZERO);
            self.wait_until(call, until);
        }
        submitted
    }

    /// Writes out the dirty pages of the call's file from `first` up to `end`, and waits for that.
    pub(super) fn write_out(&mut self, call: &mut Call, first: u64, end: u64) {
        let dirty = &self.cache.file(call.file).dirty;
        if dirty.pages() > 0 && dirty.count(first, end) > 0 {
            self.prepare(call, first, end, true);
            let submitted = self.submit_range(call.file, first, end);
            self.wait_for_file(call, submitted);
        }
    }

    /// The dirty pages of the call's file are written, and waited for.
    pub(super) fn write_all_out(&mut self, call: &mut Call) {
        self.prepare(call, 0, u64::MAX, true);
        let submitted = self.submit(call.file, u64::MAX);
        self.wait_for_file(call, submitted);
    }

    /// Waits until what the call's file has in flight is written, at the rate of synchronous transfers;
    /// `submitted` pages of it were submitted just now.
    pub(super) fn wait_for_file(&mut self, call: &mut Call, submitted: u64) {
        let pages = self.in_flight_before(call.file);
        if pages > 0 {
            let &Timing { write, writeback, queue, .. } = &self.device(call).timing;
            let bytes = (pages * call.constants.page) as f64 * self.device(call).density();
            // `ext4_writepages` hands over so much at a time; while the device writes it, the next is
            // prepared. What follows, and what the queue does not hold at once, is written as fast as the
            // flusher's.
            let alone = bytes.min(queue.as_f64()).min((BATCH * call.constants.page) as f64);
            let queued = write.max(writeback);
            let transfer = alone / write + (bytes - alone) / queued;
            call.work.transferred += if queued > write { alone } else { bytes };
            let begins = self.transfer_begins(call, call.device, pages > submitted);
            call.spent[Cause::Queue] += begins - call.at;
            call.spent[Cause::Transfer] += transfer;
            let done = begins + transfer;
            let device = self.device_mut(call);
            device.occupied = device.occupied.max(done).min(call.until);
            // What was submitted before is on its way: its latency is over by now.
            let until = done + if submitted > 0 { self.device(call).latency(call) } else { Seconds::ZERO };
            self.wait_until(call, until);
            self.complete(call.file);
        }
    }
}
