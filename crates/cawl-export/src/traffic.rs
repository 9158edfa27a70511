//! What the formats of other recorders share: bytes as the kernel moved them, and what has no place there.

use std::collections::BTreeMap;

use cawl_core::{kernel_bytes, quantity::counted};
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET};

pub const FAILED: &str = "left out: they failed";
pub const NO_FILE: &str = "left out: to or from no file (pipes, sockets, terminals)";
pub const NO_PLACE: &str = "left out: their place in the file is not known";

/// Bytes between a file and the program, or its stream, in one call.
pub struct Transfer {
    pub writes: bool,
    /// Place of the first one, in bytes.
    pub offset: u64,
    pub bytes: u64,
}

impl Transfer {
    /// None of a call that moved nothing. Of a stream's calls, what its buffer took from the kernel or gave
    /// it.
    pub fn of(event: &Event) -> Option<Transfer> {
        let returned = event.returned.max(0) as u64;
        let (writes, bytes) = match event.op {
            Op::Read | Op::Pread => (false, returned),
            Op::StreamRead => (false, event.refilled().unwrap_or(returned)),
            _ => (true, kernel_bytes(event)),
        };
        (bytes > 0).then_some(Transfer { writes, offset: event.offset, bytes })
    }

    /// [`Transfer::of`] a call on a file, at a place; else what keeps it from a format that has only those.
    pub fn placed(event: &Event) -> Result<Option<Transfer>, &'static str> {
        match Transfer::of(event) {
            Some(_) if !matches!(event.kind, FileKind::Regular | FileKind::Block) => Err(NO_FILE),
            Some(moved) if moved.offset == UNKNOWN_OFFSET => Err(NO_PLACE),
            moved => Ok(moved),
        }
    }
}

/// True of a call that says nothing by itself where transfers have their place: it opens, moves or inherits a
/// descriptor, or stays within a stream's buffer.
pub const fn is_silent(op: Op) -> bool {
    use Op::*;
    matches!(op, Open | Close | Dup | Seek | Fork | Spawn | Exec | Resident)
        || matches!(op, StreamOpen | StreamClose | StreamFlush | StreamSeek | StreamExit)
        || op.moves_bytes()
}

/// Calls that are not in an export as they were, by what became of them.
#[derive(Default)]
pub struct Losses(BTreeMap<&'static str, BTreeMap<Op, u64>>);

impl Losses {
    pub fn count(&mut self, event: &Event, what: &'static str) {
        *self.0.entry(what).or_default().entry(event.op).or_default() += 1;
    }

    /// A line for each kind.
    pub fn notes(&self) -> Vec<String> {
        let line = |(what, ops): (&&str, &BTreeMap<Op, u64>)| {
            let by_op: Vec<String> = ops.iter().map(|(op, calls)| format!("{} {calls}", op.name())).collect();
            format!("{} {what}; {}", counted(ops.values().sum(), "call"), by_op.join(", "))
        };
        self.0.iter().map(line).collect()
    }
}
