//! A copy of a model with made-up writers in it.

use cawl_wire::{Event, FileKind, Op};

use crate::model::{CostModel, Disturbance, Prediction};
use crate::units::{Bytes, Nanos, Time};

/// Numbers of files and processes that do not exist: they are the highest there are.
const NOBODY: u32 = u32::MAX;

/// A writer in a [`Scene`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// Untraced writers, whose pages are dirty already.
    Quiet,
    /// The job that is asked about.
    Job,
    /// Those that write now and go on.
    Others,
}

/// A copy of a model at a moment of its own clock, to look ahead with.
pub struct Scene {
    pub(super) model: Box<dyn CostModel>,
    pub(super) now: Time,
    device: u64,
    /// Where each writer's file ends.
    ends: [u64; 3],
}

impl Scene {
    /// A copy of `model`, which is to be looked ahead with from `now` of its clock on. `device`: `st_dev` of
    /// what is written to. No more than the copy is made here, so that the engine that keeps the model goes
    /// on soon.
    pub fn new(model: &dyn CostModel, now: Time, device: u64) -> Scene {
        Scene { model: model.fork(), now, device, ends: [0; 3] }
    }

    /// Brings the copy to its moment, before anything is asked of it.
    pub(super) fn begun(mut self) -> Scene {
        self.model.advance(self.now);
        // A call may be under way, which the model has taken as a whole.
        self.now = self.now.max(self.model.state().time);
        self.adopt();
        self
    }

    /// Pages of untraced writers become pages of a file, so that they are written back like any other.
    fn adopt(&mut self) {
        let disturbance = self.model.disturbance(self.now);
        if disturbance.offset > 0.0 {
            self.model.disturb(Disturbance { at: self.now, ..Disturbance::default() });
            self.soil(Bytes::from_f64(disturbance.offset));
        } else {
            self.model.disturb(Disturbance { drift: 0.0, ..disturbance });
        }
    }

    pub(super) fn fork(&self) -> Scene {
        Scene { model: self.model.fork(), ..*self }
    }

    /// Only this writer uses `device` from now on.
    pub(super) fn on_device(mut self, device: Option<u64>) -> Scene {
        if let Some(device) = device.filter(|device| *device != self.device) {
            self.device = device;
            self.ends = [0; 3];
        }
        self
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, span: Nanos) {
        self.now = self.now + span.max(Nanos::new(1.0));
        self.model.advance(self.now);
    }

    /// Makes fresh pages dirty without asking what it costs.
    pub(super) fn soil(&mut self, bytes: Bytes) {
        if bytes.is_zero() {
            return;
        }
        let event = self.event(Op::MmapWrite, Writer::Quiet, bytes, self.now);
        self.model.step(&event);
    }

    /// A write of fresh pages that begins at `start`; None where the model has no opinion.
    pub(super) fn write(&mut self, who: Writer, bytes: Bytes, start: Time, flags: u32) -> Option<Prediction> {
        let mut event = self.event(Op::Write, who, bytes, start);
        event.flags = flags;
        self.model.step(&event)
    }

    /// An fsync of the job's file.
    pub(super) fn fsync(&mut self, start: Time) -> Option<Prediction> {
        let event = self.event(Op::Fsync, Writer::Job, Bytes::ZERO, start);
        self.model.step(&event)
    }

    fn event(&mut self, op: Op, who: Writer, bytes: Bytes, start: Time) -> Event {
        let end = &mut self.ends[who as usize];
        let mut event = Event::new(op);
        (event.pid, event.tid) = (NOBODY, NOBODY - who as u32);
        (event.dev, event.ino) = (self.device, u64::MAX - who as u64);
        (event.kind, event.start) = (FileKind::Regular, start.0);
        (event.requested, event.returned) = (bytes.0, i64::try_from(bytes.0).unwrap_or(i64::MAX));
        event.offset = *end;
        *end = end.saturating_add(bytes.0);
        event
    }
}
