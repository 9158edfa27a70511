//! Copies inside the kernel, from a file or a pipe into a file, and stores through mappings.
//!
//! The law: a copy is a row of writes. Sixteen pages of the source's cache are put into a pipe
//! (`filemap_splice_read`, a pipe of `PIPE_DEF_BUFFERS`), then one `write_iter` of the destination takes them
//! out (`iter_file_splice_write`, 6.18), and so on. So it copies from memory into folios of 64 KiB at most,
//! is checked for pauses as any write is, and one that is synchronous waits for each piece. copy_file_range
//! (`splice_copy_file_range`) and sendfile do this in one call; splice out of a pipe is the latter half of
//! it.
//!
//! Two things no call tells. *Where the source is*: it is taken to be cached, until a copy of the process
//! takes as long as reading does; the next ones are read then, until one is not. *Whether it is a copy*:
//! filesystems that share blocks (`remap_file_range`) do so for copy_file_range, too; a device on which one
//! was too fast for memory is taken to share until one is not.
//!
//! A store makes a page dirty at the fault (`page_mkwrite`), in the program's own time: a fault costs what a
//! call of write does, and the page. The daemon's looks at mappings report stores afterwards, so no model
//! time passes for them.

use cawl_wire::{Event, MAX_BYTES, Op, flag};

use super::super::Prediction;
use super::super::lru::LruMap;
use super::super::work::Work;
use super::{Call, Kernel};
use crate::call::{is_clone, is_synchronous, kernel_bytes};
use crate::cause::Cause;
use crate::constants::Timing;
use crate::units::Seconds;

/// Pages that a copy moves at a time (`PIPE_DEF_BUFFERS`).
const PIECE: u64 = 16;
/// What filling the pipe with a piece and taking it out costs beyond a write, in calls of write. On 6.18 a
/// piece took 0.8 µs longer than a write of 64 KiB from memory over the same pages (p10 of 128 calls of
/// 2 MiB), where a call takes 0.77 beyond its bytes; filling alone, by sendfile to /dev/null, took 1.0.
const FILL: f64 = 1.0;
/// Pieces of a synchronous copy that are waited for one by one, at most: no trace may take for ever.
const MAX_WAITS: u64 = 1024;
/// Most bytes that a call copies (`MAX_RW_COUNT`).
const MAX_COPIED: u64 = 0x7fff_f000;
/// A call this many times faster than memory is no copy.
const TOO_FAST: f64 = 8.0;
/// Pages from which on a copy says something.
const TELLING: u64 = 256;

/// What copies of late have shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Copies {
    /// Processes whose latest source had to be read.
    read: LruMap<u32, ()>,
    /// Devices (`st_dev`) whose filesystem shares blocks.
    sharing: Vec<u64>,
}

impl Kernel {
    /// copy_file_range, sendfile and splice into a file.
    pub(super) fn copy_call(&mut self, call: &mut Call, event: &Event) {
        let offset = self.offset(event, call.file);
        let bytes = kernel_bytes(event);
        if bytes == 0 {
            return call.spend(Cause::Call, call.constants.empty_call);
        }
        // A copy moves no more at a time (`splice_copy_file_range`).
        let shares = bytes > MAX_COPIED || self.copies.sharing.contains(&event.dev);
        if is_clone(event) || event.op == Op::CopyRange && shares {
            call.spend_call(call.constants.call);
            return self.share(call.file, offset, bytes);
        }
        let (piece, calls) = match event.op {
            Op::Splice => (bytes, 1.0),
            _ => (PIECE * call.constants.page, 1.0 + FILL),
        };
        call.folio = call.folio.min(piece.div_ceil(call.constants.page));
        let pieces = bytes.div_ceil(piece) as f64;
        call.spend(Cause::Call, pieces * calls * call.constants.call);
        call.work.calls += pieces * calls;
        let never_waits = self.never_waits(call, event);
        if let Some(remote) = self.remote(call) {
            self.remote_write(call, event, &remote, (offset, bytes), piece);
        } else if event.has(flag::DIRECT) && !self.in_memory(call) {
            self.direct_write(call, event, offset, bytes);
        } else if is_synchronous(event) && !never_waits {
            let piece = piece.max(bytes.div_ceil(MAX_WAITS));
            let mut done = 0;
            while done < bytes {
                let (at, some) = (offset.saturating_add(done), piece.min(bytes - done));
                self.buffered_write(call, at, some, false);
                self.machine.write_through(call, event, at, some);
                done += some;
            }
        } else {
            self.buffered_write(call, offset, bytes, false);
        }
        if event.op != Op::Splice {
            self.read_source(call, event, bytes);
        }
    }

    /// The call opened a file of an overlay's lower layer for writing: a copy of it was made in the upper one
    /// before (`ovl_copy_up_data`, 6.18: spliced through a pipe, or cloned), and made durable
    /// (`ovl_copy_up_file`).
    pub(super) fn copy_up(&mut self, call: &mut Call, event: &Event) {
        let began = call.at;
        let spent = call.spent;
        let bytes = event.requested.min(MAX_BYTES as u64);
        if self.machine.devices[call.device].traits.clones {
            call.spend_call(call.constants.call);
            self.share(call.file, 0, bytes);
        } else {
            let pieces = bytes.div_ceil(PIECE * call.constants.page) as f64;
            call.spend_call(pieces * (1.0 + FILL) * call.constants.call);
            call.folio = call.folio.min(PIECE);
            if bytes > 0 {
                self.buffered_write(call, 0, bytes, false);
            }
            self.read_source(call, event, bytes);
        }
        if !self.filesystems.is_volatile(event.dev) {
            self.machine.make_durable(call);
        }
        // None of it is an example of what other calls cost.
        (call.spent, call.work) = (spent, Work::default());
        call.spent[Cause::CopyUp] += call.at - began;
    }

    /// The source may not be cached. Behind the first window it is read ahead while what has come is copied.
    fn read_source(&mut self, call: &mut Call, event: &Event, bytes: u64) {
        let &Timing { read_latency, read_rate, readahead, .. } = &self.machine.device(call).timing;
        let reading = read_latency + bytes as f64 / read_rate;
        let ahead = bytes.saturating_sub(readahead) as f64 / bytes.max(1) as f64;
        let spent = &call.spent;
        let copied = spent[Cause::Copy] + spent[Cause::NewPages] + spent[Cause::FlusherBeside];
        let reading = (reading - copied * ahead).max(Seconds::ZERO);
        call.work.source = reading;
        if self.copies.read.peek(&event.pid).is_some() {
            call.spend(Cause::PartialPage, reading);
            call.spread.copied.0 -= reading;
            self.machine.advance(call.at);
        } else {
            call.spread.copied.1 += reading;
        }
    }

    /// Pages are shared with another file: nothing is written, and what was cached of them is dropped.
    fn share(&mut self, file: u32, offset: u64, bytes: u64) {
        let page = self.constants.page;
        let last = offset.saturating_add(bytes);
        let dropped = self.machine.cache.drop_range(file, offset / page, last.div_ceil(page));
        self.machine.cancel(file, dropped);
        let inode = self.machine.cache.file_mut(file);
        inode.size = inode.size.max(last);
        self.machine.change(file, self.machine.now, true);
    }

    /// What a copy that `took` so long says of those to come.
    pub(super) fn judge_copy(&mut self, event: &Event, prediction: &Prediction, took: Seconds) {
        let bytes = kernel_bytes(event);
        let copies = matches!(event.op, Op::CopyRange | Op::Sendfile);
        if !copies || is_clone(event) {
            return;
        }
        self.judge_source(event, prediction, took);
        if bytes < TELLING * self.constants.page {
            return;
        }
        let is_shared = took * TOO_FAST < bytes as f64 * self.constants.copy_byte;
        let sharing = &mut self.copies.sharing;
        if event.op == Op::CopyRange && is_shared != sharing.contains(&event.dev) {
            if is_shared { sharing.push(event.dev) } else { sharing.retain(|dev| *dev != event.dev) }
        }
    }

    /// Learns from a copy that `took` so long whether the sources of its process have to be read.
    fn judge_source(&mut self, event: &Event, prediction: &Prediction, took: Seconds) {
        let source = prediction.work.source;
        if source > Seconds::ZERO {
            let was_read = self.copies.read.take(&event.pid).is_some();
            let cost = Seconds::from(prediction.cost) - if was_read { source } else { Seconds::ZERO };
            // Cold memory takes as long as reading does.
            if took > cost + source / 2.0 && self.memory.supply != Some(true) {
                self.copies.read.put(event.pid, ());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cawl_wire::{FileKind, flag};

    use super::*;
    use crate::profile::{HostProfile, Measured};
    use crate::units::Nanos;

    #[test]
    fn copying_an_empty_file_up_passes_no_blocks() {
        let mut profile = HostProfile::uncalibrated();
        profile.calls.block = Some(Measured::assumed(Nanos::new(10.0)));
        let mut kernel = Kernel::new(&profile);
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino) = (FileKind::Regular, 1, 1);
        (event.offset, event.requested, event.returned) = (0, 1 << 20, 1 << 20);
        kernel.step_call(&event).expect("a cost");
        (event.op, event.requested, event.flags) = (Op::Open, 0, flag::COPIED_UP);
        let cost = kernel.step_call(&event).expect("a cost").cost;
        assert!(cost < Nanos::seconds(1.0), "{cost}");
    }
}
