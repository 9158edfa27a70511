//! A model with its clock and its record of errors.

use cawl_wire::{Event, FileId};

use super::assimilate::{Filter, Pace};
use super::counters::{Counted, Counters};
use super::hold::Hold;
use crate::accuracy::{Accuracy, AccuracySummary};
use crate::call::{Class, classify, is_durationless};
use crate::descriptors::Descriptors;
use crate::forecast::Scene;
use crate::limits::DirtyLimits;
use crate::mode::Mode;
use crate::model::{CostModel, Map, ModelState, Prediction};
use crate::profile::{HostProfile, KernelSettings};
use crate::record::Record;
use crate::units::{Bytes, Nanos, Time};

/// One model with its clock and its record of errors.
pub(super) struct Track {
    model: Box<dyn CostModel>,
    pub(super) mode: Mode,
    counters: Counters,
    accuracy: Accuracy,
    /// Where each thread stands; needed only in open loop, where every model has a time of its own.
    threads: Map<(u32, u32), Clock>,
    /// The latest call, for relating moments of the observed clock to the model's.
    last: Span,
    /// The dirty level after the latest record that changed it.
    level: Bytes,
    limits: Option<DirtyLimits>,
    /// The limits of the programs' cgroup.
    group: Option<DirtyLimits>,
    /// Corrects the level, if the mode says so.
    filter: Option<Filter>,
    /// The filter's offset when the latest call was taken: what the call's two levels were told with.
    settled: f64,
    /// Corrects the rate at which throttled writers go on, if the mode says so.
    pace: Option<Pace>,
    /// The model knows how free memory lay.
    told_memory: bool,
    /// Predicts pauses that the model's level does not show, if the mode says so.
    hold: Option<Hold>,
}

/// What a track says of a sample that makes sense.
#[derive(Clone, Copy)]
pub(super) struct Level {
    /// The level modelled, once there were calls.
    pub(super) modelled: Option<Bytes>,
    /// Bytes made dirty so far.
    pub(super) dirtied: Bytes,
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
    pub(super) fn new(model: Box<dyn CostModel>, mode: Mode, kernel: &KernelSettings) -> Track {
        Track {
            model,
            mode,
            counters: Counters::new(kernel.page),
            accuracy: Accuracy::default(),
            threads: Map::default(),
            last: Span::default(),
            level: Bytes::default(),
            limits: None,
            group: kernel.cgroup,
            told_memory: false,
            settled: 0.0,
            filter: (mode == Mode::Assimilated).then(Filter::default),
            pace: (mode == Mode::Assimilated).then(Pace::default),
            hold: (mode == Mode::Assimilated).then(Hold::default),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.model.name()
    }

    /// The model goes on with these constants, and with cold memory or warm, if that is known.
    pub(super) fn recalibrate(&mut self, profile: &HostProfile, cold: Option<bool>) {
        self.model.recalibrate(profile);
        self.model.supply(cold);
    }

    pub(super) fn summary(&self) -> AccuracySummary {
        self.accuracy.summary()
    }

    /// The modelled machine at `now`, looked ahead to on a copy.
    pub(super) fn state_at(&self, now: Time) -> ModelState {
        let mut model = self.model.fork();
        model.advance(self.model_time(now));
        model.state()
    }

    /// Where the model stood when it was last told anything.
    pub(super) fn state(&self) -> ModelState {
        self.model.state()
    }

    /// A copy to look further ahead with.
    pub(super) fn scene(&self, now: Time, device: u64) -> Scene {
        Scene::new(self.model.as_ref(), self.model_time(now), device)
    }

    /// Takes the next record, which `descriptors` have taken. What a call should cost is added to
    /// `predictions`: nothing, if the model has no opinion.
    pub(super) fn take(
        &mut self,
        record: &Record,
        descriptors: &Descriptors,
        predictions: &mut Vec<Option<Prediction>>,
    ) -> Option<Level> {
        match record {
            Record::Event(event) => {
                predictions.push(None);
                let class = classify(event).timed(event);
                if let (true, Some(prediction)) = (class != Class::Elsewhere, predictions.last_mut()) {
                    self.call(descriptors.shown(event), class, prediction);
                }
                self.gone(&descriptors.gone, Time(event.end()));
            }
            Record::Sample(sample) => {
                let counted = self.counters.take(sample)?;
                let modelled = self.sample(&counted);
                return Some(Level { modelled, dirtied: self.model.dirtied() });
            }
            // In lockstep a model is told once how things stand, as it has constants once: the rest it has to
            // foresee.
            Record::Memory(facts) if self.mode == Mode::Assimilated || !self.told_memory => {
                self.told_memory = true;
                self.model.free_memory(facts);
            }
            Record::Host(host) => {
                self.model.meet_filesystems(&host.filesystems);
                host.deleted.iter().for_each(|facts| self.model.found_deleted(facts, host.started));
            }
            Record::End(end) => self.gone(&descriptors.gone, end.at),
            _ => {}
        }
        None
    }

    /// Nothing leads to these files any more, since this moment.
    fn gone(&mut self, files: &[FileId], at: Time) {
        if !files.is_empty() {
            self.model.advance(self.model_time(at));
            files.iter().for_each(|file| self.model.gone(*file));
            self.level = self.model.dirty_level();
        }
    }

    /// Predicts the call from what was known before it; then learns from what was observed of it.
    fn call(&mut self, event: &Event, class: Class, prediction: &mut Option<Prediction>) {
        let start = self.start(event);
        // A model cannot peek at what it is not given.
        let shown = Event { start: start.0, duration: 0, ..*event };
        *prediction = match self.mode {
            Mode::OpenLoop => self.model.step(&shown),
            Mode::Lockstep | Mode::Assimilated => self.model.follow(&shown, Time(event.end())),
        };
        let before = std::mem::replace(&mut self.level, self.model.dirty_level());
        let observed = Nanos::new(event.duration as f64);
        let cost = match (prediction, class) {
            (Some(prediction), Class::Cost | Class::Effect) => {
                self.compare(event, start, prediction, observed)
            }
            (Some(prediction), Class::Untimed) if is_durationless(event) => prediction.cost,
            // What the model has no opinion on takes, in its time, as long as it took.
            _ => observed,
        };
        self.settled = self.filter.as_ref().map_or(0.0, |filter| filter.offset);
        let observed = Time(event.end());
        let model = if self.mode == Mode::OpenLoop { start + cost } else { observed };
        let dirty = (before, self.level);
        self.last = Span { observed: (Time(event.start), observed), model: (start, model), dirty };
        if self.mode == Mode::OpenLoop {
            self.threads.insert((event.pid, event.tid), Clock { observed, model });
        }
    }

    /// Corrects the model's prediction of a call's pause; then compares with what was observed, and learns
    /// from it. Returns the cost predicted.
    fn compare(&mut self, event: &Event, start: Time, prediction: &mut Prediction, observed: Nanos) -> Nanos {
        let by_model = prediction.cost;
        let limits = self.limits.map(|limits| limits.tighter(self.group));
        let pause = match (&mut self.hold, limits) {
            (Some(hold), Some(limits)) => hold.correct(start, prediction, limits),
            _ => None,
        };
        if let Some(pace) = &mut self.pace
            && let Some(factor) = pace.call(observed, by_model, prediction, limits)
        {
            self.model.correct_throttle(event.dev, factor);
        }
        if let (Some(hold), Some(pause)) = (&mut self.hold, &pause) {
            hold.learn(pause, observed);
        }
        self.accuracy.call(observed, prediction.cost);
        prediction.cost
    }

    /// When the call begins on the model's clock.
    fn start(&self, event: &Event) -> Time {
        let observed = Time(event.start);
        match self.threads.get(&(event.pid, event.tid)) {
            Some(clock) => clock.model + observed.since(clock.observed),
            None => self.model_time(observed),
        }
    }

    /// The moment of the model's clock that corresponds to a moment of the observed one: as far into the
    /// latest call, or as long after its end.
    fn model_time(&self, observed: Time) -> Time {
        if self.mode != Mode::OpenLoop {
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

    /// What the model has made its own of the offset is none any more.
    fn adopt(&mut self) {
        if let Some(filter) = &mut self.filter {
            let adopted = self.model.take_adopted().as_f64();
            filter.offset -= adopted;
            self.settled -= adopted;
        }
    }

    /// Compares with a sample; returns the modelled dirty level once there were calls.
    fn sample(&mut self, counted: &Counted) -> Option<Bytes> {
        let Counted { at, dirty: sampled, limits, flushing, begun } = *counted;
        if let Some(hold) = &mut self.hold {
            hold.sample(at, sampled, flushing);
        }
        if self.limits != Some(limits) {
            self.limits = Some(limits);
            self.model.set_limits(limits);
        }
        let Span { observed: (begin, end), dirty: (before, after), .. } = self.last;
        self.adopt();
        let modelled = if at < end {
            // The model has taken the whole call at once; in between, dirty bytes grow evenly.
            let fraction = self.fraction(at, begin, end);
            // Samples since the call was taken have moved the level, too.
            let moved = self.filter.as_ref().map_or(0.0, |filter| filter.offset_at(at) - self.settled);
            Bytes::from_f64(before.as_f64() + (after.as_f64() - before.as_f64()) * fraction + moved)
        } else {
            self.model.advance(self.model_time(at));
            self.adopt();
            self.model.dirty_level()
        };
        if let (Mode::Assimilated, Some((bytes, span))) = (self.mode, begun) {
            self.model.begun(at, bytes, span);
        }
        if let Some(filter) = &mut self.filter {
            let innovation = sampled.as_f64() - modelled.as_f64();
            self.model.disturb(filter.correct(at, innovation));
        }
        self.level = self.model.dirty_level();
        (end != Time(0)).then(|| {
            self.accuracy.dirty(modelled, sampled, limits.hard);
            modelled
        })
    }
}
