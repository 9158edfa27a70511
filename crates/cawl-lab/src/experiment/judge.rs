//! Judges recorded runs: predictions of each call for the figures, errors of the sums for the table.

use crate::recorded::{ComparedRun, RecordedRun, run_args};
use anyhow::{Context, anyhow};
use cawl_core::{
    Analysis, AnalysisOptions, Bytes, CallState, Class, DirtyLimits, HostProfile, MODELS, Mode, Nanos,
    Prediction, Record, Sample, Time, classify, median,
};
use cawl_host::place::Place;
use serde::Serialize;

use super::Repeated;
use super::pattern::{self, Period};
use super::record::Scenario;
use crate::args::Experiment;

#[derive(Debug, Serialize)]
pub struct Judged {
    pub experiment: Experiment,
    pub runs: Vec<JudgedRun>,
}

/// A judged run: errors and plotted series.
#[derive(Debug, Serialize)]
pub struct JudgedRun {
    pub name: String,
    pub title: String,
    /// The program's arguments, as in suite.json.
    pub args: String,
    /// The program's environment, as in suite.json.
    pub env: String,
    pub calls: u64,
    pub bytes: Bytes,
    /// Sum of the costs in seconds, median of the repeats.
    pub observed_s: f64,
    /// Errors of each model, in the order of reports; medians of the repeats.
    pub models: Vec<ModelErrors>,
    /// Write requests of the device per call, those of other programs among them; median of the repeats.
    pub requests: Option<f64>,
    /// Periods of synchronous calls, the strongest first.
    pub periods: Vec<Period>,
    /// The calls that empty a stream's buffer, where others do not.
    pub emptying: Option<Emptying>,
    /// The noise floor: the error of each repetition as a prediction of another; None without repetitions.
    pub floor: Option<Errors>,
    /// The series to plot.
    #[serde(skip)]
    pub series: Series,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelErrors {
    pub model: String,
    /// Sum of the predicted costs in seconds, median of the repeats.
    pub predicted_s: f64,
    #[serde(flatten)]
    pub errors: Errors,
    /// Difference of its total error to that of `naive`, as fractions.
    pub improvement: Option<f64>,
    /// Time that the model alone took for the run, in seconds.
    pub simulation_s: f64,
}

/// Median costs of the calls that empty a stream's buffer, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Emptying {
    /// How many there are in a run.
    pub calls: usize,
    /// As observed, of all repeats.
    pub observed_s: f64,
    /// As each model predicts it, in the order of reports.
    pub predicted_s: Vec<f64>,
}

/// The metrics of docs/reference/REPORT.md, as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Errors {
    /// |predicted − observed| / observed of the sums.
    pub total: Option<f64>,
    /// |predicted − observed| / observed, mean over 16 windows of equal observed time.
    pub windowed: Option<f64>,
    /// |predicted − observed| / observed, mean over single calls.
    pub call: Option<f64>,
    /// Root mean square of modelled − sampled dirty bytes over the hard limit.
    pub dirty: Option<f64>,
}

impl Errors {
    fn of(run: &ComparedRun) -> Errors {
        Errors {
            total: run.total_error,
            windowed: run.windowed_error,
            call: run.call_error.map(|error| error.mean),
            dirty: run.dirty_error,
        }
    }

    fn medians(errors: impl IntoIterator<Item = Errors>) -> Errors {
        let errors = Vec::from_iter(errors);
        let of = |pick: fn(&Errors) -> Option<f64>| median(&Vec::from_iter(errors.iter().filter_map(pick)));
        Errors {
            total: of(|errors| errors.total),
            windowed: of(|errors| errors.windowed),
            call: of(|errors| errors.call),
            dirty: of(|errors| errors.dirty),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Series {
    /// Calls of the first repeat.
    pub calls: Vec<Call>,
    /// Costs in the other repetitions.
    pub again: Vec<Vec<Nanos>>,
    pub limits: DirtyLimits,
}

/// A call as observed and as predicted.
#[derive(Clone, Debug)]
pub struct Call {
    pub size: Bytes,
    pub observed: Nanos,
    /// Sampled dirty level at its end.
    pub dirty: Option<Bytes>,
    /// Highest sampled dirty level up to its end.
    pub peak: Bytes,
    /// Predictions, in the order of reports.
    pub predicted: Vec<Prediction>,
}

/// Replays a figure's runs through all models, in open loop.
pub fn judge(
    profile: &HostProfile,
    place: &Place,
    experiment: Experiment,
    runs: &[&Repeated],
) -> anyhow::Result<Judged> {
    let judged = runs.iter().map(|repeated| judge_run(profile, place, repeated));
    let runs = judged.collect::<anyhow::Result<_>>()?;
    Ok(Judged { experiment, runs })
}

fn judge_run(profile: &HostProfile, place: &Place, repeated: &Repeated) -> anyhow::Result<JudgedRun> {
    let Repeated { panel, runs, requests } = repeated;
    let open_loop = AnalysisOptions { mode: Mode::OpenLoop, ..AnalysisOptions::default() };
    let mut rows = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let other = &runs[(index + 1) % runs.len()];
        let again = if runs.len() > 1 { std::slice::from_ref(other) } else { &[] };
        rows.extend(crate::recorded::compare(profile, &open_loop, std::slice::from_ref(run), again)?.rows);
    }
    let errors = |model: &str| Errors::medians(rows.iter().filter(|row| row.model == model).map(Errors::of));
    let sums = |model: &str, pick: fn(&ComparedRun) -> f64| {
        median(&rows.iter().filter(|row| row.model == model).map(pick).collect::<Vec<_>>())
            .unwrap_or_default()
    };
    let naive = errors("naive").total;
    let recorded: Vec<Record> = runs.first().map(|run| run.records().collect()).unwrap_or_default();
    let models = MODELS.iter().map(|model| {
        let errors = errors(model);
        let improvement = naive.zip(errors.total).map(|(naive, own)| naive - own);
        Ok(ModelErrors {
            model: (*model).to_owned(),
            predicted_s: sums(model, |row| row.predicted_s),
            errors,
            improvement,
            simulation_s: simulation(profile, model, &recorded)?,
        })
    });
    let models = models.collect::<anyhow::Result<_>>()?;
    let series = series(profile, runs)?;
    let Scenario { name, args, env, .. } = &panel.scenario;
    let read = run_args(args, env).map_err(|argument| anyhow!("{name} has a wrong argument {argument}"))?;
    let calls = series.calls.len();
    let per_call = requests.iter().map(|requests| *requests as f64 / calls as f64).collect::<Vec<_>>();
    Ok(JudgedRun {
        name: name.clone(),
        title: panel.title.clone(),
        args: args.clone(),
        env: env.clone(),
        calls: calls as u64,
        bytes: Bytes(series.calls.iter().map(|call| call.size.0).sum()),
        observed_s: sums(MODELS[0], |row| row.observed_s),
        models,
        requests: median(&per_call),
        periods: if read.direct || read.sync {
            periods(&series, place, profile.kernel.page)
        } else {
            Vec::new()
        },
        emptying: emptying(&series),
        floor: (runs.len() > 1).then(|| errors("floor")),
        series,
    })
}

fn periods(series: &Series, place: &Place, page: Bytes) -> Vec<Period> {
    let sizes: Vec<Bytes> = series.calls.iter().map(|call| call.size).collect();
    let own = series.calls.iter().map(|call| call.observed.get()).collect();
    let again = series.again.iter().map(|run| run.iter().map(|cost| cost.get()).collect());
    pattern::periods(&sizes, &[own].into_iter().chain(again).collect::<Vec<_>>(), place, page)
}

/// Time that one model takes for a run, in seconds.
fn simulation(profile: &HostProfile, model: &str, records: &[Record]) -> anyhow::Result<f64> {
    let mut analysis = Analysis::new(profile, &[model.to_owned()], Mode::OpenLoop)?;
    let start = cawl_host::now();
    for record in records {
        std::hint::black_box(analysis.take(record));
    }
    Ok(cawl_host::now().since(start).as_seconds())
}

/// The calls that empty a stream's buffer; None if all do, as those larger than it, or there is none.
fn emptying(series: &Series) -> Option<Emptying> {
    let empties =
        |call: &Call| call.predicted.first().is_some_and(|kernel| kernel.state != CallState::Buffered);
    let (calls, others): (Vec<_>, Vec<_>) =
        series.calls.iter().enumerate().partition(|(_, call)| empties(call));
    if others.is_empty() {
        return None;
    }
    let own = calls.iter().map(|(_, call)| call.observed);
    let again = series.again.iter().flat_map(|run| calls.iter().filter_map(|(index, _)| run.get(*index)));
    let middle = |costs: Vec<Nanos>| median(&Vec::from_iter(costs.iter().map(|cost| cost.as_seconds())));
    let of = |model: usize| middle(calls.iter().map(|(_, call)| call.predicted[model].cost).collect());
    Some(Emptying {
        calls: calls.len(),
        observed_s: middle(own.chain(again.copied()).collect())?,
        predicted_s: (0..MODELS.len()).map(of).collect::<Option<_>>()?,
    })
}

fn series(profile: &HostProfile, runs: &[RecordedRun]) -> anyhow::Result<Series> {
    let (first, others) = runs.split_first().context("no run was recorded")?;
    let mut analysis = Analysis::new(profile, &[], Mode::OpenLoop)?;
    let page = profile.kernel.page;
    let mut calls = Vec::new();
    let mut samples = first.samples.iter().peekable();
    let mut peak = Bytes::ZERO;
    for record in first.records() {
        let predicted = analysis.take(&record).predictions;
        let Record::Event(event) = record else { continue };
        if classify(&event) != Class::Cost {
            continue;
        }
        let predicted: Option<Vec<Prediction>> = predicted.iter().copied().collect();
        let end = Time(event.end());
        while let Some(sample) = samples.next_if(|sample| sample.time <= end) {
            peak = peak.max(sample.dirty_bytes(page));
        }
        if let Some(predicted) = predicted {
            let observed = Nanos::new(event.duration as f64);
            let dirty = level(&first.samples, end, page);
            calls.push(Call { size: Bytes(event.requested), observed, dirty, peak, predicted });
        }
    }
    let costs = |run: &RecordedRun| {
        let counted = run.events.iter().filter(|event| classify(event) == Class::Cost);
        counted.map(|event| Nanos::new(event.duration as f64)).collect()
    };
    Ok(Series { calls, again: others.iter().map(costs).collect(), limits: profile.kernel.limits })
}

/// The dirty level at a moment, interpolated between samples.
fn level(samples: &[Sample], at: Time, page: Bytes) -> Option<Bytes> {
    let after = samples.partition_point(|sample| sample.time < at);
    let (before, after) = (samples.get(after.checked_sub(1)?)?, samples.get(after).or(samples.last())?);
    let span = after.time.since(before.time);
    let fraction = if span == Nanos::ZERO { 0.0 } else { (at.since(before.time) / span).min(1.0) };
    let (low, high) = (before.dirty_bytes(page).as_f64(), after.dirty_bytes(page).as_f64());
    Some(Bytes::from_f64(low + (high - low) * fraction))
}

/// Median errors over all runs, by model in the order of reports, and of the noise floor.
pub fn medians(figures: &[Judged]) -> (Vec<ModelErrors>, Option<Errors>) {
    let runs = || figures.iter().flat_map(|figure| &figure.runs);
    let models = MODELS.iter().enumerate().map(|(index, model)| {
        let own = || runs().map(|run| &run.models[index]);
        ModelErrors {
            model: (*model).to_owned(),
            predicted_s: own().map(|errors| errors.predicted_s).sum(),
            errors: Errors::medians(own().map(|errors| errors.errors)),
            simulation_s: own().map(|errors| errors.simulation_s).sum(),
            improvement: median(&own().filter_map(|errors| errors.improvement).collect::<Vec<_>>()),
        }
    });
    let floors: Vec<Errors> = runs().filter_map(|run| run.floor).collect();
    (models.collect(), (!floors.is_empty()).then(|| Errors::medians(floors)))
}
