//! Events that are sent over the socket, where there is no shared memory.
//!
//! The law of this module: a sender holds the `sending` flag of the slot, which is tried and never waited
//! for. Only the owner writes events or starts again at the front; a sender moves `head`. What does not fit
//! is counted.

use crate::base::sys;
use crate::transport::link::Sent;
use crate::transport::patience::{Wait, lossless};
use crate::transport::slot::{SLOTS, SendBuffer, Slot};
use crate::transport::{link, pending_messages};
use cawl_wire::{EVENT_LEN, Kind, MAX_PAYLOAD};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicUsize};

/// Bytes of all buffers, of which each takes a quarter of what is left, but not less than the least: few,
/// for they count against the program's limits, and nobody says how many it can spare. They are touched only
/// as far as the daemon lags behind, and given back when it has caught up.
const ALL: usize = 8 << 20;
const MIN: usize = 8 << 10;
/// Events whose memory is kept once touched: 1 MiB.
const KEPT: usize = 10_922;
/// Events in one message.
const BATCH: usize = MAX_PAYLOAD / EVENT_LEN;
/// Age of the oldest event, in ns, at which the next call sends what there is.
const MAX_AGE: u64 = 50_000_000;
/// How long, in ns, a full socket is left alone.
const BACK_OFF: u64 = 500_000;

/// The buffer of each slot: kept over a fork, unlike the slot.
static BASES: [AtomicPtr<u8>; SLOTS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SLOTS];

static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Their lengths, in events.
static CAPACITIES: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

impl SendBuffer {
    /// Room up to the next message, or to the end of the buffer.
    fn set_limit(&self, slot: &Slot) {
        let tail = self.tail.load(Relaxed) as usize;
        let until = (tail + BATCH).min(self.capacity.load(Relaxed));
        let end = self.base.load(Relaxed).wrapping_add(until * EVENT_LEN);
        slot.limit.store(end.wrapping_sub(EVENT_LEN - 1), Relaxed);
    }

    /// The owner moves the end of what is written.
    fn set_tail(&self, slot: &Slot, tail: usize) {
        slot.position.store(tail as u64, Relaxed);
        slot.next.store(self.base.load(Relaxed).wrapping_add(tail * EVENT_LEN), Relaxed);
        self.tail.store(tail as u64, Release);
    }
}

/// Gives a slot a buffer of the process's own.
pub fn attach(slot: &Slot, index: usize) -> bool {
    let buffer = &slot.buffer;
    let (Some(place), Some(room)) = (BASES.get(index), CAPACITIES.get(index)) else { return false };
    let mut base = place.load(Relaxed);
    if base.is_null() {
        let length = (ALL.saturating_sub(TAKEN.load(Relaxed)) / 4).max(MIN);
        base = sys::map(length).cast();
        if base.is_null() {
            return false;
        }
        TAKEN.fetch_add(length, Relaxed);
        place.store(base, Relaxed);
        room.store(length / EVENT_LEN, Relaxed);
    }
    buffer.capacity.store(room.load(Relaxed), Relaxed);
    slot.tail.store(core::ptr::from_ref(&buffer.tail).cast_mut(), Relaxed);
    buffer.base.store(base, Release);
    if buffer.is_empty() {
        buffer.head.store(0, Relaxed);
        buffer.set_tail(slot, 0);
    }
    buffer.set_limit(slot);
    buffer.sent_at.store(sys::nanoseconds(), Relaxed);
    slot.due.store(0, Relaxed);
    true
}

/// Sends what it can. `owner`: the caller is, and may start again at the front.
fn send(slot: &Slot, owner: bool) -> Sent {
    let buffer = &slot.buffer;
    if buffer.sending.swap(true, Acquire) {
        return Sent::Later;
    }
    let result = send_exclusively(buffer);
    match result {
        Sent::Whole if owner => {
            if buffer.tail.load(Relaxed) as usize > KEPT {
                let base = buffer.base.load(Relaxed).wrapping_add(KEPT * EVENT_LEN);
                let length = buffer.capacity.load(Relaxed).saturating_sub(KEPT) * EVENT_LEN;
                // SAFETY: the mapping's tail, whose events have all been sent; its owner, who alone
                // writes there, is the caller.
                unsafe { sys::give_back(base.cast(), length) };
            }
            buffer.head.store(0, Relaxed);
            buffer.set_tail(slot, 0);
        }
        Sent::Later => buffer.retry_at.store(sys::nanoseconds() + BACK_OFF, Relaxed),
        Sent::Whole | Sent::Broken => {}
    }
    buffer.sending.store(false, Release);
    result
}

fn send_exclusively(buffer: &SendBuffer) -> Sent {
    let base = buffer.base.load(Acquire);
    if base.is_null() {
        return Sent::Whole;
    }
    loop {
        let head = buffer.head.load(Relaxed) as usize;
        let count = (buffer.tail.load(Acquire) as usize).saturating_sub(head).min(BATCH);
        // After the look at the events: those that come meanwhile may be about files that are told meanwhile.
        let names = pending_messages::send_waiting();
        if count == 0 {
            return Sent::Whole;
        }
        if names != Sent::Whole {
            return names;
        }
        // SAFETY: events `head..head + count` are complete (the owner stored the tail after them) and
        // stay as they are while `sending` is held, and the tail never exceeds the mapping's capacity.
        let events = unsafe { core::slice::from_raw_parts(base.add(head * EVENT_LEN), count * EVENT_LEN) };
        match link::send(Kind::Events, events) {
            Sent::Whole => buffer.head.store((head + count) as u64, Relaxed),
            other => return other,
        }
    }
}

/// A message is full: send it. False if the buffer is full too, and there is no room to be had.
pub fn make_room(slot: &Slot) -> bool {
    let buffer = &slot.buffer;
    if sys::nanoseconds() >= buffer.retry_at.load(Relaxed) {
        send(slot, true);
        buffer.sent_at.store(sys::nanoseconds(), Relaxed);
    }
    if buffer.tail.load(Relaxed) as usize >= buffer.capacity.load(Relaxed) && !move_up(slot) && !wait(slot) {
        return false;
    }
    buffer.set_limit(slot);
    true
}

/// Moves what is not sent to the front, if that makes room.
fn move_up(slot: &Slot) -> bool {
    let buffer = &slot.buffer;
    let capacity = buffer.capacity.load(Relaxed);
    if buffer.sending.swap(true, Acquire) {
        return false;
    }
    let (base, head) = (buffer.base.load(Relaxed), buffer.head.load(Relaxed) as usize);
    let room = head >= capacity / 4;
    if room {
        // SAFETY: both ranges lie in the mapping; `sending` is held, so no other thread reads it.
        unsafe { core::ptr::copy(base.add(head * EVENT_LEN), base, (capacity - head) * EVENT_LEN) };
        buffer.head.store(0, Relaxed);
        buffer.set_tail(slot, capacity - head);
    }
    buffer.sending.store(false, Release);
    room
}

/// Where the user wants no event lost: waits for the daemon to take some, as long as it is there.
fn wait(slot: &Slot) -> bool {
    if !lossless() {
        return false;
    }
    let progress = || slot.buffer.head.load(Relaxed);
    let mut wait = Wait::begin(progress());
    while wait.goes_on(progress()) {
        link::wait_for_room(1);
        match send(slot, true) {
            Sent::Whole => return true,
            Sent::Broken => return false,
            Sent::Later if move_up(slot) => return true,
            Sent::Later => {}
        }
    }
    false
}

/// Sends what is too old to wait longer.
pub fn send_if_old(slot: &Slot) {
    let buffer = &slot.buffer;
    let now = sys::nanoseconds();
    if now.saturating_sub(buffer.sent_at.load(Relaxed)) > MAX_AGE && now >= buffer.retry_at.load(Relaxed) {
        flush(slot);
    }
}

/// Sends what there is. For the owner.
pub fn flush(slot: &Slot) {
    send(slot, true);
    slot.buffer.set_limit(slot);
    slot.buffer.sent_at.store(sys::nanoseconds(), Relaxed);
}

/// Sends what there is before the deadline, and counts the rest as dropped. For anyone.
pub fn drain(slot: &Slot, deadline: u64) {
    let buffer = &slot.buffer;
    while let Sent::Later = send(slot, false) {
        let now = sys::nanoseconds();
        // A sender that is at work elsewhere, or interrupted by this very thread, keeps its flag.
        if buffer.sending.load(Relaxed) || now >= deadline {
            break;
        }
        link::wait_for_room((deadline - now) / 1_000_000 + 1);
    }
    let left = buffer.tail.load(Acquire).saturating_sub(buffer.head.load(Relaxed));
    link::count_dropped(left);
}
