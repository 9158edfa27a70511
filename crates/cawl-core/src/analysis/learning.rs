//! Learning from what is observed, by one model's predictions.

use super::counters::Counters;
use super::track::Track;
use crate::call::{Class, classify};
use crate::divide::Widths;
use crate::learn::{Learner, Memory};
use crate::model::Prediction;
use crate::profile::HostProfile;
use crate::record::Record;

pub(super) struct Learning {
    pub(super) learner: Learner,
    /// Counted over the models that go on with what was learned.
    teacher: Option<usize>,
    counters: Counters,
}

impl Learning {
    pub(super) fn new(profile: &HostProfile, memory: Memory, teacher: Option<usize>) -> Learning {
        let learner = Learner::with(profile, memory);
        Learning { learner, teacher, counters: Counters::new(profile.kernel.page) }
    }

    /// Learns from a record of which these models said this, and lets them go on with it. Returns the new
    /// widths, if constants changed.
    pub(super) fn take<'a>(
        &mut self,
        record: &Record,
        said: &[Option<Prediction>],
        models: impl Iterator<Item = &'a mut Track>,
    ) -> Option<Widths> {
        let prediction = self.teacher.and_then(|teacher| said.get(teacher)?.as_ref());
        let changed = match (record, prediction) {
            (Record::Event(event), Some(prediction)) => {
                let is_cost = classify(event).with_cost(|| true).timed(event) == Class::Cost;
                is_cost && self.learner.call(event, prediction)
            }
            (Record::Sample(sample), _) => {
                self.counters.take(sample).is_some() && self.learner.sample(sample)
            }
            _ => false,
        };
        changed.then(|| {
            let profile = &self.learner.profile;
            models.for_each(|track| track.recalibrate(profile, self.learner.supply()));
            Widths::of(profile)
        })
    }
}
