//! Events of reads: which ones are recorded, and what a stream's call made the kernel read.

use super::{about, event, resident, stream};
use crate::base::guard::{self, Inside};
use crate::base::settings::{all_reads, reads};
use crate::base::{clock, sys};
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use crate::state::glibc_file::{Filled, Stream};
use crate::state::stream_table;
use crate::transport::slot::Slot;
use cawl_wire::{FileKind, Op, UNKNOWN_OFFSET, flag};
use core::ffi::c_int;

/// True if reads through this descriptor are recorded. At the first one the kernel is asked what of the file
/// is cached.
#[inline(always)]
pub fn is_recorded(fd: c_int) -> bool {
    reads() && descriptors::records_reads(fd).unwrap_or_else(|| find_out(fd))
}

#[cold]
#[inline(never)]
fn find_out(fd: c_int) -> bool {
    let Some(kind) = sys::fstat_for(fd, |stat| FileKind::from_mode(stat.st_mode)) else { return false };
    let recorded = kind == FileKind::Regular || all_reads();
    // In a handler that interrupts the tracer the call is counted as unseen, when it has been made.
    let Some(inside) = guard::enter() else { return recorded };
    if !session::is_ours() {
        return recorded;
    }
    if recorded {
        let Some(file) = session::learn(fd) else { return false };
        if kind == FileKind::Regular {
            resident::before_reads(&inside, fd, file);
        }
    }
    descriptors::note_reads(fd, recorded);
    recorded
}

/// A stream before a call that takes bytes from it.
#[derive(Clone, Copy)]
struct Before {
    start: u64,
    filled: Filled,
    /// Where the descriptor stood, if what the stream has read ahead does not tell how much is read.
    position: Option<u64>,
}

/// Makes a call that takes bytes from a stream, `wanted` at least, and records it if that made the kernel
/// read. `got`: bytes that the program got, if the result tells.
#[inline(always)]
pub fn taking<T: Copy>(
    stream: Stream,
    wanted: u64,
    call: impl FnOnce() -> T,
    got: impl FnOnce(T) -> Option<u64>,
) -> T {
    if stream.holds(wanted) || !is_recorded(stream.number()) {
        return call();
    }
    taking_more(stream, wanted, call, got)
}

/// Makes a call that takes bytes from a stream and may ask the kernel, and records it. Not part of the hook:
/// what finds out about a descriptor needs the stack before.
#[inline(never)]
fn taking_more<T: Copy>(
    stream: Stream,
    wanted: u64,
    call: impl FnOnce() -> T,
    got: impl FnOnce(T) -> Option<u64>,
) -> T {
    if stream.pending() > 0 {
        return turning(stream, call);
    }
    let before = before(stream);
    let returned = call();
    let after = stream.filled();
    let got = got(returned);
    let more = after.is_other(&before.filled) || after.left() == 0 || got > Some(before.filled.left());
    if (more || before.position.is_some())
        && let Some(taken) = Taken::find(stream, &before, &after, got)
    {
        record(stream, before.start, wanted, &taken);
    }
    returned
}

/// Makes a call that writes out what is pending before it reads: it is recorded as that.
#[cold]
#[inline(never)]
fn turning<T>(stream: Stream, call: impl FnOnce() -> T) -> T {
    let before = stream_table::before(stream);
    let returned = call();
    stream::after(Op::StreamFlush, stream, before, 0, 0, 0);
    returned
}

#[inline(always)]
fn before(stream: Stream) -> Before {
    let filled = stream.filled();
    let position = if filled.is_aside { sys::position(stream.number()) } else { None };
    Before { start: clock::now(), filled, position }
}

/// Makes a call that moves a stream, and records what the kernel read for that: the C library fills the
/// buffer from the block in which the new place is.
#[inline(always)]
pub fn moving<T>(stream: Stream, call: impl FnOnce() -> T) -> T {
    if !is_recorded(stream.number()) {
        return call();
    }
    moving_more(stream, call)
}

#[inline(never)]
fn moving_more<T>(stream: Stream, call: impl FnOnce() -> T) -> T {
    let (stood, start) = (sys::position(stream.number()), clock::now());
    let returned = call();
    if let Some(taken) = Taken::by_move(stream, stood) {
        record(stream, start, 0, &taken);
    }
    returned
}

/// What a call got, and what was read ahead before it and after.
struct Taken {
    got: u64,
    before: u64,
    after: u64,
    /// When the call had ended.
    end: u64,
    /// Where the descriptor stood then.
    stands: u64,
    guessed: bool,
    failed: bool,
}

impl Taken {
    /// What a call took; None if the kernel was not asked.
    #[cold]
    #[inline(never)]
    fn find(stream: Stream, before: &Before, after: &Filled, got: Option<u64>) -> Option<Taken> {
        let end = clock::now();
        let stood = sys::position(stream.number());
        let met_end = after.at_end && !before.filled.at_end;
        let failed = after.failed && !before.filled.failed;
        let (held, left) = (before.filled.left(), after.left());
        let read = match (before.position.zip(stood), got) {
            (Some((from, to)), _) => to.saturating_sub(from),
            (None, Some(got)) => (got + left).saturating_sub(held),
            (None, None) if after.is_other(&before.filled) => after.read(),
            _ => 0,
        };
        if read == 0 && !met_end && !failed {
            return None;
        }
        let mut taken = Taken { got: 0, before: held, after: left, end, stands: 0, guessed: false, failed };
        if before.position.is_some() {
            // All that is known is the sum.
            taken.got = got.unwrap_or(read);
            (taken.before, taken.after) = (taken.got.saturating_sub(read), read.saturating_sub(taken.got));
        } else {
            taken.got = got.unwrap_or((read + held).saturating_sub(left));
            taken.guessed = got.is_none();
        }
        taken.stands = stood.unwrap_or(UNKNOWN_OFFSET);
        Some(taken)
    }

    /// What a move of a stream took, whose descriptor stood there before.
    #[cold]
    #[inline(never)]
    fn by_move(stream: Stream, stood: Option<u64>) -> Option<Taken> {
        let (end, after) = (clock::now(), stream.filled());
        let stands = sys::position(stream.number()).filter(|at| Some(*at) != stood && after.read() > 0)?;
        let left = after.left().min(after.read());
        let got = after.read() - left;
        Some(Taken { got, before: 0, after: left, end, stands, guessed: false, failed: false })
    }
}

/// Records what a call took from a stream.
#[cold]
#[inline(never)]
fn record(stream: Stream, start: u64, wanted: u64, taken: &Taken) {
    let Some(inside) = guard::enter_or_count() else { return };
    let Some(slot) = session::open_slot(&inside) else { return };
    // It was known before the call.
    let fd = stream.number();
    let Some(file) = descriptors::known(fd) else { return guard::count_unseen() };
    // Only counted, as in `stream`.
    file.is_look_due(taken.got as i64);
    tell(&inside, slot, stream, start, wanted, file, taken);
    session::finish(slot, taken.end);
}

#[inline(never)]
fn tell(
    inside: &Inside,
    slot: &Slot,
    stream: Stream,
    start: u64,
    wanted: u64,
    file: &Descriptor,
    taken: &Taken,
) {
    let mut event = event(inside, Op::StreamRead, start, taken.end);
    about(&mut event, stream.number(), file);
    (event.pending_before, event.pending_after) = (taken.before as u32, taken.after as u32);
    event.requested = if wanted > 1 && wanted < u64::MAX { wanted } else { taken.got };
    event.returned = taken.got as i64;
    stream::describe(&mut event, stream.buffering());
    event.flags |= if taken.guessed { flag::ESTIMATED } else { 0 };
    if taken.stands != UNKNOWN_OFFSET {
        event.offset = taken.stands.saturating_sub(event.refilled().unwrap_or(0));
    }
    if taken.failed && taken.got == 0 {
        (event.returned, event.errno) = (-1, inside.errno());
    }
    session::put(slot, &event, 0, 0);
}
