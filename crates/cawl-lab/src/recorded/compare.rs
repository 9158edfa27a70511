//! Replays recorded runs through the models and tabulates how far they are off.
//!
//! One row for each run and model, by the metrics of [`Accuracy`]; the noise
//! floor is what a second recording of the same run would score in the place of a model.

use std::collections::BTreeMap;

use serde::Serialize;

use cawl_core::{
    Accuracy, AccuracySummary, Analysis, AnalysisOptions, CallError, Class, HostProfile, ModelsError, Nanos,
    classify, median,
};

use super::run::RecordedRun;

/// How one model did on one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedRun {
    /// Name of the run.
    pub scenario: String,
    /// Name of the model.
    pub model: String,
    /// Sum of the observed costs, in seconds.
    pub observed_s: f64,
    /// Sum of the predicted costs, in seconds.
    pub predicted_s: f64,
    /// |predicted − observed| / observed.
    pub total_error: Option<f64>,
    /// The total error over that of a second recording in the model's place, or over 3 % if that is
    /// less; None without a second recording.
    pub over_floor: Option<f64>,
    /// |predicted − observed| / observed, mean over windows of equal observed time.
    pub windowed_error: Option<f64>,
    /// |predicted − observed| / observed of single calls: the mean, and the median.
    pub call_error: Option<CallError>,
    /// Root mean square of modelled − sampled dirty bytes over the hard limit.
    pub dirty_error: Option<f64>,
}

/// Medians over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Medians {
    /// Of the total error.
    pub total_error: Option<f64>,
    /// Of the total error over the noise floor.
    pub over_floor: Option<f64>,
    /// Of the windowed error.
    pub windowed_error: Option<f64>,
    /// Of the mean error of single calls.
    pub call_error: Option<f64>,
    /// Of the dirty error.
    pub dirty_error: Option<f64>,
}

/// The table.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Rows by run, models in the order of reports; the noise floor counts as the model `floor`.
    pub rows: Vec<ComparedRun>,
    /// Medians by model.
    pub median: BTreeMap<String, Medians>,
}

/// Name of the rows that hold the noise floor.
const FLOOR: &str = "floor";
/// Two recordings may agree by chance: errors are compared with no less than this.
const MIN_FLOOR: f64 = 0.03;

/// Replays the runs through the models of these options; `again` are second recordings of the same runs,
/// matched by name, for the noise floor.
pub fn compare(
    profile: &HostProfile,
    options: &AnalysisOptions,
    runs: &[RecordedRun],
    again: &[RecordedRun],
) -> Result<Comparison, ModelsError> {
    let mut comparison = Comparison::default();
    for run in runs {
        let mut analysis = Analysis::with(profile, options)?;
        for record in run.records() {
            analysis.take(&record);
        }
        let other = again.iter().find(|other| other.name == run.name);
        let floor = other.map(|other| noise_floor(&costs(run), &costs(other)));
        let least = floor.as_ref().and_then(|floor| floor.total_error).map(|error| error.max(MIN_FLOOR));
        for model in analysis.report().models {
            let row = ComparedRun::new(&run.name, &model.name, &model.summary);
            let over_floor = row.total_error.zip(least).map(|(error, floor)| error / floor);
            comparison.rows.push(ComparedRun { over_floor, ..row });
        }
        comparison.rows.extend(floor.map(|floor| ComparedRun::new(&run.name, FLOOR, &floor)));
    }
    let mut names: Vec<String> = comparison.rows.iter().map(|row| row.model.clone()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let of = |pick: fn(&ComparedRun) -> Option<f64>| {
            let rows = comparison.rows.iter().filter(|row| row.model == name);
            median(&rows.filter_map(pick).collect::<Vec<_>>())
        };
        let medians = Medians {
            total_error: of(|row| row.total_error),
            over_floor: of(|row| row.over_floor),
            windowed_error: of(|row| row.windowed_error),
            call_error: of(|row| row.call_error.map(|error| error.mean)),
            dirty_error: of(|row| row.dirty_error),
        };
        comparison.median.insert(name, medians);
    }
    Ok(comparison)
}

impl ComparedRun {
    fn new(scenario: &str, model: &str, summary: &AccuracySummary) -> ComparedRun {
        ComparedRun {
            scenario: scenario.to_owned(),
            model: model.to_owned(),
            observed_s: summary.observed.as_seconds(),
            predicted_s: summary.predicted.as_seconds(),
            total_error: summary.total_error,
            over_floor: None,
            windowed_error: summary.windowed_error,
            call_error: summary.call_error,
            dirty_error: summary.dirty_error,
        }
    }
}

fn costs(run: &RecordedRun) -> Vec<Nanos> {
    let counted = run.events.iter().filter(|event| classify(event) == Class::Cost);
    counted.map(|event| Nanos::new(event.duration as f64)).collect()
}

/// The error of a perfect model: the same metrics with `other`, the costs observed in another recording of
/// the run, in the place of predictions. Calls are matched by position, over the length of the shorter run.
fn noise_floor(run: &[Nanos], other: &[Nanos]) -> AccuracySummary {
    let mut accuracy = Accuracy::default();
    for (&observed, &again) in run.iter().zip(other) {
        accuracy.call(observed, again);
    }
    accuracy.summary()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_floor_compares_the_common_prefix() {
        let run = [Nanos::new(100.0), Nanos::new(100.0), Nanos::new(7.0)];
        let floor = noise_floor(&run, &[Nanos::new(110.0), Nanos::new(110.0)]);
        assert_eq!(floor.calls, 2);
        assert!((floor.total_error.unwrap() - 0.1).abs() < 1e-12);
        assert!((floor.windowed_error.unwrap() - 0.1).abs() < 1e-9);
    }
}
