//! One change, applied to the steps of a trace as they come.

mod buffer;

use std::collections::BTreeMap;
use std::mem;

use cawl_wire::{ADVICE_DONTNEED, Event, FileId, FileKind, Op, UNKNOWN_OFFSET, flag};

use super::change::{Change, Owner, Rewrite, SyncsKept};
use super::facts::{TraceFacts, is_close};
use super::threads::{Base, Step, Thread};
use crate::buffers::ProgramBuffer;
use crate::call::{RANGE_WRITE, is_file_read, kernel_bytes};
use crate::glob::Glob;
use crate::model::Map;
use crate::quantity::counted;
use crate::record::FileFacts;
use crate::units::Bytes;

/// Writes that are held at most to be put in order.
const SORTED: usize = 1 << 16;
/// Flags of open files that make each write durable.
const DURABLE: u32 = flag::SYNC | flag::DSYNC;

/// Takes steps and hands them on, changed.
type Next<'a> = dyn FnMut(Step) + 'a;

/// A change with what it remembers.
pub(super) struct Stage {
    rewrite: Rewrite,
    on: Option<Glob>,
    /// Whether each named file is among those of the change.
    named: Map<FileId, bool>,
    facts: TraceFacts,
    files: BTreeMap<FileId, File>,
    /// The buffers of programs, with the process.
    buffers: Map<FileId, (u32, ProgramBuffer)>,
    /// Bytes in the buffers of streams, by process and descriptor.
    streams: Map<(u32, i32), u32>,
    /// Calls that were changed, added or left out.
    pub(super) changed: u64,
    /// Changed writes that were durable when they returned.
    durable: u64,
    /// Calls that the kernel would refuse with the change, and that are left as they were.
    refused: u64,
    /// The most syncs that were left out one after another, and the most bytes written to a file since its
    /// latest sync.
    at_risk: (u64, u64),
}

#[derive(Default)]
struct File {
    /// Calls that wait.
    held: Vec<Event>,
    /// Syncs since the one that was kept, and bytes.
    syncs: u64,
    bytes: u64,
    closes: u64,
    begun: bool,
    /// What was written before the last part, from and to.
    behind: (u64, u64),
}

impl Stage {
    pub(super) fn new(change: &Change, facts: &TraceFacts) -> Stage {
        let is_of_buffers = matches!(change.rewrite, Rewrite::Buffer(_));
        let needs_sizes = change.rewrite.needs_facts() && !is_of_buffers;
        Stage {
            rewrite: change.rewrite.clone(),
            on: change.on.clone(),
            named: Map::default(),
            facts: if needs_sizes { facts.clone() } else { TraceFacts::default() },
            buffers: if is_of_buffers { facts.buffers() } else { Map::default() },
            files: BTreeMap::new(),
            streams: Map::default(),
            changed: 0,
            durable: 0,
            refused: 0,
            at_risk: (0, 0),
        }
    }

    pub(super) fn name(&mut self, facts: &FileFacts) {
        if let Some(on) = &self.on {
            self.named.insert(facts.file(), on.fits(&facts.path));
        }
    }

    pub(super) fn step(&mut self, step: Step, next: &mut Next<'_>) {
        if let Rewrite::Writers(count, owner) = self.rewrite {
            return self.multiply(step, count, owner, next);
        }
        let Some(event) = step.call else {
            return next(self.scaled(step));
        };
        let selected = self.has(&event);
        match self.rewrite {
            Rewrite::Merge(most) => self.merge(step, &event, selected, most, next),
            Rewrite::Buffer(size) => self.buffer(step, &event, selected, size, next),
            Rewrite::Sort => self.sort(step, &event, selected, next),
            Rewrite::Think(_) => next(self.scaled(step)),
            Rewrite::Only if event.kind == FileKind::Regular && !selected => self.leave_out(step, next),
            Rewrite::Drop if selected => self.leave_out(step, next),
            _ if !selected => next(step),
            Rewrite::Split(size) => self.split(step, &event, size, next),
            Rewrite::Syncs(kept) => self.thin_out(step, &event, kept, next),
            Rewrite::SyncAtClose => self.sync_at_close(step, event, next),
            Rewrite::Fdatasync if event.op == Op::Fsync => {
                self.change(step, Event { op: Op::Fdatasync, ..event }, next);
            }
            Rewrite::Flags(flags, on) => self.flags(step, event, flags, on, next),
            Rewrite::Preallocate => self.preallocate(step, &event, next),
            Rewrite::Pace(bytes) => self.pace(step, &event, bytes, next),
            Rewrite::Dontneed(bytes) => self.drop_behind(step, &event, bytes, next),
            Rewrite::AppendOnly => self.append(step, event, next),
            Rewrite::Move(dev) => self.change(step, Event { dev, ..event }, next),
            Rewrite::Drop | Rewrite::Only | Rewrite::Fdatasync | Rewrite::Writers(..) => next(step),
        }
    }

    /// The trace is over: what was held goes on.
    pub(super) fn finish(&mut self, next: &mut Next<'_>) {
        if self.rewrite == Rewrite::SyncAtClose {
            // Their programs closed them by their end.
            for event in self.files.values_mut().flat_map(|file| mem::take(&mut file.held)) {
                self.changed += 1;
                next(Step::at_once((event.pid, event.tid), sync_of(&event)));
            }
        }
        let moved = |file: &mut File| {
            let is_moved = !file.held.is_empty();
            file.syncs -= u64::from(is_moved);
            u64::from(is_moved)
        };
        if matches!(self.rewrite, Rewrite::Syncs(_)) {
            self.changed -= self.files.values_mut().map(moved).sum::<u64>();
        }
        self.release_all(next);
        for file in mem::take(&mut self.files).into_values() {
            self.note_risk(file.syncs, file.bytes);
        }
    }

    /// True for calls on files of the change; among them, where syncs are changed or left out, those on
    /// directories.
    fn has(&self, event: &Event) -> bool {
        let syncs = matches!(self.rewrite, Rewrite::Syncs(_) | Rewrite::Fdatasync | Rewrite::Drop);
        if event.kind != FileKind::Regular && !(syncs && event.kind == FileKind::Directory) {
            return false;
        }
        self.on.is_none() || self.named.get(&event.file()).copied().unwrap_or(false)
    }

    fn change(&mut self, step: Step, event: Event, next: &mut Next<'_>) {
        self.changed += 1;
        next(Step { call: Some(event), ..step });
    }

    fn leave_out(&mut self, step: Step, next: &mut Next<'_>) {
        self.changed += 1;
        next(Step { spared: step.spared + step.call.as_ref().map_or(0, wait_of), ..step.thinking() });
    }

    fn scaled(&self, step: Step) -> Step {
        match self.rewrite {
            // What a thread waits for is not its own.
            Rewrite::Think(factor) if step.base == Base::Itself => {
                Step { think: step.think * factor, ..step }
            }
            _ => step,
        }
    }

    // Held writes.

    fn merge(&mut self, step: Step, event: &Event, selected: bool, most: u64, next: &mut Next<'_>) {
        let is_write = selected && is_plain_write(event) && kernel_bytes(event) < most;
        if !is_write {
            self.release(event, next);
            return next(step);
        }
        let held = self.files.entry(event.file()).or_default().held.first_mut();
        let continued =
            held.filter(|held| continues(held, event) && kernel_bytes(held) + kernel_bytes(event) <= most);
        if let Some(held) = continued {
            held.returned += event.returned;
            held.requested += event.requested;
            held.duration += event.duration;
            let is_full = kernel_bytes(held) == most;
            self.changed += 1;
            self.durable += u64::from(event.has(DURABLE));
            next(Step { spared: step.spared + wait_of(event), ..step.thinking() });
            if is_full {
                self.release_file(event.file(), next);
            }
        } else {
            self.release_file(event.file(), next);
            next(step.thinking());
            self.files.entry(event.file()).or_default().held.push(*event);
        }
    }

    fn sort(&mut self, step: Step, event: &Event, selected: bool, next: &mut Next<'_>) {
        if selected && is_plain_write(event) && !event.has(DURABLE) && event.offset != UNKNOWN_OFFSET {
            next(step.thinking());
            let held = &mut self.files.entry(event.file()).or_default().held;
            held.push(*event);
            if held.len() >= SORTED {
                self.release_file(event.file(), next);
            }
        } else {
            self.release(event, next);
            next(step);
        }
    }

    /// Before a call whatever it could depend on goes on.
    fn release(&mut self, event: &Event, next: &mut Next<'_>) {
        match event.op {
            Op::Seek => {}
            Op::Sync | Op::Syncfs | Op::Fork | Op::Spawn | Op::Exec | Op::CopyRange | Op::Sendfile => {
                self.release_all(next);
            }
            _ => self.release_file(event.file(), next),
        }
    }

    fn release_all(&mut self, next: &mut Next<'_>) {
        let waiting = self.files.iter().filter(|(_, file)| !file.held.is_empty()).map(|(file, _)| *file);
        for file in waiting.collect::<Vec<_>>() {
            self.release_file(file, next);
        }
    }

    fn release_file(&mut self, file: FileId, next: &mut Next<'_>) {
        let Some(held) = self.files.get_mut(&file).map(|file| mem::take(&mut file.held)) else { return };
        let mut sorted = held;
        if self.rewrite == Rewrite::Sort {
            let before: Vec<u64> = sorted.iter().map(|event| event.offset).collect();
            sorted.sort_by_key(|event| event.offset);
            let moved = sorted.iter().zip(before).filter(|(event, before)| event.offset != *before);
            self.changed += moved.count() as u64;
        }
        for event in sorted {
            next(Step::at_once((event.pid, event.tid), event));
        }
    }

    // Changes of a call.

    fn split(&mut self, step: Step, event: &Event, size: u64, next: &mut Next<'_>) {
        let bytes = kernel_bytes(event);
        if !is_plain_write(event) || bytes <= size {
            return next(step);
        }
        self.changed += 1;
        let mut step = step;
        let mut done = 0;
        while done < bytes {
            let piece = size.min(bytes - done);
            let offset = if event.offset == UNKNOWN_OFFSET { UNKNOWN_OFFSET } else { event.offset + done };
            let duration = (event.duration as f64 * piece as f64 / bytes as f64) as u64;
            // Nobody reads the time stamps between the pieces.
            let flags = if done == 0 { event.flags } else { event.flags & !flag::STAMPS_READ };
            let call = Event { offset, requested: piece, returned: piece as i64, duration, flags, ..*event };
            next(Step { call: Some(call), ..step });
            step = Step::at_once(step.thread, call);
            done += piece;
        }
    }

    fn thin_out(&mut self, step: Step, event: &Event, kept: SyncsKept, next: &mut Next<'_>) {
        let file = self.files.entry(event.file()).or_default();
        match event.op {
            Op::Fsync | Op::Fdatasync => {}
            _ if is_close(event) => {
                file.closes += 1;
                let is_last = kept == SyncsKept::Last || file.closes >= self.facts.closes_of(event.file());
                let (syncs, bytes) = (file.syncs, file.bytes);
                if let Some(sync) = file.held.pop_if(|_| is_last) {
                    (file.syncs, file.bytes) = (0, 0);
                    self.note_risk(syncs.saturating_sub(1), bytes);
                    self.changed = self.changed.saturating_sub(1);
                    next(Step { call: Some(Event { pid: event.pid, tid: event.tid, ..sync }), ..step });
                    return next(Step::at_once(step.thread, *event));
                }
                return next(step);
            }
            _ if event.has(DURABLE) => return next(step),
            _ => {
                file.bytes = file.bytes.saturating_add(kernel_bytes(event));
                return next(step);
            }
        }
        file.syncs += 1;
        let stays = match kept {
            SyncsKept::OneIn(count) => file.syncs >= u64::from(count),
            SyncsKept::Last | SyncsKept::None => false,
        };
        if stays {
            let (syncs, bytes) = (file.syncs, file.bytes);
            (file.syncs, file.bytes) = (0, 0);
            file.held.clear();
            self.note_risk(syncs - 1, bytes);
            return next(step);
        }
        if kept != SyncsKept::None {
            file.held = vec![*event];
        }
        self.leave_out(step, next);
    }

    /// The latest write of a file waits for its sync.
    fn sync_at_close(&mut self, step: Step, event: Event, next: &mut Next<'_>) {
        let held = &mut self.files.entry(event.file()).or_default().held;
        match event.op {
            Op::Fsync | Op::Fdatasync => held.clear(),
            Op::Close if held.pop().is_some() => {
                self.changed += 1;
                next(Step { call: Some(sync_of(&event)), ..step });
                return next(Step::at_once(step.thread, event));
            }
            // What the stream holds is written by its close.
            Op::StreamClose if kernel_bytes(&event) > 0 || !held.is_empty() => {
                held.clear();
                self.changed += 1;
                next(step);
                return next(Step::at_once(step.thread, sync_of(&event)));
            }
            _ if kernel_bytes(&event) > 0 => {
                held.clear();
                held.push(event);
            }
            _ => {}
        }
        next(step);
    }

    fn note_risk(&mut self, syncs: u64, bytes: u64) {
        if syncs > 0 && bytes > 0 {
            self.at_risk = (self.at_risk.0.max(syncs), self.at_risk.1.max(bytes));
        }
    }

    fn flags(&mut self, step: Step, event: Event, flags: u32, on: bool, next: &mut Next<'_>) {
        let changed = if on { event.flags | flags } else { event.flags & !flags };
        if changed == event.flags {
            return next(step);
        }
        if on && flags == flag::DIRECT && !is_in_sectors(&event) {
            self.refused += 1;
            return next(step);
        }
        self.durable += u64::from(!on && flags & DURABLE != 0 && kernel_bytes(&event) > 0);
        let spared = if on { 0 } else { wait_of(&event) };
        let step = Step { spared: step.spared + spared, ..step };
        self.change(step, Event { flags: changed, ..event }, next);
    }

    fn preallocate(&mut self, step: Step, event: &Event, next: &mut Next<'_>) {
        let size = self.facts.size_of(event.file());
        let file = self.files.entry(event.file()).or_default();
        // Writes with O_APPEND would go behind that space.
        let is_first = kernel_bytes(event) > 0 && !mem::replace(&mut file.begun, true);
        if !is_first || size == 0 || event.has(flag::APPEND) {
            return next(step);
        }
        self.changed += 1;
        let call = Event { op: Op::Allocate, offset: 0, requested: size, returned: 0, duration: 0, ..*event };
        next(Step { call: Some(call), ..step });
        next(Step::at_once(step.thread, *event));
    }

    fn pace(&mut self, step: Step, event: &Event, bytes: u64, next: &mut Next<'_>) {
        next(step);
        if let Some((offset, end)) = self.part(event, bytes) {
            let call = Event { op: Op::SyncRange, aux: RANGE_WRITE, ..about(event, offset, end) };
            self.changed += 1;
            next(Step::at_once(step.thread, call));
        }
    }

    fn drop_behind(&mut self, step: Step, event: &Event, bytes: u64, next: &mut Next<'_>) {
        next(step);
        let Some((offset, end)) = self.part(event, bytes) else { return };
        let file = self.files.entry(event.file()).or_default();
        let behind = file.behind;
        file.behind = (if behind.1 == offset { behind.0 } else { offset }, end);
        if behind.0 < behind.1 {
            let call = Event { op: Op::Advise, aux: ADVICE_DONTNEED, ..about(event, behind.0, behind.1) };
            self.changed += 1;
            next(Step::at_once(step.thread, call));
        }
    }

    /// The part of its file that a call completes, from and to: as many bytes were written since the last
    /// one.
    fn part(&mut self, event: &Event, bytes: u64) -> Option<(u64, u64)> {
        let written = kernel_bytes(event);
        let file = self.files.entry(event.file()).or_default();
        file.bytes = file.bytes.saturating_add(written);
        if written == 0 || file.bytes < bytes || event.offset == UNKNOWN_OFFSET {
            return None;
        }
        let end = event.offset.saturating_add(written);
        Some((end.saturating_sub(mem::take(&mut file.bytes)), end))
    }

    fn append(&mut self, step: Step, event: Event, next: &mut Next<'_>) {
        let written = kernel_bytes(&event);
        if written == 0 || event.offset == UNKNOWN_OFFSET {
            return next(step);
        }
        let file = self.files.entry(event.file()).or_default();
        let offset = file.bytes;
        file.bytes = offset.saturating_add(written);
        if offset == event.offset {
            return next(step);
        }
        self.change(step, Event { offset, ..event }, next);
    }

    fn multiply(&mut self, step: Step, count: u32, owner: Owner, next: &mut Next<'_>) {
        next(step);
        for copy in 1..count {
            let pid = |pid: u32| pid | copy << PIDS;
            let call = step.call.map(|event| {
                self.changed += 1;
                let mut call = Event { pid: pid(event.pid), tid: pid(event.tid), ..event };
                if event.op == Op::Fork && event.returned > 0 {
                    call.returned = pid(event.returned as u32).into();
                }
                match owner {
                    _ if event.kind != FileKind::Regular => {}
                    Owner::Each => {
                        call.birth ^= copy << 20;
                        call.buffer ^= if event.renamed().is_some() { copy << 20 } else { 0 };
                    }
                    Owner::All if event.op == Op::Rename => {}
                    Owner::All if event.offset != UNKNOWN_OFFSET => {
                        call.offset += u64::from(copy) * self.facts.size_of(event.file());
                    }
                    Owner::All => {}
                }
                call
            });
            let base = match step.base {
                Base::Process(parent) => Base::Process(pid(parent)),
                Base::End(child) => Base::End(pid(child)),
                base => base,
            };
            let thread: Thread = (pid(step.thread.0), pid(step.thread.1));
            next(Step { thread, base, call, ..step });
        }
    }

    /// What became less safe, if anything did.
    pub(super) fn safety(&self) -> Option<String> {
        let (syncs, bytes) = self.at_risk;
        let buffered = |size: u64| {
            let lost = format!(
                "a program that is killed loses up to {} that it has not handed to the kernel yet",
                Bytes(size)
            );
            if self.durable == 0 {
                lost
            } else {
                format!("{lost}, {} writes of it durable before", self.durable)
            }
        };
        let refused = (self.refused > 0).then(|| {
            let calls = match self.refused {
                1 => "1 call is".to_owned(),
                calls => format!("{calls} calls are"),
            };
            format!(
                "{calls} not in whole sectors of {SECTOR} B: with O_DIRECT the kernel refuses them (EINVAL); \
                 here they stay as they were"
            )
        });
        if self.changed == 0 {
            return refused;
        }
        Some(match self.rewrite {
            Rewrite::Merge(most) => buffered(most),
            Rewrite::Buffer(size) => buffered(size.into()),
            Rewrite::Syncs(_) if self.at_risk != (0, 0) => format!(
                "a crash loses what up to {} made durable: up to {} of a file",
                counted(syncs, "sync"),
                Bytes(bytes)
            ),
            // Of other syncs, each write is durable by itself.
            Rewrite::Syncs(_) | Rewrite::Fdatasync => {
                "a crash may lose times and permissions of files, not their data".to_owned()
            }
            Rewrite::Flags(flags, false) if flags & DURABLE != 0 => {
                let writes = match self.durable {
                    1 => "1 write is no longer durable when it returns".to_owned(),
                    writes => format!("{writes} writes are no longer durable when they return"),
                };
                format!("{writes}; a crash loses what came after the latest sync")
            }
            Rewrite::Flags(flag::DIRECT, true) => {
                let refused = refused.map_or(String::new(), |refused| format!("; {refused}"));
                format!("O_DIRECT makes nothing durable: a sync is needed as before{refused}")
            }
            Rewrite::Preallocate => {
                "files have their final size from the first write on: readers and O_APPEND find zeros, after a crash too"
                    .to_owned()
            }
            Rewrite::Sort => "a crash between two syncs leaves later writes without earlier ones".to_owned(),
            Rewrite::AppendOnly => "the file is another one: its readers must follow its order".to_owned(),
            _ => return None,
        })
    }
}

/// The least that a device reads or writes, in bytes.
const SECTOR: u64 = 512;

/// Bits of a process's number (PID_MAX_LIMIT).
const PIDS: u32 = 22;

/// A call on the file of another one, about a range of it.
fn about(event: &Event, offset: u64, end: u64) -> Event {
    Event { offset, requested: end - offset, returned: 0, duration: 0, ..*event }
}

/// How long a call took that waits for the device, in ns; 0 for any other.
fn wait_of(event: &Event) -> u64 {
    let waits = matches!(event.op, Op::Fsync | Op::Fdatasync) || event.has(DURABLE | flag::DIRECT);
    if waits { event.duration } else { 0 }
}

/// A write that may be put together with others.
fn is_plain_write(event: &Event) -> bool {
    matches!(event.op, Op::Write | Op::Pwrite | Op::Writev | Op::Pwritev) && event.returned > 0
}

/// What it moves begins and ends where O_DIRECT can, on a device with the smallest sectors. A read may end
/// earlier, with its file.
fn is_in_sectors(event: &Event) -> bool {
    let bytes = if is_file_read(event) { event.requested } else { kernel_bytes(event) };
    let begins = event.offset == UNKNOWN_OFFSET || event.offset.is_multiple_of(SECTOR);
    bytes == 0 || begins && bytes.is_multiple_of(SECTOR)
}

/// An fsync of the file of a call, by the same thread.
fn sync_of(event: &Event) -> Event {
    Event { op: Op::Fsync, offset: UNKNOWN_OFFSET, requested: 0, returned: 0, duration: 0, ..*event }
}

/// The call goes on where the other one ended, in the same way. That the time stamps were read between them
/// does not part them.
fn continues(before: &Event, event: &Event) -> bool {
    let end = before.offset.checked_add(kernel_bytes(before));
    let way = |of: &Event| (of.pid, of.tid, of.op, of.fd, of.flags & !flag::STAMPS_READ);
    way(before) == way(event) && end == Some(event.offset)
}
