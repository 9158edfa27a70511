//! Other buffers: of the C library's streams, and of other languages' libraries.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET, flag};

use super::super::threads::Step;
use super::{DURABLE, Next, Stage, wait_of};
use crate::buffers::ProgramBuffer;
use crate::call::kernel_bytes;

impl Stage {
    pub(super) fn buffer(
        &mut self,
        step: Step,
        event: &Event,
        selected: bool,
        size: u32,
        next: &mut Next<'_>,
    ) {
        if selected && event.has(flag::STREAM_KNOWN) {
            return self.stream(step, *event, size, next);
        }
        let is_write = matches!(event.op, Op::Write | Op::Writev) && event.returned > 0;
        let known = self.buffers.get(&event.file()).filter(|(pid, _)| *pid == event.pid);
        match known {
            Some((_, old)) if selected && is_write && event.offset != UNKNOWN_OFFSET => {
                let old = old.clone();
                self.refill(step, event, &old, u64::from(size), next);
            }
            _ => {
                self.release(event, next);
                next(step);
            }
        }
    }

    /// As the C library does it: what fits waits; else all that was waiting and all whole buffers are
    /// written.
    fn stream(&mut self, step: Step, event: Event, size: u32, next: &mut Next<'_>) {
        let waiting = self.streams.entry((event.pid, event.fd)).or_default();
        let before = *waiting;
        let accepted = if event.op == Op::StreamWrite { event.returned.max(0) as u64 } else { 0 };
        let whole = u64::from(before) + accepted;
        *waiting = match event.op {
            Op::StreamWrite if whole <= u64::from(size) => whole as u32,
            Op::StreamWrite => (whole % u64::from(size.max(1))) as u32,
            _ => 0,
        };
        let flags = event.flags & !(flag::UNBUFFERED | flag::LINE_BUFFERED);
        let changed = Event { pending_before: before, pending_after: *waiting, buffer: size, flags, ..event };
        if event.op == Op::StreamClose {
            self.streams.remove(&(event.pid, event.fd));
        }
        self.change(step, changed, next);
    }

    /// A write of the buffer of a program's library. What it lacks or exceeds the old buffer by, since pieces
    /// of the program go in whole, it lacks or exceeds the new one by. Less than a full buffer was flushed by
    /// the program, and is again.
    fn refill(&mut self, step: Step, event: &Event, old: &ProgramBuffer, size: u64, next: &mut Next<'_>) {
        let bytes = kernel_bytes(event);
        let (is_full, is_whole) = (old.is_full(bytes), old.is_handed_on_whole(bytes));
        let is_flush = !is_full && !old.is_larger(bytes);
        // The most that is gathered before it is written.
        let most = if is_full { (size + bytes).saturating_sub(old.bytes) } else { size };
        let holds = |stage: &Stage| {
            let held = stage.files.get(&event.file()).and_then(|file| file.held.first());
            held.map(|held| (kernel_bytes(held), goes_on(held, event)))
        };
        if let Some((held, goes_on)) = holds(self)
            && (!goes_on || most == 0 || is_whole && held + bytes > size)
        {
            self.release_file(event.file(), next);
        }
        let before = holds(self).map_or(0, |(held, _)| held);
        let is_same = match () {
            () if is_whole => is_flush || bytes > size,
            () if is_full => most == bytes || most == 0,
            () => bytes <= size,
        };
        if before == 0 && is_same {
            return next(step);
        }
        let mut gathered = *event;
        if let Some(held) = self.files.entry(event.file()).or_default().held.pop() {
            gathered.offset = held.offset;
            gathered.requested += held.requested;
            gathered.returned += held.returned;
            gathered.duration += held.duration;
        }
        next(Step { spared: step.spared + wait_of(event), ..step.thinking() });
        let mut is_changed = before > 0;
        while !is_whole && kernel_bytes(&gathered) >= most {
            is_changed = true;
            next(Step::at_once(step.thread, front(&mut gathered, most)));
        }
        self.changed += u64::from(is_changed);
        self.durable += u64::from(is_changed && event.has(DURABLE));
        match kernel_bytes(&gathered) {
            0 => {}
            _ if is_flush => next(Step::at_once(step.thread, gathered)),
            _ => self.files.entry(event.file()).or_default().held.push(gathered),
        }
    }
}

/// The write goes on where the other one of its descriptor ended.
fn goes_on(before: &Event, event: &Event) -> bool {
    let way = |of: &Event| (of.pid, of.fd, of.flags & !flag::STAMPS_READ);
    way(before) == way(event) && before.offset.checked_add(kernel_bytes(before)) == Some(event.offset)
}

/// Takes the first bytes of a write off as one of its own.
fn front(write: &mut Event, bytes: u64) -> Event {
    let duration = (write.duration as f64 * bytes as f64 / kernel_bytes(write) as f64) as u64;
    let front = Event { requested: bytes, returned: bytes as i64, duration, ..*write };
    write.offset += bytes;
    write.requested = write.requested.saturating_sub(bytes);
    write.returned -= bytes as i64;
    write.duration -= duration;
    write.flags &= !flag::STAMPS_READ;
    front
}
