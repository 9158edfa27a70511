//! What is kept of calls and samples besides the models: the report, the latest errors, writers that nobody traces.

use cawl_wire::Event;

use super::assimilate::Untraced;
use crate::call::Class;
use crate::collect::Collector;
use crate::model::{DirtyLimits, Prediction};
use crate::recent::Recent;
use crate::record::Sample;
use crate::units::{Bytes, Nanos, Time};

/// The kernel's counters, as a model is told of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) at: Time,
    /// Dirty bytes, those under writeback included.
    pub(super) dirty: Bytes,
    pub(super) limits: DirtyLimits,
    /// Pages are being written back, or were since the sample before.
    pub(super) flushing: bool,
}

/// Reads samples, one after another.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    page: Bytes,
    /// Pages written back as of the latest sample.
    written: Option<u64>,
}

impl Counters {
    pub(super) fn new(page: Bytes) -> Counters {
        Counters { page, written: None }
    }

    /// What a sample says; nothing, if its limits make no sense.
    pub(super) fn take(&mut self, sample: &Sample) -> Option<Counted> {
        let limits = sample.limits(self.page);
        if limits.background >= limits.hard {
            return None;
        }
        let flushing = sample.writeback > 0 || self.written.is_some_and(|before| before < sample.written);
        self.written = Some(sample.written);
        Some(Counted { at: sample.time, dirty: sample.dirty_bytes(self.page), limits, flushing })
    }
}

/// The books.
pub(super) struct Books {
    pub(super) collector: Collector,
    pub(super) recent: Recent,
    pub(super) untraced: Untraced,
    page: Bytes,
    /// The track whose errors are told, counted over all.
    pub(super) speaker: usize,
    /// Device of the latest call that a model had an opinion on.
    pub(super) device: u64,
}

impl Books {
    pub(super) fn new(collector: Collector, page: Bytes, speaker: usize) -> Books {
        let (recent, untraced) = (Recent::default(), Untraced::default());
        Books { collector, recent, untraced, page, speaker, device: 0 }
    }

    /// Takes a call, and what was predicted for it by each track; reports speak of the first `reported` ones.
    pub(super) fn event(
        &mut self,
        event: &Event,
        class: Class,
        predictions: &[Option<Prediction>],
        reported: usize,
    ) {
        if let (Class::Cost, Some(Some(spoken))) = (class, predictions.get(self.speaker)) {
            self.device = event.dev;
            self.recent.call(Time(event.end()), Nanos::new(event.duration as f64), spoken.cost);
        }
        self.collector.event(event, class, &predictions[..reported]);
    }

    /// A track's level was compared with the kernel's, if it had one.
    pub(super) fn compared(&mut self, track: usize, modelled: Option<Bytes>, counted: &Counted) {
        if let (true, Some(modelled)) = (track == self.speaker, modelled) {
            self.recent.dirty(modelled, counted.dirty, counted.limits.hard);
        }
    }

    /// Takes a sample, when the first track counts so many bytes made dirty.
    pub(super) fn sample(&mut self, sample: &Sample, dirtied: Bytes) {
        self.untraced.sample(sample.time, sample.dirtied, self.page, dirtied);
        self.collector.sample(sample);
    }
}
