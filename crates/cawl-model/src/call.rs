//! What an event means for the models: which calls have a modelled cost, which only change state.

use cawl_wire::ring::CoalescedCalls;
use cawl_wire::{ADVICE_DONTNEED, Event, FileKind, Op, flag};

/// The length of the file stays (`FALLOC_FL_KEEP_SIZE`, a mode of fallocate in [`Event::aux`], as the next
/// four).
pub const KEEP_SIZE: u32 = 0x01;
/// A hole is made (`FALLOC_FL_PUNCH_HOLE`).
pub const PUNCH_HOLE: u32 = 0x02;
/// The range is taken out of the file (`FALLOC_FL_COLLAPSE_RANGE`).
pub const COLLAPSE: u32 = 0x08;
/// The range becomes zeros (`FALLOC_FL_ZERO_RANGE`).
pub const ZERO_RANGE: u32 = 0x10;
/// A range is put into the file (`FALLOC_FL_INSERT_RANGE`).
pub const INSERT: u32 = 0x20;
/// Waits for the range first (`SYNC_FILE_RANGE_WAIT_BEFORE`, a flag of sync_file_range in [`Event::aux`], as
/// the next two).
pub const WAIT_BEFORE: u32 = 1;
/// Writes the range (`SYNC_FILE_RANGE_WRITE`).
pub const RANGE_WRITE: u32 = 2;
/// Waits for the range last (`SYNC_FILE_RANGE_WAIT_AFTER`).
pub const WAIT_AFTER: u32 = 4;

/// How an event is to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its cost is predicted and compared.
    Cost,
    /// Its cost is predicted, but falls on the program's own instructions, where it is not seen.
    Untimed,
    /// It changes what the models know (positions, sizes, names), at a cost that is not predicted.
    Effect,
    /// It writes to something that has no page cache: a pipe, terminal or socket. Counted in coverage.
    Elsewhere,
    /// It dirties a regular file in a way the models have no law for. Reported.
    Unmodelled,
}

impl Class {
    /// The class, but [`Class::Untimed`] for a cost whose duration nobody recorded, as in an import.
    #[inline]
    pub fn timed(self, event: &Event) -> Class {
        if self == Class::Cost && is_durationless(event) { Class::Untimed } else { self }
    }

    /// What a call is that a model told a cost of, or none: not every model has a law of names and lengths.
    #[inline]
    pub fn with_cost(self, has_cost: impl FnOnce() -> bool) -> Class {
        if self == Class::Effect && has_cost() { Class::Cost } else { self }
    }
}

/// How long it took was not recorded.
#[inline]
pub fn is_durationless(event: &Event) -> bool {
    event.duration == 0 && event.has(flag::ESTIMATED)
}

/// It writes to a file: most calls do, and each is asked about several times.
#[inline]
fn is_file_write(event: &Event) -> bool {
    matches!(event.op, Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev) && event.kind == FileKind::Regular
}

/// How `event` is to be treated.
#[inline]
pub fn classify(event: &Event) -> Class {
    if is_file_write(event) { Class::Cost } else { classify_other(event) }
}

fn classify_other(event: &Event) -> Class {
    use Op::*;
    match event.op {
        Fsync | Fdatasync | Sync | Syncfs | SyncRange | Msync => Class::Cost,
        Advise if event.kind == FileKind::Regular && event.aux == ADVICE_DONTNEED => Class::Cost,
        Read | Pread | StreamRead | Open | StreamOpen | Close if has_cost(event) => Class::Cost,
        Advise | Lock | Open | Close | Dup | Seek | Truncate | Allocate | StreamOpen | Read | Pread
        | StreamRead | Resident | Uncertain | Fork | Spawn | Exec => Class::Effect,
        Unlink | Rename | Link | Symlink | Mkdir | Rmdir | Stat | List => Class::Effect,
        // All others write.
        _ if event.kind != FileKind::Regular => Class::Elsewhere,
        StreamSeek if event.flushed().unwrap_or(0) == 0 => Class::Effect,
        Write | Pwrite | Writev | Pwritev | StreamWrite | StreamFlush | StreamClose | StreamSeek
        | CopyRange | Sendfile | Splice => Class::Cost,
        MmapWrite => Class::Untimed,
        AioWrite | AioFsync => Class::Unmodelled,
        StreamExit => Class::Effect,
    }
}

/// It is about a file and did what it should: how long reading from a pipe or a terminal takes depends on who
/// writes to it.
fn has_cost(event: &Event) -> bool {
    event.kind == FileKind::Regular && event.errno == 0
}

/// It is about a name, or changes the length of a file, and did what it should. Older traces do not tell what
/// a rename that replaces nothing is about.
pub fn is_of_name_or_length(event: &Event) -> bool {
    use Op::*;
    match event.op {
        Truncate => has_cost(event),
        Unlink | Rename | Link | Symlink | Mkdir | Rmdir | Stat | List => {
            event.errno == 0 && event.kind != FileKind::Unknown
        }
        _ => false,
    }
}

/// It reads from a file.
pub fn is_file_read(event: &Event) -> bool {
    matches!(event.op, Op::Read | Op::Pread | Op::StreamRead) && event.kind == FileKind::Regular
}

/// Bytes that the call handed to the kernel to be written. A stream call counts what left its buffer, or
/// what it accepted if the buffer was not looked at.
#[inline]
pub fn kernel_bytes(event: &Event) -> u64 {
    if is_file_write(event) { event.returned.max(0) as u64 } else { kernel_bytes_of_other(event) }
}

fn kernel_bytes_of_other(event: &Event) -> u64 {
    use Op::*;
    let returned = event.returned.max(0) as u64;
    match event.op {
        Write | Pwrite | Writev | Pwritev | CopyRange | Sendfile | Splice | AioWrite | MmapWrite => returned,
        StreamWrite => event.flushed().unwrap_or(returned),
        StreamFlush | StreamSeek | StreamClose => event.flushed().unwrap_or(0),
        StreamExit => u64::from(event.pending_before),
        _ => 0,
    }
}

/// Bytes that the call moved between a file and the program: those of [`kernel_bytes`], or those that it
/// read.
pub fn moved_bytes(event: &Event) -> u64 {
    if is_file_read(event) { event.returned.max(0) as u64 } else { kernel_bytes(event) }
}

/// True if the calls that continue this one may be coalesced: no model has an opinion on them or is changed
/// by them, and reports only count them.
pub fn is_coalescible(event: &Event) -> bool {
    use Op::*;
    let is_plain = matches!(event.op, Write | Pwrite | Writev | Pwritev | StreamWrite);
    is_plain && !event.has(flag::ESTIMATED) && classify(event) == Class::Elsewhere
}

/// The sum of [`kernel_bytes`], and of [`wchar_bytes`], of coalesced calls. Those of a stream stay in its
/// buffer.
pub fn coalesced_bytes(calls: &CoalescedCalls) -> u64 {
    if calls.like.flushed().is_some() { 0 } else { calls.bytes }
}

/// Bytes of [`kernel_bytes`] that the kernel counts in `wchar` of /proc/PID/io: not splice, not
/// reflinks (flagged as estimated), not stores to mappings.
pub fn wchar_bytes(event: &Event) -> u64 {
    match event.op {
        Op::Splice | Op::MmapWrite => 0,
        // POSIX aio is done by the C library's own threads, by ordinary writes.
        Op::AioWrite if event.aux != 1 => 0,
        // What io_uring and libaio write, the kernel does not count.
        Op::Pwrite if event.aux == 2 => 0,
        _ if is_clone(event) => 0,
        _ => kernel_bytes(event),
    }
}

/// True if the destination shares another file's blocks by being asked to (FICLONE): no data are written.
pub fn is_clone(event: &Event) -> bool {
    event.op == Op::CopyRange && event.has(flag::ESTIMATED)
}

/// True of an open for which an overlay copied the file up.
pub fn is_copied_up(event: &Event) -> bool {
    matches!(event.op, Op::Open | Op::StreamOpen) && event.has(flag::COPIED_UP)
}

/// True of an open that cuts a file off.
pub fn cuts_off(event: &Event) -> bool {
    event.has(flag::TRUNC) && !event.has(flag::CREATED)
}

/// True of what the tracer tells of a file, which is no call of the program.
pub fn is_no_call(event: &Event) -> bool {
    event.op == Op::Resident
}

/// True when the data must be on the device before the call returns.
pub fn is_synchronous(event: &Event) -> bool {
    event.has(flag::SYNC | flag::DSYNC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_to_pipes_are_not_the_models_business() {
        let mut event = Event::new(Op::Write);
        event.kind = FileKind::Fifo;
        assert_eq!(classify(&event), Class::Elsewhere);
        event.kind = FileKind::Regular;
        assert_eq!(classify(&event), Class::Cost);
    }

    #[test]
    fn copies_into_files_have_a_law() {
        for op in [Op::CopyRange, Op::Sendfile, Op::Splice] {
            let mut event = Event::new(op);
            event.kind = FileKind::Socket;
            assert_eq!(classify(&event), Class::Elsewhere);
            event.kind = FileKind::Regular;
            assert_eq!(classify(&event), Class::Cost);
        }
    }

    #[test]
    fn failed_calls_wrote_nothing() {
        let mut event = Event::new(Op::Write);
        (event.requested, event.returned) = (4096, -1);
        assert_eq!(kernel_bytes(&event), 0);
    }
}
