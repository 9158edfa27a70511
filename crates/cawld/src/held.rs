//! Calls of one thread that wait for their turn.
//!
//! The law of this module: what goes in comes out, in the same order. A fast program makes a million calls in the
//! time for which they are held back, and memory that is touched for the first time costs more than a model's
//! opinion; so a call that goes on as the one before is held as it stands in a ring, in 16 bytes.

use std::collections::VecDeque;

use cawl_core::Time;
use cawl_wire::ring::{Call, Expected, SHORT};
use cawl_wire::{Event, flag};

/// Calls in order of arrival.
#[derive(Default)]
pub struct Held {
    /// A short record for each call, or zeros for one that is whole.
    records: VecDeque<[u32; 4]>,
    whole: VecDeque<Event>,
    /// The latest whole call, and what would go on from the latest of all: of those put in, and of those taken out.
    put: Option<(Event, Expected)>,
    taken: Option<(Event, Expected)>,
}

fn is_stream(event: &Event) -> bool {
    event.has(flag::STREAM_KNOWN)
}

/// True if the calls differ only in what a short record tells.
fn alike(one: &Event, other: &Event) -> bool {
    let about = |event: &Event| (event.file(), event.pid, event.tid, event.fd, event.flags);
    let how = |event: &Event| (event.op, event.kind, event.errno, event.buffer, event.aux);
    let pending = |event: &Event| (event.pending_before, event.pending_after);
    about(one) == about(other)
        && how(one) == how(other)
        && (is_stream(one) || pending(one) == (0, 0) && pending(other) == (0, 0))
}

impl Held {
    /// Adds a call.
    pub fn push(&mut self, event: Event) {
        let stream = is_stream(&event);
        if let Some((before, expected)) = &mut self.put
            && alike(before, &event)
        {
            let Event { start, duration, offset, requested, returned, .. } = event;
            let pending = stream.then_some((event.pending_before, event.pending_after));
            let call = Call { start, duration, offset, requested, returned, pending };
            if let Some(record) = expected.shorten(0, &call) {
                self.records.push_back(record);
                *expected = expected.next(start, requested as u32, stream);
                return;
            }
        }
        self.records.push_back([0; 4]);
        self.whole.push_back(event);
        self.put = Some((event, Expected::after(&event)));
    }

    /// When the first call began.
    pub fn first(&self) -> Option<Time> {
        let [kind, gap, ..] = self.records.front()?;
        let start = match &self.taken {
            Some((_, expected)) if kind & SHORT != 0 => expected.start.wrapping_add(u64::from(*gap)),
            _ => self.whole.front()?.start,
        };
        Some(Time(start))
    }

    /// Takes the first call out.
    pub fn pop(&mut self) -> Option<Event> {
        let [kind, gap, duration, requested] = self.records.pop_front()?;
        match &mut self.taken {
            Some((whole, expected)) if kind & SHORT != 0 => {
                let (stream, before) = (is_stream(whole), *expected);
                *expected = before.next(before.start.wrapping_add(u64::from(gap)), requested, stream);
                let (pending_before, pending_after) =
                    if stream { (before.pending, expected.pending) } else { (0, 0) };
                Some(Event {
                    start: expected.start,
                    duration: u64::from(duration),
                    offset: before.offset,
                    requested: u64::from(requested),
                    returned: i64::from(requested),
                    pending_before,
                    pending_after,
                    ..*whole
                })
            }
            taken => {
                let event = self.whole.pop_front()?;
                *taken = Some((event, Expected::after(&event)));
                Some(event)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::{FileKind, Op, UNKNOWN_OFFSET};

    #[test]
    fn what_goes_in_comes_out() {
        let mut state = 88_172_645_463_325_252u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for stream in [false, true] {
            let (mut held, mut expected) = (Held::default(), VecDeque::new());
            let mut event = Event::new(if stream { Op::StreamWrite } else { Op::Write });
            (event.kind, event.offset, event.flags) = (FileKind::Regular, 0, flag::WRITABLE);
            if stream {
                event.flags |= flag::STREAM_KNOWN;
            }
            for _ in 0..100_000 {
                let next = Expected::after(&event);
                (event.start, event.duration) = (event.start + random(1000), random(900));
                (event.offset, event.pending_before) = (next.offset, next.pending);
                event.requested = random(5000);
                (event.returned, event.errno) = (event.requested as i64, 0);
                event.pending_after =
                    next.pending.wrapping_add(if stream { event.requested as u32 } else { 0 });
                match random(60) {
                    0 => (event.returned, event.errno) = (-1, 28),
                    1 => event.offset = random(1 << 40),
                    2 => event.offset = UNKNOWN_OFFSET,
                    3 => event.requested = random(u64::MAX),
                    4 => event.duration = random(u64::MAX),
                    5 => event.start = event.start.saturating_sub(5000),
                    6 if stream => event.pending_after = random(100) as u32,
                    7 => event.fd ^= 1,
                    8 => event.aux ^= 1,
                    9 => event.birth ^= 1,
                    10 => event.start += random(1 << 40),
                    _ => {}
                }
                held.push(event);
                expected.push_back(event);
                while random(2) == 0 && !expected.is_empty() {
                    assert_eq!(held.first(), expected.front().map(|event| Time(event.start)));
                    assert_eq!(held.pop(), expected.pop_front());
                }
            }
            while let Some(event) = expected.pop_front() {
                assert_eq!(held.pop(), Some(event));
            }
            assert!(held.pop().is_none() && held.first().is_none());
        }
    }
}
