//! Requests of io_uring and libaio, each from its submission to its completion.

use std::collections::hash_map::Entry;

use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use libc::c_int;

use super::{Told, Translator, result};
use crate::record::Call;

/// `aux` of a write by io_uring or libaio.
const PAST_CALLS: u32 = 2;

/// Requests of io_uring and libaio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Those that are complete.
    pub count: u64,
    /// From their submission to their completion, in ns.
    pub took: u64,
    /// That part of it, in ns, in which the thread that submitted each (io_uring), or that reaped it
    /// (libaio), was in a call for it.
    pub waited: u64,
}

impl Requests {
    fn add(&mut self, took: u64, waited: u64) {
        self.count += 1;
        self.took += took;
        self.waited += waited.min(took);
    }
}

impl Translator {
    /// A request of libaio, when it was handed over: it is told of when it is complete.
    pub(super) fn handed_over(&mut self, mut event: Event, call: &Call, tell: &mut impl FnMut(Told)) {
        event.op = match call.args[1] {
            0 | 7 => Op::Pread,
            1 | 8 => Op::Pwrite,
            2 => Op::Fsync,
            3 => Op::Fdatasync,
            _ => return,
        };
        if call.file != 0 {
            self.about(&mut event, call, call.args[0] as i32, tell);
        }
        if event.op == Op::Pread && event.kind != FileKind::Regular {
            return;
        }
        if event.op.moves_bytes() {
            (event.requested, event.offset) = (call.args[2], call.args[3]);
        }
        let key = (call.tgid, call.args[5]);
        // What ended before this began was handed over before the process was followed.
        if let Entry::Occupied(early) = self.early.entry(key)
            && early.get().end >= event.start
        {
            let end = early.remove();
            return self.completed(event, &end, tell);
        }
        if let Some(before) = self.handed.insert(key, event)
            && before.op != Op::Pread
        {
            tell(Told::Event(unfinished(before)));
        }
    }

    /// A request of libaio is complete: the program was told so.
    pub(super) fn complete(&mut self, call: &Call, tell: &mut impl FnMut(Told)) {
        let key = (call.tgid, call.args[5]);
        match self.handed.remove(&key) {
            Some(event) => self.completed(event, call, tell),
            None => drop(self.early.insert(key, *call)),
        }
    }

    fn completed(&mut self, mut event: Event, end: &Call, tell: &mut impl FnMut(Told)) {
        event.duration = end.end.saturating_sub(event.start);
        self.requests.add(event.duration, end.end.saturating_sub(end.start.max(event.start)));
        (event.returned, event.errno) = result(end);
        event.aux = if event.op == Op::Pwrite { PAST_CALLS } else { 0 };
        self.cached_before(&event, end.identity.size, tell);
        tell(Told::Event(event));
    }

    /// Tells of requests of which no end was seen; those of one process, or all.
    pub fn finish(&mut self, pid: Option<u32>, mut tell: impl FnMut(Told)) {
        let left = self.handed.extract_if(|(process, _), _| pid.is_none_or(|pid| pid == *process));
        let left = left.filter(|(_, event)| event.op != Op::Pread);
        left.for_each(|(_, event)| tell(Told::Event(unfinished(event))));
    }

    /// A request of io_uring, from its submission to its completion.
    pub(super) fn request(&mut self, mut event: Event, call: &Call, tell: &mut impl FnMut(Told)) {
        if call.file != 0 {
            self.about(&mut event, call, -1, tell);
        }
        let (place, length, rw_flags) = (call.args[1], call.args[2], call.args[3] as c_int);
        match call.number {
            // READV, READ_FIXED, READ, READV_FIXED.
            1 | 4 | 22 | 60 => event.op = Op::Pread,
            // WRITEV, WRITE_FIXED, WRITE, WRITEV_FIXED.
            2 | 5 | 23 | 61 => (event.op, event.aux) = (Op::Pwrite, PAST_CALLS),
            3 => event.op = if call.args[4] & 1 == 1 { Op::Fdatasync } else { Op::Fsync },
            _ => return,
        }
        if event.op.moves_bytes() {
            let is_vector = matches!(call.number, 1 | 2 | 60 | 61);
            event.requested = if is_vector { call.result.max(0) as u64 } else { length };
            // At the file's own position, or at its end: known afterwards.
            let is_own = place == u64::MAX || event.op == Op::Pwrite && event.has(flag::APPEND);
            event.offset = match (event.kind, call.result) {
                _ if !is_own => place,
                (FileKind::Regular, 1..) => call.after.wrapping_sub(call.result as u64),
                _ => UNKNOWN_OFFSET,
            };
            // IOCB_SYNC and IOCB_DSYNC are those of RWF_.
            event.flags |= if rw_flags & libc::RWF_SYNC != 0 { flag::SYNC } else { 0 };
            event.flags |= if rw_flags & libc::RWF_DSYNC != 0 { flag::DSYNC } else { 0 };
            if event.op == Op::Pread && event.kind != FileKind::Regular {
                return;
            }
        }
        self.requests.add(event.duration, call.args[5]);
        self.cached_before(&event, call.identity.size, tell);
        tell(Told::Event(event));
    }
}

/// A write or sync that was handed over, and of whose end nothing is known.
fn unfinished(event: Event) -> Event {
    let is_write = event.op == Op::Pwrite;
    Event {
        op: Op::AioWrite,
        aux: if is_write { PAST_CALLS } else { 0 },
        returned: if is_write { event.requested as i64 } else { 0 },
        flags: event.flags | flag::ESTIMATED,
        ..event
    }
}
