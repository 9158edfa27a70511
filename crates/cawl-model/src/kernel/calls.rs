//! A call from its begin to what it has cost: which law takes it, here or elsewhere.

use std::sync::Arc;

use cawl_wire::{Event, FileKind, Op, flag};

use super::call::{Call, Spread, Surcharge};
use super::freeing::{AWAY_CLOSE, AWAY_CREATE, AWAY_OPEN, LENGTH};
use super::intervals::one_pause;
use super::sync::waits;
use super::{CallState, Kernel, Prediction};
use crate::call::{
    Class, classify, cuts_off, is_copied_up, is_of_name_or_length, is_synchronous, kernel_bytes,
};
use crate::cause::{ByCause, Cause};
use crate::constants::Remote;
use crate::profile::{CachePolicy, grown, growth};
use crate::units::{Nanos, Pages, Seconds};
use crate::work::Work;

impl Kernel {
    /// The call of this event, about to begin.
    pub(super) fn begin(&mut self, event: &Event) -> Call {
        let at = self.seconds(event.start);
        self.memory.begin(&mut self.machine, at);
        self.machine.advance(at);
        let thread = (event.pid, event.tid);
        self.writers.begin(thread, at);
        let device = self.device(event.dev);
        let file = self.machine.cache.open(event.file(), device);
        let of = &self.machine.devices[device];
        let (at_work, idle_since) = (of.is_at_work(), of.idle_since.max(of.occupied));
        Call {
            at,
            began: at,
            thread,
            until: Seconds::INFINITY,
            patience: Call::PATIENCE,
            passed: 0.0,
            file,
            device,
            folio: if of.traits.has_single_pages { 1 } else { of.constants.folio },
            constants: Arc::clone(&of.constants),
            spent: ByCause::default(),
            work: Work::default(),
            hot: false,
            surcharge: Surcharge {
                away: grown(at - self.writers.tasks.current.left, self.constants.soon),
                idle: if at_work { 0.0 } else { growth(at - idle_since) },
                ..Surcharge::default()
            },
            spread: Spread::default(),
            stamps: event.has(flag::STAMPS_READ) && self.profile.kernel.fine_stamps,
            unlikely: false,
            runs: 0,
            locked: None,
            flushing: false,
            met_flusher: at_work,
            may_commit: of.may_commit(at),
        }
    }

    /// Plain writes, direct, synchronous or into the cache.
    fn write_call(&mut self, call: &mut Call, event: &Event) {
        let offset = self.offset(event, call.file);
        let bytes = event.returned.max(0) as u64;
        if bytes == 0 {
            return call.spend(Cause::Call, call.constants.empty_call);
        }
        call.spend_call(call.constants.call);
        if event.has(flag::DIRECT) && !self.is_remote(call) && !self.in_memory(call) {
            self.direct_write(call, event, offset, bytes);
        } else {
            self.cached_write(call, event, offset, bytes);
        }
    }

    /// Into the cache, and from there to the device if the call is synchronous.
    fn cached_write(&mut self, call: &mut Call, event: &Event, offset: u64, bytes: u64) {
        if let Some(remote) = self.remote(call) {
            return self.remote_write(call, event, &remote, (offset, bytes), u64::MAX);
        }
        self.buffered_write(call, offset, bytes, bytes <= call.constants.hot_most);
        if is_synchronous(event) && !self.never_waits(call, event) {
            self.machine.write_through(call, event, offset, bytes);
        }
    }

    fn stream_call(&mut self, call: &mut Call, event: &Event) {
        let end = self.machine.cache.size(call.file);
        let writes = self.streams.writes(event, end);
        let buffer = if writes.allocates { call.constants.buffer } else { Seconds::ZERO };
        let streaming =
            call.constants.stream_call + writes.buffered as f64 * call.constants.stream_byte + buffer;
        call.spend(Cause::Stream, streaming);
        call.work.stream_calls += 1.0;
        call.work.stream_bytes += writes.buffered as f64;
        let second = (writes.offset.saturating_add(writes.first), writes.second);
        for (offset, bytes) in [writes.before, (writes.offset, writes.first), second] {
            if bytes > 0 {
                call.spend_call(call.constants.call);
                self.cached_write(call, event, offset, bytes);
            }
        }
        if event.op == Op::StreamClose {
            call.spend(Cause::Call, call.constants.close);
            self.closed(call, event);
        }
    }

    /// Lives through a call that has a cost, as soon as it has begun, and is over at `until` at the latest.
    pub(super) fn run(&mut self, call: &mut Call, event: &Event, until: Seconds) {
        call.until = until.max(call.at);
        let started = call.at;
        match self.remote(call) {
            Some(remote) if self.remote_call(call, event, &remote) => {}
            _ => self.local_call(call, event),
        }
        // While it waited, the processor did something else.
        let device = call.spent.device();
        let waited = device + call.spent[Cause::Throttle] + call.spent[Cause::Lock];
        if device > Seconds::ZERO {
            self.machine.device_mut(call).idle_since = call.at;
        }
        if !call.work.stays_in_stream() {
            self.writers.tasks.current.left = (call.at - waited).max(started);
        }
    }

    /// A call on a file of this machine, or one that is the same elsewhere.
    fn local_call(&mut self, call: &mut Call, event: &Event) {
        match event.op {
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev => self.write_call(call, event),
            Op::StreamWrite | Op::StreamFlush | Op::StreamClose | Op::StreamSeek => {
                self.stream_call(call, event)
            }
            Op::CopyRange | Op::Sendfile | Op::Splice => self.copy_call(call, event),
            Op::Fsync | Op::Fdatasync | Op::Msync if self.never_waits(call, event) => {
                call.spend(Cause::Call, call.constants.empty_call);
            }
            Op::Fsync | Op::Fdatasync | Op::Msync => self.machine.fsync(call, event),
            Op::SyncRange => self.machine.sync_range(call, event),
            Op::Advise => self.drop_behind(call, event),
            Op::Sync => self.machine.sync_all(call, None),
            Op::Syncfs => self.machine.sync_all(call, Some(call.device)),
            Op::Read | Op::Pread | Op::StreamRead => self.read_call(call, event),
            Op::Open | Op::StreamOpen | Op::Close => self.open_or_close(call, event),
            Op::Truncate => self.change_length(call, event),
            _ if is_of_name_or_length(event) => self.change_name(call, event),
            _ => {}
        }
    }

    /// A call on a file that is elsewhere. False if it is like that of any device.
    pub(super) fn remote_call(&mut self, call: &mut Call, event: &Event, remote: &Remote) -> bool {
        match event.op {
            Op::Fsync | Op::Fdatasync | Op::Msync => self.remote_sync(call, remote),
            Op::Open | Op::StreamOpen => self.remote_open(call, event, remote),
            Op::Truncate => self.remote_truncate(call, event, remote),
            Op::Stat | Op::List => self.change_name(call, event),
            _ if is_of_name_or_length(event) => self.remote_name(call, event, remote),
            Op::Close => {
                call.spend(Cause::Call, call.constants.close);
                self.remote_close(call, remote);
            }
            Op::StreamClose => {
                self.stream_call(call, event);
                self.remote_close(call, remote);
            }
            Op::Read | Op::Pread | Op::StreamRead
                if remote.policy == CachePolicy::None || event.has(flag::DIRECT) =>
            {
                self.remote_read(call, event, remote);
            }
            _ => return false,
        }
        true
    }

    /// open, fopen and close.
    pub(super) fn open_or_close(&mut self, call: &mut Call, event: &Event) {
        let created = event.has(flag::CREATED);
        let opens = if cuts_off(event) { 1.0 + LENGTH } else { 1.0 };
        let cost = match event.op {
            Op::Close => call.constants.close,
            _ if created => call.constants.open + call.constants.create,
            _ => opens * call.constants.open,
        };
        call.spend(Cause::Call, cost);
        call.come_back(match event.op {
            Op::Close => AWAY_CLOSE,
            _ if created => AWAY_OPEN + AWAY_CREATE,
            _ => AWAY_OPEN,
        });
        let work = &mut call.work.read;
        if event.op == Op::Close {
            work.closes += 1.0;
            return self.closed(call, event);
        }
        work.opens += opens;
        work.creates += f64::from(u8::from(created));
        if created {
            self.pass_over_deleted(call, event);
        }
        if is_copied_up(event) {
            self.copy_up(call, event);
        }
        if cuts_off(event) {
            self.cut(call, event.offset, 0);
        }
        self.opened(call, event);
    }

    /// Calls that have effects but no modelled cost.
    pub(super) fn effect(&mut self, event: &Event) {
        if event.kind != FileKind::Regular && event.kind != FileKind::Unknown {
            return;
        }
        let mut call = self.begin(event);
        // Over a network only calls with a cost were measured.
        call.constants = Arc::clone(&self.constants);
        let file = call.file;
        match event.op {
            Op::Open | Op::StreamOpen if event.errno == 0 => self.opened(&call, event),
            Op::Resident => self.resident(file, event),
            Op::Advise if event.errno == 0 => self.advised(&call, event),
            Op::Allocate if event.errno == 0 => self.allocate(file, event),
            Op::AioWrite | Op::StreamExit => {
                let bytes = crate::call::kernel_bytes(event);
                if bytes > 0 && !event.has(flag::DIRECT) {
                    let offset = self.offset(event, file);
                    self.dirty_quietly(file, offset, bytes);
                }
            }
            _ => {}
        }
    }

    /// Stores through a mapping.
    pub(super) fn stores(&mut self, event: &Event) -> Option<Prediction> {
        let bytes = kernel_bytes(event);
        let mut call = self.begin(event);
        if bytes > 0 {
            let offset = self.offset(event, call.file);
            for (at, length) in pieces(event, offset, bytes, self.constants.page) {
                let found = self.dirty_quietly(call.file, at, length);
                call.spent[Cause::Call] +=
                    found.dirtied.saturating_sub(found.padding) as f64 * self.constants.call;
                call.spent[Cause::NewPages] += found.fresh as f64 * self.constants.fresh_page;
            }
        }
        Some(self.predict(&call, CallState::Free))
    }

    /// What a call costs that the model has lived through. Always something: an option, since that is what it
    /// is returned as, and copying it takes time.
    pub(super) fn prediction_of(&mut self, call: &Call, event: &Event) -> Option<Prediction> {
        let waits = waits(event) && !self.never_waits(call, event);
        Some(self.predict(call, if waits { CallState::Sync } else { call.state() }))
    }

    pub(super) fn predict(&mut self, call: &Call, state: CallState) -> Prediction {
        let parts = call.spent.map(Nanos::from);
        self.machine.advance(call.at);
        let dirty = self.dirty();
        let (cost, task) = (parts.total(), &self.writers.tasks.current);
        let dirtied = Pages(call.work.dirtied / self.constants.page as f64);
        let pause = one_pause(call, task.slept, dirtied, Pages::of(task.nr_dirtied_pause));
        Prediction {
            cost,
            state,
            parts,
            dirty,
            interval: self.intervals.around(cost, call, pause),
            may_pause: Pages(dirty.as_f64()) > self.machine.freerun() * self.constants.page as f64,
            flushing: call.flushing || call.met_flusher,
            may_commit: call.may_commit,
            work: call.work,
        }
    }

    /// Predicts a call and lives through it as predicted.
    pub(super) fn step_call(&mut self, event: &Event) -> Option<Prediction> {
        self.machine.reclaim();
        match classify(event).with_cost(|| is_of_name_or_length(event)) {
            Class::Cost => {}
            Class::Untimed => return self.stores(event),
            _ => {
                self.effect(event);
                return None;
            }
        }
        let mut call = self.begin(event);
        self.run(&mut call, event, Seconds::INFINITY);
        self.writers.over(&call, call.at);
        self.prediction_of(&call, event)
    }
}

/// Most pieces that stores are taken in.
const MAX_PIECES: u64 = 1 << 16;

/// Where stores went, as offset and length in bytes. Of several pieces only their number is told: each lies
/// in its own part of the range, at a place that differs from event to event.
fn pieces(event: &Event, offset: u64, bytes: u64, page: u64) -> impl Iterator<Item = (u64, u64)> {
    let pages = bytes.div_ceil(page);
    let count = u64::from(event.aux).clamp(1, MAX_PIECES).min(pages.max(1));
    let part = (event.requested / page / count).max(pages.div_ceil(count));
    let shift = |piece: u64, room: u64| {
        let mixed = (event.start ^ piece).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        if room > 0 { mixed % room } else { 0 }
    };
    (0..count).map(move |piece| {
        let own = pages * (piece + 1) / count - pages * piece / count;
        let at = if count > 1 { piece * part + shift(piece, part - own) } else { 0 };
        (offset.saturating_add(at.saturating_mul(page)), if count > 1 { own * page } else { bytes })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_in_pieces_lie_apart_within_their_range() {
        let event = |aux, requested| Event { aux, requested, start: 77, ..Event::new(Op::MmapWrite) };
        let all = |event: &Event, bytes| pieces(event, 8192, bytes, 4096).collect::<Vec<_>>();
        assert_eq!(all(&event(0, 5000), 5000), [(8192, 5000)]);
        let found = all(&event(3, 100 * 4096), 10 * 4096);
        assert_eq!(found.iter().map(|piece| piece.1 / 4096).collect::<Vec<_>>(), [3, 3, 4]);
        assert!(found.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0), "{found:?}");
        assert!(found[2].0 + found[2].1 <= 8192 + 100 * 4096);
        // More pieces than pages, and a range without an end, as a damaged trace has them.
        assert_eq!(all(&event(u32::MAX, 4096), 4096), [(8192, 4096)]);
        assert_eq!(all(&event(u32::MAX, u64::MAX), 1 << 40).len(), 1 << 16);
    }
}
