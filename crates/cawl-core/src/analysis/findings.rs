//! Results of an analysis outside the models: the report, the time of calls by cause, the rolling error, the
//! rate of untraced writers.

use cawl_wire::Event;
use cawl_wire::ring::CoalescedCalls;

use super::assimilate::Untraced;
use super::counters::Counters;
use super::track::Level;
use crate::call::{Class, classify};
use crate::cause::{Cause, CauseTimes, Causes, CostParts};
use crate::collect::Collector;
use crate::divide::Divider;
use crate::explain::Explaining;
use crate::model::Prediction;
use crate::profile::HostProfile;
use crate::record::Record;
use crate::rolling_error::RollingError;
use crate::run_delay::RunDelays;
use crate::selection::Selector;
use crate::units::{Bytes, Nanos, Time};

/// What an analysis says of a record; nothing, if it is not a call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shown<'a> {
    /// The call's number among all calls, from 1.
    pub number: u64,
    /// The prediction of each model, in the order of [`Analysis::models`](super::Analysis::models); none
    /// where a model has no opinion.
    pub predictions: &'a [Option<Prediction>],
    /// The call's observed time by cause, if it has a cost.
    pub causes: Option<&'a CauseTimes>,
    /// What it would take undisturbed, if it has a cost.
    pub own: Option<&'a CostParts>,
    /// The report is about it.
    pub selected: bool,
}

/// Results of an analysis.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) collector: Collector,
    pub(super) rolling: RollingError,
    pub(super) untraced: Untraced,
    /// Chooses the calls that the report is about; whether the latest record is one, if it is a call.
    selector: Option<Selector>,
    selected: bool,
    /// The run delay that no call has taken yet.
    run_delays: RunDelays,
    page: Bytes,
    counters: Counters,
    /// What each track said of the latest record, if it is a call; and if it is a sample.
    pub(super) predictions: Vec<Option<Prediction>>,
    pub(super) levels: Vec<Option<Level>>,
    /// Divides the observed time of calls.
    pub(super) divider: Divider,
    /// The latest call's time by cause, what it would take undisturbed, and the cause of the largest part, if
    /// it has a cost.
    times: CauseTimes,
    own: CostParts,
    main: Option<Cause>,
    /// The first track as calibrated, counted over all, if that is another one.
    calibrated: Option<usize>,
    /// How many tracks, the first ones, are in reports.
    reported: usize,
    /// The track whose errors are told, counted over all.
    pub(super) answering: usize,
    /// Device of the latest call that a model had an opinion on.
    pub(super) device: u64,
}

impl Findings {
    pub(super) fn new(
        collector: Collector,
        profile: &HostProfile,
        answering: usize,
        calibrated: Option<usize>,
        reported: usize,
    ) -> Findings {
        let page = profile.kernel.page;
        let (counters, divider) = (Counters::new(page), Divider::new(profile));
        Findings {
            selector: collector.selection.clone().map(Selector::new),
            collector,
            page,
            counters,
            divider,
            answering,
            calibrated,
            reported,
            ..Findings::default()
        }
    }

    /// Takes a record. What each track says of it is in [`Findings::predictions`] and [`Findings::levels`].
    pub(super) fn take(&mut self, record: &Record) {
        self.selected = self.selector.as_mut().is_none_or(|selector| selector.take(record));
        match record {
            Record::Event(event) => {
                let class =
                    classify(event).with_cost(|| self.predictions.iter().any(Option::is_some)).timed(event);
                if let (Class::Cost, Some(answer)) = (class, self.prediction(self.answering)) {
                    let cost = answer.cost;
                    self.device = event.dev;
                    self.rolling.call(Time(event.end()), Nanos::new(event.duration as f64), cost);
                }
                self.explain(event, class);
                self.selected &= self.selector.as_ref().is_none_or(|selector| selector.wants(self.main));
                let predictions = &self.predictions[..self.reported];
                let causes = self.main.map(|main| Causes { times: &self.times, own: &self.own, main });
                if self.selected {
                    self.collector.event(event, class, predictions, causes);
                } else {
                    self.collector.unselected(event);
                }
            }
            Record::Sample(sample) => {
                let answer = self.levels.get(self.answering).copied().flatten();
                let first = self.levels.iter().flatten().next();
                if let Some(counted) = self.counters.take(sample) {
                    if let Some(modelled) = answer.and_then(|level| level.modelled) {
                        self.rolling.dirty(modelled, counted.dirty, counted.limits.hard);
                    }
                    let level = first.and_then(|level| level.modelled);
                    if let Some(timeline) = &mut self.collector.timeline {
                        timeline.sample(counted.at, counted.dirty, counted.limits, level);
                    }
                }
                if let Some(level) = first {
                    self.untraced.sample(sample.time, sample.dirtied, self.page, level.dirtied);
                }
            }
            Record::File(file) => {
                self.divider.file(file);
                self.collector.note(record);
            }
            Record::RunDelay(delay) => {
                self.run_delays.add(delay);
                self.collector.note(record);
            }
            Record::Device(counters) => self.divider.device(counters),
            other => self.collector.note(other),
        }
    }

    /// Divides the observed time of a call.
    #[inline]
    fn explain(&mut self, event: &Event, class: Class) {
        if self.collector.explaining == Explaining::Nothing {
            return;
        }
        // Reports have the first track; where another one answers, that follows the counters.
        let first = self.predictions.get(self.answering).and_then(Option::as_ref);
        // In place: each is larger than what most calls have to say.
        self.own = CostParts::default();
        if class == Class::Elsewhere {
            // Nothing disturbs a write to /dev/null.
            self.own[Cause::Discard] = Nanos::new(event.duration as f64);
        } else if let Some(first) = first {
            let calibrated = self.calibrated.and_then(|track| self.predictions.get(track)?.as_ref());
            self.own.set_undisturbed(&first.parts, calibrated.map(|other| &other.parts));
        }
        self.times = CauseTimes::default();
        let (own, delays) = (&self.own, &mut self.run_delays);
        self.main = self.divider.divide(event, class, first, own, delays, &mut self.times);
    }

    /// What a track said of the latest call.
    pub(super) fn prediction(&self, track: usize) -> Option<&Prediction> {
        self.predictions.get(track)?.as_ref()
    }

    /// The latest call's causes.
    pub(super) fn causes(&self) -> Option<Causes<'_>> {
        self.main.map(|main| Causes { times: &self.times, own: &self.own, main })
    }

    /// The latest record, which is this one, without the wait for a processor, if it is a call that had one.
    pub(super) fn undelayed(&self, record: &Record) -> Option<Record> {
        let (Record::Event(event), Some(Causes { times: causes, .. })) = (record, self.causes()) else {
            return None;
        };
        let delay = causes[Cause::Preempted];
        (delay > 0).then(|| Record::Event(Event { duration: event.duration.saturating_sub(delay), ..*event }))
    }

    /// Takes coalesced calls. True if they wrote to /dev/null.
    pub(super) fn coalesced(&mut self, calls: &CoalescedCalls) -> bool {
        let discarded = self.divider.is_discard(&calls.like);
        self.collector.coalesced(calls, discarded);
        discarded
    }

    /// What is shown of the latest record, which is this one.
    pub(super) fn shown(&self, record: &Record) -> Shown<'_> {
        match record {
            Record::Event(_) => Shown {
                number: self.collector.taken,
                predictions: &self.predictions[..self.reported],
                causes: self.causes().map(|causes| causes.times),
                own: self.causes().map(|causes| causes.own),
                selected: self.selected,
            },
            _ => Shown::default(),
        }
    }
}
