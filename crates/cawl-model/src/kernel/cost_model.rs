//! The kernel's model as any model of what calls cost.

use std::sync::Arc;

use cawl_wire::{Event, FileId};

use super::super::throttle::check_interval;
use super::super::writeback::{Device, Thresholds};
use super::intervals::Spreads;
use super::{Disturbance, Kernel, Prediction, thresholds};
use crate::constants::Constants;
use crate::cost_model::{CostModel, ModelState, Regime};
use crate::limits::DirtyLimits;
use crate::mounts::Filesystems;
use crate::profile::HostProfile;
use crate::record::{DeletedFacts, Filesystem, MemoryFacts};
use crate::units::{Bytes, Nanos, PageRate, Pages, Rate, Time};

/// Writers among which a device's bandwidth is shared out, at most: a bound on what base rate is believed.
const WRITERS: f64 = 64.0;

impl CostModel for Kernel {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn step(&mut self, event: &Event) -> Option<Prediction> {
        self.step_call(event)
    }

    fn follow(&mut self, event: &Event, end: Time) -> Option<Prediction> {
        self.follow_call(event, end)
    }

    fn gone(&mut self, file: FileId) {
        let device = self.device(file.dev);
        let file = self.machine.cache.open(file, device);
        self.truncate(file, 0);
    }

    fn advance(&mut self, to: Time) {
        let to = self.seconds(to.0);
        self.machine.advance(to);
    }

    fn set_limits(&mut self, limits: DirtyLimits) {
        self.limits = limits;
        let new = thresholds(limits, self.constants.page);
        self.writers.check_interval = check_interval(new.hard, self.profile.kernel.cpus);
        let limit = self.machine.global.limit.max(new.hard).max(Pages::of(self.machine.level_now()));
        self.machine.global = Thresholds { limit, ..new };
    }

    fn correct_throttle(&mut self, device: u64, factor: f64) {
        let id = self.filesystems.below(device);
        if let Some(device) = self.machine.devices.iter_mut().find(|of| of.id == id) {
            // The kernel shares the device's bandwidth out among writers, and seldom among more than these.
            let (least, most) = (device.rate / WRITERS, device.rate * WRITERS.sqrt());
            device.limit.base = (device.limit.base * factor).max(least).min(most);
            device.limit.balanced = (device.limit.balanced * factor).max(least).min(most);
        }
    }

    fn meet_filesystems(&mut self, mounts: &[Filesystem]) {
        self.filesystems = Arc::new(Filesystems::of(mounts));
    }

    fn recalibrate(&mut self, profile: &HostProfile) {
        self.reads.hasten(&mut self.machine, profile);
        let own = Arc::make_mut(&mut self.profile);
        own.memory.clone_from(&profile.memory);
        own.calls.clone_from(&profile.calls);
        own.device.clone_from(&profile.device);
        own.others.clone_from(&profile.others);
        self.constants = Arc::new(Constants::of(&self.profile));
        self.intervals = Spreads::of(&self.profile);
        let page = self.constants.page as f64;
        for at in 0..self.machine.devices.len() {
            let of = self.profile.device_of(self.machine.devices[at].profiled);
            let queue = (of.queue.0 as f64 / page) as u64;
            self.machine.devices[at].describe(&self.profile, &self.constants);
            self.machine.set_rate(at, PageRate(of.writeback.value.get() / page), queue);
        }
    }

    fn supply(&mut self, cold: Option<bool>) {
        self.memory.supply = cold;
    }

    fn free_memory(&mut self, facts: &MemoryFacts) {
        let now = self.seconds(facts.time.0);
        self.memory.found(facts, now);
    }

    fn found_deleted(&mut self, facts: &DeletedFacts, at: Time) {
        Kernel::found_deleted(self, facts, at);
    }

    fn cold_left(&self) -> Option<Nanos> {
        let [_, likely, _] = self.memory.free.as_deref()?;
        Some((likely.cold().0 * self.constants.cold_page).into())
    }

    fn in_calls_of(&mut self, chunk: Bytes) {
        self.memory.most = (chunk.0 / self.constants.page).max(1);
        if self.memory.free.is_some() {
            self.memory.supply = None;
        }
    }

    fn dirtied(&self) -> Bytes {
        self.conservation().dirtied
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        let page = self.constants.page as f64;
        let at = self.seconds(disturbance.at.0);
        let foreign = &mut self.machine.foreign;
        (foreign.at, foreign.told) = (at, true);
        (foreign.pages, foreign.drift) =
            (Pages(disturbance.offset / page), PageRate(disturbance.drift / page));
    }

    fn take_adopted(&mut self) -> Bytes {
        Bytes(std::mem::take(&mut self.machine.foreign.adopted) * self.constants.page)
    }

    fn begun(&mut self, at: Time, bytes: f64, span: Nanos) {
        let at = self.seconds(at.0);
        self.machine.begun(at, Pages(bytes / self.constants.page as f64), span.into());
    }

    fn disturbance(&self, at: Time) -> Disturbance {
        let page = self.constants.page as f64;
        let seconds = at.since(Time(self.origin.unwrap_or(at.0)));
        let offset = self.machine.foreign_at(seconds.into()).0 * page;
        Disturbance { at, offset, drift: self.machine.foreign.drift.0 * page }
    }

    fn dirty_level(&self) -> Bytes {
        self.dirty()
    }

    fn state(&self) -> ModelState {
        let machine = &self.machine;
        let page = self.constants.page;
        let dirty = self.dirty();
        // Above the background limit the flusher works, whether or not the writers are traced.
        let at_work = |device: &Device| device.writes_back(machine.now);
        let flushing = dirty > self.limits.background || machine.devices.iter().any(at_work);
        let throttled = dirty > self.limits.freerun();
        let rate = |rate: PageRate| Rate::per_second(rate.0 * page as f64);
        let busiest = machine.devices.iter().max_by(|a, b| a.level().cmp(&b.level()));
        ModelState {
            time: Time(self.origin.unwrap_or(0)) + machine.now.into(),
            dirty,
            regime: match (throttled, flushing) {
                (true, _) => Regime::Throttle,
                (false, true) => Regime::Flush,
                (false, false) => Regime::Free,
            },
            limits: self.limits,
            writeback: flushing.then(|| rate(machine.rate_at_work())),
            throttled: busiest.filter(|_| throttled).map(|d| rate(d.limit.base)),
        }
    }

    fn fork(&self) -> Box<dyn CostModel> {
        Box::new(self.copy())
    }

    fn coarsen(&mut self) {
        self.machine.coarsen();
    }
}
