//! Results of an analysis outside the models: the report, the rolling error, the rate of untraced writers.

use super::assimilate::Untraced;
use super::counters::{Counted, Counters};
use super::track::Said;
use crate::call::{Class, classify};
use crate::collect::Collector;
use crate::model::Prediction;
use crate::record::Record;
use crate::rolling_error::RollingError;
use crate::units::{Bytes, Nanos, Time};

/// Results of an analysis.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) collector: Collector,
    pub(super) rolling: RollingError,
    pub(super) untraced: Untraced,
    page: Bytes,
    counters: Counters,
    /// What the latest record says, if it is a sample that makes sense.
    pub(super) counted: Option<Counted>,
    /// What each track said of the latest call.
    predictions: Vec<Option<Prediction>>,
    /// How many tracks, the first ones, reports speak of.
    reported: usize,
    /// The track whose errors are told, counted over all.
    pub(super) speaker: usize,
    /// Device of the latest call that a model had an opinion on.
    pub(super) device: u64,
}

impl Findings {
    pub(super) fn new(collector: Collector, page: Bytes, speaker: usize, reported: usize) -> Findings {
        let counters = Counters::new(page);
        Findings { collector, page, counters, speaker, reported, ..Findings::default() }
    }

    /// Takes a record with what each track said of it.
    pub(super) fn take(&mut self, record: &Record, said: impl Iterator<Item = Said>) {
        self.predictions.clear();
        self.counted = match record {
            Record::Sample(sample) => self.counters.take(sample),
            _ => None,
        };
        let mut dirtied = None;
        for (track, said) in said.enumerate() {
            match said {
                Said::Call(prediction) => self.predictions.push(prediction),
                Said::Level(modelled, so_far) => {
                    dirtied.get_or_insert(so_far);
                    if let (true, Some(modelled), Some(counted)) =
                        (track == self.speaker, modelled, &self.counted)
                    {
                        self.rolling.dirty(modelled, counted.dirty, counted.limits.hard);
                    }
                }
                Said::Nothing => {}
            }
        }
        match record {
            Record::Event(event) => {
                let class = classify(event);
                if let (Class::Cost, Some(spoken)) = (class, self.prediction(self.speaker)) {
                    let cost = spoken.cost;
                    self.device = event.dev;
                    self.rolling.call(Time(event.end()), Nanos::new(event.duration as f64), cost);
                }
                self.collector.event(event, class, &self.predictions[..self.reported]);
            }
            Record::Sample(sample) => {
                if let Some(dirtied) = dirtied {
                    self.untraced.sample(sample.time, sample.dirtied, self.page, dirtied);
                }
            }
            other => self.collector.note(other),
        }
    }

    /// What a track said of the latest call.
    pub(super) fn prediction(&self, track: usize) -> Option<&Prediction> {
        self.predictions.get(track)?.as_ref()
    }

    /// What is shown of the latest record, which is this one: the predictions of the tracks that reports
    /// speak of.
    pub(super) fn shown(&self, record: &Record) -> &[Option<Prediction>] {
        if matches!(record, Record::Event(_)) { &self.predictions[..self.reported] } else { &[] }
    }
}
