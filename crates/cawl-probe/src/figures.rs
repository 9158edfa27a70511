//! Figures of events, from those of calls.

use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag, lock};
use libc::c_int;

use crate::files::Seen;
use crate::record::Call;

/// Where a call began that moved the descriptor's own position.
pub fn own_place(call: &Call, event: &Event) -> u64 {
    if event.kind != FileKind::Regular && event.kind != FileKind::Block {
        return UNKNOWN_OFFSET;
    }
    match call.result {
        1.. if call.changed => UNKNOWN_OFFSET,
        // A file of /proc, which keeps no position.
        1.. if call.after == call.before => call.before,
        // Of one that appends, and of threads that share the position, only the end is known.
        1.. => call.after.saturating_sub(call.result as u64),
        _ => call.before,
    }
}

/// Another thread moved the position meanwhile: only the kernel knows in which order.
pub fn is_in_doubt(call: &Call, event: &Event) -> bool {
    event.kind == FileKind::Regular
        && call.result > 0
        && !call.changed
        && call.after != call.before
        && call.before.wrapping_add(call.result as u64) != call.after
}

/// Flags of an event by those of the open file.
pub fn flags(open: u32) -> u32 {
    let open = open as c_int;
    let all = |bits: c_int, flag: u32| if open & bits == bits { flag } else { 0 };
    let writable = open & libc::O_ACCMODE != libc::O_RDONLY;
    let sync = open & libc::O_SYNC == libc::O_SYNC;
    all(libc::O_APPEND, flag::APPEND)
        | if sync { flag::SYNC } else { all(libc::O_DSYNC, flag::DSYNC) }
        | all(libc::O_DIRECT, flag::DIRECT)
        | all(libc::O_TMPFILE, flag::TMPFILE)
        | if writable { flag::WRITABLE } else { 0 }
}

/// Which file an event by name is about, as far as it was met.
pub fn describe(event: &mut Event, seen: Option<&Seen>) {
    let Some(seen) = seen else { return };
    event.kind = seen.kind();
    if event.kind == FileKind::Regular {
        event.set_file(seen.file);
    }
    event.aux = seen.links;
}

/// A name that went.
pub fn gone(event: &mut Event, seen: Option<&Seen>) {
    // Of one that was not met it is known that it was no folder.
    event.kind = FileKind::Regular;
    describe(event, seen);
    event.aux = event.aux.saturating_sub(u32::from(event.errno == 0));
    event.requested = seen.map_or(0, |seen| seen.size);
}

/// A lock of fcntl: struct flock comes in the last three arguments.
pub fn locked(event: &mut Event, call: &Call, command: c_int) {
    event.op = Op::Lock;
    let holder = match command {
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => lock::DESCRIPTION,
        _ => 0,
    };
    event.aux = holder;
    if call.result < 0 {
        return;
    }
    let (kind, whence) = (call.args[3] as i16, (call.args[3] >> 16) as i16);
    let action = match c_int::from(kind) {
        libc::F_RDLCK => lock::SHARED,
        libc::F_WRLCK => lock::EXCLUSIVE,
        _ => lock::UNLOCK,
    };
    event.aux |= action;
    let base = match c_int::from(whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => call.after,
        _ => call.identity.size,
    };
    let (start, length) = (call.args[4], call.args[5] as i64);
    event.offset = base.wrapping_add(start).wrapping_add(length.min(0) as u64);
    event.requested = length.unsigned_abs();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_doubt_when_another_thread_moved_it() {
        let mut event = Event::new(Op::Write);
        event.kind = FileKind::Regular;
        let alone = Call { before: 100, after: 150, result: 50, ..Call::default() };
        assert_eq!((own_place(&alone, &event), is_in_doubt(&alone, &event)), (100, false));
        let beside = Call { after: 220, ..alone };
        assert_eq!((own_place(&beside, &event), is_in_doubt(&beside, &event)), (170, true));
        let kept = Call { after: 100, ..alone };
        assert_eq!((own_place(&kept, &event), is_in_doubt(&kept, &event)), (100, false));
        let failed = Call { result: -5, after: 100, ..alone };
        assert!(!is_in_doubt(&failed, &event));
        let changed = Call { changed: true, ..beside };
        assert_eq!((own_place(&changed, &event), is_in_doubt(&changed, &event)), (UNKNOWN_OFFSET, false));
    }
}
