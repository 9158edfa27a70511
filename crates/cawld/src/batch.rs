//! Calls of one process as read.
//!
//! The law of this module: a call is decoded once, where it is read. Behind it there is the [`Event`]; its
//! times are the tracer's until [`Ticks`](crate::ticks::Ticks) has made ns of them.

use cawl_core::{Bytes, FileFacts, host_text};
use cawl_symbols::RawStack;
use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{Anchor, EVENT_LEN, Event, FileId, FileRecord};

/// Calls out of a ring, or out of a message.
#[derive(Debug, Default)]
pub struct Batch {
    /// The calls, each thread's in order.
    pub events: Vec<Event>,
    /// Files that were named. A thread names a file before its first call on it.
    pub files: Vec<FileFacts>,
    pub coalesced: Vec<CoalescedCalls>,
    /// Copied stacks of calls, each with the number that stands for it in its call.
    pub stacks: Vec<(u32, RawStack)>,
    /// Lines of /proc/PID/maps.
    pub modules: Vec<Box<[u8]>>,
    /// Readings of both clocks.
    pub anchors: Vec<Anchor>,
    /// Records that are no events. Both ends speak the same version, so they are damaged.
    pub damaged: u64,
}

impl Batch {
    /// The calls of a message.
    pub fn decode(payload: &[u8]) -> Batch {
        let (records, _) = payload.as_chunks::<EVENT_LEN>();
        let mut batch = Batch { events: Vec::with_capacity(records.len()), ..Batch::default() };
        for record in records {
            match (Anchor::decode(record), Event::decode(record)) {
                (Some(anchor), _) => batch.anchors.push(anchor),
                // Only the daemon gives stacks their numbers.
                (None, Some(event)) => batch.events.push(Event { stack: 0, ..event }),
                (None, None) => batch.damaged += 1,
            }
        }
        batch
    }

    /// Its length, in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&self.events[..]) + size_of_val(&self.coalesced[..])
    }
}

/// What a record tells of a file.
pub fn facts(file: &FileRecord<'_>) -> FileFacts {
    let FileRecord { file: FileId { dev, ino, birth }, renamed, size, block, mode, path } = *file;
    FileFacts {
        dev,
        ino,
        birth,
        renamed,
        size: Bytes(size),
        block,
        mode,
        path: host_text::name(&path[..path.len().min(FileRecord::PATH)]),
        owner: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    #[test]
    fn what_is_no_event_is_damaged() {
        let good = Event::new(Op::Write);
        let numbered = Event { stack: 7, ..good };
        let mut damaged = good.encode();
        damaged[88] = 254;
        let impossible = Event { returned: i64::MAX, ..Event::new(Op::StreamWrite) };
        let anchor = Anchor { ticks: 1, nanos: 2 };
        let batch =
            Batch::decode(&[numbered.encode(), damaged, anchor.encode(), impossible.encode()].concat());
        assert_eq!((batch.events, batch.anchors, batch.damaged), (vec![good], vec![anchor], 2));
    }
}
