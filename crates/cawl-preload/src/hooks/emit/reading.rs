//! Events of reads: which ones are recorded, what of a file was cached before the first, and what a stream's
//! call made the kernel read.

use super::{about, event, record};
use crate::base::guard::{self, Inside};
use crate::base::settings::{all_reads, reads};
use crate::base::{clock, sys};
use crate::session;
use crate::state::descriptors::{self, Descriptor};
use crate::state::glibc_file::{Filled, Stream};
use crate::state::residency;
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
        if kind == FileKind::Regular && residency::note(file.identity()) {
            tell_resident(&inside, fd, file);
        }
    }
    descriptors::note_reads(fd, recorded);
    recorded
}

/// Tells what of a file is cached.
#[inline(never)]
fn tell_resident(inside: &Inside, fd: c_int, file: &Descriptor) {
    let Some(length) = sys::fstat_for(fd, |stat| stat.st_size as u64) else { return };
    let Some(found) = residency::ask(fd, length) else { return };
    let now = clock::now();
    record(inside, Op::Resident, (now, now), Some((fd, file)), found.bytes as i64, |event| {
        (event.requested, event.offset) = (found.ranges, found.range);
        event.flags |= if found.sampled { flag::ESTIMATED } else { 0 };
    });
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

/// The same where the kernel may be asked. Not part of the hook: what finds out about a descriptor needs the
/// stack before.
#[inline(never)]
fn taking_more<T: Copy>(
    stream: Stream,
    wanted: u64,
    call: impl FnOnce() -> T,
    got: impl FnOnce(T) -> Option<u64>,
) -> T {
    let before = before(stream);
    let returned = call();
    let after = stream.filled();
    if before.position.is_some() || after.is_other(&before.filled) || after.left() == 0 {
        taken(stream, &before, &after, wanted, got(returned));
    } else if let Some(got) = got(returned)
        && got > before.filled.left()
    {
        taken(stream, &before, &after, wanted, Some(got));
    }
    returned
}

#[inline(always)]
fn before(stream: Stream) -> Before {
    let filled = stream.filled();
    let position = if filled.is_aside { sys::position(stream.number()) } else { None };
    Before { start: clock::now(), filled, position }
}

/// Makes a call that moves a stream, and records what the kernel read for that: the C library fills the buffer
/// from the block in which the new place is.
#[inline(always)]
pub fn moving<T>(stream: Stream, call: impl FnOnce() -> T) -> T {
    if !is_recorded(stream.number()) {
        return call();
    }
    let mut before = before(stream);
    before.position = sys::position(stream.number());
    let returned = call();
    moved(stream, &before);
    returned
}

#[cold]
#[inline(never)]
fn moved(stream: Stream, before: &Before) {
    let end = clock::now();
    let (fd, after) = (stream.number(), stream.filled());
    let stands = sys::position(fd);
    if stands == before.position || after.read() == 0 {
        return;
    }
    let taken = Taken {
        got: after.read() - after.left().min(after.read()),
        before: 0,
        after: after.left(),
        guessed: false,
    };
    record_taken(stream, (before.start, end), fd, &taken, 1, false, stands);
}

/// What a call got, and what was read ahead before it and after.
struct Taken {
    got: u64,
    before: u64,
    after: u64,
    guessed: bool,
}

impl Taken {
    /// None if the kernel was not asked.
    fn of(before: &Before, after: &Filled, read: Option<u64>, got: Option<u64>) -> Option<Taken> {
        let met_end = after.at_end && !before.filled.at_end;
        if let Some(read) = read {
            // All that is known is the sum.
            let got = got.unwrap_or(read);
            let (before, after) = (got.saturating_sub(read), read.saturating_sub(got));
            return (read > 0 || met_end).then_some(Taken { got, before, after, guessed: false });
        }
        let (held, left) = (before.filled.left(), after.left());
        let given = match got {
            Some(got) => (got + left).saturating_sub(held),
            None if after.is_other(&before.filled) => after.read(),
            None => 0,
        };
        let taken = Taken {
            got: got.unwrap_or((given + held).saturating_sub(left)),
            before: held,
            after: left,
            guessed: got.is_none(),
        };
        (given > 0 || met_end || after.failed && !before.filled.failed).then_some(taken)
    }
}

/// Records what a call took from a stream, if the kernel was asked for more.
#[cold]
#[inline(never)]
fn taken(stream: Stream, before: &Before, after: &Filled, wanted: u64, got: Option<u64>) {
    let end = clock::now();
    let fd = stream.number();
    let stands = sys::position(fd);
    let read = before.position.zip(stands).map(|(from, to)| to.saturating_sub(from));
    let Some(taken) = Taken::of(before, after, read, got) else { return };
    let failed = taken.got == 0 && after.failed && !before.filled.failed;
    record_taken(stream, (before.start, end), fd, &taken, wanted, failed, stands);
}

fn record_taken(
    stream: Stream,
    times: (u64, u64),
    fd: c_int,
    taken: &Taken,
    wanted: u64,
    failed: bool,
    stands: Option<u64>,
) {
    let Some(inside) = guard::enter_or_count() else { return };
    let Some(slot) = session::open_slot(&inside) else { return };
    // It was known before the call.
    let Some(file) = descriptors::known(fd) else { return guard::count_unseen() };
    tell(&inside, slot, stream, times, (fd, file), taken, wanted, failed, stands);
    session::finish(slot, times.1);
}

#[inline(never)]
#[allow(clippy::too_many_arguments, reason = "it is one function with the one above, but for its stack")]
fn tell(
    inside: &Inside,
    slot: &Slot,
    stream: Stream,
    (start, end): (u64, u64),
    (fd, file): (c_int, &Descriptor),
    taken: &Taken,
    wanted: u64,
    failed: bool,
    stands: Option<u64>,
) {
    let mut event = event(inside, Op::StreamRead, start, end);
    about(&mut event, fd, file);
    (event.pending_before, event.pending_after) = (taken.before as u32, taken.after as u32);
    event.requested = if wanted > 1 && wanted < u64::MAX { wanted } else { taken.got };
    event.returned = taken.got as i64;
    super::stream::describe(&mut event, stream.buffering());
    event.flags |= if taken.guessed { flag::ESTIMATED } else { 0 };
    let read = event.refilled().unwrap_or(0);
    event.offset = stands.map_or(UNKNOWN_OFFSET, |at| at.saturating_sub(read));
    if failed {
        (event.returned, event.errno) = (-1, inside.errno());
    }
    session::put(slot, &event, 0, 0);
}
