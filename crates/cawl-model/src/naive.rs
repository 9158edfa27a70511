//! `naive`: what SimGrid does. Cost is size over device bandwidth, whatever else goes on.
//!
//! The baseline of the paper (§6): no call cost, no cache, no throttling, no state.

use cawl_wire::Event;

use super::{CallState, CostModel, ModelState, Prediction, Regime};
use crate::call::{Class, classify, is_clone, is_file_read, kernel_bytes};
use crate::cause::{Cause, CostParts};
use crate::limits::DirtyLimits;
use crate::profile::HostProfile;
use crate::units::{Bytes, Rate, Time};

/// SimGrid's model of a disk.
#[derive(Clone, Debug)]
pub struct Naive {
    device: Rate,
    reads: Rate,
    limits: DirtyLimits,
    now: Time,
}

impl Naive {
    /// A disk with the profile's direct bandwidths.
    pub fn new(profile: &HostProfile) -> Naive {
        let device = &profile.device;
        Naive {
            device: device.write.value,
            reads: device.read.value,
            limits: profile.kernel.limits,
            now: Time(0),
        }
    }
}

impl CostModel for Naive {
    fn name(&self) -> &'static str {
        "naive"
    }

    fn step(&mut self, event: &Event) -> Option<Prediction> {
        self.advance(Time(event.start));
        if classify(event) != Class::Cost {
            return None;
        }
        // A stream's bytes count when the program writes them: this model knows no buffer.
        let bytes = match event.op {
            cawl_wire::Op::StreamWrite => event.returned.max(0) as u64,
            cawl_wire::Op::StreamFlush | cawl_wire::Op::StreamClose | cawl_wire::Op::StreamSeek => 0,
            _ if is_clone(event) => 0,
            _ => kernel_bytes(event),
        };
        let cost = match event.op {
            _ if is_file_read(event) => Bytes(event.returned.max(0) as u64) / self.reads,
            _ => Bytes(bytes) / self.device,
        };
        self.advance(Time(event.start) + cost);
        Some(Prediction {
            cost,
            state: CallState::Sync,
            parts: CostParts::from([(Cause::Transfer, cost)]),
            ..Prediction::default()
        })
    }

    fn follow(&mut self, event: &Event, end: Time) -> Option<Prediction> {
        let before = self.now;
        let prediction = self.step(event);
        self.now = self.now.min(end).max(before);
        prediction
    }

    fn advance(&mut self, to: Time) {
        self.now = self.now.max(to);
    }

    fn set_limits(&mut self, limits: DirtyLimits) {
        self.limits = limits;
    }

    fn recalibrate(&mut self, profile: &HostProfile) {
        (self.device, self.reads) = (profile.device.write.value, profile.device.read.value);
    }

    fn state(&self) -> ModelState {
        ModelState {
            time: self.now,
            dirty: Bytes::ZERO,
            regime: Regime::Free,
            limits: self.limits,
            writeback: None,
            throttled: None,
        }
    }

    fn fork(&self) -> Box<dyn CostModel> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::{FileKind, Op};

    #[test]
    fn cost_is_size_over_bandwidth() {
        let mut model = Naive::new(&HostProfile::uncalibrated());
        let mut event = Event::new(Op::Write);
        (event.kind, event.returned) = (FileKind::Regular, 500_000_000);
        assert_eq!(model.step(&event).unwrap().cost.as_seconds(), 1.0);
        event.op = Op::Fsync;
        assert_eq!(model.step(&event).unwrap().cost.as_seconds(), 0.0);
    }
}
