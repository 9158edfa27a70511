//! Files that are elsewhere: the way to them over a network or to another process (NFS, CIFS, FUSE), and what
//! copying into the client's page cache takes.

use cawl_wire::{Event, flag};

use super::{Constants, LAST_PART, known};
use crate::call::is_file_read;
use crate::profile::{
    CachePolicy, DeviceConstants, HostProfile, Measured, MemoryConstants, NetworkConstants,
};
use crate::units::{Nanos, Rate, Seconds};

/// A way over the network.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    pub policy: CachePolicy,
    /// Of a round trip that writes, and one that reads.
    pub latency: Seconds,
    pub read_latency: Seconds,
    /// Of a byte: in requests one after the other, in several at a time, and read.
    pub write_byte: Seconds,
    pub flush_byte: Seconds,
    pub read_byte: Seconds,
    /// Most bytes of a request.
    pub request: u64,
    pub read_request: u64,
    pub in_flight: f64,
    /// Dirty pages in a row that are sent by the call which completes them.
    pub push: Option<u64>,
    pub close_flushes: bool,
    pub open_keeps: bool,
    pub reads_partial: bool,
    pub open: Seconds,
    pub create: Seconds,
    pub close: Seconds,
    pub commit: Seconds,
    pub unlink: Seconds,
    pub rename: Seconds,
    pub truncate: Seconds,
    pub drop_page: Seconds,
    /// What makes data durable that the server has: of an fsync after writes, of one without, of a
    /// synchronous write.
    pub fsync: Seconds,
    pub flush: Seconds,
    pub sync_call: Seconds,
}

impl Remote {
    /// The way to a device's files, if they are elsewhere.
    pub fn of(device: &DeviceConstants, page: u64) -> Option<Remote> {
        let network = device.network.as_ref()?;
        let latency = known(&device.latency);
        let trip = |time: &Option<Measured<Nanos>>, else_trips: f64| {
            time.as_ref().map_or(else_trips * latency, |time| time.value.into())
        };
        Some(Remote {
            policy: network.policy,
            latency,
            read_latency: trip(&device.read_latency, 1.0),
            write_byte: device.write.value.byte(),
            flush_byte: device.writeback.value.byte(),
            read_byte: device.read.value.byte(),
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
            fsync: device.fsync.value.into(),
            flush: device.flush.unwrap_or(device.fsync).value.into(),
            sync_call: device.sync_call.value.into(),
        })
    }

    /// Round trips that a call waits for one after the other. With O_DIRECT, a client that has a cache sends
    /// all its requests at once (`fuse_direct_IO`, `nfs_file_direct_write`, 6.18).
    pub fn trips(&self, requests: u64, event: &Event) -> u64 {
        let together = event.has(flag::DIRECT) && self.policy != CachePolicy::None;
        let together = together && (self.policy != CachePolicy::ReadOnly || is_file_read(event));
        if together { requests.div_ceil(self.in_flight as u64) } else { requests }
    }

    /// What a run of pages costs the flusher that lies apart from the one before: a request of its
    /// own, beside others.
    pub fn seek(&self) -> Seconds {
        self.latency / self.in_flight
    }
}

impl Constants {
    /// Those of files that are behind this network.
    pub fn over(network: &NetworkConstants, profile: &HostProfile) -> Constants {
        let mut constants = Constants::of(&seen_through(profile, network));
        if let Some(cached) = network.cached {
            // Pages that are not in the last cache, as those were that were measured.
            let hot = outside(cached, network.near).value.byte();
            let beyond = (hot - constants.hot_byte) * constants.page as f64;
            constants.fresh_page = (constants.fresh_page - beyond).max(Seconds::ZERO);
            (constants.hot_byte, constants.hot_large_byte) = (hot, hot);
        }
        constants
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
        seen.calls.read_folio_far = None;
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
        longer if near > 0.0 && longer > 0.0 => Rate::per_second(1.0 / (near + longer / LAST_PART)),
        _ => rate,
    })
}
