//! One recorded call as a step of the script.

use cawl_core::kernel_bytes;
use cawl_wire::{Event, FileKind, Op, UNKNOWN_OFFSET, flag};
use nix::fcntl::OFlag;

use super::super::descriptors::{Description, Slot, Stream};
use super::super::script::{Step, code, how};
use super::super::why::{Why, unmakeable};
use super::Builder;

/// Larger copies read their source more than once.
const LARGEST_SOURCE: u64 = 256 << 20;
/// RWF_DSYNC and RWF_SYNC (include/uapi/linux/fs.h).
const WRITE_DSYNC: u32 = 2;
const WRITE_SYNC: u32 = 4;

impl Builder {
    pub(super) fn call(&mut self, event: &Event, thread: u32) {
        if matches!(event.op, Op::StreamExit | Op::Resident) {
            // The end of the process does it; or it is no call.
            return;
        }
        if event.op == Op::Spawn && event.returned > 0 {
            self.forks(event, thread);
        }
        if let Some(why) = unmakeable(event) {
            return self.leave_out(thread, event, why);
        }
        let step = Step { arg: event.aux, ..Step::new(event.op as u8) };
        match event.op {
            Op::Open | Op::StreamOpen => self.opens(event, thread),
            Op::Close | Op::StreamClose => self.closes(event, thread),
            Op::Dup => self.duplicates(event, thread),
            Op::Unlink | Op::Rename => self.renames(event, thread),
            Op::Fork => self.forks(event, thread),
            Op::Sync => self.make(thread, event, step),
            Op::Truncate if event.fd < 0 => {
                if !self.files.has_name(event) {
                    return self.leave_out(thread, event, Why::UnknownFile);
                }
                let (file, offset) = (self.files.met(event), event.offset);
                self.make(thread, event, Step { file, offset, flags: how::BY_NAME, ..step });
            }
            Op::StreamWrite | Op::StreamFlush | Op::StreamSeek => self.streams(event, thread),
            Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev | Op::CopyRange | Op::Sendfile => {
                self.writes(event, thread)
            }
            _ => {
                let slot = self.slot(event, thread);
                if event.op == Op::Seek {
                    self.moving = Some(slot.description);
                    self.descriptions[slot.description].position = Some(event.offset);
                }
                let (offset, size, file) = (event.offset, event.requested, self.files.met(event));
                self.make(thread, event, Step { slot: slot.place, offset, size, file, ..step });
            }
        }
    }

    fn forks(&mut self, event: &Event, thread: u32) {
        let pid = event.returned as u32;
        let is_there = self.pids.get(&pid).is_some_and(|process| !self.lives[*process as usize].ended);
        if is_there || event.returned == 0 {
            if event.op == Op::Fork {
                self.leave_out(thread, event, Why::NotRepeatable);
            }
            return;
        }
        let arg = self.child(thread, pid, event.op == Op::Spawn);
        if event.op == Op::Fork {
            return self.make(thread, event, Step { arg, ..Step::new(Op::Fork as u8) });
        }
        self.lives[arg as usize].early = event.duration as f64;
        self.synchronise(thread, Step { arg, flags: how::SILENT, ..Step::new(Op::Fork as u8) });
    }

    fn renames(&mut self, event: &Event, thread: u32) {
        let step = if event.op == Op::Rename {
            match self.files.renamed(event) {
                None => return self.leave_out(thread, event, Why::UnknownFile),
                Some((file, arg)) => Step { file, arg, ..Step::new(0) },
            }
        } else if event.ino == 0 || !self.files.has_name(event) {
            return self.leave_out(thread, event, Why::UnknownFile);
        } else if event.aux > 0 {
            return self.leave_out(thread, event, Why::OtherLinks);
        } else {
            let file = self.files.met(event);
            self.files.unlinked(event);
            Step { file, ..Step::new(0) }
        };
        self.make(thread, event, step);
    }

    // Descriptors.

    /// The descriptor that a call is about; one that was open before is opened.
    fn slot(&mut self, event: &Event, thread: u32) -> Slot {
        if let Some(slot) = self.table(thread).of(event) {
            return *slot;
        }
        let (slot, step) = self.opened(event, thread);
        let arg = (opening(event) & !OFlag::O_TRUNC).bits() as u32;
        self.silent(thread, Step { arg, op: Op::Open as u8, ..step });
        slot
    }

    /// A new descriptor, and the step that opens it.
    fn opened(&mut self, event: &Event, thread: u32) -> (Slot, Step) {
        self.close_silently(thread, event.fd);
        let is_named = self.files.has_name(event) && !event.has(flag::TMPFILE);
        let file = self.files.met(event);
        if event.has(flag::TMPFILE) {
            self.files.unlinked(event);
        }
        self.descriptions.push(Description { position: Some(0), flags: event.flags, mover: None });
        let description = self.descriptions.len() - 1;
        let slot = self.table(thread).open(event.fd, description, event.file(), event.flags);
        let flags = if is_named { 0 } else { how::NAMELESS };
        let arg = opening(event).bits() as u32;
        (slot, Step { arg, slot: slot.place, file, flags, ..Step::new(event.op as u8) })
    }

    fn opens(&mut self, event: &Event, thread: u32) {
        if event.op == Op::Open {
            let (_, step) = self.opened(event, thread);
            return self.make(thread, event, step);
        }
        let open = self.table(thread).of(event).copied();
        let step = match open {
            Some(slot) => {
                let arg = opening(event).bits() as u32;
                Step { arg, slot: slot.place, flags: how::ON_DESCRIPTOR, ..Step::new(0) }
            }
            None => self.opened(event, thread).1,
        };
        self.make(thread, event, step);
        self.is_stream(event, thread);
    }

    /// The latest step has opened the stream of a descriptor.
    fn is_stream(&mut self, event: &Event, thread: u32) {
        let step = self.script.threads[thread as usize].steps.len() - 1;
        if let Some(slot) = self.table(thread).get(event.fd) {
            slot.stream = Some(Stream { pending: 0, opened: Some((thread, step)) });
        }
    }

    pub(super) fn close_silently(&mut self, thread: u32, fd: i32) {
        if let Some(slot) = self.table(thread).close(fd) {
            self.silent(thread, Step { slot: slot.place, ..Step::new(Op::Close as u8) });
        }
    }

    fn closes(&mut self, event: &Event, thread: u32) {
        if self.table(thread).of(event).is_none() && kernel_bytes(event) == 0 {
            return self.leave_out(thread, event, Why::NotOpen);
        }
        let file = self.files.met(event);
        let mut step = Step { file, ..Step::new(0) };
        if event.op == Op::StreamClose {
            let slot = self.stream(event, thread);
            step = Step { slot: slot.place, ..step };
        }
        if let Some(slot) = self.table(thread).close(event.fd) {
            self.make(thread, event, Step { slot: slot.place, ..step });
        }
    }

    fn duplicates(&mut self, event: &Event, thread: u32) {
        let to = event.returned as i32;
        let marked = event.has(flag::CLOEXEC);
        if to == event.fd {
            self.thinking[thread as usize] += event.duration as f64;
            if let Some(slot) = self.table(thread).get(to) {
                slot.until_exec = marked;
            }
            return;
        }
        let from = self.slot(event, thread);
        self.close_silently(thread, to);
        let slot = self.table(thread).open(to, from.description, from.file, event.flags);
        let flags = if marked { how::ON_DESCRIPTOR } else { 0 };
        self.make(thread, event, Step { slot: from.place, arg: slot.place, flags, ..Step::new(0) });
    }

    // Writes.

    /// Has a descriptor stand where the call finds it; the flag for the step.
    fn stand(&mut self, event: &Event, slot: &Slot, bytes: u64) -> u16 {
        self.moving = Some(slot.description);
        let description = &mut self.descriptions[slot.description];
        if event.offset == UNKNOWN_OFFSET || event.has(flag::APPEND) {
            description.position = None;
            return 0;
        }
        let stood = description.position.replace(event.offset.saturating_add(bytes));
        if stood == Some(event.offset) { 0 } else { how::POSITION }
    }

    fn writes(&mut self, event: &Event, thread: u32) {
        let slot = self.slot(event, thread);
        let (size, offset, file) = (event.returned.max(0) as u64, event.offset, self.files.met(event));
        self.script.largest = self.script.largest.max(size);
        let mut step = Step { slot: slot.place, size, offset, file, ..Step::new(0) };
        self.set_flags(event, &slot, thread);
        match event.op {
            Op::Pwrite => {}
            Op::Pwritev => {
                let more = event.flags & !self.descriptions[slot.description].flags;
                step.arg = if more & flag::SYNC != 0 { WRITE_SYNC } else { 0 }
                    | if more & flag::DSYNC != 0 { WRITE_DSYNC } else { 0 };
            }
            _ => {
                step.flags = self.stand(event, &slot, size);
                if matches!(event.op, Op::CopyRange | Op::Sendfile) {
                    self.script.source = self.script.source.max(size.clamp(1, LARGEST_SOURCE));
                }
            }
        }
        if event.has(flag::STAMPS_READ) {
            step.flags |= how::STAMPS_READ;
        }
        self.make(thread, event, step);
    }

    /// O_APPEND and O_DIRECT may change while a file is open.
    fn set_flags(&mut self, event: &Event, slot: &Slot, thread: u32) {
        const CHANGEABLE: u32 = flag::APPEND | flag::DIRECT;
        let flags = &mut self.descriptions[slot.description].flags;
        if (event.flags ^ *flags) & CHANGEABLE == 0 {
            return;
        }
        *flags = *flags & !CHANGEABLE | event.flags & CHANGEABLE;
        let arg = (opening(event) & (OFlag::O_APPEND | OFlag::O_DIRECT)).bits() as u32;
        self.silent(thread, Step { slot: slot.place, arg, ..Step::new(code::SET_FLAGS) });
    }

    /// The stream that a call is about. One that was open before is opened, and its buffer filled to what it
    /// has: functions that the program has inlined put bytes there.
    fn stream(&mut self, event: &Event, thread: u32) -> Slot {
        let slot = self.slot(event, thread);
        if slot.stream.is_none() {
            let arg = opening(event).bits() as u32;
            let flags = how::ON_DESCRIPTOR;
            self.silent(thread, Step { slot: slot.place, arg, flags, ..Step::new(Op::StreamOpen as u8) });
            self.is_stream(event, thread);
        }
        let Some(stream) = self.table(thread).of(event).and_then(|slot| slot.stream) else { return slot };
        if !event.has(flag::STREAM_KNOWN) {
            return slot;
        }
        if let Some((thread, at)) = stream.opened.filter(|_| event.buffer > 0) {
            let opens = &mut self.script.threads[thread as usize].steps[at];
            opens.offset = event.buffer.into();
            opens.size = if event.has(flag::UNBUFFERED) {
                3
            } else if event.has(flag::LINE_BUFFERED) {
                2
            } else {
                1
            };
        }
        let step = Step { slot: slot.place, file: self.files.met(event), ..Step::new(0) };
        let more = i64::from(event.pending_before) - i64::from(stream.pending);
        if more > 0 {
            self.silent(thread, Step { size: more as u64, op: Op::StreamWrite as u8, ..step });
        } else if more < 0 {
            self.silent(thread, Step { op: Op::StreamFlush as u8, ..step });
        }
        let opened = stream.opened.filter(|_| event.buffer == 0);
        if let Some(slot) = self.table(thread).get(event.fd) {
            slot.stream = Some(Stream { pending: event.pending_after, opened });
        }
        slot
    }

    fn streams(&mut self, event: &Event, thread: u32) {
        let slot = self.stream(event, thread);
        let size = if event.op == Op::StreamWrite { event.returned.max(0) as u64 } else { 0 };
        self.script.largest = self.script.largest.max(size);
        let (file, offset) = (self.files.met(event), event.offset);
        let mut step = Step { slot: slot.place, size, offset, file, ..Step::new(0) };
        let left = event.flushed().unwrap_or(0);
        if event.op == Op::StreamSeek {
            self.moving = Some(slot.description);
            self.descriptions[slot.description].position = Some(offset);
        } else if left > 0 {
            step.flags = self.stand(event, &slot, left);
        }
        let after = u64::from(event.pending_after);
        if event.op == Op::StreamWrite && event.has(flag::LINE_BUFFERED) && left > 0 && after < size {
            step.arg = u32::try_from(size - after).unwrap_or(0);
        }
        self.make(thread, event, step);
    }
}

/// The flags of open for a file that is open as in a call.
fn opening(event: &Event) -> OFlag {
    let is = |bits, flag| if event.has(bits) { flag } else { OFlag::empty() };
    let close = is(flag::CLOEXEC, OFlag::O_CLOEXEC);
    if event.kind == FileKind::Directory {
        return OFlag::O_RDONLY | OFlag::O_DIRECTORY | close;
    }
    OFlag::O_RDWR
        | OFlag::O_CREAT
        | close
        | is(flag::TRUNC, OFlag::O_TRUNC)
        | is(flag::APPEND, OFlag::O_APPEND)
        | is(flag::SYNC, OFlag::O_SYNC)
        | is(flag::DSYNC, OFlag::O_DSYNC)
        | is(flag::DIRECT, OFlag::O_DIRECT)
}
