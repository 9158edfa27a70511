//! Feeds records to models and keeps the books: the one path that live tracing and replay share.
//!
//! The law of this module: **predict first, look afterwards.** A model sees a call without its
//! duration, its prediction is fixed, and only then is the observed cost used, for judging and (in
//! lockstep) for the clock.

use std::collections::HashMap;

use cawl_wire::Event;
use serde::{Deserialize, Serialize};

use crate::accuracy::Accuracy;
use crate::call::{Class, classify};
use crate::collect::Collector;
use crate::model::{CostModel, DirtyLimits, MODELS, ModelState, Prediction, build};
use crate::profile::HostProfile;
use crate::record::{Record, Sample};
use crate::report::Report;
use crate::units::{Bytes, Nanos, Time};

/// Whose clock the models live by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The models see only the calls, their think times and the profile, and advance by their own
    /// predictions (MODEL.md §5; the paper's way).
    OpenLoop,
    /// Model time follows the observed clock.
    Lockstep,
}

impl Mode {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::OpenLoop => "open-loop",
            Mode::Lockstep => "lockstep",
        }
    }
}

/// A list of models that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// A model that was asked for does not exist.
    #[error("there is no model `{0}`; the models are {list}", list = MODELS.join(", "))]
    Unknown(String),
    /// A model was asked for twice.
    #[error("the model `{0}` is named twice; name each model once")]
    Twice(String),
}

/// Judges models on a stream of records.
pub struct Analysis {
    mode: Mode,
    page: Bytes,
    tracks: Vec<Track>,
    predictions: Vec<Option<Prediction>>,
    collector: Collector,
}

impl Analysis {
    /// An analysis by these models (all, if the list is empty) on a machine with this profile.
    pub fn new(profile: &HostProfile, models: &[String], mode: Mode) -> Result<Analysis, ModelsError> {
        let all = MODELS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = if models.is_empty() { &all } else { models };
        let twice = chosen.iter().enumerate().find(|(at, name)| chosen[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(ModelsError::Twice(name.clone()));
        }
        let unknown = |name: &String| ModelsError::Unknown(name.clone());
        let tracks = chosen
            .iter()
            .map(|name| build(name, profile).map(|m| Track::new(m, mode)).ok_or_else(|| unknown(name)))
            .collect::<Result<Vec<_>, _>>()?;
        let names = tracks.iter().map(|track| track.model.name()).collect();
        Ok(Analysis {
            mode,
            page: profile.kernel.page,
            predictions: Vec::with_capacity(tracks.len()),
            tracks,
            collector: Collector::new(profile, names),
        })
    }

    /// Names of the models, in the order of [`Analysis::event`]'s predictions.
    pub fn models(&self) -> Vec<&'static str> {
        self.tracks.iter().map(|track| track.model.name()).collect()
    }

    /// Takes the next record. For a call, the predictions made for it are returned.
    pub fn take(&mut self, record: &Record) -> &[Option<Prediction>] {
        match record {
            Record::Event(event) => return self.event(event),
            Record::Sample(sample) => self.sample(sample),
            other => self.collector.note(other),
        }
        &[]
    }

    /// Takes a call; returns one prediction for each model, none where a model has no opinion.
    pub fn event(&mut self, event: &Event) -> &[Option<Prediction>] {
        let class = classify(event);
        self.predictions.clear();
        if class == Class::Elsewhere {
            self.predictions.resize(self.tracks.len(), None);
        } else {
            self.predictions.extend(self.tracks.iter_mut().map(|track| track.event(event, class)));
        }
        self.collector.event(event, class, &self.predictions);
        &self.predictions
    }

    /// Takes a sample of the kernel's counters: the limits may have changed, and the modelled dirty
    /// level is compared with the real one.
    pub fn sample(&mut self, sample: &Sample) {
        let limits = sample.limits(self.page);
        if limits.background >= limits.hard {
            return;
        }
        for track in &mut self.tracks {
            track.sample(sample.time, sample.dirty_bytes(self.page), limits);
        }
        self.collector.sample(sample);
    }

    /// Where the first model says the machine stands at `now`. Looks ahead on a copy, so asking changes
    /// nothing.
    pub fn state_at(&self, now: Time) -> ModelState {
        let track = &self.tracks[0];
        let mut model = track.model.fork();
        model.advance(track.model_time(now));
        model.state()
    }

    /// The report so far.
    pub fn report(&self) -> Report {
        let tracks = self.tracks.iter().map(|track| (track.model.name(), track.accuracy.summary()));
        self.collector.report(self.mode, tracks.collect())
    }
}

/// One model with its clock and its record of errors.
struct Track {
    model: Box<dyn CostModel>,
    mode: Mode,
    accuracy: Accuracy,
    /// Where each thread stands; needed only in open loop, where every model has a time of its own.
    threads: HashMap<(u32, u32), Clock>,
    /// The latest call, for relating moments of the observed clock to the model's.
    last: Span,
    limits: Option<DirtyLimits>,
}

/// The end of a thread's latest call, on both clocks.
#[derive(Clone, Copy)]
struct Clock {
    observed: Time,
    model: Time,
}

/// A call on both clocks, and the dirty level at its two ends.
#[derive(Clone, Copy, Default)]
struct Span {
    observed: (Time, Time),
    model: (Time, Time),
    dirty: (Bytes, Bytes),
}

impl Track {
    fn new(model: Box<dyn CostModel>, mode: Mode) -> Track {
        Track {
            model,
            mode,
            accuracy: Accuracy::new(),
            threads: HashMap::new(),
            last: Span::default(),
            limits: None,
        }
    }

    fn event(&mut self, event: &Event, class: Class) -> Option<Prediction> {
        let start = self.start(event);
        // A model cannot peek at what it is not given.
        let shown = Event { start: start.0, duration: 0, ..*event };
        let before = self.model.state().dirty;
        let prediction = self.model.step(&shown);
        if self.mode == Mode::Lockstep {
            self.model.settle(event);
        }
        let observed = Nanos::new(event.duration as f64);
        // What the model has no opinion on takes, in its time, as long as it took.
        let cost = prediction.filter(|_| class == Class::Cost).map_or(observed, |p| p.cost);
        if let (Some(p), Class::Cost) = (&prediction, class) {
            self.accuracy.call(observed, p.cost);
        }
        let ends = Clock { observed: Time(event.end()), model: start + cost };
        self.last = Span {
            observed: (Time(event.start), ends.observed),
            model: (start, ends.model),
            dirty: (before, prediction.map_or_else(|| self.model.state().dirty, |p| p.dirty)),
        };
        if self.mode == Mode::OpenLoop {
            self.threads.insert((event.pid, event.tid), ends);
        }
        prediction
    }

    /// When the call begins on the model's clock.
    fn start(&self, event: &Event) -> Time {
        let observed = Time(event.start);
        match self.mode {
            Mode::Lockstep => observed,
            Mode::OpenLoop => match self.threads.get(&(event.pid, event.tid)) {
                Some(clock) => clock.model + observed.since(clock.observed),
                None => self.model_time(observed),
            },
        }
    }

    /// The moment of the model's clock that corresponds to a moment of the observed one: as far into the
    /// latest call, or as long after its end.
    fn model_time(&self, observed: Time) -> Time {
        if self.mode == Mode::Lockstep {
            return observed;
        }
        let Span { observed: (begin, end), model: (model_begin, model_end), .. } = self.last;
        if end == Time(0) {
            observed
        } else if observed >= end {
            model_end + observed.since(end)
        } else {
            model_begin + model_end.since(model_begin) * self.fraction(observed, begin, end)
        }
    }

    fn fraction(&self, moment: Time, begin: Time, end: Time) -> f64 {
        let whole = end.since(begin);
        if whole == Nanos::ZERO { 1.0 } else { (moment.since(begin) / whole).min(1.0) }
    }

    fn sample(&mut self, at: Time, sampled: Bytes, limits: DirtyLimits) {
        if self.limits != Some(limits) {
            self.limits = Some(limits);
            self.model.set_limits(limits);
        }
        let Span { observed: (begin, end), dirty: (before, after), .. } = self.last;
        let modelled = if at < end {
            // The model has taken the whole call at once; in between, dirty bytes grow evenly.
            let fraction = self.fraction(at, begin, end);
            Bytes::from_f64(before.as_f64() + (after.as_f64() - before.as_f64()) * fraction)
        } else {
            self.model.advance(self.model_time(at));
            self.model.state().dirty
        };
        if end != Time(0) {
            self.accuracy.dirty(modelled, sampled, limits.hard);
        }
    }
}
