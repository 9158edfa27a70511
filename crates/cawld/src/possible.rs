//! What a process can have done.
//!
//! The law of this module: **a record that tells of more than its process can have done is no call.** It is
//! left out and counted as lost. A call lies between the begin of its session and now by this machine's
//! clock; it moves no more bytes than the kernel takes at a time, than memory copies in its time, or than the
//! machine has memory; and all calls together move no more than memory can copy. So what models do for a call
//! is bounded, whatever a record says, and no clock of theirs runs ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cawl_core::{Bytes, Nanos, Rate, Time};
use cawl_wire::{Event, FileKind, Op, flag};

use crate::batch::Batch;

/// Most bytes of a call that moves them one by one (`MAX_RW_COUNT`).
const MAX_AT_A_TIME: u64 = 0x7fff_f000;
/// Most asynchronous writes that a call hands over, as far as they are looked at.
const MAX_REQUESTS: u64 = 128;
/// More than one processor copies in a second.
const COPYING: Rate = Rate::per_second(64e9);
/// More than all of a machine's copy.
const COPYING_IN_ALL: Rate = Rate::per_second(200e9);
/// Bytes that a call may move in no time by the clock.
const AT_ONCE: u64 = 32 << 20;
/// Bytes that all calls together may move in no time by the clock.
const AT_ONCE_IN_ALL: u64 = 8 << 30;
/// A call may have begun this long before its session did, in a process that was not traced then.
const BEFORE: Nanos = Nanos::seconds(600.0);
/// What a tracer's clock may be ahead of the machine's, and for each second of its session: ticks of the
/// processor's counter are converted by few readings of both clocks.
const AHEAD: Nanos = Nanos::seconds(1.0);
const DRIFT: f64 = 1.0 / 64.0;

/// What the calls of a process, or of all of a user's processes, moved.
#[derive(Debug)]
pub struct Moved {
    since: Time,
    bytes: AtomicU64,
}

impl Moved {
    /// Nothing so far.
    pub fn new() -> Moved {
        Moved { since: cawl_host::now(), bytes: AtomicU64::new(0) }
    }

    /// Adds bytes; false if they are too many by now.
    fn add(&self, bytes: u64, now: Time) -> bool {
        let most = Bytes(AT_ONCE_IN_ALL) + COPYING_IN_ALL * now.since(self.since);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= most.0;
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// What calls of one session can be.
pub struct Possible {
    /// Begin of the session.
    pub started: Time,
    /// Memory of the machine, in bytes.
    memory: u64,
    moved: Arc<Moved>,
}

impl Possible {
    /// Of a session that begins now, by its own words at `told`.
    pub fn new(told: Time, memory: Bytes, moved: Arc<Moved>) -> Possible {
        Possible { started: told.min(cawl_host::now()), memory: memory.0, moved }
    }

    /// A moment that the session tells of, as far as it can be.
    pub fn moment(&self, told: Time) -> Time {
        told.clamp(self.started, cawl_host::now().max(self.started))
    }

    /// Takes calls out that cannot be, and ends the others no later than now; how many were taken out.
    pub fn sift(&self, batch: &mut Batch) -> u64 {
        let now = cawl_host::now();
        let first = Time(self.started.0.saturating_sub(BEFORE.get() as u64));
        let last = now + AHEAD + now.since(self.started) * DRIFT;
        let mut refused = 0;
        batch.events.retain_mut(|event| {
            if event.has(flag::COPIED_UP) && event.requested > copied_in(event.duration) {
                // The filesystem below shares blocks: nothing was copied.
                event.flags &= !flag::COPIED_UP;
            }
            if event.op == Op::CopyRange && event.returned.max(0) as u64 > copied_in(event.duration) {
                // So does this one.
                event.flags |= flag::ESTIMATED;
            }
            let bytes = self.bytes(event);
            let can_be = event.start >= first.0
                && event.end() <= last.0
                && bytes.is_some_and(|bytes| self.moved.add(bytes, now));
            if can_be {
                event.start -= event.end().saturating_sub(now.0).min(event.start);
            }
            refused += u64::from(!can_be);
            can_be
        });
        batch.coalesced.retain(|calls| {
            let can_be = calls.first >= first.0 && calls.end <= last.0;
            refused += if can_be { 0 } else { calls.calls };
            can_be
        });
        refused
    }

    /// Bytes that the call moved, of those that count; None if it cannot have moved them.
    fn bytes(&self, event: &Event) -> Option<u64> {
        let returned = event.returned.max(0) as u64;
        let flushed = event.flushed().unwrap_or(0);
        let copied = || copied_in(event.duration);
        let is_file = event.kind == FileKind::Regular;
        let (bytes, most) = match event.op {
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::Read | Op::Pread if is_file => {
                (returned, copied().min(MAX_AT_A_TIME))
            }
            Op::StreamWrite | Op::StreamRead | Op::StreamFlush | Op::StreamSeek | Op::StreamClose
                if is_file =>
            {
                // A buffer is in memory.
                let bytes = if event.op.moves_bytes() { returned.max(flushed) } else { flushed };
                (bytes, copied().min(self.memory))
            }
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::Read | Op::Pread => {
                return (returned <= MAX_AT_A_TIME).then_some(0);
            }
            Op::Sendfile | Op::Splice if is_file => (returned, copied().min(MAX_AT_A_TIME)),
            Op::Sendfile | Op::Splice => return (returned <= MAX_AT_A_TIME).then_some(0),
            Op::AioWrite => (returned, MAX_REQUESTS * MAX_AT_A_TIME),
            Op::CopyRange if !event.has(flag::ESTIMATED) => (returned, u64::MAX),
            Op::MmapWrite => (returned, self.memory),
            Op::StreamExit => (event.pending_before.into(), self.memory),
            // Of each range at least half.
            Op::Resident => {
                let half = u64::from(event.requested.count_ones()).saturating_mul(event.offset / 2);
                return (returned.max(half) <= self.memory).then_some(0);
            }
            Op::Open | Op::StreamOpen if event.has(flag::COPIED_UP) => (event.requested, copied()),
            _ => return Some(0),
        };
        (bytes <= most).then_some(bytes)
    }
}

/// Bytes that memory copies in this time, in ns.
fn copied_in(duration: u64) -> u64 {
    (Bytes(AT_ONCE) + COPYING * Nanos::new(duration as f64)).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::ring::CoalescedCalls;

    const GIB: u64 = 1 << 30;
    const MS: u64 = 1_000_000;

    fn possible(age: Nanos) -> Possible {
        let now = cawl_host::now();
        let since = Time(now.0.saturating_sub(age.get() as u64));
        let moved = Arc::new(Moved { since, bytes: AtomicU64::new(0) });
        Possible { started: since, memory: 4 * GIB, moved }
    }

    /// A call that ends `ended` ms ago.
    fn call(op: Op, bytes: u64, ms: u64, ended: u64) -> Event {
        let start = cawl_host::now().0.saturating_sub((ended + ms) * MS);
        let mut event = Event { start, duration: ms * MS, kind: FileKind::Regular, ..Event::new(op) };
        (event.requested, event.returned) = (bytes, bytes as i64);
        event
    }

    fn is_taken(event: Event) -> bool {
        let mut batch = Batch { events: vec![event], ..Batch::default() };
        let refused = possible(Nanos::seconds(100.0)).sift(&mut batch);
        assert_eq!(refused + batch.events.len() as u64, 1);
        refused == 0
    }

    #[test]
    fn a_call_moves_what_memory_copies_in_its_time_and_what_the_machine_has() {
        for (event, taken) in [
            (call(Op::Write, GIB, 500, 0), true),
            (call(Op::Write, GIB, 1, 0), false),
            (call(Op::Write, 3 * GIB, 500, 0), false),
            (call(Op::StreamWrite, 3 * GIB, 500, 0), true),
            (call(Op::StreamWrite, 1 << 40, 500, 0), false),
            (call(Op::StreamWrite, 5 * GIB, 50_000, 0), false),
            (call(Op::Read, GIB, 1, 0), false),
            (call(Op::MmapWrite, GIB, 0, 0), true),
            (call(Op::MmapWrite, (1 << 40) - 1, 0, 0), false),
            (call(Op::CopyRange, 1 << 40, 1, 0), true),
            (call(Op::Sendfile, 1 << 40, 500, 0), false),
            (call(Op::Sendfile, GIB, 1, 0), false),
            (call(Op::Sendfile, GIB, 500, 0), true),
            (Event { kind: FileKind::Socket, ..call(Op::Sendfile, GIB, 0, 0) }, true),
            // Nothing is copied.
            (Event { kind: FileKind::Char, ..call(Op::Write, GIB, 0, 0) }, true),
            (
                Event {
                    pending_before: u32::MAX,
                    flags: flag::STREAM_KNOWN,
                    ..call(Op::StreamFlush, 0, 1, 0)
                },
                false,
            ),
        ] {
            assert_eq!(is_taken(event), taken, "{event:?}");
        }
    }

    #[test]
    fn a_call_lies_between_its_session_s_begin_and_now() {
        let now = cawl_host::now().0;
        let at = |start: u64, duration: u64| Event { start, duration, ..call(Op::Write, 1, 0, 0) };
        assert!(is_taken(at(now, 0)) && is_taken(at(now - 50_000 * MS, 1)));
        for (start, duration) in [
            (now + 60_000 * MS, 0),
            (u64::MAX, u64::MAX),
            (0, u64::MAX),
            (now, u64::MAX),
            (now, 3_600_000 * MS),
        ] {
            assert!(!is_taken(at(start, duration)), "{start} {duration}");
        }
        let late = possible(Nanos::seconds(1.0));
        let before = Time(late.started.0.saturating_sub(3_600_000 * MS));
        assert_eq!((late.moment(before), late.moment(Time(u64::MAX)) < Time(u64::MAX)), (late.started, true));
        // What is ahead by little ends now.
        let mut batch = Batch { events: vec![at(now + 500 * MS, MS)], ..Batch::default() };
        assert_eq!(late.sift(&mut batch), 0);
        assert!(batch.events[0].end() <= cawl_host::now().0 && batch.events[0].duration == MS);
        let like = Event::new(Op::Write);
        let calls =
            CoalescedCalls { like, calls: 7, bytes: 7, duration: 7, first: now, last: now, end: u64::MAX };
        let mut batch = Batch { coalesced: vec![calls], ..Batch::default() };
        assert_eq!((late.sift(&mut batch), batch.coalesced.len()), (7, 0));
    }

    /// An open copied up, and a range was copied, what memory copies in its time; else blocks were shared.
    #[test]
    fn what_is_copied_faster_than_memory_copies_was_shared() {
        let open = |bytes| Event { flags: flag::COPIED_UP, requested: bytes, ..call(Op::Open, 0, 10, 0) };
        for (event, flag, has) in [
            (open(GIB / 2), flag::COPIED_UP, true),
            (open(1 << 40), flag::COPIED_UP, false),
            (call(Op::CopyRange, GIB, 1, 0), flag::ESTIMATED, true),
            (call(Op::CopyRange, GIB, 100, 0), flag::ESTIMATED, false),
        ] {
            let mut batch = Batch { events: vec![event], ..Batch::default() };
            assert_eq!(possible(Nanos::seconds(1.0)).sift(&mut batch), 0);
            assert_eq!(batch.events[0].has(flag), has, "{event:?}");
        }
    }

    #[test]
    fn all_calls_together_move_no_more_than_memory_copies() {
        let possible = possible(Nanos::ZERO);
        let mut batch = Batch { events: vec![call(Op::AioWrite, GIB, 0, 0); 100], ..Batch::default() };
        let refused = possible.sift(&mut batch);
        assert!((50..=92).contains(&refused), "{refused}");
    }
}
