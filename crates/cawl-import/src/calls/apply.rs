//! Calls that move or settle data, and the event each becomes.
//!
//! The law: **one call, at most one event.** The event says what the call said, figures and result alike;
//! only positions, which strace does not print, come from the tables.

use cawl_core::host_text::unescape;
use cawl_wire::{FileKind, Op, flag};

use super::events::{CallKind, Caller, Closing, Target, pointed};
use super::tables;
use super::text::{self, Call, Outcome};
use super::{Calls, names};
use crate::SkipReason;

impl Calls {
    /// Takes over what a complete call did.
    pub(super) fn apply(
        &mut self,
        tid: u32,
        name: &str,
        kind: CallKind,
        start: u64,
        call: &Call<'_>,
        closing: Closing,
    ) {
        let Some(mut caller) = self.caller(tid, start, call.duration) else { return };
        let is_about_data = match kind {
            CallKind::Write(_) | CallKind::Sync(_) | CallKind::Copy(_) | CallKind::Resize(_) => true,
            kind => matches!(kind, CallKind::Dup | CallKind::Seek | CallKind::Flock),
        };
        caller.guesses = self.gaps.pointers && is_about_data && !matches!(call.result, Outcome::Failed(_));
        let caller = &caller;
        self.learn_directory(caller.pid, call);
        match kind {
            CallKind::Child => self.apply_child(caller, name, call),
            _ if matches!(call.result, Outcome::None) => self.skip(SkipReason::Endless),
            CallKind::Write(op) => self.apply_write(caller, name, op, call),
            CallKind::Sync(op) => self.apply_sync(caller, name, op, call),
            CallKind::Copy(op) => self.apply_copy(caller, op, call),
            CallKind::Resize(op) => self.apply_resize(caller, name, op, call),
            CallKind::Close => self.apply_close(caller, call, closing),
            _ if matches!(call.result, Outcome::Failed(_)) => self.skip(SkipReason::Failed),
            CallKind::Read => {
                let target = self.target(caller, call.arg(0));
                let Outcome::Value(length, _) = call.result else { return };
                target.move_on(u64::try_from(length).unwrap_or(0));
                self.skip(SkipReason::ReadOnly);
            }
            CallKind::ReadAt => self.skip(SkipReason::ReadOnly),
            CallKind::Unmodelled => self.skip(SkipReason::Unmodelled(name.to_owned())),
            CallKind::Open => self.apply_open(caller, name, call),
            CallKind::Dup => self.apply_dup(caller, call),
            CallKind::Control if call.arg(1).starts_with("F_DUPFD") => self.apply_dup(caller, call),
            CallKind::Control => self.apply_control(caller, call),
            CallKind::Flock => self.apply_lock(caller, call),
            CallKind::Seek => self.apply_seek(caller, name, call),
            CallKind::Unlink | CallKind::Rename | CallKind::Link => self.apply_name(caller, name, kind, call),
            CallKind::Exec => self.apply_exec(caller, name, call),
            CallKind::CloseRange => {
                let last = names::integer(call.arg(1)).filter(|last| *last >= 0).unwrap_or(i64::MAX);
                let first = names::integer(call.arg(0)).unwrap_or(i64::MAX);
                let within = |fd: &i32| (first..=last).contains(&i64::from(*fd));
                let mut table = tables::change(&caller.table);
                if call.arg(2).contains("CLOSE_RANGE_CLOEXEC") {
                    let closed = table.iter_mut().filter(|(fd, _)| within(fd));
                    closed.for_each(|(_, descriptor)| descriptor.close_on_exec = true);
                } else {
                    table.retain(|fd, _| !within(fd));
                }
                self.skip(SkipReason::ReadOnly);
            }
            _ => self.apply_other(caller, name, kind, call),
        }
    }

    /// With -y, `AT_FDCWD</dir>` tells the working directory.
    fn learn_directory(&mut self, pid: u32, call: &Call<'_>) {
        let shown = call.args.iter().take(3).find(|arg| arg.starts_with("AT_FDCWD<"));
        let Some(path) = shown.and_then(|arg| text::annotation(arg)) else { return };
        let path = unescape(path);
        if let Some(process) = self.processes.get_mut(&pid).filter(|process| process.cwd != path) {
            process.cwd = path.into_owned();
        }
    }

    fn apply_write(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let vector = matches!(op, Op::Writev | Op::Pwritev);
        let placed = matches!(op, Op::Pwrite | Op::Pwritev);
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(op, caller, &target);
        let returned = Self::settle(&mut event, call.result);
        let length = returned.unwrap_or(0);
        event.requested = if vector { vector_length(call.arg(1)) } else { unsigned(call.arg(2)) }.max(length);
        if name == "pwritev2" {
            let flags = call.arg(4);
            event.flags |= if flags.contains("RWF_DSYNC") { flag::DSYNC } else { 0 };
            event.flags |= if flags.split('|').any(|name| name == "RWF_SYNC") { flag::SYNC } else { 0 };
            event.flags |= if flags.contains("RWF_APPEND") { flag::APPEND } else { 0 };
        }
        let place = names::integer(call.arg(3)).unwrap_or(-1);
        match u64::try_from(place) {
            Ok(place) if placed => {
                event.offset = place;
                if event.has(flag::APPEND) {
                    // Linux appends whatever the place, and does not move the position.
                    let file = target.file.as_ref().map(|file| file.borrow());
                    event.offset = file.as_ref().map_or(place, |file| file.size);
                    event.flags |= if file.is_some_and(|file| file.size_known) { 0 } else { flag::ESTIMATED };
                }
                if length > 0 {
                    target.grow(event.offset.saturating_add(length));
                }
            }
            _ => {
                if let (Some(place), Some(description)) = (self.place, &target.description) {
                    let mut description = description.borrow_mut();
                    (description.position, description.flags) = (place, description.flags & !flag::ESTIMATED);
                }
                target.advance(&mut event, length);
            }
        }
        self.emit(event);
    }

    fn apply_sync(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let target = match op {
            Op::Sync | Op::Msync => Target::NONE,
            _ => self.target(caller, call.arg(0)),
        };
        let mut event = self.event(op, caller, &target);
        Self::settle(&mut event, call.result);
        if op == Op::SyncRange {
            let [offset, length, flags] = if name.ends_with('2') { [2, 3, 1] } else { [1, 2, 3] };
            (event.offset, event.requested) = (unsigned(call.arg(offset)), unsigned(call.arg(length)));
            event.aux = names::bits(call.arg(flags), names::SYNC_RANGE);
        } else if op == Op::Advise {
            (event.offset, event.requested) = (unsigned(call.arg(1)), unsigned(call.arg(2)));
            event.aux = names::bits(call.arg(3), names::ADVICE);
        } else if op == Op::Msync {
            event.requested = unsigned(call.arg(1));
        }
        self.emit(event);
    }

    fn apply_copy(&mut self, caller: &Caller, op: Op, call: &Call<'_>) {
        // Places of: source, its offset, destination, its offset, length.
        let [from, from_at, to, to_at, length] = match op {
            Op::Sendfile => [1, 2, 0, usize::MAX, 3],
            _ => [0, 1, 2, 3, 4],
        };
        let source = self.target(caller, call.arg(from));
        let target = self.target(caller, call.arg(to));
        let mut event = self.event(op, caller, &target);
        let moved = Self::settle(&mut event, call.result).unwrap_or(0);
        event.requested = unsigned(call.arg(length));
        match pointed(call.arg(to_at)) {
            // The place stands behind a pointer.
            None if is_pointer(call.arg(to_at)) => event.flags |= flag::ESTIMATED,
            Some(place) => {
                event.offset = place;
                if moved > 0 {
                    target.grow(place.saturating_add(moved));
                }
            }
            None => target.advance(&mut event, moved),
        }
        if pointed(call.arg(from_at)).is_none() && !is_pointer(call.arg(from_at)) {
            source.move_on(moved);
        }
        self.emit(event);
    }

    fn apply_resize(&mut self, caller: &Caller, name: &str, op: Op, call: &Call<'_>) {
        let target = if name.starts_with("trunc") {
            let Some(path) = self.path(caller, None, call.arg(0)) else {
                return self.skip(SkipReason::Hidden(name.to_owned()));
            };
            Target { file: Some(self.files.named(&path, FileKind::Regular)), ..Target::NONE }
        } else {
            self.target(caller, call.arg(0))
        };
        let mut event = self.event(op, caller, &target);
        let ok = Self::settle(&mut event, call.result).is_some();
        if op == Op::Truncate {
            event.offset = unsigned(call.arg(1));
            if ok {
                target.resize(event.offset);
            }
        } else {
            event.aux = names::bits(call.arg(1), names::FALLOCATE);
            (event.offset, event.requested) = (unsigned(call.arg(2)), unsigned(call.arg(3)));
            // Without KEEP_SIZE, and without COLLAPSE or INSERT, which shift what follows.
            if ok && event.aux & (0x01 | 0x08 | 0x20) == 0 {
                target.grow(event.offset.saturating_add(event.requested));
            }
        }
        self.emit(event);
    }
}

/// True for an address of which the recording does not show what stands there.
fn is_pointer(text: &str) -> bool {
    text.starts_with("0x") && text != "0x0"
}

/// A number that cannot be negative; 0 if it is not readable.
fn unsigned(text: &str) -> u64 {
    names::integer(text).map_or(0, |value| value as u64)
}

/// Bytes in all buffers of a vector that strace shows.
fn vector_length(text: &str) -> u64 {
    let lengths = text.split("iov_len=").skip(1);
    lengths
        .map(|rest| unsigned(&rest[..rest.find(['}', ',']).unwrap_or(rest.len())]))
        .fold(0, u64::saturating_add)
}
