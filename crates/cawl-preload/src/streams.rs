//! The streams that may hold bytes back, and what a call to one did to them.
//!
//! The law of this module: what reached the kernel is pending before + accepted − pending after, by the
//! C library's own figures; its buffering is never imitated. A stream is forgotten before it is freed. Another
//! thread may do both while somebody looks at it, so what the table holds is looked at from afar, and what was
//! found counts only if the stream was still there afterwards.

use crate::buffer::Slot;
use crate::files::{self, File};
use crate::guard::{self, Inside};
use crate::stream::{Buffering, Look, buffering, descriptor, has_room, look, look_from_afar, number};
use crate::{buffer, interrupted, real, record, sys, uplink};
use cawl_wire::ring::Call;
use cawl_wire::{Event, Op, flag};
use core::ffi::c_int;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};
use libc::FILE;

/// Streams that can be remembered.
const SIZE: usize = 4096;
/// How far from its own place a stream may be put.
const REACH: usize = 64;

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
    static stdout: *mut FILE;
    static stderr: *mut FILE;
}

/// Standard output, whatever the program made of the variable.
pub fn standard_output() -> *mut FILE {
    // SAFETY: the C library's variable, read as any program reads it.
    unsafe { stdout }
}

/// Standard error.
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
fn remember(stream: *mut FILE) -> Option<usize> {
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
        if place.compare_exchange(null, stream, AcqRel, Relaxed).is_ok() {
            ACCOUNTS[index].store(0, Relaxed);
            UNDER_WAY[index].store(0, Relaxed);
            HELD[index].store(0, Relaxed);
            return Some(index);
        }
    }
    // Which of those that are known to have found no room it is, nobody can tell.
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
            // Whoever sees what is done to the stream from now on sees that it has left.
            fence(SeqCst);
            known = true;
        }
    }
    known
}

/// Counts a look at all streams that cannot have found all.
fn count_unplaced() {
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
        // SAFETY: a stream leaves the table before it is freed, and there is nobody else who could do so now.
        return Some(unsafe { look(stream) });
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
    for (index, held) in HELD.iter().enumerate() {
        let pending = look_at(index).and_then(|look| look.pending).unwrap_or(0);
        if pending != 0 || held.load(Relaxed) != 0 {
            held.store(pending, Relaxed);
            any |= pending != 0;
        }
    }
    any
}

/// After such a call. A stream that was closed meanwhile may have been flushed by this call or by that.
#[cold]
pub fn after_all(start: u64, returned: i64) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return };
    count_unplaced();
    for (index, held) in HELD.iter().enumerate().filter(|(_, held)| held.load(Relaxed) != 0) {
        let held = held.swap(0, Relaxed);
        let Some(look) = look_at(index) else {
            guard::count_unseen();
            continue;
        };
        let Some(slot) = buffer::ready(&inside) else { return };
        let Some(file) = files::known(look.fd) else { continue };
        let call = Call {
            start,
            duration: end.saturating_sub(start),
            offset: file.position_if_known(),
            requested: 0,
            returned,
            pending: Some((held, look.pending.unwrap_or(0))),
        };
        after_whole(&inside, slot, Op::StreamFlush, &call, 0, look.fd, file, look.buffering, returned < 0);
        buffer::finish(slot, end);
    }
}

pub use crate::stream::pending;

/// A stream before a call.
#[derive(Clone, Copy)]
pub struct Before {
    /// When the call began.
    pub start: u64,
    /// What was waiting then.
    pub pending: u32,
    /// The call said that it is under way.
    marked: bool,
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
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn before(stream: *mut FILE) -> Before {
    // SAFETY: the caller's promise.
    unsafe { before_giving(stream, u64::MAX) }
}

/// The same where the call gives so many bytes: while they stay in the buffer, it moves no position.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn before_giving(stream: *mut FILE, length: u64) -> Before {
    // SAFETY: the caller's promise.
    unsafe {
        if real::threads() {
            return before_shared(stream);
        }
        let marked = !has_room(stream, length);
        let start = if marked { interrupted::begin(number(stream)) } else { sys::now() };
        Before { start, pending: pending(stream), marked, shared: None }
    }
}

/// The same, for a call after which [`after`] is not called.
///
/// # Safety
/// `stream` must be open.
pub unsafe fn peek(stream: *mut FILE) -> Before {
    // SAFETY: the caller's promise.
    let pending = unsafe { pending(stream) };
    Before::new(sys::now(), pending)
}

fn leave(before: Before) {
    if let Some(shared) = before.shared {
        UNDER_WAY[shared.index].fetch_sub(1, AcqRel);
    }
}

/// # Safety
/// `stream` must be open.
unsafe fn before_shared(stream: *mut FILE) -> Before {
    let entered = remember(stream).map(|index| {
        let alone = UNDER_WAY[index].fetch_add(1, AcqRel) == 0;
        (index, alone, calls_ended(index))
    });
    // SAFETY: the caller's promise.
    let (pending, fd) = unsafe { (pending(stream), number(stream)) };
    let shared = entered.map(|(index, alone, calls)| {
        // Another thread's call may have begun before the look and put its bytes there without having
        // accounted for them: so alone is who was it before the look and after.
        fence(SeqCst);
        let alone = alone && UNDER_WAY[index].load(Acquire) == 1 && calls_ended(index) == calls;
        Shared { index, calls, alone }
    });
    Before { start: interrupted::begin(fd), pending, marked: true, shared }
}

fn calls_ended(index: usize) -> u32 {
    (ACCOUNTS[index].load(Acquire) >> 32) as u32
}

/// Brings a stream's account up to date, and corrects `before` by it: what two threads saw before their
/// calls may be the same bytes, and what one saw afterwards may be the other's.
///
/// A call that had the stream to itself believes what it saw, which also covers bytes that an inlined
/// putc put there unseen. Any other call goes on from where the last one left the account. So the bytes
/// flushed come out right in sum, if not always at the right call.
///
/// # Safety
/// `stream` must be open.
#[inline(never)]
unsafe fn account(shared: Shared, stream: *mut FILE, before: u32, accepted: i64) -> (u32, u32) {
    let place = &ACCOUNTS[shared.index];
    let accepted = accepted.max(0) as u64;
    let (mut start, mut end) = (before, 0);
    for _ in 0..64 {
        let seen = place.load(Acquire);
        let calls = (seen >> 32) as u32;
        start = if shared.alone && calls == shared.calls { before } else { seen as u32 };
        // Looked at after the account was, so that no call that has ended meanwhile is left out.
        // SAFETY: the caller's promise.
        let after = unsafe { pending(stream) };
        end = (u64::from(start) + accepted).min(u64::from(after)) as u32;
        let next = u64::from(calls.wrapping_add(1)) << 32 | u64::from(end);
        if place.compare_exchange(seen, next, AcqRel, Acquire).is_ok() {
            break;
        }
    }
    UNDER_WAY[shared.index].fetch_sub(1, AcqRel);
    (start, end)
}

/// Records a call that gave bytes to a stream, or made it write what it had. `accepted` is negative if
/// the call failed.
///
/// # Safety
/// `stream` must be open.
#[inline(always)]
pub unsafe fn after(op: Op, stream: *mut FILE, before: Before, requested: u64, accepted: i64, flags: u32) {
    // SAFETY: the caller's promise.
    unsafe { after_inside(op, stream, before, requested, accepted, flags) };
    if before.marked {
        interrupted::end(guard::thread(), before.start);
    }
}

/// # Safety
/// `stream` must be open.
#[inline(always)]
unsafe fn after_inside(op: Op, stream: *mut FILE, before: Before, requested: u64, accepted: i64, flags: u32) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return leave(before) };
    // SAFETY: the caller's promise.
    unsafe {
        let fd = descriptor(stream);
        if fd < 0 {
            return leave(before);
        }
        let Some(slot) = buffer::ready(&inside) else { return leave(before) };
        let Some((file, goes_on)) = files::known_to(slot, fd, op) else { return leave(before) };
        remember(stream);
        // fwrite tells a failure by accepting less than it was given.
        let failed = accepted < 0 || op == Op::StreamWrite && (accepted as u64) < requested;
        let counted = if op == Op::StreamWrite { accepted } else { 0 };
        let (mut held, mut left) = (before.pending, pending(stream));
        if let Some(shared) = before.shared {
            (held, left) = account(shared, stream, before.pending, counted);
        }
        let buffering = buffering(stream);
        let call = Call {
            start: before.start,
            duration: end.saturating_sub(before.start),
            offset: file.position_if_known(),
            requested,
            returned: accepted,
            pending: Some((held, left)),
        };
        // Nothing left the buffer: then all that changed is what waits in it.
        let stays = u64::from(held).wrapping_add(requested) == u64::from(left);
        if goes_on
            && stays
            && !failed
            && flags == 0
            && slot.buffers_as(buffering.pack())
            && buffer::put_short(slot, &call)
        {
            return;
        }
        after_whole(&inside, slot, op, &call, flags, fd, file, buffering, failed);
        buffer::finish(slot, end);
    }
}

#[inline(never)]
#[allow(
    clippy::too_many_arguments,
    reason = "it is one function with the one above, but for its place on the stack"
)]
fn after_whole(
    inside: &Inside,
    slot: &Slot,
    op: Op,
    call: &Call,
    flags: u32,
    fd: c_int,
    file: &File,
    buffering: Buffering,
    failed: bool,
) {
    let mut event = record::event(inside, op, call.start, call.start.wrapping_add(call.duration));
    record::about(&mut event, fd, file);
    (event.requested, event.returned) = (call.requested, call.returned);
    (event.pending_before, event.pending_after) = call.pending.unwrap_or_default();
    event.flags |= flags;
    describe(&mut event, buffering);
    if failed {
        event.errno = inside.errno();
    }
    let counted = if op == Op::StreamWrite { event.returned } else { 0 };
    settle(&mut event, fd, file, counted, failed);
    let may_go_on = op == Op::StreamWrite && flags == 0 && !failed && inside.thread().is_known();
    let key = if may_go_on { buffer::key(file.number(), op) } else { 0 };
    buffer::put_whole(slot, &event, key, buffering.pack());
}

/// Fills in how the stream buffers.
fn describe(event: &mut Event, buffering: Buffering) {
    event.buffer = buffering.size;
    event.flags |= flag::STREAM_KNOWN;
    if buffering.size <= 1 {
        event.flags |= flag::UNBUFFERED;
    } else if buffering.by_line {
        event.flags |= flag::LINE_BUFFERED;
    }
}

/// Finds the place of what was flushed, or would land next.
fn settle(event: &mut Event, fd: c_int, file: &File, accepted: i64, failed: bool) {
    if failed {
        settle_failed(event, fd, file);
        return;
    }
    let gone = i64::from(event.pending_before) + accepted.max(0) - i64::from(event.pending_after);
    if gone < 0 {
        // The stream took in more than this call gave it: another thread's bytes, or inlined putc.
        event.pending_before = (i64::from(event.pending_before) - gone) as u32;
    }
    event.offset = if gone > 0 {
        file.advance(guard::thread(), fd, gone, event.start)
    } else {
        file.position_if_known()
    };
}

/// After a failure the C library has thrown its buffer away, and its figures no longer tell what was
/// written; the descriptor's position does, where it is counted along.
#[cold]
fn settle_failed(event: &mut Event, fd: c_int, file: &File) {
    event.flags |= flag::ESTIMATED;
    let began = file.position_if_known();
    event.offset = began;
    let stands = if began == cawl_wire::UNKNOWN_OFFSET { None } else { sys::position(fd) };
    let moved = stands.map_or(0, |at| at.saturating_sub(began));
    let accounted_for = u64::from(event.pending_after) + moved;
    if event.returned > 0 {
        // Of what was accepted, the C library lost the rest with its buffer.
        event.returned = event.returned.min(accounted_for as i64);
    }
    event.pending_before = accounted_for.saturating_sub(event.returned.max(0) as u64) as u32;
    if let Some(at) = stands {
        file.moved_to(guard::thread(), fd, at, event.start);
    }
}

/// A stream was opened on a descriptor. `own`: by the same call, so that the descriptor is new.
///
/// # Safety
/// `stream` must be open.
pub unsafe fn opened(start: u64, stream: *mut FILE, own: bool, flags: u32) {
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if !uplink::is_ours() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let fd = descriptor(stream);
        let writable = real::__fwritable(stream) != 0;
        if fd < 0 {
            return;
        }
        let size = if own { files::opened(fd, writable) } else { None };
        if !writable {
            return;
        }
        let Some(file) = files::known(fd) else { return };
        let unplaced = UNPLACED.load(Relaxed);
        if remember(stream).is_none() {
            UNPLACED.store(unplaced + 1, Relaxed);
        }
        let mut event = record::event(&inside, Op::StreamOpen, start, end);
        record::about(&mut event, fd, file);
        event.flags |= flags;
        event.returned = i64::from(fd);
        let size = size.or_else(|| sys::fstat(fd).map(|stat| stat.st_size as u64));
        event.requested = size.unwrap_or(0);
        buffer::push(&inside, &event);
    }
}

/// Looks at a stream that is about to be closed, and forgets it and its descriptor. The event, to be
/// completed by [`closed`], is None if the stream never could write.
///
/// # Safety
/// `stream` must be open.
pub unsafe fn closing(stream: *mut FILE) -> Option<Event> {
    // SAFETY: the caller's promise.
    if !forget(stream) && UNPLACED.load(Relaxed) > 0 && unsafe { real::__fwritable(stream) } != 0 {
        UNPLACED.fetch_sub(1, Relaxed);
    }
    let inside = guard::enter()?;
    // SAFETY: the caller's promise.
    unsafe {
        let fd = descriptor(stream);
        if fd < 0 || !uplink::is_ours() {
            return None;
        }
        let held = pending(stream);
        // What a fork child knows from its parent is not told to its own session yet.
        let found =
            if held > 0 { files::known(fd) } else { files::if_known(fd).and_then(|_| files::known(fd)) };
        let event = found.filter(|file| file.flags() & flag::WRITABLE != 0).map(|file| {
            let mut event = record::event(&inside, Op::StreamClose, 0, 0);
            record::about(&mut event, fd, file);
            event.pending_before = held;
            describe(&mut event, buffering(stream));
            event.pending_after = 0;
            event.offset = if held > 0 { file.next_place(fd) } else { file.position_if_known() };
            event
        });
        files::forget(fd);
        event
    }
}

/// The stream of [`closing`] was closed.
pub fn closed(event: Option<Event>, start: u64, returned: i64) {
    let Some(mut event) = event else { return };
    let end = sys::now();
    let Some(inside) = guard::enter_or_count() else { return };
    event.start = start;
    event.duration = end.saturating_sub(start);
    event.returned = returned;
    if returned < 0 {
        event.errno = inside.errno();
        event.flags |= flag::ESTIMATED;
    }
    buffer::push(&inside, &event);
}

/// At exit: what each stream still holds, which the C library writes after us. Returns the sum.
pub fn last_look(inside: &Inside) -> u64 {
    let mut sum = 0;
    let now = sys::now();
    count_unplaced();
    for look in (0..SIZE).filter_map(look_at) {
        let (fd, held) = (look.fd, look.pending.unwrap_or(0));
        if held == 0 || fd < 0 {
            continue;
        }
        let Some(file) = files::known(fd) else { continue };
        let mut event = record::event(inside, Op::StreamExit, now, now);
        record::about(&mut event, fd, file);
        event.pending_before = held;
        describe(&mut event, look.buffering);
        event.pending_after = 0;
        event.flags |= flag::ESTIMATED;
        event.offset = file.next_place(fd);
        buffer::push(inside, &event);
        sum += u64::from(held);
    }
    sum
}
