//! Calls as the models are shown them, of one thread and one file.

use cawl_wire::{Event, FileKind, Op};

/// A call on the file.
pub fn call(op: Op) -> Event {
    let mut event = Event::new(op);
    (event.dev, event.ino, event.pid, event.tid) = (1, 1, 1, 1);
    (event.kind, event.offset) = (FileKind::Regular, 0);
    event
}

/// A read of it.
pub fn read(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, flags, ..call(Op::Pread) }
}

/// A write to it.
pub fn write(offset: u64, bytes: u64, flags: u32) -> Event {
    Event { offset, requested: bytes, returned: bytes as i64, flags, ..call(Op::Pwrite) }
}
