//! Messages that must reach the daemon before the events that are recorded after them, where both go over the
//! socket.
//!
//! A message is sent at once. If the socket is full, it waits in one of a few entries, which every sender
//! empties before it sends events. **No thread waits for another**: a writer takes a free entry, and several
//! threads may send the same entry at a time, because a message may be told twice. An entry is free again
//! when it has been told and its last reader has left. So a thread may be jumped or killed out of here at any
//! moment: its entry stays as it is, told by others, until the thread comes here again or ends.

use crate::base::hot::is_open;
use crate::base::thread::{Thread, thread};
use crate::transport::link::{self, Sent};
use crate::transport::patience::{Wait, lossless};
use cawl_wire::{FileRecord, Kind};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

/// Longest message.
const RECORD: usize = FileRecord::MAX;
/// Messages that can wait for room: one for each bit of [`TO_TELL`].
const WAITING_MOST: usize = 64;

/// Nothing is there.
const FREE: u32 = 0;
/// A thread writes a record down.
const FILLING: u32 = 1;
/// There is a record, which nobody changes any more.
const FULL: u32 = 2;
/// Beside [`FULL`]: the record has been told.
const TOLD_ALREADY: u32 = 4;
/// One who reads there; the number of them is counted above the other bits.
const READER: u32 = 8;

/// A place for one record.
struct Entry {
    state: AtomicU32,
    length: AtomicUsize,
    record: UnsafeCell<[u8; RECORD]>,
}

// SAFETY: the cells are written only by the thread that moved the state to FILLING, and read only by those
// who are counted as readers, without whom the state becomes FREE.
unsafe impl Sync for Entry {}

/// Static, because a hook may be running on the small stack of a signal handler.
static ENTRIES: [Entry; WAITING_MOST] = [const {
    Entry { state: AtomicU32::new(FREE), length: AtomicUsize::new(0), record: UnsafeCell::new([0; RECORD]) }
}; WAITING_MOST];

/// Entries that were ever in use are all below this index.
static REACHED: AtomicUsize = AtomicUsize::new(0);
/// Entries with a record that has not been told.
static TO_TELL: AtomicU64 = AtomicU64::new(0);

impl Entry {
    /// Begins to read, if there is something to tell.
    fn join(&self) -> bool {
        let more = |state: u32| (state & (FULL | TOLD_ALREADY) == FULL).then_some(state + READER);
        self.state.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// Ends to read; the last one clears away what was told.
    fn leave(&self, told: bool) {
        let less = |state: u32| {
            // Nobody is there any more, if this is the copy of a process.
            let left = state.checked_sub(READER)? | if told { TOLD_ALREADY } else { 0 };
            Some(if left == FULL | TOLD_ALREADY { FREE } else { left })
        };
        let _ = self.state.fetch_update(AcqRel, Relaxed, less);
    }
}

/// Gives up the entry that the calling thread still counts as using: it was jumped out of there (or it was a
/// vfork child with this thread's record, which was killed).
pub fn abandon(thread: &Thread) {
    let number = (thread.entry.swap(0, Relaxed) as usize).wrapping_sub(1);
    let Some(entry) = ENTRIES.get(number) else { return };
    if entry.state.compare_exchange(FILLING, FREE, AcqRel, Relaxed).is_err() {
        // Whether it was told is not certain.
        TO_TELL.fetch_or(1 << number, AcqRel);
        entry.leave(false);
    }
}

/// Begins to write a message: the entry and its memory. None if no entry is free.
pub fn begin() -> Option<(usize, &'static mut [u8])> {
    let thread = thread();
    abandon(thread);
    let free = |entry: &Entry| entry.state.compare_exchange(FREE, FILLING, Acquire, Relaxed).is_ok();
    let (number, entry) = ENTRIES.iter().enumerate().find(|(_, entry)| free(entry))?;
    REACHED.fetch_max(number + 1, Relaxed);
    // Said after the entry was taken, and taken back before it is given away: a thread that is jumped out of
    // here in between leaves an entry that is never used again, and not one that two use.
    thread.entry.store(number as u32 + 1, Relaxed);
    // SAFETY: the state is FILLING, by this thread.
    Some((number, unsafe { &mut *entry.record.get() }))
}

/// The message in the entry from [`begin`] has this length; None if there is none after all.
pub fn finish(number: usize, length: Option<usize>) {
    thread().entry.store(0, Relaxed);
    let Some(entry) = ENTRIES.get(number) else { return };
    match length {
        Some(length) => {
            entry.length.store(length, Relaxed);
            entry.state.store(FULL, Release);
            TO_TELL.fetch_or(1 << number, AcqRel);
        }
        None => entry.state.store(FREE, Release),
    }
}

/// Sends the records that wait; Whole if none is left.
#[inline]
pub fn send_waiting() -> Sent {
    if TO_TELL.load(Acquire) == 0 { Sent::Whole } else { send_all() }
}

#[cold]
#[inline(never)]
fn send_all() -> Sent {
    let thread = thread();
    abandon(thread);
    for (number, entry) in ENTRIES.iter().enumerate() {
        let bit = 1 << number;
        if TO_TELL.load(Acquire) & bit == 0 || !entry.join() {
            continue;
        }
        thread.entry.store(number as u32 + 1, Relaxed);
        // SAFETY: there is a record, and it stays as long as this thread is counted as a reader.
        let record = unsafe { &*entry.record.get() };
        let sent = link::send(Kind::File, &record[..entry.length.load(Relaxed).min(RECORD)]);
        if sent == Sent::Whole {
            TO_TELL.fetch_and(!bit, AcqRel);
        }
        thread.entry.store(0, Relaxed);
        entry.leave(sent == Sent::Whole);
        if sent != Sent::Whole {
            return sent;
        }
    }
    Sent::Whole
}

/// True if a record waits.
pub fn any() -> bool {
    TO_TELL.load(Acquire) != 0
}

/// Sends what waits, and waits for room for another message where the user wants nothing lost.
pub fn make_room() {
    if send_waiting() == Sent::Whole || !lossless() {
        return;
    }
    let progress = || TO_TELL.load(Acquire);
    let mut wait = Wait::begin(progress());
    while progress() == u64::MAX && is_open() && wait.goes_on(progress()) {
        link::wait_for_room(1);
        send_waiting();
    }
}

/// In a fork child: nothing of its own waits.
pub fn forget() {
    // The memory of the others stays untouched: a look at all entries costs 65 page faults.
    for entry in ENTRIES.iter().take(REACHED.swap(0, Relaxed)) {
        entry.state.store(FREE, Relaxed);
    }
    TO_TELL.store(0, Relaxed);
}
