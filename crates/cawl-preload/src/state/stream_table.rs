//! The streams that may hold bytes back, and what a call to one did to them.
//!
//! The law of this module: what reached the kernel is pending before + accepted − pending after, by the C
//! library's own figures; its buffering is never imitated. A stream is forgotten before it is freed. Another
//! thread may do both while a stream is read, so the kernel copies it, and the copy counts only if the stream
//! is still in the table afterwards.

use crate::base::{clock, guard, interrupted, real};
use crate::state::glibc_file::{Look, Stream, look_from_afar};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use libc::FILE;

/// Streams that can be remembered.
const SIZE: usize = 4096;
/// How far from its own place a stream may be put.
const REACH: usize = 64;

/// A bit for each place that was ever taken. A look at all streams touches no memory for the others.
static TAKEN: [AtomicU64; SIZE / 64] = [const { AtomicU64::new(0) }; SIZE / 64];
static TABLE: [AtomicPtr<FILE>; SIZE] = [const { AtomicPtr::new(core::ptr::null_mut()) }; SIZE];
/// For each stream: how many calls have ended (upper half), and what is pending by our own account
/// (lower half). Needed where threads share a stream, see [`account`].
static ACCOUNTS: [AtomicU64; SIZE] = [const { AtomicU64::new(0) }; SIZE];
/// For each stream: calls under way.
static UNDER_WAY: [AtomicU32; SIZE] = [const { AtomicU32::new(0) }; SIZE];
/// For each place of the table: how many streams have left it.
static LEFT: [AtomicU32; SIZE] = [const { AtomicU32::new(0) }; SIZE];
/// For each stream: what it held before a call that flushes all.
static HELD: [AtomicU32; SIZE] = [const { AtomicU32::new(0) }; SIZE];
/// Streams, still open, for which there was no room. A look at all streams does not find them, and says so.
static UNPLACED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    static stdin: *mut FILE;
    static stdout: *mut FILE;
    static stderr: *mut FILE;
}

/// Standard input, whatever the program made of the variable.
pub fn standard_input() -> *mut FILE {
    // SAFETY: as below.
    unsafe { stdin }
}

/// Standard output, whatever the program made of the variable.
pub fn standard_output() -> *mut FILE {
    // SAFETY: the C library's variable, read as any program reads it.
    unsafe { stdout }
}

pub fn standard_error() -> *mut FILE {
    // SAFETY: as above.
    unsafe { stderr }
}

fn home(stream: *mut FILE) -> usize {
    ((stream as usize >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) % SIZE
}

fn places(stream: *mut FILE) -> impl Iterator<Item = (usize, &'static AtomicPtr<FILE>)> {
    let home = home(stream);
    (0..REACH).map(move |step| (home + step) % SIZE).map(|index| (index, &TABLE[index]))
}

/// Remembers a stream that was written to; its index, if there is room for it.
#[inline(always)]
pub fn remember(stream: *mut FILE) -> Option<usize> {
    let home = home(stream);
    if TABLE[home].load(Relaxed) == stream { Some(home) } else { remember_elsewhere(stream) }
}

#[cold]
fn remember_elsewhere(stream: *mut FILE) -> Option<usize> {
    if let Some((index, _)) = places(stream).find(|(_, place)| place.load(Relaxed) == stream) {
        return Some(index);
    }
    let null = core::ptr::null_mut();
    for (index, place) in places(stream) {
        TAKEN[index / 64].fetch_or(1 << (index % 64), Relaxed);
        if place.compare_exchange(null, stream, AcqRel, Relaxed).is_ok() {
            ACCOUNTS[index].store(0, Relaxed);
            UNDER_WAY[index].store(0, Relaxed);
            HELD[index].store(0, Relaxed);
            return Some(index);
        }
    }
    // Streams without a place are only counted, so which one this is is unknown.
    UNPLACED.fetch_max(1, Relaxed);
    None
}

/// Forgets a stream that is about to be closed; false if it was not known.
pub fn forget(stream: *mut FILE) -> bool {
    let mut known = false;
    for (index, place) in places(stream) {
        if place.load(Relaxed) == stream {
            let _ = place.compare_exchange(stream, core::ptr::null_mut(), AcqRel, Relaxed);
            LEFT[index].fetch_add(1, AcqRel);
            // A reader that sees what is done to the stream from now on also sees that it has left.
            fence(SeqCst);
            known = true;
        }
    }
    known
}

/// The places that were ever taken.
fn taken() -> impl Iterator<Item = usize> {
    let words = TAKEN.iter().map(|word| word.load(Relaxed)).enumerate().filter(|(_, word)| *word != 0);
    words.flat_map(|(index, word)| {
        (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * 64 + bit)
    })
}

/// Counts a look at all streams that cannot have found all.
pub fn count_unplaced() {
    if UNPLACED.load(Relaxed) != 0 {
        guard::count_unseen();
    }
}

/// The stream at a place of the table, if there is one, as it was while it stood there.
fn look_at(index: usize) -> Option<Look> {
    let left = LEFT[index].load(Acquire);
    let stream = TABLE[index].load(Acquire);
    if stream.is_null() {
        return None;
    }
    if !real::threads() {
        // SAFETY: a stream leaves the table before it is freed, and there is no other thread.
        return Some(unsafe { Stream::open(stream) }.state());
    }
    let mut look = look_from_afar(stream)?;
    fence(SeqCst);
    let stood = TABLE[index].load(Relaxed) == stream && LEFT[index].load(Relaxed) == left;
    look.pending = Some(look.pending.unwrap_or(ACCOUNTS[index].load(Relaxed) as u32));
    stood.then_some(look)
}

/// Before a call that flushes all streams: notes what each holds, and says whether there is anything to tell
/// afterwards.
pub fn before_all() -> bool {
    let mut any = UNPLACED.load(Relaxed) != 0;
    for index in taken() {
        let held = &HELD[index];
        let pending = look_at(index).and_then(|look| look.pending).unwrap_or(0);
        if pending != 0 || held.load(Relaxed) != 0 {
            held.store(pending, Relaxed);
            any |= pending != 0;
        }
    }
    any
}

/// A stream before a call.
#[derive(Clone, Copy)]
pub struct Before {
    /// When the call began.
    pub start: u64,
    /// What was waiting then.
    pub pending: u32,
    /// The call said that it is under way.
    pub marked: bool,
    shared: Option<Shared>,
}

impl Before {
    /// For a call of which no more is known.
    pub const fn new(start: u64, pending: u32) -> Before {
        Before { start, pending, marked: false, shared: None }
    }
}

/// What else has to be known where threads may share the stream.
#[derive(Clone, Copy)]
struct Shared {
    index: usize,
    calls: u32,
    alone: bool,
}

/// Looks at a stream before a call.
#[inline(always)]
pub fn before(stream: Stream) -> Before {
    before_giving(stream, u64::MAX)
}

/// Looks at a stream before a call gives it `length` bytes: while they stay in the buffer, no position moves.
#[inline(always)]
pub fn before_giving(stream: Stream, length: u64) -> Before {
    if real::threads() {
        return before_shared(stream);
    }
    let marked = !stream.has_room(length);
    let start = if marked { interrupted::begin(stream.number()) } else { clock::now() };
    Before { start, pending: stream.pending(), marked, shared: None }
}

/// Looks at a stream before a call after which [`after`] is not called.
pub fn peek(stream: Stream) -> Before {
    let pending = stream.pending();
    Before::new(clock::now(), pending)
}

/// The call is not recorded.
pub fn leave(before: Before) {
    if let Some(shared) = before.shared {
        UNDER_WAY[shared.index].fetch_sub(1, AcqRel);
    }
}

fn before_shared(stream: Stream) -> Before {
    let entered = remember(stream.file()).map(|index| {
        let alone = UNDER_WAY[index].fetch_add(1, AcqRel) == 0;
        (index, alone, calls_ended(index))
    });
    let (pending, fd) = (stream.pending(), stream.number());
    let shared = entered.map(|(index, alone, calls)| {
        // Another thread's call may have begun before the look and put its bytes there without having
        // accounted for them, so the call is alone only if it was so before the look and after.
        fence(SeqCst);
        let alone = alone && UNDER_WAY[index].load(Acquire) == 1 && calls_ended(index) == calls;
        Shared { index, calls, alone }
    });
    Before { start: interrupted::begin(fd), pending, marked: true, shared }
}

fn calls_ended(index: usize) -> u32 {
    (ACCOUNTS[index].load(Acquire) >> 32) as u32
}

/// What the stream held before a call and holds after it.
#[inline(always)]
pub fn account(stream: Stream, before: Before, accepted: i64) -> (u32, u32) {
    match before.shared {
        Some(shared) => bring_up_to_date(shared, stream, before.pending, accepted),
        None => (before.pending, stream.pending()),
    }
}

/// A new stream is to be remembered; one without room is counted as long as it is open.
pub fn place_new(stream: Stream) {
    let unplaced = UNPLACED.load(Relaxed);
    if remember(stream.file()).is_none() {
        UNPLACED.store(unplaced + 1, Relaxed);
    }
}

/// Forgets a stream that is about to be closed, and whether there was room for it.
pub fn displace(stream: Stream) {
    if !forget(stream.file()) && UNPLACED.load(Relaxed) > 0 && stream.is_writable() {
        UNPLACED.fetch_sub(1, Relaxed);
    }
}

/// The streams that held something before a call that flushes all: what each held, and how it stands now if
/// it is still open. To be asked once.
pub fn held() -> impl Iterator<Item = (u32, Option<Look>)> {
    taken()
        .map(|index| (HELD[index].swap(0, Relaxed), index))
        .filter(|(held, _)| *held != 0)
        .map(|(held, index)| (held, look_at(index)))
}

/// All streams.
pub fn all() -> impl Iterator<Item = Look> {
    taken().filter_map(look_at)
}

/// Brings a stream's account up to date, and corrects `before` by it: what two threads saw before their
/// calls may be the same bytes, and what one saw afterwards may be the other's.
///
/// A call that had the stream to itself uses what it saw, which also covers bytes that an inlined
/// putc put there unseen. Any other call goes on from where the last one left the account. So the bytes
/// flushed come out right in sum, if not always at the right call.
#[inline(never)]
fn bring_up_to_date(shared: Shared, stream: Stream, before: u32, accepted: i64) -> (u32, u32) {
    let place = &ACCOUNTS[shared.index];
    let accepted = accepted.max(0) as u64;
    let (mut start, mut end) = (before, 0);
    for _ in 0..64 {
        let seen = place.load(Acquire);
        let calls = (seen >> 32) as u32;
        start = if shared.alone && calls == shared.calls { before } else { seen as u32 };
        // Looked at after the account was, so that no call that has ended meanwhile is left out.
        end = (u64::from(start) + accepted).min(u64::from(stream.pending())) as u32;
        let next = u64::from(calls.wrapping_add(1)) << 32 | u64::from(end);
        if place.compare_exchange(seen, next, AcqRel, Acquire).is_ok() {
            break;
        }
    }
    UNDER_WAY[shared.index].fetch_sub(1, AcqRel);
    (start, end)
}
