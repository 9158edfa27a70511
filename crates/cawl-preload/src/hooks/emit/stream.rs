//! Events of streams: what calls gave them and what left their buffers.

use super::{about, doubts, event, record};
use crate::base::guard::{self, Inside};
use crate::base::settings::reads;
use crate::base::thread::thread;
use crate::base::{clock, interrupted, sys};
use crate::session;
use crate::state::creation::Creation;
use crate::state::descriptors::{self, Descriptor, Opening};
use crate::state::glibc_file::{Buffering, Stream};
use crate::state::stream_table::{self, Before, account, before_giving, leave, remember};
use crate::transport::slot::{self, Slot};
use crate::tries;
use cawl_wire::ring::Call;
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use core::ffi::{c_char, c_int};

/// After a call that flushed all streams. A stream that was closed meanwhile may have been flushed by this
/// call or by that.
#[cold]
pub fn after_all(start: u64, returned: i64) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    stream_table::count_unplaced();
    for (held, look) in stream_table::held() {
        let Some(look) = look else {
            guard::count_unseen();
            continue;
        };
        let Some(slot) = session::open_slot(&inside) else { return };
        let Some(file) = session::learn(look.fd) else { continue };
        let call = Call {
            start,
            duration: end.saturating_sub(start),
            offset: file.position_if_known(),
            requested: 0,
            returned,
            pending: Some((held, look.pending.unwrap_or(0))),
        };
        after_whole(&inside, slot, Op::StreamFlush, &call, 0, look.fd, file, look.buffering, returned < 0);
        session::finish(slot, end);
    }
}

/// Makes a call that gives so many bytes to a stream (estimated if `flags` say so), of which it accepts what
/// `accepted` makes of its result, and records it.
#[inline(always)]
pub fn giving<T: Copy>(
    stream: Stream,
    requested: impl FnOnce() -> u64,
    flags: u32,
    call: impl FnOnce() -> T,
    accepted: impl FnOnce(T, u64) -> i64,
) -> T {
    if !session::active() {
        return call();
    }
    let requested = requested();
    let before = before_giving(stream, if flags == 0 { requested } else { u64::MAX });
    let returned = call();
    after(Op::StreamWrite, stream, before, requested, accepted(returned, requested), flags);
    returned
}

/// Records a call that gave bytes to a stream, or made it write what it had. `accepted` is negative if
/// the call failed.
#[inline(always)]
pub fn after(op: Op, stream: Stream, before: Before, requested: u64, accepted: i64, flags: u32) {
    after_inside(op, stream, before, requested, accepted, flags);
    if before.marked {
        interrupted::end(thread(), before.start);
    }
}

#[inline(always)]
fn after_inside(op: Op, stream: Stream, before: Before, requested: u64, accepted: i64, flags: u32) {
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return leave(before) };
    let fd = stream.descriptor();
    if fd < 0 {
        return leave(before);
    }
    let Some(slot) = session::open_slot(&inside) else { return leave(before) };
    let Some((file, goes_on)) = session::learn_continued(slot, fd, op) else { return leave(before) };
    remember(stream.file());
    // fwrite tells a failure by accepting less than it was given.
    let failed = accepted < 0 || op == Op::StreamWrite && (accepted as u64) < requested;
    let counted = if op == Op::StreamWrite { accepted } else { 0 };
    let (held, left) = account(stream, before, counted);
    let buffering = stream.buffering();
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
    let is_short = goes_on
        && stays
        && !failed
        && flags == 0
        && slot.buffers_as(buffering.pack())
        && slot::put_short(slot, &call);
    if is_short {
        return session::finish(slot, end);
    }
    // Only counted: the look, for which too little of the stack is left here, comes before the close.
    let gone = i64::from(held) + counted.max(0) - i64::from(left);
    if gone > 0 {
        file.is_look_due(gone);
    }
    after_whole(&inside, slot, op, &call, flags, fd, file, buffering, failed);
    session::finish(slot, end);
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
    file: &Descriptor,
    buffering: Buffering,
    failed: bool,
) {
    let mut event = event(inside, op, call.start, call.start.wrapping_add(call.duration));
    about(&mut event, fd, file);
    (event.requested, event.returned) = (call.requested, call.returned);
    (event.pending_before, event.pending_after) = call.pending.unwrap_or_default();
    event.flags |= flags;
    describe(&mut event, buffering);
    if failed {
        event.errno = inside.errno();
    }
    let counted = if op == Op::StreamWrite { event.returned } else { 0 };
    settle(&mut event, fd, file, counted, failed);
    let mut read = 0;
    if let Some(flushed) = event.flushed() {
        read = if flushed > 0 { file.take_stamps_read() } else { 0 };
        event.flags |= read;
        if tries::any() {
            event.duration += tries::written(op, fd, file, event.offset, flushed);
        }
    }
    let may_go_on = op == Op::StreamWrite && flags | read == 0 && !failed && inside.thread().is_known();
    let key = if may_go_on { slot::key(file.number(), op) } else { 0 };
    session::put(slot, &event, key, buffering.pack());
}

/// Fills in how the stream buffers.
pub fn describe(event: &mut Event, buffering: Buffering) {
    event.buffer = buffering.size;
    event.flags |= flag::STREAM_KNOWN;
    if buffering.size <= 1 {
        event.flags |= flag::UNBUFFERED;
    } else if buffering.by_line {
        event.flags |= flag::LINE_BUFFERED;
    }
}

/// Finds the place of what was flushed, or would land next.
fn settle(event: &mut Event, fd: c_int, file: &Descriptor, accepted: i64, failed: bool) {
    if failed {
        settle_failed(event, fd, file);
        return;
    }
    let gone = i64::from(event.pending_before) + accepted.max(0) - i64::from(event.pending_after);
    if gone < 0 {
        // The stream took in more than this call gave it: another thread's bytes, or inlined putc.
        event.pending_before = (i64::from(event.pending_before) - gone) as u32;
    }
    event.offset =
        if gone > 0 { file.advance(thread(), fd, gone, event.start) } else { file.position_if_known() };
}

/// After a failure the C library has thrown its buffer away, and its figures no longer tell what was
/// written; the descriptor's position does, where it is counted along.
#[cold]
fn settle_failed(event: &mut Event, fd: c_int, file: &Descriptor) {
    event.flags |= flag::ESTIMATED;
    let began = file.position_if_known();
    event.offset = began;
    let stands = if began == UNKNOWN_OFFSET { None } else { sys::position(fd) };
    let moved = stands.map_or(0, |at| at.saturating_sub(began));
    let accounted_for = u64::from(event.pending_after) + moved;
    if event.returned > 0 {
        // Of what was accepted, the C library lost the rest with its buffer.
        event.returned = event.returned.min(accounted_for as i64);
    }
    event.pending_before = accounted_for.saturating_sub(event.returned.max(0) as u64) as u32;
    if let Some(at) = stands {
        file.moved_to(thread(), fd, at, event.start);
    }
}

fn is_file(fd: c_int) -> bool {
    sys::fstat_for(fd, |stat| FileKind::from_mode(stat.st_mode)) == Some(FileKind::Regular)
}

/// A stream was opened on a descriptor. `own`: by the same call, so that the descriptor is new, and by this
/// name if it is not null.
pub fn opened(start: u64, stream: Stream, own: bool, name: *const c_char, how: (Creation, u32, u64)) {
    let (creation, flags, length) = how;
    let end = clock::now();
    let Some(inside) = guard::enter_or_count() else { return };
    if !session::is_ours() {
        return;
    }
    let fd = stream.descriptor();
    let writable = stream.is_writable();
    if fd < 0 {
        return;
    }
    let told = writable || reads();
    let mut created = 0;
    let mut size = None;
    if own {
        let since = creation.since();
        let opening = Opening { name, files_only: !writable, since, ..Opening::UNKNOWN };
        doubts::replaced(&inside, fd);
        let Some(found) = session::opened(fd, told.then_some(&opening)) else { return };
        created = creation.flag(fd, &found);
        created |= creation.copy_flag(fd, &found);
        size = Some(found.size());
    } else {
        descriptors::moves_unseen(fd);
        if !told || !writable && !is_file(fd) {
            return;
        }
    }
    let Some(file) = session::learn(fd) else { return };
    if writable {
        stream_table::place_new(stream);
    }
    let size = size.or_else(|| sys::fstat(fd).map(|stat| stat.st_size as u64)).unwrap_or(0);
    record(&inside, Op::StreamOpen, (start, end), Some((fd, file)), i64::from(fd), |event| {
        event.flags |= flags | created;
        (event.requested, event.offset) = (size, length);
    });
    if writable && file.kind() == FileKind::Regular {
        tries::opened(stream);
        if own && size == 0 {
            tries::opened_empty(fd);
        }
    }
}

/// Looks at a stream that is about to be closed, and forgets it and its descriptor. The event, to be
/// completed by [`closed`](super::closed), is None if the stream never could write, nor read a file.
pub fn closing(stream: Stream) -> Option<Event> {
    stream_table::displace(stream);
    let inside = guard::enter()?;
    let fd = stream.descriptor();
    if fd < 0 || !session::is_ours() {
        return None;
    }
    let held = stream.pending();
    // What a fork child knows from its parent is not told to its own session yet.
    let found = if held > 0 {
        session::learn(fd)
    } else {
        descriptors::if_known(fd).and_then(|_| session::learn(fd))
    };
    let found = found.and_then(|file| doubts::before_close(&inside, fd, file));
    let told = |file: &&Descriptor| file.is_writable() || reads() && file.kind() == FileKind::Regular;
    let event = found.filter(told).map(|file| {
        let mut event = event(&inside, Op::StreamClose, 0, 0);
        about(&mut event, fd, file);
        event.pending_before = held;
        describe(&mut event, stream.buffering());
        event.offset = if held > 0 { file.next_place(fd) } else { file.position_if_known() };
        event
    });
    tries::closing(fd);
    descriptors::forget(fd);
    event
}

/// At exit: what each stream still holds, which the C library writes after us. Returns the sum.
pub fn last_look(inside: &Inside) -> u64 {
    let mut sum = 0;
    let now = clock::now();
    stream_table::count_unplaced();
    for look in stream_table::all() {
        let (fd, held) = (look.fd, look.pending.unwrap_or(0));
        if held == 0 || fd < 0 {
            continue;
        }
        let Some(file) = session::learn(fd) else { continue };
        let offset = file.next_place(fd);
        record(inside, Op::StreamExit, (now, now), Some((fd, file)), 0, |event| {
            (event.pending_before, event.offset) = (held, offset);
            describe(event, look.buffering);
            event.flags |= flag::ESTIMATED;
        });
        sum += u64::from(held);
    }
    sum
}
