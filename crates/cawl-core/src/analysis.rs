//! Feeds records to models and collects the findings: the one path that live tracing and replay share.
//!
//! The law of this module: **predict first, look afterwards.** A model sees a call without its duration, its
//! prediction is fixed, and only then is the observed cost used, for judging and (in lockstep) for the clock.

mod assimilate;
mod counters;
mod findings;
mod hold;
mod learning;
mod parallel;
mod track;

use cawl_wire::ring::CoalescedCalls;

use crate::cause::Causes;
use crate::classes::Classes;
use crate::collect::Collector;
use crate::descriptors::Descriptors;
use crate::explain::Explaining;
use crate::forecast::Scene;
use crate::learn::{Constant, Memory};
use crate::mode::Mode;
use crate::model::{MODELS, ModelState, Prediction, build};
use crate::profile::HostProfile;
use crate::record::{Record, StackOptions};
use crate::report::Report;
use crate::rolling_error::RecentError;
use crate::selection::Selection;
use crate::stacks::StackSums;
use crate::units::{Bytes, Nanos, Rate, Time};
use findings::Findings;
pub use findings::Shown;
use learning::Learning;
pub use parallel::{Answers, FindingsPart, ModelPart};
use track::Track;

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

/// A model, or a mode of it, that is not kept here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} is not kept here; there are {kept}")]
pub struct NotKept {
    wanted: String,
    kept: String,
}

/// What an [`Analysis`] is to keep.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalysisOptions {
    /// Models to report on; all, if empty.
    pub models: Vec<String>,
    /// Their mode.
    pub mode: Mode,
    /// Further modes of models, kept for questions only; each costs as much as a model.
    pub for_questions: Vec<(String, Mode)>,
    /// Learn constants from what is observed. The teacher is the kernel model in mode assimilated, which
    /// is nearest to the counters; it is kept in addition, if it is not among the others.
    pub learn: bool,
    /// Learn for other calls than those that come next: from all calls together (`Memory::Lasting`), and
    /// without their waits for a processor, which the live predictions have in them. Only by
    /// [`Analysis::take`]: parts that work side by side learn before the findings tell these waits.
    pub for_others: bool,
    /// Bounds of the observed time that part calls into classes; without any there are none.
    pub classes: Vec<Nanos>,
    /// Report also how each model does as calibrated: in lockstep, by the profile as it was at the start.
    /// Costs as much as the models do, where these learn or are assimilated.
    pub as_calibrated: bool,
    /// Calls that the report is about; all, if None.
    pub selection: Option<Selection>,
    /// What is run, as it was typed.
    pub command: Option<String>,
    /// Which calls have a stack; None: none.
    pub stacks: Option<StackOptions>,
    /// Report the run over time.
    pub timeline: bool,
    /// How much of the calls is explained.
    pub explaining: Explaining,
}

/// The model that constants are learned by.
const TEACHER: &str = "kernel";

/// Judges models on a stream of records.
pub struct Analysis {
    options: AnalysisOptions,
    tracks: Vec<Track>,
    /// Tracks that only answer questions; no report has them.
    for_questions: Vec<Track>,
    /// For each of `tracks` one that neither learns nor is corrected, if the two differ and are both asked
    /// for.
    calibrated: Vec<Track>,
    descriptors: Descriptors,
    findings: Findings,
    learning: Learning,
}

impl Analysis {
    /// An analysis by these models (all, if the list is empty) on a machine with this profile.
    pub fn new(profile: &HostProfile, models: &[String], mode: Mode) -> Result<Analysis, ModelsError> {
        let models = models.to_vec();
        Analysis::with(profile, &AnalysisOptions { models, mode, ..AnalysisOptions::default() })
    }

    /// An analysis with these options on a machine with this profile.
    pub fn with(profile: &HostProfile, options: &AnalysisOptions) -> Result<Analysis, ModelsError> {
        let all = MODELS.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let chosen = if options.models.is_empty() { &all } else { &options.models };
        let twice = chosen.iter().enumerate().find(|(at, name)| chosen[..*at].contains(name));
        if let Some((_, name)) = twice {
            return Err(ModelsError::Twice(name.clone()));
        }
        let track = |name: &String, mode| {
            build(name, profile)
                .map(|m| Track::new(m, mode, &profile.kernel))
                .ok_or_else(|| ModelsError::Unknown(name.clone()))
        };
        let tracks = chosen.iter().map(|name| track(name, options.mode)).collect::<Result<Vec<_>, _>>()?;
        let mut wanted = options.for_questions.clone();
        let teacher = (TEACHER.to_owned(), Mode::Assimilated);
        let taught = options.mode == Mode::Assimilated && chosen.contains(&teacher.0);
        if options.learn && !taught && !wanted.contains(&teacher) {
            wanted.push(teacher);
        }
        let for_questions = wanted.iter().map(|(name, mode)| track(name, *mode));
        let for_questions = for_questions.collect::<Result<Vec<_>, _>>()?;
        let differ = options.as_calibrated && (options.learn || options.mode != Mode::Lockstep);
        let calibrated = chosen.iter().filter(|_| differ).map(|name| track(name, Mode::Lockstep));
        let calibrated = calibrated.collect::<Result<Vec<_>, _>>()?;
        let names = tracks.iter().map(Track::name).collect();
        let best = |name: &str| {
            let of =
                tracks.iter().chain(&for_questions).enumerate().filter(|(_, track)| track.name() == name);
            of.min_by_key(|(_, track)| track.mode != Mode::Assimilated).map(|(at, _)| at)
        };
        let memory = if options.for_others { Memory::Lasting } else { Memory::Fading };
        let learning = Learning::new(profile, memory, best(TEACHER));
        let mut collector = Collector::new(profile, names, options.timeline);
        collector.classes = Classes::new(&options.classes);
        collector.stacks = StackSums::new(options.stacks);
        collector.explaining = options.explaining;
        collector.selection.clone_from(&options.selection);
        Ok(Analysis {
            options: options.clone(),
            descriptors: Descriptors::default(),
            findings: Findings::new(
                collector,
                profile,
                tracks.first().and_then(|first| best(first.name())).unwrap_or(0),
                (!calibrated.is_empty()).then_some(tracks.len() + for_questions.len()),
                tracks.len(),
            ),
            tracks,
            for_questions,
            calibrated,
            learning,
        })
    }

    /// Names of the models, in the order of [`Analysis::take`]'s predictions.
    pub fn models(&self) -> Vec<&'static str> {
        self.tracks.iter().map(Track::name).collect()
    }

    /// Takes the next record. For a call, the predictions made for it are returned, and its causes.
    pub fn take(&mut self, record: &Record) -> Shown<'_> {
        self.descriptors.take(record);
        let Findings { predictions, levels, .. } = &mut self.findings;
        predictions.clear();
        levels.clear();
        for tracks in [&mut self.tracks, &mut self.for_questions, &mut self.calibrated] {
            for track in tracks {
                levels.push(track.take(record, &self.descriptors, predictions));
            }
        }
        self.findings.take(record);
        // What was predicted is judged; now it may be learned from.
        if self.options.learn {
            let undelayed = self.options.for_others.then(|| self.findings.undelayed(record)).flatten();
            let record = undelayed.as_ref().unwrap_or(record);
            let tracks = self.tracks.iter_mut().chain(&mut self.for_questions);
            if let Some(widths) = self.learning.take(record, &self.findings.predictions, tracks) {
                self.findings.divider.widths = widths;
            }
        }
        self.findings.shown(record)
    }

    /// What was predicted for the latest call by the model and mode that answer unless a question names
    /// others ([`Analysis::view`]).
    pub fn answering(&self) -> Option<&Prediction> {
        self.findings.prediction(self.findings.answering)
    }

    /// The latest call's observed time by cause, if it has a cost, and what it would take undisturbed.
    pub fn causes(&self) -> Option<Causes<'_>> {
        self.findings.causes()
    }

    /// Takes coalesced calls. When they are taken does not matter. True if they wrote to /dev/null.
    pub fn coalesced(&mut self, calls: &CoalescedCalls) -> bool {
        self.findings.coalesced(calls)
    }

    /// Where a model says the machine stands at `now`: the first one that fits what is asked for, those that
    /// follow the kernel's counters before others.
    pub fn view(&self, model: Option<&str>, mode: Option<Mode>, now: Time) -> Result<ModelState, NotKept> {
        Ok(self.track(model, mode)?.state_at(now))
    }

    /// The model and mode that [`Analysis::view`] answers by.
    pub fn viewed(&self, model: Option<&str>, mode: Option<Mode>) -> Result<(&'static str, Mode), NotKept> {
        let track = self.track(model, mode)?;
        Ok((track.name(), track.mode))
    }

    /// A copy of a model at `now`, to be looked ahead with elsewhere: [`forecast`](crate::forecast()) and
    /// [`predict`](crate::predict()) take more time than the copy.
    pub fn scene(&self, model: Option<&str>, mode: Option<Mode>, now: Time) -> Result<Scene, NotKept> {
        Ok(self.track(model, mode)?.scene(now, self.findings.device))
    }

    /// Device (`st_dev`) of the latest call that has a cost; 0 before the first.
    pub fn device(&self) -> u64 {
        self.findings.device
    }

    /// Rate at which untraced writers make pages dirty, as the kernel's counters tell;
    /// [`Rate::MIN`] for none.
    pub fn untraced_rate(&self) -> Rate {
        Rate::per_second(self.findings.untraced.rate())
    }

    /// How wrong the first model was over the latest minute of writing, in the mode that [`Analysis::view`]
    /// chooses.
    pub fn recent_error(&self) -> RecentError {
        self.findings.rolling.error()
    }

    /// How many samples that model was compared with, and how far apart it was from the latest, before it was
    /// corrected.
    pub fn latest_apart(&self) -> Option<(u64, Bytes)> {
        self.findings.rolling.latest_apart()
    }

    /// The profile with what was learned, and each constant that is learned.
    pub fn learned(&self) -> (HostProfile, Vec<Constant>) {
        (self.learning.learner.profile.clone(), self.learning.learner.constants())
    }

    /// The calls tell that the memory of new pages came warm, whatever the law of free memory foresaw.
    pub fn came_warm(&self) -> bool {
        self.learning.learner.cold.came_warm()
    }

    /// From now on what is learned of the device with this number (`st_dev`) is gathered for
    /// [`Analysis::merged`].
    pub fn keep(&mut self, dev: u64) {
        self.learning.learner.keep(dev);
    }

    /// True if anything was gathered.
    pub fn has_kept(&self) -> bool {
        self.learning.learner.has_kept()
    }

    /// `file`, a profile as it is stored, with what was learned since the beginning; `now` in seconds since
    /// 1970-01-01 UTC. None if nothing was.
    pub fn merged(&self, file: &HostProfile, now: u64) -> Option<HostProfile> {
        self.learning.learner.merged(file, now)
    }

    fn track(&self, model: Option<&str>, mode: Option<Mode>) -> Result<&Track, NotKept> {
        let model = model.unwrap_or(self.tracks[0].name());
        let kept = || self.tracks.iter().chain(&self.for_questions);
        let fits = |track: &&Track| track.name() == model && mode.is_none_or(|mode| track.mode == mode);
        let best = kept().filter(fits).min_by_key(|track| track.mode != Mode::Assimilated);
        best.ok_or_else(|| NotKept {
            wanted: match mode {
                Some(mode) => format!("model `{model}` in mode {}", mode.name()),
                None => format!("model `{model}`"),
            },
            kept: kept().map(|t| format!("{} ({})", t.name(), t.mode.name())).collect::<Vec<_>>().join(", "),
        })
    }

    /// Where the model that [`Analysis::view`] asks unless told otherwise stood after the latest record:
    /// without a copy, so that it costs nothing to ask often.
    pub fn state(&self) -> ModelState {
        self.track(None, None).map_or_else(|_| self.tracks[0].state(), Track::state)
    }

    /// The report so far.
    pub fn report(&self) -> Report {
        let accuracy = |tracks: &[Track]| tracks.iter().map(Track::summary).collect::<Vec<_>>();
        let live = accuracy(&self.tracks);
        let calibrated = match self.options.as_calibrated {
            true if self.calibrated.is_empty() => live.clone(),
            true => accuracy(&self.calibrated),
            false => Vec::new(),
        };
        let AnalysisOptions { mode, learn, .. } = self.options;
        let mut report = self.findings.collector.report(mode, learn, &live, &calibrated);
        report.tell_cold(&self.learning.learner.cold, self.learning.learner.profile.kernel.page);
        report
    }
}

#[cfg(test)]
mod tests {
    use cawl_wire::{Event, FileKind, Op};

    use super::*;
    use crate::cause::Cause;
    use crate::record::{RunDelay, Sample};
    use crate::units::Nanos;
    use crate::{CostModel, Kernel};

    #[test]
    fn limits_that_change_are_those_of_every_model() {
        let profile = HostProfile::uncalibrated();
        let mut analysis = Analysis::new(&profile, &[], Mode::Lockstep).expect("known models");
        let sample = Sample {
            time: Time(1_000),
            dirty: 0,
            writeback: 0,
            background: 1000,
            hard: 3000,
            written: 0,
            dirtied: 0,
        };
        for sample in [sample, Sample { time: Time(2_000), hard: 5000, ..sample }] {
            analysis.take(&Record::Sample(sample));
            for model in ["kernel", "cawl"] {
                let state = analysis.view(Some(model), None, sample.time).expect("kept");
                assert_eq!(state.limits, sample.limits(profile.kernel.page), "{model}");
            }
        }
    }

    #[test]
    fn a_call_that_waited_for_a_processor_was_preempted() {
        let mut analysis = Analysis::new(&HostProfile::uncalibrated(), &[], Mode::Lockstep).expect("models");
        let (from, to, delayed) = (Time(0), Time(20_000_000), Nanos::millis(6.0));
        let delay = RunDelay { pid: 7, tid: 8, from, to, ran: Nanos::millis(5.0), delayed };
        analysis.take(&Record::RunDelay(delay));
        let mut call = Event { pid: 7, tid: 8, kind: FileKind::Regular, ..Event::new(Op::Write) };
        (call.dev, call.ino, call.requested, call.returned) = (1, 2, 4096, 4096);
        let mut preempted = |tid, start, duration| {
            let call = Event { tid, start, duration, ..call };
            analysis.take(&Record::Event(call)).causes.expect("a cost")[Cause::Preempted]
        };
        // A call as long as predicted was not, another thread's was not, and no delay is taken twice.
        assert_eq!(preempted(8, 1_000_000, 1000), 0);
        assert_eq!(preempted(9, 2_000_000, 5_000_000), 0);
        let first = preempted(8, 3_000_000, 4_500_000);
        assert!(first > 4_000_000 && first < 4_500_000, "{first}");
        // The rest, but for rounding.
        assert!(preempted(8, 9_000_000, 9_000_000).abs_diff(6_000_000 - first) <= 2);
    }

    /// A program that waits for a processor at each third call: a machine without that load has its calls.
    #[test]
    fn waits_for_a_processor_are_not_learned_where_that_is_asked_for() {
        let learned = |for_others| {
            let options = AnalysisOptions {
                models: vec![TEACHER.to_owned()],
                mode: Mode::Assimilated,
                learn: true,
                for_others,
                ..AnalysisOptions::default()
            };
            let mut analysis = Analysis::with(&HostProfile::uncalibrated(), &options).expect("models");
            let mut call = Event { pid: 7, tid: 8, kind: FileKind::Regular, ..Event::new(Op::Write) };
            (call.dev, call.ino, call.requested, call.returned) = (1, 2, 4096, 4096);
            for at in 0..3000 {
                let waited = if at % 3 == 0 { 1_000_000 } else { 0 };
                (call.start, call.duration, call.offset) = (at * 10_000_000, 2_000 + waited, at % 64 * 4096);
                let (from, to, ran) = (Time(call.start), Time(call.end()), Nanos::new(2_000.0));
                let delay = RunDelay { pid: 7, tid: 8, from, to, ran, delayed: Nanos::new(waited as f64) };
                analysis.take(&Record::RunDelay(delay));
                analysis.take(&Record::Event(call));
            }
            // One more, as the learned constants have it.
            let mut model = Kernel::new(&analysis.learned().0);
            (call.start, call.duration) = (0, 0);
            model.step(&call).expect("a cost");
            call.start = 10_000_000;
            model.step(&call).expect("a cost").cost.get()
        };
        let (with, without) = (learned(false), learned(true));
        assert!(without < 5_000.0 && with > 2.0 * without, "{with} and {without} ns");
    }

    #[test]
    fn a_call_without_duration_is_predicted_and_not_compared() {
        for mode in [Mode::OpenLoop, Mode::Lockstep] {
            let mut analysis = Analysis::new(&HostProfile::uncalibrated(), &[], mode).expect("models");
            let flags = cawl_wire::flag::ESTIMATED;
            let mut call = Event { flags, kind: FileKind::Regular, ..Event::new(Op::Write) };
            (call.dev, call.ino, call.requested, call.returned, call.start) = (1, 2, 4096, 4096, 1_000_000);
            let shown = analysis.take(&Record::Event(call));
            assert!(shown.predictions[0].is_some_and(|told| told.cost.get() > 0.0) && shown.causes.is_none());
            let report = analysis.report();
            assert_eq!((report.models[0].calls, report.models[0].total_error), (0, None));
            assert!(report.files[0].ops[0].predicted_s.get("kernel").is_some_and(|s| *s > 0.0));
            analysis.take(&Record::Event(Event { start: 2_000_000, duration: 1000, flags: 0, ..call }));
            assert_eq!(analysis.report().models[0].calls, 1);
        }
    }

    #[test]
    fn what_is_not_kept_is_refused_by_name() {
        let profile = HostProfile::uncalibrated();
        let options = AnalysisOptions {
            models: vec!["cawl".to_owned()],
            learn: true,
            for_questions: vec![("cawl".to_owned(), Mode::OpenLoop)],
            ..AnalysisOptions::default()
        };
        let analysis = Analysis::with(&profile, &options).expect("known models");
        // The teacher is kept too.
        assert_eq!(analysis.viewed(Some("kernel"), None), Ok(("kernel", Mode::Assimilated)));
        assert_eq!(analysis.viewed(None, None), Ok(("cawl", Mode::Lockstep)));
        assert_eq!(analysis.viewed(None, Some(Mode::OpenLoop)), Ok(("cawl", Mode::OpenLoop)));
        let refused = analysis.view(Some("naive"), None, Time(0)).expect_err("no such track").to_string();
        assert!(refused.contains("`naive`") && refused.contains("cawl (open-loop)"), "{refused}");
        assert_eq!(analysis.report().models.len(), 1);
        assert!("lockstep".parse::<Mode>() == Ok(Mode::Lockstep) && "x".parse::<Mode>().is_err());
    }
}
