//! What calls do to the modelled machine, apart from costing time (ours; the paper knows only writes).

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::Cawl;
use crate::call::{PUNCH_HOLE, ZERO_RANGE, is_synchronous, kernel_bytes};

impl Cawl {
    /// Calls without a predicted cost that change what is dirty or buffered.
    pub(super) fn effect(&mut self, event: &Event) {
        let file = event.file();
        if event.returned < 0 {
            return;
        }
        match event.op {
            Op::Truncate if event.offset != UNKNOWN_OFFSET => {
                self.cache.remove(file, event.offset, u64::MAX);
            }
            Op::Unlink | Op::Rename if event.aux == 0 && event.ino != 0 && !event.has(flag::HELD) => {
                self.cache.remove(file, 0, u64::MAX);
            }
            Op::Allocate if event.aux & (PUNCH_HOLE | ZERO_RANGE) != 0 && event.offset != UNKNOWN_OFFSET => {
                self.cache.remove(file, event.offset, event.offset.saturating_add(event.requested));
            }
            Op::Open | Op::StreamOpen => {
                if event.has(flag::TRUNC) {
                    self.cache.remove(file, 0, u64::MAX);
                }
                if event.op == Op::StreamOpen
                    && let Some(mut streams) = self.streams.take(&event.pid)
                {
                    streams.remove(&event.fd);
                    self.streams.put(event.pid, streams);
                }
            }
            // The child has a copy of every buffer; an exec takes them away.
            Op::Fork => {
                if let Some(streams) = self.streams.peek(&event.pid) {
                    let copy = streams.clone();
                    self.streams.put(event.returned as u32, copy);
                }
            }
            Op::Exec => drop(self.streams.take(&event.pid)),
            Op::AioWrite | Op::MmapWrite if !event.has(flag::DIRECT) && !is_synchronous(event) => {
                let start = self.place(event);
                let end = start.saturating_add(kernel_bytes(event));
                self.cache.insert(file, start, end, self.now);
            }
            _ => {}
        }
    }
}
