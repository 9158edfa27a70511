//! Alg. 2 at work: from a stream's event to system calls and their cost.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::stream::{Known, StreamOutput};
use super::{Bill, Cawl};
use crate::call::kernel_bytes;
use crate::cause::Cause;
use crate::units::{Bytes, Nanos};

impl Cawl {
    /// Alg. 2, `stdio_cost`, and what the paper says of fflush: the copy in user space, and Alg. 1 for
    /// every system call.
    pub(super) fn stdio_cost(&mut self, at: Nanos, event: &Event, output: StreamOutput) -> Bill {
        let mut bill = Bill::default();
        bill.parts[Cause::Call] = self.profile.calls.stream.value;
        bill.parts[Cause::Stream] = Bytes(output.copied) / self.profile.memory.stream.value;
        for run in output.writes.into_iter().flatten() {
            let (parts, state) = self.kernel_write(at + bill.parts.total(), event, run);
            bill.add(parts, state);
        }
        bill
    }

    /// What a stream call leads to. None: it is no stream call.
    pub(super) fn stream_output(&mut self, event: &Event) -> Option<StreamOutput> {
        let mut buffer = self
            .streams
            .peek(&event.pid)
            .and_then(|streams| streams.get(&event.fd))
            .copied()
            .unwrap_or_default();
        let known = event
            .has(flag::STREAM_KNOWN)
            .then(|| Known { before: event.pending_before.into(), after: event.pending_after.into() });
        let output = match event.op {
            Op::StreamWrite => {
                let size = event.returned.max(0) as u64;
                let offset = match (event.offset, buffer.pending) {
                    (UNKNOWN_OFFSET, 0) => {
                        let before = known.map_or(0, |known| known.before);
                        self.cache.end_of(event.file()).saturating_add(before)
                    }
                    (UNKNOWN_OFFSET, pending) => buffer.offset.saturating_add(pending),
                    (offset, _) => offset,
                };
                let capacity = match event.buffer {
                    0 => self.profile.kernel.stream_buffer.0,
                    reported => reported.into(),
                };
                match known {
                    Some(known) => buffer.write_known(offset, size, known, capacity),
                    None if event.has(flag::UNBUFFERED) || capacity <= 1 => {
                        buffer.write_through(offset, size, false)
                    }
                    None if event.has(flag::LINE_BUFFERED) => buffer.write_through(offset, size, true),
                    None => buffer.write(offset, size, capacity),
                }
            }
            Op::StreamFlush | Op::StreamSeek | Op::StreamClose | Op::StreamExit => {
                if known.is_some() || event.op == Op::StreamExit {
                    if buffer.pending == 0 {
                        buffer.offset = self.cache.end_of(event.file());
                    }
                    buffer.pending = kernel_bytes(event);
                }
                let flushed = buffer.flush();
                if matches!(event.op, Op::StreamFlush | Op::StreamSeek) {
                    buffer.pending = known.map_or(0, |known| known.after);
                }
                StreamOutput { copied: 0, writes: [flushed, None, None] }
            }
            _ => return None,
        };
        let mut streams = self.streams.take(&event.pid).unwrap_or_default();
        if buffer.pending > 0 {
            streams.insert(event.fd, buffer);
        } else {
            streams.remove(&event.fd);
        }
        if !streams.is_empty() {
            self.streams.put(event.pid, streams);
        }
        Some(output)
    }
}
