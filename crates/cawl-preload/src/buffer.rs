//! Each thread's events, waiting to be sent.
//!
//! The law of this module: a buffer has one writer, its thread, who needs no lock; whoever sends from it
//! holds its `sending` flag, which is tried and never waited for. Indices count events. Only the owner
//! moves `tail` or starts again at the front; a sender moves `head`. What does not fit is counted.

use crate::guard::{Inside, Thread};
use crate::uplink::{self, Sent};
use crate::{announce, sys};
use cawl_wire::{EVENT_LEN, Event, Kind, MAX_PAYLOAD};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// Threads that can record at the same time; further ones drop and count.
const SLOTS: usize = 2048;
/// Events in one buffer: 16 MiB of address space, touched only as far as the daemon lags behind, and
/// given back when it has caught up.
const CAPACITY: usize = 174_762;
/// Events whose memory is kept once touched: 1 MiB.
const KEPT: usize = 10_922;
/// Events in one message.
const BATCH: usize = MAX_PAYLOAD / EVENT_LEN;
/// Age of the oldest event, in ns, at which the next call sends what there is.
const MAX_AGE: u64 = 50_000_000;
/// How long, in ns, a full socket is left alone.
const BACK_OFF: u64 = 500_000;

/// A buffer and its owner.
#[repr(C)]
pub struct Slot {
    owner: AtomicU32,
    sending: AtomicBool,
    base: AtomicPtr<u8>,
    capacity: AtomicUsize,
    head: AtomicUsize,
    tail: AtomicUsize,
    oldest: AtomicU64,
    retry_at: AtomicU64,
}

static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// Slots that were ever in use are all below this index.
static USED: AtomicUsize = AtomicUsize::new(0);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

impl Slot {
    const fn new() -> Slot {
        Slot {
            owner: AtomicU32::new(0),
            sending: AtomicBool::new(false),
            base: AtomicPtr::new(core::ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            retry_at: AtomicU64::new(0),
        }
    }

    /// Sends what it can. `rewind`: the caller is the owner and may start again at the front.
    fn send(&self, now: u64, rewind: bool) -> Sent {
        if self.sending.swap(true, Acquire) {
            return Sent::Later;
        }
        let result = self.send_exclusively();
        match result {
            Sent::Whole if rewind => {
                if self.tail.load(Relaxed) > KEPT {
                    let base = self.base.load(Relaxed).wrapping_add(KEPT * EVENT_LEN);
                    let length = (self.capacity.load(Relaxed) - KEPT) * EVENT_LEN;
                    // SAFETY: the mapping's tail, whose events have all been sent; its owner, who alone
                    // writes there, is the caller.
                    unsafe { sys::give_back(base.cast(), length) };
                }
                self.head.store(0, Relaxed);
                self.tail.store(0, Release);
            }
            Sent::Whole => {}
            Sent::Later => self.retry_at.store(now + BACK_OFF, Relaxed),
            Sent::Broken => {}
        }
        self.sending.store(false, Release);
        result
    }

    fn send_exclusively(&self) -> Sent {
        let base = self.base.load(Acquire);
        if base.is_null() {
            return Sent::Whole;
        }
        match announce::send_waiting() {
            Sent::Whole => {}
            other => return other,
        }
        loop {
            let head = self.head.load(Relaxed);
            let count = self.tail.load(Acquire).saturating_sub(head).min(BATCH);
            if count == 0 {
                return Sent::Whole;
            }
            // SAFETY: events `head..head + count` are complete (the owner stored `tail` after them) and
            // stay as they are while `sending` is held, and `tail` never exceeds the mapping's capacity.
            let batch = unsafe { core::slice::from_raw_parts(base.add(head * EVENT_LEN), count * EVENT_LEN) };
            match uplink::send(Kind::Events, batch) {
                Sent::Whole => self.head.store(head + count, Relaxed),
                other => return other,
            }
        }
    }

    /// The buffer is full: make room by sending and moving up. False if there is none to be had.
    #[cold]
    fn make_room(&self, now: u64) -> bool {
        if now >= self.retry_at.load(Relaxed) {
            self.send(now, true);
        }
        let capacity = self.capacity.load(Relaxed);
        if self.tail.load(Relaxed) < capacity {
            return true;
        }
        if self.sending.swap(true, Acquire) {
            return false;
        }
        let (base, head) = (self.base.load(Relaxed), self.head.load(Relaxed));
        let room = head >= capacity / 4;
        if room {
            // SAFETY: both ranges lie in the mapping; `sending` is held, so nobody reads it meanwhile.
            unsafe { core::ptr::copy(base.add(head * EVENT_LEN), base, (capacity - head) * EVENT_LEN) };
            self.head.store(0, Relaxed);
            self.tail.store(capacity - head, Release);
        }
        self.sending.store(false, Release);
        room
    }
}

/// Puts an event into the calling thread's buffer, and sends the buffer if it is time.
#[inline]
pub fn push(inside: &Inside, event: &Event) {
    let thread = inside.thread();
    let Some(slot) = slot_of(thread) else {
        uplink::count_dropped(1);
        return;
    };
    let now = event.end();
    if slot.tail.load(Relaxed) >= slot.capacity.load(Relaxed) && !slot.make_room(now) {
        uplink::count_dropped(1);
        return;
    }
    let tail = slot.tail.load(Relaxed);
    let head = slot.head.load(Relaxed);
    if head == tail {
        slot.oldest.store(event.start, Relaxed);
    }
    // SAFETY: `tail` is below the capacity, the base is a mapping of that many events, and only this thread
    // writes at `tail`; readers stop short of it until the store below.
    unsafe {
        let place = slot.base.load(Relaxed).add(tail * EVENT_LEN);
        place.cast::<[u8; EVENT_LEN]>().write_unaligned(event.encode());
    }
    slot.tail.store(tail + 1, Release);
    let due = tail + 1 - head >= BATCH || now.saturating_sub(slot.oldest.load(Relaxed)) > MAX_AGE;
    if due && now >= slot.retry_at.load(Relaxed) {
        flush_slot(slot, now);
    }
}

#[cold]
fn flush_slot(slot: &Slot, now: u64) {
    if uplink::is_ours() {
        slot.send(now, true);
        slot.oldest.store(now, Relaxed);
    }
}

#[inline(always)]
fn slot_of(thread: &Thread) -> Option<&'static Slot> {
    let slot = thread.slot.load(Relaxed);
    if slot.is_null() {
        return claim(thread);
    }
    // SAFETY: the pointer is only ever set to an element of the static TABLE.
    Some(unsafe { &*slot })
}

#[cold]
fn claim(thread: &Thread) -> Option<&'static Slot> {
    let tid = thread.tid();
    let (index, slot) = TABLE
        .iter()
        .enumerate()
        .find(|(_, slot)| slot.owner.compare_exchange(0, tid, AcqRel, Relaxed).is_ok())?;
    USED.fetch_max(index + 1, AcqRel);
    if slot.base.load(Relaxed).is_null() {
        // A program whose address space is limited has none to spare.
        let capacity = if sys::limited(libc::RLIMIT_AS) { KEPT } else { CAPACITY };
        slot.capacity.store(capacity, Relaxed);
        let base = sys::map(capacity * EVENT_LEN);
        if base.is_null() {
            slot.owner.store(0, Release);
            return None;
        }
        slot.base.store(base.cast(), Release);
    }
    if slot.head.load(Relaxed) == slot.tail.load(Relaxed) && !slot.sending.load(Acquire) {
        slot.head.store(0, Relaxed);
        slot.tail.store(0, Release);
    }
    thread.slot.store(core::ptr::from_ref(slot).cast_mut(), Relaxed);
    let key = KEY.load(Relaxed);
    // The C library keeps the values of its first 32 keys inside the thread's record; beyond that it
    // would allocate, and the slot of a thread that ended is then not used again.
    if key < 32 {
        // SAFETY: the key was created by `prepare`; its value is a pointer to static memory.
        unsafe { libc::pthread_setspecific(key, core::ptr::from_ref(slot).cast()) };
    }
    Some(slot)
}

/// Makes sure that a thread's buffer is sent when the thread ends. Constructor only.
pub fn prepare() {
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: `key` is a valid place; the destructor has the signature asked for.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Relaxed);
    }
}

unsafe extern "C" fn thread_ends(_slot: *mut c_void) {
    let Some(inside) = crate::guard::enter() else { return };
    let thread = inside.thread();
    let slot = thread.slot.swap(core::ptr::null_mut(), Relaxed);
    if slot.is_null() {
        return;
    }
    // SAFETY: the pointer is only ever set to an element of the static TABLE.
    let slot = unsafe { &*slot };
    if uplink::is_ours() {
        slot.send(sys::now(), true);
    }
    slot.owner.store(0, Release);
}

/// Sends the calling thread's buffer.
#[cold]
pub fn flush(inside: &Inside) {
    let slot = inside.thread().slot.load(Relaxed);
    if !slot.is_null() {
        // SAFETY: the pointer is only ever set to an element of the static TABLE.
        flush_slot(unsafe { &*slot }, sys::now());
    }
}

/// Sends every thread's buffer, waiting for room at most `milliseconds` in all. What then remains is
/// counted as dropped.
#[cold]
pub fn drain(milliseconds: u64) {
    let deadline = sys::now() + milliseconds * 1_000_000;
    let slots = &TABLE[..USED.load(Acquire).min(SLOTS)];
    for slot in slots {
        while let Sent::Later = slot.send(sys::now(), false) {
            let now = sys::now();
            // A sender that is at work elsewhere, or interrupted by this very thread, keeps its flag.
            if slot.sending.load(Relaxed) || now >= deadline {
                break;
            }
            uplink::wait_for_room((deadline - now) / 1_000_000 + 1);
        }
        let left = slot.tail.load(Acquire).saturating_sub(slot.head.load(Relaxed));
        uplink::count_dropped(left as u64);
    }
}

/// In a fork child: the parent's events are the parent's.
pub fn forget(thread: &Thread) {
    let own = thread.slot.load(Relaxed);
    for slot in &TABLE[..USED.load(Acquire).min(SLOTS)] {
        slot.head.store(0, Relaxed);
        slot.tail.store(0, Relaxed);
        slot.retry_at.store(0, Relaxed);
        slot.sending.store(false, Relaxed);
        let mine = core::ptr::eq(slot, own);
        slot.owner.store(if mine { thread.tid() } else { 0 }, Release);
    }
}
