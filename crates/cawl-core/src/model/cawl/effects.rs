//! What calls do to the modelled machine besides costing time (ours; the paper knows only writes).

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::Cawl;
use super::extents::FileId;
use super::stream::Buffer;
use crate::call::{is_synchronous, kernel_bytes};

/// Modes of fallocate after which the range reads as zeros (`FALLOC_FL_PUNCH_HOLE`, `_ZERO_RANGE`).
const RANGE_DROPPED: u32 = 0x02 | 0x10;

impl Cawl {
    /// Calls that cost nothing anyone asks about, but change what is dirty or buffered.
    pub(super) fn effect(&mut self, event: &Event) {
        let file = (event.dev, event.ino);
        if event.returned < 0 {
            return;
        }
        match event.op {
            Op::Truncate if event.offset != UNKNOWN_OFFSET => self.cancel(file, event.offset, u64::MAX),
            Op::Unlink | Op::Rename if event.aux == 0 && event.ino != 0 => self.cancel(file, 0, u64::MAX),
            Op::Allocate if event.aux & RANGE_DROPPED != 0 && event.offset != UNKNOWN_OFFSET => {
                self.cancel(file, event.offset, event.offset.saturating_add(event.requested));
            }
            Op::Open | Op::StreamOpen => {
                if event.has(flag::TRUNC) {
                    self.cancel(file, 0, u64::MAX);
                }
                if event.op == Op::StreamOpen {
                    self.streams.remove(&(event.pid, event.fd));
                }
            }
            // The child has a copy of every buffer; an exec takes them away.
            Op::Fork => {
                let child = event.returned as u32;
                let copies: Vec<_> =
                    self.streams_of(event.pid).map(|(key, buffer)| (key.1, *buffer)).collect();
                self.streams.extend(copies.into_iter().map(|(fd, buffer)| ((child, fd), buffer)));
            }
            Op::Exec => {
                let gone: Vec<_> = self.streams_of(event.pid).map(|(key, _)| *key).collect();
                for key in gone {
                    self.streams.remove(&key);
                }
            }
            Op::CopyRange if event.aux == 1 => {}
            Op::CopyRange | Op::Sendfile | Op::Splice | Op::AioWrite | Op::MmapWrite
                if !event.has(flag::DIRECT) && !is_synchronous(event) =>
            {
                let start = self.place(event);
                let end = start.saturating_add(kernel_bytes(event));
                self.ledger.dirtied += self.cache.insert(file, start, end, self.now);
            }
            _ => {}
        }
    }

    fn streams_of(&self, pid: u32) -> impl Iterator<Item = (&(u32, i32), &Buffer)> {
        self.streams.range((pid, i32::MIN)..=(pid, i32::MAX))
    }

    fn cancel(&mut self, file: FileId, start: u64, end: u64) {
        self.ledger.cancelled += self.cache.remove(file, start, end);
    }
}
